/* eval.c: compiles a cell's AST, as parsed, for the evaluator. What comes in is the AST with imports,
 * options, `when`, `fn` and `repeat` still in it, and the sizes; what goes out is a program (eval_code.h) in
 * which every name is an array or a register and every size a number. A cell that the front end accepted
 * always compiles; a broken one gets diagnostics, never a crash. */
#include "base/texts.h"
#include "eval_scope.h"
#include "front/front.h"

#include <math.h>
#include <string.h>

/* The array that an equation defines: a state's next value, an output, or a definition made by its first
 * equation. */
Array *ev_add_definition(EvalProgram *p, Scope *s, const Stmt *e)
{
    Symbol *y = ev_find_here(s, NS_VALUE, e->name);
    Array *a = y && y->kind == SY_VALUE ? (e->primed ? y->next : y->now) : NULL;
    if (!y && !e->primed) {
        a = ev_array_new(p, s, e->name, e->name_span, e->lhs.len);
        ev_declare(p, s, SY_VALUE, e->name, e)->now = a;
    }
    if (!a || a->is_data || a->rank != e->lhs.len) {
        diag(p->c, DIAG_ERROR, e->name_span, "%s cannot be given a value here", e->name);
        return NULL;
    }
    Equation q = {.stmt = e, .rank = e->lhs.len};
    if (a->equations.len == 0)
        vec_push(p->arena, &s->arrays, a);
    vec_push(p->arena, &a->equations, q);
    return a;
}

/* Free names of an initial value stand for its axes, those of what a grad holds are summed over. */
static void free_names(Scope *s, const Expr *x, bool is_place, int max, const char **names, int *n)
{
    if (!x)
        return;
    if (x->kind == X_REF && !x->brackets && !x->primed && !ev_find(s, x) && strcmp(x->name, "t") != 0) {
        if (!is_place && strcmp(x->name, "pi") == 0)
            return;
        for (int i = 0; i < *n; i++)
            if (names[i] == x->name)
                return;
        if (*n < max)
            names[(*n)++] = x->name;
        return;
    }
    int bound = *n;
    for (int i = 0; i < x->args.len; i++)
        free_names(s, x->args.data[i], is_place || x->kind == X_REF, max, names, n);
    for (int i = 0; i < x->index.len; i++)
        free_names(s, x->index.data[i], true, max, names, n);
    for (int i = 0; i < x->held.len; i++)
        free_names(s, x->held.data[i], is_place, max, names, n);
    is_place = is_place && x->kind != X_REDUCE;
    free_names(s, x->a, is_place, max, names, n);
    free_names(s, x->b, is_place, max, names, n);
    free_names(s, x->c, is_place, max, names, n);
    for (int i = 0; x->kind == X_REDUCE && i < x->binders.len; i++)
        for (int k = bound; k < *n; k++)
            if (names[k] == x->binders.data[i].name) {
                memmove(names + k, names + k + 1, sizeof *names * (size_t)(*n - k - 1));
                (*n)--;
                break;
            }
}

void ev_free_names(Scope *s, const Expr *x, int max, const char **names, int *n)
{
    free_names(s, x, false, max, names, n);
}

/* The array of a state's or an iterate's initial value. */
static Array *initial_value(EvalProgram *p, Scope *s, const Stmt *d)
{
    Array *a = ev_array_declared(p, s, d, d->name);
    Equation q = {.stmt = d, .rank = a->rank};
    if (!d->init)
        diag(p->c, DIAG_ERROR, d->span, "%s has no initial value", d->name);
    else
        vec_push(p->arena, &a->equations, q);
    vec_push(p->arena, &s->arrays, a);
    return a;
}

static void compile_initial(EvalProgram *p, Array *a, Equation *q)
{
    const char *names[EVAL_MAX_RANK];
    int n = 0;
    for (; n < q->stmt->lhs.len && n < EVAL_MAX_RANK; n++)
        names[n] = q->stmt->lhs.data[n].name;
    if (n == 0)
        ev_free_names(a->scope, q->stmt->init, EVAL_MAX_RANK, names, &n);
    Scope *inside = ev_scope_inside(p, a->scope);
    q->reg = arena_alloc(p->arena, sizeof *q->reg * (size_t)(a->rank + 1));
    for (int i = 0; i < a->rank; i++)
        q->reg[i] = i < n ? ev_declare_index(p, inside, names[i], a->shape[i], a->of_steps[i])->reg
                          : ev_new_register(p);
    q->value = ev_compile_expr(p, inside, ast_initial(p->c, q->stmt->init));
}

