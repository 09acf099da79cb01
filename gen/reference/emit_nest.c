/* emit_nest.c: values of the IR as C expressions, arrays as loop nests. In: a node, and the C variables that
 * its indices are bound to. Out: statements in the current block and an expression. Guaranteed: a select
 * computes only the branch it takes; a reduction stands in the outermost loop that it varies with; a value
 * used twice in one scope is computed once; indices are looked up by id, so equal names and shadowing are
 * harmless. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emit_nest.h"
#include "ir/ops.h"

enum { MAX_BOUND = 64 };

const Node *cgen_node(const CGen *g, NodeId id)
{
    return &g->m->nodes.data[id];
}

static Text text(const char *s, int prec)
{
    return (Text){ s, prec };
}

static const char *paren(CGen *g, Text t, int prec)
{
    return t.prec >= prec ? t.s : intern_f(g->c, "(%s)", t.s);
}

const char *cgen_use(CGen *g, int member)
{
    g->members.data[member].used = true;
    return g->members.data[member].name;
}

/* ---- sizes and indices */

static void use_dims(CGen *g, const Poly *p)
{
    for (int i = 0; i < p->nterms; i++)
        for (int k = 0; k < p->terms[i].natoms; k++) {
            int atom = p->terms[i].atoms[k];
            if (atom < MAX_DIMS) {
                cgen_use(g, g->dim_member[atom == ATOM_PAST ? ATOM_T : atom]);
                if (atom == ATOM_PAST)
                    cgen_use(g, g->start_member);
                continue;
            }
            use_dims(g, g->m->quotients.data[atom - MAX_DIMS].num);
            use_dims(g, g->m->quotients.data[atom - MAX_DIMS].den);
        }
}

static Text size_text(CGen *g, const Poly *p)
{
    const char *dims[MAX_DIMS];
    int prec;
    for (int i = 0; i < g->m->dims.len; i++)
        dims[i] = g->members.data[g->dim_member[i]].name;
    if (g->dim_member[ATOM_T] >= 0) {
        dims[ATOM_T] = g->members.data[g->dim_member[ATOM_T]].name;
        dims[ATOM_PAST] = intern_f(g->c, "(%s + %s)", g->members.data[g->start_member].name, dims[ATOM_T]);
    }
    use_dims(g, p);
    const char *s = c_poly(g->m, p, dims, &prec);
    return text(s, prec);
}

const char *cgen_size(CGen *g, const Poly *p, int prec)
{
    return paren(g, size_text(g, p), prec);
}

static Text ix_text(CGen *g, const IxExpr *e);

static const char *index_name(CGen *g, IndexId i)
{
    if (i == IX_TIME || i == IX_START)
        return cgen_use(g, i == IX_TIME ? g->time_member : g->start_member);
    if (!g->env[i])
        bug(g->c, "emit_c", "index %s is not bound", g->m->indices.data[i].name);
    return g->env[i];
}

static Text atom_text(CGen *g, const IxTerm *t)
{
    if (t->kind == IA_INDEX)
        return text(index_name(g, t->index), C_ATOM);
    const Poly *lo, *hi;
    bool plain = ix_range(g->m, t->arg, &lo, &hi) && poly_nonneg(lo);
    Text arg = ix_text(g, t->arg), by = size_text(g, t->by);
    if (plain)
        return text(intern_f(g->c, "%s %s %s", paren(g, arg, C_MUL), t->kind == IA_DIV ? "/" : "%",
                             paren(g, by, C_UNARY)),
                    C_MUL);
    if (t->kind == IA_DIV)
        g->used_floor_div = true;
    else
        g->used_floor_mod = true;
    return text(intern_f(g->c, "%s(%s, %s)", t->kind == IA_DIV ? "floor_div" : "floor_mod", arg.s, by.s),
                C_ATOM);
}

/* One term; its sign is left to the sum, so the coefficient comes without it. */
static Text term_text(CGen *g, const IxTerm *t, const Poly *coef)
{
    Text atom = atom_text(g, t);
    if (coef->is_const && coef->value == 1)
        return atom;
    return text(intern_f(g->c, "%s * %s", cgen_size(g, coef, C_MUL), paren(g, atom, C_UNARY)), C_MUL);
}

static bool negative(const Poly *p)
{
    return p->nterms == 1 && p->terms[0].coef < 0;
}

static Text ix_text(CGen *g, const IxExpr *e)
{
    Text sum = text(NULL, C_ATOM);
    if (e->offset->nterms && (!negative(e->offset) || e->nterms == 0))
        sum = size_text(g, e->offset);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < e->nterms; i++) {
            bool minus = negative(e->terms[i].coef);
            if (minus != (pass == 1))
                continue;
            const Poly *coef =
                minus ? poly_sub(g->m, poly_const(g->m, 0), e->terms[i].coef) : e->terms[i].coef;
            Text t = term_text(g, &e->terms[i], coef);
            if (!sum.s)
                sum = minus ? text(intern_f(g->c, "-%s", paren(g, t, C_UNARY)), C_UNARY) : t;
            else
                sum = text(intern_f(g->c, "%s %c %s", sum.s, minus ? '-' : '+', paren(g, t, C_MUL)), C_ADD);
        }
    if (e->offset->nterms && negative(e->offset) && e->nterms) {
        Text t = size_text(g, poly_sub(g->m, poly_const(g->m, 0), e->offset));
        sum = text(intern_f(g->c, "%s - %s", sum.s, paren(g, t, C_MUL)), C_ADD);
    }
    return sum.s ? sum : text("0", C_ATOM);
}

