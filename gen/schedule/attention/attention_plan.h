/* attention_plan.h: what schedule attention keeps of a plan: where operands lie (attention_plan.c), and its
 * kernels (kernels_attention.c, attention_forms.c). */
#ifndef CELLC_ATTENTION_PLAN_H
#define CELLC_ATTENTION_PLAN_H

#include "cut.h"
#include "plan/forms.h"
#include "plan/plan.h"

/* FORWARD has the first three, of which FEW and COMBINE are for calls of few rows against a history, on GPUs;
 * backward DOTS (of a softmax), ROWS and KEYS in their order, or, on the CPU, BACK, which does what these
 * do. */
typedef enum {
    ATTENTION_FORWARD,
    ATTENTION_FEW,
    ATTENTION_COMBINE,
    ATTENTION_DOTS,
    ATTENTION_ROWS,
    ATTENTION_KEYS,
    ATTENTION_BACK,
    ATTENTION_KERNELS
} AttentionKernel;

typedef struct AttentionWalk {
    const AttentionCut *cut;
    bool boxed; /* a kernel's products are by instructions of sm_90a, where there are these */
    const char *facts; /* the name of the struct of facts in the kernels' text */
    int sums, dots; /* buffers, of a softmax: the logarithm of each row's sum; dy . y, on GPUs */
    int parts; /* a buffer, on GPUs where there is a history: sums of parts of the keys of few rows */
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
int attention_memory(const Plan *p); /* bytes of shared memory that a block may take */
bool attention_apart(const AttentionCut *c); /* warps of the forward kernel that only copy */
bool attention_is_scaled(const AttentionCut *c); /* the score is the product by a number */
int64_t attention_smem(const Plan *p, const AttentionCut *c, AttentionKernel kernel);
int attention_threads(const Plan *p, const AttentionCut *c, AttentionKernel kernel);
int attention_resident(const Plan *p, const AttentionCut *c, AttentionKernel kernel); /* 0: any */
int attention_own(const Plan *p, const AttentionCut *c, AttentionKernel kernel); /* rows, or keys */
int attention_copiers(const Plan *p, const AttentionCut *c, AttentionKernel kernel); /* threads */
int attention_slabs(const Plan *p, const AttentionCut *c, AttentionKernel kernel);

/* Is the gradient of what is read in the score among those that the kernels leave? */
bool attention_is_term(const Plan *p, const AttentionRead *r);
/* Does anything of backward read what the kernels leave in the tensor? */
bool attention_is_wanted(const Plan *p, TensorId t);
/* The cotangent of an operand; -1: none. */
TensorId attention_cotangent(const Module *m, TensorId of);

/* attention_forms.c */
/* Of a call of few rows: is it one; parts of the keys of a head; bytes of their sums. */
const Formula *attention_is_few(const Plan *p, const AttentionCut *c);
const Formula *attention_parts(const Plan *p, const AttentionCut *c);
const Formula *attention_part_bytes(const Plan *p, const AttentionCut *c);
bool attention_has_kernel(const AttentionWalk *w, AttentionKernel kernel);
bool attention_stage(const Plan *p, const Program *pr, int level, int n, FormList *out);

/* kernels_attention.c; cpu_attention.c */
void attention_print(Plan *p, Program *pr, Buf *cuda);
void attention_print_cpu(Plan *p, Program *pr, Buf *c);

/* Of the CPU: tiles of a kernel's rows are items; the keys of an item of backward, where there are few heads.
 * Bytes of scratch memory. */
int64_t attention_scratch(const Plan *p, const AttentionCut *c, AttentionKernel kernel);

#endif
