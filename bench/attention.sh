#!/bin/bash
# Times attention's kernels on the GPU: bench/attention.cu, then PyTorch's own where there is one
# (bench/attention.py). In: NVCC (default nvcc), ARCH (default sm_90a), PYTHON (default python3). Out: tables
# on stdout. The program goes to OUT (default build/bench).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$root/build/bench}
arch=${ARCH:-sm_90a}
mkdir -p "$out"
"${NVCC:-nvcc}" -O3 -std=c++17 -gencode="arch=compute_${arch#sm_},code=$arch" -I"$root/runtime" \
    -I"$root/runtime/device" "$root/bench/attention.cu" -o "$out/attention"
"$out/attention"
if "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
    "${PYTHON:-python3}" "$root/bench/attention.py"
else
    echo "no PyTorch"
fi
