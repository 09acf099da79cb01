/* emit_common.c: the small things that every emitter needs: identifiers that C accepts, numbers and sizes as
 * C text, the spec's own words for comments, line breaks, and the one order of arguments. In: parts of a
 * module. Out: text. */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/say.h"
#include "emit.h"

/* ---- names */

void names_init(Names *n, Compiler *c)
{
    if (!c->words) {
        c->words = arena_alloc(c->arena, sizeof *c->words);
        c->words->c = c;
        words_take(c->words);
    }
    *n = (Names){ .c = c, .beside = c->words };
}

/* The slot that holds the interned name, or the empty one where it belongs. */
static NameSlot *slot_of(const Names *n, const char *name)
{
    size_t mask = (size_t)n->cap - 1, at = (size_t)(((uintptr_t)name >> 4) * 0x9e3779b97f4a7c15ull >> 32) & mask;
    while (n->slots[at].name && n->slots[at].name != name)
        at = (at + 1) & mask;
    return &n->slots[at];
}

static void names_grow(Names *n)
{
    n->cap = n->cap ? 2 * n->cap : 64;
    n->slots = arena_alloc(n->c->arena, sizeof *n->slots * (size_t)n->cap);
    for (int i = 0; i < n->taken.len; i++)
        slot_of(n, n->taken.data[i].name)->name = n->taken.data[i].name;
}

static bool is_taken(const Names *n, const char *name)
{
    return n && ((n->cap && slot_of(n, name)->name) || is_taken(n->beside, name));
}

static void take(Names *n, TakenName x)
{
    if (2 * (n->taken.len + 1) > n->cap)
        names_grow(n);
    slot_of(n, x.name)->name = x.name;
    vec_push(n->c->arena, &n->taken, x);
}

void names_take(Names *n, const char *name)
{
    name = intern(n->c, name);
    if (!n->cap || !slot_of(n, name)->name)
        take(n, (TakenName){ name, NULL, 0 });
}

/* What was taken last goes first, so that no slot is emptied that another name was moved on by. */
void names_cut(Names *n, int len)
{
    while (n->taken.len > len) {
        TakenName x = n->taken.data[--n->taken.len];
        *slot_of(n, x.name) = (NameSlot){ NULL, 0 };
        NameSlot *base = x.base ? slot_of(n, x.base) : NULL;
        if (base && base->name)
            base->next = x.number;
    }
}

const char *names_numbered(Names *n, const char *base, const char *join)
{
    TakenName x = { base = intern(n->c, base), NULL, 0 };
    int k = n->cap && slot_of(n, base)->name ? slot_of(n, base)->next : 0;
    for (k = k ? k : 2; is_taken(n, x.name); k++)
        x = (TakenName){ intern_f(n->c, "%s%s%d", base, join, k), base, k };
    take(n, x);
    NameSlot *slot = slot_of(n, base);
    if (x.base && slot->name)
        slot->next = k;
    return x.name;
}

static const char *as_identifier(Compiler *c, const char *wanted)
{
    Buf s = { .arena = c->arena };
    if (is_word_by_form(wanted))
        buf_text(&s, "v_");
    else if (!*wanted || isdigit((unsigned char)*wanted))
        buf_text(&s, "v");
    for (const char *p = wanted; *p; p++)
        if (*p == '\'')
            buf_text(&s, "_next");
        else
            buf_bytes(&s, isalnum((unsigned char)*p) && (unsigned char)*p < 128 ? p : "_", 1);
    return intern_n(c, s.data, s.len);
}

const char *names_fresh(Names *n, const char *wanted)
{
    const char *base = as_identifier(n->c, wanted);
    size_t len = strlen(base);
    return names_numbered(n, base, len && isdigit((unsigned char)base[len - 1]) ? "_" : "");
}

/* ---- numbers and sizes */

