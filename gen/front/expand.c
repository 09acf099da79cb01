/* expand.c: AST -> flat cell. In come the files' ASTs and the settings of the command line; out goes a Flat:
 * every declaration and equation that is left when imports are read, options chosen, `when` decided and
 * `repeat` unrolled, with names bound and calls of `fn` expanded (bind.c), in an order in which each value
 * stands after what it needs. Nothing conditional is left. Broken parts are diagnosed and left out. */
#include <string.h>

#include "base/texts.h"
#include "bind.h"
#include "flat.h"
#include "ir/ops.h"
#include "words.h"

enum { MAX_STEPS = 4096, MAX_IMPORTS = 64 };

/* ---- `when` ---- */

typedef Vec(const Stmt *) Live;

static bool only_in_a_cell(Flat *f, const Scope *scope, const Stmt *s, const char *what,
                           const CallSite *chain)
{
    if (scope == f->scope)
        return true;
    FLAT_ERROR(f, chain, s->span, "%s cannot stand in a %s: declare it in the cell", what,
               scope->owner ? "fn" : "repeat");
    return false;
}

/* The statements that are left, in order; dims, constants and options are declared on the way, so that
 * conditions further down can use them. */
static void flatten(Flat *f, const StmtVec *body, Scope *scope, const CallSite *chain, Live *live)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_DIM && only_in_a_cell(f, scope, s, "a dim", chain))
            declare_dim(f, scope, s, chain);
        else if (s->kind == S_CONST)
            declare_const(f, scope, s, chain);
        else if (s->kind == S_OPTION && only_in_a_cell(f, scope, s, "an option", chain))
            declare_option(f, scope, s, chain);
    }
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        bool taken;
        if (s->kind == S_WHEN) {
            if (s->value && fold_condition(f, s->value, scope, chain, &taken)) {
                *(taken ? &body->data[i]->took_body : &body->data[i]->took_other) = true;
                flatten(f, taken ? &s->body : &s->other, scope, chain, live);
            } else {
                f->lost = true;
            }
        } else if (s->kind != S_DIM && s->kind != S_CONST && s->kind != S_OPTION) {
            vec_push(f->c->arena, live, s);
        }
    }
}

/* ---- functions ---- */

static void declare_adjoint(Flat *f, const Stmt *s, Scope *scope, bool imported)
{
    FnDef *old = map_get(&f->adjoints, s->name);
    if (old) {
        FLAT_ERROR(f, NULL, s->name_span, "fn '%s' has an adjoint already", s->name);
        FLAT_NOTE(f, old->fn->name_span, "it is defined here");
        return;
    }
    FnDef *def = arena_alloc(f->c->arena, sizeof *def);
    *def = (FnDef){ s, scope, imported };
    map_put(f->c->arena, &f->adjoints, s->name, def);
    vec_push(f->c->arena, &f->adjoint_list, def);
}

/* An adjoint fn stands beside its fn and has the same parameters, then one for the cotangent of the result. */
static void check_adjoint(Flat *f, const FnDef *a)
{
    const Stmt *s = a->fn;
    const FnDef *def = map_get(&f->fns, s->name);
    bool same = def && def->fn->params.len == s->params.len;
    for (int i = 0; same && i < s->params.len; i++)
        same = def->fn->params.data[i] == s->params.data[i];
    map_put(f->c->arena, &f->adjoints, s->name, NULL);      /* until all is well */
    if (!def) {
        const char *near = suggest(s->name, f->fn_names.data, f->fn_names.len);
        FLAT_ERROR(f, NULL, s->name_span, near ? "there is no fn '%s'; did you mean '%s'?" : "there is no fn '%s'",
                   s->name, near);
        diag_fix(f->c, s->name_span, near);
        return;
    }
    if (def->scope != a->scope || def->imported != a->imported)
        FLAT_ERROR(f, NULL, s->name_span, "an adjoint fn stands beside its fn");
    else if (!same)
        FLAT_ERROR(f, NULL, s->name_span, "the adjoint of fn '%s' has other parameters before the ';' than the fn",
                   s->name);
    else if (s->held.len != 1)
        FLAT_ERROR(f, NULL, s->name_span,
                   "the adjoint of fn '%s' takes one cotangent behind the ';', that of the result, but %d are given",
                   s->name, s->held.len);
    else if (!s->has_body && s->params.len != 1)
        FLAT_ERROR(f, NULL, s->name_span,
                   "fn '%s' has %d parameters: the block of its adjoint defines 'd_%s' and so on", s->name,
                   s->params.len, s->params.len ? s->params.data[0] : "");
    else if (s->has_body && s->brackets)
        FLAT_ERROR(f, NULL, s->name_span, "the indices of an adjoint stand where its block defines it: d_%s[...]",
                   s->params.len ? s->params.data[0] : "u");
    else {
        map_put(f->c->arena, &f->adjoints, s->name, (void *)(uintptr_t)a);
        return;
    }
    FLAT_NOTE(f, def->fn->name_span, "fn '%s' is defined here", s->name);
}

