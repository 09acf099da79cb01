"""NumPy: cells as functions of arrays, with neither PyTorch nor JAX."""

import subprocess
import sys

import numpy as np
import pytest

import cellc

CLOSE = {"rtol": 1e-11, "atol": 1e-12}       # a few hundred roundings of 1e-16, of numbers around 1


def lstm(dtype="f64"):
    cell = cellc.load("lstm", framework="numpy", dtype=dtype)
    return cell, cell.init(0, D=5, H=7)


def x_of(*shape, dtype="float64"):
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def by_hand(p, x, h, c):
    """LSTM as its definition has it."""
    y = []
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ p["weight_ih"].T + p["bias_ih"] + h @ p["weight_hh"].T + p["bias_hh"], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        y.append(h)
    return np.stack(y, 1), h, c


def test_is_what_the_definition_says():
    cell, p = lstm()
    p["bias_ih"] = x_of(28)
    x, start = x_of(2, 9, 5), (x_of(2, 7), -x_of(2, 7))
    y, final = cell(p, x, state=start)
    z, h, c = by_hand(p, x, *start)
    for a, b in zip((y, final.h, final.c), (z, h, c)):
        np.testing.assert_allclose(a, b, **CLOSE)
    np.testing.assert_allclose(cell(p, x)[0], by_hand(p, x, np.zeros((2, 7)), np.zeros((2, 7)))[0], **CLOSE)


def test_steps_and_pieces():
    cell, p = lstm()
    x = x_of(2, 6, 5)
    y, final = cell(p, x)
    first, state = cell(p, x[:, :4])
    np.testing.assert_allclose(first, y[:, :4], **CLOSE)
    for t in (4, 5):
        out, state = cell.step(p, x[:, t], state=state)
        np.testing.assert_allclose(out, y[:, t], **CLOSE)
    np.testing.assert_allclose(state.c, final.c, **CLOSE)


@pytest.mark.parametrize("name, settings", [("lstm", {}), ("e79", {"N": 4, "bias": "input"}), ("s5", {}),
                                            ("gated_delta", {"N": 3, "V": 4})])
def test_gradients(name, settings):
    """Of every param, input and initial state, by central differences along random directions."""
    cell = cellc.load(name, framework="numpy", dtype="f64", settings=settings)
    m, g = cell.manifest, np.random.default_rng(3)
    dims = dict(zip(m.dims, (3, 4, 5)))
    p = cell.init(1, **{k: dims[k] for k in cell.needs_sizes()})

    def draw(t):
        shape = t.shape({**dims, "B": 2, "T": 5})
        z = 0.5 * g.normal(size=shape)
        return z + 0.5j * g.normal(size=shape) if t.dtype == "c128" else z

    p = {t.name: p[t.name] + 0.1 * draw(t) for t in m.params}
    x, state = [draw(t) for t in m.inputs], [draw(t) for t in m.states]

    def loss(p, x, state):
        y, final = cell(p, *x, state=state or None)
        return sum((w.conj() * v).real.sum() for w, v in zip(weights, [*cell_outputs(y), *final]))

    def cell_outputs(y):
        return (y,) if isinstance(y, np.ndarray) else tuple(y)

    y, final, pull = cell.vjp(p, *x, state=state or None)
    weights = [draw(t) for t in (*m.outputs, *m.states)]
    found = pull(weights[:len(m.outputs)], weights[len(m.outputs):] or None)
    given = [*p.values(), *x, *state]
    gradients = [*found.params.values(), *found.inputs, *found.state]
    n, k = len(p), len(p) + len(x)
    for i, (value, gradient) in enumerate(zip(given, gradients)):
        along = g.normal(size=value.shape) + (1j * g.normal(size=value.shape) if np.iscomplexobj(value) else 0)

        def at(e):
            moved = [v + e * along if j == i else v for j, v in enumerate(given)]
            return loss(dict(zip(p, moved[:n])), moved[n:k], moved[k:])

        # eps^2 / 6 times a third derivative of some 1e2 is 1e-8 with eps = 1e-5; rounding over eps is 1e-10
        assert (at(1e-5) - at(-1e-5)) / 2e-5 == pytest.approx((gradient.conj() * along).real.sum(), rel=1e-6, abs=1e-6)


def test_final_states_that_are_not_wanted():
    cell, p = lstm()
    x = x_of(2, 3, 5)
    y, state, pull = cell.vjp(p, x)
    z, none, other = cell.vjp(p, x, final_state=False)
    assert none is None and cell(p, x, final_state=False)[1] is None
    np.testing.assert_array_equal(y, z)
    for name, gradient in pull(np.ones_like(y)).params.items():
        np.testing.assert_array_equal(gradient, other(np.ones_like(y)).params[name])


