/* attention_fields.c: the fields of cell_attention for a head of a sequence: where operands, results and what
 * scores read lie, with their strides. In comes a plan; out go statements, in CUDA or C
 * (attention_print.h). */
#include <string.h>

#include "attention_print.h"
#include "base/mutate.h"
#include "emit/emit.h"
#include "plan/plan_pass.h"

/* ---- where things lie */

/* Texts: of the first step's element at the block's head, and the strides; `head`: from one query of the
 * keys' head to the next. */
typedef struct Place {
    const char *at, *row, *head, *element;
    bool real;
    const char *given; /* the pointer, where it may be null; or NULL */
} Place;

/* What axes of an operand are. */
typedef enum { OF_ROWS, OF_KEYS, OF_PAST } Operand;

/* The first element of the block's head: `axes` are those of the heads, with strides. */
static const char *head_place(Kernel *k, Operand of, const Poly *const *stride)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *place = "0";
    int n = of == OF_ROWS ? c->form.nheads : c->n_key_heads;
    for (int i = 0; i < n; i++) {
        int head = of == OF_ROWS ? i : c->key_of[i];
        const Poly *each = of == OF_ROWS ? poly_mul(k->p->m, c->form.heads[i].shared, stride[i]) : stride[i];
        place = k_sum(k, place, k_times(k, k_text(k, "h%d", head), each));
    }
    return place;
}

/* From one query of the keys' head to the next. */
static const char *query_stride(Kernel *k, const Poly *const *stride)
{
    const AttentionCut *c = attention_cut_of(k);
    for (int i = 0; i < c->form.nheads; i++)
        if (!poly_is_one(c->form.heads[i].shared))
            return k_poly(k, stride[i]);
    return "0";
}

/* With `row` elements from step to step, of `pitch` for each sequence's rows. */
static Place place_at(Kernel *k, Operand of, const char *pointer, const Poly *const *stride, const Poly *row,
                      const Poly *pitch, bool batched, bool timed)
{
    bool reverse = k->p->m->c->reverse && timed;
    const char *at = head_place(k, of, stride);
    if (batched && timed)
        at = k_sum(k, k_text(k, "(b * dim_T%s) * %s", reverse ? " + dim_T - 1" : "", k_poly(k, pitch)), at);
    else if (batched)
        at = k_sum(k, k_times(k, "b", pitch), at);
    Place x = { .head = of == OF_ROWS ? query_stride(k, stride) : "0" };
    const char *step = timed ? k_poly(k, pitch) : "0";
    x.row = reverse ? k_text(k, "-%s", step) : step;
    if (of == OF_PAST)
        x.row = k_poly(k, row);
    x.at = strcmp(at, "0") == 0 ? pointer : k_text(k, "%s + %s", pointer, at);
    return x;
}

/* The history that an operand of steps before the call is one of: does it have step j at place j? */
static bool grows(const Kernel *k)
{
    const Module *m = k->p->m;
    const AttentionCut *c = attention_cut_of(k);
    for (NodeId id = 0; id < c->form.sum; id++) {
        const Node *n = k_node(k, id);
        if (n->step && n->past >= 0 && m->tensors.data[n->past].axes[0] == m->tensors.data[c->k.past].axes[0])
            return m->tensors.data[n->past].grows;
    }
    return true;
}

/* Of steps before the call, -1 is the last: its row, where place j is step j, or j + 1 steps before. */
static void turn_past(Kernel *k, Place *x)
{
    const char *row = x->row;
    if (grows(k)) {
        x->at = k_text(k, "%s + t0 * %s", x->at, row);
    } else {
        x->at = k_text(k, "%s - %s", x->at, row);
        x->row = k_text(k, "-%s", row);
    }
}

