/* sample.c: prints the part of sample.cuh, with all holes or without the one that is named. */
#include <string.h>

#include "sample.h"

static const char *unless(const char *left_out, const char *hole, const char *text)
{
    return strcmp(left_out, hole) == 0 ? NULL : text;
}

int main(int argc, char **argv)
{
    const char *out = argc > 1 ? argv[1] : "";
    Arena *arena = arena_new();
    Buf text = { .arena = arena, .indent = 1 };
    SampleFrame f = { .why = "why", .loops = true };
    f.name = unless(out, "name", "all");
    f.body = unless(out, "body", "if (n)\n    one();\n\ntwo();\n");
    f.times = unless(out, "times", "3");
    sample_frame(&text, &f);
    f.why = "";
    f.behind = "three();\n";
    sample_frame(&text, &f);
    f.loops = false;
    f.body = "";
    sample_frame(&text, &f);
    sample_empty_frame(&text, &(SampleEmptyFrame){ 0 });
    printf("%s", text.data);
    const size_t length = text.len;
    text.dropped = true;
    sample_frame(&text, &f);
    puts(text.len == length ? "dropped" : "printed");
    arena_free(arena);
    return 0;
}
