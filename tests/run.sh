#!/bin/bash
# Runs test programs and scripts (the arguments), two at a time, and sums what they report. Each ends with a
# line "N passed, N failed[, N skipped]"; one that ends without it, or with an exit code that contradicts it,
# counts as one failure. The output of those that fail is shown. The last line is the sum; the exit code is 1
# when anything failed.
set -u
jobs=${JOBS:-2}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
unset CELLC_TUNED CELLC_TUNE_TIMES          # of who runs this: what they name changes what cellc makes
export CELLC=${CELLC:-$PWD/${BUILD:-build}/cellc}

run_one() {
    local test=$1 log=$2 start=$SECONDS rc
    if [[ $test == */run.sh ]]; then
        bash "$test" >"$log" 2>&1
    else
        "$test" >"$log" 2>&1
    fi
    rc=$?
    local last
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
    if [[ -z $last || $last != "$(grep . "$log" | tail -n 1)" ]]; then
        echo "ended with exit code $rc and no result" >>"$log"
        last="0 passed, 1 failed"
    elif [[ $rc -ne 0 && $last == *", 0 failed"* ]]; then
        echo "exit code $rc" >>"$log"
        last=${last/, 0 failed/, 1 failed}
    fi
    echo "$last" >"$log.result"
    printf '%-44s %s (%d s)\n' "${test#build*/}" "$last" $((SECONDS - start))
    if [[ $last != *", 0 failed"* ]]; then
        tail -n 40 "$log" | sed 's/^/    /'
    fi
}

n=0
for test in "$@"; do
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
    run_one "$test" "$out/$n" &
    n=$((n + 1))
done
wait

cat "$out"/*.result 2>/dev/null | awk '
    { passed += $1; failed += $3; skipped += $5 }
    END {
        printf "%d passed, %d failed", passed, failed
        if (skipped) printf ", %d skipped", skipped
        printf "\n"
        exit failed > 0 || passed == 0
    }'