/* Where the root of a tensor lies that the kernels take. */
static Place place_of(Kernel *k, TensorId t, Operand of)
{
    Plan *p = k->p;
    Module *m = p->m;
    const Read *r = &p->taken[t];
    const Storage *st = plan_storage(p, k->pr, r);
    NodeId id = m->tensors.data[t].kind == T_OUTPUT ? m->roots.data[t].output : m->roots.data[t].dinput;
    const Node root = *k_node(k, id);
    const IxExpr *lin = storage_linear(m, r, st);
    const Poly *pitch = st->pitch      ? st->pitch
                        : r->is_tensor ? tensor_elements(m, r->id)
                                       : array_elements(m, r->id);
    const Poly *stride[MAX_DIMS + 64] = { NULL };
    const int first = of == OF_PAST;
    for (int i = first; i < root.naxes; i++)
        stride[i - first] = ix_coefficient(m, lin, root.axes[i]);
    const char *from = k_pointer(k, r->is_tensor ? REF_TENSOR : REF_NODE, r->id, st->dtype);
    const char *offset = lin->offset->nterms ? k_poly(k, lin->offset) : "0";
    const char *base = strcmp(offset, "0") == 0 ? from : k_text(k, "%s + %s", from, offset);
    Place x = place_at(k, of, base, stride, first ? ix_coefficient(m, lin, root.axes[0]) : NULL, pitch,
                       st->batched, st->timed);
    int heads = of == OF_ROWS ? attention_cut_of(k)->form.nheads : attention_cut_of(k)->n_key_heads;
    x.element = root.naxes - first > heads ? k_poly(k, stride[root.naxes - first - 1]) : "0";
    x.real = st->dtype == p->compute;
    if (r->is_tensor && (m->tensors.data[r->id].kind == T_DOUT || m->tensors.data[r->id].kind == T_HISTORY))
        x.given = from;
    if (of == OF_PAST)
        turn_past(k, &x);
    return x;
}

/* The argument of the call that the tensor is, where the kernels write it. given: its pointer, which
 * backward may be null. */
static Place root_place(Kernel *k, TensorId t, NodeId root, Operand of)
{
    Module *m = k->p->m;
    const int rank = m->tensors.data[t].rank;
    const AttentionCut *c = attention_cut_of(k);
    const int heads = of == OF_ROWS ? c->form.nheads : c->n_key_heads;
    const Storage *st = &k->pr->node[root];
    const Read own = read_itself(m, root);
    const IxExpr *lin = storage_linear(m, &own, st);
    const Poly *stride[MAX_DIMS + 64] = { NULL };
    Read r;
    NodeId more;
    plan_resolve(k->p, between_body(k->p, root, t, &more), &r);
    for (int i = 0; i < rank; i++) {
        IndexId axis;
        ix_is_index(r.map[i], &axis);
        stride[i] = ix_coefficient(m, lin, axis);
    }
    const char *to = k_written(k, REF_NODE, root, st->dtype);
    Place x = place_at(k, of, to, stride, NULL, array_elements(m, root), true, true);
    x.element = rank > heads ? k_poly(k, stride[rank - 1]) : "1";
    x.real = st->dtype == k->p->compute;
    x.given = k->pr->dir == BACKWARD ? to : NULL;
    return x;
}

/* Where a tensor lies, [B, T, axes] or [B, place, axes], that the kernels write; `from` NULL. */
static Place rows_place(Kernel *k, TensorId t, Operand of, bool written)
{
    Module *m = k->p->m;
    const Tensor *x = &m->tensors.data[t];
    const Storage *st = &k->pr->tensor[t];
    const Poly *stride[MAX_DIMS + 64] = { NULL }, *n = poly_const(m, 1);
    const int first = of == OF_PAST;
    for (int i = x->rank - 1; i >= first; i--) {
        stride[i - first] = n;
        n = poly_mul(m, n, x->axes[i]);
    }
    const char *pointer = (written ? k_written : k_pointer)(k, REF_TENSOR, t, st->dtype);
    Place at = place_at(k, of, pointer, stride, n, first ? poly_mul(m, n, x->axes[0]) : n, true, !first);
    at.element = "1";
    at.real = st->dtype == k->p->compute;
    if (first)
        turn_past(k, &at);
    return at;
}

