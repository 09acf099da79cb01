"""Calls in C (fast.py): results and gradients are those of calls that go the long way, so are errors, and
nothing that an earlier call found out is taken for true of another."""

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import cellc
from cellc import eager, errors, fast, with_numpy

pytestmark = pytest.mark.skipif(not eager.planned().there, reason=f"no calls in C: {fast.fast().why}")


class NoPlans:
    there = False


@pytest.fixture
def long_way(monkeypatch):
    """Runs something with all its calls going the long way."""
    def run(what):
        with monkeypatch.context() as m:
            m.setattr(eager, "planned", NoPlans)
            m.setattr(with_numpy, "planned", lambda: False)
            return what()
    return run


@pytest.fixture
def in_c(monkeypatch):
    """Runs something of which no call may go through native.Library.call."""
    def run(library, what):
        with monkeypatch.context() as m:
            m.setattr(library, "call", None)
            return what()
    return run


def lstm(**options):
    torch.manual_seed(3)
    return cellc.load("lstm", **options)(D=5, H=8)


def x_of(*shape, **options):
    torch.manual_seed(4)
    return torch.randn(*shape, **options)


def gradients(m, x, how="__call__", state=None, final_state=True):
    """Outputs, states and all gradients."""
    leaves = [x, *m.parameters(), *(state or ())]
    y, final = m(x, state=state, final_state=final_state) if how == "__call__" else m.step(x, state=state)
    torch.manual_seed(5)
    sum_of = sum((t * torch.randn(t.shape)).sum() for t in (y, *(final or ())))
    return [y, *(final or ()), *torch.autograd.grad(sum_of, leaves)]


def same(a, b):
    assert len(a) == len(b) and all(map(torch.equal, a, b))
    assert [t.shape for t in a] == [t.shape for t in b]


def test_steps_and_calls(in_c, long_way):
    m, x = lstm(), x_of(2, 3, 5)
    with torch.no_grad():
        for what in (lambda: m(x), lambda: m(x, final_state=False), lambda: m.step(x[:, 0].contiguous())):
            wanted = long_way(what)
            what()                                         # from here on there is a plan
            y, state = in_c(m.instance.library, what)
            assert torch.equal(y, wanted[0]) and type(state) is type(wanted[1]) and not y.requires_grad
            assert state is None or all(map(torch.equal, state, wanted[1]))
        state = m(x)[1]
        for given in (state, tuple(state), list(state)):   # the same tensors in any sequence
            m.step(x[:, 0].contiguous(), state=given)
            in_c(m.instance.library, lambda given=given: m.step(x[:, 0].contiguous(), state=given))


@pytest.mark.parametrize("how", ["__call__", "step"])
def test_gradients(in_c, long_way, how):
    m = lstm()
    x = x_of(2, 3, 5) if how == "__call__" else x_of(2, 5)
    for state in (None, (x_of(2, 8, requires_grad=True), x_of(2, 8, requires_grad=True))):
        x = x.detach().requires_grad_()
        wanted = long_way(lambda: gradients(m, x, how, state))
        for _ in range(2):
            gradients(m, x, how, state)
        same(in_c(m.instance.library, lambda: gradients(m, x, how, state)), wanted)
    if how == "__call__":
        wanted = long_way(lambda: gradients(m, x, final_state=False))
        for _ in range(3):
            same(gradients(m, x, final_state=False), wanted)


def test_gradients_of_some(long_way):
    m, x = lstm(), x_of(2, 3, 5)
    for wanted in ([m.weight_hh], [m.bias_hh], [m.weight_ih, m.bias_hh]):
        m.requires_grad_(False)
        for p in wanted:
            p.requires_grad_()
        expected = long_way(lambda: torch.autograd.grad(m(x)[0].sum(), wanted))
        for _ in range(3):
            same(torch.autograd.grad(m(x)[0].sum(), wanted), expected)
    m.requires_grad_(False)
    assert not m(x)[0].requires_grad and not m(x)[0].requires_grad


