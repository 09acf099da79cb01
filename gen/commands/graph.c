/* graph.c: the data flow of a planned cell, for Graphviz. In: a plan. Out: one direction of it: the named values in
 * boxes of their phase, tensors around them, an arrow for each value that another is computed from. What has no name
 * of the spec is drawn through: who reads it reads what it is made of. Nodes have a class (value, input, param, state,
 * result; a phase, a carry), by which a page can style the SVG. */
#include "base/say.h"
#include "graph.h"

#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "generate.h"

typedef struct Graph {
    const Plan *p;
    Module *m;
    const Program *g;
    Buf *out;
    bool *drawn;                  /* per node: a named value of this direction */
    bool *kept;                   /* per node: forward made it, backward finds it in memory */
    bool *used;                   /* per node: something reads it */
    bool *tensor;                 /* per tensor: something reads it */
    int *seen;                    /* per node: the last reader that it was drawn through for, + 1 */
} Graph;

static const Node *at(const Graph *g, NodeId id)
{
    return &g->m->nodes.data[id];
}

static void shape_text(const Graph *g, const Poly *const *axes, int n, Buf *b)
{
    for (int i = 0; i < n; i++) {
        buf_f(b, i ? ", " : "[");
        poly_print_spec(g->m, axes[i], b);
    }
    buf_f(b, n ? "]" : "");
}

static const char *node_label(const Graph *g, NodeId id)
{
    Buf b = { .arena = g->m->arena };
    const Poly *axes[MAX_POINTERS];
    int n = at(g, id)->naxes;
    for (int i = 0; i < n; i++)
        axes[i] = g->m->indices.data[at(g, id)->axes[i]].extent;
    TensorId of;
    bool next = root_kind(g->m, id, &of) == ROOT_NEXT;
    buf_f(&b, "%s%s ", next ? g->m->tensors.data[of].name : at(g, id)->name, next ? "'" : "");
    shape_text(g, axes, n, &b);
    return b.data;
}

/* An arrow to `to` from each drawn value and tensor that `id` is made of. */
static void arrows(Graph *g, NodeId id, const char *to, int reader)
{
    for (int i = 0; i < at(g, id)->nargs; i++) {
        NodeId arg = at(g, id)->args[i];
        if (g->seen[arg] == reader)
            continue;
        g->seen[arg] = reader;
        if (g->kept[arg] || g->drawn[arg])
            buf_line(g->out, "v%d -> %s;", arg, to);
        else
            arrows(g, arg, to, reader);
        g->used[arg] = true;
        if (at(g, arg)->kind == N_LOAD) {
            TensorId t = at(g, arg)->tensor;
            if (g->seen[g->m->nodes.len + t] != reader)
                buf_line(g->out, "t%d -> %s;", t, to);
            g->seen[g->m->nodes.len + t] = reader;
            g->tensor[t] = true;
        }
    }
}

static void put_phase(Graph *g, Phase phase, const char *title)
{
    bool open = false;
    for (NodeId id = 0; id < g->p->n_nodes; id++) {
        if (!g->drawn[id] || g->g->phase[id] != phase)
            continue;
        if (!open) {
            buf_line(g->out, "subgraph cluster_%d {", (int)phase);
            g->out->indent++;
            buf_line(g->out, "label=\"%s\"; style=rounded; color=gray; class=phase;", title);
        }
        open = true;
        buf_line(g->out, "v%d [label=\"%s\", class=value];", id, node_label(g, id));
    }
    if (open) {
        g->out->indent--;
        buf_line(g->out, "}");
    }
}

static void put_carry(Graph *g, NodeId id, TensorId t, const char *label)
{
    g->tensor[t] = true;
    buf_line(g->out, "v%d -> t%d [style=dashed, constraint=false, label=\"%s\", class=carry];", id, t, label);
}

/* Where a value goes: outputs, states of the next step, gradients. */
static void put_root(Graph *g, NodeId id)
{
    TensorId of;
    RootKind root = root_kind(g->m, id, &of);
    const char *name = root == ROOT_NONE ? NULL : g->m->tensors.data[of].name;
    switch (root) {
    case ROOT_OUTPUT:
        buf_line(g->out, "r%d [label=\"%s\", shape=box, style=bold, class=result]; v%d -> r%d;", id, name, id, id);
        break;
    case ROOT_NEXT:
        put_carry(g, id, of, "next step");
        break;
    case ROOT_DPREV:
        for (TensorId t = 0; t < g->m->tensors.len; t++)
            if (g->m->tensors.data[t].kind == T_DNEXT && g->m->tensors.data[t].of == of)
                put_carry(g, id, t, "step before");
        break;
    case ROOT_DINPUT:
    case ROOT_DPARAM:
    case ROOT_DPARAM_INIT:
    case ROOT_DPAST:
        buf_line(g->out, "r%d [label=\"gradient of %s\", shape=box, style=bold, class=result]; v%d -> r%d;", id, name, id, id);
        break;
    default:
        break;
    }
}

