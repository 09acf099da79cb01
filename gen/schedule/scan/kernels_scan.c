/* kernels_scan.c: CUDA text of schedule scan. In comes a program whose steps are one SCAN group (scan.c); out goes a
 * kernel whose threads have a unit each, one place of the axes that all states begin with, and walk all steps with its
 * states in registers. What a unit has several elements of is an array of registers, in loops that are unrolled; what
 * it sums over, a loop of its own. What a step reads and no step makes is asked for several steps ahead, what is the
 * same in all steps is read once (kernels_walk.c). */
#include <string.h>

#include "base/mutate.h"
#include "ir/marks.h"
#include "ir/ops.h"
#include "kernels/kernels.h"
#include "plan/reads.h"
#include "scan.h"

/* A loop over few elements of a unit, which is unrolled. */
typedef struct InnerLoop { IndexId index; const char *name; int64_t extent; } InnerLoop;

/* A read of a step that shared memory may hold before it is taken: its type and address, in the loops around.
 * word: it is one; wide: four neighbouring threads' words are 16 bytes at their multiple. */
typedef struct StagedRead {
    int number, loops;
    const InnerLoop *around;
    const char *type, *from;
    bool word, wide;
} StagedRead;

/* What such a kernel keeps while it is printed (Kernel.of_schedule). */
typedef struct ScanKernel {
    const ScanWalk *w;
    Vec(InnerLoop) inner;         /* loops around what is printed */
    Vec(InnerLoop) inner_names;   /* and what names they have had */
    int steps;                    /* of a chunk */
    Vec(StagedRead) staged_reads; /* what shared memory may hold of a turn */
    bool copies_wide;             /* four threads' words at once */
    int64_t staged;               /* bytes of a block's shared memory that they take; 0: reads go to
                                   * registers */
    Texts wanted;                 /* pointers to the gradients that chunks store, which may be null */
    Buf functions, function_names;/* what is computed once for all walks over a chunk, and the declarations */
    Texts function_texts;
    int function_elements;        /* of a step */
    const char *pair_index;       /* text of the last index of the first of two neighbours */
} ScanKernel;

static ScanKernel *scan(const Kernel *k)
{
    return k->of_schedule;
}

/* A thread has two neighbours of the units. */
static bool in_pairs(const Kernel *k)
{
    return scan(k)->w->pairs;
}

/* Chunks of steps that read little fit into half of an SM's registers, and one block's reads hide the other's work (HGRN
 * forward: 0.147 ms for 0.181); those of backward would spill, unless a block has half as many threads. Where states are
 * made anew beside staged reads, which hide themselves, they spill even so. */
static int resident(const Kernel *k)
{
    bool small = (in_pairs(k) && !(scan(k)->staged && scan(k)->w->replays)) || k->walk->registers <= 3;
    return scan(k)->w->chunks && small && k->p->compute == DT_F32 ? 2 : 0;
}

/* ---- a block's units and chunks ---- */

/* In pairs they follow from the sizes of the call: the kernel is a template. */
static bool is_sized(const Kernel *k)
{
    return in_pairs(k) && scan(k)->w->chunks;
}

static const char *block_units(const Kernel *k)
{
    return in_pairs(k) ? "units" : "32";
}

static const char *two_blocks(const Kernel *k)
{
    return in_pairs(k) ? "2 * units" : "64";
}

static const char *block_chunks(Kernel *k)
{
    return in_pairs(k) ? "chunks" : k_text(k, "%d", scan(k)->w->chunks);
}

/* Steps of a turn. */
static const char *turn_steps(Kernel *k)
{
    return in_pairs(k) ? "chunks * steps" : k_text(k, "%d", scan(k)->w->chunks * scan(k)->steps);
}

/* ---- a unit's elements ---- */

static bool name_is_taken(const Kernel *k, const char *name, int64_t extent)
{
    for (int i = 0; i < scan(k)->inner.len; i++)
        if (strcmp(scan(k)->inner.data[i].name, name) == 0)
            return true;
    for (int i = 0; i < scan(k)->inner_names.len; i++)
        if (strcmp(scan(k)->inner_names.data[i].name, name) == 0)
            return scan(k)->inner_names.data[i].extent != extent;
    return false;
}

/* Loops of one extent share a name where they may, so that equal reads have equal texts. */
static void open_inner(Kernel *k, Buf *out, IndexId i)
{
    const Index *index = &k->p->m->indices.data[i];
    InnerLoop l = { i, k_text(k, "n_%s", index->name), index->extent->value };
    for (int n = 2; name_is_taken(k, l.name, l.extent); n++)
        l.name = k_text(k, "n_%s_%d", index->name, n);
    vec_push(k->p->m->arena, &scan(k)->inner, l);
    vec_push(k->p->m->arena, &scan(k)->inner_names, l);
    k->index[i] = l.name;
    k->walk->meaning[i] = ix_index(k->p->m, i);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int %s = 0; %s < %d; %s++) {", l.name, l.name, (int)l.extent, l.name);
    out->indent++;
}

static void close_inner(Kernel *k, Buf *out)
{
    InnerLoop *l = &scan(k)->inner.data[--scan(k)->inner.len];
    k->index[l->index] = NULL;
    k->walk->meaning[l->index] = NULL;
    out->indent--;
    buf_line(out, "}");
}

/* Of two, that which is printed. */
static const IxExpr *unit(Kernel *k, int axis)
{
    const IxExpr *i = ix_index(k->p->m, k->walk->units[axis]);
    bool last = in_pairs(k) && axis == k->p->units->naxes - 1;
    return last ? ix_add(k->p->m, i, ix_index(k->p->m, k->p->units->pair)) : i;
}

static const char *first_unit(const Kernel *k, const char *index)
{
    return in_pairs(k) && strcmp(index, k->own[k->p->units->naxes - 1]) == 0 ? scan(k)->pair_index : index;
}

/* The two neighbours of a thread. */
static void open_pair(Kernel *k, Buf *out)
{
    InnerLoop l = { k->p->units->pair, "q", 2 };
    if (!in_pairs(k))
        return;
    vec_push(k->p->m->arena, &scan(k)->inner, l);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int q = 0; q < 2; q++) {");
    out->indent++;
}

static void close_pair(Kernel *k, Buf *out)
{
    if (!in_pairs(k))
        return;
    scan(k)->inner.len--;
    out->indent--;
    buf_line(out, "}");
}

static void open_short_axes(Kernel *k, Buf *out, NodeId array)
{
    Node a = *k_node(k, array);
    for (int i = k->p->units->naxes; i < a.naxes; i++)
        open_inner(k, out, a.axes[i]);
}

static void close_short_axes(Kernel *k, Buf *out, NodeId array)
{
    for (int i = k->p->units->naxes; i < k_node(k, array)->naxes; i++)
        close_inner(k, out);
}

static void open_elements(Kernel *k, Buf *out, NodeId array)
{
    open_short_axes(k, out, array);
    open_pair(k, out);
}

static void close_elements(Kernel *k, Buf *out, NodeId array)
{
    close_pair(k, out);
    close_short_axes(k, out, array);
}

/* Of a local with the elements of a unit: the place of an element, `inner`, where there are several. */
static const char *element(Kernel *k, const char *name, const char *inner)
{
    return k_text(k, "%s%s%s%s%s", name, inner ? "[" : "", inner ? inner : "", inner ? "]" : "", in_pairs(k) ? "[q]" : "");
}

static const char *element_read(Kernel *k, const Read *r, const char *name)
{
    return element(k, name, scan_inner(k->p, r) == 1 ? NULL
                                                     : k_bare(k, ix_text(&k->printer, scan_inner_linear(k->p, r))));
}

/* A local that holds `n` elements of each of the thread's units. */
static void declare(Kernel *k, const char *name, int64_t n, const char *value)
{
    const char *each = n > 1 ? k_text(k, "[%d]", (int)n) : "";
    buf_line(k->out, "%s %s%s%s%s;", k->real, name, each, in_pairs(k) ? "[2]" : "", value);
}

static bool is_one(const Kernel *k, int64_t elements)
{
    return elements == 1 && !in_pairs(k);
}

