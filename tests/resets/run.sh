#!/bin/bash
# Packed sequences: every cell of tests/constructs with resets, a run with flags against runs of its pieces without.
# (tests/constructs takes these cells to the evaluator and through the kernels.) ONLY is a regular expression on
# their names.
cd "$(dirname "$0")/../.." && . tests/calls/calls.sh resets
make_program
for spec in tests/constructs/reset_*.cell; do
    name=$(basename "$spec" .cell)
    [[ $name =~ ${ONLY:-.} ]] || continue
    if ! make_object "$spec" "$out/$name"; then
        cat "$out/$name.log"
        failed=$((failed + 1))
        continue
    fi
    count "$("$out/resets" "$out/$name.so" "${name}_instance" 2>&1)" "$name"
done
close
