/* json.c: JSON text to values, as RFC 8259 has it and nothing beside. In: bytes. Out: a tree in an arena, or
 * why there is none. Guaranteed: every string is UTF-8 without surrogates (one that stands alone, which JSON
 * can write and UTF-8 cannot, is U+FFFD), and no text makes this recurse deeper than MAX_JSON_DEPTH. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

typedef struct Reader {
    Arena *arena;
    const char *start, *p, *end;
    const char *why;
    int depth;
} Reader;

static bool fail(Reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    return false;
}

static void skip_blanks(Reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

static bool word(Reader *r, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, text, n) != 0)
        return fail(r, "no value");
    r->p += n;
    return true;
}

/* ---- strings */

static bool hex4(Reader *r, unsigned *code)
{
    *code = 0;
    if (r->end - r->p < 4)
        return fail(r, "an escape has no end");
    for (int i = 0; i < 4; i++, r->p++) {
        char c = *r->p;
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' &&
                    c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return fail(r, "\\u without four hexadecimal digits");
        *code = *code * 16 + (unsigned)digit;
    }
    return true;
}

static char *put_code(char *to, unsigned code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Behind "\u". */
static bool unicode_escape(Reader *r, char **to)
{
    unsigned code, low;
    if (!hex4(r, &code))
        return false;
    if (code >= 0xd800 && code <= 0xdbff && r->end - r->p >= 2 && r->p[0] == '\\' && r->p[1] == 'u') {
        const char *before = r->p;
        r->p += 2;
        if (!hex4(r, &low))
            return false;
        if (low >= 0xdc00 && low <= 0xdfff)
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        else
            r->p = before;
    }
    *to = put_code(*to, code >= 0xd800 && code <= 0xdfff ? 0xfffd : code);
    return true;
}

static bool escape(Reader *r, char **to)
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    if (r->p == r->end)
        return fail(r, "an escape has no end");
    char c = *r->p++;
    if (c == 'u')
        return unicode_escape(r, to);
    const char *at = c ? strchr(letters, c) : NULL;
    if (!at)
        return fail(r, "an unknown escape");
    *(*to)++ = means[at - letters];
    return true;
}

/* Bytes between the quotes, as an upper bound of those of the string: no escape is shorter than what it
 * means. */
static size_t quoted_bytes(const Reader *r)
{
    const char *p = r->p;
    while (p < r->end && *p != '"')
        p += *p == '\\' && p + 1 < r->end ? 2 : 1;
    return (size_t)(p - r->p);
}

static bool string(Reader *r, const char **text, size_t *len)
{
    r->p++;
    char *start = arena_alloc(r->arena, quoted_bytes(r) + 1), *to = start;
    for (;;) {
        if (r->p == r->end)
            return fail(r, "a string has no end");
        unsigned char c = (unsigned char)*r->p;
        if (c == '"')
            break;
        if (c < 0x20)
            return fail(r, "a control character in a string");
        if (c == '\\') {
            r->p++;
            if (!escape(r, &to))
                return false;
            continue;
        }
        int n = utf8_len((const unsigned char *)r->p, (const unsigned char *)r->end);
        if (!n)
            return fail(r, "a string is not UTF-8");
        memcpy(to, r->p, (size_t)n);
        to += n;
        r->p += n;
    }
    r->p++;
    *to = 0;
    *text = start;
    *len = (size_t)(to - start);
    return true;
}

/* ---- numbers */

static bool digits(Reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return r->p > from || fail(r, "a number without digits");
}

static bool number(Reader *r, Json *v)
{
    const char *from = r->p;
    r->p += *r->p == '-';
    if (r->p < r->end && *r->p == '0')
        r->p++;
    else if (!digits(r))
        return false;
    if (r->p < r->end && *r->p == '.') {
        r->p++;
        if (!digits(r))
            return false;
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        r->p++;
        r->p += r->p < r->end && (*r->p == '+' || *r->p == '-');
        if (!digits(r))
            return false;
    }
    v->kind = JSON_NUMBER;
    v->len = (size_t)(r->p - from);
    char *text = arena_alloc(r->arena, v->len + 1);
    memcpy(text, from, v->len);
    v->text = text;
    v->number = strtod(text, NULL);
    return true;
}

/* ---- values */

static bool value(Reader *r, Json *v);

