# To be sourced by suites that run programs with results. In: `passed`, `failed` and `skipped`. Out: these, counted on.
# shellcheck shell=bash

count() { # log, what: adds its last line's numbers
    if [[ $(tail -n 1 "$1") =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
        ((passed += BASH_REMATCH[1], failed += BASH_REMATCH[2], skipped += ${BASH_REMATCH[4]:-0}))
        ((BASH_REMATCH[2] == 0)) || { echo "FAIL $2"; grep '^FAIL' "$1" | head -n 6; }
    else
        echo "FAIL $2: it did not end as it should"
        tail -n 5 "$1"
        ((failed++))
    fi
}
