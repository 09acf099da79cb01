/* Forms of one piece of work. In: a plan, and what its expressions may refer to. Out: the form of a FORMS
 * operation that is taken. Guaranteed: the first whose condition holds; a plan whose operations do not nest
 * is reported. */
#include "context.h"

int cell_op_span(const cell_plan *plan, int at, int end) {
    const cell_op *op = &plan->ops[at];
    int inside = 0;
    if (op->kind == CELL_OP_LOOP)
        inside = op->u.loop.n_ops;
    else if (op->kind == CELL_OP_FORMS || op->kind == CELL_OP_LIST)
        inside = op->u.list.n_ops;
    else if (op->kind == CELL_OP_PRODUCTS)
        inside = op->u.products.n_ops;
    return inside < 0 || inside > end - at - 1 ? 0 : 1 + inside;
}

cell_status cell_form_taken(const cell_scope *scope, int at, int64_t *number, int *index, cell_error *err) {
    const cell_plan *plan = scope->plan;
    int end = at + cell_op_span(plan, at, plan->n_ops), length;
    cell_scope earlier = *scope; /* a condition may ask which form was taken before, so this ends */
    earlier.before = at;
    *number = 0;
    *index = -1;
    if (end == at)
        return cell_fail(err, CELL_BAD_ARGUMENT, "the plan is wrong: forms beyond its end");
    for (int i = at + 1; i < end; i += length, ++*number) {
        int64_t when;
        length = cell_op_span(plan, i, end);
        if (length == 0)
            return cell_fail(err, CELL_BAD_ARGUMENT, "the plan is wrong: a form beyond the others' end");
        cell_status status = cell_eval_in(&earlier, plan->ops[i].when, 1, &when, err);
        if (status != CELL_OK)
            return status;
        if (when) {
            *index = i;
            return CELL_OK;
        }
    }
    return CELL_OK;
}
