/* mathml.c: equations as MathML (MathML Core, which browsers show without a script). In: the AST of statements of a spec
 * without errors. Out: the same as people print it: indices below, powers raised, quotients as fractions, square roots
 * under a root, sums with their indices under the sign, a condition as cases. Guaranteed: nothing is left out or put in
 * another order; parentheses go only where the shape says what they said (a fraction, a root, an exponent, a bracket of
 * a function). A name in parts, such as W_kvqm, has what is behind its first underscore as a label, in parentheses
 * above where there are indices below. */
#include "mathml.h"

#include <ctype.h>
#include <string.h>

#include "typeset.h"

typedef struct Math {
    const Source *source;
    Buf *out;
    int in_index;                 /* > 0: inside of indices, where all is small and on one line */
} Math;

static const char *const reduction_words[] = { "∑", "mean", "max", "min", "∏", "softmax" };
static const char *const signs[] = { "", "−", "¬", "", "·", "/", "mod", "+", "−", "&lt;", "≤", "&gt;", "≥", "=", "≠", "and", "or" };

static void put(const Math *m, const char *text)
{
    buf_f(m->out, "%s", text);
}

static void put_expr(Math *m, const Expr *e);

static void put_escaped(Buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *entity = s[i] == '<' ? "&lt;" : s[i] == '>' ? "&gt;" : s[i] == '&' ? "&amp;" : s[i] == '"' ? "&quot;" : NULL;
        if (entity)
            buf_f(out, "%s", entity);
        else
            buf_f(out, "%c", isspace((unsigned char)s[i]) ? ' ' : s[i]);
    }
}

/* ---- names ---- */

/* A name, or a part of one, in Unicode: Greek letters as letters. */
static void put_word(const Math *m, const char *s, size_t n)
{
    put(m, "<mi>");
    typeset(s, n, m->out);
    put(m, "</mi>");
}

/* Where the label of a name begins: behind the first underscore, or the digits at its end; its length where there is none. */
static size_t label_at(const char *name)
{
    size_t n = strlen(name), head = strcspn(name, "_");
    if (head > 0 && head < n - 1)
        return head;
    for (head = n; head > 1 && isdigit((unsigned char)name[head - 1]);)
        head--;
    return head;
}

static void put_label(const Math *m, const char *label)
{
    bool number = isdigit((unsigned char)*label) != 0;
    put(m, number ? "<mn>" : "<mtext>");
    for (label += *label == '_'; *label; label++)
        buf_f(m->out, "%c", *label == '_' ? ' ' : *label);
    put(m, number ? "</mn>" : "</mtext>");
}

static void put_list(Math *m, const ExprVec *list)
{
    for (int i = 0; i < list->len; i++) {
        put(m, i ? "<mo>,</mo>" : "");
        put_expr(m, list->data[i]);
    }
}

static void put_binders(Math *m, const BinderVec *list, bool ranges)
{
    for (int i = 0; i < list->len; i++) {
        const Binder *k = &list->data[i];
        put(m, i ? "<mo>,</mo>" : "");
        if (k->fixed)
            put_expr(m, k->fixed);
        else
            put_word(m, k->name, strlen(k->name));
        if (k->range && ranges) {
            put(m, "<mo>&lt;</mo>");
            put_expr(m, k->range);
        }
    }
}

/* What stands below a name: an expression's indices, or those of a left side. */
typedef struct Below { const ExprVec *args; const Expr *time; const BinderVec *lhs; } Below;

static bool is_empty(Below b)
{
    return !(b.args && b.args->len) && !b.time && !(b.lhs && b.lhs->len);
}

static void put_below(Math *m, Below b)
{
    put(m, "<mrow>");
    m->in_index++;
    if (b.lhs)
        put_binders(m, b.lhs, false);
    if (b.args)
        put_list(m, b.args);
    if (b.time) {
        put(m, b.args && b.args->len ? "<mo>;</mo>" : "");
        put_expr(m, b.time);
    }
    m->in_index--;
    put(m, "</mrow>");
}

