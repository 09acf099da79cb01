/* tokens.c: raw tokens to the tokens of the grammar, and the texts of syntax errors. In: the scanner of
 * lex.l. Out: tokens in which keywords stand only where a statement can begin (so `input`, `state` or `reset`
 * may be names elsewhere), a ';' inside brackets is told from one that ends a statement, and a ';' that was
 * forgotten at the end of a line is put in after an error. Guaranteed: brackets never nest deeper than
 * MAX_NESTING, and after `give_up` the file is at its end. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "front/parse.h"
#include "parser.h"
#include "words.h"

typedef struct Word {
    const char *text;
    int code;
} Word;

static const Word statement_words[] = {
    {"import", IMPORT},   {"cell", CELL},   {"dim", DIM},     {"const", CONST},
    {"option", OPTION},   {"input", INPUT}, {"param", PARAM}, {"state", STATE},
    {"output", OUTPUT},   {"reset", RESET}, {"carry", CARRY}, {"fn", FN},
    {"adjoint", ADJOINT}, {"when", WHEN},   {"else", ELSE},   {"repeat", REPEAT},
};
enum { NWORDS = sizeof statement_words / sizeof *statement_words };

static const struct {
    const char *text;
    ReduceOp reduce;
} reductions[] = {
    {"sum", R_SUM}, {"mean", R_MEAN}, {"max", R_MAX},
    {"min", R_MIN}, {"prod", R_PROD}, {"softmax", R_SOFTMAX},
};

/* ---- looking ahead in the text ---- */

static bool word_start(char ch)
{
    return isalpha((unsigned char)ch) || ch == '_';
}

static bool word_char(char ch)
{
    return isalnum((unsigned char)ch) || ch == '_';
}

uint32_t skip_blank(const Source *src, uint32_t at)
{
    const char *s = src->text;
    while (at < src->len) {
        if (isspace((unsigned char)s[at])) {
            at++;
        } else if (s[at] == '/' && s[at + 1] == '/') {
            while (at < src->len && s[at] != '\n')
                at++;
        } else if (s[at] == '/' && s[at + 1] == '*') {
            const char *end = memmem(s + at + 2, src->len - at - 2, "*/", 2);
            if (!end)
                return (uint32_t)src->len;
            at = (uint32_t)(end - s) + 2;
        } else {
            break;
        }
    }
    return at;
}

static uint32_t word_end(const Source *src, uint32_t at)
{
    while (at < src->len && word_char(src->text[at]))
        at++;
    return at;
}

static int statement_word(const char *text, size_t len)
{
    for (int i = 0; i < NWORDS; i++)
        if (strlen(statement_words[i].text) == len && memcmp(statement_words[i].text, text, len) == 0)
            return statement_words[i].code;
    return 0;
}

/* A word at the start of a statement is a keyword unless an equation follows: `reset[i] = ...`, `state' =
 * ...`. */
static bool equation_follows(const Source *src, uint32_t at)
{
    at = skip_blank(src, at);
    const char *s = src->text + at;
    return *s == '[' || *s == '\'' || *s == ':' || (*s == '=' && s[1] != '=');
}

/* Does a statement begin at this word? Looks no further than a few hundred bytes. */
static bool statement_begins(const Source *src, uint32_t at)
{
    enum { FAR = 400 };
    if (at >= src->len || src->text[at] == '}')
        return true;
    if (!word_start(src->text[at]))
        return false;
    uint32_t end = word_end(src, at), limit = at + FAR;
    uint32_t next = skip_blank(src, end);
    if (statement_word(src->text + at, end - at) && word_start(src->text[next]))
        return true;
    if (src->text[next] == '\'')
        next = skip_blank(src, next + 1);
    if (src->text[next] == '[') {
        int depth = 0;
        for (; next < src->len && next < limit; next++) {
            char ch = src->text[next];
            depth += ch == '[' ? 1 : ch == ']' ? -1 : 0;
            if (depth == 0 || ch == ';')
                break;
        }
        next = skip_blank(src, next + 1);
    }
    return next < src->len && src->text[next] == '=' && src->text[next + 1] != '=';
}

