/* Sessions: states of many sequences in rows, of which each call takes some. In: a description, sessions by
 * number, a call's tensors. Out: the call's results, and the states in rows. Guaranteed: a row that another
 * session or an earlier call of the same one needs is not written; row 0 holds the initial states and
 * belongs to no session; which sessions have which rows changes only when a call has been issued. */
#include "cell_sessions.h"
#include "half.h"
#include "run.h"
#include "sessions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static cell_status out_of_memory(cell_context *ctx, const char *what)
{
    return cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "sessions: out of memory for %s", what);
}

/* ---- the store ---- */

static cell_status refuse(cell_context *ctx, const cell_desc *desc, const char *why)
{
    return cell_fail(&ctx->error, CELL_UNSUPPORTED, "%s: sessions: %s", desc->key, why);
}

static int bound(const cell_desc *desc, const char *name)
{
    for (int i = 0; i < desc->n_bindings; i++)
        if (strcmp(desc->bindings[i].name, name) == 0)
            return strcmp(desc->bindings[i].value, "true") == 0;
    return 0;
}

static cell_status check_options(cell_context *ctx, const cell_desc *desc, const cell_sessions_options *o)
{
    if (o->capacity < 1 || o->capacity > 65535)
        return cell_fail(&ctx->error, CELL_BAD_SIZE, "sessions: a capacity of %lld; wanted 1 to 65535",
                         (long long)o->capacity);
    if (o->back < 0 || o->back > 1024)
        return cell_fail(&ctx->error, CELL_BAD_SIZE, "sessions: %d calls back; wanted 0 to 1024", o->back);
    if ((unsigned)o->keep > CELL_KEEP_INT8)
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "sessions: %d is no way to keep states",
                         (int)o->keep);
    if (bound(desc, "lengths"))
        return refuse(ctx, desc,
                      "how far a sequence goes in a call stands in `lengths`, which the store does not see; "
                      "build the cell without --lengths");
    if (bound(desc, "packed"))
        return refuse(ctx, desc, "the store has a row for each sequence; build the cell without --packed");
    if (bound(desc, "reverse"))
        return refuse(ctx, desc, "a reversed cell begins at the last step, which has not come yet");
    return CELL_OK;
}

static cell_status add_state(cell_sessions *s, int value, int final)
{
    cell_context *ctx = s->ctx;
    const cell_arg *arg = &s->desc->forward_args[value];
    const cell_tensor *of = &s->desc->tensors[arg->tensor];
    Kept *k = &s->states[s->n_states];
    *k = (Kept){ .value = value, .final = final, .tensor = arg->tensor, .dtype = (cell_dtype)arg->dtype };
    cell_status status = cell_arg_count(s->desc, arg, s->sizes, &k->elements, &ctx->error);
    if (status != CELL_OK)
        return status;
    if (s->options.keep != CELL_KEEP_AS_IS && k->dtype == CELL_F64)
        return cell_fail(
            &ctx->error, CELL_UNSUPPORTED,
            "%s: sessions: state %s is f64, which is for exact numbers: it is kept as it is or not at all",
            s->desc->key, of->name);
    k->keep = k->dtype == CELL_F32 ? s->options.keep : CELL_KEEP_AS_IS;
    size_t element = k->keep == CELL_KEEP_BF16   ? 2
                     : k->keep == CELL_KEEP_INT8 ? 1
                                                 : cell_dtype_bytes(k->dtype);
    k->row = (size_t)k->elements * element;
    k->factors = k->keep == CELL_KEEP_INT8 ? (k->elements + CELL_KEEP_GROUP - 1) / CELL_KEEP_GROUP : 0;
    s->n_states++;
    return CELL_OK;
}

/* Each state's arguments: the one it begins with, and the one it leaves. */
static cell_status find_states(cell_sessions *s)
{
    const cell_desc *desc = s->desc;
    for (int i = 0; i < desc->n_forward_args; i++) {
        const cell_arg *arg = &desc->forward_args[i];
        if (arg->role != CELL_ROLE_VALUE || desc->tensors[arg->tensor].kind != CELL_STATE)
            continue;
        int final = -1;
        for (int k = 0; k < desc->n_forward_args; k++)
            if (desc->forward_args[k].role == CELL_ROLE_FINAL && desc->forward_args[k].tensor == arg->tensor)
                final = k;
        if (s->n_states == MAX_KEPT)
            return cell_fail(&s->ctx->error, CELL_UNSUPPORTED, "%s: sessions: more than %d states", desc->key,
                             MAX_KEPT);
        cell_status status = add_state(s, i, final);
        if (status != CELL_OK)
            return status;
    }
    return CELL_OK;
}

