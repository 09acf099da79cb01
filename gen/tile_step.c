/* tile_step.c: one step of the walk as statements. In come normalised roots and a layout; out goes the step's
 * text, level by level: what the level needs of vectors, one loop over the thread's elements that computes
 * states and partial results of all reductions that are ready, their exchange between lanes and warps,
 * stores, and at most one barrier. A matrix value lives only inside the loop; a vector is kept for the rows
 * or columns that the thread owns, or read at any index from the exchange buffer. Guaranteed: every reduction
 * has one fixed order. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "mutate.h"
#include "tile.h"

static Node node(const Step *s, NodeId id)
{
    return s->t->m->nodes.data[id];
}

static bool power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* ---- layout texts ---- */

static bool rows_exact(const Tile *t)
{
    return t->rows == tile_row_warps(&t->lay) * t->lay.lr * t->lay.rr;
}

static bool cols_exact(const Tile *t)
{
    return t->cols == t->lay.wc * t->lay.lc * t->lay.rc;
}

/* Of more than 16 bytes, what neighbouring threads read at once of a vector would lie in the same banks of shared memory. So a
 * thread's rows (columns) are groups of GROUP neighbours then: from one group to the thread's next one. 0: they are one run. */
int tile_apart(const Tile *t, bool rows)
{
    const TileLayout *l = &t->lay;
    int n = rows ? l->rr : l->rc;
    bool exact = rows ? rows_exact(t) : cols_exact(t);
    if (!exact || l->cr > 1 || n <= GROUP || n % GROUP || t->real_bytes * GROUP != 16)
        return 0;
    return GROUP * (rows ? l->wr * l->lr : l->wc * l->lc);
}

/* The number, along the side, of the thread's element `i` of those from `first` on ("" or " + ..."). */
static const char *numbered(Tile *t, bool rows, const char *from, const char *first, const char *i)
{
    int apart = tile_apart(t, rows);
    if (!apart)
        return tile_text(t, "%s%s + %s", from, first, i);
    const char *e = *first && !mutate("first-group") ? tile_text(t, "(%s + %s)", first + strlen(" + "), i) : i;
    return tile_text(t, "%s + %s %% %d + %s / %d * %d", from, e, GROUP, e, GROUP, apart);
}

/* The same, counted from the thread's first element. */
static const char *own_number(Tile *t, bool rows, const char *i)
{
    int apart = tile_apart(t, rows);
    return apart ? tile_text(t, "%s %% %d + %s / %d * %d", i, GROUP, i, GROUP, apart) : i;
}

/* Elements beyond the edge are copies of the edge's: they compute what it does and are left out of sums and
 * stores. */
const char *tile_row_text(Tile *t)
{
    return rows_exact(t) ? tile_text(t, "(%s)", numbered(t, true, "row0", "", "r")) : "cell_min(row0 + r, last_row)";
}

const char *tile_col_text(Tile *t)
{
    return cols_exact(t) ? tile_text(t, "(%s)", numbered(t, false, "col0", "", "c")) : "cell_min(col0 + c, last_col)";
}

void tile_open(Tile *t, Buf *b, bool rows, bool cols)
{
    if (rows) {
        buf_line(b, "CELL_UNROLL");
        buf_line(b, "for (int r = 0; r < %d; r++) {", t->lay.rr);
        b->indent++;
    }
    if (cols) {
        buf_line(b, "CELL_UNROLL");
        buf_line(b, "for (int c = 0; c < %d; c++) {", t->lay.rc);
        b->indent++;
    }
}

void tile_close(Buf *b, bool rows, bool cols)
{
    for (int i = 0; i < rows + cols; i++) {
        b->indent--;
        buf_line(b, "}");
    }
}

static const char *both(Tile *t, const char *a, const char *b)
{
    return !a ? b : !b ? a : tile_text(t, "%s && %s", a, b);
}

const char *tile_owned(Tile *t, bool rows, bool cols)
{
    const char *a = rows && !rows_exact(t) ? "row0 + r <= last_row" : NULL;
    return both(t, a, cols && !cols_exact(t) ? "col0 + c <= last_col" : NULL);
}

/* Threads that hold copies of a value that does not vary over rows (columns): the first one stores it. */
const char *tile_owner(Tile *t, bool rows, bool cols)
{
    const char *who = NULL;
    if (!rows && t->lay.lr > 1)
        who = both(t, who, "lane_row == 0");
    if (!rows && tile_row_warps(&t->lay) > 1)
        who = both(t, who, "warp_row == 0");
    if (!cols && t->lay.lc > 1)
        who = both(t, who, "lane_col == 0");
    if (!cols && t->lay.wc > 1)
        who = both(t, who, "warp_col == 0");
    return who;
}

/* The spec's line that a value comes from, as a comment. */
static const char *origin(Tile *t, const Node *value)
{
    Span span = value->span;
    if (span.file < 0 || span.file >= t->m->c->sources.len || span.hi <= span.lo)
        return "";
    const char *text = t->m->c->sources.data[span.file].text + span.lo;
    int n = 0, max = (int)(span.hi - span.lo);
    while (n < max && n < 88 && text[n] != '\n' && text[n] != ';')
        n++;
    return tile_text(t, "  // %s%.*s", value->dep & DEP_COTANGENT ? "adjoint of " : "", n, text);
}

const char *tile_origin(Tile *t, NodeId id)
{
    return origin(t, &t->m->nodes.data[id]);
}

/* ---- values ---- */

static const char *find(const VersionVec *v, NodeId read)
{
    for (int i = 0; i < v->len; i++)
        if (v->data[i].read == read)
            return v->data[i].name;
    return NULL;
}

/* The variable that holds the value, if one does. */
static const char *held_version(const Step *s, NodeId read)
{
    const char *name = find(&s->versions, read);
    return name || !s->inner ? name : find(&s->inner_versions, read);
}

static const char *element(Tile *t, const char *name, bool row, bool col)
{
    return tile_text(t, "%s%s%s", name, row ? "[r]" : "", col ? "[c]" : "");
}

static bool is_canonical(const IxExpr *e, IndexId i)
{
    IndexId which;
    return ix_is_index(e, &which) && which == i;
}

/* Is the read of a state's array at the thread's own element? */
static bool own_element(const Tile *t, const StateInfo *st, const IxExpr *const *map)
{
    for (int k = 0; k < t->npar; k++)
        if (!is_canonical(map[k], t->par[k]))
            return false;
    for (int k = 0; k < st->rank; k++)
        if (!is_canonical(map[t->npar + k], st->role[k] == ROLE_ROW ? t->row : t->col))
            return false;
    return true;
}

static bool state_rows(const StateInfo *st)
{
    return st->rank && (st->role[0] == ROLE_ROW || (st->rank > 1 && st->role[1] == ROLE_ROW));
}

static bool state_cols(const StateInfo *st)
{
    return st->rank && (st->role[0] == ROLE_COL || (st->rank > 1 && st->role[1] == ROLE_COL));
}

static const char *state_text(Step *s, const StateInfo *st, const char *name, const IxExpr *const *map)
{
    if (!own_element(s->t, st, map))
        tile_refuse(s->t, "state `%s` is read at another element than the one that is being computed",
                    s->t->m->tensors.data[st->tensor].name);
    return element(s->t, name, state_rows(st), state_cols(st));
}

/* Warps that hold partial results. */
static int red_warps(const Tile *t, const Red *r)
{
    return (r->over_row ? tile_row_warps(&t->lay) : 1) * (r->over_col ? t->lay.wc : 1);
}

/* Do other threads read it within the step, or of it what warps add up? */
static bool red_shared(const Tile *t, const Red *r)
{
    return r->crossed || red_warps(t, r) > 1;
}

static bool red_published(const Tile *t, const Red *r)
{
    return r->kept || red_shared(t, r);
}

/* Goes to the exchange buffers of all blocks of the cluster: they add up its parts, or read each other's rows. */
static bool red_far(const Tile *t, const Red *r)
{
    return t->lay.cr > 1 && (r->over_row || r->far);
}

static bool red_rows(const Red *r)
{
    return r->vary_row && !r->over_row;
}

static bool red_cols(const Red *r)
{
    return r->vary_col && !r->over_col;
}

/* Sums over all blocks that nothing but outs reads: each block gets what it stores. */
static bool red_spread(const Tile *t, const Red *r)
{
    return red_far(t, r) && red_cols(r) && !r->inside && !r->whole;
}

/* Elements that one warp's partial result takes in the exchange buffer. */
static int red_pitch(const Tile *t, const Red *r)
{
    int n = red_spread(t, r) ? (int)tile_share(t, &t->lay, t->cols)
            : red_rows(r)    ? tile_block_rows(&t->lay) * (red_far(t, r) ? t->lay.cr : 1)
            : red_cols(r)    ? t->lay.wc * t->lay.lc * t->lay.rc
                             : 1;
    return n > 1 ? (n + 3) / 4 * 4 : 1;
}

/* The exchange buffer holds a block's own rows, or its share: from which element on. "": it holds all. */
static const char *red_origin(Tile *t, const Red *r)
{
    if (t->lay.cr == 1 || !(red_spread(t, r) || (red_rows(r) && !red_far(t, r))))
        return "";
    return tile_text(t, " - rank * %d", red_rows(r) ? tile_block_rows(&t->lay) : (int)tile_share(t, &t->lay, t->cols));
}

/* What the thread accumulates into: the result itself, unless that is put together from several warps. */
static const char *red_own(const Tile *t, const Red *r)
{
    return red_warps(t, r) > 1 ? r->own : r->var;
}

static const char *red_function(ReduceOp op)
{
    return op == R_SUM ? "sum" : op == R_PROD ? "prod" : op == R_MAX ? "max" : "min";
}

static const char *red_combine(Tile *t, ReduceOp op, const char *a, const char *b)
{
    if (op == R_SUM || op == R_PROD)
        return tile_text(t, "%s %s %s", a, op == R_SUM ? "+" : "*", b);
    return tile_text(t, "cell_%s(%s, %s)", red_function(op), a, b);
}

