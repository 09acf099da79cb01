/* kir.h: the kernel IR. A kernel is a list of statements over typed expressions, with the memory that each
 * value lies in. It is built once (kir_build.c, kir_statements.c), checked (kir_verify.c), cleaned of what
 * nothing reads (kir_clean.c), compared by its structure (kir_same.c), printed as text that reads back
 * (kir_dump.c, kir_parse.c), and printed as what nvcc gets (kir_cuda.c). It knows operators and device
 * functions, and nothing of cells, plans or schedules. */
#ifndef CELLC_KIR_H
#define CELLC_KIR_H

#include "ir/ops.h"

/* KT_PLACE: a place in a row: of 32 bits where a thread keeps all its vectors of the row, else of 64. */
typedef enum {
    KT_VOID,
    KT_BOOL,
    KT_I32,
    KT_U32,
    KT_I64,
    KT_BF16,
    KT_F16,
    KT_E4M3,
    KT_E5M2,
    KT_F32,
    KT_F64,
    KT_PLACE,
    KT_COUNT
} KirScalar;

typedef enum {
    KS_VALUE, /* a number of a thread */
    KS_GLOBAL, /* a place in global memory */
    KS_SHARED, /* a place in the block's shared memory */
    KS_REGISTERS, /* an array of a thread; its places are known when it is compiled */
    KS_FRAGMENT, /* a warp's part of a matrix for products: each thread has some elements */
    KS_ROW, /* a thread's vectors of a row: layouts from KL_KEPT on */
    KS_FUNCTION /* statements that the kernel calls: KI_FUNCTION */
} KirSpace;

/* Of fragments: the left factor [16, k], the right factor [k, 8], the sums [16, 8], with k the elements of
 * 32 bytes. Of a thread's vectors of a row, where it has none (V = 0) memory takes their place: what is
 * read stays in registers; the next row's comes ahead, in two turns of shared memory; sums of columns over
 * rows. */
typedef enum { KL_NONE, KL_LEFT, KL_RIGHT, KL_SUM, KL_KEPT, KL_AHEAD, KL_COLUMNS } KirLayout;

typedef struct KirType {
    KirScalar of;
    KirSpace space;
    KirLayout layout;
    bool written;                 /* KS_GLOBAL: may be written through */
} KirType;

typedef struct KirExpr KirExpr;
typedef struct KirStmt KirStmt;
typedef Vec(KirStmt *) KirBlock;

/* A local, an array, or the variable of a loop. */
typedef struct KirVar {
    const char *name;
    KirType type;
    bool changes;                 /* may be assigned to */
    /* Elements of an array; KS_REGISTERS: a number, or a parameter; KS_ROW: of a vector, likewise. KT_PLACE:
     * vectors that a thread keeps. */
    const KirExpr *count;
    const KirExpr *rows; /* KS_REGISTERS: an array of that length, or NULL; KS_ROW: vectors */
    const KirBlock *body; /* KS_FUNCTION: begins with its parameters */
    /* For the passes: */
    int number;                   /* in order of declaration, from 1 on; 0: out of scope */
    int uses;
    int level;                    /* which threads agree on it: KirScope */
    bool given;                   /* on all ways to here it has a value */
    const KirExpr *when; /* it has one where this holds, or NULL */
} KirVar;

typedef enum {
    KX_WHOLE,
    KX_REAL,
    KX_TRUTH,
    KX_VAR,
    KX_SPECIAL,
    KX_BINARY,
    KX_NEG,
    KX_NOT,
    KX_SELECT,
    KX_CONVERT,
    KX_LOAD,
    KX_OP,
    KX_CALL,
    KX_APPLY,
    KX_WITHIN,
    KX_NULL,
    KX_TEXT
} KirKind;

/* Arithmetic of places and conditions. On numbers of the spec there are the operators of the table
 * (KX_OP). */
typedef enum {
    KB_ADD, KB_SUB, KB_MUL, KB_DIV, KB_MOD, KB_LT, KB_LE, KB_GT, KB_GE, KB_EQ, KB_NE, KB_AND, KB_OR,
    KB_BITS, KB_COUNT
} KirBinary;

