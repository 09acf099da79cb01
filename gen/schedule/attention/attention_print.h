/* attention_print.h: what the printers of attention's kernels share, for GPUs (kernels_attention.c) and for
 * the CPU (cpu_attention.c): attention_pairs.c has what is printed of a pair of steps and of tiles, and
 * attention_fields.c the fields of cell_attention, which both libraries have by the same names. */
#ifndef CELLC_ATTENTION_PRINT_H
#define CELLC_ATTENTION_PRINT_H

#include "attention_plan.h"
#include "kernels/kernels.h"

/* How the two languages say the same. */
typedef struct AttentionLanguage {
    const char *unused; /* in front of what may not be used */
    const char *real, *load; /* the type, and what loads one of a stored type, which is behind it in C */
    const char *distance; /* the type of w: of 32 bits, so that as a real it is one of a vector */
    const char *uses; /* what the functions read, before its fields */
    const char *null, *least, *most;
    const char *step; /* a conversion to the type of steps */
    const char *rows, *result; /* in front of a value of these structs */
} AttentionLanguage;

extern const AttentionLanguage attention_cuda, attention_c;

typedef struct Printing {
    const AttentionWalk *w;
    AttentionKernel kernel;
    const AttentionLanguage *to;
} Printing;

const Printing *attention_printing(const Kernel *k);
const AttentionCut *attention_cut_of(const Kernel *k);
const AttentionLanguage *attention_language(const Kernel *k);
Kernel attention_kernel(Plan *p, Program *pr, Printing *x, RefVec *refs, Buf *out);

/* ---- attention_pairs.c: u is what the functions read, p the pair */

void attention_print_uses(Kernel *k); /* the fields of that struct */
void attention_print_sizes(Kernel *k, bool pair);
/* Sizes, heads and the distance of the pair; and what the score reads of both steps, or of one side. */
void attention_print_pair(Kernel *k);
void attention_print_leaf(Kernel *k, int i, const char *value);
const char *attention_load(Kernel *k, int i);
/* The element of a table at the pair's place; inside: a condition that it is one of the table, or NULL. */
const char *attention_table(Kernel *k, int i, const char **inside);
int attention_term_of(const Kernel *k, int read); /* its number among those that are terms */
/* In CUDA, a condition on steps alone, in numbers of 32 bits; NULL: it is none such. */
const char *attention_room(Kernel *k, const AttentionCondition *x);
/* Is the condition one on steps alone, which has a range for each? */
bool attention_is_ranged(Kernel *k, const AttentionCondition *x);
void attention_print_range(Kernel *k, int side); /* 0: narrows [j0, j1), 1: [i0, i1) */
void attention_print_tiles(Kernel *k, bool all);

/* ---- attention_fields.c */

/* Of the head `head` of sequence b: its places along the axes of heads, and the fields of x. */
void attention_print_heads(Kernel *k);
void attention_print_fields(Kernel *k);

#endif