/* Where the thread's own elements begin there. */
static const char *red_first(const Tile *t, const Red *r)
{
    return !red_rows(r) ? "col0" : t->lay.cr > 1 && !red_far(t, r) ? "own_row0" : "row0";
}

/* All warps' partial results at one place of the exchange buffer, combined in the order of the warps. */
static const char *red_exchanged(Step *s, const Red *r, const char *at)
{
    Tile *t = s->t;
    const char *all = NULL;
    for (int w = 0; w < red_warps(t, r); w++) {
        const char *one = tile_text(t, "(%s)ex[flip + %" PRId64 " + %s]", t->real,
                                    r->at + (int64_t)w * red_pitch(t, r) + (r->last ? tile_exchange_size(t) : 0), at);
        all = all ? red_combine(t, r->op, all, one) : one;
    }
    return red_warps(t, r) > 1 && (r->op == R_SUM || r->op == R_PROD) ? tile_text(t, "(%s)", all) : all;
}

/* The index at which the read takes the reduction's own axis, wherever that stands among the others, which
 * must be the block's. NULL: it has none. */
static const IxExpr *red_index(Step *s, const Red *r, const IxExpr *const *map)
{
    Node a = node(s, r->array);
    const IxExpr *own = NULL;
    for (int k = 0; k < a.naxes; k++) {
        if (a.axes[k] == s->t->row || a.axes[k] == s->t->col)
            own = map[k];
        else if (!is_canonical(map[k], a.axes[k]))
            tile_refuse(s->t, "a step reads %s%s%s at another place along an axis that blocks share out",
                        a.name ? "`" : "a value", a.name ? a.name : "", a.name ? "`" : "");
    }
    return own;
}

static bool red_natural(Step *s, const Red *r, const IxExpr *at)
{
    return !at || is_canonical(at, red_rows(r) ? s->t->row : s->t->col);
}

static const char *variable_name(Step *s, const char *name, bool row, bool col)
{
    return tile_unique(s->t, tile_text(s->t, "%s%s", name, row && col ? "" : row ? "_r" : col ? "_c" : ""));
}

static void remember(Step *s, VersionVec *v, NodeId read, const char *name)
{
    Version x = { read, name };
    vec_push(s->t->arena, v, x);
}

/* Is the value only for what the open block is for? Then it is the block's own. */
static bool is_inner(const Step *s, NodeId read)
{
    Node n = node(s, read);
    const IxExpr *map[TILE_MAX_AXES];
    if (!s->inner)
        return false;
    if (n.kind == N_LOAD)
        return s->tensor_wants && s->tensor_wants[n.tensor] && s->tensor_wants[n.tensor] != WANT_ALWAYS;
    return tile_wants(s, tile_read(s, read, map)) != WANT_ALWAYS;
}

static Buf *keep(Step *s, NodeId read, const char *name)
{
    bool inner = is_inner(s, read);
    remember(s, inner ? &s->inner_versions : &s->versions, read, name);
    return inner ? s->inner : s->pre;
}

/* `name` for the thread's rows or columns (or one scalar), each element from the text. */
static void define(Step *s, Buf *to, const char *name, bool row, bool col, const char *text,
                   const char *comment)
{
    Tile *t = s->t;
    s->rows_kept += row;
    s->cols_kept += col;
    s->ones_kept += !row && !col;
    if (!row && !col) {
        buf_line(to, "const %s %s = %s;%s", t->real, name, text, comment);
        return;
    }
    buf_line(to, "%s %s[%d];%s", t->real, name, row ? t->lay.rr : t->lay.rc, comment);
    tile_open(t, to, row, col);
    buf_line(to, "%s = %s;", element(t, name, row, col), text);
    tile_close(to, row, col);
}

/* Are the thread's rows (columns) read by vectors, as one run (as wide ones as divide it) or in groups? */
static bool runs(const Tile *t, bool row)
{
    int n = row ? t->lay.rr : t->lay.rc;
    return (n > 0 && n <= 16 && n % 2 == 0) || tile_apart(t, row);
}

static void load_run(Tile *t, Buf *to, bool row, const char *name, const char *from)
{
    int n = row ? t->lay.rr : t->lay.rc, apart = tile_apart(t, row);
    if (apart)
        buf_line(to, "cell_load_groups<%d>(%s, %s);", apart, name, from);
    else
        buf_line(to, "cell_load_vec<%d>(%s, %s);", n, name, from);
}

static void define_exchanged(Step *s, Buf *to, const Red *r)
{
    Tile *t = s->t;
    bool row = red_rows(r), col = red_cols(r);
    int n = row ? t->lay.rr : col ? t->lay.rc : 1;
    const char *from = red_first(t, r);
    if ((!row && !col) || !runs(t, row)) {
        const char *at = row || col ? tile_text(t, "%s + %s", from, row ? "r" : "c") : "0";
        define(s, to, r->var, row, col, red_exchanged(s, r, at), "");
        return;
    }
    s->rows_kept += row;
    s->cols_kept += col;
    buf_line(to, "%s %s[%d];", t->real, r->var, n);
    load_run(t, to, row, r->var, tile_text(t, "ex + (flip + %" PRId64 " + %s)", r->at, from));
    for (int w = 1; w < red_warps(t, r); w++) {
        const char *part = tile_unique(t, "part");
        buf_line(to, "%s %s[%d];", t->real, part, n);
        load_run(t, to, row, part, tile_text(t, "ex + (flip + %" PRId64 " + %s)", r->at + (int64_t)w * red_pitch(t, r), from));
        tile_open(t, to, row, col);
        const char *own = element(t, r->var, row, col);
        buf_line(to, "%s = %s;", own, red_combine(t, r->op, own, element(t, part, row, col)));
        tile_close(to, row, col);
    }
}

static const char *red_value(Step *s, Red *r, NodeId id, const IxExpr *const *map)
{
    Tile *t = s->t;
    const IxExpr *at = red_index(s, r, map);
    if (s->scattering)
        return tile_text(t, "%s[i]", r->var);
    if (s->is_behind) {
        ExprPrinter p = tile_printer(s);
        return red_exchanged(s, r, at ? ix_text(&p, at) : "0");
    }
    if (!red_natural(s, r, at)) {
        ExprPrinter p = tile_printer(s);
        r->crossed = true;
        bool own = t->any_shared == (red_rows(r) ? t->rows : t->cols) && is_canonical(at, t->any);
        r->far |= red_rows(r) && !own;
        r->whole |= !own;
        return red_exchanged(s, r, tile_text(t, "%s%s", ix_text(&p, at), red_origin(t, r)));
    }
    r->whole = true;
    if (red_warps(t, r) > 1 && !held_version(s, id))
        define_exchanged(s, keep(s, id, r->var), r);
    return element(t, s->is_handed ? r->last : r->var, red_rows(r), red_cols(r));
}

static NodeId body_at(Step *s, NodeId array, const IxExpr *const *map)
{
    Node a = node(s, array);
    return node_subst(s->t->m, a.args[0], a.axes, map, a.naxes);
}

typedef struct Uses { bool row, col, any; } Uses;

static Uses uses_of(const Step *s, NodeId id)
{
    Node n = node(s, id);
    Uses u = { false, false, false };
    for (int k = 0; k < n.naxes; k++) {
        u.row |= n.axes[k] == s->t->row;
        u.col |= n.axes[k] == s->t->col;
        u.any |= n.axes[k] == s->t->any;
    }
    return u;
}

static bool is_read(const Node *n)
{
    return n->kind == N_ARRAY || n->kind == N_VIEW || n->kind == N_LOAD;
}

static void assign_state(Step *s, int k);
static bool reads_registers(Step *s, NodeId id, int depth);

/* A value held in registers whatever reads it: states, adjoint states, next states. NULL: it is none. */
static const char *held_text(Step *s, NodeId id)
{
    Tile *t = s->t;
    Node n = node(s, id);
    int k;
    if (n.kind == N_LOAD) {
        StateInfo *st = tile_state(t, n.tensor);
        if (!st)
            return NULL;
        return state_text(s, st, t->m->tensors.data[n.tensor].kind == T_DNEXT ? st->adj : st->name, n.map);
    }
    const IxExpr *map[TILE_MAX_AXES];
    NodeId array = tile_read(s, id, map);
    if (!tile_whole(s, array, &k))
        return NULL;
    if (s->kind != STEP_ADJOINT)
        assign_state(s, k);
    const StateInfo *st = &t->states.data[k];
    return state_text(s, st, s->kind == STEP_ADJOINT ? st->after : st->next, map);
}

static const char *fetch_text(Step *s, NodeId id)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (n.kind == N_LOAD)
        return tile_fetch_text(s, false, n.tensor, n.map);
    NodeId array = tile_read(s, id, map);
    return tile_fetch_text(s, true, array, map);
}

static bool is_fetch(Step *s, NodeId id)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    return n.kind == N_LOAD || tile_stored(s, tile_read(s, id, map));
}

static const char *value_name(Step *s, NodeId id)
{
    Node n = node(s, id);
    const char *name = n.kind == N_LOAD   ? s->t->m->tensors.data[n.tensor].name
                       : n.kind == N_VIEW ? node(s, n.args[0]).name
                                          : n.name;
    return name ? name : "value";
}

static const char *value_origin(Step *s, NodeId id)
{
    Node n = node(s, id), of = n.kind == N_VIEW ? node(s, n.args[0]) : n;
    return origin(s->t, &of);
}

/* Consecutive elements of a fetched vector, read at once. */
static bool define_run(Step *s, Buf *to, NodeId id, const char *name, bool row)
{
    Tile *t = s->t;
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    const char *first;
    int width = row ? t->lay.rr : t->lay.rc;
    if (!runs(t, row) || !(row ? rows_exact(t) : cols_exact(t)))
        return false;
    NodeId array = n.kind == N_LOAD ? -1 : tile_read(s, id, map);
    const Fetch *f = tile_fetch_run(s, array >= 0, array >= 0 ? array : n.tensor, array >= 0 ? map : n.map,
                                    row ? t->row : t->col, tile_apart(t, row) ? GROUP : width, &first);
    if (!f)
        return false;
    s->rows_kept += row;
    s->cols_kept += !row;
    buf_line(to, "%s %s[%d];", t->real, name, width);
    load_run(t, to, row, name, tile_text(t, "%s%s)", first, row ? "row0" : "col0"));
    return true;
}

