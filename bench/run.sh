#!/bin/bash
# Builds what prepare.sh generated in DIR with nvcc, times every workload on the GPU, one after the other, and writes a table
# to standard output and JSON lines to DIR/results.json. ARCH: compute capability (native). ONLY: regular expression on names.
# WORKLOADS: another list; with QUICK=1 each line of it may have several sizes, and all are timed by a third of the calls, as
# graphs only, without a table: `curves.py instances` makes such a list.
# PROFILE=1: with Nsight Compute (ncu), the microseconds of each kernel of a call forward and backward, summed by name, one
# call each way as called; METRICS: what else to sum, by its names. Its kernels run one at a time and without the next one near.
# What does not build or fails is said, the rest is measured all the same, and the exit code is then 1.
# COMPILE=1 stops before the timing and wants no GPU: a machine with nvcc can do that part for another (ARCH the same).
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
dir=$(cd "${1:?usage: run.sh DIR}" && pwd)
nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda*/bin/nvcc 2>/dev/null | tail -n 1)}
[[ -n $nvcc ]] || { echo "bench: no nvcc" >&2; exit 1; }
[[ -n ${COMPILE:-} ]] || nvidia-smi --query-gpu=name,driver_version --format=csv,noheader ||
    { echo "bench: no GPU" >&2; exit 1; }
cuda=$(dirname "$(dirname "$nvcc")")
flags="-std=c11 -D_GNU_SOURCE ${CFLAGS:--O2} -I$root/runtime -isystem $cuda/include"
mkdir -p "$dir/runtime"
for source in "$root"/runtime/*.c "$root"/runtime/cpu/{pool,product}.c; do
    gcc $flags -DCELL_HAVE_CUDA -c "$source" -o "$dir/runtime/$(basename "$source" .c).o" || exit 1
done
for level in 0 1 2 3; do # products of the backend for the CPU, which is linked and not timed
    gcc $flags -DCELL_CPU_LEVEL=$level -c "$root/runtime/cpu/product_level.c" \
        -o "$dir/runtime/product_$level.o" || exit 1
done
for source in call time footprint; do
    gcc $flags -c "$here/$source.c" -o "$dir/runtime/$source.bench.o" || exit 1
done

build() {
    local name=$1 cell=$2
    cd "$dir/$name" || return 1
    rm -f bench             # of an earlier source: what does not build is not timed
    gcc $flags -I. -c "$cell.c" -o host.o && gcc $flags -I. -c "${cell}_ref.c" -o ref.o &&
        NVCC=$nvcc bash "$root/scripts/compile_kernels.sh" "$cell.cu" kernels.o -Xptxas -v 2>>ptxas.log || return 1
    [[ -n ${COMPILE:-} ]] && return 0
    gcc $flags -DINSTANCE="${cell}_instance" -c "$root/bench/bench.c" -o bench.o &&
        gcc -o bench host.o ref.o kernels.o bench.o "$dir"/runtime/*.o -L"$cuda/lib64" -Wl,-rpath,"$cuda/lib64" \
            -lcublas -lcudart -lstdc++ -lm -lpthread -ldl
}

workloads() { # ONLY sees the names alone, as in prepare.sh
    local line
    while read -r line; do
        [[ ${line%%[ |]*} =~ ${ONLY:-.} ]] && echo "$line"
    done < <(grep -v '^#' "${WORKLOADS:-$here/workloads.txt}")
}
failed=0
rm -f "$dir/unbuilt"
while IFS='|' read -r name spec _; do
    read -r name <<<"$name"
    read -r cell _ <<<"$spec"
    (build "$name" "$cell" >"$dir/$name.log" 2>&1 ||
        { echo "$name" >>"$dir/unbuilt"; echo "$name does not build:"; tail -n 3 "$dir/$name.log"; }) &
    while (($(jobs -r | wc -l) >= $(nproc))); do sleep 0.1; done
done < <(workloads)
wait
[[ -e $dir/unbuilt ]] && failed=1
[[ -n ${COMPILE:-} ]] && exit $failed
: >"$dir/results.json"
if [[ -n ${QUICK:-} ]]; then
    start=$SECONDS
    while IFS='|' read -r name _ sizes; do
        read -r name <<<"$name"
        pairs=()
        for size in $sizes; do pairs+=("$name" "$size"); done
        timeout 60 "$dir/$name/bench" -q "${pairs[@]}" >>"$dir/results.json" || { echo "$name failed"; failed=1; }
    done < <(workloads)
    echo "$(wc -l <"$dir/results.json") points in $((SECONDS - start)) s"
    exit $failed
fi
if [[ -n ${PROFILE:-} ]]; then
    while IFS='|' read -r name _ sizes _; do
        read -r name <<<"$name"
        read -r sizes <<<"$sizes"
        echo "$name $sizes"
        ncu --profile-from-start off --clock-control none --cache-control none --csv --print-units base \
            --metrics "gpu__time_duration.sum${METRICS:+,$METRICS}" "$dir/$name/bench" -p "$name" "$sizes" >"$dir/$name/ncu.csv" ||
            { grep -v '^"' "$dir/$name/ncu.csv" | tail -n 3; failed=1; }
        python3 "$here/kernel_times.py" "$dir/$name/ncu.csv" || failed=1
    done < <(workloads)
    exit $failed
fi
row='%-24s %8s %8s %9s %9s %7s %6s %8s %7s %7s  %s\n'
# shellcheck disable=SC2059
printf "$row" workload fwd f+b "fwd graph" "f+b graph" floor gap "peak MiB" peer faster "the peer"
field() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" <<<"$line"; }
while IFS='|' read -r name _ sizes floor peer what; do
    read -r name <<<"$name"
    read -r sizes <<<"$sizes"
    [[ -x $dir/$name/bench ]] || continue
    line=$(timeout 120 "$dir/$name/bench" "$name" "$sizes") || { echo "$name failed"; failed=1; continue; }
    echo "$line" >>"$dir/results.json"
    graph=$(field fwd_bwd_graph_ms)
    peak=$(awk "BEGIN { printf \"%.0f\", $(field peak_bytes) / 1048576 }")
    gap=-
    [[ ! $floor =~ [0-9] ]] || gap=$(awk "BEGIN { printf \"%.1f\", $graph / $floor }")
    faster=$([[ $peer =~ [0-9] ]] && awk "BEGIN { printf \"%.1fx\", $peer / $graph }" || echo -)
    # shellcheck disable=SC2059,SC2086
    printf "$row" "$name" "$(field fwd_ms)" "$(field fwd_bwd_ms)" "$(field fwd_graph_ms)" "$graph" $floor "$gap" "$peak" $peer \
        "$faster" "$what"
done < <(workloads)
exit $failed
