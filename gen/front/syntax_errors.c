/* syntax_errors.c: what is said where the grammar cannot go on. In: the parser, at a token that does not fit,
 * and what could have stood there. Out: one error, with what to write where another language or a paper has
 * been copied. Guaranteed: one error a statement; what is said depends on the text alone. */
#include <ctype.h>
#include <string.h>

#include "front/parse.h"
#include "ir/ops.h"
#include "parser.h"
#include "words.h"

/* ---- what is said ---- */

static const char *token_text(Parser *p, const Token *t)
{
    if (t->code == 0)
        return "the end of the file";
    if (t->code == END && t->span.lo == t->span.hi)
        return "the end of the line";
    int n = (int)(t->span.hi - t->span.lo);
    return intern_f(p->c, "'%.*s%s'", n > 40 ? 40 : n, p->src.text + t->span.lo, n > 40 ? "..." : "");
}

/* A bracket was still open where something else was found: says so, with its place. */
static bool explain_open(Parser *p, const Token *t)
{
    if (!p->nopen && !p->dropped.with)
        return false;
    Opened o = p->dropped.with ? p->dropped : p->open[p->nopen - 1];
    char want = closer_of(o.with);
    bool closes = t->code == ']' || t->code == ')';
    if (!(t->code == 0 || t->code == '=' || p->dropped.with || (closes && o.with != '{' && t->code != want)))
        return false;
    if (o.with == '{' && t->code != 0)
        return false;
    error_at(p, t->span, "expected '%c' before %s", want, token_text(p, t));
    note_open(p, &o);
    return true;
}

static bool is_word(const Token *t, const char *word)
{
    return t->code == NAME && strcmp(t->text, word) == 0;
}

/* The word right before a place of the text, "" where there is none. */
static const char *word_before(const Parser *p, uint32_t place)
{
    uint32_t begin = place;
    while (begin > 0 && (isalnum((unsigned char)p->src.text[begin - 1]) || p->src.text[begin - 1] == '_'))
        begin--;
    return intern_n(p->c, p->src.text + begin, place - begin);
}

/* The word before the parentheses that the token before closes, "" where there is none. */
static const char *word_called(const Parser *p)
{
    uint32_t open = p->prev.span.lo;
    for (int depth = 1; depth && open > p->stmt.span.lo;) {
        char ch = p->src.text[--open];
        depth += ch == ')' ? 1 : ch == '(' ? -1 : 0;
    }
    while (open > p->stmt.span.lo && p->src.text[open - 1] == ' ')
        open--;
    return word_before(p, open);
}

/* avg[j] x[j]: the name of no reduction, before what it should reduce; sum[j=N], sum[j in N]: no range. */
static bool explain_foreign_reduction(Parser *p, const Token *t, const Expected *e)
{
    const char *text = p->src.text;
    if (p->prev.code == ']' && t->code == NAME && e->operators) {
        uint32_t open = p->prev.span.lo;
        while (open > p->stmt.span.lo && text[open] != '[')
            open--;
        const char *word = word_before(p, open), *here = foreign_function(p->c, word);
        if (here)
            error_at(p, (Span){p->file, open - (uint32_t)strlen(word), open}, "unknown reduction '%s': %s",
                     word, here);
        return here != NULL;
    }
    if ((t->code != '=' && !is_word(t, "in")) || p->prev.code != NAME || !in_brackets(p) ||
        p->open[p->nopen - 1].with != '[' ||
        !names_reduction(word_before(p, p->open[p->nopen - 1].span.lo)))
        return false;
    error_at(p, t->span, "the range of an index stands behind ':', as in sum[%s:N]", p->prev.text);
    return true;
}

static bool is_function(const char *word)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (op_table[i].in_language && strcmp(word, op_table[i].name) == 0)
            return true;
    return false;
}