/* A vector's elements for the thread's rows or columns, or a scalar: computed once per step. */
static const char *version(Step *s, NodeId id, bool row, bool col)
{
    Tile *t = s->t;
    const char *known = held_version(s, id);
    if (known)
        return element(t, known, row, col);
    const IxExpr *map[TILE_MAX_AXES];
    if (is_fetch(s, id)) {
        const char *name = variable_name(s, value_name(s, id), row, col);
        Buf *to = s->fetched;
        if (to)
            remember(s, &s->versions, id, name);
        else
            to = keep(s, id, name);
        if (!(row || col) || !define_run(s, to, id, name, row))
            define(s, to, name, row, col, fetch_text(s, id), "");
        return element(t, name, row, col);
    }
    NodeId array = tile_read(s, id, map), body = body_at(s, array, map);
    Node b = node(s, body);
    ExprPrinter p = tile_printer(s);
    const char *text = expr_text(&p, body);
    if (is_read(&b) || b.kind == N_CONST)
        return text;
    const char *name = variable_name(s, value_name(s, id), row, col);
    define(s, keep(s, id, name), name, row, col, text, value_origin(s, id));
    return element(t, name, row, col);
}

/* A value inside the open loop or block: a constant of it. */
static const char *local(Step *s, NodeId id)
{
    Tile *t = s->t;
    const char *known = find(&s->locals, id);
    if (known)
        return known;
    const IxExpr *map[TILE_MAX_AXES];
    const char *text;
    bool plain = is_fetch(s, id);
    if (plain) {
        text = fetch_text(s, id);
    } else {
        NodeId array = tile_read(s, id, map), body = body_at(s, array, map);
        Node b = node(s, body);
        ExprPrinter p = tile_printer(s);
        text = expr_text(&p, body);
        plain = is_read(&b) || b.kind == N_CONST;
        if (plain)
            return text;
    }
    const char *name = tile_unique(t, value_name(s, id));
    remember(s, &s->locals, id, name);
    buf_line(s->body, "const %s %s = %s;", t->real, name, text);
    return name;
}

static const char *initial_leaf(Step *s, NodeId id)
{
    const IxExpr *map[TILE_MAX_AXES];
    Node n = node(s, id);
    ExprPrinter p = tile_printer(s);
    if (is_read(&n) && is_fetch(s, id))
        return fetch_text(s, id);
    if (n.kind == N_REDUCE) {
        tile_refuse(s->t, "an initial state is a sum");
        return "0";
    }
    return expr_text(&p, body_at(s, tile_read(s, id, map), map));
}

static const char *leaf(ExprPrinter *p, NodeId id)
{
    Step *s = p->data;
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (s->t->initial)
        return initial_leaf(s, id);
    if (n.kind == N_REDUCE) {
        tile_refuse(s->t, "a reduction stands inside an expression");
        return "0";
    }
    const char *held = held_text(s, id);
    if (held)
        return held;
    Red *r = n.kind == N_LOAD ? NULL : tile_red(s, tile_read(s, id, map));
    if (r)
        return red_value(s, r, id, map);
    Uses u = uses_of(s, id);
    if (u.any || (u.row && u.col))
        return local(s, id);
    return version(s, id, u.row, u.col);
}

static const char *index_text(ExprPrinter *p, IndexId i)
{
    Step *s = p->data;
    Tile *t = s->t;
    if (i == t->row)
        return tile_row_text(t);
    if (i == t->col)
        return tile_col_text(t);
    if (i == t->any)
        return t->any_text;
    if (i == IX_TIME)
        return "(time0 + t)";
    if (i == IX_START)
        return "time0";
    for (int k = 0; k < t->npar; k++)
        if (t->par[k] == i)
            return t->par_name[k];
    tile_refuse(t, "index `%s` has no place on the chip", t->m->indices.data[i].name);
    return "0";
}

ExprPrinter tile_printer(Step *s)
{
    return (ExprPrinter){ .m = s->t->m, .real = s->t->real, .fast = s->t->fast, .leaf = leaf,
                          .fuse = FUSE_FIRST,
                          .index = index_text, .data = s, .rounded = s->t->w->from_product, .n_rounded = s->t->w->n_nodes };
}

/* ---- states ---- */

static const char *root_variable(const Step *s, const StateInfo *st)
{
    return s->kind == STEP_ADJOINT ? st->prev : st->next;
}

/* The root's value at the thread's own element. */
static NodeId root_at(Step *s, int k)
{
    Tile *t = s->t;
    const StateInfo *st = &t->states.data[k];
    const IxExpr *map[TILE_MAX_AXES];
    for (int i = 0; i < t->npar; i++)
        map[i] = ix_index(t->m, t->par[i]);
    for (int i = 0; i < st->rank; i++)
        map[t->npar + i] = ix_index(t->m, st->role[i] == ROLE_ROW ? t->row : t->col);
    NodeId root = s->next.data[k];
    return tile_stored(s, root) ? node_view(t->m, root, map, t->npar + st->rank) : body_at(s, root, map);
}

static void assign_state(Step *s, int k)
{
    Tile *t = s->t;
    if (s->assigned[k])
        return;
    s->assigned[k] = true;
    const StateInfo *st = &t->states.data[k];
    ExprPrinter p = tile_printer(s);
    NodeId root = root_at(s, k);
    /* Where steps are joined, nvcc would fuse a product with a sum of the next step, in one form of the kernel and not in another. */
    const char *text = tile_stored(s, s->next.data[k]) ? fetch_text(s, root)
                       : s->kind == STEP_ADJOINT ? expr_rounded(&p, root) : expr_text(&p, root);
    const char *name = root_variable(s, st), *comment = value_origin(s, s->next.data[k]);
    if (st->rank == 2)
        buf_line(s->body, "%s[r][c] = %s;%s", name, text, comment);
    else
        define(s, s->pre, name, state_rows(st), state_cols(st), text, comment);
}

/* The state in front of a step that makes `value` of it: the sums and differences are taken back, from the outermost
 * in. NULL: there is something else between them. */
static const char *undo_text(Step *s, const StateInfo *st, NodeId id, const char *value)
{
    Tile *t = s->t;
    Node n = node(s, id);
    if (n.kind == N_LOAD)
        return n.tensor == st->tensor && own_element(t, st, n.map) ? value : NULL;
    if (n.kind != N_MAP || (n.op != OP_ADD && n.op != OP_SUB))
        return NULL;
    int inside = reads_registers(s, n.args[1], 0);
    if (reads_registers(s, n.args[!inside], 0))
        return NULL;
    ExprPrinter p = tile_printer(s);
    const char *other = expr_text(&p, n.args[!inside]);
    return undo_text(s, st, n.args[inside],
                     n.op == OP_ADD ? tile_text(t, "(%s %c %s)", value, mutate("wrong-undo") ? '+' : '-', other)
                     : inside       ? tile_text(t, "(%s - %s)", other, value)
                                    : tile_text(t, "(%s + %s)", value, other));
}

/* The same question, before anything can be printed. */
static bool undoes(Step *s, const StateInfo *st, NodeId id)
{
    Node n = node(s, id);
    if (n.kind == N_LOAD)
        return n.tensor == st->tensor && own_element(s->t, st, n.map);
    if (n.kind != N_MAP || (n.op != OP_ADD && n.op != OP_SUB))
        return false;
    int inside = reads_registers(s, n.args[1], 0);
    return !reads_registers(s, n.args[!inside], 0) && undoes(s, st, n.args[inside]);
}

bool tile_undoes(Step *s)
{
    bool all = !s->reds.len;
    for (int k = 0; k < s->next.len && all; k++)
        all = !tile_stored(s, s->next.data[k]) && undoes(s, &s->t->states.data[k], root_at(s, k));
    return all;
}

void tile_print_undo(Step *s, Buf *out)
{
    Tile *t = s->t;
    Buf pre = { .arena = t->arena, .indent = out->indent }, loops = pre;
    s->versions.len = 0;
    s->pre = &pre;
    for (int k = 0; k < s->next.len; k++) {
        const StateInfo *st = &t->states.data[k];
        bool rows = state_rows(st), cols = state_cols(st);
        Buf body = { .arena = t->arena, .indent = out->indent + rows + cols };
        s->body = &body;
        s->locals.len = 0;
        const char *before = undo_text(s, st, root_at(s, k), element(t, st->after, rows, cols));
        buf_line(&body, "%s = %s;", element(t, st->name, rows, cols), before);
        tile_open(t, &loops, rows, cols);
        buf_f(&loops, "%s", body.data);
        tile_close(&loops, rows, cols);
    }
    s->body = s->pre = NULL;
    buf_f(out, "%s%s", pre.data ? pre.data : "", loops.data ? loops.data : "");
}

/* ---- reductions ---- */

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

static void declare_red(Step *s, const Red *r, const char *name, Buf *out)
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

static void accumulate_term(Step *s, Red *r, NodeId id, int sign)
{
    Tile *t = s->t;
    ExprPrinter p = tile_printer(s);
    const char *term = expr_text(&p, id);
    const char *acc = element(t, red_own(t, r), red_rows(r), red_cols(r));
    const char *inside = tile_owned(t, r->over_row, r->over_col);
    if (inside)
        term = tile_text(t, "(%s ? %s : %s)", inside, term, red_identity(t, r->op));
    if (r->op == R_SUM || r->op == R_PROD)
        buf_line(s->body, "%s %s %s;", acc, r->op == R_PROD ? "*=" : sign < 0 ? "-=" : "+=", term);
    else
        buf_line(s->body, "%s = %s;", acc, red_combine(t, r->op, acc, term));
}

/* Products that are added up before they are added are an instruction more than products that are added one by one. What is
 * carried keeps the shorter chain. */
