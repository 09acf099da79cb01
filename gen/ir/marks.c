/* marks.c: what a walk over a module's nodes remembers. A mark holds the number of the walk that made it, so
 * a walk that begins finds none of its own, and the memory of those that ended is used again. */
#include <string.h>

#include "marks.h"

typedef struct Mark { uint32_t walk; int value; } Mark;

struct Marks {
    const Module *m;
    uint32_t walk;                /* the number of the one that goes on; 0: none had it yet */
    Mark *of;                     /* per node */
    int cap;
    Marks *next;                  /* in the list of those that no walk uses */
};

Marks *marks_begin(const Module *m)
{
    Marks *w = *m->marks;
    if (w)
        *m->marks = w->next;
    else
        w = arena_alloc(m->arena, sizeof *w);
    w->m = m;
    if (++w->walk == 0) {
        memset(w->of, 0, sizeof *w->of * (size_t)w->cap);
        w->walk = 1;
    }
    return w;
}

void marks_end(Marks *w)
{
    if (!w)
        return;
    w->next = *w->m->marks;
    *w->m->marks = w;
}

void marks_set(Marks *w, NodeId id, int value)
{
    if (id >= w->cap) {
        int nodes = w->m->nodes.len, cap = nodes + nodes / 2;
        w->of = arena_grow(w->m->arena, w->of, sizeof *w->of * (size_t)w->cap, sizeof *w->of * (size_t)cap);
        memset(w->of + w->cap, 0, sizeof *w->of * (size_t)(cap - w->cap));
        w->cap = cap;
    }
    w->of[id] = (Mark){ w->walk, value };
}

int marks_get(const Marks *w, NodeId id)
{
    return id < w->cap && w->of[id].walk == w->walk ? w->of[id].value : 0;
}

bool marks_first(Marks *w, NodeId id)
{
    if (marks_get(w, id))
        return false;
    marks_set(w, id, 1);
    return true;
}