def test_second_order_is_refused_as_ever():
    m, x = lstm(), x_of(2, 3, 5, requires_grad=True)
    for _ in range(3):
        d_x, = torch.autograd.grad(m(x)[0].sum(), x, create_graph=True)
        with pytest.raises(errors.NotThere, match="gradient of a gradient"):
            d_x.sum().backward()


@pytest.mark.parametrize("name", ["e79", "delta", "s5", "embedding"])
def test_other_cells(in_c, long_way, name):
    """With no params, complex ones, places in a table."""
    from conftest import bound_dims, open_dims
    cls = cellc.load(name, **bound_dims(name))
    m = cls(**open_dims(cls))
    sizes = {**dict.fromkeys(m.manifest.dims, 4), **m.sizes, m.manifest.batch: 2, "T": 3, m.manifest.first: 0}
    draw = {"i32": lambda shape: torch.ones(shape, dtype=torch.int32), "f32": torch.rand}
    inputs = [draw[t.dtype](t.shape(sizes)) for t in m.manifest.inputs]

    def run():
        y, state = m(*inputs)
        return [*(y if isinstance(y, tuple) else [y]), *state]

    wanted = long_way(run)
    with torch.no_grad():
        run()
        same(in_c(m.instance.library, run), wanted)


WRONG = {
    "a wrong size": lambda x: x[..., :4].contiguous(),
    "an axis less": lambda x: x[0],
    "another type": lambda x: x.double(),
    "integers": lambda x: x.long(),
    "meta": lambda x: x.to("meta"),
    "no tensor": lambda x: x.numpy(),
    "nothing": lambda x: None,
    "sparse": lambda x: x.to_sparse(),
    "nested": lambda x: torch.nested.as_nested_tensor([x[0], x[1]], layout=torch.jagged),
    "complex": lambda x: x.to(torch.complex64),
}


@pytest.mark.parametrize("how", ["__call__", "step"])
@pytest.mark.parametrize("what", WRONG)
def test_errors_are_the_same(long_way, how, what):
    m, x = lstm(), x_of(2, 3, 5) if how == "__call__" else x_of(2, 5)
    call = getattr(m, how)

    def said():
        try:
            return [call(WRONG[what](x))[0].device]        # of a tensor on meta there are results
        except Exception as error:
            return type(error), str(error)

    wanted = long_way(said)
    with torch.no_grad():
        for _ in range(2):
            call(x)
        assert said() == wanted
    call(x)
    assert said() == wanted


def test_states_and_counts_are_checked():
    m, x = lstm(), x_of(2, 3, 5)
    state = m(x)[1]
    m(x, state=state)
    with pytest.raises(cellc.ShapeError, match="1 states were given"):
        m(x, state=state[:1])
    with pytest.raises(cellc.ShapeError, match="h has shape"):
        m(x, state=[state.h[:, :3].contiguous(), state.c])
    with pytest.raises(cellc.ShapeError, match="2 inputs were given"):
        m(x, x)
    with pytest.raises(cellc.ShapeError, match="T = 4"):
        m(x, steps=4)
    with pytest.raises(cellc.TypeMismatch, match="no input foo"):
        m(x, foo=x)


def test_what_changes_under_the_same_objects(long_way):
    """A param keeps its identity when its memory, strides or type become others."""
    m, x = lstm(), x_of(2, 3, 5)

    def check():
        with torch.no_grad():
            for _ in range(3):
                assert torch.equal(m(x.to(m.bias_hh.dtype))[0], long_way(lambda: m(x.to(m.bias_hh.dtype))[0]))

    check()
    m.weight_hh.data = m.weight_hh.data.t().contiguous().t()       # the same values, other strides
    check()
    m.weight_ih.data = torch.randn(32, 5)
    check()
    m.double()
    check()
    m.bfloat16()
    check()
    m.float()
    m.weight_hh.data = m.weight_hh.data[:, :3]
    for _ in range(2):
        with pytest.raises(cellc.ShapeError, match="weight_hh has shape"):
            m(x)


