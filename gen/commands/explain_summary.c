/* explain_summary.c: what `cellc explain` says first: about ten lines for a person that writes cells. In: a plan. Out:
 * which values are computed for all steps at once and which step by step, how many operations that takes, what it costs
 * and keeps, what its time goes by, and why the planner did not take another schedule. Nothing is decided here. */
#include <string.h>

#include "base/table.h"
#include "explain.h"
#include "explain_words.h"
#include "pipeline.h"
#include "schedule/attention/attention.h"
#include "schedule/chunk/chunk.h"

enum { NAMES_SHOWN = 12 };

/* Operations of a direction: for all steps at once, at each step, and kernels that walk over all steps. */
typedef struct Operations { int at_once, each_step, walks; } Operations;

static Operations operations_of(const Program *pr)
{
    Operations n = { 0, 0, 0 };
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        bool walks = g->kind == G_WALK || g->kind == G_UNITS;
        *(walks ? &n.walks : g->phase == PHASE_DURING ? &n.each_step : &n.at_once) += 1;
    }
    return n;
}

/* Is it a named value of the spec that forward computes? */
static bool is_named_value(const Explain *e, NodeId id)
{
    const Node *x = &e->m->nodes.data[id];
    return e->forward[id] && x->kind == N_ARRAY && x->name && !strchr(x->name, '.') && !e->p->is_alias[id];
}

/* Named values of the spec that forward computes in a phase. */
static const char *names_in(const Explain *e, Phase phase)
{
    const Program *pr = &e->p->program[FORWARD];
    Buf b = { .arena = e->m->arena };
    int n = 0;
    for (NodeId id = 0; id < e->p->n_nodes; id++) {
        const Node *x = &e->m->nodes.data[id];
        if (!is_named_value(e, id) || pr->phase[id] != phase)
            continue;
        if (n++ < NAMES_SHOWN)
            buf_f(&b, "%s%s", n > 1 ? ", " : "", x->name);
    }
    if (n > NAMES_SHOWN)
        buf_f(&b, " and %d more", n - NAMES_SHOWN);
    return b.data;
}

/* "a, b before the steps; y after them"; NULL: nothing. */
static const char *at_once_words(const Explain *e)
{
    static const struct { Phase phase; const char *when; } parts[] = {
        { PHASE_PARAM, " once a call" }, { PHASE_BEFORE, " before the steps" }, { PHASE_AFTER, " after them" },
    };
    bool walks = names_in(e, PHASE_DURING) != NULL;
    Buf b = { .arena = e->m->arena };
    for (int i = 0; i < 3; i++) {
        const char *names = names_in(e, parts[i].phase);
        if (names)
            buf_f(&b, "%s%s%s", b.len ? "; " : "", names, walks || i == 0 ? parts[i].when : "");
    }
    return b.data;
}

static const char *direction_words(const Explain *e, Direction d)
{
    const Program *pr = &e->p->program[d];
    Operations n = operations_of(pr);
    Buf b = { .arena = e->m->arena };
    if (n.at_once)
        buf_f(&b, "%d for all steps at once", n.at_once);
    if (n.walks)
        buf_f(&b, "%sone kernel that walks over the steps", b.len ? ", " : "");
    if (n.each_step)
        buf_f(&b, "%s%d at each step%s", b.len ? ", " : "", n.each_step,
              pr->one_kernel ? ", or one kernel for all of them" : "");
    return b.len ? b.data : "nothing";
}

static const char *operations_words(const Explain *e)
{
    const char *forward = intern_f(e->c, "forward %s", direction_words(e, FORWARD));
    if (!e->m->has_grad)
        return forward;
    return intern_f(e->c, "%s; backward %s", forward, direction_words(e, BACKWARD));
}

static const char *work_words(const Explain *e)
{
    Cost sum = explain_sum(e, FORWARD);
    bool once = e->m->nodes.len && sum.flops_once != poly_const(e->m, 0);
    const char *forward = explain_size(e, sum.flops);
    if (once)
        forward = intern_f(e->c, "%s (and %s once a call)", forward, explain_size(e, sum.flops_once));
    if (!e->m->has_grad)
        return intern_f(e->c, "%s flops per sequence and step", forward);
    return intern_f(e->c, "per sequence and step %s flops forward, %s backward", forward,
                    explain_size(e, explain_sum(e, BACKWARD).flops));
}

