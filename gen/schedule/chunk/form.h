/* form.h: from terms to the normal form of a component (form.c). Shared by the files of schedule/chunk. */
#ifndef CELLC_CHUNK_FORM_H
#define CELLC_CHUNK_FORM_H

#include "terms.h"

typedef struct FormRead {
    ChunkSum sum;
    int key;                      /* the axis of the state that it sums over */
    Terms terms;
} FormRead;

typedef struct Form {
    Proof p;
    ChunkComponent *k;
    Terms *updates;               /* [update * states + state] */
    struct { FormRead *data; int len, cap; } reads;
    bool corrects;                /* an update sums over keys of the state */
    NodeId guard; /* where it does not hold, the step leaves the state as it is; -1: none is known */
    Roles roles;
} Form;

/* Fills in heads, updates and reads of the component. False: refused. */
bool form_build(Form *f);
/* Makes columns of what is a vector with the decay and the column of another component. */
void form_columns(ChunkForm *f);

#endif