/* Row-major offset of an element: ((i0) * E1 + i1) * E2 + i2. */
static Text offset_text(CGen *g, const Text *at, const Poly *const *extents, int n)
{
    if (n == 0)
        return text("0", C_ATOM);
    Text sum = at[0];
    for (int i = 1; i < n; i++) {
        if (strcmp(sum.s, "0") == 0) {
            sum = at[i];
            continue;
        }
        sum = text(intern_f(g->c, "%s * %s", paren(g, sum, C_MUL), cgen_size(g, extents[i], C_UNARY)), C_MUL);
        if (strcmp(at[i].s, "0") != 0)
            sum = text(intern_f(g->c, "%s + %s", sum.s, paren(g, at[i], C_MUL)), C_ADD);
    }
    return sum;
}

/* ---- reading arrays and tensors */

NodeId cgen_array_of(const CGen *g, NodeId id)
{
    const Node *n = cgen_node(g, id);
    if (n->kind == N_ARRAY || g->kept[id])
        return id;
    NodeId a = g->same_as[id];
    return a >= 0 && a < g->inside && (g->slot[a].member >= 0 || g->slot[a].local) ? a : -1;
}

static Text read_slot(CGen *g, NodeId array, const Text *at)
{
    const Node *a = cgen_node(g, array);
    const Slot *s = &g->slot[array];
    const Poly *extents[MAX_BOUND];
    if (s->local)
        return text(s->local, C_ATOM);
    if (s->member < 0)
        bug(g->c, "emit_c", "%s has no place", a->name ? a->name : "an array");
    for (int i = 0; i < a->naxes; i++)
        extents[i] = g->m->indices.data[a->axes[i]].extent;
    return text(intern_f(g->c, "%s[%s]", cgen_use(g, s->member), offset_text(g, at, extents, a->naxes).s),
                C_ATOM);
}

static Text read_at_axes(CGen *g, NodeId array)
{
    const Node *a = cgen_node(g, array);
    Text at[MAX_BOUND];
    for (int i = 0; i < a->naxes; i++)
        at[i] = text(index_name(g, a->axes[i]), C_ATOM);
    return read_slot(g, array, at);
}

/* An element of the values at all steps: the step is one more axis, the first. Steps before the call are in the
 * history, the latest first. given: a tensor of the call, which a reversed cell walks from its last row. */
static Text read_step(CGen *g, int member, const Node *n, const Poly *const *axes, bool given)
{
    const char *cast = given && n->type == TY_INT ? "(int64_t)" : "";
    Text at[MAX_BOUND], before[MAX_BOUND];
    const Poly *extents[MAX_BOUND];
    const IxExpr *start = ix_index(g->m, IX_START), *one = ix_const(g->m, poly_const(g->m, 1));
    const IxExpr *row = ix_sub(g->m, n->step, start);
    if (given && g->c->reverse)
        row = ix_sub(g->m, ix_sub(g->m, ix_const(g->m, poly_dim(g->m, ATOM_T)), one), row);
    at[0] = ix_text(g, row);
    before[0] = n->past < 0 ? at[0] : ix_text(g, ir_history_place(g->m, n->past, n->step));
    extents[0] = NULL;
    for (int i = 0; i < n->nmap; i++) {
        at[1 + i] = before[1 + i] = ix_text(g, n->map[i]);
        extents[1 + i] = axes[i];
    }
    const char *here = intern_f(g->c, "%s%s[%s]", cast, cgen_use(g, member),
                                offset_text(g, at, extents, n->nmap + 1).s);
    if (n->past < 0)
        return text(here, *cast ? C_UNARY : C_ATOM);
    const char *past = intern_f(g->c, "%s%s[%s]", cast, cgen_use(g, g->tensor_member[n->past]),
                                offset_text(g, before, extents, n->nmap + 1).s);
    return text(intern_f(g->c, "%s >= %s ? %s : %s", paren(g, ix_text(g, n->step), C_ADD),
                         cgen_use(g, g->start_member), here, past), C_COND);
}

static Text view_text(CGen *g, const Node *n)
{
    Text at[MAX_BOUND];
    const Poly *extents[MAX_BOUND];
    const Node *a = cgen_node(g, n->args[0]);
    for (int i = 0; i < n->nmap; i++)
        extents[i] = g->m->indices.data[a->axes[i]].extent;
    if (n->step)
        return read_step(g, g->node_steps[n->args[0]], n, extents, false);
    for (int i = 0; i < n->nmap; i++)
        at[i] = ix_text(g, n->map[i]);
    return read_slot(g, n->args[0], at);
}

static Text load_text(CGen *g, const Node *n)
{
    const Tensor *t = &g->m->tensors.data[n->tensor];
    Text at[MAX_BOUND];
    if (n->step)
        return read_step(g, g->tensor_steps[n->tensor], n, t->axes, true);
    for (int i = 0; i < n->nmap; i++)
        at[i] = ix_text(g, n->map[i]);
    const char *name = cgen_use(g, g->tensor_member[n->tensor]);
    const char *s = intern_f(g->c, "%s[%s]", name, offset_text(g, at, t->axes, t->rank).s);
    return t->dtype == DT_I32 ? text(intern_f(g->c, "(int64_t)%s", s), C_UNARY) : text(s, C_ATOM);
}

/* ---- blocks, locals and memory of what is computed */

static void remember(CGen *g, NodeId id, const char *name)
{
    g->memo[id] = name;
    g->memo_serial[id] = ++g->serial;
    vec_push(g->arena, &g->memo_stack, id);
}