static void declare_fn(Flat *f, const Stmt *s, Scope *scope, bool imported)
{
    FnDef *old = map_get(&f->fns, s->name), *def;
    int op = op_find(s->name);
    bool builtin = (op >= 0 && op_table[op].in_language && !op_gives_way((Op)op)) ||
                   complex_find(s->name) >= 0 || strcmp(s->name, "div") == 0 || strcmp(s->name, "mod") == 0 ||
                   strcmp(s->name, "grad") == 0;
    if (s->is_const) {
        declare_adjoint(f, s, scope, imported);
        return;
    }
    if (builtin) {
        FLAT_ERROR(f, NULL, s->name_span, "'%s' is a function of the language", s->name);
        return;
    }
    if (old) {
        FLAT_ERROR(f, NULL, s->name_span, "fn '%s' is already defined", s->name);
        FLAT_NOTE(f, old->fn->name_span, "it is defined here");
        return;
    }
    for (int i = 1; i < s->params.len; i++)
        for (int k = 0; k < i; k++)
            if (s->params.data[i] == s->params.data[k])
                FLAT_ERROR(f, NULL, s->param_spans.len > i ? s->param_spans.data[i] : s->span,
                           "parameter '%s' of fn '%s' stands twice", s->params.data[i], s->name);
    def = arena_alloc(f->c->arena, sizeof *def);
    *def = (FnDef){ s, scope, imported };
    map_put(f->c->arena, &f->fns, s->name, def);
    vec_push(f->c->arena, &f->fn_names, s->name);
}

/* ---- equations ---- */

void add_equation(Flat *f, Symbol *target, const Stmt *s, const Expr *body, Scope *scope,
                  const CallSite *chain)
{
    Equation *e = arena_alloc(f->c->arena, sizeof *e);
    e->target = target;
    e->stmt = s;
    e->body = body;
    e->scope = scope;
    e->chain = chain;
    f->nodes++;
    vec_push(f->c->arena, &target->equations, e);
}

static bool target_is_wrong(Flat *f, const Stmt *s, const Symbol *t, const CallSite *chain)
{
    if (s->primed) {
        if (t->next)
            return false;
        FLAT_ERROR(f, chain, s->name_span, "'%s' is %s: only a state or a carry has a next value", s->name,
                   kind_name(t->kind));
        FLAT_NOTE(f, t->span, "'%s' is declared here", s->name);
        return true;
    }
    if (t->kind == SYM_OUTPUT || (t->kind == SYM_DEF && !t->next && !t->declared))
        return false;
    if (t->next) {
        FLAT_ERROR(f, chain, s->name_span, "'%s' is a %s: give its next value, %s'", s->name,
                   t->kind == SYM_STATE ? "state" : "carry", s->name);
        t->next->failed = true;
    } else {
        FLAT_ERROR(f, chain, s->name_span, "'%s' is %s and cannot be assigned", s->name, kind_name(t->kind));
    }
    FLAT_NOTE(f, t->span, "'%s' is declared here", s->name);
    return true;
}

static bool has_constant_index(const Stmt *s)
{
    for (int i = 0; i < s->lhs.len; i++)
        if (s->lhs.data[i].fixed)
            return true;
    return false;
}

static void wrong_definition_type(Flat *f, const Stmt *s, const CallSite *chain)
{
    static const char *const right = "dtype";
    if (is_tensor_type(s->text))
        FLAT_ERROR(f, chain, s->text_span, "a definition is stored as --dtype says, ': dtype', or has no type; '%s' is for "
                   "inputs, params and outputs", s->text);
    else if (suggest(s->text, &right, 1)) {
        FLAT_ERROR(f, chain, s->text_span, "unknown type '%s'; did you mean '%s'?", s->text, right);
        diag_fix(f->c, s->text_span, right);
    } else
        FLAT_ERROR(f, chain, s->text_span, "unknown type '%s'; a definition is stored as --dtype says, ': dtype', or has no type",
                   s->text);
}

