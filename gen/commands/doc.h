/* doc.h: what `cellc doc` tells of a cell: collected once (doc_collect.c), printed as Markdown (doc_markdown.c) or as
 * JSON (doc_json.c). Everything points into the spec's source or its AST, or lives in the compiler's arena. */
#ifndef CELLC_DOC_H
#define CELLC_DOC_H

#include "front/ast.h"
#include "ir/ir.h"

struct Plan;

/* A line of the equations. A block's lines follow it, one deeper. */
typedef enum {
    LINE_COMMENT,                 /* a comment on a line of its own */
    LINE_IF, LINE_OTHERWISE, LINE_UNLESS,        /* of a `when`: `text` is the condition */
    LINE_FOR,                     /* repeat: `text` is the range of its index, stmt->lhs */
    LINE_FUNCTION,                /* fn: without its body, where that is a block */
    LINE_EQUATION
} DocLineKind;

typedef struct DocLine {
    DocLineKind kind;
    int depth;
    const Stmt *stmt;             /* LINE_COMMENT: NULL */
    Span text;                    /* LINE_COMMENT: without the slashes; LINE_OTHERWISE: empty */
    const char *note;             /* the comment behind it, or "" */
} DocLine;

/* A declaration. */
typedef struct DocRow {
    const Stmt *stmt;
    const char *where;            /* of a tensor: the condition on options that it stands under, as the spec has it; or "" */
    const char *note;             /* the comment behind it, or "" */
} DocRow;
typedef struct DocRows { DocRow *data; int len, cap; } DocRows;

typedef struct DocCell {
    Compiler *c;
    const Source *source;
    const Ast *ast;
    const Stmt *cell;
    const struct Plan *plan;
    const Module *lowered;        /* as it comes from the front end */
    Module *step;                 /* the step before it is differentiated, in normal form; gets more nodes */
    const char *batch;            /* how many sequences there are: "B", or "batch" where the spec has a B */
    const char *about;            /* the file's first comment, its lines without the slashes */
    Vec(DocLine) lines;
    DocRows sizes, options, tensors;
} DocCell;

/* Fills what follows from c, source, ast and cell. */
void doc_collect(DocCell *d);
/* Does the cell have a state? */
bool doc_walks(const DocCell *d);
/* Of a tensor: "[B, T, D]", with · for products. */
const char *doc_shape(const DocCell *d, const Stmt *tensor);
/* The line in Unicode (typeset.c), without what its kind says. */
const char *doc_text(const DocCell *d, const DocLine *line);
const char *doc_where(const DocCell *d, const DocRow *row);      /* likewise */
const char *doc_role(const Stmt *tensor);        /* "input", "const param", "state" */
void doc_markdown(const DocCell *d, bool picture, Buf *out);
void doc_json(const DocCell *d, Buf *out);

#endif
