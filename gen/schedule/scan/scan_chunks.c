/* scan_chunks.c: walks over chunks of steps. In comes a kernel whose steps are linear in the states
 * (scan_kernel.h); out goes its tree: a block has 32 or 64 units and walks 8 or 16 chunks of each at once,
 * first as the chunk's map from a state of 0, then, behind an exchange through shared memory, from the
 * state before it. */
#include "base/mutate.h"
#include "ir/ops.h"
#include "scan_kernel.h"

static const KirExpr *thread_of(ScanKernel *s)
{
    return kir_special(s->kir, KP_THREAD, 0);
}

static void name_places(ScanKernel *s)
{
    static const char *const rows[] = { "bt_before", "bt1_before", "bt2_before" };
    s->begin = scan_variable(s, "begin", KT_I64);
    s->from = scan_variable(s, "from", KT_I64);
    s->unit = scan_variable(s, "unit", KT_I32);
    s->chunk = scan_variable(s, "chunk", KT_I32);
    s->mine = scan_variable(s, "mine", KT_BOOL);
    s->is_step = scan_variable(s, "is_step", KT_BOOL);
    s->counted = scan_variable(s, "counted", KT_I64);
    s->aside = scan_variable(s, "aside", KT_I32);
    s->t_before = scan_variable(s, "t_before", KT_I64);
    for (int i = 0; i < 3; i++)
        s->rows_before[i] = scan_variable(s, rows[i], KT_I64);
    names_take(&s->k->locals, "first");
}

/* ---- a block's units and chunks ---- */

/* In pairs they follow from the sizes of the call: the kernel has the units as a parameter. Blocks of 64
 * read and write whole lines, and walk half as many chunks: a warp has one, or of 32 units two. */
static void name_units(ScanKernel *s)
{
    s->units = code_int(s->x, 32);
    s->chunks = code_int(s->x, s->w->chunks);
    if (!scan_in_pairs(s))
        return;
    s->units = kir_unknown(s->kir, "units", KT_I32);
    kir_parameter(s->kir, s->units);
    s->chunks = kir_let(s->kir, "chunks", KT_I32,
                        code_binary(s->x, KB_DIV, code_int(s->x, 2 * scan_threads(s->w)), s->units));
}

/* Where units are few, more blocks of fewer. */
static void choose_units(ScanKernel *s)
{
    Code *x = s->x;
    if (!scan_in_pairs(s))
        return;
    code_open_entry(x, s->w->kernel);
    const KirExpr *units = code_mul(x, code_batch(x), code_size(x, s->w->units));
    const KirExpr *few = code_int(x, 32), *many = code_int(x, 64);
    KirOpen choice = kir_if(s->kir, code_binary(x, KB_LT, units, code_int(x, BLOCK_UNITS)));
    kir_run(s->kir, &few);
    kir_else(s->kir, &choice);
    kir_run(s->kir, &many);
    kir_close(s->kir, choice);
    code_close_entry(x);
}

const KirExpr *scan_turn_steps(ScanKernel *s)
{
    return code_mul(s->x, s->chunks, code_int(s->x, s->steps));
}

/* Units and chunk of two neighbours: of a thread, or of those whose words it copies. */
void scan_let_pair(ScanKernel *s, const KirExpr *place)
{
    Code *x = s->x;
    const KirExpr *first = code_mul(x, place, code_int(x, 2));
    kir_let_var(s->kir, s->unit, code_binary(x, KB_MOD, first, s->units));
    kir_let_var(s->kir, s->chunk, code_binary(x, KB_DIV, first, s->units));
}

/* Where they are in memory. Beyond the last unit there is another, as words lie. */
void scan_let_place(ScanKernel *s, const KirExpr *mine)
{
    Code *x = s->x;
    const KirExpr *unit = kir_var(s->kir, s->unit), *wide = code_int(x, SCAN_WIDE);
    int back = s->copies_wide ? SCAN_WIDE : scan_in_pairs(s) ? 2 : 1;
    const KirExpr *other = code_sub(x, s->elements, code_int(x, back));
    other = s->copies_wide ? code_add(x, other, code_binary(x, KB_MOD, unit, wide)) : other;
    kir_let_var(s->kir, s->n, kir_select(s->kir, mine, code_add(x, s->first, unit), other));
    scan_split_units(s);
    kir_append_replaced(s->kir, &s->indices, NULL, 0);
}

