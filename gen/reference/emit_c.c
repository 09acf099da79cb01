/* emit_c.c: the reference: one self-contained C file from the differentiated, unsimplified module. In: a
 * module. Out: forward, backward and step as plain loop nests, each behind the line of the spec it comes
 * from. Guaranteed: nothing is hoisted out of a step; forward stores every step's state when it is given a
 * reserve; backward walks back over those, recomputes the step's values and adds gradients in the order of b,
 * then of t downwards; work for gradients that nobody wants is not done.
 *
 * Entry points of the generated file:
 *
 *     size_t NAME_ref_reserve_bytes(const int64_t *sizes);
 *     int NAME_ref_forward (const int64_t *sizes, void *const *args, void *reserve, int flags);
 *     int NAME_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
 *     int NAME_ref_step    (const int64_t *sizes, void *const *args, void *reserve, int flags);
 *
 * sizes: B, T, run-time dims, t0. args: as emit.h orders them; all tensors are row-major in the type `real`,
 * which -DCELL_REAL=float or double chooses and NAME_ref_real_bytes tells the size of. They return 0, or the
 * status CELL_OUT_OF_MEMORY of runtime/cell.h. flags: 1 adds to the gradients. */
#include <stdlib.h>
#include <string.h>

#include "base/mutate.h"
#include "emit_step.h"
#include "ir/arguments.h"
#include "ir/ops.h"
#include "reference.h"

static const char *const helper_text =
    "/* Memory of one call. What could not be had is noted, and the call fails before anything is written. "
    "*/\n"
    "typedef struct Heap { void *block[%d]; int n, failed; } Heap;\n"
    "\n"
    "static inline real *take(Heap *heap, int64_t elements)\n"
    "{\n"
    "    void *block = NULL;\n"
    "    if (elements >= 0 && elements < (int64_t)(PTRDIFF_MAX / sizeof(real)))\n"
    "        block = calloc((size_t)elements + 1, sizeof(real));\n"
    "    if (!block)\n"
    "        heap->failed = 1;\n"
    "    heap->block[heap->n++] = block;\n"
    "    return block;\n"
    "}\n"
    "\n"
    "static int release(Heap *heap, int status)\n"
    "{\n"
    "    while (heap->n)\n"
    "        free(heap->block[--heap->n]);\n"
    "    return status;\n"
    "}\n"
    "\n"
    "/* a * b, or INT64_MAX where that overflows */\n"
    "static inline int64_t times(int64_t a, int64_t b) { return a > 0 && b > INT64_MAX / a ? INT64_MAX : a * "
    "b; }\n"
    "\n";

static const char *const store_text =
    "/* A state: of all sequences at all steps (0: the initial one) if kept for backward, else two that\n"
    " * alternate. */\n"
    "typedef struct Store { real *data; int64_t elements, T; int kept; } Store;\n"
    "\n"
    "static inline real *at_step(const Store *s, int64_t b, int64_t t)\n"
    "{\n"
    "    return s->data + (s->kept ? b * (s->T + 1) + t : t % 2) * s->elements;\n"
    "}\n"
    "\n";

static const char *const packed_store_text =
    "/* A state: of each sequence in front of its first step and behind each one if kept for backward, else "
    "two that\n"
    " * alternate. first: of the sequence, its first row and the number of sequences before it. */\n"
    "typedef struct Store { real *data; int64_t elements; int kept; } Store;\n"
    "\n"
    "static inline real *at_step(const Store *s, int64_t first, int64_t t)\n"
    "{\n"
    "    return s->data + (s->kept ? first + t : t % 2) * s->elements;\n"
    "}\n"
    "\n";

static const char *const leave_text =
    "/* What the next call begins with: the last of T steps, the latest first, and before them what this one began\n"
    " * with. `to` may be `from`. latest: the row of the last step, 0 or T - 1; n: the bytes of a place. */\n"
    "static inline void leave(char *to, const char *from, const char *steps, int64_t latest, int64_t places,\n"
    "                         int64_t T, int64_t n)\n"
    "{\n"
    "    for (int64_t j = places - 1; j >= 0; j--) {\n"
    "        const char *value = j < T ? steps + (latest ? latest - j : j) * n : from + (j - T) * n;\n"
    "        memmove(to + j * n, value, (size_t)n);\n"
    "    }\n"
    "}\n"
    "\n";

static const char *const append_text =
    "/* What the next call begins with, of all steps: those of this call at their places, else what was there. n: the\n"
    " * bytes of a place. */\n"
    "static inline void append(char *to, const char *from, const char *steps, bool turned, int64_t places, int64_t t0,\n"
    "                          int64_t T, int64_t n)\n"
    "{\n"
    "    memmove(to, from, (size_t)(places * n));\n"
    "    for (int64_t t = 0; t < T; t++)\n"
    "        memcpy(to + (t0 + t) * n, steps + (turned ? T - 1 - t : t) * n, (size_t)n);\n"
    "}\n"
    "\n";

static const char *const put_text =
    "/* Writes or adds a gradient where it is wanted. */\n"
    "static inline void put(real *to, const real *from, int64_t n, int add)\n"
    "{\n"
    "    for (int64_t i = 0; to && i < n; i++)\n"
    "        to[i] = add ? to[i] + from[i] : from[i];\n"
    "}\n"
    "\n";

