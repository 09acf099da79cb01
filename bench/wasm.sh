#!/bin/bash
# What a step of one sequence takes under Node beside one thread of this machine, by turns, and how large
# modules are. In: cellc (CELLC, or build/cellc), clang for WASI, Node; ROUNDS of 200 steps. Out: microseconds.
# native, portable: libraries for this machine and for any of its architecture; wasi: the same program for
# WASI; module: layers in JavaScript; plain: these without vectors.
set -eu
cd "$(dirname "$0")/.."
cellc=${CELLC:-build/cellc} rounds=${ROUNDS:-20}
cells=(lstm e79:N=64)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build() { # folder, options
    "$cellc" build "${cells[@]}" --name cells --no-cuda -o "$work/$1" "${@:2}" >"$work/said" 2>&1 ||
        { cat "$work/said"; exit 1; }
}

run() {
    case $1 in
    portable | native) "$work/$1/steps" "$rounds" ;;
    wasi) node --no-warnings tests/wasm/wasi.mjs "$work/wasi/steps.wasm" "$rounds" ;;
    *) node bench/wasm_steps.mjs "$work/$1/cells.mjs" "$rounds" ;;
    esac | sed "s/^/$1 /"
}

build portable
build native --cpu native
build wasi --target wasm --static
build module --target wasm
WASM_CFLAGS=-mno-simd128 build plain --target wasm
for target in portable native; do
    ${CC:-cc} -O2 -D_GNU_SOURCE -I"$work/$target" -Iruntime bench/wasm_steps.c -L"$work/$target" -lcells \
        -Wl,-rpath,"$work/$target" -o "$work/$target/steps"
done
clang --target=wasm32-wasi -O2 -D_GNU_SOURCE -I"$work/wasi" -Iruntime bench/wasm_steps.c \
    "$work/wasi/libcells.a" -lwasi-emulated-getpid -Wl,-z,stack-size=1048576 -o "$work/wasi/steps.wasm"
for _ in 1 2 3; do
    for target in portable native wasi module plain; do
        run "$target"
    done
done | awk '
    { key = $2 " " $1; if (!(key in least) || $3 < least[key]) least[key] = $3 }
    END { for (key in least) printf "%-40s %8.1f us %9.0f a second\n", key, least[key], 1e6 / least[key] }' | sort
for cell in "${cells[@]}"; do
    "$cellc" build "$cell" --target wasm --name one -o "$work/one" >/dev/null 2>&1
    printf '%-40s %8d bytes, %d by gzip\n' "the module of $cell" "$(stat -c %s "$work/one/one.wasm")" \
        "$(gzip -9c "$work/one/one.wasm" | wc -c)"
done
