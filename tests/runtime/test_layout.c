/* Where buffers of the workspace lie, for random plans: two that hold something at one time never share a
 * byte, whatever the operations are and however their loops nest. The oracle plays each plan, every loop in
 * three turns, and takes a buffer to be in use from its first mention to its last; products that go
 * together come behind what stands among them, or, where they go one by one, in their order. Also some
 * plans by hand, whose best layout is known. */
#include "expect.h"
#include "run.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_OPS = 24, MAX_REFS = 3, TURNS = 3, PLANS = 20000 };

typedef struct Plan {
    cell_op ops[MAX_OPS];
    cell_ref refs[MAX_OPS][MAX_REFS];
    cell_buffer buffers[MAX_OPS];
    int64_t bytes[MAX_OPS][3];
    cell_plan plan;
} Plan;

typedef struct Use {
    int first, last;
} Use;

static uint32_t drawn = 11;

static int draw(int below) {
    drawn = drawn * 1664525u + 1013904223u;
    return (int)((drawn >> 8) % (uint32_t)below);
}

static void add_buffer(Plan *p, int64_t bytes) {
    int i = p->plan.n_buffers++;
    p->bytes[i][0] = CELL_X_PUSH, p->bytes[i][1] = bytes, p->bytes[i][2] = CELL_X_END;
    p->buffers[i] = (cell_buffer){.name = "b", .origin = CELL_FROM_WORKSPACE, .dtype = CELL_F32, .bytes = p->bytes[i]};
}

static void add_kernel(Plan *p, int n_refs, const int *buffers) {
    int i = p->plan.n_ops++;
    for (int k = 0; k < n_refs; k++)
        p->refs[i][k] = (cell_ref){.buffer = (int16_t)buffers[k]};
    p->ops[i] = (cell_op){.kind = CELL_OP_KERNEL, .u.kernel = {.n_refs = (int16_t)n_refs, .refs = p->refs[i]}};
}

/* A loop whose body's length is known when it has been added: close_loop. */
static int open_loop(Plan *p) {
    p->ops[p->plan.n_ops] = (cell_op){.kind = CELL_OP_LOOP, .u.loop = {.step = 1}};
    return p->plan.n_ops++;
}

static void add_product(Plan *p, const int *buffers) {
    int i = p->plan.n_ops++;
    p->ops[i] = (cell_op){.kind = CELL_OP_GEMM};
    cell_operand *const of[] = {&p->ops[i].u.gemm.a, &p->ops[i].u.gemm.b, &p->ops[i].u.gemm.c};
    for (int k = 0; k < 3; k++)
        of[k]->at.buffer = (int16_t)buffers[k];
}

static int open_list(Plan *p) {
    p->ops[p->plan.n_ops] = (cell_op){.kind = CELL_OP_LIST};
    return p->plan.n_ops++;
}

static int open_products(Plan *p, int buffer) {
    p->ops[p->plan.n_ops] = (cell_op){.kind = CELL_OP_PRODUCTS, .u.products.places.buffer = (int16_t)buffer};
    return p->plan.n_ops++;
}

static void close_list(Plan *p, int at) {
    p->ops[at].u.list.n_ops = p->plan.n_ops - at - 1;
}

static void close_products(Plan *p, int at) {
    p->ops[at].u.products.n_ops = p->plan.n_ops - at - 1;
}

static void close_loop(Plan *p, int at) {
    p->ops[at].u.loop.n_ops = p->plan.n_ops - at - 1;
}

static void start(Plan *p) {
    memset(p, 0, sizeof *p);
    p->plan.ops = p->ops, p->plan.buffers = p->buffers;
}