/* ---- the fields of cell_attention */

static void print_rows(Kernel *k, const char *field, const Place *x)
{
    const char *flag = x->real ? "true" : "false", *rows = attention_language(k)->rows;
    if (x->given) { /* what the call leaves out is 0, or not looked at */
        buf_line(k->out, "if (%s)", x->given);
        buf_line(k->out, "    %s = %s{ %s, %s, %s, %s, %s };", field, rows, x->at, x->row, x->head,
                 x->element, flag);
        buf_line(k->out, "else");
        /* In CUDA of the same type, which is then known where it is compiled. */
        if (attention_language(k) == &attention_c)
            buf_line(k->out, "    %s = %s{ &cell_attention_zero, 0, 0, 0, true };", field, rows);
        else
            buf_line(k->out, "    %s = %s{ &%s_zero, 0, 0, 0, %s };", field, rows,
                     attention_printing(k)->w->facts, flag);
        return;
    }
    buf_line(k->out, "%s = %s{ %s, %s, %s, %s, %s };", field, rows, x->at, x->row, x->head, x->element, flag);
}

static void put_result(Kernel *k, const char *field, const Place *x)
{
    const AttentionLanguage *to = attention_language(k);
    const char *at = x->given ? k_text(k, "%s ? %s : %s", x->given, x->at, to->null) : x->at;
    const char *adds =
        x->given && k->pr->dir == BACKWARD && !mutate("overwritten-gradients") ? "adds" : "false";
    buf_line(k->out, "%s = %s{ %s, %s, %s, %s, %s, %s };", field, to->result, at, x->row, x->head, x->element,
             x->real ? "true" : "false", adds);
}

/* What is added to a gradient of keys, in steps [begin, end) of the call. */
static void print_more(Kernel *k, const char *field, TensorId t, NodeId root)
{
    Module *m = k->p->m;
    const AttentionCut *c = attention_cut_of(k);
    const Node *r = k_node(k, root);
    NodeId more;
    AttentionMore x;
    between_body(k->p, root, t, &more);
    if (more < 0 || !attention_more(k->p, root, more, &x))
        return;
    const Tensor *from = &m->tensors.data[x.tensor];
    const Storage *st = &k->pr->tensor[x.tensor];
    const Poly *each[MAX_DIMS + 64] = { NULL }, *stride[MAX_DIMS + 64] = { NULL }, *n = poly_const(m, 1);
    for (int i = from->rank - 1; i >= 0; i--) {
        each[i] = n;
        n = poly_mul(m, n, from->axes[i]);
    }
    Read own;
    plan_resolve(k->p, between_body(k->p, root, t, &more), &own);
    for (int i = 0; i < own.nmap; i++)
        for (int a = 0; a < r->naxes; a++)
            if (x.map[a + 1] == own.map[i])
                stride[i] = each[a + 1];
    const char *pointer = k_pointer(k, REF_TENSOR, x.tensor, st->dtype);
    const char *first = k_bare(k, ix_text(&k->printer, x.first)), *places = k_poly(k, from->axes[0]);
    const char *row = k_poly(k, each[0]), *sign = x.by->value < 0 ? "-" : "";
    const char *element = own.nmap > c->n_key_heads ? k_poly(k, stride[own.nmap - 1]) : "0";
    buf_line(k->out, "if (%s) {", pointer);
    buf_line(k->out, "    %s.from = { %s + b * %s + %s + (%s) * %s, %s%s, 0, %s, %s };", field, pointer,
             k_poly(k, n), head_place(k, OF_KEYS, stride), first, row, sign, row, element,
             st->dtype == k->p->compute ? "true" : "false");
    if (x.by->value > 0) {
        buf_line(k->out, "    %s.begin = cell_attention_bound(%s);", field, first);
        buf_line(k->out, "    %s.end = cell_attention_bound((%s) - %s);", field, first, places);
    } else {
        buf_line(k->out, "    %s.begin = cell_attention_bound(%s - 1 - (%s));", field, places, first);
        buf_line(k->out, "    %s.end = cell_attention_bound(-(%s) - 1);", field, first);
    }
    buf_line(k->out, "}");
}

