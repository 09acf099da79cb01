/* cpu.h: kernels of a plan for the CPU (Request.cpu), as C. A kernel is a function over the items of a
 * range: items [first_item, end_item) are one thread's, and no sum depends on where the range is cut.
 * Kernels are built as trees (kernels/code.h, kir/kir.h) and printed by kir_print_c. Loops go so that
 * the innermost one runs over neighbours in memory, and a sum along it is kept in LANES lanes, or MANY
 * along what may be long, which are added in a fixed tree. */
#ifndef CELLC_CPU_H
#define CELLC_CPU_H

#include "kernels/code.h"
#include "plan/forms.h"

/* What a launch needs of a kernel. */
typedef struct CpuKernel {
    const char *name;
    const RefVec *refs;
    const Formula *items;
    const Formula
        *work; /* of an item: operations, roughly; so many of them are a piece that a thread takes */
    const Formula *scratch; /* bytes that a thread has for itself; NULL: none */
} CpuKernel;

/* LANES: partial sums that are kept side by side. MANY: where a row has at least LONG elements, or any
 * number: a sum waits for the one before it, so that four vectors take as long as one. PIECE: elements of a
 * row that are an item at most; STRAND: where steps go by pieces of rows. ROWS: rows of single elements that
 * are one item. COLUMNS: of a piece of sums over rows; PAGE: where these are few. TABLES: of a kernel at
 * most. SIDE: rows of a block (cpu_block.c). */
enum {
    CPU_LANES = 16,
    CPU_MANY_LANES = 64,
    CPU_LONG = 128,
    CPU_PIECE = 4096,
    CPU_STRAND = 512,
    CPU_ROWS = 256,
    CPU_COLUMNS = 256,
    CPU_PAGE = 1024,
    CPU_TABLES = 16,
    CPU_SIDE = 64
};

/* The kernels of a MAP, ROW, COLUMN or SCATTER group, and of a walk: prints them, and fills what their
 * launches need. A group has at most two. */
int cpu_group(Plan *p, Program *pr, Group *g, CpuKernel out[2], Buf *text);
void cpu_states(Plan *p, StateKernels *k, int which, CpuKernel *out, Buf *text);
void cpu_history(Plan *p, HistoryKernel *h, CpuKernel *out, Buf *text);

/* cpu_walk.c: a walk on chip (tile) as one kernel, an item for each state. Why it cannot be, or NULL. */
const Reason *cpu_walk_refuses(Plan *p);
/* One that is taken: how many steps lie between its checkpoints, which lie by rows. */
void cpu_walk_settle(Plan *p);
void cpu_walk_group(Plan *p, Program *pr, Group *g, CpuKernel *out, Buf *text);

/* ---- cpu_code.c: what the kernels share */

Code *cpu_open(Kernel *k, const char *name);
/* cpu_finish: of what went through cpu_hoist before. */
void cpu_close(Code *x, Buf *text);
void cpu_finish(Code *x, Buf *text);
/* Over the kernel's items. */
KirOpen cpu_items(Code *x, const KirExpr **item);
/* a / b and a % b, which are named; of b 1, a and 0. */
const KirExpr *cpu_divide(Code *x, const char *name, const KirExpr *a, const KirExpr *b,
                          const KirExpr **rest);
/* Loops over indices, whose names begin with `prefix`; lanes: the turns of the last depend on no other. */
int cpu_open_indices(Code *x, const IndexId *axes, int n, const char *prefix, bool lanes, KirOpen *open);
void cpu_close_all(Code *x, const KirOpen *open, int n);
/* The indices of a group's first array are kept, for the others (Code.own). */
void cpu_keep_axes(Code *x, NodeId first, int naxes);
void cpu_bind_axes(Code *x, NodeId array, int naxes);
/* Rows of the group's kernel, as a formula; and a product of extents. */
const Formula *cpu_rows(Plan *p, const Group *g);
const Formula *cpu_product(Plan *p, const Poly *const *axes, int n);

/* cpu_lanes.c: closes a loop whose turns depend on no other, over `var`, or over what `var` is declared
 * by in its first statement, and takes conditions of the call out of it; true: it may then read and store
 * elements of at most 8 bytes of scratch memory, at the places of `var`. */
bool cpu_close_lanes(Code *x, KirOpen open, const KirExpr *var);

/* Functions of an index in expressions of a ROW group's loops that are the same for all rows of a sequence's
 * step: where they lie, and whose they are (a row of code_split_row, or -1). */
