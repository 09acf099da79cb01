/* tile_sums.c: a step's reductions. In: a reduction and the layout. Out: its variables, what a thread adds up, what its lanes do
 * together, and what goes to the exchange buffer, for the warps of the block or all blocks of the cluster. Guaranteed: every
 * reduction has one fixed order. */
#include <inttypes.h>
#include <string.h>

#include "base/mutate.h"
#include "tile_step.h"

static bool power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Warps that hold partial results. */
int red_warps(const Tile *t, const Red *r)
{
    return (r->over_row ? tile_row_warps(&t->lay) : 1) * (r->over_col ? t->lay.wc : 1);
}

/* Do other threads read it within the step, or of it what warps add up? */
bool red_shared(const Tile *t, const Red *r)
{
    return r->crossed || red_warps(t, r) > 1;
}

bool red_published(const Tile *t, const Red *r)
{
    return r->kept || red_shared(t, r);
}

/* Goes to the exchange buffers of all blocks of the cluster: they add up its parts, or read each other's rows. */
bool red_far(const Tile *t, const Red *r)
{
    return t->lay.cr > 1 && (r->over_row || r->far);
}

bool red_rows(const Red *r)
{
    return r->vary_row && !r->over_row;
}

bool red_cols(const Red *r)
{
    return r->vary_col && !r->over_col;
}

/* Sums over all blocks that nothing but outs reads: each block gets what it stores. */
bool red_spread(const Tile *t, const Red *r)
{
    return red_far(t, r) && red_cols(r) && !r->inside && !r->whole;
}

/* Elements that one warp's partial result takes in the exchange buffer. */
int red_pitch(const Tile *t, const Red *r)
{
    int n = red_spread(t, r) ? (int)tile_share(t, &t->lay, t->cols)
            : red_rows(r)    ? tile_block_rows(&t->lay) * (red_far(t, r) ? t->lay.cr : 1)
            : red_cols(r)    ? t->lay.wc * t->lay.lc * t->lay.rc
                             : 1;
    return n > 1 ? (n + 3) / 4 * 4 : 1;
}

/* What the thread accumulates into: the result itself, unless that is put together from several warps. */
const char *red_own(const Tile *t, const Red *r)
{
    return red_warps(t, r) > 1 ? r->own : r->var;
}

const char *red_function(ReduceOp op)
{
    return op == R_SUM ? "sum" : op == R_PROD ? "prod" : op == R_MAX ? "max" : "min";
}

const char *red_combine(Tile *t, ReduceOp op, const char *a, const char *b)
{
    if (op == R_SUM || op == R_PROD)
        return tile_text(t, "%s %s %s", a, op == R_SUM ? "+" : "*", b);
    return tile_text(t, "cell_%s(%s, %s)", red_function(op), a, b);
}

/* Where the thread's own elements begin there. */
const char *red_first(const Tile *t, const Red *r)
{
    return !red_rows(r) ? "col0" : t->lay.cr > 1 && !red_far(t, r) ? "own_row0" : "row0";
}

static const char *red_identity(const Tile *t, ReduceOp op)
{
    bool f64 = t->real_bytes == 8;
    switch (op) {
    case R_MAX: return f64 ? "-CELL_INF" : "-CELL_INF_F";
    case R_MIN: return f64 ? "CELL_INF" : "CELL_INF_F";
    case R_PROD: return "1";
    default: return "0";
    }
}

void tile_declare_red(Step *s, const Red *r, const char *name, Buf *out)
{
    Tile *t = s->t;
    bool row = red_rows(r), col = red_cols(r);
    int n = row ? t->lay.rr : t->lay.rc;
    if (!row && !col) {
        buf_line(out, "%s %s = %s;", t->real, name, red_identity(t, r->op));
        return;
    }
    Buf init = { .arena = t->arena };
    for (int i = 0; i < n; i++)
        buf_f(&init, "%s%s", i ? ", " : "", red_identity(t, r->op));
    buf_line(out, "%s %s[%d] = { %s };", t->real, name, n, init.data);
}

