/* scan_kernel.h: a kernel of schedule scan while it is built as a tree (kernels_scan.c). scan_units.c has
 * a thread's units and their elements, scan_reads.c what is read and computed in front of a step,
 * scan_step.c the values of a step, scan_ends.c how a walk begins and ends, scan_again.c states that are
 * made anew, scan_chunks.c the walk by chunks of steps, and scan_staged.c what chunks read through shared
 * memory. */
#ifndef CELLC_SCAN_KERNEL_H
#define CELLC_SCAN_KERNEL_H

#include "kernels/code.h"
#include "scan.h"

/* A loop over few elements of a unit, which is unrolled. */
typedef struct InnerLoop {
    IndexId index;
    KirVar *var;
    int64_t extent;
} InnerLoop;

/* A value that stands in front of the steps that need it, and the local that has it: a number, or an array
 * over the loops that it depends on (and over the steps, where it differs from step to step). */
typedef struct EarlyValue {
    const KirExpr *value;
    KirVar *local;
    int64_t elements; /* of a step */
    int64_t before; /* of steps: those of the array's that are in front of the value's */
} EarlyValue;
typedef Vec(EarlyValue) EarlyValues;

/* Where reads of one type are under way: an array of arrays, one for each step. */
typedef struct AheadArray {
    KirVar *local, *next; /* next: behind the steps that are walked */
    int64_t elements; /* of a step */
} AheadArray;

/* A read of a step that shared memory may hold before it is taken: its number among those of the step, the
 * loops around, and its address. word: it is one; wide: four neighbouring threads' words are 16 bytes at
 * their multiple. */
typedef struct StagedRead {
    int number, loops;
    const InnerLoop *around;
    KirScalar type;
    const KirExpr *from, *offset, *words;
    bool word, wide;
} StagedRead;

typedef struct ScanKernel {
    Kernel *k;
    Code *x;
    Kir *kir;
    ScanWalk *w;
    Group *g; /* the step */
    UnitWalk walk;
    /* Where a thread stands: its unit among those of all sequences, the sequence, the unit of that, the
     * step, and its rows; the number of the step in the loop; the neighbour; an element. Blocks side by
     * side declare them each for itself. */
    KirVar *n, *b, *e, *t, *rows[3], *u, *q, *j;
    KirBlock indices; /* declares the unit's place on each axis */
    const KirExpr *pair, *first_of_pair; /* of the last axis */
    const KirExpr *elements; /* units of all sequences */
    Vec(InnerLoop) inner; /* loops around what is built */
    Vec(InnerLoop) inner_names; /* and what loops there were */
    Vec(const char *) inner_words;
    Vec(KirOpen) open;
    KirBlock once, early, late, functions;
    EarlyValues reads, once_values, function_values;
    AheadArray ahead[KT_COUNT];
    int64_t registers; /* that reads ahead take, for a step */
    int function_elements;
    const KirExpr **states; /* per tensor: the local of a state, or of the adjoint of its next value */
    const KirExpr **slopes,
        **kept; /* chunks: of a state; backward: states recomputed, of all steps of a chunk */
    const KirExpr **saved; /* staged: that before the chunk */
    const KirExpr **sums; /* per node */
    int steps; /* whose reads are under way at once; of a chunk */
    /* chunks: */
    KirVar *begin, *from, *unit, *chunk, *mine, *is_step, *counted, *aside, *t_before, *rows_before[3];
    const KirExpr *first, *last, *units, *chunks, *maps, *carries, *copy_turn, *plain;
    KirBlock map, again, body;
    Vec(const KirExpr *) wanted; /* pointers to the gradients that chunks store, which may be null */
    Vec(KirVar *) wants; /* and what says that they are not */
    Vec(StagedRead) staged_reads;
    bool copies_wide; /* four threads' words at once */
    int64_t staged; /* bytes of a block's shared memory that they take; 0: reads go to registers */
} ScanKernel;

/* ---- scan_units.c */

KirVar *scan_variable(ScanKernel *s, const char *name, KirScalar of);
void scan_begin(ScanKernel *s);
bool scan_in_pairs(const ScanKernel *s); /* a thread has two neighbours of the units */
void scan_bind_axes(ScanKernel *s, NodeId array);
int scan_adjacent(Code *x, const IxExpr *place, const Poly *pitch);
const KirExpr *scan_first_unit(Code *x, const KirExpr *index);
void scan_open_loop(ScanKernel *s, KirVar *v, const KirExpr *limit); /* unrolled, from 0 */
void scan_close_loop(ScanKernel *s);
void scan_open_inner(ScanKernel *s, IndexId i);
void scan_close_inner(ScanKernel *s);
void scan_open_pair(ScanKernel *s); /* the two neighbours of a thread, if it has two */
void scan_close_pair(ScanKernel *s);
void scan_open_short_axes(ScanKernel *s, NodeId array);
void scan_close_short_axes(ScanKernel *s, NodeId array);
void scan_open_elements(ScanKernel *s, NodeId array);
void scan_close_elements(ScanKernel *s, NodeId array);
/* Around what is built for element j of n, of each unit; the place of that in a local, or NULL where it is
 * one. */