static void put_above(const Math *m, const char *label, bool primed)
{
    put(m, "<mrow>");
    put(m, primed ? "<mo>′</mo>" : "");
    if (label) {
        put(m, "<mo stretchy=\"false\">(</mo>");
        put_label(m, label);
        put(m, "<mo stretchy=\"false\">)</mo>");
    }
    put(m, "</mrow>");
}

static void put_name(Math *m, const char *name, bool primed, Below below)
{
    size_t head = label_at(name);
    const char *label = name[head] ? name + head : NULL;
    bool indices = !is_empty(below), above = primed || (label && indices), under = indices || (label && !above);
    put(m, above && (under || label) ? "<msubsup>" : above ? "<msup>" : under ? "<msub>" : "");
    put_word(m, name, head);
    if (indices)
        put_below(m, below);
    else if (label)
        put_label(m, label);
    if (above)
        put_above(m, indices ? label : NULL, primed);
    put(m, above && (under || label) ? "</msubsup>" : above ? "</msup>" : under ? "</msub>" : "");
}

/* ---- expressions ---- */

/* 1e-6 as a power of ten. */
static void put_number(const Math *m, const Expr *e)
{
    const char *s = m->source->text + e->span.lo;
    int n = (int)(e->span.hi - e->span.lo), mantissa = 0;
    while (mantissa < n && s[mantissa] != 'e' && s[mantissa] != 'E')
        mantissa++;
    if (!isdigit((unsigned char)*s) && *s != '.') {
        put_word(m, s, (size_t)n);
        return;
    }
    if (mantissa == n) {
        buf_f(m->out, "<mn>%.*s</mn>", n, s);
        return;
    }
    bool negative = s[mantissa + 1] == '-', one = mantissa == 1 && *s == '1';
    int from = mantissa + 1 + (negative || s[mantissa + 1] == '+');
    if (!one)
        buf_f(m->out, "<mn>%.*s</mn><mo>·</mo>", mantissa, s);
    buf_f(m->out, "<msup><mn>10</mn><mrow>%s<mn>%.*s</mn></mrow></msup>", negative ? "<mo>−</mo>" : "", n - from, s + from);
}

static void put_open(const Math *m) { put(m, "<mrow><mo>(</mo>"); }
static void put_close(const Math *m) { put(m, "<mo>)</mo></mrow>"); }

/* Without the parentheses that the user put around it. */
static void put_inner(Math *m, const Expr *e)
{
    Expr bare = *e;
    bare.parens = 0;
    put(m, "<mrow>");
    put_expr(m, &bare);
    put(m, "</mrow>");
}

static void put_call_of(Math *m, const Expr *e)
{
    bool single = e->args.len == 1 && !e->held.len;
    if (single && strcmp(e->name, "sqrt") == 0) {
        put(m, "<msqrt>");
        put_inner(m, e->args.data[0]);
        put(m, "</msqrt>");
        return;
    }
    if (single && strcmp(e->name, "abs") == 0) {
        put(m, "<mrow><mo>|</mo>");
        put_inner(m, e->args.data[0]);
        put(m, "<mo>|</mo></mrow>");
        return;
    }
    put(m, "<mrow>");
    put_word(m, e->name, strlen(e->name));
    put(m, "<mo>&#x2061;</mo>");
    put_open(m);
    put_list(m, &e->args);
    if (e->held.len) {
        put(m, "<mo>;</mo>");
        put_list(m, &e->held);
    }
    put_close(m);
    if (e->member) {
        put(m, "<mo>.</mo>");
        put_word(m, e->member, strlen(e->member));
    }
    put(m, "</mrow>");
}

static void put_call(Math *m, const Expr *e)
{
    if (!e->brackets) {
        put_call_of(m, e);
        return;
    }
    put(m, "<msub>");
    put_call_of(m, e);
    put_below(m, (Below){ .args = &e->index });
    put(m, "</msub>");
}

