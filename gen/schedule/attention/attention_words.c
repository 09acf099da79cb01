/* attention_words.c: what the proof found, in words for `cellc explain`: per sum over the past whether it is
 * attention, of which form, or which term forbids it and where. Nothing is decided here. */
#include "attention.h"
#include "emit/emit.h"

enum { DEPTH = 6 }; /* of what is printed of an expression */

static void put(const Module *m, NodeId id, Buf *out)
{
    put_expression(m, id, DEPTH, false, out);
}

static void put_axes(const Module *m, const Attention *a, Buf *out)
{
    for (int i = 0; i < a->nheads; i++) {
        buf_f(out, "%s%s", i ? " " : "; heads ", m->indices.data[a->heads[i].axis].name);
        if (poly_is_one(a->heads[i].shared))
            continue;
        buf_f(out, " (");
        poly_print(m, a->heads[i].shared, out);
        buf_f(out, " for each of the keys)");
    }
    for (int i = 0; i < a->ncolumns; i++)
        buf_f(out, "%s%s", i ? " " : ", values ", m->indices.data[a->columns[i]].name);
    if (!a->ncolumns)
        buf_f(out, ", one value");
}

static void put_leaves(const Module *m, const Attention *a, LeafSide side, const char *what, Buf *out)
{
    int n = 0;
    for (int i = 0; i < a->leaves.len; i++) {
        if (a->leaves.data[i].side != side)
            continue;
        buf_f(out, "%s", n++ ? ", " : what);
        put(m, a->leaves.data[i].value, out);
    }
}

/* How many conditions leave out whole tiles, and how many are asked of each pair. */
static void put_conditions(const Attention *a, Buf *out)
{
    int n = 0;
    for (int i = 0; i < a->conditions.len; i++)
        n += !a->conditions.data[i].room;
    buf_f(out, "; %d condition%s on steps", a->conditions.len - n, a->conditions.len - n == 1 ? "" : "s");
    if (n)
        buf_f(out, ", %d other%s", n, n == 1 ? "" : "s");
}

/* What a softmax adds beside pairs. */
static void put_others(const Module *m, const Attention *a, Buf *out)
{
    for (int i = 0; i < a->others.len; i++) {
        const AttentionOther *x = &a->others.data[i];
        buf_f(out, "%s", i ? ", " : "; beside the past ");
        if (x->index >= 0) {
            poly_print(m, m->indices.data[x->index].extent, out);
            buf_f(out, " places of score ");
        } else {
            buf_f(out, "a place of score ");
        }
        put(m, x->score, out);
    }
}

static const char *name_of(const Module *m, const Attention *a)
{
    const char *line = line_words(m, m->nodes.data[a->sum].span);
    return a->name ? intern_f(m->c, "`%s`", a->name) : intern_f(m->c, "a sum of %s", line);
}

static void put_form(const Module *m, const Attention *a, Buf *out)
{
    buf_f(out, "in attention: %s ", name_of(m, a));
    buf_f(out, a->kind == ATTENTION_SOFTMAX ? "is weighed by a softmax" : "is weighed");
    buf_f(out, ", dot = (");
    put(m, a->q, out);
    buf_f(out, ") . (");
    put(m, a->k, out);
    buf_f(out, "), %s ", a->kind == ATTENTION_SOFTMAX ? "score" : "weight");
    put(m, a->score, out);
    buf_f(out, ", of ");
    put(m, a->v, out);
    put_axes(m, a, out);
    put_leaves(m, a, LEAF_ROW, "; of a step ", out);
    put_leaves(m, a, LEAF_KEY, "; of the other step ", out);
    put_leaves(m, a, LEAF_TABLE, "; by place ", out);
    put_others(m, a, out);
    put_conditions(a, out);
}

void attention_words(const Module *m, const Attentions *all, Buf *out)
{
    for (int i = 0; i < all->len; i++) {
        const Attention *a = &all->data[i];
        if (a->why)
            buf_f(out, "not in attention: %s: %s", name_of(m, a), reason_words(m, a->why));
        else
            put_form(m, a, out);
        buf_f(out, "\n");
    }
}