/* What a kernel gets and where a thread stands. */
typedef enum {
    KP_SIZE,
    KP_POINTER, /* `whole` says which */
    KP_TABLE, /* of constants, in the text in front of the kernels; `whole` is its name's number */
    KP_STEP, /* its number */
    KP_ADDS,
    KP_SAVES, /* gradients are added; the call saves for backward */
    KP_THREAD,
    KP_THREADS,
    KP_LANE,
    KP_WARP,
    KP_BLOCK,
    KP_BLOCKS, /* along axis `whole` of the grid */
    KP_FIRST,
    KP_END, /* of a kernel on the CPU, in place of threads: its items, [first, end) */
    KP_SCRATCH, /* and memory of its own */
    KP_COUNT
} KirSpecial;

typedef enum {
    KA_ELEMENT,                   /* p[i], as it is stored */
    KA_LOAD,                      /* converted to the compute type */
    KA_LOAD_RO                    /* the same of what no kernel writes meanwhile */
} KirAccess;

/* Who takes part, and who agrees on a value: all threads of the block, or of a warp, or each for itself. */
typedef enum { KIR_BLOCK, KIR_WARP, KIR_THREAD } KirScope;

/* Of a loop: its turns depend on no other, so that vectors may take several at once. */
enum { KIR_LANES = -2 };

/* KT_VOID: a number, KT_BOOL: a truth; else a type. of: a parameter of the kernel, in place of a value. */
typedef struct KirTemplate {
    KirScalar type;
    int64_t value;
    const KirExpr *of;
} KirTemplate;

typedef struct KirFunction {
    const char *name; /* begins with a dot: of its first argument, a thread's vectors */
    int args, templates; /* -n: n or more */
    unsigned writes; /* the arguments, as bits, that it writes through; the last bit: all others */
    bool effect;                  /* it does something beside giving a value */
    KirScope meets;               /* the threads that call it together */
    KirScope agree;               /* of threads with equal arguments, those that get the same */
    KirScalar gives;              /* KT_COUNT: the type of its first argument */
} KirFunction;
extern const KirFunction kir_functions[];      /* a row without a name ends it */
const KirFunction *kir_function(const char *name);                /* NULL: none */

struct KirExpr {
    KirKind kind;
    KirType type;
    int op;                       /* KirBinary, KirSpecial, KirAccess, Op */
    bool fast;                    /* KX_OP: as the device library computes it where tensors have 16 bits */
    int64_t whole;                /* KX_WHOLE, KX_TRUTH, KX_SPECIAL */
    double real;                  /* KX_REAL */
    KirVar *var; /* KX_APPLY: the function */
    const char *text;             /* KX_TEXT: of a kernel that is still printed as text */
    const KirFunction *function;
    int nargs, ntemplates;
    const KirExpr **args;
    const KirTemplate *templates;
    KirBlock *body;               /* KX_WITHIN: statements in front of the value args[0] */
};

typedef enum {
    KI_LET, /* var = x[0] from here on */
    KI_VAR, /* likewise, to be assigned; x[0] may be NULL */
    KI_ARRAY, /* var: registers, a fragment or vectors of a row; n: begins with zeros;
                                   * KL_COLUMNS: x[0] is where the sums go, or null */
    KI_SHARED, /* var: as many elements of shared memory as it counts */
    KI_ASSIGN, /* x[0] = x[1]; op KB_ADD: +=, ...; KB_COUNT: = */
    KI_STORE, /* at place x[0], in its type, x[1]; added where x[2] is there and true */
    KI_LOAD_VECTOR, /* x[0]: registers, from place x[1], `wide` elements; op: KA_LOAD, KA_LOAD_RO;
                                   * x[2]: from x[2] elements behind x[1], zeros where x[1] is null */
    KI_STORE_VECTOR, /* to place x[0], `wide` elements, of registers x[1]; x[2] as of a store */
    KI_FOR, /* var from x[0], while var op x[1], by x[2]; n: unrolled by, -1: all;
                                   * or KIR_LANES; wide: unrolled by that parameter, once where it is 0 */
    KI_WHILE, /* x[0] */
    KI_IF, /* x[0]; body, other */
    KI_BREAK,
    KI_CONTINUE,
    KI_RETURN,
    KI_BARRIER, /* op: KirScope */
    KI_COPY, /* n bytes to shared x[0] from global x[1], under way until they are waited
                                   * for; zeros where x[2] is there and false */
    KI_COMMIT, /* what was begun is a group */
    KI_WAIT, /* until all groups but the last n are there */
    KI_MMA, /* x[0] += x[1] x[2], fragments */
    KI_CALL, /* x[0] */
    KI_FUNCTION, /* var: what body does, which begins with a KI_PARAMETER for each */
    KI_PARAMETER, /* var */
    KI_RUN, /* of an entry: the kernel, with these values of its parameters */
    KI_COMMENT /* text */
} KirStmtKind;

