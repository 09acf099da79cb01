/* emit_step.h: the state of the C emitter while it prints one file, shared by emit_step.c (the step
 * functions) and emit_c.c (the file around them). */
#ifndef EMIT_STEP_H
#define EMIT_STEP_H

#include "emit_nest.h"

enum { SINK_WORDS = 8 };

/* Gradients that a caller may want; a set of them. */
typedef struct Need { uint64_t bit[SINK_WORDS]; } Need;
typedef Vec(int32_t) Ids;

typedef enum {
    FUN_FORWARD, FUN_INITIAL, FUN_EARLIER, FUN_BACKWARD, FUN_INITIAL_BACKWARD, FUN_PAST
} FunKind;

/* One generated step function: which arrays it computes, in order of their ids. */
typedef struct Fun {
    FunKind kind;
    const char *name, *about;
    bool *computes;               /* per node: an array or a kept reduction */
    Ids *reads;                   /* per node that is computed: the arrays its value is made of */
    Ids *carried;                 /* likewise: the states whose adjoint of the next value it reads */
    Need *need;                   /* likewise: the gradients that need it; NULL in forward */
} Fun;

typedef struct CFile {
    CGen g;
    Module *m;
    Ids sinks;                    /* tensors that have a gradient */
    int *grad;                    /* per tensor: member that says where its gradient goes, -1 */
    int *next, *prev, *init;      /* per state: members of the next state, the adjoint, the initial value */
    int *out;                     /* per output, and per input's gradient at the step: its member */
    bool *kept; /* per node, for the function at hand: reductions with an array of their own */
    bool has_init;
    /* Arrays that are read at other steps, in forward and in backward: kept for all steps of a sequence. */
    bool *timed[2];
    bool *earlier;                /* per node: backward has it for all steps before it walks back */
    bool has_earlier;
    Buf body;                     /* of the file, before its head is known */
} CFile;

/* Prepares the members that stand for tensors. */
void step_begin(CFile *f, Module *m);
/* Prints one step function into f->body and marks the members whose memory it takes. */
void step_function(CFile *f, FunKind kind);
const Poly *step_elements(const CFile *f, TensorId t); /* of one tensor at one step of one sequence */
const Poly *array_size(const CFile *f, NodeId id);     /* likewise of an array */

#endif
