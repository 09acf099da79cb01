/* cpu_attention.c: the kernels of schedule attention for the CPU. In comes what a plan has of them
 * (attention_plan.c); out goes, for each sum, C functions over a tile of rows and keys: scores, their
 * gradients, conditions and what these say of whole tiles; and thin kernels, which say where the operands of
 * an item's head lie and call runtime/cpu/cell_cpu_attention.h. In a tile rows are neighbours, so all that is
 * done for each pair is a loop over rows. */
#include <string.h>

#include "attention_print.h"
#include "base/mutate.h"
#include "emit/emit.h"

/* ---- what scores read of rows */

static const char *row_name(Kernel *k, int i)
{
    return k_text(k, "rows_of_leaf%d", i);
}

/* Declares where they lie in scratch memory. */
static void print_row_leaves(Kernel *k, bool written)
{
    const AttentionCut *c = attention_cut_of(k);
    int n = 0;
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        const char *type = k_text(k, "%s%s", written ? "" : "const ", r->leaf.whole ? "int64_t" : "real");
        if (r->leaf.side == LEAF_ROW && (written || i != c->rest))
            buf_line(k->out, "%s *const %s = (%s *)(t->leaves + %d * CELL_ATTENTION_ROWS);", type,
                     row_name(k, i), type, 8 * n);
        n += r->leaf.side == LEAF_ROW;
    }
}

static bool has_rows(const AttentionCut *c)
{
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side == LEAF_ROW)
            return true;
    return false;
}

static void open_function(Kernel *k, const char *name, const char *more)
{
    const char *facts = attention_printing(k)->w->facts;
    buf_line(k->out, "static void %s_%s(const cell_attention *x, const cell_attention_tile *t%s)", facts,
             name, more);
    buf_line(k->out, "{");
    k->out->indent++;
    buf_line(k->out, "const %s_uses u = *(const %s_uses *)x->uses;", facts, facts);
    buf_line(k->out, "(void)u;");
}

static void close_function(Kernel *k)
{
    k_close(k);
    buf_line(k->out, "%s", "");
}

static void print_read(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    if (!has_rows(c))
        return;
    open_function(k, "read", "");
    print_row_leaves(k, true);
    k_open(k, "for (int l = 0; l < t->lanes; l++)");
    buf_line(k->out, "const struct { int64_t i, r; } p = { t->i[l], t->r[l] };");
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side == LEAF_ROW)
            buf_line(k->out, "%s[l] = %s;", row_name(k, i), attention_load(k, i));
    k_close(k);
    close_function(k);
}

/* 1 and the number among what scores read of rows; 0: there is none. */
static int sink_of(const AttentionCut *c)
{
    int n = 1;
    for (int i = 0; i < c->rest; i++)
        n += c->reads.data[i].leaf.side == LEAF_ROW;
    return c->rest < 0 ? 0 : n;
}

/* ---- pairs */

/* Opens a loop over the keys of a tile, with what scores read of a key. */
static void open_keys(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    print_row_leaves(k, false);
    k_open(k, "for (int n = 0; n < t->keys; n++)");
    buf_line(k->out, "cell_attention_pair p = { .j = t->j + n, .segment = t->segment };");
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side == LEAF_KEY)
            attention_print_leaf(k, i, attention_load(k, i));
}

/* And over its rows, with the pair. */
static void open_rows(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    buf_line(k->out, "CELL_LANES");
    k_open(k, "for (int l = 0; l < t->lanes; l++)");
    buf_line(k->out, "p.i = t->i[l], p.r = t->r[l];");
    attention_print_pair(k);
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side == LEAF_ROW && i != c->rest)
            attention_print_leaf(k, i, k_text(k, "%s[l]", row_name(k, i)));
}

static void close_pairs(Kernel *k)
{
    k_close(k);
    k_close(k);
    close_function(k);
}

