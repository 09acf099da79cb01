/* ir_text.c: the IR as text. In: a module, after any pass. Out: its text form: a header (settings, dims,
 * quotients, indices, sources, call chains, tensors, checks), then one line per node, then the roots.
 * Guaranteed: ir_parse (ir_parse.c) gives the same module back, node for node and id for id, and it prints as
 * the same text. All nodes are printed, also those that no root needs, so that ids in a message, a dump and
 * after reading back are the same.
 *
 *     ir e79 @0:148-151                  the cell, and where it is named: bytes 148 to 151 of source 0
 *     index 2 i : 64                     printed as i; as i.2 where a dim or an index before it is called i
 *     tensor 1 param W_kvqm [256, D] f32 ~ xavier
 *     %0 = load W_kvqm [i, d] : [i, d]   after the colon: what is derived, type (when not real) and axes
 *     %3 = sum [d] %2 : [i] @0:520-561 via 4
 *     %4 = array [i] %3 "k" : [i]
 *     next S = %57
 *
 * Numbers are hex floats, sizes are written as in a spec. `via` names a line `call`, a step in a chain of fn
 * calls. */
#include <string.h>

#include "base/map.h"
#include "ir_raw.h"
#include "ops.h"
#include "schedule/schedule.h"

const char *const ir_tensor_kinds[] = { "input", "param", "state", "history", "output", "dout", "dnext",
                                         "dinit", "dhistory", "cotangent", NULL };
const char *const ir_dtypes[] = { "f32", "bf16", "f16", "f64", "i32", "e4m3", "e5m2", NULL };
const char *const ir_reductions[] = { "sum", "mean", "max", "min", "prod", "softmax", NULL };

typedef Vec(const CallSite *) CallVec;

typedef struct Print {
    const Module *m;
    Buf *out;
    bool *index_shared, *tensor_shared;   /* the name alone would not tell which */
    bool *file_used;
    int *file_number;             /* per source: its number in the text */
    CallVec calls;                /* outer before inner */
} Print;

/* ---- names that more than one thing has ---- */

typedef const char *(*NameOf)(const Module *, int);

static const char *index_name(const Module *m, int i)
{
    return m->indices.data[i].name;
}

static const char *tensor_name(const Module *m, int i)
{
    return m->tensors.data[i].name;
}

/* Per thing: another one before it, or one of the taken names, is called the same. */
static bool *find_shared(const Module *m, int n, NameOf name_of, const NameMap *taken)
{
    bool *shared = arena_alloc(m->arena, (size_t)n + 1);
    NameMap seen = { 0 };
    for (int i = 0; i < n; i++) {
        const char *name = name_of(m, i);
        shared[i] = map_get(taken, name) || map_get(&seen, name);
        if (!map_get(&seen, name))
            map_put(m->arena, &seen, name, (void *)(uintptr_t)name);
    }
    return shared;
}

static void find_names(Print *p)
{
    const Module *m = p->m;
    NameMap dims = { 0 }, none = { 0 };
    const char *own[] = { intern(m->c, "B"), intern(m->c, "T") };
    for (int i = 0; i < m->dims.len + 2; i++) {
        const char *name = i < 2 ? own[i] : intern(m->c, dim_text(m, i - 2));
        map_put(m->arena, &dims, name, (void *)(uintptr_t)name);
    }
    p->index_shared = find_shared(m, m->indices.len, index_name, &dims);
    p->tensor_shared = find_shared(m, m->tensors.len, tensor_name, &none);
}

/* ---- sources and call chains ---- */

static void use_span(Print *p, Span s)
{
    if (s.file >= 0)
        p->file_used[s.file] = true;
}

static int call_number(const Print *p, const CallSite *chain)
{
    for (int i = p->calls.len - 1; i >= 0; i--)
        if (p->calls.data[i] == chain)
            return i;
    return -1;
}

static void use_chain(Print *p, const CallSite *chain)
{
    if (!chain || call_number(p, chain) >= 0)
        return;
    use_chain(p, chain->outer);
    use_span(p, chain->span);
    vec_push(p->m->arena, &p->calls, chain);
}