def test_what_is_left_out_is_zero():
    cell, p = lstm()
    x = x_of(2, 4, 5)
    y, final, pull = cell.vjp(p, x)
    found = pull(np.ones_like(y))
    assert found.state == (None, None) and found.inputs[0].shape == x.shape
    zeros = pull(np.ones_like(y), [np.zeros((2, 7)), None])
    for name in p:
        np.testing.assert_array_equal(found.params[name], zeros.params[name])
    assert all((value == 0).all() for value in pull().params.values())


@pytest.mark.parametrize("dtype, bound", [("f32", 1e-5), ("f16", 5e-3), ("bf16", 4e-2)])
def test_types(dtype, bound):
    """Against f64: some ten roundings of outputs that are at most 1."""
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes")
    cell, p = lstm(dtype)
    assert {v.dtype for v in p.values()} == {cell.dtypes[dtype]}
    x = x_of(2, 4, 5).astype(cell.dtypes[dtype])
    y, final = cell(p, x)
    assert y.dtype == cell.dtypes[dtype] and final.h.dtype == np.float32
    exact, _ = lstm()[0]({k: v.astype("float64") for k, v in p.items()}, x.astype("float64"))
    np.testing.assert_allclose(y.astype("float64"), exact, atol=bound)
    wide, _ = cell({k: v.astype("float32") for k, v in p.items()}, x)       # params are converted
    np.testing.assert_array_equal(wide, y)


def test_bf16_without_ml_dtypes():
    program = ("import sys; sys.modules['ml_dtypes'] = None; import cellc\n"
               "cellc.load('lstm', framework='numpy', dtype='bf16')")
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "BackendError: lstm: NumPy has no bfloat16; install ml_dtypes, or load the cell with dtype=" in out.stderr


def test_strides_and_places():
    cell, p = lstm()
    x = x_of(4, 2, 5)
    y, _ = cell(p, np.ascontiguousarray(x.swapaxes(0, 1)))
    for other in (x.swapaxes(0, 1), x[:, ::-1].swapaxes(0, 1)[::-1], x.swapaxes(0, 1).astype(">f8")):
        np.testing.assert_array_equal(cell(p, other)[0], y)
    odd = np.empty(x.size * 8 + 8, np.uint8)[8:][:x.size * 8].view("f8").reshape(2, 4, 5)
    odd[...] = x.swapaxes(0, 1)
    np.testing.assert_array_equal(cell(p, odd)[0], y)
    before = {k: v.copy() for k, v in p.items()}
    cell.vjp(p, x.swapaxes(0, 1))[2](np.ones_like(y))
    assert all((p[k] == before[k]).all() for k in p)


def test_params_without_axes():
    """A step of training makes NumPy's scalars of them, which are taken again."""
    cell = cellc.load("e43", framework="numpy", dtype="f64", cuda=None)
    params = cell.init(0, **{name: 3 for name in cell.needs_sizes()})
    x = x_of(2, 4, 3)
    _, _, pull = cell.vjp(params, x)
    y, _ = cell(params, x)
    gradients = pull(np.ones_like(y)).params
    after = {name: value - 0.1 * gradients[name] for name, value in params.items()}
    assert isinstance(after["l"], np.generic)
    z, _ = cell(after, x)
    assert np.sum(z) < np.sum(y)


def test_integers_and_no_inputs():
    table = cellc.load("embedding", framework="numpy", dtype="f64")
    p, tokens = table.init(2, V=4, D=3), np.array([[0, 3, 1]])
    y, _, pull = table.vjp(p, tokens)
    np.testing.assert_array_equal(y, p["weight"][tokens])
    found = pull(np.ones_like(y))
    assert found.inputs == (None,) and found.params["weight"].sum(1).tolist() == [3, 3, 0, 3]
    for far, dtype in ((2**32 + 1, "int64"), (-2**31 - 1, "int64"), (2**32 - 1, "uint32"), (2**63, "uint64")):
        with pytest.raises(TypeError, match=f"embedding: id has the number {far}, which int32 does not hold"):
            table(p, np.array([[far, 1]], dtype))
    with pytest.raises(TypeError, match="id is float64; this instance stores it as int32"):
        table(p, tokens.astype(float))
    cell = cellc.load("cell count { dim N = 2; state h[N]; output y[N]; h'[i] = h[i] + 1; y[i] = h'[i]; }",
                      framework="numpy")
    assert cell({}, batch=1, steps=3)[0].tolist() == [[[1, 1], [2, 2], [3, 3]]]