static void put_fraction(Math *m, const Expr *e)
{
    put(m, "<mfrac>");
    put_inner(m, e->a);
    put_inner(m, e->b);
    put(m, "</mfrac>");
}

static void put_binary(Math *m, const Expr *e)
{
    if (e->op == O_DIV && !m->in_index) {
        put_fraction(m, e);
        return;
    }
    if (e->op == O_POW) {
        put(m, "<msup>");
        if (e->a->kind == X_BINARY && e->a->op == O_DIV) {
            put_open(m);                         /* else the power would seem to be the numerator's */
            put_inner(m, e->a);
            put_close(m);
        } else {
            put(m, "<mrow>");
            put_expr(m, e->a);
            put(m, "</mrow>");
        }
        put_inner(m, e->b);
        put(m, "</msup>");
        return;
    }
    put_expr(m, e->a);
    bool word = e->op == O_AND || e->op == O_OR, tight = m->in_index && e->op == O_MUL;
    if (word)
        buf_f(m->out, "<mtext> %s </mtext>", signs[e->op]);
    else if (tight && e->a->kind == X_NUM && !e->a->parens)
        put(m, "<mo>&#x2062;</mo>");
    else if (m->in_index)
        buf_f(m->out, "<mo lspace=\"0.1em\" rspace=\"0.1em\">%s</mo>", signs[e->op]);
    else
        buf_f(m->out, "<mo>%s</mo>", signs[e->op]);
    put_expr(m, e->b);
}

/* c ? a : d ? b : e as cases; within indices on one line. */
static void put_cases(Math *m, const Expr *e)
{
    if (m->in_index) {
        put_expr(m, e->a);
        put(m, "<mo>?</mo>");
        put_expr(m, e->b);
        put(m, "<mo>:</mo>");
        put_expr(m, e->c);
        return;
    }
    put(m, "<mrow><mo>{</mo><mtable columnalign=\"left\" class=\"cases\">");
    for (bool more = true; more; e = e->c) {
        put(m, "<mtr><mtd>");
        put_inner(m, e->b);
        put(m, "</mtd><mtd><mtext>if </mtext>");
        put_inner(m, e->a);
        put(m, "</mtd></mtr>");
        more = e->c->kind == X_COND;
        if (!more) {
            put(m, "<mtr><mtd>");
            put_inner(m, e->c);
            put(m, "</mtd><mtd><mtext>otherwise</mtext></mtd></mtr>");
        }
    }
    put(m, "</mtable></mrow>");
}

static void put_reduction(Math *m, const Expr *e)
{
    bool sign = e->reduce == R_SUM || e->reduce == R_PROD;
    put(m, "<mrow><munder>");
    buf_f(m->out, sign ? "<mo>%s</mo>" : "<mi>%s</mi>", reduction_words[e->reduce]);
    put(m, "<mrow>");
    m->in_index++;
    put_binders(m, &e->binders, true);
    m->in_index--;
    put(m, sign ? "</mrow></munder>" : "</mrow></munder><mspace width=\"0.17em\"></mspace>");
    put_expr(m, e->a);
    put(m, "</mrow>");
}

static void put_bare(Math *m, const Expr *e)
{
    switch (e->kind) {
    case X_NUM: put_number(m, e); break;
    case X_REF: put_name(m, e->name, e->primed, (Below){ .args = &e->args, .time = e->time }); break;
    case X_CALL: put_call(m, e); break;
    case X_UNARY:
        put(m, e->op == O_NEG ? "<mo>−</mo>" : "<mo>¬</mo>");
        put_expr(m, e->a);
        break;
    case X_BINARY: put_binary(m, e); break;
    case X_COND: put_cases(m, e); break;
    case X_REDUCE: put_reduction(m, e); break;
    case X_COLON: put(m, "<mo>:</mo>"); break;
    case X_ERROR: break;
    }
}