struct KirStmt {
    KirStmtKind kind;
    int op;
    int64_t n;
    KirVar *var;
    const KirExpr *x[3];
    const KirExpr *wide; /* of a vector: a number, or a parameter; of a loop: see KI_FOR */
    KirBlock body, other;
    const char *text;
    int level;                    /* of a loop, for the verifier: which threads go round together */
};

/* What the launch calls of a kernel with parameters: statements that run it with the values that suit the
 * sizes of the call. */
typedef struct KirEntry {
    const char *name;
    KirBlock body;
} KirEntry;

enum { KIR_PARAMETERS = 3 };

enum { KIR_SMALL = 32 }; /* numbers below it are one node each: a third of all nodes were such */
typedef struct Kir {
    Arena *arena;
    const KirExpr *small[KIR_SMALL]; /* those that were made */
    const char *name;
    int threads;                  /* of a block */
    const char
        *bound; /* a constant of the device library that bounds it in place of `threads`: it may be less
                        * for a device that the kernel is not for; or NULL */
    int resident;                 /* blocks that a multiprocessor should hold at once; 0: as many as fit */
    bool waits;                   /* begins before the kernel before it is done, and waits for that first */
    int64_t shared;               /* bytes of the block's shared memory */
    /* Numbers and truths that are known when it is compiled, once for each of their values. Without any, it
     * has no entries, and is called itself. */
    Vec(KirVar *) params;
    Vec(KirEntry) entries;
    KirBlock body;
    KirBlock *at;                 /* what statements are added to */
} Kir;

/* ---- kir_build.c: expressions. Each gives its type; what does not fit is left for the verifier to say.
 * Constants are folded, and what adds 0 or multiplies by 1 goes. */

extern const char *const kir_scalar_words[KT_COUNT];              /* "i64" */
extern const char *const kir_special_words[KP_COUNT];
extern const char *const kir_binary_words[KB_COUNT];              /* "+" */
int kir_bytes(KirScalar of);
KirType kir_value(KirScalar of);
KirType kir_global(KirScalar of, bool written);
bool kir_is_place(KirType t);                                     /* a pointer, or a place in shared memory */
bool kir_is_whole(KirScalar s);
bool kir_is_real(KirScalar s);
bool kir_same_type(KirType a, KirType b);                         /* but for whether it may be written */
const KirExpr *kir_whole(Kir *k, int64_t v);
const KirExpr *kir_real(Kir *k, KirScalar type, double v);
const KirExpr *kir_truth(Kir *k, bool v);
const KirExpr *kir_var(Kir *k, KirVar *v);
const KirExpr *kir_special(Kir *k, KirSpecial s, int64_t which);
const KirExpr *kir_binary(Kir *k, KirBinary op, const KirExpr *a, const KirExpr *b);
const KirExpr *kir_neg(Kir *k, const KirExpr *a);
const KirExpr *kir_not(Kir *k, const KirExpr *a);
const KirExpr *kir_select(Kir *k, const KirExpr *c, const KirExpr *a, const KirExpr *b);
const KirExpr *kir_convert(Kir *k, KirType to, const KirExpr *a);
const KirExpr *kir_load(Kir *k, KirAccess how, KirScalar as, const KirExpr *place);
const KirExpr *kir_element(Kir *k, const KirExpr *place, const KirExpr *at);   /* place[at] */
const KirExpr *kir_op(Kir *k, Op op, KirScalar gives, bool fast, const KirExpr *const *args, int n);
const KirExpr *kir_call(Kir *k, const char *function, const KirTemplate *t, int nt,
                        const KirExpr *const *args, int n);
