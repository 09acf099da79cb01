/* util.h: memory, interned strings and text buffers (util.c). Everything is allocated in the arena of a compilation and
 * freed at once with it; strings are interned, so that equal names are equal pointers. */
#ifndef CELLC_UTIL_H
#define CELLC_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Arena Arena;
Arena *arena_new(void);
void arena_free(Arena *a);
void arena_reset(Arena *a);                                       /* all blocks are gone, the pages stay */
void *arena_alloc(Arena *a, size_t bytes);                       /* zeroed, 16-byte aligned, never NULL */
/* Gives `old` where there is room behind it, else a copy; `old` is released then. */
void *arena_grow(Arena *a, void *old, size_t old_bytes, size_t new_bytes);
void arena_release(Arena *a, void *p, size_t bytes);              /* memory that is not read any more */
const char *arena_text(Arena *a, const char *fmt, va_list ap);    /* formatted */

/* A growable array: struct { T *data; int len, cap; }. */
#define Vec(T) struct { T *data; int len, cap; }
#define vec_push(arena, v, x)                                                                                \
    do {                                                                                                     \
        if ((v)->len == (v)->cap) {                                                                          \
            int cap_ = (v)->cap ? 2 * (v)->cap : 8;                                                          \
            (v)->data = arena_grow((arena), (v)->data, sizeof *(v)->data * (size_t)(v)->cap,                 \
                                   sizeof *(v)->data * (size_t)cap_);                                        \
            (v)->cap = cap_;                                                                                 \
        }                                                                                                    \
        (v)->data[(v)->len++] = (x);                                                                         \
    } while (0)

typedef struct Compiler Compiler;
const char *intern(Compiler *c, const char *s);
const char *intern_n(Compiler *c, const char *s, size_t n);
const char *intern_f(Compiler *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A growing text buffer; emitters print into it. */
/* dropped: what is printed goes nowhere. */
typedef struct Buf { Arena *arena; char *data; size_t len, cap; int indent; bool dropped; } Buf;
Buf buf_like(const Buf *b);                                       /* empty, as far in, dropped if b is */
void buf_release(Buf *b);                                         /* empty again; its text is gone */
void buf_f(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));   /* append */
void buf_blanks(Buf *b, int n); /* append n spaces, none where n < 0 */
void buf_bytes(Buf *b, const char *s, size_t n);
void buf_text(Buf *b, const char *s);                             /* cheaper than buf_f: no format is read */
void buf_int(Buf *b, long long v);                                /* in decimal, likewise */
/* indent, append, newline */
void buf_line(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_json(Buf *b, const char *s, size_t len);                 /* a JSON string, with its quotes */
/* Bytes of the well-formed UTF-8 sequence at p, or 0 when there is none. */
int utf8_len(const unsigned char *p, const unsigned char *end);

#endif
