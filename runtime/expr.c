/* Size expressions. In: a postfix program and what it may refer to. Out: its value. Guaranteed: no overflow,
 * no division by zero and no malformed program passes unnoticed; nothing is read outside sizes, loops and the
 * description. */
#include "context.h"

typedef struct Stack {
    int64_t value[CELL_MAX_STACK];
    int depth;
} Stack;

static cell_status malformed(cell_error *err, const char *what) {
    return cell_fail(err, CELL_BAD_SIZE, "malformed size expression in the plan: %s", what);
}

/* Upper bounds where no device is known, so that memory asked for then suffices on any. */
static int64_t attribute(const cell_scope *scope, int64_t which) {
    if (scope->ctx)
        return scope->ctx->backend->attribute(scope->ctx->self, (int)which);
    switch (which) {
    case CELL_ATTR_SM_COUNT:
        return 256;
    case CELL_ATTR_SMEM_MAX:
        return 232448;
    case CELL_ATTR_PRODUCTS_OF_8: return 1;
    default:
        return 90;
    }
}

static cell_status resident(const cell_scope *scope, int64_t index, int64_t *blocks, cell_error *err) {
    if (!scope->desc || index < 0 || index >= scope->desc->n_kernels)
        return malformed(err, "no such kernel");
    if (!scope->ctx) {
        *blocks = 256 * 32; /* no device holds more blocks a multiprocessor */
        return CELL_OK;
    }
    const cell_kernel *kernel = &scope->desc->kernels[index];
    cell_scope sizes_only = *scope;
    sizes_only.desc = NULL; /* a kernel's shared memory may not depend on residency: no recursion */
    int64_t smem;
    cell_status status = cell_eval_in(&sizes_only, kernel->smem, 0, &smem, err);
    if (status != CELL_OK)
        return status;
    return scope->ctx->backend->resident(scope->ctx->self, kernel, (size_t)smem, blocks, err);
}

static cell_status form(const cell_scope *scope, int64_t at, int64_t *number, cell_error *err) {
    int index;
    if (!scope->plan || at < 0 || at >= scope->before || scope->plan->ops[at].kind != CELL_OP_FORMS)
        return malformed(err, "no such forms");
    return cell_form_taken(scope, (int)at, number, &index, err);
}