enum { MOST_TERMS = 4 };

typedef struct Term { int sign; NodeId id; } Term;

/* The products that a term adds up, as far as they are few; -> how many. */
static int products(const Step *s, NodeId id, int sign, Term *out, int n)
{
    Node x = node(s, id);
    if (x.kind == N_MAP && x.op == OP_NEG)
        return products(s, x.args[0], -sign, out, n);
    if (x.kind == N_MAP && (x.op == OP_ADD || x.op == OP_SUB)) {
        n = products(s, x.args[0], sign, out, n);
        return n < 0 ? n : products(s, x.args[1], x.op == OP_SUB ? -sign : sign, out, n);
    }
    if (n < 0 || n == MOST_TERMS || x.kind != N_MAP || x.op != OP_MUL)
        return -1;
    out[n] = (Term){ sign, id };
    return n + 1;
}

static bool reads(const Node *n, NodeId id)
{
    for (int i = 0; i < n->nargs; i++)
        if (n->args[i] == id)
            return true;
    return false;
}

/* Does what is computed for other gradients than the sum take the term too? Then it must not be left to nvcc
 * whether the term is fused with the sum, since it need not choose the same for calls that want fewer. */
static bool is_taken_for_others(const Step *s, const Red *r, NodeId term)
{
    const Module *m = s->t->m;
    for (NodeId id = 0; s->wants && id < s->nwants; id++)
        if (id != r->reduce && s->wants[id] && s->wants[id] != r->wants && reads(&m->nodes.data[id], term))
            return true;
    return false;
}

static void accumulate_term(Step *s, Red *r, NodeId id, int sign)
{
    Tile *t = s->t;
    ExprPrinter p = tile_printer(s);
    const char *acc = tile_element(t, red_own(t, r), red_rows(r), red_cols(r));
    const char *inside = tile_owned(t, r->over_row, r->over_col);
    const bool written = r->op == R_SUM && !inside && is_taken_for_others(s, r, id);
    const char *added = written ? expr_added(&p, id, sign < 0, acc) : NULL;
    if (added) {
        buf_line(s->body, "%s = %s;", acc, added);
        return;
    }
    const char *term = expr_text(&p, id);
    if (inside)
        term = tile_text(t, "(%s ? %s : %s)", inside, term, red_identity(t, r->op));
    if (r->op == R_SUM || r->op == R_PROD)
        buf_line(s->body, "%s %s %s;", acc, r->op == R_PROD ? "*=" : sign < 0 ? "-=" : "+=", term);
    else
        buf_line(s->body, "%s = %s;", acc, red_combine(t, r->op, acc, term));
}

/* Products that are added up before they are added are an instruction more than products that are added one by one. What is
 * carried keeps the shorter chain. */
void tile_accumulate(Step *s, Red *r)
{
    NodeId body = node(s, r->reduce).args[0];
    Term terms[MOST_TERMS];
    int n = r->op == R_SUM && r->wants != WANT_ALWAYS ? products(s, body, 1, terms, 0) : 1;
    if (n < 2)
        accumulate_term(s, r, body, 1);
    for (int i = 0; i < n && n > 1; i++)
        accumulate_term(s, r, terms[i].id, terms[i].sign);
}

LaneGroup tile_lanes_of(const Tile *t, const Red *r)
{
    if (r->over_row && r->over_col)
        return (LaneGroup){ 1, 32 };
    return r->over_row ? (LaneGroup){ t->lay.lc, t->lay.lr } : (LaneGroup){ 1, t->lay.lc };
}

static const char *partial_number(Tile *t, const Red *r)
{
    if (red_warps(t, r) == 1)
        return NULL;
    if (r->over_row && r->over_col)
        return t->lay.cr > 1 ? tile_text(t, "(warp_row * %d + warp_col)", t->lay.wc) : "warp";
    return r->over_row ? "warp_row" : "warp_col";
}

/* One element of the exchange buffer, here or, the lanes with the same result by turns, in every block of the
 * cluster. Blocks begin with different ones, so that not all write to one. */