static cell_status alloc_rows(cell_sessions *s)
{
    cell_context *ctx = s->ctx;
    for (int i = 0; i < s->n_states; i++) {
        Kept *k = &s->states[i];
        size_t factors = (size_t)k->factors * sizeof(float);
        if (k->row + factors && (size_t)s->n_rows > (size_t)PTRDIFF_MAX / (k->row + factors))
            return cell_fail(&ctx->error, CELL_BAD_SIZE,
                             "%s: sessions: %lld rows of state %s are more than can be addressed",
                             s->desc->key, (long long)s->n_rows, s->desc->tensors[k->tensor].name);
        cell_status status = cell_alloc(ctx, &k->rows, (size_t)s->n_rows * k->row);
        if (status == CELL_OK)
            status = cell_alloc(ctx, (void **)&k->scale, (size_t)s->n_rows * factors);
        if (status != CELL_OK)
            return status;
    }
    return cell_alloc(ctx, (void **)&s->device_rows, sizeof(int32_t) * 2 * (size_t)s->options.capacity);
}

static int has_kernels(const cell_sessions *s)
{
    cell_backend_kind kind = s->ctx->backend->kind;
    return s->desc->take && s->desc->put && s->ctx->backend->launch && kind != CELL_BACKEND_CPU;
}

static cell_status choose_way(cell_sessions *s)
{
    s->kernels = has_kernels(s);
    if (s->kernels || s->ctx->backend->host_memory)
        return CELL_OK;
    if (s->options.keep != CELL_KEEP_AS_IS)
        return refuse(s->ctx, s->desc,
                      "this library has no kernels that keep states in fewer bits; build it with --slots");
    return CELL_OK;
}

static cell_status make(cell_sessions *s)
{
    size_t sessions = (size_t)s->options.capacity, depth = (size_t)s->options.back + 1;
    cell_status status = find_states(s);
    if (status == CELL_OK)
        status = choose_way(s);
    if (status != CELL_OK)
        return status;
    s->n_rows = (int64_t)(sessions * depth) + 1;
    s->sessions = calloc(sessions, sizeof *s->sessions);
    s->past = malloc(sessions * depth * sizeof *s->past);
    s->users = malloc((size_t)s->n_rows * sizeof *s->users * 4);
    s->host_rows = malloc(sessions * 4 * sizeof *s->host_rows);
    s->planned = malloc(sessions * depth * sizeof *s->planned);
    if (!s->sessions || !s->past || !s->users || !s->host_rows || !s->planned)
        return out_of_memory(s->ctx, "a store");
    s->free = s->users + s->n_rows;
    s->spare = s->free + s->n_rows;
    memset(s->users, 0, (size_t)s->n_rows * sizeof *s->users);
    for (int64_t i = s->n_rows - 1; i > 0; i--) /* row 0 is no session's */
        s->free[s->n_free++] = (int32_t)i;
    return alloc_rows(s);
}

cell_status cell_sessions_create(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 const cell_sessions_options *options, cell_sessions **store)
{
    cell_status status = cell_context_check(ctx);
    if (store)
        *store = NULL;
    if (status != CELL_OK)
        return status;
    if (!desc || !sizes || !options || !store)
        return cell_fail(&ctx->error, CELL_NULL_POINTER,
                         "sessions: a description, sizes, options or the place is null");
    int64_t one[CELL_MAX_SIZES];
    if (desc->n_sizes > CELL_MAX_SIZES)
        return refuse(ctx, desc, "its description is not one of this runtime");
    memcpy(one, sizes, sizeof *one * (size_t)desc->n_sizes);
    one[CELL_SIZE_B] = one[CELL_SIZE_T] = 1;
    one[desc->n_sizes - 1] = 0;
    status = cell_check_sizes(ctx, desc, one, &ctx->error);
    if (status == CELL_OK)
        status = check_options(ctx, desc, options);
    if (status != CELL_OK)
        return status;
    cell_sessions *s = calloc(1, sizeof *s);
    if (!s)
        return out_of_memory(ctx, "a store");
    *s = (cell_sessions){ .ctx = ctx, .desc = desc, .options = *options };
    memcpy(s->sizes, one, sizeof one);
    status = make(s);
    if (status != CELL_OK) {
        cell_sessions_destroy(s);
        return status;
    }
    *store = s;
    return CELL_OK;
}

