/* kernels_state.c: the kernels that begin and end a walk by steps. In come the states of a planned cell;
 * out go three kernels that take all of them: the initial states, the adjoints that the walk back starts
 * from, and those that it ends with. Beside them, for any schedule, what a call leaves of the steps that
 * the next one reads: a kernel for each history. */
#include <string.h>

#include "code.h"

enum { STATE_THREADS = 256 };

/* ---- initial states in walks that are printed as text ---- */

const char *state_learned(Kernel *k, TensorId s)
{
    NodeId init = k->p->m->roots.data[s].init;
    if (init < 0)
        return "0";
    Named named = { 0 };
    const char *value = k_body(k, k_node(k, init)->args[0], &named);
    k_forget(k, &named);
    return value;
}

void state_store_initial(Kernel *k, TensorId s, const char *place, const char *value)
{
    Plan *p = k->p;
    buf_line(k->out, "%s[%s] = %s;", k_written(k, REF_INITIAL, s, p->compute), place, value);
    int before = p->program[FORWARD].before[s];
    if (before >= 0) {
        const char *to = k_written(k, REF_BEFORE, s, p->buffers.data[before].dtype);
        const Buffer *b = &p->buffers.data[before];
        const char *first = k_time_row(k, "0", 0),
                   *all = k_text(k, "(%s + %s)", k_first_row(k, "b"), k_bare(k, first));
        const char *kept = k_text(k, "(b * %d + %s %% %d)", b->ring, first, b->ring);
        if (strcmp(first, "0") == 0) {
            all = k_first_row(k, "b");
            kept = k_text(k, "b * %d", b->ring);
        }
        if (b->time_first) {
            all = strcmp(first, "0") == 0 ? "b" : k_text(k, "(%s * dim_B + b)", first);
            kept = strcmp(first, "0") == 0 ? "b" : k_text(k, "(%s %% %d * dim_B + b)", first, b->ring);
        }
        const char *row = b->ring == 0 || strcmp(all, kept) == 0 ? all : b->reserve ?
            k_text(k, "(all ? %s : %s)", all, kept) : kept;
        buf_line(k->out, "if (dim_T > 0)");
        buf_line(k->out, "    cell_store(%s + %s * %s + e, %s);", to, row,
                 k_poly(k, tensor_elements(p->m, s)), value);
    }
}

/* ---- states ---- */

/* A state whose elements the threads of the grid share: e of sequence x->b, and n of both. */
typedef struct StateLoop { TensorId state; const KirExpr *n, *e, *elements; } StateLoop;

static const KirExpr *element(Code *x, const KirExpr *p, const KirExpr *at)
{
    return kir_element(x->kir, p, at);
}

/* Where an initial state goes before the first step, too. */
static void store_before(Code *x, const StateLoop *l, const KirExpr *value)
{
    Plan *p = x->k->p;
    int before = p->program[FORWARD].before[l->state];
    if (before < 0)
        return;
    const Buffer *b = &p->buffers.data[before];
    const KirExpr *to = code_written(x, REF_BEFORE, l->state, b->dtype);
    const KirExpr *first = code_time_row(x, code_int(x, 0), 0), *all, *kept = code_int(x, 0);
    if (b->ring)
        kept = code_binary(x, KB_MOD, first, code_int(x, b->ring));
    if (b->time_first) {
        all = code_add(x, code_mul(x, first, code_batch(x)), x->b);
        kept = code_add(x, code_mul(x, kept, code_batch(x)), x->b);
    } else {
        all = code_add(x, code_first_row(x), first);
        kept = code_add(x, code_mul(x, x->b, code_int(x, b->ring)), kept);
    }
    const KirExpr *row = b->ring == 0 || all == kept ? all : b->reserve ?
        kir_select(x->kir, x->saves, all, kept) : kept;
    KirOpen steps = kir_if(x->kir, code_binary(x, KB_GT, code_steps(x), code_int(x, 0)));
    const KirExpr *at = code_move(x, code_add(x, to, code_mul(x, row, l->elements)), l->e);
    kir_store(x->kir, at, value, NULL);
    kir_close(x->kir, steps);
}

