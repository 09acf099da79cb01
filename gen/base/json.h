/* json.h: JSON text to values (json.c). */
#ifndef CELLC_JSON_H
#define CELLC_JSON_H

#include "util.h"

typedef enum { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } JsonKind;

enum { MAX_JSON_DEPTH = 200 };    /* arrays and objects within one another */

typedef struct Json Json;
struct Json {
    JsonKind kind;
    double number;                /* NUMBER */
    const char *text;             /* STRING: UTF-8, len bytes, then a NUL (there may be NULs in it); NUMBER:
                                   * as it is written */
    size_t len;
    const char *key;              /* of a member of an object, likewise */
    size_t key_len;
    const Json *first;            /* ARRAY, OBJECT: its members */
    const Json *next;             /* the member behind this one */
};

/* The one value that the text is, in the arena. NULL: it is none, and *why says why, *at where. */
const Json *json_read(Arena *arena, const char *text, size_t len, const char **why, size_t *at);

/* Of values that may be NULL or of another kind, NULL, `otherwise` or false then. */
const Json *json_member(const Json *object, const char *key);     /* the last one of that key */
const char *json_text(const Json *string);
bool json_is(const Json *string, const char *text);
int json_int(const Json *number, int otherwise);                  /* a whole number that an int holds */
bool json_true(const Json *value);
/* Prints the value again. */
void json_print(const Json *value, Buf *out);

#endif
