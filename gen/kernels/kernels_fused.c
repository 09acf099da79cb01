/* kernels_fused.c: CUDA text of kernels that make a product and what is computed next to it (plan_fused.c). In comes the pair; out
 * goes a kernel with the body of its other group for 8 neighbours: the product's come as numbers, or its operand's are stored. */
#include "base/mutate.h"
#include "kernels.h"

/* What is computed for the neighbours from column e of a row on. */
static void print_elements(Kernel *k, Buf *out)
{
    const Group *g = k->g;
    const IndexId *axes = k_node(k, g->arrays.data[0])->axes;
    int last = g->naxes - 1;
    Buf *before = k->out, head = { .arena = out->arena, .indent = out->indent + 1 }, loop = head, inner;
    k->out = &head;
    k_split_row(k, "row");
    if (last > 0) {
        const char *extent = k_poly(k, g->axes[last]);
        buf_line(&head, "const int64_t outer = column / %s, e = column - outer * %s;", extent, extent);
        k_split_element(k, axes, last, "outer", "o");
    } else {
        buf_line(&head, "const int64_t e = column;");
    }
    k->out = &loop;
    k_wide_begin(k, axes[last], &inner);
    k->hoists.indent = head.indent;
    k_map_body(k);
    k_wide_end(k, &loop, &inner);
    k->out = before;
    buf_f(out, "%s%s%s", head.data ? head.data : "", k->hoists.data ? k->hoists.data : "", loop.data);
}

static const char *matrix(Kernel *k, const Read *r, const Poly *offset, const Poly *pitch)
{
    const char *p = k_pointer(k, r->is_tensor ? REF_TENSOR : REF_NODE, r->id, k->p->dtype);
    const char *from = offset->value ? k_text(k, "%s + %s", p, poly_text(&k->printer, offset)) : p;
    return k_text(k, "%s, %s", from, poly_text(&k->printer, pitch));
}

/* The launch and the library are of one mind. */
static void print_agreement(Kernel *k)
{
    buf_line(k->out, "static_assert(CELL_PRODUCT_SMEM == %d && CELL_PRODUCT_MAP_BYTES == %d && CELL_PRODUCT_ROWS == %d && "
                     "CELL_PRODUCT_COLUMNS == %d%s, \"as planned\");",
             FUSED_SMEM, FUSED_MAP_BYTES, FUSED_ROWS, FUSED_COLUMNS,
             k->fused->ahead ? k_text(k, " && CELL_AHEAD_ROWS == %d", AHEAD_ROWS) : "");
}

static void print_fused(Kernel *k)
{
    const Fused *f = k->fused;
    NodeId product = f->product->gemm.c.read.id;
    const Storage *st = &k->pr->node[product];
    Buf *out = k->out, body = { .arena = out->arena, .indent = out->indent };
    const char *a = matrix(k, &f->a, f->a_offset, f->a_pitch), *b = matrix(k, &f->b, f->b_offset, f->b_pitch);
    const char *c = k_written(k, REF_NODE, product, k->p->dtype), *maps = k_written(k, REF_BUFFER, f->maps, DT_F32);
    const char *type = k_type(k->p->dtype), *kept = f->shared ? c : k_text(k, "all ? %s : nullptr", c);
    k->given = NULL;
    print_elements(k, &body);
    if ((st->home == HOME_WORKSPACE && !f->shared) || mutate("unsaved-product"))
        kept = "nullptr";
    print_agreement(k);
    buf_line(out, "const cell_product<%s> product = {%s, %s, %s, %s, %s, %s, %s, %s};", type, a, b, kept,
             poly_text(&k->printer, f->c_pitch), poly_text(&k->printer, f->rows), poly_text(&k->printer, f->columns),
             poly_text(&k->printer, f->depth), maps);
    buf_line(out, "cell_multiply(product, [&](int64_t row, int64_t column, const float (&%s)[%d]) {", k->given ? k->given : "unread",
             k_width(k));
    buf_f(out, "%s", body.data);
    buf_line(out, "});");
}

/* The elements of the left operand's row from column e on, and what they add to sums over rows. Behind `head`, which is printed
 * before what asks for the row's vectors, too. */
