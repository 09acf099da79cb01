/* texts.c: the texts that a command reads, each once. In: paths, or one file in which `cellc sources --pack` has put a
 * spec with all that it imports. Out: what is in them. Guaranteed: all compilations of a command see the same text of a
 * path, whatever happens to the file meanwhile, and may read from a pipe; of a pack, nothing else is read; a file has one
 * text, however its path is spelt and through whatever links it is reached.
 *
 * A pack is a line "cellc sources 1", then for each text a line "KIND PATH-LENGTH TEXT-LENGTH" in bytes, the path, a
 * newline, the text, a newline. The first text is the spec. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "say.h"
#include "texts.h"

typedef struct Text {
    TextKind kind;
    const char *path, *text;
    size_t len;
    bool of_file;                 /* then it is this one: */
    dev_t device;
    ino_t inode;
} Text;

typedef struct Texts {
    Arena *arena;
    Vec(Text) list;
    bool closed;
    int users;                    /* compilations */
} Texts;

_Static_assert(MAX_TEXT_MB == 8, "read_all says how many");
static const char head[] = "cellc sources 1\n";
static const char *const kind_names[] = {
    [TEXT_SPEC] = "spec",
    [TEXT_IMPORT] = "import",
    [TEXT_TUNED] = "tuned",
    [TEXT_SAME] = "same",
    [TEXT_IMPORT_DIR] = "import-dir",
    [TEXT_LIBRARY_DIR] = "library-dir",
};
enum { MAX_PACK_MB = 1024, N_KINDS = sizeof kind_names / sizeof *kind_names };

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

/* Keeps a text under its path; the copy of it lives as long as any compilation that shares it. */
static Text *add(Compiler *c, TextKind kind, const char *path, const char *text, size_t len)
{
    Texts *t = c->texts;
    char *copy = arena_alloc(t->arena, len + 1), *name = arena_alloc(t->arena, strlen(path) + 1);
    if (len)
        memcpy(copy, text, len);
    strcpy(name, path);
    Text one = { .kind = kind, .path = name, .text = copy, .len = len };
    vec_push(t->arena, &t->list, one);
    return &t->list.data[t->list.len - 1];
}

/* The path without "." and empty parts, and without "d/..", as far as its letters say. `plain` has room for
 * PATH_MAX. */
static void plain_path(const char *path, char *plain)
{
    size_t n = 0;
    *plain = 0;
    for (const char *p = path; *p;) {
        size_t len = strcspn(p, "/");
        char *slash = strrchr(plain, '/'), *last = slash ? slash + 1 : plain;
        if (len == 2 && memcmp(p, "..", 2) == 0 && *last && strcmp(last, "..") != 0) {
            n = slash ? (size_t)(slash - plain) : 0;
        } else if (len && !(len == 1 && *p == '.') && n + len + 2 < PATH_MAX) {
            if (n || *path == '/')
                plain[n++] = '/';
            memcpy(plain + n, p, len);
            n += len;
        }
        plain[n] = 0;
        p += len + (p[len] != 0);
    }
}

/* The first text whose path is this one in other letters. */
static const Text *find_spelt(const Compiler *c, const char *path)
{
    char wanted[PATH_MAX], plain[PATH_MAX];
    plain_path(path, wanted);
    for (int i = 0; i < c->texts->list.len; i++) {
        const Text *one = &c->texts->list.data[i];
        plain_path(one->path, plain);
        if (one->kind < TEXT_SAME && strcmp(plain, wanted) == 0)
            return one;
    }
    return NULL;
}

/* The text that a path leads to, as far as what was kept says, or NULL. */
static const Text *find(const Compiler *c, const char *path)
{
    const Text *list = c->texts->list.data;
    for (int i = 0; i < c->texts->list.len; i++) {
        if (list[i].kind >= TEXT_IMPORT_DIR || strcmp(list[i].path, path) != 0)
            continue;
        if (list[i].kind != TEXT_SAME)
            return &list[i];
        path = list[i].text;      /* of a text before it, unless the pack is not one of ours */
        for (int k = 0; k < i; k++)
            if (list[k].kind < TEXT_SAME && strcmp(list[k].path, path) == 0)
                return &list[k];
    }
    return texts_closed(c) ? find_spelt(c, path) : NULL;
}

const char *text_first(Compiler *c, const char *path)
{
    const Text *found = find(c, path);
    struct stat st;
    if (found || texts_closed(c) || stat(path, &st) != 0)
        return found ? found->path : path;
    for (int i = 0; i < c->texts->list.len; i++) {
        found = &c->texts->list.data[i];
        if (!found->of_file || found->device != st.st_dev || found->inode != st.st_ino)
            continue;
        add(c, TEXT_SAME, path, found->path, strlen(found->path));
        return c->texts->list.data[i].path;
    }
    return path;
}

