/* gpu.c: the GPU of this machine, for commands that run kernels. In: the driver, as it is found when the
 * command runs, and the toolkit. Out: why no kernel can run here, or which GPU number 0 is. */
#include <dlfcn.h>

#include "base/toolkit.h"
#include "gpu.h"

/* Of the driver's interface as much as tells whether there is a GPU, its name and its architecture. */
enum { MAJOR = 75, MINOR = 76, NO_DEVICE = 100 };

typedef struct Driver {
    int (*init)(unsigned), (*version)(int *), (*count)(int *), (*get)(int *, int), (*name)(char *, int, int);
    int (*attribute)(int *, int, int);
} Driver;

/* Why there is none; NULL with *d filled. */
static const char *driver_open(Driver *d)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return "no NVIDIA driver is installed on this machine";
    /* C has no conversion from void * to a function; POSIX promises this one. */
    *(void **)&d->init = dlsym(driver, "cuInit");
    *(void **)&d->version = dlsym(driver, "cuDriverGetVersion");
    *(void **)&d->count = dlsym(driver, "cuDeviceGetCount");
    *(void **)&d->get = dlsym(driver, "cuDeviceGet");
    *(void **)&d->name = dlsym(driver, "cuDeviceGetName");
    *(void **)&d->attribute = dlsym(driver, "cuDeviceGetAttribute");
    bool all = d->init && d->version && d->count && d->get && d->name && d->attribute;
    return all ? NULL : "libcuda.so.1 is not NVIDIA's driver";
}

/* What nvcc links with runs on drivers of its own major release and newer. */
static const char *driver_too_old(Compiler *c, const Driver *d, const char *nvcc)
{
    int version = 0, toolkit = toolkit_version(c, nvcc);
    if (d->version(&version) != 0 || version / 1000 >= toolkit / 1000)
        return NULL;
    return intern_f(c, "the NVIDIA driver is too old: it supports CUDA %d.%d, nvcc is of %d.%d",
                    version / 1000, version % 1000 / 10, toolkit / 1000, toolkit % 1000 / 10);
}

const char *gpu_refused(Compiler *c)
{
    Driver d;
    const char *nvcc = toolkit_nvcc(c), *why = NULL;
    int error, count = 0;
    if (!nvcc)
        return "no nvcc";
    if ((why = driver_open(&d)) || (why = driver_too_old(c, &d, nvcc)))
        return intern_f(c, "no GPU (%s)", why);
    error = d.init(0);
    if (error == 0)
        error = d.count(&count);
    if (error == NO_DEVICE || (error == 0 && count == 0))
        return "no GPU (no NVIDIA GPU is visible)";
    return error ? intern_f(c, "no GPU (the driver's error %d)", error) : NULL;
}

bool gpu_identify(Compiler *c, const char **name, const char **arch)
{
    Driver d;
    int device, major, minor;
    char text[256] = "";
    if (driver_open(&d) || d.init(0) || d.get(&device, 0) || d.name(text, sizeof text, device) ||
        d.attribute(&major, MAJOR, device) || d.attribute(&minor, MINOR, device))
        return false;
    *name = intern(c, text);
    *arch = intern_f(c, "%d", 10 * major + minor);
    return true;
}
