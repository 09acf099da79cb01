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
done >"$work/forms.txt" < <(
    printf '%s\n' specs/causal_attention.cell "specs/causal_attention.cell --dim G=4" \
        "specs/causal_attention.cell --lengths" "specs/causal_attention.cell --reverse" \
        specs/window_attention.cell{,\ --set\ distance=linear,\ --set\ prefix=learned,\ --dim\ W=open}
    ls tests/constructs/{past,window,reset,history,attention_prefix,attention_sink}*.cell
    ls tests/attention/cells/*.cell
)
taken() { # SPEC, settings: the schedule, and why not attention
    "$cellc" explain "$@" 2>"$work/err" |
        awk '/^  [^ ]/{on = /^  (schedule|not attention) /} on{sub(/^  /, ""); print}' |
        awk '/^[^ ]/{if (line != "") print line; line = $0; next} {sub(/^ +/, " "); line = line $0} END{print line}' |
        sed -E 's/^(schedule +[a-z]+):.*/\1/; s/  +/ /'
}
listed() { # types, of which each is planned; then specs with their settings
    local types=$1 spec type
    shift
    for spec; do
        for type in $types; do
            # shellcheck disable=SC2086
            taken $spec --import-dir specs --dtype "$type" | sed "s|^|$spec $type: |"
        done
    done
}
{
    listed "bf16 f16 f32 f64" specs/causal_attention.cell
    listed "bf16" specs/causal_attention.cell\ --{lengths,reverse} \
        specs/window_attention.cell{,\ --set\ prefix=learned,\ --packed} \
        tests/constructs/{attention_*,history_all,window_state,past_wide}.cell \
        tests/attention/cells/{maximum,logarithm}.cell
} >"$work/auto.txt"
for of in forms auto; do
    [[ -n ${BLESS:-} ]] && cp "$work/$of.txt" tests/attention
    if diff "tests/attention/$of.txt" "$work/$of.txt" >"$work/diff"; then
        passed=$((passed + 1))
    else
        echo "tests/attention/$of.txt says something else"
        head -n 20 "$work/diff"
        failed=$((failed + 1))
    fi
done
# What is taken unasked is what is taken when it is asked for.
for type in bf16 f16; do
    for schedule in auto attention; do
        "$cellc" emit specs/window_attention.cell --dtype $type --schedule $schedule -o "$work/$schedule" >"$work/err" 2>&1
    done
    if grep -q cell_attention_forward "$work/auto/window_attention.cu" && diff -r "$work/auto" "$work/attention" >"$work/diff"; then
        passed=$((passed + 1))
    else
        echo "window_attention in $type: kernels by auto are not those of --schedule attention"
        failed=$((failed + 1))
    fi
done
for cell in tests/attention/cells/no_*.cell; do
    if forms "$cell" | grep -q '^in attention'; then
        echo "$cell is taken"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed"
