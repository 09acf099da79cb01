/* text.c: the text of a document, and the two ways to name a place in it. In: what an editor sends: whole
 * texts, changes, positions. Out: bytes, and offsets that the compiler has. Guaranteed: offsets are inside
 * the text and never inside a character, whatever position is asked for. */
#include <stdlib.h>
#include <string.h>

#include "base/say.h"
#include "text.h"

const char *const units_names[] = { "utf-16", "utf-8", "utf-32", NULL };

static void *must_realloc(void *old, size_t bytes)
{
    void *p = realloc(old, bytes);
    if (!p) {
        say(DIAG_ERROR, "lsp", "out of memory (%zu bytes wanted)", bytes);
        exit(70);
    }
    return p;
}

static void push_line(Text *t, size_t start)
{
    if (t->lines == t->line_cap) {
        t->line_cap = t->line_cap ? 2 * t->line_cap : 64;
        t->line_start = must_realloc(t->line_start, (size_t)t->line_cap * sizeof *t->line_start);
    }
    t->line_start[t->lines++] = (uint32_t)start;
}

static void find_lines(Text *t)
{
    t->lines = 0;
    push_line(t, 0);
    for (size_t i = 0; i < t->len; i++)
        if (t->data[i] == '\n' || (t->data[i] == '\r' && t->data[i + 1] != '\n'))
            push_line(t, i + 1);
}

void text_set(Text *t, const char *data, size_t len)
{
    t->len = 0;
    text_replace(t, 0, 0, data, len);
}

void text_replace(Text *t, size_t lo, size_t hi, const char *data, size_t len)
{
    size_t behind = t->len - hi, whole = lo + len + behind;
    if (whole + 1 > t->cap) {
        t->cap = whole + whole / 2 + 64;
        t->data = must_realloc(t->data, t->cap);
    }
    memmove(t->data + lo + len, t->data + hi, behind);
    if (len)
        memcpy(t->data + lo, data, len);
    t->len = whole;
    t->data[whole] = 0;
    find_lines(t);
}

void text_free(Text *t)
{
    free(t->data);
    free(t->line_start);
    *t = (Text) { 0 };
}

static int line_of(const Text *t, size_t offset)
{
    int lo = 0, hi = t->lines;
    while (hi - lo > 1) {
        int mid = lo + (hi - lo) / 2;
        if (t->line_start[mid] <= offset)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static int bytes_at(const unsigned char *p, const unsigned char *end)
{
    int n = utf8_len(p, end);
    return n ? n : 1;
}

static int units_of(int bytes, PlaceUnits units)
{
    return units == UNITS_UTF8 ? bytes : units == UNITS_UTF16 && bytes == 4 ? 2 : 1;
}

/* Where the line's own characters end. */
static size_t line_end(const Text *t, int line)
{
    size_t end = line + 1 < t->lines ? t->line_start[line + 1] : t->len, start = t->line_start[line];
    if (line + 1 < t->lines) {
        end--;
        if (end > start && t->data[end] == '\n' && t->data[end - 1] == '\r')
            end--;
    }
    return end;
}

Place text_place(const Text *t, size_t offset, PlaceUnits units)
{
    if (!t->lines)
        return (Place) { 0, 0 };
    if (offset > t->len)
        offset = t->len;
    Place at = { line_of(t, offset), 0 };
    const unsigned char *text = (const unsigned char *)t->data, *end = text + t->len;
    for (size_t i = t->line_start[at.line]; i < offset;) {
        int n = bytes_at(text + i, end);
        if (i + (size_t)n > offset)
            break;
        at.character += units_of(n, units);
        i += (size_t)n;
    }
    return at;
}

size_t text_offset(const Text *t, Place at, PlaceUnits units)
{
    if (at.line < 0 || !t->lines)
        return 0;
    if (at.line >= t->lines)
        return t->len;
    const unsigned char *text = (const unsigned char *)t->data, *end = text + t->len;
    size_t i = t->line_start[at.line], stop = line_end(t, at.line);
    for (int k = 0; i < stop && k < at.character;) {
        int n = bytes_at(text + i, end);
        k += units_of(n, units);
        if (k > at.character)     /* inside of the character */
            break;
        i += (size_t)n;
    }
    return i;
}

/* ---- URIs */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F'
           ? c - 'A' + 10 : -1;
}

const char *uri_path(Arena *arena, const char *uri)
{
    static const char scheme[] = "file://";
    size_t n = strlen(uri);
    char *path = arena_alloc(arena, n + 1), *to = path;
    const char *p = uri;
    if (strncmp(uri, scheme, sizeof scheme - 1) != 0) {
        memcpy(path, uri, n + 1);
        return path;
    }
    p += sizeof scheme - 1;
    p += strcspn(p, "/");         /* of this machine, whatever it is called */
    for (; *p; p++) {
        int high = *p == '%' ? hex_digit(p[1]) : -1, low = high >= 0 ? hex_digit(p[2]) : -1;
        if (low >= 0 && (high || low)) {
            *to++ = (char)(high * 16 + low);
            p += 2;
        } else {
            *to++ = *p;
        }
    }
    *to = 0;
    return path;
}

void path_uri(const char *path, Buf *out)
{
    if (*path != '/') {           /* what is no file is its own URI */
        buf_f(out, "%s", path);
        return;
    }
    buf_f(out, "file://");
    for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     strchr("/-._~", *p);
        buf_f(out, plain ? "%c" : "%%%02X", *p);
    }
}
