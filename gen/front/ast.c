/* ast.c: makes the nodes of the AST and checks what a grammar cannot say: where statements may stand, what a
 * declaration may carry, how deep an expression may be. In: what the grammar's rules matched. Out: the Ast of
 * one file. Guaranteed: no expression is deeper than MAX_EXPR_DEPTH, no statement stands where it has no
 * meaning. */
#include <string.h>

#include "base/texts.h"
#include "front/parse.h"
#include "parser.h"

/* ---- expressions ---- */

/* The depth is kept beside the node while parsing only. */
typedef struct DepthExpr {
    Expr e;
    int depth;
} DepthExpr;

Expr *expr_new(Parser *p, ExprKind kind, Span span)
{
    DepthExpr *d = arena_alloc(p->c->arena, sizeof *d);
    d->e.kind = kind;
    d->e.span = span;
    d->depth = 1;
    return &d->e;
}

static void deepen(int *depth, const Expr *child)
{
    int k = child ? ((const DepthExpr *)child)->depth : 0;
    if (k > *depth)
        *depth = k;
}

/* Sets the depth of a finished node; one that is too deep becomes an X_ERROR leaf. */
static Expr *finish(Parser *p, Expr *e)
{
    int depth = 0;
    bool broken = (e->a && e->a->kind == X_ERROR) || (e->b && e->b->kind == X_ERROR) ||
                  (e->c && e->c->kind == X_ERROR);
    deepen(&depth, e->a);
    deepen(&depth, e->b);
    deepen(&depth, e->c);
    deepen(&depth, e->time);
    for (int i = 0; i < e->args.len; i++)
        deepen(&depth, e->args.data[i]);
    for (int i = 0; i < e->held.len; i++)
        deepen(&depth, e->held.data[i]);
    for (int i = 0; i < e->index.len; i++)
        deepen(&depth, e->index.data[i]);
    for (int i = 0; i < e->binders.len; i++) {
        deepen(&depth, e->binders.data[i].range);
        deepen(&depth, e->binders.data[i].fixed);
    }
    ((DepthExpr *)e)->depth = depth + 1;
    if (depth < MAX_EXPR_DEPTH && !broken)
        return e;
    if (!broken)
        error_at(p, e->span,
                 "this expression is nested too deeply (%d levels are the limit): give a part of it a name",
                 MAX_EXPR_DEPTH);
    return expr_new(p, X_ERROR, e->span);
}

Expr *expr_number(Parser *p, Token t)
{
    Expr *e = expr_new(p, X_NUM, t.span);
    e->num = t.num;
    e->is_int = t.is_int;
    return e;
}

Expr *expr_unary(Parser *p, AstOp op, Expr *a, Span span)
{
    Expr *e = expr_new(p, X_UNARY, span);
    e->op = op;
    e->a = a;
    return finish(p, e);
}

static const char *const reduce_names[] = {"sum", "mean", "max", "min", "prod", "softmax"};

static bool mentions(const Expr *e, const char *name);

static bool any_mentions(const ExprVec *v, const char *name)
{
    for (int i = 0; i < v->len; i++)
        if (mentions(v->data[i], name))
            return true;
    return false;
}

static bool mentions(const Expr *e, const char *name)
{
    if (!e)
        return false;
    if (e->kind == X_REF && !e->brackets && !e->primed && e->name == name)
        return true;
    bool inside = mentions(e->a, name) || mentions(e->b, name) || mentions(e->c, name) || mentions(e->time, name);
    return inside || any_mentions(&e->args, name) || any_mentions(&e->index, name) || any_mentions(&e->held, name);
}

static bool depends(const Expr *e, const Expr *reduction)
{
    for (int i = 0; i < reduction->binders.len; i++)
        if (mentions(e, reduction->binders.data[i].name))
            return true;
    return false;
}

static bool is_product(const Expr *e)
{
    return e->kind == X_BINARY && !e->parens && (e->op == O_MUL || e->op == O_DIV || e->op == O_MOD);
}

