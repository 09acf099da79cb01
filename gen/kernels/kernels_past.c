/* kernels_past.c: CUDA text of reductions over the past whose terms read values over the past, such as the scores and
 * weights of attention. In comes a ROW group of one such reduction; out goes a kernel in which a block has a row (a
 * step of a sequence, and those axes that the values over the past vary over), and takes the distances in stretches of
 * as many as it has threads: each thread computes these values at one distance, into shared memory, then all add terms
 * to the elements of the row. So a value over the past lies in no memory, at no size of T: what reads it makes it,
 * forwards and backwards, from what lies in memory with a row per step. The order of every sum follows from sizes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/marks.h"
#include "kernels.h"

enum { DISTANCES = 128 };         /* of a stretch, and threads of a block */
enum { BLOCK_BYTES = 48 * 1024 }; /* of shared memory, that every GPU gives each block unasked */

/* ---- where terms begin and end */

typedef struct PastKernel {
    NodeId id;
    Node a, r;
    PastReads reads;
    int tiles; /* the first so many of them are in shared memory, as many as fit; others are
                                   * made where they are read */
    IndexId w;
    const char *extent;           /* elements of a row */
    int lanes;                    /* threads side by side along them */
} PastKernel;

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

/* A tile of rows has the first row's first distance and the last row's last one: bounds that move with the steps, or stay
 * where they are. */
static bool moves_with_steps(const Kernel *k, const IxExpr *bound)
{
    for (int i = 0; k->rows_apart && i < bound->nterms; i++) {
        const IxTerm *t = &bound->terms[i];
        if (t->kind != IA_INDEX || (t->index == IX_TIME && !(t->coef->is_const && t->coef->value == k->rows_apart)))
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
    Marks *seen;                  /* terms and conditions, here */
    Marks *values;                /* of values over the past: bits of the axes */
} Limits;

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
        if (!moves_with_steps(k, bound))
            return;
        if (t.coef->value == 1) {
            const char *least = k_bare(k, ix_text(&k->printer, ix_scale(m, rest, poly_const(m, -1))));
            buf_line(k->out, "if (begin < %s)", least);
            buf_line(k->out, "    begin = %s;", least);
        } else {
            const char *end = k_bare(k, ix_text(&k->printer, ix_add(m, rest, one)));
            buf_line(k->out, "if (end > %s)", end);
            buf_line(k->out, "    end = %s;", end);
        }
        return;
    }
    if (!k->rows_apart && of_row_only(k, array, room)) {
        buf_line(k->out, "if (%s < 0)", k_bare(k, ix_text(&k->printer, room)));
        buf_line(k->out, "    end = begin;");
    }
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

void past_limits(Kernel *k, NodeId array, IndexId w)
{
    const Node a = *k_node(k, array), r = *k_node(k, a.args[0]);
    Buf limits = { .arena = k->out->arena, .indent = k->out->indent }, *out = k->out;
    buf_line(k->out, "int64_t begin = 0;");
    buf_line(k->out, "int64_t end = %s;", poly_text(&k->printer, k->p->m->indices.data[w].extent));
    k->out = &limits;
    Limits l = { k, &a, w, r.reduce, marks_begin(k->p->m), marks_begin(k->p->m) };
    limit_term(&l, r.args[0]);
    marks_end(l.seen);
    marks_end(l.values);
    k->out = out;
    /* Each once. */
    for (const char *line = limits.data; line && *line;) {
        const char *end = strchr(strchr(line, '\n') + 1, '\n') + 1;
        const char *text = intern_n(k->p->m->c, line, (size_t)(end - line)), *first = strstr(limits.data, text);
        if (first == line)
            buf_f(out, "%s", text);
        line = end;
    }
}

/* ---- values over the past, of a thread's distance */

/* Is the value there, at the place and the step that are read? NULL: always. */
static const char *there(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    const char *all = NULL;
    for (int i = 0; i <= r->nmap; i++) {
        const Poly *lo, *hi, *extent = poly_dim(m, ATOM_T);
        const IxExpr *e = i < r->nmap ? r->map[i] : r->step ? ix_sub(m, r->step, ix_index(m, IX_START)) : NULL;
        if (i < r->nmap)
            extent = m->indices.data[k_node(k, r->id)->axes[i]].extent;
        if (!e || (i < r->nmap && ix_range(m, e, &lo, &hi) && poly_nonneg(lo) &&
                   poly_nonneg(poly_sub(m, poly_sub(m, extent, poly_const(m, 1)), hi))))
            continue;
        const char *s = ix_text(&k->printer, e);
        const char *here = k_text(k, "%s >= 0 && %s < %s", s, s, poly_text(&k->printer, extent));
        all = all ? k_text(k, "%s && %s", all, here) : here;
    }
    return all;
}

