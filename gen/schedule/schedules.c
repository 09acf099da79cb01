/* schedules.c: the table of the schedules. To add one is to write its folder, and its name twice here. */
#include <string.h>

#include "schedule.h"

extern const Schedule steps_schedule, map_schedule, tile_schedule, gemm_schedule, scan_schedule,
    window_schedule, block_schedule, chunk_schedule, attention_schedule;

const Schedule *const schedules[] = {
    &steps_schedule,  &map_schedule,   &tile_schedule,  &gemm_schedule,      &scan_schedule,
    &window_schedule, &block_schedule, &chunk_schedule, &attention_schedule, NULL
};

const Schedule *const schedule_order[] = { &tile_schedule,  &scan_schedule,   &gemm_schedule, &block_schedule,
                                           &steps_schedule, &window_schedule, &map_schedule,  NULL };

enum { COUNT = sizeof schedules / sizeof *schedules - 1 };

int schedule_count(void)
{
    return COUNT;
}

const Schedule *schedule_named(const char *name)
{
    for (int i = 0; i < COUNT; i++)
        if (strcmp(schedules[i]->name, name) == 0)
            return schedules[i];
    return NULL;
}

const char *const *schedule_choices(void)
{
    static const char *choices[COUNT + 2] = { "auto" };
    for (int i = 0; i < COUNT; i++)
        choices[i + 1] = schedules[i]->name;
    return choices;
}

const Schedule *schedule_that_cuts(bool stateless)
{
    int i = 0;
    while (!schedules[i]->cut || schedules[i]->stateless != stateless)
        i++;
    return schedules[i];
}

const Schedule *schedule_plain(bool stateless)
{
    return stateless ? &map_schedule : &steps_schedule;
}

const PastPass *schedule_pass(void)
{
    const PastPass *pass = NULL;
    for (int i = 0; i < COUNT && !pass; i++)
        pass = schedules[i]->pass;
    return pass;
}

const char *schedule_word(const Schedule *s)
{
    return s ? s->name : "auto";
}

int schedule_number(const Schedule *s)
{
    for (int i = 0; i < COUNT; i++)
        if (schedules[i] == s)
            return i;
    return -1;
}
