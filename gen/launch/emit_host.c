/* emit_host.c: the functions of a cell's C interface. In: a module, and the names of the launch plans if
 * there are any. Out: NAME.c: the tables that describe the cell to the runtime (sizes, tensors, arguments,
 * checks), and entry points that fill an array of pointers and call the runtime. Guaranteed: nothing is
 * decided at the call; the tables are constant. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "emit_api.h"
#include "interface.h"
#include "ir/marks.h"
#include "plan/formula.h"

typedef struct Host {
    const Module *m;
    Buf *out;
    Vec(const Poly *) exprs;      /* printed as X0, X1, ... */
    bool places;                  /* is there an integer that says places? */
    bool domains;                 /* does the spec say where values are? */
    const char *own; /* of a plan for the CPU: the description's name; or NULL */
} Host;

/* ---- size expressions as postfix programs */

static int expr(Host *h, const Poly *p)
{
    for (int i = 0; i < h->exprs.len; i++)
        if (h->exprs.data[i] == p)
            return i;
    vec_push(h->m->arena, &h->exprs, p);
    Buf b = { .arena = h->m->arena };
    formula_postfix(h->m, formula_size(h->m, p), NULL, &b);
    Buf comment = { .arena = h->m->arena };
    poly_print(h->m, p, &comment);
    buf_f(h->out, "static const int64_t X%d[] = { %.*s }; /* %.*s */\n", h->exprs.len - 1,
          (int)b.len, b.data, (int)comment.len, comment.data);
    return h->exprs.len - 1;
}

/* ---- tables */

static const char *string(const Module *m, const char *s)
{
    Buf b = { .arena = m->arena };
    buf_f(&b, "\"");
    for (; *s; s++)
        buf_f(&b,
              *s == '"' || *s == '\\'  ? "\\%c"
              : (unsigned char)*s < 32 ? "\\%03o"
                                       : "%c",
              (unsigned char)*s);
    buf_f(&b, "\"");
    return intern_n(m->c, b.data, b.len);
}

const char *api_key(const Module *m)
{
    Buf b = { .arena = m->arena };
    buf_f(&b, "%s:", m->cell ? m->cell : m->name);
    for (int i = 0; i < m->bound.len; i++)
        buf_f(&b, "%s=%s,", m->bound.data[i].name, m->bound.data[i].value);
    for (int i = 0; i < m->options.len; i++)
        buf_f(&b, "%s=%s,", m->options.data[i].name, m->options.data[i].value);
    buf_f(&b, "%s%s%sdtype=%s", m->c->reverse ? "reverse=true," : "", m->c->lengths ? "lengths=true," : "",
          m->c->packed ? "packed=true," : "", api_dtype(m->c->dtype));
    for (int i = 0; i < m->c->types.len; i++)
        buf_f(&b, ",dtype.%s=%s", m->c->types.data[i].name, m->c->types.data[i].value);
    return intern_n(m->c, b.data, b.len);
}

static void print_bindings(Host *h)
{
    const Module *m = h->m;
    buf_f(h->out, "static const cell_binding bindings[] = {\n");
    for (int i = 0; i < m->bound.len; i++)
        buf_f(h->out, "    { \"%s\", \"%s\" },\n", m->bound.data[i].name, m->bound.data[i].value);
    for (int i = 0; i < m->options.len; i++)
        buf_f(h->out, "    { \"%s\", \"%s\" },\n", m->options.data[i].name, m->options.data[i].value);
    buf_f(h->out, "    { \"reverse\", \"%s\" },\n", m->c->reverse ? "true" : "false");
    buf_f(h->out, "    { \"lengths\", \"%s\" },\n", m->c->lengths ? "true" : "false");
    if (m->c->packed)
        buf_f(h->out, "    { \"packed\", \"true\" },\n");
    for (int i = 0; i < m->c->types.len; i++)
        buf_f(h->out, "    { \"dtype.%s\", \"%s\" },\n", m->c->types.data[i].name, m->c->types.data[i].value);
    buf_f(h->out, "    { \"dtype\", \"%s\" },\n};\n\n", api_dtype(m->c->dtype));
}

static void print_size_names(Host *h)
{
    const char **names = api_sizes(h->m);
    buf_f(h->out, "static const char *const size_names[] = { ");
    for (int i = 0; i < h->m->dims.len + 3; i++)
        buf_f(h->out, "%s\"%s\"", i ? ", " : "", names[i]);
    buf_f(h->out, " };\n\n");
}

