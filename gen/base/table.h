/* table.h: rows of text in aligned columns, at most 110 wide; the last column wraps (table.c). */
#ifndef CELLC_TABLE_H
#define CELLC_TABLE_H

#include "compiler.h"

enum { TABLE_COLUMNS = 10, TABLE_WIDTH = 110 };
typedef struct TableRow { const char *cell[TABLE_COLUMNS]; } TableRow;
typedef struct Table {
    int columns;
    unsigned right;               /* bits: columns that are aligned to the right */
    Vec(TableRow) rows;           /* the first is the heading */
} Table;
void table_row(Compiler *c, Table *t, ...) __attribute__((sentinel));        /* cells, then (char *)NULL */
void table_print(const Table *t, Buf *out);
/* Text broken at spaces into lines of at most TABLE_WIDTH, each behind `indent` blanks. */
void put_paragraph(const char *text, int indent, Buf *out);

#endif
