/* reason.h: why a cell is not taken, and which term of the spec says so (reason.c). */
#ifndef CELLC_REASON_H
#define CELLC_REASON_H

#include "ir/ir.h"

typedef struct Reason {
    const char *text;             /* in words of the spec, without the place */
    Span at;                      /* the term; file -1: it is no single one */
    bool gradient;                /* it is the term's gradient that forbids it, not the term */
} Reason;

/* A reason of the whole cell; one of a declaration, or another place of the spec; one of a value: where its
 * term depends on a cotangent it is one of the gradient. */
const Reason *reason(const Module *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const Reason *reason_at(const Module *m, Span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const Reason *reason_of(const Module *m, const Node *value, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* "line 12", "std.cell:12" for a place in another file than the cell, "" without one. */
const char *line_words(const Module *m, Span at);
/* The text and its place: "... (line 12)", "... (the gradient of line 12)". */
const char *reason_words(const Module *m, const Reason *r);

#endif
