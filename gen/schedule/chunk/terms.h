/* terms.h: values as sums of terms that are linear in a component's states (terms.c), and terms taken
 * apart into factors that belong to keys or to values (factors.c). Shared by the files of
 * schedule/chunk. */
#ifndef CELLC_CHUNK_TERMS_H
#define CELLC_CHUNK_TERMS_H

#include "chunk.h"

enum { MAX_TERMS = 256, MAX_STATE_AXES = 16 };

typedef struct Factor { NodeId node; bool under; /* it divides */ } Factor;

typedef struct IndexList { IndexId *data; int len, cap; } IndexList;

/* coef * factors * an element of a state, or of nothing, summed over `bound`. */
typedef struct Term {
    double coef;
    struct { Factor *data; int len, cap; } factors;
    IndexList bound;
    int state;                    /* -1: nothing */
    int level;                    /* 0: of the state before the step; n: behind the step's update n */
    const IxExpr *const *map;     /* of the state's element */
    NodeId at;                    /* where the element is read, for a message */
} Term;
typedef struct Terms { Term *data; int len, cap; } Terms;

/* The proof of one component. */
typedef struct Proof {
    Module *m;
    const TensorId *states;
    int nstates;
    struct { bool *data; int len, cap; } fed;     /* per node: it depends on the states */
    struct { NodeId *data; int len, cap; } levels;    /* arrays behind the step's updates, but for the last */
    int known;                    /* of the levels, those that stand for themselves now */
    bool after;                   /* and next states too, as what is behind the last update */
    int left;                     /* what a walk may still visit */
    const char *why;              /* once something is refused */
    Span at;
} Proof;

/* False, with the words and the place kept. */
bool proof_refuse(Proof *p, NodeId at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool proof_fed(Proof *p, NodeId id);
/* Which of the component's states the tensor is; -1: none. */
int proof_state(const Proof *p, TensorId t);
/* "`S`", or "the states" where they are several. */
const char *proof_states(const Proof *p);
/* node_subst, with the place of `of` for what is made. */
NodeId proof_subst(Proof *p, NodeId of, NodeId value, const IndexId *from, const IxExpr *const *to, int n);
/* What the sum adds up, with new indices in place of its bound ones, which are appended to `bound`: so that
 * no index of another sum is met under it. */
NodeId proof_summand(Proof *p, NodeId sum, IndexList *bound);
/* Is the place one of the indices that the term is summed over? */
bool term_binds(const Term *t, const IxExpr *place);
/* The value as a sum of terms; false: refused. */
bool terms_of(Proof *p, NodeId id, Terms *out);

/* The factors of a term that was settled, by what they belong to. */
typedef struct Parts {
    double coef;
    int state, level;             /* as of a Term */
    NodeId at;
    bool mixes;                   /* the element of the state is summed over keys */
    /* Products: factors over keys, over the index of the sum over keys, over values, and over heads at
     * most. */
    struct { Factor *data; int len, cap; } key, mixed, value, number;
} Parts;
typedef struct PartsList { Parts *data; int len, cap; } PartsList;

/* What is known of a component's axes while terms are settled. */
typedef struct Roles {
    int rank, key;                /* -1: not known yet */
    const IndexId *axes;
    IndexId mixed;
    bool *is_head;
    const char *forced;           /* the factor that made a head of an axis, in words; NULL: there is none */
    Span forced_at;
} Roles;

/* Takes the terms apart. New heads may be found on the way: then all terms have to be settled again. */
bool settle(Proof *p, Roles *r, const Terms *terms, PartsList *out);
/* Which axis of the state the term's element is summed over; -1: each axis is its own. False: refused. */
bool mixed_axis(Proof *p, const IndexId *axes, int rank, const Term *t, int *axis);
/* Below 0, 0 or above it, as of qsort: by number of the node, dividing factors last. */
int factor_order(const Factor *a, const Factor *b);
/* The product of factors as a node; the constant 1 of none. */
NodeId product_of(Module *m, double coef, const Factor *f, int n);
bool varies_over(const Module *m, NodeId id, IndexId i);

#endif
