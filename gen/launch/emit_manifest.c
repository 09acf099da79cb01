/* emit_manifest.c: the manifest. In: a module. Out: JSON that tells a binding all it needs to call the
 * library: tensors with shapes as expressions over the sizes, types, initialisers with numbers or expressions
 * over the sizes, the order of arguments, entry points. Guaranteed: valid JSON, the same for the same module,
 * members in a fixed order. */
#include <math.h>
#include <string.h>

#include "emit_api.h"
#include "interface.h"

enum { MANIFEST_VERSION = 1 };

static void json_string(Buf *out, const char *s)
{
    buf_json(out, s, strlen(s));
}

static void json_poly(const Module *m, Buf *out, const Poly *p)
{
    Buf text = { .arena = m->arena };
    poly_print_spec(m, p, &text);
    json_string(out, intern_n(m->c, text.data, text.len));
}

/* {"N": "64", ...} */
static void json_settings(const Module *m, Buf *out, const char *key, const Setting *s, int n)
{
    (void)m;
    buf_f(out, "  \"%s\": {", key);
    for (int i = 0; i < n; i++) {
        buf_f(out, "%s", i ? ", " : "");
        json_string(out, s[i].name);
        buf_f(out, ": ");
        json_string(out, s[i].value);
    }
    buf_f(out, "},\n");
}

static void json_sizes(const Module *m, Buf *out)
{
    const char **names = api_sizes(m);
    buf_f(out, "  \"sizes\": [");
    for (int i = 0; i < m->dims.len + 3; i++)
        buf_f(out, "%s\"%s\"", i ? ", " : "", names[i]);
    buf_f(out, "],\n");
    bool same = true;
    for (int i = 0; i < m->dims.len; i++)
        same = same && strcmp(names[2 + i], m->dims.data[i]) == 0;
    if (same)
        return;
    buf_f(out, "  \"dims\": [");                /* what the spec calls those between B, T and t0 */
    for (int i = 0; i < m->dims.len; i++)
        buf_f(out, "%s\"%s\"", i ? ", " : "", m->dims.data[i]);
    buf_f(out, "],\n");
}

/* JSON has no infinite numbers: they are expressions, as what is made of sizes. */
static void json_number(Buf *out, double v)
{
    buf_f(out, isfinite(v) ? "%.17g" : "\"%g\"", v);
}

/* What the caller promises: {"text": "(0, 1]", "ends": [0, 1]}. */
static void json_range(const Module *m, Buf *out, const Range *r)
{
    buf_f(out, ", \"range\": {\"text\": \"%s\", \"ends\": [", range_text(m->c, r));
    json_number(out, r->low);
    buf_f(out, ", ");
    json_number(out, r->high);
    buf_f(out, "]}");
}

static void json_init(Buf *out, const Tensor *x)
{
    buf_f(out, ", \"init\": {\"name\": ");
    json_string(out, x->init);
    buf_f(out, ", \"args\": [");
    for (int i = 0; i < 2; i++) {
        buf_f(out, i ? ", " : "");
        if (x->init_text[i])
            json_string(out, x->init_text[i]);
        else
            json_number(out, x->init_arg[i]);
    }
    buf_f(out, "]}");
}

/* Whether the number of the step goes in by itself: t - t0 does not count, which is how far the call is. */
static bool uses_number(const IxExpr *e)
{
    int64_t number = 0;
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        if (t->kind != IA_INDEX && uses_number(t->arg))
            return true;
        if (t->kind != IA_INDEX || (t->index != IX_TIME && t->index != IX_START))
            continue;
        if (!t->coef->is_const)
            return true;
        number += t->coef->value;
    }
    return number != 0;
}

/* Whether a call that continues another must know how many steps that one has done. */
bool api_counts_steps(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].grows)
            return true;
    for (NodeId id = 0; id < m->nodes.len; id++) {
        const Node *n = &m->nodes.data[id];
        if (n->kind == N_INDEX && uses_number(n->ix))
            return true;
        for (int i = 0; i < n->nmap; i++)
            if (uses_number(n->map[i]))
                return true;
    }
    return false;
}

/* The comment behind a declaration in the spec, as its documentation. "" if there is none. */
static const char *trailing_comment(const Module *m, Span span)
{
    if (span.file < 0 || span.file >= m->c->sources.len)
        return "";
    const Source *src = &m->c->sources.data[span.file];
    size_t end = span.hi, start;
    while (end < src->len && src->text[end] != '\n')
        end++;
    for (start = span.hi; start + 1 < end; start++)
        if (src->text[start] == '/' && src->text[start + 1] == '/')
            break;
    if (start + 1 >= end)
        return "";
    start += 2;
    while (start < end && src->text[start] == ' ')
        start++;
    return intern_n(m->c, src->text + start, end - start);
}

