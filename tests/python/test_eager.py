"""Calls past PyTorch's dispatcher: the same results as the operators, none where somebody watches, and what was found right
once is not taken for right when it is something else."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cellc
from cellc import eager, native


def lstm(**options):
    torch.manual_seed(3)
    return cellc.load("lstm")(D=5, H=7, **options)


def x_of(*shape, **options):
    torch.manual_seed(4)
    return torch.randn(*shape, **options)


class Operators(TorchDispatchMode):
    """Remembers which operators ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def operators(monkeypatch):
    """Counts the calls of lstm's operators."""
    ops, count = lstm().instance.ops, []
    for name in ("forward", "backward"):
        def counted(*arguments, run=getattr(ops, name), name=name):
            count.append(name)
            return run(*arguments)
        monkeypatch.setattr(ops, name, counted)
    return count


def results(m, x, **options):
    """Outputs, final states and all gradients of a call, and of one step behind it without gradients."""
    y, state = m(x, **options)
    leaves = [x, *m.parameters(), *(t for t in (options.get("state") or ()) if t.requires_grad)]
    torch.manual_seed(5)
    gradients = torch.autograd.grad([y, *state], leaves, [torch.randn_like(t) for t in (y, *state)])
    with torch.no_grad():
        z, last = m.step(x[:, 0] if m.batch_first else x[0], state=state)
    return [y, *state, *gradients, z, *last]


@pytest.mark.parametrize("options", [{}, {"batch_first": False}])
@pytest.mark.parametrize("given", [False, True])
def test_same_as_the_operators(monkeypatch, operators, options, given):
    m = lstm(**options)
    x = x_of(2, 3, 5, requires_grad=True)
    state = None
    if given:
        batch = 2 if m.batch_first else 3
        state = m.instance.State(*(x_of(batch, 7, requires_grad=True) for _ in m.instance.manifest.states))
    direct = results(m, x, state=state)
    assert operators == []
    monkeypatch.setattr(eager, "known", False)
    through = results(m, x, state=state)
    assert operators == ["forward", "backward", "forward"]
    assert len(direct) == len(through) and all(torch.equal(a, b) for a, b in zip(direct, through))
    assert [t.requires_grad for t in direct] == [t.requires_grad for t in through]


def test_watchers_see_the_operator(operators):
    m, x = lstm(), x_of(2, 3, 5, requires_grad=True)
    with Operators() as seen:
        y, _ = m(x)
        y.sum().backward()
    name = m.instance.ops.name.replace("::", ".")
    assert f"{name}.default" in seen.names and f"{name}_backward.default" in seen.names
    assert operators == ["forward", "backward"]
    with torch.profiler.profile() as profile:
        m(x)[0].sum().backward()
    events = {event.name for event in profile.events()}
    assert {m.instance.ops.name, m.instance.ops.name + "_backward"} <= events
    assert len(operators) == 4
    y, _ = m(x)
    with Operators() as seen:            # backward alone
        y.sum().backward()
    assert f"{name}_backward.default" in seen.names and operators[4:] == ["backward"]
    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with torch.profiler.profile(experimental_config=everywhere):
        m(x)
    assert operators[5:] == ["forward"]


def test_subclasses_and_other_devices_take_the_operator(operators):
    class Mine(torch.Tensor):
        pass

    m, x = lstm(), x_of(2, 3, 5)
    y, _ = m(x)
    assert operators == []
    mine, _ = m(x.as_subclass(Mine))
    assert operators == ["forward"] and type(mine) is Mine and torch.equal(mine.as_subclass(torch.Tensor), y)
    assert m.to("meta")(x.to("meta"))[0].shape == (2, 3, 7)
    assert operators == ["forward"] * 2
    with torch.overrides.BaseTorchFunctionMode():
        lstm()(x)
    assert operators == ["forward"] * 3
    with torch.device("cpu"):            # a mode as well, but it sees nothing that leaves a device to it
        lstm()(x)
    assert operators == ["forward"] * 3


def test_tensors_that_are_more_than_memory(operators):
    m, x = lstm(), x_of(2, 3, 5)
    zeros = torch._efficientzerotensor((2, 3, 5))
    assert torch.equal(m(zeros)[0], m(torch.zeros(2, 3, 5))[0]) and operators == ["forward"]
    leaked = []
    torch.func.grad(lambda t: leaked.append(t) or t.sum())(x)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(NotImplementedError, match="torch.func.grad"):
            m(leaked[0])
    with torch.inference_mode():
        inside = m(x.clone())[0]
        assert torch.equal(inside, m(x)[0]) and inside.is_inference()
    assert operators == ["forward"]


def test_below_autograd(operators):
    """Where autograd is switched off for another operator's sake, a cell has no gradients of its own."""
    m, x = lstm(), x_of(2, 3, 5)

    @torch.library.custom_op("cellc_tests::around", mutates_args=())
    def around(t: torch.Tensor) -> torch.Tensor:
        return m(t)[0]

    assert not torch.ops.cellc_tests.around(x).requires_grad and operators == ["forward"]
    with torch.inference_mode(), torch.enable_grad():
        assert not m(x)[0].requires_grad
    assert operators == ["forward"] * 2


def test_autograd_names_the_cell():
    y, _ = lstm()(x_of(2, 3, 5))
    z, _ = cellc.load("linear_act")(D=5, F=7)(x_of(2, 3, 5))
    assert y.grad_fn.name() == "cellc_lstmBackward" and z.grad_fn.name() == "cellc_linear_actBackward"