static void random_products(Plan *p) {
    int products = open_products(p, draw(p->plan.n_buffers)), list = -1;
    for (int n = 1 + draw(6); n > 0 && p->plan.n_ops + 1 < MAX_OPS; n--) {
        int refs[3] = {draw(p->plan.n_buffers), draw(p->plan.n_buffers), draw(p->plan.n_buffers)};
        if (list < 0 && draw(3) == 0)
            list = open_list(p);
        if (draw(3))
            add_product(p, refs);
        else
            add_kernel(p, 3, refs);
        if (list >= 0 && (draw(2) || n == 1 || p->plan.n_ops + 1 >= MAX_OPS)) {
            close_list(p, list);
            list = -1;
        }
    }
    if (list >= 0)
        close_list(p, list);
    close_products(p, products);
}

static void random_ops(Plan *p, int depth) {
    for (int n = 1 + draw(5); n > 0 && p->plan.n_ops < MAX_OPS; n--) {
        if (depth < 3 && p->plan.n_ops + 1 < MAX_OPS && draw(4) == 0) {
            int loop = open_loop(p);
            random_ops(p, depth + 1);
            close_loop(p, loop);
        } else if (p->plan.n_ops + 3 < MAX_OPS && draw(6) == 0) {
            random_products(p);
        } else {
            int refs[MAX_REFS], n_refs = draw(MAX_REFS + 1);
            for (int k = 0; k < n_refs; k++)
                refs[k] = draw(p->plan.n_buffers);
            add_kernel(p, n_refs, refs);
        }
    }
}

static void use(int buffer, int clock, Use *uses) {
    uses[buffer].first = uses[buffer].first < 0 ? clock : uses[buffer].first;
    uses[buffer].last = clock;
}

static void use_product(const cell_gemm_op *op, int *clock, Use *uses) {
    use(op->a.at.buffer, *clock, uses);
    use(op->b.at.buffer, *clock, uses);
    use(op->c.at.buffer, *clock, uses);
    ++*clock;
}

typedef enum Order { IN_ORDER, WITHOUT_PRODUCTS, PRODUCTS_ONLY } Order;

/* together: products that may go together do. */
static void play(const Plan *p, int first, int count, bool together, Order order, int *clock, Use *uses) {
    int length;
    for (int i = first; i < first + count; i += length) {
        const cell_op *op = &p->ops[i];
        length = cell_op_span(&p->plan, i, p->plan.n_ops);
        if (op->kind == CELL_OP_GEMM && order != WITHOUT_PRODUCTS)
            use_product(&op->u.gemm, clock, uses);
        if (op->kind == CELL_OP_GEMM || order == PRODUCTS_ONLY)
            continue;
        for (int turn = 0; op->kind == CELL_OP_LOOP && turn < TURNS; turn++)
            play(p, i + 1, length - 1, together, IN_ORDER, clock, uses);
        if (op->kind == CELL_OP_LIST)
            play(p, i + 1, length - 1, together, IN_ORDER, clock, uses);
        if (op->kind == CELL_OP_PRODUCTS) {
            play(p, i + 1, length - 1, together, together ? WITHOUT_PRODUCTS : IN_ORDER, clock, uses);
            use(op->u.products.places.buffer, (*clock)++, uses);
            if (together)
                play(p, i + 1, length - 1, together, PRODUCTS_ONLY, clock, uses);
            use(op->u.products.places.buffer, *clock - 1, uses);
        }
        if (op->kind != CELL_OP_KERNEL)
            continue;
        for (int k = 0; k < op->u.kernel.n_refs; k++)
            use(op->u.kernel.refs[k].buffer, *clock, uses);
        ++*clock;
    }
}

static size_t lay_out(const Plan *p, cell_run *run) {
    static const cell_desc desc = {.key = "layout"};
    static cell_error err;
    size_t bytes = 0;
    memset(run, 0, sizeof *run);
    run->desc = &desc, run->plan = &p->plan, run->err = &err;
    EXPECT(cell_layout_workspace(run, &bytes) == CELL_OK, "%s", err.text);
    return bytes;
}

