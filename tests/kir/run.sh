#!/bin/bash
# The kernel IR: what the verifier says of kernels that break each of its rules, and of texts that are none; a
# kernel with everything in it as text, as CUDA and back; what a pass leaves; equality; and every kernel of the
# specs that is built in it, which reads back from its dump as what it was.
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
if ! ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -O1 $flags ${COVER:-} -Igen -o "$work/kir" \
    tests/kir/kir_tool.c "$build/libcellc.a" -lm -ldl; then
    echo "0 passed, 1 failed"
    exit 1
fi

# shellcheck source=tests/same.sh
source tests/same.sh

# A kernel of wrong.txt, from its lines behind the message.
said() {
    [[ -z $message ]] && return
    local shared=
    if [[ $message =~ ^([0-9]+):\ (.*)$ ]]; then
        shared=" shared ${BASH_REMATCH[1]}"
        message=${BASH_REMATCH[2]}
    fi
    {
        printf 'kernel k threads 64%s {\n' "$shared"
        printf 'let t: i32 = thread()\nlet p: f32* = pointer(0)\nlet q: const f32* = pointer(1)\n'
        printf '%s}\n' "$body"
    } >"$work/k.kir"
    same "$body" "$message" "$("$work/kir" verify "$work/k.kir" 2>&1)"
}

damaged() {
    [[ -z $message ]] && return
    printf '%s' "$body" >"$work/k.kir"
    same "$body" "$message" "$("$work/kir" verify "$work/k.kir" 2>&1)"
}

# each FILE FUNCTION: calls it with message and body of each part of the file.
each() {
    message='' body=''
    while IFS= read -r line; do
        case $line in
        '#'*) ;;
        '> '*) "$2"; message=${line#> } body='' ;;
        *) [[ -n $line || $2 == damaged ]] && body+=$line$'\n' ;;
        esac
    done <"$1"
    "$2"
}
each tests/kir/wrong.txt said
each tests/kir/damaged.txt damaged

# A byte taken away, every seventh in turn, gives a kernel, or a message, and never a crash.
crashes=0
for ((i = 0; i < $(wc -c <tests/kir/chunk.kir); i += 7)); do
    { head -c "$i" tests/kir/chunk.kir; tail -c +$((i + 2)) tests/kir/chunk.kir; } >"$work/k.kir"
    "$work/kir" cuda "$work/k.kir" >/dev/null 2>&1
    status=$?
    ((status > 1)) && crashes=$((crashes + 1)) && echo "chunk.kir without byte $i: an exit of $status"
done
same "chunk.kir without a byte: crashes" 0 "$crashes"
# Brackets without an end.
{ printf 'kernel k threads 32 {\nlet x: i64 = '; printf '(%.0s' {1..100000}; } >"$work/k.kir"
same "many brackets" "line 2: too deep" "$("$work/kir" verify "$work/k.kir" 2>&1)"

for file in chunk dead limit minus product row table width; do
    same "$file.kir" right "$("$work/kir" verify "tests/kir/$file.kir")"
done
for file in chunk limit product row width; do
    same "$file.kir reads back" "1 passed, 0 failed" "$("$work/kir" round tests/kir/$file.kir)"
done
for file in chunk limit minus product row table width; do
    same "$file.kir as CUDA" "$(cat tests/kir/$file.cu)" "$("$work/kir" cuda tests/kir/$file.kir)"
    if cxx=$(command -v "${CXX:-g++}" || command -v clang++); then
        { echo '#include "cell_device.cuh"' &&
            echo '[[maybe_unused]] static const float cell_table_a5a5a5a5[32] = { 0 };' &&
            cat tests/kir/$file.cu; } >"$work/$file.cc"
        errors=$("$cxx" -std=c++17 -fsyntax-only -Wall -Wextra -Werror -Wno-unknown-pragmas -Iruntime \
            -Iruntime/device -Itests/emulator "$work/$file.cc" 2>&1)
        same "$file.cu compiles" "" "$errors"
    fi
done
# As C for the CPU: what has no threads.
same "limit.kir as C" "$(cat tests/kir/limit.cpu)" "$("$work/kir" c tests/kir/limit.kir)"
{ echo '#include "cell_cpu.h"' && cat tests/kir/limit.cpu; } >"$work/limit.c"
same "limit.cpu compiles" "" "$(${CC:-cc} -std=c11 -fsyntax-only -Wall -Wextra -Werror -Wno-unused-function -Iruntime \
    -Iruntime/cpu "$work/limit.c" 2>&1)"
same "dead.kir cleaned" "$(cat tests/kir/dead.clean)" "$("$work/kir" clean tests/kir/dead.kir)"

