#!/bin/bash
# Time walked backwards: of every spec, the reversed reference on reversed inputs against the plain one, bit by
# bit, and what a reversed library says of itself. ONLY is a regular expression on the names of specs. (The ladder
# compares reversed kernels with the reversed reference, and `cellc check --reverse` that with the evaluator.)
cd "$(dirname "$0")/../.." && . tests/calls/calls.sh reverse
# shellcheck source=tests/slots.sh
source tests/slots.sh
make_program

one() { # spec, folder: prints what the comparison said
    local name dir way
    name=$(basename "$1" .cell)
    dir=$2/$name
    mkdir -p "$dir"
    for way in plain reverse; do
        local flag=()
        [[ $way == reverse ]] && flag=(--reverse)
        make_object "$1" "$dir/$way" "${flag[@]}" || { cat "$dir/$way.log"; echo "$name: 0 passed, 1 failed"; return; }
    done
    "$2/reverse" "$dir/plain.so" "$dir/reverse.so" "${name}_instance"
    (($? < 2)) || echo "$name: 0 passed, 1 failed"
    rm -rf "$dir"
}
export -f one
for spec in specs/*.cell; do
    [[ $spec == */std.cell || ! $(basename "$spec" .cell) =~ ${ONLY:-.} ]] || echo "$spec"
done | xargs_slots -I '{}' -- bash -c 'one "$@"' one '{}' "$out" >"$out/results"
grep -v ', 0 failed' "$out/results"
while read -r p f; do
    passed=$((passed + p)) failed=$((failed + f))
done < <(sed -n 's/.*: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$out/results")

for flag in "" --reverse; do
    # shellcheck disable=SC2086
    "$cellc" emit specs/e0.cell $flag -o "$out/e0$flag" >/dev/null 2>&1
done
say "the manifest" '"reverse": true' "$out/e0--reverse/e0.json"
say "the manifest" '"reverse": false' "$out/e0/e0.json"
say "the header" 'reverse = true' "$out/e0--reverse/e0.h"
say "the bindings" '{ "reverse", "true" }' "$out/e0--reverse/e0.c"
say "the bindings" '{ "reverse", "false" }' "$out/e0/e0.c"
"$cellc" build --cpu none specs/e0.cell e0:reverse --name both --no-cuda -o "$out/both" >/dev/null 2>"$out/log" || cat "$out/log"
say "a library of both" e0_reverse_instance "$out/both/both.c"
say "its key" 'e0:.*reverse=true,dtype=f32' "$out/both/e0_reverse.c"
"$cellc" explain specs/e0.cell --reverse >"$out/explain" 2>/dev/null
say "explain" 'reversed in time' "$out/explain"
"$cellc" build --cpu none e0:backwards --no-cuda -o "$out/wrong" 2>"$out/log"
say "a wrong setting" "^cellc build: expected NAME=VALUE, reverse, lengths, packed or slots after ':', not 'backwards'$" "$out/log"

close
