/* formed.h: a component's normal form with its values at one step (formed.c), by equation (1) of
 * schedule/chunk/chunk.h. */
#ifndef CHUNK_FORMED_H
#define CHUNK_FORMED_H

#include "schedule/chunk/chunk.h"
#include "values.h"

typedef struct Formed {
    const ChunkComponent *k;
    Values factors;               /* the component's own states are poisoned */
    double **level;               /* [update * states + state]: behind each update, an element per place */
    size_t places;                /* of the component's axes, in their order */
} Formed;

/* At the step that `step` looks at. */
Formed formed_begin(const ChunkComponent *k, const Values *step);
/* The states before the step are the step's random tensors, or given, [state][place]. */
void formed_from_loads(Formed *f);
void formed_from(Formed *f, double *const *states);
/* Goes to a place: of all that is evaluated from here on. */
void formed_go(Formed *f, size_t at);
/* The place with another key. */
size_t formed_at_key(const Formed *f, int64_t key);
double formed_vector(Formed *f, const ChunkVector *x);            /* number * vector, where it is */
double formed_read(Formed *f, const ChunkRead *r);
/* |a - b| is at most 1e-12 of the larger one, or of 1. */
bool formed_near(double a, double b);
/* C steps at a time, against step by step, over several chunks (chunked.c); says what differs unless
 * quiet. */
bool chunks_agree(const ChunkComponent *k, const Values *step, int chunk, bool quiet);

#endif