static void accumulate(Step *s, Red *r)
{
    NodeId body = node(s, r->reduce).args[0];
    Term terms[MOST_TERMS];
    int n = r->op == R_SUM && r->wants != WANT_ALWAYS ? products(s, body, 1, terms, 0) : 1;
    if (n < 2)
        accumulate_term(s, r, body, 1);
    for (int i = 0; i < n && n > 1; i++)
        accumulate_term(s, r, terms[i].id, terms[i].sign);
}

typedef struct LaneGroup { int stride, size; } LaneGroup;

static LaneGroup lanes_of(const Tile *t, const Red *r)
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

/* What a lane holds of a reduction's results: how many elements, from which on; who speaks for lanes that hold the
 * same (NULL: each lane has its own), and how many they are, `copy` the number among them. */
typedef struct Share { int count; const char *first, *lanes; int copies; const char *copy; } Share;

/* One element of the exchange buffer, here or, the lanes with the same result by turns, in every block of the
 * cluster. Blocks begin with different ones, so that not all write to one. */
static void publish_element(Tile *t, const Red *r, const Share *h, const char *at, const char *value, Buf *out)
{
    int cr = t->lay.cr, copies = h->copies < cr ? h->copies : cr;
    if (red_spread(t, r)) {
        int64_t share = tile_share(t, &t->lay, t->cols);
        if (!cols_exact(t))
            buf_line(out, "if (col0%s + i <= last_col)", h->first);
        out->indent += !cols_exact(t);
        buf_line(out, "cell_cluster_store(ex + (%s - (col0%s + i) / %" PRId64 " * %" PRId64 "), (col0%s + i) / %" PRId64
                      ", %s);", at, h->first, share, share, h->first, share, value);
        out->indent -= !cols_exact(t);
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
        who = both(t, who, "lane_row == 0");
    if (!r->over_row && !row && t->lay.wr > 1)
        who = both(t, who, t->lay.cr > 1 ? tile_text(t, "warp < %d", t->lay.wc) : "warp_row == 0");
    if (!r->over_col && !col && t->lay.lc > 1)
        who = both(t, who, "lane_col == 0");
    if (!r->over_col && !col && t->lay.wc > 1)
        who = both(t, who, "warp_col == 0");
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
        publish_element(t, r, h, tile_text(t, "%s + %s", at, numbered(t, row, red_first(t, r), first, "i")),
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
static bool scatters(int n, int lanes)
{
    return n > 1 && lanes > 1 && (n % lanes == 0 || (n < lanes && power_of_two(n)));
}

/* After a reduce-scatter. */
static Share share_of(Tile *t, const Red *r, int n)
{
    LaneGroup g = lanes_of(t, r);
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
    LaneGroup g = lanes_of(t, r);
    Share h = { n, "", NULL, g.size, "0" };
    if (g.size > 1) {
        h.copy = r->over_row && r->over_col ? "lane" : r->over_row ? "lane_row" : "lane_col";
        h.lanes = tile_text(t, "%s == 0", h.copy);
    }
    return h;
}

static int red_count(const Tile *t, const Red *r)
{
    return red_rows(r) ? t->lay.rr : red_cols(r) ? t->lay.rc : 1;
}

/* Across the lanes, and into the exchange buffer if other warps or owners of other elements read it. */
static void finish_red(Step *s, Red *r, Buf *out)
{
    Tile *t = s->t;
    LaneGroup g = lanes_of(t, r);
    bool vector = red_rows(r) || red_cols(r);
    int n = red_count(t, r);
    bool publish = red_published(t, r);
    const char *own = red_own(t, r), *op = red_function(r->op);
    Share h = whole_share(t, r, n);
    if (((red_warps(t, r) > 1 || (r->kept && r->loose)) && vector && scatters(n, g.size)) || r->scattered) {
        buf_line(out, "cell_reduce_scatter_op<cell_op_%s, %d, %d>(%s);", op, g.stride, g.size, own);
        h = share_of(t, r, n);
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
static void pass_red(Step *s, Red *r, Buf *out)
{
    Tile *t = s->t;
    Red last = *r;
    bool row = red_rows(r), col = red_cols(r);
    last.var = last.own = r->last;
    declare_red(s, r, r->last, &s->last_sums);
    finish_red(s, &last, &s->finish_last);
    tile_open(t, out, row, col);
    buf_line(out, "%s = %s;", element(t, r->last, row, col), element(t, red_own(t, r), row, col));
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

/* ---- stores ---- */

/* The reductions that the value reads, through what the step computes. */
static void mark_reds(Step *s, NodeId id, bool *seen, bool *marks)
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
            mark_reds(s, node(s, array).args[0], seen, marks);
        return;
    }
    for (int i = 0; i < n.nargs; i++)
        mark_reds(s, n.args[i], seen, marks);
}

/* A value that the step stores. inner: axes on the chip; row, col: at the elements that their owners hold. */
typedef struct Out {
    NodeId array, original;
    int ref;
    Role role[TILE_MAX_AXES];
    int flat[TILE_MAX_AXES];      /* the parallel axis that the axis holds as well, -1: none */
    const Poly *extent[TILE_MAX_AXES];       /* of what is on the chip */
    int inner;
    bool row, col;
} Out;

static bool reads_exchange(Step *s, NodeId id, int depth)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (depth > 40)
        return true;
    if (is_read(&n)) {
        if (is_fetch(s, id) || held_version(s, id))
            return false;
        NodeId array = tile_read(s, id, map);
        Red *r = tile_red(s, array);
        if (r)
            return red_warps(s->t, r) > 1;
        return reads_exchange(s, node(s, array).args[0], depth + 1);
    }
    for (int i = 0; i < n.nargs; i++)
        if (reads_exchange(s, n.args[i], depth + 1))
            return true;
    return false;
}

/* Does a register that only its owner can read stand in the value? */
static bool reads_registers(Step *s, NodeId id, int depth)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    int k;
    if (depth > 40)
        return true;
    if (n.kind == N_LOAD)
        return tile_state(s->t, n.tensor) != NULL;
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = tile_read(s, id, map);
        if (tile_stored(s, array) || tile_red(s, array))
            return false;
        return tile_whole(s, array, &k) || reads_registers(s, node(s, array).args[0], depth + 1);
    }
    for (int i = 0; i < n.nargs; i++)
        if (reads_registers(s, n.args[i], depth + 1))
            return true;
    return false;
}

/* An axis as long as a parallel axis times a number holds both, the parallel index outermost. */
static void split_axis(Tile *t, Out *o, int i, const Poly *e)
{
    o->flat[i] = -1;
    o->extent[i] = e;
    for (int p = 0; p < t->npar && !e->is_const; p++)
        if (e == t->par_extent[p]) {
            o->role[i] = ROLE_PAR + p;
            return;
        }
    for (int p = 0; p < t->npar && !e->is_const; p++) {
        const Poly *x = t->par_extent[p];
        const Poly *n = poly_const(t->m, x->nterms ? e->terms[0].coef / x->terms[0].coef : 0);
        if (poly_mul(t->m, x, n) == e) {
            o->flat[i] = p;
            o->extent[i] = n;
            return;
        }
    }
    if (!e->is_const)
        tile_refuse(t, "a value of each step has an axis of run-time size: bind it with --dim");
}

/* The axis's index where the chip's is x. */
static const IxExpr *axis_index(Tile *t, const Out *o, int i, IndexId x)
{
    const IxExpr *e = ix_index(t->m, o->role[i] >= ROLE_PAR ? t->par[o->role[i] - ROLE_PAR] : x);
    if (o->flat[i] < 0)
        return e;
    return ix_add(t->m, ix_scale(t->m, ix_index(t->m, t->par[o->flat[i]]), o->extent[i]), e);
}

static void out_roles(Step *s, Out *o, int naxes)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    IndexId fresh[TILE_MAX_AXES];
    for (int i = 0; i < naxes; i++) {
        fresh[i] = module_index(t->m, "o", o->extent[i]);
        map[i] = axis_index(t, o, i, fresh[i]);
    }
    NodeId body = body_at(s, o->array, map);
    Node b = node(s, body);
    Roles r = tile_roles(s, body);
    for (int i = 0; i < naxes; i++)
        for (int k = 0; k < b.naxes && o->role[i] < ROLE_PAR; k++)
            if (b.axes[k] == fresh[i])
                o->role[i] = r.role[k];
}

/* Two of its axes would be one parallel index: a block has no elements beside that diagonal. */
static bool is_diagonal(const Out *o, int naxes)
{
    for (int i = 1; i < naxes; i++)
        for (int k = 0; k < i; k++) {
            int x = o->role[i] >= ROLE_PAR ? (int)o->role[i] - ROLE_PAR : o->flat[i];
            int y = o->role[k] >= ROLE_PAR ? (int)o->role[k] - ROLE_PAR : o->flat[k];
            if (x >= 0 && x == y)
                return true;
        }
    return false;
}

static Out describe_out(Step *s, int k)
{
    Tile *t = s->t;
    Out o = { .array = s->outs.data[k], .original = t->w->outs.data[k] };
    Node a = node(s, o.array);
    o.ref = tile_ref(t, REF_NODE, o.original);
    int used[2] = { 0, 0 };
    for (int i = 0; i < a.naxes; i++)
        split_axis(t, &o, i, t->m->indices.data[a.axes[i]].extent);
    if (t->refused)
        return o;
    out_roles(s, &o, a.naxes);
    if (is_diagonal(&o, a.naxes))
        tile_refuse(t, "%s%s%s is made of what different blocks have", a.name ? "`" : "a value of each step", a.name ? a.name : "",
                    a.name ? "`" : "");
    for (int i = 0; i < a.naxes; i++) {
        if (o.role[i] >= ROLE_PAR)
            continue;
        if (o.inner < 2)
            used[o.inner] = i;
        o.inner++;
    }
    if (o.inner > 2) {
        tile_refuse(t, "a value of each step has %d axes on the chip", o.inner);
        return o;
    }
    for (int i = 0; i < o.inner; i++) {
        int64_t e = o.extent[used[i]]->value;
        o.row |= o.role[used[i]] == ROLE_ROW && e == t->rows;
        o.col |= o.role[used[i]] == ROLE_COL && e == t->cols;
    }
    if (o.inner == 2 && !(o.row && o.col)) {
        /* An outer product of vectors: any element at any thread would do; the state's layout serves. */
        if (o.extent[used[0]]->value != t->rows || o.extent[used[1]]->value != t->cols)
            tile_refuse(t, "a matrix of each step (`%s`) has other sizes than the state",
                        a.name ? a.name : "?");
        o.role[used[0]] = ROLE_ROW;
        o.role[used[1]] = ROLE_COL;
        o.row = o.col = true;
    }
    return o;
}

