/* Which operations of a plan run at some sizes, by the conditions of themselves, of what they stand in, and
 * of forms that come before them. In: a scope with its plan, and all operations asked for. Out: runs[i] of
 * each operation. */
#ifndef RUNNING_H
#define RUNNING_H

#include "cell_plan.h"
#include "context.h"
#include "expect.h"

static void find_running(const cell_scope *scope, int first, int end, int on, char *runs) {
    int length;
    for (int i = first; i < end; i += length) {
        const cell_op *op = &scope->plan->ops[i];
        int64_t when = 0, number;
        int taken;
        cell_error err = {""};
        length = cell_op_span(scope->plan, i, end);
        EXPECT(length > 0 && cell_eval_in(scope, op->when, 1, &when, &err) == CELL_OK, "%s: %s", op->name,
               err.text);
        if (length == 0)
            return;
        runs[i] = on && when;
        find_running(scope, i + 1, i + length, runs[i], runs);
        if (op->kind != CELL_OP_FORMS || !runs[i])
            continue;
        EXPECT(cell_form_taken(scope, i, &number, &taken, &err) == CELL_OK, "%s: %s", op->name, err.text);
        for (int k = i + 1; k < i + length; k++)
            if (taken < 0 || k < taken || k >= taken + cell_op_span(scope->plan, taken, i + length))
                runs[k] = 0;
    }
}

#endif
