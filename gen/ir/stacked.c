/* stacked.c: products of one vector with several params, as one product. In comes a module without its
 * adjoint in which sums are products of a param and one value (products.c). Out goes the same where the
 * products of one vector with several matrices (the gates of an LSTM, the heads of CfC, q, k and v) are views
 * of one product: with the param itself where the matrices are slices that tile an axis of it, else with a
 * matrix that has the rows of all of them, one behind another, and is made once in a call. It is done before
 * differentiation, so that the adjoint is that of one product as well, and each param's gradient a part of
 * it. Guaranteed: values are the same but for the order of their roundings; products of steps that feed the
 * next one stay apart from those that do not, which are made for all steps at once. */
#include <string.h>

#include "products.h"
#include "rewrite.h"
#include "stacked.h"

/* MOST_AXES: of a vector or a matrix. ROW_MULTIPLE: behind rows of a known number that is no multiple of it,
 * those of others would not begin at whole vectors of 16 bytes. */
enum { MOST_AXES = 16, ROW_MULTIPLE = 8 };

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

typedef struct Indices {
    IndexId of[MOST_AXES];
    int n;
} Indices;

/* When a product is made: it depends on no state; on one, and feeds no next state; it feeds one. */
typedef enum { OF_INPUTS, BEHIND, STEPWISE } When;

/* One product. Its indices, in its own names: those of the vector, of which `bound` are summed over, and the
 * matrix's rows. */
typedef struct Product {
    NodeId reduce, matrix, vector;
    Indices along, rows;
    const IxExpr *place; /* the last of its rows, in the sum's own names */
    bool joined; /* of several indices, `h*N + i`, along one axis of the matrix */
    /* Indices of the matrix whose rows were several axes of a param (flatten_rows); n 0: they were not. */
    Indices flat;
    bool single; /* a gate's one row, `w[d]`: the last row has the extent 1 */
    When when;
    /* The same with the indices of the first product of the vector, and rows of the pass: equal where the
     * matrices are the same. */
    NodeId key;
    int stack; /* -1: none */
    const Poly *first; /* row of the stack */
} Product;
typedef Vec(Product) ProductVec;

/* What takes the place of several products. */
typedef struct Stack {
    int of; /* the first of them, whose names of indices are used */
    Indices heads; /* of the vector's indices those that the matrices have, and the sum does not */
    IndexId row;
    const Poly *rows; /* all of them, along the last axis of rows */
    NodeId matrix;
    NodeId product; /* an array, once it is made; -1 */
} Stack;
typedef Vec(Stack) StackVec;

typedef struct Pass {
    Module *m;
    bool single; /* products of one row, which are those of the pass */
    ProductVec products;
    StackVec stacks;
    int *product_of; /* per node, its place in products plus 1; 0: none */
    Indices made; /* rows of the pass, by their extents */
} Pass;

static const Poly *extent(const Module *m, IndexId i)
{
    return m->indices.data[i].extent;
}

static bool has(const Indices *x, IndexId i)
{
    for (int k = 0; k < x->n; k++)
        if (x->of[k] == i)
            return true;
    return false;
}

static bool is_bound(const Node *sum, IndexId i)
{
    for (int k = 0; k < sum->nbound; k++)
        if (sum->bound[k] == i)
            return true;
    return false;
}

static bool varies_over(const Node *n, IndexId i)
{
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

/* ---- products ---- */

static bool add_index(Indices *out, IndexId i)
{
    if (has(out, i))
        return true;
    if (i < IX_FIRST || out->n == MOST_AXES)
        return false;
    out->of[out->n++] = i;
    return true;
}

/* Of one place those that step over others come first. False: it is no sum of indices. */
static bool add_place(const IxExpr *place, Indices *out)
{
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < place->nterms; i++) {
            const IxTerm *t = &place->terms[i];
            if (t->kind != IA_INDEX)
                return false;
            if (poly_is_one(t->coef) == (last == 1) && !add_index(out, t->index))
                return false;
        }
    return true;
}

