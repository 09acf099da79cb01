#!/bin/bash
# `cellc compare`: what is the same and what is not, of texts and of values, and how it is said. Small cells.
# Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
cellc=${CELLC:-$PWD/${BUILD:-build}/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
unset CELLC_HOME
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/said
# shellcheck source=tests/expect.sh
source tests/expect.sh
silent() { # TEXT: the last command did not print it
    if grep -qF -- "$1" "$said"; then fail "said: $1"; else pass; fi
}

cat >"$dir/a.cell" <<'CELL'
cell a {
    dim D, H;
    const k = 2;
    option act = tanh | none;
    input  x[D];
    param  W[H, D], U[H, H], b[H];
    state  h[H];
    output y[H];
    p[i]  = sum[d] W[i,d] * x[d] + b[i];    // a remark
    s[i]  = p[i] + sum[j] U[i,j] * h[j];
    when act == tanh { h'[i] = tanh(s[i]); } else { h'[i] = s[i] / k; }
    y[i]  = h'[i] * h'[i];
}
CELL
# The same with other names, in another order, spelt otherwise; and with a mistake of a billionth.
cat >"$dir/b.cell" <<'CELL'
cell b {
    dim D, N;
    input  x[D];
    param  bias[N];
    param  weight[N, D];
    param  again[N, N];
    state  h[N];
    output y[N];
    y[i] = h'[i]^2;
    h'[i] = 1 - 2 / (exp(2 * s[i]) + 1);
    s[i] = (bias[i] + sum[j] again[i,j] * h[j]) + sum[d] x[d] * weight[i,d];
}
CELL
sed 's/h.\[i\]^2/&  + 1e-9 * h[i]/' "$dir/b.cell" >"$dir/c.cell"
names="--rename H=N,b=bias,W=weight --rename U=again"
compare() { "$cellc" compare "$@"; }
# shellcheck disable=SC2086
expect 0 "outputs, states and gradients are equal in 3 cases of random values (B=2, T=5, D=7, H=5)" \
    compare "$dir/a.cell" "$dir/b.cell" $names
says "  input x[D];"
says "- p[i] = sum[d] W[i,d] * x[d] + b[i];"
says "+ s[i] = (bias[i] + sum[j] again[i,j] * h[j]) + sum[d] x[d] * weight[i,d];"
silent "only"
silent "when"
silent "a remark"
# What is another name only is one line; without the names it has no partner.
says "  param weight[N, D];"
expect 1 "param W is in the first only" compare "$dir/a.cell" "$dir/b.cell"
says "param weight is in the second only"
says "values differ, first in gradient of input x"
# shellcheck disable=SC2086
expect 1 "values differ, first in output y at step 0, sequence 0, [0]:" \
    compare "$dir/a.cell" "$dir/c.cell" $names --brief
says "tolerance "
# The roundings of a coarser type hide it.
# shellcheck disable=SC2086
expect 0 "are equal" compare "$dir/a.cell" "$dir/c.cell" $names --brief --within f32
# A gradient alone: a value that is the same, whose adjoint is another one.
cat >"$dir/grad.cell" <<'CELL'
adjoint fn sq(a; g) = 3 * a * g;
fn sq(a) = a * a;
CELL
sed "s/h'\[i\] \* h'\[i\];/sq(h'[i]);/" "$dir/a.cell" | cat - "$dir/grad.cell" >"$dir/d.cell"
expect 1 "values differ, first in gradient of input x at step 0, sequence 0, [0]:" \
    compare "$dir/a.cell" "$dir/d.cell"
says "gradient of param b "
silent "output y  "
expect 0 "outputs and states are equal in 3 cases" compare "$dir/a.cell" "$dir/d.cell" --no-gradients
# An initial state of the spec is compared as well, and a value that only differs where inputs are large.
sed 's/state  h\[H\]/& = 0.5/' "$dir/a.cell" >"$dir/init.cell"
expect 1 "with random values, initial states of the specs" compare "$dir/a.cell" "$dir/init.cell"
sed 's/p\[i\]  = /&min(30, /; s/ + b\[i\];/ + b[i]);/' "$dir/a.cell" >"$dir/large.cell"
expect 1 "values differ, first in value p at step 1" compare "$dir/a.cell" "$dir/large.cell"
says "with large inputs"

# ---- settings of one spec

expect 1 "values differ, first in value h' at step 0, sequence 0, [0]:" \
    compare "$dir/a.cell" --set act=tanh -- --set act=none
says "- h'[i] = tanh(s[i]);"
says "+ h'[i] = s[i] / k;"
expect 1 "- h'[i] = s[i] / k;" compare "$dir/a.cell" --set act=none -- "$dir/a.cell"
expect 1 "+ const k = 3;" compare "$dir/a.cell" --set act=none -- --set act=none --set k=3
expect 0 "nothing differs" compare "$dir/a.cell" "$dir/a.cell" --no-values
expect 1 "- schedule" compare e79 --dim N=32 -- --dim N=32 --schedule steps --no-values
says "they differ, as shown; values were not compared"
expect 0 "are equal" compare e79 --dim N=8 -- --schedule steps --dim N=8 --brief --no-gradients
expect 1 "+ cell" compare "$dir/a.cell" -- --dtype bf16 --no-values
expect 1 "values differ" compare "$dir/a.cell" -- --reverse --brief
# A dim that only one side binds is the other's too.
expect 0 "D=3, H=4" compare "$dir/a.cell" --dim H=4 -- --dim D=3 --brief

# ---- cells of a file, cells that come with cellc, packs

cat "$dir/a.cell" "$dir/b.cell" >"$dir/two.cell"
# shellcheck disable=SC2086
expect 0 "are equal" compare "$dir/two.cell:a" "$dir/two.cell:b" $names --brief
expect 2 "this file has 2 cells" compare "$dir/two.cell" "$dir/a.cell"
expect 0 "are equal" compare gru specs/gru.cell --brief
"$cellc" sources --pack "$dir/a.cell" >"$dir/a.pack"
expect 0 "are equal" compare --sources "$dir/a.pack" - -- "$dir/a.cell" --brief

# ---- a vector file

expect 0 "outputs, states and gradients are equal on the values of tests/vectors/lstm.vec" \
    compare lstm specs/lstm.cell --vectors tests/vectors/lstm.vec
sed 's/\bweight_ih\b/Wx/g; s/\bf\[a\] \* c\[a\]/0.999999 * &/' specs/lstm.cell >"$dir/lstm.cell"
expect 1 "values differ, first in value c' at step 0, sequence 0, [0]:" \
    compare lstm "$dir/lstm.cell" --rename weight_ih=Wx --vectors tests/vectors/lstm.vec
expect 2 "lstm.vec: error: " compare lstm "$dir/lstm.cell" --vectors tests/vectors/lstm.vec
expect 2 "nosuch.vec" compare lstm lstm --vectors "$dir/nosuch.vec"

# ---- a call, and two columns

expect 1 "a call at B=2,T=4,D=8,H=16,N=16" \
    compare "$dir/a.cell" "$dir/b.cell" --sizes B=2,T=4,D=8,H=16,N=16 --no-values
says "reserve "
expect 2 "--sizes says nothing of H" compare "$dir/a.cell" "$dir/b.cell" --sizes B=2,T=4,D=8,N=16
expect 2 "not 'Q=3'" compare "$dir/a.cell" "$dir/b.cell" --sizes B=2,T=4,D=8,N=16,Q=3
sed 's/param  W/param  when_ever/; s/W\[i,d\]/when_ever[i,d]/' "$dir/a.cell" >"$dir/wide.cell"
expect 1 "param W[H, D];  " compare "$dir/a.cell" "$dir/wide.cell" --width 140 --no-values
says "| param when_ever[H, D];"
if awk 'length > 140 { exit 1 }' "$said"; then pass; else fail "wider than 140"; fi
expect 1 "+ param when_ever[H, D];" env COLUMNS=90 "$cellc" compare "$dir/a.cell" "$dir/wide.cell" --no-values

# ---- JSON

python3 - "$cellc" "$dir" >"$said" 2>&1 <<'PY'
import json, subprocess, sys
cellc, dir = sys.argv[1:]
def run(*words):
    r = subprocess.run([cellc, "compare", *words, "--json"], capture_output=True, text=True)
    return r.returncode, json.loads(r.stdout)
names = "H=N,b=bias,W=weight,U=again"
code, same = run(dir + "/a.cell", dir + "/b.cell", "--rename", names, "--sizes", "B=2,T=4,D=8,H=16,N=16")
values = same["values"]
assert code == 0 and same["same"] and values["equal"] and values["cases"] == 3 and values["gradients"]
assert {"same": True, "first": "param W[H, D];", "second": "param weight[N, D];"} in same["equations"]
assert any(row["label"] == "reserve" for row in same["call"])
assert any(row["label"] == "schedule" for row in same["explained"])
code, other = run(dir + "/a.cell", dir + "/c.cell", "--rename", names)
first = other["values"]["differ"][0]
assert code == 1 and not other["same"]
assert first["what"] == "output y" and first["where"] == "step 0, sequence 0, [0]"
assert first["tolerance"] < abs(first["first"] - first["second"]) < 1e-8
assert other["verdict"].startswith("values differ, first in output y at")
code, none = run(dir + "/a.cell", dir + "/a.cell", "--no-values")
assert code == 0 and none["values"] is None and none["same"]
PY
if [[ -s $said ]]; then fail "JSON"; else pass; fi

# ---- what cannot be compared

expect 2 "takes two specs, or -- between the settings of one; got 1" compare "$dir/a.cell"
expect 2 "takes A B" compare
expect 2 "takes one SPEC in front of -- and at most one behind it" \
    compare "$dir/a.cell" "$dir/b.cell" -- "$dir/b.cell"
expect 2 "takes one argument" compare "$dir/a.cell" -- "$dir/b.cell" "$dir/c.cell"
expect 2 "--rename takes A's name=B's name, not 'x'" compare "$dir/a.cell" "$dir/b.cell" --rename x
expect 2 "--within takes one of f64, f32, f16, bf16, not 'f8'" compare "$dir/a.cell" "$dir/b.cell" --within f8
expect 2 "there is no file 'nosuch'" compare gru nosuch
expect 2 "has no option or constant 'bct'" compare gru -- --set bct=1
sed 's/tanh(s/tanhh(s/' "$dir/a.cell" >"$dir/wrong.cell"
expect 2 "unknown function 'tanhh'; did you mean 'tanh'?" compare "$dir/a.cell" "$dir/wrong.cell"
if ls -d "${TMPDIR:-/tmp}"/cellc-compare* >/dev/null 2>&1; then fail "temporary files"; else pass; fi

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
