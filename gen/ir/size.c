/* size.c: integer polynomials over run-time dims and index expressions over them. What comes in are sums,
 * products and quotients; what goes out is interned in the module: equal values are equal pointers, so that
 * passes compare sizes and index maps by address. Bounds are proved with every dim >= 1, never guessed. */
#include <stdlib.h>
#include <string.h>

#include "ir_raw.h"

/* ---- polynomials ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdull;
}

static bool poly_same(const void *a, const void *b)
{
    const Poly *p = a, *q = b;
    if (p->nterms != q->nterms)
        return false;
    for (int i = 0; i < p->nterms; i++) {
        const PolyTerm *s = &p->terms[i], *t = &q->terms[i];
        if (s->coef != t->coef || s->natoms != t->natoms)
            return false;
        if (s->natoms && memcmp(s->atoms, t->atoms, sizeof(int) * (size_t)s->natoms) != 0)
            return false;
    }
    return true;
}

static void *poly_make(Module *m, const void *key)
{
    const Poly *from = key;
    Poly *p = arena_alloc(m->arena, sizeof *p);
    p->nterms = from->nterms;
    p->terms = arena_alloc(m->arena, sizeof *p->terms * (size_t)(from->nterms ? from->nterms : 1));
    for (int i = 0; i < from->nterms; i++) {
        PolyTerm t = from->terms[i];
        int *atoms = arena_alloc(m->arena, sizeof(int) * (size_t)(t.natoms ? t.natoms : 1));
        if (t.natoms)
            memcpy(atoms, t.atoms, sizeof(int) * (size_t)t.natoms);
        t.atoms = atoms;
        p->terms[i] = t;
    }
    p->is_const = p->nterms == 0 || (p->nterms == 1 && p->terms[0].natoms == 0);
    p->value = p->nterms ? (p->is_const ? p->terms[0].coef : 0) : 0;
    return p;
}

static const Poly *poly_intern(Module *m, const Poly *p)
{
    uint64_t h = 1;
    for (int i = 0; i < p->nterms; i++) {
        h = mix(h, (uint64_t)p->terms[i].coef);
        for (int k = 0; k < p->terms[i].natoms; k++)
            h = mix(h, (uint64_t)p->terms[i].atoms[k] + 7);
        h = mix(h, 99);
    }
    return module_cons(m, CONS_POLY, h, p, poly_same, poly_make);
}

/* Higher degree first, then by atoms, the constant last: the order a user would write. */
static int term_order(const PolyTerm *a, const PolyTerm *b)
{
    if (a->natoms != b->natoms)
        return b->natoms - a->natoms;
    for (int i = 0; i < a->natoms; i++)
        if (a->atoms[i] != b->atoms[i])
            return a->atoms[i] - b->atoms[i];
    return 0;
}

static int term_compare(const void *a, const void *b)
{
    return term_order(a, b);
}

/* Most have a few terms, and these in order. */
static void sort_terms(PolyTerm *t, int n)
{
    enum { FEW = 12 };
    if (n > FEW) {
        qsort(t, (size_t)n, sizeof *t, term_compare);
        return;
    }
    for (int i = 1; i < n; i++) {
        PolyTerm x = t[i];
        int at = i;
        for (; at > 0 && term_order(&t[at - 1], &x) > 0; at--)
            t[at] = t[at - 1];
        t[at] = x;
    }
}

/* Sorts, merges equal monomials, drops zeros. */
static const Poly *poly_normal(Module *m, PolyTerm *t, int n)
{
    sort_terms(t, n);
    int out = 0;
    for (int i = 0; i < n; i++) {
        if (out && term_order(&t[out - 1], &t[i]) == 0)
            t[out - 1].coef = (int64_t)((uint64_t)t[out - 1].coef + (uint64_t)t[i].coef);
        else
            t[out++] = t[i];
    }
    int kept = 0;
    for (int i = 0; i < out; i++)
        if (t[i].coef != 0)
            t[kept++] = t[i];
    Poly p = { .nterms = kept, .terms = t };
    return poly_intern(m, &p);
}

