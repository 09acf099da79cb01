/* kernels_fused.c: kernels that make a product and what is computed next to it (plan_fused.c). In comes the
 * pair; out goes a kernel, built as a tree, with a function for the body of its other group: the device
 * library multiplies, and calls it for 8 neighbours, with those of the product as numbers, or stores those
 * of its left operand before it multiplies them. */
#include "base/mutate.h"
#include "code.h"

/* A function that the device library calls: its place, and what it begins with. */
typedef struct Made {
    Code *x;
    CodeFused *of;
    KirVar *row, *column;
    KirBlock head, body;
    const Group *sums; /* ahead: that the row adds to, or NULL */
    const KirExpr *sum[64];
} Made;

static void add_parameter(Kir *k, KirVar *v)
{
    kir_add(k, (KirStmt){ .kind = KI_PARAMETER, .var = v });
}

static Made made_new(Code *x)
{
    return (Made){ .x = x,
                   .of = x->fused,
                   .row = kir_variable(x->kir, "row", kir_value(KT_I64), false),
                   .column = kir_variable(x->kir, "column", kir_value(KT_I64), false) };
}

static KirOpen open_function(const Made *m, const char *name, const KirExpr **function)
{
    KirOpen open = kir_open_function(m->x->kir, name, function);
    add_parameter(m->x->kir, m->row);
    add_parameter(m->x->kir, m->column);
    return open;
}

/* What is computed for the neighbours from column e of a row on. */
static void build_elements(Made *m)
{
    Code *x = m->x;
    const Group *g = x->k->g;
    const IndexId *axes = k_node(x->k, g->arrays.data[0])->axes;
    int last = g->naxes - 1;
    const KirExpr *column = kir_var(x->kir, m->column), *e = column;
    KirBlock *outside = kir_enter(x->kir, &m->body);
    code_split_row(x, kir_var(x->kir, m->row));
    if (last > 0) {
        const KirExpr *extent = code_size(x, g->axes[last]);
        const KirExpr *outer = code_let(x, "outer", code_binary(x, KB_DIV, column, extent));
        e = code_sub(x, column, code_mul(x, outer, extent));
        e = code_let(x, "e", e);
        code_split_element(x, axes, last, outer, "o");
    } else {
        e = code_let(x, "e", e);
    }
    const CodeNeighbours n = { .along = axes[last], .first = e, .body = code_map_element };
    code_neighbours(x, &n);
    kir_enter(x->kir, outside);
}

typedef struct Matrix {
    const KirExpr *from, *pitch;
} Matrix;

static Matrix matrix(Code *x, const Read *r, const Poly *offset, const Poly *pitch)
{
    const KirExpr *p = code_pointer(x, r->is_tensor ? REF_TENSOR : REF_NODE, r->id, x->k->p->dtype);
    return (Matrix){ code_add(x, p, code_size(x, offset)), code_size(x, pitch) };
}

/* The launch and the library are of one mind. */
static void add_agreement(Code *x)
{
    const KirTemplate planned[] = { { .value = FUSED_SMEM },
                                    { .value = FUSED_MAP_BYTES },
                                    { .value = FUSED_ROWS },
                                    { .value = FUSED_COLUMNS } };
    const KirTemplate rows = { .value = AHEAD_ROWS };
    kir_do(x->kir, kir_call(x->kir, "cell_product_agree", planned, 4, NULL, 0));
    if (x->k->fused->ahead)
        kir_do(x->kir, kir_call(x->kir, "cell_product_ahead_agree", &rows, 1, NULL, 0));
}

static void build_fused(Code *x)
{
    const Fused *f = x->k->fused;
    Kir *k = x->kir;
    NodeId product = f->product->gemm.c.read.id;
    const Storage *st = &x->k->pr->node[product];
    const Matrix a = matrix(x, &f->a, f->a_offset, f->a_pitch), b = matrix(x, &f->b, f->b_offset, f->b_pitch);
    const KirExpr *c = code_written(x, REF_NODE, product, x->k->p->dtype);
    const KirExpr *maps = code_written(x, REF_BUFFER, f->maps, DT_F32), *none = kir_null(k, c->type), *body;
    const KirExpr *kept = f->shared ? c : kir_select(k, x->saves, c, none);
    Made m = made_new(x);
    x->fused->product = c->var;
    build_elements(&m);
    if ((st->home == HOME_WORKSPACE && !f->shared) || mutate("unsaved-product"))
        kept = none;
    add_agreement(x);
    KirOpen function = open_function(&m, "body", &body);
    if (!x->fused->given)
        x->fused->given = kir_array_given(k, "unread", code_real(x), NULL, x->n, false);
    add_parameter(k, x->fused->given);
    kir_append(k, &m.body);
    kir_close(k, function);
    const KirTemplate type = { .type = code_scalar(x->k->p->dtype) };
    const KirExpr *of[] = { a.from,
                            a.pitch,
                            b.from,
                            b.pitch,
                            kept,
                            code_size(x, f->c_pitch),
                            code_size(x, f->rows),
                            code_size(x, f->columns),
                            code_size(x, f->depth),
                            maps,
                            body };
    kir_do(k, kir_call(k, "cell_multiply", &type, 1, of, 11));
}

