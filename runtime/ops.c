/* The operations of a plan. In: a run with its buffers bound. Out: the work issued on the backend, or the
 * same as text. Guaranteed: an index out of range or a product, copy or fill that would leave its buffer is
 * reported as the fault of the plan that it is, and not issued. */
#include "cell_few_sizes.h"
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static cell_scope scope_of(const cell_run *run) {
    return (cell_scope){.sizes = run->sizes,
                        .n_sizes = run->desc->n_sizes,
                        .loop = run->loop,
                        .n_loops = run->n_loops,
                        .saving = run->saving,
                        .ctx = run->ctx,
                        .desc = run->desc,
                        .plan = run->plan,
                        .before = run->plan->n_ops};
}

cell_status cell_run_eval(const cell_run *run, cell_expr expr, int64_t absent, int64_t *value) {
    if (!expr) {
        *value = absent;
        return CELL_OK;
    }
    cell_scope scope = scope_of(run);
    return cell_eval_in(&scope, expr, absent, value, run->err);
}

static cell_status wrong_plan(const cell_run *run, const char *op, const char *what) {
    return cell_fail(run->err, CELL_BAD_ARGUMENT, "%s: the plan is wrong: %s: %s", run->desc->key,
                     op ? op : "?", what);
}

static int any_given(const cell_run *run, const int16_t *list) {
    for (; *list >= 0; list++)
        if (*list < run->n_args && run->args[*list])
            return 1;
    return 0;
}

static int flags_fit(const cell_run *run, int flags) {
    int adds = run->flags & CELL_KERNEL_ACCUMULATE;
    if ((flags & CELL_OP_SAVE_ONLY && !run->saving) || (flags & CELL_OP_INFER_ONLY && run->saving))
        return 0;
    return !(flags & CELL_OP_OVERWRITE_ONLY && adds) && !(flags & CELL_OP_ACCUMULATE_ONLY && !adds);
}

/* Everything runs in print, where there are no arguments. */
static cell_status applies(const cell_run *run, const cell_op *op, int *result) {
    int64_t when;
    *result = 1;
    if (run->text)
        return CELL_OK;
    *result = 0;
    if (!flags_fit(run, op->flags) || (op->need && !any_given(run, op->need)) ||
        (op->unless && any_given(run, op->unless)))
        return CELL_OK;
    cell_status status = cell_run_eval(run, op->when, 1, &when);
    *result = status == CELL_OK && when != 0;
    return status;
}

/* A place in memory: pointer, and elements from there to the buffer's end (-1: not known). */
typedef struct Place {
    char *at;
    cell_dtype dtype;
    int64_t offset, room;
    const char *name;
} Place;

static cell_status locate(const cell_run *run, const char *op, const cell_ref *ref, Place *place) {
    if (ref->buffer < 0 || ref->buffer >= run->plan->n_buffers)
        return wrong_plan(run, op, "no such buffer");
    const cell_buffer *buffer = &run->plan->buffers[ref->buffer];
    place->dtype = (cell_dtype)buffer->dtype;
    place->name = buffer->name;
    int64_t element = (int64_t)cell_dtype_bytes(place->dtype), bytes = run->bytes[ref->buffer];
    cell_status status = cell_run_eval(run, ref->offset, 0, &place->offset);
    if (status != CELL_OK)
        return status;
    if (bytes == 0)                  /* without elements it has no place for an offset: nothing is there to read */
        place->offset = 0;
    place->room = bytes < 0 ? -1 : bytes / element - place->offset;
    if (place->offset < 0 || (bytes >= 0 && place->room < 0))
        return wrong_plan(run, op, "an offset outside its buffer");
    char *base = run->base[ref->buffer];
    place->at = base ? base + place->offset * element : NULL;
    return CELL_OK;
}

static void print_place(const cell_run *run, const Place *place) {
    cell_text_add(run->text, " %s", place->name);
    if (place->offset)
        cell_text_add(run->text, "+%lld", (long long)place->offset);
}

/* The furthest element a matrix touches, beyond its first. */
static int64_t reach(const cell_matrix *matrix, int64_t rows, int64_t cols, int64_t batch) {
    if (rows == 0 || cols == 0 || batch == 0)
        return -1;
    return (rows - 1) * matrix->row_stride + (cols - 1) * matrix->col_stride +
           (batch - 1) * matrix->batch_stride;
}

static cell_status operand(const cell_run *run, const char *op, const cell_operand *from, int64_t rows,
                           int64_t cols, int64_t batch, cell_matrix *to) {
    Place place = { 0 };
    cell_status status = locate(run, op, &from->at, &place);
    if (status == CELL_OK)
        status = cell_run_eval(run, from->row, 1, &to->row_stride);
    if (status == CELL_OK)
        status = cell_run_eval(run, from->col, 1, &to->col_stride);
    if (status == CELL_OK)
        status = cell_run_eval(run, from->batch, 0, &to->batch_stride);
    if (status != CELL_OK)
        return status;
    to->data = place.at;
    to->dtype = place.dtype;
    if (to->row_stride < 0 || to->col_stride < 0 || to->batch_stride < 0)
        return wrong_plan(run, op, "a negative stride");
    /* A text shows what does not apply as well, whose buffers may be empty. */
    if (!run->text && place.room >= 0 && reach(to, rows, cols, batch) >= place.room)
        return wrong_plan(run, op, "a matrix leaves its buffer");
    if (run->text) {
        print_place(run, &place);
        cell_text_add(run->text, "(%lld,%lld", (long long)to->row_stride, (long long)to->col_stride);
        cell_text_add(run->text, batch > 1 ? ",%lld)" : ")", (long long)to->batch_stride);
    }
    return CELL_OK;
}

