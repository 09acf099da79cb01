#!/bin/bash
# What a machine with a GPU and little else proves and measures, part by part: for one that lacks flex and bison and is
# there for minutes only. In: the parts, in order; GRAMMAR, a folder with lex.c, lex.h, parse.c and parse.h as a build
# elsewhere has them (build/gen; not needed with flex and bison), DIR for what is written (out), ARCH (sm_90). Out: a
# line for each part when it ends, with its time; what it printed is in DIR/PART.log.
#   check       make check: all suites, the ladder on the GPU with the sanitizers among them (JOBS at a time)
#   ladder      of check, the ladder's instances on the GPU alone, and the sanitizers
#   constructs  the kernels of tests/constructs (CELLS=regex)
#   collection  every spec with every value of its options, f32, on the ladder
#   bench       bench/workloads.txt, then bench/peers.py (with fla-core on PYTHONPATH, flash-linear-attention too)
#   profile     the kernels of each workload (ONLY=regex), one by one, by Nsight Compute
#   plots       bench/curves.txt: scaling curves, about 2 minutes with compiling; curves.json, plots/ and cliffs.txt in DIR
#   candidates  bench/candidates.txt: what of the planner's choices only a measurement decides
#   tune        cellc tune for the workloads with a choice (ONLY=regex): what each candidate took; NAME.tune in DIR/tune
#   multi       examples/train_multi over NCCL, for a machine with several GPUs: the same losses, and times (SIZES)
#   package     the parts from here on, which are about the Python package
#   python      its tests with PyTorch and JAX as they are installed (FILES, ONLY for pytest -k, LIMIT in seconds)
#   load        how long E79 takes to load, compiled by nvcc and by NVRTC and from the cache (ARGS)
#   distributed DDP, FSDP2, split steps and split heads over NCCL, one process for each GPU (GPUS, WAYS); on a machine with
#               one, over gloo on the CPU
#   nvrtc       kernels compiled by NVRTC and launched through the driver, without PyTorch
#   jax         cells in JAX programs on the GPU
#   throughput  examples/throughput.py: five cells in a language model of 50 million params
set -u
cd "$(dirname "$0")/.."
out=${DIR:-out} arch=${ARCH:-sm_90}
mkdir -p "$out"
export PATH=$PATH:$(ls -d /usr/local/cuda/bin 2>/dev/null)
tools=()
if [[ -n ${GRAMMAR:-} ]]; then
    mkdir -p build/gen/front
    cp "$GRAMMAR"/{lex,parse}.{c,h} build/gen/front/
    touch build/gen/front/{lex,parse}.{c,h}
    tools=(FLEX=true BISON=true)
fi
make -s -j"$(nproc)" "${tools[@]}" >"$out/make.log" 2>&1 || { tail -n 5 "$out/make.log"; exit 1; }

check() { JOBS=${JOBS:-$(nproc)} make -s check "${tools[@]}" ${TESTS:+TESTS="$TESTS"}; }

ladder() {
    bash tests/ladder/prepare.sh "$work/ladder" && ARCH=$arch bash tests/ladder/gpu.sh "$work/ladder"
}

constructs() {
    FULL=1 CPU=none MATRIX=tests/constructs/matrix.sh bash tests/ladder/prepare.sh "$work/constructs" &&
        SANITIZE=${SANITIZE:-0} ARCH=$arch bash tests/ladder/gpu.sh "$work/constructs"
}

collection() {
    TYPES=f32 MATRIX=tests/ladder/collection.sh bash tests/ladder/prepare.sh "$work/collection" &&
        SANITIZE=0 ARCH=$arch bash tests/ladder/gpu.sh "$work/collection"
}

bench() {
    local rc=0
    bash bench/prepare.sh "$work/bench" || return
    ARCH=$arch bash bench/run.sh "$work/bench" || rc=1
    cp "$work/bench/results.json" "$out/" && python3 bench/peers.py || rc=1
    return $rc
}

profile() {
    bash bench/prepare.sh "$work/profile" && PROFILE=1 ARCH=$arch bash bench/run.sh "$work/profile"
}

plots() {
    local rc=0
    ARCH=$arch CELLC=$PWD/build/cellc bash bench/plots.sh "$work/plots" || rc=1
    cp -r "$work/plots/"{curves.json,cliffs.txt,plots} "$out/" || rc=1
    return $rc
}

candidates() {
    local rc=0
    local -x WORKLOADS=$PWD/bench/candidates.txt          # of this part alone
    bash bench/prepare.sh "$work/candidates" || return
    ARCH=$arch bash bench/run.sh "$work/candidates" || rc=1
    cp "$work/candidates/results.json" "$out/candidates.json" || rc=1
    return $rc
}

