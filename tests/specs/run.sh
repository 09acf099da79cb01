#!/bin/bash
# What is known of the specs from elsewhere: each line of `identities` says that a spec, with some of its inputs or
# parameters set, is another spec, or a form of its own in forms/ that is mathematically equal and written otherwise.
# The evaluator runs the spec on random inputs; `cellc check` then wants the same outputs from the other one's
# evaluation and from its compiled reference. Every spec, in every value of its options, must have such a line or a
# vector file. ONLY is a regular expression on lines. Out: what failed, and the sum as the last line.
#
#   SPEC DIM=SIZE OPTION=VALUE ... | values set | SPEC or @FORM, with its DIM=SIZE where they differ | edits on the way
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cellc=${CELLC:-$root/${BUILD:-build}/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

fail() {
    failed=$((failed + 1))
    echo "$1"
    sed 's/^/    /' <<<"$2" | head -n 4
}

file_of() { # SPEC or @FORM: its file
    [[ $1 == @* ]] && echo "$here/forms/${1#@}.cell" || echo "$root/specs/$1.cell"
}

options_of() { # NAME=VALUE...: those of cellc; names of dims begin with a capital letter
    local word
    for word; do
        case $word in
        [A-Z]*=*) [[ ${dims:-yes} == no ]] || echo "--dim $word" ;;
        --*) echo "${word/=/ }" ;;
        *=*) echo "--set $word" ;;
        esac
    done
}

sizes_of() { # the DIM=SIZE of NAME=VALUE...
    local word
    for word; do [[ $word == [A-Z]*=* ]] && echo -n "$word "; done
}

# A line of the table. The vectors pass through three files: as the spec is run on, with values set, edited.
identity() {
    local line=$1 a b set edits spec other out
    IFS='|' read -r a set b edits <<<"$line"
    read -ra a <<<"$a"
    read -ra b <<<"$b"
    spec=$(file_of "${a[0]}") other=$(file_of "${b[0]}")
    local sizes
    sizes=$(sizes_of "${b[@]:1}")
    [[ -n $sizes ]] || sizes=$(sizes_of "${a[@]:1}")
    # shellcheck disable=SC2046
    out=$("$cellc" run "$spec" --steps 5 $(options_of "${a[@]:1}") -o "$work/random.vec" 2>&1 >/dev/null &&
        awk -v edits="$set" -f "$here/edit.awk" "$work/random.vec" >"$work/set.vec" &&
        "$cellc" run "$spec" --vectors "$work/set.vec" $(dims=no options_of "${a[@]:1}") -o "$work/run.vec" \
            2>&1 >/dev/null &&
        "$cellc" run "$other" --steps 5 $(options_of ${b[*]:1} ${sizes}) -o "$work/other.vec" 2>&1 >/dev/null) ||
        { fail "$line" "$out"; return; }
    local keep
    keep=" $(sed -nE 's/^tensor ([a-z]+) ([^ ]+) ?/\1:\2:/p' "$work/other.vec" | tr ' ' ',' | tr '\n' ' ')"
    out=$(awk -v edits="$edits" -v keep="$keep" -v sizes="$sizes" -f "$here/edit.awk" "$work/run.vec" \
        2>&1 >"$work/b.vec") ||
        { fail "$line" "$out"; return; }
    # shellcheck disable=SC2046
    out=$("$cellc" check "$other" --vectors "$work/b.vec" $(dims=no options_of ${b[*]:1}) 2>&1)
    if [[ $(tail -n 1 <<<"$out") =~ ^[1-9][0-9]*\ passed,\ 0\ failed$ ]] &&
        grep -qE '^tensor (output|final)' "$work/b.vec"; then
        passed=$((passed + 1))
    else
        fail "$line" "$(grep -E 'FAILED|error' <<<"$out")"
    fi
}

while read -r line; do
    [[ -z $line || $line == '#'* ]] && continue
    [[ $line =~ ${ONLY:-.} ]] && identity "$line"
done <"$here/identities"

# Every spec has a line or a vector file, and so has every value of its options but the default.
known() { # SPEC, a setting or nothing
    grep -qE "(^|\| *)$1 ([^|]* )?$2( |\|)" "$here/identities" ||
        grep -qE "^[a-z0-9_]+ $1( .*$2)?\$" "$root/tests/oracle/run.sh"
}
for spec in "$root"/specs/*.cell; do
    name=$(basename "$spec" .cell)
    [[ $name == std || -n ${ONLY:-} ]] && continue
    known "$name" "" || fail "$name: no identity and no vectors" ""
    while read -r option values; do
        for value in $values; do
            known "$name" "$option=$value" || fail "$name $option=$value: no identity and no vectors" ""
        done
    done < <(sed -nE 's/^ *option ([a-z_]+) = [^|;]*\|?([^;]*);.*/\1 \2/p' "$spec" | tr -d '|')
done
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
