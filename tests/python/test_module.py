"""What a module of a cell is and does: params, shapes, types, autograd, torch.compile."""

import abc
import copy
import io
import math
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import checkpoint

import cellc
from cellc.ops import DTYPES


def lstm(dtype="f32", **options):
    torch.manual_seed(3)
    return cellc.load("lstm", dtype=dtype)(D=5, H=7, **options)


def x_of(*shape, dtype=torch.float32, requires_grad=False):
    torch.manual_seed(4)
    return torch.randn(*shape, dtype=dtype).requires_grad_(requires_grad)


def test_names_and_shapes():
    m = lstm()
    assert {k: tuple(v.shape) for k, v in m.state_dict().items()} == {
        "weight_ih": (28, 5), "weight_hh": (28, 7), "bias_ih": (28,), "bias_hh": (28,)}
    assert list(m.state_dict()) == [t["name"] for t in m.instance.manifest.data["tensors"] if t["kind"] == "param"]
    assert repr(m) == "lstm(D=5, H=7, dtype=f32)"
    assert repr(lstm(torch.float64, batch_first=False)) == "lstm(D=5, H=7, dtype=f64, batch_first=False)"
    backwards = cellc.load("e79", N=4, bias="input", reverse=True, lengths=True)(D=5)
    assert repr(torch.nn.Sequential(backwards)) == ("Sequential(\n  (0): e79(D=5, N=4, bias=input, dtype=f32, reverse=True, "
                                                    "lengths=True)\n)")
    for part in ("weight_hh [4*H, H] f32 ~ orthogonal", "state   c [B, H] f32", "c'[a] = f[a] * c[a] + i[a] * g[a];"):
        assert part in type(m).__doc__


def test_initial_values():
    m = lstm()
    assert m.bias_ih.abs().max() == 0
    assert 0 < m.weight_ih.abs().max() <= (6 / 33) ** 0.5
    torch.testing.assert_close(m.weight_hh.T @ m.weight_hh, torch.eye(7))
    fixed = cellc.load("e79", N=4)(D=3)
    assert (fixed.b_s_gate == 2).all() and (fixed.b_m_gate == 2.5).all()
    made = cellc.load("cell i { dim N; input x[N]; param a[N] ~ uniform(2, 3), b[N] ~ normal(5, 0.1), c[N,N] ~ eye, "
                      "d[N] ~ ones, e[N,N]; output y[N]; "
                      "y[i] = x[i] * a[i] + b[i] + d[i] + sum[j] (c[i,j] + e[i,j]) * x[j]; }")(N=50)
    assert 2 <= made.a.min() < made.a.max() <= 3
    assert 4.8 < made.b.mean() < 5.2 and 0.05 < made.b.std() < 0.2
    assert torch.equal(made.c, torch.eye(50)) and (made.d == 1).all()
    assert 0 < made.e.abs().max() <= (6 / 100) ** 0.5
    torch.manual_seed(3)
    again = cellc.load("lstm")(D=5, H=7)
    assert torch.equal(again.weight_ih, m.weight_ih)
    again.reset_parameters()
    assert not torch.equal(again.weight_ih, m.weight_ih)


STARTS = """cell starts {
    dim D, H, lambda, F;
    const gain = 2;
    input  x[D], u[F];
    param  W[H, D] ~ normal(1 / sqrt(H)), b[2*lambda] ~ uniform(gain / (lambda - 1));
    param  c ~ const(-log(H) / D^2 - gain * (D - 1) + min(H, 3)), d[H] ~ uniform(-H / D, D - 3), e ~ const(-inf);
    param  f ~ normal(rsqrt(D - F), 1 / F - 1 / 4);
    output y[H];
    y[i] = sum[d] W[i,d] * x[d] + sum[j:2*lambda] b[j] + (c + f) * u[0] + d[i] + exp(e);
}"""


@pytest.mark.parametrize("framework", ["torch", "numpy", "jax"])
def test_initial_values_of_sizes(framework):
    """Numbers that are made of dims of the run time, under names that are words of Python; and sizes that give none."""
    if framework == "jax":
        key = pytest.importorskip("jax").random.key(0)
    cell = cellc.load(STARTS, framework=framework)

    def make(**sizes):
        if framework == "torch":
            return {name: value.detach().numpy() for name, value in cell(**sizes).named_parameters()}
        return cell.init(key if framework == "jax" else 0, **sizes)

    sizes = {"D": 5, "H": 400, "lambda": 50, "F": 3}
    made = {name: np.asarray(value) for name, value in make(**sizes).items()}
    assert abs(made["W"].std() - 1 / 20) < 0.005 and made["W"].shape == (400, 5)
    assert 1.5 / 49 < abs(made["b"]).max() <= 2 / 49 and made["b"].min() < 0 < made["b"].max()
    assert abs(made["c"] - (-math.log(400) / 25 - 5)) < 1e-5 and made["e"] == -math.inf
    assert -80 <= made["d"].min() < -70 and 0 < made["d"].max() <= 2
    assert abs(made["f"] - 2 ** -0.5) < 6 / 12
    doc = cell.__doc__
    assert "normal(0, 1/sqrt(H))" in doc and "const(-log(H)/pow(D, 2) - 2*(D - 1) + min(H, 3))" in doc
    wrong = [({"lambda": 1}, r"b starts as uniform\(-\(2/\(lambda - 1\)\), 2/\(lambda - 1\)\); with lambda = 1, 2/0 is not"),
             ({"D": 2}, r"f starts as .*; with D = 2, F = 3, rsqrt\(-1\) is not a number"),
             ({"F": 4}, r"with D = 5, F = 4, its deviation is 0, which must be above 0"),
             ({"D": 1, "H": 1, "F": 4}, r"d starts as .*; with D = 1, H = 1, its range is empty: -1 is above -2")]
    for changed, message in wrong:
        with pytest.raises(cellc.ShapeError, match=message):
            make(**{**sizes, **changed})
    del sizes["F"]                                          # of no param's shape, but of its first value
    with pytest.raises(cellc.ShapeError, match="need the size of F"):
        make(**sizes)


def test_ranges_are_what_the_caller_promises():
    cell = cellc.load("cell walk { input x, dt in (0, 1]; param a in [0.5, inf) ~ ones; state n in (0, inf) = 1, m in reach; output y; "
                      "n' = n + dt; m' = x; y = a * x / n' + 0 * m; }")
    for line in ("input   dt [B, T] f32 in (0, 1]", "param   a [] f32 in [0.5, inf) ~ ones", "state   n [B] f32 in (0, inf)",
                 "state   m [B] f32 in reach"):
        assert line in cell.__doc__
    y, _ = cell()(torch.ones(1, 2), torch.full((1, 2), 3.0))            # which nothing checks
    torch.testing.assert_close(y, torch.tensor([[1 / 4, 1 / 7]]))