/* The whole of a stream in malloc'ed memory; NULL with *why set. Works on pipes, so no size is asked for
 * first. */
static char *read_all(FILE *f, int most_mb, size_t *len, const char **why)
{
    size_t cap = 1 << 16, n = 0;
    char *text = malloc(cap);
    while (text) {
        n += fread(text + n, 1, cap - n, f);
        if (n > (size_t)most_mb << 20) {
            *why = most_mb == MAX_TEXT_MB ? "it has more than 8 MB" : "it has more than 1 GB";
            free(text);
            return NULL;
        }
        if (n < cap)
            break;
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

static bool ends_in_cell(const char *path)
{
    size_t n = strlen(path), end = sizeof ".cell" - 1;
    return n > end && strcmp(path + n - end, ".cell") == 0;
}

/* NULL with *why set. To open a pipe that is imported would wait for its writer. */
static FILE *open_text(TextKind kind, const char *path, struct stat *st, const char **why)
{
    char full[PATH_MAX];
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (kind == TEXT_SPEC ? 0 : O_NONBLOCK));
    bool found = file >= 0 && fstat(file, st) == 0;
    *why = NULL;
    if (!found || (kind == TEXT_IMPORT && !realpath(path, full)))
        *why = strerror(errno);
    else if (S_ISDIR(st->st_mode))
        *why = "it is a directory";
    else if (kind != TEXT_SPEC && !S_ISREG(st->st_mode))
        *why = "it is not a regular file";
    else if (kind == TEXT_IMPORT && !ends_in_cell(full))
        *why = "it is a link to a file whose name does not end in .cell";
    FILE *f = *why ? NULL : fdopen(file, "rb");
    if (!f && !*why)
        *why = strerror(errno);
    if (!f && file >= 0)
        close(file);
    return f;
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
    struct stat st;
    FILE *f = open_text(kind, path, &st, why);
    if (!f)
        return NULL;
    *what = "read";
    char *text = read_all(f, MAX_TEXT_MB, len, why);
    fclose(f);
    Text *kept = text ? add(c, kind, path, text, *len) : NULL;
    free(text);
    if (!kept)
        return NULL;
    kept->of_file = true;
    kept->device = st.st_dev;
    kept->inode = st.st_ino;
    return kept->text;
}

void text_put(Compiler *c, const char *path, const char *text, size_t len)
{
    struct stat st;
    Text *kept = add(c, TEXT_SPEC, path, text, len);
    kept->of_file = stat(path, &st) == 0;
    kept->device = kept->of_file ? st.st_dev : 0;
    kept->inode = kept->of_file ? st.st_ino : 0;
}

bool text_is_there(const Compiler *c, const char *path)
{
    struct stat st;
    return find(c, path) || (!texts_closed(c) && stat(path, &st) == 0 && !S_ISDIR(st.st_mode));
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

/* Beside files, a text that is the one of the file at its path counts as that file. */
static void keep_file(Text *t, bool closed)
{
    struct stat st;
    size_t len = 0;
    const char *why;
    FILE *f = closed || t->kind > TEXT_IMPORT ? NULL : open_text(TEXT_TUNED, t->path, &st, &why);
    char *text = f ? read_all(f, MAX_TEXT_MB, &len, &why) : NULL;
    if (f)
        fclose(f);
    t->of_file = text && len == t->len && memcmp(text, t->text, len) == 0;
    t->device = t->of_file ? st.st_dev : 0;
    t->inode = t->of_file ? st.st_ino : 0;
    free(text);
}

static bool read_pack(Compiler *c, const char *p, const char *end, bool closed)
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
        keep_file(add(c, (TextKind)kind, intern_n(c, p, path), p + path + 1, text), closed);
        p += path + text + 2;
    }
    return texts_path(c, TEXT_SPEC, 0) != NULL;
}

bool texts_read(Compiler *c, const char *path, bool closed)
{
    size_t len;
    const char *why = NULL;
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *text = in ? read_all(in, MAX_PACK_MB, &len, &why) : NULL;
    if (!text)
        why = in ? why : strerror(errno);
    if (in && in != stdin)
        fclose(in);
    if (text && !read_pack(c, text, text + len, closed))
        why = "it is not what `cellc sources --pack` writes";
    free(text);
    if (why) {
        say(DIAG_ERROR, NULL, "cannot read the sources in '%s': %s", path, why);
        return false;
    }
    c->texts->closed = closed;
    if (closed) {           /* and not where they are looked for here */
        c->import_dir = texts_path(c, TEXT_IMPORT_DIR, 0);
        c->library_dir = texts_path(c, TEXT_LIBRARY_DIR, 0);
    }
    return true;
}
