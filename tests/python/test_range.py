"""Values and gradients over the whole range of the arithmetic, through NumPy and the generated C: complex numbers whose
squares overflow or vanish, and what comes back to branches that are not taken."""

import numpy as np
import pytest

import cellc

COMPLEX = """
cell range {
    dim N;
    input  z[N] : complex, w[N] : complex;
    output size[N], angle[N];
    output inverse[N] : complex, quotient[N] : complex, root[N] : complex, log_z[N] : complex, square[N] : complex;
    output minus_two[N] : complex;
    size[i] = abs(z[i]);
    angle[i] = arg(z[i]);
    inverse[i] = 1 / z[i];
    quotient[i] = w[i] / z[i];
    root[i] = sqrt(z[i]);
    log_z[i] = log(z[i]);
    square[i] = z[i]^2;
    minus_two[i] = z[i]^-2;
}
"""

# Of numbers with more digits and a wider range: the value, and the derivative by z (of abs and arg: what the gradient is).
LONG = {
    "size": (lambda z, w: np.abs(z), lambda z, w: z / np.abs(z)),
    "angle": (lambda z, w: np.angle(z), lambda z, w: 1j * z / np.abs(z) / np.abs(z)),
    "inverse": (lambda z, w: 1 / z, lambda z, w: -1 / (z * z)),
    "quotient": (lambda z, w: w / z, lambda z, w: -w / z / z),
    "root": (lambda z, w: np.sqrt(z), lambda z, w: 1 / (2 * np.sqrt(z))),
    "log_z": (lambda z, w: np.log(z), lambda z, w: 1 / z),
    "square": (lambda z, w: z * z, lambda z, w: 2 * z),
    "minus_two": (lambda z, w: 1 / (z * z), lambda z, w: -2 / (z * z * z)),
}


def numbers(real, exponent, n=400):
    """Of all magnitudes, in all quadrants and with parts of one magnitude or of several."""
    rng = np.random.default_rng(7)
    size = 10.0 ** rng.uniform(-exponent, exponent, n)
    ratio = 10.0 ** (rng.uniform(-3, 3, n) * (np.arange(n) % 2))
    angle = rng.uniform(-np.pi, np.pi, n)
    z = size * (np.cos(angle) + 1j * np.sin(angle) * ratio)
    z[:6] = [3e25 + 4e25j, 3e-25 + 4e-25j, -3e30 + 4e30j, 3e-30 - 4e-30j, -5e-36 + 1e-37j, 1e37 - 1.2e38j]
    return z.astype(real)


@pytest.mark.parametrize("dtype, exponent", [("f32", 35), ("f64", 300)])
def test_complex_range(dtype, exponent):
    real, pairs = ("float32", "complex64") if dtype == "f32" else ("float64", "complex128")
    tiny, largest, eps = np.finfo(real).tiny, np.finfo(real).max, np.finfo(real).eps
    cell = cellc.load(COMPLEX, framework="numpy", dtype=dtype)
    z = numbers(pairs, exponent)
    w = (z * numbers("complex128", 1)[::-1]).astype(pairs)      # a quotient that overflows is infinite as a factor too
    y, _, pull = cell.vjp({}, z[None, None], w[None, None])
    x, u = z.astype("clongdouble"), w.astype("clongdouble")
    seen = 0
    with np.errstate(all="ignore"):
        for k, (name, (value, slope)) in enumerate(LONG.items()):     # in the order of the outputs
            seeds = [None] * len(LONG)
            seeds[k] = np.ones_like(y[k])
            got = y[k][0, 0], pull(tuple(seeds), None).inputs[0][0, 0]
            want = value(x, u), slope(x, u) if name in ("size", "angle") else np.conj(slope(x, u))
            for what, a, b in zip(("value", "gradient"), got, want):
                size = np.abs(b)
                inside = (size > 64 * tiny) & (size < largest / 64)
                error = np.where(inside, np.abs(a - b) / np.where(inside, size, 1), 0)
                worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
                assert error[worst] <= 16 * eps, f"{what} of {name} at {z[worst]}: {a[worst]}, wanted {b[worst]}"
                seen += int(inside.sum())
    assert seen > 3000


def test_examples():
    cell = cellc.load(COMPLEX, framework="numpy", dtype="f32")
    z = np.array([3e25 + 4e25j, 3e-25 + 4e-25j, 2], "complex64")[None, None]
    y, _, pull = cell.vjp({}, z, np.ones_like(z))
    assert np.allclose(y[0][0, 0], [5e25, 5e-25, 2], rtol=1e-6, atol=0)
    assert np.allclose(y[2][0, 0], [1.2e-26 - 1.6e-26j, 1.2e24 - 1.6e24j, 0.5], rtol=1e-6, atol=0)
    gradient = pull((np.ones_like(y[0]),) + (None,) * 7, None).inputs[0][0, 0]
    assert np.allclose(gradient, [0.6 + 0.8j, 0.6 + 0.8j, 1], rtol=1e-6, atol=0)


def test_exponential_beyond_its_real_part():
    text = "cell c { input z : complex; output y : complex; y = exp(z); }"
    cell = cellc.load(text, framework="numpy", dtype="f32")
    z = np.array([89.5 + 1.56j, 100 + 0j, -60 + 1j], "complex64")
    with np.errstate(all="ignore"):
        y, _, pull = cell.vjp({}, z[:, None])
        got = y if isinstance(y, np.ndarray) else y[0]
        want = np.exp(z.astype("complex128"))
    assert abs(got[0, 0].real - want[0].real) < 1e-5 * abs(want[0].real)
    assert np.isinf(got[1, 0].real) and got[1, 0].imag == 0
    assert abs(got[2, 0] - want[2]) < 1e-6 * abs(want[2])


