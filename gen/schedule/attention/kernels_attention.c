/* kernels_attention.c: the kernels of schedule attention. In comes what a plan has of them
 * (attention_plan.c); out goes, for each sum, a struct of facts with the score of a pair, its gradients, its
 * conditions, and what these say of whole tiles, and thin kernels: they find the head of their block, say
 * where its operands lie, and call the device library (cell_device_attention.cuh). */
#include <string.h>

#include "../../../runtime/cell_attention_sizes.h"
#include "attention_print.h"
#include "base/mutate.h"
#include "emit/emit.h"
#include "plan/plan_pass.h"

static void open_function(Kernel *k, const char *gives, const char *name, const char *args)
{
    k_open(k, "static __device__ __forceinline__ %s %s(const Uses &u, %s)", gives, name, args);
}

/* Sizes, the pair, and what the score reads of it. */
static void print_pair(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    attention_print_pair(k);
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side != LEAF_TABLE)
            attention_print_leaf(k, i, attention_load(k, i));
}

/* A pair that a condition leaves out may ask for a place that is none. */
static void print_table(Kernel *k, int i)
{
    const char *inside;
    open_function(k, "Real", k_text(k, "table%d", i), "const cell_attention_pair &p");
    attention_print_pair(k);
    const char *at = attention_table(k, i, &inside);
    if (inside)
        buf_line(k->out, "return %s ? %s : (Real)0;", inside, at);
    else
        buf_line(k->out, "return %s;", at);
    k_close(k);
}

static void print_score(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    open_function(k, "Real", "score", "[[maybe_unused]] Real dot, const cell_attention_pair &p");
    print_pair(k);
    buf_line(k->out, "return %s;", k_bare(k, expr_text(&k->printer, c->score)));
    k_close(k);
    open_function(k, "Real", "back",
                  "[[maybe_unused]] Real dot, const cell_attention_pair &p, Real d, "
                  "[[maybe_unused]] Real (&g)[terms ? terms : 1]");
    print_pair(k);
    for (int i = 0; i < c->reads.len; i++)
        if (attention_is_term(k->p, &c->reads.data[i]))
            buf_line(k->out, "g[%d] = d * (%s);", attention_term_of(k, i),
                     expr_text(&k->printer, c->reads.data[i].slope));
    buf_line(k->out, "return d * (%s);", expr_text(&k->printer, c->slope));
    k_close(k);
    open_function(k, "Real", "sink_score", "int, int");
    buf_line(k->out, "(void)u;");
    buf_line(k->out, "return 0;");
    k_close(k);
}

static void print_ranges(Kernel *k)
{
    static const char *const name[2] = { "keys_of", "steps_of" };
    static const char *const args[2] = {
        "[[maybe_unused]] int segment, [[maybe_unused]] int i0, [[maybe_unused]] int i1, int &j0, int &j1",
        "[[maybe_unused]] int segment, [[maybe_unused]] int j0, [[maybe_unused]] int j1, int &i0, int &i1"
    };
    buf_line(k->out, "static __device__ __forceinline__ int64_t cell_least(int64_t a, int64_t b) { return a "
                     "< b ? a : b; }");
    buf_line(k->out, "static __device__ __forceinline__ int64_t cell_most(int64_t a, int64_t b) { return a > "
                     "b ? a : b; }");
    for (int side = 0; side < 2; side++) {
        open_function(k, "void", name[side], args[side]);
        attention_print_range(k, side);
        k_close(k);
    }
}

/* Of a tile: whether no pair is there, or all are. */
static void print_tiles(Kernel *k, bool all)
{
    open_function(k, "bool", all ? "all" : "none",
                  "[[maybe_unused]] int segment, [[maybe_unused]] int i0, [[maybe_unused]] int i1, "
                  "[[maybe_unused]] int j0, [[maybe_unused]] int j1");
    attention_print_tiles(k, all);
    k_close(k);
}