/* The indices of a read, in the order of the axes that it reads. */
static bool indices_of(const Node *n, Indices *out)
{
    out->n = 0;
    if (n->kind == N_ARRAY) {
        for (int i = 0; i < n->naxes; i++)
            if (!add_index(out, n->axes[i]))
                return false;
        return true;
    }
    for (int i = 0; i < n->nmap; i++)
        if (!add_place(n->map[i], out))
            return false;
    return true;
}

/* Do the last rows count through one axis of a param, `W[h*N + i, d]`? Then they are one row, so that whole
 * params lie one behind another as they are. */
static void join_rows(Module *m, Product *x)
{
    const Node load = *at(m, x->matrix);
    for (int k = 0; load.kind == N_LOAD && k < load.nmap; k++) {
        const IxExpr *e = load.map[k];
        const Poly *count;
        int first = x->rows.n - e->nterms;
        if (e->nterms < 2 || first < 0 || !ix_counts(m, e, &count))
            continue;
        bool last = true;
        for (int i = first; i < x->rows.n; i++)
            last &= ix_uses(e, x->rows.of[i]);
        for (int i = 0; i < load.nmap; i++)
            for (int r = first; r < x->rows.n; r++)
                last &= i == k || !ix_uses(load.map[i], x->rows.of[r]);
        if (!last)
            continue;
        const IxExpr *map[MOST_AXES];
        if (load.nmap > MOST_AXES)
            return;
        memcpy(map, load.map, sizeof *map * (size_t)load.nmap);
        IndexId row = module_index(m, intern(m->c, "r"), count);
        map[k] = ix_add(m, ix_index(m, row), ix_const(m, e->offset));
        NodeId whole = node_load(m, load.tensor, map, load.nmap);
        if (at(m, whole)->kind != N_LOAD) /* not known to lie inside */
            return;
        x->place = ix_sub(m, e, ix_const(m, e->offset));
        x->rows.of[first] = row;
        x->rows.n = first + 1;
        x->joined = true;
        x->matrix = whole;
        return;
    }
}

/* Rows of several axes as one row, as they lie: of `A[a,n,j]` with rows a and n the row `a*N + n`. False:
 * they are not axes of a param that stand behind one another, each read as a whole. */
static bool flatten_rows(Module *m, Product *x)
{
    const Node load = *at(m, x->matrix);
    const IxExpr *map[MOST_AXES], *place = ix_const(m, poly_const(m, 0));
    const Poly *all = poly_const(m, 1);
    int first = 0;
    if (load.kind != N_LOAD || load.nmap > MOST_AXES || x->rows.n < 2 || x->joined)
        return false;
    while (first < load.nmap && load.map[first] != ix_index(m, x->rows.of[0]))
        first++;
    for (int i = 0; i < x->rows.n; i++) {
        const Poly *own = extent(m, x->rows.of[i]);
        if (first + i >= load.nmap || load.map[first + i] != ix_index(m, x->rows.of[i]) ||
            m->tensors.data[load.tensor].axes[first + i] != own)
            return false;
        place = ix_add(m, ix_scale(m, place, own), ix_index(m, x->rows.of[i]));
        all = poly_mul(m, all, own);
    }
    const IndexId row = module_index(m, intern(m->c, "r"), all);
    const IxExpr *rest = ix_index(m, row);
    memcpy(map, load.map, sizeof *map * (size_t)load.nmap);
    for (int i = x->rows.n - 1; i >= 0; i--) {
        const Poly *own = extent(m, x->rows.of[i]);
        map[first + i] = i == 0 ? rest : ix_mod(m, rest, own);
        rest = ix_div(m, rest, own);
    }
    const NodeId whole = node_load(m, load.tensor, map, load.nmap);
    if (at(m, whole)->kind != N_LOAD) /* not known to lie inside */
        return false;
    for (int i = 0; i < load.nmap; i++) {
        const bool flat = i >= first && i < first + x->rows.n;
        IndexId own = row;
        if (i == first || (!flat && ix_is_index(load.map[i], &own)))
            add_index(&x->flat, own);
    }
    x->matrix = whole;
    x->place = place;
    x->rows.of[0] = row;
    x->rows.n = 1;
    x->joined = true;
    return true;
}

