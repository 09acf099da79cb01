#!/bin/bash
# The compiler under AddressSanitizer and UBSan: all that it writes of every spec and construct, and every
# mistake of tests/diag. (`make check SAN=1` runs all suites so; this one is in every check.) In: BUILD, CC,
# SAN. Out: what was found, and the sum as the last line. What UBSan finds ends the compiler without a word,
# and AddressSanitizer checks by calls: texts of reports take a third of the time to compile. Where
# something is found, the compiler is built with reports and says what.
set -u
export CELLC_VERIFY_PASSES=1
cd "$(dirname "$0")/../.."
# shellcheck source=tests/slots.sh
source tests/slots.sh
build=${BUILD:-build}
if [[ -n ${SAN:-} ]]; then
    echo "the compiler with sanitizers: it is built so already"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
out=$build/tests/sanitized
jobs=2
[[ -z ${POOL:-} ]] || jobs=1        # this suite has one token of tests/run.sh
# A null pointer that is used ends the compiler by itself.
silent="-fsanitize-undefined-trap-on-error -fno-sanitize=null,pointer-overflow,object-size"
${CC:-cc} --version 2>/dev/null | grep -q 'Free Software Foundation' &&
    silent+=" --param asan-instrumentation-with-call-threshold=0"

compiler() { # DIR FLAGS: DIR/cellc
    mkdir -p "$1/gen/front"
    # What flex and bison made is there, and they may not be.
    cp -p "$build"/gen/front/{lex,parse}.{c,h} "$1/gen/front/" && touch "$1"/gen/front/{lex,parse}.{c,h}
    MAKEFLAGS='' make -s -j"$jobs" SAN=1 BUILD="$1" CC="${CC:-cc}" CFLAGS="-O0 $2" "$1/cellc" >"$out/log" 2>&1
}
mkdir -p "$out/files"
if ! compiler "$out" "$silent"; then
    tail -n 5 "$out/log"
    echo "0 passed, 1 failed"
    exit 1
fi
export ASAN_OPTIONS=detect_leaks=0:malloc_context_size=1 out cellc=$out/cellc

one() { # FILE COMMAND...: the exit code of a mistake is fine, a report is not
    local file=$1 said=$out/said.$$
    shift
    "$cellc" "$@" "$file" >/dev/null 2>"$said"
    local rc=$?
    if ((rc <= 2)) && ! grep -qE 'runtime error|Sanitizer' "$said"; then
        echo ok
    else
        echo "FAIL cellc $* $file: exit code $rc: $(grep -m1 -E 'runtime error|ERROR' "$said")"
    fi
    rm -f "$said"
}
export -f one
# Of constructs `doc` is run for those that together take every edge of the compiler that `doc` of any
# construct takes and neither `doc` of specs nor `emit` does, and for those that tests/ladder/chosen does not
# know. (By trace.c of tests/ladder/coverage, 28 November 2026. A name that is gone fails.)
documented="attention_bounds attention_packed attention_paged branch_not_taken complex_reset complex_values
    constant_tables fast_weights grad_heads grad_repeat guarded_place initial_product integer_past_rnn
    made_where_read names_of_others past_many past_values past_window repeat_conditions reset_before
    reset_matrix reset_past reset_shift rounded_twice rounded_walk scan_inner_one stacked_whole
    turned_vectors whole_numbers_tile whole_powers window_forms windows_of_gates"
gone=0
for name in $documented; do
    [[ ! -e tests/constructs/$name.cell ]] || continue
    echo "FAIL there is no construct $name"
    gone=$((gone + 1))
done
{
    for file in specs/*.cell tests/constructs/*.cell; do
        [[ $file != specs/std.cell ]] || continue
        name=$(basename "$file" .cell)
        echo "$file emit --import-dir specs -o $out/files/$name.cell"
        [[ $file == tests/* && " $documented " != *[[:space:]]"$name"[[:space:]]* ]] &&
            grep -q "^constructs ${name}_" tests/ladder/chosen || echo "$file doc --import-dir specs"
    done
    for file in tests/diag/*.cell; do
        printf '%s\n' "$file explain" "$file run --steps 2"
    done
    printf '%s\n' "specs/e79.cell fmt" "specs/e79.cell graph --backward" "specs/e79.cell check --dim N=3"
} | xargs_slots -I '{}' -- bash -c 'one $1' one '{}' >"$out/results"
if grep FAIL "$out/results" && compiler "$out/reports" ""; then
    export ASAN_OPTIONS=detect_leaks=0 cellc=$out/reports/cellc
    echo "with reports:"
    sed -n 's/^FAIL cellc \(.*\) \([^ ]*\): exit code.*/\2 \1/p' "$out/results" | head -n 10 |
        xargs_slots -I '{}' -- bash -c 'one $1' one '{}' | grep FAIL
fi
passed=$(grep -c '^ok' "$out/results") failed=$(($(grep -c FAIL "$out/results") + gone))
rm -rf "$out/files"
echo "$passed passed, $failed failed"
[[ $failed == 0 && $passed -gt 0 ]]