bool poly_is_one(const Poly *p)
{
    return p && p->is_const && p->value == 1;
}

const Poly *poly_const(Module *m, int64_t v)
{
    const int n = sizeof m->small / sizeof *m->small;
    const Poly **known = v >= -1 && v < n - 1 ? &m->small[v + 1] : NULL;
    if (known && *known)
        return *known;
    PolyTerm t = { .coef = v };
    Poly p = { .nterms = v != 0, .terms = &t };
    const Poly *made = poly_intern(m, &p);
    if (known)
        *known = made;
    return made;
}

static const Poly *poly_atom(Module *m, int atom)
{
    PolyTerm t = { .coef = 1, .natoms = 1, .atoms = &atom };
    Poly p = { .nterms = 1, .terms = &t };
    return poly_intern(m, &p);
}

const Poly *poly_dim(Module *m, int dim)
{
    return poly_atom(m, dim);
}

const Poly *poly_add(Module *m, const Poly *a, const Poly *b)
{
    PolyTerm few[16], *t = few;
    if (a->nterms == 0)
        return b;
    if (b->nterms == 0)
        return a;
    if (a->is_const && b->is_const)
        return poly_const(m, (int64_t)((uint64_t)a->value + (uint64_t)b->value));
    if ((size_t)(a->nterms + b->nterms) > sizeof few / sizeof *few)
        t = arena_alloc(m->arena, sizeof *t * (size_t)(a->nterms + b->nterms));
    memcpy(t, a->terms, sizeof *t * (size_t)a->nterms);
    memcpy(t + a->nterms, b->terms, sizeof *t * (size_t)b->nterms);
    return poly_normal(m, t, a->nterms + b->nterms);
}

const Poly *poly_sub(Module *m, const Poly *a, const Poly *b)
{
    return a == b ? poly_const(m, 0) : poly_add(m, a, poly_mul(m, poly_const(m, -1), b));
}

static int int_compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The order of the terms stays. */
static const Poly *poly_times(Module *m, int64_t by, const Poly *p)
{
    PolyTerm few[16], *t = few;
    if (by == 1 || p->nterms == 0)
        return p;
    if (p->is_const)
        return poly_const(m, (int64_t)((uint64_t)by * (uint64_t)p->value));
    if ((size_t)p->nterms > sizeof few / sizeof *few)
        t = arena_alloc(m->arena, sizeof *t * (size_t)p->nterms);
    for (int i = 0; i < p->nterms; i++) {
        t[i] = p->terms[i];
        t[i].coef = (int64_t)((uint64_t)by * (uint64_t)t[i].coef);
    }
    return poly_normal(m, t, p->nterms);
}

const Poly *poly_mul(Module *m, const Poly *a, const Poly *b)
{
    if (a->is_const)
        return a->nterms ? poly_times(m, a->value, b) : a;
    if (b->is_const)
        return b->nterms ? poly_times(m, b->value, a) : b;
    int n = a->nterms * b->nterms;
    PolyTerm *t = arena_alloc(m->arena, sizeof *t * (size_t)(n + 1));
    for (int i = 0; i < a->nterms; i++)
        for (int j = 0; j < b->nterms; j++) {
            const PolyTerm *x = &a->terms[i], *y = &b->terms[j];
            PolyTerm *r = &t[i * b->nterms + j];
            r->coef = (int64_t)((uint64_t)x->coef * (uint64_t)y->coef);
            r->natoms = x->natoms + y->natoms;
            r->atoms = arena_alloc(m->arena, sizeof(int) * (size_t)(r->natoms + 1));
            if (x->natoms)
                memcpy(r->atoms, x->atoms, sizeof(int) * (size_t)x->natoms);
            if (y->natoms)
                memcpy(r->atoms + x->natoms, y->atoms, sizeof(int) * (size_t)y->natoms);
            qsort(r->atoms, (size_t)r->natoms, sizeof(int), int_compare);
        }
    return poly_normal(m, t, n);
}