tune() {
    local name spec given cell options names sizes i list rc=0
    while IFS='|' read -r name spec given _; do
        read -r name <<<"$name"
        read -r cell options <<<"$spec"
        [[ $name =~ ${ONLY:-^(e79_n|e88|delta|gated|linear_att|lstm_1024$|hgrn_2048$)} ]] || continue
        # shellcheck disable=SC2086
        IFS=, read -ra names < <(build/cellc emit "$cell" $options --kind manifest | sed -n 's/^ *"sizes": \[\(.*\)\],/\1/p' | tr -d '" ')
        IFS=, read -ra sizes <<<"${given// /}"
        list=
        for i in "${!sizes[@]}"; do list+=${list:+,}${names[i]}=${sizes[i]}; done
        # shellcheck disable=SC2086
        build/cellc tune "$cell" $options --sizes "$list" -o "$out/tune/$name" || rc=1
    done < <(grep -v '^#' bench/workloads.txt)
    return $rc
}

python() {
    local several=()
    python3 -c 'import xdist' 2>/dev/null && several=(-n $(($(nproc) / 2)))
    CELLC=$PWD/build/cellc CELLC_CACHE=$work/cache PYTHONPATH=python timeout ${LIMIT:-540} python3 -m pytest -q -p no:cacheprovider -rs \
        "${several[@]}" ${ONLY:+-k "$ONLY"} ${FILES:-tests/python}
}

load() {
    CELLC=$PWD/build/cellc timeout 400 python3 tests/python/load_on_gpu.py ${ARGS:-}
}

# NVLink's multicast is off, since machines that are lent out in parts do not have it.
distributed() {
    local gpus way
    gpus=${GPUS:-$(python3 -c 'import torch; print(max(torch.cuda.device_count(), 2))')}
    for way in ${WAYS:-ddp fsdp steps heads}; do
        CELLC=$PWD/build/cellc CELLC_CACHE=$work/cache PYTHONPATH=python NCCL_NVLS_ENABLE=0 timeout 200 python3 -W ignore \
            -m torch.distributed.run --standalone --nproc-per-node "$gpus" tests/python/distributed.py "$way" || return 1
    done
    echo "$gpus processes: $(wc -w <<<"${WAYS:-ddp fsdp steps heads}") passed, 0 failed"
}

multi() {
    local -x NCCL_HOME=${NCCL_HOME:-$(python3 -c 'import nvidia.nccl; print(nvidia.nccl.__path__[0])' 2>/dev/null)}
    local gpus to=$work/multi shape=${SIZES:--B 64 -T 512 -H 1024} how
    gpus=$(nvidia-smi -L | wc -l)
    GPU=1 bash tests/train_multi/run.sh || return 1
    build/cellc build specs/gru.cell --dtype f64 --archs "${arch#sm_}" -o "$to" >/dev/null || return 1
    # shellcheck disable=SC2086
    gcc -O2 -D_GNU_SOURCE -I"$to" -Iruntime -I/usr/local/cuda/include ${NCCL_HOME:+-I$NCCL_HOME/include} -o "$to/train_multi" \
        examples/train_multi/{train_multi,ranks_nccl}.c -L"$to" -lgru -L/usr/local/cuda/lib64 \
        ${NCCL_HOME:+-L$NCCL_HOME/lib -Wl,-rpath,$NCCL_HOME/lib} -lcudart -l:libnccl.so.2 -lm -lpthread -Wl,-rpath,"$to" || return 1
    for how in "-n 1" "-n $gpus" "-n $gpus -l" "-n $gpus -s time -p 4"; do
        # shellcheck disable=SC2086
        NCCL_NVLS_ENABLE=0 "$to/train_multi" $how $shape -u 10 | tail -n 2
    done
}

nvrtc() { PYTHONPATH=python timeout 200 python3 tests/python/nvrtc_on_gpu.py; }

jax() {
    CELLC=$PWD/build/cellc CELLC_CACHE=$work/cache timeout 200 python3 tests/python/jax_on_gpu.py
}

throughput() {
    (cd python/examples && CELLC=$PWD/../../build/cellc CELLC_CACHE=$work/cache PYTHONPATH=.. python3 throughput.py ${ARGS:-})
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ ${1:-} == package ]] && set -- python load distributed nvrtc jax throughput
failed=0
for part in "$@"; do
    start=$SECONDS
    "$part" >"$out/$part.log" 2>&1
    rc=$?
    ((rc == 0)) || failed=1
    echo "$part: exit code $rc, $((SECONDS - start)) s: $(tail -n 1 "$out/$part.log")"
done
exit $failed