def test_many_gradients_at_once_are_refused():
    m, x = lstm(), x_of(2, 3, 5, requires_grad=True)
    y, _ = m(x)
    for call in (lambda: torch.autograd.grad(y, x, torch.ones(4, *y.shape), is_grads_batched=True),
                 lambda: torch.autograd.functional.jacobian(lambda x: m(x)[0], x, vectorize=True)):
        with pytest.raises(NotImplementedError, match="lstm: many gradients at once .* cellc::lstm_.*_backward has no rule"):
            call()


def test_saved_tensors_are_checked_and_packed(operators):
    m, x = lstm(), x_of(2, 3, 5, requires_grad=True)
    wanted = torch.autograd.grad(m(x)[0].sum(), x)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t.clone(), lambda t: t):
        y, _ = m(x)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], wanted[0]) and x.shape in packed
    y, _ = m(x)
    with torch.no_grad():
        m.weight_hh.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    assert operators == []


def test_reserve_is_freed():
    m, x = lstm(), x_of(2, 3, 5, requires_grad=True)
    y, _ = m(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_what_was_right_once():
    m, x = lstm(), x_of(2, 3, 5)
    for _ in range(2):
        first, _ = m(x)
        with pytest.raises(cellc.ShapeError, match=r"x has shape \[2, 3, 4\]"):
            m(x_of(2, 3, 4))
        with pytest.raises(cellc.TypeMismatch, match="x is float64"):
            m(x.double())
        with pytest.raises(cellc.TypeMismatch, match="x is a sparse"):
            m(x.to_sparse())
        with pytest.raises(cellc.TypeMismatch, match="x is a nested tensor"):
            m(torch.nested.nested_tensor([x[0], x[1]]))
        with pytest.raises(cellc.TypeMismatch, match="x is None"):
            m(None)
        with pytest.raises(cellc.BackendError, match="weight_ih is on cpu, but x is on meta"):
            m(x.to("meta"))
        with pytest.raises(cellc.ShapeError, match="batch says"):
            m(x, batch=3)
        assert m(x, batch=2, steps=3)[0].shape == (2, 3, 7)
        assert m(x.transpose(0, 1))[0].shape == (3, 2, 7)
        assert torch.equal(m(x)[0], first)
    other = cellc.load("lstm")(D=5, H=6)         # another module of the same instance
    assert other.instance is m.instance and other(x)[0].shape == (2, 3, 6)
    m.weight_hh = torch.nn.Parameter(m.weight_hh.data[:, :6].contiguous())
    with pytest.raises(cellc.ShapeError, match=r"weight_hh has shape \[28, 6\]"):
        m(x)


def test_number_of_the_first_step():
    """It is no part of what was found right."""
    source = "cell clock { dim N; input x[N]; state s[N]; output y[N]; s'[i] = s[i] + x[i] * (t + 1); y[i] = s'[i]; }"
    m, x = cellc.load(source)(), x_of(1, 2, 3)
    for t0 in (0, 5, 0, 7):
        for _ in range(2):
            y, state = m(x, t0=t0)
            torch.testing.assert_close(y[0, 0], x[0, 0] * (t0 + 1))
            torch.testing.assert_close(m(x, state=state, t0=t0 + 2)[0][0, 1], y[0, 1] + x[0, 0] * (t0 + 3) + x[0, 1] * (t0 + 4))
    with pytest.raises(cellc.ShapeError, match="a call that continues needs t0"):
        m(x, state=state)
    for wrong, kind in ((-1, cellc.ShapeError), (True, cellc.ShapeError), (0.5, cellc.TypeMismatch), ("a", cellc.TypeMismatch)):
        with pytest.raises(kind, match="t0 is"):
            m(x, t0=wrong)


def test_conversions_are_not_forgotten():
    """Params in f32 beside a cell in bf16, and all of it under autocast: each call converts, and gradients come back."""
    m, x = cellc.load("lstm", dtype="bf16")(D=5, H=7).float(), x_of(2, 3, 5, dtype=torch.bfloat16, requires_grad=True)
    for _ in range(3):
        y, _ = m(x)
        grads = torch.autograd.grad(y.float().sum(), [x, *m.parameters()])
        assert y.dtype == torch.bfloat16 and [g.dtype for g in grads] == [torch.bfloat16] + [torch.float32] * 4
        with torch.no_grad():
            m.weight_hh.add_(0.25)
            assert not torch.equal(m(x)[0], y)
        assert m(x.float())[0].dtype == torch.float32               # the module's own type
        with pytest.raises(cellc.TypeMismatch, match="x is float16; this instance stores it as float32, as weight_ih is"):
            m(x.half())
        with torch.autocast("cpu", torch.bfloat16):
            z, _ = m(x.float())
        assert z.dtype == torch.bfloat16 and torch.equal(z, m(x)[0])
    assert any(types for types, _ in m.instance.right.values())


def test_as_many_as_one_likes(monkeypatch):
    monkeypatch.setattr(native, "MOST_REMEMBERED", 3)
    m = lstm()
    wanted = {t: m(x_of(2, t, 5))[0] for t in range(1, 9)}
    for t in [*range(1, 9), 1, 8]:
        assert torch.equal(m(x_of(2, t, 5))[0], wanted[t])
    assert 0 < len(m.instance.right) <= 3


def test_step_of_several_steps():
    op, m = cellc.op("lstm"), lstm()
    x = x_of(2, 5, requires_grad=True)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), pytest.raises(cellc.ShapeError, match="lstm: a step with T = 200; wanted 1"):
            op.step(x, *m.parameters(), sizes={"T": 200})
    assert op.step(x, *m.parameters(), sizes={"T": 1})[0].shape == (2, 7)