/* term / by for a single-term divisor; false when it does not divide. */
static bool term_div(Module *m, const PolyTerm *t, const PolyTerm *by, PolyTerm *out)
{
    if (t->coef % by->coef != 0)
        return false;
    *out = (PolyTerm){ .coef = t->coef / by->coef };
    out->atoms = arena_alloc(m->arena, sizeof(int) * (size_t)(t->natoms + 1));
    int j = 0;
    for (int i = 0; i < t->natoms; i++) {
        if (j < by->natoms && t->atoms[i] == by->atoms[j])
            j++;
        else
            out->atoms[out->natoms++] = t->atoms[i];
    }
    return j == by->natoms;
}

static int quotient_find(const Module *m, const Poly *num, const Poly *den)
{
    for (int i = 0; i < m->quotients.len; i++)
        if (m->quotients.data[i].num == num && m->quotients.data[i].den == den)
            return i;
    return -1;
}

static const Poly *poly_div_terms(Module *m, const Poly *a, const Poly *b)
{
    PolyTerm *t = arena_alloc(m->arena, sizeof *t * (size_t)(a->nterms + 1));
    for (int i = 0; i < a->nterms; i++)
        if (b->nterms != 1 || !term_div(m, &a->terms[i], &b->terms[0], &t[i]))
            return NULL;
    return poly_normal(m, t, a->nterms);
}

const Poly *poly_div(Module *m, const Poly *a, const Poly *b)
{
    if (b->nterms == 0)
        return NULL;
    if (a == b)
        return poly_const(m, 1);
    if (a->nterms == 0)
        return a;
    const Poly *exact = poly_div_terms(m, a, b);
    if (exact)
        return exact;
    if (a->is_const && b->is_const)
        return NULL;
    int known = quotient_find(m, a, b);
    if (known >= 0)
        return poly_atom(m, MAX_DIMS + known);
    vec_push(m->arena, &m->quotients, ((Quotient){ a, b }));
    return poly_atom(m, MAX_DIMS + m->quotients.len - 1);
}

/* With every dim written as 1 + d', d' >= 0, a polynomial is >= 0 when no coefficient in the d' is negative.
 * An atom that is a quotient counts as >= 1 too: an extent is positive where it is used. Terms are expanded
 * over subsets of their atoms. */
typedef struct { const int *atoms; int n; int64_t coef; } Mono;

static bool mono_equal(const Mono *a, const int *atoms, int n)
{
    return a->n == n && (n == 0 || memcmp(a->atoms, atoms, sizeof(int) * (size_t)n) == 0);
}

bool poly_nonneg(const Poly *p)
{
    enum { MAX_MONO = 256, MAX_DEGREE = 6 };
    Mono mono[MAX_MONO];
    int store[MAX_MONO][MAX_DEGREE], n = 0;
    for (int i = 0; i < p->nterms; i++) {
        const PolyTerm *t = &p->terms[i];
        if (t->natoms > MAX_DEGREE)
            return false;
        for (unsigned mask = 0; mask < 1u << t->natoms; mask++) {
            int atoms[MAX_DEGREE] = { 0 }, k = 0, at = 0;
            for (int j = 0; j < t->natoms; j++)
                if (mask >> j & 1)
                    atoms[k++] = t->atoms[j];
            while (at < n && !mono_equal(&mono[at], atoms, k))
                at++;
            if (at == n) {
                if (n == MAX_MONO)
                    return false;
                memcpy(store[n], atoms, sizeof atoms);
                mono[n++] = (Mono){ store[at], k, 0 };
            }
            if (__builtin_add_overflow(mono[at].coef, t->coef, &mono[at].coef))
                return false;
        }
    }
    for (int i = 0; i < n; i++)
        if (mono[i].coef < 0)
            return false;
    return true;
}

static int64_t atom_eval(const Module *m, int atom, const int64_t *dims)
{
    if (atom < MAX_DIMS)
        return dims[atom];
    int64_t num = poly_eval(m, m->quotients.data[atom - MAX_DIMS].num, dims);
    int64_t den = poly_eval(m, m->quotients.data[atom - MAX_DIMS].den, dims);
    return den ? num / den : 0;
}

