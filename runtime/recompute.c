/* Training with less reserve than all steps want. In: forward and backward calls with CELL_RECOMPUTE,
 * whose reserve is as large as the caller has room. Out: what the calls without it give. The steps are
 * cut into pieces. Forward keeps the states in front of some pieces (checkpoints), and what backward
 * needs of the last piece. Backward goes from the last piece to the first, computes the states in front
 * of a piece again from the checkpoint before it, then the piece itself with what backward needs, and
 * adds up the gradients of params. Guaranteed: how a call is cut follows from the sizes, the device and
 * the bytes of the reserve alone, so forward and backward agree; every checkpoint, and so every
 * gradient, has the same bits in every run. A piece is a call of the same instance: nothing here knows
 * of schedules. With CELL_OFFLOAD a checkpoint is in front of every piece; two are in the reserve, the others
 * in host memory, and each copy between the two has the time of a whole piece. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* MOST_PASSES: how often a step is computed again at most, besides the once of its piece. GRAIN: pieces
 * of more than four times as many steps have a multiple of it, so that those of one sequence begin at
 * addresses that kernels take. EVERY: below it every number of pieces is looked at, above it each is a
 * sixteenth more than the one before. ON_DEVICE: checkpoints in the reserve where the others are in host
 * memory; one is read while the other is copied. */
enum { MOST_PASSES = 4, GRAIN = 64, EVERY = 64, MOST_STATES = CELL_MAX_ARGS, ON_DEVICE = 2 };
#define MOST_PITCH 2147483647u /* CUDA's limit, bytes */

/* The number of pieces for which `slots` checkpoints and `passes` passes are enough: the sums of a binomial tree. */
static double reach(int64_t slots, int passes)
{
    double pieces = 1;
    for (int i = 1; i <= passes; i++)
        pieces = pieces * ((double)slots + i) / i;
    return pieces;
}

/* The fewest checkpoints for `count` pieces in `passes` passes. */
static int64_t slots_for(int64_t count, int passes)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t slots = low + (high - low) / 2;
        if (reach(slots, passes) >= (double)count)
            high = slots;
        else
            low = slots + 1;
    }
    return low;
}

/* Pieces [from, to), the states in front of the first known, and room for `slots` checkpoints: in
 * front of which piece the next one is kept. As few as can be lie before it, since these are computed
 * once more. */
static int64_t middle(int64_t from, int64_t to, int64_t slots)
{
    int passes = 1;
    while (reach(slots, passes) < (double)(to - from))
        passes++;
    double behind = reach(slots - 1, passes);
    return behind >= (double)(to - from - 1) ? from + 1 : to - (int64_t)behind;
}

static int is_step_wise(const cell_desc *desc, const cell_arg *arg)
{
    cell_tensor_kind kind = desc->tensors[arg->tensor].kind;
    return kind == CELL_INPUT || kind == CELL_OUTPUT;
}

static int has_kind(const cell_desc *desc, const cell_arg *arg, cell_tensor_kind kind)
{
    return desc->tensors[arg->tensor].kind == kind;
}

static int is_bound(const cell_desc *desc, const char *name)
{
    for (int i = 0; i < desc->n_bindings; i++)
        if (strcmp(desc->bindings[i].name, name) == 0)
            return strcmp(desc->bindings[i].value, "true") == 0;
    return 0;
}

/* The sizes of a call of `steps` steps, `before` of the walk's steps behind its first. */
static void sizes_of_piece(const cell_desc *desc, const int64_t *sizes, int64_t steps, int64_t before,
                           int64_t *piece)
{
    memcpy(piece, sizes, sizeof *sizes * (size_t)desc->n_sizes);
    piece[CELL_SIZE_T] = steps;
    piece[desc->n_sizes - 1] += before;
}

/* Why steps of this cell are not computed again; NULL: they can be. */
static const char *no_pieces(cell_context *ctx, const cell_desc *desc, const int64_t *sizes)
{
    int64_t second[CELL_MAX_SIZES];
    sizes_of_piece(desc, sizes, 1, 1, second);
    if (cell_check_sizes(ctx, desc, second, NULL) != CELL_OK)
        return "it reads steps before the call that no state holds";
    if (desc->room)
        return "it reads all steps before, which are as large as what is saved";
    if (desc->total)
        return "its sequences are packed";
    if (is_bound(desc, "reverse") && is_bound(desc, "lengths"))
        return "its sequences have lengths and begin at their ends";
    for (int i = 0; i < desc->n_forward_args && desc->backward_args; i++)
        if (desc->forward_args[i].role != CELL_ROLE_VALUE ||
            has_kind(desc, &desc->forward_args[i], CELL_OUTPUT))
            return NULL;
        else if (i >= desc->n_backward_args || desc->backward_args[i].tensor != desc->forward_args[i].tensor)
            break;
    return "it has no backward";
}

/* Bytes of an argument at these sizes. */
static cell_status bytes_of(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes, int64_t *bytes,
                            cell_error *err)
{
    cell_status status = cell_arg_count(desc, arg, sizes, bytes, err);
    if (status == CELL_OK &&
        __builtin_mul_overflow(*bytes, (int64_t)cell_dtype_bytes((cell_dtype)arg->dtype), bytes))
        status = cell_fail(err, CELL_BAD_SIZE, "%s: an argument has more bytes than there can be", desc->key);
    return status;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + CELL_ALIGNMENT - 1) / CELL_ALIGNMENT * CELL_ALIGNMENT;
}

static int64_t first_length(const cell_pieces *p, int64_t steps)
{
    return steps - (p->count - 1) * p->length;
}

