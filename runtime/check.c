/* What a call must satisfy before anything is written. In: a description, sizes, arguments, memory. Out:
 * CELL_OK, or a status and a message with the argument's name, what it was and what was wanted. Guaranteed:
 * nothing is written. */
#include "context.h"

#include <stdio.h>

const char *cell_arg_name(const cell_desc *desc, const cell_arg *arg, char *text, size_t bytes) {
    static const char *const prefix[] = {"", "final ", "gradient of ", "cotangent of ",
                                         "cotangent of final "};
    const cell_tensor *tensor = &desc->tensors[arg->tensor];
    const char *initial =
        tensor->kind == CELL_STATE && arg->role <= CELL_ROLE_D_VALUE && arg->role != CELL_ROLE_FINAL
            ? "initial "
            : "";
    snprintf(text, bytes, "%s%s%s", arg->role <= CELL_ROLE_D_FINAL ? prefix[arg->role] : "", initial,
             tensor->name);
    return text;
}

int cell_arg_written(const cell_desc *desc, const cell_arg *arg) {
    if (arg->role == CELL_ROLE_VALUE)
        return desc->tensors[arg->tensor].kind == CELL_OUTPUT;
    return arg->role == CELL_ROLE_FINAL || (arg->role == CELL_ROLE_D_VALUE && !(arg->flags & CELL_ARG_IGNORED));
}

static cell_status check_desc(const cell_desc *desc, cell_error *err) {
    if (!desc)
        return cell_fail(err, CELL_NULL_POINTER, "the cell's description is null");
    if (desc->plan_version != CELL_PLAN_VERSION)
        return cell_fail(err, CELL_UNSUPPORTED,
                         "the cell was generated for plan version %d, this runtime has %d: "
                         "generate it again",
                         desc->plan_version, CELL_PLAN_VERSION);
    if (desc->n_sizes < CELL_SIZE_DIM0 + 1 || desc->n_sizes > CELL_MAX_SIZES)
        return cell_fail(err, CELL_UNSUPPORTED, "%s: %d sizes; wanted 3 to %d", desc->key, desc->n_sizes,
                         CELL_MAX_SIZES);
    if (desc->n_forward_args > CELL_MAX_ARGS || desc->n_backward_args > CELL_MAX_ARGS)
        return cell_fail(err, CELL_UNSUPPORTED, "%s: more than %d arguments", desc->key, CELL_MAX_ARGS);
    return CELL_OK;
}

/* B, T and t0 may be 0, and so may the rows of packed sequences, and the room for steps, which must be t0 + T;
 * the bounds of indices are proved for dims from 1 up, and without steps nothing is read. */
static cell_status check_size(const cell_desc *desc, int i, int64_t value, cell_error *err) {
    int64_t least =
        i < CELL_SIZE_DIM0 || i == desc->n_sizes - 1 || i == desc->room || i == desc->total ? 0 : 1;
    if (value >= least)
        return CELL_OK;
    return cell_fail(err, CELL_BAD_SIZE, "%s: %s is %lld; wanted %lld or more", desc->key,
                     desc->size_names[i], (long long)value, (long long)least);
}

void cell_list_sizes(const cell_desc *desc, const int64_t *sizes, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < desc->n_sizes && used < bytes; i++) {
        int wrote = snprintf(text + used, bytes - used, "%s%s=%lld", i ? " " : "", desc->size_names[i],
                             (long long)sizes[i]);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

static cell_status check_condition(const cell_desc *desc, const cell_check *check, const int64_t *sizes,
                                   cell_error *err) {
    cell_scope scope = {.sizes = sizes, .n_sizes = desc->n_sizes};
    int64_t value;
    cell_status status = cell_eval_in(&scope, check->value, 0, &value, err);
    if (status != CELL_OK || value >= 0)
        return status;
    char text[256];
    cell_list_sizes(desc, sizes, text, sizeof text);
    return cell_fail(err, CELL_BAD_SIZE, "%s: %s (%s)", desc->key, check->message, text);
}

cell_status cell_check_sizes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                             cell_error *err) {
    cell_status status = ctx ? cell_context_check(ctx) : CELL_OK;
    if (status == CELL_OK)
        status = check_desc(desc, err);
    if (status == CELL_OK && !sizes)
        status = cell_fail(err, CELL_NULL_POINTER, "%s: the sizes are null, or the arguments are", desc->key);
    for (int i = 0; status == CELL_OK && i < desc->n_sizes; i++)
        status = check_size(desc, i, sizes[i], err);
    for (int i = 0; status == CELL_OK && i < desc->n_checks; i++)
        status = check_condition(desc, &desc->checks[i], sizes, err);
    return status;
}

