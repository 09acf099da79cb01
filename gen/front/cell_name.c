/* cell_name.c: what a cell, and a library, cannot be called. In: a name. Out: the reason why files and C
 * functions cannot be called after it, and how a cell's library is called. All other names of a spec can be
 * anything: C and Python get another one where theirs is taken (emit/taken.c). */
#include <string.h>

#include "ast.h"

/* Headers that a program, or what it includes, takes by a name that a cell's own NAME.h would hide: of C,
 * POSIX and the C library, of CUDA, and of the runtime. */
static const char *const headers[] = {
    "assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale", "math", "setjmp", "signal",
    "stdalign", "stdarg", "stdatomic", "stdbit", "stdbool", "stdckdint", "stddef", "stdint", "stdio", "stdlib", "stdnoreturn",
    "string", "tgmath", "threads", "time", "uchar", "wchar", "wctype",
    "aio", "alloca", "byteswap", "dirent", "dlfcn", "endian", "err", "execinfo", "fcntl", "features", "fnmatch", "ftw", "getopt",
    "glob", "grp", "iconv", "langinfo", "libgen", "libintl", "malloc", "mm_malloc", "monetary", "mqueue", "netdb", "nl_types", "poll",
    "pthread", "pwd", "regex", "sched", "semaphore", "spawn", "strings", "syslog", "termios", "ucontext", "unistd", "unwind",
    "utime", "wordexp",
    "builtin_types", "channel_descriptor", "common_functions", "cooperative_groups", "cublas", "cublas_api", "cublas_v2", "cuda",
    "cuda_bf16", "cuda_fp16", "cuda_fp8", "cuda_runtime", "cuda_runtime_api", "device_functions", "device_types", "driver_types",
    "host_config", "host_defines", "library_types", "math_constants", "math_functions", "mma", "nvrtc", "sm_20_intrinsics",
    "surface_types", "texture_types", "vector_functions", "vector_types",
    "context", "driver", "half", "reference", "run",
};

const char *cell_name_fault(Compiler *c, const char *name)
{
    if (strcmp(name, "cell") == 0 || strncmp(name, "cell_", 5) == 0)
        return "names that begin with cell_ in C are the runtime's";
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        if (strcmp(name, headers[i]) == 0)
            return intern_f(c, "%s.h would hide a header that C files include by that name", name);
    return NULL;
}

/* Libraries that programs link against by -lNAME: of the C library and the compiler, of what libcell needs,
 * of PyTorch, into whose programs a cell may go. */
static const char *const libraries[] = {
    "c",           "m",         "dl",       "rt",         "util",        "pthread",   "crypt",     "resolv",
    "nsl",         "anl",       "gcc",      "gcc_s",      "gcc_eh",      "stdc",      "atomic",    "gomp",
    "asan",        "ubsan",     "tsan",     "lsan",       "itm",         "quadmath",  "gfortran",  "mvec",
    "c_nonshared", "blas",      "cblas",    "openblas",   "lapack",      "cudart",    "cudadevrt", "cublas",
    "cublasLt",    "cuda",      "nvrtc",    "cudart_static", "cudnn",    "nccl",      "c10",       "c10_cuda",
    "torch",       "torch_cpu", "torch_cuda", "torch_python", "cell",    "z",         "ssl",       "crypto",
};

bool is_system_library(const char *name)
{
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (strcmp(name, libraries[i]) == 0)
            return true;
    return false;
}

const char *library_name(Compiler *c, const char *cell)
{
    return is_system_library(cell) ? intern_f(c, "%s_cell", cell) : cell;
}