/* Around what is printed for element j of n, of each unit. Gives the text of the element in a local. */
static const char *open_each(Kernel *k, Buf *out, int64_t n)
{
    if (n > 1) {
        buf_line(out, "CELL_UNROLL");
        buf_line(out, "for (int j = 0; j < %d; j++) {", (int)n);
        out->indent++;
    }
    open_pair(k, out);
    return element(k, "", n > 1 ? "j" : NULL);
}

static void close_each(Kernel *k, Buf *out, int64_t n)
{
    close_pair(k, out);
    if (n > 1) {
        out->indent--;
        buf_line(out, "}");
    }
}

/* ---- two neighbours at once ---- */

static bool is_multiple(const Poly *e, int of)
{
    bool all = !e->is_const || e->value % of == 0;
    for (int i = 0; i < e->nterms; i++)
        all &= e->terms[i].coef % of == 0;
    return all;
}

/* Do units that begin at a multiple of `n` lie side by side there, n of them, and begin at such a place? */
static bool lie_together(Kernel *k, const IxExpr *e, const Poly *pitch, int n)
{
    IndexId pair = k->p->units->pair, unit = k->walk->units[k->p->units->naxes - 1];
    bool side = false;
    const Poly *last_axis = k->p->units->axes[k->p->units->naxes - 1];
    if (!is_multiple(pitch, n) || !is_multiple(e->offset, n) || !is_multiple(last_axis, n))
        return false;
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        if (t->kind != IA_INDEX && (ix_uses(t->arg, pair) || ix_uses(t->arg, unit)))
            return false;             /* neighbours are not neighbours there */
        bool own = t->kind == IA_INDEX, last = own && t->index == unit, one = t->coef->is_const && t->coef->value == 1;
        side |= own && t->index == pair && one;
        if ((own && t->index == pair) || last ? !one : !is_multiple(t->coef, n))
            return false;
    }
    return side;
}

/* An even place: then 2, or SCAN_WIDE, where so many do that begin at multiples of that. */
static int adjacent(Kernel *k, const IxExpr *place, const Poly *pitch)
{
    const IxExpr *e = in_pairs(k) ? walk_in_units(k, place) : NULL;
    return !e ? 0 : lie_together(k, e, pitch, SCAN_WIDE) ? SCAN_WIDE : lie_together(k, e, pitch, 2) ? 2 : 0;
}

/* ---- reads ---- */

/* The loops around that a read's address depends on, by name: equal texts have them in one order. */
static int loops_of(Kernel *k, const IxExpr *e, InnerLoop *out)
{
    int n = 0;
    for (int i = 0; i < scan(k)->inner.len; i++) {
        InnerLoop l = scan(k)->inner.data[i];
        int at = n;
        if (!ix_uses(e, l.index))
            continue;
        for (; at > 0 && strcmp(out[at - 1].name, l.name) > 0; at--)
            out[at] = out[at - 1];
        out[at] = l;
        n++;
    }
    return n;
}

static int64_t loops_elements(const InnerLoop *l, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= l[i].extent;
    return all;
}

static const char *loops_place(Kernel *k, const InnerLoop *l, int n)
{
    const char *at = "";
    for (int i = 0; i < n; i++)
        at = i ? k_text(k, "(%s) * %d + %s", at, (int)l[i].extent, l[i].name) : l[i].name;
    return n ? k_text(k, "[%s]", at) : "";
}

static void print_in_loops(Buf *out, const InnerLoop *l, int n, const char *statement)
{
    for (int i = 0; i < n; i++) {
        buf_line(out, "CELL_UNROLL");
        buf_line(out, "for (int %s = 0; %s < %d; %s++)", l[i].name, l[i].name, (int)l[i].extent, l[i].name);
        out->indent++;
    }
    buf_line(out, "%s;", statement);
    out->indent -= n;
}