/* A pair that a condition leaves out may ask for a place that is none. */
static void print_table(Kernel *k, int i)
{
    const char *facts = attention_printing(k)->w->facts, *inside;
    buf_line(k->out, "static inline real %s_table%d(%s_uses u, cell_attention_pair p)", facts, i, facts);
    buf_line(k->out, "{");
    k->out->indent++;
    attention_print_pair(k);
    const char *at = attention_table(k, i, &inside);
    buf_line(k->out, inside ? "return %s%s%s : 0;" : "return %s%s%s;", inside ? inside : "",
             inside ? " ? " : "", at);
    close_function(k);
}

static void print_score(Kernel *k)
{
    open_function(k, "score", "");
    open_keys(k);
    buf_line(k->out, "const real *const dots = t->dots + n * CELL_ATTENTION_ROWS;");
    buf_line(k->out, "real *const scores = t->scores + n * CELL_ATTENTION_ROWS;");
    open_rows(k);
    buf_line(k->out, "const real dot = dots[l];");
    buf_line(k->out, "scores[l] = %s;", k_bare(k, expr_text(&k->printer, attention_cut_of(k)->score)));
    close_pairs(k);
}

/* Nothing comes of a pair that is left out, whatever its slope is. */
static void print_back(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    open_function(k, "back", "");
    open_keys(k);
    buf_line(k->out, "const real *const dots = t->dots + n * CELL_ATTENTION_ROWS;");
    buf_line(k->out, "real *const slopes = t->slopes + n * CELL_ATTENTION_ROWS;");
    for (int i = 0; i < c->reads.len; i++)
        if (attention_is_term(k->p, &c->reads.data[i]))
            buf_line(k->out, "real term%d[CELL_ATTENTION_ROWS];", attention_term_of(k, i));
    open_rows(k);
    buf_line(k->out, "const real dot = dots[l], d = slopes[l];");
    for (int i = 0; i < c->reads.len; i++)
        if (attention_is_term(k->p, &c->reads.data[i]))
            buf_line(k->out, "term%d[l] = d == 0 ? 0 : d * (%s);", attention_term_of(k, i),
                     expr_text(&k->printer, c->reads.data[i].slope));
    buf_line(k->out, "slopes[l] = d == 0 ? 0 : d * (%s);", expr_text(&k->printer, c->slope));
    k_close(k);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        int n = attention_term_of(k, i);
        if (!attention_is_term(k->p, r))
            continue;
        if (r->leaf.side == LEAF_ROW)
            buf_line(k->out,
                     "cell_attention_add_rows(t->d_row + %d * CELL_ATTENTION_ROWS, term%d, t->lanes);", n, n);
        else
            buf_line(k->out,
                     "t->d_column[%d * CELL_ATTENTION_KEYS + n] = cell_attention_sum_rows(term%d, t->rows);",
                     n, n);
    }
    k_close(k);
    close_function(k);
}

/* ---- conditions */

/* Those that steps_of has no range for; the number of them. */
static int count_others(Kernel *k)
{
    const AttentionConditions *all = &attention_cut_of(k)->form.conditions;
    int n = 0;
    for (int i = 0; i < all->len; i++)
        n += !attention_is_ranged(k, &all->data[i]);
    return n;
}

static void print_there(Kernel *k)
{
    const AttentionConditions *all = &attention_cut_of(k)->form.conditions;
    const char *there = NULL;
    open_function(k, "there", ", real *of, real instead");
    open_keys(k);
    buf_line(k->out, "real *const scores = of + n * CELL_ATTENTION_ROWS;");
    open_rows(k);
    for (int i = 0; i < all->len; i++) {
        const AttentionCondition *c = &all->data[i];
        if (attention_is_ranged(k, c) || (mutate("lost-condition") && i + 1 == all->len))
            continue;
        const char *s =
            c->room ? k_text(k, "%s >= 0", ix_text(&k->printer, c->room)) : expr_text(&k->printer, c->node);
        there = there ? k_text(k, "%s && (%s)", there, s) : k_text(k, "(%s)", s);
    }
    buf_line(k->out, "const bool there = %s;", there ? there : "true");
    buf_line(k->out, "scores[l] = there ? scores[l] : instead;");
    close_pairs(k);
}