/* ---- errors ---- */

void error_at(Parser *p, Span span, const char *fmt, ...)
{
    if (p->gave_up || (p->quiet && p->nopen >= p->quiet))
        return;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    diag(p->c, DIAG_ERROR, span, "%s", text);
    if (p->c->errors - p->errors_before >= MAX_SYNTAX_ERRORS)
        give_up(p, span, "too many errors: the rest of the file is not read");
}

void give_up(Parser *p, Span span, const char *why)
{
    if (p->gave_up)
        return;
    diag(p->c, DIAG_ERROR, span, "%s", why);
    p->gave_up = true;
}

static void note_open(Parser *p, const Opened *o)
{
    if (!p->gave_up && !(p->quiet && p->nopen >= p->quiet))
        diag(p->c, DIAG_NOTE, o->span, "the '%c' is here", o->with);
}

static const char *statement_text(int code)
{
    switch (code) {
    case IMPORT: return "the import";
    case CELL: return "the cell";
    case DIM: return "the dim";
    case CONST: return "the const";
    case OPTION: return "the option";
    case INPUT: return "the input";
    case PARAM: return "the param";
    case STATE: return "the state";
    case OUTPUT: return "the output";
    case RESET: return "the reset";
    case CARRY: return "the carry";
    case FN:
    case ADJOINT: return "the fn";
    case WHEN: return "the condition";
    case REPEAT: return "the repeat";
    case ELSE: return "'else'";
    }
    return "the equation";
}

/* ---- the stream ---- */

static Token raw_token(Parser *p)
{
    Token t = {.code = 0};
    uint32_t before = p->pos, lo;
    t.code = p->gave_up ? 0 : raw_next(p, &lo);
    if (p->gave_up)
        t.code = 0;
    if (t.code == 0)
        lo = p->pos = (uint32_t)p->src.len;
    t.span = (Span){p->file, lo, p->pos};
    t.new_line = memchr(p->src.text + before, '\n', lo - before) != NULL;
    if (t.code == NUMBER) {
        t.num = p->num;
        t.is_int = p->is_int;
    } else if (t.code == NAME) {
        t.text = intern_n(p->c, p->src.text + lo, p->pos - lo);
        if (p->pos - lo > MAX_NAME)
            diag(p->c, DIAG_ERROR, t.span, "a name has at most %d characters; this one has %u", MAX_NAME, (unsigned)(p->pos - lo));
    } else if (t.code == STRING) {
        uint32_t end = p->pos - 1 > lo && p->src.text[p->pos - 1] == '"' ? p->pos - 1 : p->pos;
        t.text = intern_n(p->c, p->src.text + lo + 1, end - lo - 1);
    }
    return t;
}

static bool in_brackets(const Parser *p)
{
    return p->nopen && p->open[p->nopen - 1].with != '{';
}

static bool ends_operand(int code)
{
    return code == NAME || code == NUMBER || code == STRING || code == ')' || code == ']' || code == '\'';
}

/* `in` behind a declared name, its type or its first value; elsewhere, also where a name is declared, it is a
 * name. */
static bool begins_domain(const Parser *p, const Token *t)
{
    switch (p->stmt_code) {
    case DIM: case CONST: case INPUT: case PARAM: case STATE: case OUTPUT: case RESET: case CARRY: break;
    default: return false;
    }
    return strcmp(t->text, "in") == 0 && !p->at_start && !in_brackets(p) && ends_operand(p->prev.code);
}

