/* The calls of a generated library: sizes of memory, forward, backward, step, choice of an instance, and a
 * plan as text. In: a description and the caller's sizes, arguments and memory. Out: the work done
 * (reference) or issued (device, emulator). Guaranteed: everything is checked before anything is written. */
#include "run.h"

#include <stdio.h>
#include <string.h>

static const cell_memory no_memory;

/* What differs between the three calls. */
typedef struct Direction {
    const char *name;
    const cell_plan *plan;
    const cell_arg *list;
    int n_list;
    cell_ref_fn reference;
    int needs_reserve; /* backward reads it */
    int takes_reserve;
} Direction;

static Direction direction_of(const cell_desc *desc, char which) {
    if (which == 'b')
        return (Direction){
            "backward", desc->backward, desc->backward_args, desc->n_backward_args, desc->ref_backward, 1, 1};
    if (which == 's')
        return (Direction){"step",
                           desc->step ? desc->step : desc->forward,
                           desc->forward_args,
                           desc->n_forward_args,
                           desc->ref_forward,
                           0,
                           0};
    return (Direction){
        "forward", desc->forward, desc->forward_args, desc->n_forward_args, desc->ref_forward, 0, 1};
}

/* A description for the CPU has no reference. */
static int is_reference(const cell_context *ctx, const cell_desc *desc)
{
    return ctx && (!ctx->backend->launch || (ctx->backend->kind == CELL_BACKEND_CPU && desc->ref_forward));
}

static cell_status plan_workspace(cell_context *ctx, const cell_desc *desc, const cell_plan *plan, int saving,
                                  const int64_t *sizes, size_t *bytes, cell_error *err) {
    *bytes = 0;
    if (!plan || is_reference(ctx, desc))
        return CELL_OK;
    cell_run run = {.ctx = ctx, .desc = desc, .plan = plan, .sizes = sizes, .saving = saving, .err = err};
    return cell_layout_workspace(&run, bytes);
}

/* The first kernel whose blocks share their work as clusters, and of which the device holds not even one; the whole
 * chip's kernels have conditions of their own. NULL: there is none. */
static const cell_kernel *without_cluster(cell_context *ctx, const cell_desc *desc) {
    for (int i = 0; i < desc->n_kernels; i++) {
        const cell_kernel *kernel = &desc->kernels[i];
        int64_t blocks = 0;
        if (kernel->cluster <= 1 || kernel->cooperative)
            continue;
        cell_status status =
            ctx->backend->resident(ctx->self, kernel, (size_t)desc->block_memory, &blocks, NULL);
        if (status == CELL_OK && blocks < kernel->cluster)
            return kernel;
    }
    return NULL;
}

/* Does the call get this form of the instance, if none before it? */
static int takes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes) {
    cell_scope scope = {.ctx = ctx, .desc = desc, .sizes = sizes, .n_sizes = desc->n_sizes};
    int64_t yes = 0;
    return cell_eval_in(&scope, desc->takes, 1, &yes, &ctx->error) == CELL_OK && yes;
}

/* Whether it was said already how these plans run; from here on it was. Of more than 64 nothing is said. */
static int was_said(cell_context *ctx, const cell_desc *desc) {
    enum { ROOM = sizeof ctx->said / sizeof *ctx->said };
    for (int i = 0; i < ctx->n_said; i++)
        if (ctx->said[i] == desc)
            return 1;
    if (ctx->n_said == ROOM)
        return 1;
    ctx->said[ctx->n_said++] = desc;
    return 0;
}

/* Why the device runs another form than the one for any call. */
static void say_other(cell_context *ctx, const cell_desc *all, const cell_desc *taken) {
    int64_t memory = ctx->backend->attribute(ctx->self, CELL_ATTR_SMEM_MAX);
    const cell_kernel *lone = all->block_memory > memory ? NULL : without_cluster(ctx, all);
    if (lone)
        fprintf(stderr, "cell: %s: the device holds no cluster of %d blocks of %s: taking %s\n", all->key,
                lone->cluster, lone->name, taken->how);
    else
        fprintf(stderr, "cell: %s: a block has %lld bytes of shared memory, and %s needs %lld: taking %s\n",
                all->key, (long long)memory, all->how, (long long)all->block_memory, taken->how);
}