static const char *read_once(Kernel *k, const char *s, const InnerLoop *l, int loops)
{
    bool first;
    int n = k_number(k, &k->walk->once_reads, s, &first);
    const char *place = loops_place(k, l, loops);
    if (first) {
        if (loops)
            buf_line(&k->walk->once, "%s once_%d[%d];", k->real, n, (int)loops_elements(l, loops));
        const char *to = loops ? k_text(k, "once_%d%s", n, place) : k_text(k, "const %s once_%d", k->real, n);
        print_in_loops(&k->walk->once, l, loops, k_text(k, "%s = %s", to, k_bare(k, s)));
    }
    return k_text(k, "once_%d%s", n, place);
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
               (r.is_tensor || k->pr->node[r.id].home != HOME_NONE || all_total(k, k_node(k, r.id)->args[0], seen));
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
        return !r.is_tensor && (k->pr->phase[r.id] == PHASE_DURING || any_made(k, k_node(k, r.id)->args[0], seen));
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

/* Walks over a chunk share what costs more than registers; so many of these there are. */
enum { FUNCTION_ELEMENTS = 8 };

static const char *step_function(Kernel *k, const char *s, const InnerLoop *l, int loops)
{
    bool first;
    int n = k_number(k, &scan(k)->function_texts, s, &first), elements = (int)loops_elements(l, loops);
    const char *name = k_text(k, "f_%d[u]%s", n, loops_place(k, l, loops));
    if (!first)
        return name;
    if (scan(k)->function_elements + elements > FUNCTION_ELEMENTS) {
        scan(k)->function_texts.len--;
        return NULL;
    }
    scan(k)->function_elements += elements;
    buf_line(&scan(k)->function_names, loops ? "%s f_%d[steps][%d];" : "%s f_%d[steps];", k->real, n,
             elements);
    print_in_loops(&scan(k)->functions, l, loops, k_text(k, "%s = %s", name, k_bare(k, s)));
    return name;
}

/* What is the same at all steps is computed once, where it costs more than a register: a gate's bound that is a sigmoid
 * of a param. What a step's inputs alone give, once for all walks over its chunk. NULL: it is neither, or not dear. */
static const char *once_value(Kernel *k, NodeId id)
{
    const Node n = *k_node(k, id);
    const IxExpr *place = ix_const(k->p->m, poly_const(k->p->m, 0));
    bool once = n.dep == DEP_PARAM, chunk = scan(k)->w->chunks && !(n.dep & (DEP_STATE | DEP_COTANGENT));
    InnerLoop l[64];
    if (k->away || id == k->hoisting || n.kind != N_MAP || n.type != TY_REAL || op_table[n.op].cost < 4 ||
        !(once || chunk) || !is_total(k, id) || (!once && is_made(k, id)))
        return NULL;
    for (int i = 0; i < n.naxes; i++) {
        if (!k->walk->meaning[n.axes[i]])
            return NULL;
        place = ix_add(k->p->m, place, k->walk->meaning[n.axes[i]]);
    }
    NodeId outer = k->hoisting;
    int loops = loops_of(k, place, l);
    k->hoisting = id;
    k->depth++;                       /* the step's locals are not there yet */
    bool silu = !once && n.op == OP_SILU && k->printer.fast;        /* as cell_fast_silu: it may share the sigmoid */
    const char *x = silu ? expr_text(&k->printer, n.args[0]) : NULL;
    const char *s = silu ? k_text(k, "cell_fast_sigmoid(%s)", k_bare(k, x)) : expr_text(&k->printer, id);
    k->depth--;
    k->hoisting = outer;
    const char *f = once ? read_once(k, s, l, loops) : step_function(k, s, l, loops);
    return f && silu ? k_text(k, k->printer.fuse == FUSE_WRITTEN ? "cell_mul(%s, %s)" : "(%s * %s)", x, f) : f;
}

/* The loops without that over the two neighbours. */
static int loops_of_words(const Kernel *k, InnerLoop *l, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (l[i].index != k->p->units->pair)
            l[kept++] = l[i];
    return kept;
}

/* Reads of whole words can be copied to shared memory while the steps before are walked. */
static void stage_read(Kernel *k, const AheadRead *as, int n, const InnerLoop *l, int loops)
{
    Arena *arena = k->p->m->arena;
    InnerLoop *around = arena_alloc(arena, sizeof *l * (size_t)(loops + 1));
    memcpy(around, l, sizeof *l * (size_t)loops);
    const char *from = as->offset ? k_text(k, "%s, %s", as->from, k_bare(k, as->offset)) : k_bare(k, as->from);
    StagedRead read = { .number = n, .type = as->type, .from = from, .loops = loops, .around = around };
    read.word = as->from && !as->converted && (!as->half || as->adjacent);
    read.wide = as->adjacent == SCAN_WIDE;
    vec_push(arena, &scan(k)->staged_reads, read);
}

/* Only what is certainly inside, in terms of the unit and of the loops around, is there whatever conditions stand
 * around the read. What is ahead is kept as it lies in memory: to convert it would be to wait for it. */
static const char *read_ahead(Kernel *k, const Read *r, const char *s, const AheadRead *as)
{
    InnerLoop l[64];
    const IxExpr *e = k->away ? NULL : walk_in_units(k, read_linear(k->p->m, r));
    if (!e || !k_always_inside(k, r))
        return s;
    int loops = loops_of(k, e, l);
    if (!as->timed)
        return read_once(k, s, l, loops);
    if (as->adjacent)
        loops = loops_of_words(k, l, loops);
    const char *place = loops_place(k, l, loops);
    bool first;
    int n = k_number(k, &k->walk->reads, as->text, &first);
    if (first) {
        int elements = (int)loops_elements(l, loops);
        print_in_loops(&k->walk->early, l, loops,
                       k_text(k, "ahead.r%d%s = %s", n, place, k_bare(k, as->text)));
        buf_f(&k->walk->fields, loops ? " %s r%d[%d];" : " %s r%d;", as->type, n, elements);
        k->walk->registers += elements;
        stage_read(k, as, n, l, loops);
    }
    const char *at = k_text(k, "ahead_0[u].r%d%s", n, place);
    if (as->half)
        at = k_text(k, as->adjacent ? "%s{(uint16_t)(%s >> 16 * q)}" : "%s{(uint16_t)%s}", as->half, at);
    return !as->half && strcmp(as->type, k->real) == 0 ? at : k_text(k, "cell_convert<%s>(%s)", k->real, at);
}

/* ---- values ---- */

static const char *start_of(ReduceOp r)
{
    return r == R_MAX ? "-CELL_INF" : r == R_MIN ? "CELL_INF" : r == R_PROD ? "1" : "0";
}

static const char *join(Kernel *k, ReduceOp r, const char *sum, const char *term)
{
    if (r == R_MAX || r == R_MIN)
        return k_text(k, "%s = cell_%s(%s, %s);", sum, r == R_MAX ? "max" : "min", sum, term);
    return k_text(k, "%s %s= %s;", sum, r == R_PROD ? "*" : "+", term);
}

/* to: what takes the value, declared. */
static void print_reduction(Kernel *k, Node r, const char *to)
{
    Named named = { 0 };
    for (int i = 0; i < r.nbound; i++)
        open_inner(k, k->out, r.bound[i]);
    const char *term = k_body(k, r.args[0], &named);
    buf_line(k->out, "%s", join(k, r.reduce, to, term));
    k_forget(k, &named);
    for (int i = 0; i < r.nbound; i++)
        close_inner(k, k->out);
}

/* Where a value has a place at all, whose elements of two neighbours can be stored together. */
static bool stores_two(Kernel *k, NodeId id, const Read *self)
{
    const Storage *st = &k->pr->node[id];
    const Poly *pitch = st->pitch ? st->pitch : array_elements(k->p->m, id);
    return st->home != HOME_NONE && adjacent(k, storage_linear(k->p->m, self, st), pitch);
}

static void store_elements(Kernel *k, NodeId id, const Read *self, const char *name)
{
    Buf *out = k->out;
    open_short_axes(k, &k->walk->late, id);
    const char *inner = scan_inner(k->p, self) > 1 ? ix_text(&k->printer, scan_inner_linear(k->p, self)) : NULL;
    k->two = stores_two(k, id, self) ? inner ? k_text(k, "%s[%s]", name, k_bare(k, inner)) : name : NULL;
    if (!k->two)
        open_pair(k, &k->walk->late);
    k->out = &k->walk->late;
    k_store(k, id, element_read(k, self, name));
    k->out = out;
    if (!k->two)
        close_pair(k, &k->walk->late);
    k->two = NULL;
    close_short_axes(k, &k->walk->late, id);
}

static void print_array(Kernel *k, NodeId id, Named *kept, bool stores)
{
    Read self = read_itself(k->p->m, id);
    Node body = *k_node(k, k_node(k, id)->args[0]);
    bool sums = plan_reduces(k->p, id);
    int64_t elements = scan_inner(k->p, &self);
    Named named = { 0 };
    k_bind_axes(k, id);
    k_comment(k, id);
    const char *name = k_local(k, "a", id);
    /* no loop around its declaration */
    bool one = is_one(k, elements) && k_node(k, id)->naxes == k->p->units->naxes;
    if (!one)
        declare(k, name, elements, "");
    open_elements(k, k->out, id);
    const char *to = element_read(k, &self, name), *declared = one ? k_text(k, "%s %s", k->real, to) : to;
    if (sums) {
        buf_line(k->out, "%s = %s;", declared, start_of(body.reduce));
        print_reduction(k, body, to);
    } else {
        const char *v = k_body(k, k_node(k, id)->args[0], &named);
        buf_line(k->out, "%s%s = %s;", one ? "const " : "", declared, v);
        k_forget(k, &named);
    }
    close_elements(k, k->out, id);
    k->value[id] = name;
    vec_push(k->p->m->arena, kept, id);
    if (stores && k_is_stored(k, id))
        store_elements(k, id, &self, name);
}

/* ---- sums over batch and time ---- */

/* The groups of sums that the walk leaves a row of for each sequence. */
static bool is_summed(const Kernel *k, int group)
{
    const Group *g = &k->pr->groups.data[group];
    return g->kind == G_COLUMN && g->by_rows && k->pr->groups.data[g->by_rows - 1].kind == G_UNITS;
}

static void each_sum(Kernel *k, void (*print)(Kernel *k, const Group *g, int number))
{
    for (int i = 0; i < k->pr->groups.len; i++)
        for (int j = 0; is_summed(k, i) && j < k->pr->groups.data[i].arrays.len; j++)
            print(k, &k->pr->groups.data[i], j);
}

static const char *sum_name(Kernel *k, NodeId id)
{
    return k_text(k, "sum_%d", id);
}

static int64_t array_inner(Kernel *k, NodeId id)
{
    Read self = read_itself(k->p->m, id);
    return scan_inner(k->p, &self);
}

static void declare_sum(Kernel *k, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    int64_t elements = array_inner(k, id);
    declare(k, sum_name(k, id), elements, is_one(k, elements) ? " = 0" : " = {}");
}

static void add_to_sum(Kernel *k, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    Read self = read_itself(k->p->m, id);
    Node r = *k_node(k, k_node(k, id)->args[0]);
    Named named = { 0 };
    k_bind_axes(k, id);
    k_comment(k, id);
    open_elements(k, k->out, id);
    const char *term = k_body(k, r.args[0], &named);
    buf_line(k->out, "%s += %s;", element_read(k, &self, sum_name(k, id)), term);
    k_forget(k, &named);
    close_elements(k, k->out, id);
}

/* Chunks of the same units' steps: their sums are added up in order. */
static void store_sum_of_chunks(Kernel *k, const char *partial, const char *name, int number, int64_t elements)
{
    const char *j = elements > 1 ? "j" : NULL, *units = k_poly(k, scan(k)->w->units);
    const char *own = block_units(k);
    buf_line(k->out, "cell_barrier();");
    open_pair(k, k->out);
    buf_line(k->out, "maps[chunk * %s + unit%s] = %s;", own, in_pairs(k) ? " + q" : "", element(k, name, j));
    close_pair(k, k->out);
    buf_line(k->out, "cell_barrier();");
    k_open(k, "if (cell_thread() < %s && first + cell_thread() < elements)", own);
    buf_line(k->out, "%s total = 0;", k->real);
    buf_line(k->out, "for (int v = 0; v < %s; v++)", block_chunks(k));
    buf_line(k->out, "    total += (%s)maps[v * %s + cell_thread()];", k->real, own);
    buf_line(k->out, "%s[(%d * dim_B * %s + first + cell_thread()) * %d + %s] = total;", partial, number, units,
             (int)elements, j ? j : "0");
    k_close(k);
}

static void store_sum(Kernel *k, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    int64_t elements = array_inner(k, id);
    const char *name = sum_name(k, id), *units = k_poly(k, scan(k)->w->units);
    const char *partial = k_written(k, REF_BUFFER, g->partial, k->p->compute);
    if (elements > 1) {
        buf_line(k->out, "CELL_UNROLL");
        k_open(k, "for (int j = 0; j < %d; j++)", (int)elements);
    }
    if (scan(k)->w->chunks)
        store_sum_of_chunks(k, partial, name, number, elements);
    else
        buf_line(k->out, "%s[((%d * dim_B + b) * %s + e) * %d + %s] = %s%s;", partial, number, units, (int)elements,
                 elements > 1 ? "j" : "0", name, elements > 1 ? "[j]" : "");
    if (elements > 1)
        k_close(k);
}

/* ---- states ---- */

static int state_elements(const Kernel *k, TensorId s)
{
    int64_t n = 1;
    for (int i = k->p->units->naxes; i < k->p->m->tensors.data[s].rank; i++)
        n *= k->p->m->tensors.data[s].axes[i]->value;
    return (int)n;
}

/* Where element j of unit n, counted through all sequences, lies. */
static const char *unit_place(Kernel *k, int each)
{
    const char *n = in_pairs(k) ? "(n + q)" : "n";
    return each > 1 ? k_text(k, "%s * %d + j", n, each) : k_bare(k, n);
}

/* The element at `place` of the state before the first step, or of the adjoint behind the last. */
static const char *first_value(Kernel *k, TensorId s, const char *place)
{
    const char *at, *from;
    if (!k->p->own_ends) {
        from = state_start(k, s, place, &at);
        return k_text(k, "%s[%s]", from, at);
    }
    from = k_pointer(k, k->pr->dir == FORWARD ? REF_TENSOR : REF_DFINAL, s, k->p->compute);
    return k_text(k, "%s ? %s[%s] : 0", from, from, place);
}

/* Others find the state before the first step where an initial one would be. */
static void keep_initial(Kernel *k, TensorId s, const char *place, const char *value)
{
    if (k->p->own_ends && k->pr->dir == FORWARD)
        buf_line(k->out, "%s%s[%s] = %s;", scan(k)->w->chunks ? "if (mine && chunk == 0) " : "",
                 k_written(k, REF_INITIAL, s, k->p->compute), place, value);
}

/* The state before the first step, or the adjoint behind the last. */
static void print_states(Kernel *k)
{
    Plan *p = k->p;
    for (TensorId s = 0; s < p->m->tensors.len; s++) {
        if (!tensor_steps(&p->m->tensors.data[s]))
            continue;
        int each = state_elements(k, s);
        const char *name = state_name(k, s), *place = unit_place(k, each), *from = first_value(k, s, place);
        if (is_one(k, each)) {
            buf_line(k->out, "%s %s = %s;", k->real, name, from);
            keep_initial(k, s, place, name);
            continue;
        }
        declare(k, name, each, "");
        const char *j = open_each(k, k->out, each);
        buf_line(k->out, "%s%s = %s;", name, j, from);
        keep_initial(k, s, place, k_text(k, "%s%s", name, j));
        close_each(k, k->out, each);
    }
}

/* The final states, or the adjoints of the initial ones. Where there is no step, and other kernels begin the walk,
 * these have written them. */
static void print_last_states(Kernel *k)
{
    Plan *p = k->p;
    bool forward = k->pr->dir == FORWARD, ends = p->own_ends, asked = forward || ends;
    bool chunks = scan(k)->w->chunks;
    if (chunks)
        k_open(k, "if (mine && dim_T > 0 && (dim_T - 1) / steps %% %s == chunk)", block_chunks(k));
    else if (!ends)
        k_open(k, "if (dim_T > 0)");
    for (TensorId s = 0; s < p->m->tensors.len; s++) {
        const Roots *of = &p->m->roots.data[s];
        if (!tensor_steps(&p->m->tensors.data[s]) || (forward ? of->next : of->dprev) < 0)
            continue;
        int each = state_elements(k, s);
        const char *to = k_written(k, forward ? REF_FINAL : ends ? REF_DINIT : REF_CARRY, s, p->compute);
        if (asked)
            k_open(k, "if (%s)", to);
        const char *j = open_each(k, k->out, each), *place = unit_place(k, each);
        if (!is_one(k, each))
            place = k_text(k, "(%s)", place);
        buf_line(k->out, forward || !ends ? "cell_store(%s + %s, %s%s);" : "cell_put(%s + %s, %s%s, adds);", to, place,
                 state_name(k, s), j);
        close_each(k, k->out, each);
        if (asked)
            k_close(k);
    }
    if (chunks || !ends)
        k_close(k);
}

/* ---- the whole ---- */

static Group *step_group(const Kernel *k)
{
    int i = 0;
    while (k->pr->groups.data[i].kind != G_UNITS)
        i++;
    return &k->pr->groups.data[i];
}

/* The text of a unit's indices. */
static const char *name_units(Kernel *k, const Group *g)
{
    Buf *out = k->out, names = { .arena = out->arena, .indent = out->indent + 1 };
    k->walk->units = k_node(k, g->arrays.data[0])->axes;
    k->out = &names;
    k_split_element(k, k->walk->units, k->p->units->naxes, "e", "i");
    k->out = out;
    for (int i = 0; i < k->p->units->naxes; i++)
        k->own[i] = k->index[k->walk->units[i]];
    const char **last = &k->own[k->p->units->naxes - 1];
    scan(k)->pair_index = *last;
    if (in_pairs(k))
        *last = k_text(k, "(%s + q)", *last);
    return names.data;
}

/* Everything of a step begins here. */
static void begin_step(Kernel *k, Group *g, Buf *body, int indent)
{
    Buf *out = k->out;
    *body = (Buf){ .arena = out->arena, .indent = out->indent + indent };
    k->walk->late = *body;
    k->walk->late.indent += scan(k)->w->chunks > 0;
    k->g = g;
    k->b = "b";
    k->row = "bt";
}

static void begin_reads(Kernel *k)
{
    k->walk->early = (Buf){ .arena = k->out->arena, .indent = k->out->indent + 2 };
    k->walk->fields = (Buf){ .arena = k->out->arena };
    scan(k)->functions = (Buf){ .arena = k->out->arena, .indent = k->out->indent + 4 };
    scan(k)->function_names = (Buf){ .arena = k->out->arena, .indent = k->out->indent + 3 };
    scan(k)->staged_reads.len = 0;
    scan(k)->wanted.len = 0;
    scan(k)->function_texts.len = 0;
    scan(k)->function_elements = 0;
    k->walk->reads.len = 0;
    k->walk->registers = 0;
}

/* A step, printed but for its loop. */
static PanelLoop print_group(Kernel *k, Group *g)
{
    Buf *out = k->out, body;
    PanelLoop l = { .number = 0 };
    Named kept = { 0 };
    begin_step(k, g, &body, scan(k)->w->chunks ? 5 : 4);
    k->out = &body;
    for (int i = 0; i < g->arrays.len; i++)
        print_array(k, g->arrays.data[i], &kept, true);
    each_sum(k, add_to_sum);
    k_forget(k, &kept);
    k->out = out;
    k->g = NULL;
    l.ahead = k->walk->reads.len;
    l.early = k->walk->early.data;
    l.fields = k->walk->fields.data;
    l.body = body.data;
    l.late = k->walk->late.data;
    return l;
}

static const char *split_units(Kernel *k)
{
    const char *units = k_poly(k, scan(k)->w->units);
    return k_text(k, "const int64_t b = n / %s, e = n - b * %s;", units, units);
}

static void open_units(Kernel *k, const char *indices)
{
    buf_line(k->out, "const int64_t elements = dim_B * %s;", k_poly(k, scan(k)->w->units));
    k_open(k, "for (int64_t n = cell_block_index(0) * %d + cell_thread(); n < elements; n += cell_block_count(0) * %d)",
           SCAN_THREADS, SCAN_THREADS);
    buf_line(k->out, "%s", split_units(k));
    k->b = "b";
    k_declare_sequence(k);
    buf_f(k->out, "%s", indices);
}

static const char *step_of(const Kernel *k, const char *forward, const char *backward)
{
    return k->pr->dir == FORWARD ? forward : backward;
}

/* What both kernels print first: the step itself and what it reads. */
static const char *begin_walk(Kernel *k, Group *g)
{
    k->one_step = true;
    k->t = "t";
    k->walk->once = (Buf){ .arena = k->out->arena, .indent = k->out->indent + 1 };
    k->walk->once_reads.len = scan(k)->inner.len = scan(k)->inner_names.len = 0;
    const char *indices = name_units(k, g);
    begin_reads(k);
    return indices;
}

static void print_scan_walk(Kernel *k)
{
    Group *g = step_group(k);
    const char *indices = begin_walk(k, g);
    PanelLoop l = print_group(k, g);
    int depth = walk_depth(k->walk->registers);
    k->row = NULL;
    open_units(k, indices);
    print_states(k);
    buf_f(k->out, "%s", k->walk->once.data ? k->walk->once.data : "");
    each_sum(k, declare_sum);
    walk_reads(k, &l, depth);
    k_open(k, "for (int64_t begin = 0; begin < dim_T; begin += %d)", depth);
    walk_next_reads(k, &l, depth);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int u = 0; u < %d; u++)", depth);
    k_open(k, "if (begin + u < dim_T)");
    buf_line(k->out, "const int64_t t = %s;", step_of(k, "begin + u", "dim_T - 1 - begin - u"));
    k_declare_rows(k);
    buf_f(k->out, "%s%s", l.body ? l.body : "", l.late ? l.late : "");
    k_close(k);
    k_close(k);
    walk_take_reads(k, &l, depth);
    k_close(k);
    print_last_states(k);
    each_sum(k, store_sum);
    k_close(k);
}

