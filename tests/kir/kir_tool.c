/* What the tests of the kernel IR do with texts of kernels.
 *   kir_tool verify FILE       "right", or what is wrong with it
 *   kir_tool clean FILE        without what nothing reads
 *   kir_tool cuda FILE         as nvcc gets it
 *   kir_tool c FILE            as the C compiler gets it, of a kernel that has no threads
 *   kir_tool same FILE FILE    "same" or "different", and whether the hashes say so
 *   kir_tool round FILE        each kernel of the file, which has several, is what its text reads back as */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kir/kir.h"

static char *read_all(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    char *text = malloc(1 << 24);
    *len = fread(text, 1, (1 << 24) - 1, f);
    text[*len] = 0;
    fclose(f);
    return text;
}

static Kir *parsed(Arena *a, const char *text, size_t len)
{
    Kir *k = NULL;
    const char *wrong = kir_parse_text(a, text, len, &k);
    if (wrong)
        printf("%s\n", wrong);
    return wrong ? NULL : k;
}

static Kir *load(Arena *a, const char *path)
{
    size_t len;
    char *text = read_all(path, &len);
    Kir *k = parsed(a, text, len);
    free(text);
    return k;
}

static const char *dumped(Arena *a, const Kir *k)
{
    Buf b = { .arena = a };
    kir_dump(k, &b);
    return b.data;
}

static const char *printed(Arena *a, const Kir *k)
{
    Buf b = { .arena = a };
    kir_print_cuda(k, &b);
    return b.data;
}

static const char *printed_c(Arena *a, const Kir *k)
{
    Buf b = { .arena = a };
    kir_print_c(k, &b);
    return b.data;
}

static bool says(const char *name, const char *what)
{
    printf("%s: %s\n", name, what);
    return false;
}

static bool is_short(const char *text)
{
    for (size_t n; *text; text += n + (text[n] == '\n'))
        if ((n = strcspn(text, "\n")) > 110)
            return false;
    return true;
}

static bool round_trip(Arena *a, const char *text, size_t len)
{
    Kir *k = parsed(a, text, len);
    if (!k)
        return false;
    const char *wrong = kir_verify(k), *again = dumped(a, k), *cuda = printed(a, k);
    if (wrong)
        return says(k->name, wrong);
    if (strlen(again) != len || memcmp(again, text, len) != 0)
        return says(k->name, "reads back as another text");
    Kir *copy = parsed(a, again, len);
    if (!copy || !kir_same(k, copy) || kir_hash(k) != kir_hash(copy))
        return says(k->name, "is not what its text reads back as");
    if (strcmp(printed(a, copy), cuda) != 0)
        return says(k->name, "is printed otherwise when it was read back");
    if (!is_short(cuda))
        return says(k->name, "has a line of more than 110 columns");
    kir_clean(copy);
    return strcmp(dumped(a, copy), again) == 0 || says(k->name, "has declarations that nothing reads");
}

static int round_trips(const char *path)
{
    size_t len;
    char *text = read_all(path, &len);
    int passed = 0, failed = 0;
    for (char *s = text; *s;) {
        char *next = strstr(s, "\nkernel ");
        next = next ? next + 1 : s + strlen(s);
        Arena *a = arena_new();
        if (round_trip(a, s, (size_t)(next - s)))
            passed++;
        else
            failed++;
        arena_free(a);
        s = next;
    }
    printf("%d passed, %d failed\n", passed, failed);
    free(text);
    return failed > 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "round") == 0)
        return round_trips(argv[2]);
    Arena *a = arena_new();
    Kir *k = load(a, argv[2]), *other = argc > 3 ? load(a, argv[3]) : NULL;
    if (!k) {
        arena_free(a);
        return 1;
    }
    const char *wrong = strcmp(argv[1], "same") == 0 ? NULL : kir_verify(k);
    if (strcmp(argv[1], "clean") == 0)
        kir_clean(k);
    if (wrong || strcmp(argv[1], "verify") == 0)
        printf("%s\n", wrong ? wrong : "right");
    else if (strcmp(argv[1], "same") == 0 && other)
        printf("%s, hashes %s\n", kir_same(k, other) ? "same" : "different", kir_hash(k) == kir_hash(other) ?
               "equal" : "differ");
    else if (strcmp(argv[1], "c") == 0)
        fputs(printed_c(a, k), stdout);
    else
        fputs(strcmp(argv[1], "cuda") == 0 ? printed(a, k) : dumped(a, k), stdout);
    arena_free(a);
    return 0;
}
