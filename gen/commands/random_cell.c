/* random_cell.c: prints random cells that are valid by construction. What comes in is a seed; what goes out is a spec
 * that draws on the whole language: scalars, vectors, matrices and heads, several states, learned initial values,
 * constant inputs and params, guards, affine and wrapping indices, functions of every kind, fn, repeat, softmax,
 * reductions, earlier steps and the whole past, resets, lengths, reads at integer places, and rounded definitions. Every
 * expression carries a bound of its magnitude; what could grow is squashed, and what has a limited domain is given an
 * argument inside it. */
#include "random_cell.h"
#include "random_maker.h"

#include <string.h>

#include "case.h"

enum { MAX_VALUES = 48, MAX_BOUND = 6, MAX_RANK = 3, N_DIMS = 4, FNS = 7 };

/* An extent: coef * dim + offset; dim -1: the offset alone. */
typedef struct Extent { int coef, dim, offset; } Extent;

typedef struct Value {
    char name[16];
    int rank;
    Extent axis[MAX_RANK];
    double size;                  /* its magnitude is about this */
    bool is_state;
    bool stateful;                /* depends on a state, so it has no earlier steps */
} Value;

typedef struct Bound { char name; Extent range; } Bound;

typedef struct Maker {
    Compiler *c;
    Random random;
    Buf *out;
    Value values[MAX_VALUES];
    int nvalues;
    Bound bound[MAX_BOUND];       /* indices in scope */
    int nbound;
    int depth;                    /* reductions around */
    bool stateful;                /* what has been read since it was cleared depends on a state */
    bool uses_fn[FNS];
    Random places;                /* of its own, so that a seed's cell is else the same with integers as without */
    Random roundings;             /* likewise */
    bool has_integers;
    bool anew;                    /* sequences begin within a call: t is no index, and steps are counted back */
    bool plain;                   /* no integer places: of what a gradient is taken with respect to */
} Maker;

/* An expression's text and what its magnitude may be. */
typedef struct Term { const char *text; double size; } Term;

static const char dim_names[N_DIMS] = {'D', 'N', 'M', 'H'};
static const char index_names[] = "ijklpqrs";

/* ---- extents and indices */

static const char *extent_text(Maker *m, Extent e)
{
    if (e.dim < 0)
        return TEXT(m, "%d", e.offset);
    const char *scaled =
        e.coef == 1 ? TEXT(m, "%c", dim_names[e.dim]) : TEXT(m, "%d*%c", e.coef, dim_names[e.dim]);
    return e.offset ? TEXT(m, "%s + %d", scaled, e.offset) : scaled;
}

static bool same_extent(Extent a, Extent b)
{
    return a.dim == b.dim && a.offset == b.offset && (a.dim < 0 || a.coef == b.coef);
}

static Extent random_extent(Maker *m)
{
    if (chance(m, 10))
        return (Extent){0, -1, 2 + below(m, 2)};
    return (Extent){1, below(m, N_DIMS), 0};
}

static char fresh_index(Maker *m)
{
    for (const char *p = index_names; *p; p++) {
        bool used = false;
        for (int i = 0; i < m->nbound; i++)
            used = used || m->bound[i].name == *p;
        if (!used)
            return *p;
    }
    return 0;
}

/* An index in scope with exactly this range, or 0. */
static char index_with(Maker *m, Extent e)
{
    int first = m->nbound ? below(m, m->nbound) : 0;
    for (int i = 0; i < m->nbound; i++) {
        const Bound *b = &m->bound[(first + i) % m->nbound];
        if (same_extent(b->range, e))
            return b->name;
    }
    return 0;
}

static char any_index(Maker *m)
{
    return m->nbound ? m->bound[below(m, m->nbound)].name : 0;
}

/* An index expression that stays inside an axis for all sizes: plain, wrapped, reversed, halved, shifted or
 * constant. */
static const char *index_text(Maker *m, Extent e)
{
    char plain = index_with(m, e), any = any_index(m), other = any_index(m);
    const char *n = extent_text(m, e);
    if (plain && chance(m, 70))
        return TEXT(m, "%c", plain);
    if (e.dim >= 0 && e.coef == 2 && e.offset == 0) {
        char half = index_with(m, (Extent){1, e.dim, 0});
        if (half)
            return chance(m, 50) ? TEXT(m, "%c + %c", dim_names[e.dim], half)
                                 : TEXT(m, "2*%c + %d", half, below(m, 2));
    }
    if (e.dim >= 0 && e.offset > 0) {
        char inner = index_with(m, (Extent){e.coef, e.dim, 0});
        if (inner)
            return TEXT(m, "%c + %d", inner, below(m, e.offset + 1));
    }
    switch (any ? below(m, 6) : 5) {
    case 0: return TEXT(m, "(%c + %d) %% (%s)", any, 1 + below(m, 3), n);
    case 1: return TEXT(m, "(%c - %c) %% (%s)", any, other, n);
    case 2: return TEXT(m, "(2*%c + %c) %% (%s)", any, other, n);
    case 3: return plain ? TEXT(m, "%s - 1 - %c", n, plain) : TEXT(m, "%c %% (%s)", any, n);
    case 4: return plain ? TEXT(m, "%c / 2", plain) : TEXT(m, "(%c + 1) %% (%s)", any, n);
    default: return chance(m, 50) ? "0" : TEXT(m, "%s - 1", n);
    }
}

