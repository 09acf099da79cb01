/* tile_take.c: which rows a walk in one kernel (tile) makes itself. In come the phases of forward; taken into
 * the walk is what stands in front of it, is read there only, and is pointwise along the rows that a block
 * reads, with sums of these rows: queries and keys behind their norms. Warps of the kernel make them for a
 * chunk of steps while the others walk the chunk before it, so they are neither written nor read. Guaranteed:
 * all that the value is made of can be fetched by the block, and whoever reads it reads its own row. */
#include "plan/plan_pass.h"
#include "plan/reads.h"
#include "plan/split_sums.h"
#include "tile.h"

/* Who reads a value. length: of the rows of those who are made with it; 0: of none so far. */
typedef struct Readers { bool walk, made, elsewhere; int64_t length; } Readers;

typedef struct Making {
    const Phasing *s;
    const Poly *par[MAX_PARALLEL];
    int npar;
    Readers *readers;             /* per node */
} Making;

/* The axis that the array's elements, or those that it adds up, lie along; -1: neither. */
static IndexId along(const Making *m, NodeId id)
{
    const Node *a = at(m->s->p, id), *body = at(m->s->p, a->args[0]);
    if (plan_reduces(m->s->p, id))
        return a->naxes == m->npar && body->nbound == 1 && body->reduce == R_SUM ? body->bound[0] : -1;
    return a->naxes == m->npar + 1 ? a->axes[m->npar] : -1;
}

/* Each read of the parallel axes is at one index, of that axis's size. */
static bool reads_head(const Making *m, const Use *u)
{
    for (int k = 0; k < m->npar; k++) {
        IndexId which;
        if (k >= u->read.nmap || !ix_is_index(u->read.map[k], &which) || extent_of(m->s->p, which) != m->par[k])
            return false;
    }
    return !u->read.step;
}

/* It is at the reader's own row and element. */
static bool reads_own(const Making *m, NodeId reader, const Use *u)
{
    const Node *a = at(m->s->p, reader);
    IndexId which;
    for (int k = 0; k < m->npar; k++)
        if (k >= u->read.nmap || !ix_is_index(u->read.map[k], &which) || which != a->axes[k])
            return false;
    if (u->read.step || u->read.nmap == m->npar)
        return !u->read.step;
    return u->read.nmap == m->npar + 1 && ix_is_index(u->read.map[m->npar], &which) && which == along(m, reader);
}

/* A window of a row, which a block can fetch: steps, histories and integers that say places are for kernels. */
static bool can_fetch(const Making *m, const Use *u)
{
    const Read *r = &u->read;
    const Tensor *x = r->is_tensor ? &m->s->p->m->tensors.data[r->id] : NULL;
    if (r->step || (x && x->kind != T_PARAM && (x->kind != T_INPUT || x->dtype == DT_I32)))
        return false;
    for (int k = 0; k < r->nmap; k++)
        for (int i = 0; i < r->map[k]->nterms; i++)
            if (r->map[k]->terms[i].kind != IA_INDEX)
                return false;
    return x || rows_dep(m->s->p, r->id) == (DEP_BATCH | DEP_TIME);
}

static bool takes_any(void *of, const Read *r)
{
    (void)of;
    (void)r;
    return true;
}

static bool has_sums(const Plan *p, NodeId id)
{
    return !every_read(p, id, takes_any, NULL);
}

/* Rows of a length that lanes share, or sums of these, or what is made of such sums for other rows. */
static bool has_form(const Making *m, NodeId id)
{
    const Plan *p = m->s->p;
    const Node *a = at(p, id);
    const Readers *r = &m->readers[id];
    IndexId i = along(m, id);
    const Poly *n = i < IX_FIRST ? NULL : extent_of(p, i);
    for (int k = 0; k < m->npar; k++)
        if (a->naxes <= k || extent_of(p, a->axes[k]) != m->par[k])
            return false;
    if (!n)
        return a->naxes == m->npar && !plan_reduces(p, id) && r->made && !r->walk;
    return n->is_const && tile_makes(n->value) && (!r->length || r->length == n->value);
}

static bool may_make(const Making *m, NodeId id)
{
    const Phasing *s = m->s;
    const Plan *p = s->p;
    const Readers *r = &m->readers[id];
    NodeId body = at(p, id)->args[0];
    if (s->g->phase[id] != PHASE_BEFORE || r->elsewhere || !(r->walk || r->made) || p->rounded[id] || is_root(p->m, id) ||
        (p->past && p->past[id]) || rows_dep(p, id) != (DEP_BATCH | DEP_TIME) || !has_form(m, id) ||
        has_sums(p, plan_reduces(p, id) ? at(p, body)->args[0] : body))
        return false;
    for (int i = 0; i < s->uses[id].len; i++)
        if (!can_fetch(m, &s->uses[id].data[i]))
            return false;
    return true;
}

/* What the value reads is now read by the walk, by a row that is made with it, or elsewhere. */
static void note_reads(Making *m, NodeId id, bool taken)
{
    const Phasing *s = m->s;
    IndexId i = along(m, id);
    int64_t n = i >= IX_FIRST && extent_of(s->p, i)->is_const ? extent_of(s->p, i)->value : m->readers[id].length;
    for (int k = 0; k < s->uses[id].len; k++) {
        const Use *u = &s->uses[id].data[k];
        Readers *r = u->read.is_tensor ? NULL : &m->readers[u->read.id];
        if (!r)
            continue;
        if (!taken) {
            bool walk = s->g->phase[id] == PHASE_DURING && reads_head(m, u);
            r->walk |= walk;
            r->elsewhere |= !walk;
            continue;
        }
        r->made = true;
        r->elsewhere |= !reads_own(m, id, u) || (r->length && r->length != n);
        r->length = n;
    }
}

/* Readers stand behind what they read. Where nothing is parallel, the few blocks of the walk would do what a kernel
 * does on all multiprocessors; blocks of a cluster would each do all of it. A decay, a number of a head and step, is not
 * worth its code, which is cold in every chunk (measured on an H200: the gated delta rule forward 0.56 ms, with it 0.65). */
void tile_take(Phasing *s)
{
    const Plan *p = s->p;
    Making m = { .s = s };
    if (s->g->dir != FORWARD)
        return;
    m.npar = parallel_of_states(p->m, m.par);
    s->g->taken = plan_alloc(p, sizeof *s->g->taken, p->n_nodes);
    for (int k = 1; k < m.npar; k++)
        for (int i = 0; i < k; i++)
            if (m.par[i] == m.par[k])
                return;
    if (m.npar < 1 || p->trial->cluster > 1 || p->trial->no_made)
        return;
    m.readers = plan_alloc(p, sizeof *m.readers, p->n_nodes);
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) {
        if (!s->needed[id])
            continue;
        bool taken = may_make(&m, id);
        note_reads(&m, id, taken);
        if (taken) {
            s->g->taken[id] = true;
            s->g->phase[id] = PHASE_DURING;
        }
    }
}
