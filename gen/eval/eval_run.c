/* eval_run.c: runs the trees that eval.c made. What comes in is a program whose names are resolved and the
 * tensors that the caller bound; what goes out is outputs, final states and watched values with their
 * tangents. A definition is computed when it is first read in a step; memory does not grow with B or T. */
#include "eval_code.h"

#include <string.h>

enum { MAX_DEPTH = 4000 };        /* definitions that wait for each other, against the C stack */

void eval_fail(EvalProgram *p, Span span, const char *text)
{
    if (p->error)
        return;
    p->error = text;
    p->error_span = span;
}

/* Is it made of integers that the call gives? Any of them may divide; by zero that is zero. */
static bool of_values(const Ix *x)
{
    return x && (x->op == I_VALUE || of_values(x->a) || of_values(x->b));
}

int64_t eval_ix(EvalProgram *p, const Ix *x, Span span)
{
    int64_t a, b, r = 0;
    bool overflow = false;
    switch (x->op) {
    case I_CONST: return x->k;
    case I_REG: return p->regs[x->reg];
    case I_STEP: return p->t - eval_began(p);
    case I_VALUE: {
        if (eval_is_whole(p, x->value))
            return eval_whole(p, x->value);
        double v = eval_code(p, x->value).v;
        if (!(fabs(v) < 0x1p53) || v != floor(v))
            eval_fail(p, span, "an index is not a whole number");
        return p->error ? 0 : (int64_t)v;
    }
    case I_NEG: return eval_whole_minus(eval_ix(p, x->a, span));
    default: break;
    }
    a = eval_ix(p, x->a, span);
    b = eval_ix(p, x->b, span);
    switch (x->op) {
    case I_ADD: overflow = __builtin_add_overflow(a, b, &r); break;
    case I_SUB: overflow = __builtin_sub_overflow(a, b, &r); break;
    case I_MUL: overflow = __builtin_mul_overflow(a, b, &r); break;
    default:
        if (b <= 0 && x->b->op == I_CONST && !of_values(x)) {
            eval_fail(p, span, "an index is divided by a number that is not positive");
            return 0;
        }
        return x->op == I_DIV ? eval_whole_quotient(a, b) : eval_whole_rest(a, b);
    }
    if (overflow && !of_values(x))
        eval_fail(p, span, "an index expression overflows");
    return p->error ? 0 : r;      /* integers go round */
}

/* At another step nothing that is remembered is right, and nothing of it may stay. */
bool eval_memo_holds(EvalProgram *p, Memo *m)
{
    if (p->away) {
        m->tick = 0;
        return false;
    }
    if (m->tick != m->frame->tick)
        return false;
    for (int i = 0; i < m->n; i++)
        if (m->value[i] != p->regs[m->reg[i]])
            return false;
    return true;
}

void eval_memo_set(EvalProgram *p, Memo *m)
{
    m->tick = p->away ? 0 : m->frame->tick;
    for (int i = 0; i < m->n; i++)
        m->value[i] = p->regs[m->reg[i]];
}

bool eval_advance(EvalProgram *p, int n, const int *reg, const int64_t *extent)
{
    for (int i = n - 1; i >= 0; i--) {
        if (reg[i] < 0)
            continue;
        if (++p->regs[reg[i]] < extent[i])
            return true;
        p->regs[reg[i]] = 0;
    }
    return false;
}

bool eval_start(EvalProgram *p, int n, const int *reg, const int64_t *extent)
{
    bool any = true;
    for (int i = 0; i < n; i++) {
        if (reg[i] < 0)
            continue;
        p->regs[reg[i]] = 0;
        any = any && extent[i] > 0;
    }
    return any;
}

const int64_t *eval_extents(EvalProgram *p, const Code *x, int64_t *room)
{
    bool moves = false;
    for (int i = 0; i < x->nbound; i++)
        moves = moves || x->of_steps[i];
    if (!moves)
        return x->extent;
    for (int i = 0; i < x->nbound; i++)
        room[i] = x->of_steps[i] ? p->t - eval_began(p) + 1 : x->extent[i];
    return room;
}

