/* steps.c: schedule steps. It takes every cell that has a state: states lie in memory, and a step is a
 * sequence of kernels, which the planner and the printers of kernels make without a word from a schedule. */
#include "schedule/schedule.h"

const Schedule steps_schedule = {
    .name = "steps",
    .last_resort = true,
    .what = "the states lie in memory, each step is a sequence of kernels",
    .what_on_cpu = "kernels and products for each step",
};