static void json_tensor(const Module *m, Buf *out, TensorId t)
{
    static const char *const kinds[] = {
        [T_INPUT] = "input", [T_PARAM] = "param", [T_STATE] = "state", [T_HISTORY] = "state",
        [T_OUTPUT] = "output"
    };
    const Tensor *x = &m->tensors.data[t];
    buf_f(out, "    {\"name\": \"%s\", \"kind\": \"%s\", \"dtype\": \"%s\", \"axes\": [", x->name,
          x->lengths  ? "lengths"
          : x->starts ? "starts"
                      : kinds[x->kind],
          api_type(x));
    for (int i = 0; i < x->rank - x->complex; i++) {
        buf_f(out, "%s", i ? ", " : "");
        json_poly(m, out, x->axes[i]);
    }
    buf_f(out, "], \"batched\": %s, \"timed\": %s, \"gradient\": %s", x->kind != T_PARAM ? "true" : "false",
          tensor_per_step(x) ? "true" : "false", wants_gradient(m, t) ? "true" : "false");
    if (x->kind == T_STATE)
        buf_f(out, ", \"initial\": \"%s\"", m->roots.data[t].init >= 0 ? "spec" : "zero");
    if (x->kind == T_HISTORY)
        buf_f(out, ", \"initial\": \"zero\", \"history\": true%s", x->grows ? ", \"grows\": true" : "");
    if (x->range)
        json_range(m, out, x->range);
    if (x->reach)
        buf_f(out, ", \"reach\": true");
    if (x->init)
        json_init(out, x);
    const char *doc = trailing_comment(m, x->span);
    if (*doc) {
        buf_f(out, ", \"doc\": ");
        json_string(out, doc);
    }
    buf_f(out, "}");
}

static void json_tensors(const Module *m, Buf *out)
{
    const char *join = "";
    buf_f(out, "  \"tensors\": [\n");
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (m->tensors.data[t].kind > T_OUTPUT)
            continue;
        buf_f(out, "%s", join);
        json_tensor(m, out, t);
        join = ",\n";
    }
    buf_f(out, "\n  ],\n");
}

static void json_args(const Module *m, Buf *out, const char *key, const ApiMembers *members)
{
    static const char *const roles[] = { [ROLE_VALUE] = "value",
                                         [ROLE_FINAL] = "final",
                                         [ROLE_D_VALUE] = "gradient",
                                         [ROLE_D_OUT] = "output_gradient",
                                         [ROLE_D_FINAL] = "final_gradient" };
    buf_f(out, "  \"%s\": [\n", key);
    for (int i = 0; i < members->args.len; i++) {
        CallArg a = members->args.data[i];
        buf_f(out,
              "    {\"member\": \"%s\", \"tensor\": \"%s\", \"role\": \"%s\", \"optional\": %s, \"written\": "
              "%s}%s\n",
              members->name[i], m->tensors.data[a.tensor].name, roles[a.role], a.optional ? "true" : "false",
              api_written(m, a) ? "true" : "false", i + 1 < members->args.len ? "," : "");
    }
    buf_f(out, "  ],\n");
}

static void json_checks(const Module *m, Buf *out)
{
    const char *join = "";
    buf_f(out, "  \"checks\": [");
    for (int i = 0; i < m->quotients.len; i++) {
        buf_f(out, "%s{\"multiple\": ", join);
        json_poly(m, out, m->quotients.data[i].num);
        buf_f(out, ", \"of\": ");
        json_poly(m, out, m->quotients.data[i].den);
        buf_f(out, "}");
        join = ", ";
    }
    for (int i = 0; i < m->checks.len; i++) {
        buf_f(out, "%s{\"nonnegative\": ", join);
        json_poly(m, out, m->checks.data[i].nonneg);
        buf_f(out, ", \"message\": ");
        json_string(out, m->checks.data[i].text);
        buf_f(out, "}");
        join = ", ";
    }
    buf_f(out, "],\n");
}

static void json_entries(const Module *m, Buf *out)
{
    static const char *const entries[] = { "forward", "backward", "step", "workspace_bytes",
                                           "inference_bytes", "reserve_bytes", "memory", "instance" };
    buf_f(out, "  \"entries\": {");
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (i != 1 || m->has_grad)
            buf_f(out, "%s\"%s\": \"%s_%s\"", i ? ", " : "", entries[i], m->name, entries[i]);
    buf_f(out, "}\n");
}

void emit_manifest(const Module *m, Buf *out)
{
    ApiMembers fwd = api_forward(m), bwd = api_backward(m);
    buf_f(out,
          "{\n  \"manifest\": %d,\n  \"name\": \"%s\",\n  \"key\": \"%s\",\n  \"dtype\": \"%s\",\n  "
          "\"compute\": \"%s\",\n",
          MANIFEST_VERSION, m->cell ? m->cell : m->name, api_key(m), api_dtype(m->c->dtype),
          m->c->dtype == DT_F64 ? "f64" : "f32");
    buf_f(out, "  \"reverse\": %s,\n  \"lengths\": %s,\n", m->c->reverse ? "true" : "false",
          m->c->lengths ? "true" : "false");
    if (m->c->packed)
        buf_f(out, "  \"packed\": true,\n");
    json_sizes(m, out);
    json_settings(m, out, "bound", m->bound.data, m->bound.len);
    json_settings(m, out, "options", m->options.data, m->options.len);
    if (api_counts_steps(m))
        buf_f(out, "  \"counts_steps\": true,\n");
    json_tensors(m, out);
    json_args(m, out, "forward", &fwd);
    if (m->has_grad)
        json_args(m, out, "backward", &bwd);
    json_checks(m, out);
    json_entries(m, out);
    buf_f(out, "}\n");
}
