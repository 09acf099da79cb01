/* Where a plan's buffers are. In: the plan, sizes, and for a run the caller's arguments and memory. Out: byte
 * counts, and a pointer for every buffer. Guaranteed: buffers lie at multiples of CELL_ALIGNMENT, those of the
 * reserve in its order, the same for forward and backward, behind its mark; buffers of the workspace share
 * memory only where no operation runs between the first and the last use of both; one that may be in an
 * argument, or in the reserve of a call that may have none, has room in the workspace all the same, so that
 * the size asked for does not depend on which optional arguments a call gives. */
#include "run.h"

const cell_ref *cell_op_ref(const cell_op *op, int i) {
    switch ((cell_op_kind)op->kind) {
    case CELL_OP_GEMM:
        return i == 0 ? &op->u.gemm.a.at : i == 1 ? &op->u.gemm.b.at : i == 2 ? &op->u.gemm.c.at : NULL;
    case CELL_OP_KERNEL:
        return i < op->u.kernel.n_refs ? &op->u.kernel.refs[i] : NULL;
    case CELL_OP_COPY:
        return i == 0 ? &op->u.memory.to : i == 1 ? &op->u.memory.from : NULL;
    case CELL_OP_FILL:
        return i == 0 ? &op->u.memory.to : NULL;
    case CELL_OP_PRODUCTS: return i == 0 ? &op->u.products.places : NULL;
    case CELL_OP_LOOP:
    case CELL_OP_FORMS:
    case CELL_OP_LIST:
        break; /* what is inside follows */
    }
    return NULL;
}

static cell_status advance(int64_t *total, int64_t bytes, const char *name, cell_error *err) {
    int64_t end;
    if (bytes < 0)
        return cell_fail(err, CELL_BAD_SIZE, "buffer %s has %lld bytes", name, (long long)bytes);
    if (__builtin_add_overflow(*total, bytes, &end) || end > PTRDIFF_MAX - CELL_ALIGNMENT)
        return cell_fail(err, CELL_BAD_SIZE, "buffer %s: the memory wanted overflows %d bits", name,
                         (int)sizeof(void *) * 8);
    *total = (end + CELL_ALIGNMENT - 1) / CELL_ALIGNMENT * CELL_ALIGNMENT;
    return CELL_OK;
}

/* A call that saves has what may be in the reserve there. A text shows the plan for any call. */
static int in_workspace(const cell_run *run, const cell_buffer *buffer) {
    return buffer->origin == CELL_FROM_WORKSPACE || buffer->origin == CELL_FROM_ARG_OR_WORKSPACE ||
           (buffer->origin == CELL_FROM_RESERVE_OR_WORKSPACE && (!run->saving || run->text));
}

/* A buffer of the workspace while they are laid out. It holds something from the first operation that names it
 * to the last, whether these will run or not. */
typedef struct Room {
    int16_t buffer;
    int first, last; /* first > last: none names it */
    int64_t at, end;
} Room;

/* What a loop does in one turn the next may need: all its operations count as one, that of the outermost.
 * Products that go together come behind what else stands among them. */
static void find_lives(const cell_plan *plan, Room *of) {
    int end = -1, turn = 0; /* the last operation of the outermost open loop, and its first */
    int products = -1, inside = -1; /* the last of products together, and of a list or loop among them */
    for (int i = 0; i < plan->n_ops; i++) {
        const cell_op *op = &plan->ops[i];
        const cell_ref *ref;
        if (i > end && op->kind == CELL_OP_LOOP)
            turn = i, end = i + op->u.loop.n_ops;
        if (i > products && op->kind == CELL_OP_PRODUCTS)
            products = i + op->u.products.n_ops;
        if (i > inside && i <= products && (op->kind == CELL_OP_LIST || op->kind == CELL_OP_LOOP))
            inside = i + cell_op_span(plan, i, plan->n_ops) - 1;
        int waits = i <= products && i > inside && (op->kind == CELL_OP_GEMM || op->kind == CELL_OP_PRODUCTS);
        for (int k = 0; (ref = cell_op_ref(op, k)); k++) {
            if (ref->buffer < 0 || ref->buffer >= plan->n_buffers)
                continue; /* reported where it would run */
            Room *room = &of[ref->buffer];
            int first = i <= end ? turn : i, last = i <= end ? end : waits ? products : i;
            room->first = first < room->first ? first : room->first;
            room->last = last > room->last ? last : room->last;
        }
    }
}