static NodeId out_value(Step *s, const Out *o, const IxExpr **map)
{
    Tile *t = s->t;
    Node a = node(s, o->array);
    for (int i = 0; i < a.naxes; i++)
        map[i] = axis_index(t, o, i, o->row && o->role[i] == ROLE_ROW   ? t->row
                                     : o->col && o->role[i] == ROLE_COL ? t->col
                                                                        : t->any);
    return node_view(t->m, o->array, map, a.naxes);
}

/* That of the step before. */
static const char *last_offset(Tile *t, RowOffset *r)
{
    if (!r->last)
        r->last = tile_unique(t, tile_text(t, "last_%s", r->name));
    return r->last;
}

/* The first element of the step's row, or that one of it. */
static const char *row_offset(Step *s, const char *pitch, const char *first)
{
    Tile *t = s->t;
    int k = 0;
    if (s->is_behind)
        return tile_text(t, "(b * T + %s) * (%s)", t->m->c->reverse ? "(T - 1 - t)" : "t", pitch);
    while (k < t->rows_out.len && (strcmp(t->rows_out.data[k].pitch, pitch) || strcmp(t->rows_out.data[k].first, first)))
        k++;
    RowOffset fresh = { pitch, first, k < t->rows_out.len ? NULL : tile_unique(t, "row_at"), NULL };
    if (k == t->rows_out.len)
        vec_push(t->arena, &t->rows_out, fresh);
    const char *name = t->rows_out.data[k].name;
    if (s->is_handed)
        return last_offset(t, &t->rows_out.data[k]);
    return s->is_late ? tile_text(t, "%s %c (%s)", name, t->m->c->reverse ? '-' : '+', pitch) : name;
}

/* Where the step's row has the element, and how long a row is. */
static const IxExpr *out_place(Step *s, const Out *o, const IxExpr *const *map, const Poly **pitch)
{
    Tile *t = s->t;
    const Storage *st = &t->w->of_node[o->original];
    Node a = node(s, o->original);
    const Poly *axes[TILE_MAX_AXES], *row = poly_const(t->m, 1);
    for (int i = 0; i < a.naxes; i++) {
        axes[i] = t->m->indices.data[a.axes[i]].extent;
        row = poly_mul(t->m, row, axes[i]);
    }
    const IxExpr *e = tile_linear(t, axes, map, a.naxes);
    *pitch = st->pitch ? st->pitch : row;
    return st->alias_offset ? ix_add(t->m, e, ix_const(t->m, st->alias_offset)) : e;
}

/* Where outs are handed on, what moves with the steps is the place of the thread's own first element: an address is one sum then.
 * -> that place in the row, and in `own` which of the thread's elements it is; NULL: it is not the thread's own. */
static const char *own_place(Step *s, const Out *o, const IxExpr *e, const char **own)
{
    Tile *t = s->t;
    const IxExpr *rest = o->row || o->col ? ix_sub(t->m, e, ix_index(t->m, o->row ? t->row : t->col)) : e;
    if (!s->hands_outs || s->is_behind || (o->row && o->col) || ix_uses(rest, t->row) || ix_uses(rest, t->col) || ix_uses(rest, t->any))
        return NULL;
    ExprPrinter p = tile_printer(s);
    *own = o->row || o->col ? own_number(t, o->row, o->row ? "r" : "c") : "0";
    return o->row || o->col ? tile_text(t, "%s + %s", ix_text(&p, rest), o->row ? "row0" : "col0") : ix_text(&p, rest);
}

static const char *out_address(Step *s, const Out *o, const IxExpr *const *map)
{
    Tile *t = s->t;
    const Poly *pitch;
    const char *own;
    const IxExpr *e = out_place(s, o, map, &pitch);
    const char *first = own_place(s, o, e, &own);
    ExprPrinter p = tile_printer(s);
    const char *at = first ? own : ix_text(&p, e);
    return tile_text(t, "(%s *)args.ptr[%d] + (%s + %s)", tile_ctype(t, t->w->of_node[o->original].dtype), o->ref,
                     row_offset(s, poly_text(&p, pitch), first ? first : ""), at);
}

/* Gradients that the caller has may be added to. */
static bool may_add(const Tile *t, const Out *o)
{
    return t->w->of_node[o->original].home == HOME_ARG && t->w->dir == BACKWARD;
}

static void store_out(Step *s, const Out *o, const IxExpr *const *map, const char *value, Buf *out)
{
    Tile *t = s->t;
    const char *at = out_address(s, o, map);
    if (may_add(t, o))
        value = tile_text(t, "(args.flags & CELL_KERNEL_ACCUMULATE ? cell_load<%s>(%s) : 0) + (%s)", t->real,
                          at, value);
    buf_line(out, "cell_store(%s, %s);", at, value);
}

IndexId tile_any(Tile *t, int64_t n)
{
    const Poly *e = poly_const(t->m, n);
    for (int i = 0; i < t->anys.len; i++)
        if (t->m->indices.data[t->anys.data[i]].extent == e)
            return t->anys.data[i];
    vec_push(t->arena, &t->anys, module_index(t->m, "x", e));
    return t->anys.data[t->anys.len - 1];
}

/* In a block of its class the out is asked for. */
static const char *out_condition(const Step *s, const Out *o)
{
    return s->inner ? NULL : tile_text(s->t, "args.ptr[%d]", o->ref);
}

static void open_if(Buf *out, const char *condition)
{
    if (!condition)
        return;
    buf_line(out, "if (%s) {", condition);
    out->indent++;
}

static void close_if(Buf *out, const char *condition)
{
    if (!condition)
        return;
    out->indent--;
    buf_line(out, "}");
}

static void print_any_out(Step *s, Out *o, int *warp, Buf *out)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    int64_t n = 1;
    for (int i = 0; i < node(s, o->array).naxes; i++)
        if (o->role[i] < ROLE_PAR)
            n = o->extent[i]->value;
    /* The blocks of a cluster share them out. */
    bool shared = t->lay.cr > 1;
    int64_t share = shared ? tile_share(t, &t->lay, n) : n;
    bool once = share <= tile_threads(&t->lay), asked = once || out_condition(s, o);
    Buf body = { .arena = t->arena, .indent = out->indent + !once + asked };
    Buf *outer = s->body;
    o->row = o->col = false;
    t->any_text = "x";
    t->any = tile_any(t, n);
    t->any_shared = shared ? n : 0;
    NodeId value = out_value(s, o, map);
    ExprPrinter p = tile_printer(s);
    s->body = &body;
    s->locals.len = 0;
    const char *text = expr_text(&p, value);
    store_out(s, o, map, text, &body);
    s->body = outer;
    t->any_shared = 0;
    int threads = tile_threads(&t->lay), turn = threads - *warp * 32;
    const char *start = turn % threads ? tile_text(t, "(cell_thread() + %d) %% %d", turn, threads)
                                       : "cell_thread()";
    const char *who = both(t, out_condition(s, o), once ? tile_text(t, "%s < %" PRId64, start, share) : NULL);
    const char *first = shared ? tile_text(t, "rank * %" PRId64 " + ", share) : "";
    open_if(out, who);
    if (once)
        buf_line(out, "const int x = %s%s;", first, start);
    else if (shared)
        buf_line(out, "for (int x = %s%s; x < cell_min(%" PRId64 ", (rank + 1) * %" PRId64 "); x += %d) {", first,
                 start, n, share, threads);
    else
        buf_line(out, "for (int x = %s; x < %" PRId64 "; x += %d) {", start, n, threads);
    bool edge = once && share * t->lay.cr > n;
    if (edge)
        buf_line(out, "if (x < %" PRId64 ") {", n);
    buf_f(out, "%s", body.data);
    if (edge || !once)
        buf_line(out, "}");
    close_if(out, who);
    *warp = (*warp + (int)((share + 31) / 32)) % (threads / 32);
}

static void print_own_out(Step *s, Out *o, Buf *out)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    NodeId value = out_value(s, o, map);
    const char *who = both(t, out_condition(s, o), tile_owner(t, o->row, o->col));
    Buf body = { .arena = t->arena, .indent = out->indent + (who != NULL) + o->row + o->col };
    Buf *outer = s->body;
    ExprPrinter p = tile_printer(s);
    s->body = &body;
    s->locals.len = 0;
    const char *text = expr_text(&p, value), *inside = tile_owned(t, o->row, o->col);
    s->body = outer;
    open_if(out, who);
    tile_open(t, out, o->row, o->col);
    if (body.data)
        buf_f(out, "%s", body.data);
    if (inside) {
        buf_line(out, "if (%s)", inside);
        out->indent++;
    }
    store_out(s, o, map, text, out);
    out->indent -= inside != NULL;
    tile_close(out, o->row, o->col);
    close_if(out, who);
}

/* Each lane stores the elements that a reduce-scatter left it. */
static void print_scattered_out(Step *s, Out *o, const Red *r, Buf *out)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    bool row = red_rows(r);
    Share h = share_of(t, r, red_count(t, r));
    const char *who = both(t, out_condition(s, o), h.lanes);
    const char *inside = tile_owned(t, row, !row);
    Buf body = { .arena = t->arena, .indent = out->indent + (who != NULL) + 1 }, *outer = s->body;
    o->row = o->col = false;
    t->any_text = "x";
    t->any = tile_any(t, row ? t->rows : t->cols);
    s->scattering = true;
    NodeId value = out_value(s, o, map);
    ExprPrinter p = tile_printer(s);
    s->body = &body;
    s->locals.len = 0;
    const char *text = expr_text(&p, value);
    store_out(s, o, map, text, &body);
    s->body = outer;
    s->scattering = false;
    open_if(out, who);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int i = 0; i < %d; i++) {", h.count);
    buf_line(out, "    const int x = %s;", numbered(t, row, row ? "row0" : "col0", h.first, "i"));
    if (inside)
        buf_line(out, "    if (x > %s) continue;", row ? "last_row" : "last_col");
    buf_f(out, "%s", body.data);
    buf_line(out, "}");
    close_if(out, who);
}

