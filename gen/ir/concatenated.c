/* concatenated.c: products of several vectors that are added up, as one product. In comes a module without
 * its adjoint in which sums are products of a param and one value (products.c). Out goes the same where
 * `sum[j] R[i,j]*h[j] + sum[k] Q[i,k]*c[k]` is one product of the matrix that has the columns of both and of
 * the vector that has h and c one behind another: so a step waits once for what it multiplies, and not for
 * each vector. The matrix is the param itself where the columns are slices that tile an axis of it; else it
 * is made once in a call. Vectors go together that are multiplied in the same sums of a step, and nowhere
 * else in it, so that products of one vector with several params are still one (stacked.c, which comes behind
 * this pass). Guaranteed: values are the same but for the order of their roundings. */
#include <string.h>

#include "concatenated.h"
#include "products.h"
#include "rewrite.h"

enum { MOST_AXES = 16 };

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

/* A product of a step as it stands in a sum, in the sum's indices. */
typedef struct Product {
    NodeId matrix, vector;
    IndexId along; /* which is summed over */
    IndexId others[MOST_AXES]; /* that the vector has besides, in its order */
    int nothers;
    int of; /* its vector */
    int sum; /* -1: it is no term of one, or is read elsewhere too */
    int term; /* of the sum */
} Product;
typedef Vec(Product) ProductVec;

typedef struct Sum {
    NodeId terms[MOST_TERMS];
    bool negative[MOST_TERMS];
    int n;
    int product[MOST_TERMS]; /* -1: another value */
} Sum;
typedef Vec(Sum) SumVec;

/* What products multiply, whatever the names of its indices. */
typedef struct Vector {
    int first; /* of its products, which gives the names */
    int level; /* products of the step that stand behind one another up to it */
    int joint; /* -1: it is multiplied by itself */
} Vector;
typedef Vec(Vector) VectorVec;

/* Vectors that are multiplied as one. */
typedef struct Joint {
    int members[MOST_TERMS];
    int n;
    IndexId along; /* of all of them, one behind another */
    NodeId vector; /* an array over the others of the first product, and along; -1: not made yet */
} Joint;
typedef Vec(Joint) JointVec;

typedef struct Pass {
    Module *m;
    int n; /* nodes of before */
    bool *feeds; /* a next state */
    int *uses; /* arguments of reached nodes that a node is */
    bool *inner; /* an addition that is a term of another one */
    int *level; /* of a node, plus 1; 0: not known */
    int *product_of; /* of a node that is a sum over places, plus 1 */
    int *sum_of; /* of an addition, plus 1 */
    ProductVec products;
    SumVec sums;
    VectorVec vectors;
    JointVec joints;
} Pass;

static const Poly *extent(const Module *m, IndexId i)
{
    return m->indices.data[i].extent;
}

/* ---- products ---- */

/* The indices of a vector that is read: *along and the others. False: it is read at other places than
 * indices. */
static bool indices_of(const Node *n, IndexId along, Product *x)
{
    int count = n->kind == N_ARRAY ? n->naxes : n->nmap;
    bool found = false;
    x->nothers = 0;
    for (int i = 0; i < count; i++) {
        IndexId own = n->kind == N_ARRAY ? n->axes[i] : -1;
        if (n->kind != N_ARRAY && !ix_is_index(n->map[i], &own))
            return false;
        if (own < IX_FIRST || x->nothers == MOST_AXES || is_among(own, x->others, x->nothers))
            return false;
        if (own != along)
            x->others[x->nothers++] = own;
        else if (found)
            return false;
        found |= own == along;
    }
    return found;
}

