/* tile_kernel.c: what surrounds the steps in a walk of either direction. Out: the kernel's head, shared memory, the loop over blocks'
 * states with what fetches a chunk's vectors, and how states, checkpoints and rows of outs are named, placed and copied. */
#include <inttypes.h>
#include <string.h>

#include "base/mutate.h"
#include "emit/emit.h"
#include "templates/tile.h"
#include "tile_kernel.h"

const char *tile_number(Tile *t, int64_t n)
{
    return tile_text(t, "%" PRId64, n);
}

const char *tile_hole(Tile *t, const Buf *text)
{
    if (text->data)
        vec_push(t->arena, &t->holes, *text);
    return template_lines(text);
}

void tile_release_holes(Tile *t)
{
    for (int k = 0; k < t->holes.len; k++)
        buf_release(&t->holes.data[k]);
    t->holes.len = 0;
}

const char *tile_lines(Tile *t, void (*print)(Tile *t, Buf *out))
{
    Buf text = { .arena = t->arena };
    print(t, &text);
    return tile_hole(t, &text);
}

const char *tile_of_states(Tile *t, void (*print)(Tile *t, const StateInfo *s, Buf *out))
{
    Buf text = { .arena = t->arena };
    for (int k = 0; k < t->states.len; k++)
        print(t, &t->states.data[k], &text);
    return tile_hole(t, &text);
}

bool tile_has_rows(const StateInfo *s)
{
    return s->rank == 2 || (s->rank == 1 && s->role[0] == ROLE_ROW);
}

bool tile_has_cols(const StateInfo *s)
{
    return s->rank == 2 || (s->rank == 1 && s->role[0] == ROLE_COL);
}

static Step *any_step(Tile *t)
{
    return t->forward ? t->forward : t->adjoint;
}

const char *tile_state_var(Tile *t, const StateInfo *s, const char *name)
{
    return tile_text(t, "%s%s%s", name, tile_has_rows(s) ? "[r]" : "", tile_has_cols(s) ? "[c]" : "");
}

const char *tile_own_row(Tile *t, const StateInfo *s, const char *name)
{
    return tile_text(t, "%s%s", name, tile_has_rows(s) ? "[r]" : "");
}

const char *tile_state_decl(Tile *t, const StateInfo *s, const char *name)
{
    const char *rows = tile_has_rows(s) ? tile_text(t, "[%d]", t->lay.rr) : "";
    return tile_text(t, "%s%s%s", name, rows, tile_has_cols(s) ? tile_text(t, "[%d]", t->lay.rc) : "");
}

/* Element number within one batch element's states: of the thread's element, or (own false) of the first one of
 * the block's state. As axes are in order, which is how checkpoints lie; or, `argument`, as those lie. */
static const char *place_in_state(Tile *t, const StateInfo *s, bool own, bool argument)
{
    const Tensor *x = &t->m->tensors.data[s->tensor];
    const IxExpr *map[TILE_MAX_AXES];
    const Poly *axes[TILE_MAX_AXES];
    for (int k = 0; k < t->npar; k++)
        map[k] = ix_index(t->m, t->par[k]);
    for (int k = 0; k < s->rank; k++)
        map[t->npar + k] = own ? ix_index(t->m, s->role[k] == ROLE_ROW ? t->row : t->col) : ix_const(t->m, poly_const(t->m, 0));
    memcpy(axes, x->axes, sizeof *axes * (size_t)x->rank);
    if (argument && x->inner && !mutate("outer-part")) {
        const int part = x->rank - 3;
        const IxExpr *number = map[part];
        map[part] = map[part + 1];
        map[part + 1] = number;
        axes[part] = x->axes[part + 1];
        axes[part + 1] = x->axes[part];
    }
    ExprPrinter p = tile_printer(any_step(t));
    return ix_text(&p, tile_linear(t, axes, map, x->rank));
}

const char *tile_checkpoint_place(Tile *t, const StateInfo *s, bool own)
{
    return place_in_state(t, s, own, false);
}

const char *tile_argument_place(Tile *t, const StateInfo *s)
{
    return place_in_state(t, s, true, true);
}

const char *tile_state_size(Tile *t, const StateInfo *s)
{
    const Tensor *x = &t->m->tensors.data[s->tensor];
    const Poly *n = poly_const(t->m, 1);
    for (int k = 0; k < x->rank; k++)
        n = poly_mul(t->m, n, x->axes[k]);
    ExprPrinter p = tile_printer(any_step(t));
    return poly_text(&p, n);
}

