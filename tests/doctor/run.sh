#!/bin/bash
# Tests what cellc says of machines: `cellc doctor`, and the runtime's message for each way in which a GPU
# fails, with a driver that is a fake (fake_driver.c) and fails where a test wants it to. In: BUILD, CELLC,
# CC. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
cc=${CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/said
# shellcheck source=tests/expect.sh
source tests/expect.sh
unset CELLC_HOME CELL_BACKEND CELL_BLAS CELL_CUBLAS CELLC_NVCC CUDA_VISIBLE_DEVICES
unset FAKE_CUDA FAKE_ARCHS FAKE_DRIVER
export CC=$cc
[[ -z ${SAN:-} ]] || export ASAN_OPTIONS=detect_leaks=0

words="-std=c11 -O1 -Wall -Wextra -Werror -Iruntime -Itests/doctor"
# shellcheck disable=SC2086
$cc $words -shared -fPIC tests/doctor/fake_stubs.c tests/doctor/fake_driver.c -o "$dir/libcuda.so.1" &&
    $cc $words ${SAN:+-fsanitize=address,undefined} tests/doctor/call.c "$build/libcell.a" \
        -lm -ldl -lpthread -o "$dir/call" || {
    echo "doctor: the fake driver does not compile"
    echo "0 passed, 1 failed"
    exit 1
}
with() { env LD_LIBRARY_PATH="$dir" CELL_CUBLAS="$dir/libcuda.so.1" "$@"; }
doctor() { with env "$@" "$cellc" doctor; }

# ---- a toolkit that says that it is of CUDA 13.2, and a machine without one

mkdir -p "$dir/toolkit/bin" "$dir/toolkit/include"
printf '#!/bin/sh\n' >"$dir/toolkit/bin/nvcc"
chmod +x "$dir/toolkit/bin/nvcc"
: >"$dir/toolkit/include/cublas_v2.h"
echo '#define CUDART_VERSION  13020' >"$dir/toolkit/include/cuda_runtime_api.h"
nvcc=CELLC_NVCC=$dir/toolkit/bin/nvcc

expect 0 "supports CUDA 13.0" doctor "$nvcc"
says "GPU 0         Fake 90, sm_90, 132 multiprocessors, 80 GiB"
says "13.2, $dir/toolkit/bin/nvcc"
says "\`cellc build\` makes kernels for GPUs and for the CPU, and reference C."
says "A call runs on the backend cuda."
expect 0 "A call runs on the backend cuda." with env "$nvcc" "$cellc" doctor --gpu

expect 0 "no nvcc is wanted (CELLC_NVCC)" doctor CELLC_NVCC=none
says "\`cellc build\` makes kernels for the CPU and reference C, and none for GPUs."
says "There is a GPU, but \`cellc build\` makes no kernels"
says "the backend cpu (kernels in C): no nvcc is wanted (CELLC_NVCC)."
expect 1 "makes no kernels" with env CELLC_NVCC=none "$cellc" doctor --gpu

# ---- GPUs that cannot be used

expect 0 "none: no NVIDIA GPU is visible" doctor "$nvcc" FAKE_CUDA=cuInit=100
expect 0 "cpu (kernels in C): no NVIDIA GPU is visible." doctor "$nvcc" FAKE_ARCHS=none
expect 0 "CUDA_VISIBLE_DEVICES is set and may hide the GPUs: unset it." \
    doctor "$nvcc" FAKE_ARCHS=none CUDA_VISIBLE_DEVICES=3
expect 1 "no NVIDIA GPU is visible" with env "$nvcc" FAKE_CUDA=cuInit=100 "$cellc" doctor --gpu
expect 0 "driver is too old: it supports CUDA 12.4, nvcc is of 13.2" doctor "$nvcc" FAKE_DRIVER=12040
says "Update the NVIDIA driver to one for CUDA 13, or build with a toolkit of CUDA 12 or older"
expect 0 "80 GiB: NOT USABLE: it is of sm_75; kernels want sm_80 or newer" doctor "$nvcc" FAKE_ARCHS=75
says "the backend cpu (kernels in C): none of its GPUs can be used."
expect 0 "set CUDA_VISIBLE_DEVICES=1." doctor "$nvcc" FAKE_ARCHS="75 90"
says "the backend cpu (kernels in C): GPU 0 cannot be used."
expect 0 "GPU 0         Fake 90, sm_90" doctor "$nvcc" FAKE_ARCHS="90 75"
says "A call runs on the backend cuda."
expect 0 "another process has the GPU for itself" doctor "$nvcc" FAKE_CUDA=cuDevicePrimaryCtxRetain=46
expect 0 "the GPU has not that much free memory" doctor "$nvcc" FAKE_CUDA=cuMemAlloc_v2=2
expect 0 "is nvidia-fabricmanager running?" doctor "$nvcc" FAKE_CUDA=cuInit=802
expect 0 "restart the machine after an update of the driver" doctor "$nvcc" FAKE_CUDA=cuInit=803
expect 0 "nvidia_uvm is not loaded" doctor "$nvcc" FAKE_CUDA=cuInit=999
expect 0 "(cuda-compat) does not serve this GPU" doctor "$nvcc" FAKE_CUDA=cuInit=804
: >"$dir/no_driver.c"
mkdir "$dir/other"
$cc -shared -fPIC "$dir/no_driver.c" -o "$dir/other/libcuda.so.1"
expect 0 "none: libcuda.so.1 is not NVIDIA's driver" env LD_LIBRARY_PATH="$dir/other" "$cellc" doctor

# ---- compilers, libraries, variables

expect 1 "Nothing can be built here." env CC=/nowhere/cc "$cellc" doctor
says "NOT USABLE: it cannot be run"
says "apt-get install gcc libc6-dev"
printf '#!/bin/sh\n[ "$1" = --version ] && echo "half a compiler 1.0"\n[ "$1" = --version ]\n' >"$dir/half"
chmod +x "$dir/half"
expect 1 "headers of C or a linker are missing" env CC="$dir/half" "$cellc" doctor
expect 0 "cellc's own code" env CELL_BLAS=none "$cellc" doctor
expect 0 "is '/nowhere.so', in which cblas_sgemm is not found" env CELL_BLAS=/nowhere.so "$cellc" doctor
says "unset CELL_BLAS"
expect 0 "the backend emulated: CELL_BACKEND says so." env CELL_BACKEND=emulated "$cellc" doctor
says "CELL_BACKEND=emulated"
expect 2 "takes no arguments, but got 'x'" "$cellc" doctor x
for setting in FAKE_ARCHS=75 FAKE_ARCHS="75 90" FAKE_CUDA=cuInit=803 CC=/nowhere 'CELL_BLAS=a"b\c'; do
    if with env "$nvcc" "$setting" "$cellc" doctor --json 2>&1 | python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["backend"] in ("cpu", "cuda")
assert isinstance(d["gpus"], list) and isinstance(d["remedies"], list)
assert d["driver"] == "13.0" and d["toolkit"] == "13.2"'; then
        pass
    else
        fail "doctor --json with $setting"
    fi
done

# ---- what the runtime says when a GPU fails a call

call() { with env "$@" "$dir/call"; }
expect 0 worked call FAKE_CUDA=
expect 0 "no NVIDIA GPU is visible" call FAKE_CUDA=cuInit=100
expect 0 "another process has the GPU for itself" call FAKE_CUDA=cuDevicePrimaryCtxRetain=46
expect 0 "out of memory: 4096 bytes on device 0" call FAKE_CUDA=cuMemAllocFromPoolAsync=2
expect 0 "was it forked from one that had used the GPU?" call FAKE_CUDA=cuInit=3
expect 0 "the library has no code for this GPU" with env FAKE_CUDA=cuModuleLoadData=209 "$dir/call" image
for error in 700 715 716 719; do
    expect 0 "must start again" call FAKE_CUDA=cuStreamSynchronize=$error
done
expect 0 "the GPU must be reset" call FAKE_CUDA=cuStreamSynchronize=214
expect 0 "no NVIDIA driver is installed on this machine" "$dir/call"

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