typedef cell_status (*Query)(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t *bytes);

/* The most that a piece wants, of the two lengths that there are. */
static cell_status most_of_pieces(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                  const cell_pieces *p, Query query, size_t *bytes)
{
    int64_t piece[CELL_MAX_SIZES], first = first_length(p, sizes[CELL_SIZE_T]);
    size_t other = 0;
    sizes_of_piece(desc, sizes, p->length, 0, piece);
    cell_status status = query(ctx, desc, piece, bytes);
    if (status == CELL_OK && first != p->length) {
        piece[CELL_SIZE_T] = first;
        status = query(ctx, desc, piece, &other);
    }
    *bytes = other > *bytes ? other : *bytes;
    return status;
}

/* States in front of a step, as a checkpoint holds them. */
static cell_status checkpoint_bytes(const cell_desc *desc, const int64_t *sizes, int64_t *bytes,
                                    cell_error *err)
{
    cell_status status = CELL_OK;
    *bytes = 0;
    for (int i = 0; status == CELL_OK && i < desc->n_forward_args; i++) {
        int64_t state;
        if (desc->forward_args[i].role != CELL_ROLE_FINAL)
            continue;
        status = bytes_of(desc, &desc->forward_args[i], sizes, &state, err);
        if (status == CELL_OK &&
            (state > PTRDIFF_MAX - CELL_ALIGNMENT || *bytes > PTRDIFF_MAX - aligned(state)))
            status =
                cell_fail(err, CELL_BAD_SIZE, "%s: the states have more bytes than there can be", desc->key);
        if (status == CELL_OK)
            *bytes += aligned(state);
    }
    return status;
}

/* What the search goes by: the budget, the best cut that keeps it, and the least of all. */
typedef struct Search {
    cell_context *ctx;
    const cell_desc *desc;
    const int64_t *sizes;
    size_t budget, least;
    int offload; /* checkpoints are in host memory */
    cell_pieces best; /* count 0: none yet */
    int passes; /* of the best */
} Search;

/* Pieces of `length` steps, in as few passes as the budget allows. */
static cell_status try_length(Search *s, int64_t length, int64_t checkpoint)
{
    int64_t steps = s->sizes[CELL_SIZE_T];
    cell_pieces p = { .length = length,
                      .count = (steps + length - 1) / length,
                      .checkpoint = (size_t)checkpoint };
    cell_status status = most_of_pieces(s->ctx, s->desc, s->sizes, &p, cell_reserve_bytes, &p.piece);
    int offload = s->offload && checkpoint && p.count > ON_DEVICE + 1;
    for (int passes = 1; status == CELL_OK && passes <= (s->offload ? 1 : MOST_PASSES); passes++) {
        p.slots = offload ? ON_DEVICE : checkpoint ? slots_for(p.count, passes) : p.count - 1;
        double host = CELL_MARK_BYTES + (double)(p.count - 1 - ON_DEVICE) * (double)checkpoint;
        if (offload && host > (double)PTRDIFF_MAX / 2)
            continue;
        p.host = offload ? CELL_MARK_BYTES + (size_t)(p.count - 1 - ON_DEVICE) * (size_t)checkpoint : 0;
        double bytes = CELL_MARK_BYTES + (double)p.slots * (double)checkpoint + (double)p.piece;
        if (bytes > (double)PTRDIFF_MAX / 2)
            continue;
        p.bytes = CELL_MARK_BYTES + (size_t)p.slots * (size_t)checkpoint + p.piece;
        s->least = p.bytes < s->least ? p.bytes : s->least;
        int longer = passes == s->passes && length > s->best.length;
        if (p.bytes <= s->budget && (!s->best.count || passes < s->passes || longer)) {
            s->best = p;
            s->passes = passes;
        }
    }
    return status;
}

/* Of one number of pieces the least that each can have. */
static int64_t length_of(int64_t steps, int64_t count)
{
    int64_t length = (steps + count - 1) / count;
    return length > 4 * GRAIN ? (length + GRAIN - 1) / GRAIN * GRAIN : length;
}

/* The last piece is not computed again, so it has as many steps as there is room for. */
static cell_status lengthen(Search *s, int64_t checkpoint)
{
    int64_t low = s->best.length, unit = low > 4 * GRAIN ? GRAIN : 1;
    int64_t high = s->best.count > 1 ? (s->sizes[CELL_SIZE_T] - 1) / (s->best.count - 1) : low;
    cell_status status = CELL_OK;
    while (status == CELL_OK && high - low >= unit) {
        int64_t length = low + ((high - low) / unit + 1) / 2 * unit;
        status = try_length(s, length, checkpoint);
        if (s->best.length == length)
            low = length;
        else
            high = length - 1;
    }
    return status;
}

/* The longest pieces of the fewest passes. Fewer pieces come first, and with one pass no other is better. */
static cell_status search(Search *s)
{
    int64_t steps = s->sizes[CELL_SIZE_T], checkpoint;
    cell_status status = checkpoint_bytes(s->desc, s->sizes, &checkpoint, &s->ctx->error);
    for (int64_t count = 2; status == CELL_OK && count <= steps && s->passes != 1;) {
        status = try_length(s, length_of(steps, count), checkpoint);
        int64_t next = count < EVERY ? count + 1 : count + count / 16;
        count = count < steps && next > steps ? steps : next;
    }
    return status == CELL_OK && s->best.count ? lengthen(s, checkpoint) : status;
}

static cell_known_pieces *known_pieces(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                       size_t budget, int offload)
{
    for (int i = 0; i < CELL_KNOWN_PIECES; i++) {
        cell_known_pieces *known = &ctx->pieces[i];
        if (known->desc == desc && known->budget == budget && known->offload == offload &&
            memcmp(known->sizes, sizes, sizeof *sizes * (size_t)desc->n_sizes) == 0)
            return known;
    }
    return NULL;
}