/* Is it the product of a matrix that all sequences share and a vector that each has, over one index? */
static bool find_product(const Module *m, NodeId id, Product *x)
{
    const Node *sum = at(m, id);
    if (sum->kind != N_REDUCE || sum->reduce != R_SUM || sum->type != TY_REAL || sum->nbound != 1 ||
        sum->bound[0] < IX_FIRST || !is_plain_product(m, sum))
        return false;
    const Node *term = at(m, sum->args[0]);
    bool first = is_shared_matrix(m, term->args[0]);
    *x = (Product){ .matrix = term->args[first ? 0 : 1],
                    .vector = term->args[first ? 1 : 0],
                    .along = sum->bound[0],
                    .sum = -1 };
    const Node *matrix = at(m, x->matrix);
    return is_shared_matrix(m, x->matrix) && is_vector_of_rows(m, x->vector) &&
           (at(m, x->vector)->dep & DEP_STATE) && is_among(x->along, matrix->axes, matrix->naxes) &&
           indices_of(at(m, x->vector), x->along, x);
}

/* The term as a sum over places: of a definition that is such a sum, where it is read, that. */
static NodeId written_out(Module *m, NodeId term)
{
    const Node n = *at(m, term);
    if (n.step || (n.kind != N_ARRAY && n.kind != N_VIEW))
        return term;
    const Node array = n.kind == N_ARRAY ? n : *at(m, n.args[0]);
    if (at(m, array.args[0])->kind != N_REDUCE)
        return term;
    return n.kind == N_ARRAY ? n.args[0] : node_subst(m, array.args[0], array.axes, n.map, array.naxes);
}

/* Is the term read here only, down to the sum over places? *reduce: this sum. */
static bool is_own(const Pass *s, NodeId term, NodeId *reduce)
{
    for (;; term = at(s->m, term)->args[0]) {
        const Node *n = at(s->m, term);
        if (s->uses[term] != 1)
            return false;
        *reduce = term;
        if (n->kind == N_REDUCE)
            return true;
        if (n->step || (n->kind != N_ARRAY && n->kind != N_VIEW))
            return false;
    }
}

/* ---- what is reached ---- */

static void count_uses(Pass *s, NodeId id, bool *seen)
{
    if (id < 0 || seen[id])
        return;
    seen[id] = true;
    for (int i = 0; i < at(s->m, id)->nargs; i++) {
        s->uses[at(s->m, id)->args[i]]++;
        count_uses(s, at(s->m, id)->args[i], seen);
    }
}

static void mark_feeding(Pass *s, NodeId id)
{
    if (id < 0 || s->feeds[id])
        return;
    s->feeds[id] = true;
    for (int i = 0; i < at(s->m, id)->nargs; i++)
        mark_feeding(s, at(s->m, id)->args[i]);
}

static void reach(Pass *s)
{
    const Module *m = s->m;
    bool *seen = arena_alloc(m->arena, (size_t)s->n + 1);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        for (int k = 0; k < ROOT_COUNT; k++)
            if (m->roots.data[t].of[k] >= 0) {
                s->uses[m->roots.data[t].of[k]]++;
                count_uses(s, m->roots.data[t].of[k], seen);
            }
        mark_feeding(s, m->roots.data[t].next);
    }
}

static bool adds(const Node *n)
{
    return n->kind == N_MAP && n->type == TY_REAL && (n->op == OP_ADD || n->op == OP_SUB);
}

/* How many products of the step stand behind one another up to the value. */
static int level_of(Pass *s, NodeId id)
{
    const Node *n = at(s->m, id);
    int level = 0;
    if (s->level[id])
        return s->level[id] - 1;
    for (int i = 0; i < n->nargs; i++) {
        int own = level_of(s, at(s->m, id)->args[i]);
        level = own > level ? own : level;
    }
    level += s->product_of[id] > 0;
    s->level[id] = level + 1;
    return level;
}

/* ---- which vectors are one ---- */