static void put_expr(Math *m, const Expr *e)
{
    bool drawn = e->kind == X_BINARY && e->op == O_DIV && !m->in_index;        /* a fraction holds itself together */
    if (!e->parens || drawn) {
        put_bare(m, e);
        return;
    }
    put_open(m);
    put_bare(m, e);
    put_close(m);
}

/* ---- statements ---- */

static Math begin(const Source *source, Span text, Buf *out)
{
    uint32_t hi = text.hi;
    while (hi > text.lo && (isspace((unsigned char)source->text[hi - 1]) || strchr(";{", source->text[hi - 1])))
        hi--;
    buf_f(out, "<math display=\"block\" alttext=\"");
    put_escaped(out, source->text + text.lo, hi - text.lo);
    buf_f(out, "\"><mrow>");
    return (Math){ source, out, 0 };
}

static void end(const Math *m)
{
    put(m, "</mrow></math>");
}

/* The bounds that a left side states: i < N. */
static void put_ranges(Math *m, const BinderVec *lhs)
{
    bool any = false;
    for (int i = 0; i < lhs->len; i++) {
        const Binder *k = &lhs->data[i];
        if (!k->range)
            continue;
        put(m, any ? "<mo>,</mo>" : "<mspace width=\"2em\"></mspace><mo stretchy=\"false\">(</mo>");
        any = true;
        put_word(m, k->name, strlen(k->name));
        put(m, "<mo>&lt;</mo>");
        put_expr(m, k->range);
    }
    put(m, any ? "<mo stretchy=\"false\">)</mo>" : "");
}

static void put_head(Math *m, const Stmt *s)
{
    if (s->kind != S_FN) {
        put_name(m, s->name, s->primed, (Below){ .lhs = &s->lhs, .args = s->kind == S_CARRY ? &s->axes : NULL });
        return;
    }
    if (s->lhs.len)
        put(m, "<msub><mrow>");
    put_word(m, s->name, strlen(s->name));
    put(m, "<mo>&#x2061;</mo>");
    put_open(m);
    for (int i = 0; i < s->params.len + s->held.len; i++) {
        bool held = i >= s->params.len;
        const char *name = held ? s->held.data[i - s->params.len] : s->params.data[i];
        put(m, i == 0 ? "" : i == s->params.len ? "<mo>;</mo>" : "<mo>,</mo>");
        put_name(m, name, false, (Below){ NULL, NULL, NULL });
    }
    put_close(m);
    if (s->lhs.len) {
        put(m, "</mrow>");
        put_below(m, (Below){ .lhs = &s->lhs });
        put(m, "</msub>");
    }
}

void mathml_statement(const Source *source, const Stmt *s, Buf *out)
{
    Span text = s->span;
    if (s->kind == S_FN && s->has_body && s->body.len)
        text.hi = s->body.data[0]->span.lo;
    Math m = begin(source, text, out);
    const Expr *value = s->kind == S_CARRY ? s->init : s->value;
    if (s->kind == S_FN && s->is_const)
        put(&m, "<mtext>adjoint of </mtext>");
    if (s->kind == S_CARRY)
        put(&m, "<mtext>carry </mtext>");
    put_head(&m, s);
    if (value) {
        put(&m, "<mo>=</mo>");
        put_expr(&m, value);
    }
    put_ranges(&m, &s->lhs);
    if (s->text) {
        put(&m, "<mtext> : ");
        put_escaped(m.out, s->text, strlen(s->text));
        put(&m, "</mtext>");
    }
    end(&m);
}

void mathml_range(const Source *source, const Binder *index, Buf *out)
{
    Math m = begin(source, (Span){ .lo = index->span.lo, .hi = index->range->span.hi }, out);
    put_word(&m, index->name, strlen(index->name));
    put(&m, "<mo>&lt;</mo>");
    put_expr(&m, index->range);
    end(&m);
}
