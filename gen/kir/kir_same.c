/* kir_same.c: a hash and equality of kernels by what they do. In come kernels; out goes whether one is the
 * other but for names and comments. A variable is its place in the order of declarations. */
#include <string.h>

#include "kir.h"

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static uint64_t hash_type(uint64_t h, KirType t)
{
    uint64_t of = (uint64_t)t.of | (uint64_t)t.space << 8 | (uint64_t)t.layout << 16;
    return mix(h, of | (uint64_t)t.written << 24);
}

static uint64_t hash_block(uint64_t h, const KirBlock *b, int *numbers);

static uint64_t hash_expr(uint64_t h, const KirExpr *e, int *numbers)
{
    if (!e)
        return mix(h, 1);
    uint64_t bits;
    memcpy(&bits, &e->real, sizeof bits);
    h = hash_type(mix(h, (uint64_t)e->kind << 32 | (uint64_t)e->op << 1 | e->fast), e->type);
    h = mix(mix(h, (uint64_t)e->whole), bits);
    h = mix(h, e->var ? (uint64_t)e->var->number : 0);
    for (const char *s = e->text; s && *s; s++)
        h = mix(h, (unsigned char)*s);
    for (int i = 0; i < e->ntemplates; i++)
        h = hash_expr(mix(mix(h, e->templates[i].type), (uint64_t)e->templates[i].value), e->templates[i].of,
                      numbers);
    if (e->body)
        h = hash_block(h, e->body, numbers);
    h = mix(h, (uint64_t)e->nargs);
    for (int i = 0; i < e->nargs; i++)
        h = hash_expr(h, e->args[i], numbers);
    return h;
}

/* The variable of a loop is there for its limit, others only behind their statement. */
static uint64_t hash_block(uint64_t h, const KirBlock *b, int *numbers)
{
    for (int i = 0; i < b->len; i++) {
        const KirStmt *s = b->data[i];
        if (s->kind == KI_COMMENT)
            continue;
        h = mix(mix(h, (uint64_t)s->kind << 32 | (uint64_t)s->op), (uint64_t)s->n);
        for (int j = 0; j < 3; j++)
            h = hash_expr(h, s->x[j], numbers);
        h = hash_expr(h, s->wide, numbers);
        if (s->var) {
            s->var->number = ++*numbers;
            h = hash_expr(hash_type(h, s->var->type), s->var->count, numbers);
            h = hash_expr(h, s->var->rows, numbers);
        }
        h = mix(hash_block(h, &s->body, numbers), 2);
        h = mix(hash_block(h, &s->other, numbers), 3);
    }
    return h;
}

static void end_numbers(KirStmt *s, void *data)
{
    (void)data;
    if (s->var)
        s->var->number = 0;
}

static void forget_numbers(Kir *k)
{
    kir_each(&k->body, end_numbers, NULL);
    for (int i = 0; i < k->params.len; i++)
        k->params.data[i]->number = 0;
    for (int i = 0; i < k->entries.len; i++)
        kir_each(&k->entries.data[i].body, end_numbers, NULL);
}

uint64_t kir_hash(Kir *k)
{
    int numbers = 0;
    uint64_t h = mix(mix(mix(mix(0, (uint64_t)k->threads), (uint64_t)k->resident), (uint64_t)k->shared),
                     k->waits);
    for (const char *s = k->bound; s && *s; s++)
        h = mix(h, (unsigned char)*s);
    for (int i = 0; i < k->params.len; i++) {
        k->params.data[i]->number = ++numbers;
        h = hash_type(h, k->params.data[i]->type);
    }
    h = hash_block(h, &k->body, &numbers);
    for (int i = 0; i < k->entries.len; i++)
        h = mix(hash_block(h, &k->entries.data[i].body, &numbers), 4);
    forget_numbers(k);
    return h;
}

/* ---- equality ---- */

/* numbers: how many variables there are; NULL: a variable is itself. */
static bool same_type(KirType a, KirType b)
{
    return kir_same_type(a, b) && a.written == b.written;
}

static bool same_block(const KirBlock *a, const KirBlock *b, int *numbers);

