/* vec.h: vector files, the text form of a cell's tensors (inputs, outputs, gradients) that tests and `cellc
 * run` exchange. The format is described in tests/vectors/README.md. */
#ifndef CELLC_VEC_H
#define CELLC_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { VEC_MAX_RANK = 10, VEC_NAME = 128 };

typedef enum {
    VK_INPUT, VK_PARAM, VK_STATE, VK_OUTPUT, VK_FINAL, VK_DOUT, VK_DFINAL, VK_DINPUT, VK_DPARAM, VK_DSTATE,
    VK_VALUE,     /* any definition, [B, T, ...]; written by `cellc run --print` */
    VK_COUNT
} VecKind;
extern const char *const vec_kind_names[VK_COUNT];

/* Where something stands in a file, counted from 1; line 0 when it was not read from one. */
typedef struct VecPlace { int line, column; } VecPlace;

typedef struct VecTensor {
    VecKind kind;
    char name[VEC_NAME];
    int rank;
    int64_t dims[VEC_MAX_RANK];
    size_t count;                 /* product of dims; 1 for a scalar */
    double *values;               /* row-major, owned by the file */
    VecPlace place;               /* of its header */
} VecTensor;

typedef struct VecSize { char name[VEC_NAME]; int64_t value; VecPlace place; } VecSize;

typedef struct VecFile {
    char *comment; /* all comment lines, each with its '#' and newline; "" when there are none */
    size_t comment_len;
    VecSize *sizes;               /* of the `# sizes:` line */
    int nsizes;
    VecTensor *tensors;
    int ntensors;
    int cap;
    char error[256];              /* why it cannot be used; "" when it can */
    VecPlace error_place;         /* line 0: the file as a whole */
    const char *note;             /* of the error, and the other place that it is about; or NULL */
    VecPlace note_place;
} VecFile;

/* Reads a file. Always returns a VecFile that vec_free takes (NULL only without memory); on failure error is
 * not empty and what was read before it is there. Memory grows with what the file holds, not with what it
 * claims. */
VecFile *vec_read(const char *path);
VecFile *vec_read_stream(FILE *in);
VecFile *vec_new(void);
void vec_free(VecFile *f);

/* The tensor of that kind and name, or NULL. */
VecTensor *vec_find(const VecFile *f, VecKind kind, const char *name);
bool vec_size(const VecFile *f, const char *name, int64_t *value);
/* The same with its place, or NULL. */
const VecSize *vec_find_size(const VecFile *f, const char *name);
/* Notes why the file cannot be used, unless that is known; gives false. */
bool vec_fail(VecFile *f, VecPlace at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Says it: "FILE:LINE:COLUMN: error: ...", without a place that there is none of. */
void vec_print_error(const VecFile *f, const char *path);

/* Adds a tensor with room for its values (zeroed); NULL when the sizes overflow, the name is too long, the
 * tensor is there already or memory is short. The pointer is valid until the next call. */
VecTensor *vec_add(VecFile *f, VecKind kind, const char *name, int rank, const int64_t *dims);
bool vec_add_size(VecFile *f, const char *name, int64_t value);
bool vec_add_comment(VecFile *f, const char *line);

/* Writes comments, then a `# sizes:` line unless the comments hold one, then the tensors. false when writing
 * failed. */
bool vec_write(const VecFile *f, FILE *out);

#endif