static bool same_vector(Module *m, const Product *x, const Product *y)
{
    IndexId from[MOST_AXES + 1];
    const IxExpr *to[MOST_AXES + 1];
    if (x->nothers != y->nothers || extent(m, x->along) != extent(m, y->along))
        return false;
    for (int i = 0; i < x->nothers; i++) {
        if (extent(m, x->others[i]) != extent(m, y->others[i]))
            return false;
        from[i] = x->others[i];
        to[i] = ix_index(m, y->others[i]);
    }
    from[x->nothers] = x->along;
    to[x->nothers] = ix_index(m, y->along);
    return node_subst(m, x->vector, from, to, x->nothers + 1) == y->vector;
}

static int vector_of(Pass *s, int product)
{
    for (int i = 0; i < s->vectors.len; i++)
        if (same_vector(s->m, &s->products.data[product], &s->products.data[s->vectors.data[i].first]))
            return i;
    vec_push(s->m->arena, &s->vectors, ((Vector){ .first = product, .joint = -1 }));
    return s->vectors.len - 1;
}

static void find_products(Pass *s)
{
    Product x;
    for (NodeId id = 0; id < s->n; id++)
        if (s->feeds[id] && find_product(s->m, id, &x)) {
            vec_push(s->m->arena, &s->products, x);
            s->product_of[id] = s->products.len;
        }
    for (int i = 0; i < s->products.len; i++)
        s->products.data[i].of = vector_of(s, i);
    for (int i = 0; i < s->vectors.len; i++) {
        NodeId vector = s->products.data[s->vectors.data[i].first].vector;
        s->vectors.data[i].level = level_of(s, vector);
    }
}

/* ---- sums ---- */

/* As added_terms, but not through an addition that others read too. */
static void add_terms(const Pass *s, NodeId id, bool negative, Sum *out)
{
    const Node *n = at(s->m, id);
    if (n->kind == N_MAP && n->op == OP_NEG && s->uses[n->args[0]] == 1 && out->n >= 0) {
        add_terms(s, n->args[0], !negative, out);
        return;
    }
    if (adds(n) && s->inner[id] && out->n >= 0) {
        add_terms(s, n->args[0], negative, out);
        add_terms(s, n->args[1], negative != (n->op == OP_SUB), out);
        return;
    }
    if (out->n < 0 || out->n == MOST_TERMS) {
        out->n = -1;
        return;
    }
    out->negative[out->n] = negative;
    out->terms[out->n++] = id;
}

/* Of the sum's terms those that are products which nothing else reads: their number. */
static int take_products(Pass *s, Sum *sum)
{
    int count = 0;
    for (int i = 0; i < sum->n; i++) {
        NodeId reduce;
        Product x;
        sum->product[i] = -1;
        if (!is_own(s, sum->terms[i], &reduce) || !s->product_of[reduce])
            continue;
        int which = s->product_of[reduce] - 1;
        if (!find_product(s->m, written_out(s->m, sum->terms[i]), &x))
            continue;
        x.of = s->products.data[which].of;
        if (!same_vector(s->m, &x, &s->products.data[s->vectors.data[x.of].first]))
            continue;
        x.sum = s->sums.len;
        x.term = i;
        s->products.data[which] = x;
        sum->product[i] = which;
        count++;
    }
    return count;
}

static void find_sums(Pass *s)
{
    const Module *m = s->m;
    for (NodeId id = 0; id < s->n; id++)
        for (int i = 0; s->feeds[id] && adds(at(m, id)) && i < 2; i++) {
            NodeId term = at(m, id)->args[i];
            s->inner[term] |= adds(at(m, term)) && s->uses[term] == 1;
        }
    for (NodeId id = 0; id < s->n; id++) {
        if (!s->feeds[id] || !adds(at(m, id)) || s->inner[id])
            continue;
        Sum sum = { .n = 0 };
        s->inner[id] = true;
        add_terms(s, id, false, &sum);
        s->inner[id] = false;
        if (take_products(s, &sum) == 0)
            continue;
        vec_push(m->arena, &s->sums, sum);
        s->sum_of[id] = s->sums.len;
    }
}

/* ---- vectors that go together ---- */

