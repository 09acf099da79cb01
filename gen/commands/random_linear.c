/* random_linear.c: random cells that are linear in matrix states, as schedule chunk may take them: one state
 * or several that feed one another, with or without heads, heads that share keys, several queries for a head,
 * axes in any order, one axis of values or two; decays none, number, per key, per value, also 0 and negative;
 * corrections and writes with keys and values of many spellings; several updates within a step; reads before
 * and after; a normaliser; learned initial states, resets; axes of bound size or not. */
#include <string.h>

#include "case.h"
#include "random_cell.h"
#include "random_maker.h"

typedef struct Maker {
    Compiler *c;
    Random random;
    Buf declared, equations;
    bool heads, grouped, second; /* heads; keys shared by R heads; a second axis of values */
    bool stable; /* a running maximum gives gates */
    bool resets, learns; /* sequences begin within a call; initial states are params */
    int bound[2]; /* N and V where the cell says them; 0: the call does */
    int order[4], rank; /* of the state: 0 head, 1 key, 2 value, 3 second value */
    int states;
    int names; /* given so far */
    int updates;
} Maker;

/* "[h,i]" from "hi", without what is no axis of this cell. */
static const char *at(const Maker *m, const char *letters)
{
    Buf b = { .arena = m->c->arena };
    for (const char *p = letters; *p; p++)
        if ((*p != 'h' || m->heads) && (*p != 'r' || m->second))
            buf_f(&b, "%s%c", b.len ? "," : "", *p);
    return b.len ? intern_f(m->c, "[%s]", b.data) : "";
}

/* "[h:H, i:N]", or "[H, N]" without indices. */
static const char *ranges(const Maker *m, const char *letters, bool indices)
{
    Buf b = { .arena = m->c->arena };
    for (const char *p = letters; *p; p++) {
        const char *extent = *p == 'h'   ? (m->grouped ? "G*R" : "H")
                             : *p == 'i' ? "N"
                             : *p == 'p' ? "V"
                             : *p == 'r' ? "U"
                                         : "M";
        if ((*p == 'h' && !m->heads) || (*p == 'r' && !m->second))
            continue;
        buf_f(&b, "%s", b.len ? ", " : "");
        if (indices)
            buf_f(&b, "%c:", *p);
        buf_f(&b, "%s", extent);
    }
    return b.len ? intern_f(m->c, "[%s]", b.data) : "";
}

static const char *axes_of_state(const Maker *m, char key)
{
    const char letters[] = { 'h', key, 'p', 'r' };
    char out[5] = { 0 };
    for (int i = 0; i < m->rank; i++)
        out[i] = letters[m->order[i]];
    return intern(m->c, out);
}

static const char *element(const Maker *m, const char *state, char key)
{
    return intern_f(m->c, "%s%s", state, at(m, axes_of_state(m, key)));
}

static const char *input(Maker *m, const char *letters)
{
    const char *name = TEXT(m, "x%d", m->names++);
    buf_f(&m->declared, "    input %s%s;\n", name, ranges(m, letters, false));
    return name;
}

/* ---- numbers, keys, values */

/* A number per head, of magnitude 1 at most. */
static const char *number(Maker *m)
{
    const char *x = TEXT(m, "%s%s", input(m, "h"), at(m, "h"));
    if (m->stable && chance(m, 40))
        return TEXT(m, "%s%s", chance(m, 60) ? "kept" : "taken", at(m, "h"));
    switch (below(m, 6)) {
    case 0: return TEXT(m, "(2 * sigmoid(%s) - 1)", x);
    case 1: return TEXT(m, "(%s > 0 ? sigmoid(%s) : 0)", x, x);
    case 2: return "0.5";
    case 3: {
        const char *name = TEXT(m, "n%d", m->names++);
        buf_f(&m->equations, "    %s%s = exp(-softplus(%s));\n", name, ranges(m, "h", true), x);
        return TEXT(m, "%s%s", name, at(m, "h"));
    }
    case 4: return TEXT(m, "sigmoid(%s)", x);
    default: return TEXT(m, "(1 - sigmoid(%s))", x);
    }
}