/* What a word means here: a reduction, a number, a keyword of a statement, or a name. */
static void classify_word(Parser *p, Token *t)
{
    char next = p->src.text[skip_blank(&p->src, t->span.hi)];
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        if (strcmp(t->text, reductions[i].text) != 0)
            continue;
        bool call = next == '(' && (reductions[i].reduce == R_MAX || reductions[i].reduce == R_MIN);
        t->reduce = reductions[i].reduce;
        if (!call)
            t->code = t->reduce == R_SOFTMAX ? SOFTMAX : REDUCE;
        return;
    }
    if (strcmp(t->text, "inf") == 0 && !p->at_start) {
        t->code = NUMBER;
        t->num = INFINITY;
        return;
    }
    if (begins_domain(p, t)) {
        t->code = IN;
        return;
    }
    int code = statement_word(t->text, strlen(t->text));
    bool after_const = p->prev.code == CONST && (code == INPUT || code == PARAM);
    bool after_adjoint = p->prev.code == ADJOINT && code == FN;
    bool else_when = p->prev.code == ELSE && code == WHEN;
    if (code && (p->at_start || after_const || after_adjoint || else_when) &&
        !equation_follows(&p->src, t->span.hi))
        t->code = code;
}

/* Statements of the header of a block do not end with ';'. */
static bool is_block_header(int code)
{
    return code == CELL || code == WHEN || code == REPEAT || code == ELSE;
}

/* Is a ';' missing before t? Nothing that begins an operand can follow one, so a name on a new line begins a
 * statement. */
static bool misses_end(const Parser *p, const Token *t)
{
    if (p->at_start || is_block_header(p->stmt_code))
        return false;
    if (t->code == '}' || t->code == 0)
        return (p->stmt_bad || ends_operand(p->prev.code)) && p->nopen > 0;
    if (t->code != NAME && t->code != REDUCE && t->code != SOFTMAX)
        return false;
    return t->new_line && (p->stmt_bad || ends_operand(p->prev.code)) &&
           statement_begins(&p->src, t->span.lo);
}

/* The brackets that the statement left open are forgotten; the innermost is kept for the message the grammar
 * then asks for. */
static void close_brackets(Parser *p)
{
    for (bool first = true; in_brackets(p); first = false) {
        p->nopen--;
        if (first)
            p->dropped = p->open[p->nopen];
    }
}

static Token inserted_end(Parser *p)
{
    Token end = {.code = END, .span = {p->file, p->prev.span.hi, p->prev.span.hi}};
    if (in_brackets(p)) {
        close_brackets(p);
        return end;
    }
    if (!p->stmt_bad)
        error_at(p, end.span, "expected ';' after %s", statement_text(p->stmt_code));
    p->stmt_bad = true;
    return end;
}

static bool is_reduction(const Token *t)
{
    return t->code == REDUCE || t->code == SOFTMAX;
}

static char closer_of(char with)
{
    return with == '(' ? ')' : with == '[' ? ']' : '}';
}

static void open_bracket(Parser *p, const Token *t)
{
    if (t->code == '{')
        close_brackets(p);
    if (p->nopen == MAX_NESTING)
        give_up(p, t->span, "nested too deeply (256 levels of brackets and blocks are the limit)");
    else
        p->open[p->nopen++] = (Opened){(char)t->code, t->span,
                                       t->code == '[' && is_reduction(&p->prev) ? p->prev.text : NULL,
                                       p->prev.code == IN};
}

/* False for a '}' that closes nothing: it is reported and left out. */
static bool close_bracket(Parser *p, const Token *t)
{
    if (t->code == '}') {
        close_brackets(p);
        if (p->nopen == 0) {
            error_at(p, t->span, "this '}' closes nothing");
            return false;
        }
        p->nopen--;
        if (p->nopen < p->quiet) {
            p->quiet = 0;
            p->rest_of_bad = true;
        }
    } else if (p->nopen && (closer_of(p->open[p->nopen - 1].with) == t->code || p->open[p->nopen - 1].range)) {
        p->reduced = p->open[--p->nopen].reduction;
    }
    return true;
}

/* ';' inside brackets separates the step of `x[d; t-1]`, unless the bracket was never closed. */
static int semicolon(Parser *p, const Token *t)
{
    if (!in_brackets(p))
        return END;
    uint32_t next = skip_blank(&p->src, t->span.hi);
    bool new_line = memchr(p->src.text + t->span.hi, '\n', next - t->span.hi) != NULL;
    bool stops = next >= p->src.len || p->src.text[next] == '}' ||
                 (new_line && statement_begins(&p->src, next));
    if (stops)
        close_brackets(p);
    return stops ? END : SEP;
}

