/* test_corpus.c: every input the fuzzer kept, every spec and every broken spec of tests/diag goes through the
 * front end once more, whole and cut off at several places. */
#include <glob.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    static uint8_t text[1 << 20];
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    LLVMFuzzerTestOneInput(text, n);
    for (size_t k = 1; k < 4; k++)
        LLVMFuzzerTestOneInput(text, n * k / 4);
    return 1;
}

int main(void)
{
    static const char *const patterns[] = {"tests/fuzz/corpus/*", "specs/*.cell", "tests/diag/*.cell",
                                           "tests/fmt/*.cell"};
    int passed = 0, failed = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t g;
        int before = passed;
        if (glob(patterns[i], 0, NULL, &g) == 0) {
            for (size_t k = 0; k < g.gl_pathc; k++)
                passed += run_file(g.gl_pathv[k]);
            globfree(&g);
        }
        failed += passed == before;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