/* An integer that says a place of an axis, now and then outside of it; or else the index. */
static const char *place_text(Maker *m, const char *index)
{
    if (!m->has_integers || m->plain || random_below(&m->places, 6))
        return index;
    int any = m->nbound ? m->bound[random_below(&m->places, m->nbound)].name : 0;
    switch (random_below(&m->places, any ? 9 : 7)) {
    case 0: return "max(k0, 0)";
    case 1: return "2*k0 - 1";
    case 2: return TEXT(m, "k1[%d]", (int)random_below(&m->places, 2));
    case 3: return TEXT(m, "k0[; t - %d]", 1 + (int)random_below(&m->places, 3));
    case 4: return "k1[k0 % 2]";
    case 5: return "k1[max(k0, 0); t - 1]";
    case 7: return TEXT(m, "k0 - %c", any);
    case 8: return TEXT(m, "(%c == k0 ? 0 : k0)", any);
    default: return "k0";
    }
}

/* ---- terms */

static Term expression(Maker *m, int budget);

static Term squash(Maker *m, Term a, double limit)
{
    if (a.size <= limit)
        return a;
    static const char *const by[] = {"tanh", "softsign", "sin", "erf"};
    return (Term){TEXT(m, "%s(%s)", by[below(m, 4)], a.text), 1};
}

/* An index in scope whose range is a number, so that of all distances one is the largest; or 0. */
static char distance_index(Maker *m)
{
    for (int i = 0; i < m->nbound; i++)
        if (m->bound[i].range.dim < 0 || dim_names[m->bound[i].range.dim] == 'N' ||
            dim_names[m->bound[i].range.dim] == 'M')
            return m->bound[i].name;
    return 0;
}

/* A step that is not later than this one; NULL: this one. */
static const char *step_text(Maker *m, const Value *v)
{
    bool has_steps = !v->stateful && (v->name[0] == 'x' || v->name[0] == 'a');
    char w = distance_index(m);
    if (!has_steps || !chance(m, 15))
        return NULL;
    switch (below(m, w ? 6 : 3)) {
    case 0: return "t - 2";
    case 1: return chance(m, 10) && !m->anew ? "0" : "t - 4";
    case 3: return TEXT(m, "t - %c", w);
    case 4: return TEXT(m, "t - 2*%c - 1", w);
    case 5: return TEXT(m, "t - (%c + 1) / 2", w);
    default: return "t - 1";
    }
}

static const char *load_text(Maker *m, const Value *v, const char *name)
{
    const char *text = name, *step = name == v->name ? step_text(m, v) : NULL;
    m->stateful = m->stateful || v->stateful;
    for (int i = 0; i < v->rank; i++)
        text = TEXT(m, i ? "%s, %s" : "%s[%s", text, place_text(m, index_text(m, v->axis[i])));
    if (step)
        return TEXT(m, v->rank ? "%s; %s]" : "%s[; %s]", text, step);
    return v->rank ? TEXT(m, "%s]", text) : text;
}

/* A neighbour along an axis whose index is in scope; outside, another term. */
static const char *guarded_load(Maker *m, const Value *v)
{
    if (v->rank != 1 || !index_with(m, v->axis[0]))
        return NULL;
    char i = index_with(m, v->axis[0]);
    const char *n = extent_text(m, v->axis[0]);
    double other = 0.25 * below(m, 4);
    m->stateful = m->stateful || v->stateful;
    switch (below(m, 3)) {
    case 0: return TEXT(m, "(%c > 0 ? %s[%c - 1] : %g)", i, v->name, i, other);
    case 1: return TEXT(m, "(%c + 1 < %s ? %s[%c + 1] : %g)", i, n, v->name, i, other);
    default:
        return TEXT(m, "(%c >= 1 && %c <= %s - 2 ? %s[%c + 1] - %s[%c - 1] : %g)", i, i, n, v->name, i,
                    v->name, i, other);
    }
}

/* Prefers values whose axes the indices in scope run over. */
static const Value *pick_value(Maker *m)
{
    const Value *best = NULL;
    for (int tries = 0; tries < 4; tries++) {
        const Value *v = &m->values[below(m, m->nvalues)];
        bool fits = true;
        for (int i = 0; i < v->rank; i++)
            fits = fits && index_with(m, v->axis[i]);
        best = !best || (fits && v->rank) ? v : best;
    }
    return best;
}

/* A whole number made of indices and, where no sequence begins again, of the step. */
static const char *whole_text(Maker *m)
{
    char i = any_index(m), j = any_index(m);
    switch (below(m, m->anew ? 5 : 7)) {
    case 0: return TEXT(m, "(2*%c + %c + 1) %% 3", i, j);
    case 1: return TEXT(m, "div(3*%c - 2, 2)", i);
    case 2: return TEXT(m, "mod(%c - %c, 3)", i, j);
    case 3: return TEXT(m, "min(%c * %c, 2)", i, j);
    case 4: return TEXT(m, "(%c > %c ? %c - %c : 1)", i, j, i, j);
    case 5: return TEXT(m, "(t + %c) %% 3", i);
    default: return TEXT(m, "min(t, 3) - %c", i);
    }
}

