/* emit_plan.c: the launch plans of a planned cell as static C data, with the kernel table and the reserve,
 * and the .cu that holds the kernels. In comes a plan whose every decision is made; out go two texts. The
 * host text ends with the C interface over these tables (emit_host.c). */
#include <string.h>

#include "emit.h"
#include "window.h"
#include "mutate.h"
#include "options.h"
#include "panel.h"
#include "scan.h"

typedef struct Print {
    Plan *p;
    Program *pr;
    Buf *host;                    /* tables, in order of need */
    Buf ops;                      /* the operations of the direction */
    int n_ops;
    CallArgs args;
    int *buffer;                  /* per plan buffer: its number in this direction's list, -1 */
    Vec(int) used;                /* plan buffers in that order */
    Vec(const char *) exprs;      /* texts of expressions that were printed, by number */
    int *reserve;                 /* per plan buffer: its place in the reserve, -1 */
    Vec(const char *) kernels;
    Buf table;                    /* rows of the kernel table */
    int refs;
    HistoryKernel *histories;
    int n_histories;
    const char *tag;              /* before the names of tables */
    const char *rows;             /* what stands for T in strides of the operand at hand; NULL: T */
    StateKernels *states;
    Buf headed, walked;           /* gemm: not zero where blocks that have a head each walk the steps, where one kernel
                                   * does; empty: none does */
} Print;

/* ---- size expressions ---- */

static void postfix_poly(Print *e, const Poly *p, Buf *out);

static void postfix_atom(Print *e, int atom, Buf *out)
{
    const Module *m = e->p->m;
    if (atom == ATOM_T && e->rows) {
        buf_f(out, "%s", e->rows);
    } else if (atom == ATOM_B || atom == ATOM_T) {
        buf_f(out, "CELL_X_SIZE, %d, ", atom == ATOM_B ? 0 : 1);
    } else if (atom == ATOM_PAST) {
        buf_f(out, "CELL_X_SIZE, 1, CELL_X_SIZE, %d, CELL_X_ADD, ", 2 + m->dims.len);
    } else if (atom < MAX_DIMS) {
        buf_f(out, "CELL_X_SIZE, %d, ", 2 + atom);
    } else {
        postfix_poly(e, m->quotients.data[atom - MAX_DIMS].num, out);
        postfix_poly(e, m->quotients.data[atom - MAX_DIMS].den, out);
        buf_f(out, "CELL_X_DIV, ");
    }
}

static void postfix_poly(Print *e, const Poly *p, Buf *out)
{
    if (p->nterms == 0)
        buf_f(out, "CELL_X_PUSH, 0, ");
    for (int i = 0; i < p->nterms; i++) {
        const PolyTerm *t = &p->terms[i];
        bool started = t->coef != 1 || t->natoms == 0;
        if (started)
            buf_f(out, "CELL_X_PUSH, %lld, ", (long long)t->coef);
        for (int k = 0; k < t->natoms; k++) {
            postfix_atom(e, t->atoms[k], out);
            if (started)
                buf_f(out, "CELL_X_MUL, ");
            started = true;
        }
        if (i)
            buf_f(out, "CELL_X_ADD, ");
    }
}

/* The name of the expression's array; equal programs share one. */
static const char *expr_name(Print *e, const Buf *program)
{
    Compiler *c = e->p->m->c;
    const char *text = intern_n(c, program->data, program->len);
    for (int i = 0; i < e->exprs.len; i++)
        if (e->exprs.data[i] == text)
            return intern_f(c, "%sx%d", e->tag, i);
    vec_push(c->arena, &e->exprs, text);
    buf_line(e->host, "static const int64_t %sx%d[] = { %sCELL_X_END };", e->tag, e->exprs.len - 1, text);
    return intern_f(c, "%sx%d", e->tag, e->exprs.len - 1);
}

static Buf program_new(Print *e)
{
    return (Buf){ .arena = e->p->m->arena };
}

static const char *poly_expr(Print *e, const Poly *p)
{
    Buf b = program_new(e);
    if (!p)
        return "NULL";
    postfix_poly(e, p, &b);
    return expr_name(e, &b);
}

static const Poly *product(Print *e, const Poly *const *axes, int n)
{
    const Poly *p = poly_const(e->p->m, 1);
    for (int i = 0; i < n; i++)
        p = poly_mul(e->p->m, p, axes[i]);
    return p;
}

/* ---- buffers ---- */

static int64_t dtype_bytes(Dtype t)
{
    return t == DT_F64 ? 8 : t == DT_F32 || t == DT_I32 ? 4 : 2;
}

static const char *dtype_enum(Dtype t)
{
    switch (t) {
    case DT_F32: return "CELL_F32";
    case DT_BF16: return "CELL_BF16";
    case DT_F16: return "CELL_F16";
    case DT_F64: return "CELL_F64";
    case DT_I32: return "CELL_I32";
    }
    return "CELL_F32";
}

static int buffer_number(Print *e, int slot)
{
    if (e->buffer[slot] < 0) {
        vec_push(e->p->m->arena, &e->used, slot);
        e->buffer[slot] = e->args.len + e->used.len - 1;
    }
    return e->buffer[slot];
}