/* One row of a matrix, as that of a gate of one value is: a row of extent 1. It is that of the param's axis
 * that is read at a known place, if there is one, so that rows of one param are slices of it. */
static void one_row(Module *m, Product *x)
{
    const Node load = *at(m, x->matrix);
    const IxExpr *map[MOST_AXES];
    IndexId row = module_index(m, intern(m->c, "r"), poly_const(m, 1));
    x->rows.of[x->rows.n++] = row;
    x->place = ix_const(m, poly_const(m, 0));
    x->single = true;
    for (int k = 0; load.kind == N_LOAD && load.nmap <= MOST_AXES && k < load.nmap; k++) {
        if (load.map[k]->nterms)
            continue;
        memcpy(map, load.map, sizeof *map * (size_t)load.nmap);
        map[k] = ix_add(m, ix_index(m, row), load.map[k]);
        x->matrix = node_load(m, load.tensor, map, load.nmap);
        return;
    }
}

/* Is it the product of a matrix, or of one row of it, and a vector? */
static bool find_product(Module *m, NodeId id, Product *x)
{
    const Node sum = *at(m, id);
    Indices all;
    if (sum.kind != N_REDUCE || sum.reduce != R_SUM || sum.type != TY_REAL || !is_plain_product(m, &sum))
        return false;
    const Node *term = at(m, sum.args[0]);
    bool first = is_shared_matrix(m, term->args[0]);
    *x = (Product){
        .reduce = id, .matrix = term->args[first ? 0 : 1], .vector = term->args[first ? 1 : 0], .stack = -1
    };
    const Node *matrix = at(m, x->matrix), *vector = at(m, x->vector);
    if (!is_shared_matrix(m, x->matrix) || !is_vector_of_rows(m, x->vector) ||
        !indices_of(vector, &x->along) || !indices_of(matrix, &all))
        return false;
    for (int i = 0; i < sum.nbound; i++)
        if (sum.bound[i] < IX_FIRST || !has(&x->along, sum.bound[i]) || !has(&all, sum.bound[i]))
            return false;
    for (int i = 0; i < all.n; i++)
        if (!has(&x->along, all.of[i]))
            x->rows.of[x->rows.n++] = all.of[i];
    if (x->rows.n) {
        x->place = ix_index(m, x->rows.of[x->rows.n - 1]);
        join_rows(m, x);
    } else if (all.n < MOST_AXES) {
        one_row(m, x);
    }
    return x->rows.n > 0;
}

/* ---- which are of one vector ---- */

static NodeId renamed(Module *m, NodeId id, const Indices *from, const Indices *to)
{
    const IxExpr *ix[MOST_AXES];
    for (int i = 0; i < from->n; i++)
        ix[i] = ix_index(m, to->of[i]);
    return node_subst(m, id, from->of, ix, from->n);
}

/* Along which matrices lie one behind another. */
static IndexId last_row(const Product *x)
{
    return x->rows.of[x->rows.n - 1];
}

/* A row of the pass: equal matrices with other names of their rows are then one. */
static IndexId row_of(Pass *s, const Poly *count, const Indices *taken)
{
    for (int i = 0; i < s->made.n; i++)
        if (extent(s->m, s->made.of[i]) == count && !has(taken, s->made.of[i]))
            return s->made.of[i];
    IndexId row = module_index(s->m, intern(s->m->c, "r"), count);
    add_index(&s->made, row);
    return row;
}

static bool same_extents(const Module *m, const Indices *a, const Indices *b, int n)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < n; i++)
        if (extent(m, a->of[i]) != extent(m, b->of[i]))
            return false;
    return true;
}