/* ---- chunks of time ---- */

/* A state in the step: its next value, or its adjoint before the step. */
static NodeId next_of(const Kernel *k, TensorId s)
{
    const Module *m = k->p->m;
    if (!tensor_steps(&m->tensors.data[s]))
        return -1;
    return k->pr->dir == FORWARD ? m->roots.data[s].next : m->roots.data[s].dprev;
}

/* The arrays of the step that a value is made of. An alias has no phase of its own: what it names may be of the step. */
static void mark_parts(const Kernel *k, NodeId id, bool *part)
{
    const Node *n = k_node(k, id);
    if (part[id] || (n->kind == N_ARRAY && !k->p->is_alias[id] && k->pr->phase[id] != PHASE_DURING))
        return;
    part[id] = true;
    for (int i = 0; i < n->nargs; i++)
        mark_parts(k, n->args[i], part);
}

static bool *parts_of_states(Kernel *k)
{
    bool *part = arena_alloc(k->p->m->arena, (size_t)k->p->m->nodes.len + 1);
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        if (next_of(k, s) < 0)
            continue;
        mark_parts(k, next_of(k, s), part);
        if (scan_walks(k->pr)->slope[s] >= 0)
            mark_parts(k, scan_walks(k->pr)->slope[s], part);
    }
    return part;
}

