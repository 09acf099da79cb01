/* range.c: ranges of real numbers. In: a range and a number. Out: whether it has the number, and its text. */
#include "range.h"

const char *range_text(Compiler *c, const Range *r)
{
    return intern_f(c, "%s%.9g, %.9g%s", r->above ? "(" : "[", r->low, r->high, r->below ? ")" : "]");
}

bool range_has(const Range *r, double v)
{
    return (r->above ? v > r->low : v >= r->low) && (r->below ? v < r->high : v <= r->high);
}
