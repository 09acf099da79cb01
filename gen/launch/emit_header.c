/* emit_header.c: the C interface of a generated cell. In: a module. Out: NAME.h: the sizes, the arguments of
 * forward, backward and step as structs whose members carry the tensors' names, and the prototypes.
 * Guaranteed: members stand in the order of declaration; a member that may be NULL says what that means. */
#include <string.h>

#include "emit_api.h"
#include "interface.h"

/* ---- member names, shared with emit_host.c */

static const char *role_suffix(ArgRole role)
{
    return role == ROLE_FINAL || role == ROLE_D_FINAL ? "_final" : "";
}

static ApiMembers api_members(const Module *m, CallArgs args, const char *const *fixed)
{
    ApiMembers members = { .args = args };
    Names names;
    names_init(&names, m->c);
    members.name = arena_alloc(m->arena, sizeof *members.name * (size_t)(args.len + 1));
    for (int i = 0; fixed[i]; i++)
        names_take(&names, fixed[i]);
    for (int i = 0; i < args.len; i++) {
        ArgRole role = args.data[i].role;
        bool d = role == ROLE_D_VALUE || role == ROLE_D_OUT || role == ROLE_D_FINAL;
        members.name[i] =
            names_fresh(&names, intern_f(m->c, "%s%s%s", d ? "d_" : "",
                                         m->tensors.data[args.data[i].tensor].name, role_suffix(role)));
    }
    return members;
}

static const char *const fixed_members[] = { "workspace",     "workspace_bytes", "reserve",
                                             "reserve_bytes", "flags",           NULL };

ApiMembers api_forward(const Module *m)
{
    return api_members(m, forward_arguments(m), fixed_members);
}

ApiMembers api_backward(const Module *m)
{
    return api_members(m, backward_arguments(m), fixed_members);
}

/* ---- types and comments */

static const char *element_type(Dtype t)
{
    switch (t) {
    case DT_F64: return "double";
    case DT_BF16: case DT_F16: return "uint16_t";
    case DT_I32: return "int32_t";
    case DT_E4M3:
    case DT_E5M2: return "uint8_t";
    default: return "float";
    }
}

const char *api_dtype(Dtype t)
{
    static const char *const names[] = {
        [DT_F32] = "f32", [DT_BF16] = "bf16", [DT_F16] = "f16",  [DT_F64] = "f64",
        [DT_I32] = "i32", [DT_E4M3] = "e4m3", [DT_E5M2] = "e5m2"
    };
    return names[t];
}

const char *api_type(const Tensor *t)
{
    return !t->complex ? api_dtype(t->dtype) : t->dtype == DT_F64 ? "c128" : "c64";
}

bool api_written(const Module *m, CallArg a)
{
    return (a.role == ROLE_VALUE && m->tensors.data[a.tensor].kind == T_OUTPUT) || a.role == ROLE_FINAL ||
           a.role == ROLE_D_VALUE;
}

const char *api_shape(const Module *m, TensorId t)
{
    const Tensor *x = &m->tensors.data[t];
    Buf b = { .arena = m->arena };
    api_sizes(m);
    bool batched = x->kind != T_PARAM, timed = tensor_per_step(x);
    const char *rows = !batched                ? ""
                       : x->starts             ? "B + 1"
                       : timed && m->c->packed ? "total"
                       : timed                 ? "B, T"
                                               : "B";
    buf_f(&b, "[%s", rows);
    for (int i = 0; i < x->rank - x->complex; i++) {
        buf_f(&b, "%s", batched || i ? ", " : "");
        poly_print_api(m, x->axes[i], &b);
    }
    buf_f(&b, "]");
    return intern_n(m->c, b.data, b.len);
}

static const char *meaning(const Module *m, CallArg a)
{
    const Tensor *x = &m->tensors.data[a.tensor];
    const char *init = m->roots.data[a.tensor].init >= 0 ? "the spec's value" : "zero";
    bool past = x->kind == T_HISTORY;
    switch (a.role) {
    case ROLE_FINAL:
        if (past)
            return "what the next call begins with; NULL: not wanted";
        return "state after the last step; NULL: not wanted";
    case ROLE_D_OUT: return "gradient into the output; NULL: zero";
    case ROLE_D_FINAL:
        if (past)
            return "gradient into what the next call begins with; NULL: zero";
        return "gradient into the final state; NULL: zero";
    case ROLE_D_VALUE:
        return wants_gradient(m, a.tensor) ? "gradient; NULL: not wanted, and not computed"
                                           : "has no gradient; ignored";
    default: break;
    }
    const char *where = x->range ? intern_f(m->c, ", in %s", range_text(m->c, x->range)) : x->reach ? ", as the cell leaves it" : "";
    switch (x->kind) {
    case T_INPUT:
        if (x->starts)
            return "first rows of the sequences, and total: 0, never less than the one before, total";
        return x->lengths ? "how many steps each sequence has, 0 to T (a kernel takes others as the nearest)"
                          : intern_f(m->c, "input%s", where);
    case T_PARAM: return intern_f(m->c, "param%s", where);
    case T_STATE: return intern_f(m->c, "state before the first step%s; NULL: %s", where, init);
    case T_HISTORY:
        return x->grows ? "earlier steps, step s at place s; NULL: before step 0"
                        : "steps before the first, the latest first; NULL: zero, as before step 0";
    default: return "output";
    }
}