/* ---- steps ---- */

/* The step of place `from + u` in the order of the walk; full: all chunks of the turn are whole. Where
 * states are made anew, the chunks of both directions are the same, and the first one may begin behind the
 * last step. */
const KirExpr *scan_step_at(ScanKernel *s, const KirExpr *u, bool full)
{
    Code *x = s->x;
    const KirExpr *from = kir_var(s->kir, s->from);
    if (!s->w->replays)
        return full ? scan_step_number(s, from, u) : scan_step_or_last(s, code_add(x, from, u));
    const KirExpr *t = code_sub(x, code_sub(x, s->last, from), u);
    return full ? t : kir_call2(s->kir, "cell_nearest", t, code_steps(x));
}

/* Where they are, no step is tested, and addresses are so far apart as is known. */
KirOpen scan_open_steps(ScanKernel *s, bool down, bool full)
{
    Code *x = s->x;
    int last = s->steps - 1;
    KirOpen o = kir_for_var(s->kir, s->u, code_int(x, down ? last : 0), down ? KB_GE : KB_LT,
                            code_int(x, down ? 0 : s->steps), code_int(x, down ? -1 : 1));
    o.statement->n = -1;
    scan_let_step(s, scan_step_at(s, kir_var(s->kir, s->u), full));
    return o;
}

const KirExpr *scan_whole_turn(ScanKernel *s)
{
    Code *x = s->x;
    const KirExpr *begin = kir_var(s->kir, s->begin), *none = code_int(x, 0);
    const KirExpr *whole = code_binary(x, KB_LE, code_add(x, begin, scan_turn_steps(s)), code_steps(x));
    if (!s->w->replays)
        return whole;
    const KirExpr *rest = code_binary(x, KB_MOD, code_steps(x), code_int(x, s->steps));
    const KirExpr *cut =
        code_binary(x, KB_OR, code_binary(x, KB_GT, begin, none), code_binary(x, KB_EQ, rest, none));
    return code_binary(x, KB_AND, whole, cut);
}

/* ---- the exchange ---- */

static void each_state(ScanKernel *s, void (*body)(ScanKernel *s, TensorId state, int before))
{
    int before = 0; /* elements of the states before this one */
    for (TensorId state = 0; state < s->k->p->m->tensors.len; state++) {
        if (!scan_is_state(s, state))
            continue;
        if (scan_next_of(s, state) >= 0)
            body(s, state, before);
        before += scan_elements_of_state(s, state);
    }
}

/* Of this thread's unit, behind the place of the first unit. */
static const KirExpr *own_place(ScanKernel *s, const KirExpr *first)
{
    const KirExpr *place = code_add(s->x, first, kir_var(s->kir, s->unit));
    return scan_in_pairs(s) ? code_add(s->x, place, kir_var(s->kir, s->q)) : place;
}

/* Where a row of a map begins: the slopes of all units, and behind them the rest. */
static const KirExpr *row_of_maps(ScanKernel *s, const KirExpr *row)
{
    Code *x = s->x;
    if (!scan_in_pairs(s))
        return code_mul(x, row, code_int(x, 64));
    return code_mul(x, code_mul(x, row, code_int(x, 2)), s->units);
}

/* What the first chunk begins with. */
static void begin_carry(ScanKernel *s, TensorId state, int before)
{
    Code *x = s->x;
    int n = scan_elements_of_state(s, state);
    const KirExpr *j = scan_open_each(s, n);
    const KirExpr *row = code_int(x, before);
    const KirExpr *at = code_mul(x, j ? code_add(x, row, j) : row, s->units);
    kir_assign(s->kir, kir_element(s->kir, s->carries, own_place(s, at)), scan_local(s, s->states[state], j));
    scan_close_each(s, n);
}

/* The chunk's map: from a state of 0. */
static void begin_map(ScanKernel *s, TensorId state, int before)
{
    int n = scan_elements_of_state(s, state);
    KirVar *v = s->slopes[state]->var;
    (void)before;
    kir_add(s->kir, (KirStmt){ .kind = v->type.space == KS_VALUE ? KI_VAR : KI_ARRAY, .var = v });
    const KirExpr *j = scan_open_each(s, n);
    kir_assign(s->kir, scan_local(s, s->slopes[state], j), code_int(s->x, 1));
    kir_assign(s->kir, scan_local(s, s->states[state], j), code_int(s->x, 0));
    scan_close_each(s, n);
}

