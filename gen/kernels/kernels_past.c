/* kernels_past.c: kernels of reductions over the past whose terms read values over the past, such as the
 * scores and weights of attention. In comes a ROW group of one such reduction; out goes a kernel in which a
 * block has a row (a step of a sequence, and those axes that the values over the past vary over), and takes
 * the distances in stretches of as many as it has threads: each thread computes these values at one
 * distance, into shared memory, then all add terms to the elements of the row. So a value over the past
 * lies in no memory, at no size of T: what reads it makes it, forwards and backwards, from what lies in
 * memory with a row per step. The order of every sum follows from sizes. */
#include <math.h>
#include <string.h>

#include "code.h"
#include "ir/marks.h"

enum { DISTANCES = 128 }; /* of a stretch, and threads of a block */
enum { BLOCK_BYTES = 48 * 1024 }; /* of shared memory, that every GPU gives each block unasked */

/* ---- where terms begin and end */

static const IxExpr *as_index(Kernel *k, NodeId id)
{
    const Node *n = k_node(k, id);
    return n->kind == N_INDEX ? n->ix : n->kind == N_SIZE ? ix_const(k->p->m, n->size) : NULL;
}

/* Does it vary over nothing but the rows and those axes that a block's index has? */
static bool of_row_only(const Kernel *k, const Node *a, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++) {
        bool known = e->terms[i].kind == IA_INDEX && e->terms[i].index < IX_FIRST;
        for (int j = 0; a && j < k->g->naxes && e->terms[i].kind == IA_INDEX; j++)
            known |= e->terms[i].index == a->axes[j];
        if (!known)
            return false;
    }
    return true;
}

/* What is looked for: the distance w in the terms of a reduction; and what was looked at. array: whose axes a
 * block's index has, by the names in the term; NULL: they have others. */
typedef struct Limits {
    Kernel *k;
    const Node *array;
    IndexId w;
    ReduceOp op;
    int rows_apart;
    Marks *seen; /* terms and conditions, here */
    Marks *values; /* of values over the past: bits of the axes */
    PastLimits *out;
} Limits;

/* A tile of rows has the first row's first distance and the last row's last one: bounds that move with the
 * steps, or stay where they are. */
static bool moves_with_steps(const Limits *l, const IxExpr *bound)
{
    for (int i = 0; l->rows_apart && i < bound->nterms; i++) {
        const IxTerm *t = &bound->terms[i];
        bool moves = t->kind == IA_INDEX && t->index == IX_TIME;
        if (t->kind != IA_INDEX || (moves && !(t->coef->is_const && t->coef->value == l->rows_apart)))
            return false;
    }
    return true;
}

/* Each once. */
static void add_limit(const Limits *l, PastLimitKind kind, const IxExpr *at)
{
    for (int i = 0; i < l->out->len; i++)
        if (l->out->data[i].kind == kind && l->out->data[i].at == at)
            return;
    vec_push(l->k->p->m->arena, l->out, ((PastLimit){ kind, at }));
}

/* A condition that bounds the distance w by the row alone, or says of the row that it has no terms. */
static void limit_by(const Limits *l, NodeId cond)
{
    Kernel *k = l->k;
    Module *m = k->p->m;
    const Node *array = l->array;
    const IndexId w = l->w;
    Node n = *k_node(k, cond);
    if (!marks_first(l->seen, cond))
        return;
    if (n.kind == N_MAP && n.op == OP_AND) {
        limit_by(l, n.args[0]);
        limit_by(l, n.args[1]);
        return;
    }
    if (n.kind != N_MAP || (n.op != OP_LE && n.op != OP_LT))
        return;
    const IxExpr *a = as_index(k, n.args[0]), *b = as_index(k, n.args[1]), *one = ix_const(m, poly_const(m, 1));
    if (!a || !b)
        return;
    const IxExpr *room = n.op == OP_LT ? ix_sub(m, ix_sub(m, b, a), one) : ix_sub(m, b, a);     /* >= 0 */
    for (int i = 0; i < room->nterms; i++) {
        const IxTerm t = room->terms[i];
        if (t.kind != IA_INDEX || t.index != w || !t.coef->is_const || (t.coef->value != 1 && t.coef->value != -1))
            continue;
        const IxExpr *rest = ix_sub(m, room, ix_scale(m, ix_index(m, w), t.coef));
        if (!of_row_only(k, array, rest))
            return;
        const IxExpr *bound = ix_scale(m, rest, poly_const(m, -t.coef->value));
        if (!moves_with_steps(l, bound))
            return;
        if (t.coef->value == 1)
            add_limit(l, PAST_FROM, ix_scale(m, rest, poly_const(m, -1)));
        else
            add_limit(l, PAST_UNTIL, ix_add(m, rest, one));
        return;
    }
    if (!l->rows_apart && of_row_only(k, array, room))
        add_limit(l, PAST_NONE, room);
}

