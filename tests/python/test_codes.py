"""Inputs and params that are stored in 8 bits: from PyTorch, NumPy and JAX, against the same cell in f32 on the values that the
codes stand for."""

import copy
import io
import re

import numpy
import pytest
import torch

import cellc

SPEC = """cell coded {
    dim D, H;
    input  x[D] : e4m3, z[H];
    param  W[H, D] : e4m3_32 ~ xavier, R[H, H] : e5m2 ~ orthogonal, b[H];
    state  h[H];
    output y[H];
    h'[i] = tanh(sum[d] W[i,d] * x[d] + sum[j] R[i,j] * h[j] + b[i] + z[i]);
    y[i] = h'[i];
}
"""
PLAIN = SPEC.replace(" : e4m3_32", "").replace(" : e4m3", "").replace(" : e5m2", "")
TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def close(a, b, within=2e-6):
    assert a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=within * float(b.detach().abs().max())), float((a - b).detach().abs().max())


@pytest.fixture(scope="module")
def cells():
    return cellc.load(SPEC, cuda=False), cellc.load(PLAIN, cuda=False)


def pair(cells, D=64, H=7):
    torch.manual_seed(3)
    coded, plain = cells[0](D=D, H=H), cells[1](D=D, H=H)
    plain.W.data = cellc.decode(*cellc.encode(coded.W, "e4m3", 32))
    plain.R.data = cellc.decode(*cellc.encode(coded.R, "e5m2"))
    plain.b.data = coded.b.detach().clone()
    return coded, plain


@pytest.mark.parametrize("dtype, largest, relative, below, absolute",
                         [("e4m3", 448, 2**-4, 2**-6, 2**-10), ("e5m2", 57344, 2**-3, 2**-14, 2**-17)])
@pytest.mark.parametrize("block", [0, 32, 128])
def test_encoding_is_within_its_bound(dtype, largest, relative, below, absolute, block):
    torch.manual_seed(1)
    x = torch.randn(5, 256) * torch.exp2(torch.randint(-20, 20, (5, 256)).float())
    x[2] = 0
    codes, scales = cellc.encode(x, dtype, block)
    assert codes.dtype == TYPES[dtype] and codes.shape == x.shape and scales.dtype == torch.float32
    assert scales.shape == ((5, 256 // block) if block else ())
    each = scales.repeat_interleave(block, -1) if block else scales.expand_as(x)
    bound = torch.where(x.abs() < below * each, absolute * each, relative * x.abs()) * (1 + 2**-20) + 2**-22 * x.abs()
    assert bool(((cellc.decode(codes, scales) - x).abs() <= bound).all())
    assert float(codes.float().abs().max()) == largest


def test_a_call_computes_with_what_codes_stand_for(cells):
    coded, plain = pair(cells)
    assert coded.W.dtype == torch.float32 and coded.W.requires_grad and coded.W_scale.shape == (7, 2)
    x, z = torch.randn(3, 11, 64, requires_grad=True), torch.randn(3, 11, 7)
    value = cellc.decode(*cellc.encode(x)).requires_grad_()
    y, h = coded(x, z)
    want, last = plain(value, z)
    close(y, want)
    close(h[0], last[0])
    cotangent = torch.randn_like(y)
    y.backward(cotangent)
    want.backward(cotangent)
    close(x.grad, value.grad)
    for name in ("W", "R", "b"):
        close(coded.get_parameter(name).grad, plain.get_parameter(name).grad)


def test_codes_are_taken_as_they_are(cells):
    coded, plain = pair(cells)
    assert coded.encode() is coded
    assert coded.W.dtype == torch.float8_e4m3fn and coded.R.dtype == torch.float8_e5m2 and not coded.W.requires_grad
    x, scale = cellc.encode(torch.randn(2, 5, 64))
    coded.x_scale.copy_(scale)
    z = torch.randn(2, 5, 7, requires_grad=True)
    y, _ = coded(x, z)
    want, _ = plain(cellc.decode(x, scale), z)
    close(y, want)
    got, = torch.autograd.grad(y.sum(), z)
    close(got, torch.autograd.grad(want.sum(), z)[0])
    first, _ = coded.step(x[:, 0], z[:, 0])
    close(first.detach(), want[:, 0].detach())
    again = copy.deepcopy(coded)
    assert torch.equal(again(x, z)[0], y) and again.W.dtype == torch.float8_e4m3fn
    file = io.BytesIO()
    torch.save(coded.state_dict(), file)
    file.seek(0)
    other = cells[0](D=64, H=7).encode()
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x, z)[0], y)


