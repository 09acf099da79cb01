/* Memory of contexts: a caller's allocator, what is counted, trimming, pinned memory, copies beside calls,
 * and the ranges that a profiler is shown, by backends that note what they are asked. */
#include "cell.h"
#include "cell_backend.h"
#include "expect.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static char noted[4096];

static void say(const char *what)
{
    size_t used = strlen(noted);
    snprintf(noted + used, sizeof noted - used, "%s ", what);
}

static cell_context *context_on(const cell_backend *backend)
{
    cell_context *ctx = NULL;
    char why[200];
    EXPECT(cell_context_create_with(&ctx, backend, 0, why, sizeof why) == CELL_OK, "%s", why);
    noted[0] = 0;
    return ctx;
}

/* ---- counted */

static void counts(void)
{
    enum { MOST = 300 };
    cell_context *ctx = context_on(cell_reference_backend());
    cell_pool_state state;
    void *all[MOST];
    size_t sum = 0;
    for (int i = 0; i < MOST; i++) {
        EXPECT(cell_alloc(ctx, &all[i], (size_t)i + 1) == CELL_OK, "%s", cell_last_error(ctx));
        sum += (size_t)i + 1;
    }
    EXPECT(cell_pool_read(ctx, &state) == CELL_OK && state.in_use == sum && state.most == sum &&
               state.held == sum && state.allocations == MOST,
           "%zu of %zu", state.in_use, sum);
    for (int i = 0; i < MOST; i += 2) { /* gaps, across which the others are found */
        EXPECT(cell_free(ctx, all[i]) == CELL_OK, "%s", cell_last_error(ctx));
        sum -= (size_t)i + 1;
    }
    EXPECT(cell_pool_read(ctx, &state) == CELL_OK && state.in_use == sum && state.allocations == MOST / 2,
           "%zu of %zu", state.in_use, sum);
    for (int i = 1; i < MOST; i += 2)
        EXPECT(cell_free(ctx, all[i]) == CELL_OK, "%s", cell_last_error(ctx));
    EXPECT(cell_pool_read(ctx, &state) == CELL_OK && state.in_use == 0 && state.most > 0, "%zu left",
           state.in_use);
    EXPECT(cell_pool_forget_most(ctx) == CELL_OK && cell_pool_read(ctx, &state) == CELL_OK && state.most == 0,
           "%zu", state.most);
    int mine;
    EXPECT(cell_free(ctx, &mine) == CELL_BAD_ARGUMENT, "memory that the context did not allocate is freed");
    EXPECT(cell_pool_read(ctx, NULL) == CELL_NULL_POINTER &&
               cell_pool_read(NULL, &state) == CELL_NULL_POINTER,
           "null");
    cell_context_destroy(ctx);
}

/* ---- a caller's allocator */

typedef struct Mine {
    size_t given, back;
    int calls, crooked, empty;
    void *stream;
} Mine;

static void *my_alloc(void *user, size_t bytes, void *stream)
{
    Mine *m = user;
    m->calls++;
    m->stream = stream;
    if (m->empty)
        return NULL;
    m->given += bytes;
    char *at = aligned_alloc(256, (bytes + 511) / 256 * 256);
    return m->crooked ? at + 16 : at;
}

static void my_free(void *user, void *pointer, size_t bytes, void *stream)
{
    Mine *m = user;
    m->back += bytes;
    m->stream = stream;
    free(m->crooked ? (char *)pointer - 16 : pointer);
}

static void callers(void)
{
    cell_context *ctx = context_on(cell_reference_backend());
    Mine m = { 0 };
    cell_allocator mine = { &m, my_alloc, my_free };
    cell_pool_state state;
    void *p, *q;
    EXPECT(cell_context_set_allocator(ctx, &(cell_allocator){ &m, my_alloc, NULL }) == CELL_NULL_POINTER,
           "half of one");
    EXPECT(cell_alloc(ctx, &p, 100) == CELL_OK, "%s", cell_last_error(ctx));
    EXPECT(cell_context_set_allocator(ctx, &mine) == CELL_BAD_ARGUMENT &&
               strstr(cell_last_error(ctx), "1 allocations"),
           "%s", cell_last_error(ctx));
    cell_free(ctx, p);
    EXPECT(cell_context_set_allocator(ctx, &mine) == CELL_OK, "%s", cell_last_error(ctx));
    EXPECT(cell_alloc(ctx, &p, 1000) == CELL_OK && cell_alloc(ctx, &q, 24) == CELL_OK && m.calls == 2 &&
               m.given == 1024,
           "%zu bytes by the caller's", m.given);
    memset(p, 1, 1000);
    EXPECT(cell_pool_read(ctx, &state) == CELL_OK && state.in_use == 1024 && state.held == 1024, "%zu",
           state.in_use);
    EXPECT(cell_free(ctx, p) == CELL_OK && m.back == 1000, "%zu came back", m.back);
    EXPECT(cell_context_set_allocator(ctx, NULL) == CELL_BAD_ARGUMENT, "a pointer would go back elsewhere");
    EXPECT(cell_free(ctx, q) == CELL_OK && m.back == m.given, "%zu of %zu came back", m.back, m.given);
    m.empty = 1;
    EXPECT(cell_alloc(ctx, &p, 8) == CELL_OUT_OF_MEMORY && !p && strstr(cell_last_error(ctx), "caller's"),
           "%s", cell_last_error(ctx));
    m = (Mine){ .crooked = 1 };
    EXPECT(cell_alloc(ctx, &p, 8) == CELL_MISALIGNED && !p && m.back == m.given, "%s", cell_last_error(ctx));
    EXPECT(cell_pool_read(ctx, &state) == CELL_OK && state.in_use == 0, "%zu", state.in_use);
    EXPECT(cell_context_set_allocator(ctx, NULL) == CELL_OK && cell_alloc(ctx, &p, 8) == CELL_OK &&
               m.calls == 1,
           "again");
    cell_free(ctx, p);
    cell_context_destroy(ctx);
}

