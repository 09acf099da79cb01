/* kernels.c: the kernels around the walk, and of a step where steps walk, one for each group; and CUDA text
 * of those that are not built as trees. In comes a planned program; out go kernels with the lists of
 * pointers that they take. Here are the frames that kinds of text share: heads, rows, loops over
 * neighbours. What a kernel computes, over which rows, and where each value lies stands in the plan. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutate.h"
#include "emit/emit.h"
#include "emit/template.h"
#include "kernels.h"

const Node *k_node(const Kernel *k, NodeId id)
{
    return &k->p->m->nodes.data[id];
}

const char *k_text(Kernel *k, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *s = arena_text(k->p->m->arena, fmt, args);
    va_end(args);
    return s;
}

const char *k_sum(Kernel *k, const char *a, const char *b)
{
    return strcmp(a, "0") == 0 ? b : strcmp(b, "0") == 0 ? a : k_text(k, "%s + %s", a, b);
}

const char *k_times(Kernel *k, const char *a, const Poly *n)
{
    if (strcmp(a, "0") == 0 || (n->is_const && n->value == 0))
        return "0";
    return n->is_const && n->value == 1 ? a : k_text(k, "%s * %s", a, k_poly(k, n));
}

const char *k_type(Dtype t)
{
    switch (t) {
    case DT_F32: return "float";
    case DT_BF16: return "cell_bf16";
    case DT_F16: return "cell_f16";
    case DT_F64: return "double";
    case DT_I32: return "int32_t";
    case DT_E4M3: return "cell_e4m3";
    case DT_E5M2: return "cell_e5m2";
    }
    return "void";
}

const char *k_bare(Kernel *k, const char *s)
{
    size_t n = strlen(s);
    int open = 0;
    if (n < 2 || s[0] != '(')
        return s;
    for (size_t i = 0; i < n; i++) {
        open += (s[i] == '(') - (s[i] == ')');
        if (open == 0)
            return i == n - 1 ? k_text(k, "%.*s", (int)n - 2, s + 1) : s;
    }
    return s;
}

const char *k_poly(Kernel *k, const Poly *p)
{
    const char *s = poly_text(&k->printer, p);
    bool atom = p->is_const || (p->nterms == 1 && p->terms[0].natoms == 1 && p->terms[0].coef == 1);
    return atom ? s : k_text(k, "(%s)", s);
}

const char *k_product(Kernel *k, const Poly *const *axes, int n)
{
    return poly_text(&k->printer, poly_product(k->p->m, axes, n));
}

int k_number(Kernel *k, Texts *list, const char *s, bool *first)
{
    int n = 0;
    while (n < list->len && strcmp(list->data[n], s) != 0)
        n++;
    *first = n == list->len;
    if (*first)
        vec_push(k->p->m->arena, list, s);
    return n;
}

int k_width(const Kernel *k)
{
    if (k->g && k->g->along)
        return apart_width(k);
    return plan_width(k->p);
}

/* ---- frames ---- */

