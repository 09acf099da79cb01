/* Every function of the driver and of cuBLAS that the runtime calls, each of which does nothing and
 * succeeds, or fails as FAKE_CUDA wants: "cuInit=100 cuMemAlloc_v2=2". Those that have something to answer
 * stand in fake_driver.c. */
#include "driver.h"
#include "fake.h"

#define STUB(name, arguments)                                                                                \
    __attribute__((weak)) int name arguments                                                                 \
    {                                                                                                        \
        return fake_error(#name);                                                                            \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
CELL_DRIVER_FUNCTIONS(STUB)
CELL_BLAS_FUNCTIONS(STUB)