static void remember_pieces(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t budget,
                            int offload, const cell_pieces *pieces)
{
    cell_known_pieces *known = &ctx->pieces[ctx->next_pieces++ % CELL_KNOWN_PIECES];
    known->desc = desc;
    known->budget = budget;
    known->offload = offload;
    known->pieces = *pieces;
    memcpy(known->sizes, sizes, sizeof *sizes * (size_t)desc->n_sizes);
}

/* The sizes have been checked. least: what a budget that is too small should have been. */
static cell_status find_pieces(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t budget,
                               int offload, cell_pieces *pieces, size_t *least)
{
    const cell_known_pieces *known = known_pieces(ctx, desc, sizes, budget, offload);
    *least = 0;
    if (known) {
        *pieces = known->pieces;
        return CELL_OK;
    }
    size_t whole;
    cell_status status = cell_reserve_bytes(ctx, desc, sizes, &whole);
    if (status != CELL_OK)
        return status;
    *pieces = (cell_pieces){ .length = sizes[CELL_SIZE_T], .count = 1, .piece = whole, .bytes = whole };
    if (whole > budget) {
        const char *why = no_pieces(ctx, desc, sizes);
        Search s = {
            .ctx = ctx, .desc = desc, .sizes = sizes, .budget = budget, .least = whole, .offload = offload
        };
        status = why ? CELL_OK : search(&s);
        if (status != CELL_OK)
            return status;
        *pieces = s.best;
        *least = s.least;
        if (!s.best.count && (why || s.least == whole))
            return cell_fail(&ctx->error, CELL_TOO_SMALL,
                             "%s: a reserve of %zu bytes is too small; the least is %zu, since %s", desc->key,
                             budget, whole, why ? why : "pieces of the steps do not want less");
        if (!s.best.count)
            return cell_fail(
                &ctx->error, CELL_TOO_SMALL,
                "%s: a reserve of %zu bytes is too small; the least is %zu, and with %zu nothing is "
                "computed again",
                desc->key, budget, s.least, whole);
    }
    remember_pieces(ctx, desc, sizes, budget, offload, pieces);
    return CELL_OK;
}

/* One call in pieces. */
typedef struct Cut {
    cell_context *ctx;
    const cell_desc *desc;
    const int64_t *sizes;
    cell_pieces p;
    int backward, reverse, n_given, n_states;
    const cell_arg *list;
    int n_list, flags;
    int direct[CELL_MAX_ARGS]; /* per argument of the list: its pieces lie in it as a call takes them */
    int64_t at[CELL_MAX_ARGS]; /* else where in the workspace the piece is copied to */
    int64_t made[CELL_MAX_ARGS]; /* per argument of forward: where backward has outputs that are not read */
    int64_t state_at[MOST_STATES], carry_at[2], lengths_at;
    int64_t inner, total; /* bytes of a piece's own workspace, and of all of it */
    int copying; /* a copy was begun and not yet waited for */
    /* Per state, arguments: of forward's list initial and final; of backward's adjoint of the final and
     * of the initial one. */
    int initial[MOST_STATES], final[MOST_STATES], d_final[MOST_STATES], d_initial[MOST_STATES];
    void *const *args;
    char *reserve, *work;
    int32_t *lengths; /* of the sequences, in host memory */
    int64_t entered; /* the piece whose inputs are in the workspace; -1: none */
} Cut;

static int find_arg(const cell_arg *list, int n, int tensor, cell_role role)
{
    for (int i = 0; i < n; i++)
        if (list[i].tensor == tensor && list[i].role == role)
            return i;
    return -1;
}

static void find_states(Cut *c)
{
    const cell_desc *desc = c->desc;
    for (int i = 0; i < desc->n_forward_args; i++) {
        const cell_arg *arg = &desc->forward_args[i];
        if (arg->role != CELL_ROLE_FINAL)
            continue;
        int k = c->n_states++;
        c->final[k] = i;
        c->initial[k] = find_arg(desc->forward_args, desc->n_forward_args, arg->tensor, CELL_ROLE_VALUE);
        c->d_final[k] = find_arg(desc->backward_args, desc->n_backward_args, arg->tensor, CELL_ROLE_D_FINAL);
        c->d_initial[k] =
            find_arg(desc->backward_args, desc->n_backward_args, arg->tensor, CELL_ROLE_D_VALUE);
    }
}

static size_t alignment(const cell_context *ctx, const cell_desc *desc, cell_dtype dtype)
{
    if (!ctx->backend->launch || ctx->backend->kind == CELL_BACKEND_CPU)
        return cell_dtype_bytes(dtype);
    return desc->pointer_alignment > 0 ? (size_t)desc->pointer_alignment : 16;
}

/* Room in the workspace for the pieces of an argument, or none where one sequence has them in a row. */
static cell_status place_piece(Cut *c, const cell_arg *arg, const int64_t *piece, int *direct, int64_t *at)
{
    int64_t bytes, step, one[CELL_MAX_SIZES];
    sizes_of_piece(c->desc, c->sizes, 1, 0, one);
    cell_status status = bytes_of(c->desc, arg, piece, &bytes, &c->ctx->error);
    if (status == CELL_OK)
        status = bytes_of(c->desc, arg, one, &step, &c->ctx->error);
    if (status != CELL_OK)
        return status;
    int64_t unit = (int64_t)alignment(c->ctx, c->desc, (cell_dtype)arg->dtype);
    int64_t first = first_length(&c->p, c->sizes[CELL_SIZE_T]);
    *direct = c->sizes[CELL_SIZE_B] == 1 && step * c->p.length % unit == 0 &&
              (c->reverse || step * first % unit == 0);
    if (*direct)
        return CELL_OK;
    *at = c->total;
    c->total += aligned(bytes);
    return c->total < 0 || bytes > PTRDIFF_MAX - c->total
               ? cell_fail(&c->ctx->error, CELL_BAD_SIZE,
                           "%s: the workspace wanted has more bytes than there can be", c->desc->key)
               : CELL_OK;
}

