/* tile_backward.c: a walk's way back. Each segment is replayed from its checkpoint into shared memory, or undone, and walked back;
 * or, where registers are left, a segment is replayed beside the steps back through the one behind it. */
#include <inttypes.h>

#include "base/mutate.h"
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
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int e = 0; e < %d; e++) {", e / wide);
    out->indent++;
    buf_line(out, "%s some[%d];", t->real, wide);
    if (load)
        buf_line(out, "cell_load_vec<%d>(some, %s);", wide, at);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int i = 0; i < %d; i++)", wide);
    buf_line(out, "    %s = %s;", load ? own : "some[i]", load ? "some[i]" : own);
    if (!load)
        buf_line(out, "cell_store_vec<%d>(%s, some);", wide, at);
    out->indent--;
    buf_line(out, "}");
}

/* One step after the other of a chunk, from the states before it. */
static void print_replayed_steps(Tile *t, Buf *out)
{
    buf_line(out, "for (int s = 0; s < steps; s++) {");
    out->indent++;
    buf_line(out, "const int64_t t = t0 + s;");
    Buf step = { .arena = t->arena, .indent = out->indent };
    tile_print_step(t->replay, &step, &step);
    tile_print_place(t, out);
    for (int k = 0; k < t->states.len && !t->undoes; k++) {
        const StateInfo *s = &t->states.data[k];
        move_kept(t, s, s->kept, "s", false, out);
    }
    buf_f(out, "%s", step.data ? step.data : "");
    for (int k = 0; k < t->states.len; k++)
        tile_copy_state(t, &t->states.data[k], out, t->states.data[k].name, t->states.data[k].next);
    out->indent--;
    buf_line(out, "}");
}

/* From the segment's checkpoint through its steps, keeping the state before each. Where steps are undone, only what is
 * behind the last one is not known: it is where the next segment starts, and only the last one has none behind it. */
static void print_replay(Tile *t, Buf *out)
{
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->name));
        move_kept(t, s, s->start, NULL, true, out);
    }
    buf_line(out, "cell_barrier();");
    if (tile_has_single(t))
        buf_line(out, "fetch_behind(chunk);");
    buf_line(out, t->undoes ? "if (chunk > 0) {" : "if (chunk > 0)");
    if (t->undoes)
        buf_line(out, "    fetch_start(chunk);");
    buf_line(out, "    fetch(chunk - 1);");
    if (t->undoes)
        buf_line(out, "}");
    if (t->undoes)
        buf_line(out, "if (chunk == chunks - 1)");
    out->indent += t->undoes;
    print_replayed_steps(t, out);
    out->indent -= t->undoes;
    if (t->replay->barriers)
        buf_line(out, "cell_barrier();");     /* the way back writes where the replay's last step read */
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->after));
        tile_copy_state(t, s, out, s->after, s->name);
    }
}

/* Where the state before step s of the chunk lies: a replayed state takes the place of one that has just been walked back,
 * so the places' order turns round from chunk to chunk. Of the last chunk, which may be short, the first places are taken. */
static const char *kept_place(Tile *t)
{
    return mutate("unturned") ? "s" : tile_text(t, "(turned ? %d - s : s)", t->K - 1);
}

static void print_turned(Buf *out)
{
    buf_line(out, "const bool turned = (chunks - chunk) %% 2 == 0;");
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
                                 tile_state_place(t, s));
    int wide = tile_state_run(t, s);
    if (wide == 1) {
        tile_each_element(t, s, out, tile_text(t, "%s = *(%s);", tile_state_var(t, s, s->ahead), from));
        return;
    }
    tile_open(t, out, tile_has_rows(s), false);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int c = 0; c < %d; c += %d) {", t->lay.rc, wide);
    buf_line(out, "    %s some[%d];", t->real, wide);
    buf_line(out, "    cell_load_vec<%d>(some, %s);", wide, from);
    buf_line(out, "    CELL_UNROLL");
    buf_line(out, "    for (int i = 0; i < %d; i++)", wide);
    buf_line(out, "        %s%s[c + i] = some[i];", s->ahead, tile_has_rows(s) ? "[r]" : "");
    buf_line(out, "}");
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
                                                   tile_state_size(t, s), tile_place_in_state(t, s, false));
    buf_line(out, "for (int x = cell_thread() * %d; x < %" PRId64 "; x += %d)", line, n, threads * line);
    buf_line(out, "    cell_prefetch(%s + x);", from);
}

