/* options.c: the command line of one command. In: argc, argv, the command's description and table. Out:
 * values where the table points, operands, settings in the Compiler. Guaranteed: every word was
 * understood, or a message that names the word was printed and the exit code is 2. Values of --dim and
 * --set are judged later, where the cell's names are known. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "front/words.h"
#include "base/home.h"
#include "base/say.h"
#include "base/texts.h"
#include "commands.h"
#include "options.h"
#include "pipeline.h"
#include "plan/hints.h"
#include "schedule/schedule.h"

static const char *const diagnostics_forms[] = { "text", "json", NULL };
static const char *const warning_kinds[] = { "performance", "no-performance", NULL };

/* The options that every compiling command takes; their values go to the Compiler. */
enum {
    C_DIM,
    C_SET,
    C_DTYPE,
    C_DTYPE_OF,
    C_SCHEDULE,
    C_TUNED,
    C_PRODUCTS,
    C_REVERSE,
    C_LENGTHS,
    C_PACKED,
    C_SLOTS,
    C_IMPORT,
    C_SOURCES,
    C_DIAGNOSTICS,
    C_WARN,
    C_DUMP
};
static const OptionSpec compile_table[] = {
    { "--dim", "NAME=N", OPT_STRING, NULL,
      "bind a dim of the cell, e.g. N=32; N=open leaves it to the run time" },
    { "--set", "NAME=VALUE", OPT_STRING, NULL, "choose an option or replace a constant, e.g. bias=input" },
    { "--dtype", "TYPE", OPT_STRING, NULL, "storage of tensors: f32 (default), bf16, f16 or f64" },
    { "--dtype-of", "NAME=TYPE", OPT_STRING, NULL,
      "storage of one input or param, e.g. W=e4m3: those types, or e4m3 and e5m2 with scales" },
    { "--schedule", "NAME", OPT_STRING, NULL, NULL },
    { "--tuned", "FILE", OPT_STRING, NULL, "take the schedule that cellc tune wrote there" },
    { "--products", "FORM", OPT_STRING, NULL,
      "of all steps: auto (default; large ones as parts of bf16, or fused), plain, parts, fused" },
    { "--reverse", NULL, OPT_FLAG, NULL, "walk time from the last step to the first" },
    { "--lengths", NULL, OPT_FLAG, NULL, "the call says how many steps each sequence has" },
    { "--packed", NULL, OPT_FLAG, NULL,
      "sequences follow one another without padding, and cu_seqlens says where" },
    { "--slots", NULL, OPT_FLAG, NULL, "kernels for stores of sessions, which find states in rows" },
    { "--import-dir", "DIR", OPT_STRING, NULL, "look here too for what the spec imports" },
    { "--sources", "FILE", OPT_STRING, NULL,
      "read only what `cellc sources --pack` wrote there; the SPEC is - then" },
    { "--diagnostics", "FORM", OPT_STRING, NULL,
      "what goes to standard error: text (default), or json, an object per line" },
    { "-W", "KIND", OPT_STRING, NULL, "-Wno-performance: nothing about what is slow" },
    { "--dump-after", "PASS", OPT_STRING, NULL,
      "print the program or its plan after a pass; see cellc help passes" },
    { NULL, NULL, OPT_FLAG, NULL, NULL }
};

/* Options that concern types of tensors or kernels only. */
static bool concerns_kernels(int which)
{
    return which == C_DTYPE || which == C_SCHEDULE || which == C_TUNED || which == C_PRODUCTS;
}