const char *c_number(Compiler *c, double v)
{
    char text[40];
    if (isnan(v))
        return "(real)NAN";
    if (isinf(v))
        return v > 0 ? "(real)INFINITY" : "-(real)INFINITY";
    if (v == floor(v) && fabs(v) < 1e6 && !(v == 0 && signbit(v)))
        return intern_f(c, "%d", (int)v);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    bool whole = strspn(text, "-0123456789") == strlen(text);
    return intern_f(c, "(real)%s%s", text, whole ? ".0" : "");
}

static void print_factor(const Module *m, Buf *out, const Poly *p, const char *const *dims)
{
    int prec;
    const char *s = c_poly(m, p, dims, &prec);
    buf_f(out, prec < C_ATOM ? "(%s)" : "%s", s);
}

static void print_size_atom(const Module *m, Buf *out, int atom, const char *const *dims)
{
    if (atom < MAX_DIMS) {
        buf_f(out, "%s", dims[atom]);
        return;
    }
    buf_f(out, "(");
    print_factor(m, out, m->quotients.data[atom - MAX_DIMS].num, dims);
    buf_f(out, " / ");
    print_factor(m, out, m->quotients.data[atom - MAX_DIMS].den, dims);
    buf_f(out, ")");
}

const char *c_poly(const Module *m, const Poly *p, const char *const *dims, int *prec)
{
    Buf out = { .arena = m->arena };
    *prec = C_ATOM;
    if (p->nterms == 0)
        return "0";
    for (int i = 0; i < p->nterms; i++) {
        const PolyTerm *t = &p->terms[i];
        uint64_t size = t->coef < 0 ? 0 - (uint64_t)t->coef : (uint64_t)t->coef;
        bool shown = size != 1 || t->natoms == 0;
        buf_text(&out, i ? (t->coef < 0 ? " - " : " + ") : t->coef < 0 ? "-" : "");
        if (shown)
            buf_f(&out, "%llu", (unsigned long long)size);
        for (int k = 0; k < t->natoms; k++) {
            buf_text(&out, k || shown ? " * " : "");
            print_size_atom(m, &out, t->atoms[k], dims);
        }
        if (t->natoms + shown > 1)
            *prec = C_MUL;
        else if (t->coef < 0 && *prec == C_ATOM)
            *prec = C_UNARY;
    }
    if (p->nterms > 1)
        *prec = C_ADD;
    return intern_n(m->c, out.data, out.len);
}

const Poly *poly_product(Module *m, const Poly *const *axes, int n)
{
    const Poly *p = poly_const(m, 1);
    for (int i = 0; i < n; i++)
        p = poly_mul(m, p, axes[i]);
    return p;
}

/* ---- the spec's own words */

enum { QUOTE = 88 };

/* The span's text on one line: runs of blanks are one blank, comments go, a comment's end cannot appear. */
static const char *quoted(Compiler *c, const Source *src, Span span)
{
    char text[QUOTE + 8];
    size_t n = 0;
    bool blank = false;
    for (size_t i = span.lo; i < span.hi && i < src->len; i++) {
        unsigned char ch = (unsigned char)src->text[i];
        if (ch == '/' && i + 1 < span.hi && src->text[i + 1] == '/') {
            while (i < span.hi && src->text[i] != '\n')
                i++;
            ch = ' ';
        }
        if (ch <= ' ' || ch >= 127) {
            blank = n > 0;
            continue;
        }
        if (n + 2 >= QUOTE) {
            for (int k = 0; k < 3; k++)
                text[n++] = '.';
            break;
        }
        if (blank || (ch == '/' && n && text[n - 1] == '*') || (ch == '*' && n && text[n - 1] == '/'))
            text[n++] = ' ';
        blank = false;
        text[n++] = (char)ch;
    }
    return intern_n(c, text, n);
}

