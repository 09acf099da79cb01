/* tile.c: schedule `tile`: one kernel per direction that walks all steps with the states on chip. In comes
 * a planned Walk (what lies in memory, what must be written at each step); out go the kernel's text, its
 * pointers, threads, shared memory and checkpoint interval, or the reason why the cell cannot be walked so.
 * One block, or a cluster whose blocks share the rows, takes one (batch element, parallel index) at a time.
 * Forward (tile_forward.c) keeps a checkpoint every K steps; backward (tile_backward.c) takes the segments from the last
 * to the first, replays each one once from its checkpoint into shared memory (without an exchange where its reductions
 * were saved), and walks it back. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan/hints.h"
#include "plan/split_sums.h"
#include "templates/tile.h"
#include "tile_kernel.h"

/* MOST_BLOCKS: of a cluster, on any GPU that has clusters. FAR_AHEAD: shared memory of a forward walk that
 * takes chunks of two checkpoints: several such blocks still fit on an SM. SHORT_STEP, MEDIUM_STEP: issue
 * slots of a step of which two are joined, in a block of its own, and where registers are left.
 * FEW_REGISTERS: a step takes so many more for it. FEW_STEPS: of a segment; forward takes two such at once,
 * of any number up to ODD_STEPS. SPREAD_BLOCKS: for a state that one would hold. FEW_ELEMENTS: of a state
 * that one thread may have. MOST_TURNED: vectors of which either side is tried. */
enum {
    MOST_ARRAYS = 48,
    MOST_BLOCKS = 8,
    FAR_AHEAD = 48 * 1024,
    SHORT_STEP = 256,
    MEDIUM_STEP = 384,
    FEW_REGISTERS = 12,
    MOST_THREADS = 1024,
    FEW_STEPS = 12,
    ODD_STEPS = 5,
    SPREAD_BLOCKS = 4,
    FEW_ELEMENTS = 64,
    MOST_TURNED = 3
};

const char *tile_text(Tile *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *s = arena_text(t->arena, fmt, args);
    va_end(args);
    return s;
}

void tile_refuse(Tile *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    t->refused = t->refused ? t->refused : reason(t->m, "%s", arena_text(t->arena, fmt, args));
    va_end(args);
}

void tile_refuse_at(Tile *t, Span at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    t->refused = t->refused ? t->refused : reason_at(t->m, at, "%s", arena_text(t->arena, fmt, args));
    va_end(args);
}

void tile_refuse_of(Tile *t, const Node *value, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    t->refused = t->refused ? t->refused : reason_of(t->m, value, "%s", arena_text(t->arena, fmt, args));
    va_end(args);
}

/* What the kernel's frame, the runtime and C++ have taken. */
static const char *const reserved[] = {
    "args", "B", "T", "b", "t", "r", "c", "i", "x", "p", "s", "w", "ex", "flip", "slot", "half", "lane",
    "warp", "row0", "col0", "lane_row", "lane_col", "warp_row", "warp_col", "last_row", "last_col",
    "steps", "chunk", "chunks", "t0", "time0", "item", "blocks", "cursor", "fetch", "float", "double",
    "int", "for", "if", "else", "do", "while", "case", "new", "delete", "this", "class", "template",
    "auto", "const", "long", "short", "char", "bool", "and", "or", "not", "xor", "true", "false",
    "return", "switch", "default", "break", "continue", "goto", "void", "signed", "unsigned", "static",
    "extern", "inline", "operator", "public", "private", "protected", "friend", "typename", "union",
    "struct", "enum", "using", "namespace", "try", "catch", "throw", "typedef", "register", "volatile",
    "sizeof", "exp", "log", "sin", "cos", "tanh", "sqrt", "pow", "erf", "max", "min", "abs", "floor", "rint",
    "first", "end", "mine", "some", "every", "late", "rank", "own_row0", "third", "turned", "replay", "before", "left", "fetch_start", "fetch_behind", "fetch_rows", "make_rows", "makes", "gamma", "j0", "j1", "jn", "y0", "y1", "yn", "step", "size"
};

static void forget_names(Tile *t)
{
    names_init(&t->names, t->m->c);
    for (size_t k = 0; k < sizeof reserved / sizeof *reserved; k++)
        names_take(&t->names, reserved[k]);
}

const char *tile_unique(Tile *t, const char *base)
{
    Buf b = { .arena = t->arena };
    bool prefixed = strncmp(base, "cell_", 5) == 0 || strncmp(base, "dim_", 4) == 0;   /* the runtime's, and sizes */
    if (prefixed || is_word_by_form(base))
        buf_f(&b, "v_");
    else if (isdigit((unsigned char)*base) || !*base)
        buf_f(&b, "v");
    for (const char *s = base; *s; s++) {
        if (*s == '\'')
            buf_f(&b, "_next");
        else
            buf_f(&b, "%c", isalnum((unsigned char)*s) ? *s : '_');
    }
    return names_numbered(&t->names, b.data, "_");
}

static void refuse_arrays(Tile *t)
{
    tile_refuse(t, "the walk needs more than %d arrays", MOST_ARRAYS);
}

