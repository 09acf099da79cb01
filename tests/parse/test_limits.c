/* test_limits.c: inputs made to exhaust the stack, the memory or the patience of the parser. Each must end
 * soon, within the stack of a thread of 4 MB, with the one error that says what is wrong. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "front/parser.h"

static int passed, failed;

typedef struct Case {
    const char *name;
    const char *before, *repeated, *after;
    int times;
    const char *error; /* the first error holds this; NULL: there is none */
} Case;

#define HEAD "cell c {\n    input x;\n    output y;\n    y = "
#define DEEP "nested too deeply"

static const Case cases[] = {
    {"unary minus", HEAD, "-", "x;\n}\n", 1000000, DEEP},
    {"a long sum", HEAD "x", " + x", ";\n}\n", 300000, DEEP},
    {"a sum that is just short enough", HEAD "x", " + x", ";\n}\n", 1900, NULL},
    {"conditions", HEAD, "x ? x : ", "x;\n}\n", 300000, DEEP},
    {"powers", HEAD "x", "^x", ";\n}\n", 300000, DEEP},
    {"reductions", HEAD, "sum[j] ", "x;\n}\n", 300000, DEEP},
    {"softmaxes", HEAD, "softmax[j] ", "x;\n}\n", 300000, DEEP},
    {"parentheses", HEAD, "(", "", 1000000, DEEP},
    {"calls", HEAD, "f(", "", 1000000, DEEP},
    {"index brackets", HEAD, "x[", "", 1000000, DEEP},
    {"255 parentheses", HEAD "(((((((((((((((", "(x)+(", "", 1, "before the end"},
    {"blocks", "cell c {", "when a {", "", 1000000, DEEP},
    {"cells in cells", "", "cell a {", "", 300000, "expected '}' before 'cell'"},
    {"else when", "cell c { option o = a | b;\n", "when o == a { y = 1; } else ", "{ y = 2; }\n}\n", 20000,
     DEEP},
    {"NULs", "", "\001", "", 5000000, "not part of the language"},
    {"errors", "cell c {\n", "y = x +;\n", "}\n", 300000, "expected an expression"},
    {"words", "", "abc ", "", 1000000, "no statement begins with 'abc'"},
    {"words on lines", "", "abc\n", "", 1000000, "no statement begins with 'abc'"},
    {"quotes", "", "\"", "", 1000000, "cannot begin with"},
    {"empty statements", "", ";", "", 3000000, NULL},
    {"comments", "", "/* c */\n", "", 600000, NULL},
    {"an unclosed comment", "cell c { /*", " y = 1;\n", "", 600000, "this comment has no end"},
    {"a long name", HEAD, "a", ";\n}\n", 5000000, "a name has at most"},
    {"a long number", HEAD, "1", ";\n}\n", 5000000, "is too large"},
    {"many equations", "cell c {\n", "    y[i] = sum[j] M[i,j] * x[j]; // c\n", "}\n", 50000, NULL},
    {"many equations on one line", "cell c {", " y[i] = sum[j] M[i,j] * x[j];", "}\n", 50000, NULL},
    {"many arguments", HEAD "f(x", ", x", ");\n}\n", 300000, NULL},
    {"many names", "cell c { param a", ", a[N]", ";\n}\n", 200000, NULL},
};

static char *make_text(const Case *k, size_t *len)
{
    size_t before = strlen(k->before), n = strlen(k->repeated), after = strlen(k->after);
    char *text = malloc(before + n * (size_t)k->times + after + 1), *p = text;
    if (!text)
        exit(70);
    p = (char *)memcpy(p, k->before, before) + before;
    for (int i = 0; i < k->times; i++, p += n)
        memcpy(p, k->repeated, n);
    if (strcmp(k->name, "NULs") == 0)
        memset(text, 0, n * (size_t)k->times);
    p = (char *)memcpy(p, k->after, after) + after;
    *len = (size_t)(p - text);
    return text;
}

static bool is_right(Compiler *c, const Case *k)
{
    if (!k->error)
        return c->errors == 0;
    for (int i = 0; i < c->diags.len; i++)
        if (c->diags.data[i].level == DIAG_ERROR)
            return strstr(c->diags.data[i].text, k->error) != NULL;
    return false;
}

static void *run_case(void *arg)
{
    const Case *k = arg;
    size_t len;
    char *text = make_text(k, &len);
    clock_t start = clock();
    Compiler *c = compiler_new();
    Ast *ast = parse_source(c, source_add(c, "limits", text, len));
    if (c->errors == 0) {
        Buf b = {.arena = c->arena};
        fmt_ast(c, ast, false, &b);
    }
    FILE *sink = fopen("/dev/null", "w");
    diag_print(c, sink);
    fclose(sink);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    bool ok = is_right(c, k) && seconds < 30;
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("%s: %.1f s, %d errors, first: %s\n", k->name, seconds, c->errors,
               c->diags.len ? c->diags.data[0].text : "none");
    compiler_free(c);
    free(text);
    return NULL;
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pthread_t thread;
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, 4 << 20);
        if (pthread_create(&thread, &attr, run_case, (void *)&cases[i]) != 0)
            return 70;
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attr);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
