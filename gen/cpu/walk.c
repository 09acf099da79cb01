/* walk.c: the function of a walk on the CPU. In comes a plan by a schedule whose walk is one group
 * (tile); out goes a C function that takes items, each a place of the batch and the parallel axes, and
 * walks one after the other over all steps. Forward leaves a checkpoint of the states every so many
 * steps. Backward goes from checkpoint to checkpoint: it replays the steps between, keeps the state
 * before each, and walks them back. */
#include "walk.h"

#include <string.h>

#include "schedule/schedule.h"

/* ---- what is walked ---- */

static void add_state(CpuWalk *w, TensorId t)
{
    const Tensor *x = &w->m->tensors.data[t];
    WalkState s = {
        .tensor = t, .t = x, .rank = x->rank - w->npar, .pitch = 1, .elements = 1, .extent = { 1, 1 }
    };
    if (s.rank < 0 || s.rank > 2) {
        walk_refuse(w, NULL, "state `%s` has %d axes beside those that are walked apart", x->name, s.rank);
        return;
    }
    for (int k = 0; k < s.rank; k++) {
        if (!x->axes[w->npar + k]->is_const) {
            walk_refuse(w, NULL, "state `%s` has an axis of run-time size", x->name);
            return;
        }
        s.extent[k] = x->axes[w->npar + k]->value;
    }
    s.pitch = s.rank ? walk_padded(w, s.extent[s.rank - 1]) : w->lanes;
    s.elements = walk_padded(w, s.rank == 2 ? s.extent[0] * s.pitch : s.pitch);
    s.elements = (s.elements + WALK_ALIGN - 1) / WALK_ALIGN * WALK_ALIGN;
    vec_push(w->arena, &w->states, s);
}

static void find_states(CpuWalk *w)
{
    Module *m = w->m;
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_STATE && m->roots.data[t].next >= 0)
            add_state(w, t);
}

static void find_outs(CpuWalk *w)
{
    for (int k = 0; k < w->walk->outs.len; k++)
        w->is_out[w->walk->outs.data[k]] = true;
    for (int k = 0; k < w->states.len; k++) {
        NodeId next = w->m->roots.data[w->states.data[k].tensor].next;
        if (!w->after_of[next])
            w->after_of[next] = k + 1;
    }
}

static void begin(CpuWalk *w, Plan *p, Program *pr, Group *g)
{
    Module *m = p->m;
    *w = (CpuWalk){
        .p = p, .pr = pr, .m = m, .arena = m->arena, .walk = g->walk, .is_double = p->dtype == DT_F64
    };
    w->lanes = w->is_double ? 8 : 16;
    w->interval = g->walk->interval ? g->walk->interval : p->interval;
    w->carves = (Buf){ .arena = m->arena, .indent = 1 };
    w->is_out = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    w->after_of = arena_alloc(m->arena, sizeof *w->after_of * ((size_t)m->nodes.len + 1));
    w->npar = p->schedule->blocks ? p->schedule->blocks(m, w->par_extent) : 0;
    if (w->npar < 0) {
        w->npar = 0;
        walk_refuse(w, NULL, "its states have more than %d axes that are walked apart", MAX_PARALLEL);
    }
    for (int k = 0; k < w->npar; k++)
        w->par[k] = module_index(m, intern_f(m->c, "par%d", k), w->par_extent[k]);
    names_init(&w->names, m->c);
    find_states(w);
    if (!w->refused)
        find_outs(w);
}

/* ---- states in memory ---- */

static const char *pointer(CpuWalk *w, RefKind kind, int id)
{
    return walk_text(w, "p%d", walk_ref(w, kind, id));
}

static const Poly *par_linear(CpuWalk *w, const IxExpr **place)
{
    Module *m = w->m;
    const IxExpr *e = ix_const(m, poly_const(m, 0));
    const Poly *stride = poly_const(m, 1);
    for (int k = w->npar - 1; k >= 0; k--) {
        e = ix_add(m, e, ix_scale(m, ix_index(m, w->par[k]), stride));
        stride = poly_mul(m, stride, w->par_extent[k]);
    }
    *place = e;
    return stride;
}

/* Where the item's part begins of the state number `which` of those that lie one behind the other. */
static const char *state_place(CpuWalk *w, const char *which, int64_t each)
{
    const IxExpr *place;
    const Poly *blocks = par_linear(w, &place);
    return walk_text(w, "((%s) * (%s) + %s) * %lld", which, walk_poly_text(w, blocks), walk_ix_text(w, place),
                     (long long)each);
}

static int64_t packed(const WalkState *s)
{
    return s->extent[0] * s->extent[1];
}