/* What stands at the end of a reduction's product and depends on no index of it, nor of the n reductions
 * around: the last factor behind one that does depend; or that of a reduction at the end. NULL: there is
 * none. */
static const Expr *taken_factor(const Expr *reduction, const Expr *const *around, int n)
{
    enum { MAX_NESTED = 16 };
    const Expr *all[MAX_NESTED], *body = reduction->a, *last = body->b;
    if (n == MAX_NESTED)
        return NULL;
    for (int i = 0; i <= n; i++)
        all[i] = i < n ? around[i] : reduction;
    while (body->kind == X_UNARY && !body->parens)
        body = body->a;
    if (body->kind == X_REDUCE && !body->parens && (body->reduce == R_SUM || body->reduce == R_MEAN))
        return taken_factor(body, all, n + 1);
    body = reduction->a;
    if (!is_product(body))
        return NULL;
    bool varies = false, fixed = true;
    for (int i = 0; i <= n; i++) {
        varies |= depends(body->a, all[i]);
        fixed &= !depends(last, all[i]);
    }
    if (fixed)
        return varies ? last : NULL;
    while (last->kind == X_UNARY && !last->parens)
        last = last->a;
    return last->kind == X_REDUCE && !last->parens ? taken_factor(last, all, n + 1) : NULL;
}

/* A factor behind those that vary, which is the same at all places: in a quotient's sum, in a product, and as
 * the divisor of a remainder it counts otherwise than behind the reduction. */
static void warn_of_factor(Parser *p, const Expr *e)
{
    const Expr *factor = taken_factor(e, NULL, 0);
    if (!factor)
        return;
    bool divides = factor == e->a->b && e->a->op == O_MOD;
    diag(p->c, DIAG_WARNING, factor->span,
         "'%s' takes this %s too, which does not depend on its index; write parentheses to show what is meant",
         reduce_names[e->reduce], divides ? "divisor" : "factor");
}

Expr *expr_binary(Parser *p, AstOp op, Expr *a, Expr *b, Span span)
{
    if (op == O_POW && b->kind == X_REF && strcmp(b->name, "T") == 0) {
        error_at(p, b->name_span, "'^T' is not part of the language: nothing is transposed: exchange the indices where the value is "
                 "read, as in W[j,i]");
        return finish(p, expr_new(p, X_ERROR, span));
    }
    Expr *e = expr_new(p, X_BINARY, span);
    e->op = op;
    e->a = a;
    e->b = b;
    while (b->kind == X_UNARY && !b->parens)
        b = b->a;
    bool sums = b->kind == X_REDUCE && !b->parens && (b->reduce == R_SUM || b->reduce == R_MEAN);
    if ((op == O_DIV || op == O_MOD) && sums && b->a->op != O_MOD)    /* of a remainder it was said */
        warn_of_factor(p, b);
    return finish(p, e);
}

Expr *expr_compare(Parser *p, AstOp op, Expr *a, Expr *b, Span span)
{
    if (a->kind == X_BINARY && a->op >= O_LT && a->op <= O_NE && !a->parens)
        error_at(p, span, "comparisons do not chain: write a < b && b < c");
    return expr_binary(p, op, a, b, span);
}

Expr *expr_cond(Parser *p, Expr *a, Expr *b, Expr *c, Span span)
{
    Expr *e = expr_new(p, X_COND, span);
    e->a = a;
    e->b = b;
    e->c = c;
    return finish(p, e);
}

Expr *expr_ref(Parser *p, Token name, bool primed, const ExprVec *args, Expr *time, Span span)
{
    Expr *e = expr_new(p, X_REF, span);
    e->name = name.text;
    e->name_span = name.span;
    e->primed = primed;
    e->time = time;
    if (args) {
        e->args = *args;
        e->brackets = true;
    }
    return finish(p, e);
}