static const char *const fill_text =
    "/* A copy, or zeros where there is nothing to copy. */\n"
    "static inline void fill(real *to, const real *from, int64_t n)\n"
    "{\n"
    "    for (int64_t i = 0; i < n; i++)\n"
    "        to[i] = from ? from[i] : 0;\n"
    "}\n"
    "\n";

/* ---- the head of the file */

static const char *role_name(const Module *m, CallArg a)
{
    const char *name = m->tensors.data[a.tensor].name;
    switch (a.role) {
    case ROLE_FINAL: return intern_f(m->c, "final %s", name);
    case ROLE_D_VALUE: return intern_f(m->c, "gradient of %s", name);
    case ROLE_D_OUT: return intern_f(m->c, "gradient into %s", name);
    case ROLE_D_FINAL: return intern_f(m->c, "gradient into final %s", name);
    default: return name;
    }
}

static void print_arguments(const Module *m, Buf *out, const char *what, const CallArgs *args)
{
    int column = 4 + (int)strlen(what);
    buf_f(out, " * %s:", what);
    for (int i = 0; i < args->len; i++) {
        const char *one = intern_f(m->c, " %d %s%s%s", i, role_name(m, args->data[i]),
                                   args->data[i].optional ? "?" : "", i + 1 < args->len ? "," : "");
        column += (int)strlen(one);
        if (column > 105) {
            buf_f(out, "\n *    ");
            column = 6 + (int)strlen(one);
        }
        buf_f(out, "%s", one);
    }
    buf_f(out, "\n");
}

static void print_head(const Module *m, Buf *out)
{
    CallArgs fwd = forward_arguments(m), bwd = backward_arguments(m);
    buf_f(out,
          "/* %s: the cell as plain C, written by cellc from %s.\n"
          " * The kernels are checked against it, and it is the backend for machines without a GPU.\n *\n",
          m->name, source_place(m, m->span, false));
    buf_f(out, " * Sizes: B sequences, T steps");
    for (int i = 0; i < m->dims.len; i++)
        buf_f(out, ", %s", dim_words(m, i));
    buf_f(out, ", t0 (number of the first step).");
    for (int i = 0; i < m->bound.len; i++)
        buf_f(out, " %s is %s.", m->bound.data[i].name, m->bound.data[i].value);
    for (int i = 0; i < m->options.len; i++)
        buf_f(out, " Option %s is %s.", m->options.data[i].name, m->options.data[i].value);
    if (m->c->reverse)
        buf_f(out, " Time is walked from row T - 1 to row 0.");
    buf_f(out, "\n * Arguments, row-major, [B, T, axes] for inputs and outputs, [B, axes] for states (? may "
               "be NULL):\n");
    print_arguments(m, out, "forward", &fwd);
    if (m->has_grad)
        print_arguments(m, out, "backward", &bwd);
    buf_f(out, " * A call returns 0, or %d when memory ran out. */\n", 5);
}

static void print_includes(const CFile *f, Buf *out)
{
    buf_f(out, "#include <math.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include "
               "<stdlib.h>\n"
               "#include <string.h>\n#include <tgmath.h>\n\n");
    buf_f(out, "#undef I\n#ifndef CELL_REAL\n#define CELL_REAL %s\n#endif\ntypedef CELL_REAL real;\n\n",
          f->m->c->dtype == DT_F64 ? "double" : "float");
}

static void print_prototypes(const Module *m, Buf *out)
{
    static const char *const entry[] = { "forward", "backward", "step" };
    buf_f(out, "extern const int %s_ref_real_bytes;\n", m->name);
    buf_f(out, "size_t %s_ref_reserve_bytes(const int64_t *sizes);\n", m->name);
    for (int i = 0; i < 3; i++)
        if (i != 1 || m->has_grad)
            buf_f(out, "int %s_ref_%s(const int64_t *sizes, void *const *args, void *reserve, int flags);\n",
                  m->name, entry[i]);
    buf_f(out, "\nconst int %s_ref_real_bytes = sizeof(real);\n\n", m->name);
}

static void print_step_struct(const CFile *f, Buf *out)
{
    buf_f(out, "/* What one step of one sequence reads and writes. */\ntypedef struct Step {\n");
    out->indent = 1;
    for (int i = 0; i < f->g.members.len; i++) {
        const Member *mem = &f->g.members.data[i];
        const char *join = strchr(mem->type, '*') ? "" : " ";
        const char *text = intern_f(f->m->c, "%s%s%s;", mem->type, join, mem->name);
        if (*mem->comment)
            buf_line(out, "%-34s /* %s */", text, mem->comment);
        else
            buf_line(out, "%s", text);
    }
    out->indent = 0;
    buf_f(out, "} Step;\n\n");
}