void cell_sessions_destroy(cell_sessions *s)
{
    if (!s)
        return;
    cell_error kept = s->ctx->error;
    for (int i = 0; i < SESSION_GRAPHS; i++)
        if (s->graphs[i].graph)
            s->ctx->backend->graph_free(s->ctx->self, s->graphs[i].graph);
    for (int i = 0; i < s->n_states; i++) {
        cell_free(s->ctx, s->states[i].rows);
        cell_free(s->ctx, s->states[i].scale);
        cell_free(s->ctx, s->states[i].dense);
    }
    cell_free(s->ctx, s->device_rows);
    s->ctx->error = kept;
    free(s->sessions);
    free(s->past);
    free(s->users);
    free(s->host_rows);
    free(s->planned);
    free(s);
}

/* ---- which rows are whose ---- */

/* What the session's calls left, the oldest first. */
static Past *past_of(const cell_sessions *s, int32_t session)
{
    return s->past + (size_t)session * ((size_t)s->options.back + 1);
}

static Past *now_of(const cell_sessions *s, int32_t session)
{
    return &past_of(s, session)[s->sessions[session].n - 1];
}

static void release(cell_sessions *s, int32_t row)
{
    if (row && --s->users[row] == 0)
        s->free[s->n_free++] = row;
}

/* There is one: each open session has at most back + 1 of the rows, and the one that asks has fewer. */
static int32_t take_row(cell_sessions *s)
{
    int32_t row = s->free[--s->n_free];
    s->users[row] = 1;
    return row;
}

/* Begins with row 0. */
static void begin(cell_sessions *s, int32_t session)
{
    s->sessions[session] = (Session){ .open = 1, .n = 1 };
    *past_of(s, session) = (Past){ 0 };
}

/* The row that the session's next call writes, which is then its last one. */
static int32_t next_row(cell_sessions *s, int32_t session, int64_t steps)
{
    Past *past = past_of(s, session);
    Session *of = &s->sessions[session];
    int64_t done = past[of->n - 1].steps + steps;
    if (s->options.back == 0 && past[0].row) { /* its own, since a fork has a copy then */
        past[0].steps = done;
        return past[0].row;
    }
    if (of->n == s->options.back + 1) {
        release(s, past[0].row);
        memmove(past, past + 1, sizeof *past * (size_t)--of->n);
    }
    past[of->n++] = (Past){ .row = take_row(s), .steps = done };
    return past[of->n - 1].row;
}

static cell_status check_store(cell_sessions *s)
{
    return s ? cell_context_check(s->ctx) : CELL_NULL_POINTER;
}

static cell_status check_session(cell_sessions *s, int32_t session)
{
    cell_status status = check_store(s);
    if (status != CELL_OK)
        return status;
    if (session < 0 || session >= s->options.capacity || !s->sessions[session].open)
        return cell_fail(&s->ctx->error, CELL_BAD_ARGUMENT, "sessions: there is no session %d", session);
    return CELL_OK;
}

cell_status cell_sessions_open(cell_sessions *s, int32_t *session)
{
    cell_status status = check_store(s);
    if (status != CELL_OK)
        return status;
    if (!session)
        return cell_fail(&s->ctx->error, CELL_NULL_POINTER,
                         "sessions: the place for the session's number is null");
    *session = -1;
    for (int64_t i = 0; i < s->options.capacity && *session < 0; i++)
        if (!s->sessions[i].open)
            *session = (int32_t)i;
    if (*session < 0)
        return cell_fail(&s->ctx->error, CELL_TOO_SMALL,
                         "sessions: %lld are open, and the store has room for no more",
                         (long long)s->options.capacity);
    begin(s, *session);
    return CELL_OK;
}

cell_status cell_sessions_close(cell_sessions *s, int32_t session)
{
    cell_status status = check_session(s, session);
    for (int i = 0; status == CELL_OK && i < s->sessions[session].n; i++)
        release(s, past_of(s, session)[i].row);
    if (status == CELL_OK)
        s->sessions[session].open = 0;
    return status;
}