static void publish_element(Tile *t, const Red *r, const Share *h, const char *at, const char *value, Buf *out)
{
    int cr = t->lay.cr, copies = h->copies < cr ? h->copies : cr;
    if (red_spread(t, r)) {
        int64_t share = tile_share(t, &t->lay, t->cols);
        if (!tile_cols_exact(t))
            buf_line(out, "if (col0%s + i <= last_col)", h->first);
        out->indent += !tile_cols_exact(t);
        buf_line(out, "cell_cluster_store(ex + (%s - (col0%s + i) / %" PRId64 " * %" PRId64 "), (col0%s + i) / %" PRId64
                      ", %s);", at, h->first, share, share, h->first, share, value);
        out->indent -= !tile_cols_exact(t);
        return;
    }
    if (!red_far(t, r)) {
        buf_line(out, "ex[%s] = %s;", at, value);
        return;
    }
    if (copies == cr) {
        buf_line(out, "cell_cluster_store(ex + (%s), %s ^ rank, %s);", at, h->copy, value);
        return;
    }
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int k = 0; k < %d; k += %d)", cr, copies);
    buf_line(out, "    cell_cluster_store(ex + (%s), (k%s%s) ^ rank, %s);", at, copies > 1 ? " + " : "",
             copies > 1 ? h->copy : "", value);
}

static void publish_red(Step *s, Red *r, const Share *h, Buf *out)
{
    Tile *t = s->t;
    bool row = red_rows(r), col = red_cols(r), far = red_far(t, r) && !red_spread(t, r);
    const char *warp = partial_number(t, r), *who = far ? NULL : h->lanes, *first = h->first;
    int count = h->count;
    if (far && h->copies > t->lay.cr)
        who = tile_text(t, "%s < %d", h->copy, t->lay.cr);
    if (!r->over_row && !row && t->lay.lr > 1)
        who = tile_both(t, who, "lane_row == 0");
    if (!r->over_row && !row && t->lay.wr > 1)
        who = tile_both(t, who, t->lay.cr > 1 ? tile_text(t, "warp < %d", t->lay.wc) : "warp_row == 0");
    if (!r->over_col && !col && t->lay.lc > 1)
        who = tile_both(t, who, "lane_col == 0");
    if (!r->over_col && !col && t->lay.wc > 1)
        who = tile_both(t, who, "warp_col == 0");
    const char *at = tile_text(t, "flip + %" PRId64 "%s", r->at,
                               warp ? tile_text(t, " + %s * %d", warp, red_pitch(t, r)) : "");
    if (who) {
        buf_line(out, "if (%s) {", who);
        out->indent++;
    }
    if (!row && !col) {
        publish_element(t, r, h, at, red_own(t, r), out);
    } else {
        buf_line(out, "CELL_UNROLL");
        buf_line(out, "for (int i = 0; i < %d; i++)%s", count, red_far(t, r) ? " {" : "");
        out->indent++;
        publish_element(t, r, h, tile_text(t, "%s + %s", at, tile_numbered(t, row, red_first(t, r), first, "i")),
                        tile_text(t, "%s[i]", red_own(t, r)), out);
        out->indent--;
        if (red_far(t, r))
            buf_line(out, "}");
    }
    if (who) {
        out->indent--;
        buf_line(out, "}");
    }
}

/* Can the lanes keep n sums apart: each a part of them, or a power of two of lanes each? */
bool tile_scatters(int n, int lanes)
{
    return n > 1 && lanes > 1 && (n % lanes == 0 || (n < lanes && power_of_two(n)));
}

/* After a reduce-scatter. */
Share tile_share_of(Tile *t, const Red *r, int n)
{
    LaneGroup g = tile_lanes_of(t, r);
    Share h = { n >= g.size ? n / g.size : 1,
                tile_text(t, " + cell_scatter_first<%d, %d, %d>()", g.stride, g.size, n), NULL, 1, "0" };
    if (n < g.size) {
        h.copies = g.size / n;
        h.copy = tile_text(t, "lane / %d %% %d", g.stride, h.copies);
        h.lanes = tile_text(t, "%s == 0", h.copy);
    }
    return h;
}