static Term leaf(Maker *m)
{
    if (m->nvalues == 0 || chance(m, 8))
        return (Term){TEXT(m, "%g", 0.25 * (1 + below(m, 6))), 1.5};
    if (m->nbound && chance(m, 6)) {
        char i = any_index(m);
        if (chance(m, 40))
            return (Term){TEXT(m, "0.1*(%s)", whole_text(m)), 1};
        return (Term){m->has_integers ? TEXT(m, "0.1*%c + (k0 == %c ? 0.1*real(k0) : 0)", i, i) : TEXT(m, "0.1*%c", i), 1};
    }
    const Value *v = pick_value(m);
    const char *guarded = chance(m, 12) ? guarded_load(m, v) : NULL;
    return (Term){guarded ? guarded : load_text(m, v, v->name), guarded ? 2 * v->size : v->size};
}

static const char *condition(Maker *m, int budget)
{
    char i = any_index(m), j = any_index(m);
    if (i && chance(m, 50)) {
        switch (below(m, 5)) {
        case 0: return TEXT(m, "%c == %c", i, j);
        case 1: return TEXT(m, "%c < %c", i, j);
        case 2: return TEXT(m, "(%c + %c) %% 2 == 0", i, j);
        case 3: return TEXT(m, "%c != 1 || %c == 0", i, j);
        default: return TEXT(m, "!(%c >= 2)", i);
        }
    }
    if (chance(m, 25))
        return chance(m, 50) ? "t > 0" : m->anew ? "t < 3" : "t % 2 == 0";
    Term a = expression(m, budget / 2);
    return TEXT(m, "%s %s %g", a.text, chance(m, 50) ? ">" : "<=", 0.1 + 0.37 * below(m, 3));
}

/* What is whole, or wraps: its jumps are at arguments that no term has by itself, such as 0 or a half. */
static Term jumping(Maker *m, Term a)
{
    static const char *const whole[] = {"floor", "ceil", "round"};
    const char *small = TEXT(m, "tanh(%s)", a.text);
    switch (below(m, 3)) {
    case 0: return (Term){TEXT(m, "0.3*%s(2.3*%s + 0.37)", whole[below(m, 3)], small), 1};
    case 1: return (Term){TEXT(m, "(1.73 + 2*%s) %% 1.1", small), 1.1};
    default: return (Term){TEXT(m, "ste(round(1.9*%s + 0.21), %s)", small, a.text), 2};
    }
}

/* A function of one argument, with the argument brought into its domain. */
static Term function1(Maker *m, int budget)
{
    static const char *const plain[] = {"tanh",      "sigmoid",  "silu",     "relu",      "gelu",
                                        "gelu_tanh", "softplus", "softsign", "elu",       "erf",
                                        "sin",       "cos",      "abs",      "logsigmoid",
                                        "mish",      "hardtanh", "atan",     "leaky_relu"};
    Term a = expression(m, budget - 1);
    switch (below(m, 17)) {
    case 0: return (Term){TEXT(m, "exp(%s)", squash(m, a, 1).text), 2.8};
    case 1: return (Term){TEXT(m, "log((%s)^2 + 0.5)", a.text), 3};
    case 2: return (Term){TEXT(m, "sqrt((%s)^2 + 0.3)", a.text), a.size + 1};
    case 3: return (Term){TEXT(m, "rsqrt((%s)^2 + 0.5)", a.text), 1.5};
    case 4: return (Term){TEXT(m, "log1p((%s)^2)", a.text), 3};
    case 5: return (Term){TEXT(m, "expm1(%s)", squash(m, a, 1).text), 2};
    case 6: return (Term){TEXT(m, "sinh(%s)", squash(m, a, 1).text), 1.2};
    case 7: return (Term){TEXT(m, "cosh(%s)", squash(m, a, 1).text), 1.6};
    case 8: return (Term){TEXT(m, "tan(%s)", squash(m, a, 1).text), 1.6};
    case 9: return (Term){TEXT(m, "leaky_relu(%s, %g)", a.text, 0.1 * below(m, 4)), a.size};
    case 10: return jumping(m, a);
    default: {
        const char *f = plain[below(m, (int)(sizeof plain / sizeof *plain))];
        return (Term){TEXT(m, "%s(%s)", f, a.text), a.size + 1};
    }
    }
}

static Term operation2(Maker *m, int budget)
{
    Term a = expression(m, budget / 2), b = expression(m, budget / 2);
    switch (below(m, 11)) {
    case 0: case 1: case 2: return (Term){TEXT(m, "(%s)*(%s)", a.text, b.text), a.size * b.size};
    case 3: case 4: return (Term){TEXT(m, "%s + %s", a.text, b.text), a.size + b.size};
    case 5: return (Term){TEXT(m, "%s - (%s)", a.text, b.text), a.size + b.size};
    case 6: return (Term){TEXT(m, "(%s)/(1.5 + (%s)^2)", a.text, b.text), a.size};
    case 7:
        return (Term){TEXT(m, "%s(%s, %s)", chance(m, 50) ? "max" : "min", a.text, b.text), a.size + b.size};
    case 8: return (Term){TEXT(m, "atan2(%s, 2 + (%s)^2)", a.text, b.text), 1.6};
    case 9: return (Term){TEXT(m, "pow(1.2 + tanh(%s), %s)", a.text, squash(m, b, 1.5).text), 4};
    default: return (Term){TEXT(m, "clamp(%s, -0.8, 0.9)", a.text), 1};
    }
}

