/* fmt.c: AST to canonical text. In: the AST of a file without errors, and that file's source for its
 * comments, blank lines and the spelling of its numbers. Out: the same cell in one style: four spaces a
 * level, one statement a line, lines of at most 110 columns broken before the loosest operator. Guaranteed:
 * formatting the result gives it again, and parsing it gives an equal AST. A comment keeps its place: on its
 * own line, or behind the statement it followed; one in the middle of a statement moves above it.
 * `explicit_form` writes every pair of parentheses that precedence implies. */
#include <ctype.h>
#include <string.h>

#include "parser.h"

enum {
    LIMIT = 110,
    CONTINUE = 8, /* further indentation of a continued line */
    BREAK = 1     /* in a text: here the line may be broken; the next byte is the depth, 1 is loosest */
};

typedef struct Comment {
    uint32_t lo, hi;
} Comment;
typedef struct Line {
    const char *text;
    const char *comment;
} Line;

typedef struct Fmt {
    Compiler *c;
    const Source *src;
    bool explicit_form;
    Vec(Comment) comments;
    int next; /* first comment that is not written yet */
    Vec(Line) lines;
    int indent;
    int in_index; /* > 0 inside index brackets and extents: products are written tight */
    int nesting;
    uint32_t done; /* the source up to here is written */
    bool block_start;
} Fmt;

static const char *const reduce_text[] = {"sum", "mean", "max", "min", "prod", "softmax"};
static const char *const op_text[] = {"",  "-",  "!", "^",  "*",  "/",  "%",  "+", "-",
                                      "<", "<=", ">", ">=", "==", "!=", "&&", "||"};

/* ---- comments and blanks of the source ---- */

static void collect_comments(Fmt *f)
{
    const char *s = f->src->text;
    uint32_t n = (uint32_t)f->src->len;
    for (uint32_t i = 0; i < n;) {
        uint32_t lo = i;
        if (s[i] == '/' && s[i + 1] == '/') {
            while (i < n && s[i] != '\n')
                i++;
        } else if (s[i] == '/' && s[i + 1] == '*') {
            for (i += 2; i < n && !(s[i] == '*' && s[i + 1] == '/'); i++)
                ;
            i = i + 2 < n ? i + 2 : n;
        } else if (s[i] == '"') {
            for (i++; i < n && s[i] != '"' && s[i] != '\n'; i++)
                ;
            i++;
            continue;
        } else {
            i++;
            continue;
        }
        vec_push(f->c->arena, &f->comments, ((Comment){lo, i}));
    }
}

/* The first `ch` at or after `from` outside comments, or the end of the source. */
static uint32_t find_char(const Fmt *f, uint32_t from, char ch)
{
    const Source *src = f->src;
    for (uint32_t i = skip_blank(src, from); i < src->len; i = skip_blank(src, i + 1))
        if (src->text[i] == ch)
            return i;
    return (uint32_t)src->len;
}

static bool has_newline(const Fmt *f, uint32_t lo, uint32_t hi)
{
    return hi > lo && memchr(f->src->text + lo, '\n', hi - lo) != NULL;
}

/* Is there an empty line between what was written last and `at`? */
static bool blank_before(const Fmt *f, uint32_t at)
{
    int newlines = 0;
    for (uint32_t i = at; i > f->done && isspace((unsigned char)f->src->text[i - 1]); i--)
        newlines += f->src->text[i - 1] == '\n';
    return newlines >= 2;
}

/* ---- lines ---- */

static void push_line(Fmt *f, int indent, const char *text, size_t len)
{
    Buf b = {.arena = f->c->arena};
    while (len && isspace((unsigned char)text[len - 1]))
        len--;
    if (len)
        buf_f(&b, "%*s%.*s", indent, "", (int)len, text);
    Line line = {.text = b.data ? b.data : ""};
    vec_push(f->c->arena, &f->lines, line);
}

static void separate(Fmt *f, uint32_t at)
{
    if (!f->block_start && blank_before(f, at))
        push_line(f, 0, "", 0);
    f->block_start = false;
}

