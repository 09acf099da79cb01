/* kir_threads.c: the part of the verifier that follows which threads agree on a value. In comes a kernel
 * whose reads and types are right; out goes NULL, or which meeting of threads not all of them reach. A
 * value is known to be equal in all threads of the block, in those of a warp, or in none but one thread;
 * it starts at what the thread's number gives and passes through expressions, assignments and the
 * conditions that these stand under, until nothing changes any more. A barrier, or what a warp does
 * together, must stand under conditions that its threads agree on; a loop is left by a `break`, and a
 * kernel by a `return`, under such conditions too. A load gives threads that agree on its place the same:
 * what threads write to one place between two barriers is for the emulator to find. */
#include "kir.h"

typedef struct Threads {
    Kir *k;
    bool changed, last;           /* in the last walk nothing changes, and meetings are checked */
    const char *error;
    int left;                     /* where a return stood: who may be gone */
    KirStmt *loop;
} Threads;

static int most(int a, int b)
{
    return a > b ? a : b;
}

static void raise(Threads *t, int *level, int to)
{
    t->changed |= *level < to;
    *level = most(*level, to);
}

static void meet(Threads *t, int control, KirScope of, const char *what)
{
    if (!t->last || control <= (int)of || t->error)
        return;
    Buf b = { .arena = t->k->arena };
    buf_f(&b, "%s is not reached by all threads of the %s", what, of == KIR_BLOCK ? "block" : "warp");
    t->error = b.data;
}

static void walk_block(Threads *t, const KirBlock *b, int control);
static int level_of(Threads *t, const KirExpr *e, int control);

/* The device library calls it, each thread for itself. */
static void pass_on(Threads *t, KirVar *function)
{
    raise(t, &function->level, KIR_THREAD);
    for (int i = 0; i < function->body->len && function->body->data[i]->kind == KI_PARAMETER; i++)
        raise(t, &function->body->data[i]->var->level, KIR_THREAD);
}

static int level_of_call(Threads *t, const KirExpr *e, int control)
{
    int level = (int)e->function->agree;
    for (int i = 0; i < e->nargs; i++)
        if (e->args[i]->kind == KX_VAR && e->args[i]->type.space == KS_FUNCTION)
            pass_on(t, e->args[i]->var);
    for (int i = 0; i < e->nargs; i++)
        level = most(level, level_of(t, e->args[i], control));
    meet(t, control, e->function->meets, e->function->name);
    for (int i = 0; i < e->nargs; i++) {
        KirVar *array = kir_array_var(e->args[i]);
        bool whole = e->args[i]->kind == KX_VAR && !kir_is_place(e->args[i]->type);
        if (kir_writes(e->function, i) && (array || whole))
            raise(t, array ? &array->level : &e->args[i]->var->level, most(level, control));
    }
    return level;
}

/* The function goes as far as its callers agree, and its parameters are what they give. */
static int level_of_apply(Threads *t, const KirExpr *e, int control)
{
    raise(t, &e->var->level, control);
    for (int i = 0; i < e->nargs; i++)
        raise(t, &e->var->body->data[i]->var->level, level_of(t, e->args[i], control));
    return KIR_THREAD;
}

/* The number of a thread's warp: the threads of a warp follow one another. */
static bool is_warp(const KirExpr *e)
{
    return e->op == KB_DIV && e->args[0]->kind == KX_SPECIAL && e->args[0]->op == KP_THREAD &&
           e->args[1]->kind == KX_WHOLE && e->args[1]->whole % 32 == 0;
}

static int level_of(Threads *t, const KirExpr *e, int control)
{
    int level = KIR_BLOCK;
    switch (e->kind) {
    case KX_VAR: return e->var->level;
    case KX_SPECIAL:
        return e->op == KP_THREAD || e->op == KP_LANE ? KIR_THREAD : e->op == KP_WARP ? KIR_WARP : KIR_BLOCK;
    case KX_SELECT:
        level = level_of(t, e->args[0], control);
        level = most(level, level_of(t, e->args[1], most(control, level)));
        return most(level, level_of(t, e->args[2], most(control, level)));
    case KX_BINARY:
        if (is_warp(e))
            return KIR_WARP;
        level = level_of(t, e->args[0], control);
        if (e->op == KB_AND || e->op == KB_OR)
            control = most(control, level);
        return most(level, level_of(t, e->args[1], control));
    case KX_CALL: return level_of_call(t, e, control);
    case KX_APPLY: return level_of_apply(t, e, control);
    case KX_WITHIN:
        walk_block(t, e->body, control);
        return level_of(t, e->args[0], control);
    default:
        for (int i = 0; i < e->nargs; i++)
            level = most(level, level_of(t, e->args[i], control));
        return level;
    }
}