/* What other languages write as words. */
static bool explain_foreign_word(Parser *p, const Token *t, const Expected *e)
{
    if (is_word(t, "and") && e->operators)
        error_at(p, t->span, "'and' is written '&&'");
    else if (is_word(t, "or") && e->operators)
        error_at(p, t->span, "'or' is written '||'");
    else if (is_word(&p->prev, "not") && t->code == NAME)
        error_at(p, p->prev.span, "'not' is written '!'");
    else if (p->prev.code == NAME && e->operators && (t->code == NAME || t->code == '(') &&
             foreign_reduction(p->c, p->prev.text))
        error_at(p, p->prev.span, "unknown name '%s': %s", p->prev.text,
                 foreign_reduction(p->c, p->prev.text));
    else if (is_word(&p->prev, "lambda") && (t->code == NAME || t->code == ':'))
        error_at(p, p->prev.span, "a function is written fn f(x) = ...;");
    else if (explain_foreign_reduction(p, t, e))
        return true;
    else if (is_word(&p->prev, "if") && p->prev.span.lo == p->stmt.span.lo)
        error_at(p, p->prev.span,
                 "no statement begins with 'if': a choice of values is written with '?', as in x > 0 ? x : "
                 "0; one by options and sizes when act == tanh { ... }");
    else if (p->prev.code == ')' && e->operators &&
             (t->code == NAME || t->code == NUMBER || t->code == '(') && strcmp(word_called(p), "if") == 0)
        error_at(p, t->span, "a choice is written with '?', as in x > 0 ? x : 0");
    else if ((is_word(t, "if") && e->operators) || (is_word(&p->prev, "if") && !e->expression) ||
             is_word(&p->prev, "case"))
        error_at(p, is_word(t, "if") ? t->span : p->prev.span,
                 "a choice is written with '?', as in x > 0 ? x : 0");
    else if (t->code == NAME && e->operators && !t->new_line && p->stmt_code != WHEN &&
             p->stmt.span.lo != p->prev.span.lo && foreign_infix(t->text))
        error_at(p, t->span, "there is no operator '%s': %s", t->text, foreign_infix(t->text));
    else if (p->prev.code == NAME && e->operators && is_function(p->prev.text) &&
             (t->code == NAME || t->code == NUMBER) && !t->new_line)
        error_at(p, t->span, "a function takes its value in parentheses, as in %s(x[i])", p->prev.text);
    else
        return false;
    return true;
}

static bool explain_keyword(Parser *p, const Token *t, const Expected *e)
{
    if ((t->code == REDUCE || t->code == SOFTMAX) && !e->expression) {
        error_at(p, t->span, "'%s' is the name of a reduction and cannot be a name of yours", t->text);
        return true;
    }
    if (p->prev.code == REDUCE || p->prev.code == SOFTMAX) {
        error_at(p, p->prev.span, "'%s' names the indices it runs over in brackets, as in %s[j] x[j]",
                 p->prev.text, p->prev.text);
        return true;
    }
    if (t->code == ELSE) {
        error_at(p, t->span, "this 'else' follows no 'when'");
        return true;
    }
    if (explain_foreign_word(p, t, e))
        return true;
    /* `imput x[D];`: the statement's first word is no keyword, and a name follows. */
    if (t->code == NAME && p->prev.code == NAME && p->prev.span.lo == p->stmt.span.lo) {
        const char *near = foreign_statement(p->prev.text) ? NULL : nearest_statement(p->prev.text);
        if (near) {
            if (error_at(p, p->prev.span, "no statement begins with '%s'; did you mean '%s'?", p->prev.text, near))
                diag_fix(p->c, p->prev.span, near);
        } else if (foreign_statement(p->prev.text))
            error_at(p, p->prev.span, "no statement begins with '%s': %s", p->prev.text,
                     foreign_statement(p->prev.text));
        else
            error_at(p, p->prev.span, "no statement begins with '%s'", p->prev.text);
        return true;
    }
    return false;
}

/* ---- heads of statements ---- */

#define AXES "axes stand in one pair of brackets behind the name, separated by ',', as in x[D, N]"

