/* plan_verify.c: what holds behind each pass of the planner. In: a plan, and the pass that it comes from. Out:
 * nothing, or the first thing that is wrong. Guaranteed: of a plan that is right, roots are only written; every
 * array is computed by one kernel or product, behind all that it reads; what others read lies in memory, in a
 * buffer that no other array has; what backward reads of forward is in the reserve; and kernels have names and
 * threads. */
#include <stdlib.h>
#include <string.h>

#include "ir/arguments.h"
#include "ir/marks.h"
#include "plan_pass.h"

typedef struct PlanCheck {
    const Plan *p;
    const Program *pr; /* of the direction that is looked at */
    const Uses *uses; /* per node of it: what is read */
    const char *wrong;
} PlanCheck;

#define REQUIRE(v, cond, ...)                                                                                \
    do {                                                                                                     \
        if (!(cond) && !(v)->wrong)                                                                          \
            (v)->wrong = intern_f((v)->p->m->c, __VA_ARGS__);                                                \
    } while (0)

/* Is the pass that one or behind it? */
static bool is_behind(const char *pass, const char *that)
{
    const PlanPass *row = plan_passes;
    while (row->name && strcmp(row->name, that) != 0)
        row++;
    while (row->name && strcmp(row->name, pass) != 0)
        row++;
    return row->name != NULL;
}

static bool is_needed(const PlanCheck *v, NodeId id)
{
    return v->pr->phase[id] != PHASE_NONE;
}

/* Zeros, which the caller frees: a check leaves nothing in the module's memory, as it runs behind each pass. */
static void *room(const PlanCheck *v, size_t bytes)
{
    void *place = calloc(bytes + 1, 1);
    if (!place)
        bug(v->p->m->c, "plan", "out of memory for a check");
    return place;
}

/* ---- roots */

static void mark_read(const Plan *p, NodeId id, Marks *seen, bool *read)
{
    if (id < 0 || !marks_first(seen, id))
        return;
    for (int i = 0; i < at(p, id)->nargs; i++) {
        read[at(p, id)->args[i]] = true;
        mark_read(p, at(p, id)->args[i], seen, read);
    }
}

/* Roots are written, not read, but for pointwise values that are carried. */
static void check_roots(PlanCheck *v)
{
    const Module *m = v->p->m;
    Marks *seen = marks_begin(m);
    bool *read = room(v, (size_t)m->nodes.len);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            mark_read(v->p, m->roots.data[t].of[k], seen, read);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_LAST; k++) {
            const NodeId root = m->roots.data[t].of[k];
            const bool carried = root >= 0 && (k == ROOT_NEXT || k == ROOT_INIT) && !plan_reduces(v->p, root);
            REQUIRE(v, root < 0 || carried || !read[root], "the %s of %s, %%%d, is read", root_table[k].what,
                    m->tensors.data[t].name, root);
        }
    marks_end(seen);
    free(read);
}

/* ---- operands */

static void check_marks(PlanCheck *v)
{
    const Plan *p = v->p;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        bool array = at(p, id)->kind == N_ARRAY;
        REQUIRE(v, array || (!p->is_alias[id] && !p->rounded[id]), "%%%d is no array", id);
        REQUIRE(v, !p->is_alias[id] || alias_candidate(p->m, id), "%%%d is a name of nothing", id);
    }
}

/* ---- phases */

/* Walks follow one another: a place in front of the first, one for each, one behind it. */
static int place_of(const PlanCheck *v, Phase phase)
{
    switch (phase) {
    case PHASE_NONE:
    case PHASE_PARAM: return -1;
    case PHASE_BEFORE: return 0;
    case PHASE_DURING: return 1 + 2 * plan_walk_place(v->p, v->pr->dir, -1);
    case PHASE_AFTER: return 2 * plan_walk_count(v->p);
    default: return 2 + 2 * ((int)phase - (int)PHASE_BETWEEN);
    }
}

static void check_phase(PlanCheck *v, NodeId id, const Read *r)
{
    const Phase phase = v->pr->phase[id], read = v->pr->phase[r->id];
    if (read == PHASE_NONE) {
        REQUIRE(v, v->pr->dir == BACKWARD && v->p->program[FORWARD].phase[r->id] != PHASE_NONE,
                "%%%d reads %%%d, which is not computed", id, r->id);
        return;
    }
    REQUIRE(v, place_of(v, read) <= place_of(v, phase), "%%%d reads %%%d, which has a later phase", id,
            r->id);
}