/* Of element j. */
static const KirExpr *map_place(ScanKernel *s, const KirExpr *j, int before)
{
    Code *x = s->x;
    const KirExpr *all = code_int(x, scan_state_elements(s->k->p));
    const KirExpr *row = code_add(x, code_mul(x, kir_var(s->kir, s->chunk), all), code_int(x, before));
    return own_place(s, row_of_maps(s, j ? code_add(x, row, j) : row));
}

static void give_map(ScanKernel *s, TensorId state, int before)
{
    Kir *k = s->kir;
    int n = scan_elements_of_state(s, state);
    const KirExpr *j = scan_open_each(s, n), *at = map_place(s, j, before);
    kir_assign(k, kir_element(k, s->maps, at), scan_local(s, s->slopes[state], j));
    kir_assign(k, kir_element(k, s->maps, code_add(s->x, at, s->units)), scan_local(s, s->states[state], j));
    scan_close_each(s, n);
}

static void take_state(ScanKernel *s, TensorId state, int before)
{
    int n = scan_elements_of_state(s, state);
    const KirExpr *j = scan_open_each(s, n), *at = map_place(s, j, before);
    kir_assign(s->kir, scan_local(s, s->states[state], j), kir_element(s->kir, s->maps, at));
    scan_close_each(s, n);
}

/* One thread for each element goes through the chunks' maps in order, and leaves the state before each in
 * the slope's place. A slope of 0 forgets the state, whatever it is. */
static void exchange(ScanKernel *s)
{
    Code *x = s->x;
    Kir *k = s->kir;
    const KirExpr *i, *v, *all = code_int(x, scan_state_elements(s->k->p)), *none = code_int(x, 0);
    KirScalar real = code_real(x);
    each_state(s, give_map);
    if (!mutate("missing-barrier"))
        kir_barrier(k, KIR_BLOCK);
    KirOpen elements = kir_for(k, "i", KT_I32, thread_of(s), KB_LT, code_mul(x, s->units, all),
                               code_int(x, scan_threads(s->w)), &i);
    const KirExpr *state = kir_mutable(k, "state", real, kir_element(k, s->carries, i));
    KirOpen chunks = kir_for(k, "v", KT_I32, none, KB_LT, s->chunks, code_int(x, 1), &v);
    chunks.statement->n = -1;
    const KirExpr *row = code_add(x, code_mul(x, v, all), code_binary(x, KB_DIV, i, s->units));
    const KirExpr *at = code_add(x, row_of_maps(s, row), code_binary(x, KB_MOD, i, s->units));
    at = kir_let(k, "at", KT_I32, at);
    const KirExpr *slope = kir_let(k, "slope", real, kir_element(k, s->maps, at));
    const KirExpr *rest = kir_let(k, "rest", real, kir_element(k, s->maps, code_add(x, at, s->units)));
    kir_assign(k, kir_element(k, s->maps, at), state);
    kir_assign(k, state,
               kir_select(k, code_binary(x, KB_EQ, slope, none), rest,
                          code_add(x, code_mul(x, slope, state), rest)));
    kir_close(k, chunks);
    kir_assign(k, kir_element(k, s->carries, i), state);
    kir_close(k, elements);
    kir_barrier(k, KIR_BLOCK);
    each_state(s, take_state);
}

/* ---- turns ---- */

/* What a call mostly wants is stored without tests: all gradients, of all units of the block, and not
 * added up. */
static void declare_plain(ScanKernel *s)
{
    Code *x = s->x;
    Kir *k = s->kir;
    const KirExpr *plain = code_binary(x, KB_LE, code_add(x, s->first, s->units), s->elements);
    for (int i = 0; i < s->wanted.len; i++) {
        const KirExpr *p = kir_var(k, s->wanted.data[i]->var);
        const KirExpr *wants =
            kir_let_var(k, s->wants.data[i], code_binary(x, KB_NE, p, kir_null(k, p->type)));
        plain = i ? plain : code_binary(x, KB_AND, plain, kir_not(k, x->adds));
        plain = code_binary(x, KB_AND, plain, wants);
    }
    s->plain = kir_let(k, "plain", KT_BOOL, plain);
}

