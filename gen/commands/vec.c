/* vec.c: reads and writes vector files. What comes in is any sequence of bytes; what goes out is the tensors,
 * each with exactly the values its header promises, or an error that names the line. Nothing is allocated on
 * a header's word alone, so that a broken file costs no more memory than its own length. */
#include "base/say.h"
#include "vec.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const vec_kind_names[VK_COUNT] = {
    "input", "param", "state", "output", "final", "dout", "dfinal", "dinput", "dparam", "dstate", "value",
};

enum { MAX_TOKEN = 256, MAX_COMMENT = 1 << 20 };

typedef struct Reader {
    FILE *in;
    VecFile *f;
    VecPlace at;                  /* of the next character */
    VecPlace start;               /* of the token */
    char token[MAX_TOKEN];
} Reader;

bool vec_fail(VecFile *f, VecPlace at, const char *fmt, ...)
{
    va_list args;
    if (f->error[0])
        return false;
    va_start(args, fmt);
    vsnprintf(f->error, sizeof f->error, fmt, args);
    va_end(args);
    f->error_place = at;
    return false;
}

void vec_print_error(const VecFile *f, const char *path)
{
    if (f->error_place.line)
        say_at(DIAG_ERROR, path, f->error_place.line, f->error_place.column, "%s", f->error);
    else
        say_at(DIAG_ERROR, path, 0, 0, "%s", f->error);
    if (f->note && f->note_place.line)
        say_at(DIAG_NOTE, path, f->note_place.line, f->note_place.column, "%s", f->note);
}

static bool fail(Reader *r, VecPlace at, const char *what, const char *detail)
{
    return vec_fail(r->f, at, "%s%s%.64s%s", what, detail ? " '" : "", detail ? detail : "",
                    detail ? "'" : "");
}

static int take_char(Reader *r)
{
    int ch = getc(r->in);
    if (ch != EOF)
        r->at.column++;
    if (ch == '\n')
        r->at = (VecPlace){r->at.line + 1, 1};
    return ch;
}

VecFile *vec_new(void)
{
    VecFile *f = calloc(1, sizeof *f);
    if (f && !(f->comment = calloc(1, 1))) {
        free(f);
        return NULL;
    }
    return f;
}

void vec_free(VecFile *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->ntensors; i++)
        free(f->tensors[i].values);
    free(f->tensors);
    free(f->sizes);
    free(f->comment);
    free(f);
}

VecTensor *vec_find(const VecFile *f, VecKind kind, const char *name)
{
    for (int i = 0; i < f->ntensors; i++)
        if (f->tensors[i].kind == kind && strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

const VecSize *vec_find_size(const VecFile *f, const char *name)
{
    for (int i = 0; i < f->nsizes; i++)
        if (strcmp(f->sizes[i].name, name) == 0)
            return &f->sizes[i];
    return NULL;
}

bool vec_size(const VecFile *f, const char *name, int64_t *value)
{
    const VecSize *size = vec_find_size(f, name);
    if (size)
        *value = size->value;
    return size != NULL;
}

static bool append_comment(VecFile *f, const char *text, size_t n)
{
    if (f->comment_len + n > MAX_COMMENT)
        return true;
    char *grown = realloc(f->comment, f->comment_len + n + 1);
    if (!grown)
        return false;
    memcpy(grown + f->comment_len, text, n);
    f->comment_len += n;
    grown[f->comment_len] = 0;
    f->comment = grown;
    return true;
}

bool vec_add_comment(VecFile *f, const char *line)
{
    return append_comment(f, "# ", 2) && append_comment(f, line, strlen(line)) && append_comment(f, "\n", 1);
}

bool vec_add_size(VecFile *f, const char *name, int64_t value)
{
    if (strlen(name) >= VEC_NAME)
        return false;
    VecSize *grown = realloc(f->sizes, sizeof *grown * (size_t)(f->nsizes + 1));
    if (!grown)
        return false;
    f->sizes = grown;
    VecSize *size = &grown[f->nsizes++];
    *size = (VecSize){.value = value};
    strcpy(size->name, name);
    return true;
}

/* The number of values, or false when it does not fit in memory's address space. */
static bool count_values(int rank, const int64_t *dims, size_t *count)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0 || __builtin_mul_overflow(n, (size_t)dims[i], &n))
            return false;
    }
    *count = n;
    return n <= SIZE_MAX / sizeof(double);
}

