/* complex_ops.c: complex numbers as pairs of real nodes. In come pairs (a real number has no second one); out goes
 * the pair of what an operator or a function gives, made of the operator table's real operators. So the IR is
 * real, and so is its differentiation: the gradient of a complex value is the pair of the gradients of its two
 * parts, dL/dre + i dL/dim, which is PyTorch's convention. Guaranteed: where one argument is real, nothing is
 * multiplied by its missing part; no function has an infinite derivative at 0; squares are of numbers of about 1. */
#include <string.h>

#include "base/mutate.h"
#include "complex_ops.h"
#include "ir/ops.h"

const ComplexRow complex_table[CX_COUNT] = {
    [CX_COMPLEX] = { "complex", 2, "complex(x, y) = x + iy of two real numbers" },
    [CX_RE] = { "re", 1, "the real part, a real number" },
    [CX_IM] = { "im", 1, "the imaginary part, a real number" },
    [CX_CONJ] = { "conj", 1, "the complex conjugate, x - iy" },
    [CX_ARG] = { "arg", 1, "the angle atan2(im, re), a real number; derivative 0 at 0" },
    [CX_CIS] = { "cis", 1, "cos(x) + i sin(x) of a real number" },
};

int complex_find(const char *name)
{
    for (int i = 0; i < CX_COUNT; i++)
        if (strcmp(complex_table[i].name, name) == 0)
            return i;
    return -1;
}

bool complex_takes(Op op)
{
    switch (op) {
    case OP_NEG: case OP_ADD: case OP_SUB: case OP_MUL: case OP_DIV: case OP_POW: case OP_EXP: case OP_LOG:
    case OP_SQRT: case OP_ABS: case OP_STOP: case OP_SELECT: return true;
    default: return false;
    }
}

NodeId complex_im(Module *m, Complex z)
{
    return z.im < 0 ? node_const(m, 0) : z.im;
}

static NodeId neg(Module *m, NodeId a) { return node_map1(m, OP_NEG, a); }
static NodeId add(Module *m, NodeId a, NodeId b) { return node_map2(m, OP_ADD, a, b); }
static NodeId sub(Module *m, NodeId a, NodeId b) { return node_map2(m, OP_SUB, a, b); }
static NodeId mul(Module *m, NodeId a, NodeId b) { return node_map2(m, OP_MUL, a, b); }
static NodeId quotient(Module *m, NodeId a, NodeId b) { return node_map2(m, OP_DIV, a, b); }

NodeId complex_abs(Module *m, Complex z)
{
    return z.im < 0 ? node_map1(m, OP_ABS, z.re) : node_map2(m, OP_HYPOT, z.re, z.im);
}

static Complex conjugate(Module *m, Complex z)
{
    if (mutate("unconjugated"))
        return z;
    return (Complex){ z.re, z.im < 0 ? -1 : neg(m, z.im) };
}

static Complex sum_of(Module *m, Complex a, Complex b, Op op)
{
    Complex r = { node_map2(m, op, a.re, b.re), a.im };
    if (a.im >= 0 && b.im >= 0)
        r.im = node_map2(m, op, a.im, b.im);
    else if (b.im >= 0)
        r.im = op == OP_SUB ? neg(m, b.im) : b.im;
    return r;
}

static Complex product(Module *m, Complex a, Complex b)
{
    if (a.im < 0 && b.im < 0)
        return (Complex){ mul(m, a.re, b.re), -1 };
    if (a.im < 0)
        return (Complex){ mul(m, a.re, b.re), mul(m, a.re, b.im) };
    if (b.im < 0)
        return (Complex){ mul(m, a.re, b.re), mul(m, a.im, b.re) };
    NodeId minus = mul(m, a.im, b.im);
    return (Complex){ mutate("split-product") ? mul(m, a.re, b.re) : sub(m, mul(m, a.re, b.re), minus),
                      add(m, mul(m, a.re, b.im), mul(m, a.im, b.re)) };
}

static Complex times(Module *m, Complex z, NodeId by)
{
    return (Complex){ mul(m, z.re, by), z.im < 0 ? -1 : mul(m, z.im, by) };
}

/* a/b = a conj(b) / |b|^2, of both divided by a power of two that makes the larger part of b one of about 1: so the square is
 * neither infinite nor 0 where b is not. It is no variable, as the quotient does not depend on it. */