static void init_state(Code *x, const StateLoop *l)
{
    TensorId s = l->state;
    Kernel *k = x->k;
    Dtype compute = k->p->compute;
    NodeId init = k->p->m->roots.data[s].init;
    if (init >= 0)
        code_split_element(x, k_node(k, init)->axes, k_node(k, init)->naxes, l->e, "i");
    const KirExpr *given = code_pointer(x, REF_TENSOR, s, compute);
    Named named = { 0 };
    const KirExpr *learned = init < 0 ? code_int(x, 0) : code_value(x, k_node(k, init)->args[0], &named);
    code_forget(x, &named);
    const KirExpr *either = kir_select(x->kir, given, element(x, given, l->n), learned);
    const KirExpr *value = kir_let(x->kir, "value", code_real(x), either);
    kir_assign(x->kir, element(x, code_written(x, REF_INITIAL, s, compute), l->n), value);
    store_before(x, l, value);
    const KirExpr *final = code_written(x, REF_FINAL, s, compute);
    const KirExpr *none = code_binary(x, KB_EQ, code_steps(x), code_int(x, 0));
    KirOpen unwalked = kir_if(x->kir, code_binary(x, KB_AND, none, final));
    kir_assign(x->kir, element(x, final, l->n), value);
    kir_close(x->kir, unwalked);
}

/* The adjoint behind the last step: in the half of the carried ones that this step reads. */
static void seed_state(Code *x, const StateLoop *l)
{
    Dtype compute = x->k->p->compute;
    const KirExpr *given = code_pointer(x, REF_DFINAL, l->state, compute);
    const KirExpr *half = code_binary(x, KB_BITS, code_steps(x), code_int(x, 1));
    const KirExpr *row = code_mul(x, code_mul(x, half, code_batch(x)), l->elements);
    const KirExpr *to = element(x, code_written(x, REF_CARRY, l->state, compute), code_add(x, row, l->n));
    kir_assign(x->kir, to, kir_select(x->kir, given, element(x, given, l->n), code_int(x, 0)));
}

static void result_state(Code *x, const StateLoop *l)
{
    Dtype compute = x->k->p->compute;
    const KirExpr *result = code_written(x, REF_DINIT, l->state, compute);
    KirOpen wanted = kir_if(x->kir, result);
    const KirExpr *v = element(x, code_pointer(x, REF_CARRY, l->state, compute), l->n);
    kir_store(x->kir, code_add(x, result, l->n), v, x->adds);
    kir_close(x->kir, wanted);
}

static void each_state(Code *x, void (*body)(Code *x, const StateLoop *l))
{
    const Module *m = x->k->p->m;
    const KirExpr *first = code_first(x, "first", STATE_THREADS), *step = code_step(x, "step", STATE_THREADS);
    for (TensorId s = 0; s < m->tensors.len; s++) {
        if (m->tensors.data[s].kind != T_STATE)
            continue;
        StateLoop l = { .state = s, .elements = code_size(x, tensor_elements(x->k->p->m, s)) };
        KirOpen loop = code_for(x, "n", first, code_mul(x, code_batch(x), l.elements), step, &l.n);
        x->b = code_let(x, "b", code_binary(x, KB_DIV, l.n, l.elements));
        code_sequence(x);
        l.e = code_let(x, "e", code_sub(x, l.n, code_mul(x, x->b, l.elements)));
        body(x, &l);
        kir_close(x->kir, loop);
        x->first_row = x->own_steps = NULL;
    }
}

void state_kernel(Code *x, int which)
{
    static void (*const body[])(Code *, const StateLoop *) = { init_state, seed_state, result_state };
    each_state(x, body[which]);
}

void emit_state_kernels(Plan *p, StateKernels *s, Buf *out)
{
    for (int i = 0; i < 3; i++) {
        Kernel k = kernel_new(p, &p->program[i == STATE_INIT ? FORWARD : BACKWARD], NULL, &s->refs[i], out);
        k.threads = STATE_THREADS;
        Code *x = code_new(&k, s->name[i]);
        state_kernel(x, i);
        code_print(p, code_end(x), out);
        kernel_release(&k);
    }
}

/* ---- histories ---- */

/* A history's kernel: the history, the root of what it gets, where it goes, and its sizes. */
typedef struct Last {
    const Tensor *of;
    const Node *root;
    const KirExpr *to, *elements, *places, *first, *stride;
    const KirExpr *whole, *width, *pieces;   /* a row in pieces of 16 bytes, or of one element */
    int wide;
} Last;

