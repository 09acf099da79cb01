/* elf_names.h: what a shared library has, by its file (elf_names.c). */
#ifndef CELLC_ELF_NAMES_H
#define CELLC_ELF_NAMES_H

#include "base/compiler.h"

typedef Vec(const char *) ElfNames;

/* The functions that a 64-bit ELF library defines whose names end in `suffix`, sorted, in c's arena. NULL,
 * or why the file is none that can be read; nothing of it is run. */
const char *elf_names(Compiler *c, const char *path, const char *suffix, ElfNames *names);

#endif
