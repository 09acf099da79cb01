/* emit_walk.c: the operations of a launch plan that walk over the steps: kernels that take all of them, in
 * order of preference, and the loop of kernels, where none of these may. In: what the plan has of them, and
 * their forms. */
#include "base/mutate.h"
#include "cpu/cpu.h"
#include "emit_cpu.h"
#include "emit_plan.h"

static void print_op(Print *e, const Form *f, const char *when)
{
    emit_limit_refs(e, f->kernel, f->refs);
    const char *blocks = emit_expr(e, f->grid), *each = e->cpu ? emit_cpu_grain(e, f->work) : "NULL";
    int list = emit_refs(e, f->refs), kernel = emit_kernel_index(e, f->kernel);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .when = %s,\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, %s, NULL }, "
          ".refs = %srefs_%d } },\n",
          f->kernel, when, kernel, f->refs->len, blocks, each, e->tag, list);
    e->n_ops++;
}

static void print_row(Print *e, const Form *f)
{
    if (emit_has_kernel(e, f->kernel))
        return;
    if (e->cpu) {
        buf_f(&e->table, ", .code = code, .number = %d", emit_cpu_row(e, f->kernel));
    } else {
        emit_kernel_number(e, f->kernel);
        buf_f(&e->table, ", .threads = %d", f->threads);
    }
    if (f->bytes)
        buf_f(&e->table, ", .smem = %s", emit_expr(e, f->bytes));
    if (f->cluster > 1)
        buf_f(&e->table, ", .cluster = %d", f->cluster);
    if (f->cooperative)
        buf_f(&e->table, ", .cooperative = %d", f->cooperative);
    buf_f(&e->table, " },\n");
}

static void print_posts(Print *e, const Form *f)
{
    buf_f(&e->ops,
          "    { .name = \"posts\", .kind = CELL_OP_FILL,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          emit_buffer_number(e, f->posts_buffer),
          emit_poly_expr(e, poly_mul(e->p->m, f->posts, poly_const(e->p->m, 4))));
    e->n_ops++;
}

static int first_states(const Print *e)
{
    return e->pr->dir == FORWARD ? STATE_INIT : STATE_SEED;
}

/* states: other kernels begin the walk, where this one does not. */
static void print_form(Print *e, const Form *f, bool states)
{
    bool several = f->posts || (states && !f->own_states);
    print_row(e, f);
    const char *when = emit_expr(e, f->when);
    if (!several) {
        print_op(e, f, when);
        return;
    }
    Opened list = emit_open(e);
    if (states && !f->own_states)
        emit_states(e, first_states(e));
    if (f->posts)
        print_posts(e, f);
    print_op(e, f, "NULL");
    emit_list_end(e, &list, f->kernel, when);
}

/* The steps' kernels, over and over. */
static void print_loop(Print *e)
{
    Module *m = e->p->m;
    bool back = (e->pr->dir == BACKWARD) != m->c->reverse;     /* the loop's variable is the row in memory */
    const Poly *T = poly_dim(m, ATOM_T), *one = poly_const(m, 1), *minus = poly_const(m, -1);
    Opened loop = emit_open(e);
    emit_phase(e, PHASE_DURING);
    if (emit_drop_empty(e, &loop))
        return;
    const char *from = back ? emit_poly_expr(e, poly_sub(m, T, one)) : emit_poly_expr(e, poly_const(m, 0));
    const char *to = back ? emit_poly_expr(e, minus) : emit_poly_expr(e, T);
    const Formula *strands = e->cpu ? cpu_strands(e->p, e->pr) : NULL;
    const char *apart = strands ? intern_f(m->c, ".strands = %s, ", emit_expr(e, strands)) : "";
    const char *head = intern_f(m->c, ".kind = CELL_OP_LOOP, .flags = CELL_OP_GRAPH,\n"
                                      "      .u.loop = { .from = %s, .to = %s, .step = %d, %s.n_ops = ",
                                from, to, back ? -1 : 1, apart);
    emit_close(e, &loop, "steps", head);
}

static void print_steps(Print *e, bool states)
{
    Opened list = emit_open(e);
    if (states)
        emit_states(e, first_states(e));
    print_loop(e);
    emit_list_end(e, &list, "step by step", "NULL");
}

/* What steps add to begins with zeros. */
static void print_sums(Print *e)
{
    const Plan *p = e->p;
    for (NodeId id = 0; p->summed && e->pr->dir == BACKWARD && id < p->n_nodes; id++) {
        const Storage *st = &e->pr->node[id];
        if (!p->summed[id])
            continue;
        const Poly *rows = poly_mul(p->m, poly_dim(p->m, ATOM_B), array_elements(p->m, id));
        buf_f(&e->ops,
              "    { .name = \"sums\", .kind = CELL_OP_FILL,\n"
              "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
              emit_storage_buffer(e, st),
              emit_poly_expr(e, poly_mul(p->m, rows, poly_const(p->m, dtype_bytes(st->dtype)))));
        e->n_ops++;
    }
}

/* The kernels of a walk beside the module, one behind the other, of which each may have several forms. */
static void print_stages(Print *e, int level)
{
    for (int n = 0;; n++) {
        FormList forms = { 0 };
        if (!e->p->schedule->stage(e->p, e->pr, level, n, &forms))
            return;
        bool choice = forms.len > 1;
        Opened all;
        if (choice)
            all = emit_open(e);
        for (int i = 0; i < forms.len; i++)
            print_form(e, &forms.data[i], false);
        if (choice)
            emit_forms_end(e, &all, forms.data[0].words);
    }
}

/* The walk of the module's own states. */
static void emit_own(Print *e, bool states)
{
    Module *m = e->p->m;
    FormList forms = { 0 };
    int own = 0;                  /* such forms come first */
    if (e->p->schedule->forms)
        e->p->schedule->forms(e->p, e->pr, &forms);
    for (int i = 0; i < forms.len; i++)
        own += forms.data[i].own_states;
    print_sums(e);
    /* Behind what comes before the walk: a step's first kernel may start while the one before the loop
     * ends. */
    if (states && !own)
        emit_states(e, first_states(e));
    if (forms.len == 0) {
        print_loop(e);
        return;
    }
    bool always = !forms.data[forms.len - 1].when;
    if (forms.len == 1 && always) {
        print_form(e, &forms.data[0], false);
        return;
    }
    Opened all = emit_open(e);
    for (int i = 0; i < forms.len; i++)
        print_form(e, &forms.data[i], states && own > 0);
    if (!always)
        print_steps(e, states && own > 0);
    emit_forms_end(e, &all, "walk");
    const Formula *taken = formula_leaf(m, F_FORM, all.at);
    e->walked = formula_with(m, F_LT, taken, forms.len);
    e->own_states = own ? formula_with(m, F_LT, taken, own) : NULL;
}

void emit_walk(Print *e, bool states)
{
    const Plan *p = e->p;
    if (!p->schedule->stage) {
        emit_own(e, states);
        return;
    }
    bool steps = plan_steps(p);
    int own = steps ? plan_walk_place(p, e->pr->dir, -1) : -1, walks = plan_walk_count(p);
    if (states && (steps || e->pr->dir == FORWARD))
        emit_states(e, first_states(e));
    for (int i = 0; i < walks; i++) {
        if (i == own)
            emit_own(e, false);
        for (int level = 0; level < p->m->levels; level++)
            if (plan_walk_place(p, e->pr->dir, level) == i)
                print_stages(e, level);
        if (i + 1 < walks && !(mutate("lost-between") && e->pr->dir == BACKWARD))
            emit_phase(e, (Phase)((int)PHASE_BETWEEN + i));
    }
}
