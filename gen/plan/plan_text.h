/* plan_text.h: words of the text form of a plan, for plan_text.c, which prints it, and plan_read.c, which reads it. */
#ifndef CELLC_PLAN_TEXT_H
#define CELLC_PLAN_TEXT_H

#include <stddef.h>

#include "plan_pass.h"

/* A field of a struct that is true or not, or a number that is 0 where nothing is to be said, by its word. */
typedef struct Field {
    const char *word;
    size_t at;
} Field;
extern const Field plan_value_flags[]; /* bool * of a Plan, per node; a NULL word ends each of these lists */
extern const Field plan_buffer_flags[]; /* bool of a Buffer */
extern const Field plan_buffer_numbers[]; /* int of a Buffer */
extern const Field plan_group_flags[]; /* bool of a Group */
extern const Field plan_group_numbers[]; /* int of a Group */
extern const Field plan_scatter_numbers[]; /* int of a Scatter */
extern const Field plan_carried[]; /* int * of a Program, per tensor; -1: there is none */
extern const char *const plan_phase_words[]; /* behind the last: "between", a number */
extern const char *const plan_home_words[];
extern const char *const plan_kind_words[];
extern const char *const plan_calls_words[];

#define FIELD(type, of, f) (*(type *)(void *)((char *)(uintptr_t)(of) + (f)->at))

#endif
