/* navigate.c: where names are. In: a place in a document, or a document. Out: where the name is declared, all
 * its places, the document's outline, and what kind each name is of, for colours. */
#include <string.h>

#include "front/front.h"
#include "server.h"

static const Use *use_of(const Request *r)
{
    const Use *u = r->a->names ? names_at(r->a->names, r->at) : NULL;
    return u && u->name ? u : NULL;
}

/* The import statement at the place, which leads to a file. */
static bool put_imported(Request *r)
{
    for (int i = 0; r->a->ast && i < r->a->ast->items.len; i++) {
        const Stmt *s = r->a->ast->items.data[i];
        if (s->kind != S_IMPORT || r->at < s->text_span.lo || r->at > s->text_span.hi ||
            import_refused(s->text))
            continue;
        const char *path = import_find(r->a->c, r->a->file, s->text);
        for (int k = 0; path && k < r->a->c->sources.len; k++)
            if (strcmp(r->a->c->sources.data[k].path, path) == 0) {
                put_location(r->s, &r->a->c->sources.data[k], (Span) { k, 0, 0 }, &r->out);
                return true;
            }
    }
    return false;
}

int answer_definition(Request *r, const char **why)
{
    (void)why;
    const Use *u = use_of(r);
    if (put_imported(r) || !u)
        return 0;
    put_location(r->s, &r->a->c->sources.data[u->name->span.file], u->name->span, &r->out);
    return 0;
}

int answer_references(Request *r, const char **why)
{
    (void)why;
    const Use *at = use_of(r);
    const Source *source = &r->a->c->sources.data[r->a->file];
    bool declares = json_true(json_member(json_member(r->params, "context"), "includeDeclaration")),
                    any = false;
    buf_f(&r->out, "[");
    for (int i = 0; at && i < r->a->names->uses.len; i++) {
        const Use *u = &r->a->names->uses.data[i];
        if (u->name != at->name || (!declares && u->span.lo == at->name->span.lo))
            continue;
        buf_f(&r->out, any ? ", " : "");
        put_location(r->s, source, u->span, &r->out);
        any = true;
    }
    buf_f(&r->out, "]");
    return 0;
}

int answer_highlight(Request *r, const char **why)
{
    (void)why;
    const Use *at = use_of(r);
    bool any = false;
    buf_f(&r->out, "[");
    for (int i = 0; at && i < r->a->names->uses.len; i++) {
        const Use *u = &r->a->names->uses.data[i];
        if (u->name != at->name)
            continue;
        buf_f(&r->out, any ? ", {" : "{");
        put_range(r->s, r->d, "range", u->span.lo, u->span.hi, &r->out);
        buf_f(&r->out, ", \"kind\": %d}", u->defines ? 3 : 2);     /* written, read */
        any = true;
    }
    buf_f(&r->out, "]");
    return 0;
}

/* ---- outline */

enum { SYMBOL_CLASS = 5, SYMBOL_PROPERTY = 7, SYMBOL_FIELD = 8, SYMBOL_ENUM = 10, SYMBOL_FUNCTION = 12,
       SYMBOL_VARIABLE = 13,
       SYMBOL_CONSTANT = 14, SYMBOL_KEY = 20, SYMBOL_EVENT = 24 };

static int symbol_kind(StmtKind k)
{
    switch (k) {
    case S_CELL: return SYMBOL_CLASS;
    case S_DIM: case S_CONST: return SYMBOL_CONSTANT;
    case S_OPTION: return SYMBOL_ENUM;
    case S_INPUT: case S_RESET: return SYMBOL_KEY;
    case S_PARAM: return SYMBOL_PROPERTY;
    case S_STATE: case S_CARRY: return SYMBOL_FIELD;
    case S_OUTPUT: return SYMBOL_EVENT;
    case S_FN: return SYMBOL_FUNCTION;
    default: return SYMBOL_VARIABLE;
    }
}

static const char *symbol_detail(const Stmt *s)
{
    switch (s->kind) {
    case S_CELL: return "cell";
    case S_DIM: return "dim";
    case S_CONST: return "const";
    case S_OPTION: return "option";
    case S_INPUT: return s->is_const ? "const input" : "input";
    case S_PARAM: return s->is_const ? "const param" : "param";
    case S_STATE: return "state";
    case S_OUTPUT: return "output";
    case S_RESET: return "reset";
    case S_CARRY: return "carry";
    case S_FN: return s->is_const ? "adjoint fn" : "fn";
    default: return s->primed ? "next value" : "definition";
    }
}

static void put_symbols(Request *r, const StmtVec *body, const Stmt *in, bool *any);