const KirExpr *kir_call1(Kir *k, const char *function, const KirExpr *a);
const KirExpr *kir_call2(Kir *k, const char *function, const KirExpr *a, const KirExpr *b);
const KirExpr *kir_applied(Kir *k, const KirExpr *function, const KirExpr *const *args, int n);
const KirExpr *kir_null(Kir *k, KirType type); /* a place that is none */
const KirExpr *kir_text(Kir *k, KirScalar type, const char *text);
bool kir_writes(const KirFunction *f, int argument);
bool kir_is_number(const KirExpr *e, int64_t v);                  /* the whole number v */
bool kir_equal(const KirExpr *a, const KirExpr *b); /* of the same variables */
uint64_t kir_expr_hash(const KirExpr *e); /* the same of what kir_equal says is the same, in one process */
bool kir_mentions(const KirExpr *e, const KirVar *v);
/* The same with other variables in place of some. */
typedef struct KirReplaced {
    const KirVar *from;
    const KirExpr *to;
} KirReplaced;
const KirExpr *kir_replaced(Kir *k, const KirExpr *e, const KirReplaced *r, int n);
/* Statements once more, with other variables in place of some: what is a choice by a truth then is made,
 * and what stands under a truth stands there alone. A variable that they declare is the same in both, so
 * they stand in blocks side by side. */
void kir_append_replaced(Kir *k, const KirBlock *statements, const KirReplaced *r, int n);
/* The value of `e`, which the statements that `at` gave stand in front of. */
const KirExpr *kir_within(Kir *k, KirBlock *body, const KirExpr *e);

/* ---- kir_statements.c: a kernel and its statements, added where the builder stands. */

Kir *kir_new(Arena *arena, const char *name, int threads);
KirVar *kir_variable(Kir *k, const char *name, KirType type, bool changes);    /* not declared yet */
void kir_add(Kir *k, KirStmt s);
/* KT_VOID: the type of value */
const KirExpr *kir_let(Kir *k, const char *name, KirScalar as, const KirExpr *value);
const KirExpr *kir_let_as(Kir *k, const char *name, KirType type, const KirExpr *value);
const KirExpr *kir_mutable(Kir *k, const char *name, KirScalar as, const KirExpr *value);
const KirExpr *kir_array(Kir *k, const char *name, KirScalar of, const KirExpr *count, bool zero);
/* An array of arrays; an element of it is an array. */
const KirExpr *kir_array_of_arrays(Kir *k, const char *name, KirScalar of, const KirExpr *rows,
                                   const KirExpr *count);
/* The variable of an array, or of the array that is an element of one; else NULL. */
KirVar *kir_array_var(const KirExpr *e);
const KirExpr *kir_shared_array(Kir *k, const char *name, KirScalar of, const KirExpr *count);
/* A place in a row of which a thread keeps a number of vectors, to be declared; and one that is. */
KirVar *kir_place(Kir *k, const char *name, const KirExpr *vectors);
const KirExpr *kir_let_var(Kir *k, KirVar *v, const KirExpr *value);
/* A thread's vectors of a row, of `width` elements each; at: of KL_COLUMNS. */
const KirExpr *kir_row(Kir *k, const char *name, KirLayout layout, KirScalar of, const KirExpr *vectors,
                       const KirExpr *width, const KirExpr *at);
const KirExpr *kir_fragment(Kir *k, const char *name, KirScalar of, KirLayout layout);
void kir_assign(Kir *k, const KirExpr *to, const KirExpr *value);
void kir_add_to(Kir *k, const KirExpr *to, const KirExpr *value);
void kir_store(Kir *k, const KirExpr *place, const KirExpr *value, const KirExpr *adds);
void kir_do(Kir *k, const KirExpr *call);
void kir_statement(Kir *k, KirStmtKind kind);                     /* one without anything: KI_BREAK, ... */
void kir_barrier(Kir *k, KirScope of);
void kir_comment(Kir *k, const char *text);
void kir_load_vector(Kir *k, KirAccess how, const KirExpr *registers, const KirExpr *wide,
                     const KirExpr *place, const KirExpr *offset);
void kir_store_vector(Kir *k, const KirExpr *place, const KirExpr *registers, const KirExpr *wide,
                      const KirExpr *adds);
/* A number that is known before the kernel is checked: a parameter of it, or `v`. */
const KirExpr *kir_unknown(Kir *k, const char *name, KirScalar type);
void kir_parameter(Kir *k, const KirExpr *unknown);
void kir_settle(const KirExpr *unknown, int64_t v); /* see kir_fold */
void kir_run(Kir *k, const KirExpr *const *values); /* one for each parameter */
void kir_append(Kir *k, const KirBlock *statements);
/* What is added from here on stands inside; the result goes to kir_close. */
typedef struct KirOpen { KirBlock *outer; KirStmt *statement; } KirOpen;
KirOpen kir_for(Kir *k, const char *name, KirScalar of, const KirExpr *first, KirBinary op,
                const KirExpr *limit, const KirExpr *by, const KirExpr **var);
