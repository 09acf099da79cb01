/* kernels_code.c: frames of kernels that are built as trees. In comes a kernel of a plan; out goes a tree
 * whose head declares sizes, pointers and flags, of which only those stay that are read, and which was
 * verified and printed. */
#include <string.h>

#include "base/mutate.h"
#include "code.h"

/* ---- arithmetic ---- */

const KirExpr *code_int(Code *x, int64_t v)
{
    return kir_whole(x->kir, v);
}

const KirExpr *code_binary(Code *x, KirBinary op, const KirExpr *a, const KirExpr *b)
{
    return kir_binary(x->kir, op, a, b);
}

const KirExpr *code_add(Code *x, const KirExpr *a, const KirExpr *b)
{
    return kir_binary(x->kir, KB_ADD, a, b);
}

const KirExpr *code_sub(Code *x, const KirExpr *a, const KirExpr *b)
{
    return kir_binary(x->kir, KB_SUB, a, b);
}

const KirExpr *code_mul(Code *x, const KirExpr *a, const KirExpr *b)
{
    return kir_binary(x->kir, KB_MUL, a, b);
}

const KirExpr *code_move(Code *x, const KirExpr *place, const KirExpr *offset)
{
    bool sum = offset->kind == KX_BINARY && offset->op == KB_ADD;
    if (offset->kind == KX_BINARY && offset->op == KB_SUB && !kir_is_place(place->type))
        return code_sub(x, code_move(x, place, offset->args[0]), offset->args[1]);
    if (!sum)
        return code_add(x, place, offset);
    return code_move(x, code_move(x, place, offset->args[0]), offset->args[1]);
}

const KirExpr *code_let(Code *x, const char *name, const KirExpr *value)
{
    return kir_let(x->kir, name, KT_I64, value);
}

KirOpen code_for(Code *x, const char *name, const KirExpr *first, const KirExpr *limit, const KirExpr *by,
                 const KirExpr **var)
{
    return kir_for(x->kir, name, KT_I64, first, KB_LT, limit, by, var);
}

/* ---- what a call gives ---- */

KirScalar code_scalar(Dtype t)
{
    switch (t) {
    case DT_F32: return KT_F32;
    case DT_BF16: return KT_BF16;
    case DT_F16: return KT_F16;
    case DT_F64: return KT_F64;
    case DT_I32: return KT_I32;
    case DT_E4M3: return KT_E4M3;
    case DT_E5M2: return KT_E5M2;
    }
    return KT_VOID;
}

KirScalar code_real(const Code *x)
{
    return code_scalar(x->k->p->compute);
}

const KirExpr *code_size(Code *x, const Poly *p)
{
    return poly_node(&x->printer, p);
}

const KirExpr *code_sizes(Code *x, const Poly *const *axes, int n)
{
    return code_size(x, poly_product(x->k->p->m, axes, n));
}

const KirExpr *code_batch(Code *x)
{
    return x->sizes[0];
}

const KirExpr *code_steps(Code *x)
{
    return x->own_steps ? x->own_steps : x->sizes[1];
}

static const KirExpr *starts_of(Code *x)
{
    return code_pointer(x, REF_TENSOR, module_starts(x->k->p->m), DT_I32);
}

void code_sequence(Code *x)
{
    Module *m = x->k->p->m;
    if (module_starts(m) < 0)
        return;
    const KirExpr *of[] = { starts_of(x), x->b, code_size(x, module_rows(m)), x->sizes[1] };
    x->first_row = code_let(x, "first_row", kir_call(x->kir, "cell_first_row", NULL, 0, of, 3));
    x->own_steps = code_let(x, "steps", kir_call(x->kir, "cell_own_steps", NULL, 0, of, 4));
}

const KirExpr *code_first_row(Code *x)
{
    return x->first_row ? x->first_row : code_mul(x, x->b, code_steps(x));
}

