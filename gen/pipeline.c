/* pipeline.c: the order of the passes. In: the path of a spec. Out: the module that emitters read.
 * Guaranteed: the IR was verified behind the last pass, with CELLC_VERIFY_PASSES=1 behind each, and
 * --dump-after stops behind the pass that it names. */
#include <string.h>

#include "base/texts.h"
#include "commands/commands.h"
#include "front/front.h"
#include "ir/concatenated.h"
#include "ir/copies.h"
#include "ir/folded.h"
#include "kir/kir.h"
#include "ir/param_gradients.h"
#include "ir/products.h"
#include "ir/split_states.h"
#include "ir/stacked.h"
#include "ir/unrolled.h"
#include "plan/plan.h"
#include "plan/reason.h"
#include "pipeline.h"

const Pass front_passes[] = { { "lower", NULL, "" }, { NULL, NULL, NULL } };

const Pass step_passes[] = { { "lower", NULL, "" }, { "simplify", simplify, "" }, { NULL, NULL, NULL } };

/* The reference goes straight from the lowered program to its adjoint: what it prints owes nothing to
 * simplify. */
const Pass reference_passes[] = {
    { "parse", NULL, "the spec as it was read, with all parentheses" },
    { "lower", NULL, "the IR: imports, options, fn and repeat gone, names and ranges resolved" },
    { "differentiate", differentiate, "the IR with the adjoint of every value" },
    { NULL, NULL, NULL }
};

const Pass fast_passes[] = {
    { "parse", NULL, "" },
    { "lower", NULL, "" },
    { "unrolled", unroll_sums,
      "the IR with sums over a few places written out, where a step has fewer kernels so" },
    { "copies", split_copies,
      "the IR with one definition for each place, where a definition is read at certain places only" },
    { "products", make_products,
      "the IR with sums as products of a param and one value, as far as they are such" },
    { "folded", fold_factors,
      "the IR with factors that params make in the matrices of the products that they multiply, where that "
      "is faster" },
    { "concatenated", concatenate_products,
      "the IR with products of several vectors that are added up as one product, where that is faster" },
    { "stacked", stack_products,
      "the IR with products of one vector and several params as one, where that is faster" },
    { "simplify", simplify, "the IR folded, with stacked projections of one input as one product" },
    { "split", split_states,
      "for calls with few matrix states: an axis of these as two, parts and what a part has, in all values that "
      "have it" },
    { "differentiate", differentiate, "" },
    { "gradients", form_gradients,
      "the IR with sums over the steps as products, also of params in expressions" },
    { "simplify-adjoint", simplify, "the same again, with the adjoint" },
    { "kernels", NULL, "those of the kernels that are built as trees; the others are printed as text" },
    { NULL, NULL, NULL }
};

/* A step that a schedule cuts, or an error. */
static void cut_by(Module *m, const Schedule *s)
{
    const Reason *why = s->cut(m);
    if (why)
        diag(m->c, DIAG_ERROR, m->span, "--schedule %s cannot take cell %s: %s", s->name, m->name,
             reason_words(m, why));
}

static void cut_step(Module *m)
{
    cut_by(m, schedule_that_cuts(false));
}

static void cut_sums(Module *m)
{
    cut_by(m, schedule_that_cuts(true));
}

static void join_sums(Module *m)
{
    schedule_that_cuts(true)->join(m);
}

const Pass sum_passes[] = {
    { "lower", NULL, "" },
    { "copies", split_copies, "" },
    { "products", make_products, "" },
    { "simplify", simplify, "" },
    { "sums", cut_sums,
      "of a cell whose sums over the past are attention: the step without these, whose operands are outputs "
      "and whose values are inputs" },
    { "differentiate", differentiate, "" },
    { "join", join_sums, "the same with its adjoint, and with the keys of steps before the call" },
    { "gradients", form_gradients, "" },
    { "simplify-adjoint", simplify, "" },
    { NULL, NULL, NULL }
};

/* For plans of a schedule that cuts the step. */
const Pass cut_passes[] = {
    { "lower", NULL, "" },
    { "simplify", simplify, "" },
    { "cut", cut_step,
      "of a cell that can go in chunks: the step without the recurrence, whose operands are outputs and "
      "whose reads are inputs" },
    { "differentiate", differentiate, "" },
    { "simplify-adjoint", simplify, "" },
    { NULL, NULL, NULL }
};

static bool has_pass(const Pass *passes, const char *name)
{
    for (; passes->name; passes++)
        if (strcmp(passes->name, name) == 0)
            return true;
    return false;
}

