/* map.c: schedule map. It takes every cell that has no state: kernels and products for all steps at once. */
#include "schedule/schedule.h"

const Schedule map_schedule = {
    .name = "map",
    .what = "the cell has no state: every value is computed for all steps at once",
    .what_on_cpu = "kernels and products for all steps",
    .stateless = true,
    .packed = true,
    .plain_past = true,
};