/* `cell` where a block is still open: the block's '}' was forgotten. The token is held until all blocks are
 * closed. */
static Token inserted_brace(Parser *p, const Token *t)
{
    Opened o = p->open[--p->nopen];
    if (!p->cell_reported) {
        error_at(p, t->span, "expected '}' before 'cell'");
        note_open(p, &o);
    }
    p->cell_reported = p->nopen > 0;
    p->held = *t;
    p->held.code = NAME;
    p->has_held = true;
    return (Token){.code = '}', .span = {p->file, t->span.lo, t->span.lo}};
}

static void begin_statement(Parser *p, const Token *t)
{
    p->stmt_code = t->code;
    p->stmt = *t;
    p->stmt_bad = p->lex_bad || (p->rest_of_bad && !t->new_line);
    p->rest_of_bad &= t->code == '}';
}

Token next_token(Parser *p)
{
    Token t;
    p->prev = p->token;
    p->dropped.with = 0;
    p->lex_bad = false;
    p->reduced_before = p->reduced;
    p->reduced = NULL;
    for (;;) {
        t = p->has_held ? p->held : raw_token(p);
        if (!p->has_held && misses_end(p, &t)) {
            p->held = t;
            p->has_held = true;
            t = inserted_end(p);
        } else {
            p->has_held = false;
        }
        if (t.code == NAME)
            classify_word(p, &t);
        else if (t.code == ';')
            t.code = semicolon(p, &t);
        if (t.code == '(' || t.code == '[' || t.code == '{')
            open_bracket(p, &t);
        else if ((t.code == '}' || t.code == ')' || t.code == ']') && !close_bracket(p, &t))
            continue;
        break;
    }
    if (p->gave_up)
        t.code = 0;
    if (p->at_start && t.code == CELL && p->nopen)
        t = inserted_brace(p, &t);
    if (p->at_start)
        begin_statement(p, &t);
    p->token = t;
    p->at_start = t.code == END || t.code == '{' || t.code == '}';
    return t;
}

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
            error_at(p, (Span){p->file, open - (uint32_t)strlen(word), open}, "unknown reduction '%s': %s", word, here);
        return here != NULL;
    }
    if ((t->code != '=' && !is_word(t, "in")) || p->prev.code != NAME || !in_brackets(p) || p->open[p->nopen - 1].with != '[' ||
        !foreign_reduction(p->c, intern_f(p->c, "%s_j", word_before(p, p->open[p->nopen - 1].span.lo))))
        return false;
    error_at(p, t->span, "the range of an index stands behind ':', as in sum[%s:N]", p->prev.text);
    return true;
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
    else if (p->prev.code == NAME && e->operators && (t->code == NAME || t->code == '(') && foreign_reduction(p->c, p->prev.text))
        error_at(p, p->prev.span, "unknown name '%s': %s", p->prev.text, foreign_reduction(p->c, p->prev.text));
    else if (is_word(&p->prev, "lambda") && (t->code == NAME || t->code == ':'))
        error_at(p, p->prev.span, "a function is written fn f(x) = ...;");
    else if (explain_foreign_reduction(p, t, e))
        return true;
    else if ((is_word(t, "if") && e->operators) || (is_word(&p->prev, "if") && !e->expression))
        error_at(p, is_word(t, "if") ? t->span : p->prev.span,
                 "a choice is written with '?', as in x > 0 ? x : 0");
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
        error_at(p, p->prev.span, "'%s' names the indices it runs over in brackets, as in %s[j]",
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
        const char *words[NWORDS];
        for (int i = 0; i < NWORDS; i++)
            words[i] = statement_words[i].text;
        const char *near = foreign_statement(p->prev.text) ? NULL : suggest(p->prev.text, words, NWORDS);
        if (near)
            error_at(p, p->prev.span, "no statement begins with '%s'; did you mean '%s'?", p->prev.text,
                     near);
        else if (foreign_statement(p->prev.text))
            error_at(p, p->prev.span, "no statement begins with '%s': %s", p->prev.text, foreign_statement(p->prev.text));
        else
            error_at(p, p->prev.span, "no statement begins with '%s'", p->prev.text);
        return true;
    }
    return false;
}