/* What is known in such a turn, and how steps are counted that leave their states. */
static int known(ScanKernel *s, bool full, KirReplaced *r)
{
    Kir *k = s->kir;
    const ScanWalk *back = scan_walks(&s->k->p->program[BACKWARD])->chunks;
    bool whole = !back || s->steps % (back->steps ? back->steps : 1) == 0;
    const KirExpr *yes = kir_truth(k, true);
    int n = 0;
    r[n++] = (KirReplaced){ s->counted, kir_var(k, whole ? s->u : s->t) };
    if (!full)
        return n;
    r[n++] = (KirReplaced){ s->mine, yes };
    r[n++] = (KirReplaced){ s->is_step, yes };
    if (s->wanted.len)
        r[n++] = (KirReplaced){ s->x->adds->var, kir_truth(k, false) };
    for (int i = 0; i < s->wanted.len; i++)
        r[n++] = (KirReplaced){ s->wants.data[i], yes };
    return n;
}

static void functions(ScanKernel *s, bool full)
{
    if (s->function_values.len == 0)
        return;
    for (int i = 0; i < s->function_values.len; i++) {
        const EarlyValue *v = &s->function_values.data[i];
        if (v->local->rows)
            scan_declare_of_steps(s, v->local, v->elements);
        else
            scan_declare_registers(s, v->local, s->steps);
    }
    KirOpen steps = scan_open_steps(s, false, full);
    kir_append_replaced(s->kir, &s->functions, NULL, 0);
    kir_close(s->kir, steps);
}

static void reads(ScanKernel *s, bool full)
{
    if (s->reads.len == 0)
        return;
    scan_declare_reads(s, false);
    KirOpen steps = scan_open_steps(s, false, full);
    kir_append_replaced(s->kir, &s->early, NULL, 0);
    kir_close(s->kir, steps);
}

static void replay(ScanKernel *s, bool full)
{
    if (!s->staged) {
        scan_declare_kept(s);
        scan_let_before(s, full);
        scan_kept(s, READ);
    }
    KirOpen steps = scan_open_steps(s, true, full);
    kir_append_replaced(s->kir, &s->again, NULL, 0);
    kir_close(s->kir, steps);
}

static void let_is_step(ScanKernel *s)
{
    Code *x = s->x;
    const KirExpr *from = kir_var(s->kir, s->from), *u = kir_var(s->kir, s->u);
    if (s->w->replays) {
        const KirExpr *t = code_sub(x, code_sub(x, s->last, from), u);
        kir_let_var(s->kir, s->is_step, kir_call2(s->kir, "cell_inside", t, code_steps(x)));
    } else {
        kir_let_var(s->kir, s->is_step, code_binary(x, KB_LT, code_add(x, from, u), code_steps(x)));
    }
}

/* The step itself, where it is one, and its stores, where the unit is one. */
static void step(ScanKernel *s, const KirReplaced *r, int n)
{
    Kir *k = s->kir;
    KirBlock block = { .data = NULL }, *outer = kir_enter(k, &block);
    KirOpen is_step = kir_if(k, kir_var(k, s->is_step));
    kir_append(k, &s->body);
    KirOpen mine = kir_if(k, kir_var(k, s->mine));
    kir_append(k, &s->late);
    kir_close(k, mine);
    kir_close(k, is_step);
    kir_enter(k, outer);
    kir_append_replaced(k, &block, r, n);
}

static void turn(ScanKernel *s, bool full)
{
    KirReplaced *r = arena_alloc(s->kir->arena, sizeof *r * (size_t)(s->wanted.len + 8));
    int n = known(s, full, r);
    if (!s->staged) {
        reads(s, full);
        functions(s, full);
    }
    if (s->w->replays)
        replay(s, full);
    each_state(s, begin_map);
    KirOpen steps = scan_open_steps(s, false, full);
    if (!full)
        let_is_step(s);
    kir_append_replaced(s->kir, &s->map, r, n);
    kir_close(s->kir, steps);
    exchange(s);
    steps = scan_open_steps(s, false, full);
    if (!full)
        let_is_step(s);
    step(s, r, n);
    kir_close(s->kir, steps);
}