static cell_status copy_row(cell_sessions *s, int32_t to, int32_t from)
{
    cell_status status = CELL_OK;
    const cell_backend *backend = s->ctx->backend;
    for (int i = 0; status == CELL_OK && i < s->n_states; i++) {
        const Kept *k = &s->states[i];
        size_t factors = (size_t)k->factors;
        if (k->row)
            status = backend->copy(s->ctx->self, (char *)k->rows + (size_t)to * k->row,
                                   (char *)k->rows + (size_t)from * k->row, k->row, &s->ctx->error);
        if (status == CELL_OK && factors)
            status =
                backend->copy(s->ctx->self, k->scale + (size_t)to * factors,
                              k->scale + (size_t)from * factors, factors * sizeof(float), &s->ctx->error);
    }
    return status;
}

cell_status cell_sessions_fork(cell_sessions *s, int32_t session, int32_t *fork)
{
    cell_status status = check_session(s, session);
    if (status == CELL_OK)
        status = cell_sessions_open(s, fork);
    if (status != CELL_OK)
        return status;
    Session *of = &s->sessions[*fork];
    *of = s->sessions[session];
    Past *past = past_of(s, *fork);
    memcpy(past, past_of(s, session), sizeof *past * (size_t)of->n);
    if (s->options.back == 0 && past[0].row) {
        int32_t from = past[0].row;
        past[0].row = take_row(s);
        status = copy_row(s, past[0].row, from);
        if (status != CELL_OK) {
            cell_sessions_close(s, *fork);
            *fork = -1;
        }
        return status;
    }
    for (int i = 0; i < of->n; i++)
        s->users[past[i].row] += past[i].row != 0;
    return CELL_OK;
}

cell_status cell_sessions_back(cell_sessions *s, int32_t session, int64_t calls)
{
    cell_status status = check_session(s, session);
    if (status != CELL_OK)
        return status;
    Session *of = &s->sessions[session];
    if (calls < 0 || calls >= of->n)
        return cell_fail(&s->ctx->error, CELL_BAD_ARGUMENT,
                         "sessions: %lld calls of session %d are to be taken back; %d can be",
                         (long long)calls, session, of->n - 1);
    for (int64_t i = 0; i < calls; i++)
        release(s, past_of(s, session)[--of->n].row);
    return CELL_OK;
}

cell_status cell_sessions_at(cell_sessions *s, int32_t session, int64_t *steps, int64_t *back)
{
    cell_status status = check_session(s, session);
    if (status == CELL_OK && steps)
        *steps = now_of(s, session)->steps;
    if (status == CELL_OK && back)
        *back = s->sessions[session].n - 1;
    return status;
}

/* ---- rows in and out, by the CPU ---- */

static void widen(const Kept *k, int64_t row, float *to)
{
    const char *from = (const char *)k->rows + (size_t)row * k->row;
    const float *scale = k->scale + row * k->factors;
    for (int64_t e = 0; e < k->elements; e++)
        to[e] = k->keep == CELL_KEEP_BF16 ? cell_bf16_to_f32(((const uint16_t *)from)[e])
                                          : (float)((const int8_t *)from)[e] * scale[e / CELL_KEEP_GROUP];
}

/* The largest magnitude becomes 127. What is not finite makes its group NaN. */
static float narrow_group(const float *from, int64_t n, int8_t *to)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(from[i]);
        most = size == size ? (size > most ? size : most) : INFINITY;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = most > 0 && most < INFINITY ? (int8_t)rintf(from[i] / most * 127.0f) : 0;
    return most / 127.0f;
}

static void narrow(const Kept *k, int64_t row, const float *from)
{
    char *to = (char *)k->rows + (size_t)row * k->row;
    for (int64_t e = 0; k->keep == CELL_KEEP_BF16 && e < k->elements; e++)
        ((uint16_t *)to)[e] = cell_f32_to_bf16(from[e]);
    for (int64_t g = 0; g < k->factors; g++) {
        int64_t first = g * CELL_KEEP_GROUP, left = k->elements - first;
        k->scale[row * k->factors + g] =
            narrow_group(from + first, left < CELL_KEEP_GROUP ? left : CELL_KEEP_GROUP, (int8_t *)to + first);
    }
}

static void move_on_host(const Kept *k, const int32_t *rows, int64_t n, int put)
{
    size_t dense = (size_t)k->elements * cell_dtype_bytes(k->dtype);
    for (int64_t b = 0; b < n; b++) {
        char *row = (char *)k->rows + (size_t)rows[b] * k->row, *here = (char *)k->dense + (size_t)b * dense;
        if (k->keep == CELL_KEEP_AS_IS && dense)
            memcpy(put ? row : here, put ? here : row, dense);
        else if (put)
            narrow(k, rows[b], (const float *)(void *)here);
        else
            widen(k, rows[b], (float *)(void *)here);
    }
}

