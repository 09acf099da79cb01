/* walk_expr.c: an expression of a step in C. In vector mode it gives a vector of neighbours along the
 * value's `col`: what does not vary along that is computed once, in a scope around the loop; what has no
 * vector form, or might be read outside of its array, is computed lane by lane. Else it gives one
 * number. */
#include "walk.h"

#include <string.h>

#include "ir/ops.h"

static const char *scalar(CpuWalk *w, NodeId id);
static const char *vector(CpuWalk *w, NodeId id);

/* ---- indices and sizes ---- */

static const char *index_text(ExprPrinter *p, IndexId i)
{
    CpuWalk *w = p->data;
    if (i == IX_TIME)
        return "(time0 + t)";
    if (i == IX_START)
        return "time0";
    for (int k = 0; k < w->npar; k++)
        if (i == w->par[k])
            return walk_text(w, "par%d", k);
    if (w->value && i == w->value->row)
        return w->row ? walk_text(w, "(r + %d)", w->row) : "r";
    if (w->value && i == w->value->col)
        return w->col_text;
    bug(w->m->c, "cpu walk", "an index has no loop");
}

const char *walk_ix_text(CpuWalk *w, const IxExpr *e)
{
    ExprPrinter *p = arena_alloc(w->arena, sizeof *p);
    *p = (ExprPrinter){ .m = w->m, .index = index_text, .data = w };
    return ix_text(p, e);
}

const char *walk_poly_text(CpuWalk *w, const Poly *e)
{
    Buf b = { .arena = w->arena };
    api_sizes(w->m);
    poly_print_c(w->m, e, &b, "dim_");
    return b.data;
}

/* Of an index of the array that is printed: in terms of the value's own. */
static const IxExpr *meaning(const CpuWalk *w, IndexId i)
{
    for (int k = 0; k < w->frame->n; k++)
        if (w->frame->from[k] == i)
            return w->frame->to[k];
    return NULL;
}

static bool varies(const CpuWalk *w, NodeId id, IndexId over)
{
    const Node *n = &w->m->nodes.data[id];
    for (int k = 0; k < n->naxes && over >= 0; k++) {
        const IxExpr *e = meaning(w, n->axes[k]);
        if (e ? ix_uses(e, over) : n->axes[k] == over)
            return true;
    }
    return false;
}

static bool along_col(const CpuWalk *w, NodeId id)
{
    return w->value && varies(w, id, w->value->col);
}

/* ---- scopes ---- */

