/* What bench/cpu.py times in C: calls of one step without Python between them, and what a core can do at most. */
#include <stddef.h>
#include <stdint.h>

typedef int (*call_fn)(void *ctx, const void *desc, const int64_t *sizes, void *const *args, const void *memory,
                       int flags);

/* The first status that is not 0. */
int call_times(call_fn call, void *ctx, const void *desc, const int64_t *sizes, void *const *args,
               const void *memory, int times)
{
    int status = 0;
    for (int i = 0; i < times && !status; i++)
        status = call(ctx, desc, sizes, args, memory, 0);
    return status;
}

typedef float lanes __attribute__((vector_size(64), aligned(4)));
enum { LANES = 16, CHAINS = 16 };

/* Multiply-adds in registers, CHAINS * LANES of them in a turn. */
float multiply_adds(int turns, float factor)
{
    lanes sum[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        sum[i] = (lanes){ 0 } + (float)i;
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < CHAINS; i++)
            sum[i] = sum[i] * factor + factor;
    for (int i = 1; i < CHAINS; i++)
        sum[0] += sum[i];
    return sum[0][0];
}

/* Reads n numbers, a multiple of 128, `times` times. */
float read_numbers(const float *numbers, size_t n, int times)
{
    lanes sum[8] = { 0 };
    for (int time = 0; time < times; time++) {
        for (size_t i = 0; i < n; i += 8 * LANES)
            for (int k = 0; k < 8; k++)
                sum[k] += *(const lanes *)(numbers + i + (size_t)k * LANES);
        __asm__ volatile("" ::: "memory");
    }
    for (int k = 1; k < 8; k++)
        sum[0] += sum[k];
    return sum[0][0];
}