static int row_of(const OptionSpec *table, const char *name, size_t len)
{
    for (int i = 0; table && table[i].name; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return i;
    return -1;
}

int usage_error(const CommandHelp *help, const char *fmt, ...)
{
    va_list args;
    Arena *arena = arena_new();
    va_start(args, fmt);
    say(DIAG_ERROR, help->name, "%s", arena_text(arena, fmt, args));
    va_end(args);
    Buf see = { .arena = arena };
    buf_f(&see, "see cellc %s --help\n", help->name);
    say_lines(DIAG_NOTE, see.data);
    arena_free(arena);
    return 2;
}

int archs_check(const CommandHelp *help, const char *archs)
{
    static const char between[] = " \t,";
    const char *word = archs + strspn(archs, between);
    if (!*word)
        return usage_error(help, "--archs names no architecture");
    for (size_t n; *word; word += n, word += strspn(word, between)) {
        n = strcspn(word, between);
        size_t digits = strspn(word, "0123456789");
        bool suffix = digits + 1 == n && strchr("af", word[digits]);
        if (!(n == 6 && memcmp(word, "native", n) == 0) && !(digits && (digits == n || suffix)))
            return usage_error(help, "--archs takes native, or numbers such as \"80 90\", not '%.*s'", (int)n, word);
        if (digits && (digits > 4 || atoi(word) < FIRST_ARCH))
            return usage_error(help, "--archs %.*s: kernels need a GPU of %d or newer: those before have no copies beside the "
                               "arithmetic (cp.async), and no tensor cores for bf16 and tf32", (int)n, word, FIRST_ARCH);
    }
    return -1;
}

/* The help of --schedule. */
static void print_schedules(void)
{
    printf("force a schedule: auto (default)");
    for (const Schedule *const *s = schedules; *s; s++) {
        printf("%s%s", s[1] ? ", " : " or ", (*s)->name);
        if ((*s)->takes_hints)
            printf(" (%s:HINTS)", (*s)->name);
    }
    printf("\n");
}

/* Without the rows that `own` has as well: a command may read an option of compilation itself. */
static void print_table(const OptionSpec *table, const OptionSpec *own, bool in_double, bool draws)
{
    for (int i = 0; table && table[i].name; i++) {
        char left[64];
        if (row_of(own, table[i].name, strlen(table[i].name)) >= 0 || (in_double && concerns_kernels(i)) ||
            (draws && table == compile_table && i == C_PACKED))
            continue;
        snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        printf("  %-24s ", left);
        if (table[i].help)
            printf("%s\n", table[i].help);
        else
            print_schedules();
    }
}

static void print_help(const CommandHelp *help, const OptionSpec *table)
{
    printf("usage: cellc %s [options]%s%s\n\n%s\n", help->name, help->arguments[0] ? " " : "",
           help->arguments, help->summary);
    if (help->about)
        printf("\n%s\n", help->about);
    printf("\noptions:\n");
    print_table(table, NULL, false, false);
    if (help->compiles)
        print_table(compile_table, table, help->in_double != NULL, help->draws);
    else if (help->reads)
        print_table((const OptionSpec[]){ compile_table[C_DIAGNOSTICS], { 0 } }, table, false, false);
    printf("  %-24s %s\n", "--help", "print this");
    if (help->examples)
        printf("\nexamples:\n%s", help->examples);
}

static int unknown_option(const CommandHelp *help, const OptionSpec *table, const char *word, size_t len)
{
    const char *names[80], *near;
    char name[64];
    int n = 0;
    for (int i = 0; table && table[i].name && n < 60; i++)
        names[n++] = table[i].name;
    for (int i = 0; help->compiles && compile_table[i].name; i++)
        names[n++] = compile_table[i].name;
    names[n++] = "--help";
    snprintf(name, sizeof name, "%.*s", (int)len, word);
    near = suggest(name, names, n);
    if (near)
        return usage_error(help, "unknown option %s; did you mean %s?", name, near);
    return usage_error(help, "unknown option %s", name);
}

static int position(const char *const *names, const char *value)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], value) == 0)
            return i;
    return -1;
}

static const char *not_one_of(Compiler *c, const char *value, const char *const *names)
{
    const char *list = "";
    int n = 0;
    for (; names[n]; n++)
        list = intern_f(c, "%s%s%s", list, n ? ", " : "", names[n]);
    const char *near = suggest(value, names, n), *type = names == dtype_names ? foreign_type(value) : NULL;
    for (int i = 0; type && i < n; i++)
        near = strcmp(type, names[i]) == 0 ? names[i] : near;
    return intern_f(c, " takes one of %s, not '%s'%s%s%s", list, value, near ? "; did you mean '" : "",
                    near ? near : "", near ? "'?" : "");
}

