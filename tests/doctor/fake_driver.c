/* A CUDA driver for `cellc doctor` and for what the runtime says of failures: it has the GPUs of FAKE_ARCHS
 * ("75 90"), supports the CUDA of FAKE_DRIVER (13000), keeps memory in the host's, and fails where
 * FAKE_CUDA says so. */
#include "fake.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

int fake_error(const char *name)
{
    const char *at = getenv("FAKE_CUDA");
    size_t length = strlen(name);
    for (at = at ? strstr(at, name) : NULL; at; at = strstr(at + 1, name))
        if (at[length] == '=')
            return atoi(at + length + 1);
    return 0;
}

static int arch_of(int number)
{
    const char *archs = getenv("FAKE_ARCHS");
    char *end;
    long arch = strtol(archs ? archs : "90", &end, 10);
    for (; number > 0 && end; number--)
        arch = strtol(end, &end, 10);
    return (int)arch;
}

int cuDriverGetVersion(int *version)
{
    *version = getenv("FAKE_DRIVER") ? atoi(getenv("FAKE_DRIVER")) : 13000;
    return fake_error("cuDriverGetVersion");
}

int cuDeviceGetCount(int *count)
{
    for (*count = 0; arch_of(*count) > 0;)
        ++*count;
    return fake_error("cuDeviceGetCount");
}

int cuDeviceGet(int *device, int number)
{
    *device = number;
    return fake_error("cuDeviceGet");
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Fake %d", arch_of(device));
    return fake_error("cuDeviceGetName");
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)80 << 30;
    return fake_error("cuDeviceTotalMem_v2");
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 16   ? 132
             : attribute == 75 ? arch_of(device) / 10
             : attribute == 76 ? arch_of(device) % 10
                               : 232448;
    return fake_error("cuDeviceGetAttribute");
}

int cuGetErrorString(int error, const char **text)
{
    *text = "the driver's words";
    return 0;
}

int cuGetErrorName(int error, const char **text)
{
    *text = "CUDA_ERROR_FAKE";
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    *context = NULL;
    return fake_error("cuCtxGetCurrent");
}

int cuStreamIsCapturing(void *stream, int *status)
{
    *status = 0;
    return fake_error("cuStreamIsCapturing");
}

int cuMemAlloc_v2(void **pointer, size_t bytes)
{
    int error = fake_error("cuMemAlloc_v2");
    if (!error)
        *pointer = malloc(bytes);
    return error;
}

int cuMemFree_v2(void *pointer)
{
    free(pointer);
    return fake_error("cuMemFree_v2");
}

int cuMemAllocFromPoolAsync(void **pointer, size_t bytes, void *pool, void *stream)
{
    int error = fake_error("cuMemAllocFromPoolAsync");
    if (!error)
        *pointer = malloc(bytes);
    return error;
}

int cuMemFreeAsync(void *pointer, void *stream)
{
    free(pointer);
    return fake_error("cuMemFreeAsync");
}

int cuPointerGetAttribute(void *value, int attribute, const void *pointer)
{
    *(unsigned *)value = attribute == 2 ? 2 : 0;
    return fake_error("cuPointerGetAttribute");
}

const char *cublasGetStatusString(int status)
{
    return "cuBLAS's words";
}
