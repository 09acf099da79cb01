/* normalizer.h: the maximum and the total of a softmax, where a step reads them beside its sum
 * (normalizer.c). */
#ifndef CELLC_ATTENTION_NORMALIZER_H
#define CELLC_ATTENTION_NORMALIZER_H

#include "attention.h"

typedef struct NormalizerRead {
    NodeId node;
    bool total; /* else the maximum */
} NormalizerRead;
typedef struct Normalizer {
    Vec(NormalizerRead) reads;
} Normalizer;

/* Finds what is read of both outside of the sums. False: of that the logarithm of the sum of all
 * exponentials is not enough. */
bool attention_normalizer(Module *m, const Attentions *all, Attention *a, Normalizer *out);

#endif
