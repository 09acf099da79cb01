/* scan_staged.c: what a turn of chunks reads through shared memory. In come the reads of a step, as words;
 * out go the copies of the next turn's, which are under way while a turn is walked, and what takes them
 * from there. */
#include "base/mutate.h"
#include "ir/ops.h"
#include "plan/reads.h"
#include "scan_kernel.h"

/* More would leave a block alone on an SM of most devices. */
enum { STAGED_BYTES = 64 << 10 };

static int64_t saved_bytes(const ScanKernel *s)
{
    int64_t all = s->w->replays ? scan_state_elements(s->k->p) : 0;
    return all * (scan_in_pairs(s) ? 2 : 1) * kir_bytes(code_real(s->x));
}

/* What a turn reads is asked for while the turn before is walked, where it is words and there is room. The
 * threads of a warp share their copies where the words of four lie side by side. */
void scan_decide_staging(ScanKernel *s)
{
    int64_t threads = scan_threads(s->w), staged = threads * saved_bytes(s);
    bool words = s->reads.len > 0;
    s->copies_wide = s->steps % 4 == 0;
    for (int i = 0; i < s->staged_reads.len; i++) {
        const StagedRead *r = &s->staged_reads.data[i];
        words &= r->word;
        s->copies_wide &= r->wide;
        staged += scan_loops_elements(r->around, r->loops) * kir_bytes(r->type) * threads * s->steps;
    }
    bool room = staged + scan_shared(s->k->p, s->w) * kir_bytes(code_real(s->x)) <= STAGED_BYTES;
    s->staged = words && room ? staged : 0;
    s->copies_wide &= s->staged > 0;
}

/* A thread's own begin at its number. */
static const KirExpr *declare_own(ScanKernel *s, const char *name, KirScalar of, int64_t count)
{
    const KirExpr *all = kir_shared_array(s->kir, k_text(s->k, "all_%s", name), of, code_int(s->x, count));
    return kir_let_as(s->kir, name, all->type, code_add(s->x, all, kir_special(s->kir, KP_THREAD, 0)));
}

void scan_declare_words(ScanKernel *s)
{
    Module *m = s->k->p->m;
    int threads = scan_threads(s->w);
    if (!s->staged)
        return;
    for (int i = 0; i < s->staged_reads.len; i++) {
        StagedRead *r = &s->staged_reads.data[i];
        r->words = declare_own(s, k_text(s->k, "words_%d", r->number), r->type,
                               s->steps * scan_loops_elements(r->around, r->loops) * threads);
    }
    s->saved = arena_alloc(s->kir->arena, sizeof *s->saved * (size_t)m->tensors.len);
    for (TensorId state = 0; s->w->replays && state < m->tensors.len; state++)
        if (scan_is_state(s, state))
            s->saved[state] =
                declare_own(s, k_text(s->k, "saved_%s", m->tensors.data[state].name), code_real(s->x),
                            threads * (scan_in_pairs(s) ? 2 : 1) * scan_elements_of_state(s, state));
}

/* Where the thread's word of a step is among those of a read. */
static const KirExpr *word_place(ScanKernel *s, const StagedRead *r)
{
    Code *x = s->x;
    const KirExpr *place = scan_loops_place(s, r->around, r->loops);
    const KirExpr *at =
        code_mul(x, kir_var(s->kir, s->u), code_int(x, scan_loops_elements(r->around, r->loops)));
    return code_mul(x, place ? code_add(x, at, place) : at, code_int(x, scan_threads(s->w)));
}

/* Where lanes share their copies, eight of them have every fourth step. */
static KirOpen open_copies(ScanKernel *s, bool full)
{
    Code *x = s->x;
    Kir *k = s->kir;
    const KirExpr *four;
    if (!s->copies_wide)
        return scan_open_steps(s, false, full);
    KirOpen o =
        kir_for(k, "four", KT_I32, code_int(x, 0), KB_LT, code_int(x, s->steps), code_int(x, 4), &four);
    o.statement->n = -1;
    const KirExpr *own = code_binary(x, KB_DIV, kir_special(k, KP_LANE, 0), code_int(x, 8));
    kir_let_var(k, s->u, code_add(x, four, own));
    scan_let_step(s, scan_step_at(s, kir_var(k, s->u), full));
    return o;
}

