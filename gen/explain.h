/* explain.h: what `cellc explain` prints. table.c lays columns out, cost.c counts, explain.c words. */
#ifndef CELLC_EXPLAIN_H
#define CELLC_EXPLAIN_H

#include "emit.h"
#include "plan.h"

/* ---- table.c: rows of text in aligned columns, at most 110 wide; the last column wraps. */

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

/* ---- cost.c: bytes and flops of one step of one sequence, and what is moved once per call. */

typedef struct Cost {
    const Poly *flops;            /* per sequence and step; one per operator and element, a product's multiply and add two */
    const Poly *flops_once;       /* per call: of params alone, and what each sequence has once */
    const Poly *step;             /* bytes read and written per sequence and step */
    const Poly *once;             /* bytes per call: params, their gradients, what is the same for all */
} Cost;
bool computed_where_read(const Plan *p, const Program *g, NodeId array);  /* by no operation of its own */
Cost cost_of_array(const Plan *p, const Program *g, NodeId array);   /* what it writes, and its flops */
Cost cost_of_group(const Plan *p, const Program *g, int group);      /* reads, writes and flops */
Cost cost_sum(const Plan *p, Cost a, Cost b);

/* ---- explain.c. p: as plan_make gave it. */
void explain(const Plan *p, Buf *out);
/* What the call would be refused for at sizes, by atom; NULL: nothing. */
const char *explain_refused(const Plan *p, const int64_t sizes[MAX_DIMS]);
/* Bytes of a call at such sizes, as the runtime would say but for what shares memory. */
void explain_memory(const Plan *p, const int64_t sizes[MAX_DIMS], Buf *out);
/* Of it: the instance, the schedule, and what a step costs in each direction. */
void explain_cost(const Plan *p, Buf *out);

#endif