def test_state_dict_round_trip():
    m, other = lstm(), cellc.load("lstm")(D=5, H=7)
    file = io.BytesIO()
    torch.save(m.state_dict(), file)
    file.seek(0)
    x = x_of(2, 3, 5)
    assert not torch.equal(m(x)[0], other(x)[0])
    other.load_state_dict(torch.load(file))
    assert torch.equal(m(x)[0], other(x)[0])


def test_copies():
    m, x = lstm(), x_of(2, 3, 5)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert torch.equal(other(x)[0], m(x)[0])
        with torch.no_grad():
            other.weight_ih.zero_()
        assert not torch.equal(other(x)[0], m(x)[0])


class Wider(cellc.load("gru")):
    """What a user makes of a cell's class."""

    def forward(self, x):
        return 2 * super().forward(x)[0]


class Named(cellc.load("lstm")):
    """A class that a user made of one that was loaded."""


def test_classes_are_pickled():
    """Those that were loaded by what they were loaded with, a user's by its name."""
    cls = cellc.load("lstm")
    assert pickle.loads(pickle.dumps(cls)) is cls and copy.deepcopy(cls) is cls and copy.copy(cls) is cls
    assert pickle.loads(pickle.dumps([Named, cellc.module.Cell])) == [Named, cellc.module.Cell]
    assert type(pickle.loads(pickle.dumps(Named(D=5, H=7)))) is Named

    class Mixed(cls, abc.ABC):
        pass

    assert Mixed(D=5, H=7)(x_of(1, 2, 5))[0].shape == (1, 2, 7)


def test_copies_of_subclasses():
    m, x = Wider(D=5, H=7), x_of(2, 3, 5)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert type(other) is Wider and torch.equal(other(x), m(x))


def test_states_are_kept():
    """As what they are, by pickle and by torch.save, which by default loads only what it knows."""
    m, file = lstm(), io.BytesIO()
    with torch.no_grad():
        _, state = m(x_of(2, 3, 5))
        torch.save({"state": state}, file)
        file.seek(0)
        for other in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state), torch.load(file)["state"]):
            assert type(other) is type(state) and torch.equal(other.c, state.c)
            assert torch.equal(m(x_of(2, 3, 5), state=other)[0], m(x_of(2, 3, 5), state=state)[0])


def test_constants_are_buffers():
    m = cellc.load("batchnorm")(D=4)
    assert "running_mean" in dict(m.named_buffers()) and "running_mean" in m.state_dict()
    assert "running_mean" not in dict(m.named_parameters())


def test_meta_device():
    m = cellc.load("lstm")(D=5, H=7, device="meta")
    m.to_empty(device="cpu").reset_parameters()
    assert m.bias_ih.abs().max() == 0 and m(x_of(1, 2, 5))[0].isfinite().all()


