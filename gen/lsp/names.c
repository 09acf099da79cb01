/* names.c: which names of a file mean the same thing. In: the AST of a file, as much as recovery left of it.
 * Out: each thing that is declared, defined or bound, and every place where its name stands. Guaranteed: the
 * rules are those of expand.c and bind.c, but of all branches of a `when` at once: what branches that exclude
 * each other define under one name is one thing. Nothing is diagnosed here. */
#include <stdlib.h>
#include <string.h>

#include "front/front.h"
#include "names.h"

enum { MAX_FILES = 64 };

typedef struct Walk {
    NameTable *n;
    const Stmt *cell, *fn;
    bool foreign;                 /* in an imported file: places are not kept */
    Region *implicit;             /* names that nothing declares are indices of this one; or NULL */
    bool brackets_only;           /* but those in brackets only */
} Walk;

static void *new_of(const Walk *w, size_t bytes)
{
    return arena_alloc(w->n->c->arena, bytes);
}

/* ---- declaring */

static Region *new_region(const Walk *w, Region *outer, Span span)
{
    Region *r = new_of(w, sizeof *r);
    r->outer = outer;
    r->span = span;
    if (!w->foreign)
        vec_push(w->n->c->arena, &w->n->regions, r);
    return r;
}

static Use *add_use(const Walk *w, Span span, Name *name, Region *region)
{
    static Use none;
    Use u = { .span = span, .name = name, .region = region };
    if (w->foreign || span.file != w->n->file || span.hi <= span.lo)
        return &none;
    vec_push(w->n->c->arena, &w->n->uses, u);
    return &w->n->uses.data[w->n->uses.len - 1];
}

static Name *new_name(const Walk *w, NameKind kind, const char *name, Span span, const Stmt *stmt,
                      Region *region)
{
    Name *x = new_of(w, sizeof *x);
    *x = (Name) { .kind = kind, .name = name, .span = span, .stmt = stmt, .cell = w->cell, .fn = w->fn,
                  .region = region };
    vec_push(w->n->c->arena, &w->n->all, x);
    return x;
}

/* The thing of that name of the region: the one that is there, or a new one. */
static Name *declare(const Walk *w, Region *r, NameKind kind, const char *name, Span span, const Stmt *stmt)
{
    Name *x = name ? map_get(&r->names, name) : NULL;
    if (!name)
        return NULL;
    if (!x) {
        x = new_name(w, kind, name, span, stmt, r);
        map_put(w->n->c->arena, &r->names, name, x);
        vec_push(w->n->c->arena, &r->list, x);
    }
    return x;
}

static void declare_here(const Walk *w, Region *r, NameKind kind, const char *name, Span span,
                         const Stmt *stmt)
{
    add_use(w, span, declare(w, r, kind, name, span, stmt), r)->defines = true;
}

Name *region_find(const Region *r, const char *name, bool indices)
{
    for (; r; r = r->apart ? NULL : r->outer) {
        Name *x = !r->indices || indices ? map_get(&r->names, name) : NULL;
        if (x)
            return x;
    }
    return NULL;
}

static NameKind kind_of(StmtKind k)
{
    switch (k) {
    case S_DIM: return NAME_DIM;
    case S_CONST: return NAME_CONST;
    case S_OPTION: return NAME_OPTION;
    case S_INPUT: return NAME_INPUT;
    case S_PARAM: return NAME_PARAM;
    case S_STATE: return NAME_STATE;
    case S_OUTPUT: return NAME_OUTPUT;
    case S_RESET: return NAME_RESET;
    case S_CARRY: return NAME_CARRY;
    default: return NAME_DEFINITION;
    }
}

/* The choice of that name of an option, which several branches may declare. */
static Name *find_choice(const NameTable *n, const Name *option, const char *name)
{
    for (int i = 0; i < n->all.len; i++)
        if (n->all.data[i]->option == option && n->all.data[i]->name == name)
            return n->all.data[i];
    return NULL;
}

static void declare_choices(const Walk *w, Region *r, const Stmt *s, const Name *option)
{
    for (int i = 0; i < s->choices.len; i++) {
        const char *name = s->choices.data[i];
        Name *x = find_choice(w->n, option, name);
        if (!x && name) {
            x = new_name(w, NAME_CHOICE, name, s->choice_spans.data[i], s, r);
            x->option = option;
        }
        add_use(w, s->choice_spans.data[i], x, r)->defines = true;
    }
}