int64_t poly_eval(const Module *m, const Poly *p, const int64_t *dims)
{
    uint64_t sum = 0;
    for (int i = 0; i < p->nterms; i++) {
        uint64_t v = (uint64_t)p->terms[i].coef;
        for (int k = 0; k < p->terms[i].natoms; k++)
            v *= (uint64_t)atom_eval(m, p->terms[i].atoms[k], dims);
        sum += v;
    }
    return (int64_t)sum;
}

/* What a polynomial stands in, which says when it needs parentheses: nothing, a quotient's numerator (a sum),
 * its denominator (whatever is not one factor). */
typedef enum { IN_NOTHING, IN_NUMERATOR, IN_DENOMINATOR } PolyPlace;

/* Whose names dims have. */
typedef enum { NAMES_TEXT, NAMES_SPEC, NAMES_API } PolyNames;

/* c_prefix NULL: as a user writes it; else a C expression with names prefixed. */
static void print_poly(const Module *m, const Poly *p, Buf *out, PolyNames names, const char *c_prefix, PolyPlace place);

static bool is_dim(const Module *m, const char *name)
{
    for (int i = 0; i < m->dims.len; i++)
        if (strcmp(m->dims.data[i], name) == 0)
            return true;
    return false;
}

const char *dim_text(const Module *m, int dim)
{
    const char *name = m->dims.data[dim];
    if (strcmp(name, "B") != 0 && strcmp(name, "t0") != 0)
        return name;
    const char *join = name[0] == 't' ? "_" : "", *text = name;
    for (int k = 2; is_dim(m, text); k++)
        text = intern_f(m->c, "%s%s%d", name, join, k);
    return text;
}

const char *dim_words(const Module *m, int dim)
{
    const char *text = dim_text(m, dim), *name = m->dims.data[dim];
    return text == name ? name : intern_f(m->c, "%s (dim %s of the spec)", text, name);
}

static const char *dim_name(const Module *m, int dim, PolyNames names)
{
    return names == NAMES_API ? m->size_names[2 + dim] : names == NAMES_SPEC ? m->dims.data[dim] : dim_text(m, dim);
}

static void print_atom(const Module *m, int atom, Buf *out, PolyNames names, const char *c_prefix)
{
    if (atom < MAX_DIMS) {
        const char *prefix = c_prefix ? c_prefix : "";
        if (atom == ATOM_PAST)
            buf_f(out, "(t0 + %sT)", prefix);
        else
            buf_f(out, "%s%s", prefix, atom == ATOM_B ? "B" : atom == ATOM_T ? "T" : dim_name(m, atom, names));
        return;
    }
    buf_f(out, "(");
    print_poly(m, m->quotients.data[atom - MAX_DIMS].num, out, names, c_prefix, IN_NUMERATOR);
    buf_f(out, c_prefix ? " / " : "/");
    print_poly(m, m->quotients.data[atom - MAX_DIMS].den, out, names, c_prefix, IN_DENOMINATOR);
    buf_f(out, ")");
}

static void print_poly(const Module *m, const Poly *p, Buf *out, PolyNames names, const char *c_prefix, PolyPlace place)
{
    if (p->nterms == 0) {
        buf_f(out, "0");
        return;
    }
    const PolyTerm *first = &p->terms[0];
    bool product = first->natoms > 1 || (first->natoms == 1 && first->coef != 1);
    bool paren = (place != IN_NOTHING && p->nterms > 1) || (place == IN_DENOMINATOR && product);
    if (paren)
        buf_f(out, "(");
    for (int i = 0; i < p->nterms; i++) {
        const PolyTerm *t = &p->terms[i];
        uint64_t size = t->coef < 0 ? 0 - (uint64_t)t->coef : (uint64_t)t->coef;
        if (i)
            buf_f(out, t->coef < 0 ? " - " : " + ");
        else if (t->coef < 0)
            buf_f(out, "-");
        if (size != 1 || t->natoms == 0)
            buf_f(out, "%llu%s", (unsigned long long)size, t->natoms ? "*" : "");
        for (int k = 0; k < t->natoms; k++) {
            if (k)
                buf_f(out, "*");
            print_atom(m, t->atoms[k], out, names, c_prefix);
        }
    }
    if (paren)
        buf_f(out, ")");
}

