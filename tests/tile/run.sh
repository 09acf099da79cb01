#!/bin/bash
# Tests schedule tile beyond the shipped cells. In: BUILD, CELLC, CC, CXX, NVCC; ONLY is a regular expression on
# instances' names. Out: cells of this directory and larger sizes of shipped ones (several warps a state) against the
# reference on the emulator, by the ladder's program; that gradients which nobody asked for are not computed; cells
# that must be refused, with the reason; and, where nvcc is there, that no kernel of a shipped walk
# spills a register. The sum is the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/ladder/emulated.sh
source "$here/../ladder/emulated.sh"
out=$build/tests/tile
export VERDICTS=off # programs of this directory are linked with the objects of instances
mkdir -p "$out"

check() { # name, command...: the command succeeds
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name"
    fi
}

# NAME SPEC OPTIONS | SIZES as in the ladder's list.
instances() {
    cat <<END
mlstm $here/mlstm.cell --dtype f32 | 2,5,2 1,17,3
vecnorm $here/vecnorm.cell --dtype f32 | 2,5 1,33
mixed $here/mixed.cell --dtype f32 | 2,5,2 1,17,1
cross $here/cross.cell --dtype f64 | 2,5 1,17
two $here/two.cell --dtype f32 | 2,9 1,17
undone $here/undone.cell --dtype bf16 | 2,9 1,37
undone_f32 $here/undone.cell --dtype f32 | 2,9 1,37
undone_linear $root/specs/linear_attention.cell --dim N=5 --dim V=7 --dtype bf16 | 2,3,3 1,34,2
undone_f16 $root/specs/delta.cell --dim N=5 --dim V=7 --dtype f16 | 2,3,3 1,34,2
e71_4 $root/specs/e71.cell --dim N=4 --dtype f32 | 2,3,5 1,37,5
e74_4 $root/specs/e74_block.cell --dim B1=4 --set nonlinearity=none --dtype f32 | 2,3,5,2 1,37,5,2
undone_short $here/undone.cell --schedule tile:interval=3 --dtype f16 | 2,9 1,17
e79_33 $root/specs/e79.cell --dim N=33 --set bias=input --dtype f32 | 1,9,5
e79_72 $root/specs/e79.cell --dim N=72 --dtype bf16 | 1,4,3 1,11,3
e79_64 $root/specs/e79.cell --dim N=64 --dtype bf16 | 1,5,3
e88_32 $root/specs/e88.cell --dtype bf16 | 1,9,4,2 5,13,4,3
delta_32 $root/specs/delta.cell --dim N=32 --dim V=32 --dtype bf16 | 13,20,1
rounded $here/rounded.cell --dtype bf16 | 2,5
delta_64 $root/specs/delta.cell --dtype f32 | 1,6,2 1,35,1
linear_64 $root/specs/linear_attention.cell --dtype f32 | 1,6,2
shown $here/shown_parts.cell --dtype f32 | 1,5 1,17
e75_20 $root/specs/e75.cell --dim N=20 --dtype f16 | 1,9,5,2
END
}

prepare() {
    local line name spec options
    : >"$out/list"
    while read -r line; do
        read -r name spec options <<<"${line%% | *}"
        [[ $name =~ ${ONLY:-.} ]] || continue
        # shellcheck disable=SC2086
        check "$name: emit" "$CELLC" emit "$spec" --schedule tile $options -o "$out/$name" >"$out/$name.log" 2>&1 &&
            echo "$name $(basename "$spec" .cell) ${line##* | }" >>"$out/list"
        grep '^FAIL' "$out/$name.log"
    done < <(instances)
}

