/* walk_pass.c: a step's values as statements. Pass by pass; in one with rows a loop over these, and in
 * that, level by level, the row's numbers and its loops over vectors of neighbours. What a loop stores
 * stands at the end of its body, so that a state may be overwritten. Sums along a row are one vector,
 * added up in a fixed order behind the loop; sums over rows are vectors in scratch memory. */
#include "walk.h"

static const char *identity(const WalkValue *v)
{
    switch (v->op) {
    case R_MAX: return "-(real)INFINITY";
    case R_MIN: return "(real)INFINITY";
    case R_PROD: return "1";
    default: return "0";
    }
}

static const char *combine(CpuWalk *w, const WalkValue *v, const char *a, const char *b)
{
    switch (v->op) {
    case R_MAX: return walk_text(w, "cell_v_max(%s, %s)", a, b);
    case R_MIN: return walk_text(w, "cell_v_min(%s, %s)", a, b);
    case R_PROD: return walk_text(w, "%s * %s", a, b);
    default: return walk_text(w, "%s + %s", a, b);
    }
}

static const char *added_up(CpuWalk *w, const WalkValue *v, const char *vector)
{
    const char *how = v->op == R_MAX    ? "most"
                      : v->op == R_MIN  ? "least"
                      : v->op == R_PROD ? "product"
                                        : "sum";
    return walk_text(w, "cell_v_%s(%s)", how, vector);
}

static int number_of(const WalkStep *s, const WalkValue *v)
{
    return (int)(v - s->values.data);
}

static void focus(CpuWalk *w, const WalkValue *v, WalkFrame *f)
{
    walk_frame(w, v, f);
    w->value = v;
    w->frame = f;
    w->depth = 0;
    w->guarded = false;
    w->lane = NULL;
    w->col_text = "c";
    walk_begin_expression(w, v->body);
}

static const char *row_text(CpuWalk *w)
{
    return w->row ? walk_text(w, "(r + %d)", w->row) : "r";
}

/* The variable, accumulator ('a') or value ('v'), of the row that is printed. */
static const char *variable_name(CpuWalk *w, char kind, int number)
{
    return w->rows > 1 ? walk_text(w, "%c%d_%d", kind, number, w->row) : walk_text(w, "%c%d", kind, number);
}

/* Element, or first of a vector, of what lies in scratch memory. */
static const char *own_place(CpuWalk *w, const WalkValue *v)
{
    bool rows = false, cols = false;
    for (int k = 0; k < v->rank; k++) {
        rows |= v->axes[v->own[k]].local == v->row;
        cols |= v->axes[v->own[k]].local == v->col;
    }
    if (!rows || !cols)
        return rows ? row_text(w) : cols ? "c" : "0";
    long long pitch = walk_padded(w, v->axes[v->own[1]].n);
    if (v->one_row)
        return w->row ? walk_text(w, "%lld + c", pitch * w->row) : "c";
    return walk_text(w, "%s * %lld + c", row_text(w), pitch);
}

/* ---- what is stored in memory ---- */

/* Gradients that the caller has may be added to. */
static bool may_add(const CpuWalk *w, const WalkValue *v)
{
    return w->walk->of_node[v->array].home == HOME_ARG && w->pr->dir == BACKWARD;
}

static void put_vector(CpuWalk *w, const WalkValue *v, const char *value, Buf *out)
{
    Dtype d = w->walk->of_node[v->array].dtype;
    const char *at = walk_store_address(w, v), *type = walk_element(w, d);
    int n = w->tail ? w->tail : w->lanes, ref = walk_ref(w, REF_NODE, v->array);
    const WalkAxis *last = &v->axes[v->own[v->rank - 1]];
    if (last->local != v->col) {
        buf_line(out, "for (int l = 0; l < %d && p%d; l++) {", n, ref);
        w->col_text = "(c + l)";
        at = walk_store_address(w, v);
        w->col_text = "c";
        buf_line(out, "    cell_store_%s(%s, %s[l]%s);", type, at, value,
                 may_add(w, v) ? walk_text(w, " + (adds ? cell_load_%s(%s) : 0)", type, at) : "");
        buf_line(out, "}");
        return;
    }
    if (may_add(w, v))
        value = walk_text(w, "(adds ? %s + cell_v_get_%s(%s, %d) : %s)", value, type, at, n, value);
    buf_line(out, "if (p%d)", ref);
    if (walk_plain(w, d) && n == w->lanes)
        buf_line(out, "    cell_v_store(%s, %s);", at, value);
    else
        buf_line(out, "    cell_v_put_%s(%s, %s, %d);", type, at, value, n);
}