static void compile_equation(EvalProgram *p, Array *a, Equation *q)
{
    const Stmt *e = q->stmt;
    Scope *inside = ev_scope_inside(p, a->scope);
    q->reg = arena_alloc(p->arena, sizeof *q->reg * (size_t)(q->rank + 1));
    q->fixed = arena_alloc(p->arena, sizeof *q->fixed * (size_t)(q->rank + 1));
    for (int i = 0; i < q->rank; i++) {
        const Binder *b = &e->lhs.data[i];
        int64_t extent = a->shape[i];
        q->reg[i] = -1;
        if (b->fixed &&
            (!ev_const_size(p, a->scope, b->fixed, &q->fixed[i]) || q->fixed[i] < 0 || q->fixed[i] >= extent))
            diag(p->c, DIAG_ERROR, b->span, "this index is out of range");
        else if (b->range && (!ev_range(p, a->scope, b->range, &extent) || extent != a->shape[i]))
            diag(p->c, DIAG_ERROR, b->span, "this range is not that of the axis");
        else if (!b->fixed)
            q->reg[i] = ev_declare_index(p, inside, b->name, a->shape[i], a->of_steps[i])->reg;
    }
    q->value = ev_compile_expr(p, inside, e->value);
}

static void compile_unit(EvalProgram *p, Scope *s);

static void compile_array(EvalProgram *p, Array *a)
{
    if (a->compiled || !ev_shape_of(p, a))
        return;
    a->compiled = true;
    for (int i = 0; i < a->equations.len && p->nodes <= MAX_NODES; i++) {
        Equation *q = &a->equations.data[i];
        if (q->stmt->kind == S_STATE || q->stmt->kind == S_CARRY)
            compile_initial(p, a, q);
        else
            compile_equation(p, a, q);
    }
}

/* Compiles all equations of a unit, then those of the fn instances that they call. */
static void compile_unit(EvalProgram *p, Scope *s)
{
    for (int i = 0; i < s->inner.len; i++)    /* in order: each iteration has its types from the one before */
        for (int k = 0; k < s->inner.data[i]->arrays.len; k++)
            ev_complex_of(p, s->inner.data[i]->arrays.data[k]);
    for (int i = 0; i < s->arrays.len; i++)
        compile_array(p, s->arrays.data[i]);
    for (int i = 0; i < s->inner.len; i++)
        compile_unit(p, s->inner.data[i]);
    for (int i = 0; i < s->instances.len; i++)
        compile_unit(p, s->instances.data[i]->scope);
}

/* One iteration of a repeat: the carried values are those of the iteration before, and n is a number. */
static void add_iteration(EvalProgram *p, Scope *s, const Stmt *st, int64_t n, Array **carried)
{
    Scope *inside = ev_scope_new(p, s, s->frame);
    Symbol *number = ev_declare(p, inside, SY_CONST, st->lhs.data[0].name, st);
    number->known = true;
    number->num = (double)n;
    int k = 0;
    for (int i = 0; i < st->body.len; i++) {
        const Stmt *d = st->body.data[i];
        if (d->kind != S_CARRY)
            continue;
        Symbol *y = ev_declare(p, inside, SY_VALUE, d->name, d);
        y->now = carried[k];
        y->next = ev_array_declared(p, inside, d, d->name);
        y->next->before = y->now;
        y->now->after = y->next;
        carried[k++] = y->next;
    }
    vec_push(p->arena, &s->inner, inside);
    ev_add_equations(p, inside, &st->body);
}

/* A repeat block: after it, the name of a carried value is the value after the last iteration. */
static void add_repeat(EvalProgram *p, Scope *s, const Stmt *st)
{
    int64_t steps;
    if (st->lhs.len != 1 || !st->lhs.data[0].range || !ev_const_size(p, s, st->lhs.data[0].range, &steps) ||
        steps < 0 || steps > MAX_STEPS) {
        diag(p->c, DIAG_ERROR, st->span, "the number of iterations is not a number from 0 to %d", MAX_STEPS);
        return;
    }
    Array **carried = arena_alloc(p->arena, sizeof *carried * (size_t)(st->body.len + 1));
    int k = 0;
    for (int i = 0; i < st->body.len; i++)
        if (st->body.data[i]->kind == S_CARRY)
            carried[k++] = initial_value(p, s, st->body.data[i]);
    for (int64_t n = 0; n < steps && p->nodes <= MAX_NODES; n++)
        add_iteration(p, s, st, n, carried);
    k = 0;
    for (int i = 0; i < st->body.len; i++)
        if (st->body.data[i]->kind == S_CARRY)
            ev_declare(p, s, SY_VALUE, st->body.data[i]->name, st->body.data[i])->now = carried[k++];
}

