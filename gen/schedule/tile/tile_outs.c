/* tile_outs.c: the values that a step stores. In: a root of the walk. Out: the place of its elements in memory and the code that
 * computes and stores them: by their owners, by any threads, or by the lanes that a reduce-scatter left them to. */
#include <inttypes.h>
#include <string.h>

#include "ir/marks.h"
#include "tile_step.h"

static bool finds_exchange(Step *s, NodeId id, Marks *seen)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (!marks_first(seen, id))
        return false;
    if (tile_is_read(&n)) {
        if (tile_is_fetch(s, id) || tile_held_version(s, id))
            return false;
        NodeId array = tile_read(s, id, map);
        Red *r = tile_red(s, array);
        if (r)
            return red_warps(s->t, r) > 1;
        return finds_exchange(s, node(s, array).args[0], seen);
    }
    for (int i = 0; i < n.nargs; i++)
        if (finds_exchange(s, n.args[i], seen))
            return true;
    return false;
}

static bool reads_exchange(Step *s, NodeId id)
{
    Marks *seen = marks_begin(s->t->m);
    bool reads = finds_exchange(s, id, seen);
    marks_end(seen);
    return reads;
}

/* An axis as long as a parallel axis times a number holds both, the parallel index outermost. */
static void split_axis(Tile *t, Out *o, int i, const Poly *e)
{
    o->flat[i] = -1;
    o->extent[i] = e;
    for (int p = 0; p < t->npar && !e->is_const; p++)
        if (e == t->par_extent[p]) {
            o->role[i] = ROLE_PAR + p;
            return;
        }
    for (int p = 0; p < t->npar && !e->is_const; p++) {
        const Poly *x = t->par_extent[p];
        const Poly *n = poly_const(t->m, x->nterms ? e->terms[0].coef / x->terms[0].coef : 0);
        if (poly_mul(t->m, x, n) == e) {
            o->flat[i] = p;
            o->extent[i] = n;
            return;
        }
    }
    if (!e->is_const)
        tile_refuse(t, "a value of each step has an axis of run-time size: bind it with --dim");
}

/* The axis's index where the chip's is x. */
static const IxExpr *axis_index(Tile *t, const Out *o, int i, IndexId x)
{
    const IxExpr *e = ix_index(t->m, o->role[i] >= ROLE_PAR ? t->par[o->role[i] - ROLE_PAR] : x);
    if (o->flat[i] < 0)
        return e;
    return ix_add(t->m, ix_scale(t->m, ix_index(t->m, t->par[o->flat[i]]), o->extent[i]), e);
}

static void out_roles(Step *s, Out *o, int naxes)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    IndexId fresh[TILE_MAX_AXES];
    for (int i = 0; i < naxes; i++) {
        fresh[i] = module_index(t->m, "o", o->extent[i]);
        map[i] = axis_index(t, o, i, fresh[i]);
    }
    NodeId body = tile_body_at(s, o->array, map);
    Node b = node(s, body);
    Roles r = tile_roles(s, body);
    for (int i = 0; i < naxes; i++)
        for (int k = 0; k < b.naxes && o->role[i] < ROLE_PAR; k++)
            if (b.axes[k] == fresh[i])
                o->role[i] = r.role[k];
}

/* Two of its axes would be one parallel index: a block has no elements beside that diagonal. */
static bool is_diagonal(const Out *o, int naxes)
{
    for (int i = 1; i < naxes; i++)
        for (int k = 0; k < i; k++) {
            int x = o->role[i] >= ROLE_PAR ? (int)o->role[i] - ROLE_PAR : o->flat[i];
            int y = o->role[k] >= ROLE_PAR ? (int)o->role[k] - ROLE_PAR : o->flat[k];
            if (x >= 0 && x == y)
                return true;
        }
    return false;
}

