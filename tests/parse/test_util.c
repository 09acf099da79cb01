/* test_util.c: memory, strings, text buffers, suggestions, and the order in which diagnostics are printed. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

static int passed, failed;

#define CHECK(ok)                                                                                           \
    do {                                                                                                    \
        bool ok_ = (ok);                                                                                    \
        passed += ok_;                                                                                      \
        failed += !ok_;                                                                                     \
        if (!ok_)                                                                                           \
            printf("line %d: %s\n", __LINE__, #ok);                                                         \
    } while (0)

static void check_arena(void)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 4096, 65536, 65537, 262144, 262145, 5000000};
    Arena *a = arena_new();
    unsigned char *blocks[11];
    for (size_t i = 0; i < 11; i++) {
        blocks[i] = arena_alloc(a, sizes[i]);
        CHECK((uintptr_t)blocks[i] % 16 == 0);
        bool zero = true;
        for (size_t k = 0; k < sizes[i]; k++)
            zero = zero && blocks[i][k] == 0;
        CHECK(zero);
        memset(blocks[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < 11; i++) {
        bool kept = true;
        for (size_t k = 0; k < sizes[i]; k++)
            kept = kept && blocks[i][k] == i + 1;
        CHECK(kept);
    }
    char *grown = arena_grow(a, memcpy(arena_alloc(a, 4), "abc", 4), 4, 100);
    CHECK(strcmp(grown, "abc") == 0 && grown[99] == 0);
    arena_free(a);
    arena_free(NULL);
}

static void check_strings(void)
{
    Compiler *c = compiler_new();
    char text[] = "name";
    CHECK(intern(c, text) == intern(c, "name"));
    CHECK(intern_n(c, "names", 4) == intern(c, "name"));
    CHECK(intern(c, "name") != intern(c, "names"));
    CHECK(intern_f(c, "%s%d", "na", 7) == intern(c, "na7"));
    CHECK(strlen(intern_f(c, "%1000d", 1)) == 1000);
    CHECK(intern_n(c, "a\0b", 3) != intern(c, "a"));
    CHECK(strcmp(intern_f(c, "%d %d%%%c%.*s|%s", INT_MIN, INT_MAX, 'x', 2, "abc", ""), "-2147483648 2147483647%xab|") == 0);
    CHECK(strcmp(intern_f(c, "%lld %llu", LLONG_MIN, ULLONG_MAX),
                 "-9223372036854775808 18446744073709551615") == 0);
    CHECK(strcmp(intern_f(c, "%s %5.1f %d", "a", 2.25, 7), "a   2.2 7") == 0);
    CHECK(strlen(intern_f(c, "%s%s", intern_f(c, "%600s", ""), intern_f(c, "%511s", ""))) == 1111);
    const char *first = intern(c, "n0");
    for (int i = 0; i < 10000; i++)
        intern_f(c, "n%d", i);
    CHECK(intern(c, "n0") == first && intern(c, "n9999") == intern_f(c, "n%d", 9999));

    Buf b = {.arena = c->arena};
    for (int i = 0; i < 5000; i++)
        buf_f(&b, "%d,", i);
    CHECK(b.len == strlen(b.data) && strncmp(b.data, "0,1,2,", 6) == 0);
    Buf numbers = {.arena = c->arena};
    buf_int(&numbers, LLONG_MIN);
    buf_text(&numbers, ",");
    buf_int(&numbers, 0);
    buf_int(&numbers, LLONG_MAX);
    CHECK(strcmp(numbers.data, "-9223372036854775808,09223372036854775807") == 0);
    Buf lines = {.arena = c->arena, .indent = 1};
    buf_line(&lines, "a %s", "b");
    buf_line(&lines, "%s", "");
    lines.indent = 0;
    buf_line(&lines, "c");
    CHECK(strcmp(lines.data, "    a b\n\nc\n") == 0);
    compiler_free(c);
    compiler_free(NULL);
}

static const char *nearest(const char *name)
{
    static const char *const names[] = {"sigmoid", "silu", "softplus", "kn", "km",
                                        "W_kvqm", "tan", "tanh", "b"};
    const char *s = suggest(name, names, 9);
    return s ? s : "none";
}

static void check_suggest(void)
{
    CHECK(strcmp(nearest("sigmiod"), "sigmoid") == 0);
    CHECK(strcmp(nearest("sigmod"), "sigmoid") == 0);
    CHECK(strcmp(nearest("soft_plus"), "softplus") == 0);
    CHECK(strcmp(nearest("W_kvq"), "W_kvqm") == 0);
    CHECK(strcmp(nearest("tahn"), "tanh") == 0);
    CHECK(strcmp(nearest("taan"), "tan") == 0);
    CHECK(strcmp(nearest("kx"), "kn") == 0);
    CHECK(strcmp(nearest("c"), "none") == 0);
    CHECK(strcmp(nearest("something_else"), "none") == 0);
    CHECK(strcmp(nearest(""), "none") == 0);
    CHECK(suggest("x", NULL, 0) == NULL);
}

static void check_position(void)
{
    Compiler *c = compiler_new();
    const char *text = "ab\n\tc\xc3\xa9" "d\n\xff\xfe!\n";
    int file = source_add(c, "p", text, strlen(text)), line, column;
    const Source *s = &c->sources.data[file];
    static const struct { uint32_t offset; int line, column; } want[] = {
        {0, 1, 1}, {2, 1, 3}, {3, 2, 1}, {4, 2, 2}, {5, 2, 3}, {7, 2, 4}, {9, 3, 1}, {11, 3, 3}, {13, 4, 1}, {99, 4, 1},
    };
    CHECK(s->lines == 4);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        source_position(s, want[i].offset, &line, &column);
        CHECK(line == want[i].line && column == want[i].column);
    }
    CHECK(source_load(c, "/no/such/file") == -1 && c->errors == 1);
    compiler_free(c);
}

static char *printed(Compiler *c)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    diag_print(c, f);
    fclose(f);
    return text;
}

static void check_order(void)
{
    Compiler *c = compiler_new();
    int f = source_add(c, "s", "one\ntwo\n", 8);
    diag(c, DIAG_ERROR, (Span){f, 4, 7}, "late");
    diag(c, DIAG_NOTE, (Span){f, 0, 3}, "its note");
    diag(c, DIAG_WARNING, (Span){f, 0, 3}, "early");
    diag(c, DIAG_ERROR, (Span){f, 4, 7}, "late");
    diag(c, DIAG_ERROR, (Span){f, 4, 7}, "in a fn");
    CallSite outer = {{f, 0, 1}, "outer", NULL}, inner = {{f, 1, 2}, "inner", &outer};
    diag_chain(c, &inner);
    char *text = printed(c);
    CHECK(strcmp(text, "s:1:1: warning: early\n    one\n    ^~~\n"
                       "s:2:1: error: late\n    two\n    ^~~\n"
                       "s:1:1: note: its note\n    one\n    ^~~\n"
                       "s:2:1: error: in a fn\n    two\n    ^~~\n"
                       "s:1:2: note: in the expansion of 'inner'\n    one\n     ^\n"
                       "s:1:1: note: in the expansion of 'outer'\n    one\n    ^\n") == 0);
    CHECK(c->errors == 3);
    free(text);
    for (uint32_t i = 0; i < 30; i++)
        diag(c, DIAG_ERROR, (Span){f, 0, 1}, "number %u", i);
    text = printed(c);
    CHECK(strstr(text, "number 19\n") && !strstr(text, "number 20\n") && strstr(text, "cellc: 12 more errors\n"));
    free(text);
    compiler_free(c);
}

int main(void)
{
    check_arena();
    check_strings();
    check_suggest();
    check_position();
    check_order();
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
