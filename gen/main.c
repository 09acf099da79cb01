/* main.c: the driver. In: the command line. Out: the exit code of the subcommand: 0 right, 1 the user's
 * error, 2 wrong usage, 70 ours. All it does is to look up the subcommand. */
#include <stdio.h>
#include <string.h>

#include "base/home.h"
#include "base/process.h"
#include "base/say.h"
#include "base/toolkit.h"
#include "commands/commands.h"
#include "pipeline.h"
#include "plan/plan.h"

#define CELLC_VERSION "0.2.0"

typedef struct Command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} Command;

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const Command commands[] = {
    { "build", cmd_build, "compile a spec to a library with a C header and a manifest" },
    { "emit", cmd_emit, "print what build would generate: C, CUDA, header, manifest, IR" },
    { "check", cmd_check, "prove a cell's gradients against an independent evaluator and vector files" },
    { "watch", cmd_watch, "check and explain specs each time that they are saved" },
    { "compare", cmd_compare, "show two specs side by side, and where their values differ" },
    { "selftest", cmd_selftest, "build cells on this machine and test them on its GPU, or on the CPU" },
    { "tune", cmd_tune, "measure the schedules of a cell on this machine's GPU, keep the fastest" },
    { "run", cmd_run, "evaluate a cell on given or random inputs" },
    { "explain", cmd_explain, "print what the compiler decided for a spec, and why" },
    { "doc", cmd_doc, "write a page about a cell: equations, shapes, options, cost" },
    { "graph", cmd_graph, "draw the data flow of a spec by phase" },
    { "list", cmd_list, "list the cells that come with cellc" },
    { "sources", cmd_sources, "list the files that a spec is made of, or pack them into one" },
    { "new", cmd_new, "start a spec from a neighbour" },
    { "fmt", cmd_fmt, "print specs in canonical form" },
    { "inspect", cmd_inspect, "say which cells a built library has, for which sizes, types and GPUs" },
    { "doctor", cmd_doctor, "say what cellc finds on this machine, what runs here, and what is missing" },
    { "lsp", cmd_lsp, "be an editor's language server, over standard input and output" },
    { "ops", cmd_ops, "print the table of operators and functions" },
    { "random", cmd_random, "print a random valid cell" },
    { "help", cmd_help, "print this, or the help of a command; `cellc help passes` lists the passes" },
    { "version", cmd_version, "print the version; --verbose: also which compilers and files are used here" },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static const Command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static void print_commands(FILE *out)
{
    fprintf(out, "usage: cellc COMMAND [options] [arguments]\n\n"
                 "Compiles recurrent cells, written as mathematics, to C and CUDA with gradients.\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\nexamples:\n"
                 "  cellc build specs/e79.cell --dim N=32 --set bias=input -o out\n"
                 "  cellc check specs/e79.cell\n"
                 "  cellc COMMAND --help\n");
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    const char *near = suggest(name, names, N_COMMANDS);
    say(DIAG_ERROR, NULL, near ? "unknown command '%s'; did you mean %s?" : "unknown command '%s'", name, near);
    say_lines(DIAG_NOTE, "see cellc --help\n");
    return 2;
}

static void print_passes(const char *title, const Pass *pass)
{
    printf("%s\n", title);
    for (; pass->name; pass++)
        printf("  %-18s %s\n", pass->name, pass->what);
}

static void print_plan_passes(void)
{
    printf("passes on its plan, of which a dump has the IR in front:\n");
    for (const PlanPass *pass = plan_passes; pass->name; pass++)
        printf("  %-18s %s\n", pass->name, pass->what);
}

static int cmd_help(int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stdout);
        return 0;
    }
    if (strcmp(argv[1], "passes") == 0) {
        print_passes("the way to the reference C (cellc emit --kind c):", reference_passes);
        print_passes("the way to CUDA:", fast_passes);
        print_plan_passes();
        print_passes("the same in chunks of steps:", cut_passes);
        print_passes("the same with sums over the past as attention:", sum_passes);
        return 0;
    }
    const Command *command = find_command(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    if (command->run == cmd_help || command->run == cmd_version) {
        printf("usage: cellc %s%s\n\n%s\n", command->name, command->run == cmd_version ? " [--verbose]" : "",
               command->summary);
        return 0;
    }
    char name[16], option[] = "--help";
    snprintf(name, sizeof name, "%s", command->name);
    return command->run(2, (char *[]) { name, option, NULL });
}

/* What cellc takes on this machine, a line for each: what is missing in an installation is seen here. */
static void print_parts(Compiler *c)
{
    static const struct { const char *name; HomePart part; } parts[] = {
        { "specs", HOME_SPECS },
        { "headers", HOME_INCLUDE },
        { "runtime", HOME_LIB },
        { "emulator", HOME_EMULATOR },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        printf("%s: %s\n", parts[i].name, home_dir(c, parts[i].part) ? home_dir(c, parts[i].part) : "none");
    printf("cc: %s\n", c_compiler());
    printf("nvcc: %s\n", toolkit_nvcc(c) ? toolkit_nvcc(c) : "none");
    if (!toolkit_nvcc(c))
        printf("why: %s\n", toolkit_missing(c));
}

static int cmd_version(int argc, char **argv)
{
    bool verbose = argc == 2 && (strcmp(argv[1], "--verbose") == 0 || strcmp(argv[1], "-v") == 0);
    if (argc > 1 && !verbose) {
        say(DIAG_ERROR, "version", "'%s' is not an option of it; --verbose is", argv[1]);
        return 2;
    }
    printf("cellc " CELLC_VERSION "\n");
    if (verbose) {
        Compiler *c = compiler_new();
        print_parts(c);
        compiler_free(c);
    }
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ);     /* messages come by lines, not by letters */
    say_json(asks_json(argc, argv));
    if (argc < 2) {
        print_commands(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_commands(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0)
        return cmd_version(argc - 1, argv + 1);
    const Command *command = find_command(argv[1]);
    return command ? process_run(command->run, argc - 1, argv + 1) : unknown_command(argv[1]);
}
