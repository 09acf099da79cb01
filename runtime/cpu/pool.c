/* The pool. Workers are made when a job first wants them, and wait: for a short time by looking, then
 * asleep. Each thread begins with a share of a job, the same one in each job of as many items, so that what
 * it read in a job before still lies in its own second cache; a thread that is done with its share takes
 * pieces of the others. In a child of a fork there are no workers; it makes its own. Guaranteed: when
 * cell_pool_run returns, no thread looks at the job any more. */
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* PIECES: of a thread's share, so that a slow thread leaves some to others. LOOKS: before a thread sleeps. */
enum { MOST = 256, PIECES = 8, LOOKS = 4000, ALIGNMENT = 64 };

typedef struct Job {
    cell_pool_fn fn;
    const void *data;
    int64_t items, piece;
    size_t scratch;
    int threads;
    _Atomic int failed;
} Job;

/* Items of a job that one thread begins with, which has a cache line to itself. */
typedef struct Share {
    _Alignas(ALIGNMENT) _Atomic int64_t next;
    int64_t end;
} Share;

typedef struct Memory {
    void *at;
    size_t bytes;
} Memory;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* whose job has the workers */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static _Atomic unsigned number; /* of the job, 0: there was none */
static _Atomic int wanted; /* workers that it takes */
static _Atomic int busy; /* that are not done with it */
static Job *_Atomic job;
static _Atomic int ended;
static Share share[MOST]; /* under `turn`, which is held as long as threads take of these */
static int workers; /* under `turn`, and */
static pthread_t thread[MOST];
static unsigned seen_first[MOST]; /* the job before a worker's first */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t memory_key; /* of a thread: its Memory */
static _Atomic int is_begun; /* there is the key */

static void look_again(unsigned looks)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    if (looks % 256 == 255)
        sched_yield();
}

static void release(void *memory)
{
    free(((Memory *)memory)->at);
    free(memory);
}

static void before_fork(void)
{
    pthread_mutex_lock(&turn);
    pthread_mutex_lock(&sleep_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&sleep_lock);
    pthread_mutex_unlock(&turn);
}

/* The workers are the parent's. */
static void in_child(void)
{
    pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t none = PTHREAD_COND_INITIALIZER;
    turn = sleep_lock = unlocked;
    woken = none;
    workers = 0;
    busy = 0;
}

static void begin(void)
{
    is_begun = pthread_key_create(&memory_key, release) == 0;
    pthread_atfork(before_fork, after_fork, in_child);
}

/* The thread's own memory, which stays for its next job. */
static void *scratch_of(size_t bytes)
{
    Memory *memory = is_begun ? pthread_getspecific(memory_key) : NULL;
    if (!is_begun)
        return NULL;
    if (!memory) {
        memory = calloc(1, sizeof *memory);
        if (!memory || pthread_setspecific(memory_key, memory) != 0) {
            free(memory);
            return NULL;
        }
    }
    if (memory->bytes < bytes) {
        free(memory->at);
        bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        memory->at = aligned_alloc(ALIGNMENT, bytes);
        memory->bytes = memory->at ? bytes : 0;
    }
    return memory->at;
}

static int64_t begin_of_share(const Job *of, int thread)
{
    return of->items / of->threads * thread + of->items % of->threads * thread / of->threads;
}

/* The first item of the next piece, or one that the share has not: there is no piece. The last
 * piece of a share stays with the share's own thread, which may have begun a little later: what another
 * thread takes leaves the cache where it is read in every call. */
static int64_t next_piece(Share *from, int64_t piece, int is_own)
{
    if (is_own)
        return atomic_fetch_add(&from->next, piece);
    int64_t first = from->next;
    while (first + piece < from->end)
        if (atomic_compare_exchange_weak(&from->next, &first, first + piece))
            return first;
    return from->end;
}

static void take(Job *of, Share *from, int is_own, void *scratch)
{
    for (;;) {
        int64_t first = next_piece(from, of->piece, is_own);
        if (first >= from->end)
            return;
        of->fn(of->data, first, from->end - first < of->piece ? from->end : first + of->piece, scratch);
    }
}