static void declare_fn(Walk *w, const Stmt *s)
{
    if (!s->name || s->is_const || map_get(&w->n->fns, s->name))
        return;
    Name *x = new_name(w, NAME_FN, s->name, s->name_span, s, NULL);
    map_put(w->n->c->arena, &w->n->fns, s->name, x);
    vec_push(w->n->c->arena, &w->n->fn_list, x);
}

/* Data, dims, constants, options, carries and fns of a body, in all branches; carries of a repeat belong to
 * what is around it. */
static void declare_data(Walk *w, Region *r, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        switch (s->kind) {
        case S_DIM: case S_CONST: case S_OPTION: case S_INPUT: case S_PARAM: case S_STATE: case S_OUTPUT:
        case S_RESET:
            declare_here(w, r, kind_of(s->kind), s->name, s->name_span, s);
            if (s->kind == S_OPTION && s->name)
                declare_choices(w, r, s, map_get(&r->names, s->name));
            break;
        case S_FN: declare_fn(w, s); break;
        case S_WHEN:
            declare_data(w, r, &s->body);
            declare_data(w, r, &s->other);
            break;
        default: break;
        }
    }
}

static void declare_carries(Walk *w, Region *r, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_CARRY)
            declare_here(w, r, NAME_CARRY, s->name, s->name_span, s);
        if (s->kind == S_WHEN) {
            declare_carries(w, r, &s->body);
            declare_carries(w, r, &s->other);
        }
    }
}

/* Is it a carry of the repeat, which is declared around it? */
static bool carried(const Region *r, const char *name)
{
    const Name *x = NULL;
    for (; r && r->repeat && r->outer && !x; r = r->outer)
        x = map_get(&r->outer->names, name);
    return x && x->kind == NAME_CARRY;
}

/* What equations of a body define that is not declared; those in a repeat are its own. */
static void declare_definitions(Walk *w, Region *r, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_REPEAT)
            declare_carries(w, r, &s->body);
        if (s->kind == S_WHEN) {
            declare_definitions(w, r, &s->body);
            declare_definitions(w, r, &s->other);
        }
        if (s->kind == S_EQ && s->name && !s->primed && !carried(r, s->name))
            declare(w, r, NAME_DEFINITION, s->name, s->name_span, s);
    }
}

/* ---- expressions */

static void walk_expr(Walk *w, Region *r, const Expr *e, bool in_brackets);

static void walk_all(Walk *w, Region *r, const ExprVec *list, bool in_brackets)
{
    for (int i = 0; i < list->len; i++)
        walk_expr(w, r, list->data[i], in_brackets);
}

static bool is_plain(const Expr *e)
{
    return e && e->kind == X_REF && !e->brackets && !e->primed && !e->time;
}

static const Name *option_of(const Region *r, const Expr *e)
{
    const Name *x = is_plain(e) ? region_find(r, e->name, false) : NULL;
    return x && x->kind == NAME_OPTION ? x : NULL;
}

static void walk_binary(Walk *w, Region *r, const Expr *e, bool in_brackets)
{
    bool compares = e->op == O_EQ || e->op == O_NE;
    const Name *left = compares ? option_of(r, e->a) : NULL, *right = compares && !left ? option_of(r, e->b)
                       : NULL;
    const Expr *sides[2] = { e->a, e->b };
    for (int k = 0; k < 2; k++) {
        const Name *option = k ? left : right;
        if (option && is_plain(sides[k]))
            add_use(w, sides[k]->name_span, find_choice(w->n, option, sides[k]->name), r);
        else
            walk_expr(w, r, sides[k], in_brackets);
    }
}

static void walk_ref(Walk *w, Region *r, const Expr *e, bool in_brackets)
{
    bool plain = is_plain(e);
    Name *x = region_find(r, e->name, plain);
    bool of_language = strcmp(e->name, "t") == 0 || strcmp(e->name, "T") == 0 || strcmp(e->name, "pi") == 0;
    if (!x && plain && w->implicit && (in_brackets || !w->brackets_only) && !of_language)
        x = declare(w, w->implicit, NAME_INDEX, e->name, e->name_span, NULL);
    add_use(w, e->name_span, x, r)->primed = e->primed;
    walk_all(w, r, &e->args, true);
    walk_expr(w, r, e->time, true);
}

