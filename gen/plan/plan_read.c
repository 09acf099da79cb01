/* plan_read.c: reads the text form of a plan (plan_text.c). In: any bytes. Out: the plan, as far as the text has it, or
 * NULL and what is wrong, with the line behind that of `plan`. Guaranteed: a plan that comes out prints as the same
 * text, and every number in it that names an array, tensor, buffer or group names one that is there. It is for checks
 * of plans, not for printing kernels. */
#include <stdlib.h>
#include <string.h>

#include "ir/ir_raw.h"
#include "plan_text.h"

typedef struct Reader {
    Compiler *c;
    Module *m;
    Plan *p;
    Program *pr; /* of the direction that is read; NULL in front of both */
    const char *at, *end; /* of a line */
    int line;
    const char *wrong;
    const char *after; /* the pass */
} Reader;

static void fail(Reader *r, const char *what)
{
    if (!r->wrong)
        r->wrong = intern_f(r->c, "line %d: %s", r->line, what);
    r->at = r->end;
}

static bool is_word(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '_' || ch == '-';
}

/* The word that comes next; "" where none does. */
static const char *next_word(Reader *r, size_t *len)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    const char *from = r->at;
    while (r->at < r->end && is_word(*r->at))
        r->at++;
    *len = (size_t)(r->at - from);
    return from;
}

static bool accept(Reader *r, const char *word)
{
    size_t len;
    const char *before = r->at, *got = next_word(r, &len);
    if (len == strlen(word) && memcmp(got, word, len) == 0)
        return true;
    r->at = before;
    return false;
}

static void expect(Reader *r, const char *word)
{
    if (!r->wrong && !accept(r, word))
        fail(r, intern_f(r->c, "expected '%s'", word));
}

static bool accept_sign(Reader *r, char sign)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    bool there = r->at < r->end && *r->at == sign;
    r->at += there;
    return there;
}

static int read_number(Reader *r)
{
    size_t len;
    const char *word = next_word(r, &len);
    char digits[12] = "", *rest;
    memcpy(digits, word, len < sizeof digits ? len : 0);
    long n = strtol(digits, &rest, 10);
    if (!len || *rest || n > INT32_MAX || n < INT32_MIN)
        fail(r, "expected a number");
    return (int)n;
}

/* A number in [0, n) of what there is. */
static int read_which(Reader *r, int n, const char *what)
{
    int i = read_number(r);
    if (!r->wrong && (i < 0 || i >= n))
        fail(r, intern_f(r->c, "there is no %s %d", what, i));
    return r->wrong ? 0 : i;
}

static bool is_array(const Module *m, NodeId id)
{
    return id >= 0 && id < m->nodes.len && m->nodes.data[id].kind == N_ARRAY;
}

static NodeId read_array(Reader *r)
{
    if (!accept_sign(r, '%'))
        fail(r, "expected an array");
    NodeId id = read_number(r);
    if (!r->wrong && !is_array(r->m, id))
        fail(r, intern_f(r->c, "%%%d is no array", id));
    return r->wrong ? 0 : id;
}

static const char *read_string(Reader *r)
{
    if (!accept_sign(r, '"'))
        return NULL;
    const char *end = memchr(r->at, '"', (size_t)(r->end - r->at));
    if (!end) {
        fail(r, "a name without an end");
        return NULL;
    }
    const char *s = intern_n(r->c, r->at, (size_t)(end - r->at));
    r->at = end + 1;
    return s;
}

static int read_choice(Reader *r, const char *const *words, const char *what)
{
    for (int i = 0; words[i]; i++)
        if (accept(r, words[i]))
            return i;
    fail(r, intern_f(r->c, "expected %s", what));
    return 0;
}

static const Poly *read_braces(Reader *r)
{
    const char *end = accept_sign(r, '{') ? memchr(r->at, '}', (size_t)(r->end - r->at)) : NULL;
    const Poly *size = end ? ir_parse_size(r->m, r->at, (size_t)(end - r->at)) : NULL;
    if (!size)
        fail(r, "expected a size in braces");
    r->at = size ? end + 1 : r->end;
    return size;
}

static bool read_size(Reader *r, const char *word, const Poly **size)
{
    if (!accept(r, word))
        return false;
    *size = read_braces(r);
    return true;
}