Out tile_describe_out(Step *s, int k)
{
    Tile *t = s->t;
    const OutPart *part = &t->parts.data[k];
    Out o = { .array = s->outs.data[k], .original = part->original, .place = part->place };
    Node a = node(s, o.array);
    o.ref = tile_ref(t, REF_NODE, o.original);
    int used[2] = { 0, 0 };
    for (int i = 0; i < a.naxes; i++)
        split_axis(t, &o, i, t->m->indices.data[a.axes[i]].extent);
    if (t->refused)
        return o;
    out_roles(s, &o, a.naxes);
    if (is_diagonal(&o, a.naxes))
        tile_refuse_of(t, &a, "%s%s%s is made of what different blocks have",
                       a.name ? "`" : "a value of each step", a.name ? a.name : "", a.name ? "`" : "");
    for (int i = 0; i < a.naxes; i++) {
        if (o.role[i] >= ROLE_PAR)
            continue;
        if (o.inner < 2)
            used[o.inner] = i;
        o.inner++;
    }
    if (o.inner > 2) {
        tile_refuse_of(t, &a, "a value of each step has %d axes on the chip", o.inner);
        return o;
    }
    for (int i = 0; i < o.inner; i++) {
        int64_t e = o.extent[used[i]]->value;
        o.row |= o.role[used[i]] == ROLE_ROW && e == t->rows;
        o.col |= o.role[used[i]] == ROLE_COL && e == t->cols;
    }
    if (o.inner == 2 && !(o.row && o.col)) {
        /* An outer product of vectors: any element at any thread would do; the state's layout serves. */
        if (o.extent[used[0]]->value != t->rows || o.extent[used[1]]->value != t->cols)
            tile_refuse_of(t, &a, "a matrix of each step (`%s`) has other sizes than the state",
                        a.name ? a.name : "?");
        o.role[used[0]] = ROLE_ROW;
        o.role[used[1]] = ROLE_COL;
        o.row = o.col = true;
    }
    return o;
}

NodeId tile_out_value(Step *s, const Out *o, const IxExpr **map)
{
    Tile *t = s->t;
    Node a = node(s, o->array);
    for (int i = 0; i < a.naxes; i++)
        map[i] = axis_index(t, o, i, o->row && o->role[i] == ROLE_ROW   ? t->row
                                     : o->col && o->role[i] == ROLE_COL ? t->col
                                                                        : t->any);
    return node_view(t->m, o->array, map, a.naxes);
}

/* That of the step before. */
static const char *last_offset(Tile *t, RowOffset *r)
{
    if (!r->last)
        r->last = tile_unique(t, tile_text(t, "last_%s", r->name));
    return r->last;
}

/* The first element of the step's row, or that one of it. */
static const char *row_offset(Step *s, const char *pitch, const char *first)
{
    Tile *t = s->t;
    int k = 0;
    if (s->is_behind)
        return tile_text(t, "(%s + %s) * (%s)", tile_first_row(t), t->m->c->reverse ? "(T - 1 - t)" : "t",
                         pitch);
    while (k < t->rows_out.len &&
           (strcmp(t->rows_out.data[k].pitch, pitch) != 0 || strcmp(t->rows_out.data[k].first, first) != 0))
        k++;
    RowOffset fresh = { pitch, first, k < t->rows_out.len ? NULL : tile_unique(t, "row_at"), NULL };
    if (k == t->rows_out.len)
        vec_push(t->arena, &t->rows_out, fresh);
    const char *name = t->rows_out.data[k].name;
    if (s->is_handed)
        return last_offset(t, &t->rows_out.data[k]);
    return s->is_late ? tile_text(t, "%s %c (%s)", name, t->m->c->reverse ? '-' : '+', pitch) : name;
}

/* Where the step's row has the element, and how long a row is. */
const IxExpr *tile_out_place(Step *s, const Out *o, const IxExpr *const *map, const Poly **pitch)
{
    Tile *t = s->t;
    const Storage *st = &t->w->of_node[o->original];
    Node a = node(s, o->original);
    const Poly *axes[TILE_MAX_AXES], *row = poly_const(t->m, 1);
    const IxExpr *of[TILE_MAX_AXES];
    for (int i = 0, k = 0; i < a.naxes; i++) {
        axes[i] = t->m->indices.data[a.axes[i]].extent;
        row = poly_mul(t->m, row, axes[i]);
        of[i] = o->place && o->place[i] ? o->place[i] : map[k++];
    }
    const IxExpr *e = tile_linear(t, axes, of, a.naxes);
    *pitch = st->pitch ? st->pitch : row;
    return st->alias_offset ? ix_add(t->m, e, ix_const(t->m, st->alias_offset)) : e;
}

/* Where outs are handed on, what moves with the steps is the place of the thread's own first element: an address is one sum then.
 * -> that place in the row, and in `own` which of the thread's elements it is; NULL: it is not the thread's own. */