int tile_ref(Tile *t, RefKind kind, int id)
{
    RefVec *v = &t->w->refs;
    for (int k = 0; k < v->len; k++)
        if (v->data[k].kind == kind && v->data[k].id == id)
            return k;
    Ref r = { kind, id };
    vec_push(t->arena, v, r);
    if (v->len > MOST_ARRAYS)
        refuse_arrays(t);
    return v->len - 1;
}

const char *tile_ctype(Tile *t, Dtype d)
{
    (void)t;
    switch (d) {
    case DT_BF16: return "cell_bf16";
    case DT_F16: return "cell_f16";
    case DT_F64: return "double";
    case DT_I32: return "int";
    case DT_E4M3: return "cell_e4m3";
    case DT_E5M2: return "cell_e5m2";
    default: return "float";
    }
}

const IxExpr *tile_linear(Tile *t, const Poly *const *axes, const IxExpr *const *map, int n)
{
    Module *m = t->m;
    const IxExpr *e = ix_const(m, poly_const(m, 0));
    const Poly *stride = poly_const(m, 1);
    for (int k = n - 1; k >= 0; k--) {
        e = ix_add(m, e, ix_scale(m, map[k], stride));
        stride = poly_mul(m, stride, axes[k]);
    }
    return e;
}

StateInfo *tile_state(Tile *t, TensorId tensor)
{
    const Tensor *x = &t->m->tensors.data[tensor];
    if (x->kind == T_DNEXT)
        tensor = x->of;
    else if (x->kind != T_STATE)
        return NULL;
    for (int k = 0; k < t->states.len; k++)
        if (t->states.data[k].tensor == tensor)
            return &t->states.data[k];
    return NULL;
}

/* ---- what lies on the chip ---- */

static const char *size_text(Tile *t, const Poly *p)
{
    Buf b = { .arena = t->arena };
    poly_print(t->m, p, &b);
    return b.data;
}

static void find_parallel(Tile *t)
{
    const Module *m = t->m;
    t->npar = parallel_of_states(m, t->par_extent);
    for (TensorId k = 0; t->npar < 0 && k < m->tensors.len; k++)
        if (m->tensors.data[k].kind == T_STATE && m->roots.data[k].next >= 0 &&
            parallel_of_state(&m->tensors.data[k]) > MAX_PARALLEL)
            tile_refuse_at(t, m->tensors.data[k].span, "state `%s` has more than %d parallel axes",
                           m->tensors.data[k].name, MAX_PARALLEL);
    t->npar = t->npar < 0 ? 0 : t->npar;
}

static void chip_axes(Tile *t, const Tensor *x, int64_t *rows, int64_t *cols)
{
    int rank = x->rank - t->npar;
    for (int a = 0; a < t->npar; a++)
        if (a >= x->rank || x->axes[a] != t->par_extent[a]) {
            tile_refuse_at(t, x->span,
                           "state `%s` lacks the axis of size %s that other states are spread over", x->name,
                           size_text(t, t->par_extent[a]));
            return;
        }
    if (rank == 2) {
        if (*rows && (*rows != x->axes[t->npar]->value || *cols != x->axes[t->npar + 1]->value))
            tile_refuse_at(t, x->span, "its matrix states differ in size");
        *rows = x->axes[t->npar]->value;
        *cols = x->axes[t->npar + 1]->value;
    }
}

static void find_sides(Tile *t, int64_t *rows, int64_t *cols)
{
    Module *m = t->m;
    for (TensorId k = 0; k < m->tensors.len; k++)
        if (m->tensors.data[k].kind == T_STATE && m->roots.data[k].next >= 0)
            chip_axes(t, &m->tensors.data[k], rows, cols);
    for (TensorId k = 0; k < m->tensors.len && !*rows && !t->refused; k++) {
        const Tensor *x = &m->tensors.data[k];
        if (x->kind != T_STATE || m->roots.data[k].next < 0 || x->rank - t->npar != 1)
            continue;
        if (*cols && *cols != x->axes[t->npar]->value)
            tile_refuse_at(t, x->span, "its vector states differ in size");
        *cols = x->axes[t->npar]->value;
    }
    if (!*rows && !*cols)
        tile_refuse(t, "its states have no axis of bound size to keep on the chip: every axis is parallel; "
                       "bind a size with --dim");
    *rows = *rows ? *rows : 1;
}

/* Is it tanh of something? Then f16 has room for it, and loses no more (2^-11 of it) than the approximation that walks take in 16 bits
 * (2^-10.9). Only a state before the first step may be anything: see cell_kept. */
static bool is_tanh(const Module *m, NodeId next)
{
    const Node *n = &m->nodes.data[next];
    if (n->kind == N_ARRAY)
        n = &m->nodes.data[n->args[0]];
    return n->kind == N_MAP && n->op == OP_TANH;
}

/* Of the vectors among the states, the k-th: does it go along rows or columns of matrix states? As long as
 * both, it may be either. */
static Role side_of_vector(const Tile *t, int64_t n, int k)
{
    bool rows = n != t->cols || (t->rows == t->cols && t->w->trial->along_rows >> k & 1);
    return rows ? ROLE_ROW : ROLE_COL;
}

