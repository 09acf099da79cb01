/* say.c: what a command says to its user. In: messages, and texts of files and command lines in them, of any
 * bytes. Out: lines on standard error, or JSON. Guaranteed: a message is one line, and nothing in it steers a
 * terminal or changes the order in which it is read, whatever a file is called and whatever stands in it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

/* ---- text that can be shown */

unsigned code_point(const unsigned char *p, int n)
{
    unsigned code = n == 1 ? *p : *p & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++)
        code = code << 6 | (p[i] & 0x3fu);
    return code;
}

int shown_char(const unsigned char *p, const unsigned char *end, bool *shown)
{
    static const struct { unsigned first, last; } hidden[] = {
        { 0, 0x1f }, { 0x7f, 0x9f },                      /* control characters */
        { 0x2028, 0x2029 },                               /* line and paragraph separator */
        { 0x061c, 0x061c }, { 0x200e, 0x200f }, { 0x202a, 0x202e }, { 0x2066, 0x2069 },  /* directions */
    };
    int n = utf8_len(p, end);
    unsigned code = n ? code_point(p, n) : 0;
    *shown = true;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        *shown &= code < hidden[i].first || code > hidden[i].last;
    return n ? n : 1;
}

void put_shown(FILE *out, const char *text, size_t len, bool lines)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + len, *from = p;
    for (int n; p < end; p += n) {
        bool shown;
        n = shown_char(p, end, &shown);
        if (shown || (lines && (*p == '\n' || *p == '\t')))
            continue;
        fwrite(from, 1, (size_t)(p - from), out);
        fputc('?', out);
        from = p + n;
    }
    fwrite(from, 1, (size_t)(end - from), out);
}

const char *shown_text(Compiler *c, const char *text)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + strlen(text);
    char *copy = arena_alloc(c->arena, strlen(text) + 1), *to = copy;
    for (int n; p < end; p += n) {
        bool shown;
        n = shown_char(p, end, &shown);
        memcpy(to, shown ? (const char *)p : "?", shown ? (size_t)n : 1);
        to += shown ? n : 1;
    }
    *to = 0;
    return copy;
}

void buf_shown(Buf *b)
{
    const unsigned char *p = (const unsigned char *)b->data, *end = p + b->len;
    char *to = b->data;
    for (int n; p < end; p += n) {
        bool shown;
        n = shown_char(p, end, &shown);
        shown |= *p == '\n' || *p == '\t';
        memmove(to, shown ? (const char *)p : "?", shown ? (size_t)n : 1);
        to += shown ? n : 1;
    }
    b->len = (size_t)(to - b->data);
}

void print_shown(const char *text)
{
    put_shown(stdout, text, strlen(text), false);
    putchar('\n');
}

/* ---- messages */

static bool as_json;

void say_json(bool json)
{
    as_json = json;
}

bool says_json(void)
{
    return as_json;
}

bool asks_json(int argc, char **argv)
{
    static const char option[] = "--diagnostics";
    const size_t n = sizeof option - 1;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], option, n) == 0 &&
            (strcmp(argv[i] + n, "=json") == 0 || (!argv[i][n] && i + 1 < argc && strcmp(argv[i + 1], "json") == 0)))
            return true;
    return false;
}

/* ---- progress: a line that is written again and again, ended by none */

static bool progress_stands;

bool progress_shown(void)
{
    const char *terminal = getenv("TERM");
    return !as_json && terminal && strcmp(terminal, "dumb") != 0 && isatty(2);
}

void progress(int done, int of, const char *what)
{
    enum { WIDTH = 24, SHOWN = 50 };
    char bar[WIDTH + 1];
    if (!progress_shown())
        return;
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i * (int64_t)of < done * (int64_t)WIDTH ? '#' : '-';
    bar[WIDTH] = 0;
    fflush(stdout);
    fprintf(stderr, "\r\033[K[%s] %d of %d  ", bar, done, of);
    put_shown(stderr, what, strnlen(what, SHOWN), false);
    fflush(stderr);
    progress_stands = true;
}

void progress_end(void)
{
    if (progress_stands)
        fputs("\r\033[K", stderr);
    progress_stands = false;
    fflush(stderr);
}

/* `whole`: with a line break at the end of each line already. */
static void put_message(DiagLevel level, const char *head, const char *file, int line, int column, const char *text, size_t len,
                        bool whole)
{
    progress_end();
    fflush(stdout);
    if (as_json) {
        Buf out = { .arena = arena_new() };
        buf_f(&out, "{\"level\": \"%s\", \"message\": ", level_word(level));
        buf_json(&out, text, len);
        if (file) {
            buf_f(&out, ", \"file\": ");
            buf_json(&out, file, strlen(file));
        }
        if (line)
            buf_f(&out, ", \"line\": %d, \"column\": %d, \"end_line\": %d, \"end_column\": %d", line, column, line, column);
        buf_f(&out, ", \"notes\": []}\n");
        fwrite(out.data, 1, out.len, stderr);
        arena_free(out.arena);
    } else {
        put_shown(stderr, head, strlen(head), false);
        put_shown(stderr, text, len, whole);
        if (!whole)
            fputc('\n', stderr);
    }
    fflush(stderr);
}

void say(DiagLevel level, const char *command, const char *fmt, ...)
{
    Arena *arena = arena_new();
    Buf head = { .arena = arena };
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_text(arena, fmt, ap);
    va_end(ap);
    if (!command || *command)
        buf_f(&head, "cellc%s%s: ", command ? " " : "", command ? command : "");
    put_message(level, head.data ? head.data : "", NULL, 0, 0, text, strlen(text), false);
    arena_free(arena);
}

void say_at(DiagLevel level, const char *file, int line, int column, const char *fmt, ...)
{
    Arena *arena = arena_new();
    Buf head = { .arena = arena };
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_text(arena, fmt, ap);
    va_end(ap);
    if (line)
        buf_f(&head, "%s:%d:%d: %s: ", file, line, column, level_word(level));
    else
        buf_f(&head, "%s: %s: ", file, level_word(level));
    put_message(level, head.data, file, line, column, text, strlen(text), false);
    arena_free(arena);
}

void say_lines(DiagLevel level, const char *text)
{
    size_t len = strlen(text);
    while (as_json && len && text[len - 1] == '\n')
        len--;
    if (len)
        put_message(level, "", NULL, 0, 0, text, len, true);
}