void poly_print(const Module *m, const Poly *p, Buf *out)
{
    print_poly(m, p, out, NAMES_TEXT, NULL, IN_NOTHING);
}

void poly_print_spec(const Module *m, const Poly *p, Buf *out)
{
    print_poly(m, p, out, NAMES_SPEC, NULL, IN_NOTHING);
}

void poly_print_api(const Module *m, const Poly *p, Buf *out)
{
    print_poly(m, p, out, NAMES_API, NULL, IN_NOTHING);
}

void poly_print_c(const Module *m, const Poly *p, Buf *out, const char *prefix)
{
    print_poly(m, p, out, NAMES_API, prefix, IN_NUMERATOR);
}

/* ---- index expressions ---- */

static bool term_same_atom(const IxTerm *a, const IxTerm *b)
{
    return a->kind == b->kind &&
           (a->kind == IA_INDEX ? a->index == b->index : a->arg == b->arg && a->by == b->by);
}

static bool ix_same(const void *a, const void *b)
{
    const IxExpr *p = a, *q = b;
    if (p->offset != q->offset || p->nterms != q->nterms)
        return false;
    for (int i = 0; i < p->nterms; i++)
        if (p->terms[i].coef != q->terms[i].coef || !term_same_atom(&p->terms[i], &q->terms[i]))
            return false;
    return true;
}

static void *ix_make(Module *m, const void *key)
{
    const IxExpr *from = key;
    IxExpr *e = arena_alloc(m->arena, sizeof *e);
    e->offset = from->offset;
    e->nterms = from->nterms;
    e->terms = arena_alloc(m->arena, sizeof *e->terms * (size_t)(from->nterms ? from->nterms : 1));
    if (from->nterms)
        memcpy(e->terms, from->terms, sizeof *e->terms * (size_t)from->nterms);
    return e;
}

const IxExpr *ix_intern(Module *m, const Poly *offset, IxTerm *terms, int n)
{
    uint64_t h = mix(2, (uint64_t)(uintptr_t)offset);
    for (int i = 0; i < n; i++) {
        h = mix(h, (uint64_t)(uintptr_t)terms[i].coef);
        h = mix(h, (uint64_t)terms[i].kind * 31 + (uint64_t)terms[i].index);
        h = mix(h, (uint64_t)(uintptr_t)terms[i].arg ^ (uint64_t)(uintptr_t)terms[i].by);
    }
    IxExpr e = { .offset = offset, .nterms = n, .terms = terms };
    return module_cons(m, CONS_IX, h, &e, ix_same, ix_make);
}

const IxExpr *ix_const(Module *m, const Poly *p)
{
    return ix_intern(m, p, NULL, 0);
}

const IxExpr *ix_index(Module *m, IndexId i)
{
    IxTerm t = { .coef = poly_const(m, 1), .kind = IA_INDEX, .index = i };
    const IxExpr *known = m->indices.data[i].alone;
    if (!known)
        known = m->indices.data[i].alone = ix_intern(m, poly_const(m, 0), &t, 1);
    return known;
}

/* Plain indices first, by id; quotients and remainders keep the order of their appearance. */
static bool term_before(const IxTerm *a, const IxTerm *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind;
    return a->kind == IA_INDEX && a->index < b->index;
}

/* Is the quotient that of what the remainder is of: a div by, or, where that is itself a div p, a div p*by? */
static bool divides_same(Module *m, const IxTerm *quotient, const IxTerm *remainder)
{
    if (quotient->arg == remainder->arg)
        return quotient->by == remainder->by;
    const IxExpr *of = remainder->arg;
    const IxTerm *inner = of->nterms == 1 && !of->offset->nterms ? &of->terms[0] : NULL;
    return inner && inner->kind == IA_DIV && poly_is_one(inner->coef) && inner->arg == quotient->arg &&
           quotient->by == poly_mul(m, inner->by, remainder->by);
}