static void add_states(Tile *t)
{
    Module *m = t->m;
    int vectors = 0;
    for (TensorId k = 0; k < m->tensors.len; k++) {
        const Tensor *x = &m->tensors.data[k];
        if (x->kind != T_STATE || m->roots.data[k].next < 0)
            continue;
        StateInfo s = { .tensor = k, .rank = x->rank - t->npar };
        if (s.rank == 2) {
            s.role[0] = ROLE_ROW;
            s.role[1] = ROLE_COL;
        } else if (s.rank == 1) {
            int64_t n = x->axes[t->npar]->value;
            s.role[0] = side_of_vector(t, n, vectors++);
            if (n != t->cols && n != t->rows)
                tile_refuse_at(t, x->span, "state `%s` is as long as no side of the matrix states", x->name);
        }
        s.narrow = t->fast && is_tanh(m, m->roots.data[k].next);
        vec_push(t->arena, &t->states, s);
    }
}

/* Outs for the same gradients are one class, so that one condition leaves them out. */
static void find_classes(Tile *t)
{
    const Walk *w = t->w;
    for (int k = 0; k < t->parts.len; k++) {
        NodeId out = t->parts.data[k].original;
        int c = 0;
        if (!w->wanted || !w->wanted[out].len) {
            c = -1;
        } else {
            Wanted args = w->wanted[out];
            size_t bytes = sizeof *args.data * (size_t)args.len;
            while (c < t->classes.len && (t->classes.data[c].args.len != args.len ||
                                          memcmp(t->classes.data[c].args.data, args.data, bytes) != 0))
                c++;
            WantClass fresh = { args, tile_ref(t, REF_NODE, out), NULL };
            if (c == t->classes.len)
                vec_push(t->arena, &t->classes, fresh);
        }
        vec_push(t->arena, &t->class_of, c);
    }
}

static bool subset(const Wanted *a, const Wanted *b)
{
    int k = 0;
    for (int i = 0; i < a->len; i++) {
        while (k < b->len && b->data[k] < a->data[i])
            k++;
        if (k == b->len || b->data[k] != a->data[i])
            return false;
    }
    return true;
}

const char *tile_wanted(Tile *t, Wants w)
{
    const char *text = NULL;
    for (int c = 0; c < t->classes.len && w != WANT_ALWAYS; c++) {
        bool said = !(w >> c & 1);
        for (int k = 0; k < t->classes.len && !said; k++)
            said = k != c && (w >> k & 1) && subset(&t->classes.data[c].args, &t->classes.data[k].args);
        if (!said)
            text = text ? tile_text(t, "%s || %s", text, t->classes.data[c].name) : t->classes.data[c].name;
    }
    return text;
}

static void name_classes(Tile *t)
{
    for (int c = 0; c < t->classes.len; c++) {
        WantClass *k = &t->classes.data[c];
        const char *of = t->m->nodes.data[t->w->refs.data[k->ref].id].name;
        k->name = tile_unique(t, tile_text(t, "want_%s", of ? of : "value"));
    }
}

void tile_print_wants(Tile *t, Buf *out)
{
    if (t->classes.len)
        buf_line(out, "// Which gradients are asked for: what only others need is left out.");
    for (int c = 0; c < t->classes.len; c++)
        buf_line(out, "const bool %s = every || args.ptr[%d];", t->classes.data[c].name, t->classes.data[c].ref);
}

/* That all gradients are asked for. */
static const char *all_wanted(Tile *t)
{
    Buf all = { .arena = t->arena };
    for (int c = 0; c < t->classes.len; c++)
        buf_f(&all, "%sargs.ptr[%d]", c ? " && " : "", t->classes.data[c].ref);
    return all.data;
}

/* The kernel's function, or, where gradients are asked for, what it chooses from, and that. */
static void print_function(Tile *t, int resident, const Buf *body, Buf *out)
{
    const Walk *w = t->w;
    Buf choice = { .arena = t->arena };
    TileFunctionFrame f = { .kernel = w->kernel, .body = tile_hole(t, body) };
    f.threads = tile_number(t, w->threads);
    f.resident = tile_number(t, resident);
    if (t->classes.len) {
        TileWantedFunctionFrame wanted = { .kernel = w->kernel, .body = f.body };
        TileWantedChoiceFrame calls = { .kernel = w->kernel, .all = all_wanted(t) };
        tile_wanted_function_frame(out, &wanted);
        buf_line(out, "%s", "");
        tile_wanted_choice_frame(&choice, &calls);
        f.body = tile_hole(t, &choice);
    }
    tile_function_frame(out, &f);
    buf_line(out, "%s", "");
}

