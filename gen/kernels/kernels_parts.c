/* kernels_parts.c: the kernels that copy an operand of a product as parts of bf16 (plan_parts.c). */
#include "code.h"

void emit_parts_kernel(Plan *p, Program *pr, Parts *parts, Buf *out)
{
    Kernel k = kernel_new(p, pr, NULL, &parts->refs, out);
    k.threads = PARTS_THREADS;
    k.parts = parts;
    Code *x = code_new(&k, parts->kernel);
    RefKind kind = parts->read.is_tensor ? REF_TENSOR : REF_NODE;
    const KirExpr *from = code_pointer(x, kind, parts->read.id, DT_F32);
    const KirExpr *to = code_written(x, REF_BUFFER, parts->buffer, DT_BF16);
    const KirExpr *args[] = { to, from, code_size(x, parts->offset), code_size(x, parts->rows),
                              code_size(x, parts->columns), code_size(x, parts->pitch) };
    const KirTemplate how[] = { { .type = KT_BOOL, .value = parts->planes },
                                { .type = KT_BOOL, .value = parts->rising } };
    kir_do(x->kir, kir_call(x->kir, "cell_split_matrix", how, 2, args, 6));
    code_print_once(p, code_end(x), &parts->kernel, out);
    kernel_release(&k);
}