static cell_status gemm_sizes(const cell_run *run, const cell_gemm_op *op, cell_gemm_call *call) {
    cell_status status = cell_run_eval(run, op->m, 1, &call->m);
    if (status == CELL_OK)
        status = cell_run_eval(run, op->n, 1, &call->n);
    if (status == CELL_OK)
        status = cell_run_eval(run, op->k, 1, &call->k);
    return status == CELL_OK ? cell_run_eval(run, op->batch, 1, &call->batch) : status;
}

/* A cotangent or initial state that the caller left out is zero. */
static int left_out(const cell_run *run, const cell_operand *operand) {
    const cell_buffer *buffer = &run->plan->buffers[operand->at.buffer];
    return buffer->origin == CELL_FROM_ARG && !run->base[operand->at.buffer] &&
           (run->list[buffer->index].flags & CELL_ARG_OPTIONAL);
}

/* A param, which no operation writes to, at a place that is the same in all turns of a loop. */
static int is_fixed(const cell_run *run, const cell_operand *operand)
{
    const cell_buffer *buffer = &run->plan->buffers[operand->at.buffer];
    if (buffer->origin != CELL_FROM_ARG || run->list[buffer->index].role != CELL_ROLE_VALUE ||
        run->desc->tensors[run->list[buffer->index].tensor].kind != CELL_PARAM)
        return 0;
    for (const int64_t *code = operand->at.offset; code && *code != CELL_X_END; code++)
        if (*code == CELL_X_LOOPVAR || *code == CELL_X_ROW)
            return 0;
        else if (*code == CELL_X_PUSH || *code == CELL_X_SIZE || *code == CELL_X_ATTR)
            code++;
    return 1;
}

/* The product of an operation, checked; or its text. here: 0 where nothing is to be multiplied. */
static cell_status product_of(const cell_run *run, const cell_op *op, cell_gemm_call *to, int *here)
{
    const cell_gemm_op *gemm = &op->u.gemm;
    *here = 0;
    int adds = gemm->beta == CELL_BETA_ONE ||
               (gemm->beta == CELL_BETA_ACCUMULATE && run->flags & CELL_KERNEL_ACCUMULATE);
    cell_gemm_call call = {.alpha = gemm->alpha, .beta = adds ? 1 : 0};
    cell_status status = gemm_sizes(run, gemm, &call);
    if (status == CELL_OK && run->text)
        cell_text_add(run->text, "gemm m=%lld n=%lld k=%lld batch=%lld alpha=%g beta=%s:", (long long)call.m,
                      (long long)call.n, (long long)call.k, (long long)call.batch, call.alpha,
                      gemm->beta == CELL_BETA_ACCUMULATE ? "accumulate"
                      : adds                             ? "1"
                                                         : "0");
    /* Buffers without elements have no place for a later step's offset. */
    if (status != CELL_OK || (!run->text && (call.m == 0 || call.n == 0 || call.batch == 0)))
        return status;
    if (status == CELL_OK)
        status = operand(run, op->name, &gemm->a, call.m, call.k, call.batch, &call.a);
    if (status == CELL_OK)
        status = operand(run, op->name, &gemm->b, call.k, call.n, call.batch, &call.b);
    if (status == CELL_OK)
        status = operand(run, op->name, &gemm->c, call.m, call.n, call.batch, &call.c);
    if (status != CELL_OK || run->text)
        return status;
    if (left_out(run, &gemm->a) || left_out(run, &gemm->b))
        call.alpha = 0;
    if (gemm->a_scale && gemm->b_scale)
        call.a_scale = run->base[gemm->a_scale - 1], call.b_scale = run->base[gemm->b_scale - 1];
    if (run->n_loops && run->ctx->backend->loop)
        call.fixed = is_fixed(run, &gemm->a) | is_fixed(run, &gemm->b) << 1;
    call.mixes = run->ctx->backend->kind == CELL_BACKEND_CPU;
    *to = call;
    *here = 1;
    return cell_gemm_check(&call, run->err);
}

static cell_status run_gemm(const cell_run *run, const cell_op *op)
{
    cell_gemm_call call;
    int here;
    cell_status status = product_of(run, op, &call, &here);
    return status == CELL_OK && here ? run->ctx->backend->gemm(run->ctx->self, &call, run->err) : status;
}