/* The plans for the CPU, or, where the library has none, those whose reference is called. */
static const cell_desc *for_cpu(cell_context *ctx, const cell_desc *desc)
{
    int says = ctx->verbose && !was_said(ctx, desc);
    if (says && desc->cpu)
        fprintf(stderr, "cell: %s: on the CPU, %s\n", desc->key, desc->cpu->how ? desc->cpu->how : "?");
    else if (says)
        fprintf(stderr, "cell: %s: the library has no kernels for the CPU: taking the reference\n",
                desc->key);
    return desc->cpu ? desc->cpu : desc;
}

/* The plans that the context's device can run at these sizes. Where none can, the kernels say why. */
static const cell_desc *for_call(cell_context *ctx, const cell_desc *desc, const int64_t *sizes) {
    const cell_desc *all = desc;
    if (ctx->backend->kind == CELL_BACKEND_CPU)
        return for_cpu(ctx, desc);
    for (const cell_desc *form = desc->preferred; form; form = form->next)
        if (takes(ctx, form, sizes))
            return form;
    while (desc->next && !takes(ctx, desc, sizes))
        desc = desc->next;
    if (desc != all && ctx->verbose && !was_said(ctx, desc))
        say_other(ctx, all, desc);
    return desc;
}

/* Messages of the size queries: without a context there is nowhere to leave one. */
static cell_error *message_of(cell_context *ctx) {
    return cell_context_check(ctx) == CELL_OK ? &ctx->error : NULL;
}

/* Bytes that one description needs. */
typedef cell_status (*Query)(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t *bytes,
                             cell_error *err);

/* Of the plans that the context's device runs; without a context, the most of any. */
static cell_status ask(Query query, cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                       size_t *bytes) {
    cell_error *err = message_of(ctx);
    if (!bytes)
        return cell_fail(err, CELL_NULL_POINTER, "the place for the size is null");
    *bytes = 0;
    cell_status status = cell_check_sizes(ctx, desc, sizes, err);
    if (status == CELL_OK && ctx)
        return query(ctx, for_call(ctx, desc, sizes), sizes, bytes, err);
    if (status == CELL_OK && desc->cpu)
        status = query(ctx, desc->cpu, sizes, bytes, err);
    for (const cell_desc *form = desc, *then = desc->preferred; status == CELL_OK && form;) {
        size_t need;
        status = query(ctx, form, sizes, &need, err);
        if (status == CELL_OK && need > *bytes)
            *bytes = need;
        form = form->next;
        if (!form) {
            form = then;
            then = NULL;
        }
    }
    return status;
}

static cell_status inference_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                   size_t *bytes, cell_error *err) {
    return plan_workspace(ctx, desc, desc->forward, 0, sizes, bytes, err);
}

/* The most that one of the calls needs. */
typedef struct Kind {
    const cell_plan *plan;
    int saving;
} Kind;

static cell_status most_bytes(cell_context *ctx, const cell_desc *desc, const Kind *kinds, int n, const int64_t *sizes,
                              size_t *bytes, cell_error *err) {
    cell_status status = CELL_OK;
    *bytes = 0;
    for (int i = 0; i < n && status == CELL_OK; i++) {
        size_t need;
        status = plan_workspace(ctx, desc, kinds[i].plan, kinds[i].saving, sizes, &need, err);
        if (status == CELL_OK && need > *bytes)
            *bytes = need;
    }
    return status;
}

static cell_status training_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t *bytes,
                                  cell_error *err) {
    const Kind kinds[] = {{desc->forward, 1}, {desc->backward, 1}};
    return most_bytes(ctx, desc, kinds, 2, sizes, bytes, err);
}

static cell_status workspace_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                   size_t *bytes, cell_error *err) {
    const Kind kinds[] = {{desc->forward, 0}, {desc->forward, 1}, {desc->backward, 1}, {desc->step, 0}};
    return most_bytes(ctx, desc, kinds, 4, sizes, bytes, err);
}

/* The reference counts its reserve in size_t, which has no room for every call where it has 32 bits: states
 * at all steps and behind the last, each number of 8 bytes at most. */
