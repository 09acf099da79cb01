/* Calls whose reserve has a budget, with the cell of toy_cell.h: for every number of steps up to some, and
 * every budget from the least to all, gradients have the bits of the call without one. Numbers are whole
 * and small, so that no sum is rounded, whatever its order. Memory has just the bytes that were asked for,
 * with a guard behind them. What is computed again is counted. The same with CELL_OFFLOAD, on backends that
 * copy at once, and that copy when something waits for it; and the order of pieces and copies. */
#include "context.h"
#include "expect.h"
#include "toy_cell.h"

enum { DIM = 8, MOST_B = 3, MOST_T = 130, MOST = MOST_B * MOST_T * DIM, GUARD = 256 };

typedef struct Tensors {
    float x[MOST], w[DIM * DIM], h0[MOST_B * DIM], y[MOST], ht[MOST_B * DIM], dy[MOST], dht[MOST_B * DIM];
    float dx[MOST], dw[DIM * DIM], dh0[MOST_B * DIM];
} Tensors;

static Tensors whole, cut;
static int counting; /* the backend counts every launch */
static int offload; /* CELL_OFFLOAD, or 0 */
static size_t host; /* bytes of host memory that calls are given */

static float small(void)
{
    static uint32_t state = 7;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 24) / 64 - 2 < 0 ? -1 : (float)((state >> 20) % 3);
}

/* A matrix that moves what is in the state one place on, so that no number grows with the steps. */
static void set_up(Tensors *t)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < MOST; i++)
        t->x[i] = small(), t->dy[i] = small();
    for (int i = 0; i < MOST_B * DIM; i++)
        t->h0[i] = small(), t->dht[i] = small();
    for (int i = 0; i + 1 < DIM; i++)
        t->w[i * DIM + i + 1] = 1;
}

/* Gradients begin with numbers that a call with CELL_ACCUMULATE adds to, and another does not see. */
static void start(Tensors *t)
{
    for (int i = 0; i < MOST; i++)
        t->dx[i] = (float)(i % 5), t->y[i] = -1;
    for (int i = 0; i < DIM * DIM; i++)
        t->dw[i] = (float)(i % 7);
    for (int i = 0; i < MOST_B * DIM; i++)
        t->dh0[i] = (float)(i % 3), t->ht[i] = -1;
}

typedef struct Room {
    char *at;
    size_t bytes;
} Room;

static Room room_of(size_t bytes)
{
    Room room = { aligned_alloc(256, (bytes + GUARD + 255) / 256 * 256), bytes };
    if (!room.at)
        abort();
    memset(room.at, 0xff, bytes);
    memset(room.at + bytes, 0xa5, GUARD);
    return room;
}

static void close_room(Room *room, const char *what)
{
    int whole_guard = 1;
    for (size_t i = 0; i < GUARD; i++)
        whole_guard &= (unsigned char)room->at[room->bytes + i] == 0xa5;
    EXPECT(whole_guard, "%s of %zu bytes: written behind its end", what, room->bytes);
    free(room->at);
}

/* What a call is given, and what it wants. */
typedef struct Variant {
    int states, inputs, flags;
} Variant;

static cell_status run(cell_context *ctx, Tensors *t, const int64_t *sizes, const Variant *v, size_t reserve,
                       size_t workspace, int flags)
{
    Room kept = room_of(reserve), scratch = room_of(workspace), beside = room_of(host);
    void *f[] = { t->x, t->w, v->states ? t->h0 : NULL, t->y, v->states ? t->ht : NULL };
    void *b[] = { t->x,
                  t->w,
                  v->states ? t->h0 : NULL,
                  t->dy,
                  v->states ? t->dht : NULL,
                  v->inputs ? t->dx : NULL,
                  t->dw,
                  v->states ? t->dh0 : NULL };
    cell_memory memory = { workspace ? scratch.at : NULL, workspace, kept.at, reserve };
    cell_context_set_host(ctx, host ? beside.at : NULL, host);
    start(t);
    cell_status status = cell_run_forward(ctx, &toy_desc, sizes, f, &memory, flags);
    memset(scratch.at, 0xff, workspace);
    if (status == CELL_OK)
        status = cell_run_backward(ctx, &toy_desc, sizes, b, &memory, flags | v->flags);
    close_room(&kept, "the reserve");
    close_room(&scratch, "the workspace");
    cell_context_set_host(ctx, NULL, 0);
    close_room(&beside, "host memory");
    return status;
}

