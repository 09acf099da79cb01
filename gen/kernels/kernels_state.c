/* kernels_state.c: CUDA text of the kernels that begin and end a walk by steps. In come the states of a planned
 * cell; out go three kernels that take all of them: the initial states, the adjoints that the walk back starts
 * from, and those that it ends with. Beside them, for any schedule, what a call leaves of the steps that the next
 * one reads: a kernel for each history. */
#include <string.h>

#include "kernels.h"

typedef void (*StateBody)(Kernel *k, TensorId s);

static void each_state(Kernel *k, StateBody body)
{
    Module *m = k->p->m;
    buf_line(k->out, "const int64_t first = cell_block_index(0) * 256 + cell_thread();");
    buf_line(k->out, "const int64_t step = cell_block_count(0) * 256;");
    for (TensorId s = 0; s < m->tensors.len; s++) {
        if (m->tensors.data[s].kind != T_STATE)
            continue;
        const Poly *n = tensor_elements(m, s);
        k_open(k, "for (int64_t n = first; n < dim_B * %s; n += step)", k_poly(k, n));
        buf_line(k->out, "[[maybe_unused]] const int64_t b = n / %s;", k_poly(k, n));
        buf_line(k->out, "[[maybe_unused]] const int64_t e = n - b * %s;", k_poly(k, n));
        k->b = "b";
        body(k, s);
        k_close(k);
    }
}

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
        const char *first = k_time_row(k, "0", 0), *all = k_text(k, "(b * dim_T + %s)", k_bare(k, first));
        const char *kept = k_text(k, "(b * %d + %s %% %d)", b->ring, first, b->ring);
        if (strcmp(first, "0") == 0) {
            all = "b * dim_T";
            kept = k_text(k, "b * %d", b->ring);
        }
        if (b->time_first) {
            all = strcmp(first, "0") == 0 ? "b" : k_text(k, "(%s * dim_B + b)", first);
            kept = strcmp(first, "0") == 0 ? "b" : k_text(k, "(%s %% %d * dim_B + b)", first, b->ring);
        }
        const char *row = b->ring == 0 || strcmp(all, kept) == 0 ? all : b->reserve ? k_text(k, "(all ? %s : %s)", all, kept) : kept;
        buf_line(k->out, "if (dim_T > 0)");
        buf_line(k->out, "    cell_store(%s + %s * %s + e, %s);", to, row, k_poly(k, tensor_elements(p->m, s)), value);
    }
}

static void init_state(Kernel *k, TensorId s)
{
    NodeId init = k->p->m->roots.data[s].init;
    if (init >= 0)
        k_split_element(k, k_node(k, init)->axes, k_node(k, init)->naxes, "e", "i");
    const char *given = k_pointer(k, REF_TENSOR, s, k->p->compute), *value = state_learned(k, s);
    buf_line(k->out, "const %s value = %s ? %s[n] : (%s)(%s);", k->real, given, given, k->real, value);
    state_store_initial(k, s, "n", "value");
    const char *final = k_written(k, REF_FINAL, s, k->p->compute);
    buf_line(k->out, "if (dim_T == 0 && %s)", final);
    buf_line(k->out, "    %s[n] = value;", final);
}

static void seed_state(Kernel *k, TensorId s)
{
    const char *given = k_pointer(k, REF_DFINAL, s, k->p->compute);
    buf_line(k->out, "%s[(dim_T & 1) * dim_B * %s + n] = %s ? %s[n] : 0;",
             k_written(k, REF_CARRY, s, k->p->compute), k_poly(k, tensor_elements(k->p->m, s)), given, given);
}

static void result_state(Kernel *k, TensorId s)
{
    const char *result = k_written(k, REF_DINIT, s, k->p->compute);
    buf_line(k->out, "if (%s)", result);
    buf_line(k->out, "    cell_put(%s + n, %s[n], adds);", result,
             k_pointer(k, REF_CARRY, s, k->p->compute));
}

static void print_init(Kernel *k) { each_state(k, init_state); }
static void print_seed(Kernel *k) { each_state(k, seed_state); }
static void print_result(Kernel *k) { each_state(k, result_state); }

void emit_state_kernels(Plan *p, StateKernels *s, Buf *out)
{
    static void (*const body[])(Kernel *) = { print_init, print_seed, print_result };
    for (int i = 0; i < 3; i++) {
        Program *pr = &p->program[i == STATE_INIT ? FORWARD : BACKWARD];
        Kernel k = kernel_new(p, pr, NULL, &s->refs[i], out);
        k.threads = 256;
        k_print(&k, s->name[i], body[i]);
        kernel_release(&k);
    }
}

/* A history of all steps holds at the places of other steps what it held: where the call leaves another
 * buffer, that is copied, 16 bytes at a time where the rows of places begin at multiples of that. A thread
 * divides once for them. */
