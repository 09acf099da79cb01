/* tile_fetch.c: the step's vectors on their way from global into shared memory. In come reads of stored
 * arrays, inputs, params and cotangents; out go the text of one element, and the copies: what has a value per
 * step comes in chunks of K steps, twice buffered and asynchronous, the rest once per work item. Guaranteed:
 * a copy is as wide as the sizes prove it aligned (arguments are aligned to 16 bytes, buffers to 256), and a
 * window never leaves its row. */
#include <inttypes.h>

#include "tile.h"

/* Indices of an expression: parallel ones and sizes are known to the block, the others to the thread. */
static void kinds(const Tile *t, const IxExpr *e, bool *block, bool *thread)
{
    for (int i = 0; i < e->nterms; i++) {
        if (e->terms[i].kind != IA_INDEX) {
            kinds(t, e->terms[i].arg, block, thread);
            continue;
        }
        bool par = false;
        for (int k = 0; k < t->npar; k++)
            par |= t->par[k] == e->terms[i].index;
        *(par ? block : thread) = true;
    }
}

/* e = base + inside, base known to the block. False when one term mixes both. */
static bool split(Tile *t, const IxExpr *e, const IxExpr **base, const IxExpr **inside)
{
    Module *m = t->m;
    *base = ix_const(m, e->offset);
    *inside = ix_const(m, poly_const(m, 0));
    for (int i = 0; i < e->nterms; i++) {
        IxExpr one = { poly_const(m, 0), 1, &e->terms[i] };
        const IxExpr *term = ix_add(m, &one, ix_const(m, poly_const(m, 0)));
        bool block = false, thread = false;
        kinds(t, term, &block, &thread);
        if (block && thread)
            return false;
        const IxExpr **to = thread ? inside : base;
        *to = ix_add(m, *to, term);
    }
    return true;
}

bool tile_multiple(const Poly *p, int64_t of)
{
    for (int i = 0; i < p->nterms; i++)
        if (p->terms[i].coef % of)
            return false;
    return true;
}

bool tile_ix_multiple(const IxExpr *e, int64_t of)
{
    bool ok = tile_multiple(e->offset, of);
    for (int i = 0; i < e->nterms; i++)
        ok &= tile_multiple(e->terms[i].coef, of);
    return ok;
}

static const Poly *pitch_of(Tile *t, const Fetch *f)
{
    const Poly *p = poly_const(t->m, 1);
    for (int k = 0; k < f->nax; k++)
        p = poly_mul(t->m, p, f->extent[k]);
    return f->st.pitch ? f->st.pitch : p;
}

/* First element of the window within a row, over the parallel indices. */
static const IxExpr *window_start(Tile *t, const Fetch *f)
{
    const IxExpr *e = tile_linear(t, f->extent, f->base, f->nax);
    return f->st.alias_offset ? ix_add(t->m, e, ix_const(t->m, f->st.alias_offset)) : e;
}

static int widest_piece(Tile *t, const Fetch *f)
{
    if (!f->contiguous || !f->timed)
        return 0;
    int size = dtype_bytes(f->st.dtype);
    for (int bytes = 16; bytes >= 4; bytes /= 2) {
        int64_t n = bytes / size;
        if (n >= 1 && f->row % n == 0 && tile_multiple(pitch_of(t, f), n) && tile_ix_multiple(window_start(t, f), n))
            return bytes;
    }
    return 0;
}

static void finish_fetch(Tile *t, Fetch *f)
{
    int64_t unit = 16 / dtype_bytes(f->st.dtype);
    f->row = 1;
    f->contiguous = true;
    bool seen = false;
    for (int k = 0; k < f->nax; k++) {
        f->row *= f->window[k];
        if (seen && !(f->extent[k]->is_const && f->extent[k]->value == f->window[k]))
            f->contiguous = false;
        seen |= f->window[k] > 1;
    }
    f->padded = (f->row + unit - 1) / unit * unit;
    f->piece = widest_piece(t, f);
}