static void print_result(Kernel *k, const char *field, TensorId t, Operand of)
{
    NodeId root = t < 0 ? -1 : between_copy(k->p, k->pr, t);
    if (root >= 0) {
        Place x = root_place(k, t, root, of);
        put_result(k, field, &x);
    } else if (t >= 0 && k->pr->tensor[t].home != HOME_NONE) {
        Place x = rows_place(k, t, of, true);
        put_result(k, field, &x);
    }
}

static void print_leaf(Kernel *k, const char *name, const Place *x, bool head)
{
    const AttentionLanguage *to = attention_language(k);
    if (x->given)
        buf_line(k->out, "%s%s = %s ? %s : %s;", to->uses, name, x->given, x->at, to->null);
    else
        buf_line(k->out, "%s%s = %s;", to->uses, name, x->at);
    buf_line(k->out, "%s%s_row = %s;", to->uses, name, x->row);
    if (head)
        buf_line(k->out, "%s%s_head = %s;", to->uses, name, x->head);
}

/* An integer of an input, now or in its history. */
static Place whole_place(Kernel *k, const AttentionRead *r, bool past)
{
    Module *m = k->p->m;
    const Node n = *k_node(k, past || r->leaf.side == LEAF_ROW ? r->leaf.node : r->leaf.value);
    TensorId t = past ? k_node(k, r->leaf.node)->past : n.tensor;
    const Storage *st = &k->pr->tensor[t];
    const Tensor *x = &m->tensors.data[t];
    const Node own = *k_node(k, r->leaf.side == LEAF_KEY ? r->leaf.value : r->leaf.node);
    const IxExpr *lin = ix_const(m, poly_const(m, 0));
    const Poly *stride = poly_const(m, 1);
    for (int i = own.nmap - 1; i >= 0; i--) {
        lin = ix_add(m, lin, ix_scale(m, own.map[i], stride));
        stride = poly_mul(m, stride, x->axes[i + past]);
    }
    const char *pointer = k_pointer(k, REF_TENSOR, t, st->dtype);
    for (int i = 0; i < attention_cut_of(k)->form.nheads; i++)
        k->index[attention_cut_of(k)->form.heads[i].axis] =
            k_text(k, "(h%d * %s)", i, k_poly(k, attention_cut_of(k)->form.heads[i].shared));
    const char *element = ix_text(&k->printer, lin);
    const char *rows =
        past ? k_text(k, "b * %s", k_poly(k, poly_mul(m, stride, x->axes[0])))
             : k_text(k, "(b * dim_T%s) * %s", m->c->reverse ? " + dim_T - 1" : "", k_poly(k, stride));
    if (x->lengths) /* one number of the sequence */
        return (Place){ .at = k_text(k, "%s + b", pointer), .row = "0", .head = "0", .element = "0" };
    const Poly *head = poly_const(m, 0);
    for (int i = 0; i < attention_cut_of(k)->form.nheads; i++)
        if (!poly_is_one(attention_cut_of(k)->form.heads[i].shared))
            head = ix_coefficient(m, lin, attention_cut_of(k)->form.heads[i].axis);
    Place at = { .at = k_text(k, "%s + %s + %s", pointer, rows, element),
                 .row = past || !m->c->reverse ? k_poly(k, stride) : k_text(k, "-%s", k_poly(k, stride)),
                 .head = k_poly(k, head),
                 .element = "0",
                 .given = past ? pointer : NULL };
    if (past)
        turn_past(k, &at);
    return at;
}