/* A reduction that the out reads. */
static const Red *first_red(Step *s, int k)
{
    bool *seen = arena_alloc(s->t->arena, (size_t)s->t->m->nodes.len + 1);
    bool *marks = arena_alloc(s->t->arena, (size_t)s->reds.len + 1);
    mark_reds(s, s->outs.data[k], seen, marks);
    for (int i = 0; i < s->reds.len; i++)
        if (marks[i])
            return &s->reds.data[i];
    return NULL;
}

static void print_out(Step *s, int k, int *warp, Buf *out)
{
    Tile *t = s->t;
    Out o = describe_out(s, k);
    if (t->refused)
        return;
    Buf pre = { .arena = t->arena, .indent = out->indent };
    Buf text = { .arena = t->arena, .indent = out->indent };
    *(s->inner ? &s->inner : &s->pre) = &pre;
    bool own = o.inner != 1 || o.row || o.col;
    /* The next step has the exchange buffer of this one, but not its registers. */
    if (own && o.inner == 1 && !reads_registers(s, o.array, 0) && (s->is_late || reads_exchange(s, o.array, 0)))
        own = false;
    if (s->out_scattered[k])
        print_scattered_out(s, &o, first_red(s, k), &text);
    else if (own)
        print_own_out(s, &o, &text);
    else
        print_any_out(s, &o, warp, &text);
    buf_f(out, "%s%s", pre.data ? pre.data : "", text.data ? text.data : "");
}

/* ---- levels ---- */

/* Issue slots of a loop's body, by its operators and calls. */
static double slots_of(const char *text)
{
    double n = 0;
    for (const char *s = text; *s; s++) {
        if (s[0] == '/' && s[1] == '/')
            while (s[1] && s[1] != '\n')
                s++;
        else if (strncmp(s, "cell_fma(", 9) == 0)         /* as what they are made of; signs cost nothing */
            n += 1.4, s += s[9] == '-' ? 9 : 8;
        else if (strncmp(s, "cell_mul(", 9) == 0)
            n += 0.7, s += 8;
        else if (strncmp(s, "cell_", 5) == 0)
            n += strncmp(s, "cell_fast", 9) == 0 ? 4 : 16;
        else if (*s == '-' && s > text && s[-1] == ' ' && s[1] != ' ')
            continue;
        else
            n += *s == '*' || *s == '+' || *s == '-' ? 0.7 : *s == '/' ? 8 : 0;
    }
    return n;
}

/* One loop nest over the thread's elements: the reductions whose bodies vary so, and (in the full one)
 * states. */
static void print_loop(Step *s, bool rows, bool cols, Wants w, Buf *out)
{
    Tile *t = s->t;
    Buf body = { .arena = t->arena, .indent = out->indent + rows + cols };
    s->body = &body;
    s->locals.len = 0;
    for (int k = 0; k < s->next.len && rows && cols && w == WANT_ALWAYS; k++)
        if (t->states.data[k].rank == 2 && tile_level(s, s->next.data[k]) == s->now)
            assign_state(s, k);
    for (int i = 0; i < s->reds.len && !t->refused; i++) {
        Red *r = &s->reds.data[i];
        if (r->level == s->now + 1 && r->wants == w && r->vary_row == rows && r->vary_col == cols)
            accumulate(s, r);
    }
    s->body = NULL;
    if (!body.data)
        return;
    if (rows && cols)
        s->elements += slots_of(body.data);
    tile_open(t, out, rows, cols);
    buf_f(out, "%s", body.data);
    tile_close(out, rows, cols);
}

/* The level's reductions of one kind of wants: loops, then what their threads do together. */
static void print_reds(Step *s, Wants w, Buf *loops, Buf *after)
{
    print_loop(s, true, true, w, loops);
    print_loop(s, true, false, w, loops);
    print_loop(s, false, true, w, loops);
    for (int i = 0; i < s->reds.len && !s->t->refused; i++) {
        Red *r = &s->reds.data[i];
        if (r->level != s->now + 1 || r->wants != w)
            continue;
        declare_red(s, r, red_own(s->t, r), s->pre);
        if (red_published(s->t, r)) {
            r->at = (s->exchange + 3) / 4 * 4;
            s->exchange = r->at + (int64_t)red_warps(s->t, r) * red_pitch(s->t, r);
        }
        if (r->last)
            pass_red(s, r, after);
        else
            finish_red(s, r, after);
    }
}

static Wants out_wants(const Step *s, int k)
{
    int c = s->t->class_of.data[k];
    return !s->wants || c < 0 ? WANT_ALWAYS : (Wants)1 << c;
}

/* What the level computes and stores for one combination of gradients, in a block that is left out when none
 * of them is asked for. */
static void print_wanted(Step *s, Wants w, int *warp, Buf *out)
{
    Tile *t = s->t;
    const char *condition = tile_wanted(t, w);
    int indent = out->indent + (condition != NULL);
    Buf pre = { .arena = t->arena, .indent = indent }, loops = pre, after = pre, stores = pre;
    s->inner = &pre;
    s->inner_versions.len = 0;
    print_reds(s, w, &loops, &after);
    for (int k = 0; k < s->outs.len && !t->refused; k++)
        if (out_wants(s, k) == w && s->out_level[k] == s->now && !s->out_late[k] && !s->out_behind[k]) {
            s->inner = &pre;
            print_out(s, k, warp, &stores);
        }
    s->inner = NULL;
    if (!loops.data && !stores.data)
        return;
    open_if(out, condition);
    buf_f(out, "%s%s%s%s", pre.data ? pre.data : "", loops.data ? loops.data : "",
          after.data ? after.data : "", stores.data ? stores.data : "");
    close_if(out, condition);
}

/* Blocks for more classes come first: those for fewer read what they give. */
static bool comes_before(Wants a, Wants b)
{
    int n = 0;
    for (int i = 0; i < 64; i++)
        n += (int)(a >> i & 1) - (int)(b >> i & 1);
    return n ? n > 0 : a < b;
}

static void consider(Wants w, Wants last, Wants *next)
{
    if (w != WANT_ALWAYS && comes_before(last, w) && (!*next || comes_before(w, *next)))
        *next = w;
}

/* The wants of the level's next block after `last`; 0: there is none. */
static Wants next_wants(const Step *s, Wants last)
{
    Wants next = 0;
    for (int i = 0; i < s->reds.len; i++)
        if (s->reds.data[i].level == s->now + 1)
            consider(s->reds.data[i].wants, last, &next);
    for (int k = 0; k < s->outs.len; k++)
        if (s->out_level[k] == s->now && !s->out_late[k] && !s->out_behind[k])
            consider(out_wants(s, k), last, &next);
    return next;
}

/* Does the next level wait for the exchange? Where outs stand behind the chunk, it is known exactly who reads. */
static bool read_next(const Step *s, int i)
{
    const Red *r = &s->reds.data[i];
    if (s->t->defer)
        return red_shared(s->t, r) && s->read_now[i];
    return red_published(s->t, r) && (r->wants == WANT_ALWAYS || s->read_now[i]);
}

/* For whom the next level reads what this one exchanges: among the warps of each block, or (far) all over the
 * cluster. */
static Wants exchanged(const Step *s, bool far)
{
    Wants w = 0;
    for (int i = 0; i < s->reds.len; i++) {
        const Red *r = &s->reds.data[i];
        if (r->level == s->now + 1 && read_next(s, i) && red_far(s->t, r) == far)
            w |= r->wants;
    }
    return mutate("missing-exchange") ? 0 : w;
}

/* The first half of a cluster's barrier: what the level stores comes between the two. */
static void print_level_arrive(Step *s, Buf *out)
{
    Wants far = exchanged(s, true);
    const char *condition = tile_wanted(s->t, far);
    if (far)
        buf_line(out, condition ? "if (%s) cell_cluster_arrive();" : "cell_cluster_arrive();", condition);
}

/* A barrier before the next level reads what the warps exchange in this one. */
static void print_level_barrier(Step *s, Buf *out)
{
    Tile *t = s->t;
    Wants near = exchanged(s, false), far = exchanged(s, true);
    const char *far_condition = tile_wanted(t, far), *condition = tile_wanted(t, near);
    if (far)
        buf_line(out, far_condition ? "if (%s) cell_cluster_wait();" : "cell_cluster_wait();", far_condition);
    if (far && far_condition && near)
        buf_line(out, "else");
    if (near && (!far || far_condition)) {
        out->indent += far != 0;
        buf_line(out, condition ? "if (%s) cell_barrier();" : "cell_barrier();", condition);
        out->indent -= far != 0;
    }
    s->barriers += near || far;
}

/* begin: the loads and loops of the level, out: what comes behind them. */
static void print_level(Step *s, int *warp, Buf *begin, Buf *out)
{
    Tile *t = s->t;
    Buf pre = { .arena = t->arena, .indent = out->indent }, loops = pre, after = pre, blocks = pre;
    s->pre = &pre;
    for (int k = 0; k < s->next.len; k++)
        if (t->states.data[k].rank < 2 && tile_level(s, s->next.data[k]) == s->now)
            assign_state(s, k);
    print_reds(s, WANT_ALWAYS, &loops, &after);
    for (Wants w = next_wants(s, WANT_ALWAYS); w; w = next_wants(s, w))
        print_wanted(s, w, warp, &blocks);
    buf_f(begin, "%s%s", pre.data ? pre.data : "", loops.data ? loops.data : "");
    buf_f(out, "%s%s", after.data ? after.data : "", blocks.data ? blocks.data : "");
    print_level_arrive(s, out);
    for (int k = 0; k < s->outs.len && !t->refused; k++)
        if (out_wants(s, k) == WANT_ALWAYS && s->out_level[k] == s->now && !s->out_behind[k]) {
            s->is_handed = s->out_handed[k];
            print_out(s, k, warp, s->is_handed ? &s->finish_last : out);
            s->is_handed = false;
        }
    print_level_barrier(s, out);
}

