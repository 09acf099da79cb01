#!/bin/bash
# Tests `cellc tune` as far as no GPU is needed. In: BUILD, CELLC, CC, CXX; ONLY is a regular expression on instances' names.
# Out: that every candidate which --list prints compiles, and on the emulator gives what the reference does; what is chosen
# when times are given (CELLC_TUNE_TIMES, which stands for the GPU here); the file that keeps it: written, read, stale,
# broken; what build, emit and explain make of it; that nothing is measured without a GPU. The sum is the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/ladder/emulated.sh
source "$here/../ladder/emulated.sh"
cd "$root" || exit 1
out=$build/tests/tune
export VERDICTS=off # candidates are compared by the objects of their instances
rm -rf "$out/given" "$out"/*/results
beside=$out/beside               # objects that candidates are compared with
mkdir -p "$out/given" "$beside"
given=$out/given
nvcc=$("$CELLC" version --verbose | sed -n 's/^nvcc: //p')
unset CELLC_TUNED CELLC_TUNE_TIMES

said=$out/said
# shellcheck source=tests/expect.sh
source "$here/../expect.sh"

# ---- every candidate: SPEC OPTIONS | SIZES

cells() {
    cat <<END
e88 --dim N=9 --dim V=20 --layouts 2 | 1,7,4,2 2,18,3,1
delta --dim N=5 --dim V=7 --dtype bf16 --layouts 2 | 2,5,3 1,18,2
e1 --dtype f32 | 2,3,5
hgrn --dtype f64 | 2,3,5 1,17,3
END
}

list_candidates() {
    local line spec options name schedule n=0 before
    : >"$out/list"
    while read -r line; do
        read -r spec options <<<"${line%% | *}"
        before=$n
        # shellcheck disable=SC2086
        while read -r schedule _; do
            name=${spec}_$((n++))
            [[ $name =~ ${ONLY:-.} ]] || continue
            if "$CELLC" emit "$spec" $(sed 's/--layouts [0-9]*//' <<<"$options") --schedule "$schedule" -o "$out/$name" >"$out/said" 2>&1; then
                passed=$((passed + 1))
                echo "$name $spec ${line##* | }" >>"$out/list"
            else
                fail "cellc emit $spec $options --schedule $schedule"
            fi
        done < <("$CELLC" tune --list "$spec" $options)
        ((n - before > 1)) || fail "cellc tune --list $spec: fewer than two candidates"
    done < <(cells)
}

