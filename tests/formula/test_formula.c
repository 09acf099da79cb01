/* Formulas of launch plans. In: nothing. Random trees are printed as programs, which the runtime's reader
 * computes (runtime/expr.c); formula_value has to give the same number, and to fail where the runtime does:
 * of overflow, of a division by 0, of a loop that is not open. Then what words say. */
#include <stdlib.h>
#include <string.h>

#include "../runtime/expect.h"
#include "cell_backend.h"
#include "cell_plan.h"
#include "context.h"
#include "plan/formula.h"

enum { DIMS = 3, KERNELS = 3, LOOPS = 2 };

static uint64_t state = 1;
static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

/* ---- a call, as both sides see it */

typedef struct Call {
    int64_t sizes[DIMS + 3];      /* B, T, dims, t0 */
    int64_t device[DEVICE_FACTS], blocks[KERNELS], loop[LOOPS];
    int64_t form[2];              /* taken of each of two operations that have forms */
    int n_loops;
    bool saving;
} Call;

static Call call;
static const char *const names[KERNELS] = { "first", "second", "third" };
static cell_kernel kernels[KERNELS];

static int64_t attribute(void *self, int which)
{
    return call.device[which == CELL_ATTR_SM_COUNT ? DEVICE_MULTIPROCESSORS
                       : which == CELL_ATTR_SMEM_MAX ? DEVICE_BLOCK_MEMORY
                       : which == CELL_ATTR_PRODUCTS_OF_8 ? DEVICE_PRODUCTS_OF_8 : DEVICE_CAPABILITY];
}

static cell_status resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks,
                            cell_error *err)
{
    *blocks = call.blocks[kernel - kernels];
    return CELL_OK;
}

static bool resident_by_name(void *data, const char *kernel, int64_t *blocks)
{
    for (int i = 0; i < KERNELS; i++)
        if (strcmp(kernel, names[i]) == 0) {
            *blocks = call.blocks[i];
            return true;
        }
    return false;
}

/* Two forms, of which the first holds where `first` says so; and three, the second of them of two
 * operations. */
static int64_t first[] = { CELL_X_PUSH, 0, CELL_X_END }, second[] = { CELL_X_PUSH, 0, CELL_X_END },
               third[] = { CELL_X_PUSH, 0, CELL_X_END };
static const cell_op ops[] = {
    { .name = "two", .kind = CELL_OP_FORMS, .u.list = { 2 } },
    { .name = "first", .kind = CELL_OP_FILL, .when = first },
    { .name = "else", .kind = CELL_OP_FILL },
    { .name = "three", .kind = CELL_OP_FORMS, .u.list = { 4 } },
    { .name = "first", .kind = CELL_OP_FILL, .when = second },
    { .name = "list", .kind = CELL_OP_LIST, .when = third, .u.list = { 1 } },
    { .name = "inside", .kind = CELL_OP_FILL },
    { .name = "else", .kind = CELL_OP_FILL },
};
static const cell_plan plan = { .ops = ops, .n_ops = sizeof ops / sizeof *ops };

static bool form_by_number(void *data, int64_t operation, int64_t *number)
{
    *number = call.form[operation == 3];
    return operation == 0 || operation == 3;
}

static int64_t some_size(void)
{
    static const int64_t all[] = { 0, 1, 2, 3, 7, 8, 64, 1000, 1 << 20, (int64_t)1 << 40 };
    return all[draw(sizeof all / sizeof *all)];
}

static Call some_call(void)
{
    Call x = { .n_loops = (int)draw(LOOPS + 1), .saving = draw(2) };
    for (int i = 0; i < DIMS + 3; i++)
        x.sizes[i] = some_size();
    x.form[0] = draw(2);
    x.form[1] = draw(3);
    first[1] = x.form[0] == 0;
    second[1] = x.form[1] == 0;
    third[1] = x.form[1] <= 1;
    for (int i = 0; i < DEVICE_FACTS; i++)
        x.device[i] = some_size();
    for (int i = 0; i < KERNELS; i++)
        x.blocks[i] = some_size();
    for (int i = 0; i < LOOPS; i++)
        x.loop[i] = some_size();
    return x;
}

