/* kernels_early.c: reads in front of what needs them, in kernels that are built as trees: those of an
 * element before all that is computed and written there, so that none waits for another; those that are the
 * same for all neighbours before their loop; and what asks for the next step's elements. In come loads; out
 * go the locals that have what they read. */
#include "code.h"

void code_gather(Code *x, Gather *g)
{
    x->gathers = true;
    x->gathered = g->body = (KirBlock){ .data = NULL };
    g->outer = kir_enter(x->kir, &g->body);
}

void code_gather_end(Code *x, Gather *g)
{
    kir_enter(x->kir, g->outer);
    kir_append(x->kir, &x->gathered);
    kir_append(x->kir, &g->body);
    x->gathers = false;
}

const KirExpr *code_read_before(const Code *x, const KirExpr *load)
{
    for (int i = 0; i < x->reads.len; i++)
        if (kir_equal(x->reads.data[i].load, load))
            return x->reads.data[i].local;
    return NULL;
}

/* A local in the block, with what is read. */
static const KirExpr *read_in(Code *x, KirBlock *block, const char *name, const KirExpr *load)
{
    KirBlock *body = kir_enter(x->kir, block);
    const KirExpr *local = kir_let(x->kir, names_fresh(&x->k->locals, name), KT_VOID, load);
    kir_enter(x->kir, body);
    vec_push(x->kir->arena, &x->reads, ((CodeRead){ load, local, name }));
    return local;
}

bool code_is_batched(const Code *x, const KirExpr *place)
{
    return x->batch && kir_mentions(place, x->batch);
}

/* An element of an array with what is read for each of several elements. */
static const KirExpr *read_in_batch(Code *x, const char *name, const KirExpr *load)
{
    KirBlock *body = kir_enter(x->kir, &x->batch_arrays);
    name = names_fresh(&x->k->locals, name);
    const KirExpr *array = kir_array(x->kir, name, load->type.of, x->together, false);
    const KirExpr *local = kir_element(x->kir, array, x->j);
    kir_enter(x->kir, &x->batched);
    kir_assign(x->kir, local, load);
    kir_enter(x->kir, body);
    x->batch_reads++;
    vec_push(x->kir->arena, &x->reads, ((CodeRead){ load, local, name }));
    return local;
}

const KirExpr *code_early(Code *x, const Read *r, const char *name, const KirExpr *load)
{
    if (!x->gathers || x->away || !k_always_inside(x->k, r) || (x->wide && kir_mentions(load, x->along)))
        return load;
    const KirExpr *before = code_read_before(x, load);
    name = k_text(x->k, "x_%s", name);
    return before                     ? before
           : code_is_batched(x, load) ? read_in_batch(x, name, load)
                                      : read_in(x, &x->gathered, name, load);
}

const KirExpr *code_hoisted_read(Code *x, const char *name, const KirExpr *load)
{
    return read_in(x, &x->hoists, k_text(x->k, "r_%s", name), load);
}

/* ---- the next step's ---- */

void code_prefetch(Code *x, const KirExpr *place, const KirExpr *given)
{
    uint64_t hash = kir_expr_hash(place);
    for (int i = 0; i < x->prefetches.len; i++)
        if (x->prefetches.data[i].hash == hash && kir_equal(x->prefetches.data[i].place, place))
            return;
    vec_push(x->kir->arena, &x->prefetches, ((Prefetch){ place, given, hash }));
}

/* In the order in which they were wanted; those at other indices are left. */
static void ask_for(Code *x, const KirVar *index)
{
    int kept = 0;
    for (int i = 0; i < x->prefetches.len; i++) {
        const Prefetch p = x->prefetches.data[i];
        KirOpen there = { 0 };
        if (index && !kir_mentions(p.place, index)) {
            x->prefetches.data[kept++] = p;
            continue;
        }
        if (p.given)
            there = kir_if(x->kir, p.given);
        kir_do(x->kir, kir_call1(x->kir, "cell_prefetch", p.place));
        if (p.given)
            kir_close(x->kir, there);
    }
    x->prefetches.len = kept;
}

void code_prefetches(Code *x, const KirVar *index)
{
    bool any = false;
    for (int i = 0; i < x->prefetches.len; i++)
        any |= !index || kir_mentions(x->prefetches.data[i].place, index);
    if (!any)
        return;
    const KirExpr *next = code_add(x, x->t, code_int(x, 1)), *none = code_int(x, 0);
    bool forward = x->k->pr->dir == FORWARD;
    KirOpen more = kir_if(x->kir, forward ? code_binary(x, KB_LT, next, code_steps(x))
                                          : code_binary(x, KB_GT, x->t, none));
    ask_for(x, index);
    kir_close(x->kir, more);
}
