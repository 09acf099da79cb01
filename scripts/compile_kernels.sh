#!/bin/bash
# Compiles a generated .cu file with nvcc, unless the object is there and was made of the same sources, for the same
# architecture: then it is kept, wherever it was made, so that a machine without a GPU can compile for one that has
# little time. In: FILE.cu, FILE.o, further flags of nvcc; NVCC, ARCH (native). Out: FILE.o, FILE.o.key, and what nvcc
# says on standard error.
set -eu
source=$1 object=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
arch=${ARCH:-native}
# Tiles have instructions that belong to one architecture alone.
if grep -q "cell_columns<\|CELL_PRODUCT_THREADS\|cell_attention_facts<" "$source"; then
    [[ $arch != native ]] || arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    [[ $arch != sm_90 ]] || arch=sm_90a
fi
key="$arch $* $(cat "$source" "$root"/runtime/*.h "$root"/runtime/device/* | sha256sum)"
[[ -e $object && $(cat "$object.key" 2>/dev/null) == "$key" ]] && exit 0
rm -f "$object.key"
"$NVCC" -std=c++17 -O3 -arch="$arch" -Xcompiler -fPIC -Xfatbin -compress-all -I"$root/runtime" \
    -I"$root/runtime/device" "$@" -c "$source" -o "$object"
echo "$key" >"$object.key"
