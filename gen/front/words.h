/* words.h: what other languages and papers write, and what a spec says in its place (words.c). */
#ifndef CELLC_WORDS_H
#define CELLC_WORDS_H

#include "base/compiler.h"

/* words.c: what to write in place of what other languages have: of a function, of sum_d, of an initialiser, of the character
 * that a text begins with, of OWNER.BEHIND (behind: the text behind the '.'), of a statement's first word. NULL: not known. */
const char *foreign_function(Compiler *c, const char *name);
const char *foreign_reduction(Compiler *c, const char *name);
/* Is it sum, mean, or another reduction of the language? */
bool names_reduction(const char *word);
const char *foreign_initialiser(const char *name);
const char *foreign_character(Compiler *c, const char *text, size_t len);
const char *foreign_member(Compiler *c, const char *owner, size_t owner_len, const char *behind);
const char *foreign_statement(const char *word);
/* Of the operator that a text begins with, whose characters go to *len; of a word between two operands. */
const char *foreign_operator(const char *text, int *len);
const char *foreign_infix(const char *word);
/* The type that a word of another language is here, "" where all values are of it; NULL: it is no type. */
const char *foreign_type(const char *word);
/* Is it a module of Python, as torch? */
bool is_foreign_module(const char *name, size_t len);
/* What a value that other languages have by name is here, as true and nan. */
const char *foreign_value(const char *name);
/* Is the name one of another step, as h_prev (*step -1), h_t (0), h_next (1)? Then *base is h. */
bool foreign_step(Compiler *c, const char *name, const char **base, int *step);

#endif