/* x = q*by + r when the sum holds by*c*(a div by) and c*(a mod by): written back as c*a. */
static bool recombine(Module *m, const IxExpr *e, const IxExpr **out)
{
    for (int i = 0; i < e->nterms; i++)
        for (int j = 0; j < e->nterms; j++) {
            const IxTerm *d = &e->terms[i], *r = &e->terms[j];
            if (d->kind != IA_DIV || r->kind != IA_MOD || !divides_same(m, d, r))
                continue;
            if (d->coef != poly_mul(m, r->coef, r->by))
                continue;
            IxTerm *rest = arena_alloc(m->arena, sizeof *rest * (size_t)e->nterms);
            int n = 0;
            for (int k = 0; k < e->nterms; k++)
                if (k != i && k != j)
                    rest[n++] = e->terms[k];
            *out = ix_add(m, ix_intern(m, e->offset, rest, n), ix_scale(m, r->arg, r->coef));
            return true;
        }
    return false;
}

const IxExpr *ix_add(Module *m, const IxExpr *a, const IxExpr *b)
{
    IxTerm few[16], *t = few;
    int n = 0;
    if ((size_t)(a->nterms + b->nterms) > sizeof few / sizeof *few)
        t = arena_alloc(m->arena, sizeof *t * (size_t)(a->nterms + b->nterms));
    for (int side = 0; side < 2; side++) {
        const IxExpr *e = side ? b : a;
        for (int i = 0; i < e->nterms; i++) {
            int at = 0;
            while (at < n && !term_same_atom(&t[at], &e->terms[i]))
                at++;
            if (at < n) {
                t[at].coef = poly_add(m, t[at].coef, e->terms[i].coef);
                continue;
            }
            at = n++;
            while (at > 0 && term_before(&e->terms[i], &t[at - 1])) {
                t[at] = t[at - 1];
                at--;
            }
            t[at] = e->terms[i];
        }
    }
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (t[i].coef->nterms)
            t[kept++] = t[i];
    const IxExpr *sum = ix_intern(m, poly_add(m, a->offset, b->offset), t, kept), *whole;
    return recombine(m, sum, &whole) ? whole : sum;
}

const IxExpr *ix_scale(Module *m, const IxExpr *a, const Poly *by)
{
    IxTerm few[16], *t = few;
    int n = 0;
    if (by->is_const && by->value == 1)
        return a;
    if ((size_t)a->nterms > sizeof few / sizeof *few)
        t = arena_alloc(m->arena, sizeof *t * (size_t)a->nterms);
    for (int i = 0; i < a->nterms; i++) {
        t[n] = a->terms[i];
        t[n].coef = poly_mul(m, t[n].coef, by);
        n += t[n].coef->nterms > 0;
    }
    return ix_intern(m, poly_mul(m, a->offset, by), t, n);
}

const IxExpr *ix_sub(Module *m, const IxExpr *a, const IxExpr *b)
{
    return ix_add(m, a, ix_scale(m, b, poly_const(m, -1)));
}

/* Splits a = by*quotient + rest term by term; numeric offsets split by floor. */
static void ix_split(Module *m, const IxExpr *a, const Poly *by, const IxExpr **quotient, const IxExpr **rest)
{
    const IxExpr *q = ix_const(m, poly_const(m, 0)), *r = q;
    for (int i = 0; i < a->nterms; i++) {
        IxTerm t = a->terms[i];
        const Poly *c = NULL;
        if (t.coef == by)
            c = poly_const(m, 1);
        else if (by->nterms == 1) {
            PolyTerm one;
            bool divides = true;
            for (int k = 0; k < t.coef->nterms; k++)
                divides = divides && term_div(m, &t.coef->terms[k], &by->terms[0], &one);
            c = divides ? poly_div(m, t.coef, by) : NULL;
        }
        IxTerm whole = t;
        if (c) {
            whole.coef = c;
            q = ix_add(m, q, ix_intern(m, poly_const(m, 0), &whole, 1));
        } else {
            r = ix_add(m, r, ix_intern(m, poly_const(m, 0), &whole, 1));
        }
    }
    const Poly *off_q = poly_const(m, 0), *off_r = off_q;
    for (int i = 0; i < a->offset->nterms; i++) {
        PolyTerm part = a->offset->terms[i], one;
        Poly p = { .nterms = 1, .terms = &part };
        if (by->nterms == 1 && term_div(m, &part, &by->terms[0], &one)) {
            Poly o = { .nterms = 1, .terms = &one };
            off_q = poly_add(m, off_q, poly_intern(m, &o));
        } else if (by->is_const && part.natoms == 0) {
            int64_t f = part.coef / by->value - (part.coef % by->value < 0);
            off_q = poly_add(m, off_q, poly_const(m, f));
            off_r = poly_add(m, off_r, poly_const(m, part.coef - f * by->value));
        } else {
            off_r = poly_add(m, off_r, poly_intern(m, &p));
        }
    }
    *quotient = ix_add(m, q, ix_const(m, off_q));
    *rest = ix_add(m, r, ix_const(m, off_r));
}

