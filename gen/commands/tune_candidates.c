/* tune_candidates.c: the schedules of an instance that are worth measuring. In: a spec and settings. Out: a list, the
 * planner's own choice first: every other schedule that takes the cell; and of a walk on chip its layouts in the order of
 * the planner's estimate (the k-th of forward together with the k-th of backward, since the two are timed apart), more or
 * fewer steps between checkpoints, and clusters of blocks; of chunks fewer steps; once those were timed, the best of each
 * walk together. Guaranteed: each was planned, by the hints that a user may give, and no two are the same code. */
#include <string.h>

#include "commands.h"
#include "generate.h"
#include "launch/emit_api.h"
#include "options.h"
#include "pipeline.h"
#include "plan/hints.h"
#include "plan/plan.h"
#include "tune.h"

/* FEW: layouts of a walk that the planner would not take: the first ones tell whether it was wrong. */
enum { MOST_INTERVAL = 16, MOST_CLUSTER = 8, FEW = 3, MOST_ROWS = 64, LEAST_ROWS = 16 };

static uint64_t hash_more(uint64_t hash, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

/* Of the kernels and launch plans; the schedule's name, which stands among them, is no difference. */
static uint64_t hash_code(Generated *g)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const Emitter *e = emitters; e->kind; e++) {
        Buf text = { .arena = g->c->arena };
        if (e->side == SIDE_NONE)
            continue;
        generate_text(g, e, &text);
        for (const char *p = text.data; *p;) {
            size_t len = strcspn(p, "\n");
            if (strncmp(p, "    .how = ", 11) != 0)
                hash = hash_more(hash, p, len);
            p += len + (p[len] == '\n');
        }
    }
    return hash;
}

static const char *words_of(Compiler *c, const Plan *p)
{
    const Group *walk[] = { plan_walk(p, FORWARD), plan_walk(p, BACKWARD) };
    const char *text = intern(c, p->schedule->name);
    for (int d = 0; d < 2; d++)
        if (walk[d])
            text = intern_f(c, "%s%s %d warps", text, d ? ", backward" : ": forward", walk[d]->walk->threads / 32);
    if (p->interval)
        text = intern_f(c, "%s, a checkpoint every %d steps", text, p->interval);
    const Plan *few = plan_of(p, CALLS_FEW), *many = plan_of(p, CALLS_MANY),
               *of_long = plan_of(p, CALLS_LONG);
    if (few->cluster > p->cluster)
        text = intern_f(c, "%s (%d in clusters of %d blocks where states are few)", text, few->interval, few->cluster);
    else if (few->interval != p->interval)
        text = intern_f(c, "%s (%d where blocks are few)", text, few->interval);
    if (many != p)
        text = intern_f(c, "%s, other layouts where states are many", text);
    if (of_long != p)
        text = intern_f(c, "%s; long calls by %s", text, of_long->schedule->name);
    if (p->request->hints.rows)
        text = intern_f(c, "%s, at most %d steps at a time", text, p->request->hints.rows);
    return p->cluster > 1 ? intern_f(c, "%s, clusters of %d blocks", text, p->cluster) : text;
}

/* What a plan says of the layouts that a walk might have. */
typedef struct Ranked {
    LayoutHint layout[2][64];
    int n[2], cluster;
    int interval, roomy;          /* roomy: of the plan for calls with few blocks; or the same */
    bool spread;                  /* that one has clusters, and the other has none */
} Ranked;

static void keep_ranks(const Plan *p, Ranked *out)
{
    const Plan *few = plan_of(p, CALLS_FEW);
    *out = (Ranked){ .interval = p->interval, .roomy = few->interval, .cluster = p->cluster, .spread = few->cluster > p->cluster };
    for (int d = 0; d < 2; d++) {
        const Group *g = plan_walk(p, d);
        for (int i = 0; g && i < g->walk->layouts.len && out->n[d] < 64; i++)
            out->layout[d][out->n[d]++] = g->walk->layouts.data[i].layout;
    }
}

/* Plans the cell so. What is new becomes a candidate; false where the schedule does not take it, or it is none. */
static bool try_schedule(Candidates *all, const char *schedule, Ranked *ranked)
{
    Compiler *c = compiler_new();
    Generated g;
    compiler_inherit(c, all->c);
    c->archs = intern(c, all->arch);
    c->scheduled = true;
    schedule_read(c, schedule);
    bool ok = generate_open(&g, c, all->spec, NULL, true);
    if (ok) {
        Candidate one = { .schedule = intern(all->c, schedule), .what = words_of(all->c, g.plan), .code = hash_code(&g),
                          .hints = c->hints, .tile = g.plan->schedule->on_chip };
        for (int i = 0; i < all->list.len; i++)
            ok &= all->list.data[i].code != one.code;
        if (ok)
            vec_push(all->c->arena, &all->list, one);
        if (ranked)
            keep_ranks(g.plan, ranked);
    }
    compiler_free(c);
    return ok;
}

