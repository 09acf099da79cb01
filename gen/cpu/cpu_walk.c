/* cpu_walk.c: walks on chip as one kernel for the CPU. None is taken yet. */
#include "cpu.h"

const Reason *cpu_walk_refuses(const Plan *p)
{
    return reason(p->m, "kernels for the CPU walk step by step");
}

void cpu_walk_group(Plan *p, Program *pr, Group *g, CpuKernel *out, Buf *text)
{
    (void)pr, (void)out, (void)text;
    bug(p->m->c, "cpu", "%s is walked on the CPU", g->kernel);
}
