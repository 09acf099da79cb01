#!/bin/bash
# The layers of the compiler: no file of gen/ includes or calls what its folder may not know (gen/layers).
# Includes are read from the sources, calls from the symbols of the objects, so that a prototype written by
# hand is seen too. And no file names a schedule, but those of its folder and the table (schedules.c): neither
# its struct nor its name.
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
        else if ($2 ~ /^templates\/[a-z_]+\.h$/) print $1, "templates"         # what the build makes of templates/
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
        else print "new " $1 " -> " $2
    }
    END { print "right " right + 0 }' layers "$work/uses" >"$work/found"

# Names of schedules outside of comments and of examples of commands. Only their own folders, and the table,
# have them.
awk -v folders="$(cd schedule && echo */)" '
    BEGIN {
        n = split(folders, name, "/ *")
        for (i = 1; i < n; i++)
            said[i] = "(^|[^a-z_])" name[i] "_schedule([^a-z_]|$)|\"" name[i] ":|" \
                      "[Ss]chedule " name[i] "([^a-z]|$)|schedule[a-z_]*\\(\"" name[i] "\""
    }
    FNR == 1 { inside = 0 }
    {
        text = ""
        for (line = $0; line != ""; line = substr(line, at + 2)) {
            at = index(line, inside ? "*/" : "/*")
            if (!inside) text = text (at ? substr(line, 1, at - 1) : line)
            if (!at) break
            inside = !inside
        }
        gsub(/"  cellc [^"]*"/, "", text)
        for (i = 1; i < n; i++)
            if (index(FILENAME, "schedule/" name[i] "/") != 1 && FILENAME != "schedule/schedules.c" &&
                text ~ said[i])
                print "names " FILENAME ":" FNR " " name[i]
        if (text ~ /SCHED_/) print "names " FILENAME ":" FNR " one by a number"
    }' $(<"$work/files") >>"$work/found"
sed -nE 's/^new (.*) -> (.*)/FAIL gen\/\1 includes or calls gen\/\2, which gen\/layers does not allow/p
    s/^names ([^ ]*) (.*)/FAIL gen\/\1 names a schedule (\2): ask through its struct/p
    s/^unknown (.*)/FAIL gen\/\1 is not a folder of gen\/layers/p' "$work/found" | sort -u
# Programs of launch plans are printed in one place.
programs=$(grep -rlE --include='*.[chly]' '^[^"]*("[^"]*"[^"]*)*"[^"]*CELL_X_' . | sed 's|^\./||')
if [[ $programs != plan/formula.c ]]; then
    echo "FAIL codes of launch plans (CELL_X_) are printed by" $programs", not by plan/formula.c alone"
    echo "new CELL_X_" >>"$work/found"
fi
failed=$(grep -cE '^(new|names|unknown)' "$work/found")
right=$(sed -n 's/^right //p' "$work/found")
((right > 0)) || failed=$((failed + 1))        # nothing was read
echo "$right passed, $failed failed"
((failed == 0))