/* A name for a vector over keys; read it as NAME[h,i]. */
static const char *key(Maker *m)
{
    const char *name = TEXT(m, "k%d", m->names++), *from;
    if (m->grouped && chance(m, 60)) {
        from = TEXT(m, "g%d", m->names++);
        buf_f(&m->declared, "    input %s[G, N];\n", from);
        buf_f(&m->equations, "    %s[h:G*R, i:N] = %s[div(h, R), i];\n", name, from);
        return name;
    }
    from = input(m, "hi");
    const char *x = TEXT(m, "%s%s", from, at(m, "hi")), *all = TEXT(m, "%s%s", from, at(m, "hj"));
    switch (below(m, 6)) {
    case 0: return from;
    case 1:
        buf_f(&m->equations, "    %s%s = %s / (sqrt(sum[j] %s^2) + 1e-3);\n", name, ranges(m, "hi", true), x,
              all);
        break;
    case 2: buf_f(&m->equations, "    %s%s = silu(%s);\n", name, ranges(m, "hi", true), x); break;
    case 3:
        buf_f(&m->equations, "    %s%s = %s * sigmoid(%s%s);\n", name, ranges(m, "hi", true), x,
              input(m, "hi"), at(m, "hi"));
        break;
    case 4:
        buf_f(&m->equations, "    %s%s = -%s * %s / 2;\n", name, ranges(m, "hi", true), number(m), x);
        break;
    default: buf_f(&m->equations, "    %s%s = 1 - sigmoid(%s);\n", name, ranges(m, "hi", true), x); break;
    }
    return name;
}

/* An expression over values, over both axes where there are two. */
static const char *value(Maker *m)
{
    const char *x = TEXT(m, "%s%s", input(m, "hpr"), at(m, "hpr"));
    switch (below(m, 5)) {
    case 0: return TEXT(m, "silu(%s)", x);
    case 1: return TEXT(m, "%s * %s", number(m), x);
    case 2: return TEXT(m, "%s%s * %s", input(m, "p"), at(m, "p"), x);
    case 3: return TEXT(m, "(%s - %s)", x, number(m));
    default: return x;
    }
}

/* ---- the recurrence */

/* What multiplies an element of the state, with the operator behind it; "": nothing. */
static const char *decay(Maker *m)
{
    int kind = m->states > 1 ? below(m, 2) : below(m, 5);
    const char *name = TEXT(m, "a%d", m->names++);
    switch (kind) {
    case 0: return "";
    case 1: return TEXT(m, "%s * ", number(m));
    case 2:
    case 3: {
        const char *axes = kind == 2 ? "hi" : "hpr";
        buf_f(&m->equations, "    %s%s = %s(%s%s);\n", name, ranges(m, axes, true),
              kind == 2 ? "sigmoid" : "cos", input(m, axes), at(m, axes));
        return TEXT(m, "%s%s * ", name, at(m, axes));
    }
    default:
        return TEXT(m, "(sigmoid(%s%s) * %s%s) * ", input(m, "hi"), at(m, "hi"), input(m, "hpr"),
                    at(m, "hpr"));
    }
}

static const char *state_name(Maker *m, int i)
{
    return TEXT(m, "S%d", i);
}

/* A row: what is written, what the state says there, or both. */
static const char *row(Maker *m, const char *state, bool corrects, bool writes)
{
    const char *name = TEXT(m, "d%d", m->names++), *z = writes ? value(m) : NULL;
    if (!corrects)
        return TEXT(m, "(%s)", z);
    const char *w = key(m), *scale = chance(m, 50) ? TEXT(m, "%s * ", number(m)) : "";
    const char *sum = TEXT(m, "%ssum[j] %s%s * %s", scale, w, at(m, "hj"), element(m, state, 'j'));
    buf_f(&m->equations, "    %s%s = %s%s(%s);\n", name, ranges(m, "hpr", true), z ? z : "", z ? " - " : "-",
          sum);
    return TEXT(m, "%s%s", name, at(m, "hpr"));
}

static const char *addition(Maker *m, const char *state, bool corrects, bool writes)
{
    const char *beta = chance(m, 60) ? TEXT(m, "%s * ", number(m)) : "", *d = row(m, state, corrects, writes);
    const char *k = TEXT(m, "%s%s", key(m), at(m, "hi"));
    return chance(m, 50) ? TEXT(m, "%s%s * %s", beta, d, k) : TEXT(m, "%s * (%s%s)", k, beta, d);
}

