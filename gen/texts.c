/* texts.c: the texts that a command reads, each once. In: paths, or one file in which `cellc sources --pack` has put a
 * spec with all that it imports. Out: what is in them. Guaranteed: all compilations of a command see the same text of a
 * path, whatever happens to the file meanwhile, and may read from a pipe; of a pack, nothing else is read.
 *
 * A pack is a line "cellc sources 1", then for each text a line "KIND PATH-LENGTH TEXT-LENGTH" in bytes, the path, a
 * newline, the text, a newline. The first text is the spec. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "texts.h"

typedef struct Text {
    TextKind kind;
    const char *path, *text;
    size_t len;
} Text;

typedef struct Texts {
    Arena *arena;
    Vec(Text) list;
    bool closed;
    int users;                    /* compilations */
} Texts;

static const char head[] = "cellc sources 1\n";
static const char *const kind_names[] = {
    [TEXT_SPEC] = "spec",
    [TEXT_IMPORT] = "import",
    [TEXT_TUNED] = "tuned",
    [TEXT_IMPORT_DIR] = "import-dir",
    [TEXT_LIBRARY_DIR] = "library-dir",
};
enum { MAX_SOURCE = 64 << 20, N_KINDS = sizeof kind_names / sizeof *kind_names };

void texts_open(Compiler *c)
{
    Arena *arena = arena_new();
    c->texts = arena_alloc(arena, sizeof *c->texts);
    *c->texts = (Texts) { .arena = arena, .users = 1 };
}

void texts_release(Compiler *c)
{
    if (--c->texts->users == 0)
        arena_free(c->texts->arena);
    c->texts = NULL;
}

void texts_share(Compiler *to, const Compiler *from)
{
    from->texts->users++;
    texts_release(to);
    to->texts = from->texts;
}

bool texts_closed(const Compiler *c)
{
    return c->texts->closed;
}

/* Keeps a text under its path; gives the copy, which lives as long as any compilation that shares it. */
static const char *add(Compiler *c, TextKind kind, const char *path, const char *text, size_t len)
{
    Texts *t = c->texts;
    char *copy = arena_alloc(t->arena, len + 1), *name = arena_alloc(t->arena, strlen(path) + 1);
    if (len)
        memcpy(copy, text, len);
    strcpy(name, path);
    Text one = { .kind = kind, .path = name, .text = copy, .len = len };
    vec_push(t->arena, &t->list, one);
    return copy;
}

/* The one with that path that is a file, or NULL. */
static const Text *find(const Compiler *c, const char *path)
{
    for (int i = 0; i < c->texts->list.len; i++) {
        const Text *one = &c->texts->list.data[i];
        if (one->kind < TEXT_IMPORT_DIR && strcmp(one->path, path) == 0)
            return one;
    }
    return NULL;
}

/* The whole of a stream in malloc'ed memory; NULL with *why set. Works on pipes, so no size is asked for
 * first. */
static char *read_all(FILE *f, size_t *len, const char **why)
{
    size_t cap = 1 << 16, n = 0;
    char *text = malloc(cap);
    while (text) {
        n += fread(text + n, 1, cap - n, f);
        if (n < cap)
            break;
        if (cap > MAX_SOURCE) {
            *why = "larger than 64 MB";
            free(text);
            return NULL;
        }
        char *more = realloc(text, cap *= 2);
        if (!more)
            free(text);
        text = more;
    }
    if (!text || ferror(f)) {
        *why = text ? strerror(errno) : "out of memory";
        free(text);
        return NULL;
    }
    *len = n;
    return text;
}

const char *text_load(Compiler *c, TextKind kind, const char *path, size_t *len, const char **what, const char **why)
{
    const Text *found = find(c, path);
    *what = "open";
    if (found) {
        *len = found->len;
        return found->text;
    }
    if (texts_closed(c)) {
        *why = "it is not among the sources that were given";
        return NULL;
    }
    FILE *f = fopen(path, "rb");
    if (!f) {
        *why = strerror(errno);
        return NULL;
    }
    *what = "read";
    char *text = read_all(f, len, why);
    fclose(f);
    const char *kept = text ? add(c, kind, path, text, *len) : NULL;
    free(text);
    return kept;
}

