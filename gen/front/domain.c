/* domain.c: what stands behind the `in` of an input, a param or a state. In: the declaration and its scope,
 * and the tensor with its type and its initialiser. Out: the tensor's range, or that tests give what the cell
 * gives. Guaranteed: a range is not empty, and one of an integer has a whole number in it. A range is what a
 * caller promises and tests draw from: no code depends on it. */
#include <math.h>
#include <string.h>

#include "flat.h"

static bool read_end(Flat *f, const Expr *e, const Scope *scope, double *out)
{
    Constant v;
    if (!fold_constant(f, e, scope, NULL, &v)) {
        FLAT_NOTE(f, e->span, "a range is one for all calls, whatever their sizes: its ends are numbers; an integer may "
                  "have a wider one, as a read outside of an axis is 0");
        return false;
    }
    if (v.is_name || isnan(v.num)) {
        FLAT_ERROR(f, NULL, e->span, "an end of a range is a number");
        return false;
    }
    *out = v.num;
    return true;
}

/* Numbers that the type can hold: of a range of integers the whole ones. */
static bool has_numbers(const Range *r, Dtype type)
{
    if (type != DT_I32)
        return r->low < r->high;
    double first = r->above ? floor(r->low) + 1 : ceil(r->low), last = r->below ? ceil(r->high) - 1 : floor(r->high);
    return fmax(first, INT32_MIN) <= fmin(last, INT32_MAX);
}

static bool starts_outside(const Tensor *t, const Range *r)
{
    const char *init = t->init ? t->init : t->rank > 1 ? "xavier" : "zeros";
    const double *v = t->init_arg;
    if (t->init && (t->init_text[0] || t->init_text[1]))
        return false;                   /* known when the sizes are */
    if (strcmp(init, "const") == 0)
        return !range_has(r, v[0]);
    if (strcmp(init, "uniform") == 0)
        return v[0] < r->low || v[1] > r->high;
    if (strcmp(init, "normal") == 0)
        return v[0] - v[1] < r->low || v[0] + v[1] > r->high;
    bool zero = strcmp(init, "ones") != 0, one = strcmp(init, "ones") == 0 || strcmp(init, "eye") == 0;
    if (strcmp(init, "xavier") == 0 || strcmp(init, "orthogonal") == 0)
        return r->low >= 0 || r->high <= 0;
    return (zero && !range_has(r, 0)) || (one && !range_has(r, 1));
}

static void warn_of_start(Flat *f, const Stmt *s, const Tensor *t)
{
    const char *range = range_text(f->c, t->range);
    if (s->kind == S_PARAM && starts_outside(t, t->range))
        diag(f->c, DIAG_WARNING, s->init ? s->init->span : s->name_span,
             "param '%s' starts%s%s outside of its range %s", s->name, s->init ? "" : t->rank > 1 ? " as xavier," : " as zeros,",
             t->init && (strcmp(t->init, "normal") == 0 || strcmp(t->init, "uniform") == 0 || strcmp(t->init, "xavier") == 0)
                 ? " in part" : "", range);
    if (s->kind == S_STATE && !s->init && !range_has(t->range, 0))
        diag(f->c, DIAG_WARNING, s->name_span, "state '%s' starts at 0, outside of its range %s; give it an initial value",
             s->name, range);
}

void read_domain(Flat *f, const Stmt *s, const Scope *scope, Tensor *t)
{
    const Domain *d = s->domain;
    if (!d)
        return;
    t->reach = d->reach;
    if (d->reach)
        return;
    Range *r = arena_alloc(f->c->arena, sizeof *r);
    *r = (Range){ .above = d->above, .below = d->below };
    bool low = read_end(f, d->low, scope, &r->low), high = read_end(f, d->high, scope, &r->high);
    if (!low || !high)
        return;
    if (t->complex) {
        FLAT_ERROR(f, NULL, d->span, "complex values have no order, so '%s' has no range", s->name);
        return;
    }
    if (!has_numbers(r, t->dtype)) {
        FLAT_ERROR(f, NULL, d->span, t->dtype == DT_I32 && r->low < r->high ? "there is no integer of 32 bits in the range %s"
                                                                            : "the range %s is empty", range_text(f->c, r));
        return;
    }
    t->range = r;
    warn_of_start(f, s, t);
}
