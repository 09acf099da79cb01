/* Stores of sessions against plain calls of one sequence: random opens, closes, forks, steps, prefills,
 * calls taken back, and sessions that move between stores and backends as bytes; then bytes that are
 * broken, and what is refused. usage: sessions [SEED]. */
#include "cell_plan.h"
#include "cell_sessions.h"
#include "half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/expect.h"

#define DECLARE(name) const struct cell_desc *name##_instance(void);
#define LIST(name) name##_instance,
#include "instances.h"
INSTANCES_OF(DECLARE)
static const struct cell_desc *(*const instances[])(void) = { INSTANCES_OF(LIST) };

enum { CAPACITY = 5, BACK = 3, MOST_STATES = 8, MOST_ARGS = 64, LONGEST = 5 };

static uint64_t seed = 1;

static unsigned draw(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static double number(void)
{
    return (double)draw(2000001) / 1000000 - 1;
}

static double get(const void *p, int64_t i, int dtype)
{
    return dtype == CELL_F64    ? ((const double *)p)[i]
           : dtype == CELL_F32  ? ((const float *)p)[i]
           : dtype == CELL_BF16 ? cell_bf16_to_f32(((const uint16_t *)p)[i])
           : dtype == CELL_F16  ? cell_f16_to_f32(((const uint16_t *)p)[i])
                                : ((const int32_t *)p)[i];
}

static void set(void *p, int64_t i, int dtype, double v)
{
    if (dtype == CELL_F64)
        ((double *)p)[i] = v;
    else if (dtype == CELL_F32)
        ((float *)p)[i] = (float)v;
    else if (dtype == CELL_BF16)
        ((uint16_t *)p)[i] = cell_f32_to_bf16((float)v);
    else if (dtype == CELL_F16)
        ((uint16_t *)p)[i] = cell_f32_to_f16((float)v);
    else
        ((int32_t *)p)[i] = 0;
}

typedef struct Cell {
    cell_context *ctx;
    const cell_desc *desc;
    int64_t sizes[CELL_MAX_SIZES];
    void *args[MOST_ARGS]; /* params, inputs and outputs for CAPACITY sequences */
    int n_states, value[MOST_STATES], final[MOST_STATES];
    int64_t elements[MOST_STATES];
    cell_keep keep;
    double close; /* what outputs may differ by */
} Cell;

/* What a session should be: its states after each call that can be taken back. */
typedef struct Model {
    int open, session, n;
    int64_t steps[BACK + 2];
    int begun[BACK + 2];
    void *states[BACK + 2][MOST_STATES];
} Model;

static int64_t count(const Cell *c, int arg, int64_t B, int64_t T)
{
    int64_t sizes[CELL_MAX_SIZES], n = 0;
    memcpy(sizes, c->sizes, sizeof sizes);
    sizes[CELL_SIZE_B] = B;
    sizes[CELL_SIZE_T] = T;
    cell_arg_elements(c->desc, &c->desc->forward_args[arg], sizes, &n);
    return n;
}

static size_t bytes_of(const Cell *c, int arg, int64_t n)
{
    return (size_t)n * cell_dtype_bytes((cell_dtype)c->desc->forward_args[arg].dtype);
}

static int is_state(const Cell *c, int arg)
{
    return c->desc->tensors[c->desc->forward_args[arg].tensor].kind == CELL_STATE;
}

static void open_cell(Cell *c, const cell_desc *desc, cell_backend_kind kind, cell_keep keep)
{
    char why[200];
    *c = (Cell){ .desc = desc, .keep = keep };
    EXPECT(cell_context_create(&c->ctx, kind, 0, why, sizeof why) == CELL_OK, "%s", why);
    for (int i = 0; i < desc->n_sizes; i++)
        c->sizes[i] = desc->room && i == desc->room ? 64 : 8;
    c->sizes[desc->n_sizes - 1] = 0;
    c->sizes[0] = c->sizes[1] = 1;
    uint64_t kept = seed;
    seed = 77; /* the same params everywhere */
    for (int i = 0; i < desc->n_forward_args; i++) {
        const cell_arg *arg = &desc->forward_args[i];
        if (is_state(c, i)) {
            if (arg->role != CELL_ROLE_VALUE)
                continue;
            int s = c->n_states++;
            c->value[s] = i;
            c->elements[s] = count(c, i, 1, 1);
            for (int k = 0; k < desc->n_forward_args; k++)
                if (desc->forward_args[k].role == CELL_ROLE_FINAL &&
                    desc->forward_args[k].tensor == arg->tensor)
                    c->final[s] = k;
            continue;
        }
        int64_t n = count(c, i, CAPACITY, LONGEST);
        c->args[i] = aligned_alloc(256, (bytes_of(c, i, n) + 511) / 256 * 256);
        for (int64_t e = 0; e < n && desc->tensors[arg->tensor].kind == CELL_PARAM; e++)
            set(c->args[i], e, arg->dtype, 0.4 * number());
    }
    seed = kept;
}

static void close_cell(Cell *c)
{
    for (int i = 0; i < c->desc->n_forward_args; i++)
        free(c->args[i]);
    cell_context_destroy(c->ctx);
}

/* What the store does to a state of f32 between calls, written from the header's words. */
static void keep_as(const Cell *c, void *state, int s)
{
    if (c->desc->forward_args[c->value[s]].dtype != CELL_F32)
        return;
    float *x = state;
    for (int64_t e = 0; c->keep == CELL_KEEP_BF16 && e < c->elements[s]; e++)
        x[e] = cell_bf16_to_f32(cell_f32_to_bf16(x[e]));
    for (int64_t first = 0; c->keep == CELL_KEEP_INT8 && first < c->elements[s]; first += 64) {
        int64_t end = first + 64 < c->elements[s] ? first + 64 : c->elements[s];
        float most = 0;
        for (int64_t e = first; e < end; e++)
            most = fabsf(x[e]) > most ? fabsf(x[e]) : most;
        for (int64_t e = first; e < end && most > 0; e++)
            x[e] = (float)lrintf(x[e] / most * 127.0f) * (most / 127.0f);
    }
}

static void forget(Model *m, int i)
{
    for (int s = 0; s < MOST_STATES; s++)
        free(m->states[i][s]);
    memset(m->states[i], 0, sizeof m->states[i]);
}

static void copy_states(const Cell *c, void **to, void **from)
{
    for (int s = 0; s < c->n_states; s++) {
        size_t bytes = bytes_of(c, c->value[s], c->elements[s]);
        to[s] = aligned_alloc(256, (bytes + 511) / 256 * 256);
        if (from[s])
            memcpy(to[s], from[s], bytes);
    }
}

/* The session's next call, by itself; outputs are compared with row `b` of what the store gave. */
static void follow(Cell *c, Model *m, int back, int64_t b, int64_t T, char which)
{
    void *list[MOST_ARGS], *made[MOST_ARGS] = { 0 };
    int64_t sizes[CELL_MAX_SIZES];
    int last = m->n - 1;
    memcpy(sizes, c->sizes, sizeof sizes);
    sizes[CELL_SIZE_T] = T;
    sizes[c->desc->n_sizes - 1] = c->desc->counts_steps ? m->steps[last] : 0;
    void *none[MOST_STATES] = { 0 };
    copy_states(c, m->states[m->n], none);
    for (int i = 0; i < c->desc->n_forward_args; i++) {
        const cell_arg *arg = &c->desc->forward_args[i];
        int64_t n = count(c, i, 1, T);
        list[i] = c->args[i];
        if (is_state(c, i) || c->desc->tensors[arg->tensor].kind == CELL_PARAM)
            continue;
        list[i] = made[i] = aligned_alloc(256, (bytes_of(c, i, n) + 511) / 256 * 256);
        memcpy(made[i], (char *)c->args[i] + (size_t)b * bytes_of(c, i, n), bytes_of(c, i, n));
    }
    for (int s = 0; s < c->n_states; s++) {
        list[c->value[s]] = m->begun[last] ? m->states[last][s] : NULL;
        list[c->final[s]] = m->states[m->n][s];
    }
    cell_status status = which == 's' ? cell_run_step(c->ctx, c->desc, sizes, list, NULL, 0)
                                      : cell_run_forward(c->ctx, c->desc, sizes, list, NULL, 0);
    EXPECT(status == CELL_OK, "%s", cell_last_error(c->ctx));
    for (int i = 0; i < c->desc->n_forward_args; i++) {
        const cell_arg *arg = &c->desc->forward_args[i];
        int64_t n = made[i] ? count(c, i, 1, T) : 0;
        double worst = 0;
        for (int64_t e = 0; e < n && c->desc->tensors[arg->tensor].kind == CELL_OUTPUT; e++) {
            double mine = get(made[i], e, arg->dtype), its = get(c->args[i], b * n + e, arg->dtype);
            double off = fabs(mine - its) / (1 + fabs(mine));
            worst = off > worst || off != off ? off : worst;
        }
        EXPECT(worst <= c->close, "%s on %s, keep %d, %c: output %d is off by %g", c->desc->key,
               cell_backend_name(c->ctx), (int)c->keep, which, i, worst);
        free(made[i]);
    }
    for (int s = 0; s < c->n_states; s++)
        keep_as(c, m->states[m->n][s], s);
    m->steps[m->n] = m->steps[last] + T;
    m->begun[m->n++] = 1;
    if (m->n <= back + 1)
        return;
    forget(m, 0);
    m->n--;
    memmove(m->states, m->states + 1, sizeof *m->states * (size_t)m->n);
    memmove(m->steps, m->steps + 1, sizeof *m->steps * (size_t)m->n);
    memmove(m->begun, m->begun + 1, sizeof *m->begun * (size_t)m->n);
    memset(m->states[m->n], 0, sizeof m->states[m->n]);
}

static void forget_all(Model *m)
{
    for (int i = 0; i < BACK + 2; i++)
        forget(m, i);
    *m = (Model){ 0 };
}

static void begin(Model *m, int session)
{
    *m = (Model){ .open = 1, .session = session, .n = 1 };
}

static Model *find(Model *models, int open)
{
    int first = (int)draw(CAPACITY);
    for (int i = 0; i < CAPACITY; i++)
        if (models[(first + i) % CAPACITY].open == open)
            return &models[(first + i) % CAPACITY];
    return NULL;
}

static void call(Cell *c, cell_sessions *store, Model *models, int back)
{
    int32_t sessions[CAPACITY];
    Model *batch[CAPACITY];
    int n = 0, prefill = draw(4) == 0;
    int64_t T = prefill ? 1 + draw(LONGEST) : 1;
    int first = (int)draw(CAPACITY);
    for (int i = 0; i < CAPACITY; i++) {
        Model *m = &models[(first + i) % CAPACITY];
        if (!m->open || draw(4) == 0)
            continue;
        batch[n] = m;
        sessions[n++] = m->session;
    }
    for (int i = 0; i < c->desc->n_forward_args; i++) {
        const cell_arg *arg = &c->desc->forward_args[i];
        if (c->desc->tensors[arg->tensor].kind == CELL_INPUT)
            for (int64_t e = 0; e < count(c, i, n, T); e++)
                set(c->args[i], e, arg->dtype, number());
    }
    cell_status status = prefill ? cell_sessions_prefill(store, sessions, n, T, c->args)
                                 : cell_sessions_step(store, sessions, n, c->args);
    EXPECT(status == CELL_OK, "%s: %s", c->desc->key, cell_last_error(c->ctx));
    for (int i = 0; i < n; i++)
        follow(c, batch[i], back, i, T, prefill ? 'f' : 's');
}

static void fork_one(Cell *c, cell_sessions *store, Model *models)
{
    Model *from = find(models, 1), *to = find(models, 0);
    int32_t session = -7;
    if (!from || !to) {
        if (from)
            EXPECT(cell_sessions_fork(store, from->session, &session) == CELL_TOO_SMALL,
                   "a full store forks");
        return;
    }
    EXPECT(cell_sessions_fork(store, from->session, &session) == CELL_OK, "%s", cell_last_error(c->ctx));
    begin(to, session);
    to->n = from->n;
    for (int i = 0; i < from->n; i++) {
        to->steps[i] = from->steps[i];
        to->begun[i] = from->begun[i];
        if (from->begun[i])
            copy_states(c, to->states[i], from->states[i]);
    }
}

/* Out of one store, into another, and then on there. */
static void move_one(Cell *c, cell_sessions *store, Model *models, cell_sessions *other)
{
    Model *m = find(models, 1);
    size_t need = 0;
    int32_t there, back;
    if (!m)
        return;
    EXPECT(cell_sessions_save(store, m->session, NULL, 0, &need) == CELL_OK && need > 80, "%s",
           cell_last_error(c->ctx));
    void *blob = malloc(need), *again = malloc(need);
    EXPECT(cell_sessions_save(store, m->session, blob, need - 1, NULL) == CELL_TOO_SMALL,
           "saved into too few bytes");
    EXPECT(cell_sessions_save(store, m->session, blob, need, NULL) == CELL_OK, "%s", cell_last_error(c->ctx));
    EXPECT(cell_sessions_load(other, blob, need, &there) == CELL_OK, "%s",
           "the other store does not take a session");
    EXPECT(cell_sessions_save(other, there, again, need, NULL) == CELL_OK && memcmp(blob, again, need) == 0,
           "%s: a session changes on its way", c->desc->key);
    EXPECT(cell_sessions_close(other, there) == CELL_OK && cell_sessions_close(store, m->session) == CELL_OK,
           "close");
    EXPECT(cell_sessions_load(store, again, need, &back) == CELL_OK, "%s", cell_last_error(c->ctx));
    int last = m->n - 1;
    for (int i = 0; i < last; i++)
        forget(m, i);
    if (last) {
        memcpy(m->states[0], m->states[last], sizeof m->states[0]);
        memset(m->states[last], 0, sizeof m->states[last]);
        m->steps[0] = m->steps[last];
        m->begun[0] = m->begun[last];
        m->n = 1;
    }
    m->session = back;
    free(blob);
    free(again);
}

static void scenario(Cell *c, int back, cell_sessions *other, int rounds)
{
    cell_sessions_options options = { .capacity = CAPACITY, .back = back, .keep = c->keep };
    cell_sessions *store;
    Model models[CAPACITY] = { 0 };
    cell_status status = cell_sessions_create(c->ctx, c->desc, c->sizes, &options, &store);
    EXPECT(status == CELL_OK, "%s", cell_last_error(c->ctx));
    if (status != CELL_OK)
        return;
    for (int i = 0; i < rounds; i++) {
        unsigned what = draw(12);
        Model *m = find(models, what > 1);
        int32_t session;
        if (what <= 1) {
            status = cell_sessions_open(store, &session);
            EXPECT(status == (m ? CELL_OK : CELL_TOO_SMALL), "open: %s", cell_last_error(c->ctx));
            if (m)
                begin(m, session);
        } else if (what == 2 && m) {
            EXPECT(cell_sessions_close(store, m->session) == CELL_OK, "%s", cell_last_error(c->ctx));
            EXPECT(cell_sessions_close(store, m->session) == CELL_BAD_ARGUMENT, "closed twice");
            forget_all(m);
        } else if (what == 3) {
            fork_one(c, store, models);
        } else if (what <= 5 && m) {
            int most = m->n - 1, k = (int)draw((unsigned)most + 1);
            int64_t steps, left;
            EXPECT(cell_sessions_back(store, m->session, most + 1) == CELL_BAD_ARGUMENT,
                   "more is taken back than there is");
            EXPECT(cell_sessions_back(store, m->session, k) == CELL_OK, "%s", cell_last_error(c->ctx));
            for (; k > 0; k--)
                forget(m, --m->n);
            EXPECT(cell_sessions_at(store, m->session, &steps, &left) == CELL_OK &&
                       steps == m->steps[m->n - 1] && left == m->n - 1,
                   "at %lld, %lld back", (long long)steps, (long long)left);
        } else if (what == 6) {
            move_one(c, store, models, other);
        } else {
            call(c, store, models, back);
        }
    }
    for (int i = 0; i < CAPACITY; i++)
        forget_all(&models[i]);
    cell_sessions_destroy(store);
}

static void run_cell(const cell_desc *desc, cell_backend_kind kind, cell_keep keep, double close, int rounds)
{
    static const int backs[] = { 0, 1, BACK };
    Cell c, there;
    open_cell(&c, desc, kind, keep);
    open_cell(&there, desc, CELL_BACKEND_REFERENCE, keep);
    c.close = close;
    cell_sessions *other;
    cell_sessions_options options = { .capacity = 2, .keep = keep };
    EXPECT(cell_sessions_create(there.ctx, desc, there.sizes, &options, &other) == CELL_OK, "%s",
           cell_last_error(there.ctx));
    for (int i = 0; i < 3; i++)
        scenario(&c, backs[i], other, rounds);
    cell_sessions_destroy(other);
    close_cell(&there);
    close_cell(&c);
}

/* Each byte changed, and each length, is refused, and no session opens. */
static void broken_bytes(const cell_desc *desc, const cell_desc *foreign)
{
    Cell c;
    open_cell(&c, desc, CELL_BACKEND_REFERENCE, CELL_KEEP_AS_IS);
    cell_sessions_options options = { .capacity = 2 };
    cell_sessions *store, *other, *wide;
    int32_t session, got;
    size_t need;
    cell_sessions_create(c.ctx, desc, c.sizes, &options, &store);
    cell_sessions_open(store, &session);
    for (int i = 0; i < desc->n_forward_args; i++)
        if (c.args[i] && desc->tensors[desc->forward_args[i].tensor].kind == CELL_INPUT)
            memset(c.args[i], 0, bytes_of(&c, i, count(&c, i, 1, 1)));
    EXPECT(cell_sessions_step(store, &session, 1, c.args) == CELL_OK, "%s", cell_last_error(c.ctx));
    cell_sessions_save(store, session, NULL, 0, &need);
    unsigned char *blob = malloc(need);
    EXPECT(cell_sessions_save(store, session, blob, need, NULL) == CELL_OK, "%s", cell_last_error(c.ctx));
    for (size_t i = 0; i < need; i++) {
        unsigned char *cut = malloc(i ? i : 1);
        memcpy(cut, blob, i);
        EXPECT(cell_sessions_load(store, cut, i, &got) == CELL_BAD_ARGUMENT && got == -1,
               "%zu bytes are taken", i);
        free(cut);
        unsigned char was = blob[i];
        blob[i] ^= (unsigned char)(1u << draw(8));
        cell_status status = cell_sessions_load(store, blob, need, &got);
        EXPECT((status == CELL_BAD_ARGUMENT || (status == CELL_UNSUPPORTED && i >= 8 && i < 12)) && got == -1,
               "byte %zu may be changed", i);
        blob[i] = was;
    }
    blob[8] = 2;
    EXPECT(cell_sessions_load(store, blob, need, &got) == CELL_UNSUPPORTED &&
               strstr(cell_last_error(c.ctx), "version 2"),
           "a newer version: %s", cell_last_error(c.ctx));
    blob[8] = 1;
    int64_t sizes[CELL_MAX_SIZES];
    memcpy(sizes, c.sizes, sizeof sizes);
    sizes[2]++;
    cell_sessions_create(c.ctx, desc, sizes, &options, &wide);
    EXPECT(cell_sessions_load(wide, blob, need, &got) == CELL_BAD_ARGUMENT &&
               strstr(cell_last_error(c.ctx), "has sizes"),
           "other sizes: %s", cell_last_error(c.ctx));
    options.keep = CELL_KEEP_BF16;
    EXPECT(cell_sessions_create(c.ctx, desc, c.sizes, &options, &other) == CELL_OK, "%s",
           cell_last_error(c.ctx));
    EXPECT(cell_sessions_load(other, blob, need, &got) == CELL_BAD_ARGUMENT &&
               strstr(cell_last_error(c.ctx), "kept"),
           "kept otherwise: %s", cell_last_error(c.ctx));
    cell_sessions_destroy(other);
    Cell f;
    open_cell(&f, foreign, CELL_BACKEND_REFERENCE, CELL_KEEP_AS_IS);
    options.keep = CELL_KEEP_AS_IS;
    cell_sessions_create(f.ctx, foreign, f.sizes, &options, &other);
    EXPECT(cell_sessions_load(other, blob, need, &got) == CELL_BAD_ARGUMENT &&
               strstr(cell_last_error(f.ctx), "is of"),
           "another cell: %s", cell_last_error(f.ctx));
    EXPECT(cell_sessions_load(store, blob, need, &got) == CELL_OK, "the bytes as they were: %s",
           cell_last_error(c.ctx));
    cell_desc changed = *desc; /* the same interface, other equations */
    changed.program = "0123456789abcdef";
    cell_sessions_destroy(other);
    cell_sessions_create(f.ctx, &changed, c.sizes, &options, &other);
    EXPECT(cell_sessions_load(other, blob, need, &got) == CELL_BAD_ARGUMENT &&
               strstr(cell_last_error(f.ctx), "equations"),
           "other equations: %s", cell_last_error(f.ctx));
    cell_sessions_destroy(other);
    cell_sessions_destroy(wide);
    cell_sessions_destroy(store);
    free(blob);
    close_cell(&f);
    close_cell(&c);
}

static void refused(const cell_desc *desc, const cell_desc *wide)
{
    Cell c;
    open_cell(&c, desc, CELL_BACKEND_REFERENCE, CELL_KEEP_AS_IS);
    cell_sessions *store = NULL;
    int32_t twice[2] = { 0, 0 }, session;
    cell_sessions_options good = { .capacity = 2 };
    static const cell_sessions_options bad[] = { { 0, 0, CELL_KEEP_AS_IS },
                                                 { 65536, 0, CELL_KEEP_AS_IS },
                                                 { 1, -1, CELL_KEEP_AS_IS },
                                                 { 1, 1025, CELL_KEEP_AS_IS },
                                                 { 1, 0, (cell_keep)7 } };
    for (int i = 0; i < 5; i++)
        EXPECT(cell_sessions_create(c.ctx, desc, c.sizes, &bad[i], &store) != CELL_OK && !store,
               "options %d are taken", i);
    EXPECT(cell_sessions_create(NULL, desc, c.sizes, &good, &store) == CELL_NULL_POINTER, "no context");
    EXPECT(cell_sessions_create(c.ctx, desc, NULL, &good, &store) == CELL_NULL_POINTER, "no sizes");
    int64_t sizes[CELL_MAX_SIZES] = { 1, 1, 8, 8, 8, 8 };
    sizes[wide->n_sizes - 1] = 0;
    good.keep = CELL_KEEP_INT8;
    EXPECT(cell_sessions_create(c.ctx, wide, sizes, &good, &store) == CELL_UNSUPPORTED &&
               strstr(cell_last_error(c.ctx), "is f64"),
           "f64 in int8: %s", cell_last_error(c.ctx));
    good.keep = CELL_KEEP_AS_IS;
    EXPECT(cell_sessions_create(c.ctx, desc, c.sizes, &good, &store) == CELL_OK, "%s",
           cell_last_error(c.ctx));
    EXPECT(cell_sessions_step(store, twice, 1, c.args) == CELL_BAD_ARGUMENT, "a session that is not open");
    EXPECT(cell_sessions_open(store, &session) == CELL_OK && session == 0, "open");
    EXPECT(cell_sessions_step(store, twice, 2, c.args) == CELL_BAD_ARGUMENT, "a session twice");
    EXPECT(cell_sessions_step(store, twice, 3, c.args) == CELL_BAD_SIZE, "more than there are");
    EXPECT(cell_sessions_step(store, twice, 1, NULL) == CELL_NULL_POINTER, "no arguments");
    void *none[MOST_ARGS] = { 0 };
    int64_t steps = -1;
    EXPECT(cell_sessions_step(store, twice, 1, none) == CELL_NULL_POINTER, "no tensors: %s",
           cell_last_error(c.ctx));
    EXPECT(cell_sessions_at(store, session, &steps, NULL) == CELL_OK && steps == 0, "a failing call counts");
    EXPECT(cell_sessions_prefill(store, twice, 1, -1, c.args) == CELL_BAD_SIZE, "fewer than no steps");
    EXPECT(cell_sessions_step(store, NULL, 0, c.args) == CELL_OK, "no sessions: %s", cell_last_error(c.ctx));
    EXPECT(cell_sessions_step(NULL, NULL, 0, c.args) == CELL_NULL_POINTER, "no store");
    cell_sessions_destroy(store);
    cell_sessions_destroy(NULL);
    close_cell(&c);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "how") == 0) {
        for (size_t i = 0; i < sizeof instances / sizeof *instances; i++) {
            Cell c;
            open_cell(&c, instances[i](), CELL_BACKEND_EMULATED, CELL_KEEP_AS_IS);
            cell_sessions *store = NULL;
            cell_sessions_options options = { .capacity = 1 };
            cell_sessions_create(c.ctx, c.desc, c.sizes, &options, &store);
            printf("%s: %s\n", c.desc->name, cell_sessions_how(store));
            cell_sessions_destroy(store);
            close_cell(&c);
        }
        return 0;
    }
    if (argc > 1)
        seed = strtoull(argv[1], NULL, 10);
    int rounds = getenv("FULL") ? 400 : 60;
    for (size_t i = 0; i < sizeof instances / sizeof *instances; i++) {
        const cell_desc *desc = instances[i]();
        int wide = strstr(desc->key, "dtype=f64") != NULL;
        /* Plain calls of one sequence and calls of several differ by roundings of their products, and what
         * is kept by one step of what it is kept in. */
        for (int keep = 0; keep < (wide ? 1 : 3); keep++) {
            double close = keep == CELL_KEEP_AS_IS ? 2e-5 : keep == CELL_KEEP_BF16 ? 0.02 : 0.04;
            run_cell(desc, CELL_BACKEND_EMULATED, (cell_keep)keep, close, rounds);
            run_cell(desc, CELL_BACKEND_REFERENCE, (cell_keep)keep, close, rounds);
            run_cell(desc, CELL_BACKEND_CPU, (cell_keep)keep, close, rounds);
        }
    }
    broken_bytes(instances[0](), instances[1]());
    refused(instances[0](), instances[2]());
    return report();
}
