#!/bin/bash
# What cellc takes for specs of up to about 6 kB, whatever they are: shapes.sh has specs in which everything
# is shared, nested or many. Each compilation may take 5 s of CPU, on a slower machine more (tests/pace.sh),
# 1 GB of addresses and 2 MB of output. A walk that looks at shared parts again and again, or text that is
# printed again wherever it is used, doubles with each of at least 24 levels, so it takes hours and
# terabytes instead. Then the limits: each is an error with its number, which docs/language.md has as well.
# In: CELLC or BUILD; arguments: only these shapes. Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cellc=${CELLC:-$root/${BUILD:-build}/cellc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
said=$out/said
# shellcheck source=tests/expect.sh
source "$root/tests/expect.sh"
# shellcheck source=tests/pace.sh
source "$root/tests/pace.sh"
# shellcheck source=tests/stress/shapes.sh
source "$here/shapes.sh"
# AddressSanitizer reserves terabytes of addresses and is several times slower.
seconds=$(paced 5) kilobytes=1048576
[[ $cellc == *build-san* ]] && seconds=60 kilobytes=unlimited

# within NAME COMMAND...: its exit code; 2 and more is a failure
within() {
    local name=$1 rc
    shift
    (ulimit -t $seconds -v $kilobytes; exec "$cellc" "$@") >"$said" 2>&1 </dev/null
    rc=$?
    ((rc <= 1)) || fail "$name: cellc ${*//$out\//} ends with $rc"
    return $rc
}

# What is beyond a limit, and what is said of it; all others compile.
beyond() {
    case $1 in
    fn_history) echo "with its gradient it has more than 500000 values" ;;
    fns_wide) echo "more than 200000 operations after expansion" ;;
    repeat*) echo "arrays in memory; at most 512" ;;
    definitions | params | parts | parts_of_definitions | states_chain | states_products | states_scan)
        echo "arrays, and a kernel takes 96" ;;
    esac
}

# Kernels of values over the past print what they are made of in its place, up to 300 operations each.
most_bytes() {
    case $1 in
    attention) echo 8000000 ;;
    *) echo 2000000 ;;
    esac
}

