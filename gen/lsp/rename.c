/* rename.c: another name for a thing of the spec. In: a place in a document and the new name. Out: the edits,
 * or why it cannot have that name. Guaranteed: the text afterwards means what it meant: it is analysed, every
 * place names the thing that it named, and there is no error that there was not. What other files define or
 * use keeps its name. */
#include <dirent.h>
#include <string.h>

#include "base/texts.h"
#include "front/front.h"
#include "server.h"

/* The name at the place, or NULL with *why set. */
static const Use *renamed_use(const Request *r, const char **why)
{
    const Use *u = r->a->names ? names_at(r->a->names, r->at) : NULL;
    if (!r->a->parsed)
        *why = "nothing is renamed in a file with errors of form";
    else if (!u)
        *why = "there is no name here";
    else if (!u->name)
        *why = u->call ? "a function of the language keeps its name" : "what the name means is not known";
    else if (u->name->span.file != r->a->file)
        *why = intern_f(r->a->c, "'%s' is defined in another file, %s", u->name->name,
                        r->a->c->sources.data[u->name->span.file].path);
    else if (u->name->of)
        *why = intern_f(r->a->c, "'%s' is called after the parameter '%s': rename that", u->name->name,
                        u->name->of->name);
    else
        return u;
    return NULL;
}

int answer_prepare_rename(Request *r, const char **why)
{
    const Use *u = renamed_use(r, why);
    if (!u)
        return RPC_FAILED;
    buf_f(&r->out, "{");
    put_range(r->s, r->d, "range", u->span.lo, u->span.hi, &r->out);
    buf_f(&r->out, ", \"placeholder\": ");
    put_string(&r->out, u->name->name);
    buf_f(&r->out, "}");
    return 0;
}

/* ---- may it have the name? */

static const char *is_no_name(Compiler *c, const char *name)
{
    size_t n = strlen(name);
    if (n > MAX_NAME)
        return intern_f(c, "a name has at most %d characters", MAX_NAME);
    if (!n || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != n ||
        (name[0] >= '0' && name[0] <= '9'))
        return "a name is a letter or '_', then letters, digits and '_'";
    if (strcmp(name, "t") == 0 || strcmp(name, "T") == 0)
        return intern_f(c, "'%s' is reserved: t is the number of the step, T the number of steps", name);
    return NULL;
}

static const char *taken(Compiler *c, const Name *by)
{
    return intern_f(c, "'%s' is already the name of %s", by->name, name_kind_words(by));
}

/* What has the name where the thing is in scope or used; NULL: nothing. */
static const char *is_taken(const NameTable *t, const Name *n, const char *name)
{
    for (int i = 0; i < t->all.len; i++) {
        const Name *x = t->all.data[i];
        bool beside = x != n && x->name == name &&
                      ((n->kind == NAME_FN && x->kind == NAME_FN) ||
                       (n->kind == NAME_CELL && x->kind == NAME_CELL) ||
                       (n->kind == NAME_CHOICE && x->option == n->option));
        if (beside)
            return taken(t->c, x);
    }
    if (n->kind == NAME_CELL || n->kind == NAME_CHOICE)
        return NULL;
    const Name *there = n->region ? map_get(&n->region->names, name) : NULL;
    for (int i = 0; i < t->uses.len && !there; i++)
        if (t->uses.data[i].name == n && !t->uses.data[i].call && !t->uses.data[i].picked_of)
            there = region_find(t->uses.data[i].region, name, true);
    return there ? taken(t->c, there) : NULL;
}

/* ---- do other files use it? */

/* Does the file at `path` import the one of the analysis and use the function? */
static bool file_uses(const Request *r, const char *path, const char *fn)
{
    Compiler *c = compiler_new();
    c->import_dir = r->s->import_dir;
    c->library_dir = r->s->library_dir;
    int file = source_load(c, path);
    const Ast *ast = file >= 0 && memmem(c->sources.data[file].text, c->sources.data[file].len, fn,
                                         strlen(fn)) ? parse_source(c, file) : NULL;
    const NameTable *t = ast ? names_of(c, ast) : NULL;
    bool uses = false;
    for (int i = 0; t && i < t->uses.len && !uses; i++) {
        const Name *n = t->uses.data[i].name;
        uses = n && n->kind == NAME_FN && strcmp(n->name, fn) == 0 && n->span.file != file &&
               strcmp(text_first(c, c->sources.data[n->span.file].path), text_first(c, r->a->path)) == 0;
    }
    compiler_free(c);
    return uses;
}

