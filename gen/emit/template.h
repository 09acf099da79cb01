/* template.h: skeletons of kernels with holes (templates/). The build makes of each file there a header,
 * templates/NAME.h, with a struct and a function NAME_frame for each part (templates/templates.awk): a
 * printer sets the struct's fields, a text for each hole, and calls the function. */
#ifndef CELLC_TEMPLATE_H
#define CELLC_TEMPLATE_H

#include "base/util.h"

typedef enum {
    TEMPLATE_ALWAYS, /* a text */
    TEMPLATE_MAYBE, /* a text, or NULL; as a condition, whether it has a character */
    TEMPLATE_IS, /* a bool */
} TemplateKind;

typedef struct TemplateHole {
    const char *name;
    size_t offset;
    TemplateKind kind;
} TemplateHole;

typedef enum {
    TEMPLATE_LINE, /* begins a line, n columns in, with a text */
    TEMPLATE_TEXT, /* goes on with a text */
    TEMPLATE_HOLE, /* goes on with a hole's */
    TEMPLATE_LINES, /* a hole's lines, n columns further in */
    TEMPLATE_IF, /* goes to piece n where the hole has nothing */
    TEMPLATE_GOTO, /* goes to piece n */
} TemplateOp;

typedef struct TemplatePiece {
    TemplateOp op;
    int n, hole;
    const char *text;
} TemplatePiece;

typedef struct Template {
    const char *name;
    const TemplatePiece *pieces;
    int npieces;
    const TemplateHole *holes;
    int nholes;
} Template;

/* frame: the struct with the holes' values. */
void template_print(Buf *out, const Template *t, const void *frame);
/* What has been printed, as the value of a hole of lines. */
static inline const char *template_lines(const Buf *text)
{
    return text->data ? text->data : "";
}

#endif
