/* tile_rows.c: rows that a forward walk makes beside its steps. In come values of each step that no state feeds and only the
 * walk reads: rows along one axis, and sums of them (plan_made.c); out goes code for warps of their own, which make a chunk's
 * of them in shared memory, of what was fetched, while the others walk the chunk before it, and save what backward reads. A
 * row has as many lanes as it has groups of 4 elements, or of 8. */
#include <inttypes.h>

#include "base/mutate.h"
#include "templates/tile.h"
#include "tile_kernel.h"

/* The rows that are being printed: one loop makes all that reads one another. */
typedef struct Rows {
    Tile *t;
    Step *s;
    int64_t lanes;                /* of a row */
    int wide;                     /* elements of a lane */
    IndexId along;
    Buf *out;                     /* behind what is known, in front of the next loop over a thread's elements */
    VersionVec known, inverses;   /* variables, by what was read or made; 1 / node */
} Rows;

static Node node(const Tile *t, NodeId id)
{
    return t->m->nodes.data[id];
}

bool tile_makes(int64_t n)
{
    int64_t lanes = n / GROUP;
    return n % GROUP == 0 && lanes >= 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0;
}

bool tile_is_made(const Tile *t, NodeId array)
{
    return t->w->made && array < t->old_nodes && t->w->made[array];
}

static bool is_vector(const Tile *t, NodeId made)
{
    return node(t, made).naxes > t->npar;
}

static bool varies(const Rows *r, NodeId id)
{
    Node n = node(r->t, id);
    for (int k = 0; k < n.naxes; k++)
        if (n.axes[k] == r->along)
            return true;
    return false;
}

static const char *find(const VersionVec *v, NodeId id)
{
    for (int i = 0; i < v->len; i++)
        if (v->data[i].read == id)
            return v->data[i].name;
    return NULL;
}

static const char *remember(Rows *r, VersionVec *v, NodeId id, const char *base)
{
    Version x = { id, tile_unique(r->t, base) };
    vec_push(r->t->arena, v, x);
    return x.name;
}

static const char *own_element(const Rows *r, const char *name, bool vector)
{
    return vector ? tile_text(r->t, "%s[i]", name) : name;
}

/* The value at the block's own heads and the thread's element. */
static NodeId value_at(const Rows *r, NodeId body, const IndexId *axes, int naxes)
{
    const IxExpr *to[TILE_MAX_AXES];
    for (int k = 0; k < naxes; k++)
        to[k] = ix_index(r->t->m, k < r->t->npar ? r->t->par[k] : r->along);
    return node_subst(r->t->m, body, axes, to, naxes);
}

/* What was fetched, in a variable: four neighbours at once where they lie so. */
static const char *fetched(Rows *r, NodeId id, NodeId array, const IxExpr *const *map)
{
    Tile *t = r->t;
    Node n = node(t, id);
    bool vector = varies(r, id), is_node = array >= 0;
    const char *name = find(&r->known, id), *first;
    const char *base = is_node ? node(t, array).name : t->m->tensors.data[n.tensor].name;
    int of = is_node ? array : n.tensor;
    if (name)
        return own_element(r, name, vector);
    const Fetch *f = vector ? tile_fetch_run(r->s, is_node, of, map, r->along, r->wide, &first) : NULL;
    if (vector && !f)
        return tile_fetch_text(r->s, is_node, of, map);
    name = remember(r, &r->known, id, base ? base : "value");
    if (vector) {
        buf_line(r->out, "%s %s[%d];", t->real, name, r->wide);
        buf_line(r->out, "cell_load_vec<%d>(%s, %sfirst));", r->wide, name, first);
    } else {
        buf_line(r->out, "const %s %s = %s;", t->real, name, tile_fetch_text(r->s, is_node, of, map));
    }
    return own_element(r, name, vector);
}