static bool read_flag(Reader *r, void *of, const Field *f)
{
    for (; f->word; f++)
        if (accept(r, f->word)) {
            FIELD(bool, of, f) = true;
            return true;
        }
    return false;
}

static bool read_field(Reader *r, void *of, const Field *f)
{
    for (; f->word; f++)
        if (accept(r, f->word)) {
            FIELD(int, of, f) = read_number(r);
            return true;
        }
    return false;
}

static bool at_end(Reader *r)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    return r->wrong || r->at == r->end;
}

static void no_other(Reader *r)
{
    fail(r, intern_f(r->c, "unexpected '%.*s'", (int)(r->end - r->at > 40 ? 40 : r->end - r->at), r->at));
}

/* ---- lines */

static void line_plan(Reader *r)
{
    Plan *p = r->p;
    Request *request = arena_alloc(r->m->arena, sizeof *request);
    size_t len;
    expect(r, "after");
    const char *pass = next_word(r, &len);
    r->after = intern_n(r->c, pass, len);
    expect(r, "schedule");
    const char *name = next_word(r, &len);
    p->schedule = schedule_named(intern_n(r->c, name, len));
    if (!p->schedule)
        fail(r, "there is no such schedule");
    expect(r, "calls");
    p->calls = (Calls)read_choice(r, plan_calls_words, "any, few, many, long or short");
    expect(r, "dtype");
    p->dtype = (Dtype)read_choice(r, ir_dtypes, "a type");
    expect(r, "compute");
    p->compute = (Dtype)read_choice(r, ir_dtypes, "a type");
    p->cluster = 1;
    while (!at_end(r))
        if (accept(r, "cpu"))
            request->cpu = true;
        else if (accept(r, "interval"))
            p->interval = read_number(r);
        else if (accept(r, "cluster"))
            p->cluster = read_number(r);
        else
            no_other(r);
    request->dtype = p->dtype;
    request->calls = p->calls;
    p->request = request;
}

static void line_value(Reader *r)
{
    Plan *p = r->p;
    static const double constants;
    NodeId id = read_array(r);
    while (!at_end(r)) {
        const Field *f = plan_value_flags;
        while (f->word && !accept(r, f->word))
            f++;
        if (f->word)
            FIELD(bool *, p, f)[id] = true;
        else if (accept(r, "past"))
            p->past[id] = read_number(r);
        else if (accept(r, "table"))
            p->table[id] = &constants;
        else
            no_other(r);
    }
    if (!r->wrong && p->is_alias[id] && !alias_candidate(r->m, id))
        fail(r, intern_f(r->c, "%%%d is a name of nothing", id));
}

static void line_buffer(Reader *r)
{
    Buffer b = { 0 };
    if (read_number(r) != r->p->buffers.len)
        fail(r, "buffers are not in their order");
    b.name = read_string(r);
    b.reserve = accept(r, "reserve");
    if (!b.reserve)
        expect(r, "workspace");
    b.dtype = (Dtype)read_choice(r, ir_dtypes, "a type");
    while (!at_end(r))
        if (!read_size(r, "elements", &b.elements) && !read_size(r, "columns", &b.columns) &&
            !read_size(r, "cut", &b.cut) && !read_flag(r, &b, plan_buffer_flags) &&
            !read_field(r, &b, plan_buffer_numbers))
            no_other(r);
    if (!b.name)
        fail(r, "a buffer without a name");
    vec_push(r->m->arena, &r->p->buffers, b);
}

static bool read_home(Reader *r, Storage *st)
{
    if (accept(r, "argument")) {
        st->home = HOME_ARG;
        st->arg = read_number(r);
        return true;
    }
    bool reserve = accept(r, "reserve");
    if (!reserve && !accept(r, "workspace"))
        return false;
    st->home = reserve ? HOME_RESERVE : HOME_WORKSPACE;
    st->slot = accept(r, "of") ? -2 - read_array(r) : read_which(r, r->p->buffers.len, "buffer");
    return true;
}

