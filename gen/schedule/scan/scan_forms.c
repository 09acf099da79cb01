/* scan_forms.c: grids and conditions of the kernels of schedule scan, as formulas over the sizes of a
 * call. */
#include "scan.h"

/* Few units that have many steps. Sizes alone decide, so that no sum's order depends on the device. */
static const Formula *chunks_pay(Module *m, const ScanWalk *w)
{
    const Formula *few = formula_with(m, F_LT, formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->units)),
                                      CHUNK_UNITS);
    return formula_and(m, few,
                       formula(m, F_LE, formula_const(m, CHUNK_STEPS), formula_size(m, poly_dim(m, ATOM_T))));
}

/* Of 32 units, or of 64. */
static const Formula *paired_blocks(Module *m, const Poly *units)
{
    const Formula *elements = formula_size(m, units);
    const Formula *wide = formula(m, F_LE, formula_const(m, BLOCK_UNITS), elements);
    return formula(m, F_CEILDIV, elements, formula_with(m, F_MUL, formula_with(m, F_ADD, wide, 1), 32));
}

static const Formula *grid(Module *m, const ScanWalk *w)
{
    const Poly *units = poly_mul(m, poly_dim(m, ATOM_B), w->units);
    return w->pairs ? paired_blocks(m, units) : form_blocks(m, units, w->chunks ? 32 : SCAN_THREADS);
}

static void add(const Plan *p, const ScanWalk *w, const char *words, const Formula *when, FormList *out)
{
    int64_t bytes = scan_shared(p, w) * (p->compute == DT_F64 ? 8 : 4) + w->staged;
    Form f = { .kernel = w->kernel,
               .refs = &w->refs,
               .words = words,
               .when = when,
               .grid = grid(p->m, w),
               .threads = scan_threads(w) };
    f.bytes = bytes ? formula_const(p->m, bytes) : NULL;
    vec_push(p->m->arena, out, f);
}

void scan_forms(const Plan *p, const Program *pr, FormList *out)
{
    const ScanWalks *w = scan_walks(pr);
    if (w->chunks)
        add(p, w->chunks, "a block walks chunks of the steps at once", chunks_pay(p->m, w->chunks), out);
    add(p, w->walk, "a thread walks all steps", NULL, out);
}
