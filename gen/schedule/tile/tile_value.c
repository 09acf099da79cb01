/* tile_value.c: the values that a step reads, as text. A matrix value lives only inside the loop over the thread's elements; a
 * vector is a variable for the rows or columns that the thread owns, made once a step, or is read at any index from the
 * exchange buffer. States are in registers: their next values are assigned here, and taken back where a step is undone. */
#include <inttypes.h>

#include "base/mutate.h"
#include "ir/marks.h"
#include "tile_step.h"

static const char *find(const VersionVec *v, NodeId read)
{
    for (int i = 0; i < v->len; i++)
        if (v->data[i].read == read)
            return v->data[i].name;
    return NULL;
}

/* The variable that holds the value, if one does. */
const char *tile_held_version(const Step *s, NodeId read)
{
    const char *name = find(&s->versions, read);
    return name || !s->inner ? name : find(&s->inner_versions, read);
}

const char *tile_element(Tile *t, const char *name, bool row, bool col)
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

static const char *state_text(Step *s, const StateInfo *st, const Node *read, const char *name,
                              const IxExpr *const *map)
{
    if (!own_element(s->t, st, map))
        tile_refuse_of(s->t, read,
                       "state `%s` is read at another element than the one that is being computed",
                       s->t->m->tensors.data[st->tensor].name);
    return tile_element(s->t, name, state_rows(st), state_cols(st));
}

/* The exchange buffer holds a block's own rows, or its share: from which element on. "": it holds all. */
static const char *red_origin(Tile *t, const Red *r)
{
    if (t->lay.cr == 1 || !(red_spread(t, r) || (red_rows(r) && !red_far(t, r))))
        return "";
    return tile_text(t, " - rank * %d", red_rows(r) ? tile_block_rows(&t->lay) : (int)tile_share(t, &t->lay, t->cols));
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
            tile_refuse_of(s->t, &a,
                           "a step reads %s%s%s at another place along an axis that blocks share out",
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
    buf_line(to, "%s = %s;", tile_element(t, name, row, col), text);
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
        const char *own = tile_element(t, r->var, row, col);
        buf_line(to, "%s = %s;", own, red_combine(t, r->op, own, tile_element(t, part, row, col)));
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
    if (red_warps(t, r) > 1 && !tile_held_version(s, id))
        define_exchanged(s, keep(s, id, r->var), r);
    return tile_element(t, s->is_handed ? r->last : r->var, red_rows(r), red_cols(r));
}

NodeId tile_body_at(Step *s, NodeId array, const IxExpr *const *map)
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

bool tile_is_read(const Node *n)
{
    return n->kind == N_ARRAY || n->kind == N_VIEW || n->kind == N_LOAD;
}

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
        return state_text(s, st, &n, t->m->tensors.data[n.tensor].kind == T_DNEXT ? st->adj : st->name,
                          n.map);
    }
    const IxExpr *map[TILE_MAX_AXES];
    NodeId array = tile_read(s, id, map);
    if (!tile_whole(s, array, &k))
        return NULL;
    const StateInfo *st = &t->states.data[k];
    if (s->kind != STEP_ADJOINT && own_element(t, st, map))
        tile_assign_state(s, k);
    return state_text(s, st, &n, s->kind == STEP_ADJOINT ? st->after : st->next, map);
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

bool tile_is_fetch(Step *s, NodeId id)
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
    Node n = node(s, id);
    return tile_origin(s->t, n.kind == N_VIEW ? n.args[0] : id);
}

