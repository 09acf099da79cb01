/* parser.h: what lex.l, tokens.c, parse.y and ast.c share. Private to the parser: other passes see the AST of
 * ast.h only. */
#ifndef CELLC_PARSER_H
#define CELLC_PARSER_H

#include "ast.h"

enum {
    MAX_NESTING = 256,     /* brackets and blocks within one another */
    MAX_EXPR_DEPTH = 2000, /* levels of an expression tree: no pass that recurses over it runs out of stack */
    MAX_SYNTAX_ERRORS = 1000 /* after so many, the rest of a file is not worth reading */
};

/* A token as the grammar sees it. code is bison's. */
typedef struct Token {
    int code;
    Span span;
    const char *text; /* NAME and keywords: the word; STRING: what stands between the quotes */
    double num;       /* NUMBER */
    bool is_int;
    ReduceOp reduce; /* REDUCE, SOFTMAX */
    bool new_line;   /* first token of its line */
} Token;

/* reduction: `sum` for the '[' of sum[j]; range: it begins the range of `x in (0, 1]`, which ends with either
 * bracket */
typedef struct Opened {
    char with;
    Span span;
    const char *reduction;
    bool range;
} Opened;

typedef struct Parser {
    Compiler *c;
    int file;
    Source src;
    Ast *ast;
    void *scanner;
    char *buffer;     /* the text as the scanner reads it, malloc'ed */
    uint32_t pos;     /* the scanner's place in the text */
    uint32_t comment; /* where the comment it is in began */
    double num;       /* value of the scanner's last NUMBER */
    bool is_int;
    Token prev, token; /* the last token the grammar has got, and the one before it */
    Token held;        /* a token read but not handed over: a ';' was put in front of it */
    bool has_held;
    bool at_start; /* the next token begins a statement */
    int stmt_code; /* code of the token that began the statement */
    Token stmt;    /* that token */
    bool lex_bad;  /* bytes that are no token were skipped before the last token */
    int quiet;     /* > 0: nothing is said inside the block that makes this many open brackets */
    bool rest_of_bad; /* such a block ended: what follows on its line belongs to the broken statement */
    bool stmt_bad; /* an error of this statement was reported */
    bool gave_up;  /* nested too deeply or too many errors: the rest of the file is not read */
    int errors_before;
    Opened open[MAX_NESTING];
    int nopen;
    const char *reduced;        /* the last token closed the brackets of this reduction; NULL: it did not */
    const char *reduced_before; /* the same of the token before */
    bool cell_reported;         /* a missing '}' before the held `cell` was reported */
    bool outside_said;          /* a statement outside of a cell was reported */
    bool lost_head;             /* a block's head was broken, so what stands in it may look misplaced */
    Opened dropped; /* the innermost bracket that the last token left unclosed; with is 0 when none */
} Parser;

/* lex.l: the scanner. raw_next skips blanks and comments and gives a bison code, 0 at the end; the token lies
 * at [*lo, p->pos). Words come as NAME always. */
bool raw_open(Parser *p); /* false when out of memory */
void raw_close(Parser *p);
int raw_next(Parser *p, uint32_t *lo);

/* tokens.c: the stream of tokens that the grammar reads. */
Token next_token(Parser *p);
bool in_brackets(const Parser *p);
bool ends_operand(int code);
/* Does a block follow, which no ';' ends? Of the code of a token that begins a statement. */
bool is_block_header(int code);
char closer_of(char with);
/* "the import", "the equation", of such a code. */
const char *statement_text(int code);
/* The keyword that a word at the beginning of a statement looks like; NULL: none. */
const char *nearest_statement(const char *word);
void note_open(Parser *p, const Opened *o);
/* First byte at or after `at` that is neither blank nor comment. */
uint32_t skip_blank(const Source *src, uint32_t at);
/* False where nothing is said, of what an error before explains. */
bool error_at(Parser *p, Span span, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void give_up(Parser *p, Span span, const char *why);

/* syntax_errors.c: what is said when the grammar cannot go on. */
typedef struct Expected {
    bool expression; /* an expression could stand here */
    bool end;        /* a ';' could */
    bool name;
    bool equals;
    bool block;
    bool operators;        /* a binary operator could */
    bool comma;
    const char *tokens[8]; /* what else, operators left out */
    int ntokens;
} Expected;
void syntax_error(Parser *p, const Expected *expected);

/* diag.c */
bool utf8_valid(const char *s, size_t len);

/* ast.c: nodes, and the rules a grammar cannot say. */
typedef struct Decl {
    ExprVec axes;
    bool brackets;
    Token name;
    const char *type;
    Span type_span;
    const Domain *domain;
    char init_op;
    Expr *init;
    Span span;
} Decl;
typedef Vec(Decl) DeclVec;
typedef Vec(Token) TokenVec;

Expr *expr_new(Parser *p, ExprKind kind, Span span);
Expr *expr_number(Parser *p, Token t);
Expr *expr_unary(Parser *p, AstOp op, Expr *a, Span span);
Expr *expr_binary(Parser *p, AstOp op, Expr *a, Expr *b, Span span);
Expr *expr_compare(Parser *p, AstOp op, Expr *a, Expr *b, Span span);
Expr *expr_cond(Parser *p, Expr *a, Expr *b, Expr *c, Span span);
Expr *expr_ref(Parser *p, Token name, bool primed, const ExprVec *args, Expr *time, Span span);
Expr *expr_call(Parser *p, Token name, const ExprVec *args, const ExprVec *held, Token member,
                const ExprVec *index, Span span);
Expr *expr_reduce(Parser *p, Token reduce, const BinderVec *binders, Expr *body, Span span);

/* What stands behind `in`: a range, or (low NULL) a word. */
const Domain *domain_of(Parser *p, bool above, Expr *low, Expr *high, bool below, const Token *word, Span span);
Binder binder_of(Parser *p, Expr *e);
Stmt *stmt_new(Parser *p, StmtKind kind, const Token *name, Span span);
void add_decls(Parser *p, StmtVec *out, StmtKind kind, bool is_const, const DeclVec *decls, Span span);
Stmt *stmt_fn(Parser *p, bool adjoint, Token name, const TokenVec *params, const TokenVec *held,
              const BinderVec *results, Span span);
void check_placement(Parser *p, const Ast *ast);

/* Equality but for spans and parentheses written twice: what fmt must keep. parens: false ignores all
 * parentheses, which is what the explicit form keeps. */
bool ast_equal(const Ast *a, const Ast *b, bool parens);

#endif
