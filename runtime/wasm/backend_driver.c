/* In place of backend_driver.c: a module of WebAssembly reaches no GPU. */
#include "cell_backend.h"

#include <stdio.h>

cell_status cell_context_create_image(cell_context **ctx, int device, const void *image, char *message,
                                      size_t message_bytes)
{
    (void)device, (void)image;
    if (ctx)
        *ctx = NULL;
    if (message && message_bytes)
        snprintf(message, message_bytes,
                 "a module of WebAssembly reaches no GPU; use the backend cpu, or reference");
    return ctx ? CELL_NO_DEVICE : CELL_NULL_POINTER;
}