static void turns(ScanKernel *s)
{
    Code *x = s->x;
    Kir *k = s->kir;
    const KirExpr *chunk = code_mul(x, kir_var(k, s->chunk), code_int(x, s->steps));
    KirOpen loop = kir_for_var(k, s->begin, code_int(x, 0), KB_LT, code_steps(x), scan_turn_steps(s));
    kir_let_var(k, s->from, code_add(x, kir_var(k, s->begin), chunk));
    if (s->staged) {
        scan_take_words(s);
        functions(s, false);
    }
    KirOpen whole = kir_if(k, code_binary(x, KB_AND, s->plain, scan_whole_turn(s)));
    turn(s, true);
    kir_else(k, &whole);
    turn(s, false);
    kir_close(k, whole);
    kir_close(k, loop);
}

/* ---- the kernel ---- */

/* A chunk of the steps to each warp of a block of 32 units; or see name_units. */
static void let_units(ScanKernel *s)
{
    Code *x = s->x;
    const KirExpr *lanes = code_int(x, 32);
    kir_let_var(s->kir, s->unit, code_binary(x, KB_MOD, thread_of(s), lanes));
    kir_let_var(s->kir, s->chunk, code_binary(x, KB_DIV, thread_of(s), lanes));
}

static void declare_shared(ScanKernel *s)
{
    int64_t all = scan_state_elements(s->k->p), real = kir_bytes(code_real(s->x));
    const KirExpr *maps = code_int(s->x, s->w->chunks * all * 64);
    const KirExpr *carries = code_int(s->x, all * (scan_in_pairs(s) ? 64 : 32));
    s->maps = kir_shared_array(s->kir, "maps", code_real(s->x), maps);
    s->carries = kir_shared_array(s->kir, "carries", code_real(s->x), carries);
    scan_declare_words(s);
    s->kir->shared = scan_shared(s->k->p, s->w) * real + s->staged;
}

static void build_step(ScanKernel *s)
{
    Fuse outside = s->x->printer.fuse;
    s->x->printer.fuse = s->k->pr->dir == BACKWARD ? FUSE_WRITTEN : outside;
    if (s->w->replays)
        scan_build_again(s);
    scan_build_map(s);
    scan_step(s);
    s->x->printer.fuse = outside;
    s->steps = walk_depth(s->registers);
    scan_decide_staging(s);
}

/* The walk is there twice: for calls that want all gradients, and for others. */
void scan_chunks(ScanKernel *s)
{
    Code *x = s->x;
    Kir *k = s->kir;
    name_places(s);
    build_step(s);
    if (s->w->replays) {
        const KirExpr *steps = code_int(x, s->steps), *up = code_int(x, s->steps - 1);
        const KirExpr *all = code_binary(x, KB_DIV, code_add(x, code_steps(x), up), steps);
        s->last = code_let(x, "last", code_sub(x, code_mul(x, all, steps), code_int(x, 1)));
    }
    s->elements = code_let(x, "elements", code_mul(x, code_batch(x), code_size(x, s->w->units)));
    name_units(s);
    if (!scan_in_pairs(s))
        let_units(s);
    declare_shared(s);
    const KirExpr *first = code_mul(x, kir_special(k, KP_BLOCK, 0), s->units);
    KirOpen blocks = code_for(x, "first", first, s->elements,
                              code_mul(x, kir_special(k, KP_BLOCKS, 0), s->units), &s->first);
    if (s->copies_wide)
        scan_declare_copies(s);
    declare_plain(s);
    if (scan_in_pairs(s))
        scan_let_pair(s, thread_of(s));
    kir_let_var(k, s->mine, code_binary(x, KB_LT, code_add(x, s->first, kir_var(k, s->unit)), s->elements));
    scan_let_place(s, kir_var(k, s->mine));
    if (s->staged && !s->copies_wide)
        scan_declare_copies(s);
    scan_states(s);
    KirOpen begins = kir_if(k, code_binary(x, KB_EQ, kir_var(k, s->chunk), code_int(x, 0)));
    each_state(s, begin_carry);
    kir_close(k, begins);
    kir_append(k, &s->once);
    scan_each_sum(s, scan_declare_sum);
    turns(s);
    scan_last_states(s);
    scan_each_sum(s, scan_store_sum);
    kir_barrier(k, KIR_BLOCK);
    kir_close(k, blocks);
    choose_units(s);
}
