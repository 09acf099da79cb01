/* Ranks: one thread each, with a context of its device, and what they tell each other. Two implementations:
 * ranks_host.c (contexts of the CPU in one process, memory is shared) and ranks_nccl.c (a GPU each, NCCL).
 * Every failure ends the program with a sentence. */
#ifndef RANKS_H
#define RANKS_H

#include "cell.h"

typedef struct Ranks Ranks;

/* n ranks, of which each thread then asks for its context: made in that thread, destroyed by ranks_close. */
Ranks *ranks_open(int n);
cell_context *ranks_context(Ranks *ranks, int rank);
void ranks_close(Ranks *ranks);

/* Numbers in the context's memory are replaced by their sum over all ranks, behind the work that the context
 * has been given so far and beside what it is given next. Each rank calls it equally often, with equal n. */
void ranks_sum(Ranks *ranks, int rank, double *values, size_t n);
/* What the context is given from here on comes behind all sums. */
void ranks_wait(Ranks *ranks, int rank);

/* n numbers from the memory of one rank to that of another, in the order of either context's work. */
void ranks_send(Ranks *ranks, int rank, int to, const double *values, size_t n);
void ranks_receive(Ranks *ranks, int rank, int from, double *values, size_t n);

#endif
