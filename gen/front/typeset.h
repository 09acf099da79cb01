/* typeset.h: the text of equations as people write them. */
#ifndef CELLC_TYPESET_H
#define CELLC_TYPESET_H

#include "base/util.h"

/* A piece of a spec, n bytes without comments, in Unicode: names of Greek letters as letters, sums with their indices
 * below, powers raised, signs of arithmetic and comparison as in print; blanks and line breaks become one blank. */
void typeset(const char *text, size_t n, Buf *out);
/* A condition on options: its signs likewise; names are those of options and their values, and stay. */
void typeset_condition(const char *text, size_t n, Buf *out);

#endif