/* Kernels walk their work grid-stride, so a grid beyond the hardware's limit is cut to it. */
static cell_status grid_extent(const cell_run *run, const cell_op *op, int axis, uint32_t *extent) {
    int64_t limit = axis == 0 ? 2147483647 : 65535, value;
    int32_t cluster = run->desc->kernels[op->u.kernel.kernel].cluster;
    limit -= axis == 0 && cluster > 1 ? limit % cluster : 0;
    cell_status status = cell_run_eval(run, op->u.kernel.grid[axis], 1, &value);
    if (status != CELL_OK)
        return status;
    if (value < 0)
        return wrong_plan(run, op->name, "a negative grid");
    *extent = (uint32_t)(value < limit ? value : limit);
    return CELL_OK;
}

static cell_status kernel_args(const cell_run *run, const cell_op *op, cell_kernel_args *args) {
    const cell_kernel_op *kernel = &op->u.kernel;
    if (kernel->n_refs > CELL_MAX_PTRS)
        return wrong_plan(run, op->name, "more pointers than a kernel takes");
    for (int i = 0; i < kernel->n_refs; i++) {
        Place place = { 0 };
        cell_status status = locate(run, op->name, &kernel->refs[i], &place);
        if (status != CELL_OK)
            return status;
        int unread =
            !run->text && kernel->wanted && kernel->wanted[i] && !any_given(run, kernel->wanted[i]);
        args->ptr[i] = unread ? NULL : place.at;
        if (run->text)
            print_place(run, &place);
    }
    for (int i = 0; i < run->desc->n_sizes; i++)
        args->size[i] = run->sizes[i];
    args->flags = run->flags;
    args->slots = run->slots ? run->slots->rows : NULL;
    return cell_run_eval(run, kernel->t, run->n_loops ? run->loop[run->n_loops - 1] : 0, &args->t);
}

/* Items are not cut to what hardware takes. */
static cell_status cpu_launch(const cell_run *run, const cell_op *op, cell_launch *launch)
{
    int64_t scratch = 0;
    cell_status status = cell_run_eval(run, op->u.kernel.grid[0], 1, &launch->items);
    if (status == CELL_OK)
        status = cell_run_eval(run, op->u.kernel.grid[1], 1, &launch->grain);
    if (status == CELL_OK)
        status = cell_run_eval(run, launch->kernel->smem, 0, &scratch);
    if (status == CELL_OK && (launch->items < 0 || launch->grain < 1 || scratch < 0))
        return wrong_plan(run, op->name, "a negative grid");
    launch->grid[0] = launch->items > 0;
    launch->grid[1] = launch->grid[2] = 1;
    if (status == CELL_OK && scratch > PTRDIFF_MAX)
        return cell_fail(run->err, CELL_OUT_OF_MEMORY, "%s: out of memory: %lld bytes for each thread",
                         op->name, (long long)scratch);
    launch->smem = (size_t)scratch;
    return status;
}

static cell_status kernel_launch(const cell_run *run, const cell_op *op, cell_launch *launch) {
    int index = op->u.kernel.kernel;
    int64_t smem;
    if (index < 0 || index >= run->desc->n_kernels)
        return wrong_plan(run, op->name, "no such kernel");
    launch->kernel = &run->desc->kernels[index];
    if (launch->kernel->code)
        return cpu_launch(run, op, launch);
    for (int axis = 0; axis < 3; axis++) {
        cell_status status = grid_extent(run, op, axis, &launch->grid[axis]);
        if (status != CELL_OK)
            return status;
    }
    int64_t threads;
    cell_status status = cell_run_eval(run, launch->kernel->smem, 0, &smem);
    if (status == CELL_OK && smem < 0)
        return wrong_plan(run, op->name, "negative shared memory");
    launch->smem = (size_t)smem;
    if (status == CELL_OK)
        status = cell_run_eval(run, launch->kernel->block, launch->kernel->threads, &threads);
    if (status == CELL_OK && launch->kernel->block &&
        (threads < 32 || threads > launch->kernel->threads || threads % 32))
        return wrong_plan(run, op->name, "a block of more threads than the kernel takes, or of no whole warps");
    if (status == CELL_OK)
        launch->threads = (int32_t)threads;
    return status;
}

static cell_status run_kernel(const cell_run *run, const cell_op *op) {
    cell_kernel_args args;
    memset(&args, 0, sizeof args);
    cell_launch launch = {.args = &args};
    cell_status status = kernel_launch(run, op, &launch);
    if (status == CELL_OK && run->text && launch.kernel->code)
        cell_text_add(run->text, "kernel %s items=%lld grain=%lld scratch=%zu:", launch.kernel->name,
                      (long long)launch.items, (long long)launch.grain, launch.smem);
    else if (status == CELL_OK && run->text)
        cell_text_add(run->text, "kernel %s grid=%u,%u,%u threads=%d smem=%zu%s:", launch.kernel->name,
                      launch.grid[0], launch.grid[1], launch.grid[2], launch.threads, launch.smem,
                      launch.kernel->cooperative ? " cooperative" : "");
    if (status == CELL_OK)
        status = kernel_args(run, op, &args);
    if (status != CELL_OK || run->text)
        return status;
    if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0)
        return CELL_OK;
    return run->ctx->backend->launch(run->ctx->self, &launch, run->err);
}