/* Length of a text as it is shown: each mark of a break (two bytes) is a space. */
static size_t shown_len(const char *s)
{
    size_t n = 0;
    for (; *s; s += *s == BREAK ? 2 : 1)
        n++;
    return n;
}

static bool is_longer(const char *s, int room)
{
    int n = 0;
    for (; *s && n <= room; s += *s == BREAK ? 2 : 1)
        n++;
    return n > room;
}

/* The mark at which a text too long for `room` columns is broken: the loosest that fits, of these the last.
 */
static const char *choose_break(const char *s, size_t room)
{
    const char *best = NULL;
    size_t n = 0;
    for (; *s && (n <= room || !best); s += *s == BREAK ? 2 : 1, n++)
        if (*s == BREAK && (!best || s[1] <= best[1]))
            best = s;
    return best;
}

static void push_part(Fmt *f, int indent, const char *s, size_t len)
{
    Buf b = {.arena = f->c->arena};
    for (size_t i = 0; i < len; i++) {
        buf_f(&b, "%c", s[i] == BREAK ? ' ' : s[i]);
        i += s[i] == BREAK;
    }
    push_line(f, indent, b.data ? b.data : "", b.len);
}

/* Writes a statement with marks of breaks as one line or several. */
static void put_statement(Fmt *f, const char *s)
{
    int indent = 4 * f->indent;
    while (is_longer(s, LIMIT - indent)) {
        const char *at = choose_break(s, indent + CONTINUE < LIMIT ? (size_t)(LIMIT - indent) : 20);
        if (!at)
            break;
        push_part(f, indent, s, (size_t)(at - s));
        s = at + 2;
        indent = 4 * f->indent + CONTINUE;
    }
    push_part(f, indent, s, strlen(s));
}

/* ---- writing comments ---- */

static void own_line_comment(Fmt *f, const Comment *k)
{
    separate(f, k->lo);
    const char *s = f->src->text + k->lo, *end = f->src->text + k->hi;
    for (bool first = true; s < end; first = false) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        const char *stop = nl ? nl : end;
        push_line(f, first ? 4 * f->indent : 0, s, (size_t)(stop - s));
        s = nl ? nl + 1 : end;
    }
    f->done = k->hi;
}

static void comments_before(Fmt *f, uint32_t at)
{
    while (f->next < f->comments.len && f->comments.data[f->next].lo < at)
        own_line_comment(f, &f->comments.data[f->next++]);
}

/* A comment behind `at` on its line belongs to the line written last. */
static void trailing_comment(Fmt *f, uint32_t at)
{
    f->done = at;
    if (f->next >= f->comments.len || !f->lines.len)
        return;
    Comment k = f->comments.data[f->next];
    if (k.lo < at || has_newline(f, at, k.hi))
        return;
    for (uint32_t i = at; i < k.lo; i++)
        if (!isspace((unsigned char)f->src->text[i]) && f->src->text[i] != ';' && f->src->text[i] != ',')
            return;
    uint32_t hi = k.hi;
    while (hi > k.lo && isspace((unsigned char)f->src->text[hi - 1]))
        hi--;
    f->lines.data[f->lines.len - 1].comment = intern_n(f->c, f->src->text + k.lo, hi - k.lo);
    f->next++;
    f->done = k.hi;
}

/* ---- expressions ---- */

static void put_expr(Fmt *f, Buf *b, const Expr *e);

static void put_break(Fmt *f, Buf *b, int looseness)
{
    int depth = 10 * f->nesting + looseness;
    buf_f(b, "%c%c", BREAK, depth < 120 ? depth + 1 : 121);
}

static bool is_atom(const Expr *e)
{
    return !e->parens &&
           (e->kind == X_COLON || e->kind == X_NUM || (e->kind == X_REF && !e->brackets && !e->primed));
}

