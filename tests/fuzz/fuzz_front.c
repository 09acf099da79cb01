/* fuzz_front.c: the front end on any bytes. In: a byte string as the text of a spec. Checked, by an abort:
 * nothing crashes or runs away; what parses is formatted to a text that parses to an equal AST and formats to
 * itself; the semantic passes end with a verified module or with diagnostics. `fuzz.sh` builds it for
 * libFuzzer, test_corpus.c runs the kept inputs. */
#include <stdlib.h>
#include <string.h>

#include "front/front.h"
#include "front/parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "fuzz_front: %s\n", what);
        abort();
    }
}

static void check_format(Compiler *c, const Ast *ast, bool explicit_form)
{
    Buf once = {.arena = c->arena}, twice = {.arena = c->arena};
    fmt_ast(c, ast, explicit_form, &once);
    int file = source_add(c, "formatted", once.data ? once.data : "", once.len);
    Ast *again = parse_source(c, file);
    require(c->errors == 0, "the formatted text does not parse");
    require(ast_equal(ast, again, !explicit_form), "formatting changed the AST");
    fmt_ast(c, again, explicit_form, &twice);
    require(once.len == twice.len && (!once.len || memcmp(once.data, twice.data, once.len) == 0),
            "formatting twice gives another text");
}

static void print_diags(Compiler *c)
{
    static FILE *sink;
    if (!sink)
        sink = fopen("/dev/null", "w");
    diag_print(c, sink);
}

#ifndef FUZZ_SYNTAX_ONLY
static void check_meaning(const uint8_t *data, size_t size)
{
    Compiler *c = compiler_new();
    Ast *ast = parse_source(c, source_add(c, "fuzz.cell", (const char *)data, size));
    c->import_dir = "specs";
    Flat *flat = c->errors ? NULL : expand(c, ast, NULL);
    if (flat && !c->errors && resolve(c, flat) && !c->errors) {
        Module *m = lower(c, flat);
        require(m || c->errors, "lower gave neither a module nor an error");
        if (m && !c->errors)
            ir_verify(m, "lower");
    } else {
        require(c->errors > 0 || ast->items.len == 0, "a cell was refused without an error");
    }
    print_diags(c);
    compiler_free(c);
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Compiler *c = compiler_new();
    Ast *ast = parse_source(c, source_add(c, "fuzz.cell", (const char *)data, size));
    bool parsed = c->errors == 0;
    if (parsed) {
        check_format(c, ast, false);
        check_format(c, ast, true);
    }
    print_diags(c);
    compiler_free(c);
#ifndef FUZZ_SYNTAX_ONLY
    if (parsed)
        check_meaning(data, size);
#endif
    return 0;
}