Expr *expr_call(Parser *p, Token name, const ExprVec *args, const ExprVec *held, Token member,
                const ExprVec *index, Span span)
{
    Expr *e = expr_new(p, X_CALL, span);
    e->name = name.text;
    e->name_span = name.span;
    e->member = member.text;
    e->member_span = member.span;
    if (args)
        e->args = *args;
    if (held)
        e->held = *held;
    if (index) {
        e->index = *index;
        e->brackets = true;
    }
    for (int i = 0; i < e->args.len; i++)
        if (e->args.data[i]->kind == X_COLON)
            error_at(p, e->args.data[i]->span, "a ':' stands inside the brackets of a value, as in k[h,:]");
    return finish(p, e);
}

/* sum[j < N], sum[j != i], sum[2]: what to write. */
static const char *wrong_binder(Parser *p, ReduceOp reduce, const Expr *e)
{
    static const char *const neutral[] = {[R_MAX] = "-inf", [R_MIN] = "inf", [R_PROD] = "1"};
    const char *name = reduce_names[reduce];
    const char *none = reduce < sizeof neutral / sizeof *neutral && neutral[reduce] ? neutral[reduce] : "0";
    bool below = e && e->kind == X_BINARY && e->op == O_LT && e->a->kind == X_REF && !e->a->brackets;
    if (reduce == R_SOFTMAX || !e || e->kind != X_BINARY)
        return "";
    if (below)
        return intern_f(p->c,
                        ", its range stands behind ':', as in %s[%s:N], and a condition in what is reduced, "
                        "as in %s[%s] (%s < i ? x[%s] : %s)",
                        name, e->a->name, name, e->a->name, e->a->name, e->a->name, none);
    return e->op < O_LT || e->op > O_OR ? ""
                                        : intern_f(p->c,
                                                   ", and a condition stands in what is reduced, as in %s[j] "
                                                   "(j != i ? x[j] : %s)",
                                                   name, none);
}

static void check_reduce_binders(Parser *p, const Expr *e)
{
    for (int i = 0; i < e->binders.len; i++) {
        const Binder *b = &e->binders.data[i];
        if (!b->name)
            error_at(p, b->span, "'%s' runs over indices: a name is expected here%s", reduce_names[e->reduce],
                     wrong_binder(p, e->reduce, b->fixed));
        else if (e->reduce == R_SOFTMAX && b->range)
            error_at(p, b->span,
                     "softmax normalises along an index that is in scope already: '%s' takes no range here",
                     b->name);
    }
}

Expr *expr_reduce(Parser *p, Token reduce, const BinderVec *binders, Expr *body, Span span)
{
    Expr *e = expr_new(p, X_REDUCE, span);
    e->reduce = reduce.reduce;
    e->name_span = reduce.span;
    e->binders = *binders;
    e->a = body;
    check_reduce_binders(p, e);
    bool product = is_product(body);
    if (product && (e->reduce == R_MAX || e->reduce == R_MIN))
        diag(p->c, DIAG_WARNING, reduce.span,
             "'%s' takes the rest of its product; write parentheses to show what is meant",
             reduce_names[e->reduce]);
    bool remainders = (e->reduce == R_SUM || e->reduce == R_MEAN) && product && body->op == O_MOD;
    if (e->reduce == R_PROD || remainders)
        warn_of_factor(p, e);
    return finish(p, e);
}

const Domain *domain_of(Parser *p, bool above, Expr *low, Expr *high, bool below, const Token *word, Span span)
{
    Domain *d = arena_alloc(p->c->arena, sizeof *d);
    *d = (Domain){ .low = low, .high = high, .above = above, .below = below, .span = span };
    d->reach = word && strcmp(word->text, "reach") == 0;
    if (word && !d->reach)
        error_at(p, span,
                 "expected a range behind 'in', such as (0, 1] or [0, inf), or 'reach', found '%s'%s",
                 word->text,
                 p->src.text[skip_blank(&p->src, word->span.hi)] == '^' ? ": axes stand in brackets behind "
                                                                          "the name, as in x[D]"
                                                                        : "");
    return low || d->reach ? d : NULL;
}

/* What stands between the brackets of a left side or a reduction: an index, an index with its range, or a
 * constant. */
