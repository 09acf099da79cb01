/* diag.c: source files and what is said about them. In: texts, and messages with byte ranges. Out: the
 * messages in the order of the source, each with its line and a caret range, notes behind the message they
 * belong to, the same message once. Guaranteed: whatever bytes a source holds, what is printed is short lines
 * of valid UTF-8. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "say.h"
#include "texts.h"

enum { MAX_PRINTED = 20, WINDOW = 100, TAB = 4 };

/* ---- sources ---- */

static uint32_t *line_table(Compiler *c, const char *text, size_t len, int *lines)
{
    int n = 1;
    for (const char *p = text; (p = memchr(p, '\n', len - (size_t)(p - text))); p++)
        n++;
    uint32_t *start = arena_alloc(c->arena, (size_t)n * sizeof *start);
    int k = 1;
    for (const char *p = text; (p = memchr(p, '\n', len - (size_t)(p - text))); p++)
        start[k++] = (uint32_t)(p - text) + 1;
    *lines = n;
    return start;
}

int source_add(Compiler *c, const char *path, const char *text, size_t len)
{
    /* A byte order mark means nothing, and no place counts it. */
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    Source s = {.path = intern(c, path), .len = len};
    char *copy = arena_alloc(c->arena, len + 1);
    if (len)
        memcpy(copy, text, len);
    s.text = copy;
    s.line_start = line_table(c, copy, len, &s.lines);
    vec_push(c->arena, &c->sources, s);
    return c->sources.len - 1;
}

static int load(Compiler *c, TextKind kind, const char *path, Span at)
{
    size_t len = 0;
    const char *what, *why = NULL, *text = text_load(c, kind, path, &len, &what, &why);
    if (text)
        return source_add(c, path, text, len);
    diag(c, DIAG_ERROR, at, "cannot %s '%s': %s", what, path, why);
    return -1;
}

int source_load(Compiler *c, const char *path)
{
    return load(c, TEXT_SPEC, path, (Span){.file = -1});
}

int source_import(Compiler *c, const char *path, Span at)
{
    return load(c, TEXT_IMPORT, path, at);
}

/* ---- characters ---- */

int utf8_len(const unsigned char *p, const unsigned char *end)
{
    if (*p < 0x80)
        return 1;
    int n = *p >= 0xc2 && *p <= 0xdf ? 2 : *p >= 0xe0 && *p <= 0xef ? 3 : *p >= 0xf0 && *p <= 0xf4 ? 4 : 0;
    if (!n || end - p < n)
        return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
               (*p == 0xf4 && p[1] > 0x8f);
    return bad ? 0 : n;
}

bool utf8_valid(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s, *end = p + len;
    for (int n; p < end; p += n)
        if ((n = utf8_len(p, end)) == 0)
            return false;
    return true;
}

static int char_len(const unsigned char *p, const unsigned char *end)
{
    int n = utf8_len(p, end);
    return n ? n : 1;
}

