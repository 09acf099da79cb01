/* plan_text.c: a plan as text. In: a plan, behind any of its passes. Out: its module as text (ir_text.c), and behind
 * that what is planned so far. Guaranteed: plan_read (plan_read.c) gives a plan back that prints as the same text, and
 * of which plan_verify says the same.
 *
 *     plan after fused schedule gemm calls any dtype f32 compute f32
 *     value %15 rounded                               an array, and what is special about it
 *     buffer 2 "h_next" reserve f32 elements {B*T*H} inference
 *     forward
 *     tensor 0 "x" argument 0 batched timed f32       where a tensor lies
 *     carried 4 "h" initial 1                         buffers of what a state carries
 *     %19 "h_next" during group 3 reserve 2 batched timed f32     when an array is computed, by what, where it lies
 *     group 3 map during "elman_fwd_step_3" threads 128 batched timed arrays %19 reads %15 tensor 2
 *
 * Sizes stand in braces, as in a spec. Not in the text: kernels (--dump-after kernels), formulas, and at which places
 * of an operand a product begins to read, but for its offset. */
#include "emit/emit.h"
#include "ir/ir_raw.h"
#include "plan_text.h"

#define OF(type, field)                                                                                      \
    {                                                                                                        \
#field, offsetof(type, field)                                                                        \
    }

const Field plan_value_flags[] = {
    { "alias", offsetof(Plan, is_alias) },
    { "pieces", offsetof(Plan, is_cat) },
    OF(Plan, time_first),
    OF(Plan, rounded),
    OF(Plan, narrow),
    OF(Plan, kept),
    OF(Plan, summed),
    OF(Plan, from_product),
    OF(Plan, again),
    OF(Plan, rematerialised),
    OF(Plan, unstored),
    { NULL, 0 },
};
const Field plan_buffer_flags[] = {
    OF(Buffer, by_rows), OF(Buffer, inference), OF(Buffer, time_first), OF(Buffer, untimed), { NULL, 0 }
};
const Field plan_buffer_numbers[] = { OF(Buffer, arrays),    OF(Buffer, each), OF(Buffer, most),
                                      OF(Buffer, per_steps), OF(Buffer, ring), { NULL, 0 } };
const Field plan_group_flags[] = { OF(Group, batched),       OF(Group, timed),  OF(Group, flat),
                                   OF(Group, packed),        OF(Group, past),   OF(Group, pointwise),
                                   OF(Group, unless_walked), OF(Group, always), { NULL, 0 } };
const Field plan_group_numbers[] = { OF(Group, threads),  OF(Group, threads_2), OF(Group, lanes),
                                     OF(Group, share),    OF(Group, along),     OF(Group, sums),
                                     OF(Group, by_rows),  OF(Group, by_steps),  OF(Group, partial),
                                     OF(Group, pointers), OF(Group, together),  { NULL, 0 } };
const Field plan_scatter_numbers[] = { OF(Scatter, axis),   OF(Scatter, place),
                                       OF(Scatter, keys),   OF(Scatter, order),
                                       OF(Scatter, counts), { "sums", offsetof(Scatter, partial) },
                                       { NULL, 0 } };
const Field plan_carried[] = {
    OF(Program, initial), OF(Program, carry), OF(Program, before), OF(Program, checkpoint), { NULL, 0 }
};
const char *const plan_phase_words[] = { "none", "param", "before", "during", "after", NULL };
const char *const plan_home_words[] = { "nowhere", "argument", "workspace", "reserve", NULL };
const char *const plan_kind_words[] = { "map", "row", "column", "scatter", "product", "walk", "units", NULL };
const char *const plan_calls_words[] = { "any", "few", "many", "long", "short", "split", NULL };

static void put_string(const char *s, Buf *out)
{
    buf_f(out, " \"%s\"", s); /* names of arrays, buffers and kernels have no quotes in them */
}

static void put_size(const Plan *p, const char *word, const Poly *size, Buf *out)
{
    if (!size)
        return;
    buf_f(out, " %s {", word);
    poly_print(p->m, size, out);
    buf_f(out, "}");
}

static void put_flags(const void *of, const Field *f, Buf *out)
{
    for (; f->word; f++)
        if (FIELD(bool, of, f))
            buf_f(out, " %s", f->word);
}

static void put_numbers(const void *of, const Field *f, Buf *out)
{
    for (; f->word; f++)
        if (FIELD(int, of, f))
            buf_f(out, " %s %d", f->word, FIELD(int, of, f));
}

static void put_value(const Plan *p, NodeId id, Buf *out)
{
    Buf what = { .arena = p->m->arena };
    for (const Field *f = plan_value_flags; f->word; f++) {
        const bool *flag = FIELD(bool *, p, f);
        if (flag && flag[id])
            buf_f(&what, " %s", f->word);
    }
    if (p->past && p->past[id])
        buf_f(&what, " past %d", p->past[id]);
    if (p->table && p->table[id])
        buf_f(&what, " table");
    if (what.len)
        buf_f(out, "value %%%d%s\n", id, what.data);
}

