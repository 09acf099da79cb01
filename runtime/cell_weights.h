/* Weights in files: safetensors, which PyTorch, JAX and others read and write. A file has tensors by name,
 * and texts by key (its metadata). Tensors lie in the memory of a context's backend; the functions copy,
 * and wait. A file that is cut, contradicts itself, or has not what is asked for is refused before anything
 * is written. Source of the format: https://huggingface.co/docs/safetensors (8 bytes with the header's
 * length, little-endian; the header, JSON; the tensors, row-major, without gaps). */
#ifndef CELL_WEIGHTS_H
#define CELL_WEIGHTS_H

#include "cell.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CELL_WEIGHT_NAME 256 /* bytes of a name, its NUL among them */
#define CELL_WEIGHT_RANK 8

typedef struct cell_weight {
    char name[CELL_WEIGHT_NAME];
    cell_dtype dtype;
    int rank;
    int64_t shape[CELL_WEIGHT_RANK];
    void *data; /* in the backend's memory; may be NULL where there are no elements */
} cell_weight;

struct cell_desc;

/* The params of an instance (NAME_instance()) at `sizes` as weights called PREFIX and the param's name;
 * data[i] is the memory of the i-th param, as declared. *n: how many there are. CELL_TOO_SMALL: more than
 * `room`. */
cell_status cell_weights_of(cell_context *ctx, const struct cell_desc *desc, const int64_t *sizes,
                            const char *prefix, void *const *data, cell_weight *list, int room, int *n);

/* Writes a file with these tensors, in this order. metadata: NULL, or keys and values by turns up to a
 * NULL, no key twice; names and texts are UTF-8. The file appears under its name when it is whole, in the
 * place of one that was there; where that is a symbolic link, the file that it leads to is replaced, and the
 * link stays. Until then it lies beside it, under a name of this call. */
cell_status cell_weights_save(cell_context *ctx, const char *path, const cell_weight *list, int n,
                              const char *const *metadata);

/* Fills each `data` with the tensor of that name and shape; what else is in the file is left alone. Between
 * the floating types numbers are converted, rounded once to the nearest, ties to even; other types must be
 * equal. */
cell_status cell_weights_load(cell_context *ctx, const char *path, const cell_weight *list, int n);

/* The same, of a file whose bytes lie in memory, as a web page or a program that has its weights in it
 * gives them. */
cell_status cell_weights_load_memory(cell_context *ctx, const void *bytes, size_t n_bytes,
                                     const cell_weight *list, int n);

/* The text of a key of the file's metadata, cut to bytes - 1 and ended by a NUL. CELL_BAD_ARGUMENT: there
 * is none. */
cell_status cell_weights_metadata(cell_context *ctx, const char *path, const char *key, char *text,
                                  size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