/* History element `at` of place `place` of the sequence. */
static const KirExpr *history_at(Code *x, const Last *l, const KirExpr *b, const KirExpr *place,
                                 const KirExpr *at)
{
    const KirExpr *row = code_add(x, code_mul(x, b, l->places), place);
    return code_add(x, code_mul(x, row, l->elements), at);
}

/* A history of all steps holds at the places of other steps what it held: where the call leaves another
 * buffer, that is copied, 16 bytes at a time where the rows of places begin at multiples of that. A thread
 * divides once for them. */
static void copy_places(Code *x, const Last *l)
{
    Kir *k = x->kir;
    bool whole = l->of->dtype == DT_I32;
    const KirExpr *from = code_pointer(x, REF_TENSOR, x->k->history, l->of->dtype);
    const KirExpr *n, *steps = code_steps(x);
    KirOpen another = kir_if(k, code_binary(x, KB_NE, from, l->to));
    const KirExpr *others = code_let(x, "others", code_sub(x, l->places, steps));
    const KirExpr *all = code_mul(x, code_mul(x, code_batch(x), others), l->pieces);
    KirOpen loop = code_for(x, "n", l->first, all, l->stride, &n);
    const KirExpr *row = code_let(x, "row", code_binary(x, KB_DIV, n, l->pieces));
    const KirExpr *b = code_let(x, "b", code_binary(x, KB_DIV, row, others));
    const KirExpr *before = code_let(x, "before", code_sub(x, row, code_mul(x, b, others)));
    const KirExpr *early = code_binary(x, KB_LT, before, code_nodes.start(&x->printer));
    const KirExpr *place = code_let(x, "place", kir_select(k, early, before, code_add(x, before, steps)));
    const KirExpr *piece = code_mul(x, code_sub(x, n, code_mul(x, row, l->pieces)), l->width);
    const KirExpr *at = code_let(x, "at", history_at(x, l, b, place, piece));
    KirOpen words = kir_if(k, l->whole);
    const KirExpr *four = kir_array(k, "words", KT_U32, code_int(x, 4), true);
    KirOpen given = kir_if(k, from);
    kir_do(k, kir_call2(k, "cell_load_words", four, code_add(x, from, at)));
    kir_close(k, given);
    kir_do(k, kir_call2(k, "cell_store_words", code_add(x, l->to, at), four));
    kir_statement(k, KI_CONTINUE);
    kir_close(k, words);
    given = kir_if(k, from);
    kir_assign(k, element(x, l->to, at), element(x, from, at));
    kir_else(k, &given);
    kir_store(k, code_add(x, l->to, at), whole ? code_int(x, 0) : kir_real(k, code_real(x), 0), NULL);
    kir_close(k, given);
    kir_close(k, loop);
    kir_close(k, another);
}

/* What a place of a history gets. */
static const KirExpr *history_value(Code *x, const Last *l, const KirExpr *place, Named *named)
{
    x->index[l->root->axes[0]] = place;
    NodeId value = l->root->args[0];
    return l->of->dtype == DT_I32 ? kir_convert(x->kir, kir_value(KT_I32), expr_node(&x->printer, value))
                                  : code_value(x, value, named);
}

/* A history of all steps: those of the call go to their places. A thread has a piece of a row, which lies
 * side by side with that of the next thread. */