static bool explain_cell(Parser *p, const Token *t, const Expected *e)
{
    if (p->stmt_code != CELL)
        return false;
    if (t->code == STRING)
        error_at(p, t->span, "a name stands without quotes, as in cell %s { ... }", t->text);
    else if (p->prev.code == CELL)
        error_at(p, t->span, "expected a name, found %s: a cell has one, as in cell my_cell { ... }",
                 token_text(p, t));
    else if (e->block && t->code == '-')
        error_at(p, t->span, "a name has letters, digits and '_', found '-'");
    else if (e->block)
        error_at(p, t->span,
                 "expected '{' after the cell, found %s: a cell is a name and a block, in which its sizes, "
                 "inputs and states are declared",
                 token_text(p, t));
    else
        return false;
    return true;
}

static bool explain_fn(Parser *p, const Token *t, const Expected *e)
{
    if (p->stmt_code != FN && p->stmt_code != ADJOINT)
        return false;
    bool in_params = p->nopen && p->open[p->nopen - 1].with == '(' && !e->expression && !e->operators;
    bool arrow = (t->code == '-' || t->code == '=') && p->src.text[t->span.hi] == '>';
    if (t->code == '[' && p->prev.code == NAME && p->nopen > 1 && p->open[p->nopen - 2].with == '(' &&
        !e->expression && !e->operators)
        in_params = true;
    if (in_params && p->prev.code == NAME && t->code != 0 && t->code != ';' && t->code != SEP)
        error_at(p, t->span,
                 "a parameter is a name alone, as in fn f(u, v): what is passed says its axes and its type");
    else if (p->prev.code == NAME && !e->block && !e->comma && !e->operators &&
             (t->code == NAME || t->code == '='))
        error_at(p, t->span, "the parameters of a function stand in parentheses, as in fn f(u) = 2 * u;");
    else if (e->block && (t->code == ':' || arrow))
        error_at(p, t->span, "the value of a function stands behind '=', as in fn f(u) = 2 * u;");
    else if (t->code == '>' && p->prev.code == '=' && p->prev.span.hi == t->span.lo)
        error_at(p, (Span){p->file, p->prev.span.lo, t->span.hi},
                 "the value of a function stands behind '=', as in fn f(u) = 2 * u;");
    else if (t->code == '{' && p->prev.code == '=')
        error_at(p, t->span, "a body in braces stands without '=', as in fn f(u) { a = 2 * u; f = a + 1; }");
    else
        return false;
    return true;
}

static bool explain_block_head(Parser *p, const Token *t, const Expected *e)
{
    if (p->stmt_code == WHEN && t->code == STRING && (e->expression || e->block))
        error_at(p, t->span, "a choice stands without quotes, as in when act == %s { ... }", t->text);
    else if (p->stmt_code == WHEN && t->code == NAME && e->operators && foreign_infix(t->text) &&
             strcmp(t->text, "then") != 0)
        error_at(p, t->span, "there is no operator '%s': %s", t->text, foreign_infix(t->text));
    else if (p->prev.code == ELSE && is_word(t, "if"))
        error_at(p, t->span,
                 "expected '{' after 'else', found 'if': another condition stands behind else when");
    else if ((p->stmt_code == WHEN || p->prev.code == ELSE) && e->block && !e->end && t->code != '=')
        error_at(p, t->span,
                 "expected '{' after %s, found %s: what is chosen stands in braces, as in when N == 4 { ... "
                 "} else { ... }",
                 p->prev.code == ELSE ? "'else'" : "the condition", token_text(p, t));
    else if (p->stmt_code == REPEAT && (!e->expression || p->prev.code == REPEAT))
        error_at(p, t->span,
                 "expected %s, found %s: a repeat names its index and says how often, as in repeat n:3 { ... "
                 "}",
                 p->prev.code == REPEAT ? "a name"
                 : e->block             ? "'{' after the repeat"
                                        : "':'",
                 token_text(p, t));
    else
        return false;
    return true;
}

static bool explain_option(Parser *p, const Token *t, const Expected *e)
{
    if (p->stmt_code != OPTION || t->code == ',' || t->code == 0)
        return false;
    if (t->code == NUMBER && e->name)
        error_at(p, t->span, "the choices of an option are names, found %s", token_text(p, t));
    else if (t->code == STRING)
        error_at(p, t->span,
                 "the choices of an option are names without quotes, as in option act = tanh | relu;");
    else
        error_at(p, t->span,
                 "expected %s, found %s: an option lists its choices, as in option act = tanh | relu;",
                 e->equals ? "'='"
                 : e->name ? "a name"
                           : "'|' or ';'",
                 token_text(p, t));
    return true;
}

