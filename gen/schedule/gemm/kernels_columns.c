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

/* How a loop over some of the thread's columns and units is printed. */
static const struct Part { const char *count, *unit, *column, *condition; } parts[] = {
    [COLUMNS_OF_UNIT] = { "2", "panel.unit(j * 2)", NULL, NULL },
    [COLUMNS_OF_COLUMN] = { "16", NULL, "panel.column(j / 2 * 4 + j % 2)", NULL },
    [COLUMNS_OF_BOTH] = { "panel.elements", "panel.unit_at(j)", "panel.column_at(j)", "if (panel.mine(j))" },
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
    if (gemm(k)->w->sums)
        buf_line(k->out, "cell_smem<float> scratch = cell_carve<float>(cursor, %d);", COLUMNS_SUMS);
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
    *elements = (Buf){ .arena = out->arena, .indent = 4 };
    *totals = (Buf){ .arena = out->arena, .indent = 3 };
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

static void put_text(Kernel *k, const Buf *text)
{
    buf_f(k->out, "%s", text->data ? text->data : "");
}

static void open_part(Kernel *k, const struct Part *part)
{
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int j = 0; j < %s; j++)", part->count);
    if (part->unit)
        buf_line(k->out, "[[maybe_unused]] const int64_t %s = %s;", gemm(k)->columns->unit, part->unit);
    if (part->column)
        buf_line(k->out, "[[maybe_unused]] const int64_t %s = %s;", gemm(k)->columns->column, part->column);
    if (part->condition) {
        buf_line(k->out, "[[maybe_unused]] const int %s = panel.at(j);", gemm(k)->columns->own);
        k_open(k, "%s", part->condition);
    }
}

static void close_part(Kernel *k, const struct Part *part)
{
    if (part->condition)
        k_close(k);
    k_close(k);
}

static void close_lambda(Kernel *k)
{
    k->out->indent--;
    buf_line(k->out, "};");
}

static void print_reads(Kernel *k)
{
    ColumnsText *c = gemm(k)->columns;
    put_text(k, &c->names);
    k_open(k, "const auto read = [&]([[maybe_unused]] int64_t t)");
    k_declare_rows(k);
    buf_line(k->out, "[[maybe_unused]] const int64_t own_unit = panel.own_unit();");
    put_text(k, &c->reads[COLUMNS_OF_NONE]);
    put_text(k, &c->row_names[0]);
    for (int part = COLUMNS_OF_UNIT; part <= COLUMNS_OF_BOTH; part++) {
        if (!c->reads[part].data)
            continue;
        open_part(k, &parts[part]);
        put_text(k, &c->reads[part]);
        close_part(k, &parts[part]);
    }
    close_lambda(k);
}

static const char *kept_names(Kernel *k)
{
    const char *names = "";
    for (int i = 0; i < gemm(k)->columns->kept.len; i++)
        names = k_text(k, "%s, &kept_%d", names, i);
    return names;
}

/* What a step leaves in memory for what comes after the walk, element by element. */
static void print_late(Kernel *k)
{
    ColumnsText *c = gemm(k)->columns;
    if (!c->late.data)
        return;
    for (int i = 0; i < c->kept.len; i++)
        buf_line(k->out, "%s kept_%d[panel.elements] = {};", k->real, i);
    k_open(k, "const auto store = [&]([[maybe_unused]] int64_t t)");
    k_declare_rows(k);
    put_text(k, &c->row_names[1]);
    k_open(k, "return [=, &panel%s](int j)", kept_names(k));
    buf_line(k->out, "[[maybe_unused]] const int64_t %s = panel.unit_at(j), %s = panel.column_at(j);", c->unit,
             c->column);
    buf_line(k->out, "[[maybe_unused]] const int %s = panel.at(j);", c->own);
    k_open(k, "if (panel.mine(j))");
    put_text(k, &c->late);
    k_close(k);
    close_lambda(k);
    close_lambda(k);
}