static bool is_multiple(const Poly *rows)
{
    for (int i = 0; i < rows->nterms; i++)
        if (rows->terms[i].coef % ROW_MULTIPLE)
            return false;
    return true;
}

/* Rows of as many, or whose number leaves those behind them where vectors begin. In a step a product less
 * saves more than vectors do. A walk on chip must know it, also of a number that a call gives. */
static bool fits_behind(const Module *m, const Poly *rows, const Poly *first, When when)
{
    bool open = m->stack != STACK_FETCHED;
    return when == STEPWISE || rows == first ||
           (((open && !rows->is_const) || is_multiple(rows)) &&
            ((open && !first->is_const) || is_multiple(first)));
}

/* Has the one product the vector of the other, summed over the same of its indices, and a matrix with the
 * same heads? */
static bool has_vector_of(Pass *s, const Product *x, const Product *first)
{
    Module *m = s->m;
    if (x->when != first->when || !same_extents(m, &x->along, &first->along, x->along.n) ||
        renamed(m, x->vector, &x->along, &first->along) != first->vector)
        return false;
    for (int i = 0; i < x->along.n; i++)
        if (is_bound(at(m, x->reduce), x->along.of[i]) !=
                is_bound(at(m, first->reduce), first->along.of[i]) ||
            varies_over(at(m, x->matrix), x->along.of[i]) !=
                varies_over(at(m, first->matrix), first->along.of[i]))
            return false;
    return true;
}

/* And has its matrix the same axes before its last one of rows? */
static bool goes_with(Pass *s, const Product *x, const Product *first)
{
    Module *m = s->m;
    return fits_behind(m, extent(m, last_row(x)), extent(m, last_row(first)), x->when) &&
           same_extents(m, &x->rows, &first->rows, x->rows.n - 1) && has_vector_of(s, x, first);
}

/* Of products of one vector whose matrices have other axes of rows than one another, each has one axis of
 * rows. */
static void flatten_other_rows(Pass *s)
{
    Product *all = s->products.data;
    for (int i = 0; i < s->products.len; i++) {
        bool other = false;
        for (int k = 0; k < s->products.len && !other; k++)
            other = !same_extents(s->m, &all[k].rows, &all[i].rows, all[i].rows.n - 1) &&
                    has_vector_of(s, &all[k], &all[i]);
        for (int k = 0; other && k < s->products.len; k++)
            if (has_vector_of(s, &all[k], &all[i]))
                flatten_rows(s->m, &all[k]);
    }
}

static NodeId key_of(Pass *s, const Product *x, const Product *first)
{
    Indices from = x->along, to = first->along;
    for (int i = 0; i < x->rows.n && from.n < MOST_AXES; i++) {
        from.of[from.n++] = x->rows.of[i];
        to.of[to.n] = row_of(s, extent(s->m, x->rows.of[i]), &to);
        to.n++;
    }
    return renamed(s->m, x->matrix, &from, &to);
}

/* ---- the matrix of a stack ---- */

/* The block's matrix with the indices of the first one, but for the last of its rows. */
static NodeId with_names_of(Module *m, const Product *x, const Product *first)
{
    Indices from = x->along, to = first->along;
    for (int i = 0; i + 1 < x->rows.n && from.n < MOST_AXES; i++) {
        from.of[from.n++] = x->rows.of[i];
        to.of[to.n++] = first->rows.of[i];
    }
    return renamed(m, x->matrix, &from, &to);
}

/* Is the block a slice of the param's axis, and all else as in the first one's map? */
static bool is_slice(Module *m, const Product *x, const Node *load, TensorId of, int axis,
                     const IxExpr *const *map)
{
    IndexId row;
    if (load->kind != N_LOAD || load->tensor != of ||
        !ix_is_index(ix_sub(m, load->map[axis], ix_const(m, load->map[axis]->offset)), &row) ||
        row != last_row(x))
        return false;
    for (int i = 0; i < load->nmap; i++)
        if (i != axis && load->map[i] != map[i])
            return false;
    return true;
}