/* Updates within a step, by `repeat`: the delta rule, or a correction and a write of their own. */
static const char *repeated(Maker *m)
{
    const char *k = input(m, "hmi"), *v = input(m, "hmpr"), *b = input(m, "hm");
    const char *own = TEXT(m, "%s%s", k, at(m, "hmi")), *mixed = TEXT(m, "%s%s", k, at(m, "hmj"));
    const char *a = chance(m, 40) ? TEXT(m, "%s * ", number(m)) : "";
    buf_f(&m->equations, "    repeat m:M {\n        carry A%s = %s;\n",
          ranges(m, axes_of_state(m, 'i'), false), element(m, "S0", 'i'));
    buf_f(&m->equations, "        e%s = %s%s - sum[j] %s * %s;\n", at(m, "hpr"), v, at(m, "hmpr"),
          element(m, "A", 'j'), mixed);
    buf_f(&m->equations, "        A'%s = %s%s + sigmoid(%s%s) * e%s * %s;\n    }\n",
          at(m, axes_of_state(m, 'i')), a, element(m, "A", 'i'), b, at(m, "hm"), at(m, "hpr"), own);
    return element(m, "A", 'i');
}

static const char *next_value(Maker *m, int a)
{
    Buf b = { .arena = m->c->arena };
    if (m->updates > 1)
        return repeated(m);
    for (int i = 0; i < m->states; i++)
        if (i == a || i == (a + 1) % m->states || chance(m, 40)) /* a ring, so that all feed one another */
            buf_f(&b, "%s%s%s", b.len ? " + " : "", decay(m), element(m, state_name(m, i), 'i'));
    int corrections = below(m, 3), writes = below(m, 3);
    for (int i = 0; i < corrections; i++)
        buf_f(&b, " %c %s", chance(m, 30) ? '-' : '+',
              addition(m, state_name(m, below(m, m->states)), true, chance(m, 70)));
    for (int i = 0; i < writes + (corrections == 0); i++)
        buf_f(&b, " + %s", addition(m, NULL, false, true));
    return intern(m->c, b.data);
}

/* ---- what spoils it */

enum { SPOILS = 11 };

/* A term more, or another form of the whole; gives the reason. */
static const char *spoil(Maker *m, const char **next, const char **outputs)
{
    const char *s = element(m, "S0", 'i'), *ki = TEXT(m, "%s%s", key(m), at(m, "hi"));
    const char *axes = at(m, axes_of_state(m, 'i')), *before = *next;
    for (;;)
        switch (below(m, SPOILS)) {
        case 0: *next = TEXT(m, "tanh(%s)", before); return "tanh of";
        case 1: *next = TEXT(m, "%s + 0.1 * stop(%s)", before, s); return "stop of";
        case 2: *next = TEXT(m, "%s - 0.1 * %s * %s", before, s, s); return "a product of two values";
        case 3: {
            const char *w = TEXT(m, "W%d", m->names++);
            buf_f(&m->declared, "    param %s[N, N] ~ xavier;\n", w);
            *next = TEXT(m, "%s + sum[j] %s[i,j] * %s", before, w, element(m, "S0", 'j'));
            return "every key meets every other one";
        }
        case 4:
            if (m->second)
                break; /* there the axis would be a head */
            *next = TEXT(m, "%s - %s%s * %s * %s", before, input(m, "hp"), at(m, "hp"), ki, s);
            return m->states > 1 ? "a decay that varies over" : "no product of a row's and a column's decay";
        case 5:
            *outputs = TEXT(m, "    output matrix%s;\n    matrix%s = S0'%s;\n",
                            ranges(m, axes_of_state(m, 'i'), false), axes, axes);
            return "takes single elements of";
        case 6:
            *next = TEXT(m, "%s + %s * (max[j] %s)", before, ki, element(m, "S0", 'j'));
            return "max over values of";
        case 7:
            if (m->second)
                break;
            *next = TEXT(m, "%s + %s%s * %s * (sum[j] %s%s * %s)", before, input(m, "hp"), at(m, "hp"), ki,
                         key(m), at(m, "hj"), element(m, "S0", 'j'));
            return "a correction of another strength for each value";
        case 8: *next = TEXT(m, "%s + (%s > 0 ? 0.1 * %s : 0)", before, s, s); return "a condition on";
        case 9: *next = TEXT(m, "%s + 0.1 * sqrt(1 + %s^2)", before, s); return "sqrt of";
        case 10: {
            char letters[5] = { 0 };
            Buf b = { .arena = m->c->arena };
            strcpy(letters, axes_of_state(m, 'i'));
            for (int i = 0; letters[i]; i++)
                if ((letters[i] != 'h' || m->heads) && (letters[i] != 'r' || m->second))
                    buf_f(&b, letters[i] == 'i' ? "%s(i + 1) %% N" : "%s%c", b.len ? "," : "", letters[i]);
            *next = TEXT(m, "%s + 0.1 * S0[%s]", before, b.data);
            return "another place of";
        }
        }
}

