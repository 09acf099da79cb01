#!/bin/bash
# Which sums over the past are attention, of which form, or which term forbids it and where: of specs, of
# constructs, and of the cells beside this, what is said is exactly forms.txt (BLESS=1 writes it again: read it
# before it is committed). cells/no_*.cell are near misses, of which none may be taken.
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.."
cellc=${BUILD:-build}/cellc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

forms() { # SPEC, settings: the lines of `cellc explain`, each in one
    "$cellc" explain "$@" 2>"$work/err" |
        awk '/^  attention /{on = 1} on && /^  [^ ]/ && !/^  attention /{exit} on{sub(/^  (attention)? */, ""); print}' |
        awk '/^(not )?in attention:/{if (line != "") print line; line = $0; next} {line = line " " $0}
             END{if (line != "") print line}'
}

while read -r spec; do
    echo "$spec"
    # shellcheck disable=SC2086
    forms $spec | sed 's/^/    /'
done >"$work/said" < <(
    printf '%s\n' specs/causal_attention.cell "specs/causal_attention.cell --dim G=4" \
        "specs/causal_attention.cell --lengths" "specs/causal_attention.cell --reverse" \
        specs/window_attention.cell{,\ --set\ distance=linear,\ --set\ prefix=learned,\ --dim\ W=open}
    ls tests/constructs/{past,window,reset,history}_*.cell
    ls tests/attention/cells/*.cell
)
[[ -n ${BLESS:-} ]] && cp "$work/said" tests/attention/forms.txt
if diff tests/attention/forms.txt "$work/said" >"$work/diff"; then
    passed=$((passed + 1))
else
    echo "tests/attention/forms.txt says something else"
    head -n 20 "$work/diff"
    failed=$((failed + 1))
fi
for cell in tests/attention/cells/no_*.cell; do
    if forms "$cell" | grep -q '^in attention'; then
        echo "$cell is taken"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed"
