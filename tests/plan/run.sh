#!/bin/bash
# The planner: what each of its passes leaves prints as text and reads back as the same plan, which holds what the pass
# promises; a plan that is broken by hand is found, by what is wrong with it; and damaged texts have a message with
# their line, never a crash.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
cellc=${CELLC:-$build/cellc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
flags=
[[ -n ${SAN:-} ]] && flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"

# shellcheck disable=SC2086
if ! ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -O1 $flags ${COVER:-} -Igen -o "$work/plan" \
    tests/plan/plan_tool.c "$build/libcellc.a" -lm -ldl; then
    echo "0 passed, 1 failed"
    exit 1
fi

# shellcheck source=tests/same.sh
source tests/same.sh

# dump PASS OPTIONS...: to $work/dump.
dump() {
    "$cellc" emit "${@:2}" --import-dir specs --dump-after "$1" >"$work/dump" 2>"$work/err" && [[ -s $work/dump ]] && return
    failed=$((failed + 1))
    echo "no dump after $1 of ${*:2}:"
    head -n 3 "$work/err"
    return 1
}

# All plans of an instance read back, verify, and print as they were.
round() {
    local out
    dump "$@" || return
    out=$("$work/plan" round "$work/dump")
    if [[ ${out##*$'\n'} =~ ^([1-9][0-9]*)\ passed,\ 0\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
    else
        failed=$((failed + 1))
        echo "after $*:"
        head -n 5 <<<"$out"
    fi
}

passes=$("$cellc" help passes | sed -n '/^passes on its plan/,/^[^ ].*:$/{/^  /p}' | awk '{ print $1 }')
same "passes of the planner" 25 "$(wc -w <<<"$passes")"
# A step of products, a walk on chip with many and few blocks, one by units, a softmax over the past, a norm, chunks.
for spec in lstm delta indrnn window_attention layernorm; do
    for pass in $passes; do
        round "$pass" "specs/$spec.cell"
    done
done
last=$(tail -n 1 <<<"$passes")
for spec in specs/*.cell tests/constructs/*.cell; do
    grep -q '^cell ' "$spec" && round "$last" "$spec"
done
round "$last" specs/lstm.cell --dtype bf16 --products fused
round "$last" tests/constructs/fp8_linear.cell --dtype bf16
round "$last" specs/e88.cell --dtype bf16 --archs "90 80"

# An attempt that fails leaves nothing behind: the kernels are those of the schedule that takes the cell, as if no other
# had been tried. (Not where sums leave the step beside it, or another plan takes long calls, or one by another
# schedule those of few steps.)
tried=0
for spec in specs/*.cell tests/constructs/*.cell; do
    grep -q '^cell ' "$spec" || continue
    options=(--import-dir specs -Wno-performance --kind cuda)
    schedule=$("$cellc" explain "$spec" --import-dir specs -Wno-performance | sed -nE 's/^  schedule +([a-z]+):.*/\1/p')
    [[ $schedule =~ ^(scan|gemm|block|steps)$ ]] || continue
    "$cellc" emit "$spec" "${options[@]}" >"$work/auto"
    grep -q '^// For calls of several steps' "$work/auto" && continue
    grep '^// For calls of few steps' "$work/auto" | grep -qv "schedule $schedule\." && continue
    tried=$((tried + 1))
    "$cellc" emit "$spec" "${options[@]}" --schedule "$schedule" | cmp -s - "$work/auto"
    same "kernels of $spec by --schedule $schedule" 0 $?
done
same "cells whose schedule is not the first that is tried" yes "$([[ $tried -gt 100 ]] && echo yes || echo "only $tried")"

# broken SCRIPT WANTED: what is said of the dump behind the script of sed, which changes something; numbers are N.
broken() {
    sed -E "$1" "$work/dump" >"$work/broken"
    cmp -s "$work/dump" "$work/broken" && same "$1" "a change" "none"
    same "$1" "$2" "$("$work/plan" verify "$work/broken" 2>&1 | head -n 1 | sed -E 's/[0-9]+/N/g')"
}

dump "$last" specs/lstm.cell
f='/^forward/,/^backward/'
read=$(sed -nE 's/^%([0-9]+) "f" during.*/\1/p' "$work/dump" | head -n 1)
broken "s/^output y = %[0-9]+/output y = %$read/" 'the output of y, %N, is read'
broken "$f s/ \"c_next\" during/ \"c_next\" before/" '%N reads %N, which has a later phase'
broken "$f s/ \"f\" during group [0-9]+/ \"f\" none/" '%N reads %N, which is not computed'
broken "$f s/^(group [0-9]+ map .* arrays) %[0-9]+/\1/" 'group N lacks %N'
broken "$f s/^(group 0 product .* arrays (%[0-9]+))/\1 \2/" 'two groups have %N'
broken "$f s/^(group 0 product .* arrays) (%[0-9]+)/\1/" 'group N is a product of N arrays'
broken "$f s/^(%[0-9]+ during product group) 1/\1 2/" 'group N has %N, which is of group N'
broken "$f s/^(group [0-9]+ map) during/\1 before/" 'group N has %N of another phase'
broken "$f { s/ during product group 1/ during product group N/; s/ during group 2/ during group 1/; s/group N/group 2/
    /^group 1/{h;d}; /^group 2/{s/^group 2/group 1/;p;x;s/^group 1/group 2/} }" 'group N reads %N of group N'
broken "$f s/^(%[0-9]+ during product group 1) .*/\1/" '%N reads %N, which lies in no memory'
broken "$f s/ \"c_next\" during group 2 .*/ \"c_next\" during/" 'group N has %N, which is of group -N'
broken "$f s/( \"c_next\" during group 2) reserve/\1 workspace/" '%N and its buffer N are not both in the reserve'
broken "$f s/( \"o\" during group 2) .*/\1/; / \"o\" none/d" '%N reads %N of forward, which is not in the reserve'
broken 's/^(buffer [0-9]+ "h_next" workspace) f32/\1 bf16/' '%N has another type than its buffer N'
broken "$f s/ (workspace) 13/ \1 12/" 'buffer N has %N and %N'
broken "$f s/ \"y\" during group 2 argument 7/ \"y\" during group 2 argument 99/" '%N is argument N of N'
broken 's/"lstm_fwd_step_2"/"lstm_fwd_before_0"/' 'groups N and N are called lstm_fwd_before_N'
broken "$f s/ threads 128/ threads 4000/" 'group N has N threads'
broken "$f s/^(group 2 .* pointers) [0-9]+/\1 97/" 'group N has N pointers'
broken '/^backward/,$ s/^(group [0-9]+ map .*)/\1 sums 1/' 'group N leaves sums of group N, which has other ones'
# Texts that are none.
broken 's/^plan /plans /' "there is no line that begins with 'plan'"
broken 's/^(plan .*schedule) gemm/\1 gem/' 'line N: there is no such schedule'
broken 's/ workspace 13/ workspace 99/' 'line N: there is no buffer N'
broken 's/^buffer 3 /buffer 4 /' 'line N: buffers are not in their order'
broken "$f s/^group 1 /group 7 /" 'line N: groups are not in their order'
broken 's/\{4\*H\}/{4*Q}/' 'line N: expected a size in braces'
broken "$f s/^tensor 0 \"x\"/tensor 0 \"z\"/" 'line N: the tensor has another name'
broken 's/^value (%[0-9]+) alias/value %0 alias/' 'line N: %N is no array'

broken "$f s/ batched timed f32$/ batched timed f32 soon/" "line N: unexpected 'soon'"
out=$("$work/plan" damage "$work/dump" 300 | tail -n 1)
same "damaged plans" "300 passed, 0 failed" "$out"

dump settle specs/delta.cell
broken "$f s/^(group [0-9]+) walk (.*)/\1 map \2 threads 64/" 'no kernel walks all steps'
broken "$f { /^group [0-9]+ walk/{p;s/^group [0-9]+/group 2/;s/_walk\"/_again\"/} }" 'N kernels walk all steps'
# What the steps alone keep, and a product with what stands next to it.
dump rings specs/mlstm.cell
broken 's/^(buffer [0-9]+ "n_next" .*)/\1 ring 1/' '%N reads all steps of %N, of which N are kept'
dump "$last" specs/linear_act.cell --dtype bf16 --products fused
broken 's/^(fused 0 .* with 1)/\1 ahead/' 'group N and what goes with it are in the wrong order'
broken 's/^fused 0 (.*) with 1/fused 1 \1 with 0/' 'group N is one kernel with no product'
echo "$passed passed, $failed failed"
exit $((failed > 0))