/* As a tree, or of an editor that takes none each by itself with what it stands in. */
static void put_symbol(Request *r, const Stmt *s, const Stmt *in, bool *any)
{
    Buf name = { .arena = r->m->arena };
    if (!s->name || !*s->name || s->name_span.hi <= s->name_span.lo)
        return;
    uint32_t lo = s->span.lo < s->name_span.lo ? s->span.lo : s->name_span.lo;
    uint32_t hi = s->span.hi > s->name_span.hi ? s->span.hi : s->name_span.hi;
    buf_f(&name, "%s%s", s->name, s->primed ? "'" : "");
    buf_f(&r->out, *any ? ", {\"name\": " : "{\"name\": ");
    put_string_n(&r->out, name.data, name.len);
    *any = true;
    if (!r->s->nests) {
        buf_f(&r->out, ", \"kind\": %d, \"containerName\": ", symbol_kind(s->kind));
        put_string(&r->out, in ? in->name : "");
        buf_f(&r->out, ", \"location\": {\"uri\": ");
        put_string(&r->out, r->d->uri);
        buf_f(&r->out, ", ");
        put_range(r->s, r->d, "range", lo, hi, &r->out);
        buf_f(&r->out, "}}");
        if (s->kind == S_CELL || s->kind == S_FN)
            put_symbols(r, &s->body, s, any);
        return;
    }
    buf_f(&r->out, ", \"detail\": \"%s\", \"kind\": %d, ", symbol_detail(s), symbol_kind(s->kind));
    put_range(r->s, r->d, "range", lo, hi, &r->out);
    buf_f(&r->out, ", ");
    put_range(r->s, r->d, "selectionRange", s->name_span.lo, s->name_span.hi, &r->out);
    buf_f(&r->out, ", \"children\": [");
    bool inner = false;
    if (s->kind == S_CELL || s->kind == S_FN)
        put_symbols(r, &s->body, s, &inner);
    buf_f(&r->out, "]}");
}

static void put_symbols(Request *r, const StmtVec *body, const Stmt *in, bool *any)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_WHEN || s->kind == S_REPEAT) {
            put_symbols(r, &s->body, in, any);
            put_symbols(r, &s->other, in, any);
        } else if (s->kind != S_IMPORT) {
            put_symbol(r, s, in, any);
        }
    }
}

int answer_symbols(Request *r, const char **why)
{
    (void)why;
    bool any = false;
    buf_f(&r->out, "[");
    if (r->a->ast)
        put_symbols(r, &r->a->ast->items, NULL, &any);
    buf_f(&r->out, "]");
    return 0;
}

/* ---- colours */

enum { TOKEN_CLASS, TOKEN_FUNCTION, TOKEN_VARIABLE, TOKEN_PARAMETER, TOKEN_PROPERTY, TOKEN_ENUM, TOKEN_CHOICE,
       TOKEN_DIM };
const char *const token_types[] = { "class", "function", "variable", "parameter", "property", "enum",
                                    "enumMember",
                                    "typeParameter", NULL };
enum { MODIFIER_DECLARATION = 1, MODIFIER_READONLY = 2, MODIFIER_LIBRARY = 4, MODIFIER_STATE = 8 };
const char *const token_modifiers[] = { "declaration", "readonly", "defaultLibrary", "modification", NULL };

static int token_type(const Name *n, unsigned *modifiers)
{
    switch (n->kind) {
    case NAME_CELL: return TOKEN_CLASS;
    case NAME_FN: return TOKEN_FUNCTION;
    case NAME_DIM: *modifiers |= MODIFIER_READONLY; return TOKEN_DIM;
    case NAME_CONST: *modifiers |= MODIFIER_READONLY; return TOKEN_VARIABLE;
    case NAME_OPTION: return TOKEN_ENUM;
    case NAME_CHOICE: return TOKEN_CHOICE;
    case NAME_PARAM: return TOKEN_PROPERTY;
    case NAME_STATE: case NAME_CARRY: *modifiers |= MODIFIER_STATE; return TOKEN_VARIABLE;
    case NAME_INPUT: case NAME_RESET: case NAME_PARAMETER: case NAME_COTANGENT: return TOKEN_PARAMETER;
    case NAME_INDEX: case NAME_ITERATION: *modifiers |= MODIFIER_READONLY; return TOKEN_PARAMETER;
    case NAME_OUTPUT: case NAME_DEFINITION: break;
    }
    return TOKEN_VARIABLE;
}

/* Five numbers each: lines and characters since the one before, length, type, modifiers. */
int answer_tokens(Request *r, const char **why)
{
    (void)why;
    Place before = { 0, 0 };
    bool any = false;
    uint32_t bias = document_bias(r->d), done = 0;
    buf_f(&r->out, "{\"data\": [");
    for (int i = 0; r->a->parsed && i < r->a->names->uses.len; i++) {
        const Use *u = &r->a->names->uses.data[i];
        unsigned modifiers = u->defines ? MODIFIER_DECLARATION : 0;
        int type = u->name ? token_type(u->name, &modifiers) : TOKEN_FUNCTION;
        if ((!u->name && !u->call) || u->span.lo < done)
            continue;
        modifiers |= !u->name || (u->name->kind == NAME_FN && u->name->span.file != r->a->file)
            ? MODIFIER_LIBRARY : 0;
        Place at = text_place(&r->d->text, u->span.lo + bias, r->s->units);
        buf_f(&r->out, "%s%d, %d, %d, %d, %d", any ? ", " : "", at.line - before.line,
              at.line == before.line ? at.character - before.character : at.character,
                  (int)(u->span.hi - u->span.lo), type,
              (int)modifiers);
        before = at;
        done = u->span.hi;
        any = true;
    }
    buf_f(&r->out, "]}");
    return 0;
}
