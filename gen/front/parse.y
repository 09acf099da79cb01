/* parse.y: the grammar. In: the tokens of tokens.c. Out: the statements of one file, in order. Guaranteed:
 * every statement that is not broken is there, broken ones are diagnosed and left out; expressions have the
 * precedence of docs/language.md. Recovery is at ';', at a block and at '}'. */
%code requires {
#include "front/parser.h"
}

%define api.pure full
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%param { Parser *p }
%expect 0

%code {
#include <stdlib.h>
#include <string.h>

#define YYMAXDEPTH 30000
#define YYLLOC_DEFAULT(Current, Rhs, N)                                                                  \
    do {                                                                                                 \
        if (N) {                                                                                         \
            (Current) = YYRHSLOC(Rhs, 1);                                                                \
            if (YYRHSLOC(Rhs, N).hi > (Current).hi)                                                      \
                (Current).hi = YYRHSLOC(Rhs, N).hi;                                                      \
        } else {                                                                                         \
            (Current) = YYRHSLOC(Rhs, 0);                                                                \
            (Current).lo = (Current).hi;                                                                 \
        }                                                                                                \
    } while (0)

#define NEW(type) ((type *)arena_alloc(p->c->arena, sizeof(type)))
#define PUSH(v, x) vec_push(p->c->arena, (v), (x))

static int yylex(YYSTYPE *value, Span *span, Parser *p);
static void yyerror(const Span *span, Parser *p, const char *text);
static void append(Parser *p, StmtVec *list, const StmtVec *more);
}

%union {
    Token token;
    bool flag;
    AstOp op;
    Expr *expr;
    Stmt *stmt;
    StmtVec *stmts;
    ExprVec *exprs;
    BinderVec *binders;
    DeclVec *decls;
    Decl *decl;
    TokenVec *tokens;
}

%token <token> NAME "a name" NUMBER "a number" STRING "a path in quotes"
%token <token> REDUCE "a reduction" SOFTMAX "softmax"
%token <token> IMPORT "'import'" CELL "'cell'" DIM "'dim'" CONST "'const'" OPTION "'option'" INPUT "'input'"
%token <token> PARAM "'param'" STATE "'state'" OUTPUT "'output'" RESET "'reset'" CARRY "'carry'" FN "'fn'"
%token <token> ADJOINT "'adjoint'" WHEN "'when'" ELSE "'else'" REPEAT "'repeat'"
%token IN "'in'"
%token EQ "'=='" NE "'!='" LE "'<='" GE "'>='" AND "'&&'" OR "'||'"
%token END "';'" SEP "';' and a step"

%type <stmts> items item block
%type <stmt> equation target fn when
%type <expr> expr either both compare sum term product reduced unary power exponent primary arg extent binder
%type <exprs> args axes extents index
%type <binders> binders left
%type <decls> decls
%type <decl> decl
%type <tokens> choices params names
%type <token> member
%type <flag> prime opening closing
%type <op> mulop compareop

%%

program:
    items                               { append(p, &p->ast->items, $1); }
;

items:
    %empty                              { $$ = NEW(StmtVec); }
  | items item                          { append(p, $1, $2); $$ = $1; }
;

block:
    '{' items '}'                       { $$ = $2; }
  | '{' items error '}'                 { $$ = $2; yyerrok; }
;

