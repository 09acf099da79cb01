#!/bin/bash
# What bench/ computes and draws without a GPU: the memory that training needs, against what follows from
# the tensors' sizes by hand, and the account of compile times, with a compiler whose times are known. In:
# CELLC, BUILD. Out: what failed, and the sum as the last line.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$root/${BUILD:-build}" && pwd)
export CELLC=${CELLC:-$build/cellc} BUILD=$build
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

same() { # what, wanted, got
    if [[ $2 == "$3" ]]; then
        passed=$((passed + 1))
    else
        echo "$1: $3, not $2"
        failed=$((failed + 1))
    fi
}

# ---- memory

ONLY='^(swiglu|lstm_1024|delta_16x64|attention_16x64)$' bash "$root/bench/prepare.sh" "$work/memory" >/dev/null
ONLY='^(swiglu|lstm_1024|delta_16x64|attention_16x64)$' BUFFERS=1 bash "$root/bench/memory.sh" "$work/memory" >"$work/memory.txt" || cat "$work/memory.txt"
of() { sed -n "/\"workload\": \"$1\"/s/.*\"$2_bytes\": \([0-9]*\).*/\1/p" "$work/memory/memory.json"; }
mib=$((1 << 20))
# Two inputs and an output of 8192 x 4096 in 2 bytes, and the gradient of each; nothing is saved.
same "swiglu's arguments" $((3 * 64 * mib)) "$(of swiglu argument)"
same "swiglu's gradients" $((3 * 64 * mib)) "$(of swiglu gradient)"
same "swiglu's reserve" 0 "$(of swiglu reserve)"
# x and y of 16 x 512 x 1024, W and R of 4096 x 1024, two biases of 4096, 2 bytes each; h and c of 16 x 1024
# before and behind in f32.
lstm=$((2 * (2 * 16 * 512 * 1024 + 2 * 4096 * 1024 + 2 * 4096) + 4 * 4 * 16 * 1024))
same "lstm's arguments" $lstm "$(of lstm_1024 argument)"
same "lstm's peak" $((lstm + $(of lstm_1024 gradient) + $(of lstm_1024 reserve) + $(of lstm_1024 workspace))) \
    "$(of lstm_1024 peak)"
# The state of 16 heads of 64 x 64 in bf16 in front of each 64 steps of 8 x 2048 is 32 MiB of the delta
# rule's reserve.
same "delta's states fit" 1 $(($(of delta_16x64 reserve) > 32 * mib))
same "a line for each workload" 5 "$(grep -vc '^ ' "$work/memory.txt")"
same "what is saved and never read" 0 "$(grep -c 'never read' "$work/memory.txt")"
same "the delta rule's checkpoints are listed" 1 "$(grep -c '^    reserve   S checkpoints .* 256.0$' "$work/memory.txt")"

printf 'small | swiglu --dtype bf16 | 1,1,8 |\n' >"$work/own.list"
WORKLOADS=$work/own.list bash "$root/bench/prepare.sh" "$work/own" >/dev/null
WORKLOADS=$work/own.list bash "$root/bench/memory.sh" "$work/own" >"$work/own.txt"
same "a list of one's own" "0 small" "$? $(sed -n 's/.*"workload": "\([a-z_]*\)".*/\1/p' "$work/own/memory.json" | xargs)"

# A param that meets a matrix state: what each sequence's steps add to its gradient is added up as they make it,
# and what a step makes for itself is kept for one step. So a step more of a sequence takes a head's vectors of
# workspace (of M2RNN one and a number, of E92 three), and no matrix of 16 x 16 or 32 x 32.
for T in 1024 8192; do
    printf '%s\n' "m2rnn_$T | m2rnn --dtype bf16 | 8,$T,16 |" "e92_$T | e92 --dtype bf16 --dim N=32 | 4,$T,8 |" \
        "lengths_$T | m2rnn --lengths --reverse --set clip=bound | 2,$T,4 |"
