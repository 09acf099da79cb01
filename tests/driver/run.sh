#!/bin/bash
# Tests what a user meets first: commands, options, exit codes, messages, the files that build writes and a
# program that links against them, and that every command shown in README.md and in --help runs. Ends with "N
# passed, N failed".
set -u
cd "$(dirname "$0")/../.."
cellc=${CELLC:-$PWD/build/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
unset CELLC_HOME
export CUDA_ARCHS=90 # one is enough here, and nvcc is slow
# What is built here shows that it is built, and runs for milliseconds. The library that is built by
# default, below, has the flags that users have; with FULL=1 all have.
[[ -n ${FULL:-} ]] || export CFLAGS=-O0 NVCCFLAGS="-Xcicc -O0 -Xptxas -O0"
by_default() { env -u CFLAGS -u NVCCFLAGS "$@"; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/out
# shellcheck source=tests/expect.sh
source tests/expect.sh
# shellcheck source=tests/pace.sh
source tests/pace.sh

# holds NAME COMMAND...: the command succeeds
holds() {
    local name=$1
    shift
    if "$@" >"$dir/out" 2>&1; then pass; else fail "$name"; fi
}

commands=(build emit check selftest tune run explain doc graph list sources new fmt ops random)

expect 2 "usage: cellc" "$cellc"
expect 0 "usage: cellc" "$cellc" --help
expect 0 "cellc 0." "$cellc" version
expect 0 "cellc 0." "$cellc" --version
expect 2 "cellc: unknown command 'biuld'; did you mean build?" "$cellc" biuld
expect 2 "cellc: unknown command 'qqqqqqqq'" "$cellc" qqqqqqqq
expect 0 "differentiate" "$cellc" help passes
expect 2 "unknown command" "$cellc" help nothing
for c in "${commands[@]}"; do
    expect 0 "  $c " "$cellc" --help
    expect 0 "usage: cellc $c" "$cellc" "$c" --help
    expect 0 "examples:" "$cellc" help "$c"
    expect 2 "unknown option --hepl; did you mean --help?" "$cellc" "$c" --hepl
    # The man page names every option of every command.
    for option in $("$cellc" "$c" --help | grep -oE '^  --?[a-z-]+' | tr -d ' '); do
        holds "man page has $option of $c" grep -qF -- "$option" <(sed 's/\\-/-/g' man/cellc.1)
    done
done

spec=specs/e79.cell
expect 2 "takes SPEC" "$cellc" explain
expect 2 "takes one argument" "$cellc" explain $spec $spec
expect 2 "--dim takes NAME=N, not 'N'" "$cellc" explain --dim N $spec
expect 2 "--set takes NAME=VALUE, not '=x'" "$cellc" explain --set =x $spec
expect 2 "--dtype takes one of f32, bf16, f16, f64, not 'f8'" "$cellc" explain --dtype=f8 $spec
expect 2 "--schedule takes one of" "$cellc" explain --schedule fast $spec
expect 2 "there is no pass 'lowre'" "$cellc" explain --dump-after lowre $spec
expect 2 "--dim takes NAME=N after it" "$cellc" explain $spec --dim
expect 2 "--sizes takes NAME=N,... with N from 1 on, not 'Q=1'; the sizes are B, T, D, H" "$cellc" explain specs/lstm.cell \
    --sizes B=2,Q=1
expect 2 "--sizes takes NAME=N,... with N from 1 on, not 'B=0'" "$cellc" explain specs/lstm.cell --sizes B=0
expect 2 "--sizes says nothing of T; the sizes are B, T, D, H" "$cellc" explain specs/lstm.cell --sizes B=16
expect 0 "training: arguments 3814701080322295463936.0," "$cellc" explain specs/lstm.cell --sizes B=1000000000,T=1000000000,D=1000000000,H=1000
expect 2 "--sizes B=4,T=2048,H=16,history=1, from t0 = 0: history must be t0 + T or more" "$cellc" explain \
    specs/causal_attention.cell --sizes B=4,T=2048,H=16,history=1
expect 2 "there is no kind 'pascal'" "$cellc" emit --kind pascal $spec
expect 2 "--write takes no value" "$cellc" fmt --write=yes $spec
expect 1 "no_such_file.cell" "$cellc" explain no_such_file.cell
expect 1 "no_such_file.cell" "$cellc" build --cpu none no_such_file.cell -o "$dir/none"
# Of "all" those that nvcc has, each as machine code, and the last as PTX. The nvcc compiles nothing and says how it was called.
mkdir -p "$dir/fake/bin" "$dir/fake/include" && : >"$dir/fake/include/cublas_v2.h"
cat >"$dir/fake/bin/nvcc" <<'END'
#!/bin/sh
case "$*" in
*--list-gpu-arch*) printf 'compute_75\ncompute_80\ncompute_90\ncompute_100\ncompute_110\n' ;;
*-gencode*) echo "$*" | grep -o 'code=[a-z0-9_]*' | tr '\n' ' ' && exit 1 ;;
*) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
esac
END
chmod +x "$dir/fake/bin/nvcc"
expect 1 "code=sm_80 code=sm_90 code=sm_100 code=compute_100" env CELLC_NVCC="$dir/fake/bin/nvcc" "$cellc" build --cpu none \
    --archs all swiglu -o "$dir/every"
expect 1 "" test -e "$dir/none"
# The files that a spec is made of, as the compiler's own parser finds them; a pack of them needs no file any more, and what
# was changed afterwards is not read. The evaluator reads the pack as well.
mkdir -p "$dir/packed/sub"
printf 'import "sub/f.cell"; import /* in a line */ "sub/g.cell";\n// import "none.cell";\nimport "std.cell"; import "gone.cell";\n%s\n' \
    'cell packed { dim N; input x[N]; output y[N]; y[i] = lerp(g(x[i]), 0, 0); }' >"$dir/packed/my cell.cell"
