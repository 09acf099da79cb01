#!/bin/bash
# The cpu backend: elementary functions; products; attention's tiles, in which faults are seen (faults.txt);
# instances of every kind of kernel against the reference in double (ladder/), bit by bit the same with 1, 2
# and 5 threads, and where a product of a step is packed once.
# Some of them under AddressSanitizer with UBSan, and under ThreadSanitizer; with FULL=1 all specs, in all
# types, and, where aarch64-linux-gnu-gcc and qemu-aarch64 are, some as code of aarch64. ONLY: a regular
# expression on the instances' names, without the functions.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc=${CC:-cc}
strict="-Wall -Wextra -Werror -Wno-unused-function -ffp-contract=off"
libraries="-ldl -lpthread -lm"
failed=0 passed=0 skipped=0 FULL=${FULL:-}

# SPEC OPTIONS | SIZES...
instances() {
    cat <<'END'
lstm --dtype f32 | 2,3,5,7 1,9,17,20 20,4,96,128
lstm --dtype bf16 --reverse | 2,3,5,7 20,4,96,128
layernorm --dtype f16 | 2,3,5 1,1,40 9,40,300
embedding --dtype f32 | 2,30,5,6 8,100,50,70
e79 --dtype f64 --dim N=6 | 1,5,3 2,3,5
e88 --dtype f32 --dim N=20 --dim V=7 --lengths --reverse | 2,70,5,3
e88 --dtype f32 --dim N=20 --dim V=7 --set conv=causal --packed | 5,70,5,3 2,3,5,2
layernorm --dtype bf16 --packed --reverse | 3,4,40
moneta --dtype f32 --lengths | 2,5,7 3,2,40
layernorm --dtype f32 | 2,70,1100
softmax_row --dtype f32 | 2,3,5 9,4,300
softmax_row --dtype f64 --set weights=modes | 2,3,7
gated_delta --dtype f16 --dim N=33 --dim V=20 | 2,3,2 1,40,1
mamba2 --dtype f32 | 2,3,2
deltaproduct --dtype f32 --dim N=5 --dim V=7 --dim M=3 | 2,3,2 1,40,1
swiglu --dtype bf16 | 2,3,5,7 20,4,96,128
hgrn --dtype f32 | 2,3,7 1,1,40 3,9,1100
s5 --dtype f32 --lengths --reverse | 2,5,3,4
mamba1 --dtype f16 | 2,3,5
../tests/constructs/constant_tables --dtype f32 | 2,3,24,3
../tests/constructs/made_where_read --dtype f64 | 2,3,20,17
../tests/cpu/sums_with_rows --dtype f32 | 2,3,5 9,40,300 70,1,140
linear_act --dtype f32 | 2,3,5,7 9,40,30,300
rmsnorm --dtype f64 --lengths | 2,3,5 9,40,300
../tests/cpu/sum_at_place --dtype f32 | 2,3,5 2,9,3 3,9,2 1,4,20
../tests/cpu/sums_in_two_orders --dtype f64 | 2,3,4 1,2,7
../tests/cpu/rows_side_by_side --dtype f32 | 2,3,5,7 3,2,70,130
../tests/cpu/rows_side_by_side --dtype f64 --lengths --reverse | 3,4,70,9
END
    sums
    [[ -n $FULL ]] && full
}

# Sums over the past as attention: of more steps than a tile has, and of one; few heads and many; histories.
sums() {
    cat <<'END'
causal_attention --dtype f32 --dim N=5 --dim V=7 --dim G=2 | 2,0,3,0 1,1,2,7 3,129,3,140,11 1,90,8,150,60
causal_attention --dtype bf16 --dim N=1 --dim V=33 --dim G=3 --reverse | 2,4,1,7,3 1,70,1,140,70
causal_attention --dtype f64 --dim N=33 --dim V=1 --lengths | 4,5,1,9,4 2,70,9,70
window_attention --dtype f16 --dim N=5 --dim V=17 --dim W=70 --set distance=linear | 2,200,1 1,1,1 1,9,2,9
../tests/constructs/attention_packed --dtype f32 | 1,100,1,160,60 2,70,9,70
../tests/constructs/attention_scores --dtype f32 | 2,3,2,10,7 1,100,9,103,3
../tests/constructs/attention_weights --dtype f64 | 2,3,2,10,7 1,100,9,170,65
window_attention --dtype bf16 --dim N=5 --dim V=17 --dim W=70 --dim P=3 --set prefix=learned --reverse | 1,1,1 2,130,2
../tests/constructs/attention_prefix --dtype f32 | 1,1,1 2,9,2 1,130,9
../tests/constructs/attention_sinks --dtype f64 | 2,3,1,11,5 1,129,1,135,5
END
    [[ -z $FULL ]] || cat <<'END'
../tests/constructs/attention_layers --dtype bf16 | 2,70,6,79,9
../tests/constructs/attention_documents --dtype f32 | 2,100,1 1,70,9,5
../tests/constructs/attention_lag --dtype f16 | 2,100,1,170,70
../tests/constructs/attention_sink_windows --dtype f32 | 2,9,2 1,100,9
../tests/attention/cells/decay --dtype f32 --dim N=16 --dim V=64 | 1,130,3,150,20
END
}

