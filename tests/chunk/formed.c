/* formed.c: the normal form of a component, put together by equation (1) of schedule/chunk/chunk.h from
 * the values of its expressions, which are evaluated where the component's own states are no numbers. */
#include "formed.h"

#include <math.h>
#include <string.h>

bool formed_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(1, fmax(fabs(a), fabs(b)));
}

/* ---- places of the component's axes ---- */

static size_t places_of(const Formed *f)
{
    size_t n = 1;
    for (int i = 0; i < f->k->rank; i++)
        n *= (size_t)values_extent(&f->factors, f->k->axes[i]);
    return n;
}

void formed_go(Formed *f, size_t at)
{
    for (int i = f->k->rank; i-- > 0;) {
        size_t extent = (size_t)values_extent(&f->factors, f->k->axes[i]);
        f->factors.place[f->k->axes[i]] = (int64_t)(at % extent);
        at /= extent;
    }
}

/* Where it is, with another key. */
size_t formed_at_key(const Formed *f, int64_t key)
{
    size_t at = 0;
    for (int i = 0; i < f->k->rank; i++) {
        IndexId x = f->k->axes[i];
        at =
            at * (size_t)values_extent(&f->factors, x) + (size_t)(i == f->k->key ? key : f->factors.place[x]);
    }
    return at;
}

/* ---- equation (1) ---- */

double formed_vector(Formed *f, const ChunkVector *x)
{
    return values_of(&f->factors, x->number) * values_of(&f->factors, x->vector);
}

/* sum over keys of vector * S, times number. */
static double summed(Formed *f, const ChunkVector *x, int level)
{
    const double *s = f->level[level * f->k->nstates + x->state];
    IndexId mixed = f->k->mixed;
    double sum = 0;
    for (int64_t j = 0; j < values_extent(&f->factors, mixed); j++) {
        f->factors.place[mixed] = j;
        sum += values_of(&f->factors, x->vector) * s[formed_at_key(f, j)];
    }
    return values_of(&f->factors, x->number) * sum;
}

static double updated(Formed *f, int u, int to, size_t at)
{
    const ChunkComponent *k = f->k;
    const ChunkUpdate *x = &k->updates.data[u];
    double sum = 0;
    formed_go(f, at);
    for (int from = 0; from < k->nstates; from++)
        if (x->decay[to * k->nstates + from] >= 0)
            sum += values_of(&f->factors, x->decay[to * k->nstates + from]) *
                   f->level[u * k->nstates + from][at];
    if (x->per_value >= 0)
        sum *= values_of(&f->factors, x->per_value);
    for (int i = 0; i < x->additions.len; i++) {
        const ChunkAddition *a = &x->additions.data[i];
        double row = 0;
        for (int n = 0; n < a->known.len; n++)
            row += formed_vector(f, &a->known.data[n]);
        for (int n = 0; n < a->weights.len; n++)
            row += summed(f, &a->weights.data[n], u);
        for (int n = 0; n < a->columns.len; n++)
            if (a->columns.data[n].state == to)
                sum += formed_vector(f, &a->columns.data[n]) * row;
    }
    return sum;
}

static void update_all(Formed *f)
{
    const ChunkComponent *k = f->k;
    for (int u = 0; u < k->updates.len; u++)
        for (int a = 0; a < k->nstates; a++)
            for (size_t at = 0; at < f->places; at++)
                f->level[(u + 1) * k->nstates + a][at] = updated(f, u, a, at);
}

Formed formed_begin(const ChunkComponent *k, const Values *step)
{
    Arena *arena = step->m->arena;
    Formed f = { .k = k, .factors = values_again(step) };
    for (int i = 0; i < k->nstates; i++)
        f.factors.poisoned[k->states[i]] = true;
    f.places = places_of(&f);
    f.level = arena_alloc(arena, sizeof *f.level * (size_t)((k->updates.len + 1) * k->nstates));
    for (int i = 0; i < (k->updates.len + 1) * k->nstates; i++)
        f.level[i] = arena_alloc(arena, sizeof **f.level * (f.places + 1));
    return f;
}

void formed_from_loads(Formed *f)
{
    const ChunkComponent *k = f->k;
    Values loads = values_again(&f->factors);
    for (size_t at = 0; at < f->places; at++)
        for (int a = 0; a < k->nstates; a++) {
            int64_t places[32];
            formed_go(f, at);
            for (int i = 0; i < k->rank; i++)
                places[i] = f->factors.place[k->axes[i]];
            f->level[a][at] = values_load(&loads, k->states[a], places);
        }
    update_all(f);
}

void formed_from(Formed *f, double *const *states)
{
    for (int a = 0; a < f->k->nstates; a++)
        memcpy(f->level[a], states[a], sizeof **f->level * f->places);
    update_all(f);
}

double formed_read(Formed *f, const ChunkRead *r)
{
    double sum = r->known >= 0 ? values_of(&f->factors, r->known) : 0;
    for (int i = 0; i < r->parts.len; i++) {
        const ChunkPart *x = &r->parts.data[i];
        sum += summed(f, &x->weight, x->update) * (x->scale >= 0 ? values_of(&f->factors, x->scale) : 1);
    }
    return sum;
}
