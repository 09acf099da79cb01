/* tile_step.c: one step of the walk as statements. In come normalised roots and a layout; out goes the step's
 * text, level by level: what the level needs of vectors, one loop over the thread's elements that computes
 * states and partial results of all reductions that are ready, their exchange between lanes and warps,
 * stores, and at most one barrier. */
#include <string.h>

#include "base/mutate.h"
#include "tile_step.h"

/* Issue slots of a loop's body, by its operators and calls. */
static double slots_of(const char *text)
{
    double n = 0;
    for (const char *s = text; *s; s++) {
        if (s[0] == '/' && s[1] == '/')
            while (s[1] && s[1] != '\n')
                s++;
        else if (strncmp(s, "cell_fma(", 9) == 0)         /* as what they are made of; signs cost nothing */
            n += 1.4, s += s[9] == '-' ? 9 : 8;
        else if (strncmp(s, "cell_mul(", 9) == 0)
            n += 0.7, s += 8;
        else if (strncmp(s, "cell_", 5) == 0)
            n += strncmp(s, "cell_fast", 9) == 0 ? 4 : 16;
        else if (*s == '-' && s > text && s[-1] == ' ' && s[1] != ' ')
            continue;
        else
            n += *s == '*' || *s == '+' || *s == '-' ? 0.7 : *s == '/' ? 8 : 0;
    }
    return n;
}

/* One loop nest over the thread's elements: the reductions whose bodies vary so, and (in the full one)
 * states. */
static void print_loop(Step *s, bool rows, bool cols, Wants w, Buf *out)
{
    Tile *t = s->t;
    Buf body = { .arena = t->arena, .indent = out->indent + rows + cols };
    s->body = &body;
    s->locals.len = 0;
    for (int k = 0; k < s->next.len && rows && cols && w == WANT_ALWAYS; k++)
        if (t->states.data[k].rank == 2 && tile_level(s, s->next.data[k]) == s->now)
            tile_assign_state(s, k);
    for (int i = 0; i < s->reds.len && !t->refused; i++) {
        Red *r = &s->reds.data[i];
        if (r->level == s->now + 1 && r->wants == w && r->vary_row == rows && r->vary_col == cols)
            tile_accumulate(s, r);
    }
    s->body = NULL;
    if (!body.data)
        return;
    if (rows && cols)
        s->elements += slots_of(body.data);
    tile_open(t, out, rows, cols);
    buf_f(out, "%s", body.data);
    tile_close(out, rows, cols);
}

/* The level's reductions of one kind of wants: loops, then what their threads do together. */
static void print_reds(Step *s, Wants w, Buf *loops, Buf *after)
{
    print_loop(s, true, true, w, loops);
    print_loop(s, true, false, w, loops);
    print_loop(s, false, true, w, loops);
    for (int i = 0; i < s->reds.len && !s->t->refused; i++) {
        Red *r = &s->reds.data[i];
        if (r->level != s->now + 1 || r->wants != w)
            continue;
        tile_declare_red(s, r, red_own(s->t, r), s->pre);
        if (red_published(s->t, r)) {
            r->at = (s->exchange + 3) / 4 * 4;
            s->exchange = r->at + (int64_t)red_warps(s->t, r) * red_pitch(s->t, r);
        }
        if (r->last)
            tile_pass_red(s, r, after);
        else
            tile_finish_red(s, r, after);
    }
}

/* What the level computes and stores for one combination of gradients, in a block that is left out when none
 * of them is asked for. */
static void print_wanted(Step *s, Wants w, int *warp, Buf *out)
{
    Tile *t = s->t;
    const char *condition = tile_wanted(t, w);
    int indent = out->indent + (condition != NULL);
    Buf pre = { .arena = t->arena, .indent = indent }, loops = pre, after = pre, stores = pre;
    s->inner = &pre;
    s->inner_versions.len = 0;
    print_reds(s, w, &loops, &after);
    for (int k = 0; k < s->outs.len && !t->refused; k++)
        if (tile_out_wants(s, k) == w && s->out_level[k] == s->now && !s->out_late[k] && !s->out_behind[k]) {
            s->inner = &pre;
            tile_print_out(s, k, warp, &stores);
        }
    s->inner = NULL;
    if (!loops.data && !stores.data)
        return;
    tile_open_if(out, condition);
    buf_f(out, "%s%s%s%s", pre.data ? pre.data : "", loops.data ? loops.data : "",
          after.data ? after.data : "", stores.data ? stores.data : "");
    tile_close_if(out, condition);
}

/* Blocks for more classes come first: those for fewer read what they give. */
static bool comes_before(Wants a, Wants b)
{
    int n = 0;
    for (int i = 0; i < 64; i++)
        n += (int)(a >> i & 1) - (int)(b >> i & 1);
    return n ? n > 0 : a < b;
}

static void consider(Wants w, Wants last, Wants *next)
{
    if (w != WANT_ALWAYS && comes_before(last, w) && (!*next || comes_before(w, *next)))
        *next = w;
}

/* The wants of the level's next block after `last`; 0: there is none. */
static Wants next_wants(const Step *s, Wants last)
{
    Wants next = 0;
    for (int i = 0; i < s->reds.len; i++)
        if (s->reds.data[i].level == s->now + 1)
            consider(s->reds.data[i].wants, last, &next);
    for (int k = 0; k < s->outs.len; k++)
        if (s->out_level[k] == s->now && !s->out_late[k] && !s->out_behind[k])
            consider(tile_out_wants(s, k), last, &next);
    return next;
}

