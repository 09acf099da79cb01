#!/bin/bash
# Writes docs/cells.md, the catalogue of specs/, to standard output: what each spec's first comment says, its states and
# options, and the schedule that the planner takes for it. In: CELLC. `make catalogue` runs it, tests/catalogue compares.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cellc=${CELLC:-$root/build/cellc}

heading() { # SPEC: the first comment as one line
    sed -n '/^\/\//!q; s,^// *,,p' "$1" | tr '\n' ' ' | sed 's/ *$//'
}

states() { # SPEC: "S [H, N, V], m [H]"; initial values are left out, with the commas between their brackets
    sed -nE 's,//.*,,; s/^ *state (.*);.*/\1/p' "$1" | awk '
        { depth = 0; skips = 0; line = line (NR > 1 ? ", " : "")
          for (i = 1; i <= length($0); i++) {
              c = substr($0, i, 1)
              depth += index("[(", c) > 0; depth -= index("])", c) > 0
              if (depth == 0 && c == "=") { skips = 1; sub(/ +$/, "", line) }
              if (depth == 0 && c == ",") skips = 0
              if (!skips) line = line (c == "[" ? " [" : c)
          } }
        END { if (line != "") print line }'
}

options() {
    sed -nE 's/^ *option ([a-z_]+) = ([^;]*);.*/`\1`: \2/p' "$1" | sed 's/ | /, /g' | tr '\n' ';' | sed 's/;$//; s/;/; /g'
}

# The comment is "WHAT (ORIGIN): MORE" or "WHAT: MORE" or a sentence; what remains is cut at its first full stop.
row() {
    local spec=$1 text what origin= rest schedule
    text=$(heading "$spec")
    if [[ $text =~ ^([^\(:]*)\ \(([^\)]*)\)(.*)$ ]]; then
        what=${BASH_REMATCH[1]} origin=${BASH_REMATCH[2]} rest=${BASH_REMATCH[3]}
    else
        what= rest=$text
    fi
    [[ $rest =~ ^(.*[^.A-Z])\.\ [A-Z\`] ]] && rest=${BASH_REMATCH[1]%%. [A-Z]*}
    text=$(sed 's/|/\\|/g' <<<"${what%.}${rest%.}")
    schedule=$("$cellc" explain "$spec" 2>/dev/null | sed -nE 's/^ *schedule +([a-z]+):.*/\1/p' | head -n 1)
    echo "| [$(basename "$spec" .cell)](../specs/$(basename "$spec")) | $text | $origin | $(states "$spec") |" \
        "$(options "$spec") | $schedule |" | sed -E 's/ +/ /g'
}

table() { # title, specs
    echo
    echo "## $1"
    echo
    echo "| spec | what it is | origin | states | options | schedule |"
    echo "| --- | --- | --- | --- | --- | --- |"
    shift
    printf '%s\n' "$@" | sort -V | while read -r spec; do row "$spec"; done
}

ladder=() stateless=() others=()
for spec in "$root"/specs/*.cell; do
    [[ $spec == */std.cell ]] && continue
    if grep -q 'Elman ladder, ekg/elman' "$spec"; then
        ladder+=("$spec")
    elif grep -qE '^ *state ' "$spec"; then
        others+=("$spec")
    else
        stateless+=("$spec")
    fi
done
# The specs whose states could go in chunks of steps, as tests/chunk finds them: a row for each form, with the
# settings that have it.
chunks() {
    awk '
        function flush() {
            if (form == "" || settings ~ /--/) return
            if (!((spec, form) in with)) key[++n] = spec SUBSEP form
            mine = settings == "" ? "as it is" : "`" settings "`"
            with[spec, form] = with[spec, form] (with[spec, form] == "" ? "" : "; ") mine
        }
        /^[^ ]/ {
            flush()
            form = ""
            spec = $1
            settings = substr($0, length($1) + 2)
            gsub(/--(set|dim) /, "", settings)
        }
        /could go in chunks/ && !/not worth/ {
            sub(/^ +/, "")
            gsub(/ could go in chunks:?/, ":")
            form = form (form == "" ? "" : ". ") $0
        }
        END {
            flush()
            for (i = 1; i <= n; i++) {
                split(key[i], part, SUBSEP)
                name = part[1]
                gsub(/.*\/|\.cell$/, "", name)
                print "| [" name "](../" part[1] ") | " with[key[i]] " | " part[2] " |"
            }
        }' "$root/tests/chunk/specs.txt"
}

echo "# The cells of specs/"
echo
echo "Written by \`make catalogue\`. The first value of an option is its default; the schedule is what the planner takes for"
echo "the spec as it is. \`make catalogue\` also writes a page for each to docs/cells/: equations, shapes, what a step costs and"
echo "a picture of its data flow; \`cellc doc\` does so for any cell."
table "Published recurrences" "${others[@]}"
table "The Elman ladder" "${ladder[@]}"
table "Without a state" "${stateless[@]}"

echo
echo "## In chunks of steps"
echo
echo "The states of these could be walked many steps at a time, as products ([chunk](../gen/schedule/chunk/README.md),"
echo "*chunk*); \`--schedule chunk\` does so for all but those with a decay per value and a correction. Of mLSTM's"
echo "m, which no form of products takes, a thread for each head walks the steps before."
echo "Settings are the spec as it is, or one option with another value, or two."
echo "\`cellc explain\` says it of any cell, and of the others which term forbids it."
echo
echo "| spec | settings | form |"
echo "| --- | --- | --- |"
chunks
