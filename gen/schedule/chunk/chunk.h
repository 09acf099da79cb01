/* chunk.h: the proof that states can be walked C steps at a time, as products (chunk.c), and what it
 * finds: the normal form of a linear recurrence. It is read off the IR of one step, behind lower and
 * simplify, and knows no cell.
 *
 * A step is one or more updates. For each place of the heads, with states S of keys x values, an update
 * is
 *
 *     S_a' = sum_b A_ab S_b H  +  sum_n c_na d_n'           d_n = sum z + sum_b w_b' S_b              (1)
 *
 * over the states a, b that feed one another: A is nothing, a number or a number per key, H a number per
 * value; c is a column over keys, z a row over values, w over keys. An addition whose d has a w is a
 * correction, another one a write. Reads are sums over keys of S before the step or behind an update,
 * times a vector that is free of S.
 *
 * All expressions are nodes of the module that was asked about, to which the proof adds. They vary over
 * the component's own indices, `axes`: the next state's axes in their order. What stands under the sum
 * of a w or of a read has the index `mixed` for the key. They depend on inputs, params, the step and on
 * states of other components, never on the component's own. */
#ifndef CELLC_CHUNK_H
#define CELLC_CHUNK_H

#include "ir/ir.h"

enum { CHUNK_MANY = 8 };          /* keys, and values, from which on chunks are worth it */

typedef enum {
    CHUNK_QUALIFIES,              /* chunks can take it */
    CHUNK_COLUMN,                 /* one more column of another component, with its decay */
    CHUNK_ELEMENTS,               /* each element is linear in itself alone, no values share keys */
    CHUNK_REFUSED                 /* `why` and `at` name the term that forbids it */
} ChunkVerdict;

/* number * vector. The number varies over heads at most, the vector over keys (or `mixed`) and heads, or
 * over values and heads: so a vector is the caller's own wherever a cell scales one. */
typedef struct ChunkVector {
    int state;                    /* whose column; of a w or a read, whose elements it meets; of a z: -1 */
    NodeId number, vector;        /* the constant 1 where there is none */
} ChunkVector;
typedef struct ChunkVectors { ChunkVector *data; int len, cap; } ChunkVectors;

typedef struct ChunkAddition {
    ChunkVectors columns;         /* over keys; a state may have several, and so may the states */
    ChunkVectors known;           /* z, over values */
    ChunkVectors weights;         /* w, over `mixed`; of what the update starts from. None: a write */
} ChunkAddition;
typedef struct ChunkAdditions { ChunkAddition *data; int len, cap; } ChunkAdditions;

typedef struct ChunkUpdate {
    NodeId *decay;                /* [to * states + from]: A, over heads and keys; -1: 0 */
    NodeId per_value;             /* H, over heads and values; -1: none */
    bool by_key;                  /* an A varies over keys */
    bool decays;                  /* A is not the identity, or there is an H */
    ChunkAdditions additions;
} ChunkUpdate;
typedef struct ChunkUpdates { ChunkUpdate *data; int len, cap; } ChunkUpdates;

/* sum over `mixed` of number * vector * S, times scale. */
typedef struct ChunkPart {
    ChunkVector weight;           /* over `mixed` and heads, and the sum's own axes */
    int update;                   /* behind how many updates of the step S is read; 0: before it */
    NodeId scale;                 /* over values; -1: none */
} ChunkPart;
typedef struct ChunkParts { ChunkPart *data; int len, cap; } ChunkParts;

/* A sum of the step, an N_REDUCE. places: per axis of the state, where it is read, over the sum's free
 * indices: one of them, or, of a head, an expression, as where several queries share a head of keys; NULL
 * for the keys. */
typedef struct ChunkSum { NodeId node; const IxExpr **places; } ChunkSum;
typedef struct ChunkSums { ChunkSum *data; int len, cap; } ChunkSums;

typedef struct ChunkRead {
    ChunkSums sums;               /* those that it stands for: a step may write one several times */
    ChunkParts parts;
    NodeId known;                 /* what is added and free of S; -1: nothing */
} ChunkRead;
typedef struct ChunkReads { ChunkRead *data; int len, cap; } ChunkReads;

/* States that feed one another. */
typedef struct ChunkComponent {
    TensorId *states;
    int nstates;
    ChunkVerdict verdict;
    const char *why;              /* the term that refuses it, or leaves one value alone, in words; or NULL */
    Span at;                      /* and where it stands */
    int column_of;                /* CHUNK_COLUMN: the component whose column it is */
    bool elements;                /* each element depends on itself alone, so that `scan` takes it */
    int rank, key;                /* of the states; which axis is summed over */
    IndexId *axes, mixed;
    bool *is_head;                /* per axis; what is neither a head nor the key is a value */
    ChunkUpdates updates;         /* in the order of the step */
    ChunkReads reads;
    const Poly *keys, *values;    /* how many */
    bool worth;                   /* there are CHUNK_MANY of both, or sizes are left to the call */
} ChunkComponent;

typedef struct ChunkForm {
    Module *m;
    ChunkComponent *components;   /* in order of dependence: one reads states of those before it only */
    int ncomponents;
} ChunkForm;

/* The components of the module's states. Adds nodes to the module. */
ChunkForm chunk_find(Module *m);
/* Of a component that qualifies: how many additions, or corrections among them, its updates have together. */
int chunk_additions(const ChunkComponent *k, bool corrected);
/* What `cellc explain` says: a line per component. */
void chunk_words(const ChunkForm *f, Buf *out);
/* A value as a user would write it. */
void chunk_expression(const Module *m, NodeId id, Buf *out);

#endif