static void all_steps(Code *x, Last *l)
{
    Kir *k = x->kir;
    KirScalar type = l->of->dtype == DT_I32 ? KT_I32 : code_real(x);
    const KirExpr *n, *u, *steps = code_steps(x), *wide = code_int(x, l->wide);
    const KirExpr *rest = code_binary(x, KB_MOD, l->elements, wide);
    l->whole = kir_let(k, "whole", KT_BOOL, code_binary(x, KB_EQ, rest, code_int(x, 0)));
    l->width = code_let(x, "width", kir_select(k, l->whole, wide, code_int(x, 1)));
    l->pieces = code_let(x, "pieces", code_binary(x, KB_DIV, l->elements, l->width));
    copy_places(x, l);
    const KirExpr *all = code_mul(x, code_mul(x, code_batch(x), steps), l->pieces);
    KirOpen loop = code_for(x, "n", l->first, all, l->stride, &n);
    const KirExpr *row = code_let(x, "row", code_binary(x, KB_DIV, n, l->pieces));
    x->b = code_let(x, "b", code_binary(x, KB_DIV, row, steps));
    const KirExpr *from = code_add(x, code_nodes.start(&x->printer), row);
    const KirExpr *place = code_let(x, "place", code_sub(x, from, code_mul(x, x->b, steps)));
    const KirExpr *piece = code_sub(x, n, code_mul(x, row, l->pieces));
    const KirExpr *begin = code_let(x, "begin", code_mul(x, piece, l->width));
    const KirExpr *v = kir_array(k, "v", type, wide, true);
    KirOpen neighbours = kir_for(k, "u", KT_I32, code_int(x, 0), KB_LT, wide, code_int(x, 1), &u);
    neighbours.statement->n = -1;
    KirOpen beyond = kir_if(k, code_binary(x, KB_GE, u, l->width));
    kir_statement(k, KI_BREAK);
    kir_close(k, beyond);
    const KirExpr *e = code_let(x, "e", code_add(x, begin, u));
    code_split_element(x, l->root->axes + 1, l->root->naxes - 1, e, "i");
    Named named = { 0 };
    kir_assign(k, element(x, v, u), history_value(x, l, place, &named));
    code_forget(x, &named);
    kir_close(k, neighbours);
    const KirExpr *to = code_move(x, l->to, history_at(x, l, x->b, place, begin));
    KirOpen wholly = kir_if(k, l->whole);
    kir_store_vector(k, to, v, wide, NULL);
    kir_else(k, &wholly);
    kir_store(k, to, element(x, v, code_int(x, 0)), NULL);
    kir_close(k, wholly);
    kir_close(k, loop);
}

/* The last steps of the call and, where these are fewer, what the call began with. A thread has all places
 * of its elements and goes from the last to the first, so that one buffer may be both. */
static void last_steps(Code *x, const Last *l)
{
    Kir *k = x->kir;
    const KirExpr *n, *place;
    KirOpen loop = code_for(x, "n", l->first, code_mul(x, code_batch(x), l->elements), l->stride, &n);
    x->b = code_let(x, "b", code_binary(x, KB_DIV, n, l->elements));
    code_sequence(x);
    const KirExpr *e = code_let(x, "e", code_sub(x, n, code_mul(x, x->b, l->elements)));
    code_split_element(x, l->root->axes + 1, l->root->naxes - 1, e, "i");
    const KirExpr *last = code_sub(x, l->places, code_int(x, 1));
    KirOpen places = kir_for(k, "place", KT_I64, last, KB_GE, code_int(x, 0), code_int(x, -1), &place);
    Named named = { 0 };
    const KirExpr *value = history_value(x, l, place, &named);
    kir_store(k, code_move(x, l->to, history_at(x, l, x->b, place, e)), value, NULL);
    code_forget(x, &named);
    kir_close(k, places);
    kir_close(k, loop);
}

void history_kernel(Code *x)
{
    Module *m = x->k->p->m;
    const Tensor *of = &m->tensors.data[x->k->history];
    const Node root = *k_node(x->k, m->roots.data[x->k->history].last);
    Last l = { .of = of, .root = &root, .wide = 16 / dtype_bytes(of->dtype) };
    l.to = code_written(x, REF_FINAL, x->k->history, of->dtype);
    KirOpen unwanted = kir_if(x->kir, kir_not(x->kir, l.to));
    kir_statement(x->kir, KI_RETURN);
    kir_close(x->kir, unwanted);
    l.elements = code_let(x, "elements", code_sizes(x, of->axes + 1, of->rank - 1));
    l.places = code_let(x, "places", code_size(x, of->axes[0]));
    l.first = code_first(x, "first", STATE_THREADS);
    l.stride = code_step(x, "stride", STATE_THREADS);
    if (of->grows)
        all_steps(x, &l);
    else
        last_steps(x, &l);
}

void emit_history_kernel(Plan *p, HistoryKernel *h, Buf *out)
{
    Kernel k = kernel_new(p, &p->program[FORWARD], NULL, &h->refs, out);
    k.threads = STATE_THREADS;
    k.history = h->history;
    Code *x = code_new(&k, h->name);
    history_kernel(x);
    code_print_once(p, code_end(x), &h->name, out);
    kernel_release(&k);
}
