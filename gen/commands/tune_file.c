/* tune_file.c: NAME.tune, where `cellc tune` keeps what it has chosen and other commands find it. In: the file's text; a
 * cell that is to be compiled. Out: entries; the schedule for the cell. Guaranteed: what is written reads back the same; an
 * entry counts only for the program that was measured, in the types and sizes that were bound, and where the plan is made
 * for GPUs of its architecture; what is ignored because the spec has changed since is said. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/texts.h"
#include "commands.h"
#include "generate.h"
#include "gpu.h"
#include "launch/emit_api.h"
#include "options.h"
#include "plan/plan.h"
#include "tune.h"

/* Lines of an entry, in order; the first begins one. */
enum { L_INSTANCE, L_PROGRAM, L_GPU, L_ARCH, L_SIZES, L_SCHEDULE, L_FORWARD, L_BOTH, N_LINES };
static const char *const line_names[N_LINES] = {
    "instance", "program", "gpu", "arch", "sizes", "schedule", "forward", "both",
};

static const char **text_of(TuneEntry *e, int line)
{
    const char **all[] = { &e->instance, &e->program, &e->gpu, &e->arch, &e->sizes, &e->schedule };
    return all[line];
}

/* ---- reading */

typedef struct Reader {
    Compiler *c;
    int file;
    TuneEntryVec *entries;
    bool seen[N_LINES];
} Reader;

static bool wrong(Reader *r, Span at, const char *what)
{
    diag(r->c, DIAG_ERROR, at, "%s; `cellc tune` writes such files", what);
    return false;
}

/* "1.1000 default 1.5500" */
static bool read_times(const char *text, double *ms, double *default_ms)
{
    char more;
    return sscanf(text, "%lf default %lf %c", ms, default_ms, &more) == 2 && *ms > 0 && *default_ms > 0;
}

static bool entry_is_whole(Reader *r)
{
    for (int k = 0; k < N_LINES && r->entries->len; k++)
        if (!r->seen[k])
            return wrong(r, r->entries->data[r->entries->len - 1].span,
                         intern_f(r->c, "this entry has no line '%s'", line_names[k]));
    return true;
}

static bool read_line(Reader *r, const char *word, const char *rest, Span at)
{
    int k = 0;
    while (k < N_LINES && strcmp(word, line_names[k]) != 0)
        k++;
    if (k == N_LINES)
        return wrong(r, at, intern_f(r->c, "there is no line '%s' in an entry", word));
    if (k == L_INSTANCE) {
        if (!entry_is_whole(r))
            return false;
        memset(r->seen, 0, sizeof r->seen);
        vec_push(r->c->arena, r->entries, (TuneEntry){ .span = at });
    }
    if (!r->entries->len)
        return wrong(r, at, intern_f(r->c, "an entry begins with 'instance', not '%s'", word));
    if (r->seen[k])
        return wrong(r, at, intern_f(r->c, "this entry has two lines '%s'", word));
    if (!*rest)
        return wrong(r, at, intern_f(r->c, "nothing stands behind '%s'", word));
    TuneEntry *e = &r->entries->data[r->entries->len - 1];
    r->seen[k] = true;
    if (k == L_PROGRAM)
        e->program_span = at;
    if (k == L_SCHEDULE)
        e->schedule_span = at;
    if (k < L_FORWARD)
        *text_of(e, k) = rest;
    else if (!read_times(rest, &e->ms[k - L_FORWARD], &e->default_ms[k - L_FORWARD]))
        return wrong(r, at, intern_f(r->c, "'%s' has milliseconds as in '1.25 default 1.5', not '%s'", word, rest));
    return true;
}

bool tune_read(Compiler *c, const char *path, TuneEntryVec *entries)
{
    Reader r = { .c = c, .entries = entries, .file = source_load(c, path) };
    if (r.file < 0)
        return false;
    const char *text = c->sources.data[r.file].text, *p = text;
    while (*p) {
        size_t len = strcspn(p, "\n"), word = strcspn(p, " \n"), from = word + (word < len);
        Span at = { r.file, (uint32_t)(p - text), (uint32_t)(p - text + (ptrdiff_t)len) };
        if (len && *p != '#' && !read_line(&r, intern_n(c, p, word), intern_n(c, p + from, len - from), at))
            return false;
        p += len + (p[len] == '\n');
    }
    return entry_is_whole(&r);
}

/* ---- writing */

/* Does the second entry take the first one's place? One of another program is of no use to anyone. */
static bool replaces(const TuneEntry *a, const TuneEntry *b)
{
    return strcmp(a->instance, b->instance) == 0 && strcmp(a->gpu, b->gpu) == 0 &&
           (strcmp(a->sizes, b->sizes) == 0 || strcmp(a->program, b->program) != 0);
}