/* Where everything lies, in the workspace and in a checkpoint. */
static cell_status lay_out(Cut *c)
{
    const cell_desc *desc = c->desc;
    int64_t piece[CELL_MAX_SIZES], in_checkpoint = 0, adjoints = 0, bytes;
    size_t inference, training;
    sizes_of_piece(desc, c->sizes, c->p.length, 0, piece);
    cell_status status = most_of_pieces(c->ctx, desc, c->sizes, &c->p, cell_inference_bytes, &inference);
    if (status == CELL_OK)
        status = most_of_pieces(c->ctx, desc, c->sizes, &c->p, cell_training_bytes, &training);
    if (status != CELL_OK)
        return status;
    c->inner = (int64_t)(inference > training ? inference : training);
    c->total = aligned(c->inner);
    for (int i = 0; status == CELL_OK && i < c->n_list; i++)
        if (is_step_wise(desc, &c->list[i]))
            status = place_piece(c, &c->list[i], piece, &c->direct[i], &c->at[i]);
    for (int i = c->n_given; status == CELL_OK && c->backward && i < desc->n_forward_args; i++) {
        int direct;
        if (!is_step_wise(desc, &desc->forward_args[i]))
            continue;
        status = place_piece(c, &desc->forward_args[i], piece, &direct, &c->made[i]);
        if (status == CELL_OK && direct) { /* what is computed again does not go where forward wrote it */
            status = bytes_of(desc, &desc->forward_args[i], piece, &bytes, &c->ctx->error);
            c->made[i] = c->total;
            c->total += aligned(bytes);
        }
    }
    for (int k = 0; status == CELL_OK && k < c->n_states; k++) {
        status = bytes_of(desc, &desc->forward_args[c->final[k]], c->sizes, &bytes, &c->ctx->error);
        c->state_at[k] = in_checkpoint;
        in_checkpoint += aligned(bytes);
        if (status == CELL_OK && c->d_final[k] >= 0)
            status = bytes_of(desc, &desc->backward_args[c->d_final[k]], c->sizes, &bytes, &c->ctx->error);
        adjoints += aligned(bytes);
    }
    for (int i = 0; c->backward && i < 2; i++) {
        c->carry_at[i] = c->total;
        c->total += adjoints;
    }
    c->lengths_at = c->total;
    c->total += is_bound(desc, "lengths") ? aligned(c->sizes[CELL_SIZE_B] * (int64_t)sizeof(int32_t)) : 0;
    return status;
}

static cell_status cut_new(Cut *c, cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                           const cell_pieces *p, int backward)
{
    memset(c, 0, sizeof *c);
    c->ctx = ctx;
    c->desc = desc;
    c->sizes = sizes;
    c->p = *p;
    c->backward = backward;
    c->reverse = is_bound(desc, "reverse");
    c->list = backward ? desc->backward_args : desc->forward_args;
    c->n_list = backward ? desc->n_backward_args : desc->n_forward_args;
    c->entered = -1;
    while (c->n_given < desc->n_forward_args && desc->forward_args[c->n_given].role == CELL_ROLE_VALUE &&
           !has_kind(desc, &desc->forward_args[c->n_given], CELL_OUTPUT))
        c->n_given++;
    find_states(c);
    return lay_out(c);
}

/* What a call in such pieces wants, forward or backward. */
static cell_status workspace_of(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                const cell_pieces *p, size_t *bytes)
{
    Cut *c = malloc(sizeof *c);
    cell_status status =
        c ? CELL_OK : cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory for a call in pieces");
    *bytes = 0;
    for (int backward = 0; status == CELL_OK && backward < 2; backward++) {
        status = cut_new(c, ctx, desc, sizes, p, backward);
        *bytes = status == CELL_OK && (size_t)c->total > *bytes ? (size_t)c->total : *bytes;
    }
    free(c);
    return status;
}

static cell_status bytes_within(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t budget,
                                int offload, size_t *reserve, size_t *host, size_t *workspace)
{
    cell_pieces p = { .count = 1 };
    size_t least = 0, need = 0;
    if (!ctx)
        return CELL_NULL_POINTER;
    cell_status status = cell_check_sizes(ctx, desc, sizes, &ctx->error);
    if (status != CELL_OK)
        return status;
    status = find_pieces(ctx, desc, sizes, budget, offload, &p, &least);
    if (status == CELL_OK && workspace)
        status = p.count == 1 ? cell_training_bytes(ctx, desc, sizes, &need)
                              : workspace_of(ctx, desc, sizes, &p, &need);
    if (reserve)
        *reserve = status == CELL_OK ? p.bytes : least;
    if (workspace)
        *workspace = need;
    if (host)
        *host = status == CELL_OK ? p.host : 0;
    return status;
}

cell_status cell_recompute_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 size_t budget, size_t *reserve, size_t *workspace)
{
    return bytes_within(ctx, desc, sizes, budget, 0, reserve, NULL, workspace);
}

