/* tile_place.c: where a thread's elements are, as text. In: a layout. Out: the number, along its side, of a thread's row or
 * column; loops over them; who stores a value that several threads hold; the spec's line as a comment. */
#include <string.h>

#include "base/mutate.h"
#include "tile_step.h"

bool tile_rows_exact(const Tile *t)
{
    return t->rows == tile_row_warps(&t->lay) * t->lay.lr * t->lay.rr;
}

bool tile_cols_exact(const Tile *t)
{
    return t->cols == t->lay.wc * t->lay.lc * t->lay.rc;
}

/* Of more than 16 bytes, what neighbouring threads read at once of a vector would lie in the same banks of shared memory. So a
 * thread's rows (columns) are groups of GROUP neighbours then: from one group to the thread's next one. 0: they are one run. */
int tile_apart(const Tile *t, bool rows)
{
    const TileLayout *l = &t->lay;
    int n = rows ? l->rr : l->rc;
    bool exact = rows ? tile_rows_exact(t) : tile_cols_exact(t);
    if (!exact || l->cr > 1 || n <= GROUP || n % GROUP || t->real_bytes * GROUP != 16)
        return 0;
    return GROUP * (rows ? l->wr * l->lr : l->wc * l->lc);
}

/* The number, along the side, of the thread's element `i` of those from `first` on ("" or " + ..."). */
const char *tile_numbered(Tile *t, bool rows, const char *from, const char *first, const char *i)
{
    int apart = tile_apart(t, rows);
    if (!apart)
        return tile_text(t, "%s%s + %s", from, first, i);
    const char *e = *first && !mutate("first-group") ? tile_text(t, "(%s + %s)", first + strlen(" + "), i) : i;
    return tile_text(t, "%s + %s %% %d + %s / %d * %d", from, e, GROUP, e, GROUP, apart);
}

/* The same, counted from the thread's first element. */
const char *tile_own_number(Tile *t, bool rows, const char *i)
{
    int apart = tile_apart(t, rows);
    return apart ? tile_text(t, "%s %% %d + %s / %d * %d", i, GROUP, i, GROUP, apart) : i;
}

/* Elements beyond the edge are copies of the edge's: they compute what it does and are left out of sums and
 * stores. */
const char *tile_row_text(Tile *t)
{
    return tile_rows_exact(t) ? tile_text(t, "(%s)", tile_numbered(t, true, "row0", "", "r")) : "cell_min(row0 + r, last_row)";
}

const char *tile_col_text(Tile *t)
{
    return tile_cols_exact(t) ? tile_text(t, "(%s)", tile_numbered(t, false, "col0", "", "c")) : "cell_min(col0 + c, last_col)";
}

void tile_open(Tile *t, Buf *b, bool rows, bool cols)
{
    if (rows) {
        buf_line(b, "CELL_UNROLL");
        buf_line(b, "for (int r = 0; r < %d; r++) {", t->lay.rr);
        b->indent++;
    }
    if (cols) {
        buf_line(b, "CELL_UNROLL");
        buf_line(b, "for (int c = 0; c < %d; c++) {", t->lay.rc);
        b->indent++;
    }
}

void tile_close(Buf *b, bool rows, bool cols)
{
    for (int i = 0; i < rows + cols; i++) {
        b->indent--;
        buf_line(b, "}");
    }
}

const char *tile_both(Tile *t, const char *a, const char *b)
{
    return !a ? b : !b ? a : tile_text(t, "%s && %s", a, b);
}

const char *tile_owned(Tile *t, bool rows, bool cols)
{
    const char *a = rows && !tile_rows_exact(t) ? "row0 + r <= last_row" : NULL;
    return tile_both(t, a, cols && !tile_cols_exact(t) ? "col0 + c <= last_col" : NULL);
}

/* Threads that hold copies of a value that does not vary over rows (columns): the first one stores it. */
const char *tile_owner(Tile *t, bool rows, bool cols)
{
    const char *who = NULL;
    if (!rows && t->lay.lr > 1)
        who = tile_both(t, who, "lane_row == 0");
    if (!rows && tile_row_warps(&t->lay) > 1)
        who = tile_both(t, who, "warp_row == 0");
    if (!cols && t->lay.lc > 1)
        who = tile_both(t, who, "lane_col == 0");
    if (!cols && t->lay.wc > 1)
        who = tile_both(t, who, "warp_col == 0");
    return who;
}

const char *tile_origin(Tile *t, NodeId id)
{
    const Node *value = &t->m->nodes.data[id];
    Span span = value->span;
    if (span.file < 0 || span.file >= t->m->c->sources.len || span.hi <= span.lo)
        return "";
    const char *text = t->m->c->sources.data[span.file].text + span.lo;
    int n = 0, max = (int)(span.hi - span.lo);
    while (n < max && n < 88 && text[n] != '\n' && text[n] != ';')
        n++;
    return tile_text(t, "  // %s%.*s", value->dep & DEP_COTANGENT ? "adjoint of " : "", n, text);
}