linked() { # PROGRAM of this directory, NAME of an instance that emulate built, the program's arguments
    local program=$1 dir=$out/$2 symbols= part cell p f _
    [[ $2 =~ ${ONLY:-.} ]] || return 0
    read -r _ cell _ < <(grep "^$2 " "$out/list")
    shift 2
    for part in instance ref_forward ref_backward ref_reserve_bytes; do
        symbols+=" -Wl,--defsym=ladder_$part=${cell}_$part"
    done
    [[ $program == wanted ]] && for part in _Z16cell_emu_barrieriii _Z16cell_emu_shuffleimi _Z13cell_emu_readPKvm; do
        symbols+=" -Wl,--wrap=$part"
    done
    # shellcheck disable=SC2086
    $CC -std=c11 -D_GNU_SOURCE -Wall -Wextra -O1 -g -I"$root/runtime" -c "$here/$program.c" -o "$dir/$program.o" &&
        $CXX -fsanitize=address,undefined "$dir"/{kernels.emulated,host,reference,$program}.o \
            "$out"/common/cell_emu*.o $symbols "$RUNTIME" $LIBS -lpthread -lm -o "$dir/$program" || return 1
    ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1 "$dir/$program" "$@" >"$dir/$program.log" 2>&1
    grep -v ' passed, ' "$dir/$program.log"
    read -r p _ f _ < <(tail -n 1 "$dir/$program.log")
    [[ $p =~ ^[0-9]+$ && ${f:-} =~ ^[0-9]+$ ]] || return 1
    passed=$((passed + p)) failed=$((failed + f))
}

# The reference, as a library has it.
rounded_reference() {
    local dir=$out/rounded_library
    "$CELLC" build --cpu none "$here/rounded.cell" --dtype bf16 --no-cuda -o "$dir" >"$out/rounded_library.log" 2>&1 &&
        $CC -std=c11 -D_GNU_SOURCE -Wall -Wextra -O1 -Dladder_instance=rounded_instance -I"$root/runtime" "$here/rounded.c" \
            -L"$dir" -lrounded -Wl,-rpath,"$dir" -lm -o "$dir/rounded" && "$dir/rounded" 2,5 reference
}

refused() { # what the message must hold, then cellc's arguments
    local want=$1
    shift
    ! "$CELLC" emit --kind cuda --schedule tile "$@" >/dev/null 2>"$out/refused" && grep -q -- "$want" "$out/refused"
}

# Which plan a call takes: PARTS (0: states are whole), the sizes, and cellc's arguments.
in_parts() {
    local parts=$1 sizes=$2 said
    shift 2
    said=$("$CELLC" explain --schedule tile "$@" --sizes "$sizes" 2>"$out/parts") || return 1
    if ((parts)); then
        grep -q "each in $parts parts, .*: taken$" <<<"$said"
    else
        ! grep -q "each in [0-9]* parts, .*: taken$" <<<"$said"
    fi
}

