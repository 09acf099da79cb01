/* resident_head.c: walks that have a head of a sequence in a block, or in a cluster of blocks. In comes a
 * step's walk (resident_step.c); out go, where one of these has all that a head takes, walks whose threads
 * have an element each for all steps. Guaranteed: blocks, or clusters, read nothing of each other. */
#include "resident.h"

/* Every state has the axes of the step's groups, and no product reads but the one. */
static bool states_of_heads(const Plan *p, const ResidentWalk *w)
{
    const ResidentProduct *x = w->products;
    for (TensorId t = 0; t < p->m->tensors.len; t++) {
        const Tensor *s = &p->m->tensors.data[t];
        int before = p->program[FORWARD].before[t];
        const Poly *heads = poly_const(p->m, 1);
        if (s->kind != T_STATE)
            continue;
        for (int i = 0; i + 1 < s->rank; i++)
            heads = poly_mul(p->m, heads, s->axes[i]);
        if (s->rank != w->naxes || s->axes[s->rank - 1] != w->units || heads != w->heads || s->complex ||
            (before >= 0 && x->operand_ready && before != p->program[FORWARD].node[x->operand].slot))
            return false;
    }
    return true;
}

/* Of an earlier or later step's operand there is no trace in the block, so nothing else may read it in the
 * step. */
static bool has_heads(const Plan *p, const Program *pr, const ResidentWalk *step)
{
    return !step->several && resident_makes_operand(p, pr, step, step->products) && states_of_heads(p, step);
}

/* A thread has an element of a head. */
static ResidentWalk *head_walk(Plan *p, const Program *pr, const ResidentWalk *step, const char *suffix)
{
    ResidentWalk *w = resident_copy(p, pr, step, suffix);
    w->elements = ELEMENTS_OF_THREAD;
    w->batch = HEAD_BATCH;
    w->posts = NULL;
    w->products[0].split = 1;
    return w;
}

/* ---- a head in a block ---- */

/* Heads that fit into a block need nothing of other blocks. Where the units are known, the device code
 * keeps in registers what fits there (cell_head). */
void resident_block(Plan *p, Program *pr, const ResidentWalk *step)
{
    const ResidentProduct *x = step->products;
    if (!has_heads(p, pr, step) || (step->units->is_const && step->units->value > HEAD_THREADS))
        return;
    ResidentWalk *w = head_walk(p, pr, step, "heads");
    w->sharing = SHARE_BLOCK;
    w->weights = w->units->is_const ? WEIGHTS_BOTH : WEIGHTS_SHARED;
    w->exchange = EXCHANGE_SHARED;
    w->own = w->threads = HEAD_THREADS;
    w->cluster = 1;
    resident_add(p, pr, w);
    buf_f(&p->reasons,
          "one kernel walks the %s steps where a block takes all that a sequence%s has: %d times its units "
          "squared of the param, in shared memory\n",
          resident_way(pr), poly_is_one(w->heads) ? "" : "'s head", x->inner * x->outer);
}

/* ---- a head in a cluster ---- */

/* Units of each of a cluster's blocks, whose rows it keeps in registers, half of all that it has; the
 * elements of a param for which a block that has a head has room whatever else it needs; and the units
 * whose weights it keeps in registers. */
enum { CLUSTER_OWN = 64, BLOCK_WEIGHTS = 64 * 1024, HEAD_KEPT = 128 };

/* Where a block has room for a head, a cluster may still be faster; not for several heads, each of which
 * would take one, nor where the block's warps keep the weights in registers (cell_head; measured on an
 * H200, E1 of 128 units, known: 0.18 ms for 0.31; of 144, where they do not: 0.45 for 0.34). */
static bool block_suffices(const ResidentWalk *step, int64_t units)
{
    return poly_is_one(step->heads) ? units <= HEAD_KEPT
                                    : units <= HEAD_THREADS && units * units <= BLOCK_WEIGHTS;
}

/* A head for which one block is too small, or slow, may fit into a cluster, whose blocks tell each other
 * what they make of the operand. */
void resident_cluster(Plan *p, Program *pr, const ResidentWalk *step)
{
    const ResidentProduct *x = step->products;
    int64_t units = step->units->is_const ? step->units->value : 0;
    if ((p->dtype != DT_BF16 && p->dtype != DT_F16) || !has_heads(p, pr, step) ||
        units > CLUSTER_BLOCKS * CLUSTER_OWN)
        return;
    if (units > 0 && block_suffices(step, units))
        return;
    if (x->inner * x->outer > 1) { /* several gates (LSTM): registers spill, and nothing is measured */
        buf_f(&p->reasons,
              "no cluster of blocks walks the %s steps of a sequence by itself: its registers have one "
              "weight for "
              "each pair of units, and the product %d\n",
              resident_way(pr), x->inner * x->outer);
        return;
    }
    ResidentWalk *w = head_walk(p, pr, step, "cluster");
    w->sharing = SHARE_CLUSTER;
    w->weights = WEIGHTS_REGISTERS;
    w->exchange = EXCHANGE_CLUSTER;
    w->own = CLUSTER_OWN;
    w->threads = CLUSTER_THREADS;
    w->cluster = CLUSTER_BLOCKS;
    resident_add(p, pr, w);
    bool one = poly_is_one(w->heads);
    buf_f(&p->reasons,
          "one kernel walks the %s steps where a cluster of %d blocks takes all that a sequence%s has: %d "
          "units "
          "each, at most (sm_90, and no block alone does%s)\n",
          resident_way(pr), w->cluster, one ? "" : "'s head", w->own,
          one ? intern_f(p->m->c, ", or there are %d units or more", CLUSTER_UNITS) : "");
}
