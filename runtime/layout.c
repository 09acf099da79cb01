/* Where a plan's buffers are. In: the plan, sizes, and for a run the caller's arguments and memory. Out: byte
 * counts, and a pointer for every buffer. Guaranteed: buffers in workspace and reserve lie in the plan's
 * order at multiples of CELL_ALIGNMENT, the same for forward and backward; a reserve begins with its mark; a
 * buffer that may be in an argument or the reserve has room in the workspace all the same, so that the size
 * asked for does not depend on which optional arguments a call gives. */
#include "run.h"

static cell_status advance(int64_t *total, int64_t bytes, const char *name, cell_error *err) {
    int64_t end;
    if (bytes < 0)
        return cell_fail(err, CELL_BAD_SIZE, "buffer %s has %lld bytes", name, (long long)bytes);
    if (__builtin_add_overflow(*total, bytes, &end) || end > INT64_MAX - CELL_ALIGNMENT)
        return cell_fail(err, CELL_BAD_SIZE, "buffer %s: the memory wanted overflows 64 bits", name);
    *total = (end + CELL_ALIGNMENT - 1) / CELL_ALIGNMENT * CELL_ALIGNMENT;
    return CELL_OK;
}

static int in_workspace(const cell_buffer *buffer) {
    return buffer->origin == CELL_FROM_WORKSPACE || buffer->origin == CELL_FROM_ARG_OR_WORKSPACE ||
           buffer->origin == CELL_FROM_RESERVE_OR_WORKSPACE;
}

/* Leaves each buffer's offset in workspace in run->base as a number; cell_layout_bind makes pointers of them.
 */
cell_status cell_layout_workspace(cell_run *run, size_t *bytes) {
    const cell_plan *plan = run->plan;
    int64_t total = 0;
    if (plan->n_buffers > CELL_MAX_BUFFERS)
        return cell_fail(run->err, CELL_UNSUPPORTED, "%s: a plan with %d buffers; at most %d", run->desc->key,
                         plan->n_buffers, CELL_MAX_BUFFERS);
    for (int i = 0; i < plan->n_buffers; i++) {
        const cell_buffer *buffer = &plan->buffers[i];
        run->bytes[i] = -1;
        run->base[i] = NULL;
        if (!in_workspace(buffer))
            continue;
        run->base[i] = (void *)(uintptr_t)total;
        cell_status status = cell_run_eval(run, buffer->bytes, 0, &run->bytes[i]);
        if (status == CELL_OK)
            status = advance(&total, run->bytes[i], buffer->name, run->err);
        if (status != CELL_OK)
            return status;
    }
    *bytes = (size_t)total;
    return CELL_OK;
}

cell_status cell_layout_reserve(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                int64_t *offsets, size_t *bytes, cell_error *err) {
    cell_scope scope = {.sizes = sizes, .n_sizes = desc->n_sizes, .ctx = ctx, .desc = desc};
    int64_t total = CELL_MARK_BYTES;
    if (desc->n_reserve > CELL_MAX_BUFFERS)
        return cell_fail(err, CELL_UNSUPPORTED, "%s: a reserve of %d buffers; at most %d", desc->key,
                         desc->n_reserve, CELL_MAX_BUFFERS);
    for (int i = 0; i < desc->n_reserve; i++) {
        int64_t size;
        if (offsets)
            offsets[i] = total;
        cell_status status = cell_eval_in(&scope, desc->reserve[i].bytes, 0, &size, err);
        if (status == CELL_OK)
            status = advance(&total, size, desc->reserve[i].name, err);
        if (status != CELL_OK)
            return status;
    }
    *bytes = total == CELL_MARK_BYTES ? 0 : (size_t)total; /* nothing to save, nothing to mark */
    return CELL_OK;
}

static cell_status bind_arg(cell_run *run, int i, int index) {
    if (index < 0 || index >= run->n_args)
        return cell_fail(run->err, CELL_BAD_ARGUMENT, "%s: buffer %s is argument %d of %d", run->desc->key,
                         run->plan->buffers[i].name, index, run->n_args);
    const cell_buffer *buffer = &run->plan->buffers[i];
    const cell_arg *arg = &run->list[index];
    if (arg->dtype != buffer->dtype)
        return cell_fail(run->err, CELL_BAD_ARGUMENT,
                         "%s: the plan is wrong: buffer %s is %s, its argument %s", run->desc->key,
                         buffer->name, cell_dtype_name((cell_dtype)buffer->dtype),
                         cell_dtype_name((cell_dtype)arg->dtype));
    if (!run->args[index])
        return CELL_OK;
    int64_t elements;
    cell_status status = cell_arg_count(run->desc, arg, run->sizes, &elements, run->err);
    run->base[i] = run->args[index];
    run->bytes[i] = elements * (int64_t)cell_dtype_bytes((cell_dtype)arg->dtype);
    return status;
}

static cell_status bind_reserve(cell_run *run, int i, int index, const int64_t *offsets) {
    if (index < 0 || index >= run->desc->n_reserve)
        return cell_fail(run->err, CELL_BAD_ARGUMENT, "%s: buffer %s is number %d of the reserve's %d",
                         run->desc->key, run->plan->buffers[i].name, index, run->desc->n_reserve);
    if (run->memory->reserve) {
        run->base[i] = (char *)run->memory->reserve + offsets[index];
        cell_scope scope = {
            .sizes = run->sizes, .n_sizes = run->desc->n_sizes, .ctx = run->ctx, .desc = run->desc};
        return cell_eval_in(&scope, run->desc->reserve[index].bytes, 0, &run->bytes[i], run->err);
    }
    return CELL_OK;
}

static cell_status bind(cell_run *run, int i, const int64_t *offsets) {
    const cell_buffer *buffer = &run->plan->buffers[i];
    if (in_workspace(buffer) && run->memory->workspace)
        run->base[i] = (char *)run->memory->workspace + (uintptr_t)run->base[i];
    switch ((cell_origin)buffer->origin) {
    case CELL_FROM_ARG:
    case CELL_FROM_ARG_OR_WORKSPACE:
        return bind_arg(run, i, buffer->index);
    case CELL_FROM_RESERVE:
    case CELL_FROM_RESERVE_OR_WORKSPACE:
        return bind_reserve(run, i, buffer->index, offsets);
    case CELL_FROM_WORKSPACE:
    case CELL_FROM_NOWHERE:
        break;
    }
    return CELL_OK;
}

cell_status cell_layout_bind(cell_run *run) {
    int64_t offsets[CELL_MAX_BUFFERS];
    size_t bytes;
    cell_status status = cell_layout_reserve(run->ctx, run->desc, run->sizes, offsets, &bytes, run->err);
    for (int i = 0; i < run->plan->n_buffers && status == CELL_OK; i++)
        status = bind(run, i, offsets);
    return status;
}
