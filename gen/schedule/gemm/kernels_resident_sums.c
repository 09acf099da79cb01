/* kernels_resident_sums.c: CUDA text of sums over batch and time in a kernel that walks all steps of
 * schedule gemm. In come the COLUMN groups whose terms a step has at hand (resident_sums.c); out go a local
 * for each sum, which a thread adds to at every step for its own unit, and what stores it behind the last:
 * a row of partial sums for each sequence. What adds the rows is the second kernel of the group
 * (kernels_column.c). */
#include <string.h>

#include "base/mutate.h"
#include "kernels/kernels.h"
#include "kernels_resident.h"
#include "resident.h"

/* The local that has a term's sum already, for another param; or NULL. */
static const char *sum_of(const Kernel *k, const char *term)
{
    for (int i = 0; i < gemm(k)->step_sums.len; i++) {
        const StepSum *s = &gemm(k)->step_sums.data[i];
        if (s->group == gemm(k)->group && strcmp(s->term, term) == 0)
            return s->name;
    }
    return NULL;
}

static void add(Kernel *k, const Group *sums, int number, NodeId named, const char *term,
                const IxExpr *column)
{
    StepSum s = { .name = sum_of(k, term),
                  .term = term,
                  .group = gemm(k)->group,
                  .buffer = sums->partial,
                  .number = number };
    s.columns = k_poly(k, array_elements(k->p->m, sums->arrays.data[number]));
    s.column = ix_text(&k->printer, column);
    s.shares = s.name;
    if (!s.shares) {
        s.name = k_local(k, "total", named);
        buf_line(k->out, mutate("last-term") ? "%s = %s;" : "%s += %s;", s.name, term);
    }
    vec_push(k->p->m->arena, &gemm(k)->step_sums, s);
}

static void add_pieces(Kernel *k, const Group *sums, int number, NodeId row, const Piece *pieces, int n)
{
    if (!sum_of(k, k->value[pieces[0].array]))
        k_comment(k, sums->arrays.data[number]);
    for (int i = 0; i < n; i++) {
        NodeId id = pieces[i].array;
        Read self = read_itself(k->p->m, id);
        Storage within = { .alias_offset = pieces[i].offset, .lead = pieces[i].lead };
        within.row = elements_from(k->p->m, row, pieces[i].lead);
        k_bind_axes(k, id);
        add(k, sums, number, id, k->value[id], storage_linear(k->p->m, &self, &within));
    }
}

static void add_unit(Kernel *k, const Group *sums, int number)
{
    NodeId id = sums->arrays.data[number];
    Read self = read_itself(k->p->m, id);
    Named named = { 0 };
    k_bind_axes(k, id);
    k_comment(k, id);
    const char *term = k_body(k, k_node(k, k_node(k, id)->args[0])->args[0], &named);
    add(k, sums, number, id, term, read_linear(k->p->m, &self));
    k_forget(k, &named);
}

static void add_sum(Kernel *k, const Group *sums, int number)
{
    Piece pieces[32];
    NodeId row;
    int n = resident_sum_pieces(k->p, sums->arrays.data[number], &row, pieces, 32);
    if (n)
        add_pieces(k, sums, number, row, pieces, n);
    else
        add_unit(k, sums, number);
}

/* Behind all of the step that other threads wait for. */
void step_sums_add(Kernel *k)
{
    Buf *out = k->out;
    k->out = &k->walk->late;
    for (int i = 0; i < k->pr->groups.len; i++) {
        const Group *sums = &k->pr->groups.data[i];
        bool here = sums->by_steps && &k->pr->groups.data[sums->by_steps - 1] == k->g;
        for (int j = 0; here && j < sums->arrays.len; j++)
            add_sum(k, sums, j);
    }
    k->out = out;
}

void step_sums_declare(Kernel *k)
{
    for (int i = 0; i < gemm(k)->step_sums.len; i++)
        if (!gemm(k)->step_sums.data[i].shares)
            buf_line(k->out, "%s %s = 0;", k->real, gemm(k)->step_sums.data[i].name);
}

bool step_sums_of(const Kernel *k, int group)
{
    for (int i = 0; i < gemm(k)->step_sums.len; i++)
        if (gemm(k)->step_sums.data[i].group == group)
            return true;
    return false;
}

void step_sums_store(Kernel *k, int group, const char *before)
{
    for (int i = 0; i < gemm(k)->step_sums.len; i++) {
        const StepSum *s = &gemm(k)->step_sums.data[i];
        if (s->group != group)
            continue;
        const char *row = s->number ? k_text(k, "(%d * dim_B + b)", s->number) : "b";
        buf_line(k->out, "%s[%s * %s + %s] = %s%s;", k_written(k, REF_BUFFER, s->buffer, k->p->compute), row,
                 s->columns, k_bare(k, s->column), before, s->name);
    }
}