static bool explain_import(Parser *p, const Token *t)
{
    if (p->stmt_code != IMPORT)
        return false;
    if (p->prev.code == IMPORT && t->code == NAME && is_foreign_module(t->text, strlen(t->text)) &&
        strcmp(t->text, "std") != 0)
        error_at(p, t->span,
                 "expected a path in quotes, found '%s': the functions of the language need no import",
                 t->text);
    else if (p->prev.code == IMPORT && (t->code == NAME || t->code == '<'))
        error_at(p, t->span, "expected a path in quotes, found '%.*s': write import \"std.cell\";",
                 t->code == NAME ? 100 : 1, t->code == NAME ? t->text : "<");
    else if (p->prev.code == STRING && is_word(t, "as"))
        error_at(p, t->span,
                 "expected ';' after the import, found 'as': what is imported is called by its own names");
    else
        return false;
    return true;
}

static bool is_declaration(int code)
{
    return code == DIM || code == CONST || code == INPUT || code == PARAM || code == STATE ||
           code == OUTPUT || code == RESET || code == CARRY;
}

/* x(D), x[D][N], x[D N], x[0:D], float x[D], dim D > 0 */
static bool explain_declaration(Parser *p, const Token *t, const Expected *e)
{
    if (!is_declaration(p->stmt_code))
        return false;
    bool behind = p->prev.code == NAME || p->prev.code == ']';
    bool opens = t->code == '(' || t->code == '<' || t->code == '{' || t->code == '[';
    int around = p->nopen - (p->nopen && p->open[p->nopen - 1].span.lo == t->span.lo); /* without its own */
    bool axes = around && p->open[around - 1].with == '[' && !p->open[around - 1].range;
    bool data = p->stmt_code != DIM && p->stmt_code != CONST;
    if (p->prev.code == NAME && t->code == NAME && !axes && !e->operators && foreign_type(p->prev.text))
        error_at(p, p->prev.span,
                 !data                         ? "a %s has no type"
                 : *foreign_type(p->prev.text) ? "%s: a type stands behind the name, as in x[D] : f32"
                                               : "%s: axes stand behind the name, as in x[D]",
                 !data ? p->stmt_code == DIM ? "dim" : "const" : "a value is declared by its name alone");
    else if (data && behind && opens && !axes && !e->operators)
        error_at(p, t->span, AXES);
    else if (data && axes && t->code == ']' && p->prev.code == '[')
        return false;
    else if (data && t->code == '[' && p->prev.code == ':')
        error_at(p, t->span, AXES);
    else if (data && axes && e->operators && (t->code == NAME || t->code == NUMBER))
        error_at(p, t->span, AXES);
    else if (data && axes && (t->code == '?' || t->code == '*' || t->code == '.') && e->expression)
        error_at(p, t->span,
                 "expected the extent of an axis, found '%c': it is a dim or a number, as in x[D]; the batch "
                 "and the time are not written",
                 t->code);
    else if (data && axes && t->code == ':' && p->prev.code == NUMBER)
        error_at(p, t->span, "an axis has so many places, as in x[D]: they begin at 0");
    else if (p->stmt_code == DIM && !e->expression && !e->operators &&
             (t->code == '<' || t->code == '>' || t->code == LE || t->code == GE))
        error_at(p, t->span,
                 "a dim is at least 1; what else must hold of sizes follows from the reads of the cell");
    else
        return false;
    return true;
}

static bool explain_head(Parser *p, const Token *t, const Expected *e)
{
    return explain_cell(p, t, e) || explain_fn(p, t, e) || explain_block_head(p, t, e) ||
           explain_option(p, t, e) || explain_import(p, t) || explain_declaration(p, t, e);
}

/* `:=`, `+=` and the like: an operator where the '=' of an equation belongs, and a '=' right behind it. */
static bool assigns(const Parser *p, const Token *t)
{
    return t->code && t->code < 128 && strchr(":+-*/^%", t->code) && p->src.text[t->span.hi] == '=';
}

