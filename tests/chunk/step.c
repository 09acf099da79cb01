/* step.c: the normal form that schedule/chunk proves, against the step that it was found in. Arguments:
 * a spec and its settings, `random COUNT DIR`, or `faults COUNT DIR`, which breaks the forms of random
 * cells and must see it. The form's expressions are evaluated by themselves, with the component's own
 * states unknown (NaN), and put together by equation (1) of chunk.h; the step is evaluated from its IR.
 * Next states must agree to 1e-12, and so must outputs and other components' next states when each sum
 * that a read stands for is replaced by the read, and the states are unknown. Then the form is walked in
 * chunks of steps (chunked.c). Prints the verdict, what is wrong, and as its last line what passed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/options.h"
#include "commands/random_cell.h"
#include "formed.h"
#include "front/front.h"
#include "pipeline.h"

static int passed, failed;
static bool quiet;                /* what is wrong is wanted so */

/* ---- against the step ---- */

static bool read_instead(Values *v, NodeId id, double *x)
{
    Formed *f = v->data;
    const ChunkComponent *k = f->k;
    for (int r = 0; r < k->reads.len; r++)
        for (int s = 0; s < k->reads.data[r].sums.len; s++) {
            const ChunkSum *sum = &k->reads.data[r].sums.data[s];
            if (sum->node != id)
                continue;
            for (int i = 0; i < v->m->nodes.data[id].naxes; i++)
                f->factors.place[v->m->nodes.data[id].axes[i]] = v->place[v->m->nodes.data[id].axes[i]];
            for (int i = 0; i < k->rank; i++)
                if (sum->places[i])
                    f->factors.place[k->axes[i]] = values_index(v, sum->places[i]);
            *x = formed_read(f, &k->reads.data[r]);
            return true;
        }
    return false;
}

/* Does a root have the same values in both? */
static bool same_root(Values *a, Values *b, NodeId root, const char *name, const char *what)
{
    const Node n = a->m->nodes.data[root];
    size_t all = 1;
    for (int i = 0; i < n.naxes; i++)
        all *= (size_t)values_extent(a, n.axes[i]);
    for (size_t at = 0; at < all; at++) {
        size_t rest = at;
        for (int i = n.naxes; i-- > 0;) {
            size_t extent = (size_t)values_extent(a, n.axes[i]);
            a->place[n.axes[i]] = b->place[n.axes[i]] = (int64_t)(rest % extent);
            rest /= extent;
        }
        double x = values_of(a, root), y = values_of(b, root);
        if (!formed_near(x, y) || !isfinite(x)) {
            if (!quiet)
                printf("  %s of `%s`, element %zu: %.17g of the step, %.17g of its form\n", what, name, at, x,
                       y);
            return false;
        }
    }
    return true;
}

static bool check_next(Formed *f, Values *step)
{
    const ChunkComponent *k = f->k;
    for (int a = 0; a < k->nstates; a++) {
        NodeId next = step->m->roots.data[k->states[a]].next;
        const Node n = step->m->nodes.data[next];
        for (size_t at = 0; at < f->places; at++) {
            formed_go(f, at);
            for (int i = 0; i < k->rank; i++)
                step->place[n.axes[i]] = f->factors.place[k->axes[i]];
            double x = values_of(step, next), y = f->level[k->updates.len * k->nstates + a][at];
            if (!formed_near(x, y) || !isfinite(x)) {
                if (!quiet)
                    printf("  next `%s`, element %zu: %.17g of the step, %.17g of its form\n",
                           step->m->tensors.data[k->states[a]].name, at, x, y);
                return false;
            }
        }
    }
    return true;
}

static bool is_own(const ChunkComponent *k, TensorId t)
{
    for (int i = 0; i < k->nstates; i++)
        if (k->states[i] == t)
            return true;
    return false;
}

/* What is above the reads, without the states. */
static bool check_above(Formed *f, Values *step)
{
    Values above = values_again(step);
    const Module *m = step->m;
    above.instead = read_instead;
    above.data = f;
    for (int i = 0; i < f->k->nstates; i++)
        above.poisoned[f->k->states[i]] = true;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (m->roots.data[t].output >= 0 &&
            !same_root(step, &above, m->roots.data[t].output, m->tensors.data[t].name, "output"))
            return false;
        if (m->roots.data[t].next >= 0 && !is_own(f->k, t) &&
            !same_root(step, &above, m->roots.data[t].next, m->tensors.data[t].name, "next"))
            return false;
    }
    return true;
}

/* Has the proof built a form, also of what is no matter of chunks? */
static bool has_form(const ChunkComponent *k)
{
    return k->verdict != CHUNK_REFUSED && k->key >= 0;
}

