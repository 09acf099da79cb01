/* Forms of an operation: which of them runs, what stands in it, and what later conditions find. In: nothing;
 * plans of fills over one buffer, whose bytes say what ran. */
#include <string.h>

#include "cell_backend.h"
#include "cell_plan.h"
#include "context.h"
#include "expect.h"
#include "run.h"

enum { PLACES = 16 };

static const int64_t one[] = {CELL_X_PUSH, 1, CELL_X_END};
static const int64_t size_is_0[] = {CELL_X_SIZE, 0, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_END};
static const int64_t size_is_1[] = {CELL_X_SIZE, 0, CELL_X_PUSH, 1, CELL_X_EQ, CELL_X_END};
static const int64_t below_3[] = {CELL_X_SIZE, 0, CELL_X_PUSH, 3, CELL_X_LT, CELL_X_END};
static const int64_t second_of_0[] = {CELL_X_FORM, 0, CELL_X_PUSH, 1, CELL_X_EQ, CELL_X_END};
static const int64_t form_of_0[] = {CELL_X_FORM, 0, CELL_X_END};
static const int64_t form_of_1[] = {CELL_X_FORM, 1, CELL_X_END};
static const int64_t form_of_2[] = {CELL_X_FORM, 2, CELL_X_END};

#define PLACE(n) {CELL_X_PUSH, n, CELL_X_END}
static const int64_t places[PLACES][3] = {PLACE(0),  PLACE(1),  PLACE(2),  PLACE(3), PLACE(4),  PLACE(5),
                                          PLACE(6),  PLACE(7),  PLACE(8),  PLACE(9), PLACE(10), PLACE(11),
                                          PLACE(12), PLACE(13), PLACE(14), PLACE(15)};

static cell_op write_at(int place, cell_expr when) {
    return (cell_op){.name = "write", .kind = CELL_OP_FILL, .when = when,
                     .u.memory = {.to = {0, places[place]}, .bytes = one, .byte = 1}};
}

static cell_op holds(cell_op_kind kind, int n_ops, cell_expr when) {
    return (cell_op){.name = kind == CELL_OP_FORMS ? "forms" : "list",
                     .kind = (uint8_t)kind,
                     .when = when,
                     .u.list = {n_ops}};
}

static cell_status fill(void *self, void *to, int byte, size_t bytes, cell_error *err) {
    (void)self, (void)err;
    memset(to, byte, bytes);
    return CELL_OK;
}

/* Runs them at one size. written: a letter for each place, x where something was written. */
static cell_status play(const cell_op *ops, int n, int64_t size, char *written, cell_error *err) {
    static const cell_buffer buffers[] = {{"b", CELL_FROM_WORKSPACE, CELL_F32, 0, NULL}};
    static cell_run run;
    char memory[PLACES * 4] = {0};
    cell_backend backend = {.name = "bytes", .fill = fill};
    cell_context ctx = {.backend = &backend};
    cell_desc desc = {.key = "forms", .n_sizes = 1};
    cell_plan plan = {buffers, ops, 1, n};
    memset(&run, 0, sizeof run);
    run.ctx = &ctx, run.desc = &desc, run.plan = &plan, run.sizes = &size, run.err = err;
    run.base[0] = memory, run.bytes[0] = sizeof memory;
    cell_status status = cell_run_ops(&run, 0, n);
    for (int i = 0; i < PLACES; i++)
        written[i] = memory[4 * i] ? 'x' : '.';
    written[PLACES] = 0;
    return status;
}

static void expect_written(const cell_op *ops, int n, int64_t size, const char *want) {
    cell_error err = {""};
    char written[PLACES + 1];
    EXPECT(play(ops, n, size, written, &err) == CELL_OK, "%s", err.text);
    EXPECT(strncmp(written, want, strlen(want)) == 0 && !strchr(written + strlen(want), 'x'),
           "size %lld: %s, not %s", (long long)size, written, want);
}

static void expect_wrong(const cell_op *ops, int n, const char *what) {
    cell_error err = {""};
    char written[PLACES + 1];
    EXPECT(play(ops, n, 0, written, &err) != CELL_OK && strstr(err.text, what), "'%s', not '%s'", err.text,
           what);
    EXPECT(!strchr(written, 'x'), "%s was written", written);
}

/* The first that holds, and with it all of its list; behind them what asks which it was. */
static void forms_run(void) {
    const cell_op ops[] = {
        holds(CELL_OP_FORMS, 8, NULL),
        write_at(0, size_is_0),
        holds(CELL_OP_LIST, 5, below_3),
        write_at(1, NULL),
        holds(CELL_OP_FORMS, 2, NULL), write_at(2, size_is_1), write_at(3, NULL),
        write_at(4, size_is_1),
        write_at(5, NULL),
        write_at(6, second_of_0),
        write_at(7, NULL),
    };
    int n = sizeof ops / sizeof *ops;
    expect_written(ops, n, 0, "x......x");
    expect_written(ops, n, 1, ".xx.x.xx");
    expect_written(ops, n, 2, ".x.x..xx");
    expect_written(ops, n, 3, ".....x.x");
}

static void none_holds(void) {
    const cell_op ops[] = {holds(CELL_OP_FORMS, 2, NULL),
                           write_at(0, size_is_0),
                           write_at(1, size_is_1),
                           write_at(2, second_of_0),
                           holds(CELL_OP_FORMS, 1, size_is_0),
                           write_at(3, NULL),
                           holds(CELL_OP_FORMS, 0, NULL)};
    expect_written(ops, 7, 5, "....");
    expect_written(ops, 7, 0, "x..x");
    expect_written(ops, 7, 1, ".xx.");
}

/* A condition may ask for forms before its own only, so that asking ends; and what stands in forms must end
 * with them. */
static void wrong_plans(void) {
    const cell_op itself[] = {holds(CELL_OP_FORMS, 1, NULL), write_at(0, form_of_0)};
    const cell_op later[] = {holds(CELL_OP_FORMS, 1, NULL), write_at(0, form_of_2),
                             holds(CELL_OP_FORMS, 1, NULL), write_at(1, NULL)};
    const cell_op no_forms[] = {holds(CELL_OP_FORMS, 1, form_of_1), write_at(0, NULL)};
    const cell_op beyond[] = {holds(CELL_OP_FORMS, 2, NULL), holds(CELL_OP_LIST, 2, NULL), write_at(0, NULL),
                              write_at(1, NULL)};
    const cell_op too_long[] = {holds(CELL_OP_LIST, 7, NULL), write_at(0, NULL)};
    const cell_op negative[] = {holds(CELL_OP_FORMS, -1, NULL), write_at(0, NULL)};
    expect_wrong(itself, 2, "no such forms");
    expect_wrong(later, 4, "no such forms");
    expect_wrong(no_forms, 2, "no such forms");
    expect_wrong(beyond, 4, "a form beyond the others' end");
    expect_wrong(too_long, 2, "longer than the plan");
    expect_wrong(negative, 2, "longer than the plan");
}

int main(void) {
    forms_run();
    none_holds();
    wrong_plans();
    return report();
}