typedef struct CpuTable {
    NodeId id;
    IndexId along;
    const KirExpr *place;
} CpuTable;
typedef struct CpuTables {
    CpuTable all[CPU_TABLES];
    int n;
    const KirExpr *of;
} CpuTables;

/* cpu_column.c: sums of columns that the kernel of a ROW group takes along with its rows. begin: what all
 * items need; open: an item is a chunk, whose rows the loop goes over; add: the terms at one place. */
typedef struct CpuSums {
    const Group *of; /* NULL: there are none */
    const KirExpr *rows, *columns, *chunks, *partial, *to[64];
} CpuSums;
void cpu_begin_sums(Code *x, CpuSums *s);
KirOpen cpu_open_chunk(Code *x, CpuSums *s, const KirExpr *chunk, const KirExpr **row);
void cpu_add_sums(Code *x, const CpuSums *s, const KirExpr *here);
const Formula *cpu_chunks(Plan *p, const Group *sums);

/* cpu_held.c: decides which values along a row of a ROW group lie in scratch memory (Code.held), and which
 * functions there. loop: per array of the group, in whose loop it is; side: rows go side by side. Gives the
 * bytes of scratch memory for them and for what cpu_close_lanes takes; NULL: none is held. */
const Formula *cpu_hold_rows(Code *x, int row_axes, const int *loop, bool side, CpuTables *tables);
/* Does an expression cost as much as what is worth holding? */
bool cpu_is_costly(const Code *x, NodeId id);
/* In front of the items; and in an item, for those of another row than the item before: from here on
 * expressions read them (Code.table). */
void cpu_begin_tables(Code *x, CpuTables *tables);
void cpu_fill_tables(Code *x, const CpuTables *tables, const KirExpr *row);

/* cpu_row.c: arrays of a ROW group that share a loop: reductions, and what is pointwise along the row; the
 * latter takes sums over rows along where it is the group's last (NULL: there are none). */
typedef struct CpuRun {
    const NodeId *ids;
    int n;
} CpuRun;
bool cpu_shares_loop(const Code *x, int first, int other); /* places in the group */
void cpu_reductions(Code *x, CpuRun run, int row_axes, Named *kept, const Formula **scratch);
void cpu_vectors(Code *x, CpuRun run, CpuSums *sums, const Formula **scratch);
/* An array for partial sums of a reduction, or what it begins with; and the terms at the indices in scope,
 * into element `lane` of each. */
const KirExpr *cpu_sum_array(Code *x, NodeId id, const char *name, const KirExpr *width);
void cpu_terms(Code *x, CpuRun run, int row_axes, const KirExpr *const *sums, const KirExpr *lane);
/* Makes the scratch memory hold what a loop over that many elements takes of it (cpu_close_lanes). */
void cpu_scratch_of_row(const Code *x, const Poly *extent, const Formula **scratch);

/* cpu_block.c: how rows of a ROW group go side by side; NULL: each alone. */
typedef struct CpuBlocks CpuBlocks;
CpuBlocks *cpu_blocks(Code *x, int row_axes);
/* The loop over the items, each a block; and how many blocks there are of a row of code_split_row. */
void cpu_block_rows(Code *x, CpuBlocks *b, const Formula **scratch);
const Formula *cpu_block_items(Code *x, int row_axes);

/* cpu_hoist.c: what is the same for all turns of a loop over neighbours, once in front of it. */
void cpu_hoist(Code *x);

/* cpu_ahead.c: asks for what the loops of a row take, in `rows`, the loop over them. */
void cpu_ahead(Code *x, KirStmt *rows);

/* cpu_steps.c: strands that all steps of a direction fall into, of which none reads what another writes;
 * NULL: one step's kernels wait for those of the one before. elements_apart: they are pieces of rows,
 * else sequences. */
const Formula *cpu_strands(Plan *p, const Program *pr);
bool cpu_elements_apart(const Plan *p, const Program *pr);
/* Items of a MAP group's kernel. */
const Formula *cpu_map_items(Plan *p, const Program *pr, const Group *g);

void cpu_map(Kernel *k, CpuKernel *out, Buf *text);
void cpu_row(Kernel *k, CpuKernel *out, Buf *text);
void cpu_column_sums(Kernel *k, CpuKernel *out, Buf *text);
void cpu_column_totals(Kernel *k, CpuKernel *out, Buf *text);
void cpu_scatter(Kernel *k, CpuKernel out[2], Buf *text);

#endif
