/* kernels_columns.c: CUDA text of the kernel that walks all steps of schedule gemm in blocks that have some
 * units of one sequence each (resident_columns.c). In comes a ResidentWalk; out goes a cooperative kernel:
 * a thread has the product's sums of some columns and units, its elements. What a step reads and no block
 * makes is asked for before the product; what no block waits for is stored while tensor cores work on the
 * next one. */
#include <string.h>

#include "base/mutate.h"
#include "kernels/kernels.h"
#include "kernels_resident.h"
#include "resident.h"
#include "templates/columns.h"

/* How a loop over some of the thread's columns and units is printed. */
static const struct Part {
    const char *count, *unit, *column;
} parts[] = {
    [COLUMNS_OF_UNIT] = { "2", "panel.unit(j * 2)", NULL },
    [COLUMNS_OF_COLUMN] = { "16", NULL, "panel.column(j / 2 * 4 + j % 2)" },
    [COLUMNS_OF_BOTH] = { "panel.elements", "panel.unit_at(j)", "panel.column_at(j)" },
};

/* ---- reads ---- */

/* An address at the element's place, from a pointer to the step's first, which is made once. */
static const char *from_row(Kernel *k, bool stores, const char *type, const char *at)
{
    ColumnsText *c = gemm(k)->columns;
    const char *end = strstr(at, c->own);
    bool first;
    if (!end || strcmp(end, c->own) != 0 || end - at < 3)
        return at;
    const char *row = k_text(k, "%.*s", (int)(end - at) - 3, at);
    int n = k_number(k, &c->rows[stores], row, &first);
    const char *name = k_text(k, stores ? "to_%d" : "from_%d", n);
    if (first) {
        buf_line(&c->row_names[stores], "%s%s *%s = %s;", stores ? "" : "const ", type, name, row);
        buf_line(&c->row_names[stores], "cell_keep(%s);", name);
    }
    return k_text(k, "%s + %s", name, c->own);
}

/* The same for what loads from pointer p. */
static const char *read_from_row(Kernel *k, const char *p, const char *load)
{
    const char *open = strchr(load, '('), *close = strrchr(load, ')');
    for (int i = 0; open && close[1] == 0 && i < k->pointers.len; i++)
        if (strcmp(k->pointers.data[i].name, p) == 0)
            return k_text(k, "%.*s(%s)", (int)(open - load), load,
                          from_row(k, false, k_type(k->pointers.data[i].type),
                                   k_text(k, "%.*s", (int)(close - open) - 1, open + 1)));
    return load;
}

static ColumnsPart part_of(const ColumnsText *c, const char *s)
{
    bool unit = strstr(s, c->unit), column = strstr(s, c->column);
    if (strstr(s, c->own) || (unit && column))
        return COLUMNS_OF_BOTH;
    return unit ? COLUMNS_OF_UNIT : column ? COLUMNS_OF_COLUMN : COLUMNS_OF_NONE;
}

/* What is read before the product, by what it depends on: the thread's local, or an element of an array of
 * them. */
static const char *early(Kernel *k, const char *p, const char *s)
{
    ColumnsText *c = gemm(k)->columns;
    ColumnsPart part = part_of(c, s);
    static const char *const at[] = { "", "[j / 2 % 2]", "[j / 4 * 2 + j % 2]", "[j]" };
    const char *name = names_fresh(&k->locals, k_text(k, "x_%s", p + 2));
    RowRead read = { .text = s, .name = k_text(k, "%s%s", name, at[part]) };
    const char *load = read_from_row(k, p, s);
    if (part == COLUMNS_OF_NONE)
        buf_line(&c->names, "%s %s = 0;", k->real, name);
    else
        buf_line(&c->names, "%s %s[%s] = {};", k->real, name, parts[part].count);
    buf_line(&c->reads[part], "%s%s = %s;", name, part == COLUMNS_OF_NONE ? "" : "[j]", k_bare(k, load));
    vec_push(k->p->m->arena, &k->reads, read);
    return read.name;
}

