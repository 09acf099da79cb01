/* tile_backward.c: a walk's way back. Each segment is replayed from its checkpoint into shared memory, or undone, and walked back;
 * or, where registers are left, a segment is replayed beside the steps back through the one behind it. */
#include <inttypes.h>

#include "base/mutate.h"
#include "templates/tile.h"
#include "tile_kernel.h"

/* Moves the thread's elements to (or from) the slot of the state's array in shared memory, as wide as they
 * come. */
static void move_kept(Tile *t, const StateInfo *s, const char *array, const char *slot, bool load, Buf *out)
{
    bool narrow = s->narrow && slot;          /* what arrives from memory is not */
    int e = (int)tile_elements(t, s), wide = tile_kept_width(t, s, narrow), threads = tile_threads(&t->lay);
    if (tile_by_thread(t, s)) {
        const char *own = slot ? tile_text(t, "%s + %s * %d", array, slot, e * threads) : array;
        buf_line(out, load ? "cell_load_own<%d>(%s, %s);" : "cell_store_own<%d>(%s, %s);", threads, load ? s->name : own,
                 load ? own : s->name);
        return;
    }
    const char *first = slot ? tile_text(t, "%s * %d + ", slot, e / wide) : "";
    if (wide == 1) {
        const char *which = tile_has_rows(s) && tile_has_cols(s) ? tile_text(t, "r * %d + c", t->lay.rc)
                            : tile_has_rows(s) ? "r" : tile_has_cols(s) ? "c" : "0";
        const char *at = tile_text(t, "(%s%s) * %d + cell_thread()", first, which, threads), *own = tile_state_var(t, s, s->name);
        tile_each_element(t, s, out, narrow && load ? tile_text(t, "%s = cell_load<%s>(%s + (%s));", own, t->real, array, at)
                                : narrow       ? tile_text(t, "cell_store(%s + (%s), %s);", array, at, own)
                                : load         ? tile_text(t, "%s = %s[%s];", own, array, at)
                                               : tile_text(t, "%s[%s] = %s;", array, at, own));
        return;
    }
    const char *at = tile_text(t, "%s + ((%se) * %d + cell_thread()) * %d", array, first, threads, wide);
    const char *own = tile_has_rows(s) && tile_has_cols(s)
                          ? tile_text(t, "%s[(e * %d + i) / %d][(e * %d + i) %% %d]", s->name, wide, t->lay.rc,
                                      wide, t->lay.rc)
                          : tile_text(t, "%s[e * %d + i]", s->name, wide);
    TileKeptVectorsFrame f = { .real = t->real, .load = load, .at = at, .own = own };
    f.vectors = tile_number(t, e / wide);
    f.wide = tile_number(t, wide);
    tile_kept_vectors_frame(out, &f);
}

/* The state before the step goes to where it is kept, or comes from there. */
static void keep_state(Tile *t, const StateInfo *s, Buf *out)
{
    move_kept(t, s, s->kept, "s", false, out);
}

static void take_state(Tile *t, const StateInfo *s, Buf *out)
{
    move_kept(t, s, s->kept, "s", true, out);
}

/* One step after the other of a chunk. */
static void print_replayed_steps(Tile *t, Buf *out)
{
    Buf step = { .arena = t->arena };
    tile_print_step(t->replay, &step, &step);
    TileReplayStepsFrame f = { .place = tile_lines(t, tile_print_place), .step = tile_hole(t, &step) };
    f.keeps = t->undoes ? "" : tile_of_states(t, keep_state);
    f.copies = tile_step_copies(t);
    tile_replay_steps_frame(out, &f);
}

static void print_start(Tile *t, const StateInfo *s, Buf *out)
{
    buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->name));
    move_kept(t, s, s->start, NULL, true, out);
}

static void print_after(Tile *t, const StateInfo *s, Buf *out)
{
    buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->after));
    tile_copy_state(t, s, out, s->after, s->name);
}

static void print_replay(Tile *t, Buf *out)
{
    TileReplayFrame f = { .starts = tile_of_states(t, print_start), .single = tile_has_single(t) };
    f.undoes = t->undoes;
    f.steps = tile_lines(t, print_replayed_steps);
    f.meets = t->replay->barriers;
    f.afters = tile_of_states(t, print_after);
    tile_replay_frame(out, &f);
}

/* Where the state before step s of the chunk lies: a replayed state takes the place of one that has just been walked back,
 * so the places' order turns round from chunk to chunk. Of the last chunk, which may be short, the first places are taken. */
static const char *kept_place(Tile *t)
{
    return mutate("unturned") ? "s" : tile_text(t, "(turned ? %d - s : s)", t->K - 1);
}

static void print_turned(Tile *t, Buf *out)
{
    (void)t;
    tile_turned_frame(out, &(TileTurnedFrame){ 0 });
}

static void keep_turned(Tile *t, const StateInfo *s, Buf *out)
{
    move_kept(t, s, s->kept, kept_place(t), false, out);
}

