/* tokens.c: raw tokens to the tokens of the grammar. In: the scanner of lex.l. Out: tokens in which keywords
 * stand only where a statement can begin (so `input`, `state` or `reset` may be names elsewhere), a ';'
 * inside brackets is told from one that ends a statement, and a ';' that was forgotten at the end of a line
 * is put in after an error. Guaranteed: brackets never nest deeper than MAX_NESTING, and after `give_up` the
 * file is at its end. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "front/parse.h"
#include "parser.h"

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

const char *statement_word_at(int i)
{
    return i < NWORDS ? statement_words[i].text : NULL;
}

const char *reduction_at(int i)
{
    return i < (int)(sizeof reductions / sizeof *reductions) ? reductions[i].text : NULL;
}

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

const char *nearest_statement(const char *word)
{
    const char *words[NWORDS];
    for (int i = 0; i < NWORDS; i++)
        words[i] = statement_words[i].text;
    return suggest(word, words, NWORDS);
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

bool error_at(Parser *p, Span span, const char *fmt, ...)
{
    if (p->gave_up || (p->quiet && p->nopen >= p->quiet))
        return false;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    diag(p->c, DIAG_ERROR, span, "%s", text);
    if (p->c->errors - p->errors_before >= MAX_SYNTAX_ERRORS)
        give_up(p, span, "too many errors: the rest of the file is not read");
    return !p->gave_up;
}

void give_up(Parser *p, Span span, const char *why)
{
    if (p->gave_up)
        return;
    diag(p->c, DIAG_ERROR, span, "%s", why);
    p->gave_up = true;
}

void note_open(Parser *p, const Opened *o)
{
    if (!p->gave_up && !(p->quiet && p->nopen >= p->quiet))
        diag(p->c, DIAG_NOTE, o->span, "the '%c' is here", o->with);
}

const char *statement_text(int code)
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

bool in_brackets(const Parser *p)
{
    return p->nopen && p->open[p->nopen - 1].with != '{';
}

bool ends_operand(int code)
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
bool is_block_header(int code)
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

/* x[i] // 2; as in Python: the rest of the line looks like the rest of a statement. */
static bool quotient_behind(const Parser *p, uint32_t at)
{
    const char *s = p->src.text + at, *end = p->src.text + p->src.len;
    while (s < end && (*s == ' ' || *s == '\t'))
        s++;
    if (end - s < 2 || s[0] != '/' || s[1] != '/')
        return false;
    const char *stop = memchr(s, '\n', (size_t)(end - s));
    for (stop = stop ? stop : end; stop > s && isspace((unsigned char)stop[-1]);)
        stop--;
    return stop[-1] == ';';
}

static Token inserted_end(Parser *p)
{
    Token end = {.code = END, .span = {p->file, p->prev.span.hi, p->prev.span.hi}};
    if (in_brackets(p)) {
        close_brackets(p);
        return end;
    }
    bool quotient = quotient_behind(p, end.span.hi);
    if (!p->stmt_bad && error_at(p, end.span, "expected ';' after %s%s", statement_text(p->stmt_code),
                                 quotient ? ": what stands behind '//' is a comment; a quotient that is rounded down is "
                                            "floor(a / b), of whole numbers div(a, b)"
                                          : "") && !quotient)
        diag_fix(p->c, end.span, ";");
    p->stmt_bad = true;
    return end;
}

static bool is_reduction(const Token *t)
{
    return t->code == REDUCE || t->code == SOFTMAX;
}

char closer_of(char with)
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