/* 0 <= e < by, proved? */
static bool within(Module *m, const IxExpr *e, const Poly *by)
{
    const Poly *lo, *hi;
    return ix_range(m, e, &lo, &hi) && poly_nonneg(lo) &&
           poly_nonneg(poly_sub(m, poly_sub(m, by, hi), poly_const(m, 1)));
}

static const IxExpr *ix_atom(Module *m, IxAtomKind kind, const IxExpr *arg, const Poly *by)
{
    IxTerm t = { .coef = poly_const(m, 1), .kind = kind, .arg = arg, .by = by };
    return ix_intern(m, poly_const(m, 0), &t, 1);
}

const IxExpr *ix_div(Module *m, const IxExpr *a, const Poly *by)
{
    const IxExpr *q, *r;
    if (by->is_const && by->value == 1)
        return a;
    ix_split(m, a, by, &q, &r);
    if (within(m, r, by))
        return q;
    return ix_add(m, q, ix_atom(m, IA_DIV, r, by));
}

const IxExpr *ix_mod(Module *m, const IxExpr *a, const Poly *by)
{
    const IxExpr *q, *r;
    if (by->is_const && by->value == 1)
        return ix_const(m, poly_const(m, 0));
    ix_split(m, a, by, &q, &r);
    if (within(m, r, by))
        return r;
    return ix_atom(m, IA_MOD, r, by);
}

const IxExpr *ix_subst(Module *m, const IxExpr *a, const IndexId *from, const IxExpr *const *to, int n)
{
    IndexId which;
    for (int k = 0; ix_is_index(a, &which) && k < n; k++)
        if (from[k] == which)
            return to[k];
    const IxExpr *sum = ix_const(m, a->offset);
    for (int i = 0; i < a->nterms; i++) {
        const IxTerm *t = &a->terms[i];
        const IxExpr *part = NULL;
        if (t->kind == IA_INDEX) {
            for (int k = 0; k < n && !part; k++)
                if (from[k] == t->index)
                    part = to[k];
            if (!part)
                part = ix_index(m, t->index);
        } else {
            const IxExpr *arg = ix_subst(m, t->arg, from, to, n);
            part = t->kind == IA_DIV ? ix_div(m, arg, t->by) : ix_mod(m, arg, t->by);
        }
        sum = ix_add(m, sum, ix_scale(m, part, t->coef));
    }
    return sum;
}

bool ix_uses(const IxExpr *a, IndexId i)
{
    for (int k = 0; k < a->nterms; k++)
        if (a->terms[k].kind == IA_INDEX ? a->terms[k].index == i : ix_uses(a->terms[k].arg, i))
            return true;
    return false;
}

const Poly *ix_coefficient(Module *m, const IxExpr *a, IndexId i)
{
    for (int k = 0; k < a->nterms; k++)
        if (a->terms[k].kind == IA_INDEX && a->terms[k].index == i)
            return a->terms[k].coef;
    return poly_const(m, 0);
}

bool ix_is_index(const IxExpr *a, IndexId *which)
{
    if (a->nterms != 1 || a->terms[0].kind != IA_INDEX || a->offset->nterms)
        return false;
    if (!a->terms[0].coef->is_const || a->terms[0].coef->value != 1)
        return false;
    *which = a->terms[0].index;
    return true;
}