# What the targets besides this machine run: a dense step, a walk, sums over rows, scattered sums, reads behind
# conditions.
some() {
    cat <<'END'
lstm --dtype f32 | 2,3,5,7 20,4,96,128
gated_delta --dtype f16 --dim N=9 --dim V=20 | 2,3,2
layernorm --dtype f32 | 9,40,300
embedding --dtype f32 | 2,30,5,6
hgrn --dtype f32 | 3,9,1100
../tests/cpu/pieces_of_param --dtype f32 | 1,2,5 1,1,20
END
}

# Dims larger than T, as some are the room of a history; the first is the largest, as trellis wants it.
full() {
    local spec type n
    for spec in "$root"/specs/*.cell; do
        [[ $spec != */std.cell ]] || continue
        n=$("$build/cellc" emit "$spec" --kind manifest |
            sed -n 's/^ *"sizes": \["B", "T", \(.*\)"t0"\],$/\1/p' | grep -o , | wc -l)
        for type in f32 bf16 f16 f64; do
            echo "$(basename "$spec" .cell) --dtype $type | 2,3$(printf ',%s' $(head -n "$n" <<<$'7\n5\n6\n4'))"
        done
    done
}

# The machine that instances are compiled for and run on: a compiler with its options, libraries of the
# runtime and the ladder, and a command in front of programs.
target=here on= lib=$build

