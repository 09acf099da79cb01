/* explain_forms.c: which form of a plan, of a walk, of a product a call takes, and why those before it are not taken: for `cellc explain
 * --sizes`. In: a plan, sizes, and the architecture that it is for. Out: lines for a terminal. What blocks the GPU holds at once is
 * an upper bound, by shared memory and threads: registers are known when the kernels are compiled. */
#include <stdlib.h>
#include <string.h>

#include "base/say.h"
#include "base/table.h"
#include "explain.h"
#include "plan/forms.h"
#include "schedule/schedule.h"

/* A kernel of which a condition may ask how many blocks the GPU holds. */
typedef struct Held { const char *kernel; int threads, cluster, least; const Formula *bytes; } Held;

typedef struct Asked {
    const Plan *p;
    Device device;
    int capability;
    const int64_t *sizes;         /* by atom */
    Buf *out;
    Vec(Held) held;
    FormulaScope scope;
} Asked;

static bool resident(void *data, const char *kernel, int64_t *blocks)
{
    const Asked *a = data;
    for (int i = 0; i < a->held.len; i++) {
        const Held *h = &a->held.data[i];
        int64_t bytes = 0, each, cluster = h->cluster > 1 ? h->cluster : 1;
        if (strcmp(h->kernel, kernel) != 0)
            continue;
        if (h->bytes && !formula_value(h->bytes, &a->scope, &bytes))
            return false;
        each = a->device.sm_bytes / (bytes + TARGET_BLOCK_TAKES);
        each = each < a->device.sm_threads / h->threads ? each : a->device.sm_threads / h->threads;
        each = each < a->device.sm_blocks ? each : a->device.sm_blocks;
        if (bytes > a->device.block_bytes || (cluster > 1 && !a->device.clusters) || a->capability < h->least)
            each = 0;
        *blocks = each * a->device.processors / cluster * cluster;
        return true;
    }
    return false;
}

static void add_held(Asked *a, const char *kernel, int threads, int cluster, int least, const Formula *bytes)
{
    Held h = { kernel, threads, cluster, least, bytes };
    vec_push(a->p->m->arena, &a->held, h);
}

static void walk_forms(const Plan *p, const Program *pr, FormList *out)
{
    if (p->schedule->forms)
        p->schedule->forms(p, pr, out);
}

/* Fused kernels have instructions of capability 9.0 alone. */
static void find_held(Asked *a, const Plan *p)
{
    Module *m = p->m;
    for (int d = 0; d < 2; d++) {
        FormList forms = { 0 };
        const Program *pr = &p->program[d];
        walk_forms(p, pr, &forms);
        for (int i = 0; i < forms.len; i++) {
            const Form *f = &forms.data[i];
            add_held(a, f->kernel, f->threads, f->cluster, f->cooperative > 1 ? f->cooperative : 0, f->bytes);
        }
        for (int i = 0; i < pr->groups.len; i++) {
            const Group *g = &pr->groups.data[i];
            if (g->kind == G_WALK)
                add_held(a, g->walk->kernel, g->walk->threads, g->walk->cluster, 0, formula_const(m, g->walk->smem));
            if (g->fused)
                add_held(a, g->fused->kernel, FUSED_THREADS, 1, 90, formula_const(m, FUSED_SMEM));
        }
    }
}

/* One line of a list. taken: one before it was taken; returns whether it or one before it is. */
static bool put_form(const Asked *a, const char *what, const Formula *when, bool taken)
{
    Compiler *c = a->p->m->c;
    Buf why = { .arena = c->arena };
    int64_t value = 1;
    if (taken)
        return true;
    bool known = !when || formula_value(when, &a->scope, &value);
    if (known && !value)
        formula_why_not(when, &a->scope, &why);
    const char *verdict = !known ? "perhaps: the kernel is not known here" : value ? "taken" : intern_f(c, "not taken: %s", why.data);
    put_paragraph(intern_f(c, "%s: %s", what, verdict), 4, a->out);
    return known && value;
}

/* Kernels one behind the other, of which each may have several forms. */
static void put_stages(const Asked *a, Direction d, int level)
{
    for (int n = 0;; n++) {
        FormList forms = { 0 };
        bool taken = false;
        if (!a->p->schedule->stage(a->p, &a->p->program[d], level, n, &forms))
            return;
        if (forms.len == 1 && !forms.data[0].when)
            continue;
        buf_f(a->out, "  %s, %s\n", d == FORWARD ? "forward" : "backward", forms.data[0].words);
        for (int i = 0; i < forms.len; i++)
            taken = put_form(a, forms.data[i].kernel, forms.data[i].when, taken);
    }
}

static void put_walk(const Asked *a, Direction d)
{
    for (int level = 0; a->p->schedule->stage && level < a->p->m->levels; level++)
        put_stages(a, d, level);
    if (a->p->schedule->stage && !plan_steps(a->p))
        return;
    Compiler *c = a->p->m->c;
    FormList forms = { 0 };
    bool taken = false;
    walk_forms(a->p, &a->p->program[d], &forms);
    if (forms.len == 0 || (forms.len == 1 && !forms.data[0].when))
        return;
    buf_f(a->out, "  %s, the walk over all steps\n", d == FORWARD ? "forward" : "backward");
    for (int i = 0; i < forms.len; i++)
        taken = put_form(a, intern_f(c, "%s, %s", forms.data[i].kernel, forms.data[i].words), forms.data[i].when, taken);
    if (forms.data[forms.len - 1].when)
        put_form(a, "kernels for each step", NULL, taken);
}