static void print_leaves(Kernel *k)
{
    Module *m = k->p->m;
    const AttentionCut *c = attention_cut_of(k);
    const char *uses = attention_language(k)->uses;
    for (int i = 0; i < 2 + m->dims.len; i++)
        buf_line(k->out, "%sdim_%s = dim_%s;", uses, api_sizes(m)[i], api_sizes(m)[i]);
    buf_line(k->out, "%st0 = t0;", uses);
    for (int i = 0; i < c->form.nheads; i++)
        buf_line(k->out, "%sh%d = h%d;", uses, i, i);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        const char *name = k_text(k, "leaf%d", i);
        if (r->leaf.side == LEAF_TABLE) {
            const Read *of = &k->p->taken[r->operand.now];
            const Storage *st = plan_storage(k->p, k->pr, of);
            buf_line(k->out, "%s%s = %s;", uses, name,
                     k_pointer(k, of->is_tensor ? REF_TENSOR : REF_NODE, of->id, st->dtype));
            continue;
        }
        Operand side = r->leaf.side == LEAF_ROW ? OF_ROWS : OF_KEYS;
        Place x = r->leaf.whole ? whole_place(k, r, false) : place_of(k, r->operand.now, side);
        print_leaf(k, name, &x, side == OF_ROWS);
        if (side == OF_ROWS || !c->history)
            continue;
        x = r->leaf.whole ? whole_place(k, r, true) : place_of(k, r->operand.past, OF_PAST);
        print_leaf(k, k_text(k, "%s_past", name), &x, false);
    }
}

static void print_segment(Kernel *k, int n, bool past)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *step = attention_language(k)->step;
    Operand of = past ? OF_PAST : OF_KEYS;
    Place key = place_of(k, past ? c->k.past : c->k.now, of),
          value = place_of(k, past ? c->v.past : c->v.now, of);
    print_rows(k, k_text(k, "x.segment[%d].k", n), &key);
    print_rows(k, k_text(k, "x.segment[%d].v", n), &value);
    if (past) {
        const char *places = k_poly(k, k->p->m->tensors.data[c->k.past].axes[0]);
        buf_line(k->out, "x.segment[%d].begin = -%s(t0 < %s ? t0 : %s);", n, step, places, places);
    } else {
        buf_line(k->out, "x.segment[%d].end = %sdim_T;", n, step);
    }
    if (attention_printing(k)->kernel != ATTENTION_KEYS && attention_printing(k)->kernel != ATTENTION_BACK)
        return;
    TensorId dk = past ? c->k.d_past : attention_cotangent(k->p->m, c->k.now);
    TensorId dv = past ? c->v.d_past : attention_cotangent(k->p->m, c->v.now);
    print_result(k, k_text(k, "x.segment[%d].dk", n), dk, of);
    print_result(k, k_text(k, "x.segment[%d].dv", n), dv, of);
    const NodeId root_of[2] = { dk < 0 ? -1 : between_copy(k->p, k->pr, dk),
                                dv < 0 ? -1 : between_copy(k->p, k->pr, dv) };
    if (root_of[0] >= 0)
        print_more(k, k_text(k, "x.segment[%d].more_k", n), dk, root_of[0]);
    if (root_of[1] >= 0)
        print_more(k, k_text(k, "x.segment[%d].more_v", n), dv, root_of[1]);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        if (r->leaf.side == LEAF_KEY && attention_is_term(k->p, r))
            print_result(k, k_text(k, "x.segment[%d].d_column[%d]", n, attention_term_of(k, i)),
                         past ? r->operand.d_past : attention_cotangent(k->p->m, r->operand.now), of);
    }
}