/* The chunks of a column sum, as plan.h has them. */
static void postfix_chunks(Print *e, const Poly *rows, const Poly *columns, bool by_rows, Buf *out)
{
    ColumnCut cut = column_cut(by_rows);
    postfix_poly(e, rows, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, %d, CELL_X_MIN, CELL_X_PUSH, %d, ", cut.rows, cut.most,
          cut.blocks);
    postfix_poly(e, columns, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_DIV, ", cut.span);
    if (cut.group > 1)
        buf_f(out, "CELL_X_PUSH, %d, CELL_X_MUL, ", cut.group);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_MAX, CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, ", cut.least);
}

/* As cell_shares has them. */
static void postfix_shares(Print *e, const Poly *n, int each, int most, Buf *out)
{
    postfix_poly(e, n, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, %d, CELL_X_MIN, ", each, most);
}

static void postfix_copy_taken(Print *e, const Parts *x, Buf *out);

/* Blocks that have some of these units of one sequence each (columns.c). */
static void postfix_columns_blocks(Print *e, const Poly *units, Buf *x)
{
    postfix_poly(e, units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_SIZE, 0, CELL_X_MUL, ", COLUMNS_UNITS);
}

/* Bytes of a buffer of the plan, or of the reserve, where it has all of its rows. */
static const char *buffer_bytes(Print *e, int slot, bool in_reserve)
{
    Module *m = e->p->m;
    const Buffer *b = &e->p->buffers.data[slot];
    Buf x = program_new(e);
    if (b->cut) {
        postfix_shares(e, b->cut, b->each, b->most, &x);
        postfix_poly(e, poly_mul(m, b->columns, poly_const(m, dtype_bytes(b->dtype))), &x);
        buf_f(&x, "CELL_X_MUL, ");
        return expr_name(e, &x);
    }
    if (b->columns) {
        postfix_chunks(e, poly_mul(m, poly_dim(m, ATOM_B), poly_dim(m, ATOM_T)), b->columns, b->by_rows, &x);
        if (b->block_units)
            postfix_columns_blocks(e, b->block_units, &x);
        buf_f(&x, b->block_units ? "CELL_X_MAX, " : b->by_sequences ? "CELL_X_SIZE, 0, CELL_X_MAX, " : "");
        postfix_poly(e, poly_mul(m, b->columns, poly_const(m, b->arrays * dtype_bytes(b->dtype))), &x);
        buf_f(&x, "CELL_X_MUL, ");
        return expr_name(e, &x);
    }
    if (b->parts) {
        postfix_poly(e, poly_mul(m, b->elements, poly_const(m, dtype_bytes(b->dtype))), &x);
        postfix_copy_taken(e, b->parts, &x);
        buf_f(&x, "CELL_X_MUL, ");
        return expr_name(e, &x);
    }
    e->rows = b->ring && !in_reserve ? intern_f(m->c, "CELL_X_PUSH, %d, ", b->ring) : NULL;
    postfix_poly(e, poly_mul(m, b->elements, poly_const(m, dtype_bytes(b->dtype))), &x);
    e->rows = NULL;
    if (b->per_steps)
        buf_f(&x, "CELL_X_SIZE, 1, CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_MUL, ", b->per_steps);
    return expr_name(e, &x);
}

static int arg_of(const Print *e, TensorId t, ArgRole role)
{
    int a = call_arg_find(&e->args, t, role);
    if (a < 0)
        bug(e->p->m->c, "emit_plan", "no argument for %s", e->p->m->tensors.data[t].name);
    return a;
}

static int storage_buffer(Print *e, const Storage *st)
{
    return st->home == HOME_ARG ? st->arg : buffer_number(e, st->slot);
}

static int ref_buffer(Print *e, Ref r)
{
    Program *pr = e->pr;
    switch (r.kind) {
    case REF_NODE: {
        const Storage *st = &pr->node[r.id];
        if (st->home == HOME_NONE)
            st = &e->p->program[FORWARD].node[r.id];
        if (st->home == HOME_NONE)
            bug(e->p->m->c, "emit_plan", "%%%d lies nowhere", r.id);
        return storage_buffer(e, st);
    }
    case REF_TENSOR:
        if (e->p->m->tensors.data[r.id].kind == T_STATE)
            return arg_of(e, r.id, ROLE_VALUE);
        return storage_buffer(e, &pr->tensor[r.id]);
    case REF_FINAL: return arg_of(e, r.id, ROLE_FINAL);
    case REF_DFINAL: return arg_of(e, r.id, ROLE_D_FINAL);
    case REF_DINIT: return arg_of(e, r.id, ROLE_D_VALUE);
    case REF_CHECKPOINT: return buffer_number(e, pr->checkpoint[r.id]);
    case REF_INITIAL: return buffer_number(e, pr->initial[r.id]);
    case REF_CARRY: return buffer_number(e, pr->carry[r.id]);
    case REF_BEFORE: return buffer_number(e, pr->before[r.id]);
    case REF_BUFFER: return buffer_number(e, r.id);
    case REF_ROOT: break;
    }
    bug(e->p->m->c, "emit_plan", "a reference of kind %d", r.kind);
}

static void print_buffers(Print *e, const char *dir)
{
    Module *m = e->p->m;
    Buf rows = { .arena = m->arena };
    for (int i = 0; i < e->args.len; i++) {
        const CallArg *a = &e->args.data[i];
        buf_f(&rows, "    { \"%s\", CELL_FROM_ARG, %s, %d, NULL },\n", m->tensors.data[a->tensor].name,
              dtype_enum(m->tensors.data[a->tensor].dtype), i);
    }
    for (int i = 0; i < e->used.len; i++) {
        const Buffer *b = &e->p->buffers.data[e->used.data[i]];
        const char *origin = "CELL_FROM_WORKSPACE";
        if (b->reserve)
            origin = e->pr->dir == BACKWARD ? "CELL_FROM_RESERVE"
                     : b->inference         ? "CELL_FROM_RESERVE_OR_WORKSPACE"
                                            : "CELL_FROM_RESERVE";
        buf_f(&rows, "    { \"%s\", %s, %s, %d, %s },\n", b->name, origin, dtype_enum(b->dtype),
              b->reserve ? e->reserve[e->used.data[i]] : 0,
              buffer_bytes(e, e->used.data[i], false));
    }
    buf_f(e->host, "\nstatic const cell_buffer %s_buffers[] = {\n%s};\n", dir, rows.data);
}

/* ---- operations ---- */

static const char *arguments(Print *e, const char *name, const Wanted *list)
{
    buf_f(e->host, "static const int16_t %s[] = { ", name);
    for (int i = 0; i < list->len; i++)
        buf_f(e->host, "%d, ", list->data[i]);
    buf_f(e->host, "-1 };\n");
    return name;
}

static const char *need_name(Print *e, const Group *g)
{
    if (!g || g->always || g->need.len == 0)
        return "NULL";
    return arguments(e, intern_f(e->p->m->c, "%sneed_%d_%d", e->tag, e->pr->dir, e->n_ops), &g->need);
}

/* What a walk writes for other kernels has a buffer even where those do not run: per pointer, who is to be
 * asked. */
static const char *wanted_name(Print *e, const Group *g, const RefVec *refs)
{
    Compiler *c = e->p->m->c;
    Buf list = { .arena = e->p->m->arena };
    bool any = false;
    for (int i = 0; i < refs->len; i++) {
        const char *name = "NULL";
        for (int k = 0; k < g->walk->outs.len && refs->data[i].kind == REF_NODE; k++) {
            NodeId out = g->walk->outs.data[k];
            if (out == refs->data[i].id && e->pr->node[out].home != HOME_ARG)
                name = arguments(e, intern_f(c, "%swanted_%d_%d_%d", e->tag, e->pr->dir, e->n_ops, i),
                                 &g->walk->wanted[out]);
        }
        any |= strcmp(name, "NULL") != 0;
        buf_f(&list, "%s, ", name);
    }
    if (!any)
        return "NULL";
    const char *all = intern_f(c, "%swanted_%d_%d", e->tag, e->pr->dir, e->n_ops);
    buf_f(e->host, "static const int16_t *const %s[] = { %s};\n", all, list.data);
    return all;
}

/* Threads of a block whose row stays in registers: as many as the row needs. */
static void postfix_block(Print *e, const Group *g, int each, Buf *out)
{
    postfix_poly(e, g->row_extent, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, 32, CELL_X_MUL, CELL_X_PUSH, %d, CELL_X_MIN, "
               "CELL_X_PUSH, 32, CELL_X_MAX, ", 32 * each, g->threads);
}

static void postfix_not(Buf *x)
{
    buf_f(x, "CELL_X_PUSH, 0, CELL_X_EQ, ");
}

static const char *not_expr(Print *e, const Buf *condition)
{
    Buf x = program_new(e);
    buf_f(&x, "%s", condition->data);
    postfix_not(&x);
    return expr_name(e, &x);
}

/* 1 where a row takes more vectors a thread than usual, and the device has the shared memory for that; else 0. */
static void postfix_is_long(Print *e, const Group *g, int64_t smem, Buf *out)
{
    int64_t bytes = g->smem_each / g->slots * g->long_slots * g->threads + smem;
    buf_f(out, "CELL_X_PUSH, %d, ", g->each * g->threads);
    postfix_poly(e, g->row_extent, out);
    buf_f(out, "CELL_X_LT, ");
    postfix_poly(e, g->row_extent, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, CELL_X_PUSH, %lld, CELL_X_ATTR, CELL_ATTR_SMEM_MAX, CELL_X_LE, "
               "CELL_X_MUL, ", g->long_slots * plan_width(e->p) * g->threads, (long long)bytes);
}

/* How many threads a block has where the row says it, and its shared memory. */
static void print_block(Print *e, const Group *g, bool odd, int64_t smem)
{
    Buf block = program_new(e), bytes = program_new(e);
    bool by_row = g->row_extent;
    int each = odd ? g->narrow : g->each;
    if (by_row) {
        postfix_block(e, g, each, &block);
        buf_f(&e->table, ", .block = %s", expr_name(e, &block));
    }
    if (by_row && g->smem_each) {
        postfix_block(e, g, each, &bytes);
        buf_f(&bytes, "CELL_X_PUSH, %lld, CELL_X_MUL, CELL_X_PUSH, %lld, CELL_X_ADD, ", (long long)g->smem_each,
              (long long)smem);
        if (odd && g->long_slots) {
            postfix_is_long(e, g, smem, &bytes);
            buf_f(&bytes, "CELL_X_PUSH, %lld, CELL_X_MUL, CELL_X_ADD, ",
                  (long long)(g->smem_each / g->slots * (g->long_slots - g->slots) * g->threads));
        }
        buf_f(&e->table, ", .smem = %s", expr_name(e, &bytes));
    } else if (smem) {
        buf_f(&e->table, ", .smem = %s", poly_expr(e, poly_const(e->p->m, smem)));
    }
}

/* The row of a kernel is open: its threads, shared memory and further fields follow. */
static int kernel_number(Print *e, const char *name)
{
    buf_f(&e->table, "    { .name = \"%s\", .symbol = %s", name, name);
    vec_push(e->p->m->arena, &e->kernels, name);
    return e->kernels.len - 1;
}

/* Launching a step's kernel while the product before it ends pays where that product ends slowly: with the
 * long contractions of backward (measured on an H200: LSTM 1024 gains 7 percent of its backward, forward
 * loses 2). */
static bool starts_early(const Print *e, const Group *g, const RefVec *refs)
{
    return (e->pr->dir == BACKWARD && g->phase == PHASE_DURING && g->kind != G_WALK) || refs == &g->refs_2;
}

static int print_refs(Print *e, const RefVec *refs)
{
    int list = e->refs++;
    buf_f(e->host, "static const cell_ref %srefs_%d[] = { ", e->tag, list);
    for (int i = 0; i < refs->len; i++)
        buf_f(e->host, "{ %d, NULL }, ", ref_buffer(e, refs->data[i]));
    buf_f(e->host, "%s};\n", refs->len ? "" : "{ 0, NULL } ");
    return list;
}

/* Beside its group's need: under which condition, and what becomes args.t; NULL: none. odd: it is for the rows of which
 * the group has a second kernel. */
typedef struct LaunchTerms { const char *when, *t; bool odd; } LaunchTerms;

static void print_kernel_op_with(Print *e, const Group *g, const char *name, int threads, int64_t smem,
                                 const RefVec *refs, const char *gx, const char *gy, LaunchTerms terms)
{
    int kernel = kernel_number(e, name);
    if (refs->len > MAX_POINTERS)
        diag(e->p->m->c, DIAG_ERROR, e->p->m->span,
             "kernel %s needs %d arrays, and a kernel takes %d: an equation here has too many terms", name,
             refs->len, MAX_POINTERS);
    buf_f(&e->table, ", .threads = %d", threads);
    print_block(e, g, terms.odd, smem);
    if (g->kind == G_WALK && g->walk->cluster > 1)
        buf_f(&e->table, ", .cluster = %d", g->walk->cluster);
    buf_f(&e->table, "%s },\n", starts_early(e, g, refs) ? ", .dependent = 1" : "");
    const char *need = need_name(e, g);
    bool walks_back = g->kind == G_WALK && e->pr->dir == BACKWARD;
    const char *wanted = walks_back ? intern_f(e->p->m->c, ", .wanted = %s", wanted_name(e, g, refs)) : "";
    const char *when = terms.when ? intern_f(e->p->m->c, " .when = %s,", terms.when) : "";
    const char *t = terms.t ? intern_f(e->p->m->c, ", .t = %s", terms.t) : "";
    int list = print_refs(e, refs);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .need = %s,%s\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, %s, NULL }, .refs = %srefs_%d%s%s } },\n",
          name, need, when, kernel, refs->len, gx, gy, e->tag, list, t, wanted);
    e->n_ops++;
}

static void print_kernel_op(Print *e, const Group *g, const char *name, int threads, int64_t smem,
                            const RefVec *refs, const char *gx, const char *gy)
{
    print_kernel_op_with(e, g, name, threads, smem, refs, gx, gy, (LaunchTerms){ 0 });
}

/* 1 where rows are long, or not all multiples of 16 bytes; else 0. */
static void postfix_is_odd(Print *e, const Group *g, Buf *out)
{
    buf_f(out, "CELL_X_PUSH, 1, ");
    for (int i = 0; i < g->multiples.len; i++) {
        postfix_poly(e, g->multiples.data[i], out);
        buf_f(out, "CELL_X_PUSH, %d, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ", plan_width(e->p));
    }
    if (g->long_slots) {
        postfix_is_long(e, g, g->smem, out);
        postfix_not(out);
        buf_f(out, "CELL_X_MUL, ");
    }
    postfix_not(out);
}

/* And not where one kernel walks the steps, if that does this one's work. */
static void postfix_unless_walked(Print *e, const Group *g, Buf *out)
{
    if (!g->unless_walked)
        return;
    buf_f(out, "%s", e->walked.data);
    postfix_not(out);
    buf_f(out, "CELL_X_MUL, ");
}

