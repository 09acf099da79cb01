/* ir_parse.c: reads the IR's text form (ir_text.c). In: any bytes. Out: the module, with every node under the
 * id it was printed with, or NULL and a diagnostic at the first place that is not IR. Guaranteed: a module
 * that comes out satisfies ir_verify, is in the normal form that the builders make, and prints as the same
 * text; no input crashes or runs away. Names, settings, dtype and schedule of the compilation are set from
 * the text; the sources that spans point into are read again where they still lie, so that later diagnostics
 * show their lines. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "ir_raw.h"
#include "ops.h"
#include "schedule/schedule.h"

enum {
    MAX_POLY_TERMS = 256, MAX_POLY_DEGREE = 32, MAX_IX_TERMS = 256, MAX_LIST = 256, MAX_NESTING = 60,
    MAX_FILE = 1 << 26
};

typedef struct Reader {
    Compiler *c;
    Module *m;
    const char *text, *at, *end;
    int file;                     /* of the text itself */
    bool quiet; /* the caller says what is wrong */
    bool tried; /* attempts at a plan may have left nodes that no root needs */
    bool failed;
    int depth;
    NameMap dims, index_by_name, tensor_by_name;  /* -> number + 1 */
    Vec(int) sources;             /* number in the text -> file */
    Vec(CallSite *) calls;
    int *stamp;                   /* per index: the last list it was seen in */
    int stamps, stamp_cap;
} Reader;

/* ---- reading words ---- */