/* Rows of a state, which has one if it has one axis. */
static const char *shape(CpuWalk *w, const WalkState *s)
{
    return walk_text(w, "%lld, %lld, %lld", (long long)(s->rank == 2 ? s->extent[0] : 1),
                     (long long)(s->rank == 2 ? s->extent[1] : s->extent[0]), (long long)s->pitch);
}

static void put_state(CpuWalk *w, const WalkState *s, const char *to, const char *at, const char *from,
                      bool adds, Buf *out)
{
    buf_line(out, "if (%s)", to);
    buf_line(out, "    cell_rows_put((real *)%s + %s, %s, %s, %s);", to, at, from, shape(w, s),
             adds ? "adds" : "0");
}

/* Number c of the checkpoints that the sequence has. */
static const char *checkpoint_place(CpuWalk *w, const WalkState *s, const char *number)
{
    bool by_thread = w->walk->by_thread && s->rank == 2;
    const char *first = module_starts(w->m) < 0
                            ? walk_text(w, "b * ((T + %d) / %d)", w->interval - 1, w->interval)
                            : walk_text(w, "(first_row / %d + b)", w->interval);
    return state_place(w, walk_text(w, "%s + %s", first, number), by_thread ? w->walk->by_thread : packed(s));
}

/* The value that the state begins with where the call gives none. */
static void print_initial_value(CpuWalk *w, const WalkState *s, Buf *out)
{
    NodeId init = w->m->roots.data[s->tensor].init;
    if (init < 0) {
        buf_line(out, "memset(%s, 0, sizeof(real) * %lld);", s->now, (long long)s->elements);
        return;
    }
    Node n = w->m->nodes.data[init];
    WalkFrame f = { .n = n.kind == N_ARRAY ? n.naxes : 0, .from = n.axes };
    WalkValue v = { .array = init,
                    .body = n.kind == N_ARRAY ? n.args[0] : init,
                    .row = -1,
                    .col = -1,
                    .rows = 1,
                    .cols = 1 };
    for (int k = 0; k < f.n; k++)
        f.to[k] = ix_index(w->m, k < w->npar ? w->par[k] : n.axes[k]);
    WalkStep bare = { .w = w };
    if (s->rank == 2)
        v.row = n.axes[w->npar];
    if (s->rank)
        v.col = n.axes[w->npar + s->rank - 1];
    w->step = &bare;
    w->value = &v;
    w->frame = &f;
    w->vector = false;
    w->scalars = NULL;
    w->col_text = "c";
    w->lane = NULL;
    w->step_head = (WalkScope){ .out = out };
    walk_begin_expression(w, v.body);
    const char *text = walk_real(w, v.body);
    buf_line(out, "for (int r = 0; r < %lld; r++)", (long long)(s->rank == 2 ? s->extent[0] : 1));
    buf_line(out, "    for (int c = 0; c < %lld; c++)",
             (long long)(s->rank == 2 ? s->extent[1] : s->extent[0]));
    buf_line(out, "        %s[r * %lld + c] = %s;", s->now, (long long)s->pitch, text);
    w->value = NULL;
    w->frame = NULL;
}

static void print_initial(CpuWalk *w, Buf *out)
{
    for (int k = 0; k < w->states.len; k++) {
        const WalkState *s = &w->states.data[k];
        const char *from = pointer(w, REF_TENSOR, s->tensor);
        buf_line(out, "if (%s) {", from);
        buf_line(out, "    cell_rows_get(%s, (const real *)%s + %s, %s);", s->now, from,
                 state_place(w, "b", packed(s)), shape(w, s));
        buf_line(out, "} else {");
        out->indent++;
        print_initial_value(w, s, out);
        out->indent--;
        buf_line(out, "}");
    }
}

/* ---- the two ways ---- */

static const char *state_name(CpuWalk *w, const WalkState *s, const char *what)
{
    return walk_name(w, walk_text(w, what, s->t->name));
}

/* What the step has written is what the next one reads. */
static void print_swaps(CpuWalk *w, bool back, Buf *out)
{
    for (int k = 0; k < w->states.len; k++) {
        const WalkState *s = &w->states.data[k];
        const char *now = back ? s->adjoint : s->now;
        if (s->in_place)
            continue;
        buf_line(out, "real *const swap_%d = %s;", k, now);
        buf_line(out, "%s = %s;", now, s->next);
        buf_line(out, "%s = swap_%d;", s->next, k);
    }
}

static void print_row(CpuWalk *w, Buf *out)
{
    buf_line(out, "const int64_t row = %s;", w->m->c->reverse ? "T - 1 - t" : "t");
    buf_line(out, "(void)row;");
}

