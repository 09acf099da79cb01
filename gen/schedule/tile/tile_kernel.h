/* tile_kernel.h: what the parts share that print the kernel around a walk's steps: tile_kernel.c (what both directions have),
 * tile_forward.c, tile_backward.c, and tile.c, which decides. */
#ifndef CELLC_TILE_KERNEL_H
#define CELLC_TILE_KERNEL_H

#include "tile.h"

/* ---- tile.c ---- */

bool tile_step_joins(const Tile *t, const Step *s);               /* with the next one, in this layout */
bool tile_print_unroll(const Tile *t, const Step *s, Buf *out);   /* in front of a loop over steps; are two printed as one, or apart? */

void tile_print_wants(Tile *t, Buf *out); /* which gradients are asked for */

/* ---- tile_kernel.c ---- */

bool tile_has_rows(const StateInfo *s);
bool tile_has_cols(const StateInfo *s);
void tile_name_states(Tile *t);
const char *tile_state_var(Tile *t, const StateInfo *s, const char *name);    /* the thread's element: name[r][c] */
const char *tile_state_decl(Tile *t, const StateInfo *s, const char *name);   /* all that it owns: name[4][2] */
/* Element number within one batch element's states: of the thread's element, or (own false) of the first one of
 * the block's state; as checkpoints lie, and as the state of an argument does (Tensor.inner). */
const char *tile_checkpoint_place(Tile *t, const StateInfo *s, bool own);
const char *tile_argument_place(Tile *t, const StateInfo *s);
const char *tile_state_size(Tile *t, const StateInfo *s);         /* of one batch element */
int tile_state_run(const Tile *t, const StateInfo *s);            /* elements of a row that a thread moves at once */
int tile_kept_width(const Tile *t, const StateInfo *s, bool narrow);          /* that it moves between registers and shared memory */
const char *tile_pointer(Tile *t, RefKind kind, TensorId tensor);
const char *tile_initial_value(Tile *t, const StateInfo *s);
bool tile_by_thread(const Tile *t, const StateInfo *s);           /* do its checkpoints lie as the threads have it? */
const char *tile_own_checkpoint(Tile *t, const StateInfo *s, const char *number);
const char *tile_first_checkpoint(Tile *t);
void tile_each_element(Tile *t, const StateInfo *s, Buf *out, const char *statement);
void tile_copy_state(Tile *t, const StateInfo *s, Buf *out, const char *to, const char *from);
/* The statement, or the state at `to + base`, by the threads that own it. */
void tile_store_elements(Tile *t, const StateInfo *s, Buf *out, const char *condition, const char *statement);
void tile_store_state(Tile *t, const StateInfo *s, Buf *out, const char *to, const char *at);
void tile_print_rows(Tile *t, const char *first, Buf *out);       /* of outs, where a chunk begins with that step */
void tile_move_rows(Tile *t, bool later, Buf *out);
const char *tile_number(Tile *t, int64_t n);
/* A text as the value of a template's hole; what a function prints, and what one prints for all states.
 * Such values are kept until the kernel is printed: it is printed many times. */
const char *tile_hole(Tile *t, const Buf *text);
void tile_release_holes(Tile *t);
const char *tile_lines(Tile *t, void (*print)(Tile *t, Buf *out));
const char *tile_of_states(Tile *t, void (*print)(Tile *t, const StateInfo *s, Buf *out));
const char *tile_step_copies(Tile *t); /* the next states are the states */
const char *tile_own_row(Tile *t, const StateInfo *s, const char *name); /* of the thread: name[r] */
/* Prints the kernel's body around its walk, and sets the walk's bytes of shared memory. */
void tile_print_around(Tile *t, const char *walk, Buf *out);
void tile_print_chunk(Tile *t, Buf *out);
const char *tile_end_chunk(const Step *s); /* what stands behind its steps */
const char *tile_all_meet(const Tile *t); /* all threads that share a state */

/* ---- tile_forward.c, tile_backward.c ---- */

void tile_print_forward(Tile *t, Buf *out);
void tile_print_backward(Tile *t, Buf *out);

#endif