def test_sequence_in_pieces():
    m, x = lstm(), x_of(2, 9, 5)
    whole, final = m(x)
    first, state = m(x[:, :4])
    second, state = m(x[:, 4:], state=state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(state.h, final.h)
    assert torch.equal(m(x, state={"h": torch.zeros(2, 7)})[0], whole)
    assert torch.equal(m(x, state=(None, torch.zeros(2, 7)))[0], whole)


def test_history_is_a_state():
    m = cellc.load("conv4_silu")(D=3)
    x = x_of(2, 6, 3)
    whole, _ = m(x)
    assert m.instance.State._fields == ("x_history",)
    _, state = m(x[:, :1])
    rest = []
    for t in range(1, 6):
        y, state = m.step(x[:, t], state=state)
        rest.append(y)
    torch.testing.assert_close(torch.stack(rest, 1), whole[:, 1:])


ATTENTION = """cell attention { dim N; input q[N], k[N], v[N]; output y[N];
    s[w:T] = sum[i] q[i] * k[i; t - w]; p[w] = softmax[w] s[w]; y[i] = sum[w] p[w] * v[i; t - w]; }"""


def test_decoding_over_all_steps():
    m = cellc.load(ATTENTION, dtype="f64")()
    torch.manual_seed(3)
    q, k, v = x = [torch.randn(2, 7, 5, dtype=torch.float64).requires_grad_() for _ in range(3)]
    whole, final = m(*x)
    score = (q @ k.mT).masked_fill(torch.ones(7, 7).triu(1) > 0, -torch.inf)
    torch.testing.assert_close(whole, score.softmax(-1) @ v)
    assert m.instance.State._fields == ("k_history", "v_history")
    torch.testing.assert_close(final.k_history, k)           # step s at place s
    with pytest.raises(cellc.ShapeError, match="needs t0, the number of steps that the state has seen"):
        m.step(*[i[:, 0] for i in x], state=final)

    first, state = m(*[i[:, :3] for i in x])                 # pieces, with gradients through what is carried
    second, state = m(*[i[:, 3:] for i in x], state=state, t0=3)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(state.v_history, v)
    into = torch.randn_like(whole)
    for a, b in zip(torch.autograd.grad(torch.cat([first, second], 1), x, into), torch.autograd.grad(whole, x, into)):
        torch.testing.assert_close(a, b)

    with torch.no_grad():
        state, room = None, cellc.load(ATTENTION, dtype="f64")(history=16)
        for t in range(7):                                   # the caches' room grows by one a step
            y, state = m.step(*[i[:, t] for i in x], state=state, t0=t)
            torch.testing.assert_close(y, whole[:, t])
            assert state.k_history.shape[1] == t + 1
        state = None
        for t in range(7):                                   # or is there from the first step on
            y, state = room.step(*[i[:, t] for i in x], state=state, t0=t)
            torch.testing.assert_close(y, whole[:, t])
        assert state.k_history.shape[1] == 16 and not state.k_history[:, 7:].any()


def test_integers_are_carried():
    m = cellc.load("""cell bigrams { dim V, D; input id : i32, x[D]; param E[V, D] ~ normal(1); output y[D];
        y[d] = x[d] * (E[id, d] + 0.5 * E[id[; t - 1], d]); }""", dtype="f64")(V=11, D=3)
    ids, x = torch.tensor([[4, 0, 10, 7], [1, 1, 2, 9]]), x_of(2, 4, 3, dtype=torch.float64)
    whole, final = m(ids, x)
    before = m.E[torch.cat([torch.zeros(2, 1, dtype=ids.dtype), ids[:, :-1]], 1)]       # before the first step: 0
    torch.testing.assert_close(whole, x * (m.E[ids] + 0.5 * before))
    assert final.id_history.dtype == torch.int32 and final.id_history.tolist() == [[7], [9]]
    first, state = m(ids[:, :2], x[:, :2])
    second, state = m(ids[:, 2:], x[:, 2:], state=state, t0=2)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    into = torch.randn_like(whole)
    a, b = (torch.autograd.grad(y, m.E, into)[0] for y in (torch.cat([first, second], 1), whole))
    torch.testing.assert_close(a, b)
    y, _ = m.step(ids[:, 3], x[:, 3], state={"id_history": ids[:, 2:3].int()}, t0=3)
    torch.testing.assert_close(y, whole[:, 3])


def test_lengths_leave_histories():
    m = cellc.load("conv4_silu", lengths=True, dtype="f64")(D=3)
    x = x_of(2, 6, 3, dtype=torch.float64)
    _, state = m(x, torch.tensor([2, 6], dtype=torch.int32))             # two prompts, read at once
    torch.testing.assert_close(state.x_history[0, :2], x[0, [1, 0]])     # the last step of its own at place 0
    torch.testing.assert_close(state.x_history[1], x[1, [5, 4, 3]])


def test_final_states_that_are_not_wanted(no_plans, monkeypatch):
    """None in their place: nothing is allocated for them or written, results and gradients are the same, in programs too."""
    m, q = cellc.load("causal_attention", N=4, V=4)(), [x_of(2, 3, 2, 4, requires_grad=True) for _ in range(3)]
    run, addresses = m.instance.library.call, []
    monkeypatch.setattr(m.instance.library, "call", lambda way, device, stream, sizes, pointers, *more: addresses.append(
        (way, pointers)) or run(way, device, stream, sizes, pointers, *more))
    y, state = m(*q)
    z, none = m(*q, final_state=False)
    with torch.no_grad():
        assert m(*q, final_state=False)[1] is None
    assert none is None and torch.equal(y, z) and state.k_history.shape == (2, 3, 2, 4)
    assert [[p == 0 for p in pointers[-2:]] for _, pointers in addresses] == [[False, False], [True, True], [True, True]]
    wanted = torch.autograd.grad(y.sum(), q)
    assert all(map(torch.equal, wanted, torch.autograd.grad(z.sum(), q)))
    compiled = torch.compile(lambda *q: m(*q, final_state=False), fullgraph=True, backend="aot_eager")
    y, none = compiled(*q)
    assert none is None and torch.equal(y, z) and all(map(torch.equal, wanted, torch.autograd.grad(y.sum(), q)))
    program = torch.export.export(m, tuple(t.detach() for t in q), {"final_state": False}).module()
    y, none = program(*q, final_state=False)
    assert none is None and torch.equal(y, z)
    y, none = cellc.op("lstm")(x_of(2, 3, 5), *lstm().parameters(), final_state=False)
    assert none is None and torch.equal(y, lstm()(x_of(2, 3, 5))[0])


def test_counted_steps():
    text = "cell c { dim N; input x[N]; state h[N]; output y[N]; h'[i] = h[i] + t * x[i]; y[i] = h'[i]; }"
    m = cellc.load(text)()
    x = torch.ones(1, 4, 3)
    y, _ = m(x)
    assert y[0, :, 0].tolist() == [0, 1, 3, 6]
    _, state = m(x[:, :2])
    with pytest.raises(cellc.ShapeError, match="needs t0, the number of steps that the state has seen"):
        m(x[:, 2:], state=state)
    assert m(x[:, 2:], state=state, t0=2)[0][0, :, 0].tolist() == [3, 6]


def test_time_first():
    a, b = lstm(), lstm(batch_first=False)
    x = x_of(2, 6, 5, requires_grad=True)
    y, _ = a(x)
    z, _ = b(x.transpose(0, 1))
    assert torch.equal(z.transpose(0, 1), y)
    g = torch.randn_like(y)
    a, b = torch.autograd.grad((y * g).sum(), x), torch.autograd.grad((z * g.transpose(0, 1)).sum(), x)
    torch.testing.assert_close(a, b)
    with pytest.raises(cellc.ShapeError, match=r"x has shape \[6, 2, 4\]; wanted \[T, B, D\] with D = 5"):
        lstm(batch_first=False)(torch.zeros(6, 2, 4))


def test_strides():
    m = lstm()
    x = x_of(3, 5, 8).transpose(1, 2)[:, :, :]
    assert not x.is_contiguous()
    assert torch.equal(m(x)[0], m(x.contiguous())[0])
    leaf = x.detach().requires_grad_()
    m(leaf)[0].transpose(0, 2).sum().backward()
    other = x.detach().contiguous().requires_grad_()
    m(other)[0].sum().backward()
    assert torch.equal(leaf.grad, other.grad)
    expanded = x_of(1, 4, 5).expand(3, 4, 5)
    assert torch.equal(m(expanded)[0], m(expanded.clone())[0])


def test_subsets_of_gradients(no_plans, monkeypatch):
    m = lstm()
    all_of_them = torch.autograd.grad(m(x_of(2, 3, 5, requires_grad=True))[0].sum(), list(m.parameters()))
    seen = []
    call = m.instance.ops.library.call

    def spy(way, device, stream, sizes, pointers, *rest):
        seen.append((way, [p != 0 for p in pointers]))
        return call(way, device, stream, sizes, pointers, *rest)

    monkeypatch.setattr(m.instance.ops.library, "call", spy)
    m.requires_grad_(False)
    m.weight_hh.requires_grad_(True)
    m(x_of(2, 3, 5))[0].sum().backward()
    torch.testing.assert_close(m.weight_hh.grad, all_of_them[1])
    way, given = seen[-1]
    roles = [a["member"] for a in m.instance.manifest.backward if a["role"] == "gradient"]
    assert way == "backward"
    assert [role for role, there in zip(roles, given[-len(roles):]) if there] == ["d_weight_hh"]
    # The final states were not used, so no zeros are made for their gradients.
    cotangents = [a["member"] for a in m.instance.manifest.backward if a["role"].endswith("_gradient")]
    at = len(given) - len(roles) - len(cotangents)
    assert [c for c, there in zip(cotangents, given[at:]) if there] == ["d_y"]
    # Nothing is kept where nothing is asked for.
    m.requires_grad_(False)
    kept = []
    monkeypatch.setattr(m.instance.ops.library, "memory", lambda what, *rest: kept.append(what) or 0)
    m(x_of(2, 3, 5))
    m.requires_grad_(True)
    with torch.no_grad():
        m(x_of(2, 3, 5))
    assert kept == ["inference", "inference"]


def test_step_equals_forward_and_has_a_gradient():
    m, x = lstm("f64"), x_of(2, 4, 5, dtype=torch.float64, requires_grad=True)
    y, final = m(x)
    state, steps = None, []
    for t in range(4):
        out, state = m.step(x[:, t], state=state)
        steps.append(out)
    torch.testing.assert_close(torch.stack(steps, 1), y, rtol=1e-13, atol=1e-14)
    g = torch.randn_like(y)
    a = torch.autograd.grad((y * g).sum(), [x, m.weight_hh])
    b = torch.autograd.grad((torch.stack(steps, 1) * g).sum(), [x, m.weight_hh])
    torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
    with torch.no_grad():
        out, _ = m.step(x[:, 0])
    assert not out.requires_grad and torch.equal(out, steps[0])


@pytest.mark.parametrize("dtype, rounding", [("bf16", 2 ** -8), ("f16", 2 ** -11)])
def test_half_types(dtype, rounding):
    m, exact = lstm(dtype), lstm("f64")
    exact.load_state_dict(m.state_dict())
    x = x_of(2, 6, 5, dtype=DTYPES[dtype], requires_grad=True)
    y, state = m(x)
    wide = x.detach().double().requires_grad_()
    z, _ = exact(wide)
    assert y.dtype == DTYPES[dtype] and state.c.dtype == torch.float32
    # The arithmetic is in f32; only the output and the gradient are rounded, by half a unit in the last place.
    torch.testing.assert_close(y.double(), z, rtol=rounding, atol=1e-6)
    y.sum().backward()
    z.sum().backward()
    assert m.weight_ih.grad.dtype == DTYPES[dtype]
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=rounding, atol=1e-5)


