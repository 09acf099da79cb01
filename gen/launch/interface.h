/* interface.h: the C interface of a generated cell: header, host functions, manifest. */
#ifndef CELLC_INTERFACE_H
#define CELLC_INTERFACE_H

#include "ir/ir.h"

/* emit_header.c: the C API of the generated library; emit_manifest.c: the JSON that bindings read. */
void emit_header(const Module *m, Buf *out);
void emit_manifest(const Module *m, Buf *out);

/* emit_host.c: the functions of the C interface, over the runtime: tables, and thin entry points, as C. With
 * a plan, the tables that the plan's emitter printed between head and this are named in it. */
typedef struct HostPlan HostPlan;
struct HostPlan {
    const char *forward, *backward, *step;    /* names of cell_plan objects, NULL: none */
    const char *kernels, *reserve;            /* names of arrays, NULL: none */
    int n_kernels, n_reserve;
    int take, put; /* 1 + the kernels that bring rows of states into a call, and back */
    int64_t block_memory;                     /* the most shared memory that a block takes */
    const char *how;                          /* schedule and interval, in words */
    const HostPlan *smaller;                  /* for devices that cannot run this one, or NULL */
    const HostPlan *other;                    /* for certain calls, preferred where it takes them, and behind
                                               * it perhaps for others; or NULL */
    const char *name;                         /* of such a one: of its description */
    const char *takes;                        /* the expression that says which calls it takes; NULL: all */
};
void emit_host(const Module *m, Buf *out);
void emit_host_plan(const Module *m, const HostPlan *plan, Buf *out);
/* The tables alone and a description of that name, for kernels that are not the library's only ones. */
void emit_host_description(const Module *m, const HostPlan *plan, const char *name, Buf *out);
void emit_host_head(const Module *m, Buf *out); /* comment and includes, before the plan's tables */

#endif