static void fail(Reader *r, const char *from, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fail(Reader *r, const char *from, const char *fmt, ...)
{
    if (r->failed)
        return;
    r->failed = true;
    if (r->quiet)
        return;
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_text(r->c->arena, fmt, ap);
    va_end(ap);
    const char *to = r->at > from ? r->at : from + (from < r->end && *from != '\n');
    Span s = { r->file, (uint32_t)(from - r->text), (uint32_t)(to - r->text) };
    diag(r->c, DIAG_ERROR, s, "%s", text);
}

static void skip(Reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t'))
        r->at++;
}

/* Where the next word starts, for a message about it. */
static const char *here(Reader *r)
{
    skip(r);
    return r->at;
}

static bool word_start(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
}

static bool digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

static bool peek(Reader *r, char ch)
{
    skip(r);
    return !r->failed && r->at < r->end && *r->at == ch;
}

static bool accept(Reader *r, char ch)
{
    bool found = peek(r, ch);
    r->at += found;
    return found;
}

static void expect(Reader *r, char ch)
{
    if (!accept(r, ch))
        fail(r, here(r), "expected '%c'", ch);
}

/* The word at the cursor is this one: taken. */
static bool accept_word(Reader *r, const char *word)
{
    size_t n = strlen(word);
    skip(r);
    if (r->failed || (size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    if (r->at + n < r->end && (word_start(r->at[n]) || digit(r->at[n])))
        return false;
    r->at += n;
    return true;
}

static void expect_word(Reader *r, const char *word)
{
    if (!accept_word(r, word))
        fail(r, here(r), "expected '%s'", word);
}

static const char *read_name(Reader *r)
{
    skip(r);
    const char *from = r->at;
    if (r->failed || r->at == r->end || !word_start(*r->at)) {
        fail(r, here(r), "expected a name");
        return intern(r->c, "");
    }
    while (r->at < r->end && (word_start(*r->at) || digit(*r->at)))
        r->at++;
    return intern_n(r->c, from, (size_t)(r->at - from));
}

/* A decimal integer up to the limit. */
static int64_t read_int(Reader *r, int64_t limit)
{
    skip(r);
    const char *from = here(r);
    int64_t v = 0;
    while (!r->failed && r->at < r->end && digit(*r->at)) {
        int d = *r->at++ - '0';
        if (v > (limit - d) / 10) {
            fail(r, from, "this number is too large");
            return 0;
        }
        v = 10 * v + d;
    }
    if (r->at == from)
        fail(r, from, "expected a number");
    return v;
}

static bool real_char(char ch)
{
    return word_start(ch) || digit(ch) || ch == '+' || ch == '-' || ch == '.';
}

static double read_real(Reader *r)
{
    skip(r);
    char word[64];
    size_t n = 0;
    const char *from = here(r);
    while (!r->failed && r->at < r->end && n + 1 < sizeof word && real_char(*r->at))
        word[n++] = *r->at++;
    word[n] = 0;
    char *rest;
    double v = strtod(word, &rest);
    if (n == 0 || *rest)
        fail(r, from, "expected a floating-point number");
    return v;
}

static int hex_digit(char ch)
{
    return digit(ch) ? ch - '0' : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

static const char *read_string(Reader *r)
{
    Buf b = { .arena = r->c->arena };
    const char *from = here(r);
    expect(r, '"');
    while (!r->failed && r->at < r->end && *r->at != '"' && *r->at != '\n') {
        char ch = *r->at++;
        if (ch == '\\' && r->at < r->end && *r->at == 'x') {
            int hi = r->end - r->at > 2 ? hex_digit(r->at[1]) : -1, lo = hi < 0 ? -1 : hex_digit(r->at[2]);
            if (hi < 0 || lo < 0 || hi + lo == 0) {
                fail(r, r->at - 1, "expected two hex digits, not both zero");
                break;
            }
            ch = (char)(16 * hi + lo);
            r->at += 3;
        } else if (ch == '\\' && r->at < r->end) {
            ch = *r->at++;
        }
        if (ch == 0)
            fail(r, r->at - 1, "a string holds a zero byte");
        buf_f(&b, "%c", ch);
    }
    if (!accept(r, '"'))
        fail(r, from, "this string does not end on its line");
    return b.data ? intern_n(r->c, b.data, b.len) : intern(r->c, "");
}

static void end_line(Reader *r)
{
    skip(r);
    if (r->at < r->end && *r->at == '\n')
        r->at++;
    else if (r->at < r->end)
        fail(r, here(r), "expected the end of the line");
}

typedef const char *(*NameOf)(const Module *, int);

/* A name alone means the first thing that is called so. */
static void name_first(Reader *r, NameMap *names, const char *name, int id)
{
    if (!map_get(names, name))
        map_put(r->c->arena, names, name, (void *)(intptr_t)(id + 1));
}

/* Number + 1 of a name, with its suffix ".7" where it has one; 0 when there is none. */
static int read_numbered(Reader *r, const NameMap *names, int count, NameOf name_of)
{
    const char *name = read_name(r);
    if (r->failed || r->at == r->end || *r->at != '.')
        return (int)(intptr_t)map_get(names, name);
    r->at++;
    int id = (int)read_int(r, INT32_MAX - 1);
    return !r->failed && id < count && name_of(r->m, id) == name ? id + 1 : 0;
}

static const char *index_name(const Module *m, int id)
{
    return m->indices.data[id].name;
}

static const char *tensor_name(const Module *m, int id)
{
    return m->tensors.data[id].name;
}

static TensorId read_tensor(Reader *r)
{
    const char *from = here(r);
    int t = read_numbered(r, &r->tensor_by_name, r->m->tensors.len, tensor_name);
    if (!t)
        fail(r, from, "there is no tensor of this name");
    return t - 1;
}

/* batch_time: the two that stand in reductions only are allowed. */
static IndexId read_index(Reader *r, bool batch_time)
{
    const char *from = here(r);
    int i = read_numbered(r, &r->index_by_name, r->m->indices.len, index_name);
    if (!i)
        fail(r, from, "there is no index of this name");
    else if (i - 1 < IX_FIRST && !batch_time)
        fail(r, from, "batch and time are no axes of a value");
    return i ? i - 1 : IX_FIRST;
}

static NodeId read_node_id(Reader *r)
{
    const char *from = here(r);
    expect(r, '%');
    NodeId id = (NodeId)read_int(r, INT32_MAX - 1);
    if (!r->failed && id >= r->m->nodes.len)
        fail(r, from, "%%%d is not defined above", id);
    return r->failed ? -1 : id;
}

static int read_choice(Reader *r, const char *const *names, const char *what)
{
    const char *from = here(r), *name = read_name(r);
    for (int i = 0; names[i] && !r->failed; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail(r, from, "expected a %s", what);
    return 0;
}

/* ---- sizes ---- */

static const Poly *read_poly(Reader *r);

static bool enter(Reader *r)
{
    if (++r->depth > MAX_NESTING)
        fail(r, here(r), "nested too deeply");
    return !r->failed;
}

static int degree(const Poly *p)
{
    int d = 0;
    for (int i = 0; i < p->nterms; i++)
        d = p->terms[i].natoms > d ? p->terms[i].natoms : d;
    return d;
}

static const Poly *times(Reader *r, const Poly *a, const Poly *b)
{
    if (a->nterms * b->nterms > MAX_POLY_TERMS || degree(a) + degree(b) > MAX_POLY_DEGREE) {
        fail(r, here(r), "this size is too large");
        return a;
    }
    return poly_mul(r->m, a, b);
}

static const Poly *read_quotient(Reader *r, const Poly *num)
{
    const char *from = here(r);
    const Poly *den = read_poly(r);
    const Module *m = r->m;
    for (int i = 0; i < m->quotients.len && !r->failed; i++)
        if (m->quotients.data[i].num == num && m->quotients.data[i].den == den)
            return poly_dim(r->m, MAX_DIMS + i);
    fail(r, from, "this quotient is not among those declared above");
    return num;
}

static int dim_number(const Reader *r, const char *name)
{
    int d = (int)(intptr_t)map_get(&r->dims, name);
    return d ? d - 1 : strcmp(name, "B") == 0 ? ATOM_B : strcmp(name, "T") == 0 ? ATOM_T : -1;
}

/* An integer, a dim, or what stands in parentheses: a size, or a quotient that is declared. */
static const Poly *read_poly_factor(Reader *r)
{
    Module *m = r->m;
    skip(r);
    if (r->at < r->end && digit(*r->at))
        return poly_const(m, read_int(r, INT64_MAX));
    if (accept(r, '(')) {
        if (!enter(r))
            return poly_const(m, 0);
        const Poly *p;
        if (!map_get(&r->dims, "t0") && accept_word(r, "t0")) {
            expect(r, '+');
            p = poly_dim(m, ATOM_PAST);
            if (!accept_word(r, "T"))
                fail(r, here(r), "expected 'T'");
        } else {
            p = read_poly(r);
        }
        if (accept(r, '/'))
            p = read_quotient(r, p);
        expect(r, ')');
        r->depth--;
        return p;
    }
    const char *from = here(r), *name = read_name(r);
    int d = dim_number(r, name);
    if (d < 0)
        fail(r, from, "there is no dim '%.60s'", name);
    return poly_dim(m, d < 0 ? 0 : d);
}

static const Poly *read_poly_term(Reader *r)
{
    const Poly *p = read_poly_factor(r);
    while (!r->failed && accept(r, '*'))
        p = times(r, p, read_poly_factor(r));
    return p;
}

static const Poly *read_poly(Reader *r)
{
    Module *m = r->m;
    const Poly *sum = poly_const(m, 0);
    bool minus = accept(r, '-');
    do {
        const Poly *t = read_poly_term(r);
        if (sum->nterms + t->nterms > MAX_POLY_TERMS)
            fail(r, here(r), "this size is too large");
        else
            sum = minus ? poly_sub(m, sum, t) : poly_add(m, sum, t);
        minus = peek(r, '-');
    } while (!r->failed && (accept(r, '+') || accept(r, '-')));
    return sum;
}

/* ---- index expressions ---- */

static const IxExpr *read_ix(Reader *r);

static void read_ix_call(Reader *r, IxTerm *t, IxAtomKind kind)
{
    t->kind = kind;
    expect(r, '(');
    if (enter(r))
        t->arg = read_ix(r);
    expect(r, ',');
    const char *from = here(r);
    t->by = r->failed ? poly_const(r->m, 1) : read_poly(r);
    if (t->by->nterms == 0)
        fail(r, from, "a division by zero");
    expect(r, ')');
    r->depth--;
}

/* An atom when one stands here: a call of div or mod, or a name that is no dim. */
static bool read_ix_atom(Reader *r, IxTerm *t)
{
    skip(r);
    if (r->at == r->end || !word_start(*r->at))
        return false;
    const char *from = here(r), *name = read_name(r);
    if (peek(r, '(') && (strcmp(name, "div") == 0 || strcmp(name, "mod") == 0)) {
        read_ix_call(r, t, name[0] == 'd' ? IA_DIV : IA_MOD);
        return true;
    }
    bool suffix = r->at < r->end && *r->at == '.';
    r->at = from;
    if (!suffix && dim_number(r, name) >= 0)
        return false;
    t->kind = IA_INDEX;
    t->index = read_index(r, true);
    if (!r->failed && t->index == IX_BATCH)
        fail(r, from, "the batch is no number in an index");
    return true;
}

static void read_ix_term(Reader *r, bool minus, const Poly **offset, IxTerm *terms, int *n)
{
    Module *m = r->m;
    IxTerm t = { .coef = poly_const(m, minus ? -1 : 1), .index = -1 };
    bool atom = false;
    do {
        const char *from = here(r);
        if (!read_ix_atom(r, &t))
            t.coef = times(r, t.coef, read_poly_factor(r));
        else if (atom)
            fail(r, from, "two indices in one product");
        else
            atom = true;
    } while (!r->failed && accept(r, '*'));
    if (!atom)
        *offset = poly_add(m, *offset, t.coef);
    else if (*n < MAX_IX_TERMS)
        terms[(*n)++] = t;
    else
        fail(r, here(r), "this index is too long");
    if ((*offset)->nterms > MAX_POLY_TERMS)
        fail(r, here(r), "this index is too long");
}

/* The order that ix_add makes: plain indices by id, then quotients, then remainders; each atom once, none
 * times zero. */
static bool in_normal_form(const IxTerm *t, int n)
{
    for (int i = 0; i < n; i++) {
        if (t[i].coef->nterms == 0 || (i && t[i].kind < t[i - 1].kind))
            return false;
        if (i && t[i].kind == IA_INDEX && t[i].index <= t[i - 1].index)
            return false;
        for (int k = 0; k < i && t[i].kind != IA_INDEX; k++)
            if (t[k].kind == t[i].kind && t[k].arg == t[i].arg && t[k].by == t[i].by)
                return false;
    }
    return true;
}

/* time: the number of the step may stand in it (index nodes only). */
static const IxExpr *read_ix(Reader *r)
{
    Module *m = r->m;
    IxTerm *terms = malloc(sizeof *terms * MAX_IX_TERMS);
    if (!terms)
        bug(r->c, "ir_parse", "out of memory");
    const Poly *offset = poly_const(m, 0);
    const char *from = here(r);
    int n = 0;
    bool minus = accept(r, '-');
    do {
        read_ix_term(r, minus, &offset, terms, &n);
        minus = peek(r, '-');
    } while (!r->failed && (accept(r, '+') || accept(r, '-')));
    if (!r->failed && !in_normal_form(terms, n))
        fail(r, from, "this index is not in normal form");
    for (int i = 0; i < n; i++) {
        bool plain = terms[i].kind == IA_INDEX;
        terms[i].index = plain ? terms[i].index : 0;
    }
    const IxExpr *e = r->failed ? ix_const(m, poly_const(m, 0)) : ix_intern(m, offset, terms, n);
    free(terms);
    return e;
}

static int read_map(Reader *r, const IxExpr **map)
{
    int n = 0;
    expect(r, '[');
    if (accept(r, ']'))
        return 0;
    do {
        if (n == MAX_LIST)
            fail(r, here(r), "too many axes");
        else
            map[n++] = read_ix(r);
    } while (!r->failed && accept(r, ','));
    expect(r, ']');
    return n;
}

/* Starts a new list of distinct indices. */
static void stamp_begin(Reader *r)
{
    if (r->stamp_cap < r->m->indices.len) {
        int cap = 2 * r->m->indices.len;
        size_t old = sizeof(int) * (size_t)r->stamp_cap;
        r->stamp = arena_grow(r->c->arena, r->stamp, old, sizeof(int) * (size_t)cap);
        r->stamp_cap = cap;
    }
    r->stamps++;
}

static bool stamp_first(Reader *r, IndexId i)
{
    bool first = r->stamp[i] != r->stamps;
    r->stamp[i] = r->stamps;
    return first;
}

static int read_indices(Reader *r, IndexId *ids, bool batch_time)
{
    int n = 0;
    stamp_begin(r);
    expect(r, '[');
    if (accept(r, ']'))
        return 0;
    do {
        const char *from = here(r);
        if (n == MAX_NODE_AXES) {
            fail(r, here(r), "too many axes");
            break;
        }
        ids[n] = read_index(r, batch_time);
        if (!r->failed && !stamp_first(r, ids[n++]))
            fail(r, from, "this index stands twice in the list");
    } while (!r->failed && accept(r, ','));
    expect(r, ']');
    return n;
}

/* ---- places in the spec ---- */

static Span read_span(Reader *r)
{
    Span s = { .file = -1 };
    const char *from = here(r);
    if (!accept(r, '@'))
        return s;
    int file = (int)read_int(r, INT32_MAX - 1);
    expect(r, ':');
    s.lo = (uint32_t)read_int(r, MAX_FILE);
    expect(r, '-');
    s.hi = (uint32_t)read_int(r, MAX_FILE);
    if (!r->failed && (file >= r->sources.len || s.hi < s.lo))
        fail(r, from, "no such place in a source");
    s.file = r->failed ? -1 : r->sources.data[file];
    return s;
}

static const CallSite *read_via(Reader *r)
{
    if (!accept_word(r, "via"))
        return NULL;
    const char *from = here(r);
    int k = (int)read_int(r, INT32_MAX - 1);
    if (!r->failed && k >= r->calls.len)
        fail(r, from, "there is no call %d", k);
    return r->failed ? NULL : r->calls.data[k];
}

/* The text of a source where it is an ordinary file; else nothing of it is shown later. */
static int find_source(Compiler *c, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < MAX_FILE) {
        FILE *f = fopen(path, "rb");
        char *text = malloc((size_t)st.st_size + 1);
        size_t n = f && text ? fread(text, 1, (size_t)st.st_size, f) : 0;
        int file = source_add(c, path, text ? text : "", n);
        if (f)
            fclose(f);
        free(text);
        return file;
    }
    return source_add(c, path, "", 0);
}

/* ---- header lines ---- */

static void expect_number(Reader *r, int want, const char *what)
{
    const char *from = here(r);
    int n = (int)read_int(r, INT32_MAX - 1);
    if (!r->failed && n != want)
        fail(r, from, "expected %s %d here", what, want);
}

static void line_source(Reader *r)
{
    expect_number(r, r->sources.len, "source");
    const char *path = read_string(r);
    if (r->sources.len == MAX_LIST)
        fail(r, here(r), "too many sources");
    if (!r->failed)
        vec_push(r->c->arena, &r->sources, find_source(r->c, path));
}

static void line_dim(Reader *r)
{
    Module *m = r->m;
    const char *from = here(r), *name = read_name(r);
    if (!r->failed && (m->dims.len >= ATOM_PAST || map_get(&r->dims, name)))
        fail(r, from, m->dims.len >= ATOM_PAST ? "more than %d dims" : "this dim is there already", ATOM_PAST);
    if (r->failed)
        return;
    vec_push(m->arena, &m->dims, name);
    map_put(m->arena, &r->dims, name, (void *)(intptr_t)m->dims.len);
}

static Setting read_setting(Reader *r)
{
    Setting s = { .name = read_name(r), .used = true };
    expect(r, '=');
    s.value = read_string(r);
    return s;
}

static void line_quotient(Reader *r)
{
    const Poly *num = read_poly(r);
    expect(r, '/');
    const char *from = here(r);
    Quotient q = { num, r->failed ? num : read_poly_term(r) };
    if (!r->failed && q.den->nterms == 0)
        fail(r, from, "a division by zero");
    if (!r->failed)
        vec_push(r->c->arena, &r->m->quotients, q);
}

static void line_index(Reader *r)
{
    expect_number(r, r->m->indices.len, "index");
    const char *name = read_name(r);
    expect(r, ':');
    const Poly *extent = r->failed ? NULL : read_poly(r);
    if (r->failed)
        return;
    IndexId i = module_index(r->m, name, extent);
    name_first(r, &r->index_by_name, name, i);
}

static void line_call(Reader *r)
{
    CallSite *k = arena_alloc(r->c->arena, sizeof *k);
    expect_number(r, r->calls.len, "call");
    k->fn = read_string(r);
    k->span = read_span(r);
    k->outer = read_via(r);
    vec_push(r->c->arena, &r->calls, k);
}

/* `in (low, high]`, or `in reach`. */
static void read_domain(Reader *r, Tensor *t)
{
    const char *from = here(r);
    if (!accept_word(r, "in"))
        return;
    if (t->kind > T_HISTORY)
        fail(r, from, "a %s has no range", ir_tensor_kinds[t->kind]);
    t->reach = (t->kind == T_STATE || t->kind == T_HISTORY) && accept_word(r, "reach");
    if (t->reach || r->failed)
        return;
    Range *range = arena_alloc(r->c->arena, sizeof *range);
    range->above = accept(r, '(');
    if (!range->above)
        expect(r, '[');
    range->low = read_real(r);
    expect(r, ',');
    range->high = read_real(r);
    range->below = accept(r, ')');
    if (!range->below)
        expect(r, ']');
    if (!r->failed && !(range->low <= range->high))
        fail(r, from, "the range is empty");
    t->range = range;
}

static void read_init(Reader *r, Tensor *t)
{
    if (!accept(r, '~'))
        return;
    t->init = read_name(r);
    expect(r, '(');
    for (int i = 0; i < 2; i++) {
        if (here(r) < r->end && *r->at == '"')
            t->init_text[i] = read_string(r);
        else
            t->init_arg[i] = read_real(r);
        expect(r, i ? ')' : ',');
    }
}

static void read_axes(Reader *r, Tensor *t)
{
    expect(r, '[');
    t->axes = arena_alloc(r->c->arena, sizeof *t->axes * MAX_NODE_AXES);
    bool more = !accept(r, ']');
    while (more && !r->failed) {
        if (t->rank == MAX_NODE_AXES) {
            fail(r, here(r), "too many axes");
            break;
        }
        t->axes[t->rank++] = read_poly(r);
        more = accept(r, ',');
        if (!more)
            expect(r, ']');
    }
}

/* A cotangent belongs to an output, an adjoint to a state. */
static void read_of(Reader *r, Tensor *t)
{
    const char *from = here(r);
    t->of = -1;
    if ((t->kind < T_DOUT && t->kind != T_HISTORY) || t->kind == T_COTANGENT)
        return;
    if (!accept_word(r, "of")) {
        if (t->kind != T_HISTORY)
            fail(r, from, "expected 'of'");
        return;
    }
    from = here(r);
    t->of = read_tensor(r);
    if (r->failed)
        return;
    const Tensor *of = &r->m->tensors.data[t->of];
    TensorKind wanted = t->kind == T_DOUT       ? T_OUTPUT
                        : t->kind == T_HISTORY  ? T_INPUT
                        : t->kind == T_DHISTORY ? T_HISTORY
                                                : T_STATE;
    if (of->kind != wanted)
        fail(r, from, "a %s is not of a %s", ir_tensor_kinds[t->kind], ir_tensor_kinds[of->kind]);
}

static void line_tensor(Reader *r)
{
    Tensor t = { .span.file = -1 };
    expect_number(r, r->m->tensors.len, "tensor");
    t.kind = (TensorKind)read_choice(r, ir_tensor_kinds, "kind of tensor");
    t.name = read_name(r);
    read_axes(r, &t);
    t.dtype = (Dtype)read_choice(r, ir_dtypes, "type");
    const char *from = here(r);
    t.complex = accept_word(r, "complex");
    if (t.complex && !r->failed && !(t.rank && t.axes[t.rank - 1]->is_const && t.axes[t.rank - 1]->value == 2))
        fail(r, from, "the last axis of a complex tensor is 2");
    t.inner = t.rank >= 3 && (t.kind == T_STATE || t.kind == T_DNEXT) && accept_word(r, "inner");
    read_of(r, &t);
    t.no_grad = accept_word(r, "no_grad");
    t.lengths = t.kind == T_INPUT && accept_word(r, "lengths");
    t.starts = t.kind == T_INPUT && accept_word(r, "starts");
    bool may = t.kind == T_INPUT || t.kind == T_OUTPUT || t.kind == T_STATE || t.kind == T_DHISTORY;
    t.chunk = may && accept_word(r, "chunk");
    skip(r);
    t.level = t.chunk && digit(*r->at) ? (int)read_int(r, INT32_MAX - 1) : 0;
    if (t.chunk && r->m->levels <= t.level)
        r->m->levels = t.level + 1;
    t.grows = t.kind == T_HISTORY && accept_word(r, "grows");
    read_domain(r, &t);
    read_init(r, &t);
    t.span = read_span(r);
    if (r->failed)
        return;
    TensorId id = module_tensor(r->m, t);
    name_first(r, &r->tensor_by_name, t.name, id);
}

static void line_check(Reader *r)
{
    Check k = { .nonneg = read_poly(r) };
    expect(r, '>');
    expect(r, '=');
    expect(r, '0');
    k.text = read_string(r);
    k.span = read_span(r);
    if (!r->failed)
        vec_push(r->c->arena, &r->m->checks, k);
}

/* ---- nodes ---- */

typedef struct Content {
    Node n;
    NodeId args[4];
    IndexId ids[MAX_NODE_AXES];
    const IxExpr *map[MAX_LIST];
} Content;

static void read_args(Reader *r, Content *k, int n)
{
    for (int i = 0; i < n && !r->failed; i++)
        k->args[k->n.nargs++] = read_node_id(r);
}

/* `at STEP` behind what is read. */
static void read_step(Reader *r, Content *k, bool has_steps)
{
    const char *from = here(r);
    if (r->failed || !accept_word(r, "at"))
        return;
    k->n.step = read_ix(r);
    k->n.past = -1;
    if (!r->failed && !has_steps)
        fail(r, from, "another step of what is the same at every step");
    if (r->failed || !accept_word(r, "past"))
        return;
    from = here(r);
    k->n.past = read_tensor(r);
    if (!r->failed && r->m->tensors.data[k->n.past].kind != T_HISTORY)
        fail(r, from, "this tensor is no history");
}

static void read_load(Reader *r, Content *k)
{
    const char *from = here(r);
    k->n.kind = N_LOAD;
    k->n.tensor = read_tensor(r);
    if (r->failed)
        return;
    const Tensor *t = &r->m->tensors.data[k->n.tensor];
    if (t->kind == T_OUTPUT)
        fail(r, from, "an output is never loaded");
    from = here(r);
    k->n.nmap = read_map(r, k->map);
    if (!r->failed && k->n.nmap != t->rank)
        fail(r, from, "%d indices for a tensor with %d axes", k->n.nmap, t->rank);
    read_step(r, k, t->kind == T_INPUT || t->kind == T_DOUT);
}

static void read_view(Reader *r, Content *k)
{
    const char *from = here(r);
    k->n.kind = N_VIEW;
    read_args(r, k, 1);
    if (r->failed)
        return;
    const Node *array = &r->m->nodes.data[k->args[0]];
    if (array->kind != N_ARRAY)
        fail(r, from, "only an array can be viewed");
    from = here(r);
    k->n.nmap = read_map(r, k->map);
    if (!r->failed && k->n.nmap != array->naxes)
        fail(r, from, "%d indices for an array with %d axes", k->n.nmap, array->naxes);
    read_step(r, k, array->dep & DEP_TIME);
}

static void read_array(Reader *r, Content *k)
{
    const char *from = here(r);
    k->n.kind = N_ARRAY;
    k->n.naxes = read_indices(r, k->ids, false);
    k->n.axes = k->ids;
    read_args(r, k, 1);
    for (int i = 0; !r->failed && i < r->m->nodes.data[k->args[0]].naxes; i++)
        if (stamp_first(r, r->m->nodes.data[k->args[0]].axes[i]))
            fail(r, from, "this array leaves an axis of its value free");
}

static void read_operation(Reader *r, Content *k)
{
    const char *from = here(r), *name = read_name(r);
    int op = r->failed ? 0 : op_find(name);
    if (op < 0)
        fail(r, from, "there is no operator '%.60s'", name);
    k->n.kind = N_MAP;
    k->n.op = op < 0 ? OP_NEG : (Op)op;
    read_args(r, k, op_table[k->n.op].arity);
}

static bool read_reduction(Reader *r, Content *k)
{
    int kind = -1;
    for (int i = 0; ir_reductions[i] && kind < 0; i++)
        if (i != R_MEAN && i != R_SOFTMAX && accept_word(r, ir_reductions[i]))
            kind = i;
    if (kind < 0)
        return false;
    const char *from = here(r);
    k->n.kind = N_REDUCE;
    k->n.reduce = (ReduceOp)kind;
    k->n.nbound = read_indices(r, k->ids, true);
    k->n.bound = k->ids;
    if (k->n.nbound == 0)
        fail(r, from, "a reduction over nothing");
    read_args(r, k, 1);
    return true;
}

static void read_content(Reader *r, Content *k)
{
    Node *n = &k->n;
    if (accept_word(r, "const")) {
        n->kind = N_CONST;
        n->value = read_real(r);
    } else if (accept_word(r, "size")) {
        n->kind = N_SIZE;
        n->size = read_poly(r);
    } else if (accept_word(r, "index")) {
        n->kind = N_INDEX;
        n->ix = read_ix(r);
    } else if (accept_word(r, "load")) {
        read_load(r, k);
    } else if (accept_word(r, "view")) {
        read_view(r, k);
    } else if (accept_word(r, "array")) {
        read_array(r, k);
    } else if (accept_word(r, "map")) {
        read_operation(r, k);
    } else if (!read_reduction(r, k)) {
        fail(r, here(r), "expected const, size, index, load, view, array, map, sum, max, min or prod");
    }
    n->args = k->args;
    n->map = k->map;
}

static void count_ix(Reader *r, const IxExpr *e, int *n)
{
    for (int i = 0; i < e->nterms; i++) {
        if (e->terms[i].kind != IA_INDEX)
            count_ix(r, e->terms[i].arg, n);
        else if (e->terms[i].index >= IX_FIRST)
            *n += stamp_first(r, e->terms[i].index);
    }
}

/* A value with more axes than the compiler ever makes would be taken for its bug. */
static void limit_axes(Reader *r, const Content *k, const char *from)
{
    int n = 0;
    stamp_begin(r);
    for (int i = 0; i < k->n.nmap; i++)
        count_ix(r, k->map[i], &n);
    if (k->n.step)
        count_ix(r, k->n.step, &n);
    if (k->n.kind == N_INDEX)
        count_ix(r, k->n.ix, &n);
    for (int i = 0; i < k->n.nargs && k->n.kind != N_VIEW; i++) {
        const Node *a = &r->m->nodes.data[k->args[i]];
        for (int j = 0; j < a->naxes; j++)
            n += stamp_first(r, a->axes[j]);
    }
    if (n > MAX_NODE_AXES)
        fail(r, from, "a value with more than %d axes", MAX_NODE_AXES);
}

/* After the colon stands what follows from the content; it must agree. */
static void read_derived(Reader *r, const Node *n)
{
    const char *from = here(r);
    IndexId axes[MAX_NODE_AXES];
    NodeType type = accept_word(r, "int") ? TY_INT : accept_word(r, "bool") ? TY_BOOL : TY_REAL;
    int count = read_indices(r, axes, false);
    bool same = type == n->type && count == n->naxes;
    for (int i = 0; same && i < count; i++)
        same = axes[i] == n->axes[i];
    if (!r->failed && !same)
        fail(r, from, "type or axes do not follow from the value");
}

static void line_node(Reader *r)
{
    Module *m = r->m;
    const char *from = here(r);
    Content content = { .n = { .span.file = -1 } }, *k = &content;
    expect_number(r, m->nodes.len, "node");
    expect(r, '=');
    read_content(r, k);
    const char *name = NULL;
    if (peek(r, '"')) {
        if (k->n.kind != N_ARRAY && !r->tried)
            fail(r, here(r), "only an array has a name");
        name = read_string(r);
    }
    k->n.name = k->n.kind == N_ARRAY ? name : NULL;
    if (!r->failed)
        limit_axes(r, k, from);
    if (r->failed)
        return;
    int before = m->nodes.len;
    NodeId id = node_build(m, k->n);
    if (m->nodes.len == before && r->tried) {
        const Node same = m->nodes.data[id];
        vec_push(m->arena, &m->nodes, same);
        id = before;
    }
    if (m->nodes.len == before) {
        fail(r, from, "the same value as %%%d: equal values are one node", id);
        return;
    }
    expect(r, ':');
    read_derived(r, &m->nodes.data[id]);
    Span span = read_span(r);
    const CallSite *chain = read_via(r);
    m->nodes.data[id].span = span;
    m->nodes.data[id].chain = chain;
    m->nodes.data[id].name = name;
}

/* ---- roots ---- */

static bool root_fits(const Module *m, const Tensor *t, const Node *n)
{
    bool fits = n->kind == N_ARRAY && n->naxes == t->rank;
    for (int i = 0; fits && i < t->rank; i++)
        fits = m->indices.data[n->axes[i]].extent == t->axes[i];
    return fits;
}

static bool line_root(Reader *r, const char *word)
{
    Module *m = r->m;
    for (int k = 0; k < ROOT_COUNT; k++) {
        if (strcmp(word, root_table[k].word) != 0)
            continue;
        const char *from = here(r);
        TensorId t = read_tensor(r);
        expect(r, '=');
        NodeId n = r->failed ? -1 : read_node_id(r);
        if (r->failed)
            return true;
        if (m->tensors.data[t].kind != root_table[k].of || m->roots.data[t].of[k] >= 0)
            fail(r, from, "'%s' of a wrong tensor, or for the second time", word);
        else if (!root_fits(m, &m->tensors.data[t], &m->nodes.data[n]))
            fail(r, from, "%%%d is not an array with the axes of %.60s", n, m->tensors.data[t].name);
        m->roots.data[t].of[k] = n;
        return true;
    }
    return false;
}

static void line_adjoint(Reader *r)
{
    expect_word(r, "from");
    expect(r, '%');
    const char *from = here(r);
    r->m->forward_nodes = (int)read_int(r, INT32_MAX - 1);
    r->m->has_grad = true;
    if (!r->failed && r->m->forward_nodes > r->m->nodes.len)
        fail(r, from, "there are only %d nodes", r->m->nodes.len);
}

static void require_roots(Reader *r)
{
    const Module *m = r->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind == T_STATE && !x->chunk && m->roots.data[t].next < 0)
            fail(r, here(r), "the state %.60s has no next value", x->name);
        if (x->kind == T_OUTPUT && m->roots.data[t].output < 0)
            fail(r, here(r), "the output %.60s has no value", x->name);
    }
}

/* parts 8 side 1: an axis of the states was taken apart (split_states.c) */
static void line_parts(Reader *r)
{
    const char *from = here(r);
    skip(r);
    r->m->parts = digit(*r->at) ? (int)read_int(r, INT32_MAX) : 0;
    bool sided = accept_word(r, "side");
    skip(r);
    r->m->side = sided && digit(*r->at) ? (int)read_int(r, 2) : 0;
    if (!r->failed && (r->m->parts < 1 || r->m->side < 1))
        fail(r, from, "expected a number of parts, and side 1 or 2");
}

/* ---- the text ---- */

/* Lines of one kind stand together, in the order in which they refer to each other. */
static void read_line(Reader *r)
{
    Module *m = r->m;
    if (accept(r, '%')) {
        line_node(r);
        return;
    }
    const char *from = here(r), *word = read_name(r);
    if (r->failed || line_root(r, word))
        return;
    if (strcmp(word, "whole_past") == 0) {
        m->whole_past = true;
    } else if (strcmp(word, "parts") == 0) {
        line_parts(r);
    } else if (strcmp(word, "adjoint") == 0) {
        line_adjoint(r);
    } else if (m->nodes.len) {
        fail(r, from, "expected a node, output, next, init, dinput, dparam, dprev, dparam_init, dpast, "
                      "last, whole_past, parts or adjoint");
    } else if (strcmp(word, "dtype") == 0) {
        r->c->dtype = (Dtype)read_choice(r, ir_dtypes, "type");
    } else if (strcmp(word, "schedule") == 0) {
        r->c->schedule = schedule_named(schedule_choices()[read_choice(r, schedule_choices(), "schedule")]);
    } else if (strcmp(word, "source") == 0) {
        line_source(r);
    } else if (strcmp(word, "dim") == 0) {
        line_dim(r);
    } else if (strcmp(word, "bound") == 0) {
        Setting s = read_setting(r);
        vec_push(m->arena, &m->bound, s);
    } else if (strcmp(word, "option") == 0) {
        Setting s = read_setting(r);
        vec_push(m->arena, &m->options, s);
    } else if (strcmp(word, "quotient") == 0) {
        line_quotient(r);
    } else if (strcmp(word, "index") == 0) {
        line_index(r);
    } else if (strcmp(word, "call") == 0) {
        line_call(r);
    } else if (strcmp(word, "tensor") == 0) {
        line_tensor(r);
    } else if (strcmp(word, "check") == 0) {
        line_check(r);
    } else {
        fail(r, from, "expected dtype, schedule, source, dim, bound, option, quotient, index, call, tensor, "
                      "check or a node");
    }
}

static int text_source(Compiler *c, const char *text, size_t len)
{
    for (int i = c->sources.len - 1; i >= 0; i--)
        if (c->sources.data[i].text == text)
            return i;
    return source_add(c, "IR", text, len);
}

const Poly *ir_parse_size(Module *m, const char *text, size_t len)
{
    Reader r = { .c = m->c, .m = m, .text = text, .at = text, .end = text + len, .quiet = true };
    for (int i = 0; i < m->dims.len; i++)
        map_put(m->arena, &r.dims, m->dims.data[i], (void *)(intptr_t)(i + 1));
    const Poly *size = read_poly(&r);
    skip(&r);
    return r.failed || r.at < r.end ? NULL : size;
}

static Module *parse_module(Compiler *c, const char *text, size_t len, bool tried)
{
    Reader r = { .c = c, .text = text, .at = text, .end = text + len, .tried = tried };
    r.file = text_source(c, text, len);
    r.m = module_new(c, intern(c, ""));
    for (int i = 0; i < IX_FIRST; i++)
        name_first(&r, &r.index_by_name, r.m->indices.data[i].name, i);
    if (len > MAX_FILE) {
        fail(&r, text, "more than %d bytes", MAX_FILE);
        return NULL;
    }
    /* The cell's span needs its source, which stands on the next lines: the rest of line 1 is read last. */
    expect_word(&r, "ir");
    const char *first = memchr(text, '\n', len);
    r.at = first ? first + 1 : r.end;
    while (!r.failed && r.at < r.end) {
        read_line(&r);
        if (!r.failed)
            end_line(&r);
    }
    if (!r.failed)
        require_roots(&r);
    if (!r.failed) {
        r.at = text;
        expect_word(&r, "ir");
        r.m->name = read_name(&r);
        r.m->span = read_span(&r);
        if (!r.failed)
            end_line(&r);
    }
    module_at(r.m, r.m->span, NULL);
    return r.failed ? NULL : r.m;
}

Module *ir_parse(Compiler *c, const char *text, size_t len)
{
    return parse_module(c, text, len, false);
}

Module *ir_parse_tried(Compiler *c, const char *text, size_t len)
{
    return parse_module(c, text, len, true);
}
