/* emit_buffers.c: size expressions and buffers of the launch plans. In: formulas, and a plan's storages. Out:
 * postfix programs as static arrays, equal ones one, and the lists of a direction's buffers. */
#include "emit_plan.h"

const char *emit_expr(Print *e, const Formula *f)
{
    Compiler *c = e->p->m->c;
    Buf program = { .arena = e->p->m->arena };
    if (!f)
        return "NULL";
    formula_postfix(e->p->m, f, &e->kernels, &program);
    const char *text = intern_n(c, program.data, program.len);
    for (int i = 0; i < e->exprs.len; i++)
        if (e->exprs.data[i] == text)
            return intern_f(c, "%sx%d", e->tag, i);
    vec_push(c->arena, &e->exprs, text);
    buf_line(e->host, "static const int64_t %sx%d[] = { %s };", e->tag, e->exprs.len - 1, text);
    return intern_f(c, "%sx%d", e->tag, e->exprs.len - 1);
}

const char *emit_poly_expr(Print *e, const Poly *p)
{
    return emit_expr(e, p ? formula_size_of_rows(e->p->m, p, e->rows) : NULL);
}

const char *emit_number_expr(Print *e, int64_t v)
{
    return emit_expr(e, formula_const(e->p->m, v));
}

int emit_buffer_number(Print *e, int slot)
{
    if (e->buffer[slot] < 0) {
        vec_push(e->p->m->arena, &e->used, slot);
        e->buffer[slot] = e->args.len + e->used.len - 1;
    }
    return e->buffer[slot];
}

/* The rows of partial sums that a buffer has room for. */
static const Formula *partial_rows(Print *e, const Buffer *b)
{
    Module *m = e->p->m;
    if (b->cut)
        return form_shares(m, b->cut, b->each, b->most);
    const Poly *rows = b->untimed ? poly_dim(m, ATOM_B) : module_rows(m);
    const Formula *chunks = form_chunks(e->p, rows, b->columns, b->by_rows);
    return b->walk_rows ? formula(m, F_MAX, chunks, b->walk_rows) : chunks;
}

/* Bytes of a buffer of the plan, or of the reserve, where it has all of its rows. */
const char *emit_buffer_bytes(Print *e, int slot, bool in_reserve)
{
    Module *m = e->p->m;
    const Buffer *b = &e->p->buffers.data[slot];
    const Poly *each = poly_const(m, dtype_bytes(b->dtype));
    if (b->cut || b->columns) {
        const Poly *row = poly_mul(m, b->columns,
                                   b->cut ? each : poly_mul(m, each, poly_const(m, b->arrays)));
        return emit_expr(e, formula(m, F_MUL, partial_rows(e, b), formula_size(m, row)));
    }
    if (b->bytes)
        return emit_expr(e, b->bytes);
    const Poly *all = poly_mul(m, b->elements, each);
    if (b->parts)
        return emit_expr(e, formula(m, F_MUL, formula_size(m, all), form_copy_taken(e->p, e->pr, b->parts)));
    const Formula *bytes = formula_size_of_rows(m, all,
                                                b->ring && !in_reserve ? formula_const(m, b->ring) : NULL);
    if (b->per_steps && module_starts(m) >= 0) {
        const Poly *rows = poly_dim(m, ATOM_B); /* no sequence has more than one that is not full */
        bytes = formula_size(m, poly_div(m, all, rows));
        const Formula *full = formula_with(m, F_DIV, formula_size(m, module_rows(m)), b->per_steps);
        bytes = formula(m, F_MUL, bytes, formula(m, F_ADD, full, formula_size(m, rows)));
    } else if (b->per_steps)
        bytes = formula(m, F_MUL, bytes, form_blocks(m, poly_dim(m, ATOM_T), b->per_steps));
    return emit_expr(e, bytes);
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
              dtype_constant(argument_type(m, a)), i);
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
