/* build.h: what the parts of `cellc build` share: build.c for this machine and its GPU, build_wasm.c for
 * WebAssembly. */
#ifndef CELLC_BUILD_H
#define CELLC_BUILD_H

#include "base/process.h"
#include "generate.h"

/* One cell with its settings, on its way into a library. Each has its compilation. */
typedef struct Instance {
    Compiler *c;
    const char *spec; /* path */
    const char *suffix; /* of its C names and files, behind the cell's name; or NULL */
    Generated g;
} Instance;

typedef struct Build {
    Compiler *c; /* of the command line */
    const char *dir; /* of the output */
    const char *library; /* --name, or NULL */
    const char *objects; /* a temporary directory */
    const char *include, *lib; /* of the runtime */
    const char *nvcc; /* NULL: without kernels in the library */
    const char *cpu; /* --cpu: "portable", "native"; NULL: no kernels for the CPU */
    const char *target; /* --target: "wasm"; NULL: this machine */
    bool apart; /* NAME.cu is compiled elsewhere, by NVRTC */
    bool archive; /* --static: libNAME.a */
    const char *archs; /* "80 90", or "native" */
    int64_t jobs; /* compilers at once */
    bool verbose;
    Vec(Job) job; /* what is compiled, */
    Vec(const char *) object; /* and to what */
    Instance *instance;
    int n;
} Build;

/* Adds a command to what is compiled, and the object that it makes. */
void build_add_job(Build *b, const Words *w, const char *object);
/* The file of a library of that name. */
const char *build_library_file(const Build *b, const char *name);

/* Is there all that compiling for WebAssembly wants? False after a message that says how to install the
 * rest. */
bool wasm_find(Build *b);
/* Kernels for the CPU; the rest of a cell that has them; or anything else. */
typedef enum { WASM_KERNELS, WASM_BESIDE_KERNELS, WASM_PLAIN } WasmSource;
/* Adds DIR/STEM.c. */
void wasm_compile(Build *b, const char *stem, WasmSource source);
/* Adds the runtime; to be called when the library has its name. */
void wasm_compile_runtime(Build *b);
/* Makes NAME.wasm with NAME.mjs, or libNAME.a, of what was compiled; prints their paths. False after a
 * message. */
bool wasm_link(Build *b);
/* Says how what was made is used. */
void wasm_say_usage(const Build *b);

#endif