/* Do both leave the same indices, and have the vectors, and the matrices, the same of these? */
static bool fits(const Module *m, const Product *x, const Product *y)
{
    const Node *a = at(m, x->matrix), *b = at(m, y->matrix);
    if (x->nothers != y->nothers ||
        memcmp(x->others, y->others, sizeof *x->others * (size_t)x->nothers) != 0 || a->naxes != b->naxes)
        return false;
    for (int i = 0; i < a->naxes; i++)
        if (a->axes[i] != x->along && (a->axes[i] == y->along || !is_among(a->axes[i], b->axes, b->naxes)))
            return false;
    return true;
}

/* The vector's product in the sum; -1: it has none, or several. */
static int product_in(const Pass *s, int vector, int sum)
{
    int found = -1;
    for (int i = 0; i < s->products.len; i++) {
        if (s->products.data[i].of != vector || s->products.data[i].sum != sum)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

/* Is the one multiplied wherever the other is, and in sums of the step only? */
static bool go_together(const Pass *s, int one, int other)
{
    int n = 0;
    if (s->vectors.data[one].level != s->vectors.data[other].level)
        return false;
    for (int i = 0; i < s->products.len; i++) {
        const Product *x = &s->products.data[i];
        n += (x->of == one) - (x->of == other);
        if (x->of != one && x->of != other)
            continue;
        int own = x->sum < 0 ? -1 : product_in(s, one, x->sum);
        int with = x->sum < 0 ? -1 : product_in(s, other, x->sum);
        if (own < 0 || with < 0 || !fits(s->m, &s->products.data[own], &s->products.data[with]))
            return false;
    }
    return n == 0;
}

/* Where the products' matrices in the sum are slices that tile an axis of one param: this axis, and with
 * `order` their members in the order in which they do. -1: they are not. */
static int tiled_axis(Pass *s, const Joint *k, int sum, int *order)
{
    Module *m = s->m;
    const Product *first = &s->products.data[product_in(s, k->members[0], sum)];
    const Node load = *at(m, first->matrix);
    const Poly *end = poly_const(m, 0);
    int axis = 0;
    while (load.kind == N_LOAD && axis < load.nmap && !ix_uses(load.map[axis], first->along))
        axis++;
    if (load.kind != N_LOAD || axis == load.nmap)
        return -1;
    for (int found = 0; found < k->n; found++) {
        int next = -1;
        for (int i = 0; i < k->n && next < 0; i++) {
            const Product *x = &s->products.data[product_in(s, k->members[i], sum)];
            const Node *own = at(m, x->matrix);
            bool slice = own->kind == N_LOAD && own->tensor == load.tensor &&
                         !s->sums.data[sum].negative[x->term] &&
                         own->map[axis] == ix_add(m, ix_index(m, x->along), ix_const(m, end));
            for (int j = 0; slice && j < load.nmap; j++)
                slice = j == axis || (own->map[j] == load.map[j] && !ix_uses(own->map[j], x->along));
            next = slice ? i : -1;
        }
        if (next < 0)
            return -1;
        order[found] = k->members[next];
        end = poly_add(m, end, extent(m, s->products.data[product_in(s, order[found], sum)].along));
    }
    return end == m->tensors.data[load.tensor].axes[axis] ? axis : -1;
}

static void find_joints(Pass *s)
{
    for (int i = 0; i < s->vectors.len; i++) {
        Joint k = { .members = { i }, .n = 1, .vector = -1 };
        if (s->vectors.data[i].joint >= 0 || !go_together(s, i, i))
            continue;
        for (int j = i + 1; j < s->vectors.len && k.n < MOST_TERMS; j++)
            if (s->vectors.data[j].joint < 0 && go_together(s, i, j))
                k.members[k.n++] = j;
        if (k.n == 1)
            continue;
        const Poly *all = poly_const(s->m, 0);
        int order[MOST_TERMS];
        if (tiled_axis(s, &k, s->products.data[s->vectors.data[i].first].sum, order) >= 0)
            memcpy(k.members, order, sizeof *order * (size_t)k.n);
        for (int j = 0; j < k.n; j++) {
            s->vectors.data[k.members[j]].joint = s->joints.len;
            all = poly_add(s->m, all,
                           extent(s->m, s->products.data[s->vectors.data[k.members[j]].first].along));
        }
        k.along = module_index(s->m, intern(s->m->c, "k"), all);
        vec_push(s->m->arena, &s->joints, k);
    }
}

/* ---- what explain says ---- */

/* In the spec; NULL: it has none. */
static const char *name_of(const Module *m, NodeId id)
{
    const Node *n = at(m, id);
    return n->kind == N_LOAD   ? m->tensors.data[n->tensor].name
           : n->kind == N_VIEW ? at(m, n->args[0])->name
                               : n->name;
}

static const char *vector_name(const Pass *s, int vector)
{
    const char *name = name_of(s->m, s->products.data[s->vectors.data[vector].first].vector);
    return name ? intern_f(s->m->c, "`%s`", name) : "another vector";
}

static void name_joints(Pass *s)
{
    Buf text = { .arena = s->m->arena };
    for (int i = 0; i < s->joints.len; i++)
        for (int k = 0; k < s->joints.data[i].n; k++)
            buf_f(&text, "%s%s", k ? ", " : i ? "; " : "", vector_name(s, s->joints.data[i].members[k]));
    s->m->concatenated_of = text.data;
}

/* Of two vectors whose products a sum adds up, why these do not go together. */
static const char *why_apart(const Pass *s, const Product *x, const Product *y)
{
    Compiler *c = s->m->c;
    const Vector *a = &s->vectors.data[x->of], *b = &s->vectors.data[y->of];
    if (a->level != b->level)
        return intern_f(c, "%s waits for a product itself",
                        vector_name(s, a->level > b->level ? x->of : y->of));
    if (!fits(s->m, x, y))
        return "they leave other indices than one another, or one of their params has axes that the other "
               "has not";
    return "the step multiplies one of them where it does not multiply the other";
}

/* The vector of a term that multiplies one in another form than products that go together have, and which
 * form; -1: it does not. */
static NodeId other_form(Pass *s, NodeId term, const char **why)
{
    const Module *m = s->m;
    const Node *n = at(m, term);
    if (n->kind == N_MAP && n->op == OP_NEG)
        return other_form(s, n->args[0], why);
    for (int i = 0; n->kind == N_MAP && n->op == OP_MUL && i < 2; i++) {
        NodeId vector = other_form(s, n->args[i], why);
        if (vector >= 0)
            *why = "a factor stands before one of them, where it could stand in a value with a name that is "
                   "its vector";
        if (vector >= 0)
            return vector;
    }
    if (n->kind != N_ARRAY && n->kind != N_VIEW && n->kind != N_REDUCE)
        return -1;
    const Node *sum = at(m, written_out(s->m, term));
    if (sum->kind != N_REDUCE || sum->reduce != R_SUM || sum->type != TY_REAL || !is_plain_product(m, sum))
        return -1;
    const Node *product = at(m, sum->args[0]);
    NodeId vector = product->args[is_shared_matrix(m, product->args[0])];
    if (!is_vector_of_rows(m, vector) || !(at(m, vector)->dep & DEP_STATE))
        return -1;
    *why = sum->nbound > 1 ? "one of them sums over several indices" : "one of them is read elsewhere too";
    return vector;
}

/* Of a sum with one product that could go together with others, a second one that could not. */
static void say_other_form(Pass *s)
{
    for (int i = 0; i < s->products.len; i++) {
        const Product *x = &s->products.data[i];
        const Sum *sum = x->sum < 0 ? NULL : &s->sums.data[x->sum];
        for (int k = 0; sum && k < sum->n; k++) {
            const char *why = NULL, *own = vector_name(s, x->of);
            NodeId vector = sum->product[k] < 0 ? other_form(s, sum->terms[k], &why) : -1;
            const char *name = vector < 0 ? NULL : name_of(s->m, vector);
            if (vector < 0 || (name && strcmp(own, intern_f(s->m->c, "`%s`", name)) == 0))
                continue;
            s->m->apart = intern_f(s->m->c, "products of %s and %s that are added up stay apart: %s", own,
                                   name ? intern_f(s->m->c, "`%s`", name) : "another vector", why);
            return;
        }
    }
}

static void say_apart(Pass *s)
{
    for (int i = 0; i < s->products.len; i++)
        for (int k = i + 1; k < s->products.len; k++) {
            const Product *x = &s->products.data[i], *y = &s->products.data[k];
            int joint = s->vectors.data[x->of].joint;
            if (x->sum < 0 || x->sum != y->sum || x->of == y->of ||
                (joint >= 0 && joint == s->vectors.data[y->of].joint))
                continue;
            s->m->apart = intern_f(s->m->c, "products of %s and %s that are added up stay apart: %s",
                                   vector_name(s, x->of), vector_name(s, y->of), why_apart(s, x, y));
            return;
        }
    say_other_form(s);
}

/* ---- the product of a joint ---- */

static const char *joined_name(const Module *m, NodeId id)
{
    const char *name = name_of(m, id);
    return name ? intern_f(m->c, "%s_joined", name) : NULL;
}

/* One behind another: of each its own at its place. */
static NodeId laid(Module *m, const Joint *k, const Product *x, const NodeId *piece)
{
    const Poly *end = extent(m, k->along);
    NodeId all = -1;
    for (int i = k->n - 1; i >= 0; i--) {
        const Poly *begin = poly_sub(m, end, extent(m, x[i].along));
        const IxExpr *place = ix_sub(m, ix_index(m, k->along), ix_const(m, begin));
        NodeId own = node_subst(m, piece[i], &x[i].along, &place, 1);
        if (all >= 0) {
            NodeId until = node_size(m, end), at_place = node_index(m, ix_index(m, k->along));
            all = node_select(m, node_map2(m, OP_LT, at_place, until), own, all);
        } else {
            all = own;
        }
        end = begin;
    }
    return all;
}

static NodeId matrix_of(Pass *s, const Joint *k, int sum, const Product *x)
{
    Module *m = s->m;
    const Node first = *at(m, x[0].matrix);
    NodeId piece[MOST_TERMS] = { 0 };
    int order[MOST_TERMS], axis = tiled_axis(s, k, sum, order), n = 0;
    IndexId axes[2 * MOST_AXES];
    if (axis >= 0 && memcmp(order, k->members, sizeof *order * (size_t)k->n) == 0) {
        const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)first.nmap);
        memcpy(map, first.map, sizeof *map * (size_t)first.nmap);
        map[axis] = ix_index(m, k->along);
        return node_load(m, first.tensor, map, first.nmap);
    }
    for (int i = 0; i < k->n; i++) {
        const Sum *of = &s->sums.data[sum];
        int term = s->products.data[product_in(s, k->members[i], sum)].term;
        piece[i] = of->negative[term] ? node_map1(m, OP_NEG, x[i].matrix) : x[i].matrix;
    }
    for (int i = 0; i < first.naxes; i++)
        axes[n++] = first.axes[i] == x[0].along ? k->along : first.axes[i];
    NodeId all = laid(m, k, x, piece);
    NodeId made = node_array(m, all, axes, n, joined_name(m, x[0].matrix), first.span);
    const Poly *elements = poly_const(m, 1);
    for (int i = 0; i < n; i++)
        elements = poly_mul(m, elements, extent(m, axes[i]));
    m->laid = poly_add(m, m->laid, elements);
    vec_push(m->arena, &m->joined, made);
    return made;
}