static void print_helpers(const CFile *f, Buf *out)
{
    if (f->g.used_square)
        buf_f(out, "static inline real square(real x) { return x * x; }\n\n");
    if (f->g.used_floor_div)
        buf_f(
            out,
            "/* Division that rounds down; b > 0. */\nstatic inline int64_t floor_div(int64_t a, int64_t b) "
            "{ return a / b - (a %% b < 0); }\n\n");
    if (f->g.used_floor_mod)
        buf_f(out, "/* The remainder in [0, b) */\nstatic inline int64_t floor_mod(int64_t a, int64_t b) "
                   "{ return a %% b + (a %% b < 0 ? b : 0); }\n\n");
    ops_prelude(out, f->g.used_op);
    static const char *const whole[] = { [OP_ADD] = "sum", [OP_SUB] = "difference", [OP_MUL] = "product" };
    for (Op op = OP_ADD; op <= OP_MUL; op++)
        if (f->g.used_whole[op])
            buf_f(out, "/* What leaves the 64 bits goes round. */\nstatic inline int64_t whole_%s(int64_t a, int64_t b) "
                  "{ return (int64_t)((uint64_t)a %c (uint64_t)b); }\n\n", whole[op], "+-*"[op - OP_ADD]);
}

/* ---- entry points */

static const char *member(const CFile *f, int k)
{
    return f->g.members.data[k].name;
}

/* Text of a size in an entry point, where dims are members of s. */
static const char *size(const CFile *f, const Poly *p, int prec)
{
    const char *dims[MAX_DIMS];
    int got;
    for (int i = 0; i < f->m->dims.len; i++)
        dims[i] = intern_f(f->m->c, "s.%s", member(f, f->g.dim_member[i]));
    dims[ATOM_T] = "T";
    dims[ATOM_PAST] = "(t0 + T)";
    const char *s = c_poly(f->m, p, dims, &got);
    return got < prec ? intern_f(f->m->c, "(%s)", s) : s;
}

static const char *elements(const CFile *f, TensorId t, int prec)
{
    return size(f, step_elements(f, t), prec);
}

/* A product that saturates instead of overflowing, for amounts of memory. */
static const char *safe_elements(const CFile *f, const Poly *p)
{
    if (p->is_const)
        return size(f, p, 0);
    Buf b = { .arena = f->m->arena };
    if (p->nterms != 1)
        return size(f, p, 0);
    const PolyTerm *t = &p->terms[0];
    const char *text = intern_f(f->m->c, "%lld", (long long)t->coef);
    for (int k = 0; k < t->natoms; k++) {
        const char *dim = t->atoms[k] == ATOM_T ? "T" : t->atoms[k] == ATOM_PAST ? "(t0 + T)"
                          : t->atoms[k] < MAX_DIMS
                              ? intern_f(f->m->c, "s.%s", member(f, f->g.dim_member[t->atoms[k]]))
                              : NULL;
        if (!dim)
            return size(f, p, 0);
        text = k == 0 && t->coef == 1 ? dim : intern_f(f->m->c, "times(%s, %s)", text, dim);
    }
    buf_f(&b, "%s", text);
    return intern_n(f->m->c, b.data, b.len);
}

static bool has_states(const CFile *f)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->tensors.data[t].kind == T_STATE)
            return true;
    return false;
}

static bool has_history(const CFile *f)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->roots.data[t].dpast >= 0)
            return true;
    return false;
}

static void print_sizes(CFile *f, Buf *out)
{
    Module *m = f->m;
    if (m->c->packed)
        buf_line(out, "int64_t T = sizes[1];  /* of the longest sequence, and then of each */");
    buf_line(out, "const int64_t B = sizes[0], %st0 = sizes[%d];", m->c->packed ? "" : "T = sizes[1], ",
             2 + m->dims.len);
    buf_line(out, "Heap heap = { .n = 0 };");
    buf_f(out, "    Step s = { .%s = t0", member(f, f->g.time_member));
    for (int i = 0; i < m->dims.len; i++)
        buf_f(out, ", .%s = sizes[%d]", member(f, f->g.dim_member[i]), 2 + i);
    if (f->g.dim_member[ATOM_T] >= 0)
        buf_f(out, ", .%s = T, .%s = t0", member(f, f->g.dim_member[ATOM_T]), member(f, f->g.start_member));
    buf_f(out, " };\n");
}

/* Where the rows of sequence b begin, and the states in front of its steps. */
static const char *first_row(const CFile *f)
{
    return f->m->c->packed ? "first" : "b * T";
}

static const char *first_state(const CFile *f)
{
    return f->m->c->packed ? "first + b" : "b";
}

/* Of packed sequences, which rows are this one's. */
static void print_sequence(CFile *f, Buf *out, const CallArgs *args)
{
    TensorId starts = module_starts(f->m);
    if (starts < 0)
        return;
    int k = call_arg_find(args, starts, ROLE_VALUE);
    buf_line(out, "const int64_t first = ((const int32_t *)args[%d])[b];", k);
    buf_line(out, "T = ((const int32_t *)args[%d])[b + 1] - first;", k);
    if (f->g.dim_member[ATOM_T] >= 0)
        buf_line(out, "s.%s = T;", member(f, f->g.dim_member[ATOM_T]));
}

/* Inputs of a sequence at all its steps, where other steps are read; and how many steps it has. */
static void print_input_steps(CFile *f, Buf *out, const CallArgs *args)
{
    for (int i = 0; i < args->len; i++) {
        TensorId t = args->data[i].tensor;
        const Tensor *x = &f->m->tensors.data[t];
        if (x->kind != T_INPUT || args->data[i].role != ROLE_VALUE)
            continue;
        const char *type = x->dtype == DT_I32 ? "const int32_t *" : "const real *";
        if (x->lengths)
            buf_line(out, "s.%s = (%s)args[%d] + b;", member(f, f->g.tensor_member[t]), type, i);
        if (f->g.tensor_steps[t] < 0)
            continue;
        buf_line(out, "s.%s = (%s)args[%d] + %s * %s;", member(f, f->g.tensor_steps[t]), type, i,
                 first_row(f), elements(f, t, C_UNARY));
    }
}

