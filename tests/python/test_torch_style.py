"""As users of torch.nn write: sizes by position, the state behind the inputs, models that print in a screen, documentation
with sections, errors that say which module of the model they are about."""

import copy
import inspect
import re

import pytest
import torch
from conftest import shipped

import cellc
import cellc.nn

TWO = """cell two {                           // of two inputs
    dim D;                                   // width of both
    dim H;
    input a[D], b[D];
    param W[H, D] ~ normal(0.5);
    state h[H];
    output y[H];
    h'[i] = 0.5 * h[i] + sum[d] W[i,d] * (a[d] - 2 * b[d]);
    y[i] = h'[i];
}"""


def x_of(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


def close(a, b):
    """Of a call and its pieces: products of other sizes may add up in another order. Up to 12 terms, and up to
    6 steps that hand on what they have: 72 roundings of 6e-8."""
    return bool((abs(a - b) <= 5e-6 * abs(b).max()).all())


# ---- sizes

def test_sizes_by_position():
    LSTM = cellc.load("lstm")
    assert LSTM(5, 7).sizes == LSTM(5, H=7).sizes == LSTM(D=5, H=7).sizes == LSTM(5, sizes={"H": 7}).sizes == {"D": 5, "H": 7}
    assert LSTM(5, 7, batch_first=False).weight_hh.shape == (28, 7)
    for given, named, message in [
            ((5,), {}, "its params need the size of H, as in lstm"),
            ((5, 7, 9), {}, "3 sizes were given by position; wanted 2: D, H"),
            ((5, 7), {"H": 7}, "the size H was given twice"), ((5,), {"sizes": {"D": 5, "H": 7}}, "the size D was given twice"),
            ((5, "cuda"), {}, "H is 'cuda'; wanted a whole number"), ((5, 0), {}, "H is 0; wanted a whole number of at least 1")]:
        with pytest.raises((cellc.TypeMismatch, cellc.ShapeError), match=message):
            LSTM(*given, **named)
    with pytest.raises(cellc.TypeMismatch, match="1 sizes were given by position; its params need none"):
        cellc.load("delta")(4)


@pytest.mark.parametrize("framework", ["jax", "numpy"])
def test_sizes_of_params_by_position(framework):
    first = 0
    if framework == "jax":
        first = pytest.importorskip("jax").random.key(0)
    lstm = cellc.load("lstm", framework=framework)
    assert lstm.init(first, 5, 7)["weight_hh"].shape == (28, 7)
    assert (lstm.init(first, 5, 7)["weight_ih"] == lstm.init(first, D=5, H=7)["weight_ih"]).all()
    with pytest.raises(cellc.TypeMismatch, match="the size D was given twice"):
        lstm.init(first, 5, D=5, H=7)


# ---- states

def test_state_by_position():
    torch.manual_seed(1)
    lstm, x = cellc.load("lstm")(5, 7), x_of(2, 6, 5)
    y, (h, c) = lstm(x)
    first, state = lstm(x[:, :4])
    for given in (state, tuple(state), list(state), state._asdict()):
        rest, last = lstm(x[:, 4:], given)
        assert close(torch.cat([first, rest], 1), y) and close(last.c, c) and close(last.h, h)
    assert torch.equal(lstm(x, None)[0], y) and torch.equal(lstm(x, (None, None))[0], y)
    one, last = lstm.step(x[:, 4], state)
    assert close(lstm.step(x[:, 5], last)[0], y[:, 5]) and close(one, y[:, 4])
    with pytest.raises(cellc.TypeMismatch, match="lstm: the state was given twice, by position and as state="):
        lstm(x, state, state=state)
    with pytest.raises(cellc.ShapeError, match="lstm: 2 inputs were given; wanted 1: x"):        # two states, so no state
        lstm(x, h)
    with pytest.raises(cellc.ShapeError, match="lstm: 3 inputs were given; wanted 1: x"):
        lstm(x, h, c)
    gru = cellc.load("gru")(5, 7)
    assert torch.equal(gru(x, h)[0], gru(x, state=h)[0]) and not torch.equal(gru(x, h)[0], gru(x)[0])
    with pytest.raises(cellc.ShapeError, match=r"gru: h has shape \[2, 6, 5\]; wanted"):
        gru(x, x)


def test_state_behind_several_inputs():
    cell, a, b, h = cellc.load(TWO)(3, 4), x_of(2, 5, 3), x_of(2, 5, 3).flip(1), x_of(2, 4)
    want = cell(a, b, state=h)[0]
    assert torch.equal(cell(a, b, h)[0], want) and torch.equal(cell(b=b, a=a, state=h)[0], want)
    with pytest.raises(cellc.ShapeError, match="wanted 2 inputs: a, b; b is missing|1 inputs were given; wanted 2"):
        cell(a)
    call = cellc.op(TWO)
    assert torch.equal(call(a, b, cell.W, h)[0], want)
    assert close(call.step(a[:, 0], b[:, 0], cell.W, h)[0], want[:, 0])
    none = cellc.load("swiglu")()                                  # no states: what generic code hands on is taken
    g, u = x_of(2, 3, 4), x_of(2, 3, 4)
    y, state = none(g, u)
    assert torch.equal(none(g, u, state)[0], y) and torch.equal(none(g, u, None)[0], y)


def test_state_by_position_is_traced():
    lstm, x = cellc.load("lstm")(5, 7), x_of(2, 6, 5)
    y, state = lstm(x)
    want = lstm(x, state)[0]
    assert torch.equal(torch.compile(lstm, fullgraph=True, backend="eager")(x, state)[0], want)
    assert torch.equal(torch.export.export(lstm, (x, state)).module()(x, state)[0], want)


@pytest.mark.parametrize("framework", ["jax", "numpy"])
def test_state_of_functions_by_position(framework):
    np = pytest.importorskip("jax.numpy" if framework == "jax" else "numpy")
    lstm = cellc.load("lstm", framework=framework)
    first = pytest.importorskip("jax").random.key(0) if framework == "jax" else 0
    params, x = lstm.init(first, 5, 7), np.asarray(x_of(2, 6, 5).numpy())
    y, state = lstm(params, x)
    want = lstm(params, x, state=state)[0]
    assert (lstm(params, x, state)[0] == want).all()
    assert close(lstm.step(params, x[:, 0], tuple(state))[0], want[:, 0])
    if framework == "numpy":
        y, _, pull = lstm.vjp(params, x, state)
        assert (y == want).all() and pull(y).state.h.shape == (2, 7)


# ---- errors

class Layer(torch.nn.Module):
    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, x):
        return self.core(x)[0]