/* for all elements that the thread owns: the statement. */
void tile_each_element(Tile *t, const StateInfo *s, Buf *out, const char *statement)
{
    tile_open(t, out, tile_has_rows(s), tile_has_cols(s));
    buf_line(out, "%s", statement);
    tile_close(out, tile_has_rows(s), tile_has_cols(s));
}

void tile_copy_state(Tile *t, const StateInfo *s, Buf *out, const char *to, const char *from)
{
    tile_each_element(t, s, out, tile_text(t, "%s = %s;", tile_state_var(t, s, to), tile_state_var(t, s, from)));
}

static void copy_next(Tile *t, const StateInfo *s, Buf *out)
{
    tile_copy_state(t, s, out, s->name, s->next);
}

const char *tile_step_copies(Tile *t)
{
    return tile_of_states(t, copy_next);
}

int tile_state_run(const Tile *t, const StateInfo *s)
{
    return tile_has_cols(s) ? tile_run_width(t) : 1;
}

/* Does the statement for each element, by the threads that own it. */
void tile_store_elements(Tile *t, const StateInfo *s, Buf *out, const char *condition, const char *statement)
{
    const char *owner = tile_owner(t, tile_has_rows(s), tile_has_cols(s));
    const char *inside = tile_owned(t, tile_has_rows(s), tile_has_cols(s));
    buf_line(out, "if (%s%s%s) {", condition, owner ? " && " : "", owner ? owner : "");
    out->indent++;
    tile_each_element(t, s, out, inside ? tile_text(t, "if (%s) %s", inside, statement) : statement);
    out->indent--;
    buf_line(out, "}");
}

/* Writes the state's elements at `to + at`, by the threads that own them. */
void tile_store_state(Tile *t, const StateInfo *s, Buf *out, const char *to, const char *at)
{
    const char *owner = tile_owner(t, tile_has_rows(s), tile_has_cols(s)), *inside = tile_owned(t, tile_has_rows(s), tile_has_cols(s));
    int wide = tile_state_run(t, s);
    if (wide == 1) {
        const char *var = tile_state_var(t, s, s->name);
        tile_store_elements(t, s, out, to,
                            t->stores_halves ? tile_text(t, "cell_store(%s + (%s), %s);", to, at, var)
                                             : tile_text(t, "%s[%s] = %s;", to, at, var));
        return;
    }
    TileStoreVectorsFrame f = { .cols = tile_number(t, t->lay.rc),
                                .wide = tile_number(t, wide),
                                .real = t->real };
    f.from = tile_own_row(t, s, s->name);
    f.owned = inside ? tile_text(t, "if (%s) ", inside) : "";
    f.to = tile_text(t, "%s + (%s)", to, at);
    buf_line(out, "if (%s%s%s) {", to, owner ? " && " : "", owner ? owner : "");
    out->indent++;
    tile_open(t, out, tile_has_rows(s), false);
    tile_store_vectors_frame(out, &f);
    tile_close(out, tile_has_rows(s), false);
    out->indent--;
    buf_line(out, "}");
}

const char *tile_initial_value(Tile *t, const StateInfo *s)
{
    NodeId init = t->m->roots.data[s->tensor].init;
    if (init < 0)
        return "0";
    const IxExpr *map[TILE_MAX_AXES];
    Node n = t->m->nodes.data[init];
    for (int k = 0; k < t->npar; k++)
        map[k] = ix_index(t->m, t->par[k]);
    for (int k = 0; k < s->rank; k++)
        map[t->npar + k] = ix_index(t->m, s->role[k] == ROLE_ROW ? t->row : t->col);
    ExprPrinter p = tile_printer(any_step(t));
    t->initial = true;
    NodeId body = n.kind == N_ARRAY ? n.args[0] : init;
    const char *text = expr_text(&p, node_subst(t->m, body, n.axes, map, n.naxes));
    t->initial = false;
    return text;
}

const char *tile_pointer(Tile *t, RefKind kind, TensorId tensor)
{
    return tile_text(t, "((%s *)args.ptr[%d])", t->real, tile_ref(t, kind, tensor));
}

/* Do its checkpoints lie as the threads have it, copies beyond the edge included? */
bool tile_by_thread(const Tile *t, const StateInfo *s)
{
    return t->w->by_thread && s->rank == 2;
}