static Tile *tile_new(Walk *w)
{
    Module *m = w->m;
    Tile *t = arena_alloc(m->arena, sizeof *t);
    t->m = m;
    t->arena = m->arena;
    t->w = w;
    t->lay.cr = w->trial->cluster ? w->trial->cluster : 1;
    t->real = w->storage == DT_F64 ? "double" : "float";
    t->real_bytes = w->storage == DT_F64 ? 8 : 4;
    t->fast = w->storage == DT_BF16 || w->storage == DT_F16;
    t->names.c = m->c;
    t->old_nodes = w->n_nodes;
    t->is_out = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    t->state_of_next = arena_alloc(m->arena, sizeof(int) * ((size_t)m->nodes.len + 1));
    find_parallel(t);
    if (!t->refused)
        find_sides(t, &t->rows, &t->cols);
    if (t->refused)
        return t;
    add_states(t);
    for (int k = 0; k < t->npar; k++)
        t->par[k] = module_index(m, intern_f(m->c, "par%d", k), t->par_extent[k]);
    t->row = module_index(m, intern(m->c, "row"), poly_const(m, t->rows));
    t->col = module_index(m, intern(m->c, "col"), poly_const(m, t->cols));
    t->any = module_index(m, intern(m->c, "any"), poly_const(m, 1));
    for (int k = 0; k < w->outs.len; k++)
        t->is_out[w->outs.data[k]] = true;
    for (int k = 0; k < t->states.len; k++)
        t->state_of_next[m->roots.data[t->states.data[k].tensor].next] = k + 1;
    tile_find_parts(t);
    find_classes(t);
    tile_choose_interval(t);
    /* Forward keeps no states: where few steps lie between checkpoints, a chunk's own work is done half as often. From 8
     * steps on it does not pay (measured on an H200: E88's 32 x 32, K of 8, 0.66 ms, with chunks of 16 0.82), unless each segment
     * has a loop of its own (lengthen_chunks). */
    bool few = t->K <= ODD_STEPS, twice = few || (w->request->calls == CALLS_FEW && t->K <= 10), chunks = w->dir == FORWARD && t->lay.cr == 1;
    t->F = chunks && twice ? 2 * t->K : t->K;
    w->spreads |= chunks && twice && !few;
    t->defer = t->lay.cr == 1;    /* the blocks of a cluster meet in every step as it is */
    return t;
}

static Step *step_new(Tile *t, StepKind kind)
{
    Step *s = arena_alloc(t->arena, sizeof *s);
    s->t = t;
    s->kind = kind;
    NodeId *roots = arena_alloc(t->arena, sizeof *roots * (size_t)(t->states.len + 1));
    NodeId *outs = arena_alloc(t->arena, sizeof *outs * (size_t)(t->parts.len + 1));
    for (int k = 0; k < t->parts.len; k++)
        outs[k] = t->parts.data[k].array;
    for (int k = 0; k < t->states.len; k++) {
        TensorId state = t->states.data[k].tensor;
        roots[k] = kind == STEP_ADJOINT ? t->m->roots.data[state].dprev : t->m->roots.data[state].next;
    }
    tile_normalise(s, roots, outs, kind == STEP_REPLAY ? 0 : t->parts.len);
    return s;
}

/* ---- the kernel ---- */

/* Blocks that a multiprocessor is to hold. Where only one fits, the registers are all its own. Said or not, ptxas aims at some number
 * of them; unsaid, it spills for more than a walk needs. 512 threads leave each 128 registers; where one block does not hold the
 * states, all it has. Forward's memory would have room for more than backward's: not more of them are there than two, or backward's,
 * since steps are joined and rows made in the registers that others would take. */
int tile_resident(const Tile *t, int threads, int64_t smem)
{
    int together = t->lay.cr > 1 ? 256 : 512, resident = threads >= together ? 1 : together / threads;
    int likely = tile_blocks_together(t) > 2 ? tile_blocks_together(t) : 2;
    if (t->w->dir == FORWARD && resident > likely)
        resident = likely;
    while (resident > 1 && resident * smem > TARGET_BLOCK_BYTES)
        resident--;
    return resident;
}

/* Registers that a step as it is leaves free. */
static int registers_left(const Tile *t)
{
    int threads = tile_threads(&t->lay);
    int limit = TARGET_REGISTERS / ((threads + 32 * t->makers) * tile_resident(t, threads, t->w->smem));
    return (limit < 255 ? limit : 255) - tile_registers(t, &t->lay);
}

bool tile_joins(const Step *s, const TileLayout *l, int barriers, int registers_left)
{
    return l->cr == 1 && !barriers && registers_left >= FEW_REGISTERS && s->elements * l->rr * l->rc <= MEDIUM_STEP;
}

/* A short step is joined with the next one where registers are left: what one hands to the other stays where it is, and places
 * in shared memory are computed once for both. A long one has enough to overlap, and its code twice is slow to come. Behind
 * a barrier there is little to gain. */
bool tile_step_joins(const Tile *t, const Step *s)
{
    return tile_joins(s, &t->lay, s->barriers, registers_left(t));
}

bool tile_print_unroll(const Tile *t, const Step *s, Buf *out)
{
    bool joined = tile_step_joins(t, s);
    bool apart = t->w->request->calls == CALLS_FEW && s->elements * t->lay.rr * t->lay.rc <= SHORT_STEP;
    if (joined || apart)
        buf_line(out, "CELL_UNROLL_BY(2)");
    if (apart && !joined)
        t->w->spreads = true;
    return joined || apart;
}

/* The whole kernel. Printed more than once: what the printer finds out (which results cross threads, which
 * vectors are fetched) feeds the next time. */
