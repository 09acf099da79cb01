/* tile_when.c: when outs are written. At the level that has what they read; by the next step, behind a barrier that is there
 * anyway; with the next step's sums; or behind the chunk's steps, for all of them at once. Out: the choice for each out, in the
 * step's arrays, and the code of the latter kinds. */

#include "ir/marks.h"
#include "templates/tile.h"
#include "tile_kernel.h"
#include "tile_step.h"

/* Is there a barrier in every step, whatever is asked for? In a cluster, one of all its blocks. */
static bool always_meets(const Step *s)
{
    for (int i = 0; i < s->reds.len; i++) {
        const Red *r = &s->reds.data[i];
        if (r->wants == WANT_ALWAYS && red_published(s->t, r) && (s->t->lay.cr == 1 || red_far(s->t, r)))
            return true;
    }
    return false;
}

/* An out stands at the level that has what it reads. One that reads the last level's exchange only is written
 * by the next step, behind a barrier that is there anyway. */
static void place_out(Step *s, int k)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1);
    bool *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1), late = always_meets(s);
    int level = s->depth;
    tile_mark_reds(s, s->outs.data[k], seen, marks);
    /* A vector is read from the buffer element by element; else an owner reads there only what warps add up. */
    bool vector = late && tile_describe_out(s, k).inner == 1;
    for (int i = 0; i < s->reds.len; i++) {
        const Red *r = &s->reds.data[i];
        bool exchanged = red_warps(t, r) > 1 || (vector && red_published(t, r));
        int at = r->level - !red_published(t, r);
        level = marks[i] && at > level ? at : level;
        late &= !marks[i] || (exchanged && r->level == s->levels && r->wants != WANT_ALWAYS);
    }
    s->out_level[k] = level;
    s->out_late[k] = late && level == s->levels && level == s->depth + 1 && tile_out_wants(s, k) != WANT_ALWAYS &&
                     !tile_reads_registers(s, s->outs.data[k]);
    for (int i = 0; i < s->reds.len; i++)
        s->read_now[i] |= marks[i] && !s->out_late[k];
}

/* Does anything but outs read the reductions? */
static void mark_inside(Step *s)
{
    Tile *t = s->t;
    size_t nodes = (size_t)t->m->nodes.len + 1;
    bool *seen = arena_alloc(t->arena, nodes);
    s->read_inside = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int k = 0; k < s->next.len; k++)
        tile_mark_reds(s, node(s, s->next.data[k]).args[0], seen, s->read_inside);
    for (int i = 0; i < s->reds.len; i++)
        tile_mark_reds(s, node(s, s->reds.data[i].reduce).args[0], seen, s->read_inside);
    for (int i = 0; i < s->reds.len; i++)
        s->reds.data[i].inside = s->read_inside[i];
}

/* A vector of reductions that vary over one side, each of which nobody needs as a whole. */
static bool is_loose(Step *s, int k, bool *marks)
{
    Tile *t = s->t;
    const Red *first = NULL;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1), ok = true;
    tile_mark_reds(s, s->outs.data[k], seen, marks);
    for (int i = 0; i < s->reds.len && ok; i++) {
        const Red *r = &s->reds.data[i];
        if (!marks[i])
            continue;
        first = first ? first : r;
        ok = red_rows(r) == red_rows(first) && red_cols(r) == red_cols(first) && red_rows(r) != red_cols(r) &&
             !s->read_inside[i];
    }
    if (!ok || !first || tile_reads_registers(s, s->outs.data[k]))
        return false;
    Out o = tile_describe_out(s, k);
    return !t->refused && o.inner == 1 && (red_rows(first) ? o.row : o.col);
}

/* An out that is not read element by element takes its reductions along, and those the outs that read them. */
static void spread_refusal(Step *s, const bool *marks)
{
    int n = s->reds.len;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < s->outs.len; k++)
                for (int j = 0; j < s->outs.len && marks[k * n + i] && !s->out_scattered[k]; j++)
                    if (marks[j * n + i] && s->out_scattered[j]) {
                        s->out_scattered[j] = false;
                        changed = true;
                    }
    }
}

