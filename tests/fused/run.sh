#!/bin/bash
# Which calls of linear_act in bf16 take one kernel for the product and what is computed from it (--products auto and fused), by
# sizes and the device: the conditions of the plan's operations, with nothing computed. In: BUILD, CELLC, CC, SAN.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
export ASAN_OPTIONS=detect_leaks=0
out=$build/tests/fused
rm -rf "$out" && mkdir -p "$out/auto" "$out/fused" "$out/plain"
libs=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
built=1
for products in auto fused plain; do
    "$cellc" build --cpu none linear_act --dtype bf16 --products $products --kernels-apart -o "$out/$products" >/dev/null 2>>"$out/log" || built=
done
# shellcheck disable=SC2086
if [[ -n $built ]] &&
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -Iruntime -Itests/runtime ${SAN:+-fsanitize=address,undefined} \
        -o "$out/fused_products" tests/fused/fused_products.c -Wl,--whole-archive "$build/libcell.a" -Wl,--no-whole-archive $libs \
        -lm -ldl -lpthread 2>>"$out/log"; then
    for products in auto fused plain; do
        "$out/fused_products" $products "$out/$products/liblinear_act.so"
    done | tee "$out/said" | grep -v ' passed, '
    awk '/^[0-9]+ passed, [0-9]+ failed$/ { n++; p += $1; f += $3 } END { printf "%d passed, %d failed\n", p, f + (n != 3) }' "$out/said"
else
    cat "$out/log"
    echo "0 passed, 1 failed"
    exit 1
fi