/* The vector at the indices of this sum. */
static NodeId vector_at(Pass *s, Joint *k, const Product *x)
{
    Module *m = s->m;
    const IxExpr *map[MOST_AXES + 1];
    IndexId axes[MOST_AXES + 1];
    NodeId piece[MOST_TERMS] = { 0 };
    for (int i = 0; i < x[0].nothers; i++) {
        axes[i] = x[0].others[i];
        map[i] = ix_index(m, axes[i]);
    }
    axes[x[0].nothers] = k->along;
    map[x[0].nothers] = ix_index(m, k->along);
    for (int i = 0; i < k->n; i++)
        piece[i] = x[i].vector;
    if (k->vector < 0) {
        const Span span = at(m, x[0].vector)->span; /* read before nodes are made, which may move it */
        const char *name = joined_name(m, x[0].vector);
        NodeId all = laid(m, k, x, piece);
        k->vector = node_array(m, all, axes, x[0].nothers + 1, name, span);
    }
    return node_view(m, k->vector, map, x[0].nothers + 1);
}

static NodeId product_of_joint(Rewrite *r, Joint *k, int sum)
{
    Pass *s = r->data;
    Module *m = r->m;
    Product x[MOST_TERMS] = { 0 };
    for (int i = 0; i < k->n; i++) {
        int which = product_in(s, k->members[i], sum);
        NodeId term = s->sums.data[sum].terms[s->products.data[which].term];
        if (!find_product(m, written_out(m, r->image[term]), &x[i]))
            bug(m->c, "concatenated", "a product that is none behind it");
    }
    NodeId vector = vector_at(s, k, x), matrix = matrix_of(s, k, sum, x);
    m->fewer += k->n - 1;
    return node_reduce(m, R_SUM, node_map2(m, OP_MUL, matrix, vector), &k->along, 1);
}