/* A kernel with a block for each row or more, and where there is another for odd rows, that one. */
static void print_row_op(Print *e, const Group *g, const char *blocks)
{
    bool two = g->row_extent && (g->multiples.len || g->long_slots);
    if (!two) {
        LaunchTerms terms = { .when = g->unless_walked ? not_expr(e, &e->walked) : NULL };
        print_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, blocks, "NULL", terms);
        return;
    }
    Buf odd = program_new(e), usual = program_new(e);
    postfix_is_odd(e, g, &odd);
    postfix_is_odd(e, g, &usual);
    postfix_not(&usual);
    postfix_unless_walked(e, g, &usual);
    postfix_unless_walked(e, g, &odd);
    print_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, blocks, "NULL",
                         (LaunchTerms){ .when = expr_name(e, &usual) });
    print_kernel_op_with(e, g, plan_odd_kernel(e->p, g), g->threads, g->smem, &g->refs, blocks, "NULL",
                         (LaunchTerms){ .when = expr_name(e, &odd), .odd = true });
}

static const Poly *group_rows(Print *e, const Group *g)
{
    Module *m = e->p->m;
    const Poly *n = g->batched ? poly_dim(m, ATOM_B) : poly_const(m, 1);
    return g->timed && g->phase != PHASE_DURING ? poly_mul(m, n, poly_dim(m, ATOM_T)) : n;
}

static const char *blocks_expr(Print *e, const Poly *work, int per_block)
{
    Buf x = program_new(e);
    postfix_poly(e, work, &x);
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, ", per_block);
    return expr_name(e, &x);
}

/* The rows of partial sums: the sequences, or its blocks, where one kernel walks the steps and leaves them; else the
 * chunks. */
static const char *partial_rows_expr(Print *e, const Group *g, const Poly *columns)
{
    Buf x = program_new(e);
    postfix_chunks(e, group_rows(e, g), columns, false, &x);
    buf_f(&x, "%s", e->walked.data);
    postfix_not(&x);
    buf_f(&x, "CELL_X_MUL, ");
    if (e->pr->columns)
        postfix_columns_blocks(e, e->pr->columns->units, &x);
    else
        postfix_poly(e, poly_dim(e->p->m, ATOM_B), &x);
    buf_f(&x, "CELL_X_PUSH, 0, %sCELL_X_LT, CELL_X_MUL, CELL_X_ADD, ", e->walked.data);
    return expr_name(e, &x);
}

/* Where one kernel walks the steps, that may be the first stage. */
static void print_column_kernels(Print *e, Group *g, const Poly *columns)
{
    int64_t real = e->p->compute == DT_F64 ? 8 : 4;
    Buf chunks = program_new(e);
    LaunchTerms first = { .when = g->by_steps ? not_expr(e, &e->walked) : NULL };
    LaunchTerms second = { .t = g->by_steps ? partial_rows_expr(e, g, columns) : NULL };
    postfix_chunks(e, group_rows(e, g), columns, false, &chunks);
    const char *down = g->by_rows ? NULL : expr_name(e, &chunks), *across = blocks_expr(e, columns, COLUMN_WIDTH);
    if (down)
        print_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, across, down, first);
    print_kernel_op_with(e, g, intern_f(e->p->m->c, "%s_2", g->kernel), g->threads_2, g->threads_2 * real, &g->refs_2,
                         across, "NULL", second);
}

/* So many elements for each block, or vectors of them where the kernel takes vectors, which it asks of the sizes itself:
 * blocks without work would cost as much as others to start. */
static const char *vector_blocks(Print *e, const Group *g, const Poly *elements, int per_block)
{
    if (g->width == 1)
        return blocks_expr(e, elements, per_block);
    Buf x = program_new(e);
    postfix_poly(e, elements, &x);
    buf_f(&x, "CELL_X_PUSH, %d, ", g->width - 1);
    for (int i = 0; i < g->multiples.len; i++) {
        postfix_poly(e, g->multiples.data[i], &x);
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ", g->width);
    }
    if (g->enough && g->multiples.len) {
        buf_f(&x, "CELL_X_PUSH, %d, ", g->enough);
        postfix_poly(e, poly_mul(e->p->m, group_rows(e, g), product(e, g->axes, g->naxes)), &x);
        buf_f(&x, "CELL_X_LE, CELL_X_MUL, ");
    }
    buf_f(&x, "CELL_X_PUSH, 1, CELL_X_ADD, CELL_X_PUSH, %d, CELL_X_MUL, CELL_X_CEILDIV, ", per_block);
    return expr_name(e, &x);
}

static const char *map_blocks(Print *e, const Group *g, const Poly *elements)
{
    if (g->naxes == 1 && g->phase != PHASE_DURING)
        return blocks_expr(e, elements, g->threads * plan_width(e->p));
    return vector_blocks(e, g, elements, g->threads);
}

static void print_group_kernel(Print *e, Group *g)
{
    Module *m = e->p->m;
    const Poly *elements = product(e, g->axes, g->naxes), *work = poly_mul(m, group_rows(e, g), elements);
    if (g->kind == G_MAP && !g->flat) {
        const char *rows = g->packed ? vector_blocks(e, g, work, g->threads) : poly_expr(e, group_rows(e, g));
        print_kernel_op(e, g, g->kernel, g->threads, 0, &g->refs, map_blocks(e, g, elements), rows);
    } else if (g->kind == G_MAP) {
        print_kernel_op(e, g, g->kernel, g->threads, 0, &g->refs, blocks_expr(e, work, g->threads), "NULL");
    } else if (g->kind == G_ROW && g->sums) {
        const Group *sums = &e->pr->groups.data[g->sums - 1];
        Buf chunks = program_new(e);
        postfix_chunks(e, group_rows(e, g), sums->axes[0], true, &chunks);
        print_row_op(e, g, expr_name(e, &chunks));
    } else if (g->kind == G_ROW && g->window) {
        Buf x = program_new(e);
        postfix_poly(e, poly_mul(m, poly_dim(m, ATOM_B), elements), &x);
        postfix_poly(e, poly_dim(m, ATOM_T), &x);
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_MUL, ", WINDOW_TILE);
        print_kernel_op(e, g, g->kernel, g->threads, g->smem, &g->refs, expr_name(e, &x), "NULL");
    } else if (g->kind == G_ROW && g->along) {
        print_kernel_op(e, g, g->kernel, g->threads, g->smem, &g->refs, vector_blocks(e, g, work, 32), "NULL");
    } else if (g->kind == G_ROW) {
        print_row_op(e, g, blocks_expr(e, work, g->threads / g->lanes * (g->share ? g->share : 1)));
    } else if (g->kind == G_COLUMN) {
        print_column_kernels(e, g, elements);
    } else if (g->kind == G_WALK) {
        const Walk *w = g->walk;
        const Poly *blocks = poly_mul(m, poly_dim(m, ATOM_B), w->blocks);
        blocks = poly_mul(m, blocks, poly_const(m, w->cluster));
        print_kernel_op(e, g, w->kernel, w->threads, w->smem, &w->refs, poly_expr(e, blocks), "NULL");
    }
}

/* ---- sums at places ---- */

static const char *shares_expr(Print *e, const Poly *n, int each, int most, int times)
{
    Buf x = program_new(e);
    postfix_shares(e, n, each, most, &x);
    if (times > 1)
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_MUL, ", times);
    return expr_name(e, &x);
}

/* How many digits of 8 bits the places have, and the one behind them that stands for outside. */
static const char *passes_expr(Print *e, const Poly *rows)
{
    Buf x = program_new(e);
    buf_f(&x, mutate("short-sort") ? "CELL_X_PUSH, 0, " : "CELL_X_PUSH, 1, ");
    for (int digit = 1; digit < 8; digit++) {
        buf_f(&x, "CELL_X_PUSH, %lld, ", (long long)((int64_t)1 << (8 * digit)));
        postfix_poly(e, rows, &x);
        buf_f(&x, "CELL_X_LE, CELL_X_ADD, ");
    }
    return expr_name(e, &x);
}

static void print_scatter_kernel(Print *e, Group *g, int kernel, int64_t smem, const char *gx, const char *gy)
{
    print_kernel_op(e, g, intern_f(e->p->m->c, "%s_%s", g->kernel, scatter_kernels[kernel]), scatter_threads(kernel),
                    smem, &g->scatter->refs[kernel], gx, gy);
}

/* What no position adds to is 0, or stays as it is where the call adds gradients. */
static void print_zeros(Print *e, const Group *g)
{
    Module *m = e->p->m;
    NodeId id = g->arrays.data[0];
    const Storage *st = &e->pr->node[id];
    const Poly *bytes = poly_mul(m, array_elements(m, id), poly_const(m, dtype_bytes(st->dtype)));
    const char *need = need_name(e, g);
    buf_f(&e->ops,
          "    { .name = \"%s_zeros\", .kind = CELL_OP_FILL, .flags = %s, .need = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s, .byte = 0 } },\n",
          g->kernel, st->home == HOME_ARG ? "CELL_OP_OVERWRITE_ONLY" : "0", need, storage_buffer(e, st),
          poly_expr(e, bytes));
    e->n_ops++;
}

static void print_scatter(Print *e, Group *g)
{
    const Scatter *s = g->scatter;
    const char *sorts = shares_expr(e, s->positions, SORT_EACH, SORT_BLOCKS, 1);
    const char *one = shares_expr(e, s->positions, SORT_EACH, 1, 1);
    const char *columns = blocks_expr(e, s->columns, SCATTER_THREADS);
    print_zeros(e, g);
    print_scatter_kernel(e, g, SCATTER_KEYS, 0, blocks_expr(e, s->positions, SCATTER_THREADS), "NULL");
    const char *need = need_name(e, g);
    buf_f(&e->ops,
          "    { .name = \"%s_sort\", .kind = CELL_OP_LOOP, .need = %s,\n"
          "      .u.loop = { .from = NULL, .to = %s, .step = 1, .n_ops = 3 } },\n",
          g->kernel, need, passes_expr(e, s->rows));
    e->n_ops++;
    print_scatter_kernel(e, g, SCATTER_COUNT, 256 * 32 * 4, sorts, "NULL");
    print_scatter_kernel(e, g, SCATTER_SCAN, (1024 + 32) * 8, one, "NULL");
    print_scatter_kernel(e, g, SCATTER_MOVE, 256 * 32 * 4, sorts, "NULL");
    print_scatter_kernel(e, g, SCATTER_SUMS, 0, columns, shares_expr(e, s->positions, SHARE_EACH, SHARES, 1));
    print_scatter_kernel(e, g, SCATTER_TOTALS, 0, columns, shares_expr(e, s->positions, SHARE_EACH, SHARES, 2));
}

