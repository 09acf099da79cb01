/* request.c: from the settings of a compilation to what a plan is asked for. */
#include "request.h"

Request request_of(const Compiler *c)
{
    return (Request){ .dtype = c->dtype, .schedule = c->schedule, .hints = c->hints,
                      .products = c->products, .archs = c->archs };
}