const KirExpr *code_first(Code *x, const char *name, int threads)
{
    const KirExpr *block = kir_special(x->kir, KP_BLOCK, 0), *thread = kir_special(x->kir, KP_THREAD, 0);
    if (x->k->p->request->cpu)
        return code_int(x, 0);
    return code_let(x, name, code_add(x, code_mul(x, block, code_int(x, threads)), thread));
}

const KirExpr *code_step(Code *x, const char *name, int threads)
{
    if (x->k->p->request->cpu)
        return code_int(x, 1);
    return code_let(x, name, code_mul(x, kir_special(x->kir, KP_BLOCKS, 0), code_int(x, threads)));
}

/* ---- a kernel from its head to its end ---- */

static void declare_sizes(Code *x)
{
    const Module *m = x->k->p->m;
    int n = m->dims.len + 3;
    x->sizes = arena_alloc(m->arena, sizeof *x->sizes * (size_t)n);
    for (int i = 0; i < n; i++) {
        const char *dim = i == 0 ? "B" : i == 1 ? "T" : api_sizes(m)[i];
        const char *name = i == n - 1 ? "t0" : k_text(x->k, "dim_%s", dim);
        x->sizes[i] = code_let(x, name, kir_special(x->kir, KP_SIZE, i));
    }
}

/* Where a kernel is built. */
static Arena *kernel_arena(Plan *p)
{
    if (!p->kernels || !p->kernels->scratch)
        return p->m->arena;
    if (p->kernels->open++ == 0)
        arena_reset(p->kernels->scratch);
    return p->kernels->scratch;
}

Code *code_new(Kernel *k, const char *name)
{
    Module *m = k->p->m;
    Code *x = arena_alloc(m->arena, sizeof *x);
    *x = (Code){ .k = k, .kir = kir_new(kernel_arena(k->p), name, k->threads), .indices = k->indices,
                 .values = k->values };
    x->index = arena_alloc(m->arena, sizeof *x->index * (size_t)x->indices);
    x->value = arena_alloc(m->arena, sizeof *x->value * (size_t)x->values);
    x->printer = (ExprPrinter){ .m = m, .real = k->real, .kir = x->kir, .nodes = &code_nodes, .data = x,
                                .fast = k->printer.fast, .fuse = k->printer.fuse,
                                .rounded = k->printer.rounded, .n_rounded = k->printer.n_rounded };
    x->b = x->t = code_int(x, 0);
    x->n = kir_unknown(x->kir, "N", KT_I32);
    x->hoisting = -1;
    names_init(&k->pointer_names, m->c);
    names_init(&k->locals, m->c);
    declare_sizes(x);
    kir_enter(x->kir, &x->head);
    x->adds = kir_let(x->kir, "adds", KT_BOOL, kir_special(x->kir, KP_ADDS, 0));
    x->saves = k->pr->dir == FORWARD ? kir_let(x->kir, "all", KT_BOOL, kir_special(x->kir, KP_SAVES, 0))
        : NULL;
    kir_enter(x->kir, &x->body);
    return x;
}

Code *code_of_group(Kernel *k)
{
    const Group *g = k->g;
    k->threads = g->threads;
    Code *x = code_new(k, g->kernel);
    x->kir->waits = g->phase == PHASE_DURING && k->pr->dir == BACKWARD;
    x->kir->resident =
        g->threads == 1024 ? 1 : g->resident; /* ptxas spills for the second that it hopes for */
    return x;
}

/* Tables are declared in front of all, under names of locals. */
void code_begin_again(Code *x)
{
    Kernel *k = x->k;
    names_init(&k->locals, k->p->m->c);
    for (int i = 0; i < x->tables.len; i++)
        names_take(&k->locals, x->tables.data[i].pointer->name);
    memset(x->index, 0, sizeof *x->index * (size_t)x->indices);
    memset(x->value, 0, sizeof *x->value * (size_t)x->values);
    x->hoisted.len = x->reads.len = x->prefetches.len = x->here.len = x->loops = k->numbered = 0;
    x->b = x->t = code_int(x, 0);
    x->row = x->first_row = x->own_steps = x->ring1 = x->ring2 = NULL;
    x->one_step = false;
    x->body = (KirBlock){ .data = NULL };
    kir_enter(x->kir, &x->body);
}

