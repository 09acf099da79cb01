/* analysis.c: what the compiler says of a text that is being written. In: the text, with the texts of other
 * files that an editor has open. Out: its names; for each cell what the front end makes of it with its
 * options as they are declared and, step by step while nothing else is to be done, with other choices, so
 * that every branch of a `when` that can be taken is in one of them; what was diagnosed. Guaranteed: no text
 * ends the process, and all memory goes with the analysis. */
#include <string.h>

#include "analysis.h"
#include "base/texts.h"
#include "front/flat.h"
#include "pipeline.h"

/* ---- one compilation */

static Compiler *new_compiler(const Sources *s)
{
    Compiler *c = compiler_new();
    c->import_dir = s->import_dir ? intern(c, s->import_dir) : NULL;
    c->library_dir = s->library_dir ? intern(c, s->library_dir) : NULL;
    for (int i = 0; i < s->n_open; i++)
        text_put(c, s->open[i].path, s->open[i].text, s->open[i].len);
    return c;
}

typedef struct FrontEnd { Variant *v; const char *path, *cell; } FrontEnd;

static void run_front_end(void *with)
{
    const FrontEnd *of = with;
    Variant *v = of->v;
    int file = source_load(v->c, of->path);
    const Ast *ast = file >= 0 ? parse_source(v->c, file) : NULL;
    if (!ast || v->c->errors)
        return;
    v->cell = ast_cell(v->c, ast, of->cell, true);
    v->flat = v->cell ? expand(v->c, ast, of->cell) : NULL;
    v->nodes = v->flat ? v->flat->nodes : 0;
    if (!v->flat || !resolve(v->c, v->flat) || v->c->errors)
        return;
    Module *m = lower(v->c, v->flat);
    if (m && !v->c->errors)
        ir_verify(m, "lower");
    v->sound = m && !v->c->errors;
}

static void set_options(Variant *v, const char *with)
{
    for (const char *p = with; *p;) {
        size_t name = strcspn(p, "="), value = p[name] ? strcspn(p + name + 1, ",") : 0;
        if (!p[name])
            break;
        Setting s = { intern_n(v->c, p, name), intern_n(v->c, p + name + 1, value), false };
        vec_push(v->c->arena, &v->c->sets, s);
        p += name + 1 + value;
        p += strspn(p, ", ");
    }
}

static Variant *add_variant(Analysis *a, const char *cell, const char *with)
{
    Variant *v = arena_alloc(a->c->arena, sizeof *v);
    v->c = compiler_new();
    compiler_inherit(v->c, a->c);
    v->with = with;
    set_options(v, with);
    FrontEnd of = { v, a->path, cell };
    if (!survives(run_front_end, &of)) {
        v->flat = NULL;
        v->sound = false;
    }
    vec_push(a->c->arena, &a->variants, v);
    return v;
}

/* ---- what was said */

static bool same_fault(const Fault *a, const Fault *b)
{
    const Diag *x = a->first, *y = b->first;
    return x->level == y->level && x->span.lo == y->span.lo && x->span.hi == y->span.hi &&
           strcmp(x->text, y->text) == 0 &&
           (x->span.file < 0) == (y->span.file < 0) &&
           (x->span.file < 0 || strcmp(a->c->sources.data[x->span.file].path,
                                       b->c->sources.data[y->span.file].path) == 0);
}

/* Of a variant whose options are not as declared, errors only: an input that is not used there is no fault. */
static void take_faults(Analysis *a, const Compiler *c, const char *with)
{
    for (int i = 0, n; i < c->diags.len; i += n) {
        Fault f = { .c = c, .first = &c->diags.data[i], .with = with };
        for (n = 1; i + n < c->diags.len && c->diags.data[i + n].level == DIAG_NOTE; n++)
            ;
        f.count = n;
        bool wanted = !*with || f.first->level == DIAG_ERROR;
        for (int k = 0; k < a->faults.len && wanted; k++)
            wanted = !same_fault(&a->faults.data[k], &f);
        if (wanted && a->faults.len < 1000)
            vec_push(a->c->arena, &a->faults, f);
    }
}

