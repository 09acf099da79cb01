/* random_gated.c: random cells whose steps multiply vectors of their states by params, as one kernel of
 * schedule gemm may walk them: one to four gates over units, with or without heads, with weights stacked or
 * each by itself; a gate that weighs the state before its product; a second state; or many columns that
 * share their weights, and sums over these. In comes a seed, out goes the text of a cell; all activations
 * are bounded. */
#include "case.h"
#include "random_cell.h"
#include "random_maker.h"

enum { MOST_GATES = 4 };

typedef struct Maker {
    Compiler *c;
    Random random;
    Buf declared, equations;
    bool heads, stacked, biased, projected, second, learns;
    int gates, bound; /* the units where the cell says them; 0: the call does */
    int names; /* given so far */
} Maker;

/* "[a,u]", or "[u]" where there are no heads; `last` is the index of the units. */
static const char *at(const Maker *m, const char *last)
{
    return TEXT(m, m->heads ? "[a,%s]" : "[%s]", last);
}

static const char *extents(const Maker *m, const char *units)
{
    return TEXT(m, m->heads ? "[H, %s]" : "[%s]", units);
}

static const char *ranges(const Maker *m, const char *units)
{
    return TEXT(m, m->heads ? "[a:H, u:%s]" : "[u:%s]", units);
}

static const char *bounded(Maker *m, const char *x)
{
    static const char *const functions[] = { "tanh", "sigmoid", "cos", "tanh" };
    return TEXT(m, "%s(%s)", functions[below(m, 4)], x);
}

/* ---- gates ---- */

/* What a gate adds to its product: an input, or a projection of one, and a bias. */
static const char *beside(Maker *m)
{
    const char *name = TEXT(m, "x%d", m->names++), *units = at(m, "u"), *term;
    if (m->projected) {
        buf_f(&m->declared, "    param W%s[%sN, D] ~ xavier;\n", name, m->heads ? "H, " : "");
        term = TEXT(m, "(sum[d] W%s[%su,d] * x[d])", name, m->heads ? "a," : "");
    } else {
        buf_f(&m->declared, "    input %s%s;\n", name, extents(m, "N"));
        term = TEXT(m, "%s%s", name, units);
    }
    if (!m->biased)
        return term;
    buf_f(&m->declared, "    param b%s%s ~ normal(0.3);\n", name, extents(m, "N"));
    return TEXT(m, "%s + b%s%s", term, name, units);
}

/* The products of all gates as one, of which each reads its rows. */
static void put_stack(Maker *m)
{
    const char *rows = TEXT(m, "%d*N", m->gates);
    buf_f(&m->declared, "    param R[%s%s, N] ~ normal(0.3);\n", m->heads ? "H, " : "", rows);
    buf_f(&m->equations, "    r%s = sum[j] R[%su,j] * h%s;\n", ranges(m, rows), m->heads ? "a," : "",
          at(m, "j"));
}

/* The product of gate i. */
static const char *product(Maker *m, int i)
{
    if (m->stacked)
        return TEXT(m, "r%s", at(m, i ? TEXT(m, "%d*N + u", i) : "u"));
    buf_f(&m->declared, "    param R%d[%sN, N] ~ normal(0.3);\n", i, m->heads ? "H, " : "");
    return TEXT(m, "(sum[j] R%d[%su,j] * h%s)", i, m->heads ? "a," : "", at(m, "j"));
}

/* Names the gates; the last may weigh its product by the first, or, apart, the state that it multiplies. */
static void put_gates(Maker *m)
{
    bool weighs = m->gates > 1 && chance(m, 40);
    for (int i = 0; i < m->gates; i++) {
        const char *p;
        bool last = weighs && i == m->gates - 1;
        if (last && !m->stacked && chance(m, 50)) {
            buf_f(&m->declared, "    param R%d[%sN, N] ~ normal(0.3);\n", i, m->heads ? "H, " : "");
            p = TEXT(m, "(sum[j] R%d[%su,j] * g0%s * h%s)", i, m->heads ? "a," : "", at(m, "j"), at(m, "j"));
        } else {
            p = product(m, i);
            p = last ? TEXT(m, "g0%s * %s", at(m, "u"), p) : p;
        }
        const char *sum = TEXT(m, "%s + %s", beside(m), p);
        buf_f(&m->equations, "    g%d%s = %s;\n", i, ranges(m, "N"),
              i == 0 && m->gates > 1 ? TEXT(m, "sigmoid(%s)", sum) : bounded(m, sum));
    }
}

static const char *gate(const Maker *m, int i)
{
    return TEXT(m, "g%d%s", i < m->gates ? i : m->gates - 1, at(m, "u"));
}

static void put_state(Maker *m, const char *name)
{
    const char *start = "";
    if (m->learns) {
        buf_f(&m->declared, "    param %s0%s ~ normal(0.3);\n", name, extents(m, "N"));
        start = TEXT(m, " = %s0%s", name, at(m, "u"));
    }
    buf_f(&m->declared, "    state %s%s%s;\n", name, extents(m, "N"), start);
}