static double nothing_of(ReduceOp op)
{
    return op == R_MAX ? -INFINITY : op == R_MIN ? INFINITY : op == R_PROD ? 1 : 0;
}

static void limit_term(const Limits *l, NodeId id);

/* Through a value over the past that is read at w: along each of its axes once. */
static void limit_value(const Limits *l, const Read *r)
{
    Kernel *k = l->k;
    for (int i = 0; i < r->nmap; i++) {
        int axes = marks_get(l->values, r->id), axis = 1 << i;
        if (r->map[i] != ix_index(k->p->m, l->w) || (axes & axis))
            continue;
        marks_set(l->values, r->id, axes | axis);
        Limits inside = *l;
        inside.array = NULL;
        inside.w = k_node(k, r->id)->axes[i];
        inside.seen = marks_begin(k->p->m);
        limit_term(&inside, k_node(k, r->id)->args[0]);
        marks_end(inside.seen);
    }
}

/* Where a term is nothing whatever else it is made of: in a sum, where a factor is zero. */
static void limit_term(const Limits *l, NodeId id)
{
    Kernel *k = l->k;
    const ReduceOp op = l->op;
    Node n = *k_node(k, id);
    Read r;
    if (!marks_first(l->seen, id))
        return;
    if (n.kind == N_MAP && n.op == OP_SELECT && k_node(k, n.args[2])->kind == N_CONST &&
        k_node(k, n.args[2])->value == nothing_of(op)) {
        limit_by(l, n.args[0]);
        limit_term(l, n.args[1]);
    } else if (n.kind == N_MAP && n.op == OP_SELECT && k_node(k, n.args[1])->kind == N_CONST &&
               k_node(k, n.args[1])->value == nothing_of(op)) {
        limit_term(l, n.args[2]);
    } else if (op == R_SUM && n.kind == N_MAP && (n.op == OP_MUL || n.op == OP_DIV || n.op == OP_NEG)) {
        limit_term(l, n.args[0]);
        if (n.op == OP_MUL)
            limit_term(l, n.args[1]);
    } else if (op == R_SUM && n.kind != N_MAP && plan_resolve(k->p, id, &r) && !r.is_tensor && !r.step &&
               k->p->past[r.id]) {
        limit_value(l, &r);
    }
}

void past_limits(Kernel *k, NodeId array, IndexId w, int rows_apart, PastLimits *out)
{
    const Node a = *k_node(k, array), r = *k_node(k, a.args[0]);
    Limits l = { .k = k, .array = &a, .w = w, .op = r.reduce, .rows_apart = rows_apart, .out = out };
    l.seen = marks_begin(k->p->m);
    l.values = marks_begin(k->p->m);
    limit_term(&l, r.args[0]);
    marks_end(l.seen);
    marks_end(l.values);
}

/* ---- the kernel */

typedef struct PastKernel {
    Code *x;
    NodeId id;
    Node a, r;
    PastReads reads;
    int tiles; /* as many of them as fit are in shared memory, from the first on; others are
                                   * made where they are read */
    const KirExpr *tile[BLOCK_BYTES / (DISTANCES * 4)], *shares;
    IndexId w;
    const KirExpr *extent; /* elements of a row */
    int lanes; /* threads side by side along them */
    const KirExpr *thread, *begin, *end; /* of the distances */
    const KirExpr *from, *e, *sum; /* the stretch, the element and its sum so far */
} PastKernel;

