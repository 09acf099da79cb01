/* ladder.c: one generated instance against its reference. In: the instance's description (launch plans, and
 * perhaps the reference as it was built) and its reference C compiled in double, both linked in under the
 * names below; CELL_BACKEND; sizes on the command line as B,T,dims... (chip:B,T,dims...: on the emulator no kernel
 * whose blocks walk alone; blocks:B,T,dims...: nor clusters; cluster:B,T,dims...: none but those of clusters of 16),
 * or large:COPIES:1,T,dims... for a batch of copies of one sequence, or none, or --full: then sizes at which kernels
 * break are chosen here. On the emulator, kernels for the CPU that the instance has run beside it on the same
 * cases. Out: a line per check that failed, and `N passed, N failed, N skipped`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder.h"

const cell_desc *ladder_instance(void);

void check_against_reference(Case *c, const char *what)
{
    const cell_desc *d = c->d;
    Guarded reserve = reserve_for(c, c->sizes);
    for (int back = 0; back < 2; back++) {
        int n;
        const cell_arg *args = call_args(d, back ? 'b' : 'f', &n);
        Raw raw = run_call(c, &(Call){ .which = back ? 'b' : 'f',
                                       .sizes = c->sizes,
                                       .in = back ? &c->b : &c->f,
                                       .reserve = &reserve });
        Set got = values_of(d, args, n, &raw);
        compare(c, what, args, n, &got, back ? &c->b : &c->f, back ? &c->bs : &c->fs, NULL);
        set_free(&got);
        raw_free(&raw);
    }
    guarded_free(c, &reserve, "reserve");
}

/* The context of the backend `cpu` beside that of the emulator, or NULL. */
static cell_context *beside;

/* The same case on the CPU, with these identities. What is drawn afterwards does not depend on it. */
static void check_beside(Case *c, int identities)
{
    char label[sizeof c->label];
    cell_context *was = c->ctx;
    uint64_t at = normal_at();
    if (!beside)
        return;
    memcpy(label, c->label, sizeof label);
    snprintf(c->label + strlen(label), sizeof label - strlen(label), " on cpu");
    c->ctx = beside;
    check_against_reference(c, "against the reference");
    check_identities(c, identities);
    c->ctx = was;
    memcpy(c->label, label, sizeof label);
    normal_from(at);
}

/* Of the emulator, which is not linked elsewhere. */
uint64_t cell_emu_launched(void) __attribute__((weak));

enum { SLOW = 10 };     /* steps of all sequences, on the emulator */
enum { LARGE = 400000 };    /* elements of all inputs, params and states there */

static bool is_large(const Case *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->d->n_forward_args; i++)
        n += c->f.n[i];
    return n > LARGE && !getenv("FULL");
}

/* Kinds of calls for which a case has left nothing to roundings. */
enum { MOST_KINDS = 64 };
typedef struct Seen { uint64_t kinds[MOST_KINDS]; int n; } Seen;

static bool is_seen(const Seen *s, uint64_t kind)
{
    for (int i = 0; i < s->n; i++)
        if (s->kinds[i] == kind)
            return !getenv("FULL");
    return false;
}

/* Checks the identities `which` unless a case of that kind was looked at. Returns which were checked. */
static int check_once(Case *c, Seen *seen, uint64_t kind, int which)
{
    int left = counts().skipped;
    if (is_seen(seen, kind))
        return 0;
    check_identities(c, which);
    if (seen->n < MOST_KINDS && counts().skipped == left)
        seen->kinds[seen->n++] = kind;
    return which;
}

/* Runs of a case are compared with one another, on the emulator for few steps and elements, and at one of an
 * instance's sizes that launch the same kernels: runs of all steps for one step and for more, pieces for one
 * step, two or three, and more; with FULL=1 at all sizes. This is asked behind the runs against the
 * reference. Returns which were checked. What is drawn afterwards does not depend on it. */