static void take_turned(Tile *t, const StateInfo *s, Buf *out)
{
    move_kept(t, s, s->kept, kept_place(t), true, out);
}

/* The states that the chunk's replay starts from, from memory into registers. */
static void load_start(Tile *t, const StateInfo *s, const char *chunk, Buf *out)
{
    const char *number = tile_text(t, "%s + %s%s", tile_first_checkpoint(t), chunk,
                                   mutate("wrong-checkpoint") ? tile_text(t, " - (%s > 0)", chunk) : "");
    if (tile_by_thread(t, s)) {
        buf_line(out, "cell_load_own<%d>(%s, %s);", tile_threads(&t->lay), s->ahead, tile_own_checkpoint(t, s, number));
        return;
    }
    const char *from = tile_text(t, "%s + ((%s) * (%s) + %s)", tile_pointer(t, REF_CHECKPOINT, s->tensor), number, tile_state_size(t, s),
                                 tile_checkpoint_place(t, s, true));
    int wide = tile_state_run(t, s);
    if (wide == 1) {
        tile_each_element(t, s, out, tile_text(t, "%s = *(%s);", tile_state_var(t, s, s->ahead), from));
        return;
    }
    TileLoadVectorsFrame f = { .real = t->real, .from = from, .to = tile_own_row(t, s, s->ahead) };
    f.cols = tile_number(t, t->lay.rc);
    f.wide = tile_number(t, wide);
    tile_open(t, out, tile_has_rows(s), false);
    tile_load_vectors_frame(out, &f);
    tile_close(out, tile_has_rows(s), false);
}

/* What load_start reads behind the chunk's steps is asked for in front of them, line by line, into the second level cache: there is
 * no room for it on the chip. */
static void prefetch_start(Tile *t, const StateInfo *s, const char *chunk, Buf *out)
{
    enum { LINE = 128 };
    const Tensor *x = &t->m->tensors.data[s->tensor];
    int64_t n = tile_by_thread(t, s) ? t->w->by_thread : 1;
    int line = LINE / t->real_bytes, threads = tile_threads(&t->lay);
    for (int k = 0; k < s->rank && !tile_by_thread(t, s); k++)
        n *= x->axes[t->npar + k]->value;
    const char *number = tile_text(t, "%s + %s%s", tile_first_checkpoint(t), chunk,
                                   mutate("far-prefetch") ? " + (1 << 20)" : "");
    const char *from = tile_by_thread(t, s) ? tile_own_checkpoint(t, s, number)
                                       : tile_text(t, "%s + ((%s) * (%s) + %s)", tile_pointer(t, REF_CHECKPOINT, s->tensor), number,
                                                   tile_state_size(t, s), tile_checkpoint_place(t, s, false));
    TilePrefetchFrame f = { .line = tile_number(t, line), .elements = tile_number(t, n), .from = from };
    f.step = tile_number(t, threads * line);
    tile_prefetch_frame(out, &f);
}

static const char *starts_of(Tile *t, const char *chunk)
{
    Buf loads = { .arena = t->arena }, text = loads;
    for (int k = 0; k < t->states.len; k++)
        load_start(t, &t->states.data[k], chunk, &loads);
    TileStartsFrame f = { .chunk = chunk, .loads = tile_hole(t, &loads) };
    tile_starts_frame(&text, &f);
    return tile_hole(t, &text);
}

/* What is printed next reads and writes the states of the replay, or again those of the way back. */
static void swap_names(Tile *t)
{
    for (int k = 0; k < t->states.len; k++) {
        StateInfo *s = &t->states.data[k];
        const char *name = s->name;
        s->name = s->ahead;
        s->ahead = name;
    }
}

static void declare_name(Tile *t, const StateInfo *s, Buf *out)
{
    buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->name));
}

static void print_replay_ahead(Tile *t, Buf *out)
{
    Buf step = { .arena = t->arena }, head = step;
    swap_names(t);
    TileReplayAheadFrame f = { .states = tile_of_states(t, declare_name), .interval = tile_number(t, t->K) };
    f.turned = tile_lines(t, print_turned);
    tile_print_step(t->replay, &head, &step);
    f.place = tile_lines(t, tile_print_place);
    f.head = tile_hole(t, &head);
    f.keeps = tile_of_states(t, keep_turned);
    f.step = tile_hole(t, &step);
    f.copies = tile_step_copies(t);
    tile_replay_ahead_frame(out, &f);
    swap_names(t);
}

static void take_replayed(Tile *t, const StateInfo *s, Buf *out)
{
    tile_copy_state(t, s, out, s->after, s->ahead);
}

static void print_next_replay(Tile *t, Buf *out)
{
    TileNextReplayFrame f = { .lost = mutate("lost-replay") ? " if (steps == 0)" : "" };
    f.copies = tile_of_states(t, take_replayed);
    f.starts = starts_of(t, "chunk - 2");
    tile_next_replay_frame(out, &f);
}

static void go_back(Tile *t, const StateInfo *s, Buf *out)
{
    tile_copy_state(t, s, out, s->adj, s->prev);
    tile_copy_state(t, s, out, s->after, s->name);
}

