#!/usr/bin/env bash
# build_instance.sh DIR NAME MAIN.c OUT: compiles a generated instance (DIR/NAME.cu .c _ref.c) with a main program on a machine
# with nvcc. The runtime's objects are built once into $RT. ARCH: compute capability (90).
set -e
dir=$1 name=$2 main=$3 out=$4
here=$(cd "$(dirname "$0")/.." && pwd)
cuda=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")}
RT=${RT:-/tmp/cellc-rt}
if [ ! -f "$RT/done" ]; then
    mkdir -p "$RT"
    for f in "$here"/runtime/*.c; do
        gcc -std=c11 -D_GNU_SOURCE -O2 -DCELL_HAVE_CUDA -I"$here/runtime" -isystem "$cuda/include" -c "$f" -o "$RT/$(basename "$f" .c).o"
    done
    touch "$RT/done"
fi
gcc -std=c11 -O2 -I"$here/runtime" -c "$dir/$name.c" -o "$out.host.o"
gcc -std=c11 -O2 -DCELL_REAL=double -I"$here/runtime" -c "$dir/${name}_ref.c" -o "$out.ref.o"
nvcc -arch=sm_${ARCH:-90} -std=c++17 -O3 -I"$here/runtime" -I"$here/runtime/device" -Xptxas -v -c "$dir/$name.cu" -o "$out.cu.o" 2> "$out.ptxas"
gcc -std=c11 -D_GNU_SOURCE -O2 -DINSTANCE=${name}_instance -DREF_FORWARD=${name}_ref_forward -DREF_BACKWARD=${name}_ref_backward \
    -DREF_RESERVE=${name}_ref_reserve_bytes -I"$here/runtime" -isystem "$cuda/include" -c "$main" -o "$out.main.o"
gcc -o "$out" "$out.host.o" "$out.ref.o" "$out.cu.o" "$out.main.o" "$RT"/*.o -L"$cuda/lib64" -Wl,-rpath,"$cuda/lib64" -lcublas \
    -lcublasLt -lcudart -lstdc++ -lm -lpthread -ldl