static void find_sources(Print *p)
{
    const Module *m = p->m;
    int files = m->c->sources.len;
    p->file_used = arena_alloc(m->arena, (size_t)files + 1);
    p->file_number = arena_alloc(m->arena, sizeof *p->file_number * (size_t)(files + 1));
    use_span(p, m->span);
    for (int i = 0; i < m->tensors.len; i++)
        use_span(p, m->tensors.data[i].span);
    for (int i = 0; i < m->checks.len; i++)
        use_span(p, m->checks.data[i].span);
    const CallSite *last = NULL;
    for (int i = 0; i < m->nodes.len; i++) {
        use_span(p, m->nodes.data[i].span);
        if (m->nodes.data[i].chain != last)
            use_chain(p, last = m->nodes.data[i].chain);
    }
    for (int i = 0, n = 0; i < files; i++)
        p->file_number[i] = p->file_used[i] ? n++ : -1;
}

/* ---- pieces ---- */

static void put_string(Print *p, const char *s)
{
    buf_text(p->out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            buf_f(p->out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            buf_f(p->out, "\\x%02x", (unsigned char)*s);
        else
            buf_f(p->out, "%c", *s);
    }
    buf_text(p->out, "\"");
}

static void put_span(Print *p, Span s)
{
    if (s.file < 0)
        return;
    buf_text(p->out, " @");
    buf_int(p->out, p->file_number[s.file]);
    buf_text(p->out, ":");
    buf_int(p->out, s.lo);
    buf_text(p->out, "-");
    buf_int(p->out, s.hi);
}

static void put_index(Print *p, IndexId i)
{
    buf_text(p->out, p->m->indices.data[i].name);
    if (p->index_shared[i])
        buf_f(p->out, ".%d", i);
}

static void put_indices(Print *p, const IndexId *ids, int n)
{
    buf_text(p->out, "[");
    for (int i = 0; i < n; i++) {
        if (i)
            buf_text(p->out, ", ");
        put_index(p, ids[i]);
    }
    buf_text(p->out, "]");
}

static void put_tensor(Print *p, TensorId t)
{
    buf_text(p->out, p->m->tensors.data[t].name);
    if (p->tensor_shared[t])
        buf_f(p->out, ".%d", t);
}

static void put_ix(Print *p, const IxExpr *e);

/* A size that is added to what stands before it: the sign of its first term becomes the sign between them. */
static void put_added(Print *p, const Poly *x, bool first)
{
    Buf text = { .arena = p->m->arena };
    poly_print(p->m, x, &text);
    bool minus = text.data[0] == '-';
    buf_f(p->out, "%s%s", first ? (minus ? "-" : "") : minus ? " - " : " + ", text.data + minus);
}

static void put_coefficient(Print *p, const Poly *coef, bool first)
{
    if (coef->is_const && (coef->value == 1 || coef->value == -1)) {
        bool minus = coef->value < 0;
        buf_text(p->out, first ? (minus ? "-" : "") : minus ? " - " : " + ");
    } else if (coef->nterms > 1) {
        buf_f(p->out, first ? "(" : " + (");
        poly_print(p->m, coef, p->out);
        buf_text(p->out, ")*");
    } else {
        put_added(p, coef, first);
        buf_text(p->out, "*");
    }
}

static void put_ix_term(Print *p, const IxTerm *t, bool first)
{
    put_coefficient(p, t->coef, first);
    if (t->kind == IA_INDEX) {
        put_index(p, t->index);
        return;
    }
    buf_f(p->out, t->kind == IA_DIV ? "div(" : "mod(");
    put_ix(p, t->arg);
    buf_text(p->out, ", ");
    poly_print(p->m, t->by, p->out);
    buf_text(p->out, ")");
}

static void put_ix(Print *p, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++)
        put_ix_term(p, &e->terms[i], i == 0);
    if (!e->nterms || e->offset->nterms)
        put_added(p, e->offset, !e->nterms);
}

static void put_map(Print *p, const IxExpr *const *map, int n)
{
    buf_text(p->out, " [");
    for (int i = 0; i < n; i++) {
        buf_f(p->out, i ? ", " : "");
        put_ix(p, map[i]);
    }
    buf_text(p->out, "]");
}