static Term power(Maker *m, int budget)
{
    Term a = squash(m, expression(m, budget - 1), 2);
    switch (below(m, 4)) {
    case 0: return (Term){TEXT(m, "(%s)^2", a.text), a.size * a.size};
    case 1: return (Term){TEXT(m, "(%s)^3", a.text), a.size * a.size * a.size};
    case 2: return (Term){TEXT(m, "(1 + (%s)^2)^-1", a.text), 1};
    default: return (Term){TEXT(m, "((%s)^2 + 0.4)^0.5", a.text), a.size + 1};
    }
}

static Term reduction(Maker *m, int budget)
{
    static const char *const names[] = {"sum", "mean", "max", "min", "prod"};
    int kind = chance(m, 55) ? 0 : below(m, 5);
    Extent e = random_extent(m);
    char i = fresh_index(m);
    if (!i || m->depth == 2 || m->nbound == MAX_BOUND)
        return leaf(m);
    m->bound[m->nbound++] = (Bound){i, e};
    m->depth++;
    Term a = expression(m, budget - 1);
    m->depth--;
    m->nbound--;
    const char *range = extent_text(m, e);
    if (kind == 4)
        return (Term){TEXT(m, "(prod[%c:%s] (1 + 0.2*tanh(%s)))", i, range, a.text), 3};
    return (Term){TEXT(m, "(%s[%c:%s] (%s))", names[kind], i, range, a.text),
                  kind == 0 ? 4 * a.size : a.size};
}

/* A weighted sum over the whole past. */
static Term whole_past(Maker *m)
{
    for (int tries = 0; tries < 8 && m->nbound < MAX_BOUND && m->depth < 2; tries++) {
        const Value *v = &m->values[below(m, m->nvalues)];
        char w = fresh_index(m);
        if (!w || v->stateful || v->name[0] != 'x')
            continue;
        const char *at = "";
        for (int i = 0; i < v->rank; i++)
            at = TEXT(m, i ? "%s, %s" : "%s%s", at, index_text(m, v->axis[i]));
        return (Term){TEXT(m, "(sum[%c:T] (%c <= t ? %s[%s; t - %c] / (1 + %c^2) : 0))", w, w, v->name, at, w, w),
                      2 * v->size};
    }
    return leaf(m);
}

static Term softmax(Maker *m, int budget)
{
    char i = any_index(m), j = any_index(m);
    if (!i)
        return leaf(m);
    Term a = squash(m, expression(m, budget - 1), 4);
    if (j != i && chance(m, 30))
        return (Term){TEXT(m, "softmax[%c, %c](%s)", i, j, a.text), 1};
    return (Term){TEXT(m, "softmax[%c](%s)", i, a.text), 1};
}

/* A use of one of the fns that are printed with the cell. */
static Term call(Maker *m, int budget)
{
    int which = below(m, 5);
    if (which == 0) {
        Term a = expression(m, budget / 2), b = expression(m, budget / 2);
        m->uses_fn[0] = true;
        return (Term){TEXT(m, "mix(%s, %s)", a.text, b.text), a.size + b.size};
    }
    for (int tries = 0; tries < 8; tries++) {
        const Value *v = &m->values[below(m, m->nvalues)];
        if (v->rank == 0 || v->rank > 2)
            continue;
        int open = below(m, v->rank);
        static const char *const names[] = {"", "normal", "centre", "share", "parts"};
        const char *pick = which < 4 ? "" : chance(m, 50) ? ".near" : ".far";
        const char *at = index_text(m, v->axis[open]);
        m->uses_fn[which] = true;
        m->stateful = m->stateful || v->stateful;
        if (v->rank == 1)
            return (Term){TEXT(m, "%s(%s)%s[%s]", names[which], v->name, pick, at), 1.5};
        const char *other = place_text(m, index_text(m, v->axis[1 - open]));
        return (Term){open ? TEXT(m, "%s(%s[%s, :])%s[%s]", names[which], v->name, other, pick, at)
                           : TEXT(m, "%s(%s[:, %s])%s[%s]", names[which], v->name, other, pick, at), 1.5};
    }
    return leaf(m);
}

static Term conditional(Maker *m, int budget)
{
    const char *c = condition(m, budget);
    Term a = expression(m, budget / 2), b = expression(m, budget / 2);
    return (Term){TEXT(m, "(%s ? %s : %s)", c, a.text, b.text), a.size > b.size ? a.size : b.size};
}

/* What is one thing forwards and another backwards. */
static Term surrogate(Maker *m, int budget)
{
    if (chance(m, 50))
        return (Term){TEXT(m, "stop(%s)", leaf(m).text), 3};
    Term y = expression(m, budget / 2), x = expression(m, budget / 2);
    if (chance(m, 50))
        return (Term){TEXT(m, "ste(%s(%s), %s)", chance(m, 50) ? "sign" : "round", y.text, x.text), y.size + 1};
    return (Term){TEXT(m, "ste(%s, %s)", y.text, x.text), y.size};
}

/* A derivative of a definition, or of a fn. A definition with axes is multiplied by what is held; indices that
 * nothing else has are summed over. */