/* ---- states made anew ---- */

static bool replays(const Kernel *k)
{
    return scan(k)->w->replays;
}

static TensorId state_behind(const Kernel *k, NodeId next)
{
    const Module *m = k->p->m;
    for (TensorId s = 0; s < m->tensors.len; s++)
        if (tensor_steps(&m->tensors.data[s]) && m->roots.data[s].next == next)
            return s;
    return -1;
}

/* [u]: behind step u of the chunk, which counts backwards. */
static const char *kept_name(Kernel *k, TensorId s, const char *u)
{
    return k_text(k, "kept_%s[%s]", k->p->m->tensors.data[s].name, u);
}

static const char *held_again(Kernel *k, const Read *r)
{
    TensorId s = r->is_tensor ? r->id : state_behind(k, r->id);
    if (!replays(k) || k->away || s < 0)
        return NULL;
    return element_read(k, r, kept_name(k, s, r->is_tensor && !mutate("late-load") ? "u + 1" : "u"));
}

static const char *saves(Kernel *k, NodeId id)
{
    const ScanWalk *back = scan_walks(&k->p->program[BACKWARD])->chunks;
    bool few = scan(k)->w->chunks && back && back->replays && state_behind(k, id) >= 0;
    int every = few ? back->steps : 1, at = mutate("wrong-checkpoint") ? 0 : every - 1;
    if (every == 1)
        return "all";
    bool whole = scan(k)->steps % every == 0;
    return k_text(k, whole ? "all && u %% %d == %d" : "all && t %% %d == %d", every, at);
}

static const char *wants(Kernel *k, NodeId id, const char *p)
{
    bool first;
    if (k->pr->dir == FORWARD)
        return saves(k, id);
    if (!scan(k)->w->chunks)
        return p;
    k_number(k, &scan(k)->wanted, p, &first);
    return k_text(k, "wants%s", p + 1);
}

/* A state before its step, or the adjoint of its next value; where chunks make states anew, those too. */
static const char *held(Kernel *k, const Read *r)
{
    const Tensor *x = r->is_tensor ? &k->p->m->tensors.data[r->id] : NULL;
    if (x && x->kind == T_DNEXT)
        return element_read(k, r, state_name(k, x->of));
    if (x && k->pr->dir == FORWARD)
        return element_read(k, r, state_name(k, r->id));
    return held_again(k, r);
}

static bool carries(Kernel *k, TensorId s, const Read *r, const char *value)
{
    const char *name = element_read(k, r, state_name(k, s));
    if (k->two) {
        buf_line(&k->walk->late, "CELL_UNROLL");
        buf_line(&k->walk->late, "for (int q = 0; q < 2; q++)");
    }
    buf_line(&k->walk->late, k->two ? "    %s = %s;" : "%s = %s;", name, value);
    return true;
}

static void store(Kernel *k, NodeId id, const char *value)
{
    Buf *out = k->out;
    k->out = &k->walk->late;
    k_store_value(k, id, value);
    k->out = out;
}

/* A step's states from those before it. */
static const char *print_again(Kernel *k, Group *g)
{
    Module *m = k->p->m;
    Buf *out = k->out, body;
    Named kept = { 0 };
    bool *part = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    int taken = k->locals.taken.len, numbered = k->numbered;
    begin_step(k, g, &body, 4);
    k->out = &body;
    for (TensorId s = 0; s < m->tensors.len; s++)
        if (tensor_steps(&m->tensors.data[s]))
            mark_parts(k, k_node(k, m->roots.data[s].next)->args[0], part);
    for (int i = 0; i < g->arrays.len; i++)
        if (part[g->arrays.data[i]])
            print_array(k, g->arrays.data[i], &kept, false);
    for (TensorId s = 0; s < m->tensors.len; s++) {
        Named named = { 0 };
        NodeId next = m->roots.data[s].next;
        if (!tensor_steps(&m->tensors.data[s]))
            continue;
        Read self = read_itself(k->p->m, next);
        k_bind_axes(k, next);
        k_comment(k, next);
        open_elements(k, k->out, next);
        const char *v = k_body(k, k_node(k, next)->args[0], &named);
        buf_line(k->out, "%s = %s;", element_read(k, &self, kept_name(k, s, "u")), v);
        k_forget(k, &named);
        close_elements(k, k->out, next);
    }
    k_forget(k, &kept);
    names_cut(&k->locals, taken);
    k->numbered = numbered;
    k->out = out;
    return body.data;
}

/* The place of an element of the state before the chunk, in the shared memory that it arrives in. */
static const char *saved_place(Kernel *k, const Read *r)
{
    const char *j = scan_inner(k->p, r) == 1 ? "0" : ix_text(&k->printer, scan_inner_linear(k->p, r));
    return k_text(k, in_pairs(k) ? "(%s * 2 + q) * %d" : "%s * %d", j, scan_threads(scan(k)->w));
}

