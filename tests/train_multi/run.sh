#!/bin/bash
# examples/train_multi: several ranks have the loss of one, with the batch split and with the steps split, as threads
# of the CPU, and over NCCL where there are two GPUs; without, ranks_nccl.c is compiled where NCCL's header is. In:
# BUILD, CELLC, CC, SAN; NCCL_HOME: where include/nccl.h and lib/libnccl.so.2 are, if not with CUDA; GPU=1: only
# what takes GPUs (scripts/on_gpu.sh). Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
cc=${CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/said skipped=0
# shellcheck source=tests/expect.sh
source tests/expect.sh
example=examples/train_multi
flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g -I$dir -Iruntime"

# Sums in another order move a gradient, of at most 0.1 here, by some 1e-17. Adam divides by no less than 1e-8 and
# takes 0.01 of the result at most: 1e-11 of a param in an update, 2e-10 in 20. The loss, about 0.05, has slopes below 0.1, so
# that it moves by less than 1e-9 of itself.
compare() { # PROGRAM, options: the losses are those of one rank
    local program=$1 one several
    shift
    expect 0 "loss" "$program" -n 1 -u 20 "$@"
    one=$(sed -n 's/.*split: loss //p' "$said")
    for options in "-n 2" "-n 2 -p 2" "-n 2 -l" "-n 2 -s time" "-n 2 -s time -p 4" $more; do
        # shellcheck disable=SC2086
        expect 0 "loss" "$program" ${options//_/ } -u 20 "$@"
        several=$(sed -n 's/.*split: loss //p' "$said")
        if awk -v a="$one" -v b="$several" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) < 1e-9 * a) }'; then
            pass
        else
            fail "loss $several with $options $*, and $one of one rank"
        fi
    done
}

gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if [[ -z ${GPU:-} ]]; then
    expect 0 "" "$cellc" build specs/gru.cell --dtype f64 --no-cuda --cpu portable -o "$dir"
    # shellcheck disable=SC2086
    expect 0 "" $cc $flags ${SAN:+-fsanitize=address,undefined} -o "$dir/host" $example/train_multi.c $example/ranks_host.c \
        -L"$dir" -lgru -lm -lpthread -Wl,-rpath,"$dir"
    more="-n_4_-s_time -n_4_-p_2"
    compare "$dir/host"
    compare "$dir/host" -B 8 -T 12 -H 7
    expect 2 "10 sequences of 32 steps cannot be divided into equal shares" "$dir/host" -n 4 -B 10
    expect 2 "-s takes batch or time, not 'heads'" "$dir/host" -s heads
    expect 2 "-n takes a whole number from 1 on, not '0'" "$dir/host" -n 0
    # Untrained and trained: it learns.
    expect 0 "" "$dir/host" -n 2 -u 300
    holds=$(awk '/^update/ { if (!first) first = $4; last = $4 } END { print last < first / 20 }' "$said")
    if [[ $holds == 1 ]]; then pass; else fail "it does not learn"; fi
fi
export NCCL_NVLS_ENABLE=0
toolkit=$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")
nccl="-I$toolkit/include ${NCCL_HOME:+-I$NCCL_HOME/include}"
# shellcheck disable=SC2086
if ! echo '#include <nccl.h>' | $cc $nccl -fsyntax-only -x c - 2>/dev/null; then
    echo "ranks over NCCL: skipped, there is no nccl.h"
    skipped=1
elif ((gpus < 2)); then
    # shellcheck disable=SC2086
    expect 0 "" $cc $flags $nccl -c -o "$dir/nccl.o" $example/ranks_nccl.c
    echo "ranks over NCCL: compiled; running them is skipped, as two GPUs are needed"
    skipped=1
else
    expect 0 "" "$cellc" build specs/gru.cell --dtype f64 -o "$dir"
    # shellcheck disable=SC2086
    expect 0 "" $cc $flags $nccl -o "$dir/nccl" $example/train_multi.c $example/ranks_nccl.c -L"$dir" -lgru \
        -L"$toolkit/lib64" ${NCCL_HOME:+-L$NCCL_HOME/lib -Wl,-rpath,$NCCL_HOME/lib} -lcudart -l:libnccl.so.2 -lm -lpthread \
        -Wl,-rpath,"$dir"
    more="-n_$gpus"
    compare "$dir/nccl"
    compare "$dir/nccl" -B 32 -T 128 -H 256
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