/* A definition may say `: dtype`. What is declared has its type there, and a carried value is of the arithmetic. */
static void check_equation_type(Flat *f, const Stmt *s, const Symbol *t, const CallSite *chain)
{
    if (!s->text)
        return;
    if (s->primed)
        FLAT_ERROR(f, chain, s->text_span, "a next value has no type: states are kept in the type of the arithmetic; a "
                   "definition that '%s' is made of may be rounded", s->name);
    else if (t->kind == SYM_OUTPUT)
        FLAT_ERROR(f, chain, s->text_span, "the type of an output stands where '%s' is declared", s->name);
    else if (strcmp(s->text, "dtype") != 0)
        wrong_definition_type(f, s, chain);
}

static void collect_equation(Flat *f, const Stmt *s, Scope *scope, const CallSite *chain, SymbolVec *out)
{
    Symbol *t = map_get(&scope->names, s->name), *outer;
    if (is_reserved(f, s->name)) {
        FLAT_ERROR(f, chain, s->name_span,
                   "'%s' is reserved: t is the number of the step, T the number of steps", s->name);
        return;
    }
    if (!t && scope->outer && scope->owner == scope->outer->owner &&
        (outer = scope_find(scope->outer, s->name))) {
        FLAT_ERROR(f, chain, s->name_span, "'%s' is already the name of %s outside this repeat", s->name,
                   kind_name(outer->kind));
        FLAT_NOTE(f, outer->span, "'%s' is declared here", s->name);
        return;
    }
    if (!t && s->primed && f->lost)
        return;
    if (!t && s->primed && scope->owner && (outer = scope_find(scope, s->name)) && outer->next) {
        FLAT_ERROR(f, chain, s->name_span, "a fn cannot give the next value of '%s'", s->name);
        FLAT_NOTE(f, outer->span, "'%s' is declared here", s->name);
        outer->next->failed = true;
        return;
    }
    if (!t && s->primed) {
        const char *near = suggest_value(f, scope, s->name, "value");
        FLAT_ERROR(f, chain, s->name_span,
                   near ? "there is no state '%s'; did you mean '%s'?" : "there is no state '%s'", s->name,
                   near);
        diag_fix(f->c, s->name_span, near);
        return;
    }
    if (t && target_is_wrong(f, s, t, chain))
        return;
    if (!t) {
        t = new_symbol(f, SYM_DEF, s->name, s->name_span, scope->owner);
        t->chain = chain;
        t->decl = s;
        t->rank = s->lhs.len;
        map_put(f->c->arena, &scope->names, s->name, t);
        vec_push(f->c->arena, out, t);
    }
    check_equation_type(f, s, t, chain);
    if (s->primed)
        t = t->next;
    if (t->equations.len && !(has_constant_index(s) && has_constant_index(t->equations.data[0]->stmt))) {
        FLAT_ERROR(f, chain, s->name_span, "%s is defined twice", quoted_name(f, s->name, s->primed));
        FLAT_NOTE(f, t->equations.data[0]->stmt->name_span, "the first definition is here");
        return;
    }
    add_equation(f, t, s, s->value, scope, chain);
}

/* ---- repeat ---- */

typedef struct Carry {
    const Stmt *decl;
    Symbol *now;
} Carry;
typedef Vec(Carry) Carries;

static Symbol *carry_symbol(Flat *f, const Stmt *s, const Symbol *like, Scope *scope, const CallSite *chain,
                            SymbolVec *out)
{
    Symbol *d = new_symbol(f, SYM_DEF, s->name, s->name_span, scope->owner);
    d->decl = s;
    d->chain = chain;
    d->used = true;
    if (like) {
        d->rank = like->rank;
        d->axes = like->axes;
        d->axis_spans = like->axis_spans;
        d->declared = true;
        d->failed = like->failed;
    } else {
        declare_axes(f, d, s, scope, chain);
    }
    vec_push(f->c->arena, out, d);
    return d;
}