static void put_tensor(Graph *g, TensorId t)
{
    const Tensor *x = &g->m->tensors.data[t];
    Buf shape = { .arena = g->m->arena };
    shape_text(g, x->axes, x->rank, &shape);
    const char *what = x->kind == T_DOUT || x->kind == T_DNEXT || x->kind == T_DHISTORY ? "cotangent of " : "";
    const char *name = *what && x->of >= 0 ? g->m->tensors.data[x->of].name : x->name;
    bool param = x->kind == T_PARAM, state = x->kind == T_STATE || x->kind == T_DNEXT;
    buf_line(g->out, "t%d [label=\"%s%s %s\", shape=%s, class=%s];", t, what, name, shape.data ? shape.data : "",
             param ? "note" : state ? "cylinder" : "box", param ? "param" : state ? "state" : "input");
}

/* A drawn value is a root, or has a name and is no other name of a value. */
static void choose(Graph *g)
{
    for (NodeId id = 0; id < g->p->n_nodes; id++) {
        TensorId of;
        bool forward_root = root_kind(g->m, id, &of) == ROOT_OUTPUT || root_kind(g->m, id, &of) == ROOT_NEXT;
        bool named = at(g, id)->kind == N_ARRAY && (at(g, id)->name || root_kind(g->m, id, &of) != ROOT_NONE);
        g->drawn[id] = named && g->g->phase[id] != PHASE_NONE && (!g->p->is_alias[id] || forward_root) &&
                       !g->p->rounded[id];
        g->kept[id] = named && g->g->dir == BACKWARD && g->g->phase[id] == PHASE_NONE &&
                      g->g->node[id].home != HOME_NONE;
    }
}

/* After the arrows. */
static void put_kept(Graph *g)
{
    buf_line(g->out, "subgraph cluster_kept {");
    g->out->indent++;
    buf_line(g->out, "label=\"kept by forward\"; style=rounded; color=gray; class=phase;");
    for (NodeId id = 0; id < g->p->n_nodes; id++)
        if (g->kept[id] && g->used[id])
            buf_line(g->out, "v%d [label=\"%s\", class=value];", id, node_label(g, id));
    g->out->indent--;
    buf_line(g->out, "}");
}

void graph_dot(Plan *p, Direction d, Buf *out)
{
    Module *m = p->m;
    int nodes = m->nodes.len, tensors = m->tensors.len;
    Graph g = { .p = p, .m = m, .g = &p->program[d], .out = out,
                .drawn = arena_alloc(m->arena, (size_t)nodes + 1), .kept = arena_alloc(m->arena, (size_t)nodes + 1),
                .used = arena_alloc(m->arena, (size_t)nodes + 1),
                .tensor = arena_alloc(m->arena, (size_t)tensors + 1),
                .seen = arena_alloc(m->arena, sizeof *g.seen * (size_t)(nodes + tensors + 1)) };
    choose(&g);
    buf_line(out, "digraph \"%s\" {", m->name);
    out->indent++;
    buf_line(out, "label=\"%s, %s\"; labelloc=t; rankdir=LR; fontname=Helvetica; fontsize=12;",
             m->name, d == FORWARD ? "forward" : "backward");
    buf_line(out, "node [shape=ellipse, fontname=Helvetica, fontsize=11];");
    buf_line(out, "edge [fontname=Helvetica, fontsize=10, arrowsize=0.7];");
    put_phase(&g, PHASE_PARAM, "once");
    put_phase(&g, PHASE_BEFORE, p->schedule->stateless ? "all steps at once" : "all steps at once, before the walk");
    put_phase(&g, PHASE_DURING, "step by step");
    for (int k = 1; k < plan_walk_count(p); k++)
        put_phase(&g, (Phase)((int)PHASE_BETWEEN + k - 1), "all steps at once, between two walks");
    put_phase(&g, PHASE_AFTER, "all steps at once, after the walk");
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (g.drawn[id]) {
            arrows(&g, id, intern_f(m->c, "v%d", id), id + 1);
            put_root(&g, id);
        }
    if (d == BACKWARD)
        put_kept(&g);
    for (TensorId t = 0; t < tensors; t++)
        if (g.tensor[t])
            put_tensor(&g, t);
    out->indent--;
    buf_line(out, "}");
}

bool graph_picture(Compiler *c, const char *path, const char *format, const Buf *dot)
{
    const char *source = intern_f(c, "%s.dot", path);
    if (!write_text(source, dot))
        return false;
    Words w = { .n = 0 };
    const char *const words[] = { "dot", intern_f(c, "-T%s", format), "-o", path, source };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words_add(&w, words[i]);
    int rc = run_words(&w, false);
    if (rc == 127)
        say(DIAG_ERROR, NULL, "the picture wants Graphviz (apt-get install graphviz); its source is %s", source);
    else
        unlink(source);
    return rc == 0;
}