/* Where this step's values lie among those of all steps. */
static void print_array_steps(CFile *f, Buf *out, bool backward, bool earlier)
{
    for (NodeId id = 0; id < f->m->nodes.len; id++) {
        int all = f->g.node_steps[id];
        bool there = all >= 0 && f->g.members.data[all].taken && f->timed[backward][id];
        if (there && (!earlier || f->earlier[id]))
            buf_line(out, "s.%s = s.%s + t * %s;", member(f, f->g.slot[id].member), member(f, all),
                     size(f, array_size(f, id), C_UNARY));
    }
}

/* Memory for the members that the functions printed so far compute. -> how many. */
static int print_takes(CFile *f, Buf *out, bool forward)
{
    int n = 0;
    for (int i = 0; i < f->g.members.len; i++) {
        const Member *mem = &f->g.members.data[i];
        bool given = false;
        for (TensorId t = 0; forward && t < f->m->tensors.len; t++)
            given |= (f->out[t] == i && f->m->tensors.data[t].kind == T_OUTPUT) || f->init[t] == i;
        if (!mem->taken || given)
            continue;
        buf_line(out, "s.%s = take(&heap, %s);", mem->name, safe_elements(f, mem->elements));
        n++;
    }
    return n;
}

static void print_params(CFile *f, Buf *out, const CallArgs *args)
{
    for (int i = 0; i < args->len; i++)
        if (f->m->tensors.data[args->data[i].tensor].kind == T_PARAM && args->data[i].role == ROLE_VALUE)
            buf_line(out, "s.%s = args[%d];", member(f, f->g.tensor_member[args->data[i].tensor]), i);
}

static const char *store_name(const CFile *f, TensorId t)
{
    return intern_f(f->m->c, "%s_store", f->m->tensors.data[t].name);
}

/* A Store per state over the reserve, whose parts follow each other in the order of declaration. */
static int print_stores(CFile *f, Buf *out, bool forward)
{
    const char *part = "(real *)reserve", *steps = f->m->c->packed ? "" : ".T = T, ", *places = "B * (T + 1)";
    int n = 0;
    if (f->m->c->packed)
        places = intern_f(f->m->c, "(%s + B)", size(f, module_rows(f->m), 0));
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        if (f->m->tensors.data[t].kind != T_STATE)
            continue;
        const char *e = elements(f, t, 0);
        if (forward) {
            buf_line(out, "Store %s = { .elements = %s, %s.kept = reserve != NULL };", store_name(f, t), e,
                     steps);
            buf_line(out, "%s.data = reserve ? %s : take(&heap, times(2, %s));", store_name(f, t), part,
                     safe_elements(f, step_elements(f, t)));
            n++;
        } else {
            buf_line(out, "const Store %s = { .data = %s, .elements = %s, %s.kept = 1 };", store_name(f, t),
                     part, e, steps);
        }
        part = intern_f(f->m->c, "%s.data + %s * %s.elements", store_name(f, t), places, store_name(f, t));
    }
    return n;
}

static void print_failure(Buf *out)
{
    buf_line(out, "if (heap.failed)");
    buf_line(out, "    return release(&heap, 5);");
    buf_line(out, "%s", "");
}

/* Where a tensor of the call has this step. */
static const char *row(const CFile *f)
{
    bool reverse = f->m->c->reverse && !mutate("straight-step");
    return intern_f(f->m->c, reverse ? "(%s + T - 1 - t)" : "(%s + t)", first_row(f));
}

/* Pointers of the inputs at (b, t). */
static void print_inputs(CFile *f, Buf *out, const CallArgs *args)
{
    for (int i = 0; i < args->len; i++) {
        TensorId t = args->data[i].tensor;
        const Tensor *x = &f->m->tensors.data[t];
        if (x->kind != T_INPUT || args->data[i].role != ROLE_VALUE || !tensor_per_step(x))
            continue;
        const char *type = x->dtype == DT_I32 ? "const int32_t *" : "const real *";
        buf_line(out, "s.%s = (%s)args[%d] + %s * %s;", member(f, f->g.tensor_member[t]), type, i, row(f),
                 elements(f, t, C_UNARY));
    }
    buf_line(out, "s.%s = t0 + t;", member(f, f->g.time_member));
}

static void print_start(CFile *f, Buf *out, const CallArgs *args)
{
    Module *m = f->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (m->tensors.data[t].kind != T_STATE)
            continue;
        int k = call_arg_find(args, t, ROLE_VALUE);
        buf_line(out, "const real *%s_given = args[%d];", m->tensors.data[t].name, k);
        buf_line(out, "fill(at_step(&%s, %s, 0), %s_given ? %s_given + b * %s : NULL, %s);", store_name(f, t),
                 first_state(f), m->tensors.data[t].name, m->tensors.data[t].name, elements(f, t, C_UNARY),
                 elements(f, t, 0));
        if (f->init[t] >= 0)
            buf_line(out, "s.%s = %s_given ? NULL : at_step(&%s, %s, 0);", member(f, f->init[t]),
                     m->tensors.data[t].name, store_name(f, t), first_state(f));
    }
    if (f->has_init)
        buf_line(out, "initial_state(&s);");
}

