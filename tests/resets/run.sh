#!/bin/bash
# Packed sequences: every cell of tests/constructs with resets, a run with flags against runs of its pieces without.
# (tests/constructs takes these cells to the evaluator and through the kernels.) ONLY is a regular expression on
# their names.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
cc=${CC:-cc}
export ASAN_OPTIONS=detect_leaks=0
out=$build/tests/resets
rm -rf "$out" && mkdir -p "$out"
libs=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
# shellcheck disable=SC2086
$cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -O1 -Iruntime ${SAN:+-fsanitize=address,undefined} -o "$out/resets" \
    tests/resets/resets.c -rdynamic -Wl,--whole-archive "$build/libcell.a" -Wl,--no-whole-archive $libs -lm -ldl \
    -lpthread 2>"$out/log" || { cat "$out/log"; echo "0 passed, 1 failed"; exit 1; }
passed=0 failed=0
for spec in tests/constructs/reset_*.cell; do
    name=$(basename "$spec" .cell)
    [[ $name =~ ${ONLY:-.} ]] || continue
    if ! "$cellc" emit "$spec" --dtype f64 --no-cuda -o "$out/$name" >/dev/null 2>"$out/log" ||
        ! "$cc" -std=c11 -O0 -w -fPIC -shared -Iruntime -I"$out/$name" -o "$out/$name.so" "$out/$name"/*.c -lm 2>"$out/log"; then
        cat "$out/log"
        failed=$((failed + 1))
        continue
    fi
    said=$("$out/resets" "$out/$name.so" "${name}_instance" 2>&1)
    read -r p f < <(sed -n 's/.*: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<<"$said")
    grep FAIL <<<"$said"
    if [[ -z ${p:-} ]]; then
        echo "$name: $said"
        p=0 f=1
    fi
    passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