/* A stretch of memory that a call uses. */
typedef struct Span {
    const char *start;
    size_t bytes;
    const cell_arg *arg; /* NULL: workspace or reserve */
    const char *memory;  /* which of the two */
    int written;
} Span;

typedef struct Name {
    char text[160];
} Name;

/* Names are made for messages only: a call checks dozens of arguments, and nearly always all are right. */
static const char *name_of(const cell_desc *desc, const Span *span, Name *name) {
    return span->arg ? cell_arg_name(desc, span->arg, name->text, sizeof name->text) : span->memory;
}

static cell_status check_place(cell_context *ctx, const cell_desc *desc, const Span *span, size_t alignment,
                               cell_error *err) {
    Name name;
    if ((uintptr_t)span->start % alignment)
        return cell_fail(err, CELL_MISALIGNED, "%s: %s is at %p; wanted a multiple of %zu bytes", desc->key,
                         name_of(desc, span, &name), (const void *)span->start, alignment);
    const cell_backend *backend = ctx->backend;
    if (!backend->check_pointer || backend->check_pointer(ctx->self, span->start, "", NULL) == CELL_OK)
        return CELL_OK;
    char what[320];
    snprintf(what, sizeof what, "%.128s: %s", desc->key, name_of(desc, span, &name));
    return backend->check_pointer(ctx->self, span->start, what, err);
}

/* Kernels of GPUs load vectors of 16 bytes, and what they share lies apart by whole lines of memory. C for
 * the CPU says nothing of how its elements lie. */
static int is_plain(const cell_context *ctx)
{
    return !ctx->backend->launch || ctx->backend->kind == CELL_BACKEND_CPU;
}

static size_t alignment_of(const cell_context *ctx, const cell_desc *desc, cell_dtype dtype) {
    if (is_plain(ctx))
        return cell_dtype_bytes(dtype);
    return desc->pointer_alignment > 0 ? (size_t)desc->pointer_alignment : 16;
}

static cell_status check_arg(cell_context *ctx, const cell_desc *desc, const cell_arg *arg,
                             const int64_t *sizes, void *pointer, Span *span, cell_error *err) {
    int64_t elements;
    Name name;
    size_t element = cell_dtype_bytes((cell_dtype)arg->dtype);
    cell_status status = cell_arg_count(desc, arg, sizes, &elements, err);
    if (status != CELL_OK)
        return status;
    *span = (Span){.start = pointer, .arg = arg, .written = cell_arg_written(desc, arg)};
    if (elements > PTRDIFF_MAX / 8)
        return cell_fail(err, CELL_BAD_SIZE, "%s: %s has %lld elements, more than can be addressed",
                         desc->key, name_of(desc, span, &name), (long long)elements);
    span->bytes = pointer ? (size_t)elements * element : 0;
    if (elements == 0)
        return CELL_OK;
    if (!pointer && !(arg->flags & CELL_ARG_OPTIONAL))
        return cell_fail(err, CELL_NULL_POINTER, "%s: %s is null; wanted %lld elements of %s", desc->key,
                         name_of(desc, span, &name), (long long)elements,
                         cell_dtype_name((cell_dtype)arg->dtype));
    if (!pointer && arg->flags & CELL_ARG_PAST && sizes[desc->n_sizes - 1] > 0)
        return cell_fail(err, CELL_NULL_POINTER, "%s: %s is null, but t0 is %lld: it has the steps before",
                         desc->key, name_of(desc, span, &name), (long long)sizes[desc->n_sizes - 1]);
    if (!pointer)
        return CELL_OK;
    return check_place(ctx, desc, span, alignment_of(ctx, desc, (cell_dtype)arg->dtype), err);
}

static cell_status check_memory(cell_context *ctx, const cell_desc *desc, const char *name, void *pointer,
                                size_t bytes, size_t need, Span *span, cell_error *err) {
    int used = pointer && need > 0;
    *span = (Span){.start = pointer, .bytes = used ? bytes : 0, .memory = name, .written = 1};
    if (!used)
        return CELL_OK;
    if (bytes < need)
        return cell_fail(err, CELL_TOO_SMALL, "%s: %s has %zu bytes; wanted %zu", desc->key, name, bytes,
                         need);
    return check_place(ctx, desc, span, is_plain(ctx) ? 16 : CELL_ALIGNMENT, err);
}

static int overlap(const Span *a, const Span *b) {
    uintptr_t x = (uintptr_t)a->start, y = (uintptr_t)b->start;
    return a->bytes && b->bytes && x < y + b->bytes && y < x + a->bytes;
}