static const char *fetch_name(Tile *t, bool is_node, int id)
{
    const char *name = is_node ? t->m->nodes.data[id].name : t->m->tensors.data[id].name;
    return tile_unique(t, tile_text(t, "%s_s", name ? name : "saved"));
}

static bool same_window(const Fetch *a, const Fetch *b)
{
    bool same = a->is_node == b->is_node && a->id == b->id && a->nax == b->nax && a->ahead == b->ahead;
    for (int k = 0; same && k < a->nax; k++)
        same = a->base[k] == b->base[k] && a->window[k] == b->window[k];
    return same;
}

static void describe(Tile *t, Fetch *f, bool is_node, int id)
{
    Module *m = t->m;
    *f = (Fetch){ .is_node = is_node, .id = id };
    if (is_node) {
        Node n = m->nodes.data[id];
        f->st = t->w->of_node[id];
        f->made = tile_is_made(t, id);
        if (f->made)
            f->st = (Storage){ .batched = true, .timed = true, .dtype = t->real_bytes == 8 ? DT_F64 : DT_F32 };
        f->nax = n.naxes;
        for (int k = 0; k < n.naxes; k++)
            f->extent[k] = m->indices.data[n.axes[k]].extent;
    } else {
        Tensor x = m->tensors.data[id];
        f->st = t->w->of_tensor[id];
        f->nax = x.rank;
        for (int k = 0; k < x.rank; k++)
            f->extent[k] = x.axes[k];
        f->may_be_null = x.kind == T_DOUT;
    }
    f->timed = f->st.timed;
    f->ahead = f->timed && t->making;
}

/* Does it have the block's own row as a whole? Who makes rows makes no others. */
static bool is_own_row(const Tile *t, const Fetch *f)
{
    for (int k = 0; k < t->npar; k++)
        if (f->base[k] != ix_index(t->m, t->par[k]) || f->window[k] != 1)
            return false;
    for (int k = t->npar; k < f->nax; k++)
        if (f->base[k] != ix_const(t->m, poly_const(t->m, 0)) || f->window[k] != f->extent[k]->value)
            return false;
    return true;
}

/* The window that the read needs, and the thread's index within it, axis by axis. */
static Fetch *window_of(Tile *t, bool is_node, int id, const IxExpr *const *map, const IxExpr **inside)
{
    Module *m = t->m;
    Fetch f;
    describe(t, &f, is_node, id);
    for (int k = 0; k < f.nax; k++) {
        const Poly *lo, *hi;
        bool block = false, thread = false;
        const IxExpr *base;
        kinds(t, map[k], &block, &thread);
        f.window[k] = 1;
        if (!block && f.extent[k]->is_const) {
            base = ix_const(m, poly_const(m, 0));
            inside[k] = map[k];
            f.window[k] = f.extent[k]->value;
        } else if (!split(t, map[k], &base, &inside[k]) || !ix_range(m, inside[k], &lo, &hi) ||
                   !hi->is_const || !poly_nonneg(lo)) {
            tile_refuse_at(t, is_node ? m->nodes.data[id].span : m->tensors.data[id].span,
                           "an axis of `%s` is as long as a run-time size: bind that size with --dim",
                           is_node ? m->nodes.data[id].name : m->tensors.data[id].name);
            return NULL;
        } else {
            f.window[k] = hi->value + 1;
        }
        f.base[k] = base;
    }
    if (f.made && !t->making && !is_own_row(t, &f)) {
        t->no_made = true;
        tile_refuse_of(t, &m->nodes.data[id], "`%s` is not read row by row", m->nodes.data[id].name);
        return NULL;
    }
    for (int i = 0; i < t->fetches.len; i++)
        if (same_window(&t->fetches.data[i], &f))
            return &t->fetches.data[i];
    finish_fetch(t, &f);
    f.name = fetch_name(t, is_node, id);
    f.ref = f.made ? -1 : tile_ref(t, is_node ? REF_NODE : REF_TENSOR, id);
    vec_push(t->arena, &t->fetches, f);
    return &t->fetches.data[t->fetches.len - 1];
}