static int identities_at(Case *c)
{
    enum { STEPS = 4 };
    static Seen runs, pieces;
    int64_t T = c->sizes[CELL_SIZE_T];
    uint64_t at = normal_at();
    int done = IDENTITIES;
    if (getenv("LADDER_QUICK"))
        return 0;
    if (cell_backend_of(c->ctx) != CELL_BACKEND_EMULATED || !cell_emu_launched) {
        check_identities(c, IDENTITIES);
    } else {
        uint64_t kernels = cell_emu_launched() * 3;
        if (c->sizes[CELL_SIZE_B] * T > SLOW || is_large(c))
            return 0;
        done = check_once(c, &runs, kernels + (T > 1), IDENTITIES_OF_RUNS);
        done |= check_once(c, &pieces, kernels + (T > 1) + (T >= STEPS), IDENTITIES_OF_PIECES);
    }
    normal_from(at);
    return done;
}

static void run_sizes(cell_context *ctx, const cell_desc *d, const int64_t *sizes, bool first)
{
    Case c = case_new(ctx, d, sizes, false);
    if (beside)               /* threads that wait take time of others, and tests/cpu has them at all sizes */
        cell_context_set_threads(beside, first ? 3 : 1);
    if (cell_emu_launched)
        cell_emu_launched();
    check_against_reference(&c, "against the reference");
    int done = identities_at(&c);
    check_beside(&c, sizes[CELL_SIZE_B] * sizes[CELL_SIZE_T] > SLOW ? IDENTITIES : done);
    if (cell_backend_of(ctx) == CELL_BACKEND_EMULATED)
        check_stored(&c);
    case_free(&c);
    bool begins = sizes[d->n_sizes - 1] == 0;     /* else histories are wanted */
    for (int empty = 0; first && empty < 2 + begins; empty++) {
        int64_t other[CELL_MAX_SIZES];
        memcpy(other, sizes, sizeof other);
        if (empty < 2)
            other[empty] = 0;
        choose_total(d, other);
        c = case_new(ctx, d, other, empty == 2);
        check_against_reference(&c, empty == 2 ? "without initial states" : "without steps or sequences");
        check_beside(&c, 0);
        case_free(&c);
    }
}

/* ---- sizes that nobody gave */

/* Whether the cell takes these sizes. */
static bool allowed(const cell_desc *d, const int64_t *sizes)
{
    for (int i = 0; i < d->n_checks; i++) {
        int64_t value;
        if (cell_eval(d->checks[i].value, sizes, d->n_sizes, &value) != CELL_OK || value < 0)
            return false;
    }
    return true;
}

/* Room for more steps than there are, where all earlier ones are read. */
static void choose_room(const cell_desc *d, int64_t *sizes)
{
    for (int k = CELL_SIZE_DIM0; k + 1 < d->n_sizes; k++)
        if (strcmp(d->size_names[k], "history") == 0)
            sizes[k] = sizes[d->n_sizes - 1] + sizes[CELL_SIZE_T] + 2;
}

/* The cell's dims: first as the row of the table has them, each another and no multiples of warps or vectors,
 * else sizes that divide one another, else equal ones. */
static bool choose_dims(const cell_desc *d, int row, int64_t *sizes)
{
    static const int64_t tried[][6] = {
        { 7, 2, 3, 5, 4, 6 },   { 5, 3, 2, 4, 6, 7 },  { 9, 1, 2, 3, 5, 4 }, { 3, 2, 1, 5, 7, 4 },
        { 33, 5, 3, 2, 4, 7 },  { 70, 9, 5, 3, 2, 4 }, { 12, 6, 3, 1, 1, 1 }, { 2, 4, 8, 16, 16, 16 },
        { 4, 4, 4, 4, 4, 4 },   { 1, 1, 1, 1, 1, 1 },
    };
    enum { TRIED = sizeof tried / sizeof *tried, FALLBACK = 6 };
    for (int i = row; i < TRIED; i = i < FALLBACK ? FALLBACK : i + 1) {
        for (int k = CELL_SIZE_DIM0; k + 1 < d->n_sizes; k++)
            sizes[k] = tried[i][(k - CELL_SIZE_DIM0) % 6];
        choose_room(d, sizes);
        choose_total(d, sizes);
        if (allowed(d, sizes))
            return true;
    }
    return false;
}