static bool has_plan_pass(const char *name)
{
    for (const PlanPass *p = plan_passes; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    return false;
}

bool pass_exists(const char *name)
{
    return has_plan_pass(name) || has_pass(reference_passes, name) || has_pass(fast_passes, name) ||
           has_pass(cut_passes, name) || has_pass(sum_passes, name);
}

/* Does no pass behind that one run? */
static bool ends_passes(const Pass *p, const char *last)
{
    if (last && strcmp(p->name, last) == 0)
        return true;
    do
        p++;
    while (p->name && !p->run);
    return !p->name;
}

/* Runs the passes up to and with the one named `last` (NULL: all): on what `lowered` holds, or, where that is
 * NULL, on what the front end makes of the spec at `path`. */
static Module *run_passes(Compiler *c, const char *path, const Module *lowered, const Pass *passes, const char *last)
{
    Module *m = NULL;
    for (const Pass *p = passes; p->name; p++) {
        if (p->run) {
            p->run(m);
            if (!c->errors && (c->verify_passes || ends_passes(p, last)))
                ir_verify(m, p->name);
        } else if (strcmp(p->name, "lower") == 0) {
            m = lowered ? module_copy(lowered) : front_end(c, path);
        } else {
            continue;
        }
        if (!m || c->errors)
            return NULL;
        if (last && strcmp(p->name, last) == 0)
            break;
    }
    return m;
}

Module *compile(Compiler *c, const char *path, const Pass *passes)
{
    return run_passes(c, path, NULL, passes, NULL);
}

Module *compile_lowered(const Module *lowered, const Pass *passes)
{
    return run_passes(lowered->c, NULL, lowered, passes, NULL);
}

Module *compile_until(const Module *lowered, const Pass *passes, const char *last)
{
    return run_passes(lowered->c, NULL, lowered, passes, last);
}

/* Those of all plans of the instance, as kir_parse reads them. */
static void dump_kernels(Compiler *c, const char *path, Buf *out)
{
    const Module *m = compile(c, path, front_passes);
    Plan *p = m ? cuda_plan(m, m->name) : NULL;
    Buf cuda = { .arena = c->arena }, host = { .arena = c->arena };
    if (p)
        emit_cuda(p, &cuda, &host);
    for (int i = 0; p && !c->errors && i < p->kernels->len; i++)
        kir_dump(p->kernels->data[i], out);
}

/* A plan, those for other calls, and those for smaller GPUs. */
static void dump_plans(const Plan *p, Buf *out)
{
    for (; p; p = p->smaller)
        for (const Plan *q = p; q; q = q->other)
            buf_f(out, "%s", q->dump.len ? q->dump.data : "");
}

int dump_spec(Compiler *c, const char *path)
{
    Buf out = { .arena = c->arena };
    if (strcmp(c->dump_after, "parse") == 0) {
        int file = source_load(c, path);
        if (file >= 0)
            fmt_ast(c, parse_source(c, file), true, &out);
    } else if (strcmp(c->dump_after, "kernels") == 0) {
        dump_kernels(c, path, &out);
    } else if (has_plan_pass(c->dump_after)) {
        const Module *m = compile(c, path, front_passes);
        dump_plans(m ? cuda_plan(m, m->name) : NULL, &out);
    } else {
        const Pass *passes = has_pass(reference_passes, c->dump_after) ? reference_passes
                             : has_pass(fast_passes, c->dump_after)    ? fast_passes
                             : has_pass(cut_passes, c->dump_after)     ? cut_passes
                                                                       : sum_passes;
        Module *lowered = compile(c, path, front_passes), *m = NULL;
        if (lowered && passes == fast_passes)
            cuda_settle(lowered);
        if (lowered && strcmp(c->dump_after, "split") == 0)
            lowered->side = cuda_split_side(lowered);
        if (lowered)
            m = run_passes(c, path, lowered, passes, c->dump_after);
        if (m)
            ir_print(m, &out);
    }
    diag_print(c, stderr);
    if (!c->errors)
        fwrite(out.data ? out.data : "", 1, out.len, stdout);
    return c->errors > 0;
}

void compiler_inherit(Compiler *to, const Compiler *from)
{
    for (int i = 0; i < from->dims.len; i++) {
        Setting s = { intern(to, from->dims.data[i].name), intern(to, from->dims.data[i].value), false };
        vec_push(to->arena, &to->dims, s);
    }
    for (int i = 0; i < from->sets.len; i++) {
        Setting s = { intern(to, from->sets.data[i].name), intern(to, from->sets.data[i].value), false };
        vec_push(to->arena, &to->sets, s);
    }
    for (int i = 0; i < from->types.len; i++) {
        Setting s = { intern(to, from->types.data[i].name), intern(to, from->types.data[i].value), false };
        vec_push(to->arena, &to->types, s);
    }
    to->dtype = from->dtype;
    to->schedule = from->schedule;
    to->hints = from->hints;
    to->scheduled = from->scheduled;
    to->tuned = from->tuned ? intern(to, from->tuned) : NULL;
    to->tuned_dir = from->tuned_dir ? intern(to, from->tuned_dir) : NULL;
    to->products = from->products;
    to->reverse = from->reverse;
    to->lengths = from->lengths;
    to->packed = from->packed;
    to->slots = from->slots;
    to->cell = from->cell ? intern(to, from->cell) : NULL;
    to->import_dir = from->import_dir ? intern(to, from->import_dir) : NULL;
    to->library_dir = from->library_dir ? intern(to, from->library_dir) : NULL;
    to->archs = from->archs ? intern(to, from->archs) : NULL;
    texts_share(to, from);
}
