/* kir_clean.c: dead declarations. In comes a kernel whose frame declares what a body may need; out goes
 * the same without what nothing reads. What is assigned to stays as long as it is assigned to. */
#include <string.h>

#include "kir.h"

static void drop_unread(KirBlock *b);

/* What it reads, in statements in front of its value too, of which those that nothing reads are dropped. */
static void count(const KirExpr *e)
{
    if (!e)
        return;
    if (e->kind == KX_VAR)
        e->var->uses++;
    for (int i = 0; i < e->nargs; i++)
        count(e->args[i]);
    if (e->body)
        drop_unread(e->body);
}

/* Does a call in it, but for those in blocks inside, do something beside giving a value? */
static bool calls_for_effect(const KirExpr *e)
{
    if (!e)
        return false;
    const KirFunction *f = e->kind == KX_CALL ? e->function : NULL;
    if (e->kind == KX_APPLY)
        return true;
    if (f && (f->effect || f->writes || f->meets != KIR_THREAD))
        return true;
    for (int i = 0; i < e->nargs; i++)
        if (calls_for_effect(e->args[i]))
            return true;
    return false;
}

/* Of a statement that writes: is it to a variable that was declared inside too? */
static bool writes_inside(const KirStmt *s)
{
    const KirExpr *to = s->x[0];
    while (to->kind == KX_LOAD && to->args[0]->type.space == KS_REGISTERS)
        to = to->args[0];
    return to->kind == KX_VAR && to->var->number;
}

static void find_effect(KirStmt *s, void *data)
{
    bool *found = data;
    for (int i = 0; i < 3; i++)
        *found |= calls_for_effect(s->x[i]);
    if (s->var)
        s->var->number = 1;
    switch (s->kind) {
    case KI_LET: case KI_VAR: case KI_ARRAY: case KI_FOR: case KI_WHILE: case KI_IF:
    case KI_BREAK:
    case KI_CONTINUE:
    case KI_COMMENT:
    case KI_PARAMETER: break;
    case KI_ASSIGN: case KI_LOAD_VECTOR: case KI_MMA: *found |= !writes_inside(s); break;
    default: *found = true; break;
    }
}

static void end_number(KirStmt *s, void *data)
{
    (void)data;
    if (s->var)
        s->var->number = 0;
}

/* Does a declaration do something beside that, itself or in statements in front of its value? */
static bool has_effect(KirStmt *s)
{
    const KirBlock alone = { .data = &s, .len = 1 };
    bool found = false;
    kir_each(&alone, find_effect, &found);
    kir_each(&alone, end_number, NULL);
    return found;
}

/* From the last statement to the first, as what one declares another may be declared with. Reads are
 * counted on the way: those behind a declaration are its own, and blocks side by side may each have one of
 * the same variable. */
static void drop_unread(KirBlock *b)
{
    int kept = b->len;
    for (int i = b->len - 1; i >= 0; i--) {
        KirStmt *s = b->data[i];
        drop_unread(&s->other);
        drop_unread(&s->body);
        bool declares = s->kind == KI_LET || s->kind == KI_VAR || s->kind == KI_ARRAY;
        if (declares && s->var->uses == 0 && !has_effect(s))
            continue;
        if (s->var)
            s->var->uses = 0;
        for (int j = 0; j < 3; j++)
            count(s->x[j]);
        b->data[--kept] = s;
    }
    b->len -= kept;
    if (kept)
        memmove(b->data, b->data + kept, sizeof *b->data * (size_t)b->len);
}

static void forget(KirStmt *s, void *data)
{
    (void)data;
    if (s->var)
        s->var->uses = 0;
}

static void clean_block(KirBlock *b)
{
    kir_each(b, forget, NULL);
    drop_unread(b);
}

/* An entry may declare what the body does: each is for itself. */
void kir_clean(Kir *k)
{
    clean_block(&k->body);
    for (int i = 0; i < k->entries.len; i++)
        clean_block(&k->entries.data[i].body);
}
