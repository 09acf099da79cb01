#!/bin/bash
# The checks, checked: a compiler with bugs planted in it (gen/base/mutate.h), one at a time. Those in what the
# kernels and the reference share must be seen by `cellc check`, whose evaluator shares nothing with them;
# those in the planner and in the kernels by the ladder on the emulator, against the reference. Without a
# bug the same checks must pass. In: BUILD, CC, CXX, SAN; ONLY is a regular expression on the names of bugs.
# The last line is the sum.
set -u
export CELLC_VERIFY_PASSES=1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root" || exit 1
# shellcheck source=tests/slots.sh
source tests/slots.sh
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
export CC=${CC:-cc} CXX=${CXX:-$(command -v g++ || command -v clang++ || true)}
work=$build/tests/mutation
cellc=$build/cellc-mutated       # beside cellc: it finds the runtime as cellc does
mkdir -p "$work/common" "$work/sanitized" "$work/objects"
flags=
[[ -n ${SAN:-} ]] && flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"

# Bugs and the specs that show them: NAME SPEC OPTIONS.
shared() {
    cat <<'END'
drop-term        specs/lstm.cell
wrong-sign       specs/gru.cell
wrong-row        specs/lstm.cell
wrong-factor     specs/layernorm.cell
transpose        specs/e79.cell --dim N=3 --set bias=none
last-use         specs/lstm.cell
drop-guard       tests/mutation/small.cell
swap-branches    tests/mutation/small.cell
max-everywhere   tests/mutation/small.cell
prod-zero        tests/mutation/small.cell
no-initial       tests/mutation/small.cell
late-state       specs/gru.cell
first-sequence   specs/gru.cell
own-step         specs/conv4_silu.cell
place-behind     specs/causal_attention.cell
later-places     tests/constructs/history_all.cell
straight-step    specs/gru.cell --reverse
next-row         specs/embedding.cell
leaking-shift    tests/constructs/reset_shift.cell
front-lengths    specs/gru.cell --lengths --reverse
reset-to-zero    tests/constructs/reset_scan.cell
held-stopped     tests/mutation/inner.cell --dim N=3
flat-at-zero     tests/mutation/inner.cell --dim N=3
first-use        tests/mutation/inner.cell --dim N=3
blurred-slope    tests/mutation/inner.cell --dim N=3
infinite-factor  tests/meaning/poles.cell
no-use-condition tests/constructs/overflow_not_taken.cell
shared-variable  tests/mutation/inner.cell --dim N=3
split-product    specs/complex_lru.cell
unconjugated     tests/constructs/complex_values.cell
same-weight      tests/constructs/complex_values.cell
END
}