static void load_starts(Tile *t, const char *chunk, Buf *out)
{
    buf_line(out, "if (%s >= 0) {", chunk);
    out->indent++;
    for (int k = 0; k < t->states.len; k++)
        load_start(t, &t->states.data[k], chunk, out);
    out->indent--;
    buf_line(out, "}");
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

static void print_replay_ahead(Tile *t, Buf *out)
{
    swap_names(t);
    for (int k = 0; k < t->states.len; k++)
        buf_line(out, "%s %s;", t->real, tile_state_decl(t, &t->states.data[k], t->states.data[k].name));
    buf_line(out, "// Step s of a chunk, whose state before it is kept for the way back.");
    buf_line(out, "auto replay = [&](int64_t chunk, int s) {");
    out->indent++;
    buf_line(out, "const int64_t t = chunk * %d + s;", t->K);
    buf_line(out, "const int third = (int)((uint32_t)(chunk + 3) %% 3u) * %d;", t->K);
    print_turned(out);
    Buf step = { .arena = t->arena, .indent = out->indent }, head = step;
    tile_print_step(t->replay, &head, &step);
    tile_print_place(t, out);
    buf_f(out, "%s", head.data ? head.data : "");
    for (int k = 0; k < t->states.len; k++)
        move_kept(t, &t->states.data[k], t->states.data[k].kept, kept_place(t), false, out);
    buf_f(out, "%s", step.data ? step.data : "");
    for (int k = 0; k < t->states.len; k++)
        tile_copy_state(t, &t->states.data[k], out, t->states.data[k].name, t->states.data[k].next);
    out->indent--;
    buf_line(out, "};");
    swap_names(t);
}

/* Behind the steps back through a chunk: what is left of the replay of the one before, which only a short chunk leaves, and
 * the checkpoint of the next replay, which arrives while what stands behind the chunk is computed. */
static void print_next_replay(Tile *t, Buf *out)
{
    buf_line(out, "for (int s = steps; s < before; s++)%s", mutate("lost-replay") ? " if (steps == 0)" : "");
    buf_line(out, "    replay(chunk - 1, s);");
    buf_line(out, "if (chunk == chunks) {");
    out->indent++;
    for (int k = 0; k < t->states.len; k++)
        tile_copy_state(t, &t->states.data[k], out, t->states.data[k].after, t->states.data[k].ahead);
    out->indent--;
    buf_line(out, "}");
    load_starts(t, "chunk - 2", out);
}

static void print_back(Tile *t, Buf *out)
{
    Buf step = { .arena = t->arena, .indent = out->indent + 1 }, head = step;
    tile_print_step(t->adjoint, t->ahead ? &head : &step, &step);
    bool late = t->adjoint->late.data != NULL;
    tile_print_rows(t, "t0 + steps - 1", out);
    if (late) {
        buf_line(out, "// What other warps finish for the caller only is written one step late.");
        buf_line(out, "auto late = [&](int s) {");
        out->indent++;
        buf_line(out, "const int64_t t = t0 + s;");
        tile_print_place(t, out);
        buf_f(out, "%s", t->adjoint->late.data);
        out->indent--;
        buf_line(out, "};");
    }
    tile_print_unroll(t, t->adjoint, out);
    buf_line(out, "for (int s = steps - 1; s >= 0; s--) {");
    out->indent++;
    buf_line(out, "const int64_t t = t0 + s;");
    tile_print_place(t, out);
    buf_f(out, "%s", head.data ? head.data : "");
    for (int k = 0; k < t->states.len && !t->undoes; k++) {
        const StateInfo *s = &t->states.data[k];
        move_kept(t, s, s->kept, t->ahead ? kept_place(t) : "s", true, out);
    }
    if (t->undoes)
        tile_print_undo(t->replay, out);
    if (t->ahead)
        buf_line(out, "replay(chunk - 1, steps - 1 - s);");
    if (!t->undoes && !t->ahead) {
        buf_line(out, "if (s == steps - 1 && chunk > 0)");
        buf_line(out, "    fetch_start(chunk - 1);");
    }
    buf_f(out, "%s", step.data ? step.data : "");
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        tile_copy_state(t, s, out, s->adj, s->prev);
        tile_copy_state(t, s, out, s->after, s->name);
    }
    tile_move_rows(t, false, out);
    out->indent--;
    buf_line(out, "}");
    if (late) {
        buf_line(out, "%s", tile_all_meet(t));
        buf_line(out, "late(0);");
    }
    if (t->ahead)
        print_next_replay(t, out);
    tile_end_chunk(t->adjoint, out);
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
        const char *at = tile_text(t, "%s[b * (%s) + %s]", to, tile_state_size(t, s), tile_state_place(t, s));
        if (learned(t, s)) {
            const char *carry = tile_pointer(t, REF_CARRY, s->tensor);
            tile_store_elements(t, s, out, carry, tile_text(t, "%s[b * (%s) + %s] = %s;", carry, tile_state_size(t, s),
                                                            tile_state_place(t, s), tile_state_var(t, s, s->adj)));
        }
        tile_store_elements(t, s, out, to, tile_text(t, "%s = args.flags & CELL_KERNEL_ACCUMULATE ? %s + %s : %s;",
                                                     at, at, tile_state_var(t, s, s->adj), tile_state_var(t, s, s->adj)));
    }
}

