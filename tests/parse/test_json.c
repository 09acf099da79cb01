/* test_json.c: the reader of JSON (gen/base/json.c): what it takes, what it refuses, and that no text makes
 * it read outside or recurse without end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static int passed, failed;

static void check(bool ok, const char *what)
{
    if (ok)
        passed++;
    else
        failed++, printf("FAIL %s\n", what);
}

/* As it is printed again; NULL: refused. The copy in malloc'ed memory ends where the text does, so that a
 * read beyond it is seen under AddressSanitizer. */
static const char *again(Arena *arena, const char *text, size_t len)
{
    const char *why = NULL;
    size_t at = 0;
    char *copy = malloc(len ? len : 1);
    if (len)
        memcpy(copy, text, len);
    const Json *v = json_read(arena, copy, len, &why, &at);
    free(copy);
    if (!v != (why != NULL) || at > len)
        return "(the reader contradicts itself)";
    Buf out = { .arena = arena };
    if (v)
        json_print(v, &out);
    return v ? out.data : NULL;
}

static void test_right(Arena *arena)
{
    static const struct { const char *text, *printed; } right[] = {
        { "null", "null" }, { " true ", "true" }, { "false\n", "false" }, { "0", "0" },
            { "-0.5e+10", "-0.5e+10" }, { "12E2", "12E2" },
        { "\"\"", "\"\"" }, { "\"a\\\"b\\\\\\/\\b\\f\\n\\r\\t\"",
                              "\"a\\\"b\\\\/\\u0008\\u000c\\u000a\\u000d\\u0009\"" },
        { "\"\\u00e4\\u20AC\\ud83d\\ude00\"", "\"ä€😀\"" }, { "\"😀\"", "\"😀\"" },
            { "\"\\u0000\"", "\"\\u0000\"" },
        { "\"\\ud83d\"", "\"\xef\xbf\xbd\"" }, { "\"\\ud83dx\\ude00\"", "\"\xef\xbf\xbdx\xef\xbf\xbd\"" },
        { "\"\\ud83d\\u0041\"", "\"\xef\xbf\xbd" "A\"" },
        { "[]", "[]" }, { "{ }", "{}" }, { "[1,[2],{\"a\":3}]", "[1, [2], {\"a\": 3}]" },
            { "{\"\":{}, \"b\" : null}", "{\"\": {}, \"b\": null}" },
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        const char *got = again(arena, right[i].text, strlen(right[i].text));
        check(got && strcmp(got, right[i].printed) == 0, right[i].text);
    }
}

static void test_wrong(Arena *arena)
{
    static const char *const wrong[] = {
        "", " ", "nul", "True", "01", "+1", "1.", ".5", "1e", "-", "0x1", "NaN", "Infinity", "1 2", "\"",
            "\"\\", "\"\\x\"", "\"\\u12\"",
        "\"\\u12g4\"", "\"\t\"", "\"\n\"", "'a'", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{", "}",
            "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,",
        "{\"a\":1,}", "{a:1}", "{1:1}", "{\"a\" 1}", "[1}", "{\"a\":1]", "// c\n1", "[1]/**/",
            "\xef\xbb\xbf" "1", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check(!again(arena, wrong[i], strlen(wrong[i])), wrong[i]);
    check(!again(arena, "1\0", 2), "a NUL behind the value");
    check(!again(arena, "\"a\0b\"", 5), "a NUL in a string");
}

static void test_depth(Arena *arena)
{
    enum { DEEP = 100000 };
    char *text = malloc(2 * DEEP);
    for (int n = MAX_JSON_DEPTH; n <= MAX_JSON_DEPTH + 1; n++) {
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        check((again(arena, text, 2 * (size_t)n) != NULL) == (n == MAX_JSON_DEPTH),
              "the depth that is taken");
    }
    memset(text, '[', 2 * DEEP);
    check(!again(arena, text, 2 * DEEP), "very deep");
    for (int i = 0; i < 2 * DEEP; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    check(!again(arena, text, 2 * DEEP), "very deep objects");
    free(text);
}

static void test_members(Arena *arena)
{
    static const char text[] = "{\"a\": 1, \"b\": \"x\\u0000y\", \"a\": 2.5, \"c\": true, \"n\": -7, \"big\": 1e12}";
    const char *why;
    size_t at;
    const Json *v = json_read(arena, text, sizeof text - 1, &why, &at);
    check(json_int(json_member(v, "a"), 9) == 9 && json_member(v, "a")->number == 2.5,
          "the last of a key, and no whole number");
    check(json_member(v, "b")->len == 3 && !json_is(json_member(v, "b"), "x"), "a string with a NUL");
    check(json_true(json_member(v, "c")) && !json_true(json_member(v, "a")) && !json_true(NULL), "true");
    check(json_int(json_member(v, "n"), 0) == -7 && json_int(json_member(v, "big"), 3) == 3 &&
          json_int(NULL, 4) == 4, "numbers");
    check(!json_member(v, "d") && !json_member(NULL, "d") && !json_member(json_member(v, "b"), "d") &&
          !json_text(v), "what is not there");
}

/* Every text with one byte changed or cut off: what it gives does not matter, only that it ends. */
static void test_changed(Arena *arena)
{
    static const char text[] = "{\"k\": [1.5e3, \"\\u00e4\\ud83d\\ude00\xc3\xa4\", {\"a\": null}, true], \"z\": {}}";
    char changed[sizeof text];
    unsigned seed = 1;
    for (size_t n = 0; n < sizeof text; n++) {
        again(arena, text, n);
        for (int k = 0; k < 40 && n + 1 < sizeof text; k++) {
            memcpy(changed, text, sizeof text);
            seed = seed * 1664525 + 1013904223;
            changed[n] = (char)(seed >> 24);
            again(arena, changed, sizeof text - 1);
        }
    }
    check(true, "changed texts");
}

int main(void)
{
    Arena *arena = arena_new();
    test_right(arena);
    test_wrong(arena);
    test_depth(arena);
    test_members(arena);
    test_changed(arena);
    arena_free(arena);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