def test_views_that_are_late():
    """A minus that PyTorch leaves to the next reader, an array that starts anywhere, and other strides."""
    m = cellc.load("hgrn")(D=4)
    good = [torch.rand(2, 3, 4) for _ in range(3)]
    with torch.no_grad():
        wanted = [m(*good)[0] for _ in range(3)][0]
        late = torch._neg_view(-good[0])
        assert late.is_neg() and torch.equal(m(late, *good[1:])[0], wanted)
        apart = torch.empty(25)[1:].copy_(good[0].flatten()).view(2, 3, 4)
        assert apart.data_ptr() % 16 and torch.equal(m(apart, *good[1:])[0], wanted)
        wide = torch.empty(2, 3, 8)[..., ::2].copy_(good[0])
        assert torch.equal(m(wide, *good[1:])[0], wanted)


def test_steps_first_and_other_sizes(long_way):
    m, n = lstm(), cellc.load("lstm")(D=5, H=8, batch_first=False)
    n.load_state_dict(m.state_dict())
    with torch.no_grad():
        for B, T in ((2, 3), (3, 2), (1, 1), (2, 3), (4, 0)):
            x = x_of(B, T, 5)
            for _ in range(2):
                y, state = m(x)
                assert torch.equal(y, long_way(lambda x=x: m(x)[0])) and y.shape == (B, T, 8)
                assert torch.equal(n(x.transpose(0, 1))[0].transpose(0, 1), y)


def test_sizes_of_the_module_count():
    """Two modules of one cell whose params are the same, of which one says more of what it takes."""
    cls = cellc.load("cell ema { dim D; input x[D]; state h[D]; output y[D];"
                     " h'[i] = 0.5*h[i] + x[i]; y[i] = h'[i]; }")
    free, bound, x = cls(), cls(D=4), torch.rand(2, 3, 6)
    with torch.no_grad():
        for _ in range(2):
            free(x)
        with pytest.raises(cellc.ShapeError, match="D = 4"):
            bound(x)


def test_lengths_that_are_wrong(in_c):
    """The library looks at what is in them in each call; the context of a call that failed goes back."""
    m = cellc.load("lstm", lengths=True)(D=5, H=8)
    x, lengths = x_of(2, 3, 5), torch.tensor([2, 3], dtype=torch.int32)
    with torch.no_grad():
        for _ in range(2):
            m(x, lengths)
        library = m.instance.library
        count = len(library.free(None))
        for _ in range(3):
            with pytest.raises(cellc.ShapeError, match="7"):
                in_c(library, lambda: m(x, torch.tensor([2, 7], dtype=torch.int32)))
        in_c(library, lambda: m(x, lengths))
        assert len(library.free(None)) == count


def test_whoever_watches_still_sees_it():
    m, x = lstm(), x_of(2, 3, 5)
    with torch.no_grad():
        wanted = [m(x)[0] for _ in range(3)][0]
        with torch.profiler.profile() as profile:
            m(x)
        assert any(m.instance.ops.name in event.key for event in profile.key_averages())
        with torch.autocast("cpu", torch.bfloat16):
            assert m(x)[0].dtype == torch.bfloat16
        with pytest.raises(errors.NotThere, match="vmap"):
            torch.vmap(lambda x: m(x)[0])(x[None])
        zeros = {name: torch.zeros_like(p) for name, p in m.named_parameters()}
        assert not torch.equal(torch.func.functional_call(m, zeros, (x,))[0], wanted)
        compiled = torch.compile(lambda x: m(x)[0] + 1, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x), wanted + 1) and torch.equal(m(x)[0], wanted)
    with pytest.raises(errors.NotThere, match="torch.func.grad"):
        torch.func.grad(lambda x: m(x)[0].sum())(x)
    torch.nn.utils.parametrizations.weight_norm(m, "weight_hh")
    for _ in range(2):
        m(x)[0].sum().backward()
    assert m.parametrizations.weight_hh.original0.grad is not None


