/* gpu.c: the GPUs of this machine, for commands that run kernels and for `cellc doctor`. In: the driver, as
 * it is found when the command runs, and the toolkit. Out: which GPUs there are, and why no kernel can run
 * on one. */
#include <dlfcn.h>
#include <string.h>

#include "../../runtime/cuda_reason.h"
#include "base/toolkit.h"
#include "gpu.h"
#include "options.h"

/* Numbers of the driver's interface: attributes of a device, and an error. */
enum { PROCESSORS = 16, MAJOR = 75, MINOR = 76, SHARED = 97, NO_DEVICE = 100 };

typedef struct Driver {
    int (*init)(unsigned), (*version)(int *), (*count)(int *), (*get)(int *, int), (*name)(char *, int, int);
    int (*attribute)(int *, int, int), (*memory)(size_t *, int), (*error)(int, const char **);
    int (*retain)(void **, int), (*release)(int), (*current)(void *), (*alloc)(void **, size_t),
        (*free)(void *);
} Driver;

/* Why there is none; NULL with *d filled. */
static const char *driver_open(Driver *d)
{
    const struct {
        const char *name;
        void *to;
    } functions[] = {
        { "cuInit", &d->init },
        { "cuDriverGetVersion", &d->version },
        { "cuDeviceGetCount", &d->count },
        { "cuDeviceGet", &d->get },
        { "cuDeviceGetName", &d->name },
        { "cuDeviceGetAttribute", &d->attribute },
        { "cuDeviceTotalMem_v2", &d->memory },
        { "cuGetErrorString", &d->error },
        { "cuDevicePrimaryCtxRetain", &d->retain },
        { "cuDevicePrimaryCtxRelease_v2", &d->release },
        { "cuCtxSetCurrent", &d->current },
        { "cuMemAlloc_v2", &d->alloc },
        { "cuMemFree_v2", &d->free },
    };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return "no NVIDIA driver is installed on this machine";
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(driver, functions[i].name);
        if (!symbol)
            return "libcuda.so.1 is not NVIDIA's driver";
        memcpy(functions[i].to, &symbol, sizeof symbol); /* C has no conversion from void * to a function */
    }
    return NULL;
}

/* The driver's words for an error, and what they mean. */
static const char *error_text(Compiler *c, const Driver *d, int error)
{
    const char *text = NULL, *reason = cell_cuda_reason(error);
    if (d->error(error, &text) != 0 || !text)
        text = "an error that the driver has no words for";
    return intern_f(c, "%s (the driver's error %d)%s%s", text, error, reason ? "; " : "",
                    reason ? reason : "");
}

const char *gpu_driver_too_old(Compiler *c, int driver, const char *nvcc)
{
    int toolkit = toolkit_version(c, nvcc);
    if (!driver || driver / 1000 >= toolkit / 1000) /* of its own major release, and newer */
        return NULL;
    return intern_f(c, "the NVIDIA driver is too old: it supports CUDA %d.%d, nvcc is of %d.%d",
                    driver / 1000, driver % 1000 / 10, toolkit / 1000, toolkit % 1000 / 10);
}

/* Why no memory can be had of it; NULL where it can. */
static const char *try_memory(Compiler *c, const Driver *d, int device)
{
    void *context, *memory;
    int error = d->retain(&context, device);
    if (error)
        return error_text(c, d, error);
    error = d->current(context);
    if (!error)
        error = d->alloc(&memory, 1 << 20);
    if (!error)
        error = d->free(memory);
    d->current(NULL);
    d->release(device);
    return error ? error_text(c, d, error) : NULL;
}

static void look(Compiler *c, const Driver *d, int number, bool try, Gpu *gpu)
{
    char name[256] = "?";
    int device, major = 0, minor = 0, shared = 0;
    size_t memory = 0;
    *gpu = (Gpu){ .name = "?" };
    int error = d->get(&device, number);
    if (!error)
        error = d->name(name, sizeof name, device);
    if (!error)
        error = d->attribute(&major, MAJOR, device);
    if (!error)
        error = d->attribute(&minor, MINOR, device);
    if (!error)
        error = d->attribute(&gpu->processors, PROCESSORS, device);
    if (!error)
        error = d->attribute(&shared, SHARED, device);
    if (!error)
        error = d->memory(&memory, device);
    name[sizeof name - 1] = 0;
    gpu->name = intern(c, name);
    gpu->arch = 10 * major + minor;
    gpu->memory = (int64_t)memory;
    gpu->shared = shared;
    if (error)
        gpu->fault = error_text(c, d, error);
    else if (gpu->arch < FIRST_ARCH)
        gpu->fault =
            intern_f(c,
                     "it is of sm_%d; kernels want sm_%d or newer, which is the first with asynchronous "
                     "copies and with tensor cores for tf32 and bf16",
                     gpu->arch, FIRST_ARCH);
    else if (try)
        gpu->fault = try_memory(c, d, device);
}

void gpus_find(Compiler *c, bool try, Gpus *gpus)
{
    Driver d;
    int count = 0, error;
    *gpus = (Gpus){ .missing = driver_open(&d) };
    if (gpus->missing)
        return;
    if (d.version(&gpus->driver) != 0)
        gpus->driver = 0;
    error = d.init(0);
    if (!error)
        error = d.count(&count);
    if (error == NO_DEVICE || (!error && count == 0))
        gpus->missing = "no NVIDIA GPU is visible";
    else if (error)
        gpus->missing = error_text(c, &d, error);
    if (gpus->missing)
        return;
    gpus->n = count < MOST_GPUS ? count : MOST_GPUS;
    for (int i = 0; i < gpus->n; i++)
        look(c, &d, i, try, &gpus->items[i]);
}

const char *gpu_refused(Compiler *c)
{
    const char *nvcc = toolkit_nvcc(c), *why;
    if (!nvcc)
        return "no nvcc";
    Gpus *gpus = arena_alloc(c->arena, sizeof *gpus);
    gpus_find(c, false, gpus);
    why = gpus->missing;
    if (gpus->driver && gpu_driver_too_old(c, gpus->driver, nvcc))
        why = gpu_driver_too_old(c, gpus->driver, nvcc);
    if (!why)
        why = gpus->items[0].fault;
    return why ? intern_f(c, "no GPU (%s)", why) : NULL;
}

bool gpu_identify(Compiler *c, const char **name, const char **arch)
{
    Gpus *gpus = arena_alloc(c->arena, sizeof *gpus);
    gpus_find(c, false, gpus);
    if (!gpus->n || !gpus->items[0].arch)
        return false;
    *name = gpus->items[0].name;
    *arch = intern_f(c, "%d", gpus->items[0].arch);
    return true;
}
