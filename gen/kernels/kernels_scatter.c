/* kernels_scatter.c: CUDA text of SCATTER groups, sums over batch and time of which each term belongs to one place of
 * an axis: the gradient of a table that integers index. In comes a group of one such sum; out go six kernels: `keys`
 * finds the place of every position (a step of a sequence, and what else is summed over); `count`, `scan` and `move`
 * sort the positions by place, a digit of 8 bits at a time; `sums` adds what is at one place in the order of its
 * positions, in shares of the sorted positions, and writes what lies inside a share; `totals` adds the sums of a place
 * that begins in one share and ends in another. So the work is that of one term for each position and column, the
 * order of every sum follows from sizes, and no sum is atomic. Places outside of the axis come last and go nowhere. */
#include <string.h>

#include "base/mutate.h"
#include "kernels.h"

static const char *rows_text(Kernel *k)
{
    return poly_text(&k->printer, k->g->scatter->rows);
}

/* int64 in a buffer of pairs. */
static void print_whole(Kernel *k, const char *name, int buffer, bool written)
{
    const char *p = written ? k_written(k, REF_BUFFER, buffer, DT_I32) : k_pointer(k, REF_BUFFER, buffer, DT_I32);
    const char *type = written ? "int64_t *" : "const int64_t *";
    buf_line(k->out, "%sconst %s = reinterpret_cast<%s>(%s);", type, name, type, p);
}

static void print_positions(Kernel *k)
{
    const Poly *inner = k->g->scatter->inner;
    bool one = inner->is_const && inner->value == 1;
    buf_line(k->out, "const int64_t positions = %s%s;", k_rows(k),
             one ? "" : k_text(k, " * %s", k_poly(k, inner)));
}

static Node reduction(const Kernel *k)
{
    return *k_node(k, k_node(k, k->g->arrays.data[0])->args[0]);
}

/* The step, sequence and further indices of a position. */
static void split_position(Kernel *k, const char *position)
{
    Node r = reduction(k);
    const Poly *inner = k->g->scatter->inner;
    bool one = inner->is_const && inner->value == 1;
    IndexId axes[64];
    int n = 0;
    for (int i = 0; i < r.nbound; i++)
        if (r.bound[i] >= IX_FIRST)
            axes[n++] = r.bound[i];
    buf_line(k->out, "[[maybe_unused]] const int64_t row = %s%s;", position,
             one ? "" : k_text(k, " / %s", k_poly(k, inner)));
    k_split_row(k, "row");
    if (one)
        return;
    buf_line(k->out, "[[maybe_unused]] const int64_t inner = %s %% %s;", position, k_poly(k, inner));
    k_split_element(k, axes, n, "inner", "i");
}

/* All axes of the array but that of the places. */
static void split_column(Kernel *k)
{
    const Node *a = k_node(k, k->g->arrays.data[0]);
    IndexId axes[64];
    int n = 0;
    for (int i = 0; i < a->naxes; i++)
        if (i != k->g->scatter->axis)
            axes[n++] = a->axes[i];
    k_split_element(k, axes, n, "e", "col");
}

static void bind_place(Kernel *k, const char *text)
{
    k->index[k_node(k, k->g->arrays.data[0])->axes[k->g->scatter->axis]] = text;
}

/* ---- the places, sorted */

static void print_keys(Kernel *k)
{
    print_positions(k);
    print_whole(k, "keys", k->g->scatter->keys, true);
    k_open(k, "for (int64_t n = cell_block_index(0) * %d + cell_thread(); n < positions; n += cell_block_count(0) * %d)",
           SCATTER_THREADS, SCATTER_THREADS);
    split_position(k, "n");
    k_comment(k, k->g->arrays.data[0]);
    buf_line(k->out, "const int64_t place = %s;", k_bare(k, expr_text(&k->printer, k->g->scatter->place)));
    buf_line(k->out, "keys[n] = cell_inside(place, %s) ? place : %s;", rows_text(k), rows_text(k));
    k_close(k);
}

static void print_pass(Kernel *k, const char *call, bool moves)
{
    print_positions(k);
    print_whole(k, "keys", k->g->scatter->keys, false);
    print_whole(k, "order", k->g->scatter->order, moves);
    print_whole(k, "counts", k->g->scatter->counts, !moves);
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "%s(keys, order, counts, positions, args.t, cell_carve<int>(cursor, cell_sort_digits * 32));", call);
}

static void print_count(Kernel *k)
{
    print_pass(k, "cell_sort_count", false);
}

static void print_move(Kernel *k)
{
    print_pass(k, "cell_sort_move", true);
}

static void print_scan(Kernel *k)
{
    print_positions(k);
    print_whole(k, "counts", k->g->scatter->counts, true);
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "const int64_t threads = 32 * cell_shares<%d, %d>(positions);", SORT_EACH, SORT_BLOCKS);
    buf_line(k->out, "cell_sort_scan(counts, cell_sort_digits * threads, cell_carve<int64_t>(cursor, 1024 + 32));");
}

/* ---- the sums */

