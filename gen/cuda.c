/* cuda.c: the fast path of one instance. In: a spec and the settings of its compilation, whose reference was
 * compiled before; out: the plan, and the two texts of the CUDA side (kernels, and the host file with the
 * launch plans). What the reference's compilation has said already is not said again. */
#include "commands.h"
#include "plan.h"

Plan *cuda_plan(Compiler *c, const char *spec, const char *prefix)
{
    int said = c->diags.len;
    Module *m = compile(c, spec, fast_passes);
    if (!m)
        return NULL;
    if (prefix)
        m->name = prefix;
    if (said)
        c->diags.len = said;
    return plan_make(m, c->dtype, c->schedule);
}
