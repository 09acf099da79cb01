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
#include "templates/attention.h"

/* Sizes, the pair, and what the score reads of it. */
static void print_pair(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    attention_print_pair(k);
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side != LEAF_TABLE && i != c->rest)
            attention_print_leaf(k, i, attention_load(k, i));
}

static void print_tables(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    for (int i = 0; i < c->reads.len; i++) {
        if (c->reads.data[i].leaf.side != LEAF_TABLE)
            continue;
        AttentionTableFrame f = { .number = k_text(k, "%d", i), .pair = k_lines_of(k, attention_print_pair) };
        f.at = attention_table(k, i, &f.inside);
        attention_table_frame(k->out, &f);
    }
}

static void print_gradients(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    for (int i = 0; i < c->reads.len; i++)
        if (attention_is_term(k->p, &c->reads.data[i]))
            buf_line(k->out, "g[%d] = d * (%s);", attention_term_of(k, i),
                     expr_text(&k->printer, c->reads.data[i].slope));
}

/* Those on steps without a branch, in front of others. */
static void print_conditions(Kernel *k)
{
    const AttentionConditions *all = &attention_cut_of(k)->form.conditions;
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
}

static void print_keys_of(Kernel *k)
{
    attention_print_range(k, 0);
}

static void print_steps_of(Kernel *k)
{
    attention_print_range(k, 1);
}

static void print_none(Kernel *k)
{
    attention_print_tiles(k, false);
}

static void print_all(Kernel *k)
{
    attention_print_tiles(k, true);
}

static void print_comment(Kernel *k)
{
    k_comment(k, attention_cut_of(k)->form.sum);
}

/* ---- facts */

static const char *kinds_of(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *kinds = "CELL_ATTENTION_ROW";
    for (int i = c->reads.len - 1; i >= 0; i--)
        if (attention_is_term(k->p, &c->reads.data[i]))
            kinds = k_text(k, "n == %d ? %s : %s", attention_term_of(k, i),
                           c->reads.data[i].leaf.side == LEAF_ROW ? "CELL_ATTENTION_ROW"
                                                                  : "CELL_ATTENTION_COLUMN",
                           kinds);
    return kinds;
}

static void set_sizes(Kernel *k, AttentionFactsFrame *f)
{
    const Plan *p = k->p;
    const AttentionCut *c = attention_cut_of(k);
    f->facts = attention_printing(k)->w->facts;
    f->store = k_type(p->dtype);
    f->real = k->real;
    f->keys = k_text(k, "%d", attention_padded(c->keys));
    f->values = k_text(k, "%d", attention_padded(c->values));
    f->segments = k_text(k, "%d", 1 + c->history);
    f->memory = k_text(k, "%d", attention_memory(p));
    f->terms = k_text(k, "%d", attention_term_of(k, c->reads.len));
    f->kind = c->form.kind == ATTENTION_SOFTMAX ? "SOFTMAX" : "WEIGHTS";
    f->scaled = attention_is_scaled(c) ? "true" : "false";
    f->apart = attention_apart(c) ? "true" : "false";
    f->kinds = kinds_of(k);
    f->sink = c->rest >= 0 ? "true" : "false";
    f->rest = c->rest >= 0 ? attention_load(k, c->rest) : NULL;
}

static void print_facts(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    AttentionFactsFrame f = { .comment = k_lines_of(k, print_comment) };
    set_sizes(k, &f);
    f.uses = k_lines_of(k, attention_print_uses);
    f.tables = k_lines_of(k, print_tables);
    f.pair = k_lines_of(k, print_pair);
    f.score = k_bare(k, expr_text(&k->printer, c->score));
    f.gradients = k_lines_of(k, print_gradients);
    f.slope = expr_text(&k->printer, c->slope);
    f.conditions = k_lines_of(k, print_conditions);
    f.keys_of = k_lines_of(k, print_keys_of);
    f.steps_of = k_lines_of(k, print_steps_of);
    f.none = k_lines_of(k, print_none);
    f.all = k_lines_of(k, print_all);
    attention_facts_frame(k->out, &f);
    buf_line(k->out, "%s", "");
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

/* Parts of the keys, as attention_parts has them, and their sums: [B, heads, parts, rows, values], and behind
 * them [B, heads, parts, rows, 2]. */
static void set_parts(Kernel *k, AttentionFrame *f)
{
    const AttentionCut *c = attention_cut_of(k);
    f->sums = k_written(k, REF_BUFFER, attention_printing(k)->w->parts, k->p->compute);
    f->rows = k_poly(k, c->group);
    f->values = k_text(k, "%d", c->values);
    f->places = k_poly(k, k->p->m->tensors.data[c->k.past].axes[0]);
}

static void body(Kernel *k)
{
    static const char *const calls[] = { "forward", "forward", "combine", "dots", "back_rows", "back_keys" };
    static const char *const names[] = { "FORWARD", "FEW", "", "", "BACK_ROWS", "BACK_KEYS" };
    const AttentionCut *c = attention_cut_of(k);
    AttentionKernel kind = attention_printing(k)->kernel;
    AttentionFrame f = { .facts = attention_printing(k)->w->facts, .name = names[kind], .call = calls[kind] };
    if (attention_smem(k->p, c, kind))
        f.smem = k_text(k, "%lld", (long long)attention_smem(k->p, c, kind));
    f.few = kind == ATTENTION_FEW;
    f.parts = f.few || kind == ATTENTION_COMBINE;
    f.heads = k_bare(k, k_poly(k, c->heads));
    f.tiles = tiles_text(k);
    f.head = k_lines_of(k, attention_print_heads);
    f.fields = k_lines_of(k, attention_print_fields);
    if (f.parts)
        set_parts(k, &f);
    attention_frame(k->out, &f);
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
