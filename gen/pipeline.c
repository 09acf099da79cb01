/* pipeline.c: the order of the passes. In: the path of a spec. Out: the module that emitters read. Guaranteed: the IR was
 * verified after every pass that touched it, and --dump-after stops behind the pass that it names. */
#include <string.h>

#include "commands.h"

const Pass front_passes[] = { { "lower", NULL, "" }, { NULL, NULL, NULL } };

/* The reference goes straight from the lowered program to its adjoint: what it prints owes nothing to simplify. */
const Pass reference_passes[] = {
    { "parse", NULL, "the spec as it was read, with all parentheses" },
    { "lower", NULL, "the IR of the cell: imports, options, fn and repeat are gone, names and ranges resolved" },
    { "differentiate", differentiate, "the IR with the adjoint of every value" },
    { NULL, NULL, NULL }
};

const Pass fast_passes[] = {
    { "parse", NULL, "" },
    { "lower", NULL, "" },
    { "simplify", simplify, "the IR folded, with stacked projections of one input as one product" },
    { "differentiate", differentiate, "" },
    { "simplify-adjoint", simplify, "the same again, with the adjoint" },
    { NULL, NULL, NULL }
};

bool pass_exists(const char *name)
{
    for (const Pass *p = fast_passes; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    for (const Pass *p = reference_passes; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return true;
    return false;
}

static bool wants_dump(const Compiler *c, const char *pass)
{
    return c->dump_after && strcmp(c->dump_after, pass) == 0;
}

static void dump_ast(Compiler *c, const char *path)
{
    Buf out = { .arena = c->arena };
    int file = source_load(c, path);
    if (file < 0)
        return;
    fmt_ast(c, parse_source(c, file), true, &out);
    fwrite(out.data, 1, out.len, stdout);
}

static void dump_module(const Module *m)
{
    Buf out = { .arena = m->arena };
    ir_print(m, &out);
    fwrite(out.data, 1, out.len, stdout);
}

Module *compile(Compiler *c, const char *path, const Pass *passes, bool *dumped)
{
    Module *m = NULL;
    if (dumped)
        *dumped = false;
    for (const Pass *p = passes; p->name; p++) {
        if (strcmp(p->name, "parse") == 0) {
            if (!wants_dump(c, p->name))
                continue;
            dump_ast(c, path);
            *dumped = true;
            return NULL;
        }
        if (strcmp(p->name, "lower") == 0) {
            m = front_end(c, path);
        } else {
            p->run(m);
            if (m && !c->errors)
                ir_verify(m, p->name);
        }
        if (!m || c->errors)
            return NULL;
        if (wants_dump(c, p->name)) {
            dump_module(m);
            *dumped = true;
            return NULL;
        }
    }
    return m;
}