/* The number of a tensor in the table, which holds the declared ones only. */
static int table_number(const Module *m, TensorId t)
{
    int n = 0;
    for (TensorId k = 0; k < t; k++)
        n += m->tensors.data[k].kind <= T_OUTPUT;
    return n;
}

static void print_tensors(Host *h)
{
    static const char *const kinds[] = { [T_INPUT] = "CELL_INPUT",
                                         [T_PARAM] = "CELL_PARAM",
                                         [T_STATE] = "CELL_STATE",
                                         [T_HISTORY] = "CELL_STATE",
                                         [T_OUTPUT] = "CELL_OUTPUT" };
    const Module *m = h->m;
    Buf rows = { .arena = m->arena };
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind > T_OUTPUT)
            continue;
        for (int i = 0; i < x->rank; i++)
            expr(h, x->axes[i]);
        if (x->rank) {
            buf_f(h->out, "static const cell_expr axes%d[] = { ", t);
            for (int i = 0; i < x->rank; i++)
                buf_f(h->out, "%sX%d", i ? ", " : "", expr(h, x->axes[i]));
            buf_f(h->out, " };\n");
        }
        const char *kind = x->lengths ? "CELL_LENGTHS" : x->starts ? "CELL_STARTS" : kinds[x->kind];
        buf_f(&rows, "    { \"%s\", %s, %s, %d, %s },\n", x->name, kind, dtype_constant(x->dtype),
              x->rank, x->rank ? intern_f(m->c, "axes%d", t) : "NULL");
    }
    buf_f(h->out,
          "\n/* name, kind, type, rank, extents */\nstatic const cell_tensor tensors[] = {\n%.*s};\n\n",
          (int)rows.len, rows.data);
}

/* seen: what does not read it, as far as known. */
static bool reads_tensor(const Module *m, NodeId id, TensorId t, Marks *seen)
{
    const Node *n = &m->nodes.data[id];
    if (!marks_first(seen, id))
        return false;
    bool reads = n->kind == N_LOAD && n->tensor == t;
    for (int i = 0; i < n->nargs && !reads; i++)
        reads = reads_tensor(m, n->args[i], t, seen);
    return reads;
}

/* The extent of an axis that an integer input says places of; NULL: it says none. */
static const Poly *places_of(const Module *m, TensorId t)
{
    const Poly *places = NULL;
    Marks *seen = marks_begin(m);
    for (NodeId id = 0; id < m->forward_nodes && !places; id++) {
        const Node *n = &m->nodes.data[id];
        for (int k = 0; n->kind == N_REDUCE && k < n->nbound && !places; k++) {
            NodeId place = ir_pinned(m, n->args[0], n->bound[k], n->bound, n->nbound, &(bool){ false });
            if (place >= 0 && reads_tensor(m, place, t, seen))
                places = m->indices.data[n->bound[k]].extent;
        }
    }
    marks_end(seen);
    return places;
}

static bool print_places(Host *h)
{
    const Module *m = h->m;
    Buf row = { .arena = m->arena };
    bool any = false;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        const Poly *places = x->dtype == DT_I32 ? places_of(m, x->kind == T_HISTORY ? x->of : t) : NULL;
        if (x->kind > T_OUTPUT)
            continue;
        any |= places != NULL;
        if (places)
            buf_f(&row, "X%d, ", expr(h, places));
        else
            buf_f(&row, "NULL, ");
    }
    if (any)
        buf_f(h->out, "/* of integers: the extent of what they say places of */\nstatic const cell_expr places[] = { %.*s};\n\n",
              (int)row.len, row.data);
    return any;
}

/* C has no word for infinity that every reader of the tables knows. */
static double without_infinity(double v)
{
    return v > DBL_MAX ? DBL_MAX : v < -DBL_MAX ? -DBL_MAX : v;
}

static bool print_domains(Host *h)
{
    const Module *m = h->m;
    Buf rows = { .arena = m->arena };
    bool any = false;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        const Range *r = x->range;
        if (x->kind > T_OUTPUT)
            continue;
        any |= r || x->reach;
        bool whole = x->dtype == DT_I32;
        double low = !r ? 0 : whole ? (r->above ? floor(r->low) + 1 : ceil(r->low)) : r->low;
        double high = !r ? 0 : whole ? (r->below ? ceil(r->high) - 1 : floor(r->high)) : r->high;
        buf_f(&rows, "    { %d, %.17g, %.17g },\n", r ? 1 : x->reach ? 2 : 0, without_infinity(low), without_infinity(high));
    }
    if (any)
        buf_f(h->out, "/* where values are, by tensor */\nstatic const cell_domain domains[] = {\n%.*s};\n\n", (int)rows.len,
              rows.data);
    return any;
}