static const char *params_words(const Explain *e)
{
    const Poly *bytes = poly_const(e->m, 0);
    for (TensorId i = 0; i < e->m->tensors.len; i++)
        if (e->m->tensors.data[i].kind == T_PARAM)
            bytes = poly_add(e->m, bytes, poly_mul(e->m, tensor_elements(e->m, i),
                                                   poly_const(e->m, dtype_bytes(e->m->tensors.data[i].dtype))));
    return explain_size(e, bytes);
}

static const char *memory_words(const Explain *e)
{
    return intern_f(e->c, "params %s bytes%s%s", params_words(e), e->m->has_grad ? "; training keeps " : "",
                    e->m->has_grad ? explain_saved(e) : "");
}

/* Of products whose operands are both of 8 bits: how many take the codes, and why the first other does not. */
static int count_codes(const Explain *e, const char **why_not)
{
    int n = 0;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < e->p->program[d].groups.len; i++) {
            const Gemm *g = &e->p->program[d].groups.data[i].gemm;
            n += takes_codes(g);
            if (g->codes && g->codes->why_not && !*why_not)
                *why_not = g->codes->why_not;
        }
    return n;
}

/* "x, W: ..."; NULL: nothing is stored in 8 bits. */
static const char *codes_words(const Explain *e)
{
    const char *names = NULL, *type = dtype_names[e->p->dtype];
    for (TensorId i = 0; i < e->m->tensors.len; i++) {
        const Tensor *t = &e->m->tensors.data[i];
        if (dtype_is_fp8(t->dtype) && t->kind <= T_PARAM)
            names = names ? intern_f(e->c, "%s, %s", names, t->name) : t->name;
    }
    if (!names)
        return NULL;
    const char *why_not = NULL;
    int n = count_codes(e, &why_not);
    const char *what = n == 1 ? "one is" : intern_f(e->c, "%d are", n),
               *rest = why_not ? "; another is not: " : "";
    if (n == 0)
        what = "none is", rest = why_not ? ": " : "";
    return intern_f(e->c,
                    "%s: times their scales where they are read; products of matrices take copies in %s, and "
                    "%s cuBLASLt's of 8 bits%s%s%s",
                    names, type, what, n ? " where sizes and GPU admit it" : "", rest,
                    why_not ? why_not : "");
}

/* What the time of a call goes by. */
static const char *time_words(const Explain *e)
{
    const Program *pr = &e->p->program[FORWARD];
    Operations n = operations_of(pr);
    if (!n.walks && !n.each_step)
        return "no step waits for another: memory traffic, and flops where products are large";
    if (pr->in_chunks)
        return "the steps of a sequence go in chunks side by side: memory traffic";
    if (n.walks) {
        const Group *walk = plan_walk(e->p, FORWARD);
        const char *blocks = walk && walk->walk->blocks
                                 ? explain_size(e, poly_mul(e->m, walk->walk->blocks, poly_dim(e->m, ATOM_B))) : "B";
        const Plan *split = plan_of(e->p, CALLS_SPLIT);
        bool parts = split->calls == CALLS_SPLIT;
        const char *few = parts ? intern_f(e->c, "; of few, %d parts of each are", split->m->parts) : "";
        return intern_f(e->c,
                        "each of the T steps waits for the one before; %s states are walked side by side%s, and "
                        "fewer than the GPU has multiprocessors leave a part of it idle",
                        blocks, few);
    }
    return intern_f(e->c, "each of the T steps waits for the one before%s",
                    pr->one_kernel ? ", and for what other blocks have of it; where no kernel takes all steps, "
                                   "for the start of its kernels too" : ", and for the start of its kernels");
}

