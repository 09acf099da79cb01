/* words.c: what is said of a word, for hover and completion: the words of the language from tables, the names
 * of a spec from its text and its comments. */
#include <string.h>

#include "front/complex_ops.h"
#include "ir/ops.h"
#include "server.h"

static const struct { const char *word, *means; } meanings[] = {
    { "import", "`import \"std.cell\";` takes the functions of another file, beside this one or of the library" },
    { "cell", "`cell NAME { ... }` is what one step computes; the generated code has its name" },
    { "dim", "`dim D;` is a size that is chosen at run time, `dim N = 64;` one that is bound when the cell is compiled" },
    { "const", "`const eps = 1e-6;` is a number; in front of `input` or `param`: without a gradient" },
    { "option", "`option act = tanh | relu;` is a choice that is made when the cell is compiled; the first is the default" },
    { "input", "`input x[D];` is given at each step" },
    { "param", "`param W[N, D] ~ xavier;` is learned, and the same for all steps and sequences" },
    { "state", "`state h[N];` is carried from step to step; h' is its next value" },
    { "output", "`output y[N];` is given back at each step" },
    { "reset", "`reset r;` is an input that says where another sequence begins" },
    { "carry", "`carry A[N,N] = ...;` goes from one iteration of a repeat to the next; A' is its next value" },
    { "fn", "`fn f(x)[i] = ...;` is a function of arrays or numbers" },
    { "adjoint", "`adjoint fn f(u; g)` replaces the derivative of `fn f(u)`; g is the gradient that arrives at its result" },
    { "when", "`when act == tanh { ... } else { ... }` keeps one branch when the cell is compiled" },
    { "else", "the branch of a `when` whose condition does not hold" },
    { "repeat", "`repeat n:4 { ... }` is unrolled when the cell is compiled" },
    { "in", "`in (0, 1]` behind a declared name says where its values are, `in reach` that a state is what the cell makes of it" },
    { "sum", "`sum[j] ...` adds up the rest of its product over the index" },
    { "mean", "`mean[j] ...` is the sum of the rest of its product over the index, divided by the extent" },
    { "max", "`max[j] ...` is the largest value over the index; `max(a, b)` that of two numbers" },
    { "min", "`min[j] ...` is the smallest value over the index; `min(a, b)` that of two numbers" },
    { "prod", "`prod[j] ...` multiplies the rest of its product over the index" },
    { "softmax", "`softmax[c] s[c]` is exp(s[c]) divided by its sum over c" },
    { "t", "the number of the step, from 0 on" },
    { "T", "the number of steps, as the range of an index: `w:T`" },
    { "pi", "3.14159..., where the spec gives no other value that name" },
    { "inf", "a number that is larger than all others" },
    { "grad", "`grad(loss, W[r,j])` is the derivative of a value of this step; `grad(o[i], W[r,j]; g[i])` weighs o with g" },
    { "div", "`div(a, b)` is the quotient of whole numbers, rounded down" },
    { "mod", "`mod(a, b)` is the remainder of whole numbers, from 0 to below b" },
    { "xavier", "an initialiser: uniform, with a range that follows from the extents" },
    { "normal", "an initialiser: `normal(deviation)` or `normal(mean, deviation)`" },
    { "uniform", "an initialiser: `uniform(a)`, from -a to a, or `uniform(a, b)`" },
    { "zeros", "an initialiser: 0 everywhere" },
    { "ones", "an initialiser: 1 everywhere" },
    { "orthogonal", "an initialiser of a matrix with orthogonal rows or columns" },
    { "eye", "an initialiser of the identity matrix" },
    { "f32", "stored in 32 bits, whatever `--dtype` says" },
    { "bf16", "stored in 16 bits, of which 8 are the exponent, whatever `--dtype` says" },
    { "f16", "stored in 16 bits, of which 5 are the exponent, whatever `--dtype` says" },
    { "f64", "stored in 64 bits, whatever `--dtype` says" },
    { "i32", "whole numbers, which say a place" },
    { "complex", "complex values, stored as two numbers of `--dtype`; `complex(x, y)` is x + iy" },
    { "c64", "complex values of two numbers of 32 bits" },
    { "c128", "complex values of two numbers of 64 bits" },
    { "dtype", "behind a definition: rounded to what tensors are stored in" },
};

const char *language_word(Compiler *c, const char *word)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (strcmp(meanings[i].word, word) == 0)
            return meanings[i].means;
    int op = op_find(word), cx = complex_find(word);
    if (cx >= 0)
        return intern_f(c, "`%s(%s)`: %s", word, complex_table[cx].arity == 1 ? "z" : "x, y",
                        complex_table[cx].doc);
    if (op < 0 || !op_table[op].in_language)
        return NULL;
    static const char *const arguments[] = { "", "a", "a, b", "a, b, c" };
    return intern_f(c, "`%s(%s)`: %s", word, op_table[op].arity < 4 ? arguments[op_table[op].arity] : "...",
                    op_table[op].doc);
}

