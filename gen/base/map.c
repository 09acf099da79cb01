/* map.c: a table from interned strings to pointers. In: keys whose equality is pointer equality (util.c). Out: the value that
 * was put last. Guaranteed: looking a name up takes the same time however many there are; nothing is ever taken out. */
#include "map.h"

static size_t slot_of(const char *key, int cap)
{
    return (size_t)(((uintptr_t)key >> 4) * 0x9e3779b97f4a7c15ull >> 20) & (size_t)(cap - 1);
}

void *map_get(const NameMap *m, const char *key)
{
    if (!m->cap)
        return NULL;
    for (size_t at = slot_of(key, m->cap); m->slots[at].key; at = (at + 1) & (size_t)(m->cap - 1))
        if (m->slots[at].key == key)
            return m->slots[at].value;
    return NULL;
}

static void map_grow(Arena *a, NameMap *m)
{
    NameMap old = *m;
    m->cap = old.cap ? 2 * old.cap : 16;
    m->len = 0;
    m->slots = arena_alloc(a, sizeof *m->slots * (size_t)m->cap);
    for (int i = 0; i < old.cap; i++)
        if (old.slots[i].key)
            map_put(a, m, old.slots[i].key, old.slots[i].value);
}

void map_put(Arena *a, NameMap *m, const char *key, void *value)
{
    if (2 * (m->len + 1) > m->cap)
        map_grow(a, m);
    size_t at = slot_of(key, m->cap);
    while (m->slots[at].key && m->slots[at].key != key)
        at = (at + 1) & (size_t)(m->cap - 1);
    m->len += !m->slots[at].key;
    m->slots[at] = (Bucket){ key, value };
}