static void print_forward(CpuWalk *w, Buf *out)
{
    WalkStep *step = walk_step(w, WALK_FORWARD);
    if (w->refused)
        return;
    for (int k = 0; k < w->states.len; k++) {
        WalkState *s = &w->states.data[k];
        s->now = state_name(w, s, "%s_s");
        walk_carve(w, s->now, s->elements);
        s->next = s->in_place ? s->now : state_name(w, s, "%s_next_s");
        if (!s->in_place)
            walk_carve(w, s->next, s->elements);
    }
    print_initial(w, out);
    buf_line(out, "for (int64_t t = 0; t < T; t++) {");
    out->indent++;
    print_row(w, out);
    buf_line(out, "if (t %% %d == 0) {", w->interval);
    out->indent++;
    for (int k = 0; k < w->states.len; k++) {
        const WalkState *s = &w->states.data[k];
        put_state(w, s, pointer(w, REF_CHECKPOINT, s->tensor),
                  checkpoint_place(w, s, walk_text(w, "t / %d", w->interval)), s->now, false, out);
    }
    out->indent--;
    buf_line(out, "}");
    walk_print_step(w, step, out);
    print_swaps(w, false, out);
    out->indent--;
    buf_line(out, "}");
    for (int k = 0; k < w->states.len; k++) {
        const WalkState *s = &w->states.data[k];
        put_state(w, s, pointer(w, REF_FINAL, s->tensor), state_place(w, "b", packed(s)), s->now, false, out);
    }
}

/* Is the adjoint of the initial state passed on to params? They read it from a buffer of its own. */
static bool is_learned(const CpuWalk *w, const WalkState *s)
{
    for (TensorId k = 0; k < w->m->tensors.len; k++)
        if (w->m->tensors.data[k].kind == T_DINIT && w->m->tensors.data[k].of == s->tensor)
            return true;
    return false;
}

static void print_replay(CpuWalk *w, Buf *out)
{
    WalkStep *step = walk_step(w, WALK_REPLAY);
    if (w->refused)
        return;
    for (int k = 0; k < w->states.len; k++) {
        WalkState *s = &w->states.data[k];
        s->now = state_name(w, s, "%s_s");
        s->next = state_name(w, s, "%s_next_s");
        buf_line(out, "cell_rows_get(%s_kept, (const real *)%s + %s, %s);", s->now,
                 pointer(w, REF_CHECKPOINT, s->tensor), checkpoint_place(w, s, "chunk"), shape(w, s));
    }
    buf_line(out, "for (int s = 0; s < steps; s++) {");
    out->indent++;
    buf_line(out, "const int64_t t = chunk * %d + s;", w->interval);
    print_row(w, out);
    for (int k = 0; k < w->states.len; k++) {
        const WalkState *s = &w->states.data[k];
        buf_line(out, "const real *const %s = %s_kept + s * %lld;", s->now, s->now, (long long)s->elements);
        buf_line(out, "real *const %s = %s_kept + (s + 1) * %lld;", s->next, s->now, (long long)s->elements);
    }
    walk_print_step(w, step, out);
    out->indent--;
    buf_line(out, "}");
}

static void print_back_steps(CpuWalk *w, WalkStep *step, Buf *out)
{
    buf_line(out, "for (int s = steps - 1; s >= 0; s--) {");
    out->indent++;
    buf_line(out, "const int64_t t = chunk * %d + s;", w->interval);
    print_row(w, out);
    for (int k = 0; k < w->states.len; k++) {
        const WalkState *s = &w->states.data[k];
        buf_line(out, "const real *const %s = %s_kept + s * %lld;", s->now, s->now, (long long)s->elements);
        buf_line(out, "const real *const %s = %s_kept + (s + 1) * %lld;", s->after, s->now,
                 (long long)s->elements);
        buf_line(out, "(void)%s, (void)%s;", s->now, s->after);
    }
    walk_print_step(w, step, out);
    print_swaps(w, true, out);
    out->indent--;
    buf_line(out, "}");
}

