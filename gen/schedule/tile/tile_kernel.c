/* tile_kernel.c: what surrounds the steps in a walk of either direction. Out: the kernel's head, shared memory, the loop over blocks'
 * states with what fetches a chunk's vectors, and how states, checkpoints and rows of outs are named, placed and copied. */
#include <inttypes.h>

#include "base/mutate.h"
#include "emit/emit.h"
#include "tile_kernel.h"

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

const char *tile_state_decl(Tile *t, const StateInfo *s, const char *name)
{
    const char *rows = tile_has_rows(s) ? tile_text(t, "[%d]", t->lay.rr) : "";
    return tile_text(t, "%s%s%s", name, rows, tile_has_cols(s) ? tile_text(t, "[%d]", t->lay.rc) : "");
}

/* Element number within one batch element's states: of the thread's element, or (own false) of the first one of the block's state. */
const char *tile_place_in_state(Tile *t, const StateInfo *s, bool own)
{
    const Tensor *x = &t->m->tensors.data[s->tensor];
    const IxExpr *map[TILE_MAX_AXES];
    for (int k = 0; k < t->npar; k++)
        map[k] = ix_index(t->m, t->par[k]);
    for (int k = 0; k < s->rank; k++)
        map[t->npar + k] = own ? ix_index(t->m, s->role[k] == ROLE_ROW ? t->row : t->col) : ix_const(t->m, poly_const(t->m, 0));
    ExprPrinter p = tile_printer(any_step(t));
    return ix_text(&p, tile_linear(t, x->axes, map, x->rank));
}