/* ---- which variants */

static bool is_taken(const Analysis *a, Branch b)
{
    for (int i = 0; i < a->taken.len; i++)
        if (a->taken.data[i].at == b.at && a->taken.data[i].other == b.other)
            return true;
    return false;
}

static void note_taken(Analysis *a, const Variant *v, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        bool holds;
        if (s->kind != S_WHEN || !s->value || !fold_condition(v->flat, s->value, v->flat->scope, NULL,
                                                              &holds))
            continue;
        Branch b = { s->span.lo, !holds };
        if (!is_taken(a, b))
            vec_push(a->c->arena, &a->taken, b);
        note_taken(a, v, holds ? &s->body : &s->other);
    }
}

static Variant *try_variant(Analysis *a, const Stmt *cell, const char *with)
{
    Variant *v = add_variant(a, cell->name, with);
    if (v->flat) {
        int errors = v->c->errors, said = v->c->diags.len;
        a->nodes += v->nodes + 200;
        note_taken(a, v, &v->cell->body);
        v->c->errors = errors;
        v->c->diags.len = said;   /* what was decided before says nothing new */
    }
    take_faults(a, v->c, with);
    a->sound = a->sound && v->sound;
    return v;
}

/* What is looked for in a cell: its options, and around a branch its whens. */
typedef struct Plans {
    Analysis *a;
    const Stmt *cell;
    Vec(const Stmt *) options;
    Vec(const Stmt *) path;
} Plans;

static void find_options(Plans *k, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_OPTION && s->name)
            vec_push(k->a->c->arena, &k->options, s);
        find_options(k, &s->body);
        find_options(k, &s->other);
    }
}

static void plan_to_try(const Plans *k, const char *with, Branch b)
{
    Attempt t = { k->cell, with, b };
    if (k->a->trials.len < MAX_TRIALS)
        vec_push(k->a->c->arena, &k->a->trials, t);
}

static bool names_option(const Expr *e, const char *name)
{
    if (!e)
        return false;
    return (e->kind == X_REF && e->name == name) || names_option(e->a, name) || names_option(e->b, name) ||
           names_option(e->c, name);
}

/* All choices of the options from the i-th on that stand in the conditions of the path,
 * behind those of `with`. */
static void plan_choices(const Plans *k, int i, const char *with, Branch b)
{
    bool asked = false;
    for (; i < k->options.len && !asked; i++)
        for (int p = 0; p < k->path.len && !asked; p++)
            asked = names_option(k->path.data[p]->value, k->options.data[i]->name);
    if (!asked) {
        if (strchr(with, ','))            /* one choice alone is tried anyway */
            plan_to_try(k, with, b);
        return;
    }
    const Stmt *o = k->options.data[i - 1];
    for (int n = 0; n < o->choices.len && k->a->trials.len < MAX_TRIALS; n++)
        plan_choices(k, i, intern_f(k->a->c, "%s%s%s=%s", with, *with ? ", " : "", o->name,
                                    o->choices.data[n]), b);
}

static void plan_branches(Plans *k, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind != S_WHEN || !s->value)
            continue;
        vec_push(k->a->c->arena, &k->path, s);
        for (int other = 0; other < 2; other++) {
            const StmtVec *branch = other ? &s->other : &s->body;
            Branch b = { s->span.lo, other };
            if (branch->len && !is_taken(k->a, b))
                plan_choices(k, 0, "", b);
            plan_branches(k, branch);
        }
        k->path.len--;
    }
}

static void analyse_cell(Analysis *a, const Stmt *cell)
{
    Plans k = { .a = a, .cell = cell };
    if (!try_variant(a, cell, "")->sound)         /* what else is wrong follows, for the most part */
        return;
    find_options(&k, &cell->body);
    for (int i = 0; i < k.options.len; i++)
        for (int n = 1; n < k.options.data[i]->choices.len; n++)
            plan_to_try(&k, intern_f(a->c, "%s=%s", k.options.data[i]->name,
                                     k.options.data[i]->choices.data[n]),
                        (Branch) { 0 });
    plan_branches(&k, &cell->body);
}

