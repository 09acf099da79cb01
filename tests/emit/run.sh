#!/bin/bash
# Builds a library with cellc for bf16 and runs library.c on it; checks that all that is generated for every
# spec compiles without a warning as C and has lines of at most 110 columns, that headers do as C++, and that
# manifests are JSON.
set -u
cellc=${CELLC:-$PWD/${BUILD:-build}/cellc}
cc=${CC:-cc}
strict="-Wall -Wextra -Werror -Iruntime"
san=
[[ -n ${SAN:-} ]] && san="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

check() {
    local what=$1
    shift
    if "$@" >"$dir/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        ((failed > 3)) || head -n 6 "$dir/log"
    fi
}

no_long_lines() { # files
    awk 'length > 110 { print FILENAME ":" FNR ": " $0; long = 1 } END { exit long }' "$@"
}

for spec in specs/*.cell; do
    name=$(basename "$spec" .cell)
    grep -q '^ *cell ' "$spec" || continue
    for dtype in f32 bf16 f64; do
        out=$dir/$name.$dtype
        check "$name $dtype: emit" "$cellc" emit "$spec" --dtype $dtype -o "$out"
        for file in "$out"/*.c; do
            # The reference hangs on no type but those of 64 bits.
            [[ $dtype == f32 ]] || ! cmp -s "$file" "$dir/$name.f32/$(basename "$file")" || continue
            check "$name $dtype: $(basename "$file")" "$cc" -std=c11 $strict -I"$out" -fsyntax-only "$file"
        done
    done
    if command -v g++ >/dev/null; then
        check "$name: header as C++" g++ -x c++ -std=c++11 $strict -fsyntax-only "$out/$name.h"
    fi
done
check "columns" no_long_lines "$dir"/*/*.c "$dir"/*/*.cu "$dir"/*/*.h
if command -v python3 >/dev/null; then
    check "manifests are JSON" python3 -c 'import json, sys; [json.load(open(name)) for name in sys.argv[1:]]' "$dir"/*/*.json
fi

# A binding asks for the number of the first step where it counts: rope and window_attention use t. conv4_silu reads
# steps before the call, but only by how far back they are; lstm uses neither.
counting=
for name in rope window_attention conv4_silu lstm; do
    "$cellc" emit "specs/$name.cell" --kind manifest | grep -q '"counts_steps": true' && counting+="$name "
done
check "cells that count steps" [ "$counting" = "rope window_attention " ]

# What is decided when a cell is compiled is no comparison in C: what a repeat's index chooses, for one.
decided() {
    "$cellc" emit tests/constructs/repeat_conditions.cell | "$cc" -fpreprocessed -E -P -x c - |
        grep -E '(^|[ (])[0-9]+ (==|<=?|!=) [0-9]+( [?]|[)]| &&)'
}
check "branches that a repeat chooses" [ -z "$(decided)" ]

"$cellc" emit specs/e79.cell --dtype f32 -o "$dir/again" >/dev/null
check "two runs write the same" diff -r "$dir/e79.f32" "$dir/again"

mkdir "$dir/gru"
for kind in header:gru.h host:gru.c c:gru_ref.c; do
    "$cellc" emit specs/gru.cell --dtype bf16 --kind ${kind%:*} >"$dir/gru/${kind#*:}"
done
check "the library's program compiles" "$cc" -std=c11 -D_GNU_SOURCE -g -O1 -ffp-contract=off $strict $san \
    -I"$dir/gru" -o "$dir/library" tests/emit/library.c "$dir"/gru/gru.c "$dir"/gru/gru_ref.c \
    "$(dirname "$cellc")/libcell.a" $(sed -n 's/^libs //p' "$(dirname "$cellc")/libcell.flags") -lpthread
"$dir/library" | tee "$dir/result" | grep -v passed
read -r p _ f _ < <(tail -n 1 "$dir/result")
echo "$((passed + ${p:-0})) passed, $((failed + ${f:-1})) failed"
((failed + ${f:-1} == 0))