static cell_status memory_place(const cell_run *run, const cell_op *op, const cell_ref *ref, int64_t bytes,
                                Place *place) {
    cell_status status = locate(run, op->name, ref, place);
    if (status != CELL_OK)
        return status;
    if (bytes < 0 || (place->room >= 0 && bytes > place->room * (int64_t)cell_dtype_bytes(place->dtype)))
        return wrong_plan(run, op->name, "leaves its buffer");
    if (run->text)
        print_place(run, place);
    else if (!place->at && bytes > 0)
        return wrong_plan(run, op->name, "its buffer is absent");
    return CELL_OK;
}

static cell_status run_memory(const cell_run *run, const cell_op *op) {
    const cell_memory_op *memory = &op->u.memory;
    int is_copy = op->kind == CELL_OP_COPY;
    int64_t bytes;
    Place to, from;
    cell_status status = cell_run_eval(run, memory->bytes, 1, &bytes);
    if (status == CELL_OK && run->text)
        cell_text_add(run->text, "%s %lld bytes:", is_copy ? "copy" : "fill", (long long)bytes);
    if (status == CELL_OK)
        status = memory_place(run, op, &memory->to, bytes, &to);
    if (status == CELL_OK && is_copy)
        status = memory_place(run, op, &memory->from, bytes, &from);
    if (status != CELL_OK || run->text || bytes == 0)
        return status;
    const cell_backend *backend = run->ctx->backend;
    if (!is_copy)
        return backend->fill(run->ctx->self, to.at, memory->byte, (size_t)bytes, run->err);
    if (from.at == to.at) /* an initial and a final state in one buffer */
        return CELL_OK;
    return backend->copy(run->ctx->self, to.at, from.at, (size_t)bytes, run->err);
}

static int64_t n_turns(int64_t from, int64_t to, int64_t step) {
    int64_t way = step > 0 ? to - from : from - to, each = step > 0 ? step : -step;
    return way > 0 ? (way + each - 1) / each : 0;
}

/* The launches of a loop's kernels; n: -1 where one of them is something else, or has places that change with the
 * turn. */
static cell_status strand_launches(const cell_run *run, int at, cell_launch *launches, cell_kernel_args *args, int *n) {
    int end = at + 1 + run->plan->ops[at].u.loop.n_ops;
    *n = 0;
    for (int i = at + 1; i < end; i++) {
        const cell_op *op = &run->plan->ops[i];
        int here = 0;
        cell_status status = op->kind == CELL_OP_KERNEL && !op->u.kernel.t ? applies(run, op, &here) : CELL_OK;
        int changes = op->kind != CELL_OP_KERNEL || op->u.kernel.t || *n == CELL_MAX_STRANDED;
        for (int k = 0; !changes && k < op->u.kernel.n_refs; k++)
            changes = op->u.kernel.refs[k].offset != NULL;
        if (status != CELL_OK || changes) {
            *n = -1;
            return status;
        }
        if (!here)
            continue;
        memset(&args[*n], 0, sizeof *args);
        launches[*n] = (cell_launch){ .args = &args[*n] };
        status = kernel_launch(run, op, &launches[*n]);
        if (status == CELL_OK)
            status = kernel_args(run, op, &args[*n]);
        if (status != CELL_OK)
            return status;
        if (launches[*n].items > 0)
            ++*n;
    }
    return CELL_OK;
}

/* The whole loop at once, where its kernels allow it; *done: it is. */
static cell_status run_strands(cell_run *run, int at, cell_strands *of, int *done) {
    const cell_loop_op *loop = &run->plan->ops[at].u.loop;
    cell_launch launches[CELL_MAX_STRANDED];
    cell_kernel_args *args;
    *done = 0;
    cell_status status = cell_run_eval(run, loop->strands, 0, &of->strands);
    if (status != CELL_OK || of->strands < 1)
        return status;
    args = malloc(sizeof *args * CELL_MAX_STRANDED);
    if (!args)
        return cell_fail(run->err, CELL_OUT_OF_MEMORY, "out of memory for the steps");
    status = strand_launches(run, at, launches, args, &of->n);
    of->launches = launches;
    for (int i = 0; status == CELL_OK && i < of->n; i++)
        if (launches[i].items % of->strands)
            status = wrong_plan(run, run->plan->ops[at].name, "a kernel whose items are not in equal strands");
    if (status == CELL_OK && of->n >= 0) {
        *done = 1;
        status = of->n ? run->ctx->backend->strands(run->ctx->self, of, run->err) : CELL_OK;
    }
    of->launches = NULL;
    free(args);
    return status;
}