set_target() { # name, command, compiler and options: compiles the runtime and the ladder for it
    local source object
    target=$1 on=$2 cc=$3 lib=$work/$1
    mkdir -p "$lib/runtime" "$lib/ladder"
    for source in "$root"/runtime/*.c "$root"/runtime/cpu/*.c "$root"/ladder/*.c; do
        [[ $source == */ladder/* ]] && object=$lib/ladder || object=$lib/runtime
        [[ $source == *backend_cuda.c ]] || echo "$object/$(basename "$source" .c).o $source"
    done | xargs -P 2 -L 1 sh -c '$0 -std=c11 -D_GNU_SOURCE -I'"$root/runtime"' -c -o "$1" "$2"' "$cc" ||
        return 1
    ar rcs "$lib/libcell.a" "$lib"/runtime/*.o && ar rcs "$lib/libladder.a" "$lib"/ladder/*.o
}

compile() { # object, flags, source, compiler
    # shellcheck disable=SC2086
    ${4:-$cc} -std=c11 $2 -I"$root/runtime" -I"$root/runtime/cpu" -I"$dir" -c "$3" -o "$1" >>"$dir/log" 2>&1
}

instance() { # spec, options, sizes
    local spec=$1 options=$2 sizes=$3 cell rough= symbols= part how level=-O0 plain=$cc
    dir=$work/$(tr -c 'a-zA-Z0-9\n' '_' <<<"$spec $options")
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    "$build/cellc" emit "$root/specs/$spec.cell" $options --no-cuda -o "$dir" >>"$dir/log" 2>&1 || return 1
    cell=$(basename "$dir"/*_ref.c _ref.c)
    # shellcheck disable=SC2086
    "$build/cellc" emit "$root/specs/$spec.cell" $options --kind cpu >"$dir/${cell}_cpu.c" 2>>"$dir/log" || return 1
    for part in forward backward step reserve_bytes real_bytes; do
        rough+=" -D${cell}_ref_$part=ladder_rough_$part"
    done
    for part in instance ref_forward ref_backward ref_reserve_bytes; do
        symbols+=" -Wl,--defsym=ladder_$part=${cell}_$part"
    done
    compile "$dir/cpu.o" "-O1 $strict -Wno-psabi" "$dir/${cell}_cpu.c" || return 1
    compile "$dir/host.o" "-O0 -DCELL_CPU" "$dir/$cell.c" || return 1
    # At large sizes it takes longer to run than to optimise. Threads are not its concern.
    [[ ! $sizes =~ [0-9]{3} ]] || level=-O1
    [[ $target != thread ]] || plain=gcc
    compile "$dir/reference.o" "$level -DCELL_REAL=double" "$dir/${cell}_ref.c" "$plain" || return 1
    rough+=" -include cell_rough.h"
    compile "$dir/rough.o" "$level -DCELL_REAL=float $rough" "$dir/${cell}_ref.c" "$plain" || return 1
    # shellcheck disable=SC2086
    $cc "$dir"/{cpu,host,reference,rough}.o $symbols "$lib"/libladder.a "$lib"/libcell.a $libraries \
        -o "$dir/ladder" >>"$dir/log" 2>&1 || return 1
    # shellcheck disable=SC2086
    $cc "$dir"/{cpu,host,reference}.o -Wl,--defsym=threads_instance=${cell}_instance "$work/threads.o" \
        "$lib"/libcell.a $libraries -o "$dir/threads" >>"$dir/log" 2>&1 || return 1
    # shellcheck disable=SC2086
    LADDER_DECIDED=$((${#FULL} == 0)) CELL_BACKEND=cpu timeout 300 $on "$dir/ladder" $sizes >"$dir/ladder.log" 2>&1
    # shellcheck disable=SC2086
    CELL_VERBOSE=1 timeout 300 $on "$dir/threads" $sizes >"$dir/threads.log" 2>&1
    # shellcheck disable=SC2086
    "$build/cellc" explain "$root/specs/$spec.cell" $options 2>/dev/null >"$dir/explained"
    how=$(sed -n 's/^  on a CPU  *//p' "$dir/explained") # its first line, where it takes several
    if [[ -z $how ]] || ! grep -qF "on the CPU, $how" "$dir/threads.log"; then
        echo "FAIL $spec $options: CELL_VERBOSE=1 does not say as cellc explain does: $how"
        ((failed++))
    fi
}

# shellcheck source=tests/count.sh
source "$root/tests/count.sh"

dir=$work
# Elementary functions, in both types, with what every machine of the architecture has and with what this
# one has.
for type in 0 1; do
    for arch in "" -march=native; do
        [[ -z ${ONLY:-} ]] || continue
        : >"$work/functions.log"
        compile "$work/functions.o" "-O2 $strict -Wno-psabi -fno-math-errno -fno-trapping-math \
            -DCELL_CPU_DOUBLE=$type $arch" "$here/functions.c" &&
            $cc "$work/functions.o" -lm -o "$work/functions" && "$work/functions" >"$work/functions.log"
        count "$work/functions.log" "functions, CELL_CPU_DOUBLE=$type $arch"
    done
done
# All of them over their whole range, and the types of 16 bits.
for type in 0 1; do
    [[ -z ${ONLY:-} ]] || continue
    : >"$work/math.log"
    compile "$work/math.o" "-O2 $strict -DCELL_CPU_DOUBLE=$type" "$here/math.c" &&
        $cc "$work/math.o" -lm -o "$work/math" && "$work/math" >"$work/math.log"
    count "$work/math.log" "ranges, CELL_CPU_DOUBLE=$type"
done
if [[ -z ${ONLY:-} ]]; then
    : >"$work/products.log"
    # shellcheck disable=SC2086
    compile "$work/products.o" "-O1 $strict" "$here/products.c" &&
        $cc "$work/products.o" "$build/libcell.a" $libraries -o "$work/products" &&
        CELL_BLAS=none "$work/products" >"$work/products.log"
    count "$work/products.log" products
fi
# What several loops over a row read is computed in one of them, what all rows of a step read once for these;
# functions of params in no step and no row.
is_computed() { # spec, function of C, times
    local times
    times=$("$build/cellc" emit "$root/specs/$1.cell" --kind cpu | grep -c "$2(")
    if ((times == $3)); then ((passed++)); else echo "FAIL $1: $2 is in $times places, not $3" && ((failed++)); fi
}
if [[ -z ${ONLY:-} ]]; then
    is_computed softmax_row cell_exp 2 # forward, and again backward, which saves no row
    is_computed layernorm layernorm_bwd_after_1 0 # the rows' kernel has the sums of columns
    is_computed s5 cell_exp_re 2
    is_computed moneta cell_silu 9