# What tells right candidates from wrong ones, on the emulator: NAME MODE gives the answer.
compare() {
    local dir=$out/$1 symbols='' part cell sizes source
    read -r _ cell sizes _ < <(grep "^$1 " "$out/list")
    for part in instance ref_forward ref_backward ref_reserve_bytes; do
        symbols+=" -Wl,--defsym=ladder_$part=${cell}_$part"
    done
    for source in bench/call bench/results bench/footprint tests/tune/results; do
        [[ $beside/${source//\//_}.o -nt $root/$source.c ]] ||
            $CC -std=c11 -D_GNU_SOURCE -Wall -Wextra -O1 -fsanitize=address,undefined -I"$root/runtime" -I"$root/bench" \
                -c "$root/$source.c" -o "$beside/${source//\//_}.o" || return 1
    done
    # shellcheck disable=SC2086
    [[ -e $dir/results ]] ||
        $CXX -fsanitize=address,undefined ${EMU_LINKER:-} -Wl,-S "$dir"/{kernels.emulated,host,reference}.o \
            "$beside"/*.o "$out"/common/cell_emu*.o $symbols "$RUNTIME" $LIBS -lpthread -lm -o "$dir/results" || return 1
    ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1 CELL_BACKEND=emulated "$dir/results" "$sizes" "$2" "$out/results"
}

comparisons() { # names of a cell's candidates, the default first
    local name first=$1
    expect 0 saved compare "$first" --save
    for name in "$@"; do
        expect 0 same compare "$name" --against
    done
    # An element of the first tensor as no rounding explains it: what is saved of it begins behind 40 bytes.
    printf '\x40\x46\x40\x46' | dd of="$out/results" bs=1 conv=notrunc seek=40 status=none
    expect 0 "roundings explain" compare "$first" --against
}

list_candidates
if sanitizes; then
    emulate "$out"
    [[ -n ${ONLY:-} ]] || for cell in e88 delta e1; do
        # shellcheck disable=SC2046
        comparisons $(grep -o "^${cell}_[0-9]*" "$out/list")
    done
else
    skipped=$((skipped + 1))
    echo "tune: no C++ compiler with AddressSanitizer (apt-get install g++ brings one)"
fi

# ---- without a GPU

expect 0 "tile:interval=8 " "$CELLC" tune --list e79 --dim N=12
if ! nvidia-smi -L >/dev/null 2>&1; then
    expect 1 "nothing can be measured here; --list prints the candidates" \
        "$CELLC" tune e79 --dim N=12 --sizes B=2,T=3,D=4 -o "$out/given"
    expect 1 "cellc tune: no " "$CELLC" tune e79
    for backend in reference emulated auto; do
        expect 1 "nothing can be measured here" env CELL_BACKEND=$backend "$CELLC" tune e79 --dim N=12 --sizes B=2,T=3,D=4
    done
    [[ ! -e $out/given/e79.tune ]] && passed=$((passed + 1)) || fail "a file without a measurement"
fi
# The program that times a candidate links with a library as tune_run.c does it, and says that there is no GPU.
if [[ $nvcc != none ]] && ! nvidia-smi -L >/dev/null 2>&1; then
    home=${nvcc%/bin/nvcc}
    expect 0 libe1.so "$CELLC" build --cpu none e1 --no-cuda -o "$given"
    printf 'const void *e1_instance(void), *timed_instance(void);\nconst void *timed_instance(void) { return e1_instance(); }\n' \
        >"$given/glue.c"
    expect 0 "" "$CC" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Iruntime -Ibench \
        -isystem "$home/include" "$given/glue.c" bench/time.c "$build/libtime.a" "$given/libe1.so" \
        "-Wl,-rpath,$given" -L"$home/lib64" -L"$home/lib" \
        "-Wl,-rpath,$home/lib64:$home/lib" -lcublas -lcudart -lm -o "$given/time"
    expect 0 "failed the GPU: " "$given/time" 2,3,4 --save "$given/results"
fi
expect 2 "--schedule is what tune finds out" "$CELLC" tune e79 --schedule tile --list
expect 2 "--archs goes with --list" "$CELLC" tune e79 --archs 90
expect 1 "cell 'e79' has no dim 'Q'" "$CELLC" tune e79 --list --dim Q=3

# ---- choosing

times() { # lines for CELLC_TUNE_TIMES
    { echo "gpu NVIDIA H200"; echo "arch 90"; cat; } >"$given/times"
}
tune() { env CELLC_TUNE_TIMES="$given/times" "$CELLC" tune e79 --dim N=12 --layouts 3 "$@"; }
sizes=B=16,T=512,D=1024
mapfile -t layouts < <("$CELLC" tune --list e79 --dim N=12 --layouts 3 | grep -o '^tile:forward=[^ ]*')

times <<<"auto times 1.0 3.0"
expect 2 "--sizes must say what B is, as in --sizes B=16,T=512,D=..." tune
expect 2 "--sizes must say what D is" tune --sizes B=16,T=512
expect 2 "--sizes Q=3: the sizes of e79 are B, T, D and t0" tune --sizes B=16,T=512,Q=3
expect 2 "--sizes takes NAME=N with commas between, not 'D=x'" tune --sizes B=16,T=512,D=x
times <<<"steps times 1.0 3.0"
expect 1 "the default schedule: no time was given" tune --sizes $sizes -o "$given"
[[ ! -e $given/e79.tune ]] && passed=$((passed + 1)) || fail "a file without the default's time"

# What is less than a hundredth faster is not faster.
times <<END
auto times 1.0 3.0
tile:interval=8 times 0.99 2.98
END
expect 0 "chosen, the default, place 2 of " tune --sizes $sizes -o "$given"
expect 0 "schedule auto" cat "$given/e79.tune"

# What gives other results is never chosen, however fast.
times <<END
auto times 1.0 3.0
tile:interval=8 times 1.0 2.9
tile:cluster=2 wrong d_W_kvqm: off by 0.3 where roundings explain 0.002
tile:cluster=4 failed ended without a result
END
expect 70 "a bug in cellc: e79:N=12,bias=fixed,dtype=f32 with --schedule tile:cluster=2 gives other results than the default: d_W_kvqm" \
    tune --sizes $sizes -o "$given"
says "the default, place 2 of "
says "1.034  chosen"
expect 0 "schedule tile:interval=8" cat "$given/e79.tune"
expect 0 "both 2.9 default 3" cat "$given/e79.tune"

# Forward's best layout and backward's, which were timed in different candidates, together; and with --inference forward's alone.
together=tile:forward=$(sed 's/.*forward=\([^:]*\).*/\1/' <<<"${layouts[0]}"):backward=$(sed 's/.*backward=//' <<<"${layouts[1]}")
times <<END
auto times 1.0 3.0
${layouts[0]} times 0.6 2.9
${layouts[1]} times 1.2 2.4
$together times 0.6 1.8
END
expect 0 "schedule $together" bash -c 'env CELLC_TUNE_TIMES="$1/times" "$2" tune e79 --dim N=12 --layouts 3 --sizes "$3" -o "$1" &&
    cat "$1/e79.tune"' - "$given" "$CELLC" $sizes
times <<END
auto times 1.0 3.0
tile:interval=8 times 0.8 3.5
END
expect 0 "tile:interval=8" tune --sizes $sizes -o "$given" --inference
expect 0 "forward 0.8 default 1" cat "$given/e79.tune"

# One entry for each instance, GPU and sizes; one that is written again replaces the first.
expect 0 "e79.tune" tune --sizes B=1,T=9,D=2 -o "$given" --inference
expect 0 "e79.tune" tune --sizes $sizes -o "$given" --inference
expect 0 2 grep -c '^instance' "$given/e79.tune"
expect 0 "sizes $sizes" bash -c 'grep ^sizes "$0" | tail -n 1' "$given/e79.tune"

# ---- taking

expect 0 "cellc: e79: tuned on NVIDIA H200 for $sizes ($given/e79.tune): tile:interval=8" \
    "$CELLC" emit e79 --dim N=12 -o "$given"
"$CELLC" emit e79 --dim N=12 --schedule tile:interval=8 -o "$out/forced" >/dev/null
expect 0 same bash -c 'cmp "$0" "$1" && echo same' "$given/e79.cu" "$out/forced/e79.cu"
expect 0 "tuned on NVIDIA H200 for $sizes" "$CELLC" build --cpu none e79 --dim N=12 --kernels-apart --archs "80 90" -o "$given"
expect 0 same bash -c 'cmp "$0" "$1" && echo same' "$given/e79.cu" "$out/forced/e79.cu"
expect 0 "a checkpoint of the states every 8 steps" "$CELLC" explain --all e79 --dim N=12 --tuned "$given/e79.tune"
says "tuned on NVIDIA H200 for $sizes"
expect 0 "tuned on NVIDIA H200" env CELLC_TUNED="$given" "$CELLC" explain --all e79 --dim N=12
expect 2 "--schedule and --tuned exclude each other" "$CELLC" explain --all e79 --schedule tile --tuned "$given/e79.tune"
expect 2 "--tuned concerns kernels only" "$CELLC" emit e79 --kind header --tuned "$given/e79.tune"
default=$("$CELLC" explain --all e79 --dim N=12 | grep -o 'a checkpoint of the states every [0-9]* steps')
[[ $default != *" 8 steps" ]] || { failed=$((failed + 1)); echo "FAIL: the planner's own interval is the tuned one"; }
expect 0 "$default" env CELLC_TUNED="$given" "$CELLC" explain --all e79 --dim N=12 --schedule auto

none() { # COMMAND...: it succeeds, and says nothing of tuning
    if "$@" >"$out/said" 2>&1 && ! grep -q 'tune' "$out/said"; then passed=$((passed + 1)); else fail "$* is tuned"; fi
}
none env CELLC_TUNED="$given" "$CELLC" explain --all e79 --dim N=12 --dtype bf16
none env CELLC_TUNED="$given" "$CELLC" explain --all e79 --dim N=12 --archs 80
none env CELLC_TUNED="$given" "$CELLC" explain --all e79 --dim N=12 --reverse
none env CELLC_TUNED="$given" "$CELLC" explain --all e88
expect 0 "has no entry for e79:N=12,bias=fixed,dtype=bf16: its schedule is the planner's" \
    "$CELLC" explain --all e79 --dim N=12 --dtype bf16 --tuned "$given/e79.tune"
expect 1 "cannot open '$given/none.tune'" "$CELLC" explain --all e79 --tuned "$given/none.tune"

# The same program under another name and with other comments is tuned; another one is not.
sed '1i // another comment' specs/e79.cell >"$given/e79.cell"
expect 0 "tuned on NVIDIA H200" env CELLC_TUNED="$given" "$CELLC" explain --all "$given/e79.cell" --import-dir specs --dim N=12
sed 's/tanh(/sigmoid(/; s/sigmoid(/tanh(/2' specs/e79.cell >"$given/e79.cell"
if cmp -s specs/e79.cell "$given/e79.cell"; then
    sed 's/sigmoid(/tanh(/' specs/e79.cell >"$given/e79.cell"
fi
expect 0 "warning: e79:N=12,bias=fixed,dtype=f32 has changed since it was tuned, so this entry is ignored; run \`cellc tune\` again" \
    env CELLC_TUNED="$given" "$CELLC" explain --all "$given/e79.cell" --import-dir specs --dim N=12

# Broken files, and a schedule that is none any more.
broken() { # EDIT TEXT: sed's, and what is said, with its place
    sed "$1" "$given/e79.tune" >"$given/broken.tune"
    expect 1 "broken.tune:$2" "$CELLC" explain --all e79 --dim N=12 --tuned "$given/broken.tune"
}
broken '3s/.*/instants e79/' "3:1: error: there is no line 'instants' in an entry; \`cellc tune\` writes such files"
broken 3d "3:1: error: an entry begins with 'instance', not 'program'"
broken '4s/.*/program/' "4:1: error: nothing stands behind 'program'"
broken 4d "3:1: error: this entry has no line 'program'"
broken 4p "5:1: error: this entry has two lines 'program'"
broken '9s/.*/forward fast/' "9:1: error: 'forward' has milliseconds as in '1.25 default 1.5', not 'fast'"
broken 's/^schedule .*/schedule tile:interval=x/' "17:1: error: a schedule tile:interval takes 1 to 16 steps, not 'x'"
# Of several architectures a library's plan is for the one whose blocks have most memory, and so is what is taken.
{ cat "$given/e79.tune"; sed 's/^arch .*/arch 80/; s/^gpu .*/gpu NVIDIA A100/; s/^schedule .*/schedule steps/' "$given/e79.tune"; } \
    >"$given/two.tune"
for archs in 90 "80 90" "80 86 89 90" "90 80"; do
    expect 0 "tuned on NVIDIA H200" "$CELLC" explain --all e79 --dim N=12 --tuned "$given/two.tune" --archs "$archs"
done
for archs in 80 "80 86"; do
    expect 0 "tuned on NVIDIA A100" "$CELLC" explain --all e79 --dim N=12 --tuned "$given/two.tune" --archs "$archs"
done
sed 's/^schedule .*/schedule gemm/' "$given/e79.tune" >"$given/old.tune"
expect 0 "cannot be planned any more: --schedule gemm needs a product with a param in every step; e79 has none" \
    "$CELLC" explain --all e79 --dim N=12 --tuned "$given/old.tune"
says "schedule tile"
echo "not a file of ours" >"$given/e79.tune"
times <<<"auto times 1.0 3.0"
expect 1 "nothing was measured, as nothing could be written to $given/e79.tune" tune --sizes $sizes -o "$given"
expect 0 "not a file of ours" cat "$given/e79.tune"
finish
