/* window.h: sums over the past that are made of products (window.c), of which one kernel does several in one pass
 * (kernels_window.c). */
#ifndef CELLC_WINDOW_H
#define CELLC_WINDOW_H

#include "plan/plan.h"

/* A block has a tile of steps, its owners, and takes the steps that these are paired with in tiles as well. A thread has
 * 2 x 4 of the pairs of two tiles where they are multiplied, and 8 pairs of one owner where they are pointwise. Columns
 * of a sum stay in registers, a tile each, up to WINDOW_MOST; more are taken in passes of WINDOW_PASS. Operands of up to
 * WINDOW_WHOLE elements a step lie in shared memory whole, if a block then takes no more than WINDOW_MEMORY bytes, which
 * every device has. Gap and
 * padding are those of runtime/device/cell_device_window.cuh. */
enum {
    WINDOW_TILE = 32, WINDOW_THREADS = 128, WINDOW_MOST = 8, WINDOW_PASS = 4, WINDOW_WHOLE = 128,
    WINDOW_MEMORY = 96 << 10, WINDOW_GAP = 8, WINDOW_PAD = 4
};

/* A product with conditions: 0 where one does not hold. */
typedef struct Factor { NodeId id; bool inverse; } Factor;
typedef struct Factors {
    Factor data[8];
    int len;
    bool negative;
    NodeId guards[8];
    int n_guards;
} Factors;

/* A value over the past that is a sum of products of a value of the owner's step and one of the other step. */
typedef struct WindowDot {
    NodeId array, reduce;
    IndexId along;                /* what it sums over */
    Read read;                    /* where the sums read it: in terms of the first sum's indices */
    Factors own, other, scale;    /* scale: of the pair; it has the conditions too */
} WindowDot;

/* How a sum changes with the maximum that is taken in the same pass: not at all; like exp(-max), so that what was summed
 * up is scaled when the maximum grows; or like exp(-max) / total, so that it is divided by that sum at the end, too. */
typedef enum { OVER_NOTHING, OVER_MAX, OVER_TOTAL } Over;

typedef struct WindowSum {
    NodeId array;
    IndexId w;                    /* bound: counts the distance of a pair's steps */
    IndexId along;                /* the array's last axis, of which only the other step's value knows; -1: none */
    NodeId term;                  /* of the maximum */
    Factors weight, other;
    Over over;
} WindowSum;

typedef struct Window {
    bool by_key;                  /* the other step is the later one: it is the owner's plus the distance */
    int naxes;                    /* of each array, that are a block's */
    int n_outer;                  /* bound indices that are a block's loops (heads that share a key) */
    IndexId outer[4];
    WindowSum sums[8];
    int n;
    WindowDot dots[4];
    int n_dots;
    int max, total;               /* sums; -1: none */
    const Poly *extent, *places;  /* distances; and all places of sums that have more of them */
    const char *why;              /* where it is none: the reason */
} Window;

/* Do these sums go in one pass? They stand in the order in which they are computed. */
bool window_build(const Plan *p, const NodeId *sums, int n, Window *out);
/* kernels_window.c: its kernel's text. */
struct Kernel;
void window_print(struct Kernel *k);
/* Where that found none: why. */
const char *window_refuses(const Plan *p);
int window_slots(const Window *w);           /* tiles of pairs in shared memory */

#endif