static int bad_choice(const CommandHelp *help, Compiler *c, const char *option, const char *value, const char *const *names)
{
    return usage_error(help, "%s%s", option, not_one_of(c, value, names));
}

/* NAME=VALUE into *name and *value, both interned. */
static bool split_setting(Compiler *c, const char *text, Setting *out)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text || !eq[1])
        return false;
    out->name = intern_n(c, text, (size_t)(eq - text));
    out->value = intern(c, eq + 1);
    out->used = false;
    return true;
}

/* The last setting of a name counts. */
#define PUT_SETTING(c, vec, setting)                                                                      \
    do {                                                                                                  \
        int at_ = 0;                                                                                      \
        while (at_ < (vec)->len && (vec)->data[at_].name != (setting).name)                               \
            at_++;                                                                                        \
        if (at_ < (vec)->len)                                                                             \
            (vec)->data[at_] = (setting);                                                                 \
        else                                                                                              \
            vec_push((c)->arena, vec, setting);                                                           \
    } while (0)

/* The one that stands before the ':', where it takes hints; or NULL. */
static const Schedule *hinted_schedule(Compiler *c, const char *value)
{
    const char *colon = strchr(value, ':');
    const Schedule *s = colon ? schedule_named(intern_n(c, value, (size_t)(colon - value))) : NULL;
    return s && s->takes_hints ? s : NULL;
}

/* NAME, or NAME:HINTS of one that takes them. */
const char *schedule_read(Compiler *c, const char *value)
{
    const Schedule *hinted = hinted_schedule(c, value);
    c->hints = (WalkHints){ 0 };
    if (hinted) {
        const char *wrong = hints_read(c, strchr(value, ':') + 1, hinted, &c->hints);
        c->schedule = hinted;
        return wrong ? intern_f(c, " %s%s", hinted->name, wrong) : NULL;
    }
    if (position(schedule_choices(), value) < 0)
        return not_one_of(c, value, schedule_choices());
    c->schedule = schedule_named(value);
    return NULL;
}

static int take_schedule(const CommandHelp *help, Compiler *c, const char *value)
{
    const char *wrong = schedule_read(c, value);
    c->scheduled = true;
    /* " tile:warps takes ..." is about what stands behind the name. */
    return wrong ? usage_error(help, "--schedule%s", wrong) : -1;
}

