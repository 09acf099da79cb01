/* attention_plan.h: what schedule attention keeps of a plan: where operands lie (attention_plan.c), and its
 * kernels (kernels_attention.c, attention_forms.c). */
#ifndef CELLC_ATTENTION_PLAN_H
#define CELLC_ATTENTION_PLAN_H

#include "cut.h"
#include "plan/forms.h"
#include "plan/plan.h"

/* FORWARD has the first; backward DOTS (of a softmax), ROWS and KEYS in their order, or, on the CPU, BACK,
 * which does what these do. */
typedef enum {
    ATTENTION_FORWARD,
    ATTENTION_DOTS,
    ATTENTION_ROWS,
    ATTENTION_KEYS,
    ATTENTION_BACK,
    ATTENTION_KERNELS
} AttentionKernel;

typedef struct AttentionWalk {
    const AttentionCut *cut;
    const char *facts; /* the name of the struct of facts in the kernels' text */
    int sums, dots; /* buffers, of a softmax: the logarithm of each row's sum; dy . y, on GPUs */
    struct {
        const char *name;
        RefVec refs;
    } kernel[ATTENTION_KERNELS];
} AttentionWalk;

typedef struct AttentionWalks {
    AttentionWalk *data;
    int len;
} AttentionWalks;

const AttentionCuts *attention_cuts(const Module *m);
AttentionWalks *attention_walks(const Program *pr);

/* What is added to a gradient of keys: a cotangent of the history, at the place `first` + by * step, of
 * steps of the call. */
typedef struct AttentionMore {
    TensorId tensor;
    const IxExpr *const *map; /* the place, then the axes of the gradient, in any order */
    int nmap;
    const IxExpr *first;
    const Poly *by; /* 1 or -1 */
} AttentionMore;
bool attention_more(const Plan *p, NodeId root, NodeId more, AttentionMore *out);

/* Padded sizes, and the blocks of a kernel, as the device library has them. */
int attention_padded(int n);
int64_t attention_smem(const Plan *p, const AttentionCut *c, AttentionKernel kernel);
int attention_threads(const Plan *p, const AttentionCut *c, AttentionKernel kernel);
int attention_resident(const Plan *p, const AttentionCut *c, AttentionKernel kernel); /* 0: any */
int attention_own(const Plan *p, const AttentionCut *c, AttentionKernel kernel); /* rows, or keys */
int attention_slabs(const Plan *p, const AttentionCut *c, AttentionKernel kernel);

/* Is the gradient of what is read in the score among those that the kernels leave? */
bool attention_is_term(const Plan *p, const AttentionRead *r);
/* Does anything of backward read what the kernels leave in the tensor? */
bool attention_is_wanted(const Plan *p, TensorId t);
/* The cotangent of an operand; -1: none. */
TensorId attention_cotangent(const Module *m, TensorId of);

/* attention_forms.c */
bool attention_stage(const Plan *p, const Program *pr, int level, int n, FormList *out);

/* kernels_attention.c; cpu_attention.c */
void attention_print(Plan *p, Program *pr, Buf *cuda);
void attention_print_cpu(Plan *p, Program *pr, Buf *c);

/* Of the CPU: tiles of a kernel's rows are items; the keys of an item of backward, where there are few heads.
 * Bytes of scratch memory. */
int64_t attention_scratch(const Plan *p, const AttentionCut *c, AttentionKernel kernel);

#endif