/* ---- by the backend ---- */

static cell_status move_by_copies(cell_sessions *s, const Kept *k, const int32_t *rows, int64_t n, int put)
{
    cell_status status = CELL_OK;
    for (int64_t b = 0; status == CELL_OK && b < n && k->row; b++) {
        char *row = (char *)k->rows + (size_t)rows[b] * k->row, *here = (char *)k->dense + (size_t)b * k->row;
        status =
            s->ctx->backend->copy(s->ctx->self, put ? row : here, put ? here : row, k->row, &s->ctx->error);
    }
    return status;
}

/* Kernels of cell_device_slots.cuh: of each state the rows, the dense array and the factors, and how many
 * elements, beside how they are kept. */
static cell_status move_by_kernel(cell_sessions *s, int64_t n, int put)
{
    enum { PER_LAUNCH = CELL_MAX_SIZES - 1 };
    cell_status status = CELL_OK;
    for (int first = 0; status == CELL_OK && first < s->n_states; first += PER_LAUNCH) {
        int count = s->n_states - first < PER_LAUNCH ? s->n_states - first : PER_LAUNCH;
        int64_t most = 0;
        cell_kernel_args args;
        memset(&args, 0, sizeof args);
        args.slots = s->device_rows;
        args.size[0] = n;
        for (int i = 0; i < count; i++) {
            const Kept *k = &s->states[first + i];
            args.ptr[3 * i] = k->rows;
            args.ptr[3 * i + 1] = k->dense;
            args.ptr[3 * i + 2] = k->scale;
            args.size[1 + i] = (k->keep == CELL_KEEP_AS_IS ? (int64_t)k->row : k->elements) * 4 + k->keep;
            most = k->elements > most ? k->elements : most;
        }
        const cell_kernel *kernel = &s->desc->kernels[(put ? s->desc->put : s->desc->take) - 1];
        int64_t across = (most + 1023) / 1024;
        cell_launch launch = { .kernel = kernel,
                               .grid = { (uint32_t)(across < 1024 ? across : 1024), (uint32_t)n,
                                         (uint32_t)count },
                               .threads = kernel->threads,
                               .args = &args };
        if (most && n && s->ctx->backend->prepare)
            status = s->ctx->backend->prepare(s->ctx->self, kernel, 0, &s->ctx->error);
        if (status == CELL_OK && most && n)
            status = s->ctx->backend->launch(s->ctx->self, &launch, &s->ctx->error);
    }
    return status;
}

static cell_status move(cell_sessions *s, const int32_t *rows, int64_t n, int put)
{
    if (s->kernels)
        return move_by_kernel(s, n, put);
    cell_status status = CELL_OK;
    for (int i = 0; status == CELL_OK && i < s->n_states; i++)
        if (s->ctx->backend->host_memory)
            move_on_host(&s->states[i], rows, n, put);
        else
            status = move_by_copies(s, &s->states[i], rows, n, put);
    return status;
}

/* ---- a call ---- */

static cell_status grow_dense(cell_sessions *s, int64_t n)
{
    if (n <= s->n_dense)
        return CELL_OK;
    s->n_dense = 0;
    for (int i = 0; i < s->n_states; i++) {
        Kept *k = &s->states[i];
        cell_status status = cell_free(s->ctx, k->dense);
        k->dense = NULL;
        if (status == CELL_OK)
            status =
                cell_alloc(s->ctx, &k->dense, (size_t)n * (size_t)k->elements * cell_dtype_bytes(k->dtype));
        if (status != CELL_OK)
            return status;
    }
    s->n_dense = n;
    return CELL_OK;
}

/* The kernels read rows from the backend's memory. */
static cell_status send_rows(cell_sessions *s, const int32_t *rows, int64_t n)
{
    size_t bytes = sizeof *rows * 2 * (size_t)n;
    const cell_backend *backend = s->ctx->backend;
    if (!s->kernels || (s->n_sent == n && memcmp(s->host_rows, rows, bytes) == 0))
        return CELL_OK;
    s->n_sent = 0;
    cell_status status =
        backend->host_memory ? backend->transfer(s->ctx->self, s->device_rows, rows, bytes, &s->ctx->error)
        : backend->put       ? backend->put(s->ctx->self, s->device_rows, rows, bytes, &s->ctx->error)
                             : backend->transfer(s->ctx->self, s->device_rows, rows, bytes, &s->ctx->error);
    if (status != CELL_OK)
        return status;
    memcpy(s->host_rows, rows, bytes);
    s->n_sent = n;
    return CELL_OK;
}

