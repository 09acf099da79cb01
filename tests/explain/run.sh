#!/bin/bash
# What `cellc explain` says: of some cells exactly the text beside this (BLESS=1 writes it anew: read it
# before it is committed), the same on every run. tests/corpus has what it says of all specs.
set -u
cd "$(dirname "$0")/../.."
cellc=${CELLC:-build/cellc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

fail() {
    echo "$*"
    failed=$((failed + 1))
}

golden() {
    local name=$1
    shift
    if ! "$cellc" explain "$@" >"$work/out" 2>&1; then
        fail "cellc explain $*: $(head -n 3 "$work/out")"
        return
    fi
    [[ -n ${BLESS:-} ]] && cp "$work/out" "tests/explain/$name.txt"
    if diff "tests/explain/$name.txt" "$work/out" >"$work/diff"; then
        passed=$((passed + 1))
    else
        fail "cellc explain $* (tests/explain/$name.txt)"
        head -n 20 "$work/diff"
    fi
}

golden e79 --all specs/e79.cell --schedule tile
golden e79_72 --all specs/e79.cell --dim N=72
golden e79_input_steps --all specs/e79.cell --set bias=input --dim N=32 --dtype bf16 --schedule steps
golden lstm --all specs/lstm.cell
golden layernorm --all specs/layernorm.cell
golden linear_act --all specs/linear_act.cell --dtype bf16
golden causal_attention --all specs/causal_attention.cell --dim G=4 --dtype bf16
for cell in gru e79 hgrn layernorm causal_attention embedding; do
    golden "${cell}_summary" "specs/$cell.cell"
done
golden gru_sizes specs/gru.cell --sizes B=16,T=512,D=1024,H=1024
golden lstm_sizes specs/lstm.cell --dtype bf16 --sizes B=64,T=256,D=1024,H=1024
golden linear_act_sizes specs/linear_act.cell --dtype bf16 --sizes B=64,T=512,D=4096,F=1024
golden e88_sizes specs/e88.cell --archs "80 90" --sizes B=64,T=512,D=1024,H=16
golden hgrn_2048 --all specs/hgrn.cell --dim D=2048 --dtype bf16

"$cellc" explain --all specs/e79.cell >"$work/one" && "$cellc" explain --all specs/e79.cell | cmp -s - "$work/one" &&
    passed=$((passed + 1)) || fail "two runs differ"
# Attention over all steps has no buffer with a place for every two steps, and its reserve grows with T alone.
for of in attention:260 window:8; do # with y, or without it
    "$cellc" explain --all specs/causal_attention.cell --schedule "${of%:*}" >"$work/out" 2>/dev/null
    if grep -q "^  in all: reserve ${of#*:}\\*H\\*B\\*T bytes" "$work/out" &&
        ! grep -E '^  (workspace|reserve) .*t0' "$work/out"; then
        passed=$((passed + 1))
    else
        fail "cellc explain specs/causal_attention.cell: its memory, by ${of%:*}"
    fi
done
# What goes to a head of keys comes from its own G queries, not from those of all H heads: no flops with the square of H.
# A sum over an index that an equality gives has one term.
for spec in causal_attention:G=4 mamba2:G=open; do
    "$cellc" explain --all "specs/${spec%:*}.cell" --dim "${spec#*:}" >"$work/out" 2>/dev/null
    if grep -q ' flops' "$work/out" && ! grep -E '[0-9]\*(H\*H|G\*G)' "$work/out"; then
        passed=$((passed + 1))
    else
        fail "cellc explain specs/${spec%:*}.cell: the flops of its heads"
    fi
done
# A history that the call does not take is not launched.
if [[ $("$cellc" emit specs/causal_attention.cell --kind plan | grep -c '"causal_attention_last_.* \.need = need_') == 2 ]]; then
    passed=$((passed + 1))
else
    fail "cellc emit specs/causal_attention.cell: its histories are made whether they are wanted or not"
fi
# Nor has attention to a window and a prefix one with a place for each step of the window.
for schedule in window attention; do
    "$cellc" explain --all specs/window_attention.cell --dim W=50 --dim P=4 --dim N=8 --dim V=8 --set prefix=learned \
        --schedule $schedule >"$work/out" 2>/dev/null
    if grep -q "^schedule $schedule" "$work/out" &&
        ! grep -E '^  (workspace|reserve) .* (200|216|108)\*H\*B\*T' "$work/out"; then
        passed=$((passed + 1))
    else
        fail "cellc explain specs/window_attention.cell: its memory by $schedule"
    fi
done
# Where the schedule is not window, its reason.
if "$cellc" explain --all tests/constructs/past_values.cell 2>/dev/null |
    grep -q '^  not window: a sum over the past has columns that are not of the other step alone'; then
    passed=$((passed + 1))
else
    fail "cellc explain tests/constructs/past_values.cell: why not window"
fi
# A value that is rounded already is not rounded again: it is the one that it reads. One under a condition lies rounded too.
"$cellc" explain --all tests/constructs/rounded_twice.cell --dtype bf16 >"$work/out" 2>/dev/null
if grep -q '^    14  b .* in place .* read from a$' "$work/out" && grep -q '^    16  d .* in place .* read from a$' "$work/out" &&
    grep -q '^    22  k .* in place .* read from g$' "$work/out" && grep -q '^  reserve    u  *bf16  ' "$work/out" &&
    ! grep -E '^    1[12]  [qr] ' "$work/out"; then
    passed=$((passed + 1))
else
    fail "cellc explain tests/constructs/rounded_twice.cell: what is rounded twice"
fi
# A product writes it rounded, but the caller's steps before the call are not.
if "$cellc" emit tests/constructs/rounded_twice.cell --dtype bf16 --schedule steps --kind cuda | tr '\n' ' ' |
    grep -q 'cell_round_to<cell_bf16>([^;]*p_q_history'; then
    passed=$((passed + 1))
else
    fail "cellc emit tests/constructs/rounded_twice.cell: what is read of the history is not rounded"
fi
# The derivative of gelu has one exponential in 16 bits, and is what the language says in 32.
if [[ $("$cellc" emit linear_act --dtype bf16 --kind cuda --products plain | grep -c 'cell_fast_gelu_slope(a_u)') == 1 ]] &&
    ! "$cellc" emit linear_act --kind cuda | grep -q 'fast_gelu_slope'; then
    passed=$((passed + 1))
else
    fail "cellc emit linear_act: the derivative of gelu"
fi
# Which cells take chunks of steps by themselves, and in which calls; and which do not: too small, not
# measured, not linear, or another schedule was asked for.
chunks() { # "never" or the calls, SPEC, options
    local want=$1 got
    shift
    got=$("$cellc" explain "$@" 2>/dev/null | sed -n 's/^ *chunk: .* where //p')
    if [[ ${got:-never} == "$want" ]]; then
        passed=$((passed + 1))
    else
        fail "cellc explain $*: chunks of steps for calls where ${got:-never}, and should be $want"
    fi
}
chunks "64 <= T" gated_delta --dim N=128 --dim V=64 --dtype bf16
chunks "128 <= T" gated_delta --dim N=64 --dim V=64 --dtype bf16
chunks "256 <= T and H*B <= 132" gla --dim N=128 --dim V=128
chunks "256 <= T and H*B <= 132" delta --dim N=128 --dim V=128 --dtype f16 --lengths
chunks "96 * B <= total" delta --dim N=128 --dim V=128 --dtype bf16 --packed
chunks "160 * B <= total" gated_delta --dtype bf16 --packed
chunks never kda --dim N=64 --dim V=64 --dtype bf16
chunks "64 <= T" kda --dim N=64 --dim V=128 --dtype bf16
chunks never delta --dim N=32 --dim V=64 --dtype bf16
chunks never gated_delta --dim N=128 --dim V=64
chunks never gla --dim N=128 --dim V=128 --dtype f64
chunks never delta --dim N=512 --dim V=64 --dtype bf16
chunks never e88 --dim N=128 --dim V=128 --dtype bf16
chunks never delta --dim N=128 --dim V=128 --dtype bf16 --schedule tile
chunks "256 <= T" mlstm --dim N=128 --dim V=128 --dtype bf16
chunks "1024 <= T" mlstm --dim N=64 --dim V=64 --dtype bf16
# Two reads, and two updates in a step.
for cell in read_of_a_difference write_then_correct; do
    chunks "256 <= T" "tests/chunk/cells/$cell.cell" --dim N=128 --dim V=128 --dtype bf16
    chunks never "tests/chunk/cells/$cell.cell" --dim N=64 --dim V=64 --dtype bf16
done
# What is said of a budget for the reserve is what the runtime does, to the byte: with states of all steps, with none,
# with histories and lengths; and why some have no pieces.
build=${BUILD:-build}
[[ $build == /* ]] || build=$PWD/$build
root=$PWD
read -r _ libs <"$build/libcell.flags"
budget() { # SPEC, B,T,dims as the runtime has them, --sizes, options, words that must be there
    local spec=$1 list=$2 sizes=$3 options=$4 words=$5 cell said n of=()
    cell=$(basename "$spec" .cell)
    # shellcheck disable=SC2086
    said=$("$cellc" explain "$spec" $options --sizes "$sizes" 2>&1 | sed -n '/^  a budget/,/^$/p' | xargs)
    if [[ $said != *"$words"* ]]; then
        fail "cellc explain $spec $options --sizes $sizes: '$said'"
        return
    fi
    n=$(sed -n 's/.*CELL_OFFLOAD .* from \([0-9]*\) on, with \([0-9]*\) in host memory.*/\1:\2/p' <<<"$said")
    [[ -z $n ]] || of+=("host:$n")
    for word in "on nothing:0" "on steps once:1" "on steps twice:2" "on steps three:3" "on steps four:4"; do
        n=$(sed -n "s/.*from \([0-9]*\) ${word%:*}.*/\1/p" <<<"$said")
        [[ -z $n ]] || of+=("$n:${word##*:}")
    done
    # shellcheck disable=SC2086
    if ! "$cellc" emit "$spec" $options -o "$work/$cell" >/dev/null ||
        ! (cd "$work/$cell" && ${CC:-cc} -std=c11 -D_GNU_SOURCE -O0 -w -I"$root/runtime" -I"$root/bench" -I. \
            "-DCELL_KERNEL_SYMBOL=extern __attribute__((weak))" -DINSTANCE="${cell}_instance" "$cell.c" \
            "${cell}_ref.c" "$root/tests/explain/budget.c" "$root/bench/footprint.c" "$build/libcell.a" $libs \
            -o budget) >"$work/log" 2>&1; then
        fail "$spec $options: $(head -n 3 "$work/log")"
    elif said=$("$work/$cell/budget" "$list" "${of[@]}"); then
        passed=$((passed + ${#of[@]}))
    else
        fail "cellc explain $spec $options --sizes $sizes: $said"
    fi
    rm -rf "${work:?}/$cell"
}
budget specs/m2rnn.cell 2,4096,4 B=2,T=4096,G=4 "" "in host memory"
budget specs/gru.cell 16,512,48,64 B=16,T=512,D=48,H=64 "--lengths --dtype bf16" "in host memory"
budget specs/indrnn.cell 3,5000,65,65 B=3,T=5000,D=65,H=65 "--dtype f64" "four times"
budget specs/conv4_silu.cell 2,512,64 B=2,T=512,D=64 "" "twice"
budget specs/layernorm.cell 2,512,64 B=2,T=512,D=64 "" "once; less"
budget specs/e79.cell 2,700,40 B=2,T=700,D=40 "--dim N=40 --schedule steps" "in host memory"
budget specs/lstm.cell 2,512,64,64 B=2,T=512,D=64,H=64 "--lengths --reverse" "begin at their ends"
budget specs/causal_attention.cell 2,64,3,64 B=2,T=64,H=3,history=64 "" "reads all steps before"
if "$cellc" explain delta --sizes B=8,T=2048,H=16 | grep -q '^  a budget for the reserve: cell_recompute_bytes says it'; then
    passed=$((passed + 1))
else
    fail "cellc explain delta: its budget"
fi
echo "$passed passed, $failed failed"
exit $((failed > 0))
