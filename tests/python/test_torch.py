"""Cells against PyTorch's own: the same weights and inputs give the same outputs, states and gradients."""

import pytest
import torch
import torch.nn.functional as F

import cellc

torch.manual_seed(1)
# Both sides sum at most 64 products of numbers around 1 in f64: differences are a few hundred roundings of 1e-16.
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def recurrent(kind, name):
    """A cell and PyTorch's module of the same weights."""
    theirs = getattr(torch.nn, kind)(5, 7, batch_first=True, dtype=torch.float64)
    ours = cellc.load(name, dtype=torch.float64)(D=5, H=7)
    with torch.no_grad():
        for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(ours, n).copy_(getattr(theirs, n + "_l0"))
    return ours, theirs


def gradients(loss, tensors):
    return torch.autograd.grad(loss, tensors)


@pytest.mark.parametrize("kind, name", [("LSTM", "lstm"), ("GRU", "gru")])
@pytest.mark.parametrize("batch, steps", [(1, 1), (3, 2), (2, 17)])
def test_recurrent(kind, name, batch, steps):
    ours, theirs = recurrent(kind, name)
    x = torch.randn(batch, steps, 5, dtype=torch.float64, requires_grad=True)
    start = [torch.randn(batch, 7, dtype=torch.float64, requires_grad=True) for _ in ours.instance.manifest.states]
    y, final = ours(x, state=start)
    given = tuple(s[None] for s in start)
    z, last = theirs(x, given if kind == "LSTM" else given[0])
    last = last if kind == "LSTM" else (last,)
    torch.testing.assert_close(y, z, **CLOSE)
    for a, b in zip(final, last):
        torch.testing.assert_close(a, b[0], **CLOSE)
    # Outputs and final states count with weights of their own, so that neither hides behind the other.
    w = [torch.randn_like(t) for t in (y, *final)]
    ours_loss = sum((a * b).sum() for a, b in zip((y, *final), w))
    theirs_loss = sum((a * b).sum() for a, b in zip((z, *[s[0] for s in last]), w))
    names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    a = gradients(ours_loss, [x, *start, *[getattr(ours, n) for n in names]])
    b = gradients(theirs_loss, [x, *start, *[getattr(theirs, n + "_l0") for n in names]])
    for p, q in zip(a, b):
        torch.testing.assert_close(p, q, **CLOSE)


@pytest.mark.parametrize("normal", ["none", "gamma"])
def test_complex_states(normal):
    """S5 as PyTorch computes it with complex tensors, and all of its gradients, by PyTorch's convention."""
    ours = cellc.load("s5", dtype="f64", normal=normal)(D=3, P=4)
    p = dict(ours.named_parameters())
    x = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    start = torch.randn(2, 4, dtype=torch.complex128, requires_grad=True)
    y, (final,) = ours(x, state=[start])
    decay = torch.exp(torch.complex(-torch.exp(p["nu"]), p["theta"]))
    scale = torch.sqrt(1 - decay.abs() ** 2) if normal == "gamma" else 1
    h, out = start, []
    for t in range(5):
        h = decay * h + scale * (x[:, t].to(torch.complex128) @ p["B"].T)
        out.append((h @ p["C"].T).real + p["skip"] * x[:, t])
    z = torch.stack(out, 1)
    torch.testing.assert_close(y, z, **CLOSE)
    torch.testing.assert_close(final, h, **CLOSE)
    v, w = torch.randn_like(y), torch.randn_like(final)
    losses = [(a * v).sum() + (b * w.conj()).real.sum() for a, b in ((y, final), (z, h))]
    over = [x, start, *p.values()]
    for a, b in zip(gradients(losses[0], over), gradients(losses[1], over)):
        torch.testing.assert_close(a, b, **CLOSE)


def test_complex_linear():
    """Also of a conjugate that PyTorch has not yet computed."""
    ours = cellc.load("complex_linear", dtype="f64")(D=5, F=3)
    x = torch.randn(2, 4, 5, dtype=torch.complex128, requires_grad=True)
    with torch.no_grad():
        ours.b.copy_(torch.randn_like(ours.b))
    y, _ = ours(x.conj())
    z = F.linear(x.conj(), ours.W, ours.b)
    torch.testing.assert_close(y, z, **CLOSE)
    g = torch.randn_like(y)
    over = [x, ours.W, ours.b]
    for a, b in zip(torch.autograd.grad(y, over, g), torch.autograd.grad(z, over, g)):
        torch.testing.assert_close(a, b, **CLOSE)


