/* emit_api.h: what the header, the host file and the manifest of one cell must agree on. */
#ifndef EMIT_API_H
#define EMIT_API_H

#include "emit/emit.h"
#include "ir/arguments.h"

/* The arguments of a direction with the names that they have as members. */
typedef struct ApiMembers { CallArgs args; const char **name; } ApiMembers;
ApiMembers api_forward(const Module *m);
ApiMembers api_backward(const Module *m);
const char *api_type(const Tensor *t);                            /* of an element: "bf16", "c64" */
const char *api_dtype(Dtype t);                                   /* "bf16" */
const char *api_shape(const Module *m, TensorId t);               /* "[B, T, 4*N]" */
bool api_written(const Module *m, CallArg a);
bool api_counts_steps(const Module *m); /* must a call that continues another say t0? */
const char *api_key(const Module *m);                             /* "e79:N=64,bias=input,dtype=bf16" */

#endif
