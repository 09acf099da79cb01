"""A budget for what a call keeps for its backward. In: cells of several kinds, budgets from the least up.
Out: gradients are those without a budget, but for the roundings of sums in another order; the reserve has the
bytes that were asked for; what cannot be is an error that names the least."""

import re

import pytest
import torch

import cellc
from cellc.errors import NotThere

# Roundings of f64 that gradients may differ by: pieces add up sums over 120 rows in another order.
CLOSE = dict(rtol=0, atol=120 * 2.0 ** -53 * 64)


def least(cell, *inputs, **more):
    """What an error says is the least budget."""
    with pytest.raises(cellc.ShapeError) as error:
        cell(*inputs, reserve=1, **more)
    return int(re.search(r"the least is (\d+)", str(error.value))[1])


def gradients(cell, x, **more):
    """(outputs, final states, gradients of params and of x)"""
    x = x.detach().requires_grad_()
    params = list(cell.parameters())
    y, state = cell(x, **more)
    torch.manual_seed(1)
    loss = (y * torch.randn_like(y)).sum() + sum((s * torch.randn_like(s)).sum() for s in state)
    return y, state, torch.autograd.grad(loss, [x, *params])


def same(one, other):
    torch.testing.assert_close(one[0], other[0], **CLOSE)
    for a, b in zip([*one[1], *one[2]], [*other[1], *other[2]]):
        torch.testing.assert_close(a, b, **CLOSE)


CELLS = {"lstm": dict(D=5, H=6), "gru": dict(D=5, H=6), "mingru": dict(D=5, H=6), "e79": dict(D=5)}
LOADED = {"e79": dict(N=8, bias="input")}