item:
    IMPORT STRING END                   {
        $$ = NEW(StmtVec);
        Stmt *s = stmt_new(p, S_IMPORT, NULL, @$);
        s->text = $2.text;
        s->text_span = @2;
        PUSH($$, s);
    }
  | CELL NAME block                     {
        $$ = NEW(StmtVec);
        Stmt *s = stmt_new(p, S_CELL, &$2, @$);
        s->body = *$3;
        PUSH($$, s);
    }
  | DIM decls END                       { $$ = NEW(StmtVec); add_decls(p, $$, S_DIM, false, $2, @$); }
  | CONST decls END                     { $$ = NEW(StmtVec); add_decls(p, $$, S_CONST, false, $2, @$); }
  | CONST INPUT decls END               { $$ = NEW(StmtVec); add_decls(p, $$, S_INPUT, true, $3, @$); }
  | CONST PARAM decls END               { $$ = NEW(StmtVec); add_decls(p, $$, S_PARAM, true, $3, @$); }
  | INPUT decls END                     { $$ = NEW(StmtVec); add_decls(p, $$, S_INPUT, false, $2, @$); }
  | PARAM decls END                     { $$ = NEW(StmtVec); add_decls(p, $$, S_PARAM, false, $2, @$); }
  | STATE decls END                     { $$ = NEW(StmtVec); add_decls(p, $$, S_STATE, false, $2, @$); }
  | OUTPUT decls END                    { $$ = NEW(StmtVec); add_decls(p, $$, S_OUTPUT, false, $2, @$); }
  | RESET decls END                     { $$ = NEW(StmtVec); add_decls(p, $$, S_RESET, false, $2, @$); }
  | CARRY decls END                     { $$ = NEW(StmtVec); add_decls(p, $$, S_CARRY, false, $2, @$); }
  | OPTION NAME '=' choices END         {
        $$ = NEW(StmtVec);
        Stmt *s = stmt_new(p, S_OPTION, &$2, @$);
        for (int i = 0; i < $4->len; i++) {
            vec_push(p->c->arena, &s->choices, $4->data[i].text);
            vec_push(p->c->arena, &s->choice_spans, $4->data[i].span);
        }
        PUSH($$, s);
    }
  | equation END                        { $$ = NEW(StmtVec); $1->span.hi = @2.hi; PUSH($$, $1); }
  | fn                                  { $$ = NEW(StmtVec); PUSH($$, $1); }
  | when                                { $$ = NEW(StmtVec); PUSH($$, $1); }
  | REPEAT NAME ':' expr block          {
        $$ = NEW(StmtVec);
        Stmt *s = stmt_new(p, S_REPEAT, &$2, @$);
        Binder b = {.name = $2.text, .span = @2, .range = $4};
        PUSH(&s->lhs, b);
        s->body = *$5;
        PUSH($$, s);
    }
  | END                                 { $$ = NEW(StmtVec); }
  | error END                           { $$ = NEW(StmtVec); yyerrok; }
  | error block                         { $$ = $2; p->lost_head = true; yyerrok; }
;

choices:
    NAME                                { $$ = NEW(TokenVec); PUSH($$, $1); }
  | choices '|' NAME                    { PUSH($1, $3); $$ = $1; }
;

decls:
    decl                                { $$ = NEW(DeclVec); PUSH($$, *$1); }
  | decls ',' decl                      { PUSH($1, *$3); $$ = $1; }
;

decl:
    NAME axes                           {
        $$ = NEW(Decl);
        $$->name = $1;
        $$->span = @$;
        if ($2) {
            $$->axes = *$2;
            $$->brackets = true;
        }
    }
  | decl ':' NAME                       {
        if ($1->type || $1->init_op)
            error_at(p, @3, "the type of '%s' stands once, right behind its axes", $1->name.text);
        $$ = $1;
        $$->type = $3.text;
        $$->type_span = @3;
        $$->span = @$;
    }
  | decl IN opening expr ',' expr closing {
        if ($1->domain)
            error_at(p, @$, "'%s' has a range already", $1->name.text);
        $$ = $1; $$->domain = domain_of(p, $3, $4, $6, $7, NULL, (Span){@3.file, @3.lo, @7.hi}); $$->span = @$;
    }
  | decl IN NAME                        {
        if ($1->domain)
            error_at(p, @$, "'%s' has a range already", $1->name.text);
        $$ = $1; $$->domain = domain_of(p, false, NULL, NULL, false, &$3, @3); $$->span = @$;
    }
  | decl '~' expr                       {
        if ($1->init_op)
            error_at(p, @3, "'%s' has an initial value already", $1->name.text);
        $$ = $1; $$->init_op = '~'; $$->init = $3; $$->span = @$;
    }
  | decl '=' expr                       {
        if ($1->init_op)
            error_at(p, @3, "'%s' has an initial value already", $1->name.text);
        $$ = $1; $$->init_op = '='; $$->init = $3; $$->span = @$;
    }
;

opening:
    '('                                 { $$ = true; }
  | '['                                 { $$ = false; }
;

closing:
    ')'                                 { $$ = true; }
  | ']'                                 { $$ = false; }
;

axes:
    %empty                              { $$ = NULL; }
  | '[' extents ']'                     { $$ = $2; }
;

extents:
    extent                              { $$ = NEW(ExprVec); PUSH($$, $1); }
  | extents ',' extent                  { PUSH($1, $3); $$ = $1; }
;

/* An axis whose index an initial value reads is carried as an X_COLON with a name until add_decls takes it apart. */
extent:
    arg
  | NAME ':' expr                       {
        $$ = expr_new(p, X_COLON, @1);
        $$->name = $1.text;
        $$->a = $3;
    }
;