/* The indices of one value of the first argument that nothing binds are bound by the grad. */
static void walk_grad(Walk *w, Region *r, const Expr *e)
{
    Walk inner = *w;
    Region *own = new_region(w, r, e->span);
    own->indices = true;
    if (e->args.len > 1)
        walk_expr(w, r, e->args.data[1], false);
    if (e->held.len) {
        inner.implicit = own;
        inner.brackets_only = true;
    }
    if (e->args.len)
        walk_expr(&inner, own, e->args.data[0], false);
    inner.implicit = w->implicit;
    inner.brackets_only = w->brackets_only;
    walk_all(&inner, own, &e->held, false);
}

static void walk_call(Walk *w, Region *r, const Expr *e)
{
    Name *fn = map_get(&w->n->fns, e->name);
    Use *u = add_use(w, e->name_span, fn, r);
    u->call = true;
    if (!fn && strcmp(e->name, "grad") == 0) {
        walk_grad(w, r, e);
        return;
    }
    walk_all(w, r, &e->args, false);
    if (e->member)
        add_use(w, e->member_span, NULL, r)->picked_of = fn;
    walk_all(w, r, &e->index, true);
    walk_all(w, r, &e->held, false);
}

static void walk_binders(Walk *w, Region *outer, Region *own, const BinderVec *binders)
{
    for (int i = 0; i < binders->len; i++) {
        const Binder *b = &binders->data[i];
        if (b->name)
            declare_here(w, own, NAME_INDEX, b->name, b->span, NULL);
        walk_expr(w, outer, b->range, true);
        walk_expr(w, outer, b->fixed, true);
    }
}

static void walk_reduce(Walk *w, Region *r, const Expr *e, bool in_brackets)
{
    if (e->reduce == R_SOFTMAX) {         /* its indices are bound around it */
        for (int i = 0; i < e->binders.len; i++)
            if (e->binders.data[i].name)
                add_use(w, e->binders.data[i].span, region_find(r, e->binders.data[i].name, true), r);
        walk_expr(w, r, e->a, in_brackets);
        return;
    }
    Region *own = new_region(w, r, e->span);
    own->indices = true;
    walk_binders(w, r, own, &e->binders);
    walk_expr(w, own, e->a, in_brackets);
}

static void walk_expr(Walk *w, Region *r, const Expr *e, bool in_brackets)
{
    if (!e)
        return;
    switch (e->kind) {
    case X_NUM: case X_COLON: case X_ERROR: return;
    case X_REF: walk_ref(w, r, e, in_brackets); return;
    case X_CALL: walk_call(w, r, e); return;
    case X_REDUCE: walk_reduce(w, r, e, in_brackets); return;
    case X_BINARY: walk_binary(w, r, e, in_brackets); return;
    case X_UNARY: case X_COND: break;
    }
    walk_expr(w, r, e->a, in_brackets);
    walk_expr(w, r, e->b, in_brackets);
    walk_expr(w, r, e->c, in_brackets);
}

/* ---- statements */

static void walk_body(Walk *w, Region *r, const StmtVec *body);
static void walk_cell(Walk *w, const Stmt *s);

/* What a state or a carry starts from: names that nothing declares are indices of its axes. */
static void walk_initial(Walk *w, Region *r, const Stmt *s)
{
    Walk inner = *w;
    Region *own = new_region(w, r, s->span);
    own->indices = true;
    walk_binders(w, r, own, &s->lhs);
    inner.implicit = own;
    inner.brackets_only = false;
    walk_expr(&inner, own, s->init, false);
}

static void walk_declaration(Walk *w, Region *r, const Stmt *s)
{
    walk_all(w, r, &s->axes, true);
    if (s->domain) {
        walk_expr(w, r, s->domain->low, false);
        walk_expr(w, r, s->domain->high, false);
    }
    if (s->kind == S_PARAM) {             /* the initialiser is no name of the spec */
        if (s->init)
            walk_all(w, r, &s->init->args, false);
    } else if (s->init || s->lhs.len) {
        walk_initial(w, r, s);
    }
    walk_expr(w, r, s->value, false);
}

static void walk_equation(Walk *w, Region *r, const Stmt *s)
{
    Use *u = add_use(w, s->name_span, s->name ? region_find(r, s->name, false) : NULL, r);
    u->defines = true;
    u->primed = s->primed;
    Region *own = new_region(w, r, s->span);
    own->indices = true;
    walk_binders(w, r, own, &s->lhs);
    walk_expr(w, own, s->value, false);
}