static void print_kernel(Tile *t)
{
    Walk *w = t->w;
    t->rows_out.len = 0;
    for (int k = 0; k < t->fetches.len; k++)
        t->fetches.data[k].stepped = false;
    forget_names(t);
    t->makers = tile_makers(t);
    for (int k = 0; k < t->fetches.len; k++) {
        names_take(&t->names, t->fetches.data[k].name);
        names_take(&t->names, tile_text(t, "%s_g", t->fetches.data[k].name));      /* where it lies in memory */
    }
    for (int k = 0; k < t->npar; k++)
        t->par_name[k] = tile_unique(t, tile_text(t, "par%d", k));
    tile_name_states(t);
    name_classes(t);
    Buf body = { .arena = t->arena };
    const char *walk = tile_lines(t, w->dir == FORWARD ? tile_print_forward : tile_print_backward);
    if (t->refused)
        return;
    for (int k = 0; k < t->fetches.len; k++) {
        Fetch *f = &t->fetches.data[k];
        f->single = w->dir == BACKWARD && t->defer && f->timed && !f->stepped;
    }
    w->threads = tile_threads(&t->lay) + 32 * t->makers;
    tile_print_around(t, walk, &body);
    w->cuda = (Buf){ .arena = t->arena };
    print_function(t, tile_resident(t, tile_threads(&t->lay), w->smem), &body, &w->cuda);
    tile_release_holes(t);
}

static bool keeps_narrow(const Tile *t)
{
    for (int k = 0; k < t->states.len; k++)
        if (t->states.data[k].narrow)
            return true;
    return false;
}

static void explain(Tile *t)
{
    Walk *w = t->w;
    const TileLayout *l = &t->lay;
    Step *s = w->dir == FORWARD ? t->forward : t->adjoint;
    buf_f(&w->reasons, "%s: %d warps for a %" PRId64 " x %" PRId64 " state: %d x %d elements a thread, "
          "%d x %d lanes, %d x %d warps%s\n",
          w->kernel, tile_threads(l) / 32, t->rows, t->cols, l->rr, l->rc, l->lr, l->lc, l->wr, l->wc,
          hints_choose(&t->w->request->hints, w->dir) ? ", as was asked for" : "");
    if (l->cr > 1)
        buf_f(&w->reasons, "%s: %d blocks of a cluster share a state's rows, %d each%s\n", w->kernel, l->cr,
              tile_block_rows(l),
              t->w->request->hints.cluster ? ", as was asked for" : ": one does not hold it");
    buf_f(&w->reasons, "%s: %d reductions in %d levels, %d barriers a step, about %d registers, %" PRId64
          " bytes of shared memory\n",
          w->kernel, s->reds.len, s->levels, s->barriers, tile_registers(t, l), w->smem);
    buf_f(&w->reasons, "%s: a checkpoint every %d steps: %s\n", w->kernel, t->K,
          w->dir == FORWARD ? tile_text(t, "vectors are fetched %d steps ahead", t->F)
          : t->w->request->hints.interval == t->K ? "as was asked for"
          : t->undoes ? "between them, what a step has added is taken from the states behind it"
          : keeps_narrow(t) ? "so many states fit in shared memory for the replay, those that are tanh in 16 bits"
                            : "so many states fit in shared memory for the replay");
    if (t->ahead)
        buf_f(&w->reasons, "%s: a segment is replayed beside the steps back through the one behind it\n", w->kernel);
    if (t->makers)
        buf_f(&w->reasons, "%s: %d more warp%s make%s the rows of the next %d steps that only the walk reads\n", w->kernel,
              t->makers, t->makers > 1 ? "s" : "", t->makers > 1 ? "" : "s", t->F);
    if (w->by_thread)
        buf_f(&w->reasons, w->dir == FORWARD ? "%s: in backward's layout, because checkpoints lie as the threads have the states\n"
              : "%s: checkpoints lie as the threads have the states, whose rows would be pieces of less than 16 bytes\n", w->kernel);
}

static void set_blocks(Tile *t)
{
    Walk *w = t->w;
    w->blocks = poly_const(t->m, 1);
    w->parallel.len = 0;
    for (int k = 0; k < t->npar; k++) {
        w->blocks = poly_mul(t->m, w->blocks, t->par_extent[k]);
        vec_push(t->arena, &w->parallel, t->par[k]);
    }
}

static void check_room(Tile *t)
{
    t->no_room |= t->w->smem > TARGET_BLOCK_BYTES && !t->refused;
    if (t->w->smem > TARGET_BLOCK_BYTES)
        tile_refuse(t, "its walk needs %" PRId64 " bytes of shared memory, and an SM has %d: lower --dim %s",
                    t->w->smem, TARGET_BLOCK_BYTES, tile_bound_dims(t));
}

/* What crosses threads depends on the layout. */
static void forget_crossings(Tile *t)
{
    Step *steps[] = { t->forward, t->replay, t->adjoint };
    for (int i = 0; i < 3; i++)
        for (int k = 0; steps[i] && k < steps[i]->reds.len; k++)
            steps[i]->reds.data[k].crossed = steps[i]->reds.data[k].far = steps[i]->reds.data[k].whole = false;
}