static void check_phases(PlanCheck *v)
{
    for (NodeId id = 0; id < v->p->n_nodes; id++)
        for (int i = 0; is_needed(v, id) && i < v->uses[id].len; i++)
            if (!v->uses[id].data[i].read.is_tensor)
                check_phase(v, id, &v->uses[id].data[i].read);
}

/* ---- groups */

/* What is in no group: it is made where it is read, or a kernel of states has it. */
static bool goes_without_group(const PlanCheck *v, NodeId id)
{
    const Plan *p = v->p;
    const RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
    const bool end = (root == ROOT_INIT || root == ROOT_LAST) && v->pr->dir == FORWARD;
    const bool given = v->pr->given && v->pr->given[id];
    return end || given || p->is_alias[id] || p->is_cat[id] || copies_state(p, id) ||
           printed_inline(p, v->pr, id) || (p->schedule->on_chip && v->pr->phase[id] == PHASE_DURING);
}

/* All that the array reads, also through what is made there, is of the groups up to that one. Groups of a phase are
 * launched in their order, and phases one behind another. */
static void check_order(PlanCheck *v, NodeId id, int group, Marks *seen)
{
    const Phase phase = v->pr->groups.data[group].phase;
    if (!marks_first(seen, id))
        return;
    for (int i = 0; i < v->uses[id].len; i++) {
        const Read *r = &v->uses[id].data[i].read;
        if (r->is_tensor)
            continue;
        REQUIRE(v, v->pr->group[r->id] <= group || v->pr->phase[r->id] != phase,
                "group %d reads %%%d of group %d", group, r->id, v->pr->group[r->id]);
        if (v->pr->group[r->id] < 0 && is_needed(v, r->id))
            check_order(v, r->id, group, seen);
    }
}

static void check_group(PlanCheck *v, int number, bool *listed)
{
    const Plan *p = v->p;
    const Group *g = &v->pr->groups.data[number];
    Marks *seen = marks_begin(p->m);
    for (int i = 0; i < g->arrays.len && !v->wrong; i++) {
        NodeId id = g->arrays.data[i];
        REQUIRE(v, !listed[id], "two groups have %%%d", id);
        listed[id] = true;
        REQUIRE(v, v->pr->group[id] == number, "group %d has %%%d, which is of group %d", number, id,
                v->pr->group[id]);
        REQUIRE(v, v->pr->phase[id] == g->phase, "group %d has %%%d of another phase", number, id);
        REQUIRE(v, g->kind != G_MAP || !plan_reduces(p, id), "group %d maps, and has the sum %%%d", number,
                id);
        check_order(v, id, number, seen);
    }
    marks_end(seen);
    REQUIRE(v, g->kind != G_GEMM || g->arrays.len == 1, "group %d is a product of %d arrays", number,
            g->arrays.len);
    REQUIRE(v, g->pointers <= MAX_POINTERS, "group %d has %d pointers", number, g->pointers);
}

static bool is_group(const PlanCheck *v, int number)
{
    return number >= 0 && number < v->pr->groups.len;
}

static void check_sums(PlanCheck *v, int number)
{
    const Group *g = &v->pr->groups.data[number];
    const Group *sums = is_group(v, g->sums - 1) ? &v->pr->groups.data[g->sums - 1] : NULL;
    REQUIRE(v, !g->sums || (sums && sums->kind == G_COLUMN && sums->by_rows == 1 + number),
            "group %d leaves sums of group %d, which has other ones", number, g->sums - 1);
    REQUIRE(v, !g->by_rows || (is_group(v, g->by_rows - 1) && g->by_rows - 1 < number && g->kind == G_COLUMN),
            "group %d adds up what group %d leaves", number, g->by_rows - 1);
}

static void check_groups(PlanCheck *v)
{
    const Plan *p = v->p;
    bool *listed = room(v, (size_t)p->n_nodes);
    for (int i = 0; i < v->pr->groups.len && !v->wrong; i++) {
        check_group(v, i, listed);
        check_sums(v, i);
    }
    for (NodeId id = 0; id < p->n_nodes && !v->wrong; id++) {
        const int group = v->pr->group[id];
        REQUIRE(v, group < v->pr->groups.len, "there is no group %d, of %%%d", group, id);
        REQUIRE(v, group < 0 || v->wrong || listed[id] || v->pr->groups.data[group].kind == G_GEMM,
                "group %d lacks %%%d", group, id);
        REQUIRE(v, !is_needed(v, id) || group >= 0 || goes_without_group(v, id), "nothing computes %%%d", id);
    }
    free(listed);
}