static const char *own_place(Step *s, const Out *o, const IxExpr *e, const char **own)
{
    Tile *t = s->t;
    const IxExpr *rest = o->row || o->col ? ix_sub(t->m, e, ix_index(t->m, o->row ? t->row : t->col)) : e;
    if (!s->hands_outs || s->is_behind || (o->row && o->col) || ix_uses(rest, t->row) || ix_uses(rest, t->col) || ix_uses(rest, t->any))
        return NULL;
    ExprPrinter p = tile_printer(s);
    *own = o->row || o->col ? tile_own_number(t, o->row, o->row ? "r" : "c") : "0";
    return o->row || o->col ? tile_text(t, "%s + %s", ix_text(&p, rest), o->row ? "row0" : "col0") : ix_text(&p, rest);
}

const char *tile_out_address(Step *s, const Out *o, const IxExpr *const *map)
{
    Tile *t = s->t;
    const Poly *pitch;
    const char *own;
    const IxExpr *e = tile_out_place(s, o, map, &pitch);
    const char *first = own_place(s, o, e, &own);
    ExprPrinter p = tile_printer(s);
    const char *at = first ? own : ix_text(&p, e);
    return tile_text(t, "(%s *)args.ptr[%d] + (%s + %s)", tile_ctype(t, t->w->of_node[o->original].dtype), o->ref,
                     row_offset(s, poly_text(&p, pitch), first ? first : ""), at);
}

/* Gradients that the caller has may be added to. */
bool tile_may_add(const Tile *t, const Out *o)
{
    return t->w->of_node[o->original].home == HOME_ARG && t->w->dir == BACKWARD;
}

void tile_store_out(Step *s, const Out *o, const IxExpr *const *map, const char *value, Buf *out)
{
    Tile *t = s->t;
    const char *at = tile_out_address(s, o, map);
    if (tile_may_add(t, o))
        value = tile_text(t, "(args.flags & CELL_KERNEL_ACCUMULATE ? cell_load<%s>(%s) : 0) + (%s)", t->real,
                          at, value);
    buf_line(out, "cell_store(%s, %s);", at, value);
}

IndexId tile_any(Tile *t, int64_t n)
{
    const Poly *e = poly_const(t->m, n);
    for (int i = 0; i < t->anys.len; i++)
        if (t->m->indices.data[t->anys.data[i]].extent == e)
            return t->anys.data[i];
    vec_push(t->arena, &t->anys, module_index(t->m, "x", e));
    return t->anys.data[t->anys.len - 1];
}

/* In a block of its class the out is asked for. */
const char *tile_out_condition(const Step *s, const Out *o)
{
    return s->inner ? NULL : tile_text(s->t, "args.ptr[%d]", o->ref);
}

void tile_open_if(Buf *out, const char *condition)
{
    if (!condition)
        return;
    buf_line(out, "if (%s) {", condition);
    out->indent++;
}

void tile_close_if(Buf *out, const char *condition)
{
    if (!condition)
        return;
    out->indent--;
    buf_line(out, "}");
}

/* The out's element x, which any thread may have, and its store. */
static void print_element(Step *s, Out *o, int64_t n, Buf *body)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    Buf *outer = s->body;
    o->row = o->col = false;
    t->any_text = "x";
    t->any = tile_any(t, n);
    NodeId value = tile_out_value(s, o, map);
    ExprPrinter p = tile_printer(s);
    s->body = body;
    s->locals.len = 0;
    const char *text = expr_text(&p, value);
    tile_store_out(s, o, map, text, body);
    s->body = outer;
}

static void print_any_out(Step *s, Out *o, int *warp, Buf *out)
{
    Tile *t = s->t;
    int64_t n = 1;
    for (int i = 0; i < node(s, o->array).naxes; i++)
        if (o->role[i] < ROLE_PAR)
            n = o->extent[i]->value;
    /* The blocks of a cluster share them out. */
    bool shared = t->lay.cr > 1;
    int64_t share = shared ? tile_share(t, &t->lay, n) : n;
    bool once = share <= tile_threads(&t->lay), asked = once || tile_out_condition(s, o);
    Buf body = { .arena = t->arena, .indent = out->indent + !once + asked };
    t->any_shared = shared ? n : 0;
    print_element(s, o, n, &body);
    t->any_shared = 0;
    int threads = tile_threads(&t->lay), turn = threads - *warp * 32;
    const char *start = turn % threads ? tile_text(t, "(cell_thread() + %d) %% %d", turn, threads)
                                       : "cell_thread()";
    const char *who = tile_both(t, tile_out_condition(s, o), once ? tile_text(t, "%s < %" PRId64, start, share) : NULL);
    const char *first = shared ? tile_text(t, "rank * %" PRId64 " + ", share) : "";
    tile_open_if(out, who);
    if (once)
        buf_line(out, "const int x = %s%s;", first, start);
    else if (shared)
        buf_line(out, "for (int x = %s%s; x < cell_min(%" PRId64 ", (rank + 1) * %" PRId64 "); x += %d) {", first,
                 start, n, share, threads);
    else
        buf_line(out, "for (int x = %s; x < %" PRId64 "; x += %d) {", start, n, threads);
    bool edge = once && share * t->lay.cr > n;
    if (edge)
        buf_line(out, "if (x < %" PRId64 ") {", n);
    buf_f(out, "%s", body.data);
    if (edge || !once)
        buf_line(out, "}");
    tile_close_if(out, who);
    *warp = (*warp + (int)((share + 31) / 32)) % (threads / 32);
}