static void print_args(Host *h, const char *name, const CallArgs *args)
{
    static const char *const roles[] = { [ROLE_VALUE] = "CELL_ROLE_VALUE",
                                         [ROLE_FINAL] = "CELL_ROLE_FINAL",
                                         [ROLE_D_VALUE] = "CELL_ROLE_D_VALUE",
                                         [ROLE_D_OUT] = "CELL_ROLE_D_OUT",
                                         [ROLE_D_FINAL] = "CELL_ROLE_D_FINAL" };
    buf_f(h->out, "static const cell_arg %s[] = {\n", name);
    for (int i = 0; i < args->len; i++) {
        const CallArg *a = &args->data[i];
        const Tensor *x = &h->m->tensors.data[a->tensor];
        bool ignored = a->role == ROLE_D_VALUE && !wants_gradient(h->m, a->tensor);
        bool past = x->kind == T_HISTORY && a->role == ROLE_VALUE;
        buf_f(h->out, "    { %d, %s, %s%s%s, %s }, /* %s */\n", table_number(h->m, a->tensor), roles[a->role],
              a->optional ? "CELL_ARG_OPTIONAL" : "0", ignored ? " | CELL_ARG_IGNORED" : "",
              past ? " | CELL_ARG_PAST" : "", dtype_constant(argument_type(h->m, a)), x->name);
    }
    buf_f(h->out, "};\n\n");
}

static void print_program(Host *h, const char *name, const Formula *f)
{
    Buf program = { .arena = h->m->arena };
    formula_postfix(h->m, f, NULL, &program);
    buf_f(h->out, "static const int64_t %s[] = { %.*s };\n", name, (int)program.len, program.data);
}

/* A quotient in a size must be exact: minus its remainder must not be negative. */
static int print_quotient_checks(Host *h, Buf *rows)
{
    const Module *m = h->m;
    for (int i = 0; i < m->quotients.len; i++) {
        const Quotient *q = &m->quotients.data[i];
        Buf name = { .arena = m->arena };
        const Formula *rest = formula(m, F_MOD, formula_size(m, q->num), formula_size(m, q->den));
        print_program(h, intern_f(m->c, "exact%d", i), formula(m, F_SUB, formula_const(m, 0), rest));
        poly_print(m, q->num, &name);
        buf_f(&name, " must be a multiple of ");
        poly_print(m, q->den, &name);
        buf_f(rows, "    { exact%d, %s },\n", i, string(m, intern_n(m->c, name.data, name.len)));
    }
    return m->quotients.len;
}

static int print_checks(Host *h)
{
    const Module *m = h->m;
    Buf rows = { .arena = m->arena };
    int n = print_quotient_checks(h, &rows);
    for (int i = 0; i < m->checks.len; i++)
        buf_f(&rows, "    { X%d, %s },\n", expr(h, m->checks.data[i].nonneg),
              string(m, m->checks.data[i].text));
    n += m->checks.len;
    if (m->whole_past) {
        print_program(h, "starts", formula(m, F_SUB, formula_const(m, 0), formula_leaf(m, F_START, 0)));
        buf_f(&rows, "    { starts, \"t0 must be 0: what this cell reads of earlier steps is not carried "
                     "from call to call\" },\n");
        n++;
    }
    if (n)
        buf_f(h->out, "static const cell_check checks[] = {\n%.*s};\n\n", (int)rows.len, rows.data);
    return n;
}

/* ---- the description and the entry points */

static void print_reference(Host *h)
{
    const Module *m = h->m;
    const char *n = m->name;
    buf_f(h->out,
          "/* The reference (%s_ref.c). */\n"
          "extern const int %s_ref_real_bytes;\n"
          "size_t %s_ref_reserve_bytes(const int64_t *sizes);\n"
          "int %s_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);\n",
          n, n, n, n);
    if (m->has_grad)
        buf_f(h->out,
              "int %s_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);\n", n);
    buf_f(h->out, "\nstatic const cell_desc description;\n\n");
    for (int k = 0; k < (m->has_grad ? 2 : 1); k++) {
        const char *entry = k ? "backward" : "forward";
        buf_f(
            h->out,
            "static cell_status ref_%s(const int64_t *sizes, void *const *args, void *reserve, int "
            "flags)\n{\n"
            "    return cell_reference_run(&description, %d, %s_ref_%s, %s_ref_real_bytes, sizes, args, reserve, flags);\n"
            "}\n\n",
            entry, k, n, entry, n);
    }
}