done >"$work/steps.list"
WORKLOADS=$work/steps.list bash "$root/bench/prepare.sh" "$work/steps" >/dev/null
WORKLOADS=$work/steps.list bash "$root/bench/memory.sh" "$work/steps" >"$work/steps.txt" || cat "$work/steps.txt"
a_step() { # of one head: workspace of 8192 steps without that of 1024
    local long short
    long=$(sed -n "/\"workload\": \"$1_8192\"/s/.*\"workspace_bytes\": \([0-9]*\).*/\1/p" "$work/steps/memory.json")
    short=$(sed -n "/\"workload\": \"$1_1024\"/s/.*\"workspace_bytes\": \([0-9]*\).*/\1/p" "$work/steps/memory.json")
    echo $(((long - short) / (7168 * $2)))
}
same "m2rnn's workspace for a step of a head" 68 "$(a_step m2rnn $((8 * 16)))"
same "e92's workspace for a step of a head" 384 "$(a_step e92 $((4 * 8)))"
same "m2rnn's workspace for a step of a head, with lengths" 132 "$(a_step lengths $((2 * 4)))"

# The compiler counts them from the plan, and so does not know what shares memory; partial sums, 1 MiB, it
# leaves out.
explained() { # workload, spec, sizes
    local said
    said=$("$CELLC" explain "$root/specs/$2.cell" --dtype bf16 --sizes "$3" | grep '^  training: ')
    in_mib() { awk "BEGIN { printf \"%.1f\", $(of "$1" "$2") / $mib }"; }
    same "what explain says of $1's memory" \
        "  training: arguments $(in_mib $1 argument), gradients $(in_mib $1 gradient), reserve $(in_mib $1 reserve)," \
        "${said%% workspace*}"
    same "explain's bound of $1's workspace" 1 "$(awk "BEGIN { print ($(sed 's/.*at most \([0-9.]*\).*/\1/' <<<"$said") >= \
        $(of "$1" workspace) / $mib - 1.1) }")"
}
explained lstm_1024 lstm B=16,T=512,D=1024,H=1024
explained attention_16x64 causal_attention B=4,T=2048,H=16,history=2048
# Keys and values of 4 x 2048 x 16 x 64 in 2 bytes, taken and left.
same "what explain says of attention's histories" \
    "  beside that, where a sequence goes on from call to call: histories taken and left 64.0, their gradients 64.0" \
    "$("$CELLC" explain causal_attention --dtype bf16 --sizes B=4,T=2048,H=16,history=2048 | grep '^  beside that')"

# ---- compile times: this compiler says where its time went, and fails for one architecture

cat >"$work/nvcc" <<'STUB'
#!/bin/bash
while (($#)); do
    case $1 in
    --version) echo "nvcc ${NVCC_VERSION:-1}" ;;
    -arch=sm_80) echo "no such architecture" >&2; exit 1 ;;
    --time) printf 'source, phase, in, out, arch, tool, metric, unit\nx, cicc, a, b, c, nvcc, 2500.0, ms\nx, gcc (compiling), a, b, c, nvcc, 250.0, ms\n' >"$2" ;;
    -o) echo object >"$2" ;;
    esac
    shift
done
STUB
chmod +x "$work/nvcc"
NVCC=$work/nvcc OUT=$work/times.json LIMIT=-1 python3 "$root/bench/compile_time.py" swiglu >"$work/times.txt"
same "compile times: the parts of what is over the limit" "swiglu: cicc 2.5, gcc 0.25" "$(tail -n 1 "$work/times.txt")"
same "compile times: the architecture that failed" 1 "$(grep -c '"80": {"error": "no such architecture"}' "$work/times.json")"
again() { # what changed, how many lines there are then
    same "compile times: $1" "$2 1" "$(NVCC=$work/nvcc OUT=$work/times.json python3 "$root/bench/compile_time.py" swiglu >"$work/times.txt"
        wc -l <"$work/times.json") $(grep -c '^sm_90: 1 specs' "$work/times.txt")"
}
again "a second run measures nothing again" 1
NVCC_VERSION=2 again "another nvcc" 2
DTYPE=f32 again "another type" 3
ARCHS=90 again "other architectures" 4
(cat "$CELLC" && echo) >"$work/cellc"
chmod +x "$work/cellc"
CELLC=$work/cellc again "another cellc" 5
again "what was measured at first is kept" 5