static int take_compile_option(const CommandHelp *help, Compiler *c, int which, const char *value)
{
    const char *option = compile_table[which].name;
    struct stat folder;
    Setting s;
    int at;
    if (help->draws && which == C_PACKED)
        return usage_error(
            help, "%s says how a call's sequences lie in memory, and here calls have T rows for each",
            option);
    if (help->in_double && concerns_kernels(which))
        return usage_error(help, "%s changes nothing here: %s", option, help->in_double);
    switch (which) {
    case C_DIM:
    case C_SET:
        if (!split_setting(c, value, &s))
            return usage_error(help, "%s takes %s, not '%s'", option, compile_table[which].argument, value);
        if (which == C_DIM && help->computes && strcmp(s.value, "open") == 0)
            return usage_error(help, "%s %s: %s runs the cell, so a dim needs a size", option, value, help->name);
        if (which == C_DIM)
            PUT_SETTING(c, &c->dims, s);
        else
            PUT_SETTING(c, &c->sets, s);
        return -1;
    case C_DTYPE:
        if ((at = position(dtype_names, value)) < 0)
            return bad_choice(help, c, option, value, dtype_names);
        c->dtype = (Dtype)at;
        return -1;
    case C_DTYPE_OF:
        if (!split_setting(c, value, &s))
            return usage_error(help, "%s takes %s, not '%s'", option, compile_table[which].argument, value);
        PUT_SETTING(c, &c->types, s);
        return -1;
    case C_SCHEDULE:
        return take_schedule(help, c, value);
    case C_TUNED:
        c->tuned = intern(c, value);
        return -1;
    case C_PRODUCTS:
        if ((at = position(products_names, value)) < 0)
            return bad_choice(help, c, option, value, products_names);
        c->products = (Products)at;
        return -1;
    case C_REVERSE:
        c->reverse = true;
        return -1;
    case C_LENGTHS:
        c->lengths = true;
        return -1;
    case C_PACKED: c->packed = true; return -1;
    case C_SLOTS: c->slots = true; return -1;
    case C_IMPORT:
        if (texts_closed(c))
            return usage_error(help, "--import-dir and --sources exclude each other");
        if (stat(value, &folder) != 0 || !S_ISDIR(folder.st_mode)) {
            say(DIAG_ERROR, help->name, "--import-dir %s: there is no such directory", value);
            return 1;
        }
        c->import_dir = intern(c, value);
        return -1;
    case C_SOURCES:
        return texts_closed(c) ? usage_error(help, "--sources given twice") : texts_read(c, value, true) ? -1 : 1;
    case C_DIAGNOSTICS:
        if ((at = position(diagnostics_forms, value)) < 0)
            return bad_choice(help, c, option, value, diagnostics_forms);
        say_json(at == 1);
        return -1;
    case C_WARN:
        if ((at = position(warning_kinds, value)) < 0)
            return bad_choice(help, c, option, value, warning_kinds);
        c->no_performance = at == 1;
        return -1;
    default:
        if (!pass_exists(value))
            return usage_error(help, "there is no pass '%s'; `cellc help passes` lists them", value);
        c->dump_after = intern(c, value);
        return -1;
    }
}

int options_compile(const CommandHelp *help, Compiler *c, const char *option, const char *value)
{
    return take_compile_option(help, c, row_of(compile_table, option, strlen(option)), value);
}

static int take_value(const CommandHelp *help, Compiler *c, const OptionSpec *row, const char *value)
{
    OptionList *list;
    char *end;
    long long number;
    switch (row->type) {
    case OPT_FLAG:
        *(bool *)row->value = true;
        return -1;
    case OPT_STRING:
        *(const char **)row->value = value;
        return -1;
    case OPT_INT:
        errno = 0;
        number = strtoll(value, &end, 10);
        if (errno || end == value || *end || number < 0)
            return usage_error(help, "%s takes a number that is not negative, not '%s'", row->name, value);
        *(int64_t *)row->value = number;
        return -1;
    case OPT_LIST:
        list = row->value;
        if (!value[strspn(value, ", \t\n")])
            return usage_error(help, "%s takes a %s, not '%s'", row->name, row->argument, value);
        /* One word may hold several, but for the commas of hints. */
        for (const char *gaps = hinted_schedule(c, value) ? " \t\n" : ", \t\n";
             *(value += strspn(value, gaps));) {
            size_t len = strcspn(value, gaps);
            if (list->n == (int)(sizeof list->items / sizeof *list->items))
                return usage_error(help, "%s given too often", row->name);
            list->items[list->n++] = intern_n(c, value, len);
            value += len;
        }
        return -1;
    }
    return -1;
}

/* A word that is read as a path, by this program or by one that it runs, as one of an option: its name is
 * said otherwise. */
static const char *path_word(Compiler *c, const char *word)
{
    return word[0] == '-' || word[0] == '@' ? intern_f(c, "./%s", word) : word;
}

static bool takes_path(const OptionSpec *row)
{
    return row->argument && (strcmp(row->argument, "DIR") == 0 || strcmp(row->argument, "FILE") == 0);
}

/* Is *value one that a word in the option's place can be? A path gets the form in which no program takes it
 * for an option. */