static int same(const Tensors *a, const Tensors *b)
{
    return !memcmp(a->y, b->y, sizeof a->y) && !memcmp(a->ht, b->ht, sizeof a->ht) &&
           !memcmp(a->dx, b->dx, sizeof a->dx) && !memcmp(a->dw, b->dw, sizeof a->dw) &&
           !memcmp(a->dh0, b->dh0, sizeof a->dh0);
}

static int steps_run(void)
{
    return toy_counts.launches;
}

static cell_status bytes_for(cell_context *ctx, const int64_t *sizes, size_t budget, size_t *reserve,
                             size_t *workspace)
{
    host = 0;
    return offload ? cell_offload_bytes(ctx, &toy_desc, sizes, budget, reserve, &host, workspace)
                   : cell_recompute_bytes(ctx, &toy_desc, sizes, budget, reserve, workspace);
}

static void budget(cell_context *ctx, const int64_t *sizes, const Variant *v, size_t bytes, int *launches)
{
    size_t reserve, workspace;
    cell_status status = bytes_for(ctx, sizes, bytes, &reserve, &workspace);
    EXPECT(status == CELL_OK && reserve <= bytes, "%zu bytes for %zu: %s", reserve, bytes,
           cell_last_error(ctx));
    if (status != CELL_OK)
        return;
    set_up(&cut);
    memcpy(cut.x, whole.x, sizeof cut.x), memcpy(cut.dy, whole.dy, sizeof cut.dy);
    memcpy(cut.h0, whole.h0, sizeof cut.h0), memcpy(cut.dht, whole.dht, sizeof cut.dht);
    int before = steps_run();
    status = run(ctx, &cut, sizes, v, reserve, workspace, CELL_RECOMPUTE | offload);
    *launches = steps_run() - before;
    EXPECT(status == CELL_OK && same(&whole, &cut), "B %lld, T %lld, %zu bytes: %s", (long long)sizes[0],
           (long long)sizes[1], bytes, status == CELL_OK ? "other bits" : cell_last_error(ctx));
}

static void all_budgets(cell_context *ctx, int64_t b, int64_t t, const Variant *v, size_t stride)
{
    const int64_t sizes[] = { b, t, DIM, 0 };
    size_t all, least, workspace;
    int before, plain, launches = 0;
    cell_reserve_bytes(ctx, &toy_desc, sizes, &all);
    cell_training_bytes(ctx, &toy_desc, sizes, &workspace);
    set_up(&whole);
    before = steps_run();
    EXPECT(run(ctx, &whole, sizes, v, all, workspace, 0) == CELL_OK, "%s", cell_last_error(ctx));
    plain = steps_run() - before;
    if (bytes_for(ctx, sizes, 1, &least, NULL) == CELL_OK) {
        EXPECT(all == 0, "nothing is cut, and %zu bytes are wanted", all);
        return;
    }
    EXPECT(bytes_for(ctx, sizes, least - 1, NULL, NULL) == CELL_TOO_SMALL, "less than the least");
    EXPECT(strstr(cell_last_error(ctx), "the least is") != NULL, "%s", cell_last_error(ctx));
    for (size_t bytes = least; bytes < all; bytes += stride) {
        budget(ctx, sizes, v, bytes, &launches);
        EXPECT(!counting || (launches > plain && launches <= plain + (int)((offload ? 2 : 5) * t)),
               "%d launches, %d without a budget", launches, plain);
    }
    budget(ctx, sizes, v, all, &launches);
    EXPECT(!counting || launches == plain, "%d launches with room for all, %d without a budget", launches,
           plain);
}

/* What one level takes costs one more pass at most, and two levels take less. */
static void levels(cell_context *ctx)
{
    static const Variant v = { 1, 1, 0 };
    const int64_t sizes[] = {
        3, 100, DIM, 0
    }; /* a checkpoint and a step of the reserve have 96 bytes, kept at multiples of 256 */
    size_t least, all;
    int launches = 0, before;
    cell_reserve_bytes(ctx, &toy_desc, sizes, &all);
    cell_recompute_bytes(ctx, &toy_desc, sizes, 1, &least, NULL);
    set_up(&whole);
    before = steps_run();
    EXPECT(run(ctx, &whole, sizes, &v, all, 1 << 20, 0) == CELL_OK, "%s", cell_last_error(ctx));
    int plain = steps_run() - before;
    budget(ctx, sizes, &v, least, &launches);
    EXPECT(launches > plain + 100, "%d launches for %d: the least is one level", launches, plain);
    budget(ctx, sizes, &v, all - 1, &launches);
    EXPECT(launches <= plain + 51, "%d launches for %d: what has room is computed again", launches, plain);
}