def test_errors():
    cell, p = lstm()
    for call, kind, message in [
            (lambda: cell(p, x_of(2, 3, 6)), ValueError, r"weight_ih has shape \[28, 5\]; wanted \[4\*H, D\]"),
            (lambda: cell(p, x_of(2, 3, 5), x_of(1)), ValueError, "lstm: 2 inputs were given; wanted 1: x"),
            (lambda: cell(p, x_of(2, 3, 5, dtype="float32")), TypeError, "x is float32; this instance stores it as "),
            (lambda: cell(p, [[[1.0]]]), TypeError, "x is a list; wanted an array"),
            (lambda: cell([], x_of(2, 3, 5)), TypeError, "params are a list; wanted a dict of weight_ih"),
            (lambda: cell({**p, "w": 1}, x_of(2, 3, 5)), TypeError, "there is no param w; there is weight_ih"),
            (lambda: cell({}, x_of(2, 3, 5)), TypeError, "weight_ih, weight_hh, bias_ih, bias_hh is missing"),
            (lambda: cell.init(0, D=3), ValueError, r"the size of H, as in params = lstm.init\(seed, H=64\)"),
            (lambda: cell.vjp(p, x_of(2, 3, 5))[2](x_of(2, 3, 5)), ValueError,
             r"the cotangent of y has shape \[2, 3, 5\]; wanted \[2, 3, 7\], as y has"),
            (lambda: cell.vjp(p, x_of(2, 3, 5))[2](1.0), TypeError, "the cotangents are a float; wanted an array, or a sequence, of y"),
            (lambda: cell.vjp(p, x_of(2, 3, 5))[2]([[1.0]]), TypeError, "the cotangent of y is a list; wanted an array"),
            (lambda: cell.step(p, x_of(2, 5), final_state=False), TypeError, "a step takes no final_state; calls of all steps do"),
            (lambda: cellc.load("lstm", framework="numpy", cuda=True), RuntimeError, "in the host's memory"),
            (lambda: cellc.op("lstm", framework="numpy"), TypeError, "load.* gives a function already"),
            (lambda: cellc.load("lstm", framework="tf"), TypeError, "framework is 'tf'; wanted torch or jax or numpy")]:
        with pytest.raises(kind, match=message):
            call()


def test_all_steps_are_carried():
    cell = cellc.load("cell sums { dim N; input x[N]; output y[N]; y[i] = sum[w:T] (1 + w) * x[i; t - w]; }",
                      framework="numpy", dtype="f64")
    x = x_of(2, 5, 3)
    whole, _, pull = cell.vjp({}, x)
    _, state = cell({}, x[:, :2])
    y, final, pull_second = cell.vjp({}, x[:, 2:], state=state, t0=2)
    np.testing.assert_allclose(y, whole[:, 2:], **CLOSE)
    np.testing.assert_allclose(final.x_history, x)
    into = x_of(2, 5, 3)
    into[:, :2] = 0
    given = pull_second(into[:, 2:]).state.x_history
    np.testing.assert_allclose(given, pull(into).inputs[0][:, :2], **CLOSE)


def test_first_values():
    cell = cellc.load("cell i { dim N; input x[N]; param A[N,N] ~ orthogonal, B[N] ~ normal(2, 0.1), C[N,N] ~ eye, "
                      "D[N] ~ uniform(3, 4), E[N] ~ ones, F[3*N,N]; output y[N]; y[i] = x[i] + B[i] + D[i] + E[i] + "
                      "sum[j] (A[i,j] + C[i,j]) * x[j] + sum[k, j] F[k,j] * x[j]; }", framework="numpy", dtype="f64")
    p, again = cell.init(5, N=64), cell.init(np.random.default_rng(5), N=64)
    assert all((p[k] == again[k]).all() for k in p) and list(p) == list("ABCDEF")
    np.testing.assert_allclose(p["A"] @ p["A"].T, np.eye(64), atol=1e-13)
    assert abs(p["B"].mean() - 2) < 0.1 and 3 <= p["D"].min() < p["D"].max() <= 4
    assert (p["C"] == np.eye(64)).all() and (p["E"] == 1).all()
    assert 0.9 < np.abs(p["F"]).max() / np.sqrt(6 / 256) <= 1


def test_alone():
    """With neither PyTorch nor JAX, and what is said of PyTorch then."""
    program = ("import sys; sys.modules['torch'] = sys.modules['jax'] = None\n"
               "import numpy, cellc\n"
               "lstm = cellc.load('lstm', framework='numpy')\n"
               "print(lstm(lstm.init(0, D=2, H=3), numpy.zeros((1, 2, 2), 'f'))[0].shape)\n"
               "cellc.load('lstm')\n")
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout == "(1, 2, 3)\n"
    assert "ImportError: cellc: PyTorch is not there" in out.stderr and "'numpy'" in out.stderr
    assert "Warning" not in out.stderr