static void put_list(Fmt *f, Buf *b, const ExprVec *list, bool tight)
{
    for (int i = 0; i < list->len; i++) {
        if (i) {
            buf_f(b, ",");
            if (!tight)
                put_break(f, b, 0);
        }
        put_expr(f, b, list->data[i]);
    }
}

/* Index arguments: M[i,j] tight when all are plain, W[N + i, d] otherwise. */
static void put_index(Fmt *f, Buf *b, const ExprVec *list, const Expr *time)
{
    bool plain = true;
    for (int i = 0; i < list->len; i++)
        plain = plain && is_atom(list->data[i]);
    buf_f(b, "[");
    f->in_index++;
    f->nesting++;
    put_list(f, b, list, plain);
    if (time) {
        buf_f(b, "; ");
        put_expr(f, b, time);
    }
    f->nesting--;
    f->in_index--;
    buf_f(b, "]");
}

static void put_binders(Fmt *f, Buf *b, const BinderVec *list)
{
    bool plain = true;
    for (int i = 0; i < list->len; i++)
        plain = plain && !(list->data[i].fixed && !is_atom(list->data[i].fixed)) && !list->data[i].range;
    f->in_index++;
    f->nesting++;
    for (int i = 0; i < list->len; i++) {
        const Binder *k = &list->data[i];
        buf_f(b, "%s%s", i ? (plain ? "," : ", ") : "", k->name ? k->name : "");
        if (k->fixed)
            put_expr(f, b, k->fixed);
        if (k->range) {
            buf_f(b, ":");
            put_expr(f, b, k->range);
        }
    }
    f->nesting--;
    f->in_index--;
}

static void put_number(Fmt *f, Buf *b, const Expr *e)
{
    Span s = e->span;
    if (s.file >= 0 && s.file < f->c->sources.len && s.hi <= f->c->sources.data[s.file].len && s.hi > s.lo)
        buf_f(b, "%.*s", (int)(s.hi - s.lo), f->c->sources.data[s.file].text + s.lo);
    else
        buf_f(b, "%.17g", e->num);
}

/* An operand; the explicit form puts parentheses around all that is not one token or one call. */
static void put_operand(Fmt *f, Buf *b, const Expr *e)
{
    bool compound = e->kind == X_UNARY || e->kind == X_BINARY || e->kind == X_COND || e->kind == X_REDUCE;
    if (!f->explicit_form || !compound || e->parens) {
        put_expr(f, b, e);
        return;
    }
    buf_f(b, "(");
    f->nesting++;
    put_expr(f, b, e);
    f->nesting--;
    buf_f(b, ")");
}

static int looseness(AstOp op)
{
    switch (op) {
    case O_OR: return 3;
    case O_AND: return 4;
    case O_LT:
    case O_LE:
    case O_GT:
    case O_GE:
    case O_EQ:
    case O_NE: return 5;
    case O_ADD:
    case O_SUB: return 6;
    default: return 8;
    }
}

static void put_binary(Fmt *f, Buf *b, const Expr *e)
{
    bool product = e->op == O_MUL || e->op == O_DIV || e->op == O_MOD;
    put_operand(f, b, e->a);
    if (e->op == O_POW || (product && e->op != O_MOD && f->in_index)) {
        buf_f(b, "%s", op_text[e->op]);
    } else {
        put_break(f, b, looseness(e->op));
        buf_f(b, "%s ", op_text[e->op]);
    }
    put_operand(f, b, e->b);
}

static void put_call(Fmt *f, Buf *b, const Expr *e)
{
    buf_f(b, "%s(", e->name);
    /* The arguments of a function inside an index are an index expression still: f->in_index stays. */
    f->nesting++;
    put_list(f, b, &e->args, false);
    if (e->held.len) {
        buf_f(b, "; ");
        put_list(f, b, &e->held, false);
    }
    f->nesting--;
    buf_f(b, ")");
    if (e->member)
        buf_f(b, ".%s", e->member);
    if (e->brackets)
        put_index(f, b, &e->index, NULL);
}

