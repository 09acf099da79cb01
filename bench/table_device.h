/* table_device.h: an H200 as a table of attributes, for programs that ask what a call would need and run no
 * kernel. How many of a kernel's blocks it holds is counted from threads and shared memory alone, since
 * registers are known to the GPU's compiler only: an upper bound, which only the number of partial sums
 * depends on. */
#ifndef CELL_TABLE_DEVICE_H
#define CELL_TABLE_DEVICE_H

#include "cell_backend.h"

enum {
    SM_COUNT = 132, SMEM_BLOCK = 232448, SMEM_SM = 233472, SMEM_OF_A_BLOCK = 1024, THREADS_SM = 2048,
    BLOCKS_SM = 32
};

static cell_status table_create(void **self, int device, cell_error *err)
{
    (void)device, (void)err;
    *self = NULL;
    return CELL_OK;
}

static void table_destroy(void *self)
{
    (void)self;
}

static cell_status table_sync(void *self, cell_error *err)
{
    (void)self, (void)err;
    return CELL_OK;
}

static cell_status table_launch(void *self, const cell_launch *what, cell_error *err)
{
    (void)self, (void)what;
    return cell_fail(err, CELL_UNSUPPORTED, "this device is a table of sizes");
}

static int64_t table_attribute(void *self, int which)
{
    (void)self;
    switch (which) {
    case CELL_ATTR_SM_COUNT: return SM_COUNT;
    case CELL_ATTR_SMEM_MAX: return SMEM_BLOCK;
    case CELL_ATTR_PRODUCTS_OF_8: return 1;
    default: return 90; /* CELL_ATTR_CAPABILITY */
    }
}

static cell_status table_resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks,
                                  cell_error *err)
{
    (void)self, (void)err;
    int64_t each = THREADS_SM / (kernel->threads ? kernel->threads : 1);
    int64_t room = SMEM_SM / ((int64_t)smem + SMEM_OF_A_BLOCK);
    each = each < room ? each : room;
    *blocks = SM_COUNT * (each < BLOCKS_SM ? each : BLOCKS_SM);
    return CELL_OK;
}

static const cell_backend table_device = { .name = "table",
                                           .kind = CELL_BACKEND_CUDA,
                                           .create = table_create,
                                           .destroy = table_destroy,
                                           .sync = table_sync,
                                           .launch = table_launch,
                                           .attribute = table_attribute,
                                           .resident = table_resident };

#endif
