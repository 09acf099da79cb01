/* costs.c: what the planner says of a cell that is being written. In: a variant without errors. Out: when
 * each value is computed and what a step costs, in the words of `cellc explain`; nothing where there is no
 * plan, or where the cell is so large that planning it would be felt. */
#include "analysis.h"
#include "commands/explain.h"
#include "commands/generate.h"
#include "pipeline.h"

typedef struct Planning { Variant *v; Compiler *c; } Planning;

static void keep_when(void *with, const char *name, const char *words)
{
    Variant *v = with;
    When w = { intern(v->c, name), intern(v->c, words) };
    vec_push(v->c->arena, &v->when, w);
}

static void run_planner(void *with)
{
    const Planning *p = with;
    Variant *v = p->v;
    Generated g;
    if (!generate_open(&g, p->c, v->c->sources.data[0].path, NULL, true) || !g.plan)
        return;
    explain_when(g.plan, keep_when, v);
    ExplainLine line = explain_line(g.plan);
    v->schedule = intern(v->c, line.schedule);
    v->work = intern(v->c, line.work);
    v->memory = intern(v->c, line.memory);
}

void plan_variant(Variant *v)
{
    if (v->planned || !v->sound || v->nodes > MAX_PLANNED_NODES)
        return;
    v->planned = true;
    Planning p = { v, compiler_new() };
    compiler_inherit(p.c, v->c);
    p.c->cell = intern(p.c, v->cell->name);
    survives(run_planner, &p);
    compiler_free(p.c);
}


typedef struct Page { Compiler *c; const char *path; Buf *out; } Page;

static void write_page(void *with)
{
    const Page *p = with;
    Generated g;
    if (generate_open(&g, p->c, p->path, NULL, true) && g.plan)
        explain_summary(g.plan, g.lowered, p->out);
}

bool explain_variant(const Variant *v, Buf *out, const char **why)
{
    Compiler *c = compiler_new();
    Buf text = { .arena = c->arena };
    Page page = { c, v->c->sources.data[0].path, &text };
    compiler_inherit(c, v->c);
    c->cell = intern(c, v->cell->name);
    bool ok = survives(write_page, &page) && text.len;
    if (ok)
        buf_f(out, "%s", text.data);
    else
        *why = c->errors ? intern(v->c, c->diags.data[0].text) : "the cell cannot be planned";
    compiler_free(c);
    return ok;
}
