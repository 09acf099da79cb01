/* arguments.h: the arguments of a generated call, in their one order (arguments.c). */
#ifndef CELLC_ARGUMENTS_H
#define CELLC_ARGUMENTS_H

#include "ir.h"

/* One argument of a generated call. Forward takes inputs, params, initial states, outputs, final states;
 * backward takes inputs, params, initial states, d outputs, d final states, d inputs, d params, d initial
 * states: each group in the order of declaration, each tensor with a slot (without gradient the slot is
 * ignored). */
typedef enum { ROLE_VALUE, ROLE_FINAL, ROLE_D_VALUE, ROLE_D_OUT, ROLE_D_FINAL } ArgRole;   /* as cell_role */
typedef struct CallArg { TensorId tensor; ArgRole role; bool optional; } CallArg;
typedef struct CallArgs { CallArg *data; int len, cap; } CallArgs;
CallArgs forward_arguments(const Module *m);
CallArgs backward_arguments(const Module *m);
int call_arg_find(const CallArgs *args, TensorId t, ArgRole role);            /* its number, -1: none */
/* How a gradient is stored: that of what is stored in 8 bits as --dtype says; and an argument. */
Dtype gradient_type(const Module *m, TensorId t);
Dtype argument_type(const Module *m, const CallArg *a);
bool wants_gradient(const Module *m, TensorId t); /* input, param or state with a gradient */

#endif
