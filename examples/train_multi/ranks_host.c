/* Ranks as threads of one process, on the CPU. A message is copied; a sum is made at once, by all
 * ranks, each a part of the numbers, in the order of the ranks. */
#include <err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

typedef struct Message {
    struct Message *next;
    int from, to;
    size_t n;
    double values[];
} Message;

struct Ranks {
    int n;
    pthread_mutex_t lock;
    pthread_cond_t sent;
    Message *messages; /* oldest first */
    pthread_barrier_t all;
    cell_context **contexts;
    double **values; /* of each rank, in a sum */
};

static void *room(size_t bytes)
{
    void *place = calloc(1, bytes ? bytes : 1);
    if (!place)
        errx(1, "out of memory");
    return place;
}

Ranks *ranks_open(int n)
{
    Ranks *r = room(sizeof *r);
    r->n = n;
    r->contexts = room((size_t)n * sizeof *r->contexts);
    r->values = room((size_t)n * sizeof *r->values);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->sent, NULL);
    if (pthread_barrier_init(&r->all, NULL, (unsigned)n))
        errx(1, "%d ranks: no barrier", n);
    return r;
}

cell_context *ranks_context(Ranks *r, int rank)
{
    char why[256];
    if (cell_context_create(&r->contexts[rank], CELL_BACKEND_CPU, 0, why, sizeof why) != CELL_OK)
        errx(1, "%s", why);
    cell_context_set_threads(r->contexts[rank], 1);
    return r->contexts[rank];
}

void ranks_close(Ranks *r)
{
    for (int i = 0; i < r->n; i++)
        cell_context_destroy(r->contexts[i]);
    pthread_barrier_destroy(&r->all);
    pthread_cond_destroy(&r->sent);
    pthread_mutex_destroy(&r->lock);
    free(r->contexts);
    free(r->values);
    free(r);
}

void ranks_sum(Ranks *r, int rank, double *values, size_t n)
{
    size_t first = n * (size_t)rank / (size_t)r->n, end = n * (size_t)(rank + 1) / (size_t)r->n;
    r->values[rank] = values;
    pthread_barrier_wait(&r->all);
    for (size_t i = first; i < end; i++) {
        double sum = 0;
        for (int k = 0; k < r->n; k++)
            sum += r->values[k][i];
        for (int k = 0; k < r->n; k++)
            r->values[k][i] = sum;
    }
    pthread_barrier_wait(&r->all);
}

void ranks_wait(Ranks *r, int rank)
{
    (void)r, (void)rank;
}

void ranks_send(Ranks *r, int rank, int to, const double *values, size_t n)
{
    Message *message = room(sizeof *message + n * sizeof *values), **last = &r->messages;
    message->from = rank;
    message->to = to;
    message->n = n;
    memcpy(message->values, values, n * sizeof *values);
    pthread_mutex_lock(&r->lock);
    while (*last)
        last = &(*last)->next;
    *last = message;
    pthread_cond_broadcast(&r->sent);
    pthread_mutex_unlock(&r->lock);
}

void ranks_receive(Ranks *r, int rank, int from, double *values, size_t n)
{
    Message **at, *message = NULL;
    pthread_mutex_lock(&r->lock);
    while (!message) {
        for (at = &r->messages; *at && ((*at)->from != from || (*at)->to != rank); at = &(*at)->next)
            ;
        if ((message = *at))
            *at = message->next;
        else
            pthread_cond_wait(&r->sent, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    if (message->n != n)
        errx(1, "rank %d sends %zu numbers, and rank %d wants %zu", from, message->n, rank, n);
    memcpy(values, message->values, n * sizeof *values);
    free(message);
}
