/* What a failure of CUDA means to whoever sees it, by its number, which the driver (CUresult) and CUDA's
 * runtime (cudaError_t) share. In: the number. Out: a sentence without an end that stands behind CUDA's own
 * words, or NULL where those say enough. Header only: the runtime's two CUDA backends and `cellc doctor` have
 * the same words. */
#ifndef CELL_CUDA_REASON_H
#define CELL_CUDA_REASON_H

#include <stddef.h>

static inline const char *cell_cuda_reason(int error)
{
    switch (error) {
    case 2: return "the GPU has not that much free memory; nvidia-smi shows which processes have it";
    case 3: return "CUDA cannot start in this process; was it forked from one that had used the GPU?";
    case 46:
        return "another process has the GPU for itself (its compute mode is exclusive), or it is being reset";
    case 200:
    case 209:
    case 222:
    case 500:
        return "the library has no code for this GPU; build it again with --archs native on this machine";
    case 214: return "the GPU's memory had an error that it could not correct; the GPU must be reset";
    case 700:
        return "a kernel before this call read or wrote outside of its memory (compute-sanitizer finds it); "
               "this "
               "process cannot use the GPU any more and must start again";
    case 702:
        return "a kernel before this call ran longer than a GPU with a display may; this process must start "
               "again";
    case 710:
    case 714:
    case 715:
    case 716:
    case 717:
    case 718:
    case 719:
        return "a kernel before this call failed (compute-sanitizer finds where); this process cannot use "
               "the GPU "
               "any more and must start again";
    case 802: return "the GPUs' fabric is not ready; is nvidia-fabricmanager running?";
    case 803:
        return "the driver's parts are of different versions; restart the machine after an update of the "
               "driver";
    case 804:
        return "CUDA's compatibility package (cuda-compat) does not serve this GPU; remove it from "
               "LD_LIBRARY_PATH";
    case 999:
        return "CUDA does not know why; often the kernel module nvidia_uvm is not loaded, or a container was "
               "started without its devices";
    default: return NULL;
    }
}

#endif
