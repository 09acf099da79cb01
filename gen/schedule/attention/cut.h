/* cut.h: the cut of a step, for schedule attention (cut.c). Sums over the past that are attention are taken
 * out of the module: queries, keys, values and what scores read are outputs (operands), and what the sums
 * give are inputs. In the IR both have the word `chunk`, as those of schedule chunk: they are no arguments
 * of a call. */
#ifndef CELLC_ATTENTION_CUT_H
#define CELLC_ATTENTION_CUT_H

#include "attention.h"

enum { ATTENTION_SIZE = 256 }; /* of a key, of a value: the most, as the device library has it */
enum { ATTENTION_TERMS = 4 }; /* learned things in a score whose gradients the kernels give */

/* A value of the other step: now, of the call's steps; past, of those before the call, with their places in
 * the history as its first axis; d_past, the gradient of that. -1: there is none. */
typedef struct AttentionOperand {
    TensorId now, past, d_past;
} AttentionOperand;

/* What is read in the score, as a value that the kernel has (`node`). */
typedef struct AttentionRead {
    AttentionLeaf leaf;
    NodeId node; /* what stands for it in the score */
    AttentionOperand operand; /* of reals but tables; of rows: now */
    NodeId slope; /* of the score by it; -1: 0 */
} AttentionRead;

typedef struct AttentionCut {
    Attention form;
    int level; /* how many walks stand before it, of what it reads */
    TensorId q, given;
    TensorId log; /* of the sum of all exponentials, given too; -1: nothing reads it */
    AttentionOperand k, v;
    struct {
        AttentionRead *data;
        int len, cap;
    } reads;
    int rest; /* the read that is the score of one place more, without a value; -1: none */
    NodeId score, slope; /* slope: of the score by the product */
    NodeId scale; /* the score is so much times the product, and no more; or -1 */
    IndexId *key_heads; /* axes of keys' heads, each of form.heads[key_of[i]] */
    int *key_of, n_key_heads;
    const Poly *heads, *group; /* heads of keys; queries for each */
    int keys, values; /* elements of a key, of a value */
    bool history; /* steps before the call have keys; where not, there are none */
    const Poly *places; /* of the history, that all keys and values have */
} AttentionCut;
typedef Vec(AttentionCut) AttentionCuts;

/* Cuts a module that is simplified and has no adjoint yet. Else the reason. */
const Reason *attention_cut(Module *m, AttentionCuts *out);
/* Behind the adjoint: the keys of steps before the call, and their gradients. */
void attention_join_histories(Module *m, AttentionCuts *cuts);
/* Sums of a few values beside the walks, term by term (few.c). */
void attention_write_out(Module *m, const AttentionCuts *cuts);

#endif
