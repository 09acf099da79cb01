/* ladder.h: what the parts of the ladder share. A Case is one instance at one set of sizes: its inputs, and
 * what the reference makes of them in double (case.c), and in float with functions that err as the device's
 * do (rough.c); call.c runs the instance in poisoned and guarded memory; judge.c compares what came out with
 * the reference; identities.c compares runs with each other, stored.c runs the reference as users do, large.c
 * a large batch with one sequence; ladder.c goes through the sizes. `make check` and `cellc selftest` link
 * the same library of it. */
#ifndef LADDER_H
#define LADDER_H

#include <stdbool.h>
#include <stdint.h>

#include "cell_plan.h"

enum { MAX_ARGS = 128 };

/* How many roundings a limit allows for (judge.c). */
enum { FAR = 16 };

/* Values of a call's arguments in double, in the order of the call's list. */
typedef struct Set {
    double *v[MAX_ARGS];
    int64_t n[MAX_ARGS];
} Set;

/* The same as bytes in storage types, as a run left them; NULL where the argument was NULL. */
typedef struct Raw {
    void *p[MAX_ARGS];
    size_t bytes[MAX_ARGS];
} Raw;

/* How far the reference's results move when every input is moved by a unit roundoff, or when it computes in float: the
 * most of a few draws, by argument. */
typedef struct Sense {
    double rms[MAX_ARGS];   /* of the tensor */
    double along[MAX_ARGS]; /* of its projection onto itself, relative: 1 is all of it */
    double *each[MAX_ARGS]; /* of each element */
    double *far[MAX_ARGS];  /* of each element, when every input is moved by FAR unit roundoffs */
    bool vanishes[MAX_ARGS]; /* it is no larger than what double makes of zero */
} Sense;

typedef struct Case {
    cell_context *ctx;
    const cell_desc *d;
    int64_t sizes[CELL_MAX_SIZES];
    char label[256];
    double u;         /* unit roundoff of the coarsest type of the instance */
    bool null_states; /* initial states are NULL */
    Set f, b;         /* forward and backward: inputs, and the reference's results */
    Sense fs, bs;     /* what those results are sensitive to */
} Case;

/* Memory of the backend with a guard behind it. */
typedef struct Guarded {
    void *p;
    size_t bytes;
} Guarded;

typedef struct Call {
    char which; /* 'f', 'b', 's' */
    const int64_t *sizes;
    const Set *in;    /* its read arguments */
    const Set *start; /* what written arguments hold before; NULL: NaN */
    const bool *null; /* arguments to leave out; NULL: none */
    bool in_place;    /* final states go where the initial ones are */
    int flags;
    Guarded *reserve; /* NULL: none */
    void *host; /* with CELL_OFFLOAD */
    size_t host_bytes;
} Call;

const cell_arg *call_args(const cell_desc *d, char which, int *n);
/* Whether a call writes the argument; the gradient of a constant has a slot in the list, which is ignored. */
bool written(const cell_desc *d, const cell_arg *a);
bool ignored(const cell_arg *a);
bool is_state(const cell_desc *d, const cell_arg *a);
double unit(cell_dtype t);
double rounded(double v, cell_dtype t);
/* From here on a type has no numbers: it rounds to infinity. */
double overflow(cell_dtype t);
double uniform(void); /* [0, 1) */
double normal(void);
bool normal_is_negative(void); /* of the number that normal would give: its sign takes no functions */
/* Where the generator of normal is, and back there. */
uint64_t normal_at(void);
void normal_from(uint64_t at);
void *take(size_t bytes);
void from_storage(double *to, const void *from, int64_t n, cell_dtype t);
/* The run's results as doubles; the caller frees both. */
Set values_of(const cell_desc *d, const cell_arg *args, int n, const Raw *raw);
void set_free(Set *s);
void raw_free(Raw *r);

/* From here on the reference in float has approximate functions, another draw of them for every number; 0:
 * exact ones. With each_call equal arguments give values that differ by two units. */
void rough_approximate(uint32_t number, bool each_call);

Guarded reserve_for(Case *c, const int64_t *sizes);
Guarded reserve_of(Case *c, size_t bytes);
/* Whether nothing was written behind it; counts, reports and frees. */
void guarded_free(Case *c, Guarded *g, const char *what);
/* Runs the call in poisoned memory and gives what its arguments hold afterwards. Exits when it fails. */
Raw run_call(Case *c, const Call *call);

/* Zeroed values for the arguments of a call at sizes. */
Set set_new(const cell_desc *d, const cell_arg *args, int n, const int64_t *sizes);
double rms(const double *a, const double *b, int64_t n);

/* Counts one check, and reports it when it failed. */
void verdict(Case *c, bool ok, const char *what, const char *tensor);
const char *arg_name(const cell_desc *d, const cell_arg *a);
/* Inputs and params, or outputs: they have steps. */
bool is_timed(const cell_desc *d, const cell_arg *a);
/* Compares what a run wrote with want, under the tolerance of judge.c; addend (or NULL) is what want was
 * added to. */
void compare(Case *c, const char *what, const cell_arg *args, int n, const Set *got, const Set *want,
             const Sense *sense, const Set *addend);
/* How many of the tensors that the reference wrote roundings leave undecided, or do not fit their type. */
int count_undecided(const Case *c);
/* What was asked of the instance's tensors at some sizes and decided at none: skipped, or with
 * LADDER_DECIDED=1 a failure each. */
void judge_coverage(const cell_desc *d);
/* Of all verdicts. */
typedef struct Counts { int passed, failed, skipped; } Counts;
Counts counts(void);

/* Of packed sequences, how many rows those of a case have together, at a size of the call; of others nothing. */
void choose_total(const cell_desc *d, int64_t *sizes);
/* Draws inputs and runs the reference on them; milder ones where roundings or infinities would decide the results. */
Case case_new(cell_context *ctx, const cell_desc *d, const int64_t *sizes, bool null_states);
void case_free(Case *c);

/* Runs forward and backward, and compares what they wrote with the case's results. */
void check_against_reference(Case *c, const char *what);
/* The same of the reference as the library has it: in the type of its arithmetic, on tensors in storage types. */
void check_stored(Case *c);
/* Runs of a case against each other: of all steps, by what is wanted and given, and of pieces of them. */
enum { IDENTITIES_OF_RUNS = 1, IDENTITIES_OF_PIECES = 2, IDENTITIES = 3 };
void check_identities(Case *c, int which);
/* The sizes are those of one sequence (B 1). */
void check_large(cell_context *ctx, const cell_desc *d, const int64_t *sizes, int64_t copies);

#endif