static void put_reduce(Fmt *f, Buf *b, const Expr *e)
{
    buf_f(b, "%s[", reduce_text[e->reduce]);
    put_binders(f, b, &e->binders);
    /* softmax(...) reads as a call when its operand has parentheses. */
    buf_f(b, "]%s", e->reduce == R_SOFTMAX && (e->a->parens || f->explicit_form) ? "" : " ");
    if (e->reduce == R_SOFTMAX && f->explicit_form && !e->a->parens && e->a->kind != X_REDUCE) {
        buf_f(b, "(");
        put_expr(f, b, e->a);
        buf_f(b, ")");
    } else {
        put_operand(f, b, e->a);
    }
}

static void put_bare(Fmt *f, Buf *b, const Expr *e)
{
    switch (e->kind) {
    case X_NUM: put_number(f, b, e); break;
    case X_REF:
        buf_f(b, "%s%s", e->name, e->primed ? "'" : "");
        if (e->brackets)
            put_index(f, b, &e->args, e->time);
        break;
    case X_CALL: put_call(f, b, e); break;
    case X_UNARY:
        buf_f(b, "%s", op_text[e->op == O_NEG ? O_SUB : O_NOT]);
        put_operand(f, b, e->a);
        break;
    case X_BINARY: put_binary(f, b, e); break;
    case X_COND:
        put_operand(f, b, e->a);
        put_break(f, b, 2);
        buf_f(b, "? ");
        put_operand(f, b, e->b);
        put_break(f, b, 1);
        buf_f(b, ": ");
        put_operand(f, b, e->c);
        break;
    case X_REDUCE: put_reduce(f, b, e); break;
    case X_COLON: buf_f(b, ":"); break;
    case X_ERROR: break;
    }
}

static void put_expr(Fmt *f, Buf *b, const Expr *e)
{
    if (!e->parens) {
        put_bare(f, b, e);
        return;
    }
    buf_f(b, "(");
    f->nesting++;
    put_bare(f, b, e);
    f->nesting--;
    buf_f(b, ")");
}

/* ---- statements ---- */

static const char *keyword(const Stmt *s)
{
    switch (s->kind) {
    case S_DIM: return "dim";
    case S_CONST: return "const";
    case S_INPUT: return s->is_const ? "const input" : "input";
    case S_PARAM: return s->is_const ? "const param" : "param";
    case S_STATE: return "state";
    case S_OUTPUT: return "output";
    case S_RESET: return "reset";
    case S_CARRY: return "carry";
    default: return "";
    }
}

static bool is_decl(const Stmt *s)
{
    return *keyword(s) != 0;
}

/* `param a, b;` gives two statements; the second begins with its name. */
static bool continues_decl(const Stmt *s)
{
    return is_decl(s) && s->span.lo == s->name_span.lo;
}

static bool has_block(const Stmt *s)
{
    return s->kind == S_CELL || s->kind == S_WHEN || s->kind == S_REPEAT || (s->kind == S_FN && s->has_body);
}

static void put_domain(Fmt *f, Buf *b, const Domain *d)
{
    if (d->reach) {
        buf_f(b, " in reach");
        return;
    }
    buf_f(b, " in %s", d->above ? "(" : "[");
    f->nesting++;
    put_expr(f, b, d->low);
    buf_f(b, ", ");
    put_expr(f, b, d->high);
    f->nesting--;
    buf_f(b, "%s", d->below ? ")" : "]");
}

static void put_decl(Fmt *f, Buf *b, const Stmt *s)
{
    buf_f(b, "%s", s->name);
    if (s->brackets) {
        buf_f(b, "[");
        f->in_index++;
        f->nesting++;
        for (int i = 0; i < s->lhs.len && i < s->axes.len; i++) {
            if (i) {
                buf_f(b, ",");
                put_break(f, b, 0);
            }
            buf_f(b, "%s:", s->lhs.data[i].name);
            put_expr(f, b, s->axes.data[i]);
        }
        if (!s->lhs.len)
            put_list(f, b, &s->axes, false);
        f->nesting--;
        f->in_index--;
        buf_f(b, "]");
    }
    if (s->text)
        buf_f(b, " : %s", s->text);
    if (s->domain)
        put_domain(f, b, s->domain);
    const Expr *value = s->init ? s->init : s->value;
    if (!value)
        return;
    buf_f(b, s->kind == S_PARAM ? " ~ " : " = ");
    f->in_index += s->kind == S_DIM;
    put_expr(f, b, value);
    f->in_index -= s->kind == S_DIM;
}