static NodeId hook_sums(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Pass *s = r->data;
    Module *m = r->m;
    int sum = old < r->n ? s->sum_of[old] - 1 : -1;
    bool *done = arena_alloc(m->arena, (size_t)s->joints.len + 1), any = false;
    NodeId out = -1;
    (void)whole;
    for (int i = 0; sum >= 0 && i < s->sums.data[sum].n; i++) {
        const Sum *of = &s->sums.data[sum];
        int joint = of->product[i] < 0 ? -1 : s->vectors.data[s->products.data[of->product[i]].of].joint;
        if (joint >= 0 && done[joint])
            continue;
        NodeId value = r->image[of->terms[i]];
        module_at(m, at(m, old)->span, at(m, old)->chain);
        if (joint >= 0) {
            value = product_of_joint(r, &s->joints.data[joint], sum);
            done[joint] = any = true;
        }
        if (out >= 0)
            out = node_map2(m, of->negative[i] && joint < 0 ? OP_SUB : OP_ADD, out, value);
        else
            out = of->negative[i] && joint < 0 ? node_map1(m, OP_NEG, value) : value;
    }
    m->concatenated += any;
    return any ? out : rebuilt;
}

void concatenate_products(Module *m)
{
    const size_t n = (size_t)m->nodes.len + 1;
    if (m->stack != STACK_COLUMNS)
        return;
    Pass s = { .m = m,
               .n = m->nodes.len,
               .feeds = arena_alloc(m->arena, n),
               .inner = arena_alloc(m->arena, n),
               .uses = arena_alloc(m->arena, sizeof *s.uses * n),
               .level = arena_alloc(m->arena, sizeof *s.level * n),
               .product_of = arena_alloc(m->arena, sizeof *s.product_of * n),
               .sum_of = arena_alloc(m->arena, sizeof *s.sum_of * n) };
    reach(&s);
    find_products(&s);
    find_sums(&s);
    find_joints(&s);
    say_apart(&s);
    name_joints(&s);
    if (s.joints.len == 0)
        return;
    Rewrite r = { .m = m, .hook = hook_sums, .data = &s };
    rewrite_roots(&r);
    module_at(m, m->span, NULL);
}