/* The block's part of the checkpoint with that number, where it lies so. */
const char *tile_own_checkpoint(Tile *t, const StateInfo *s, const char *number)
{
    Module *m = t->m;
    const Poly *size = poly_const(m, t->w->by_thread);
    const IxExpr *map[MAX_PARALLEL];
    for (int k = 0; k < t->npar; k++)
        map[k] = ix_index(m, t->par[k]);
    ExprPrinter p = tile_printer(any_step(t));
    const char *at = tile_text(t, "(%s) * (%s)", number, poly_text(&p, poly_mul(m, t->w->blocks, size)));
    if (t->npar)
        at = tile_text(t, "%s + %s", at, ix_text(&p, ix_scale(m, tile_linear(t, t->par_extent, map, t->npar), size)));
    if (t->lay.cr > 1)
        at = tile_text(t, "%s + rank * %" PRId64, at, t->w->by_thread / t->lay.cr);
    return tile_text(t, "%s + (%s)", tile_pointer(t, REF_CHECKPOINT, s->tensor), at);
}

/* The number of the sequence's first one. Of packed sequences, each has room for one that is not full. */
const char *tile_first_checkpoint(Tile *t)
{
    if (module_starts(t->m) >= 0)
        return tile_text(t, "(first_row / %d + b)", t->K);
    return t->adjoint ? "b * chunks" : tile_text(t, "b * ((T + %d) / %d)", t->K - 1, t->K);
}

void tile_name_states(Tile *t)
{
    for (int k = 0; k < t->states.len; k++) {
        StateInfo *s = &t->states.data[k];
        const char *name = t->m->tensors.data[s->tensor].name;
        s->name = tile_unique(t, name);
        s->next = tile_unique(t, tile_text(t, "%s_next", name));
        s->after = tile_unique(t, tile_text(t, "%s_after", name));
        s->adj = tile_unique(t, tile_text(t, "d_%s", name));
        s->prev = tile_unique(t, tile_text(t, "d_%s_prev", name));
        s->kept = tile_unique(t, tile_text(t, "%s_kept", name));
        s->start = tile_unique(t, tile_text(t, "%s_start", name));
        s->ahead = tile_unique(t, tile_text(t, "%s_ahead", name));
    }
}

const char *tile_first_row(const Tile *t)
{
    return module_starts(t->m) < 0 ? "b * T" : "first_row";
}

/* The rows of the outs: multiplied out once a chunk, then moved by a pitch each step. */
void tile_print_rows(Tile *t, const char *first, Buf *out)
{
    for (int k = 0; k < t->rows_out.len; k++) {
        const RowOffset *r = &t->rows_out.data[k];
        buf_line(out, *r->first ? "int64_t %s = (%s + %s) * (%s) + (%s);" : "int64_t %s = (%s + %s) * (%s);",
                 r->name, tile_first_row(t), t->m->c->reverse ? tile_text(t, "T - 1 - (%s)", first) : first,
                 r->pitch, r->first);
        if (r->last)
            buf_line(out, "int64_t %s = %s;  // the row of the step before; at first one that is written again", r->last, r->name);
    }
}

void tile_move_rows(Tile *t, bool later, Buf *out)
{
    for (int k = 0; k < t->rows_out.len; k++) {
        const RowOffset *r = &t->rows_out.data[k];
        if (r->last)
            buf_line(out, "%s = %s;", r->last, r->name);
        buf_line(out, "%s %s %s;", r->name, later != t->m->c->reverse ? "+=" : "-=", r->pitch);
    }
}

int tile_buffers(const Tile *t)
{
    return t->ahead ? 3 : 2;
}

const char *tile_buffer(const Tile *t)
{
    return t->ahead ? "third" : "half";
}

/* Thirds are counted in 32 bits, since a remainder of 64 is dozens of instructions; no memory holds 2^32
 * chunks. */
void tile_print_chunk(Tile *t, Buf *out)
{
    TileChunkFrame f = { .steps = tile_number(t, t->F), .buffer = tile_buffer(t) };
    f.which = t->ahead ? "(uint32_t)chunk % 3u" : "chunk & 1";
    tile_chunk_frame(out, &f);
}

static int64_t carve_bytes(int64_t n, int size)
{
    return (n * size + 15) / 16 * 16;
}

static void carve(Tile *t, Buf *out, const char *name, bool narrow, int64_t count)
{
    const char *type = narrow ? "cell_kept" : t->real;
    buf_line(out, "cell_smem<%s> %s = cell_carve<%s>(cursor, %" PRId64 ");", type, name, type, count);
    t->w->smem += carve_bytes(count, narrow ? 2 : t->real_bytes);
}