/* False where no sizes are found, too. */
static bool is_step(const ChunkForm *form, const ChunkComponent *k, uint64_t seed)
{
    Values step;
    if (!values_begin(&step, form->m, seed))
        return false;
    Formed f = formed_begin(k, &step);
    formed_from_loads(&f);
    return check_next(&f, &step) && check_above(&f, &step);
}

static void check_component(const ChunkForm *form, const ChunkComponent *k, uint64_t seed, const char *what)
{
    bool ok = is_step(form, k, seed);
    if (!ok)
        printf("%s: the form is not the step\n", what);
    ok ? passed++ : failed++;
}

/* The form C steps at a time, which is what it is for. */
static void check_chunks(const ChunkForm *form, const ChunkComponent *k, const char *what)
{
    static const int chunks[] = { 1, 2, 3, 16 };
    Values step;
    bool ok = values_begin(&step, form->m, 1);
    for (int i = 0; i < 4 && ok; i++)
        ok = chunks_agree(k, &step, chunks[i], quiet);
    if (!ok)
        printf("%s: chunks of steps are not the steps\n", what);
    ok ? passed++ : failed++;
}

/* ---- specs ---- */

typedef struct Settings { const char *spec; int argc; char **argv; } Settings;

/* With `bound`, every dim that it says gets a small value. */
static Module *compile_step(Compiler *c, const Settings *s, const Module *bound)
{
    static const char *const sizes[] = { "3", "4", "5", "2", "6" };
    for (int i = 0; bound && i < bound->bound.len; i++) {
        Setting x = { intern(c, bound->bound.data[i].name), intern(c, sizes[i % 5]), false };
        vec_push(c->arena, &c->dims, x);
    }
    for (int i = 0; i < s->argc; i++) {
        const char *eq = strchr(s->argv[i], '=');
        c->lengths |= strcmp(s->argv[i], "--lengths") == 0;
        c->reverse |= strcmp(s->argv[i], "--reverse") == 0;
        c->dtype = strcmp(s->argv[i], "bf16") == 0 ? DT_BF16 : c->dtype;
        if (!eq)
            continue;
        Setting x = { intern_n(c, s->argv[i], (size_t)(eq - s->argv[i])), intern(c, eq + 1), false };
        if (strcmp(s->argv[i - 1], "--set") == 0)
            vec_push(c->arena, &c->sets, x);
        else if (!bound)
            vec_push(c->arena, &c->dims, x);
    }
    Module *m = compile(c, s->spec, step_passes);
    if (!m)
        diag_print(c, stdout);
    return m;
}

static void show(const Module *m, const ChunkForm *f)
{
    Buf words = { .arena = m->arena };
    chunk_words(f, &words);
    if (words.data)
        fwrite(words.data, 1, words.len, stdout);
}

static void check_form(const ChunkForm *f, const char *what)
{
    for (int i = 0; i < f->ncomponents; i++) {
        if (!has_form(&f->components[i]))
            continue;
        for (uint64_t seed = 1; seed <= 2; seed++)
            check_component(f, &f->components[i], seed, what);
        check_chunks(f, &f->components[i], what);
    }
}

/* The verdict of the spec as it is, and its form at other sizes. */
static void spec(int argc, char **argv)
{
    Settings s = { argv[1], argc - 2, argv + 2 };
    Compiler *c = compiler_new(), *d = compiler_new();
    c->library_dir = d->library_dir = "specs";
    Module *m = compile_step(c, &s, NULL), *small = m ? compile_step(d, &s, m) : NULL;
    if (m && small) {
        ChunkForm f = chunk_find(m), g = chunk_find(small);
        show(m, &f);
        check_form(&g, s.spec);
        for (int i = 0; i < f.ncomponents; i++) {
            bool same = f.components[i].verdict == g.components[i].verdict;
            same ? passed++ : failed++;
            if (!same)
                printf("  %s: another verdict at other sizes\n", s.spec);
        }
    } else {
        failed++;
    }
    compiler_free(c);
    compiler_free(d);
}

/* ---- random cells ---- */

static void write_file(const char *path, const Buf *text)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text->data, 1, text->len, f) != text->len || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