static Term gradient(Maker *m, int budget)
{
    const Value *of = &m->values[below(m, m->nvalues)], *by = &m->values[below(m, m->nvalues)];
    if (of->name[0] != 'a' || chance(m, 30)) {
        int which = 5 + below(m, 2);
        const Value *v = pick_value(m);
        m->uses_fn[which] = true;
        return (Term){TEXT(m, "%s(0.5*%s + %s)", which == 5 ? "slope" : "bend", load_text(m, v, v->name),
                           expression(m, budget - 1).text), 8};
    }
    m->plain = true;
    const char *place = load_text(m, by, TEXT(m, "%s", by->name)), *loss = of->name;   /* of this step */
    m->plain = false;
    m->stateful = m->stateful || of->stateful;
    if (of->rank == 0)
        return (Term){TEXT(m, "grad(%s, %s)", loss, place), 20};
    for (int i = 0; i < of->rank; i++)
        loss = TEXT(m, i ? "%s, %c" : "%s[%c", loss, "efg"[i]);
    return (Term){TEXT(m, "grad(%s], %s; 0.5 + sin(%s]))", loss, place, loss), 20};
}

static Term expression(Maker *m, int budget)
{
    Term t;
    if (budget <= 0)
        return leaf(m);
    switch (below(m, 17)) {
    case 0: case 1: t = leaf(m); break;
    case 2: case 3: case 4: t = function1(m, budget); break;
    case 5: case 6: case 7: case 8: t = operation2(m, budget); break;
    case 9: case 10: case 11: t = reduction(m, budget); break;
    case 12: t = chance(m, 12) ? whole_past(m) : softmax(m, budget); break;
    case 13: t = chance(m, 50) ? power(m, budget) : conditional(m, budget); break;
    case 14: t = call(m, budget); break;
    case 15: t = gradient(m, budget); break;
    default: t = chance(m, 50) ? surrogate(m, budget) : conditional(m, budget); break;
    }
    return squash(m, t, 6);
}

/* ---- statements */

static Value *new_value(Maker *m, char letter, int rank, double size)
{
    static Value spare;           /* past the limit nothing more is added to the pool */
    Value *v = m->nvalues < MAX_VALUES ? &m->values[m->nvalues] : &spare;
    memset(v, 0, sizeof *v);
    snprintf(v->name, sizeof v->name, "%c%d", letter, m->nvalues);
    v->rank = rank;
    v->size = size;
    for (int i = 0; i < rank; i++)
        v->axis[i] = random_extent(m);
    return v;
}

static void keep(Maker *m)
{
    if (m->nvalues < MAX_VALUES)
        m->nvalues++;
}

static int random_rank(Maker *m, int most)
{
    static const int ranks[] = {0, 1, 1, 1, 2, 2, 2, 3};
    int r = ranks[below(m, 8)];
    return r > most ? most : r;
}

static const char *axes_text(Maker *m, const Value *v)
{
    const char *text = "";
    for (int i = 0; i < v->rank; i++)
        text = TEXT(m, i ? "%s, %s" : "%s[%s", text, extent_text(m, v->axis[i]));
    return v->rank ? TEXT(m, "%s]", text) : "";
}

/* Opens the indices of a left side and gives its text, ranges stated where asked. */
static const char *open_left(Maker *m, const Value *v, bool ranges)
{
    const char *text = "";
    m->nbound = 0;
    for (int i = 0; i < v->rank; i++) {
        char name = fresh_index(m);
        m->bound[m->nbound++] = (Bound){name, v->axis[i]};
        text = TEXT(m, i ? "%s, %c" : "%s[%c", text, name);
        if (ranges)
            text = TEXT(m, "%s:%s", text, extent_text(m, v->axis[i]));
    }
    return v->rank ? TEXT(m, "%s]", text) : "";
}

static void declare_inputs(Maker *m)
{
    static const char *const ranges[] = {" in (0, 2]", " in [-1, 1]", " in [0.3, 1.5)", " in (-2, -0.1)"};
    int inputs = 1 + below(m, 3), params = 1 + below(m, 3);
    for (int i = 0; i < inputs; i++) {
        Value *v = new_value(m, 'x', random_rank(m, 2), 2);
        buf_line(m->out, "%sinput %s%s%s;", chance(m, 15) ? "const " : "", v->name, axes_text(m, v),
                 chance(m, 20) ? ranges[below(m, 4)] : "");
        keep(m);
    }
    if (m->has_integers)
        buf_line(m->out, "input k0 : i32, k1[N] : i32;");
    for (int i = 0; i < params; i++) {
        static const char *const init[] = {"", " ~ normal(0.4)", " ~ const(0.5)", " ~ ones",
                                           " ~ uniform(-1, 1)"};
        Value *v = new_value(m, 'w', random_rank(m, 3), 1.5);
        if (v->rank && v->axis[0].dim >= 0 && chance(m, 30))
            v->axis[0].coef = 2;
        else if (v->rank && v->axis[0].dim >= 0 && chance(m, 15))
            v->axis[0].offset = 1 + below(m, 2);
        buf_line(m->out, "%sparam %s%s%s;", chance(m, 12) ? "const " : "", v->name, axes_text(m, v),
                 init[below(m, 5)]);
        keep(m);
    }
}

/* The initial value of a state: zero, a number, or something learned. */
static const char *initial_text(Maker *m, const Value *v, int params_end)
{
    if (!chance(m, 40))
        return "";
    for (int i = 0; i < params_end; i++) {
        const Value *w = &m->values[i];
        bool same = w->name[0] == 'w' && w->rank == v->rank;
        for (int k = 0; same && k < v->rank; k++)
            same = same_extent(w->axis[k], v->axis[k]);
        if (same)
            return v->rank == 0   ? TEXT(m, " = tanh(%s)", w->name)
                   : v->rank == 1 ? TEXT(m, " = tanh(%s[i])", w->name)
                   : v->rank == 2 ? TEXT(m, " = 0.5*%s[i, j]", w->name)
                                  : TEXT(m, " = %s[i, j, k]^2", w->name);
    }
    return " = 0.3";
}