static const char *or_null(const char *name)
{
    return name ? name : "NULL";
}

static const char *address(const Module *m, const char *name)
{
    return name ? intern_f(m->c, "&%s", name) : "NULL";
}

enum { KEY_COLUMNS = 80 };

/* A string of many options goes over several lines, broken behind commas. */
static void print_key(Buf *out, const char *key)
{
    buf_f(out, "    .key = ");
    for (const char *rest = key; *rest;) {
        size_t n = strlen(rest);
        if (n > KEY_COLUMNS) {
            n = KEY_COLUMNS;
            while (n > 1 && rest[n - 1] != ',')
                n--;
            n = n > 1 ? n : strlen(rest);
        }
        buf_f(out, "%s\"%.*s\"", rest == key ? "" : "\n            ", (int)n, rest);
        rest += n;
    }
    buf_f(out, ",\n");
}

/* The size that says how many steps the histories have room for; 0: none has all steps. */
static int room_for_steps(const Module *m)
{
    bool grows = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        grows |= m->tensors.data[t].grows;
    for (int i = 0; grows && i < m->dims.len; i++)
        if (strcmp(m->dims.data[i], "history") == 0)
            return 2 + i;                         /* behind B and T */
    return 0;
}

/* The size that says how many rows packed sequences have together. */
static int rows_of_packed(const Module *m)
{
    int i = 0;
    while (strcmp(m->dims.data[i], "total") != 0)
        i++;
    return 2 + i;
}

static const char *description_name(const Module *m, const HostPlan *plan, int level)
{
    if (plan->name)
        return intern_f(m->c, "description_%s", plan->name);
    return level ? intern_f(m->c, "description_%d", level) : "description";
}

/* The description of a plan behind those that it leads to. level 0 is the one that callers get; of plans for
 * certain calls no matter. */
static void print_description(Host *h, const HostPlan *plan, int checks, int level)
{
    const Module *m = h->m;
    const HostPlan *next = plan->name ? plan->other : plan->smaller,
                   *preferred = plan->name ? NULL : plan->other;
    const char *name = h->own ? h->own : description_name(m, plan, level),
               *after = next ? description_name(m, next, level + 1) : NULL;
    if (next)
        print_description(h, next, checks, level + 1);
    if (preferred)
        print_description(h, preferred, checks, level);
    CallArgs fwd = forward_arguments(m), bwd = backward_arguments(m);
    Buf *out = h->out;
    buf_f(out,
          "%sconst cell_desc %s = {\n    .plan_version = CELL_PLAN_VERSION,\n    .name = "
          "\"%s\",\n",
          h->own ? "" : "static ", name, m->cell ? m->cell : m->name);
    print_key(out, api_key(m));
    buf_f(out, "    .bindings = bindings,\n    .size_names = size_names,\n    .tensors = tensors,\n"
               "    .forward_args = forward_args,\n    .backward_args = backward_args,\n");
    if (checks)
        buf_f(out, "    .checks = checks,\n");
    if (h->places)
        buf_f(out, "    .places = places,\n");
    buf_f(
        out,
        "    .kernels = %s,\n    .reserve = %s,\n    .forward = %s,\n    .backward = %s,\n    .step = %s,\n",
        or_null(plan->kernels), or_null(plan->reserve), address(m, plan->forward), address(m, plan->backward),
        address(m, plan->step));
    if (!h->own)
        buf_f(out,
              "    .ref_forward = ref_forward,\n    .ref_backward = %s,\n    .ref_reserve_bytes = "
              "%s_ref_reserve_bytes,\n    .cpu = CELL_CPU_DESCRIPTION,\n",
              m->has_grad ? "ref_backward" : "NULL", m->name);
    if (plan->how && h->own)
        buf_f(out, "    .how = %s,\n", string(m, plan->how));
    else if (plan->how)
        buf_f(out, "    .how = %s,\n    .block_memory = %lld,\n    .archs = CELL_ARCHS,\n",
              string(m, plan->how), (long long)plan->block_memory);
    if (preferred)
        buf_f(out, "    .preferred = &%s,\n", description_name(m, preferred, level));
    if (after)
        buf_f(out, "    .next = &%s,\n", after);
    if (plan->takes)
        buf_f(out, "    .takes = %s,\n", plan->takes);
    if (room_for_steps(m))
        buf_f(out, "    .room = %d,\n", room_for_steps(m));
    if (m->c->packed)
        buf_f(out, "    .total = %d,\n", rows_of_packed(m));
    if (h->domains)
        buf_f(out, "    .domains = domains,\n");
    if (m->c->program)
        buf_f(out, "    .program = \"%s\",\n", m->c->program);
    if (api_counts_steps(m))
        buf_f(out, "    .counts_steps = 1,\n");
    if (plan->take)
        buf_f(out, "    .take = %d,\n    .put = %d,\n", plan->take, plan->put);
    buf_f(
        out,
        "    .n_bindings = %d,\n    .n_sizes = %d,\n    .n_tensors = %d,\n    .n_forward_args = %d,\n"
        "    .n_backward_args = %d,\n    .n_checks = %d,\n    .n_kernels = %d,\n    .n_reserve = %d,\n};\n\n",
        m->bound.len + m->options.len + 3 + m->c->packed, m->dims.len + 3, table_number(m, m->tensors.len),
        fwd.len, bwd.len, checks, plan->n_kernels, plan->n_reserve);
}

