/* Memory of contexts: by the backend's pool or the caller's allocator, counted; pinned memory, and copies
 * beside the calls. In: sizes and pointers. Out: memory, and what there is of it. Guaranteed: what was
 * allocated goes back to where it came from. */
#include "context.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is allocated ---- */

static size_t place_of(const cell_context *ctx, const void *pointer)
{
    size_t at = ((uintptr_t)pointer / CELL_ALIGNMENT * 2654435761u) & (ctx->room - 1);
    while (ctx->allocations[at].pointer && ctx->allocations[at].pointer != pointer)
        at = (at + 1) & (ctx->room - 1);
    return at;
}

static cell_status grow(cell_context *ctx)
{
    size_t room = ctx->room ? ctx->room * 2 : 16, before = ctx->room;
    cell_allocation *old = ctx->allocations, *table = calloc(room, sizeof *table);
    if (!table)
        return cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory for the list of allocations");
    ctx->allocations = table;
    ctx->room = room;
    for (size_t i = 0; i < before; i++)
        if (old[i].pointer)
            table[place_of(ctx, old[i].pointer)] = old[i];
    free(old);
    return CELL_OK;
}

static void note(cell_context *ctx, void *pointer, size_t bytes)
{
    ctx->allocations[place_of(ctx, pointer)] = (cell_allocation){ pointer, bytes };
    ctx->n_allocations++;
    ctx->in_use += bytes;
    ctx->most = ctx->in_use > ctx->most ? ctx->in_use : ctx->most;
}

/* Bytes of the allocation, which is forgotten; 0: it is none of the context's. */
static size_t forget(cell_context *ctx, const void *pointer)
{
    size_t at = ctx->room ? place_of(ctx, pointer) : 0;
    if (!ctx->room || !ctx->allocations[at].pointer)
        return 0;
    size_t bytes = ctx->allocations[at].bytes;
    ctx->allocations[at].pointer = NULL;
    for (size_t i = (at + 1) & (ctx->room - 1); ctx->allocations[i].pointer; i = (i + 1) & (ctx->room - 1)) {
        cell_allocation moved = ctx->allocations[i]; /* so that each is found without a gap before it */
        ctx->allocations[i].pointer = NULL;
        ctx->allocations[place_of(ctx, moved.pointer)] = moved;
    }
    ctx->n_allocations--;
    ctx->in_use -= bytes;
    return bytes;
}

/* ---- by whom ---- */

cell_status cell_memory_take(cell_context *ctx, void **pointer, size_t bytes)
{
    cell_status status = CELL_OK;
    *pointer = NULL;
    if ((size_t)ctx->n_allocations * 2 >= ctx->room)
        status = grow(ctx);
    if (status != CELL_OK)
        return status;
    if (!ctx->allocator.alloc) {
        status = ctx->backend->alloc(ctx->self, pointer, bytes, &ctx->error);
    } else {
        *pointer = ctx->allocator.alloc(ctx->allocator.user, bytes, ctx->stream);
        if (!*pointer)
            return cell_fail(&ctx->error, CELL_OUT_OF_MEMORY,
                             "out of memory: the caller's allocator has no %zu bytes", bytes);
        if ((uintptr_t)*pointer % CELL_ALIGNMENT) {
            ctx->allocator.free(ctx->allocator.user, *pointer, bytes, ctx->stream);
            *pointer = NULL;
            return cell_fail(&ctx->error, CELL_MISALIGNED,
                             "the caller's allocator gives memory that is at no multiple of %d",
                             CELL_ALIGNMENT);
        }
    }
    if (status == CELL_OK)
        note(ctx, *pointer, bytes);
    return status;
}

cell_status cell_memory_give(cell_context *ctx, void *pointer, cell_error *err)
{
    size_t bytes = forget(ctx, pointer);
    if (!bytes)
        return cell_fail(err, CELL_BAD_ARGUMENT, "%p is not allocated by this context", pointer);
    if (!ctx->allocator.alloc)
        return ctx->backend->free(ctx->self, pointer, err);
    ctx->allocator.free(ctx->allocator.user, pointer, bytes, ctx->stream);
    return CELL_OK;
}

