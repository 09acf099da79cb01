#!/bin/bash
# The kernels of every spec, and of every value of its options, on the emulator: tests/ladder/collection.sh at a few
# small sizes, in the schedule that the planner takes and in double. Without AddressSanitizer, which the ladder has for
# each spec: the emulator itself still sees races, missing barriers and reads of what was never written. In: BUILD,
# CELLC, CC, CXX; ONLY is a regular expression on the names of instances. Out: what failed, and the sum as the last
# line.
set -u
# shellcheck source=tests/ladder/emulated.sh
source "$(dirname "$0")/../ladder/emulated.sh"
if [[ -z $CXX || -n ${SAN:-} ]]; then
    echo "kernels of all specs: $([[ -z $CXX ]] && echo "no C++ compiler" || echo "not with sanitizers")"
    skipped=1
    finish
fi
out=$build/tests/spec_kernels
mkdir -p "$out"
export EMU_SANITIZE=0 AS_USERS=1
TYPES=${TYPES:-f64} MATRIX=$ladder/collection.sh bash "$ladder/prepare.sh" "$out" >"$out/prepare.log"
failed=$(grep -c '^FAIL' "$out/prepare.log")
cat "$out/prepare.log"
emulate "$out"
echo "kernels of all specs: $(wc -l <"$out/results") instances"
finish