static void print_back_rows(Tile *t, Buf *out)
{
    tile_print_rows(t, "t0 + steps - 1", out);
}

static void print_back_unroll(Tile *t, Buf *out)
{
    tile_print_unroll(t, t->adjoint, out);
}

static void print_back_move(Tile *t, Buf *out)
{
    tile_move_rows(t, false, out);
}

static void print_undo(Tile *t, Buf *out)
{
    tile_print_undo(t->replay, out);
}

static void print_back(Tile *t, Buf *out)
{
    Buf step = { .arena = t->arena }, head = step;
    tile_print_step(t->adjoint, t->ahead ? &head : &step, &step);
    TileBackFrame f = { .rows = tile_lines(t, print_back_rows),
                        .late = t->adjoint->late.data,
                        .ahead = t->ahead };
    f.place = tile_lines(t, tile_print_place);
    f.unroll = tile_lines(t, print_back_unroll);
    f.head = tile_hole(t, &head);
    f.states = t->undoes ? tile_lines(t, print_undo) : tile_of_states(t, t->ahead ? take_turned : take_state);
    f.fetch_start = !t->undoes && !t->ahead;
    f.step = tile_hole(t, &step);
    f.copies = tile_of_states(t, go_back);
    f.move = tile_lines(t, print_back_move);
    f.meet = tile_all_meet(t);
    f.next = t->ahead ? tile_lines(t, print_next_replay) : "";
    f.end_chunk = tile_end_chunk(t->adjoint);
    tile_back_frame(out, &f);
}

/* Is the adjoint of the initial state passed on to params? They read it from a buffer of its own. */
static bool learned(const Tile *t, const StateInfo *s)
{
    for (TensorId k = 0; k < t->m->tensors.len; k++)
        if (t->m->tensors.data[k].kind == T_DINIT && t->m->tensors.data[k].of == s->tensor)
            return true;
    return false;
}

static void print_adjoints_of_initial(Tile *t, Buf *out)
{
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        const char *to = tile_pointer(t, REF_DINIT, s->tensor);
        const char *at = tile_text(t, "%s[b * (%s) + %s]", to, tile_state_size(t, s), tile_argument_place(t, s));
        if (learned(t, s)) {
            const char *carry = tile_pointer(t, REF_CARRY, s->tensor);
            tile_store_elements(t, s, out, carry, tile_text(t, "%s[b * (%s) + %s] = %s;", carry, tile_state_size(t, s),
                                                            tile_argument_place(t, s), tile_state_var(t, s, s->adj)));
        }
        tile_store_elements(t, s, out, to, tile_text(t, "%s = args.flags & CELL_KERNEL_ACCUMULATE ? %s + %s : %s;",
                                                     at, at, tile_state_var(t, s, s->adj), tile_state_var(t, s, s->adj)));
    }
}

static void declare_states(Tile *t, const StateInfo *s, Buf *out)
{
    buf_line(out, "%s %s, %s;", t->real, tile_state_decl(t, s, s->name), tile_state_decl(t, s, s->after));
}

static void prefetch_next(Tile *t, const StateInfo *s, Buf *out)
{
    prefetch_start(t, s, "chunk - 2", out);
}

/* The adjoint of the final state. */
static void print_adjoint(Tile *t, const StateInfo *s, Buf *out)
{
    const char *from = tile_pointer(t, REF_DFINAL, s->tensor);
    buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->adj));
    tile_each_element(t, s, out,
                      tile_text(t, "%s = %s ? %s[b * (%s) + %s] : 0;", tile_state_var(t, s, s->adj), from,
                                from, tile_state_size(t, s), tile_argument_place(t, s)));
}

static void print_backward_ahead(Tile *t, const char *adjoints, Buf *out)
{
    TileBackwardAheadFrame f = { .adjoints = adjoints, .replay = tile_lines(t, print_replay_ahead) };
    f.states = tile_of_states(t, declare_states);
    f.starts = starts_of(t, "chunks - 1");
    f.interval = tile_number(t, t->K);
    f.turned = tile_lines(t, print_turned);
    f.single = tile_has_single(t);
    /* Where steps are joined, it was one percent slower. */
    f.prefetch = tile_step_joins(t, t->adjoint) ? "" : tile_of_states(t, prefetch_next);
    f.back = tile_lines(t, print_back);
    f.initial = tile_lines(t, print_adjoints_of_initial);
    tile_backward_ahead_frame(out, &f);
}

void tile_print_backward(Tile *t, Buf *out)
{
    const char *adjoints = tile_of_states(t, print_adjoint);
    if (t->ahead) {
        print_backward_ahead(t, adjoints, out);
        return;
    }
    TileBackwardFrame f = { .adjoints = adjoints, .chunk = tile_lines(t, tile_print_chunk) };
    f.replay = tile_lines(t, print_replay);
    f.back = tile_lines(t, print_back);
    f.initial = tile_lines(t, print_adjoints_of_initial);
    tile_backward_frame(out, &f);
}