fi
# Attention's tiles, and that faults in them are seen: two of those in faults.txt, with FULL=1 all.
attention() { # type, CELL_CPU_DOUBLE, folders of headers: the program's log
    : >"$work/attention.log"
    # shellcheck disable=SC2086
    $cc -std=c11 -O1 $strict -Wno-psabi -DCELL_CPU_DOUBLE="$2" -DTYPE="$1" "${@:3}" -I"$root/runtime" \
        -I"$root/runtime/cpu" "$here/attention.c" $libraries -o "$work/attention" >>"$work/log" 2>&1 &&
        timeout 60 "$work/attention" >"$work/attention.log"
}
for type in "f32 0" "f64 1"; do
    [[ -z ${ONLY:-} || attention =~ $ONLY ]] || continue
    # shellcheck disable=SC2086
    attention $type -march=native
    count "$work/attention.log" "attention, $type"
done
while IFS=$'\t' read -r right wrong; do
    [[ -z ${ONLY:-} || attention =~ $ONLY ]] || continue
    mkdir -p "$work/faulty"
    RIGHT=$right WRONG=$wrong awk '{
        at = index($0, ENVIRON["RIGHT"])
        if (at) { n++; $0 = substr($0, 1, at - 1) ENVIRON["WRONG"] substr($0, at + length(ENVIRON["RIGHT"])) }
        print
    } END { exit n != 1 }' "$root/runtime/cpu/cell_cpu_attention.h" >"$work/faulty/cell_cpu_attention.h"
    if (($? == 0)) && ! attention f32 0 -I"$work/faulty" && grep -q '^FAIL' "$work/attention.log"; then
        ((passed++))
    else
        echo "FAIL a fault in attention is not seen: $right"
        ((failed++))
    fi
done < <(if [[ -n $FULL ]]; then cat "$here/faults.txt"; else head -n 2 "$here/faults.txt"; fi)
run_all() { # reads instances
    local what sizes spec options
    dir=$work
    compile "$work/threads.o" -O1 "$here/threads.c" || { cat "$work/log"; ((failed++)); return; }
    while IFS='|' read -r what sizes; do
        read -r spec options <<<"$what"
        [[ $what =~ ${ONLY:-.} ]] || continue
        if ! instance "$spec" "$options" "$sizes"; then
            if [[ ! -e $dir/threads.log ]]; then
                echo "FAIL $target: $what: it is not built"
                tail -n 5 "$dir/log"
                ((failed++))
                continue
            fi
        fi
        count "$dir/ladder.log" "$target: $what"
        count "$dir/threads.log" "$target: $what, threads"
        rm -rf "$dir"
    done
}

run_all < <(instances)
# One level of products is enough there.
one_level="-DCELL_CPU_LEVEL=0 $(printf -- '-Dcell_product_at_%d=cell_product_at_0 ' 1 2 3)"
for kind in address,undefined thread; do
    some | grep -qE "${ONLY:-.}" || break
    if set_target "${kind%,*}" \
        "env CELL_BLAS=none ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=die_after_fork=0" \
        "gcc -O1 -fsanitize=$kind -fno-sanitize-recover=all $one_level"; then
        # Threads have two ways to share a loop.
        run_all < <(some | grep -E "$([[ $kind == thread ]] && echo "lstm|hgrn" || echo .)")
    else
        echo "FAIL no runtime with -fsanitize=$kind"
        ((failed++))
    fi
done
if [[ -n ${FULL:-} ]] && command -v aarch64-linux-gnu-gcc qemu-aarch64 >/dev/null; then
    # QEMU 7.2 fails one of its assertions where a child of a process with threads makes one.
    if set_target aarch64 "env NO_CHILD=1 qemu-aarch64 -L /usr/aarch64-linux-gnu" \
        "aarch64-linux-gnu-gcc -O1 -Wall -Wextra -Werror"; then
        run_all < <(some)
    else
        echo "FAIL no runtime for aarch64"
        ((failed++))
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