/* What stands between the brackets, up to and with the closing one. */
static bool members(Reader *r, Json *v, char close)
{
    const Json **last = &v->first;
    r->p++;
    if (++r->depth > MAX_JSON_DEPTH)
        return fail(r, "nested too deeply");
    skip_blanks(r);
    for (bool more = r->p == r->end || *r->p != close; more;) {
        Json *one = arena_alloc(r->arena, sizeof *one);
        skip_blanks(r);
        if (close == '}') {
            if (r->p == r->end || *r->p != '"')
                return fail(r, "a member without a name");
            if (!string(r, &one->key, &one->key_len))
                return false;
            skip_blanks(r);
            if (r->p == r->end || *r->p++ != ':')
                return fail(r, "a member without ':'");
        }
        if (!value(r, one))
            return false;
        *last = one;
        last = &one->next;
        skip_blanks(r);
        more = r->p < r->end && *r->p == ',';
        if (!more && (r->p == r->end || *r->p != close))
            return fail(r, close == '}' ? "an object has no end" : "an array has no end");
        r->p += more;
    }
    if (r->p == r->end)
        return fail(r, close == '}' ? "an object has no end" : "an array has no end");
    r->p++;
    r->depth--;
    return true;
}

static bool value(Reader *r, Json *v)
{
    skip_blanks(r);
    if (r->p == r->end)
        return fail(r, "no value");
    switch (*r->p) {
    case '{': v->kind = JSON_OBJECT; return members(r, v, '}');
    case '[': v->kind = JSON_ARRAY; return members(r, v, ']');
    case '"': v->kind = JSON_STRING; return string(r, &v->text, &v->len);
    case 't': v->kind = JSON_TRUE; return word(r, "true");
    case 'f': v->kind = JSON_FALSE; return word(r, "false");
    case 'n': v->kind = JSON_NULL; return word(r, "null");
    }
    return *r->p == '-' || (*r->p >= '0' && *r->p <= '9') ? number(r, v) : fail(r, "no value");
}

const Json *json_read(Arena *arena, const char *text, size_t len, const char **why, size_t *at)
{
    Reader r = { .arena = arena, .start = text, .p = text, .end = text + len };
    Json *v = arena_alloc(arena, sizeof *v);
    bool ok = value(&r, v);
    if (ok) {
        skip_blanks(&r);
        ok = r.p == r.end || fail(&r, "something behind the value");
    }
    *why = r.why;
    *at = (size_t)(r.p - r.start);
    return ok ? v : NULL;
}

/* ---- reading values */

const Json *json_member(const Json *object, const char *key)
{
    const Json *found = NULL;
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const Json *m = object->first; m; m = m->next)
        if (m->key_len == strlen(key) && memcmp(m->key, key, m->key_len) == 0)
            found = m;
    return found;
}

const char *json_text(const Json *v)
{
    return v && v->kind == JSON_STRING ? v->text : NULL;
}

bool json_is(const Json *v, const char *text)
{
    return v && v->kind == JSON_STRING && v->len == strlen(text) && memcmp(v->text, text, v->len) == 0;
}

int json_int(const Json *v, int otherwise)
{
    bool whole = v && v->kind == JSON_NUMBER && v->number >= INT_MIN && v->number <= INT_MAX &&
                 v->number == floor(v->number);
    return whole ? (int)v->number : otherwise;
}

bool json_true(const Json *v)
{
    return v && v->kind == JSON_TRUE;
}

void json_print(const Json *v, Buf *out)
{
    switch (v->kind) {
    case JSON_NULL: buf_f(out, "null"); return;
    case JSON_FALSE: buf_f(out, "false"); return;
    case JSON_TRUE: buf_f(out, "true"); return;
    case JSON_NUMBER: buf_f(out, "%s", v->text); return;
    case JSON_STRING: buf_json(out, v->text, v->len); return;
    case JSON_ARRAY: case JSON_OBJECT: break;
    }
    buf_f(out, v->kind == JSON_ARRAY ? "[" : "{");
    for (const Json *m = v->first; m; m = m->next) {
        buf_f(out, m == v->first ? "" : ", ");
        if (v->kind == JSON_OBJECT) {
            buf_json(out, m->key, m->key_len);
            buf_f(out, ": ");
        }
        json_print(m, out);
    }
    buf_f(out, v->kind == JSON_ARRAY ? "]" : "}");
}