printf 'fn f(a) = 3 * a;\n' >"$dir/packed/sub/f.cell"
printf 'import "f.cell"; fn g(a) = 2 * f(a);\n' >"$dir/packed/sub/g.cell"
printf '%s\n' "my cell.cell" sub/f.cell sub/g.cell "$PWD/specs/std.cell" >"$dir/wanted"
(cd "$dir/packed" && "$cellc" sources "my cell.cell") >"$dir/listed" 2>&1
holds "cellc sources lists what is read" diff "$dir/wanted" "$dir/listed"
# Where a path steers a terminal it is shown without that, to a file as well; a program takes it as it is.
odd=$dir/packed/$'a\e[31m\nb.cell'
cp "$dir/packed/sub/f.cell" "$odd"
expect 0 "" diff <(printf 'a?[31m?b.cell\n') <(cd "$dir/packed" && "$cellc" sources $'a\e[31m\nb.cell')
expect 0 "" cmp <(printf 'a\e[31m\nb.cell\0') <(cd "$dir/packed" && "$cellc" sources --null $'a\e[31m\nb.cell')
expect 2 "--pack and --null exclude each other" "$cellc" sources --null --pack gru
rm "$odd"
sed -i 's/ import "gone.cell";//' "$dir/packed/my cell.cell"
(cd "$dir/packed" && "$cellc" sources --pack "my cell.cell" >"$dir/my.pack" && "$cellc" emit "my cell.cell") >"$dir/ref.c"
echo 'fn f(a) = 5 * a;' >"$dir/packed/sub/f.cell"
expect 0 "" diff <("$cellc" emit --sources "$dir/my.pack" -) "$dir/ref.c"
mv "$dir/packed" "$dir/moved"
expect 0 "" diff <("$cellc" emit --sources - - <"$dir/my.pack") "$dir/ref.c"
expect 0 "packed_ref.c" "$cellc" build --cpu none --no-cuda --sources "$dir/my.pack" -:reverse -o "$dir/packed"
expect 0 ", 0 failed" "$cellc" check --sources "$dir/my.pack" -
expect 0 "packed" "$cellc" explain --sources "$dir/my.pack" -
sed -i 's/g(x\[i\])/q(x[i])/' "$dir/my.pack"
expect 1 "my cell.cell:4:59: error: unknown function 'q'" "$cellc" emit --sources "$dir/my.pack" -
head -c 150 "$dir/my.pack" >"$dir/cut.pack"
for pack in "$dir/cut.pack" specs/e79.cell /dev/null; do
    expect 1 "cannot read the sources in '$pack': it is not what \`cellc sources --pack\` writes" "$cellc" emit --sources "$pack" -
done
expect 1 "No such file" "$cellc" emit --sources "$dir/none.pack" -
expect 2 "--import-dir and --sources exclude each other" "$cellc" emit --sources "$dir/my.pack" --import-dir . -
expect 2 "--sources is not for this command" "$cellc" selftest --sources "$dir/my.pack" -
expect 2 "with --sources the SPEC is -, not 'e79'" "$cellc" sources --sources "$dir/my.pack" e79
# Blanks, quotes and what else a shell and make give a meaning, in all paths: of the installation, of what is read, of what
# is written, of temporary files.
odd="$dir/a b'c\"d;e"
mkdir -p "$odd/t mp"
expect 0 "" by_default env -u MAKEFLAGS make -s install PREFIX="$odd/pre fix" DESTDIR="$dir/de st"
own="$dir/de st$odd/pre fix/bin/cellc"
cp specs/gru.cell "$odd/my gru.cell"
cp specs/swiglu.cell "$odd/my swiglu.cell"
(cd "$odd" && TMPDIR="$odd/t mp" expect 0 "libswiglu.so" "$own" build "my swiglu.cell" -o "out put"; echo "$passed $failed" >"$dir/counts")
read -r passed failed <"$dir/counts"
expect 0 "" test -e "$odd/out put/libswiglu.so"
expect 0 "" bash -c 'test -z "$(ls -A "$1")"' - "$odd/t mp"
for words in "emit -o $odd/o2" "explain" "graph -o $odd/g.dot" "doc -o $odd/docs" "sources" "check" "run" "fmt --check"; do
    IFS='|' read -ra split <<<"${words/ -/|-}"
    [[ ${split[1]:-} == "-o "* ]] && split=("${split[0]}" -o "${split[1]#-o }")
    expect 0 "" "$own" "${split[@]}" "$odd/my gru.cell"
done
expect 0 "lstm" "$own" list "${own%/bin/cellc}/share/cellc/specs"
expect 0 "" "$own" new odd --from "$odd/my gru.cell" -o "$odd/n ew.cell"
# A pipe can be read once only.
expect 0 "packed_ref.c" "$cellc" emit -o "$dir/packed" <(printf 'cell packed { dim N; input x[N]; output y[N]; y[i] = x[i]; }')
# A word is a cell that comes with cellc, in every command, whatever directory has its name.
for c in emit explain run build; do
    expect 1 "no cell of that name comes with cellc; did you mean 'lstm'?" "$cellc" $c lstmm
    expect 1 "that do are in" "$cellc" $c no_such_cell_at_all
done
expect 1 "did you mean 'lstm'?" "$cellc" build --cpu none lstmm:H=3
# A dim may have the name of an option of the compiler.
printf 'cell named {\n    dim products;\n    input x[products];\n    output y[products];\n    y[i:products] = 2 * x[i];\n}\n' >"$dir/named.cell"
expect 0 "named.json" "$cellc" build --cpu none "$dir/named.cell:products=8" -o "$dir/named"
expect 0 '"bound": {"products": "8"}' cat "$dir/named/named.json"
# Or stand in a branch.
expect 0 "slstm.json" "$cellc" build --cpu none slstm:N=4,input=given --no-cuda -o "$dir/named"
expect 0 '"bound": {"N": "4"}' cat "$dir/named/slstm.json"
# What is a dim in one branch and a constant in the other is either.
cat >"$dir/either.cell" <<'CELL'
cell either {
    option a = dim | const;
    dim N;
    output y[N];
    when a == dim {
        dim K;
        input x[N, K];
        y[i:N] = x[i, K - 1];
    } else {
        const K = 2;
        input x[N];
        y[i:N] = K * x[i];
    }
}
CELL
expect 0 "either.json" "$cellc" build --cpu none "$dir/either.cell:K=5,a=const" --no-cuda -o "$dir/named"
expect 0 "5 *" cat "$dir/named/either_ref.c"
expect 0 "either.json" "$cellc" build --cpu none "$dir/either.cell:K=5" --no-cuda -o "$dir/named"
expect 0 '"bound": {"K": "5"}' cat "$dir/named/either.json"
expect 2 "--products takes one of auto, plain, parts, fused, not '8'" "$cellc" build --cpu none lstm:products=8 -o "$dir/named"
expect 0 "lstm_products_plain.json" env CELLC_NVCC=none "$cellc" build --cpu none lstm:products=parts lstm:products=plain --name both -o "$dir/both"
mkdir "$dir/e1"
(cd "$dir" && expect 0 "cell e1" "$cellc" explain --all e1; echo "$passed $failed" >"$dir/counts")
read -r passed failed <"$dir/counts"
expect 0 "not tile: its states do not fit on a cluster of 8 SMs" "$cellc" explain --all --dim N=256 e79
expect 0 "kernels of its own, with as many" "$cellc" explain --all --schedule tile:interval=6 e88
expect 1 "its states do not fit on an SM" "$cellc" explain --all --dim N=96 --schedule tile:cluster=1 e79
# Blocks share a state where one does not hold it; GPUs without clusters get another schedule instead.
# Columns are walked where their values fit: not where a step reads too many, nor more columns than a block takes.
slots() { # how many values of slots and units a step reads
    local i
    printf 'cell slots {\n    dim D; dim N;\n    input x[D];\n    param W[D, D], C[N];\n    state h[N, D];\n    output y[D];\n'
    for ((i = 0; i < $1; i++)); do printf '    input g%d[N, D];\n' $i; done
    printf "    u[n:N, i:D] = sum[j] W[i,j] * h[n,j];\n    h'[n,i] = tanh(x[i] + u[n,i]"
    for ((i = 0; i < $1; i++)); do printf ' + sigmoid(g%d[n,i])' $i; done
    printf ');\n    y[i] = sum[n] C[n] * h'"'"'[n,i];\n}\n'
}
for n in 2 3; do slots $n >"$dir/slots$n.cell"; done
expect 0 "one kernel walks the forward steps" "$cellc" explain --all --dtype bf16 "$dir/slots2.cell"
says "one kernel walks the backward steps"
expect 0 "no kernel walks the forward steps: each reads 3 values of columns and units" "$cellc" explain --all --dtype bf16 "$dir/slots3.cell"
says "no kernel walks the backward steps: each reads 4 values"
for n in 64 65; do "$cellc" emit --dtype bf16 --dim N=$n --kind cuda e2 >"$dir/e2_$n.cu"; done
expect 0 "e2_fwd_columns(" grep _columns "$dir/e2_64.cu"
expect 1 "" grep _columns "$dir/e2_65.cu"
expect 0 "one kernel walks the backward steps where a block takes" "$cellc" explain --all --dtype bf16 tests/constructs/heads_shared.cell
expect 0 "4 blocks of a cluster share a state's rows, 24 each: one does not hold it" "$cellc" explain --all --dim N=96 --archs 90 e79
expect 0 "bytes of shared memory, or there are no clusters: schedule block" "$cellc" explain --all --dim N=96 --archs "80 90" e79
expect 0 "2 blocks of a cluster share a state's rows, 8 each, as was asked for" \
    "$cellc" explain --all --dim N=16 --schedule tile:cluster=2 --archs "80 90" e79
