#!/bin/bash
# As fast however it is written: each line of the table is a term of a step in two spellings, of which the
# second is a matrix product as a GEMM takes it, and perhaps a definition that it needs. Both must have the
# same schedule, the same number of operations and the same work, and nothing may be said to be slow.
set -u
cd "$(dirname "$0")/../.." || exit 1
cellc=${CELLC:-$PWD/${BUILD:-build}/cellc}
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cell() { # TERM, DEFINITION: a cell with it
    cat <<END
cell spelled {
    dim D;
    dim H;

    input x[D], z[H];
    param W[H, D] ~ xavier, R[H, H] ~ orthogonal, Q[H, H] ~ xavier, b[H] ~ zeros, g[H] ~ normal(1);
    state h[H], s;
    output y[H];

    $2
    h'[i] = tanh(sum[d] W[i,d] * x[d] + $1 + b[i] + z[i] + 0 * sum[j] Q[i,j] * g[j]);
    s' = 0.5 * s + x[0];
    y[i] = h'[i];
}
END
}

rows() { # SPEC, options: what the planner made of it
    "$cellc" explain "$@" 2>"$work/said" | sed -n '/^  schedule/,$p' | tr '\n' ' ' | tr -s ' ' |
        grep -oE ' (schedule [a-z]+|operations .* work .* memory)'
    grep -oE '[0-9:]+ performance warning: (forward|every).*' "$work/said" # not that no kernel walks: s forbids it
}

compare() { # WHAT, options
    rows "$work/a.cell" "${@:2}" >"$work/a"
    rows "$work/b.cell" "${@:2}" >"$work/b"
    if grep -q 'schedule gemm' "$work/b" && diff "$work/a" "$work/b" &&
        ! grep -q 'performance warning' "$work/a"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1 ${*:2}: not as fast as its other spelling"
    fi
}

while IFS='|' read -r term plain definition; do
    cell "$term" "" >"$work/a.cell"
    cell "$plain" "$definition" >"$work/b.cell"
    for dtype in f32 bf16; do
        compare "$term" --dtype "$dtype"
    done