/* Where slices of one param tile an axis of it, one behind another: the param, of which each has its part.
 * -1: they do not. */
static NodeId tiled(Pass *s, const Stack *k, const int *blocks, int n)
{
    Module *m = s->m;
    const Product *leader = &s->products.data[k->of];
    const Node first = *at(m, leader->matrix);
    const Poly *end = poly_const(m, 0), **from = arena_alloc(m->arena, sizeof *from * (size_t)n);
    const IxExpr *map[MOST_AXES];
    int axis = 0;
    while (axis < first.nmap && !ix_uses(first.map[axis], last_row(leader)))
        axis++;
    for (int i = axis + 1; i < first.nmap; i++)
        if (ix_uses(first.map[i], last_row(leader))) /* a diagonal */
            return -1;
    if (first.nmap > MOST_AXES)
        return -1;
    memcpy(map, first.map, sizeof *map * (size_t)first.nmap);
    for (int found = 0; found < n; found++) {
        int next = -1;
        for (int i = 0; i < n; i++) {
            const Product *x = &s->products.data[blocks[i]];
            const Node *load = at(m, with_names_of(m, x, leader));
            if (!is_slice(m, x, load, first.tensor, axis, map))
                return -1;
            from[i] = load->map[axis]->offset;
            next = from[i] == end ? i : next;
        }
        if (next < 0)
            return -1;
        end = poly_add(m, end, extent(m, last_row(&s->products.data[blocks[next]])));
    }
    if (end != m->tensors.data[first.tensor].axes[axis])
        return -1;
    for (int i = 0; i < n; i++)
        s->products.data[blocks[i]].first = from[i];
    map[axis] = ix_index(m, k->row);
    return node_load(m, first.tensor, map, first.nmap);
}

/* Is it a param of which one axis has several indices, as rows of heads have: `W[h*N + i, d]`? */
static bool joins_axes(const Node *matrix)
{
    for (int i = 0; matrix->kind == N_LOAD && i < matrix->nmap; i++)
        if (matrix->map[i]->nterms > 1)
            return true;
    return false;
}

static bool is_joined(const Module *m, NodeId matrix)
{
    bool joined = false;
    for (int i = 0; i < m->joined.len; i++)
        joined |= m->joined.data[i] == matrix;
    return joined;
}

static bool is_folded(const Module *m, NodeId matrix)
{
    bool folded = false;
    for (int i = 0; i < m->folded.len; i++)
        folded |= m->folded.data[i] == matrix;
    return folded;
}

/* Of the block, the matrix with an axis for each of its indices. Behind the conditions of the stack the
 * index of a row goes over all blocks, so that a place of the param would belong to several pairs of a head
 * and a row, and its gradient would be a sum of cases. What has the columns of several params is read from
 * these: the one copy has rows and columns. */
static NodeId with_own_axes(Module *m, const Product *x)
{
    const Node matrix = *at(m, x->matrix);
    Indices axes;
    if (is_joined(m, x->matrix))
        return matrix.args[0];
    if (x->flat.n)
        return node_array(m, x->matrix, x->flat.of, x->flat.n, NULL, matrix.span);
    if (!(x->single || joins_axes(&matrix)) || !indices_of(&matrix, &axes))
        return x->matrix;
    if (x->single && !has(&axes, last_row(x)))
        add_index(&axes, last_row(x));
    return node_array(m, x->matrix, axes.of, axes.n, NULL, matrix.span);
}