cell_status cell_run_loop(cell_run *run, int at) {
    const cell_op *op = &run->plan->ops[at];
    const cell_loop_op *loop = &op->u.loop;
    int64_t from = 0, to = 0;
    if (run->n_loops == CELL_MAX_LOOPS || loop->step == 0)
        return wrong_plan(run, op->name, loop->step ? "loops nested too deep" : "a loop with step 0");
    cell_status status = cell_run_eval(run, loop->from, 0, &from);
    if (status == CELL_OK)
        status = cell_run_eval(run, loop->to, 0, &to);
    if (status != CELL_OK)
        return status;
    int level = run->n_loops;
    if (run->text)
        cell_text_add(run->text, "loop from %lld to %lld step %d%s; the first time:\n", (long long)from,
                      (long long)to, loop->step, op->flags & CELL_OP_GRAPH ? " as a graph" : "");
    run->n_loops = level + 1;
    const cell_backend *backend = run->text ? NULL : run->ctx->backend;
    if (backend && backend->strands && loop->strands && run->ctx->verbose < 2 && n_turns(from, to, loop->step) > 1) {
        cell_strands of = { .from = from, .to = to, .step = loop->step };
        int done;
        run->loop[level] = from;
        status = run_strands(run, at, &of, &done);
        if (done || status != CELL_OK) {
            run->n_loops = level;
            return status;
        }
    }
    if (backend && backend->loop)
        backend->loop(run->ctx->self, 1);
    for (int64_t i = from; status == CELL_OK && (loop->step > 0 ? i < to : i > to); i += loop->step) {
        run->loop[level] = i;
        status = cell_run_ops(run, at + 1, loop->n_ops);
        if (run->text)
            break;
    }
    if (backend && backend->loop)
        backend->loop(run->ctx->self, 0);
    run->n_loops = level;
    return status;
}

/* Puts the cell and the operation before a message that does not name them. */
static cell_status name_failure(const cell_run *run, const cell_op *op, cell_status status) {
    cell_error plain = *run->err;
    if (strncmp(plain.text, run->desc->key, strlen(run->desc->key)) == 0)
        return status;
    return cell_fail(run->err, status, "%.128s: %.64s: %.800s", run->desc->key, op->name, plain.text);
}

/* Waits for one operation and says how long it took, so that a fault on the device is seen where it happened.
 */
static cell_status finish_aloud(const cell_run *run, const cell_op *op, int at,
                                const struct timespec *start) {
    struct timespec now;
    cell_status status = run->ctx->backend->sync(run->ctx->self, run->err);
    timespec_get(&now, TIME_UTC);
    double us = (double)(now.tv_sec - start->tv_sec) * 1e6 + (double)(now.tv_nsec - start->tv_nsec) * 1e-3;
    fprintf(stderr, "cell: %s: %*s%d %s: %.1f us%s\n", run->desc->key, 2 * run->n_loops, "", at, op->name, us,
            status == CELL_OK ? "" : ": failed");
    return status;
}

static cell_status run_simple(const cell_run *run, const cell_op *op) {
    switch ((cell_op_kind)op->kind) {
    case CELL_OP_GEMM:
        return run_gemm(run, op);
    case CELL_OP_KERNEL:
        return run_kernel(run, op);
    case CELL_OP_FILL:
    case CELL_OP_COPY:
        return run_memory(run, op);
    default:
        return wrong_plan(run, op->name, "unknown operation");
    }
}

/* Of forms only the one that is taken; a text has all of them. */
static cell_status run_forms(cell_run *run, int at) {
    int64_t number;
    int taken;
    if (run->text) {
        cell_text_add(run->text, "the first that holds of:\n");
        return cell_run_ops(run, at + 1, run->plan->ops[at].u.list.n_ops);
    }
    cell_scope scope = scope_of(run);
    cell_status status = cell_form_taken(&scope, at, &number, &taken, run->err);
    return status != CELL_OK || taken < 0
               ? status
               : cell_run_ops(run, taken, cell_op_span(run->plan, taken, run->plan->n_ops));
}

/* ---- products together */

typedef struct Together {
    cell_gemm_call calls[CELL_MAX_TOGETHER];
    int n;
} Together;

static int same_matrix(const cell_matrix *a, const cell_matrix *b)
{
    return a->dtype == b->dtype && a->row_stride == b->row_stride && a->col_stride == b->col_stride;
}

/* Products that one call may take: the pointers of a batch must be such that whole vectors begin there. */
static int goes_together(const cell_gemm_call *call)
{
    return call->batch == 1 && call->k > 0 && call->alpha != 0 &&
           ((uintptr_t)call->a.data | (uintptr_t)call->b.data | (uintptr_t)call->c.data) % 16 == 0;
}

static int are_alike(const cell_gemm_call *a, const cell_gemm_call *b)
{
    return goes_together(a) && goes_together(b) && a->m == b->m && a->n == b->n && a->k == b->k &&
           a->alpha == b->alpha && a->beta == b->beta && same_matrix(&a->a, &b->a) &&
           same_matrix(&a->b, &b->b) && same_matrix(&a->c, &b->c);
}

/* Products that are alike stand side by side then; the first of those. */
static void sort_alike(Together *all)
{
    for (int i = 0; i < all->n; i++) {
        int next = i + 1;
        for (int k = next; k < all->n; k++) {
            if (!are_alike(&all->calls[i], &all->calls[k]))
                continue;
            cell_gemm_call found = all->calls[k];
            memmove(&all->calls[next + 1], &all->calls[next], sizeof found * (size_t)(k - next));
            all->calls[next++] = found;
        }
        i = next - 1;
    }
}