static void find_scattered(Step *s)
{
    Tile *t = s->t;
    int n = s->reds.len;
    bool *marks = arena_alloc(t->arena, (size_t)n * (size_t)(s->outs.len + 1) + 1);
    mark_inside(s);
    s->out_scattered = arena_alloc(t->arena, (size_t)s->outs.len + 1);
    for (int i = 0; i < n; i++)
        s->reds.data[i].loose = s->reds.data[i].scattered = false;
    for (int k = 0; k < s->outs.len; k++)
        s->out_scattered[k] = is_loose(s, k, marks + k * n);
    spread_refusal(s, marks);
    for (int k = 0; k < s->outs.len; k++)
        for (int i = 0; i < n && s->out_scattered[k]; i++)
            s->reds.data[i].loose |= marks[k * n + i];
    /* In this layout the sums must lie in a warp, and be spread over the same lanes. */
    for (int k = 0; k < s->outs.len; k++)
        for (int i = 0; i < n; i++) {
            const Red *r = &s->reds.data[i];
            if (marks[k * n + i] &&
                (red_published(t, r) || !tile_scatters(red_count(t, r), tile_lanes_of(t, r).size)))
                s->out_scattered[k] = false;
        }
    spread_refusal(s, marks);
    for (int k = 0; k < s->outs.len; k++)
        for (int i = 0; i < n && s->out_scattered[k]; i++)
            s->reds.data[i].scattered |= marks[k * n + i];
}

static void place_outs_in_steps(Step *s)
{
    find_scattered(s);
    for (int i = 0; i < s->reds.len; i++)
        s->read_now[i] = s->reds.data[i].level < s->levels;
    for (int k = 0; k < s->outs.len; k++) {
        if (s->wants)
            place_out(s, k);
        else
            s->out_level[k] = tile_level(s, s->outs.data[k]);
    }
}

/* An out that reads sums and what was fetched, but no registers, can be written by any thread: behind the chunk's
 * steps, for all of them at once. */
static bool stands_behind(Step *s, int k)
{
    Tile *t = s->t;
    if (!t->defer || !s->behind_pays || tile_reads_registers(s, s->outs.data[k]))
        return false;
    Out o = tile_describe_out(s, k);
    return !t->refused && o.inner < 2;
}

/* Behind the chunk, or at the level that has what they read. */
static void place_out_behind(Step *s, int k)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1);
    bool *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    int level = s->wants ? s->depth : tile_level(s, s->outs.data[k]);
    tile_mark_reds(s, s->outs.data[k], seen, marks);
    s->out_behind[k] = stands_behind(s, k);
    for (int i = 0; i < s->reds.len; i++) {
        Red *r = &s->reds.data[i];
        r->kept |= marks[i] && s->out_behind[k];
        s->read_now[i] |= marks[i] && !s->out_behind[k];
        int at = r->level - !red_shared(t, r);
        level = s->wants && marks[i] && at > level ? at : level;
    }
    s->out_level[k] = level;
}

/* Behind the chunk's steps pays where warps add up what outs read, or lanes could share it out. Where each thread has
 * what it stores, as forward may, a store is cheaper than a detour. */
static bool pays_behind(Step *s)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1), pays = s->kind == STEP_ADJOINT;
    bool *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int k = 0; k < s->outs.len; k++)
        tile_mark_reds(s, s->outs.data[k], seen, marks);
    for (int i = 0; i < s->reds.len; i++)
        pays |= marks[i] && (red_shared(t, &s->reds.data[i]) || red_count(t, &s->reds.data[i]) > 1);
    return pays;
}

/* Does the value read nothing but sums? */
static bool finds_sums(Step *s, NodeId id, Marks *seen)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (!marks_first(seen, id))
        return true;
    if (n.kind == N_LOAD || (n.kind == N_INDEX && ix_uses(n.ix, IX_TIME)) || (tile_is_read(&n) && tile_is_fetch(s, id)))
        return false;
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = tile_read(s, id, map);
        return tile_red(s, array) || (!tile_stored(s, array) && finds_sums(s, node(s, array).args[0], seen));
    }
    for (int i = 0; i < n.nargs; i++)
        if (!finds_sums(s, n.args[i], seen))
            return false;
    return true;
}

static bool reads_sums(Step *s, NodeId id)
{
    Marks *seen = marks_begin(s->t->m);
    bool reads = finds_sums(s, id, seen);
    marks_end(seen);
    return reads;
}

/* May the next step add up these sums, and store what is made of them? Lanes have to, and in the last level, behind which
 * the step would wait for them. */
static bool may_hand_on(const Step *s, const Red *r)
{
    const Tile *t = s->t;
    return !r->inside && !red_published(t, r) && tile_lanes_of(t, r).size > 1 && r->level == s->levels && s->levels > 1;
}

/* An out of nothing but the last level's sums, which no other out reads. Where steps are joined, two steps' sums are added up
 * at once. */