static void run_equation(EvalProgram *p, Array *a, const Equation *q)
{
    if (!eval_start(p, q->rank, q->reg, a->shape))
        return;
    do {
        int64_t at = 0;
        for (int i = 0; i < q->rank; i++)
            at += a->stride[i] * (q->reg[i] < 0 ? q->fixed[i] : p->regs[q->reg[i]]);
        if (a->complex) {
            Pair z = eval_pair(p, q->value);
            a->data[at] = z.re;
            a->data[at + 1] = z.im;
        } else {
            a->data[at] = eval_code(p, q->value);
            a->whole = a->rank == 0 && eval_is_whole(p, q->value) ? eval_whole(p, q->value) : 0;
        }
    } while (!p->error && eval_advance(p, q->rank, q->reg, a->shape));
}

void eval_run_equations(EvalProgram *p, Array *a)
{
    for (int i = 0; i < a->equations.len && !p->error; i++)
        run_equation(p, a, &a->equations.data[i]);
}

static void copy_array(Array *to, const Array *from)
{
    memcpy(to->data, from->data, sizeof *to->data * (size_t)to->count);
}

static void compute(EvalProgram *p, Array *a);

/* Is it to be computed, and does nothing wait for it? */
static bool is_open(const EvalProgram *p, const Array *a)
{
    return !a->is_data && !a->busy && a->stamp != a->frame->tick && !p->error;
}

/* The iterations that are still open, from the first on, so that none of thousands waits for all before it. A
 * few are computed when they are read, as all values are. */
static void compute_iterations_before(EvalProgram *p, Array *a)
{
    enum { FEW = 100 };
    Array *first = a;
    int open = 0;
    for (; first->before && is_open(p, first->before); first = first->before)
        open++;
    for (; open > FEW && first != a; first = first->after)
        compute(p, first);
}

void eval_compute(EvalProgram *p, Array *a)
{
    if (!is_open(p, a) && !a->busy)
        return;
    compute_iterations_before(p, a);
    compute(p, a);
}

static void compute(EvalProgram *p, Array *a)
{
    if (a->is_data || a->stamp == a->frame->tick || p->error)
        return;
    if (a->busy) {
        eval_fail(p, a->span, "this value depends on itself");
        return;
    }
    if (p->depth == MAX_DEPTH) {
        eval_fail(p, a->span, intern_f(p->c, "more than %d values wait for each other", MAX_DEPTH));
        return;
    }
    a->busy = true;
    p->depth++;
    eval_run_equations(p, a);
    p->depth--;
    a->busy = false;
    a->stamp = a->frame->tick;
}

static bool has_value(const Ix *x)
{
    return x && (x->op == I_VALUE || has_value(x->a) || has_value(x->b));
}

/* Outside of its array nothing is there where a value says the place, and it is an error elsewhere. */
enum { OUTSIDE = -1, NOTHING_THERE = -2 };

static int64_t place_of(EvalProgram *p, const Code *x, int64_t *place)
{
    const Array *a = x->array;
    int64_t at = 0;
    bool there = true;
    for (int i = 0; i < a->rank; i++) {
        const Ix *ix = x->index[i];
        int64_t k = ix->op == I_REG ? p->regs[ix->reg] : eval_ix(p, ix, x->span);
        if ((k < 0 || k >= a->shape[i]) && has_value(ix)) {
            there = false;
            continue;
        }
        if (k < 0 || k >= a->shape[i]) {
            eval_fail(p, x->span, "an index is out of range");
            return OUTSIDE;
        }
        place[i] = k;
        at += k * a->stride[i];
    }
    return p->error ? OUTSIDE : there ? at : NOTHING_THERE;
}

int64_t eval_place(EvalProgram *p, const Code *x)
{
    int64_t place[EVAL_MAX_RANK];
    return place_of(p, x, place);
}

static Dual load(EvalProgram *p, Code *x, Dual *im)
{
    int64_t place[EVAL_MAX_RANK], at = place_of(p, x, place);
    if (at < 0 && im)
        *im = dual_of(at == NOTHING_THERE ? 0 : NAN);
    if (at < 0)
        return dual_of(at == NOTHING_THERE ? 0 : NAN);
    return eval_at_step(p, x, place, at, im);
}