done <<'END'
sum[j] R[i,j] * h[j] * 0.5|0.5 * sum[j] R[i,j] * h[j]
sum[j] 0.5 * R[i,j] * h[j]|0.5 * sum[j] R[i,j] * h[j]
sum[j] h[j] * R[i,j] / sqrt(H)|1 / sqrt(H) * sum[j] R[i,j] * h[j]
sum[j] R[i,j] * h[j] * s|s * sum[j] R[i,j] * h[j]
sum[j] R[i,j] * h[j] * g[i]|g[i] * sum[j] R[i,j] * h[j]
sum[j] R[i,j] * z[i] * h[j] / (1 + g[i]^2)|z[i] / (1 + g[i]^2) * sum[j] R[i,j] * h[j]
sum[j] -R[i,j] * h[j]|-sum[j] R[i,j] * h[j]
sum[j] R[i,j] * -h[j]|-sum[j] R[i,j] * h[j]
sum[j] R[i,j] * (g[j] * h[j])|sum[j] R[i,j] * v[j]|v[j:H] = g[j] * h[j];
sum[j] R[i,j] * g[j] * h[j]|sum[j] R[i,j] * v[j]|v[j:H] = g[j] * h[j];
sum[j] R[i,j] * tanh(h[j])|sum[j] R[i,j] * v[j]|v[j:H] = tanh(h[j]);
sum[j] R[i,j] * (h[j] + g[j])|sum[j] R[i,j] * v[j]|v[j:H] = h[j] + g[j];
sum[j] (R[i,j] * h[j] + Q[i,j] * z[j])|sum[j] R[i,j] * h[j] + sum[j] Q[i,j] * z[j]
sum[j] (R[i,j] * h[j] - Q[i,j] * z[j] * 2)|sum[j] R[i,j] * h[j] - 2 * sum[j] Q[i,j] * z[j]
sum[j] R[j,i] * h[j] * 0.5|0.5 * sum[j] R[j,i] * h[j]
sum[j,k] R[i,j] * Q[j,k] * h[k]|sum[j] R[i,j] * v[j]|v[j:H] = sum[k] Q[j,k] * h[k];
sum[k,j] h[k] * Q[j,k] * g[j] * R[i,j] * 0.5|0.5 * sum[j] R[i,j] * v[j]|v[j:H] = g[j] * sum[k] Q[j,k] * h[k];
sum[j,k,l] R[i,j] * Q[j,k] * R[k,l] * -h[l]|-sum[j] R[i,j] * v[j]|v[j:H] = sum[k] Q[j,k] * (sum[l] R[k,l] * h[l]);
sum[j,k] (R[i,j] * Q[j,k] * h[k] - R[i,j] * z[j])|sum[j] R[i,j] * v[j] - H * sum[j] R[i,j] * z[j]|v[j:H] = sum[k] Q[j,k] * h[k];
sum[j] R[i,j] * (h[j] > 0 ? h[j] : 0)|sum[j] R[i,j] * v[j]|v[j:H] = h[j] > 0 ? h[j] : 0;
sum[j] (z[j] > 0 ? R[i,j] * h[j] : 0)|sum[j] R[i,j] * v[j]|v[j:H] = z[j] > 0 ? h[j] : 0;
sum[j] (s > 0 ? R[i,j] * h[j] : 0)|(s > 0 ? sum[j] R[i,j] * h[j] : 0)
sum[j] R[i,j] * (z[i] > s ? h[j] : 0)|(z[i] > s ? sum[j] R[i,j] * h[j] : 0)
sum[j] R[i,j] * h[j] * (s > 0 ? 1 : 0)|(s > 0 ? 1 : 0) * sum[j] R[i,j] * h[j]
sum[j] (j != i ? R[i,j] * h[j] : 0)|sum[j] M[i,j] * h[j]|M[i:H,j:H] = j != i ? R[i,j] : 0;
sum[j] R[i,j] * (j < i ? h[j] : 0)|sum[j] M[i,j] * h[j]|M[i:H,j:H] = j < i ? R[i,j] : 0;
sum[j] (j < i ? R[i,j] * h[j] : Q[i,j] * h[j])|sum[j] M[i,j] * h[j]|M[i:H,j:H] = j < i ? R[i,j] : Q[i,j];
sum[j] (z[j] > 0 ? R[i,j] * h[j] : 0.5 * R[i,j] * h[j])|sum[j] R[i,j] * v[j]|v[j:H] = (z[j] > 0 ? 1 : 0.5) * h[j];
sum[j] (z[j] > 0 ? R[i,j] : Q[i,j]) * h[j]|sum[j] R[i,j] * v[j] + sum[j] Q[i,j] * w[j]|v[j:H] = z[j] > 0 ? h[j] : 0; w[j:H] = z[j] > 0 ? 0 : h[j];
sum[j] (s > 0 ? R[i,j] * h[j] : Q[i,j] * z[j])|(s > 0 ? sum[j] R[i,j] * h[j] : 0) + (s > 0 ? 0 : sum[j] Q[i,j] * z[j])
sum[j] (s * R[i,j] + (1 - s) * Q[i,j]) * h[j]|s * sum[j] R[i,j] * h[j] + (1 - s) * sum[j] Q[i,j] * h[j]
sum[j] (R[i,j] - z[i] * Q[i,j]) * h[j]|sum[j] R[i,j] * h[j] - z[i] * sum[j] Q[i,j] * h[j]
sum[j] (z[j] * R[i,j] + Q[i,j]) * h[j]|sum[j] R[i,j] * v[j] + sum[j] Q[i,j] * h[j]|v[j:H] = z[j] * h[j];
sum[j] R[i,j] * h[H-1-j]|sum[j] M[i,j] * h[j]|M[i:H,j:H] = R[i,H-1-j];
sum[j] R[i,j] * h[(j + 1) % H]|sum[j] M[i,j] * h[j]|M[i:H,j:H] = R[i,(j - 1) % H];
sum[j] R[(i + 1) % H,j] * h[j]|sum[j] M[i,j] * h[j]|M[i:H,j:H] = R[(i + 1) % H,j];
sum[j] R[H-1-i,j] * h[j]|sum[j] M[i,j] * h[j]|M[i:H,j:H] = R[H-1-i,j];
sum[j] g[(i - j) % H] * h[j]|sum[j] M[i,j] * h[j]|M[i:H,j:H] = g[(i - j) % H];
END
# A product of the input that a factor of the state would keep in the steps is made for all steps.
cell 'sum[j] R[i,j] * h[j] + sum[d] Q[i,d] * z[d] * h[i]' '' >"$work/a.cell"
cell 'sum[j] R[i,j] * h[j] + h[i] * sum[d] Q[i,d] * z[d]' '' >"$work/b.cell"
compare 'sum[d] Q[i,d] * z[d] * h[i]'