/* The first token of a statement, or one behind the word it begins with. */
static bool explain_start(Parser *p, const Token *t)
{
    bool first = t->span.lo == p->stmt.span.lo, second = p->prev.span.lo == p->stmt.span.lo;
    const char *text = p->src.text + t->span.lo;
    bool comment = t->code == '%' || strncmp(text, "--", 2) == 0 || strncmp(text, "(*", 2) == 0 ||
                   strncmp(text, "{-", 2) == 0 || strncmp(text, "<!", 2) == 0 || t->code == STRING ||
                   strncmp(text, "'''", 3) == 0;
    if (first && comment)
        error_at(p, t->span, "a statement cannot begin with %s: a comment begins with '//'",
                 token_text(p, t));
    else if (first && t->code && t->code != '}' && t->code != '\'' && t->code != ')' && t->code != ']')
        error_at(p, t->span, "a statement cannot begin with %s", token_text(p, t));
    else if (p->prev.code == '\'' && strncmp(p->src.text + p->stmt.span.lo, "import", 6) == 0)
        error_at(p, p->prev.span, "a path stands in \"");
    else if (second && p->prev.code == NAME && (t->code == '(' || t->code == STRING) &&
             foreign_statement(p->prev.text))
        error_at(p, p->prev.span, "no statement begins with '%s': %s", p->prev.text,
                 foreign_statement(p->prev.text));
    else if (second && p->prev.code == NAME && t->code == '(')
        error_at(p, t->span,
                 "a statement begins with a name and its indices in brackets, as in y[i] = ...; a function "
                 "with fn, as in fn f(u) = 2 * u;");
    else if (second && p->prev.code == NAME && t->code == '{' && foreign_statement(p->prev.text))
        error_at(p, p->prev.span, "no statement begins with '%s': %s", p->prev.text,
                 foreign_statement(p->prev.text));
    else if (second && p->prev.code == NAME && t->code == '{')
        error_at(p, t->span, "expected '=' or '[' before '{': indices stand in brackets, as in y[i] = ...");
    else
        return false;
    return true;
}

/* W.T, torch.tanh(...), h.tanh(): what to write for it. */
static const char *member_text(Parser *p, const Token *t)
{
    const Token *owner = &p->prev;
    size_t len = owner->code == NAME && owner->span.hi == t->span.lo ? owner->span.hi - owner->span.lo : 0;
    return foreign_member(p->c, p->src.text + owner->span.lo, len, p->src.text + t->span.hi);
}

static bool operator_char(char ch)
{
    return ch && strchr("<>=!~/*+-^:|?.%", ch);
}

/* An operator of another language: the longest run of such characters that reaches the token, or ends right
 * before it. */
static bool explain_foreign_operator(Parser *p, const Token *t)
{
    const char *text = p->src.text;
    uint32_t begin = t->span.lo;
    while (begin > p->stmt.span.lo && t->span.lo - begin < 3 && operator_char(text[begin - 1]))
        begin--;
    for (; begin <= t->span.lo; begin++) {
        int len;
        const char *here = foreign_operator(text + begin, &len);
        if (!here || begin + (uint32_t)len < t->span.lo)
            continue;
        error_at(p, (Span){p->file, begin, begin + (uint32_t)len}, "there is no '%.*s': %s", len,
                 text + begin, here);
        return true;
    }
    return false;
}

/* (float)x */
static bool explain_cast(Parser *p, const Token *t, const Expected *e)
{
    if (p->prev.code != ')' || !e->operators || (t->code != NAME && t->code != NUMBER && t->code != '('))
        return false;
    const char *word = word_before(p, p->prev.span.lo);
    uint32_t begin = p->prev.span.lo - (uint32_t)strlen(word);
    if (!*word || begin == 0 || p->src.text[begin - 1] != '(' || !foreign_type(word))
        return false;
    error_at(p, (Span){p->file, begin - 1, p->prev.span.hi}, "%s",
             foreign_function(p->c, *foreign_type(word) ? word : "float"));
    return true;
}