static void print_backward(CpuWalk *w, Buf *out)
{
    Buf replay = { .arena = w->arena, .indent = out->indent + 1 };
    print_replay(w, &replay);
    WalkStep *step = w->refused ? NULL : walk_step(w, WALK_BACK);
    if (w->refused)
        return;
    for (int k = 0; k < w->states.len; k++) {
        WalkState *s = &w->states.data[k];
        walk_carve(w, walk_text(w, "%s_kept", s->now), s->elements * (w->interval + 1));
        s->after = state_name(w, s, "%s_after_s");
        s->adjoint = state_name(w, s, "d_%s_s");
        walk_carve(w, s->adjoint, s->elements);
        s->next = s->in_place ? s->adjoint : state_name(w, s, "d_%s_next_s");
        if (!s->in_place)
            walk_carve(w, s->next, s->elements);
        const char *from = pointer(w, REF_DFINAL, s->tensor);
        buf_line(out, "if (%s)", from);
        buf_line(out, "    cell_rows_get(%s, (const real *)%s + %s, %s);", s->adjoint, from,
                 state_place(w, "b", packed(s)), shape(w, s));
        buf_line(out, "else");
        buf_line(out, "    memset(%s, 0, sizeof(real) * %lld);", s->adjoint, (long long)s->elements);
    }
    buf_line(out, "for (int64_t chunk = (T + %d) / %d - 1; chunk >= 0; chunk--) {", w->interval - 1,
             w->interval);
    out->indent++;
    buf_line(out, "const int steps = T - chunk * %d < %d ? (int)(T - chunk * %d) : %d;", w->interval,
             w->interval, w->interval, w->interval);
    buf_f(out, "%s", replay.data);
    print_back_steps(w, step, out);
    out->indent--;
    buf_line(out, "}");
    for (int k = 0; k < w->states.len; k++) {
        const WalkState *s = &w->states.data[k];
        const char *place = state_place(w, "b", packed(s));
        if (is_learned(w, s))
            put_state(w, s, pointer(w, REF_CARRY, s->tensor), place, s->adjoint, false, out);
        put_state(w, s, pointer(w, REF_DINIT, s->tensor), place, s->adjoint, true, out);
    }
}

/* ---- the function ---- */

static const char *ref_type(const CpuWalk *w, const Ref *r)
{
    Dtype d;
    if (r->kind == REF_NODE)
        d = w->walk->of_node[r->id].dtype;
    else if (r->kind == REF_TENSOR && w->m->tensors.data[r->id].kind != T_STATE)
        d = w->walk->of_tensor[r->id].dtype;
    else
        return "real";
    return walk_ctype(w, d);
}

static void print_head(CpuWalk *w, Buf *out)
{
    Module *m = w->m;
    buf_line(out, "const int64_t B = args->size[0], T = args->size[1];");
    for (int k = 0; k < m->dims.len; k++)
        buf_line(out, "const int64_t dim_%s = args->size[%d];", api_sizes(m)[k + 2], k + 2);
    for (int k = 0; k < m->dims.len; k++)
        buf_line(out, "(void)dim_%s;", api_sizes(m)[k + 2]);
    buf_line(out, "const int64_t dim_T = T, time0 = args->size[%d];", m->dims.len + 2);
    buf_line(out, "const int adds = args->flags & CELL_KERNEL_ACCUMULATE;");
    buf_line(out, "(void)B, (void)T, (void)dim_T, (void)time0, (void)adds;");
    for (int k = 0; k < w->refs.len; k++) {
        const char *type = ref_type(w, &w->refs.data[k]);
        buf_line(out, "%s *const p%d = (%s *)args->ptr[%d];", type, k, type, k);
    }
    buf_f(out, "%s", w->carves.data ? w->carves.data : "");
}

static void print_item(CpuWalk *w, Buf *out)
{
    const char *rest = "item";
    for (int k = w->npar - 1; k >= 0; k--) {
        const char *n = walk_poly_text(w, w->par_extent[k]);
        buf_line(out, "const int64_t par%d = %s %% (%s);", k, rest, n);
        rest = walk_text(w, "(%s / (%s))", rest, n);
    }
    buf_line(out, "const int64_t b = %s;", rest);
    if (module_starts(w->m) >= 0) {
        const char *starts = pointer(w, REF_TENSOR, module_starts(w->m));
        const char *total = walk_poly_text(w, module_rows(w->m));
        buf_line(out, "const int64_t first_row = cell_first_row(%s, b, %s);", starts, total);
        buf_line(out, "const int64_t T = cell_own_steps(%s, b, %s, args->size[1]);", starts, total);
        buf_line(out, "(void)first_row;");
    }
    for (int k = w->npar - 1; k >= 0; k--)
        buf_line(out, "(void)par%d;", k);
}

bool walk_print(CpuWalk *w, Plan *p, Program *pr, Group *g, Buf *out)
{
    begin(w, p, pr, g);
    Buf item = { .arena = w->arena, .indent = 2 };
    if (!w->refused)
        (pr->dir == FORWARD ? print_forward : print_backward)(w, &item);
    if (w->refused)
        return false;
    if (module_starts(w->m) >= 0)
        pointer(w, REF_TENSOR, module_starts(w->m)); /* which the head declares */
    buf_line(out, "static void %s(const cell_kernel_args *args, int64_t begin, int64_t end, void *scratch)",
             g->walk->kernel);
    buf_line(out, "{");
    out->indent++;
    print_head(w, out);
    buf_line(out, "for (int64_t item = begin; item < end; item++) {");
    out->indent++;
    print_item(w, out);
    buf_f(out, "%s", item.data);
    out->indent--;
    buf_line(out, "}");
    out->indent--;
    buf_line(out, "}");
    return true;
}
