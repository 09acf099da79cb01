/* plan_columns.c: sums of columns with the rows that they read. In come the groups of a direction; out goes, for sums
 * over rows, the kernel that has these rows at hand and leaves partial sums of them, so that nothing reads the rows
 * again. */
#include "ir/marks.h"
#include "plan_pass.h"

/* All loops of a row kernel run over this extent, and rows are those of batch and time; or it is one loop,
 * which is no short one: a block takes a row at a time. */
static bool row_extent_is(const Plan *p, const Group *g, const Poly *extent)
{
    if (g->kind == G_MAP)
        return g->naxes == 1 && g->axes[0] == extent && g->batched && g->phase != PHASE_DURING &&
               !(extent->is_const && extent->value < 256) && extent != p->heads;
    if (g->kind != G_ROW || g->past || g->naxes || !g->batched || g->phase == PHASE_DURING || g->sums)
        return false;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]), *r = at(p, a->args[0]);
        bool reduces = plan_reduces(p, g->arrays.data[i]);
        if (reduces && (r->nbound != 1 || p->m->indices.data[r->bound[0]].extent != extent))
            return false;
        if (!reduces && a->naxes && p->m->indices.data[a->axes[0]].extent != extent)
            return false;
    }
    return true;
}

/* Is everything that the sums read there when the row kernel runs, or computed by it at the same element?
 * What an array reads is looked at once. */
static bool row_has(const Plan *p, const Phasing *s, NodeId sum, const Uses *uses, int row, Marks *arrays)
{
    const Program *pr = s->g;
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        IndexId which = -1;
        if (r->step)
            return false;
        if (r->is_tensor && (carried_tensor(s, r->id) || p->m->tensors.data[r->id].kind == T_STATE ||
                             p->m->tensors.data[r->id].kind == T_DINIT))
            return false;
        if (r->is_tensor || is_stored(s, r->id))
            continue;
        if (pr->group[r->id] < 0) {
            if (p->is_cat[r->id])
                return false;
            if (marks_first(arrays, r->id) && !row_has(p, s, sum, &s->uses[r->id], row, arrays))
                return false;
            continue;
        }
        if (pr->group[r->id] == row && r->nmap)
            ix_is_index(r->map[0], &which);
        if (pr->group[r->id] > row ||
            (pr->group[r->id] == row && r->nmap && (r->nmap > 1 || which != at(p, sum)->axes[0])))
            return false;
    }
    return true;
}

static bool reads_in_common(const Uses *a, const Uses *b)
{
    for (int i = 0; i < a->len; i++)
        for (int j = 0; j < b->len; j++) {
            const Read *x = &a->data[i].read, *y = &b->data[j].read;
            if (x->nmap == 1 && x->is_tensor == y->is_tensor && x->id == y->id)
                return true;
        }
    return false;
}

static bool reads_array(const Uses *uses, NodeId id)
{
    for (int i = 0; i < uses->len; i++)
        if (!uses->data[i].read.is_tensor && uses->data[i].read.id == id)
            return true;
    return false;
}

static bool sums_go_with(const Plan *p, const Phasing *s, const Group *sums, int row)
{
    const Group *g = &s->g->groups.data[row];
    bool shares = false;
    if (sums->batched != g->batched || sums->timed != g->timed || !row_extent_is(p, g, sums->axes[0]))
        return false;
    for (int i = 0; i < sums->arrays.len; i++) {
        NodeId id = sums->arrays.data[i];
        const Node *r = at(p, at(p, id)->args[0]);
        for (int k = 0; k < r->nbound; k++)
            if (r->bound[k] >= IX_FIRST)
                return false;
        Marks *arrays = marks_begin(p->m);
        bool has = row_has(p, s, id, &s->uses[id], row, arrays);
        marks_end(arrays);
        if (!has)
            return false;
        for (int j = 0; j < g->arrays.len; j++)
            shares |= reads_in_common(&s->uses[id], &s->uses[g->arrays.data[j]]) ||
                      reads_array(&s->uses[id], g->arrays.data[j]);
    }
    return shares;
}

/* Sums over batch and time of what the walk of all steps has are that walk's. */
static void join_walk(Plan *p, Program *pr)
{
    int walk = 0;
    while (walk < pr->groups.len && pr->groups.data[walk].kind != G_UNITS)
        walk++;
    for (int c = walk + 1; c < pr->groups.len; c++) {
        Group *sums = &pr->groups.data[c];
        bool all = sums->kind == G_COLUMN;
        for (int i = 0; i < sums->arrays.len && all; i++)
            all = p->schedule->takes_sum(p, pr, sums->arrays.data[i]);
        if (all)
            sums->by_rows = 1 + walk;
    }
}

/* Sums over rows of what a row kernel reads anyway are that kernel's: one pass over memory instead of two. Its
 * block takes many rows, and a thread keeps the sums of its columns. */
void join_columns(Plan *p, const Phasing *s)
{
    Program *pr = s->g;
    if (p->schedule->takes_sum)
        join_walk(p, pr);
    int wide = p->request->cpu ? 1 : plan_width(p);
    for (int c = 0; c < pr->groups.len; c++) {
        Group *sums = &pr->groups.data[c];
        if (sums->kind != G_COLUMN || sums->by_rows || sums->naxes != 1 ||
            (sums->axes[0]->is_const && sums->axes[0]->value % wide))
            continue;
        for (int r = 0; r < c && !sums->by_rows; r++)
            if (sums_go_with(p, s, sums, r)) {
                Group *row = &pr->groups.data[r];
                row->pointwise = row->kind == G_MAP;
                row->kind = G_ROW;
                row->naxes = 0;
                sums->by_rows = 1 + r;
                row->sums = 1 + c;
            }
    }
}

/* The group whose kernel computes an array's elements or terms; -1: none. */
int kernel_of(const Program *pr, NodeId id)
{
    int g = pr->group[id];
    return g >= 0 && pr->groups.data[g].by_rows ? pr->groups.data[g].by_rows - 1 : g;
}