/* Was an index of the node bound anew since then? Then it stands for another value. */
static bool rebound(const CGen *g, NodeId id, int since)
{
    const Node *n = cgen_node(g, id);
    for (int i = 0; i < n->naxes; i++)
        if (g->env_serial[n->axes[i]] > since)
            return true;
    return false;
}

/* The variable that holds the node's value, or NULL. */
static const char *recall(const CGen *g, NodeId id)
{
    return g->memo[id] && !rebound(g, id, g->memo_serial[id]) ? g->memo[id] : NULL;
}

void cgen_open(CGen *g, Block *b)
{
    b->outer = g->out;
    b->body = (Buf){ .arena = g->arena, .indent = g->out->indent + 1 };
    b->locals = g->locals.taken.len;
    b->memos = g->memo_stack.len;
    g->out = &b->body;
}

static void end_block(CGen *g, Block *b)
{
    g->out = b->outer;
    names_cut(&g->locals, b->locals);
    while (g->memo_stack.len > b->memos)
        g->memo[g->memo_stack.data[--g->memo_stack.len]] = NULL;
}

/* One statement: loops and conditions without braces down to one simple statement. */
static bool one_statement(const Buf *b)
{
    size_t at = 0;
    if (b->len <= (size_t)(4 * b->indent) || b->data[4 * b->indent] == '/')
        return false;
    while (at < b->len) {
        const char *end = memchr(b->data + at, '\n', b->len - at);
        size_t next = (size_t)(end - b->data) + 1;
        if ((next < b->len) != (end[-1] == ')'))
            return false;
        at = next;
    }
    return true;
}

void cgen_close(CGen *g, Block *b, const char *header)
{
    end_block(g, b);
    bool bare = one_statement(&b->body);
    buf_line(g->out, bare ? "%s" : "%s {", header);
    buf_f(g->out, "%.*s", (int)b->body.len, b->body.data);
    if (!bare)
        buf_line(g->out, "}");
    buf_release(&b->body);
}

/* ---- scopes: what is used more than once, and in which branch of which select */

static int common_region(const Scope *s, int a, int b)
{
    while (a != b) {
        if (s->regions.data[a].depth < s->regions.data[b].depth)
            b = s->regions.data[b].parent;
        else
            a = s->regions.data[a].parent;
    }
    return a;
}

static int new_region(CGen *g, Scope *s, int parent)
{
    Region r = { parent, parent < 0 ? 0 : s->regions.data[parent].depth + 1 };
    vec_push(g->arena, &s->regions, r);
    return s->regions.len - 1;
}

static bool collapsed(const CGen *g, const Node *n, NodeId id)
{
    IndexId bound[MAX_BOUND];
    return n->kind == N_REDUCE && cgen_bounds(g, id, bound) == 0;
}

/* Does the walk of a scope go into the node's arguments? Not where the value is read, and a loop is a scope
 * of its own. */
static bool opens(const CGen *g, NodeId id)
{
    const Node *n = cgen_node(g, id);
    if (cgen_array_of(g, id) >= 0 || recall(g, id))
        return false;
    return n->kind == N_MAP || collapsed(g, n, id);
}

static void scope_collect(CGen *g, Scope *s, NodeId root)
{
    Vec(NodeId) stack = { 0 };
    vec_push(g->arena, &stack, root);
    while (stack.len) {
        NodeId id = stack.data[--stack.len];
        if (g->where[id])
            continue;
        ScopeNode n = { .id = id, .region = -1 };
        vec_push(g->arena, &s->nodes, n);
        g->where[id] = 1;
        for (int i = 0; opens(g, id) && i < cgen_node(g, id)->nargs; i++)
            vec_push(g->arena, &stack, cgen_node(g, id)->args[i]);
    }
}

static int descending(const void *a, const void *b)
{
    const ScopeNode *x = a, *y = b;
    return (x->id < y->id) - (x->id > y->id);
}

static void use_in(CGen *g, Scope *s, NodeId id, int region)
{
    ScopeNode *n = &s->nodes.data[g->where[id] - 1];
    int before = n->region, after = before < 0 ? region : common_region(s, before, region);
    n->uses++;
    if (after == region)
        n->direct = true;
    else if (after != before)
        n->direct = false;
    n->region = after;
}

/* Users stand behind what they use, so one pass downwards sees all uses of a node before the node. */
static void scope_count(CGen *g, Scope *s, NodeId root)
{
    new_region(g, s, -1);
    use_in(g, s, root, 0);
    for (int i = 0; i < s->nodes.len; i++) {
        NodeId id = s->nodes.data[i].id;
        int region = s->nodes.data[i].region;
        const Node *n = cgen_node(g, id);
        if (!opens(g, id))
            continue;
        if (n->kind != N_MAP || n->op != OP_SELECT) {
            for (int k = 0; k < n->nargs; k++)
                use_in(g, s, n->args[k], region);
            continue;
        }
        ScopeSelect sel = { id, { 0, 0 } };
        use_in(g, s, n->args[0], region);
        for (int k = 0; k < 2; k++) {
            sel.region[k] = new_region(g, s, region);
            use_in(g, s, n->args[1 + k], sel.region[k]);
        }
        vec_push(g->arena, &s->selects, sel);
    }
}

/* A value of that many operations has a name where it is used twice, and so have conditions on indices. */
enum { MANY = 1000, MANY_CONDITIONS = 64 };

/* Arguments stand before their uses. */
static void scope_measure(CGen *g, Scope *s)
{
    for (int i = s->nodes.len - 1; i >= 0; i--) {
        ScopeNode *n = &s->nodes.data[i];
        const Node *of = cgen_node(g, n->id);
        n->operations = 1;
        for (int k = 0; opens(g, n->id) && k < of->nargs && n->operations < MANY; k++)
            n->operations += s->nodes.data[g->where[of->args[k]] - 1].operations;
    }
}