static void refusals(cell_context *ctx)
{
    static const Variant v = { 1, 1, 0 };
    const int64_t sizes[] = { 2, 60, DIM, 0 };
    size_t least, all, workspace;
    cell_reserve_bytes(ctx, &toy_desc, sizes, &all);
    cell_recompute_bytes(ctx, &toy_desc, sizes, 1, &least, NULL);
    cell_recompute_bytes(ctx, &toy_desc, sizes, least, NULL, &workspace);
    EXPECT(run(ctx, &cut, sizes, &v, least, workspace, 0) == CELL_TOO_SMALL, "less without the flag: %s",
           cell_last_error(ctx));
    EXPECT(run(ctx, &cut, sizes, &v, least, workspace - 1, CELL_RECOMPUTE) == CELL_TOO_SMALL, "workspace: %s",
           cell_last_error(ctx));
    EXPECT(run(ctx, &cut, sizes, &v, least - 1, workspace, CELL_RECOMPUTE) == CELL_TOO_SMALL, "reserve: %s",
           cell_last_error(ctx));
    EXPECT(cell_recompute_bytes(NULL, &toy_desc, sizes, least, NULL, NULL) == CELL_NULL_POINTER,
           "no context");

    Room kept = room_of(all);
    void *f[] = { cut.x, cut.w, NULL, cut.y, NULL },
         *b[] = { cut.x, cut.w, NULL, cut.dy, NULL, cut.dx, cut.dw, NULL };
    cell_memory memory = { NULL, 0, kept.at, all - 1 }, more = { NULL, 0, kept.at, all };
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, CELL_RECOMPUTE) == CELL_OK, "%s",
           cell_last_error(ctx));
    EXPECT(cell_run_backward(ctx, &toy_desc, sizes, b, &more, 0) == CELL_BAD_ARGUMENT,
           "cut, and backward not");
    EXPECT(strstr(cell_last_error(ctx), "in other pieces") != NULL, "%s", cell_last_error(ctx));
    EXPECT(cell_run_backward(ctx, &toy_desc, sizes, b, &memory, CELL_RECOMPUTE) == CELL_OK, "%s",
           cell_last_error(ctx));
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, NULL, CELL_RECOMPUTE) == CELL_OK, "inference: %s",
           cell_last_error(ctx));
    EXPECT(cell_run_step(ctx, &toy_desc, (int64_t[]){ 2, 1, DIM, 0 }, f, NULL, CELL_RECOMPUTE) ==
               CELL_BAD_ARGUMENT,
           "a step");
    close_room(&kept, "the reserve");
}

static int busy; /* the stream is being captured */

static int is_busy(void *self)
{
    (void)self;
    return busy;
}

/* The same without graphs, which would leave launches uncounted. */
static const cell_backend *plain_backend(void)
{
    static cell_backend backend;
    backend = *toy_backend();
    backend.graph_begin = NULL;
    backend.graph_busy = is_busy;
    return &backend;
}

/* What happens: P something ran, > a copy to host memory was begun, < one from there, j copies are waited for. */
static struct Events {
    char text[400];
    int used, launches, held; /* copies begun and not yet made */
    const char *host;
    void *to;
    const void *from;
    size_t bytes;
} events;

static void note(char what)
{
    int ran = events.launches != steps_run();
    events.launches = steps_run();
    for (int i = !ran; i < 2 && events.used + 1 < (int)sizeof events.text; i++)
        if (i == 0 || what)
            events.text[events.used++] = i == 0 ? 'P' : what;
}

/* As late as can be: when something waits for it. What overwrites what is copied, or reads it before, is seen. */
static cell_status late_begin(void *self, void *to, const void *from, size_t bytes, cell_error *err)
{
    (void)self, (void)err;
    note(to == (void *)events.host ||
                 ((const char *)to > events.host && (const char *)to < events.host + host)
             ? '>'
             : '<');
    EXPECT(!events.held, "a second copy before the first is waited for");
    events.held = 1;
    events.to = to, events.from = from, events.bytes = bytes;
    return CELL_OK;
}

static cell_status late_join(void *self, cell_error *err)
{
    (void)self, (void)err;
    note('j');
    if (events.held)
        memcpy(events.to, events.from, events.bytes);
    events.held = 0;
    return CELL_OK;
}

