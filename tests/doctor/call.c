/* A program that uses a GPU as cellc's users do: a context, memory of it, work, an end. Prints the
 * runtime's message of the first of these that fails, or "worked"; with an argument the context is one with
 * that as its image. */
#include "cell.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    cell_context *ctx;
    char why[512];
    void *memory = NULL;
    if (cell_context_create_image(&ctx, 0, argc > 1 ? argv[1] : NULL, why, sizeof why) != CELL_OK) {
        puts(why);
        return 0;
    }
    int right = cell_alloc(ctx, &memory, 4096) == CELL_OK && cell_fill(ctx, memory, 0, 4096) == CELL_OK &&
                cell_synchronize(ctx) == CELL_OK;
    puts(right ? "worked" : cell_last_error(ctx));
    if (memory)
        cell_free(ctx, memory);
    cell_context_destroy(ctx);
    return 0;
}