def test_codes_stay_codes_where_a_module_changes_its_type(cells):
    coded = pair(cells)[0].encode()
    before = coded.W.clone(), coded.W_scale.clone()
    coded.to(torch.bfloat16)
    assert coded.b.dtype == torch.bfloat16 and coded.W.dtype == torch.float8_e4m3fn and coded.W_scale.dtype == torch.float32
    assert torch.equal(coded.W.view(torch.uint8), before[0].view(torch.uint8)) and torch.equal(coded.W_scale, before[1])
    y, _ = coded(torch.randn(1, 3, 64, dtype=torch.bfloat16), torch.randn(1, 3, 7, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16


def test_types_chosen_when_loaded():
    torch.manual_seed(2)
    GRU = cellc.load("gru", dtype="bf16", dtype_of={"weight_ih": "e4m3", "weight_hh": torch.float8_e5m2}, cuda=False)
    layer = GRU(D=16, H=8)
    x = torch.randn(2, 4, 16, dtype=torch.bfloat16, requires_grad=True)
    y, _ = layer(x)
    y.sum().backward()
    assert layer.weight_ih.grad.dtype == torch.bfloat16 and float(layer.weight_hh.grad.abs().max()) > 0
    kinds = {t.name: t.dtype for t in GRU.manifest.params}
    assert kinds["weight_ih"] == "e4m3" and kinds["weight_hh"] == "e5m2" and kinds["weight_ih_scale"] == "f32"
    with pytest.raises(cellc.SpecError, match="cell 'gru' has no input and no param of this name"):
        cellc.load("gru", dtype_of={"w": "e4m3"}, cuda=False)
    with pytest.raises(cellc.SpecError, match="a type is one of"):
        cellc.load("gru", dtype_of={"x": "e4m4"}, cuda=False)


def test_what_is_refused_says_why(cells):
    coded, _ = pair(cells)
    z = torch.randn(1, 2, 7)
    codes, _ = cellc.encode(torch.randn(1, 2, 64))
    with pytest.raises(cellc.TypeMismatch, match="x is float8_e4m3fn and requires a gradient, which would be rounded"):
        coded(codes.requires_grad_(), z)
    with pytest.raises(cellc.TypeMismatch, match="x is float8_e5m2; this instance stores it as float8_e4m3fn"):
        coded(cellc.encode(torch.randn(1, 2, 64), "e5m2")[0], z)
    with pytest.raises(cellc.TypeMismatch, match="x is float64; .* Give that, as cellc.encode makes it, or float32"):
        coded(torch.randn(1, 2, 64, dtype=torch.float64), z)
    with pytest.raises(cellc.ShapeError, match="blocks of 32 do not divide the last axis"):
        cellc.encode(torch.randn(3, 40), "e4m3", 32)
    with pytest.raises(cellc.TypeMismatch, match="wanted e4m3 or e5m2"):
        cellc.encode(torch.randn(3, 40), "bf16")


def test_compiled_calls_encode_too(cells):
    coded, _ = pair(cells)
    x, z = torch.randn(2, 3, 64), torch.randn(2, 3, 7)
    traced = torch.compile(coded, backend="eager", fullgraph=True)
    want = coded(x, z)[0]
    got = traced(x, z)[0]
    assert torch.equal(got, want)


def test_numpy(cells):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    coded, plain = cellc.load(SPEC, framework="numpy"), cellc.load(PLAIN, framework="numpy")
    params = coded.init(4, D=64, H=7)
    assert params["W"].dtype == ml_dtypes.float8_e4m3fn and params["W_scale"].shape == (7, 2)
    values = {"W": params["W"].astype("float32") * params["W_scale"].repeat(32, -1),
              "R": params["R"].astype("float32") * params["R_scale"], "b": params["b"]}
    assert 0.5 < numpy.abs(values["R"] @ values["R"].T).max() < 1.3
    x = numpy.random.default_rng(1).standard_normal((2, 5, 64)).astype(ml_dtypes.float8_e4m3fn)
    z = numpy.ones((2, 5, 7), "float32")
    params["x_scale"] = numpy.float32(0.25)
    y, _, pull = coded.vjp(params, x, z)
    want, _, plain_pull = plain.vjp(values, x.astype("float32") * 0.25, z)
    numpy.testing.assert_allclose(y, want, rtol=0, atol=2e-6)
    got, expected = pull(numpy.ones_like(y)), plain_pull(numpy.ones_like(y))
    assert got.params["W"].dtype == numpy.float32
    for name in values:
        numpy.testing.assert_allclose(got.params[name], expected.params[name], rtol=0,
                                      atol=2e-6 * numpy.abs(expected.params[name]).max())
    numpy.testing.assert_allclose(got.inputs[0], expected.inputs[0], rtol=0, atol=2e-6 * numpy.abs(expected.inputs[0]).max())
    with pytest.raises(cellc.TypeMismatch, match="W is int32; this instance stores it as float8_e4m3fn beside W_scale: give codes of "
                                                 "that type, or numbers of float32"):
        coded({**params, "W": values["W"].astype("int32")}, x, z)
    with pytest.raises(cellc.TypeMismatch, match="x is float64; this instance stores it as float8_e4m3fn"):
        coded(params, x.astype("float64"), z)
    del params["W_scale"]
    with pytest.raises(cellc.TypeMismatch, match="W_scale is missing; W is given as float8_e4m3fn, which stands beside it"):
        coded(params, x, z)
    with pytest.raises(cellc.TypeMismatch, match="W_scale is missing"):
        coded.decode(params)


def functions(framework):
    """(the coded cell, the plain one, an array of numbers made here, the type of a result)"""
    make = numpy.asarray
    if framework == "jax":
        make = pytest.importorskip("jax").numpy.asarray
    else:
        pytest.importorskip("ml_dtypes")
    return cellc.load(SPEC, framework=framework), cellc.load(PLAIN, framework=framework), make


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_functions_encode_numbers(framework):
    """encode makes the codes that PyTorch's encode makes; a call with numbers is the call with their codes, to the bit."""
    coded, plain, make = functions(framework)
    torch.manual_seed(7)
    numbers = {"W": torch.randn(7, 64), "R": torch.randn(7, 7), "b": torch.randn(7)}
    numbers["W"][3], numbers["W"][5, :32] = 0, numbers["W"][5, :32] * 1e-30
    x, z = torch.randn(2, 5, 64), torch.randn(2, 5, 7)
    params = {name: make(t.numpy()) for name, t in numbers.items()}
    codes = coded.encode({**params, "x_scale": make(numpy.float32(cellc.encode(x)[1]))})
    for name, kind, block in (("W", "e4m3", 32), ("R", "e5m2", 0)):
        want, scale = cellc.encode(numbers[name], kind, block)
        assert (numpy.asarray(codes[name]).view("uint8") == want.view(torch.uint8).numpy()).all()
        assert (numpy.asarray(codes[name + "_scale"]) == scale.numpy()).all()
    if framework == "jax":
        import jax
        traced = jax.jit(coded.encode)(params)
        assert all(numpy.asarray(traced[name]).tobytes() == numpy.asarray(codes[name]).tobytes() for name in traced)
    values = coded.decode(codes)
    assert sorted(values) == ["R", "W", "b", "x_scale"] and values["W"].dtype == "float32"
    assert (numpy.asarray(values["W"]) == cellc.decode(*cellc.encode(numbers["W"], "e4m3", 32)).numpy()).all()
    again = coded.encode(coded.encode(codes))
    assert all((numpy.asarray(again[name]) == numpy.asarray(codes[name])).all() for name in codes)
    x_codes = make(cellc.encode(x)[0].float().numpy()).astype(codes["W"].dtype)
    y, state = coded(params, make(x.numpy()), make(z.numpy()))
    want, last = coded(codes, x_codes, make(z.numpy()))
    assert (numpy.asarray(y) == numpy.asarray(want)).all() and (numpy.asarray(state[0]) == numpy.asarray(last[0])).all()
    first, _ = coded.step(params, make(x.numpy())[:, 0], make(z.numpy())[:, 0])
    numpy.testing.assert_allclose(first, plain.step({name: values[name] for name in "WRb"}, make(
        cellc.decode(*cellc.encode(x[:, 0])).numpy()), make(z.numpy())[:, 0])[0], rtol=0, atol=2e-6)


def straight(params, x, z, weights):
    """In PyTorch, step by step: y, and gradients of what codes stand for."""
    W, R, x = (cellc.decode(*cellc.encode(t, kind, block)).requires_grad_() for t, kind, block in (
        (params["W"], "e4m3", 32), (params["R"], "e5m2", 0), (x, "e4m3", 0)))
    b, h, rows = params["b"].clone().requires_grad_(), torch.zeros(x.shape[0], 7), []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ W.T + h @ R.T + b + z[:, t])
        rows.append(h)
    y = torch.stack(rows, 1)
    return y, torch.autograd.grad((y * weights).sum(), [W, R, b, x])


@pytest.mark.parametrize("reserve", [None, "least", "between"])
@pytest.mark.parametrize("framework", ["torch", "numpy", "jax", "jax jit"])
def test_gradients_of_numbers(framework, reserve):
    """Numbers get the gradients of what their codes stand for, computed again in pieces or not."""
    torch.manual_seed(8)
    params = {"W": torch.randn(7, 64) / 8, "R": torch.randn(7, 7) / 3, "b": torch.randn(7)}
    x, z, weights = torch.randn(2, 40, 64), torch.randn(2, 40, 7), torch.randn(2, 40, 7)
    want = straight(params, x, z, weights)
    budget = {None: {}, "least": {"reserve": None}, "between": {"reserve": None}}[reserve]
    if framework == "torch":
        cell = cellc.load(SPEC, cuda=False)(D=64, H=7)
        for name, value in params.items():
            cell.get_parameter(name).data = value.clone()
        leaf = x.clone().requires_grad_()
        call = lambda **more: cell(leaf, z, **more)[0]
    else:
        coded, _, make = functions(framework.split()[0])
        arrays = {name: make(t.numpy()) for name, t in params.items()}, make(x.numpy()), make(z.numpy())
        call = lambda **more: coded.vjp(*arrays, **more) if framework == "numpy" else pull_of_jax(coded, arrays, framework, **more)
    if budget:
        with pytest.raises(cellc.ShapeError) as error:
            call(reserve=1)
        words = re.search(r"the least is (\d+), and with (\d+)", str(error.value))
        least, whole = int(words[1]), int(words[2])
        assert least < whole
        budget["reserve"] = least if reserve == "least" else (least + whole) // 2
    made = call(**budget)
    if framework == "torch":
        got = made, torch.autograd.grad((made * weights).sum(), [*(cell.get_parameter(name) for name in "WRb"), leaf])
    elif framework == "numpy":
        pulled = made[2](weights.numpy())
        got = made[0], [*(pulled.params[name] for name in "WRb"), pulled.inputs[0]]
    else:
        y, pull = made
        by_params, by_x = pull(make(weights.numpy()))
        assert sorted(by_params) == ["R", "W", "b"]
        got = y, [*(by_params[name] for name in "WRb"), by_x]
    for one, other in zip([got[0], *got[1]], [want[0], *want[1]]):
        close(torch.tensor(numpy.asarray(one.detach() if framework == "torch" else one)), other.detach(), 4e-6)


def pull_of_jax(coded, arrays, framework, **more):
    """(y, the gradients of params and x by a cotangent of y)"""
    import jax
    params, x, z = arrays
    run = lambda params, x: coded(params, x, z, **more)[0]
    return jax.vjp(jax.jit(run) if framework.endswith("jit") else run, params, x)


def test_jax_trains_numbers_in_16_bits():
    """Params of f32 beside a cell of bf16: rounded to bf16, then to codes; gradients come back in f32. Codes have none."""
    jax = pytest.importorskip("jax")
    cell = cellc.load("gru", framework="jax", dtype="bf16", dtype_of={"weight_ih": "e4m3_32", "x": "e4m3"})
    params = cell.decode(cell.init(jax.random.key(0), D=32, H=8))
    assert params["weight_ih"].dtype == "bfloat16" and "weight_ih_scale" not in params and "x_scale" in params
    masters = {name: a.astype("float32") for name, a in params.items() if name != "x_scale"}
    x = jax.random.normal(jax.random.key(1), (2, 5, 32)).astype("bfloat16")
    loss = lambda params: (cell(params, x)[0].astype("float32") ** 2).sum()
    before, grads = jax.jit(jax.value_and_grad(loss))(masters)
    assert all(g.dtype == "float32" and float(abs(g).max()) > 0 for g in grads.values())
    for _ in range(5):
        masters = jax.tree.map(lambda p, g: p - 0.05 * g, masters, jax.grad(loss)(masters))
    assert float(loss(masters)) < 0.8 * float(before)
    codes = cell.encode(masters)
    assert codes["weight_ih"].dtype == "float8_e4m3fn" and codes["weight_ih_scale"].shape == (24, 1)
    assert float(cell({**codes, "x_scale": params["x_scale"]}, x)[0].astype("float32").sum()) == float(
        cell(masters, x)[0].astype("float32").sum())
    mapped = jax.vmap(lambda x: cell(masters, x)[0])(x[:, None])
    assert bool((mapped[:, 0] == jax.numpy.stack([cell(masters, row[None])[0][0] for row in x])).all())


def test_jax():
    jax = pytest.importorskip("jax")
    coded, plain = cellc.load(SPEC, framework="jax"), cellc.load(PLAIN, framework="jax")
    params = coded.init(jax.random.key(0), D=64, H=7)
    values = {"W": params["W"].astype("float32") * params["W_scale"].repeat(32, -1),
              "R": params["R"].astype("float32") * params["R_scale"], "b": params["b"]}
    x = jax.random.normal(jax.random.key(1), (2, 5, 64)).astype("float8_e4m3fn")
    z = jax.numpy.ones((2, 5, 7))

    def loss(cell, params, x):
        return lambda z, b: cell({**params, "b": b}, x, z)[0].sum()

    got = jax.value_and_grad(loss(coded, params, x), (0, 1))(z, params["b"])
    want = jax.value_and_grad(loss(plain, values, x.astype("float32")), (0, 1))(z, params["b"])
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        numpy.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * float(abs(b).max()))