static void put_left(Fmt *f, Buf *b, const Stmt *s)
{
    buf_f(b, "%s%s", s->name, s->primed ? "'" : "");
    if (s->brackets) {
        buf_f(b, "[");
        put_binders(f, b, &s->lhs);
        buf_f(b, "]");
    }
    if (s->text)
        buf_f(b, " : %s", s->text);
}

static void put_names(Buf *b, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        buf_f(b, "%s%s", i ? ", " : "", names[i]);
}

static void put_fn_head(Fmt *f, Buf *b, const Stmt *s)
{
    buf_f(b, "%sfn %s(", s->is_const ? "adjoint " : "", s->name);
    put_names(b, s->params.data, s->params.len);
    if (s->held.len) {
        buf_f(b, "; ");
        put_names(b, s->held.data, s->held.len);
    }
    buf_f(b, ")");
    if (s->brackets) {
        buf_f(b, "[");
        put_binders(f, b, &s->lhs);
        buf_f(b, "]");
    }
}

/* The head of a block, up to and with its '{'. */
static void put_head(Fmt *f, Buf *b, const Stmt *s)
{
    switch (s->kind) {
    case S_CELL: buf_f(b, "cell %s", s->name); break;
    case S_WHEN:
        buf_f(b, "when ");
        put_expr(f, b, s->value);
        break;
    case S_REPEAT:
        buf_f(b, "repeat %s:", s->name);
        f->in_index++;
        put_expr(f, b, s->lhs.data[0].range);
        f->in_index--;
        break;
    default: put_fn_head(f, b, s); break;
    }
    buf_f(b, " {");
}

/* A statement without a block, on one line; pad: columns the left side of an equation is filled to. */
static void put_leaf(Fmt *f, Buf *b, const Stmt *s, size_t pad)
{
    switch (s->kind) {
    case S_IMPORT: buf_f(b, "import \"%s\";", s->text); return;
    case S_OPTION:
        buf_f(b, "option %s = ", s->name);
        for (int i = 0; i < s->choices.len; i++)
            buf_f(b, "%s%s", i ? " | " : "", s->choices.data[i]);
        buf_f(b, ";");
        return;
    case S_FN: put_fn_head(f, b, s); break;
    default: put_left(f, b, s); break;
    }
    size_t width = shown_len(b->data);
    buf_f(b, "%*s = ", width < pad ? (int)(pad - width) : 0, "");
    put_expr(f, b, s->value);
    buf_f(b, ";");
}

static void put_body(Fmt *f, const StmtVec *body, uint32_t end);

/* Number of statements from body[i] on that one declaration gave. */
static int decl_group(const StmtVec *body, int i)
{
    int n = 1;
    while (is_decl(body->data[i]) && i + n < body->len && continues_decl(body->data[i + n]) &&
           body->data[i + n]->kind == body->data[i]->kind)
        n++;
    return n;
}

static void put_decls(Fmt *f, Buf *b, const StmtVec *body, int i, int n)
{
    buf_f(b, "%s ", keyword(body->data[i]));
    for (int k = 0; k < n; k++) {
        if (k) {
            buf_f(b, ",");
            put_break(f, b, 0);
        }
        put_decl(f, b, body->data[i + k]);
    }
    buf_f(b, ";");
}

/* The source position just behind a block's '{', and of its '}'. */
static uint32_t block_open(const Fmt *f, uint32_t from)
{
    uint32_t at = find_char(f, from, '{');
    return at < f->src->len ? at + 1 : at;
}