static const char *held(Kernel *k, const Read *r)
{
    const Module *m = k->p->m;
    const Tensor *x = r->is_tensor ? &m->tensors.data[r->id] : NULL;
    NodeId id = !x ? r->id : x->kind == T_DNEXT ? m->roots.data[x->of].dprev : -1;
    return id >= 0 && id == gemm(k)->w->products[0].group->arrays.data[0] ? "panel.sum[j]" : NULL;
}

static const char *place(Kernel *k, const char *within)
{
    return strcmp(within, gemm(k)->columns->place) == 0 ? gemm(k)->columns->own : within;
}

/* Up to its number. */
static const char *buffer(Kernel *k, int id)
{
    const char *name = k->p->buffers.data[id].name;
    return k_text(k, "%.*s", (int)strcspn(name, " "), name);
}

/* ---- writes ---- */

/* The product's operand. */
static bool takes(Kernel *k, int slot, const char *value)
{
    if (k->pr->node[gemm(k)->w->products[0].operand].slot != slot)
        return false;
    if (!mutate("unput-column"))
        buf_line(k->out, "panel.put(j, %s);", value);
    return true;
}

/* An element's value stays in a register until it is stored; gives its text then. */
static const char *keep(Kernel *k, const char *value)
{
    bool first;
    ColumnsText *c = gemm(k)->columns;
    int n = k_number(k, &c->kept, value, &first);
    if (first)
        buf_line(k->out, "kept_%d[j] = %s;", n, value);
    return k_text(k, "kept_%d[j]", n);
}

static bool stores_last(Kernel *k, const char *final, const char *at, const char *value)
{
    Buf *last = &gemm(k)->columns->last;
    if (!gemm(k)->columns->element)
        return false;
    buf_line(last, "if (%s)", final);
    buf_line(last, "    cell_store(%s + %s, %s);", final, at, keep(k, value));
    return true;
}

static void stores(Kernel *k, Stored *s)
{
    if (!gemm(k)->columns->element)
        return;
    s->value = keep(k, s->value);
    s->where = from_row(k, true, k_type(s->st->dtype), s->where);
    s->out = &gemm(k)->columns->late;
    if (!strstr(s->where, gemm(k)->columns->own))
        bug(k->p->m->c, "kernels", "a step stores elements in another order than it has them");
}

static int resident(const Kernel *k)
{
    (void)k;
    return 1;
}

const KernelHooks columns_hooks = {
    .all_steps = true,
    .resident = resident,
    .buffer = buffer,
    .place = place,
    .held = held,
    .early = early,
    .takes = takes,
    .stores_last = stores_last,
    .stores = stores,
};

/* ---- the group ---- */

static bool is_sum(const Kernel *k, NodeId id)
{
    return k_node(k, id)->naxes == k->g->naxes && plan_reduces(k->p, id);
}

static void print_term(Kernel *k, NodeId id)
{
    Node r = *k_node(k, k_node(k, id)->args[0]);
    Named named = { 0 };
    k_bind_axes(k, id);
    k->index[r.bound[0]] = gemm(k)->columns->column;
    k_comment(k, id);
    buf_line(k->out, "%s[j / 2 %% 2] += %s;", k->value[id], k_body(k, r.args[0], &named));
    k_forget(k, &named);
}

/* ---- sums of columns over all steps ---- */

static bool takes_sums(const Kernel *k, const Group *sums)
{
    return sums->by_steps && &k->pr->groups.data[sums->by_steps - 1] == k->g;
}

static void print_column_term(Kernel *k, const Group *sums, int number)
{
    NodeId id = columns_term(k->p, sums->arrays.data[number]);
    Node a = *k_node(k, id), r = *k_node(k, a.args[0]);
    Named named = { 0 };
    StepSum s = { .name = k_local(k, "c", id), .buffer = sums->partial, .number = number };
    k->index[a.axes[0]] = gemm(k)->columns->column;
    k->index[r.bound[0]] = gemm(k)->columns->unit;
    k_comment(k, id);
    buf_line(k->out,
             mutate("last-column") ? "%s[j / 4 * 2 + j %% 2] = %s;" : "%s[j / 4 * 2 + j %% 2] += %s;", s.name,
             k_body(k, r.args[0], &named));
    vec_push(k->p->m->arena, &gemm(k)->step_sums, s);
    k_forget(k, &named);
}