static const char *c_type(const CFile *f, TensorId t)
{
    return f->m->tensors.data[t].dtype == DT_I32 ? "int32_t" : "real";
}

/* Zeros for histories that are not given, and for gradients into what a call leaves. -> how many. */
static int print_history_memory(CFile *f, Buf *out, bool backward)
{
    int n = 0;
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        TensorKind kind = f->m->tensors.data[t].kind;
        if (kind != T_HISTORY && !(backward && kind == T_DHISTORY))
            continue;
        bool whole = f->m->tensors.data[t].dtype == DT_I32;
        buf_line(out, "const %s *const %s_zeros = %stake(&heap, %s);", c_type(f, t), member(f, f->g.tensor_member[t]),
                 whole ? "(const int32_t *)" : "", safe_elements(f, step_elements(f, t)));
        n++;
    }
    return n;
}

/* A sequence's history, and the gradient into the one it leaves. */
static void print_histories(CFile *f, Buf *out, const CallArgs *args, bool backward)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        TensorKind kind = f->m->tensors.data[t].kind;
        if (kind != T_HISTORY && !(backward && kind == T_DHISTORY))
            continue;
        TensorId of = kind == T_HISTORY ? t : f->m->tensors.data[t].of;
        int k = call_arg_find(args, of, kind == T_HISTORY ? ROLE_VALUE : ROLE_D_FINAL);
        const char *name = member(f, f->g.tensor_member[t]);
        buf_line(out, "s.%s = args[%d] ? (const %s *)args[%d] + b * %s : %s_zeros;", name, k, c_type(f, t), k,
                 elements(f, t, C_UNARY), name);
    }
}

static bool has_lengths(const Module *m)
{
    bool has = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        has |= m->tensors.data[t].lengths;
    return has;
}

/* What a history has of steps that are not of the sequence is zero: of all steps those behind its end, and reversed
 * those before its beginning. */
static void print_forget(CFile *f, Buf *out, TensorId history, const char *place)
{
    const Tensor *x = &f->m->tensors.data[history];
    buf_line(out, "for (int64_t j = %s; to && j < %s; j++)", x->grows ? "t0 + own" : "own",
             x->grows ? "t0 + T" : intern_f(f->m->c, "(own < T ? %s : 0)", size(f, x->axes[0], C_UNARY)));
    buf_line(out, "    memset(to + j * %s, 0, (size_t)(%s));", place, place);
}

static void print_own_steps(CFile *f, Buf *out, const CallArgs *args)
{
    bool any = false;
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        any |= f->m->tensors.data[t].kind == T_HISTORY;
    for (TensorId t = 0; any && t < f->m->tensors.len; t++)
        if (f->m->tensors.data[t].lengths) {
            int k = call_arg_find(args, t, ROLE_VALUE);
            buf_line(out, "const int64_t length = ((const int32_t *)args[%d])[b];", k);
            buf_line(out, "const int64_t own = length < 0 ? 0 : length < T ? length : T;");
        }
}

/* What the call leaves of a history, in a block of its own. */
static void print_left(CFile *f, Buf *out, const CallArgs *args, TensorId t, bool lengths)
{
    Module *m = f->m;
    const Tensor *x = &m->tensors.data[t];
    int k = call_arg_find(args, t, ROLE_FINAL), given = call_arg_find(args, x->of, ROLE_VALUE);
    NodeId source = ir_history_source(m, t);
    const char *end = lengths && !m->c->reverse ? "own" : "T", *type = c_type(f, t);
    const char *n = size(f, poly_product(m, x->axes + 1, x->rank - 1), C_UNARY);
    const char *place = intern_f(m->c, "%s * (int64_t)sizeof(%s)", n, type);
    const char *steps =
        source >= 0 ? intern_f(m->c, "s.%s", member(f, f->g.node_steps[source]))
                    : intern_f(m->c, "((const %s *)args[%d] + %s * %s)", type, given, first_row(f), n);
    buf_line(out, "char *to = args[%d] ? (char *)((%s *)args[%d] + b * %s) : NULL;", k, type, k, elements(f, t, C_UNARY));
    buf_line(out, "if (to)");
    if (x->grows)
        buf_line(out, "    append(to, (const char *)s.%s, (const char *)%s, %s, %s, t0, T, %s);",
                 member(f, f->g.tensor_member[t]), steps, source < 0 && m->c->reverse ? "true" : "false",
                 size(f, x->axes[0], 0), place);
    else
        buf_line(out, "    leave(to, (const char *)s.%s, (const char *)%s, %s, %s, %s, %s);",
                 member(f, f->g.tensor_member[t]), steps,
                 source < 0 && m->c->reverse ? "0" : intern_f(m->c, "%s - 1", end), size(f, x->axes[0], 0), end, place);
    if (lengths && (x->grows || m->c->reverse))
        print_forget(f, out, t, place);
}

static void print_last(CFile *f, Buf *out, const CallArgs *args)
{
    bool lengths = has_lengths(f->m);
    print_own_steps(f, out, args);
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        if (f->m->tensors.data[t].kind != T_HISTORY)
            continue;
        buf_line(out, "{");
        out->indent++;
        print_left(f, out, args, t, lengths);
        out->indent--;
        buf_line(out, "}");
    }
}