/* Of a row: [B, T, heads, queries]. */
static void print_buffer(Kernel *k, const char *field, int buffer)
{
    if (buffer < 0)
        return;
    const AttentionCut *c = attention_cut_of(k);
    const char *rows = k_poly(k, poly_mul(k->p->m, c->heads, c->group)), *group = k_poly(k, c->group);
    const char *pointer = k_written(k, REF_BUFFER, buffer, k->p->compute);
    buf_line(k->out, "x.%s = %s ? %s + b * dim_T * %s + head * %s : %s;", field, pointer, pointer, rows,
             group, attention_language(k)->null);
    buf_line(k->out, "x.%s_row = %s;", field, rows);
    buf_line(k->out, "x.%s_head = 1;", field);
}

static void print_gradients(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    Place dy = place_of(k, c->given, OF_ROWS);
    print_rows(k, "x.dy", &dy);
    if (c->form.kind == ATTENTION_SOFTMAX) {
        Place y = rows_place(k, c->given, OF_ROWS, false);
        print_rows(k, "x.y", &y);
    }
    if (c->log >= 0 && k->p->m->roots.data[c->log].dinput >= 0) {
        Place d_log = place_of(k, c->log, OF_ROWS);
        print_rows(k, "x.d_lse", &d_log);
    }
    print_buffer(k, "dots", attention_printing(k)->w->dots);
    if (attention_printing(k)->kernel != ATTENTION_ROWS && attention_printing(k)->kernel != ATTENTION_BACK)
        return;
    print_result(k, "x.dq", attention_cotangent(k->p->m, c->q), OF_ROWS);
    if (c->rest >= 0)
        print_result(k, "x.d_sink", attention_cotangent(k->p->m, c->reads.data[c->rest].operand.now),
                     OF_ROWS);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        if (r->leaf.side == LEAF_ROW && attention_is_term(k->p, r))
            print_result(k, k_text(k, "x.d_row[%d]", attention_term_of(k, i)),
                         attention_cotangent(k->p->m, r->operand.now), OF_ROWS);
    }
}

/* y, and once more for backward, where y is an output of the call. */
static void print_outputs(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    print_result(k, "x.out", c->given, OF_ROWS);
    print_result(k, "x.log", c->log, OF_ROWS);
    if (between_copy(k->p, k->pr, c->given) < 0 || k->pr->tensor[c->given].home == HOME_NONE)
        return;
    Place kept = rows_place(k, c->given, OF_ROWS, true);
    kept.given = k_pointer(k, REF_TENSOR, c->given, k->pr->tensor[c->given].dtype);
    put_result(k, "x.kept", &kept);
}

void attention_print_heads(Kernel *k)
{
    Module *m = k->p->m;
    const AttentionCut *c = attention_cut_of(k);
    const Poly *stride = poly_const(m, 1);
    for (int i = c->form.nheads - 1; i >= 0; i--) {
        const AttentionHead *h = &c->form.heads[i];
        const Poly *n = poly_div(m, m->indices.data[h->axis].extent, h->shared);
        const char *digit = poly_is_one(stride) ? "head" : k_text(k, "head / %s", k_poly(k, stride));
        buf_line(k->out, "%sconst int64_t h%d = %s %% %s;", attention_language(k)->unused, i, digit,
                 k_poly(k, n));
        stride = poly_mul(m, stride, n);
    }
}

void attention_print_fields(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *step = attention_language(k)->step;
    buf_line(k->out, "x.keys = %d;", c->keys);
    buf_line(k->out, "x.values = %d;", c->values);
    buf_line(k->out, "x.steps = %sdim_T;", step);
    buf_line(k->out, "x.group = %s%s;", step, k_poly(k, c->group));
    if (c->scale >= 0)
        buf_line(k->out, "x.scale = %s;", k_bare(k, expr_text(&k->printer, c->scale)));
    print_leaves(k);
    Place q = place_of(k, c->q, OF_ROWS);
    print_rows(k, "x.q", &q);
    print_segment(k, 0, false);
    if (c->history)
        print_segment(k, 1, true);
    print_buffer(k, "lse", attention_printing(k)->w->sums);
    if (attention_printing(k)->kernel <= ATTENTION_COMBINE)
        print_outputs(k);
    else
        print_gradients(k);
}