static int reference_can_count(const cell_desc *desc, const int64_t *sizes)
{
    const double rows = desc->total ? (double)sizes[desc->total] : 0;
    const double steps = desc->total ? rows / (double)sizes[CELL_SIZE_B] + 1 : (double)sizes[CELL_SIZE_T] + 1;
    double bytes = 0;
    for (int i = 0; sizeof(size_t) < 8 && sizes[CELL_SIZE_B] && i < desc->n_forward_args; i++) {
        const cell_arg *arg = &desc->forward_args[i];
        int64_t elements;
        if (arg->role != CELL_ROLE_VALUE || desc->tensors[arg->tensor].kind != CELL_STATE)
            continue;
        if (cell_arg_elements(desc, arg, sizes, &elements) != CELL_OK)
            return 0;
        bytes += 8 * steps * (double)elements;
    }
    return bytes < (double)(PTRDIFF_MAX - CELL_MARK_BYTES);
}

static cell_status reserve_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 size_t *bytes, cell_error *err) {
    *bytes = 0;
    cell_status status = CELL_OK;
    if (desc->forward && !is_reference(ctx, desc))
        status = cell_layout_reserve(ctx, desc, sizes, NULL, bytes, err);
    if (status == CELL_OK && desc->ref_reserve_bytes && (!ctx || is_reference(ctx, desc))) {
        size_t reference = reference_can_count(desc, sizes) ? desc->ref_reserve_bytes(sizes) : SIZE_MAX;
        if (reference > PTRDIFF_MAX - CELL_MARK_BYTES)
            return cell_fail(err, CELL_BAD_SIZE, "%s: the reserve wanted has more bytes than there can be", desc->key);
        if (reference)
            reference += CELL_MARK_BYTES;
        *bytes = reference > *bytes ? reference : *bytes;
    }
    return status;
}

cell_status cell_workspace_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 size_t *bytes) {
    return ask(workspace_bytes, ctx, desc, sizes, bytes);
}

cell_status cell_inference_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 size_t *bytes) {
    return ask(inference_bytes, ctx, desc, sizes, bytes);
}

cell_status cell_training_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                size_t *bytes) {
    return ask(training_bytes, ctx, desc, sizes, bytes);
}

cell_status cell_reserve_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                               size_t *bytes) {
    return ask(reserve_bytes, ctx, desc, sizes, bytes);
}

static cell_status check_available(const cell_context *ctx, const cell_desc *desc, const Direction *direction,
                                   cell_error *err) {
    if (is_reference(ctx, desc) && !direction->reference)
        return cell_fail(err, CELL_UNSUPPORTED, "%s: the library holds no reference %s", desc->key,
                         direction->name);
    if (!is_reference(ctx, desc) && !direction->plan)
        return cell_fail(err, CELL_UNSUPPORTED,
                         "%s: the library holds no device code for %s; the reference backend "
                         "runs it (CELL_BACKEND=reference)",
                         desc->key, direction->name);
    return CELL_OK;
}

static cell_status check_flags(const cell_desc *desc, const Direction *direction, const int64_t *sizes,
                               int flags, const cell_memory *memory, cell_error *err) {
    int legal = direction->needs_reserve ? CELL_ACCUMULATE : 0;
    if (flags & ~legal)
        return cell_fail(
            err, CELL_BAD_ARGUMENT, "%s: %s with flags %d; wanted %s", desc->key, direction->name, flags,
            legal ? "0, CELL_ACCUMULATE, CELL_RECOMPUTE or both, and CELL_OFFLOAD only with CELL_RECOMPUTE"
            : direction->takes_reserve ? "0, CELL_RECOMPUTE or that with CELL_OFFLOAD"
                                       : "0");
    if (!direction->takes_reserve && sizes[CELL_SIZE_T] != 1)
        return cell_fail(err, CELL_BAD_SIZE, "%s: step with T %lld; wanted 1", desc->key,
                         (long long)sizes[CELL_SIZE_T]);
    if (!direction->takes_reserve && memory->reserve)
        return cell_fail(err, CELL_BAD_ARGUMENT, "%s: step takes no reserve", desc->key);
    return CELL_OK;
}

