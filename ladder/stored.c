/* stored.c: the instance's reference as users run it: in the type of the instance's arithmetic, on tensors as they are
 * stored. In: a case, whose wanted results the reference gave in double, from arguments in double. Out: a verdict per
 * written argument, and on what lies behind each. */
#include <string.h>

#include "ladder.h"
#include "reference.h"

int ladder_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int ladder_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t ladder_ref_reserve_bytes(const int64_t *sizes);
int ladder_rough_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int ladder_rough_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t ladder_rough_reserve_bytes(const int64_t *sizes);

/* The description of the case that is run. The runtime calls back without saying which. */
static const cell_desc *running;

static cell_status double_forward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    return cell_reference_run(running, 0, ladder_ref_forward, 8, sizes, args, reserve, flags);
}

static cell_status double_backward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    return cell_reference_run(running, 1, ladder_ref_backward, 8, sizes, args, reserve, flags);
}

static cell_status float_forward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    return cell_reference_run(running, 0, ladder_rough_forward, 4, sizes, args, reserve, flags);
}

static cell_status float_backward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    return cell_reference_run(running, 1, ladder_rough_backward, 4, sizes, args, reserve, flags);
}

static bool is_f64(const cell_desc *d)
{
    bool f64 = false;
    for (int i = 0; i < d->n_bindings; i++)
        f64 |= strcmp(d->bindings[i].name, "dtype") == 0 && strcmp(d->bindings[i].value, "f64") == 0;
    return f64;
}

void check_stored(Case *c)
{
    static cell_desc own;
    cell_context *ctx = c->ctx;
    const cell_desc *d = c->d;
    char message[256];
    own = *d;
    own.ref_forward = is_f64(d) ? double_forward : float_forward;
    own.ref_backward = is_f64(d) ? double_backward : float_backward;
    own.ref_reserve_bytes = is_f64(d) ? ladder_ref_reserve_bytes : ladder_rough_reserve_bytes;
    running = c->d = &own;
    if (cell_context_create(&c->ctx, CELL_BACKEND_REFERENCE, 0, message, sizeof message) != CELL_OK) {
        c->ctx = ctx;
        verdict(c, false, message, "reference backend");
    } else {
        check_against_reference(c, "reference on tensors as they are stored");
        cell_context_destroy(c->ctx);
    }
    c->ctx = ctx;
    c->d = d;
}
