#!/bin/bash
# Sequences of several lengths: cells built with --lengths, in both directions of time, a batch against each of its
# sequences alone; and what a library with lengths says of itself. (The ladder takes kernels with lengths, and
# `cellc check --lengths` the evaluator.) ONLY is a regular expression on the names of cells.
cd "$(dirname "$0")/../.." && . tests/calls/calls.sh lengths
make_program
for spec in specs/{lstm,mingru,conv4_silu,causal_attention,swiglu}.cell tests/constructs/reset_{vector,shift,past}.cell \
    specs/e79.cell tests/constructs/{reset_state_and_shift,grad_repeat}.cell; do
    name=$(basename "$spec" .cell)
    [[ $name =~ ${ONLY:-.} ]] || continue
    for direction in "" --reverse; do
        # shellcheck disable=SC2086
        if ! make_object "$spec" "$out/with" --lengths $direction || ! make_object "$spec" "$out/without" $direction; then
            cat "$out"/with*.log
            failed=$((failed + 1))
            continue
        fi
        count "$("$out/lengths" "$out/with.so" "$out/without.so" "${name}_instance" 2>&1)" "$name $direction"
        rm -rf "$out"/with* "$out"/without*
    done
done

"$cellc" emit specs/e0.cell --lengths -o "$out/e0" >/dev/null 2>&1
say "the manifest" '"lengths": true' "$out/e0/e0.json"
say "the manifest" '"name": "lengths", "kind": "lengths", "dtype": "i32", "axes": \[\], "batched": true, "timed": false' \
    "$out/e0/e0.json"
say "the header" 'const int32_t \*lengths; *\/\* \[B\] how many steps each sequence has' "$out/e0/e0.h"
say "the bindings" '{ "lengths", "true" }' "$out/e0/e0.c"
"$cellc" emit e0 -o "$out/plain" >/dev/null 2>&1
say "the bindings" '{ "lengths", "false" }' "$out/plain/e0.c"
"$cellc" explain specs/e0.cell --lengths >"$out/explain" 2>/dev/null
say "explain" 'with lengths of sequences' "$out/explain"
printf 'cell c { dim D; input x[D], lengths; output y[D]; y[d] = x[d] * lengths; }\n' >"$out/c.cell"
"$cellc" explain "$out/c.cell" --lengths >/dev/null 2>"$out/log"
say "a name that is taken" "error: 'lengths' is the name of what the caller says of the sequences with --lengths: give this" "$out/log"
"$cellc" explain specs/yaad.cell --lengths --reverse >/dev/null 2>"$out/log"
say "a step as an index" \
    "error: with --reverse and --lengths 't' is a number that starts again, and no index: count the steps in a state$" "$out/log"
printf 'cell c { dim D; input x[D]; output y[D]; y[d] = x[d; 0]; }\n' >"$out/c.cell"
"$cellc" explain "$out/c.cell" --lengths --reverse >/dev/null 2>"$out/log"
say "an absolute step" "error: a step of 'x' that is not counted back .*, may be before the first of a sequence$" "$out/log"

close