# ---- curves: recorded points with a peak at N 80, a step from B 129 on, and a curve whose points were lost
# but two

plotted=$(CURVES=$root/tests/bench/curves.txt python3 "$root/bench/curves.py" plot "$root/tests/bench/curves.json" "$work/plots")
same "points were lost: exit code" 1 $?
same "the cliffs" "$(cat "$root/tests/bench/cliffs.txt")" "$plotted"
for cell in made other; do
    python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$work/plots/$cell.svg"
    same "$cell.svg is XML" 0 $?
done
same "panels of one picture" 2 "$(grep -c 'font-weight="bold"' "$work/plots/made.svg")"
same "points that are drawn" 26 "$(grep -c '<title>' "$work/plots/made.svg")"
same "cliffs that are ringed" 3 "$(grep -c 'stroke="#c00"' "$work/plots/made.svg")"
same "each instance once" "made_N_64_bf16 made_N_80_bf16 made_N_96_bf16 made_N_128_bf16 made_N_160_bf16 other_bf16" \
    "$(CURVES=$root/tests/bench/curves.txt python3 "$root/bench/curves.py" instances | cut -d' ' -f1 | xargs)"
CURVES=$root/tests/bench/curves.txt python3 "$root/bench/curves.py" plot /dev/null "$work/none" >"$work/none.txt"
same "nothing measured is a failure" 1 $?
if ! nvidia-smi -L >/dev/null 2>&1; then
    RESULTS=$work/absent bash "$root/bench/plots.sh" "$work/absent.d" 2>"$work/absent.txt"
    same "no GPU and no results: exit code" 1 $?
    same "no GPU and no results: what is missing" \
        "bench-plots: there is no GPU to measure the curves on, and no $work/absent of a machine that had one" \
        "$(cat "$work/absent.txt")"
fi
grep "^made-N" "$root/tests/bench/curves.txt" >"$work/whole.curves"
CURVES=$work/whole.curves python3 "$root/bench/curves.py" plot "$root/tests/bench/curves.json" "$work/whole" >"$work/whole.txt"
same "no point was lost: exit code" 0 $?

# Every curve that is to be measured is one that cellc compiles.
python3 "$root/bench/curves.py" instances >"$work/instances.txt"
WORKLOADS=$work/instances.txt bash "$root/bench/prepare.sh" "$work/instances" >"$work/prepare.txt" 2>&1
same "the curves' instances compile" "0 $(wc -l <"$work/instances.txt")" "$? $(find "$work/instances" -name '*.cu' | wc -l)"

# ---- what does not build or run is said, and makes the exit code: a workload without sources, with a GPU
# in name only

if [[ -n ${NVCC:-} ]]; then
    printf 'none | none | 1,1 |\n' >"$work/broken.list"
    mkdir "$work/broken" "$work/gpu"
    printf '#!/bin/bash\necho some GPU\n' >"$work/gpu/nvidia-smi"
    chmod +x "$work/gpu/nvidia-smi"
    for mode in COMPILE=1 QUICK=1 QUICK=; do
        env $mode CFLAGS=-O0 PATH="$work/gpu:$PATH" WORKLOADS="$work/broken.list" \
            bash "$root/bench/run.sh" "$work/broken" >"$work/broken.txt" 2>&1
        same "a workload that does not build, $mode: exit code" 1 $?
        same "a workload that does not build, $mode" 1 "$(grep -c '^none does not build' "$work/broken.txt")"
    done
fi

if [[ -n ${NVCC:-} ]]; then
    if gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -I"$root/runtime" -DINSTANCE=some_instance \
        -isystem "$(dirname "$(dirname "$NVCC")")/include" "$root/bench/bench.c" >"$work/bench.log" 2>&1; then
        passed=$((passed + 1))
    else
        cat "$work/bench.log"
        failed=$((failed + 1))
    fi
else
    echo "bench.c: skipped, there is no CUDA toolkit"
    skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