bool text_is_there(const Compiler *c, const char *path)
{
    if (find(c, path) || texts_closed(c))
        return find(c, path) != NULL;
    FILE *in = fopen(path, "rb");
    if (in)
        fclose(in);
    return in != NULL;
}

const char *texts_path(const Compiler *c, TextKind kind, int n)
{
    for (int i = 0; i < c->texts->list.len; i++)
        if (c->texts->list.data[i].kind == kind && n-- == 0)
            return c->texts->list.data[i].path;
    return NULL;
}

/* ---- packs */

static void put(FILE *out, TextKind kind, const char *path, const char *text, size_t len)
{
    fprintf(out, "%s %zu %zu\n%s\n", kind_names[kind], strlen(path), len, path);
    fwrite(text, 1, len, out);
    fputc('\n', out);
}

void texts_write(const Compiler *c, FILE *out)
{
    fputs(head, out);
    for (int i = 0; i < c->texts->list.len; i++) {
        const Text *one = &c->texts->list.data[i];
        put(out, one->kind, one->path, one->text, one->len);
    }
    if (c->import_dir && !texts_path(c, TEXT_IMPORT_DIR, 0))
        put(out, TEXT_IMPORT_DIR, c->import_dir, "", 0);
    if (c->library_dir && !texts_path(c, TEXT_LIBRARY_DIR, 0))
        put(out, TEXT_LIBRARY_DIR, c->library_dir, "", 0);
}

/* "KIND PATH-LENGTH TEXT-LENGTH\n" at *p, which moves behind it; N_KINDS where there is none. */
static int read_entry(const char **p, const char *end, size_t *path, size_t *text)
{
    const char *line = *p, *stop = memchr(line, '\n', (size_t)(end - line));
    for (int k = 0; stop && k < N_KINDS; k++) {
        size_t n = strlen(kind_names[k]);
        if (n >= (size_t)(stop - line) || memcmp(line, kind_names[k], n) != 0 || line[n] != ' ')
            continue;
        char *after;
        *path = strtoul(line + n + 1, &after, 10);
        *text = *after == ' ' ? strtoul(after + 1, &after, 10) : 0;
        *p = stop + 1;
        return after == stop ? k : N_KINDS;
    }
    return N_KINDS;
}

static bool read_pack(Compiler *c, const char *p, const char *end)
{
    size_t path, text;
    if ((size_t)(end - p) < sizeof head - 1 || memcmp(p, head, sizeof head - 1) != 0)
        return false;
    p += sizeof head - 1;
    while (p < end) {
        int kind = read_entry(&p, end, &path, &text);
        size_t left = (size_t)(end - p);
        if (kind == N_KINDS || path > left || text > left || path + text + 2 > left)
            return false;
        if (p[path] != '\n' || p[path + 1 + text] != '\n' || memchr(p, 0, path))
            return false;
        if ((kind == TEXT_SPEC) != (texts_path(c, TEXT_SPEC, 0) == NULL))
            return false;
        add(c, (TextKind)kind, intern_n(c, p, path), p + path + 1, text);
        p += path + text + 2;
    }
    return texts_path(c, TEXT_SPEC, 0) != NULL;
}

bool texts_read(Compiler *c, const char *path, bool closed)
{
    size_t len;
    const char *why = NULL;
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *text = in ? read_all(in, &len, &why) : NULL;
    if (!text)
        why = in ? why : strerror(errno);
    if (in && in != stdin)
        fclose(in);
    if (text && !read_pack(c, text, text + len))
        why = "it is not what `cellc sources --pack` writes";
    free(text);
    if (why) {
        fprintf(stderr, "cellc: cannot read the sources in '%s': %s\n", path, why);
        return false;
    }
    c->texts->closed = closed;
    if (closed) {           /* and not where they are looked for here */
        c->import_dir = texts_path(c, TEXT_IMPORT_DIR, 0);
        c->library_dir = texts_path(c, TEXT_LIBRARY_DIR, 0);
    }
    return true;
}