static void declare_states(Maker *m, Value *states, int n)
{
    int params_end = m->nvalues;
    for (int s = 0; s < n; s++) {
        Value *v = new_value(m, 's', random_rank(m, 3), 1.5);
        const Value *w = &m->values[below(m, params_end)];
        if (chance(m, 50) && w->name[0] == 'w') {     /* the shape of a param, which it may then start from */
            v->rank = w->rank;
            memcpy(v->axis, w->axis, sizeof v->axis);
        }
        v->is_state = v->stateful = true;
        buf_line(m->out, "state %s%s%s;", v->name, axes_text(m, v), initial_text(m, v, params_end));
        states[s] = *v;
        keep(m);
    }
}

/* Now and then a definition is rounded to the type of --dtype, which is then to be a real number. */
static const char *equals_text(Maker *m, const char *value)
{
    return random_below(&m->roundings, 5) ? TEXT(m, " = %s", value) : TEXT(m, " : dtype = real(%s)", value);
}

static void definition(Maker *m)
{
    Value *v = new_value(m, 'a', random_rank(m, 3), 0);
    const char *left = open_left(m, v, true);
    m->stateful = false;
    Term t = squash(m, expression(m, 3 + below(m, 3)), 3);
    v->stateful = m->stateful;
    buf_line(m->out, "%s%s%s;", v->name, left, equals_text(m, t.text));
    m->nbound = 0;
    v->size = t.size;
    keep(m);
}

/* A vector that is iterated a few times. */
static void repeat(Maker *m)
{
    Value *v = new_value(m, 'r', 1, 1);
    v->stateful = true;           /* for all that is known here */
    const char *n = extent_text(m, v->axis[0]);
    open_left(m, v, true);
    Term start = squash(m, expression(m, 2), 1);
    const char *index = TEXT(m, "%c", m->bound[0].name);
    buf_line(m->out, "b%s[%s:%s]%s;", v->name, index, n, equals_text(m, start.text));
    buf_line(m->out, "repeat n:%d {", below(m, 4));
    m->out->indent++;
    buf_line(m->out, "carry %s[%s] = b%s[%s];", v->name, n, v->name, index);
    keep(m);                      /* the iterate may be read inside */
    Term t = expression(m, 2);
    buf_line(m->out, "c%s[%s:%s]%s;", v->name, index, n, equals_text(m, TEXT(m, "tanh(%s + 0.1*n)", t.text)));
    buf_line(m->out, "%s'[%s] = 0.5*%s[%s] + 0.5*c%s[%s];", v->name, index, v->name, index, v->name, index);
    m->out->indent--;
    buf_line(m->out, "}");
    m->nbound = 0;
}

/* The next value of states[number]: pieces where the first axis is a number, else one equation; bounded
 * however the cell runs. */
static void next_state(Maker *m, const Value *states, int number)
{
    const Value *s = &states[number];
    bool pieces = s->rank && s->axis[0].dim < 0 && chance(m, 70);
    for (int piece = 0; piece < (pieces ? s->axis[0].offset : 1); piece++) {
        const char *left = open_left(m, s, false);
        if (pieces) {
            m->bound[0] = m->bound[--m->nbound];
            for (int i = 1; i < s->rank; i++)
                m->bound[i - 1] = (Bound){index_names[i], s->axis[i]};
            m->nbound = s->rank - 1;
            left = s->rank == 1 ? TEXT(m, "[%d]", piece) : TEXT(m, "[%d%s", piece, left + 2);
        }
        const char *own = TEXT(m, "%s%s", s->name, left);
        Term t = expression(m, 4);
        if (number && chance(m, 30)) {            /* what another state has just become */
            const Value *other = &states[below(m, number)];
            t.text = TEXT(m, "(%s)*%s", t.text, load_text(m, other, TEXT(m, "%s'", other->name)));
        }
        if (chance(m, 40))
            buf_line(m->out, "%s'%s = tanh(0.7*%s + %s);", s->name, left, own, t.text);
        else
            buf_line(m->out, "%s'%s = 0.6*%s + 0.4*%s;", s->name, left, own, squash(m, t, 1.2).text);
        m->nbound = 0;
    }
}

static void outputs(Maker *m, const Value *states, int nstates)
{
    int n = 1 + below(m, 2);
    Value *out[2];
    for (int i = 0; i < n; i++) {
        out[i] = new_value(m, 'y', random_rank(m, 3), 0);
        buf_line(m->out, "output %s%s;", out[i]->name, axes_text(m, out[i]));
        keep(m);
    }
    int pool = m->nvalues;
    for (int i = 0; i < n; i++) {
        const char *left = open_left(m, out[i], false);
        m->nvalues = pool - n;    /* an output is not read before it is there */
        Term t = squash(m, expression(m, 4), 6);
        if (nstates && chance(m, 70)) {
            const Value *s = &states[below(m, nstates)];
            t.text = TEXT(m, "%s + %s", t.text, load_text(m, s, TEXT(m, "%s'", s->name)));
        }
        buf_line(m->out, "%s%s = %s;", out[i]->name, left, t.text);
        m->nvalues = pool;
    }
    m->nbound = 0;
}