static void add_statement(EvalProgram *p, Scope *s, const Stmt *st)
{
    switch (st->kind) {
    case S_EQ:
        ev_add_definition(p, s, st);
        break;
    case S_REPEAT:
        add_repeat(p, s, st);
        break;
    case S_WHEN:
        ev_add_equations(p, s, ev_holds(p, s, st->value) ? &st->body : &st->other);
        break;
    default:
        break;
    }
}

void ev_add_equations(EvalProgram *p, Scope *s, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++)
        add_statement(p, s, body->data[i]);
}

static void add_fn(EvalProgram *p, Scope *s, const Stmt *st)
{
    if (!st->is_const) /* an adjoint fn is a promise about a derivative: the evaluator takes its own */
        ev_declare(p, s, SY_FN, st->name, st)->home = s;
}

/* Dims, constants, options and fns first: conditions may use them wherever they stand. */
static void declare_names(EvalProgram *p, Scope *s, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *st = body->data[i];
        if (st->kind == S_DIM)
            ev_declare(p, s, SY_DIM, st->name, st);
        else if (st->kind == S_CONST)
            ev_declare(p, s, SY_CONST, st->name, st);
        else if (st->kind == S_OPTION)
            ev_declare(p, s, SY_OPTION, st->name, st);
        else if (st->kind == S_FN)
            add_fn(p, s, st);
    }
}

EvalTensor *ev_add_tensor(EvalProgram *p, EvalKind kind, const char *name, const Array *a,
                              const Stmt *decl)
{
    Eval *e = p->e;
    size_t old = sizeof *e->tensors * (size_t)e->ntensors;
    e->tensors = arena_grow(p->arena, e->tensors, old, old + sizeof *e->tensors);
    EvalTensor *t = &e->tensors[e->ntensors++];
    memset(t, 0, sizeof *t);
    t->name = name;
    t->kind = kind;
    t->rank = a->rank;
    memcpy(t->shape, a->shape, sizeof *a->shape * (size_t)a->rank);
    if (a->complex)
        t->shape[t->rank++] = 2;
    t->count = a->count;
    t->decl = decl;
    if (decl) {
        t->is_int = decl->text && strcmp(decl->text, "i32") == 0;
        t->no_grad = decl->is_const || t->is_int || decl->kind == S_RESET;
        t->has_init = kind == EV_STATE && decl->init;
    }
    return t;
}

/* What the spec says a param starts from, as far as it is one number. */
static double initial_centre(EvalProgram *p, Scope *s, const Stmt *d)
{
    const Expr *x = d->init;
    if (!x || !x->name)
        return 0;
    if (strcmp(x->name, "const") == 0 && x->args.len == 1) {
        double v = ev_number(p, s, x->args.data[0]);
        return isfinite(v) ? v : 0;
    }
    return strcmp(x->name, "ones") == 0;
}

static void take_domain(EvalProgram *p, Scope *s, EvalTensor *t)
{
    const Domain *d = t->decl->domain;
    if (!d)
        return;
    p->has_domains = true;
    t->reach = d->reach;
    t->has_range = !d->reach;
    if (!d->reach)
        t->range = (Range){ev_number(p, s, d->low), ev_number(p, s, d->high), d->above, d->below};
}