static int line_of(const Source *s, uint32_t offset)
{
    int lo = 0, hi = s->lines;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (s->line_start[mid] <= offset)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The column counts characters, a tab as one, a byte that is not UTF-8 as one. */
void source_position(const Source *s, uint32_t offset, int *line, int *column)
{
    if (offset > s->len)
        offset = (uint32_t)s->len;
    int k = line_of(s, offset);
    const unsigned char *p = (const unsigned char *)s->text + s->line_start[k];
    const unsigned char *at = (const unsigned char *)s->text + offset;
    const unsigned char *end = (const unsigned char *)s->text + s->len;
    int col = 1;
    for (; p < at; p += char_len(p, end))
        col++;
    *line = k + 1;
    *column = col;
}

/* ---- giving diagnostics ---- */

void diag(Compiler *c, DiagLevel level, Span span, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *text = arena_alloc(c->arena, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    if (span.hi < span.lo)
        span.hi = span.lo;
    Diag d = {.level = level, .span = span, .text = text};
    vec_push(c->arena, &c->diags, d);
    if (level == DIAG_ERROR)
        c->errors++;
}

void diag_chain(Compiler *c, const CallSite *chain)
{
    if (c->diags.len)
        c->diags.data[c->diags.len - 1].chain = chain;
}

void diag_fix(Compiler *c, Span at, const char *fix)
{
    if (!c->diags.len || !fix)
        return;
    c->diags.data[c->diags.len - 1].fix_span = at;
    c->diags.data[c->diags.len - 1].fix = fix;
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edit distance with transpositions, cut off above `limit`. */
static int edit_distance(const char *a, const char *b, int limit)
{
    enum { LONGEST = 64 };
    int na = (int)strlen(a), nb = (int)strlen(b);
    if (na > LONGEST || nb > LONGEST || abs(na - nb) > limit)
        return limit + 1;
    int row[3][LONGEST + 1];
    for (int j = 0; j <= nb; j++)
        row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = row[i % 3], *prev = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            now[j] = min3(prev[j] + 1, now[j - 1] + 1, prev[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
    }
    return row[na % 3][nb];
}

const char *suggest(const char *name, const char *const *names, int n)
{
    int len = (int)strlen(name), best = len / 3 > 1 ? len / 3 : 1;
    const char *found = NULL;
    for (int i = 0; i < n; i++) {
        if (!names[i] || strcmp(name, names[i]) == 0)
            continue;
        if (strcasecmp(name, names[i]) == 0)
            return names[i];
        int d = edit_distance(name, names[i], best);
        /* A name of one letter is not near another one of one letter. Of names as near, the first one with as
         * many letters is meant: `tahn` is tanh, not tan. */
        bool nearer = !found || d < best || ((int)strlen(found) != len && (int)strlen(names[i]) == len);
        if (d > best || d >= len || d >= (int)strlen(names[i]) || !nearer)
            continue;
        best = d;
        found = names[i];
    }
    return found;
}

/* ---- printing ---- */

const char *level_word(DiagLevel level)
{
    switch (level) {
    case DIAG_ERROR: return "error";
    case DIAG_WARNING: return "warning";
    case DIAG_PERF: return "performance warning";
    case DIAG_NOTE: return "note";
    }
    return "error";
}

/* One character as it can be shown, tabs as spaces. Returns columns. */
static int put_char(FILE *out, const unsigned char *p, const unsigned char *end, int column)
{
    if (*p == '\t') {
        int n = TAB - column % TAB;
        fprintf(out, "%*s", n, "");
        return n;
    }
    bool shown;
    int n = shown_char(p, end, &shown);
    fwrite(shown ? (const char *)p : "?", 1, shown ? (size_t)n : 1, out);
    return 1;
}

/* A message, which may quote the source. */
static void put_text(FILE *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + strlen(text);
    for (int col = 0; p < end; p += char_len(p, end))
        col += put_char(out, p, end, col);
    fputc('\n', out);
}

/* The part of the line that is shown: [lo, hi) around the span, at most WINDOW characters. */
typedef struct Shown {
    const unsigned char *lo, *hi, *end;
    bool cut_left, cut_right;
} Shown;

static Shown shown_part(const Source *s, Span span, int line)
{
    const unsigned char *text = (const unsigned char *)s->text;
    const unsigned char *start = text + s->line_start[line];
    const unsigned char *end = line + 1 < s->lines ? text + s->line_start[line + 1] - 1 : text + s->len;
    if (end > start && end[-1] == '\r')
        end--;
    const unsigned char *at = text + span.lo < end ? text + span.lo : end;
    Shown w = {.lo = start, .end = end};
    if (at - start > WINDOW * 2 / 3) {
        w.lo = at - WINDOW / 3;
        while (w.lo < at && (*w.lo & 0xc0) == 0x80)
            w.lo++;
        w.cut_left = true;
    }
    int n = 0;
    for (w.hi = w.lo; w.hi < end && n < WINDOW; n++)
        w.hi += char_len(w.hi, end);
    w.cut_right = w.hi < end;
    return w;
}

static void print_line(FILE *out, const Source *s, Span span)
{
    int line = line_of(s, span.lo);
    Shown w = shown_part(s, span, line);
    const unsigned char *text = (const unsigned char *)s->text;
    if (w.hi == w.lo) /* an empty line shows nothing */
        return;
    fprintf(out, "    %s", w.cut_left ? "..." : "");
    int col = 0;
    for (const unsigned char *p = w.lo; p < w.hi; p += char_len(p, w.end))
        col += put_char(out, p, w.end, col);
    fprintf(out, "%s\n    %s", w.cut_right ? "..." : "", w.cut_left ? "   " : "");

    const unsigned char *lo = text + span.lo, *hi = text + span.hi;
    const unsigned char *p = w.lo;
    for (col = 0; p < lo && p < w.hi; p += char_len(p, w.end)) {
        int n = *p == '\t' ? TAB - col % TAB : 1;
        fprintf(out, "%*s", n, "");
        col += n;
    }
    fputc('^', out);
    for (bool first = true; p < hi && p < w.hi; p += char_len(p, w.end), first = false) {
        int n = *p == '\t' ? TAB - col % TAB : 1;
        for (int k = first ? 1 : 0; k < n; k++)
            fputc('~', out);
        col += n;
    }
    fputc('\n', out);
}

static void print_one(Compiler *c, FILE *out, DiagLevel level, Span span, const char *text)
{
    if (span.file < 0 || span.file >= c->sources.len) {
        fprintf(out, "cellc: %s: ", level_word(level));
        put_text(out, text);
        return;
    }
    const Source *s = &c->sources.data[span.file];
    if (span.lo > s->len)
        span.lo = (uint32_t)s->len;
    if (span.hi > s->len)
        span.hi = (uint32_t)s->len;
    int line, column;
    source_position(s, span.lo, &line, &column);
    put_shown(out, s->path, strlen(s->path), false);
    fprintf(out, ":%d:%d: %s: ", line, column, level_word(level));
    put_text(out, text);
    print_line(out, s, span);
}

static void print_diag(Compiler *c, FILE *out, const Diag *d)
{
    enum { MAX_CHAIN = 8 };
    print_one(c, out, d->level, d->span, d->text);
    int n = 0;
    for (const CallSite *k = d->chain; k; k = k->outer, n++) {
        if (n < MAX_CHAIN) {
            char text[160];
            snprintf(text, sizeof text, "in the expansion of '%.100s'", k->fn ? k->fn : "?");
            print_one(c, out, DIAG_NOTE, k->span, text);
        }
    }
    if (n > MAX_CHAIN)
        fprintf(out, "    (and %d more calls)\n", n - MAX_CHAIN);
}

/* A diagnostic and the notes behind it: diags [first, first + count). */
typedef struct Group {
    const Diag *first;
    int count;
} Group;

static int compare_groups(const void *x, const void *y)
{
    const Diag *a = ((const Group *)x)->first, *b = ((const Group *)y)->first;
    if (a->span.file != b->span.file)
        return a->span.file < b->span.file ? -1 : 1;
    if (a->span.file >= 0 && a->span.lo != b->span.lo)
        return a->span.lo < b->span.lo ? -1 : 1;
    return a < b ? -1 : a > b; /* both lie in one array: the order they were given in */
}

static bool same_diag(const Diag *a, const Diag *b)
{
    return a->level == b->level && a->span.file == b->span.file && a->span.lo == b->span.lo &&
           a->span.hi == b->span.hi && strcmp(a->text, b->text) == 0;
}

/* Equal diagnostics stand together after sorting, save for others at the same place between them. */
static bool said_before(const Group *groups, int k)
{
    for (int i = k - 1; i >= 0 && i >= k - 16; i--)
        if (same_diag(groups[i].first, groups[k].first))
            return true;
    return false;
}

static void print_group(Compiler *c, FILE *out, const Group *g)
{
    if (says_json()) {
        diag_json(c, g->first, g->count, out);
        return;
    }
    for (int k = 0; k < g->count; k++)
        print_diag(c, out, g->first + k);
}

static void print_more(FILE *out, int n, const char *what)
{
    if (n)
        fprintf(out, "cellc: %d more %s%s\n", n, what, n == 1 ? "" : "s");
}

void diag_print(Compiler *c, FILE *out)
{
    int n = 0, count[2] = {0, 0}; /* of errors, of warnings */
    progress_end();
    Group *groups = arena_alloc(c->arena, sizeof *groups * (size_t)(c->diags.len + 1));
    for (int i = 0; i < c->diags.len; i++) {
        if (n && c->diags.data[i].level == DIAG_NOTE)
            groups[n - 1].count++;
        else
            groups[n++] = (Group){&c->diags.data[i], 1};
    }
    qsort(groups, (size_t)n, sizeof *groups, compare_groups);
    for (int i = 0; i < n; i++) {
        int *seen = &count[groups[i].first->level != DIAG_ERROR];
        if (!said_before(groups, i) && (++*seen <= MAX_PRINTED || says_json()))
            print_group(c, out, &groups[i]);
    }
    if (says_json())          /* a program wants them all */
        count[0] = count[1] = 0;
    print_more(out, count[0] - MAX_PRINTED > 0 ? count[0] - MAX_PRINTED : 0, "error");
    print_more(out, count[1] - MAX_PRINTED > 0 ? count[1] - MAX_PRINTED : 0, "warning");
    fflush(out);
}

static jmp_buf *way_out;          /* of bug, or NULL */

bool survives(void (*run)(void *), void *with)
{
    jmp_buf here, *outer = way_out;
    volatile bool ended = false;
    if (setjmp(here) == 0) {
        way_out = &here;
        run(with);
        ended = true;
    }
    way_out = outer;
    return ended;
}

void bug(Compiler *c, const char *pass, const char *fmt, ...)
{
    if (c)
        diag_print(c, stderr);
    Arena *arena = arena_new();
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_text(arena, fmt, ap);
    va_end(ap);
    say(DIAG_ERROR, says_json() ? NULL : "bug", says_json() ? "bug in pass %s: %s" : "in pass %s: %s", pass, text);
    arena_free(arena);
    if (way_out)
        longjmp(*way_out, 1);
    exit(70);
}