static void print_setup(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    const ResidentProduct *x = w->products;
    Buf *out = k->out;
    const char *type = k_type(k->p->dtype), *offset = poly_text(&k->printer, x->weight_offset);
    buf_line(out, "auto cursor = cell_shared();");
    buf_line(out, "cell_columns<%s> panel;", type);
    buf_line(out, "panel.carve(cursor, %s, %s, dim_B, %s,", k_poly(k, w->units), k_poly(k, w->columns),
             k_written(k, REF_BUFFER, w->exchange_buffer, k->p->dtype));
    buf_line(out, "            reinterpret_cast<unsigned int *>(%s));",
             k_written(k, REF_BUFFER, w->posts_buffer, DT_I32));
    buf_line(out, "panel.load(%s%s%s, %s, %s);", resident_weight(k, x), x->weight_offset->nterms ? " + " : "",
             x->weight_offset->nterms ? offset : "", poly_text(&k->printer, x->row_stride),
             poly_text(&k->printer, x->k_stride));
    buf_line(out, "const int64_t b = panel.sequence;");
}

static const char *carried_at(Kernel *k, const char *half)
{
    const Poly *elements = tensor_elements(k->p->m, columns_state(k->p, gemm(k)->w));
    return k_text(k, "%s + (%s * dim_B + b) * %s + panel.at(j)",
                  k_written(k, REF_CARRY, columns_state(k->p, gemm(k)->w), k->p->compute), half,
                  k_poly(k, elements));
}

/* The adjoint of the final state takes the place of the first product, that of the initial one is the
 * last. */