/* Codes with an operand: what they push. */
static cell_status leaf(const cell_scope *scope, int64_t code, int64_t operand, int64_t *value,
                        cell_error *err) {
    switch (code) {
    case CELL_X_PUSH:
        *value = operand;
        return CELL_OK;
    case CELL_X_SIZE:
        if (operand < 0 || operand >= scope->n_sizes)
            return malformed(err, "no such size");
        *value = scope->sizes[operand];
        return CELL_OK;
    case CELL_X_LOOPVAR:
        if (operand < 0 || operand >= scope->n_loops)
            return malformed(err, "no such loop is open");
        *value = scope->loop[operand];
        return CELL_OK;
    case CELL_X_ATTR:
        *value = attribute(scope, operand);
        return CELL_OK;
    case CELL_X_ROWS:
        *value = scope->saving ? scope->sizes[CELL_SIZE_T] : operand;
        return CELL_OK;
    case CELL_X_ROW:
        if (scope->n_loops < 1 || operand < 1)
            return malformed(err, "a row outside of loops");
        *value = scope->saving ? scope->loop[0] : scope->loop[0] % operand;
        return CELL_OK;
    case CELL_X_FORM:
        return form(scope, operand, value, err);
    default:
        return resident(scope, operand, value, err);
    }
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static cell_status divide(int64_t code, int64_t a, int64_t b, int64_t *value, cell_error *err) {
    if (b == 0)
        return cell_fail(err, CELL_BAD_SIZE, "division by zero in a size");
    if (b == -1 && a == INT64_MIN)
        return cell_fail(err, CELL_BAD_SIZE, "a size overflows 64 bits");
    int64_t quotient = floor_div(a, b);
    int64_t rest = a - quotient * b;
    if (code == CELL_X_DIV)
        *value = quotient;
    else if (code == CELL_X_MOD)
        *value = rest;
    else
        *value = quotient + (rest != 0);
    return CELL_OK;
}

static cell_status binary(int64_t code, int64_t a, int64_t b, int64_t *value, cell_error *err) {
    int overflow = 0;
    switch (code) {
    case CELL_X_ADD:
        overflow = __builtin_add_overflow(a, b, value);
        break;
    case CELL_X_SUB:
        overflow = __builtin_sub_overflow(a, b, value);
        break;
    case CELL_X_MUL:
        overflow = __builtin_mul_overflow(a, b, value);
        break;
    case CELL_X_DIV:
    case CELL_X_MOD:
    case CELL_X_CEILDIV:
        return divide(code, a, b, value, err);
    case CELL_X_MIN:
        *value = a < b ? a : b;
        break;
    case CELL_X_MAX:
        *value = a > b ? a : b;
        break;
    case CELL_X_LT:
        *value = a < b;
        break;
    case CELL_X_LE:
        *value = a <= b;
        break;
    case CELL_X_EQ:
        *value = a == b;
        break;
    default:
        return malformed(err, "unknown code");
    }
    return overflow ? cell_fail(err, CELL_BAD_SIZE, "a size overflows 64 bits") : CELL_OK;
}

static cell_status apply(Stack *stack, int64_t code, cell_error *err) {
    if (stack->depth < 2)
        return malformed(err, "too few operands");
    int64_t b = stack->value[--stack->depth];
    int64_t a = stack->value[stack->depth - 1];
    return binary(code, a, b, &stack->value[stack->depth - 1], err);
}

static cell_status push(const cell_scope *scope, Stack *stack, const int64_t *at, cell_error *err) {
    if (stack->depth == CELL_MAX_STACK)
        return malformed(err, "too deep");
    return leaf(scope, at[0], at[1], &stack->value[stack->depth++], err);
}

cell_status cell_eval_in(const cell_scope *scope, cell_expr expr, int64_t absent, int64_t *value,
                         cell_error *err) {
    *value = absent;
    if (!expr)
        return CELL_OK;
    Stack stack;
    stack.depth = 0; /* the values are not read before they are there, and clearing them takes as long as a program */
    while (*expr != CELL_X_END) {
        int is_leaf = *expr >= CELL_X_PUSH && *expr <= CELL_X_FORM;
        cell_status status = is_leaf ? push(scope, &stack, expr, err) : apply(&stack, *expr, err);
        if (status != CELL_OK)
            return status;
        expr += is_leaf ? 2 : 1;
    }
    if (stack.depth != 1)
        return malformed(err, "not one value");
    *value = stack.value[0];
    return CELL_OK;
}

cell_status cell_eval(cell_expr expr, const int64_t *sizes, int n_sizes, int64_t *value) {
    if (!expr || !sizes || !value)
        return CELL_NULL_POINTER;
    cell_scope scope = {.sizes = sizes, .n_sizes = n_sizes};
    return cell_eval_in(&scope, expr, 0, value, NULL);
}

static cell_status multiply(int64_t *product, int64_t extent, const char *name, cell_error *err) {
    if (extent < 0)
        return cell_fail(err, CELL_BAD_SIZE, "%s has an axis of %lld elements", name, (long long)extent);
    if (__builtin_mul_overflow(*product, extent, product))
        return cell_fail(err, CELL_BAD_SIZE, "%s has more than 2^63 elements", name);
    return CELL_OK;
}

cell_status cell_arg_count(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes,
                           int64_t *elements, cell_error *err) {
    if (arg->tensor < 0 || arg->tensor >= desc->n_tensors)
        return cell_fail(err, CELL_BAD_ARGUMENT, "the argument list names tensor %d of %d", arg->tensor,
                         desc->n_tensors);
    const cell_tensor *tensor = &desc->tensors[arg->tensor];
    cell_scope scope = {.sizes = sizes, .n_sizes = desc->n_sizes};
    cell_status status = CELL_OK;
    int timed = tensor->kind == CELL_INPUT || tensor->kind == CELL_OUTPUT;
    *elements = 1;
    if (timed && desc->total)
        status = multiply(elements, sizes[desc->total], tensor->name, err);
    else if (tensor->kind != CELL_PARAM)
        status = multiply(elements, sizes[CELL_SIZE_B] + (tensor->kind == CELL_STARTS), tensor->name, err);
    if (status == CELL_OK && timed && !desc->total)
        status = multiply(elements, sizes[CELL_SIZE_T], tensor->name, err);
    for (int i = 0; i < tensor->rank && status == CELL_OK; i++) {
        int64_t extent;
        status = cell_eval_in(&scope, tensor->axes[i], 1, &extent, err);
        if (status == CELL_OK)
            status = multiply(elements, extent, tensor->name, err);
    }
    return status;
}

cell_status cell_arg_elements(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes,
                              int64_t *elements) {
    if (!desc || !arg || !sizes || !elements)
        return CELL_NULL_POINTER;
    return cell_arg_count(desc, arg, sizes, elements, NULL);
}