static void print_column_terms(Kernel *k)
{
    for (int i = 0; i < k->pr->groups.len; i++) {
        const Group *sums = &k->pr->groups.data[i];
        for (int j = 0; takes_sums(k, sums) && j < sums->arrays.len; j++)
            print_column_term(k, sums, j);
    }
}

static void declare_column_sums(Kernel *k)
{
    for (int i = 0; i < gemm(k)->step_sums.len; i++)
        buf_line(k->out, "float all_%s[2] = {};", gemm(k)->step_sums.data[i].name);
}

static void add_column_sums(Kernel *k)
{
    for (int i = 0; i < gemm(k)->step_sums.len; i++)
        buf_line(k->out, "panel.add(all_%s, %s);", gemm(k)->step_sums.data[i].name,
                 gemm(k)->step_sums.data[i].name);
}

/* A row of each block. */
static void leave_column_sums(Kernel *k)
{
    for (int i = 0; i < gemm(k)->step_sums.len; i++) {
        const StepSum *s = &gemm(k)->step_sums.data[i];
        const char *block = "cell_block_index(0)";
        if (s->number)
            block = k_text(k, "(%d * cell_block_count(0) + %s)", s->number, block);
        buf_line(k->out, "panel.leave(scratch, all_%s, %s + %s * %s);", s->name,
                 k_written(k, REF_BUFFER, s->buffer, k->p->compute), block, k_poly(k, gemm(k)->w->columns));
    }
}

/* ---- the group's elements and totals ---- */

/* The thread's elements, and what they add to its units' sums. */
static void print_elements(Kernel *k)
{
    const Group *g = k->g;
    Named kept = { 0 };
    k->own[0] = gemm(k)->columns->unit;
    gemm(k)->columns->element = true;
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        if (k_node(k, id)->naxes == g->naxes)
            continue;
        k_bind_axes(k, id);
        k->index[k_node(k, id)->axes[0]] = gemm(k)->columns->column;
        k_element(k, id, &kept);
    }
    for (int i = 0; i < g->arrays.len; i++)
        if (is_sum(k, g->arrays.data[i]))
            print_term(k, g->arrays.data[i]);
    print_column_terms(k);
    k_forget(k, &kept);
    gemm(k)->columns->element = false;
}

/* What is left of a unit, when its sums are known. */
static void print_totals(Kernel *k)
{
    const Group *g = k->g;
    Named kept = { 0 };
    k->own[0] = "own_unit";
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        if (k_node(k, id)->naxes > g->naxes)
            continue;
        k_bind_axes(k, id);
        if (!is_sum(k, id))
            k_element(k, id, &kept);
        else if (k_is_stored(k, id))
            k_store(k, id, k->value[id]);
    }
    k_forget(k, &kept);
}

static void print_group(Kernel *k, Buf *elements, Buf *totals, Named *sums)
{
    Buf *out = k->out;
    *elements = *totals = (Buf){ .arena = out->arena };
    k->gathers = true;
    for (int i = 0; i < k->g->arrays.len; i++)
        if (is_sum(k, k->g->arrays.data[i])) {
            k->value[k->g->arrays.data[i]] = k_local(k, "a", k->g->arrays.data[i]);
            vec_push(k->p->m->arena, sums, k->g->arrays.data[i]);
        }
    k->out = elements;
    print_elements(k);
    for (int i = 0; i < sums->len; i++)
        k->value[sums->data[i]] = k_text(k, "total_%s", k->value[sums->data[i]]);
    k->out = totals;
    print_totals(k);
    k->out = out;
    k->gathers = false;
    k->prefetches.len = 0;
}

/* ---- the walk ---- */

static void print_loop(Kernel *k, ColumnsPart which, const char *body)
{
    const struct Part *part = &parts[which];
    const ColumnsText *c = gemm(k)->columns;
    ColumnsLoopFrame f = {
        .count = part->count, .unit_at = part->unit, .column_at = part->column, .body = body
    };
    f.unit = part->unit ? c->unit : NULL;
    f.column = part->column ? c->column : NULL;
    f.own = which == COLUMNS_OF_BOTH ? c->own : NULL;
    columns_loop_frame(k->out, &f);
}