typedef enum Way { READ, COPY, TAKE } Way;    /* from memory to registers; or to shared memory first, and from there */

/* The states before the chunk, which are in memory. */
static void print_kept(Kernel *k, Way way)
{
    Module *m = k->p->m;
    k->g = step_group(k);
    k->row = "bt";
    for (TensorId s = 0; s < m->tensors.len; s++) {
        NodeId next = m->roots.data[s].next;
        const char *name = m->tensors.data[s].name;
        if (!tensor_steps(&m->tensors.data[s]))
            continue;
        Read self = read_itself(k->p->m, next);
        self.is_tensor = true;
        self.id = s;
        k_bind_axes(k, next);
        open_elements(k, k->out, next);
        const char *to = element_read(k, &self, kept_name(k, s, "steps"));
        if (way == TAKE)
            buf_line(k->out, "%s = saved_%s[%s];", to, name, k_bare(k, saved_place(k, &self)));
        else if (way == COPY)
            buf_line(k->out, "cell_copy_word(saved_%s + %s%s, %s);", name, saved_place(k, &self),
                     scan(k)->copies_wide ? " + aside" : "", k_saved_state(k, &self));
        else
            buf_line(k->out, "%s = cell_load<%s>(%s);", to, k->real, k_saved_state(k, &self));
        close_elements(k, k->out, next);
    }
    k->row = NULL;
    k->g = NULL;
}

static const char *slope_name(Kernel *k, TensorId s)
{
    return k_text(k, "r_%s", k->p->m->tensors.data[s].name);
}

/* A step of the map that a chunk is of the state before it: from 0, and what multiplies that state. */
static void print_slope(Kernel *k, TensorId s)
{
    NodeId next = next_of(k, s), slope = scan_walks(k->pr)->slope[s];
    Read self = read_itself(k->p->m, next);
    Named named = { 0 };
    k_bind_axes(k, next);
    open_elements(k, k->out, next);
    const char *times = slope < 0 ? "0" : k_body(k, slope, &named);
    const char *r = element_read(k, &self, slope_name(k, s)), *h = element_read(k, &self, state_name(k, s));
    /* A slope of 0 forgets whatever came before, infinities too, as the walk does. */
    buf_line(k->out, "{");
    k->out->indent++;
    buf_line(k->out, "const %s cell_slope = is_step ? %s : 1;", k->real, times);
    buf_line(k->out, "%s = cell_slope == 0 ? 0 : %s * cell_slope;", r, r);
    k_close(k);
    buf_line(k->out, "%s = is_step ? %s : %s;", h, element_read(k, &self, k->value[next]), h);
    k_forget(k, &named);
    close_elements(k, k->out, next);
}

/* Without a branch, so that what it computes is there for the second walk: beyond the last step it takes that again. */
static const char *print_map_step(Kernel *k, Group *g)
{
    Buf *out = k->out, body;
    Named kept = { 0 };
    const bool *part = parts_of_states(k);
    int taken = k->locals.taken.len, numbered = k->numbered;
    begin_step(k, g, &body, 4);
    k->out = &body;
    for (int i = 0; i < g->arrays.len; i++)
        if (part[g->arrays.data[i]])
            print_array(k, g->arrays.data[i], &kept, false);
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (next_of(k, s) >= 0)
            print_slope(k, s);
    k_forget(k, &kept);
    names_cut(&k->locals, taken);
    k->numbered = numbered;
    k->out = out;
    return body.data;
}

/* Elements of the states before this one: where its own begin among those of a unit. */
static int elements_before(const Kernel *k, TensorId s)
{
    int before = 0;
    for (TensorId t = 0; t < s; t++)
        before += tensor_steps(&k->p->m->tensors.data[t]) ? state_elements(k, t) : 0;
    return before;
}

/* What the first chunk begins with. */
static void print_carries(Kernel *k)
{
    const char *units = block_units(k);
    k_open(k, "if (chunk == 0)");
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        int n = next_of(k, s) < 0 ? 0 : state_elements(k, s);
        if (n == 0)
            continue;
        const char *j = open_each(k, k->out, n);
        const char *pitch = n > 1 ? k_text(k, " + j * %s", units) : "";
        buf_line(k->out, "carries[%d * %s + unit%s%s] = %s%s;", elements_before(k, s), units, pitch,
                 in_pairs(k) ? " + q" : "", state_name(k, s), j);
        close_each(k, k->out, n);
    }
    k_close(k);
}

/* The chunk's map: from a state of 0. */
static void begin_maps(Kernel *k)
{
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        int n = next_of(k, s) < 0 ? 0 : state_elements(k, s);
        if (n == 0)
            continue;
        declare(k, slope_name(k, s), n, "");
        const char *j = open_each(k, k->out, n);
        buf_line(k->out, "%s%s = 1;", slope_name(k, s), j);
        buf_line(k->out, "%s%s = 0;", state_name(k, s), j);
        close_each(k, k->out, n);
    }
}

/* Element j of a state to the chunk's map, the slope and behind the units' slopes the rest; or the state from there. */
static void print_map(Kernel *k, TensorId s, bool get)
{
    int n = state_elements(k, s), all = (int)scan_state_elements(k->p);
    const char *j = open_each(k, k->out, n), *h = state_name(k, s);
    const char *at = k_text(k, "(chunk * %d + %d%s) * %s + unit%s", all, elements_before(k, s), n > 1 ? " + j" : "",
                            two_blocks(k), in_pairs(k) ? " + q" : "");
    if (get) {
        buf_line(k->out, "%s%s = maps[%s];", h, j, at);
    } else {
        buf_line(k->out, "maps[%s] = %s%s;", at, slope_name(k, s), j);
        buf_line(k->out, "maps[%s + %s] = %s%s;", at, block_units(k), h, j);
    }
    close_each(k, k->out, n);
}

/* One thread for each element goes through the chunks' maps in order, and leaves the state before each in the slope's
 * place. A slope of 0 forgets the state, whatever it is. */
static void print_exchange(Kernel *k)
{
    int all = (int)scan_state_elements(k->p);
    const char *units = block_units(k);
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (next_of(k, s) >= 0)
            print_map(k, s, false);
    buf_line(k->out, mutate("missing-barrier") ? "" : "cell_barrier();");
    const char *elements = !in_pairs(k) ? k_text(k, "%d", 32 * all) : all > 1 ? k_text(k, "units * %d", all) : units;
    k_open(k, "for (int i = cell_thread(); i < %s; i += %d)", elements, scan_threads(scan(k)->w));
    buf_line(k->out, "%s state = carries[i];", k->real);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int v = 0; v < %s; v++)", block_chunks(k));
    buf_line(k->out, "const int at = (v * %d + i / %s) * %s + i %% %s;", all, units, two_blocks(k), units);
    buf_line(k->out, "const %s slope = maps[at], rest = maps[at + %s];", k->real, units);
    buf_line(k->out, "maps[at] = state;");
    buf_line(k->out, "state = slope == 0 ? rest : slope * state + rest;");
    k_close(k);
    buf_line(k->out, "carries[i] = state;");
    k_close(k);
    buf_line(k->out, "cell_barrier();");
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (next_of(k, s) >= 0)
            print_map(k, s, true);
}

/* The step of place `from + u` in the order of the walk; full: all chunks of the turn are whole. Where states are made
 * anew, the chunks of both directions are the same, and the first one may begin behind the last step. */
static const char *step_at(Kernel *k, bool full)
{
    if (!replays(k))
        return full ? step_of(k, "from + u", "dim_T - 1 - from - u") : walk_step_or_last(k, "from + u");
    return full ? "last - from - u" : "cell_nearest(last - from - u, dim_T)";
}

/* Where they are, no step is tested, and addresses are so far apart as is known. */
static void open_steps(Kernel *k, const char *loop, bool full)
{
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "%s", loop);
    buf_line(k->out, "[[maybe_unused]] const int64_t t = %s;", step_at(k, full));
    k_declare_rows(k);
}