static void hand_out_on(Step *s, int k)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1), *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1), *others;
    if (!t->joined || s->out_behind[k] || s->wants || tile_reads_registers(s, s->outs.data[k]) || !reads_sums(s, s->outs.data[k]))
        return;
    Out o = tile_describe_out(s, k);
    bool handed = !t->refused && o.row != o.col;
    tile_mark_reds(s, s->outs.data[k], seen, marks);
    seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1);
    others = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int j = 0; j < s->outs.len; j++)
        if (j != k)
            tile_mark_reds(s, s->outs.data[j], seen, others);
    for (int i = 0; i < s->reds.len; i++)
        handed &= !marks[i] || (!others[i] && may_hand_on(s, &s->reds.data[i]));
    for (int i = 0; i < s->reds.len && handed; i++)
        if (marks[i])
            s->reds.data[i].last = tile_unique(t, tile_text(t, "last_%s", s->reds.data[i].var));
    s->out_handed[k] = handed;
    s->hands_outs |= handed;
}

static void place_outs_behind(Step *s)
{
    s->behind_pays = pays_behind(s);
    mark_inside(s);
    for (int i = 0; i < s->reds.len; i++)
        s->read_now[i] = s->read_inside[i];
    for (int k = 0; k < s->outs.len; k++)
        place_out_behind(s, k);
    for (int i = 0; i < s->reds.len; i++) {
        Red *r = &s->reds.data[i];
        r->loose = r->kept && !s->read_now[i];
        /* Backward's registers are full. */
        r->last = r->loose && s->kind == STEP_FORWARD ? tile_unique(s->t, tile_text(s->t, "last_%s", r->var)) : NULL;
    }
    for (int k = 0; k < s->outs.len && s->kind == STEP_FORWARD; k++)
        hand_out_on(s, k);
}

void tile_place_outs(Step *s)
{
    Tile *t = s->t;
    size_t outs = (size_t)s->outs.len + 1;
    s->out_level = arena_alloc(t->arena, sizeof *s->out_level * outs);
    s->out_late = arena_alloc(t->arena, outs);
    s->out_behind = arena_alloc(t->arena, outs);
    s->out_handed = arena_alloc(t->arena, outs);
    s->hands_outs = false;
    s->out_scattered = arena_alloc(t->arena, outs);
    s->read_now = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int i = 0; i < s->reds.len; i++) {
        s->reds.data[i].kept = s->reds.data[i].scattered = false;
        s->reds.data[i].last = NULL;
    }
    if (t->defer)
        place_outs_behind(s);
    else if (s->outs.len)
        place_outs_in_steps(s);
}

void tile_print_late(Step *s, int *warp)
{
    Tile *t = s->t;
    s->late = (Buf){ .arena = t->arena };
    s->is_late = true;
    for (int c = 0; c < t->classes.len; c++) {
        Buf pre = { .arena = t->arena, .indent = s->late.indent + 1 }, stores = pre;
        s->versions.len = s->inner_versions.len = 0;
        for (int k = 0; k < s->outs.len && !t->refused; k++) {
            s->pre = s->inner = &pre;
            if (s->out_late[k] && tile_out_wants(s, k) == (Wants)1 << c)
                tile_print_out(s, k, warp, &stores);
        }
        s->inner = NULL;
        if (!stores.data)
            continue;
        tile_open_if(&s->late, t->classes.data[c].name);
        buf_f(&s->late, "%s%s", pre.data ? pre.data : "", stores.data);
        tile_close_if(&s->late, t->classes.data[c].name);
    }
    s->is_late = false;
}

/* Elements of an out of at most one axis on the chip. */
static int64_t out_length(const Step *s, const Out *o)
{
    int64_t n = 1;
    for (int i = 0; i < node(s, o->array).naxes; i++)
        if (o->role[i] < ROLE_PAR)
            n = o->extent[i]->value;
    return n;
}

/* Are so many neighbours stored at once, and aligned so? */
static bool stores_run(Step *s, Out *o, int64_t n, int wide)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    const Poly *pitch;
    o->row = o->col = false;
    t->any = tile_any(t, n);
    tile_out_value(s, o, map);
    const IxExpr *rest = ix_sub(t->m, tile_out_place(s, o, map, &pitch), ix_index(t->m, t->any));
    return !ix_uses(rest, t->any) && tile_ix_multiple(rest, wide) && tile_multiple(pitch, wide);
}