equation:
    target '=' expr                     { $$ = $1; $$->value = $3; $$->span = @$; }
  | target ':' NAME '=' expr            {
        $$ = $1;
        $$->value = $5;
        $$->text = $3.text;
        $$->text_span = @3;
        $$->span = @$;
    }
;

target:
    NAME prime left                     {
        $$ = stmt_new(p, S_EQ, &$1, @$);
        $$->primed = $2;
        if ($3) {
            $$->lhs = *$3;
            $$->brackets = true;
        }
    }
;

prime:
    %empty                              { $$ = false; }
  | '\''                                { $$ = true; }
;

left:
    %empty                              { $$ = NULL; }
  | '[' binders ']'                     { $$ = $2; }
;

binders:
    binder                              { $$ = NEW(BinderVec); PUSH($$, binder_of(p, $1)); }
  | binders ',' binder                  { PUSH($1, binder_of(p, $3)); $$ = $1; }
;

/* A range is carried as an X_COND without condition until binder_of takes it apart. */
binder:
    expr
  | NAME ':' expr                       {
        $$ = expr_new(p, X_COLON, @1);
        $$->name = $1.text;
        $$->a = $3;
    }
;

fn:
    FN NAME '(' params ')' left '=' expr END    {
        $$ = stmt_fn(p, false, $2, $4, NULL, $6, @$);
        $$->value = $8;
    }
  | FN NAME '(' params ')' left block   {
        $$ = stmt_fn(p, false, $2, $4, NULL, $6, @$);
        $$->has_body = true;
        $$->body = *$7;
    }
  | ADJOINT FN NAME '(' params SEP names ')' left '=' expr END {
        $$ = stmt_fn(p, true, $3, $5, $7, $9, @$);
        $$->value = $11;
    }
  | ADJOINT FN NAME '(' params SEP names ')' left block {
        $$ = stmt_fn(p, true, $3, $5, $7, $9, @$);
        $$->has_body = true;
        $$->body = *$10;
    }
;

params:
    %empty                              { $$ = NEW(TokenVec); }
  | names
;

names:
    NAME                                { $$ = NEW(TokenVec); PUSH($$, $1); }
  | names ',' NAME                      { PUSH($1, $3); $$ = $1; }
;

when:
    WHEN expr block                     {
        $$ = stmt_new(p, S_WHEN, NULL, @$);
        $$->value = $2;
        $$->body = *$3;
    }
  | WHEN expr block ELSE block          {
        $$ = stmt_new(p, S_WHEN, NULL, @$);
        $$->value = $2;
        $$->body = *$3;
        $$->other = *$5;
        $$->has_body = true;
    }
  | WHEN expr block ELSE when           {
        $$ = stmt_new(p, S_WHEN, NULL, @$);
        $$->value = $2;
        $$->body = *$3;
        PUSH(&$$->other, $5);
    }
;

expr:
    either
  | either '?' expr ':' expr            { $$ = expr_cond(p, $1, $3, $5, @$); }
;

either:
    both
  | either OR both                      { $$ = expr_binary(p, O_OR, $1, $3, @$); }
;

both:
    compare
  | both AND compare                    { $$ = expr_binary(p, O_AND, $1, $3, @$); }
;

compare:
    sum
  | compare compareop sum               { $$ = expr_compare(p, $2, $1, $3, @$); }
;

compareop:
    '<'                                 { $$ = O_LT; }
  | LE                                  { $$ = O_LE; }
  | '>'                                 { $$ = O_GT; }
  | GE                                  { $$ = O_GE; }
  | EQ                                  { $$ = O_EQ; }
  | NE                                  { $$ = O_NE; }
;

sum:
    term
  | sum '+' term                        { $$ = expr_binary(p, O_ADD, $1, $3, @$); }
  | sum '-' term                        { $$ = expr_binary(p, O_SUB, $1, $3, @$); }
;

/* A reduction takes the rest of its product, so it can only stand at the end of one. */
term:
    product
  | reduced
  | product mulop reduced               { $$ = expr_binary(p, $2, $1, $3, @$); }
;

product:
    unary
  | product mulop unary                 { $$ = expr_binary(p, $2, $1, $3, @$); }
;

mulop:
    '*'                                 { $$ = O_MUL; }
  | '/'                                 { $$ = O_DIV; }
  | '%'                                 { $$ = O_MOD; }
;

reduced:
    REDUCE '[' binders ']' term         { $$ = expr_reduce(p, $1, $3, $5, @$); }
  | '-' reduced                         { $$ = expr_unary(p, O_NEG, $2, @$); }
  | '!' reduced                         { $$ = expr_unary(p, O_NOT, $2, @$); }
