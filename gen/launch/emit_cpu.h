/* emit_cpu.h: launch plans for the CPU (emit_cpu.c), beside emit_plan.h. */
#ifndef CELLC_EMIT_CPU_H
#define CELLC_EMIT_CPU_H

#include "cpu/cpu.h"
#include "emit_plan.h"

/* Items of a piece, of which each is so much work; NULL: "NULL". */
const char *emit_cpu_grain(Print *e, const Formula *work);
void emit_cpu_group(Print *e, const Group *g);
/* The launch of state kernel `which`, and of history i; own: when. */
void emit_cpu_states(Print *e, const Group *own, int which);
void emit_cpu_history(Print *e, const Group *own, int i);

#endif