/* ---- products ---- */

typedef struct Side { int buffer; const char *offset; } Side;

static const Storage *read_storage(Print *e, const Read *r)
{
    return plan_storage(e->p, e->pr, r);
}

/* The buffer that keeps the operand for a few steps only, or NULL. */
static const Buffer *ring_of(Print *e, const Storage *st)
{
    bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
    const Buffer *b = kept && e->pr->dir == FORWARD ? &e->p->buffers.data[st->slot] : NULL;
    return b && b->ring ? b : NULL;
}

/* The row of this step. */
static void postfix_step(Print *e, const Storage *st, Buf *out)
{
    const Buffer *ring = ring_of(e, st);
    if (!ring)
        buf_f(out, "CELL_X_LOOPVAR, 0, ");
    else if (ring->reserve)
        buf_f(out, "CELL_X_ROW, %d, ", ring->ring);
    else
        buf_f(out, "CELL_X_LOOPVAR, 0, CELL_X_PUSH, %d, CELL_X_MOD, ", ring->ring);
}

/* The first element: where the read starts, the piece within its whole, and the step. */
static Side side_of(Print *e, const GemmSide *s, bool one_step)
{
    Module *m = e->p->m;
    const Storage *st = read_storage(e, &s->read);
    TensorId of;
    Buf x = program_new(e);
    postfix_poly(e, st->alias_offset ? poly_add(m, s->offset, st->alias_offset) : s->offset, &x);
    if (!s->read.is_tensor && root_kind(m, s->read.id, &of) == ROOT_DPREV) {
        const Poly *half = poly_mul(m, poly_dim(m, ATOM_B), tensor_elements(m, of));
        if (m->c->reverse)
            buf_f(&x, "CELL_X_SIZE, 1, CELL_X_PUSH, 1, CELL_X_SUB, ");
        buf_f(&x, "CELL_X_LOOPVAR, 0, %sCELL_X_PUSH, 2, CELL_X_MOD, ", m->c->reverse ? "CELL_X_SUB, " : "");
        postfix_poly(e, half, &x);
        buf_f(&x, "CELL_X_MUL, CELL_X_ADD, ");
        return (Side){ buffer_number(e, e->pr->carry[of]), expr_name(e, &x) };
    }
    if (one_step && st->timed) {
        const Poly *pitch = s->read.is_tensor ? tensor_elements(m, s->read.id)
                                              : array_elements(m, s->read.id);
        bool first = (st->home == HOME_WORKSPACE || st->home == HOME_RESERVE) && e->p->buffers.data[st->slot].time_first;
        postfix_step(e, st, &x);
        pitch = st->pitch ? st->pitch : pitch;
        postfix_poly(e, first ? poly_mul(m, pitch, poly_dim(m, ATOM_B)) : pitch, &x);
        buf_f(&x, "CELL_X_MUL, CELL_X_ADD, ");
    }
    return (Side){ storage_buffer(e, st), expr_name(e, &x) };
}

static void print_operand(Print *e, const char *name, const GemmSide *s, Side at)
{
    const Buffer *ring = ring_of(e, read_storage(e, &s->read));
    if (ring)
        e->rows = intern_f(e->p->m->c, "%s, %d, ", ring->reserve ? "CELL_X_ROWS" : "CELL_X_PUSH", ring->ring);
    buf_f(&e->ops, "          .%s = { { %d, %s }, %s, %s, %s },\n", name, at.buffer, at.offset,
          poly_expr(e, s->row), poly_expr(e, s->col), poly_expr(e, s->batch));
    e->rows = NULL;
}

/* The first result of a group overwrites what is there, or is added to what the caller has. */
static const char *first_beta(Print *e, const Group *g)
{
    if (g->gemm.added && !mutate("lost-product"))
        return "CELL_BETA_ONE";
    bool adds = read_storage(e, &g->gemm.c.read)->home == HOME_ARG && e->pr->dir == BACKWARD;
    return adds ? "CELL_BETA_ACCUMULATE" : "CELL_BETA_ZERO";
}

static const char *product_name(const Print *e, const Group *g)
{
    const char *value = e->p->m->nodes.data[g->arrays.data[0]].name;
    return value ? value : g->kernel;
}

static void print_result(Print *e, const Group *g, Side c)
{
    print_operand(e, "c", &g->gemm.c, c);
    buf_f(&e->ops, "      } },\n");
    e->n_ops++;
}

/* when: NULL where it is always made so. */
static void print_product(Print *e, Group *g, const char *when)
{
    bool one_step = g->phase == PHASE_DURING;
    Side a = side_of(e, &g->gemm.a, one_step), b = side_of(e, &g->gemm.b, one_step);
    Side c = side_of(e, &g->gemm.c, one_step);
    const char *need = need_name(e, g);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_GEMM, .need = %s,%s\n"
          "      .u.gemm = { .m = %s, .n = %s, .k = %s, .batch = %s, .alpha = 1, .beta = %s,\n",
          product_name(e, g), need, when ? intern_f(e->p->m->c, " .when = %s,", when) : "",
          poly_expr(e, g->gemm.m), poly_expr(e, g->gemm.n), poly_expr(e, g->gemm.k),
          poly_expr(e, g->gemm.batch), first_beta(e, g));
    print_operand(e, "a", &g->gemm.a, a);
    print_operand(e, "b", &g->gemm.b, b);
    print_result(e, g, c);
}

/* ---- products of parts ---- */

static const Parts *parts_of(const Print *e, const Gemm *g, bool left)
{
    return e->pr->parts.data[g->parts[left ? 0 : 1] - 1];
}

/* Multiplies by 1 where the extents' product is at least `least`; else by 0. They are cut, so that it does not overflow. */
static void postfix_at_least(Print *e, const Poly *const *extents, int n, int64_t least, Buf *out)
{
    buf_f(out, "CELL_X_PUSH, %lld, ", (long long)least);
    for (int i = 0; i < n; i++) {
        postfix_poly(e, extents[i], out);
        buf_f(out, "CELL_X_PUSH, %d, CELL_X_MIN, %s", 1 << 20, i ? "CELL_X_MUL, " : "");
    }
    buf_f(out, "CELL_X_LE, CELL_X_MUL, ");
}

/* 1 where a product takes parts: tensor cores give six products of bf16 in less time than one of f32, on devices that
 * have many of them, where operands are much less than terms. */
static void postfix_takes_parts(Print *e, const Gemm *g, Buf *out)
{
    const Poly *extents[] = { g->m, g->n, g->k };
    if (e->p->m->c->products == PRODUCTS_PARTS) {
        buf_f(out, "CELL_X_PUSH, 1, ");
        return;
    }
    buf_f(out, "CELL_X_ATTR, CELL_ATTR_CAPABILITY, CELL_X_PUSH, 80, CELL_X_EQ, CELL_X_PUSH, 90, CELL_X_ATTR, "
               "CELL_ATTR_CAPABILITY, CELL_X_LE, CELL_X_ATTR, CELL_ATTR_CAPABILITY, CELL_X_PUSH, 110, CELL_X_LT, "
               "CELL_X_MUL, CELL_X_ADD, ");
    for (int i = 0; i < 3; i++)
        postfix_at_least(e, &extents[i], 1, PARTS_EXTENT, out);
    for (int side = 0; side < 2; side++) {
        postfix_poly(e, parts_of(e, g, side == 0)->columns, out);
        buf_f(out, "CELL_X_PUSH, %d, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ", PARTS_MULTIPLE);
    }
    postfix_at_least(e, extents, 2, PARTS_RESULT, out);
    postfix_at_least(e, extents, 3, PARTS_TERMS, out);
}

/* 1 where any of the products takes its copy. */
static void postfix_copy_taken(Print *e, const Parts *x, Buf *out)
{
    for (int i = 0; i < x->products.len; i++) {
        postfix_takes_parts(e, &x->products.data[i]->gemm, out);
        buf_f(out, i ? "CELL_X_MAX, " : "");
    }
}

/* Where sizes do not matter there is no condition. */
static const char *takes_parts(Print *e, const Gemm *g, bool takes)
{
    Buf x = program_new(e);
    if (e->p->m->c->products == PRODUCTS_PARTS)
        return NULL;
    postfix_takes_parts(e, g, &x);
    return takes ? expr_name(e, &x) : not_expr(e, &x);
}

/* Before the first product that may take it, for whoever wants any of them. */
static void print_parts_copy(Print *e, Parts *x)
{
    Group own = { .kind = G_MAP };
    Buf taken = program_new(e);
    postfix_copy_taken(e, x, &taken);
    for (int i = 0; i < x->products.len; i++) {
        const Group *g = x->products.data[i];
        own.always |= g->always || g->need.len == 0;
        for (int k = 0; k < g->need.len; k++)
            vec_push(e->p->m->arena, &own.need, g->need.data[k]);
    }
    bool sized = e->p->m->c->products != PRODUCTS_PARTS;
    print_kernel_op_with(e, &own, x->kernel, PARTS_THREADS, 0, &x->refs,
                         blocks_expr(e, x->columns, 8 * PARTS_THREADS), poly_expr(e, x->rows),
                         (LaunchTerms){ .when = sized ? expr_name(e, &taken) : NULL });
}

/* A product of `n` parts of each operand, from these places on: all terms of one size, or one of them. */
typedef struct PartsTerm {
    int left, right, n;
    bool pieces;                  /* a piece of k, whose start is the loop's variable */
    const char *beta;
} PartsTerm;