/* The largest (or, sign -1, smallest) value; equal ones share the derivative evenly. */
static Dual reduce_extreme(EvalProgram *p, Code *x, double sign)
{
    int64_t room[MAX_BOUND];
    const int64_t *extent = eval_extents(p, x, room);
    Dual best = dual_of(-sign * INFINITY);
    double ties = 0, error = 0;
    bool bad = false;
    if (eval_start(p, x->nbound, x->bound, extent)) {
        do {
            Dual v = eval_code(p, x->a);
            bad = bad || isnan(v.v);
            error = fmax(error, v.d[BOUND_VALUE]);
            if (ties == 0 || sign * v.v > sign * best.v) {
                best = v;
                ties = 1;
            } else if (v.v == best.v) {
                best = nest_add(&p->nest, best, v);
                best.v = v.v;
                ties++;
            }
        } while (!p->error && eval_advance(p, x->nbound, x->bound, extent));
    }
    if (bad)
        return dual_of(NAN);
    double value = best.v;
    best = nest_mul(&p->nest, best, dual_of(ties > 0 ? 1 / ties : 0));
    best.v = value;
    return dual_with_error(best, error, 0);
}

static Dual reduce_plain(EvalProgram *p, Code *x)
{
    int64_t room[MAX_BOUND];
    const int64_t *extent = eval_extents(p, x, room);
    bool product = x->reduce == R_PROD;
    Dual total = dual_of(product);
    double n = 0;
    if (eval_start(p, x->nbound, x->bound, extent)) {
        do {
            Dual v = eval_code(p, x->a);
            total = product ? nest_mul(&p->nest, total, v) : nest_add(&p->nest, total, v);
            n++;
        } while (!p->error && eval_advance(p, x->nbound, x->bound, extent));
    }
    return x->reduce == R_MEAN ? nest_div(&p->nest, total, dual_of(n)) : total;
}

static Dual reduce(EvalProgram *p, Code *x)
{
    if (eval_memo_holds(p, &x->memo))
        return x->kept;
    Dual r;
    switch (x->reduce) {
    case R_MAX: r = reduce_extreme(p, x, 1); break;
    case R_MIN: r = reduce_extreme(p, x, -1); break;
    default: r = reduce_plain(p, x); break;
    }
    x->kept = r;
    eval_memo_set(p, &x->memo);
    return r;
}

/* The largest value is taken out as a plain number: the result does not depend on it. */
static void softmax_total(EvalProgram *p, Code *x)
{
    int64_t room[MAX_BOUND];
    const int64_t *extent = eval_extents(p, x, room);
    int64_t here[EVAL_MAX_RANK];
    for (int i = 0; i < x->nbound; i++)
        here[i] = p->regs[x->bound[i]];
    Dual total = dual_of(0);
    x->top = -INFINITY;
    for (int pass = 0; pass < 2 && eval_start(p, x->nbound, x->bound, extent); pass++) {
        do {
            Dual v = eval_code(p, x->a);
            if (pass == 0)
                x->top = v.v > x->top ? v.v : x->top;
            else
                total = nest_add(&p->nest, total, nest_exp(&p->nest, nest_sub(&p->nest, v, dual_of(x->top))));
        } while (!p->error && eval_advance(p, x->nbound, x->bound, extent));
        if (x->top == -INFINITY) { /* of nothing but -inf all is 0 */
            x->top = 0;
            total = dual_of(1);
            break;
        }
    }
    for (int i = 0; i < x->nbound; i++)
        p->regs[x->bound[i]] = here[i];
    x->kept = total;
}

static Dual softmax(EvalProgram *p, Code *x)
{
    if (!eval_memo_holds(p, &x->memo)) {
        softmax_total(p, x);
        eval_memo_set(p, &x->memo);
    }
    int64_t room[MAX_BOUND];
    const int64_t *extent = eval_extents(p, x, room);
    for (int i = 0; i < x->nbound; i++)
        if (p->regs[x->bound[i]] >= extent[i])
            return dual_of(0);    /* none of the steps so far */
    double top = x->top;
    Dual total = x->kept;         /* the operand may hold a softmax of its own, never this one */
    Nest *n = &p->nest;
    return nest_div(n, nest_exp(n, nest_sub(n, eval_code(p, x->a), dual_of(top))), total);
}

static void enter_instance(EvalProgram *p, Code *x)
{
    Instance *in = x->instance;
    if (!p->away && !eval_memo_holds(p, &x->memo)) {
        for (int k = 0; k < in->nargs; k++)
            eval_run_equations(p, in->args[k]);
        in->frame.tick = ++p->ticks;
        eval_memo_set(p, &x->memo);
    }
}