/* own: the thread's share. */
static void work(Job *of, int own)
{
    void *scratch = of->scratch ? scratch_of(of->scratch) : NULL;
    if (of->scratch && !scratch) {
        of->failed = 1;
        return;
    }
    if (of->threads == 1) {
        of->fn(of->data, 0, of->items, scratch);
        return;
    }
    for (int i = 0; i < of->threads; i++)
        take(of, &share[(own + i) % of->threads], i == 0, scratch);
}

static void *worker(void *argument)
{
    int own = (int)(intptr_t)argument;
    unsigned seen = seen_first[own];
    for (;;) {
        unsigned now = number;
        for (unsigned looks = 0; now == seen && looks < LOOKS; looks++) {
            look_again(looks);
            now = number;
        }
        if (now == seen) {
            pthread_mutex_lock(&sleep_lock);
            while ((now = number) == seen)
                pthread_cond_wait(&woken, &sleep_lock);
            pthread_mutex_unlock(&sleep_lock);
        }
        seen = now;
        if (ended)
            return NULL;
        if (own < wanted)
            work(job, own + 1);
        atomic_fetch_sub(&busy, 1);
    }
    return NULL;
}

/* Under `turn`. A worker's first job is the next one. */
static void make_workers(int most)
{
    for (; workers < most; workers++) {
        seen_first[workers] = number;
        if (pthread_create(&thread[workers], NULL, worker, (void *)(intptr_t)workers) != 0)
            return;
    }
}

/* A library that has the pool in it may be closed. */
__attribute__((destructor)) static void end(void)
{
    pthread_mutex_lock(&turn);
    ended = 1;
    pthread_mutex_lock(&sleep_lock);
    number++;
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&sleep_lock);
    for (; workers > 0; workers--)
        pthread_join(thread[workers - 1], NULL);
    pthread_mutex_unlock(&turn);
    if (is_begun) {
        Memory *memory = pthread_getspecific(memory_key);
        if (memory)
            release(memory);
        pthread_key_delete(memory_key);
    }
}

static void run_together(Job *of)
{
    make_workers(of->threads - 1);
    of->threads = workers < of->threads - 1 ? workers + 1 : of->threads; /* each share has its own thread */
    for (int i = 0; i < of->threads; i++) {
        share[i].next = begin_of_share(of, i);
        share[i].end = begin_of_share(of, i + 1);
    }
    job = of;
    wanted = of->threads - 1;
    busy = workers;
    pthread_mutex_lock(&sleep_lock);
    number++;
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&sleep_lock);
    work(of, 0);
    for (unsigned looks = 0; busy > 0; looks++)
        look_again(looks);
    job = NULL;
}

cell_status cell_pool_run(cell_pool_fn fn, const void *data, int64_t items, int64_t grain, size_t scratch,
                          int threads, cell_error *err)
{
    int64_t most = grain > 0 ? (items + grain - 1) / grain : items;
    Job of = { .fn = fn, .data = data, .items = items, .piece = items, .scratch = scratch, .threads = 1 };
    if (items <= 0)
        return CELL_OK;
    pthread_once(&once, begin);
    threads = threads > MOST ? MOST : threads;
    threads = threads > most ? (int)most : threads;
    int together = threads > 1 && pthread_mutex_trylock(&turn) == 0;
    if (together && ended) { /* the process or the library ends, and has no workers any more */
        pthread_mutex_unlock(&turn);
        together = 0;
    }
    if (together) {
        int64_t piece = items / ((int64_t)threads * PIECES);
        of.piece = piece > grain ? piece : grain > 0 ? grain : 1;
        of.threads = threads;
        run_together(&of);
        pthread_mutex_unlock(&turn);
    } else {
        work(&of, 0);
    }
    return of.failed ? cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes for each thread", scratch)
                     : CELL_OK;
}

int cell_pool_default(void)
{
    const char *word = getenv("OMP_NUM_THREADS");
    int threads = word ? atoi(word) : 0;
    cpu_set_t set;
    if (threads <= 0 && sched_getaffinity(0, sizeof set, &set) == 0)
        threads = CPU_COUNT(&set);
    return threads > 0 ? threads : 1;
}