static VecTensor *add_header(VecFile *f, VecKind kind, const char *name, int rank, const int64_t *dims)
{
    size_t count;
    if (strlen(name) >= VEC_NAME || rank > VEC_MAX_RANK || !count_values(rank, dims, &count) ||
        vec_find(f, kind, name))
        return NULL;
    if (f->ntensors == f->cap) {
        int cap = f->cap ? 2 * f->cap : 16;
        VecTensor *grown = realloc(f->tensors, sizeof *grown * (size_t)cap);
        if (!grown)
            return NULL;
        f->tensors = grown;
        f->cap = cap;
    }
    VecTensor *t = &f->tensors[f->ntensors++];
    memset(t, 0, sizeof *t);
    t->kind = kind;
    strcpy(t->name, name);
    t->rank = rank;
    if (rank)
        memcpy(t->dims, dims, sizeof *dims * (size_t)rank);
    t->count = count;
    return t;
}

VecTensor *vec_add(VecFile *f, VecKind kind, const char *name, int rank, const int64_t *dims)
{
    VecTensor *t = add_header(f, kind, name, rank, dims);
    if (!t)
        return NULL;
    t->values = calloc(t->count ? t->count : 1, sizeof *t->values);
    if (!t->values) {
        f->ntensors--;
        return NULL;
    }
    return t;
}

/* One NAME=INTEGER; anything else is an error, since a wrong size would be found much later. */
static bool read_size(Reader *r, const char *word, size_t n, VecPlace at)
{
    char item[VEC_NAME + 24], *rest;
    if (n >= sizeof item)
        return fail(r, at, "a size is too long", NULL);
    memcpy(item, word, n);
    item[n] = 0;
    char *eq = strchr(item, '=');
    if (!eq || eq == item)
        return fail(r, at, "expected NAME=SIZE in the sizes, found", item);
    *eq = 0;
    errno = 0;
    long long value = strtoll(eq + 1, &rest, 10);
    if (*rest || rest == eq + 1 || value < 0)
        return fail(r, at, "expected a whole number as the size of", item);
    if (errno)
        return fail(r, at, "this size is too large:", item);
    if (vec_find_size(r->f, item))
        return fail(r, at, "this size is given twice:", item);
    if (!vec_add_size(r->f, item, value))
        return fail(r, at, "bad size", item);
    r->f->sizes[r->f->nsizes - 1].place = at;
    return true;
}

/* The text behind `# sizes:`, which begins at a place of the file. */
static bool read_sizes(Reader *r, const char *text, const char *end, VecPlace at)
{
    for (const char *p = text; p < end;) {
        const char *word = p;
        while (p < end && !isspace((unsigned char)*p))
            p++;
        if (p > word && !read_size(r, word, (size_t)(p - word),
                                   (VecPlace){at.line, at.column + (int)(word - text)}))
            return false;
        while (p < end && isspace((unsigned char)*p))
            p++;
    }
    return true;
}

/* The rest of a comment line, the '#' already read. Only its first 4 kB are kept. */
static bool read_comment(Reader *r)
{
    VecPlace at = {r->at.line, r->at.column - 1};
    char text[4096];
    size_t n = 0;
    int ch;
    text[n++] = '#';
    while ((ch = take_char(r)) != EOF && ch != '\n')
        if (n < sizeof text - 1)
            text[n++] = (char)ch;
    text[n++] = '\n';
    if (!append_comment(r->f, text, n))
        return fail(r, at, "out of memory", NULL);
    const char *p = text + 1, *end = text + n - 1;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    at.column += (int)(p + 6 - text);
    return end - p < 6 || memcmp(p, "sizes:", 6) != 0 || read_sizes(r, p + 6, end, at);
}

/* The next word; false at the end of the file or (same_line) of the line. Comments between words are taken
 * too. */
static bool next_token(Reader *r, bool same_line)
{
    int ch;
    for (;;) {
        ch = take_char(r);
        if (ch == EOF)
            return false;
        if (ch == '\n') {
            if (same_line)
                return false;
        } else if (ch == '#' && !same_line) {
            if (!read_comment(r))
                return false;
        } else if (!isspace(ch)) {
            break;
        }
    }
    VecPlace before = r->start = (VecPlace){r->at.line, r->at.column - 1};
    size_t n = 0;
    while (ch != EOF && !isspace(ch)) {
        if (n + 1 >= sizeof r->token)
            return fail(r, r->start, "a word is too long", NULL);
        if (ch == 0)
            return fail(r, r->start, "a zero byte: this is not a text file", NULL);
        r->token[n++] = (char)ch;
        before = r->at;
        ch = take_char(r);
    }
    if (ch != EOF) {
        ungetc(ch, r->in);
        r->at = before;
    }
    r->token[n] = 0;
    return true;
}

