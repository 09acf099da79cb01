/* arguments.c: the arguments of a generated call. In: a module. Out: the tensors that a direction takes and
 * gives, in the one order that header, launch plans, manifest and bindings share. */
#include "arguments.h"

bool wants_gradient(const Module *m, TensorId t)
{
    const Tensor *x = &m->tensors.data[t];
    bool between = x->kind == T_INPUT && x->chunk;
    bool may = x->kind == T_INPUT || x->kind == T_PARAM || x->kind == T_STATE || x->kind == T_HISTORY;
    return may && !x->no_grad && !between;
}

Dtype gradient_type(const Module *m, TensorId t)
{
    Dtype own = m->tensors.data[t].dtype;
    return dtype_is_fp8(own) ? m->c->dtype : own;
}

Dtype argument_type(const Module *m, const CallArg *a)
{
    return a->role == ROLE_D_VALUE ? gradient_type(m, a->tensor) : m->tensors.data[a->tensor].dtype;
}

static void add_group(const Module *m, CallArgs *args, TensorKind kind, ArgRole role, bool optional)
{
    for (TensorId t = 0; t < m->tensors.len; t++) {
        CallArg a = { t, role, optional };
        if (m->tensors.data[t].kind == kind && (kind == T_STATE || !m->tensors.data[t].chunk))
            vec_push(m->arena, args, a);
    }
}

CallArgs forward_arguments(const Module *m)
{
    CallArgs args = { NULL, 0, 0 };
    add_group(m, &args, T_INPUT, ROLE_VALUE, false);
    add_group(m, &args, T_PARAM, ROLE_VALUE, false);
    add_group(m, &args, T_STATE, ROLE_VALUE, true);
    add_group(m, &args, T_HISTORY, ROLE_VALUE, true);
    add_group(m, &args, T_OUTPUT, ROLE_VALUE, false);
    add_group(m, &args, T_STATE, ROLE_FINAL, true);
    add_group(m, &args, T_HISTORY, ROLE_FINAL, true);
    return args;
}

CallArgs backward_arguments(const Module *m)
{
    CallArgs args = { NULL, 0, 0 };
    add_group(m, &args, T_INPUT, ROLE_VALUE, false);
    add_group(m, &args, T_PARAM, ROLE_VALUE, false);
    add_group(m, &args, T_STATE, ROLE_VALUE, true);
    add_group(m, &args, T_HISTORY, ROLE_VALUE, true);
    add_group(m, &args, T_OUTPUT, ROLE_D_OUT, true);
    add_group(m, &args, T_STATE, ROLE_D_FINAL, true);
    add_group(m, &args, T_HISTORY, ROLE_D_FINAL, true);
    add_group(m, &args, T_INPUT, ROLE_D_VALUE, true);
    add_group(m, &args, T_PARAM, ROLE_D_VALUE, true);
    add_group(m, &args, T_STATE, ROLE_D_VALUE, true);
    add_group(m, &args, T_HISTORY, ROLE_D_VALUE, true);
    return args;
}

int call_arg_find(const CallArgs *args, TensorId t, ArgRole role)
{
    for (int i = 0; i < args->len; i++)
        if (args->data[i].tensor == t && args->data[i].role == role)
            return i;
    return -1;
}
