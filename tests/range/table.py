"""Writes complex.txt: what the functions of complex.cell are at numbers over the whole range of f32 and f64, with those
below the smallest normal one, in 200 bits (mpmath). A line is a type, a function, z, w, the value, and the derivative by z (of
a real function: the gradient), each as two numbers. What is no number of the type is left out."""

import math
import struct

import mpmath

mpmath.mp.prec = 200


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def signed(f):
    """The principal value on the side of the cut that the sign of a zero names."""
    def of(z, w, raw):
        return mpmath.conj(f(z)) if raw[1] == 0 and math.copysign(1, raw[1]) < 0 and raw[0] < 0 else f(z)
    return of


log, sqrt = signed(mpmath.log), signed(mpmath.sqrt)
FUNCTIONS = {
    "size": (lambda z, w, raw: abs(z), lambda z, w, raw: z / abs(z)),
    "angle": (lambda z, w, raw: log(z, w, raw).imag, lambda z, w, raw: mpmath.mpc(-z.imag, z.real) / abs(z) ** 2),
    "inverse": (lambda z, w, raw: 1 / z, lambda z, w, raw: -1 / z**2),
    "quotient": (lambda z, w, raw: w / z, lambda z, w, raw: -w / z**2),
    "root": (sqrt, lambda z, w, raw: 1 / (2 * sqrt(z, w, raw))),
    "log_z": (log, lambda z, w, raw: 1 / z),
    "exp_z": (lambda z, w, raw: mpmath.exp(z), lambda z, w, raw: mpmath.exp(z)),
    "square": (lambda z, w, raw: z**2, lambda z, w, raw: 2 * z),
    "minus_two": (lambda z, w, raw: 1 / z**2, lambda z, w, raw: -2 / z**3),
    "product": (lambda z, w, raw: z * w, lambda z, w, raw: w),
}


def points(largest, tiny, least, top):
    """Exponents: of the largest number, the smallest normal one and the smallest one; and the logarithm of the largest."""
    most = math.ldexp(2 - 2.0 ** (-23 if largest == 127 else -52), largest)
    sub, low, far = math.ldexp(1, least), math.ldexp(1, tiny), largest * 2 // 3
    at = math.ldexp
    return [(at(3, far), at(4, far)), (at(-3, -far), at(4, -far)), (at(-0.75, largest), at(-1, largest - 2)), (most, -most),
            (-most, sub), (sub, most), (2 * sub, sub), (-sub, 3 * sub), (sub, 0.0), (low, -sub), (-1.5 * low, 0.75 * low),
            (3.25 * low, low), (1.0, sub), (-sub, -1.0), (-1.0, 0.0), (-1.0, -0.0), (0.0, -2.0), (math.cos(1), math.sin(1)),
            (0.6, -0.8), (top + 0.2, 0.75), (top + 0.25, -2.3), (1 - top, 2.0), (-top - 9, 1.0), (-3.5, 6.0), (0.0, 0.5),
            (at(1.5, largest // 3), at(-1, largest // 3)), (at(-1.5, -largest // 3), at(1, 3 - largest // 3))]


def number(value):
    z = mpmath.mpc(value)
    return f"{float(z.real).hex()} {float(z.imag).hex()}"


with open(__file__.replace("table.py", "complex.txt"), "w") as out:
    for name, round_to, sizes in (("f32", f32, (127, -126, -149, 88.72)), ("f64", float, (1023, -1022, -1074, 709.78))):
        most, sub = math.ldexp(1, sizes[0]), math.ldexp(1, sizes[2])
        numbers = [(round_to(a), round_to(b)) for a, b in points(*sizes)]
        for i, raw in enumerate(numbers):
            other = numbers[(i * 7 + 3) % len(numbers)]
            z, w = mpmath.mpc(*raw), mpmath.mpc(*other)
            for function, (value, slope) in FUNCTIONS.items():
                y, d = value(z, w, raw), slope(z, w, raw)
                # Sums on the way to a quotient or a product may be four times as large as what comes out.
                whole = function in ("size", "angle", "root", "log_z", "exp_z")
                parts = [abs(p) for v in (y, d) for p in (mpmath.mpc(v).real, mpmath.mpc(v).imag)]
                if max(parts) < (most * (2 - 2**-20) if whole else most / 4):
                    given = (x.hex() for x in raw + other)        # with the signs of zeros
                    print(name, function, *given, number(y), number(d), file=out)
