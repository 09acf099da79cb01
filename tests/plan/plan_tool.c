/* plan_tool.c: what the tests of the planner do with dumps of plans.
 *   plan_tool verify FILE      for each plan of the file "right", or what is wrong with it
 *   plan_tool round FILE       does each print as the text that it was read from? The last line counts
 *   plan_tool damage FILE N    reads N damaged copies of the first: what is read can be verified, else there is a message */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_pass.h"

static char *read_all(const char *path, size_t *len)
{
    enum { MOST = 1 << 26 };
    FILE *f = fopen(path, "rb");
    char *text = malloc(MOST);
    if (!f || !text) {
        perror(path);
        exit(2);
    }
    *len = fread(text, 1, MOST - 1, f);
    text[*len] = 0;
    fclose(f);
    return text;
}

/* A plan begins with its module. */
static size_t length_of(const char *text)
{
    const char *next = strstr(text, "\nir ");
    return next ? (size_t)(next + 1 - text) : strlen(text);
}

static Plan *parsed(Compiler *c, const char *text, size_t len, const char **pass)
{
    const char *wrong;
    Plan *p = plan_read(c, text, len, pass, &wrong);
    if (p)
        return p;
    printf("%s\n", wrong);
    diag_print(c, stdout);
    return NULL;
}

static const char *verified(Plan *p, const char *pass)
{
    const Uses *const uses[] = { direction_uses(p, FORWARD), direction_uses(p, BACKWARD) };
    const char *wrong = plan_verify(p, pass, uses);
    return wrong ? wrong : "right";
}

static bool prints_as(const Plan *p, const char *pass, const char *text, size_t len)
{
    Buf b = { .arena = p->m->arena };
    plan_print(p, pass, &b);
    if (b.len == len && memcmp(b.data, text, len) == 0)
        return true;
    size_t i = 0, line = 0;
    for (; i < b.len && i < len && b.data[i] == text[i]; i++)
        if (text[i] == '\n')
            line = i + 1;
    printf("  read:    %.*s\n", (int)strcspn(text + line, "\n"), text + line);
    printf("  printed: %.*s\n", (int)strcspn(b.data + line, "\n"), b.data + line);
    return false;
}

/* ---- damage */

static uint64_t state = 1;

static uint32_t random_below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}

/* Behind the module a few pieces of text take the place of others, which are seldom as long. */
static size_t damage(char *text, size_t from, size_t len)
{
    static const char *const pieces[] = { "%", "{", "}", "-1", "99999999999", " of ", "\"", "\n", "group 1", "%3",
                                          "forward\n", "buffer 0", "during", "between 3", "reserve 1", "tensor 0" };
    for (uint32_t k = 1 + random_below(4); k > 0; k--) {
        const char *piece = pieces[random_below(sizeof pieces / sizeof *pieces)];
        size_t n = strlen(piece), at = from + random_below(len - from), cut = random_below(3) ? n : random_below(60);
        cut = cut > len - at ? len - at : cut;
        memmove(text + at + n, text + at + cut, len - at - cut);
        memcpy(text + at, piece, n);
        len += n - cut;
    }
    return len;
}

static int damage_all(const char *text, size_t len, int count)
{
    const char *mark = strstr(text, "\nplan ");
    int passed = 0, failed = 0;
    for (int i = 0; mark && i < count; i++) {
        Compiler *c = compiler_new();
        char *copy = malloc(len + 256);
        const char *pass = "", *wrong = NULL;
        if (!copy)
            return 1;
        memcpy(copy, text, len);
        Plan *p = plan_read(c, copy, damage(copy, (size_t)(mark - text) + 1, len), &pass, &wrong);
        (p ? verified(p, pass) : wrong) ? passed++ : failed++;
        compiler_free(c);
        free(copy);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || !passed;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "damage") == 0) {
        size_t len;
        char *text = read_all(argv[2], &len);
        int rc = damage_all(text, length_of(text), atoi(argv[3]));
        free(text);
        return rc;
    }
    if (argc != 3 || (strcmp(argv[1], "verify") != 0 && strcmp(argv[1], "round") != 0)) {
        fprintf(stderr, "usage: plan_tool verify FILE | round FILE | damage FILE N\n");
        return 2;
    }
    const bool round = strcmp(argv[1], "round") == 0;
    int passed = 0, failed = 0;
    size_t all;
    char *text = read_all(argv[2], &all);
    for (const char *at = text; *at; at += length_of(at)) {
        Compiler *c = compiler_new();
        const size_t len = length_of(at);
        const char *pass = "";
        Plan *p = parsed(c, at, len, &pass);
        const char *said = p ? verified(p, pass) : NULL;
        if (said && (!round || strcmp(said, "right") != 0))
            printf("%s\n", said);
        const bool right = said && strcmp(said, "right") == 0 && (!round || prints_as(p, pass, at, len));
        right ? passed++ : failed++;
        compiler_free(c);
    }
    free(text);
    if (round)
        printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
