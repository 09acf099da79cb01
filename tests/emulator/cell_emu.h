/* Runs generated CUDA kernels on the CPU.
 *
 * In: a kernel compiled by a host compiler against cell_device.cuh, its arguments and the launch's shape.
 * Out: what the kernel writes. Guaranteed: threads are fibers of the calling thread, switched at barriers and
 * warp primitives only, in an order drawn from the seed; blocks run one after the other in a shuffled order,
 * except in cooperative launches (all together) and clusters (those of one cluster together). A kernel that
 * misuses the device library ends the process with exit code CELL_EMU_EXIT and a report on stderr that names
 * kernel, block and thread.
 *
 * Environment: CELL_EMU_SEED (a number, default 1) chooses the orders; CELL_EMU_SMEM is the shared memory
 * that a block may have, in bytes (default 232448: 227 KB); CELL_EMU_STACK the bytes of stack per thread
 * (default 262144); CELL_EMU_TRACES=0 leaves the calls that led to an error out of what AddressSanitizer
 * reports, which makes switches between threads cheaper.
 */
#ifndef CELL_EMU_H
#define CELL_EMU_H

#include <stddef.h>
#include <stdint.h>

#include "cell_kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CELL_EMU_EXIT 86

typedef void (*cell_emu_kernel)(const cell_kernel_args);

/* grid in blocks, threads per block (a multiple of 32 up to 1024), dynamic shared memory in bytes, blocks per
 * cluster along x (0 or 1: no clusters), cooperative or not. Returns 0 after the last thread has ended, or -1
 * with a sentence in `message` (may be NULL) when such a launch would be refused by the GPU; nothing has run
 * then. Threads of the program may launch at the same time. */
int cell_emu_launch(cell_emu_kernel kernel, const char *name, const cell_kernel_args *args,
                    const uint32_t grid[3], uint32_t threads, size_t smem_bytes, uint32_t cluster,
                    int cooperative, char *message, size_t message_bytes);

/* A hash of the names of the kernels that the calling thread has launched since its last call of this
 * function, whatever their order. */
uint64_t cell_emu_launched(void);

/* Overrides CELL_EMU_SEED for the calling thread's later launches. */
void cell_emu_set_seed(uint64_t seed);

/* Frees the calling thread's stacks and shared memory, which otherwise wait for its next launch. */
void cell_emu_release(void);

#ifdef __cplusplus
}
#endif

#endif