Binder binder_of(Parser *p, Expr *e)
{
    Binder b = {.span = e->span};
    if (e->kind == X_COLON) {
        b.name = e->name;
        b.range = e->a;
    } else if (e->kind == X_REF && !e->brackets && !e->primed && !e->parens) {
        b.name = e->name;
    } else {
        if (e->kind == X_REF && e->primed)
            error_at(p, e->span, "an index has no prime");
        b.fixed = e;
    }
    return b;
}

/* ---- statements ---- */

Stmt *stmt_new(Parser *p, StmtKind kind, const Token *name, Span span)
{
    Stmt *s = arena_alloc(p->c->arena, sizeof *s);
    s->kind = kind;
    s->span = span;
    if (name) {
        s->name = name->text;
        s->name_span = name->span;
    }
    return s;
}

static const char *kind_text(StmtKind kind)
{
    switch (kind) {
    case S_IMPORT: return "import";
    case S_CELL: return "cell";
    case S_DIM: return "dim";
    case S_CONST: return "const";
    case S_OPTION: return "option";
    case S_INPUT: return "input";
    case S_PARAM: return "param";
    case S_STATE: return "state";
    case S_OUTPUT: return "output";
    case S_RESET: return "reset";
    case S_EQ: return "equation";
    case S_FN: return "fn";
    case S_WHEN: return "when";
    case S_REPEAT: return "repeat";
    case S_CARRY: return "carry";
    }
    return "statement";
}

static const char *with_article(StmtKind kind)
{
    switch (kind) {
    case S_IMPORT:
    case S_OPTION:
    case S_INPUT:
    case S_OUTPUT:
    case S_EQ: return "an";
    default: return "a";
    }
}

/* What the grammar leaves open because all declarations share one rule: which parts this kind has. */
static void check_decl(Parser *p, StmtKind kind, const Decl *d)
{
    const char *name = d->name.text;
    bool number = kind == S_DIM || kind == S_CONST || kind == S_RESET;
    if (number && d->brackets)
        error_at(p, d->span, "a %s has no axes", kind_text(kind));
    if (d->type && (number || kind == S_CARRY))
        error_at(p, d->type_span, "a %s has no type", kind_text(kind));
    for (int i = 0; i < d->axes.len; i++)
        if (d->axes.data[i]->kind == X_COLON && !d->axes.data[i]->name)
            error_at(p, d->axes.data[i]->span, "expected the extent of this axis of '%s', found ':'", name);
        else if (d->axes.data[i]->kind == X_COLON && ((kind != S_STATE && kind != S_CARRY) || !d->init))
            error_at(p, d->axes.data[i]->span, "an axis has an index, '%s', only where a state or a carry has an initial value that "
                     "reads it", d->axes.data[i]->name);
        else if (i && (d->axes.data[i]->kind == X_COLON) != (d->axes.data[0]->kind == X_COLON))
            error_at(p, d->axes.data[i]->span, "either all axes of '%s' have an index, or none", name);
    if (d->domain && kind != S_INPUT && kind != S_PARAM && kind != S_STATE)
        error_at(p, d->domain->span, "only inputs, params and states have a range, but '%s' is %s %s", name,
                 with_article(kind), kind_text(kind));
    else if (d->domain && d->domain->reach && kind != S_STATE)
        error_at(p, d->domain->span, "only a state can be 'in reach', but '%s' is %s %s", name, with_article(kind),
                 kind_text(kind));
    if (kind == S_CONST && !d->init)
        error_at(p, d->span, "a const needs its value: const %s = ...", name);
    if (kind == S_CARRY && !d->init)
        error_at(p, d->span, "a carry needs the value it starts from: carry %s = ...", name);
    if (!d->init)
        return;
    if (kind == S_INPUT || kind == S_OUTPUT || kind == S_RESET)
        error_at(p, d->init->span, "an %s has no initial value%s%s%s",
                 kind == S_RESET ? "input for resets" : kind_text(kind),
                 kind == S_OUTPUT  ? ": an equation gives it, "
                 : kind == S_INPUT ? ": the call gives it; a constant is declared by const "
                                   : "",
                 kind == S_RESET ? "" : name,
                 kind == S_OUTPUT  ? d->axes.len ? "[i] = ...;" : " = ...;"
                 : kind == S_INPUT ? " = ...;"
                                   : "");
    else if (kind == S_PARAM && d->init_op == '=')
        error_at(p, d->init->span, "the initialiser of a param follows '~', as in %s ~ xavier", name);
    else if (kind != S_PARAM && d->init_op == '~')
        error_at(p, d->init->span,
                 "only a param has an initialiser after '~'; a %s is given with '=', as in %s = 0",
                 kind_text(kind), name);
    else if (kind == S_PARAM && d->init->kind != X_CALL && (d->init->kind != X_REF || d->init->brackets))
        error_at(p, d->init->span, "expected the name of an initialiser, as in xavier or const(2.0)%s",
                 d->init->kind == X_NUM ? intern_f(p->c, ": write const(%g)", d->init->num)
                 : d->init->kind == X_BINARY ? ", whose numbers are its arguments, as in normal(0.1)" : "");
}

