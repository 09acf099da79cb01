/* case.h: one case of a cell: sizes, values for everything that is read, cotangents for everything that is
 * written. Random or from a vector file; what `cellc run` and `cellc check` feed to the evaluator and to
 * generated code. */
#ifndef CELLC_CASE_H
#define CELLC_CASE_H

#include "eval/eval.h"
#include "vec.h"

typedef struct Random { uint64_t state; } Random;
uint64_t random_bits(Random *r);
double random_uniform(Random *r);         /* [0, 1) */
double random_normal(Random *r);
int64_t random_below(Random *r, int64_t n);

/* All arrays are indexed as eval->tensors and live in the compiler's arena. */
typedef struct Case {
    int64_t batch, steps, first;  /* the number of the first step */
    double **value; /* input [B,T,..], param, state [B,..]; NULL: the spec's initial state; outputs NULL */
    double **cotangent;           /* of an output [B,T,..] or a final state [B,..]; NULL elsewhere */
} Case;

typedef enum { CASE_STATE_RANDOM, CASE_STATE_ZERO, CASE_STATE_DEFAULT } CaseState;
/* Inputs from N(0,1); all zero, for vectors under norms and ties; or twenty times as large, for saturated
 * gates. */
typedef enum { CASE_INPUT_NORMAL, CASE_INPUT_ZERO, CASE_INPUT_LARGE } CaseInput;

/* Elements of one tensor over the whole case. */
int64_t case_count(const Case *k, const EvalTensor *t);

/* Inputs as said, weights scaled by their last axis, other params around their initial value; all within
 * their ranges. A state that cannot be zero is NULL where states are; one that is `in reach` is what the cell
 * gives it. */
Case *case_random(Eval *e, int64_t batch, int64_t steps, CaseState states, CaseInput inputs, uint64_t seed);

/* Values and cotangents of a vector file; a state that it lacks is NULL, a cotangent that it lacks is zero.
 * NULL with the reason in f->error when an input or a param is missing or a shape is not the cell's. */
Case *case_from_vec(Eval *e, VecFile *f);

/* The cell's dims among the sizes of a file, and `history`, the steps that histories have room for; B, T and t0 are
 * left out, and so are names that are no dim of the cell. -1 with the reason in f->error when no dim can be so large or small. */
int case_sizes(const EvalOutline *o, VecFile *f, EvalSize *sizes);

/* Notes in f->error that the cell cannot be had at these sizes of the file. */
void case_sizes_refused(VecFile *f, const EvalSize *sizes, int n);

/* Lets eval_run read the case. Tangents and outputs stay as they are. */
void case_bind(const Case *k, Eval *e);

/* The shape of a tensor in a vector file: with batch and time where it has them. */
int case_shape(const Case *k, const EvalTensor *t, int64_t *shape);

#endif
