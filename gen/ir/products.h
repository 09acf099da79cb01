/* products.h: a sum as the product of what all sequences share, such as a param, and what each has its own of
 * (products.c). */
#ifndef CELLC_PRODUCTS_H
#define CELLC_PRODUCTS_H

#include "ir.h"

/* LEAST_PRODUCT: rows and terms of a product below which a row reduction does as well. MOST_TERMS: terms
 * of one sum. */
enum { LEAST_PRODUCT = 16, MOST_TERMS = 16 };

/* The parts of a term; -1: there is none of these. */
typedef struct Factored {
    NodeId shared;                /* varies over the sum's indices, and is the same for all sequences and steps */
    NodeId own;                   /* varies over the sum's indices, and each sequence and step has its own */
    NodeId outside;               /* does not vary over them */
    NodeId when; /* nor does this condition: elsewhere the term is 0 */
    bool negative;
    bool guarded;                 /* a condition leaves out what may be no number of a sequence: a product would not */
} Factored;

/* Takes a term of the sum apart; false: it is no such product. Makes nodes. */
bool factor_term(Module *m, NodeId term, const Node *sum, Factored *f);
/* Might it, as far as can be seen without making nodes? */
bool has_factors(const Module *m, NodeId term, const Node *sum);
/* Is a factor of the term a sum of matrices that all sequences share and of others: `(m * R[i,j] + z[i] *
 * c[j]) * h[j]`? */
bool has_mixed_sum(const Module *m, NodeId term, const Node *sum);
/* Such a term as one for each of these: their number. */
int terms_of_mixed_sum(Module *m, NodeId term, const Node *sum, NodeId out[MOST_TERMS]);
/* Takes a term apart that has no matrix: what is summed is `own`; false: it is no such. Makes nodes. */
bool factor_dot(Module *m, NodeId term, const Node *sum, Factored *f);
/* What keeps a term with both factors from being one: its condition that is another one for each sequence
 * and row; -1: there is none. */
NodeId condition_of_rows(const Module *m, NodeId term, const Node *sum);
/* Is it a read at this step? */
bool is_read(const Node *n);
/* Is it one that a product takes as it is? Not one that goes backwards (`h[H-1-j]`) or around
 * (`h[(j+1) % H]`), of which a copy in order is made. */
bool is_operand(const Module *m, NodeId id);
/* Is it such a read, of what is the same for all sequences and steps and of the type that products take, or
 * of what each sequence has? */
bool is_shared_matrix(const Module *m, NodeId id);
bool is_vector_of_rows(const Module *m, NodeId id);
/* Is the term, or a factor of it, `c ? a : b` with different parts of a product in both cases? */
bool has_cases(const Module *m, NodeId term, const Node *sum);
/* Such a term as one without cases, or as one for each: their number. */
int terms_of_cases(Module *m, NodeId term, const Node *sum, NodeId out[2]);
/* Has each sequence or step its own value? */
bool is_per_row(const Node *n);
/* Is the index one of n? Does the value vary over an index of the sum? */
bool is_among(IndexId i, const IndexId *of, int n);
bool varies_in_sum(const Node *n, const Node *sum);
/* Does it sum the product of two such reads? */
bool is_plain_product(const Module *m, const Node *sum);
/* The terms that a value adds up, and which of them it subtracts; their number, -1: more than that. */
int added_terms(const Module *m, NodeId id, NodeId out[MOST_TERMS], bool negative[MOST_TERMS]);
/* The pass: sums become products of a param and a value that has a name, as far as they are such. */
void make_products(Module *m);

#endif
