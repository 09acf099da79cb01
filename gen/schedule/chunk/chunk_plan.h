/* chunk_plan.h: what schedule chunk keeps of a plan: where operands lie (chunk_plan.c), and its kernels
 * (kernels_chunk.c, chunk_forms.c). */
#ifndef CELLC_CHUNK_PLAN_H
#define CELLC_CHUNK_PLAN_H

#include "outer.h"
#include "plan/forms.h"
#include "plan/plan.h"

/* As cell_device_chunk.cuh has them. */
enum {
    CHUNK_THREADS = 128,
    CHUNK_NUMBERS_THREADS = 32, /* of a block of prep and of a walk, where reads are apart */
    CHUNK_STATES_THREADS = 256,
    CHUNK_KEYS = 256,
    CHUNK_PADDED = 5,
    CHUNK_BLOCKS = 132, /* of a walk, with which a GPU is full; twice as many where reads are apart */
    CHUNK_SEGMENT = 8, /* chunks of a segment at least */
    CHUNK_FEWEST = 4, /* segments of a call at least, else it has none */
    CHUNK_JOINED = 8, /* values of a block of join */
    CHUNK_JOIN_THREADS = 256
};
/* Steps of a call from which on its plan takes it. */
enum { CHUNK_STEPS_LEAST = 2 };
/* Where the schedule is not forced: elements of a head's state and steps of a call, from which on chunks take
 * the call. Measured on an H200 against tile (bench/results/h200-chunk.txt), forward and backward. In bf16,
 * 8192 or 16384 rows of 16 heads in calls of 64 to 1024 steps: 64 x 64 1.2 to 1.4 times as fast (GLA 1.6 to
 * 1.7), 128 x 128 1.6 to 2.1; with 4 sequences 2 to 3.5. But 64 x 64 0.6 and 1.0 where a row has a gate for
 * each key and a correction: so 64 x 128 there. Several states, updates or reads, as mLSTM's (64 x 64 1.7
 * times), were measured with 2048 steps. In f32, 128 x 128 1.7 times with 64 heads of all sequences, 0.9 to
 * 1.0 with 256 and more: so chunks take these up to CHUNK_BLOCKS. Of two states that feed one another rest
 * has no tensor cores: in bf16, 2 x 64 x 64, 8192 rows of one head take 2.5 times less than tile forward and
 * 2.7 times less both ways, 16384 rows of 8 heads 1.2 times less and 1.3 times more. So they take calls of
 * few heads and as many steps as make tile slower than that, whose kernels all have work for each row.
 * With a gate for each value (bench/results/h200-value-gates.txt) chunks take 0.15 to 0.19 ns of each row
 * and value, both ways, and tile 0.7 us of a step and more: so they take calls of at most 4096 values of
 * all heads and sequences (8192 of 64 keys are 0.5 times as fast, 4096 of 128 keys 1.03 times, 2048 of 64
 * 1.5), or, of 32 keys and heads of 512 values, which tile spreads, more (16384: 1.3). With 512 steps they
 * take no longer than with 2048, which is less than tile takes; with 256 0.7 and 0.9 times as fast. f32 is
 * alike. */
enum {
    CHUNK_PAYS_NARROW = 64 * 64,
    CHUNK_PAYS_BY_KEY = 64 * 128, /* bf16, a gate for each key and a correction */
    CHUNK_PAYS_WIDE = 128 * 128, /* f32, f16 */
    CHUNK_PAYS_STEPS = 64, /* bf16, one state with one update a step and one read */
    CHUNK_PAYS_STEPS_SMALL = 128, /* and less than 64 x 128 */
    CHUNK_PAYS_STEPS_OTHER = 256,
    CHUNK_PAYS_STEPS_OTHER_SMALL = 1024,
    CHUNK_PAYS_COUPLED = 2 * 64 * 64, /* bf16, elements of two states of one another */
    CHUNK_PAYS_STEPS_COUPLED = 2048,
    CHUNK_PAYS_HEADS_COUPLED = 2,
    CHUNK_PAYS_VALUED = 32 * 32, /* a gate for each value: elements of a head */
    CHUNK_PAYS_STEPS_VALUED = 512,
    CHUNK_PAYS_VALUES = 4096, /* of all heads and sequences, at most */
    CHUNK_PAYS_VALUES_WIDE = 16384, /* of heads of CHUNK_WIDE values and more, and CHUNK_WIDE_KEYS at most */
    CHUNK_WIDE = 512,
    CHUNK_WIDE_KEYS = 32
};

