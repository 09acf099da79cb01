/* kernels_parts.c: CUDA text of the kernels that copy an operand of a product as parts of bf16 (plan_parts.c). */
#include "kernels.h"

static void print_split(Kernel *k)
{
    const Parts *x = k->parts;
    const char *from = k_pointer(k, x->read.is_tensor ? REF_TENSOR : REF_NODE, x->read.id, DT_F32);
    const char *to = k_written(k, REF_BUFFER, x->buffer, DT_BF16);
    buf_line(k->out, "cell_split_matrix<%s, %s>(%s, %s, %s, %s, %s, %s);", x->planes ? "true" : "false",
             x->rising ? "true" : "false", to, from, poly_text(&k->printer, x->offset), poly_text(&k->printer, x->rows),
             poly_text(&k->printer, x->columns), poly_text(&k->printer, x->pitch));
}

void emit_parts_kernel(Plan *p, Program *pr, Parts *x, Buf *out)
{
    Kernel k = kernel_new(p, pr, NULL, &x->refs, out);
    k.threads = PARTS_THREADS;
    k.parts = x;
    k_print(&k, x->kernel, print_split);
    kernel_release(&k);
}