/* ---- when outs are written ---- */

/* Is there a barrier in every step, whatever is asked for? In a cluster, one of all its blocks. */
static bool always_meets(const Step *s)
{
    for (int i = 0; i < s->reds.len; i++) {
        const Red *r = &s->reds.data[i];
        if (r->wants == WANT_ALWAYS && red_published(s->t, r) && (s->t->lay.cr == 1 || red_far(s->t, r)))
            return true;
    }
    return false;
}

/* An out stands at the level that has what it reads. One that reads the last level's exchange only is written
 * by the next step, behind a barrier that is there anyway. */
static void place_out(Step *s, int k)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1);
    bool *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1), late = always_meets(s);
    int level = s->depth;
    mark_reds(s, s->outs.data[k], seen, marks);
    /* A vector is read from the buffer element by element; else an owner reads there only what warps add up. */
    bool vector = late && describe_out(s, k).inner == 1;
    for (int i = 0; i < s->reds.len; i++) {
        const Red *r = &s->reds.data[i];
        bool exchanged = red_warps(t, r) > 1 || (vector && red_published(t, r));
        int at = r->level - !red_published(t, r);
        level = marks[i] && at > level ? at : level;
        late &= !marks[i] || (exchanged && r->level == s->levels && r->wants != WANT_ALWAYS);
    }
    s->out_level[k] = level;
    s->out_late[k] = late && level == s->levels && level == s->depth + 1 && out_wants(s, k) != WANT_ALWAYS &&
                     !reads_registers(s, s->outs.data[k], 0);
    for (int i = 0; i < s->reds.len; i++)
        s->read_now[i] |= marks[i] && !s->out_late[k];
}

/* Does anything but outs read the reductions? */
static void mark_inside(Step *s)
{
    Tile *t = s->t;
    size_t nodes = (size_t)t->m->nodes.len + 1;
    bool *seen = arena_alloc(t->arena, nodes);
    s->read_inside = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int k = 0; k < s->next.len; k++)
        mark_reds(s, node(s, s->next.data[k]).args[0], seen, s->read_inside);
    for (int i = 0; i < s->reds.len; i++)
        mark_reds(s, node(s, s->reds.data[i].reduce).args[0], seen, s->read_inside);
    for (int i = 0; i < s->reds.len; i++)
        s->reds.data[i].inside = s->read_inside[i];
}

/* A vector of reductions that vary over one side, each of which nobody needs as a whole. */
static bool is_loose(Step *s, int k, bool *marks)
{
    Tile *t = s->t;
    const Red *first = NULL;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1), ok = true;
    mark_reds(s, s->outs.data[k], seen, marks);
    for (int i = 0; i < s->reds.len && ok; i++) {
        const Red *r = &s->reds.data[i];
        if (!marks[i])
            continue;
        first = first ? first : r;
        ok = red_rows(r) == red_rows(first) && red_cols(r) == red_cols(first) && red_rows(r) != red_cols(r) &&
             !s->read_inside[i];
    }
    if (!ok || !first || reads_registers(s, s->outs.data[k], 0))
        return false;
    Out o = describe_out(s, k);
    return !t->refused && o.inner == 1 && (red_rows(first) ? o.row : o.col);
}

/* An out that is not read element by element takes its reductions along, and those the outs that read them. */
static void spread_refusal(Step *s, const bool *marks)
{
    int n = s->reds.len;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < s->outs.len; k++)
                for (int j = 0; j < s->outs.len && marks[k * n + i] && !s->out_scattered[k]; j++)
                    if (marks[j * n + i] && s->out_scattered[j]) {
                        s->out_scattered[j] = false;
                        changed = true;
                    }
    }
}

static void find_scattered(Step *s)
{
    Tile *t = s->t;
    int n = s->reds.len;
    bool *marks = arena_alloc(t->arena, (size_t)n * (size_t)(s->outs.len + 1) + 1);
    mark_inside(s);
    s->out_scattered = arena_alloc(t->arena, (size_t)s->outs.len + 1);
    for (int i = 0; i < n; i++)
        s->reds.data[i].loose = s->reds.data[i].scattered = false;
    for (int k = 0; k < s->outs.len; k++)
        s->out_scattered[k] = is_loose(s, k, marks + k * n);
    spread_refusal(s, marks);
    for (int k = 0; k < s->outs.len; k++)
        for (int i = 0; i < n && s->out_scattered[k]; i++)
            s->reds.data[i].loose |= marks[k * n + i];
    /* In this layout the sums must lie in a warp, and be spread over the same lanes. */
    for (int k = 0; k < s->outs.len; k++)
        for (int i = 0; i < n; i++) {
            const Red *r = &s->reds.data[i];
            if (marks[k * n + i] &&
                (red_published(t, r) || !scatters(red_count(t, r), lanes_of(t, r).size)))
                s->out_scattered[k] = false;
        }
    spread_refusal(s, marks);
    for (int k = 0; k < s->outs.len; k++)
        for (int i = 0; i < n && s->out_scattered[k]; i++)
            s->reds.data[i].scattered |= marks[k * n + i];
}

static void place_outs_in_steps(Step *s)
{
    find_scattered(s);
    for (int i = 0; i < s->reds.len; i++)
        s->read_now[i] = s->reds.data[i].level < s->levels;
    for (int k = 0; k < s->outs.len; k++) {
        if (s->wants)
            place_out(s, k);
        else
            s->out_level[k] = tile_level(s, s->outs.data[k]);
    }
}

/* An out that reads sums and what was fetched, but no registers, can be written by any thread: behind the chunk's
 * steps, for all of them at once. */
static bool stands_behind(Step *s, int k)
{
    Tile *t = s->t;
    if (!t->defer || !s->behind_pays || reads_registers(s, s->outs.data[k], 0))
        return false;
    Out o = describe_out(s, k);
    return !t->refused && o.inner < 2;
}

/* Behind the chunk, or at the level that has what they read. */
static void place_out_behind(Step *s, int k)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1);
    bool *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    int level = s->wants ? s->depth : tile_level(s, s->outs.data[k]);
    mark_reds(s, s->outs.data[k], seen, marks);
    s->out_behind[k] = stands_behind(s, k);
    for (int i = 0; i < s->reds.len; i++) {
        Red *r = &s->reds.data[i];
        r->kept |= marks[i] && s->out_behind[k];
        s->read_now[i] |= marks[i] && !s->out_behind[k];
        int at = r->level - !red_shared(t, r);
        level = s->wants && marks[i] && at > level ? at : level;
    }
    s->out_level[k] = level;
}

/* Behind the chunk's steps pays where warps add up what outs read, or lanes could share it out. Where each thread has
 * what it stores, as forward may, a store is cheaper than a detour. */
static bool pays_behind(Step *s)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1), pays = s->kind == STEP_ADJOINT;
    bool *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int k = 0; k < s->outs.len; k++)
        mark_reds(s, s->outs.data[k], seen, marks);
    for (int i = 0; i < s->reds.len; i++)
        pays |= marks[i] && (red_shared(t, &s->reds.data[i]) || red_count(t, &s->reds.data[i]) > 1);
    return pays;
}

/* Does the value read nothing but sums? */
static bool reads_sums(Step *s, NodeId id)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (n.kind == N_LOAD || (n.kind == N_INDEX && ix_uses(n.ix, IX_TIME)) || (is_read(&n) && is_fetch(s, id)))
        return false;
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = tile_read(s, id, map);
        return tile_red(s, array) || (!tile_stored(s, array) && reads_sums(s, node(s, array).args[0]));
    }
    for (int i = 0; i < n.nargs; i++)
        if (!reads_sums(s, n.args[i]))
            return false;
    return true;
}

/* May the next step add up these sums, and store what is made of them? Lanes have to, and in the last level, behind which
 * the step would wait for them. */
static bool may_hand_on(const Step *s, const Red *r)
{
    const Tile *t = s->t;
    return !r->inside && !red_published(t, r) && lanes_of(t, r).size > 1 && r->level == s->levels && s->levels > 1;
}

/* An out of nothing but the last level's sums, which no other out reads. Where steps are joined, two steps' sums are added up
 * at once. */
static void hand_out_on(Step *s, int k)
{
    Tile *t = s->t;
    bool *seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1), *marks = arena_alloc(t->arena, (size_t)s->reds.len + 1), *others;
    if (!t->joined || s->out_behind[k] || s->wants || reads_registers(s, s->outs.data[k], 0) || !reads_sums(s, s->outs.data[k]))
        return;
    Out o = describe_out(s, k);
    bool handed = !t->refused && o.row != o.col;
    mark_reds(s, s->outs.data[k], seen, marks);
    seen = arena_alloc(t->arena, (size_t)t->m->nodes.len + 1);
    others = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int j = 0; j < s->outs.len; j++)
        if (j != k)
            mark_reds(s, s->outs.data[j], seen, others);
    for (int i = 0; i < s->reds.len; i++)
        handed &= !marks[i] || (!others[i] && may_hand_on(s, &s->reds.data[i]));
    for (int i = 0; i < s->reds.len && handed; i++)
        if (marks[i])
            s->reds.data[i].last = tile_unique(t, tile_text(t, "last_%s", s->reds.data[i].var));
    s->out_handed[k] = handed;
    s->hands_outs |= handed;
}

static void place_outs_behind(Step *s)
{
    s->behind_pays = pays_behind(s);
    mark_inside(s);
    for (int i = 0; i < s->reds.len; i++)
        s->read_now[i] = s->read_inside[i];
    for (int k = 0; k < s->outs.len; k++)
        place_out_behind(s, k);
    for (int i = 0; i < s->reds.len; i++) {
        Red *r = &s->reds.data[i];
        r->loose = r->kept && !s->read_now[i];
        /* Backward's registers are full. */
        r->last = r->loose && s->kind == STEP_FORWARD ? tile_unique(s->t, tile_text(s->t, "last_%s", r->var)) : NULL;
    }
    for (int k = 0; k < s->outs.len && s->kind == STEP_FORWARD; k++)
        hand_out_on(s, k);
}