static const IxExpr *within(Tile *t, const Fetch *f, const IxExpr *const *inside)
{
    const Poly *axes[TILE_MAX_AXES];
    for (int k = 0; k < f->nax; k++)
        axes[k] = poly_const(t->m, f->window[k]);
    return tile_linear(t, axes, inside, f->nax);
}

static const char *initial_text(Step *s, bool is_node, int id, const IxExpr *const *map)
{
    Tile *t = s->t;
    ExprPrinter p = tile_printer(s);
    Fetch f;
    describe(t, &f, is_node, id);
    const IxExpr *e = tile_linear(t, f.extent, map, f.nax);
    if (f.st.alias_offset)
        e = ix_add(t->m, e, ix_const(t->m, f.st.alias_offset));
    return tile_text(t, "cell_load<%s>((const %s *)args.ptr[%d] + %s)", t->real, tile_ctype(t, f.st.dtype),
                     tile_ref(t, is_node ? REF_NODE : REF_TENSOR, id), ix_text(&p, e));
}

/* The step's row in its buffer. */
static const char *slot_of(const Fetch *f)
{
    return f->single ? "s" : "slot";
}

/* May the place leave the window? It does where a condition around the read leaves it out (`r < N ? a[r] :
 * b[r - N]`), and what is fetched is read in front of conditions. */
static bool may_leave(Tile *t, const Fetch *f, const IxExpr *const *inside, int k)
{
    const Poly *lo, *hi;
    return !ix_range(t->m, inside[k], &lo, &hi) || !poly_nonneg(lo) || !hi->is_const ||
           hi->value >= f->window[k];
}

static bool any_leaves(Tile *t, const Fetch *f, const IxExpr *const *inside)
{
    bool any = false;
    for (int k = 0; k < f->nax; k++)
        any |= may_leave(t, f, inside, k);
    return any;
}

/* The element's number in the window; of an axis that the place may leave, its nearest one. */
static const char *number_text(Step *s, const Fetch *f, const IxExpr *const *inside)
{
    Tile *t = s->t;
    ExprPrinter p = tile_printer(s);
    if (!any_leaves(t, f, inside))
        return ix_text(&p, within(t, f, inside));
    const IxExpr *others[TILE_MAX_AXES];
    const char *all = "";
    int64_t stride = 1;
    for (int k = f->nax - 1; k >= 0; k--) {
        bool leaves = may_leave(t, f, inside, k);
        others[k] = leaves ? ix_const(t->m, poly_const(t->m, 0)) : inside[k];
        if (leaves)
            all = tile_text(t, "%s%scell_max(cell_min((int)%s, %" PRId64 "), 0)%s", all, *all ? " + " : "",
                            ix_text(&p, inside[k]), f->window[k] - 1,
                            stride == 1 ? "" : tile_text(t, " * %" PRId64, stride));
        stride *= f->window[k];
    }
    const IxExpr *rest = within(t, f, others);
    return rest == ix_const(t->m, poly_const(t->m, 0)) ? all
                                                       : tile_text(t, "(%s + %s)", ix_text(&p, rest), all);
}

/* `name + place of the element`, in this step's rows. */
static const char *place(Step *s, const Fetch *f, const char *number)
{
    if (!f->timed)
        return tile_text(s->t, "%s + %s", f->name, number);
    return tile_text(s->t, "%s + (%s * %" PRId64 " + %s)", f->name, slot_of(f), f->padded, number);
}