/* Begins one chunk behind the last one, of which nothing is walked back: the last one is replayed. Then a step back stands
 * beside a step of the replay of the chunk before, on which it does not depend. (Beside chunk 0, what nobody reads.) */
static void print_backward_ahead(Tile *t, Buf *out)
{
    print_replay_ahead(t, out);
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        buf_line(out, "%s %s, %s;", t->real, tile_state_decl(t, s, s->name), tile_state_decl(t, s, s->after));
    }
    load_starts(t, "chunks - 1", out);
    buf_line(out, "if (chunks > 0)");
    buf_line(out, "    fetch(chunks - 1);");
    buf_line(out, "for (int64_t chunk = chunks; chunk >= 0; chunk--) {");
    out->indent++;
    buf_line(out, "const int64_t t0 = chunk * %d, left = T - t0;", t->K);
    buf_line(out, "const int steps = left < 0 ? 0 : left < %d ? (int)left : %d, third = (int)((uint32_t)chunk %% 3u) * %d;", t->K, t->K, t->K);
    buf_line(out, "const int before = chunk == 0 ? 0 : left < 0 ? %d + (int)left : %d;", t->K, t->K);
    print_turned(out);
    buf_line(out, "cell_cp_async_wait<0>();");
    buf_line(out, "cell_barrier();");
    if (tile_has_single(t))
        buf_line(out, "fetch_behind(chunk);");
    buf_line(out, "if (chunk > 1) {");
    out->indent++;
    buf_line(out, "fetch(chunk - 2);");
    /* Where steps are joined, it was one percent slower. */
    for (int k = 0; k < t->states.len && !tile_step_joins(t, t->adjoint); k++)
        prefetch_start(t, &t->states.data[k], "chunk - 2", out);
    out->indent--;
    buf_line(out, "}");
    print_back(t, out);
    out->indent--;
    buf_line(out, "}");
}

void tile_print_backward(Tile *t, Buf *out)
{
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        const char *from = tile_pointer(t, REF_DFINAL, s->tensor);
        buf_line(out, "%s %s;", t->real, tile_state_decl(t, s, s->adj));
        tile_each_element(t, s, out, tile_text(t, "%s = %s ? %s[b * (%s) + %s] : 0;", tile_state_var(t, s, s->adj),
                                               from, from, tile_state_size(t, s), tile_state_place(t, s)));
    }
    if (t->ahead) {
        print_backward_ahead(t, out);
        print_adjoints_of_initial(t, out);
        return;
    }
    buf_line(out, "if (chunks > 0) {");
    buf_line(out, "    fetch_start(chunks - 1);");
    buf_line(out, "    fetch(chunks - 1);");
    buf_line(out, "}");
    buf_line(out, "for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {");
    out->indent++;
    tile_print_chunk(t, out);
    buf_line(out, "cell_cp_async_wait<0>();");
    print_replay(t, out);
    print_back(t, out);
    out->indent--;
    buf_line(out, "}");
    print_adjoints_of_initial(t, out);
}