static void place_outs(Step *s)
{
    Tile *t = s->t;
    size_t outs = (size_t)s->outs.len + 1;
    s->out_level = arena_alloc(t->arena, sizeof *s->out_level * outs);
    s->out_late = arena_alloc(t->arena, outs);
    s->out_behind = arena_alloc(t->arena, outs);
    s->out_handed = arena_alloc(t->arena, outs);
    s->hands_outs = false;
    s->out_scattered = arena_alloc(t->arena, outs);
    s->read_now = arena_alloc(t->arena, (size_t)s->reds.len + 1);
    for (int i = 0; i < s->reds.len; i++) {
        s->reds.data[i].kept = s->reds.data[i].scattered = false;
        s->reds.data[i].last = NULL;
    }
    if (t->defer)
        place_outs_behind(s);
    else if (s->outs.len)
        place_outs_in_steps(s);
}

static void print_late(Step *s, int *warp)
{
    Tile *t = s->t;
    s->late = (Buf){ .arena = t->arena, .indent = 4 };
    s->is_late = true;
    for (int c = 0; c < t->classes.len; c++) {
        Buf pre = { .arena = t->arena, .indent = s->late.indent + 1 }, stores = pre;
        s->versions.len = s->inner_versions.len = 0;
        for (int k = 0; k < s->outs.len && !t->refused; k++) {
            s->pre = s->inner = &pre;
            if (s->out_late[k] && out_wants(s, k) == (Wants)1 << c)
                print_out(s, k, warp, &stores);
        }
        s->inner = NULL;
        if (!stores.data)
            continue;
        open_if(&s->late, t->classes.data[c].name);
        buf_f(&s->late, "%s%s", pre.data ? pre.data : "", stores.data);
        close_if(&s->late, t->classes.data[c].name);
    }
    s->is_late = false;
}

/* ---- behind the chunk's steps ---- */

/* Elements of an out of at most one axis on the chip. */
static int64_t out_length(const Step *s, const Out *o)
{
    int64_t n = 1;
    for (int i = 0; i < node(s, o->array).naxes; i++)
        if (o->role[i] < ROLE_PAR)
            n = o->extent[i]->value;
    return n;
}

/* Are so many neighbours stored at once, and aligned so? */
static bool stores_run(Step *s, Out *o, int64_t n, int wide)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    const Poly *pitch;
    o->row = o->col = false;
    t->any = tile_any(t, n);
    out_value(s, o, map);
    const IxExpr *rest = ix_sub(t->m, out_place(s, o, map, &pitch), ix_index(t->m, t->any));
    return !ix_uses(rest, t->any) && tile_ix_multiple(rest, wide) && tile_multiple(pitch, wide);
}

/* Element x of the out of step s, or several from element `first` on. */
static void print_elements(Step *s, Out *o, int wide, const char *condition, Buf *out)
{
    Tile *t = s->t;
    const IxExpr *map[TILE_MAX_AXES];
    Buf pre = { .arena = t->arena, .indent = out->indent + (condition != NULL) }, body = pre;
    body.indent += wide > 1;
    o->row = o->col = false;
    s->body = &body;
    s->pre = &pre;
    s->locals.len = s->versions.len = s->inner_versions.len = 0;
    NodeId value = out_value(s, o, map);
    ExprPrinter p = tile_printer(s);
    const char *text = expr_text(&p, value);
    if (wide > 1)
        buf_line(&body, "some[i] = %s;", text);
    else
        store_out(s, o, map, text, &body);
    s->body = s->pre = NULL;
    open_if(out, condition);
    buf_f(out, "%s", pre.data ? pre.data : "");
    if (wide > 1) {
        buf_line(out, "%s some[%d];", t->real, wide);
        buf_line(out, "CELL_UNROLL");
        buf_line(out, "for (int i = 0; i < %d; i++) {", wide);
        buf_line(out, "    const int x = first + i;");
    }
    buf_f(out, "%s", body.data);
    if (wide > 1) {
        buf_line(out, "}");
        t->any_text = "first";
        const char *at = out_address(s, o, map);
        buf_line(out, may_add(t, o) ? "cell_put_vec<%d>(%s, some, args.flags & CELL_KERNEL_ACCUMULATE);"
                                    : "cell_store_vec<%d>(%s, some);", wide, at);
        t->any_text = "x";
    }
    close_if(out, condition);
}

enum { MOST_NEIGHBOURS = 4 };

static bool has_length(Step *s, int k, int64_t n)
{
    Out o = describe_out(s, k);
    return s->out_behind[k] && !s->t->refused && out_length(s, &o) == n;
}

/* Neighbours that a thread takes of the outs of n elements: as many as make one round of the chunk. */
static int behind_width(Step *s, int64_t n)
{
    Tile *t = s->t;
    int wide = 1;
    while (wide < MOST_NEIGHBOURS && n % (2 * wide) == 0 && t->F * n / wide > tile_threads(&t->lay))
        wide *= 2;
    for (int k = 0; k < s->outs.len && wide > 1; k++) {
        Out o = describe_out(s, k);
        while (wide > 1 && has_length(s, k, n) && !stores_run(s, &o, n, wide))
            wide /= 2;
    }
    return wide;
}

/* The thread's number, counted from the warp's first one. */
static const char *thread_from(Tile *t, int warp)
{
    int threads = tile_threads(&t->lay);
    return warp ? tile_text(t, "(cell_thread() + %d) %% %d", threads - 32 * warp, threads) : "cell_thread()";
}

/* All outs of n elements a step, in one loop, which begins with that warp: it runs once or twice in a chunk, so that its
 * code is short rather than unrolled. -> the warp behind those that have elements. */
static int print_outs_behind(Step *s, int64_t n, int warp, Buf *out)
{
    Tile *t = s->t;
    int threads = tile_threads(&t->lay), wide = behind_width(s, n);
    int64_t runs = n / wide;
    buf_line(out, "CELL_UNROLL_BY(1)");
    buf_line(out, "for (int p = %s; p < steps * %" PRId64 "; p += %d) {", thread_from(t, warp), runs, threads);
    out->indent++;
    if (wide > 1)
        buf_line(out, "const int s = p / %" PRId64 ", first = p %% %" PRId64 " * %d;", runs, runs, wide);
    else
        buf_line(out, "const int s = p / %" PRId64 ", x = p %% %" PRId64 ";", n, n);
    buf_line(out, "const int64_t t = t0 + s;");
    tile_print_place(t, out);
    buf_line(out, wide > 1 ? "(void)first;" : "(void)x;");
    t->any_text = "x";
    t->any = tile_any(t, n);
    for (int k = 0; k < s->outs.len && !t->refused; k++) {
        Out o = describe_out(s, k);
        int c = t->class_of.data[k];
        if (has_length(s, k, n))
            print_elements(s, &o, wide, s->wants && c >= 0 ? t->classes.data[c].name : out_condition(s, &o), out);
    }
    out->indent--;
    buf_line(out, "}");
    return (warp + (int)((t->F * runs + 31) / 32)) % (threads / 32);
}

static void print_behind(Step *s)
{
    Tile *t = s->t;
    s->behind = (Buf){ .arena = t->arena, .indent = t->makers ? 4 : 3 };
    s->is_behind = true;
    s->inner = NULL;
    int warp = 0;
    for (int k = 0; k < s->outs.len && !t->refused; k++) {
        Out o = describe_out(s, k);
        int64_t n = out_length(s, &o);
        bool first = s->out_behind[k];
        for (int i = 0; i < k && first; i++)
            first = !has_length(s, i, n);
        if (first)
            warp = print_outs_behind(s, n, warp, &s->behind);
    }
    s->is_behind = false;
}

void tile_print_step(Step *s, Buf *head, Buf *out)
{
    Tile *t = s->t;
    int warp = 0;
    s->versions.len = 0;
    s->barriers = s->rows_kept = s->cols_kept = s->ones_kept = 0;
    s->exchange = 0;
    s->elements = 0;
    s->assigned = arena_alloc(t->arena, (size_t)t->states.len + 1);
    s->levels = 0;
    for (int i = 0; i < s->reds.len; i++) {
        Red *r = &s->reds.data[i];
        r->var = tile_unique(t, tile_text(t, "%s_%s", red_function(r->op), r->name));
        r->own = tile_unique(t, tile_text(t, "own_%s", r->var));
        s->levels = r->level > s->levels ? r->level : s->levels;
    }
    for (int k = 0; k < s->next.len; k++)
        if (t->states.data[k].rank == 2)
            buf_line(out, "%s %s[%d][%d];", t->real, root_variable(s, &t->states.data[k]), t->lay.rr,
                     t->lay.rc);
    place_outs(s);
    /* No store to shared memory stands before a read of the fetches: the compiler would take it for one of the same place, so
     * that a level's sums would be followed by a wait for what the next level reads. */
    Buf fetched = { .arena = t->arena, .indent = out->indent }, first = fetched, rest = fetched;
    s->fetched = s->kind == STEP_FORWARD || t->ahead || (s->kind == STEP_ADJOINT && t->early) ? &fetched : NULL;
    s->last_sums = s->finish_last = (Buf){ .arena = t->arena, .indent = out->indent };
    s->last_sums.indent -= 1 + tile_has_segments(t);
    for (s->now = 0; s->now <= s->levels && !t->refused; s->now++)
        print_level(s, &warp, s->now ? &rest : &first, &rest);
    s->fetched = NULL;
    buf_f(head, "%s", fetched.data ? fetched.data : "");
    buf_f(out, "%s%s%s", first.data ? first.data : "",
          s->finish_last.data ? s->finish_last.data : "", rest.data ? rest.data : "");
    print_late(s, &warp);
    if (s->late.data)
        buf_line(out, "if (s + 1 < steps) late(s + 1);");
    print_behind(s);
}
