/* gpu.c: the GPU of this machine, for commands that run kernels. In: libcell.so and the driver, as they are found when the
 * command runs. Out: why no kernel can run here, or which GPU number 0 is. */
#include <dlfcn.h>
#include <unistd.h>

#include "../../runtime/cell.h"
#include "base/home.h"
#include "gpu.h"

const char *gpu_refused(Compiler *c)
{
    const char *nvcc = home_flags(c, "nvcc"), *why = NULL;
    char message[512] = "";
    if (!nvcc || !*nvcc || access(nvcc, X_OK) != 0)
        return "no nvcc";
    void *lib = dlopen(intern_f(c, "%s/libcell.so", home_dir(c, HOME_LIB)), RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return intern_f(c, "no GPU (%s)", dlerror());
    __typeof__(cell_context_create) *create;
    __typeof__(cell_context_destroy) *destroy;
    cell_context *ctx = NULL;
    /* C has no conversion from void * to a function; POSIX promises this one. */
    *(void **)&create = dlsym(lib, "cell_context_create");
    *(void **)&destroy = dlsym(lib, "cell_context_destroy");
    if (!create || !destroy)
        why = "no GPU (libcell.so is not ours)";
    else if (create(&ctx, CELL_BACKEND_CUDA, 0, message, sizeof message) != CELL_OK)
        why = intern_f(c, "no GPU (%s)", message);
    else
        destroy(ctx);
    return why;
}

/* Of the driver's interface as much as tells a name and an architecture. */
enum { MAJOR = 75, MINOR = 76 };

bool gpu_identify(Compiler *c, const char **name, const char **arch)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(unsigned), (*get)(int *, int), (*get_name)(char *, int, int), (*attribute)(int *, int, int);
    int device, major, minor;
    char text[256] = "";
    if (!driver)
        return false;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get = dlsym(driver, "cuDeviceGet");
    *(void **)&get_name = dlsym(driver, "cuDeviceGetName");
    *(void **)&attribute = dlsym(driver, "cuDeviceGetAttribute");
    if (!init || !get || !get_name || !attribute || init(0) || get(&device, 0) || get_name(text, sizeof text, device) ||
        attribute(&major, MAJOR, device) || attribute(&minor, MINOR, device))
        return false;
    *name = intern(c, text);
    *arch = intern_f(c, "%d", 10 * major + minor);
    return true;
}