static void print_value(Kernel *k, const Read *r, const char *tile)
{
    const char *inside = there(k, r), *now;
    int kept = inside ? k->past_values.len : 0;
    if (inside)
        buf_line(k->out, "%s[cell_thread()] = 0;", tile);
    if (inside)
        k_open(k, "if (%s)", inside);
    k->past_keeps = true;
    now = k_bare(k, k_read(k, r));
    k->past_keeps = false;
    if (inside)
        k->past_values.len = kept;        /* what was made for it is in scope no longer */
    buf_line(k->out, "%s[cell_thread()] = %s;", tile, now);
    if (inside)
        k_close(k);
}

/* ---- the kernel */

/* Of shared memory, for a number of each thread. */
static int64_t row_bytes(const Kernel *k)
{
    return (int64_t)DISTANCES * (strcmp(k->real, "double") == 0 ? 8 : 4);
}

static PastKernel begin_past(Kernel *k)
{
    PastKernel s = { .id = k->g->arrays.data[0], .lanes = 32 };
    const Poly *elements = poly_const(k->p->m, 1);
    s.a = *k_node(k, s.id);
    s.r = *k_node(k, s.a.args[0]);
    past_reads(k->p, s.r.args[0], &s.reads);
    s.w = past_distance(k->p, &s.r, &s.reads);
    for (int i = k->g->naxes; i < s.a.naxes; i++)
        elements = poly_mul(k->p->m, elements, k->p->m->indices.data[s.a.axes[i]].extent);
    s.extent = poly_text(&k->printer, elements);
    if (elements->is_const)
        for (s.lanes = 1; s.lanes < elements->value && s.lanes < DISTANCES;)
            s.lanes *= 2;
    if (poly_is_one(elements))
        s.extent = "1";
    int most = (int)(BLOCK_BYTES / row_bytes(k)) - 1;
    s.tiles = s.reads.len < most ? s.reads.len : most;
    return s;
}

static const char *tile_name(Kernel *k, int i)
{
    return k_text(k, "tile_%d", i);
}

static void join(Kernel *k, ReduceOp op, const char *term)
{
    if (op == R_MAX || op == R_MIN)
        buf_line(k->out, "sum = cell_%s(sum, %s);", op == R_MAX ? "max" : "min", term);
    else
        buf_line(k->out, "sum %s= %s;", op == R_PROD ? "*" : "+", term);
}

/* Loops over the bound indices that the values over the past vary over, or over the others. */
static int open_bound(Kernel *k, const PastKernel *s, bool of_reads)
{
    int n = 0;
    for (int i = 0; i < s->r.nbound; i++) {
        IndexId b = s->r.bound[i];
        if (b == s->w || past_reads_use(&s->reads, b) != of_reads)
            continue;
        const char *name = names_fresh(&k->locals, k_text(k, "i_%s", k->p->m->indices.data[b].name));
        k_open(k, "for (int64_t %s = 0; %s < %s; %s++)", name, name,
               poly_text(&k->printer, k->p->m->indices.data[b].extent), name);
        k->index[b] = name;
        n++;
    }
    return n;
}

static void close_bound(Kernel *k, int n)
{
    while (n--)
        k_close(k);
}

static void print_values(Kernel *k, const PastKernel *s)
{
    k->index[s->w] = "own";
    k->past_values.len = 0;
    buf_line(k->out, "const int64_t own = from + cell_thread();");
    k_open(k, "if (own < end)");
    for (int i = 0; i < s->tiles; i++)
        print_value(k, &s->reads.data[i], tile_name(k, i));
    k_close(k);
    buf_line(k->out, "cell_barrier();");
}

