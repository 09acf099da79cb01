/* home.h: where what cellc ships lies: std.cell, the runtime's headers, libcell. */
#ifndef CELLC_HOME_H
#define CELLC_HOME_H

#include "compiler.h"

typedef enum {
    HOME_SPECS,                   /* std.cell and the cells that come with cellc */
    HOME_INCLUDE,                 /* cell.h, cell_plan.h, device/ */
    HOME_BACKEND,                 /* backend_cuda.c, which is compiled with the toolkit of the machine */
    HOME_TIME,                    /* time.c, which measures on a GPU, likewise; call.h */
    HOME_EMULATOR,                /* what runs kernels on the CPU: cell_emu*.h, .cc */
    HOME_LIB                      /* libcell.a, libcell.flags */
} HomePart;

/* The path of this program, in c's arena; NULL where the system does not say. */
const char *home_program(Compiler *c);
/* A directory, allocated in c's arena; NULL when there is no such one beside the program, nor where
 * CELLC_HOME (a source tree that was built, or an install prefix) points. */
const char *home_dir(Compiler *c, HomePart part);

/* The path of a spec as a user names it: a file, or by a word alone a cell that comes with cellc; behind a ':' may
 * stand the name of one of its cells, which goes into c->cell. NULL with a diagnostic when there is neither. */
const char *home_spec(Compiler *c, const char *name);
/* What home_spec read, for the command line of another cellc. */
const char *home_operand(Compiler *c, const char *path);

/* The build's flags (libcell.flags): the line that starts with `key`, without it; NULL when there is none. */
const char *home_flags(Compiler *c, const char *key);

#endif
