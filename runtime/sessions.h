/* Inside the runtime only: a store of sessions. */
#ifndef CELL_SESSIONS_STORE_H
#define CELL_SESSIONS_STORE_H

#include "cell_sessions.h"
#include "context.h"

enum { MAX_KEPT = 64, SESSION_GRAPHS = 16 };

/* A state in rows. */
typedef struct Kept {
    int value, final, tensor; /* its arguments; the tensor's number */
    cell_dtype dtype;
    cell_keep keep;
    int64_t elements, factors; /* of a row */
    size_t row; /* bytes */
    void *rows, *dense; /* [n_rows], [n_dense] as the cell's calls take it */
    float *scale; /* [n_rows][factors] */
} Kept;

/* What one call of a session left, and how many steps it had done then. */
typedef struct Past {
    int32_t row;
    int64_t steps;
} Past;

typedef struct Session {
    int32_t open, marked;
    int32_t n, before; /* entries of its past; of a call that may fail, how many there were */
} Session;

/* A recorded call. */
typedef struct SessionGraph {
    int64_t n;
    void *list[CELL_MAX_ARGS];
    const void *workspace;
    size_t workspace_bytes;
    int64_t dense;
    void *graph;
    uint64_t used; /* 0: free */
} SessionGraph;

struct cell_sessions {
    cell_context *ctx;
    const cell_desc *desc;
    int64_t sizes[CELL_MAX_SIZES]; /* B and T 1, t0 0 */
    cell_sessions_options options;
    Kept states[MAX_KEPT];
    int n_states, kernels, no_graphs;
    int64_t n_rows, n_dense, n_free, spare_free;
    Session *sessions;
    Past *past, *planned; /* [capacity][back + 1] */
    int32_t *users, *free, *spare; /* of each row how many have it; rows of no session; both as they were */
    int32_t *host_rows,
        *device_rows; /* what the backend has, and behind it what it will have; [2][capacity] */
    int64_t n_sent;
    SessionGraph graphs[SESSION_GRAPHS];
    uint64_t clock;
};

/* One step or prefill of some sequences. */
typedef struct Call {
    char which;
    int reach; /* its kernels find rows */
    int64_t sizes[CELL_MAX_SIZES];
    void *const *list;
    const int32_t *rows; /* [2][B] */
} Call;

#endif