/* The lines of the planner's reasons that say why a schedule was not taken, and perhaps what to change. */
static void put_refusals(const Explain *e, Table *t)
{
    static const char no_kernel[] = "no kernel walks";
    for (const char *line = e->p->reasons.data, *end; line && *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        const char *colon = memchr(line, ':', (size_t)(end - line));
        if (strncmp(line, "not ", 4) == 0 && colon)
            table_row(e->c, t, intern_n(e->c, line, (size_t)(colon - line)),
                      intern_n(e->c, colon + 2, (size_t)(end - colon - 2)), NULL);
        else if (strncmp(line, no_kernel, strlen(no_kernel)) == 0)
            table_row(
                e->c, t, "no kernel",
                intern_n(e->c, line + strlen("no kernel "), (size_t)(end - line) - strlen("no kernel ")),
                NULL);
    }
}

static void put_lines(const Explain *e, const char *label, const Buf *lines, Table *t)
{
    for (const char *line = lines->data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        table_row(e->c, t, label, intern_n(e->c, line, (size_t)(end - line)), NULL);
        label = "";
    }
}

/* What the proof found of sums over the past: none, one that is no attention, or that all are. */
typedef enum { SUMS_NONE, SUMS_OTHER, SUMS_ATTENTION } Sums;

/* Whether states could go in chunks of steps, and sums over the past as attention: matters of the step
 * alone. */
static Sums put_forms(const Explain *e, Module *step, Table *t)
{
    Buf chunks = { .arena = e->m->arena }, attention = { .arena = e->m->arena };
    Attentions sums = { 0 };
    ChunkForm f = chunk_find(step);
    chunk_words(&f, &chunks);
    put_lines(e, "chunks", &chunks, t);
    attention_find(step, &sums);
    attention_words(step, &sums, &attention);
    put_lines(e, "attention", &attention, t);
    for (int i = 0; i < sums.len; i++)
        if (sums.data[i].why)
            return SUMS_OTHER;
    return sums.len ? SUMS_ATTENTION : SUMS_NONE;
}

/* The schedule of calls of several steps, where they have one of their own. */
static void put_long(const Explain *e, Table *t)
{
    const Plan *p = plan_of(e->p, CALLS_LONG);
    if (p->calls != CALLS_LONG)
        return;
    Buf when = { .arena = e->m->arena };
    formula_words(p->m, p->schedule->takes(p), &when);
    table_row(e->c, t, "",
              intern_f(e->c, "%s: %s, where %s", p->schedule->name, p->schedule->what, when.data), NULL);
}

/* Why sums over the past that are attention are not taken so, where no schedule is forced. */
static void put_stay(const Explain *e, const Module *lowered, Sums sums, Table *t)
{
    const Reason *why = sums == SUMS_ATTENTION && !e->c->schedule ? cuda_sums_stay(lowered) : NULL;
    if (why)
        table_row(e->c, t, intern_f(e->c, "not %s", schedule_that_cuts(true)->name), reason_words(e->m, why),
                  NULL);
}

const char *explain_cpu(const Module *lowered, const CpuChoice *x)
{
    Compiler *c = lowered->c;
    const int said = c->diags.len;
    Module *step = x->not_cut ? compile_lowered(lowered, step_passes) : NULL;
    Attentions sums = { 0 };
    if (step)
        attention_find(step, &sums);
    c->diags.len = said;
    const Schedule *s = x->plan ? x->plan->schedule : NULL;
    const char *words = s ? intern_f(c, "%s: %s", s->name, s->what_on_cpu) : "nothing: the reference runs";
    if (sums.len)
        words = intern_f(c, "%s; not %s: %s", words, schedule_that_cuts(true)->name,
                         reason_words(lowered, x->not_cut));
    if (x->not_walked)
        words = intern_f(c, "%s; not %s: %s", words, x->refused->name, reason_words(lowered, x->not_walked));
    return words;
}

/* How a session's states come into a step. The runtime asks the launch plan itself (cell_slots_reach). */
static const char *sessions_words(const Explain *e)
{
    bool walks = strcmp(e->p->schedule->name, "tile") == 0, any = false;
    for (TensorId t = 0; t < e->m->tensors.len; t++) {
        const Tensor *x = &e->m->tensors.data[t];
        walks &= x->kind != T_HISTORY;
        any |= x->kind == T_STATE || x->kind == T_HISTORY;
    }
    if (!any)
        return "there are no states";
    return walks ? "states are rows, which the step's kernels find, as they are or in bf16; kept in int8, a "
                   "kernel in front of "
                   "the step brings them and one behind it takes them back"
                 : "states are rows, which a kernel in front of the step brings and one behind it takes back";
}

