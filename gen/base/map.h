/* map.h: a table from interned strings to pointers (map.c). A table of zeros is empty; its memory is the arena's. */
#ifndef CELLC_MAP_H
#define CELLC_MAP_H

#include "util.h"

typedef struct Bucket {
    const char *key;
    void *value;
} Bucket;
typedef struct NameMap {
    Bucket *slots;
    int cap, len;
} NameMap;
void *map_get(const NameMap *m, const char *key);                 /* NULL: it is not there */
void map_put(Arena *a, NameMap *m, const char *key, void *value);

#endif
