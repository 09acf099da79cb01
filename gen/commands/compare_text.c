/* compare_text.c: two texts beside each other. In: lines, or rows of tables. Out: which lines are of both and
 * which of one, by the longest common subsequence; printed in two columns or, where these have no room, one
 * after the other. */
#include <string.h>

#include "base/say.h"
#include "compare.h"

/* ---- names */

const char *renamed(const Renames *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->list[i].from, name) == 0)
            return r->list[i].to;
    return name;
}

static bool is_letter(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

const char *renamed_text(Compiler *c, const Renames *r, const char *text)
{
    Buf b = { .arena = c->arena };
    if (!r->n || !text)
        return text;
    for (size_t n; *text; text += n) {
        for (n = 1; is_letter(*text) && (is_letter(text[n]) || (text[n] >= '0' && text[n] <= '9'));)
            n++;
        /* A digit's letters are no name: 1e5. */
        while (*text >= '0' && *text <= '9' && (is_letter(text[n]) || (text[n] >= '0' && text[n] <= '9')))
            n++;
        buf_f(&b, "%s", renamed(r, intern_n(c, text, n)));
    }
    return b.data ? b.data : "";
}

/* ---- common lines */

typedef Vec(const char *) Lines;

static Lines split(Compiler *c, const char *text)
{
    Lines lines = { 0 };
    for (size_t n; text && *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        vec_push(c->arena, &lines, intern_n(c, text, n));
    }
    return lines;
}

static void add(Compiler *c, Diff *d, LineSide side, const char *label, const char *first, const char *second)
{
    vec_push(c->arena, d, ((DiffLine){ side, label, first, second }));
}

/* What stands between common lines: a line of one beside a line of the other, as long as both have one. */
static void add_apart(Compiler *c, Diff *d, const Lines *a, int i, int iend, const Lines *b, int k, int kend)
{
    for (; i < iend && k < kend; i++, k++)
        add(c, d, LINE_CHANGED, "", a->data[i], b->data[k]);
    for (; i < iend; i++)
        add(c, d, LINE_FIRST, "", a->data[i], NULL);
    for (; k < kend; k++)
        add(c, d, LINE_SECOND, "", NULL, b->data[k]);
}

/* Lengths of the longest common subsequences of what stands behind each place: (a->len + 1) rows of b->len +
 * 1. Texts are interned, so that equal lines are equal pointers. */
static const int *common_lengths(Compiler *c, const Lines *a, const Lines *b)
{
    size_t width = (size_t)b->len + 1;
    int *length = arena_alloc(c->arena, sizeof *length * width * ((size_t)a->len + 1));
    for (int i = a->len - 1; i >= 0; i--)
        for (int k = b->len - 1; k >= 0; k--) {
            int down = length[(size_t)(i + 1) * width + (size_t)k],
                right = length[(size_t)i * width + (size_t)k + 1];
            int both = length[(size_t)(i + 1) * width + (size_t)k + 1] + 1;
            length[(size_t)i * width + (size_t)k] = a->data[i] == b->data[k] ? both
                                                    : down > right           ? down
                                                                             : right;
        }
    return length;
}

Diff diff_texts(Compiler *c, const Renames *r, const char *first, const char *second)
{
    enum { MOST_LINES = 4000 }; /* in memory: 64 MB; of longer texts the rest is not joined */
    Diff d = { 0 };
    Lines a = split(c, first), b = split(c, second), keys = { 0 }, rest_a = a, rest_b = b;
    for (int i = 0; i < a.len; i++)
        vec_push(c->arena, &keys, intern(c, renamed_text(c, r, a.data[i])));
    keys.len = keys.len < MOST_LINES ? keys.len : MOST_LINES;
    rest_b.len = rest_b.len < MOST_LINES ? rest_b.len : MOST_LINES;
    const int *length = common_lengths(c, &keys, &rest_b);
    size_t width = (size_t)rest_b.len + 1;
    int i = 0, k = 0, from_i = 0, from_k = 0;
    while (i < keys.len && k < rest_b.len) {
        int here = length[(size_t)i * width + (size_t)k];
        if (keys.data[i] == b.data[k]) {
            add_apart(c, &d, &a, from_i, i, &b, from_k, k);
            add(c, &d, LINE_BOTH, "", a.data[i], b.data[k]);
            from_i = ++i;
            from_k = ++k;
        } else if (length[(size_t)(i + 1) * width + (size_t)k] == here) {
            i++;
        } else {
            k++;
        }
    }
    add_apart(c, &d, &rest_a, from_i, a.len, &b, from_k, b.len);
    return d;
}

/* ---- rows */

/* The text of a row, with the rows below it that have no label; *next: the row behind them. */
static const char *row_text(Compiler *c, const Table *t, int at, int *next)
{
    const char *text = t->rows.data[at].cell[1];
    for (*next = at + 1; *next < t->rows.len && !*t->rows.data[*next].cell[0]; ++*next)
        text = intern_f(c, "%s; %s", text, t->rows.data[*next].cell[1]);
    return text;
}

static const char *row_labelled(Compiler *c, const Table *t, const char *label)
{
    for (int i = 0, next; i < t->rows.len; i = next) {
        const char *text = row_text(c, t, i, &next);
        if (strcmp(t->rows.data[i].cell[0], label) == 0)
            return text;
    }
    return NULL;
}

Diff diff_rows(Compiler *c, const Renames *r, const Table *first, const Table *second)
{
    Diff d = { 0 };
    for (int i = 0, next; i < first->rows.len; i = next) {
        const char *label = first->rows.data[i].cell[0], *a = row_text(c, first, i, &next),
                   *b = row_labelled(c, second, label);
        bool same = b && strcmp(renamed_text(c, r, a), b) == 0;
        add(c, &d, same ? LINE_BOTH : b ? LINE_CHANGED : LINE_FIRST, label, a, b);
    }
    for (int i = 0, next; i < second->rows.len; i = next) {
        const char *label = second->rows.data[i].cell[0], *b = row_text(c, second, i, &next);
        if (!row_labelled(c, first, label))
            add(c, &d, LINE_SECOND, label, NULL, b);
    }
    return d;
}

bool diff_same(const Diff *d)
{
    for (int i = 0; i < d->len; i++)
        if (d->data[i].side != LINE_BOTH)
            return false;
    return true;
}

/* ---- layout */

enum { NARROWEST = 56 }; /* a column: below it, lines follow each other */

/* Bytes of the next piece of a text that has room in `width` columns: up to the last blank, if there is one.
 * */
static size_t piece_of(const char *text, size_t width)
{
    size_t n = 0, columns = 0, blank = 0;
    for (; text[n] && columns < width; columns++) {
        int bytes = utf8_len((const unsigned char *)text + n, (const unsigned char *)text + strlen(text));
        blank = text[n] == ' ' && n ? n : blank;
        n += bytes ? (size_t)bytes : 1;
    }
    return !text[n] ? n : text[n] == ' ' || !blank ? n : blank;
}

static size_t columns_of(const char *text, size_t n)
{
    size_t columns = 0;
    for (size_t i = 0; i < n; columns++) {
        int bytes = utf8_len((const unsigned char *)text + i, (const unsigned char *)text + n);
        i += bytes ? (size_t)bytes : 1;
    }
    return columns;
}

/* The text over as many lines as it takes, the first behind what stands on the line already. */
static void put_wrapped(const char *text, int indent, int width, Buf *out)
{
    size_t room = width - indent > 20 ? (size_t)(width - indent) : 20;
    for (bool first = true; first || *text; first = false) {
        size_t n = piece_of(text, room);
        buf_f(out, "%*s%.*s\n", first ? 0 : indent, "", (int)n, text);
        text += n;
        text += *text == ' ';
    }
}

static void put_below(const DiffLine *l, int label, int width, Buf *out)
{
    static const char *const marks[] = { "  ", "- ", "+ " };
    const char *texts[] = { l->side == LINE_BOTH ? l->second : NULL, l->side == LINE_BOTH ? NULL : l->first,
                            l->side == LINE_BOTH ? NULL : l->second };
    for (int i = 0; i < 3; i++) {
        if (!texts[i])
            continue;
        buf_f(out, "%s%-*s", marks[i], label, l->label);
        int deeper = label ? 0 : (int)strspn(texts[i], " ") + 8;
        put_wrapped(texts[i], 2 + label + deeper, width, out);
    }
}

static void put_beside(const DiffLine *l, int label, int column, Buf *out)
{
    const char *mark = l->side == LINE_CHANGED ? "|" : l->side == LINE_FIRST ? "<" : ">";
    const char *a = l->first ? l->first : "", *b = l->second ? l->second : "";
    size_t in_a = label ? 0 : strspn(a, " ") + 8, in_b = label ? 0 : strspn(b, " ") + 8;
    for (bool first = true; first || *a || *b; first = false) {
        size_t room_a = (size_t)column - (first ? 0 : in_a), room_b = (size_t)column - (first ? 0 : in_b);
        size_t n = piece_of(a, room_a), m = piece_of(b, room_b);
        int pad_a = first || !n ? 0 : (int)in_a, pad_b = first || !m ? 0 : (int)in_b;
        buf_f(out, "  %-*s%*s%.*s%*s %s", label, first ? l->label : "", pad_a, "", (int)n, a,
              column - pad_a - (int)columns_of(a, n), "", mark);
        buf_f(out, m ? " %*s%.*s\n" : "\n", pad_b, "", (int)m, b);
        a += n;
        a += *a == ' ';
        b += m;
        b += *b == ' ';
    }
}

void diff_print(Compiler *c, const Diff *d, int width, Buf *out)
{
    int label = 0;
    (void)c;
    for (int i = 0; i < d->len; i++) {
        int n = (int)strlen(d->data[i].label);
        label = n && n + 2 > label ? n + 2 : label;
    }
    int column = (width - 2 - label - 3) / 2;
    for (int i = 0; i < d->len; i++) {
        const DiffLine *l = &d->data[i];
        if (column < NARROWEST || l->side == LINE_BOTH)
            put_below(l, label, width, out);
        else
            put_beside(l, label, column, out);
    }
}

static void put_json(const char *text, Buf *out)
{
    if (text)
        buf_json(out, text, strlen(text));
    else
        buf_f(out, "null");
}

void diff_json(const Diff *d, Buf *out)
{
    buf_f(out, "[");
    for (int i = 0; i < d->len; i++) {
        const DiffLine *l = &d->data[i];
        buf_f(out, "%s\n    {", i ? "," : "");
        if (*l->label) {
            buf_f(out, "\"label\": ");
            put_json(l->label, out);
            buf_f(out, ", ");
        }
        buf_f(out, "\"same\": %s, \"first\": ", l->side == LINE_BOTH ? "true" : "false");
        put_json(l->first, out);
        buf_f(out, ", \"second\": ");
        put_json(l->second, out);
        buf_f(out, "}");
    }
    buf_f(out, "%s]", d->len ? "\n  " : "");
}
