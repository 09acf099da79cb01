/* block.h: steps that one kernel walks, a block for each head of each sequence (block.c). */
#ifndef CELLC_BLOCK_H
#define CELLC_BLOCK_H

#include "plan/forms.h"
#include "plan/reads.h"

struct KirExpr;

/* A block's threads: as many as its largest value has elements, within these. A block has at least
 * so many elements to make at once where fewer heads of it allow that (E91, B 16, 32 heads of 32 x
 * 32 on an H100: 53 us a step with 32). */
enum { BLOCK_THREADS_LEAST = 128, BLOCK_THREADS_MOST = 512, BLOCK_ELEMENTS = 64 };
/* From so many terms of sums of a head's step on, a block takes longer for them than a step's
 * kernels take to start, and there are to be so many heads: measured on an H100, a block adds 0.029
 * terms in a picosecond, and kernels 0.41 at most. */
enum { BLOCK_TERMS = 1 << 17, BLOCK_HEADS = 16 };
/* The terms of a head at most, of a step with products by what all sequences share, which `gemm` would make
 * of all sequences at once. Measured on an H100 (B 16, T 512, both directions): a Kalman filter of 40, 266
 * thousand terms backward, 12.7 ms by blocks and 17.3 by products; of 48, 454 thousand, 30.3 and 21.9. */
enum { BLOCK_PRODUCT_TERMS = 3 << 17 };
/* Where a step's values take so little, those of two steps take turns, so that a step need not wait
 * for the one before. What is asked for a step ahead has room up to BLOCK_AHEAD. */
enum { BLOCK_TURNS = 48 * 1024, BLOCK_AHEAD = 100 * 1024 };

enum { HELD_AXES = 8 };

typedef enum {
    HELD_VALUE, /* of a step, made by one group and read by others */
    HELD_CARRIED, /* a next state, or the adjoint of the state before: of this step and the one before */
    HELD_PARAM, /* what is the same in all steps: a param, or what is made of params */
    HELD_AHEAD, /* what lies in memory before the walk, of this step and of the next */
    HELD_SUM /* what each step adds to, for a sum over sequences behind the walk (Plan.summed) */
} HeldKind;

/* What a block has in shared memory, of its own heads: element [i, j] behind the heads stands at i
 * * stride[0] + j. */
typedef struct Held {
    HeldKind kind;
    bool is_tensor; /* HELD_PARAM, HELD_AHEAD: a tensor */
    int id; /* of the array, or tensor */
    TensorId state; /* HELD_CARRIED: of which */
    int heads; /* axes that the block has one place of */
    int rank;
    int64_t extent[HELD_AXES], stride[HELD_AXES];
    int64_t elements; /* of one step, with what is left between rows */
    int turns; /* as many steps' take turns: 1 or 2 */
    bool in_memory; /* others read it, in memory */
    const struct KirExpr *at; /* while the kernel is printed */
    Vec(const struct KirExpr *) next; /* likewise, a thread's part of the next step */
} Held;

/* A value of all steps that lies in memory before the walk. own: every read of it is of the block's
 * heads. */
typedef struct Ahead {
    bool is_tensor, own;
    int id;
} Ahead;

/* The kernel that may walk all steps of a direction (Program.walks), or no name. */
typedef struct BlockWalk {
    int nheads;
    const Poly *head[MAX_PARALLEL];
    Vec(Held) held;
    Vec(Ahead) ahead; /* what a block asks for a step ahead, but has no room for in shared memory */
    bool *waits; /* per group: a barrier of the block stands in front of it */
    int threads;
    int64_t bytes, terms,
        elements; /* of shared memory; of a step of one head: of sums, and of the largest value */
    const char *kernel;
    RefVec refs; /* filled while the kernel is printed */
} BlockWalk;

/* kernels_block.c: the kernel's text; fills its refs. */
void block_print(Plan *p, Program *pr, struct Buf *out);
static inline const BlockWalk *block_walk(const Program *pr)
{
    return pr->walks;
}
/* Where a step's row of what is read lies: that of a state, where the step before left it. */
const Storage *block_storage(const Plan *p, const Program *pr, bool is_tensor, int id);
/* The block's copy of what is read; NULL: it has none. */
Held *block_held(BlockWalk *w, HeldKind kind, bool is_tensor, int id);

#endif
