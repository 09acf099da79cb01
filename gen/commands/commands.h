/* commands.h: the subcommands of cellc. Each takes its own argc and argv (argv[0] is the command's name),
 * reads its options with options_parse, prints what it has to print and gives the exit code: 0 right, 1
 * the user's error, 2 wrong usage, 70 ours. */
#ifndef CELLC_COMMANDS_H
#define CELLC_COMMANDS_H

int cmd_build(int argc, char **argv);      /* build.c */
int cmd_emit(int argc, char **argv);       /* generate.c */
int cmd_doc(int argc, char **argv);        /* cmd_doc.c */
int cmd_explain(int argc, char **argv);    /* cmd_explain.c */
int cmd_graph(int argc, char **argv);      /* cmd_graph.c */
int cmd_list(int argc, char **argv);       /* cmd_list.c */
int cmd_sources(int argc, char **argv);    /* cmd_sources.c */
int cmd_new(int argc, char **argv);        /* cmd_new.c */
int cmd_fmt(int argc, char **argv);        /* cmd_fmt.c */
int cmd_check(int argc, char **argv);      /* check.c */
int cmd_selftest(int argc, char **argv);   /* selftest.c */
int cmd_tune(int argc, char **argv);       /* cmd_tune.c */
int cmd_run(int argc, char **argv);        /* eval.c */
int cmd_watch(int argc, char **argv);      /* cmd_watch.c */
int cmd_compare(int argc, char **argv);    /* cmd_compare.c */
int cmd_doctor(int argc, char **argv); /* cmd_doctor.c */
int cmd_inspect(int argc, char **argv); /* cmd_inspect.c */
int cmd_lsp(int argc, char **argv);        /* lsp/server.c */
int cmd_ops(int argc, char **argv);        /* cmd_ops.c */
int cmd_random(int argc, char **argv);     /* random_cell.c */

#endif