/* ---- storage */

static void check_place(PlanCheck *v, NodeId id, int arguments)
{
    const Plan *p = v->p;
    const Storage *st = &v->pr->node[id];
    if (st->home == HOME_ARG) {
        REQUIRE(v, st->arg >= 0 && st->arg < arguments, "%%%d is argument %d of %d", id, st->arg, arguments);
        return;
    }
    if (st->home == HOME_NONE)
        return;
    REQUIRE(v, st->slot >= 0 && st->slot < p->buffers.len, "%%%d lies in no buffer", id);
    if (v->wrong)
        return;
    const Buffer *b = &p->buffers.data[st->slot];
    REQUIRE(v, b->reserve == (st->home == HOME_RESERVE), "%%%d and its buffer %d are not both in the reserve",
            id, st->slot);
    REQUIRE(v, b->dtype == st->dtype, "%%%d has another type than its buffer %d", id, st->slot);
}

/* A buffer has one array, or pieces of one. */
static void check_shared(PlanCheck *v)
{
    const Plan *p = v->p;
    NodeId *first = room(v, sizeof *first * (size_t)p->buffers.len);
    for (NodeId id = 0; id < p->n_nodes && !v->wrong; id++) {
        const Storage *st = &v->pr->node[id];
        if (st->home == HOME_NONE || st->home == HOME_ARG || st->pitch || p->is_cat[id] ||
            copies_state(p, id))
            continue;
        REQUIRE(v, !first[st->slot], "buffer %d has %%%d and %%%d", st->slot, first[st->slot] - 1, id);
        first[st->slot] = 1 + id;
    }
    free(first);
}

/* Is what is read in another kernel's memory? Only there has it to lie in any. */
static bool comes_from_memory(const PlanCheck *v, NodeId id, NodeId read)
{
    const Plan *p = v->p;
    const Program *pr = v->pr;
    const bool walks =
        p->schedule->on_chip && pr->phase[id] == PHASE_DURING && pr->phase[read] == PHASE_DURING;
    const bool same = pr->group[id] >= 0 && kernel_of(pr, id) == pr->group[read];
    return !walks && !same && !printed_inline(p, pr, read) && !p->is_cat[id] && !p->is_alias[read];
}

static void check_reads(PlanCheck *v, NodeId id)
{
    const Plan *p = v->p;
    for (int i = 0; i < v->uses[id].len; i++) {
        const Read *r = &v->uses[id].data[i].read;
        if (r->is_tensor)
            continue;
        const Home home = plan_storage(p, v->pr, r)->home;
        if (v->pr->phase[r->id] == PHASE_NONE)
            REQUIRE(v, home == HOME_RESERVE, "%%%d reads %%%d of forward, which is not in the reserve", id,
                    r->id);
        else if (comes_from_memory(v, id, r->id))
            REQUIRE(v, home != HOME_NONE, "%%%d reads %%%d, which lies in no memory", id, r->id);
    }
}

static void check_storage(PlanCheck *v)
{
    const Plan *p = v->p;
    const CallArgs args = v->pr->dir == FORWARD ? forward_arguments(p->m) : backward_arguments(p->m);
    for (NodeId id = 0; id < p->n_nodes && !v->wrong; id++)
        check_place(v, id, args.len);
    if (!v->wrong)
        check_shared(v);
    for (NodeId id = 0; id < p->n_nodes && !v->wrong; id++)
        if (is_needed(v, id) && (!p->is_alias[id] || is_root(p->m, id)))
            check_reads(v, id);
}

/* What is kept for a step or two is read by the steps alone. */
static void check_rings(PlanCheck *v)
{
    const Plan *p = v->p;
    for (NodeId id = 0; id < p->n_nodes; id++)
        for (int i = 0; is_needed(v, id) && v->pr->phase[id] != PHASE_DURING && i < v->uses[id].len; i++) {
            const Read *r = &v->uses[id].data[i].read;
            const Storage *st = r->is_tensor ? NULL : &v->pr->node[r->id];
            bool own =
                st && (st->home == HOME_WORKSPACE || (st->home == HOME_RESERVE && v->pr->dir == FORWARD));
            if (own)
                REQUIRE(v, !p->buffers.data[st->slot].ring,
                        "%%%d reads all steps of %%%d, of which %d are kept", id, r->id,
                        p->buffers.data[st->slot].ring);
        }
}

