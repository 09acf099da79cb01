/* cell_attention_sizes.h: the sizes of the blocks of attention's kernels
 * (runtime/device/cell_device_attention.cuh).
 *
 * In: the kernel, the element size of what it multiplies, the padded sizes of a key and a value, the shared
 * memory that a block may take, and whether rows take so many keys that warps which only copy pay. Out: what
 * a block has, and how much shared memory it takes. C11 and C++17 read this file alike, so that the compiler
 * and the kernels compute the same.
 */
#ifndef CELL_ATTENTION_SIZES_H
#define CELL_ATTENTION_SIZES_H

#ifdef __cplusplus
#define CELL_ATTENTION_FUNCTION __host__ __device__ constexpr inline
#else
#define CELL_ATTENTION_FUNCTION static inline
#endif

enum {
    CELL_ATTENTION_FORWARD, /* y, and the logarithm of each row's sum */
    CELL_ATTENTION_FEW, /* the same, of a head that has few rows: blocks own 64 */
    CELL_ATTENTION_BACK_ROWS, /* the gradient of queries */
    CELL_ATTENTION_BACK_KEYS, /* the gradients of keys and values */

    CELL_ATTENTION_THREADS = 128, /* of blocks of dots and combine */
    CELL_ATTENTION_BOX = 64, /* columns of a box: 128 bytes of 16 bits each */
    CELL_ATTENTION_BOXES = 128, /* the most elements of a key or a value that lies in boxes */
    /* Parts of the keys of few rows: at most so many, of so many keys at least, and blocks of all of them. */
    CELL_ATTENTION_PARTS = 16,
    CELL_ATTENTION_PART_KEYS = 256,
    CELL_ATTENTION_PART_BLOCKS = 264,
    CELL_ATTENTION_FEW_ROWS = 64, /* that a block of CELL_ATTENTION_FEW owns */
    CELL_ATTENTION_DOTS_ROWS = 64, /* of a block of cell_attention_dots */
    CELL_ATTENTION_STAGES = 6, /* the most, where some threads only copy */
    CELL_ATTENTION_GATES = 4, /* barriers of 8 bytes for each stage, where some threads only copy */
    CELL_ATTENTION_MOST = 256, /* elements of a key or a value */
    CELL_ATTENTION_LEAST_MEMORY =
        99 << 10, /* shared memory that a block may take on every device of sm_80 and later */
    CELL_ATTENTION_MOST_MEMORY = 227 << 10 /* and on those of sm_90 and sm_100 */
};

typedef struct cell_attention_shape {
    int threads;
    int resident; /* blocks that a multiprocessor is to hold, as far as registers go: for launch bounds */
    int own; /* rows that a block owns: of queries, or keys in CELL_ATTENTION_BACK_KEYS; 16 a warp */
    int others; /* rows of a tile of the other side, which the block goes over */
    int stages; /* tiles of it in shared memory */
    int staged; /* 1: what the block owns is in shared memory, 0: it is read from global memory each time */
    int boxed; /* 1: rows lie in boxes, as wgmma reads them; 0: with a gap behind each */
    int columns; /* of the sums that a block has in registers */
    int slabs; /* blocks for the same rows, each of which has other columns */
    int smem; /* bytes */
    int copiers; /* threads, the last ones, that only copy; 0: all copy and multiply */
} cell_attention_shape;

CELL_ATTENTION_FUNCTION int cell_attention_smem(int kernel, const cell_attention_shape *s, int bytes,
                                                int keys, int values, int distances)
{
    const int real = bytes == 8 ? 8 : 4, forward = kernel <= CELL_ATTENTION_FEW;
    const int gap = s->boxed ? 0 : 16; /* so that the rows of a fragment meet in no bank */
    const int key = keys * bytes + gap, value = (forward ? s->columns : values) * bytes + gap;
    int n = s->stages * s->others * (key + value);
    if (s->staged)
        n += s->own * (forward ? key : key + value);
    if (kernel == CELL_ATTENTION_BACK_KEYS)
        n += s->stages * s->others * 2 * real;
    if (distances)
        n += s->own * (s->others + 1) * real;
    if (s->copiers)
        n += CELL_ATTENTION_GATES * 8 * s->stages;
    return n + (s->boxed ? 1024 : 0); /* boxes begin at multiples of that */
}