static void copy_places(Kernel *k, const Tensor *x, const char *to)
{
    const char *from = k_pointer(k, REF_TENSOR, k->history, x->dtype);
    k_open(k, "if (%s != %s)", from, to);
    buf_line(k->out, "const int64_t others = places - dim_T;");
    k_open(k, "for (int64_t n = first; n < dim_B * others * pieces; n += stride)");
    buf_line(k->out, "const int64_t row = n / pieces, b = row / others, before = row - b * others;");
    buf_line(k->out, "const int64_t place = before < t0 ? before : before + dim_T;");
    buf_line(k->out, "const int64_t at = (b * places + place) * elements + (n - row * pieces) * width;");
    k_open(k, "if (whole)");
    buf_line(k->out, "uint32_t words[4] = { 0, 0, 0, 0 };");
    buf_line(k->out, "if (%s)", from);
    buf_line(k->out, "    cell_load_words(words, %s + at);", from);
    buf_line(k->out, "cell_store_words(%s + at, words);", to);
    buf_line(k->out, "continue;");
    k_close(k);
    buf_line(k->out, "if (%s)", from);
    buf_line(k->out, "    %s[at] = %s[at];", to, from);
    buf_line(k->out, "else");
    buf_line(k->out, "    cell_store(%s + at, %s(0));", to, x->dtype == DT_I32 ? "int32_t" : k->real);
    k_close(k);
    k_close(k);
}

/* What a place of a history gets. */
static const char *history_value(Kernel *k, const Tensor *x, const Node *last, Named *named)
{
    k->index[last->axes[0]] = "place";
    return x->dtype == DT_I32 ? k_text(k, "(int32_t)(%s)", expr_text(&k->printer, last->args[0]))
                              : k_body(k, last->args[0], named);
}

/* A history of all steps: those of the call go to their places. A thread has a piece of a row, which lies
 * side by side with that of the next thread. */
static void print_all_steps(Kernel *k, const Tensor *x, const Node *last, const char *to)
{
    const int wide = 16 / (int)dtype_bytes(x->dtype);
    const char *real = x->dtype == DT_I32 ? "int32_t" : k->real;
    buf_line(k->out, "const bool whole = elements %% %d == 0;", wide);
    buf_line(k->out, "const int64_t width = whole ? %d : 1, pieces = elements / width;", wide);
    copy_places(k, x, to);
    k_open(k, "for (int64_t n = first; n < dim_B * dim_T * pieces; n += stride)");
    buf_line(k->out, "const int64_t row = n / pieces, b = row / dim_T, place = t0 + row - b * dim_T;");
    buf_line(k->out, "const int64_t begin = (n - row * pieces) * width;");
    buf_line(k->out, "%s v[%d] = {};", real, wide);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int u = 0; u < %d; u++)", wide);
    buf_line(k->out, "if (u >= width)");
    buf_line(k->out, "    break;");
    buf_line(k->out, "[[maybe_unused]] const int64_t e = begin + u;");
    k->b = "b";
    k_split_element(k, last->axes + 1, last->naxes - 1, "e", "i");
    Named named = { 0 };
    buf_line(k->out, "v[u] = %s;", history_value(k, x, last, &named));
    k_forget(k, &named);
    k_close(k);
    buf_line(k->out, "if (whole)");
    buf_line(k->out, "    cell_store_vec<%d>(%s + (b * places + place) * elements + begin, v);", wide, to);
    buf_line(k->out, "else");
    buf_line(k->out, "    cell_store(%s + (b * places + place) * elements + begin, v[0]);", to);
    k_close(k);
}

/* The last steps of the call and, where these are fewer, what the call began with. A thread has all places of its
 * elements and goes from the last to the first, so that one buffer may be both. */
static void print_last_steps(Kernel *k, const Tensor *x, const Node *last, const char *to)
{
    k_open(k, "for (int64_t n = first; n < dim_B * elements; n += stride)");
    buf_line(k->out, "[[maybe_unused]] const int64_t b = n / elements, e = n - b * elements;");
    k->b = "b";
    k_split_element(k, last->axes + 1, last->naxes - 1, "e", "i");
    k_open(k, "for (int64_t place = places - 1; place >= 0; place--)");
    Named named = { 0 };
    const char *value = history_value(k, x, last, &named);
    buf_line(k->out, "cell_store(%s + (b * places + place) * elements + e, %s);", to, value);
    k_forget(k, &named);
    k_close(k);
    k_close(k);
}

static void print_last(Kernel *k)
{
    Module *m = k->p->m;
    const Tensor *x = &m->tensors.data[k->history];
    const Node last = *k_node(k, m->roots.data[k->history].last);
    const char *to = k_written(k, REF_FINAL, k->history, x->dtype), *elements = k_product(k, x->axes + 1, x->rank - 1);
    buf_line(k->out, "if (!%s)", to);
    buf_line(k->out, "    return;");
    buf_line(k->out, "const int64_t elements = %s, places = %s;", elements, poly_text(&k->printer, x->axes[0]));
    buf_line(k->out, "const int64_t first = cell_block_index(0) * 256 + cell_thread();");
    buf_line(k->out, "const int64_t stride = cell_block_count(0) * 256;");
    if (x->grows)
        print_all_steps(k, x, &last, to);
    else
        print_last_steps(k, x, &last, to);
}

void emit_history_kernel(Plan *p, HistoryKernel *h, Buf *out)
{
    Kernel k = kernel_new(p, &p->program[FORWARD], NULL, &h->refs, out);
    k.threads = 256;
    k.history = h->history;
    k_print(&k, h->name, print_last);
    kernel_release(&k);
}