/* ---- complex values: an input zi, a param zp, a matrix zm, a state zs and two outputs, over the axes of `like` */

static Term complex_expression(Maker *m, const Value *like, int budget);

static const char *at_indices(Maker *m, const Value *like, const char *name)
{
    return load_text(m, &(Value){ .rank = like->rank, .axis = { like->axis[0], like->axis[1] } }, name);
}

static Term complex_leaf(Maker *m, const Value *like)
{
    static const char *const names[] = {"zi", "zp", "zs", "zs"};
    switch (below(m, 7)) {
    case 0: return (Term){TEXT(m, "complex(%s, %s)", leaf(m).text, leaf(m).text), 4};
    case 1: return (Term){TEXT(m, "cis(%s)", leaf(m).text), 1};
    case 2: return (Term){TEXT(m, "conj(%s)", at_indices(m, like, names[below(m, 4)])), 2};
    default: return (Term){at_indices(m, like, names[below(m, 4)]), 2};
    }
}

static Term complex_squash(Maker *m, const Value *like, int budget)
{
    Term z = complex_expression(m, like, budget);
    return z.size <= 1 ? z : (Term){TEXT(m, "(%s) / (1 + abs(%s))", z.text, z.text), 1};
}

/* A sum with the matrix, whose last axis is one that nothing else has. */
static Term complex_product(Maker *m, const Value *like, int budget)
{
    char k = fresh_index(m);
    if (!k || m->nbound == MAX_BOUND || m->depth == 2)
        return complex_leaf(m, like);
    const char *row = like->rank ? TEXT(m, "%s, ", index_text(m, like->axis[0])) : "";
    m->bound[m->nbound++] = (Bound){k, {1, 1, 0}};
    m->depth++;
    Term z = chance(m, 30) ? leaf(m) : complex_expression(m, like, budget - 1);
    m->depth--;
    m->nbound--;
    bool conjugate = chance(m, 40);
    return (Term){TEXT(m, "(sum[%c] %szm[%s%c]%s * (%s))", k, conjugate ? "conj(" : "", row, k, conjugate ? ")" : "",
                       z.text), 4 * z.size};
}

static Term complex_function(Maker *m, const Value *like, int budget)
{
    Term z = complex_squash(m, like, budget - 1);
    switch (below(m, 8)) {
    case 0: return (Term){TEXT(m, "exp(%s)", z.text), 2.8};
    case 1: return (Term){TEXT(m, "log(2 + %s)", z.text), 2};
    case 2: return (Term){TEXT(m, "sqrt(2 + %s)", z.text), 2};
    case 3: return (Term){TEXT(m, "(%s)^3", z.text), 1};
    case 4: return (Term){TEXT(m, "(complex(1.5, -1) + %s)^-2", z.text), 2};
    case 5: return (Term){TEXT(m, "complex(abs(%s), arg(3 + %s))", z.text, z.text), 2};
    case 6: return (Term){TEXT(m, "stop(%s)", z.text), 1};
    default: return (Term){TEXT(m, "-conj(%s)", z.text), 1};
    }
}

static Term complex_expression(Maker *m, const Value *like, int budget)
{
    if (budget <= 0)
        return complex_leaf(m, like);
    int kind = below(m, 9);
    if (kind == 0)
        return complex_leaf(m, like);
    if (kind < 3)
        return complex_function(m, like, budget);
    if (kind == 3)
        return complex_product(m, like, budget);
    Term a = complex_expression(m, like, budget - 1);
    Term b = chance(m, 25) ? squash(m, expression(m, budget / 2), 2) : complex_expression(m, like, budget / 2);
    double larger = a.size > b.size ? a.size : b.size;
    switch (kind) {
    case 4: return (Term){TEXT(m, "(%s + %s)", a.text, b.text), a.size + b.size};
    case 5: return (Term){TEXT(m, "(%s - %s)", b.text, a.text), a.size + b.size};
    case 6: return (Term){TEXT(m, "(%s) / (2 + abs(%s))", a.text, b.text), a.size / 2};
    case 7: return (Term){TEXT(m, "(%s ? %s : %s)", condition(m, 1), a.text, b.text), larger};
    default: return (Term){TEXT(m, "(%s) * (%s)", a.text, b.text), a.size * b.size};
    }
}

/* Complex values behind all else, which read the real ones: what other seeds give stays as it is. */
static void complex_part(Maker *m)
{
    Value like = {.rank = random_rank(m, 2)};
    for (int i = 0; i < like.rank; i++)
        like.axis[i] = random_extent(m);
    const char *axes = axes_text(m, &like), *left;
    const char *rows = like.rank ? TEXT(m, "%s, ", extent_text(m, like.axis[0])) : "";
    buf_line(m->out, "input zi%s : complex;", axes);
    buf_line(m->out, "param zp%s : c64 ~ normal(0.4), zm[%sN] : complex ~ xavier;", axes, rows);
    buf_line(m->out, "state zs%s : complex%s;", axes, chance(m, 40) ? " = complex(0.3, -0.2)" : "");
    buf_line(m->out, "output zy%s : complex, zr%s;", axes, axes);
    left = open_left(m, &like, false);
    const char *own = TEXT(m, "zs%s", left);
    buf_line(m->out, "zs'%s = 0.6*cis(%s)*%s + 0.4*%s;", left, leaf(m).text, own, complex_squash(m, &like, 3).text);
    buf_line(m->out, "zy%s = %s + zs'%s;", left, complex_squash(m, &like, 3).text, left);
    buf_line(m->out, "zr%s = re(zs'%s * %s) + im(%s);", left, left, complex_leaf(m, &like).text,
             complex_squash(m, &like, 2).text);
    m->nbound = 0;
}