def test_threads(in_c):
    m, x = lstm(), [x_of(2, 3, 5) + i for i in range(4)]
    wanted, wrong = [gradients(m, a.requires_grad_()) for a in x], []

    def work(i):
        for _ in range(50):
            found = gradients_of(i)
            wrong.extend(1 for a, b in zip(found, wanted[i]) if not torch.equal(a, b))

    def gradients_of(i):
        y, state = m(x[i])
        torch_sum = sum((t * w).sum() for t, w in zip((y, *state), weights))
        return [y, *state, *torch.autograd.grad(torch_sum, [x[i], *m.parameters()])]

    torch.manual_seed(5)
    weights = [torch.randn(t.shape) for t in (m(x[0])[0], *m(x[0])[1])]
    wanted = [gradients_of(i) for i in range(4)]
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_child_of_a_fork():
    m, x = lstm(), x_of(2, 3, 5)
    with torch.no_grad():
        wanted = [m(x)[0] for _ in range(2)][0]
        child = os.fork()
        if not child:
            os._exit(0 if torch.equal(m(x)[0], wanted) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_functions_of_pytorch(in_c, long_way):
    f, m, x = cellc.op("lstm"), lstm(), x_of(2, 3, 5)
    params = list(m.parameters())
    wanted = long_way(lambda: f(x, *params))
    for _ in range(2):
        f(x, *params)
    found = in_c(f.instance.library, lambda: f(x, *params))
    assert torch.equal(found[0], wanted[0]) and found[0].requires_grad
    with pytest.raises(cellc.CellcError, match="bias_hh is missing"):
        f(x, *params[:-1])
    assert torch.equal(f(x, *params, state=found[1])[0], f(x, *params, found[1])[0])


# ---- NumPy


def arrays():
    cell = cellc.load("lstm", framework="numpy")
    return cell, cell.init(0, D=5, H=8), np.random.default_rng(1).normal(size=(2, 3, 5)).astype("f4")


def test_numpy(in_c, long_way):
    cell, p, x = arrays()
    for what in (lambda: cell(p, x), lambda: cell(p, x, final_state=False),
                 lambda: cell.step(p, x[:, 0].copy())):
        wanted = long_way(what)
        what()
        y, state = in_c(cell.library, what)
        assert np.array_equal(y, wanted[0]) and y.shape == wanted[0].shape and type(state) is type(wanted[1])
        assert state is None or all(map(np.array_equal, state, wanted[1]))
        assert y.flags.writeable and y.flags.c_contiguous


@pytest.mark.parametrize("what", [
    "x[..., :4]", "x[0]", "x.astype('f8')", "x.astype(complex)", "x.tolist()", "None", "x.astype('i8')",
    "np.ma.array(x)", "x.view(np.recarray)", "x.astype('>f4')", "x[:, ::-1]", "np.asfortranarray(x)",
    "np.frombuffer(b'....' + x.tobytes(), 'f4', offset=4).reshape(x.shape)"])
def test_numpy_takes_and_refuses_the_same(long_way, what):
    cell, p, x = arrays()

    def said():
        try:
            return cell(p, eval(what, {"x": x, "np": np}))[0].tobytes()
        except Exception as error:
            return type(error), str(error)

    wanted = long_way(said)
    for _ in range(2):
        cell(p, x)
    assert said() == wanted and said() == wanted


def test_numpy_params_are_checked():
    cell, p, x = arrays()
    for _ in range(2):
        cell(p, x)
    with pytest.raises(cellc.TypeMismatch, match="bias_hh is missing"):
        cell({name: a for name, a in p.items() if name != "bias_hh"}, x)
    with pytest.raises(cellc.TypeMismatch, match="bias2"):
        cell({**p, "bias2": p["bias_hh"]}, x)
    with pytest.raises(cellc.ShapeError, match="bias_hh has shape"):
        cell({**p, "bias_hh": p["bias_hh"][:4]}, x)
    wide = {name: a.astype("f8") for name, a in p.items()}
    assert np.array_equal(cell(wide, x)[0], cell(p, x)[0])             # params of another type are converted
    frozen = {name: a.copy() for name, a in p.items()}
    for a in frozen.values():
        a.flags.writeable = False
    assert np.array_equal(cell(frozen, x)[0], cell(p, x)[0])


@pytest.fixture
def served(monkeypatch):
    """Runs something of which no call of a store may look at its tensors in Python."""
    def run(what):
        with monkeypatch.context() as m:
            m.setattr(cellc.Sessions, "prepare", None)
            return what()
    return run


def test_sessions(served, monkeypatch):
    m, x = lstm(), x_of(2, 6, 5)
    store, other = cellc.Sessions(m, 4), cellc.Sessions(m, 4)
    a, b = [store.open() for _ in range(2)], [other.open() for _ in range(2)]
    with torch.no_grad():
        monkeypatch.setattr(cellc.sessions, "planned", NoPlans)
        wanted = [other.prefill(b, x[:, :2]), *[other.step(b, x[:, t].contiguous()) for t in range(2, 6)]]
        monkeypatch.undo()
        got = [store.prefill(a, x[:, :2].contiguous()), store.step(a, x[:, 2].contiguous())]
        out = torch.empty(2, 8)
        for t in range(3, 6):                              # other tensors of the same shapes, given or made
            y = served(lambda: store.step(a, x[:, t].contiguous(), out=out if t == 4 else None))  # noqa: B023
            assert (y is out) == (t == 4)
            got.append(y.clone())
        assert all(map(torch.equal, got, wanted))
        third = served(lambda: store.step([a[1], a[0]], x[:, 0].contiguous()))
        assert torch.equal(third, other.step([b[1], b[0]], x[:, 0].contiguous()))
        with pytest.raises(cellc.TypeMismatch, match="2 sessions, and inputs for 1"):
            store.step(a, x[:1, 0].contiguous())
        with pytest.raises(cellc.ShapeError, match="out is not|has shape|wanted"):
            store.step(a, x[:, 0, :4].contiguous())
        with pytest.raises(cellc.TypeMismatch, match="out is not"):
            store.step(a, x[:, 0].contiguous(), out=torch.empty(2, 9))
        with pytest.raises(cellc.CellcError, match="session"):
            store.step([a[0], 77], x[:, 0].contiguous())   # the library says it, in C too
    with pytest.raises(errors.NotThere, match="no gradients"):
        store.step(a, x[:, 0].contiguous().requires_grad_())
    with torch.no_grad():                                  # params count from read_params on
        before = store.fork(a[0])
        m.weight_ih.mul_(2)
        y = store.step([a[0]], x[:1, 0].contiguous())
        assert torch.equal(y, store.step([before], x[:1, 0].contiguous()))
        again = store.fork(a[0])
        store.read_params()
        assert not torch.equal(store.step([a[0]], x[:1, 0].contiguous()), y)
        assert store.steps(again) == store.steps(a[0]) - 1


def test_doctor_says_it():
    said = subprocess.run([sys.executable, "-m", "cellc", "doctor"], capture_output=True, text=True,
                          env={**os.environ, "CELLC_FAST_CALLS": "0"}).stdout
    assert re.search("calls +in Python only: CELLC_FAST_CALLS is 0", said)


def test_without_them():
    """With CELLC_FAST_CALLS=0 there are none, and all is as it was."""
    program = ("import cellc, torch, numpy\n"
               "from cellc import eager, fast, with_numpy\n"
               "assert not eager.planned().there and not with_numpy.planned() and fast.fast().why\n"
               "m = cellc.load('lstm')(D=5, H=8)\n"
               "for _ in range(3): m(torch.ones(2, 3, 5))[0].sum().backward()\n"
               "f = cellc.load('lstm', framework='numpy')\n"
               "for _ in range(3): f.step(f.init(0, D=5, H=8), numpy.ones((2, 5), 'f4'))\n")
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True,
                   env={**os.environ, "CELLC_FAST_CALLS": "0"})
