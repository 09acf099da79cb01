/* gemm_launch.c: the operations of a launch plan that walk all steps in one kernel: a panel, a head in a
 * block or a cluster, columns of a sequence in blocks. In: what the plan has of them, and their forms
 * (resident_forms.h). */
#include "launch/emit_plan.h"
#include "panel.h"
#include "resident_forms.h"

/* Blocks post to counters, which are 0 before. */
static void print_posts(Print *e, const Panel *w, const char *when, const Poly *posts)
{
    buf_f(&e->ops,
          "    { .name = \"posts\", .kind = CELL_OP_FILL, .when = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          when, emit_buffer_number(e, w->posts), emit_poly_expr(e, poly_mul(e->p->m, posts, poly_const(e->p->m, 4))));
    e->n_ops++;
}

/* Neither the kernel of heads nor that of clusters runs; NULL: there is none. */
static const Formula *and_neither(Module *m, const Formula *x, const Panel *head, const Panel *cluster)
{
    if (head)
        x = formula_and(m, x, formula_not(m, head_fits(m, head)));
    return cluster ? formula_and(m, x, formula_not(m, cluster_fits(m, cluster))) : x;
}

/* The kernel's number in the table. */
static int head_number(Print *e, const Panel *w)
{
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s },\n", HEAD_THREADS, emit_expr(e, head_bytes(e->p, w)));
    return kernel;
}

static int cluster_number(Print *e, const Panel *w)
{
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cluster = %d },\n", CLUSTER_THREADS,
          emit_expr(e, cluster_bytes(e->p->m, w)), CLUSTER_BLOCKS);
    return kernel;
}

/* cluster: the kernel of clusters that have a head, or NULL; where that is faster, this does not run. */
static void print_head(Print *e, const Panel *w, int kernel, const Panel *cluster)
{
    Module *m = e->p->m;
    const Formula *when = head_fits(m, w);
    if (cluster && cluster_may_pay(w))
        when = formula_and(m, when, formula_not(m, cluster_pays(m, cluster)));
    emit_walk_op(e, w->kernel, &w->refs, head_grid(m, w), emit_expr(e, when), kernel);
}

/* head: the kernel of blocks that have a head, or NULL; where that runs, this does not. */
static void print_cluster(Print *e, const Panel *w, int kernel, const Panel *head)
{
    Module *m = e->p->m;
    const Formula *when = cluster_fits(m, w);
    if (head && cluster_may_pay(w))
        when = formula_and(m, when, formula(m, F_OR, formula_not(m, head_fits(m, head)), cluster_pays(m, w)));
    else
        when = and_neither(m, when, head, NULL);
    emit_walk_op(e, w->kernel, &w->refs, cluster_grid(m, w), emit_expr(e, when), kernel);
}

/* Behind the kernels of the program that come before it. */
static void print_grid_panel(Print *e, const Panel *w, const Panel *const *before, int n)
{
    Module *m = e->p->m;
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cluster = %d, .cooperative = 1 },\n", PANEL_THREADS,
          emit_expr(e, panel_bytes(e->p, w)), w->split);
    const GemmWalks *walks = gemm_walks(e->pr);
    const Formula *fits = and_neither(m, panel_fits(e->p, w), walks->head, walks->cluster);
    for (int i = 0; i < n; i++)
        fits = formula_and(m, fits, formula_not(m, panel_fits(e->p, before[i])));
    const char *when = emit_expr(e, fits);
    print_posts(e, w, when, poly_const(m, panel_posts(w)));
    emit_walk_op(e, w->kernel, &w->refs, panel_grid(m, w), when, kernel);
}

static const Formula *print_columns(Print *e)
{
    Module *m = e->p->m;
    const Panel *w = gemm_walks(e->pr)->columns;
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cooperative = 90 },\n", COLUMNS_THREADS, emit_expr(e, columns_bytes(m, w)));
    e->walked = columns_fit(m, w);
    const char *when = emit_expr(e, e->walked);
    print_posts(e, w, when, columns_posts(e->p));
    emit_walk_op(e, w->kernel, &w->refs, columns_grid(m, w->units), when, kernel);
    return formula_not(m, e->walked);
}

static const Formula *print_panels(Print *e)
{
    Module *m = e->p->m;
    const Panel *w = gemm_walks(e->pr)->panel, *h = gemm_walks(e->pr)->head, *c = gemm_walks(e->pr)->cluster;
    if (gemm_walks(e->pr)->columns)
        return print_columns(e);
    if (!w && !h && !c)
        return NULL;
    int head = h ? head_number(e, h) : -1, cluster = c ? cluster_number(e, c) : -1;
    if (h)
        print_head(e, h, head, c);
    if (c)
        print_cluster(e, c, cluster, h);
    if (h)
        e->headed = head_fits(m, h);
    if (c)
        e->headed = h ? formula(m, F_ADD, e->headed, cluster_fits(m, c)) : cluster_fits(m, c);
    if (e->headed)
        emit_states(e, e->pr->dir == FORWARD ? STATE_INIT : STATE_SEED);
    const Panel *all[] = { gemm_walks(e->pr)->wide, gemm_walks(e->pr)->pairs, w }, *grids[3];
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (all[i]) {
            print_grid_panel(e, all[i], grids, n);
            grids[n++] = all[i];
        }
    e->walked = e->headed;
    for (int i = 0; i < n; i++)
        e->walked = e->walked ? formula(m, F_ADD, e->walked, panel_fits(e->p, grids[i])) : panel_fits(e->p, grids[i]);
    return formula_not(m, e->walked);
}

bool gemm_begins(const Program *pr)
{
    return gemm_walks(pr)->head || gemm_walks(pr)->cluster;
}

bool gemm_launch(Print *e, const Formula **loop)
{
    *loop = print_panels(e);
    return true;
}
