/* home.c: finds what cellc ships, from the place of the program itself: a built source tree
 * (ROOT/build/cellc) or an install prefix (PREFIX/bin/cellc). CELLC_HOME overrides both. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "home.h"

typedef struct Place { const char *in_tree, *installed, *proof; } Place;

/* The proof is a file that must be there, so that a directory of the same name elsewhere is not taken for
 * ours. */
static const Place places[] = {
    [HOME_SPECS] = { "specs", "share/cellc/specs", "e79.cell" },
    [HOME_INCLUDE] = { "runtime", "include/cellc", "cell.h" },
    [HOME_LIB] = { "build", "lib/cellc", "libcell.a" },
};

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* The directory that the program's file is in, or NULL. */
static const char *program_dir(Compiler *c)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return NULL;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return NULL;
    *slash = 0;
    return intern(c, path);
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