static void put_next(Maker *m)
{
    const char *u = at(m, "u");
    put_state(m, "h");
    if (m->second) {
        put_state(m, "c");
        buf_f(&m->equations, "    c'%s = 0.9 * %s * c%s + %s;\n", u, gate(m, 0), u, gate(m, 1));
        buf_f(&m->equations, "    h'%s = %s * tanh(c'%s);\n", u, gate(m, 2), u);
    } else if (m->gates == 1) {
        buf_f(&m->equations, chance(m, 50) ? "    h'%s = %s;\n" : "    h'%s = 0.5 * %s + 0.5 * h%s;\n", u,
              gate(m, 0), u);
    } else {
        buf_f(&m->equations, "    h'%s = %s * h%s + (1 - %s) * %s;\n", u, gate(m, 0), u, gate(m, 0),
              gate(m, 1 + below(m, m->gates - 1)));
    }
}

static void put_output(Maker *m)
{
    const char *u = at(m, "u");
    buf_f(&m->declared, "    output y%s;\n", extents(m, "N"));
    switch (below(m, 3)) {
    case 0: buf_f(&m->equations, "    y%s = h'%s;\n", u, u); break;
    case 1: buf_f(&m->equations, "    y%s = h'%s * h'%s;\n", u, u, u); break;
    default: buf_f(&m->equations, "    y%s = h'%s * %s;\n", u, u, gate(m, below(m, m->gates))); break;
    }
}

static void put_units(Maker *m, Buf *out)
{
    if (m->bound)
        buf_f(out, "    dim N = %d;\n", m->bound);
    else
        buf_f(out, "    dim N;\n");
}

static void gates(Maker *m, Buf *out)
{
    m->heads = chance(m, 30);
    m->gates = 1 + below(m, MOST_GATES);
    m->stacked = m->gates > 1 && chance(m, 50);
    m->biased = chance(m, 60);
    m->projected = chance(m, 50);
    m->second = m->gates > 2 && chance(m, 50);
    m->learns = chance(m, 25);
    m->bound = chance(m, 25) ? 1 + below(m, 40) : 0;
    if (m->projected) {
        buf_f(out, "    dim D;\n");
        buf_f(&m->declared, "    input x[D];\n");
    }
    if (m->heads)
        buf_f(out, "    dim H;\n");
    put_units(m, out);
    if (m->stacked)
        put_stack(m);
    put_gates(m);
    put_next(m);
    put_output(m);
}

/* ---- columns ---- */

/* A sum over the columns of the next state. */
static const char *column_sum(Maker *m)
{
    const char *name = TEXT(m, "c%d", m->names++);
    if (chance(m, 70))
        buf_f(&m->declared, "    param %s[M] ~ normal(0.5);\n", name);
    else
        buf_f(&m->declared, "    input %s[M];\n", name);
    return TEXT(m, "(sum[n] %s[n] * h'[n,i])", name);
}

static void columns(Maker *m, Buf *out)
{
    m->bound = chance(m, 40) ? 32 + 8 * below(m, 5) : 0; /* fewer are no row of a kernel (plan_apart.c) */
    put_units(m, out);
    buf_f(out, "    dim M;\n");
    buf_f(&m->declared, "    input x[N], z[N];\n    param R[N, N] ~ normal(0.2);\n");
    buf_f(&m->declared, "    state h[M, N];\n    output y[N];\n");
    const char *sum = "x[i] + (sum[j] R[i,j] * h[n,j])";
    if (chance(m, 50)) {
        buf_f(&m->declared, "    param e[M] ~ normal(0.3);\n");
        sum = TEXT(m, "%s + e[n]", sum);
    }
    if (chance(m, 50)) {
        buf_f(&m->declared, "    param b[N] ~ normal(0.3);\n");
        sum = TEXT(m, "%s + b[i]", sum);
    }
    if (chance(m, 30)) {
        buf_f(&m->declared, "    input v[M, N];\n");
        sum = TEXT(m, "%s + v[n,i]", sum);
    }
    buf_f(&m->equations, "    h'[n,i] = %s;\n", bounded(m, sum));
    const char *read = column_sum(m);
    if (chance(m, 30))
        read = TEXT(m, "tanh(z[i]) * %s + %s", read, column_sum(m));
    buf_f(&m->equations, "    y[i] = %s%s;\n", read, chance(m, 50) ? " * silu(z[i])" : " + z[i]");
}

void random_gated_cell(Compiler *c, uint64_t seed, Buf *out)
{
    Maker m = { .c = c,
                .random = { seed * 7919 + 54321 },
                .declared = { .arena = c->arena },
                .equations = { .arena = c->arena } };
    buf_f(out, "// random gated cell of seed %llu%s%s\n", (unsigned long long)seed,
          c->lengths ? ", for --lengths" : "", c->reverse ? ", for --reverse" : "");
    buf_f(out, "cell gated {\n");
    (chance(&m, 75) ? gates : columns)(&m, out);
    buf_f(out, "%s%s}\n", m.declared.data, m.equations.data);
}