static cell_status check_reserve(const cell_desc *desc, const Direction *direction, const cell_memory *memory,
                                 size_t need, cell_error *err) {
    if (!direction->needs_reserve || need == 0 || memory->reserve)
        return CELL_OK;
    return cell_fail(err, CELL_NULL_POINTER,
                     "%s: backward's reserve is null; wanted the %zu bytes that forward filled", desc->key,
                     need);
}

/* Everything that can be said before the run. need: bytes of workspace and reserve. */
static cell_status check_call(cell_context *ctx, const cell_desc *desc, const Direction *direction,
                              const int64_t *sizes, void *const *args, const cell_memory *memory, int flags,
                              size_t need[2]) {
    cell_error *err = &ctx->error;
    cell_status status = check_available(ctx, desc, direction, err);
    if (status == CELL_OK)
        status = check_flags(desc, direction, sizes, flags, memory, err);
    if (status == CELL_OK)
        status = plan_workspace(ctx, desc, direction->plan, memory->reserve || direction->needs_reserve, sizes,
                                &need[0], err);
    if (status == CELL_OK)
        status = reserve_bytes(ctx, desc, sizes, &need[1], err);
    if (status == CELL_OK)
        status = check_reserve(desc, direction, memory, need[1], err);
    if (status == CELL_OK && !memory->workspace && memory->workspace_bytes)
        status = cell_fail(err, CELL_NULL_POINTER, "%s: the workspace is null, but said to have %zu bytes",
                           desc->key, memory->workspace_bytes);
    if (status == CELL_OK)
        status = cell_check_args(ctx, desc, direction->list, direction->n_list, sizes, args, memory, need, err);
    if (status == CELL_OK && direction->needs_reserve && need[1] > 0)
        status = cell_reserve_check(ctx, desc, sizes, memory->reserve, NULL);
    return status;
}

static cell_status run_plan(cell_context *ctx, const cell_desc *desc, const Direction *direction,
                            const int64_t *sizes, void *const *args, const cell_memory *memory, int flags,
                            size_t workspace, const cell_slots *slots)
{
    cell_memory mine = *memory;
    if (workspace > 0 && !mine.workspace) {
        cell_status status = cell_context_workspace(ctx, workspace);
        if (status != CELL_OK)
            return status;
        mine.workspace = ctx->workspace;
    }
    int saving = mine.reserve != NULL || direction->needs_reserve;
    cell_run run = { .ctx = ctx,
                     .desc = desc,
                     .plan = direction->plan,
                     .sizes = sizes,
                     .args = args,
                     .list = direction->list,
                     .n_args = direction->n_list,
                     .saving = saving,
                     .memory = &mine,
                     .slots = slots,
                     .err = &ctx->error };
    run.flags = (flags & CELL_ACCUMULATE ? CELL_KERNEL_ACCUMULATE : 0) | (saving ? CELL_KERNEL_SAVE : 0) |
                (slots && slots->bf16 ? CELL_KERNEL_BF16_STATES : 0);
    cell_status status = cell_layout_workspace(&run, &workspace);
    if (status == CELL_OK)
        status = cell_layout_bind(&run);
    if (status == CELL_OK)
        status = cell_run_prepare(&run);
    return status == CELL_OK ? cell_run_ops(&run, 0, run.plan->n_ops) : status;
}

static cell_status run_reference(cell_context *ctx, const cell_desc *desc, const Direction *direction,
                                 const int64_t *sizes, void *const *args, const cell_memory *memory,
                                 int flags) {
    char *reserve = memory->reserve;
    cell_status status = direction->reference(sizes, args, reserve ? reserve + CELL_MARK_BYTES : NULL, flags);
    if (status != CELL_OK)
        cell_fail(&ctx->error, status, "%s: reference %s: %s", desc->key, direction->name,
                  cell_status_string(status));
    return status;
}