/* ---- kernels */

static void check_kernels(PlanCheck *v)
{
    const GroupVec *groups = &v->pr->groups;
    for (int i = 0; i < groups->len; i++) {
        const Group *g = &groups->data[i];
        const bool kernel = g->kind != G_GEMM && g->kind != G_WALK;
        REQUIRE(v, g->kernel, "group %d has no name", i);
        for (int k = 0; k < i && g->kernel; k++)
            REQUIRE(v, !groups->data[k].kernel || strcmp(groups->data[k].kernel, g->kernel) != 0,
                    "groups %d and %d are called %s", k, i, g->kernel);
        REQUIRE(v, !kernel || (g->threads >= 32 && g->threads <= 1024), "group %d has %d threads", i,
                g->threads);
        REQUIRE(v, g->kind != G_COLUMN || (g->partial >= 0 && g->partial < v->p->buffers.len),
                "group %d has no buffer for partial sums", i);
    }
}

static void check_walks(PlanCheck *v)
{
    int walks = 0;
    for (int i = 0; i < v->pr->groups.len; i++)
        walks += v->pr->groups.data[i].kind == G_WALK;
    REQUIRE(v, walks <= 1, "%d kernels walk all steps", walks);
    REQUIRE(v, walks == 1 || !v->p->schedule->on_chip || v->pr->dir == BACKWARD, "no kernel walks all steps");
}

static void check_pairs(PlanCheck *v)
{
    const GroupVec *groups = &v->pr->groups;
    for (int i = 0; i < v->pr->parts.len; i++) {
        const int buffer = v->pr->parts.data[i]->buffer;
        REQUIRE(v, buffer >= 0 && buffer < v->p->buffers.len, "parts lie in no buffer");
    }
    for (int i = 0; i < groups->len; i++) {
        const Fused *f = groups->data[i].fused;
        if (!f)
            continue;
        REQUIRE(v, f->product == &groups->data[i] || f->map == &groups->data[i],
                "group %d is in another pair", i);
        REQUIRE(v, f->product->kind == G_GEMM, "group %d is one kernel with no product", i);
        REQUIRE(v, f->map->kind == G_MAP || f->map->kind == G_ROW, "group %d is a product with no kernel", i);
        REQUIRE(v, (f->product > f->map) == f->ahead, "group %d and what goes with it are in the wrong order",
                i);
    }
}

/* Neighbours of one phase. */
static void check_together(PlanCheck *v)
{
    const GroupVec *groups = &v->pr->groups;
    for (int i = 0; i < groups->len; i++) {
        const Group *g = &groups->data[i];
        bool before = i > 0 && groups->data[i - 1].together == g->together;
        bool behind = i + 1 < groups->len && groups->data[i + 1].together == g->together;
        if (!g->together)
            continue;
        REQUIRE(v, g->kind == G_GEMM, "group %d goes together with products and is none", i);
        REQUIRE(v, g->together <= v->p->buffers.len, "group %d goes together by no buffer", i);
        REQUIRE(v, before || behind, "group %d goes together with none", i);
        REQUIRE(v, !before || groups->data[i - 1].phase == g->phase,
                "group %d goes together with one of another phase", i);
    }
}

static void check_direction(PlanCheck *v, const char *pass)
{
    static const char *const groups[] = { "forward-joined", "backward-joined" };
    if (is_behind(pass, "phases"))
        check_phases(v);
    if (!v->wrong && is_behind(pass, groups[v->pr->dir]))
        check_groups(v);
    if (!v->wrong && is_behind(pass, "forward-storage"))
        check_storage(v);
    if (!v->wrong && is_behind(pass, "rings"))
        check_rings(v);
    if (!v->wrong && is_behind(pass, "shapes"))
        check_kernels(v);
    if (!v->wrong && is_behind(pass, "settle"))
        check_walks(v);
    if (!v->wrong && is_behind(pass, "parts"))
        check_pairs(v);
    if (!v->wrong && is_behind(pass, "together"))
        check_together(v);
}

const char *plan_verify(const Plan *p, const char *pass, const Uses *const uses[2])
{
    PlanCheck v = { .p = p };
    check_roots(&v);
    if (is_behind(pass, "operands"))
        check_marks(&v);
    for (int d = 0; d < 2 && !v.wrong && is_behind(pass, "phases"); d++) {
        v.pr = &p->program[d];
        v.uses = uses[d];
        check_direction(&v, pass);
    }
    return v.wrong;
}