static const char *group_words(const Asked *a, const Group *g)
{
    const char *name = a->p->m->nodes.data[g->arrays.data[0]].name;
    return name ? name : g->kernel;
}

/* The first of products that go together stands for all of them. */
static void put_together(const Asked *a, Direction d, const Group *g)
{
    const GroupVec *all = &a->p->program[d].groups;
    int n = 0;
    if (g > all->data && g[-1].together == g->together)
        return;
    while (g + n < all->data + all->len && g[n].together == g->together)
        n++;
    buf_f(a->out, "  %s, %d products from %s to %s\n", d == FORWARD ? "forward" : "backward", n,
          group_words(a, g), group_words(a, &g[n - 1]));
    const Formula *together = form_goes_together(a->p, d, &g->gemm);
    bool taken = put_form(a, "those of equal sizes as one batch", together, false);
    put_form(a, "one by one", NULL, taken);
}

static void put_group(const Asked *a, Direction d, const Group *g)
{
    const char *way = d == FORWARD ? "forward" : "backward";
    bool sized = a->p->request->products != PRODUCTS_PARTS, taken;
    if (g->together)
        put_together(a, d, g);
    if (g->kind == G_GEMM && takes_codes(&g->gemm)) {
        buf_f(a->out, "  %s, the product %s\n", way, group_words(a, g));
        taken = put_form(a, "the numbers of 8 bits themselves, by cuBLASLt", form_takes_codes(a->p, &g->gemm),
                         false);
        put_form(a, "copies of 16 bits", NULL, taken);
    } else if (g->kind == G_GEMM && g->gemm.parts[0] && sized) {
        buf_f(a->out, "  %s, the product %s\n", way, group_words(a, g));
        taken = put_form(a, "products of its operands' parts in bf16", form_takes_parts(a->p, &a->p->program[d], &g->gemm), false);
        put_form(a, "one product in f32", NULL, taken);
    } else if (g->kind != G_GEMM && g->fused) {
        buf_f(a->out, "  %s, the product %s and %s\n", way, group_words(a, g->fused->product), group_words(a, g));
        taken = put_form(a, intern_f(a->p->m->c, "%s, one kernel", g->fused->kernel), form_fused(a->p, g->fused), false);
        put_form(a, "a product and a kernel", NULL, taken);
    }
}

/* The plans of the instance in order of preference. Returns the one that is taken. */
static const Plan *put_plans(Asked *a)
{
    const Plan *first = a->p, *taken = NULL;
    Compiler *c = first->m->c;
    if (!first->other && !first->smaller)
        return first;
    buf_f(a->out, "  the plan\n");
    for (const Plan *p = first->other; p; p = p->other) {
        const char *what = intern_f(c, "for calls with %s blocks, a checkpoint every %d steps", p->calls == CALLS_MANY ? "many" : "few",
                                    p->interval);
        if (p->calls == CALLS_LONG)
            what = intern_f(c, "for calls of several steps, schedule %s", p->schedule->name);
        if (p->calls == CALLS_SPLIT)
            what = intern_f(c, "for calls with few states, each in %d parts, a checkpoint every %d steps",
                            p->m->parts, p->interval);
        if (p->calls == CALLS_SHORT)
            what = "for calls of few steps: products with the params apart";
        a->scope.m = p->m;
        if (put_form(a, what, form_takes_call(p), taken != NULL) && !taken)
            taken = p;
    }
    for (const Plan *p = first; p; p = p->smaller) {
        const char *what = p == first ? "for any call" : intern_f(c, "for devices with less memory, schedule %s", p->schedule->name);
        a->scope.m = p->m;
        if (put_form(a, what, p->smaller ? form_device_runs(p) : NULL, taken != NULL) && !taken)
            taken = p;
    }
    return taken ? taken : first;
}

void explain_forms(const Plan *p, const int64_t sizes[MAX_DIMS], Buf *out)
{
    Compiler *c = p->m->c;
    const char *arch = largest_arch(c, c->archs);
    Buf lines = { .arena = c->arena };
    Asked a = { .p = p, .device = device_of(arch), .capability = atoi(arch), .sizes = sizes, .out = &lines };
    a.scope = (FormulaScope){ .m = p->m, .sizes = sizes, .resident = resident, .data = &a };
    a.scope.device[DEVICE_MULTIPROCESSORS] = a.device.processors;
    a.scope.device[DEVICE_BLOCK_MEMORY] = a.device.block_bytes;
    a.scope.device[DEVICE_CAPABILITY] = a.capability;
    a.scope.device[DEVICE_PRODUCTS_OF_8] = a.capability >= CODES_CAPABILITY;
    find_held(&a, p);
    for (const Plan *q = p->other; q; q = q->other)
        find_held(&a, q);
    for (const Plan *q = p->smaller; q; q = q->smaller)
        find_held(&a, q);
    a.p = put_plans(&a);
    a.scope.m = a.p->m;
    for (int d = 0; d < 2; d++) {
        put_walk(&a, d);
        for (int i = 0; i < a.p->program[d].groups.len; i++)
            put_group(&a, d, &a.p->program[d].groups.data[i]);
    }
    if (!lines.len)
        return;
    buf_f(out, "\n");
    put_paragraph(intern_f(c, "forms that the call takes on one %s (%d multiprocessors, %lld KB of shared memory for a block; how many "
                           "blocks it holds at once is as far as memory and threads say):", a.device.name, a.device.processors,
                           (long long)(a.device.block_bytes / 1024)), 0, out);
    buf_f(out, "%s", lines.data);
}