/* What is printed again as it was printed before stays so. */
static bool same_text(const Buf *a, const Buf *b)
{
    return a->len && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

enum { MOST_PRINTS = 8 };

/* Until nothing changes: what is found while printing feeds the next time. */
static void print_again(Tile *t)
{
    Walk *w = t->w;
    Buf before = { 0 };
    for (int pass = 0; !t->refused && !same_text(&before, &w->cuda); pass++) {
        if (pass == MOST_PRINTS)
            bug(t->m->c, "plan", "%s is not the same twice, printed %d times", w->kernel, pass);
        before = pass ? w->cuda : before;
        print_kernel(t);
    }
}

/* More steps between checkpoints, where as many blocks fit on an SM with them: fewer checkpoints, and a chunk's own work
 * less often. Known only now: what steps leave for one another and for what stands behind a chunk takes half of the memory
 * or nothing. Where steps may be joined an odd number would leave one alone, and forward's chunks would have one segment (measured
 * on an H200: E88 of 64 x 64, forward, K of 6, 7 and 8: 1.39, 1.51 and 1.35 ms). */
static void lengthen_interval(Tile *t)
{
    Walk *w = t->w;
    int64_t fixed = tile_start_bytes(t);
    int64_t each = w->smem - fixed, room = tile_block_room(t) - fixed;     /* each: of K steps */
    int least = t->K, most = tile_most_interval(t), K = each > 0 ? (int)(room * t->K / each) : most;
    for (K = K < most ? K : most; K > least && !t->refused; K--) {
        if (K % 2 && K > ODD_STEPS && tile_overlaps(t))
            continue;
        t->K = t->F = K;
        print_again(t);
        if (w->smem <= tile_block_room(t))
            return;
    }
    if (t->K != least) {
        t->K = t->F = least;
        print_again(t);
    }
}

/* Chunks of two segments, where joined steps leave a chunk's own work as the larger part, and several blocks still fit on an SM. */
static void lengthen_chunks(Tile *t)
{
    int K = t->K;
    if (!t->joined || t->F > K || K > FEW_STEPS || K % 2)
        return;
    t->F = 2 * K;
    print_again(t);
    if (t->refused || (t->joined && t->w->smem <= FAR_AHEAD))
        return;
    t->F = K;
    print_again(t);
}

/* Reads a step's vectors before anything else where registers are left for them and no barrier stands in it: what is carried waits for
 * its reads one after the other otherwise. */
static void try_early(Tile *t)
{
    t->early = t->lay.cr == 1 && t->defer && !t->adjoint->barriers && registers_left(t) >= FEW_REGISTERS;
    if (t->early)
        print_again(t);
}

/* May a segment be replayed beside the steps back through the one behind it? Where nothing of a replayed step is exchanged. */
bool tile_overlaps(const Tile *t)
{
    return t->replay && !t->undoes && t->defer && t->lay.cr == 1 && !t->replay->reds.len;
}

/* It takes registers for about half of its states, the two steps overlap as far as there are registers, and shared memory for
 * the vectors of one chunk more. Where blocks share an SM, an eighth of a segment's steps may go for that; a block of its own has
 * little to gain, and forward's chunks would be shorter too. Its checkpoint takes no shared memory, which may be room for more steps. */
static void try_ahead(Tile *t)
{
    const Request *request = t->w->request;
    int own = 0, K = t->K, least = request->calls == CALLS_FEW || request->hints.interval ? K : K - K / 8;
    for (int k = 0; k < t->states.len; k++)
        own += (int)tile_elements(t, &t->states.data[k]) * t->real_bytes / 4;
    t->ahead = !t->refused && tile_overlaps(t) && !t->adjoint->barriers && registers_left(t) >= own / 2;
    if (!t->ahead)
        return;
    for (; t->K >= least; t->F = --t->K) {
        print_again(t);
        if (t->w->smem <= tile_block_room(t)) {
            if (t->K == K && t->w->interval)
                lengthen_interval(t);
            return;
        }
    }
    t->ahead = false;
    t->K = t->F = K;
    print_again(t);
}

void tile_walk(Walk *w)
{
    Tile *t = tile_new(w);
    if (!t->refused && w->dir == FORWARD)
        t->forward = step_new(t, STEP_FORWARD);
    if (!t->refused && w->dir == BACKWARD) {
        t->replay = step_new(t, STEP_REPLAY);
        t->adjoint = step_new(t, STEP_ADJOINT);
        w->undone = t->undoes = !t->refused && t->fast && tile_undoes(t->replay);
    }
    int cr = t->lay.cr, rows = 8 * cr;
    t->lay = (TileLayout){ 1, 8, (int)((t->rows + rows - 1) / rows), 1, 4, (int)((t->cols + 3) / 4), cr };
    if (!t->refused) {
        set_blocks(t);
        print_kernel(t);
    }
    if (!t->refused) {
        tile_choose_layout(t);
        forget_crossings(t);
    }
    if (!t->refused && w->dir == BACKWARD)
        tile_choose_order(t);
    print_again(t);
    if (!t->refused && w->smem > FAR_AHEAD && t->F > t->K) {
        t->F = t->K;
        print_again(t);
    }
    if (!t->refused && w->smem > TARGET_BLOCK_BYTES && t->defer) {
        t->defer = false;
        print_again(t);
    }
    if (!t->refused && w->dir == FORWARD)
        lengthen_chunks(t);
    if (!t->refused && w->dir == BACKWARD)
        try_early(t);
    if (!t->refused && w->dir == BACKWARD && w->interval && t->lay.cr == 1 && w->smem <= TARGET_BLOCK_BYTES)
        lengthen_interval(t);
    if (w->dir == BACKWARD)
        try_ahead(t);
    /* Steps with barriers would have those who walk wait for those who make. */
    if (!t->refused && t->makers && (t->forward->barriers || w->threads > MOST_THREADS)) {
        t->no_made = true;
        tile_refuse(t, "there is no place for warps that make its rows");
    }
    if (!t->refused)
        check_room(t);
    w->interval = t->K;
    w->refused = t->refused;
    w->no_room = t->no_room;
    w->no_made = t->no_made || (t->refused && t->makers);
    w->cluster = t->lay.cr;
    if (!t->refused)
        explain(t);
}

/* ---- questions before there is a plan ---- */

/* Does the value depend on what the walk carries, other than through saved arrays? */
static bool carried(const Module *m, NodeId id, const bool *saved, int8_t *memo)
{
    if (memo[id])
        return memo[id] == 1;
    memo[id] = 2;
    const Node *n = &m->nodes.data[id];
    bool yes = n->kind == N_LOAD && (m->tensors.data[n->tensor].kind == T_STATE ||
                                     m->tensors.data[n->tensor].kind == T_DNEXT);
    if (!(saved && saved[id]))
        for (int i = 0; i < n->nargs; i++)
            yes |= carried(m, n->args[i], saved, memo);
    memo[id] = yes ? 1 : 2;
    return yes;
}

/* A walk as the plan would make it, as far as the states are concerned: all that is not carried lies in
 * memory. */
static Walk assume(Module *m, const Request *request, const Trial *trial, Direction dir, const bool *saved)
{
    int n = m->nodes.len;
    Walk w = { .m = m, .request = request, .trial = trial, .dir = dir, .storage = request->dtype, .n_nodes = n, .kernel = "walk" };
    Storage *of_node = arena_alloc(m->arena, sizeof *of_node * (size_t)(n + 1));
    Storage *of_tensor = arena_alloc(m->arena, sizeof *of_tensor * (size_t)(m->tensors.len + 1));
    int8_t *memo = arena_alloc(m->arena, (size_t)n + 1);
    w.cuda.arena = w.reasons.arena = m->arena;
    for (NodeId id = 0; id < n; id++)
        if (m->nodes.data[id].kind == N_ARRAY && (!carried(m, id, saved, memo) || (saved && saved[id])))
            of_node[id] = (Storage){ .home = HOME_WORKSPACE, .batched = true, .timed = true,
                                     .dtype = DT_F32 };
    for (TensorId k = 0; k < m->tensors.len; k++) {
        bool param = m->tensors.data[k].kind == T_PARAM;
        of_tensor[k] = (Storage){ .home = HOME_ARG, .batched = !param, .timed = !param,
                                  .dtype = m->tensors.data[k].dtype };
    }
    w.of_node = of_node;
    w.of_tensor = of_tensor;
    return w;
}

static void mark_values(const Module *m, NodeId id, bool *marks)
{
    if (id < 0 || marks[id])
        return;
    marks[id] = true;
    for (int i = 0; i < m->nodes.data[id].nargs; i++)
        mark_values(m, m->nodes.data[id].args[i], marks);
}

/* What forward computes. Where an operand of a product was rounded, what is made of it was made once more,
 * behind the adjoint. */
static bool *forward_values(const Module *m)
{
    bool *marks = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        mark_values(m, m->roots.data[t].next, marks);
        mark_values(m, m->roots.data[t].output, marks);
    }
    memset(marks, true, (size_t)m->forward_nodes);
    return marks;
}