static Scope scope_make(CGen *g, NodeId root)
{
    Scope s;
    memset(&s, 0, sizeof s);
    scope_collect(g, &s, root);
    qsort(s.nodes.data, (size_t)s.nodes.len, sizeof *s.nodes.data, descending);
    for (int i = 0; i < s.nodes.len; i++)
        g->where[s.nodes.data[i].id] = i + 1;
    scope_count(g, &s, root);
    scope_measure(g, &s);
    for (int i = 0; i < s.nodes.len; i++)
        g->where[s.nodes.data[i].id] = 0;
    return s;
}

static bool in_bounds(CGen *g, const IxExpr *e, const Poly *extent)
{
    const Poly *lo, *hi, *one = poly_const(g->m, 1);
    return ix_range(g->m, e, &lo, &hi) && poly_nonneg(lo) &&
           poly_nonneg(poly_sub(g->m, poly_sub(g->m, extent, one), hi));
}

/* May the node be computed where no branch asked for it: no loops, and no load that could be out of range. */
static bool harmless(CGen *g, NodeId id, int depth)
{
    const Node *n = cgen_node(g, id);
    if (depth == 0)
        return false;
    if (n->kind == N_REDUCE && !recall(g, id) && cgen_array_of(g, id) < 0 && !collapsed(g, n, id))
        return false;
    if (n->step)
        return false;
    for (int i = 0; i < n->nmap; i++) {
        const Poly *extent = n->kind == N_LOAD ? g->m->tensors.data[n->tensor].axes[i]
                                               : g->m->indices.data[cgen_node(g, n->args[0])->axes[i]].extent;
        if (!in_bounds(g, n->map[i], extent))
            return false;
    }
    for (int i = 0; opens(g, id) && i < n->nargs; i++)
        if (!harmless(g, n->args[i], depth - 1))
            return false;
    return true;
}

/* A condition on indices alone, and short: it says more where it stands than behind a name. */
static bool plain_condition(const CGen *g, NodeId id, int *left)
{
    const Node *n = cgen_node(g, id);
    if (--*left < 0)
        return false;
    if (n->kind == N_SIZE || n->kind == N_INDEX)
        return true;
    if (n->kind != N_MAP || n->type != TY_BOOL)
        return false;
    for (int i = 0; i < n->nargs; i++)
        if (!plain_condition(g, n->args[i], left))
            return false;
    return true;
}

static Text value(CGen *g, const Scope *s, NodeId id);

/* The branch that an enclosing select has decided already, or -1. */
static NodeId decided(const CGen *g, const Node *n)
{
    for (int i = 0; i < g->assumed.len; i++)
        if (g->assumed.data[i].cond == n->args[0] && !rebound(g, n->args[0], g->assumed.data[i].serial))
            return n->args[g->assumed.data[i].holds ? 1 : 2];
    return -1;
}

/* Prints variables for what this region (a branch, or the whole scope) uses more than once: computed before
 * it is known which branch is taken, where that is harmless, or where it would be printed at length in each
 * of them. Every read that may lie outside stands under its own condition, so none does there. */
static void print_shared(CGen *g, const Scope *s, int region)
{
    for (int i = s->nodes.len - 1; i >= 0; i--) {
        const ScopeNode *u = &s->nodes.data[i];
        const Node *n = cgen_node(g, u->id);
        if (u->region != region || u->uses < 2 || n->kind != N_MAP || n->op == OP_STOP ||
            cgen_array_of(g, u->id) >= 0 || plain_condition(g, u->id, &(int){ MANY_CONDITIONS }) ||
            (n->op == OP_SELECT && decided(g, n) >= 0) || recall(g, u->id) ||
            !(u->direct || u->operations >= MANY || harmless(g, u->id, 12)))
            continue;
        Text t = value(g, s, u->id);
        const char *name = names_fresh(&g->locals, n->name ? n->name : n->type == TY_BOOL ? "holds" : "u");
        const char *type = n->type == TY_BOOL ? "bool" : n->type == TY_INT ? "int64_t" : "real";
        buf_line(g->out, "const %s %s = %s;", type, name, t.s);
        remember(g, u->id, name);
    }
}

/* ---- expressions */

/* As a number of type real: a size or an index is cast, so that no integer arithmetic happens. */
static Text real_value(CGen *g, const Scope *s, NodeId id)
{
    Text t = value(g, s, id);
    const Node *n = cgen_node(g, id);
    if (n->type == TY_INT && !(n->kind == N_SIZE && n->size->is_const))
        return text(intern_f(g->c, "(real)%s", paren(g, t, C_UNARY)), C_UNARY);
    return t;
}

/* Would C take the expression as an int? */
static bool c_integer(const CGen *g, NodeId id)
{
    const Node *n = cgen_node(g, id);
    if (g->memo[id] || cgen_array_of(g, id) >= 0)
        return false;
    if (n->kind == N_CONST)
        return c_number(g->c, n->value)[0] != '(';
    if (n->kind == N_SIZE)
        return n->size->is_const;
    if (n->type == TY_BOOL)
        return true;
    if (n->kind != N_MAP || n->nargs == 0)
        return false;
    if (n->op == OP_SELECT)
        return c_integer(g, n->args[1]) && c_integer(g, n->args[2]);
    return (n->op <= OP_DIV || n->op == OP_STOP) && c_integer(g, n->args[0]) &&
           (n->nargs < 2 || c_integer(g, n->args[1]));
}