static const cell_backend *late_backend(void)
{
    static cell_backend backend;
    backend = *plain_backend();
    backend.copy_begin = late_begin;
    backend.copy_join = late_join;
    return &backend;
}

static void expect_events(const char *wanted, const char *what)
{
    note(0);
    events.text[events.used] = 0;
    EXPECT(strcmp(events.text, wanted) == 0, "%s: %s, wanted %s", what, events.text, wanted);
    events.used = 0;
}

/* A budget for pieces of `length` steps of 50, with two checkpoints. */
static size_t budget_for(cell_context *ctx, const int64_t *sizes, int64_t length, size_t *states)
{
    size_t piece;
    *states = ((size_t)sizes[0] * DIM * sizeof(float) + CELL_ALIGNMENT - 1) / CELL_ALIGNMENT * CELL_ALIGNMENT;
    cell_reserve_bytes(ctx, &toy_desc, (int64_t[]){ sizes[0], length, DIM, 0 }, &piece);
    return CELL_MARK_BYTES + 2 * *states + piece;
}

/* A copy is begun behind the piece that made, or last read, the states, and is waited for behind the next piece. */
static void order(cell_context *ctx)
{
    const int64_t sizes[] = { 3, 50, DIM, 0 };
    size_t states, reserve, bytes = budget_for(ctx, sizes, 10, &states);
    EXPECT(cell_offload_bytes(ctx, &toy_desc, sizes, bytes, &reserve, &host, NULL) == CELL_OK &&
               reserve == bytes && host == CELL_MARK_BYTES + 2 * states,
           "%zu bytes and %zu of the host for %zu: %s", reserve, host, bytes, cell_last_error(ctx));
    Room kept = room_of(reserve), beside = room_of(host);
    void *f[] = { cut.x, cut.w, NULL, cut.y, NULL },
         *b[] = { cut.x, cut.w, NULL, cut.dy, NULL, cut.dx, cut.dw, NULL };
    cell_memory memory = { NULL, 0, kept.at, reserve };
    cell_context_set_host(ctx, beside.at, host);
    events = (struct Events){ .host = beside.at, .launches = steps_run() };
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, CELL_RECOMPUTE | CELL_OFFLOAD) == CELL_OK,
           "%s", cell_last_error(ctx));
    expect_events("P>Pj>PjP", "forward of five pieces");
    EXPECT(cell_run_backward(ctx, &toy_desc, sizes, b, &memory, CELL_RECOMPUTE | CELL_OFFLOAD) == CELL_OK,
           "%s", cell_last_error(ctx));
    expect_events("P<Pj<PjP", "backward of five pieces");
    close_room(&kept, "the reserve");
    close_room(&beside, "host memory");
    cell_context_set_host(ctx, NULL, 0);
}

static int says(cell_context *ctx, const char *words)
{
    return strstr(cell_last_error(ctx), words) != NULL;
}