static void print_size_array(Host *h, const char *steps)
{
    const char **names = api_sizes(h->m);
    buf_f(h->out, "    const int64_t n[] = { sizes->B, %s", steps);
    for (int i = 0; i <= h->m->dims.len; i++)
        buf_f(h->out, ", sizes->%s", names[2 + i]);
    buf_f(h->out, " };\n");
}

static void print_entry(Host *h, const char *entry, const ApiMembers *members, bool reserve)
{
    const char *n = h->m->name;
    Buf *out = h->out;
    buf_f(out, "cell_status %s_%s(cell_context *ctx, const %s_sizes *sizes, const %s_%s_args *args)\n{\n", n,
          entry, n, n, entry);
    buf_f(out,
          "    if (!sizes || !args)\n        return cell_run_%s(ctx, &description, NULL, NULL, NULL, 0);\n",
          entry);
    print_size_array(h, reserve ? "sizes->T" : "1");
    buf_f(out, "    void *const list[] = {\n");
    for (int i = 0; i < members->args.len; i++)
        buf_f(out, "        %sargs->%s,\n", api_written(h->m, members->args.data[i]) ? "" : "(void *)",
              members->name[i]);
    buf_f(out, "    };\n    const cell_memory memory = { args->workspace, args->workspace_bytes, %s };\n",
          reserve ? "args->reserve, args->reserve_bytes" : "NULL, 0");
    buf_f(out, "    return cell_run_%s(ctx, &description, n, list, &memory, %s);\n}\n\n", entry,
          reserve ? "args->flags" : "0");
}

/* The functions of a store of sessions. */
static void print_session_calls(Host *h, const ApiMembers *members)
{
    const char *n = h->m->name;
    Buf *out = h->out;
    buf_f(out,
          "cell_status %s_sessions(cell_context *ctx, const %s_sizes *sizes, const cell_sessions_options "
          "*options,\n"
          "        cell_sessions **store)\n{\n    if (!sizes)\n"
          "        return cell_sessions_create(ctx, &description, NULL, options, store);\n",
          n, n);
    print_size_array(h, "1");
    buf_f(out, "    return cell_sessions_create(ctx, &description, n, options, store);\n}\n\n");
    for (int fill = 0; fill < 2; fill++) {
        const char *call = fill ? "prefill" : "step", *T = fill ? ", int64_t T" : "",
                   *steps = fill ? ", T" : "";
        buf_f(out,
              "cell_status %s_sessions_%s(cell_sessions *store, const int32_t *sessions, int64_t n%s,\n"
              "        const %s_step_args *args)\n{\n"
              "    if (!args)\n        return cell_sessions_%s(store, sessions, n%s, NULL);\n"
              "    void *const list[] = {\n",
              n, call, T, n, call, steps);
        for (int i = 0; i < members->args.len; i++)
            buf_f(out, "        %sargs->%s,\n", api_written(h->m, members->args.data[i]) ? "" : "(void *)",
                  members->name[i]);
        buf_f(out, "    };\n    return cell_sessions_%s(store, sessions, n%s, list);\n}\n\n", call, steps);
    }
}

