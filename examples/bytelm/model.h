/* model.h: a byte-level language model around the generated cell gru:
 *
 *     x = embedding[byte];   per layer: x = x + W_o gru(x);   logits = U x
 *
 * The cell and the products run on the context's backend; the embedding, the softmax and the optimiser run
 * on the host, where they cost little. On the reference backend the batch is split over workers, one thread
 * and one context each. */
#ifndef BYTELM_MODEL_H
#define BYTELM_MODEL_H

#include <stdint.h>

#include "cell.h"

enum { VOCAB = 256, MAX_LAYERS = 8, MAX_WORKERS = 16 };

typedef struct ModelSizes {
    int64_t D;                    /* width */
    int64_t H;                    /* width of the states */
    int64_t B, T;                 /* sequences at a time and steps of each, for training */
    int layers;
} ModelSizes;

typedef struct Model Model;

/* Initialises the parameters from `seed` and makes the workers. NULL on failure, after a message on
 * standard error. The caller frees it with model_free. */
Model *model_new(const ModelSizes *sizes, uint64_t seed);
void model_free(Model *m);
int64_t model_parameters(const Model *m);
const char *model_backend(const Model *m);
int model_workers(const Model *m);

/* One optimiser step. `bytes` [B, T+1] holds each sequence with the byte that follows it; states carry
 * over from the call before. Gives the mean loss in nats per byte; below zero when a call failed (after a
 * message). */
double model_train(Model *m, const uint8_t *bytes, double rate);
/* The same without learning and from zero states; the states of training are lost. */
double model_loss(Model *m, const uint8_t *bytes);

/* Writes `n` bytes to `out`, one step of the cell each, after reading the NUL-terminated prompt. 0, or -1
 * on failure. */
int model_sample(Model *m, const char *prompt, double temperature, uint64_t seed, char *out, int64_t n);

/* A uniform number in [0, 1); *state is any number and is moved on (splitmix64). */
double random_uniform(uint64_t *state);

#endif