/* The lowest place for `bytes` where nothing lies that lives at the same time. rooms: n, ascending by place. */
static int64_t lowest(const Room *rooms, int n, const Room *room, int64_t bytes) {
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        if (rooms[i].first > room->last || rooms[i].last < room->first)
            continue;
        if (rooms[i].at - at >= bytes)
            break;
        at = rooms[i].end > at ? rooms[i].end : at;
    }
    return at;
}

/* The largest first, since a small one finds a gap more often; of equals the first in the plan. */
static int larger(const cell_run *run, int16_t a, int16_t b) {
    return run->bytes[a] != run->bytes[b] ? run->bytes[a] > run->bytes[b] : a < b;
}

static int by_size(const cell_run *run, int16_t *list) {
    int n = 0;
    for (int16_t i = 0; i < run->plan->n_buffers; i++) {
        if (run->bytes[i] < 0)
            continue;
        int k = n++;
        for (; k > 0 && larger(run, i, list[k - 1]); k--)
            list[k] = list[k - 1];
        list[k] = i;
    }
    return n;
}

static cell_status place(cell_run *run, int64_t *total) {
    Room of[CELL_MAX_BUFFERS], rooms[CELL_MAX_BUFFERS];
    int16_t order[CELL_MAX_BUFFERS];
    int n = 0, count = by_size(run, order);
    for (int16_t i = 0; i < run->plan->n_buffers; i++)
        of[i] = (Room){.buffer = i, .first = run->plan->n_ops, .last = -1};
    find_lives(run->plan, of);
    for (int i = 0; i < count; i++) {
        Room room = of[order[i]];
        int64_t bytes = 0;
        cell_status status = advance(&bytes, run->bytes[room.buffer], run->plan->buffers[room.buffer].name, run->err);
        room.at = status == CELL_OK ? lowest(rooms, n, &room, bytes) : 0;
        room.end = room.at;
        if (status == CELL_OK)
            status = advance(&room.end, bytes, run->plan->buffers[room.buffer].name, run->err);
        if (status != CELL_OK)
            return status;
        run->base[room.buffer] = (void *)(uintptr_t)room.at;
        *total = room.end > *total ? room.end : *total;
        int k = n++;
        for (; k > 0 && rooms[k - 1].at > room.at; k--)
            rooms[k] = rooms[k - 1];
        rooms[k] = room;
    }
    return CELL_OK;
}

/* Leaves each buffer's offset in workspace in run->base as a number; cell_layout_bind makes pointers of them.
 */
cell_status cell_layout_workspace(cell_run *run, size_t *bytes) {
    const cell_plan *plan = run->plan;
    int64_t total = 0;
    cell_status status = CELL_OK;
    if (plan->n_buffers > CELL_MAX_BUFFERS)
        return cell_fail(run->err, CELL_UNSUPPORTED, "%s: a plan with %d buffers; at most %d", run->desc->key,
                         plan->n_buffers, CELL_MAX_BUFFERS);
    for (int i = 0; i < plan->n_buffers && status == CELL_OK; i++) {
        const cell_buffer *buffer = &plan->buffers[i];
        run->bytes[i] = -1;
        run->base[i] = NULL;
        if (in_workspace(run, buffer)) {
            status = cell_run_eval(run, buffer->bytes, 0, &run->bytes[i]);
            if (status == CELL_OK && run->bytes[i] < 0)
                status = cell_fail(run->err, CELL_BAD_SIZE, "buffer %s has %lld bytes", buffer->name,
                                   (long long)run->bytes[i]);
        }
    }
    if (status == CELL_OK)
        status = place(run, &total);
    *bytes = (size_t)total;
    return status;
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
    if (in_workspace(run, buffer) && run->memory->workspace)
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