def test_params_may_be_wider():
    """Params kept in f32 beside a bf16 cell: they are rounded at each call, and their gradients come back in f32."""
    m = lstm("bf16").float()
    y, _ = m(x_of(2, 3, 5, dtype=torch.bfloat16))
    y.sum().backward()
    assert y.dtype == torch.bfloat16 and m.weight_ih.grad.dtype == torch.float32


def test_autocast():
    m, linear = lstm("bf16"), torch.nn.Linear(4, 5)
    x = x_of(2, 3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = m(linear(x))
        z, _ = m(x_of(2, 3, 5))         # f32, converted
        y.float().sum().backward()
    assert y.dtype == torch.bfloat16 and z.dtype == torch.bfloat16 and linear.weight.grad.isfinite().all()
    with pytest.raises(cellc.TypeMismatch, match="x is float32; this instance stores it as bfloat16"):
        m(x_of(2, 3, 5))


@pytest.mark.parametrize("to", [lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.to(torch.ones(1).double())])
def test_types_are_followed(to):
    """A module computes in the type that its params have by now, like nn.LSTM, and so do its copies."""
    m, x = lstm("f32"), x_of(2, 6, 5, dtype=torch.float32)
    first, _ = m(x)
    parent = to(torch.nn.Sequential(m))
    dtype = m.weight_hh.dtype
    given = x.to(dtype).requires_grad_()
    y, state = m(given)
    y.sum().backward()
    other = cellc.load("lstm", dtype=dtype)(D=5, H=7)               # as if it had been loaded so
    other.load_state_dict(m.state_dict())
    again = x.to(dtype).requires_grad_()
    z, last = other(again)
    z.sum().backward()
    assert y.dtype == dtype != torch.float32 and torch.equal(y, z) and torch.equal(state.c, last.c)
    assert torch.equal(given.grad, again.grad) and torch.equal(m.weight_ih.grad, other.weight_ih.grad)
    assert f"dtype={other.instance.manifest.dtype}" in repr(m)
    for copied in (copy.deepcopy(m), pickle.loads(pickle.dumps(m)), torch.compile(m, fullgraph=True, backend="aot_eager"),
                   torch.export.export(m, (given.detach(),)).module(), parent):
        assert torch.equal(copied(given.detach())[0], y)
    with torch.no_grad():
        assert torch.equal(m.step(given[:, 0])[0], other.step(given[:, 0])[0])
    with pytest.raises(cellc.TypeMismatch, match=f"x is float32; this instance stores it as {str(dtype)[6:]}, as weight_ih is. "
                                                 rf"Convert it with .to\({dtype}\), or the module with .to\(torch.float32"):
        m(x)
    assert m.float()(x)[0].dtype == torch.float32
    if dtype == torch.float64:                                      # which holds all of f32
        assert torch.equal(m(x)[0], first)
    m.load_state_dict(other.state_dict(), assign=True)
    assert torch.equal(m(given)[0], y)


def test_types_that_are_not_the_modules():
    """Complex params go with real ones, types of the spec stay, a cell without params follows its inputs, and the default
    dtype counts where a cell is loaded without a type."""
    text = ("cell c { dim D, N; input x[D], g[D] : f32; param B[N,D] : complex, w[N] : f32, v[N]; output y[N]; "
            "y[n] = re(sum[d] B[n,d] * x[d] * g[d]) * w[n] + v[n]; }")
    m, x, g = cellc.load(text)(D=3, N=2), x_of(1, 2, 3, dtype=torch.float32), x_of(1, 2, 3, dtype=torch.float32)
    first, b = m(x, g)[0], m.B.detach().clone()
    for to in (lambda: m.double(), lambda: m.to(torch.float64)):
        to()
        assert m.B.dtype == torch.complex128 and m(x.double(), g)[0].dtype == torch.float64
        m.float()
        assert m.B.dtype == torch.complex64 and torch.equal(m.B, b) and torch.equal(m(x, g)[0], first)
    m.bfloat16()
    assert torch.equal(m.B, b) and m(x.bfloat16(), g)[0].dtype == torch.bfloat16
    with pytest.raises(cellc.TypeMismatch, match="g is bfloat16; this instance stores it as float32"):
        m(x.bfloat16(), g.bfloat16())
    square = cellc.load("cell square { dim D; input x[D]; output y[D]; y[d] = x[d]^2; }")()
    assert [square(x.to(t))[0].dtype for t in (torch.float64, torch.float32, torch.bfloat16)] == [
        torch.float64, torch.float32, torch.bfloat16]
    op, w = cellc.op("rmsnorm"), torch.ones(3, dtype=torch.float64)
    assert op(x.double(), w)[0].dtype == torch.float64
    turn = cellc.load("cell turn { dim D; input x[D] : complex; param a[D] : complex; output y[D] : complex; "
                      "y[d] = a[d] * x[d]; }")(D=3)
    z = torch.complex(x, g)
    small = cellc.load("lstm")(D=5, H=7).to(torch.float8_e4m3fn)
    with pytest.raises(cellc.TypeMismatch, match=r"weight_ih is float8_e4m3fn; cells are stored as .* with \.to\(torch\.float32\)"):
        small(torch.zeros(1, 2, 5))
    with pytest.raises(cellc.TypeMismatch, match="a step takes no final_state"):
        square.step(x[:, 0], final_state=False)
    turned = turn(z)[0]
    assert turned.dtype == torch.complex64 and turn.double()(z.to(torch.complex128))[0].dtype == torch.complex128
    torch.set_default_dtype(torch.float64)
    try:
        assert cellc.load("lstm")(D=5, H=7)(torch.randn(1, 2, 5))[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert cellc.load("lstm") is cellc.load("lstm", dtype="f32")


def test_autocast_chooses_the_type():
    m, x = lstm("f32"), x_of(2, 3, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = m(x)
        z, _ = torch.compile(m, fullgraph=True, backend="aot_eager")(x)
        wide = lstm("f64")(x.double())[0]
        y.float().sum().backward()
    assert y.dtype == torch.bfloat16 and torch.equal(y, z) and wide.dtype == torch.float64
    assert m.weight_hh.grad.dtype == torch.float32 and torch.equal(m.bfloat16()(x.bfloat16())[0], y)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    m, x = lstm(), x_of(2, 3, 5, requires_grad=True)
    y = checkpoint(lambda z: m(z)[0], x, use_reentrant=reentrant)
    a = torch.autograd.grad(y.sum(), [x]) if not reentrant else (y.sum().backward(), (x.grad,))[1]
    b = torch.autograd.grad(m(x)[0].sum(), [x])
    assert torch.equal(a[0], b[0])


def test_second_order_is_refused():
    m, x = lstm(), x_of(2, 3, 5, requires_grad=True)
    g, = torch.autograd.grad(m(x)[0].sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="lstm: the gradient of a gradient was asked for"):
        g.sum().backward()


def test_vmap_is_refused():
    m = lstm()
    with pytest.raises(NotImplementedError, match="A cell maps over its batch already"):
        torch.func.vmap(lambda x: m(x)[0])(x_of(2, 3, 4, 5))


def test_other_transforms_are_refused():
    """A tangent would be taken as zeros otherwise."""
    m, x = lstm().requires_grad_(False), x_of(2, 3, 5)
    forward = torch.autograd.forward_ad

    def dual():
        with forward.dual_level():
            m(forward.make_dual(x, torch.ones_like(x)))

    for call in (dual, lambda: torch.func.grad(lambda z: m(z)[0].sum())(x), lambda: torch.func.jacrev(lambda z: m(z)[0])(x),
                 lambda: torch.func.jvp(lambda z: m(z)[0], (x,), (x,)), lambda: torch.func.vjp(lambda z: m(z)[0], x)):
        with pytest.raises(NotImplementedError, match="lstm: torch.func.grad, vjp, jvp and jacrev"):
            call()
    with forward.dual_level():           # what has no tangent goes on
        m(x)
    assert torch.autograd.functional.jacobian(lambda z: m(z)[0].sum((0, 1)), x).shape == (7, 2, 3, 5)


def test_functional_forms():
    op, m, x = cellc.op("lstm"), lstm(), x_of(2, 3, 5)
    y, state = op(x, m.weight_ih, m.weight_hh, bias_ih=m.bias_ih, bias_hh=m.bias_hh)
    assert torch.equal(y, m(x)[0]) and state._fields == ("h", "c")
    with pytest.raises(cellc.TypeMismatch, match="bias_ih, bias_hh is missing"):
        op(x, m.weight_ih, m.weight_hh)
    with pytest.raises(cellc.ShapeError, match=r"weight_ih has shape \[28, 5\]; wanted \[4\*H, D\] with 4\*H = 24 "
                       r"\(H = 6 from weight_hh \[28, 6\]\)"):
        op(x, m.weight_ih, m.weight_hh[:, :6], m.bias_ih, m.bias_hh)
    other = {name: p.detach() * 2 for name, p in m.named_parameters()}
    assert torch.equal(torch.func.functional_call(m, other, x)[0], op(x, *other.values())[0])


def test_complex_values():
    cls = cellc.load("cell z { dim D, P; input x[D] : complex; param B[P,D] : complex ~ xavier, U[P,P] : complex ~ "
                     "orthogonal, n[P] : complex ~ normal(1); output y[P] : complex; "
                     "y[p] = conj(n[p]) * sum[d] B[p,d] * x[d] + sum[q] U[p,q] * n[q]; }", dtype="f64")
    m = cls(D=40, P=30)
    eye = torch.eye(30, dtype=torch.complex128)
    torch.testing.assert_close(m.U.mH @ m.U, eye, rtol=0, atol=1e-12)
    assert 0.5 < m.n.abs().square().mean() < 2 and m.n.imag.abs().max() > 0.1
    x = torch.randn(2, 3, 40, dtype=torch.complex128, requires_grad=True)
    y, _ = m(x)
    z = m.n.conj() * (x @ m.B.T) + m.U @ m.n
    torch.testing.assert_close(y, z)
    g = torch.randn_like(y)
    for lazily in (g, g.conj()):       # what PyTorch has only marked as conjugated is read as such
        for a, b in zip(torch.autograd.grad(y, [x, m.B, m.U, m.n], lazily, retain_graph=True),
                        torch.autograd.grad(z, [x, m.B, m.U, m.n], lazily, retain_graph=True)):
            torch.testing.assert_close(a, b)
    assert torch.equal(m(x.conj())[0], m(x.conj().resolve_conj())[0]) and not torch.equal(m(x.conj())[0], y)


def test_integers():
    m = cellc.load("embedding")(V=7, D=4)
    tokens = torch.tensor([[1, 6, 0]])
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.uint16):
        assert torch.equal(m(tokens.to(dtype))[0], m.weight[tokens])
    m(tokens)[0].sum().backward()
    assert m.weight.grad.sum(1).tolist() == [4, 4, 0, 0, 0, 0, 4]
    with pytest.raises(cellc.TypeMismatch, match="id is float32; this instance stores it as int32"):
        m(tokens.float())


def test_integers_that_int32_does_not_hold():
    """Refused, not cut to 32 bits: at a first call, at one like it, and in programs."""
    m, good = cellc.load("embedding")(V=7, D=4), torch.tensor([[3, 1]])
    program = torch.export.export(m, (good,)).module()
    compiled = torch.compile(m, fullgraph=True, backend="aot_eager")
    for call in (m, m, program, compiled):
        for far in (2**32 + 1, -2**32 + 1, 2**31):
            with pytest.raises(cellc.TypeMismatch, match=f"embedding: id has the number {far}, which int32 does not hold"):
                call(torch.tensor([[1, far]]))
        assert torch.equal(call(good)[0], m.weight[good])
    ragged, x = cellc.load("lstm", lengths=True)(D=5, H=7), x_of(2, 6, 5)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(cellc.TypeMismatch, match="lengths has the number 4294967297"):
            ragged(x, torch.tensor([2**32 + 1, 1]))
    with pytest.raises(cellc.TypeMismatch, match="lengths is bool; this instance stores it as int32"):
        ragged(x, torch.tensor([True, False]))


def test_reversed():
    m, back, x = lstm(), cellc.load("lstm", reverse=True)(D=5, H=7), x_of(2, 6, 5)
    back.load_state_dict(m.state_dict())
    y, state = m(x.flip(1))
    z, last = back(x)
    assert torch.equal(z.flip(1), y) and torch.equal(last.h, state.h)


def test_lengths():
    m, ragged, x = lstm(), cellc.load("lstm", lengths=True)(D=5, H=7), x_of(2, 6, 5)
    ragged.load_state_dict(m.state_dict())
    y, state = ragged(x, torch.tensor([4, 6]))
    whole, final = m(x)
    short, last = m(x[:, :4])           # of as many sequences, since a product of other rows may add in another order
    assert torch.equal(y[0, :4], short[0]) and y[0, 4:].abs().max() == 0 and torch.equal(y[1], whole[1])
    assert torch.equal(state.h[0], last.h[0]) and torch.equal(state.h[1], final.h[1])
    y.sum().backward()
    assert ragged.weight_hh.grad.abs().max() > 0
    with pytest.raises(cellc.ShapeError, match="1 inputs were given; wanted 2: x, lengths"):
        ragged(x)
    for wrong in ([4, 7], [4, -1]):
        for grad in (True, False):
            with torch.set_grad_enabled(grad), pytest.raises(
                    cellc.ShapeError, match=rf"lengths\[1\] is {wrong[1]}; wanted 0 to T, which is 6"):
                ragged(x, torch.tensor(wrong))
    with torch.no_grad(), pytest.raises(cellc.ShapeError, match=r"lengths\[0\] is 2; wanted 0 to T, which is 1"):
        ragged.step(x[:, 0], torch.tensor([2, 1]))


def test_numbers_of_numpy():
    """NumPy's scalars, and arrays and tensors of one number, are the numbers that they hold."""
    numpy = pytest.importorskip("numpy")
    plain = cellc.load("layernorm", eps=1e-3)
    for eps in (numpy.float64(1e-3), numpy.array(1e-3), torch.tensor(1e-3, dtype=torch.float64)):
        assert cellc.load("layernorm", eps=eps).instance is plain.instance
    e79 = cellc.load("e79", N=8)
    for n in (numpy.int64(8), numpy.uint8(8), torch.tensor(8)):
        assert cellc.load("e79", N=n).instance is e79.instance
    assert e79(D=numpy.int32(3)).sizes == {"D": 3}


EXPORTED = """
import sys, torch, cellc
m = cellc.load("lstm")(D=5, H=7)
if sys.argv[1] == "save":
    x = torch.ones(2, 3, 5)
    torch.export.save(torch.export.export(m, (x,)), sys.argv[2])
    torch.save((m.state_dict(), m(x)), sys.argv[3])
else:
    program, (weights, (y, state)) = torch.export.load(sys.argv[2]), torch.load(sys.argv[3])
    z, last = program.module()(torch.ones(2, 3, 5))
    print(torch.equal(y, z), torch.equal(state.c, last.c), type(last) is type(state))
"""


def test_an_exported_program_of_another_build(tmp_path):
    """With its states, and by a cell that was built with another compiler's name, so that nothing of the build is the same."""
    words = [str(tmp_path / name) for name in ("lstm.pt2", "wanted.pt")]
    for what, compiler in (("save", "cc"), ("load", "gcc")):
        env = {**os.environ, "CC": compiler + (" -O1" if what == "load" else ""), "CELLC_CACHE": str(tmp_path / what)}
        out = subprocess.run([sys.executable, "-W", "ignore", "-c", EXPORTED, what, *words], capture_output=True, text=True,
                             env=env)
        assert out.returncode == 0, out.stderr
    assert out.stdout == "True True True\n"


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_torchscript_is_refused():
    m, x = lstm(), x_of(2, 3, 5)
    parent = torch.nn.Sequential(torch.nn.Identity(), m)
    for call in (lambda: torch.jit.trace(parent, x), lambda: torch.jit.script(parent), lambda: torch.jit.script(m),
                 lambda: torch.onnx.export(m, (x,), io.BytesIO(), dynamo=False)):
        with pytest.raises(NotImplementedError, match="lstm: TorchScript.* torch.export.export keeps a cell as one operator"):
            call()
    with pytest.raises(NotImplementedError, match="lstm: x is a torch.fx.Proxy, and torch.fx.symbolic_trace cannot look into"):
        torch.fx.symbolic_trace(parent)
    with pytest.raises(NotImplementedError, match="lstm: what it is called with is a torch.fx.Proxy"):
        torch.fx.symbolic_trace(m)

    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, type(m)) or super().is_leaf_module(module, name)

    assert torch.equal(torch.fx.GraphModule(parent, Leaves().trace(parent))(x)[0], m(x)[0])


def test_resets():
    text = "cell r { dim N; input x[N]; reset r; state h[N]; output y[N]; h'[i] = h[i] + x[i]; y[i] = h'[i]; }"
    m = cellc.load(text)()
    y, _ = m(torch.ones(1, 5, 1), torch.tensor([[0.0, 0, 1, 0, 0]]))
    assert y.flatten().tolist() == [1, 2, 1, 2, 3]
    for _ in range(2):                 # a mask
        assert torch.equal(m(torch.ones(1, 5, 1), torch.tensor([[False, False, True, False, False]]))[0], y)


def test_several_outputs_and_no_inputs():
    cls = cellc.load("cell two { dim N; input x[N]; output y[N], lambda[N]; y[i] = 2 * x[i]; lambda[i] = x[i]^2; }")
    out, _ = cls()(torch.full((1, 1, 2), 3.0))
    assert out.y.flatten().tolist() == [6, 6] and out.lambda_.flatten().tolist() == [9, 9]
    cls = cellc.load("cell osc { dim N = 2; param W[N,N] ~ eye, s[N] ~ ones; state h[N] = s[i]; output y[N]; "
                     "h'[i] = 2 * sum[j] W[i,j] * h[j]; y[i] = h'[i]; }")
    m = cls()
    y, _ = m(batch=3, steps=4)
    assert y.shape == (3, 4, 2) and y[0, :, 0].tolist() == [2, 4, 8, 16]
    y.sum().backward()                  # into the learned initial state
    assert m.s.grad.tolist() == [90, 90]
    with pytest.raises(cellc.ShapeError, match="no tensor of this call says how large B, T is"):
        m()


def test_shapes_in_the_specs_terms():
    m = lstm()
    for tensors, message in [
            ((x_of(2, 3, 6),), r"lstm: x has shape \[2, 3, 6\]; wanted \[B, T, D\] with D = 5, as the module says"),
            ((x_of(3, 5),), r"lstm: x has shape \[3, 5\]; wanted 3 axes, \[B, T, D\]"),
            ((x_of(2, 3, 5), x_of(2, 3, 5)), "lstm: 2 inputs were given; wanted 1: x")]:
        with pytest.raises(ValueError, match=message):
            m(*tensors)
    with pytest.raises(ValueError, match=r"h has shape \[3, 7\]; wanted \[B, H\] with B = 2, as x \[2, 3, 5\] says"):
        m(x_of(2, 3, 5), state=[torch.zeros(3, 7), None])
    with pytest.raises(ValueError, match="1 states were given; wanted 2: h, c"):
        m(x_of(2, 3, 5), state=torch.zeros(2, 7))
    with pytest.raises(ValueError, match="there is no state g; there is h, c"):
        m(x_of(2, 3, 5), state={"g": torch.zeros(2, 7)})
    with pytest.raises(TypeError, match="x is float64; this instance stores it as float32"):
        m(x_of(2, 3, 5, dtype=torch.float64))
    with pytest.raises(TypeError, match="x is a list; wanted a tensor"):
        m([1.0])
    with pytest.raises(ValueError, match=r"its params need the size of D, H, as in lstm\(D=64, H=64\)"):
        cellc.load("lstm")()
    with pytest.raises(ValueError, match=r"there is no dim N to choose \(it was bound when the cell was loaded\)"):
        cellc.load("e79", N=4)(D=3, N=5)
    with pytest.raises(ValueError, match="D is 0; wanted a whole number of at least 1"):
        cellc.load("lstm")(D=0, H=3)


def test_what_is_no_number():
    m, np = lstm(), pytest.importorskip("numpy")
    assert cellc.load("lstm")(D=np.int64(5), H=7).sizes == {"D": 5, "H": 7}
    assert torch.equal(m(x_of(2, 3, 5), t0=torch.tensor(3))[0], m(x_of(2, 3, 5))[0])
    text = "cell c { dim N = 2; state h[N] = 1; output y[N]; h'[i] = 2 * h[i]; y[i] = h'[i]; }"
    alone = cellc.load(text)()
    assert alone(batch=np.int32(2), steps=3)[0].shape == (2, 3, 2) and alone(batch=0, steps=3)[0].shape == (0, 3, 2)
    for call, kind, message in [
            (lambda: m(x_of(2, 3, 5), t0=2.5), TypeError, "t0 is 2.5; wanted a whole number"),
            (lambda: m(x_of(2, 3, 5), t0=-5), ValueError, "t0 is -5; wanted a whole number of at least 0"),
            (lambda: alone(batch="2", steps=3), TypeError, "batch is '2'; wanted a whole number"),
            (lambda: alone(batch=2, steps=-3), ValueError, "steps is -3; wanted a whole number of at least 0"),
            (lambda: alone(batch=2 ** 70, steps=3), ValueError, "batch is 1180591620717411303424; wanted"),
            (lambda: cellc.load("lstm")(D=5.0, H=7), TypeError, "D is 5.0; wanted a whole number"),
            (lambda: cellc.op("lstm")(x_of(2, 3, 5), *m.parameters(), sizes={"Z": 3}), ValueError,
             "there is no size Z; there is B, T, D, H")]:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert isinstance(caught.value, cellc.CellcError)


def test_what_is_no_plain_tensor():
    m, x = lstm(), x_of(2, 3, 5)
    for value, message in [(None, "x is None; wanted a tensor"), (x.numpy(), "x is a ndarray; wanted a tensor"),
                           (torch.nn.utils.rnn.pack_sequence([x[0]]), "x is a PackedSequence; .* loaded with packed=True takes it"),
                           (x.to_sparse(), "x is a sparse_coo tensor; wanted a dense one"),
                           (torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged), "x is a nested tensor; .* loaded with packed=True")]:
        with pytest.raises(cellc.TypeMismatch, match="lstm: " + message):
            m(value)
    for state in (3, "hc"):
        with pytest.raises(cellc.TypeMismatch, match="state is a .*; wanted what an earlier call gave"):
            m(x, state=state)
    m.weight_hh = None
    with pytest.raises(cellc.TypeMismatch, match="weight_hh is None; wanted a tensor"):
        m(x)