/* ---- what backends are asked */

static cell_status held(void *self, size_t *bytes, cell_error *err)
{
    (void)self, (void)err;
    *bytes = 12345;
    return CELL_OK;
}

static cell_status trim(void *self, size_t keep, cell_error *err)
{
    (void)self;
    say(keep == 7 ? "trim" : "?");
    return keep == 9 ? cell_fail(err, CELL_BACKEND_FAILED, "no") : CELL_OK;
}

static cell_status pin(void *self, void **pointer, size_t bytes, cell_error *err)
{
    say("pin");
    return cell_host_alloc(self, pointer, bytes, err);
}

static cell_status unpin(void *self, void *pointer, cell_error *err)
{
    say("unpin");
    return cell_host_free(self, pointer, err);
}

static cell_status copy_begin(void *self, void *to, const void *from, size_t bytes, cell_error *err)
{
    say("begin");
    return cell_host_copy(self, to, from, bytes, err);
}

static cell_status copy_join(void *self, cell_error *err)
{
    (void)self, (void)err;
    say("join");
    return CELL_OK;
}

static cell_status copy_wait(void *self, cell_error *err)
{
    (void)self, (void)err;
    say("wait");
    return CELL_OK;
}

static void asked(void)
{
    cell_backend backend = *cell_reference_backend();
    backend.held = held;
    backend.trim = trim;
    backend.alloc_pinned = pin;
    backend.free_pinned = unpin;
    backend.copy_begin = copy_begin;
    backend.copy_join = copy_join;
    backend.copy_wait = copy_wait;
    cell_context *ctx = context_on(&backend);
    cell_pool_state state;
    void *p;
    char here[4] = "abc", there[4] = "";
    EXPECT(cell_pool_read(ctx, &state) == CELL_OK && state.held == 12345, "%zu", state.held);
    EXPECT(cell_pool_trim(ctx, 7) == CELL_OK && cell_pool_trim(ctx, 9) == CELL_BACKEND_FAILED, "trim");
    EXPECT(cell_alloc_pinned(ctx, &p, 10) == CELL_OK && p && cell_free_pinned(ctx, p) == CELL_OK, "pinned");
    EXPECT(cell_alloc_pinned(ctx, &p, 0) == CELL_OK && !p && cell_free_pinned(ctx, NULL) == CELL_OK,
           "nothing pinned");
    EXPECT(cell_copy_begin(ctx, there, here, 4) == CELL_OK && cell_copy_join(ctx) == CELL_OK &&
               cell_copy_wait(ctx) == CELL_OK && strcmp(there, "abc") == 0,
           "copies");
    EXPECT(cell_copy_begin(ctx, NULL, here, 4) == CELL_NULL_POINTER, "a copy to nowhere");
    EXPECT(strcmp(noted, "trim ? pin unpin begin join wait ") == 0, "%s", noted);
    cell_context_destroy(ctx);
    ctx = context_on(cell_cpu_backend()); /* and without these */
    memset(there, 0, sizeof there);
    EXPECT(cell_alloc_pinned(ctx, &p, 10) == CELL_OK && p && cell_free_pinned(ctx, p) == CELL_OK, "pinned");
    EXPECT(cell_copy_begin(ctx, there, here, 4) == CELL_OK && cell_copy_join(ctx) == CELL_OK &&
               cell_copy_wait(ctx) == CELL_OK && strcmp(there, "abc") == 0,
           "copies");
    EXPECT(cell_pool_trim(ctx, 0) == CELL_OK, "%s", cell_last_error(ctx));
    cell_context_destroy(ctx);
}

/* ---- several contexts at once, each in its thread */

static void *thread(void *of)
{
    cell_context *ctx = of;
    for (int i = 0; i < 2000; i++) {
        void *p, *q;
        cell_alloc(ctx, &p, 64);
        cell_alloc(ctx, &q, 128);
        cell_fill(ctx, p, i & 127, 64);
        cell_copy_begin(ctx, q, p, 64);
        cell_copy_wait(ctx);
        if (((char *)q)[63] != (i & 127))
            return ctx;
        cell_free(ctx, p);
        cell_free(ctx, q);
    }
    return NULL;
}

static void threads(void)
{
    enum { N = 4 };
    pthread_t all[N];
    cell_context *ctx[N];
    for (int i = 0; i < N; i++) {
        ctx[i] = context_on(cell_cpu_backend());
        pthread_create(&all[i], NULL, thread, ctx[i]);
    }
    for (int i = 0; i < N; i++) {
        void *wrong;
        cell_pool_state state;
        pthread_join(all[i], &wrong);
        EXPECT(!wrong && cell_pool_read(ctx[i], &state) == CELL_OK && state.in_use == 0 && state.most == 192,
               "context %d", i);
        cell_context_destroy(ctx[i]);
    }
}

int main(void)
{
    counts();
    callers();
    asked();
    threads();
    return report();
}