/* ---- trees */

static const Poly *some_poly(Module *m, int depth)
{
    const Poly *a, *b;
    switch (draw(depth > 0 ? 7 : 3)) {
    case 0: return poly_const(m, (int64_t)draw(5) - 2);
    case 1: return poly_dim(m, (int)draw(DIMS));
    case 2: return poly_dim(m, draw(3) == 0 ? ATOM_PAST : draw(2) ? ATOM_B : ATOM_T);
    case 3: return poly_add(m, some_poly(m, depth - 1), some_poly(m, depth - 1));
    case 4: return poly_sub(m, some_poly(m, depth - 1), some_poly(m, depth - 1));
    case 5:
        a = some_poly(m, depth - 1);
        b = poly_div(m, a, some_poly(m, depth - 1));
        return b ? b : a;
    default: return poly_mul(m, some_poly(m, depth - 1), some_poly(m, depth - 1));
    }
}

static const Formula *some_leaf(Module *m)
{
    switch (draw(10)) {
    case 0: return formula_const(m, draw(8) == 0 ? INT64_MIN : (int64_t)draw(40) - 10);
    case 1: return formula_leaf(m, F_LOOP, draw(LOOPS));
    case 2: return formula_leaf(m, F_DEVICE, draw(DEVICE_FACTS));
    case 3: return formula_leaf(m, F_ROWS, 1 + draw(3));
    case 4: return formula_leaf(m, F_ROW, 1 + draw(3));
    case 5: return formula_leaf(m, F_START, 0);
    case 6: return formula_resident(m, names[draw(KERNELS)]);
    case 7: return formula_leaf(m, F_FORM, 3 * draw(2));
    case 8:
        return formula_size_of_rows(m, some_poly(m, 2),
                                    formula_leaf(m, draw(2) ? F_ROWS : F_CONST, 1 + draw(3)));
    default: return formula_size(m, some_poly(m, 3));
    }
}

static const Formula *some_condition(Module *m, int depth);

static const Formula *some_formula(Module *m, int depth)
{
    static const FormulaKind kinds[] = { F_ADD, F_SUB, F_MUL, F_DIV, F_MOD, F_CEILDIV, F_MIN, F_MAX };
    if (depth == 0)
        return some_leaf(m);
    if (draw(8) == 0)
        return some_condition(m, depth);
    return formula(m, kinds[draw(8)], some_formula(m, depth - 1), some_formula(m, depth - 1));
}

static const Formula *some_condition(Module *m, int depth)
{
    static const FormulaKind compare[] = { F_LT, F_LE, F_EQ };
    if (depth < 2 || draw(3) == 0)
        return formula(m, compare[draw(3)], some_formula(m, depth - 1), some_formula(m, depth - 1));
    if (draw(3) == 0)
        return formula_not(m, some_condition(m, depth - 1));
    return formula(m, draw(2) ? F_AND : F_OR, some_condition(m, depth - 1), some_condition(m, depth - 1));
}

/* ---- programs as the C compiler reads them */

typedef struct Word { const char *name; int64_t code; } Word;
#define WORD(x) { #x, x }
static const Word words[] = {
    WORD(CELL_X_END), WORD(CELL_X_PUSH), WORD(CELL_X_SIZE), WORD(CELL_X_LOOPVAR), WORD(CELL_X_ATTR),
    WORD(CELL_X_RESIDENT), WORD(CELL_X_ROWS), WORD(CELL_X_ROW), WORD(CELL_X_FORM), WORD(CELL_X_ADD),
    WORD(CELL_X_SUB), WORD(CELL_X_MUL), WORD(CELL_X_DIV), WORD(CELL_X_MOD), WORD(CELL_X_CEILDIV),
    WORD(CELL_X_MIN), WORD(CELL_X_MAX), WORD(CELL_X_LT), WORD(CELL_X_LE), WORD(CELL_X_EQ),
    WORD(CELL_ATTR_SM_COUNT), WORD(CELL_ATTR_SMEM_MAX), WORD(CELL_ATTR_CAPABILITY),
    WORD(CELL_ATTR_PRODUCTS_OF_8),
};