static void put_number(CpuWalk *w, const WalkValue *v, const char *value, Buf *out)
{
    const char *at = walk_store_address(w, v), *type = walk_element(w, w->walk->of_node[v->array].dtype);
    if (may_add(w, v))
        value = walk_text(w, "%s + (adds ? cell_load_%s(%s) : 0)", value, type, at);
    buf_line(out, "if (p%d)", walk_ref(w, REF_NODE, v->array));
    buf_line(out, "    cell_store_%s(%s, %s);", type, at, value);
}

/* A vector that a pass has left in scratch memory. */
static void put_left(CpuWalk *w, const WalkValue *v, Buf *out)
{
    WalkFrame f;
    WalkValue own = *v;
    own.col = v->axes[v->own[0]].local;
    own.cols = v->axes[v->own[0]].n;
    own.row = -1;
    own.rows = 1;
    focus(w, &own, &f);
    Buf loop = { .arena = w->arena, .indent = out->indent + 1 };
    int64_t full = own.cols / w->lanes * w->lanes;
    w->step_head.out = out;
    w->tail = 0;
    if (full) {
        put_vector(w, &own, walk_text(w, "cell_v_load(%s + c)", v->name), &loop);
        buf_line(out, "for (int c = 0; c < %lld; c += CELL_W) {", (long long)full);
        buf_f(out, "%s", loop.data);
        buf_line(out, "}");
    }
    w->tail = (int)(own.cols - full);
    if (w->tail) {
        loop = (Buf){ .arena = w->arena, .indent = out->indent + 1 };
        put_vector(w, &own, walk_text(w, "cell_v_load(%s + c)", v->name), &loop);
        buf_line(out, "{");
        buf_line(out, "    const int c = %lld;", (long long)full);
        buf_f(out, "%s", loop.data);
        buf_line(out, "}");
    }
    w->tail = 0;
}

/* ---- a loop along a row ---- */

static const char *masked(CpuWalk *w, const WalkValue *v, const char *text)
{
    return w->tail && v->over_col ? walk_text(w, "cell_v_first(%s, %d, %s)", text, w->tail, identity(v))
                                  : text;
}

/* Adds the value's term to what `sum` holds. */
static const char *accumulated(CpuWalk *w, const WalkValue *v, const char *sum)
{
    NodeId f[2];
    if (v->op == R_SUM && !(w->tail && v->over_col) && walk_product(w, v->body, f)) {
        const char *a = walk_real(w, f[0]);
        return walk_text(w, "cell_v_fma(%s, %s, %s)", a, walk_real(w, f[1]), sum);
    }
    const char *term = masked(w, v, walk_real(w, v->body));
    return combine(w, v, sum, term);
}

static void store_vector(CpuWalk *w, const WalkValue *v, const char *var, Buf *late)
{
    if (v->name && v->rank == 2 && v->axes[v->own[0]].local != v->row) {
        buf_line(late, "for (int l = 0; l < %d; l++)", w->tail ? w->tail : w->lanes);
        buf_line(late, "    %s[(c + l) * %lld + %s] = %s[l];", v->name,
                 (long long)walk_padded(w, v->axes[v->own[1]].n), row_text(w), var);
    } else if (v->name) {
        buf_line(late, "cell_v_store(%s + %s, %s);", v->name, own_place(w, v), var);
    }
    if (v->out)
        put_vector(w, v, var, late);
}

/* The value's vector, or what it adds to a sum, of the row that is printed. */
static void loop_value(CpuWalk *w, WalkValue *v, Buf *late)
{
    WalkFrame f;
    focus(w, v, &f);
    w->vector = true;
    w->scalars = NULL;
    int k = number_of(w->step, v);
    if (v->reduces) {
        const char *sum = v->over_row ? walk_text(w, "a%d", k) : variable_name(w, 'a', k);
        if (!v->over_col && w->row == 0)
            buf_line(late, "cell_v %s = cell_v_load(%s + c);", sum, v->name);
        buf_line(late, "%s = %s;", sum, accumulated(w, v, sum));
        if (!v->over_col && w->row == w->rows - 1)
            buf_line(late, "cell_v_store(%s + c, %s);", v->name, sum);
    } else {
        v->var[w->row] = variable_name(w, 'v', k);
        const char *text = walk_real(w, v->body);
        buf_line(w->body.out, "const cell_v %s = %s;", v->var[w->row], text);
        store_vector(w, v, v->var[w->row], late);
    }
    w->vector = false;
}

typedef struct WalkGroup {
    WalkValue **v;
    int n;
} WalkGroup;

static void loop_body(CpuWalk *w, const WalkGroup *g, Buf *out)
{
    Buf late = { .arena = w->arena, .indent = out->indent };
    w->body = (WalkScope){ .out = out };
    for (int k = 0; k < g->n; k++)
        for (w->row = 0; w->row < w->rows; w->row++)
            loop_value(w, g->v[k], &late);
    w->row = 0;
    buf_f(out, "%s", late.data ? late.data : "");
}

