/* form.c: from terms to the normal form. In come a component's next states and reads as terms, its key,
 * and which updates a step has. Out go, per update, the decay, and additions of which equal columns are
 * one and equal rows are one; reads; and which axes are heads. Terms are settled again whenever an axis
 * turns out to be a head: that happens once per axis at most. */
#include <string.h>

#include "form.h"

static const char *words_of(const Form *f, const Factor *x, int n)
{
    Buf b = { .arena = f->p.m->arena };
    chunk_expression(f->p.m, product_of(f->p.m, 1, x, n), &b);
    return b.data;
}

/* ---- heads ---- */

static int heads_of(const Roles *r)
{
    int n = 0;
    for (int i = 0; i < r->rank; i++)
        n += r->is_head[i];
    return n;
}

/* Parts of the terms; *again: a head was found on the way, so that they may be wrong. */
static bool settle_known(Form *f, const Terms *terms, PartsList *out, bool *again)
{
    int before = heads_of(&f->roles);
    if (!settle(&f->p, &f->roles, terms, out))
        return false;
    *again |= heads_of(&f->roles) != before;
    return true;
}

/* Axes of values that the factors vary over become heads where another axis of values is left. */
static bool make_heads(Form *f, const Factor *x, int n)
{
    Roles *r = &f->roles;
    bool mine[MAX_STATE_AXES] = { false }, others = false, any = false;
    for (int i = 0; i < r->rank; i++) {
        for (int k = 0; k < n; k++)
            mine[i] |= i != r->key && !r->is_head[i] && varies_over(f->p.m, x[k].node, r->axes[i]);
        others |= !mine[i] && i != r->key && !r->is_head[i];
    }
    for (int i = 0; i < r->rank && others; i++) {
        any |= mine[i];
        r->is_head[i] |= mine[i];
    }
    return any;
}

/* ---- factors ---- */

static int by_factors(const Factor *a, int na, const Factor *b, int nb)
{
    int d = 0;
    for (int i = 0; i < na && i < nb && !d; i++)
        d = factor_order(&a[i], &b[i]);
    return d ? d : na - nb;
}

#define ORDER(a, b) by_factors((a).data, (a).len, (b).data, (b).len)
#define SAME(a, b) (ORDER(a, b) == 0)

static NodeId add(Module *m, NodeId a, NodeId b)
{
    return a < 0 ? b : node_map2(m, OP_ADD, a, b);
}

static bool is_one(const Module *m, NodeId id)
{
    return id >= 0 && m->nodes.data[id].kind == N_CONST && m->nodes.data[id].value == 1;
}

/* What the part is beside its values: coef * numbers * keys. */
static NodeId number_and_key(Module *m, const Parts *x)
{
    NodeId n = product_of(m, x->coef, x->number.data, x->number.len);
    if (!x->key.len)
        return n;
    NodeId k = product_of(m, 1, x->key.data, x->key.len);
    return is_one(m, n) ? k : node_map2(m, OP_MUL, n, k);
}

/* ---- decay ---- */

typedef struct Decays { PartsList parts; bool key, value, same_value; } Decays;

static Decays decays_from(Form *f, const PartsList *all, int state)
{
    Decays d = { .same_value = true };
    for (int i = 0; i < all->len; i++) {
        const Parts *x = &all->data[i];
        if (x->state != state || x->mixes)
            continue;
        vec_push(f->p.m->arena, &d.parts, *x);
        d.key |= x->key.len > 0;
        d.value |= x->value.len > 0;
        d.same_value &= SAME(x->value, d.parts.data[0].value);
    }
    return d;
}

static bool refuse_decay(Form *f, const Decays *d)
{
    for (int i = 0; i < d->parts.len; i++)
        if (d->parts.data[i].value.len && d->parts.data[i].key.len) {
            const Parts *x = &d->parts.data[i];
            Buf all = { .arena = f->p.m->arena };
            buf_f(&all, "%s * %s", words_of(f, x->value.data, x->value.len),
                  words_of(f, x->key.data, x->key.len));
            return proof_refuse(&f->p, x->value.data[0].node,
                                "the decay has a term `%s`: it is no product of a row's and a "
                                "column's decay",
                                all.data);
        }
    return proof_refuse(&f->p, d->parts.data[0].at,
                        "the decay is a sum of some that varies over keys and some over values");
}

