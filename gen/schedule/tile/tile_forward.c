/* tile_forward.c: a walk's way forward, chunk by chunk: checkpoints, the steps, and the warps that make
 * rows for the next chunk. */
#include <string.h>

#include "base/mutate.h"
#include "templates/tile.h"
#include "tile_kernel.h"

/* The states before a step that backward starts from. */
static void print_checkpoint(Tile *t, const char *number, Buf *out)
{
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        const char *to = tile_pointer(t, REF_CHECKPOINT, s->tensor);
        const char *which = tile_text(t, "%s + %s", tile_first_checkpoint(t), number);
        if (!tile_by_thread(t, s)) {
            tile_store_state(t, s, out, to, tile_text(t, "(%s) * (%s) + %s", which, tile_state_size(t, s),
                                                      tile_checkpoint_place(t, s, true)));
            continue;
        }
        buf_line(out, "if (%s)", to);
        buf_line(out, "    cell_store_own<%d>(%s, %s);", tile_threads(&t->lay), tile_own_checkpoint(t, s, which), s->name);
    }
}

/* The elements of a thread, by vectors of `wide`. */
static void print_row_vectors(Tile *t, const StateInfo *s, const char *load, int wide, Buf *out)
{
    TileLoadVectorsFrame f = { .real = t->real, .from = load };
    f.cols = tile_number(t, t->lay.rc);
    f.wide = tile_number(t, wide);
    f.to = tile_own_row(t, s, s->name);
    tile_open(t, out, tile_has_rows(s), false);
    tile_load_vectors_frame(out, &f);
    tile_close(out, tile_has_rows(s), false);
}

/* Loads from a row. */
static const char *row_loads(Tile *t, const StateInfo *s, const char *from, const char *at)
{
    Buf text = { .arena = t->arena };
    int wide = tile_state_run(t, s);
    if (wide > 1 && !tile_owned(t, tile_has_rows(s), tile_has_cols(s)))
        print_row_vectors(t, s, tile_text(t, "%s + (%s)", from, at), wide, &text);
    else
        tile_each_element(t, s, &text,
                          tile_text(t, "%s = cell_load<%s>(%s + (%s));", tile_state_var(t, s, s->name),
                                    t->real, from, at));
    return tile_hole(t, &text);
}

/* From the row that the call names. */
static void print_row_state(Tile *t, const StateInfo *s, const char *initial, Buf *out)
{
    TileSlotReadFrame f = { .row = tile_unique(t, tile_text(t, "%s_row", s->name)), .initial = initial };
    const char *at = tile_text(t, "%s + %s", f.row, tile_argument_place(t, s));
    Buf learned = { .arena = t->arena };
    tile_each_element(t, s, &learned,
                      tile_text(t, "%s = %s;", tile_state_var(t, s, s->name), tile_initial_value(t, s)));
    f.size = tile_state_size(t, s);
    f.learned = tile_hole(t, &learned);
    if (strcmp(t->real, "float") == 0)
        f.halves = row_loads(t, s, tile_text(t, "((const cell_bf16 *)%s)", initial), at);
    f.loads = row_loads(t, s, initial, at);
    tile_slot_read_frame(out, &f);
}

/* What only the threads do that walk. */
static void print_walkers(Tile *t, const Buf *body, Buf *out)
{
    TileWalkersFrame f = { .makers = t->makers, .body = tile_hole(t, body) };
    tile_walkers_frame(out, &f);
}

static void print_initial_state(Tile *t, const StateInfo *s, Buf *out)
{
    Buf body = { .arena = t->arena };
    const char *initial = tile_pointer(t, REF_TENSOR, s->tensor);
    buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->name));
    if (t->m->c->slots)
        print_row_state(t, s, initial, &body);
    else
        tile_each_element(t, s, &body,
                          tile_text(t, "%s = %s ? %s[b * (%s) + %s] : %s;", tile_state_var(t, s, s->name),
                                    initial, initial, tile_state_size(t, s), tile_argument_place(t, s),
                                    tile_initial_value(t, s)));
    print_walkers(t, &body, out);
}

bool tile_has_segments(const Tile *t)
{
    return t->joined && t->F > t->K && t->K % 2 == 0;
}

/* Where checkpoints are stored, and the number of the one that is. */
typedef enum { OF_CHUNK, OF_SEGMENT, OF_STEP } CheckpointPlace;