static cell_status run_direction(cell_context *ctx, const cell_desc *desc, char which, const int64_t *sizes,
                                 void *const *args, const cell_memory *memory, int flags,
                                 const cell_slots *slots)
{
    size_t need[2];
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK)
        status = cell_check_sizes(ctx, desc, sizes, &ctx->error);
    if (status != CELL_OK)
        return status;
    desc = for_call(ctx, desc, sizes);
    Direction direction = direction_of(desc, which);
    if (!memory)
        memory = &no_memory;
    status = check_call(ctx, desc, &direction, sizes, args, memory, flags, need);
    if (status != CELL_OK)
        return status;
    void (*range)(void *, const char *) = ctx->backend->range;
    if (range) {
        range(ctx->self, desc->key);
        range(ctx->self, direction.name);
    }
    if (is_reference(ctx, desc))
        status = run_reference(ctx, desc, &direction, sizes, args, memory, flags);
    else
        status = run_plan(ctx, desc, &direction, sizes, args, memory, flags, need[0], slots);
    for (int i = 0; range && i < 2; i++)
        range(ctx->self, NULL);
    if (which != 'f' || !memory->reserve || need[1] == 0)
        return status;
    cell_status marked = cell_reserve_mark(ctx, desc, sizes, memory->reserve, status == CELL_OK, NULL);
    return status == CELL_OK ? marked : status;
}

/* A call that may have CELL_RECOMPUTE. which: 'f' or 'b'. */
static cell_status run_training(cell_context *ctx, const cell_desc *desc, char which, const int64_t *sizes,
                                void *const *args, const cell_memory *memory, int flags)
{
    int again = flags & CELL_RECOMPUTE, offload = again && flags & CELL_OFFLOAD, whole = 1;
    int plain = again ? flags & ~(CELL_RECOMPUTE | CELL_OFFLOAD) : flags;
    cell_status status = CELL_OK;
    if (again)
        status = cell_run_recompute(ctx, desc, which == 'b', sizes, args, memory,
                                    offload ? plain | CELL_OFFLOAD : plain, &whole);
    return status == CELL_OK && whole ? run_direction(ctx, desc, which, sizes, args, memory, plain, NULL)
                                      : status;
}

cell_status cell_run_forward(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                             void *const *args, const cell_memory *memory, int flags) {
    return run_training(ctx, desc, 'f', sizes, args, memory, flags);
}

cell_status cell_run_backward(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                              void *const *args, const cell_memory *memory, int flags) {
    return run_training(ctx, desc, 'b', sizes, args, memory, flags);
}

cell_status cell_run_step(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, void *const *args,
                          const cell_memory *memory, int flags) {
    return run_direction(ctx, desc, 's', sizes, args, memory, flags, NULL);
}

cell_status cell_run_slots(cell_context *ctx, const cell_desc *desc, char which, const int64_t *sizes,
                           void *const *args, const cell_slots *slots)
{
    return run_direction(ctx, desc, which, sizes, args, NULL, 0, slots);
}

static int is_state(const cell_desc *desc, const cell_plan *plan, const cell_arg *list, const cell_ref *ref)
{
    const cell_buffer *buffer = &plan->buffers[ref->buffer];
    int of_call = buffer->origin == CELL_FROM_ARG || buffer->origin == CELL_FROM_ARG_OR_WORKSPACE;
    return of_call && desc->tensors[list[buffer->index].tensor].kind == CELL_STATE;
}

int cell_slots_reach(cell_context *ctx, const cell_desc *desc, char which, const int64_t *sizes)
{
    desc = for_call(ctx, desc, sizes);
    Direction direction = direction_of(desc, which);
    if (is_reference(ctx, desc) || !direction.plan)
        return 0;
    for (int i = 0; i < direction.plan->n_ops; i++) {
        const cell_op *op = &direction.plan->ops[i];
        const cell_ref *ref;
        int finds = op->kind == CELL_OP_KERNEL && desc->kernels[op->u.kernel.kernel].slots;
        for (int k = 0; (ref = cell_op_ref(op, k)); k++)
            if (!finds && is_state(desc, direction.plan, direction.list, ref))
                return 0;
    }
    return 1;
}