static void declare_tensor(EvalProgram *p, Scope *s, const Stmt *st)
{
    int tensor = p->e->ntensors;
    Array *a = ev_array_declared(p, s, st, st->name);
    Symbol *y = ev_declare(p, s, SY_VALUE, st->name, st);
    TensorSlot slot = {a, tensor};
    y->now = a;
    a->is_data = st->kind != S_OUTPUT;
    switch (st->kind) {
    case S_RESET:
        vec_push(p->arena, &p->resets, a);
        /* fall through */
    case S_INPUT:
        a->tensor = tensor;
        ev_add_tensor(p, EV_INPUT, st->name, a, st);
        vec_push(p->arena, &p->inputs, slot);
        break;
    case S_PARAM:
        ev_add_tensor(p, EV_PARAM, st->name, a, st)->centre = initial_centre(p, s, st);
        vec_push(p->arena, &p->params, slot);
        break;
    case S_STATE: {
        y->next = ev_array_declared(p, s, st, st->name);
        ev_add_tensor(p, EV_STATE, st->name, a, st);
        StateSlot state = {a, y->next, NULL, tensor};
        vec_push(p->arena, &p->states, state);
        break;
    }
    default:
        ev_add_tensor(p, EV_OUTPUT, st->name, a, st);
        vec_push(p->arena, &p->outputs, slot);
        break;
    }
    take_domain(p, s, &p->e->tensors[tensor]);
    int block = st->kind == S_INPUT || st->kind == S_PARAM ? fp8_block(ast_type(p->c, st)) : -1;
    if (block < 0)
        return;
    p->e->tensors[tensor].scale = p->e->ntensors;
    p->e->tensors[tensor].block = block;
    declare_tensor(p, s, ast_scales(p->c, st));
}

/* Declarations of the branches that are taken; before the equations, which may stand above them. */
static void declare_tensors(EvalProgram *p, Scope *s, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *st = body->data[i];
        if (st->kind >= S_INPUT && st->kind <= S_RESET)
            declare_tensor(p, s, st);
        else if (st->kind == S_WHEN)
            declare_tensors(p, s, ev_holds(p, s, st->value) ? &st->body : &st->other);
    }
}

/* Those of the branches too: a dim may stand in one. */
static void declare_all_names(EvalProgram *p, Scope *s, const StmtVec *body)
{
    declare_names(p, s, body);
    for (int i = 0; i < body->len; i++) {
        const Stmt *st = body->data[i];
        if (st->kind == S_WHEN)
            declare_all_names(p, s, ev_holds(p, s, st->value) ? &st->body : &st->other);
    }
}

static void give_sizes(EvalProgram *p, const EvalSize *sizes, int nsizes)
{
    EvalSize *given = arena_alloc(p->arena, sizeof *given * (size_t)(nsizes + 1));
    for (int i = 0; i < nsizes; i++) {
        given[i] = sizes[i];
        if (strcmp(sizes[i].name, "history") == 0)
            p->room = sizes[i].value;
    }
    p->e->dims = given;           /* what dim_given looks at */
    p->e->ndims = nsizes;
}

/* From what was given to what the cell has. */
static void list_dims(EvalProgram *p, Scope *s)
{
    Eval *e = p->e;
    int n = 0;
    for (Symbol *y = s->symbols; y; y = y->older)
        n += y->kind == SY_DIM;
    EvalSize *all = arena_alloc(p->arena, sizeof *all * (size_t)(n + 1));
    int k = n;
    for (Symbol *y = s->symbols; y; y = y->older)
        if (y->kind == SY_DIM && ev_dim_size(p, s, y, &all[--k].value))
            all[k].name = y->name;
    e->dims = all;
    e->ndims = n;
}

/* How many steps histories have room for that grow is a size of the call as well. */
static void list_room(EvalProgram *p)
{
    Eval *e = p->e;
    EvalSize *all = arena_alloc(p->arena, sizeof *all * (size_t)(e->ndims + 2));
    memcpy(all, e->dims, sizeof *all * (size_t)e->ndims);
    all[e->ndims] = (EvalSize){"history", p->room};
    e->dims = all;
    e->ndims += p->has_room;
}

/* Files that were imported, so that a cycle of imports ends. */
typedef struct Imports { const char **paths; int n; Arena *arena; } Imports;

typedef enum { BESIDE, OF_USER, OF_LIBRARY, IMPORT_PLACES } ImportPlace;

static const char *import_path(EvalProgram *p, const Ast *from, const char *name, ImportPlace place)
{
    const char *dir = place == OF_USER ? p->c->import_dir : p->c->library_dir;
    if (place != BESIDE)
        return dir ? intern_f(p->c, "%s/%s", dir, name) : NULL;
    const char *own = p->c->sources.data[from->file].path, *slash = own ? strrchr(own, '/') : NULL;
    return slash ? intern_f(p->c, "%.*s/%s", (int)(slash - own), own, name) : name;
}