static void put_buffer(const Plan *p, int i, Buf *out)
{
    const Buffer *b = &p->buffers.data[i];
    buf_f(out, "buffer %d", i);
    put_string(b->name, out);
    buf_f(out, " %s %s", b->reserve ? "reserve" : "workspace", ir_dtypes[b->dtype]);
    put_size(p, "elements", b->elements, out);
    put_size(p, "columns", b->columns, out);
    put_size(p, "cut", b->cut, out);
    put_flags(b, plan_buffer_flags, out);
    put_numbers(b, plan_buffer_numbers, out);
    buf_f(out, "\n");
}

static void put_storage(const Plan *p, const Storage *st, Buf *out)
{
    if (st->home == HOME_NONE)
        return;
    buf_f(out, " %s", plan_home_words[st->home]);
    if (st->home != HOME_ARG && st->slot < -1)
        buf_f(out, " of %%%d", -2 - st->slot);
    else
        buf_f(out, " %d", st->home == HOME_ARG ? st->arg : st->slot);
    buf_f(out, "%s%s %s", st->batched ? " batched" : "", st->timed ? " timed" : "", ir_dtypes[st->dtype]);
    put_size(p, "pitch", st->pitch, out);
    put_size(p, "offset", st->alias_offset, out);
    put_size(p, "row", st->row, out);
    if (st->lead)
        buf_f(out, " lead %d", st->lead);
}

static void put_wanted(const Wanted *w, Buf *out)
{
    for (int i = 0; i < w->len; i++)
        buf_f(out, "%s %d", i ? "" : " for", w->data[i]);
}

static void put_tensor(const Plan *p, const Program *pr, TensorId t, Buf *out)
{
    if (pr->tensor && pr->tensor[t].home != HOME_NONE) {
        buf_f(out, "tensor %d", t);
        put_string(p->m->tensors.data[t].name, out);
        put_storage(p, &pr->tensor[t], out);
        buf_f(out, "\n");
    }
    if (!pr->initial)
        return;
    Buf what = { .arena = p->m->arena };
    for (const Field *f = plan_carried; f->word; f++)
        if (FIELD(int *, pr, f)[t] >= 0)
            buf_f(&what, " %s %d", f->word, FIELD(int *, pr, f)[t]);
    if (what.len) {
        buf_f(out, "carried %d", t);
        put_string(p->m->tensors.data[t].name, out);
        buf_f(out, "%s\n", what.data);
    }
}

static void put_array(const Plan *p, const Program *pr, NodeId id, Buf *out)
{
    Phase phase = pr->phase ? pr->phase[id] : PHASE_NONE;
    if (phase == PHASE_NONE && (!pr->node || pr->node[id].home == HOME_NONE))
        return;
    buf_f(out, "%%%d", id);
    if (at(p, id)->name)
        put_string(at(p, id)->name, out);
    if (phase < PHASE_BETWEEN)
        buf_f(out, " %s", plan_phase_words[phase]);
    else
        buf_f(out, " between %d", (int)phase - (int)PHASE_BETWEEN);
    if (pr->taken && pr->taken[id])
        buf_f(out, " taken");
    if (pr->in_products && pr->in_products[id])
        buf_f(out, " product");
    if (pr->in_place && pr->in_place[id])
        buf_f(out, " in_place");
    if (pr->given && pr->given[id])
        buf_f(out, " given %d", pr->given[id] - 1);
    if (pr->group && pr->group[id] >= 0)
        buf_f(out, " group %d", pr->group[id]);
    put_storage(p, &pr->node[id], out);
    if (pr->wanted)
        put_wanted(&pr->wanted[id], out);
    buf_f(out, "\n");
}

static void put_side(const Plan *p, const char *word, const GemmSide *s, Buf *out)
{
    buf_f(out, s->read.is_tensor ? " %s tensor %d" : " %s %%%d", word, s->read.id);
    put_size(p, "row", s->row, out);
    put_size(p, "column", s->col, out);
    put_size(p, "batch", s->batch, out);
    put_size(p, "offset", s->offset, out);
}

static void put_product(const Plan *p, const Gemm *g, Buf *out)
{
    put_size(p, "m", g->m, out);
    put_size(p, "n", g->n, out);
    put_size(p, "k", g->k, out);
    put_size(p, "count", g->batch, out);
    put_side(p, "a", &g->a, out);
    put_side(p, "b", &g->b, out);
    put_side(p, "c", &g->c, out);
    buf_f(out, "%s", g->added ? " added" : "");
    if (g->parts[0] || g->parts[1])
        buf_f(out, " parts %d %d", g->parts[0], g->parts[1]);
    if (g->codes && !g->codes->why_not) {
        put_side(p, "codes", &g->codes->a, out);
        put_side(p, "codes", &g->codes->b, out);
        buf_f(out, " scales %d %d", g->codes->scale[0], g->codes->scale[1]);
    } else if (g->codes) {
        buf_f(out, " copies");
        put_string(g->codes->why_not, out);
    }
}