static void print_forward_step(CFile *f, Buf *out, const CallArgs *args)
{
    Module *m = f->m;
    print_inputs(f, out, args);
    print_array_steps(f, out, false, false);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (m->tensors.data[t].kind == T_STATE) {
            buf_line(out, "s.%s = at_step(&%s, %s, t);", member(f, f->g.tensor_member[t]), store_name(f, t),
                     first_state(f));
            buf_line(out, "s.%s = at_step(&%s, %s, t + 1);", member(f, f->next[t]), store_name(f, t),
                     first_state(f));
        } else if (m->tensors.data[t].kind == T_OUTPUT) {
            buf_line(out, "s.%s = (real *)args[%d] + %s * %s;", member(f, f->out[t]),
                     call_arg_find(args, t, ROLE_VALUE), row(f), elements(f, t, C_UNARY));
        }
    }
    buf_line(out, "step_forward(&s);");
}

static void print_finals(CFile *f, Buf *out, const CallArgs *args)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        if (f->m->tensors.data[t].kind != T_STATE)
            continue;
        int k = call_arg_find(args, t, ROLE_FINAL);
        buf_line(out, "if (args[%d])", k);
        buf_line(out, "    fill((real *)args[%d] + b * %s, at_step(&%s, %s, T), %s);", k,
                 elements(f, t, C_UNARY), store_name(f, t), first_state(f), elements(f, t, 0));
    }
}

static void open_entry(CFile *f, Buf *out, const char *entry)
{
    buf_f(out, "int %s_ref_%s(const int64_t *sizes, void *const *args, void *reserve, int flags)\n{\n",
          f->m->name, entry);
    out->indent = 1;
}

static int print_forward(CFile *f, Buf *out)
{
    CallArgs args = forward_arguments(f->m);
    open_entry(f, out, "forward");
    print_sizes(f, out);
    buf_line(out, "(void)flags;");
    if (!has_states(f))
        buf_line(out, "(void)reserve;");
    int n = print_takes(f, out, true);
    n += print_stores(f, out, true);
    n += print_history_memory(f, out, false);
    print_failure(out);
    print_params(f, out, &args);
    buf_line(out, "for (int64_t b = 0; b < B; b++) {");
    out->indent++;
    print_sequence(f, out, &args);
    print_start(f, out, &args);
    print_input_steps(f, out, &args);
    print_histories(f, out, &args, false);
    buf_line(out, "for (int64_t t = 0; t < T; t++) {");
    out->indent++;
    print_forward_step(f, out, &args);
    out->indent--;
    buf_line(out, "}");
    print_finals(f, out, &args);
    print_last(f, out, &args);
    out->indent--;
    buf_line(out, "}");
    buf_line(out, "return release(&heap, 0);");
    out->indent = 0;
    buf_f(out, "}\n\n");
    return n;
}

static void print_step(CFile *f, Buf *out)
{
    int n = 3 + f->m->dims.len;
    open_entry(f, out, "step");
    buf_line(out, "int64_t one[%d];", n);
    buf_line(out, "memcpy(one, sizes, sizeof one);");
    buf_line(out, "one[1] = 1;");
    buf_line(out, "return %s_ref_forward(one, args, reserve, flags);", f->m->name);
    out->indent = 0;
    buf_f(out, "}\n");
}

static void print_reserve(CFile *f, Buf *out)
{
    Module *m = f->m;
    buf_f(out, "/* Bytes of reserve: all states at all steps; SIZE_MAX if that is too much to count. */\n");
    buf_f(out, "size_t %s_ref_reserve_bytes(const int64_t *sizes)\n{\n", m->name);
    out->indent = 1;
    if (!has_states(f)) {
        buf_line(out, "(void)sizes;");
        buf_line(out, "return 0;");
    } else {
        bool dims = false;
        const char *total =
            intern_f(m->c, "sizes[%d]", m->dims.len + 1); /* behind B, T and the spec's dims */
        Buf sum = { .arena = m->arena };
        for (TensorId t = 0; t < m->tensors.len; t++)
            if (m->tensors.data[t].kind == T_STATE) {
                dims |= !step_elements(f, t)->is_const;
                buf_f(&sum, "%s(double)%s", sum.len ? " + " : "", safe_elements(f, step_elements(f, t)));
            }
        if (dims) {
            buf_f(out, "    const Step s = {");
            for (int i = 0; i < m->dims.len; i++)
                buf_f(out, "%s .%s = sizes[%d]", i ? "," : "", member(f, f->g.dim_member[i]), 2 + i);
            buf_f(out, " };\n");
        }
        if (m->c->packed)
            buf_line(out, "const double steps = (double)%s + (double)sizes[0];", total);
        else
            buf_line(
                out,
                "const int64_t steps = times(sizes[0], sizes[1] < INT64_MAX ? sizes[1] + 1 : INT64_MAX);");
        buf_line(out, "const double elements = %.*s;", (int)sum.len, sum.data);
        buf_line(out, "if (elements * (double)steps * sizeof(real) > 9e15)");
        buf_line(out, "    return SIZE_MAX;");
        buf_line(out, "return (size_t)elements * (size_t)steps * sizeof(real);");
    }
    out->indent = 0;
    buf_f(out, "}\n\n");
}