static Table summary_of(const Explain *e, const Module *lowered)
{
    Table t = { 0 };
    const char *at_once = at_once_words(e), *by_step = names_in(e, PHASE_DURING);
    table_row(e->c, &t, "schedule", intern_f(e->c, "%s: %s", e->p->schedule->name, e->p->schedule->what),
              NULL);
    put_long(e, &t);
    put_refusals(e, &t);
    const Sums sums = put_forms(e, compile_lowered(lowered, step_passes), &t);
    put_stay(e, lowered, sums, &t);
    const CpuChoice cpu = cpu_choice(lowered, e->m->name);
    table_row(e->c, &t, "on a CPU", explain_cpu(lowered, &cpu), NULL);
    if (e->m->c->slots)
        table_row(e->c, &t, "sessions", sessions_words(e), NULL);
    if (at_once)
        table_row(e->c, &t, "in parallel", at_once, NULL);
    if (by_step)
        table_row(e->c, &t, "step by step", by_step, NULL);
    table_row(e->c, &t, "operations", operations_words(e), NULL);
    table_row(e->c, &t, "work", work_words(e), NULL);
    table_row(e->c, &t, "memory", memory_words(e), NULL);
    if (codes_words(e))
        table_row(e->c, &t, "8 bits", codes_words(e), NULL);
    table_row(e->c, &t, "time goes by", time_words(e), NULL);
    return t;
}

void explain_summary(const Plan *p, const Module *lowered, Buf *out)
{
    Explain e = explain_of(p, out);
    Table t = summary_of(&e, lowered);
    explain_instance(&e);
    buf_f(out, "\n");
    table_print(&t, out);
}

Table explain_rows(const Plan *p, const Module *lowered)
{
    Explain e = explain_of(p, &(Buf){ .arena = p->m->arena });
    return summary_of(&e, lowered);
}

ExplainLine explain_line(const Plan *p)
{
    Buf unused = { .arena = p->m->arena };
    Explain e = explain_of(p, &unused);
    return (ExplainLine) { intern_f(e.c, "%s: %s", p->schedule->name, p->schedule->what), work_words(&e), memory_words(&e) };
}

/* "computed at each step, ..."; NULL: the phase is none. */
static const char *phase_words(const Explain *e, Phase phase)
{
    static const char *const words[] = {
        [PHASE_NONE] = NULL,
        [PHASE_PARAM] = "computed once a call",
        [PHASE_BEFORE] = "computed for all steps at once, before the walk over time",
        [PHASE_DURING] = "computed at each step, in the walk over time",
        [PHASE_AFTER] = "computed for all steps at once, after the walk over time",
    };
    bool walks = names_in(e, PHASE_DURING) != NULL;
    if (phase >= PHASE_BETWEEN)
        return "computed for all steps at once, between two walks";
    return !walks && words[phase] && phase != PHASE_PARAM ? "computed for all steps at once" : words[phase];
}

/* The same of a value that is read in place of others. */
static const char *alias_when(const Explain *e, NodeId id)
{
    Read r;
    if (!plan_resolve(e->p, id, &r))
        return "a number";
    if (r.is_tensor)
        return intern_f(e->c, "read from %s", e->m->tensors.data[r.id].name);
    const char *words = phase_words(e, e->p->program[FORWARD].phase[r.id]);
    return words ? intern_f(e->c, "a part of %s, %s", explain_value(e, r.id), words) : NULL;
}

void explain_when(const Plan *p, void (*give)(void *with, const char *name, const char *when), void *with)
{
    Buf unused = { .arena = p->m->arena };
    Explain e = explain_of(p, &unused);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        const Node *x = &e.m->nodes.data[id];
        bool alias = e.forward[id] && x->kind == N_ARRAY && x->name && !strchr(x->name, '.') && p->is_alias[id];
        const char *when = alias ? alias_when(&e, id)
                           : is_named_value(&e, id) ? phase_words(&e, p->program[FORWARD].phase[id]) : NULL;
        if (when)
            give(with, x->name, when);
    }
}
