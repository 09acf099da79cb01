/* check.h: what the parts of `cellc check` share: the compiled cell, the backends that are compared with the
 * evaluator, and the comparisons. */
#ifndef CELLC_CHECK_H
#define CELLC_CHECK_H

#include "case.h"
#include "ir/ir.h"

/* A cell at one choice of options and sizes. */
typedef struct Subject {
    Compiler *c;
    const Module *m;              /* differentiated, as the backends read it */
    Eval *e;
    const char *dir;              /* a temporary directory for generated files */
    const char *label;            /* "e79 bias=none N=5 D=3" */
} Subject;

/* What a backend gave for a case; indexed as the evaluator's tensors, NULL where there is nothing. */
typedef struct Result {
    double **out;                 /* outputs [B,T,..], final states [B,..] */
    double **grad;                /* of inputs, params and, where the case gives them, initial states */
} Result;

enum { CASE_INFERENCE = 1,        /* no reserve, no gradients */
       CASE_STEPWISE = 2,         /* forward in calls of one step each, no gradients */
       CASE_ACCUMULATE = 4 };     /* gradients add to what is in result->grad */

typedef struct Backend {
    const char *name;
    /* Makes the cell ready to run; NULL with *error when that is impossible. */
    void *(*open)(const Subject *s, const char **error);
    /* Runs a case; gradients for the tensors whose result->grad is not NULL. NULL, or what went wrong. */
    const char *(*run)(void *self, const Subject *s, const Case *k, Result *r, int flags);
    void (*close)(void *self);
} Backend;

extern const Backend reference_backend;   /* check_reference.c: the generated C, compiled in double */
extern const Backend *const backends[];   /* check.c; ends with NULL */

/* A result with room for the case, poisoned with NaN. */
Result *result_new(const Subject *s, const Case *k, bool gradients);

/* What failed, the gravest first: what comes after it may be its consequence. */
typedef enum { FAIL_RUN, FAIL_VALUE_NAN, FAIL_VALUE, FAIL_GRADIENT_NAN, FAIL_GRADIENT, FAIL_IDENTITY } FailKind;

typedef struct Tally {
    int passed, failed;
    unsigned kinds;               /* one bit per FailKind that occurred */
    double worst_forward, worst_gradient;
    bool verbose, quiet;
    bool brief;                   /* failures are printed, and no line for each compiled cell */
    int most;                     /* failures to print, 0: all */
} Tally;

/* Records one check and says why it failed; of kind FAIL_RUN, when nothing else is said. */
bool tally(Tally *t, bool ok, const Subject *s, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
bool tally_kind(Tally *t, bool ok, FailKind kind, const Subject *s, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* rms(x - ref) / rms(ref), absolute where ref is zero; NaN when either has one. */
double rms_ratio(const double *x, const double *ref, int64_t n);

/* check.c: which compilations of a cell are looked at. */
enum { MAX_VARIANTS = 64, MAX_CHOSEN = 64 };
typedef struct Variant { Setting set[MAX_CHOSEN]; int n; } Variant;
/* Every value of every option once, all other options at their defaults; or, with `all`, every combination.
 * `list` has room for MAX_VARIANTS; options that the user chose stay as they are. Gives how many there are. */
int list_variants(const Compiler *user, const EvalOutline *o, bool all, Variant *list);
/* Sizes to try: rounds 0 to N_ROUNDS - 1, small and each dim another. For dims of one kind (with a default, or
 * open) that the user did not give; `out` has room for MAX_CHOSEN. */
enum { N_ROUNDS = 6, WANTED_ROUNDS = 3 };
int sizes_of_round(const Compiler *user, const EvalOutline *o, int round, bool open, EvalSize *out);
int64_t size_in_round(int round, int position);   /* of the dim at that position among all of the cell */
/* Do the conditions hold on which generated code would refuse a call of so many steps? */
bool check_sizes_allowed(const Module *m, const Eval *e, int64_t steps, int64_t first);
/* A compilation with the user's settings, a variant's (or NULL) and these sizes, in double. */
Compiler *compiler_like(const Compiler *user, const Variant *v, const EvalSize *bound, int nbound);

/* check_case.c: the evaluator against one backend on one case: outputs and final states, every gradient by
 * the dot-product test, and the identities of the ladder. */
void check_case(const Subject *s, const Backend *b, void *self, const Case *k, const char *what, Tally *t);
/* Where inputs and outputs have steps [from, from + steps): the first row. */
int64_t first_row(const Subject *s, const Case *k, int64_t from, int64_t steps);
/* What else compares two ways of computing a cell takes from here. Bounds relative to the size of a tensor;
 * what one operation may be off by where both sides of a comparison have made its roundings. */
extern const double check_forward_bound, check_gradient_bound, check_roundings;
/* Runs the evaluator; writes the tensors for which `out`, by tensor, has room. false: s->e->run_error. */
bool check_evaluate(const Subject *s, const Case *k, double **out);
/* "step 3, sequence 0, [2,1]", in the words of the user, of an element of a tensor of the case. */
const char *check_place(const Subject *s, const Case *k, const EvalTensor *t, int64_t at);
/* What roundings can make of <u, J v>, for v in one tensor. It is linear in |v|. */
double check_path_bound(const Subject *s, const Case *k, int tensor, const double *v);
/* The largest sum of |gradient * value| over a tensor: the weight of the terms that a backward pass adds. */
double check_weight(const Subject *s, const Case *k, const Result *r);
/* Whether the case can be checked at all, by the evaluator alone: every definition of the cell and every directional
 * derivative is a finite number, and roundings move no output or state by more than 1e-9 of its size or of one. */
void judge_case(const Subject *s, const Backend *b, void *self, const Case *k, const char *what, Tally *t);
/* Every tensor of a vector file, whose case is k, against the evaluator and the backend. */
void check_vectors(const Subject *s, const Backend *b, void *self, const Case *k, const VecFile *f, Tally *t);

/* check.c: checks the spec at `path` with the settings of c, which is for nothing else, as `cellc check`
 * does. Prints failures only; counts are in *t. For a caller that has compiled it and printed its
 * diagnostics. false: it cannot be read, with diagnostics in c. */
bool check_briefly(Compiler *c, const char *path, bool all_variants, Tally *t);

/* check.c: checks a cell that is given as text, with the lengths and the direction of time of `like`, at its own bound
 * sizes and two choices of the open ones.
 * Failures are printed unless `quiet`. false when it does not compile (with diagnostics on stdout unless
 * quiet) or a check failed. */
bool check_text(const Compiler *like, const char *text, size_t len, const char *dir, bool quiet, Tally *t);
/* Can it be checked, as judge_case has it, in all cases of check_text? So it is when it does not compile: that is for
 * check_text to say. */
bool judge_text(const Compiler *like, const char *text, size_t len, const char *dir);

#endif
