# Shapes of specs around 5 kB whose parts are shared, nested or many. To be sourced; each function shape_NAME prints
# one spec. What is shared n deep would be computed 2^n times by a walk that forgets: n is at least 24.
# shellcheck shell=bash

nest() { local s=$3 k; for ((k = 0; k < $2; k++)); do s="$1($s)"; done; printf %s "$s"; }     # F N X: F(F(...X...))
times() { local s= k; for ((k = 0; k < $2; k++)); do s+=$1; done; printf %s "$s"; }         # S N: SSS...
# NAME N FROM RIGHT: N definitions, each from the one before, which is P in RIGHT; the last is NAME_N, NAME_0 is FROM
chain() {
    local k p=$3
    for ((k = 1; k <= $2; k++)); do
        printf '    %s_%d[i] = %s;\n' "$1" "$k" "${4//P/$p}"
        p="$1_$k[i]"
    done
}
# A cell of vectors: of BODY alone, and with a state that goes through it (gated, or mixed by a product).
pointwise() {                                   # FN N
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(u) = %s;\n    y[i] = %s;\n}\n' "$1" "$(nest f "$2" 'x[i]')"
}
gated() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    state h[N];\n    output y[N];\n    fn f(u) = %s;\n' "$1"
    printf "    h'[i] = sigmoid(x[i]) * h[i] + %s;\n    y[i] = h'[i];\n}\n" "$(nest f "$2" 'x[i]')"
}
recurrent() {
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    param R[N, N];\n    state h[N];\n    output y[N];\n    fn f(u) = %s;\n' "$1"
    printf "    h'[i] = tanh(%s);\n    y[i] = h'[i];\n}\n" "$(nest f "$2" '(x[i] + sum[j] R[i,j] * h[j])')"
}