static void print_sorted(Kernel *k)
{
    const Scatter *s = k->g->scatter;
    print_positions(k);
    print_whole(k, "keys", s->keys, false);
    print_whole(k, "all", s->order, false);
    buf_line(k->out, "const int64_t *const order = all + cell_sort_half(%s) * positions;", rows_text(k));
    buf_line(k->out, "const int64_t columns = %s;", poly_text(&k->printer, s->columns));
    buf_line(k->out, "const int64_t shares = cell_shares<%d, %d>(positions);", SHARE_EACH, SHARES);
}

static void open_columns(Kernel *k)
{
    k_open(k, "for (int64_t e = cell_block_index(0) * %d + cell_thread(); e < columns; e += cell_block_count(0) * %d)",
           SCATTER_THREADS, SCATTER_THREADS);
    split_column(k);
}

static const char *partial_at(Kernel *k, const char *entry)
{
    return k_text(k, strchr(entry, ' ') ? "%s[(%s) * columns + e]" : "%s[%s * columns + e]",
                  k_pointer(k, REF_BUFFER, k->g->scatter->partial, k->p->compute), entry);
}

/* The sum of the place before, behind its last position. */
static void end_of_place(Kernel *k)
{
    k_open(k, "if (key != place)");
    k_open(k, "if (first)");
    buf_line(k->out, "%s = sum;", partial_at(k, "2 * share"));
    k->out->indent--;
    buf_line(k->out, "} else {");
    k->out->indent++;
    bind_place(k, "place");
    k_store(k, k->g->arrays.data[0], "sum");
    k_close(k);
    buf_line(k->out, "first = false;");
    buf_line(k->out, "place = key;");
    buf_line(k->out, "sum = 0;");
    k_close(k);
}

static void add_term(Kernel *k)
{
    Node r = reduction(k);
    const Node *a = k_node(k, k->g->arrays.data[0]);
    bool only;
    Named named = { 0 };
    k_open(k, "if (key < %s)", rows_text(k));
    split_position(k, "position");
    bind_place(k, "key");
    ir_pinned(k->p->m, r.args[0], a->axes[k->g->scatter->axis], a->axes, a->naxes, &only);
    NodeId term = only ? k_node(k, r.args[0])->args[1] : r.args[0];
    const char *v = k_body(k, term, &named);
    buf_line(k->out, "sum += %s;", v);
    k_forget(k, &named);
    k_close(k);
}

static void print_sums(Kernel *k)
{
    print_sorted(k);
    k_written(k, REF_BUFFER, k->g->scatter->partial, k->p->compute);
    k_open(k, "for (int64_t share = cell_block_index(1); share < shares; share += cell_block_count(1))");
    buf_line(k->out, "const int64_t begin = cell_share(positions, share, shares);");
    buf_line(k->out, "const int64_t end = cell_share(positions, share + 1, shares)%s;",
             mutate("lost-tail") ? " - (share == 0)" : "");
    open_columns(k);
    k_comment(k, k->g->arrays.data[0]);
    buf_line(k->out, "%s sum = 0;", k->real);
    buf_line(k->out, "bool first = true;");
    buf_line(k->out, "int64_t place = keys[order[begin]];");
    k_open(k, "for (int64_t n = begin; n < end; n++)");
    buf_line(k->out, "const int64_t position = order[n], key = keys[position];");
    end_of_place(k);
    add_term(k);
    k_close(k);
    buf_line(k->out, "if (first)");
    buf_line(k->out, "    %s = sum;", partial_at(k, "2 * share"));
    buf_line(k->out, "%s = first ? 0 : sum;", partial_at(k, "2 * share + 1"));
    k_close(k);
    k_close(k);
}

static void print_totals(Kernel *k)
{
    print_sorted(k);
    k_open(k, "for (int64_t entry = cell_block_index(1); entry < 2 * shares; entry += cell_block_count(1))");
    buf_line(k->out, "const int64_t place = cell_sort_entry(keys, order, positions, shares, entry);");
    buf_line(k->out, "const bool begun = entry > 0 && cell_sort_entry(keys, order, positions, shares, entry - 1) == place;");
    k_open(k, "if (place == %s || begun)", rows_text(k));
    buf_line(k->out, "continue;");
    k_close(k);
    buf_line(k->out, "int64_t end = entry + 1;");
    buf_line(k->out, "while (end < 2 * shares && cell_sort_entry(keys, order, positions, shares, end) == place)");
    buf_line(k->out, "    end++;");
    open_columns(k);
    buf_line(k->out, "%s sum = 0;", k->real);
    buf_line(k->out, "for (int64_t n = entry; n < %s; n++)", mutate("first-share") ? "entry + 1" : "end");
    buf_line(k->out, "    sum += %s;", partial_at(k, "n"));
    k->b = k->t = "0";
    bind_place(k, "place");
    k_store(k, k->g->arrays.data[0], "sum");
    k_close(k);
    k_close(k);
}

void emit_scatter(Plan *p, Program *pr, Group *g, Buf *out)
{
    static void (*const body[6])(Kernel *k) = { print_keys, print_count, print_scan,
                                                print_move, print_sums, print_totals };
    for (int i = 0; i < 6; i++) {
        Kernel k = kernel_new(p, pr, g, &g->scatter->refs[i], out);
        k.threads = scatter_threads(i);
        k_print(&k, intern_f(p->m->c, "%s_%s", g->kernel, scatter_kernels[i]), body[i]);
        kernel_release(&k);
    }
}