@pytest.mark.parametrize("name", CELLS)
def test_gradients(name):
    torch.manual_seed(0)
    cell = cellc.load(name, dtype="f64", **LOADED.get(name, {}))(**CELLS[name])
    x = torch.randn(3, 40, 5, dtype=torch.float64)
    whole = gradients(cell, x)
    start = least(cell, x.requires_grad_())
    for budget in (start, start + start // 3, 2 * start, f"{start / 1e3 + 1:.3f}kB", "1GiB"):
        same(whole, gradients(cell, x, reserve=budget))
    cell.reserve = start
    same(whole, gradients(cell, x))
    with pytest.raises(cellc.ShapeError, match=f"the least is {start}"):
        gradients(cell, x, reserve=start - 1)


def kept(cell, x, **more):
    """How many bytes a call keeps beside its arguments, whose storages are not counted."""
    sizes, own = [], {t.data_ptr() for t in [x, *cell.parameters()]}

    def pack(tensor):
        if tensor.data_ptr() not in own:
            sizes.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        cell(x, **more)
    return sum(sizes)


def test_bytes():
    """The last few of a budget may be over: a piece has whole steps."""
    cell = cellc.load("lstm")(D=5, H=16)
    x = torch.randn(2, 500, 5)
    whole, start = kept(cell, x), least(cell, x)
    found = [kept(cell, x, reserve=budget) for budget in (start, whole // 8, whole // 3, whole - 1, whole)]
    assert found[0] == start and found[-1] == whole
    assert all(a <= budget for a, budget in zip(found, (start, whole // 8, whole // 3, whole - 1, whole)))
    assert found == sorted(found) and start < whole // 6


def test_matrix_state():
    """A state that is larger than what a step keeps: one level of checkpoints is not enough for little."""
    cell = cellc.load("delta", dtype="f64", N=16, V=16)(sizes={})
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 64, 2, 16, dtype=torch.float64) for _ in range(3))
    b = torch.randn(1, 64, 2, dtype=torch.float64)
    inputs = [t.requires_grad_() for t in (q, k, v, b)]

    def pull(**more):
        y, state = cell(*inputs, **more)
        return torch.autograd.grad((y * torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view_as(y)).sum()
                                   + state[0].square().sum(), inputs)

    whole = pull()
    for budget in (least(cell, *inputs), "20kB", "40kB"):
        for a, b in zip(whole, pull(reserve=budget)):
            torch.testing.assert_close(a, b, **CLOSE)


def test_states_and_first_steps():
    """Given states, and gradients into final ones."""
    cell = cellc.load("lstm", dtype="f64")(D=4, H=4)
    torch.manual_seed(0)
    x = torch.randn(2, 30, 4, dtype=torch.float64)
    state = tuple(torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def pull(**more):
        y, final = cell(x, state=state, **more)
        return torch.autograd.grad(y.sum() + final[1].square().sum(), [*state, *cell.parameters()])

    for a, b in zip(pull(), pull(reserve=least(cell, x.requires_grad_(), state=state))):
        torch.testing.assert_close(a, b, **CLOSE)


def test_lengths():
    cell = cellc.load("lstm", dtype="f64", lengths=True)(D=4, H=4)
    torch.manual_seed(0)
    x = torch.randn(4, 30, 4, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([30, 0, 7, 22])

    def pull(**more):
        y, final = cell(x, lengths, **more)
        return torch.autograd.grad((y * y).sum() + final[0].sum(), [x, *cell.parameters()])

    for a, b in zip(pull(), pull(reserve=least(cell, x, lengths))):
        torch.testing.assert_close(a, b, **CLOSE)


def test_functions_and_compile():
    op, cell = cellc.op("lstm", dtype="f64"), cellc.load("lstm", dtype="f64")(D=4, H=4)
    x = torch.randn(2, 30, 4, dtype=torch.float64, requires_grad=True)
    start, params = least(cell, x), list(cell.parameters())
    y, state = op(x, *params, reserve=start)
    expected = torch.autograd.grad(y.sum(), [x, *params])
    compiled = torch.compile(cell, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, reserve=start)[0].sum(), [x, *params])
    for a, b in zip(expected, found):
        torch.testing.assert_close(a, b, **CLOSE)


def test_refusals():
    cell = cellc.load("lstm")(D=4, H=4)
    x = torch.randn(2, 30, 4, requires_grad=True)
    for wrong in ("much", "5XB", "-1MB", 1.5):
        with pytest.raises(cellc.TypeMismatch, match="reserve is"):
            cell(x, reserve=wrong)
    with pytest.raises(cellc.ShapeError, match="reserve is 0"):
        cell(x, reserve=0)
    past = cellc.load("causal_attention", N=8, V=8)()
    q = torch.randn(1, 16, 2, 8, requires_grad=True)
    with pytest.raises(cellc.ShapeError, match="since it reads all steps before"):
        past(q, q, q, reserve=1000)
    packed = cellc.load("e79", packed=True, N=8, bias="input")(D=4)
    rows = torch.randn(40, 4, requires_grad=True)
    with pytest.raises(cellc.ShapeError, match="since its sequences are packed"):
        packed(rows, torch.tensor([0, 30, 40]), reserve=1000)


def bytes_of(cell, sizes, budget):
    """(reserve, host) of a call with offload=True, as the library says."""
    return [cell.instance.ops.library.memory(what, None, sizes, budget, True) for what in ("reserve", "host")]


MARK = 512                           # at the front of reserve and host memory


@pytest.mark.parametrize("name", CELLS)
def test_offload(name):
    """The bits of the same cut with all states in the reserve, in which those in host memory have as many bytes more. (With the
    least of bytes, and where states are larger than what a step keeps, a budget for all states has another cut.)"""
    torch.manual_seed(0)
    cell = cellc.load(name, dtype="f64", **LOADED.get(name, {}))(**CELLS[name])
    x = torch.randn(8, 40, 5, dtype=torch.float64)
    whole = gradients(cell, x)
    start = least(cell, x.requires_grad_(), offload=True)
    sizes = [{"B": 8, "T": 40, **CELLS[name]}.get(size, 0) for size in cell.instance.manifest.sizes]
    all_bytes = cell.instance.ops.library.memory("reserve", None, sizes)
    for budget in (start, all_bytes // 5, all_bytes // 4):
        reserve, host = bytes_of(cell, sizes, budget)
        assert host > MARK and reserve <= budget
        found = gradients(cell, x, reserve=budget, offload=True)
        same(whole, found)
        if budget > start and name != "e79":
            for one, other in zip(found[2], gradients(cell, x, reserve=reserve + host - MARK)[2]):
                assert torch.equal(one, other)
        assert kept(cell, x, reserve=budget, offload=True) == reserve + host
    with pytest.raises(cellc.ShapeError, match=f"the least is {start}"):
        cell(x, reserve=start - 1, offload=True)
    again = type(cell)(**CELLS[name], reserve=start, offload=True)
    again.load_state_dict(cell.state_dict())
    for one, other in zip(gradients(again, x)[2], gradients(cell, x, reserve=start, offload=True)[2]):
        assert torch.equal(one, other)
    assert bytes_of(cell, sizes, 1 << 40)[1] == 0
    same(whole, gradients(cell, x, reserve=1 << 40, offload=True))


def test_offload_elsewhere():
    """Calls at once, whose memory is not one; functions; what keeps nothing; and what is refused."""
    op, cell = cellc.op("lstm", dtype="f64"), cellc.load("lstm", dtype="f64")(D=4, H=4)
    params = list(cell.parameters())
    x = torch.randn(2, 30, 4, dtype=torch.float64, requires_grad=True)
    more = dict(reserve=least(cell, x, offload=True), offload=True)
    two = (x * 2).detach().requires_grad_()
    both = cell(x, **more)[0].square().sum() + cell(two, **more)[0].square().sum()
    plain = cell(x)[0].square().sum() + cell(two)[0].square().sum()
    for a, b in zip(torch.autograd.grad(both, [x, two, *params]), torch.autograd.grad(plain, [x, two, *params])):
        torch.testing.assert_close(a, b, **CLOSE)
    expected = torch.autograd.grad(cell(x)[0].sum(), [x, *params])
    with torch.profiler.profile():
        found = torch.autograd.grad(op(x, *params, **more)[0].sum(), [x, *params])
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, **CLOSE)
    with torch.no_grad():
        assert cell(x, **more)[0].shape == (2, 30, 4)
    for wrong in (lambda: cell(x, offload=True), lambda: op(x, *params, offload=True),
                  lambda: type(cell)(D=4, H=4, offload=True)):
        with pytest.raises(cellc.TypeMismatch, match="without a budget"):
            wrong()
    with pytest.raises(Exception, match="offload=True is not there under torch.compile"):
        torch.compile(cell, fullgraph=True, backend="aot_eager")(x, **more)
    y = cell(x, **more)[0]
    with pytest.raises(NotThere, match="gradient of a gradient"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_offload_refused():
    numpy = pytest.importorskip("numpy")
    lstm = cellc.load("lstm", framework="numpy")
    with pytest.raises(NotThere, match="in the host's memory already"):
        lstm.vjp(lstm.init(0, D=4, H=4), numpy.zeros((2, 30, 4), numpy.float32), reserve=4000, offload=True)
    jax = pytest.importorskip("jax")
    lstm = cellc.load("lstm", framework="jax")
    with pytest.raises(NotThere, match="no pinned memory"):
        lstm(lstm.init(jax.random.key(0), D=4, H=4), jax.numpy.zeros((2, 30, 4)), reserve=4000, offload=True)


def test_without_gradients():
    """A budget is for what is kept: where nothing is, it says nothing."""
    cell = cellc.load("lstm")(D=4, H=4, reserve=1)
    x = torch.randn(2, 30, 4)
    with torch.no_grad():
        assert cell(x)[0].shape == (2, 30, 4)
        assert cell.step(x[:, 0])[0].shape == (2, 4)


def test_truncated():
    """Backpropagation through time that is cut after some steps: states go on, their gradients do not."""
    torch.manual_seed(0)
    cell = cellc.load("lstm", dtype="f64")(D=4, H=4)
    x, state, found = torch.randn(2, 30, 4, dtype=torch.float64), None, []
    for piece in x.split(10, dim=1):
        y, state = cell(piece, state=state)
        found.append(torch.autograd.grad(y.square().sum(), list(cell.parameters())))
        state = [s.detach() for s in state]
    theirs = torch.nn.LSTM(4, 4, batch_first=True).double()
    for ours, other in zip(cell.parameters(), theirs.parameters()):
        other.data.copy_(ours.data)
    state, at = None, 0
    for piece in x.split(10, dim=1):
        y, state = theirs(piece, state)
        for a, b in zip(found[at], torch.autograd.grad(y.square().sum(), list(theirs.parameters()))):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
        state, at = tuple(s.detach() for s in state), at + 1


def test_numpy():
    numpy = pytest.importorskip("numpy")
    lstm = cellc.load("lstm", framework="numpy", dtype="f64")
    params = lstm.init(0, D=4, H=4)
    x = numpy.random.default_rng(0).standard_normal((2, 30, 4))
    y, _, pull = lstm.vjp(params, x)
    with pytest.raises(cellc.ShapeError) as error:
        lstm.vjp(params, x, reserve=1)
    start = int(re.search(r"the least is (\d+)", str(error.value))[1])
    again, _, pull_again = lstm.vjp(params, x, reserve=start)
    assert numpy.allclose(y, again, rtol=0, atol=CLOSE["atol"])
    one, other = pull(y), pull_again(y)
    for name, value in one.params.items():
        assert numpy.allclose(value, other.params[name], rtol=0, atol=CLOSE["atol"])


def test_jax():
    jax = pytest.importorskip("jax")
    lstm = cellc.load("lstm", framework="jax")
    params = lstm.init(jax.random.key(0), D=4, H=4)
    x = jax.random.normal(jax.random.key(1), (2, 30, 4))

    def loss(params, x, reserve):
        return (lstm(params, x, reserve=reserve)[0] ** 2).sum()

    with pytest.raises(cellc.ShapeError) as error:
        jax.grad(loss)(params, x, 1)
    start = int(re.search(r"the least is (\d+)", str(error.value))[1])
    pull = jax.grad(loss, (0, 1))
    again = jax.jit(pull, static_argnums=2)(params, x, start)
    for one, other in zip(jax.tree.leaves(pull(params, x, None)), jax.tree.leaves(again)):
        assert jax.numpy.allclose(one, other, rtol=0, atol=60 * 2.0 ** -24 * 64)