static void host_refusals(cell_context *ctx)
{
    const int64_t sizes[] = { 2, 60, DIM, 0 };
    size_t states, reserve, least, all, bytes = budget_for(ctx, sizes, 10, &states);
    int both = CELL_RECOMPUTE | CELL_OFFLOAD;
    cell_reserve_bytes(ctx, &toy_desc, sizes, &all);
    EXPECT(cell_offload_bytes(ctx, &toy_desc, sizes, all, &reserve, &host, NULL) == CELL_OK &&
               reserve == all && host == 0,
           "with room for all %zu bytes, and %zu of the host", reserve, host);
    EXPECT(cell_offload_bytes(NULL, &toy_desc, sizes, all, NULL, NULL, NULL) == CELL_NULL_POINTER,
           "no context");
    EXPECT(cell_offload_bytes(ctx, &toy_desc, sizes, 1, &least, &host, NULL) == CELL_TOO_SMALL && host == 0 &&
               least == budget_for(ctx, sizes, 1, &states),
           "the least is %zu", least);
    cell_offload_bytes(ctx, &toy_desc, sizes, bytes, &reserve, &host, NULL);
    Room kept = room_of(bytes), beside = room_of(host), other = room_of(host);
    void *f[] = { cut.x, cut.w, NULL, cut.y, NULL },
         *b[] = { cut.x, cut.w, NULL, cut.dy, NULL, cut.dx, cut.dw, NULL };
    cell_memory memory = { NULL, 0, kept.at, reserve };
    EXPECT(cell_context_set_host(ctx, NULL, 5) == CELL_NULL_POINTER && says(ctx, "5 bytes"), "%s",
           cell_last_error(ctx));
    EXPECT(cell_context_set_host(NULL, NULL, 0) == CELL_NULL_POINTER, "no context");
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, CELL_OFFLOAD) == CELL_BAD_ARGUMENT, "%s",
           cell_last_error(ctx));
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, both) == CELL_NULL_POINTER &&
               says(ctx, "without host memory"),
           "%s", cell_last_error(ctx));
    cell_context_set_host(ctx, beside.at, host - 1);
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, both) == CELL_TOO_SMALL &&
               says(ctx, "host memory has"),
           "%s", cell_last_error(ctx));
    cell_context_set_host(ctx, kept.at + 1, host);
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, both) == CELL_BAD_ARGUMENT &&
               says(ctx, "host memory and the reserve overlap"),
           "%s", cell_last_error(ctx));
    cell_context_set_host(ctx, cut.x, host);
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, both) == CELL_BAD_ARGUMENT &&
               says(ctx, "host memory and x overlap"),
           "%s", cell_last_error(ctx));
    cell_context_set_host(ctx, other.at, host);
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, both) == CELL_OK, "%s", cell_last_error(ctx));
    cell_context_set_host(ctx, beside.at, host);
    EXPECT(cell_run_backward(ctx, &toy_desc, sizes, b, &memory, both) == CELL_BAD_ARGUMENT &&
               says(ctx, "backward's host memory holds nothing"),
           "%s", cell_last_error(ctx));
    EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, both) == CELL_OK, "%s", cell_last_error(ctx));
    cell_context_set_host(ctx, other.at, host);
    EXPECT(cell_run_backward(ctx, &toy_desc, sizes, b, &memory, both) == CELL_BAD_ARGUMENT &&
               says(ctx, "in another call than the host memory"),
           "%s", cell_last_error(ctx));
    EXPECT(cell_run_backward(ctx, &toy_desc, sizes, b, &memory, CELL_RECOMPUTE) == CELL_BAD_ARGUMENT &&
               says(ctx, "in other pieces"),
           "%s", cell_last_error(ctx));
    cell_context_set_host(ctx, beside.at, host);
    EXPECT(cell_run_backward(ctx, &toy_desc, sizes, b, &memory, both) == CELL_OK, "%s", cell_last_error(ctx));
    if (ctx->backend->graph_busy == is_busy) {
        busy = 1;
        EXPECT(cell_run_forward(ctx, &toy_desc, sizes, f, &memory, both) == CELL_UNSUPPORTED &&
                   says(ctx, "is being captured"),
               "%s", cell_last_error(ctx));
        busy = 0;
    }
    cell_context_set_host(ctx, NULL, 0);
    close_room(&kept, "the reserve"), close_room(&beside, "host memory"), close_room(&other, "host memory");
}

int main(void)
{
    static const Variant variants[] = {
        { 1, 1, 0 }, { 0, 1, 0 }, { 1, 0, 0 }, { 1, 1, CELL_ACCUMULATE }, { 0, 0, CELL_ACCUMULATE }
    };
    cell_context *toy, *reference, *plain, *late;
    EXPECT(cell_context_create_with(&toy, toy_backend(), 0, NULL, 0) == CELL_OK, "toy context");
    EXPECT(cell_context_create_with(&plain, plain_backend(), 0, NULL, 0) == CELL_OK, "plain context");
    EXPECT(cell_context_create(&reference, CELL_BACKEND_REFERENCE, 0, NULL, 0) == CELL_OK,
           "reference context");
    EXPECT(cell_context_create_with(&late, late_backend(), 0, NULL, 0) == CELL_OK, "late context");
    cell_context *const contexts[] = { toy, plain, reference, late };
    for (int i = 0; i < 7; i++) {
        cell_context *ctx = contexts[(i + 1) % 4];
        counting = ctx == plain || ctx == late;
        offload = i < 3 ? 0 : CELL_OFFLOAD;
        for (int64_t t = 0; t <= 40; t++)
            all_budgets(ctx, 1 + t % 3, t, &variants[t % 5], 64);
        for (int k = 0; k < 5; k++)
            all_budgets(ctx, MOST_B, MOST_T, &variants[k], 1000);
        if (offload)
            host_refusals(ctx);
        else
            refusals(ctx);
    }
    offload = 0;
    levels(plain);
    order(late);
    for (int i = 0; i < 4; i++)
        cell_context_destroy(contexts[i]);
    return report();
}