static void print_conditions(Kernel *k)
{
    const AttentionConditions *all = &attention_cut_of(k)->form.conditions;
    open_function(k, "bool", "there", "const cell_attention_pair &p");
    print_pair(k);
    /* Those on steps without a branch, in front of others. */
    buf_line(k->out, "bool there = true;");
    for (int others = 0; others < 2; others++)
        for (int i = 0; i < all->len; i++) {
            const AttentionCondition *c = &all->data[i];
            const char *steps = attention_room(k, c);
            if ((!steps) != others || (mutate("lost-condition") && i + 1 == all->len))
                continue;
            if (steps)
                buf_line(k->out, "there &= %s;", steps);
            else if (c->room)
                buf_line(k->out, "there = there && %s >= 0;", ix_text(&k->printer, c->room));
            else
                buf_line(k->out, "there = there && %s;", expr_text(&k->printer, c->node));
        }
    buf_line(k->out, "return there;");
    k_close(k);
    print_ranges(k);
    print_tiles(k, false);
    print_tiles(k, true);
}

/* ---- facts */

static void print_kinds(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *kinds = "CELL_ATTENTION_ROW";
    for (int i = c->reads.len - 1; i >= 0; i--)
        if (attention_is_term(k->p, &c->reads.data[i]))
            kinds = k_text(k, "n == %d ? %s : %s", attention_term_of(k, i),
                           c->reads.data[i].leaf.side == LEAF_ROW ? "CELL_ATTENTION_ROW"
                                                                  : "CELL_ATTENTION_COLUMN",
                           kinds);
    k_open(k, "static __host__ __device__ constexpr int term_kind([[maybe_unused]] int n)");
    buf_line(k->out, "return %s;", kinds);
    k_close(k);
}

static void print_facts(Kernel *k)
{
    const Plan *p = k->p;
    const AttentionCut *c = attention_cut_of(k);
    k_comment(k, c->form.sum);
    k_open(k, "struct %s", attention_printing(k)->w->facts);
    buf_line(k->out, "typedef %s Store;", k_type(p->dtype));
    buf_line(k->out, "typedef %s Real;", k->real);
    buf_line(k->out, "static constexpr int keys = %d, values = %d, segments = %d, memory = %d, terms = %d,",
             attention_padded(c->keys), attention_padded(c->values), 1 + c->history, attention_memory(p),
             attention_term_of(k, c->reads.len));
    buf_line(k->out, "                     kind = CELL_ATTENTION_%s;",
             c->form.kind == ATTENTION_SOFTMAX ? "SOFTMAX" : "WEIGHTS");
    buf_line(k->out, "static constexpr bool scaled = %s, sink = false, apart = %s;",
             attention_is_scaled(c) ? "true" : "false", attention_apart(c) ? "true" : "false");
    print_kinds(k);
    k_open(k, "struct Uses");
    attention_print_uses(k);
    k->out->indent--;
    buf_line(k->out, "};");
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side == LEAF_TABLE)
            print_table(k, i);
    print_score(k);
    print_conditions(k);
    k->out->indent--;
    buf_line(k->out, "};");
    buf_line(k->out, "[[maybe_unused]] static __device__ const %s %s_zero = 0;\n", k->real,
             attention_printing(k)->w->facts);
}

static const char *tiles_text(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    AttentionKernel kind = attention_printing(k)->kernel;
    int own = attention_own(k->p, c, kind), slabs = attention_slabs(k->p, c, kind);
    if (kind != ATTENTION_KEYS)
        return k_text(k, "cell_attention_tiles(dim_T * %s, %d) * %d", k_poly(k, c->group), own, slabs);
    const char *now = k_text(k, "cell_attention_tiles(dim_T, %d)", own);
    if (!c->history)
        return k_text(k, "%s * %d", now, slabs);
    const char *places = k_poly(k, k->p->m->tensors.data[c->k.past].axes[0]);
    return k_text(k, "(%s + cell_attention_tiles(t0 < %s ? t0 : %s, %d)) * %d", now, places, places, own,
                  slabs);
}

