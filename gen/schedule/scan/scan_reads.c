/* scan_reads.c: what stands in front of the steps of a walk over units. In come reads and values of a
 * step; out go the locals that have them, and blocks that fill these: reads that are under way several
 * steps ahead, as they lie in memory (to convert them would be to wait for them), what is the same in all
 * steps, and what is dear and only of a step's inputs, computed once for all walks over a chunk. */
#include <string.h>

#include "ir/marks.h"
#include "ir/ops.h"
#include "plan/reads.h"
#include "scan_kernel.h"

static EarlyValue *find(EarlyValues *values, const KirExpr *value)
{
    for (int i = 0; i < values->len; i++)
        if (kir_equal(values->data[i].value, value))
            return &values->data[i];
    return NULL;
}

static EarlyValue *add(ScanKernel *s, EarlyValues *values, EarlyValue v)
{
    vec_push(s->kir->arena, values, v);
    return &values->data[values->len - 1];
}

const KirExpr *scan_of_step(ScanKernel *s, const EarlyValue *v, const KirExpr *place)
{
    const KirExpr *own = kir_element(s->kir, kir_var(s->kir, v->local), kir_var(s->kir, s->u));
    const KirExpr *before = code_int(s->x, v->before);
    return v->local->rows ? kir_element(s->kir, own, place ? code_add(s->x, before, place) : before) : own;
}

/* In the block, in these loops. */
static void assign(ScanKernel *s, KirBlock *block, const InnerLoop *l, int loops, const KirExpr *to,
                   const KirExpr *value)
{
    KirBlock *outer = kir_enter(s->kir, block);
    scan_open_loops(s, l, loops);
    kir_assign(s->kir, to, value);
    scan_close_loops(s, loops);
    kir_enter(s->kir, outer);
}

static const KirExpr *read_once(ScanKernel *s, const KirExpr *value, const InnerLoop *l, int loops)
{
    EarlyValue *v = find(&s->once_values, value);
    const KirExpr *place = scan_loops_place(s, l, loops);
    if (v)
        return loops ? kir_element(s->kir, kir_var(s->kir, v->local), place) : kir_var(s->kir, v->local);
    const char *name = k_text(s->k, "once_%d", s->once_values.len);
    KirScalar real = code_real(s->x);
    EarlyValue own = { .value = value, .elements = scan_loops_elements(l, loops) };
    KirBlock *outer = kir_enter(s->kir, &s->once);
    if (!loops) {
        own.local = kir_let(s->kir, name, real, value)->var;
    } else {
        own.local = scan_registers(s, name, real);
        scan_declare_registers(s, own.local, own.elements);
    }
    kir_enter(s->kir, outer);
    v = add(s, &s->once_values, own);
    if (!loops)
        return kir_var(s->kir, v->local);
    const KirExpr *to = kir_element(s->kir, kir_var(s->kir, v->local), place);
    assign(s, &s->once, l, loops, to, value);
    return to;
}

/* May it be computed whatever conditions stand around it? */
static bool all_total(Kernel *k, NodeId id, Marks *seen)
{
    const Node n = *k_node(k, id);
    Read r;
    if (!marks_first(seen, id))
        return true;
    if (n.kind != N_MAP && plan_resolve(k->p, id, &r))
        return !r.step && k_always_inside(k, &r) &&
               (r.is_tensor || k->pr->node[r.id].home != HOME_NONE ||
                all_total(k, k_node(k, r.id)->args[0], seen));
    if (n.kind == N_REDUCE || n.op == OP_SELECT)
        return false;
    for (int i = 0; i < n.nargs; i++)
        if (!all_total(k, n.args[i], seen))
            return false;
    return true;
}

static bool is_total(Kernel *k, NodeId id)
{
    Marks *seen = marks_begin(k->p->m);
    bool total = all_total(k, id, seen);
    marks_end(seen);
    return total;
}

/* Does it read what a step makes? */
static bool any_made(Kernel *k, NodeId id, Marks *seen)
{
    const Node n = *k_node(k, id);
    Read r;
    if (!marks_first(seen, id))
        return false;
    if (n.kind != N_MAP && plan_resolve(k->p, id, &r))
        return !r.is_tensor &&
               (k->pr->phase[r.id] == PHASE_DURING || any_made(k, k_node(k, r.id)->args[0], seen));
    for (int i = 0; i < n.nargs; i++)
        if (any_made(k, n.args[i], seen))
            return true;
    return false;
}

static bool is_made(Kernel *k, NodeId id)
{
    Marks *seen = marks_begin(k->p->m);
    bool made = any_made(k, id, seen);
    marks_end(seen);
    return made;
}

/* Walks over a chunk share what costs more than registers; the number of these. */
enum { FUNCTION_ELEMENTS = 8 };

static const KirExpr *step_function(ScanKernel *s, const KirExpr *value, const InnerLoop *l, int loops)
{
    EarlyValue *v = find(&s->function_values, value);
    const KirExpr *place = scan_loops_place(s, l, loops);
    if (v)
        return scan_of_step(s, v, place);
    EarlyValue own = { .value = value, .elements = scan_loops_elements(l, loops) };
    if (s->function_elements + own.elements > FUNCTION_ELEMENTS)
        return NULL;
    s->function_elements += (int)own.elements;
    own.local = (loops ? scan_registers_of_steps
                       : scan_registers)(s, k_text(s->k, "f_%d", s->function_values.len), code_real(s->x));
    v = add(s, &s->function_values, own);
    const KirExpr *to = scan_of_step(s, v, place);
    assign(s, &s->functions, l, loops, to, value);
    return to;
}

