/* kernels_walk.c: what kernels share whose threads walk all steps: places in terms of a thread's units, the
 * names of its states, and loops that ask for what a step reads several steps ahead. In come a kernel that is
 * being printed and a step that is; out goes text. */
#include "kernels.h"

/* ---- units ---- */

void walk_begin(Kernel *k, UnitWalk *w)
{
    *w = (UnitWalk){ .meanings = k->indices };
    w->meaning = arena_alloc(k->p->m->arena, sizeof *w->meaning * (size_t)w->meanings);
    k->walk = w;
}

void walk_end(Kernel *k)
{
    arena_release(k->p->m->arena, k->walk->meaning, sizeof *k->walk->meaning * (size_t)k->walk->meanings);
    k->walk = NULL;
}

const IxExpr *walk_in_units(Kernel *k, const IxExpr *e)
{
    IndexId from[16];
    const IxExpr *to[16];
    int n = 0;
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        bool here = t->kind == IA_INDEX && t->index >= IX_FIRST && t->index < k->walk->meanings;
        if (!here || !k->walk->meaning[t->index] || n == 16)
            return NULL;
        from[n] = t->index;
        to[n++] = k->walk->meaning[t->index];
    }
    return ix_subst(k->p->m, e, from, to, n);
}

void walk_enter(Kernel *k, const Node *array, const IxExpr *const *map, const IxExpr **before)
{
    const IxExpr *inside[64];
    int n = k->walk ? array->naxes : 0;
    for (int i = 0; i < n; i++)
        inside[i] = walk_in_units(k, map[i]);
    for (int i = 0; i < n; i++) {
        before[i] = k->walk->meaning[array->axes[i]];
        k->walk->meaning[array->axes[i]] = inside[i];
    }
}

void walk_leave(Kernel *k, const Node *array, const IxExpr *const *before)
{
    for (int i = k->walk ? array->naxes - 1 : -1; i >= 0; i--)
        k->walk->meaning[array->axes[i]] = before[i];
}

/* ---- states ---- */

const char *state_name(Kernel *k, TensorId s)
{
    return k_text(k, "%s_%s", k->pr->dir == FORWARD ? "s" : "d", k->p->m->tensors.data[s].name);
}

/* ---- reads ahead ---- */

/* Steps whose reads are under way: as many as registers hold. */
int walk_depth(int64_t registers)
{
    return registers <= 6 ? 8 : registers <= 16 ? 4 : registers <= 40 ? 2 : 1;
}

/* Beyond the last step it is read again: without a condition nothing has to wait for what is read. */
static const char *step_or_last(Kernel *k, const char *n)
{
    bool forward = k->pr->dir == FORWARD;
    return k_text(k, forward ? "%s < dim_T ? %s : dim_T - 1" : "%s < dim_T ? dim_T - 1 - (%s) : 0", n, n);
}

static void declare_reads(Kernel *k, const WalkGroup *l)
{
    if (l->ahead == 0)
        return;
    buf_line(k->out, "struct reads_%d {%s };", l->number, l->fields);
    k_open(k, "const auto read_%d = [&](int64_t t, auto &ahead)", l->number);
    k_declare_rows(k);
    buf_f(k->out, "%s", l->early);
    k->out->indent--;
    buf_line(k->out, "};");
}

void walk_reads(Kernel *k, const WalkGroup *l, int depth)
{
    if (l->ahead == 0)
        return;
    declare_reads(k, l);
    buf_line(k->out, "reads_%d ahead_%d[%d];", l->number, l->number, depth);
    buf_line(k->out, "CELL_UNROLL");
    buf_line(k->out, "for (int u = 0; u < %d; u++)", depth);
    buf_line(k->out, "    if (dim_T > 0)");
    buf_line(k->out, "        read_%d(%s, ahead_%d[u]);", l->number, step_or_last(k, "u"), l->number);
}

void walk_next_reads(Kernel *k, const WalkGroup *l, int depth)
{
    if (l->ahead == 0)
        return;
    buf_line(k->out, "reads_%d next_%d[%d];", l->number, l->number, depth);
    buf_line(k->out, "CELL_UNROLL");
    buf_line(k->out, "for (int u = 0; u < %d; u++)", depth);
    const char *step = step_or_last(k, k_text(k, "begin + %d + u", depth));
    buf_line(k->out, "    read_%d(%s, next_%d[u]);", l->number, step, l->number);
}

void walk_take_reads(Kernel *k, const WalkGroup *l, int depth)
{
    if (l->ahead == 0)
        return;
    buf_line(k->out, "CELL_UNROLL");
    buf_line(k->out, "for (int u = 0; u < %d; u++)", depth);
    buf_line(k->out, "    ahead_%d[u] = next_%d[u];", l->number, l->number);
}