static void check_order(const Plan *p, int number, bool together) {
    static cell_run run;
    Use uses[MAX_OPS];
    int clock = 0;
    size_t total = lay_out(p, &run), sum = 0;
    for (int i = 0; i < p->plan.n_buffers; i++)
        uses[i] = (Use){-1, -2};
    play(p, 0, p->plan.n_ops, together, IN_ORDER, &clock, uses);
    for (int i = 0; i < p->plan.n_buffers; i++) {
        uintptr_t at = (uintptr_t)run.base[i];
        size_t end = at + (size_t)run.bytes[i];
        sum += ((size_t)run.bytes[i] + CELL_ALIGNMENT - 1) / CELL_ALIGNMENT * CELL_ALIGNMENT;
        EXPECT(at % CELL_ALIGNMENT == 0 && end <= total, "plan %d: buffer %d at %zu of %zu bytes", number, i, (size_t)at, total);
        for (int k = 0; k < i; k++) {
            uintptr_t other = (uintptr_t)run.base[k];
            bool apart = !run.bytes[i] || !run.bytes[k] || end <= other || other + (size_t)run.bytes[k] <= at;
            bool at_one_time = uses[i].first <= uses[k].last && uses[k].first <= uses[i].last;
            EXPECT(apart || !at_one_time, "plan %d: buffers %d and %d share memory while both are in use", number, k, i);
        }
    }
    EXPECT(total <= sum, "plan %d: %zu bytes for buffers of %zu", number, total, sum);
}

static void check_layout(const Plan *p, int number) {
    check_order(p, number, false);
    check_order(p, number, true);
}

static void random_plans(void) {
    static Plan p;
    for (int number = 0; number < PLANS; number++) {
        start(&p);
        for (int n = 1 + draw(10); n > 0; n--)
            add_buffer(&p, draw(8) ? 1 + draw(2000) : 0);
        random_ops(&p, 0);
        check_layout(&p, number);
    }
}

/* Three buffers of 1024 bytes, each handed on to the next: two places are enough; in a loop three are needed. */
static void chains(void) {
    static Plan p;
    static cell_run run;
    for (int in_loop = 0; in_loop < 2; in_loop++) {
        start(&p);
        for (int i = 0; i < 3; i++)
            add_buffer(&p, 1024);
        int loop = in_loop ? open_loop(&p) : 0;
        add_kernel(&p, 1, (int[]){0});
        add_kernel(&p, 2, (int[]){0, 1});
        add_kernel(&p, 2, (int[]){1, 2});
        if (in_loop)
            close_loop(&p, loop);
        size_t total = lay_out(&p, &run);
        EXPECT(total == (in_loop ? 3072u : 2048u), "%zu bytes", total);
        check_layout(&p, -1);
    }
}

/* A small buffer takes the gap that a large one left behind, though a larger one lies above it all the time. */
static void gap(void) {
    static Plan p;
    static cell_run run;
    start(&p);
    add_buffer(&p, 4096);
    add_buffer(&p, 2048);
    add_buffer(&p, 512);
    add_kernel(&p, 2, (int[]){0, 1});
    add_kernel(&p, 2, (int[]){1, 2});
    EXPECT(lay_out(&p, &run) == 6144, "no gap was used");
    check_layout(&p, -1);
}

static void too_large(void) {
    static Plan p;
    static cell_run run;
    static const cell_desc desc = {.key = "layout"};
    cell_error err = { 0 };
    size_t bytes;
    for (int negative = 0; negative < 2; negative++) {
        start(&p);
        add_buffer(&p, negative ? -4 : INT64_MAX - 8);
        add_kernel(&p, 1, (int[]){0});
        memset(&run, 0, sizeof run);
        run.desc = &desc, run.plan = &p.plan, run.err = &err;
        EXPECT(cell_layout_workspace(&run, &bytes) == CELL_BAD_SIZE, "a buffer of %s bytes is taken",
               negative ? "-4" : "2^63 - 9");
    }
}

int main(void) {
    random_plans();
    chains();
    gap();
    too_large();
    return report();
}