const KirExpr *scan_open_each(ScanKernel *s, int64_t n);
void scan_close_each(ScanKernel *s, int64_t n);
bool scan_is_one(const ScanKernel *s, int64_t elements);
/* A local that holds `n` elements of each of the thread's units, beginning with zeros or with nothing. */
const KirExpr *scan_declare(ScanKernel *s, const char *name, int64_t n, bool zero);
const KirExpr *scan_local(ScanKernel *s, const KirExpr *local, const KirExpr *inner);
const KirExpr *scan_inner_place(ScanKernel *s, const Read *r); /* NULL: there is one */
const KirExpr *scan_element(Code *x, const Read *r, const KirExpr *local);
int scan_loops_of(ScanKernel *s, const IxExpr *e, InnerLoop *out);
int64_t scan_loops_elements(const InnerLoop *l, int n);
const KirExpr *scan_loops_place(ScanKernel *s, const InnerLoop *l, int n); /* NULL: there are none */
void scan_open_loops(ScanKernel *s, const InnerLoop *l, int n);
void scan_close_loops(ScanKernel *s, int n);
int scan_elements_of_state(const ScanKernel *s, TensorId state);
bool scan_is_state(const ScanKernel *s, TensorId state);
KirVar *scan_registers(ScanKernel *s, const char *name, KirScalar of); /* an array, to be declared by: */
void scan_declare_registers(ScanKernel *s, KirVar *v, int64_t count);
/* Of arrays, one for each step, and as many as there are steps: */
KirVar *scan_registers_of_steps(ScanKernel *s, const char *name, KirScalar of);
void scan_declare_of_steps(ScanKernel *s, KirVar *v, int64_t count);

/* ---- scan_reads.c */

const KirExpr *scan_ahead(Code *x, const Read *r, const KirExpr *load, const CodeAhead *as);
const KirExpr *scan_once(Code *x, NodeId id);
void scan_declare_reads(ScanKernel *s, bool next);
/* Of step u, at this place in the loops around; NULL: the only one. */
const KirExpr *scan_of_step(ScanKernel *s, const EarlyValue *v, const KirExpr *place);

/* ---- scan_step.c */

void scan_step(ScanKernel *s); /* body and late */
void scan_begin_step(ScanKernel *s, KirBlock *body);
void scan_end_step(ScanKernel *s);
void scan_array(ScanKernel *s, NodeId id, Named *kept, bool stores);
/* The groups of sums that the walk leaves a row of for each sequence. */
void scan_each_sum(ScanKernel *s, void (*body)(ScanKernel *s, const Group *g, int number));
int64_t scan_array_inner(ScanKernel *s, NodeId id);

/* ---- scan_ends.c */

/* The step of place first + u in the order of the walk. */
const KirExpr *scan_step_number(ScanKernel *s, const KirExpr *first, const KirExpr *u);
const KirExpr *scan_step_or_last(ScanKernel *s, const KirExpr *n);
void scan_let_step(ScanKernel *s, const KirExpr *t); /* declares the step and its rows */
void scan_split_units(ScanKernel *s); /* n is there */
void scan_states(ScanKernel *s);
void scan_last_states(ScanKernel *s);
void scan_declare_sum(ScanKernel *s, const Group *g, int number);
void scan_store_sum(ScanKernel *s, const Group *g, int number);

/* ---- scan_again.c: chunks */

NodeId scan_next_of(const ScanKernel *s,
                    TensorId state); /* in the step: its next value, or its adjoint before it */
void scan_build_map(ScanKernel *s);
void scan_build_again(ScanKernel *s);
TensorId scan_state_behind(const ScanKernel *s, NodeId next);
const KirExpr *scan_held_again(ScanKernel *s, const Read *r);
typedef enum Way {
    READ,
    COPY,
    TAKE
} Way; /* from memory to registers; or to shared memory first, and from there */
void scan_declare_kept(ScanKernel *s);
void scan_let_before(ScanKernel *s,
                     bool full); /* the chunk's first step in the order of forward, of states before it */
void scan_kept(ScanKernel *s, Way way);

/* ---- scan_staged.c: chunks */

void scan_decide_staging(ScanKernel *s);
void scan_declare_words(ScanKernel *s);
void scan_declare_copies(ScanKernel *s);
void scan_take_words(ScanKernel *s);

/* ---- scan_chunks.c */

void scan_chunks(ScanKernel *s);
const KirExpr *scan_turn_steps(ScanKernel *s);
const KirExpr *scan_whole_turn(ScanKernel *s);
const KirExpr *scan_step_at(ScanKernel *s, const KirExpr *u, bool full);
KirOpen scan_open_steps(ScanKernel *s, bool down, bool full);
void scan_let_pair(ScanKernel *s, const KirExpr *place);
void scan_let_place(ScanKernel *s, const KirExpr *mine);

#endif