/* `:=`, `+=` and the like: an operator where the '=' of an equation belongs, and a '=' right behind it. */
static bool assigns(const Parser *p, const Token *t)
{
    return t->code && t->code < 128 && strchr(":+-*/^%", t->code) && p->src.text[t->span.hi] == '=';
}

/* The first token of a statement, or one behind the word it begins with. */
static bool explain_start(Parser *p, const Token *t, const Expected *e)
{
    bool first = t->span.lo == p->stmt.span.lo, second = p->prev.span.lo == p->stmt.span.lo;
    if (first && t->code && t->code != '}' && t->code != '\'' && t->code != ')' && t->code != ']')
        error_at(p, t->span, "a statement cannot begin with %s%s", token_text(p, t),
                 t->code == '%' || (t->code == '-' && p->src.text[t->span.hi] == '-') ? ": a comment begins with '//'" : "");
    else if (p->prev.code == '\'' && strncmp(p->src.text + p->stmt.span.lo, "import", 6) == 0)
        error_at(p, p->prev.span, "a path stands in \"");
    else if (second && p->prev.code == NAME && (t->code == '(' || t->code == STRING) && foreign_statement(p->prev.text))
        error_at(p, p->prev.span, "no statement begins with '%s': %s", p->prev.text, foreign_statement(p->prev.text));
    else if (second && p->prev.code == NAME && t->code == '(')
        error_at(p, t->span, "a statement begins with a name and its indices in brackets, as in y[i] = ...");
    else if (second && p->prev.code == REPEAT && t->code == NUMBER)
        error_at(p, t->span, "a repeat names its index and says how often, as in repeat n:3");
    else if (p->stmt_code == OPTION && t->code == NUMBER && e->name)
        error_at(p, t->span, "the choices of an option are names, found %s", token_text(p, t));
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

static bool explain_operator(Parser *p, const Token *t, const Expected *e)
{
    int before = p->prev.code;
    if (t->code == '=' && in_brackets(p) && p->stmt_code == NAME && !e->expression)
        return explain_open(p, t);
    if (t->code == '=' && before == ':' && p->prev.span.hi == t->span.lo && e->name)
        error_at(p, (Span){p->file, p->prev.span.lo, t->span.hi}, "there is no ':='; a value is defined once, with '='");
    else if (t->code == '=' && !e->expression && !e->equals)
        error_at(p, t->span, "'=' defines a value; to compare, write '=='");
    else if (t->code == EQ && e->equals)
        error_at(p, t->span, "an equation is written with '='; '==' compares");
    else if (e->equals && assigns(p, t))
        error_at(p, (Span){p->file, t->span.lo, t->span.hi + 1},
                 "there is no '%c='; a value is defined once, with '='; what changes from step to step is a state, h'[i] = h[i] %c ...",
                 t->code, t->code);
    else if (t->code == '*' && before == '*' && e->expression && p->prev.span.hi == t->span.lo)
        error_at(p, (Span){p->file, p->prev.span.lo, t->span.hi},
                 "there is no '**'; a power is written with '^'");
    else if (t->code == '<' && e->equals && p->src.text[t->span.hi] == '-')
        error_at(p, (Span){p->file, t->span.lo, t->span.hi + 1},
                 "there is no '<-'; a value is defined once, with '='");
    else if (t->code == '|' && !e->expression && p->stmt_code != OPTION)
        error_at(p, t->span, "'|' stands alone: 'or' is written '||'");
    else if (t->code == '\'')
        error_at(p, t->span,
                 before == '\'' ? "a value has one prime at most"
                                : "a prime stands right behind the name of a state, as in S'[i,j]");
    else if (t->code == '.' && member_text(p, t))
        error_at(p, t->span, "a '.' picks a result of a call; %s", member_text(p, t));
    else if (t->code == '.' && e->operators && p->src.text[t->span.hi] && strchr("*/^", p->src.text[t->span.hi]))
        error_at(p, (Span){p->file, t->span.lo, t->span.hi + 1},
                 "there is no '.%c'; what belongs together has the same index, as in a[i] %c b[i]", p->src.text[t->span.hi],
                 p->src.text[t->span.hi]);
    else if (t->code == '.')
        error_at(p, t->span, "a '.' belongs to a number, or picks a result of a call, as in gates(x).f");
    else if (p->stmt_code == OPTION && t->code == ',')
        error_at(p, t->span, "the choices of an option are separated by '|'");
    else if (p->stmt_code == REPEAT && t->code == '{' && before == NAME && !e->block)
        error_at(p, t->span, "a repeat says how often, as in repeat %s:3", p->prev.text);
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

/* sum_{j} x[j] */
static bool explain_subscript(Parser *p, const Token *t, const Expected *e)
{
    if (t->code != '{' || p->prev.code != NAME || !e->operators || p->src.text[p->prev.span.hi - 1] != '_')
        return false;
    const char *reduction = foreign_reduction(p->c, intern_f(p->c, "%sj", p->prev.text));
    if (reduction)
        error_at(p, t->span, "%s", reduction);
    else
        error_at(p, t->span, "indices stand in brackets, as in x[i], an earlier step behind ';', as in "
                 "x[i; t - 1]; a state h[i] is the one before the step");
    return true;
}

static bool explain_brackets(Parser *p, const Token *t, const Expected *e)
{
    int before = p->prev.code;
    bool in_index = in_brackets(p) && p->open[p->nopen - 1].with == '[';
    if (explain_subscript(p, t, e) || explain_string(p, t, e))
        return true;
    if (t->code == '[' && before == ']' && e->operators) {
        error_at(p, t->span, "the indices of a value stand in one pair of brackets, as in x[i,j]");
        return true;
    }
    if (t->code == '[' && e->expression && !p->reduced_before) {
        error_at(p, t->span, "expected an expression, found '[': %s", foreign_function(p->c, "concat"));
        return true;
    }
    if (t->code == '{' && e->expression && !p->reduced_before) {
        error_at(p, t->span, "expected an expression, found '{': what belongs together stands in parentheses");
        return true;
    }
    if ((t->code == NUMBER || t->code == NAME) && before == ':' && in_index && !e->expression) {
        error_at(p, t->span, "a slice has all places of an axis, x[:]; some are taken by the range of an index, as "
                 "in y[i:4] = x[i]");
        return true;
    }
    if (t->code == ']' && before == '[') {
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
        error_at(p, t->span, "expected an index, found ':'");
    else if (e->expression)
        error_at(p, t->span, "expected an expression, found %s", found);
    else if (e->block && !e->end)
        error_at(p, t->span, "expected '{' after %s, found %s", statement_text(p->stmt_code), found);
    else if (e->operators && ends_operand(p->prev.code) && (t->code == NAME || t->code == NUMBER) &&
             on_one_line(p, &p->prev, t))
        error_at(p, t->span, "expected %s before %s (a product is written with '*'%s)", continuations(p, e),
                 found, p->prev.code == NAME && t->code == NAME ? ", that of a matrix sum[j] W[i,j] * x[j]" : "");
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
        error_at(p, t->span, "expected a range behind 'in', such as (0, 1] or [0, inf), or 'reach', found %s", token_text(p, t));
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
    if (!explain_domain(p, &t) && !explain_keyword(p, &t, e) && !explain_start(p, &t, e) && !explain_operator(p, &t, e) &&
        !explain_brackets(p, &t, e))
        explain_rest(p, &t, e);
    if (opens_by_mistake(p, &t))
        p->quiet = p->nopen;
}
