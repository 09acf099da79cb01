/* Sessions: sequences that go on from call to call. A store keeps the states of many of them in the memory
 * of a context's backend, in rows, and a step takes any of the sessions. What a session's last `back` calls
 * began with stays in rows of its own, so that calls are taken back, and sessions forked, without a copy. A
 * store belongs to its context, and is used by one thread at a time, as that is. When a call fails because
 * of its arguments, no session has changed. */
#ifndef CELL_SESSIONS_H
#define CELL_SESSIONS_H

#include "cell.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How states are stored between steps; in a step they are as always. */
typedef enum cell_keep {
    CELL_KEEP_AS_IS,
    CELL_KEEP_BF16, /* states of f32 as bf16 */
    CELL_KEEP_INT8 /* states of f32 as 8 bits, with a factor for each 64 of a session's elements in a row */
} cell_keep;

enum { CELL_KEEP_GROUP = 64 };

typedef struct cell_sessions_options {
    int64_t capacity; /* sessions that can be open at once */
    int32_t back; /* calls of a session that can be taken back, 0 to 1024 */
    cell_keep keep;
} cell_sessions_options;

typedef struct cell_sessions cell_sessions;
struct cell_desc;

/* A store for an instance (NAME_instance()) at `sizes`, whose B, T and t0 do not count. *store is NULL
 * after a failure. CELL_UNSUPPORTED: cells with lengths, packed or reversed ones, and states that cannot be
 * kept so; the message says which. */
cell_status cell_sessions_create(cell_context *ctx, const struct cell_desc *desc, const int64_t *sizes,
                                 const cell_sessions_options *options, cell_sessions **store);
/* Before its context is destroyed. NULL is ignored. */
void cell_sessions_destroy(cell_sessions *store);

/* A new session, in the spec's initial states. CELL_TOO_SMALL: as many are open as there can be. */
cell_status cell_sessions_open(cell_sessions *store, int32_t *session);
cell_status cell_sessions_close(cell_sessions *store, int32_t session);
/* A new session in the state of `session`, with all that could be taken back there. */
cell_status cell_sessions_fork(cell_sessions *store, int32_t session, int32_t *fork);
/* Takes the session's last `calls` calls back: a step and a prefill are one call each. CELL_BAD_ARGUMENT:
 * fewer can be. */
cell_status cell_sessions_back(cell_sessions *store, int32_t session, int64_t calls);
/* How many steps the session has done, and how many calls can be taken back; a pointer may be NULL. */
cell_status cell_sessions_at(cell_sessions *store, int32_t session, int64_t *steps, int64_t *back);

/* One step of each of n sessions, no session twice. args: as cell_run_step takes them, tensors for n
 * sequences in this order; states among them are ignored. */
cell_status cell_sessions_step(cell_sessions *store, const int32_t *sessions, int64_t n, void *const *args);
/* T steps of each, by the form of the cell for whole sequences. */
cell_status cell_sessions_prefill(cell_sessions *store, const int32_t *sessions, int64_t n, int64_t T,
                                  void *const *args);

/* The session as bytes; *need: how many. With blob NULL only *need is set. CELL_TOO_SMALL: fewer were
 * given. */
cell_status cell_sessions_save(cell_sessions *store, int32_t session, void *blob, size_t bytes, size_t *need);
/* A new session of what cell_sessions_save has written. Bytes that are not that whole, or are of another
 * cell, of other sizes or kept otherwise are refused with CELL_BAD_ARGUMENT, a newer version with
 * CELL_UNSUPPORTED. */
cell_status cell_sessions_load(cell_sessions *store, const void *blob, size_t bytes, int32_t *session);

/* Bytes of the store's rows, and of one session's states in them; a pointer may be NULL. */
cell_status cell_sessions_bytes(const cell_sessions *store, size_t *all, size_t *each);
/* How states come into a step: "in the step's kernels", "by a kernel in front of the step and one behind it",
 * "by copies", "by the CPU". */
const char *cell_sessions_how(const cell_sessions *store);

#ifdef __cplusplus
}
#endif

#endif