/* Element x of the out of step s, or several from element `first` on. */
static void print_elements(Step *s, Out *o, int wide, const char *condition, Buf *out)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    Buf pre = { .arena = t->arena, .indent = out->indent + (condition != NULL) }, body = pre;
    body.indent = wide > 1 ? 0 : pre.indent;
    o->row = o->col = false;
    s->body = &body;
    s->pre = &pre;
    s->locals.len = s->versions.len = s->inner_versions.len = 0;
    NodeId value = tile_out_value(s, o, map);
    ExprPrinter p = tile_printer(s);
    const char *text = expr_text(&p, value);
    if (wide > 1)
        buf_line(&body, "some[i] = %s;", text);
    else
        tile_store_out(s, o, map, text, &body);
    s->body = s->pre = NULL;
    tile_open_if(out, condition);
    buf_f(out, "%s", pre.data ? pre.data : "");
    if (wide > 1) {
        TileBehindVectorFrame f = { .real = t->real,
                                    .wide = tile_number(t, wide),
                                    .body = tile_hole(t, &body) };
        t->any_text = "first";
        f.store =
            tile_text(t,
                      tile_may_add(t, o) ? "cell_put_vec<%d>(%s, some, args.flags & CELL_KERNEL_ACCUMULATE);"
                                         : "cell_store_vec<%d>(%s, some);",
                      wide, tile_out_address(s, o, map));
        t->any_text = "x";
        tile_behind_vector_frame(out, &f);
    } else {
        buf_f(out, "%s", body.data);
    }
    tile_close_if(out, condition);
}

enum { MOST_NEIGHBOURS = 4 };

static bool has_length(Step *s, int k, int64_t n)
{
    Out o = tile_describe_out(s, k);
    return s->out_behind[k] && !s->t->refused && out_length(s, &o) == n;
}

/* Neighbours that a thread takes of the outs of n elements: as many as make one round of the chunk. */
static int behind_width(Step *s, int64_t n)
{
    Tile *t = s->t;
    int wide = 1;
    while (wide < MOST_NEIGHBOURS && n % (2 * wide) == 0 && t->F * n / wide > tile_threads(&t->lay))
        wide *= 2;
    for (int k = 0; k < s->outs.len && wide > 1; k++) {
        Out o = tile_describe_out(s, k);
        while (wide > 1 && has_length(s, k, n) && !stores_run(s, &o, n, wide))
            wide /= 2;
    }
    return wide;
}

/* The thread's number, counted from the warp's first one. */
static const char *thread_from(Tile *t, int warp)
{
    int threads = tile_threads(&t->lay);
    return warp ? tile_text(t, "(cell_thread() + %d) %% %d", threads - 32 * warp, threads) : "cell_thread()";
}

/* All outs of n elements a step, in one loop, which begins with that warp: it runs once or twice in a chunk, so that its
 * code is short rather than unrolled. -> the warp behind those that have elements. */
static int print_outs_behind(Step *s, int64_t n, int warp, Buf *out)
{
    Tile *t = s->t;
    int threads = tile_threads(&t->lay), wide = behind_width(s, n);
    int64_t runs = n / wide;
    Buf stores = { .arena = t->arena };
    TileBehindFrame f = { .thread = thread_from(t, warp), .runs = tile_number(t, runs) };
    f.threads = tile_number(t, threads);
    f.wide = wide > 1 ? tile_number(t, wide) : NULL;
    f.place = tile_lines(t, tile_print_place);
    t->any_text = "x";
    t->any = tile_any(t, n);
    for (int k = 0; k < s->outs.len && !t->refused; k++) {
        Out o = tile_describe_out(s, k);
        int c = t->class_of.data[k];
        if (has_length(s, k, n))
            print_elements(s, &o, wide,
                           s->wants && c >= 0 ? t->classes.data[c].name : tile_out_condition(s, &o), &stores);
    }
    f.stores = tile_hole(t, &stores);
    tile_behind_frame(out, &f);
    return (warp + (int)((t->F * runs + 31) / 32)) % (threads / 32);
}

void tile_print_behind(Step *s)
{
    Tile *t = s->t;
    s->behind = (Buf){ .arena = t->arena };
    s->is_behind = true;
    s->inner = NULL;
    int warp = 0;
    for (int k = 0; k < s->outs.len && !t->refused; k++) {
        Out o = tile_describe_out(s, k);
        int64_t n = out_length(s, &o);
        bool first = s->out_behind[k];
        for (int i = 0; i < k && first; i++)
            first = !has_length(s, i, n);
        if (first)
            warp = print_outs_behind(s, n, warp, &s->behind);
    }
    s->is_behind = false;
}