def test_meta_tensors():
    m = lstm(device="meta")
    y, state = m(x_of(2, 3, 5).to("meta"))
    assert y.device.type == "meta" and y.shape == (2, 3, 7) and state.c.shape == (2, 7)
    y.sum().backward()
    assert m.weight_hh.grad.shape == (28, 7)


def test_conditions_of_the_cell():
    cls = cellc.load("cell h { dim D; dim H = 4; input x[D]; output y[H, D / H]; y[h,i] = x[h * (D / H) + i]; }")
    assert cls()(torch.arange(8.0).reshape(1, 1, 8))[0].tolist() == [[[[0, 1], [2, 3], [4, 5], [6, 7]]]]
    with pytest.raises(ValueError, match="D"):
        cls()(torch.zeros(1, 1, 6))


def test_empty_calls():
    m = lstm()
    for shape in ((0, 3, 5), (2, 0, 5)):
        y, state = m(x_of(*shape, requires_grad=True))
        assert y.shape == (*shape[:2], 7) and state.h.shape == (shape[0], 7)
        y.sum().backward()
        assert m.weight_ih.grad.abs().max() == 0


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.cell, self.out = torch.nn.LayerNorm(5), lstm(), torch.nn.Linear(7, 5)

    def forward(self, x, state=None):
        y, state = self.cell(self.norm(x), state=state)
        return x + self.out(y), state