static const char *import_place(EvalProgram *p, const Ast *from, const Stmt *st)
{
    for (ImportPlace place = BESIDE; place < IMPORT_PLACES; place++) {
        const char *path = import_path(p, from, st->text, place);
        if (path && text_is_there(p->c, path))
            return text_first(p->c, path);
    }
    diag(p->c, DIAG_ERROR, st->span, "cannot open the import %s", st->text);
    return NULL;
}

static void declare_file(EvalProgram *p, Scope *file, const Ast *ast, Imports *seen);

static void add_import(EvalProgram *p, Scope *to, const Ast *from, const Stmt *st, Imports *seen)
{
    const char *refused = import_refused(st->text);
    if (refused)
        diag(p->c, DIAG_ERROR, st->span, "%s", refused);
    const char *path = refused ? NULL : import_place(p, from, st);
    for (int i = 0; path && i < seen->n; i++)
        if (strcmp(seen->paths[i], path) == 0)
            return;
    if (seen->n == 64 || !path)
        return;
    seen->paths[seen->n++] = path;
    int file = source_import(p->c, path, st->text_span);
    if (file >= 0)
        declare_file(p, to, parse_source(p->c, file), seen);
}

/* The fns of a file and of what it imports, all in one scope: a fn outside a cell sees these and its
 * arguments. */
static void declare_file(EvalProgram *p, Scope *file, const Ast *ast, Imports *seen)
{
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *st = ast->items.data[i];
        if (st->kind == S_IMPORT)
            add_import(p, file, ast, st, seen);
        else if (st->kind == S_FN)
            add_fn(p, file, st);
    }
}

static void compile_cell(EvalProgram *p, Scope *s)
{
    for (int i = 0; i < p->states.len; i++) {
        StateSlot *st = &p->states.data[i];
        const Stmt *d = p->e->tensors[st->tensor].decl;
        st->init = d->init ? initial_value(p, s, d) : NULL;
        if (st->next->equations.len == 0)
            diag(p->c, DIAG_ERROR, d->name_span, "the state %s has no next value", d->name);
    }
    for (int i = 0; i < p->outputs.len; i++)
        if (p->outputs.data[i].array->equations.len == 0)
            diag(p->c, DIAG_ERROR, p->outputs.data[i].array->span, "the output %s has no value",
                 p->outputs.data[i].array->name);
    compile_unit(p, s);
}

static void add_lengths(EvalProgram *p)
{
    const Array number = {.rank = 0, .count = 1};
    p->lengths = p->e->ntensors;
    EvalTensor *t = ev_add_tensor(p, EV_INPUT, intern(p->c, "lengths"), &number, NULL);
    t->no_grad = t->is_int = t->lengths = true;
}

static Eval *compile(Compiler *c, const Ast *ast, const char *cell, const EvalSize *sizes, int nsizes,
                     int64_t steps)
{
    int errors = c->errors;
    Eval *e = arena_alloc(c->arena, sizeof *e);
    EvalProgram *p = arena_alloc(c->arena, sizeof *p);
    e->c = p->c = c;
    p->arena = p->nest.arena = c->arena;
    e->program = p;
    p->e = e;
    p->ast = ast;
    p->extent_T = steps;
    p->room = EVAL_ROOM;
    const Stmt *st = ast_cell(c, ast, cell, true);
    if (!st)
        return NULL;
    e->cell = st->name;
    const char *paths[64];
    Imports seen = {paths, 0, c->arena};
    Scope *file = ev_scope_new(p, NULL, &p->frame);
    declare_file(p, file, ast, &seen);
    Scope *s = p->cell_scope = ev_scope_new(p, file, &p->frame);
    give_sizes(p, sizes, nsizes);
    declare_all_names(p, s, &st->body);
    list_dims(p, s);
    if (c->errors == errors) {
        declare_tensors(p, s, &st->body);
        ev_add_equations(p, s, &st->body);
        p->lengths = -1;
        if (c->lengths)
            add_lengths(p);
        compile_cell(p, s);
        ev_add_histories(p);
        list_room(p);
    }
    return c->errors == errors ? e : NULL;
}

Eval *eval_new(Compiler *c, const Ast *ast, const char *cell, const EvalSize *sizes, int nsizes)
{
    return compile(c, ast, cell, sizes, nsizes, 0);
}

