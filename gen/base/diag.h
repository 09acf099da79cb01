/* diag.h: sources and diagnostics (diag.c; as JSON: diag_json.c). */
#ifndef CELLC_DIAG_H
#define CELLC_DIAG_H

#include "util.h"

/* Byte offsets [lo, hi) in sources[file]; file -1: none. */
typedef struct Span { int32_t file; uint32_t lo, hi; } Span;

typedef struct Source {
    const char *path;             /* as the user wrote it */
    const char *text;             /* len bytes, then a NUL; may contain NULs when the input is broken */
    size_t len;
    uint32_t *line_start;         /* byte offset of each line */
    int lines;
} Source;

/* A chain of fn expansions, innermost first; printed as notes "in the expansion of ...". */
typedef struct CallSite { Span span; const char *fn; const struct CallSite *outer; } CallSite;

/* DIAG_PERF prints "performance warning" */
typedef enum { DIAG_ERROR, DIAG_WARNING, DIAG_PERF, DIAG_NOTE } DiagLevel;

/* A note belongs to the diag before it. fix: what to write in the place of fix_span, which mends it; NULL:
 * not known. */
typedef struct Diag {
    DiagLevel level;
    Span span;
    const char *text;
    const CallSite *chain;
    Span fix_span;
    const char *fix;
} Diag;

/* -> file number; text is copied */
int source_add(Compiler *c, const char *path, const char *text, size_t len);
int source_load(Compiler *c, const char *path);                         /* -> file number or -1 with a diag */
int source_import(Compiler *c, const char *path, Span at);          /* the same of what is imported there */
void source_position(const Source *s, uint32_t offset, int *line, int *column);   /* both from 1 */
void diag(Compiler *c, DiagLevel level, Span span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void diag_chain(Compiler *c, const CallSite *chain);              /* attach a call chain to the last diag */
void diag_fix(Compiler *c, Span at, const char *fix);          /* likewise a text that mends it; NULL: none */
/* The nearest of n names within an edit distance of max(1, len/3), or NULL; of names as near one as long. */
const char *suggest(const char *name, const char *const *names, int n);
/* "error" and so on. */
const char *level_word(DiagLevel level);
/* All, in source order: with carets, or where say_json was called as JSON (diag_json.c). */
void diag_print(Compiler *c, FILE *out);
/* One object on a line: a diagnostic and the notes behind it. */
void diag_json(const Compiler *c, const Diag *first, int count, FILE *out);
/* Runs `run`; true when it came to its end, false when it found a bug of cellc, which was said. For a process
 * that goes on after one: what `run` allocated in arenas goes with these. */
bool survives(void (*run)(void *), void *with);
/* exits with 70, or goes to the innermost survives */
void bug(Compiler *c, const char *pass, const char *fmt, ...) __attribute__((format(printf, 3, 4), noreturn));

#endif