def test_layer_norm():
    ours = cellc.load("layernorm", dtype="f64")(D=6)
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        ours.weight.normal_()
        ours.bias.normal_()
    y, state = ours(x)
    z = F.layer_norm(x, (6,), ours.weight, ours.bias)
    assert state == ()
    torch.testing.assert_close(y, z, **CLOSE)
    g = torch.randn_like(y)
    for p, q in zip(gradients((y * g).sum(), [x, ours.weight, ours.bias]),
                    gradients((z * g).sum(), [x, ours.weight, ours.bias])):
        torch.testing.assert_close(p, q, **CLOSE)


def test_causal_attention():
    ours = cellc.load("causal_attention", dtype="f64", N=4, V=5)()
    q, k = (torch.randn(2, 6, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.randn(2, 6, 3, 5, dtype=torch.float64, requires_grad=True)
    y, _ = ours(q, k, v)
    z = F.scaled_dot_product_attention(*[t.transpose(1, 2) for t in (q, k, v)], is_causal=True).transpose(1, 2)
    torch.testing.assert_close(y, z, **CLOSE)
    g = torch.randn_like(y)
    for p, r in zip(gradients((y * g).sum(), [q, k, v]), gradients((z * g).sum(), [q, k, v])):
        torch.testing.assert_close(p, r, **CLOSE)


def test_attention_with_slopes_and_documents(tmp_path):
    """Scores that fall with the distance at a learned rate, within documents: those of PyTorch with a mask of these."""
    cell = tmp_path / "slopes.cell"
    cell.write_text("""cell slopes {
        dim H;
        const N = 4, V = 5;
        input q[H, N], k[H, N], v[H, V], document : i32;
        param slope[H];
        output y[H, V];
        s[h:H, w:T] = document[; t - w] == document ? sum[i] q[h,i] * k[h,i; t - w] / sqrt(N) - slope[h] * w : -inf;
        p[h,w] = softmax[w] s[h,w];
        y[h,c] = sum[w] p[h,w] * v[h,c; t - w];
    }""")
    ours = cellc.load(cell, dtype="f64")(H=3)
    with torch.no_grad():
        ours.slope.normal_()
    q, k = (torch.randn(2, 7, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.randn(2, 7, 3, 5, dtype=torch.float64, requires_grad=True)
    document = torch.tensor([[0, 0, 1, 1, 1, 0, 2], [3, 3, 3, 3, 3, 3, 3]], dtype=torch.int32)
    y, _ = ours(q, k, v, document)
    back = torch.arange(7)[:, None] - torch.arange(7)[None]
    seen = (back >= 0) & (document[:, :, None] == document[:, None, :])
    bias = torch.where(seen[:, None], -ours.slope[None, :, None, None] * back, -torch.inf)
    z = F.scaled_dot_product_attention(*[t.transpose(1, 2) for t in (q, k, v)], attn_mask=bias).transpose(1, 2)
    torch.testing.assert_close(y, z, **CLOSE)
    g = torch.randn_like(y)
    of = [q, k, v, ours.slope]
    for p, r in zip(gradients((y * g).sum(), of), gradients((z * g).sum(), of)):
        torch.testing.assert_close(p, r, **CLOSE)


def is_as_in_torch(cell, q, k, v, more, bias, scale=1):
    """y of the cell and its gradients are those of PyTorch's attention with what `bias` adds to scores. A step
    with nothing to attend to gives 0: PyTorch's, which then has no number, is given the step's own key, and what
    comes of it is left out. A gradient has differences of dy . v, of some roundings of 1e-16, times the scale."""
    steps = q.shape[1]
    y, _ = cell(q, k, v, *more)
    assert torch.isfinite(y).all()
    some = torch.isfinite(bias).any(-1, keepdim=True)
    bias = torch.where(some | ~torch.eye(steps, dtype=torch.bool), bias, 0.0)
    shared = q.shape[2] // k.shape[2]
    wide = [t.repeat_interleave(shared, 2) for t in (k, v)]
    z = F.scaled_dot_product_attention(*[t.transpose(1, 2) for t in (q, *wide)], attn_mask=bias,
                                       scale=scale if scale > 1 else None)
    z = torch.where(some, z, 0.0).transpose(1, 2)
    torch.testing.assert_close(y, z, **CLOSE)
    g = torch.randn_like(y)
    for p, r in zip(gradients((y * g).sum(), [q, k, v]), gradients((z * g).sum(), [q, k, v])):
        assert torch.isfinite(p).all()
        torch.testing.assert_close(p, r, rtol=CLOSE["rtol"], atol=CLOSE["atol"] * (1 + scale / 100))


def drawn_for_attention(steps, heads=2, shared=1):
    q = torch.randn(2, steps, heads * shared, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, steps, heads, 4, dtype=torch.float64, requires_grad=True)
    v = torch.randn(2, steps, heads, 5, dtype=torch.float64, requires_grad=True)
    return q, k, v


def causal(steps):
    back = torch.arange(steps)[:, None] - torch.arange(steps)[None]
    return torch.where(back >= 0, 0.0, -torch.inf).double()


@pytest.mark.parametrize("steps", (1, 63, 64, 65, 129))
@pytest.mark.parametrize("shared", (1, 3))
def test_attention_at_the_edges_of_tiles(steps, shared):
    ours = cellc.load("causal_attention", dtype="f64", N=4, V=5, G=shared)()
    is_as_in_torch(ours, *drawn_for_attention(steps, shared=shared), (), causal(steps))


@pytest.mark.parametrize("steps", (1, 64, 65))
def test_attention_to_nothing(tmp_path, steps):
    """Steps of document 0 see nothing, others those of lower documents."""
    cell = tmp_path / "lower.cell"
    cell.write_text("""cell lower {
        dim H;
        const N = 4, V = 5;
        input q[H, N], k[H, N], v[H, V], document : i32;
        output y[H, V];
        s[h:H, w:T] = document[; t - w] < document ? sum[i] q[h,i] * k[h,i; t - w] / sqrt(N) : -inf;
        p[h,w] = softmax[w] s[h,w];
        y[h,c] = sum[w] p[h,w] * v[h,c; t - w];
    }""")
    document = torch.randint(0, 3, (2, steps), dtype=torch.int32)
    lower = document[:, None, :, None] > document[:, None, None, :]
    bias = torch.where(lower, causal(steps), -torch.inf)
    is_as_in_torch(cellc.load(cell, dtype="f64")(), *drawn_for_attention(steps), (document,), bias)


@pytest.mark.parametrize("steps", (1, 64, 65))
def test_attention_with_scores_of_1e4(tmp_path, steps):
    """And with some of -inf: every third pair, and every pair of some steps."""
    cell = tmp_path / "bounds.cell"
    cell.write_text("""cell bounds {
        dim H;
        const N = 4, V = 5;
        input q[H, N], k[H, N], v[H, V];
        const input off;
        output y[H, V];
        s[h:H, w:T] = 1e4 * (sum[i] q[h,i] * k[h,i; t - w]) + (w % 3 == 1 ? -inf : off);
        p[h,w] = softmax[w] s[h,w];
        y[h,c] = sum[w] p[h,w] * v[h,c; t - w];
    }""")
    off = torch.where(torch.rand(2, steps, dtype=torch.float64) < 0.3, -torch.inf, 0.0).double()
    back = torch.arange(steps)[:, None] - torch.arange(steps)[None]
    bias = causal(steps) + torch.where(back % 3 == 1, -torch.inf, 0.0) + off[:, None, :, None]
    is_as_in_torch(cellc.load(cell, dtype="f64")(), *drawn_for_attention(steps), (off,), bias, scale=1e4)


def test_training_is_that_of_torch():
    """The same optimiser on both, from the same weights: the losses fall in step."""
    ours, theirs = recurrent("LSTM", "lstm")
    x, wanted = torch.randn(4, 9, 5, dtype=torch.float64), torch.randn(4, 9, 7, dtype=torch.float64).tanh()
    losses = []
    for module in (ours, theirs):
        optimiser = torch.optim.AdamW(module.parameters(), lr=3e-2)
        losses.append([])
        for _ in range(60):
            optimiser.zero_grad()
            loss = F.mse_loss(module(x)[0], wanted)
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < 0.8 * losses[0][0]
    # Adam divides by the root of a gradient squared, which multiplies roundings where a gradient is near 0.
    assert losses[0] == pytest.approx(losses[1], rel=1e-7)