/* What may stand behind a home, in any order; false: this is none of it. */
static bool read_storage(Reader *r, Storage *st)
{
    if (st->home == HOME_NONE && read_home(r, st))
        return true;
    if (st->home == HOME_NONE)
        return false;
    if (accept(r, "batched"))
        st->batched = true;
    else if (accept(r, "timed"))
        st->timed = true;
    else if (accept(r, "lead"))
        st->lead = read_number(r);
    else if (!read_size(r, "pitch", &st->pitch) && !read_size(r, "offset", &st->alias_offset) &&
             !read_size(r, "row", &st->row)) {
        for (int i = 0; ir_dtypes[i]; i++)
            if (accept(r, ir_dtypes[i])) {
                st->dtype = (Dtype)i;
                return true;
            }
        return false;
    }
    return true;
}

static bool read_wanted(Reader *r, Wanted *w)
{
    if (!accept(r, "for"))
        return false;
    size_t len;
    for (;;) {
        const char *before = r->at, *word = next_word(r, &len);
        bool number = len && *word >= '0' && *word <= '9';
        r->at = before;
        if (!number)
            return true;
        vec_push(r->m->arena, w, read_number(r));
    }
}

/* A tensor's line begins with its number and name. */
static TensorId read_tensor(Reader *r)
{
    TensorId t = read_which(r, r->m->tensors.len, "tensor");
    const char *name = read_string(r);
    if (!r->wrong && (!name || strcmp(name, r->m->tensors.data[t].name) != 0))
        fail(r, "the tensor has another name");
    return t;
}

static void line_tensor(Reader *r)
{
    TensorId t = read_tensor(r);
    while (!at_end(r))
        if (!read_storage(r, &r->pr->tensor[t]))
            no_other(r);
}

static void line_carried(Reader *r)
{
    TensorId t = read_tensor(r);
    while (!at_end(r)) {
        const Field *f = plan_carried;
        while (f->word && !accept(r, f->word))
            f++;
        if (f->word)
            FIELD(int *, r->pr, f)[t] = read_which(r, r->p->buffers.len, "buffer");
        else
            no_other(r);
    }
}

static Phase read_phase(Reader *r)
{
    if (accept(r, "between"))
        return (Phase)((int)PHASE_BETWEEN + read_which(r, 1 << 20, "walk"));
    return (Phase)read_choice(r, plan_phase_words, "a phase");
}

static void line_array(Reader *r)
{
    Program *pr = r->pr;
    NodeId id = read_array(r);
    read_string(r);
    pr->phase[id] = read_phase(r);
    while (!at_end(r))
        if (accept(r, "taken"))
            pr->taken[id] = true;
        else if (accept(r, "product"))
            pr->in_products[id] = true;
        else if (accept(r, "in_place"))
            pr->in_place[id] = true;
        else if (accept(r, "given"))
            pr->given[id] = 1 + read_which(r, r->m->tensors.len, "tensor");
        else if (accept(r, "group"))
            pr->group[id] = read_number(r);
        else if (!read_storage(r, &pr->node[id]) && !read_wanted(r, &pr->wanted[id]))
            no_other(r);
}

static Read read_operand(Reader *r)
{
    Read of = { .is_tensor = accept(r, "tensor"), .past = -1 };
    of.id = of.is_tensor ? read_which(r, r->m->tensors.len, "tensor") : read_array(r);
    return of;
}

static void read_side(Reader *r, GemmSide *s)
{
    s->read = read_operand(r);
    while (read_size(r, "row", &s->row) || read_size(r, "column", &s->col) ||
           read_size(r, "batch", &s->batch) || read_size(r, "offset", &s->offset))
        ;
}

static void read_codes(Reader *r, Gemm *g)
{
    Codes *codes = arena_alloc(r->m->arena, sizeof *codes);
    g->codes = codes;
    read_side(r, &codes->a);
    expect(r, "codes");
    read_side(r, &codes->b);
    expect(r, "scales");
    for (int i = 0; i < 2; i++)
        codes->scale[i] = read_which(r, r->m->tensors.len, "tensor");
}

static void read_copies(Reader *r, Gemm *g)
{
    Codes *codes = arena_alloc(r->m->arena, sizeof *codes);
    g->codes = codes;
    codes->why_not = read_string(r);
    if (!codes->why_not && !r->wrong)
        fail(r, "copies for no reason");
}