static const char *leaf(ExprPrinter *p, NodeId id)
{
    Rows *r = p->data;
    Tile *t = r->t;
    Node n = node(t, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (n.kind == N_LOAD)
        return fetched(r, id, -1, n.map);
    if (n.kind == N_REDUCE)
        bug(t->m->c, "tile_rows", "a sum stands inside %%%d", id);
    NodeId array = tile_read(r->s, id, map);
    if (tile_is_made(t, array))
        return own_element(r, find(&r->known, array), is_vector(t, array));
    if (array < t->old_nodes && t->w->of_node[array].home != HOME_NONE)
        return fetched(r, id, array, map);
    Node a = node(t, array);
    return expr_text(p, node_subst(t->m, a.args[0], a.axes, map, a.naxes));
}

static ExprPrinter printer(Rows *r);

/* A divisor that is the same along the row is inverted once. */
static const char *reciprocal(ExprPrinter *p, NodeId id)
{
    Rows *r = p->data;
    const char *name = find(&r->inverses, id);
    if (varies(r, id) || node(r->t, id).kind == N_CONST)
        return NULL;
    if (name)
        return name;
    const char *text = expr_text(p, id);
    name = remember(r, &r->inverses, id, "inverse");
    buf_line(r->out, "const %s %s = cell_fast_div(1.0f, %s);", r->t->real, name, text);
    return name;
}

static ExprPrinter printer(Rows *r)
{
    ExprPrinter p = tile_printer(r->s);
    p.leaf = leaf;
    p.reciprocal = reciprocal;
    p.data = r;
    return p;
}

/* An index has no text of these rows only: the step's printer gives it. */
static const char *index_text(ExprPrinter *p, IndexId i)
{
    Rows *r = p->data;
    ExprPrinter step = tile_printer(r->s);
    return step.index(&step, i);
}

/* A thread's elements: of a vector, or added up. */
static void each_element(const Rows *r, const char *name, const char *operator, const char *text)
{
    buf_line(r->out, "CELL_UNROLL");
    buf_line(r->out, "for (int i = 0; i < %d; i++)", r->wide);
    buf_line(r->out, "    %s %s %s;", name, operator, text);
}

static void make_value(Rows *r, NodeId array)
{
    Tile *t = r->t;
    Node a = node(t, array), body = node(t, a.args[0]);
    ExprPrinter p = printer(r);
    p.index = index_text;
    const char *base = a.name ? a.name : "value", *origin = tile_origin(t, array);
    if (body.kind == N_REDUCE) {
        IndexId axes[TILE_MAX_AXES];
        for (int k = 0; k < t->npar; k++)
            axes[k] = a.axes[k];
        axes[t->npar] = body.bound[0];
        const char *text = expr_text(&p, value_at(r, body.args[0], axes, t->npar + 1));
        const char *name = remember(r, &r->known, array, tile_text(t, "sum_%s", base));
        buf_line(r->out, "%s %s = 0;%s", t->real, name, origin);
        each_element(r, name, "+=", text);
        if (!mutate("lost-row-sum"))
            buf_line(r->out, "%s = cell_group_sum<%" PRId64 ">(%s);", name, r->lanes, name);
        return;
    }
    const char *text = expr_text(&p, value_at(r, a.args[0], a.axes, a.naxes));
    const char *name = remember(r, &r->known, array, base);
    if (!is_vector(t, array)) {
        buf_line(r->out, "const %s %s = %s;%s", t->real, name, text, origin);
        return;
    }
    buf_line(r->out, "%s %s[%d];%s", t->real, name, r->wide, origin);
    each_element(r, tile_text(t, "%s[i]", name), "=", text);
}

/* Where the step's row has it, in memory. */
static const char *address(const Rows *r, NodeId array)
{
    Tile *t = r->t;
    const Storage *st = &t->w->of_node[array];
    Node a = node(t, array);
    const Poly *axes[TILE_MAX_AXES], *row = poly_const(t->m, 1);
    const IxExpr *map[TILE_MAX_AXES];
    for (int k = 0; k < a.naxes; k++) {
        axes[k] = t->m->indices.data[a.axes[k]].extent;
        map[k] = ix_index(t->m, k < t->npar ? t->par[k] : r->along);
        row = poly_mul(t->m, row, axes[k]);
    }
    ExprPrinter p = tile_printer(r->s);
    t->any_text = "first";
    const IxExpr *place = tile_linear(t, axes, map, a.naxes);
    const char *at = ix_text(&p, st->alias_offset ? ix_add(t->m, place, ix_const(t->m, st->alias_offset)) : place);
    t->any_text = "(first + i)";
    return tile_text(t, "(%s *)args.ptr[%d] + ((%s + %s) * (%s) + %s)", tile_ctype(t, st->dtype),
                     tile_ref(t, REF_NODE, array), tile_first_row(t), t->m->c->reverse ? "(T - 1 - t)" : "t",
                     poly_text(&p, st->pitch ? st->pitch : row), at);
}

static const Fetch *buffer_of(const Tile *t, NodeId array)
{
    for (int i = 0; i < t->fetches.len; i++)
        if (t->fetches.data[i].made && t->fetches.data[i].id == array)
            return &t->fetches.data[i];
    return NULL;
}

static void print_store(const Rows *r, bool vector, const char *to, const char *name, Buf *out)
{
    if (vector)
        buf_line(out, "cell_store_vec<%d>(%s, %s);", r->wide, to, name);
    else
        buf_line(out, "if (first == 0) cell_store(%s, %s);", to, name);
}

/* For the steps, and for backward. */
static void store_value(Rows *r, NodeId array, Buf *out)
{
    Tile *t = r->t;
    const Fetch *f = buffer_of(t, array);
    bool vector = is_vector(t, array), saved = t->w->of_node[array].home != HOME_NONE;
    const char *name = find(&r->known, array);
    if (f)
        print_store(r, vector, tile_text(t, "%s + (slot * %" PRId64 "%s)", f->name, f->padded, vector ? " + first" : ""), name, out);
    if (!saved)
        return;
    const char *to = address(r, array);
    buf_line(out, "if (args.ptr[%d])", tile_ref(t, REF_NODE, array));
    out->indent++;
    print_store(r, vector, to, name, out);
    out->indent--;
}

/* ---- which of them share a loop ---- */

static void mark_reads(const Tile *t, NodeId id, bool *seen, bool *marks)
{
    Node n = node(t, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (seen[id])
        return;
    seen[id] = true;
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = tile_read(t->forward, id, map);
        if (tile_is_made(t, array))
            marks[array] = true;
        else if (array >= t->old_nodes || t->w->of_node[array].home == HOME_NONE)
            mark_reads(t, node(t, array).args[0], seen, marks);
        return;
    }
    for (int i = 0; i < n.nargs; i++)
        mark_reads(t, n.args[i], seen, marks);
}

/* Up to the last array, those of both families are one, which is called by the first of all. */
static void join(NodeId *family, NodeId last, NodeId a, NodeId b)
{
    for (NodeId id = 0; id <= last; id++)
        if (family[id] == a || family[id] == b)
            family[id] = a < b ? a : b;
}

/* Per array, the first one of those that read one another, directly or not. */
static NodeId *find_families(const Tile *t)
{
    int n = t->old_nodes;
    NodeId *family = arena_alloc(t->arena, sizeof *family * (size_t)(n + 1));
    for (NodeId id = 0; id < n; id++) {
        family[id] = id;
        if (!tile_is_made(t, id))
            continue;
        size_t size = (size_t)t->m->nodes.len + 1;
        bool *marks = arena_alloc(t->arena, size);
        mark_reads(t, node(t, id).args[0], arena_alloc(t->arena, size), marks);
        for (NodeId k = 0; k < id; k++)
            if (marks[k])
                join(family, id, family[k], family[id]);
    }
    return family;
}

static int64_t row_length(const Tile *t, const NodeId *family, NodeId of)
{
    for (NodeId id = of; id < t->old_nodes; id++) {
        Node a = node(t, id);
        if (!tile_is_made(t, id) || family[id] != of)
            continue;
        if (is_vector(t, id) || node(t, a.args[0]).kind == N_REDUCE)
            return t->m->indices.data[is_vector(t, id) ? a.axes[t->npar] : node(t, a.args[0]).bound[0]].extent->value;
    }
    return 0;
}

static bool has_sum(const Tile *t, const NodeId *family, NodeId of)
{
    for (NodeId id = of; id < t->old_nodes; id++)
        if (family[id] == of && tile_is_made(t, id) && node(t, node(t, id).args[0]).kind == N_REDUCE)
            return true;
    return false;
}

/* Elements of a lane: 8 where a chunk's rows still fill a warp so. */
static int width_of(const Tile *t, const NodeId *family, NodeId of)
{
    int64_t n = row_length(t, family, of);
    return n % (2 * GROUP) == 0 && t->F * n >= 32 * 2 * GROUP ? 2 * GROUP : GROUP;
}

static int64_t lanes_of(const Tile *t, const NodeId *family, NodeId of)
{
    return row_length(t, family, of) / width_of(t, family, of);
}

/* Rounds of a warp that make the rows of a chunk. */
static int rounds_of(const Tile *t, const NodeId *family, NodeId of)
{
    return (int)((t->F * lanes_of(t, family, of) + 31) / 32);
}

/* One loop over the chunk's rows; the warps take turns from that one on. -> the warp behind the last one that has rows. */
static int make_family(Tile *t, const NodeId *family, NodeId of, int warp, Buf *out)
{
    int64_t lanes = lanes_of(t, family, of);
    int wide = width_of(t, family, of);
    Buf values = { .arena = t->arena }, stores = values;
    Rows r = { .t = t,
               .s = t->forward,
               .lanes = lanes,
               .wide = wide,
               .along = tile_any(t, lanes * wide),
               .out = &values };
    TileMadeRowsFrame f = { .lanes = tile_number(t, lanes), .wide = tile_number(t, wide) };
    t->any = r.along;
    t->any_text = "(first + i)";
    int walkers = tile_threads(&t->lay) / 32;
    f.start = t->makers == 1
                  ? "0"
                  : tile_text(t, "(warp - %d) %% %d", walkers - (t->makers - warp) % t->makers, t->makers);
    f.makers = tile_number(t, t->makers);
    for (NodeId id = of; id < t->old_nodes; id++)
        if (tile_is_made(t, id) && family[id] == of)
            make_value(&r, id);
    for (NodeId id = of; id < t->old_nodes; id++)
        if (tile_is_made(t, id) && family[id] == of)
            store_value(&r, id, &stores);
    f.values = tile_hole(t, &values);
    f.stores = tile_hole(t, &stores);
    tile_made_rows_frame(out, &f);
    return (warp + rounds_of(t, family, of)) % t->makers;
}

/* So many rounds take less than the steps, of which five take longer than two rounds, of about 500 cycles. A warp more than that is one more
 * among those that walk (measured on an H200: E88's walk of 64 heads 0.744 ms with one, 0.768 with two). */
static int rounds_of_warp(const Tile *t)
{
    enum { LEAST = 8 };
    int most = 2 * t->F / 5;
    return most > LEAST ? most : LEAST;
}

int tile_makers(const Tile *t)
{
    int rounds = 0;
    if (!t->w->made || t->w->dir != FORWARD)
        return 0;
    const NodeId *family = find_families(t);
    for (NodeId id = 0; id < t->old_nodes; id++)
        if (tile_is_made(t, id) && family[id] == id)
            rounds += rounds_of(t, family, id);
    return (rounds + rounds_of_warp(t) - 1) / rounds_of_warp(t);
}

void tile_print_made(Tile *t, Buf *out)
{
    int warp = 0;
    const NodeId *family = find_families(t);
    IndexId any = t->any;
    t->making = true;
    for (int sums = 1; sums >= 0; sums--)        /* long ones first, so that warps have as much to do */
        for (NodeId id = 0; id < t->old_nodes && !t->refused; id++)
            if (tile_is_made(t, id) && family[id] == id && has_sum(t, family, id) == (sums == 1))
                warp = make_family(t, family, id, warp, out);
    t->making = false;
    t->any = any;
}
