#!/bin/bash
# Time walked backwards: of every spec, the reversed reference on reversed inputs against the plain one, bit by
# bit, and what a reversed library says of itself. ONLY is a regular expression on the names of specs. (The ladder
# compares reversed kernels with the reversed reference, and `cellc check --reverse` that with the evaluator.)
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
cc=${CC:-cc}
export ASAN_OPTIONS=detect_leaks=0
out=$build/tests/reverse
rm -rf "$out" && mkdir -p "$out"
passed=0 failed=0
libs=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
# shellcheck disable=SC2086
$cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -O1 -Iruntime ${SAN:+-fsanitize=address,undefined} -o "$out/reverse" tests/reverse/reverse.c \
    -rdynamic -Wl,--whole-archive "$build/libcell.a" -Wl,--no-whole-archive $libs -lm -ldl -lpthread 2>"$out/log" || { cat "$out/log"; echo "0 passed, 1 failed"; exit 1; }

one() { # spec, options: prints what the comparison said
    local name dir
    name=$(basename "$1" .cell)
    dir=$2/$name
    local way
    for way in plain reverse; do
        local flag=()
        [[ $way == reverse ]] && flag=(--reverse)
        "$3" emit "$1" --dtype f64 --no-cuda "${flag[@]}" -o "$dir/$way" >/dev/null 2>"$dir.log" &&
            "$4" -std=c11 -O0 -w -fPIC -shared -Iruntime -I"$dir/$way" -o "$dir/$way.so" "$dir/$way"/*.c -lm 2>>"$dir.log" ||
            { cat "$dir.log"; echo "$name: 0 passed, 1 failed"; return; }
    done
    "$2/reverse" "$dir/plain.so" "$dir/reverse.so" "${name}_instance"
    (($? < 2)) || echo "$name: 0 passed, 1 failed"
    rm -rf "$dir" "$dir.log"
}
export -f one
for spec in specs/*.cell; do
    [[ $spec == */std.cell || ! $(basename "$spec" .cell) =~ ${ONLY:-.} ]] || echo "$spec"
done | xargs -P 2 -I '{}' bash -c 'one "$@"' one '{}' "$out" "$cellc" "$cc" >"$out/results"
grep -v ', 0 failed' "$out/results"
while read -r p f; do
    passed=$((passed + p)) failed=$((failed + f))
done < <(sed -n 's/.*: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$out/results")

say() { # what, pattern, file: one line of it says so
    if grep -q -- "$2" "$3"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1: no line '$2'"; fi
}
for flag in "" --reverse; do
    # shellcheck disable=SC2086
    "$cellc" emit specs/e0.cell $flag -o "$out/e0$flag" >/dev/null 2>&1
done
say "the manifest" '"reverse": true' "$out/e0--reverse/e0.json"
say "the manifest" '"reverse": false' "$out/e0/e0.json"
say "the header" 'reverse = true' "$out/e0--reverse/e0.h"
say "the bindings" '{ "reverse", "true" }' "$out/e0--reverse/e0.c"
say "the bindings" '{ "reverse", "false" }' "$out/e0/e0.c"
"$cellc" build specs/e0.cell e0:reverse --name both --no-cuda -o "$out/both" >/dev/null 2>"$out/log" || cat "$out/log"
say "a library of both" e0_reverse_instance "$out/both/both.c"
say "its key" 'e0:.*reverse=true,dtype=f32' "$out/both/e0_reverse.c"
"$cellc" explain specs/e0.cell --reverse >"$out/explain" 2>/dev/null
say "explain" 'reversed in time' "$out/explain"
"$cellc" build e0:backwards --no-cuda -o "$out/wrong" 2>"$out/log"
say "a wrong setting" "^cellc build: expected NAME=VALUE, reverse or lengths after ':', not 'backwards'$" "$out/log"

echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
