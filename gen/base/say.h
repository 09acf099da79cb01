/* say.h: what a command says to its user: text that is safe for a terminal, messages on standard error. */
#ifndef CELLC_SAY_H
#define CELLC_SAY_H

#include "compiler.h"

/* The character at p: its bytes, at least 1, and whether it can be shown. What cannot is a control character
 * (C0, DEL, C1, the separators of lines and paragraphs), one that turns the direction of what stands behind
 * it, or no UTF-8. */
int shown_char(const unsigned char *p, const unsigned char *end, bool *shown);
/* The code of a character of n bytes. */
unsigned code_point(const unsigned char *p, int n);
/* Prints a text with '?' for each character that cannot be shown, so that it stays on its line; of `lines`
 * the line breaks and tabs stay. */
void put_shown(FILE *out, const char *text, size_t len, bool lines);
/* The same as a string of c's, of one line. */
const char *shown_text(Compiler *c, const char *text);
/* The same in the place of what the buffer has, line breaks and tabs apart. */
void buf_shown(Buf *b);
/* Prints a text, such as the path of a file that was made, as a line of standard output. */
void print_shown(const char *text);

/* From here on the process says what it says to standard error as JSON, an object per line as in diag_json.c,
 * or as text again. Do the words of a command line ask for that? */
void say_json(bool json);
bool says_json(void);
bool asks_json(int argc, char **argv);

/* Says one thing, of one line: "cellc COMMAND: ...", "cellc: ..." where command is NULL, nothing in front
 * where it is ""; in JSON the message alone, and its level. */
void say(DiagLevel level, const char *command, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Says it of a place in a file that is no source of a compilation; line 0: of the file. */
void say_at(DiagLevel level, const char *file, int line, int column, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* How far long work is: `done` of `of` steps, of which `what` is done now. One line of a terminal, which the
 * next one takes the place of, and any message or progress_end; nothing where standard error is none, or is
 * JSON. progress_shown: is there a terminal for it? */
bool progress_shown(void);
void progress(int done, int of, const char *what);
void progress_end(void);
/* Says the lines that a program of another's printed: as they are, or in JSON as one message. */
void say_lines(DiagLevel level, const char *text);

#endif
