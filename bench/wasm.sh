#!/bin/bash
# What a step of one sequence takes under Node beside one thread of this machine, by turns, and how large modules are. In:
# cellc (CELLC, or build/cellc), clang for WASI, Node; ROUNDS of 200 steps. Out: a table in microseconds.
set -eu
cd "$(dirname "$0")/.."
cellc=${CELLC:-build/cellc} rounds=${ROUNDS:-50}
cells=(lstm e79:N=64)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make_library() { "$cellc" build "${cells[@]}" --name cells -o "$work/$1" "${@:2}" >/dev/null 2>"$work/said" || { cat "$work/said"; exit 1; }; }
make_library portable --no-cuda
make_library native --no-cuda --cpu native
make_library wasi --target wasm --static
make_library module --target wasm
WASM_CFLAGS=-mno-simd128 make_library plain --target wasm
for target in portable native; do
    ${CC:-cc} -O2 -D_GNU_SOURCE -I"$work/$target" -Iruntime bench/wasm_steps.c -L"$work/$target" -lcells \
        -Wl,-rpath,"$work/$target" -o "$work/$target/steps"
done
clang --target=wasm32-wasi -O2 -D_GNU_SOURCE -I"$work/wasi" -Iruntime bench/wasm_steps.c "$work/wasi/libcells.a" \
    -lwasi-emulated-getpid -Wl,-z,stack-size=1048576 -o "$work/wasi/steps.wasm"
run() {
    case $1 in
    portable | native) "$work/$1/steps" "$rounds" ;;
    wasi) node --no-warnings tests/wasm/wasi.mjs "$work/wasi/steps.wasm" "$rounds" ;;
    *) node bench/wasm_steps.mjs "$work/$1/cells.mjs" "$rounds" ;;
    esac | sed "s/^/$1 /"
}
for _ in 1 2 3; do
    for target in portable native wasi module plain; do
        run "$target"
    done
done | awk '{ key = $2 " " $1; if (!(key in least)) order[++n] = key; if (!(key in least) || $3 < least[key]) least[key] = $3 }
    END { for (i = 1; i <= n; i++) printf "%-40s %8.2f us %9.0f steps/s\n", order[i], least[order[i]], 1e6 / least[order[i]] }' | sort
for target in module plain; do
    printf '%-40s %6d bytes\n' "the module, $target" "$(stat -c %s "$work/$target/cells.wasm")"
done
for cell in "${cells[@]}"; do
    "$cellc" build "$cell" --target wasm --name one -o "$work/one" >/dev/null 2>&1
    printf '%-40s %6d bytes, %d by gzip\n' "$cell alone" "$(stat -c %s "$work/one/one.wasm")" "$(gzip -9c "$work/one/one.wasm" | wc -c)"
done
