/* cell_few_sizes.h: sizes of the kernels for f32 products of few rows (device/cell_device_few.cuh), which the
 * runtime that launches them (ops.c) and the compiler that emits them share. */
#ifndef CELL_FEW_SIZES_H
#define CELL_FEW_SIZES_H

/* ROWS_MOST, ROWS_LEAST: of a product that they take. OUTS: columns of the result that a block has, TERMS
 * that it has of them at a time, STAGES of which are on the way or being multiplied; threads of a block. */
enum {
    CELL_FEW_ROWS_LEAST = 9,
    CELL_FEW_ROWS_MOST = 32,
    CELL_FEW_OUTS = 32,
    CELL_FEW_TERMS = 64,
    CELL_FEW_THREADS = 256
};
#define CELL_FEW_STAGES(rows) ((rows) <= 16 ? 5 : 4)
/* The kernels: for up to 16 rows and up to 32, of a matrix that lies by outs and by terms. */
enum { CELL_FEW_KERNELS = 4 };
/* Bytes of shared memory of a block: rows 16 or 32; across: by terms. */
#define CELL_FEW_BYTES(rows, across)                                                                         \
    (4 * CELL_FEW_STAGES(rows) *                                                                             \
     (((across) ? CELL_FEW_TERMS * (CELL_FEW_OUTS + 4) : CELL_FEW_OUTS * (CELL_FEW_TERMS + 4)) +             \
      (rows) * (CELL_FEW_TERMS + 4)))
#endif