static Text forced_real(CGen *g, const Scope *s, NodeId id)
{
    Text t = real_value(g, s, id);
    if (c_integer(g, id))
        return text(intern_f(g->c, "(real)%s", paren(g, t, C_UNARY)), C_UNARY);
    return t;
}

static bool whole(const CGen *g, NodeId id)
{
    const Node *n = cgen_node(g, id);
    return n->type == TY_INT ||
           (n->kind == N_CONST && n->value == floor(n->value) && fabs(n->value) < 1e6);
}

static int infix_prec(Op op)
{
    switch (op) {
    case OP_ADD: case OP_SUB: return C_ADD;
    case OP_MUL: case OP_DIV: return C_MUL;
    case OP_LT: case OP_LE: return C_REL;
    case OP_EQ: case OP_NE: return C_EQ;
    case OP_AND: return C_AND;
    case OP_OR: return C_OR;
    default: return 0;
    }
}

static const char *infix_sign(Op op)
{
    static const char *const sign[OP_COUNT] = {
        [OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",  [OP_LT] = "<",
        [OP_LE] = "<=", [OP_EQ] = "==", [OP_NE] = "!=", [OP_AND] = "&&", [OP_OR] = "||"
    };
    return sign[op];
}

/* Arithmetic on whole numbers. Where it may leave the 64 bits, or C would take it for one of ints, by a function. */
static Text whole_arithmetic(CGen *g, const Scope *s, const Node *n)
{
    static const char *const function[] = { [OP_ADD] = "whole_sum", [OP_SUB] = "whole_difference", [OP_MUL] = "whole_product" };
    Op op = n->op == OP_NEG ? OP_SUB : n->op;
    const char *a = n->op == OP_NEG ? "0" : value(g, s, n->args[0]).s;
    const char *b = value(g, s, n->args[n->op != OP_NEG]).s;
    g->used_whole[op] = true;
    return text(intern_f(g->c, "%s(%s, %s)", function[op], a, b), C_ATOM);
}

static bool stays_whole(const CGen *g, const Node *n)
{
    bool ints = true;
    for (int i = 0; i < n->nargs; i++)
        ints = ints && c_integer(g, n->args[i]);
    return n->most < (ints ? 0x1p31 : WHOLE_LARGEST);
}

static bool is_ring(Op op)
{
    return op == OP_ADD || op == OP_SUB || op == OP_MUL || op == OP_NEG;
}

static Text infix(CGen *g, const Scope *s, const Node *n)
{
    int prec = infix_prec(n->op);
    bool compares = prec == C_REL || prec == C_EQ, logic = n->op == OP_AND || n->op == OP_OR;
    bool raw = logic || n->type == TY_INT || (compares && whole(g, n->args[0]) && whole(g, n->args[1]));
    bool force = !raw && c_integer(g, n->args[0]) && c_integer(g, n->args[1]);
    Text a = raw     ? value(g, s, n->args[0])
             : force ? forced_real(g, s, n->args[0])
                     : real_value(g, s, n->args[0]);
    Text b = raw ? value(g, s, n->args[1]) : real_value(g, s, n->args[1]);
    /* && inside || and comparisons of comparisons get parentheses, as compilers ask for */
    int left = compares ? C_ADD : n->op == OP_OR ? C_EQ : prec;
    int right = compares ? C_ADD : n->op == OP_OR ? C_EQ : n->op == OP_AND ? C_AND : prec + 1;
    const char *lhs = a.prec == prec && logic ? a.s : paren(g, a, left);
    if (n->op == OP_ADD && b.s[0] == '-' && b.s[1] != '-' && b.prec >= C_MUL)
        return text(intern_f(g->c, "%s - %s", lhs, b.s + 1), C_ADD);
    return text(intern_f(g->c, "%s %s %s", lhs, infix_sign(n->op), paren(g, b, right)), prec);
}

static Text call(CGen *g, const Scope *s, const Node *n)
{
    const OpRow *row = &op_table[n->op];
    const Node *second = n->nargs > 1 ? cgen_node(g, n->args[1]) : NULL;
    if (n->op == OP_POW && second->kind == N_CONST && second->value == 2) {
        g->used_square = true;
        return text(intern_f(g->c, "square(%s)", real_value(g, s, n->args[0]).s), C_ATOM);
    }
    const char *args[3] = { "", "", "" };
    bool function = row->arity > 0 && strstr(row->c64, "(%s") && row->c64[0] != '(';
    for (int i = 0; i < row->arity; i++)
        args[i] = paren(g, forced_real(g, s, n->args[i]), function || strstr(row->c64, "sqrt") ? 0 : C_UNARY);
    g->used_op[n->op] = true;
    const char *out = row->c64;
    Buf b = { .arena = g->arena };
    for (int k = 0; *out; out++) {
        if (out[0] == '%' && out[1] == 's' && k < 3) {
            buf_f(&b, "%s", args[k++]);
            out++;
        } else {
            buf_f(&b, "%c", *out);
        }
    }
    return text(intern_n(g->c, b.data, b.len), C_ATOM);
}

static const ScopeSelect *find_select(const Scope *s, NodeId id)
{
    for (int i = 0; s && i < s->selects.len; i++)
        if (s->selects.data[i].id == id)
            return &s->selects.data[i];
    return NULL;
}

/* Opens a block for branch k of a select and gives its value; the condition is known in there. */
static Text branch(CGen *g, const Scope *s, const ScopeSelect *sel, const Node *n, int k, Block *b)
{
    Assumed known = { n->args[0], k == 0, ++g->serial };
    cgen_open(g, b);
    vec_push(g->arena, &g->assumed, known);
    if (sel)
        print_shared(g, s, sel->region[k]);
    Text t = n->type == TY_INT ? value(g, s, n->args[1 + k]) : real_value(g, s, n->args[1 + k]);
    g->assumed.len--;
    return t;
}

static Text select_text(CGen *g, const Scope *s, NodeId id)
{
    const Node *n = cgen_node(g, id);
    const ScopeSelect *sel = find_select(s, id);
    if (decided(g, n) >= 0)
        return n->type == TY_INT ? value(g, s, decided(g, n)) : real_value(g, s, decided(g, n));
    Text cond = value(g, s, n->args[0]);
    Block b[2];
    Text t[2];
    int locals = g->locals.taken.len;
    const char *name = names_fresh(&g->locals, "chosen"); /* before the branches: a nested choice must not take it */
    for (int k = 0; k < 2; k++) {
        t[k] = branch(g, s, sel, n, k, &b[k]);
        end_block(g, &b[k]);
    }
    if (b[0].body.len == 0 && b[1].body.len == 0) {
        names_cut(&g->locals, locals);
        return text(intern_f(g->c, "%s ? %s : %s", paren(g, cond, C_OR), paren(g, t[0], C_OR),
                             paren(g, t[1], C_COND)),
                    C_COND);
    }
    buf_line(g->out, "%s %s;", n->type == TY_BOOL ? "bool" : n->type == TY_INT ? "int64_t" : "real", name);
    for (int k = 0; k < 2; k++) {
        g->out = &b[k].body;
        buf_line(g->out, "%s = %s;", name, t[k].s);
        g->out = b[k].outer;
        if (k == 0)
            buf_line(g->out, "if (%s) {", cond.s);
        else
            buf_line(g->out, "} else {");
        buf_f(g->out, "%.*s", (int)b[k].body.len, b[k].body.data);
    }
    buf_line(g->out, "}");
    return text(name, C_ATOM);
}

static Text map_text(CGen *g, const Scope *s, NodeId id)
{
    const Node *n = cgen_node(g, id);
    if (n->op == OP_SELECT)
        return select_text(g, s, id);
    if (n->op == OP_STOP)
        return real_value(g, s, n->args[0]);
    if (n->type == TY_INT && is_ring(n->op) && !stays_whole(g, n))
        return whole_arithmetic(g, s, n);
    if (n->op == OP_NEG) {
        Text t = n->type == TY_INT ? value(g, s, n->args[0]) : real_value(g, s, n->args[0]);
        return text(intern_f(g->c, "-%s", paren(g, t, C_ATOM)), C_UNARY);
    }
    if (n->type == TY_INT && (n->op == OP_MIN || n->op == OP_MAX)) {
        Text a = value(g, s, n->args[0]), b = value(g, s, n->args[1]);
        return text(intern_f(g->c, "%s %c %s ? %s : %s", paren(g, a, C_ADD), n->op == OP_MIN ? '<' : '>',
                             paren(g, b, C_ADD), paren(g, a, C_OR), paren(g, b, C_OR)), C_COND);
    }
    if (n->op == OP_IDIV || n->op == OP_IMOD || n->op == OP_IPOW) {
        const char *a = value(g, s, n->args[0]).s, *b = value(g, s, n->args[1]).s;
        g->used_op[n->op] = true;
        return text(intern_f(g->c, op_table[n->op].c64, a, b), C_ATOM);
    }
    if (n->op == OP_NOT)
        return text(intern_f(g->c, "!%s", paren(g, value(g, s, n->args[0]), C_ATOM)), C_UNARY);
    return infix_prec(n->op) ? infix(g, s, n) : call(g, s, n);
}

static const char *reduce_loops(CGen *g, NodeId id);

static Text value(CGen *g, const Scope *s, NodeId id)
{
    const Node *n = cgen_node(g, id);
    NodeId array = cgen_array_of(g, id);
    if (array >= 0)
        return read_at_axes(g, array);
    const char *known = recall(g, id);
    if (known)
        return text(known, C_ATOM);
    switch (n->kind) {
    case N_CONST: {
        const char *number = c_number(g->c, n->value);
        return text(number, number[0] == '-' || number[0] == '(' ? C_UNARY : C_ATOM);
    }
    case N_SIZE: return size_text(g, n->size);
    case N_INDEX: return ix_text(g, n->ix);
    case N_LOAD: return load_text(g, n);
    case N_VIEW: return view_text(g, n);
    case N_MAP: return map_text(g, s, id);
    case N_REDUCE: return collapsed(g, n, id) ? value(g, s, n->args[0]) : text(reduce_loops(g, id), C_ATOM);
    case N_ARRAY: break;
    }
    bug(g->c, "emit_c", "%%%d has no value", id);
}

/* ---- loops */

int cgen_bounds(const CGen *g, NodeId id, IndexId *out)
{
    const Node *n = cgen_node(g, id);
    int k = 0;
    for (int i = 0; i < n->nbound; i++)
        if (n->bound[i] >= IX_FIRST)
            out[k++] = n->bound[i];
    return k;
}

typedef struct Hoist {
    IndexId closed[4 * MAX_BOUND];
    int n, stamp;
} Hoist; /* closed: indices bound further inside */

static bool available(const CGen *g, const Hoist *h, NodeId id)
{
    const Node *n = cgen_node(g, id);
    for (int i = 0; i < n->naxes; i++) {
        if (!g->env[n->axes[i]])
            return false;
        for (int k = 0; k < h->n; k++)
            if (h->closed[k] == n->axes[i])
                return false;
    }
    return true;
}

/* Computes here every reduction of the expression that does not vary with the closed indices; not those under
 * a select. */
static void hoist(CGen *g, Hoist *h, NodeId id)
{
    const Node *n = cgen_node(g, id);
    if (g->stamp[id] == h->stamp || cgen_array_of(g, id) >= 0 || recall(g, id))
        return;
    g->stamp[id] = h->stamp;
    if (n->kind == N_MAP)
        for (int i = 0; i < (n->op == OP_SELECT ? 1 : n->nargs); i++)
            hoist(g, h, n->args[i]);
    if (n->kind != N_REDUCE)
        return;
    IndexId bound[MAX_BOUND];
    int count = cgen_bounds(g, id, bound), before = h->n;
    if (count && available(g, h, id)) {
        reduce_loops(g, id);
        return;
    }
    for (int i = 0; i < count && h->n < 4 * MAX_BOUND; i++)
        h->closed[h->n++] = bound[i];
    hoist(g, h, n->args[0]);
    h->n = before;
}

typedef struct Loops {
    Block block[MAX_BOUND];
    IndexId id[MAX_BOUND];
    const char *old[MAX_BOUND];
    int old_serial[MAX_BOUND];
    NodeId place[MAX_BOUND];      /* the one place that the index takes, if it is inside; -1: all of them */
    int n;
} Loops;

/* An index that a condition of the body pins to a value takes that place only. */
static void pin(CGen *g, Loops *l, int k, IndexId id)
{
    Scope s = scope_make(g, l->place[k]);
    Text t = value(g, &s, l->place[k]);
    const char *name = names_fresh(&g->locals, g->m->indices.data[id].name);
    buf_line(g->out, "const int64_t %s = %s;", name, t.s);
    cgen_open(g, &l->block[k]);
    g->env[id] = name;
}

/* Finds what pins the indices of l's loops. True if the condition of `body` holds in there. */
static bool find_pins(CGen *g, Loops *l, const IndexId *ids, int n, const IndexId *over, int nover, NodeId body)
{
    int pins = 0;
    bool only = false;
    for (int k = 0; k < n; k++) {
        bool alone;
        l->place[k] = ir_pinned(g->m, body, ids[k], over, nover, &alone);
        pins += l->place[k] >= 0;
        only |= alone;
    }
    return pins == 1 && only;
}

/* Opens a loop per index around `body`, with the reductions that each level allows in front of it. */
static void open_loops(CGen *g, Loops *l, const IndexId *ids, int n, NodeId body)
{
    l->n = n;
    for (int k = 0; k < n; k++) {
        Hoist h = { .n = n - k };
        memcpy(h.closed, ids + k, sizeof *ids * (size_t)(n - k));
        h.stamp = ++g->serial;
        hoist(g, &h, body);
        l->id[k] = ids[k];
        l->old[k] = g->env[ids[k]];
        l->old_serial[k] = g->env_serial[ids[k]];
        if (l->place[k] >= 0) {
            pin(g, l, k, ids[k]);
        } else {
            cgen_open(g, &l->block[k]);
            g->env[ids[k]] = names_fresh(&g->locals, g->m->indices.data[ids[k]].name);
        }
        g->env_serial[ids[k]] = ++g->serial;
    }
}

/* And releases l. */
static void close_loops(CGen *g, Loops *l)
{
    for (int k = l->n - 1; k >= 0; k--) {
        const char *i = g->env[l->id[k]];
        const char *extent = cgen_size(g, g->m->indices.data[l->id[k]].extent, C_ADD);
        cgen_close(g, &l->block[k],
                   l->place[k] >= 0 ? intern_f(g->c, "if (%s >= 0 && %s < %s)", i, i, extent)
                                    : intern_f(g->c, "for (int64_t %s = 0; %s < %s; %s++)", i, i, extent, i));
        g->env[l->id[k]] = l->old[k];
        g->env_serial[l->id[k]] = l->old_serial[k];
    }
    arena_release(g->arena, l, sizeof *l);
}

static const char *reduce_start(CGen *g, ReduceOp op)
{
    if (op == R_MAX || op == R_MIN)
        g->used_op[op == R_MAX ? OP_MAX : OP_MIN] = true;
    return op == R_SUM ? "0" : op == R_PROD ? "1" : op == R_MAX ? "-(real)INFINITY" : "(real)INFINITY";
}

static void reduce_step(CGen *g, ReduceOp op, const char *name, Text t)
{
    if (op == R_MAX || op == R_MIN)
        buf_line(g->out, "%s = %s(%s, %s);", name, op == R_MAX ? "max_of" : "min_of", name, t.s);
    else
        buf_line(g->out, "%s %s= %s;", name, op == R_PROD ? "*" : "+", t.s);
}

/* A sum over `c ? v : 0` adds only where c holds. False if the body is nothing like that. */
static bool guarded_sum(CGen *g, const Scope *s, NodeId body, const char *name)
{
    const Node *n = cgen_node(g, body);
    if (n->kind != N_MAP || n->op != OP_SELECT || cgen_array_of(g, body) >= 0)
        return false;
    const Node *other = cgen_node(g, n->args[2]);
    if (other->kind != N_CONST || other->value != 0)
        return false;
    Text cond = value(g, s, n->args[0]);
    const ScopeSelect *sel = find_select(s, body);
    Block b;
    Text t = branch(g, s, sel, n, 0, &b);
    buf_line(g->out, "%s += %s;", name, t.s);
    cgen_close(g, &b, intern_f(g->c, "if (%s)", cond.s));
    return true;
}

/* Prints the loops of a reduction here; the variable that holds the result, remembered in the current block.
 */
static const char *reduce_loops(CGen *g, NodeId id)
{
    static const char *const names[] = {
        [R_SUM] = "sum", [R_MAX] = "largest", [R_MIN] = "smallest", [R_PROD] = "product"
    };
    const Node *n = cgen_node(g, id);
    IndexId bound[MAX_BOUND];
    int count = cgen_bounds(g, id, bound);
    const char *name = names_fresh(&g->locals, names[n->reduce]);
    Loops *l = arena_alloc(g->arena, sizeof *l);
    bool whole = n->type == TY_INT;
    buf_line(g->out, "%s %s = %s;", whole ? "int64_t" : "real", name, reduce_start(g, n->reduce));
    bool known = find_pins(g, l, bound, n->reduce == R_SUM ? count : 0, bound, count, n->args[0]);
    for (int k = 0; k < count && n->reduce != R_SUM; k++)
        l->place[k] = -1;
    open_loops(g, l, bound, count, n->args[0]);
    NodeId term = known ? cgen_node(g, n->args[0])->args[1] : n->args[0];
    Scope s = scope_make(g, term);
    print_shared(g, &s, 0);
    if (known || whole)
        reduce_step(g, R_SUM, name, whole ? value(g, &s, term) : real_value(g, &s, term));
    else if (n->reduce != R_SUM || !guarded_sum(g, &s, n->args[0], name))
        reduce_step(g, n->reduce, name, real_value(g, &s, n->args[0]));
    close_loops(g, l);
    remember(g, id, name);
    return name;
}

/* The loops around what is added to an array: its axes, and first what a sum of it runs over where a condition of
 * the term pins an axis to a value, so that the term is added at that place and no other is looked at. */
typedef struct Nest {
    IndexId ids[2 * MAX_BOUND];
    int n;
    NodeId body;
    bool known;                   /* the condition of `body` holds in its loops */
} Nest;

static NodeId without_walk(const CGen *g, NodeId id)
{
    while (collapsed(g, cgen_node(g, id), id))
        id = cgen_node(g, id)->args[0];
    return id;
}

static bool scatters(CGen *g, const Node *array, NodeId body, Nest *nest, Loops *l)
{
    const Node *sum = cgen_node(g, without_walk(g, body));
    IndexId bound[MAX_BOUND];
    int n = 0;
    nest->body = without_walk(g, body);
    if (sum->kind == N_REDUCE && sum->reduce == R_SUM && cgen_array_of(g, nest->body) < 0) {
        n = cgen_bounds(g, nest->body, bound);
        nest->body = sum->args[0];
    }
    nest->n = n + array->naxes;
    memcpy(nest->ids, bound, sizeof *bound * (size_t)n);
    memcpy(nest->ids + n, array->axes, sizeof *bound * (size_t)array->naxes);
    nest->known = find_pins(g, l, nest->ids, nest->n, array->axes, array->naxes, nest->body);
    bool any = false;
    for (int k = 0; k < nest->n; k++) {
        l->place[k] = k < n ? -1 : l->place[k];
        any |= l->place[k] >= 0;
    }
    return any;
}

static void plain_nest(const Node *array, NodeId body, Nest *nest, Loops *l)
{
    nest->n = array->naxes;
    memcpy(nest->ids, array->axes, sizeof *array->axes * (size_t)array->naxes);
    nest->body = body;
    nest->known = false;
    for (int k = 0; k < nest->n; k++)
        l->place[k] = -1;
}

static void print_nest(CGen *g, NodeId id, NodeId body, int target, const char *op, bool declare)
{
    const Node *n = cgen_node(g, id), *sum = cgen_node(g, body);
    bool adds = target >= 0 && op[0] == '+';
    Loops *l = arena_alloc(g->arena, sizeof *l);
    Nest nest;
    Text at[MAX_BOUND];
    const Poly *extents[MAX_BOUND];
    if (adds && sum->kind == N_MAP && sum->op == OP_ADD && cgen_array_of(g, body) < 0 &&
        (scatters(g, n, sum->args[0], &nest, l) || scatters(g, n, sum->args[1], &nest, l))) {
        for (int k = 0; k < 2; k++)
            print_nest(g, id, sum->args[k], target, op, declare);
        arena_release(g->arena, l, sizeof *l);
        return;
    }
    if (!adds || !scatters(g, n, body, &nest, l))
        plain_nest(n, body, &nest, l);
    open_loops(g, l, nest.ids, nest.n, nest.body);
    NodeId term = nest.known ? cgen_node(g, nest.body)->args[1] : nest.body;
    Scope s = scope_make(g, term);
    print_shared(g, &s, 0);
    Text t = real_value(g, &s, term);
    for (int i = 0; i < n->naxes; i++) {
        at[i] = text(index_name(g, n->axes[i]), C_ATOM);
        extents[i] = g->m->indices.data[n->axes[i]].extent;
    }
    if (target >= 0)
        buf_line(g->out, "%s[%s] %s %s;", cgen_use(g, target), offset_text(g, at, extents, n->naxes).s, op,
                 t.s);
    else
        buf_line(g->out, "%s%s %s %s;", declare ? "const real " : "", g->slot[id].local, op, t.s);
    close_loops(g, l);
}

void cgen_nest(CGen *g, NodeId id, int target, const char *op, bool declare)
{
    const Node *n = cgen_node(g, id);
    NodeId before = g->inside;
    bool kept = g->kept[id];
    g->inside = id;
    g->kept[id] = false;
    print_nest(g, id, n->kind == N_ARRAY ? n->args[0] : id, target, op, declare);
    g->kept[id] = kept;
    g->inside = before;
}