static int has_binding(const cell_desc *desc, const cell_binding *wanted) {
    for (int i = 0; i < desc->n_bindings; i++)
        if (strcmp(desc->bindings[i].name, wanted->name) == 0)
            return strcmp(desc->bindings[i].value, wanted->value) == 0;
    return strcmp(wanted->name, "packed") == 0 && strcmp(wanted->value, "false") == 0;
}

static int fits(const cell_desc *desc, const char *name, const cell_binding *wanted, int n_wanted) {
    if (name && strcmp(desc->name, name) != 0)
        return 0;
    for (int i = 0; i < n_wanted; i++)
        if (!has_binding(desc, &wanted[i]))
            return 0;
    return 1;
}

static void say_no_instance(cell_context *ctx, const cell_desc *const *list, int n_list, const char *name,
                            const cell_binding *wanted, int n_wanted) {
    cell_text text = {.at = ctx->error.text, .bytes = sizeof ctx->error.text};
    cell_text_add(&text, "no instance of %s with", name ? name : "any cell");
    for (int i = 0; i < n_wanted; i++)
        cell_text_add(&text, "%s %s=%s", i ? "," : "", wanted[i].name, wanted[i].value);
    cell_text_add(&text, "; the library holds");
    for (int i = 0; i < n_list; i++)
        cell_text_add(&text, " %s", list[i]->key);
}

const cell_desc *cell_find_instance(cell_context *ctx, const cell_desc *const *list, int n_list,
                                    const char *name, const cell_binding *wanted, int n_wanted) {
    for (int i = 0; list && i < n_list; i++)
        if (fits(list[i], name, wanted, n_wanted))
            return list[i];
    if (cell_context_check(ctx) == CELL_OK)
        say_no_instance(ctx, list, list ? n_list : 0, name, wanted, n_wanted);
    return NULL;
}

void cell_text_add(cell_text *text, const char *format, ...) {
    va_list list;
    size_t left = text->used < text->bytes ? text->bytes - text->used : 0;
    va_start(list, format);
    int wrote = vsnprintf(left ? text->at + text->used : NULL, left, format, list);
    va_end(list);
    text->used += wrote > 0 ? (size_t)wrote : 0;
}

static void print_buffers(const cell_run *run) {
    static const char *const origins[] = {
        "argument", "workspace", "reserve", "argument or workspace", "reserve or workspace", "nowhere"};
    for (int i = 0; i < run->plan->n_buffers; i++) {
        const cell_buffer *buffer = &run->plan->buffers[i];
        cell_text_add(run->text, "buffer %s: %s %s", buffer->name, cell_dtype_name((cell_dtype)buffer->dtype),
                      buffer->origin <= CELL_FROM_NOWHERE ? origins[buffer->origin] : "?");
        if (run->bytes[i] >= 0)
            cell_text_add(run->text, ", %lld bytes at %llu", (long long)run->bytes[i],
                          (unsigned long long)(uintptr_t)run->base[i]);
        cell_text_add(run->text, "\n");
    }
}

size_t cell_plan_text(const cell_desc *desc, char which, const int64_t *sizes, char *to, size_t bytes) {
    cell_error err = {""};
    cell_text text = {.at = to, .bytes = bytes};
    if (bytes)
        to[0] = 0;
    cell_status status = cell_check_sizes(NULL, desc, sizes, &err);
    if (status == CELL_OK) {
        Direction direction = direction_of(desc, which);
        size_t workspace = 0;
        cell_run run = {.desc = desc,
                        .plan = direction.plan,
                        .sizes = sizes,
                        .n_args = direction.n_list,
                        .saving = direction.takes_reserve,
                        .memory = &no_memory,
                        .text = &text,
                        .err = &err};
        if (!run.plan)
            status = cell_fail(&err, CELL_UNSUPPORTED, "no plan for %s", direction.name);
        if (status == CELL_OK)
            status = cell_layout_workspace(&run, &workspace);
        if (status == CELL_OK) {
            cell_text_add(&text, "%s %s, workspace %zu bytes\n", desc->key, direction.name, workspace);
            print_buffers(&run);
            status = cell_run_ops(&run, 0, run.plan->n_ops);
        }
    }
    if (status != CELL_OK)
        cell_text_add(&text, "%s: %s\n", cell_status_string(status), err.text);
    return text.used;
}