static void postfix_parts_offset(Print *e, const Parts *x, int place, const Poly *along_k, const PartsTerm *t, Buf *out)
{
    Module *m = e->p->m;
    const Poly *part = x->planes ? poly_mul(m, x->rows, x->columns) : x->columns;
    postfix_poly(e, poly_mul(m, part, poly_const(m, place)), out);
    if (t->pieces && !mutate("first-piece")) {
        buf_f(out, "CELL_X_LOOPVAR, 0, ");
        postfix_poly(e, along_k, out);
        buf_f(out, "CELL_X_MUL, CELL_X_ADD, ");
    }
}

static void print_parts_operand(Print *e, const Gemm *g, bool left, const PartsTerm *t)
{
    Module *m = e->p->m;
    const Parts *x = parts_of(e, g, left);
    bool last = parts_along_k(left ? &g->a : &g->b, left), follow = !last && !x->planes && t->n == PARTS;
    const Poly *one = poly_const(m, 1);
    const Poly *pitch = x->planes || follow ? x->columns : poly_mul(m, x->columns, poly_const(m, PARTS));
    const Poly *along_k = last ? one : pitch, *across = last ? pitch : one;
    Buf offset = program_new(e);
    postfix_parts_offset(e, x, left ? t->left : t->right, along_k, t, &offset);
    const char *from = expr_name(e, &offset);
    buf_f(&e->ops, "          .%s = { { %d, %s }, %s, %s, NULL },\n", left ? "a" : "b", buffer_number(e, x->buffer), from,
          poly_expr(e, left ? across : along_k), poly_expr(e, left ? along_k : across));
}

static const char *parts_depth(Print *e, const Gemm *g, const PartsTerm *t)
{
    Buf x = program_new(e);
    postfix_poly(e, poly_mul(e->p->m, g->k, poly_const(e->p->m, t->n)), &x);
    if (t->pieces)
        buf_f(&x, "CELL_X_LOOPVAR, 0, CELL_X_SUB, CELL_X_PUSH, %d, CELL_X_MIN, ", PARTS_PIECE);
    return expr_name(e, &x);
}

static void print_parts_product(Print *e, const Group *g, PartsTerm t)
{
    const char *need = need_name(e, g), *when = takes_parts(e, &g->gemm, true), *depth = parts_depth(e, &g->gemm, &t);
    buf_f(&e->ops,
          "    { .name = \"%s of parts\", .kind = CELL_OP_GEMM, .need = %s,%s\n"
          "      .u.gemm = { .m = %s, .n = %s, .k = %s, .alpha = 1, .beta = %s,\n",
          product_name(e, g), need, when ? intern_f(e->p->m->c, " .when = %s,", when) : "", poly_expr(e, g->gemm.m),
          poly_expr(e, g->gemm.n), depth, t.beta);
    print_parts_operand(e, &g->gemm, true, &t);
    print_parts_operand(e, &g->gemm, false, &t);
    print_result(e, g, side_of(e, &g->gemm.c, false));
}

/* The smallest terms first. Only the largest are so large that it matters how tensor cores add: these go by pieces of k,
 * whose sums are added as f32 is. */
static void print_parts_products(Print *e, const Group *g)
{
    const Gemm *x = &g->gemm;
    bool follow = !parts_along_k(&x->a, true) && !parts_along_k(&x->b, false);   /* then terms of two sizes are apart */
    print_parts_product(e, g, (PartsTerm){ 0, 0, 3, false, first_beta(e, g) });
    if (follow) {
        print_parts_product(e, g, (PartsTerm){ 1, 0, 1, false, "CELL_BETA_ONE" });
        print_parts_product(e, g, (PartsTerm){ 2, 1, 1, false, "CELL_BETA_ONE" });
    } else {
        print_parts_product(e, g, (PartsTerm){ 1, 0, 2, false, "CELL_BETA_ONE" });
    }
    const char *need = need_name(e, g), *when = takes_parts(e, x, true);
    buf_f(&e->ops,
          "    { .name = \"pieces of k\", .kind = CELL_OP_LOOP, .need = %s,%s\n"
          "      .u.loop = { .from = NULL, .to = %s, .step = %d, .n_ops = 1 } },\n",
          need, when ? intern_f(e->p->m->c, " .when = %s,", when) : "", poly_expr(e, x->k), PARTS_PIECE);
    e->n_ops++;
    print_parts_product(e, g, (PartsTerm){ 2, 0, 1, true, "CELL_BETA_ONE" });
}

static void print_gemm(Print *e, Group *g)
{
    if (!g->gemm.parts[0]) {
        print_product(e, g, NULL);
        return;
    }
    if (e->p->m->c->products != PRODUCTS_PARTS)
        print_product(e, g, takes_parts(e, &g->gemm, false));
    for (int side = 0; side < 2; side++) {
        Parts *x = e->pr->parts.data[g->gemm.parts[side] - 1];
        if (x->products.data[0] == g)
            print_parts_copy(e, x);
    }
    print_parts_products(e, g);
}

/* ---- a direction ---- */

static void print_phase(Print *e, Phase phase)
{
    for (int i = 0; i < e->pr->groups.len; i++) {
        Group *g = &e->pr->groups.data[i];
        if (g->phase != phase)
            continue;
        if (g->kind == G_GEMM)
            print_gemm(e, g);
        else if (g->kind == G_SCATTER)
            print_scatter(e, g);
        else
            print_group_kernel(e, g);
    }
}

static bool is_state(const Module *m, TensorId t)
{
    return m->tensors.data[t].kind == T_STATE;
}

/* Blocks that have a head do this themselves. */
static void print_states(Print *e, int which)
{
    Module *m = e->p->m;
    LaunchTerms terms = { .when = e->headed.data ? not_expr(e, &e->headed) : NULL };
    const Poly *most = poly_const(m, 0);
    Group own = { .always = which != STATE_RESULT };
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (!is_state(m, t))
            continue;
        most = poly_add(m, most, tensor_elements(m, t));
        int arg = which == STATE_RESULT ? arg_of(e, t, ROLE_D_VALUE) : -1;
        if (arg >= 0)
            vec_push(m->arena, &own.need, arg);
    }
    if (most->nterms)
        print_kernel_op_with(e, &own, e->states->name[which], 256, 0, &e->states->refs[which],
                             blocks_expr(e, poly_mul(m, poly_dim(m, ATOM_B), most), 256), "NULL", terms);
}

/* ---- all steps in one kernel ---- */

static void postfix_times(Print *e, const Poly *p, int each, int times, Buf *out)
{
    postfix_poly(e, p, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, %d, CELL_X_MUL, ", each, times);
}

/* As cell_panel::carve and emit_panel take it: the weights in the storage type that are not in registers (of so many blocks
 * along k some of the tiles, cell_panel's held), the warps' shares of the sums, those of a cluster's blocks, and the sums. */
static const char *panel_smem(Print *e, const Panel *w)
{
    int own = PANEL_TURN * w->outer * w->own * 4, shared = own * w->batch / PANEL_TURN, tiles = w->outer * w->own * w->split / 8;
    int slices = w->inner % w->split ? w->split : 1, pieces = w->inner * slices / w->split;
    int shares = 8 * tiles * 8 * w->batch * 4 + (w->split > 1 ? 2 * w->split * shared + 2 * 16 : 0);
    int tile = 8 * 256 * (e->p->dtype == DT_F32 ? 4 : 2), halves = w->batch / PANEL_TURN;
    int ahead = slices > 1 && tiles > 2 ? 2 : tiles > 2 || halves > 1 ? 4 : 8, most = 16 / (halves * halves) / ahead;
    int held = pieces > 1 || e->p->dtype == DT_F32 ? 0 : tiles < most ? tiles : most;
    Buf x = program_new(e);
    postfix_times(e, w->units, 8 * 32 * slices, pieces * tiles * tile, &x);
    if (held > 0) {
        postfix_times(e, w->units, 8 * 32 * slices, 1, &x);
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_MIN, CELL_X_PUSH, %d, CELL_X_MUL, CELL_X_SUB, ", ahead, held * tile);
    }
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_ADD, CELL_X_SIZE, 0, CELL_X_PUSH, 16, CELL_X_CEILDIV, CELL_X_PUSH, %d, "
              "CELL_X_MUL, CELL_X_ADD, ", shares, own);
    return expr_name(e, &x);
}

