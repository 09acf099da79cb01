/* reads.h: analysis of what arrays read (reads.c), used by plan.c. */
#ifndef CELLC_READS_H
#define CELLC_READS_H

#include "plan.h"

/* An array that is nothing but a read of another value, or a number. */
bool alias_candidate(const Module *m, NodeId array);

/* An array's element at its own indices. */
Read read_itself(Module *m, NodeId array);
/* The array that this one is another name of, element by element; or itself. */
NodeId plan_named(const Plan *p, NodeId array);
/* Of which array an element is read there, through aliases; -1: of a tensor. False where nothing is read. */
bool plan_source(const Plan *p, NodeId id, NodeId *array);
/* Is the value made of no sum, and does `takes` take each read in it? */
typedef bool TakesRead(void *of, const Read *r);
bool every_read(const Plan *p, NodeId value, TakesRead *takes, void *of);
/* Is it read from outside of the group: an array, or ~tensor? */
bool group_reads(const Group *g, int key);
/* A bound on the pointers of a kernel that walks all steps. For a tensor that a step reads: two if it is
 * carried (its initial value lies elsewhere), else one. For an array that another kernel makes: one. For an
 * array of the step that is not on_chip: one, or three if it is a root (next state, final state, history). */
int walk_pointers(const Plan *p, const Program *pr, bool on_chip(void *of, NodeId array), void *of);
/* Element number within a row of the value's storage: sum of map * stride. */
const IxExpr *read_linear(Module *m, const Read *r);
/* The same where the value may be a piece of another's rows. */
const IxExpr *storage_linear(Module *m, const Read *r, const Storage *st);
/* Behind the first axes: how many elements of an array, and the number of the element at its own indices. */
const Poly *elements_from(Module *m, NodeId array, int first);
const IxExpr *inner_linear(Module *m, NodeId array, int lead);

/* One term of an array that lays others together: behind the first `lead` axes, which it shares with the whole,
 * elements [offset, offset + its own) are those of `array`. */
typedef struct Piece { NodeId array, read; const Poly *offset; int lead; } Piece;
/* The pieces of `array` when they tile it exactly and each is another array; else 0. rows: or when they so tile each
 * of its rows along some leading axes. */
int cat_pieces(Module *m, NodeId array, bool rows, Piece *out, int max);

/* Row pitch of a value in memory, and the axes before it. */
typedef struct Layout { bool batched, timed, time_first; const Poly *pitch; } Layout;
typedef struct Contraction { Read a, b, c; Layout lay_a, lay_b, lay_c; bool one_step; } Contraction;
/* False when no single (batched) GEMM with unit strides computes it. one_step: time is fixed from outside. */
bool match_gemm(Module *m, const Contraction *c, Gemm *g);

#endif
