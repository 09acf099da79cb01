/* front.h: the passes of the front end, from the AST to the IR. */
#ifndef CELLC_FRONT_H
#define CELLC_FRONT_H

#include "ast.h"
#include "ir/ir.h"

/* expand.c: the path of what the file `from` imports by that name: beside it, in import_dir, in the library; NULL where
 * it is in none of them. A file has one path, the first that led to it. */
const char *import_find(Compiler *c, int from, const char *name);
/* expand.c: where it is looked for, in this order; gives how many places there are. */
enum { MOST_IMPORT_PLACES = 3 };
int import_places(Compiler *c, int from, const char *name, const char *places[MOST_IMPORT_PLACES]);
/* expand.c: why nothing of that name can be imported, wherever it is; NULL where it can. */
const char *import_refused(const char *name);
/* expand.c: imports, options, when, fn, repeat -> a flat cell: declarations and equations only, nothing
 * conditional. */
typedef struct FlatStmt FlatStmt;
typedef struct Flat Flat;         /* expand's result, private to expand.c, resolve.c and lower.c (flat.h) */
Flat *expand(Compiler *c, const Ast *ast, const char *cell_name);
/* resolve.c: names, ranges, shapes, bounds, single assignment, cycles, types; annotates the flat cell. */
bool resolve(Compiler *c, Flat *flat);
/* lower.c: flat cell -> IR. */
Module *lower(Compiler *c, Flat *flat);
/* The three in a row, with verification; NULL when there are errors. */
Module *front_end(Compiler *c, const char *path);

#endif
