/* scan_forms.c: grids and conditions of the kernels of schedule scan, as formulas over the sizes of a call. */
#include "scan.h"

/* Few units that have many steps. Sizes alone decide, so that no sum's order depends on the device. */
const Formula *scan_chunks_pay(Module *m, const ScanWalk *w)
{
    const Formula *few = formula_with(m, F_LT, formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->units)), CHUNK_UNITS);
    return formula_and(m, few, formula(m, F_LE, formula_const(m, CHUNK_STEPS), formula_size(m, poly_dim(m, ATOM_T))));
}

/* Of 32 units, or of 64. */
static const Formula *paired_blocks(Module *m, const Formula *elements)
{
    const Formula *wide = formula(m, F_LE, formula_const(m, BLOCK_UNITS), elements);
    return formula(m, F_CEILDIV, elements, formula_with(m, F_MUL, formula_with(m, F_ADD, wide, 1), 32));
}

const Formula *scan_grid(Module *m, const ScanWalk *w)
{
    const Formula *elements = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->units));
    return w->pairs ? paired_blocks(m, elements) : formula_with(m, F_CEILDIV, elements, w->chunks ? 32 : SCAN_THREADS);
}
