/* chunk_words.c: what the proof found, in words for `cellc explain`: per component whether its states
 * could go in chunks, in which form, or which term forbids it and where. In: a ChunkForm. Out: a line per
 * component. Nothing is decided here. */
#include <string.h>

#include "chunk.h"
#include "emit/emit.h"

enum { DEPTH = 6 };               /* of what is printed of an expression */

void chunk_expression(const Module *m, NodeId id, Buf *out)
{
    put_expression(m, id, DEPTH, false, out);
}

/* ---- verdicts ---- */

static void put_states(const ChunkForm *f, const ChunkComponent *k, Buf *out)
{
    buf_f(out, "%s", k->nstates > 1 ? "states " : "state ");
    for (int i = 0; i < k->nstates; i++)
        buf_f(out, "%s`%s`",
              i == 0               ? ""
              : i + 1 < k->nstates ? ", "
                                   : " and ",
              f->m->tensors.data[k->states[i]].name);
}

static void put_count(int n, const char *what, Buf *out)
{
    buf_f(out, "%d %s%s", n, what, n == 1 ? "" : "s");
}

static const char *decay_words(const ChunkForm *f, const ChunkComponent *k)
{
    bool decays = false, by_key = false, by_value = false;
    for (int u = 0; u < k->updates.len; u++) {
        decays |= k->updates.data[u].decays;
        by_key |= k->updates.data[u].by_key;
        by_value |= k->updates.data[u].per_value >= 0;
    }
    if (k->nstates > 1)
        return intern_f(f->m->c, "decay a %d x %d matrix", k->nstates, k->nstates);
    return by_key && by_value ? "decay per key and per value"
           : by_key           ? "decay per key"
           : by_value         ? "decay per value"
           : decays           ? "decay one number"
                              : "no decay";
}

static void put_axes(const ChunkForm *f, const ChunkComponent *k, bool heads, const char *what, Buf *out)
{
    int n = 0;
    for (int i = 0; i < k->rank; i++)
        if (i != k->key && k->is_head[i] == heads)
            buf_f(out, "%s%s", n++ ? " " : what, f->m->indices.data[k->axes[i]].name);
    if (!n && !heads)
        buf_f(out, ", one value");
}

static void put_why(const ChunkForm *f, const ChunkComponent *k, Buf *out)
{
    const char *place = source_place(f->m, k->at, false), *colon = strrchr(place, ':');
    bool here = k->at.file == f->m->span.file && colon;
    buf_f(out, "%s (%s%s)", k->why, here ? "line " : "", here ? colon + 1 : place);
}

static void put_form(const ChunkForm *f, const ChunkComponent *k, Buf *out)
{
    buf_f(out, " could go in chunks: %s, ", decay_words(f, k));
    if (k->updates.len > 1)
        buf_f(out, "%d updates a step, ", k->updates.len);
    put_count(chunk_additions(k, false), "addition", out);
    if (chunk_additions(k, true))
        buf_f(out, ", %d corrected", chunk_additions(k, true));
    buf_f(out, ", ");
    put_count(k->reads.len, "read", out);
    buf_f(out, "; K = axis %s", f->m->indices.data[k->axes[k->key]].name);
    put_axes(f, k, false, ", values ", out);
    put_axes(f, k, true, ", heads ", out);
    if (k->worth)
        return;
    buf_f(out, "; not worth it with less than %d keys or values", CHUNK_MANY);
    if (k->why && k->values->is_const && k->values->value == 1) {
        buf_f(out, ": ");
        put_why(f, k, out);
    }
}

void chunk_words(const ChunkForm *f, Buf *out)
{
    for (int i = 0; i < f->ncomponents; i++) {
        const ChunkComponent *k = &f->components[i];
        put_states(f, k, out);
        switch (k->verdict) {
        case CHUNK_QUALIFIES: put_form(f, k, out); break;
        case CHUNK_COLUMN:
            buf_f(out, " could go in chunks as one more column of `%s`",
                  f->m->tensors.data[f->components[k->column_of].states[0]].name);
            break;
        case CHUNK_ELEMENTS:
            buf_f(out, " cannot go in chunks: ");
            if (k->why)
                put_why(f, k, out);
            buf_f(out, "%seach element is linear in itself alone, which is for `scan`", k->why ? "; " : "");
            break;
        case CHUNK_REFUSED:
            buf_f(out, " cannot go in chunks: ");
            put_why(f, k, out);
            buf_f(out, "%s",
                  k->elements ? "; each element depends on itself alone, which is for `scan`" : "");
            break;
        }
        buf_f(out, "\n");
    }
}