/* A of one state from another, and H. *again: an axis became a head. */
static bool build_decay(Form *f, const PartsList *all, int state, NodeId *decay, ChunkUpdate *u, bool *again)
{
    Module *m = f->p.m;
    Decays d = decays_from(f, all, state);
    *decay = -1;
    for (int i = 0; i < d.parts.len; i++)
        *again |= make_heads(f, d.parts.data[i].value.data, d.parts.data[i].value.len);
    if (*again || !d.parts.len)
        return true;
    if ((d.key || d.value) && f->k->nstates > 1)
        return proof_refuse(&f->p, d.parts.data[0].at,
                            "the states feed one another, each with a decay that varies over %s",
                            d.key ? "keys" : "values");
    if (d.value && d.key && !d.same_value)
        return refuse_decay(f, &d);
    for (int i = 0; i < d.parts.len; i++) {
        const Parts *x = &d.parts.data[i];
        NodeId a = number_and_key(m, x);
        if (d.value && !d.same_value)
            u->per_value =
                add(m, u->per_value, node_map2(m, OP_MUL, a, product_of(m, 1, x->value.data, x->value.len)));
        else
            *decay = add(m, *decay, a);
    }
    if (d.value && d.same_value)
        u->per_value = product_of(m, 1, d.parts.data[0].value.data, d.parts.data[0].value.len);
    if (*decay < 0)
        *decay = node_const(m, 1);
    u->by_key |= d.key;
    return true;
}

/* ---- additions ---- */

/* Terms with one column of one state. */
typedef struct Column { int state; const Parts *first; PartsList row; ChunkVector is; } Column;
typedef struct Columns { Column *data; int len, cap; } Columns;

static int by_vector(const Parts *a, const Parts *b)
{
    int d = a->state - b->state;
    d = d ? d : ORDER(a->mixed, b->mixed);
    return d ? d : ORDER(a->value, b->value);
}

static int by_parts(const Parts *a, const Parts *b)
{
    int d = by_vector(a, b);
    return d ? d : ORDER(a->number, b->number);
}

/* Into the row, in order; what is there already but for its constant is added to. */
static void put_in_row(Form *f, PartsList *row, Parts x)
{
    int i = 0;
    while (i < row->len && by_parts(&row->data[i], &x) < 0)
        i++;
    if (i < row->len && by_parts(&row->data[i], &x) == 0) {
        row->data[i].coef += x.coef;
        return;
    }
    vec_push(f->p.m->arena, row, x);
    for (int k = row->len - 1; k > i; k--)
        row->data[k] = row->data[k - 1];
    row->data[i] = x;
}

static void drop_zeros(PartsList *row)
{
    int kept = 0;
    for (int i = 0; i < row->len; i++)
        if (row->data[i].coef != 0)
            row->data[kept++] = row->data[i];
    row->len = kept;
}

/* Where the factor stands among the part's numbers; -1: it is not there. */
static int find_factor(const Parts *x, Factor y)
{
    for (int i = 0; i < x->number.len; i++)
        if (factor_order(&x->number.data[i], &y) == 0)
            return i;
    return -1;
}

static void remove_factor(Parts *x, Factor y)
{
    int i = find_factor(x, y);
    memmove(x->number.data + i, x->number.data + i + 1, sizeof y * (size_t)(x->number.len - i - 1));
    x->number.len--;
}

/* What all terms of the row are multiplied by goes to the column. */
static NodeId take_strength(Form *f, PartsList *row)
{
    Parts common = { .coef = row->data[0].coef };
    for (int i = 0; i < row->data[0].number.len;) {
        Factor y = row->data[0].number.data[i];
        bool all = true;
        for (int k = 1; k < row->len && all; k++)
            all = find_factor(&row->data[k], y) >= 0;
        if (!all) {
            i++;
            continue;
        }
        vec_push(f->p.m->arena, &common.number, y);
        for (int k = 0; k < row->len; k++)
            remove_factor(&row->data[k], y);
    }
    for (int i = 0; i < row->len; i++)
        row->data[i].coef /= common.coef;
    return product_of(f->p.m, common.coef, common.number.data, common.number.len);
}