# Equality: of the structure, not of names and comments; each change of it is seen.
# differs SED WANTED
differs() {
    local file=${3:-chunk}
    sed "$1" "tests/kir/$file.kir" >"$work/k.kir"
    cmp -s "tests/kir/$file.kir" "$work/k.kir" && same "$1" "a change" "none"
    same "$file.kir and: $1" "$2" "$("$work/kir" same "tests/kir/$file.kir" "$work/k.kir")"
}
differs 's/tile/array_of_k/; s/tile/array_of_k/g' "same, hashes equal"
differs 's/chunk_products/other/; /# scores/d; s/total/sum/g' "same, hashes equal"
changes=(
    's/threads 128/threads 64/' 's/resident 2/resident 1/' 's/shared 8448/shared 8449/' 's/ waits//'
    's/size(1)/size(0)/' 's/bf16\[2048\]/bf16[2040]/' 's/unroll 4/unroll 2/' 's/copy<16>/copy<8>/'
    's/0\.5f/0.25f/' 's/lt<bool>/le<bool>/' 's/load_vector<4>/load_vector_ro<4>/'
    's/w\[0\], 16/w[1], 16/' 's/exp<f32, fast>/exp<f32>/' 's/(-2\.0f)/2.0f/' 's/; < 4;/; < 5;/'
    's/const bf16\*/bf16*/' 's/^        barrier$/        warp_barrier/' 's/wait 0/wait 1/'
    's/row == 0/row != 0/' 's/put p_s + n, total/put p_s + n, v[0]/' 's/^            commit$//'
    's/a: bf16 left/a: f16 left/' 's/ += mul/ -= mul/'
)
for change in "${changes[@]}"; do
    differs "$change" "different, hashes differ"
done

differs 's/\bF\b/wholly/g; s/scaled_odd/other/' "same, hashes equal" width
for change in 's/by N: i32, F: bool/by F: bool, N: i32/' 's/run 4, true/run 4, false/' 's/bf16\*/f16*/' \
    's/store_vector<N> p_y + e, w_y$/store_vector<N> p_y, w_y/' 's/p_d, e/p_d, e + 1/' 's/% 4 ==/% 2 ==/' \
    's/<128>/<N>/'; do
    differs "$change" "different, hashes differ" width
done

differs 's/\bfetch\b/ask/g; s/row_x/kept/g; s/\bm\b/mean/g' "same, hashes equal" row
for change in 's/row_ahead row_d/row row_d/' 's/unroll V/unroll 4/' 's/bf16\[V\]\[N\]/bf16[N][N]/' \
    's/place(V) = threads/place(N) = threads/' 's/null<f32\*>$/p_y/' 's/call fetch(block(0))/call fetch(0)/' \
    's/call row_d.turn()/call row_d.turn()\ncall row_d.turn()/' 's/load_or_zero(s, p_d, row/load_or_zero(s, p_d, 1/'; do
    differs "$change" "different, hashes differ" row
done

differs 's/\bbody\b/each/g; s/\brow_s\b/given/g; s/\bv\b/read/g' "same, hashes equal" product
for change in 's/ as CELL_PRODUCT_THREADS//' 's/as CELL_PRODUCT_THREADS/as CELL_THREADS/' 's/v: const f32\[8\]/v: const f32[4]/' \
    's/v: const f32\[8\]/v: f32[8]/' 's/sums: f32\[2\]/sums: f32[3]/' 's/row_s: row f32/row_s: row bf16/' \
    's/row_s: row f32\[8\]/row_s: f32[8]/' 's/, fetch, make)/, make, fetch)/' 's/bf16, f32>(/f32, bf16>(/'; do
    differs "$change" "different, hashes differ" product
done

# Every kernel of the specs that is built in the kernel IR reads back from its dump.
there=0
kernels() {
    if ! "$cellc" emit "$@" --dump-after kernels >"$work/kernels" 2>"$work/err"; then
        same "$*: kernels" "a dump" "$(cat "$work/err")"
        return
    fi
    [[ -s $work/kernels ]] || return
    local out
    out=$("$work/kir" round "$work/kernels" 2>&1)
    if [[ ! $(tail -n 1 <<<"$out") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        same "$*: kernels" "a result" "$out"
        return
    fi
    passed=$((passed + BASH_REMATCH[1])) there=$((there + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    ((BASH_REMATCH[2])) && printf '%s\n%s\n' "$*" "$out"
}
for spec in specs/*.cell tests/constructs/*.cell; do
    [[ $spec == specs/std.cell ]] || kernels "$spec" --import-dir specs
done
for spec in gru e79 gla embedding causal_attention; do
    schedule=steps
    [[ $spec == *[gn] ]] && schedule=map
    for dtype in bf16 f64; do
        kernels specs/$spec.cell --schedule $schedule --dtype $dtype --reverse --lengths
    done
done
((there >= 1500)) || same "kernels of the specs that are trees" "1500 or more" "$there"

echo "$passed passed, $failed failed"
((failed == 0))