/* Shapes with T in them are those of one number of steps: for another one the cell is compiled again. What is
 * bound to tensors stays. */
bool eval_for_steps(Eval *e, int64_t steps)
{
    EvalProgram *old = e->program;
    steps = steps ? steps : 1;
    if (old->extent_T == 0 || old->extent_T == steps)
        return true;
    Eval *again = compile(e->c, old->ast, e->cell, e->dims, e->ndims, steps);
    if (!again)
        return false;
    for (int i = 0; i < e->ntensors; i++)
        if (e->tensors[i].kind == EV_WATCH && eval_watch(again, e->tensors[i].name) != i)
            return false;
    for (int i = 0; i < e->ntensors; i++) {
        memcpy(e->tensors[i].shape, again->tensors[i].shape, sizeof e->tensors[i].shape);
        e->tensors[i].count = again->tensors[i].count;
    }
    e->program = again->program;
    e->program->e = e;
    return true;
}

EvalTensor *eval_find(Eval *e, const char *name)
{
    for (int i = 0; i < e->ntensors; i++)
        if (strcmp(e->tensors[i].name, name) == 0)
            return &e->tensors[i];
    return NULL;
}

int eval_watch(Eval *e, const char *name)
{
    EvalProgram *p = e->program;
    size_t n = strlen(name);
    bool primed = n && name[n - 1] == '\'';
    Symbol *y = ev_find_here(p->cell_scope, NS_VALUE, intern_n(e->c, name, primed ? n - 1 : n));
    Array *a = !y || y->kind != SY_VALUE ? NULL : primed ? y->next : y->now;
    if (!a)
        return -1;
    TensorSlot slot = {a, e->ntensors};
    ev_add_tensor(p, EV_WATCH, intern(e->c, name), a, NULL);
    vec_push(p->arena, &p->watches, slot);
    return slot.tensor;
}

static void outline_option(Compiler *c, EvalOption *o, const Stmt *st)
{
    o->name = st->name;
    o->nchoices = st->choices.len;
    o->choices = arena_alloc(c->arena, sizeof *o->choices * (size_t)(st->choices.len + 1));
    for (int i = 0; i < st->choices.len; i++)
        o->choices[i] = st->choices.data[i];
}

static int statements(const StmtVec *body)
{
    int n = body->len;
    for (int i = 0; i < body->len; i++)
        if (body->data[i]->kind == S_WHEN)
            n += statements(&body->data[i]->body) + statements(&body->data[i]->other);
    return n;
}

static bool listed(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool dim_bound(const Compiler *c, const Stmt *dim)
{
    for (int k = 0; k < c->dims.len; k++)
        if (strcmp(c->dims.data[k].name, dim->name) == 0)
            return true;
    return dim->value != NULL;
}

/* Dims of a `when` without a size are listed whatever its condition says, since a size that no dim of the
 * variant takes does no harm; those with one keep it. */
static void outline_dims(Compiler *c, const StmtVec *body, bool inside, EvalOutline *out)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *d = body->data[i];
        if (d->kind == S_WHEN) {
            outline_dims(c, &d->body, true, out);
            outline_dims(c, &d->other, true, out);
        }
        bool bound = d->kind == S_DIM && dim_bound(c, d);
        if (d->kind != S_DIM || (inside && bound) || listed(out->all_dims, out->nall, d->name))
            continue;
        out->all_dims[out->nall++] = d->name;
        if (!bound)
            out->open_dims[out->nopen++] = d->name;
    }
}

bool eval_outline(Compiler *c, const Ast *ast, const char *cell, EvalOutline *out)
{
    const Stmt *st = ast_cell(c, ast, cell, false);
    *out = (EvalOutline){0};
    if (!st)
        return false;
    size_t n = (size_t)statements(&st->body) + 1;
    out->cell = st->name;
    out->open_dims = arena_alloc(c->arena, sizeof *out->open_dims * n);
    out->all_dims = arena_alloc(c->arena, sizeof *out->all_dims * n);
    out->options = arena_alloc(c->arena, sizeof *out->options * n);
    for (int i = 0; i < st->body.len; i++)
        if (st->body.data[i]->kind == S_OPTION)
            outline_option(c, &out->options[out->noptions++], st->body.data[i]);
    outline_dims(c, &st->body, false, out);
    return true;
}
