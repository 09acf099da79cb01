/* eval_past.c: earlier steps, in the evaluator. In comes a read that names a step; out goes what the equations
 * give when that step is the one that is computed, with the inputs that it had: there is no other account of
 * time. Values are kept for the rest of their sequence. How far back a value of the cell is read follows from
 * the ranges of the indices; that many steps before the call are a tensor that the caller carries. */
#include "eval_scope.h"

#include <string.h>

enum { MAX_ELEMENTS_OF_STEPS = 1 << 26 };
enum { MAX_DEPTH = 4000 };        /* as in eval_run.c */

/* ---- compiling: how far back */

/* slope * t + [lo, hi]; not known: not of this form. */
typedef struct Span1 { bool known; int64_t slope, lo, hi; } Span1;

static Span1 ix_span(const EvalProgram *p, const Ix *x);

static Span1 product(Span1 a, Span1 b)
{
    if (a.slope || a.lo != a.hi) {
        Span1 c = a;
        a = b;
        b = c;
    }
    bool ok = a.known && b.known && !a.slope && a.lo == a.hi;
    int64_t k = a.lo;
    return (Span1){ ok, k * b.slope, k < 0 ? k * b.hi : k * b.lo, k < 0 ? k * b.lo : k * b.hi };
}

static int64_t floor_of(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static Span1 quotient(Span1 a, Span1 b, bool rest)
{
    if (!b.known || b.slope || b.lo != b.hi || b.lo <= 0)
        return (Span1){ .known = false };
    if (rest)
        return (Span1){ true, 0, 0, b.lo - 1 };
    if (!a.known || a.slope)
        return (Span1){ .known = false };
    return (Span1){ true, 0, floor_of(a.lo, b.lo), floor_of(a.hi, b.lo) };
}

static Span1 ix_span(const EvalProgram *p, const Ix *x)
{
    Span1 a = { .known = true }, b = a;
    if (x->a)
        a = ix_span(p, x->a);
    if (x->b)
        b = ix_span(p, x->b);
    switch (x->op) {
    case I_CONST: return (Span1){ true, 0, x->k, x->k };
    case I_REG: return (Span1){ p->extents[x->reg] >= 1, 0, 0, p->extents[x->reg] - 1 };
    case I_STEP: return (Span1){ true, 1, 0, 0 };
    case I_VALUE: return (Span1){ .known = false };
    case I_NEG: return (Span1){ a.known, -a.slope, -a.hi, -a.lo };
    case I_ADD: return (Span1){ a.known && b.known, a.slope + b.slope, a.lo + b.lo, a.hi + b.hi };
    case I_SUB: return (Span1){ a.known && b.known, a.slope - b.slope, a.lo - b.hi, a.hi - b.lo };
    case I_MUL: return product(a, b);
    default: return quotient(a, b, x->op == I_MOD);
    }
}

static void look_back(EvalProgram *p, Array *a, const Ix *step)
{
    Span1 s = ix_span(p, step);
    if (!s.known || s.slope != 1)
        a->grows = true;
    else if (-s.lo > a->back)
        a->back = -s.lo;
    if (a->back || a->grows)
        vec_push(p->arena, &p->looked_back, a);
}

static void find_in_array(EvalProgram *p, Array *a);

static void find_in_scope(EvalProgram *p, const Scope *s)
{
    for (int i = 0; i < s->arrays.len; i++)
        find_in_array(p, s->arrays.data[i]);
    for (int i = 0; i < s->inner.len; i++)
        find_in_scope(p, s->inner.data[i]);
}

static bool counts_steps(const Ix *x)
{
    return x && (x->op == I_STEP || counts_steps(x->a) || counts_steps(x->b));
}

static void find_in_code(EvalProgram *p, const Code *x);

/* What integers in an index expression read. */
static void find_in_ix(EvalProgram *p, const Ix *x)
{
    if (!x)
        return;
    find_in_code(p, x->value);
    find_in_ix(p, x->a);
    find_in_ix(p, x->b);
}

static bool reads_values(const Ix *x)
{
    return x && (x->value || reads_values(x->a) || reads_values(x->b));
}

static void find_in_code(EvalProgram *p, const Code *x)
{
    if (!x)
        return;
    for (int i = 0; x->index && i < (x->kind == C_INDEX ? 1 : x->array ? x->array->rank : 0); i++) {
        find_in_ix(p, x->index[i]);
        p->counts_anew = p->counts_anew || (x->kind != C_INDEX && reads_values(x->index[i]) && counts_steps(x->index[i]));
    }
    /* Where a sequence begins with its own last row its steps are counted from a place that no call before tells. */
    bool counts = x->kind == C_STEP || (x->kind == C_INDEX && counts_steps(x->index[0]));
    for (int i = 0; x->of_steps && i < x->nbound; i++)
        counts = counts || x->of_steps[i];
    p->counts_anew = p->counts_anew || counts;
    if (counts && p->c->lengths && p->c->reverse)
        p->whole_past = true;
    if (x->time)
        look_back(p, x->array, x->time);
    if (x->array)
        find_in_array(p, x->array);
    for (int i = 0; x->instance && i < x->instance->nargs; i++)
        find_in_array(p, x->instance->args[i]);
    if (x->instance && x->array)
        find_in_scope(p, x->instance->scope);
    find_in_code(p, x->a);
    find_in_code(p, x->b);
    find_in_code(p, x->c);
}

/* Reads in what is needed for an output or a state: what nothing uses has no history. */
static void find_in_array(EvalProgram *p, Array *a)
{
    if (a->looked_at)
        return;
    a->looked_at = true;
    for (int i = 0; i < a->equations.len; i++)
        find_in_code(p, a->equations.data[i].value);
}

static bool is_of_cell(const EvalProgram *p, const Array *a)
{
    Symbol *y = ev_find_here(p->cell_scope, NS_VALUE, a->name);
    return y && y->kind == SY_VALUE && y->now == a;
}

static void add_history(EvalProgram *p, Array *a)
{
    Array like = *a;
    a->history = p->e->ntensors;
    like.rank = a->rank + 1;
    if (like.rank > EVAL_MAX_RANK)
        return;
    like.shape[0] = a->grows ? p->room : a->back;
    memcpy(like.shape + 1, a->shape, sizeof *a->shape * (size_t)a->rank);
    like.count = like.shape[0] * a->count;
    ev_complex_of(p, a);
    like.complex = a->complex;
    EvalTensor *t = ev_add_tensor(p, EV_STATE, intern_f(p->c, "%s_history", a->name), &like, NULL);
    if (a->tensor >= 0 && !p->e->tensors[a->tensor].scale) {
        t = &p->e->tensors[a->history];
        t->no_grad = p->e->tensors[a->tensor].no_grad;
        t->is_int = p->e->tensors[a->tensor].is_int;
        t->below = p->e->tensors[a->tensor].below;
        t->has_range = p->e->tensors[a->tensor].has_range;
        t->range = p->e->tensors[a->tensor].range;
    } else {
        t->reach = p->has_domains;
    }
}

/* The flags of as many steps as anything is looked back at; of all where steps are counted. */
static void add_flags(EvalProgram *p)
{
    int64_t most = 0;
    bool all = p->counts_anew;
    for (int i = 0; i < p->looked_back.len; i++) {
        most = p->looked_back.data[i]->back > most ? p->looked_back.data[i]->back : most;
        all = all || p->looked_back.data[i]->grows;
    }
    for (int i = 0; i < p->resets.len && (most || all); i++) {
        p->resets.data[i]->back = most;
        p->resets.data[i]->grows = p->resets.data[i]->grows || all;
        vec_push(p->arena, &p->looked_back, p->resets.data[i]);
    }
}

/* Does an integer say which slice of an array was passed? Which one it was before the call is not known. */
static bool is_chosen_slice(const Array *a)
{
    bool chosen = false;
    for (; a->base; a = a->base) {
        const Code *load = a->equations.data[0].value;
        for (int i = 0; i < a->base->rank; i++)
            chosen = chosen || reads_values(load->index[i]);
    }
    return chosen;
}

void ev_add_histories(EvalProgram *p)
{
    for (int i = 0; i < p->outputs.len; i++)
        find_in_array(p, p->outputs.data[i].array);
    for (int i = 0; i < p->states.len; i++)
        find_in_array(p, p->states.data[i].next);
    for (int i = 0; i < p->looked_back.len; i++) {
        Array *a = p->looked_back.data[i], *root = a;
        while (root->base)
            root = root->base;
        p->whole_past = p->whole_past || !is_of_cell(p, root) || is_chosen_slice(a) || (a->grows && p->c->lengths && p->c->reverse);
        root->grows = root->grows || a->grows;
        for (int k = 0; k < root->rank; k++)
            p->whole_past = p->whole_past || root->of_steps[k];
        if (a->back > root->back)
            root->back = a->back;
        p->looked_back.data[i] = root;
    }
    add_flags(p);
    for (int i = 0; i < p->looked_back.len; i++) {
        Array *a = p->looked_back.data[i];
        if (a->shifted)
            continue;
        a->shifted = true;
        if (!a->is_data && a->frame == &p->frame)
            vec_push(p->arena, &p->shifted, a);
        if (!p->whole_past && (a->back || a->grows))
            add_history(p, a);
        if (!p->whole_past && a->grows)
            p->has_room = true;
    }
}

/* ---- running */

/* Fills values from what is bound to a tensor, at element `from` of it. */
void eval_read(const Eval *e, Dual *to, int64_t count, const EvalTensor *t, int64_t from)
{
    const EvalTensor *scale = t->scale ? &e->tensors[t->scale] : NULL;
    for (int64_t i = 0; i < count; i++) {
        to[i] = dual_of(t->value[from + i]);
        if (scale)
            to[i].v *= scale->value[t->block ? (from + i) / t->block : 0];
        for (int k = 0; k < DUAL_K; k++)
            to[i].d[k] = t->tangent[k] ? t->tangent[k][from + i] : 0;
        if (scale && dual_magnitudes)
            to[i] = dual_rounded(to[i]);
    }
}

/* Where inputs and outputs have the step, counted from the call's first: a reversed cell begins with the last row. */
int64_t eval_row(const EvalProgram *p, int64_t step)
{
    return p->c->reverse ? p->steps - 1 - step : step;
}

bool eval_within(const EvalProgram *p, int64_t step)
{
    return p->lengths < 0 || (double)eval_row(p, step) < p->e->tensors[p->lengths].value[p->sequence];
}

/* Room for the values of all steps of a sequence. */
static bool past_room(EvalProgram *p, Array *a)
{
    int64_t n;
    if (a->past && a->past_steps == p->steps)
        return true;
    if (__builtin_mul_overflow(p->steps, a->count, &n) || n > MAX_ELEMENTS_OF_STEPS) {
        eval_fail(p, a->span, intern_f(p->c, "this value at all steps is too large to evaluate: more than %d elements",
                                       MAX_ELEMENTS_OF_STEPS));
        return false;
    }
    a->past = arena_alloc(p->arena, sizeof *a->past * (size_t)(n + 1));
    a->past_of = arena_alloc(p->arena, sizeof *a->past_of * (size_t)(p->steps + 1));
    a->past_steps = p->steps;
    return true;
}

/* All values of an array of the cell at the step that is looked at; kept for the rest of the sequence. */
static Dual *cell_at_step(EvalProgram *p, Array *a)
{
    int64_t step = p->t - p->first;
    if (!past_room(p, a))
        return NULL;
    Dual *values = a->past + step * a->count, *now = a->data;
    if (a->past_of[step] == p->sequence_tick)
        return values;
    if (a->tensor >= 0) {
        eval_read(p->e, values, a->count, &p->e->tensors[a->tensor],
                  (p->sequence * p->steps + eval_row(p, step)) * a->count);
    } else if (a->busy || p->depth == MAX_DEPTH) {
        eval_fail(p, a->span, "this value depends on itself");
    } else {
        a->busy = true;
        p->depth++;
        a->data = values;
        eval_run_equations(p, a);
        a->data = now;
        p->depth--;
        a->busy = false;
    }
    a->past_of[step] = p->sequence_tick;
    return p->error ? NULL : values;
}

/* What other steps read by name is kept at its own step. */
void eval_keep(EvalProgram *p, Array *a)
{
    int64_t step = p->t - p->first;
    eval_compute(p, a);
    if (p->error || !past_room(p, a))
        return;
    memcpy(a->past + step * a->count, a->data, sizeof *a->data * (size_t)a->count);
    a->past_of[step] = p->sequence_tick;
}

static Pair not_a_number(void)
{
    return (Pair){dual_of(NAN), dual_of(NAN)};
}

/* One element of an array by its equation at that place, whatever was computed before. */
static Pair single_element(EvalProgram *p, Array *a, const int64_t *place)
{
    for (int i = 0; i < a->equations.len; i++) {
        const Equation *q = &a->equations.data[i];
        int64_t before[EVAL_MAX_RANK];
        bool here = true;
        for (int k = 0; k < q->rank; k++)
            here = here && (q->reg[k] >= 0 || q->fixed[k] == place[k]);
        if (!here)
            continue;
        for (int k = 0; k < q->rank; k++)
            if (q->reg[k] >= 0) {
                before[k] = p->regs[q->reg[k]];
                p->regs[q->reg[k]] = place[k];
            }
        if (++p->depth > MAX_DEPTH)
            eval_fail(p, a->span, intern_f(p->c, "more than %d values wait for each other", MAX_DEPTH));
        Pair v = p->error ? not_a_number() : eval_pair(p, q->value);
        p->depth--;
        for (int k = 0; k < q->rank; k++)
            if (q->reg[k] >= 0)
                p->regs[q->reg[k]] = before[k];
        return v;
    }
    return not_a_number();
}

/* An element at a place of a history; zero where nobody carries it. */
static Dual at_place(EvalProgram *p, const Array *a, int64_t place, int64_t at)
{
    const EvalTensor *t = a->history >= 0 ? &p->e->tensors[a->history] : NULL;
    int64_t places = a->grows ? p->room : a->back;
    Dual v = dual_of(0);
    if (t && t->value && place >= 0 && place < places)
        eval_read(p->e, &v, 1, t, (p->sequence * places + place) * a->count + at);
    return v;
}

/* An element of a step before the call, `back` before the one before the first. */
static Dual from_history(EvalProgram *p, const Array *a, int64_t back, int64_t at)
{
    return at_place(p, a, a->grows ? p->first - 1 - back : back, at);
}

bool eval_is_reset(EvalProgram *p, int64_t step)
{
    for (int i = 0; i < p->resets.len; i++) {
        Array *r = p->resets.data[i];
        Dual v;
        if (step < p->first)
            v = from_history(p, r, p->first - 1 - step, 0);
        else
            eval_read(p->e, &v, 1, &p->e->tensors[r->tensor],
                      p->sequence * p->steps + eval_row(p, step - p->first));
        if (v.v > 0)
            return true;
    }
    return false;
}

int64_t eval_began(EvalProgram *p)
{
    bool late = p->lengths >= 0 && p->c->reverse;
    if (p->resets.len == 0 && !late)
        return 0;
    if (p->began_tick == p->sequence_tick && p->began_at == p->t)
        return p->began;
    const Array *flag = p->resets.len ? p->resets.data[0] : NULL;
    int64_t step = p->t, first = !flag ? p->first : flag->grows ? 0 : p->first - flag->back;
    while (step >= first && !eval_is_reset(p, step) &&
           !(late && step > p->first && eval_within(p, step - p->first) && !eval_within(p, step - 1 - p->first)))
        step--;
    p->began_tick = p->sequence_tick;
    p->began_at = p->t;
    p->began_anew = step >= first;
    return p->began = p->began_anew ? step : 0;
}

static Pair pair_at(const Array *a, const Dual *data, int64_t at)
{
    return (Pair){data[at], a->complex ? data[at + 1] : dual_of(0)};
}

static Pair element_away(EvalProgram *p, Array *a, const int64_t *place, int64_t at, Span span)
{
    Pair v = {dual_of(0), dual_of(0)};
    if (a->is_data && a->tensor < 0 && a->equations.len == 0) {
        for (int i = 0; i < p->states.len; i++)
            if (p->states.data[i].now == a)
                eval_fail(p, span, "a state has no values at earlier steps");
        v = pair_at(a, a->data, at);
        v.re.tail = v.im.tail = NULL; /* an inner gradient holds what other steps had */
        return v;
    }
    if (a->frame != &p->frame)
        return p->t >= p->first || a->base ? single_element(p, a, place) : v;
    if (p->t < p->first) {
        v.re = from_history(p, a, p->first - 1 - p->t, at);
        if (a->complex)
            v.im = from_history(p, a, p->first - 1 - p->t, at + 1);
        return v;
    }
    const Dual *values = cell_at_step(p, a);
    return values ? pair_at(a, values, at) : not_a_number();
}

/* Inside an inner gradient only the element is computed that is read, and kept while nothing changes. */
static Pair element_here(EvalProgram *p, Array *a, const int64_t *place, int64_t at)
{
    if (!p->nest.level || a->is_data || a->stamp == a->frame->tick) {
        eval_compute(p, a);
        return p->error ? not_a_number() : pair_at(a, a->data, at);
    }
    if (!a->element) {
        a->element = arena_alloc(p->arena, sizeof *a->element * (size_t)(a->count + 1));
        a->element_stamp = arena_alloc(p->arena, sizeof *a->element_stamp * (size_t)(a->count + 1));
    }
    if (a->element_stamp[at] != a->frame->tick) {
        Pair v = single_element(p, a, place);
        a->element[at] = v.re;
        if (a->complex)
            a->element[at + 1] = v.im;
        a->element_stamp[at] = a->frame->tick;
    }
    return pair_at(a, a->element, at);
}

static Dual give(Pair v, Dual *im)
{
    if (im)
        *im = v.im;
    return v.re;
}

Dual eval_at_step(EvalProgram *p, const Code *x, const int64_t *place, int64_t at, Dual *im)
{
    Array *a = x->array;
    int64_t now = p->t, began = eval_began(p), step = x->time ? began + eval_ix(p, x->time, x->span) : now;
    if (step > now)
        eval_fail(p, x->span, "a later step is read");
    if (p->error)
        return give(not_a_number(), im);
    if (step == now && !p->away) {
        Pair v = element_here(p, a, place, at);
        if (x->time)
            v.re.tail = v.im.tail = NULL; /* what is read with its step is held, in the IR as well */
        return give(v, im);
    }
    if (p->began_anew && step < began)
        return give((Pair){dual_of(0), dual_of(0)}, im);       /* of another sequence */
    p->away++;
    p->t = step;
    Pair v = element_away(p, a, place, at, x->span);
    p->t = now;
    p->away--;
    return give(v, im);
}

/* Is the step, counted from the call's first, one of the sequence? Those before the call are, unless it
 * begins within the call with its own last row. */
static bool of_sequence(const EvalProgram *p, int64_t step)
{
    if (step >= 0 && step < p->steps)
        return eval_within(p, step);
    return !p->c->reverse || eval_within(p, 0);
}

/* What the next call begins with: the last steps, the latest first. Or all steps, each at its place; the others keep
 * what they had. */
static void leave(EvalProgram *p, const Array *a)
{
    const EvalTensor *t = &p->e->tensors[a->history];
    int64_t places = a->grows ? p->room : a->back, last = p->steps - 1;
    while (last >= 0 && !p->c->reverse && !eval_within(p, last))
        last--;
    for (int64_t j = 0; j < places; j++)
        for (int64_t i = 0; i < a->count; i++) {
            int64_t step = a->grows ? j - p->first : last - j, to = (p->sequence * places + j) * a->count + i;
            Dual v = dual_of(0);
            if (!of_sequence(p, step))
                v = dual_of(0);
            else if (step < 0 || step >= p->steps)
                v = at_place(p, a, a->grows ? j : j - 1 - last, i);
            else if (a->tensor >= 0)
                eval_read(p->e, &v, 1, &p->e->tensors[a->tensor],
                          (p->sequence * p->steps + eval_row(p, step)) * a->count + i);
            else
                v = a->past[step * a->count + i];
            if (t->out)
                t->out[to] = v.v;
            for (int k = 0; k < DUAL_K; k++)
                if (t->out_tangent[k])
                    t->out_tangent[k][to] = v.d[k];
        }
}

void eval_leave(EvalProgram *p)
{
    for (int i = 0; i < p->looked_back.len; i++)
        if (p->looked_back.data[i]->history >= 0)
            leave(p, p->looked_back.data[i]);
}