/* What is linear must qualify, and be its form; with one term more, it must be refused for that term. */
static void random_one(uint64_t seed, bool spoiled, const char *dir)
{
    Compiler *c = compiler_new();
    Buf text = { .arena = c->arena };
    const char *reason = random_linear_cell(c, seed, spoiled, &text);
    Settings s = { intern_f(c, "%s/linear_%llu%s.cell", dir, (unsigned long long)seed, spoiled ? "_not" : ""),
                   0, NULL };
    write_file(s.spec, &text);
    Module *m = compile_step(c, &s, NULL);
    bool ok = m != NULL;
    if (m) {
        ChunkForm f = chunk_find(m);
        bool qualifies = true, says = false;
        for (int i = 0; i < f.ncomponents; i++) {
            const ChunkComponent *k = &f.components[i];
            qualifies &= k->verdict == CHUNK_QUALIFIES || k->verdict == CHUNK_COLUMN ||
                         (k->elements && k->rank <= 1);       /* a running maximum */
            says |= reason && k->verdict == CHUNK_REFUSED && strstr(k->why, reason);
        }
        ok = spoiled ? says : qualifies;
        if (!ok) {
            printf("%s: wanted %s%s, got\n", s.spec, reason ? "refused, " : "chunks", reason ? reason : "");
            show(m, &f);
        }
        check_form(&f, s.spec);
    }
    ok ? passed++ : failed++;
    compiler_free(c);
}

/* ---- faults */

static bool lose(Module *m, NodeId *x)
{
    NodeId one = node_const(m, 1);
    bool other = *x >= 0 && *x != one;
    *x = one;
    return other;
}

static bool empty(ChunkVectors *x)
{
    bool any = x->len > 0;
    x->len = 0;
    return any;
}

static bool swap(NodeId *a, NodeId *b)
{
    NodeId x = *a;
    *a = *b;
    *b = x;
    return *a != *b;
}

enum { FAULTS = 14 };

/* Breaks the form in one place; false: there is nothing of the kind in it. */
static bool break_form(Module *m, ChunkComponent *k, int fault)
{
    ChunkUpdate *u = &k->updates.data[0];
    ChunkAddition *a = u->additions.len ? &u->additions.data[u->additions.len - 1] : NULL;
    ChunkPart *part = k->reads.len && k->reads.data[0].parts.len ? &k->reads.data[0].parts.data[0] : NULL;
    int n = k->nstates;
    switch (fault) {
    case 0: return a && lose(m, &a->columns.data[0].number);
    case 1: return a && lose(m, &a->columns.data[0].vector);
    case 2: return a && empty(&a->known);
    case 3: return a && empty(&a->weights);
    case 4: return a && a->weights.len && lose(m, &a->weights.data[0].vector);
    case 5: return a && a->weights.len && lose(m, &a->weights.data[0].number);
    case 6: return lose(m, &u->decay[0]);
    case 7: return u->per_value >= 0 && lose(m, &u->per_value);
    case 8: return part && lose(m, &part->weight.vector);
    case 9:
        if (part)
            part->update = part->update ? 0 : k->updates.len;
        return part;
    case 10: return part && lose(m, &part->weight.number);
    case 11: {
        ChunkUpdate x = *u;
        if (k->updates.len > 1) {
            *u = k->updates.data[1];
            k->updates.data[1] = x;
        }
        return k->updates.len > 1;
    }
    case 12: return n > 1 && swap(&u->decay[1], &u->decay[n]);
    default:
        if (a && n > 1)
            a->columns.data[0].state = (a->columns.data[0].state + 1) % n;
        return a && n > 1;
    }
}

/* Every fault in every cell that has a place for it must be seen, and each fault in some cell. */
static void check_faults(uint64_t cells, const char *dir)
{
    quiet = true;
    for (int fault = 0; fault < FAULTS; fault++) {
        int there = 0, seen = 0;
        for (uint64_t seed = 1; seed <= cells; seed++) {
            Compiler *c = compiler_new();
            Buf text = { .arena = c->arena };
            random_linear_cell(c, seed, false, &text);
            Settings s = { intern_f(c, "%s/fault.cell", dir), 0, NULL };
            write_file(s.spec, &text);
            ChunkForm f = chunk_find(compile_step(c, &s, NULL));
            ChunkComponent *k = &f.components[f.ncomponents - 1];
            if (has_form(k) && break_form(f.m, k, fault)) {
                there++;
                bool same = true;
                for (uint64_t values = 1; values <= 5 && same; values++)      /* a gate of 0 may hide one */
                    same = is_step(&f, k, values);
                seen += !same;
            }
            compiler_free(c);
        }
        bool ok = there > 0 && seen == there;
        ok ? passed++ : failed++;
        if (!ok)
            printf("fault %d is seen in %d of %d cells\n", fault, seen, there);
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "random") == 0)
        for (uint64_t seed = 1; seed <= strtoull(argv[2], NULL, 10); seed++)
            for (int spoiled = 0; spoiled < 2; spoiled++)
                random_one(seed, spoiled, argv[3]);
    else if (argc == 4 && strcmp(argv[1], "faults") == 0)
        check_faults(strtoull(argv[2], NULL, 10), argv[3]);
    else
        spec(argc, argv);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