static bool read_product(Reader *r, Gemm *g)
{
    if (read_size(r, "m", &g->m) || read_size(r, "n", &g->n) || read_size(r, "k", &g->k) ||
        read_size(r, "count", &g->batch))
        return true;
    if (accept(r, "a"))
        read_side(r, &g->a);
    else if (accept(r, "b"))
        read_side(r, &g->b);
    else if (accept(r, "c"))
        read_side(r, &g->c);
    else if (accept(r, "added"))
        g->added = true;
    else if (accept(r, "parts"))
        for (int i = 0; i < 2; i++)
            g->parts[i] = read_number(r);
    else if (accept(r, "codes"))
        read_codes(r, g);
    else if (accept(r, "copies"))
        read_copies(r, g);
    else
        return false;
    return true;
}

static void read_scatter(Reader *r, Group *g)
{
    g->scatter = arena_alloc(r->m->arena, sizeof *g->scatter);
    while (!r->wrong && !accept(r, "end"))
        if (!read_field(r, g->scatter, plan_scatter_numbers))
            no_other(r);
}

static void read_walk(Reader *r, Group *g)
{
    g->walk = arena_alloc(r->m->arena, sizeof *g->walk);
    g->walk->m = r->m;
    expect(r, "cluster");
    g->walk->cluster = read_number(r);
    expect(r, "interval");
    g->walk->interval = read_number(r);
    read_size(r, "blocks", &g->walk->blocks);
}

static bool starts_operand(Reader *r)
{
    while (r->at < r->end && *r->at == ' ')
        r->at++;
    return !r->wrong && r->at < r->end && (*r->at == '%' || strncmp(r->at, "tensor ", 7) == 0);
}

static void read_arrays(Reader *r, Group *g)
{
    while (starts_operand(r))
        vec_push(r->m->arena, &g->arrays, read_array(r));
}

static void read_reads(Reader *r, Group *g)
{
    while (starts_operand(r)) {
        Read of = read_operand(r);
        vec_push(r->m->arena, &g->reads, of.is_tensor ? ~of.id : of.id);
    }
}

static void line_group(Reader *r)
{
    enum { MOST_AXES = 64 };
    Group g = { 0 };
    const Poly *axes[MOST_AXES] = { NULL };
    if (read_number(r) != r->pr->groups.len)
        fail(r, "groups are not in their order");
    g.kind = (GroupKind)read_choice(r, plan_kind_words, "a kind of group");
    g.phase = read_phase(r);
    g.kernel = read_string(r);
    while (!at_end(r))
        if (accept(r, "arrays"))
            read_arrays(r, &g);
        else if (accept(r, "reads"))
            read_reads(r, &g);
        else if (accept(r, "smem"))
            g.smem = read_number(r);
        else if (accept(r, "scatter"))
            read_scatter(r, &g);
        else if (accept(r, "walk"))
            read_walk(r, &g);
        else if (g.naxes < MOST_AXES && read_size(r, "axis", &axes[g.naxes]))
            g.naxes++;
        else if (!read_flag(r, &g, plan_group_flags) && !read_field(r, &g, plan_group_numbers) &&
                 !read_product(r, &g.gemm) && !read_wanted(r, &g.need))
            no_other(r);
    g.axes = plan_alloc(r->p, sizeof *g.axes, g.naxes);
    for (int i = 0; i < g.naxes; i++)
        g.axes[i] = axes[i];
    if (!r->wrong)
        vec_push(r->m->arena, &r->pr->groups, g);
}

static void line_parts(Reader *r)
{
    Parts *x = arena_alloc(r->m->arena, sizeof *x);
    x->read = read_operand(r);
    x->kernel = read_string(r);
    expect(r, "buffer");
    x->buffer = read_which(r, r->p->buffers.len, "buffer");
    while (!at_end(r))
        if (accept(r, "planes"))
            x->planes = true;
        else if (accept(r, "rising"))
            x->rising = true;
        else if (!read_size(r, "rows", &x->rows) && !read_size(r, "columns", &x->columns) &&
                 !read_size(r, "pitch", &x->pitch) && !read_size(r, "offset", &x->offset))
            no_other(r);
    vec_push(r->m->arena, &r->pr->parts, x);
}

