# To be sourced by suites that compare texts. Out: `passed` and `failed`, counted on, with both texts for each failure.
# shellcheck shell=bash

# same NAME WANTED GOT
same() {
    if [[ $2 == "$3" ]]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    printf '%s\n  wanted: %s\n  got:    %s\n' "$1" "$2" "$3"
}