KirOpen kir_for_var(Kir *k, KirVar *v, const KirExpr *first, KirBinary op, const KirExpr *limit,
                    const KirExpr *by);
KirOpen kir_while(Kir *k, const KirExpr *condition);
KirOpen kir_if(Kir *k, const KirExpr *condition);
/* A function, its parameters (in front of its statements), and a call of it. */
KirOpen kir_open_function(Kir *k, const char *name, const KirExpr **function);
const KirExpr *kir_parameter_of(Kir *k, const char *name, KirScalar of);
/* Of a function that the device library calls, too: the caller's array, of arrays where rows is there,
 * which it may write; and a vector of a row. */
KirVar *kir_array_given(Kir *k, const char *name, KirScalar of, const KirExpr *rows, const KirExpr *count,
                        bool written);
KirVar *kir_vector_given(Kir *k, const char *name, KirScalar of, const KirExpr *count);
void kir_apply(Kir *k, const KirExpr *function, const KirExpr *const *args, int n);
void kir_else(Kir *k, KirOpen *open);                             /* of an if that is open */
void kir_close(Kir *k, KirOpen open);
KirBlock *kir_enter(Kir *k, KirBlock *block);                     /* gives the block that was */

/* Calls f for each statement, those in blocks and in values too, in the order in which they stand. */
void kir_each(const KirBlock *b, void (*f)(KirStmt *, void *), void *data);
/* How tightly an expression binds, as in C: 1 a choice, 10 a name; and a binary operator. */
int kir_precedence(const KirExpr *e);
extern const int kir_binary_precedence[KB_COUNT];

/* ---- the passes */

/* NULL, or what is wrong (kir_verify.c; of threads, kir_threads.c): every read has a declaration in scope
 * and a value on all ways to it, types agree, what is written may be, barriers and what a warp does
 * together are reached by all of their threads, and shared memory adds up. */
const char *kir_verify(Kir *k);
/* the part of it that follows which threads agree */
const char *kir_verify_threads(Kir *k);
void kir_check(Compiler *c, Kir *k, const char *pass);            /* bug() names the pass that broke it */
/* What is arithmetic of numbers, now that what was unknown is one. */
void kir_fold(Kir *k);
void kir_clean(Kir *k);                                           /* drops declarations that nothing reads */
/* Of the structure: names of variables, of the kernel, and comments do not count. */
uint64_t kir_hash(Kir *k);
bool kir_same(Kir *a, Kir *b);
void kir_dump(const Kir *k, Buf *out);
Kir *kir_parse(Compiler *c, const char *text, size_t len);        /* NULL with a diag when it is no kernel */
/* NULL, or what is wrong */
const char *kir_parse_text(Arena *a, const char *text, size_t len, Kir **out);
/* The function of a call with the arguments of its template; `scalars`: the words for types. */
void kir_print_callee(const KirExpr *e, const char *const *scalars, Buf *out);
/* kir_print.c, of the printers below, which write an expression by `print`: a format of the operator table
 * with its %s replaced by the arguments; how tightly an operand binds; an expression without parentheses
 * around it; and what a loop does behind each turn. */
typedef void (*KirPrint)(const KirExpr *e, int needs, Buf *out);
void kir_print_filled(const char *fmt, const KirExpr *e, KirPrint print, Buf *out);
int kir_needs_behind_minus(const KirExpr *e);
int kir_operand_needs(const KirExpr *e, int i);
const char *kir_bare(const KirExpr *e, KirPrint print, Arena *arena);
const char *kir_loop_step(const KirStmt *s, KirPrint print, Arena *arena);
void kir_print_cuda(const Kir *k, Buf *out);
void kir_expr_cuda(const KirExpr *e, Buf *out);                   /* as an operand of any operator */
/* For the CPU, as a function of C over runtime/cpu/cell_cpu.h. */
void kir_print_c(const Kir *k, Buf *out);
void kir_expr_c(const KirExpr *e, Buf *out); /* as an operand of any operator */
/* What generated CUDA calls a type. */
const char *kir_cuda_scalar(KirScalar s);

#endif