static bool same_row(const PartsList *a, const PartsList *b)
{
    bool same = a->len == b->len;
    for (int i = 0; i < a->len && same; i++)
        same = a->data[i].coef == b->data[i].coef && by_parts(&a->data[i], &b->data[i]) == 0;
    return same;
}

static void find_columns(Form *f, const PartsList *all, int state, Columns *out)
{
    for (int i = 0; i < all->len; i++) {
        const Parts *x = &all->data[i];
        int c = 0;
        if (x->state >= 0 && !x->mixes)
            continue;
        while (c < out->len && !(out->data[c].state == state && SAME(out->data[c].first->key, x->key)))
            c++;
        if (c == out->len) {
            Column new = { .state = state, .first = x };
            vec_push(f->p.m->arena, out, new);
        }
        put_in_row(f, &out->data[c].row, *x);
    }
}

static ChunkAddition addition_of(Form *f, const PartsList *row)
{
    Module *m = f->p.m;
    ChunkAddition a = { .columns = { 0 } };
    for (int i = 0; i < row->len; i++) {
        const Parts *x = &row->data[i];
        ChunkVector v = { x->state, product_of(m, x->coef, x->number.data, x->number.len), -1 };
        v.vector = x->mixes ? product_of(m, 1, x->mixed.data, x->mixed.len)
                            : product_of(m, 1, x->value.data, x->value.len);
        vec_push(m->arena, x->mixes ? &a.weights : &a.known, v);
    }
    return a;
}

static void build_additions(Form *f, Columns *columns, ChunkUpdate *u)
{
    Module *m = f->p.m;
    Vec(PartsList) rows = { 0 };
    for (int c = 0; c < columns->len; c++) {
        Column *x = &columns->data[c];
        int n = 0;
        drop_zeros(&x->row);
        if (!x->row.len)
            continue;
        ChunkVector is = { x->state, take_strength(f, &x->row),
                           product_of(m, 1, x->first->key.data, x->first->key.len) };
        while (n < rows.len && !same_row(&rows.data[n], &x->row))
            n++;
        if (n == rows.len) {
            vec_push(m->arena, &rows, x->row);
            vec_push(m->arena, &u->additions, addition_of(f, &x->row));
        }
        vec_push(m->arena, &u->additions.data[n].columns, is);
    }
}

/* A correction is as strong for each value: else each value would need a triangular system to itself. */
static bool check_corrections(Form *f, const PartsList *all, bool *again)
{
    for (int i = 0; i < all->len && !*again; i++) {
        const Parts *x = &all->data[i];
        if (!x->mixes || !x->value.len)
            continue;
        *again = make_heads(f, x->value.data, x->value.len);
        if (!*again)
            return proof_refuse(&f->p, x->value.data[0].node,
                                "`%s`: a correction of another strength for each value",
                                words_of(f, x->value.data, x->value.len));
    }
    return true;
}

static bool build_update(Form *f, const Terms *terms, ChunkUpdate *u, bool *again)
{
    int n = f->k->nstates;
    Columns columns = { 0 };
    u->per_value = -1;
    u->decay = arena_alloc(f->p.m->arena, sizeof *u->decay * (size_t)(n * n));
    for (int to = 0; to < n; to++) {
        PartsList all;
        if (!settle_known(f, &terms[to], &all, again) || (!*again && !check_corrections(f, &all, again)))
            return false;
        for (int from = 0; from < n && !*again; from++) {
            if (!build_decay(f, &all, from, &u->decay[to * n + from], u, again))
                return false;
            u->decays |= to == from ? !is_one(f->p.m, u->decay[to * n + from]) : u->decay[to * n + from] >= 0;
        }
        if (*again)
            return true;
        find_columns(f, &all, to, &columns);
    }
    u->decays |= u->per_value >= 0;
    build_additions(f, &columns, u);
    return true;
}

/* ---- reads ---- */

