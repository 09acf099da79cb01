#!/bin/bash
# What a machine with a GPU and little else proves and measures, part by part: for one that lacks flex and bison and is
# there for minutes only. In: the parts, in order; GRAMMAR, a folder with lex.c, lex.h, parse.c and parse.h as a build
# elsewhere has them (build/gen; not needed with flex and bison), DIR for what is written (out), ARCH (sm_90). Out: a
# line for each part when it ends, with its time; what it printed is in DIR/PART.log.
#   check       make check: all suites, the ladder on the GPU with the sanitizers among them (JOBS at a time)
#   ladder      of check, the ladder's instances on the GPU alone, and the sanitizers
#   collection  every spec with every value of its options, f32, on the ladder
#   bench       bench/workloads.txt, then bench/peers.py
#   plots       bench/curves.txt: scaling curves, about 2 minutes with compiling; curves.json, plots/ and cliffs.txt in DIR
#   candidates  bench/candidates.txt: what of the planner's choices only a measurement decides
#   python      the Python package's tests with PyTorch and JAX as they are installed (FILES, ONLY for pytest -k)
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
    mkdir -p build/gen
    cp "$GRAMMAR"/{lex,parse}.{c,h} build/gen/
    touch build/gen/{lex,parse}.{c,h}
    tools=(FLEX=true BISON=true)
fi
make -s -j"$(nproc)" "${tools[@]}" >"$out/make.log" 2>&1 || { tail -n 5 "$out/make.log"; exit 1; }

check() { JOBS=${JOBS:-$(nproc)} make -s check "${tools[@]}" ${TESTS:+TESTS="$TESTS"}; }

ladder() {
    bash tests/ladder/prepare.sh "$work/ladder" && ARCH=$arch bash tests/ladder/gpu.sh "$work/ladder"
}

collection() {
    TYPES=f32 MATRIX=tests/ladder/collection.sh bash tests/ladder/prepare.sh "$work/collection" &&
        SANITIZE=0 ARCH=$arch bash tests/ladder/gpu.sh "$work/collection"
}

bench() {
    bash bench/prepare.sh "$work/bench" && ARCH=$arch bash bench/run.sh "$work/bench" &&
        cp "$work/bench/results.json" "$out/" && python3 bench/peers.py
}

plots() {
    ARCH=$arch CELLC=$PWD/build/cellc bash bench/plots.sh "$work/plots" || return
    cp -r "$work/plots/"{curves.json,cliffs.txt,plots} "$out/"
}

candidates() {
    export WORKLOADS=$PWD/bench/candidates.txt
    bash bench/prepare.sh "$work/candidates" && ARCH=$arch bash bench/run.sh "$work/candidates" &&
        cp "$work/candidates/results.json" "$out/candidates.json"
}

python() {
    local several=()
    python3 -c 'import xdist' 2>/dev/null && several=(-n $(($(nproc) / 2)))
    CELLC=$PWD/build/cellc CELLC_CACHE=$work/cache PYTHONPATH=python timeout 400 python3 -m pytest -q -p no:cacheprovider -rs \
        "${several[@]}" ${ONLY:+-k "$ONLY"} ${FILES:-tests/python}
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
failed=0
for part in "$@"; do
    start=$SECONDS
    "$part" >"$out/$part.log" 2>&1
    rc=$?
    ((rc == 0)) || failed=1
    echo "$part: exit code $rc, $((SECONDS - start)) s: $(tail -n 1 "$out/$part.log")"
done
exit $failed