# The same with a schedule and the sizes B,T,dims... of tests/ladder; in f64, unless a type is given. Kernels are compiled without
# AddressSanitizer, which takes twice the time, but for the bugs that it alone sees: "asan".
kernels() {
    cat <<'END'
same-parts       specs/lstm.cell --schedule gemm --dtype f32 --products parts | 1,2,520,3
first-piece      specs/lstm.cell --schedule gemm --dtype f32 --products parts | 1,2,520,3
other-scale      tests/constructs/fp8_linear.cell --dtype bf16 | 2,3,32,16,2
unsaved-copy     tests/constructs/fp8_linear.cell --dtype bf16 | 2,3,32,16,2
unsaved-product  tests/constructs/fused_products.cell --schedule map --dtype bf16 --products fused | 2,5,16,24
wrong-hoist      specs/e79.cell --schedule steps --dim N=3 --set bias=none | 2,3,5
lost-product     specs/e79.cell --schedule tile --dim N=3 --set bias=input | 2,3,5
wrong-transpose  specs/e0.cell --schedule steps | 2,3,5
wrong-slice      specs/e79.cell --schedule steps --dim N=3 --set bias=none | 2,3,5
wrong-spelling   specs/gru.cell --schedule steps | 2,3,5,3
late-load        specs/gru.cell --schedule steps | 2,3,5,3
stale-adjoint    specs/gru.cell --schedule steps | 2,3,5,3
one-turn         specs/e2.cell --schedule steps --set weight=diagonal | 1,2,5,3
unmoved-step     specs/conv4_silu.cell --schedule map | 2,5,3
straight-row     specs/gru.cell --schedule steps --reverse | 2,3,5,3
lost-tail        specs/layernorm.cell --schedule map | 3,5,7
always-full      specs/layernorm.cell --schedule map --dtype f32 | 3,5,8
missing-barrier  specs/layernorm.cell --schedule map | 3,5,7
missing-barrier  specs/hgrn.cell --schedule scan | 1,290,33
missing-barrier  specs/m2rnn.cell --schedule block --dim N=5 --dim V=7 | 2,3,2
unkept-value     specs/m2rnn.cell --schedule block --dim N=5 --dim V=7 | 2,3,2
last-step        specs/m2rnn.cell --schedule block --dim N=7 --dim V=5 | 2,3,2
last-step        specs/m2rnn.cell --schedule block --dim N=64 --dim V=64 | 1,11,1
wrong-checkpoint specs/hgrn.cell --schedule scan | 1,290,33
late-load        specs/hgrn.cell --schedule scan | 1,290,33
early-read       specs/hgrn.cell --schedule scan --dtype bf16 --dim D=38 | 1,290
lone-wait        specs/hgrn.cell --schedule scan --dtype bf16 --dim D=24 | 1,290
early-copy       specs/hgrn.cell --schedule scan --dtype bf16 --dim D=24 | 1,290
unscaled-sum     specs/causal_attention.cell --schedule window --dim N=5 --dim V=7 | 2,70,2,70
early-weights    specs/causal_attention.cell --schedule window --dim N=5 --dim V=7 | 2,70,2,70
gather-outside   specs/embedding.cell --schedule map | 3,40,7,5 2,40,300,2
lost-tail        specs/embedding.cell --schedule map | 3,40,7,5 2,40,300,2
first-gradient   tests/constructs/made_operands.cell --schedule map --dtype bf16 --products fused | 2,5,16,24,8
first-share      specs/embedding.cell --schedule map | 3,40,7,5 2,40,300,2
short-sort       specs/embedding.cell --schedule map | 3,40,7,5 2,40,300,2
wrong-checkpoint specs/delta.cell --schedule tile --dim N=5 --dim V=7 | 1,34,1
wrong-checkpoint specs/gated_delta.cell --schedule tile --dim N=5 --dim V=7 | 1,34,1
wrong-checkpoint specs/gated_delta.cell --schedule tile:backward=8x4/1x1 --dim N=9 --dim V=7 | 1,34,1
wrong-checkpoint specs/e88.cell --schedule tile:interval=3:backward=8x4/1x1 --dim N=5 --dim V=40 | 1,7,4,2
unturned         specs/e88.cell --schedule tile:interval=3 --dim N=9 --dim V=20 | 1,7,4,2
lost-replay      specs/e88.cell --schedule tile:interval=3 --dim N=9 --dim V=20 | 1,7,4,2
far-prefetch     specs/e88.cell --schedule tile --dtype f32 --dim N=40 --dim V=40 | 3,38,3,2
wrong-undo       specs/delta.cell --schedule tile --dtype bf16 --dim N=5 --dim V=7 | 1,34,1
first-group      specs/delta.cell --schedule tile:backward=4x8/8x1 --dtype f32 | 1,3,1
lost-sums        specs/e88.cell --schedule tile --dim N=32 --dim V=32 --dtype f32 | 3,18,5,2
lost-sums        specs/delta.cell --schedule tile --dtype bf16 | 1,18,1
first-slice      tests/constructs/rounded_walk.cell --schedule tile --dtype bf16 | 1,1,4,2 2,3,8,2
missing-meeting  specs/e88.cell --schedule tile --dim N=8 --dim V=4 | 2,18,3,2
lost-row-sum     specs/e88.cell --schedule tile --dim N=16 --dim V=4 | 2,3,3,2
missing-exchange specs/delta.cell --schedule tile --dim N=33 --dim V=20 | 2,3,1
missing-exchange specs/e79.cell --schedule tile:cluster=2 --dim N=40 --set bias=none | 2,3,5
one-operand      tests/constructs/operand_of_step.cell --schedule gemm --dtype bf16 | chip:2,4,40,3
early-wait       specs/lstm.cell --schedule gemm --dtype bf16 | chip:2,3,5,24
unput-operand    tests/constructs/heads_gru.cell --schedule gemm --dtype bf16 | 2,3,2,3,8
left-by-nobody   specs/gru.cell --schedule gemm --dtype bf16 | chip:2,3,5,24
last-term        specs/lstm.cell --schedule gemm --dtype bf16 | chip:2,3,5,24
last-term        tests/constructs/heads_gru.cell --schedule gemm --dtype bf16 | 2,3,2,3,8
every-sequence   specs/e1.cell --schedule gemm --dtype f32 | chip:18,4,24
unput-operand    specs/e1.cell --schedule gemm --dtype bf16 | cluster:2,3,80
put-behind-end   specs/e1.cell --schedule gemm --dtype bf16 | cluster:2,3,80
unput-column     specs/e2.cell --schedule gemm --dtype bf16 | 1,3,16,5
early-column     specs/e2.cell --schedule gemm --dtype bf16 | 1,3,16,5
last-column      specs/e2.cell --schedule gemm --dtype bf16 | 1,3,16,5
outer-part       specs/e88.cell --schedule tile --dim N=64 --dim V=64 | 1,3,3,1
first-update     specs/deltaproduct.cell --schedule chunk:rows=16 --dim N=3 --dim V=4 --reverse | 1,5,2
straight-update  specs/deltaproduct.cell --schedule chunk:rows=16 --dim N=3 --dim V=4 --reverse | 1,5,2
other-column     specs/titans.cell --schedule chunk:rows=16 --dim N=3 | 1,5,2
turned-matrix    specs/titans.cell --schedule chunk:rows=16 --dim N=3 | 1,5,2
one-state        specs/titans.cell --schedule chunk:rows=16 --dim N=3 | 1,5,2
lost-between     specs/trellis.cell --schedule chunk:rows=16 | 1,3,3,2
every-row        tests/constructs/two_corrections.cell --schedule chunk:rows=16 --dim N=3 --dim V=4 | 1,5,1
lost-factor      specs/gla.cell --schedule chunk:rows=16 --dim N=3 --dim V=4 | 1,5,1
lost-value-decay specs/e14.cell --schedule chunk:rows=16 --dim K=3 | 1,5,2
overwritten-gradients specs/delta.cell --schedule chunk:rows=16 --dim N=3 --dim V=4 | 1,5,1
overwritten-gradients specs/causal_attention.cell --schedule attention --dtype f32 --dim N=3 --dim V=4 | 1,5,1
lost-condition   specs/causal_attention.cell --schedule attention --dtype f32 --dim N=5 --dim V=7 | 1,70,1
short-tiles      specs/causal_attention.cell --schedule attention --dtype f32 --dim N=5 --dim V=7 | 1,70,1
sure-tiles       tests/constructs/attention_packed.cell --schedule attention --dtype f32 | 1,100,1
unlike-tiles     tests/constructs/attention_tiles.cell --schedule attention --dtype f32 | 8,2,1
meeting-places   specs/delta.cell --schedule chunk:rows=16 --dim N=3 --dim V=4 --packed | 3,40,1
unjoined-segments specs/delta.cell --schedule chunk:rows=16 --dim N=3 --dim V=4 | 1,512,1
END
}