static bool try_hints(Candidates *all, const WalkHints *h)
{
    const Schedule *const *s = schedules;
    while (!(*s)->takes_hints)
        s++;
    return try_schedule(all, intern_f(all->c, "%s:%s", (*s)->name, hints_text(all->c, h)), NULL);
}

/* Layouts that walks without a word more would have are left out by their code. */
static void try_layouts(Candidates *all, const Ranked *r)
{
    int64_t most = all->list.data[0].tile || all->layouts < FEW ? all->layouts : FEW;
    for (int i = 0; i < most && (i < r->n[0] || i < r->n[1]); i++) {
        WalkHints h = { 0 };
        for (int d = 0; d < 2; d++)
            if (i < r->n[d])
                h.layout[d] = r->layout[d][i];
        try_hints(all, &h);
    }
}

static bool is_next(int k, int interval)
{
    return k + 1 == interval || k == interval + 1;
}

static void try_walks(Candidates *all, const Ranked *r)
{
    try_layouts(all, r);
    /* The nearest, and powers of two from half to twice as many. The call's plan is one of two: each begins at its own. */
    for (int k = (r->interval + 1) / 2; k <= 2 * r->roomy && k <= MOST_INTERVAL; k++)
        if (is_next(k, r->interval) || is_next(k, r->roomy) || (k & (k - 1)) == 0)
            try_hints(all, &(WalkHints){ .interval = k });
    /* 0: every architecture of the list has clusters. */
    bool clusters = block_memory_below(all->arch, 0, true) == 0;
    for (int n = 1; clusters && n <= MOST_CLUSTER; n *= 2)
        if (n != r->cluster || r->spread)
            try_hints(all, &(WalkHints){ .cluster = n });
}

/* The cell's names; false with errors in all->c. */
static bool read_cell(Candidates *all)
{
    Compiler *c = all->c;
    Module *m = compile(c, all->spec, reference_passes);
    if (!m || c->errors)
        return false;
    all->name = m->name;
    all->instance = api_key(m);
    all->program = tune_program(m);
    all->sizes = arena_alloc(c->arena, sizeof *all->sizes * (size_t)(m->dims.len + 3));
    for (int i = 0; i < m->dims.len + 3; i++)
        all->sizes[i] = i == 0 ? "B" : i == 1 ? "T" : i < m->dims.len + 2 ? dim_text(m, i - 2) : "t0";
    all->n_sizes = m->dims.len + 3;
    return true;
}

/* Fewer rows at a time, for a schedule that takes as many as fit. One that has no such hint takes none. */
static void try_rows(Candidates *all, const char *schedule)
{
    for (int rows = MOST_ROWS / 2; rows >= LEAST_ROWS; rows /= 2)
        try_schedule(all,
                     intern_f(all->c, "%s:%s", schedule, hints_text(all->c, &(WalkHints){ .rows = rows })),
                     NULL);
}

bool candidates_find(Candidates *all)
{
    Ranked walks = { 0 }, ranked;
    if (!read_cell(all))
        return false;
    if (!try_schedule(all, "auto", &walks)) {
        /* Once more, for what there is to say. */
        Generated g;
        all->c->scheduled = true;
        generate_open(&g, all->c, all->spec, NULL, true);
        return false;
    }
    for (const Schedule *const *s = schedules; *s; s++) {
        ranked = (Ranked){ 0 };
        try_schedule(all, (*s)->name, &ranked);
        if ((*s)->takes_hints && ranked.interval)
            walks = ranked;
        if ((*s)->takes_hints)
            try_rows(all, (*s)->name);
    }
    if (walks.interval)
        try_walks(all, &walks);
    return true;
}

/* The fastest walk that differs from the planner's in what the hints say: layouts, or the interval. */
static const Candidate *best(const Candidates *all, int what)
{
    const Candidate *found = NULL;
    for (int i = 0; i < all->list.len; i++) {
        const Candidate *one = &all->list.data[i];
        double ms = what == 0 ? one->ms[0] : what == 1 ? one->ms[1] - one->ms[0] : one->ms[1];
        double least = !found ? 0 : what == 0 ? found->ms[0] : what == 1 ? found->ms[1] - found->ms[0] : found->ms[1];
        bool layout = !one->hints.interval && !one->hints.cluster, interval = !one->hints.layout[0].row_lanes &&
                                                                             !one->hints.cluster;
        if (one->tile && one->state == TUNE_TIMED && (what < 2 ? layout : interval) && (!found || ms < least))
            found = one;
    }
    return found;
}

bool candidates_combine(Candidates *all)
{
    WalkHints h = { 0 };
    const Candidate *of[] = { best(all, 0), best(all, 1), best(all, 2) };
    for (int k = 0; k < 2; k++)
        if (of[k])
            h.layout[k] = of[k]->hints.layout[k];
    if (of[2])
        h.interval = of[2]->hints.interval;
    return *hints_text(all->c, &h) && try_hints(all, &h);
}