const char *tile_fetch_text(Step *s, bool is_node, int id, const IxExpr *const *map)
{
    Tile *t = s->t;
    const IxExpr *inside[TILE_MAX_AXES] = { NULL };
    if (t->initial)
        return initial_text(s, is_node, id, map);
    Fetch *f = window_of(t, is_node, id, map, inside);
    if (!f)
        return "0";
    f->stepped |= !s->is_behind;
    return tile_text(t, "cell_load<%s>(%s)", t->real, place(s, f, number_text(s, f, inside)));
}

const Fetch *tile_fetch_run(Step *s, bool is_node, int id, const IxExpr *const *map, IndexId along, int width,
                            const char **first)
{
    Tile *t = s->t;
    const IxExpr *inside[TILE_MAX_AXES] = { NULL };
    if (t->initial)
        return NULL;
    Fetch *f = window_of(t, is_node, id, map, inside);
    if (!f)
        return NULL;
    f->stepped |= !s->is_behind;
    if (any_leaves(t, f, inside))
        return NULL;
    const IxExpr *at = within(t, f, inside);
    const IxExpr *rest = ix_sub(t->m, at, ix_index(t->m, along));
    if (ix_uses(rest, along) || rest->nterms || !rest->offset->is_const || rest->offset->value % width)
        return NULL;
    *first = tile_text(t, "%s + (%s%" PRId64 " + ", f->name,
                       f->timed ? tile_text(t, "%s * %" PRId64 " + ", slot_of(f), f->padded) : "", rest->offset->value);
    return f;
}

/* ---- the copies ---- */

/* The type in shared memory. Numbers of 8 bits that no copies of pieces bring are there in 16, which hold
 * them exactly: threads next to one another write no bytes of one word. */
static Dtype held_type(const Fetch *f)
{
    return dtype_is_fp8(f->st.dtype) && !f->piece ? DT_F16 : f->st.dtype;
}

int64_t tile_fetch_bytes(const Tile *t, int K)
{
    int64_t bytes = 0;
    for (int i = 0; i < t->fetches.len; i++) {
        const Fetch *f = &t->fetches.data[i];
        int64_t rows = f->timed ? (f->single ? 1 : tile_buffers(t)) * K : 1;
        bytes += rows * f->padded * dtype_bytes(held_type(f)) + 15;
    }
    return bytes;
}

void tile_carve_fetches(Tile *t, Buf *out)
{
    for (int i = 0; i < t->fetches.len; i++) {
        const Fetch *f = &t->fetches.data[i];
        const char *type = tile_ctype(t, held_type(f));
        int64_t count = (f->timed ? (f->single ? 1 : tile_buffers(t)) * t->F : 1) * f->padded;
        buf_line(out, "cell_smem<%s> %s = cell_carve<%s>(cursor, %" PRId64 ");", type, f->name, type, count);
        t->w->smem += (count * dtype_bytes(held_type(f)) + 15) / 16 * 16;
    }
}

/* The element number of the x-th element of the window. */
static const char *strided(Tile *t, const Fetch *f)
{
    const char *e = NULL;
    int64_t below = 1;
    const Poly *stride = poly_const(t->m, 1);
    ExprPrinter p = tile_printer(t->forward ? t->forward : t->adjoint);
    for (int k = f->nax - 1; k >= 0; k--) {
        if (f->window[k] > 1) {
            const char *digit = tile_text(t, "x / %" PRId64 " %% %" PRId64 " * %s", below, f->window[k],
                                          poly_text(&p, stride));
            e = e ? tile_text(t, "%s + %s", digit, e) : digit;
        }
        below *= f->window[k];
        stride = poly_mul(t->m, stride, f->extent[k]);
    }
    return e ? e : "0";
}