const char *source_place(const Module *m, Span span, bool text)
{
    Compiler *c = m->c;
    int line, column;
    if (span.file < 0 || span.file >= c->sources.len)
        return "";
    const Source *src = &c->sources.data[span.file];
    const char *slash = strrchr(src->path, '/'), *base = slash ? slash + 1 : src->path;
    source_position(src, span.lo, &line, &column);
    base = shown_text(c, base);
    if (!text)
        return intern_f(c, "%s:%d", base, line);
    return intern_f(c, "%s:%d: %s", base, line, quoted(c, src, span));
}

/* ---- line breaks */

enum { COLUMNS = 110 };

/* How much a break at the blank would hurt: inside parentheses, inside a product, inside a comparison. */
static int break_cost(const char *line, size_t at, int depth)
{
    char next = line[at + 1], before = line[at - 1];
    int cost = 16 * depth;
    if (before == ',' || before == ';')
        return cost;
    if (next == '?' || next == ':')
        return cost + 1;
    if (next == '&' || next == '|')
        return cost + 2;
    if ((next == '+' || next == '-') && line[at + 2] == ' ')
        return cost + 3;
    if (next == '<' || next == '>' || next == '=')
        return cost + 6;
    if ((next == '*' || next == '/') && line[at + 2] == ' ')
        return cost + 4;
    return cost + 64;
}

/* What a character is to a break; most are nothing. */
typedef enum { CH_PLAIN, CH_OPENS, CH_CLOSES, CH_BLANK, CH_STRING, CH_SLASH } CharClass;
static const unsigned char class_of[UCHAR_MAX + 1] = {
    ['('] = CH_OPENS, ['{'] = CH_OPENS, ['['] = CH_OPENS, [')'] = CH_CLOSES, ['}'] = CH_CLOSES,
    [']'] = CH_CLOSES, [' '] = CH_BLANK, ['"'] = CH_STRING, ['/'] = CH_SLASH,
};

static CharClass class_at(const char *line, size_t at)
{
    return class_of[(unsigned char)line[at]];
}

/* Behind the string that begins at line[at]. */
static size_t string_end(const char *line, size_t at, size_t len)
{
    for (at++; at < len && line[at] != '"'; at++)
        at += line[at] == '\\';
    return at + 1;
}

/* The best blank to break at in the second half of the room, else the last one; 0: there is none. */
static size_t break_point(const char *line, size_t indent, size_t room)
{
    size_t best = 0, last = 0;
    int depth = 0, best_cost = 0;
    for (size_t i = indent; i < room; i++)
        switch (class_at(line, i)) {
        case CH_PLAIN:
        case CH_SLASH: break;
        case CH_OPENS: depth++; break;
        case CH_CLOSES: depth--; break;
        case CH_STRING: i = string_end(line, i, room) - 1; break;
        case CH_BLANK:
            if (i == indent)
                break;
            last = i;
            int cost = break_cost(line, i, depth);
            if (2 * i >= room && (best == 0 || cost <= best_cost)) {
                best = i;
                best_cost = cost;
            }
        }
    return best ? best : last;
}

/* Without a blank: behind the last parenthesis that opens in the room, else the first blank behind it; 0:
 * there is none. */
static size_t hard_break(const char *line, size_t len, size_t room)
{
    size_t best = 0;
    for (size_t i = 0; i < len; i++) {
        if (line[i] == '"')
            i = string_end(line, i, len) - 1;
        else if (i < room && line[i] == '(')
            best = i + 1;
        else if (i >= room && best)
            break;
        else if (i >= room && line[i] == ' ')
            return i;
    }
    return best;
}

static void put_line(Buf *out, const char *text, size_t len, size_t indent)
{
    buf_blanks(out, (int)indent);
    buf_bytes(out, text, len);
    buf_text(out, "\n");
}

static void wrap_code(Buf *out, const char *line, size_t len, size_t indent)
{
    size_t shift = 0;
    while (len + shift > COLUMNS && COLUMNS > shift) {
        size_t room = COLUMNS - shift < len ? COLUMNS - shift : len;
        size_t at = break_point(line, shift ? 0 : indent, room);
        if (at == 0)
            at = hard_break(line, len, room);
        if (at == 0 || at >= len)
            break;
        put_line(out, line, at, shift);
        at += line[at] == ' ';
        line += at;
        len -= at;
        shift = indent + 8;
    }
    put_line(out, line, len, shift);
}