static uint32_t block_close(const Fmt *f, const StmtVec *body, uint32_t open)
{
    uint32_t at = body->len ? body->data[body->len - 1]->span.hi : open;
    return find_char(f, at, '}');
}

/* Blocks that the user wrote on one line stay on one, while they fit and hold simple statements without
 * comments. */
static bool one_line_text(Fmt *f, Buf *b, const Stmt *s)
{
    bool comment = f->next < f->comments.len && f->comments.data[f->next].lo < s->span.hi;
    if (s->kind == S_CELL || comment || has_newline(f, s->span.lo, s->span.hi))
        return false;
    const StmtVec *bodies[] = {&s->body, s->other.len || s->has_body ? &s->other : NULL};
    put_head(f, b, s);
    for (int k = 0; k < (s->kind == S_WHEN ? 2 : 1) && bodies[k]; k++) {
        buf_f(b, k ? " else {" : "");
        for (int i = 0; i < bodies[k]->len; i += decl_group(bodies[k], i)) {
            if (has_block(bodies[k]->data[i]))
                return false;
            Buf one = {.arena = f->c->arena};
            if (is_decl(bodies[k]->data[i]))
                put_decls(f, &one, bodies[k], i, decl_group(bodies[k], i));
            else
                put_leaf(f, &one, bodies[k]->data[i], 0);
            buf_f(b, " %s", one.data);
        }
        buf_f(b, " }");
    }
    return 4 * f->indent + (int)shown_len(b->data) <= LIMIT;
}

static void put_block_body(Fmt *f, const StmtVec *body, uint32_t close)
{
    f->indent++;
    f->block_start = true;
    put_body(f, body, close);
    f->indent--;
    f->block_start = false;
}

/* when, with its else branches: `} else {` and `} else when ... {` stand on one line. */
static void put_when(Fmt *f, const Stmt *s, const char *before)
{
    for (;;) {
        Buf b = {.arena = f->c->arena};
        buf_f(&b, "%s", before);
        put_head(f, &b, s);
        put_statement(f, b.data);
        uint32_t open = block_open(f, s->value->span.hi), close = block_close(f, &s->body, open);
        trailing_comment(f, open);
        put_block_body(f, &s->body, close);
        f->done = close + 1;
        if (s->other.len != 1 || s->has_body)
            break;
        s = s->other.data[0];
        before = "} else ";
    }
    if (s->has_body) {
        put_statement(f, "} else {");
        uint32_t open = block_open(f, f->done), close = block_close(f, &s->other, open);
        trailing_comment(f, open);
        put_block_body(f, &s->other, close);
    }
    put_statement(f, "}");
}

static void put_block(Fmt *f, const Stmt *s)
{
    Buf b = {.arena = f->c->arena}, whole = b;
    uint32_t open = block_open(f, s->kind == S_WHEN ? s->value->span.hi : s->name_span.hi);
    bool fits = one_line_text(f, &whole, s);
    if (fits) {
        put_statement(f, whole.data);
    } else if (s->kind == S_WHEN) {
        put_when(f, s, "");
    } else {
        put_head(f, &b, s);
        put_statement(f, b.data);
        trailing_comment(f, open);
        put_block_body(f, &s->body, s->span.hi - 1);
        put_statement(f, "}");
    }
    trailing_comment(f, s->span.hi);
}

/* A declaration with comments between its names: one name a line, below one another. */
static void put_decl_lines(Fmt *f, const StmtVec *body, int i, int n)
{
    const char *word = keyword(body->data[i]);
    int under = (int)strlen(word) + 1;
    for (int k = 0; k < n; k++) {
        const Stmt *s = body->data[i + k];
        Buf b = {.arena = f->c->arena};
        if (k == 0)
            buf_f(&b, "%s ", word);
        else
            buf_f(&b, "%*s", under, "");
        put_decl(f, &b, s);
        buf_f(&b, k == n - 1 ? ";" : ",");
        if (k)
            comments_before(f, s->span.lo);
        put_statement(f, b.data);
        trailing_comment(f, s->span.hi);
    }
}