static bool read_dims(Reader *r, int64_t *dims, int *rank)
{
    *rank = 0;
    while (next_token(r, true)) {
        char *rest;
        errno = 0;
        long long v = strtoll(r->token, &rest, 10);
        if (errno || *rest || v < 0)
            return fail(r, r->start, "expected a size in the tensor's header, found", r->token);
        if (*rank == VEC_MAX_RANK)
            return fail(r, r->start, "too many axes", NULL);
        dims[(*rank)++] = v;
    }
    return !r->f->error[0];
}

static bool read_values(Reader *r, VecTensor *t)
{
    size_t cap = 0;
    for (size_t n = 0; n < t->count; n++) {
        if (!next_token(r, false)) {
            char text[96];
            snprintf(text, sizeof text, "the file ends after %zu of %zu values of", n, t->count);
            return fail(r, r->at, text, t->name);
        }
        if (n == cap) {
            cap = cap ? 2 * cap : 64;
            if (cap > t->count)
                cap = t->count;
            double *grown = realloc(t->values, sizeof *grown * cap);
            if (!grown)
                return fail(r, r->at, "out of memory for", t->name);
            t->values = grown;
        }
        char *rest;
        t->values[n] = strtod(r->token, &rest);
        if (*rest) {
            char text[160];
            snprintf(text, sizeof text, "value %zu of %.64s is not a number:", n, t->name);
            return fail(r, r->start, text, r->token);
        }
    }
    if (!t->values && !(t->values = calloc(1, sizeof *t->values)))
        return fail(r, r->at, "out of memory for", t->name);
    return true;
}

static bool read_tensor(Reader *r)
{
    VecPlace header = r->start, named;
    int kind = 0;
    if (strcmp(r->token, "tensor") != 0)
        return fail(r, header, "expected 'tensor KIND NAME SIZES', found", r->token);
    if (!next_token(r, true))
        return fail(r, header, "the tensor's kind is missing", NULL);
    while (kind < VK_COUNT && strcmp(r->token, vec_kind_names[kind]) != 0)
        kind++;
    if (kind == VK_COUNT)
        return fail(r, r->start, "unknown kind of tensor", r->token);
    if (!next_token(r, true))
        return fail(r, header, "the tensor's name is missing", NULL);
    char name[MAX_TOKEN];
    strcpy(name, r->token);
    named = r->start;
    int64_t dims[VEC_MAX_RANK];
    int rank;
    if (!read_dims(r, dims, &rank))
        return false;
    if (vec_find(r->f, (VecKind)kind, name))
        return fail(r, named, "this tensor is given twice:", name);
    VecTensor *t = add_header(r->f, (VecKind)kind, name, rank, dims);
    if (!t)
        return fail(r, named, "the name or the sizes of this tensor are too large:", name);
    t->place = header;
    if (read_values(r, t))
        return true;
    free(t->values);              /* a tensor that was not read to its end must not be looked at */
    r->f->ntensors--;
    return false;
}

VecFile *vec_read_stream(FILE *in)
{
    VecFile *f = vec_new();
    if (!f)
        return NULL;
    Reader r = {.in = in, .f = f, .at = {1, 1}};
    while (next_token(&r, false) && read_tensor(&r))
        ;
    if (ferror(in))
        fail(&r, r.at, strerror(errno), NULL);
    return f;
}

VecFile *vec_read(const char *path)
{
    FILE *in = fopen(path, "rb");
    if (in) {
        VecFile *f = vec_read_stream(in);
        fclose(in);
        return f;
    }
    VecFile *f = vec_new();
    if (f)
        vec_fail(f, (VecPlace){0, 0}, "cannot open it: %s", strerror(errno));
    return f;
}

static void write_tensor(const VecTensor *t, FILE *out)
{
    fprintf(out, "tensor %s %s", vec_kind_names[t->kind], t->name);
    for (int i = 0; i < t->rank; i++)
        fprintf(out, " %lld", (long long)t->dims[i]);
    for (size_t i = 0; i < t->count; i++)
        fprintf(out, "%c%.17g", i % 8 ? ' ' : '\n', t->values[i]);
    putc('\n', out);
}

bool vec_write(const VecFile *f, FILE *out)
{
    fwrite(f->comment, 1, f->comment_len, out);
    if (f->nsizes && !strstr(f->comment, "# sizes:")) {
        fputs("# sizes:", out);
        for (int i = 0; i < f->nsizes; i++)
            fprintf(out, " %s=%lld", f->sizes[i].name, (long long)f->sizes[i].value);
        putc('\n', out);
    }
    for (int i = 0; i < f->ntensors; i++)
        write_tensor(&f->tensors[i], out);
    return fflush(out) == 0 && !ferror(out);
}
