/* tile_forward.c: a walk's way forward, chunk by chunk: checkpoints, the steps, and the warps that make
 * rows for the next chunk. */
#include <string.h>

#include "base/mutate.h"
#include "tile_kernel.h"

/* The states before a step that backward starts from. */
static void print_checkpoint(Tile *t, const char *number, Buf *out)
{
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        const char *to = tile_pointer(t, REF_CHECKPOINT, s->tensor);
        const char *which = tile_text(t, "%s + %s", tile_first_checkpoint(t), number);
        if (!tile_by_thread(t, s)) {
            tile_store_state(t, s, out, to, tile_text(t, "(%s) * (%s)", which, tile_state_size(t, s)));
            continue;
        }
        buf_line(out, "if (%s)", to);
        buf_line(out, "    cell_store_own<%d>(%s, %s);", tile_threads(&t->lay), tile_own_checkpoint(t, s, which), s->name);
    }
}

/* Only those who walk do what stands in between. */
static void open_walkers(const Tile *t, Buf *out)
{
    if (t->makers)
        buf_line(out, "if (!makes) {");
    out->indent += t->makers > 0;
}

static void close_walkers(const Tile *t, Buf *out)
{
    out->indent -= t->makers > 0;
    if (t->makers)
        buf_line(out, "}");
}

/* The elements of a thread, by vectors of `wide`, from `at` on. */
static void print_row_vectors(Tile *t, const StateInfo *s, const char *load, int wide, Buf *out)
{
    tile_open(t, out, tile_has_rows(s), false);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int c = 0; c < %d; c += %d) {", t->lay.rc, wide);
    buf_line(out, "    %s some[%d];", t->real, wide);
    buf_line(out, "    cell_load_vec<%d>(some, %s);", wide, load);
    buf_line(out, "    CELL_UNROLL");
    buf_line(out, "    for (int i = 0; i < %d; i++)", wide);
    buf_line(out, "        %s%s[c + i] = some[i];", s->name, tile_has_rows(s) ? "[r]" : "");
    buf_line(out, "}");
    tile_close(out, tile_has_rows(s), false);
}

/* From the row that the call names. What the row is of is asked once, so that all loads of a thread are
 * under way at once. */
static void print_row_state(Tile *t, const StateInfo *s, const char *initial, Buf *out)
{
    const char *row = tile_unique(t, tile_text(t, "%s_row", s->name));
    const char *at = tile_text(t, "%s + %s", row, tile_state_place(t, s));
    const char *value = tile_initial_value(t, s), *var = tile_state_var(t, s, s->name);
    int wide = tile_state_run(t, s);
    bool whole = wide > 1 && !tile_owned(t, tile_has_rows(s), tile_has_cols(s));
    bool narrow = strcmp(t->real, "float") == 0;
    buf_line(out, "const int64_t %s = cell_slot_read(args, b) * (%s);", row, tile_state_size(t, s));
    buf_line(out, "if (!%s) {", initial);
    out->indent++;
    tile_each_element(t, s, out, tile_text(t, "%s = %s;", var, value));
    for (int half = !narrow; half < 2; half++) {
        const char *from = half ? initial : tile_text(t, "((const cell_bf16 *)%s)", initial);
        out->indent--;
        buf_line(out, half ? "} else {" : "} else if (args.flags & CELL_KERNEL_BF16_STATES) {");
        out->indent++;
        if (whole)
            print_row_vectors(t, s, tile_text(t, "%s + (%s)", from, at), wide, out);
        else
            tile_each_element(t, s, out,
                              tile_text(t, "%s = cell_load<%s>(%s + (%s));", var, t->real, from, at));
    }
    out->indent--;
    buf_line(out, "}");
}

static void print_initial_state(Tile *t, const StateInfo *s, Buf *out)
{
    const char *initial = tile_pointer(t, REF_TENSOR, s->tensor);
    buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->name));
    open_walkers(t, out);
    if (t->m->c->slots) {
        print_row_state(t, s, initial, out);
        close_walkers(t, out);
        return;
    }
    tile_each_element(t, s, out, tile_text(t, "%s = %s ? %s[b * (%s) + %s] : %s;", tile_state_var(t, s, s->name),
                                           initial, initial, tile_state_size(t, s), tile_state_place(t, s),
                                           tile_initial_value(t, s)));
    close_walkers(t, out);
}

/* Joined steps of two segments are a loop for each: a checkpoint between two steps would keep them apart. */
bool tile_has_segments(const Tile *t)
{
    return t->joined && t->F > t->K && t->K % 2 == 0;
}

static void open_segment(Tile *t, Buf *out)
{
    buf_line(out, "for (int first = 0; first < steps; first += %d) {", t->K);
    out->indent++;
    print_checkpoint(t, tile_text(t, "(2 * chunk + first / %d)", t->K), out);
    buf_line(out, "const int left = steps - first, end = first + (left < %d ? left : %d);", t->K, t->K);
}

