/* values.h: values of a step's nodes in double at random tensors, straight from the IR (values.c): what
 * the normal form of schedule/chunk is compared with. */
#ifndef CHUNK_VALUES_H
#define CHUNK_VALUES_H

#include "ir/ir.h"

typedef struct Values Values;
struct Values {
    Module *m;
    uint64_t seed;
    int64_t dims[MAX_DIMS];       /* by atom */
    int64_t *place;               /* per index; IX_TIME and IX_START too */
    int64_t now;                  /* the step that is looked at */
    double **memo;                /* per array, its values at that step; NaN-boxed: not computed yet */
    bool *poisoned;               /* per tensor: loads give NaN */
    /* A value of its own for a node, at the places in force; false: it has none. May be NULL. */
    bool (*instead)(Values *, NodeId, double *);
    void *data;
};

/* Draws sizes that the module's checks and exact quotients allow; false: none were found. */
bool values_begin(Values *v, Module *m, uint64_t seed);
/* The same sizes and tensors, nothing computed yet. */
Values values_again(const Values *v);
int64_t values_index(const Values *v, const IxExpr *e);
int64_t values_extent(const Values *v, IndexId i);
double values_of(Values *v, NodeId id);
/* A state's element at places, before the step. */
double values_load(Values *v, TensorId t, const int64_t *places);

#endif