static const char *checkpoint_at(Tile *t, CheckpointPlace place)
{
    Buf text = { .arena = t->arena };
    const char *number = place == OF_CHUNK     ? "chunk"
                         : place == OF_SEGMENT ? tile_text(t, "(2 * chunk + first / %d)", t->K)
                                               : tile_text(t, "(t / %d)", t->K);
    print_checkpoint(t, number, &text);
    return tile_hole(t, &text);
}

static void print_move(Tile *t, Buf *out)
{
    tile_move_rows(t, true, out);
}

/* The loop over the steps of a chunk, or of a segment. */
static const char *forward_loop(Tile *t, bool segments, const Buf *step)
{
    Buf unroll = { .arena = t->arena }, text = unroll;
    TileForwardLoopFrame f = { .first = segments ? "first" : "0", .behind = segments ? "end" : "steps" };
    t->joined = tile_print_unroll(t, t->forward, &unroll);
    f.unroll = tile_hole(t, &unroll);
    f.place = tile_lines(t, tile_print_place);
    f.interval = tile_number(t, t->K);
    f.checkpoint = t->F != t->K && !segments ? checkpoint_at(t, OF_STEP) : NULL;
    f.step = tile_hole(t, step);
    f.copies = tile_step_copies(t);
    f.move = tile_lines(t, print_move);
    tile_forward_loop_frame(&text, &f);
    return tile_hole(t, &text);
}

static void print_forward_rows(Tile *t, Buf *out)
{
    tile_print_rows(t, "t0", out);
}

static void print_sums(Tile *t, Buf *out)
{
    tile_print_last_sums(t->forward, "steps", out);
}

static void print_forward_steps(Tile *t, Buf *out)
{
    Buf step = { .arena = t->arena };
    TileForwardStepsFrame f = { .segments = tile_has_segments(t), .interval = tile_number(t, t->K) };
    f.checkpoint = t->F == t->K ? checkpoint_at(t, OF_CHUNK) : "";
    tile_print_step(t->forward, &step, &step);
    f.rows = tile_lines(t, print_forward_rows);
    f.last_sums = template_lines(&t->forward->last_sums);
    f.segment = f.segments ? checkpoint_at(t, OF_SEGMENT) : "";
    f.loop = forward_loop(t, f.segments, &step);
    f.sums = tile_lines(t, print_sums);
    tile_forward_steps_frame(out, &f);
}

/* To the row that the call names. */
static void print_row_store(Tile *t, const StateInfo *s, const char *to, Buf *out)
{
    const char *at = tile_text(t, "cell_slot_written(args, b) * (%s) + %s", tile_state_size(t, s),
                               tile_argument_place(t, s));
    if (strcmp(t->real, "float") != 0) {
        tile_store_state(t, s, out, to, at);
        return;
    }
    Buf halves = { .arena = t->arena }, stores = halves;
    t->stores_halves = true;
    tile_store_state(t, s, &halves, tile_text(t, "((cell_bf16 *)%s)", to), at);
    t->stores_halves = false;
    tile_store_state(t, s, &stores, to, at);
    TileSlotWriteFrame f = { .halves = tile_hole(t, &halves), .stores = tile_hole(t, &stores) };
    tile_slot_write_frame(out, &f);
}

static void print_last_state(Tile *t, const StateInfo *s, Buf *out)
{
    const char *to = tile_pointer(t, REF_FINAL, s->tensor);
    if (t->m->c->slots)
        print_row_store(t, s, to, out);
    else
        tile_store_state(t, s, out, to, tile_text(t, "b * (%s) + %s", tile_state_size(t, s),
                                                  tile_argument_place(t, s)));
}

static void print_last(Tile *t, Buf *out)
{
    Buf body = { .arena = t->arena };
    for (int k = 0; k < t->states.len; k++)
        print_last_state(t, &t->states.data[k], &body);
    print_walkers(t, &body, out);
}

void tile_print_forward(Tile *t, Buf *out)
{
    TileForwardFrame f = { .makers = t->makers, .meets = !t->makers || !mutate("missing-meeting") };
    f.states = tile_of_states(t, print_initial_state);
    f.chunk = tile_lines(t, tile_print_chunk);
    f.steps = tile_lines(t, print_forward_steps);
    if (t->makers) {
        t->made = (Buf){ .arena = t->arena };
        tile_print_made(t, &t->made);
        f.behind = t->forward->behind.data;
        f.behind_meets = !mutate("missing-exchange");
    } else {
        f.end_chunk = tile_end_chunk(t->forward);
    }
    f.last = tile_lines(t, print_last);
    tile_forward_frame(out, &f);
}