/* How many from the i-th on go as one. */
static int count_alike(const Together *all, int i)
{
    int n = 1;
    while (i + n < all->n && are_alike(&all->calls[i], &all->calls[i + n]))
        n++;
    return n;
}

/* ---- f32 products of few rows, by a kernel of the instance */

/* Y = X W: the extents, and what lies between rows. */
typedef struct Few {
    int64_t rows, outs, terms, x_pitch, w_pitch, y_pitch;
    int across;   /* W lies by terms, not by outs */
    int swapped;  /* X is the call's B, and W its A */
} Few;

/* FEW_NUMBERS: of a matrix W that the kernels were measured to be faster with
 * (bench/results/h200-few-rows.txt). It depends on the sizes of one product only, so that it has the same
 * bits by itself as beside others. */
enum { FEW_NUMBERS = 512 * 512 };

static int is_few(const cell_gemm_call *call, Few *to)
{
    const cell_matrix *a = &call->a, *b = &call->b, *c = &call->c;
    const int swapped = call->n < call->m;
    const cell_matrix *w = swapped ? a : b;
    *to = (Few){ .rows = swapped ? call->n : call->m,
                 .outs = swapped ? call->m : call->n,
                 .terms = call->k,
                 .x_pitch = swapped ? b->col_stride : a->row_stride,
                 .y_pitch = swapped ? c->col_stride : c->row_stride,
                 .swapped = swapped };
    const int64_t x_step = swapped ? b->row_stride : a->col_stride,
                  y_step = swapped ? c->row_stride : c->col_stride;
    const int64_t of_term = swapped ? w->col_stride : w->row_stride,
                  of_out = swapped ? w->row_stride : w->col_stride;
    to->across = of_out == 1;
    to->w_pitch = to->across ? of_term : of_out;
    return a->dtype == CELL_F32 && b->dtype == CELL_F32 && c->dtype == CELL_F32 && goes_together(call) &&
           call->alpha == 1 && call->beta == 0 && !call->a_scale && !call->b_scale &&
           to->rows >= CELL_FEW_ROWS_LEAST && to->rows <= CELL_FEW_ROWS_MOST &&
           to->outs % CELL_FEW_OUTS == 0 && to->terms % CELL_FEW_TERMS == 0 &&
           to->outs * to->terms >= FEW_NUMBERS && x_step == 1 && y_step == 1 &&
           (to->across || of_term == 1) && (to->x_pitch | to->w_pitch) % 4 == 0;
}

static int takes_few(const cell_op *op, const cell_gemm_call *call)
{
    Few few;
    return op->u.products.few && is_few(call, &few);
}

/* Their kernels: for few rows and for more, of W by outs and by terms. */
static cell_status few_kernel(const cell_run *run, const cell_op *op, int number, cell_launch *launch)
{
    const int index = op->u.products.few - 1 + number, rows = number < 2 ? 16 : CELL_FEW_ROWS_MOST;
    if (index < 0 || index >= run->desc->n_kernels)
        return wrong_plan(run, op->name, "no such kernel");
    *launch = (cell_launch){ .kernel = &run->desc->kernels[index],
                             .grid = { 1, 1, 1 },
                             .threads = CELL_FEW_THREADS,
                             .smem = CELL_FEW_BYTES(rows, number % 2) };
    return CELL_OK;
}

static cell_status run_few(const cell_run *run, const cell_op *op, const cell_gemm_call *calls, int n)
{
    cell_kernel_args args;
    cell_launch launch = { 0 };
    Few few;
    memset(&args, 0, sizeof args);
    is_few(calls, &few);
    const int64_t sizes[] = { few.rows, few.outs, few.terms, few.x_pitch, few.w_pitch, few.y_pitch };
    for (int i = 0; i < 6; i++)
        args.size[i] = sizes[i];
    for (int i = 0; i < n; i++) {
        args.ptr[i] = few.swapped ? calls[i].b.data : calls[i].a.data;
        args.ptr[n + i] = few.swapped ? calls[i].a.data : calls[i].b.data;
        args.ptr[2 * n + i] = calls[i].c.data;
    }
    args.t = n;
    cell_status status = few_kernel(run, op, (few.rows > 16 ? 2 : 0) + few.across, &launch);
    launch.grid[0] = (uint32_t)(n * few.outs / CELL_FEW_OUTS);
    launch.args = &args;
    return status == CELL_OK ? run->ctx->backend->launch(run->ctx->self, &launch, run->err) : status;
}