static void put_step(Print *p, const Node *n)
{
    if (!n->step)
        return;
    buf_text(p->out, " at ");
    put_ix(p, n->step);
    if (n->past < 0)
        return;
    buf_text(p->out, " past ");
    put_tensor(p, n->past);
}

/* ---- header ---- */

static void put_settings(Print *p)
{
    const Module *m = p->m;
    buf_f(p->out, "dtype %s\n", ir_dtypes[m->c->dtype]);
    buf_f(p->out, "schedule %s\n", schedule_word(m->c->schedule));
    for (int i = 0; i < m->dims.len; i++)
        buf_f(p->out, "dim %s\n", dim_text(m, i));
    for (int i = 0; i < m->bound.len; i++) {
        buf_f(p->out, "bound %s = ", m->bound.data[i].name);
        put_string(p, m->bound.data[i].value);
        buf_text(p->out, "\n");
    }
    for (int i = 0; i < m->options.len; i++) {
        buf_f(p->out, "option %s = ", m->options.data[i].name);
        put_string(p, m->options.data[i].value);
        buf_text(p->out, "\n");
    }
}

static void put_sizes(Print *p)
{
    const Module *m = p->m;
    for (int i = 0; i < m->quotients.len; i++) {
        buf_text(p->out, "quotient (");
        poly_print(m, m->quotients.data[i].num, p->out);
        buf_text(p->out, ") / (");
        poly_print(m, m->quotients.data[i].den, p->out);
        buf_text(p->out, ")\n");
    }
    for (int i = IX_FIRST; i < m->indices.len; i++) {
        buf_f(p->out, "index %d %s : ", i, m->indices.data[i].name);
        poly_print(m, m->indices.data[i].extent, p->out);
        buf_text(p->out, "\n");
    }
}

static void put_calls(Print *p)
{
    for (int i = 0; i < p->calls.len; i++) {
        const CallSite *k = p->calls.data[i];
        buf_f(p->out, "call %d ", i);
        put_string(p, k->fn);
        put_span(p, k->span);
        if (k->outer)
            buf_f(p->out, " via %d", call_number(p, k->outer));
        buf_text(p->out, "\n");
    }
}

static void put_init(Print *p, const Tensor *t)
{
    buf_f(p->out, " ~ %s(", t->init);
    for (int i = 0; i < 2; i++) {
        buf_f(p->out, i ? ", " : "");
        if (t->init_text[i])
            put_string(p, t->init_text[i]);
        else
            buf_f(p->out, "%a", t->init_arg[i]);
    }
    buf_text(p->out, ")");
}

static void put_tensor_line(Print *p, TensorId id)
{
    const Tensor *t = &p->m->tensors.data[id];
    buf_f(p->out, "tensor %d %s %s [", id, ir_tensor_kinds[t->kind], t->name);
    for (int i = 0; i < t->rank; i++) {
        buf_f(p->out, i ? ", " : "");
        poly_print(p->m, t->axes[i], p->out);
    }
    buf_f(p->out, "] %s%s", ir_dtypes[t->dtype], t->complex ? " complex" : "");
    if (t->inner)
        buf_text(p->out, " inner");
    if ((t->kind >= T_DOUT && t->kind != T_COTANGENT) || (t->kind == T_HISTORY && t->of >= 0)) {
        buf_text(p->out, " of ");
        put_tensor(p, t->of);
    }
    if (t->no_grad)
        buf_text(p->out, " no_grad");
    if (t->lengths)
        buf_text(p->out, " lengths");
    if (t->starts)
        buf_text(p->out, " starts");
    if (t->chunk)
        buf_f(p->out, t->level ? " chunk %d" : " chunk", t->level);
    if (t->grows)
        buf_text(p->out, " grows");
    if (t->range)
        buf_f(p->out, " in %s%a, %a%s", t->range->above ? "(" : "[", t->range->low, t->range->high,
              t->range->below ? ")" : "]");
    if (t->reach)
        buf_text(p->out, " in reach");
    if (t->init)
        put_init(p, t);
    put_span(p, t->span);
    buf_text(p->out, "\n");
}