# Calls with few states have a plan of their own where an architecture can run it: with clusters, with so much shared memory.
for n in 32 72; do
    for archs in 90 "80 90"; do
        expect 0 "where a call" "$cellc" explain --all --dim N=$n --archs "$archs" e79
    done
    for archs in 80 "80 86" 120; do
        "$cellc" emit --dim N=$n --kind cuda --archs "$archs" e79 >"$dir/e79_archs.cu"
        expect 0 "e79_bwd_walk" grep "void e79_bwd_walk" "$dir/e79_archs.cu"
        expect 1 "" grep -E "For calls|_roomy|cluster" "$dir/e79_archs.cu"
    done
done
expect 0 "where a call has more than 3 blocks for each of the GPU's multiprocessors" "$cellc" explain --all --dtype bf16 --dim N=32 --dim V=32 delta
"$cellc" explain --all --dtype bf16 --dim N=32 --dim V=32 --schedule tile:forward=8x4/2x1 delta >"$dir/delta_layout"
expect 1 "" grep -E "_crowded|more than 3 blocks" "$dir/delta_layout"
expect 2 "--schedule tile:cluster takes 1, 2, 4 or 8 blocks, not '3'" "$cellc" explain --all --schedule tile:cluster=3 e79
# A layout that was asked for is what one gets, or an error.
expect 0 "e88_fwd_walk: 4 warps for a 64 x 64 state: 32 x 1 elements a thread, 2 x 16 lanes, 1 x 4 warps, as was" \
    "$cellc" explain --all --dim N=64 --dim V=64 --schedule tile:forward=2x16/1x4 --archs 90 e88
expect 0 "e88_bwd_walk: a checkpoint every 2 steps: as was asked for" \
    "$cellc" explain --all --dim N=64 --dim V=64 --schedule tile:interval=2:warps=8 --archs 90 e88
expect 1 "tile cannot take cell e88: forward=32x1/16x1 does not hold its 64 x 64 state; \`cellc tune --list\` has the layouts" \
    "$cellc" explain --all --dim N=64 --dim V=64 --schedule tile:forward=32x1/16x1 e88
expect 1 "--schedule tile cannot take cell e88: its states do not fit on an SM with interval=16: 73728 bytes" \
    "$cellc" explain --all --dim N=96 --dim V=96 --schedule tile:cluster=1:interval=16 e88
expect 2 "--schedule tile:warps takes 1 to 32, not '33'" "$cellc" explain --all --schedule tile:warps=33 e79
expect 2 "--schedule tile:interval takes 1 to 16 steps, not '17'" "$cellc" explain --all --schedule tile:interval=17 e79
expect 2 "--schedule tile:forward takes LANES/WARPS, each rows x columns, as 2x16/1x4: 32 lanes in powers of two" \
    "$cellc" explain --all --schedule tile:forward=2x16 e79
expect 2 "--schedule tile: takes cluster=N, interval=STEPS, warps=N, forward=LANES/WARPS or backward=LANES/WARPS, not 'lanes'" \
    "$cellc" explain --all --schedule tile:lanes=3 e79
# A schedule is of kernels, and what has none does not take it silently.
for kind in c header host manifest ir; do
    expect 2 "--schedule concerns kernels only, and --kind $kind has none" "$cellc" emit --schedule steps --kind $kind $spec
done
expect 2 "a library with --no-cuda has none" "$cellc" emit --schedule steps --no-cuda -o "$dir/none" $spec
expect 0 "cell_load" "$cellc" emit --schedule steps --kind cuda $spec
# Architectures are judged before nvcc sees them.
expect 2 "--archs takes native, or numbers such as \"80 90\", not 'foo'" "$cellc" build --cpu none --archs "80 foo" $spec -o "$dir/none"
expect 2 "--kernels-apart and --no-cuda exclude each other" "$cellc" build --cpu none --kernels-apart --no-cuda $spec -o "$dir/none"
expect 0 "libswiglu.so" "$cellc" build --cpu none --kernels-apart swiglu -o "$dir/apart"
holds "kernels that are apart are not in the library" test -e "$dir/apart/swiglu.cu"
expect 2 "not '9-0'" "$cellc" build --cpu none --no-cuda --archs 9-0 $spec -o "$dir/none"
expect 2 "--archs names no architecture" "$cellc" build --cpu none --archs " " $spec -o "$dir/none"
for command in build emit explain "tune --list"; do
    # shellcheck disable=SC2086
    expect 2 "--archs 75: kernels need a GPU of 80 or newer" "$cellc" $command --archs "90 75" $spec
    # shellcheck disable=SC2086
    expect 2 "not 'sm_90'" "$cellc" $command --archs "sm_90" $spec
done
nvcc=$("$cellc" version --verbose | sed -n 's/^nvcc: //p')
if [[ $nvcc != none ]]; then
    expect 2 "--archs 85: this nvcc compiles for" "$cellc" build --cpu none --archs "90 85" $spec -o "$dir/none"