/* Of each call of several products: where all its A are, all B, all C. */
static cell_status write_places(const cell_run *run, const cell_op *op, const Together *all, void **places)
{
    const cell_products_op *products = &op->u.products;
    cell_kernel_args args;
    Place place = { 0 };
    int n = 1;
    memset(&args, 0, sizeof args);
    for (int i = 0, count; i < all->n; i += count) {
        count = count_alike(all, i);
        for (int k = 0; count > 1 && !takes_few(op, &all->calls[i]) && k < 3 * count; k++) {
            const cell_gemm_call *call = &all->calls[i + k % count];
            args.ptr[n++] = k < count ? call->a.data : k < 2 * count ? call->b.data : call->c.data;
        }
    }
    if (n == 1)
        return CELL_OK;
    cell_status status = locate(run, op->name, &products->places, &place);
    if (status != CELL_OK)
        return status;
    if (products->kernel < 0 || products->kernel >= run->desc->n_kernels)
        return wrong_plan(run, op->name, "no such kernel");
    if (place.room >= 0 &&
        place.room * (int64_t)cell_dtype_bytes(place.dtype) < (n - 1) * (int64_t)sizeof(void *))
        return wrong_plan(run, op->name, "places that leave their buffer");
    *places = args.ptr[0] = place.at;
    args.t = n - 1;
    const cell_kernel *kernel = &run->desc->kernels[products->kernel];
    cell_launch launch = { .kernel = kernel, .grid = { 1, 1, 1 }, .threads = kernel->threads, .args = &args };
    return run->ctx->backend->launch(run->ctx->self, &launch, run->err);
}

/* What stands between the products is run, and they are left. */
static cell_status gather(cell_run *run, int first, int count, Together *all)
{
    int end = first + count;
    for (int at = first; at < end;) {
        const cell_op *op = &run->plan->ops[at];
        int here = 0, taken = at, length = cell_op_span(run->plan, at, end);
        int64_t number;
        if (length == 0)
            return wrong_plan(run, op->name, "an operation that holds others is longer than the plan");
        cell_status status = applies(run, op, &here);
        cell_scope scope = scope_of(run);
        if (status == CELL_OK && here && op->kind == CELL_OP_FORMS)
            status = cell_form_taken(&scope, at, &number, &taken, run->err);
        if (status == CELL_OK && here && taken >= 0) {
            op = &run->plan->ops[taken];
            if (taken != at)
                status = applies(run, op, &here);
        }
        if (status == CELL_OK && here && taken >= 0) {
            if (op->kind == CELL_OP_GEMM && all->n == CELL_MAX_TOGETHER)
                return wrong_plan(run, op->name, "too many products together");
            status = op->kind == CELL_OP_GEMM ? product_of(run, op, &all->calls[all->n], &here)
                                              : cell_run_ops(run, taken, cell_op_span(run->plan, taken, end));
            all->n += op->kind == CELL_OP_GEMM && status == CELL_OK && here;
        }
        if (status != CELL_OK)
            return name_failure(run, op, status);
        at += length;
    }
    return CELL_OK;
}

static cell_status run_together(cell_run *run, int at)
{
    const cell_op *op = &run->plan->ops[at];
    const cell_backend *backend = run->ctx->backend;
    Together all = { .n = 0 };
    void *places = NULL;
    cell_status status = gather(run, at + 1, op->u.products.n_ops, &all);
    sort_alike(&all);
    if (status == CELL_OK)
        status = write_places(run, op, &all, &places);
    for (int i = 0, count; status == CELL_OK && i < all.n; i += count) {
        count = count_alike(&all, i);
        if (takes_few(op, &all.calls[i])) {
            status = run_few(run, op, &all.calls[i], count);
            continue;
        }
        status = count == 1 ? backend->gemm(run->ctx->self, &all.calls[i], run->err)
                            : backend->gemms(run->ctx->self, &all.calls[i], count, places, run->err);
        places = count == 1 ? places : (char *)places + 3 * (size_t)count * sizeof(void *);
    }
    return status;
}

static cell_status run_products(cell_run *run, int at)
{
    const cell_op *op = &run->plan->ops[at];
    int64_t together = 0;
    if (run->text) {
        cell_text_add(run->text, "%d operations, products of equal sizes together:\n", op->u.products.n_ops);
        return cell_run_ops(run, at + 1, op->u.products.n_ops);
    }
    cell_status status =
        run->ctx->backend->gemms ? cell_run_eval(run, op->u.products.together, 1, &together) : CELL_OK;
    if (status != CELL_OK || !together)
        return status != CELL_OK ? status : cell_run_ops(run, at + 1, op->u.products.n_ops);
    return run_together(run, at);
}

static cell_status run_list(cell_run *run, int at) {
    if (run->text)
        cell_text_add(run->text, "%d operations:\n", run->plan->ops[at].u.list.n_ops);
    return cell_run_ops(run, at + 1, run->plan->ops[at].u.list.n_ops);
}

