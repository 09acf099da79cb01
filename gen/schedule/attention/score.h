/* score.h: what the files of the proof share (attention.c, score.c). */
#ifndef CELLC_ATTENTION_SCORE_H
#define CELLC_ATTENTION_SCORE_H

#include "attention.h"

typedef struct Proof {
    Module *m;
    Attention *to;
    Vec(char) past; /* per node, bits: it is, or depends on, a sum over the past */
    int left; /* what a walk may still visit */
    const IxExpr *target; /* the step that stands for step j; NULL: its own */
} Proof;

/* False, with the words and the place kept. */
bool pair_refuse(Proof *p, NodeId at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Is it the array of a reduction over the past; does it depend on one? */
bool pair_is_sum(Proof *p, NodeId array);
bool pair_needs_sum(Proof *p, NodeId id);
bool varies_with(const Module *m, NodeId id, IndexId i);
/* Is the index in a step that is read below, through arrays over it? */
bool pair_reads_back(const Module *m, NodeId id, IndexId i);
/* Is the branch taken wherever a row has a pair, or another place: `-inf < max ? max : 0` and its like? */
bool pair_is_guard(Proof *p, NodeId select);
/* The value with arrays over w, and those of a row that are made of sums over the past, put in. */
NodeId pair_open(Proof *p, NodeId id);
/* The value of step j alone at its own step; -1: it belongs to another one as well. */
NodeId pair_of_key(Proof *p, NodeId id);
/* Likewise at another step, or where its history has it. */
NodeId pair_at_step(Proof *p, NodeId id, const IxExpr *step);
/* Does it belong to step i alone? */
bool pair_is_of_row(Proof *p, NodeId id);
/* Does it read a tensor or an array? */
bool pair_reads(const Module *m, NodeId id);

/* Where the conditions stand: conjuncts, each once. */
void pair_condition(Proof *p, NodeId condition);
/* Does it hold wherever those that were found do? */
bool pair_is_implied(Proof *p, NodeId condition);
/* Takes conditions that leave a pair out off the score; gives what is left. */
NodeId pair_masks(Proof *p, NodeId score);
/* Finds q, k and the leaves of a score that is open. */
bool pair_score(Proof *p, NodeId score);
/* Of what belongs to keys: how heads share them. */
bool pair_heads(Proof *p);
/* Sums over steps of the past and other places as sums over each (unions.c); false: there are none. */
bool attention_split(Module *m);
/* That all pairs have a step j. */
bool pair_steps(Proof *p);

#endif