/* Does the next level wait for the exchange? Where outs stand behind the chunk, it is known exactly who reads. */
static bool read_next(const Step *s, int i)
{
    const Red *r = &s->reds.data[i];
    if (s->t->defer)
        return red_shared(s->t, r) && s->read_now[i];
    return red_published(s->t, r) && (r->wants == WANT_ALWAYS || s->read_now[i]);
}

/* For whom the next level reads what this one exchanges: among the warps of each block, or (far) all over the
 * cluster. */
static Wants exchanged(const Step *s, bool far)
{
    Wants w = 0;
    for (int i = 0; i < s->reds.len; i++) {
        const Red *r = &s->reds.data[i];
        if (r->level == s->now + 1 && read_next(s, i) && red_far(s->t, r) == far)
            w |= r->wants;
    }
    return mutate("missing-exchange") ? 0 : w;
}

/* The first half of a cluster's barrier: what the level stores comes between the two. */
static void print_level_arrive(Step *s, Buf *out)
{
    Wants far = exchanged(s, true);
    const char *condition = tile_wanted(s->t, far);
    if (far)
        buf_line(out, condition ? "if (%s) cell_cluster_arrive();" : "cell_cluster_arrive();", condition);
}

/* A barrier before the next level reads what the warps exchange in this one. */
static void print_level_barrier(Step *s, Buf *out)
{
    Tile *t = s->t;
    Wants near = exchanged(s, false), far = exchanged(s, true);
    const char *far_condition = tile_wanted(t, far), *condition = tile_wanted(t, near);
    if (far)
        buf_line(out, far_condition ? "if (%s) cell_cluster_wait();" : "cell_cluster_wait();", far_condition);
    if (far && far_condition && near)
        buf_line(out, "else");
    if (near && (!far || far_condition)) {
        out->indent += far != 0;
        buf_line(out, condition ? "if (%s) cell_barrier();" : "cell_barrier();", condition);
        out->indent -= far != 0;
    }
    s->barriers += near || far;
}

/* begin: the loads and loops of the level, out: what comes behind them. */
static void print_level(Step *s, int *warp, Buf *begin, Buf *out)
{
    Tile *t = s->t;
    Buf pre = { .arena = t->arena, .indent = out->indent }, loops = pre, after = pre, blocks = pre;
    s->pre = &pre;
    for (int k = 0; k < s->next.len; k++)
        if (t->states.data[k].rank < 2 && tile_level(s, s->next.data[k]) == s->now)
            tile_assign_state(s, k);
    print_reds(s, WANT_ALWAYS, &loops, &after);
    for (Wants w = next_wants(s, WANT_ALWAYS); w; w = next_wants(s, w))
        print_wanted(s, w, warp, &blocks);
    buf_f(begin, "%s%s", pre.data ? pre.data : "", loops.data ? loops.data : "");
    buf_f(out, "%s%s", after.data ? after.data : "", blocks.data ? blocks.data : "");
    print_level_arrive(s, out);
    for (int k = 0; k < s->outs.len && !t->refused; k++)
        if (tile_out_wants(s, k) == WANT_ALWAYS && s->out_level[k] == s->now && !s->out_behind[k]) {
            s->is_handed = s->out_handed[k];
            tile_print_out(s, k, warp, s->is_handed ? &s->finish_last : out);
            s->is_handed = false;
        }
    print_level_barrier(s, out);
}

void tile_print_step(Step *s, Buf *head, Buf *out)
{
    Tile *t = s->t;
    int warp = 0;
    s->versions.len = 0;
    s->barriers = s->rows_kept = s->cols_kept = s->ones_kept = 0;
    s->exchange = 0;
    s->elements = 0;
    s->assigned = arena_alloc(t->arena, (size_t)t->states.len + 1);
    s->levels = 0;
    for (int i = 0; i < s->reds.len; i++) {
        Red *r = &s->reds.data[i];
        r->var = tile_unique(t, tile_text(t, "%s_%s", red_function(r->op), r->name));
        r->own = tile_unique(t, tile_text(t, "own_%s", r->var));
        s->levels = r->level > s->levels ? r->level : s->levels;
    }
    for (int k = 0; k < s->next.len; k++)
        if (t->states.data[k].rank == 2)
            buf_line(out, "%s %s[%d][%d];", t->real, tile_root_variable(s, &t->states.data[k]), t->lay.rr,
                     t->lay.rc);
    tile_place_outs(s);
    /* No store to shared memory stands before a read of the fetches: the compiler would take it for one of the same place, so
     * that a level's sums would be followed by a wait for what the next level reads. */
    Buf fetched = { .arena = t->arena, .indent = out->indent }, first = fetched, rest = fetched;
    s->fetched = s->kind == STEP_FORWARD || t->ahead || (s->kind == STEP_ADJOINT && t->early) ? &fetched : NULL;
    s->last_sums = s->finish_last = (Buf){ .arena = t->arena, .indent = out->indent };
    for (s->now = 0; s->now <= s->levels && !t->refused; s->now++)
        print_level(s, &warp, s->now ? &rest : &first, &rest);
    s->fetched = NULL;
    buf_f(head, "%s", fetched.data ? fetched.data : "");
    buf_f(out, "%s%s%s", first.data ? first.data : "",
          s->finish_last.data ? s->finish_last.data : "", rest.data ? rest.data : "");
    tile_print_late(s, &warp);
    if (s->late.data)
        buf_line(out, "if (s + 1 < steps) late(s + 1);");
    tile_print_behind(s);
}
