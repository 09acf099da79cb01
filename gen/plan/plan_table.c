/* plan_table.c: tables of constants. In come arrays whose elements were computed when the cell was compiled
 * (ir/constant.c); out go their names and their text, as arrays in the memory of the device that kernels read
 * without an argument. An element is computed in double and rounded once, to the type of the arithmetic. */
#include <inttypes.h>

#include "base/map.h"
#include "plan.h"
#include "reads.h"

static int64_t count_of(const Plan *p, NodeId array)
{
    return array_elements(p->m, array)->value;
}

static const char *number_text(const Plan *p, double v)
{
    return p->compute == DT_F64 ? intern_f(p->m->c, "%.17g", v)
                                : intern_f(p->m->c, "%.9gf", (double)(float)v);
}

/* FNV-1a in 64 bits of the elements as they are rounded, of their number and of their type: a name that two tables
 * share is taken for one table. */
uint64_t table_number(const Plan *p, NodeId array)
{
    uint64_t h = 14695981039346656037u ^ (uint64_t)p->compute ^ (uint64_t)count_of(p, array) << 8;
    for (int64_t i = 0; i < count_of(p, array); i++) {
        double v = p->compute == DT_F64 ? p->table[array][i] : (double)(float)p->table[array][i];
        const unsigned char *bytes = (const unsigned char *)&v;
        for (size_t k = 0; k < sizeof v; k++)
            h = (h ^ bytes[k]) * 1099511628211u;
    }
    return h & INT64_MAX; /* the kernel IR has it as a whole number */
}

/* With a point, so that it is no integer. */
static void put_number(const Plan *p, double v, Buf *out)
{
    const char *text = number_text(p, v);
    bool point = false;
    for (const char *s = text; *s; s++)
        point |= *s == '.' || *s == 'e';
    if (point)
        buf_f(out, "%s", text);
    else
        buf_f(out, p->compute == DT_F64 ? "%.0f.0" : "%.0f.0f", v);
}

static void put_table(const Plan *p, NodeId array, const char *memory, Buf *out)
{
    const Node *a = &p->m->nodes.data[array];
    int64_t n = count_of(p, array);
    buf_f(out, "/* %s */\nstatic %sconst %s cell_table_%" PRIx64 "[%" PRId64 "] = {",
          a->name ? a->name : "constants", memory, p->compute == DT_F64 ? "double" : "float",
          table_number(p, array), n);
    for (int64_t i = 0; i < n; i++) {
        buf_f(out, i % 8 == 0 ? "\n    " : " ");
        put_number(p, p->table[array][i], out);
        buf_f(out, i + 1 < n ? "," : "\n};\n\n");
    }
}

void put_tables(const Plan *const *plans, int n, const char *memory, Buf *out)
{
    NameMap done = { 0 };
    for (int k = 0; k < n; k++)
        for (NodeId id = 0; plans[k]->table && id < plans[k]->n_nodes; id++) {
            if (!plans[k]->table[id] || !plans[k]->table_read[id])
                continue;
            const char *name = intern_f(plans[k]->m->c, "%" PRIx64, table_number(plans[k], id));
            if (!map_get(&done, name))
                put_table(plans[k], id, memory, out);
            map_put(plans[0]->m->arena, &done, name, (void *)(uintptr_t)name);
        }
}