static void put_checks(Print *p)
{
    const Module *m = p->m;
    for (int i = 0; i < m->checks.len; i++) {
        buf_text(p->out, "check ");
        poly_print(m, m->checks.data[i].nonneg, p->out);
        buf_text(p->out, " >= 0 ");
        put_string(p, m->checks.data[i].text);
        put_span(p, m->checks.data[i].span);
        buf_text(p->out, "\n");
    }
}

/* ---- nodes and roots ---- */

static void put_args(Print *p, const Node *n)
{
    for (int i = 0; i < n->nargs; i++) {
        buf_text(p->out, " %");
        buf_int(p->out, n->args[i]);
    }
}

static void put_content(Print *p, const Node *n)
{
    switch (n->kind) {
    case N_CONST: buf_f(p->out, "const %a", n->value); break;
    case N_SIZE:
        buf_text(p->out, "size ");
        poly_print(p->m, n->size, p->out);
        break;
    case N_INDEX:
        buf_text(p->out, "index ");
        put_ix(p, n->ix);
        break;
    case N_LOAD:
        buf_text(p->out, "load ");
        put_tensor(p, n->tensor);
        put_map(p, n->map, n->nmap);
        put_step(p, n);
        break;
    case N_ARRAY:
        buf_text(p->out, "array ");
        put_indices(p, n->axes, n->naxes);
        put_args(p, n);
        break;
    case N_VIEW:
        buf_text(p->out, "view");
        put_args(p, n);
        put_map(p, n->map, n->nmap);
        put_step(p, n);
        break;
    case N_MAP:
        buf_text(p->out, "map ");
        buf_text(p->out, op_table[n->op].name);
        put_args(p, n);
        break;
    case N_REDUCE:
        buf_f(p->out, "%s ", ir_reductions[n->reduce]);
        put_indices(p, n->bound, n->nbound);
        put_args(p, n);
        break;
    }
}

static void put_node(Print *p, NodeId id)
{
    static const char *const types[] = { " : ", " : int ", " : bool " };
    const Node *n = &p->m->nodes.data[id];
    buf_text(p->out, "%");
    buf_int(p->out, id);
    buf_text(p->out, " = ");
    put_content(p, n);
    if (n->name) {
        buf_text(p->out, " ");
        put_string(p, n->name);
    }
    buf_text(p->out, types[n->type]);
    put_indices(p, n->axes, n->naxes);
    put_span(p, n->span);
    if (n->chain)
        buf_f(p->out, " via %d", call_number(p, n->chain));
    buf_text(p->out, "\n");
}

static void put_roots(Print *p)
{
    const Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++) {
            if (m->roots.data[t].of[k] < 0)
                continue;
            buf_f(p->out, "%s ", root_table[k].word);
            put_tensor(p, t);
            buf_f(p->out, " = %%%d\n", m->roots.data[t].of[k]);
        }
    if (m->whole_past)
        buf_text(p->out, "whole_past\n");
    if (m->parts)
        buf_f(p->out, "parts %d side %d\n", m->parts, m->side);
    if (m->has_grad)
        buf_f(p->out, "adjoint from %%%d\n", m->forward_nodes);
}

void ir_print(const Module *m, Buf *out)
{
    Print p = { .m = m, .out = out };
    find_names(&p);
    find_sources(&p);
    buf_f(out, "ir %s", m->name);
    put_span(&p, m->span);
    buf_text(out, "\n");
    for (int i = 0; i < m->c->sources.len; i++)
        if (p.file_used[i]) {
            buf_f(out, "source %d ", p.file_number[i]);
            put_string(&p, m->c->sources.data[i].path);
            buf_text(out, "\n");
        }
    put_settings(&p);
    put_sizes(&p);
    put_calls(&p);
    for (TensorId t = 0; t < m->tensors.len; t++)
        put_tensor_line(&p, t);
    put_checks(&p);
    for (NodeId id = 0; id < m->nodes.len; id++)
        put_node(&p, id);
    put_roots(&p);
}