/* The block's elements at the stack's row, and at the first product's other indices. */
static NodeId block_at(Pass *s, const Stack *k, const Product *x)
{
    Module *m = s->m;
    const Product *first = &s->products.data[k->of];
    IndexId from[2 * MOST_AXES];
    const IxExpr *to[2 * MOST_AXES];
    int n = 0;
    for (int i = 0; i < x->along.n; i++, n++) {
        from[n] = x->along.of[i];
        to[n] = ix_index(m, first->along.of[i]);
    }
    for (int i = 0; i < x->rows.n; i++, n++) {
        from[n] = x->rows.of[i];
        to[n] = i + 1 < x->rows.n ? ix_index(m, first->rows.of[i])
                                  : ix_sub(m, ix_index(m, k->row), ix_const(m, x->first));
    }
    return node_subst(m, with_own_axes(m, x), from, to, n);
}

/* Heads, rows, and what is summed over; where the first matrix lies the other way round, rows last. */
static int axes_of(Pass *s, const Stack *k, IndexId *axes)
{
    const Product *x = &s->products.data[k->of];
    const Node *sum = at(s->m, x->reduce);
    Indices all;
    int n = 0;
    indices_of(at(s->m, x->matrix), &all);
    bool rows_last = is_bound(sum, all.of[0]) && !x->single;
    for (int i = 0; i < k->heads.n; i++)
        axes[n++] = k->heads.of[i];
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < x->rows.n && (part == 1) == rows_last; i++)
            axes[n++] = i + 1 < x->rows.n ? x->rows.of[i] : k->row;
        for (int i = 0; i < x->along.n && (part == 0) == rows_last; i++)
            if (is_bound(sum, x->along.of[i]))
                axes[n++] = x->along.of[i];
    }
    return n;
}

static const char *stack_name(const Module *m, const Product *x)
{
    const Node *n = at(m, x->matrix);
    const char *of = n->kind == N_LOAD   ? m->tensors.data[n->tensor].name
                     : n->kind == N_VIEW ? at(m, n->args[0])->name
                                         : n->name;
    return of ? intern_f(m->c, "%s_stack", of) : NULL;
}

/* One behind another, in their order in the step. */
static NodeId laid_together(Pass *s, const Stack *k, const int *blocks, int n)
{
    Module *m = s->m;
    NodeId all = -1;
    for (int i = n - 1; i >= 0; i--) {
        const Product *x = &s->products.data[blocks[i]];
        const Poly *end = poly_add(m, x->first, extent(m, last_row(x)));
        NodeId own = block_at(s, k, x);
        NodeId here = node_map2(m, OP_LT, node_index(m, ix_index(m, k->row)), node_size(m, end));
        all = all < 0 ? own : node_select(m, here, own, all);
    }
    IndexId axes[3 * MOST_AXES];
    int naxes = axes_of(s, k, axes);
    const Product *first = &s->products.data[k->of];
    return node_array(m, all, axes, naxes, stack_name(m, first), at(m, first->reduce)->span);
}

/* ---- stacks ---- */

static bool same_tensor(const Pass *s, const int *blocks, int n)
{
    TensorId t = -1;
    for (int i = 0; i < n; i++) {
        const Node *x = at(s->m, s->products.data[blocks[i]].matrix);
        if (x->kind != N_LOAD || (t >= 0 && x->tensor != t))
            return false;
        t = x->tensor;
    }
    return true;
}

/* Slices of one param's first axis, which simplify takes: they tile it, or have several indices along it. */
static bool is_simplified(const Pass *s, const Product *x, bool tiles)
{
    const Node *load = at(s->m, x->matrix), *sum = at(s->m, x->reduce);
    return !x->single && x->along.n == sum->nbound && ix_uses(load->map[0], last_row(x)) &&
           (tiles || x->joined || x->rows.n > 1);
}

/* The matrix of the products, which are of n of them; -1: they are no stack. */
static NodeId matrix_of(Pass *s, const Stack *k, const int *blocks, int n)
{
    bool one = same_tensor(s, blocks, n);
    if (n < 2)
        return -1;
    NodeId param = one ? tiled(s, k, blocks, n) : -1;
    if (one && is_simplified(s, &s->products.data[k->of], param >= 0))
        return -1;
    return param >= 0 ? param : laid_together(s, k, blocks, n);
}

