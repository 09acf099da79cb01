#!/bin/bash
# Runs test programs and scripts (the arguments) and sums what they report. Each ends with a line
# "N passed, N failed[, N skipped]"; one that ends without it, or with an exit code that contradicts it,
# counts as one failure. The output of those that fail is shown. The last line is the sum; the exit code is 1
# when anything failed. The line above it says how many checks are from the cache (tests/ladder/verdicts.sh).
#
# At most JOBS processes (as many as there are cores) compute at a time, whichever suites they belong to. POOL is a pipe
# with a token for each: a suite starts with one, and a suite of many small jobs gives it back and takes one for each of
# them (tests/slots.sh). First come the suites whose parts run one after the other, the longest first (tests/costs), then
# those of many jobs, which leave no core idle at the end.
set -u
export JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
jobs=$JOBS
here=$(cd "$(dirname "$0")" && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
unset CELLC_TUNED CELLC_TUNE_TIMES          # of who runs this: what they name changes what cellc makes
export CELLC=${CELLC:-$PWD/${BUILD:-build}/cellc}

run_one() {
    local test=$1 log=$2 start=$SECONDS rc cpu
    # shellcheck disable=SC2034
    local TIMEFORMAT='%U %S'
    {
        time if [[ $test == */run.sh ]]; then
            bash "$test" >"$log" 2>&1
        else
            "$test" >"$log" 2>&1
        fi
        rc=$?
    } 2>"$log.cpu"
    cpu=$(tail -n 1 "$log.cpu" | awk '{ printf "%.0f", $1 + $2 }')
    local last
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
    if [[ -z $last || $last != "$(grep . "$log" | tail -n 1)" ]]; then
        echo "ended with exit code $rc and no result" >>"$log"
        last="0 passed, 1 failed"
    elif [[ $rc -ne 0 && $last == *", 0 failed"* ]]; then
        echo "exit code $rc" >>"$log"
        last=${last/, 0 failed/, 1 failed}
    fi
    local kept
    kept=$(grep -E '^[0-9]+ from the cache$' "$log" | tail -n 1)
    echo "$last" >"$log.result"
    [[ -z $kept ]] || echo "$kept" >"$log.kept"
    printf '%-44s %s (%s%d s, %d s of CPU)\n' "${test#build*/}" "$last" "${kept:+$kept, }" $((SECONDS - start)) "$cpu"
    if [[ $last != *", 0 failed"* ]]; then
        tail -n 40 "$log" | sed 's/^/    /'
    fi
}

# ---- the order, and the tokens

cost() { # its line in tests/costs: seconds, and "shares" where it takes tokens itself
    awk -v name="$1" '$1 == name { print $2, $3; found = 1 } END { if (!found) print 10 }' "$here/costs"
}
ordered=()
while read -r _ _ test; do
    ordered+=("$test")
done < <(for test in "$@"; do
    name=${test#*tests/}
    read -r seconds shares < <(cost "${name%/run.sh}")
    echo "$([[ -n $shares ]] && echo 1 || echo 0) $seconds $test"
done | sort -s -k 1,1n -k 2,2nr)

mkfifo "$out/pool"
exec {pool}<>"$out/pool"
export POOL=$out/pool
for ((i = 0; i < jobs; i++)); do printf . >&"$pool"; done

n=0
for test in ${ordered[@]+"${ordered[@]}"}; do
    read -r -N 1 -u "$pool" _
    { run_one "$test" "$out/$n"; printf . >&"$pool"; } &
    n=$((n + 1))
done
wait

cat "$out"/*.kept 2>/dev/null |
    awk '{ n += $1 } END { if (n) print n " of the checks are from the cache (VERDICTS=off makes them again)" }'
cat "$out"/*.result 2>/dev/null | awk '
    { passed += $1; failed += $3; skipped += $6 ? $5 : 0 }
    END {
        printf "%d passed, %d failed", passed, failed
        if (skipped) printf ", %d skipped", skipped
        printf "\n"
        exit failed > 0 || passed == 0
    }'
