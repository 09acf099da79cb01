/* Inside the runtime only: the header of a safetensors file. */
#ifndef CELL_SAFETENSORS_H
#define CELL_SAFETENSORS_H

#include "cell_backend.h"
#include "cell_weights.h"

#include <stdio.h>

/* One tensor of a file. dtype is the file's word for it ("F32"). Its bytes are [begin, end) behind the
 * header. */
typedef struct cell_stored {
    char *name, *dtype;
    int rank;
    int64_t shape[CELL_WEIGHT_RANK];
    uint64_t begin, end;
} cell_stored;

typedef struct cell_text_pair {
    char *key, *value;
} cell_text_pair;

typedef struct cell_file_header {
    cell_stored *tensors;
    cell_text_pair *texts;
    int n_tensors, n_texts, room_tensors, room_texts;
    uint64_t data; /* where in the file the tensors begin */
} cell_file_header;

/* Reads and checks the header: its JSON, that no name comes twice, that every tensor has the bytes that its
 * shape and type take, and that the tensors fill the rest of the file without gaps. *header is to be freed
 * even after a failure. */
cell_status cell_header_read(FILE *file, const char *path, cell_file_header *header, cell_error *err);
void cell_header_free(cell_file_header *header);

/* Writes the 8 bytes and the header of these tensors, one behind the other, so that the first begins at a
 * multiple of 8 bytes. CELL_BACKEND_FAILED where writing fails. */
cell_status cell_header_write(FILE *file, const char *path, const cell_weight *list, int n,
                              const char *const *metadata, cell_error *err);

/* Is the text UTF-8, as all texts of the format are? Without surrogates and longer forms than needed. */
int cell_is_utf8(const char *text);

/* The file's word for a type; NULL for none. And the type of a word; -1 for one that the runtime has none
 * for. */
const char *cell_file_type(cell_dtype dtype);
int cell_type_of_file(const char *word);

#endif
