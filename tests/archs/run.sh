#!/bin/bash
# Tests that kernels compile for every architecture that is claimed. In: BUILD, CELLC, NVCC (without it: skipped). Out: a
# library with `--archs all` has machine code for each of them, and PTX of the last; chunks and attention compile for
# GPUs of each kind of tensor core instruction (FULL=1: for all, and more schedules), and ptxas makes no chain of attention's
# products by wgmma. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
[[ -n ${NVCC:-} ]] || { echo "archs: there is no nvcc here"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/said
# shellcheck source=tests/expect.sh
source tests/expect.sh
# shellcheck source=tests/slots.sh
source tests/slots.sh

holds() { # name, command...: the command succeeds
    local name=$1
    shift
    if "$@" >"$said" 2>&1; then pass; else fail "$name"; fi
}

# ---- a library for all of them: the compilers are told to optimise nothing, which code for an architecture hangs on as little
# as its instructions do

claimed="80 86 89 90 100 103 120"
known=" $("$NVCC" --list-gpu-code | tr '\n' ' ')"
wanted=
for arch in $claimed; do
    [[ $known == *" sm_$arch "* ]] && wanted+=" $arch"
done
expect 0 "" env CELLC_NVCC="$NVCC" NVCCFLAGS="-Xcicc -O0 -Xptxas -O0" "$cellc" build mingru --archs all --cpu none -o "$dir/all"
expect 0 "for sm_${wanted# }" "$cellc" inspect "$dir/all/libmingru.so"
objdump=$(dirname "$NVCC")/cuobjdump
if [[ -x $objdump ]]; then
    "$objdump" -lelf "$dir/all/libmingru.so" >"$dir/elf"
    "$objdump" -lptx "$dir/all/libmingru.so" >"$dir/ptx"
    for arch in $wanted; do
        holds "machine code for sm_$arch" grep -qE "\.sm_$arch\." "$dir/elf"
    done
    holds "PTX of sm_${wanted##* } for newer GPUs" grep -q "sm_${wanted##* }" "$dir/ptx"
fi

# ---- kernels for tensor cores

# ARCH SPEC OPTIONS
kernels() {
    local arch
    for arch in ${FULL:+$wanted} ${FULL:-80 120}; do
        [[ " $wanted " == *" $arch "* ]] || continue
        echo "$arch delta --dim N=16 --dim V=16 --dtype bf16 --schedule chunk"
        [[ -z ${FULL:-} ]] || echo "$arch lstm --dtype bf16"
        [[ -z ${FULL:-} ]] || echo "$arch e79 --dim N=32 --dtype bf16"
    done
    for arch in ${FULL:+$wanted} ${FULL:-89 100}; do
        [[ " $wanted " == *" $arch "* ]] || continue
        echo "$arch causal_attention --dim N=16 --dtype bf16"
        [[ -z ${FULL:-} ]] || echo "$arch causal_attention --dim N=16 --dtype bf16 --schedule window"
    done
}

compile_one() {
    local to
    to=$dir/kernels/$(tr -c 'a-z0-9\n' _ <<<"$*")
    local arch=$1 cell=$2
    shift 2
    "$cellc" emit "specs/$cell.cell" "$@" --kind cuda >"$to.cu" 2>"$to.log" &&
        "$NVCC" -std=c++17 -arch="sm_$arch" -Xcicc -O1 -Xptxas -O1 -diag-suppress 177,550 -Iruntime -Iruntime/device -cubin \
            -o "$to.cubin" "$to.cu" >>"$to.log" 2>&1 && echo "$arch $cell $*" >>"$dir/compiled"
}
export -f compile_one
export dir cellc NVCC

mkdir "$dir/kernels"
: >"$dir/compiled"
kernels | sort -u >"$dir/wanted"
xargs_slots -L 1 -- bash -c 'compile_one "$@"' - <"$dir/wanted"
while read -r line; do
    holds "kernels compile: sm_$line" grep -qFx "$line" "$dir/compiled"
done <"$dir/wanted"

# ---- wgmma: products go on beside other instructions. Where ptxas cannot keep them apart it waits for each one, and says so
# (C7508, C7510, C7512).

beside() { # SPEC OPTIONS...
    local to=$dir/wgmma cell=$1
    shift
    "$cellc" emit "specs/$cell.cell" "$@" --kind cuda >"$to.cu" &&
        "$NVCC" -O3 -std=c++17 -arch=sm_90a -diag-suppress 177,550 -Xptxas -v -Iruntime -Iruntime/device -cubin \
            -o "$to.cubin" "$to.cu" >"$to.log" 2>&1 && grep -q "fwd_attention" "$to.log" && ! grep "(C75" "$to.log"
}
if [[ $wanted == *" 90"* ]]; then
    holds "products of 128 elements go on" beside causal_attention --dim N=128 --dim V=128 --dtype bf16
    if [[ -n ${FULL:-} ]]; then
        holds "products of 64 elements go on" beside causal_attention --dim N=64 --dim V=64 --dtype bf16
        holds "products of a window go on" beside window_attention --dim N=64 --dim V=64 --dim W=256 --dtype bf16
    fi
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