static void set_states(const cell_sessions *s, void **list, int rows, int from_nothing)
{
    for (int i = 0; i < s->n_states; i++) {
        const Kept *k = &s->states[i];
        list[k->value] = from_nothing ? NULL : rows ? k->rows : k->dense;
        if (k->final >= 0)
            list[k->final] = rows ? k->rows : k->dense;
    }
}

/* Row 0: what a sequence of no steps leaves. It may depend on params, which may have changed. */
static cell_status make_initial(cell_sessions *s, void **list)
{
    int64_t sizes[CELL_MAX_SIZES];
    const int32_t rows[2] = { 0, 0 };
    memcpy(sizes, s->sizes, sizeof sizes);
    sizes[CELL_SIZE_T] = 0;
    set_states(s, list, 0, 1);
    cell_status status = cell_run_forward(s->ctx, s->desc, sizes, list, NULL, 0);
    if (status == CELL_OK)
        status = send_rows(s, rows, 1);
    return status == CELL_OK ? move(s, rows + 1, 1, 1) : status;
}

static cell_status issue(cell_sessions *s, const Call *c)
{
    void *list[CELL_MAX_ARGS];
    memcpy(list, c->list, sizeof *list * (size_t)s->desc->n_forward_args);
    set_states(s, list, c->reach, 0);
    cell_slots slots = { .rows = s->device_rows, .bf16 = s->options.keep == CELL_KEEP_BF16 };
    if (c->reach)
        return cell_run_slots(s->ctx, s->desc, c->which, c->sizes, list, &slots);
    int64_t n = c->sizes[CELL_SIZE_B];
    cell_status status = move(s, c->rows, n, 0);
    if (status == CELL_OK)
        status = cell_run_slots(s->ctx, s->desc, c->which, c->sizes, list, NULL);
    return status == CELL_OK ? move(s, c->rows + n, n, 1) : status;
}

/* All that a recording holds. What the workspace is and how large, too: another one may lie at the same
 * place. */
static void key_of(const cell_sessions *s, const Call *c, SessionGraph *key)
{
    *key = (SessionGraph){ .n = c->sizes[CELL_SIZE_B],
                           .workspace = s->ctx->workspace,
                           .workspace_bytes = s->ctx->workspace_bytes,
                           .dense = s->n_dense };
    memcpy(key->list, c->list, sizeof *key->list * (size_t)s->desc->n_forward_args);
    for (int i = 0; i < s->n_states; i++) {
        key->list[s->states[i].value] = s->states[i].dense;
        if (s->states[i].final >= 0)
            key->list[s->states[i].final] = NULL;
    }
}

static int same_key(const SessionGraph *a, const SessionGraph *b)
{
    return a->n == b->n && a->workspace == b->workspace && a->workspace_bytes == b->workspace_bytes &&
           a->dense == b->dense && memcmp(a->list, b->list, sizeof a->list) == 0;
}

static SessionGraph *find_graph(cell_sessions *s, const SessionGraph *key)
{
    for (int i = 0; i < SESSION_GRAPHS; i++)
        if (s->graphs[i].used && same_key(&s->graphs[i], key))
            return &s->graphs[i];
    return NULL;
}

static void remember(cell_sessions *s, const SessionGraph *key)
{
    SessionGraph *oldest = &s->graphs[0];
    for (int i = 1; i < SESSION_GRAPHS; i++)
        if (s->graphs[i].used < oldest->used)
            oldest = &s->graphs[i];
    if (oldest->graph)
        s->ctx->backend->graph_free(s->ctx->self, oldest->graph);
    *oldest = *key;
    oldest->used = ++s->clock;
}

static cell_status record(cell_sessions *s, const Call *c, void **graph)
{
    const cell_backend *backend = s->ctx->backend;
    cell_error other;
    cell_status status = backend->graph_begin(s->ctx->self, &s->ctx->error);
    if (status != CELL_OK)
        return status;
    status = issue(s, c);
    cell_status ended = backend->graph_end(s->ctx->self, graph, status == CELL_OK ? &s->ctx->error : &other);
    if (status != CELL_OK && ended == CELL_OK) {
        backend->graph_free(s->ctx->self, *graph);
        *graph = NULL;
    }
    return status == CELL_OK ? ended : status;
}

