/* attention.h: the proof that a sum over the past is attention (attention.c, score.c), and what it finds. It
 * is read off the IR of one step, behind lower and simplify, and knows no cell.
 *
 * For each place of the heads, with i the step and j one that is not later,
 *
 *     y_i = sum_j weight_ij v_j          weight_ij = exp(score_ij) / sum_j exp(score_ij), or any expression   (1)
 *
 * over the pairs for which all conditions hold. score_ij, or the weight, is an expression of the product
 * q_i . k_j, of values of step i (rows), of step j (keys), of both steps' numbers, of heads and params.
 *
 * All expressions are nodes of the module that was asked about, to which the proof adds. They vary over the
 * sum's own axes and its bound index w, so that j is `step`, an expression of the step's number and w. What
 * belongs to step j alone (keys, values, leaves of keys) is given at that step's own number. */
#ifndef CELLC_ATTENTION_H
#define CELLC_ATTENTION_H

#include "ir/ir.h"
#include "plan/reason.h"

typedef enum {
    ATTENTION_SOFTMAX, /* weights are exp(score) divided by their sum */
    ATTENTION_WEIGHTS /* `score` is the weight */
} AttentionKind;

typedef enum { LEAF_ROW, LEAF_KEY, LEAF_TABLE } LeafSide;

/* What the score reads: a value of step i, one of step j, or one of neither at a place that the pair says. */
typedef struct AttentionLeaf {
    LeafSide side;
    NodeId node; /* as it stands in the score */
    NodeId value; /* LEAF_KEY: the same at its own step; else node */
    bool whole; /* an integer: an element of an input */
} AttentionLeaf;
typedef Vec(AttentionLeaf) AttentionLeaves;

/* A condition on a pair. room: the condition holds where this expression of IX_TIME, of the index `other`,
 * which is the number of step j, of heads and sizes is 0 or more; NULL: it is no such condition. */
typedef struct AttentionCondition {
    NodeId node;
    const IxExpr *room;
} AttentionCondition;
typedef Vec(AttentionCondition) AttentionConditions;

/* What a softmax adds beside pairs: exp(score) of step i, or the sum of these over an index; -1: none. */
typedef struct AttentionOther {
    NodeId score;
    IndexId index;
} AttentionOther;
typedef Vec(AttentionOther) AttentionOthers;

/* An axis of the heads: the keys' head is its place divided by `shared`. */
typedef struct AttentionHead {
    IndexId axis;
    const Poly *shared;
} AttentionHead;

typedef struct Attention {
    NodeId sum; /* the N_ARRAY that (1) is the value of, but for `factor` */
    const char *name; /* for messages */
    const Reason *why; /* it is none of these; or NULL */
    AttentionKind kind;
    IndexId w, other;
    const Poly *distances; /* extent of w */
    const IxExpr *step; /* j */
    AttentionHead *heads;
    int nheads;
    IndexId *columns; /* of values; there may be none, and one value */
    int ncolumns;
    IndexId along; /* of keys: what q . k sums over */
    NodeId q, k, v;
    NodeId k_pair, v_pair; /* k and v as the pair reads them, at step j */
    NodeId dot; /* in the score: an N_ARRAY over heads and w */
    NodeId score;
    AttentionLeaves leaves; /* of the score and of the conditions */
    AttentionConditions conditions;
    NodeId factor; /* of step i, that the sum is multiplied by; -1: none */
    AttentionOthers others;
    NodeId rest; /* of a softmax: the logarithm of the sum of others' exponentials; -1: there are none */
    NodeId shift, total; /* as pair_open gives them: what exponents subtract, what divides weights; -1 */
} Attention;
typedef Vec(Attention) Attentions;

/* The sums over the past whose weights are made of products of a value of this step and an earlier one. */
void attention_find(Module *m, Attentions *out);
/* What `cellc explain` says: a line for each. */
void attention_words(const Module *m, const Attentions *all, Buf *out);

#endif
