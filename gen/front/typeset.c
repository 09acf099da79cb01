/* typeset.c: equations for people to read. In: the text of expressions and statements of a spec, which parsed. Out: the
 * same in Unicode. Guaranteed: nothing is left out or put in another order, so that what is read is what the spec
 * says; numbers and names that are no Greek letters stay as they are. */
#include "typeset.h"

#include <ctype.h>
#include <string.h>

typedef struct Pair { const char *from, *to; } Pair;

static const Pair words[] = {
    { "alpha", "α" },   { "beta", "β" },   { "gamma", "γ" },   { "delta", "δ" },   { "eps", "ε" },    { "epsilon", "ε" },
    { "zeta", "ζ" },    { "eta", "η" },    { "theta", "θ" },   { "kappa", "κ" },   { "lambda", "λ" }, { "mu", "μ" },
    { "nu", "ν" },      { "xi", "ξ" },     { "pi", "π" },      { "rho", "ρ" },     { "sigma", "σ" },  { "tau", "τ" },
    { "phi", "φ" },     { "chi", "χ" },    { "psi", "ψ" },     { "omega", "ω" },   { "inf", "∞" },    { "sqrt", "√" },
    { "sum", "Σ" },     { "prod", "Π" },   { "sigmoid", "σ" },
};
static const Pair signs[] = {
    { "<=", "≤" }, { ">=", "≥" }, { "!=", "≠" }, { "==", "=" }, { "&&", "and" }, { "||", "or" },
    { "*", "·" },  { "-", "−" },  { "'", "′" },  { "!", "not " },
};
static const char *const reductions[] = { "sum", "prod", "mean", "max", "min", "softmax" };

/* Of the Latin letters, Unicode has these below the line. */
static const Pair below[] = {
    { "a", "ₐ" }, { "e", "ₑ" }, { "h", "ₕ" }, { "i", "ᵢ" }, { "j", "ⱼ" }, { "k", "ₖ" }, { "l", "ₗ" }, { "m", "ₘ" },
    { "n", "ₙ" }, { "o", "ₒ" }, { "p", "ₚ" }, { "r", "ᵣ" }, { "s", "ₛ" }, { "t", "ₜ" }, { "u", "ᵤ" }, { "v", "ᵥ" },
    { "x", "ₓ" },
};
static const char *const raised[] = { "⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹" };

static const char *find(const Pair *table, size_t n, const char *text, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].from) == len && memcmp(table[i].from, text, len) == 0)
            return table[i].to;
    return NULL;
}

#define FIND(table, text, len) find(table, sizeof table / sizeof *table, text, len)

static bool is_reduction(const char *text, size_t len)
{
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (strlen(reductions[i]) == len && memcmp(reductions[i], text, len) == 0)
            return true;
    return false;
}

/* A name; of one in parts, such as lambda_k, the first may be a letter. */
static void put_name(const char *text, size_t len, Buf *out)
{
    const char *cut = memchr(text, '_', len);
    size_t head = cut ? (size_t)(cut - text) : len;
    const char *letter = FIND(words, text, head);
    buf_f(out, "%s%.*s", letter ? letter : "", (int)(letter ? len - head : len), letter ? text + head : text);
}

/* The indices of a reduction, text[0] the bracket; what was read of it. */
static size_t put_binders(const char *text, size_t n, Buf *out)
{
    size_t end = 1;
    bool letters = true;
    while (end < n && text[end] != ']')
        end++;
    for (size_t i = 1; i < end; i++)
        letters &= i % 2 ? FIND(below, text + i, 1) != NULL : text[i] == ',';
    if (letters && end > 1) {
        for (size_t i = 1; i < end; i += 2)
            buf_f(out, "%s", FIND(below, text + i, 1));
        return end + 1;
    }
    buf_f(out, "_{");
    for (size_t i = 1; i < end; i++)
        buf_f(out, "%c", text[i] == ':' ? '<' : text[i]);
    buf_f(out, "}");
    return end + 1;
}

static size_t word_length(const char *text, size_t n)
{
    size_t len = 0;
    while (len < n && (isalnum((unsigned char)text[len]) || text[len] == '_'))
        len++;
    return len;
}

static size_t put_word(const char *text, size_t n, Buf *out)
{
    size_t len = word_length(text, n);
    put_name(text, len, out);
    if (len < n && text[len] == '[' && is_reduction(text, len))
        len += put_binders(text + len, n - len, out);
    return len;
}

static size_t put_number(const char *text, size_t n, Buf *out)
{
    size_t len = 0;
    while (len < n && (isalnum((unsigned char)text[len]) || text[len] == '.' ||
                       (len && strchr("+-", text[len]) && strchr("eE", text[len - 1]))))
        len++;
    buf_f(out, "%.*s", (int)len, text);
    return len;
}

static size_t put_sign(const char *text, size_t n, Buf *out)
{
    if (text[0] == '^' && n > 1 && isdigit((unsigned char)text[1]) &&
        !(n > 2 && (isalnum((unsigned char)text[2]) || text[2] == '.'))) {
        buf_f(out, "%s", raised[text[1] - '0']);
        return 2;
    }
    const char *two = n > 1 ? FIND(signs, text, 2) : NULL;
    const char *one = FIND(signs, text, 1);
    if (two || one)
        buf_f(out, "%s", two ? two : one);
    else
        buf_f(out, "%c", text[0]);
    return two ? 2 : 1;
}

static void typeset_as(const char *text, size_t n, bool names, Buf *out)
{
    for (size_t i = 0; i < n;) {
        if (isspace((unsigned char)text[i])) {
            while (i < n && isspace((unsigned char)text[i]))
                i++;
            buf_f(out, i < n ? " " : "");
        } else if (isalpha((unsigned char)text[i]) || text[i] == '_') {
            size_t len = word_length(text + i, n - i);
            if (names)
                len = put_word(text + i, n - i, out);
            else
                buf_f(out, "%.*s", (int)len, text + i);
            i += len;
        } else if (isdigit((unsigned char)text[i]) || text[i] == '.') {
            i += put_number(text + i, n - i, out);
        } else {
            i += put_sign(text + i, n - i, out);
        }
    }
}

void typeset(const char *text, size_t n, Buf *out)
{
    typeset_as(text, n, true, out);
}

void typeset_condition(const char *text, size_t n, Buf *out)
{
    typeset_as(text, n, false, out);
}