fi
expect 1 "" test -e "$dir/none"
expect 1 "error" "$cellc" explain --dim Q=3 $spec
expect 1 "error" "$cellc" explain --set bias=inptu $spec
expect 1 "error" "$cellc" explain --dim N=0 $spec
expect 1 "error" "$cellc" explain --dim N=99999999999999999999 $spec
expect 0 "cell e79" "$cellc" explain -- $spec
expect 0 "N=32" "$cellc" explain --dim=N=32 --dim N=16 --dim N=32 $spec
expect 0 "bias=input" "$cellc" explain --set bias=input $spec
for p in parse lower differentiate simplify roots phases fused; do
    expect 0 "S" "$cellc" emit --dump-after $p $spec
done

# The promise is that a spec compiles, with its kernels but without nvcc, in 50 ms of the processor's time.
# The limit is twice that, and more on slower machines and where others use the caches; with sanitizers it
# is that one ends.
limit=$([[ -n ${SAN:-} || -n ${COVER:-} ]] && echo 10000 || paced 100)
slowest=0

cpu_ms() { # command...: its user and system time in milliseconds, the least of five runs, of 25 where that is no answer
    local TIMEFORMAT='%U %S' best=999999 took user system i
    for ((i = 0; i < 25 && (i < 5 || best >= limit); i++)); do
        took=$({ time "$@" >/dev/null 2>&1; } 2>&1)
        read -r user system <<<"$took"
        took=$((10#${user/./} + 10#${system/./}))
        best=$((took < best ? took : best))
    done
    echo $best
}

# Every spec: canonical, compiles fast, and gives the same text twice.
for s in specs/*.cell; do
    expect 0 "" "$cellc" fmt --check "$s"
    [[ $s == specs/std.cell ]] && continue
    for kind in c header host manifest; do
        "$cellc" emit --kind $kind "$s" >"$dir/once" 2>"$dir/out"
        "$cellc" emit --kind $kind "$s" >"$dir/twice" 2>>"$dir/out"
        holds "$s: $kind is something, and the same twice" test -s "$dir/once" -a -z "$(cmp "$dir/once" "$dir/twice" 2>&1)"
    done
    took=$(cpu_ms "$cellc" emit "$s" -o "$dir/timed")
    holds "$s compiles in $took ms" test "$took" -lt "$limit"
    ((took <= slowest)) || { slowest=$took slow=$s; }
done
echo "the spec that takes longest to compile is $slow: $slowest ms of $limit"

# What many values share is looked at once: cells of chance whose values over the past share others (0.2 s; once 50 s and 2 GB),
# and whose complex ones do (0.1 s; once minutes).
for seed in 5206 160; do
    "$cellc" random --seed $seed >"$dir/shared.cell"
    took=$({ TIMEFORMAT='%U'; time timeout 60 "$cellc" emit --kind plan "$dir/shared.cell" >"$dir/shared.plan" 2>&1; } 2>&1)
    holds "a random cell with shared values, of seed $seed, compiles in $took s" test -s "$dir/shared.plan" -a "${took%.*}" -lt 5
done

# fmt: a file with errors stays as it is; --write changes what --check names; standard input works.
printf 'cell  a{input x[3] ;output y[3];y[i]=2*x[i];}\n' >"$dir/a.cell"
expect 1 "$dir/a.cell" "$cellc" fmt --check "$dir/a.cell"
expect 0 "" "$cellc" fmt --write "$dir/a.cell"
expect 0 "" "$cellc" fmt --check "$dir/a.cell"
holds "fmt reads standard input" diff <("$cellc" fmt <"$dir/a.cell") "$dir/a.cell"
printf 'cell a { input x[3; }\n' >"$dir/bad.cell"
cp "$dir/bad.cell" "$dir/bad.copy"
expect 1 "error" "$cellc" fmt --write "$dir/bad.cell"
holds "a file with errors is not touched" cmp "$dir/bad.cell" "$dir/bad.copy"

# build, into a directory whose name has a blank, and a program over the result.
out="$dir/with blank/deep"
expect 0 "libswiglu.so" by_default "$cellc" build -v specs/swiglu.cell -o "$out"
for f in swiglu.h swiglu_ref.c swiglu.c swiglu.json libswiglu.so; do
    holds "build writes $f" test -s "$out/$f"
done
command -v python3 >/dev/null && holds "the manifest is JSON" python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$out/swiglu.json"
cat >"$dir/use.c" <<'C'
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "swiglu.h"
#include "cell_plan.h"
int main(int argc, char **argv)
{
    const char *archs = swiglu_instance()->archs;
    if (argc != 2 || strcmp(archs ? archs : "none", argv[1]) != 0)
        return puts("wrong archs"), 1;
    float g[6] = { -2, -1, 0, 1, 2, 3 }, u[6] = { 1, 2, 3, 4, 5, 6 }, y[6], worst = 0;
    char why[256];
    cell_context *ctx;
    swiglu_sizes sizes = { .B = 1, .T = 2, .D = 3 };
    swiglu_forward_args args = { .g = g, .u = u, .y = y };
    if (cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 0, why, sizeof why) != CELL_OK)
        return puts(why), 1;
    if (swiglu_forward(ctx, &sizes, &args) != CELL_OK)
        return puts(cell_last_error(ctx)), 1;
    for (int i = 0; i < 6; i++)
        worst = fmaxf(worst, fabsf(y[i] - g[i] / (1 + expf(-g[i])) * u[i]));
    args.y = NULL;
    int status = swiglu_forward(ctx, &sizes, &args);
    cell_context_destroy(ctx);
    return worst < 1e-5f && status == CELL_NULL_POINTER ? 0 : 1;
}
C
holds "a program links against the library" ${CC:-cc} ${SAN:+-fsanitize=address,undefined} -I"$out" -Iruntime -o "$dir/use" "$dir/use.c" -L"$out" \
    -Wl,-rpath,"$out" -lswiglu -lm
holds "gets the right values, and knows its GPUs" "$dir/use" \
    "$([[ $nvcc != none ]] && echo 90 || echo none)"
expect 1 "" env CC=no_such_compiler "$cellc" build --cpu none specs/swiglu.cell -o "$out"

# One instance is called as its cell, however it was bound; without -o the files go to ./generated, and that is said.
mkdir "$dir/here"
(cd "$dir/here" && expect 0 "the files are in ./generated" "$cellc" build --cpu none --no-cuda mingru:dtype=f64 &&
    echo "$passed $failed" >"$dir/counts")
read -r passed failed <"$dir/counts"
for f in mingru.h mingru_ref.c mingru.c mingru.json libmingru.so; do
    holds "build writes generated/$f" test -s "$dir/here/generated/$f"
done
# The toolkit is the one that is there when cellc runs: what CELLC_NVCC names, what the build found, else
# CUDA_HOME's, the PATH's. A link leads to its home. Without any, the library has the reference, and it is
# said why.
mkdir -p "$dir/home/build" "$dir/cuda 13/bin" "$dir/cuda 13/include" "$dir/links"
for part in runtime specs; do ln -s "$PWD/$part" "$dir/home/$part"; done
ln -s "$(cd "$(dirname "$cellc")" && pwd)/libcell.a" "$dir/home/build/libcell.a"
flags=$dir/home/build/libcell.flags toolkit="$dir/cuda 13/bin/nvcc"
at_home() { env -u CUDA_PATH CELLC_HOME="$dir/home" CUDA_HOME= "$@"; }
flags() { sed "s|^nvcc .*|nvcc $1|" "$(dirname "$cellc")/libcell.flags" >"$flags"; }
printf '#!/bin/sh\necho compute_80\n' >"$toolkit"
chmod +x "$toolkit"
flags ""
expect 0 "nvcc: none" at_home CELLC_NVCC="$toolkit" "$cellc" version --verbose
says "why: CELLC_NVCC is '$toolkit', which is no nvcc of a toolkit with cuBLAS"
: >"$dir/cuda 13/include/cublas_v2.h"
ln -s "$toolkit" "$dir/links/nvcc"
expect 0 "nvcc: $toolkit" at_home CELLC_NVCC="$toolkit" "$cellc" version --verbose
expect 0 "nvcc: $toolkit" at_home CUDA_HOME="$dir/cuda 13" "$cellc" version -v
expect 0 "nvcc: $toolkit" at_home CUDA_PATH="$dir/cuda 13" "$cellc" version -v
expect 0 "nvcc: $toolkit" at_home PATH="$dir/links:$PATH" "$cellc" version -v
flags "$toolkit"
expect 0 "nvcc: $toolkit" at_home "$cellc" version -v
expect 0 "nvcc: none" at_home CELLC_NVCC=none "$cellc" version -v
says "why: no nvcc is wanted (CELLC_NVCC)"
flags -
expect 0 "why: cellc was built with NOCUDA=1" at_home CUDA_HOME="$dir/cuda 13" "$cellc" version -v
expect 2 "'-x' is not an option of it; --verbose is" "$cellc" version -x
expect 0 "no nvcc is wanted (CELLC_NVCC), so the library has the reference only" \
    at_home CELLC_NVCC=none "$cellc" build --cpu none swiglu -o "$dir/home/out"
expect 1 "" test -e "$dir/home/out/swiglu.cu"
flags "$toolkit"
expect 2 "--archs 90: this nvcc compiles for 80" at_home "$cellc" build --cpu none swiglu --archs 90 -o "$dir/home/none"

# The line that is printed makes a program of any library, wherever its paths lead.
mkdir "$dir/it's here"
(cd "$dir/it's here" && "$cellc" build --cpu none --no-cuda swiglu -o "a b" 2>said >/dev/null && mv said "a b")
sed 's/swiglu_instance()->archs/NULL/' "$dir/use.c" >"$dir/it's here/main.c"
line=$(sed -n 's/.*a program links with it by: //p' "$dir/it's here/a b/said")
holds "the line links: $line" bash -c 'cd "$1" && eval "${2/#cc /$3 } -lm" && ./main none' _ \
    "$dir/it's here" "$line" "${CC:-cc} ${SAN:+-fsanitize=address,undefined}"
# A library without kernels needs neither a BLAS nor CUDA.
needs=$(readelf -d "$dir/it's here/a b/libswiglu.so" | grep NEEDED)
holds "what it needs is the C library" \
    test -z "$(grep -vE 'lib(c|m|dl|asan|ubsan|gcc_s|pthread)\.so' <<<"$needs")"

# Several instances in one library, chosen when the program runs.
expect 2 "several instances need --name" "$cellc" build --cpu none --no-cuda swiglu:dtype=f64 swiglu -o "$out"
expect 2 "are the same instance" "$cellc" build --cpu none --no-cuda swiglu swiglu --name two -o "$out"
expect 2 "are both called swiglu" "$cellc" build --cpu none --no-cuda swiglu:dtype=f64 swiglu --name swiglu -o "$out"
expect 2 "expected NAME=VALUE, reverse, lengths, packed or slots after ':', not 'N'" "$cellc" build --cpu none --no-cuda e79:N -o "$out"
expect 1 "error" "$cellc" build --cpu none --no-cuda e79:Q=3 -o "$out"
touch "$dir/before"
expect 0 "libtwo.so" "$cellc" build --cpu none --no-cuda swiglu:dtype=f64 e79:N=8,bias=none,reverse --name two -o "$out"
grep -v "a program links with it by: " "$dir/out" | sort >"$dir/said"
holds "build prints the paths of all files that it makes" \
    test -z "$(find "$out" -newer "$dir/before" -type f | sort | comm -3 - "$dir/said")"
cat >"$dir/two.c" <<'C'
#include <string.h>
#include "two.h"
int main(void)
{
    const cell_binding wide = { "dtype", "f64" }, eight = { "N", "8" }, nine = { "N", "9" };
    const cell_binding back = { "reverse", "true" }, on = { "reverse", "false" };
    const cell_desc *all[2];
    return two_instances(all, 2) == 2 && two_find(NULL, "swiglu", &wide, 1) == all[0] &&
           two_find(NULL, "e79", &eight, 1) == all[1] && !two_find(NULL, "e79", &nine, 1) &&
           two_find(NULL, NULL, &back, 1) == all[1] && two_find(NULL, NULL, &on, 1) == all[0] &&
           strcmp(all[1]->name, "e79") == 0 ? 0 : 1;
}
C
holds "a program links against both" ${CC:-cc} ${SAN:+-fsanitize=address,undefined} -I"$out" -Iruntime -o "$dir/two" "$dir/two.c" \
    -L"$out" -Wl,-rpath,"$out" -ltwo -lm
holds "and finds each" "$dir/two"

# Compilers run side by side, and what they say does not mix. This one waits until as many as asked for are at
# work, speaks in two parts, and cannot compile the files whose names match.
cat >"$dir/slow_cc" <<'SH'
#!/bin/bash
for word; do
    [[ $word == *.c ]] && file=${word##*/}
    [[ $word == -shared ]] && exec cc "$@"
done
echo "begin $file" >&2
touch "$MEET/$file"
for ((i = 0; i < 300; i++)); do
    [[ $(ls "$MEET" | wc -l) -ge $AT_ONCE ]] && break
    sleep 0.05
done
[[ $i -lt 300 ]] || { echo "alone" >&2 && exit 1; }
sleep 0.0$((RANDOM % 10))
echo "end $file" >&2
[[ $file == ${BROKEN:-none} ]] && { echo "$file: cannot" >&2 && exit 1; }
exec cc "$@"
SH
chmod +x "$dir/slow_cc"
mkdir "$dir/meet"
build_slowly() { # AT_ONCE JOBS, output into the file
    rm -f "$dir"/meet/*
    CC=$dir/slow_cc MEET=$dir/meet AT_ONCE=$1 "$cellc" build --cpu none --no-cuda --jobs "$2" swiglu:dtype=f64 swiglu mingru --name three \
        -o "$out"
}
build_slowly 3 3 >"$dir/jobs3" 2>&1
holds "three compilers run at once" grep -q libthree.so "$dir/jobs3"
build_slowly 1 1 >"$dir/jobs1" 2>&1
holds "they say the same as one" cmp "$dir/jobs1" "$dir/jobs3"
export BROKEN='*_ref.c'
build_slowly 2 4 >"$dir/jobs4" 2>&1
build_slowly 1 1 >"$dir/jobs1" 2>&1
unset BROKEN
holds "the first failure ends it" test "$(grep -c cannot "$dir/jobs1")" = 1
holds "and is the same one" cmp "$dir/jobs1" "$dir/jobs4"
expect 2 "--jobs takes" "$cellc" build --cpu none --no-cuda --jobs many swiglu -o "$out"

# Vectors that do not fit: which line of the file says so, and what the cell would have.
wrong_vectors() { # SIZES, what check and run say
    printf '# sizes: %s\ntensor input x 2 3 3\n1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9\n' "$1" >"$dir/h.vec"
    for command in check run; do
        expect 1 "h.vec:$2" "$cellc" $command specs/lstm.cell --vectors "$dir/h.vec"
    done
}
wrong_vectors "B=2 T=99999999999 D=3 H=2" \
    "2:1: error: input x is [2, 3, 3], but with B=2 T=99999999999 D=3 H=2 the cell's is [2, 99999999999, 3]"
wrong_vectors "B=2 T=99999999999 D=3 H=2" "1:14: note: the sizes are given here"
wrong_vectors "B=2 T=3 D=99999999999 H=2" "1:18: error: D=99999999999: a dim is a whole number from 1 to 268435456"
wrong_vectors "B=2 T=3 D=9999999999999999999999 H=2" "1:18: error: this size is too large: 'D'"
wrong_vectors "B=2 T=3 D=3 H=0" "1:22: error: H=0: a dim is a whole number from 1 to 268435456"
wrong_vectors "B=2 T=3 D=40000000 H=2" \
    "1:18: error: the cell does not compile at these sizes, the largest of which is D=40000000"
wrong_vectors "B=2 T=3 D=3 H=2" " error: the file has no param weight_ih"
# Arrays of 70,000,000 elements are refused before they are made, and once.
printf '# sizes: B=2 T=3 D=3 H=70000000\ntensor input x 2 3 3\n%s %s\n' \
    "1 2 3 4 5 6 7 8 9" "1 2 3 4 5 6 7 8 9" >"$dir/h.vec"
took=$(cpu_ms "$cellc" check specs/lstm.cell --vectors "$dir/h.vec")
holds "vectors of a state of 70,000,000 are refused in $took ms" test "$took" -lt "$limit"
expect 1 "too large to evaluate: the cell has more than 268435456 elements with it" \
    "$cellc" check specs/lstm.cell --vectors "$dir/h.vec"
for value in 0.5 2147483648 nan; do
    printf '# sizes: B=1 T=2 V=2 D=1\ntensor input id 1 2\n1 %s\ntensor param weight 2 1\n1 2\n' $value >"$dir/id.vec"
    for command in check run; do
        expect 1 "id.vec:2:1: error: input id is an integer of 32 bits, but element 1 is" \
            "$cellc" $command specs/embedding.cell --vectors "$dir/id.vec"
    done
done
printf 'cell clock { state n; output y; n'"'"' = n + 1; y = n; }\n' >"$dir/clock.cell"
echo '# sizes: B=4000000000 T=4000000000' >"$dir/h.vec"
expect 1 "h.vec:1:23: error: with B=4000000000 T=4000000000, n has more than 268435456 elements, too many to evaluate" \
    "$cellc" check "$dir/clock.cell" --vectors "$dir/h.vec"
for command in check run; do
    expect 1 "nofile: error: cannot open it: No such file or directory" "$cellc" $command $spec --vectors nofile
done

# Errors for programs: the same as for people, one object a line.
printf 'cell bad {\n    dim D;\n    fn f(v)[i] = v[i] + q[i];\n    input x[D];\n    output y[D];\n    y[i] = f(x)[i] * "\xff";\n}\n' >"$dir/bad.cell"
"$cellc" explain "$dir/bad.cell" 2>"$dir/text"
expect 1 "" "$cellc" explain "$dir/bad.cell" --diagnostics json
cp "$dir/out" "$dir/json"
expect 2 "--diagnostics takes one of text, json, not 'xml'" "$cellc" explain "$dir/bad.cell" --diagnostics xml
"$cellc" explain --diagnostics=json --set bias=no e79 2>>"$dir/json" >/dev/null
if command -v python3 >/dev/null; then
    holds "errors as JSON are those in text" python3 - "$dir/json" "$dir/text" <<'P'
import json, sys
said = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
text = open(sys.argv[2], encoding="utf-8").read()
assert said
for d in said[:-1]:
    for one in [d] + d["notes"]:
        assert "%s:%d:%d: %s: %s\n" % (one["file"], one["line"], one["column"], one["level"], one["message"]) in text, one
        assert (one["end_line"], one["end_column"]) >= (one["line"], one["column"]), one
assert text.count(": error: ") == sum(d["level"] == "error" for d in said[:-1])
assert "bias" in said[-1]["message"], said[-1]
P
fi

# new: a neighbour's text under another name, which compiles; list and graph show it.
expect 0 "$dir/cells/mine.cell" "$cellc" new mine --from e75 -o "$(mkdir -p "$dir/cells" && echo "$dir/cells/mine.cell")"
expect 1 "is there already" "$cellc" new mine --from e75 -o "$dir/cells/mine.cell"
expect 2 "'3d' cannot be the name of a cell" "$cellc" new 3d --from e75
expect 2 "takes --from SPEC" "$cellc" new mine
expect 1 "did you mean 'e75'" "$cellc" new mine --from e755
expect 1 "there is no cell in this file" "$cellc" new mine --from specs/std.cell -o "$dir/cells/none.cell"
holds "a new cell is its neighbour, but for the name" diff <(sed 's/mine/e75/g; 1,2d' "$dir/cells/mine.cell") specs/e75.cell
expect 0 "mine" "$cellc" list "$dir/cells"
expect 1 "cannot read" "$cellc" list "$dir/nowhere"
holds "list names every cell that comes with cellc" diff <("$cellc" list | grep -oE '^  [a-z0-9_]+ ' | tr -d ' ' | sort) \
    <(for s in specs/*.cell; do [[ $s == specs/std.cell ]] || basename "$s" .cell; done | sort)
# Every value that explain lists under a name of the spec stands in the graph, in the box of its phase.
for s in e88 lstm; do
    "$cellc" graph "$s" >"$dir/graph"
    for name in $([[ $s == e88 ]] && echo 'qkv_proj_x decay k q delta S' || echo "c h g f o"); do
        holds "graph $s has $name" grep -qE "label=\"$name'? \[" "$dir/graph"
    done
    holds "graph $s draws no arrow from or to what it does not have" awk '
        / \[label=/ { for (i = 1; i <= NF; i++) if ($i ~ /^[vtr][0-9]+$/) has[$i] = 1 }
        / -> / { for (i = 1; i <= NF; i++) if ($i == "->") { gsub(/;/, "", $(i + 1)); from[$(i - 1)] = to[$(i + 1)] = 1 } }
        END { for (v in from) if (!(v in has)) exit 1; for (v in to) if (!(v in has)) exit 1 }' "$dir/graph"
    expect 0 "gradient of x" "$cellc" graph "$s" --backward
    expect 0 "kept by forward" "$cellc" graph "$s" --backward
done
if command -v dot >/dev/null; then
    expect 0 "" "$cellc" graph e88 -o "$dir/e88.svg"
    holds "a picture is one" grep -q '<svg' "$dir/e88.svg"
else
    expect 1 "wants Graphviz" "$cellc" graph e88 -o "$dir/e88.svg"
fi

# A setting given by the other flag, a name that would hide a header, and imports from a directory beside the library.
expect 1 "--set N=3: 'N' is a dim of cell 'e79': --dim N=3" "$cellc" explain e79 --set N=3
expect 1 "--dim bias=none: 'bias' is an option or constant of cell 'e79': --set bias=none" "$cellc" explain e79 --dim bias=none
printf 'cell math { dim D; input x[D]; output y[D]; y[d] = x[d]; }\n' >"$dir/math.cell"
expect 1 "a cell cannot be called 'math': math.h would hide a header" "$cellc" emit "$dir/math.cell" -o "$dir/math"
expect 1 "math.cell:1:6: error: a cell cannot be called 'math'" "$cellc" check "$dir/math.cell"
sed 's/math/cell_run/' "$dir/math.cell" >"$dir/run.cell"
expect 1 "a cell cannot be called 'cell_run': names that begin with cell_ in C are the runtime's" "$cellc" emit "$dir/run.cell"
sed "s/math/$(printf 'm%.0s' {1..129})/" "$dir/math.cell" >"$dir/long.cell"
expect 1 "a name has at most 128 characters; this one has 129" "$cellc" emit "$dir/long.cell"
for name in m m_ref M; do
    sed "s/math/$name/" "$dir/math.cell" >"$dir/$name.cell"
done
expect 2 "both would write m_ref.c, as the reference of a cell is called NAME_ref" "$cellc" build --cpu none "$dir/m.cell" "$dir/m_ref.cell" --name b -o "$dir/m"
expect 2 "--name m_ref: the reference of the cell m is called so" "$cellc" build --cpu none "$dir/m.cell" "$dir/M.cell" --name m_ref -o "$dir/m"
expect 0 "libb.so" "$cellc" build --cpu none "$dir/m.cell" "$dir/M.cell" --name b --no-cuda -o "$dir/m"
printf '#include "m.h"\n#include "M.h"\nM_sizes a; m_sizes b;\n' >"$dir/both.c"
holds "headers of names that differ in case only" cc -fsyntax-only -Iruntime -I"$dir/m" "$dir/both.c"
expect 2 "--name math: math.h would hide a header" "$cellc" build --cpu none e0 e1 --name math -o "$dir/math"
mkdir -p "$dir/mine" && printf 'fn twice(x) = 2 * x;\n' >"$dir/mine/mine.cell"
printf 'import "std.cell";\nimport "mine.cell";\ncell c { dim D; input x[D]; output y[D]; y[d] = twice(l2norm(x)[d]); }\n' >"$dir/c.cell"
expect 0 " passed, 0 failed" "$cellc" check "$dir/c.cell" --import-dir "$dir/mine"

# A cell that is not finite by itself: said once a case, and not more than 20 failures without -v.
printf 'cell c { dim D; input x[D]; state h[D]; output y[D]; h'"'"'[d] = log(h[d]) + x[d]; y[d] = h[d] / sqrt(x[d]); }\n' >"$dir/c.cell"
expect 1 "zero state: the cell itself gives final h = -inf at sequence 0, [0], so nothing can be compared" "$cellc" check "$dir/c.cell"
holds "20 failures are printed" test "$(grep -c ^FAILED "$dir/out")" = 20
expect 1 "4 more failures (-v says them all)" "$cellc" check "$dir/c.cell"
"$cellc" check -v "$dir/c.cell" >"$dir/out"
holds "-v prints all failures" test "$(grep -c ^FAILED "$dir/out")" = 24

# selftest: of a spec, with what was wrong in the library that was built; from an install, anywhere.
expect 2 "--dtype takes one of f32, bf16, f16, f64, not 'f8'" "$cellc" selftest swiglu --dtype f8
expect 2 "--dtype takes one of f32, bf16, f16, f64, not 'bf17'; did you mean 'bf16'?" "$cellc" selftest swiglu --dtype "f32 bf17"
expect 2 "--backend takes one of auto, cuda, reference, emulated, not 'gpu'" "$cellc" selftest swiglu --backend gpu
expect 2 "--dump-after takes a SPEC as well" "$cellc" selftest --dump-after lower
expect 1 "no_such_file.cell: does not compile: 0 passed, 1 failed" "$cellc" selftest no_such_file.cell
expect 1 "cell 'swiglu' has no dim 'Q'" "$cellc" selftest swiglu --dim Q=3
printf 'cell masked { dim D; input x[D]; const input mask[D]; const param c[D] ~ ones; param w[D] ~ ones; state h[D]; output y[D];
    h'"'"'[i] = tanh(w[i] * h[i] + c[i] * mask[i] * x[i]); y[i] = h'"'"'[i]; }\n' >"$dir/masked.cell"
"$cellc" selftest "$dir/masked.cell" --dtype f32 --dtype f16 --backend reference >"$dir/said" 2>&1
holds "selftest takes the types that it is given" grep -q '^masked f16: ' "$dir/said"
holds "constants have no gradients" grep -qE '^[0-9]+ passed, 0 failed, [0-9]+ skipped$' "$dir/said"
# Values at jumps are left out and counted; what hangs on roundings everywhere is said and is no failure. The rest is judged.
printf 'cell jumps { dim N; input x[N]; param w[N]; output y[N], z[N];
    y[i] = w[i] * floor(2 * x[i]); z[i] = sin(30000 * x[i]) > 0 ? 1 : 0; }\n' >"$dir/jumps.cell"
"$cellc" selftest "$dir/jumps.cell" --dtype bf16 --backend reference >"$dir/said" 2>&1
holds "roundings that decide a value are no failure" grep -qE '^jumps bf16: [0-9]+ passed, 0 failed, [1-9][0-9]* skipped$' "$dir/said"
holds "selftest says what roundings decide" grep -q 'SKIP z: against the reference: roundings decide it' "$dir/said"
holds "selftest counts what lies at jumps" grep -qE 'note y: against the reference: [0-9]+ of [0-9]+ elements lie' "$dir/said"
cat >"$dir/badcc" <<'SH'
#!/bin/bash
for word; do
    if [[ $word == *_ref.c ]]; then
        sed 's/tanh(/sin(/; s/floor(/rint(/' "$word" >"${word%.c}.bad.c"
        word=${word%.c}.bad.c
    fi
    words+=("$word")
done
exec cc "${words[@]}"
SH
chmod +x "$dir/badcc"
expect 1 "first wrong at step 0" env CC="$dir/badcc" "$cellc" selftest e0 --dtype f64 --backend reference
expect 1 ": y: against the reference: rms error" env CC="$dir/badcc" "$cellc" selftest "$dir/jumps.cell" --dtype bf16 --backend reference
expect 1 "ended without a result" env CC=no_such_compiler "$cellc" selftest e0 --dtype f64 --backend reference
holds "make install" by_default make -s install ${SAN:+SAN=$SAN} PREFIX="$dir/prefix"
(cd "$dir" && prefix/bin/cellc selftest e0 --backend reference) >"$dir/said" 2>&1
holds "an installed cellc tests itself" grep -q '^e0 bf16: [0-9]* passed, 0 failed' "$dir/said"
holds "and nothing fails" grep -qE '^[0-9]+ passed, 0 failed, [0-9]+ skipped$' "$dir/said"

# The commands of README.md and docs/c.md: those lines of their code blocks that start with build/cellc, in a folder where
# they may write.
# What tune measures there is given, with or without a GPU: that measuring works is for other tests.
printf 'gpu GPU\narch 90\nauto times 1 2\n' >"$dir/times"
export CELLC_TUNE_TIMES=$dir/times
mkdir "$dir/clone" && ln -s "$PWD/specs" "$PWD/tests" "$dir/clone" && cp specs/gru.cell "$dir/clone/my.cell"
while read -r line; do
    line=${line%%#*}
    line=${line//-o out/-o $dir/generated}
    line=${line//out\/lib/$dir/generated/lib}
    [[ $line != *.svg* ]] || command -v dot >/dev/null || continue
    [[ $line != *'cellc watch'* ]] || continue        # it goes on until it is stopped: tests/watch
    # Without FULL=1 selftest takes small cells in one type, and nvcc compiles what is built of the cell of
    # the first example.
    if [[ -z ${FULL:-} ]]; then
        line=${line/selftest e79/selftest swiglu}
        line=${line/cellc selftest/cellc selftest --dtype f32}
    fi
    toolkit=${CELLC_NVCC:-}
    [[ -n ${FULL:-} || $line != *'cellc build'* || $line == *gru* ]] || toolkit=none
    # Where the tools of a target are not there, it says so, and no more is to be seen.
    env ${toolkit:+CELLC_NVCC="$toolkit"} bash -c "cd '$dir/clone' && ${line//build\/cellc/$cellc}" >"$dir/out" 2>&1
    rc=$?
    [[ $line != *'--target wasm'* ]] || ! grep -q 'what is missing here' "$dir/out" || continue
    holds "README or docs/c.md: $line: $(head -n 3 "$dir/out")" test "$rc" = 0
done < <(sed -n '/^```/,/^```/p' README.md docs/c.md | grep '^build/cellc' | sed 's/ *#.*//' |
    grep -v 'check specs/e79.cell' | sort -u)
awk '/^cell tiny_gru/, /^}/' README.md >"$dir/tiny.cell"
expect 0 "cell tiny_gru" "$cellc" explain "$dir/tiny.cell"

# The program that docs/c.md shows compiles against the header of the cell that it builds.
sed -n '/^```c$/,/^```$/p' docs/c.md | grep -v '^```' >"$dir/shown"
{
    echo '#include <err.h>'
    grep '^#' "$dir/shown"
    echo 'void call(const float *x, const float *w, const float *wbs, const float *wbm, float *y)'
    echo '{'
    grep -v '^#' "$dir/shown"
    echo '}'
} >"$dir/shown.c"
holds "the program of docs/c.md compiles" ${CC:-cc} -std=c11 -Wall -Wextra -Werror -fsyntax-only -I"$dir/generated" -Iruntime "$dir/shown.c"

# The program of one screen learns what it is to learn, as its head says that it is built.
by_default "$cellc" build --cpu none specs/gru.cell --no-cuda -o "$dir/train" >"$dir/said" 2>&1
holds "examples/train compiles" ${CC:-cc} -std=c11 -Wall -Wextra -Werror -O2 -I"$dir/train" -Iruntime -o "$dir/train/train" \
    examples/train/train.c -L"$dir/train" -lgru -lm -Wl,-rpath,"$dir/train" ${SAN:+-fsanitize=address,undefined}
"$dir/train/train" >"$dir/said" 2>&1
holds "examples/train learns" awk '/^update 400/ { if ($4 < 0.001) good = 1 } /^in/ { n++ } END { exit !(good && n == 8) }' "$dir/said"
# The picture of README.md is what its results give.
if command -v python3 >/dev/null; then
    holds "docs/plots/against_peers.svg is drawn anew" python3 bench/against_peers.py --check
fi

# The mistake that README.md shows, as it is reported.
printf '%s\n' 'cell a {' '    dim D;' '    input  x[D];' '    param  W_x[D, D] ~ xavier;' '    state  h[D];' '    output y[D];' \
    '    y[i] = h[i];' '' "    h'[i] = tanh(sum[j] Wx[i,j] * x[j] + h[i]);" '}' >"$dir/my.cell"
(cd "$dir" && "$cellc" check my.cell) >"$dir/said" 2>&1
holds "README shows what is said" diff "$dir/said" <(sed -n '/^my.cell:/,/^```/p' README.md | grep -v '^```')

# The examples of --help, those that name a spec of ours and do not write.
for c in explain emit; do
    while read -r line; do
        line=${line%%   *}
        line=${line//-o out/-o $dir/generated}
        holds "help of $c: $line" bash -c "${line/#cellc/$cellc}"
    done < <("$cellc" "$c" --help | sed -n '/^examples:/,$p' | grep '^  cellc' | sed 's/^  //')
done

for target in all demo check clean deps install check-random; do
    holds "make help names $target" grep -q "make $target " <(make -s help)
done

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
