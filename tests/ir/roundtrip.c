/* roundtrip.c: prints the IR after every pass, reads it back and prints it again. Arguments: `pass FILE
 * [--dim N=V | --set o=v]...` takes a spec through the passes of both pipelines; `read FILE` reads one file
 * that should be IR and says what is wrong; `mutate FILE SEED COUNT` reads damaged copies of it: what is read
 * must verify and print as itself. What differs is printed; the last line of `pass` and `mutate` counts. */
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "commands/options.h"
#include "front/front.h"
#include "ir/split_states.h"
#include "pipeline.h"

static int passed, failed;

static Buf print(const Module *m)
{
    Buf b = { .arena = m->arena };
    ir_print(m, &b);
    return b;
}

/* The first line that differs, for the report. */
static void show_difference(const Buf *a, const Buf *b)
{
    size_t i = 0, line = 0;
    for (; i < a->len && i < b->len && a->data[i] == b->data[i]; i++)
        if (a->data[i] == '\n')
            line = i + 1;
    printf("  before: %.*s\n", (int)strcspn(a->data + line, "\n"), a->data + line);
    printf("  after:  %.*s\n", (int)strcspn(b->data + line, "\n"), b->data + line);
}

/* What a pass may have made wrong silently: passes after reading back must give what they give without it. */
static bool same_text(const Module *a, const Module *b, const char *path, const char *pass)
{
    Buf x = print(a), y = print(b);
    bool same = x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    same ? passed++ : failed++;
    if (!same) {
        printf("%s after %s:\n", path, pass);
        show_difference(&x, &y);
    }
    return same;
}

static Module *read_back(const Module *m, const char *path, const char *pass, Compiler *c)
{
    Buf text = print(m);
    Module *back = ir_parse(c, text.data, text.len);
    if (!back) {
        printf("%s after %s is not read back:\n", path, pass);
        diag_print(c, stdout);
        failed++;
        return NULL;
    }
    ir_verify(back, "ir_parse");
    return back;
}

static void settings(Compiler *c, int argc, char **argv)
{
    c->import_dir = "specs";
    for (int i = 0; i + 1 < argc; i += 2) {
        char *eq = strchr(argv[i + 1], '=');
        if (!eq)
            continue;
        Setting s = { intern_n(c, argv[i + 1], (size_t)(eq - argv[i + 1])), intern(c, eq + 1), false };
        if (strcmp(argv[i], "--dim") == 0)
            vec_push(c->arena, &c->dims, s);
        else
            vec_push(c->arena, &c->sets, s);
    }
}

/* The module and what was read back from it go through the same pass and must stay the same text. side: of
 * the states, where the passes take them apart (Module.side). */
static void through(const char *path, const Pass *passes, int side, int argc, char **argv)
{
    Compiler *c = compiler_new(), *d = compiler_new();
    settings(c, argc, argv);
    Module *m = front_end(c, path);
    if (!m) {
        diag_print(c, stdout);
        failed++;
    }
    Module *back = m ? read_back(m, path, "lower", d) : NULL;
    if (back) {
        same_text(m, back, path, "lower");
        m->side = back->side = side;
        if (side && !may_split_states(m))
            back = NULL;
    }
    for (const Pass *p = passes; back && p->name; p++) {
        if (!p->run)
            continue;
        p->run(m);
        p->run(back);
        if (!same_text(m, back, path, p->name))
            break;
        Compiler *e = compiler_new();
        Module *again = read_back(m, path, p->name, e);
        if (again)
            same_text(m, again, path, p->name);
        compiler_free(e);
    }
    compiler_free(c);
    compiler_free(d);
}

static int read_one(const char *path)
{
    Compiler *c = compiler_new();
    int file = source_load(c, path);
    const Module *m = file < 0 ? NULL : ir_parse(c, c->sources.data[file].text, c->sources.data[file].len);
    if (m) {
        ir_verify(m, "ir_parse");
        Buf b = print(m);
        fwrite(b.data, 1, b.len, stdout);
    }
    diag_print(c, stdout);
    int rc = m ? 0 : 1;
    compiler_free(c);
    return rc;
}

/* ---- damage ---- */

static uint64_t state;

static uint32_t random_below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

/* Bytes are replaced, lines doubled, dropped or moved, numbers changed. */
static size_t damage(char *text, size_t len, size_t cap)
{
    static const char *const pieces[] = { "%", "[", "]", "(", ")", "-1", "99999999999", "*", "/ ", "i.2",
                                          "@0:1-2", " via 0", "0x1p+0", "mod(", ", 0)", "\"", "\n", "D", "sum [",
                                          "%0", "output ", " : ", "nan", "T*" };
    for (uint32_t k = 1 + random_below(4); k > 0; k--) {
        size_t at = len ? random_below((uint32_t)len) : 0;
        const char *piece = pieces[random_below(sizeof pieces / sizeof *pieces)];
        size_t n = strlen(piece), cut = random_below(3) ? random_below(6) : random_below(200);
        cut = cut > len - at ? len - at : cut;
        if (random_below(4) == 0 && len) {
            text[at] = (char)random_below(256);
            continue;
        }
        n = len - cut + n > cap ? 0 : n;
        memmove(text + at + n, text + at + cut, len - at - cut);
        memcpy(text + at, piece, n);
        len += n - cut;
    }
    return len;
}

static void try_damaged(const char *text, size_t len)
{
    Compiler *c = compiler_new(), *d = compiler_new();
    Module *m = ir_parse(c, text, len);
    if (!m) {
        c->errors ? passed++ : failed++;
    } else {
        ir_verify(m, "ir_parse");
        Module *back = read_back(m, "damaged", "reading", d);
        if (back)
            same_text(m, back, "damaged", "reading");
    }
    compiler_free(c);
    compiler_free(d);
}

static int mutate(const char *path, uint64_t seed, int count)
{
    Compiler *c = compiler_new();
    int file = source_load(c, path);
    if (file < 0)
        return 1;
    size_t len = c->sources.data[file].len, cap = len + 256;
    for (int i = 0; i < count; i++) {
        state = seed * 1000003 + (uint64_t)i;
        char *copy = malloc(cap);
        if (!copy)
            return 1;
        memcpy(copy, c->sources.data[file].text, len);
        try_damaged(copy, damage(copy, len, cap));
        free(copy);
    }
    compiler_free(c);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "read") == 0)
        return read_one(argv[2]);
    if (argc == 5 && strcmp(argv[1], "mutate") == 0) {
        if (mutate(argv[2], strtoull(argv[3], NULL, 10), atoi(argv[4])))
            failed++;
    } else if (argc >= 3 && strcmp(argv[1], "pass") == 0) {
        through(argv[2], reference_passes, 0, argc - 3, argv + 3);
        through(argv[2], fast_passes, 0, argc - 3, argv + 3);
        through(argv[2], fast_passes, 1, argc - 3, argv + 3);
        through(argv[2], fast_passes, 2, argc - 3, argv + 3);
    } else {
        fprintf(stderr, "usage: roundtrip pass FILE [--dim N=V]... | read FILE | mutate FILE SEED COUNT\n");
        return 2;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
