/* Loops as recorded graphs. In: a loop marked CELL_OP_GRAPH. Out: its work, replayed from a graph when the
 * same loop was seen before with the same sizes, pointers and flags. Guaranteed: the same work as the plain
 * loop; where nothing can be recorded, the plain loop itself. A loop is recorded the second time it is met:
 * recording costs many launches, and lengths that never come back should not pay for it. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GIVEN_WORDS = CELL_MAX_ARGS / 64,
    MAX_WORDS = 8 + CELL_MAX_SIZES + CELL_MAX_LOOPS + CELL_MAX_BUFFERS + GIVEN_WORDS
};

static void use_op(const cell_run *run, const cell_op *op, unsigned char *used) {
    const cell_ref *ref;
    for (int i = 0; (ref = cell_op_ref(op, i)); i++)
        if (ref->buffer >= 0 && ref->buffer < run->plan->n_buffers)
            used[ref->buffer] = 1;
}

/* Only the buffers that the loop works on count: one that stays inside the workspace is replayed wherever the
 * caller's tensors are. */
static size_t key_of_buffers(const cell_run *run, int at, int64_t *key) {
    unsigned char used[CELL_MAX_BUFFERS] = {0};
    size_t words = 0;
    int end = at + 1 + run->plan->ops[at].u.loop.n_ops;
    for (int i = at + 1; i < end && i < run->plan->n_ops; i++)
        use_op(run, &run->plan->ops[i], used);
    for (int i = 0; i < run->plan->n_buffers; i++)
        key[words++] = used[i] ? (int64_t)(intptr_t)run->base[i] : 0;
    return words;
}

/* Conditions may name arguments that no buffer does. */
static size_t key_of_args(const cell_run *run, int64_t *key) {
    uint64_t given[GIVEN_WORDS] = {0};
    for (int i = 0; i < run->n_args; i++)
        given[i / 64] |= (uint64_t)(run->args[i] != NULL) << i % 64;
    for (int i = 0; i < GIVEN_WORDS; i++)
        key[i] = (int64_t)given[i];
    return GIVEN_WORDS;
}

static size_t make_key(const cell_run *run, int at, int64_t *key) {
    size_t words = 0;
    key[words++] = (int64_t)(intptr_t)run->plan;
    key[words++] = at;
    key[words++] = run->flags;
    key[words++] = run->saving;
    key[words++] = run->n_loops;
    for (int i = 0; i < run->n_loops; i++)
        key[words++] = run->loop[i];
    for (int i = 0; i < run->desc->n_sizes; i++)
        key[words++] = run->sizes[i];
    words += key_of_buffers(run, at, key + words);
    return words + key_of_args(run, key + words);
}

static cell_graph_entry *find(cell_context *ctx, const int64_t *key, size_t words) {
    for (int i = 0; i < CELL_GRAPH_CACHE; i++) {
        cell_graph_entry *entry = &ctx->graphs[i];
        if (entry->key && entry->words == words && memcmp(entry->key, key, words * sizeof *key) == 0)
            return entry;
    }
    return NULL;
}

/* Takes the place that was not used for the longest time. NULL when out of memory: then nothing is cached. */
static cell_graph_entry *remember(cell_context *ctx, const int64_t *key, size_t words) {
    cell_graph_entry *entry = &ctx->graphs[0];
    for (int i = 1; i < CELL_GRAPH_CACHE; i++)
        if (ctx->graphs[i].used < entry->used)
            entry = &ctx->graphs[i];
    if (entry->graph)
        ctx->backend->graph_free(ctx->self, entry->graph);
    free(entry->key);
    *entry = (cell_graph_entry){.key = malloc(words * sizeof *key), .words = words};
    if (!entry->key)
        return NULL;
    memcpy(entry->key, key, words * sizeof *key);
    entry->used = ++ctx->clock;
    return entry;
}

static cell_status record(cell_run *run, int at, void **graph) {
    cell_context *ctx = run->ctx;
    cell_status status = ctx->backend->graph_begin(ctx->self, run->err);
    if (status != CELL_OK)
        return status;
    run->recording = 1;
    status = cell_run_loop(run, at);
    run->recording = 0;
    cell_error other;
    cell_status ended = ctx->backend->graph_end(ctx->self, graph, status == CELL_OK ? run->err : &other);
    if (status != CELL_OK && ended == CELL_OK) {
        ctx->backend->graph_free(ctx->self, *graph);
        *graph = NULL;
    }
    return status == CELL_OK ? ended : status;
}

static int can_record(const cell_run *run) {
    if (run->text || run->recording || run->ctx->verbose > 1 || !run->ctx->backend->graph_begin)
        return 0;
    return !run->ctx->backend->graph_busy(run->ctx->self);
}

cell_status cell_run_loop_graph(cell_run *run, int at) {
    int64_t key[MAX_WORDS];
    if (!can_record(run))
        return cell_run_loop(run, at);
    cell_context *ctx = run->ctx;
    size_t words = make_key(run, at, key);
    cell_graph_entry *entry = find(ctx, key, words);
    if (!entry) {
        remember(ctx, key, words);
        return cell_run_loop(run, at);
    }
    entry->used = ++ctx->clock;
    if (!entry->graph && record(run, at, &entry->graph) != CELL_OK) {
        if (ctx->verbose && !ctx->graph_warned++)
            fprintf(stderr, "cell: %s: no graph, plain launches instead: %s\n", run->desc->key,
                    run->err->text);
        entry->graph = NULL;
        return cell_run_loop(run, at);
    }
    return ctx->backend->graph_run(ctx->self, entry->graph, run->err);
}
