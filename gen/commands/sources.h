/* sources.h: the files that a spec is made of (cmd_sources.c). */
#ifndef CELLC_SOURCES_H
#define CELLC_SOURCES_H

#include "base/compiler.h"

/* Is told each path at which an import is looked for, also where there is nothing. */
typedef void (*SourcesLooked)(void *data, const char *path);

/* Reads what the file imports, and what that does, into c->sources, each file once. `looked` may be NULL.
 * Diagnostics are only of files that are there and cannot be read. */
void sources_read(Compiler *c, int file, SourcesLooked looked, void *data);

#endif