int64_t tile_exchange_size(const Tile *t)
{
    const Step *steps[] = { t->forward, t->replay, t->adjoint };
    int64_t n = 0;
    for (int i = 0; i < 3; i++)
        if (steps[i] && steps[i]->exchange > n)
            n = steps[i]->exchange;
    return (n + 3) / 4 * 4;
}

static void print_carves(Tile *t, Buf *out)
{
    int64_t ex = tile_exchange_size(t);
    t->w->smem = 0;
    tile_carve_fetches(t, out);
    for (int k = 0; k < t->states.len && t->adjoint; k++) {
        const StateInfo *s = &t->states.data[k];
        int64_t n = tile_elements(t, s) * tile_threads(&t->lay);
        if (!t->undoes)
            carve(t, out, s->kept, s->narrow, n * t->K);
        /* The last step's place is free once that is walked back, and its own thread has read it. */
        if (t->undoes || (s->narrow && !t->ahead))
            carve(t, out, s->start, false, n);
        else if (!t->ahead)
            buf_line(out, "cell_smem<%s> %s = %s + %" PRId64 ";", t->real, s->start, s->kept, n * (t->K - 1));
    }
    if (ex)
        carve(t, out, "ex", false, (t->defer ? t->F + (t->forward && t->forward->last_sums.data) : 2) * ex);
}

/* Elements of a state that the thread moves at once: 16 bytes, if it owns a multiple of them, or 8. */
int tile_kept_width(const Tile *t, const StateInfo *s, bool narrow)
{
    int64_t n = tile_elements(t, s);
    int wide = 16 / (narrow ? 2 : t->real_bytes);
    if (narrow && n % wide)
        wide /= 2;
    return n % wide ? 1 : wide;
}

/* The segment's checkpoint on its way into shared memory, for each thread what it owns. */
static void fetch_start(Tile *t, const StateInfo *s, Buf *out)
{
    int wide = tile_kept_width(t, s, false), threads = tile_threads(&t->lay);
    const char *number = tile_text(t, mutate("wrong-checkpoint") ? "%s + chunk - (chunk > 0)" : "%s + chunk",
                                   tile_first_checkpoint(t));
    if (tile_by_thread(t, s)) {
        buf_line(out, "cell_fetch_own<%" PRId64 ", %d>(%s, %s);", tile_elements(t, s), threads, s->start,
                 tile_own_checkpoint(t, s, number));
        return;
    }
    const char *which = tile_has_rows(s) && tile_has_cols(s) ? tile_text(t, "(r * %d + c)", t->lay.rc)
                        : tile_has_rows(s) ? "r" : tile_has_cols(s) ? "c" : "0";
    const char *to = wide == 1 ? tile_text(t, "%s * %d + cell_thread()", which, threads)
                               : tile_text(t, "(%s / %d * %d + cell_thread()) * %d + %s %% %d", which, wide,
                                           threads, wide, which, wide);
    const char *from = tile_text(t, "%s + ((%s) * (%s) + %s)", tile_pointer(t, REF_CHECKPOINT, s->tensor), number,
                                 tile_state_size(t, s), tile_checkpoint_place(t, s, true));
    int run = tile_state_run(t, s) < wide ? tile_state_run(t, s) : wide;
    tile_open(t, out, tile_has_rows(s), tile_has_cols(s));
    if (run > 1)
        buf_line(out, "if (c %% %d == 0)", run);
    buf_line(out, "%scell_cp_async<%d>(%s + (%s), %s);", run > 1 ? "    " : "", run * t->real_bytes, s->start, to, from);
    tile_close(out, tile_has_rows(s), tile_has_cols(s));
}

/* ---- the whole ---- */

static void print_fetches(Tile *t, Buf *out)
{
    tile_chunk_fetches(t, FETCH_STEPS, out);
}

static void print_fetches_ahead(Tile *t, Buf *out)
{
    tile_chunk_fetches(t, FETCH_AHEAD, out);
}

static void print_fetches_behind(Tile *t, Buf *out)
{
    tile_chunk_fetches(t, FETCH_BEHIND, out);
}