static void open_question(Kernel *k, const char *gives, const char *name, const char *args)
{
    const char *facts = attention_printing(k)->w->facts;
    buf_line(k->out, "static %s %s_%s(const void *uses, int segment, %s)", gives, facts, name, args);
    buf_line(k->out, "{");
    k->out->indent++;
    buf_line(k->out, "const %s_uses u = *(const %s_uses *)uses;", facts, facts);
    buf_line(k->out, "(void)segment, (void)i0, (void)i1, (void)j0, (void)j1;");
}

static void print_questions(Kernel *k)
{
    static const char *const by_rows = "int64_t i0, int64_t i1, int64_t j0, int64_t j1",
                             *const by_keys = "int64_t j0, int64_t j1, int64_t i0, int64_t i1";
    for (int side = 0; side < 2; side++) {
        open_question(k, "cell_attention_range", side ? "steps_of" : "keys_of", side ? by_keys : by_rows);
        attention_print_range(k, side);
        buf_line(k->out, "return (cell_attention_range){ %s };", side ? "i0, i1" : "j0, j1");
        close_function(k);
    }
    for (int all = 0; all < 2; all++) {
        open_question(k, "bool", all ? "all" : "none", by_rows);
        attention_print_tiles(k, all);
        close_function(k);
    }
}

/* ---- facts */

static void print_facts(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *facts = attention_printing(k)->w->facts,
               *place = source_place(k->p->m, k_node(k, c->form.sum)->span, true);
    const bool softmax = c->form.kind == ATTENTION_SOFTMAX, scaled = softmax && c->scale >= 0;
    if (*place)
        buf_line(k->out, "/* %s */", place);
    buf_line(k->out, "typedef struct %s_uses {", facts);
    k->out->indent++;
    attention_print_uses(k);
    k->out->indent--;
    buf_line(k->out, "} %s_uses;\n", facts);
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side == LEAF_TABLE)
            print_table(k, i);
    print_read(k);
    if (!scaled) {
        print_score(k);
        print_back(k);
    }
    if (count_others(k))
        print_there(k);
    print_questions(k);
    buf_line(k->out, "static const cell_attention_facts %s_facts = {", facts);
    k->out->indent++;
    buf_line(k->out, ".softmax = %s, .scaled = %s, .segments = %d, .terms = %d,", softmax ? "true" : "false",
             scaled ? "true" : "false", 1 + c->history, attention_term_of(k, c->reads.len));
    if (sink_of(c))
        buf_line(k->out, ".sink = %d,", sink_of(c));
    if (has_rows(c))
        buf_line(k->out, ".read = %s_read,", facts);
    if (!scaled)
        buf_line(k->out, ".score = %s_score, .back = %s_back,", facts, facts);
    if (count_others(k))
        buf_line(k->out, ".there = %s_there,", facts);
    buf_line(k->out, ".keys_of = %s_keys_of, .steps_of = %s_steps_of, .none = %s_none, .all = %s_all", facts,
             facts, facts, facts);
    k->out->indent--;
    buf_line(k->out, "};\n");
}

/* ---- kernels */

static void print_items(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *facts = attention_printing(k)->w->facts, *history = "0";
    const bool forward = attention_printing(k)->kernel == ATTENTION_FORWARD;
    if (c->history) {
        const char *places = k_poly(k, k->p->m->tensors.data[c->k.past].axes[0]);
        history = k_text(k, "t0 < %s ? t0 : %s", places, places);
    }
    buf_line(k->out, "const int64_t heads = %s;", k_bare(k, k_poly(k, c->heads)));
    if (!forward)
        buf_line(k->out, "const int64_t items = cell_attention_items(dim_B * heads, dim_T * %s, dim_T, %s);",
                 k_poly(k, c->group), history);
    else /* the last rows may have most keys, and come first */
        buf_line(k->out, "const int64_t items = cell_attention_parts(dim_T * %s, CELL_ATTENTION_ROWS);",
                 k_poly(k, c->group));
    k_open(k, "for (int64_t n = first_item; n < end_item; n++)");
    buf_line(k->out, "const int64_t head = n %% heads, b = n / heads %% dim_B, item = n / heads / dim_B;");
    attention_print_heads(k);
    buf_line(k->out, "%s_uses uses = { 0 };", facts);
    buf_line(k->out, "cell_attention x = { .uses = &uses };");
    attention_print_fields(k);
    if (forward)
        buf_line(k->out, "cell_attention_forward(&x, &%s_facts, items - 1 - item, scratch);", facts);
    else
        buf_line(k->out, "cell_attention_back(&x, &%s_facts, item, items, scratch);", facts);
    k_close(k);
}