/* Signs around a value: +x, |x|, ||x||, ~x */
static bool explain_sign(Parser *p, const Token *t, const Expected *e)
{
    if (!e->expression || p->reduced_before)
        return false;
    if (t->code == '+' && !(p->prev.code == '+' && p->prev.span.hi == t->span.lo))
        error_at(p, t->span, "a value has no '+' before it: leave it out");
    else if (t->code == '|')
        error_at(p, t->span, "a size is written abs(x)");
    else if (t->code == OR)
        error_at(p, t->span, "a norm is written sqrt(sum[i] x[i]^2)");
    else if (t->code == '~')
        error_at(p, t->span, "'not' is written '!', and '~' stands before the initialiser of a param");
    else if (t->code == '&')
        error_at(p, t->span, "a value has no address");
    else
        return false;
    return true;
}

#define STEP_ADVICE                                                                                          \
    "a state h[i] is the one before the step, h'[i] the one after it; an earlier step of an input stands "   \
    "behind ';', "                                                                                           \
    "as in x[i; t - 1]"

/* h[i]_{t-1}, h[i;t] = ... */
static bool explain_step(Parser *p, const Token *t, const Expected *e)
{
    if (t->code == SEP && p->stmt_code == NAME && !e->equals && in_brackets(p) &&
        p->open[p->nopen - 1].span.lo == p->stmt.span.hi)
        error_at(p, t->span,
                 "an equation gives the value of this step, y[i] = ..., or that of a state after it, h'[i] = "
                 "...");
    else if (is_word(t, "_") && p->prev.code == ']' && e->operators)
        error_at(p, t->span, STEP_ADVICE);
    else
        return false;
    return true;
}

static void error_with_fix(Parser *p, Span at, const char *fix, const char *text)
{
    if (error_at(p, at, "%s", text))
        diag_fix(p->c, at, fix);
}

static bool explain_operator(Parser *p, const Token *t, const Expected *e)
{
    int before = p->prev.code;
    if (explain_step(p, t, e) || explain_sign(p, t, e) || explain_cast(p, t, e))
        return true;
    if (t->code == '=' && in_brackets(p) && p->stmt_code == NAME && !e->expression)
        return explain_open(p, t);
    if (t->code == '=' && before == ':' && p->prev.span.hi == t->span.lo && e->name)
        error_with_fix(p, (Span){p->file, p->prev.span.lo, t->span.hi}, "=",
                       "there is no ':='; a value is defined once, with '='");
    else if (!(e->equals && (assigns(p, t) || t->code == EQ)) && explain_foreign_operator(p, t))
        return true;
    else if (t->code == '=' && p->nopen && p->open[p->nopen - 1].with == '(' && before == NAME)
        error_at(p, t->span,
                 "'=' defines a value; to compare, write '=='; arguments have no names, they stand in order");
    else if (t->code == '=' && !e->expression && !e->equals)
        error_with_fix(p, t->span, "==", "'=' defines a value; to compare, write '=='");
    else if (t->code == EQ && e->equals)
        error_with_fix(p, t->span, "=", "an equation is written with '='; '==' compares");
    else if (e->equals && assigns(p, t))
        error_at(p, (Span){p->file, t->span.lo, t->span.hi + 1},
                 "there is no '%c='; a value is defined once, with '='; what changes from step to step is a "
                 "state, h'[i] = h[i] %c ...",
                 t->code, t->code);
    else if (t->code == '*' && before == '*' && e->expression && p->prev.span.hi == t->span.lo)
        error_at(p, (Span){p->file, p->prev.span.lo, t->span.hi},
                 "there is no '**'; a power is written with '^'");
    else if (t->code == '|' && !e->expression && p->stmt_code != OPTION)
        error_at(p, t->span, "'|' stands alone: 'or' is written '||'");
    else if (t->code == '\'')
        error_at(p, t->span,
                 before == '\'' ? "a value has one prime at most"
                                : "a prime stands right behind the name of a state, as in S'[i,j]");
    else if (t->code == '.' && member_text(p, t))
        error_at(p, t->span, "a '.' picks a result of a call; %s", member_text(p, t));
    else if (t->code == '.' && e->operators && p->src.text[t->span.hi] &&
             strchr("*/^", p->src.text[t->span.hi]))
        error_at(p, (Span){p->file, t->span.lo, t->span.hi + 1},
                 "there is no '.%c'; what belongs together has the same index, as in a[i] %c b[i]",
                 p->src.text[t->span.hi], p->src.text[t->span.hi]);
    else if (t->code == '.')
        error_at(p, t->span, "a '.' belongs to a number, or picks a result of a call, as in gates(x).f");
    else if (p->stmt_code == OPTION && t->code == ',')
        error_at(p, t->span, "the choices of an option are separated by '|'");
    else
        return false;
    return true;
}