cell_status cell_alloc(cell_context *ctx, void **pointer, size_t bytes)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (!pointer)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "cell_alloc: the place for the pointer is null");
    *pointer = NULL;
    return bytes ? cell_memory_take(ctx, pointer, bytes) : CELL_OK;
}

cell_status cell_free(cell_context *ctx, void *pointer)
{
    cell_status status = cell_context_check(ctx);
    return status != CELL_OK || !pointer ? status : cell_memory_give(ctx, pointer, &ctx->error);
}

cell_status cell_context_set_allocator(cell_context *ctx, const cell_allocator *allocator)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (allocator && (!allocator->alloc || !allocator->free))
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "an allocator has alloc and free");
    int64_t others = ctx->n_allocations - (ctx->workspace != NULL);
    if (others)
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT,
                         "%lld allocations of the context are not freed, and go back to where they came from",
                         (long long)others);
    status = cell_drop_workspace(ctx);
    if (status == CELL_OK)
        ctx->allocator = allocator ? *allocator : (cell_allocator){ 0 };
    return status;
}

/* ---- how much ---- */

cell_status cell_pool_read(cell_context *ctx, cell_pool_state *state)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (!state)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "cell_pool_read: the place for the numbers is null");
    *state = (cell_pool_state){ ctx->in_use, ctx->most, ctx->in_use, ctx->n_allocations };
    return ctx->backend->held && !ctx->allocator.alloc
               ? ctx->backend->held(ctx->self, &state->held, &ctx->error)
               : CELL_OK;
}

cell_status cell_pool_forget_most(cell_context *ctx)
{
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK)
        ctx->most = ctx->in_use;
    return status;
}

cell_status cell_pool_trim(cell_context *ctx, size_t keep)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (ctx->backend->graph_busy && ctx->backend->graph_busy(ctx->self))
        return cell_fail(&ctx->error, CELL_UNSUPPORTED,
                         "the stream is being captured: trim before or behind it");
    cell_graphs_clear(ctx);
    status = cell_drop_workspace(ctx);
    return status == CELL_OK && ctx->backend->trim ? ctx->backend->trim(ctx->self, keep, &ctx->error)
                                                   : status;
}

/* ---- pinned memory and copies ---- */

cell_status cell_alloc_pinned(cell_context *ctx, void **pointer, size_t bytes)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (!pointer)
        return cell_fail(&ctx->error, CELL_NULL_POINTER,
                         "cell_alloc_pinned: the place for the pointer is null");
    *pointer = NULL;
    if (!bytes)
        return CELL_OK;
    if (ctx->backend->alloc_pinned)
        return ctx->backend->alloc_pinned(ctx->self, pointer, bytes, &ctx->error);
    return cell_host_alloc(NULL, pointer, bytes, &ctx->error);
}

cell_status cell_free_pinned(cell_context *ctx, void *pointer)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK || !pointer)
        return status;
    if (ctx->backend->free_pinned)
        return ctx->backend->free_pinned(ctx->self, pointer, &ctx->error);
    return cell_host_free(NULL, pointer, &ctx->error);
}

cell_status cell_copy_begin(cell_context *ctx, void *to, const void *from, size_t bytes)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK || bytes == 0)
        return status;
    if (!to || !from)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "cell_copy_begin: %s is null",
                         to ? "source" : "destination");
    if (ctx->backend->copy_begin)
        return ctx->backend->copy_begin(ctx->self, to, from, bytes, &ctx->error);
    return ctx->backend->transfer(ctx->self, to, from, bytes, &ctx->error);
}

cell_status cell_copy_join(cell_context *ctx)
{
    cell_status status = cell_context_check(ctx);
    return status == CELL_OK && ctx->backend->copy_join ? ctx->backend->copy_join(ctx->self, &ctx->error)
                                                        : status;
}

cell_status cell_copy_wait(cell_context *ctx)
{
    cell_status status = cell_context_check(ctx);
    return status == CELL_OK && ctx->backend->copy_wait ? ctx->backend->copy_wait(ctx->self, &ctx->error)
                                                        : status;
}