cell_status cell_offload_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t budget,
                               size_t *reserve, size_t *host, size_t *workspace)
{
    return bytes_within(ctx, desc, sizes, budget, 1, reserve, host, workspace);
}

/* Steps of a piece: how many, how many of the walk's are before it, and at which row it begins. */
typedef struct Span {
    int64_t steps, before, row;
} Span;

static Span span_of(const Cut *c, int64_t piece)
{
    int64_t all = c->sizes[CELL_SIZE_T], first = first_length(&c->p, all);
    Span s = { .steps = piece ? c->p.length : first,
               .before = piece ? first + (piece - 1) * c->p.length : 0 };
    s.row = c->reverse ? all - s.before - s.steps : s.before;
    return s;
}

/* Rows of one piece between an argument and its copy in the workspace. */
static cell_status move_rows(Cut *c, const cell_arg *arg, void *whole, void *copy, const Span *s, int out)
{
    int64_t one[CELL_MAX_SIZES], step, batch = c->sizes[CELL_SIZE_B];
    sizes_of_piece(c->desc, c->sizes, 1, 0, one);
    cell_status status = bytes_of(c->desc, arg, one, &step, &c->ctx->error);
    if (status != CELL_OK || batch == 0 || step == 0)
        return status;
    step /= batch;
    cell_row_copy rows = { .to = copy, .from = (char *)whole + s->row * step };
    rows.to_pitch = (size_t)(s->steps * step);
    rows.from_pitch = (size_t)(c->sizes[CELL_SIZE_T] * step);
    if (out)
        rows = (cell_row_copy){ .to = (char *)whole + s->row * step,
                                .from = copy,
                                .to_pitch = rows.from_pitch,
                                .from_pitch = rows.to_pitch };
    rows.bytes = (size_t)(s->steps * step);
    rows.n = batch;
    const cell_backend *backend = c->ctx->backend;
    if (backend->copy_rows && rows.to_pitch <= MOST_PITCH && rows.from_pitch <= MOST_PITCH)
        return backend->copy_rows(c->ctx->self, &rows, &c->ctx->error);
    for (int64_t b = 0; status == CELL_OK && b < batch; b++)
        status =
            backend->copy(c->ctx->self, (char *)rows.to + (size_t)b * rows.to_pitch,
                          (const char *)rows.from + (size_t)b * rows.from_pitch, rows.bytes, &c->ctx->error);
    return status;
}

/* Where a call of the piece has argument i of the list. */
static void *piece_of(const Cut *c, int i, const Span *s)
{
    int64_t one[CELL_MAX_SIZES], step = 0;
    if (!c->args[i] || c->list[i].flags & CELL_ARG_IGNORED)
        return NULL;
    if (!is_step_wise(c->desc, &c->list[i]))
        return c->args[i];
    if (!c->direct[i])
        return c->work + c->at[i];
    sizes_of_piece(c->desc, c->sizes, 1, 0, one);
    if (bytes_of(c->desc, &c->list[i], one, &step, NULL) != CELL_OK)
        return NULL; /* they were counted before */
    return (char *)c->args[i] + s->row * step;
}

static cell_status piece_in(Cut *c, int i, const Span *s)
{
    if (!c->args[i] || !is_step_wise(c->desc, &c->list[i]) || c->direct[i])
        return CELL_OK;
    return move_rows(c, &c->list[i], c->args[i], c->work + c->at[i], s, 0);
}

static cell_status piece_out(Cut *c, int i, const Span *s)
{
    if (!c->args[i] || !is_step_wise(c->desc, &c->list[i]) || c->direct[i])
        return CELL_OK;
    return move_rows(c, &c->list[i], c->args[i], c->work + c->at[i], s, 1);
}

/* How many steps of this piece each sequence has. */
static cell_status put_lengths(Cut *c, const Span *s)
{
    int64_t n = c->sizes[CELL_SIZE_B];
    int32_t *lengths = malloc(sizeof *lengths * (size_t)(n + 1));
    if (!lengths)
        return cell_fail(&c->ctx->error, CELL_OUT_OF_MEMORY, "out of memory for %lld lengths", (long long)n);
    for (int64_t b = 0; b < n; b++) {
        int64_t left = c->lengths[b] - s->row;
        lengths[b] = (int32_t)(left < 0 ? 0 : left > s->steps ? s->steps : left);
    }
    cell_status status = c->ctx->backend->transfer(c->ctx->self, c->work + c->lengths_at, lengths,
                                                   sizeof *lengths * (size_t)n, &c->ctx->error);
    free(lengths);
    return status;
}

/* The inputs of a piece, where its calls read them. */
static cell_status enter(Cut *c, int64_t piece)
{
    if (c->entered == piece)
        return CELL_OK;
    Span s = span_of(c, piece);
    cell_status status = c->lengths ? put_lengths(c, &s) : CELL_OK;
    for (int i = 0; status == CELL_OK && i < c->n_given; i++)
        status = piece_in(c, i, &s);
    c->entered = status == CELL_OK ? piece : -1;
    return status;
}

/* What a call of the piece is given, in the order of both lists. */
static void give(const Cut *c, const Span *s, void *const *states, void **args)
{
    for (int i = 0; i < c->n_given; i++)
        args[i] = has_kind(c->desc, &c->list[i], CELL_LENGTHS) && c->lengths ? c->work + c->lengths_at
                                                                             : piece_of(c, i, s);
    for (int k = 0; k < c->n_states; k++)
        args[c->initial[k]] = states[k];
}

/* The states of a checkpoint; of number -1 those that the call was given. */
static void states_at(const Cut *c, int64_t slot, void **states)
{
    char *at = c->reserve + CELL_MARK_BYTES + (size_t)slot * c->p.checkpoint;
    for (int k = 0; k < c->n_states; k++)
        states[k] = slot < 0 ? c->args[c->initial[k]] : at + c->state_at[k];
}