static bool sums_along(const WalkValue *v)
{
    return v->reduces && v->over_col && !v->over_row;
}

/* The sums along the rows, from the accumulators. */
static void finish_sums(CpuWalk *w, WalkValue *v, Buf *out)
{
    int k = number_of(w->step, v);
    bool together = w->rows == WALK_ROWS && v->op == R_SUM;
    if (together) {
        buf_line(out, "const cell_four s%d = cell_v_sum_four(a%d_0, a%d_1, a%d_2, a%d_3);", k, k, k, k, k);
        if (v->name)
            buf_line(out, "cell_four_store(%s + r, s%d);", v->name, k);
    }
    for (w->row = 0; w->row < w->rows; w->row++) {
        const char *var = v->var[w->row] = variable_name(w, 'v', k);
        buf_line(out, "const real %s = %s;", var,
                 together ? walk_text(w, "s%d[%d]", k, w->row) : added_up(w, v, variable_name(w, 'a', k)));
        if (v->name && !together)
            buf_line(out, "%s[%s] = %s;", v->name, v->row >= 0 ? row_text(w) : "0", var);
    }
    w->row = 0;
}

static void print_loop(CpuWalk *w, const WalkGroup *g, Buf *out)
{
    int64_t cols = g->v[0]->cols, full = cols / w->lanes * w->lanes;
    for (int k = 0; k < g->n; k++)
        for (w->row = 0; w->row < w->rows && sums_along(g->v[k]); w->row++)
            buf_line(out, "cell_v %s = cell_v_of(%s);", variable_name(w, 'a', number_of(w->step, g->v[k])),
                     identity(g->v[k]));
    w->row = 0;
    for (int part = 0; part < 2; part++) {
        Buf body = { .arena = w->arena, .indent = out->indent + 1 };
        w->tail = part ? (int)(cols - full) : 0;
        if (part ? cols == full : full == 0)
            continue;
        loop_body(w, g, &body);
        if (part) {
            buf_line(out, "{");
            buf_line(out, "    const int c = %lld;", (long long)full);
        } else {
            buf_line(out, "for (int c = 0; c < %lld; c += CELL_W) {", (long long)full);
        }
        buf_f(out, "%s", body.data ? body.data : "");
        buf_line(out, "}");
    }
    w->tail = 0;
    for (int k = 0; k < g->n; k++)
        if (sums_along(g->v[k]))
            finish_sums(w, g->v[k], out);
}

/* ---- a pass ---- */

/* A number of the row that is printed, or of the step. */
static void print_number(CpuWalk *w, WalkValue *v, Buf *out)
{
    WalkFrame f;
    focus(w, v, &f);
    w->vector = false;
    w->scalars = &w->row_head;
    const char *text = walk_real(w, v->body),
               *var = v->var[w->row] = variable_name(w, 'v', number_of(w->step, v));
    buf_line(out, "const real %s = %s;", var, text);
    if (v->name)
        buf_line(out, "%s[%s] = %s;", v->name, v->row >= 0 ? row_text(w) : "0", var);
    if (v->out && v->rank == 0)
        put_number(w, v, var, out);
}

static void print_level(CpuWalk *w, const WalkGroup *pass, int level, Buf *out)
{
    WalkGroup g = { arena_alloc(w->arena, sizeof *g.v * (size_t)(pass->n + 1)), 0 };
    bool *done = arena_alloc(w->arena, (size_t)pass->n + 1);
    for (int k = 0; k < pass->n; k++)
        for (w->row = 0; w->row < w->rows && pass->v[k]->level == level && pass->v[k]->col < 0; w->row++)
            print_number(w, pass->v[k], out);
    w->row = 0;
    for (int k = 0; k < pass->n; k++) {
        if (done[k] || pass->v[k]->level != level || pass->v[k]->col < 0)
            continue;
        g.n = 0;
        for (int i = k; i < pass->n; i++)
            if (pass->v[i]->level == level && pass->v[i]->col >= 0 && pass->v[i]->cols == pass->v[k]->cols) {
                g.v[g.n++] = pass->v[i];
                done[i] = true;
            }
        print_loop(w, &g, out);
    }
}

/* Sums over rows begin in front of the pass. */
static void begin_sums(CpuWalk *w, const WalkGroup *pass, Buf *out)
{
    for (int k = 0; k < pass->n; k++) {
        const WalkValue *v = pass->v[k];
        if (!v->over_row)
            continue;
        if (v->over_col)
            buf_line(out, "cell_v a%d = cell_v_of(%s);", number_of(w->step, v), identity(v));
        else
            buf_line(out, "cell_v_fill(%s, %lld, %s);", v->name, (long long)v->cols, identity(v));
    }
}