/* What is the same at all steps is computed once, where it costs more than a register: a gate's bound that
 * is a sigmoid of a param. What a step's inputs alone give, once for all walks over its chunk. NULL: it is
 * neither, or not dear. */
const KirExpr *scan_once(Code *x, NodeId id)
{
    ScanKernel *s = x->of_schedule;
    Kernel *k = s->k;
    const Node n = *k_node(k, id);
    const IxExpr *place = ix_const(k->p->m, poly_const(k->p->m, 0));
    bool once = n.dep == DEP_PARAM, chunk = s->w->chunks && !(n.dep & (DEP_STATE | DEP_COTANGENT));
    InnerLoop l[64];
    if (x->away || id == x->hoisting || n.kind != N_MAP || n.type != TY_REAL || op_table[n.op].cost < 4 ||
        !(once || chunk) || !is_total(k, id) || (!once && is_made(k, id)))
        return NULL;
    for (int i = 0; i < n.naxes; i++) {
        if (!k->walk->meaning[n.axes[i]])
            return NULL;
        place = ix_add(k->p->m, place, k->walk->meaning[n.axes[i]]);
    }
    NodeId outer = x->hoisting;
    int loops = scan_loops_of(s, place, l);
    x->hoisting = id;
    x->depth++; /* the step's locals are not there yet */
    bool silu = !once && n.op == OP_SILU && x->printer.fast; /* as cell_fast_silu: it may share the sigmoid */
    const KirExpr *of = silu ? expr_node(&x->printer, n.args[0]) : NULL;
    const KirExpr *v =
        silu ? kir_op(s->kir, OP_SIGMOID, code_real(x), true, &of, 1) : expr_node(&x->printer, id);
    x->depth--;
    x->hoisting = outer;
    const KirExpr *f = once ? read_once(s, v, l, loops) : step_function(s, v, l, loops);
    if (!f || !silu)
        return f;
    return x->printer.fuse == FUSE_WRITTEN ? kir_call2(s->kir, "cell_mul", of, f) : code_mul(x, of, f);
}

/* The loops without that over the two neighbours. */
static int loops_of_words(const ScanKernel *s, InnerLoop *l, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (l[i].index != s->k->p->units->pair)
            l[kept++] = l[i];
    return kept;
}

/* Reads of whole words can be copied to shared memory while the steps before are walked. */
static void stage_read(ScanKernel *s, const CodeAhead *as, const InnerLoop *l, int loops)
{
    Arena *arena = s->kir->arena;
    InnerLoop *around = arena_alloc(arena, sizeof *l * (size_t)(loops + 1));
    memcpy(around, l, sizeof *l * (size_t)loops);
    StagedRead read = { .number = s->reads.len - 1,
                        .type = as->word->type.of,
                        .from = as->from,
                        .offset = as->offset,
                        .loops = loops,
                        .around = around };
    read.word = as->from && !as->converted && (!as->half || as->adjacent);
    read.wide = as->adjacent == SCAN_WIDE;
    vec_push(arena, &s->staged_reads, read);
}

/* A place for it among those of its type. */
static void place_read(ScanKernel *s, EarlyValue *v)
{
    KirScalar type = v->value->type.of;
    AheadArray *a = &s->ahead[type];
    if (!a->local) {
        a->local = scan_registers_of_steps(s, k_text(s->k, "ahead_%s", kir_scalar_words[type]), type);
        a->next = scan_registers_of_steps(s, k_text(s->k, "next_%s", kir_scalar_words[type]), type);
    }
    v->local = a->local;
    v->before = a->elements;
    a->elements += v->elements;
}

void scan_declare_reads(ScanKernel *s, bool next)
{
    for (int i = 0; i < KT_COUNT; i++)
        if (s->ahead[i].local)
            scan_declare_of_steps(s, next ? s->ahead[i].next : s->ahead[i].local, s->ahead[i].elements);
}

/* Only what is certainly inside, in terms of the unit and of the loops around, is there whatever
 * conditions stand around the read. */
const KirExpr *scan_ahead(Code *x, const Read *r, const KirExpr *load, const CodeAhead *as)
{
    ScanKernel *s = x->of_schedule;
    InnerLoop l[64];
    const IxExpr *e = x->away ? NULL : walk_in_units(s->k, read_linear(s->k->p->m, r));
    if (!e || !k_always_inside(s->k, r))
        return load;
    int loops = scan_loops_of(s, e, l);
    if (!as->timed)
        return read_once(s, load, l, loops);
    if (as->adjacent)
        loops = loops_of_words(s, l, loops);
    const KirExpr *place = scan_loops_place(s, l, loops);
    EarlyValue *v = find(&s->reads, as->word);
    if (!v) {
        EarlyValue own = { .value = as->word, .elements = scan_loops_elements(l, loops) };
        place_read(s, &own);
        v = add(s, &s->reads, own);
        assign(s, &s->early, l, loops, scan_of_step(s, v, place), as->word);
        s->registers += own.elements;
        stage_read(s, as, l, loops);
    }
    const KirExpr *at = scan_of_step(s, v, place);
    const KirTemplate half = { .type = as->half };
    if (as->half)
        at = kir_call(s->kir, as->adjacent ? "cell_from_two" : "cell_from_bits", &half, 1,
                      (const KirExpr *[]){ at, kir_var(s->kir, s->q) }, as->adjacent ? 2 : 1);
    return at->type.of == code_real(x) ? at : kir_convert(s->kir, kir_value(code_real(x)), at);
}
