#!/bin/bash
# Random cells against the evaluator: N of them (40; FULL=1: 200) from SEED (1), in two processes. A cell that
# fails is made smaller and kept in tests/random/failed; those that are there are checked first. KERNELS of
# them (3; FULL=1: 4) go through the kernels too.
set -u
export CELLC_VERIFY_PASSES=1
cd "$(dirname "$0")/../.."
cellc=${CELLC:-build/cellc}
n=${N:-$([[ -n ${FULL:-} ]] && echo 200 || echo 40)} seed=${SEED:-1}
keep=tests/random/failed
passed=0 failed=0
mkdir -p "$keep"

for spec in "$keep"/*.cell; do
    [[ -e $spec ]] || continue
    mapfile -t settings < <(grep -o -- '--[a-z]*' <<<"${spec##*/}")
    if "$cellc" check "$spec" "${settings[@]}" >/dev/null 2>&1; then
        passed=$((passed + 1))
    else
        echo "$spec still fails"
        failed=$((failed + 1))
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
half=$(((n + 1) / 2))
"$cellc" random --seed "$seed" --check "$half" --keep "$keep" >"$work/0" 2>&1 &
"$cellc" random --seed $((seed + half)) --check $((n - half)) --keep "$keep" >"$work/1" 2>&1 &
wait
echo "seed $seed, $n cells"
for log in "$work"/*; do
    last=$(tail -n 1 "$log")
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        ((BASH_REMATCH[2])) && head -n -1 "$log"
        grep 'drawn again' "$log"
    else
        cat "$log"
        failed=$((failed + 1))
    fi
done
kernels=$(N=${KERNELS:-$([[ -n ${FULL:-} ]] && echo 4 || echo 3)} SEED=$seed bash tests/random/kernels.sh)
if [[ $(tail -n 1 <<<"$kernels") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    head -n -1 <<<"$kernels"
else
    echo "$kernels"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
exit $((failed > 0))