/* Of shared memory, for a number of each thread. */
static int64_t row_bytes(const Code *x)
{
    return (int64_t)DISTANCES * kir_bytes(code_real(x));
}

static PastKernel begin_past(Code *x)
{
    const Module *m = x->k->p->m;
    const Group *g = x->k->g;
    PastKernel s = { .x = x, .id = g->arrays.data[0], .lanes = 32 };
    const Poly *elements = poly_const(x->k->p->m, 1);
    s.a = *k_node(x->k, s.id);
    s.r = *k_node(x->k, s.a.args[0]);
    past_reads(x->k->p, s.r.args[0], &s.reads);
    s.w = past_distance(x->k->p, &s.r, &s.reads);
    for (int i = g->naxes; i < s.a.naxes; i++)
        elements = poly_mul(x->k->p->m, elements, m->indices.data[s.a.axes[i]].extent);
    s.extent = code_size(x, elements);
    if (elements->is_const)
        for (s.lanes = 1; s.lanes < elements->value && s.lanes < DISTANCES;)
            s.lanes *= 2;
    int most = (int)(BLOCK_BYTES / row_bytes(x)) - 1;
    s.tiles = s.reads.len < most ? s.reads.len : most;
    s.thread = kir_special(x->kir, KP_THREAD, 0);
    return s;
}

static void declare_shared(PastKernel *s)
{
    Code *x = s->x;
    const KirExpr *each = code_int(x, DISTANCES);
    for (int i = 0; i < s->tiles; i++)
        s->tile[i] = kir_shared_array(x->kir, k_text(x->k, "tile_%d", i), code_real(x), each);
    if (s->lanes < DISTANCES)
        s->shares = kir_shared_array(x->kir, "shares", code_real(x), each);
    x->kir->shared = x->k->g->smem = (s->tiles + (s->lanes < DISTANCES)) * row_bytes(x);
}

static void join(const PastKernel *s, const KirExpr *term)
{
    Code *x = s->x;
    ReduceOp op = s->r.reduce;
    if (op == R_MAX || op == R_MIN)
        kir_assign(x->kir, s->sum, kir_call2(x->kir, op == R_MAX ? "cell_max" : "cell_min", s->sum, term));
    else
        kir_add(x->kir,
                (KirStmt){ .kind = KI_ASSIGN, .op = op == R_PROD ? KB_MUL : KB_ADD, .x = { s->sum, term } });
}

/* Loops over the bound indices that the values over the past vary over, or over the others. */
typedef struct BoundLoops {
    KirOpen loop[64];
    int n;
} BoundLoops;

static void open_bound(const PastKernel *s, bool of_reads, BoundLoops *loops)
{
    Code *x = s->x;
    loops->n = 0;
    for (int i = 0; i < s->r.nbound; i++) {
        IndexId b = s->r.bound[i];
        if (b == s->w || past_reads_use(&s->reads, b) != of_reads)
            continue;
        const Index *index = &x->k->p->m->indices.data[b];
        const char *name = names_fresh(&x->k->locals, k_text(x->k, "i_%s", index->name));
        loops->loop[loops->n++] =
            code_for(x, name, code_int(x, 0), code_size(x, index->extent), code_int(x, 1), &x->index[b]);
    }
}

static void close_bound(const PastKernel *s, const BoundLoops *loops)
{
    for (int i = loops->n - 1; i >= 0; i--)
        kir_close(s->x->kir, loops->loop[i]);
}

static void declare_limits(PastKernel *s)
{
    Code *x = s->x;
    const Poly *all = x->k->p->m->indices.data[s->w].extent;
    PastLimits limits = { 0 };
    past_limits(x->k, s->id, s->w, 0, &limits);
    s->begin = kir_mutable(x->kir, "begin", KT_I64, code_int(x, 0));
    s->end = kir_mutable(x->kir, "end", KT_I64, code_size(x, all));
    for (int i = 0; i < limits.len; i++) {
        const PastLimit *l = &limits.data[i];
        const KirExpr *at = ix_node(&x->printer, l->at), *none = code_int(x, 0);
        const KirExpr *left = l->kind == PAST_FROM ? s->begin : l->kind == PAST_UNTIL ? s->end : at;
        const KirExpr *right = l->kind == PAST_NONE ? none : at;
        KirOpen open = kir_if(x->kir, code_binary(x, l->kind == PAST_UNTIL ? KB_GT : KB_LT, left, right));
        kir_assign(x->kir, l->kind == PAST_FROM ? s->begin : s->end, l->kind == PAST_NONE ? s->begin : at);
        kir_close(x->kir, open);
    }
}

