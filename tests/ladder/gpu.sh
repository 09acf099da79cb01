#!/bin/bash
# The ladder on a GPU. Kernels that were compiled elsewhere before (with COMPILE=1 this script stops there, and wants
# no GPU; ARCH, e.g. sm_90, must be the same) are taken as they are. In: DIR that prepare.sh filled (this machine needs nvcc and gcc, not flex, bison or
# cellc), NVCC or nvcc on the path, ONLY (a regular expression on names), JOBS (all cores), SANITIZE (0:
# without compute-sanitizer; tools, default "memcheck racecheck synccheck"), SANITIZE_ONLY (which instances,
# default those in f32, some in bf16, panels, and products in one kernel with others). Out: what failed, and the
# sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=$(cd "${1:?usage: gpu.sh DIR}" && pwd)
jobs=${JOBS:-$(nproc)}
NVCC=${NVCC:-$(command -v nvcc || ls -d /usr/local/cuda*/bin/nvcc 2>/dev/null | tail -n 1)}
[[ -n $NVCC ]] || { echo "no nvcc"; echo "0 passed, 1 failed"; exit 1; }
cuda=$(dirname "$(dirname "$NVCC")")
export NVCC BACKEND=cuda CC=${CC:-gcc} CXX=${CXX:-g++} PATH=$PATH:$cuda/bin
names=$(cut -d ' ' -f 1 "$dir/list" | grep -E "${ONLY:-.}")
# Longest first, so that none of them ends alone.
ordered=$(for n in $names; do echo "$(cat "$dir/$n"/*.cu | wc -c) $n"; done | sort -rn | cut -d ' ' -f 2)
if [[ -n ${COMPILE:-} ]]; then
    xargs -P "$jobs" -I '{}' bash "$here/one.sh" "$dir" '{}' "$dir" <<<"$ordered" | grep -v ': compiled$'
    exit 0
fi
export LIBS="-L$cuda/lib64 -Wl,-rpath,$cuda/lib64 -lcublas -lcudart"
objects=$dir/common_cuda
mkdir -p "$objects/runtime"
start=$SECONDS

compile="$CC -std=c11 -D_GNU_SOURCE -O2 -fPIC -DCELL_HAVE_CUDA -isystem $cuda/include -I$root/runtime"
{
    for source in "$root"/runtime/*.c "$root"/runtime/cpu/{pool,product}.c; do
        echo "$compile -c $source -o $objects/runtime/$(basename "${source%.c}").o"
    done
    for level in 0 1 2 3; do # of the backend for the CPU, which is linked and not run
        echo "$compile -DCELL_CPU_LEVEL=$level -c $root/runtime/cpu/product_level.c" \
            "-o $objects/runtime/product_$level.o"
    done
} | xargs -P "$jobs" -I '{}' sh -c '{}' ||
    { echo "the runtime does not build"; echo "0 passed, 1 failed"; exit 1; }
rm -f "$objects/libcell.a"
ar rcs "$objects/libcell.a" "$objects"/runtime/*.o
for source in "$root"/ladder/*.c; do
    $CC -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -I"$root/runtime" -c "$source" \
        -o "$objects/ladder_$(basename "${source%.c}").o" || { echo "0 passed, 1 failed"; exit 1; }
done
rm -f "$objects/libladder.a"
ar rcs "$objects/libladder.a" "$objects"/ladder_*.o
rm "$objects"/ladder_*.o
touch "$objects/stamp"
export RUNTIME=$objects/libcell.a

xargs -P "$jobs" -I '{}' bash "$here/one.sh" "$dir" '{}' "$objects" <<<"$ordered" >"$dir/gpu.results"
grep -v ', 0 failed, ' "$dir/gpu.results"
read -r passed failed skipped < <(awk -f "$here/sum.awk" "$dir/gpu.results")
echo "kernels on the GPU: $(wc -w <<<"$names") instances, $passed passed, $failed failed, $skipped skipped" \
    "($((SECONDS - start)) s)"

# One instance under one tool, at the two smallest sizes and the smallest that crosses a checkpoint.
sanitize_one() {
    local dir=$1 name=$2 tool=$3 sizes log program
    log=$dir/$name/log.$tool program=$dir/$name/ladder.cuda
    # What is read between the arrival at a cluster's barrier and the wait for it, racecheck takes for a race with what
    # was written before the barrier in front of that one. So it does with what is read before a value is sent
    # to an inbox and written behind the wait for all blocks' values. Behind each wait it is shown a barrier. That
    # also hides what a read in the gap may meet behind the wait: the emulator's race detector, which knows the blocks
    # of a cluster and both halves of their barrier, is what looks at that (tests/emulator, tests/mutation).
    if [[ $tool == racecheck ]] && grep -q 'cell_cluster_\|cell_columns<' "$dir/$name"/*.cu; then
        AS=racecheck KERNEL_FLAGS=-DCELL_SHOW_BLOCK_BARRIER bash "$here/one.sh" "$dir" "$name" "$objects" >"$log"
        program=$dir/$name/ladder.racecheck
    fi
    sizes=$(grep -E "^$name " "$dir/list" | awk '{ print $4, $5, $8 }' | sed 's/gpu://g')
    # shellcheck disable=SC2086
    if CELL_BACKEND=cuda LADDER_QUICK=1 timeout 240 compute-sanitizer --tool "$tool" --error-exitcode 9 --launch-timeout 100 \
        "$program" $sizes >"$log" 2>&1; then
        echo "ok $tool $name"
    else
        echo "FAIL $tool $name"
        grep -E '=========|FAIL' "$log" | head -n 8 | sed 's/^/    /'
    fi
}
export -f sanitize_one
export here objects

tools=${SANITIZE:-memcheck racecheck synccheck}
if [[ $tools == 0 ]] || ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer: $([[ $tools == 0 ]] && echo "left out, as asked" || echo "not found")"
else
    start=$SECONDS
    some='_f32|(e79_tile|e88_tile|lstm_gemm)_bf16|_panel|_fused_waves'
    some=$(grep -E "${SANITIZE_ONLY:-$some}" <<<"$names" | grep -v _large)
    for name in $some; do
        [[ -x $dir/$name/ladder.cuda ]] || continue
        for tool in $tools; do
            # racecheck reports races inside a kernel of cuBLAS's (nvjet) that multiplies there.
            [[ $tool == racecheck && $name == *_fused* ]] || echo "$name $tool"
        done
    done | xargs -P "$jobs" -L 1 bash -c 'sanitize_one "$0" "$1" "$2"' "$dir" >"$dir/sanitizer.results"
    grep -v '^ok ' "$dir/sanitizer.results"
    for tool in $tools; do
        clean=$(grep -c "^ok $tool" "$dir/sanitizer.results")
        bad=$(grep -c "^FAIL $tool" "$dir/sanitizer.results")
        echo "compute-sanitizer $tool: $clean clean, $bad not ($((SECONDS - start)) s in all)"
        passed=$((passed + clean)) failed=$((failed + bad))
    done
fi
echo "$passed passed, $failed failed, $skipped skipped"
exit $((failed > 0))
