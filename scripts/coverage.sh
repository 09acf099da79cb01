#!/bin/bash
# What the tests reached, after they ran with a build for gcov (`make coverage`). In: the build's directory; CELLC. Out: per
# operator of the table how many specs use it, forwards and in their gradients; per file of the compiler the lines that
# ran; functions that never did; the sums.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: coverage.sh BUILD}" && pwd)
cellc=${CELLC:-$build/cellc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

operators() {
    local spec
    for spec in "$root"/specs/*.cell; do
        [[ $spec == */std.cell ]] && continue
        "$cellc" emit "$spec" --dump-after lower 2>/dev/null | grep -oE ' = map [a-z0-9_]+ ' | sort -u | sed 's/^/F/'
        "$cellc" emit "$spec" --dump-after differentiate 2>/dev/null | grep -oE ' = map [a-z0-9_]+ ' | sort -u | sed 's/^/G/'
    done | awk '{ count[$1, $4]++ } END { for (k in count) { split(k, p, SUBSEP); print p[1], p[2], count[k] } }' >"$work/used"
    "$cellc" ops | awk '/^  name /{ on = 1; next } on && /^  [a-z]/ { print $1 }' >"$work/ops"
    echo "operators: specs that use each, forwards and with gradients"
    awk 'FILENAME ~ /used$/ { used[$1, $2] = $3; next }
         { printf "  %-12s %4d %4d%s\n", $1, used["F", $1], used["G", $1], used["F", $1] ? "" : "   none" }' \
        "$work/used" "$work/ops"
}

lines() {
    cd "$build" || return 1
    for data in $(find gen -name '*.gcda'); do
        gcov -n -f -o "$(dirname "$data")" "$data" 2>/dev/null
    done >"$work/gcov"
    echo "lines of the compiler"
    awk -v root="$root/" '
        /^(Function|File) / { kind = $1; name = $2; gsub("\047", "", name); sub(root, "", name); next }
        /^Lines executed:/ {
            split($2, p, ":"); percent = p[2] + 0; n = $NF
            if (kind == "File" && name ~ /^gen\/.*\.c$/) {
                of[name] = percent
                size[name] = n
                for (i = 1; i <= waiting; i++) never[name ": " wait[i]] = 1
            }
            if (kind == "File") waiting = 0
            if (kind == "Function" && percent == 0) wait[++waiting] = name
        }
        END {
            for (f in of) { ran += of[f] * size[f] / 100; all += size[f]; printf "  %6.1f %% of %5d  %s\n", of[f], size[f], f | "sort -n" }
            close("sort -n")
            printf "  %6.1f %% of %5d  in all\n", 100 * ran / (all ? all : 1), all
            for (f in never) { printf "  never called: %s\n", f | "sort"; }
        }' "$work/gcov"
}

operators
lines
