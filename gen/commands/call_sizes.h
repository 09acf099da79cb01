/* call_sizes.h: --sizes, the sizes of one call, of the commands that say what it takes (call_sizes.c). */
#ifndef CELLC_CALL_SIZES_H
#define CELLC_CALL_SIZES_H

#include "ir/ir.h"
#include "options.h"

/* Reads "B=16,T=512,D=1024" into `sizes`, by atom, for a call that begins with step 0. Every size of the cell
 * is to be there, and no other, save one of `beside`, a cell that is looked at together with this one; or
 * NULL. 0, or the exit code of wrong usage after a message. */
int call_sizes_read(const CommandHelp *help, const Module *m, const Module *beside, const char *text,
                    int64_t sizes[MAX_DIMS]);

#endif
