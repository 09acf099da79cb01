/* test_fmt.c: what `fmt` guarantees, on every spec and on the files beside this one. Formatting keeps the AST
 * and every comment, formatting twice changes nothing, and the explicit form says the same with all
 * parentheses. NAME.cell here has its canonical text in NAME.fmt and its explicit form in NAME.explicit;
 * `test_fmt --bless` writes them anew. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "front/parser.h"

static int passed, failed;
static bool bless;

static void check(bool ok, const char *path, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("%s: %s\n", path, what);
}

static bool same_text(const Buf *a, const Buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void first_difference(const char *want, const char *got)
{
    int line = 1;
    size_t start = 0, i = 0;
    for (; want[i] && want[i] == got[i]; i++) {
        if (want[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    printf("    line %d, wanted: %.*s\n    line %d, got:    %.*s\n", line, (int)strcspn(want + start, "\n"),
           want + start, line, (int)strcspn(got + start, "\n"), got + start);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static Buf formatted(Compiler *c, const Ast *ast, bool explicit_form)
{
    Buf b = {.arena = c->arena};
    fmt_ast(c, ast, explicit_form, &b);
    buf_f(&b, "%s", "");
    return b;
}

static void golden(Compiler *c, const char *path, const char *suffix, const Buf *got)
{
    const char *file = intern_f(c, "%.*s%s", (int)(strlen(path) - strlen(".cell")), path, suffix);
    if (bless) {
        FILE *f = fopen(file, "wb");
        if (!f || fwrite(got->data, 1, got->len, f) != got->len || fclose(f) != 0)
            printf("cannot write %s\n", file);
    }
    int n = source_load(c, file);
    Buf want = {.arena = c->arena};
    if (n >= 0)
        buf_f(&want, "%s", c->sources.data[n].text);
    check(n >= 0 && same_text(&want, got), path, suffix);
    if (n >= 0 && !same_text(&want, got))
        first_difference(want.data, got->data);
}

static void check_form(Compiler *c, const char *path, const Ast *ast, bool explicit_form, const char *suffix)
{
    const char *name = explicit_form ? "explicit" : "fmt";
    Buf once = formatted(c, ast, explicit_form);
    int file = source_add(c, intern_f(c, "%s(%s)", name, path), once.data, once.len);
    Ast *again = parse_source(c, file);
    check(c->errors == 0, path,
          explicit_form ? "the explicit form does not parse" : "the formatted text does not parse");
    check(ast_equal(ast, again, !explicit_form), path,
          explicit_form ? "the explicit form says something else" : "fmt changed the AST");
    Buf twice = formatted(c, again, explicit_form);
    check(same_text(&once, &twice), path,
          explicit_form ? "the explicit form of itself differs" : "fmt of its own output differs");
    if (!same_text(&once, &twice))
        first_difference(once.data, twice.data);
    const char *text = c->sources.data[ast->file].text;
    check(count(text, "//") + count(text, "/*") == count(once.data, "//") + count(once.data, "/*"), path,
          "a comment was lost");
    if (suffix)
        golden(c, path, suffix, &once);
}

static void check_file(const char *path, bool has_golden)
{
    Compiler *c = compiler_new();
    int file = source_load(c, path);
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    check(c->errors == 0, path, "does not parse");
    if (c->errors == 0) {
        check_form(c, path, ast, false, has_golden ? ".fmt" : NULL);
        check_form(c, path, ast, true, has_golden ? ".explicit" : NULL);
    }
    diag_print(c, stdout);
    compiler_free(c);
}

static void check_glob(const char *pattern, bool has_golden)
{
    glob_t g;
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++)
            check_file(g.gl_pathv[i], has_golden);
        globfree(&g);
    } else {
        check(false, pattern, "no such files (run this from the root of the project)");
    }
}

int main(int argc, char **argv)
{
    bless = argc > 1 && strcmp(argv[1], "--bless") == 0;
    check_glob("specs/*.cell", false);
    check_glob("tests/fmt/*.cell", true);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
