/* gpu.h: the GPUs of this machine (gpu.c). */
#ifndef CELLC_GPU_H
#define CELLC_GPU_H

#include "base/compiler.h"

enum { MOST_GPUS = 64 };

typedef struct Gpu {
    const char *name;
    const char *fault; /* why no kernel of cellc's runs on it; NULL: they do */
    int arch, processors; /* 90; its multiprocessors */
    int64_t memory, shared; /* bytes: of its memory, and of shared memory that a block may have */
} Gpu;

typedef struct Gpus {
    const char *missing; /* why there is no driver, or none of its GPUs is seen; NULL */
    int driver; /* the CUDA that the driver supports: 13020 of 13.2; 0: there is no driver */
    Gpu items[MOST_GPUS];
    int n;
} Gpus;

/* Looks at all that the driver shows. With `try`, memory is taken of each, as a call would: that tells of
 * GPUs that are there and cannot be used, and takes a second where the driver sleeps. */
void gpus_find(Compiler *c, bool try, Gpus *gpus);
/* Why the driver does not run what nvcc compiles; NULL where it does. `driver` as above. */
const char *gpu_driver_too_old(Compiler *c, int driver, const char *nvcc);

/* Why no GPU can be used; NULL when one can. */
const char *gpu_refused(Compiler *c);
/* The name and the architecture ("90") of GPU number 0; false where the driver does not say. */
bool gpu_identify(Compiler *c, const char **name, const char **arch);

#endif