static void walk_loop(Threads *t, KirStmt *s, int control)
{
    KirStmt *outer = t->loop;
    int level = most(control, s->level);
    t->loop = s;
    if (s->kind == KI_FOR) {
        int bounds = most(level_of(t, s->x[0], level), level_of(t, s->x[2], level));
        raise(t, &s->var->level, bounds);
        level = most(level, most(bounds, level_of(t, s->x[1], level)));
    } else {
        level = most(level, level_of(t, s->x[0], level));
    }
    walk_block(t, &s->body, level);
    t->loop = outer;
}

static void walk_statement(Threads *t, KirStmt *s, int control)
{
    int level[3] = { 0 };
    bool loop = s->kind == KI_FOR || s->kind == KI_WHILE;
    bool writes_first = s->kind == KI_ASSIGN || s->kind == KI_LOAD_VECTOR;
    for (int i = writes_first; !loop && i < 3; i++)
        level[i] = s->x[i] ? level_of(t, s->x[i], control) : 0;
    const KirExpr *to = writes_first ? s->x[0] : NULL;
    while (to && to->kind == KX_LOAD && to->nargs == 2 && to->args[0]->type.space == KS_REGISTERS) {
        level[2] = most(level[2], level_of(t, to->args[1], control));
        to = to->args[0];
    }
    if (to && to->kind == KX_LOAD)
        level_of(t, to, control);
    switch (s->kind) {
    case KI_LET: case KI_VAR: raise(t, &s->var->level, level[0]); break;
    case KI_ARRAY:
        raise(t, &s->var->level, s->var->type.space == KS_FRAGMENT ? KIR_THREAD : KIR_BLOCK);
        break;
    case KI_ASSIGN: case KI_LOAD_VECTOR:
        if (to->kind == KX_VAR)
            raise(t, &to->var->level, most(control, most(level[1], level[2])));
        break;
    case KI_FOR: case KI_WHILE: walk_loop(t, s, control); break;
    case KI_IF:
        walk_block(t, &s->body, most(control, level[0]));
        walk_block(t, &s->other, most(control, level[0]));
        break;
    case KI_BREAK: case KI_CONTINUE: raise(t, &t->loop->level, control); break;
    case KI_RETURN:
        t->left = most(t->left, control);
        if (t->loop)
            raise(t, &t->loop->level, control);
        break;
    case KI_BARRIER:
        meet(t, control, (KirScope)s->op, s->op == KIR_BLOCK ? "a barrier" : "a barrier of a warp");
        break;
    case KI_MMA: meet(t, control, KIR_WARP, "a product of fragments"); break;
    case KI_FUNCTION: walk_block(t, &s->body, most(control, s->var->level)); break;
    case KI_RUN: meet(t, control, KIR_BLOCK, "the kernel"); break;
    default: break;
    }
}

static void walk_block(Threads *t, const KirBlock *b, int control)
{
    for (int i = 0; i < b->len; i++)
        walk_statement(t, b->data[i], most(control, t->left));
}

static void forget(KirStmt *s, void *data)
{
    (void)data;
    s->level = KIR_BLOCK;
    if (s->var)
        s->var->level = KIR_BLOCK;
}

static const char *verify_body(Kir *k, const KirBlock *body)
{
    Threads t = { .k = k };
    kir_each(body, forget, NULL);
    do {
        t.changed = false;
        t.left = KIR_BLOCK;
        walk_block(&t, body, KIR_BLOCK);
    } while (t.changed);
    t.last = true;
    t.left = KIR_BLOCK;
    walk_block(&t, body, KIR_BLOCK);
    return t.error;
}

const char *kir_verify_threads(Kir *k)
{
    const char *error = verify_body(k, &k->body);
    for (int i = 0; !error && i < k->entries.len; i++)
        error = verify_body(k, &k->entries.data[i].body);
    return error;
}