static void declare_kept(Kernel *k)
{
    Module *m = k->p->m;
    for (TensorId s = 0; s < m->tensors.len; s++)
        if (tensor_steps(&m->tensors.data[s]))
            declare(k, kept_name(k, s, "steps + 1"), state_elements(k, s), "");
}

static void print_saved(Kernel *k, Way way, bool full)
{
    buf_line(k->out, "{");
    k->out->indent++;
    buf_line(k->out, "constexpr int u = steps - 1;");
    buf_line(k->out, "const int64_t t = %s;", step_at(k, full));
    k_declare_rows(k);
    print_kept(k, way);
    k_close(k);
}

static void print_replay(Kernel *k, const char *again, bool full)
{
    if (!scan(k)->staged) {
        declare_kept(k);
        print_saved(k, READ, full);
    }
    open_steps(k, "for (int u = steps - 1; u >= 0; u--)", full);
    buf_f(k->out, "%s", again);
    k_close(k);
}

static const char each[] = "for (int u = 0; u < steps; u++)";
static const char fours[] = "for (int four = 0, u = cell_lane() / 8; four < steps; four += 4, u += 4)";

/* ---- reads through shared memory ---- */

/* More would leave a block alone on an SM of most devices. */
enum { STAGED_BYTES = 64 << 10 };

static int64_t saved_bytes(Kernel *k)
{
    int64_t all = replays(k) ? scan_state_elements(k->p) : 0;
    return all * (in_pairs(k) ? 2 : 1) * (k->p->compute == DT_F64 ? 8 : 4);
}

static int word_bytes(const StagedRead *r)
{
    return strcmp(r->type, "double") == 0 ? 8 : 4;
}

/* What a turn reads is asked for while the turn before is walked, where it is words and there is room. The threads of a
 * warp share their copies where the words of four lie side by side. */
static void decide_staging(Kernel *k, const PanelLoop *l, int depth)
{
    int64_t real = k->p->compute == DT_F64 ? 8 : 4, staged = scan_threads(scan(k)->w) * saved_bytes(k);
    bool words = l->ahead;
    scan(k)->copies_wide = depth % 4 == 0;
    for (int i = 0; i < scan(k)->staged_reads.len; i++) {
        words &= scan(k)->staged_reads.data[i].word;
        scan(k)->copies_wide &= scan(k)->staged_reads.data[i].wide;
    }
    for (int i = 0; i < scan(k)->staged_reads.len; i++) {
        const StagedRead *r = &scan(k)->staged_reads.data[i];
        staged += loops_elements(r->around, r->loops) * word_bytes(r) * scan_threads(scan(k)->w) * depth;
    }
    bool room = staged + scan_shared(k->p, scan(k)->w) * real <= STAGED_BYTES;
    scan(k)->staged = words && room ? staged : 0;
    scan(k)->copies_wide &= scan(k)->staged > 0;
}

static void print_words(Kernel *k)
{
    Module *m = k->p->m;
    int each = scan_threads(scan(k)->w) * (in_pairs(k) ? 2 : 1);
    if (!scan(k)->staged)
        return;
    for (int i = 0; i < scan(k)->staged_reads.len; i++) {
        const StagedRead *r = &scan(k)->staged_reads.data[i];
        buf_line(k->out, "cell_smem<%s> words_%d = cell_carve<%s>(cursor, steps * %d) + cell_thread();", r->type, r->number,
                 r->type, (int)loops_elements(r->around, r->loops) * scan_threads(scan(k)->w));
    }
    for (TensorId s = 0; replays(k) && s < m->tensors.len; s++)
        if (tensor_steps(&m->tensors.data[s]))
            buf_line(k->out, "cell_smem<%s> saved_%s = cell_carve<%s>(cursor, %d) + cell_thread();", k->real,
                     m->tensors.data[s].name, k->real, each * state_elements(k, s));
}

/* Where the thread's word of a step is among those of a read. */
static const char *word_place(Kernel *k, const StagedRead *r)
{
    const char *place = loops_place(k, r->around, r->loops);
    return r->loops ? k_text(k, "(u * %d + %.*s) * %d", (int)loops_elements(r->around, r->loops), (int)strlen(place) - 2,
                             place + 1, scan_threads(scan(k)->w))
                    : k_text(k, "u * %d", scan_threads(scan(k)->w));
}

static const char *whole_turn(Kernel *k)
{
    return k_text(k, replays(k) ? "begin + %s <= dim_T && (begin > 0 || dim_T %% steps == 0)" : "begin + %s <= dim_T",
                  turn_steps(k));
}

static void print_copies(Kernel *k, bool full)
{
    if (replays(k))
        print_saved(k, COPY, full);
    open_steps(k, scan(k)->copies_wide ? fours : each, full);
    for (int i = 0; i < scan(k)->staged_reads.len; i++) {
        const StagedRead *r = &scan(k)->staged_reads.data[i];
        const char *copy = scan(k)->copies_wide ? "cell_copy_four(words_%d + %s + aside, %s)"
                                                : "cell_copy_word(words_%d + %s, %s)";
        print_in_loops(k->out, r->around, r->loops, k_text(k, copy, r->number, word_place(k, r), r->from));
    }
    k_close(k);
}

/* The units and the chunk of two neighbours: of a thread, or of those whose words it copies. */
static void print_pair(Kernel *k, const char *place)
{
    buf_line(k->out, "const int unit = %s * 2 %% units, chunk = %s * 2 / units;", place, place);
}

/* Where they are in memory. Beyond the last unit there is another, as words lie. */
static void print_place(Kernel *k, const char *mine, const char *indices)
{
    buf_line(k->out, "const int64_t n = %s ? first + unit : elements - %s;", mine,
             scan(k)->copies_wide ? k_text(k, "%d + unit %% %d", SCAN_WIDE, SCAN_WIDE)
             : in_pairs(k)        ? "2"
                                  : "1");
    buf_line(k->out, "%s", split_units(k));
    for (const char *end; (end = strchr(indices, '\n')); indices = end + 1) {
        indices += strspn(indices, " ");
        buf_line(k->out, "%.*s", (int)(end - indices), indices);
    }
}

static void declare_copies(Kernel *k, const PanelLoop *l, const char *indices)
{
    buf_line(k->out, "struct reads_0 {%s };", l->fields);
    k_open(k, "const auto copy_turn = [&](int64_t begin)");
    if (scan(k)->copies_wide) {
        buf_line(k->out, "const int place = cell_place_in_fours(), aside = place - cell_thread();");
        print_pair(k, "place");
        print_place(k, "first + unit < elements", indices);
    }
    buf_line(k->out, "const int64_t from = begin + chunk * steps;");
    k_open(k, "if (%s)", whole_turn(k));
    print_copies(k, true);
    k->out->indent--;
    k_open(k, "} else if (begin < dim_T)");
    print_copies(k, false);
    k_close(k);
    buf_line(k->out, "cell_cp_async_commit();");
    k->out->indent--;
    buf_line(k->out, "};");
    buf_line(k->out, "copy_turn(0);");
}

/* This turn's reads have come; the next one's go to the same places. */
static void take_words(Kernel *k)
{
    buf_line(k->out, "reads_0 ahead_0[steps];");
    if (replays(k))
        declare_kept(k);
    buf_line(k->out, mutate("early-read") ? "" : "cell_cp_async_wait<0>();");
    if (scan(k)->copies_wide)
        buf_line(k->out, mutate("lone-wait") ? "" : "cell_warp_barrier();");
    if (replays(k))
        print_kept(k, TAKE);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "%s", each);
    for (int i = 0; i < scan(k)->staged_reads.len; i++) {
        const StagedRead *r = &scan(k)->staged_reads.data[i];
        const char *element = loops_place(k, r->around, r->loops);
        print_in_loops(k->out, r->around, r->loops,
                       k_text(k, "ahead_0[u].r%d%s = words_%d[%s]", r->number, element, r->number, word_place(k, r)));
    }
    k_close(k);
    if (scan(k)->copies_wide)
        buf_line(k->out, mutate("early-copy") ? "" : "cell_warp_barrier();");
    buf_line(k->out, "copy_turn(begin + %s);", turn_steps(k));
}