static void postfix_panel_blocks(Print *e, const Panel *w, Buf *out)
{
    postfix_poly(e, w->units, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, ", w->own * w->split);
    if (w->split > 1)
        buf_f(out, "CELL_X_PUSH, %d, CELL_X_MUL, ", w->split);
}

/* ---- a head in a block ---- */

/* As cell_head::carve takes it, on tensor cores: the param in tiles of 16 rows and blocks of 32 along k, the operand of
 * 8 sequences, and their sums, as often as k is divided (parts). */
static const char *head_smem_tiles(Print *e, const Panel *w)
{
    Buf x = program_new(e);
    postfix_times(e, w->units, 16, w->outer, &x);
    postfix_times(e, w->units, 32, w->inner, &x);
    buf_f(&x, "CELL_X_MUL, CELL_X_PUSH, 1024, CELL_X_MUL, ");
    postfix_times(e, w->units, 32, w->inner * 512, &x);
    buf_f(&x, "CELL_X_ADD, CELL_X_PUSH, 8, ");
    postfix_times(e, w->units, 16, w->outer, &x);
    buf_f(&x, "CELL_X_DIV, ");
    postfix_times(e, w->units, 32, w->inner, &x);
    buf_f(&x, "CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, ");
    postfix_times(e, w->units, 16, w->outer * 16, &x);
    buf_f(&x, "CELL_X_PUSH, 4, CELL_X_ADD, CELL_X_MUL, CELL_X_PUSH, 32, CELL_X_MUL, CELL_X_ADD, ");
    return expr_name(e, &x);
}

/* The same in the type of the arithmetic; each of the three begins at a multiple of 16 bytes. */
static const char *head_smem_real(Print *e, const Panel *w)
{
    int real = e->p->compute == DT_F64 ? 8 : 4;
    Buf x = program_new(e);
    postfix_times(e, w->units, 1, w->inner, &x);
    postfix_times(e, w->units, 1, w->outer, &x);
    buf_f(&x, "CELL_X_PUSH, 8, CELL_X_ADD, CELL_X_MUL, CELL_X_PUSH, %d, ", HEAD_THREADS);
    postfix_times(e, w->units, 1, w->outer, &x);
    buf_f(&x, "CELL_X_DIV, CELL_X_PUSH, 8, CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, ");
    postfix_times(e, w->units, 1, w->outer, &x);
    buf_f(&x, "CELL_X_PUSH, 8, CELL_X_MUL, CELL_X_MUL, CELL_X_ADD, CELL_X_PUSH, %d, CELL_X_MUL, CELL_X_PUSH, 48, "
              "CELL_X_ADD, ", real);
    return expr_name(e, &x);
}

static bool narrow_storage(const Print *e)
{
    return e->p->dtype == DT_BF16 || e->p->dtype == DT_F16;
}

/* A block for each head of so many sequences that all multiprocessors have one, as far as its threads suffice. */
static const char *head_blocks(Print *e, const Panel *w)
{
    Module *m = e->p->m;
    Buf x = program_new(e);
    postfix_poly(e, poly_dim(m, ATOM_B), &x);
    postfix_poly(e, poly_mul(m, poly_dim(m, ATOM_B), w->heads), &x);
    buf_f(&x, "CELL_X_ATTR, CELL_ATTR_SM_COUNT, CELL_X_CEILDIV, CELL_X_PUSH, %d, ", HEAD_THREADS);
    postfix_poly(e, w->units, &x);
    buf_f(&x, "CELL_X_DIV, CELL_X_MIN, CELL_X_PUSH, %d, CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_CEILDIV, ",
          HEAD_BATCH);
    postfix_poly(e, w->heads, &x);
    buf_f(&x, "CELL_X_MUL, ");
    return expr_name(e, &x);
}

/* ---- a head in a cluster ---- */

/* As cell_cluster_head::carve takes it: the operand of 8 sequences twice, the sums of each part, and two inboxes. */
static const char *cluster_smem(Print *e, const Panel *w)
{
    Buf x = program_new(e);
    postfix_times(e, w->units, 32, w->inner * 2 * HEAD_BATCH * 64, &x);
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_ADD, ", CLUSTER_PARTS * HEAD_BATCH * (w->outer * w->own + 4) * 4 + 2 * 16);
    return expr_name(e, &x);
}

/* A cluster for each head of so many sequences that all clusters which the device holds have work. */
static const char *cluster_blocks(Print *e, const Panel *w, int kernel)
{
    Module *m = e->p->m;
    Buf x = program_new(e);
    postfix_poly(e, poly_dim(m, ATOM_B), &x);
    postfix_poly(e, poly_mul(m, poly_dim(m, ATOM_B), w->heads), &x);
    buf_f(&x, "CELL_X_RESIDENT, %d, CELL_X_PUSH, %d, CELL_X_DIV, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_CEILDIV, "
              "CELL_X_PUSH, %d, CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_CEILDIV, ", kernel, CLUSTER_BLOCKS,
          HEAD_BATCH);
    postfix_poly(e, w->heads, &x);
    buf_f(&x, "CELL_X_MUL, CELL_X_PUSH, %d, CELL_X_MUL, ", CLUSTER_BLOCKS);
    return expr_name(e, &x);
}

/* ---- which of them ---- */

/* 1 where the device holds all blocks at once and the batch is small, but not too small for it; else 0. */
static void postfix_panel_fits(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_panel_blocks(e, w, x);
    buf_f(x, "CELL_X_RESIDENT, %d, CELL_X_LE, CELL_X_SIZE, 0, CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", kernel,
          narrow_storage(e) ? PANEL_BATCH_NARROW : PANEL_BATCH);
    if (w->batch > PANEL_TURN)
        buf_f(x, "CELL_X_PUSH, %d, CELL_X_SIZE, 0, CELL_X_LT, CELL_X_MUL, ", PANEL_TURN);
}

/* 1 where a block has a thread for each unit, and room for the head. */
static void postfix_head_fits(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_PUSH, 1, CELL_X_RESIDENT, %d, CELL_X_LE, CELL_X_MUL, ", HEAD_THREADS,
          kernel);
}

/* 1 where a cluster has room for the head, the device for a cluster, and the batch is small. */
static void postfix_cluster_fits(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_PUSH, %d, CELL_X_RESIDENT, %d, CELL_X_LE, CELL_X_MUL, ",
          CLUSTER_BLOCKS * w->own, CLUSTER_BLOCKS, kernel);
    postfix_poly(e, poly_mul(e->p->m, poly_dim(e->p->m, ATOM_B), w->heads), x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", PANEL_BATCH);
}

static void print_panel_op(Print *e, Panel *w, const char *grid, const char *when, int kernel)
{
    int list = print_refs(e, &w->refs);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .when = %s,\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, NULL, NULL }, .refs = %srefs_%d } },\n",
          w->kernel, when, kernel, w->refs.len, grid, e->tag, list);
    e->n_ops++;
}

/* 1 where a cluster is faster than a block that has room for the head too: a block's step grows with the units squared. Only
 * while the device holds all clusters at once, of up to 8 sequences each. */
static void postfix_cluster_pays(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_cluster_fits(e, w, kernel, x);
    buf_f(x, "CELL_X_PUSH, %d, ", CLUSTER_UNITS);
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_LE, CELL_X_MUL, ");
    postfix_poly(e, poly_dim(e->p->m, ATOM_B), x);
    buf_f(x, "CELL_X_RESIDENT, %d, CELL_X_PUSH, %d, CELL_X_DIV, CELL_X_LE, CELL_X_MUL, ", kernel,
          CLUSTER_BLOCKS / HEAD_BATCH);
}

/* Of several heads each takes a cluster, which a block would do. */
static bool cluster_may_pay(const Panel *w)
{
    return w->heads->is_const && w->heads->value == 1;
}

/* Where the kernels of heads and of clusters do not run; -1: there is no such kernel. */
static void postfix_neither(Print *e, int head, int cluster, Buf *x)
{
    if (head >= 0) {
        postfix_head_fits(e, e->pr->head, head, x);
        postfix_not(x);
        buf_f(x, "CELL_X_MUL, ");
    }
    if (cluster >= 0) {
        postfix_cluster_fits(e, e->pr->cluster, cluster, x);
        postfix_not(x);
        buf_f(x, "CELL_X_MUL, ");
    }
}

/* The kernel's number in the table. */
static int head_number(Print *e, Panel *w)
{
    int kernel = kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s },\n", HEAD_THREADS,
          narrow_storage(e) ? head_smem_tiles(e, w) : head_smem_real(e, w));
    return kernel;
}

static int cluster_number(Print *e, Panel *w)
{
    int kernel = kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cluster = %d },\n", CLUSTER_THREADS, cluster_smem(e, w),
          CLUSTER_BLOCKS);
    return kernel;
}

/* cluster: the kernel of clusters that have a head, or -1; where that is faster, this does not run. */
static void print_head(Print *e, Panel *w, int kernel, int cluster)
{
    Buf when = program_new(e);
    postfix_head_fits(e, w, kernel, &when);
    if (cluster >= 0 && cluster_may_pay(w)) {
        postfix_cluster_pays(e, e->pr->cluster, cluster, &when);
        postfix_not(&when);
        buf_f(&when, "CELL_X_MUL, ");
    }
    print_panel_op(e, w, head_blocks(e, w), expr_name(e, &when), kernel);
}

/* head: the kernel of blocks that have a head, or -1; where that runs, this does not. */
static void print_cluster(Print *e, Panel *w, int kernel, int head)
{
    Buf when = program_new(e);
    postfix_cluster_fits(e, w, kernel, &when);
    if (head >= 0 && cluster_may_pay(w)) {
        postfix_head_fits(e, e->pr->head, head, &when);
        postfix_not(&when);
        postfix_cluster_pays(e, w, kernel, &when);
        buf_f(&when, "CELL_X_MAX, CELL_X_MUL, ");
    } else {
        postfix_neither(e, head, -1, &when);
    }
    print_panel_op(e, w, cluster_blocks(e, w, kernel), expr_name(e, &when), kernel);
}

/* A kernel of blocks that walk all steps together, and its number. */
typedef struct Grid { Panel *panel; int kernel; } Grid;

/* head, cluster: the kernels that come before this one, or -1; and `before` others. */
static int print_grid_panel(Print *e, Panel *w, int head, int cluster, const Grid *before, int n)
{
    Buf blocks = program_new(e), fits = program_new(e);
    postfix_panel_blocks(e, w, &blocks);
    int kernel = kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cluster = %d, .cooperative = 1 },\n", PANEL_THREADS,
          panel_smem(e, w), w->split);
    postfix_panel_fits(e, w, kernel, &fits);
    postfix_neither(e, head, cluster, &fits);
    for (int i = 0; i < n; i++) {
        postfix_panel_fits(e, before[i].panel, before[i].kernel, &fits);
        postfix_not(&fits);
        buf_f(&fits, "CELL_X_MUL, ");
    }
    const char *when = expr_name(e, &fits);
    buf_f(&e->ops,
          "    { .name = \"posts\", .kind = CELL_OP_FILL, .when = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          when, buffer_number(e, w->posts), poly_expr(e, poly_const(e->p->m, panel_posts(w) * 4)));
    e->n_ops++;
    print_panel_op(e, w, expr_name(e, &blocks), when, kernel);
    return kernel;
}

/* ---- columns of a sequence in blocks ---- */

/* As cell_columns::carve takes it: the own piece, those of other blocks, the weights that are not in registers, barriers, and
 * what sums of columns over the block's warps take. */
static const char *columns_smem(Print *e, const Panel *w)
{
    enum { PIECE = COLUMNS_UNITS * COLUMNS_MOST * 2, WEIGHTS = COLUMNS_UNITS * COLUMNS_UNITS };
    Buf x = program_new(e);
    postfix_times(e, w->units, COLUMNS_UNITS, WEIGHTS, &x);
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_ADD, ",
          (1 + COLUMNS_SLOTS) * PIECE + (COLUMNS_SLOTS + 1) * 16 + (w->sums ? COLUMNS_SUMS * 4 : 0));
    return expr_name(e, &x);
}