;

unary:
    power
  | '-' unary                           { $$ = expr_unary(p, O_NEG, $2, @$); }
  | '!' unary                           { $$ = expr_unary(p, O_NOT, $2, @$); }
;

power:
    primary
  | primary '^' exponent                { $$ = expr_binary(p, O_POW, $1, $3, @$); }
;

exponent:
    power
  | '-' exponent                        { $$ = expr_unary(p, O_NEG, $2, @$); }
;

primary:
    NUMBER                              { $$ = expr_number(p, $1); }
  | NAME prime                          { $$ = expr_ref(p, $1, $2, NULL, NULL, @$); }
  | NAME prime '[' args ']'             { $$ = expr_ref(p, $1, $2, $4, NULL, @$); }
  | NAME prime '[' args SEP expr ']'    { $$ = expr_ref(p, $1, $2, $4, $6, @$); }
  | NAME prime '[' SEP expr ']'         { $$ = expr_ref(p, $1, $2, NULL, $5, @$); $$->brackets = true; }
  | NAME '(' ')' member index           { $$ = expr_call(p, $1, NULL, NULL, $4, $5, @$); }
  | NAME '(' args ')' member index      { $$ = expr_call(p, $1, $3, NULL, $5, $6, @$); }
  | NAME '(' args SEP args ')' index    { $$ = expr_call(p, $1, $3, $5, (Token){.text = NULL}, $7, @$); }
  | '(' expr ')'                        { $$ = $2; $$->parens++; }
  | SOFTMAX '[' binders ']' primary     { $$ = expr_reduce(p, $1, $3, $5, @$); }
;

member:
    %empty                              { $$ = (Token){.text = NULL}; }
  | '.' NAME                            { $$ = $2; }
;

index:
    %empty                              { $$ = NULL; }
  | '[' args ']'                        { $$ = $2; }
;

args:
    arg                                 { $$ = NEW(ExprVec); PUSH($$, $1); }
  | args ',' arg                        { PUSH($1, $3); $$ = $1; }
;

arg:
    expr
  | ':'                                 { $$ = expr_new(p, X_COLON, @$); }
;

%%

static int yylex(YYSTYPE *value, Span *span, Parser *p)
{
    value->token = next_token(p);
    *span = value->token.span;
    return value->token.code;
}

/* Only the parser's own stack running out comes here: all else goes to yyreport_syntax_error. */
static void yyerror(const Span *span, Parser *p, const char *text)
{
    (void)text;
    give_up(p, *span, "nested too deeply (2000 levels of an expression are the limit)");
}

static void append(Parser *p, StmtVec *list, const StmtVec *more)
{
    for (int i = 0; i < more->len; i++)
        vec_push(p->c->arena, list, more->data[i]);
}

static bool is_operator(yysymbol_kind_t k)
{
    switch ((int)k) {
    case YYSYMBOL_EQ: case YYSYMBOL_NE: case YYSYMBOL_LE: case YYSYMBOL_GE: return true;
    case YYSYMBOL_AND: case YYSYMBOL_OR: return true;
    }
    const char *s = yysymbol_name(k);
    return s[0] == '\'' && s[1] && strchr("<>+-*/%^?!'\\", s[1]);
}

static int yyreport_syntax_error(const yypcontext_t *ctx, Parser *p)
{
    yysymbol_kind_t list[YYNTOKENS];
    int n = yypcontext_expected_tokens(ctx, list, YYNTOKENS);
    Expected e = {.expression = false};
    for (int i = 0; i < n; i++) {
        const char *text = yysymbol_name(list[i]);
        switch ((int)list[i]) {
        case YYSYMBOL_NUMBER: e.expression = true; break;
        case YYSYMBOL_END: e.end = true; break;
        case YYSYMBOL_NAME: e.name = true; break;
        case YYSYMBOL_IN: break;                /* one of many things that may follow a declared name */
        default:
            e.equals = e.equals || strcmp(text, "'='") == 0;
            e.operators = e.operators || strcmp(text, "'+'") == 0;
            e.comma = e.comma || strcmp(text, "','") == 0;
            e.block = e.block || strcmp(text, "'{'") == 0;
            if (!is_operator(list[i]) && e.ntokens < (int)(sizeof e.tokens / sizeof *e.tokens))
                e.tokens[e.ntokens++] = text;
        }
    }
    syntax_error(p, &e);
    return 0;
}
