/* The two backends in host memory. `reference` runs no plans (the executor calls the generated C instead);
 * `emulated` runs the plan and hands each kernel to cell_emulator_launch, which exists only where an emulator
 * is linked in. Everything is done when a call returns. Memory comes with 256-byte alignment. */
#include "context.h"

#include <stdlib.h>
#include <string.h>

#pragma weak cell_emulator_launch

static cell_status host_create(void **self, int device, cell_error *err) {
    *self = NULL;
    if (device != 0)
        return cell_fail(err, CELL_NO_DEVICE, "device %d: a host backend has only device 0", device);
    return CELL_OK;
}

static void host_destroy(void *self) {
    (void)self;
}

static cell_status host_set_stream(void *self, void *stream, cell_error *err) {
    (void)self, (void)stream, (void)err;
    return CELL_OK;
}

static cell_status host_sync(void *self, cell_error *err) {
    (void)self, (void)err;
    return CELL_OK;
}

cell_status cell_host_alloc(void *self, void **pointer, size_t bytes, cell_error *err) {
    (void)self;
    *pointer = NULL;
    if (bytes <= SIZE_MAX - CELL_ALIGNMENT) /* aligned_alloc wants a multiple of the alignment */
        *pointer =
            aligned_alloc(CELL_ALIGNMENT, (bytes + CELL_ALIGNMENT - 1) / CELL_ALIGNMENT * CELL_ALIGNMENT);
    if (!*pointer)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes of host memory", bytes);
    return CELL_OK;
}

cell_status cell_host_free(void *self, void *pointer, cell_error *err) {
    (void)self, (void)err;
    free(pointer);
    return CELL_OK;
}

cell_status cell_host_copy(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    (void)self, (void)err;
    memmove(to, from, bytes);
    return CELL_OK;
}

cell_status cell_host_fill(void *self, void *to, int byte, size_t bytes, cell_error *err) {
    (void)self, (void)err;
    memset(to, byte, bytes);
    return CELL_OK;
}

/* As on a GPU, so that tests have both ways. */
static int is_without_cublaslt(void)
{
    const char *own = getenv("CELL_CUBLASLT");
    return own && strcmp(own, "none") == 0;
}

/* The numbers of the device that the emulator imitates, with few multiprocessors so that grids stay small. */
static int64_t host_attribute(void *self, int attribute) {
    (void)self;
    switch (attribute) {
    case CELL_ATTR_SM_COUNT:
        return 4;
    case CELL_ATTR_SMEM_MAX:
        return 232448;
    case CELL_ATTR_CAPABILITY:
        return 90;
    case CELL_ATTR_PRODUCTS_OF_8: return !is_without_cublaslt();
    }
    return 0;
}

/* With CELL_EMULATED_CHIP=1 only cooperative kernels have room: tests want the steps walked by the whole chip at sizes
 * small enough for one block. With 2 it is clusters of more blocks than are portable, for the same reason; with 3 it is
 * cooperative kernels without clusters. */
static cell_status host_resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks,
                                 cell_error *err) {
    (void)err;
    const char *chip = getenv("CELL_EMULATED_CHIP");
    int64_t most = host_attribute(self, CELL_ATTR_SMEM_MAX);
    if (chip && (strcmp(chip, "1") == 0 || strcmp(chip, "3") == 0) && !kernel->cooperative)
        most = -1;
    if (chip && strcmp(chip, "3") == 0 && kernel->cluster > 1)
        most = -1;
    if (chip && strcmp(chip, "2") == 0 && kernel->cluster <= 8)
        most = -1;
    int64_t count = host_attribute(self, CELL_ATTR_SM_COUNT);
    count = kernel->cluster > count ? kernel->cluster : count;
    *blocks = (int64_t)smem > most ? 0 : count;
    return CELL_OK;
}

static cell_status emulated_create(void **self, int device, cell_error *err) {
    if (!cell_emulator_launch)
        return cell_fail(err, CELL_NO_DEVICE, "no emulator is linked into this program");
    return host_create(self, device, err);
}

/* The matrices are where `places` says, as on a device. */
static cell_status emulated_gemms(void *self, const cell_gemm_call *calls, int n, void *const *places,
                                  cell_error *err)
{
    cell_status status = CELL_OK;
    for (int i = 0; i < n && status == CELL_OK; i++) {
        cell_gemm_call call = calls[i];
        call.a.data = places[i], call.b.data = places[n + i], call.c.data = places[2 * n + i];
        status = cell_host_gemm(self, &call, err);
    }
    return status;
}

static cell_status emulated_launch(void *self, const cell_launch *launch, cell_error *err) {
    (void)self;
    if (!cell_emulator_launch)
        return cell_fail(err, CELL_UNSUPPORTED, "no emulator is linked into this program");
    return cell_emulator_launch(launch, err);
}

const cell_backend *cell_reference_backend(void) {
    static const cell_backend backend = {
        .name = "reference",
        .kind = CELL_BACKEND_REFERENCE,
        .host_memory = 1,
        .create = host_create,
        .destroy = host_destroy,
        .set_stream = host_set_stream,
        .sync = host_sync,
        .alloc = cell_host_alloc,
        .free = cell_host_free,
        .copy = cell_host_copy,
        .transfer = cell_host_copy,
        .fill = cell_host_fill,
        .gemm = cell_host_gemm,
        .attribute = host_attribute,
        .resident = host_resident,
    };
    return &backend;
}

const cell_backend *cell_emulated_backend(void) {
    static const cell_backend backend = {
        .name = "emulated",
        .kind = CELL_BACKEND_EMULATED,
        .host_memory = 1,
        .create = emulated_create,
        .destroy = host_destroy,
        .set_stream = host_set_stream,
        .sync = host_sync,
        .alloc = cell_host_alloc,
        .free = cell_host_free,
        .copy = cell_host_copy,
        .transfer = cell_host_copy,
        .fill = cell_host_fill,
        .gemm = cell_host_gemm,
        .gemms = emulated_gemms,
        .launch = emulated_launch,
        .attribute = host_attribute,
        .resident = host_resident,
    };
    return &backend;
}