/* Consecutive elements of a fetched vector, read at once. */
static bool define_run(Step *s, Buf *to, NodeId id, const char *name, bool row)
{
    Tile *t = s->t;
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    const char *first;
    int width = row ? t->lay.rr : t->lay.rc;
    if (!runs(t, row) || !(row ? tile_rows_exact(t) : tile_cols_exact(t)))
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
    const char *known = tile_held_version(s, id);
    if (known)
        return tile_element(t, known, row, col);
    const IxExpr *map[TILE_MAX_AXES];
    if (tile_is_fetch(s, id)) {
        const char *name = variable_name(s, value_name(s, id), row, col);
        Buf *to = s->fetched;
        if (to)
            remember(s, &s->versions, id, name);
        else
            to = keep(s, id, name);
        if (!(row || col) || !define_run(s, to, id, name, row))
            define(s, to, name, row, col, fetch_text(s, id), "");
        return tile_element(t, name, row, col);
    }
    NodeId array = tile_read(s, id, map), body = tile_body_at(s, array, map);
    Node b = node(s, body);
    ExprPrinter p = tile_printer(s);
    const char *text = expr_text(&p, body);
    if (tile_is_read(&b) || b.kind == N_CONST)
        return text;
    const char *name = variable_name(s, value_name(s, id), row, col);
    define(s, keep(s, id, name), name, row, col, text, value_origin(s, id));
    return tile_element(t, name, row, col);
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
    bool plain = tile_is_fetch(s, id);
    if (plain) {
        text = fetch_text(s, id);
    } else {
        NodeId array = tile_read(s, id, map), body = tile_body_at(s, array, map);
        Node b = node(s, body);
        ExprPrinter p = tile_printer(s);
        text = expr_text(&p, body);
        plain = tile_is_read(&b) || b.kind == N_CONST;
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
    if (tile_is_read(&n) && tile_is_fetch(s, id))
        return fetch_text(s, id);
    if (n.kind == N_REDUCE) {
        tile_refuse_of(s->t, &n, "an initial state is a sum");
        return "0";
    }
    return expr_text(&p, tile_body_at(s, tile_read(s, id, map), map));
}

static const char *leaf(ExprPrinter *p, NodeId id)
{
    Step *s = p->data;
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    if (s->t->initial)
        return initial_leaf(s, id);
    if (n.kind == N_REDUCE) {
        tile_refuse_of(s->t, &n, "a reduction stands inside an expression");
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

const char *tile_root_variable(const Step *s, const StateInfo *st)
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
    return tile_stored(s, root) ? node_view(t->m, root, map, t->npar + st->rank) : tile_body_at(s, root, map);
}

void tile_assign_state(Step *s, int k)
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
    const char *name = tile_root_variable(s, st), *comment = value_origin(s, s->next.data[k]);
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
    int inside = tile_reads_registers(s, n.args[1]);
    if (tile_reads_registers(s, n.args[!inside]))
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
    int inside = tile_reads_registers(s, n.args[1]);
    return !tile_reads_registers(s, n.args[!inside]) && undoes(s, st, n.args[inside]);
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
        const char *before = undo_text(s, st, root_at(s, k), tile_element(t, st->after, rows, cols));
        buf_line(&body, "%s = %s;", tile_element(t, st->name, rows, cols), before);
        tile_open(t, &loops, rows, cols);
        buf_f(&loops, "%s", body.data);
        tile_close(&loops, rows, cols);
    }
    s->body = s->pre = NULL;
    buf_f(out, "%s%s", pre.data ? pre.data : "", loops.data ? loops.data : "");
}

static bool finds_registers(Step *s, NodeId id, Marks *seen)
{
    Node n = node(s, id);
    const IxExpr *map[TILE_MAX_AXES];
    int k;
    if (!marks_first(seen, id))
        return false;
    if (n.kind == N_LOAD)
        return tile_state(s->t, n.tensor) != NULL;
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = tile_read(s, id, map);
        if (tile_stored(s, array) || tile_red(s, array))
            return false;
        return tile_whole(s, array, &k) || finds_registers(s, node(s, array).args[0], seen);
    }
    for (int i = 0; i < n.nargs; i++)
        if (finds_registers(s, n.args[i], seen))
            return true;
    return false;
}

/* Does a register that only its owner can read stand in the value? */
bool tile_reads_registers(Step *s, NodeId id)
{
    Marks *seen = marks_begin(s->t->m);
    bool reads = finds_registers(s, id, seen);
    marks_end(seen);
    return reads;
}
