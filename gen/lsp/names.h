/* names.h: which names of a file mean the same (names.c). */
#ifndef CELLC_LSP_NAMES_H
#define CELLC_LSP_NAMES_H

#include "base/map.h"
#include "front/ast.h"

typedef enum {
    NAME_CELL, NAME_DIM, NAME_CONST, NAME_OPTION, NAME_CHOICE, NAME_INPUT, NAME_PARAM, NAME_STATE,
        NAME_OUTPUT, NAME_RESET,
    NAME_DEFINITION, NAME_CARRY, NAME_FN, NAME_PARAMETER, NAME_COTANGENT, NAME_INDEX, NAME_ITERATION
} NameKind;

typedef struct Region Region;

/* One thing that has a name. */
typedef struct Name {
    NameKind kind;
    const char *name;
    Span span;                    /* where it is declared, or defined first */
    const Stmt *stmt;             /* what declares it; NULL for an index */
    const Stmt *cell;             /* that it stands in, or NULL */
    const Stmt *fn;               /* likewise */
    const struct Name *option;    /* CHOICE: its option */
    const struct Name *of;        /* DEFINITION d_u of an adjoint fn: its parameter u */
    Region *region;               /* where it is in scope; FN: what its block defines, and its parameters */
} Name;

/* A place where a name stands. name NULL: of the language, or not known. */
typedef struct Use {
    Span span;
    Name *name;
    Region *region;
    bool defines;                 /* declares it or gives it a value */
    bool call, primed;
    Name *picked_of;              /* f(x).r: the fn, of r; names_of finds what r is */
} Use;

/* Where names are in scope: a cell, a fn, a repeat, an expression that binds indices. */
struct Region {
    Region *outer;
    Span span;
    NameMap names;                /* -> Name */
    Vec(Name *) list;             /* the same, in order */
    bool indices;                 /* has indices only */
    bool repeat;
    bool apart;                   /* fn outside of a cell: nothing around it is seen */
};

typedef struct NameTable {
    Compiler *c;
    int file;
    Vec(Use) uses;                /* in the order of the file, those of imported files left out */
    Vec(Region *) regions;        /* an inner one behind the one around it */
    Vec(Name *) all;
    NameMap fns;                  /* -> Name, imported ones too */
    Vec(Name *) fn_list;
    Vec(const Ast *) asts;        /* of the file, then of what it imports */
} NameTable;

/* Of a file that was parsed in c, which may read others. */
NameTable *names_of(Compiler *c, const Ast *ast);
/* The use at the offset, or right before it; NULL. */
const Use *names_at(const NameTable *n, uint32_t offset);
/* The innermost region around the offset; NULL: it is in none. */
Region *region_at(const NameTable *n, uint32_t offset);
/* What the name means there; an index only where `indices`. */
Name *region_find(const Region *r, const char *name, bool indices);
/* "an input" */
const char *name_kind_words(const Name *n);

#endif
