/* tune.h: what the parts of `cellc tune` share, and what other commands ask of it. tune_candidates.c lists the schedules
 * that the planner allows, tune_run.c builds and times one, tune_file.c keeps what was chosen, cmd_tune.c decides. */
#ifndef CELLC_TUNE_H
#define CELLC_TUNE_H

#include "ir/ir.h"

/* ---- tune_file.c: NAME.tune beside a library */

/* What was fastest for an instance on a GPU at some sizes. Milliseconds: forward, forward plus backward. */
typedef struct TuneEntry {
    const char *instance;         /* "e88:N=64,V=64,dtype=bf16" */
    const char *program;          /* tune_program of it */
    const char *gpu, *arch;       /* "NVIDIA H200", "90" */
    const char *sizes;            /* "B=8,T=2048,D=1024,H=32" */
    const char *schedule;         /* as --schedule takes it */
    double ms[2], default_ms[2];
    Span span, program_span, schedule_span;
} TuneEntry;
typedef Vec(TuneEntry) TuneEntryVec;

/* The entries of a file; false with errors in c. */
bool tune_read(Compiler *c, const char *path, TuneEntryVec *entries);
/* In place of the entry of the same instance, GPU and sizes, else behind all. */
void tune_put(Compiler *c, TuneEntryVec *entries, TuneEntry entry);
bool tune_write(Compiler *c, const char *path, const TuneEntryVec *entries);
/* What the cell computes, as a number: the same for a spec with other comments and names of files. */
const char *tune_program(const Module *m);
/* Where no schedule was asked for, that of a file: --tuned, else CELL.tune in c->tuned_dir or in the directory CELLC_TUNED.
 * Sets c->schedule and what belongs to it, and gives a sentence about it; NULL where there is none. What is stale is
 * diagnosed, and so is a file that cannot be read. */
const char *tune_take(Compiler *c, const Module *m);

/* ---- tune_candidates.c */

typedef enum { TUNE_OPEN, TUNE_TIMED, TUNE_WRONG, TUNE_FAILED } TuneState;

typedef struct Candidate {
    const char *schedule;         /* as --schedule takes it; the first is "auto" */
    const char *what;             /* in words */
    uint64_t code;                /* of its kernels and launch plans: what is the same is one candidate */
    WalkHints hints;
    bool tile;                    /* hints are of a walk */
    TuneState state;
    double ms[2];                 /* forward, forward plus backward */
    const char *said;             /* what was wrong */
} Candidate;

typedef struct Candidates {
    Compiler *c;                  /* settings of the command line, and memory */
    const char *spec;             /* path */
    const char *arch;             /* "90" */
    int64_t layouts;              /* of each direction, at most */
    const char *name, *instance, *program;
    const char **sizes;           /* names of the call's sizes */
    int n_sizes;
    Vec(Candidate) list;
} Candidates;

/* Fills all but what was given; false with errors in c. */
bool candidates_find(Candidates *all);
/* The best layouts and the best interval of those that were timed in one: true where that is a candidate of its own,
 * which is then the last. */
bool candidates_combine(Candidates *all);

/* ---- tune_run.c: building and timing one after the other */

typedef struct Measure {
    Compiler *c;
    const char *gpu, *arch;
    const char *times;            /* the text of CELLC_TUNE_TIMES: measured elsewhere, nothing is run; NULL */
    const char *program;          /* this one */
    const char *dir;              /* temporary */
    const char *call;             /* "8,2048,1024,32,0": the sizes, in order */
    int jobs;                     /* compilers at once */
    bool verbose;
} Measure;

/* Finds the GPU; 1 after a message: there is none. -1 to go on. */
int measure_open(Measure *m, const char *command);
/* Builds what is open from number `from` on. */
void measure_build(Measure *m, Candidates *all, int from);
/* Compares candidate k's results with the first one's, and times it. */
void measure_run(Measure *m, Candidates *all, int k);
void measure_close(Measure *m);

#endif