static void append(Code *x, const KirBlock *from, int begin, int end)
{
    for (int i = begin; i < end; i++)
        vec_push(x->kir->arena, &x->kir->body, from->data[i]);
}

/* Pointers come before flags, which are declared first: a kernel that asks for them does so while it is
 * built. */
Kir *code_end(Code *x)
{
    int flags = x->saves ? 2 : 1;
    kir_enter(x->kir, &x->kir->body);
    append(x, &x->head, flags, x->head.len);
    append(x, &x->head, 0, flags);
    append(x, &x->body, 0, x->body.len);
    if (x->n->kind == KX_WHOLE)
        kir_fold(x->kir);
    kir_clean(x->kir);
    kir_check(x->k->p->m->c, x->kir, "kernels");
    return x->kir;
}

void code_open_entry(Code *x, const char *name)
{
    vec_push(x->kir->arena, &x->kir->entries, ((KirEntry){ .name = name }));
    kir_enter(x->kir, &x->kir->entries.data[x->kir->entries.len - 1].body);
    declare_sizes(x);
}

void code_close_entry(Code *x)
{
    kir_enter(x->kir, &x->body);
}

bool code_is_there(const Plan *p, Kir *kernel)
{
    for (int i = 0; i < p->kernels->len; i++)
        if (strcmp(p->kernels->data[i]->name, kernel->name) == 0 && kir_same(p->kernels->data[i], kernel))
            return true;
    return false;
}

void code_print(Plan *p, Kir *kernel, Buf *out)
{
    if (p->kernels->scratch)
        p->kernels->open--;
    else
        vec_push(p->m->arena, p->kernels, kernel);
    kir_print_cuda(kernel, out);
}

void code_print_once(Plan *p, Kir *kernel, const char **name, Buf *out)
{
    if (p->calls != CALLS_ANY && code_is_there(p, kernel))
        return;
    if (p->calls != CALLS_ANY)
        kernel->name = *name = intern_f(p->m->c, "%s%s", *name, plan_suffix(p->calls));
    code_print(p, kernel, out);
}

void code_comment(Code *x, NodeId id)
{
    const char *name = k_node(x->k, id)->name;
    const char *place = source_place(x->k->p->m, k_node(x->k, id)->span, true);
    if (name)
        kir_comment(x->kir, k_text(x->k, "%s%s%s", name, *place ? ", " : "", place));
    else if (*place)
        kir_comment(x->kir, k_text(x->k, "part of %s", place));
}

/* ---- rows and elements ---- */

const KirExpr *code_time_row(Code *x, const KirExpr *t, int ahead)
{
    bool reverse = x->k->p->m->c->reverse && !mutate("straight-row");
    const KirExpr *row = reverse ? code_sub(x, code_sub(x, code_steps(x), code_int(x, 1)), t) : t;
    if (ahead == 0)
        return row;
    return code_binary(x, (ahead > 0) != reverse ? KB_ADD : KB_SUB, row, code_int(x, 1));
}

const KirExpr *code_rows(Code *x)
{
    const Group *g = x->k->g;
    bool timed = g->timed && g->phase != PHASE_DURING;
    if (g->batched && timed)
        return code_size(x, module_rows(x->k->p->m));
    return g->batched ? code_batch(x) : timed ? x->sizes[1] : code_int(x, 1);
}