static cell_status run_one(cell_run *run, int at) {
    const cell_op *op = &run->plan->ops[at];
    struct timespec start;
    int aloud = run->ctx && run->ctx->verbose > 1 && !run->recording;
    if (run->text)
        cell_text_add(run->text, "%*s%d %s: ", 2 * run->n_loops, "", at, op->name);
    if (op->kind == CELL_OP_LOOP)
        return op->flags & CELL_OP_GRAPH ? cell_run_loop_graph(run, at) : cell_run_loop(run, at);
    if (op->kind == CELL_OP_FORMS)
        return run_forms(run, at);
    if (op->kind == CELL_OP_LIST)
        return run_list(run, at);
    if (op->kind == CELL_OP_PRODUCTS && (run->text || !aloud))
        return run_products(run, at);
    if (aloud)
        timespec_get(&start, TIME_UTC);
    const cell_backend *shows = run->text ? NULL : run->ctx->backend;
    if (shows && shows->range)
        shows->range(run->ctx->self, op->name);
    cell_status status = op->kind == CELL_OP_PRODUCTS ? run_products(run, at) : run_simple(run, op);
    if (shows && shows->range)
        shows->range(run->ctx->self, NULL);
    if (status == CELL_OK && aloud)
        status = finish_aloud(run, op, at, &start);
    if (run->text)
        cell_text_add(run->text, "\n");
    return status == CELL_OK ? status : name_failure(run, op, status);
}

cell_status cell_run_ops(cell_run *run, int first, int count) {
    int end = first + count;
    for (int at = first; at < end;) {
        int here = 0, length = cell_op_span(run->plan, at, end);
        if (length == 0)
            return wrong_plan(run, run->plan->ops[at].name,
                              "an operation that holds others is longer than the plan");
        cell_status status = applies(run, &run->plan->ops[at], &here);
        if (status == CELL_OK && here)
            status = run_one(run, at);
        if (status != CELL_OK)
            return status;
        at += length;
    }
    return CELL_OK;
}

static cell_status prepare_one(const cell_run *run, const cell_op *op) {
    cell_launch launch = { 0 };
    cell_status status = kernel_launch(run, op, &launch);
    if (status != CELL_OK || launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0)
        return status;
    status = run->ctx->backend->prepare(run->ctx->self, launch.kernel, launch.smem, run->err);
    if (status != CELL_NO_IMAGE || !run->desc->archs)
        return status;
    cell_error plain = *run->err;
    return cell_fail(run->err, status, "%.700s; it was built for --archs \"%.128s\"", plain.text, run->desc->archs);
}

/* The kernel that writes where matrices are, where some go together, and those for few rows. */
static cell_status prepare_places(cell_run *run, const cell_op *op)
{
    int index = op->u.products.kernel;
    if (index < 0 || index >= run->desc->n_kernels)
        return wrong_plan(run, op->name, "no such kernel");
    if (!run->ctx->backend->gemms)
        return CELL_OK;
    cell_status status = run->ctx->backend->prepare(run->ctx->self, &run->desc->kernels[index], 0, run->err);
    for (int i = 0; op->u.products.few && i < CELL_FEW_KERNELS && status == CELL_OK; i++) {
        cell_launch launch = { 0 };
        status = few_kernel(run, op, i, &launch);
        if (status == CELL_OK)
            status = run->ctx->backend->prepare(run->ctx->self, launch.kernel, launch.smem, run->err);
    }
    return status;
}

static cell_status prepare_range(cell_run *run, int first, int count);

static cell_status prepare_forms(cell_run *run, int at) {
    int64_t number;
    int taken;
    cell_scope scope = scope_of(run);
    cell_status status = cell_form_taken(&scope, at, &number, &taken, run->err);
    return status != CELL_OK || taken < 0
               ? status
               : prepare_range(run, taken, cell_op_span(run->plan, taken, run->plan->n_ops));
}

/* Inside loops, conditions and grids may use variables that have no value yet; the first value stands for
 * all. */
static cell_status prepare_range(cell_run *run, int first, int count) {
    int level = run->n_loops;
    for (int at = first; at < first + count;) {
        const cell_op *op = &run->plan->ops[at];
        int here = 0, length = cell_op_span(run->plan, at, first + count);
        cell_status status = length ? applies(run, op, &here)
                                    : wrong_plan(run, op->name,
                                                 "an operation that holds others is longer than the plan");
        if (status == CELL_OK && here && op->kind == CELL_OP_KERNEL)
            status = prepare_one(run, op);
        if (status == CELL_OK && here && op->kind == CELL_OP_FORMS)
            status = prepare_forms(run, at);
        if (status == CELL_OK && here && (op->kind == CELL_OP_LIST || op->kind == CELL_OP_PRODUCTS))
            status = prepare_range(run, at + 1, length - 1);
        if (status == CELL_OK && here && op->kind == CELL_OP_PRODUCTS)
            status = prepare_places(run, op);
        if (status == CELL_OK && here && op->kind == CELL_OP_LOOP && level < CELL_MAX_LOOPS) {
            status = cell_run_eval(run, op->u.loop.from, 0, &run->loop[level]);
            run->n_loops = level + 1;
            if (status == CELL_OK)
                status = prepare_range(run, at + 1, op->u.loop.n_ops);
            run->n_loops = level;
        }
        if (status != CELL_OK)
            return status;
        at += length;
    }
    return CELL_OK;
}

cell_status cell_run_prepare(cell_run *run) {
    return run->ctx->backend->prepare ? prepare_range(run, 0, run->plan->n_ops) : CELL_OK;
}
