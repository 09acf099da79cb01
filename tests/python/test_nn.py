"""cellc.nn against torch.nn: results and gradients in f64, forms of input, state_dicts, errors; Block around cells of all
kinds."""

import copy
import io
import itertools
import pickle

import pytest
import torch

import cellc
from cellc import nn

B, T, D, H = 3, 7, 5, 4


def pair(kind, **options):
    torch.manual_seed(1)
    theirs = getattr(torch.nn, kind)(D, H, **options).double()
    ours = getattr(nn, kind)(D, H, **options).double()
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    return theirs, ours


def flat(value):
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return [value.data]
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in flat(v)]


def compare(theirs, ours, x, hx=None):
    """Outputs, final states and all gradients, with a cotangent for each; relative to the size of each."""
    found = []
    for layer in (theirs, ours):
        data = x.data if isinstance(x, torch.nn.utils.rnn.PackedSequence) else x
        leaf = data.detach().clone().requires_grad_()
        given = x._replace(data=leaf) if data is not x else leaf
        states = None if hx is None else tuple(s.detach().clone().requires_grad_() for s in flat(hx))
        y, final = layer(given, states if states is None or len(states) > 1 else states[0])
        assert type(final) is type(theirs(given, states if states is None or len(states) > 1 else states[0])[1])
        torch.manual_seed(2)
        sum((t * torch.randn(t.shape, dtype=t.dtype)).sum() for t in flat((y, final))).backward()
        found.append(flat((y, final)) + [leaf.grad] + [s.grad for s in states or ()]
                     + [p.grad for _, p in sorted(layer.named_parameters())])
        layer.zero_grad()
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found):
        assert a.shape == b.shape and (a - b).abs().max() <= 1e-12 * (1 + a.abs().max())


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("layers,both,first,bias", list(itertools.product([1, 3], *[[False, True]] * 3)))
def test_as_torch(kind, layers, both, first, bias):
    theirs, ours = pair(kind, num_layers=layers, bidirectional=both, batch_first=first, bias=bias)
    x = torch.randn(*((B, T) if first else (T, B)), D).double()
    rows = layers * (2 if both else 1)
    hx = tuple(torch.randn(rows, B, H).double() for _ in range(ours.kinds))
    compare(theirs, ours, x)
    compare(theirs, ours, x, hx)
    compare(theirs, ours, torch.randn(T, D).double(), tuple(h[:, 0] for h in hx))
    assert repr(ours) == repr(theirs)


def test_projection():
    theirs, ours = pair("LSTM", num_layers=2, bidirectional=True, proj_size=2, batch_first=True)
    hx = torch.randn(4, B, 2).double(), torch.randn(4, B, H).double()
    compare(theirs, ours, torch.randn(B, T, D).double(), hx)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("lengths,sorts", [([7, 5, 1], True), ([2, 7, 3], False), ([4, 4, 4], True)])
@pytest.mark.parametrize("first", [False, True])
def test_packed(kind, lengths, sorts, first):
    theirs, ours = pair(kind, num_layers=2, bidirectional=True, batch_first=first)
    x = torch.randn(*((B, T) if first else (T, B)), D).double()
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=sorts)
    hx = tuple(torch.randn(4, B, H).double() for _ in range(ours.kinds))
    compare(theirs, ours, packed)
    compare(theirs, ours, packed, hx)
    a, b = theirs(packed)[0], ours(packed)[0]
    assert torch.equal(a.batch_sizes, b.batch_sizes)
    assert (a.sorted_indices is None) == (b.sorted_indices is None)


def test_dropout():
    ours = nn.LSTM(D, H, num_layers=2, dropout=0.5, batch_first=True)
    x = torch.randn(B, T, D)
    torch.manual_seed(3)
    one = ours(x)[0]
    torch.manual_seed(3)
    assert torch.equal(one, ours(x)[0]) and not torch.equal(one, ours(x)[0])
    ours.eval()
    assert torch.equal(ours(x)[0], ours(x)[0])
    theirs = torch.nn.LSTM(D, H, num_layers=2, dropout=0.5, batch_first=True).eval()
    theirs.load_state_dict(ours.state_dict())
    assert torch.allclose(theirs(x)[0], ours(x)[0], atol=1e-5)