/* Forward arrays that depend on a state and are at most vectors on the chip. */
static bool *small_arrays(Tile *t, const bool *forward)
{
    Module *m = t->m;
    bool *small = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    for (NodeId id = 0; id < m->nodes.len; id++) {
        if (!forward[id])
            continue;
        const Node *n = &m->nodes.data[id];
        int rank = n->naxes;
        bool taken[TILE_MAX_AXES] = { false };
        for (int p = 0; p < t->npar; p++)
            for (int k = 0; k < n->naxes && k < TILE_MAX_AXES; k++)
                if (!taken[k] && m->indices.data[n->axes[k]].extent == t->par_extent[p]) {
                    taken[k] = true;      /* an axis of the state may be as long */
                    rank--;
                    break;
                }
        small[id] = n->kind == N_ARRAY && (n->dep & DEP_STATE) && rank < 2;
    }
    return small;
}

void tile_saved(Module *m, const Request *request, const Trial *trial, bool *saved)
{
    Request narrow = *request;
    narrow.dtype = DT_F32;
    Walk w = assume(m, &narrow, trial, BACKWARD, NULL);
    Tile *t = tile_new(&w);
    if (t->refused || !m->has_grad)
        return;
    const bool *forward = forward_values(m);
    w = assume(m, &narrow, trial, BACKWARD, small_arrays(t, forward));
    t = tile_new(&w);
    t->in_forward = forward;
    Step *s = arena_alloc(m->arena, sizeof *s);
    s->t = t;
    s->kind = STEP_ADJOINT;
    t->adjoint = s;
    tile_find_saved(s, saved);
}

static int count(const bool *marks, int n)
{
    int marked = 0;
    for (int i = 0; i < n; i++)
        marked += marks[i];
    return marked;
}

/* Forward writes each array that backward finds saved. Where there are too many, nothing need be printed to know it;
 * where not even so many could be saved, nothing need be looked for. */