static int check_value(const CommandHelp *help, Compiler *c, const OptionSpec *row, bool apart, const char **value)
{
    bool input = strcmp(row->name, "--sources") == 0 && strcmp(*value, "-") == 0;
    if (!**value)
        return usage_error(help, "%s takes %s, not an empty word", row->name, row->argument);
    if (row->type == OPT_INT || input)
        return -1;
    if (apart && **value == '-' && takes_path(row))
        return usage_error(help, "%s takes %s after it, but '%s' begins as an option does; ./%s is a path", row->name, row->argument, *value,
                           *value);
    if (apart && **value == '-')
        return usage_error(help, "%s takes %s after it, but '%s' begins as an option does; %s=%s gives it that value", row->name,
                           row->argument, *value, row->name, *value);
    if (takes_path(row) && c)
        *value = path_word(c, *value);
    return -1;
}

/* argv[*at] is an option: `--name value`, `--name=value`, `-o value` or `-ovalue`. Moves *at past what it
 * used. */
static int take_option(const CommandHelp *help, Compiler *c, int argc, char **argv, int *at,
                       const OptionSpec *table)
{
    const char *word = argv[*at], *value = NULL;
    size_t len = strcspn(word, "=");
    if (word[1] != '-' && word[2])
        len = 2;
    int own = row_of(table, word, len);
    int shared = own < 0 && (help->compiles || help->reads) ? row_of(compile_table, word, len) : -1;
    if (!help->compiles && shared != C_DIAGNOSTICS)
        shared = -1;
    if (own < 0 && shared < 0)
        return unknown_option(help, table, word, word[1] == '-' ? len : strlen(word));
    const OptionSpec *row = own >= 0 ? &table[own] : &compile_table[shared];
    if (word[len])
        value = word + len + (word[len] == '=');
    if (row->type == OPT_FLAG && value)
        return usage_error(help, "%s takes no value", row->name);
    if (row->type != OPT_FLAG && !value) {
        if (*at + 1 == argc)
            return usage_error(help, "%s takes %s after it", row->name, row->argument);
        value = argv[++*at];
    }
    (*at)++;
    int rc = row->type == OPT_FLAG ? -1 : check_value(help, c, row, !word[len], &value);
    if (rc >= 0)
        return rc;
    return own >= 0 ? take_value(help, c, row, value) : take_compile_option(help, c, shared, value);
}

static int check_operands(const CommandHelp *help, const char **operands, int n)
{
    bool optional = help->arguments[0] == '[', many = strstr(help->arguments, "...") != NULL;
    if (!help->arguments[0] && n)
        return usage_error(help, "takes no arguments, but got '%s'", operands[0]);
    if (help->arguments[0] && !optional && n == 0)
        return usage_error(help, "takes %s", help->arguments);
    if (!many && n > 1)
        return usage_error(help, "takes one argument, but got '%s' and '%s'", operands[0], operands[1]);
    return -1;
}

int options_parse(const CommandHelp *help, Compiler *c, int argc, char **argv, const OptionSpec *table,
                  const char **operands, int *n)
{
    *n = 0;
    for (int i = 1; i < argc;) {
        const char *word = argv[i];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(help, table);
            return 0;
        }
        if (strcmp(word, "--") == 0) {
            for (i++; i < argc; i++)
                operands[(*n)++] = c && argv[i][0] == '-' && argv[i][1] ? path_word(c, argv[i]) : argv[i];
            break;
        }
        if (word[0] != '-' || !word[1] || word[1] == ':') {          /* - is a spec, with --sources */
            operands[(*n)++] = argv[i++];
            continue;
        }
        int rc = take_option(help, c, argc, argv, &i, table);
        if (rc >= 0)
            return rc;
    }
    if (c && !texts_closed(c))
        c->library_dir = home_dir(c, HOME_SPECS);
    int rc = check_operands(help, operands, *n);
    if (rc < 0 && help->compiles && *n == 1 && !help->settings && !(operands[0] = home_spec(c, operands[0]))) {
        diag_print(c, stderr);
        return 1;
    }
    if (rc < 0 && c && c->scheduled && c->tuned)
        rc = usage_error(help, "--schedule and --tuned exclude each other");
    /* The same for every command that compiles. */
    if (rc < 0 && c && c->dump_after)
        rc = *n ? dump_spec(c, operands[0]) : usage_error(help, "--dump-after takes a SPEC as well");
    return rc;
}