class Model(torch.nn.Module):
    def __init__(self, *cores):
        super().__init__()
        self.layers = torch.nn.Sequential(*map(Layer, cores))

    def forward(self, x):
        return self.layers(x)


def test_errors_say_which_module():
    LSTM = cellc.load("lstm")
    model = Model(LSTM(5, 7), LSTM(6, 7))
    wrong = r"^lstm: x has shape \[2, 3, 7\]; wanted \[B, T, D\] with D = 6, as the module says"
    with pytest.raises(cellc.ShapeError, match=wrong + r" \(this cell is layers.1.core of Model\)$"):
        model(x_of(2, 3, 5))
    with pytest.raises(cellc.ShapeError, match=wrong + "$"):          # by itself it is part of nothing
        model.layers[1].core(x_of(2, 3, 7))
    with pytest.raises(cellc.TypeMismatch, match=r"x is float64.*\(this cell is layers.0.core of Model\)$") as found:
        model(x_of(2, 3, 5).double())
    assert found.value.place == ("layers.0.core", "Model")
    wrapped = torch.nn.Sequential(model)
    with pytest.raises(cellc.ShapeError, match=r"\(this cell is 0.layers.1.core of Sequential\)$"):
        wrapped(x_of(2, 3, 5))


def test_errors_of_layers_say_which_module():
    """Block and LSTM of cellc.nn, functional cells in a module, and steps."""
    block = cellc.nn.Block(cellc.load("gru"), 8, H=8)
    with pytest.raises(cellc.ShapeError, match=r"h has shape.*\(this cell is 0.core.cell of Sequential\)$"):
        torch.nn.Sequential(Given(block))(x_of(2, 3, 8))
    lstm = torch.nn.Sequential(cellc.nn.LSTM(5, 7, batch_first=True))
    with pytest.raises(cellc.ShapeError, match=r"lstm: weight_ih has shape.* as x .* says \(this cell is 0 of Sequential\)$"):
        lstm(x_of(2, 3, 6))


