/* cuda.c: the fast path of one instance. In: a spec and the settings of its compilation, whose reference was
 * compiled before; out: the plan, and the two texts of the CUDA side (kernels, and the host file with the
 * launch plans). What the reference's compilation has said already is not said again. */
#include <string.h>

#include "commands.h"
#include "plan.h"

static Plan *plan_once(Compiler *c, const char *spec, const char *prefix)
{
    int said = c->diags.len;
    Module *m = compile(c, spec, fast_passes);
    if (!m)
        return NULL;
    if (prefix)
        m->name = prefix;
    if (said)
        c->diags.len = said;
    return plan_make(m, c->dtype, c->schedule);
}

/* The same cell for GPUs whose blocks have so much shared memory, and form no clusters. What is slow about it was said, or is no news:
 * NULL where a schedule was forced that cannot do with so little. */
static Plan *plan_smaller(Compiler *c, const char *spec, const char *prefix, int64_t bytes)
{
    int said = c->diags.len;
    Schedule wanted = c->schedule;
    TileHints hints = c->tile;
    if (c->is_tuned) {            /* for another GPU: nobody asked for it here */
        c->schedule = SCHED_AUTO;
        c->tile = (TileHints){ 0 };
    }
    c->block_memory = bytes;
    c->one_block = true;
    Plan *p = plan_once(c, spec, intern_f(c, "%s_%dk", prefix, (int)(bytes / 1024)));
    c->schedule = wanted;
    c->tile = hints;
    c->block_memory = 0;
    c->one_block = false;
    c->interval = 0;
    if (!c->errors)
        c->diags.len = said;
    return p;
}

/* SHORT_SEGMENT: steps between checkpoints of which so few fit on a multiprocessor that the blocks of a cluster are better off with the
 * state, where a call leaves them idle (measured on an H200: E79 of 64, 4 steps, 1.50 ms for 1.64 in a cluster of 2; of 72, 3 steps,
 * 3.07 for 2.33 in one of 4). */
enum { SHORT_SEGMENT = 3 };

/* Whoever says something of the walk means the one that all calls can take. */
static bool may_spread(const Compiler *c, const Plan *first)
{
    return first->interval <= SHORT_SEGMENT && !first->shares_sm && memcmp(&c->tile, &(TileHints){ 0 }, sizeof c->tile) == 0;
}

/* Is it another plan than the one for calls with more blocks? An interval that was asked for is that of both. */
static bool differs(const Compiler *c, const Plan *roomy, const Plan *first)
{
    return roomy->interval > first->interval || (c->tile.interval && roomy->interval == first->interval && roomy->spreads);
}

/* The same cell for calls that leave each block a multiprocessor, so that all its memory is for the steps between two
 * checkpoints, or several of them. NULL where nothing comes of it, or none of the architectures can run it. */
static Plan *plan_roomy(Compiler *c, const char *spec, const Plan *first)
{
    if (first->schedule != SCHED_TILE || first->cluster > 1 || !(first->shares_sm || may_spread(c, first)))
        return NULL;
    int said = c->diags.len, errors = c->errors;
    c->roomy = true;
    c->spread = !first->shares_sm;
    Plan *p = plan_once(c, spec, first->m->name);
    c->roomy = c->spread = false;
    c->diags.len = said;          /* nobody asked for it: what is wrong with it is no news */
    if (c->errors > errors) {
        c->errors = errors;
        return NULL;
    }
    if (!p || p->schedule != SCHED_TILE || !differs(c, p, first) || !may_run(c->archs, p->block_memory, p->cluster > 1))
        return NULL;
    p->is_roomy = true;
    return p;
}

Plan *cuda_plan(Compiler *c, const char *spec, const char *prefix)
{
    Plan *first = plan_once(c, spec, prefix), *p = first;
    if (first)
        first->roomy = plan_roomy(c, spec, first);
    /* Who asks for clusters gets them, or an error at the call. */
    if (first && first->cluster > 1 && c->schedule == SCHED_TILE && !c->is_tuned)
        return c->errors ? NULL : first;
    for (int64_t bytes; p && (bytes = block_memory_below(c->archs, p->block_memory, p->cluster > 1)); p = p->smaller)
        p->smaller = plan_smaller(c, spec, first->m->name, bytes);
    return c->errors ? NULL : first;
}
