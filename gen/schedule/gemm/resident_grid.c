/* resident_grid.c: walks by all blocks of a grid together, each of which has some units of all sequences.
 * In comes a step's walk (resident_step.c); out go, beside it, walks of the same step in pairs of blocks
 * and for more sequences at once. Guaranteed: what a block reads of another is the operand of a product. */
#include "resident.h"

/* Blocks that read the operand until it is there read it more than once; where 128 blocks do, that takes
 * longer than what it saves (measured on an H200, width 1024 forward: LSTM 1.94 ms for 1.75 with posts, E1,
 * with half as many blocks, 1.05 for 1.29). In f32, where blocks of a cluster divide k, posts are faster with
 * few blocks too (measured on an H200: GRU 1024 both ways, 66 blocks, 8.18 ms with posts, 8.68 with marks). */
enum { MARKED_OWN = 16 };

static bool waits_by_marks(const Plan *p, const Program *pr, const ResidentWalk *w, const ResidentProduct *x)
{
    bool few = w->own >= MARKED_OWN && (p->dtype != DT_F32 || x->split == 1);
    return (w->several || few) && resident_marks_operand(p, pr, w, x);
}

/* More units in a block are fewer blocks to wait for, and fewer reads of the operand; 16 units of up to
 * four gates in 16 bits fit for as many as 1280 units and more. Backward's blocks divide k as well, so that
 * each reads only its part of the operand (measured on an H200, LSTM 1024 backward: 2.2 ms with clusters of
 * 4 and 16 units, 2.8 ms with 8 units and no cluster). f32 has room for half of that; three pieces have room
 * for 16 units as well, since a cluster of three has each once, and with 8 a GPU of 132 multiprocessors does
 * not hold the clusters of 1024 units (on an H200 GRU 1024 both ways 8.5 ms with 16, 12.8 by kernels). */
static int own_of(const Plan *p, const ResidentProduct *x)
{
    if (p->dtype == DT_F32)
        return (x->inner > 1 && x->inner * x->outer != 3) || x->outer > 2 ? 8 : 16;
    return x->inner > 1 || x->outer <= 4 ? 16 : 8;
}

/* A block that reads all pieces would read more than it multiplies. In f32 its part of the weights fits for
 * clusters of up to 3. */
static int split_of(const Plan *p, const ResidentProduct *x)
{
    int split = x->inner;
    while (p->dtype == DT_F32 && (split > 3 || x->inner % split))
        split--;
    return split;
}

static int posts_of(const ResidentProduct *x)
{
    return PANEL_POSTS * (x->inner % x->split ? x->split : 1);
}

static void set_posts(Plan *p, ResidentWalk *w)
{
    int all = 0;
    for (int i = 0; i < w->nproducts; i++) {
        w->products[i].first_post = all;
        all += posts_of(&w->products[i]);
    }
    w->posts = poly_const(p->m, all);
}

/* Rows of units, times pieces of k, of all weights that differ. */
static int all_pieces(const ResidentWalk *w)
{
    int all = 0;
    for (int i = 0; i < w->nproducts; i++)
        all += w->products[i].first_same == i ? w->products[i].inner * w->products[i].outer : 0;
    return all;
}

/* With weights of several products a thread has no registers to spare for them. */
static Weights place_of_weights(const ResidentWalk *w)
{
    for (int i = 0; i < w->nproducts; i++)
        if (w->products[i].first_same > 0)
            return WEIGHTS_SHARED;
    return WEIGHTS_BOTH;
}

/* All products have as many units in a block. What has as many pieces of k as a cluster has blocks, or some
 * times as many, is divided among these; of a vector that is one piece each block reads all. */
