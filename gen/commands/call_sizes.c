/* call_sizes.c: --sizes. In: a list such as B=16,T=512,D=1024 and a compiled cell. Out: the sizes of a call
 * by atom. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "call_sizes.h"

static const char *size_name(const Module *m, int i)
{
    return i == 0 ? "B" : i == 1 ? "T" : dim_text(m, i - 2);
}

static int size_atom(int i)
{
    return i == 0 ? ATOM_B : i == 1 ? ATOM_T : i - 2;
}

/* The size that "NAME=N" is about, counted B, T, dims; -1: none. */
static int named_size(const Module *m, const char *text, size_t n)
{
    for (int i = 0; m && i < m->dims.len + 2; i++) {
        size_t name = strlen(size_name(m, i));
        if (n >= name + 2 && strncmp(text, size_name(m, i), name) == 0 && text[name] == '=')
            return i;
    }
    return -1;
}

/* The number of "NAME=N", n characters; 0: it has none that a size can be. */
static int64_t read_number(const char *text, size_t n)
{
    char *end;
    errno = 0;
    const char *digits = (const char *)memchr(text, '=', n) + 1;
    int64_t number = strtoll(digits, &end, 10);
    return end == text + n && !errno && number > 0 && number < 1 << 30 ? number : 0;
}

int call_sizes_read(const CommandHelp *help, const Module *m, const Module *beside, const char *text,
                    int64_t sizes[MAX_DIMS])
{
    bool given[MAX_DIMS] = { false };
    Buf names = { .arena = m->arena };
    for (int i = 0; i < m->dims.len + 2; i++)
        buf_f(&names, "%s%s", i ? ", " : "", size_name(m, i));
    for (size_t n; *text; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        int which = named_size(m, text, n);
        bool other = which < 0 && named_size(beside, text, n) >= 0;
        int64_t number = which < 0 && !other ? 0 : read_number(text, n);
        if (!number)
            return usage_error(help, "--sizes takes NAME=N,... with N from 1 on, not '%.*s'; "
                               "the sizes are %s", (int)n, text, names.data);
        if (other)
            continue;
        sizes[size_atom(which)] = number;
        given[which] = true;
    }
    for (int i = 0; i < m->dims.len + 2; i++)
        if (!given[i])
            return usage_error(help, "--sizes says nothing of %s; the sizes are %s", size_name(m, i),
                               names.data);
    sizes[ATOM_PAST] = sizes[ATOM_T];        /* of a call that begins with step 0 */
    return 0;
}
