/* home.c: finds what cellc ships, from the place of the program itself: a built source tree
 * (ROOT/build/cellc) or an install prefix (PREFIX/bin/cellc). CELLC_HOME overrides both. */
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "home.h"
#include "texts.h"

typedef struct Place { const char *in_tree, *installed, *proof; } Place;

/* The proof is a file that must be there, so that a directory of the same name elsewhere is not taken for
 * ours. */
static const Place places[] = {
    [HOME_SPECS] = { "specs", "share/cellc/specs", "e79.cell" },
    [HOME_INCLUDE] = { "runtime", "include/cellc", "cell.h" },
    [HOME_BACKEND] = { "runtime", "share/cellc/runtime", "backend_cuda.c" },
    [HOME_TIME] = { "bench", "share/cellc/bench", "time.c" },
    [HOME_EMULATOR] = { "tests/emulator", "share/cellc/emulator", "cell_emu.h" },
    [HOME_LIB] = { "build", "lib/cellc", "libcell.a" },
};

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

const char *home_program(Compiler *c)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    const char *started = (const char *)getauxval(AT_EXECFN); /* in a root without /proc */
    if (n > 0)
        path[n] = 0;
    else if (!started || !realpath(started, path))
        return NULL;
    return intern(c, path);
}

/* The directory that the program's file is in, or NULL. */
static const char *program_dir(Compiler *c)
{
    const char *path = home_program(c), *slash = path ? strrchr(path, '/') : NULL;
    return slash && slash != path ? intern_n(c, path, (size_t)(slash - path)) : NULL;
}

static const char *try_dir(Compiler *c, const char *root, const char *part, const char *proof)
{
    const char *dir = intern_f(c, "%s/%s", root, part);
    return is_there(intern_f(c, "%s/%s", dir, proof)) ? dir : NULL;
}

const char *home_dir(Compiler *c, HomePart part)
{
    const Place *place = &places[part];
    const char *root = getenv("CELLC_HOME"), *program = program_dir(c), *dir;
    /* libcell lies beside the program in a source tree, whatever that build directory is called. */
    if (!root && part == HOME_LIB && program && (dir = try_dir(c, program, ".", place->proof)))
        return program;
    if (!root && program)
        root = intern_f(c, "%.*s", (int)(strrchr(program, '/') - program), program);
    if (!root)
        return NULL;
    if ((dir = try_dir(c, root, place->in_tree, place->proof)))
        return dir;
    return try_dir(c, root, place->installed, place->proof);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The cells in a directory, sorted; std.cell has functions only. */
static int shipped_cells(Compiler *c, const char *dir, const char **names, int room)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && n < room && (e = readdir(d));) {
        size_t len = strlen(e->d_name), end = sizeof ".cell" - 1;
        if (len > end && strcmp(e->d_name + len - end, ".cell") == 0 && strcmp(e->d_name, "std.cell") != 0)
            names[n++] = intern_n(c, e->d_name, len - end);
    }
    if (d)
        closedir(d);
    qsort(names, (size_t)n, sizeof *names, by_name);
    return n;
}

static void no_such_cell(Compiler *c, const char *name, const char *dir)
{
    enum { MAX_CELLS = 1000 };
    const char *names[MAX_CELLS] = { NULL };
    int n = dir ? shipped_cells(c, dir, names, MAX_CELLS) : 0;
    const char *near = suggest(name, names, n);
    diag(c, DIAG_ERROR, (Span){ .file = -1 },
         near ? "there is no file '%s', and no cell of that name comes with cellc; did you mean '%s'?"
              : "there is no file '%s', and no cell of that name comes with cellc",
         name, near);
    if (n && !near)
        diag(c, DIAG_NOTE, (Span){ .file = -1 }, "the %d that do are in %s", n, dir);
}

/* FILE:CELL, where no file has the whole as its name. NULL after a diagnostic. */
static const char *without_cell(Compiler *c, const char *operand)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *colon = strrchr(operand, ':');
    if (!colon || is_there(operand))
        return operand;
    if (colon[1] && !colon[1 + strspn(colon + 1, word)]) {
        c->cell = intern(c, colon + 1);
        return intern_n(c, operand, (size_t)(colon - operand));
    }
    if (!strchr(colon, '='))
        return operand;
    diag(c, DIAG_ERROR, (Span){ .file = -1 }, "'%s': `cellc build` takes settings behind ':'; here they are options, --dim NAME=N "
         "or --set NAME=VALUE", operand);
    return NULL;
}

const char *home_operand(Compiler *c, const char *path)
{
    return c->cell ? intern_f(c, "%s:%s", path, c->cell) : path;
}

const char *home_spec(Compiler *c, const char *name)
{
    const char *dir = home_dir(c, HOME_SPECS);
    if (!(name = without_cell(c, name)))
        return NULL;
    if (texts_closed(c) && strcmp(name, "-") == 0)
        return texts_path(c, TEXT_SPEC, 0);
    if (strpbrk(name, "./") || is_file(name))
        return name;
    const char *path = dir ? intern_f(c, "%s/%s.cell", dir, name) : NULL;
    if (path && is_there(path))
        return path;
    no_such_cell(c, name, dir);
    return NULL;
}

const char *home_flags(Compiler *c, const char *key)
{
    const char *lib = home_dir(c, HOME_LIB);
    char line[4096];
    size_t len = strlen(key);
    FILE *f = lib ? fopen(intern_f(c, "%s/libcell.flags", lib), "r") : NULL;
    const char *found = NULL;
    while (f && !found && fgets(line, sizeof line, f))
        if (strncmp(line, key, len) == 0 && line[len] == ' ') {
            line[strcspn(line, "\n")] = 0;
            found = intern(c, line + len + 1);
        }
    if (f)
        fclose(f);
    return found;
}