static bool build_read(Form *f, const FormRead *from, ChunkRead *r, bool *again)
{
    Module *m = f->p.m;
    PartsList all;
    *r = (ChunkRead){ .known = -1 };
    vec_push(m->arena, &r->sums, from->sum);
    if (from->key != f->roles.key)
        return proof_refuse(&f->p, from->sum.node, "a sum over axis %s of %s, where others sum over axis %s",
                            m->indices.data[f->k->axes[from->key]].name, proof_states(&f->p),
                            m->indices.data[f->k->axes[f->roles.key]].name);
    if (!settle_known(f, &from->terms, &all, again))
        return false;
    for (int i = 0; i < all.len; i++) {
        const Parts *x = &all.data[i];
        NodeId number = product_of(m, x->coef, x->number.data, x->number.len);
        NodeId value = x->value.len ? product_of(m, 1, x->value.data, x->value.len) : -1;
        if (x->state < 0) {
            r->known = add(m, r->known,
                           value < 0           ? number
                           : is_one(m, number) ? value
                                               : node_map2(m, OP_MUL, number, value));
            continue;
        }
        ChunkPart part = { { x->state, number, product_of(m, 1, x->mixed.data, x->mixed.len) },
                           x->level,
                           value };
        vec_push(m->arena, &r->parts, part);
    }
    return true;
}

static bool same_read(const ChunkRead *a, const ChunkRead *b)
{
    bool same = a->known == b->known && a->parts.len == b->parts.len;
    for (int i = 0; i < a->parts.len && same; i++) {
        const ChunkPart *x = &a->parts.data[i], *y = &b->parts.data[i];
        same = x->weight.state == y->weight.state && x->weight.number == y->weight.number &&
               x->weight.vector == y->weight.vector && x->update == y->update && x->scale == y->scale;
    }
    return same;
}

static void put_read(Form *f, const ChunkRead *x)
{
    for (int i = 0; i < f->k->reads.len; i++)
        if (same_read(&f->k->reads.data[i], x)) {
            vec_push(f->p.m->arena, &f->k->reads.data[i].sums, x->sums.data[0]);
            return;
        }
    vec_push(f->p.m->arena, &f->k->reads, *x);
}

/* ---- the form ---- */

/* Once, with the heads that are known. */
static bool build_once(Form *f, bool *again)
{
    Proof *p = &f->p;
    ChunkComponent *k = f->k;
    k->updates.len = k->reads.len = 0;
    p->left = 100 * MAX_TERMS;
    for (int u = 0; u <= p->levels.len && !*again; u++) {
        ChunkUpdate x = { 0 };
        if (!build_update(f, f->updates + u * k->nstates, &x, again))
            return false;
        vec_push(p->m->arena, &k->updates, x);
    }
    for (int i = 0; i < f->reads.len && !*again; i++) {
        ChunkRead x;
        if (!build_read(f, &f->reads.data[i], &x, again))
            return false;
        put_read(f, &x);
    }
    return true;
}

bool form_build(Form *f)
{
    ChunkComponent *k = f->k;
    bool again = true;
    memset(k->is_head, 0, (size_t)k->rank);
    for (int i = 0; i < f->reads.len; i++)        /* several queries of one place */
        for (int a = 0; a < k->rank; a++) {
            const IxExpr *place = f->reads.data[i].sum.places[a];
            k->is_head[a] |= place && a != k->key && !ix_is_index(place, &(IndexId){ 0 });
        }
    f->roles = (Roles){ k->rank, k->key, k->axes, k->mixed, k->is_head, NULL, { .file = -1 } };
    while (again) {
        again = false;
        if (!build_once(f, &again))
            return false;
    }
    return true;
}

/* ---- columns ---- */

typedef struct NodeIds {
    NodeId *data;
    int len, cap;
} NodeIds;

/* The axes of a vector beside the key are heads; those of the other component's heads, in their order, are
 * the same. */