# ---- the compiler with the bugs in it

build_compiler() {
    local f o objects= stale=
    for f in $(grep -rl --include='*.c' '"base/mutate.h"' gen); do
        o=$work/objects/$(basename "$f" .c).o
        objects+=" $o"
        [[ $o -nt $f && -z $(find gen "$build/gen/templates" -name '*.h' -newer "$o") ]] && continue
        stale+=" $f"
    done
    # shellcheck disable=SC2086
    printf '%s\n' $stale | xargs_slots -r -I '{}' -- bash -c "$CC -std=c11 -D_GNU_SOURCE -Wall -Wextra \
        -Werror -O0 -fPIC $flags -DCELLC_MUTATE -Igen -I$build/gen -c -o $work/objects/\$(basename {} .c).o {}" ||
        return 1
    # shellcheck disable=SC2086
    $CC $flags -rdynamic -o "$cellc" "$build/gen/main.o" $objects "$build/libcellc.a" -lm -ldl
}

# ---- one bug, or none ("-"), and the line that says whether it was caught

# `cellc check` must give a result, with failures exactly where a bug is.
check_shared() {
    local name=$1 last
    shift
    last=$(CELLC_MUTATE=$name "$cellc" check "$@" 2>&1 | tail -n 1)
    if [[ ! $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        echo "FAIL $name: cellc check $*: no result: $last"
    elif [[ $name == - ]]; then
        ((BASH_REMATCH[2] == 0)) && echo "ok   cellc check $*: $last" ||
            echo "FAIL without a bug: cellc check $*: $last"
    elif ((BASH_REMATCH[2])); then
        echo "ok   $name: seen by cellc check $*: $last"
    else
        echo "FAIL $name: not seen by cellc check $*"
    fi
}

# The kernels must build, run, and differ from the reference or be stopped by the emulator: exactly with a
# bug.
check_kernels() {
    local name=$1 line=$2 spec options sizes instance dir last limit common=$work/common
    read -r spec options <<<"${line%% | *}"
    line=${line#* | }
    sizes=${line%% | *}
    export EMU_SANITIZE=0
    [[ $line == *" | asan" ]] && EMU_SANITIZE=1 common=$work/sanitized
    export EMU_HEADER=$common/header
    # With the sizes, as the same may run without a bug at others meanwhile.
    instance=$(tr -c 'a-zA-Z0-9\n' '_' <<<"${name}_$spec${options}_$line")
    dir=${work:?}/$instance.one
    rm -rf "$dir" && mkdir -p "$dir"
    # shellcheck disable=SC2086
    if ! CELLC_MUTATE=$name "$cellc" emit "$spec" --dtype f64 $options -o "$dir/$instance" \
        >"$dir/log" 2>&1; then
        echo "FAIL $name: cellc emit $spec $options: $(head -n 1 "$dir/log")"
        return
    fi
    echo "$instance $(basename "$spec" .cell) $sizes" >"$dir/list"
    # A fault may make a kernel wait for ever; without one it ends, on a loaded machine after minutes.
    limit=$([[ $name == - ]] && echo 300 || echo 60)
    last=$(LADDER_FIRST=1 LIMIT=$limit \
        bash tests/ladder/one.sh "$dir" "$instance" "$common" | tail -n 1)
    if [[ $last == *"does not build"* || ! $last =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        echo "FAIL $name: $spec $options: $last"
    elif [[ $name == - ]]; then
        ((BASH_REMATCH[2] == 0)) && echo "ok   $last" || echo "FAIL without a bug: $last"
    elif ((BASH_REMATCH[2])); then
        echo "ok   $name: seen by the ladder: ${last#*: }"
    else
        echo "FAIL $name: not seen by the ladder on $spec $options"
    fi
    rm -rf "$dir"
}

export -f check_shared check_kernels
export work cellc

# Each bug, and each of its specs once without.
with_and_without() {
    local lines=$1
    grep -E "^[a-z-]*${ONLY:-}[a-z-]* " <<<"$lines"
    grep -E "^[a-z-]*${ONLY:-}[a-z-]* " <<<"$lines" | sed -E 's/^[a-z-]+ +/- /' | sort -u
}

if ! build_compiler; then
    echo "0 passed, 1 failed"
    exit 1
fi
with_and_without "$(shared)" |
    xargs_slots -d '\n' -I '{}' -- bash -c 'read -r name rest <<<"$1"; check_shared "$name" $rest' - '{}' \
        >"$work/results"

sanitize="-fsanitize=address,undefined"
export EMU_SHARED=$build/tests/emulator_lib
if echo 'int main() { return 0; }' | ${CXX:-false} -x c++ $sanitize -o "$work/probe" - 2>/dev/null; then
    for common in common sanitized; do
        EMU_SANITIZE=$([[ $common == common ]] && echo 0 || echo 1) bash tests/emulator/build.sh lib "$work/$common" ||
            { echo "0 passed, 1 failed"; exit 1; }
        touch "$work/$common/stamp"
        cp "$build/libladder.a" "$work/$common/"
    done
    EMU_LINKER=$(bash tests/emulator/build.sh linker)
    export EMU_LINKER BACKEND=emulated RUNTIME=$build/libcell.a
    LIBS=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
    export LIBS
    with_and_without "$(kernels)" |
        xargs_slots -d '\n' -I '{}' -- \
            bash -c 'read -r name rest <<<"$1"; check_kernels "$name" "$rest"' - '{}' >>"$work/results"
    skipped=
else
    echo "bugs in kernels: skipped, there is no C++ compiler with AddressSanitizer"
    skipped=", $(kernels | wc -l) skipped"
fi
sort "$work/results"
passed=$(grep -c '^ok' "$work/results") failed=$(grep -vc '^ok' "$work/results")
echo "$passed passed, $failed failed$skipped"
exit $((failed > 0 || passed == 0))