static int64_t read_word(const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].name) == n && strncmp(words[i].name, text, n) == 0)
            return words[i].code;
    char *end;
    int64_t v = strtoll(text, &end, 10);
    EXPECT(end == text + n, "'%.*s' is no word of a program", (int)n, text);
    return v;
}

static int read_program(const char *text, int64_t *out, int room)
{
    int n = 0;
    while (*text && n < room) {
        size_t length = strcspn(text, ",");
        out[n++] = read_word(text, length);
        text += length;
        text += strspn(text, ", ");
    }
    return n;
}

static void compare(Module *m, const Formula *f, long *values, long *failures)
{
    static int64_t program[1 << 16];
    cell_backend backend = { .name = "numbers", .attribute = attribute, .resident = resident };
    cell_context ctx = { .backend = &backend };
    cell_desc desc = { .kernels = kernels, .n_kernels = KERNELS };
    const char *all[KERNELS] = { names[0], names[1], names[2] };
    KernelNames numbers = { all, KERNELS, KERNELS };
    Buf text = { .arena = m->arena };
    formula_postfix(m, f, &numbers, &text);
    int n = read_program(text.data, program, sizeof program / sizeof *program);
    EXPECT(n > 0 && program[n - 1] == CELL_X_END, "%s", text.data);
    for (int i = 0; i < 8; i++) {
        call = some_call();
        cell_scope there = { call.sizes, DIMS + 3, call.loop, call.n_loops, call.saving,
                             &ctx,       &desc,    &plan,     plan.n_ops };
        int64_t sizes[MAX_DIMS] = { 0 }, right, value;
        for (int k = 0; k < DIMS; k++)
            sizes[k] = call.sizes[2 + k];
        sizes[ATOM_B] = call.sizes[0];
        sizes[ATOM_T] = call.sizes[1];
        sizes[ATOM_PAST] = call.sizes[1] + call.sizes[DIMS + 2];
        FormulaScope here = { .m = m,
                              .sizes = sizes,
                              .resident = resident_by_name,
                              .form = form_by_number,
                              .loop = call.loop,
                              .n_loops = call.n_loops,
                              .saving = call.saving };
        memcpy(here.device, call.device, sizeof here.device);
        bool runs = cell_eval_in(&there, program, 0, &right, NULL) == CELL_OK;
        bool known = formula_value(f, &here, &value);
        EXPECT(runs == known && (!runs || right == value), "%s: %d, %lld; the runtime: %d, %lld", text.data,
               known, (long long)value, runs, (long long)right);
        *values += runs;
        *failures += !runs;
    }
}

/* ---- words */

static void expect_words(Module *m, const Formula *f, const char *wanted)
{
    Buf b = { .arena = m->arena };
    formula_words(m, f, &b);
    EXPECT(strcmp(b.data, wanted) == 0, "'%s' in place of '%s'", b.data, wanted);
}