bool analysis_goes_on(const Analysis *a)
{
    return a->tried < a->trials.len && a->variants.len < MAX_VARIANTS && a->nodes < MAX_VARIANT_NODES;
}

void analysis_step(Analysis *a)
{
    const Attempt *t = &a->trials.data[a->tried++];
    if (!t->branch.at || !is_taken(a, t->branch))
        try_variant(a, t->cell, t->with);
}

void analysis_finish(Analysis *a)
{
    while (analysis_goes_on(a))
        analysis_step(a);
}

/* ---- the whole */

/* How many blocks the text leaves open. */
static int open_blocks(const char *s, size_t len)
{
    int open = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '/' && s[i + 1] == '/') {
            while (i < len && s[i] != '\n')
                i++;
        } else if (s[i] == '/' && s[i + 1] == '*') {
            const char *end = i + 2 < len ? memmem(s + i + 2, len - i - 2, "*/", 2) : NULL;
            i = end ? (size_t)(end - s) + 1 : len;
        } else if (s[i] == '"') {
            size_t k = i + 1;
            while (k < len && s[k] != '"' && s[k] != '\n')
                k++;
            i = k;
        } else {
            open += s[i] == '{' ? 1 : s[i] == '}' && open ? -1 : 0;
        }
    }
    return open;
}

/* The names of a text that leaves blocks open: a cell without its end is none to the grammar. */
static void find_names(void *with)
{
    Analysis *a = with;
    const Source *s = &a->c->sources.data[a->file];
    int open = a->parsed ? 0 : open_blocks(s->text, s->len);
    const Ast *ast = a->ast;
    int errors = a->c->errors, said = a->c->diags.len;
    if (open > 0 && open < 250) {
        Buf text = { .arena = a->c->arena };
        buf_f(&text, "%.*s", (int)s->len, s->text);
        size_t whole = strlen(s->text) == s->len ? text.len : 0;     /* NULs end the copy */
        for (int i = 0; i < open; i++)
            buf_f(&text, i ? "}" : "\n;}");
        if (whole)
            ast = parse_source(a->c, source_add(a->c, a->path, text.data, text.len));
    }
    a->names = names_of(a->c, ast);
    a->c->errors = errors;
    a->c->diags.len = said;
}

static void parse(void *with)
{
    Analysis *a = with;
    a->file = source_load(a->c, a->path);
    a->ast = a->file >= 0 ? parse_source(a->c, a->file) : NULL;
    a->parsed = a->ast && !a->c->errors;
}

/* A file without a cell is a library: its imports are there, and no more is known. */
static void check_imports(Analysis *a)
{
    for (int i = 0; i < a->ast->items.len; i++) {
        const Stmt *s = a->ast->items.data[i];
        if (s->kind == S_IMPORT && (import_refused(s->text) || !import_find(a->c, a->file, s->text)))
            diag(a->c, DIAG_ERROR, s->text_span, "%s", import_refused(s->text) ? import_refused(s->text)
                 : intern_f(a->c, "cannot find \"%s\", neither beside this file nor in the library of cellc",
                            s->text));
    }
}

static int count_cells(const Ast *ast)
{
    int n = 0;
    for (int i = 0; i < ast->items.len; i++)
        n += ast->items.data[i]->kind == S_CELL;
    return n;
}

Analysis *analyse(const Sources *s, const char *path)
{
    Compiler *c = new_compiler(s);
    Analysis *a = arena_alloc(c->arena, sizeof *a);
    a->c = c;
    a->path = intern(c, path);
    bool ended = survives(parse, a);
    if (ended && a->ast)
        survives(find_names, a);
    if (a->parsed && !count_cells(a->ast))
        check_imports(a);
    take_faults(a, c, "");
    a->sound = a->parsed && !c->errors;
    for (int i = 0; a->parsed && i < a->ast->items.len; i++)
        if (a->ast->items.data[i]->kind == S_CELL && a->variants.len < MAX_VARIANTS)
            analyse_cell(a, a->ast->items.data[i]);
    return a;
}