/* One step and few, sequences that fill nothing, and T past a checkpoint or two of any interval. */
static int run_chosen(cell_context *ctx, const cell_desc *d, bool full)
{
    static const struct { int64_t B, T; int row; } quick[] = {
        { 1, 1, 0 }, { 2, 2, 1 }, { 3, 3, 2 }, { 1, 5, 3 }, { 3, 17, 0 }, { 2, 34, 1 },
    }, more[] = { { 5, 15, 4 }, { 1, 16, 5 }, { 7, 33, 1 }, { 2, 100, 0 }, { 33, 8, 4 } };
    int ran = 0;
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++) {
        int64_t sizes[CELL_MAX_SIZES] = { quick[i].B, quick[i].T };
        if (choose_dims(d, quick[i].row, sizes))
            run_sizes(ctx, d, sizes, ran++ == 1);
    }
    for (size_t i = 0; full && i < sizeof more / sizeof *more; i++) {
        int64_t sizes[CELL_MAX_SIZES] = { more[i].B, more[i].T };
        if (choose_dims(d, more[i].row, sizes))
            run_sizes(ctx, d, sizes, ran++ == 1);
    }
    return ran;
}

static void run_given(cell_context *ctx, const cell_desc *d, char *text, bool first)
{
    int64_t sizes[CELL_MAX_SIZES] = { 0 };
    int given = 0;
    int64_t copies = strncmp(text, "large:", 6) == 0 ? strtoll(text + 6, &text, 10) : 0;
    text += *text == ':';
    bool whole = strncmp(text, "chip:", 5) == 0, cluster = strncmp(text, "cluster:", 8) == 0;
    bool blocks = strncmp(text, "blocks:", 7) == 0;
    text += whole ? 5 : cluster ? 8 : blocks ? 7 : 0;
    setenv("CELL_EMULATED_CHIP", whole ? "1" : cluster ? "2" : blocks ? "3" : "0", 1);
    for (int k = 0; k < d->n_sizes && *text; k++, text += *text == ',') {
        sizes[k] = strtoll(text, &text, 10);
        given = k + 1;
    }
    if (given < d->n_sizes - 1)
        choose_room(d, sizes);
    choose_total(d, sizes);
    if (copies)
        check_large(ctx, d, sizes, copies);
    else
        run_sizes(ctx, d, sizes, first);
}

int main(int argc, char **argv)
{
    const cell_desc *d = ladder_instance();
    cell_context *ctx = NULL;
    char message[512];
    bool full = argc == 2 && strcmp(argv[1], "--full") == 0;
    if (cell_context_create(&ctx, CELL_BACKEND_AUTO, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "no context: %s\n", message);
        return 1;
    }
    bool both = d->cpu && cell_backend_of(ctx) == CELL_BACKEND_EMULATED;
    if (both && cell_context_create(&beside, CELL_BACKEND_CPU, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "no context: %s\n", message);
        return 1;
    }
    for (int i = 1; i < argc && !full; i++)
        run_given(ctx, d, argv[i], i == 2 || argc == 2);
    if ((argc == 1 || full) && !run_chosen(ctx, d, full))
        printf("FAIL no sizes were found that the cell takes\n");
    else
        judge_coverage(d);
    Counts n = counts();
    printf("%s on %s%s: %d passed, %d failed, %d skipped\n", d->key, cell_backend_name(ctx),
           beside ? " and cpu" : "", n.passed, n.failed, n.skipped);
    cell_context_destroy(beside);
    cell_context_destroy(ctx);
    return n.failed > 0 || n.passed + n.skipped == 0;
}
