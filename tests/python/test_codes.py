"""Inputs and params that are stored in 8 bits: from PyTorch, NumPy and JAX, against the same cell in f32 on the values that the
codes stand for."""

import copy
import io

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
    with pytest.raises(cellc.TypeMismatch, match="W is float32; this instance stores it as float8_e4m3fn beside W_scale"):
        coded({**params, "W": values["W"]}, x, z)


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