static cell_memory memory_of(const Cut *c, int saves)
{
    cell_memory memory = { .workspace = c->inner ? c->work : NULL, .workspace_bytes = (size_t)c->inner };
    if (saves) {
        memory.reserve = c->reserve + CELL_MARK_BYTES + (size_t)c->p.slots * c->p.checkpoint;
        memory.reserve_bytes = c->p.piece;
    }
    return memory;
}

/* Forward of one piece, from the states of slot `from`. final: where the states behind it go. */
static cell_status run_piece(Cut *c, int64_t piece, int64_t from, void *const *final, int saves)
{
    const cell_desc *desc = c->desc;
    void *args[CELL_MAX_ARGS] = { 0 }, *states[MOST_STATES] = { 0 };
    int64_t sizes[CELL_MAX_SIZES];
    Span s = span_of(c, piece);
    cell_status status = enter(c, piece);
    if (status != CELL_OK)
        return status;
    sizes_of_piece(desc, c->sizes, s.steps, s.before, sizes);
    states_at(c, from, states);
    give(c, &s, states, args);
    for (int i = c->n_given; i < desc->n_forward_args; i++)
        if (is_step_wise(desc, &desc->forward_args[i]))
            args[i] = c->backward ? c->work + c->made[i] : piece_of(c, i, &s);
    for (int k = 0; k < c->n_states; k++)
        args[c->final[k]] = final ? final[k] : NULL;
    cell_memory memory = memory_of(c, saves);
    status = cell_run_forward(c->ctx, desc, sizes, args, &memory, 0);
    for (int i = c->n_given; status == CELL_OK && !c->backward && i < desc->n_forward_args; i++)
        status = piece_out(c, i, &s);
    return status;
}

/* The states in front of piece `to` in slot `kept`, from those in front of piece `from` in slot `at`. */
static cell_status advance(Cut *c, int64_t from, int64_t to, int64_t at, int64_t kept)
{
    void *states[MOST_STATES] = { 0 };
    cell_status status = CELL_OK;
    states_at(c, kept, states);
    for (int64_t piece = from; status == CELL_OK && piece < to; piece++)
        status = run_piece(c, piece, piece == from ? at : kept, states, 0);
    return status;
}

/* Checkpoints on the way to the last piece, which forward leaves: in front of which pieces they are. */
static cell_status to_last(Cut *c, int64_t *kept, int64_t *n, int run)
{
    cell_status status = CELL_OK;
    int64_t top = 0;
    *n = 0;
    while (status == CELL_OK && c->p.count - top > 1) {
        int64_t next = middle(top, c->p.count, c->p.slots - *n);
        if (run)
            status = advance(c, top, next, *n - 1, *n);
        kept[(*n)++] = top = next;
    }
    return status;
}

static cell_status forward(Cut *c, int64_t *kept)
{
    void *final[MOST_STATES] = { 0 };
    int64_t n;
    cell_status status = to_last(c, kept, &n, 1);
    for (int k = 0; k < c->n_states; k++)
        final[k] = c->args[c->final[k]];
    return status == CELL_OK ? run_piece(c, c->p.count - 1, n - 1, final, 1) : status;
}

static int wants_params(const Cut *c)
{
    for (int i = 0; i < c->n_list; i++)
        if (c->list[i].role == CELL_ROLE_D_VALUE && c->args[i] && has_kind(c->desc, &c->list[i], CELL_PARAM))
            return 1;
    return 0;
}

static cell_status clear(Cut *c, void *at, const cell_arg *arg, const int64_t *sizes)
{
    int64_t bytes;
    cell_status status = bytes_of(c->desc, arg, sizes, &bytes, &c->ctx->error);
    return status == CELL_OK && bytes
               ? c->ctx->backend->fill(c->ctx->self, at, 0, (size_t)bytes, &c->ctx->error)
               : status;
}

/* What is written by a call that adds, whether or not the caller wants that: zeros, or what is there. */
static cell_status begin_sums(Cut *c, const Span *s, void *const *args, const int64_t *sizes, int first)
{
    cell_status status = CELL_OK;
    for (int i = c->n_given; status == CELL_OK && i < c->n_list; i++) {
        const cell_arg *arg = &c->list[i];
        if (arg->role != CELL_ROLE_D_VALUE || !args[i] || has_kind(c->desc, arg, CELL_PARAM))
            continue;
        int callers = is_step_wise(c->desc, arg) || first;
        if (callers && c->flags & CELL_ACCUMULATE)
            status = piece_in(c, i, s);
        else
            status = clear(c, args[i], arg, sizes);
    }
    return status;
}

/* Adjoints of states between two pieces, by turns in one of two places. */
static void *carried(const Cut *c, int k, int64_t piece)
{
    return c->work + c->carry_at[piece % 2] + c->state_at[k];
}