/* The words of a comment, without its slashes, on lines of their own. */
static void wrap_comment(Buf *out, const char *words, size_t len, size_t indent)
{
    size_t room = COLUMNS > indent + 40 ? COLUMNS - indent - 3 : 40;
    while (len > 0) {
        size_t at = len;
        if (len > room)
            for (at = room; at > 0 && words[at] != ' ';)
                at--;
        at = at ? at : len;
        buf_f(out, "%*s// %.*s\n", (int)indent, "", (int)at, words);
        at += at < len;
        words += at;
        len -= at;
    }
}

/* Where a comment of slashes begins; len: nowhere. */
static size_t comment_start(const char *line, size_t len)
{
    for (size_t i = 0; i + 1 < len; i++) {
        CharClass kind = class_at(line, i);
        if (kind == CH_STRING)
            i = string_end(line, i, len) - 1;
        else if (kind == CH_SLASH && line[i + 1] == '/')
            return i;
    }
    return len;
}

/* Short lines and those of the preprocessor. */
static bool stays(const char *line, size_t len)
{
    return len <= COLUMNS || line[strspn(line, " ")] == '#';
}

/* A comment that does not fit behind its statement goes before it. */
static void wrap_line(Buf *out, const char *line, size_t len)
{
    if (stays(line, len)) {
        buf_f(out, "%.*s\n", (int)len, line);
        return;
    }
    size_t indent = 0, comment = comment_start(line, len);
    while (indent < len && line[indent] == ' ')
        indent++;
    if (comment < len) {
        size_t words = comment + 2;
        while (words < len && line[words] == ' ')
            words++;
        wrap_comment(out, line + words, len - words, indent);
        while (comment > indent && line[comment - 1] == ' ')
            comment--;
        len = comment;
    }
    if (len > indent)
        wrap_code(out, line, len, indent);
}

void buf_wrapped(Buf *out, const Buf *text)
{
    size_t at = 0, written = 0;
    while (at < text->len) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->len - at);
        size_t len = end ? (size_t)(end - line) : text->len - at;
        if (!end || !stays(line, len)) {
            buf_bytes(out, text->data + written, at - written);
            written = at + len + 1;
            wrap_line(out, line, len);
        }
        at += len + 1;
    }
    if (written < at)
        buf_bytes(out, text->data + written, at - written);
}

/* ---- arguments */

int dtype_bytes(Dtype t)
{
    return t == DT_F64 ? 8 : t == DT_BF16 || t == DT_F16 ? 2 : dtype_is_fp8(t) ? 1 : 4;
}

const char *dtype_constant(Dtype t)
{
    static const char *const names[] = {
        [DT_F32] = "CELL_F32", [DT_BF16] = "CELL_BF16", [DT_F16] = "CELL_F16",  [DT_F64] = "CELL_F64",
        [DT_I32] = "CELL_I32", [DT_E4M3] = "CELL_E4M3", [DT_E5M2] = "CELL_E5M2"
    };
    return names[t];
}

const char **api_sizes(const Module *m)
{
    if (m->size_names)
        return m->size_names;
    const char **names = arena_alloc(m->arena, sizeof *names * (size_t)(m->dims.len + 4));
    Names taken;
    int n = 0;
    names_init(&taken, m->c);
    const char *const own[] = { "B", "t0" };
    names[n++] = "B";
    names[n++] = "T";
    for (int i = 0; i < 2; i++)
        names_take(&taken, own[i]);
    for (int i = 0; i < m->dims.len; i++)
        names[n++] = names_fresh(&taken, dim_text(m, i));
    names[n] = "t0";
    return ((Module *)(uintptr_t)m)->size_names = names;
}