/* Parameters of a fn, and of its adjoint fn, which have the same names. */
static void declare_parameters(Walk *w, Region *r, const Stmt *s, const Name *fn)
{
    for (int i = 0; i < s->params.len; i++) {
        Name *same = s->is_const && fn && fn->region ? map_get(&fn->region->names, s->params.data[i]) : NULL;
        if (same && same->kind == NAME_PARAMETER) {
            map_put(w->n->c->arena, &r->names, same->name, same);
            vec_push(w->n->c->arena, &r->list, same);
        }
        declare_here(w, r, NAME_PARAMETER, s->params.data[i], s->param_spans.data[i], s);
    }
    for (int i = 0; i < s->held.len; i++)
        declare_here(w, r, NAME_COTANGENT, s->held.data[i], s->held_spans.data[i], s);
}

/* What an adjoint fn gives to its parameter u is called d_u. */
static void mark_adjoints(const Walk *w, Region *r, const Stmt *s)
{
    for (int i = 0; s->is_const && i < s->params.len; i++) {
        Name *d = map_get(&r->names, intern_f(w->n->c, "d_%s", s->params.data[i]));
        if (d && d->kind == NAME_DEFINITION)
            d->of = map_get(&r->names, s->params.data[i]);
    }
}

static void walk_fn(Walk *w, Region *r, const Stmt *s)
{
    Name *fn = s->name ? map_get(&w->n->fns, s->name) : NULL;
    const Stmt *before = w->fn;
    Region *own = new_region(w, r, s->span);
    add_use(w, s->name_span, fn, r)->defines = true;
    own->apart = !w->cell;
    w->fn = s;
    declare_parameters(w, own, s, fn);
    if (fn && fn->stmt == s)
        fn->region = own;
    if (s->has_body) {
        declare_definitions(w, own, &s->body);
        mark_adjoints(w, own, s);
        Name *result = map_get(&own->names, s->name);
        if (result && fn && result->kind == NAME_DEFINITION)      /* f inside fn f: both are one thing */
            map_put(w->n->c->arena, &own->names, s->name, fn);
        for (int i = 0; i < s->lhs.len; i++) {    /* a stated shape, whose indices are nothing more */
            walk_expr(w, own, s->lhs.data[i].range, true);
            if (s->lhs.data[i].name)
                add_use(w, s->lhs.data[i].span, NULL, own);
        }
        walk_body(w, own, &s->body);
    } else {
        Region *indices = new_region(w, own, s->span);
        indices->indices = true;
        walk_binders(w, own, indices, &s->lhs);
        walk_expr(w, indices, s->value, false);
    }
    w->fn = before;
}

static void walk_repeat(Walk *w, Region *r, const Stmt *s)
{
    Region *own = new_region(w, r, s->span);
    own->repeat = true;
    if (s->lhs.len) {
        declare_here(w, own, NAME_ITERATION, s->lhs.data[0].name, s->lhs.data[0].span, s);
        walk_expr(w, r, s->lhs.data[0].range, true);
    }
    declare_definitions(w, own, &s->body);
    walk_body(w, own, &s->body);
}

static void walk_body(Walk *w, Region *r, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++)           /* an adjoint fn takes what its fn has */
        if (body->data[i]->kind == S_FN && !body->data[i]->is_const)
            walk_fn(w, r, body->data[i]);
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        switch (s->kind) {
        case S_EQ: walk_equation(w, r, s); break;
        case S_FN:
            if (s->is_const)
                walk_fn(w, r, s);
            break;
        case S_WHEN:
            walk_expr(w, r, s->value, false);
            walk_body(w, r, &s->body);
            walk_body(w, r, &s->other);
            break;
        case S_REPEAT: walk_repeat(w, r, s); break;
        case S_CELL:
            if (s->name && !r && !w->foreign)
                walk_cell(w, s);
            break;
        case S_IMPORT: break;
        default: walk_declaration(w, r, s);
        }
    }
}

/* ---- files */

static void walk_cell(Walk *w, const Stmt *s)
{
    Region *own = new_region(w, NULL, s->span);
    Name *x = new_name(w, NAME_CELL, s->name, s->name_span, s, own);
    add_use(w, s->name_span, x, own)->defines = true;
    w->cell = s;
    declare_data(w, own, &s->body);
    declare_definitions(w, own, &s->body);
    walk_body(w, own, &s->body);
    w->cell = NULL;
}