/* Backward of one piece, of which the reserve is filled. */
static cell_status back_piece(Cut *c, int64_t piece, int64_t from)
{
    const cell_desc *desc = c->desc;
    void *args[CELL_MAX_ARGS] = { 0 }, *states[MOST_STATES] = { 0 };
    int64_t sizes[CELL_MAX_SIZES], last = c->p.count - 1;
    Span s = span_of(c, piece);
    int flags = c->flags & CELL_ACCUMULATE;
    if (piece != last && wants_params(c))
        flags = CELL_ACCUMULATE;
    sizes_of_piece(desc, c->sizes, s.steps, s.before, sizes);
    states_at(c, from, states);
    cell_status status = enter(c, piece);
    give(c, &s, states, args);
    for (int i = c->n_given; status == CELL_OK && i < c->n_list; i++) {
        args[i] = piece_of(c, i, &s);
        if (c->list[i].role == CELL_ROLE_D_OUT)
            status = piece_in(c, i, &s);
    }
    for (int k = 0; k < c->n_states; k++) {
        int d_initial = c->d_initial[k], d_final = c->d_final[k];
        int flows = d_initial >= 0 && d_final >= 0 && !(c->list[d_initial].flags & CELL_ARG_IGNORED);
        if (d_final >= 0 && piece != last)
            args[d_final] = flows ? carried(c, k, piece) : NULL;
        if (d_initial >= 0 && piece)
            args[d_initial] = flows ? carried(c, k, piece - 1) : NULL;
    }
    if (status == CELL_OK && flags)
        status = begin_sums(c, &s, args, sizes, piece == 0);
    cell_memory memory = memory_of(c, 1);
    if (status == CELL_OK)
        status = cell_run_backward(c->ctx, desc, sizes, args, &memory, flags);
    for (int i = c->n_given; status == CELL_OK && i < c->n_list; i++)
        if (c->list[i].role == CELL_ROLE_D_VALUE)
            status = piece_out(c, i, &s);
    return status;
}

static cell_status backward(Cut *c, int64_t *kept)
{
    int64_t n, end = c->p.count;
    cell_status status = to_last(c, kept, &n, 0);
    while (status == CELL_OK && end > 0) {
        int64_t top = n ? kept[n - 1] : 0;
        if (end - top > 1) {
            int64_t next = middle(top, end, c->p.slots - n);
            status = advance(c, top, next, n - 1, n);
            kept[n++] = next;
            continue;
        }
        if (end < c->p.count)
            status = run_piece(c, top, n - 1, NULL, 1);
        if (status == CELL_OK)
            status = back_piece(c, top, n - 1);
        end = top;
        n -= n > 0;
    }
    return status;
}

/* In the reserve is the checkpoint in front of a piece, piece 0's is the call's, here: */
static int64_t slot_of(int64_t piece)
{
    return piece ? (piece - 1) % ON_DEVICE : -1;
}

/* What is issued from here on finds the copy done that was begun, if there is one. */
static cell_status join(Cut *c)
{
    int began = c->copying;
    c->copying = 0;
    return began ? cell_copy_join(c->ctx) : CELL_OK;
}

/* Begins to copy the states in front of a piece to host memory, or back, if they are kept there. */
static cell_status begin_copy(Cut *c, int64_t piece, int back)
{
    if (piece < 1 || piece >= c->p.count - ON_DEVICE)
        return CELL_OK;
    char *host = (char *)c->ctx->host + CELL_MARK_BYTES + (size_t)(piece - 1) * c->p.checkpoint;
    char *device = c->reserve + CELL_MARK_BYTES + (size_t)slot_of(piece) * c->p.checkpoint;
    c->copying = 1;
    return cell_copy_begin(c->ctx, back ? device : host, back ? host : device, c->p.checkpoint);
}

/* Piece after piece; the copy of the states in front of one runs beside it. The next one writes where they
 * were, so that the copy is waited for between the two. */
static cell_status forward_to_host(Cut *c)
{
    void *states[MOST_STATES] = { 0 };
    int64_t last = c->p.count - 1;
    cell_status status = CELL_OK;
    for (int64_t piece = 0; status == CELL_OK && piece < last; piece++) {
        states_at(c, slot_of(piece + 1), states);
        status = run_piece(c, piece, slot_of(piece), states, 0);
        if (status == CELL_OK)
            status = join(c);
        if (status == CELL_OK)
            status = begin_copy(c, piece + 1, 0);
    }
    for (int k = 0; k < c->n_states; k++)
        states[k] = c->args[c->final[k]];
    return status == CELL_OK ? run_piece(c, last, slot_of(last), states, 1) : status;
}

/* From the last piece to the first. The states in front of a piece come back while the one behind it is
 * computed again, and its gradients are. */
static cell_status backward_from_host(Cut *c)
{
    int64_t last = c->p.count - 1;
    cell_status status = CELL_OK;
    for (int64_t piece = last; status == CELL_OK && piece >= 0; piece--) {
        if (piece < last)
            status = run_piece(c, piece, slot_of(piece), NULL, 1);
        if (status == CELL_OK)
            status = back_piece(c, piece, slot_of(piece));
        if (status == CELL_OK)
            status = join(c);
        if (status == CELL_OK)
            status = begin_copy(c, piece - ON_DEVICE, 1);
    }
    return status;
}

