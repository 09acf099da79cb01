"""Packed sequences in PyTorch and JAX: what holds them there, against each sequence alone."""

import sys
import warnings

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

import cellc

STEPS = [3, 0, 5, 1]


def starts_of(steps):
    return torch.tensor([0, *steps]).cumsum(0)


def rows(d=5, steps=STEPS, dtype=torch.float64):
    return torch.randn(sum(steps), d, dtype=dtype, requires_grad=True)


def pair(name, **sizes):
    """A packed module, and the same cell for one sequence, with the same params."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cellc.PerformanceWarning)
        settings = {"N": 4, "bias": "input"} if name == "e79" else {}
        packed = cellc.load(name, packed=True, dtype="f64", **settings)(**sizes)
    alone = cellc.load(name, dtype="f64", **settings)(**sizes)
    alone.load_state_dict(packed.state_dict())
    return packed, alone


def check(packed, alone, call, x, steps=STEPS):
    """call(x) of the packed module gives rows and states as calls with each sequence, and so are all gradients."""
    y, state = call(x)
    weight = torch.randn_like(y)
    (y * weight).sum().backward(retain_graph=True)
    sum((s * (1 + i)).sum() for i, s in enumerate(state)).backward()
    got = [x.grad.clone(), *[p.grad.clone() for p in packed.parameters()]]
    x.grad = None
    parts = x.split(steps)
    found = [alone(part.unsqueeze(0)) for part in parts]
    want = torch.cat([y[0] for y, _ in found])
    finals = [torch.cat([f[1][i] for f in found]) for i in range(len(state))]
    torch.testing.assert_close(y, want)
    for a, b in zip(state, finals):
        torch.testing.assert_close(a, b)
    ((want * weight).sum() + sum((s * (1 + i)).sum() for i, s in enumerate(finals))).backward()
    for a, b in zip(got, [x.grad, *[p.grad for p in alone.parameters()]]):
        torch.testing.assert_close(a, b)
    x.grad = None


CELLS = [("e79", {"D": 5}), ("lstm", {"D": 5, "H": 6}), ("mingru", {"D": 5, "H": 6}), ("conv4_silu", {"D": 5})]


@pytest.mark.parametrize("name, sizes", CELLS)
def test_cu_seqlens(name, sizes):
    packed, alone = pair(name, **sizes)
    check(packed, alone, lambda x: packed(x, starts_of(STEPS)), rows())
    check(packed, alone, lambda x: packed(x, cu_seqlens=starts_of(STEPS).int()), rows())


@pytest.mark.parametrize("name, sizes", CELLS[:2])
def test_packed_sequences(name, sizes):
    """Sorted or not; outputs are in the form of the input, states in the order of the sequences."""
    packed, alone = pair(name, **sizes)
    steps = [2, 5, 1, 5]
    x = rows(steps=steps)

    def call(x):
        sequence = pack_sequence(x.split(steps), enforce_sorted=False)
        y, state = packed(sequence)
        assert type(y) is type(sequence) and torch.equal(y.batch_sizes, sequence.batch_sizes)
        padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        assert lengths.tolist() == steps
        return torch.cat([row[:n] for row, n in zip(padded, lengths)]), state

    check(packed, alone, call, x, steps)
    ordered = torch.randn(2, 4, 5, dtype=torch.float64)
    y, _ = packed(pack_padded_sequence(ordered, [4, 2], batch_first=True))
    want = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0]
    torch.testing.assert_close(want[1, :2], alone(ordered[1:, :2])[0][0])


@pytest.mark.parametrize("name, sizes", CELLS[:2])
def test_nested_tensors(name, sizes):
    packed, alone = pair(name, **sizes)
    steps = [2, 5, 1]

    def call(x):
        nested = torch.nested.nested_tensor_from_jagged(x, starts_of(steps))
        y, state = packed(nested)
        assert y.is_nested and y.size(0) == 3 and (nested.sum(-1) + y.sum(-1)).is_nested      # of one ragged size
        return y.values(), state

    check(packed, alone, call, rows(steps=steps), steps)


@pytest.mark.parametrize("name, sizes", CELLS[:2])
def test_states_carry_over(name, sizes):
    """Two calls with pieces of each sequence, and steps behind them, are one call: gradients go back through the states."""
    packed, _ = pair(name, **sizes)
    steps, cut = [4, 2, 5], [1, 2, 3]
    x = rows(steps=steps)
    whole, final = packed(x, starts_of(steps))
    parts = x.split(steps)
    head, state = packed(torch.cat([p[:n] for p, n in zip(parts, cut)]), starts_of(cut))
    rest = [n - c for n, c in zip(steps, cut)]
    tail, state = packed(torch.cat([p[n:] for p, n in zip(parts, cut)]), starts_of(rest), state=state)
    for b, part in enumerate(whole.split(steps)):
        torch.testing.assert_close(part, torch.cat([head.split(cut)[b], tail.split(rest)[b]]))
    for a, b in zip(state, final):
        torch.testing.assert_close(a, b)
    (want,) = torch.autograd.grad(whole.sum() + sum(s.sum() for s in final), x)
    (got,) = torch.autograd.grad(head.sum() + tail.sum() + sum(s.sum() for s in state), x)
    torch.testing.assert_close(got, want)
    with torch.no_grad():
        one = torch.randn(3, 5, dtype=torch.float64)
        y, _ = packed.step(one, state=state)
        other, _ = packed(one, starts_of([1, 1, 1]), state=state)
    torch.testing.assert_close(y, other)


def test_what_is_refused():
    packed, _ = pair("e79", D=5)
    padded, _ = pair("lstm", D=5, H=6)
    x = rows().detach()
    for m in (packed, padded):
        for wrong in ([0, 3, 2, 8, 9], [1, 3, 3, 8, 9]):
            with pytest.raises(cellc.ShapeError, match="cu_seqlens"):
                m(x, torch.tensor(wrong))
        with pytest.raises(cellc.ShapeError, match="total"):
            m(x, torch.tensor([0, 3, 10]))
        with pytest.raises(cellc.TypeMismatch, match="a step takes a row of each sequence"):
            m.step(x, cu_seqlens=starts_of(STEPS))
        with pytest.raises(cellc.TypeMismatch, match="say themselves where their sequences begin"):
            m(pack_sequence([x]), cu_seqlens=starts_of(STEPS))
        with pytest.raises(cellc.TypeMismatch, match="layout torch.jagged"):
            m(torch.nested.nested_tensor([x[:2], x[2:]]))
    with pytest.raises(cellc.TypeMismatch, match="exclude each other"):
        cellc.load("e79", packed=True, lengths=True)
    with pytest.raises(cellc.TypeMismatch, match="loaded with packed=True takes it"):
        cellc.load("lstm", dtype="f64")(D=5, H=6)(pack_sequence([x]))


def test_what_is_said():
    """That rows are padded, once, and what such a module is."""
    program = "import warnings, cellc\nwarnings.simplefilter('always')\nfor i in range(2): cellc.load('gru', packed=True)"
    import subprocess
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr
    assert said.count("gru: packed sequences are padded to the longest, and rows of padding are computed") == 1
    packed, _ = pair("e79", D=5)
    assert "packed=True" in repr(packed)


def test_jax():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    jax.config.update("jax_enable_x64", True)
    packed = cellc.load("e79", framework="jax", packed=True, dtype="f64", N=4, bias="input")
    alone = cellc.load("e79", framework="jax", dtype="f64", N=4, bias="input")
    params = alone.init(jax.random.key(0), D=5)
    x, starts = jax.random.normal(jax.random.key(1), (9, 5), jnp.float64), jnp.asarray([0, 3, 3, 8, 9], jnp.int32)

    def each(params, x):
        found = [alone(params, x[None, a:b]) for a, b in zip([0, 3, 3, 8], [3, 3, 8, 9])]
        return (jnp.concatenate([y[0] for y, _ in found]), *[jnp.concatenate(s) for s in zip(*[s for _, s in found])])

    def together(params, x):
        y, state = packed(params, x, starts)
        return (y, *state)

    loss = lambda f: lambda p, x: sum((i + 1) * (v ** 2).sum() for i, v in enumerate(f(p, x)))
    for a, b in zip(jax.jit(together)(params, x), each(params, x)):
        assert jnp.allclose(a, b, atol=1e-12)
    got, want = (jax.grad(loss(f), argnums=(0, 1))(params, x) for f in (together, each))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        assert jnp.allclose(a, b, atol=1e-10)
    with pytest.raises(cellc.SpecError, match="cannot take cell lstm: packed sequences"):
        cellc.load("lstm", framework="jax", packed=True, schedule="steps", cuda=True)
