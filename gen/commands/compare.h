/* compare.h: what the parts of `cellc compare` share: two cells with settings, what is found of each, and how
 * that is laid out. All of it lives in the arena of the command's compilation. */
#ifndef CELLC_COMPARE_H
#define CELLC_COMPARE_H

#include "base/table.h"
#include "check.h"

/* --rename a=b: what is called a in the first cell is b in the second. */
typedef struct Rename { const char *from, *to; } Rename;
typedef struct Renames { const Rename *list; int n; } Renames;
/* What a name of the first cell is in the second. */
const char *renamed(const Renames *r, const char *name);
/* A text of the first cell with the names that they have in the second. */
const char *renamed_text(Compiler *c, const Renames *r, const char *text);

/* ---- compare_text.c: lines of two texts beside each other */

typedef enum { LINE_BOTH, LINE_CHANGED, LINE_FIRST, LINE_SECOND } LineSide;
/* A line of both, of one, or one in the place of another: `first` and `second`, NULL where there is none.
 * `label` is of a row, or "". */
typedef struct DiffLine { LineSide side; const char *label, *first, *second; } DiffLine;
typedef Vec(DiffLine) Diff;

/* The longest common lines are joined. Lines are compared as the first cell's are renamed. */
Diff diff_texts(Compiler *c, const Renames *r, const char *first, const char *second);
/* Rows (label, text) of two tables by their labels, in the order of the first; texts are compared as above.
 * */
Diff diff_rows(Compiler *c, const Renames *r, const Table *first, const Table *second);
bool diff_same(const Diff *d);
/* In two columns where `width` has room for them, else one after the other, with - and + in front. */
void diff_print(Compiler *c, const Diff *d, int width, Buf *out);
void diff_json(const Diff *d, Buf *out);

/* ---- compare_values.c: both on equal values */

/* One of the two cells, for the evaluator and the reference. */
typedef struct Side {
    const char *path;
    const Compiler *user;         /* settings */
    EvalOutline outline;
    Subject s;                    /* at the sizes that were chosen */
    void *reference;              /* opened; NULL: not yet */
} Side;

typedef enum { DIFFER_NOT, DIFFER_VALUE, DIFFER_GRADIENT } DifferKind;
/* The first element in which a tensor differs. */
typedef struct Difference {
    DifferKind kind;
    const char *what;             /* "output y", "final state h", "value z", "gradient of param W" */
    const char *where;            /* "step 3, sequence 0, [2,1]" */
    double first, second, tolerance;
} Difference;

typedef struct ValueRequest {
    Side *first, *second;
    Renames renames;
    VecFile *vectors;             /* or NULL: random values of `seed` */
    const char *vectors_path;
    int64_t batch, steps, seed;
    double unit;                  /* half a unit in the last place of 1, of the type that decides */
    bool gradients;
} ValueRequest;

typedef struct ValueResult {
    const char *error;            /* why nothing could be compared, or NULL; "": that was said */
    const char *sizes;            /* "B=2, T=5, D=7" */
    const char *of;               /* which values: of the case that differs first, or of the last one */
    int cases;
    bool gradients;               /* they were compared */
    Vec(const char *) alone;      /* "input b is in the second only" */
    Vec(Difference) differ;       /* of that case, what comes first in time first */
} ValueResult;

/* Runs both at the same sizes on values that are equal where names, kinds and shapes are: in the evaluator,
 * and the gradients in the reference. Stops at the first case in which something differs. */
ValueResult compare_values(Compiler *c, ValueRequest *r);

#endif
