#!/bin/bash
# Scaling curves: measured where there are a GPU and nvcc, else drawn from what was measured before. In: DIR, where things
# are built; ARCH, NVCC, CELLC as run.sh has them; RESULTS, JSON lines measured before (bench/results/curves.json); PLOTS,
# where pictures go (DIR/plots); COMPILE=1 stops before the measuring and wants no GPU. Out: DIR/curves.json, PLOTS/CELL.svg, and in
# DIR/cliffs.txt and on standard output where time jumps; where points are missing the rest is drawn, and the exit code is 1.
set -eu
failed=0
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?usage: plots.sh DIR}
mkdir -p "$dir"
results=${RESULTS:-$here/results/curves.json}
if [[ -n ${COMPILE:-} ]] || nvidia-smi -L >/dev/null 2>&1; then
    python3 "$here/curves.py" instances >"$dir/instances.txt"
    export WORKLOADS=$dir/instances.txt
    bash "$here/prepare.sh" "$dir/instances"
    QUICK=1 bash "$here/run.sh" "$dir/instances" || failed=1
    [[ -z ${COMPILE:-} ]] || exit $failed
    cp "$dir/instances/results.json" "$dir/curves.json"
    results=$dir/curves.json
elif [[ ! -s $results ]]; then
    echo "bench-plots: there is no GPU to measure the curves on, and no $results of a machine that had one" >&2
    exit 1
fi
python3 "$here/curves.py" plot "$results" "${PLOTS:-$dir/plots}" >"$dir/cliffs.txt" || failed=1
cat "$dir/cliffs.txt"
exit $failed
