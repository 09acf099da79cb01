/* tile_layout.c: how a state lies over threads, and how many steps lie between checkpoints. In come the
 * step's counts (levels, reductions, vectors kept) from a dry run of the printer; out go the layout with the
 * least estimated cycles per step among those that fit in registers, and the interval from the shared memory
 * that a segment's states take. Nothing here depends on batch, time or the number of multiprocessors. */
#include <inttypes.h>

#include "plan/hints.h"
#include "tile.h"

enum { OVERHEAD = 48, MOST_WARPS = 32 };

int tile_threads(const TileLayout *l)
{
    return 32 * l->wr * l->wc;
}

int tile_row_warps(const TileLayout *l)
{
    return l->cr * l->wr;
}

int tile_block_rows(const TileLayout *l)
{
    return l->wr * l->lr * l->rr;
}

/* By its own rows where there are as many. */
int64_t tile_share(const Tile *t, const TileLayout *l, int64_t n)
{
    return n == t->rows ? tile_block_rows(l) : (n + l->cr - 1) / l->cr;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int64_t tile_elements(const Tile *t, const StateInfo *s)
{
    int64_t n = 1;
    for (int k = 0; k < s->rank; k++)
        n *= s->role[k] == ROLE_ROW ? t->lay.rr : t->lay.rc;
    return n;
}

static int matrices(const Tile *t)
{
    int n = 0;
    for (int k = 0; k < t->states.len; k++)
        n += t->states.data[k].rank == 2;
    return n;
}

/* Registers of the state arrays alone, and with a step's vectors. */
static int array_registers(const Tile *t, const Step *s, const TileLayout *l)
{
    int arrays = s->kind == STEP_ADJOINT ? 3 * matrices(t) + matrices(t) / 2
                 : matrices(t) + (matrices(t) + 1) / 2;
    return OVERHEAD + t->real_bytes / 4 * arrays * l->rr * l->rc;
}

static bool pads_rows(const Tile *t, const TileLayout *l)
{
    return (int64_t)tile_row_warps(l) * l->lr * l->rr != t->rows;
}

static bool pads_cols(const Tile *t, const TileLayout *l)
{
    return (int64_t)l->wc * l->lc * l->rc != t->cols;
}

/* The places of the edge's copies are kept as well. */
static int step_registers(const Tile *t, const Step *s, const TileLayout *l)
{
    int rows = s->rows_kept, cols = s->cols_kept;
    for (int i = 0; i < s->reds.len; i++) {
        rows += s->reds.data[i].vary_row && !s->reds.data[i].over_row;
        cols += s->reds.data[i].vary_col && !s->reds.data[i].over_col;
    }
    int edges = (pads_rows(t, l) ? 3 * l->rr : 0) + (pads_cols(t, l) ? 3 * l->rc : 0);
    /* About half of the step's vectors are alive at once. */
    return array_registers(t, s, l) + edges + t->real_bytes / 4 * (rows * l->rr + cols * l->rc + s->ones_kept) / 2;
}

static int most_registers(const Tile *t, const TileLayout *l,
                          int (*of)(const Tile *, const Step *, const TileLayout *))
{
    const Step *steps[] = { t->forward, t->adjoint };
    int most = 0;
    for (int i = 0; i < 2; i++)
        if (steps[i]) {
            int n = of(t, steps[i], l);
            most = n > most ? n : most;
        }
    return most;
}

int tile_registers(const Tile *t, const TileLayout *l)
{
    return most_registers(t, l, step_registers);
}

static int log2_of(int n)
{
    int k = 0;
    while ((1 << k) < n)
        k++;
    return k;
}

/* What the estimate is made of, in cycles of a step: fitted to layouts of E79 and E88 that were measured on an H200 in bf16
 * (bench/notes, walks on one SM). A slot is what an instruction of a warp takes of its scheduler. */
static const struct {
    double element, padded;       /* slots: per element, of what a step computes of it; the share more where copies beyond the edge are left out */
    double vector;                /* per value of a vector that is read */
    double shuffle, shared_out;   /* per shuffle, and per sum that lanes share out */
    double exchange;              /* per value of a sum that warps add up */
    double step;                  /* addresses, the loop */
    double chunk;                 /* per element of a matrix state and chunk: its checkpoint */
    double spill, spill_free;     /* per register too many, and how many are none: vectors can be read again */
    double first, warp;           /* cycles: of a slot, and for each warp that the scheduler has */
    double level;                 /* a shuffle that the next one waits for */
    double barrier, barrier_warp; /* the block's barrier, and for each of its warps */
    double cluster;               /* how much longer slots take where blocks wait for one another, */
    double cluster_exchange;      /* and what an exchange takes there */
    double packet;                /* up to 32 bytes that lie together, on their way to another block */
    double store, load;           /* a warp's piece of a checkpoint's row */
    double bound;                 /* backward: how much more where forward has to have the same layout */
    double joined;                /* slots that a step has less where two are joined */
} weight = {
    .element = 0.5, .padded = 0.3, .vector = 1.8, .shuffle = 3.5, .shared_out = 3.2, .exchange = 1.8, .step = 32, .chunk = 40,
    .spill = 10, .spill_free = 40, .first = 0.65, .warp = 0.77, .level = 13, .barrier = 50, .barrier_warp = 4,
    .cluster = 1.5, .cluster_exchange = 0.3, .packet = 1.2, .store = 2.2, .load = 0.5, .bound = 1.02, .joined = 20,
};

/* A step's slots of one warp, cycles that it waits, and barriers of the block. */
typedef struct Cost {
    double slots, wait;
    int barriers;
} Cost;

/* What reading n neighbours from shared memory costs, in elements of a vector: an odd number is read one by one, each for `alone`. */
static double in_vectors(int n, double alone)
{
    return n > 1 && n % 2 ? alone * n : n;
}

/* Do the step's warps wait for each other's parts of this sum? */
static bool exchanged(const Tile *t, const Step *s, int red, int warps)
{
    return (warps > 1 || s->reds.data[red].crossed) && (!t->defer || (s->read_now && s->read_now[red]));
}

static void add_reduction(const Tile *t, const Step *s, const TileLayout *l, int red, Cost *c)
{
    const Red *r = &s->reds.data[red];
    int n = r->vary_row && !r->over_row ? l->rr : r->vary_col && !r->over_col ? l->rc : 1;
    int lanes = (r->over_row ? l->lr : 1) * (r->over_col ? l->lc : 1);
    int warps = (r->over_row ? tile_row_warps(l) : 1) * (r->over_col ? l->wc : 1);
    bool share = (warps > 1 || r->loose) && n > 1 && lanes > 1 && (n % lanes == 0 || lanes % n == 0);
    int shuffles = share ? n - 1 + (n < lanes ? log2_of(lanes / n) : 0) : n * log2_of(lanes);
    c->slots += weight.shuffle * shuffles + (share ? weight.shared_out * n : 0);
    if (exchanged(t, s, red, warps))
        c->slots += (l->cr > 1 ? weight.cluster_exchange : weight.exchange) * (8 + warps * in_vectors(n, 2));
    /* To every block of the cluster, or to the one that stores it; what lanes have shared out lies together. */
    if (l->cr > 1 && r->over_row)
        c->wait += weight.packet * l->wr * l->wc * (r->inside ? l->cr : 1) * l->lc * n / (share ? 8.0 : 1.0);
    if (red == 0 || s->reds.data[red - 1].level != r->level)
        c->wait += weight.level * log2_of(lanes);
}

static void add_step(const Tile *t, const Step *s, const TileLayout *l, Cost *c)
{
    double elements = weight.element * l->rr * l->rc * (s->elements + s->reds.len);
    int levels = 0;
    bool waits[64] = { false };
    c->slots += weight.step + elements * (pads_rows(t, l) || pads_cols(t, l) ? 1 + weight.padded : 1);
    c->slots += weight.vector * (s->rows_kept * in_vectors(l->rr, 1.2) + s->cols_kept * in_vectors(l->rc, 1.2) + s->ones_kept);
    for (int i = 0; i < s->reds.len; i++) {
        const Red *r = &s->reds.data[i];
        int warps = (r->over_row ? tile_row_warps(l) : 1) * (r->over_col ? l->wc : 1);
        add_reduction(t, s, l, i, c);
        if (r->level < 64 && exchanged(t, s, i, warps) && !waits[r->level]) {
            waits[r->level] = true;
            levels++;
        }
    }
    c->barriers += levels;
    if (l->cr == 1)
        c->wait += levels * (weight.barrier + weight.barrier_warp * l->wr * l->wc);
}

/* Elements of a matrix state that a thread may move at once between its row in memory and the thread's own columns: 16 bytes,
 * or 8, where those are whole and memory is aligned (arguments and buffers are, and all rows are as long). */
static int run_width(const Tile *t, const TileLayout *l)
{
    int wide = pads_cols(t, l) ? 1 : 16 / t->real_bytes;
    while (l->rc % wide)
        wide /= 2;
    return wide;
}

int tile_run_width(const Tile *t)
{
    return run_width(t, &t->lay);
}

/* Do the threads move their elements of a row at once, or by 16 bytes? Then checkpoints lie by rows (tile_choose_order). */
static bool moves_rows(const Tile *t, const TileLayout *l)
{
    int width = run_width(t, l);
    return width == l->rc || width * t->real_bytes == 16;
}

/* Cycles for a checkpoint's rows, of which each warp has pieces. */
static double row_requests(const Tile *t, const TileLayout *l)
{
    double pieces = (double)l->rc / run_width(t, l);
    double each = t->w->dir == FORWARD ? weight.store : moves_rows(t, l) ? weight.load : 0;
    return each * matrices(t) * tile_block_rows(l) * l->wc * pieces / t->K;
}

/* Four schedulers share out the warps of the blocks that are on an SM: a step takes as long as that with most of them. Two blocks
 * hide what each waits for; where a step back overlaps with a step of the replay ahead, or a call has so many blocks that as many are
 * there as fit, the slots of all these are the bound. Then a scheduler's only warp, which nothing hides, gains nothing by being the only
 * one (measured on an H200: 16 x 16 in one warp took forward 4 to 18 percent more than in two, E88 and the delta rule). */
static double cycles(const Tile *t, const TileLayout *l, int registers_left)
{
    const Step *steps[] = { t->forward, t->replay, t->adjoint }, *last = t->adjoint ? t->adjoint : t->forward;
    double spilled = -registers_left - weight.spill_free;
    Cost c = { weight.chunk * l->rr * l->rc * matrices(t) / t->K + (spilled > 0 ? weight.spill * spilled : 0), 0, 0 };
    for (int i = 0; i < 3; i++)
        if (steps[i])
            add_step(t, steps[i], l, &c);
    bool crowded = t->w->request->calls == CALLS_MANY && !tile_overlaps(t);
    int fit = tile_blocks_together(t), blocks = fit < 2 || tile_overlaps(t) || crowded ? fit : 2;
    int warps = blocks * l->wr * l->wc, per_scheduler = (warps + 3) / 4;
    if (crowded && per_scheduler < 2)
        per_scheduler = 2;
    double slot = (weight.first + weight.warp * per_scheduler) * (l->cr > 1 ? weight.cluster : 1);
    if (!tile_overlaps(t) && tile_joins(last, l, c.barriers, registers_left)) {
        c.slots -= weight.joined;   /* addresses and the loop are there once for two steps, and one fills what the other waits */
        c.wait /= 2;
    }
    double sum = c.slots * slot + c.wait + row_requests(t, l);
    return t->w->dir == BACKWARD && matrices(t) && !moves_rows(t, l) ? weight.bound * sum : sum;
}

static int64_t state_bytes(const Tile *t);

/* What the blocks of a cluster write to each other, and the warps of each among themselves. */
static int64_t exchange_bytes(const Tile *t, const TileLayout *l)
{
    const Step *steps[] = { t->forward, t->adjoint };
    int64_t most = 0;
    for (int i = 0; i < 2; i++) {
        int64_t n = 0;
        for (int k = 0; steps[i] && k < steps[i]->reds.len; k++) {
            const Red *r = &steps[i]->reds.data[k];
            int warps = (r->over_row ? tile_row_warps(l) : 1) * (r->over_col ? l->wc : 1);
            int64_t pitch = r->vary_row && !r->over_row   ? (int64_t)(r->far ? l->cr : 1) * tile_block_rows(l)
                            : r->vary_col && !r->over_col ? (!r->inside && !r->whole ? tile_share(t, l, t->cols)
                                                                                   : (int64_t)l->wc * l->lc * l->rc)
                                                          : 1;
            n += r->kept || r->crossed || warps > 1 ? round_up(warps * round_up(pitch, 4), 4) : 0;
        }
        most = n > most ? n : most;
    }
    return (t->defer ? t->F : 2) * most * t->real_bytes;
}

/* What is kept of each state for a step, padded as the layout has it. */
static int64_t kept_bytes(const Tile *t)
{
    int64_t n = 0;
    for (int k = 0; k < t->states.len; k++)
        n += tile_elements(t, &t->states.data[k]) * tile_threads(&t->lay) * (t->states.data[k].narrow ? 2 : t->real_bytes);
    return n;
}

/* Where the next segment's checkpoint arrives, of states that have no place for it among those kept. */
int64_t tile_start_bytes(const Tile *t)
{
    int64_t n = 0;
    for (int k = 0; k < t->states.len; k++)
        if (t->undoes || (t->states.data[k].narrow && !t->ahead))
            n += tile_elements(t, &t->states.data[k]) * tile_threads(&t->lay) * t->real_bytes;
    return n;
}

/* Shared memory of backward in this layout: the states that it keeps, and the vectors. */
static int64_t smem_bytes(Tile *t, const TileLayout *l)
{
    TileLayout before = t->lay;
    t->lay = *l;
    int64_t n = t->adjoint ? tile_start_bytes(t) + (t->undoes ? 0 : kept_bytes(t) * t->K) : 0;
    t->lay = before;
    return n + tile_fetch_bytes(t, t->F) + exchange_bytes(t, l);
}

static LayoutHint as_hint(const TileLayout *l)
{
    return (LayoutHint){ .row_lanes = l->lr, .col_lanes = l->lc, .row_warps = l->wr, .col_warps = l->wc };
}

/* A thread's elements follow from how many share a side. */
static void set_elements(const Tile *t, TileLayout *l)
{
    int64_t lane_rows = tile_row_warps(l) * l->lr, lane_cols = l->wc * l->lc;
    l->rr = (int)((t->rows + lane_rows - 1) / lane_rows);
    l->rc = (int)((t->cols + lane_cols - 1) / lane_cols);
}

/* Of a thread, where as many blocks are on an SM as the kernel asks for: each scheduler has a quarter of the registers, for as
 * many warps as fall to it, and gives them out by 8. Backward takes what memory there is, for more steps between checkpoints. */
static int registers(Tile *t, const TileLayout *l)
{
    int64_t smem = smem_bytes(t, l), room = tile_block_room(t);
    if (t->adjoint && !t->undoes && smem < room)
        smem = room;
    int warps = tile_resident(t, tile_threads(l), smem) * l->wr * l->wc, per_scheduler = (warps + 3) / 4;
    int most = TARGET_REGISTERS / 128 / per_scheduler / 8 * 8;
    return most < TARGET_THREAD_REGISTERS ? most : TARGET_THREAD_REGISTERS;
}

/* Keeps it among the walk's layouts, where the states fit. */
static void consider(Tile *t, TileLayout l)
{
    set_elements(t, &l);
    int threads = tile_threads(&l), limit = TARGET_REGISTERS / threads;
    limit = limit > TARGET_THREAD_REGISTERS ? TARGET_THREAD_REGISTERS : limit;
    if (most_registers(t, &l, array_registers) > limit || smem_bytes(t, &l) > TARGET_BLOCK_BYTES)
        return;
    double cost = cycles(t, &l, registers(t, &l) - tile_registers(t, &l));
    WalkLayout one = { as_hint(&l), cost };
    vec_push(t->arena, &t->w->layouts, one);
    /* In order; of equal ones the first that was thought of. */
    for (int i = t->w->layouts.len - 1; i > 0 && t->w->layouts.data[i - 1].cost > cost; i--) {
        t->w->layouts.data[i] = t->w->layouts.data[i - 1];
        t->w->layouts.data[i - 1] = one;
    }
}

static bool same_layout(const LayoutHint *a, const LayoutHint *b)
{
    return a->row_lanes == b->row_lanes && a->col_lanes == b->col_lanes && a->row_warps == b->row_warps &&
           a->col_warps == b->col_warps;
}

static void take(Tile *t, const LayoutHint *h)
{
    t->lay = (TileLayout){ .wr = h->row_warps, .lr = h->row_lanes, .wc = h->col_warps, .lc = h->col_lanes, .cr = t->lay.cr };
    set_elements(t, &t->lay);
}

/* The one in which checkpoints lie, or the cheapest that was not forbidden; false: there is none. */
static bool take_layout(Tile *t)
{
    if (t->w->by_thread) {
        take(t, &t->w->layout);
        return true;
    }
    for (int i = 0; i < t->w->layouts.len; i++)
        if (hints_allow(&t->w->request->hints, t->w->dir, &t->w->layouts.data[i].layout)) {
            take(t, &t->w->layouts.data[i].layout);
            return true;
        }
    return false;
}

/* Does another kernel read a matrix state before the first step, in the first checkpoint? Forward keeps such states. */
static bool read_behind(const Tile *t)
{
    const Storage *kept = t->w->of_forward;
    for (int k = 0; kept && k < t->states.len; k++)
        if (t->states.data[k].rank == 2 &&
            kept[t->m->roots.data[t->states.data[k].tensor].next].home != HOME_NONE)
            return true;
    return false;
}

/* Backward says how checkpoints lie. Row by row, where each thread moves its elements of a row by 16 bytes or all at once, as its
 * neighbours do; where it would move fewer at once, which lie apart from the neighbours', thread by thread, for which forward must
 * have the same layout. */
void tile_choose_order(Tile *t)
{
    Walk *w = t->w;
    LayoutHint own = as_hint(&t->lay);
    const LayoutHint *forward = &t->w->request->hints.layout[FORWARD];
    if (!matrices(t) || moves_rows(t, &t->lay) || read_behind(t) ||
        (forward->row_lanes && !same_layout(forward, &own)))
        return;
    w->layout = own;
    w->by_thread = (int64_t)t->lay.rr * t->lay.rc * tile_threads(&t->lay) * t->lay.cr;
}

const char *tile_bound_dims(const Tile *t)
{
    const char *text = "";
    for (int i = 0; i < t->m->bound.len; i++)
        text = intern_f(t->m->c, "%s%s%s", text, i ? " or " : "", t->m->bound.data[i].name);
    return text;
}

/* May so many warps share a side? Powers of two, and what divides it: 5 warps of 8 columns for 40, where 4 would have 10 and 8 5. */
static bool may_share(int64_t side, int warps)
{
    return (warps & (warps - 1)) == 0 || side % warps == 0;
}

void tile_choose_layout(Tile *t)
{
    t->w->layouts.len = 0;
    for (int wr = 1; wr <= MOST_WARPS; wr++)
        for (int wc = 1; wr * wc <= MOST_WARPS; wc++)
            for (int lr = 1; lr <= 32 && may_share(t->rows, wr * t->lay.cr) && may_share(t->cols, wc); lr *= 2) {
                int cr = t->lay.cr;
                if ((wr > 1 && cr * wr * lr > 2 * t->rows) || (wc > 1 && wc * (32 / lr) > 2 * t->cols))
                    continue;
                consider(t, (TileLayout){ .wr = wr, .wc = wc, .lr = lr, .lc = 32 / lr, .cr = cr });
            }
    t->no_room = !t->w->layouts.len;
    if (t->no_room)
        tile_refuse(t, "its states do not fit on %s%s: %lld bytes before and after a step, with their "
                       "adjoints %lld; lower --dim %s",
                    t->lay.cr > 1 ? tile_text(t, "a cluster of %d SMs", t->lay.cr) : "an SM",
                    t->w->request->hints.interval ? tile_text(t, " with interval=%d", t->K) : "",
                    (long long)(2 * state_bytes(t) * t->lay.cr), (long long)(3 * state_bytes(t) * t->lay.cr),
                    tile_bound_dims(t));
    else if (!take_layout(t))
        tile_refuse(t,
                    "%s does not hold its %" PRId64 " x %" PRId64
                    " state%s; `cellc tune --list` has the layouts that do",
                    hints_text(t->m->c, &t->w->request->hints), t->rows, t->cols,
                    t->w->dir == FORWARD ? "" : ", backward");
}

/* About as a layout pads them. */
static int64_t padded(int64_t n)
{
    return n > 16 ? round_up(n, 16) : round_up(n, 4);
}

static int64_t state_bytes(const Tile *t)
{
    int64_t n = 0, rows = padded((t->rows + t->lay.cr - 1) / t->lay.cr), cols = padded(t->cols);
    for (int k = 0; k < t->states.len; k++) {
        const StateInfo *s = &t->states.data[k];
        n += s->rank == 2 ? rows * cols : s->rank == 1 ? 32 * (s->role[0] == ROLE_ROW ? rows : cols) : 1024;
    }
    return round_up(n * t->real_bytes, 16);
}

enum { MOST_STEPS = 16 };

/* Blocks that are to fit on an SM: small states leave room for several, where a call has so many. */
int tile_blocks_together(const Tile *t)
{
    int64_t bytes = state_bytes(t);
    return t->w->request->calls == CALLS_FEW ? 1 : bytes <= 4096 ? 4 : bytes <= 16384 ? 2 : 1;
}

/* Shared memory of one of them. */
int64_t tile_block_room(const Tile *t)
{
    return TARGET_SM_BYTES / tile_blocks_together(t) - TARGET_BLOCK_TAKES;
}

static int within(const Tile *t, int64_t K)
{
    K = K < 1 ? 1 : K > MOST_STEPS ? MOST_STEPS : K;
    if (t->w->request->hints.interval)
        K = t->w->request->hints.interval;
    if (t->w->trial->interval && K > t->w->trial->interval)
        K = t->w->trial->interval;
    if (t->w->trial->fewer && K > t->w->trial->fewer)
        K = t->w->trial->fewer;        /* the planner has seen that so many do not fit */
    return (int)K;
}

/* However much room there is. */
int tile_most_interval(const Tile *t)
{
    return within(t, MOST_STEPS);
}

/* Of the states alone; backward takes more steps where it finds that there is room, and forward then takes as many. */
void tile_choose_interval(Tile *t)
{
    int64_t room = 128 * 1024 / tile_blocks_together(t);
    if (t->lay.cr > 1)            /* one block has the SM; vectors of a step, which it has whole, take more than half */
        room = 160 * 1024;
    t->K = t->w->interval ? t->w->interval : within(t, room / state_bytes(t));
    t->w->together = tile_blocks_together(t);
    t->w->shares_sm = t->w->together > 1 && (t->K < tile_most_interval(t) || t->w->request->hints.interval);
}
