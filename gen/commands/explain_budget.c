/* explain_budget.c: what a budget of the reserve does to a training call. In: a plan and sizes. Out: from how
 * many bytes on a call computes nothing again, from how many on its steps once more, twice, and what is the
 * least, also with states in host memory, of how many bytes; or why steps of the cell are not computed again.
 * Guaranteed: the bytes are those of cell_recompute_bytes and cell_offload_bytes (runtime/recompute.c has the search, and says what pieces and passes are);
 * tests/explain compares them. */
#include <math.h>
#include <string.h>

#include "base/table.h"
#include "explain.h"
#include "explain_words.h"
#include "ir/arguments.h"

/* As in the runtime: context.h, cell_plan.h and recompute.c. */
enum { MARK = 512, ALIGNMENT = 256, PASSES = 4, GRAIN = 64, EVERY = 64, ON_DEVICE = 2 };

static double aligned(double bytes)
{
    return ceil(bytes / ALIGNMENT) * ALIGNMENT;
}

/* Bytes of a reserve for this number of steps. */
static double reserve_of(const Explain *e, const int64_t sizes[MAX_DIMS], int64_t steps)
{
    int64_t at[MAX_DIMS];
    double bytes = 0;
    memcpy(at, sizes, sizeof at);
    at[ATOM_PAST] += steps - at[ATOM_T];
    at[ATOM_T] = steps;
    bool any = false;
    for (int i = 0; i < e->p->buffers.len; i++) {
        if (!e->p->buffers.data[i].reserve)
            continue;
        bytes += aligned(explain_buffer_at(e, i, at));
        any = true;
    }
    return any ? MARK + bytes : 0;
}

/* The states in front of a step. */
static double checkpoint_of(const Explain *e, const int64_t *sizes)
{
    const CallArgs args = forward_arguments(e->p->m);
    double bytes = 0;
    for (int i = 0; i < args.len; i++)
        if (args.data[i].role == ROLE_FINAL)
            bytes += aligned(explain_argument_at(e, &args.data[i], sizes));
    return bytes;
}

static double pieces_within(double slots, int passes)
{
    double pieces = 1;
    for (int i = 1; i <= passes; i++)
        pieces = pieces * (slots + i) / i;
    return pieces;
}

static int64_t slots_for(int64_t count, int passes)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t slots = low + (high - low) / 2;
        if (pieces_within((double)slots, passes) >= (double)count)
            high = slots;
        else
            low = slots + 1;
    }
    return low;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* passes[k]: the least of k + 1 passes at most. offload: the least with states in host memory, which has so
 * many bytes there; 0 where none are. */
typedef struct Least {
    double passes[PASSES], offload, host;
} Least;

/* With pieces of `length` steps, the first of which may have less. */
static void try_length(const Explain *e, const int64_t *sizes, int64_t length, double checkpoint,
                       Least *least)
{
    int64_t steps = sizes[ATOM_T], count = (steps + length - 1) / length;
    double piece = larger(reserve_of(e, sizes, length), reserve_of(e, sizes, steps - (count - 1) * length));
    for (int passes = 1; passes <= PASSES; passes++) {
        int64_t slots = checkpoint > 0 ? slots_for(count, passes) : count - 1;
        double bytes = MARK + (double)slots * checkpoint + piece;
        for (int k = passes - 1; k < PASSES; k++)
            least->passes[k] = bytes < least->passes[k] ? bytes : least->passes[k];
    }
    bool offload = checkpoint > 0 && count > ON_DEVICE + 1;
    double bytes = MARK + (double)(count - 1 < ON_DEVICE ? count - 1 : ON_DEVICE) * checkpoint + piece;
    if (bytes < least->offload) {
        least->offload = bytes;
        least->host = offload ? MARK + (double)(count - 1 - ON_DEVICE) * checkpoint : 0;
    }
}

static void search(const Explain *e, const int64_t *sizes, Least *least)
{
    int64_t steps = sizes[ATOM_T];
    double checkpoint = checkpoint_of(e, sizes);
    for (int64_t count = 2; count <= steps;) {
        int64_t length = (steps + count - 1) / count;
        length = length > 4 * GRAIN ? (length + GRAIN - 1) / GRAIN * GRAIN : length;
        try_length(e, sizes, length, checkpoint, least);
        int64_t next = count < EVERY ? count + 1 : count + count / 16;
        count = count < steps && next > steps ? steps : next;
    }
}

/* Why steps are not computed again; NULL: they can be. */
static const char *no_pieces(const Plan *p, const int64_t sizes[MAX_DIMS])
{
    const Module *m = p->m;
    int64_t second[MAX_DIMS];
    memcpy(second, sizes, sizeof second);
    second[ATOM_T] = 1;
    second[ATOM_PAST] = sizes[ATOM_PAST] - sizes[ATOM_T] + 2;
    if (explain_refused(p, second))
        return "it reads steps before the call that no state holds";
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_HISTORY && m->tensors.data[t].grows)
            return "it reads all steps before, which are as large as what is saved";
    if (module_starts(m) >= 0)
        return "its sequences are packed";
    if (m->c->reverse && m->c->lengths)
        return "its sequences have lengths and begin at their ends";
    return NULL;
}

void explain_budget(const Plan *p, const int64_t sizes[MAX_DIMS], Buf *out)
{
    static const char *const often[] = { "once", "twice", "three times", "four times" };
    Explain e = explain_of(p, out);
    double whole = reserve_of(&e, sizes, sizes[ATOM_T]);
    Least least = { { whole, whole, whole, whole }, whole, 0 };
    if (!p->m->has_grad || whole <= 0)
        return;
    if (p->other) {
        put_paragraph("a budget for the reserve: cell_recompute_bytes says it, as calls of other sizes have "
                      "other plans",
                      2, out);
        return;
    }
    const char *why = no_pieces(p, sizes);
    if (!why && sizes[ATOM_T] > 1)
        search(&e, sizes, &least);
    if (!why && least.passes[PASSES - 1] >= whole)
        why = "pieces of the steps do not want less";
    if (why) {
        put_paragraph(intern_f(e.c,
                               "a budget for the reserve, in bytes: from %.0f on nothing is computed "
                               "again; less is too small, since %s",
                               whole, why),
                      2, out);
        return;
    }
    Buf words = { .arena = e.c->arena };
    buf_f(&words, "a budget for the reserve, in bytes: from %.0f on nothing is computed again", whole);
    double before = whole;
    for (int k = 0; k < PASSES; k++) {
        if (least.passes[k] < before)
            buf_f(&words, ", from %.0f on steps %s", least.passes[k], often[k]);
        before = least.passes[k] < before ? least.passes[k] : before;
    }
    buf_f(&words, "; less is too small");
    if (least.host > 0)
        buf_f(&words,
              ". With CELL_OFFLOAD steps are computed again once from %.0f on, with %.0f in host memory",
              least.offload, least.host);
    put_paragraph(intern_n(e.c, words.data, words.len), 2, out);
}