/* 1 where the device holds all blocks at once, blocks hold the weights, and units are whole vectors of 16 bytes; else 0. */
static void postfix_columns_fit(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_columns_blocks(e, w->units, x);
    buf_f(x, "CELL_X_RESIDENT, %d, CELL_X_LE, ", kernel);
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", COLUMNS_UNITS * COLUMNS_PIECES);
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, 8, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ");
    postfix_poly(e, w->columns, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", COLUMNS_MOST);
}

static const char *print_columns(Print *e)
{
    Panel *w = e->pr->columns;
    Buf blocks = program_new(e), fit = program_new(e);
    int kernel = kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cooperative = 90 },\n", COLUMNS_THREADS, columns_smem(e, w));
    postfix_columns_blocks(e, w->units, &blocks);
    postfix_columns_fit(e, w, kernel, &fit);
    const char *when = expr_name(e, &fit);
    buf_f(&e->ops,
          "    { .name = \"posts\", .kind = CELL_OP_FILL, .when = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          when, buffer_number(e, w->posts), poly_expr(e, poly_mul(e->p->m, columns_posts(e->p), poly_const(e->p->m, 4))));
    e->n_ops++;
    print_panel_op(e, w, expr_name(e, &blocks), when, kernel);
    e->walked = program_new(e);
    postfix_columns_fit(e, w, kernel, &e->walked);
    return not_expr(e, &e->walked);
}

/* The kernels that walk all steps, and the condition under which the loop of kernels is needed after all. */
static const char *print_panel(Print *e)
{
    Panel *w = e->pr->panel, *h = e->pr->head, *c = e->pr->cluster;
    if (e->pr->columns)
        return print_columns(e);
    if (!w && !h && !c)
        return "NULL";
    int head = h ? head_number(e, h) : -1, cluster = c ? cluster_number(e, c) : -1, forms = (h != NULL) + (c != NULL);
    if (h)
        print_head(e, h, head, cluster);
    if (c)
        print_cluster(e, c, cluster, head);
    if (forms) {
        e->headed = program_new(e);
        if (h)
            postfix_head_fits(e, h, head, &e->headed);
        if (c)
            postfix_cluster_fits(e, c, cluster, &e->headed);
        if (forms > 1)
            buf_f(&e->headed, "CELL_X_ADD, ");
        print_states(e, e->pr->dir == FORWARD ? STATE_INIT : STATE_SEED);
    }
    Panel *all[] = { e->pr->wide, e->pr->pairs, w };
    Grid grids[3];
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (all[i]) {
            grids[n] = (Grid){ all[i], print_grid_panel(e, all[i], head, cluster, grids, n) };
            n++;
        }
    e->walked = program_new(e);
    if (forms)
        buf_f(&e->walked, "%s", e->headed.data);
    for (int i = 0; i < n; i++) {
        postfix_panel_fits(e, grids[i].panel, grids[i].kernel, &e->walked);
        buf_f(&e->walked, "%s", forms || i > 0 ? "CELL_X_ADD, " : "");
    }
    return not_expr(e, &e->walked);
}

/* Few units that have many steps. Sizes alone decide, so that no sum's order depends on the device. */
static void postfix_chunks_pay(Print *e, const Panel *w, Buf *x)
{
    postfix_poly(e, poly_mul(e->p->m, poly_dim(e->p->m, ATOM_B), w->units), x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LT, CELL_X_PUSH, %d, CELL_X_SIZE, 1, CELL_X_LE, CELL_X_MUL, ", CHUNK_UNITS,
          CHUNK_STEPS);
}

/* Of 32 units, or of 64. */
static const char *paired_blocks(Print *e, const Poly *elements)
{
    Buf x = program_new(e);
    postfix_poly(e, elements, &x);
    buf_f(&x, "CELL_X_PUSH, %d, ", BLOCK_UNITS);
    postfix_poly(e, elements, &x);
    buf_f(&x, "CELL_X_LE, CELL_X_PUSH, 1, CELL_X_ADD, CELL_X_PUSH, 32, CELL_X_MUL, CELL_X_CEILDIV, ");
    return expr_name(e, &x);
}

static void print_scan_op(Print *e, Panel *w, const char *when)
{
    const Poly *elements = poly_mul(e->p->m, poly_dim(e->p->m, ATOM_B), w->units);
    int kernel = kernel_number(e, w->kernel);
    int64_t bytes = scan_shared(e->p, w) * (e->p->compute == DT_F64 ? 8 : 4) + w->staged;
    buf_f(&e->table, ", .threads = %d", scan_threads(w));
    if (bytes)
        buf_f(&e->table, ", .smem = %s", poly_expr(e, poly_const(e->p->m, bytes)));
    buf_f(&e->table, " },\n");
    const char *blocks = w->pairs ? paired_blocks(e, elements) : blocks_expr(e, elements, w->chunks ? 32 : SCAN_THREADS);
    print_panel_op(e, w, blocks, when, kernel);
}

/* The kernels of schedule scan: one walks all steps, or chunks of them at once. */
static void print_scan(Print *e)
{
    Buf chunks = program_new(e), walk = program_new(e);
    if (!e->pr->chunks) {
        print_scan_op(e, e->pr->panel, "NULL");
        return;
    }
    postfix_chunks_pay(e, e->pr->panel, &chunks);
    postfix_chunks_pay(e, e->pr->panel, &walk);
    postfix_not(&walk);
    print_scan_op(e, e->pr->chunks, expr_name(e, &chunks));
    print_scan_op(e, e->pr->panel, expr_name(e, &walk));
}

static void print_loop(Print *e)
{
    if (e->p->schedule == SCHED_SCAN) {
        print_scan(e);
        return;
    }
    const char *when = print_panel(e);
    Buf body = { .arena = e->p->m->arena }, saved = e->ops;
    int before = e->n_ops;
    Module *m = e->p->m;
    e->ops = body;
    print_phase(e, PHASE_DURING);
    body = e->ops;
    e->ops = saved;
    int n = e->n_ops - before;
    if (n == 0)
        return;
    bool back = (e->pr->dir == BACKWARD) != m->c->reverse;     /* the loop's variable is the row in memory */
    const Poly *T = poly_dim(m, ATOM_T), *one = poly_const(m, 1), *minus = poly_const(m, -1);
    buf_f(&e->ops,
          "    { .name = \"steps\", .kind = CELL_OP_LOOP, .flags = CELL_OP_GRAPH, .when = %s,\n"
          "      .u.loop = { .from = %s, .to = %s, .step = %d, .n_ops = %d } },\n%s", when,
          back ? poly_expr(e, poly_sub(m, T, one)) : poly_expr(e, poly_const(m, 0)),
          back ? poly_expr(e, minus) : poly_expr(e, T), back ? -1 : 1, n, body.data);
    e->n_ops++;
}

/* Behind all that reads what the call began with: the two may be one buffer. */
static void print_histories(Print *e)
{
    Module *m = e->p->m;
    for (int i = 0; i < e->n_histories; i++) {
        HistoryKernel *h = &e->histories[i];
        const Group own = { .always = true };
        const Poly *work = poly_dim(m, ATOM_B);
        for (int k = 1; k < m->tensors.data[h->history].rank; k++)
            work = poly_mul(m, work, m->tensors.data[h->history].axes[k]);
        print_kernel_op(e, &own, h->name, 256, 0, &h->refs, blocks_expr(e, work, 256), "NULL");
    }
}

/* Do kernels of their own begin and end the walk? */
static bool has_state_kernels(const Plan *p)
{
    return p->schedule != SCHED_TILE && !(p->scan && p->scan->own_ends);
}

static void print_direction(Print *e, Direction dir)
{
    Module *m = e->p->m;
    const char *name = intern_f(m->c, "%s%s", e->tag, dir == FORWARD ? "forward" : "backward");
    bool ends = has_state_kernels(e->p);
    e->pr = &e->p->program[dir];
    e->args = dir == FORWARD ? forward_arguments(m) : backward_arguments(m);
    e->ops = (Buf){ .arena = m->arena };
    e->n_ops = 0;
    e->used.len = 0;
    e->headed.data = e->walked.data = NULL;
    for (int i = 0; i < e->p->buffers.len; i++)
        e->buffer[i] = -1;
    print_phase(e, PHASE_PARAM);
    print_phase(e, PHASE_BEFORE);
    /* Behind the phase: a step's first kernel may start while the one before the loop ends. */
    if (ends && !e->pr->head && !e->pr->cluster)
        print_states(e, dir == FORWARD ? STATE_INIT : STATE_SEED);
    if (e->p->schedule == SCHED_TILE)
        print_phase(e, PHASE_DURING);
    else
        print_loop(e);
    print_phase(e, PHASE_AFTER);
    if (dir == FORWARD)
        print_histories(e);
    if (dir == BACKWARD && ends)
        print_states(e, STATE_RESULT);
    print_buffers(e, name);
    if (e->n_ops == 0) {
        buf_f(&e->ops, "    { .name = \"nothing\", .kind = CELL_OP_FILL },\n");
    }
    buf_f(e->host, "\nstatic const cell_op %s_ops[] = {\n%s};\n", name, e->ops.data);
    buf_f(e->host, "\nstatic const cell_plan %s_plan = { %s_buffers, %s_ops, %d, %d };\n\n", name, name, name,
          e->args.len + e->used.len, e->n_ops);
}

static void print_reserve(Print *e, int *count)
{
    Buf rows = { .arena = e->p->m->arena };
    int n = 0;
    for (int i = 0; i < e->p->buffers.len; i++) {
        const Buffer *b = &e->p->buffers.data[i];
        e->reserve[i] = b->reserve ? n++ : -1;
        if (b->reserve)
            buf_f(&rows, "    { \"%s\", CELL_FROM_RESERVE, %s, %d, %s },\n", b->name, dtype_enum(b->dtype),
                  e->reserve[i], buffer_bytes(e, i, true));
    }
    if (n)
        buf_f(e->host, "\nstatic const cell_buffer %sreserve_buffers[] = {\n%s};\n\n", e->tag,
              rows.data);
    *count = n;
}

static int history_kernels(Plan *p, HistoryKernel *out)
{
    int n = 0;
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (p->m->last.data[t] >= 0)
            out[n++] = (HistoryKernel){ .history = t, .name = intern_f(p->m->c, "%s_last_%d", p->m->name, t) };
    return n;
}

/* A plan for certain calls takes the kernels of those printed before it, where they have the same text. */
static bool printed_before(const Plan *p, const Buf *kernel, const Buf *cuda)
{
    return p->calls != CALLS_ANY && (!kernel->data || strstr(cuda->data, kernel->data));
}

static void print_group(Plan *p, Program *pr, Group *g, Buf *cuda)
{
    const Group before = *g;
    Buf text = { .arena = p->m->arena };
    emit_group(p, pr, g, &text);
    if (printed_before(p, &text, cuda))
        return;
    if (p->calls != CALLS_ANY && g->kind != G_WALK) {
        *g = before;                  /* what its launch needs is found anew too */
        g->kernel = intern_f(p->m->c, "%s%s", g->kernel, plan_suffix(p->calls));
        text = (Buf){ .arena = p->m->arena };
        emit_group(p, pr, g, &text);
    }
    buf_f(cuda, "%s", text.data ? text.data : "");
}

static void print_parts_kernel(Plan *p, Program *pr, Parts *x, Buf *cuda)
{
    Buf text = { .arena = p->m->arena };
    emit_parts_kernel(p, pr, x, &text);
    if (printed_before(p, &text, cuda))
        return;
    if (p->calls != CALLS_ANY) {
        x->kernel = intern_f(p->m->c, "%s%s", x->kernel, plan_suffix(p->calls));
        text = (Buf){ .arena = p->m->arena };
        emit_parts_kernel(p, pr, x, &text);
    }
    buf_f(cuda, "%s", text.data);
}

static void print_kernels(Plan *p, StateKernels *states, Buf *cuda)
{
    Module *m = p->m;
    static const char *const what[] = { "init", "seed", "result" };
    bool steps = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        steps |= is_state(m, t) && has_state_kernels(p);
    for (int k = 0; k < 3; k++)
        states->name[k] = intern_f(m->c, "%s_%s", m->name, what[k]);
    Buf chunks[2] = { { .arena = m->arena }, { .arena = m->arena } };
    for (int d = BACKWARD; d >= FORWARD; d--)     /* which states forward saves follows from backward's chunks */
        if (p->program[d].chunks)
            emit_panel(p, &p->program[d], p->program[d].chunks, &chunks[d]);
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < p->program[d].groups.len; i++)
            print_group(p, &p->program[d], &p->program[d].groups.data[i], cuda);
        for (int i = 0; i < p->program[d].parts.len; i++)
            print_parts_kernel(p, &p->program[d], p->program[d].parts.data[i], cuda);
        if (p->program[d].panel)
            emit_panel(p, &p->program[d], p->program[d].panel, cuda);
        if (p->program[d].pairs)
            emit_panel(p, &p->program[d], p->program[d].pairs, cuda);
        if (p->program[d].wide)
            emit_panel(p, &p->program[d], p->program[d].wide, cuda);
        if (p->program[d].chunks)
            buf_f(cuda, "%s", chunks[d].data);
        if (p->program[d].head)
            emit_panel(p, &p->program[d], p->program[d].head, cuda);
        if (p->program[d].cluster)
            emit_panel(p, &p->program[d], p->program[d].cluster, cuda);
        if (p->program[d].columns)
            emit_columns(p, &p->program[d], cuda);
    }
    if (steps)
        emit_state_kernels(p, states, cuda);
}