static void check_words(Module *m)
{
    const Formula *b = formula_size(m, poly_dim(m, ATOM_B)),
                  *sum = formula_size(m, poly_add(m, poly_dim(m, 0), poly_dim(m, 1)));
    const Formula *processors = formula_leaf(m, F_DEVICE, DEVICE_MULTIPROCESSORS);
    const Formula *few = formula(m, F_LE, formula_with(m, F_CEILDIV, sum, 64), processors);
    expect_words(m, few, "ceil((D + E) / 64) <= the GPU's multiprocessors");
    expect_words(m, formula_with(m, F_MUL, sum, 3), "(D + E) * 3");
    expect_words(m, formula(m, F_SUB, b, formula(m, F_SUB, b, formula_const(m, 1))), "B - (B - 1)");
    expect_words(m, formula(m, F_MUL, b, formula(m, F_CEILDIV, b, formula_with(m, F_MUL, b, 2))),
                 "B * ceil(B / (B * 2))");
    expect_words(m, formula_multiple(m, poly_dim(m, 0), 8), "D % 8 = 0");
    expect_words(m, formula_not(m, formula_and(m, few, formula_multiple(m, poly_dim(m, 0), 8))),
                 "not (ceil((D + E) / 64) <= the GPU's multiprocessors and D % 8 = 0)");
    expect_words(
        m,
        formula_and(m, formula(m, F_OR, few, formula_with(m, F_LT, b, 2)),
                    formula(m, F_LE, formula_with(m, F_MIN, b, 4), formula_resident(m, "k"))),
        "(ceil((D + E) / 64) <= the GPU's multiprocessors or B < 2) and "
        "min(B, 4) <= the blocks of k that the GPU holds at once");
    expect_words(m, formula(m, F_DIV, formula_with(m, F_ADD, b, 1), formula_leaf(m, F_LOOP, 0)),
                 "floor((B + 1) / loop variable 0)");
    expect_words(
        m, formula_size_of_rows(m, poly_mul(m, poly_dim(m, 0), poly_dim(m, ATOM_T)), formula_const(m, 2)),
        "D*T where T is 2");
}

static void expect_why(const Formula *f, const FormulaScope *scope, const char *wanted)
{
    Buf b = { .arena = scope->m->arena };
    formula_why_not(f, scope, &b);
    EXPECT(strcmp(b.data ? b.data : "", wanted) == 0, "'%s' in place of '%s'", b.data ? b.data : "", wanted);
}

static void check_why(Module *m)
{
    int64_t sizes[MAX_DIMS] = { [0] = 1024, [1] = 9, [ATOM_B] = 16 };
    FormulaScope scope = { .m = m, .sizes = sizes, .device = { 132, 99, 90 } };
    const Formula *d = formula_size(m, poly_dim(m, 0)), *few = formula_with(m, F_LE, d, 256),
                  *batch = formula_with(m, F_LE, formula_size(m, poly_dim(m, ATOM_B)), 16),
                  *eight = formula_multiple(m, poly_dim(m, 1), 8);
    expect_why(few, &scope, "D <= 256 does not hold (1024 <= 256)");
    expect_why(batch, &scope, "");
    expect_why(formula_and(m, batch, few), &scope, "D <= 256 does not hold (1024 <= 256)");
    expect_why(formula_and(m, eight, few), &scope, "E % 8 = 0 does not hold (1 = 0)");
    expect_why(formula(m, F_OR, few, eight), &scope, "D <= 256 or E % 8 = 0 does not hold");
    expect_why(formula(m, F_OR, few, batch), &scope, "");
    expect_why(formula_not(m, batch), &scope, "not (B <= 16) does not hold");
    expect_why(formula(m, F_LE, d, formula_leaf(m, F_DEVICE, DEVICE_BLOCK_MEMORY)), &scope,
               "D <= the GPU's shared memory for a block does not hold (1024 <= 99)");
    expect_why(formula(m, F_LE, d, formula_resident(m, "k")), &scope, "");       /* nothing is known of k */
}

int main(void)
{
    Compiler *c = compiler_new();
    Module *m = module_new(c, "test");
    const char *const dims[DIMS] = { "D", "E", "H" };
    long values = 0, failures = 0;
    for (int i = 0; i < DIMS; i++)
        vec_push(m->arena, &m->dims, intern(c, dims[i]));
    for (int i = 0; i < 4000; i++)
        compare(m, draw(3) ? some_formula(m, (int)draw(5)) : some_condition(m, 1 + (int)draw(4)), &values,
                &failures);
    EXPECT(values > 8000 && failures > 2000, "%ld values and %ld failures: too few of one to say anything",
           values, failures);
    check_words(m);
    check_why(m);
    compiler_free(c);
    return report();
}