/* After an all-reduce of n elements. */
static Share whole_share(Tile *t, const Red *r, int n)
{
    LaneGroup g = tile_lanes_of(t, r);
    Share h = { n, "", NULL, g.size, "0" };
    if (g.size > 1) {
        h.copy = r->over_row && r->over_col ? "lane" : r->over_row ? "lane_row" : "lane_col";
        h.lanes = tile_text(t, "%s == 0", h.copy);
    }
    return h;
}

int red_count(const Tile *t, const Red *r)
{
    return red_rows(r) ? t->lay.rr : red_cols(r) ? t->lay.rc : 1;
}

/* Across the lanes, and into the exchange buffer if other warps or owners of other elements read it. */
void tile_finish_red(Step *s, Red *r, Buf *out)
{
    Tile *t = s->t;
    LaneGroup g = tile_lanes_of(t, r);
    bool vector = red_rows(r) || red_cols(r);
    int n = red_count(t, r);
    bool publish = red_published(t, r);
    const char *own = red_own(t, r), *op = red_function(r->op);
    Share h = whole_share(t, r, n);
    if (((red_warps(t, r) > 1 || (r->kept && r->loose)) && vector && tile_scatters(n, g.size)) || r->scattered) {
        buf_line(out, "cell_reduce_scatter_op<cell_op_%s, %d, %d>(%s);", op, g.stride, g.size, own);
        h = tile_share_of(t, r, n);
    } else if (g.size > 1) {
        if (vector)
            buf_line(out, "cell_stride_reduce_all<cell_op_%s, %d, %d>(%s);", op, g.stride, g.size, own);
        else
            buf_line(out, "%s = cell_stride_%s<%d, %d>(%s);", own, op, g.stride, g.size, own);
    }
    if (publish)
        publish_red(s, r, &h, out);
}

/* The step hands its sums on to the next one, which adds them up across the lanes while its own first sums are on their
 * way, and writes them to the next step's part of the exchange buffer. */
void tile_pass_red(Step *s, Red *r, Buf *out)
{
    Tile *t = s->t;
    Red last = *r;
    bool row = red_rows(r), col = red_cols(r);
    last.var = last.own = r->last;
    tile_declare_red(s, r, r->last, &s->last_sums);
    tile_finish_red(s, &last, &s->finish_last);
    tile_open(t, out, row, col);
    buf_line(out, "%s = %s;", tile_element(t, r->last, row, col), tile_element(t, red_own(t, r), row, col));
    tile_close(out, row, col);
}

/* Lines again, so much further to the right. */
static void print_shifted(const char *text, int right, Buf *out)
{
    for (const char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n') + 1;
        for (int k = right; k < 0 && strncmp(line, "    ", 4) == 0; k++)
            line += 4;
        buf_f(out, "%*s%.*s", right > 0 ? 4 * right : 0, "", (int)(end - line), line);
    }
}

void tile_print_last_sums(Step *s, const char *steps, Buf *out)
{
    int64_t size = tile_exchange_size(s->t);
    if (!s->finish_last.data || mutate("lost-sums"))
        return;
    if (size) {
        buf_line(out, "{");
        buf_line(out, "    const int flip = %s * %" PRId64 ";", steps, size);
    }
    print_shifted(s->finish_last.data, out->indent + (size > 0) - s->finish_last.indent, out);
    if (size)
        buf_line(out, "}");
}

/* The reductions that the value reads, through what the step computes. */
void tile_mark_reds(Step *s, NodeId id, bool *seen, bool *marks)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (seen[id])
        return;
    seen[id] = true;
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = tile_read(s, id, map);
        Red *r = tile_red(s, array);
        if (r)
            marks[r - s->reds.data] = true;
        if (!r && !tile_stored(s, array))
            tile_mark_reds(s, node(s, array).args[0], seen, marks);
        return;
    }
    for (int i = 0; i < n.nargs; i++)
        tile_mark_reds(s, n.args[i], seen, marks);
}
