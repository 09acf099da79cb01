/* generate.h: a compiled spec and the texts that can be made from it. */
#ifndef CELLC_GENERATE_H
#define CELLC_GENERATE_H

#include "ir/ir.h"

struct Plan;

typedef enum {
    GEN_ALWAYS,
    GEN_HOST, /* only where there are no kernels */
    GEN_CUDA, /* only where there are */
    GEN_CPU /* where there are kernels for the CPU */
} GenWhen;

/* The device's side: the kernels, and the tables and functions that run them. */
typedef enum { SIDE_NONE, SIDE_KERNELS, SIDE_PLAN, SIDE_CPU } DeviceSide;

/* What can be generated: by a function from the module, or a side of the plan. */
typedef struct Emitter {
    const char *kind;
    const char *suffix;           /* of the file: NAME + suffix; NULL: printed only */
    GenWhen when;
    void (*emit)(const Module *m, Buf *out);
    DeviceSide side;
} Emitter;
extern const Emitter emitters[];  /* a row with a NULL kind ends it */

/* A spec on the way to its files. What it points to belongs to the compilation. */
typedef struct Generated {
    Compiler *c;
    Module *m;                    /* differentiated, as the reference has it */
    const Module *lowered;        /* as the front end made it */
    struct Plan *plan;            /* of the kernels; NULL without */
    struct Plan *cpu; /* of those for the CPU (generate_cpu); NULL without */
    Buf cpu_text;
    const char *tuned;            /* what is to be said of a schedule that was measured; NULL: it is the planner's */
    Buf kernels, tables;          /* the plan's two sides, printed together when one is first asked for */
} Generated;

/* Compiles the spec, and with `device` plans its kernels. C names and files begin with the cell's name,
 * and with "_suffix" behind it unless suffix is NULL. False when there are errors, which the caller prints
 * from c. */
bool generate_open(Generated *g, Compiler *c, const char *spec, const char *suffix, bool device);
/* Plans kernels for the CPU beside the rest; false where the cell can have none, which is said nowhere. */
bool generate_cpu(Generated *g);
/* Prints the plan's two sides, if there is a plan. False when that shows errors, as too many arrays: again
 * for the caller. */
bool generate_kernels(Generated *g);
/* Whether the emitter's file belongs to the library. */
bool generate_takes(const Generated *g, const Emitter *e);
void generate_text(Generated *g, const Emitter *e, Buf *out);
/* Writes all files of the library to `dir`, which is made, and prints their paths; false after a message. */
bool generate_files(Generated *g, const char *dir);
/* Makes a directory and those above it; false after a message. */
bool make_dirs(Compiler *c, const char *path);
/* Writes the file and prints its path; false after a message. */
bool write_text(const char *path, const Buf *text);

#endif