/* Of `P[i:N, j:N] = ...` the extents are the axes, and the indices stand where an equation has them. */
static void take_axes(Parser *p, Stmt *s, const Decl *d)
{
    for (int i = 0; i < d->axes.len; i++) {
        Expr *e = d->axes.data[i];
        bool named = e->kind == X_COLON && e->name;
        vec_push(p->c->arena, &s->axes, named ? e->a : e);
        if (named)
            vec_push(p->c->arena, &s->lhs, ((Binder){.name = e->name, .span = e->span}));
    }
}

void add_decls(Parser *p, StmtVec *out, StmtKind kind, bool is_const, const DeclVec *decls, Span span)
{
    for (int i = 0; i < decls->len; i++) {
        const Decl *d = &decls->data[i];
        check_decl(p, kind, d);
        Span whole = d->span;
        if (i == 0)
            whole.lo = span.lo;
        if (i == decls->len - 1)
            whole.hi = span.hi;
        Stmt *s = stmt_new(p, kind, &d->name, whole);
        s->is_const = is_const;
        take_axes(p, s, d);
        s->brackets = d->brackets;
        s->text = d->type;
        s->text_span = d->type_span;
        s->domain = d->domain;
        if (kind == S_DIM || kind == S_CONST)
            s->value = d->init;
        else
            s->init = d->init;
        vec_push(p->c->arena, out, s);
    }
}

Stmt *stmt_fn(Parser *p, bool adjoint, Token name, const TokenVec *params, const TokenVec *held,
              const BinderVec *results, Span span)
{
    Stmt *s = stmt_new(p, S_FN, &name, span);
    s->is_const = adjoint;
    for (int i = 0; i < params->len; i++) {
        vec_push(p->c->arena, &s->params, params->data[i].text);
        vec_push(p->c->arena, &s->param_spans, params->data[i].span);
    }
    for (int i = 0; held && i < held->len; i++) {
        vec_push(p->c->arena, &s->held, held->data[i].text);
        vec_push(p->c->arena, &s->held_spans, held->data[i].span);
    }
    if (results) {
        s->lhs = *results;
        s->brackets = true;
    }
    return s;
}

/* ---- where statements may stand ---- */

typedef enum { IN_FILE, IN_CELL, IN_FN, IN_REPEAT } Place;

static bool allowed(StmtKind kind, Place place)
{
    switch (kind) {
    case S_IMPORT:
    case S_CELL: return place == IN_FILE;
    case S_FN: return place == IN_FILE || place == IN_CELL;
    case S_EQ:
    case S_WHEN:
    case S_REPEAT: return place != IN_FILE;
    case S_CARRY: return place == IN_REPEAT;
    default: return place == IN_CELL;
    }
}

static void check_statement(Parser *p, const Stmt *s, Place place);

static void check_body(Parser *p, const StmtVec *body, Place place)
{
    for (int i = 0; i < body->len; i++)
        check_statement(p, body->data[i], place);
}

