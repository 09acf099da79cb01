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
    cat "$work/said"
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
END
# A product of the input that a factor of the state would keep in the steps is made for all steps.
cell 'sum[j] R[i,j] * h[j] + sum[d] Q[i,d] * z[d] * h[i]' '' >"$work/a.cell"
cell 'sum[j] R[i,j] * h[j] + h[i] * sum[d] Q[i,d] * z[d]' '' >"$work/b.cell"
compare 'sum[d] Q[i,d] * z[d] * h[i]'

# Cells as papers have them (cell paper) and as one would write them for the compiler (cell plain): both right by the evaluator,
# and with the same operations, but for those that are done once in a call.
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
    done
    grep -q schedule "$work/plain.operations" && diff "$work/plain.operations" "$work/paper.operations" >"$work/diff"
    result $? "$file: other operations for what the paper writes (>):
$(sed 's/^/    /' "$work/diff")"
done
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