@pytest.mark.parametrize("dtype,limit", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_types(dtype, limit):
    torch.manual_seed(1)
    theirs, ours = torch.nn.GRU(D, H, batch_first=True), nn.GRU(D, H, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    x, hx = torch.randn(B, T, D), torch.randn(1, B, H)
    y, final = ours.to(dtype)(x.to(dtype), hx.to(dtype))
    assert y.dtype == final.dtype == dtype
    assert (y.float() - theirs(x, hx)[0]).abs().max() < limit          # values below 1: an ulp is 2^-8 or 2^-11 of them


def test_errors_are_torchs():
    theirs, ours = torch.nn.LSTM(D, H, batch_first=True), nn.LSTM(D, H, batch_first=True)
    x = torch.randn(B, T, D)
    for layer in (theirs, ours):
        with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 3, 4\), got \[1, 2, 4\]"):
            layer(x, (torch.zeros(1, 2, H), torch.zeros(1, 3, H)))
        with pytest.raises(ValueError, match="2D or 3D"):
            layer(x[None])
    with pytest.raises(cellc.ShapeError):
        ours(torch.randn(B, T, D + 1))
    with pytest.raises(TypeError):
        ours(x, torch.zeros(1, 3, H))
    with pytest.raises(ValueError, match="only supported for LSTM"):
        nn.GRU(D, H, proj_size=2)


def test_copies_and_compile():
    ours = nn.LSTM(D, H, num_layers=2, batch_first=True)
    x = torch.randn(B, T, D)
    y = ours(x)[0]
    assert torch.equal(copy.deepcopy(ours)(x)[0], y) and torch.equal(pickle.loads(pickle.dumps(ours))(x)[0], y)
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    other = torch.nn.LSTM(D, H, num_layers=2, batch_first=True)
    other.load_state_dict(torch.load(file))
    assert torch.allclose(other(x)[0], y, atol=1e-5)
    assert torch.allclose(torch.compile(ours, backend="eager", fullgraph=True)(x)[0], y)


@pytest.mark.parametrize("cell,options,sizes", [
    ("delta", {"N": 8, "V": 8}, {"H": 2}), ("gru", {}, {}), ("e79", {"N": 8}, {}), ("hgrn", {}, {}), ("mamba2", {"P": 4, "N": 8}, {}),
    ("mlstm", {}, {}), ("e88", {"N": 8, "V": 8}, {"H": 3}), ("layernorm", {}, {})])
@pytest.mark.parametrize("conv", [False, True])
def test_block(cell, options, sizes, conv):
    torch.manual_seed(1)
    cls = cellc.load(cell, **options)
    block = nn.Block(cls, 16, conv=conv, **sizes)
    x = torch.randn(2, 6, 16, requires_grad=True)
    y, state = block(x)
    assert y.shape == x.shape
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in block.parameters()) and x.grad.abs().sum() > 0
    with torch.no_grad():
        first, between = block(x[:, :3])
        rest, _ = block(x[:, 3:], between)
        assert torch.allclose(torch.cat([first, rest], 1), y, atol=1e-5)
        between = None
        for t in range(6):
            one, between = block.step(x[:, t], between)
            assert torch.allclose(one, y[:, t], atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("to", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("cell", ["delta", "gru"])
def test_block_types(cell, dtype, to):
    """In the type that the block has; a cell that was loaded in 16 bits keeps to these."""
    torch.manual_seed(1)
    block = nn.Block(cellc.load(cell, dtype=dtype, **({"N": 8, "V": 8} if cell == "delta" else {})), 16, conv=True).to(to)
    if dtype == "bf16" and to == torch.float64:
        block = block.float()                            # beside 16 bits params are in f32 at most
    x = torch.randn(2, 5, 16).to(next(block.parameters()).dtype)
    y, _ = block(x)
    y.float().square().sum().backward()
    assert y.dtype == x.dtype and all(p.grad.isfinite().all() for p in block.parameters())


def test_block_of_places():
    """Inputs of whole numbers are given by name."""
    cls = cellc.load("""cell kept { dim D; input x[D]; input gone : i32; state h[D]; output y[D];
                        h'[i] = (gone == 1 ? 0 : h[i]) + x[i]; y[i] = h'[i]; }""")
    block, gone = nn.Block(cls, 8), torch.zeros(2, 4, dtype=torch.int32)
    x = torch.randn(2, 4, 8)
    gone[:, 2] = 1
    assert torch.allclose(block(x, gone=gone)[0][:, 2:], block(x[:, 2:], gone=gone[:, 2:])[0], atol=1e-6)
    with pytest.raises(cellc.ShapeError, match="gone"):
        block(x)


def test_block_options():
    cls = cellc.load("delta", N=8, V=8)
    plain = nn.Block(cls, 16, H=2, gate=False, head_norm=False, activations={"b": torch.tanh})
    assert plain.gate is None and plain(torch.randn(1, 3, 16))[0].shape == (1, 3, 16)
    assert nn.Block(cls, 16).sizes["H"] == 2                # outputs of 2 heads of 8 are as wide as the stream
    with pytest.raises(cellc.ShapeError, match="no run-time dim 'Q'"):
        nn.Block(cls, 16, Q=2)
    with pytest.raises(cellc.TypeMismatch, match="no real input 'beta'"):
        nn.Block(cls, 16, activations={"beta": torch.sigmoid})
    with pytest.raises(cellc.TypeMismatch, match="wanted a class"):
        nn.Block("delta", 16)
