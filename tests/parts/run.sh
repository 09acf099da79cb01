#!/bin/bash
# Which products a plan makes of parts (--products auto), by sizes and the device's capability: the conditions of the plan's
# operations, with no product computed. In: BUILD, CELLC, CC, SAN.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
export ASAN_OPTIONS=detect_leaks=0
out=$build/tests/parts
rm -rf "$out" && mkdir -p "$out"
libs=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
# shellcheck disable=SC2086
if "$cellc" build --cpu none linear_act --kernels-apart -o "$out" >/dev/null 2>"$out/log" &&
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -Iruntime -Itests/runtime ${SAN:+-fsanitize=address,undefined} \
        -o "$out/parts" tests/parts/parts.c -Wl,--whole-archive "$build/libcell.a" -Wl,--no-whole-archive $libs -lm -ldl \
        -lpthread 2>>"$out/log"; then
    "$out/parts" "$out/liblinear_act.so"
else
    cat "$out/log"
    echo "0 passed, 1 failed"
    exit 1
fi
