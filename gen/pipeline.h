/* pipeline.h: the passes in order, from text to text (pipeline.c). */
#ifndef CELLC_PIPELINE_H
#define CELLC_PIPELINE_H

#include "ir/ir.h"

/* pipeline.c: the passes in order, as a table; --dump-after takes their names. */
typedef struct Pass {
    const char *name;
    void (*run)(Module *m);       /* NULL for the passes of the front end, which make the module */
    const char *what;             /* for the help */
} Pass;
extern const Pass front_passes[];          /* text to IR only */
extern const Pass step_passes[];           /* up to the step in normal form, without its adjoint */
extern const Pass reference_passes[];      /* up to what emit_c reads; a row with a NULL name ends it */
extern const Pass fast_passes[];           /* up to what the CUDA emitters read */
extern const Pass cut_passes[];            /* the same for a schedule that cuts the step (Schedule.cut) */
extern const Pass sum_passes[]; /* likewise, of a cell without a state */
bool pass_exists(const char *name);

/* Runs the passes on the spec at `path`, and verifies what the last one leaves (c->verify_passes: what each
 * leaves). Diagnostics stay in c, the caller prints them. NULL when there are errors. */
Module *compile(Compiler *c, const char *path, const Pass *passes);
/* The same from behind "lower": runs the passes on a copy of what compile gave for front_passes. */
Module *compile_lowered(const Module *lowered, const Pass *passes);
/* The same up to and with the pass of that name. */
Module *compile_until(const Module *lowered, const Pass *passes, const char *last);
/* --dump-after: prints the program as c->dump_after leaves it to stdout, and diagnostics to stderr; gives
 * the exit code. */
int dump_spec(Compiler *c, const char *path);
/* Copies settings (dims, sets, dtype, schedule, import_dir) to a compilation of their own. */
void compiler_inherit(Compiler *to, const Compiler *from);

#endif