static void print_carried(Kernel *k, bool first)
{
    buf_line(k->out, "CELL_UNROLL");
    buf_line(k->out, "for (int j = 0; j < panel.elements; j++)");
    if (first) {
        buf_line(k->out, "    panel.sum[j] = panel.mine(j) ? *(%s) : 0;", carried_at(k, "(dim_T & 1)"));
        return;
    }
    buf_line(k->out, "    if (panel.mine(j))");
    buf_line(k->out, "        cell_store(%s, panel.sum[j]);", carried_at(k, "0"));
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
static void print_multiply(Kernel *k)
{
    bool behind = k->pr->dir == FORWARD && !mutate("early-column");
    const char *t = behind ? "t > 0 ? t - 1 : 0" : "t";
    k_comment(k, gemm(k)->w->products[0].group->arrays.data[0]);
    buf_line(k->out, "panel.multiply(%s);",
             gemm(k)->columns->late.data ? k_text(k, "store(%s)", t) : "[](int) {}");
}

static void print_step_elements(Kernel *k, const Buf *elements, const Named *sums)
{
    for (int i = 0; i < sums->len; i++)
        buf_line(k->out, "%s %s[2] = {};", k->real, k->value[sums->data[i]] + strlen("total_"));
    for (int i = 0; i < gemm(k)->step_sums.len; i++)
        buf_line(k->out, "float %s[16] = {};", gemm(k)->step_sums.data[i].name);
    open_part(k, &parts[COLUMNS_OF_BOTH]);
    put_text(k, elements);
    close_part(k, &parts[COLUMNS_OF_BOTH]);
}

static void print_step_totals(Kernel *k, const Buf *totals, const Named *sums)
{
    for (int i = 0; i < sums->len; i++)
        buf_line(k->out, "[[maybe_unused]] const %s %s = panel.total(%s);", k->real, k->value[sums->data[i]],
                 k->value[sums->data[i]] + strlen("total_"));
    k_open(k, "if (panel.has_unit())");
    put_text(k, totals);
    k_close(k);
}

/* Behind the last step nothing is multiplied, so nobody waits for what its operand would be. */
static void print_give(Kernel *k)
{
    const Storage *st = &k->pr->node[gemm(k)->w->products[0].operand];
    if (k->pr->dir == FORWARD) {
        buf_line(k->out, "if (t + 1 < dim_T)");
        buf_line(k->out, "    panel.give(all ? %s : nullptr);",
                 k_before_step(k, columns_state(k->p, gemm(k)->w), 1));
        return;
    }
    buf_line(k->out, "panel.give(%s + %s * %s);",
             k_written(k, REF_NODE, gemm(k)->w->products[0].operand, st->dtype), k_step_row(k, st),
             k_poly(k, array_elements(k->p->m, gemm(k)->w->products[0].operand)));
}

/* What the last step leaves; where there was none, the kernel of the initial states has left the final
 * ones. */
static void print_end(Kernel *k)
{
    k_open(k, "if (dim_T > 0)");
    if (gemm(k)->columns->late.data)
        buf_line(k->out, "const auto store_last = store(dim_T - 1);");
    open_part(k, &parts[COLUMNS_OF_BOTH]);
    if (gemm(k)->columns->late.data)
        buf_line(k->out, "store_last(j);");
    put_text(k, &gemm(k)->columns->last);
    close_part(k, &parts[COLUMNS_OF_BOTH]);
    k_close(k);
}

static void print_forward(Kernel *k, const Buf *elements, const Buf *totals, const Named *sums)
{
    k_open(k, "if (dim_T > 0)");
    buf_line(k->out, "panel.take(%s);", first_operand(k));
    buf_line(k->out, "panel.give(nullptr);");
    k_close(k);
    k_open(k, "for (int64_t t = 0; t < dim_T; t++)");
    k_declare_rows(k);
    buf_line(k->out, "[[maybe_unused]] const int64_t own_unit = panel.own_unit();");
    buf_line(k->out, "read(t);");
    print_multiply(k);
    print_step_elements(k, elements, sums);
    print_give(k);
    print_step_totals(k, totals, sums);
    k_close(k);
    print_end(k);
}

static void print_backward(Kernel *k, const Buf *elements, const Buf *totals, const Named *sums)
{
    print_carried(k, true);
    buf_line(k->out, "if (dim_T > 0)");
    buf_line(k->out, "    read(dim_T - 1);");
    k_open(k, "for (int64_t t = dim_T - 1; t >= 0; t--)");
    k_declare_rows(k);
    buf_line(k->out, "[[maybe_unused]] const int64_t own_unit = panel.own_unit();");
    print_step_elements(k, elements, sums);
    print_give(k);
    print_step_totals(k, totals, sums);
    add_column_sums(k);
    buf_line(k->out, "if (t > 0)");
    buf_line(k->out, "    read(t - 1);");
    print_multiply(k);
    k_close(k);
    print_carried(k, false);
    leave_column_sums(k);
}

void print_columns(Kernel *k)
{
    ColumnsText c = { .names = { .arena = k->out->arena, .indent = 1 },
                      .late = { .arena = k->out->arena, .indent = 4 },
                      .last = { .arena = k->out->arena, .indent = 4 } };
    const Group *g = k->g;
    Buf elements, totals;
    Named sums = { 0 };
    for (int part = COLUMNS_OF_NONE; part <= COLUMNS_OF_BOTH; part++)
        c.reads[part] = (Buf){ .arena = k->out->arena,
                               .indent = part == COLUMNS_OF_NONE ? 2 : part == COLUMNS_OF_BOTH ? 4 : 3 };
    c.row_names[0] = c.row_names[1] = (Buf){ .arena = k->out->arena, .indent = 2 };
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = k_node(k, g->arrays.data[i]);
        c.unit = a->naxes == 2 ? k_text(k, "i_%s", k->p->m->indices.data[a->axes[1]].name) : c.unit;
        c.column = a->naxes == 2 ? k_text(k, "i_%s", k->p->m->indices.data[a->axes[0]].name) : c.column;
    }
    if (strcmp(c.unit, c.column) == 0)
        c.column = k_text(k, "o%s", c.column + 1);
    c.own = "own_at";
    c.place = k_text(k, "%s * %s + %s", k_poly(k, gemm(k)->w->units), c.column, c.unit);
    gemm(k)->columns = &c;
    k->one_step = true;
    k->t = "t";
    k->b = "b";
    k->row = "bt";
    gemm(k)->step_sums.len = 0;
    print_setup(k);
    print_group(k, &elements, &totals, &sums);
    declare_column_sums(k);
    print_reads(k);
    print_late(k);
    (k->pr->dir == FORWARD ? print_forward : print_backward)(k, &elements, &totals, &sums);
    k_forget(k, &sums);
    gemm(k)->columns = NULL;
}