def test_compile_in_one_graph():
    block = Block()
    compiled = torch.compile(block, fullgraph=True)
    for shape in ((2, 3, 5), (2, 6, 5), (2, 7, 5), (4, 9, 5)):
        x = x_of(*shape, requires_grad=True)
        grads = []
        for module in (block, compiled):
            y, state = module(x)
            z, _ = module(x, state)
            grads.append(torch.autograd.grad((y + z).square().sum(), [x, *block.parameters()]))
        for a, b in zip(*grads):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x)[0], block(x)[0])


def test_operator_is_well_formed():
    m = lstm()
    x = x_of(2, 3, 5, requires_grad=True)
    tensors = [x, m.weight_ih, m.weight_hh, m.bias_ih, m.bias_hh, None, None]
    # The check that compares two runs is left out: what lies between the reserve's buffers is anything.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(m.instance.ops.forward, (*tensors, [2, 3, 5, 7, 0], 1), test_utils=tests)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU says itself what the reserve takes")
def test_reserve_of_a_gpu_that_is_not_here():
    """Which plan runs there, and what it saves, only the call knows: the reference's size would be wrong."""
    forward = lstm().instance.ops.forward
    with FakeTensorMode(shape_env=ShapeEnv()):
        for device, known in (("cpu", True), ("cuda", False)):
            tensors = [torch.empty(*shape, device=device) for shape in ((2, 3, 5), (28, 5), (28, 7), (28,), (28,))]
            *_, reserve = forward(*tensors, None, None, [2, 3, 5, 7, 0], 1)
            assert reserve.device.type == device and isinstance(reserve.shape[0], int) == known


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU says itself what the reserve takes")
def test_reserve_without_dynamic_sizes():
    """Where tracing has none, a GPU that is not here has the reference's size."""
    forward = lstm().instance.ops.forward
    with FakeTensorMode():
        made = []
        for device in ("cpu", "cuda"):
            tensors = [torch.empty(*shape, device=device) for shape in ((2, 3, 5), (28, 5), (28, 7), (28,), (28,))]
            *_, reserve = forward(*tensors, None, None, [2, 3, 5, 7, 0], 1)
            made.append(reserve)
        assert made[0].device.type == "cpu" and made[1].device.type == "cuda" and made[0].shape == made[1].shape