/* Reductions over all earlier steps of a value, behind all else as complex values are; true: there was one. */
static bool past_part(Maker *m)
{
    static const char *const over[] = {"sum", "mean", "max", "min", "prod"};
    const Value *v = NULL;
    for (int tries = 0; tries < 20 && (!v || v->stateful || !strchr("xa", v->name[0])); tries++)
        v = &m->values[below(m, m->nvalues)];
    if (v->stateful || !strchr("xa", v->name[0]))
        return false;
    const char *left = open_left(m, v, false), *in = v->rank ? TEXT(m, "%.*s, ", (int)strlen(left) - 2, left + 1) : "";
    const char *at = v->rank ? TEXT(m, "%.*s", (int)strlen(left) - 2, left + 1) : "";
    const char *early = TEXT(m, "%s[%s; t - u]", v->name, at);
    buf_line(m->out, "output py%s;", axes_text(m, v));
    buf_line(m->out, "ps[%su:T] = tanh(%s) * %s - 0.2*u;", in, squash(m, expression(m, 2), 1).text, early);
    buf_line(m->out, "pp[%su] = softmax[u] ps[%su];", in, in);
    const char *which = over[below(m, 5)];
    buf_line(m->out, "py%s = sum[u:T] pp[%su] * %s + 0.3 * %s[u:T] (1 + 0.2*tanh(%s)) / (1 + u)%s;", left, in, early,
             which, early, m->anew ? "" : TEXT(m, " + sum[u:T] (u <= t ? %s[%s; u] * exp(-u) : 0)", v->name, at));
    m->nbound = 0;
    return true;
}

static void print_fns(Maker *m, Buf *to)
{
    static const char *const text[] = {
        "fn mix(a, b) = 0.5*a + b*sigmoid(a);",
        "fn normal(u)[i] = u[i] / (sqrt(sum[j] u[j]^2) + 0.1);",
        "fn centre(u)[i] { c = mean[j] u[j]; centre[i] = tanh(u[i] - c); }",
        "fn share(u)[i] = softmax[i] u[i];",
        "fn parts(u) { near[i] = tanh(u[i] - mean[j] u[j]); far[i] = sigmoid(u[i]) * near[i]; }",
        "fn slope(u) = grad(tanh(u)*u^2 + exp(-u^2), u);",
        "fn bend(u) { s = grad(sin(u)*sigmoid(u), u); bend = grad(s, u); }",
    };
    for (int i = 0; i < FNS; i++)
        if (m->uses_fn[i])
            buf_line(to, "%s", text[i]);
}

/* Draw 0 has the seed itself, the others have the numbers that it gives. */
static uint64_t seed_of_draw(uint64_t seed, int draw)
{
    Random r = {seed};
    uint64_t own = seed;
    for (int i = 0; i < draw; i++)
        own = random_bits(&r);
    return own;
}

void random_settings(uint64_t seed, Compiler *c)
{
    c->lengths = seed % 7 == 3 || seed % 7 == 6;
    c->reverse = seed % 7 == 5 || seed % 7 == 6;
}

void random_cell(Compiler *c, uint64_t seed, int draw, Buf *out)
{
    const bool resets = seed % 5 == 2;
    Buf body = {.arena = c->arena, .indent = 1};
    Maker *m = arena_alloc(c->arena, sizeof *m);
    Value states[3];
    m->c = c;
    m->random.state = seed_of_draw(seed, draw);
    m->places.state = ~m->random.state;
    m->roundings.state = m->random.state ^ 1;
    m->has_integers = random_below(&m->places, 3) == 0;
    m->out = &body;
    m->anew = resets || (c->lengths && c->reverse);
    declare_inputs(m);
    if (resets)
        buf_line(m->out, "reset r0;");
    int nstates = below(m, 4) % 4, ndefinitions = 1 + below(m, 4);
    declare_states(m, states, nstates);
    for (int i = 0; i < ndefinitions; i++)
        if (chance(m, 18))
            repeat(m);
        else
            definition(m);
    for (int i = 0; i < nstates; i++)
        next_state(m, states, i);
    int pool = m->nvalues;
    outputs(m, states, nstates);
    if (seed % 3 == 1) {
        Random before = m->random;
        m->nvalues = pool;
        m->random.state = ~seed;
        complex_part(m);
        m->random = before;
    }
    if (seed % 4 == 2) {
        m->nvalues = pool;
        m->random.state = ~seed * 3;
        past_part(m);
    }

    buf_line(out, "// random cell of seed %llu, draw %d%s%s", (unsigned long long)seed, draw,
             c->lengths ? ", for --lengths" : "", c->reverse ? ", for --reverse" : "");
    print_fns(m, out);
    buf_line(out, "cell random {");
    buf_line(out, "    dim D; dim H; dim N = %d; dim M = %d;", 2 + below(m, 4), 1 + below(m, 5));
    buf_f(out, "%s", body.data);
    buf_line(out, "}");
}
