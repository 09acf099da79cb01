#!/bin/bash
# The kernels of every spec, and of the values of its options that tests/ladder/chosen takes (FULL=1: all),
# on the emulator: tests/ladder/collection.sh at a few small sizes, in the schedule that the planner takes:
# in f32 where that has other kernels than f64 has (those that walk all steps with a param on the chip are
# of narrow types), else in f64; with FULL=1 in both, with TYPES in those. Without AddressSanitizer, which
# the ladder has for most specs: the emulator itself still sees races, missing barriers and reads of what
# was never written. In: BUILD, CELLC, CC, CXX; ONLY is a regular expression on the names of instances. Out:
# what failed, and the sum as the last line.
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
given=${FULL:-}${TYPES:-}
[[ -n $given ]] || export CHOSEN=${CHOSEN-spec_kernels}
TYPES=${TYPES:-f64 f32} MATRIX=$ladder/collection.sh bash "$ladder/prepare.sh" "$out" >"$out/prepare.log"
failed=$(grep -c '^FAIL' "$out/prepare.log")
cat "$out/prepare.log"

kernels() { grep -ohE '^[a-z0-9_]+\(const __grid_constant__' "$out/$1"/*.cu; } # of an instance, by name
if [[ -z $given ]]; then
    mv "$out/list" "$out/all"
    taken=" $(awk '$1 == "spec_kernels" && $4 == "take" { printf "%s ", $2 }' "$ladder/chosen") "
    [[ -n ${CHOSEN:-} && -z ${ONLY:-} ]] || taken=
    while read -r name rest; do
        [[ $taken != *" $name "* ]] || { echo "$name $rest"; continue; }
        other=${name/_auto_f32/_auto_f64}
        if [[ $name == "$other" ]]; then
            other=${name/_auto_f64/_auto_f32} wanted=f64
        else
            wanted=f32
        fi
        differ=f64
        [[ $(kernels "$name") == "$(kernels "$other")" ]] || differ=f32
        [[ $differ != "$wanted" ]] || echo "$name $rest"
    done <"$out/all" >"$out/list"
fi
emulate "$out"
echo "kernels of all specs: $(wc -l <"$out/results") instances"
finish