/* A carry exists in every iteration or in none. */
static void carries_in_when(Flat *f, const StmtVec *body, bool in_when, const CallSite *chain)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_CARRY && in_when) {
            FLAT_ERROR(f, chain, s->span, "a carry stands directly in its repeat, not in a when");
            f->lost = true;
        }
        if (s->kind == S_WHEN) {
            carries_in_when(f, &s->body, true, chain);
            carries_in_when(f, &s->other, true, chain);
        }
    }
}

static void start_carries(Flat *f, const StmtVec *body, Scope *scope, const CallSite *chain, Carries *carries,
                          SymbolVec *out)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        Symbol *old = scope_find(scope, s->name);
        if (s->kind != S_CARRY)
            continue;
        if (is_reserved(f, s->name) || (old && old->owner == scope->owner)) {
            FLAT_ERROR(f, chain, s->name_span, "'%s' is already the name of %s", s->name,
                       old ? kind_name(old->kind) : "the step or of the number of steps");
            if (old)
                FLAT_NOTE(f, old->span, "'%s' is declared here", s->name);
            continue;
        }
        for (int k = 0; k < carries->len; k++)
            if (carries->data[k].decl->name == s->name) {
                FLAT_ERROR(f, chain, s->name_span, "carry '%s' is declared twice", s->name);
                FLAT_NOTE(f, carries->data[k].decl->name_span, "the first is here");
            }
        Carry c = { s, carry_symbol(f, s, NULL, scope, chain, out) };
        if (s->init)
            add_equation(f, c.now, s, ast_initial(f->c, s->init), scope, chain);
        else
            FLAT_ERROR(f, chain, s->span, "carry '%s' needs an initial value: carry %s[...] = ...;", s->name,
                       s->name);
        c.now->failed |= !s->init;
        vec_push(f->c->arena, carries, c);
    }
}

static void one_iteration(Flat *f, const Stmt *s, Scope *outer, int64_t n, const CallSite *chain,
                          Carries *carries, SymbolVec *out)
{
    Scope *scope = arena_alloc(f->c->arena, sizeof *scope);
    const Binder *b = &s->lhs.data[0];
    Symbol *index = new_symbol(f, SYM_NUMBER, b->name, b->span, outer->owner);
    scope->outer = outer;
    scope->owner = outer->owner;
    index->value = (Constant){ .is_int = true, .num = (double)n };
    index->used = true;
    map_put(f->c->arena, &scope->names, b->name, index);
    for (int k = 0; k < carries->len; k++) {
        Carry *c = &carries->data[k];
        map_put(f->c->arena, &scope->names, c->decl->name, c->now);
        c->now->next = carry_symbol(f, c->decl, c->now, scope, chain, out);
    }
    expand_body(f, &s->body, scope, chain, out);
    for (int k = 0; k < carries->len; k++) {
        Carry *c = &carries->data[k];
        Symbol *next = c->now->next;
        if (!next->equations.len && !next->failed) {
            if (n == 0)
                FLAT_ERROR(f, chain, c->decl->name_span,
                           "carry '%s' gets no next value: write %s'[...] = ...; in the "
                           "repeat",
                           c->decl->name, c->decl->name);
            next->failed = true;
        }
        c->now = next;
    }
}

static void unroll(Flat *f, const Stmt *s, Scope *scope, const CallSite *chain, SymbolVec *out)
{
    Carries carries = { 0 };
    int64_t steps;
    bool lost = f->lost;
    f->lost = true;
    if (s->lhs.len != 1 || !s->lhs.data[0].name || !s->lhs.data[0].range)
        return;
    const Binder *b = &s->lhs.data[0];
    Symbol *clash = scope_find(scope, b->name);
    if (is_reserved(f, b->name) || clash) {
        FLAT_ERROR(f, chain, b->span, "'%s' cannot be the index of a repeat: it is already the name of %s",
                   b->name, clash ? kind_name(clash->kind) : "the step or of the number of steps");
        if (clash)
            FLAT_NOTE(f, clash->span, "'%s' is declared here", b->name);
        return;
    }
    if (!fold_integer(f, b->range, scope, chain, "the number of iterations", &steps))
        return;
    if (steps < 0 || steps > MAX_STEPS) {
        FLAT_ERROR(f, chain, b->range->span, "a repeat makes from 0 to %d iterations, not %lld", MAX_STEPS,
                   (long long)steps);
        return;
    }
    f->lost = lost;
    carries_in_when(f, &s->body, false, chain);
    start_carries(f, &s->body, scope, chain, &carries, out);
    for (int64_t n = 0; n < steps && f->nodes < MAX_FLAT_NODES && f->c->errors < 50; n++)
        one_iteration(f, s, scope, n, chain, &carries, out);
    for (int k = 0; k < carries.len; k++)
        if (!map_get(&scope->names, carries.data[k].decl->name))
            map_put(f->c->arena, &scope->names, carries.data[k].decl->name, carries.data[k].now);
}