shape() {
    local name=$1 spec=$out/$1.cell text bytes schedule command
    "shape_$name" >"$spec"
    text=$(beyond "$name")
    rm -rf "$out/files"
    if within "$name" emit "$spec" -o "$out/files"; then
        bytes=$(cat "$out/files"/* | wc -c)
        if [[ -n $text ]]; then
            fail "$name compiles, and should be refused: $text"
        elif ((bytes > $(most_bytes "$name"))); then
            fail "$name: $bytes bytes of output"
        else
            pass
        fi
    elif [[ -n $text ]]; then
        says "$text"
    else
        fail "$name does not compile"
    fi
    [[ $name == repeat* || $name == fn* ]] && return
    for schedule in steps scan tile gemm window; do
        within "$name" emit "$spec" --kind cuda --schedule $schedule
        (($? > 1)) || pass
    done
    for command in fmt explain graph; do
        if within "$name" $command "$spec"; then pass; else fail "$name: $command fails"; fi
    done
    within "$name" run "$spec" --dim N=2 --dim V=3 --steps 2
    (($? > 1)) || pass
}

if (($#)); then
    names=("$@")
else
    mapfile -t names < <(declare -F | sed -n 's/^declare -f shape_//p')
fi
for name in "${names[@]}"; do
    [[ $name == repeat ]] || shape "$name"      # that one is a part of others
done

# limit WORDS SAID [COMMAND...]: the spec on stdin is refused with SAID, and the table of docs/language.md has
# WORDS.
limit() {
    local command=("${@:3}")
    ((${#command[@]})) || command=(emit -o "$out/files")
    cat >"$out/limit.cell"
    if within limit "${command[@]}" "$out/limit.cell"; then
        fail "compiles beyond the limit: $2"
    else
        says "$2"
    fi
    if sed -n '/^## Limits/,$p' "$root/docs/language.md" | grep -qF "$1"; then pass; else fail "docs/language.md has no '$1'"; fi
}
cell() { printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n%s\n}\n' "$1"; }
# COUNT BODY: f1 to fCOUNT-1 by their body, in which %d is the number of the one before.
fns() { local k; for ((k = 1; k < $1; k++)); do printf "fn f%d(u) = $2; " $k $((k - 1)); done; }
listed() { local k; for ((k = $2; k < $3; k++)); do printf '%s%d%s' "$1" "$k" "$4"; done; }     # A FROM TO B: A0B A1B ...

if ((!$#)); then
    for ((k = 0; k < 65; k++)); do echo "fn f$k(u) = u;" >"$out/many$k.cell"; done
    limit '64 files are imported' 'more than 64 files are imported' < <(listed 'import "many' 0 65 '.cell"; '; cell 'y[i] = x[i];')
    limit '256; 2000 levels' '256 levels of brackets and blocks are the limit' < <(
        cell "y[i] = $(times '(' 257)x[i]$(times ')' 257);")
    limit '2000 levels of an expression' '2000 levels are the limit' < <(cell "y[i] = $(times '-' 2001)x[i];")
    limit '| 20 |' 'more than 20 dims' < <(
        cell "$(for ((k = 0; k < 20; k++)); do printf 'dim D%d; input x%d[D%d]; ' $k $k $k; done) y[i] = x[i];")
    limit '8 (7 of a complex' 'at most 8 are possible' < <(cell "input z[1$(times ', 1' 8)]; y[i] = x[i];")
    limit '| 32,' 'more than 32 indices' < <(cell "y[i] = $(listed 'sum[k' 0 33 ':2] ')($(listed 'k' 0 33 ' + ')x[i]);")
    # More iterations than values may wait for each other: each is computed when the one before it is there.
    cell "repeat k:4096 { carry a[N] = 0; b[i:N] = a[i] + 0.25; a'[i] = b[i] + x[i]; }
        y[i] = a[i] - 4096 * x[i];" >"$out/many.cell"
    within 'iterations' run "$out/many.cell" --dim N=1 --steps 1 --batch 1
    says '1024'
    # A step that the reference computes in several functions; check compiles it, which counts for no more than its
    # time.
    if "$cellc" emit --kind c "$here/many_iterations.cell" 2>"$said" | grep -q 'step_backward_parts\['; then
        pass
    else
        fail 'no parts'
    fi
    "$cellc" check "$here/many_iterations.cell" --dim N=3 >"$said" 2>&1 || fail 'many_iterations: check fails'
    says ' 0 failed'
    limit '| calls inside each other | 64 |' 'more than 64 calls inside each other' < <(
        cell "fn f0(u) = u; $(fns 66 'f%d(u)') y[i] = f65(x[i]);")
    limit '| 4096 |' 'from 0 to 4096 iterations' < <(
        cell "repeat n:4097 { carry a[N] = x[i]; a'[i] = a[i]; } y[i] = a[i];")
    limit '8 MB' 'it has more than 8 MB' < <(cell 'y[i] = x[i];'; head -c 9000000 /dev/zero | tr '\0' ' ')
    limit '| 128 characters |' '128' < <(cell "$(times a 129)[i:N] = x[i]; y[i] = x[i];")
    limit '| 2^28, 2^48 |' '2^28 is the largest' < <(cell 'dim M = 268435457; input z[M]; y[i] = x[i] + z[0];')
    limit '| places that constant' 'at most 4096' < <(cell 'z[5000] = 1; y[i] = x[i] + sum[k] z[k];')
    limit '4000 inside each other, through' 'inside each other' < <(
        cell "fn f0(u) = u; $(fns 6 "$(times '-' 1000)f%d(u)") y[i] = f5(x[i]);")
    limit '| values that a `grad`' 'makes more than 10000 values' < <(
        cell "fn f0(u) = tanh(u) * u; $(fns 10 'grad(f%d(u) * u, u)') y[i] = f9(x[i]);")
    limit '512, and as many' '4095 arrays in memory; at most 512' < <(shape_repeat_shared)
    limit '96: an equation' 'arrays, and a kernel takes 96' < <(shape_params)
    limit '| values that wait for each other there | 4000' 'more than 4000 values wait for each other' \
        run --dim N=2 --steps 1 < <(
        cell "z[i] = x[i]; repeat k:4096 { carry a[N] = z[i]; a'[i] = a[i] + 0.001 * x[i]; }
            y[i] = grad(a[i] * a[i], z[i]);")
    limit '2^28 elements of all' 'more than 268435456 elements' run --dim N=2 --steps 1 < <(
        cell 'z[j:16384, k:32768] = x[0] + j * k; y[i] = x[i] + z[7,i + 1];')
    limit '| 256: inputs' 'at most 256' < <(cell "$(listed 'input p' 0 129 '; ') y[i] = x[i] + $(listed 'p' 0 129 ' + ')0;")
fi
echo "$passed passed, $failed failed"
((failed == 0))