void tile_item_fetches(Tile *t, Buf *out)
{
    ExprPrinter p = tile_printer(t->forward ? t->forward : t->adjoint);
    for (int i = 0; i < t->fetches.len; i++) {
        const Fetch *f = &t->fetches.data[i];
        if (f->made)
            continue;
        const char *type = tile_ctype(t, f->st.dtype), *start = ix_text(&p, window_start(t, f));
        const char *pitch = poly_text(&p, pitch_of(t, f));
        if (f->st.batched)
            start = tile_text(t, "%s * (%s) + %s", f->timed ? tile_first_row(t) : "b", pitch, start);
        if (f->may_be_null)
            buf_line(out, "const %s *%s_g = args.ptr[%d] ? (const %s *)args.ptr[%d] + (%s) : nullptr;", type,
                     f->name, f->ref, type, f->ref, start);
        else
            buf_line(out, "const %s *%s_g = (const %s *)args.ptr[%d] + (%s);", type, f->name, type, f->ref,
                     start);
        if (f->timed)
            continue;
        const char *from = f->contiguous ? "x" : strided(t, f);
        buf_line(out, "for (int x = cell_thread(); x < %" PRId64 "; x += %d)", f->row, tile_threads(&t->lay));
        const char *value = tile_text(t, "%s_g[%s]", f->name, from), *held = tile_ctype(t, held_type(f));
        if (held_type(f) != f->st.dtype)
            value = tile_text(t, "cell_convert<%s>(cell_load<%s>(%s_g + %s))", held, t->real, f->name, from);
        if (f->may_be_null)
            value = tile_text(t, "cell_convert<%s>(%s_g ? cell_load<%s>(%s_g + %s) : 0)", held, f->name,
                              t->real, f->name, from);
        buf_line(out, "    %s[x] = %s;", f->name, value);
    }
}

/* Who copies a vector's chunk: one warp where that is little, else all of them. The other warps walk on meanwhile: with all copies
 * shared out evenly, all of them are late (measured on an H200: delta forward 0.95 ms for 0.79). */
typedef struct Copiers {
    int64_t pieces;           /* copies of a row */
    int threads;              /* who share them */
    bool alone;               /* one warp */
    int warp;                 /* that one */
    const char *thread;       /* a thread's number among them */
} Copiers;

static Copiers copiers(Tile *t, const Fetch *f, int warp)
{
    int64_t pieces = f->piece ? f->row * dtype_bytes(f->st.dtype) / f->piece : f->row;
    int before = f->ahead ? tile_threads(&t->lay) : 0, threads = f->ahead ? 32 * t->makers : tile_threads(&t->lay);
    bool alone = threads > 32 && pieces * t->F <= 128;
    const char *thread = before ? tile_text(t, "cell_thread() - %d", before) : "cell_thread()";
    return (Copiers){ pieces, alone ? 32 : threads, alone, before / 32 + warp % (threads / 32), alone ? "lane" : thread };
}

/* Rows of pieces of 4, 8 or 16 bytes. */
static void copy_rows(Tile *t, const Fetch *f, Copiers who, Buf *out)
{
    ExprPrinter p = tile_printer(t->forward ? t->forward : t->adjoint);
    const char *pitch = poly_text(&p, pitch_of(t, f)), *valid = f->may_be_null ? tile_text(t, ", %s_g != nullptr", f->name) : "";
    bool reverse = t->m->c->reverse;
    const char *from = tile_text(t, "%s_g + %s * (%s)", f->name, reverse ? "(T - 1 - t0)" : "t0", pitch);
    if (f->may_be_null)
        from = tile_text(t, "%s_g ? %s : nullptr", f->name, from);
    const char *to = f->single ? f->name : tile_text(t, "%s + %s * %" PRId64, f->name, tile_buffer(t), f->padded);
    buf_line(out, "cell_copy_steps<%d, %" PRId64 ", %" PRId64 ", %d, %d>(%s, %s, %s(%s), steps, %s%s);", f->piece, who.pieces, f->padded,
             t->F, who.threads, to, from, reverse ? "-" : "", pitch, who.thread, valid);
}