static void check_places(Flat *f, const Stmt *s, const Scope *scope, const CallSite *chain)
{
    if (s->kind == S_FN && scope != f->scope)
        FLAT_ERROR(f, chain, s->name_span, "a fn cannot stand in a %s: put it into the cell",
                   scope->owner ? "fn" : "repeat");
    else if (s->kind == S_CELL || s->kind == S_IMPORT)
        FLAT_ERROR(f, chain, s->span, "%s cannot stand in a cell",
                   s->kind == S_CELL ? "a cell" : "an import");
    else if (s->kind == S_CARRY &&
             (scope == f->scope || (scope->owner && scope->outer && scope->outer->owner != scope->owner)))
        FLAT_ERROR(f, chain, s->span, "a carry belongs into a repeat");
}

void expand_body(Flat *f, const StmtVec *body, Scope *scope, const CallSite *chain, SymbolVec *out)
{
    Live live = { 0 };
    f->nodes += body->len + 1;
    flatten(f, body, scope, chain, &live);
    for (int i = 0; i < live.len; i++) {
        const Stmt *s = live.data[i];
        bool data = s->kind >= S_INPUT && s->kind <= S_RESET;
        check_places(f, s, scope, chain);
        if (data && only_in_a_cell(f, scope, s, kind_name(data_kind(s->kind)), chain))
            declare_data(f, scope, s, out);
        else if (s->kind == S_FN && scope == f->scope)
            declare_fn(f, s, scope, false);
    }
    for (int i = 0; i < live.len; i++)
        if (live.data[i]->kind == S_EQ)
            collect_equation(f, live.data[i], scope, chain, out);
    for (int i = 0; i < live.len; i++)
        if (live.data[i]->kind == S_REPEAT)
            unroll(f, live.data[i], scope, chain, out);
}

/* ---- imports ---- */

int import_places(Compiler *c, int from, const char *name, const char *places[MOST_IMPORT_PLACES])
{
    const char *path = c->sources.data[from].path, *slash = strrchr(path, '/');
    const char *const dirs[] = { c->import_dir, c->library_dir };
    int n = 0;
    places[n++] = slash ? intern_f(c, "%.*s/%s", (int)(slash - path), path, name) : name;
    for (int i = 0; i < 2; i++)
        if (dirs[i])
            places[n++] = intern_f(c, "%s/%s", dirs[i], name);
    return n;
}

const char *import_find(Compiler *c, int from, const char *name)
{
    const char *places[MOST_IMPORT_PLACES];
    int n = import_places(c, from, name, places);
    for (int i = 0; i < n; i++)
        if (text_is_there(c, places[i]))
            return text_first(c, places[i]);
    return NULL;
}

const char *import_refused(const char *name)
{
    size_t n = name ? strlen(name) : 0, end = sizeof ".cell" - 1;
    if (!n || name[0] == '/')
        return "an import names a file beside this one or of the library, such as \"std.cell\"";
    if (n <= end || strcmp(name + n - end, ".cell") != 0 || name[n - end - 1] == '/')
        return "an import names a file that ends in .cell, such as \"std.cell\"";
    return NULL;
}

static void top_level(Flat *f, const Ast *ast, bool imported);