class Given(torch.nn.Module):
    """A layer that hands on a state of a wrong shape."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, x):
        return self.core.step(x[:, 0], (None, x))[0]


def test_errors_while_compiling():
    """There the frames are dynamo's, and the message is as it was."""
    model = Model(cellc.load("lstm")(5, 7), cellc.load("lstm")(6, 7))
    with pytest.raises(Exception, match=r"wanted \[B, T, D\] with D = 6"):
        torch.compile(model, backend="eager", fullgraph=True)(x_of(2, 3, 5))
    right = Model(cellc.load("lstm")(5, 7), cellc.load("lstm")(7, 7))
    x = x_of(2, 3, 5)
    assert torch.equal(torch.compile(right, backend="eager", fullgraph=True)(x), right(x))


# ---- documentation

def test_repr_of_a_model_fits_the_screen():
    model = Model(cellc.load("lstm")(5, 7), cellc.load("gru")(7, 7))
    assert repr(model) == inspect.cleandoc("""
        Model(
          (layers): Sequential(
            (0): Layer(
              (core): lstm(D=5, H=7, dtype=f32)
            )
            (1): Layer(
              (core): gru(D=7, H=7, reset=after, update=keep, dtype=f32)
            )
          )
        )""")
    assert repr(copy.deepcopy(model).half().layers[0].core) == "lstm(D=5, H=7, dtype=f16)"


def test_sections():
    doc = cellc.load(TWO).__doc__
    assert [line for line in doc.splitlines() if re.fullmatch(r"[A-Z][a-z]+::?", line)] == ["Args:", "Shape:", "Examples::"]
    for line in ("    D (int): width of both", "    H (int): a size", "    param   W [H, D] f32 ~ normal(0, 0.5)",
                 "    >>> cell = two(D=4, H=4)", "    >>> y, state = cell(a, b)"):
        assert line in doc.splitlines()
    assert "\nLSTM (Hochreiter, Schmidhuber 1997;" in cellc.load("lstm").__doc__
    assert "\nOf two.\nAnd more.\n" in cellc.load("// Of two.\n// And more.\n" + TWO).__doc__


@pytest.mark.parametrize("extent,line", [("D / (D - 4)", "x = torch.randn((2, 3, 2))"), ("D - 20", None), ("D - 5", "(2, 3, 3)")])
def test_sizes_of_examples(extent, line):
    """Of 4, 8 and 12 the first that gives all inputs a shape; where none does, the cell is loaded all the same."""
    doc = cellc.load("cell odd { dim D; input u[D], x[%s]; output y[D]; y[i] = u[i] + sum[j] x[j]; }" % extent).__doc__
    assert line in doc if line else "Examples" not in doc


def examples_of(cell):
    return re.findall(r"^    >>> (.*)$", cell.__doc__, re.M)


# Their sizes must divide each other, or be even: 4 does not do for all dims.
PECULIAR = set()


@pytest.mark.parametrize("name", [name for name in shipped() if name not in PECULIAR])
def test_examples_run(name):
    """What the documentation of a cell has one type."""
    cell = cellc.load(name)
    names = {cell.manifest.name: cell, "torch": torch}
    for line in examples_of(cell):
        exec(line, names)
    assert "y" in names


@pytest.mark.parametrize("framework", ["jax", "numpy"])
@pytest.mark.parametrize("name", ["lstm", "embedding", "s5", "window_attention", "rope"])
def test_examples_of_functions_run(name, framework):
    module = pytest.importorskip(framework)
    cell = cellc.load(name, framework=framework)
    names = {cell.name: cell, framework: module}
    for line in examples_of(cell):
        exec(line, names)
    assert "y" in names
