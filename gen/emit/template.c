/* template.c: prints a part of a template. In come the part, as templates/templates.awk has made it, and a
 * value for each of its holes; out goes its text, as far in as the buffer is. A hole without a value is an
 * error of the compiler's. */
#include <string.h>

#include "base/diag.h"
#include "template.h"

static const char *text_of(const Template *t, int hole, const void *frame)
{
    const char *text;
    memcpy(&text, (const char *)frame + t->holes[hole].offset, sizeof text);
    return text;
}

static bool holds(const Template *t, int hole, const void *frame)
{
    if (t->holes[hole].kind == TEMPLATE_IS)
        return *((const bool *)((const char *)frame + t->holes[hole].offset));
    const char *text = text_of(t, hole, frame);
    return text && *text;
}

static void print_lines(Buf *out, int columns, const char *text)
{
    if (columns == 0)
        buf_text(out, text);
    for (const char *end; columns && *text; text = end) {
        end = strchr(text, '\n');
        end = end ? end + 1 : text + strlen(text);
        buf_blanks(out, end - text > 1 ? columns : 0);
        buf_bytes(out, text, (size_t)(end - text));
    }
}

void template_print(Buf *out, const Template *t, const void *frame)
{
    for (int i = 0; i < t->nholes; i++)
        if (t->holes[i].kind == TEMPLATE_ALWAYS && !text_of(t, i, frame))
            bug(NULL, "templates", "part '%s' has no value for hole '%s'", t->name, t->holes[i].name);
    int in = 4 * out->indent;
    for (int i = 0; i < t->npieces; i++) {
        const TemplatePiece *p = &t->pieces[i];
        switch (p->op) {
        case TEMPLATE_LINE:
            buf_blanks(out, in + p->n);
            buf_text(out, p->text);
            break;
        case TEMPLATE_TEXT: buf_text(out, p->text); break;
        case TEMPLATE_HOLE:
        case TEMPLATE_LINES: {
            const char *text = text_of(t, p->hole, frame);
            if (!text)
                bug(NULL, "templates", "part '%s' has no value for hole '%s'", t->name,
                    t->holes[p->hole].name);
            if (p->op == TEMPLATE_LINES)
                print_lines(out, in + p->n, text);
            else
                buf_text(out, text);
            break;
        }
        case TEMPLATE_IF: i = holds(t, p->hole, frame) ? i : p->n - 1; break;
        case TEMPLATE_GOTO: i = p->n - 1; break;
        }
    }
}