def test_export():
    block = Block()
    program = torch.export.export(block, (x_of(2, 3, 5),))
    torch.testing.assert_close(program.module()(x_of(2, 3, 5))[0], block(x_of(2, 3, 5))[0])


def test_explain_and_source():
    cls = cellc.load("e79", N=4, bias="input")
    assert "schedule" in cls.explain()
    assert "e79_forward" in cls.source("header") and "W_bs" in cls.source("header")


def test_one_cell_built_again(monkeypatch):
    first = lstm()
    monkeypatch.setattr("cellc.build.made", {})
    second = lstm()
    assert type(first) is not type(second)
    torch.testing.assert_close(first(x_of(2, 3, 5))[0], second(x_of(2, 3, 5))[0])
    first(x_of(2, 3, 5))[0].sum().backward()


def test_source_with_a_schedule():
    cls = cellc.load("gru", schedule="steps")
    assert "gru_forward" in cls.source("header") and "for (int64_t" in cls.source("c")
    assert "__global__" in cls.source("cuda") and "schedule steps" in cls.explain(all=True)
    assert len(cls.explain().splitlines()) < 20 and cls.explain(all=True).startswith(cls.explain()[:200])


def test_graph(monkeypatch, tmp_path):
    graph = cellc.load("e79", N=4, bias="input").graph()
    assert graph.dot.startswith('digraph "e79"') and "e79:N=4,bias=input,dtype=f32, forward" in repr(graph)
    assert "backward" in cellc.load("e79", N=4, bias="input")(D=3).graph(backward=True).dot
    graph.save(tmp_path / "e79.dot")
    assert (tmp_path / "e79.dot").read_text() == graph.dot
    if shutil.which("dot"):
        assert "<svg" in graph._repr_svg_()
        graph.save(str(tmp_path / "e79.png"))
        assert (tmp_path / "e79.png").read_bytes()[:4] == b"\x89PNG"
    assert cellc.load("lstm", framework="numpy").graph().dot.startswith('digraph "lstm"')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert graph._repr_svg_() is None
    with pytest.raises(cellc.BuildError, match="a picture wants Graphviz's dot, which is not on the PATH"):
        graph.svg()