static void print_terms(Kernel *k, const PastKernel *s)
{
    k_open(k, "if (e < %s)", s->extent);
    k_open(k, "for (int64_t c = cell_thread() / %d; c < %d && from + c < end; c += %d)", s->lanes, DISTANCES,
           DISTANCES / s->lanes);
    buf_line(k->out, "[[maybe_unused]] const int64_t back = from + c;");
    k->index[s->w] = "back";
    int inner = open_bound(k, s, false);
    for (int i = 0; i < s->tiles; i++) {
        PastTile tile = { s->reads.data[i], k_text(k, "%s[c]", tile_name(k, i)) };
        vec_push(k->p->m->arena, &k->past_tiles, tile);
    }
    Named named = { 0 };
    join(k, s->r.reduce, k_body(k, s->r.args[0], &named));
    k_forget(k, &named);
    k->past_tiles.len = 0;
    close_bound(k, inner);
    k_close(k);
    k_close(k);
    buf_line(k->out, "cell_barrier();");
}

static void print_result(Kernel *k, const PastKernel *s)
{
    static const char *const name[] = { [R_SUM] = "sum", [R_MAX] = "max", [R_MIN] = "min", [R_PROD] = "prod" };
    bool shared = s->lanes > 1 && s->lanes < DISTANCES;
    if (s->lanes == 1)
        buf_line(k->out, "cell_block_%s(shares, sum);", name[s->r.reduce]);
    if (shared) {
        buf_line(k->out, "shares[cell_thread()] = sum;");
        buf_line(k->out, "cell_barrier();");
    }
    k_open(k, "if (cell_thread() < %d && e < %s)", s->lanes, s->extent);
    if (shared) {
        k_open(k, "for (int share = cell_thread() + %d; share < %d; share += %d)", s->lanes, DISTANCES, s->lanes);
        join(k, s->r.reduce, "shares[share]");
        k_close(k);
    }
    k_store(k, s->id, "sum");
    k_close(k);
    if (shared)
        buf_line(k->out, "cell_barrier();");
}

static void print_past(Kernel *k)
{
    Group *g = k->g;
    PastKernel s = begin_past(k);
    static const char *const start[][2] = { [R_SUM] = { "0", "0" }, [R_MAX] = { "-CELL_INF_F", "-CELL_INF" },
                                            [R_MIN] = { "CELL_INF_F", "CELL_INF" }, [R_PROD] = { "1", "1" } };
    k->past_tiles.len = k->past_values.len = 0;
    buf_line(k->out, "const int64_t rows = %s, elements = %s;", k_rows(k), k_product(k, g->axes, g->naxes));
    buf_line(k->out, "auto cursor = cell_shared();");
    for (int i = 0; i < s.tiles; i++)
        buf_line(k->out, "cell_smem<%s> %s = cell_carve<%s>(cursor, %d);", k->real, tile_name(k, i), k->real, DISTANCES);
    if (s.lanes < DISTANCES)
        buf_line(k->out, "cell_smem<%s> shares = cell_carve<%s>(cursor, %d);", k->real, k->real, DISTANCES);
    k_open(k, "for (int64_t n = cell_block_index(0); n < rows * elements; n += cell_block_count(0))");
    buf_line(k->out, "const int64_t row = n / elements;");
    buf_line(k->out, "[[maybe_unused]] const int64_t r = n - row * elements;");
    k_split_row(k, "row");
    k_split_element(k, s.a.axes, g->naxes, "r", "row");
    k_comment(k, s.id);
    k_open(k, "for (int64_t first = 0; first < %s; first += %d)", s.extent, s.lanes);
    buf_line(k->out, "const int64_t e = first + cell_thread() %% %d;", s.lanes);
    k_split_element(k, s.a.axes + g->naxes, s.a.naxes - g->naxes, "e", "i");
    buf_line(k->out, "%s sum = %s;", k->real, start[s.r.reduce][strcmp(k->real, "double") == 0]);
    past_limits(k, s.id, s.w);
    int outer = open_bound(k, &s, true);
    k_open(k, "for (int64_t from = begin; from < end; from += %d)", DISTANCES);
    print_values(k, &s);
    print_terms(k, &s);
    k_close(k);
    close_bound(k, outer);
    print_result(k, &s);
    k_close(k);
    k_close(k);
    g->smem = (s.tiles + (s.lanes < DISTANCES)) * row_bytes(k);
}

void emit_past(Kernel *k)
{
    k->threads = k->g->threads = k->g->lanes = DISTANCES;
    k_print(k, k->g->kernel, print_past);
}