static void copy_reads(ScanKernel *s, bool full)
{
    Code *x = s->x;
    if (s->w->replays) {
        scan_let_before(s, full);
        scan_kept(s, COPY);
    }
    KirOpen steps = open_copies(s, full);
    for (int i = 0; i < s->staged_reads.len; i++) {
        const StagedRead *r = &s->staged_reads.data[i];
        scan_open_loops(s, r->around, r->loops);
        const KirExpr *to = code_add(x, r->words, word_place(s, r));
        to = s->copies_wide ? code_add(x, to, kir_var(s->kir, s->aside)) : to;
        const KirExpr *args[] = { to, r->from, r->offset };
        kir_do(s->kir, kir_call(s->kir, s->copies_wide ? "cell_copy_four" : "cell_copy_word", NULL, 0, args,
                                r->offset ? 3 : 2));
        scan_close_loops(s, r->loops);
    }
    kir_close(s->kir, steps);
}

/* A function for the turn that begins there; and the first turn's. */
void scan_declare_copies(ScanKernel *s)
{
    Code *x = s->x;
    Kir *k = s->kir;
    const KirExpr *begin = kir_var(k, s->begin), *none = code_int(x, 0);
    KirOpen copies = kir_open_function(k, "copy_turn", &s->copy_turn);
    kir_add(k, (KirStmt){ .kind = KI_PARAMETER, .var = s->begin });
    if (s->copies_wide) {
        const KirExpr *place =
            kir_let(k, "place", KT_I32, kir_call(k, "cell_place_in_fours", NULL, 0, NULL, 0));
        kir_let_var(k, s->aside, code_sub(x, place, kir_special(k, KP_THREAD, 0)));
        scan_let_pair(s, place);
        scan_let_place(s, code_binary(x, KB_LT, code_add(x, s->first, kir_var(k, s->unit)), s->elements));
    }
    const KirExpr *chunk = code_mul(x, kir_var(k, s->chunk), code_int(x, s->steps));
    kir_let_var(k, s->from, code_add(x, begin, chunk));
    KirOpen whole = kir_if(k, scan_whole_turn(s));
    copy_reads(s, true);
    kir_else(k, &whole);
    KirOpen some = kir_if(k, code_binary(x, KB_LT, begin, code_steps(x)));
    copy_reads(s, false);
    kir_close(k, some);
    kir_close(k, whole);
    kir_statement(k, KI_COMMIT);
    kir_close(k, copies);
    kir_apply(k, s->copy_turn, &none, 1);
}

/* This turn's reads have come; the next one's go to the same places. */
void scan_take_words(ScanKernel *s)
{
    Code *x = s->x;
    Kir *k = s->kir;
    scan_declare_reads(s, false);
    if (s->w->replays)
        scan_declare_kept(s);
    if (!mutate("early-read"))
        kir_statement(k, KI_WAIT);
    if (s->copies_wide && !mutate("lone-wait"))
        kir_barrier(k, KIR_WARP);
    if (s->w->replays)
        scan_kept(s, TAKE);
    scan_open_loop(s, s->u, code_int(x, s->steps));
    for (int i = 0; i < s->staged_reads.len; i++) {
        const StagedRead *r = &s->staged_reads.data[i];
        scan_open_loops(s, r->around, r->loops);
        const KirExpr *to =
            scan_of_step(s, &s->reads.data[r->number], scan_loops_place(s, r->around, r->loops));
        kir_assign(k, to, kir_element(k, r->words, word_place(s, r)));
        scan_close_loops(s, r->loops);
    }
    scan_close_loop(s);
    if (s->copies_wide && !mutate("early-copy"))
        kir_barrier(k, KIR_WARP);
    const KirExpr *next = code_add(x, kir_var(k, s->begin), scan_turn_steps(s));
    kir_apply(k, s->copy_turn, &next, 1);
}