static void put_group(const Plan *p, const Program *pr, int i, Buf *out)
{
    const Group *g = &pr->groups.data[i];
    buf_f(out, "group %d %s ", i, plan_kind_words[g->kind]);
    if (g->phase < PHASE_BETWEEN)
        buf_f(out, "%s", plan_phase_words[g->phase]);
    else
        buf_f(out, "between %d", (int)g->phase - (int)PHASE_BETWEEN);
    if (g->kernel)
        put_string(g->kernel, out);
    put_flags(g, plan_group_flags, out);
    put_numbers(g, plan_group_numbers, out);
    if (g->smem)
        buf_f(out, " smem %lld", (long long)g->smem);
    for (int k = 0; k < g->naxes; k++)
        put_size(p, "axis", g->axes[k], out);
    if (g->kind == G_GEMM)
        put_product(p, &g->gemm, out);
    if (g->scatter) {
        buf_f(out, " scatter");
        put_numbers(g->scatter, plan_scatter_numbers, out);
        buf_f(out, " end");
    }
    if (g->walk) {
        buf_f(out, " walk cluster %d interval %d", g->walk->cluster, g->walk->interval);
        put_size(p, "blocks", g->walk->blocks, out);
    }
    put_wanted(&g->need, out);
    for (int k = 0; k < g->arrays.len; k++)
        buf_f(out, "%s %%%d", k ? "" : " arrays", g->arrays.data[k]);
    for (int k = 0; k < g->reads.len; k++)
        buf_f(out, g->reads.data[k] < 0 ? "%s tensor %d" : "%s %%%d", k ? "" : " reads",
              g->reads.data[k] < 0 ? ~g->reads.data[k] : g->reads.data[k]);
    buf_f(out, "\n");
}

static int number_of(const Program *pr, const Group *g)
{
    return (int)(g - pr->groups.data);
}

static void put_beside(const Plan *p, const Program *pr, Buf *out)
{
    for (int i = 0; i < pr->parts.len; i++) {
        const Parts *x = pr->parts.data[i];
        buf_f(out, x->read.is_tensor ? "parts tensor %d" : "parts %%%d", x->read.id);
        put_string(x->kernel, out);
        buf_f(out, " buffer %d%s%s", x->buffer, x->planes ? " planes" : "", x->rising ? " rising" : "");
        put_size(p, "rows", x->rows, out);
        put_size(p, "columns", x->columns, out);
        put_size(p, "pitch", x->pitch, out);
        put_size(p, "offset", x->offset, out);
        buf_f(out, "\n");
    }
    for (int i = 0; i < pr->groups.len; i++) {
        const Fused *f = pr->groups.data[i].fused;
        if (!f || f->product != &pr->groups.data[i])
            continue;
        buf_f(out, "fused %d", i);
        put_string(f->kernel, out);
        buf_f(out, " with %d%s%s from %d\n", number_of(pr, f->map), f->ahead ? " ahead" : "",
              f->shared ? " shared" : "", f->least);
    }
}

void plan_print(const Plan *p, const char *pass, Buf *out)
{
    Module planned = *p->m; /* a walk's printer adds nodes, which are its own */
    if (p->program[FORWARD].node)
        planned.nodes.len = p->n_nodes;
    ir_print(&planned, out);
    buf_f(out, "plan after %s schedule %s calls %s dtype %s compute %s%s", pass, p->schedule->name,
          plan_calls_words[p->calls], ir_dtypes[p->dtype], ir_dtypes[p->compute],
          p->request->cpu ? " cpu" : "");
    if (p->interval)
        buf_f(out, " interval %d", p->interval);
    if (p->cluster > 1)
        buf_f(out, " cluster %d", p->cluster);
    buf_f(out, "\n");
    for (NodeId id = 0; id < p->n_nodes; id++)
        put_value(p, id, out);
    for (int i = 0; i < p->buffers.len; i++)
        put_buffer(p, i, out);
    for (int d = 0; d < 2; d++) {
        const Program *pr = &p->program[d];
        if (!pr->phase)
            continue;
        buf_f(out, d == FORWARD ? "forward\n" : "backward\n");
        for (TensorId t = 0; t < p->m->tensors.len; t++)
            put_tensor(p, pr, t, out);
        for (NodeId id = 0; id < p->n_nodes; id++)
            put_array(p, pr, id, out);
        for (int i = 0; i < pr->groups.len; i++)
            put_group(p, pr, i, out);
        put_beside(p, pr, out);
    }
}