/* ---- backward */

static bool is_kind(const CFile *f, TensorId t, TensorKind kind)
{
    return f->m->tensors.data[t].kind == kind;
}

static TensorId cotangent(const CFile *f, TensorId of, TensorKind kind)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->tensors.data[t].kind == kind && f->m->tensors.data[t].of == of)
            return t;
    return -1;
}

/* Adjoints of states alternate between two places; zeros stand for cotangents that were not given. */
static int print_adjoint_memory(CFile *f, Buf *out)
{
    int n = 0;
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        const char *name = f->m->tensors.data[t].name, *e = safe_elements(f, step_elements(f, t));
        if (is_kind(f, t, T_STATE)) {
            buf_line(out, "real *const %s_adjoint[2] = { take(&heap, %s), take(&heap, %s) };", name, e, e);
            n += 2;
            if (cotangent(f, t, T_DINIT) >= 0) {
                buf_line(out, "const real *const %s_zeros = take(&heap, %s);", name, e);
                n++;
            }
        } else if (is_kind(f, t, T_OUTPUT)) {
            if (f->g.tensor_steps[cotangent(f, t, T_DOUT)] >= 0)
                e = intern_f(f->m->c, "times(T, %s)", e);
            buf_line(out, "const real *const %s_zeros = take(&heap, %s);", name, e);
            n++;
        }
    }
    return n;
}

static void print_wanted(CFile *f, Buf *out, const CallArgs *args)
{
    for (int i = 0; i < f->sinks.len; i++)
        buf_line(out, "s.%s = args[%d];", member(f, f->grad[f->sinks.data[i]]),
                 call_arg_find(args, f->sinks.data[i], ROLE_D_VALUE));
    for (int i = 0; i < f->sinks.len; i++) {
        TensorId t = f->sinks.data[i];
        if (!is_kind(f, t, T_PARAM))
            continue;
        buf_line(out, "if (s.%s && !add)", member(f, f->grad[t]));
        buf_line(out, "    fill(s.%s, NULL, %s);", member(f, f->grad[t]), elements(f, t, 0));
    }
}

static void print_backward_start(CFile *f, Buf *out, const CallArgs *args)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        if (!is_kind(f, t, T_STATE))
            continue;
        int k = call_arg_find(args, t, ROLE_D_FINAL);
        const char *name = f->m->tensors.data[t].name;
        buf_line(out, "fill(%s_adjoint[T %% 2], args[%d] ? (const real *)args[%d] + %s * %s : NULL, %s);",
                 name, k, k, mutate("first-sequence") ? "0" : "b", elements(f, t, C_UNARY),
                 elements(f, t, 0));
    }
}

/* What other steps read of a sequence: inputs, cotangents, and what steps can be computed of before. */
static void print_backward_steps(CFile *f, Buf *out, const CallArgs *args)
{
    print_input_steps(f, out, args);
    print_histories(f, out, args, true);
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        int k = call_arg_find(args, t, ROLE_D_OUT);
        TensorId d = is_kind(f, t, T_OUTPUT) ? cotangent(f, t, T_DOUT) : -1;
        if (d < 0 || f->g.tensor_steps[d] < 0)
            continue;
        buf_line(out, "s.%s = args[%d] ? (const real *)args[%d] + %s * %s : %s_zeros;",
                 member(f, f->g.tensor_steps[d]), k, k, first_row(f), elements(f, t, C_UNARY),
                 f->m->tensors.data[t].name);
    }
    if (!f->has_earlier)
        return;
    buf_line(out, "for (int64_t t = 0; t < T; t++) {");
    out->indent++;
    print_inputs(f, out, args);
    print_array_steps(f, out, true, true);
    buf_line(out, "step_earlier(&s);");
    out->indent--;
    buf_line(out, "}");
}

static void print_backward_step(CFile *f, Buf *out, const CallArgs *args)
{
    Module *m = f->m;
    print_inputs(f, out, args);
    print_array_steps(f, out, true, false);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const char *name = m->tensors.data[t].name;
        if (is_kind(f, t, T_STATE)) {
            buf_line(out, "s.%s = at_step(&%s, %s, t%s);", member(f, f->g.tensor_member[t]), store_name(f, t),
                     first_state(f), mutate("late-state") ? " + 1" : "");
            buf_line(out, "s.%s = at_step(&%s, %s, t + 1);", member(f, f->next[t]), store_name(f, t),
                     first_state(f));
            buf_line(out, "s.%s = %s_adjoint[(t + 1) %% 2];",
                     member(f, f->g.tensor_member[cotangent(f, t, T_DNEXT)]), name);
            buf_line(out, "s.%s = %s_adjoint[t %% 2];", member(f, f->prev[t]), name);
        } else if (is_kind(f, t, T_OUTPUT)) {
            int k = call_arg_find(args, t, ROLE_D_OUT);
            buf_line(out, "s.%s = args[%d] ? (const real *)args[%d] + %s * %s : %s_zeros;",
                     member(f, f->g.tensor_member[cotangent(f, t, T_DOUT)]), k, k, row(f), elements(f, t, C_UNARY),
                     name);
        }
    }
    buf_line(out, "step_backward(&s);");
    for (int i = 0; i < f->sinks.len; i++) {
        TensorId t = f->sinks.data[i];
        if (!is_kind(f, t, T_INPUT))
            continue;
        buf_line(out, "if (s.%s)", member(f, f->grad[t]));
        buf_line(out, "    put(s.%s + %s * %s, s.%s, %s, add);", member(f, f->grad[t]), row(f),
                 elements(f, t, C_UNARY), member(f, f->out[t]), elements(f, t, 0));
    }
}