static bool is_read(const NameTable *n, int file)
{
    for (int i = 0; i < n->asts.len; i++)
        if (n->asts.data[i]->file == file)
            return true;
    return false;
}

static const Ast *read_import(const Walk *w, int from, const Stmt *s)
{
    const char *path = import_refused(s->text) || w->n->asts.len >= MAX_FILES ? NULL
                       : import_find(w->n->c, from, s->text);
    if (!path)
        return NULL;
    for (int i = 0; i < w->n->c->sources.len; i++)
        if (strcmp(w->n->c->sources.data[i].path, path) == 0 && is_read(w->n, i))
            return NULL;
    int file = source_import(w->n->c, path, s->text_span);
    return file < 0 ? NULL : parse_source(w->n->c, file);
}

static void walk_file(Walk *w, const Ast *ast)
{
    vec_push(w->n->c->arena, &w->n->asts, ast);
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *s = ast->items.data[i];
        const Ast *other = s->kind == S_IMPORT && s->text ? read_import(w, ast->file, s) : NULL;
        bool before = w->foreign;
        if (other) {
            w->foreign = true;
            walk_file(w, other);
            w->foreign = before;
        }
    }
    for (int i = 0; i < ast->items.len; i++)
        if (ast->items.data[i]->kind == S_FN)
            declare_fn(w, ast->items.data[i]);
    walk_body(w, NULL, &ast->items);
}

static void find_picked(const NameTable *n)
{
    const char *text = n->c->sources.data[n->file].text;
    for (int i = 0; i < n->uses.len; i++) {
        Use *u = &n->uses.data[i];
        if (u->picked_of && u->picked_of->region)
            u->name = map_get(&u->picked_of->region->names, intern_n(n->c, text + u->span.lo,
                                                                     u->span.hi - u->span.lo));
    }
}

static int by_place(const void *a, const void *b)
{
    const Use *x = a, *y = b;
    return x->span.lo < y->span.lo ? -1 : x->span.lo > y->span.lo;
}

NameTable *names_of(Compiler *c, const Ast *ast)
{
    NameTable *n = arena_alloc(c->arena, sizeof *n);
    Walk w = { .n = n };
    n->c = c;
    n->file = ast->file;
    walk_file(&w, ast);
    find_picked(n);
    if (n->uses.len)
        qsort(n->uses.data, (size_t)n->uses.len, sizeof *n->uses.data, by_place);
    return n;
}

const Use *names_at(const NameTable *n, uint32_t offset)
{
    const Use *before = NULL;
    for (int i = 0; i < n->uses.len; i++) {
        const Use *u = &n->uses.data[i];
        if (u->span.lo <= offset && offset < u->span.hi)
            return u;
        if (u->span.hi == offset)
            before = u;
    }
    return before;
}

Region *region_at(const NameTable *n, uint32_t offset)
{
    Region *found = NULL;
    for (int i = 0; i < n->regions.len; i++) {
        Region *r = n->regions.data[i];
        bool inside = r->span.lo <= offset && offset <= r->span.hi;
        if (inside && (!found || r->span.hi - r->span.lo <= found->span.hi - found->span.lo))
            found = r;
    }
    return found;
}

const char *name_kind_words(const Name *n)
{
    switch (n->kind) {
    case NAME_CELL: return "a cell";
    case NAME_DIM: return "a dim";
    case NAME_CONST: return "a constant";
    case NAME_OPTION: return "an option";
    case NAME_CHOICE: return "a choice of an option";
    case NAME_INPUT: return n->stmt && n->stmt->is_const ? "an input without a gradient" : "an input";
    case NAME_PARAM: return n->stmt && n->stmt->is_const ? "a param without a gradient" : "a param";
    case NAME_STATE: return "a state";
    case NAME_OUTPUT: return "an output";
    case NAME_RESET: return "a reset";
    case NAME_DEFINITION: return "a definition";
    case NAME_CARRY: return "a carry of a repeat";
    case NAME_FN: return "a fn";
    case NAME_PARAMETER: return "a parameter";
    case NAME_COTANGENT: return "the gradient that arrives at the result";
    case NAME_INDEX: return "an index";
    case NAME_ITERATION: return "the index of a repeat";
    }
    return "a name";
}