static void print_head(Kernel *k, Buf *out)
{
    Module *m = k->p->m;
    if (k->pr->dir == BACKWARD) {
        buf_line(out, "const bool adds = args->flags & CELL_KERNEL_ACCUMULATE;");
        buf_line(out, "(void)adds;");
    }
    for (int i = 0; i < 3 + m->dims.len; i++) {
        const char *name = api_sizes(m)[i];
        buf_line(out, "const int64_t %s%s = args->size[%d];", i == 2 + m->dims.len ? "" : "dim_", name, i);
        buf_line(out, "(void)%s%s;", i == 2 + m->dims.len ? "" : "dim_", name);
    }
    for (int i = 0; i < k->pointers.len; i++) {
        const Pointer *p = &k->pointers.data[i];
        const char *type = k_text(k, "%s%s *", p->written ? "" : "const ", k_type(p->type));
        buf_line(out, "%sconst %s = (%s)args->ptr[%d];", type, p->name, type, i);
    }
}

static Kernel new_kernel(Plan *p, Program *pr, Printing *x, RefVec *refs, Buf *out)
{
    Kernel k = attention_kernel(p, pr, x, refs, out);
    k.printer.fast = false;
    k.printer.in_c = true;
    names_init(&k.pointer_names, p->m->c);
    return k;
}

static void print_kernel(Plan *p, Program *pr, Printing *x, Buf *out)
{
    Buf body = { .arena = p->m->arena, .indent = 1 };
    AttentionWalk *w = (AttentionWalk *)(uintptr_t)x->w;
    Kernel k = new_kernel(p, pr, x, &w->kernel[x->kernel].refs, &body);
    k.printer.data = &k;
    print_items(&k);
    buf_line(
        out,
        "static void %s(const cell_kernel_args *args, int64_t first_item, int64_t end_item, void *scratch)",
        w->kernel[x->kernel].name);
    buf_line(out, "{");
    out->indent++;
    print_head(&k, out);
    buf_f(out, "%s", body.data);
    out->indent--;
    buf_line(out, "}\n");
    kernel_release(&k);
}

void attention_print_cpu(Plan *p, Program *pr, Buf *c)
{
    static const char *const stored[] = {
        [DT_F32] = "f32", [DT_BF16] = "bf16", [DT_F16] = "f16", [DT_F64] = "f64"
    };
    AttentionWalks *all = attention_walks(pr);
    Buf text = { .arena = p->m->arena };
    if (pr->dir == FORWARD)
        buf_f(c, "#define CELL_ATTENTION_STORED %s\n#include \"cell_cpu_attention.h\"\n\n", stored[p->dtype]);
    for (int i = 0; i < all->len; i++) {
        Printing x = { &all->data[i], pr->dir == FORWARD ? ATTENTION_FORWARD : ATTENTION_BACK, &attention_c };
        if (pr->dir == FORWARD) {
            RefVec none = { 0 };
            Kernel k = new_kernel(p, pr, &x, &none, &text);
            k.printer.data = &k;
            print_facts(&k);
            kernel_release(&k);
        } else if (p->m->roots.data[x.w->cut->given].dinput < 0) {
            continue;
        }
        print_kernel(p, pr, &x, &text);
    }
    if (text.len)
        buf_wrapped(c, &text);
}