void tune_put(Compiler *c, TuneEntryVec *entries, TuneEntry entry)
{
    int n = 0;
    for (int i = 0; i < entries->len; i++)
        if (!replaces(&entries->data[i], &entry))
            entries->data[n++] = entries->data[i];
    entries->len = n;
    vec_push(c->arena, entries, entry);
}

bool tune_write(Compiler *c, const char *path, const TuneEntryVec *entries)
{
    Buf out = { .arena = c->arena };
    buf_f(&out, "# Written by `cellc tune`: which schedule was the fastest where it was measured. `cellc build` takes it from here.\n");
    for (int i = 0; i < entries->len; i++) {
        TuneEntry *e = &entries->data[i];
        buf_f(&out, "\n");
        for (int k = 0; k < L_FORWARD; k++)
            buf_f(&out, "%s %s\n", line_names[k], *text_of(e, k));
        for (int k = L_FORWARD; k < N_LINES; k++)
            buf_f(&out, "%s %.6g default %.6g\n", line_names[k], e->ms[k - L_FORWARD], e->default_ms[k - L_FORWARD]);
    }
    return write_text(path, &out);
}

/* ---- taking */

/* FNV-1a of the reference's IR, without where it stands in which file, and what was asked of its kernels. */
const char *tune_program(const Module *m)
{
    Buf text = { .arena = m->arena };
    uint64_t hash = 0xcbf29ce484222325u;
    ir_print(m, &text);
    buf_f(&text, "%d%d", m->c->reverse, m->c->lengths);
    for (const char *p = text.data; *p;) {
        bool line = p == text.data || p[-1] == '\n';
        if (line && (strncmp(p, "source ", 7) == 0 || strncmp(p, "schedule ", 9) == 0 || strncmp(p, "ir ", 3) == 0))
            p += strcspn(p, "\n");
        else if (*p == '@')
            p += 1 + strspn(p + 1, "0123456789:-");
        else
            hash = (hash ^ (unsigned char)*p++) * 0x100000001b3u;
    }
    return intern_f(m->c, "%016llx", (unsigned long long)hash);
}

/* Of the file that --tuned names, or of the one that lies where it is looked for; NULL: there is none. */
static const char *find_file(Compiler *c, const Module *m)
{
    const char *cell = m->cell ? m->cell : m->name, *dirs[] = { c->tuned_dir, getenv("CELLC_TUNED") };
    if (c->tuned)
        return c->tuned;
    for (int i = 0; i < 2; i++) {
        const char *path = dirs[i] && *dirs[i] ? intern_f(c, "%s/%s.tune", dirs[i], cell) : NULL;
        if (path && (texts_closed(c) ? text_is_there(c, path) : access(path, F_OK) == 0))
            return path;
    }
    return NULL;
}

/* The architecture that a library's plan is made for: of those listed the one whose blocks have most memory (the others
 * get it as well where it fits, else one of the planner's own). NULL: any, or the GPU that is there cannot be asked. */
static const char *planned_arch(Compiler *c)
{
    const char *name, *arch = NULL;
    if (!c->archs)
        return NULL;
    if (strncmp(c->archs, "native", 6) == 0)
        return gpu_identify(c, &name, &arch) ? arch : "native";
    return largest_arch(c, c->archs);
}

/* The last of the entries for the instance; what was measured of another program is said if there is no other. */
static const TuneEntry *choose(Compiler *c, const Module *m, const TuneEntryVec *entries)
{
    const char *instance = api_key(m), *program = tune_program(m), *arch = planned_arch(c);
    const TuneEntry *found = NULL, *stale = NULL;
    for (int i = 0; i < entries->len; i++) {
        const TuneEntry *e = &entries->data[i];
        if (strcmp(e->instance, instance) != 0 || (arch && strcmp(e->arch, arch) != 0))
            continue;
        if (strcmp(e->program, program) == 0)
            found = e;
        else
            stale = e;
    }
    if (!found && stale)
        diag(c, DIAG_WARNING, stale->program_span, "%s has changed since it was tuned, so this entry is ignored; run "
                                                   "`cellc tune` again", instance);
    return found;
}

const char *tune_take(Compiler *c, const Module *m)
{
    TuneEntryVec entries = { 0 };
    const char *path = c->scheduled ? NULL : find_file(c, m);
    if (!path || !tune_read(c, path, &entries))
        return NULL;
    const TuneEntry *e = choose(c, m, &entries);
    if (!e && c->tuned && !c->errors)
        diag(c, DIAG_WARNING, (Span){ .file = -1 }, "%s has no entry for %s: its schedule is the planner's", path, api_key(m));
    if (!e)
        return NULL;
    const char *bad = schedule_read(c, e->schedule);
    if (bad) {
        diag(c, DIAG_ERROR, e->schedule_span, "a schedule%s", bad);
        return NULL;
    }
    c->is_tuned = true;
    return intern_f(c, "tuned on %s for %s (%s): %s", e->gpu, e->sizes, path,
                    c->schedule ? e->schedule : "the planner's own choice");
}