/* The left operand's elements, and what they add to sums over rows. */
static void made_element(Code *x, void *data)
{
    const Made *m = data;
    const Group *g = x->k->g;
    const KirExpr *here = kir_var(x->kir, (KirVar *)x->along);
    Named kept = { 0 };
    for (int i = 0; i < g->arrays.len; i++) {
        x->index[k_node(x->k, g->arrays.data[i])->axes[0]] = here;
        code_array(x, g->arrays.data[i], &kept);
    }
    for (int i = 0; m->sums && i < m->sums->arrays.len; i++) {
        x->index[k_node(x->k, m->sums->arrays.data[i])->axes[0]] = here;
        code_column_term(x, m->sums->arrays.data[i], m->sum[i]);
    }
    code_forget(x, &kept);
}

/* Of a row from column e on. The head stands before what asks for the row's vectors, too. */
static void build_made(Made *m, KirVar *sums)
{
    Code *x = m->x;
    IndexId along = k_node(x->k, x->k->g->arrays.data[0])->axes[0];
    KirBlock *outside = kir_enter(x->kir, &m->head);
    code_split_row(x, kir_var(x->kir, m->row));
    const KirExpr *e = code_let(x, "e", kir_var(x->kir, m->column));
    kir_enter(x->kir, &m->body);
    for (int i = 0; m->sums && i < m->sums->arrays.len; i++)
        m->sum[i] = kir_element(x->kir, kir_var(x->kir, sums), code_int(x, i));
    const CodeNeighbours n = { .along = along, .first = e, .body = made_element, .data = m };
    code_neighbours(x, &n);
    kir_enter(x->kir, outside);
}

static void add_vectors(const Made *m)
{
    for (int i = 0; i < m->of->fetched.len; i++)
        add_parameter(m->x->kir, m->of->fetched.data[i]);
}

static void build_ahead(Code *x)
{
    const Fused *f = x->k->fused;
    Kir *k = x->kir;
    const Group *sums = x->k->g->sums ? &x->k->pr->groups.data[x->k->g->sums - 1] : NULL;
    NodeId product = f->product->gemm.c.read.id;
    const KirExpr *a = code_written(x, REF_NODE, f->a.id, x->k->p->dtype), *fetch, *make;
    const Matrix b = matrix(x, &f->b, f->b_offset, f->b_pitch);
    const KirExpr *c = code_written(x, REF_NODE, product, x->k->p->dtype);
    const KirExpr *maps = code_written(x, REF_BUFFER, f->maps, DT_F32),
                  *made = code_written(x, REF_BUFFER, f->made, DT_I32);
    const KirExpr *partial = sums ? code_written(x, REF_BUFFER, sums->partial, x->k->p->compute)
                                  : kir_null(k, kir_global(code_real(x), true));
    bool argument = x->k->pr->node[product].home == HOME_ARG && !mutate("first-gradient");
    int n = sums ? sums->arrays.len : 0;
    Made m = made_new(x);
    m.sums = sums;
    KirVar *sum = kir_array_given(k, "sums", code_real(x), code_int(x, n ? n : 1), x->n, true);
    build_made(&m, sum);
    add_agreement(x);
    KirOpen function = open_function(&m, "fetch", &fetch);
    add_vectors(&m);
    kir_append(k, &m.head);
    kir_append(k, &x->fused->fetches);
    kir_close(k, function);
    function = open_function(&m, "make", &make);
    add_parameter(k, sum);
    add_vectors(&m);
    kir_append(k, &m.head);
    kir_append(k, &m.body);
    kir_close(k, function);
    KirTemplate types[66] = { { .value = n }, { .type = code_scalar(x->k->p->dtype) } };
    for (int i = 0; i < x->fused->fetched.len; i++)
        types[2 + i].type = x->fused->fetched.data[i]->type.of;
    const KirExpr *of[] = { a,
                            b.from,
                            b.pitch,
                            c,
                            code_size(x, f->c_pitch),
                            code_size(x, f->rows),
                            code_size(x, f->columns),
                            code_size(x, f->depth),
                            argument ? x->adds : kir_truth(k, false),
                            maps,
                            made,
                            partial,
                            kir_special(k, KP_STEP, 0),
                            fetch,
                            make };
    kir_do(k, kir_call(k, "cell_multiply_ahead", types, 2 + x->fused->fetched.len, of, 15));
}

bool emit_fused(Plan *p, Program *pr, Fused *f, Buf *out)
{
    Kernel k = kernel_new(p, pr, f->map, &f->refs, out);
    CodeFused fused = { 0 };
    k.threads = FUSED_THREADS;
    k.fused = f;
    f->multiples.len = 0;
    Code *x = code_new(&k, f->kernel);
    x->fused = &fused;
    x->kir->bound = "CELL_PRODUCT_THREADS";
    x->kir->resident = 1;
    x->printer.adds = true; /* as sums over the past do */
    kir_settle(x->n, k_width(&k));
    (f->ahead ? build_ahead : build_fused)(x);
    for (int i = 0; i < k.multiples.len; i++)
        vec_push(p->m->arena, &f->multiples, k.multiples.data[i]);
    if (!fused.missed)
        code_print(p, code_end(x), out);
    kernel_release(&k);
    return !fused.missed;
}