/* ---- comments */

/* The comment that begins at p, without its slashes and the blanks around it, behind what `out` has. */
static void put_comment(const char *p, const char *end, Buf *out)
{
    p += 2;
    while (p < end && (*p == '/' || *p == ' ' || *p == '\t'))
        p++;
    while (end > p && (end[-1] == ' ' || end[-1] == '\r' || end[-1] == '\t'))
        end--;
    if (out->len)
        buf_f(out, end > p ? "\n" : "\n\n");
    if (end > p)
        buf_f(out, "%.*s", (int)(end - p), p);
}

static const char *line_start(const Source *s, const char *p)
{
    while (p > s->text && p[-1] != '\n')
        p--;
    return p;
}

static const char *line_stop(const Source *s, const char *p)
{
    const char *end = memchr(p, '\n', (size_t)(s->text + s->len - p));
    return end ? end : s->text + s->len;
}

static const char *first_of_line(const char *line, const char *end)
{
    while (line < end && (*line == ' ' || *line == '\t'))
        line++;
    return line;
}

static bool is_comment(const char *p, const char *end)
{
    return end - p >= 2 && p[0] == '/' && p[1] == '/';
}

/* Lines of comments that end right before the line that begins at `line`. */
static void put_above(const Source *s, const char *line, Buf *out)
{
    const char *from = line;
    while (from > s->text) {
        const char *start = line_start(s, from - 1), *first = first_of_line(start, from - 1);
        if (!is_comment(first, from - 1))
            break;
        from = start;
    }
    for (const char *p = from; p < line; p = line_stop(s, p) + 1)
        put_comment(first_of_line(p, line), line_stop(s, p), out);
}

const char *comment_of(Arena *arena, const Source *s, const Stmt *stmt)
{
    Buf out = { .arena = arena };
    if (!stmt || stmt->span.hi > s->len)
        return "";
    const char *name = s->text + stmt->name_span.lo, *behind = s->text + stmt->span.hi, *end;
    if (stmt->kind == S_CELL || (stmt->kind == S_FN && stmt->has_body)) {
        put_above(s, line_start(s, name), &out);
        const char *top = first_of_line(s->text, s->text + s->len), *p = top;
        while (!out.len && is_comment(p, s->text + s->len))     /* the file's first comment is the cell's */
            p = line_stop(s, p) + (line_stop(s, p) < s->text + s->len);
        if (!out.len && p > top && stmt->kind == S_CELL)
            put_above(s, p, &out);
        return out.len ? out.data : "";
    }
    end = line_stop(s, behind);
    while (behind < end && strchr(" \t;,}", *behind))
        behind++;
    if (is_comment(behind, end))
        put_comment(behind, end, &out);
    else
        put_above(s, line_start(s, s->text + stmt->span.lo), &out);
    return out.len ? out.data : "";
}

/* ---- declarations */

static const char *keyword(const Name *n)
{
    bool fixed = n->stmt && n->stmt->is_const;
    switch (n->kind) {
    case NAME_DIM: return "dim ";
    case NAME_CONST: return "const ";
    case NAME_OPTION: case NAME_CHOICE: return "option ";
    case NAME_INPUT: return fixed ? "const input " : "input ";
    case NAME_PARAM: return fixed ? "const param " : "param ";
    case NAME_STATE: return "state ";
    case NAME_OUTPUT: return "output ";
    case NAME_RESET: return "reset ";
    case NAME_CARRY: return "carry ";
    default: return "";
    }
}

const char *declaration_text(Compiler *c, const Source *s, const Name *n)
{
    enum { LONGEST = 1200 };
    if (!n->stmt || n->stmt->span.hi > s->len)
        return n->name;
    bool whole = n->kind == NAME_DEFINITION || n->kind == NAME_FN;
    uint32_t lo = whole ? n->stmt->span.lo : n->stmt->name_span.lo, hi = n->stmt->span.hi;
    if (n->kind == NAME_CELL)
        return intern_f(c, "cell %s", n->name);
    if (n->kind == NAME_INDEX || n->kind == NAME_ITERATION || n->kind == NAME_PARAMETER ||
        n->kind == NAME_COTANGENT)
        return n->name;
    while (hi > lo && strchr(" \t\r\n;,", s->text[hi - 1]))
        hi--;
    if (hi - lo > LONGEST)
        return intern_f(c, "%s%.*s ...", keyword(n), LONGEST, s->text + lo);
    return intern_f(c, "%s%.*s", keyword(n), (int)(hi - lo), s->text + lo);
}