/* ---- turns ---- */

/* What a call mostly wants is stored without tests: all gradients, of all units of the block, and not added up. */
static void declare_plain(Kernel *k)
{
    const char *plain = k_text(k, "first + %s <= elements", block_units(k));
    for (int i = 0; i < scan(k)->wanted.len; i++) {
        const char *name = scan(k)->wanted.data[i] + 1;
        buf_line(k->out, "const bool wants%s = p%s != nullptr;", name, name);
        plain = k_text(k, i ? "%s && wants%s" : "%s && !adds && wants%s", plain, name);
    }
    buf_line(k->out, "const bool plain = %s;", plain);
}

static void assume_plain(Kernel *k)
{
    buf_line(k->out, "[[maybe_unused]] constexpr bool mine = true;");
    if (scan(k)->wanted.len)
        buf_line(k->out, "[[maybe_unused]] constexpr bool adds = false;");
    for (int i = 0; i < scan(k)->wanted.len; i++)
        buf_line(k->out, "constexpr bool wants%s = true;", scan(k)->wanted.data[i] + 1);
}

/* Lines that were printed for a place further in. */
static void print_lines(Kernel *k, const char *text, int less)
{
    for (const char *end; (end = strchr(text, '\n')); text = end + 1)
        buf_f(k->out, "%.*s\n", (int)(end - text) - less, text + less);
}

/* From staged reads they are the same in all turns. */
static void print_functions(Kernel *k, bool full)
{
    int less = scan(k)->staged ? 4 : 0;
    if (scan(k)->function_texts.len == 0)
        return;
    print_lines(k, scan(k)->function_names.data, less);
    open_steps(k, each, full);
    print_lines(k, scan(k)->functions.data, less);
    k_close(k);
}

static void print_turn(Kernel *k, const PanelLoop *l, const char *map, const char *again, bool full)
{
    const char *is_step = full         ? "[[maybe_unused]] constexpr bool is_step = true;"
                          : replays(k) ? "[[maybe_unused]] const bool is_step = cell_inside(last - from - u, dim_T);"
                                       : "[[maybe_unused]] const bool is_step = from + u < dim_T;";
    if (full)
        assume_plain(k);
    if (l->ahead && !scan(k)->staged) {
        buf_line(k->out, "reads_0 ahead_0[steps];");
        buf_line(k->out, "CELL_UNROLL");
        buf_line(k->out, "%s", each);
        buf_line(k->out, "    read_0(%s, ahead_0[u]);", step_at(k, full));
    }
    if (!scan(k)->staged)
        print_functions(k, full);
    if (replays(k))
        print_replay(k, again, full);
    begin_maps(k);
    open_steps(k, each, full);
    buf_line(k->out, "%s", is_step);
    buf_f(k->out, "%s", map ? map : "");
    k_close(k);
    print_exchange(k);
    open_steps(k, each, full);
    buf_line(k->out, "%s", is_step);
    k_open(k, "if (is_step)");
    buf_f(k->out, "%s", l->body ? l->body : "");
    buf_line(k->out, "if (mine) {");
    buf_f(k->out, "%s", l->late ? l->late : "");
    buf_line(k->out, "}");
    k_close(k);
    k_close(k);
}

/* A chunk of the steps to each warp of a block of 32 units. Blocks of 64 read and write whole lines, and walk half as many
 * chunks: a warp has one, or of 32 units two. */
static void print_units(Kernel *k)
{
    if (!in_pairs(k)) {
        buf_line(k->out, "const int unit = cell_thread() %% 32, chunk = cell_thread() / 32;");
        return;
    }
    buf_line(k->out, "constexpr int chunks = %d / units;", 2 * scan_threads(scan(k)->w));
}

/* Where units are few, more blocks of fewer. */
static void print_forms(Kernel *k, Buf *out, const char *name)
{
    buf_line(out, "if (dim_B * %s < %d)", k_poly(k, scan(k)->w->units), BLOCK_UNITS);
    buf_line(out, "    %s_by<32>(args);", name);
    buf_line(out, "else");
    buf_line(out, "    %s_by<64>(args);", name);
}

static void open_chunks(Kernel *k, const PanelLoop *l, const char *indices)
{
    const ScanWalk *w = scan(k)->w;
    const char *units = block_units(k);
    int all = (int)scan_state_elements(k->p);
    buf_line(k->out, "const int64_t elements = dim_B * %s;", k_poly(k, w->units));
    print_units(k);
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "cell_smem<%s> maps = cell_carve<%s>(cursor, %d);", k->real, k->real, w->chunks * all * 64);
    buf_line(k->out, "cell_smem<%s> carries = cell_carve<%s>(cursor, %d);", k->real, k->real, all * (w->pairs ? 64 : 32));
    print_words(k);
    k_open(k, "for (int64_t first = cell_block_index(0) * %s; first < elements; first += cell_block_count(0) * %s)",
           units, units);
    if (scan(k)->copies_wide)
        declare_copies(k, l, indices);
    declare_plain(k);
    if (w->pairs)
        print_pair(k, "cell_thread()");
    buf_line(k->out, "const bool mine = first + unit < elements;");
    print_place(k, "mine", indices);
    if (scan(k)->staged && !scan(k)->copies_wide)
        declare_copies(k, l, indices);
}

static void print_scan_chunks(Kernel *k)
{
    Group *g = step_group(k);
    /* The walk is there twice: for calls that want all gradients, and for others. */
    k->printer.fuse = k->pr->dir == BACKWARD ? FUSE_WRITTEN : FUSE_FREELY;
    const char *indices = begin_walk(k, g), *again = replays(k) ? print_again(k, g) : NULL, *map = print_map_step(k, g);
    PanelLoop l = print_group(k, g);
    k->printer.fuse = FUSE_FREELY;
    int depth = walk_depth(k->walk->registers);
    decide_staging(k, &l, depth);
    scan(k)->steps = depth;             /* what saves the states asks for it when the kernel is printed
                                         * again */
    k->row = NULL;
    buf_line(k->out, "constexpr int steps = %d;", depth);
    if (replays(k))
        buf_line(k->out, "const int64_t last = (dim_T + steps - 1) / steps * steps - 1;");
    open_chunks(k, &l, indices);
    print_states(k);
    print_carries(k);
    buf_f(k->out, "%s", k->walk->once.data ? k->walk->once.data : "");
    each_sum(k, declare_sum);
    if (!scan(k)->staged)
        walk_declare_reads(k, &l);
    k_open(k, "for (int64_t begin = 0; begin < dim_T; begin += %s)", turn_steps(k));
    buf_line(k->out, "const int64_t from = begin + chunk * steps;");
    if (scan(k)->staged) {
        take_words(k);
        print_functions(k, false);
    }
    k_open(k, "if (plain && %s)", whole_turn(k));
    print_turn(k, &l, map, again, true);
    k->out->indent--;
    buf_line(k->out, "} else {");
    k->out->indent++;
    print_turn(k, &l, map, again, false);
    k_close(k);
    k_close(k);
    print_last_states(k);
    each_sum(k, store_sum);
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}

void scan_print(Plan *p, Program *pr, ScanWalk *w, Buf *out)
{
    KernelHooks hooks = {
        .all_steps = true, .names_places = true, .resident = resident, .print_forms = print_forms,
        .unit = unit, .first_unit = first_unit, .adjacent = adjacent, .held = held, .element = element_read,
        .ahead = read_ahead,
        .once = once_value, .carries = carries, .store = store, .wants = wants,
    };
    Kernel k = kernel_new(p, pr, NULL, &w->refs, out);
    ScanKernel own = { .w = w };
    UnitWalk walk;
    walk_begin(&k, &walk);
    k.of_schedule = &own;
    k.hooks = &hooks;
    k.threads = scan_threads(w);
    if (is_sized(&k))
        hooks.form = "int units";
    k_print(&k, w->kernel, w->chunks ? print_scan_chunks : print_scan_walk);
    w->steps = own.steps;
    w->staged = own.staged;
    walk_end(&k);
    kernel_release(&k);
}