static void print_made(Kernel *k, const Group *sums, Buf *head, Buf *out)
{
    const Group *g = k->g;
    IndexId along = k_node(k, g->arrays.data[0])->axes[0];
    Buf *before = k->out, loop = { .arena = out->arena, .indent = out->indent + 1 }, inner;
    Named kept = { 0 };
    k->fetches = k->fetched_rows = loop;
    *head = loop;
    k->out = head;
    k_split_row(k, "row");
    buf_line(head, "[[maybe_unused]] const int64_t e = column;");
    k->out = &loop;
    k_wide_begin(k, along, &inner);
    k->hoists.indent = head->indent;
    const char *here = k->index[along];
    for (int i = 0; i < g->arrays.len; i++) {
        k->index[k_node(k, g->arrays.data[i])->axes[0]] = here;
        k_element(k, g->arrays.data[i], &kept);
    }
    for (int i = 0; sums && i < sums->arrays.len; i++) {
        k->index[k_node(k, sums->arrays.data[i])->axes[0]] = here;
        column_term(k, sums->arrays.data[i], k_text(k, "sums[%d]", i));
    }
    k_forget(k, &kept);
    k_wide_end(k, &loop, &inner);
    k->out = before;
    buf_f(out, "%s%s", k->hoists.data ? k->hoists.data : "", loop.data);
}

static const char *text_of(const Buf *b)
{
    return b->data ? b->data : "";
}

static void print_ahead(Kernel *k)
{
    const Fused *f = k->fused;
    const Group *sums = k->g->sums ? &k->pr->groups.data[k->g->sums - 1] : NULL;
    NodeId product = f->product->gemm.c.read.id;
    Buf *out = k->out, head, body = { .arena = out->arena, .indent = out->indent };
    const char *a = k_written(k, REF_NODE, f->a.id, k->p->dtype), *b = matrix(k, &f->b, f->b_offset, f->b_pitch);
    const char *c = k_written(k, REF_NODE, product, k->p->dtype), *maps = k_written(k, REF_BUFFER, f->maps, DT_F32);
    const char *made = k_written(k, REF_BUFFER, f->made, DT_I32);
    const char *partial = sums ? k_written(k, REF_BUFFER, sums->partial, k->p->compute) : "nullptr";
    bool argument = k->pr->node[product].home == HOME_ARG && !mutate("first-gradient");
    int n = sums ? sums->arrays.len : 0;
    print_made(k, sums, &head, &body);
    print_agreement(k);
    buf_line(out, "const cell_product_ahead<%s> product = {%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s};", k_type(k->p->dtype), a, b, c,
             poly_text(&k->printer, f->c_pitch), poly_text(&k->printer, f->rows), poly_text(&k->printer, f->columns),
             poly_text(&k->printer, f->depth), argument ? "adds" : "false", maps, made, partial, "args.t");
    buf_f(out, "%*sstruct Fetched {\n%s", out->indent * 4, "", text_of(&k->fetched_rows));
    buf_line(out, "};");
    buf_line(out, "const auto fetch = [&](int64_t row, int64_t column, Fetched &fetched) {");
    buf_f(out, "%s%s", text_of(&head), text_of(&k->fetches));
    buf_line(out, "};");
    buf_line(out, "cell_multiply_ahead<%d, Fetched>(product, fetch, [&](int64_t row, int64_t column, Fetched &fetched, float (&%s)[%d][%d]) {",
             n, n ? "sums" : "", n ? n : 1, k_width(k));
    buf_f(out, "%s%s", text_of(&head), body.data);
    buf_line(out, "});");
}

bool emit_fused(Plan *p, Program *pr, Fused *f, Buf *out)
{
    Kernel k = kernel_new(p, pr, f->map, &f->refs, out);
    k.threads = FUSED_THREADS;
    k.fused = f;
    f->multiples.len = 0;
    k_print(&k, f->kernel, f->ahead ? print_ahead : print_fused);
    for (int i = 0; i < k.multiples.len; i++)
        vec_push(p->m->arena, &f->multiples, k.multiples.data[i]);
    kernel_release(&k);
    return !k.missed;
}
