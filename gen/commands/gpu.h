/* gpu.h: the GPU of this machine. */
#ifndef CELLC_GPU_H
#define CELLC_GPU_H

#include "base/compiler.h"

/* Why no GPU can be used; NULL when one can. */
const char *gpu_refused(Compiler *c);
/* The name and the architecture ("90") of GPU number 0; false where the driver does not say. */
bool gpu_identify(Compiler *c, const char **name, const char **arch);

#endif