# NAME ARCH SPEC OPTIONS: what must not spill. With FULL=1 each cell in both types for both architectures;
# else each in one type for one architecture, in turn: all four with one cell or more; and e79's biases in
# turn.
compiled() {
    local type arch cell bias n turn=0 types=(f32 bf16) archs=(sm_90 sm_80) biases=(fixed none input)
    for cell in e79_64 e79_32 e75 e88 delta gated_delta linear_attention; do
        turn=$((turn + 1))
        for arch in "${archs[@]}"; do
            for type in "${types[@]}"; do
                [[ -n ${FULL:-} ||
                    $type,$arch == "${types[turn % 2]},${archs[turn / 2 % 2]}" ]] || continue
                if [[ $cell != e79_* ]]; then
                    echo "${cell}_$type $arch $root/specs/$cell.cell --dtype $type"
                    continue
                fi
                n=${cell#e79_}
                for bias in "${biases[@]}"; do
                    [[ -n ${FULL:-} || $bias == "${biases[turn % 3]}" ]] || continue
                    echo "${cell}_${bias}_$type $arch $root/specs/e79.cell --dim N=$n --set bias=$bias" \
                        "--dtype $type"
                done
            done
        done
    done
    # Blocks of a cluster share this one; it takes a quarter of a minute to compile.
    for type in ${FULL:+"${types[@]}"}; do
        echo "e79_96_$type sm_90 $root/specs/e79.cell --dim N=96 --dtype $type"
    done
}

# One instance for one architecture: a line with each kernel that spills; "compiled" last. It has two walks, and more where
# calls with few blocks, or with many, have their own.
compile_one() {
    local to=$out/spill/$1.$2 arch=$2
    shift 2
    "$CELLC" emit --kind cuda --schedule tile "$@" >"$to.cu" 2>"$to.log" &&
        "$NVCC" -std=c++17 -arch="$arch" -I"$root/runtime" -I"$root/runtime/device" -Xptxas -v -cubin \
            -o "$to.cubin" "$to.cu" 2>"$to.log" || return 0
    awk -v of="$(basename "$to")" '
        /Compiling entry function/ {
            match($0, /\047[^\047]+\047/)
            kernel = substr($0, RSTART + 1, RLENGTH - 2)
            n += kernel ~ /_walk/
        }
        /spill stores/ && !/ 0 bytes spill stores, 0 bytes spill/ { print of ": " kernel " spills:" $0 }
        END { if (n >= 2) print "compiled" }' "$to.log" >"$to.verdict"
}
export -f compile_one
export out root NVCC

no_spills() {
    local want got
    rm -rf "$out/spill"
    mkdir -p "$out/spill"
    want=$(compiled | wc -l)
    compiled | xargs_slots -L 1 -- bash -c 'compile_one "$@"' -
    cat "$out"/spill/*.verdict >"$out/spills"
    grep -v '^compiled$' "$out/spills"
    got=$(grep -c '^compiled$' "$out/spills")
    [[ $got -eq $want ]] && ! grep -q ' spills:' "$out/spills"
}

prepare
if sanitizes; then
    emulate "$out"
    check "delta: what is not asked for is left out" linked wanted delta_64 1,5,1 q k v b
    check "e79: what is not asked for is left out" linked wanted e79_33 1,9,3 W_bs W_bm
    check "linear_attention: what is not asked for is left out" linked wanted linear_64 1,5,1 q k v
    check "what says dtype is rounded, by the kernels" linked rounded rounded 2,5
    check "delta: few blocks walk longer segments" linked roomy delta_64 2,40,2 1,40,5
    check "e88: many blocks have walks of their own" linked crowded e88_32 FORWARD 4,3,4,3 13,3,4,1
    check "delta: many blocks have walks of their own, both ways" linked crowded delta_32 BOTH 3,5,4 1,5,13
    check "e79: the blocks of a cluster take the only state" linked roomy e79_72 1,80,3 2,40,3
else
    skipped=$((skipped + 1))
    echo "tile: no C++ compiler with AddressSanitizer (apt-get install g++ brings one)"
fi
check "what says dtype is rounded, by the reference" rounded_reference
check "e79 N=256 is refused" refused "lower --dim" "$root/specs/e79.cell" --dim N=256
check "a value of another block is refused" refused "at another place along an axis" "$here/across.cell"
check "lstm is refused" refused "bind" "$root/specs/lstm.cell"
check "lstm with bound sizes is refused" refused "sum inside the step" "$root/specs/lstm.cell" --dim H=32 --dim D=16
check "e88: 33 states of 64 x 64 are walked by columns" in_parts 4 B=33,T=9,D=8,H=1 "$root/specs/e88.cell" \
    --dim N=64 --dim V=64
check "34 are not" in_parts 0 B=17,T=9,D=8,H=2 "$root/specs/e88.cell" --dim N=64 --dim V=64
check "nor in one step" in_parts 0 B=1,T=1,D=8,H=2 "$root/specs/e88.cell" --dim N=64 --dim V=64
check "66 of 128 x 128 are" in_parts 8 B=33,T=1,D=8,H=2 "$root/specs/e88.cell" --dim N=128 --dim V=128
check "67 are not" in_parts 0 B=67,T=9,D=8,H=1 "$root/specs/e88.cell" --dim N=128 --dim V=128
check "delta is walked by rows" in_parts 4 B=2,T=9,H=16 "$root/specs/delta.cell" --dim N=64 --dim V=64
check "linear attention: 17 of 128 x 128 are whole" in_parts 0 B=1,T=9,H=17 \
    "$root/specs/linear_attention.cell" --dtype bf16 --dim N=128 --dim V=128
check "small states are whole" in_parts 0 B=1,T=9,D=8,H=1 "$root/specs/e88.cell" --dim N=32 --dim V=64
check "e79 sums along both sides" in_parts 0 B=1,T=9,D=8 "$root/specs/e79.cell" --dim N=64
check "what is learned of initial states is whole" in_parts 0 B=1,T=9 "$here/learned_parts.cell"
check "a state that is an output besides has parts" in_parts 4 B=1,T=9 "$here/shown_parts.cell"
if [[ -n ${NVCC:-} ]]; then
    check "no kernel of a shipped walk spills" no_spills
else
    skipped=$((skipped + 1))
    echo "tile: register spills were not looked at, there is no nvcc"
fi
finish