shape_parens() { printf 'cell s {\n    input x;\n    output y;\n    y = %sx%s;\n}\n' "$(times '(' 250)" "$(times ')' 250)"; }
shape_calls() { pointwise 'tanh(u)' 240; }
shape_shared_smooth() { pointwise 'tanh(u) * sin(u)' 200; }
shape_shared_quotient() { pointwise 'u / (1 + u * u)' 200; }
shape_shared_kinks() { pointwise 'max(u, 0.5 * abs(u)) - min(u, relu(u))' 100; }
shape_shared_select() { pointwise 'u > 0 ? sin(u) : u < -1 ? u * u : cos(u)' 60; }
shape_shared_power() { pointwise 'u^2 - u^1.5 + u^-1' 60; }
shape_scan_smooth() { gated 'tanh(u) * sin(u)' 60; }
shape_scan_kinks() { gated 'max(u, 0.5 * abs(u)) - min(u, relu(u))' 60; }
shape_scan_select() { gated 'u > 0 ? sin(u) : u < -1 ? u * u : cos(u)' 40; }
shape_walk_smooth() { recurrent 'tanh(u) * sin(u)' 60; }
shape_walk_select() { recurrent 'u > 0 ? sin(u) : u < -1 ? u * u : cos(u)' 40; }
shape_scan_linear() {       # the state itself goes through what is shared
    printf 'cell s {\n    dim N;\n    input x[N], a[N];\n    state h[N];\n    output y[N];\n    fn f(u) = 0.5 * u + 0.25 * (u - 1);\n'
    printf "    h'[i] = %s;\n    y[i] = h'[i];\n}\n" "$(nest f 60 'h[i]')"
}
shape_definitions() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n'
    chain a 110 'x[i]' 'tanh(P) * sin(P) + x[i]'
    printf '    y[i] = a_110[i];\n}\n'
}
shape_definitions_scan() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    state h[N];\n    output y[N];\n'
    chain a 80 'x[i]' 'tanh(P) * sin(P) + x[i]'
    printf "    h'[i] = sigmoid(a_80[i]) * h[i] + a_80[i];\n    y[i] = h'[i];\n}\n"
}
shape_definitions_walk() {
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    param R[N, N];\n    state h[N];\n    output y[N];\n'
    printf '    a_0[i] = sum[j] R[i,j] * h[j];\n'
    chain a 80 'a_0[i]' 'tanh(P) * sin(P) + x[i]'
    printf "    h'[i] = a_80[i];\n    y[i] = h'[i];\n}\n"
}
shape_definitions_state() {     # pointwise in the state, and not linear
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    state h[N];\n    output y[N];\n'
    chain a 80 'h[i]' 'tanh(P) * sin(P) + x[i]'
    printf "    h'[i] = a_80[i];\n    y[i] = h'[i];\n}\n"
}
shape_integers_nested() {
    printf 'cell s {\n    dim V, N;\n    input id : i32, next[V] : i32, x[N];\n    param E[V, N];\n    output y[N];\n    y[i] = x[i] + E[%sid%s, i];\n}\n' \
        "$(times 'next[' 60)" "$(times ']' 60)"
}
shape_integers_walk() {
    printf 'cell s {\n    dim V, N = 16;\n    input id : i32, next[V] : i32, x[N];\n    param E[V, N], R[N, N];\n    state h[N];\n    output y[N];\n'
    printf "    h'[i] = tanh(x[i] + E[%sid%s, i] + sum[j] R[i,j] * h[j]);\n    y[i] = h'[i];\n}\n" "$(times 'next[' 30)" "$(times ']' 30)"
}
shape_integers_arithmetic() {       # of integers that are read twice each
    local s=id k
    for ((k = 0; k < 60; k++)); do s="mod(2 * next[$s] + $k, 7)"; done
    printf 'cell s {\n    dim V, N;\n    input id : i32, next[V] : i32, x[N];\n    param E[V, N];\n    output y[N];\n    y[i] = x[i] + E[%s, i];\n}\n' "$s"
}
shape_integers_scan() {
    printf 'cell s {\n    dim V, N;\n    input id : i32, next[V] : i32, x[N];\n    param E[V, N];\n    state h[N];\n    output y[N];\n'
    printf "    h'[i] = sigmoid(x[i]) * h[i] + E[%sid%s, i];\n    y[i] = h'[i];\n}\n" "$(times 'next[' 30)" "$(times ']' 30)"
}
shape_integers_compared() {
    printf 'cell s {\n    dim V, N;\n    input id : i32, next[V] : i32, x[N];\n    output y[N];\n    y[i] = (%sid%s == i ? 2 : 1) * x[i];\n}\n' "$(times 'next[' 30)" "$(times ']' 30)"
}
shape_integers_pairs() {        # a tree of reads at two integers
    pair() { if (($1)); then printf 'next[%s, %s]' "$(pair $(($1 - 1)))" "$(pair $(($1 - 1)))"; else printf id; fi; }
    printf 'cell s {\n    dim V, N;\n    input id : i32, next[V, V] : i32, x[N];\n    param E[V, N];\n    output y[N];\n    y[i] = x[i] + E[%s, i];\n}\n' "$(pair 7)"
}
shape_integers_slices() {       # of values that are themselves read at integers
    local k
    printf 'cell s {\n    dim V, N;\n    input id : i32, next[V] : i32, x[N];\n    param E[V, N];\n    output y[N];\n    fn f(u)[i] = u[i] * sin(u[i]);\n    a_0[v:V,i:N] = E[v,i] * x[i];\n'
    for ((k = 1; k <= 40; k++)); do printf '    a_%d[v:V,i:N] = f(a_%d[next[id], :])[i] + a_%d[v,i];\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = a_40[id,i];\n}\n'
}
shape_conditions() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    c_0[i:N] = x[i] > 0;\n'
    for ((k = 1; k <= 60; k++)); do
        printf '    c_%d[i:N] = c_%d[i] && x[i] < %d || !c_%d[i];\n' $k $((k - 1)) $k $((k - 1))
    done
    printf '    y[i] = c_60[i] ? x[i] : 0;\n}\n'
}
shape_conditions_shared() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(c) = (c && x[0] > 1) && (c && x[1] < 0);\n    fn g(c) = c && x[0] > 1 || !c && x[1] < 0;\n'
    printf '    y[i] = %s && %s ? x[i] : 0;\n}\n' "$(nest f 60 'x[i] > 0')" "$(nest g 60 'x[i] > 0')"
}
shape_conditions_scan() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    state h[N];\n    output y[N];\n    fn f(c) = (c && x[0] > 1) && (c && x[1] < 0);\n    fn g(c) = c && x[0] > 1 || !c && x[1] < 0;\n'
    printf "    h'[i] = sigmoid(x[i]) * h[i] + (%s && %s ? x[i] : 0);\n    y[i] = h'[i];\n}\n" "$(nest f 60 'x[i] > 0')" "$(nest g 60 'x[i] > 0')"
}
shape_conditions_walk() {
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    state S[N, N];\n    output y[N];\n    fn f(c) = (c && x[0] > 1) && (c && x[1] < 0);\n    fn g(c) = c && x[0] > 1 || !c && x[1] < 0;\n'
    printf "    S'[i,j] = 0.5 * S[i,j] + (%s && %s ? x[i] * x[j] : 0);\n    y[i] = sum[j] S'[i,j] * x[j];\n}\n" "$(nest f 60 'x[i] > 0')" "$(nest g 60 'x[i] > x[j]')"
}
shape_conditions_in_sums() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(c) = (c && x[0] > 1) && (c && x[1] < 0);\n    fn g(c) = c && x[0] > 1 || !c && x[1] < 0;\n'
    printf "    y[i] = sum[j] (%s && %s ? x[j] : 0);\n}\n" "$(nest f 60 'x[i] > x[j]')" "$(nest g 60 'x[j] > 0')"
}
shape_conditions_of_past() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(c) = (c && x[0] > 1) && (c && x[1] < 0);\n'
    printf "    p[w:T] = softmax[w] (sum[i] x[i] * x[i; t - w]);\n    y[i] = sum[w] (%s ? p[w] * x[i; t - w] : 0);\n}\n" "$(nest f 60 'x[i] > 0 && w < 4')"
}
matrix() {      # a state matrix; MADE: of S[i,j]
    printf 'cell s {\n    dim N = 16;\n    input x[N], k[N];\n    state S[N, N];\n    output y[N];\n    %s\n' "$1"
    printf "    e[i] = x[i] - sum[j] S[i,j] * k[j];\n    S'[i,j] = %s;\n    y[i] = sum[j] S'[i,j] * x[j];\n}\n" "$2"
}
shape_tile_smooth() { matrix 'fn f(u) = tanh(u) * sin(u);' "$(nest f 40 '(S[i,j] + e[i] * k[j])')"; }
shape_tile_select() { matrix 'fn f(u) = u > 0 ? sin(u) : u < -1 ? u * u : cos(u);' "$(nest f 40 '(S[i,j] + e[i] * k[j])')"; }
shape_tile_linear() { matrix 'fn f(u) = 0.5 * u + 0.25 * (u - 1);' "$(nest f 40 '(S[i,j] + e[i] * k[j])')"; }
shape_tile_vectors() { matrix 'fn f(u) = tanh(u) * sin(u);' "0.5 * S[i,j] + $(nest f 40 'e[i]') * $(nest f 40 'k[j]')"; }
shape_tile_squares() { matrix 'fn f(u) = u * u;' "0.5 * S[i,j] + e[i] * k[j] * sum[m:N] S[i,m] * $(nest f 40 'k[m]')"; }
shape_tile_sums() {
    local k
    printf 'cell s {\n    dim N = 16;\n    input x[N], k[N];\n    state S[N, N];\n    output y[N];\n    e_0[i:N] = x[i];\n'
    for ((k = 1; k <= 40; k++)); do printf '    e_%d[i:N] = x[i] - sum[j] S[i,j] * e_%d[j];\n' $k $((k - 1)); done
    printf "    S'[i,j] = 0.5 * S[i,j] + e_40[i] * k[j];\n    y[i] = sum[j] S'[i,j] * x[j];\n}\n"
}
shape_tile_sums_few() {
    local k
    printf 'cell s {\n    dim N = 16;\n    input x[N], k[N];\n    state S[N, N];\n    output y[N];\n    e_0[i:N] = x[i];\n'
    for ((k = 1; k <= 10; k++)); do printf '    e_%d[i:N] = tanh(e_%d[i]) * sin(e_%d[i]) - sum[j] S[i,j] * e_%d[j];\n' $k $((k - 1)) $((k - 1)) $((k - 1)); done
    printf "    S'[i,j] = 0.5 * S[i,j] + e_10[i] * k[j];\n    y[i] = sum[j] S'[i,j] * x[j];\n}\n"
}
shape_attention() {
    printf 'cell s {\n    dim N;\n    input q[N], k[N], v[N];\n    output y[N];\n    fn f(u) = tanh(u) * sin(u);\n    s[w:T] = sum[i] q[i] * k[i; t - w];\n'
    printf '    p[w] = softmax[w] %s;\n    y[i] = sum[w] p[w] * v[i; t - w];\n}\n' "$(nest f 40 's[w]')"
}
shape_values_of_past() {
    local k
    printf 'cell s {\n    dim N;\n    input q[N], k[N], v[N];\n    output y[N];\n    s_0[w:T] = sum[i] q[i] * k[i; t - w];\n'
    for ((k = 1; k <= 40; k++)); do printf '    s_%d[w:T] = s_%d[w] * s_%d[w];\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = sum[w] s_40[w] * v[i; t - w];\n}\n'
}
shape_conditions_of_indices() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    c_0[i:N,j:N] = j <= i;\n'
    for ((k = 1; k <= 60; k++)); do
        printf '    c_%d[i:N,j:N] = c_%d[i,j] && j < i + %d || !c_%d[i,j];\n' $k $((k - 1)) $k $((k - 1))
    done
    printf '    y[i] = sum[j] (c_60[i,j] ? x[j] : 0);\n}\n'
}
shape_complex() {
    printf 'cell s {\n    dim N;\n    input x[N] : complex;\n    output y[N] : complex;\n    fn f(z) = z / (1 + z * z);\n    y[i] = %s;\n}\n' "$(nest f 24 'x[i]')"
}
shape_complex_walk() {
    printf 'cell s {\n    dim N = 8;\n    input x[N];\n    param R[N, N] : complex;\n    state h[N] : complex;\n    output y[N];\n    fn f(z) = z / (1 + z * z);\n'
    printf "    h'[i] = %s;\n    y[i] = re(h'[i]);\n}\n" "$(nest f 12 '(x[i] + sum[j] R[i,j] * h[j])')"
}
shape_complex_functions() {
    printf 'cell s {\n    dim N;\n    input x[N] : complex;\n    output y[N];\n    fn f(z) = sqrt(z) * exp(z) + log(z);\n    y[i] = abs(%s);\n}\n' "$(nest f 12 'x[i]')"
}
shape_complex_powers() {
    printf 'cell s {\n    dim N;\n    input x[N] : complex;\n    output y[N];\n    fn f(z) = z^64 + z^-63;\n    y[i] = abs(%s);\n}\n' "$(nest f 8 'x[i]')"
}
shape_grad() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(u) = tanh(u) * sin(u);\n    a[i] = x[i];\n    y[i] = grad(%s, a[i]);\n}\n' "$(nest f 60 'a[i]')"
}
shape_grad_of_grad() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(u) = tanh(u) * sin(u);\n    fn g(u) = grad(f(u), u);\n    y[i] = %s;\n}\n' "$(nest g 7 'x[i]')"
}
shape_grad_higher() {       # of order 6
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f0(u) = tanh(u) * u;\n'
    local k
    for ((k = 1; k <= 6; k++)); do printf '    fn f%d(u) = grad(f%d(u) * u, u);\n' $k $((k - 1)); done
    printf '    y[i] = f6(x[i]);\n}\n'
}
shape_grad_orders() {
    printf 'cell s {\n    input x;\n    output y;\n    fn f(u) = tanh(u) * sin(u);\n'
    local k p=f
    for ((k = 1; k <= 4; k++)); do printf '    fn g%d(u) = grad(%s(u), u);\n' $k $p; p=g$k; done
    printf '    y = %s(x);\n}\n' $p
}
shape_history() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 60; k++)); do printf '    a_%d[i:N] = a_%d[i; t - 1] * a_%d[i];\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = a_60[i];\n}\n'
}
shape_history_scan() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    state h[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 40; k++)); do printf '    a_%d[i:N] = a_%d[i; t - 1] * a_%d[i];\n' $k $((k - 1)) $((k - 1)); done
    printf "    h'[i] = sigmoid(x[i]) * h[i] + a_40[i];\n    y[i] = h'[i];\n}\n"
}
shape_past() {          # sums over the whole past, each over the one before
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 24; k++)); do printf '    a_%d[i:N] = sum[w:T] a_%d[i; t - w] * a_%d[i];\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = a_24[i];\n}\n'
}
shape_fn_history() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(u)[i] = u[i] * u[i; t - 1];\n    y[i] = %s[i];\n}\n' "$(nest f 24 'x')"
}
shape_initial() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    param p[N];\n    fn f(u) = tanh(u) * sin(u);\n    state h[N] = %s;\n    output y[N];\n' "$(nest f 60 'p[i]')"
    printf "    h'[i] = tanh(h[i] + x[i]);\n    y[i] = h'[i];\n}\n"
}
shape_sums_nested() {
    local k s=x
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y;\n    y = '
    for ((k = 1; k <= 28; k++)); do printf 'sum[i%d] x[i%d] * ' $k $k; done
    printf '1;\n}\n'
}
shape_sums_shared() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(u)[i] = u[i] / (1 + sum[j] u[j]^2);\n    y[i] = %s[i];\n}\n' "$(nest f 24 x)"
}
shape_sums_walk() {
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    state h[N];\n    output y[N];\n    fn f(u)[i] = u[i] / (1 + sum[j] u[j]^2);\n    a[i:N] = h[i] + x[i];\n'
    printf "    h'[i] = %s[i];\n    y[i] = h'[i];\n}\n" "$(nest f 12 a)"
}
shape_sums_in_scalars() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y;\n    fn f(u) = sum[j] u * x[j] * u;\n    y = %s;\n}\n' "$(nest f 20 'x[0]')"
}
shape_softmax() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 40; k++)); do printf '    a_%d[i:N] = a_%d[i] * softmax[i] a_%d[i];\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = a_40[i];\n}\n'
}
shape_states_chain() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n'
    local k p='x[i]'
    for ((k = 1; k <= 40; k++)); do
        printf "    state h%d[N];\n    h%d'[i] = tanh(h%d[i] + %s);\n" $k $k $k "$p"
        p="h$k'[i]"
    done
    printf '    y[i] = %s;\n}\n' "$p"
}
shape_states_scan() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n'
    local k p='x[i]'
    for ((k = 1; k <= 40; k++)); do
        printf "    state h%d[N];\n    h%d'[i] = 0.5 * h%d[i] + %s;\n" $k $k $k "$p"
        p="h$k'[i]"
    done
    printf '    y[i] = %s;\n}\n' "$p"
}
shape_states_products() {
    printf 'cell s {\n    dim N = 8;\n    input x[N];\n    output y[N];\n'
    local k p='x'
    for ((k = 1; k <= 30; k++)); do
        printf "    state h%d[N];\n    param R%d[N, N], W%d[N, N];\n    h%d'[i] = tanh(sum[j] R%d[i,j] * h%d[j] + sum[j] W%d[i,j] * %s[j]);\n" $k $k $k $k $k $k $k "$p"
        p="h$k'"
    done
    printf '    y[i] = %s[i];\n}\n' "$p"
}
shape_gates() {
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    param W[50 * N, N], R[50 * N, N];\n    state h[N];\n    output y[N];\n'
    local k s=0
    for ((k = 0; k < 50; k++)); do
        printf '    g%d[i:N] = sigmoid(sum[j] W[%d * N + i, j] * x[j] + sum[j] R[%d * N + i, j] * h[j]);\n' $k $k $k
        s+=" + g$k[i]"
    done
    printf "    h'[i] = tanh(%s);\n    y[i] = h'[i];\n}\n" "$s"
}
shape_gates_1000() {
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    param W[1000, N], b[1000];\n'
    printf '    state h[N];\n    output y[N];\n'
    printf '    g[k:1000] = sigmoid(sum[j] W[k,j] * h[j] + b[k]);\n'
    printf "    h'[i] = tanh(x[i] + sum[k] W[k,i] * g[k]);\n    y[i] = h'[i];\n}\n"
}
shape_gates_apart() {
    printf 'cell s {\n    dim N = 16;\n    input x[N];\n    state h[N];\n    output y[N];\n'
    local k s=0
    for ((k = 0; k < 34; k++)); do
        printf '    param W%d[N, N], R%d[N, N];\n    g%d[i:N] = sigmoid(sum[j] W%d[i, j] * x[j] + sum[j] R%d[i, j] * h[j]);\n' $k $k $k $k $k
        s+=" + g$k[i]"
    done
    printf "    h'[i] = tanh(%s);\n    y[i] = h'[i];\n}\n" "$s"
}
shape_params() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    param '
    local k s='x[i]'
    for ((k = 0; k < 120; k++)); do
        ((k)) && printf ', '
        printf 'p%d[N]' $k
        s+=" * p$k[i] + tanh(p$k[i])"
    done
    printf ';\n    y[i] = %s;\n}\n' "$s"
}
shape_options() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n'
    local k s='x[i]'
    for ((k = 0; k < 40; k++)); do
        printf '    option o%d = a | b | c;\n    when o%d == a { z%d[i:N] = tanh(%s); } else when o%d == b { z%d[i:N] = %s; } else { z%d[i:N] = 2 * %s; }\n' \
            $k $k $k "$s" $k $k "$s" $k "$s"
        s="z$k[i]"
    done
    printf '    y[i] = %s;\n}\n' "$s"
}
shape_whens() {
    printf 'cell s {\n    dim N;\n    option o = a | b;\n    input x[N];\n    output y[N];\n    %s y[i] = x[i]; %s\n}\n' "$(times 'when o == a {' 120)" "$(times '}' 120)"
}
shape_names() {
    local a k; a=$(times a 100)
    printf 'cell s {\n    dim N;\n    output y[N];\n'
    for ((k = 100; k < 118; k++)); do printf '    input %s%d[N];\n' "$a" $k; done
    printf '    y[i] = '
    for ((k = 100; k < 118; k++)); do printf '%s%d[i] + ' "$a" $k; done
    printf '1;\n}\n'
}
shape_repeat() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    repeat n:4096 {\n        carry a[N] = x[i];\n        %s\n    }\n    y[i] = a[i];\n}\n' "$1"
}
shape_repeat_small() { shape_repeat "a'[i] = 0.5 * a[i] + x[i];"; }
shape_repeat_shared() { shape_repeat "a'[i] = tanh(a[i]) * sin(a[i]);"; }
shape_repeat_sum() { shape_repeat "a'[i] = a[i] * sum[j] a[j] * x[j];"; }
shape_repeat_branches() {
    shape_repeat "b[i:N] = a[i] * a[i] + sin(a[i]); a'[i] = x[i] > n ? b[i] * x[i] : 3 * x[i];"
}
shape_repeats() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    repeat n:64 { repeat m:64 {\n        carry a[N] = x[i];\n'
    printf "        a'[i] = tanh(a[i]) * sin(a[i]);\n    } carry b[N] = x[i]; b'[i] = b[i] + a[i]; }\n    y[i] = b[i];\n}\n"
}
shape_conditionals() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = '
    for ((k = 0; k < 200; k++)); do printf 'x[i] > %d ? sin(x[i]) : ' $k; done
    printf 'x[i];\n}\n'
}
shape_conditionals_first() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = '
    for ((k = 0; k < 120; k++)); do printf 'x[i] > %d ? (' $k; done
    printf 'x[i]'
    for ((k = 0; k < 120; k++)); do printf ') : sin(x[i])'; done
    printf ';\n}\n'
}
shape_conditionals_of_indices() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = '
    for ((k = 0; k < 200; k++)); do printf 'i == %d ? %d * x[i] : ' $k $k; done
    printf 'x[i];\n}\n'
}
shape_concatenated() {  # of pieces of pieces
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    for ((k = 1; k <= 60; k++)); do
        printf '    a_%d[i:N] = i > 0 ? a_%d[i - 1] + a_%d[i] : a_%d[i];\n' $k $((k - 1)) $((k - 1)) $((k - 1))
    done
    printf '    y[i] = a_60[i];\n}\n'
}
shape_products() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 60; k++)); do
        printf '    param W%d[N, N];\n    a_%d[i:N] = sum[j] W%d[i,j] * a_%d[j];\n' $k $k $k $((k - 1))
    done
    printf '    y[i] = a_60[i];\n}\n'
}
shape_products_residual() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    param W[N, N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 60; k++)); do
        printf '    a_%d[i:N] = a_%d[i] + tanh(sum[j] W[i,j] * a_%d[j]);\n' $k $((k - 1)) $((k - 1))
    done
    printf '    y[i] = a_60[i];\n}\n'
}
shape_matrices() {
    printf 'cell s {\n    dim N = 8;\n    input x[N, N];\n    output y[N, N];\n    a_0[i:N,j:N] = x[i,j];\n'
    local k
    for ((k = 1; k <= 50; k++)); do
        printf '    a_%d[i:N,j:N] = sum[k] a_%d[i,k] * a_%d[k,j];\n' $k $((k - 1)) $((k - 1))
    done
    printf '    y[i,j] = a_50[i,j];\n}\n'
}
shape_fns_deep() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f0(u) = tanh(u) * sin(u);\n'
    for ((k = 1; k <= 60; k++)); do printf '    fn f%d(u) = f%d(u * u + cos(u));\n' $k $((k - 1)); done
    printf '    y[i] = f60(x[i]);\n}\n'
}
shape_fns_wide() {      # 2^40 calls
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f0(u) = tanh(u);\n'
    for ((k = 1; k <= 40; k++)); do printf '    fn f%d(u) = f%d(u) + f%d(2 * u);\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = f40(x[i]);\n}\n'
}
shape_fns_results() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(u) { p[i] = tanh(u[i]); q[i] = sin(u[i]); }\n'
    printf '    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 60; k++)); do printf '    a_%d[i:N] = f(a_%d).p[i] * f(a_%d).q[i];\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = a_60[i];\n}\n'
}
shape_adjoints() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(u)[i] = tanh(u[i]) * sin(u[i]);\n    adjoint fn f(u; g)[i] = g[i] * cos(u[i]) * u[i];\n    y[i] = %s[i];\n}\n' \
        "$(nest f 40 x)"
}
shape_constants() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    const c0 = 0.5;\n'
    for ((k = 1; k <= 120; k++)); do printf '    const c%d = c%d * c%d + c%d;\n' $k $((k - 1)) $((k - 1)) $((k - 1)); done
    printf '    y[i] = c120 * x[i];\n}\n'
}
shape_dims() {
    local k
    printf 'cell s {\n    dim N0 = 1;\n'
    for ((k = 1; k <= 24; k++)); do printf '    dim N%d = N%d + N%d;\n' $k $((k - 1)) $((k - 1)); done
    printf '    input x[N24];\n    output y[N24];\n    y[i] = 2 * x[i];\n}\n'
}
shape_sizes() {
    printf 'cell s {\n    dim A, B2, C, D;\n    input x[(A + B2 + C + D + 1) * (A + B2 + C + D + 2) * (A + B2)];\n    output y[(A + B2 + C + D + 1) * (A + B2 + C + D + 2) * (A + B2)];\n    y[i] = x[i];\n}\n'
}
shape_index_maps() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = x[%si%s];\n}\n' "$(times '(' 100)" "$(times ' * 3 + 1) % N' 100)"
}
shape_index_maps_of_definitions() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    for ((k = 1; k <= 60; k++)); do printf '    a_%d[i:N] = a_%d[(i + 1) %% N] * a_%d[i];\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = a_60[i];\n}\n'
}
shape_index_maps_walk() {
    local k
    printf 'cell s {\n    dim N = 8;\n    input x[N];\n    state h[N];\n    output y[N];\n    a_0[i:N] = x[i] + h[i];\n'
    for ((k = 1; k <= 30; k++)); do printf '    a_%d[i:N] = a_%d[(i + 1) %% N] * a_%d[i];\n' $k $((k - 1)) $((k - 1)); done
    printf "    h'[i] = tanh(a_30[i]);\n    y[i] = h'[i];\n}\n"
}
shape_long_sum() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = %sx[i];\n}\n' "$(times 'x[i] + ' 700)"
}
shape_long_product() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = %sx[i];\n}\n' "$(times 'tanh(x[i]) * ' 350)"
}
shape_long_difference() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = '
    for ((k = 0; k < 250; k++)); do printf 'x[i] - %d * (' $k; (( k % 250 > 200 )) || printf '1 + '; done
    printf 'x[i]'
    printf '%s;\n}\n' "$(times ')' 250)"
}
shape_rounded() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    a_0[i:N] = x[i];\n'
    local k
    for ((k = 1; k <= 60; k++)); do printf '    a_%d[i:N] : dtype = tanh(a_%d[i]) * sin(a_%d[i]);\n' $k $((k - 1)) $((k - 1)); done
    printf '    y[i] = a_60[i];\n}\n'
}
shape_resets() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    reset '
    local k p='x[i]'
    for ((k = 0; k < 20; k++)); do ((k)) && printf ', '; printf 'r%d' $k; done
    printf ';\n'
    for ((k = 1; k <= 30; k++)); do
        printf "    state h%d[N];\n    h%d'[i] = tanh(h%d[i] + %s * x[i; t - %d]);\n" $k $k $k "$p" $k
        p="h$k'[i]"
    done
    printf '    y[i] = %s;\n}\n' "$p"
}
shape_parts() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    state M[120, N];\n    output y[N];\n'
    printf "    M'[0,i] = x[i];\n"
    for ((k = 1; k < 120; k++)); do printf "    M'[%d,i] = tanh(M[%d,i] + M[%d,i]);\n" $k $((k - 1)) $k; done
    printf '    y[i] = M[119,i];\n}\n'
}
shape_parts_of_definitions() {
    local k
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n'
    for ((k = 0; k < 160; k++)); do printf '    m[%d,i] = tanh(%d * x[i]);\n' $k $k; done
    printf '    y[i] = sum[k] m[k,i];\n}\n'
}
shape_ste() { pointwise 'ste(sign(u), u) + stop(u) * u' 100; }
shape_shared_branches() { pointwise 'x[0] > 1 ? sin(u) : cos(u)' 100; }
shape_shared_branches_of_sums() { pointwise 'x[0] > 1 ? sum[j] u * x[j] : cos(u)' 40; }
shape_conditions_plain() {
    printf 'cell s {\n    dim N;\n    input x[N];\n    output y[N];\n    fn f(c, k) = (c && k > 1) && (c && k < 7) || !c;\n    y[i] = %s ? x[i] : 0;\n}\n' \
        "$(s='i > 3'; for ((k = 0; k < 60; k++)); do s="f($s, i)"; done; printf %s "$s")"
}