/* Initial and final value of one state may be the same buffer, nothing else. */
static int may_share(const Span *a, const Span *b) {
    return a->arg && b->arg && a->arg->tensor == b->arg->tensor && a->start == b->start &&
           a->arg->role == CELL_ROLE_VALUE && b->arg->role == CELL_ROLE_FINAL;
}

static cell_status check_overlap(const cell_desc *desc, const Span *spans, int n_spans, cell_error *err) {
    for (int i = 0; i < n_spans; i++) {
        for (int j = i + 1; j < n_spans; j++) {
            const Span *a = &spans[i], *b = &spans[j];
            Name first, second;
            if ((a->written || b->written) && overlap(a, b) && !may_share(a, b))
                return cell_fail(err, CELL_BAD_ARGUMENT, "%s: %s and %s overlap in memory", desc->key,
                                 name_of(desc, a, &first), name_of(desc, b, &second));
        }
    }
    return CELL_OK;
}

/* How many steps each sequence has: 0 to T. Where kernels read them they are the GPU's, and not looked at. */
static cell_status check_lengths(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes,
                                 const void *pointer, cell_error *err) {
    const int32_t *lengths = pointer;
    if (!lengths || arg->role != CELL_ROLE_VALUE || desc->tensors[arg->tensor].kind != CELL_LENGTHS)
        return CELL_OK;
    for (int64_t b = 0; b < sizes[CELL_SIZE_B]; b++)
        if (lengths[b] < 0 || lengths[b] > sizes[CELL_SIZE_T])
            return cell_fail(err, CELL_BAD_ARGUMENT, "%s: %s[%lld] is %d; wanted 0 to T, which is %lld", desc->key,
                             desc->tensors[arg->tensor].name, (long long)b, (int)lengths[b],
                             (long long)sizes[CELL_SIZE_T]);
    return CELL_OK;
}

/* Where packed sequences begin: at 0, none before the one in front of it or longer than T, and the last ends with the rows. On a
 * device it is not looked at, as lengths are not. */
static cell_status check_starts(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes,
                                const void *pointer, cell_error *err)
{
    const int32_t *starts = pointer;
    const cell_tensor *tensor = &desc->tensors[arg->tensor];
    int64_t n = sizes[CELL_SIZE_B], total = desc->total ? sizes[desc->total] : 0;
    if (!starts || arg->role != CELL_ROLE_VALUE || tensor->kind != CELL_STARTS)
        return CELL_OK;
    for (int64_t b = 0; b < n; b++)
        if (starts[b + 1] < starts[b] || starts[b + 1] - starts[b] > sizes[CELL_SIZE_T])
            return cell_fail(err, CELL_BAD_ARGUMENT,
                             "%s: %s goes from %d to %d at %lld; wanted 0 to T more, which is %lld",
                             desc->key, tensor->name, (int)starts[b], (int)starts[b + 1], (long long)b,
                             (long long)sizes[CELL_SIZE_T]);
    if (starts[0] != 0 || starts[n] != total)
        return cell_fail(err, CELL_BAD_ARGUMENT,
                         "%s: %s goes from %d to %d; wanted 0 to total, which is %lld", desc->key,
                         tensor->name, (int)starts[0], (int)starts[n], (long long)total);
    return CELL_OK;
}

cell_status cell_check_args(cell_context *ctx, const cell_desc *desc, const cell_arg *list, int n_list,
                            const int64_t *sizes, void *const *args, const cell_memory *memory,
                            const size_t need[2], cell_error *err) {
    Span spans[CELL_MAX_ARGS + 2];
    if (!args && n_list > 0)
        return cell_fail(err, CELL_NULL_POINTER, "%s: the argument list is null", desc->key);
    cell_status status = CELL_OK;
    for (int i = 0; status == CELL_OK && i < n_list; i++)
        status = check_arg(ctx, desc, &list[i], sizes, args[i], &spans[i], err);
    if (status == CELL_OK)
        status = check_memory(ctx, desc, "workspace", memory->workspace, memory->workspace_bytes, need[0],
                              &spans[n_list], err);
    if (status == CELL_OK)
        status = check_memory(ctx, desc, "reserve", memory->reserve, memory->reserve_bytes, need[1],
                              &spans[n_list + 1], err);
    if (status == CELL_OK)
        status = check_overlap(desc, spans, n_list + 2, err);
    for (int i = 0; status == CELL_OK && is_plain(ctx) && i < n_list; i++)
        status = check_lengths(desc, &list[i], sizes, args[i], err);
    for (int i = 0; status == CELL_OK && is_plain(ctx) && i < n_list; i++)
        status = check_starts(desc, &list[i], sizes, args[i], err);
    return status;
}