/* Elements of a matrix that is made in each call. */
static const Poly *elements_made(Module *m, NodeId matrix)
{
    const Node *n = at(m, matrix);
    const Poly *all = poly_const(m, n->kind == N_ARRAY);
    for (int i = 0; i < n->naxes; i++)
        all = poly_mul(m, all, extent(m, n->axes[i]));
    return all;
}

static void stack_from(Pass *s, int of)
{
    Module *m = s->m;
    ProductVec *all = &s->products;
    int *blocks = arena_alloc(m->arena, sizeof *blocks * (size_t)all->len), n = 0;
    const Product *first = &all->data[of];
    Stack k = { .of = of, .product = -1, .rows = poly_const(m, 0) };
    for (int i = of; i < all->len; i++) {
        Product *x = &all->data[i];
        if (x->stack >= 0 || !goes_with(s, x, first))
            continue;
        x->key = key_of(s, x, first);
        x->stack = s->stacks.len;
        int same = 0;
        while (same < n && all->data[blocks[same]].key != x->key)
            same++;
        x->first = same < n ? all->data[blocks[same]].first : k.rows;
        if (same == n) {
            blocks[n++] = i;
            k.rows = poly_add(m, k.rows, extent(m, last_row(x)));
        }
    }
    k.row = row_of(s, k.rows, &first->rows);
    for (int i = 0; i < first->along.n; i++)
        if (!is_bound(at(m, first->reduce), first->along.of[i]) &&
            varies_over(at(m, first->matrix), first->along.of[i]))
            add_index(&k.heads, first->along.of[i]);
    module_at(m, at(m, first->reduce)->span, at(m, first->reduce)->chain);
    k.matrix = matrix_of(s, &k, blocks, n);
    for (int i = of; i < all->len && k.matrix >= 0; i++)
        for (int b = 0; b < n; b++)
            if (all->data[i].stack == s->stacks.len && all->data[i].key == all->data[blocks[b]].key)
                all->data[i].first = all->data[blocks[b]].first;
    if (k.matrix >= 0) {
        m->stacked++;
        m->fewer += n - 1;
        m->laid = poly_add(m, m->laid, elements_made(m, k.matrix));
        for (int b = 0; b < n; b++) /* of which one copy has the rows and columns, and the factors */
            if (is_joined(m, all->data[blocks[b]].matrix) || is_folded(m, all->data[blocks[b]].matrix))
                m->laid = poly_sub(m, m->laid, elements_made(m, all->data[blocks[b]].matrix));
    }
    vec_push(m->arena, &s->stacks, k);
}

/* Are its rows a part of those that a param has? Those that are of one param are one product without a
 * copy (simplify.c), and its gradient would be put together from theirs: E79 with biases from the input
 * took 0.71 ms for 0.67 on an H100. */
static bool is_part(Module *m, const Product *x)
{
    const Node *load = at(m, x->matrix);
    for (int k = 0; load->kind == N_LOAD && k < load->nmap; k++) {
        const Poly *rows = NULL;
        for (int i = 0; i < x->rows.n; i++)
            if (ix_uses(load->map[k], x->rows.of[i]))
                rows = rows ? poly_mul(m, rows, extent(m, x->rows.of[i])) : extent(m, x->rows.of[i]);
        if (rows && rows != m->tensors.data[load->tensor].axes[k])
            return true;
    }
    return false;
}

