#!/bin/bash
# The layers of the compiler: no file of gen/ includes or calls what its folder may not know (gen/layers). Includes are read
# from the sources, calls from the symbols of the objects, so that a prototype written by hand is seen too. Each exception
# stands in gen/layers as a debt, and a debt that is no more has to go.
#   tests/layers/run.sh            the test
#   tests/layers/run.sh --debts    the lines of debts that there would have to be
set -u
export LC_ALL=C
objects=$PWD/${BUILD:-build}/gen
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd gen || exit 1
find . -name '*.[chly]' | sed 's|^\./||' >"$work/files"
grep -rHoE --include='*.[chly]' '^ *# *include "[^"]+"' . | sed -E 's|^\./||; s|: *# *include "| |; s|"$||' >"$work/includes"
(cd "$objects" && find . -name '*.o' -exec nm -A -g {} +) | sed -E 's|^\./||; s|\.o:|.c |' >"$work/symbols"

# The folder of each use that a file makes of another: by an include, or by a symbol that another object defines.
awk '
    function folder(path) { return sub(/\/[^\/]*$/, "", path) ? path : "." }
    FILENAME ~ /files$/ { there[$1] = 1; next }
    FILENAME ~ /includes$/ {
        beside = folder($1) "/" $2
        sub(/^\.\//, "", beside)
        if (beside in there) print $1, folder(beside)
        else if ($2 in there) print $1, folder($2)
        else if ($2 != "front/parse.h" && $2 !~ /^(\.\.\/)+runtime\//)    # what bison makes; the interface of the runtime
            print $1, "?" $2
        next
    }
    !($1 in there) && $1 !~ /^front\/(lex|parse)\.c$/ { next }           # of a file that is no more
    NF == 4 { at[$4] = $1 }
    NF == 3 && $2 == "U" { by[++n] = $1; use[n] = $3 }
    END { for (i = 1; i <= n; i++) if (use[i] in at) print by[i], folder(at[use[i]]) }
    ' "$work/files" "$work/includes" "$work/symbols" | sort -u >"$work/uses"

awk '
    FNR == NR && (/^#/ || !NF) { next }
    FNR == NR && / -> / { debt[$1 " -> " $3] = 1; next }
    FNR == NR {
        folder = $1
        sub(/:$/, "", folder)
        known[folder] = may[folder, folder] = 1
        for (i = 2; i <= NF; i++) may[folder, $i] = 1
        next
    }
    {
        f = $1
        if (!sub(/\/[^\/]*$/, "", f)) f = "."
        if (!(f in known)) print "unknown " f
        else if ((f, $2) in may) right++
        else if (($1 " -> " $2) in debt) paid[$1 " -> " $2] = 1
        else print "new " $1 " -> " $2
    }
    END {
        for (d in debt) if (!(d in paid)) print "gone " d
        print "right " right + 0
    }' layers "$work/uses" >"$work/found"
if [[ ${1:-} == --debts ]]; then
    sed -n 's/^new //p' "$work/found" | sort
    exit 0
fi
sed -nE 's/^new (.*) -> (.*)/FAIL gen\/\1 includes or calls gen\/\2, which gen\/layers does not allow/p
    s/^gone (.*)/FAIL the debt "\1" of gen\/layers is no more: take the line out/p
    s/^unknown (.*)/FAIL gen\/\1 is not a folder of gen\/layers/p' "$work/found" | sort -u
# Programs of launch plans are printed in one place.
programs=$(grep -rlE --include='*.[chly]' '"[^"]*CELL_X_' . | sed 's|^\./||')
if [[ $programs != plan/formula.c ]]; then
    echo "FAIL codes of launch plans (CELL_X_) are printed by" $programs", not by plan/formula.c alone"
    echo "new CELL_X_" >>"$work/found"
fi
failed=$(grep -cE '^(new|gone|unknown)' "$work/found")
right=$(sed -n 's/^right //p' "$work/found")
((right > 0)) || failed=$((failed + 1))        # nothing was read
echo "$right passed, $failed failed"
((failed == 0))