static void misplaced(Parser *p, const Stmt *s, Place place)
{
    static const char *const places[] = {"outside of a cell", "inside a cell", "inside a fn",
                                         "inside a repeat"};
    Span at = {s->span.file, s->span.lo, s->name ? s->name_span.hi : s->span.hi};
    const char *hint = s->kind == S_CELL                      ? " (is a '}' missing above?)"
                       : s->kind == S_CARRY                   ? " (it belongs into a repeat)"
                       : s->kind == S_IMPORT                  ? ": it stands at the beginning of the file"
                       : place == IN_FILE && !p->outside_said ? ": what belongs to a cell stands in cell "
                                                                "NAME { ... }"
                                                              : "";
    p->outside_said |= place == IN_FILE;
    error_at(p, at, "%s %s cannot stand %s%s", with_article(s->kind), kind_text(s->kind), places[place],
             hint);
}

static void check_statement(Parser *p, const Stmt *s, Place place)
{
    if (!allowed(s->kind, place))
        misplaced(p, s, place);
    Place inner = s->kind == S_CELL     ? IN_CELL
                  : s->kind == S_FN     ? IN_FN
                  : s->kind == S_REPEAT ? IN_REPEAT
                                        : place;
    check_body(p, &s->body, inner);
    check_body(p, &s->other, inner);
    if (s->kind == S_FN && s->value == NULL && s->body.len == 0 && s->has_body)
        error_at(p, s->name_span, "the fn '%s' has an empty body", s->name);
}

void check_placement(Parser *p, const Ast *ast)
{
    check_body(p, &ast->items, IN_FILE);
}

/* ---- equality ---- */

static bool same_expr(const Expr *a, const Expr *b, bool parens);

static bool same_exprs(const ExprVec *a, const ExprVec *b, bool parens)
{
    if (a->len != b->len)
        return false;
    for (int i = 0; i < a->len; i++)
        if (!same_expr(a->data[i], b->data[i], parens))
            return false;
    return true;
}

static bool same_binders(const BinderVec *a, const BinderVec *b, bool parens)
{
    if (a->len != b->len)
        return false;
    for (int i = 0; i < a->len; i++) {
        const Binder *x = &a->data[i], *y = &b->data[i];
        if (x->name != y->name || !same_expr(x->range, y->range, parens) ||
            !same_expr(x->fixed, y->fixed, parens))
            return false;
    }
    return true;
}

static bool same_expr(const Expr *a, const Expr *b, bool parens)
{
    if (!a || !b)
        return a == b;
    return a->kind == b->kind && a->name == b->name && a->member == b->member && a->primed == b->primed &&
           a->brackets == b->brackets && a->is_int == b->is_int && (!parens || !a->parens == !b->parens) &&
           a->num == b->num && a->op == b->op && a->reduce == b->reduce &&
           same_binders(&a->binders, &b->binders, parens) && same_exprs(&a->args, &b->args, parens) &&
           same_exprs(&a->index, &b->index, parens) &&
           same_expr(a->time, b->time, parens) && same_exprs(&a->held, &b->held, parens) &&
           same_expr(a->a, b->a, parens) && same_expr(a->b, b->b, parens) && same_expr(a->c, b->c, parens);
}

static bool same_domain(const Domain *a, const Domain *b, bool parens)
{
    if (!a || !b)
        return a == b;
    return a->above == b->above && a->below == b->below && a->reach == b->reach && same_expr(a->low, b->low, parens) &&
           same_expr(a->high, b->high, parens);
}

