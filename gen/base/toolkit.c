/* toolkit.c: which compilers and libraries a build takes. In: the environment, libcell.flags, this machine.
 * Out: paths and words of command lines. Guaranteed: the choice is made when cellc runs, so that one
 * installation serves machines with CUDA and without; a path may hold any characters. */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "home.h"
#include "toolkit.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *c_compiler(void)
{
    const char *cc = variable("CC");
    return cc ? cc : "cc";
}

/* HOME of HOME/bin/nvcc. */
static const char *home_of(Compiler *c, const char *program)
{
    static const char bin[] = "/bin";
    const char *slash = strrchr(program, '/');
    size_t len = slash ? (size_t)(slash - program) : 0, end = sizeof bin - 1;
    if (len > end && memcmp(slash - end, bin, end) == 0)
        return intern_n(c, program, len - end);
    return intern_f(c, "%.*s/..", (int)(slash ? len : 1), slash ? program : ".");
}

static bool is_toolkit(Compiler *c, const char *nvcc)
{
    struct stat st;
    return stat(nvcc, &st) == 0 && S_ISREG(st.st_mode) && access(nvcc, X_OK) == 0 &&
           access(intern_f(c, "%s/include/cublas_v2.h", home_of(c, nvcc)), R_OK) == 0;
}

/* The program, or what its links lead to, where a toolkit is around it. */
static const char *try_nvcc(Compiler *c, const char *nvcc)
{
    char real[PATH_MAX];
    if (is_toolkit(c, nvcc))
        return nvcc;
    return realpath(nvcc, real) && is_toolkit(c, real) ? intern(c, real) : NULL;
}

static const char *on_path(Compiler *c)
{
    const char *found = NULL;
    for (const char *path = getenv("PATH"); path && *path && !found;) {
        size_t len = strcspn(path, ":");
        if (len)
            found = try_nvcc(c, intern_f(c, "%.*s/nvcc", (int)len, path));
        path += len + (path[len] == ':');
    }
    return found;
}

/* /usr/local/cuda, or the last of several versions. */
static const char *in_usual_places(Compiler *c)
{
    glob_t all;
    const char *found = try_nvcc(c, "/usr/local/cuda/bin/nvcc");
    if (found || glob("/usr/local/cuda-*/bin/nvcc", 0, NULL, &all) != 0)
        return found;
    for (size_t i = all.gl_pathc; i > 0 && !found; i--)
        found = try_nvcc(c, all.gl_pathv[i - 1]);
    globfree(&all);
    return found;
}

const char *toolkit_nvcc(Compiler *c)
{
    static const char *const homes[] = { "CUDA_HOME", "CUDA_PATH" };
    const char *own = variable("CELLC_NVCC"), *built = home_flags(c, "nvcc"), *found = NULL;
    if (own)
        return strcmp(own, "none") == 0 ? NULL : try_nvcc(c, own);
    if (built && strcmp(built, "-") == 0)
        return NULL;
    if (built && *built)
        found = try_nvcc(c, built);
    for (int i = 0; i < 2 && !found; i++)
        if (variable(homes[i]))
            found = try_nvcc(c, intern_f(c, "%s/bin/nvcc", variable(homes[i])));
    if (!found)
        found = on_path(c);
    return found ? found : in_usual_places(c);
}

const char *toolkit_missing(Compiler *c)
{
    const char *own = variable("CELLC_NVCC"), *built = home_flags(c, "nvcc");
    if (own)
        return strcmp(own, "none") == 0
                   ? "no nvcc is wanted (CELLC_NVCC)"
                   : intern_f(c, "CELLC_NVCC is '%s', which is no nvcc of a toolkit with cuBLAS", own);
    if (built && strcmp(built, "-") == 0)
        return "cellc was built with NOCUDA=1";
    if (built && *built)
        return intern_f(c, "no nvcc at %s any more, nor in CUDA_HOME, PATH or /usr/local/cuda", built);
    return "no nvcc in CUDA_HOME, PATH or /usr/local/cuda";
}

int toolkit_version(Compiler *c, const char *nvcc)
{
    static const char word[] = "#define CUDART_VERSION";
    char line[512];
    int version = 0;
    FILE *f = fopen(intern_f(c, "%s/include/cuda_runtime_api.h", home_of(c, nvcc)), "r");
    while (f && !version && fgets(line, sizeof line, f))
        if (strncmp(line, word, sizeof word - 1) == 0)
            version = atoi(line + sizeof word - 1);
    if (f)
        fclose(f);
    return version;
}

void toolkit_headers(Compiler *c, const char *nvcc, Words *w)
{
    words_add(w, "-isystem");
    words_add(w, intern_f(c, "%s/include", home_of(c, nvcc)));
}

/* The folder of the toolkit that has its libraries. */
static const char *library_dir(Compiler *c, const char *nvcc)
{
    static const char *const names[] = { "lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *dir = intern_f(c, "%s/%s", home_of(c, nvcc), names[i]);
        if (access(intern_f(c, "%s/libcudart.so", dir), R_OK) == 0)
            return dir;
    }
    return NULL;
}

void toolkit_libraries(Compiler *c, const char *nvcc, Words *w)
{
    const char *dir = nvcc ? library_dir(c, nvcc) : NULL;
    if (dir) {
        words_add(w, intern_f(c, "-L%s", dir));
        words_add(w, intern_f(c, "-Wl,-rpath,%s", dir));
    }
    words_split(c, w, nvcc ? "-lcublas -lcudart" : NULL);
    words_split(c, w, home_flags(c, "libs"));
}