const char *tile_state_place(Tile *t, const StateInfo *s)
{
    return tile_place_in_state(t, s, true);
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

/* Writes the state at `to + base`, by the threads that own it. A vector's store writes whole sectors of memory: the
 * single elements of neighbouring threads lie apart. */
void tile_store_state(Tile *t, const StateInfo *s, Buf *out, const char *to, const char *base)
{
    const char *owner = tile_owner(t, tile_has_rows(s), tile_has_cols(s)), *inside = tile_owned(t, tile_has_rows(s), tile_has_cols(s));
    const char *at = tile_text(t, "%s + %s", base, tile_state_place(t, s));
    int wide = tile_state_run(t, s);
    if (wide == 1) {
        const char *var = tile_state_var(t, s, s->name);
        tile_store_elements(t, s, out, to,
                            t->stores_halves ? tile_text(t, "cell_store(%s + (%s), %s);", to, at, var)
                                             : tile_text(t, "%s[%s] = %s;", to, at, var));
        return;
    }
    buf_line(out, "if (%s%s%s) {", to, owner ? " && " : "", owner ? owner : "");
    out->indent++;
    tile_open(t, out, tile_has_rows(s), false);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int c = 0; c < %d; c += %d) {", t->lay.rc, wide);
    buf_line(out, "    %s some[%d];", t->real, wide);
    buf_line(out, "    CELL_UNROLL");
    buf_line(out, "    for (int i = 0; i < %d; i++)", wide);
    buf_line(out, "        some[i] = %s%s[c + i];", s->name, tile_has_rows(s) ? "[r]" : "");
    buf_line(out, "    %scell_store_vec<%d>(%s + (%s), some);",
             inside ? tile_text(t, "if (%s) ", inside) : "", wide, to, at);
    buf_line(out, "}");
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

void tile_print_head(Tile *t, Buf *out)
{
    Module *m = t->m;
    const TileLayout *l = &t->lay;
    buf_line(out, "const int64_t B = args.size[0], T = args.size[1];");
    for (int k = 0; k < m->dims.len; k++)
        buf_line(out, "const int64_t dim_%s = args.size[%d];", api_sizes(m)[k + 2], k + 2);
    if (m->c->lengths && m->c->reverse)
        buf_line(out, "const int64_t dim_T = T;");
    buf_line(out, "const int64_t time0 = args.size[%d];", m->dims.len + 2);
    buf_line(out, "const int lane = cell_lane(), warp = cell_warp();");
    buf_line(out, "const int lane_row = lane / %d, lane_col = lane %% %d;", l->lc, l->lc);
    if (l->cr > 1) {
        buf_line(out, "// %d blocks share the rows.", l->cr);
        buf_line(out, "const int rank = cell_cluster_rank();");
        buf_line(out, "const int warp_row = rank * %d + warp / %d, warp_col = warp %% %d;", l->wr, l->wc, l->wc);
    } else {
        buf_line(out, "const int warp_row = warp / %d, warp_col = warp %% %d;", l->wc, l->wc);
    }
    buf_line(out, "// Of %" PRId64 " x %" PRId64 ": %d x %d elements a thread, %d x %d lanes, %d x %d warps.",
             t->rows, t->cols, l->rr, l->rc, l->lr, l->lc, l->wr, l->wc);
    buf_line(out, "const int row0 = (warp_row * %d + lane_row) * %d, col0 = (warp_col * %d + lane_col) * %d;",
             l->lr, tile_apart(t, true) ? GROUP : l->rr, l->lc, tile_apart(t, false) ? GROUP : l->rc);
    if (l->cr > 1)
        buf_line(out, "const int own_row0 = (warp / %d * %d + lane_row) * %d;  // among the block's", l->wc, l->lr, l->rr);
    buf_line(out, "const int last_row = %" PRId64 ", last_col = %" PRId64 ";", t->rows - 1, t->cols - 1);
    if (t->makers)
        buf_line(out, "const bool makes = warp >= %d;  // rows for the next chunk's steps, instead of walking", tile_threads(l) / 32);
}

int tile_buffers(const Tile *t)
{
    return t->ahead ? 3 : 2;
}

const char *tile_buffer(const Tile *t)
{
    return t->ahead ? "third" : "half";
}

/* What is known of a chunk: its first step, how many it has, and where its vectors lie. Thirds are counted in 32 bits, since a remainder
 * of 64 is dozens of instructions; no memory holds 2^32 chunks. */
void tile_print_chunk(Tile *t, Buf *out)
{
    const char *which = t->ahead ? "(uint32_t)chunk % 3u" : "chunk & 1";
    buf_line(out, "const int64_t t0 = chunk * %d;", t->F);
    buf_line(out, "const int steps = T - t0 < %d ? (int)(T - t0) : %d, %s = (int)(%s) * %d;", t->F, t->F, tile_buffer(t), which,
             t->F);
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

void tile_print_carves(Tile *t, Buf *out)
{
    int64_t ex = tile_exchange_size(t);
    t->w->smem = 0;
    buf_line(out, "unsigned char *cursor = cell_shared();");
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
                                 tile_state_size(t, s), tile_state_place(t, s));
    int run = tile_state_run(t, s) < wide ? tile_state_run(t, s) : wide;
    tile_open(t, out, tile_has_rows(s), tile_has_cols(s));
    if (run > 1)
        buf_line(out, "if (c %% %d == 0)", run);
    buf_line(out, "%scell_cp_async<%d>(%s + (%s), %s);", run > 1 ? "    " : "", run * t->real_bytes, s->start, to, from);
    tile_close(out, tile_has_rows(s), tile_has_cols(s));
}

static void print_fetch_start(Tile *t, Buf *out)
{
    buf_line(out, t->undoes ? "// The states before a chunk, on their way into shared memory."
                            : "// The states that a chunk's replay starts from, on their way into the place of its last step.");
    buf_line(out, "auto fetch_start = [&](int64_t chunk) {");
    out->indent++;
    for (int k = 0; k < t->states.len; k++)
        fetch_start(t, &t->states.data[k], out);
    buf_line(out, "cell_cp_async_commit();");
    out->indent--;
    buf_line(out, "};");
}

/* What makes the rows of a chunk, and what fetches what these are made of. */
static void print_make(Tile *t, Buf *out)
{
    buf_line(out, "// What rows of a chunk are made of on its way, and these rows, each into half a buffer.");
    for (int make = 0; make < 2; make++) {
        buf_line(out, "auto %s = [&](int64_t chunk) {", make ? "make_rows" : "fetch_rows");
        out->indent++;
        buf_line(out, "const int64_t t0 = chunk * %d;", t->F);
        buf_line(out, "const int steps = T - t0 < %d ? (int)(T - t0) : %d, half = (int)(chunk & 1) * %d;", t->F, t->F, t->F);
        if (make)
            buf_f(out, "%s", t->made.data);
        else
            tile_chunk_fetches(t, FETCH_AHEAD, out);
        out->indent--;
        buf_line(out, "};");
    }
}

void tile_print_item_head(Tile *t, Buf *out)
{
    ExprPrinter p = tile_printer(any_step(t));
    const char *each = t->lay.cr > 1 ? tile_text(t, " / %d", t->lay.cr) : "";
    if (t->lay.cr > 1) {
        buf_line(out, "// The others are there to be written to.");
        buf_line(out, "cell_cluster_barrier();");
    }
    buf_line(out, "for (int64_t item = cell_block_index(0)%s; item < B * (%s); item += cell_block_count(0)%s) {",
             each, poly_text(&p, t->w->blocks), each);
    out->indent++;
    const char *rest = "item";
    for (int k = t->npar - 1; k >= 0; k--) {
        const char *n = poly_text(&p, t->par_extent[k]);
        buf_line(out, "const int64_t %s = %s %% (%s);", t->par_name[k], rest, n);
        rest = tile_text(t, "(%s / (%s))", rest, n);
    }
    buf_line(out, "const int64_t b = %s;", rest);
    if (module_starts(t->m) >= 0) {
        const char *starts =
            tile_text(t, "(const int32_t *)args.ptr[%d]", tile_ref(t, REF_TENSOR, module_starts(t->m)));
        const char *total = poly_text(&p, module_rows(t->m));
        buf_line(out, "[[maybe_unused]] const int64_t first_row = cell_first_row(%s, b, %s);", starts, total);
        buf_line(out, "const int64_t T = cell_own_steps(%s, b, %s, args.size[1]);  // of the sequence",
                 starts, total);
    }
    buf_line(out, "const int64_t chunks = (T + %d) / %d;", t->F - 1, t->F);
    tile_item_fetches(t, out);
    if (t->adjoint && !t->ahead)
        print_fetch_start(t, out);
    buf_line(out, "// The vectors of steps [%d chunk, %d chunk + %d) on their way into %s a buffer.",
             t->F, t->F, t->F, t->ahead ? "a third of" : "half");
    buf_line(out, "auto fetch = [&](int64_t chunk) {");
    out->indent++;
    tile_print_chunk(t, out);
    tile_chunk_fetches(t, FETCH_STEPS, out);
    out->indent--;
    buf_line(out, "};");
    if (t->makers)
        print_make(t, out);
    if (!tile_has_single(t))
        return;
    buf_line(out, "// Those that are read behind the steps only, while these are walked.");
    buf_line(out, "auto fetch_behind = [&](int64_t chunk) {");
    out->indent++;
    buf_line(out, "const int64_t t0 = chunk * %d;", t->F);
    buf_line(out, "const int steps = T - t0 < %d ? (int)(T - t0) : %d;", t->F, t->F);
    tile_chunk_fetches(t, FETCH_BEHIND, out);
    out->indent--;
    buf_line(out, "};");
}

void tile_print_place(Tile *t, Buf *out)
{
    if (tile_exchange_size(t))
        buf_line(out, "const int flip = %s * %" PRId64 ";", t->defer ? "s" : "(int)(t & 1)", tile_exchange_size(t));
    else
        buf_line(out, "const int flip = 0;");
    buf_line(out, "const int slot = %s + s;", tile_buffer(t));
    buf_line(out, "(void)t, (void)flip, (void)slot;");
}

/* What the caller only waits for is written for all steps of a chunk at once, by all threads: no step waits for the
 * warps' sums, and neighbours are stored together. */
void tile_end_chunk(const Step *s, Buf *out)
{
    if (!s->behind.data)
        return;
    if (tile_has_single(s->t))
        buf_line(out, "cell_cp_async_wait<0>();");
    if (!mutate("missing-exchange"))
        buf_line(out, "cell_barrier();");
    buf_f(out, "%s", s->behind.data);
}

/* Whoever shares a state. A block that has passed its last one may end: nobody writes to it any more. */
const char *tile_all_meet(const Tile *t)
{
    return t->lay.cr > 1 ? "cell_cluster_barrier();" : "cell_barrier();";
}