static bool same_names(const char *const *a, int na, const char *const *b, int nb)
{
    if (na != nb)
        return false;
    for (int i = 0; i < na; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

static bool same_body(const StmtVec *a, const StmtVec *b, bool parens);

static bool same_stmt(const Stmt *a, const Stmt *b, bool parens)
{
    return a->kind == b->kind && a->name == b->name && a->text == b->text && a->primed == b->primed &&
           a->brackets == b->brackets && a->is_const == b->is_const && a->has_body == b->has_body &&
           same_exprs(&a->axes, &b->axes, parens) && same_binders(&a->lhs, &b->lhs, parens) &&
           same_domain(a->domain, b->domain, parens) && same_expr(a->init, b->init, parens) && same_expr(a->value, b->value, parens) &&
           same_names(a->choices.data, a->choices.len, b->choices.data, b->choices.len) &&
           same_names(a->params.data, a->params.len, b->params.data, b->params.len) &&
           same_names(a->held.data, a->held.len, b->held.data, b->held.len) &&
           same_body(&a->body, &b->body, parens) && same_body(&a->other, &b->other, parens);
}

static bool same_body(const StmtVec *a, const StmtVec *b, bool parens)
{
    if (a->len != b->len)
        return false;
    for (int i = 0; i < a->len; i++)
        if (!same_stmt(a->data[i], b->data[i], parens))
            return false;
    return true;
}

bool ast_equal(const Ast *a, const Ast *b, bool parens)
{
    return same_body(&a->items, &b->items, parens);
}

/* ---- the whole ---- */

Ast *parse_source(Compiler *c, int file)
{
    Parser *p = arena_alloc(c->arena, sizeof *p);
    p->c = c;
    p->file = file;
    p->src = c->sources.data[file];
    p->errors_before = c->errors;
    p->at_start = true;
    p->ast = arena_alloc(c->arena, sizeof *p->ast);
    p->ast->file = file;
    if (p->src.len > (size_t)MAX_TEXT_MB << 20) {
        diag(c, DIAG_ERROR, (Span){.file = -1}, "'%s' has more than %d MB", p->src.path, MAX_TEXT_MB);
        return p->ast;
    }
    const unsigned char *mark = (const unsigned char *)p->src.text;
    if (p->src.len >= 2 && ((mark[0] == 0xff && mark[1] == 0xfe) || (mark[0] == 0xfe && mark[1] == 0xff))) {
        diag(c, DIAG_ERROR, (Span){.file = file}, "the file is UTF-16: save it as UTF-8");
        return p->ast;
    }
    if (!raw_open(p) || yyparse(p) == 2)
        give_up(p, (Span){.file = -1}, "out of memory");
    raw_close(p);
    if (!p->lost_head)
        check_placement(p, p->ast);
    return p->ast;
}

/* ---- initial values ---- */

static Expr *whole_number(Compiler *c, Span at, double value)
{
    Expr *e = arena_alloc(c->arena, sizeof *e);
    *e = (Expr){.kind = X_NUM, .span = at, .num = value, .is_int = true};
    return e;
}

const Expr *ast_initial(Compiler *c, const Expr *init)
{
    bool condition = init && ((init->kind == X_BINARY && init->op >= O_LT) || (init->kind == X_UNARY && init->op == O_NOT));
    if (!condition)
        return init;
    Expr *e = arena_alloc(c->arena, sizeof *e);
    *e = (Expr){.kind = X_COND, .span = init->span, .a = (Expr *)(uintptr_t)init, .b = whole_number(c, init->span, 1),
                .c = whole_number(c, init->span, 0)};
    return e;
}

/* ---- the cell that is meant ---- */

/* "'a', 'b' and 'c'": the names of a file's cells. */
static const char *cells_text(Compiler *c, const StmtVec *cells)
{
    const char *text = "";
    for (int i = 0; i < cells->len; i++)
        text = intern_f(c, "%s%s'%s'", text, i == 0 ? "" : i == cells->len - 1 ? " and " : ", ", cells->data[i]->name);
    return text;
}

static const Stmt *named_cell(Compiler *c, const StmtVec *cells, const char *name, Span start)
{
    const char **names = arena_alloc(c->arena, sizeof *names * (size_t)cells->len), *near;
    for (int i = 0; i < cells->len; i++) {
        names[i] = cells->data[i]->name;
        if (strcmp(names[i], name) == 0)
            return cells->data[i];
    }
    near = suggest(name, names, cells->len);
    if (near)
        diag(c, DIAG_ERROR, start, "there is no cell '%s' in this file; did you mean '%s'?", name, near);
    else
        diag(c, DIAG_ERROR, start, "there is no cell '%s' in this file; it has %s", name, cells_text(c, cells));
    return NULL;
}

const Stmt *ast_cell(Compiler *c, const Ast *ast, const char *name, bool required)
{
    Span start = {ast->file, 0, 0};
    StmtVec cells = {0};
    int errors = c->errors;
    for (int i = 0; i < ast->items.len; i++) {
        Stmt *s = ast->items.data[i];
        if (s->kind != S_CELL)
            continue;
        for (int k = 0; k < cells.len; k++)
            if (cells.data[k]->name == s->name)
                diag(c, DIAG_ERROR, s->name_span, "cell '%s' is defined twice", s->name);
        vec_push(c->arena, &cells, s);
    }
    if (c->errors > errors)
        return NULL;
    if (cells.len && (name || c->cell))
        return named_cell(c, &cells, name ? name : c->cell, start);
    if (cells.len == 1)
        return cells.data[0];
    if (cells.len)
        diag(c, DIAG_ERROR, cells.data[1]->name_span, "this file has %d cells, %s: name one, as in %s:%s", cells.len,
             cells_text(c, &cells), c->sources.data[ast->file].path, cells.data[0]->name);
    else if (required && !c->errors)
        diag(c, DIAG_ERROR, start, "there is no cell in this file");
    return NULL;
}

/* ---- types of 8 bits ---- */

const char *ast_type(const Compiler *c, const Stmt *s)
{
    for (int i = 0; i < c->types.len; i++)
        if (c->types.data[i].name == s->name && (s->kind == S_INPUT || s->kind == S_PARAM))
            return c->types.data[i].value;
    return s->text;
}

int fp8_block(const char *type)
{
    static const struct {
        const char *name;
        int block;
    } types[] = { { "e4m3", 0 },     { "e5m2", 0 },       { "e4m3_32", 32 },
                  { "e5m2_32", 32 }, { "e4m3_128", 128 }, { "e5m2_128", 128 } };
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].name) == 0)
            return types[i].block;
    return -1;
}