/* What is wrong with the host memory that the call wants. */
static cell_status check_host(const Cut *c, void *const *args, const cell_memory *memory)
{
    const cell_context *ctx = c->ctx;
    cell_error *err = &c->ctx->error;
    const char *host = ctx->host, *key = c->desc->key;
    if (!c->p.host)
        return CELL_OK;
    if (ctx->backend->graph_busy && ctx->backend->graph_busy(ctx->self))
        return cell_fail(err, CELL_UNSUPPORTED,
                         "%s: the stream is being captured, and copies of states to host memory run on "
                         "another stream",
                         key);
    if (!host)
        return cell_fail(err, CELL_NULL_POINTER,
                         "%s: CELL_OFFLOAD without host memory; wanted %zu bytes (cell_context_set_host)",
                         key, c->p.host);
    if (ctx->host_bytes < c->p.host)
        return cell_fail(err, CELL_TOO_SMALL, "%s: host memory has %zu bytes; wanted %zu", key,
                         ctx->host_bytes, c->p.host);
    for (int i = 0; i < c->n_list + 2; i++) {
        const char *at = i < c->n_list ? args[i] : i == c->n_list ? memory->reserve : memory->workspace;
        int64_t bytes = (int64_t)(i == c->n_list ? memory->reserve_bytes : memory->workspace_bytes);
        cell_status status = i < c->n_list ? bytes_of(c->desc, &c->list[i], c->sizes, &bytes, err) : CELL_OK;
        if (status != CELL_OK)
            return status;
        if (at && bytes && (uintptr_t)at < (uintptr_t)host + c->p.host &&
            (uintptr_t)host < (uintptr_t)at + (size_t)bytes)
            return cell_fail(err, CELL_BAD_ARGUMENT, "%s: host memory and %s overlap", key,
                             i == c->n_list  ? "the reserve"
                             : i > c->n_list ? "the workspace"
                                             : c->desc->tensors[c->list[i].tensor].name);
    }
    return CELL_OK;
}

/* The lengths of the sequences on the host: those of a GPU are waited for. */
static cell_status read_lengths(Cut *c)
{
    int i = 0, n = (int)c->sizes[CELL_SIZE_B];
    while (i < c->n_given && !has_kind(c->desc, &c->list[i], CELL_LENGTHS))
        i++;
    if (i == c->n_given || !c->args[i] || n == 0)
        return CELL_OK;
    const cell_backend *backend = c->ctx->backend;
    if (backend->graph_busy && backend->graph_busy(c->ctx->self))
        return cell_fail(
            &c->ctx->error, CELL_UNSUPPORTED,
            "%s: the stream is being captured, and lengths are read on the host to compute steps again",
            c->desc->key);
    c->lengths = malloc(sizeof *c->lengths * (size_t)n);
    if (!c->lengths)
        return cell_fail(&c->ctx->error, CELL_OUT_OF_MEMORY, "out of memory for %d lengths", n);
    return backend->transfer(c->ctx->self, c->lengths, c->args[i], sizeof *c->lengths * (size_t)n,
                             &c->ctx->error);
}

/* The call in pieces; everything is checked but what only a piece's own call knows. */
static cell_status run_cut(Cut *c, const cell_memory *memory)
{
    cell_context *ctx = c->ctx;
    int64_t *kept = malloc(sizeof *kept * (size_t)(c->p.slots + 1));
    cell_status status =
        kept ? read_lengths(c) : cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory for checkpoints");
    c->work = memory->workspace;
    if (status == CELL_OK && !c->work && c->total) {
        status = cell_context_workspace(ctx, (size_t)c->total);
        c->work = ctx->workspace;
    }
    if (status == CELL_OK && c->p.host)
        status = c->backward ? backward_from_host(c) : forward_to_host(c);
    else if (status == CELL_OK)
        status = c->backward ? backward(c, kept) : forward(c, kept);
    if (c->copying &&
        ctx->backend->copy_join) /* of a call that failed: done before the caller frees anything */
        ctx->backend->copy_join(ctx->self, NULL);
    free(kept);
    free(c->lengths);
    return status;
}

static cell_status run_pieces(Cut *c, void *const *args, const cell_memory *memory)
{
    size_t need[2] = { (size_t)c->total, c->p.bytes };
    cell_error *err = &c->ctx->error;
    cell_status status = CELL_OK;
    if (!memory->workspace && memory->workspace_bytes)
        status = cell_fail(err, CELL_NULL_POINTER, "%s: the workspace is null, but said to have %zu bytes",
                           c->desc->key, memory->workspace_bytes);
    if (status == CELL_OK)
        status = cell_check_args(c->ctx, c->desc, c->list, c->n_list, c->sizes, args, memory, need, err);
    c->args = args;
    c->reserve = memory->reserve;
    if (status == CELL_OK)
        status = check_host(c, args, memory);
    if (status == CELL_OK && c->p.host && !c->backward)
        c->p.call = (uint64_t)(uintptr_t)c->ctx << 16 ^ ++c->ctx->clock;
    if (status == CELL_OK && c->backward)
        status = cell_reserve_check(c->ctx, c->desc, c->sizes, c->reserve, &c->p);
    if (status != CELL_OK)
        return status;
    status = run_cut(c, memory);
    if (c->backward)
        return status;
    cell_status marked = cell_reserve_mark(c->ctx, c->desc, c->sizes, c->reserve, status == CELL_OK, &c->p);
    return status == CELL_OK ? marked : status;
}

cell_status cell_run_recompute(cell_context *ctx, const cell_desc *desc, int is_backward,
                               const int64_t *sizes, void *const *args, const cell_memory *memory, int flags,
                               int *whole)
{
    cell_pieces p = { .count = 1 };
    size_t least;
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK)
        status = cell_check_sizes(ctx, desc, sizes, &ctx->error);
    if (status == CELL_OK && memory && memory->reserve)
        status = find_pieces(ctx, desc, sizes, memory->reserve_bytes, !!(flags & CELL_OFFLOAD), &p, &least);
    flags &= ~CELL_OFFLOAD;
    *whole =
        p.count == 1 || flags & ~(is_backward ? CELL_ACCUMULATE : 0); /* where wrong flags are reported */
    if (status != CELL_OK || *whole)
        return status;
    Cut *c = malloc(sizeof *c);
    if (!c)
        return cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory for a call in pieces");
    status = cut_new(c, ctx, desc, sizes, &p, is_backward);
    c->flags = flags;
    if (status == CELL_OK)
        status = run_pieces(c, args, memory);
    free(c);
    return status;
}
