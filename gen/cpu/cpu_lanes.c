/* cpu_lanes.c: loops over neighbours without conditions on the call. In comes a loop whose turns depend
 * on no other, as it was built; out goes the same with stores that are not always wanted (a pointer that
 * the caller may leave out, the last step only) made always: where they are not wanted, to scratch
 * memory. Which it is, is chosen in front of the loop. A compiler makes vectors of such a loop on any
 * machine, and of one with conditions at most where stores have masks. */
#include "cpu.h"

typedef struct Inside {
    const KirVar *vars[256];
    int n;
    bool full;
} Inside;

static void note(KirStmt *s, void *data)
{
    Inside *in = data;
    if (!s->var)
        return;
    in->full |= in->n == 256;
    if (!in->full)
        in->vars[in->n++] = s->var;
}

/* Does the value depend on what is declared in the loop, or on memory? */
static bool varies(const Inside *in, const KirExpr *e)
{
    if (e->kind == KX_LOAD || e->kind == KX_WITHIN || e->kind == KX_CALL)
        return true;
    for (int i = 0; e->kind == KX_VAR && i < in->n; i++)
        if (in->vars[i] == e->var)
            return true;
    for (int i = 0; i < e->nargs; i++)
        if (varies(in, e->args[i]))
            return true;
    return false;
}

/* The place without the loop's variable, which is a summand of it; NULL: it is not, or not the only one
 * that varies. */
static const KirExpr *without(Code *x, const Inside *in, const KirExpr *place, const KirExpr *var)
{
    if (place->kind != KX_BINARY || place->op != KB_ADD)
        return NULL;
    const KirExpr *a = place->args[0], *b = place->args[1];
    if (b->kind == KX_VAR && b->var == var->var)
        return varies(in, a) ? NULL : a;
    if (a->kind == KX_VAR && a->var == var->var)
        return varies(in, b) ? NULL : b;
    bool left = varies(in, a), right = varies(in, b);
    const KirExpr *rest = left && !right   ? without(x, in, a, var)
                          : right && !left ? without(x, in, b, var)
                                           : NULL;
    return !rest ? NULL : left ? code_add(x, rest, b) : code_add(x, a, rest);
}

/* A store at the variable's place under a condition that is the same for the whole loop; but none that
 * adds. */
static const KirExpr *base_of(Code *x, const Inside *in, const KirStmt *s, const KirExpr *var)
{
    bool one = s->kind == KI_IF && s->body.len == 1 && !s->other.len && s->body.data[0]->kind == KI_STORE;
    if (!one || varies(in, s->x[0]) || s->body.data[0]->x[2])
        return NULL;
    return without(x, in, s->body.data[0]->x[0], var);
}

bool cpu_close_lanes(Code *x, KirOpen open, const KirExpr *var)
{
    Kir *k = x->kir;
    KirStmt *loop = open.statement;
    Inside in = { .vars = { var->var }, .n = 1 };
    bool any = false;
    kir_each(&loop->body, note, &in);
    kir_close(k, open);
    if (in.full)
        return false;
    KirBlock *block = k->at;
    block->len--; /* what is chosen stands in front of the loop */
    for (int i = 0; i < loop->body.len; i++) {
        KirStmt *s = loop->body.data[i];
        const KirExpr *base = base_of(x, &in, s, var);
        if (!base)
            continue;
        const KirStmt *store = s->body.data[0];
        KirType type = kir_global(base->type.of, true);
        const KirExpr *none = kir_convert(k, type, kir_special(k, KP_SCRATCH, 0));
        const KirExpr *to =
            kir_let_as(k, names_fresh(&x->k->locals, "to"), type, kir_select(k, s->x[0], base, none));
        *s = *store;
        s->x[0] = code_add(x, to, var);
        any = true;
    }
    vec_push(k->arena, block, loop);
    return any;
}