/* ---- values over the past, of a thread's distance */

/* Is the value there, at the place and the step that are read? NULL: always. */
static const KirExpr *there(Code *x, const Read *r)
{
    Module *m = x->k->p->m;
    const KirExpr *all = NULL;
    for (int i = 0; i <= r->nmap; i++) {
        const Poly *lo, *hi, *extent = poly_dim(m, ATOM_T);
        const IxExpr *e = i < r->nmap ? r->map[i]
                          : r->step   ? ix_sub(m, r->step, ix_index(m, IX_START))
                                      : NULL;
        if (i < r->nmap)
            extent = m->indices.data[k_node(x->k, r->id)->axes[i]].extent;
        if (!e || (i < r->nmap && ix_range(m, e, &lo, &hi) && poly_nonneg(lo) &&
                   poly_nonneg(poly_sub(m, poly_sub(m, extent, poly_const(m, 1)), hi))))
            continue;
        const KirExpr *at = ix_node(&x->printer, e);
        const KirExpr *begun = code_binary(x, KB_GE, at, code_int(x, 0));
        const KirExpr *here = code_binary(x, KB_AND, begun, code_binary(x, KB_LT, at, code_size(x, extent)));
        all = all ? code_binary(x, KB_AND, all, here) : here;
    }
    return all;
}

static void put_value(const PastKernel *s, const Read *r, const KirExpr *tile)
{
    Code *x = s->x;
    const KirExpr *inside = there(x, r), *place = kir_element(x->kir, tile, s->thread);
    KirOpen open = { 0 };
    int kept = x->past_values.len;
    if (inside) {
        kir_assign(x->kir, place, code_int(x, 0));
        open = kir_if(x->kir, inside);
    }
    x->past_keeps = true;
    const KirExpr *value = code_read(x, r);
    x->past_keeps = false;
    kir_assign(x->kir, place, value);
    if (inside) {
        x->past_values.len = kept; /* what was made for it is in scope no longer */
        kir_close(x->kir, open);
    }
}

static void put_values(const PastKernel *s)
{
    Code *x = s->x;
    const KirExpr *own = code_let(x, "own", code_add(x, s->from, s->thread));
    x->index[s->w] = own;
    x->past_values.len = 0;
    KirOpen open = kir_if(x->kir, code_binary(x, KB_LT, own, s->end));
    for (int i = 0; i < s->tiles; i++)
        put_value(s, &s->reads.data[i], s->tile[i]);
    kir_close(x->kir, open);
    kir_barrier(x->kir, KIR_BLOCK);
}

/* The distances of a stretch that this thread adds up: those up to the last of all. */
static void add_terms(const PastKernel *s)
{
    Code *x = s->x;
    BoundLoops inner;
    const KirExpr *c, *first = code_binary(x, KB_DIV, s->thread, code_int(x, s->lanes));
    KirOpen open = kir_if(x->kir, code_binary(x, KB_LT, s->e, s->extent));
    KirOpen loop = code_for(x, "c", first, code_int(x, DISTANCES), code_int(x, DISTANCES / s->lanes), &c);
    x->index[s->w] = code_let(x, "back", code_add(x, s->from, c));
    KirOpen beyond = kir_if(x->kir, code_binary(x, KB_GE, x->index[s->w], s->end));
    kir_statement(x->kir, KI_BREAK);
    kir_close(x->kir, beyond);
    open_bound(s, false, &inner);
    for (int i = 0; i < s->tiles; i++) {
        CodeTile tile = { s->reads.data[i],
                          kir_convert(x->kir, kir_value(code_real(x)), kir_element(x->kir, s->tile[i], c)) };
        vec_push(x->kir->arena, &x->past_tiles, tile);
    }
    Named named = { 0 };
    join(s, code_value(x, s->r.args[0], &named));
    code_forget(x, &named);
    x->past_tiles.len = 0;
    close_bound(s, &inner);
    kir_close(x->kir, loop);
    kir_close(x->kir, open);
    kir_barrier(x->kir, KIR_BLOCK);
}