static void import(Flat *f, const Stmt *s, int from)
{
    const char *refused = import_refused(s->text);
    if (refused) {
        FLAT_ERROR(f, NULL, s->span, "%s", refused);
        return;
    }
    const char *path = import_find(f->c, from, s->text);
    if (!path) {
        FLAT_ERROR(f, NULL, s->text_span,
                   "cannot find \"%s\", neither beside this file nor in the library of cellc", s->text);
        return;
    }
    const Stmt *before = map_get(&f->files, intern(f->c, path));
    if (before == (const void *)&f->files) {
        FLAT_ERROR(f, NULL, s->text_span, "import of \"%s\" goes round in a circle", s->text);
        return;
    }
    if (before)
        return;
    if (f->files.len >= MAX_IMPORTS) {
        FLAT_ERROR(f, NULL, s->span, "more than %d files are imported", MAX_IMPORTS);
        return;
    }
    map_put(f->c->arena, &f->files, intern(f->c, path), &f->files);
    int file = source_import(f->c, path, s->text_span);
    if (file >= 0)
        top_level(f, parse_source(f->c, file), true);
    map_put(f->c->arena, &f->files, intern(f->c, path), (void *)(uintptr_t)s);
}

static void top_level(Flat *f, const Ast *ast, bool imported)
{
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *s = ast->items.data[i];
        if (s->kind == S_IMPORT)
            import(f, s, ast->file);
        else if (s->kind == S_FN)
            declare_fn(f, s, f->globals, imported);
        else if (s->kind != S_CELL)
            FLAT_ERROR(f, NULL, s->span, "only imports, fns and cells stand outside a cell");
    }
}

/* ---- settings ---- */

typedef Vec(const char *) Names;

static void names_of(Flat *f, const StmtVec *body, bool dims, Names *names)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (dims ? s->kind == S_DIM : s->kind == S_CONST || s->kind == S_OPTION)
            vec_push(f->c->arena, names, s->name);
        names_of(f, &s->body, dims, names);
        names_of(f, &s->other, dims, names);
    }
}

static bool is_one_of(const Names *names, const char *name)
{
    for (int k = 0; k < names->len; k++)
        if (strcmp(names->data[k], name) == 0)
            return true;
    return false;
}

/* What to write in place of a name that there is not. */
static const char *instead(Flat *f, const Names *names, const char *name)
{
    const char *near = suggest(name, names->data, names->len), *all = "";
    if (near)
        return intern_f(f->c, "; did you mean '%s'?", near);
    for (int i = 0; i < names->len; i++)
        if (!is_one_of(&(Names){ .data = names->data, .len = i }, names->data[i]))
            all = intern_f(f->c, "%s%s %s", all, i ? "," : "; it has", names->data[i]);
    return all;
}

/* A setting for something in a branch that is not taken is fine; one that the cell knows nothing of is a
 * mistake. */
static void check_settings(Flat *f, const Setting *settings, int n, bool dims)
{
    Names names = { 0 }, others = { 0 };
    const char *flag = dims ? "--dim" : "--set", *what = dims ? "dim" : "option or constant";
    const char *other = dims ? "--set" : "--dim", *kind = dims ? "an option or constant" : "a dim";
    names_of(f, &f->cell->body, dims, &names);
    names_of(f, &f->cell->body, !dims, &others);
    for (int i = 0; i < n; i++) {
        const char *name = settings[i].name, *value = settings[i].value;
        if (settings[i].used || is_one_of(&names, name))
            continue;
        if (is_one_of(&others, name))
            FLAT_ERROR(f, NULL, no_span, "%s %s=%s: '%s' is %s of cell '%s': %s %s=%s", flag, name, value, name, kind,
                       f->cell->name, other, name, value);
        else
            FLAT_ERROR(f, NULL, no_span, "%s %s=%s: cell '%s' has no %s '%s'%s", flag, name, value, f->cell->name, what, name,
                       instead(f, &names, name));
    }
}

/* What --dtype-of names is an input or a param, perhaps of a branch that is not taken. */
static void check_types(Flat *f)
{
    for (int i = 0; i < f->c->types.len; i++) {
        const Setting *set = &f->c->types.data[i];
        const Mention *m = map_get(&f->mentions, set->name);
        StmtKind kind = m ? m->stmt->kind : S_EQ;
        if (set->used || kind == S_INPUT || kind == S_PARAM)
            continue;
        bool declared = kind >= S_INPUT && kind <= S_RESET;
        FLAT_ERROR(f, NULL, no_span,
                   declared ? "--dtype-of %s=%s: types are given to inputs and params, but '%s' is %s"
                            : "--dtype-of %s=%s: cell '%s' has no input and no param of this name",
                   set->name, set->value, declared ? set->name : f->cell->name,
                   declared ? kind_name(data_kind(kind)) : "");
        if (declared)
            FLAT_NOTE(f, m->stmt->name_span, "it is declared here");
    }
}

