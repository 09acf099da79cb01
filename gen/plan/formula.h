/* formula.h: whole numbers that are known when a call is made: grids, shared memory, bytes of buffers, and
 * the conditions under which a kernel runs. A formula is an immutable tree over the call's sizes, the device
 * and open loops. formula_postfix is the only printer of the launch plan's programs (CELL_X_ codes of
 * runtime/cell_plan.h), formula_words prints for people, and formula_value computes what the runtime
 * would. */
#ifndef CELLC_FORMULA_H
#define CELLC_FORMULA_H

#include "ir/ir.h"

typedef enum {
    F_CONST,
    F_SIZE,                       /* a polynomial over the call's sizes */
    F_LOOP,                       /* the variable of an open loop; 0 is the outermost */
    F_START,                      /* t0, the number of the call's first step */
    F_DEVICE,                     /* a DeviceFact */
    F_RESIDENT,                   /* blocks of a kernel that the whole device holds at once */
    F_ROWS,                       /* rows of a value kept for n steps: T where the call saves, else n */
    F_ROW,                        /* the row of the outermost loop's step among them */
    F_FORM,                       /* which form of the launch plan's operation `value` is taken, from 0 on */
    F_ADD, F_SUB, F_MUL,
    F_DIV, F_MOD, F_CEILDIV,      /* DIV rounds down, and MOD has the divisor's sign */
    F_MIN, F_MAX,
    F_LT, F_LE, F_EQ,             /* conditions: 1, or 0 */
    F_AND, F_OR, F_NOT            /* of conditions */
} FormulaKind;

typedef enum {
    DEVICE_MULTIPROCESSORS,
    DEVICE_BLOCK_MEMORY,
    DEVICE_CAPABILITY,
    DEVICE_PRODUCTS_OF_8,
    DEVICE_FACTS
} DeviceFact;

typedef struct Formula Formula;
struct Formula {
    FormulaKind kind;
    int64_t value;                /* F_CONST; which loop or fact; of F_ROWS and F_ROW the n */
    const Poly *size;             /* F_SIZE */
    const char *kernel;           /* F_RESIDENT: its name */
    const Formula *a, *b;         /* operands; of F_SIZE, a is what stands for T in it, or NULL */
};

const Formula *formula_const(const Module *m, int64_t v);
const Formula *formula_size(const Module *m, const Poly *p);
/* rows: in place of T; NULL: T */
const Formula *formula_size_of_rows(const Module *m, const Poly *p, const Formula *rows);
/* F_LOOP, F_START, F_DEVICE, F_ROWS, F_ROW, F_FORM */
const Formula *formula_leaf(const Module *m, FormulaKind kind, int64_t value);
const Formula *formula_resident(const Module *m, const char *kernel);
/* b is NULL for F_NOT */
const Formula *formula(const Module *m, FormulaKind kind, const Formula *a, const Formula *b);
/* b is a constant */
const Formula *formula_with(const Module *m, FormulaKind kind, const Formula *a, int64_t b);
const Formula *formula_not(const Module *m, const Formula *a);
/* either may be NULL: it always holds */
const Formula *formula_and(const Module *m, const Formula *a, const Formula *b);
const Formula *formula_multiple(const Module *m, const Poly *p, int64_t of);      /* is it one? */

/* Appends the program, a comma behind each code but the last, CELL_X_END. kernels: those of the launch plan
 * by number, or NULL. */
typedef struct KernelNames { const char **data; int len, cap; } KernelNames;
void formula_postfix(const Module *m, const Formula *f, const KernelNames *kernels, Buf *out);

void formula_words(const Module *m, const Formula *f, Buf *out);

/* What a formula may ask for. resident may be NULL where there are no kernels; it returns false where it does
 * not know. */
typedef struct FormulaScope {
    const Module *m;
    const int64_t *sizes;         /* by atom, MAX_DIMS of them */
    int64_t device[DEVICE_FACTS];
    bool (*resident)(void *data, const char *kernel, int64_t *blocks);
    bool (*form)(void *data, int64_t operation, int64_t *number);      /* NULL: no form is known */
    void *data;
    const int64_t *loop;          /* variables of open loops, the outermost first */
    int n_loops;
    bool saving;                  /* the call saves for backward, or is backward */
} FormulaScope;

/* Of a condition that does not hold: appends the first part of it that does not, with the numbers that it
 * compares: "D <= 256 does not hold (1024 <= 256)". Nothing where it holds, or is not known. */
void formula_why_not(const Formula *f, const FormulaScope *scope, Buf *out);

/* False where a number overflows 64 bits, a divisor is 0, or the scope has no such thing. */
bool formula_value(const Formula *f, const FormulaScope *scope, int64_t *value);

#endif