static void print_members(const Module *m, Buf *out, const ApiMembers *members)
{
    for (int i = 0; i < members->args.len; i++) {
        CallArg a = members->args.data[i];
        const Tensor *x = &m->tensors.data[a.tensor];
        const char *decl = intern_f(m->c, "%s%s *%s;", api_written(m, a) ? "" : "const ",
                                    element_type(argument_type(m, &a)), members->name[i]);
        bool said = x->complex || dtype_bytes(argument_type(m, &a)) < 4;
        buf_f(out, "    %-30s /* %s%s %s */\n", decl, api_shape(m, a.tensor),
              said ? intern_f(m->c, " %s,", x->complex ? api_type(x) : api_dtype(argument_type(m, &a))) : "",
              meaning(m, a));
    }
}

/* ---- the header */

/* The names of two cells may differ in case only. No name of a spec begins like this (taken.c). */
static const char *guard_name(const Module *m)
{
    return intern_f(m->c, "CELLC_%s_H", m->name);
}

/* The dim that says how many steps histories have room for that grow; -1: there are none. */
static int room_of_histories(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int i = 0; m->tensors.data[t].grows && i < m->dims.len; i++)
            if (m->tensors.data[t].axes[0] == poly_dim((Module *)(uintptr_t)m, i))
                return i;
    return -1;
}

static void print_sizes(const Module *m, Buf *out)
{
    const char **names = api_sizes(m);
    buf_f(out, "/* The sizes of a call. B and T may be 0. */\ntypedef struct %s_sizes {\n", m->name);
    buf_f(out, "    int64_t B; /* sequences */\n    int64_t T; /* %s; a step call takes it as 1 */\n",
          m->c->packed ? "steps of the longest, or more" : "steps");
    for (int i = 0; i < m->dims.len; i++)
        if (m->c->packed && strcmp(m->dims.data[i], "total") == 0)
            buf_f(out, "    int64_t %s; /* rows of all sequences together */\n", names[2 + i]);
        else if (i == room_of_histories(m))
            buf_f(out, "    int64_t %s; /* steps that histories have room for: t0 + T or more */\n", names[2 + i]);
        else
            buf_f(out, "    int64_t %s; /* dim %s of the spec */\n", names[2 + i], m->dims.data[i]);
    buf_f(out, "    int64_t t0; /* number of the first step, 0 for a new sequence */\n} %s_sizes;\n\n",
          m->name);
}

static const char *const workspace_text =
    "    void *workspace; /* NULL with 0 bytes: the context's pool is used */\n"
    "    size_t workspace_bytes;\n";

static void print_forward_args(const Module *m, Buf *out)
{
    ApiMembers fwd = api_forward(m);
    buf_f(out, "/* Tensors are row-major, in the memory of the context's backend. Initial and final state "
               "may be the same. */\n");
    buf_f(out, "typedef struct %s_forward_args {\n", m->name);
    print_members(m, out, &fwd);
    buf_f(out,
          "%s    void *reserve; /* what backward needs is saved here; NULL: inference */\n    size_t "
          "reserve_bytes;\n"
          "    int flags; /* 0 */\n} %s_forward_args;\n\n",
          workspace_text, m->name);
    buf_f(out, "typedef struct %s_step_args {\n", m->name);
    print_members(m, out, &fwd);
    buf_f(out, "%s} %s_step_args;\n\n", workspace_text, m->name);
}

static void print_backward_args(const Module *m, Buf *out)
{
    ApiMembers bwd = api_backward(m);
    buf_f(out, "typedef struct %s_backward_args {\n", m->name);
    print_members(m, out, &bwd);
    buf_f(out,
          "%s    void *reserve; /* as forward left it */\n    size_t reserve_bytes;\n"
          "    int flags; /* CELL_ACCUMULATE: gradients are added to what their buffers hold */\n} "
          "%s_backward_args;\n\n",
          workspace_text, m->name);
}

static void explain_complex(const Module *m, Buf *out)
{
    bool any[2] = { false };
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].complex)
            any[m->tensors.data[t].dtype == DT_F64] = true;
    for (int wide = 0; wide < 2; wide++)
        if (any[wide])
            buf_f(out, "\n * An element of %s is two %ss side by side, the real and the imaginary part, as in %s _Complex.",
                  wide ? "c128" : "c64", wide ? "double" : "float", wide ? "double" : "float");
}