void resident_divide(Plan *p, ResidentWalk *w)
{
    enum { LARGE = 16, SMALL = 8, MOST_PIECES = 6 };
    w->own = !w->several                                                             ? own_of(p, w->products)
             : all_pieces(w) <= (p->dtype == DT_F32 ? MOST_PIECES / 2 : MOST_PIECES) ? LARGE
                                                                                     : SMALL;
    w->cluster = 1;
    w->batch = PANEL_TURN;
    w->threads = PANEL_THREADS;
    w->weights = place_of_weights(w);
    for (int i = 0; i < w->nproducts; i++) {
        int split = split_of(p, &w->products[i]);
        w->cluster = split > w->cluster ? split : w->cluster;
    }
    for (int i = 0; i < w->nproducts; i++)
        w->products[i].split = w->products[i].inner % w->cluster == 0 ? w->cluster : 1;
    set_posts(p, w);
}

int resident_keep(const ResidentWalk *w)
{
    enum { KEPT = 16 };
    return w->weights == WEIGHTS_BOTH ? KEPT : 0;
}

/* Units of a block of a pair, which has the rows of twice as many. */
enum { PAIR_OWN = 8 };

/* Blocks that need the whole operand read half of it each where they can share the rows of both, and then
 * marks pay for twice as many blocks. NULL: they need not. */
static ResidentWalk *in_pairs(Plan *p, const Program *pr, const ResidentWalk *w)
{
    if (w->several || w->products[0].inner > 1 || w->products[0].outer <= 2)
        return NULL;
    ResidentWalk *pairs = resident_copy(p, pr, w, "pairs");
    pairs->own = PAIR_OWN;
    pairs->cluster = pairs->products[0].split = 2;
    pairs->products[0].marks = p->dtype != DT_F32 && resident_marks_operand(p, pr, w, w->products);
    set_posts(p, pairs);
    return pairs;
}

/* The same for more sequences than PANEL_TURN: a step of so many takes little more than one of 16, where it
 * would be two of these. */
static ResidentWalk *for_more(Plan *p, const Program *pr, const ResidentWalk *w)
{
    if (w->several || (p->dtype != DT_BF16 && p->dtype != DT_F16))
        return NULL;
    ResidentWalk *wide = resident_copy(p, pr, w, "wide");
    wide->batch = PANEL_WIDE;
    return wide;
}

static void say_grid(Plan *p, const Program *pr, const ResidentWalk *w, bool pairs, bool wide)
{
    const char *products =
        w->nproducts == 1 ? "its product" : intern_f(p->m->c, "their %d products", w->nproducts);
    if (w->several)
        buf_f(&p->reasons,
              "one kernel walks the %s steps, with the weights of %s, where the device holds its blocks: "
              "%d units each%s\n",
              resident_way(pr), products, w->own,
              w->cluster > 1 ? intern_f(p->m->c, ", in clusters of %d (sm_90)", w->cluster) : "");
    else
        buf_f(&p->reasons,
              "one kernel walks the %s steps where the device holds its blocks: %d units and %d rows of "
              "the product each%s\n",
              resident_way(pr), w->own, w->own * w->products[0].outer,
              pairs ? "; in clusters of two (sm_90) each reads half of the operand" : "");
    if (wide)
        buf_f(&p->reasons,
              "another one, which multiplies %d sequences at once, walks those of more than "
              "%d\n",
              PANEL_WIDE, PANEL_TURN);
}

void resident_grid(Plan *p, Program *pr, const ResidentWalk *step)
{
    ResidentWalk *w = resident_copy(p, pr, step, "steps");
    w->posts_buffer = p->buffers.len;
    for (int i = 0; i < w->nproducts; i++) {
        ResidentProduct *x = &w->products[i];
        resident_keep_operand(p, pr, x);
        x->marks = waits_by_marks(p, pr, w, x);
        x->marks_few = x->marks && w->own < MARKED_OWN;
    }
    ResidentWalk *pairs = in_pairs(p, pr, w), *wide = for_more(p, pr, pairs ? pairs : w);
    Buffer posts = { .name = intern_f(p->m->c, "posts %d", pr->dir),
                     .dtype = DT_I32,
                     .inference = true,
                     .elements = pairs ? pairs->posts : w->posts };
    vec_push(p->m->arena, &p->buffers, posts);
    if (wide)
        resident_add(p, pr, wide);
    if (pairs)
        resident_add(p, pr, pairs);
    resident_add(p, pr, w);
    say_grid(p, pr, w, pairs, wide);
}
