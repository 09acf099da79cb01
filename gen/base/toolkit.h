/* toolkit.h: the CUDA toolkit of this machine, as it is found when cellc runs, and the C compiler. */
#ifndef CELLC_TOOLKIT_H
#define CELLC_TOOLKIT_H

#include "process.h"

/* CC, or cc: words. */
const char *c_compiler(void);

/* The path of an nvcc beside which cuBLAS's header is, or NULL: what CELLC_NVCC says ("none": none), what was
 * there when cellc was built, or else what CUDA_HOME, CUDA_PATH, PATH and /usr/local have. */
const char *toolkit_nvcc(Compiler *c);
/* Why there is none, as a sentence without an end. */
const char *toolkit_missing(Compiler *c);

/* As CUDART_VERSION: 13020 of 13.2; 0 where its header does not say. */
int toolkit_version(Compiler *c, const char *nvcc);
/* Adds the options that headers of nvcc's toolkit are found with. */
void toolkit_headers(Compiler *c, const char *nvcc, Words *w);
/* Adds the libraries behind libcell.a: of the runtime and, where nvcc is not NULL, of its toolkit. */
void toolkit_libraries(Compiler *c, const char *nvcc, Words *w);

#endif
