/* compiler.h: one compilation: its sources, what the command line sets, what was diagnosed. */
#ifndef CELLC_COMPILER_H
#define CELLC_COMPILER_H

#include "diag.h"
#include "util.h"

/* Reductions, of the language and of the IR. */
typedef enum { R_SUM, R_MEAN, R_MAX, R_MIN, R_PROD, R_SOFTMAX } ReduceOp;

typedef enum { DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32, DT_E4M3, DT_E5M2 } Dtype;

/* Is it a type of 8 bits, whose numbers stand beside scales? */
static inline bool dtype_is_fp8(Dtype t)
{
    return t == DT_E4M3 || t == DT_E5M2;
}

/* How products for all steps are made: large ones of f32 from parts of bf16, and large ones of 16 bits in one kernel with what is
 * computed from them; none so; all of the former; all of the latter. */
typedef enum { PRODUCTS_AUTO, PRODUCTS_PLAIN, PRODUCTS_PARTS, PRODUCTS_FUSED } Products;

/* settings.c: the words for types ("f32", ...) and forms of the products, in the order of the enums, with NULL behind the last. */
extern const char *const dtype_names[];
extern const char *const products_names[];

typedef struct Setting { const char *name, *value; bool used; } Setting;   /* --dim N=32, --set bias=input */

/* How a state's rows and columns lie over a warp's lanes and a block's warps; all 0: the planner chooses. */
typedef struct LayoutHint { int row_lanes, col_lanes, row_warps, col_warps; } LayoutHint;
/* --schedule NAME:cluster=4:interval=2:...: what somebody else has chosen of a walk; 0: the planner does. */
typedef struct WalkHints {
    int cluster;                  /* blocks that share a state */
    int interval;                 /* steps between checkpoints */
    int warps;                    /* of a block, where the direction has no layout below */
    LayoutHint layout[2];         /* forward, backward */
    int rows;                     /* steps of a chunk */
} WalkHints;

typedef struct Module Module;

struct Compiler {
    Arena *arena;
    struct Texts *texts;          /* of the files that were read (texts.h), shared with compilations made from this one */
    Vec(Source) sources;
    Vec(Diag) diags;
    int errors;
    struct InternTable *interned;
    struct Names *words;          /* of C, which no generated name may be (emit_common.c); NULL: not asked for yet */
    Vec(Setting) dims;            /* --dim */
    Vec(Setting) sets;            /* --set: options and constants */
    Dtype dtype;                  /* --dtype: storage of inputs, params and outputs */
    Vec(Setting) types; /* --dtype-of: of one input or param */
    const struct Schedule *schedule;         /* --schedule (schedule.h); NULL: the planner chooses */
    WalkHints hints;              /* what stands behind --schedule NAME: */
    bool scheduled;               /* --schedule was given */
    const char *tuned;            /* --tuned: a file of `cellc tune`; NULL: looked for */
    const char *tuned_dir;        /* where the library will lie, and perhaps such a file; NULL: it will not */
    bool is_tuned;                /* the schedule is from one */
    bool reverse;                 /* --reverse: time is walked from the last step to the first */
    Products products;            /* --products */
    bool no_performance;          /* -Wno-performance: no performance warnings */
    bool lengths;                 /* --lengths: the call says how many steps each sequence has */
    bool packed;                  /* --packed: sequences follow one another without padding, as cu_seqlens says */
    bool slots; /* --slots: kernels find states in rows that a call names, for sessions */
    const char *program; /* a hash of what the cell computes (tune_program); NULL before it is compiled */
    const char *cell;             /* SPEC:NAME, the cell of a file that has several; NULL: the only one */
    const char *import_dir;       /* --import-dir: where imports are looked for next to the importing file's own directory */
    const char *library_dir;      /* and then here: where std.cell lies; NULL if it is not there */
    const char *dump_after;       /* pass name or NULL */
    bool verify_passes; /* CELLC_VERIFY_PASSES: verifies behind each pass, not behind the last alone */
    const char *archs;            /* --archs: GPUs that must run the kernels; NULL: those with the most memory */
};

Compiler *compiler_new(void);
void compiler_free(Compiler *c);

#endif
