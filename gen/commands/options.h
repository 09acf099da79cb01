/* options.h: how commands read their command line. A command describes itself once, as a CommandHelp and a
 * table of its own options; --help, the list of options, suggestions for misspelt ones and exit code 2
 * come from that. */
#ifndef CELLC_OPTIONS_H
#define CELLC_OPTIONS_H

#include "base/compiler.h"

typedef enum {
    OPT_FLAG,                     /* bool: true when given */
    OPT_STRING,                   /* const char *: the last one given */
    OPT_INT,                      /* int64_t, not negative; 1k, 1M and hex are not understood */
    OPT_LIST                      /* OptionList: every one given, in order */
} OptionType;

typedef struct OptionList { const char *items[64]; int n; } OptionList;

typedef struct OptionSpec {
    const char *name;             /* "--vectors" or "-o" */
    const char *argument;         /* what stands after it in the help, e.g. "FILE"; NULL for flags */
    OptionType type;
    void *value;                  /* where it goes, by type; keeps what it holds if not given */
    const char *help;             /* one line, lower case, no full stop; NULL: --schedule's, which lists
                                   * the table of schedules */
} OptionSpec;

typedef struct CommandHelp {
    const char *name;             /* "check" */
    const char *arguments;        /* "SPEC", "SPEC...", "[FILE]": one unless in brackets, many with "..." */
    const char *summary;          /* one line for the list of commands */
    const char *about;            /* a paragraph, or NULL */
    const char *examples;         /* lines, each ending in a newline */
    const char *in_double;        /* why types and kernels do not concern it, so that their options are refused; or NULL */
    bool draws; /* makes the tensors of calls itself, with T rows a sequence: --packed is refused */
    bool computes;                /* runs the cell itself, so every dim has a size */
    bool settings;                /* reads what stands behind the ':' of a SPEC itself, beside the name of a cell */
    bool reads;                   /* takes --diagnostics, and nothing else of these */
    bool compiles;                /* takes --dim, --set, --dtype and what else stands in options.c's compile_table */
} CommandHelp;

/* Reads argv[1..argc-1] (argv[0] is the command's name). `table` ends with a row whose name is NULL.
 * Operands go to `operands` (room for argc of them) and their number to *n. Options of compilation go into
 * *c, which may be NULL when !help->compiles. Returns -1 when the command should go on, else the exit code
 * to leave with: 0 after --help, 2 after wrong usage (a message was printed). */
int options_parse(const CommandHelp *help, Compiler *c, int argc, char **argv, const OptionSpec *table,
                  const char **operands, int *n);

/* Takes one option of compilation, "--dim" "N=32", as if it stood on the command line; the same answer. */
int options_compile(const CommandHelp *help, Compiler *c, const char *option, const char *value);

/* Prints "cellc COMMAND: message", a pointer to --help, and gives 2, the exit code of wrong usage. */
int usage_error(const CommandHelp *help, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What --archs is when nothing is said, and the first architecture that kernels run on: it is the first with
 * asynchronous copies (cp.async) and with tensor cores that take tf32 and bf16. */
#define default_archs "80 86 89 90"
enum { FIRST_ARCH = 80 };
/* `cellc build --archs all`: every machine code that some GPU wants, as far as the nvcc that is there knows it. A GPU between
 * two of these (87, 121) runs that of the one before it. */
#define all_archs "80 86 89 90 100 103 120"
/* Is the list one that --archs takes: native, or numbers with a letter behind them at most, as in 90a? -1, or 2 after a
 * message. */
int archs_check(const CommandHelp *help, const char *archs);
/* Takes what --schedule takes; NULL, or what is wrong, to stand behind "--schedule". */
const char *schedule_read(Compiler *c, const char *value);

#endif