/* ---- the cell ---- */

static const char *left_indices(Flat *f, const Symbol *s)
{
    return s->rank > 0 ? intern_f(f->c, "[%s]", index_letters(f, s->rank)) : "";
}

/* The definition h_t or h_new that stands for the next value of a state h, y_i or y_t for an output y; NULL:
 * there is none. */
static const Symbol *meant_for(Flat *f, const Symbol *s)
{
    size_t len = strlen(s->name);
    for (int i = 0; i < f->symbols.len; i++) {
        const Symbol *d = f->symbols.data[i];
        const char *base;
        int step;
        if (d->kind != SYM_DEF || d->owner || !d->equations.len)
            continue;
        if (foreign_step(f->c, d->name, &base, &step) && strcmp(base, s->name) == 0 && step >= 0)
            return d;
        if (strncmp(d->name, s->name, len) == 0 && d->name[len] == '_' &&
            (int)strlen(d->name + len + 1) == s->rank)
            return d;
    }
    return NULL;
}

static void missing_values(Flat *f)
{
    bool gives = f->lost || f->c->errors;
    for (int i = 0; i < f->symbols.len; i++)
        gives |= f->symbols.data[i]->kind == SYM_OUTPUT || f->symbols.data[i]->kind == SYM_STATE;
    if (!gives)
        FLAT_ERROR(f, NULL, f->cell->name_span, "cell '%s' gives nothing: it declares no output and no state", f->cell->name);
    for (int i = 0; i < f->symbols.len; i++) {
        Symbol *s = f->symbols.data[i];
        if (s->equations.len || s->failed || s->owner)
            continue;
        if (s->kind == SYM_OUTPUT)
            FLAT_ERROR(f, NULL, s->span, "output '%s' gets no value: write %s%s = ...;", s->name, s->name,
                       left_indices(f, s));
        else if (s->kind == SYM_NEXT)
            FLAT_ERROR(f, NULL, s->span, "state '%s' gets no next value: write %s'%s = ...;", s->name,
                       s->name, left_indices(f, s));
        else
            continue;
        const Symbol *other = meant_for(f, s);
        if (other)
            FLAT_NOTE(f, other->span, "'%s' is a definition of its own", other->name);
    }
}

static void warn_unused(Flat *f)
{
    for (int i = 0; i < f->symbols.len && !f->c->errors; i++) {
        const Symbol *s = f->symbols.data[i];
        if (!s->used && !s->owner && (s->kind == SYM_INPUT || s->kind == SYM_PARAM || s->kind == SYM_DEF))
            diag(f->c, DIAG_WARNING, s->span, "%s '%s' is never used",
                 s->kind == SYM_INPUT   ? "input"
                 : s->kind == SYM_PARAM ? "param"
                                        : "definition",
                 s->name);
    }
}

Flat *expand(Compiler *c, const Ast *ast, const char *cell_name)
{
    const Stmt *cell = ast_cell(c, ast, cell_name, true);
    if (!cell)
        return NULL;
    const char *fault = cell_name_fault(c, cell->name);
    if (fault)
        diag(c, DIAG_ERROR, cell->name_span, "a cell cannot be called '%s': %s", cell->name, fault);
    Flat *f = arena_alloc(c->arena, sizeof *f);
    f->c = c;
    f->cell = cell;
    f->m = module_new(c, cell->name);
    f->m->span = cell->name_span;
    f->globals = arena_alloc(c->arena, sizeof *f->globals);
    f->scope = arena_alloc(c->arena, sizeof *f->scope);
    map_put(c->arena, &f->files, intern(c, c->sources.data[ast->file].path), &f->files);
    top_level(f, ast, false);
    find_mentions(f, &cell->body, 0);
    expand_body(f, &cell->body, f->scope, NULL, &f->symbols);
    for (int i = 0; i < f->adjoint_list.len; i++)
        check_adjoint(f, f->adjoint_list.data[i]);
    check_settings(f, c->dims.data, c->dims.len, true);
    check_settings(f, c->sets.data, c->sets.len, false);
    check_types(f);
    bind_symbols(f, &f->symbols, NULL);
    missing_values(f);
    warn_unused(f);
    return f;
}