WHOLE = """cell whole {
    dim N;
    input  x[N], a : i32, b : i32, c : i32;
    output y, z, q, r, s;
    y = sum[i:N] (i == 16777217 ? x[i] : 0);
    z = t > 16777216 ? 1 : 0;
    q = real(div(a * b * 2, c));
    r = real(mod(a * 4294967296 + 1, 1000));
    s = real(mod(a * b * 2, c));
}
"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_whole_numbers_are_no_real_numbers(tmp_path, dtype):
    path = tmp_path / "whole.cell"
    path.write_text(WHOLE)
    cell = cellc.load(path, framework="numpy", dtype=dtype)
    least, real = -2**31, {"f32": "float32", "f64": "float64"}[dtype]

    def call(x, a, b, c, t0):
        return cell({}, x.astype(real), *(np.array([k], "int32") for k in (a, b, c)), t0=t0)[0]

    x = np.zeros((1, 1, 16777218))
    x[..., 16777216:] = 5, 2
    out = call(x, [1], [1], [1], 16777217)       # 2^24 + 1
    assert out.y.item() == 2 and out.z.item() == 1
    out = call(np.ones((1, 5, 1)), [1, 2, 3, least, 7], [1, 2, 3, least, 5], [0, -3, 2, -1, -1], 16777212)
    np.testing.assert_array_equal(out.z[0], [0, 0, 0, 0, 0])
    np.testing.assert_array_equal(out.r[0], [297, 593, 889, 193, 73])
    # 2^62 * 2 goes round to -2^63, and so does the quotient of that by -1.
    np.testing.assert_array_equal(out.q[0], [0, -3, 9, -2.0**63, -70])
    np.testing.assert_array_equal(out.s[0], [0, -1, 0, 0, 0])


STEPS = """cell steps {
    dim N, H;
    input  x[N, H], id : i32;
    output y[N], z[N], w[N], g[N];
    fn slope(u) = grad(u^3, u);
    fn before(u)[i] = u[i; t - 1];
    y[i] = x[i, 0] + slope(i);
    z[i] = before(x[:, id])[i];
    w[i] = before(x[:, t % 2])[i];
    loss = sum[i] x[i, 0]^2 * x[i, 0; t];
    g[i] = grad(loss, x[i, 0]);
}
"""


def test_slopes_of_whole_numbers_and_slices_of_earlier_steps(tmp_path):
    path = tmp_path / "steps.cell"
    path.write_text(STEPS)
    cell = cellc.load(path, framework="numpy", dtype="f64")
    x, ids = np.arange(18.0).reshape(1, 3, 3, 2), np.array([[1, 0, 1]], "int32")
    x[0, 0, :, 0] = 1, 2, 3
    out, _ = cell({}, x, ids)
    np.testing.assert_array_equal(out.y[0, 0], [1, 5, 15])
    np.testing.assert_array_equal(out.z[0], [[0, 0, 0], x[0, 0, :, 1], x[0, 1, :, 0]])
    np.testing.assert_array_equal(out.w[0], [[0, 0, 0], x[0, 0, :, 0], x[0, 1, :, 1]])
    np.testing.assert_array_equal(out.g, 2 * x[..., 0] ** 2)


REAL, COMPLEX = ("f32", "bf16", "f16", "f64", None), ("c64", "c128", "complex")
ROLES = "cell roles {{ dim N; input {inputs}; param {params}; state h[N]; state g[N] : complex; output {outputs};\n" \
    "h'[i] = h[i] + {reals}; g'[i] = g[i] + {complexes}; {equations} }}"


def roles():
    """A cell whose sums have whole values: x_k is an input of type k, p_k a param, y_k an output."""
    def declared(name):
        return ", ".join(f"{name}{k}[N]" + (f" : {kind}" if kind else "") for k, kind in enumerate(REAL + COMPLEX))

    def terms(places):
        return " + ".join(f"p{k}[i] * x{k}[i] + 2 * x{k}[i; t - 1]" for k in places)

    n, both = len(REAL), range(len(REAL + COMPLEX))
    return ROLES.format(inputs=declared("x"), params=declared("p"), outputs=declared("y"), reals=terms(both[:n]),
                        complexes=terms(both[n:]),
                        equations=" ".join(f"y{k}[i] = {'h' if k < n else 'g'}'[i] + x{k}[i];" for k in both))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_types_that_are_not_the_arithmetic_s(dtype):
    """Every role in every type, of whole numbers that all types have: nothing is rounded."""
    pytest.importorskip("ml_dtypes")
    cell = cellc.load(roles(), framework="numpy", dtype=dtype)
    g, many = np.random.default_rng(2), range(len(REAL + COMPLEX))
    B, T, N = 2, 3, 3

    def draw(k, *shape):
        z = g.integers(-2, 3, shape).astype("float64")
        return z + 1j * g.integers(-2, 3, shape) if k >= len(REAL) else z

    x, dy = [draw(k, B, T, N) for k in many], [draw(k, B, T, N) for k in many]
    p, start = {f"p{k}": draw(k, N) for k in many}, [draw(0, B, N), draw(9, B, N)]
    before = [draw(k, B, 1, N) for k in many]
    kinds = [cell.dtypes[t.dtype] for t in cell.manifest.inputs]
    assert [kinds[k] for k in (0, 1, 2, 3, 4, 5, 6)] == [cell.dtypes[t] for t in ("f32", "bf16", "f16", "f64", dtype,
                                                                                 "c64", "c128")]
    given = ({name: a.astype(kind) for (name, a), kind in zip(p.items(), kinds)}, *(a.astype(t) for a, t in zip(x, kinds)))
    state = [a.astype(cell.dtypes[t.dtype]) for a, t in zip(start + before, cell.manifest.states)]
    y, final, pull = cell.vjp(*given, state=state, t0=1)
    terms = [p[f"p{k}"] * x[k] + 2 * np.concatenate([before[k], x[k][:, :-1]], 1) for k in many]
    h = [start[j][:, None] + np.cumsum(sum(terms[:5] if j == 0 else terms[5:]), 1) for j in (0, 1)]
    for k in many:
        np.testing.assert_array_equal(y[k].astype(dy[k].dtype), h[k >= 5] + x[k])
        np.testing.assert_array_equal(final[2 + k].astype(dy[k].dtype), x[k][:, -1:])
    for j in (0, 1):
        np.testing.assert_array_equal(final[j], h[j][:, -1])

    found = pull([a.astype(t) for a, t in zip(dy, kinds)])
    later = [np.cumsum(sum(dy[:5] if j == 0 else dy[5:])[:, ::-1], 1)[:, ::-1] for j in (0, 1)]
    for k in many:
        d = later[k >= 5]
        behind = np.concatenate([d[:, 1:], np.zeros((B, 1, N))], 1)
        for name, got, right in (("x", found.inputs[k], dy[k] + p[f"p{k}"].conj() * d + 2 * behind),
                                 ("p", found.params[f"p{k}"], (x[k].conj() * d).sum((0, 1))),
                                 ("history", found.state[2 + k], 2 * d[:, :1])):
            np.testing.assert_array_equal(got.astype(right.dtype), right, err_msg=f"{name}{k}")
    np.testing.assert_array_equal(found.state[0], later[0][:, 0])
    np.testing.assert_array_equal(found.state[1], later[1][:, 0])


@pytest.mark.parametrize("dtype, init, message", [
    ("f32", "const(1e39)", r"W starts as const\(1e\+39\); 1e\+39 is beyond what f32 holds"),
    ("f16", "const(2000 * D)", r"with D = 40, 80000 is beyond what f16 holds, 65504"),
    ("f32", "normal(1e39)", r"1e\+39 is beyond what f32 holds"),
    ("f32", "uniform(2e38)", r"4e\+38 is beyond what f32 holds")])
def test_first_values_that_the_type_does_not_hold(dtype, init, message):
    """Infinity is a first value where the spec says so, not where a number is too large."""
    spec = f"cell held {{ dim D; input x[D]; param W[D] ~ {init}, low[D] ~ const(-inf); output y[D]; y[i] = max(W[i], low[i]) + x[i]; }}"
    with pytest.raises(cellc.ShapeError, match=message):
        cellc.load(spec, framework="numpy", dtype=dtype).init(0, D=40)
    assert np.isinf(cellc.load(spec, framework="numpy", dtype="f64").init(0, D=40)["low"]).all()


def test_results_that_no_memory_holds():
    spec = "cell count { dim N = 2; state n[N]; output y[N]; n'[i] = n[i] + 1; y[i] = n'[i]; }"
    with pytest.raises(cellc.ShapeError, match=r"y would have shape \[1099511627776, 1099511627776, 2\], more than"):
        cellc.load(spec, framework="numpy")({}, batch=1 << 40, steps=1 << 40)