/* The indices of the state with number `item`; gives its sequence. */
static const char *print_indices(Tile *t, Buf *out)
{
    ExprPrinter p = tile_printer(any_step(t));
    const char *rest = "item";
    for (int k = t->npar - 1; k >= 0; k--) {
        const char *n = poly_text(&p, t->par_extent[k]);
        buf_line(out, "const int64_t %s = %s %% (%s);", t->par_name[k], rest, n);
        rest = tile_text(t, "(%s / (%s))", rest, n);
    }
    return rest;
}

static void set_item(Tile *t, TileFrame *f)
{
    ExprPrinter p = tile_printer(any_step(t));
    Buf indices = { .arena = t->arena };
    f->each = t->lay.cr > 1 ? tile_text(t, " / %d", t->lay.cr) : "";
    f->blocks = poly_text(&p, t->w->blocks);
    f->sequence = print_indices(t, &indices);
    f->indices = tile_hole(t, &indices);
    if (module_starts(t->m) >= 0) {
        f->starts =
            tile_text(t, "(const int32_t *)args.ptr[%d]", tile_ref(t, REF_TENSOR, module_starts(t->m)));
        f->total = poly_text(&p, module_rows(t->m));
    }
    f->steps = tile_number(t, t->F);
    f->steps_less = tile_number(t, t->F - 1);
    f->buffers = t->ahead ? "a third of" : "half";
    f->item_fetches = tile_lines(t, tile_item_fetches);
    f->fetch_start = t->adjoint && !t->ahead ? tile_of_states(t, fetch_start) : NULL;
    f->undoes = t->undoes;
    f->chunk = tile_lines(t, tile_print_chunk);
    f->fetch = tile_lines(t, print_fetches);
    if (t->makers) {
        f->fetch_rows = tile_lines(t, print_fetches_ahead);
        f->make_rows = template_lines(&t->made);
    }
    f->fetch_behind = tile_has_single(t) ? tile_lines(t, print_fetches_behind) : NULL;
    f->meet = tile_all_meet(t);
}

static void print_dims(Tile *t, Buf *out)
{
    for (int k = 0; k < t->m->dims.len; k++)
        buf_line(out, "const int64_t dim_%s = args.size[%d];", api_sizes(t->m)[k + 2], k + 2);
}

static void set_layout(Tile *t, TileFrame *f)
{
    const TileLayout *l = &t->lay;
    f->dims = tile_lines(t, print_dims);
    f->reverse = t->m->c->lengths && t->m->c->reverse;
    f->time0 = tile_number(t, t->m->dims.len + 2);
    f->lanes = tile_number(t, l->lc);
    f->lane_rows = tile_number(t, l->lr);
    f->warps = tile_number(t, l->wc);
    f->warp_rows = tile_number(t, l->wr);
    f->rows = tile_number(t, l->rr);
    f->cols = tile_number(t, l->rc);
    f->row_step = tile_number(t, tile_apart(t, true) ? GROUP : l->rr);
    f->col_step = tile_number(t, tile_apart(t, false) ? GROUP : l->rc);
    f->state = tile_text(t, "%" PRId64 " x %" PRId64, t->rows, t->cols);
    f->last_row = tile_number(t, t->rows - 1);
    f->last_col = tile_number(t, t->cols - 1);
    f->cluster = l->cr > 1 ? tile_number(t, l->cr) : NULL;
    f->makers = t->makers ? tile_number(t, tile_threads(l) / 32) : NULL;
}

void tile_print_around(Tile *t, const char *walk, Buf *out)
{
    TileFrame f = { .walk = walk };
    set_item(t, &f);
    set_layout(t, &f);
    f.wants = tile_lines(t, tile_print_wants);
    f.carves = tile_lines(t, print_carves);
    tile_frame(out, &f);
}

void tile_print_place(Tile *t, Buf *out)
{
    TilePlaceFrame f = { .flip = "0", .buffer = tile_buffer(t) };
    if (tile_exchange_size(t))
        f.flip = tile_text(t, "%s * %" PRId64, t->defer ? "s" : "(int)(t & 1)", tile_exchange_size(t));
    tile_place_frame(out, &f);
}

const char *tile_end_chunk(const Step *s)
{
    Buf text = { .arena = s->t->arena };
    TileEndChunkFrame f = { .single = tile_has_single(s->t), .meets = !mutate("missing-exchange") };
    f.behind = template_lines(&s->behind);
    if (s->behind.data)
        tile_end_chunk_frame(&text, &f);
    return tile_hole(s->t, &text);
}

const char *tile_all_meet(const Tile *t)
{
    return t->lay.cr > 1 ? "cell_cluster_barrier();" : "cell_barrier();";
}
