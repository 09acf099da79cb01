#!/bin/bash
# Packed sequences: cells built with --packed, in both directions of time, against each sequence alone and in pieces; what a
# library with packed sequences says of itself and refuses; and where no kernels take them, that this is said. (The ladder
# takes the kernels.) ONLY is a regular expression on the names of cells.
cd "$(dirname "$0")/../.." && . tests/calls/calls.sh packed
make_program
for spec in specs/{lstm,mingru,conv4_silu,swiglu,e79,gated_delta,lstm_layernorm}.cell tests/constructs/reset_{vector,shift}.cell; do
    name=$(basename "$spec" .cell) pieces=pieces
    [[ $name =~ ${ONLY:-.} ]] || continue
    for direction in "" --reverse; do
        # shellcheck disable=SC2086
        if ! make_object "$spec" "$out/with" --packed $direction || ! make_object "$spec" "$out/without" $direction; then
            cat "$out"/with*.log
            failed=$((failed + 1))
            continue
        fi
        count "$("$out/packed" "$out/with.so" "$out/without.so" "${name}_instance" $pieces 2>&1)" "$name $direction"
        rm -rf "$out"/with* "$out"/without*
    done
done

"$cellc" emit e0 --packed --no-cuda -o "$out/e0" >/dev/null 2>&1
say "the manifest" '"packed": true' "$out/e0/e0.json"
say "the manifest" '"name": "cu_seqlens", "kind": "starts", "dtype": "i32", "axes": \[\], "batched": true, "timed": false' \
    "$out/e0/e0.json"
say "the header" 'const int32_t \*cu_seqlens; *\/\* \[B + 1\] first rows of the sequences, and total' "$out/e0/e0.h"
say "the header" 'int64_t total; \/\* rows of all sequences together \*\/' "$out/e0/e0.h"
say "the bindings" '{ "packed", "true" }' "$out/e0/e0.c"
"$cellc" explain e79 --packed >"$out/explain" 2>/dev/null
say "explain" 'packed sequences' "$out/explain"

refused() { # what, pattern, the spec's text, options
    local what=$1 pattern=$2
    printf '%s' "$3" >"$out/c.cell"
    shift 3
    "$cellc" explain "$out/c.cell" "$@" >/dev/null 2>"$out/log"
    say "$what" "$pattern" "$out/log"
}
refused "a name that is taken" "error: 'total' is the name of what the caller says of the sequences with --packed: give this" \
    'cell c { dim D; input x[D], total; output y[D]; y[d] = x[d] * total; }' --packed
refused "all earlier steps" "error: with --packed, all earlier steps of 'x' cannot be kept" \
    'cell c { dim D; input x[D]; output y[D]; y[d] = sum[w:T] x[d; t - w]; }' --packed
refused "both" "error: --packed and --lengths exclude each other" 'cell c { dim D; input x[D]; output y[D]; y[d] = x[d]; }' \
    --packed --lengths
refused "a batch's product" "error: no schedule has kernels for packed sequences of cell lstm" "$(<specs/lstm.cell)" --packed
say "why" "note: not scan: what feeds the states sums over many of their elements" "$out/log"
say "what to do" "pad, and build it with --lengths, or leave the kernels out with --no-cuda" "$out/log"
refused "a forced schedule" "error: --schedule steps cannot take cell lstm: packed sequences: its kernels and products take a step" \
    "$(<specs/lstm.cell)" --packed --schedule steps
for command in "check e0" "run e0" "random"; do
    # shellcheck disable=SC2086
    "$cellc" $command --packed >"$out/log" 2>&1
    say "$command" "packed" "$out/log"
done
close
