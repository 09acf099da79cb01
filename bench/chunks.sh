#!/bin/bash
# Times linear recurrences in chunks on the GPU: bench/chunks.cu for each of its cells, compiled all at once. In: NVCC (default
# nvcc), ARCH (default sm_90), CELLS (default all). Out: the table on stdout. Programs go to OUT (default build/bench).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$root/build/bench}
cells=${CELLS:-0 1 2 3 4 5 6 7 8 9}
mkdir -p "$out"
for cell in $cells; do
    "${NVCC:-nvcc}" -O3 -std=c++17 -arch="${ARCH:-sm_90}" -DCELL="$cell" -I"$root/runtime" -I"$root/runtime/device" \
        "$root/bench/chunks.cu" -o "$out/chunks_$cell" &
done
wait
for cell in $cells; do
    "$out/chunks_$cell"
done