static bool same_expr(const KirExpr *a, const KirExpr *b, int *numbers)
{
    if (!a || !b)
        return a == b;
    bool same = a->kind == b->kind && same_type(a->type, b->type) && a->op == b->op && a->fast == b->fast &&
                a->whole == b->whole && memcmp(&a->real, &b->real, sizeof a->real) == 0 &&
                a->nargs == b->nargs && a->ntemplates == b->ntemplates && !a->var == !b->var &&
                !a->text == !b->text && !a->body == !b->body;
    if (!same || (a->text && strcmp(a->text, b->text) != 0))
        return false;
    if (a->var && (numbers ? a->var->number != b->var->number : a->var != b->var))
        return false;
    for (int i = 0; i < a->ntemplates; i++)
        if (a->templates[i].type != b->templates[i].type || a->templates[i].value != b->templates[i].value ||
            !same_expr(a->templates[i].of, b->templates[i].of, numbers))
            return false;
    if (a->body && (numbers ? !same_block(a->body, b->body, numbers) : a->body != b->body))
        return false;
    for (int i = 0; i < a->nargs; i++)
        if (!same_expr(a->args[i], b->args[i], numbers))
            return false;
    return true;
}

static bool same_var(KirVar *a, KirVar *b, int *numbers)
{
    if (!a || !b)
        return a == b;
    a->number = b->number = ++*numbers;
    return same_type(a->type, b->type) && same_expr(a->count, b->count, numbers) &&
           same_expr(a->rows, b->rows, numbers);
}

static bool same_statement(const KirStmt *a, const KirStmt *b, int *numbers)
{
    if (a->kind != b->kind || a->op != b->op || a->n != b->n)
        return false;
    for (int i = 0; i < 3; i++)
        if (!same_expr(a->x[i], b->x[i], numbers))
            return false;
    return same_expr(a->wide, b->wide, numbers) && same_var(a->var, b->var, numbers) &&
           same_block(&a->body, &b->body, numbers) && same_block(&a->other, &b->other, numbers);
}

static const KirStmt *next(const KirBlock *b, int *i)
{
    while (*i < b->len && b->data[*i]->kind == KI_COMMENT)
        ++*i;
    return *i < b->len ? b->data[(*i)++] : NULL;
}

static bool same_block(const KirBlock *a, const KirBlock *b, int *numbers)
{
    int i = 0, j = 0;
    for (;;) {
        const KirStmt *x = next(a, &i), *y = next(b, &j);
        if (!x || !y)
            return x == y;
        if (!same_statement(x, y, numbers))
            return false;
    }
}

bool kir_same(Kir *a, Kir *b)
{
    int numbers = 0;
    bool bound = !a->bound == !b->bound && (!a->bound || strcmp(a->bound, b->bound) == 0);
    bool same = bound && a->threads == b->threads && a->resident == b->resident && a->shared == b->shared &&
                a->waits == b->waits && a->params.len == b->params.len && a->entries.len == b->entries.len;
    for (int i = 0; same && i < a->params.len; i++)
        same = same_var(a->params.data[i], b->params.data[i], &numbers);
    same = same && same_block(&a->body, &b->body, &numbers);
    for (int i = 0; same && i < a->entries.len; i++)
        same = same_block(&a->entries.data[i].body, &b->entries.data[i].body, &numbers);
    forget_numbers(a);
    forget_numbers(b);
    return same;
}

/* ---- expressions of one kernel ---- */

uint64_t kir_expr_hash(const KirExpr *e)
{
    if (!e)
        return 1;
    uint64_t h = mix((uint64_t)e->kind << 32 | (uint64_t)e->op, (uint64_t)e->whole);
    h = mix(h, (uint64_t)(uintptr_t)e->var);
    for (int i = 0; i < e->nargs; i++)
        h = mix(h, kir_expr_hash(e->args[i]));
    return h;
}

bool kir_equal(const KirExpr *a, const KirExpr *b)
{
    return a == b || same_expr(a, b, NULL);
}

static bool block_mentions(const KirBlock *b, const KirVar *v)
{
    bool found = false;
    for (int i = 0; i < b->len && !found; i++) {
        const KirStmt *s = b->data[i];
        for (int j = 0; j < 3; j++)
            found |= s->x[j] && kir_mentions(s->x[j], v);
        found = found || block_mentions(&s->body, v) || block_mentions(&s->other, v);
    }
    return found;
}

bool kir_mentions(const KirExpr *e, const KirVar *v)
{
    if (e->kind == KX_VAR)
        return e->var == v;
    for (int i = 0; i < e->nargs; i++)
        if (kir_mentions(e->args[i], v))
            return true;
    return e->body && block_mentions(e->body, v);
}