static bool comment_inside(const Fmt *f, uint32_t lo, uint32_t hi)
{
    for (int i = f->next; i < f->comments.len && f->comments.data[i].lo < hi; i++)
        if (f->comments.data[i].lo >= lo)
            return true;
    return false;
}

/* ---- equations whose '=' the user aligned stay aligned ---- */

/* The column of the '=' of an equation that begins its line; -1 of one that does not. */
static int64_t equals_column(const Fmt *f, const Stmt *s)
{
    uint32_t start = s->span.lo;
    while (start > 0 && f->src->text[start - 1] != '\n')
        if (!isspace((unsigned char)f->src->text[--start]))
            return -1;
    return (int64_t)find_char(f, s->name_span.hi, '=') - start;
}

static size_t left_width(Fmt *f, const Stmt *s)
{
    Buf b = {.arena = f->c->arena};
    put_left(f, &b, s);
    return shown_len(b.data);
}

/* The equation stands alone on its lines, right below the one before it. */
static bool follows_directly(const Fmt *f, const Stmt *before, const Stmt *s)
{
    uint32_t lo = before->span.hi, hi = s->span.lo;
    int newlines = 0;
    for (uint32_t i = lo; i < hi; i++)
        newlines += f->src->text[i] == '\n';
    return newlines == 1;
}

static int aligned_run(Fmt *f, const StmtVec *body, int i, size_t *pad)
{
    int n = 1;
    int64_t column = equals_column(f, body->data[i]);
    *pad = left_width(f, body->data[i]);
    for (; i + n < body->len && body->data[i + n]->kind == S_EQ; n++) {
        const Stmt *s = body->data[i + n];
        if (!follows_directly(f, body->data[i + n - 1], s) || column < 0 || equals_column(f, s) != column)
            break;
        size_t width = left_width(f, s);
        *pad = width > *pad ? width : *pad;
    }
    return n;
}

/* ---- bodies ---- */

static void put_simple(Fmt *f, const StmtVec *body, int i, int n, size_t pad)
{
    const Stmt *s = body->data[i];
    Buf b = {.arena = f->c->arena};
    uint32_t hi = body->data[i + n - 1]->span.hi;
    if (n > 1 && comment_inside(f, s->span.lo, hi)) {
        put_decl_lines(f, body, i, n);
        return;
    }
    if (is_decl(s))
        put_decls(f, &b, body, i, n);
    else
        put_leaf(f, &b, s, pad);
    put_statement(f, b.data);
    trailing_comment(f, hi);
}

static void put_body(Fmt *f, const StmtVec *body, uint32_t end)
{
    size_t pad = 0;
    int aligned = 0; /* equations of the current run that are still to come */
    for (int i = 0, n; i < body->len; i += n) {
        const Stmt *s = body->data[i];
        n = decl_group(body, i);
        bool group = n > 1 && comment_inside(f, s->span.lo, body->data[i + n - 1]->span.hi);
        /* Comments in the middle of a statement move above it. */
        comments_before(f, group          ? body->data[i]->span.hi
                           : has_block(s) ? block_open(f, s->span.lo)
                                          : body->data[i + n - 1]->span.hi);
        separate(f, s->span.lo);
        if (has_block(s)) {
            put_block(f, s);
            continue;
        }
        if (s->kind == S_EQ && aligned == 0)
            aligned = aligned_run(f, body, i, &pad);
        put_simple(f, body, i, n, s->kind == S_EQ ? pad : 0);
        aligned -= s->kind == S_EQ;
    }
    comments_before(f, end);
}

/* ---- the whole ---- */