static void end_sums(CpuWalk *w, const WalkGroup *pass, Buf *out)
{
    for (int k = 0; k < pass->n; k++) {
        WalkValue *v = pass->v[k];
        int number = number_of(w->step, v);
        if (v->over_row && v->over_col) {
            WalkFrame f;
            v->var[0] = walk_text(w, "v%d", number);
            buf_line(out, "const real %s = %s;", v->var[0], added_up(w, v, walk_text(w, "a%d", number)));
            focus(w, v, &f);
            w->step_head.out = out;
            if (v->out)
                put_number(w, v, v->var[0], out);
        }
        bool left = v->over_row || v->col < 0 || v->reduces;
        if (v->out && v->rank == 1 && left)
            put_left(w, v, out);
        if (v->out && v->rank == 0 && v->over_col && !v->over_row) {
            WalkFrame f;
            focus(w, v, &f);
            w->step_head.out = out;
            put_number(w, v, v->var[0], out);
        }
    }
}

/* The pass for `count` rows from `first` on, so many at once; where it has none, once. */
static void print_rows(CpuWalk *w, const WalkGroup *pass, int at_once, int64_t first, int64_t end, Buf *out)
{
    bool rows = pass->v[0]->row >= 0;
    int levels = 0, known = w->row_head.locals.len;
    for (int k = 0; k < pass->n; k++)
        levels = pass->v[k]->level + 1 > levels ? pass->v[k]->level + 1 : levels;
    Buf row = { .arena = w->arena, .indent = out->indent + rows };
    w->row_head.out = &row;
    w->rows = at_once;
    for (int level = 0; level < levels; level++)
        print_level(w, pass, level, &row);
    w->rows = 1;
    if (rows) {
        w->row_head.locals.len = known;
        buf_line(out, "for (int r = %lld; r < %lld; r += %d) {", (long long)first, (long long)end, at_once);
    }
    buf_f(out, "%s", row.data ? row.data : "");
    if (rows)
        buf_line(out, "}");
}

static void print_pass(CpuWalk *w, const WalkGroup *pass, Buf *out)
{
    int64_t rows = pass->v[0]->rows, blocks = pass->v[0]->row >= 0 ? rows / WALK_ROWS * WALK_ROWS : 0;
    Buf head = { .arena = w->arena, .indent = out->indent }, loops = head;
    w->step_head.out = &head;
    if (blocks)
        print_rows(w, pass, WALK_ROWS, 0, blocks, &loops);
    if (blocks < rows)
        print_rows(w, pass, 1, blocks, rows, &loops);
    buf_f(out, "%s", head.data ? head.data : "");
    begin_sums(w, pass, out);
    buf_f(out, "%s", loops.data ? loops.data : "");
    end_sums(w, pass, out);
}

/* ---- the step ---- */

static void name_values(CpuWalk *w, WalkStep *s)
{
    for (int i = 0; i < s->values.len; i++) {
        WalkValue *v = &s->values.data[i];
        if (v->next_of) {
            v->name = w->states.data[v->next_of - 1].next;
            continue;
        }
        if (v->name || v->variable || v->rank == 0)
            continue;
        /* Without readers, only memory has it. */
        if (v->out && v->col >= 0 && !v->reduces && v->variable)
            continue;
        const char *base = w->m->nodes.data[v->array].name;
        v->name = walk_name(w, walk_text(w, "%s_s", base ? base : "value"));
        int64_t n = v->axes[v->own[0]].n;
        if (v->rank == 2)
            n = (v->one_row && !v->reduces ? WALK_ROWS : n) * walk_padded(w, v->axes[v->own[1]].n);
        walk_carve(w, v->name, walk_padded(w, n));
    }
}

void walk_print_step(CpuWalk *w, WalkStep *s, Buf *out)
{
    w->step = s;
    w->rows = 1;
    w->step_head = w->row_head = (WalkScope){ .out = NULL };
    name_values(w, s);
    WalkGroup g = { arena_alloc(w->arena, sizeof *g.v * (size_t)(s->values.len + 1)), 0 };
    bool *done = arena_alloc(w->arena, (size_t)s->values.len + 1);
    for (int pass = 0; pass < s->passes; pass++)
        for (int k = 0; k < s->values.len; k++) {
            if (done[k] || s->values.data[k].pass != pass)
                continue;
            g.n = 0;
            for (int i = k; i < s->values.len; i++)
                if (s->values.data[i].pass == pass && s->values.data[i].rows == s->values.data[k].rows) {
                    g.v[g.n++] = &s->values.data[i];
                    done[i] = true;
                }
            print_pass(w, &g, out);
        }
    w->value = NULL;
    w->frame = NULL;
}