static void print_read_loops(Kernel *k)
{
    for (ColumnsPart part = COLUMNS_OF_UNIT; part <= COLUMNS_OF_BOTH; part++)
        if (gemm(k)->columns->reads[part].data)
            print_loop(k, part, gemm(k)->columns->reads[part].data);
}

static const char *kept_names(Kernel *k)
{
    const char *names = "";
    for (int i = 0; i < gemm(k)->columns->kept.len; i++)
        names = k_text(k, "%s, &kept_%d", names, i);
    return names;
}

static void declare_kept(Kernel *k)
{
    for (int i = 0; i < gemm(k)->columns->kept.len; i++)
        buf_line(k->out, "%s kept_%d[panel.elements] = {};", k->real, i);
}

static void print_late(Kernel *k)
{
    const ColumnsText *c = gemm(k)->columns;
    if (!c->late.data)
        return;
    ColumnsStoreFrame f = { .own = c->own, .stores = c->late.data };
    f.kept = k_lines_of(k, declare_kept);
    f.rows = k_lines_of(k, k_declare_rows);
    f.store_rows = template_lines(&c->row_names[1]);
    f.captures = kept_names(k);
    columns_store_frame(k->out, &f);
}

static void set_up(Kernel *k, ColumnsFrame *f)
{
    const ResidentWalk *w = gemm(k)->w;
    const ResidentProduct *x = w->products;
    f->type = k_type(k->p->dtype);
    f->units = k_poly(k, w->units);
    f->columns = k_poly(k, w->columns);
    f->exchange = k_written(k, REF_BUFFER, w->exchange_buffer, k->p->dtype);
    f->posts = k_written(k, REF_BUFFER, w->posts_buffer, DT_I32);
    f->weight = resident_weight_from(k, x);
    f->row = poly_text(&k->printer, x->row_stride);
    f->k = poly_text(&k->printer, x->k_stride);
    f->scratch = w->sums ? k_text(k, "%d", COLUMNS_SUMS) : NULL;
}

static const char *carried_at(Kernel *k, const char *half)
{
    const Poly *elements = tensor_elements(k->p->m, columns_state(k->p, gemm(k)->w));
    return k_text(k, "%s + (%s * dim_B + b) * %s + panel.at(j)",
                  k_written(k, REF_CARRY, columns_state(k->p, gemm(k)->w), k->p->compute), half,
                  k_poly(k, elements));
}

static const char *first_operand(Kernel *k)
{
    const char *t = k->t, *row = k->row;
    k->t = "0";
    k->row = NULL;
    const char *at = k_before_step(k, columns_state(k->p, gemm(k)->w), 0);
    k->t = t;
    k->row = row;
    return at;
}

/* Forward stores what the step before left; the first one stores nothing of it, where its own will be
 * stored. */
static const char *stored_behind(Kernel *k)
{
    bool before = k->pr->dir == FORWARD && !mutate("early-column");
    return gemm(k)->columns->late.data ? k_text(k, "store(%s)", before ? "t > 0 ? t - 1 : 0" : "t")
                                       : "[](int) {}";
}

static const char *step_elements(Kernel *k, const Buf *elements, const Named *sums)
{
    Buf text, *out = k_divert(k, &text);
    for (int i = 0; i < sums->len; i++)
        buf_line(k->out, "%s %s[2] = {};", k->real, k->value[sums->data[i]] + strlen("total_"));
    for (int i = 0; i < gemm(k)->step_sums.len; i++)
        buf_line(k->out, "float %s[16] = {};", gemm(k)->step_sums.data[i].name);
    print_loop(k, COLUMNS_OF_BOTH, template_lines(elements));
    return k_lines(k, out);
}

static const char *step_totals(Kernel *k, const Buf *totals, const Named *sums)
{
    Buf text, *out = k_divert(k, &text);
    for (int i = 0; i < sums->len; i++)
        buf_line(k->out, "[[maybe_unused]] const %s %s = panel.total(%s);", k->real, k->value[sums->data[i]],
                 k->value[sums->data[i]] + strlen("total_"));
    ColumnsTotalsFrame f = { .sums = k_lines(k, out), .body = template_lines(totals) };
    out = k_divert(k, &text);
    columns_totals_frame(k->out, &f);
    return k_lines(k, out);
}

