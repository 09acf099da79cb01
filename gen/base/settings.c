/* settings.c: the words for the settings of a compilation, on the command line, in dumps of the IR and in what is printed. */
#include "compiler.h"

const char *const dtype_names[] = { "f32", "bf16", "f16", "f64", NULL };
const char *const products_names[] = { "auto", "plain", "parts", "fused", NULL };
