#!/bin/bash
# The ladder: the schedules of the specs in the types that cover.awk and the list `chosen` take (FULL=1: all,
# all types, and more sizes) against the reference in double, on the emulator, some of them under
# AddressSanitizer (SANITIZED=all: all), some of them (FULL=1: all settings) on the backend `cpu` too, and,
# where there are a GPU and nvcc, on the GPU. In: BUILD, CELLC, CC, CXX, NVCC; ONLY is a regular expression on
# the names of instances. Out: what failed, and the sum as the last line.
set -u
# shellcheck source=tests/ladder/emulated.sh
source "$(dirname "$0")/emulated.sh"
out=$build/tests/ladder
mkdir -p "$out"
if ! sanitizes; then
    echo "ladder: no C++ compiler with AddressSanitizer (apt-get install g++ brings one)"
    skipped=1
    finish
fi
CPU=${CPU:-${FULL:+all}}
gpu=
[[ -z ${NVCC:-} ]] || ! nvidia-smi -L >/dev/null 2>&1 || gpu=1
# The whole matrix where all is asked for, or types, or where it runs on a GPU.
[[ -n ${FULL:-}${TYPES:-}$gpu ]] || export COVER=1 CHOSEN=${CHOSEN-ladder}
CPU=${CPU:-some} bash "$ladder/prepare.sh" "$out" >"$out/prepare.log"
failed=$(grep -c '^FAIL' "$out/prepare.log")
cat "$out/prepare.log"
emulate "$out"
echo "the backend cpu: $(compgen -G "$out/*/*_cpu.c" | wc -l) instances"
[[ -n $(compgen -G "$out/*/*_cpu.c") || ! -s $out/list ]] || failed=$((failed + 1))
if [[ -n $gpu ]]; then
    bash "$ladder/gpu.sh" "$out" >"$out/gpu.log"
    cat "$out/gpu.log"
    read -r p f s < <(tail -n 1 "$out/gpu.log" | awk '{ print $1 + 0, $3 + 0, $5 + 0 }')
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    ((p > 0)) || failed=$((failed + 1))
else
    echo "the ladder on a GPU: skipped, there is none or no nvcc"
    skipped=$((skipped + 1))
fi
finish