NOT_TAKEN = """
cell not_taken {
    dim N;
    input  x[N], c[N], w[N];
    output a[N], b[N], d[N], e[N], f[N];
    r[i:N] = sqrt(x[i]);
    a[i] = c[i] > 0 ? r[i] : 3 * x[i];
    p[i:N] = x[i]^1.5;
    b[i] = c[i] > 0 ? p[i] : 3 * x[i];
    u[i:N] = 1 / (x[i] + 4);
    s[i:N] = sin(u[i]) * w[i] + cos(1 / (x[i] + 4));
    d[i] = c[i] > 0 ? s[i] : 3 * x[i];
    l[i:N] = log(x[i]);
    q[i:N] = tanh(l[i]) * w[i] + (softmax[i] l[i]);
    e[i] = c[i] > 0 ? q[i] : 3 * x[i];
    top = max[i] l[i];
    f[i] = c[i] > 0 ? top * w[i] + (prod[j] l[j]) : 3 * x[i];
}
"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_branches_that_are_not_taken(dtype):
    real = "float32" if dtype == "f32" else "float64"
    cell = cellc.load(NOT_TAKEN, framework="numpy", dtype=dtype)
    x, c, w = (np.full((1, 1, 3), v, real) for v in (-4, -1, 2))
    y, _, pull = cell.vjp({}, x, c, w)
    for k in range(5):
        assert (y[k] == -12).all()
        seeds = [None] * 5
        seeds[k] = np.ones_like(x)
        d_x, _, d_w = pull(tuple(seeds), None).inputs
        assert (d_x == 3).all() and (d_w == 0).all(), f"output {k}: {d_x}, {d_w}"


def test_remainder_by_a_small_number_in_a_branch_not_taken():
    cell = cellc.load("cell g { input x, c; output y; r = 5 % x; y = c > 0 ? r : 3 * x; }", framework="numpy")
    x = np.array([[1e-40]], "float32")              # 5 / x, which the slope towards x is made of, overflows
    _, _, pull = cell.vjp({}, x, -np.ones_like(x))
    assert pull(np.ones_like(x), None).inputs[0] == 3


@pytest.mark.parametrize("dtype, large", [("f32", 1e20), ("f64", 1e200)])
def test_gelu_of_large_numbers(dtype, large):
    cell = cellc.load("cell g { dim N; input x[N]; output y[N]; y[i] = gelu_tanh(x[i]); }", framework="numpy", dtype=dtype)
    x = np.array([[[large, -large]]], "float32" if dtype == "f32" else "float64")
    y, _, pull = cell.vjp({}, x)
    gradient = pull(np.ones_like(x), None).inputs[0]
    assert y[0, 0, 0] == x[0, 0, 0] and y[0, 0, 1] == 0
    assert (gradient == [[[1, 0]]]).all()


def test_whole_numbers_beyond_what_an_index_has():
    cell = cellc.load("""cell w {
            dim N = 268435456;
            input id : i32;
            output y, z;
            y = id + 281475010265088 == 16777217*16777217 ? 1 : 0;
            z = N*N + t > N*N + id ? 3 : 4;
        }""", framework="numpy")
    (y, z), _ = cell({}, np.array([[0, 1, 1]], "int32"))
    assert y.tolist() == [[0, 1, 1]] and z.tolist() == [[4, 4, 3]]


# What functions of one number are at minus infinity and at infinity: their limits, where they have one.
LIMITS = {
    "silu": (0, np.inf), "gelu": (0, np.inf), "gelu_tanh": (0, np.inf), "mish": (0, np.inf), "softplus": (0, np.inf),
    "logsigmoid": (-np.inf, 0), "sigmoid": (0, 1), "tanh": (-1, 1), "relu": (0, np.inf), "elu": (-1, np.inf),
    "leaky_relu": (-np.inf, np.inf), "hardtanh": (-1, 1), "softsign": (-1, 1), "erf": (-1, 1), "exp": (0, np.inf),
    "expm1": (-1, np.inf), "atan": (-np.pi / 2, np.pi / 2), "abs": (np.inf, np.inf), "sign": (-1, 1), "sinh": (-np.inf, np.inf),
    "cosh": (np.inf, np.inf), "floor": (-np.inf, np.inf), "ceil": (-np.inf, np.inf), "round": (-np.inf, np.inf),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_have_their_limits_at_infinity(dtype):
    spec = ("cell ends { dim N; input x[N]; output " + ", ".join(f"{f}_of[N]" for f in LIMITS) + "; "
            + " ".join(f"{f}_of[i] = {f}(x[i]);" for f in LIMITS) + " }")
    cell = cellc.load(spec, framework="numpy", dtype=dtype)
    x = np.array([[[-np.inf, np.inf, np.nan, -1e30, 1e30]]], "f4" if dtype == "f32" else "f8")
    values, _ = cell({}, x)
    for (name, wanted), y in zip(LIMITS.items(), values):
        assert np.allclose(y[0, 0, :2], wanted), (name, y)
        assert np.isnan(y[0, 0, 2]) and not np.isnan(y[0, 0, 3:]).any(), (name, y)