static bool is_word(const char *s)
{
    for (; *s; s++)
        if (!(*s == '_' || (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9')))
            return false;
    return true;
}

/* The variable of the scope that holds the text's value. */
static const char *keep(CpuWalk *w, WalkScope *s, const char *type, const char *text)
{
    for (int k = 0; k < s->locals.len; k++)
        if (strcmp(s->locals.data[k].text, text) == 0)
            return s->locals.data[k].name;
    WalkLocal x = { text, walk_text(w, "x%d", ++w->numbered) };
    buf_line(s->out, strchr(type, '*') ? "%s %s = %s;" : "const %s %s = %s;", type, x.name, text);
    vec_push(w->arena, &s->locals, x);
    return x.name;
}

static const char *scalar_type(const CpuWalk *w, NodeId id)
{
    NodeType t = w->m->nodes.data[id].type;
    return t == TY_INT ? "int64_t" : t == TY_BOOL ? "int" : "real";
}

/* ---- what is read ---- */

/* Cotangents that the call does not give, and what it does not ask for. */
static bool may_be_null(const CpuWalk *w, const WalkRead *r)
{
    return r->tensor ? w->m->tensors.data[r->id].kind == T_DOUT : !walk_stored(w, r->id);
}

static const Storage *storage_of(const CpuWalk *w, const WalkRead *r)
{
    return r->tensor ? &w->walk->of_tensor[r->id] : &w->walk->of_node[r->id];
}

/* The element's number in its row, which begins where *pitch of them go before it, row by row. */
static const IxExpr *place_in_row(CpuWalk *w, const WalkRead *r, const Poly **pitch)
{
    Module *m = w->m;
    const Storage *st = storage_of(w, r);
    const IxExpr *e = ix_const(m, poly_const(m, 0));
    const Poly *stride = poly_const(m, 1);
    for (int k = r->n - 1; k >= 0; k--) {
        if (k == st->lead - 1 && st->row)
            stride = st->row;
        e = ix_add(m, e, ix_scale(m, r->map[k], stride));
        stride = poly_mul(m, stride,
                          r->tensor ? m->tensors.data[r->id].axes[k]
                                    : m->indices.data[m->nodes.data[r->id].axes[k]].extent);
    }
    *pitch = st->pitch ? st->pitch : stride;
    return st->alias_offset ? ix_add(m, e, ix_const(m, st->alias_offset)) : e;
}

static const char *row_of(CpuWalk *w, const Storage *st, const Poly *pitch)
{
    const char *row = st->batched && st->timed
                          ? module_starts(w->m) < 0 ? "(b * T + row)" : "(first_row + row)"
                      : st->batched ? "b"
                      : st->timed   ? "row"
                                    : NULL;
    return row ? walk_text(w, "%s * (%s)", row, walk_poly_text(w, pitch)) : "0";
}

/* e = what the loops do not change + what they do. */
static void split(CpuWalk *w, const IxExpr *e, const IxExpr **fixed, const IxExpr **moves)
{
    Module *m = w->m;
    *fixed = ix_const(m, e->offset);
    *moves = ix_const(m, poly_const(m, 0));
    for (int i = 0; i < e->nterms; i++) {
        IxExpr one = { poly_const(m, 0), 1, &e->terms[i] };
        const IxExpr *term = ix_add(m, &one, ix_const(m, poly_const(m, 0)));
        bool loop = w->value && ((w->value->row >= 0 && ix_uses(term, w->value->row)) ||
                                 (w->value->col >= 0 && ix_uses(term, w->value->col)));
        const IxExpr **to = loop ? moves : fixed;
        *to = ix_add(m, *to, term);
    }
}

/* Does the place rise by one with `col`? */
static bool rises_by_one(CpuWalk *w, const IxExpr *e)
{
    IndexId col = w->value->col;
    bool found = false;
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        if (t->kind != IA_INDEX) {
            if (ix_uses(t->arg, col))
                return false;
        } else if (t->index == col) {
            found = t->coef->is_const && t->coef->value == 1;
            if (!found)
                return false;
        }
    }
    return found;
}

const char *walk_address(CpuWalk *w, const WalkRead *r, bool *adjacent)
{
    const Storage *st = storage_of(w, r);
    const Poly *pitch;
    const IxExpr *fixed, *moves, *e = place_in_row(w, r, &pitch);
    int ref = walk_ref(w, r->tensor ? REF_TENSOR : REF_NODE, r->id);
    const char *pointer = walk_text(w, "p%d", ref);
    bool null = may_be_null(w, r);
    split(w, e, &fixed, &moves);
    const char *at = walk_text(w, "%s + (%s + %s)", pointer, row_of(w, st, pitch), walk_ix_text(w, fixed));
    if (null)
        at = walk_text(w, "%s ? %s : NULL", pointer, at);
    const char *base = keep(w, &w->step_head, walk_text(w, "%s *const", walk_ctype(w, st->dtype)), at);
    *adjacent = w->value && w->value->col >= 0 && rises_by_one(w, moves);
    return walk_text(w, "%s + %s", base, walk_ix_text(w, moves));
}

const char *walk_store_address(CpuWalk *w, const WalkValue *v)
{
    WalkFrame f;
    WalkRead r = { .at = AT_MEMORY, .id = v->array, .n = v->naxes };
    bool adjacent;
    walk_frame(w, v, &f);
    for (int k = 0; k < v->naxes; k++)
        r.map[k] = f.to[k];
    return walk_address(w, &r, &adjacent);
}

/* Of what lies in scratch memory: the place in it. */
static const IxExpr *local_place(CpuWalk *w, const WalkRead *r)
{
    Module *m = w->m;
    if (r->n == 0)
        return ix_const(m, poly_const(m, 0));
    int64_t pitch = 0;
    bool one_row = false;
    if (r->at == AT_VALUE) {
        const WalkValue *d = &w->step->values.data[r->id];
        pitch = d->rank == 2 ? walk_padded(w, d->axes[d->own[1]].n) : 0;
        one_row = d->rank == 2 && d->one_row && !d->reduces;
        if (d->next_of)
            one_row = false;
    } else {
        pitch = w->states.data[r->id].pitch;
    }
    if (r->n == 1)
        return r->map[0];
    if (one_row) /* one for each of the rows at once */
        return ix_add(m, r->map[1], ix_const(m, poly_const(m, pitch * w->row)));
    return ix_add(m, ix_scale(m, r->map[0], poly_const(m, pitch)), r->map[1]);
}

static const char *local_name(CpuWalk *w, const WalkRead *r)
{
    const WalkState *st = r->at == AT_VALUE ? NULL : &w->states.data[r->id];
    if (st)
        return r->at == AT_STATE ? st->now : r->at == AT_AFTER ? st->after : st->adjoint;
    const WalkValue *d = &w->step->values.data[r->id];
    return d->name;
}

/* Does a variable hold it there? */
static const char *variable(CpuWalk *w, const WalkRead *r)
{
    if (r->at != AT_VALUE)
        return NULL;
    const WalkValue *d = &w->step->values.data[r->id], *v = w->value;
    const char *var = d->var[w->row];
    if (d->rank == 0)
        return d->var[0];
    if (!var || !v || d->pass != v->pass)
        return NULL;
    if (d->col < 0 || d->reduces) { /* one number, of this row */
        bool here =
            d->row < 0 || (!d->over_row && d->rank == 1 && r->n == 1 && walk_is_index(r->map[0], v->row));
        return here && !d->over_row ? var : NULL;
    }
    if (d->level != v->level || d->rows != v->rows || d->cols != v->cols || v->col < 0)
        return NULL;
    for (int k = 0; k < d->rank; k++) {
        bool col = d->axes[d->own[k]].local == d->col;
        if (!walk_is_index(r->map[k], col ? v->col : v->row))
            return NULL;
    }
    return w->vector ? var : w->lane ? walk_text(w, "%s[%s]", var, w->lane) : NULL;
}

static const char *scalar_read(CpuWalk *w, NodeId id)
{
    WalkRead r = walk_read(w, w->step, w->frame, id);
    if (w->refused)
        return "0";
    const char *var = variable(w, &r);
    if (var)
        return var;
    if (r.at == AT_MEMORY) {
        bool adjacent;
        Dtype d = storage_of(w, &r)->dtype;
        const char *at = walk_address(w, &r, &adjacent);
        const char *text = walk_text(w, "cell_load_%s(%s)", walk_element(w, d), at);
        return may_be_null(w, &r)
                   ? walk_text(w, "(p%d ? %s : 0)", walk_ref(w, r.tensor ? REF_TENSOR : REF_NODE, r.id), text)
                   : text;
    }
    if (r.at == AT_PLACE) {
        WalkFrame f = walk_place_frame(w, &r);
        const WalkFrame *outer = w->frame;
        w->frame = &f;
        w->depth++;
        NodeId body = w->m->nodes.data[r.id].args[0];
        const char *text = w->m->nodes.data[body].type == TY_REAL ? scalar(w, body)
                                                                  : walk_text(w, "(real)%s", scalar(w, body));
        w->depth--;
        w->frame = outer;
        return text;
    }
    if (r.at == AT_VALUE && !w->step->values.data[r.id].name)
        bug(w->m->c, "cpu walk", "%%%d lies nowhere", w->step->values.data[r.id].array);
    return walk_text(w, "%s[%s]", local_name(w, &r), walk_ix_text(w, local_place(w, &r)));
}

/* ---- lane by lane ---- */

static const char *lane_by_lane(CpuWalk *w, NodeId id)
{
    bool condition = w->m->nodes.data[id].type == TY_BOOL;
    const char *name = walk_text(w, "x%d", ++w->numbered), *col = w->col_text;
    WalkScope *scalars = w->scalars;
    Buf *out = w->body.out;
    w->vector = false;
    w->scalars = NULL;
    w->lane = "l";
    w->col_text = walk_text(w, "(%s + l)", col);
    const char *text = scalar(w, id);
    if (w->m->nodes.data[id].type == TY_INT)
        text = walk_text(w, "(real)%s", text);
    w->vector = true;
    w->scalars = scalars;
    w->lane = NULL;
    w->col_text = col;
    buf_line(out, "%s %s = { 0 };", condition ? "cell_m" : "cell_v", name);
    buf_line(out, "for (int l = 0; l < %d; l++)", w->tail ? w->tail : w->lanes);
    buf_line(out, condition ? "    %s[l] = -(%s);" : "    %s[l] = %s;", name, text);
    return name;
}

/* ---- may it be computed although a condition stands around it? ---- */

static bool within(Module *m, const IxExpr *e, const Poly *extent)
{
    const Poly *lo, *hi;
    return ix_range(m, e, &lo, &hi) && lo && hi && poly_nonneg(lo) &&
           poly_nonneg(poly_sub(m, poly_sub(m, extent, poly_const(m, 1)), hi));
}

typedef struct Safety {
    CpuWalk *w;
    bool safe;
} Safety;

static void check_range(void *data, const WalkRead *r, NodeId id)
{
    Safety *x = data;
    CpuWalk *w = x->w;
    Module *m = w->m;
    (void)id;
    for (int k = 0; k < r->n; k++) {
        const Poly *extent;
        if (r->at == AT_MEMORY) {
            extent = r->tensor ? m->tensors.data[r->id].axes[k]
                               : m->indices.data[m->nodes.data[r->id].axes[k]].extent;
        } else if (r->at == AT_VALUE) {
            const WalkValue *d = &w->step->values.data[r->id];
            extent = poly_const(m, d->axes[d->own[k]].n);
        } else {
            extent = poly_const(m, w->states.data[r->id].extent[k]);
        }
        x->safe &= within(m, r->map[k], extent);
    }
}

static bool is_safe(CpuWalk *w, NodeId id)
{
    Safety x = { w, true };
    walk_each_read(w, w->step, w->frame, id, check_range, &x);
    return x.safe;
}

/* ---- operators ---- */

static bool is_sum(const Node *n)
{
    return n->kind == N_MAP && n->type == TY_REAL && (n->op == OP_ADD || n->op == OP_SUB);
}

/* Used once, so that it may be part of a multiply-add. */
bool walk_product(CpuWalk *w, NodeId id, NodeId factors[2])
{
    Node n = w->m->nodes.data[id];
    if (n.kind != N_MAP || n.type != TY_REAL || n.op != OP_MUL ||
        (w->depth == 0 && id < w->n_uses && w->uses[id] > 1))
        return false;
    factors[0] = n.args[0];
    factors[1] = n.args[1];
    return true;
}

static const char *format2(CpuWalk *w, const char *format, const char *const *x)
{
    Buf b = { .arena = w->arena };
    int k = 0;
    for (const char *s = format; *s; s++) {
        if (s[0] == '%' && s[1] == 's') {
            buf_f(&b, "%s", x[k++]);
            s++;
        } else {
            buf_f(&b, "%c", *s);
        }
    }
    return b.data;
}

static const char *as_real(CpuWalk *w, NodeId id)
{
    return w->vector ? vector(w, id) : walk_real(w, id);
}

/* a + b or a - b with a multiply-add where one of them is a product: of two the first. */
static const char *sum_text(CpuWalk *w, const Node *n)
{
    NodeId f[2];
    const char *fma = w->vector ? "cell_v_fma" : "CELL_FMA", *minus = n->op == OP_SUB ? "-" : "";
    for (int k = 0; k < 2; k++) {
        bool negative = false;
        NodeId arg = n->args[k];
        Node a = w->m->nodes.data[arg];
        if (a.kind == N_MAP && a.type == TY_REAL && a.op == OP_NEG && walk_product(w, a.args[0], f))
            negative = true;
        else if (!walk_product(w, arg, f))
            continue;
        const char *x = as_real(w, f[0]), *y = as_real(w, f[1]), *z = as_real(w, n->args[1 - k]);
        negative ^= n->op == OP_SUB && k == 1;
        return walk_text(w, "%s(%s%s, %s, %s%s)", fma, negative ? "-" : "", x, y, k == 0 ? minus : "", z);
    }
    const char *x = as_real(w, n->args[0]);
    return walk_text(w, "(%s %s %s)", x, n->op == OP_SUB ? "-" : "+", as_real(w, n->args[1]));
}

static const char *infix(Op op)
{
    switch (op) {
    case OP_MUL: return "*";
    case OP_DIV: return "/";
    case OP_LT: return "<";
    case OP_LE: return "<=";
    case OP_EQ: return "==";
    case OP_NE: return "!=";
    default: return NULL;
    }
}

static bool is_logic(Op op)
{
    return op == OP_AND || op == OP_OR || op == OP_NOT;
}

/* Of the arguments the first is the value. */
static bool is_name(Op op)
{
    return op == OP_REAL || op == OP_STOP || op == OP_HELD || op == OP_STE || op == OP_OVERRIDE;
}

static const char *integer_text(CpuWalk *w, const Node *n)
{
    const char *x[3] = { 0 };
    for (int k = 0; k < n->nargs; k++)
        x[k] = scalar(w, n->args[k]);
    bool large = n->most >= 0x1p31;
    switch (n->op) {
    case OP_ADD: return walk_text(w, large ? "cell_whole_sum(%s, %s)" : "(%s + %s)", x[0], x[1]);
    case OP_SUB: return walk_text(w, large ? "cell_whole_difference(%s, %s)" : "(%s - %s)", x[0], x[1]);
    case OP_MUL: return walk_text(w, large ? "cell_whole_product(%s, %s)" : "(%s * %s)", x[0], x[1]);
    case OP_NEG: return walk_text(w, large ? "cell_whole_difference(0, %s)" : "(-%s)", x[0]);
    case OP_SELECT: return walk_text(w, "(%s ? %s : %s)", x[0], x[1], x[2]);
    default: return format2(w, op_table[n->op].cuda, x);
    }
}

static const char *scalar_select(CpuWalk *w, const Node *n)
{
    bool outer = w->guarded;
    const char *c = scalar(w, n->args[0]);
    w->guarded |= !is_safe(w, n->args[1]) || !is_safe(w, n->args[2]);
    const char *a = walk_real(w, n->args[1]), *b = walk_real(w, n->args[2]);
    w->guarded = outer;
    return walk_text(w, "(%s ? %s : %s)", c, a, b);
}

static const char *scalar_map(CpuWalk *w, const Node *n)
{
    const char *x[3] = { 0 };
    if (n->type == TY_INT)
        return integer_text(w, n);
    if (is_sum(n))
        return sum_text(w, n);
    if (n->op == OP_SELECT)
        return scalar_select(w, n);
    if (is_name(n->op))
        return walk_real(w, n->args[0]);
    bool logic = is_logic(n->op), ints = true;
    for (int k = 0; k < n->nargs; k++)
        ints &= w->m->nodes.data[n->args[k]].type == TY_INT;
    bool guarded = w->guarded;
    for (int k = 0; k < n->nargs && k < 3; k++) {
        w->guarded |= logic && k == 1 && !is_safe(w, n->args[k]);
        x[k] = logic || (ints && n->type == TY_BOOL) ? scalar(w, n->args[k]) : walk_real(w, n->args[k]);
    }
    w->guarded = guarded;
    if (n->op == OP_AND || n->op == OP_OR)
        return walk_text(w, "(%s %s %s)", x[0], n->op == OP_AND ? "&&" : "||", x[1]);
    if (n->op == OP_NOT)
        return walk_text(w, "(!%s)", x[0]);
    if (n->op == OP_NEG)
        return walk_text(w, "(-%s)", x[0]);
    if (infix(n->op))
        return walk_text(w, "(%s %s %s)", x[0], infix(n->op), x[1]);
    if (n->op == OP_BF16 || n->op == OP_F16)
        return walk_text(w, "cell_round_to_%s(%s)", n->op == OP_BF16 ? "bf16" : "f16", x[0]);
    return format2(w, op_table[n->op].cuda, x);
}

/* ---- memory of what was printed ---- */

static bool remembers(const CpuWalk *w, NodeId id)
{
    return w->depth == 0 && !w->lane && !w->guarded && id < w->n_uses;
}

static const char *remember(CpuWalk *w, NodeId id, const char *text)
{
    if (remembers(w, id)) {
        w->memo[id] = text;
        vec_push(w->arena, &w->touched, id);
    }
    return text;
}

static const char *scalar(CpuWalk *w, NodeId id)
{
    Node n = w->m->nodes.data[id];
    switch (n.kind) {
    case N_CONST:
        return n.type == TY_BOOL ? (n.value != 0 ? "1" : "0")
                                 : walk_text(w, "(real)%s", c_number(w->m->c, n.value));
    case N_SIZE: return walk_text(w, "((int64_t)(%s))", walk_poly_text(w, n.size));
    case N_INDEX: return walk_text(w, "((int64_t)%s)", walk_ix_text(w, walk_ix(w, w->frame, n.ix)));
    case N_LOAD:
    case N_VIEW:
    case N_ARRAY: return scalar_read(w, id);
    case N_MAP: break;
    default: walk_refuse(w, &n, "a sum stands inside an expression of the step"); return "0";
    }
    if (remembers(w, id) && w->scalars && w->memo[id])
        return w->memo[id];
    const char *text = scalar_map(w, &n);
    bool shared = w->depth == 0 && id < w->n_uses && w->uses[id] > 1;
    if (!w->scalars || w->guarded || !shared)
        return text;
    return remember(w, id, keep(w, w->scalars, scalar_type(w, id), text));
}

static void check_pass(void *data, const WalkRead *r, NodeId id)
{
    Safety *x = data;
    (void)id;
    if (r->at == AT_VALUE)
        x->safe &= x->w->step->values.data[r->id].pass < x->w->value->pass;
}

/* Is all that it reads there before the pass? */
static bool before_pass(CpuWalk *w, NodeId id)
{
    Safety x = { w, true };
    walk_each_read(w, w->step, w->frame, id, check_pass, &x);
    return x.safe;
}

/* One number of a vector's expression, in the outermost scope around its loop where it is known. */
static const char *outside(CpuWalk *w, NodeId id)
{
    bool row = varies(w, id, w->value->row) || !before_pass(w, id);
    WalkScope *scope = row ? &w->row_head : &w->step_head, *scalars = w->scalars;
    w->vector = false;
    w->scalars = NULL;
    int depth = w->depth;
    w->depth = 1; /* what is used more than once is used in several scopes */
    const char *text = scalar(w, id);
    w->depth = depth;
    w->vector = true;
    w->scalars = scalars;
    if (w->m->nodes.data[id].type == TY_INT)
        text = walk_text(w, "(real)%s", text);
    bool number = w->m->nodes.data[id].kind == N_CONST;
    return number || is_word(text)
               ? text
               : keep(w, scope, w->m->nodes.data[id].type == TY_BOOL ? "int" : "real", text);
}

static const char *vector_read(CpuWalk *w, NodeId id)
{
    WalkRead r = walk_read(w, w->step, w->frame, id);
    if (w->refused)
        return "0";
    const char *var = variable(w, &r);
    if (var)
        return var;
    if (r.at == AT_PLACE) {
        WalkFrame f = walk_place_frame(w, &r);
        const WalkFrame *outer = w->frame;
        w->frame = &f;
        w->depth++;
        const char *text = vector(w, w->m->nodes.data[r.id].args[0]);
        w->depth--;
        w->frame = outer;
        return text;
    }
    if (r.at != AT_MEMORY) {
        const IxExpr *e = local_place(w, &r);
        if (!rises_by_one(w, e))
            return lane_by_lane(w, id);
        if (r.at == AT_VALUE && !w->step->values.data[r.id].name)
            bug(w->m->c, "cpu walk", "%%%d lies nowhere", w->step->values.data[r.id].array);
        return keep(w, &w->body, "cell_v",
                    walk_text(w, "cell_v_load(%s + %s)", local_name(w, &r), walk_ix_text(w, e)));
    }
    bool adjacent;
    Dtype d = storage_of(w, &r)->dtype;
    const char *at = walk_address(w, &r, &adjacent);
    if (!adjacent)
        return lane_by_lane(w, id);
    const char *text =
        walk_plain(w, d) && !w->tail
            ? walk_text(w, "cell_v_load(%s)", at)
            : walk_text(w, "cell_v_get_%s(%s, %d)", walk_element(w, d), at, w->tail ? w->tail : w->lanes);
    if (may_be_null(w, &r))
        text = walk_text(w, "(p%d ? %s : cell_v_of(0))", walk_ref(w, r.tensor ? REF_TENSOR : REF_NODE, r.id),
                         text);
    return keep(w, &w->body, "cell_v", text);
}

static const char *vector_map(CpuWalk *w, NodeId id)
{
    Node n = w->m->nodes.data[id];
    const char *x[3] = { 0 };
    if (n.type == TY_INT)
        return lane_by_lane(w, id);
    if (is_sum(&n))
        return sum_text(w, &n);
    if (is_name(n.op))
        return vector(w, n.args[0]);
    bool condition = n.type == TY_BOOL, logic = is_logic(n.op);
    for (int k = 0; k < n.nargs; k++)
        if (w->m->nodes.data[n.args[k]].type == TY_INT && condition)
            return lane_by_lane(w, id);
    if (n.op == OP_SELECT || n.op == OP_AND || n.op == OP_OR)
        for (int k = 1; k < n.nargs; k++)
            if (!is_safe(w, n.args[k]))
                return lane_by_lane(w, id);
    if (n.op == OP_SELECT && !along_col(w, n.args[0])) {
        const char *c = outside(w, n.args[0]), *a = vector(w, n.args[1]);
        return walk_text(w, "(%s ? %s : %s)", c, a, vector(w, n.args[2]));
    }
    for (int k = 0; k < n.nargs; k++)
        x[k] = vector(w, n.args[k]);
    if (logic)
        return n.op == OP_NOT ? walk_text(w, "(~%s)", x[0])
                              : walk_text(w, "(%s %c %s)", x[0], n.op == OP_AND ? '&' : '|', x[1]);
    if (n.op == OP_SELECT)
        return walk_text(w, "cell_v_select(%s, %s, %s)", x[0], x[1], x[2]);
    if (n.op == OP_NEG)
        return walk_text(w, "(-%s)", x[0]);
    if (infix(n.op))
        return walk_text(w, "(%s %s %s)", x[0], infix(n.op), x[1]);
    if (n.op == OP_BF16 || n.op == OP_F16)
        return walk_text(w, "cell_v_round_to_%s(%s)", n.op == OP_BF16 ? "bf16" : "f16", x[0]);
    const char *format = op_table[n.op].cuda;
    if (strncmp(format, "cell_", 5) != 0)
        bug(w->m->c, "cpu walk", "operator %s has no vector form", op_table[n.op].name);
    return format2(w, walk_text(w, "cell_v_%s", format + 5), x);
}

static const char *vector(CpuWalk *w, NodeId id)
{
    Node n = w->m->nodes.data[id];
    if (w->refused)
        return "0";
    if (!along_col(w, id)) {
        const char *text = outside(w, id);
        return n.type == TY_BOOL ? walk_text(w, "cell_m_of(%s)", text) : walk_text(w, "cell_v_of(%s)", text);
    }
    if (n.kind == N_INDEX || n.kind == N_REDUCE)
        return lane_by_lane(w, id);
    if (n.kind != N_MAP)
        return vector_read(w, id);
    if (remembers(w, id) && w->memo[id])
        return w->memo[id];
    const char *text = vector_map(w, id);
    bool shared = w->depth == 0 && id < w->n_uses && w->uses[id] > 1;
    return shared ? remember(w, id, keep(w, &w->body, n.type == TY_BOOL ? "cell_m" : "cell_v", text)) : text;
}

const char *walk_real(CpuWalk *w, NodeId id)
{
    const Node *n = &w->m->nodes.data[id];
    if (w->vector)
        return vector(w, id);
    if (n->kind == N_SIZE && n->size->is_const)
        return walk_text(w, "(real)%lld", (long long)n->size->value);
    return n->type == TY_INT ? walk_text(w, "(real)%s", scalar(w, id)) : scalar(w, id);
}

static void count(CpuWalk *w, NodeId id)
{
    const Node *n = &w->m->nodes.data[id];
    if (n->kind != N_MAP)
        return;
    if (w->uses[id]++)
        return;
    vec_push(w->arena, &w->touched, id);
    for (int k = 0; k < n->nargs; k++)
        count(w, n->args[k]);
}

void walk_begin_expression(CpuWalk *w, NodeId id)
{
    for (int k = 0; k < w->touched.len; k++) {
        w->uses[w->touched.data[k]] = 0;
        w->memo[w->touched.data[k]] = NULL;
    }
    w->touched.len = 0;
    if (w->m->nodes.len > w->n_uses) {
        w->n_uses = w->m->nodes.len + 64;
        w->uses = arena_alloc(w->arena, sizeof *w->uses * (size_t)w->n_uses);
        w->memo = arena_alloc(w->arena, sizeof *w->memo * (size_t)w->n_uses);
    }
    count(w, id);
}