# Cells as papers have them (cell paper) and as one would write them for the compiler (cell plain): both
# right by the evaluator, and with the same operations, but for those that are done once in a call.
result() { # status, message
    if [[ $1 == 0 ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$2"
    fi
}

# Of each direction the kinds of its operations, and whether one kernel walks the steps.
operations() {
    grep -E '^ +schedule |^ +one kernel walks' "$1"
    awk '/^(forward|backward): operations/ { direction = $1; table = 1; next }
         /^ +line +value/ { table = 0 }
         table && $1 ~ /^[0-9]+$/ && $2 != "once" && $0 !~ / once  / { print direction, $2, $3 }' "$1" | sort | uniq -c
}

for file in tests/spelling/*.cell; do
    for cell in paper plain; do
        out=$("$cellc" check "$file:$cell" 2>&1)
        result $? "$file:$cell is wrong: $(tail -n 1 <<<"$out")"
        "$cellc" explain "$file:$cell" --all >"$work/$cell" 2>"$work/$cell.err"
        result $? "$file:$cell: $(head -n 1 "$work/$cell.err")"
        ! grep -q 'performance warning' "$work/$cell.err"
        result $? "$file:$cell is said to be slow"
        operations "$work/$cell" >"$work/$cell.operations"
        "$cellc" explain "$file:$cell" --all --dtype bf16 2>"$work/$cell.err" >"$work/$cell"
        operations "$work/$cell" >>"$work/$cell.operations"
    done
    grep -q schedule "$work/plain.operations" && diff "$work/plain.operations" "$work/paper.operations" >"$work/diff"
    result $? "$file: other operations for what the paper writes (>):
$(sed 's/^/    /' "$work/diff")"
done

# Columns of a sequence that share a param: whichever factor is written first, with a name or without, one kernel
# walks the steps.
columns() { # TERM, DEFINITION
    cat <<END
cell columns {
    dim N, M;
    input x[N];
    param R[N, N] ~ orthogonal, c[M] ~ ones;
    state h[M, N];
    output y[N];
    $2
    h'[n,i] = tanh(x[i] + $1);
    y[i] = sum[n] c[n] * h'[n,i];
}
END
}
columns 'u[n,i]' 'u[n:M, i:N] = sum[j] h[n,j] * R[i,j];' >"$work/plain.cell"
for term in 'sum[j] R[i,j] * h[n,j]' 'sum[j] h[n,j] * R[i,j]'; do
    columns "$term" '' >"$work/paper.cell"
    for cell in plain paper; do
        "$cellc" explain "$work/$cell.cell" --all --dtype bf16 >"$work/$cell" 2>/dev/null
        operations "$work/$cell" >"$work/$cell.operations"
    done
    [[ $(grep -c 'one kernel walks' "$work/plain.operations") == 2 ]] &&
        diff "$work/plain.operations" "$work/paper.operations" >"$work/diff"
    result $? "$term: other operations than with a name:
$(sed 's/^/    /' "$work/diff")"
done

# Params transformed, by a definition or in the sum: what sequences and steps add up of a param's gradient is
# a product, and what is done to the matrix is done once a call. No kernel goes over the matrix for each
# sequence and step.
transformed() { # TERM, DEFINITION
    cat <<END
cell transformed {
    dim D, H;
    input x[D];
    param W[H, D] ~ xavier, R[H, H] ~ orthogonal, Q[H, H] ~ xavier, g[H] ~ normal(1);
    state h[H];
    output y[H];
    $2
    h'[i] = tanh(sum[d] W[i,d] * x[d] + $1);
    y[i] = h'[i];
}
END
}
while read -r matrix; do
    transformed 'sum[j] V[i,j] * h[j]' "V[i:H, j:H] = $matrix;" >"$work/named.cell"
    transformed "sum[j] $matrix * h[j]" '' >"$work/inside.cell"
    for cell in named inside; do
        for dtype in f32 bf16; do
            "$cellc" explain "$work/$cell.cell" --all --dtype $dtype >"$work/$cell" 2>/dev/null
            [[ $(grep -c 'one kernel walks' "$work/$cell") -ge 2 ]] &&
                ! awk '/^ +line +value/ { table = 0 } /: operations/ { table = 1 }
                       table && ($3 == "row" || $3 == "column") && /\*H\*H/ && !/ once /' "$work/$cell" | grep .
            result $? "$matrix, $cell: in $dtype, a kernel goes over the matrix for each sequence and step"
        done
    done
done <<'END'
g[i] * R[i,j] / sqrt(sum[k] R[i,k]^2)
g[i] * R[i,j]
R[i,j] / (sum[k] abs(R[i,k]))
R[i,j] * rsqrt((mean[k] R[k,j]^2) + 1e-6)
R[i,j] / sqrt(sum[k,l] R[k,l]^2)
(R[i,j] - (mean[k] R[i,k])) * g[i]
softmax[j] R[i,j]
tanh(R[i,j]) * g[j]
R[i,j] / max(1, g[i])
R[i,j] * Q[i,j]
(sum[k] R[i,k] * Q[k,j])
(sum[k] R[i,k] * R[j,k])
END

# So is a matrix of each head.
cat >"$work/heads.cell" <<'END'
cell heads {
    dim G, N;
    input x[G, N];
    param U[G, N, N] ~ orthogonal, g[G, N] ~ ones;
    state h[G, N];
    output y[G, N];
    V[a:G, r:N, j:N] = g[a,r] * U[a,r,j] / sqrt(sum[k] U[a,r,k]^2);
    h'[a,i] = tanh(x[a,i] + sum[j] V[a,i,j] * h[a,j]);
    y[a,i] = h'[a,i];
}
END
for dtype in f32 bf16; do
    "$cellc" explain "$work/heads.cell" --all --dtype $dtype >"$work/heads" 2>/dev/null
    grep -q 'product .*d_U' "$work/heads" &&
        ! awk '/: operations/ { table = 1 } /^ +line +value/ { table = 0 }
               table && ($3 == "row" || $3 == "column") && /\*N\*N/ && !/ once /' "$work/heads" | grep .
    result $? "matrices of heads: in $dtype, a kernel goes over them for each sequence and step"
done

# Products of several states that are added up: in whatever order a step makes their next values, one kernel walks
# the steps, and a step has the same operations.
states() { # DEFINITIONS
    cat <<END
cell states {
    dim D, H;
    input x[D];
    param W[H, D] ~ xavier, R[H, H] ~ orthogonal, Q[H, 2*H] ~ xavier;
    state h[H], c[H];
    output y[H];
    $1
    y[i] = h'[i];
}
END
}
c="c'[i] = 0.5 * c[i] + h[i];"
terms='sum[d] W[i,d] * x[d] + sum[j] R[i,j] * h[j]'
for term in 'sum[j] R[j,i] * c[j]' 'sum[j] Q[i,2*j] * c[j]' 'sum[j] Q[i,j+H] * tanh(c[j])'; do
    h="h'[i] = tanh($terms + $term);"
    states "$h $c" >"$work/plain.cell"
    states "$c $h" >"$work/paper.cell"
    for cell in plain paper; do
        "$cellc" explain "$work/$cell.cell" --all --dtype bf16 >"$work/$cell" 2>"$work/$cell.err"
        operations "$work/$cell" >"$work/$cell.operations"
    done
    [[ $(grep -c 'one kernel walks' "$work/plain.operations") -ge 2 ]] &&
        ! grep 'warning: .*each step starts' "$work/paper.err" &&
        diff "$work/plain.operations" "$work/paper.operations" >"$work/diff"
    result $? "$term: other operations where the state c is made first:
$(sed 's/^/    /' "$work/diff" "$work/paper.err")"
done

# ---- params apart, or stacked

# Beside what is done once and what copies the gradients: the schedule, and the kernels that walk, of which
# the general one (with the weights of its products) may be any other; the operations of a step, and of what
# is done for all steps the products, each with a number; the sums of a step of a walk on chip, which are
# more where backward does not find saved what it wants.
kernels() {
    grep -E '^schedule |^ +one kernel walks' "$1" | grep -v ', with the weights of' | sed 's/ in [0-9]*$/ in/'
    grep -oE 'one kernel walks the [a-z]+ steps' "$1" | sort -u
    grep -oE '[a-z]+_walk: [0-9]+ reductions in [0-9]+ levels' "$1" | sort -u
    awk '/^(forward|backward): operations/ { direction = $1; table = 1; next }
         /^ +line +value/ { table = 0 }
         table && $1 ~ /^[0-9]+$/ && ($2 == "during" || $3 == "product") {
             n[direction " " $2 " " $3]++
         }
         END { for (what in n) print what, n[what] }' "$1"
}

# Of STACKED, APART: the same schedule, each kernel that walks, and no more operations of any kind.
as_good() {
    awk 'function is_number(s) { return s ~ /^[0-9]+$/ }
         NR == FNR { if (is_number($NF)) { most[$1 $2 $3] = $4 } else { wanted[$0] = 1 } next }
         is_number($NF) { if ($4 > most[$1 $2 $3] + 0) { print "more: " $0; bad = 1 } next }
         { found[$0] = 1; any = 1 }
         END {
             for (line in wanted) if (!(line in found)) { print "not found: " line; bad = 1 }
             exit bad || !any
         }' "$1" "$2"
}

same_kernels() { # WHAT, options: apart.cell has those of stacked.cell
    local what=$1 text dtypes=(f32 bf16)
    shift
    turn=$((turn + 1))
    [[ -n ${FULL:-} ]] || dtypes=("${dtypes[turn % 2]}")
    for dtype in "${dtypes[@]}"; do
        for text in apart stacked; do
            "$cellc" explain "$work/$text.cell" --import-dir specs --all --dtype $dtype "$@" \
                >"$work/$text" 2>"$work/$text.err"
            kernels "$work/$text" >"$work/$text.kernels"
        done
        as_good "$work/stacked.kernels" "$work/apart.kernels" >"$work/diff"
        result $? "$what $*: in $dtype, params apart have other kernels:
$(sed 's/^/    /' "$work/diff" "$work/apart.err")"
    done
}

# The reference's gradients follow from the text: what is compared here is whether the texts say the same.
gradients=(--no-gradients)
[[ -n ${FULL:-} ]] && gradients=()
same_values() { # WHAT, SPEC, SPEC, options
    local said
    said=$("$cellc" compare "$2" "$3" --import-dir specs --brief -Wno-performance "${gradients[@]}" \
        "${@:4}" 2>&1)
    result $? "$1 ${*:4}: $said"
}

# Of a direction of the plan for CALLS, what a step launches: products that go together are one.
step_launches() { # SPEC, CALLS, options
    "$cellc" emit "$1" --import-dir specs --dump-after together "${@:3}" 2>/dev/null |
        awk -v calls="$2" '
            /^plan after/ { on = index($0, " calls " calls " ") }
            on && /^(forward|backward)$/ { way = $1 }
            on && /^group / && $4 == "during" {
                what = $2
                if (match($0, / together [0-9]+/)) what = substr($0, RSTART, RLENGTH)
                if (!seen[way what]++) n[way]++
            }
            END { print n["forward"] + 0, n["backward"] + 0 }'
}

# Calls of few steps, which lay no params together, launch as much for a step as with one param; backward
# adds up what the products gave by a kernel more.
few_steps() { # WHAT, options
    local one apart dtype
    for dtype in f32 bf16 f64; do
        one=$(step_launches "$work/stacked.cell" any --dtype $dtype "${@:2}")
        apart=$(step_launches "$work/apart.cell" short --dtype $dtype "${@:2}")
        ((${apart% *} > 0 && ${apart% *} <= ${one% *} && ${apart#* } <= ${one#* } + 1))
        result $? "$*: in $dtype, calls of few steps launch $apart for a step (forward, backward), with one param $one"
    done
}

# What no other text of the same step would make faster is said by explain.
says() { # FILE, WORDS, options
    "$cellc" explain "$1" --all "${@:3}" 2>/dev/null | tr '\n' ' ' | tr -s ' ' | grep -qF "$2"
}
cat >"$work/dots.cell" <<'END'
cell dots {
    dim H;
    input x[H];
    param R[H, H] ~ orthogonal, u[H] ~ normal(1), v[H] ~ normal(1);
    state h[H], c[H];
    output y[H];

    f = sigmoid(sum[j] u[j] * h[j]);
    g = sigmoid(sum[j] v[j] * c[j]);
    h'[i] = f * h[i] + g * tanh(x[i] + sum[j] R[i,j] * h[j]);
    c'[i] = g * c[i] + h'[i];
    y[i] = h'[i];
}
END
sed 's/sum\[j\] v\[j\] \* c/sum[j] v[j] * h/' "$work/dots.cell" >"$work/dots_of_one.cell"
for dtype in f32 bf16; do
    says "$work/dots.cell" '2 products of a step give one number each, of different vectors (`c`, `h`)' --dtype $dtype
    result $? "explain does not say in $dtype that two dot products are of different vectors"
    ! says "$work/dots_of_one.cell" 'of different vectors' --dtype $dtype
    result $? "explain says in $dtype that two dot products of one vector are of different ones"
    "$cellc" explain specs/e7.cell --all --dtype $dtype 2>/dev/null | grep -q ' row  *- .* once .*d_H2, d_X2;'
    result $? "the gradients of e7 are not summed over the steps first in $dtype"
    ! says specs/lstm.cell 'no product gives the gradient' --dtype $dtype
    result $? "explain says in $dtype that gradients of an LSTM are no products"
done

turn=0
# Products of several vectors in one sum, of one gate or of three, each with another param: the kernels of
# the product of a concatenation.
concatenated() { # text, GATES, PARAMS, SUM: of gate number @
    echo "cell concatenated {"
    echo "    dim D, H;"
    echo "    input x[D];"
    echo "    param W[$2*H, D] ~ xavier, $3;"
    echo "    state h[H], c[H];"
    echo "    output y[H];"
    [[ $1 == apart ]] || echo "    v[k:2*H] = k < H ? h[k] : c[k - H];"
    for ((gate = 0; gate < $2; gate++)); do
        echo "    a$gate[i:H] = sum[d] W[i + $gate*H,d] * x[d] + ${4//@/$gate};"
    done
    if [[ $2 == 1 ]]; then
        echo "    h'[i] = tanh(a0[i]);"
        echo "    c'[i] = 0.5 * c[i] + h[i];"
    else
        echo "    c'[i] = sigmoid(a0[i]) * c[i] + (1 - sigmoid(a0[i])) * tanh(a1[i]);"
        echo "    h'[i] = sigmoid(a2[i]) * tanh(c'[i]);"
    fi
    echo "    y[i] = h'[i];"
    echo "}"
}
of_gates='R0[H, H] ~ xavier, R1[H, H] ~ xavier, R2[H, H] ~ xavier'
of_gates+=', Q0[H, H] ~ xavier, Q1[H, H] ~ xavier, Q2[H, H] ~ xavier'
while IFS='|' read -r gates parts params; do
    concatenated stacked "$gates" "U[$gates*H, 2*H] ~ xavier" 'sum[k] U[i + @*H,k] * v[k]' \
        >"$work/stacked.cell"
    concatenated apart "$gates" "$params" "$parts" >"$work/apart.cell"
    "$cellc" check "$work/apart.cell" >"$work/said" 2>&1
    result $? "$parts is wrong: $(tail -n 1 "$work/said")"
    same_kernels "$parts"
    for dtype in f32 bf16; do
        says "$work/apart.cell" 'products that are added up are one product of their vectors' --dtype $dtype
        result $? "$parts: explain does not say in $dtype that they are one product"
    done
done <<END
1|sum[j] R[i,j] * h[j] + sum[j] Q[i,j] * c[j]|R[H, H] ~ xavier, Q[H, H] ~ xavier
1|sum[j] (Q[j,i] * c[j] - R[i,j] * h[j])|R[H, H] ~ xavier, Q[H, H] ~ xavier
1|sum[j:H] U[i,2*j] * h[j] + sum[j:H] U[i,2*j+1] * c[j]|U[H, 2*H] ~ xavier
1|sum[j:H] U[i,j] * h[j] + sum[j:H] U[i,j+H] * c[j]|U[H, 2*H] ~ xavier
1|x[0] - (sum[j:H] -U[i,j+H] * h[j] - sum[q:H] U[i,q] * c[q])|U[H, 2*H] ~ xavier
3|sum[j] R@[i,j] * h[j] + sum[j] Q@[i,j] * c[j]|$of_gates
3|sum[j] Q@[i,j] * c[j] + sum[j] R@[j,i] * h[j]|$of_gates
3|sum[j:H] U[i + @*H,j] * h[j] + sum[j:H] U[i + @*H,j+H] * c[j]|U[3*H, 2*H] ~ xavier
END
# Of heads as well.
heads() { # SUM, PARAMS, DEFINITION
    cat <<EOS
cell heads {
    dim D, H, N;
    input x[D];
    param W[H, N, D] ~ xavier, $2;
    state h[H, N], c[H, N];
    output y[H, N];
    $3
    h'[g,i] = tanh((sum[d] W[g,i,d] * x[d]) + $1);
    c'[g,i] = 0.5 * c[g,i] + h[g,i];
    y[g,i] = h'[g,i];
}
EOS
}
for sum in 'sum[j] R[g,i,j] * h[g,j] + sum[j] Q[g,i,j] * c[g,j]' \
    'sum[j] Q[g,j,i] * c[g,j] - sum[j] R[g,i,j] * h[g,j]'; do
    heads 'sum[k] U[g,i,k] * v[g,k]' 'U[H, N, 2*N] ~ xavier' 'v[g:H, k:2*N] = k < N ? h[g,k] : c[g,k - N];' \
        >"$work/stacked.cell"
    heads "$sum" 'R[H, N, N] ~ xavier, Q[H, N, N] ~ xavier' '' >"$work/apart.cell"
    same_kernels "$sum"
    says "$work/apart.cell" 'products that are added up are one product of their vectors'
    result $? "$sum: explain does not say that they are one product"
done
# And why others stay apart.
while IFS='|' read -r sum params why; do
    heads "sum[j] R[g,i,j] * h[g,j] + $sum" "R[H, N, N] ~ xavier, $params ~ xavier" '' >"$work/apart.cell"
    says "$work/apart.cell" "stay apart: $why"
    result $? "$sum: explain does not say $why"
done <<'END'
sum[j] Q[i,j] * c[g,j]|Q[N, N]|they leave other indices than one another, or one of their params has axes
sum[k,j] Q[g,i,k,j] * c[k,j]|Q[H, N, H, N]|one of them sums over several indices
2 * sum[j] Q[g,i,j] * c[g,j]|Q[H, N, N]|a factor stands before one of them
END
for sum in 'R0[i,j] * h[j] + 0.5 * sum[j] Q0[i,j] * c[j]|a factor stands before one of them' \
    'R0[i,j] * h[j] + sum[j] Q0[i,j] * c[j]|multiplies one of them where it does not multiply the other' \
    'R0[i,j] * h[j] + sum[j] Q0[i,j] * tanh(sum[q] Q1[j,q] * c[q])|waits for a product itself'; do
    concatenated apart 3 "$of_gates" 'sum[j] R1[i,j] * h[j]' |
        sed "0,/sum\[j\] R1\[i,j\] \* h\[j\]/s||sum[j] ${sum%|*}|" >"$work/apart.cell"
    says "$work/apart.cell" 'are one product of their vectors' && result 1 "${sum%|*} is one product"
    [[ -z ${sum#*|} ]] || says "$work/apart.cell" "${sum#*|}"
    result $? "${sum%|*}: explain does not say that ${sum#*|}"
done

# Specs whose params are stacked: with a param for each part, as papers have them.
while read -r spec options names; do
    read -r -a names <<<"$names"
    [[ $options == - ]] && options= || options="--set $options"
    file=tests/spelling/stacked/$spec.cell
    [[ -f $file ]] || file=specs/$spec.cell
    cp "$file" "$work/stacked.cell"
    python3 tests/spelling/unstack.py "$file" "${names[@]}" >"$work/apart.cell" &&
        python3 tests/spelling/unstack.py --laid "$file" "${names[@]}" >"$work/laid.cell"
    result $? "unstack.py $spec"
    # shellcheck disable=SC2086
    same_kernels "$spec" $options
    # shellcheck disable=SC2086
    [[ ! $spec =~ ^(lstm|lstm_masked|lstm_projection|gru|cfc)$ ]] || few_steps "$spec" $options
    # shellcheck disable=SC2086
    same_values "$spec" "$work/apart.cell" "$work/laid.cell" $options
done <<'END'
lstm - weight_ih=4*H weight_hh=4*H bias_ih=4*H bias_hh=4*H p=4*H
lstm_masked - weight_ih=4*H weight_hh=4*H bias_ih=4*H bias_hh=4*H p=4*H
lstm_projection - weight_ih=4*H weight_hh=4*H bias_ih=4*H bias_hh=4*H p=4*H
gru - weight_ih=3*H weight_hh=3*H bias_ih=3*H bias_hh=3*H a=3*H u=3*H
gru reset=before weight_ih=3*H weight_hh=3*H bias_ih=3*H bias_hh=3*H a=3*H u=3*H
gru_d - W=3*H U=3*H V=3*H b=3*H a=3*H
cfc - heads=4*H c=4*H p=4*H
attention_rnn - qkv=3*A p=3*A
rhn - W=2*H a=2*H
mingru - to_hidden_and_gate=2*H
minlstm - to_hidden_and_gates=3*H
sru - W=3*D b=2*D v=2*D u=3*D
e23 write=joint W_all=2*D
e29 - W_xz=2*D
e76 - W_kvqg=4*N
e77 - W_kvqg=4*N
e78 - W_kvq=3*E u=3*E
e79 - W_kvqm=4*N
e80 - W_kvqm=4*N
e82 - W_kvqm=4*N
e84 - W_kvqm=4*N
END

# Cells with params apart (paper), the same with a definition that lays them together (laid), and stacked
# (plain).
for file in tests/spelling/stacked/*.cell; do
    grep -q 'cell paper' "$file" || continue
    types=$(sed -n '1s|^// types: \([a-z0-9 ]*\)\..*|\1|p' "$file")
    for dtype in ${types:-f32 bf16}; do
        for cell in paper plain; do
            "$cellc" explain "$file:$cell" --all --dtype $dtype >"$work/said" 2>"$work/err"
            kernels "$work/said" >"$work/$cell.kernels"
        done
        as_good "$work/plain.kernels" "$work/paper.kernels" >"$work/diff"
        result $? "$file: in $dtype, params apart have other kernels:
$(sed 's/^/    /' "$work/diff")"
    done
    "$cellc" check "$file:plain" >"$work/said" 2>&1
    result $? "$file:plain is wrong: $(tail -n 1 "$work/said")"
    same_values "$file" "$file:paper" "$file:laid"
done

# Random cells of gates: N of them (4, with FULL=1 100) from SEED (1), as somebody might write them, and
# stacked.
first=${SEED:-1} many=4
[[ -n ${FULL:-} ]] && many=100
for ((seed = first; seed < first + ${N:-$many}; seed++)); do
    for text in paper laid plain; do
        python3 tests/spelling/respell.py "$seed" $text >"$work/$text.cell"
    done
    mv "$work/paper.cell" "$work/apart.cell" && mv "$work/plain.cell" "$work/stacked.cell"
    same_kernels "random cell of gates, seed $seed"
    same_values "random cell of gates, seed $seed" "$work/apart.cell" "$work/laid.cell"
done
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
