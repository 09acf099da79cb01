/* What a module for JavaScript exports beside the runtime's own functions (cell.h, cell_plan.h): its cells
 * as text, shapes of arguments, weights out of a file's bytes, and numbers of 16 bits. module.mjs is the
 * other side. CELL_MODULE is a list of the cells in it, CELL(lstm) CELL(gru), given by `cellc build
 * --target wasm`. */
#include "cell_weights.h"
#include "context.h"
#include "half.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name))) name

#define CELL(name) const cell_desc *name##_instance(void);
CELL_MODULE
#undef CELL

typedef struct Named {
    const char *name; /* of its functions in C */
    const cell_desc *(*instance)(void);
} Named;

#define CELL(name) { #name, name##_instance },
static const Named cells[] = { CELL_MODULE };
#undef CELL
enum { CELLS = sizeof cells / sizeof *cells };

/* ---- the cells as JSON */

typedef struct Text {
    char *at;
    size_t used, room;
} Text;

static void put(Text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text->at + text->used, text->room - text->used, format, list);
    va_end(list);
    text->used += (size_t)n;
    if (text->used > text->room)
        text->used = text->room;
}

static const char *comma(int i)
{
    return i ? ", " : "";
}

static void put_args(Text *text, const char *name, const cell_arg *args, int n)
{
    put(text, ", \"%s\": [", name);
    for (int i = 0; i < n; i++)
        put(text, "%s[%d, %d, %d, %d]", comma(i), args[i].tensor, args[i].role, args[i].flags, args[i].dtype);
    put(text, "]");
}

static void put_cell(Text *text, const Named *cell)
{
    const cell_desc *desc = cell->instance();
    put(text, "{ \"name\": \"%s\", \"cell\": \"%s\", \"key\": \"%s\", \"total\": %d, \"bindings\": {",
        cell->name, desc->name, desc->key, desc->total);
    for (int i = 0; i < desc->n_bindings; i++)
        put(text, "%s\"%s\": \"%s\"", comma(i), desc->bindings[i].name, desc->bindings[i].value);
    put(text, "}, \"sizes\": [");
    for (int i = 0; i < desc->n_sizes; i++)
        put(text, "%s\"%s\"", comma(i), desc->size_names[i]);
    put(text, "], \"tensors\": [");
    for (int i = 0; i < desc->n_tensors; i++)
        put(text, "%s[\"%s\", %d]", comma(i), desc->tensors[i].name, desc->tensors[i].kind);
    put(text, "]");
    put_args(text, "forward", desc->forward_args, desc->n_forward_args);
    put_args(text, "backward", desc->backward_args, desc->n_backward_args);
    put(text, " }");
}

/* A list of objects; the caller frees it. NULL: there is no memory. */
char *EXPORT(cell_module_text)(void)
{
    for (size_t room = 1 << 14;; room *= 2) {
        Text text = { malloc(room), 0, room };
        if (!text.at)
            return NULL;
        put(&text, "[");
        for (int i = 0; i < CELLS; i++) {
            put(&text, "%s", comma(i));
            put_cell(&text, &cells[i]);
        }
        put(&text, "]");
        if (text.used < room)
            return text.at;
        free(text.at);
    }
}

const cell_desc *EXPORT(cell_module_cell)(int i)
{
    return i >= 0 && i < CELLS ? cells[i].instance() : NULL;
}

/* ---- calls */

/* The extents of an argument of forward or backward at `sizes`, batch and steps first, in shape, which has
 * room for CELL_WEIGHT_RANK + 2. Gives how many there are; -1: the sizes give none. */
int EXPORT(cell_module_shape)(const cell_desc *desc, int backward, int index, const int64_t *sizes,
                              int64_t *shape)
{
    const cell_arg *arg = &(backward ? desc->backward_args : desc->forward_args)[index];
    const cell_tensor *tensor = &desc->tensors[arg->tensor];
    int n = 0, is_timed = tensor->kind == CELL_INPUT || tensor->kind == CELL_OUTPUT;
    if (tensor->rank > CELL_WEIGHT_RANK)
        return -1;
    if (is_timed && desc->total)
        shape[n++] = sizes[desc->total];
    else if (tensor->kind != CELL_PARAM)
        shape[n++] = sizes[CELL_SIZE_B] + (tensor->kind == CELL_STARTS);
    if (is_timed && !desc->total)
        shape[n++] = sizes[CELL_SIZE_T];
    for (int k = 0; k < tensor->rank; k++)
        if (cell_eval(tensor->axes[k], sizes, desc->n_sizes, &shape[n++]) != CELL_OK)
            return -1;
    return n;
}

/* Params out of the bytes of a safetensors file; data: the memory of each param, as declared. */
cell_status EXPORT(cell_module_load)(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                     const char *prefix, void *const *data, const void *file, size_t bytes)
{
    int n;
    cell_weight *list = calloc((size_t)desc->n_tensors + 1, sizeof *list);
    if (!list)
        return cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory: a list of %d tensors",
                         desc->n_tensors);
    cell_status status = cell_weights_of(ctx, desc, sizes, prefix, data, list, desc->n_tensors, &n);
    if (status == CELL_OK)
        status = cell_weights_load_memory(ctx, file, bytes, list, n);
    free(list);
    return status;
}

/* n numbers of bf16 or f16 as f32, and back; dtype is that of the numbers of 16 bits. */
void EXPORT(cell_module_widen)(cell_dtype dtype, float *to, const uint16_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = dtype == CELL_BF16 ? cell_bf16_to_f32(from[i]) : cell_f16_to_f32(from[i]);
}

void EXPORT(cell_module_narrow)(cell_dtype dtype, uint16_t *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = dtype == CELL_BF16 ? cell_f32_to_bf16(from[i]) : cell_f32_to_f16(from[i]);
}
