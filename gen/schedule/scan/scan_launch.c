/* scan_launch.c: the operations of a launch plan for schedule scan. In come its kernels; out go their rows in
 * the kernel table, and under which condition each walks the steps. */
#include "launch/emit_plan.h"
#include "scan.h"

static void print_scan_op(Print *e, const ScanWalk *w, const char *when)
{
    int kernel = emit_kernel_number(e, w->kernel);
    int64_t bytes = scan_shared(e->p, w) * (e->p->compute == DT_F64 ? 8 : 4) + w->staged;
    buf_f(&e->table, ", .threads = %d", scan_threads(w));
    if (bytes)
        buf_f(&e->table, ", .smem = %s", emit_number_expr(e, bytes));
    buf_f(&e->table, " },\n");
    emit_walk_op(e, w->kernel, &w->refs, scan_grid(e->p->m, w), when, kernel);
}

/* One kernel walks all steps, or chunks of them at once. */
bool scan_launch(Print *e, const Formula **loop)
{
    Module *m = e->p->m;
    (void)loop;
    if (!scan_walks(e->pr)->chunks) {
        print_scan_op(e, scan_walks(e->pr)->walk, "NULL");
        return false;
    }
    const Formula *chunks = scan_chunks_pay(m, scan_walks(e->pr)->walk);
    print_scan_op(e, scan_walks(e->pr)->chunks, emit_expr(e, chunks));
    print_scan_op(e, scan_walks(e->pr)->walk, emit_expr(e, formula_not(m, chunks)));
    return false;
}
