/* hints.c: what stands behind --schedule NAME: of a walk, the choices that the planner is not to make. In:
 * text such as "cluster=4:forward=2x16/1x4:interval=2", or a layout that the planner thinks of. Out: the
 * hints, or what is wrong with them; whether they allow the layout. Guaranteed: hints_text gives what
 * hints_read read, so that `cellc tune` may keep a choice as text. Whether a cell can be walked so is the
 * planner's business: it refuses what does not fit. */
#include <stdlib.h>
#include <string.h>

#include "hints.h"

static const char *const direction_names[] = { "forward", "backward" };

enum { MOST_WARPS = 32, MOST_STEPS = 16 };

/* A whole number at *text, moved past it; -1: there is none. */
static int number(const char **text)
{
    char *end;
    if (**text < '0' || **text > '9')
        return -1;
    long n = strtol(*text, &end, 10);
    *text = end;
    return n > 100000 ? 100000 : (int)n;
}

static bool power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* "2x16" */
static bool read_pair(const char **text, int *rows, int *cols)
{
    *rows = number(text);
    if (*rows < 0 || *(*text)++ != 'x')
        return false;
    *cols = number(text);
    return *rows > 0 && *cols > 0;
}

static bool read_layout(const char *text, LayoutHint *l)
{
    return read_pair(&text, &l->row_lanes, &l->col_lanes) && *text++ == '/' &&
           read_pair(&text, &l->row_warps, &l->col_warps) && !*text && power_of_two(l->row_lanes) &&
           l->row_lanes * (int64_t)l->col_lanes == 32 && l->row_warps * (int64_t)l->col_warps <= MOST_WARPS;
}

/* The number behind NAME=; -1: it is not one. */
static int whole(const char *text)
{
    int n = number(&text);
    return *text ? -1 : n;
}

/* Is it one of those that the schedule takes? */
static bool is_taken(const Schedule *s, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = s->takes_hints; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return true;
    }
    return false;
}

static const char *read_one(Compiler *c, const Schedule *s, const char *name, const char *value, WalkHints *h)
{
    int n = whole(value);
    if (!is_taken(s, name))
        return intern_f(c, ": takes %s, not '%s'", s->takes_hints, name);
    if (strcmp(name, "rows") == 0) {
        h->rows = n;
        return n == 16 || n == 32 || n == 64
                   ? NULL
                   : intern_f(c, ":rows takes 16, 32 or 64 steps, not '%s'", value);
    }
    if (strcmp(name, "cluster") == 0) {
        h->cluster = n;
        return power_of_two(n) && n <= 8 ? NULL
               : intern_f(c, ":cluster takes 1, 2, 4 or 8 blocks, not '%s'", value);
    }
    if (strcmp(name, "interval") == 0) {
        h->interval = n;
        return n >= 1 && n <= MOST_STEPS ? NULL
               : intern_f(c, ":interval takes 1 to %d steps, not '%s'", MOST_STEPS, value);
    }
    if (strcmp(name, "warps") == 0) {
        h->warps = n;
        return n >= 1 && n <= MOST_WARPS ? NULL
               : intern_f(c, ":warps takes 1 to %d, not '%s'", MOST_WARPS, value);
    }
    int d = strcmp(name, direction_names[1]) == 0;
    return read_layout(value, &h->layout[d]) ? NULL
           : intern_f(c, ":%s takes LANES/WARPS, each rows x columns, as 2x16/1x4: 32 lanes in powers of two and at "
                         "most %d warps, not '%s'", name, MOST_WARPS, value);
}

/* Is the name of a hint that of one in front of it? */
static bool given_before(const char *all, const char *hint, size_t name)
{
    for (; all < hint; all += strcspn(all, ":") + 1)
        if (strncmp(all, hint, name) == 0 && (all[name] == '=' || all[name] == ':'))
            return true;
    return false;
}

const char *hints_read(Compiler *c, const char *text, const Schedule *s, WalkHints *hints)
{
    const char *wrong = NULL, *all = text;
    *hints = (WalkHints){ 0 };
    do {
        size_t len = strcspn(text, ":"), name = strcspn(text, "=:");
        const char *value = name < len ? intern_n(c, text + name + 1, len - name - 1) : "";
        wrong = given_before(all, text, name) ? intern_f(c, ":%.*s is given twice", (int)name, text)
                                              : read_one(c, s, intern_n(c, text, name), value, hints);
        text += len;
    } while (!wrong && *text++);
    return wrong;
}

const char *layout_text(Compiler *c, const LayoutHint *l)
{
    return intern_f(c, "%dx%d/%dx%d", l->row_lanes, l->col_lanes, l->row_warps, l->col_warps);
}

const char *hints_text(Compiler *c, const WalkHints *h)
{
    Buf b = { .arena = c->arena };
    const struct { const char *name; int value; } numbers[] = {
        { "cluster", h->cluster }, { "interval", h->interval }, { "warps", h->warps }, { "rows", h->rows },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value)
            buf_f(&b, "%s%s=%d", b.len ? ":" : "", numbers[i].name, numbers[i].value);
    for (int d = 0; d < 2; d++)
        if (h->layout[d].row_lanes)
            buf_f(&b, "%s%s=%s", b.len ? ":" : "", direction_names[d], layout_text(c, &h->layout[d]));
    return b.len ? intern_n(c, b.data, b.len) : "";
}

bool hints_choose(const WalkHints *h, int direction)
{
    return h->warps || h->layout[direction].row_lanes;
}

bool hints_allow(const WalkHints *h, int direction, const LayoutHint *l)
{
    const LayoutHint *wanted = &h->layout[direction];
    if (wanted->row_lanes)
        return wanted->row_lanes == l->row_lanes && wanted->col_lanes == l->col_lanes &&
               wanted->row_warps == l->row_warps && wanted->col_warps == l->col_warps;
    return !h->warps || h->warps == l->row_warps * l->col_warps;
}