static void store_sum(const PastKernel *s)
{
    static const char *const name[] = { [R_SUM] = "cell_block_sum",
                                        [R_MAX] = "cell_block_max",
                                        [R_MIN] = "cell_block_min",
                                        [R_PROD] = "cell_block_prod" };
    Code *x = s->x;
    const KirExpr *share, *lanes = code_int(x, s->lanes);
    bool shared = s->lanes > 1 && s->lanes < DISTANCES;
    if (s->lanes == 1)
        kir_do(x->kir, kir_call2(x->kir, name[s->r.reduce], s->shares, s->sum));
    if (shared) {
        kir_assign(x->kir, kir_element(x->kir, s->shares, s->thread), s->sum);
        kir_barrier(x->kir, KIR_BLOCK);
    }
    KirOpen open = kir_if(x->kir, code_binary(x, KB_AND, code_binary(x, KB_LT, s->thread, lanes),
                                              code_binary(x, KB_LT, s->e, s->extent)));
    if (shared) {
        KirOpen loop = kir_for(x->kir, "share", KT_I32, code_add(x, s->thread, lanes), KB_LT,
                               code_int(x, DISTANCES), lanes, &share);
        join(s, kir_convert(x->kir, kir_value(code_real(x)), kir_element(x->kir, s->shares, share)));
        kir_close(x->kir, loop);
    }
    code_store(x, s->id, s->sum);
    kir_close(x->kir, open);
    if (shared)
        kir_barrier(x->kir, KIR_BLOCK);
}

static const KirExpr *start_of(const Code *x, ReduceOp op)
{
    bool extreme = op == R_MAX || op == R_MIN;
    return kir_real(x->kir, code_real(x), extreme ? op == R_MAX ? -HUGE_VAL : HUGE_VAL : op == R_PROD);
}

static void add_up(PastKernel *s)
{
    Code *x = s->x;
    BoundLoops outer;
    declare_limits(s);
    open_bound(s, true, &outer);
    KirOpen stretches = code_for(x, "from", s->begin, s->end, code_int(x, DISTANCES), &s->from);
    put_values(s);
    add_terms(s);
    kir_close(x->kir, stretches);
    close_bound(s, &outer);
}

void emit_past(Kernel *k)
{
    Group *g = k->g;
    g->threads = g->lanes = DISTANCES;
    Code *x = code_of_group(k);
    x->printer.adds = true;
    PastKernel s = begin_past(x);
    const KirExpr *n, *first, *rows = code_let(x, "rows", code_rows(x));
    const KirExpr *elements = code_let(x, "elements", code_sizes(x, g->axes, g->naxes));
    declare_shared(&s);
    KirOpen all = code_for(x, "n", kir_special(x->kir, KP_BLOCK, 0), code_mul(x, rows, elements),
                           kir_special(x->kir, KP_BLOCKS, 0), &n);
    const KirExpr *row = code_let(x, "row", code_binary(x, KB_DIV, n, elements));
    const KirExpr *r = code_let(x, "r", code_sub(x, n, code_mul(x, row, elements)));
    code_split_row(x, row);
    code_split_element(x, s.a.axes, g->naxes, r, "row");
    code_comment(x, s.id);
    KirOpen parts = code_for(x, "first", code_int(x, 0), s.extent, code_int(x, s.lanes), &first);
    const KirExpr *lane = code_binary(x, KB_MOD, s.thread, code_int(x, s.lanes));
    s.e = code_let(x, "e", code_add(x, first, lane));
    code_split_element(x, s.a.axes + g->naxes, s.a.naxes - g->naxes, s.e, "i");
    s.sum = kir_mutable(x->kir, "sum", code_real(x), start_of(x, s.r.reduce));
    add_up(&s);
    store_sum(&s);
    kir_close(x->kir, parts);
    kir_close(x->kir, all);
    code_print(k->p, code_end(x), k->out);
}