/* Kernels of a direction in their order. PASS, JOIN: of calls in segments. READ: forward, where reads are
 * apart, or rows have a gate for each value. REST: backward only. */
typedef enum {
    CHUNK_PREP,
    CHUNK_PASS,
    CHUNK_JOIN,
    CHUNK_WALK,
    CHUNK_READ,
    CHUNK_REST,
    CHUNK_KINDS
} ChunkKind;

/* The kernels for at most `keys` keys, a multiple of 16: rows of a chunk, and values of a block. */
typedef struct ChunkSize {
    int keys, rows, values, stages;       /* stages: chunks that a walk has in shared memory at a time */
    int read_values;              /* of a block that makes reads */
    int rest_keys, rest_values, rest_threads; /* that rest takes at a time, and of its blocks */
    const Formula *when;          /* of the keys; NULL: always */
    const char *facts;            /* the name of the struct of facts in the kernels' text */
    struct {
        const char *name;
        RefVec refs;
        int64_t smem;
        int threads;
    } kernel[2][CHUNK_KINDS];     /* by direction */
} ChunkSize;

/* Of one state. */
typedef struct ChunkWalk {
    const ChunkCut *cut;
    ChunkSize size[CHUNK_PADDED];
    int sizes;
    bool in_segments; /* chunk_in_segments */
    /* Buffers, of all chunks: records; the states that they begin with. Backward: the inverses F, the
     * adjoints of the states that they end with, rows dR and d of the correction. */
    int records, saved, inverse, ends, corrections, solved;
    /* Of all segments: the states that they add, and begin with; the matrices by which they multiply a state,
     * where corrected. -1: none. */
    int sums, factors;
} ChunkWalk;

typedef struct ChunkWalks {
    ChunkWalk *data;
    int len;
} ChunkWalks;

const ChunkCuts *chunk_cuts(const Module *m);
ChunkWalks *chunk_walks(const Program *pr);

/* ---- chunk_sizes.c: as the device library has them, which asserts it in every kernel. */

/* What is counted: what sums are of, and what records and saved states are of; bytes of each. */
typedef struct ChunkFacts {
    int real, part;
    int rows, keys, values, stages, read_values, rest_keys, rest_values, rest_threads;
    int reads, corrections, writes;       /* corrections: 0 or 1 */
    bool decays, by_key; /* by_key: records have rows of keys with their windows */
    bool coupled;        /* two states that feed one another */
    bool apart;          /* reads are made apart, by blocks for chunks */
    bool by_value; /* a gate for each value */
} ChunkFacts;
int64_t chunk_smem(const ChunkFacts *f, int direction, ChunkKind kind);
int chunk_threads(const ChunkFacts *f, int direction, ChunkKind kind);
/* Blocks of prep, of what makes reads, or of rest, that a multiprocessor should hold. */
int chunk_resident(const ChunkFacts *f, ChunkKind kind);
int64_t chunk_most_smem(const ChunkFacts *f);      /* of all kernels */
int64_t chunk_record(const ChunkFacts *f);

Dtype chunk_part(const Plan *p);
ChunkFacts chunk_facts(const Plan *p, const ChunkCut *c, const ChunkSize *s);

/* Are long calls of few heads walked in segments? Not where the number of keys is open: each size of keys would
 * have its four kernels more, which take a third of the time to compile and are rarely called. And not packed
 * sequences, whose lengths differ. */
bool chunk_in_segments(const ChunkWalk *w);
/* Blocks of a walk with which a GPU is full. */
int chunk_blocks(const Plan *p, const ChunkCut *c);
/* Are reads made apart, behind a walk of states only? Where nothing corrects, rows have one gate at most, and
 * tensor cores compute. */
bool chunk_reads_apart(const Plan *p, const ChunkCut *c);
bool chunk_has_kernel(const Plan *p, const ChunkWalk *w, int direction, ChunkKind kind);
bool chunk_by_values(const ChunkWalk *w, ChunkKind kind);

/* Chunks of a sequence, places for those of all heads of a call, and segments of a sequence that are walked
 * side by side: 1 where there are none. */
const Formula *chunk_count(const Plan *p, const ChunkCut *c, const ChunkSize *s);
const Formula *chunk_places(const Plan *p, const ChunkCut *c, const ChunkSize *s);
const Formula *chunk_segments(const Plan *p, const ChunkCut *c, const ChunkSize *s);
bool chunk_stage(const Plan *p, const Program *pr, int level, int n, FormList *out);
bool chunk_is_single(const Module *m);
const Formula *chunk_takes(const Plan *p);

void chunk_print(Plan *p, Program *pr, Buf *cuda);

#endif
