/* cmd_fmt.c: `cellc fmt`. In: specs, or standard input. Out: their canonical text on standard output, back
 * in the file, or only the answer whether they have it already. A file with errors is never touched. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/say.h"
#include "commands.h"
#include "front/ast.h"
#include "options.h"

static const CommandHelp help = {
    .name = "fmt",
    .arguments = "[SPEC...]",
    .summary = "print specs in canonical form; without a file, or for -: standard input",
    .examples = "  cellc fmt specs/e79.cell             print it\n"
                "  cellc fmt --write specs/*.cell       rewrite the files\n"
                "  cellc fmt --check specs/*.cell       exit 1 and name the files that would change\n"
                "  cellc fmt --explicit specs/e79.cell  with all parentheses, to see how it is read\n",
    .reads = true,
};

typedef struct FmtOptions { bool write, check, explicit_form; } FmtOptions;

/* All of standard input, NUL-terminated; the caller frees it. */
static char *read_stdin(size_t *len)
{
    size_t cap = 1 << 16, n;
    char *text = malloc(cap);
    *len = 0;
    while (text && (n = fread(text + *len, 1, cap - *len - 1, stdin)) > 0) {
        *len += n;
        if (*len + 1 == cap) {
            char *more = realloc(text, cap *= 2);
            if (!more)
                free(text);
            text = more;
        }
    }
    if (!text) {
        say(DIAG_ERROR, "fmt", "out of memory");
        exit(70);
    }
    text[*len] = 0;
    return text;
}

static int load(Compiler *c, const char *path)
{
    size_t len;
    if (path)
        return source_load(c, path);
    char *text = read_stdin(&len);
    int file = source_add(c, "<stdin>", text, len);
    free(text);
    return file;
}

/* Written beside the file and moved over it, so that a full disk never costs the user the spec. */
static int write_back(const char *path, const Buf *text)
{
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.fmt", path);
    FILE *f = fopen(temporary, "wb");
    bool ok = f && fwrite(text->data, 1, text->len, f) == text->len;
    if (f)
        ok &= fclose(f) == 0;
    if (!ok || rename(temporary, path) != 0) {
        say(DIAG_ERROR, "fmt", "cannot write %s: %s", path, strerror(errno));
        remove(temporary);
        return 1;
    }
    return 0;
}

static int fmt_one(const char *path, const FmtOptions *o)
{
    Compiler *c = compiler_new();
    Buf out = { .arena = c->arena };
    int rc = 0, file = load(c, path);
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    if (ast && !c->errors)
        fmt_ast(c, ast, o->explicit_form, &out);
    diag_print(c, stderr);
    if (c->errors) {
        rc = 1;
    } else {
        const Source *source = &c->sources.data[file];
        bool same = source->len == out.len && memcmp(source->text, out.data, out.len) == 0;
        if (o->check) {
            rc = !same;
            if (!same)
                print_shown(path ? path : "<stdin>");
        } else if (o->write && path) {
            rc = same ? 0 : write_back(path, &out);
        } else {
            fwrite(out.data, 1, out.len, stdout);
        }
    }
    compiler_free(c);
    return rc;
}

int cmd_fmt(int argc, char **argv)
{
    FmtOptions o = { 0 };
    const OptionSpec table[] = {
        { "--write", NULL, OPT_FLAG, &o.write, "rewrite the files instead of printing" },
        { "--check", NULL, OPT_FLAG, &o.check, "change nothing; exit 1 when a file would change" },
        { "--explicit", NULL, OPT_FLAG, &o.explicit_form, "put in all parentheses" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    const char *operands[argc + 1];
    Compiler *c = compiler_new();
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        rc = n ? 0 : fmt_one(NULL, &o);
        for (int i = 0; i < n; i++)
            rc |= fmt_one(strcmp(operands[i], "-") == 0 ? NULL : operands[i], &o);
    }
    compiler_free(c);
    return rc;
}