/* By a graph, where the same call was issued before; the rows are other ones in the same memory. */
static cell_status issue_step(cell_sessions *s, const Call *c)
{
    const cell_backend *backend = s->ctx->backend;
    if (!s->kernels || c->which != 's' || s->desc->counts_steps || s->ctx->verbose > 1 ||
        !backend->graph_begin || s->no_graphs)
        return issue(s, c);
    SessionGraph key;
    key_of(s, c, &key);
    SessionGraph *known = find_graph(s, &key);
    if (!known) {
        cell_status status = issue(s, c);
        key_of(s, c, &key); /* the call may have taken another workspace */
        if (status == CELL_OK && !find_graph(s, &key))
            remember(s, &key);
        return status;
    }
    known->used = ++s->clock;
    if (!known->graph && record(s, c, &known->graph) != CELL_OK) {
        known->graph = NULL;
        s->no_graphs = 1;
        return issue(s, c);
    }
    return backend->graph_run(s->ctx->self, known->graph, &s->ctx->error);
}

/* Bytes from one sequence to the next, of what has a row for each. */
static cell_status sequence_bytes(const cell_sessions *s, int arg, int64_t T, size_t *bytes)
{
    int64_t sizes[CELL_MAX_SIZES], elements;
    const cell_arg *of = &s->desc->forward_args[arg];
    *bytes = 0;
    if (s->desc->tensors[of->tensor].kind == CELL_PARAM)
        return CELL_OK;
    memcpy(sizes, s->sizes, sizeof sizes);
    sizes[CELL_SIZE_T] = T;
    cell_status status = cell_arg_count(s->desc, of, sizes, &elements, &s->ctx->error);
    *bytes = (size_t)elements * cell_dtype_bytes((cell_dtype)of->dtype);
    return status;
}

/* Sequences [from, to) of the call, which all are at one step. rows: theirs, read and then written. */
static cell_status run_some(cell_sessions *s, char which, void *const *args, int64_t T, int64_t from,
                            int64_t to, int64_t t0, const int32_t *rows)
{
    void *list[CELL_MAX_ARGS];
    int64_t n = to - from;
    cell_status status = CELL_OK;
    for (int i = 0; status == CELL_OK && i < s->desc->n_forward_args; i++) {
        size_t bytes = 0;
        if (from)
            status = sequence_bytes(s, i, T, &bytes);
        list[i] = args[i] ? (char *)args[i] + (size_t)from * bytes : NULL;
    }
    Call c = { .which = which, .list = list, .rows = rows };
    memcpy(c.sizes, s->sizes, sizeof c.sizes);
    c.sizes[CELL_SIZE_B] = n;
    c.sizes[CELL_SIZE_T] = T;
    c.sizes[s->desc->n_sizes - 1] = t0;
    if (status == CELL_OK)
        status = cell_check_sizes(s->ctx, s->desc, c.sizes, &s->ctx->error);
    if (status != CELL_OK)
        return status;
    int fits = s->options.keep != CELL_KEEP_INT8;
    c.reach = s->kernels && fits && cell_slots_reach(s->ctx, s->desc, which, c.sizes);
    if (!c.reach)
        status = grow_dense(s, n);
    if (status == CELL_OK)
        status = send_rows(s, rows, n);
    return status == CELL_OK ? issue_step(s, &c) : status;
}

static cell_status check_batch(cell_sessions *s, const int32_t *sessions, int64_t n, void *const *args)
{
    cell_status status = check_store(s);
    if (status != CELL_OK)
        return status;
    if (n < 0 || n > s->options.capacity)
        return cell_fail(&s->ctx->error, CELL_BAD_SIZE,
                         "sessions: %lld of them in a call of a store for %lld", (long long)n,
                         (long long)s->options.capacity);
    if (!args || (n && !sessions))
        return cell_fail(&s->ctx->error, CELL_NULL_POINTER,
                         "sessions: the list of sessions or of arguments is null");
    if (s->ctx->backend->graph_busy && s->ctx->backend->graph_busy(s->ctx->self))
        return cell_fail(&s->ctx->error, CELL_UNSUPPORTED,
                         "sessions: the stream is being captured, and which rows a call takes is not in a "
                         "graph; the store "
                         "has graphs of its own");
    for (int64_t i = 0; status == CELL_OK && i < n; i++) {
        status = check_session(s, sessions[i]);
        if (status == CELL_OK && s->sessions[sessions[i]].marked) {
            status = cell_fail(&s->ctx->error, CELL_BAD_ARGUMENT,
                               "sessions: session %d comes twice in a call", sessions[i]);
        } else if (status == CELL_OK) {
            s->sessions[sessions[i]].marked = 1;
            continue;
        }
        n = i;
    }
    for (int64_t i = 0; i < n; i++)
        s->sessions[sessions[i]].marked = 0;
    return status;
}

