/* text.h: the text of a document as an editor counts it (text.c). */
#ifndef CELLC_LSP_TEXT_H
#define CELLC_LSP_TEXT_H

#include "base/util.h"

/* What a character of a position is: bytes of UTF-8, units of UTF-16, or code points. */
typedef enum { UNITS_UTF16, UNITS_UTF8, UNITS_UTF32 } PlaceUnits;
extern const char *const units_names[];                           /* as the protocol calls them, with NULL
                                                                   * behind the last */

/* From 0 on both, as the protocol counts; lines end with \n, \r\n or \r. */
typedef struct Place { int line, character; } Place;

/* Bytes in malloc'ed memory, a NUL behind them. All zero: the empty text before text_set. */
typedef struct Text {
    char *data;
    size_t len, cap;
    uint32_t *line_start;         /* byte offset of each line */
    int lines, line_cap;
} Text;

void text_set(Text *t, const char *data, size_t len);
/* Bytes [lo, hi) become `len` others. */
void text_replace(Text *t, size_t lo, size_t hi, const char *data, size_t len);
void text_free(Text *t);

/* What is beyond a line is its end, what is beyond the text the text's. */
Place text_place(const Text *t, size_t offset, PlaceUnits units);
size_t text_offset(const Text *t, Place at, PlaceUnits units);

/* The path of a file: URI, in the arena; another URI is its own path. */
const char *uri_path(Arena *arena, const char *uri);
/* The URI of a path. */
void path_uri(const char *path, Buf *out);

#endif