static void line_fused(Reader *r)
{
    Fused *f = arena_alloc(r->m->arena, sizeof *f);
    const int n = r->pr->groups.len;
    int product = read_which(r, n, "group");
    f->kernel = read_string(r);
    expect(r, "with");
    int map = read_which(r, n, "group");
    f->ahead = accept(r, "ahead");
    f->shared = accept(r, "shared");
    expect(r, "from");
    f->least = read_number(r);
    if (r->wrong)
        return;
    f->product = &r->pr->groups.data[product];
    f->map = &r->pr->groups.data[map];
    f->product->fused = f->map->fused = f;
}

static void line_direction(Reader *r, Direction d)
{
    const int n = r->m->nodes.len, tensors = r->m->tensors.len;
    Program *pr = r->pr = &r->p->program[d];
    pr->dir = d;
    pr->phase = plan_alloc(r->p, sizeof *pr->phase, n);
    pr->group = plan_alloc(r->p, sizeof *pr->group, n);
    pr->taken = plan_alloc(r->p, sizeof *pr->taken, n);
    pr->in_products = plan_alloc(r->p, sizeof *pr->in_products, n);
    pr->in_place = plan_alloc(r->p, 1, n);
    pr->given = plan_alloc(r->p, sizeof *pr->given, n);
    pr->wanted = plan_alloc(r->p, sizeof *pr->wanted, n);
    pr->tensor = plan_alloc(r->p, sizeof *pr->tensor, tensors);
    for (int i = 0; i <= n; i++)
        pr->group[i] = -1;
    for (const Field *f = plan_carried; f->word; f++) {
        FIELD(int *, pr, f) = plan_alloc(r->p, sizeof(int), tensors);
        for (int t = 0; t <= tensors; t++)
            FIELD(int *, pr, f)[t] = -1;
    }
}

static void read_line(Reader *r)
{
    if (accept(r, "value"))
        line_value(r);
    else if (accept(r, "buffer"))
        line_buffer(r);
    else if (accept(r, "forward"))
        line_direction(r, FORWARD);
    else if (accept(r, "backward"))
        line_direction(r, BACKWARD);
    else if (!r->pr)
        no_other(r);
    else if (accept(r, "tensor"))
        line_tensor(r);
    else if (accept(r, "carried"))
        line_carried(r);
    else if (accept(r, "group"))
        line_group(r);
    else if (accept(r, "parts"))
        line_parts(r);
    else if (accept(r, "fused"))
        line_fused(r);
    else if (starts_operand(r))
        line_array(r);
    else
        no_other(r);
    if (!r->wrong && !at_end(r))
        no_other(r);
}

static Plan *plan_empty(Module *m)
{
    Plan *p = arena_alloc(m->arena, sizeof *p);
    p->m = m;
    const int n = p->n_nodes = m->nodes.len;
    for (const Field *f = plan_value_flags; f->word; f++)
        FIELD(bool *, p, f) = plan_alloc(p, 1, n);
    p->past = plan_alloc(p, sizeof *p->past, n);
    p->table = plan_alloc(p, sizeof *p->table, n);
    for (int d = 0; d < 2; d++)
        p->program[d].node = plan_alloc(p, sizeof *p->program[d].node, n);
    return p;
}

Plan *plan_read(Compiler *c, const char *text, size_t len, const char **pass, const char **wrong)
{
    static const char mark[] = "\nplan ";
    const char *at = memmem(text, len, mark, sizeof mark - 1), *end = text + len;
    Module *m = at ? ir_parse_tried(c, text, (size_t)(at + 1 - text)) : NULL;
    *wrong = !at ? "there is no line that begins with 'plan'" : "its module is no IR";
    if (!m)
        return NULL;
    Reader r = { .c = c, .m = m, .p = plan_empty(m) };
    for (at++; at < end && !r.wrong; at = r.end + 1) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        r.at = at;
        r.end = stop ? stop : end;
        r.line++;
        if (r.line > 1)
            read_line(&r);
        else if (accept(&r, "plan"))
            line_plan(&r);
        if (!r.p->schedule && !r.wrong)
            fail(&r, "expected 'plan'");
        r.end = stop ? stop : end;
    }
    *pass = r.after;
    *wrong = r.wrong;
    return r.wrong ? NULL : r.p;
}