static void write_lines(Fmt *f, Buf *out)
{
    for (int i = 0; i < f->lines.len;) {
        int run = 0;
        size_t width = 0, widest = 0;
        for (; i + run < f->lines.len && f->lines.data[i + run].comment; run++) {
            const Line *l = &f->lines.data[i + run];
            size_t text = strlen(l->text), comment = strlen(l->comment);
            width = text > width ? text : width;
            widest = comment > widest ? comment : widest;
        }
        bool align = width + 2 + widest <= LIMIT;
        for (int k = 0; k < run; k++) {
            const Line *l = &f->lines.data[i + k];
            buf_f(out, "%-*s  %s\n", align ? (int)width : 0, l->text, l->comment);
        }
        if (!run)
            buf_f(out, "%s\n", f->lines.data[i].text);
        i += run ? run : 1;
    }
}

void fmt_ast(Compiler *c, const Ast *ast, bool explicit_form, Buf *out)
{
    static const Source empty = {.path = "", .text = "", .lines = 1};
    Fmt f = {.c = c, .explicit_form = explicit_form, .block_start = true};
    f.src = ast->file >= 0 && ast->file < c->sources.len ? &c->sources.data[ast->file] : &empty;
    collect_comments(&f);
    put_body(&f, &ast->items, (uint32_t)f.src->len + 1);
    write_lines(&f, out);
}

/* ---- what is left of a cell with its settings */

static void put_taken_body(Fmt *f, const StmtVec *body);

/* A text as one line, however long. */
static void put_whole(Fmt *f, const char *text)
{
    push_part(f, 4 * f->indent, text, strlen(text));
}

static void put_taken_block(Fmt *f, const StmtVec *body)
{
    f->indent++;
    put_taken_body(f, body);
    f->indent--;
}

/* Both branches stay only where iterations or calls take different ones. */
static void put_taken_when(Fmt *f, const Stmt *s)
{
    Buf b = {.arena = f->c->arena};
    if (!s->took_body || !s->took_other) {
        put_taken_body(f, s->took_body ? &s->body : s->took_other ? &s->other : &(StmtVec){0});
        return;
    }
    put_head(f, &b, s);
    put_whole(f, b.data);
    put_taken_block(f, &s->body);
    put_whole(f, "} else {");
    put_taken_block(f, &s->other);
    put_whole(f, "}");
}

/* What the command line binds a dim or constant to, or NULL. */
static const char *bound_value(const Compiler *c, const Stmt *s)
{
    const char *value = NULL;
    int n = s->kind == S_DIM ? c->dims.len : s->kind == S_CONST ? c->sets.len : 0;
    const Setting *list = s->kind == S_DIM ? c->dims.data : c->sets.data;
    for (int i = 0; i < n; i++)
        value = strcmp(list[i].name, s->name) == 0 ? list[i].value : value;
    return value;
}

static void put_taken(Fmt *f, const StmtVec *body, int i)
{
    const Stmt *s = body->data[i];
    const char *bound = bound_value(f->c, s);
    Buf b = {.arena = f->c->arena};
    if (s->kind == S_OPTION || s->kind == S_IMPORT || s->kind == S_CELL)
        return;
    if (s->kind == S_WHEN) {
        put_taken_when(f, s);
        return;
    }
    if (bound && strcmp(bound, "open") == 0)
        buf_f(&b, "%s %s;", keyword(s), s->name);
    else if (bound)
        buf_f(&b, "%s %s = %s;", keyword(s), s->name, bound);
    else if (has_block(s))
        put_head(f, &b, s);
    else if (is_decl(s))
        put_decls(f, &b, body, i, 1);
    else
        put_leaf(f, &b, s, 0);
    put_whole(f, b.data);
    if (has_block(s)) {
        put_taken_block(f, &s->body);
        put_whole(f, "}");
    }
}

static void put_taken_body(Fmt *f, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++)
        put_taken(f, body, i);
}

void fmt_taken(Compiler *c, const Ast *ast, const Stmt *cell, Buf *out)
{
    Fmt f = {.c = c, .src = &c->sources.data[ast->file]};
    put_taken_body(&f, &ast->items);
    put_taken_body(&f, &cell->body);
    write_lines(&f, out);
}