static bool same_axes(const Module *m, const ChunkComponent *a, const ChunkComponent *of, IndexId *from,
                      IndexId *to, int *n)
{
    int next = 0;
    *n = 0;
    for (int i = 0; i < a->rank; i++) {
        if (i == a->key)
            continue;
        while (next < of->rank && (next == of->key || !of->is_head[next]))
            next++;
        if (next == of->rank || m->indices.data[a->axes[i]].extent != m->indices.data[of->axes[next]].extent)
            return false;
        from[*n] = a->axes[i];
        to[(*n)++] = of->axes[next++];
    }
    while (next < of->rank && (next == of->key || !of->is_head[next]))
        next++;
    from[*n] = a->axes[a->key];
    to[(*n)++] = of->axes[of->key];
    return next == of->rank && a->keys == of->keys;
}

/* The terms of a sum, or the factors of a product. */
static void operands_of(const Module *m, Op op, NodeId id, NodeIds *out)
{
    const Node *n = &m->nodes.data[id];
    if (n->kind == N_MAP && n->op == op) {
        operands_of(m, op, n->args[0], out);
        operands_of(m, op, n->args[1], out);
        return;
    }
    vec_push(m->arena, out, id);
}

/* The same value, terms and factors in whatever order: that of a product is by the numbers of its nodes,
 * which what stands for an axis changes. */
static bool same_value(const Module *m, NodeId a, NodeId b)
{
    NodeIds x = { 0 }, y = { 0 };
    if (a < 0 || b < 0 || a == b)
        return a == b;
    const Node *n = &m->nodes.data[a], *o = &m->nodes.data[b];
    if (n->kind != N_MAP || o->kind != N_MAP || n->op != o->op || n->nargs != o->nargs)
        return false;
    if (n->op != OP_ADD && n->op != OP_MUL) {
        for (int i = 0; i < n->nargs; i++)
            if (!same_value(m, n->args[i], o->args[i]))
                return false;
        return true;
    }
    operands_of(m, n->op, a, &x);
    operands_of(m, n->op, b, &y);
    for (int i = 0; i < x.len; i++) {
        int k = 0;
        while (k < y.len && !same_value(m, x.data[i], y.data[k]))
            k++;
        if (k == y.len)
            return false;
        y.data[k] = y.data[--y.len];
    }
    return y.len == 0;
}

/* Numbers may differ: they can go to the values. */
static bool has_column(const Module *m, const ChunkUpdate *u, NodeId vector)
{
    for (int i = 0; i < u->additions.len; i++)
        for (int c = 0; c < u->additions.data[i].columns.len; c++)
            if (same_value(m, u->additions.data[i].columns.data[c].vector, vector))
                return true;
    return false;
}

/* Does every update of the vector decay as the other's, and add columns that are there? */
static bool is_column(Module *m, const ChunkComponent *a, const ChunkComponent *of)
{
    IndexId from[MAX_STATE_AXES + 1], names[MAX_STATE_AXES + 1];
    const IxExpr *to[MAX_STATE_AXES + 1];
    int n;
    if (of->verdict != CHUNK_QUALIFIES || a->nstates > 1 || of->nstates > 1 || a->updates.len != 1 ||
        of->updates.len != 1 || !same_axes(m, a, of, from, names, &n))
        return false;
    for (int i = 0; i < n; i++)
        to[i] = ix_index(m, names[i]);
    const ChunkUpdate *x = &a->updates.data[0], *y = &of->updates.data[0];
    NodeId decay = node_subst(m, x->decay[0], from, to, n);
    if (y->per_value >= 0 || x->per_value >= 0 || !same_value(m, decay, y->decay[0]))
        return false;
    for (int i = 0; i < x->additions.len; i++)
        for (int c = 0; c < x->additions.data[i].columns.len; c++) {
            ChunkVector v = x->additions.data[i].columns.data[c];
            if (!has_column(m, y, node_subst(m, v.vector, from, to, n)))
                return false;
        }
    return true;
}

void form_columns(ChunkForm *f)
{
    for (int i = 0; i < f->ncomponents; i++)
        for (int k = 0; k < f->ncomponents; k++) {
            ChunkComponent *a = &f->components[i];
            if (a->verdict == CHUNK_ELEMENTS && a->key >= 0 && k != i &&
                is_column(f->m, a, &f->components[k])) {
                a->verdict = CHUNK_COLUMN;
                a->column_of = k;
            }
        }
}
