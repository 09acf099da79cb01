/* eval_whole.c: whole numbers in the evaluator. What comes in is a tree; what goes out is whether the language takes
 * it for a whole number (written so, a size, an index, a step, an integer of the call, or +, -, *, min, max, div,
 * mod and ?: of such), and its value in 64 bits, which goes round at their end as in two's complement. */
#include "eval_code.h"

int64_t eval_whole_sum(int64_t a, int64_t b)
{
    int64_t r;
    (void)__builtin_add_overflow(a, b, &r);     /* r is what goes round */
    return r;
}

int64_t eval_whole_minus(int64_t a)
{
    int64_t r;
    (void)__builtin_sub_overflow((int64_t)0, a, &r);
    return r;
}

int64_t eval_whole_product(int64_t a, int64_t b)
{
    int64_t r;
    (void)__builtin_mul_overflow(a, b, &r);
    return r;
}

int64_t eval_whole_quotient(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return eval_whole_minus(a);
    return a / b - (eval_whole_rest(a, b) != a % b);
}

int64_t eval_whole_rest(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return 0;
    int64_t r = a % b;
    return (r < 0 && b > 0) || (r > 0 && b < 0) ? r + b : r;
}

static int whole_function(Code *x)
{
    static const char *const names[] = { [F_SUM] = "+", [F_LESS] = "-", [F_TIMES] = "*", [F_QUOTIENT] = "div",
                                         [F_REST] = "mod", [F_LEAST] = "min", [F_MOST] = "max" };
    if (x->whole_function != F_UNKNOWN)
        return x->whole_function;
    x->whole_function = F_NONE;
    for (int k = F_SUM; k <= F_MOST; k++)
        if (x->call2 == nest_function2(names[k]))
            x->whole_function = k;
    return x->whole_function;
}

static bool is_whole(const EvalProgram *p, Code *x)
{
    const Array *a = x->array;
    switch (x->kind) {
    case C_INDEX: case C_STEP: return true;
    case C_LOAD:
        if (a->tensor >= 0)
            return p->e->tensors[a->tensor].is_int;
        return a->equations.len == 1 && !a->equations.data[0].stmt && !a->is_variable &&
               eval_is_whole(p, a->equations.data[0].value);
    case C_CALL1: return x->call1 == nest_function1("-") && eval_is_whole(p, x->a);
    case C_CALL2: return whole_function(x) != F_NONE && eval_is_whole(p, x->a) && eval_is_whole(p, x->b);
    case C_COND: return eval_is_whole(p, x->b) && eval_is_whole(p, x->c);
    default: return false;
    }
}

bool eval_is_whole(const EvalProgram *p, Code *x)
{
    if (x->whole == WHOLE_UNKNOWN)
        x->whole = is_whole(p, x) ? WHOLE_YES : WHOLE_NO;
    return x->whole == WHOLE_YES;
}

static int64_t whole_call(EvalProgram *p, Code *x)
{
    int64_t a = eval_whole(p, x->a), b = eval_whole(p, x->b);
    switch (whole_function(x)) {
    case F_SUM: return eval_whole_sum(a, b);
    case F_LESS: return eval_whole_sum(a, eval_whole_minus(b));
    case F_TIMES: return eval_whole_product(a, b);
    case F_QUOTIENT: return eval_whole_quotient(a, b);
    case F_REST: return eval_whole_rest(a, b);
    case F_LEAST: return a < b ? a : b;
    default: return a > b ? a : b;
    }
}

int64_t eval_whole(EvalProgram *p, Code *x)
{
    switch (x->kind) {
    case C_CONST: return (int64_t)x->num;
    case C_INDEX: return eval_ix(p, x->index[0], x->span);
    case C_STEP: return p->t - eval_began(p);
    case C_CALL1: return eval_whole_minus(eval_whole(p, x->a));
    case C_CALL2: return whole_call(p, x);
    case C_COND: return eval_whole(p, eval_code(p, x->a).v != 0 ? x->b : x->c);
    case C_LOAD:
        if (x->array->tensor < 0 && x->array->rank == 0 && !x->time && !p->away)
            return x->array->whole;
        break;
    default: break;
    }
    double v = eval_load(p, x, NULL).v;
    return p->error || !(v >= -0x1p63 && v < 0x1p63) ? 0 : (int64_t)v;
}