/* einsum("ij,j->i", W, x); anywhere else a string belongs to an import. */
static bool explain_string(Parser *p, const Token *t, const Expected *e)
{
    if (t->code != STRING || !e->expression)
        return false;
    const char *word = p->prev.code == '(' ? word_before(p, p->prev.span.lo) : "";
    const char *here = foreign_function(p->c, word);
    if (here)
        error_at(p, t->span, "unknown function '%s': %s", word, here);
    else
        error_at(p, t->span, "expected an expression, found %s: a text stands behind import only",
                 token_text(p, t));
    return true;
}

/* sum_{j} x[j], h{t-1}, h_{t}, h^{t-1} */
static bool explain_subscript(Parser *p, const Token *t, const Expected *e)
{
    bool name = p->prev.code == NAME && e->operators && p->prev.span.hi == t->span.lo;
    bool step = p->src.text[t->span.hi] == 't' && !isalnum((unsigned char)p->src.text[t->span.hi + 1]);
    if (t->code != '{' || !(name || (p->prev.code == '^' && step)))
        return false;
    const char *reduction =
        p->prev.code == NAME ? foreign_reduction(p->c, intern_f(p->c, "%sj", p->prev.text)) : NULL;
    if (reduction)
        error_at(p, t->span, "%s", reduction);
    else
        error_at(p, t->span, "indices stand in brackets, as in x[i]; " STEP_ADVICE);
    return true;
}

static bool explain_brackets(Parser *p, const Token *t, const Expected *e)
{
    int before = p->prev.code;
    if (t->code == ',' && before == NUMBER && p->prev.is_int && p->prev.span.hi == t->span.lo &&
        !in_brackets(p) && isdigit((unsigned char)p->src.text[t->span.hi])) {
        error_at(p, t->span, "a number has a point, as in 1.5, found ','");
        return true;
    }
    bool in_index = in_brackets(p) && p->open[p->nopen - 1].with == '[';
    if (explain_subscript(p, t, e) || explain_string(p, t, e))
        return true;
    if (t->code == '[' && before == ']' && (e->operators || e->equals)) {
        error_at(p, t->span, "the indices of a value stand in one pair of brackets, as in x[i,j]");
        return true;
    }
    if (t->code == '[' && e->expression && !p->reduced_before) {
        error_at(p, t->span, "expected an expression, found '[': %s", foreign_function(p->c, "concat"));
        return true;
    }
    if (t->code == '{' && e->expression && !p->reduced_before) {
        error_at(p, t->span,
                 "expected an expression, found '{': what belongs together stands in parentheses");
        return true;
    }
    if (in_index && !e->expression && (((t->code == NUMBER || t->code == NAME) && before == ':') ||
                                       (t->code == ':' && ends_operand(before)))) {
        error_at(p, t->span,
                 p->open[p->nopen - 1].reduction ? "an index runs from 0 to below its range, as in sum[j:N]"
                                                 : "a slice has all places of an axis, x[:]; some are taken "
                                                   "by the range of an index, as in y[i:4] = x[i]");
        return true;
    }
    if (t->code == ']' && before == '[' && names_reduction(word_before(p, p->prev.span.lo))) {
        error_at(p, t->span, "'%s' names the indices it runs over, as in sum[j] x[j]",
                 word_before(p, p->prev.span.lo));
    } else if (t->code == ']' && before == '[') {
        error_at(p, t->span, "empty brackets: a scalar is written without them");
    } else if (e->expression && (t->code == ',' || t->code == ']' || t->code == ')') && before == ',') {
        error_at(p, t->span, "something is missing between ',' and %s", token_text(p, t));
    } else if (t->code == ')' && before == '(') {
        error_at(p, t->span, "empty parentheses");
    } else if ((t->code == ')' || t->code == ']') && !in_brackets(p)) {
        error_at(p, t->span, "this '%c' closes nothing", t->code);
    } else {
        return explain_open(p, t);
    }
    return true;
}

