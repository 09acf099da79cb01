/* texts.h: the texts that a command reads: specs, what they import, what `cellc tune` wrote. */
#ifndef CELLC_TEXTS_H
#define CELLC_TEXTS_H

#include <stdio.h>

#include "compiler.h"

/* Those from TEXT_IMPORT_DIR on are directories, with no text: where imports were looked for. TEXT_SAME is
 * another path of a text; it has that text's path in the place of a text. */
typedef enum { TEXT_SPEC, TEXT_IMPORT, TEXT_TUNED, TEXT_SAME, TEXT_IMPORT_DIR, TEXT_LIBRARY_DIR } TextKind;
enum { MAX_TEXT_MB = 8 };         /* of one text: 200,000 operations, which a cell may have, are less */

/* Gives a compilation an empty store of texts; for compiler_new. */
void texts_open(Compiler *c);
/* From here on `to` has the texts of `from`, and both what either reads. */
void texts_share(Compiler *to, const Compiler *from);
/* Gives back what c has of them; for compiler_free. */
void texts_release(Compiler *c);

/* The text of a path, len bytes, then a NUL: as it was read first or, unless they come from a pack, from the
 * file. It lives as long as any compilation that shares it. NULL: *why says why it cannot be *what ("open",
 * "read"). What is imported is a regular file, and its name ends in .cell behind symbolic links too, so that
 * no message quotes a line of anything else; a spec that a user names may be a pipe. */
const char *text_load(Compiler *c, TextKind kind, const char *path, size_t *len, const char **what,
                      const char **why);
/* Keeps a text under its path before anything reads it, in the place of the file if there is one: what an
 * editor has. */
void text_put(Compiler *c, const char *path, const char *text, size_t len);
/* Is there a text of that path, among what was kept or, unless that is a pack, as a file? A directory is
 * none. */
bool text_is_there(const Compiler *c, const char *path);
/* The path of the text that `path` leads to: where that file was read before under another spelling, or
 * through a link, the path that it had then. */
const char *text_first(Compiler *c, const char *path);
/* The path of the n-th text of a kind, from 0 on, or NULL. */
const char *texts_path(const Compiler *c, TextKind kind, int n);

/* Takes the texts of a pack, of standard input where `path` is "-"; false after a message. Of a closed one
 * nothing else is read, and it says where imports are looked for. */
bool texts_read(Compiler *c, const char *path, bool closed);
/* Is there a closed pack? Then the operand "-" is its spec. */
bool texts_closed(const Compiler *c);
/* Prints a pack of all that was read. */
void texts_write(const Compiler *c, FILE *out);

#endif
