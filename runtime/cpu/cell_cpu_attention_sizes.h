/* Sizes of attention on the CPU that the compiler and its kernels (cell_cpu_attention.h) share. */
#ifndef CELL_CPU_ATTENTION_SIZES_H
#define CELL_CPU_ATTENTION_SIZES_H

#include <stdint.h>

/* ROWS, KEYS: of a tile, whose scores lie in a core's first cache. PART: keys whose gradients are an item
 * of backward where there are few heads; HEADS: a number that is enough for all threads, and each is one item.
 * TERMS: gradients of what is learned in a score. */
enum {
    CELL_CPU_ATTENTION_ROWS = 64,
    CELL_CPU_ATTENTION_KEYS = 64,
    CELL_CPU_ATTENTION_PART = 256,
    CELL_CPU_ATTENTION_HEADS = 8,
    CELL_CPU_ATTENTION_TERMS = 4
};

/* Elements of a row of `n` numbers in scratch memory: whole vectors of 64 bytes. */
static inline int64_t cell_cpu_attention_padded(int64_t n, int64_t bytes)
{
    const int64_t lanes = 64 / bytes;
    return (n + lanes - 1) / lanes * lanes;
}

/* Bytes of scratch memory of a thread: keys and values, of that many numbers of `bytes` bytes each; `leaves`:
 * what a score reads of a row. Forward has scores, queries both ways, keys, values and results of a tile;
 * backward also the cotangents both ways, gradients of scores, keys, values and queries. */
static inline int64_t cell_cpu_attention_scratch(int64_t keys, int64_t values, int64_t leaves, int64_t bytes,
                                                 int backward)
{
    const int64_t rows = CELL_CPU_ATTENTION_ROWS, others = CELL_CPU_ATTENTION_KEYS;
    const int64_t k = cell_cpu_attention_padded(keys, bytes), v = cell_cpu_attention_padded(values, bytes);
    const int64_t numbers = rows * (2 * k + v) + others * (k + v + rows) + 3 * rows;
    const int64_t more =
        rows * (k + 2 * v) + others * (k + v + 2 * rows) + CELL_CPU_ATTENTION_TERMS * (rows + others);
    return bytes * (numbers + (backward ? more : 0)) + 8 * rows * (2 + leaves);
}

#endif
