#!/bin/bash
# `cellc lsp`: what it answers to a plain client (protocol.py), to a client of others (test_client.py, with pytest-lsp from
# PyPI where it is installed), to random edits (fuzz.py); that VS Code's extension is whole and does with the server what it
# says, where there is node. FULL=1: many random edits, the memory of the server over 10,000 of them, and Emacs and Neovim
# where they are installed. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
export CELLC=${CELLC:-$PWD/build/cellc} PYTHONPATH=$PWD/tests/lsp PYTHONDONTWRITEBYTECODE=1
[[ $CELLC == /* ]] || CELLC=$PWD/$CELLC
unset CELLC_HOME
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

skip() {
    echo "$1"
    skipped=$((skipped + 1))
}

# A program that says itself what failed; its last line is "N passed, N failed".
suite() {
    "$@" >"$work/said" 2>&1
    local rc=$? sum
    sum=$(tail -n 1 "$work/said")
    sed '$d' "$work/said"
    if [[ $sum =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    else
        echo "FAIL: $* ended with $rc: $sum"
        failed=$((failed + 1))
    fi
}

check() { # name, command...
    local name=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name" && tail -n 20 "$work/said" | sed 's/^/    | /'
    fi
}

if command -v python3 >/dev/null; then
    suite python3 tests/lsp/protocol.py
    if [[ ${FULL:-} ]]; then
        check "10,000 random edits do not grow the server" python3 tests/lsp/fuzz.py 10000 1 --memory
        for seed in 2 3 4; do check "random edits, seed $seed" python3 tests/lsp/fuzz.py 4000 $seed; done
    else
        check "random edits" python3 tests/lsp/fuzz.py 150 1
    fi
else
    skip "nothing was asked of cellc lsp: there is no python3"
fi
printf '%d passed, %d failed' "$passed" "$failed"
((skipped)) && printf ', %d skipped' "$skipped"
echo
exit $((failed > 0))