static void print_own_out(Step *s, Out *o, Buf *out)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    NodeId value = tile_out_value(s, o, map);
    const char *who = tile_both(t, tile_out_condition(s, o), tile_owner(t, o->row, o->col));
    Buf body = { .arena = t->arena, .indent = out->indent + (who != NULL) + o->row + o->col };
    Buf *outer = s->body;
    ExprPrinter p = tile_printer(s);
    s->body = &body;
    s->locals.len = 0;
    const char *text = expr_text(&p, value), *inside = tile_owned(t, o->row, o->col);
    s->body = outer;
    tile_open_if(out, who);
    tile_open(t, out, o->row, o->col);
    if (body.data)
        buf_f(out, "%s", body.data);
    if (inside) {
        buf_line(out, "if (%s)", inside);
        out->indent++;
    }
    tile_store_out(s, o, map, text, out);
    out->indent -= inside != NULL;
    tile_close(out, o->row, o->col);
    tile_close_if(out, who);
}

/* Each lane stores the elements that a reduce-scatter left it. */
static void print_scattered_out(Step *s, Out *o, const Red *r, Buf *out)
{
    Tile *t = s->t;
    bool row = red_rows(r);
    Share h = tile_share_of(t, r, red_count(t, r));
    const char *who = tile_both(t, tile_out_condition(s, o), h.lanes);
    const char *inside = tile_owned(t, row, !row);
    Buf body = { .arena = t->arena, .indent = out->indent + (who != NULL) + 1 };
    s->scattering = true;
    print_element(s, o, row ? t->rows : t->cols, &body);
    s->scattering = false;
    tile_open_if(out, who);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int i = 0; i < %d; i++) {", h.count);
    buf_line(out, "    const int x = %s;", tile_numbered(t, row, row ? "row0" : "col0", h.first, "i"));
    if (inside)
        buf_line(out, "    if (x > %s) continue;", row ? "last_row" : "last_col");
    buf_f(out, "%s", body.data);
    buf_line(out, "}");
    tile_close_if(out, who);
}

/* A reduction that the out reads. */
static const Red *first_red(Step *s, int k)
{
    bool *seen = arena_alloc(s->t->arena, (size_t)s->t->m->nodes.len + 1);
    bool *marks = arena_alloc(s->t->arena, (size_t)s->reds.len + 1);
    tile_mark_reds(s, s->outs.data[k], seen, marks);
    for (int i = 0; i < s->reds.len; i++)
        if (marks[i])
            return &s->reds.data[i];
    return NULL;
}

void tile_print_out(Step *s, int k, int *warp, Buf *out)
{
    Tile *t = s->t;
    Out o = tile_describe_out(s, k);
    if (t->refused)
        return;
    Buf pre = { .arena = t->arena, .indent = out->indent };
    Buf text = { .arena = t->arena, .indent = out->indent };
    *(s->inner ? &s->inner : &s->pre) = &pre;
    bool own = o.inner != 1 || o.row || o.col;
    /* The next step has the exchange buffer of this one, but not its registers. */
    if (own && o.inner == 1 && !tile_reads_registers(s, o.array) && (s->is_late || reads_exchange(s, o.array)))
        own = false;
    if (s->out_scattered[k])
        print_scattered_out(s, &o, first_red(s, k), &text);
    else if (own)
        print_own_out(s, &o, &text);
    else
        print_any_out(s, &o, warp, &text);
    buf_f(out, "%s%s", pre.data ? pre.data : "", text.data ? text.data : "");
}

Wants tile_out_wants(const Step *s, int k)
{
    int c = s->t->class_of.data[k];
    return !s->wants || c < 0 ? WANT_ALWAYS : (Wants)1 << c;
}