static void print_bytes(Host *h, const char *what)
{
    const char *n = h->m->name;
    buf_f(h->out,
          "size_t %s_%s_bytes(const %s_sizes *sizes)\n{\n    size_t bytes;\n    if (!sizes)\n        return "
          "SIZE_MAX;\n",
          n, what, n);
    print_size_array(h, "sizes->T");
    buf_f(h->out,
          "    return cell_%s_bytes(NULL, &description, n, &bytes) == CELL_OK ? bytes : SIZE_MAX;\n}\n\n",
          what);
}

static void print_memory(Host *h)
{
    const char *n = h->m->name;
    buf_f(h->out, "cell_status %s_memory(cell_context *ctx, const %s_sizes *sizes, size_t *workspace, size_t "
                  "*inference,\n                      size_t *reserve)\n{\n"
                  "    if (!sizes)\n        return cell_workspace_bytes(ctx, &description, NULL, &(size_t){ 0 });\n",
          n, n);
    print_size_array(h, "sizes->T");
    buf_f(h->out, "    cell_status status = CELL_OK;\n");
    static const char *const what[] = { "workspace", "inference", "reserve" };
    for (int i = 0; i < 3; i++)
        buf_f(h->out, "    if (%s%s)\n        status = cell_%s_bytes(ctx, &description, n, %s);\n",
              i ? "status == CELL_OK && " : "", what[i], what[i], what[i]);
    buf_f(h->out, "    return status;\n}\n\n");
}

static void print_entries(Host *h)
{
    const Module *m = h->m;
    ApiMembers fwd = api_forward(m), bwd = api_backward(m);
    print_bytes(h, "workspace");
    print_bytes(h, "inference");
    print_bytes(h, "reserve");
    print_memory(h);
    print_entry(h, "forward", &fwd, true);
    if (m->has_grad)
        print_entry(h, "backward", &bwd, true);
    print_entry(h, "step", &fwd, false);
    if (m->c->slots)
        print_session_calls(h, &fwd);
    buf_f(h->out, "const struct cell_desc *%s_instance(void) { return &description; }\n", m->name);
}

/* What all descriptions of a cell have in common; gives the number of checks. */
static int print_tables(Host *h)
{
    CallArgs fwd = forward_arguments(h->m), bwd = backward_arguments(h->m);
    print_bindings(h);
    print_size_names(h);
    print_tensors(h);
    h->places = print_places(h);
    h->domains = print_domains(h);
    print_args(h, "forward_args", &fwd);
    print_args(h, "backward_args", &bwd);
    return print_checks(h);
}

void emit_host_plan(const Module *m, const HostPlan *plan, Buf *out)
{
    Buf text = { .arena = m->arena };
    Host h = { .m = m, .out = &text };
    int checks = print_tables(&h);
    print_reference(&h);
    print_description(&h, plan, checks, 0);
    print_entries(&h);
    buf_wrapped(out, &text);
}

void emit_host_description(const Module *m, const HostPlan *plan, const char *name, Buf *out)
{
    Buf text = { .arena = m->arena };
    Host h = { .m = m, .out = &text, .own = name };
    int checks = print_tables(&h);
    print_description(&h, plan, checks, 0);
    buf_wrapped(out, &text);
}

void emit_host_head(const Module *m, Buf *out)
{
    buf_f(out, "/* %s: generated by cellc from %s: the functions of %s.h, over the cell runtime. */\n",
          m->name, source_place(m, m->span, false), m->name);
    buf_f(out, "#include \"%s.h\"\n\n#include \"cell_plan.h\"\n#include \"reference.h\"\n\n", m->name);
    buf_f(out,
          "#ifdef CELL_CPU /* %s_cpu.c is in the library */\nextern const cell_desc %s_cpu_description;\n"
          "#define CELL_CPU_DESCRIPTION &%s_cpu_description\n#else\n#define CELL_CPU_DESCRIPTION NULL\n#endif\n\n",
          m->name, m->name, m->name);
}

void emit_host(const Module *m, Buf *out)
{
    static const HostPlan none;
    emit_host_head(m, out);
    emit_host_plan(m, &none, out);
}
