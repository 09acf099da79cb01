/* table.c: text in aligned columns. In: rows of cells. Out: lines of at most TABLE_WIDTH characters where the
 * columns before the last leave room for it; a last cell that does not fit goes on below itself, or below its
 * row where nothing would fit beside it; a column without text takes no room. */
#include <string.h>

#include "table.h"

void table_row(Compiler *c, Table *t, ...)
{
    TableRow row = { { NULL } };
    va_list ap;
    va_start(ap, t);
    for (int i = 0; i < TABLE_COLUMNS; i++) {
        const char *cell = va_arg(ap, const char *);
        if (!cell)
            break;
        row.cell[i] = cell;
        t->columns = i + 1 > t->columns ? i + 1 : t->columns;
    }
    va_end(ap);
    vec_push(c->arena, &t->rows, row);
}

/* Bytes of the next line of text within a width: up to the last space that fits, else to the next one. */
static size_t line_length(const char *text, size_t width)
{
    size_t n = strlen(text), cut = 0;
    if (n <= width)
        return n;
    for (size_t i = 0; i < n && (i <= width || !cut); i++)
        if (text[i] == ' ')
            cut = i;
    return cut ? cut : n;
}

static void put_wrapped(const char *text, int indent, Buf *out)
{
    enum { NARROWEST = 12 };
    size_t width = TABLE_WIDTH - indent > NARROWEST ? (size_t)(TABLE_WIDTH - indent) : NARROWEST;
    for (bool first = true; *text || first; first = false) {
        size_t n = line_length(text, width);
        buf_f(out, "%*s%.*s\n", first ? 0 : indent, "", (int)n, text);
        text += n;
        text += *text == ' ';
    }
}

void put_paragraph(const char *text, int indent, Buf *out)
{
    buf_f(out, "%*s", indent, "");
    put_wrapped(text, indent, out);
}

static const char *cell_at(const TableRow *row, int i)
{
    return row->cell[i] ? row->cell[i] : "";
}

/* Where the last column may begin at most, so that its longest word still fits. */
static int last_column_limit(const Table *t)
{
    int longest = 24;
    for (int r = 0; r < t->rows.len; r++)
        for (const char *p = cell_at(&t->rows.data[r], t->columns - 1); *p;) {
            int n = (int)strcspn(p, " ");
            longest = n > longest ? n : longest;
            p += n + (p[n] == ' ');
        }
    return longest < TABLE_WIDTH - 2 ? TABLE_WIDTH - longest : 2;
}

/* Blanks between columns: two, or one where those before the last would be too wide. */
static int gap_of(const Table *t, const int *width)
{
    int all = 0;
    for (int i = 0; i + 1 < t->columns; i++)
        all += width[i] ? width[i] + 2 : 0;
    return all > TABLE_WIDTH ? 1 : 2;
}

void table_print(const Table *t, Buf *out)
{
    int limit = last_column_limit(t);
    int width[TABLE_COLUMNS] = { 0 };
    for (int r = 0; r < t->rows.len; r++)
        for (int i = 0; i < t->columns; i++) {
            int n = (int)strlen(cell_at(&t->rows.data[r], i));
            width[i] = n > width[i] ? n : width[i];
        }
    int gap = gap_of(t, width);
    for (int r = 0; r < t->rows.len; r++) {
        int at = 2;
        buf_f(out, "  ");
        for (int i = 0; i + 1 < t->columns; i++) {
            const char *cell = cell_at(&t->rows.data[r], i);
            if (!width[i])
                continue;
            buf_f(out, t->right >> i & 1 ? "%*s%*s" : "%-*s%*s", width[i], cell, gap, "");
            at += width[i] + gap;
        }
        const char *last = cell_at(&t->rows.data[r], t->columns - 1);
        if (at > limit && *last) {                  /* no room behind: on lines of its own */
            while (out->data[out->len - 1] == ' ')
                out->len--;
            buf_f(out, "\n%*s", at = limit, "");
        }
        put_wrapped(last, at, out);
        while (out->len > 1 && out->data[out->len - 2] == ' ') {      /* an empty last cell leaves blanks */
            out->data[out->len - 2] = '\n';
            out->len--;
        }
    }
}