static void find_products(Pass *s)
{
    Module *m = s->m;
    int n = m->nodes.len;
    bool *seen = arena_alloc(m->arena, (size_t)n + 1), *feeds = arena_alloc(m->arena, (size_t)n + 1);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        ir_mark(m, m->roots.data[t].next, feeds);
        ir_mark(m, m->roots.data[t].next, seen);
        ir_mark(m, m->roots.data[t].output, seen);
    }
    for (NodeId id = 0; id < n; id++) {
        Product x;
        if (!seen[id] || !find_product(m, id, &x) || x.single != s->single)
            continue;
        x.when = !(at(m, id)->dep & DEP_STATE) ? OF_INPUTS : feeds[id] ? STEPWISE : BEHIND;
        if ((m->stack < STACK_ALL && x.when != OF_INPUTS) ||
            (m->stack == STACK_FETCHED && !x.single && is_part(m, &x)))
            continue;
        vec_push(m->arena, &s->products, x);
        s->product_of[id] = s->products.len;
    }
}

/* The vector is the rebuilt one, in which products may stand in stacks themselves. */
static NodeId product_of_stack(Pass *s, Stack *k, const Product *x, NodeId vector)
{
    Module *m = s->m;
    const Product *first = &s->products.data[k->of];
    const Node sum = *at(m, first->reduce);
    if (k->product >= 0)
        return k->product;
    vector = renamed(m, vector, &x->along, &first->along);
    module_at(m, sum.span, sum.chain);
    NodeId value = node_reduce(m, R_SUM, node_map2(m, OP_MUL, k->matrix, vector), sum.bound, sum.nbound);
    IndexId axes[2 * MOST_AXES];
    int n = 0;
    for (int i = 0; i < first->along.n; i++)
        if (!is_bound(&sum, first->along.of[i]))
            axes[n++] = first->along.of[i];
    for (int i = 0; i < first->rows.n; i++)
        axes[n++] = i + 1 < first->rows.n ? first->rows.of[i] : k->row;
    k->product = node_array(m, value, axes, n, NULL, sum.span);
    return k->product;
}

static NodeId hook_stack(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Pass *s = r->data;
    Module *m = r->m;
    const Product *x = old < r->n && s->product_of[old] ? &s->products.data[s->product_of[old] - 1] : NULL;
    Stack *k = x ? &s->stacks.data[x->stack] : NULL;
    (void)whole;
    if (!k || k->matrix < 0)
        return rebuilt;
    const Node before = *at(m, x->reduce), *term = at(m, at(m, rebuilt)->args[0]);
    bool first = at(m, before.args[0])->args[0] == x->vector;
    NodeId array = product_of_stack(s, k, x, term->args[first ? 0 : 1]);
    const IxExpr *map[2 * MOST_AXES];
    int n = 0;
    for (int i = 0; i < x->along.n; i++)
        if (!is_bound(&before, x->along.of[i]))
            map[n++] = ix_index(m, x->along.of[i]);
    for (int i = 0; i < x->rows.n; i++)
        map[n++] =
            i + 1 < x->rows.n ? ix_index(m, x->rows.of[i]) : ix_add(m, x->place, ix_const(m, x->first));
    return node_view(m, array, map, n);
}

/* Of products of one row each, or of the others. */
static void stack_those(Module *m, bool single)
{
    Pass s = { .m = m, .single = single };
    int nodes = m->nodes.len, before = m->stacked;
    s.product_of = arena_alloc(m->arena, sizeof *s.product_of * (size_t)(nodes + 1));
    find_products(&s);
    if (m->stack >= STACK_ALL)
        flatten_other_rows(&s);
    for (int i = 0; i < s.products.len; i++)
        if (s.products.data[i].stack < 0)
            stack_from(&s, i);
    if (m->stacked == before)
        return;
    Rewrite r = { .m = m, .hook = hook_stack, .data = &s };
    s.product_of = memcpy(arena_alloc(m->arena, sizeof *s.product_of * (size_t)(m->nodes.len + 1)),
                          s.product_of, sizeof *s.product_of * (size_t)(nodes + 1));
    rewrite_roots(&r);
    module_at(m, m->span, NULL);
}

/* Single rows come first: together they are rows of one matrix, which others may go with. */
void stack_products(Module *m)
{
    if (m->stack == STACK_NONE)
        return;
    stack_those(m, true);
    stack_those(m, false);
}