void code_let_rows(Code *x, KirVar *const row[3])
{
    Kir *k = x->kir;
    const KirExpr *t = code_time_row(x, x->t, 0);
    x->row = kir_let_var(k, row[0], code_add(x, code_first_row(x), t));
    if (x->k->pr->dir == BACKWARD)
        return;
    const KirExpr *half = code_binary(x, KB_MOD, t, code_int(x, 2));
    const KirExpr *ring = code_add(x, code_mul(x, x->b, code_int(x, 2)), half);
    x->ring1 = kir_let_var(k, row[1], kir_select(k, x->saves, x->row, x->b));
    x->ring2 = kir_let_var(k, row[2], kir_select(k, x->saves, x->row, ring));
}

static void declare_rows(Code *x)
{
    static const char *const names[] = { "bt", "bt1", "bt2" };
    KirVar *row[3];
    for (int i = 0; i < 3; i++)
        row[i] = kir_variable(x->kir, names[i], kir_value(KT_I64), false);
    code_let_rows(x, row);
}

/* The sequence of a row of all. */
static const KirExpr *sequence_of(Code *x, const KirExpr *row)
{
    if (module_starts(x->k->p->m) < 0)
        return code_binary(x, KB_DIV, row, x->sizes[1]);
    const KirExpr *of[] = { starts_of(x), code_batch(x), row };
    return kir_call(x->kir, "cell_sequence_of", NULL, 0, of, 3);
}

/* b and t of a row number, as the group's rows run. */
void code_split_row(Code *x, const KirExpr *row)
{
    const Group *g = x->k->g;
    bool one_step = g->phase == PHASE_DURING, timed = g->timed && !one_step, both = g->batched && timed;
    const KirExpr *none = code_int(x, 0), *steps = x->sizes[1];
    const KirExpr *b = both ? sequence_of(x, row) : g->batched ? row : none;
    x->row = both ? row : NULL;
    x->one_step = one_step;
    x->b = code_let(x, "b", b);
    x->first_row = x->own_steps = NULL;
    if (g->batched)
        code_sequence(x);
    const KirExpr *t = both && x->first_row ? code_sub(x, row, x->first_row)
                       : both               ? code_binary(x, KB_MOD, row, steps)
                       : timed              ? row
                       : x->step            ? x->step
                                            : kir_special(x->kir, KP_STEP, 0);
    x->t = code_let(x, "t", timed || one_step ? code_time_row(x, t, 0) : none);
    if (one_step)
        declare_rows(x);
}

/* Names the axes after the user's indices, as digits of the element number e. The prefix keeps them apart
 * from indices around, which may have the same names. */
void code_split_element(Code *x, const IndexId *axes, int n, const KirExpr *e, const char *prefix)
{
    Module *m = x->k->p->m;
    const Poly *stride = poly_const(m, 1);
    const char *names[64];
    for (int i = n - 1; i >= 0; i--) {
        const Index *index = &m->indices.data[axes[i]];
        const KirExpr *digit = code_binary(x, KB_DIV, e, code_size(x, stride));
        names[i] = k_text(x->k, "%s_%s", prefix, index->name);
        for (int j = i + 1; j < n; j++)
            if (strcmp(names[j], names[i]) == 0)
                names[i] = k_text(x->k, "%s_%d", names[i], i);
        if (i > 0)
            digit = code_binary(x, KB_MOD, digit, code_size(x, index->extent));
        names_take(&x->k->locals, names[i]);
        x->index[axes[i]] = code_let(x, names[i], digit);
        stride = poly_mul(m, stride, index->extent);
    }
}

void code_keep_axes(Code *x, NodeId first)
{
    for (int i = 0; i < x->k->g->naxes; i++)
        x->own[i] = x->index[k_node(x->k, first)->axes[i]];
}

void code_bind_axes(Code *x, NodeId array)
{
    const Group *g = x->k->g;
    const Node *a = k_node(x->k, array);
    for (int i = 0; i < g->naxes; i++)
        x->index[a->axes[i + (g->along && a->naxes > g->naxes && i >= g->along - 1)]] = x->own[i];
}