/* As attention_parts has them. */
static void print_parts(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *places = k_poly(k, k->p->m->tensors.data[c->k.past].axes[0]);
    buf_line(k->out, "const int64_t keys = dim_T + (t0 < %s ? t0 : %s);", places, places);
    buf_line(k->out, "const int parts = cell_attention_parts(keys, dim_B * heads);");
}

/* [B, heads, parts, rows, values], and behind them [B, heads, parts, rows, 2]. */
static void print_part_sums(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const int buffer = attention_printing(k)->w->parts;
    const char *sums = k_written(k, REF_BUFFER, buffer, k->p->compute);
    k_open(k, "if (parts > 1)");
    buf_line(k->out, "const int64_t rows = dim_T * %s, at = (b * heads + head) * parts * rows;",
             k_poly(k, c->group));
    buf_line(k->out, "x.part_sums = %s + at * %d;", sums, c->values);
    buf_line(k->out, "x.part_stats = %s + dim_B * heads * parts * rows * %d + at * 2;", sums, c->values);
    k_close(k);
}

static void body(Kernel *k)
{
    static const char *const calls[] = { "forward", "forward", "combine", "dots", "back_rows", "back_keys" };
    static const char *const names[] = { "FORWARD", "FEW", "", "", "BACK_ROWS", "BACK_KEYS" };
    const AttentionCut *c = attention_cut_of(k);
    const char *facts = attention_printing(k)->w->facts;
    AttentionKernel kind = attention_printing(k)->kernel;
    if (attention_smem(k->p, c, kind))
        buf_line(
            k->out,
            "static_assert(cell_attention_facts<%s, CELL_ATTENTION_%s>::smem == %lld, \"the compiler has "
            "another number\");",
            facts, names[kind], (long long)attention_smem(k->p, c, kind));
    const bool few = kind == ATTENTION_FEW, parts = few || kind == ATTENTION_COMBINE;
    buf_line(k->out, "const int64_t heads = %s;", k_bare(k, k_poly(k, c->heads)));
    if (parts)
        print_parts(k);
    buf_line(k->out, "const int64_t tiles = %s%s;", tiles_text(k), few ? " * parts" : "");
    k_open(k, "for (int64_t n = cell_block_index(0); n < dim_B * heads * tiles; n += cell_block_count(0))");
    buf_line(k->out, "const int64_t head = n %% heads, b = n / heads %% dim_B, block = n / heads / dim_B;");
    attention_print_heads(k);
    buf_line(k->out, "cell_attention<%s> x = {};", facts);
    attention_print_fields(k);
    if (parts)
        print_part_sums(k);
    if (few)
        buf_line(k->out,
                 "cell_attention_forward<%s, CELL_ATTENTION_FEW>(x, block / parts, (int)(block %% parts), "
                 "parts);",
                 facts);
    else
        buf_line(k->out, "cell_attention_%s<%s>(x, block%s);", calls[kind], facts, parts ? ", parts" : "");
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}

void attention_print(Plan *p, Program *pr, Buf *cuda)
{
    AttentionWalks *all = attention_walks(pr);
    AttentionKernel first = pr->dir == FORWARD ? ATTENTION_FORWARD : ATTENTION_DOTS;
    AttentionKernel last = pr->dir == FORWARD ? ATTENTION_COMBINE : ATTENTION_KEYS;
    for (int i = 0; i < all->len; i++) {
        AttentionWalk *w = &all->data[i];
        Printing x = { w, first, &attention_cuda };
        if (pr->dir == FORWARD) {
            RefVec none = { 0 };
            Kernel k = attention_kernel(p, pr, &x, &none, cuda);
            k.printer.data = &k;
            print_facts(&k);
            kernel_release(&k);
        } else if (p->m->roots.data[w->cut->given].dinput < 0) {
            continue;
        }
        for (x.kernel = first; x.kernel <= last; x.kernel++) {
            if (!attention_has_kernel(w, x.kernel))
                continue;
            Kernel k = attention_kernel(p, pr, &x, &w->kernel[x.kernel].refs, cuda);
            k_print(&k, w->kernel[x.kernel].name, body);
            kernel_release(&k);
        }
    }
}