static void print_backward_end(CFile *f, Buf *out, const CallArgs *args)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        const char *name = f->m->tensors.data[t].name;
        if (!is_kind(f, t, T_STATE))
            continue;
        if (f->grad[t] >= 0) {
            buf_line(out, "if (s.%s)", member(f, f->grad[t]));
            buf_line(out, "    put(s.%s + b * %s, %s_adjoint[0], %s, add);", member(f, f->grad[t]),
                     elements(f, t, C_UNARY), name, elements(f, t, 0));
        }
        TensorId init = cotangent(f, t, T_DINIT);
        if (init >= 0)
            buf_line(out, "s.%s = args[%d] ? %s_zeros : %s_adjoint[0];", member(f, f->g.tensor_member[init]),
                     call_arg_find(args, t, ROLE_VALUE), name, name);
    }
    if (f->has_init)
        buf_line(out, "initial_backward(&s);");
    if (has_history(f))
        buf_line(out, "before_backward(&s);");
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        if (f->m->roots.data[t].dpast < 0)
            continue;
        buf_line(out, "if (s.%s)", member(f, f->grad[t]));
        buf_line(out, "    put(s.%s + b * %s, s.%s, %s, add);", member(f, f->grad[t]), elements(f, t, C_UNARY),
                 member(f, f->out[t]), elements(f, t, 0));
    }
}

static int print_backward(CFile *f, Buf *out)
{
    CallArgs args = backward_arguments(f->m);
    open_entry(f, out, "backward");
    print_sizes(f, out);
    buf_line(out, "const int add = flags & 1;");
    if (!has_states(f))
        buf_line(out, "(void)reserve;");
    int n = print_takes(f, out, false);
    n += print_adjoint_memory(f, out);
    n += print_stores(f, out, false);
    n += print_history_memory(f, out, true);
    print_failure(out);
    print_params(f, out, &args);
    print_wanted(f, out, &args);
    buf_line(out, "for (int64_t b = 0; b < B; b++) {");
    out->indent++;
    print_sequence(f, out, &args);
    print_backward_start(f, out, &args);
    print_backward_steps(f, out, &args);
    buf_line(out, "for (int64_t t = T - 1; t >= 0; t--) {");
    out->indent++;
    print_backward_step(f, out, &args);
    out->indent--;
    buf_line(out, "}");
    print_backward_end(f, out, &args);
    out->indent--;
    buf_line(out, "}");
    buf_line(out, "return release(&heap, 0);");
    out->indent = 0;
    buf_f(out, "}\n\n");
    return n;
}

static void forget_memory(CFile *f)
{
    for (int i = 0; i < f->g.members.len; i++)
        f->g.members.data[i].taken = false;
}

void emit_c(const Module *module, Buf *out)
{
    Module *m = (Module *)(uintptr_t)module;      /* sizes are interned in it; nothing else changes */
    CFile f;
    step_begin(&f, m);
    Buf *body = &f.body, file = { .arena = m->arena };
    step_function(&f, FUN_FORWARD);
    if (f.has_init)
        step_function(&f, FUN_INITIAL);
    int blocks = print_forward(&f, body);
    forget_memory(&f);
    if (m->has_grad) {
        if (f.has_earlier)
            step_function(&f, FUN_EARLIER);
        step_function(&f, FUN_BACKWARD);
        if (f.has_init)
            step_function(&f, FUN_INITIAL_BACKWARD);
        if (has_history(&f))
            step_function(&f, FUN_PAST);
        /* It computes initial values again: they get memory here, where forward uses the state's own. */
        for (TensorId t = 0; t < m->tensors.len; t++)
            if (f.init[t] >= 0) {
                Member *mem = &f.g.members.data[f.init[t]];
                mem->taken = true;
                mem->elements = poly_product(m, m->tensors.data[t].axes, m->tensors.data[t].rank);
            }
        int n = print_backward(&f, body);
        blocks = n > blocks ? n : blocks;
    }
    print_reserve(&f, body);
    print_step(&f, body);
    print_head(m, &file);
    print_includes(&f, &file);
    print_prototypes(m, &file);
    print_step_struct(&f, &file);
    buf_f(&file, helper_text, blocks ? blocks : 1);
    if (has_states(&f))
        buf_f(&file, "%s", m->c->packed ? packed_store_text : store_text);
    bool leaves = false, appends = false;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        leaves |= m->roots.data[t].last >= 0 && !m->tensors.data[t].grows;
        appends |= m->roots.data[t].last >= 0 && m->tensors.data[t].grows;
    }
    buf_f(&file, "%s%s", leaves ? leave_text : "", appends ? append_text : "");
    buf_f(&file, "%s%s", fill_text, m->has_grad ? put_text : "");
    print_helpers(&f, &file);
    buf_f(&file, "%.*s", (int)body->len, body->data);
    buf_wrapped(out, &file);
}