void k_open(Kernel *k, const char *fmt, ...)
{
    char head[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(head, sizeof head, fmt, args);
    va_end(args);
    buf_line(k->out, "%s {", head);
    k->out->indent++;
}

void k_close(Kernel *k)
{
    k->out->indent--;
    buf_line(k->out, "}");
}

Buf *k_divert(Kernel *k, Buf *text)
{
    Buf *out = k->out;
    *text = (Buf){ .arena = out->arena, .dropped = out->dropped };
    k->out = text;
    return out;
}

const char *k_lines(Kernel *k, Buf *out)
{
    const char *lines = template_lines(k->out);
    k->out = out;
    return lines;
}

const char *k_lines_of(Kernel *k, void (*print)(Kernel *k))
{
    Buf text, *out = k_divert(k, &text);
    print(k);
    return k_lines(k, out);
}

void k_comment(Kernel *k, NodeId id)
{
    const char *place = source_place(k->p->m, k_node(k, id)->span, true);
    if (k_node(k, id)->name)
        buf_line(k->out, "// %s%s%s", k_node(k, id)->name, *place ? ", " : "", place);
    else if (*place)
        buf_line(k->out, "// part of %s", place);
}

static void print_sizes(Kernel *k, Buf *out)
{
    Module *m = k->p->m;
    buf_line(out, "[[maybe_unused]] const int64_t dim_B = args.size[0];");
    buf_line(out, "[[maybe_unused]] const int64_t dim_T = args.size[1];");
    for (int i = 0; i < m->dims.len; i++)
        buf_line(out, "[[maybe_unused]] const int64_t dim_%s = args.size[%d];", api_sizes(m)[2 + i], 2 + i);
    buf_line(out, "[[maybe_unused]] const int64_t t0 = args.size[%d];", 2 + m->dims.len);
}

static void print_head(Kernel *k, Buf *out)
{
    print_sizes(k, out);
    for (int i = 0; i < k->pointers.len; i++) {
        const Pointer *p = &k->pointers.data[i];
        const char *type = k_text(k, "%s%s *", p->written ? "" : "const ", k_type(p->type));
        buf_line(out, "%s%sconst %s = static_cast<%s>(args.ptr[%d]);",
                 module_starts(k->p->m) < 0 ? "" : "[[maybe_unused]] ", type, p->name, type, i);
    }
    buf_line(out, "[[maybe_unused]] const bool adds = args.flags & CELL_KERNEL_ACCUMULATE;");
    if (k->pr->dir == FORWARD)
        buf_line(out, "[[maybe_unused]] const bool all = args.flags & CELL_KERNEL_SAVE;");
}

static bool word_at(const char *s, const char *word, size_t n)
{
    return strncmp(s, word, n) == 0 && !isalnum((unsigned char)s[n]) && s[n] != '_';
}

/* Is the place in a comment? */
static bool in_comment(const char *from, const char *place)
{
    for (const char *s = place; s > from && s[-1] != '\n'; s--)
        if (s[-1] == '/' && s[0] == '/')
            return true;
    return false;
}

/* Does the block that starts at this indentation end before the place? */
static bool ends_before(const char *s, size_t indent, const char *place)
{
    for (const char *line = s; line <= place; line = strchr(line, '\n') + 1) {
        size_t depth = strspn(line, " ");
        if (depth < indent && line[depth] != '\n')
            return true;
        if (!memchr(line, '\n', (size_t)(place - line)))
            return false;
    }
    return false;
}

/* Does the name occur in what follows, up to the end of the block that starts at this indentation? */
static bool used_below(const char *s, const char *name, size_t n, size_t indent)
{
    char word[128];
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    for (const char *at = s; (at = strstr(at, word)); at++)
        if (word_at(at, name, n) && !isalnum((unsigned char)at[-1]) && at[-1] != '_' && !in_comment(s, at))
            return !ends_before(s, indent, at);
    return false;
}

/* The text ends here now; was there more? */
static bool cut_text(Buf *text, char *end)
{
    size_t before = text->len;
    if (!text->data)
        return false;
    *end = 0;
    text->len = (size_t)(end - text->data);
    return text->len < before;
}

/* Frames declare what a body may need, marked, a line each; what it did not need goes, and so do the marks.
 * */
static bool drop_unused(Buf *text)
{
    static const char mark[] = "[[maybe_unused]] ";
    char *kept = text->data;
    const char *s = text->data;               /* what is not yet behind `kept` */
    for (const char *at = s; at && (at = strstr(at, mark));) {
        const char *line = at, *to = strstr(at, " = "), *name = to;
        while (line > text->data && line[-1] == ' ')
            line--;
        size_t indent = (size_t)(at - line);
        at = line + strcspn(line, "\n");
        at += *at == '\n';
        if (line > text->data && line[-1] != '\n')
            continue;
        while (name[-1] != ' ' && name[-1] != '*')
            name--;
        if (used_below(at, name, (size_t)(to - name), indent))
            continue;
        memmove(kept, s, (size_t)(line - s));
        kept += line - s;
        s = at;
    }
    if (s) {
        size_t rest = strlen(s);
        memmove(kept, s, rest);
        kept += rest;
    }
    return cut_text(text, kept);
}

static void drop_marks(Buf *text)
{
    static const char mark[] = "[[maybe_unused]] ";
    char *kept = text->data;
    while (drop_unused(text))
        ;
    for (const char *s = text->data, *next; s && *s; s = next) {
        const char *at = strstr(s, mark), *end = at ? at : s + strlen(s);
        next = at ? at + sizeof mark - 1 : end;
        memmove(kept, s, (size_t)(end - s));
        kept += end - s;
    }
    cut_text(text, kept);
}

static void forget_all(Kernel *k)
{
    k->hoisted.len = k->reads.len = 0;
    k->hoisting = -1;
    k->prefetches.len = 0;
    k->numbered = k->depth = 0;
    memset(k->index, 0, sizeof *k->index * (size_t)k->indices);
    memset(k->value, 0, sizeof *k->value * (size_t)k->values);
    names_init(&k->locals, k->p->m->c);
    k->b = k->t = "0";
    k->row = NULL;
    k->one_step = false;
}

static bool waits(const Kernel *k)
{
    return k->g && !k->hooks->all_steps &&
           ((k->g->phase == PHASE_DURING && k->pr->dir == BACKWARD) || k->refs == &k->g->refs_2);
}

static void print_body(Kernel *k, Buf *out, void (*body)(Kernel *k))
{
    Buf text = { .arena = out->arena, .indent = 1 };
    forget_all(k);
    k->out = &text;
    body(k);
    k->out = out;
    Buf whole = { .arena = out->arena, .indent = 1 };
    print_head(k, &whole);
    buf_f(&whole, "%s", text.data ? text.data : "");
    drop_marks(&whole);
    buf_line(out, "{");
    if (waits(k))
        buf_line(out, "    cell_dependency_wait();");
    buf_f(out, "%s}\n\n", whole.data);
    buf_release(&text);
    buf_release(&whole);
}

/* Prints the kernel that `body` prints inside, which comes first: how many blocks should be resident follows
 * from what it has. */
void k_print(Kernel *k, const char *name, void (*body)(Kernel *k))
{
    Buf *out = k->out, text = { .arena = out->arena };
    k->printer.data = k;
    names_init(&k->pointer_names, k->p->m->c);
    k->multiples.len = k->vectors.len = 0;
    k->n = k_text(k, "%d", k_width(k));
    print_body(k, &text, body);
    /* A block of 1024 threads: ptxas spills for the second that it hopes for. */
    int resident = k->threads == 1024 ? 1 : k->g && k->refs == &k->g->refs ? k->g->resident
                   : k->hooks->resident ? k->hooks->resident(k) : 0;
    buf_line(out, "extern \"C\" __global__ void __launch_bounds__(%d%s)", k->threads,
             resident ? k_text(k, ", %d", resident) : "");
    buf_line(out, "%s(const __grid_constant__ cell_kernel_args args)", name);
    buf_f(out, "%s", text.data);
    buf_release(&text);
    k->out = out;
}

/* ---- rows and elements ---- */

const char *k_time_row(Kernel *k, const char *t, int ahead)
{
    bool reverse = k->p->m->c->reverse && !mutate("straight-row");
    const char *more = ahead == 0 ? "" : (ahead > 0) != reverse ? " + 1" : " - 1";
    if (!reverse)
        return *more ? k_text(k, "(%s%s)", t, more) : t;
    return k_text(k, "(dim_T - 1 - %s%s)", t, more);
}

const char *k_first_row(Kernel *k, const char *b)
{
    return module_starts(k->p->m) < 0 ? k_text(k, "%s * dim_T", b) : "first_row";
}

const char *k_starts(Kernel *k)
{
    return k_pointer(k, REF_TENSOR, module_starts(k->p->m), DT_I32);
}

void k_declare_sequence(Kernel *k)
{
    Module *m = k->p->m;
    if (module_starts(m) < 0)
        return;
    const char *starts = k_starts(k), *total = k_poly(k, module_rows(m));
    buf_line(k->out, "[[maybe_unused]] const int64_t first_row = cell_first_row(%s, %s, %s);", starts, k->b,
             total);
    buf_line(k->out,
             "[[maybe_unused]] const int64_t dim_T = cell_own_steps(%s, %s, %s, args.size[1]);  // of the "
             "sequence",
             starts, k->b, total);
}

void k_declare_rows(Kernel *k)
{
    const char *row = k_time_row(k, "t", 0);
    buf_line(k->out, "[[maybe_unused]] const int64_t bt = %s + %s;", k_first_row(k, "b"), k_bare(k, row));
    if (k->pr->dir == BACKWARD)
        return;
    buf_line(k->out, "[[maybe_unused]] const int64_t bt1 = all ? bt : b;");
    buf_line(k->out, "[[maybe_unused]] const int64_t bt2 = all ? bt : b * 2 + %s %% 2;", row);
}

/* b and t of a row number, as the group's rows run. */
void k_split_row(Kernel *k, const char *row)
{
    k->one_step = k->g && k->g->phase == PHASE_DURING;
    bool timed = k->g && k->g->timed && !k->one_step, batched = !k->g || k->g->batched;
    k->b = "b";
    k->t = "t";
    k->row = batched && timed ? row : NULL;
    bool packed = module_starts(k->p->m) >= 0;
    const char *both = packed ? k_text(k, "cell_sequence_of(%s, dim_B, %s)", k_starts(k), row)
                              : k_text(k, "%s / dim_T", row);
    buf_line(k->out, "[[maybe_unused]] const int64_t b = %s;", batched && timed ? both : batched ? row : "0");
    if (batched)
        k_declare_sequence(k);
    const char *t = batched && timed ? k_text(k, packed ? "(%s - first_row)" : "%s %% dim_T", row)
                    : timed          ? row
                                     : "args.t";
    buf_line(k->out, "[[maybe_unused]] const int64_t t = %s;",
             timed || k->one_step ? k_bare(k, k_time_row(k, t, 0)) : "0");
    if (!k->one_step)
        return;
    k->row = "bt";
    k_declare_rows(k);
}

const char *k_rows(Kernel *k)
{
    bool timed = k->g->timed && k->g->phase != PHASE_DURING;
    if (k->g->batched)
        return !timed                       ? "dim_B"
               : module_starts(k->p->m) < 0 ? "dim_B * dim_T"
                                            : k_poly(k, module_rows(k->p->m));
    return timed ? "dim_T" : "1";
}

/* Names the axes after the user's indices, as digits of the element number e. The prefix keeps a loop's own
 * indices apart from those of the rows around it, which may have the same names. */
void k_split_element(Kernel *k, const IndexId *axes, int n, const char *e, const char *prefix)
{
    Module *m = k->p->m;
    const Poly *stride = poly_const(m, 1);
    for (int i = n - 1; i >= 0; i--) {
        const char *name = k_text(k, "%s_%s", prefix, m->indices.data[axes[i]].name);
        for (int j = i + 1; j < n; j++)
            if (k->index[axes[j]] && strcmp(k->index[axes[j]], name) == 0)
                name = k_text(k, "%s_%d", name, i);
        const Poly *extent = m->indices.data[axes[i]].extent;
        const char *digit = e;
        if (!(stride->is_const && stride->value == 1))
            digit = k_text(k, "%s / %s", digit, k_poly(k, stride));
        if (i > 0)
            digit = k_text(k, "%s %% %s", digit, k_poly(k, extent));
        buf_line(k->out, "[[maybe_unused]] const int64_t %s = %s;", name, digit);
        k->index[axes[i]] = name;
        stride = poly_mul(m, stride, extent);
    }
}

/* Arrays of one group may name their axes differently: each position has one loop index. */
void k_keep_axes(Kernel *k, NodeId first)
{
    for (int i = 0; i < k->g->naxes; i++)
        k->own[i] = k->index[k_node(k, first)->axes[i]];
}

void k_bind_axes(Kernel *k, NodeId array)
{
    const Node *a = k_node(k, array);
    for (int i = 0; i < k->g->naxes; i++)
        k->index[a->axes[i + (k->g->along && a->naxes > k->g->naxes && i >= k->g->along - 1)]] = k->own[i];
    UnitWalk *w = k->walk;
    for (int i = 0; w && i < k->g->naxes; i++) {
        IndexId axis = k_node(k, array)->axes[i];
        w->meaning[axis] = ix_index(k->p->m, w->units[i]);
    }
}

void k_prefetches(Kernel *k, const char *index)
{
    int kept = 0, n = k->prefetches.len;
    bool open = false;
    for (int i = 0; i < n; i++) {
        const char *prefetch = k->prefetches.data[i];
        if (index && !strstr(prefetch, index)) {
            k->prefetches.data[kept++] = prefetch;
            continue;
        }
        if (!open)
            k_open(k, k->pr->dir == FORWARD ? "if (%s + 1 < dim_T)" : "if (%s > 0)", k->t);
        open = true;
        buf_line(k->out, "%s", prefetch);
    }
    if (open)
        k_close(k);
    k->prefetches.len = kept;
}

/* ---- the loop over neighbours ---- */

/* What is printed from here on is for one neighbour u of a vector. */
void k_wide_begin(Kernel *k, IndexId along, Buf *inner)
{
    Buf *out = k->out;
    const char *name = k_text(k, "i_%s", k->p->m->indices.data[along].name);
    k->loads = k->stores = (Buf){ .arena = out->arena, .indent = out->indent };
    k->hoists = *inner = buf_like(out);
    k->hoists.indent--;
    k->here.len = 0;
    k->wide = k_width(k);
    k->along = name;
    k->index[along] = name;
    k->out = inner;
    buf_line(inner, "CELL_UNROLL");
    k_open(k, "for (int u = 0; u < %s; u++)", k->n);
    buf_line(inner, "[[maybe_unused]] const int64_t %s = e + u;", name);
}

/* Prints what was collected, but for what goes before the loop that reads vectors (k->hoists). */
void k_wide_end(Kernel *k, Buf *out, const Buf *inner)
{
    k_close(k);
    k->wide = 0;
    k->out = out;
    buf_f(out, "%s%s%s", k->loads.data ? k->loads.data : "", inner->data,
          k->stores.data ? k->stores.data : "");
}

/* ---- the whole ---- */

Kernel kernel_new(Plan *p, Program *pr, Group *g, RefVec *refs, Buf *out)
{
    static const KernelHooks none = { 0 };
    Kernel k = { .p = p, .pr = pr, .g = g, .refs = refs, .out = out, .hooks = &none };
    k.real = p->compute == DT_F64 ? "double" : "float";
    k.indices = p->m->indices.len + 64;
    k.values = p->m->nodes.len + 64;
    k.index = arena_alloc(p->m->arena, sizeof *k.index * (size_t)k.indices);
    k.beyond = arena_alloc(p->m->arena, sizeof *k.beyond * (size_t)k.indices);
    k.value = arena_alloc(p->m->arena, sizeof *k.value * (size_t)k.values);
    k.printer = (ExprPrinter){ .m = p->m, .real = k.real, .leaf = k_leaf, .index = k_index, .known = k_known,
                               .reciprocal = k_reciprocal, .rounded = p->from_product, .n_rounded = p->n_nodes,
                               .fast = p->dtype == DT_BF16 || p->dtype == DT_F16,
                               .fuse = p->attains ? FUSE_WRITTEN : FUSE_FREELY };
    k.b = k.t = "0";
    return k;
}

/* What the kernel was printed with; what was printed stays. */
void kernel_release(Kernel *k)
{
    Arena *a = k->p->m->arena;
    arena_release(a, k->index, sizeof *k->index * (size_t)k->indices);
    arena_release(a, k->value, sizeof *k->value * (size_t)k->values);
}

void emit_group(Plan *p, Program *pr, Group *g, Buf *out)
{
    Kernel k = kernel_new(p, pr, g, &g->refs, out);
    switch (g->kind) {
    case G_MAP: emit_map(&k); break;
    case G_ROW:
        (g->pass ? g->pass_by->print : g->past ? emit_past : g->along ? emit_apart : emit_row)(&k);
        break;
    case G_COLUMN:
        if (!g->by_rows)
            emit_column_sums(&k);
        kernel_release(&k);
        k = kernel_new(p, pr, g, &g->refs_2, out);
        emit_column_totals(&k);
        break;
    case G_SCATTER: case G_GEMM: case G_UNITS: break;
    case G_WALK: buf_f(out, "%s", g->walk->cuda.data ? g->walk->cuda.data : ""); break;
    }
    kernel_release(&k);
}