/* ---- the cell */

static void draw_shape(Maker *m)
{
    m->heads = chance(m, 75);
    m->grouped = m->heads && chance(m, 25);
    m->second = m->heads && chance(m, 15);
    m->states = chance(m, 70) ? 1 : 2 + below(m, 2);
    m->updates = m->states == 1 && chance(m, 25) ? 2 + below(m, 2) : 1;
    m->stable = m->heads && chance(m, 20);
    m->resets = chance(m, 20);
    m->learns = !m->resets && chance(m, 25);
    m->bound[0] = chance(m, 40) ? 1 + below(m, 20) : 0;
    m->bound[1] = chance(m, 40) ? 1 + below(m, 20) : 0;
    for (int i = 0; i < 4; i++)
        if ((i != 0 || m->heads) && (i != 3 || m->second))
            m->order[m->rank++] = i;
    for (int i = m->rank - 1; i > 0; i--) {
        int k = below(m, i + 1), x = m->order[i];
        m->order[i] = m->order[k];
        m->order[k] = x;
    }
}

/* Two queries for each head of the state. */
static void put_shared_read(Maker *m, int i)
{
    char letters[5] = { 0 };
    Buf place = { .arena = m->c->arena };
    const char *q = TEXT(m, "q%d", m->names++),
               *of = TEXT(m, "S%d%s", below(m, m->states), chance(m, 60) ? "'" : "");
    strcpy(letters, axes_of_state(m, 'i'));
    for (int k = 0; letters[k]; k++)
        if (letters[k] != 'r' || m->second)
            buf_f(&place, letters[k] == 'h' ? "%sdiv(a, 2)" : "%s%c", place.len ? "," : "", letters[k]);
    buf_f(&m->declared, "    input %s[2*H, N];\n    output y%d[2*H, V%s];\n", q, i, m->second ? ", U" : "");
    buf_f(&m->equations, "    y%d[a:2*H, p:V%s] = sum[i] %s[a,i] * %s[%s];\n", i, m->second ? ", r:U" : "", q,
          of, place.data);
}

static void put_reads(Maker *m)
{
    int reads = 1 + below(m, 3);
    for (int i = 0; i < reads; i++) {
        if (m->heads && !m->grouped && chance(m, 15)) {
            put_shared_read(m, i);
            continue;
        }
        const char *s = TEXT(m, "S%d%s", below(m, m->states), chance(m, 60) ? "'" : ""), *q = key(m);
        const char *scale = chance(m, 30) ? TEXT(m, "%s * ", number(m)) : "";
        buf_f(&m->declared, "    output y%d%s;\n", i, ranges(m, "hpr", false));
        buf_f(&m->equations, "    r%d%s = %ssum[i] %s%s * %s;\n", i, ranges(m, "hpr", true), scale, q,
              at(m, "hi"), element(m, s, 'i'));
        buf_f(&m->equations, "    y%d%s = %s;\n", i, at(m, "hpr"),
              chance(m, 50) ? TEXT(m, "r%d%s", i, at(m, "hpr"))
                            : TEXT(m, "silu(r%d%s) + tanh(%s)", i, at(m, "hpr"), value(m)));
    }
}