static void print_intro(const Module *m, Buf *out)
{
    buf_f(out, "/* %s: generated by cellc from %s.", m->name, source_place(m, m->span, false));
    for (int i = 0; i < m->bound.len; i++)
        buf_f(out, " %s = %s.", m->bound.data[i].name, m->bound.data[i].value);
    for (int i = 0; i < m->options.len; i++)
        buf_f(out, " %s = %s.", m->options.data[i].name, m->options.data[i].value);
    if (m->c->reverse)
        buf_f(out, " reverse = true:\n * time is walked from row T - 1 of inputs and outputs to row 0, and t counts "
                   "the steps walked.");
    if (m->c->lengths)
        buf_f(out, " lengths = true:\n * behind the length of a sequence outputs are zero and states stay.");
    if (m->c->packed)
        buf_f(out, " packed = true:\n * the rows of a sequence follow those of the one before, and "
                   "cu_seqlens says where.");
    buf_f(out,
          "\n * Tensors are stored as %s, states as %s. Link with the library and, if it does not hold it, "
          "libcell.",
          api_dtype(m->c->dtype), m->c->dtype == DT_F64 ? "f64" : "f32");
    explain_complex(m, out);
    buf_f(out, " */\n");
}

static void print_sessions(const Module *m, Buf *out)
{
    const char *n = m->name;
    buf_f(out,
          "/* Sessions (cell_sessions.h): a store of them, of whose sizes B, T and t0 do not count; a step "
          "of n of\n"
          " * them, and T steps of each. States in the arguments are ignored. */\n"
          "cell_status %s_sessions(cell_context *ctx, const %s_sizes *sizes, const cell_sessions_options "
          "*options,\n"
          "                        cell_sessions **store);\n"
          "cell_status %s_sessions_step(cell_sessions *store, const int32_t *sessions, int64_t n, const "
          "%s_step_args "
          "*args);\n"
          "cell_status %s_sessions_prefill(cell_sessions *store, const int32_t *sessions, int64_t n, int64_t "
          "T,\n"
          "                                const %s_step_args *args);\n\n",
          n, n, n, n, n, n);
}

static void print_prototypes(const Module *m, Buf *out)
{
    const char *n = m->name;
    buf_f(out,
          "/* Bytes of workspace of any call, of a forward call without a reserve (inference), and of what "
          "forward\n"
          " * saves for backward, that suffice on any device; SIZE_MAX for wrong sizes. */\n"
          "size_t %s_workspace_bytes(const %s_sizes *sizes);\nsize_t %s_inference_bytes(const %s_sizes "
          "*sizes);\nsize_t %s_reserve_bytes(const %s_sizes *sizes);\n\n",
          n, n, n, n, n, n);
    buf_f(out,
          "/* The same on the context's device, which may need less; a pointer may be null. */\n"
          "cell_status %s_memory(cell_context *ctx, const %s_sizes *sizes, size_t *workspace, size_t *inference,\n"
          "                      size_t *reserve);\n\n", n, n);
    buf_f(out,
          "/* Asynchronous on the context's stream where the backend is. Everything is checked before "
          "anything is\n"
          " * written; cell_last_error tells what was wrong. A step is one step of every sequence. */\n");
    buf_f(out,
          "cell_status %s_forward(cell_context *ctx, const %s_sizes *sizes, const %s_forward_args *args);\n",
          n, n, n);
    if (m->has_grad)
        buf_f(out,
              "cell_status %s_backward(cell_context *ctx, const %s_sizes *sizes, const %s_backward_args "
              "*args);\n",
              n, n, n);
    buf_f(out, "cell_status %s_step(cell_context *ctx, const %s_sizes *sizes, const %s_step_args *args);\n\n",
          n, n, n);
    if (m->c->slots)
        print_sessions(m, out);
    buf_f(out, "/* The tables behind them, for bindings (cell_plan.h). */\nstruct cell_desc;\n"
               "const struct cell_desc *%s_instance(void);\n\n", n);
}

void emit_header(const Module *m, Buf *out)
{
    const char *guard = guard_name(m);
    Buf text = { .arena = m->arena };
    print_intro(m, &text);
    buf_f(&text,
          "#ifndef %s\n#define %s\n\n#include <stddef.h>\n#include <stdint.h>\n\n#include \"cell.h\"\n%s\n",
          guard, guard, m->c->slots ? "#include \"cell_sessions.h\"\n" : "");
    buf_f(&text, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    print_sizes(m, &text);
    print_forward_args(m, &text);
    if (m->has_grad)
        print_backward_args(m, &text);
    print_prototypes(m, &text);
    buf_f(&text, "#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    buf_wrapped(out, &text);
}