static Complex divide(Module *m, Complex a, Complex b)
{
    if (b.im >= 0) {
        NodeId larger = node_map2(m, OP_MAX, node_map1(m, OP_ABS, b.re), node_map1(m, OP_ABS, b.im));
        NodeId scale = node_map1(m, OP_SCALE, larger);
        b = times(m, b, scale);
        a = product(m, times(m, a, scale), conjugate(m, b));
    }
    NodeId by = b.im < 0 ? b.re : add(m, mul(m, b.re, b.re), mul(m, b.im, b.im));
    return (Complex){ quotient(m, a.re, by), a.im < 0 ? -1 : quotient(m, a.im, by) };
}

/* e^re (cos im + i sin im), which may be finite where e^re is not. */
static Complex exponential(Module *m, Complex z)
{
    NodeId angle = complex_im(m, z);
    return (Complex){ node_map2(m, OP_EXP_RE, z.re, angle), node_map2(m, OP_EXP_IM, z.re, angle) };
}

static NodeId angle_of(Module *m, Complex z)
{
    return node_map2(m, OP_ATAN2, complex_im(m, z), z.re);
}

/* log |z| + i arg z */
static Complex logarithm(Module *m, Complex z)
{
    return (Complex){ node_map2(m, OP_LOG_HYPOT, z.re, complex_im(m, z)), angle_of(m, z) };
}

/* The root whose real part is not negative. */
static Complex root(Module *m, Complex z)
{
    NodeId im = complex_im(m, z);
    return (Complex){ node_map2(m, OP_ROOT_RE, z.re, im), node_map2(m, OP_ROOT_IM, z.re, im) };
}

/* (re - im)(re + im) is finite where the difference of the squares is. */
static Complex squared(Module *m, Complex z)
{
    if (z.im < 0)
        return product(m, z, z);
    return (Complex){ mul(m, sub(m, z.re, z.im), add(m, z.re, z.im)), mul(m, add(m, z.re, z.re), z.im) };
}

Complex complex_power(Module *m, Complex z, int64_t n)
{
    Complex r = { node_const(m, 1), -1 }, square = n < 0 ? divide(m, r, z) : z;
    bool any = false;
    for (int64_t left = n < 0 ? -n : n; left; left >>= 1) {
        if (left & 1)
            r = any ? product(m, r, square) : square;
        any |= left & 1;
        if (left > 1)
            square = squared(m, square);
    }
    return r;
}

Complex complex_map(Module *m, Op op, const Complex *x)
{
    switch (op) {
    case OP_NEG: return (Complex){ neg(m, x[0].re), x[0].im < 0 ? -1 : neg(m, x[0].im) };
    case OP_ADD:
    case OP_SUB: return sum_of(m, x[0], x[1], op);
    case OP_MUL: return product(m, x[0], x[1]);
    case OP_DIV: return divide(m, x[0], x[1]);
    case OP_EXP: return exponential(m, x[0]);
    case OP_LOG: return logarithm(m, x[0]);
    case OP_SQRT: return root(m, x[0]);
    case OP_ABS: return (Complex){ complex_abs(m, x[0]), -1 };
    case OP_STOP: return (Complex){ node_map1(m, op, x[0].re), node_map1(m, op, x[0].im) };
    case OP_SELECT:
        return (Complex){ node_select(m, x[0].re, x[1].re, x[2].re),
                          node_select(m, x[0].re, complex_im(m, x[1]), complex_im(m, x[2])) };
    default: bug(m->c, "lower", "operator %s of complex values", op_table[op].name);
    }
}

Complex complex_call(Module *m, ComplexOp op, const Complex *x)
{
    switch (op) {
    case CX_COMPLEX: return (Complex){ x[0].re, x[1].re };
    case CX_RE: return (Complex){ x[0].re, -1 };
    case CX_IM: return (Complex){ complex_im(m, x[0]), -1 };
    case CX_CONJ: return conjugate(m, x[0]);
    case CX_ARG: return (Complex){ angle_of(m, x[0]), -1 };
    default: return (Complex){ node_map1(m, OP_COS, x[0].re), node_map1(m, OP_SIN, x[0].re) };
    }
}