Dual eval_load(EvalProgram *p, Code *x, Dual *im)
{
    if (x->kind == C_INSTANCE)
        enter_instance(p, x);
    return load(p, x, im);
}

static double compare(AstOp op, double a, double b)
{
    switch (op) {
    case O_LT: return a < b;
    case O_LE: return a <= b;
    case O_GT: return a > b;
    case O_GE: return a >= b;
    case O_EQ: return a == b;
    default: return a != b;
    }
}

static bool compare_whole(AstOp op, int64_t a, int64_t b)
{
    return compare(op, a < b ? -1 : a > b, 0) != 0;
}

static Dual gradient(EvalProgram *p, Code *x)
{
    if (p->away) {
        eval_fail(p, x->span, "a gradient is evaluated at its own step only: name it, and read that at the other");
        return dual_of(NAN);
    }
    return eval_grad(p, x);
}

Dual eval_code(EvalProgram *p, Code *x)
{
    if ((x->kind == C_CALL1 || x->kind == C_CALL2) && eval_is_whole(p, x))
        return dual_of((double)eval_whole(p, x));
    switch (x->kind) {
    case C_CONST: return dual_of(x->num);
    case C_INDEX: return dual_of((double)eval_ix(p, x->index[0], x->span));
    case C_STEP: return dual_of((double)(p->t - eval_began(p)));
    case C_STEPS: return dual_of((double)p->steps);
    case C_LOAD: return load(p, x, NULL);
    case C_CALL1: return nest_call1(&p->nest, x->call1, eval_code(p, x->a));
    case C_CALL2: {
        Dual a = eval_code(p, x->a);
        return nest_call2(&p->nest, x->call2, a, eval_code(p, x->b));
    }
    case C_CALL3: {
        Dual a = eval_code(p, x->a), b = eval_code(p, x->b);
        return x->call3(a, b, eval_code(p, x->c));
    }
    case C_NOT: return dual_of(eval_code(p, x->a).v == 0);
    case C_COMPARE: {
        if (eval_is_whole(p, x->a) && eval_is_whole(p, x->b))
            return dual_of(compare_whole(x->op, eval_whole(p, x->a), eval_whole(p, x->b)));
        double a = eval_code(p, x->a).v;
        return dual_of(compare(x->op, a, eval_code(p, x->b).v));
    }
    case C_AND: return dual_of(eval_code(p, x->a).v != 0 && eval_code(p, x->b).v != 0);
    case C_OR: return dual_of(eval_code(p, x->a).v != 0 || eval_code(p, x->b).v != 0);
    case C_COND: return eval_code(p, eval_code(p, x->a).v != 0 ? x->b : x->c);
    case C_REDUCE: return reduce(p, x);
    case C_SOFTMAX: return softmax(p, x);
    case C_INSTANCE: return eval_load(p, x, NULL);
    case C_PAIR: return eval_pair(p, x).re;
    case C_GRAD: return gradient(p, x);
    }
    return dual_of(NAN);
}

static void read_bound(const EvalProgram *p, Array *a, const EvalTensor *t, int64_t from)
{
    eval_read(p->e, a->data, a->count, t, from);
}

static void write_bound(const Array *a, const EvalTensor *t, int64_t to)
{
    for (int64_t i = 0; i < a->count; i++) {
        if (t->out)
            t->out[to + i] = a->data[i].v;
        for (int k = 0; k < DUAL_K; k++)
            if (t->out_tangent[k])
                t->out_tangent[k][to + i] = a->data[i].d[k];
    }
}

static bool wanted(const EvalTensor *t)
{
    bool any = t->out != NULL;
    for (int k = 0; k < DUAL_K; k++)
        any = any || t->out_tangent[k];
    return any;
}

static void initial_state(EvalProgram *p, const StateSlot *s)
{
    if (s->init)
        eval_run_equations(p, s->init), copy_array(s->now, s->init);
    else
        memset(s->now->data, 0, sizeof *s->now->data * (size_t)s->now->count);
}

