"""The coefficients of erf and erfc in runtime/cpu/cell_cpu_math.h, and of the exponential in f32 in
runtime/cpu/cell_cpu_elementary.h. In: mpmath (pip install mpmath). Out: for
each function and type a polynomial, the constant first, by interpolation at Chebyshev nodes, which is near
the least error there is of its degree; and that error, of the function that is approximated."""

import mpmath
from mpmath import mp, mpf

mp.dps = 40


def erf_over_x(z):
    """erf(x) / x with z = x^2."""
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) if z > mpf("1e-12") else 2 / mp.sqrt(mp.pi) * (1 - z / 3)


def erfc_scaled(y):
    """erfc(x) e^(x^2) (1 + 2 x) with y = (x - 4) / (x + 4)."""
    x = 4 * (1 + y) / (1 - y)
    return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)


def of_four(x):
    return (mpf(x) - 4) / (mpf(x) + 4)


for bits, near, far, most, digits in ((32, 7, 10, "10.1", 10), (64, 12, 20, "27.3", 19)):
    for name, f, a, b, n in (
        ("erf", erf_over_x, 0, 1, near),
        ("erfc", erfc_scaled, of_four("0.8"), of_four(most), far),
    ):
        p, error = mpmath.chebyfit(f, [a, b], n, error=True)
        print(f"{name} f{bits}, error {mp.nstr(error, 2)}:")
        print("    " + ", ".join(mp.nstr(c, digits) for c in reversed(p)))


def exp_rest(r):
    """(e^r - 1 - r) / r^2."""
    return (mp.exp(r) - 1 - r) / r**2 if abs(r) > mpf("1e-9") else mpf(1) / 2 + r / 6


p, error = mpmath.chebyfit(exp_rest, [-mpf("0.6935"), mpf("0.6935")], 7, error=True)
print(f"exp f32, error {mp.nstr(error, 2)}:")
print("    " + ", ".join(mp.nstr(c, 12) for c in p))