/* keys, values: padded to multiples of 16; distances: 1 where CELL_ATTENTION_BACK_ROWS sums by distance;
 * apart: 1 where some warps of CELL_ATTENTION_FORWARD are to copy and do nothing else; memory: bytes of
 * shared memory that a block may take. Where boxes are and memory is there, some of
 * CELL_ATTENTION_BACK_KEYS always do so, and some of CELL_ATTENTION_BACK_ROWS where keys or values have more
 * than CELL_ATTENTION_BOX elements. */
CELL_ATTENTION_FUNCTION cell_attention_shape cell_attention_shape_of(int kernel, int bytes, int keys,
                                                                     int values, int distances, int apart,
                                                                     int memory)
{
    const int all = kernel <= CELL_ATTENTION_FEW         ? values
                    : kernel == CELL_ATTENTION_BACK_ROWS ? keys
                                                         : keys + values;
    /* Registers bound the columns, and with many columns the tile. */
    const int most = bytes == 8 ? 128 : 256;
    const int boxes = bytes == 2 && keys % CELL_ATTENTION_BOX == 0 && values % CELL_ATTENTION_BOX == 0 &&
                      keys <= CELL_ATTENTION_BOXES && values <= CELL_ATTENTION_BOXES;
    cell_attention_shape s = { 256, all <= 64 ? 2 : 1, 128, 64, 2, 1, 1, all, 1, 0, 0 };
    const int narrow = keys <= CELL_ATTENTION_BOX && values <= CELL_ATTENTION_BOX;
    const int ring = kernel == CELL_ATTENTION_FORWARD     ? apart
                     : kernel == CELL_ATTENTION_BACK_ROWS ? !narrow
                                                          : kernel == CELL_ATTENTION_BACK_KEYS;
    if (boxes && ring && !distances && memory >= CELL_ATTENTION_MOST_MEMORY) {
        s.copiers = 128, s.resident = 1, s.others = kernel == CELL_ATTENTION_FORWARD ? 128 : 64;
        s.own = narrow ? 192 : 128, s.threads = s.own * 2 + s.copiers;
        /* There is one block, so all memory is for tiles; devices with less have another plan. */
        for (;;) {
            s.smem = cell_attention_smem(kernel, &s, bytes, keys, values, distances);
            s.stages++;
            if (s.stages > CELL_ATTENTION_STAGES ||
                cell_attention_smem(kernel, &s, bytes, keys, values, distances) > memory)
                break;
        }
        s.stages--;
        return s;
    }
    if (kernel == CELL_ATTENTION_FEW)
        s.threads = 128, s.resident *= 2, s.own = 64;
    s.smem = cell_attention_smem(kernel, &s, bytes, keys, values, distances);
    if (boxes && s.smem <= memory)
        return s;
    /* More is for boxes alone. */
    memory = memory < CELL_ATTENTION_LEAST_MEMORY ? memory : CELL_ATTENTION_LEAST_MEMORY;
    s.threads = 128, s.resident = 1, s.own = 64, s.boxed = 0;
    s.slabs = (all + most - 1) / most;
    s.columns = s.slabs > 1 ? most : all;
    if (bytes == 8 || bytes == 4 || s.columns > 192)
        s.others = 32;
    for (;;) {
        s.smem = cell_attention_smem(kernel, &s, bytes, keys, values, distances);
        if (s.smem <= memory || (s.others == 16 && s.stages == 1 && !s.staged))
            return s;
        if (s.others > 32 || (s.others > 16 && s.stages == 1))
            s.others /= 2;
        else if (s.stages == 2)
            s.stages = 1;
        else
            s.staged = 0, s.stages = 2, s.others = 32;
    }
}

#endif
