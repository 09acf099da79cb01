/* cmd_ops.c: `cellc ops`. Out: every function that a spec may call and every operator of dumps, from the operator table: what it
 * means, its derivative, and what happens at kinks. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "front/complex_ops.h"
#include "ir/ops.h"
#include "options.h"

/* What the row writes in C, with a, b and c for its operands. */
static void operand_text(const char *pattern, char *out, size_t room)
{
    char next = 'a';
    size_t n = 0;
    for (; *pattern && n + 1 < room; pattern++) {
        bool operand = pattern[0] == '%' && pattern[1] == 's';
        out[n++] = operand ? next++ : *pattern;
        pattern += operand;
    }
    out[n] = 0;
}

static void print_rows(const char *title, bool in_language)
{
    printf("%s\n\n", title);
    printf("  %-11s %5s %5s  %-31s %s\n", "name", "args", "cost", "C", "meaning");
    for (int k = 0; k < OP_COUNT; k++) {
        const OpRow *row = &op_table[k];
        char text[128];
        operand_text(row->c64, text, sizeof text);
        if (row->in_language == in_language)
            printf("  %-11s %5d %5d  %-31s %s\n", row->name, row->arity, row->cost, text, row->doc);
    }
}

static void print_complex(void)
{
    printf("\nFunctions of complex values. The operators, exp, log, sqrt, abs and stop take them too.\n\n");
    printf("  %-11s %5s  %s\n", "name", "args", "meaning");
    for (int k = 0; k < CX_COUNT; k++)
        printf("  %-11s %5d  %s\n", complex_table[k].name, complex_table[k].arity, complex_table[k].doc);
}

static const CommandHelp help = {
    .name = "ops",
    .arguments = "",
    .summary =
        "print every function that a spec may call: what it means, its derivative, and what happens at kinks",
    .examples = "  cellc ops | grep softplus\n",
    .reads = true,
};

int cmd_ops(int argc, char **argv)
{
    const OptionSpec table[] = {{NULL, NULL, OPT_FLAG, NULL, NULL}};
    const char *operands[argc + 1];
    Compiler *c = compiler_new();
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    compiler_free(c);
    if (rc >= 0) return rc;
    print_rows("Functions of the language. Cost: issue slots per element, roughly.", true);
    print_complex();
    print_rows("\nOperators, by their names in dumps.", false);
    return 0;
}