static void start_state(EvalProgram *p, const StateSlot *s, int64_t b)
{
    const EvalTensor *t = &p->e->tensors[s->tensor];
    if (t->value)
        read_bound(p, s->now, t, b * s->now->count);
    else
        initial_state(p, s);
}

static void run_step(EvalProgram *p, int64_t row)
{
    const EvalTensor *tensors = p->e->tensors;
    p->frame.tick = ++p->ticks;
    for (int i = 0; i < p->inputs.len; i++)
        read_bound(p, p->inputs.data[i].array, &tensors[p->inputs.data[i].tensor],
                   row * p->inputs.data[i].array->count);
    for (int i = 0; i < p->states.len && eval_is_reset(p, p->t); i++)
        initial_state(p, &p->states.data[i]);
    for (int i = 0; i < p->states.len; i++)
        eval_compute(p, p->states.data[i].next);
    for (int i = 0; i < p->outputs.len; i++) {
        Array *a = p->outputs.data[i].array;
        eval_compute(p, a);
        write_bound(a, &tensors[p->outputs.data[i].tensor], row * a->count);
    }
    for (int i = 0; i < p->watches.len; i++) {
        Array *a = p->watches.data[i].array;
        if (!wanted(&tensors[p->watches.data[i].tensor]))
            continue;
        eval_compute(p, a);
        write_bound(a, &tensors[p->watches.data[i].tensor], row * a->count);
    }
    for (int i = 0; i < p->shifted.len; i++)
        eval_keep(p, p->shifted.data[i]);
    for (int i = 0; i < p->states.len; i++)
        copy_array(p->states.data[i].now, p->states.data[i].next);
}

/* A step that the sequence has not: states stay, outputs are zero. */
static void skip_step(EvalProgram *p, int64_t row)
{
    for (int i = 0; i < p->outputs.len; i++) {
        Array zero = *p->outputs.data[i].array;
        zero.data = arena_alloc(p->arena, sizeof *zero.data * (size_t)(zero.count + 1));
        write_bound(&zero, &p->e->tensors[p->outputs.data[i].tensor], row * zero.count);
    }
}

static bool all_bound(EvalProgram *p)
{
    for (int i = 0; i < p->e->ntensors; i++) {
        const EvalTensor *t = &p->e->tensors[i];
        if ((t->kind == EV_INPUT || t->kind == EV_PARAM) && !t->value) {
            eval_fail(p, t->decl ? t->decl->name_span : (Span){-1, 0, 0}, "this tensor has no values");
            return false;
        }
    }
    return true;
}

static void run_sequence(EvalProgram *p, int64_t b, int64_t steps, int64_t t0)
{
    p->frame.tick = p->sequence_tick = ++p->ticks;
    p->t = p->first = t0;
    p->sequence = b;
    p->away = 0;
    for (int i = 0; i < p->states.len; i++)
        start_state(p, &p->states.data[i], b);
    for (int64_t t = 0; t < steps && !p->error; t++) {
        p->t = t0 + t;
        if (!eval_within(p, t))
            skip_step(p, b * steps + eval_row(p, t));
        else
            run_step(p, b * steps + eval_row(p, t));
    }
    for (int i = 0; i < p->states.len; i++) {
        const StateSlot *s = &p->states.data[i];
        write_bound(s->now, &p->e->tensors[s->tensor], b * s->now->count);
    }
    if (!p->error)
        eval_leave(p);
}

bool dual_magnitudes;

bool eval_run(Eval *e, int64_t batch, int64_t steps, int64_t t0)
{
    if (!eval_for_steps(e, t0 + steps)) {
        e->run_error = "the cell cannot be compiled for so many steps";
        return false;
    }
    EvalProgram *p = e->program;
    if (p->has_room && t0 + steps > p->room) {
        e->run_error = "there are more steps than the histories have room for";
        return false;
    }
    p->error = NULL;
    p->steps = steps;
    dual_magnitudes = e->magnitudes;
    if (batch > 0 && all_bound(p)) {
        for (int i = 0; i < p->params.len; i++)
            read_bound(p, p->params.data[i].array, &e->tensors[p->params.data[i].tensor], 0);
        for (int64_t b = 0; b < batch && !p->error; b++)
            run_sequence(p, b, steps, t0);
    }
    dual_magnitudes = false;
    e->run_error = p->error;
    e->run_error_span = p->error_span;
    return !p->error;
}