static bool saves_too_many(Tile *t)
{
    Module *m = t->m;
    int n = m->nodes.len;
    if (!m->has_grad || count(small_arrays(t, forward_values(m)), n) <= MOST_ARRAYS)
        return false;
    bool *saved = arena_alloc(m->arena, (size_t)n + 1);
    tile_saved(m, t->w->request, t->w->trial, saved);
    return count(saved, n) > MOST_ARRAYS;
}

/* Whether walks by clusters of trial->cluster blocks have room. */
static const Reason *walks_refuse(Module *m, const Request *request, const Trial *trial, bool *no_room,
                                  int *interval)
{
    Walk w = assume(m, request, trial, FORWARD, NULL);
    tile_walk(&w);
    *no_room = w.no_room;
    *interval = w.interval;
    if (w.refused || !m->has_grad)
        return w.refused;
    int n = m->nodes.len;
    bool *saved = arena_alloc(m->arena, (size_t)n + 1);
    tile_saved(m, request, trial, saved);
    /* Finding them made nodes, which are not saved. */
    saved = arena_grow(m->arena, saved, (size_t)n + 1, (size_t)m->nodes.len + 1);
    w = assume(m, request, trial, BACKWARD, saved);
    tile_walk(&w);
    *no_room = w.no_room;
    return w.refused;
}

/* From one block to four: two that share what one cannot hold have full registers, and are slower (measured on an
 * H200, E79 of 96, forward and backward: 5.6 ms with 2 blocks, 3.2 with 4). Blocks of a cluster keep as many steps
 * as they have room for. */
bool tile_widen(const Request *request, Trial *trial, int interval)
{
    if (trial->cluster > 1 && interval > 1 && !request->hints.interval) {
        trial->interval = interval - 1;
        return true;
    }
    if (request->hints.cluster || request->one_block || trial->cluster >= MOST_BLOCKS)
        return false;
    trial->cluster = trial->cluster == 1 ? 4 : 2 * trial->cluster;
    trial->interval = 0;
    return true;
}

/* With as many blocks to a state as it wants. */
static const Reason *any_walk_refuses(Module *m, const Request *request, Trial *trial)
{
    bool no_room;
    int interval;
    const Reason *why;
    do
        why = walks_refuse(m, request, trial, &no_room, &interval);
    while (why && no_room && tile_widen(request, trial, interval));
    return why;
}

/* What keeps a walk from being one may be a vector that is read at other elements. States of few elements
 * are better one thread's, whose own all elements are. */
static bool takes_shifted(Tile *t, const Request *request, Trial *trial)
{
    Module *m = t->m;
    if (!request->schedule && t->rows * t->cols <= FEW_ELEMENTS)
        return false;
    size_t bytes = sizeof *m->roots.data * (size_t)m->roots.len;
    Roots *before = arena_alloc(m->arena, bytes + 1);
    Trial again = *trial;
    memcpy(before, m->roots.data, bytes);
    bool takes = tile_share_vectors(t) && !any_walk_refuses(m, request, &again);
    if (takes)
        *trial = again;
    else
        memcpy(m->roots.data, before, bytes);
    return takes;
}

static int count_vectors(const Tile *t)
{
    int n = 0;
    for (int k = 0; k < t->states.len; k++)
        n += t->states.data[k].rank == 1;
    return n;
}

/* Where matrices are as long as wide, only the step says which of their axes a vector goes along: the first
 * choice by which the walk is not refused is taken. */
static const Reason *any_side_refuses(Tile *t, const Request *request, Trial *trial)
{
    Module *m = t->m;
    trial->along_rows = 0;
    Trial first = *trial;
    const Reason *why = any_walk_refuses(m, request, trial);
    int vectors = why && t->rows == t->cols ? count_vectors(t) : 0;
    unsigned choices = vectors && vectors <= MOST_TURNED ? 1u << vectors : 1;
    for (unsigned k = 1; why && k < choices; k++) {
        Trial turned = first;
        turned.along_rows = k;
        if (!any_walk_refuses(m, request, &turned))
            return *trial = turned, NULL;
    }
    for (unsigned k = 0; why && k < choices; k++) {
        Trial turned = first;
        turned.along_rows = k;
        if (takes_shifted(t, request, &turned))
            return *trial = turned, NULL;
    }
    return why;
}

/* A sum of matrices over a parallel axis is none of the walk's. */
static void split(const Tile *t)
{
    const int64_t on_chip[] = { t->rows, t->cols, 0 };
    SplitSums s = { .m = t->m, .npar = t->npar, .on_chip = on_chip };
    memcpy(s.par_extent, t->par_extent, sizeof s.par_extent);
    split_sums(&s);
}

const Reason *tile_refuses(Module *m, const Request *request, Trial *trial)
{
    if (request->hints.cluster)
        trial->cluster = request->hints.cluster;
    else if (!trial->cluster)
        trial->cluster = request->spread ? SPREAD_BLOCKS : 1;
    Walk w = assume(m, request, trial, FORWARD, NULL);
    Tile *t = tile_new(&w);
    if (t->refused)
        return t->refused;
    split(t);
    if (saves_too_many(t))
        refuse_arrays(t);
    if (t->refused)
        return t->refused;
    return any_side_refuses(t, request, trial);
}

int tile_interval(Module *m, const Request *request, const Trial *trial)
{
    Walk w = assume(m, request, trial, FORWARD, NULL);
    return tile_new(&w)->K;
}