def test_sizes_of_a_function_are_a_dict():
    op = cellc.op("cell scaled { dim N; input x[N]; param w[N]; output y[N]; y[i] = w[i] * x[i]; }", cuda=False)
    x, w = torch.ones(1, 2, 3), torch.ones(3)
    for sizes in (["N"], "N", 3, {3}):
        for call in (op, op.step):
            with pytest.raises(cellc.TypeMismatch, match="scaled: sizes is .*; wanted a dict, as in sizes={'B': 2}"):
                call(x, w, sizes=sizes)
    assert torch.equal(op(x, w, sizes={"N": 3})[0], x)


def test_first_values_fit_the_type_that_a_module_has_followed():
    cell = cellc.load("cell large { dim N; input x[N]; param w[N] ~ const(1e5), v[N] ~ const(1e300 * N); output y[N]; "
                      "y[i] = w[i] * x[i] + v[i]; }", cuda=False, dtype="f64")
    m = cell(N=3)
    with pytest.raises(cellc.ShapeError, match="v starts as .*beyond what f32 holds"):
        m.float().reset_parameters()
    m.double().reset_parameters()
    assert (m.v == 3e300).all()
    with pytest.raises(cellc.ShapeError, match=r"w starts as const\(100000\); 100000 is beyond what f16 holds, 65504"):
        m.half().reset_parameters()