static const char *schedule_words(const Plan *p)
{
    const char *name = schedule_names[p->schedule];
    if (p->schedule != SCHED_TILE)
        return intern_f(p->m->c, "schedule %s", name);
    return intern_f(p->m->c, "schedule %s, a checkpoint every %s", name,
                    p->interval == 1 ? "step" : intern_f(p->m->c, "%d steps", p->interval));
}

static int kernel_index(const Print *e, const char *name)
{
    int k = 0;
    while (k < e->kernels.len && strcmp(e->kernels.data[k], name) != 0)
        k++;
    return k;
}

/* Has the call at most as many blocks that walk as the device has multiprocessors, or holds clusters of at once; or more than CROWD on
 * each? */
static const char *takes_expr(Print *e)
{
    Module *m = e->p->m;
    Buf x = program_new(e);
    const Poly *blocks = poly_mul(m, poly_dim(m, ATOM_B), walk_blocks(&e->p->program[FORWARD]));
    if (e->p->calls == CALLS_MANY) {
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_ATTR, CELL_ATTR_SM_COUNT, CELL_X_MUL, ", CROWD);
        postfix_poly(e, poly_sub(m, blocks, poly_const(m, 1)), &x);
        buf_f(&x, "CELL_X_LE, ");
        return expr_name(e, &x);
    }
    if (e->p->cluster == 1) {
        postfix_poly(e, blocks, &x);
        buf_f(&x, "CELL_X_ATTR, CELL_ATTR_SM_COUNT, CELL_X_LE, ");
        return expr_name(e, &x);
    }
    blocks = poly_mul(m, blocks, poly_const(m, e->p->cluster));
    int walks = 0;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < e->p->program[d].groups.len; i++) {
            const Group *g = &e->p->program[d].groups.data[i];
            if (g->kind != G_WALK)
                continue;
            postfix_poly(e, blocks, &x);
            buf_f(&x, "CELL_X_RESIDENT, %d, CELL_X_LE, %s", kernel_index(e, g->walk->kernel), walks++ ? "CELL_X_MUL, " : "");
        }
    return expr_name(e, &x);
}

/* The kernels of one plan, and its tables, whose names begin with `tag`. */
static HostPlan emit_one(Plan *p, const char *tag, Buf *cuda, Buf *host)
{
    Module *m = p->m;
    StateKernels states = { 0 };
    print_kernels(p, &states, cuda);
    HistoryKernel *histories = arena_alloc(m->arena, sizeof *histories * (size_t)(m->tensors.len + 1));
    int n_histories = history_kernels(p, histories);
    for (int i = 0; i < n_histories; i++) {
        Buf text = { .arena = m->arena };
        emit_history_kernel(p, &histories[i], &text);
        if (!printed_before(p, &text, cuda))
            buf_f(cuda, "%s", text.data);
    }

    Buf tables = { .arena = m->arena };
    Print e = { .p = p, .host = &tables, .tag = tag, .states = &states, .histories = histories, .n_histories = n_histories };
    int n_reserve;
    e.table.arena = m->arena;
    e.buffer = arena_alloc(m->arena, sizeof *e.buffer * (size_t)(p->buffers.len + 1));
    e.reserve = arena_alloc(m->arena, sizeof *e.reserve * (size_t)(p->buffers.len + 1));
    print_reserve(&e, &n_reserve);
    print_direction(&e, FORWARD);
    print_direction(&e, BACKWARD);
    const char *takes = p->calls != CALLS_ANY ? takes_expr(&e) : NULL;

    for (int i = 0; i < e.kernels.len; i++)
        buf_line(host, "CELL_KERNEL_SYMBOL void %s(cell_kernel_args args);", e.kernels.data[i]);
    buf_f(host, "\n%s", tables.data);
    buf_f(host, "static const cell_kernel %skernel_table[] = {\n%s};\n\n", tag, e.table.data ? e.table.data : "");
    return (HostPlan){ .forward = intern_f(m->c, "%sforward_plan", tag),
                       .backward = intern_f(m->c, "%sbackward_plan", tag),
                       .kernels = intern_f(m->c, "%skernel_table", tag),
                       .reserve = n_reserve ? intern_f(m->c, "%sreserve_buffers", tag) : NULL,
                       .n_kernels = e.kernels.len, .n_reserve = n_reserve, .block_memory = p->block_memory,
                       .how = schedule_words(p), .takes = takes };
}

static const char *calls_words(const Plan *p)
{
    if (p->calls == CALLS_MANY)
        return intern_f(p->m->c, "with more than %d blocks for each of the GPU's multiprocessors", CROWD);
    return p->cluster > 1 ? intern_f(p->m->c, "that leave %d of the GPU's multiprocessors to each state", p->cluster)
                          : "with no more blocks than the GPU has multiprocessors";
}

/* The plans for certain calls, from this one on. */
static HostPlan *emit_others(Plan *p, Buf *cuda, Buf *host)
{
    if (!p)
        return NULL;
    HostPlan *plan = arena_alloc(p->m->arena, sizeof *plan);
    const char *name = plan_suffix(p->calls) + 1;
    buf_f(cuda, "// For calls %s: %s.\n\n", calls_words(p), schedule_words(p));
    *plan = emit_one(p, intern_f(p->m->c, "%s_", name), cuda, host);
    plan->name = name;
    plan->other = emit_others(p->other, cuda, host);
    return plan;
}

void emit_cuda(Plan *p, Buf *cuda, Buf *host)
{
    Module *m = p->m;
    HostPlan *hp = NULL, *first = NULL;
    int level = 0;
    buf_f(cuda, "// %s: CUDA kernels, written by cellc\n#include \"cell_device.cuh\"\n\n", m->name);
    emit_host_head(m, host);
    for (Plan *q = p; q; q = q->smaller) {
        HostPlan *next = arena_alloc(m->arena, sizeof *next);
        if (q != p)
            buf_f(cuda, "// For devices with less shared memory%s: %s.\n\n", p->cluster > 1 ? " or no clusters" : "",
                  schedule_words(q));
        *next = emit_one(q, level ? intern_f(m->c, "small%d_", level) : "", cuda, host);
        level++;
        if (hp)
            hp->smaller = next;
        else
            first = next;
        next->other = emit_others(q->other, cuda, host);
        hp = next;
    }
    emit_host_plan(m, first, host);
}
