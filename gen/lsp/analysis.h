/* analysis.h: what the compiler says of a text that is being written (analysis.c). */
#ifndef CELLC_LSP_ANALYSIS_H
#define CELLC_LSP_ANALYSIS_H

#include "front/front.h"
#include "names.h"

struct Symbol;

/* Texts that editors have open, in the place of files. */
typedef struct OpenText { const char *path, *text; size_t len; } OpenText;
typedef struct Sources {
    const OpenText *open;
    int n_open;
    const char *import_dir, *library_dir;
} Sources;

/* When a value is computed: its name in the IR, and the words of explain. */
typedef struct When { const char *name, *words; } When;

/* A cell with one choice of its options. */
typedef struct Variant {
    Compiler *c;
    const Stmt *cell;
    Flat *flat;                   /* NULL: it was not reached */
    int nodes;                    /* expressions of it */
    bool sound;                   /* there are no errors */
    const char *with;             /* "bias=input, gate=none"; "": the options as they are declared */
    bool planned;                 /* plan_variant was asked, and found: */
    Vec(When) when;
    const char *schedule, *work, *memory;     /* NULL: there is no plan */
} Variant;

/* A diagnostic with the notes behind it. */
typedef struct Fault { const Compiler *c; const Diag *first; int count; const char *with; } Fault;

/* A branch of a `when`, by its place in the text: the one where the condition holds, or the other. */
typedef struct Branch { uint32_t at; bool other; } Branch;
/* A choice of options that is to be tried, for a branch where that is not taken yet, or (at 0) anyway. */
typedef struct Attempt { const Stmt *cell; const char *with; Branch branch; } Attempt;

typedef struct Analysis {
    Compiler *c;
    const char *path;
    int file;                     /* of the text, in c; 0 in the compilations of variants too */
    const Ast *ast;
    bool parsed;                  /* without errors */
    bool sound;                   /* no variant that was looked at has errors */
    NameTable *names;                 /* of the text, or of what recovery makes of it with the blocks closed
                                       * that it leaves open */
    Vec(Variant *) variants;      /* of each cell the one with the options as declared, then others */
    Vec(Fault) faults;            /* each once */
    Vec(Attempt) trials;          /* from `tried` on they are still to be looked at */
    int tried;
    int nodes;                    /* expressions of all variants */
    Vec(Branch) taken;            /* by some variant */
} Analysis;

enum {
    MAX_TRIALS = 400,
    MAX_VARIANTS = 48,            /* of a file */
    MAX_VARIANT_NODES = 60000,    /* expression nodes of all: what they cost is not felt */
    MAX_PLANNED_NODES = 20000     /* of a cell that is planned while it is written */
};

/* The text of path is among the open ones. Each cell is looked at with its options as they are declared. */
Analysis *analyse(const Sources *s, const char *path);
void analysis_free(Analysis *a);
/* Are there choices of options left? Then the next one; all of them. */
bool analysis_goes_on(const Analysis *a);
void analysis_step(Analysis *a);
void analysis_finish(Analysis *a);
/* Was the file read for it? */
bool analysis_reads(const Analysis *a, const char *path);
/* costs.c: asks the planner, once. */
void plan_variant(Variant *v);
/* Likewise: the page of `cellc explain`; false: there is none, and *why says why. */
bool explain_variant(const Variant *v, Buf *out, const char **why);
/* What a name is in a variant; NULL: it is not there, as in a branch that is not taken. */
const struct Symbol *variant_symbol(const Variant *v, const Name *n);
/* Of an index: its range; NULL: not known. */
const Poly *variant_extent(const Variant *v, const Name *n);

#endif