/* A vector over keys with the decay and the column of the one matrix, and a read of it. */
static const char *normalised(Maker *m)
{
    const char *a = number(m), *k = TEXT(m, "%s%s", key(m), at(m, "hi")), *q = key(m);
    buf_f(&m->declared, "    state z%s;\n    output total%s;\n", ranges(m, "hi", false),
          ranges(m, "h", false));
    buf_f(&m->equations, "    z'%s = %s * z%s + %s;\n", at(m, "hi"), a, at(m, "hi"), k);
    buf_f(&m->equations, "    total%s = abs(sum[i] z'%s * %s%s);\n", at(m, "h"), at(m, "hi"), q, at(m, "hi"));
    return TEXT(m, "%s * %s + %s * %s", a, element(m, "S0", 'i'), value(m), k);
}

/* A state, with a learned initial value now and then. */
static void declare_state(Maker *m, const char *name, const char *letters)
{
    const char *axes = ranges(m, letters, false);
    if (m->learns)
        buf_f(&m->declared, "    param %s_start%s ~ normal(0.3);\n", name, axes);
    buf_f(&m->declared, "    state %s%s", name, axes);
    if (m->learns)
        buf_f(&m->declared, " = %s_start%s", name, at(m, letters));
    buf_f(&m->declared, ";\n");
}

/* As mLSTM does: a running maximum of logarithms, and what it leaves of two gates. */
static void stabilise(Maker *m)
{
    const char *old = at(m, "h");
    const char *f = TEXT(m, "logsigmoid(%s%s)", input(m, "h"), old), *i = TEXT(m, "%s%s", input(m, "h"), old);
    declare_state(m, "top", "h");
    buf_f(&m->equations, "    top'%s = max(%s + top%s, %s);\n", old, f, old, i);
    buf_f(&m->equations, "    kept%s = exp(%s + top%s - top'%s);\n", ranges(m, "h", true), f, old, old);
    buf_f(&m->equations, "    taken%s = exp(%s - top'%s);\n", ranges(m, "h", true), i, old);
}

/* The run-time dims and those that are bound. */
static void put_dims(const Maker *m, Buf *out)
{
    const char *const names[] = { "N", "V" };
    for (int i = 0; i < 2; i++)
        if (m->bound[i])
            buf_f(out, "    dim %s = %d;\n", names[i], m->bound[i]);
        else
            buf_f(out, "    dim %s;\n", names[i]);
    if (m->second)
        buf_f(out, "    dim U;\n");
    if (m->heads)
        buf_f(out, "    dim %s;\n", m->grouped ? "G, R" : "H");
    if (m->updates > 1)
        buf_f(out, "    dim M = %d;\n", m->updates);
}

const char *random_linear_cell(Compiler *c, uint64_t seed, bool spoiled, Buf *out)
{
    Maker m = { .c = c,
                .random = { seed * 7919 + 12345 },
                .declared = { .arena = c->arena },
                .equations = { .arena = c->arena } };
    const char *reason = NULL, *outputs = "";
    draw_shape(&m);
    bool normaliser = m.heads && m.states == 1 && m.updates == 1 && chance(&m, 20);
    if (m.resets)
        buf_f(&m.declared, "    reset start;\n");
    if (m.stable)
        stabilise(&m);
    for (int a = 0; a < m.states; a++) {
        const char *next = normaliser ? normalised(&m) : next_value(&m, a);
        if (spoiled && a == 0)
            reason = spoil(&m, &next, &outputs);
        buf_f(&m.equations, "    S%d'%s = %s;\n", a, at(&m, axes_of_state(&m, 'i')), next);
        declare_state(&m, state_name(&m, a), axes_of_state(&m, 'i'));
    }
    put_reads(&m);
    buf_f(out, "// random linear cell of seed %llu%s%s\n", (unsigned long long)seed,
          c->lengths ? ", for --lengths" : "", c->reverse ? ", for --reverse" : "");
    buf_f(out, "cell linear {\n");
    put_dims(&m, out);
    buf_f(out, "%s%s%s}\n", m.declared.data, m.equations.data, outputs);
    return reason;
}
