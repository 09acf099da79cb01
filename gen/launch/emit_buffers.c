/* emit_buffers.c: size expressions and buffers of the launch plans. In: polynomials over sizes, and a plan's storages. Out: postfix programs
 * as static arrays, equal ones one, and the lists of a direction's buffers. */
#include "emit_plan.h"

void postfix_poly(Print *e, const Poly *p, Buf *out)
{
    emit_postfix(e->p->m, p, e->rows, out);
}

/* The name of the expression's array; equal programs share one. */
const char *emit_expr_name(Print *e, const Buf *program)
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

Buf emit_program_new(Print *e)
{
    return (Buf){ .arena = e->p->m->arena };
}

const char *emit_poly_expr(Print *e, const Poly *p)
{
    Buf b = emit_program_new(e);
    if (!p)
        return "NULL";
    postfix_poly(e, p, &b);
    return emit_expr_name(e, &b);
}

int emit_buffer_number(Print *e, int slot)
{
    if (e->buffer[slot] < 0) {
        vec_push(e->p->m->arena, &e->used, slot);
        e->buffer[slot] = e->args.len + e->used.len - 1;
    }
    return e->buffer[slot];
}

/* The chunks of a column sum, as plan.h has them. */
void postfix_chunks(Print *e, const Poly *rows, const Poly *columns, bool by_rows, Buf *out)
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
void postfix_shares(Print *e, const Poly *n, int each, int most, Buf *out)
{
    postfix_poly(e, n, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, %d, CELL_X_MIN, ", each, most);
}

/* Blocks that have some of these units of one sequence each (columns.c). */
void postfix_columns_blocks(Print *e, const Poly *units, Buf *x)
{
    postfix_poly(e, units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_SIZE, 0, CELL_X_MUL, ", COLUMNS_UNITS);
}

/* Bytes of a buffer of the plan, or of the reserve, where it has all of its rows. */
const char *emit_buffer_bytes(Print *e, int slot, bool in_reserve)
{
    Module *m = e->p->m;
    const Buffer *b = &e->p->buffers.data[slot];
    Buf x = emit_program_new(e);
    if (b->cut) {
        postfix_shares(e, b->cut, b->each, b->most, &x);
        postfix_poly(e, poly_mul(m, b->columns, poly_const(m, dtype_bytes(b->dtype))), &x);
        buf_f(&x, "CELL_X_MUL, ");
        return emit_expr_name(e, &x);
    }
    if (b->columns) {
        postfix_chunks(e, poly_mul(m, poly_dim(m, ATOM_B), poly_dim(m, ATOM_T)), b->columns, b->by_rows, &x);
        if (b->block_units)
            postfix_columns_blocks(e, b->block_units, &x);
        buf_f(&x, b->block_units ? "CELL_X_MAX, " : b->by_sequences ? "CELL_X_SIZE, 0, CELL_X_MAX, " : "");
        postfix_poly(e, poly_mul(m, b->columns, poly_const(m, b->arrays * dtype_bytes(b->dtype))), &x);
        buf_f(&x, "CELL_X_MUL, ");
        return emit_expr_name(e, &x);
    }
    if (b->parts) {
        postfix_poly(e, poly_mul(m, b->elements, poly_const(m, dtype_bytes(b->dtype))), &x);
        postfix_copy_taken(e, b->parts, &x);
        buf_f(&x, "CELL_X_MUL, ");
        return emit_expr_name(e, &x);
    }
    e->rows = b->ring && !in_reserve ? intern_f(m->c, "CELL_X_PUSH, %d, ", b->ring) : NULL;
    postfix_poly(e, poly_mul(m, b->elements, poly_const(m, dtype_bytes(b->dtype))), &x);
    e->rows = NULL;
    if (b->per_steps)
        buf_f(&x, "CELL_X_SIZE, 1, CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_MUL, ", b->per_steps);
    return emit_expr_name(e, &x);
}

int emit_arg_of(const Print *e, TensorId t, ArgRole role)
{
    int a = call_arg_find(&e->args, t, role);
    if (a < 0)
        bug(e->p->m->c, "emit_plan", "no argument for %s", e->p->m->tensors.data[t].name);
    return a;
}

int emit_storage_buffer(Print *e, const Storage *st)
{
    return st->home == HOME_ARG ? st->arg : emit_buffer_number(e, st->slot);
}

int emit_ref_buffer(Print *e, Ref r)
{
    Program *pr = e->pr;
    switch (r.kind) {
    case REF_NODE: {
        const Storage *st = &pr->node[r.id];
        if (st->home == HOME_NONE)
            st = &e->p->program[FORWARD].node[r.id];
        if (st->home == HOME_NONE)
            bug(e->p->m->c, "emit_plan", "%%%d lies nowhere", r.id);
        return emit_storage_buffer(e, st);
    }
    case REF_TENSOR:
        if (e->p->m->tensors.data[r.id].kind == T_STATE)
            return emit_arg_of(e, r.id, ROLE_VALUE);
        return emit_storage_buffer(e, &pr->tensor[r.id]);
    case REF_FINAL: return emit_arg_of(e, r.id, ROLE_FINAL);
    case REF_DFINAL: return emit_arg_of(e, r.id, ROLE_D_FINAL);
    case REF_DINIT: return emit_arg_of(e, r.id, ROLE_D_VALUE);
    case REF_CHECKPOINT: return emit_buffer_number(e, pr->checkpoint[r.id]);
    case REF_INITIAL: return emit_buffer_number(e, pr->initial[r.id]);
    case REF_CARRY: return emit_buffer_number(e, pr->carry[r.id]);
    case REF_BEFORE: return emit_buffer_number(e, pr->before[r.id]);
    case REF_BUFFER: return emit_buffer_number(e, r.id);
    case REF_ROOT: break;
    }
    bug(e->p->m->c, "emit_plan", "a reference of kind %d", r.kind);
}

void emit_buffers(Print *e, const char *dir)
{
    Module *m = e->p->m;
    Buf rows = { .arena = m->arena };
    for (int i = 0; i < e->args.len; i++) {
        const CallArg *a = &e->args.data[i];
        buf_f(&rows, "    { \"%s\", CELL_FROM_ARG, %s, %d, NULL },\n", m->tensors.data[a->tensor].name,
              dtype_constant(m->tensors.data[a->tensor].dtype), i);
    }
    for (int i = 0; i < e->used.len; i++) {
        const Buffer *b = &e->p->buffers.data[e->used.data[i]];
        const char *origin = "CELL_FROM_WORKSPACE";
        if (b->reserve)
            origin = e->pr->dir == BACKWARD ? "CELL_FROM_RESERVE"
                     : b->inference         ? "CELL_FROM_RESERVE_OR_WORKSPACE"
                                            : "CELL_FROM_RESERVE";
        buf_f(&rows, "    { \"%s\", %s, %s, %d, %s },\n", b->name, origin, dtype_constant(b->dtype),
              b->reserve ? e->reserve[e->used.data[i]] : 0,
              emit_buffer_bytes(e, e->used.data[i], false));
    }
    buf_f(e->host, "\nstatic const cell_buffer %s_buffers[] = {\n%s};\n", dir, rows.data);
}

void postfix_times(Print *e, const Poly *p, int each, int times, Buf *out)
{
    postfix_poly(e, p, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, %d, CELL_X_MUL, ", each, times);
}