void analysis_free(Analysis *a)
{
    if (!a)
        return;
    Compiler *c = a->c;
    for (int i = 0; i < a->variants.len; i++)
        compiler_free(a->variants.data[i]->c);
    compiler_free(c);
}

static bool reads(const Compiler *c, const char *path)
{
    for (int i = 0; i < c->sources.len; i++)
        if (strcmp(c->sources.data[i].path, path) == 0)
            return true;
    return false;
}

bool analysis_reads(const Analysis *a, const char *path)
{
    bool found = reads(a->c, path);
    for (int i = 0; i < a->variants.len && !found; i++)
        found = reads(a->variants.data[i]->c, path);
    return found;
}

/* ---- symbols of names */

typedef struct Search {
    const Name *name;
    const Symbol *symbol;
    const Poly *extent;
    int left;                     /* expressions that are looked at */
} Search;

static bool same_place(const Search *s, Span at)
{
    return at.lo == s->name->span.lo && at.hi == s->name->span.hi;
}

static bool is_found(const Search *s)
{
    return s->symbol || s->extent || s->left <= 0;
}

static void search_symbols(Search *s, const SymbolVec *symbols);

static void see_symbol(Search *s, const Symbol *x)
{
    if (x && !s->symbol && x->name && strcmp(x->name, s->name->name) == 0 && same_place(s, x->span))
        s->symbol = x;
}

static void see_index(Search *s, const FIndex *i)
{
    if (i && s->name->kind == NAME_INDEX && i->extent && strcmp(i->name, s->name->name) == 0 &&
        same_place(s, i->span))
        s->extent = i->extent;
}

static void search_instance(Search *s, const Instance *inst)
{
    for (int i = 0; i < inst->nparams; i++)
        see_symbol(s, inst->params[i]);
    see_symbol(s, inst->cotangent);
    search_symbols(s, &inst->locals);
    if (inst->adjoint)
        search_instance(s, inst->adjoint);
}

static void search_expr(Search *s, const FExpr *x)
{
    if (!x || s->left-- <= 0 || is_found(s))
        return;
    if (x->kind == F_CALL && x->inst)
        search_instance(s, x->inst);
    for (int i = 0; i < x->nbound; i++)
        see_index(s, x->bound[i]);
    for (int i = 0; i < x->nargs; i++)
        search_expr(s, x->args[i]);
    search_expr(s, x->time);
    for (int i = 0; x->kind == F_CALL && x->inst && i < x->inst->nparams; i++)
        search_expr(s, x->inst->params[i]->scalar);
}

static void search_symbol(Search *s, const Symbol *x)
{
    if (!x)
        return;
    see_symbol(s, x);
    for (int i = 0; i < x->equations.len && !is_found(s); i++) {
        const Equation *e = x->equations.data[i];
        for (int k = 0; k < e->nlhs; k++)
            see_index(s, e->lhs ? e->lhs[k] : NULL);
        search_expr(s, e->value);
    }
}

static void search_symbols(Search *s, const SymbolVec *symbols)
{
    for (int i = 0; i < symbols->len && !is_found(s); i++) {
        search_symbol(s, symbols->data[i]);
        search_symbol(s, symbols->data[i]->init);
    }
}

static Search search(const Variant *v, const Name *n)
{
    Search s = { .name = n, .left = 200000 };
    if (!v->flat)
        return s;
    const Symbol *x = n->fn || n->kind == NAME_INDEX ? NULL : map_get(&v->flat->scope->names,
                                                                      intern(v->c, n->name));
    if (x) {
        s.symbol = x;
        return s;
    }
    search_symbols(&s, &v->flat->symbols);
    return s;
}

const Symbol *variant_symbol(const Variant *v, const Name *n)
{
    return search(v, n).symbol;
}

const Poly *variant_extent(const Variant *v, const Name *n)
{
    return search(v, n).extent;
}