bool ix_counts(Module *m, const IxExpr *e, const Poly **count)
{
    const Poly *radix = poly_const(m, 1);
    for (int done = 0; done < e->nterms; done++) {
        int found = -1;
        for (int i = 0; i < e->nterms; i++)
            if (e->terms[i].kind == IA_INDEX && e->terms[i].index >= IX_FIRST && e->terms[i].coef == radix)
                found = i;
        if (found < 0)
            return false;
        const Poly *next = poly_mul(m, radix, m->indices.data[e->terms[found].index].extent);
        if (next == radix && done + 1 < e->nterms)
            return false;
        radix = next;
    }
    *count = radix;
    return e->nterms > 0;
}

static bool atom_range(Module *m, const IxTerm *t, const Poly **lo, const Poly **hi)
{
    *lo = poly_const(m, 0);
    if (t->kind == IA_INDEX) {
        if (t->index < IX_FIRST)
            return false;
        *hi = poly_sub(m, m->indices.data[t->index].extent, poly_const(m, 1));
        return true;
    }
    if (t->kind == IA_MOD) {
        *hi = poly_sub(m, t->by, poly_const(m, 1));
        return true;
    }
    const Poly *alo, *ahi;
    if (!ix_range(m, t->arg, &alo, &ahi) || !poly_nonneg(alo))
        return false;
    /* floor(x / by) <= q for x <= ahi when ahi < (q + 1)*by; the exact quotient of ahi + 1, less one, is such
     * a q where the quotient is known to be exact (user-written quotients are checked at the call). */
    if (ahi->is_const && t->by->is_const) {
        *hi = poly_const(m, ahi->value / t->by->value);
        return true;
    }
    const Poly *n = poly_add(m, ahi, poly_const(m, 1));
    bool exact = quotient_find(m, n, t->by) >= 0 || poly_div_terms(m, n, t->by);
    *hi = exact ? poly_sub(m, poly_div(m, n, t->by), poly_const(m, 1)) : ahi;
    return true;
}

bool ix_range(Module *m, const IxExpr *a, const Poly **lo, const Poly **hi)
{
    *lo = *hi = a->offset;
    for (int i = 0; i < a->nterms; i++) {
        const IxTerm *t = &a->terms[i];
        const Poly *alo, *ahi;
        if (!atom_range(m, t, &alo, &ahi))
            return false;
        bool up = poly_nonneg(t->coef), down = poly_nonneg(poly_mul(m, poly_const(m, -1), t->coef));
        if (!up && !down)
            return false;
        *lo = poly_add(m, *lo, poly_mul(m, t->coef, up ? alo : ahi));
        *hi = poly_add(m, *hi, poly_mul(m, t->coef, up ? ahi : alo));
    }
    return true;
}

static void print_term(const Module *m, const IxTerm *t, Buf *out)
{
    if (!(t->coef->is_const && t->coef->value == 1)) {
        print_poly(m, t->coef, out, NAMES_SPEC, NULL, IN_NUMERATOR);
        buf_f(out, "*");
    }
    if (t->kind == IA_INDEX) {
        buf_f(out, "%s", m->indices.data[t->index].name);
        return;
    }
    buf_f(out, t->kind == IA_DIV ? "div(" : "mod(");
    ix_print(m, t->arg, out);
    buf_f(out, ", ");
    print_poly(m, t->by, out, NAMES_SPEC, NULL, IN_NOTHING);
    buf_f(out, ")");
}

void ix_print(const Module *m, const IxExpr *a, Buf *out)
{
    bool first = true;
    for (int i = 0; i < a->nterms; i++) {
        if (!first)
            buf_f(out, " + ");
        print_term(m, &a->terms[i], out);
        first = false;
    }
    if (a->offset->nterms || first) {
        if (!first)
            buf_f(out, " + ");
        print_poly(m, a->offset, out, NAMES_SPEC, NULL, IN_NOTHING);
    }
}