static Expr *number_at(Compiler *c, double v, Span span)
{
    Expr *e = arena_alloc(c->arena, sizeof *e);
    e->kind = X_NUM;
    e->num = v;
    e->is_int = v == (double)(int64_t)v;
    e->span = span;
    return e;
}

static Expr *blocks_of(Compiler *c, Expr *axis, int block)
{
    Expr *e = arena_alloc(c->arena, sizeof *e);
    e->kind = X_BINARY;
    e->op = O_DIV;
    e->a = axis;
    e->b = number_at(c, block, axis->span);
    e->span = axis->span;
    return e;
}

/* Tests draw scales from [0.5, 2]; a layer begins with 1. */
const Stmt *ast_scales(Compiler *c, const Stmt *of)
{
    Stmt *s = arena_alloc(c->arena, sizeof *s);
    Domain *range = arena_alloc(c->arena, sizeof *range);
    Expr *ones = arena_alloc(c->arena, sizeof *ones);
    int block = fp8_block(ast_type(c, of));
    ones->kind = X_REF;
    ones->name = intern(c, "ones");
    ones->span = ones->name_span = of->name_span;
    *range = (Domain){ .low = number_at(c, 0.5, of->name_span),
                       .high = number_at(c, 2, of->name_span),
                       .span = of->name_span };
    *s = (Stmt){ .kind = block ? of->kind : S_PARAM,
                 .span = of->span,
                 .name = intern_f(c, "%s_scale", of->name),
                 .name_span = of->name_span,
                 .text = intern(c, "f32"),
                 .text_span = of->name_span,
                 .brackets = block > 0,
                 .is_const = true,
                 .domain = range };
    if (s->kind == S_PARAM)
        s->init = ones;
    for (int i = 0; block && i < of->axes.len; i++) {
        Expr *axis = of->axes.data[i];
        vec_push(c->arena, &s->axes, i + 1 < of->axes.len ? axis : blocks_of(c, axis, block));
    }
    return s;
}