/* Piece by piece, or element by element where rows lie apart or are odd. */
static void copy_pieces(Tile *t, const Fetch *f, Copiers who, Buf *out)
{
    ExprPrinter p = tile_printer(t->forward ? t->forward : t->adjoint);
    const char *pitch = poly_text(&p, pitch_of(t, f)), *type = tile_ctype(t, held_type(f));
    int64_t per_copy = f->row / who.pieces;
    buf_line(out, "CELL_UNROLL_BY(1)");       /* a few rounds, once in a chunk: long code would be cold */
    buf_line(out, "for (int p = %s; p < steps * %" PRId64 "; p += %d) {", who.thread, who.pieces, who.threads);
    out->indent++;
    const char *x = tile_text(t, who.pieces == 1 ? "0" : per_copy == 1 ? "p %% %" PRId64 : "p %% %" PRId64 " * %" PRId64, who.pieces, per_copy);
    buf_line(out, "const int s = p / %" PRId64 ", x = %s;", who.pieces, x);
    const char *row = t->m->c->reverse ? "(T - 1 - t0 - s)" : "(t0 + s)";
    const char *from = tile_text(t, "%s_g + %s * (%s) + %s", f->name, row, pitch, f->contiguous ? "x" : strided(t, f));
    const char *step = f->single ? "s" : tile_text(t, "(%s + s)", tile_buffer(t));
    const char *to = tile_text(t, "%s + (%s * %" PRId64 " + x)", f->name, step, f->padded);
    if (f->piece && f->may_be_null)
        buf_line(out, "cell_cp_async_zfill<%d>(%s, %s_g ? %s : nullptr, %s_g != nullptr);", f->piece, to, f->name, from, f->name);
    else if (f->piece)
        buf_line(out, "cell_cp_async<%d>(%s, %s);", f->piece, to, from);
    else if (f->may_be_null)
        buf_line(out, "cell_store(%s, cell_convert<%s>(%s_g ? cell_load<%s>(%s) : 0));", to, type, f->name,
                 t->real, from);
    else if (held_type(f) != f->st.dtype)
        buf_line(out, "cell_store(%s, cell_load<%s>(%s));", to, t->real, from);
    else
        buf_line(out, "cell_store(%s, *(%s));", to, from);
    out->indent--;
    buf_line(out, "}");
}

/* Short rows, and those that take all threads several rounds. Of others one warp's rounds gain nothing: E88 of 64 x 64 took 4.36 ms
 * for 4.25 with them, since nvcc scheduled the loop of the steps so that it waits more (bench/notes, walks on one SM). */
static bool by_rows(const Tile *t, Copiers who)
{
    enum { SHORT = 8 };
    return who.pieces <= SHORT || (!who.alone && who.pieces <= who.threads && who.threads / who.pieces < t->F);
}

static void chunk_fetch(Tile *t, const Fetch *f, int warp, Buf *out)
{
    Copiers who = copiers(t, f, warp);
    if (who.alone)
        buf_line(out, "if (warp == %d)", who.warp);
    out->indent += who.alone;
    if (f->piece && by_rows(t, who))
        copy_rows(t, f, who, out);
    else
        copy_pieces(t, f, who, out);
    out->indent -= who.alone;
}

bool tile_has_single(const Tile *t)
{
    bool any = false;
    for (int i = 0; i < t->fetches.len; i++)
        any |= t->fetches.data[i].single;
    return any;
}

static bool is_for(const Fetch *f, FetchTime time)
{
    return f->timed && !f->made && time == (f->ahead ? FETCH_AHEAD : f->single ? FETCH_BEHIND : FETCH_STEPS);
}

void tile_chunk_fetches(Tile *t, FetchTime time, Buf *out)
{
    int warps = tile_threads(&t->lay) / 32, next = 0;
    for (int i = 0; i < t->fetches.len; i++)
        if (is_for(&t->fetches.data[i], time))
            chunk_fetch(t, &t->fetches.data[i], next++ % warps, out);
    buf_line(out, "cell_cp_async_commit();");
}
