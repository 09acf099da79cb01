/* outer.h: the cut of a step, for schedule chunk (outer.c). The recurrences of states that can go in chunks
 * are taken out of the module: what they are made of becomes outputs (operands), the sums over their states
 * inputs (reads), and what is left is a step without these states, the outer module. A row of a walk in
 * chunks, for each place of the heads, is then
 *
 *     d_n = z_n + w_n' S      S <- a o S + sum_n c_n d_n'      o_r = q_r' S, before the row or behind it
 *
 * with the names of chunk.h, in which every vector is made of three: scale * number * vector. A step has a
 * row for each of its updates, or, where any has several corrections, a row for each of them.
 *
 * Two states S_0 and S_1 that feed one another are one walk of a state with twice as many keys: key 2 k + i is
 * key k of S_i, and so it is of c, w and q, whose tensors have an axis for i behind the key's. Then a is a
 * matrix of 2 x 2 numbers. */
#ifndef CELLC_CHUNK_OUTER_H
#define CELLC_CHUNK_OUTER_H

#include "chunk.h"
#include "plan/reason.h"

/* Tensors of the outer module, of Tensor.chunk; -1: 1, or of a decay none. A number has the axes of the
 * heads, a vector those and behind them the key's or the values'. Where a step has several updates, the first
 * axis counts them: in the order in which the walk takes them in memory, which with --reverse is the other
 * way. */
typedef struct ChunkOperand {
    bool is_there;                /* z and w: there is one */
    double scale;
    TensorId number, vector;
} ChunkOperand;

typedef struct ChunkAdded { ChunkOperand column, known, weight; } ChunkAdded;     /* c, z, w */

/* given: what is read, with the axes of the heads and behind them the values'. */
typedef struct ChunkGiven { ChunkOperand weight; TensorId given; bool before; } ChunkGiven;

/* One state, or two that feed one another. Axes are its own, by number. n_keys: of both. */
typedef struct ChunkCut {
    TensorId state, other; /* other: S_1; -1: there is one */
    int level; /* how many walks stand before it, of what its operands read */
    int rank, key;
    int updates; /* of a step: rows */
    int together; /* rows of an update with several corrections, which all see the state before it; else 1 */
    int *heads, nheads;           /* in their order; several make one number, the first is the slowest */
    int *values, nvalues;         /* likewise */
    const Poly *n_heads, *n_keys, *n_values;
    TensorId decay;               /* -1: none; of two states behind the heads an axis for a_ij, at 2 i + j */
    bool by_key, by_value; /* the decay has a number for each key, or each value */
    struct { ChunkAdded *data; int len, cap; } added;
    int corrected; /* 0: the first of them has a w; -1: none has */
    struct { ChunkGiven *data; int len, cap; } reads;
} ChunkCut;
typedef struct ChunkCuts { ChunkCut *data; int len, cap; } ChunkCuts;

/* Cuts a module that is simplified and has no adjoint yet. States whose elements each depend on themselves
 * alone stay in it where others can go (mLSTM's m). Else the reason: the module is as it was then, but for
 * nodes that nothing needs. */
const Reason *chunk_cut(Module *m, ChunkCuts *out);

#endif