/* A file that the editor has open, or that stands beside this one; NULL: there is none. */
static const char *other_user(const Request *r, const Name *n)
{
    enum { MAX_BESIDE = 2000 };
    Compiler *c = r->a->c;
    if (n->kind != NAME_FN || n->cell)
        return NULL;
    for (Document *d = r->s->documents; d; d = d->next) {
        const Analysis *a = d != r->d ? document_look(r->s, d) : NULL;
        for (int i = 0; a && a->names && i < a->names->uses.len; i++) {
            const Name *x = a->names->uses.data[i].name;
            if (x && x->kind == NAME_FN && strcmp(x->name, n->name) == 0 && x->span.file != a->file &&
                strcmp(a->c->sources.data[x->span.file].path, r->a->path) == 0)
                return intern(c, d->path);
        }
    }
    const char *slash = strrchr(r->a->path, '/'), *found = NULL;
    DIR *dir = slash ? opendir(intern_n(c, r->a->path, (size_t)(slash - r->a->path) + 1)) : NULL;
    for (int left = MAX_BESIDE; dir && left && !found; left--) {
        const struct dirent *e = readdir(dir);
        if (!e)
            break;
        size_t len = strlen(e->d_name);
        const char *path = intern_f(c, "%.*s/%s", (int)(slash - r->a->path), r->a->path, e->d_name);
        if (len > 5 && strcmp(e->d_name + len - 5, ".cell") == 0 && !document_at(r->s, path) &&
            file_uses(r, path, n->name))
            found = path;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* ---- the text afterwards */

/* The place of a name gets it: of d_u, which is called after the parameter u, behind its "d_". */
static bool is_renamed(const Use *u, const Name *n)
{
    return u->name && (u->name == n || u->name->of == n);
}

static uint32_t renamed_from(const Use *u, const Name *n)
{
    return u->span.lo + (u->name == n ? 0 : 2);
}

static void write_renamed(const Request *r, const Name *n, const char *name, Buf *out)
{
    const Source *s = &r->a->c->sources.data[r->a->file];
    uint32_t at = 0;
    for (int i = 0; i < r->a->names->uses.len; i++) {
        const Use *u = &r->a->names->uses.data[i];
        if (!is_renamed(u, n) || u->span.lo < at)
            continue;
        buf_f(out, "%.*s%s", (int)(renamed_from(u, n) - at), s->text + at, name);
        at = u->span.hi;
    }
    buf_f(out, "%s", s->text + at);
}

/* Does each place name what it named? */
static bool same_meaning(Arena *arena, const NameTable *a, const NameTable *b)
{
    NameMap there = { 0 }, back = { 0 };
    if (a->uses.len != b->uses.len)
        return false;
    for (int i = 0; i < a->uses.len; i++) {
        Name *x = a->uses.data[i].name, *y = b->uses.data[i].name;
        if (!x != !y)
            return false;
        if (!x)
            continue;
        const char *from = (const char *)x, *to = (const char *)y;
        if ((map_get(&there, from) && map_get(&there, from) != y) ||
            (map_get(&back, to) && map_get(&back, to) != x))
            return false;
        map_put(arena, &there, from, y);
        map_put(arena, &back, to, x);
    }
    return true;
}

static const char *first_error(Compiler *c, const Analysis *b)
{
    for (int i = 0; i < b->faults.len; i++)
        if (b->faults.data[i].first->level == DIAG_ERROR)
            return intern(c, b->faults.data[i].first->text);
    return "the text would have errors";
}

static const char *changes_meaning(const Request *r, const Name *n, const char *name)
{
    Buf text = { .arena = r->m->arena };
    write_renamed(r, n, name, &text);
    Analysis *b = document_try(r->s, r->d, text.data, text.len);
    analysis_finish(r->a);
    analysis_finish(b);
    const char *why = NULL;
    if (!b->parsed || (r->a->sound && !b->sound))
        why = first_error(r->a->c, b);
    else if (!b->names || !same_meaning(r->m->arena, r->a->names, b->names))
        why = intern_f(r->a->c, "'%s' has another meaning where '%s' stands", name, n->name);
    analysis_free(b);
    return why;
}

static void put_edits(Request *r, const Name *n, const char *name)
{
    uint32_t at = 0;
    bool any = false;
    buf_f(&r->out, "{\"changes\": {");
    put_string(&r->out, r->d->uri);
    buf_f(&r->out, ": [");
    for (int i = 0; i < r->a->names->uses.len; i++) {
        const Use *u = &r->a->names->uses.data[i];
        if (!is_renamed(u, n) || u->span.lo < at)
            continue;
        buf_f(&r->out, any ? ", {" : "{");
        put_range(r->s, r->d, "range", renamed_from(u, n), u->span.hi, &r->out);
        buf_f(&r->out, ", \"newText\": ");
        put_string(&r->out, name);
        buf_f(&r->out, "}");
        at = u->span.hi;
        any = true;
    }
    buf_f(&r->out, "]}}");
}

int answer_rename(Request *r, const char **why)
{
    const char *text = json_text(json_member(r->params, "newName"));
    const Use *u = renamed_use(r, why);
    if (!text) {
        *why = "the new name is missing";
        return RPC_INVALID_PARAMS;
    }
    if (!u)
        return RPC_FAILED;
    const char *name = intern(r->a->c, text), *user = NULL;
    const Name *n = u->name;
    if (name == n->name)
        return 0;
    *why = is_no_name(r->a->c, name);
    if (!*why)
        *why = is_taken(r->a->names, n, name);
    if (!*why && (user = other_user(r, n)))
        *why = intern_f(r->a->c, "fn '%s' is used in another file, %s", n->name, user);
    if (!*why)
        *why = changes_meaning(r, n, name);
    if (*why)
        return RPC_FAILED;
    put_edits(r, n, name);
    return 0;
}