/* The steps of a chunk. */
static void print_forward_steps(Tile *t, Buf *out)
{
    bool segments = tile_has_segments(t);
    if (t->F == t->K)
        print_checkpoint(t, "chunk", out);
    Buf step = { .arena = t->arena, .indent = out->indent + 1 + segments };
    tile_print_step(t->forward, &step, &step);
    tile_print_rows(t, "t0", out);
    buf_f(out, "%s", t->forward->last_sums.data ? t->forward->last_sums.data : "");
    if (segments)
        open_segment(t, out);
    t->joined = tile_print_unroll(t, t->forward, out);
    buf_line(out, segments ? "for (int s = first; s < end; s++) {" : "for (int s = 0; s < steps; s++) {");
    out->indent++;
    buf_line(out, "const int64_t t = t0 + s;");
    tile_print_place(t, out);
    if (t->F != t->K && !segments) {
        buf_line(out, "if (s == 0 || s == %d) {", t->K);
        out->indent++;
        print_checkpoint(t, tile_text(t, "(t / %d)", t->K), out);
        out->indent--;
        buf_line(out, "}");
    }
    buf_f(out, "%s", step.data ? step.data : "");
    for (int k = 0; k < t->states.len; k++)
        tile_copy_state(t, &t->states.data[k], out, t->states.data[k].name, t->states.data[k].next);
    tile_move_rows(t, true, out);
    for (int k = 0; k < 1 + segments; k++) {
        out->indent--;
        buf_line(out, "}");
    }
    tile_print_last_sums(t->forward, "steps", out);
}

/* While some warps walk a chunk, the others make the rows of the next one: both meet in front of each
 * chunk, once before the first one. */
static void print_makers_chunk(Tile *t, Buf *out)
{
    buf_line(out, "if (makes) {");
    buf_line(out, "    if (chunk + 2 < chunks)");
    buf_line(out, "        fetch_rows(chunk + 2);");
    buf_line(out, "    if (chunk + 1 < chunks)");
    buf_line(out, "        make_rows(chunk + 1);");
    buf_line(out, "} else {");
    out->indent++;
    buf_line(out, "if (chunk + 1 < chunks)");
    buf_line(out, "    fetch(chunk + 1);");
    buf_line(out, "if (chunk >= 0) {");
    out->indent++;
    print_forward_steps(t, out);
    t->made = (Buf){ .arena = t->arena, .indent = 3 };
    tile_print_made(t, &t->made);
    for (int k = 0; k < 2; k++) {
        out->indent--;
        buf_line(out, "}");
    }
    const char *behind = t->forward->behind.data;
    if (!behind)
        return;
    if (!mutate("missing-exchange"))
        buf_line(out, "cell_barrier();");
    buf_line(out, "if (!makes && chunk >= 0) {");
    buf_f(out, "%s", behind);
    buf_line(out, "}");
}

/* To the row that the call names. */
static void print_row_store(Tile *t, const StateInfo *s, const char *to, Buf *out)
{
    const char *base = tile_text(t, "cell_slot_written(args, b) * (%s)", tile_state_size(t, s));
    if (strcmp(t->real, "float") != 0) {
        tile_store_state(t, s, out, to, base);
        return;
    }
    buf_line(out, "if (args.flags & CELL_KERNEL_BF16_STATES) {");
    out->indent++;
    t->stores_halves = true;
    tile_store_state(t, s, out, tile_text(t, "((cell_bf16 *)%s)", to), base);
    t->stores_halves = false;
    out->indent--;
    buf_line(out, "} else {");
    out->indent++;
    tile_store_state(t, s, out, to, base);
    out->indent--;
    buf_line(out, "}");
}

void tile_print_forward(Tile *t, Buf *out)
{
    for (int k = 0; k < t->states.len; k++)
        print_initial_state(t, &t->states.data[k], out);
    buf_line(out, t->makers ? "if (makes && chunks > 0)" : "if (chunks > 0)");
    buf_line(out, t->makers ? "    fetch_rows(0);" : "    fetch(0);");
    buf_line(out, "for (int64_t chunk = %d; chunk < chunks; chunk++) {", t->makers ? -1 : 0);
    out->indent++;
    tile_print_chunk(t, out);
    buf_line(out, "cell_cp_async_wait<0>();");
    if (!t->makers || !mutate("missing-meeting"))
        buf_line(out, "cell_barrier();");
    if (t->makers) {
        print_makers_chunk(t, out);
    } else {
        buf_line(out, "if (chunk + 1 < chunks)");
        buf_line(out, "    fetch(chunk + 1);");
        print_forward_steps(t, out);
        tile_end_chunk(t->forward, out);
    }
    out->indent--;
    buf_line(out, "}");
    open_walkers(t, out);
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        const char *to = tile_pointer(t, REF_FINAL, s->tensor);
        if (t->m->c->slots)
            print_row_store(t, s, to, out);
        else
            tile_store_state(t, s, out, to, tile_text(t, "b * (%s)", tile_state_size(t, s)));
    }
    close_walkers(t, out);
}