/* "an operator, ',' or ';'": what could have followed the operand before; the rarer parts of declarations
 * and equations are left out. */
static const char *continuations(Parser *p, const Expected *e)
{
    const char *list[12];
    int n = 0;
    if (e->operators)
        list[n++] = "an operator";
    for (int i = 0; i < e->ntokens; i++)
        if (!strchr(e->operators ? "[(." : e->comma ? ":~=[" : e->equals ? ":" : "", e->tokens[i][1]))
            list[n++] = e->tokens[i];
    if (e->end)
        list[n++] = "';'";
    const char *text = n ? list[0] : "something else";
    for (int i = 1; i < n; i++)
        text = intern_f(p->c, "%s%s%s", text, i == n - 1 ? " or " : ", ", list[i]);
    return text;
}

static bool on_one_line(const Parser *p, const Token *a, const Token *b)
{
    return !memchr(p->src.text + a->span.hi, '\n', b->span.lo - a->span.hi);
}

static void explain_rest(Parser *p, const Token *t, const Expected *e)
{
    const char *found = token_text(p, t);
    if (e->expression && p->reduced_before)
        error_at(p, t->span, "expected the expression that '%s' reduces, found %s", p->reduced_before, found);
    else if (e->expression && t->code == ':' && in_brackets(p) && p->open[p->nopen - 1].with == '[')
        error_at(p, t->span,
                 "expected an index, found ':': each axis has an index of its own, as in y[i] = 2 * x[i]");
    else if (e->expression)
        error_at(p, t->span, "expected an expression, found %s", found);
    else if (e->block && !e->end)
        error_at(p, t->span, "expected '{' after %s, found %s", statement_text(p->stmt_code), found);
    else if (e->operators && ends_operand(p->prev.code) && (t->code == NAME || t->code == NUMBER) &&
             on_one_line(p, &p->prev, t))
        error_at(p, t->span, "expected %s before %s (a product is written with '*'%s)", continuations(p, e),
                 found,
                 p->prev.code == NAME && t->code == NAME ? ", that of a matrix sum[j] W[i,j] * x[j]" : "");
    else if (ends_operand(p->prev.code) && p->prev.code != STRING)
        error_at(p, t->span, "expected %s before %s", continuations(p, e), found);
    else if (e->name)
        error_at(p, t->span, "expected a name, found %s", found);
    else if (e->end)
        error_at(p, t->span, "expected ';' after %s, found %s", statement_text(p->stmt_code), found);
    else
        error_at(p, t->span, "expected %s, found %s", continuations(p, e), found);
}

/* A '{' in the middle of an expression: what is inside was not meant as statements. */
static bool opens_by_mistake(const Parser *p, const Token *t)
{
    return t->code == '{' && !is_block_header(p->stmt_code) && p->stmt_code != FN && p->stmt_code != ADJOINT;
}

static bool explain_domain(Parser *p, const Token *t)
{
    if (p->prev.code == IN)
        error_at(p, t->span, "expected a range behind 'in', such as (0, 1] or [0, inf), or 'reach', found %s",
                 token_text(p, t));
    return p->prev.code == IN;
}

void syntax_error(Parser *p, const Expected *e)
{
    if (p->stmt_bad || p->gave_up)
        return;
    p->stmt_bad = true;
    Token t = p->token;
    if (t.code == 0) /* the place is where the text stops, not the empty line behind it */
        t.span.lo = t.span.hi = p->prev.span.hi;
    if (!explain_domain(p, &t) && !explain_keyword(p, &t, e) && !explain_head(p, &t, e) &&
        !explain_start(p, &t) && !explain_operator(p, &t, e) && !explain_brackets(p, &t, e))
        explain_rest(p, &t, e);
    if (opens_by_mistake(p, &t))
        p->quiet = p->nopen;
}
