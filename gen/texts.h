/* texts.h: the texts that a command reads: specs, what they import, what `cellc tune` wrote. */
#ifndef CELLC_TEXTS_H
#define CELLC_TEXTS_H

#include <stdio.h>

#include "cellc.h"

/* Those from TEXT_IMPORT_DIR on are directories, with no text: where imports were looked for. */
typedef enum { TEXT_SPEC, TEXT_IMPORT, TEXT_TUNED, TEXT_IMPORT_DIR, TEXT_LIBRARY_DIR } TextKind;

/* Gives a compilation an empty store of texts; for compiler_new. */
void texts_open(Compiler *c);
/* From here on `to` has the texts of `from`, and both what either reads. */
void texts_share(Compiler *to, const Compiler *from);
/* Gives back what c has of them; for compiler_free. */
void texts_release(Compiler *c);

/* The text of a path, len bytes, then a NUL: as it was read first or, unless they come from a pack, from the file. It
 * lives as long as any compilation that shares it. NULL: *why says why it cannot be *what ("open", "read"). */
const char *text_load(Compiler *c, TextKind kind, const char *path, size_t *len, const char **what, const char **why);
/* Can the path be read, from what was kept or, unless that is a pack, from a file? */
bool text_is_there(const Compiler *c, const char *path);
/* The path of the n-th text of a kind, from 0 on, or NULL. */
const char *texts_path(const Compiler *c, TextKind kind, int n);

/* Takes the texts of a pack, of standard input where `path` is "-"; false after a message. Of a closed one nothing else
 * is read, and it says where imports are looked for. */
bool texts_read(Compiler *c, const char *path, bool closed);
/* Is there a closed pack? Then the operand "-" is its spec. */
bool texts_closed(const Compiler *c);
/* Prints a pack of all that was read. */
void texts_write(const Compiler *c, FILE *out);

#endif