/* Who has which row, to go back to. */
static void keep_rows(cell_sessions *s, const int32_t *sessions, int64_t n)
{
    size_t depth = (size_t)s->options.back + 1;
    memcpy(s->spare, s->users, sizeof *s->users * 2 * (size_t)s->n_rows);
    s->spare_free = s->n_free;
    for (int64_t i = 0; i < n; i++) {
        s->sessions[sessions[i]].before = s->sessions[sessions[i]].n;
        memcpy(s->planned + (size_t)i * depth, past_of(s, sessions[i]), depth * sizeof *s->planned);
    }
}

static void give_rows_back(cell_sessions *s, const int32_t *sessions, int64_t n)
{
    size_t depth = (size_t)s->options.back + 1;
    memcpy(s->users, s->spare, sizeof *s->users * 2 * (size_t)s->n_rows);
    s->n_free = s->spare_free;
    for (int64_t i = 0; i < n; i++) {
        s->sessions[sessions[i]].n = s->sessions[sessions[i]].before;
        memcpy(past_of(s, sessions[i]), s->planned + (size_t)i * depth, depth * sizeof *s->planned);
    }
}

static cell_status run(cell_sessions *s, char which, const int32_t *sessions, int64_t n, int64_t T,
                       void *const *args)
{
    void *list[CELL_MAX_ARGS];
    int new = 0;
    cell_status status = check_batch(s, sessions, n, args);
    if (status == CELL_OK && T < 0)
        status = cell_fail(&s->ctx->error, CELL_BAD_SIZE, "sessions: %lld steps", (long long)T);
    if (status != CELL_OK || n == 0 || T == 0)
        return status;
    keep_rows(s, sessions, n);
    int32_t *rows = s->host_rows + 2 * s->options.capacity;
    for (int64_t i = 0, end; status == CELL_OK && i < n; i = end) {
        int64_t t0 = now_of(s, sessions[i])->steps;
        for (end = i; end < n && (!s->desc->counts_steps || now_of(s, sessions[end])->steps == t0); end++)
            ;
        for (int64_t k = i; k < end; k++) {
            rows[k - i] = now_of(s, sessions[k])->row;
            rows[end - i + k - i] = next_row(s, sessions[k], T);
            new |= rows[k - i] == 0;
        }
        memcpy(list, args, sizeof *list * (size_t)s->desc->n_forward_args);
        if (new) {
            status = grow_dense(s, 1);
            if (status == CELL_OK)
                status = make_initial(s, list);
            new = 0;
        }
        if (status == CELL_OK)
            status = run_some(s, which, args, T, i, end, s->desc->counts_steps ? t0 : 0, rows);
    }
    if (status != CELL_OK)
        give_rows_back(s, sessions, n);
    return status;
}

cell_status cell_sessions_step(cell_sessions *s, const int32_t *sessions, int64_t n, void *const *args)
{
    return run(s, 's', sessions, n, 1, args);
}

cell_status cell_sessions_prefill(cell_sessions *s, const int32_t *sessions, int64_t n, int64_t T,
                                  void *const *args)
{
    return run(s, 'f', sessions, n, T, args);
}

cell_status cell_sessions_bytes(const cell_sessions *s, size_t *all, size_t *each)
{
    if (!s)
        return CELL_NULL_POINTER;
    size_t one = 0;
    for (int i = 0; i < s->n_states; i++)
        one += s->states[i].row + (size_t)s->states[i].factors * sizeof(float);
    if (all)
        *all = one * (size_t)s->n_rows;
    if (each)
        *each = one;
    return CELL_OK;
}

const char *cell_sessions_how(const cell_sessions *s)
{
    if (!s)
        return "?";
    if (!s->kernels)
        return s->ctx->backend->host_memory ? "by the CPU" : "by copies";
    if (s->options.keep != CELL_KEEP_INT8 && cell_slots_reach(s->ctx, s->desc, 's', s->sizes))
        return "in the step's kernels";
    return "by a kernel in front of the step and one behind it";
}