/* Where memory has the next operand. Behind the last step nothing is multiplied, so nothing waits for what
 * its operand would be. */
static const char *given(Kernel *k)
{
    NodeId operand = gemm(k)->w->products[0].operand;
    const Storage *st = &k->pr->node[operand];
    if (k->pr->dir == FORWARD)
        return k_text(k, "all ? %s : nullptr", k_before_step(k, columns_state(k->p, gemm(k)->w), 1));
    const char *to = k_written(k, REF_NODE, operand, st->dtype);
    return k_text(k, "%s + %s * %s", to, k_step_row(k, st), k_poly(k, array_elements(k->p->m, operand)));
}

static void print_last(Kernel *k)
{
    Buf body = { .arena = k->out->arena };
    if (gemm(k)->columns->late.data)
        buf_line(&body, "store_last(j);");
    buf_f(&body, "%s", template_lines(&gemm(k)->columns->last));
    print_loop(k, COLUMNS_OF_BOTH, template_lines(&body));
}

static void print_comment(Kernel *k)
{
    k_comment(k, gemm(k)->w->products[0].group->arrays.data[0]);
}

/* The steps. The kernel's pointers are numbered in the order in which they are named. */
static void set_steps(Kernel *k, ColumnsFrame *f, const Buf *elements, const Buf *totals, const Named *sums)
{
    f->forward = k->pr->dir == FORWARD;
    if (f->forward)
        f->first = first_operand(k);
    else
        f->first_sum = carried_at(k, "(dim_T & 1)");
    f->comment = k_lines_of(k, print_comment);
    f->behind = stored_behind(k);
    f->step = step_elements(k, elements, sums);
    f->give = given(k);
    f->ends = step_totals(k, totals, sums);
    f->adds = k_lines_of(k, add_column_sums);
    if (!f->forward)
        f->last_sum = carried_at(k, "0");
    f->last = k_lines_of(k, print_last);
    f->leaves = k_lines_of(k, leave_column_sums);
}

/* The names of an element's unit and column. */
static void name_element(Kernel *k, ColumnsText *c)
{
    const Group *g = k->g;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = k_node(k, g->arrays.data[i]);
        c->unit = a->naxes == 2 ? k_text(k, "i_%s", k->p->m->indices.data[a->axes[1]].name) : c->unit;
        c->column = a->naxes == 2 ? k_text(k, "i_%s", k->p->m->indices.data[a->axes[0]].name) : c->column;
    }
    if (strcmp(c->unit, c->column) == 0)
        c->column = k_text(k, "o%s", c->column + 1);
    c->own = "own_at";
    c->place = k_text(k, "%s * %s + %s", k_poly(k, gemm(k)->w->units), c->column, c->unit);
}

void print_columns(Kernel *k)
{
    const Buf none = { .arena = k->out->arena };
    ColumnsText c = { .names = none, .late = none, .last = none, .row_names = { none, none } };
    ColumnsFrame f = { 0 };
    Buf elements, totals;
    Named sums = { 0 };
    for (int part = COLUMNS_OF_NONE; part <= COLUMNS_OF_BOTH; part++)
        c.reads[part] = none;
    name_element(k, &c);
    gemm(k)->columns = &c;
    k->b = "b";
    k->row = "bt";
    set_up(k, &f);
    print_group(k, &elements, &totals, &sums);
    f.totals = k_lines_of(k, declare_column_sums);
    f.names = template_lines(&c.names);
    f.rows = k_lines_of(k, k_declare_rows);
    f.reads = template_lines(&c.reads[COLUMNS_OF_NONE]);
    f.read_rows = template_lines(&c.row_names[0]);
    f.loops = k_lines_of(k, print_read_loops);
    f.stores = c.late.data;
    f.store = k_lines_of(k, print_late);
    set_steps(k, &f, &elements, &totals, &sums);
    columns_frame(k->out, &f);
    k_forget(k, &sums);
    gemm(k)->columns = NULL;
}
