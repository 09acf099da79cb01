"""Names of a spec that C, the call or Python have already: they are bound by the spec's name."""

import copy
import importlib.util
import pickle

import numpy
import pytest
import torch

import cellc

SPEC = """cell taken {
    dim I, B, t0, log;
    input  x[B];
    param  class[I, B], int[t0], real[log];
    output y[I], z[t0], lambda[log];
    y[i] = sum[b] class[i,b] * x[b] * B;
    z[i] = int[i] + t0;
    lambda[i] = real[i] * I;
}"""


def test_dims_are_bound_by_the_names_of_the_spec():
    cell = cellc.load(SPEC, framework="numpy", dtype="f64")
    params = {"class": numpy.array([[1., 2, 3], [4, 5, 6]]), "int": numpy.arange(5.), "real": numpy.array([7.])}
    (y, z, last), _ = cell(params, numpy.ones((4, 2, 3)))
    assert y.shape == (4, 2, 2) and (y == [18, 45]).all()
    assert (z == [5, 6, 7, 8, 9]).all() and (last == 14).all()
    made = cell.init(0, I=2, B=3, t0=5, log=1)
    assert {name: value.shape for name, value in made.items()} == {"class": (2, 3), "int": (5,), "real": (1,)}


ATTRIBUTES = """cell attributes {
    dim D;
    input  x[D];
    param  step[D], type[D], half[D], training[D], forward[D], sizes[D], lambda[D], lambda_[D], _parameters[D], param[D], w[D];
    const param buffers[D];
    state  count[D], _s[D], class[D], class_[D];
    output y[D], index[D], __[D];
    y[d] = step[d] * x[d] + 2 * type[d] + 3 * half[d] + 4 * training[d] + 5 * forward[d] + 6 * sizes[d] + 7 * lambda[d]
         + 8 * lambda_[d] + 9 * _parameters[d] + 10 * buffers[d] + 11 * param[d] + w[d];
    count'[d] = count[d] + y[d];
    _s'[d] = _s[d] + 1;
    class'[d] = class[d] + 2;
    class_'[d] = class_[d] + 3;
    index[d] = count'[d];
    __[d] = _s'[d] + class'[d] + class_'[d];
}"""
PARAMS = "step type half training forward sizes lambda lambda_ _parameters param w buffers".split()


def attributes():
    cell = cellc.load(ATTRIBUTES, cuda=False)(D=3)
    with torch.no_grad():
        for n, name in enumerate(PARAMS):
            cell.param(name).copy_(torch.arange(3) + n)
    return cell, torch.ones(2, 4, 3)


def test_params_that_are_attributes_of_modules():
    cell, x = attributes()
    assert list(cell.state_dict()) == [
        "step_", "type_", "half_", "training_", "forward_", "sizes_", "lambda__", "lambda_", "_parameters_", "param_", "w", "buffers_"]
    assert cell.param("w") is cell.w and cell.param("step") is cell.step_ and "step (here step_)" in type(cell).__doc__
    (y, *_), _ = cell(x)
    want = sum((torch.arange(3.) + n) * k for n, k in enumerate([1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 1, 10]))
    assert (y == want).all()
    with pytest.raises(cellc.TypeMismatch, match="attributes: there is no param setp; there is step, .*; did you mean step"):
        cell.param("setp")


def test_modules_with_such_params_are_modules():
    cell, x = attributes()
    want = cell(x)[0].y
    assert cell.double().float().to("cpu").eval().train().training
    made = cellc.load(ATTRIBUTES, cuda=False)
    for same in (copy.deepcopy(cell), copy.copy(cell), pickle.loads(pickle.dumps(cell))):
        assert torch.equal(same(x)[0].y, want)
    loaded, by_the_spec = made(D=3), made(D=3)
    loaded.load_state_dict(cell.state_dict(), assign=True)
    by_the_spec.load_state_dict({name: cell.param(name) for name in PARAMS})
    for other in (loaded.eval(), by_the_spec):
        assert torch.equal(other(x)[0].y, want)
    call = torch.func.functional_call(cell, {"step_": torch.zeros(3)}, (x,))[0].y
    assert torch.equal(call, want - cell.param("step"))
    (torch.compile(cell, fullgraph=True, backend="eager")(x)[0].y.sum() + cell(x)[0].y.sum()).backward()
    assert (cell.param("type").grad == 32).all() and cell.param("buffers").grad is None
    assert torch.equal(torch.export.export(cell, (x,)).module()(x)[0].y, want)


def test_a_class_made_from_one_has_attributes_of_its_own():
    class Mine(cellc.load(ATTRIBUTES, cuda=False)):
        def w(self):
            return 5

    cell, x = attributes()
    mine = Mine(D=3)
    mine.load_state_dict(cell.state_dict())
    assert mine.w() == 5 and torch.equal(mine(x)[0].y, cell(x)[0].y)
    cell.load_state_dict(mine.state_dict())


def test_states_and_outputs_of_any_name():
    cell, x = attributes()
    outputs, state = cell(x)
    assert outputs._fields == ("y", "index", "v__") and state._fields == ("count", "v_s", "class__", "class_")
    more = [cell(x, state=given)[1] for given in (state, list(state), {"count": state[0], "_s": state[1], "class": state[2],
                                                                     "class_": state[3]}, state._asdict())]
    assert all(torch.equal(a, b) for one in more for a, b in zip(one, more[0])) and (more[0][2] == 16).all()
    assert pickle.loads(pickle.dumps(state))._fields == state._fields


KEYWORDS = """cell keywords {
    dim device, batch_first, seed, key, sizes, self, name, lambda;
    dim cuda = 2;
    option reverse = off | on;
    const lengths = 3;
    input  state[device], t0[device], x[device], cls[device], params[device];
    param  a[device], b[batch_first], c[seed], d[key], e[sizes], f[self], g[name], h[lambda];
    output y[device];
    y[i] = state[i] + 2 * t0[i] + 3 * x[i] * a[i] + 5 * cls[i] + 7 * params[i] + sum[j:batch_first] b[j] + sum[j:seed] c[j]
         + sum[j:key] d[j] + sum[j:sizes] e[j] + sum[j:self] f[j] + sum[j:name] g[j] + sum[j:lambda] h[j] + cuda * lengths;
}"""
SIZES = {name: n for n, name in enumerate("device batch_first seed key sizes self name lambda".split(), 1)}


def test_dims_and_inputs_that_are_keywords():
    made = cellc.load(KEYWORDS, cuda=False)
    cells = [made(device="cpu", sizes=SIZES), made(self=6, seed=3, key=4, name=7, sizes={
        name: SIZES[name] for name in ("device", "batch_first", "sizes", "lambda")})]
    assert cells[0].sizes == cells[1].sizes == SIZES
    with pytest.raises(cellc.ShapeError, match=r"as in keywords\(seed=64, key=64, name=64, sizes={\"device\": 64, "):
        made()
    with pytest.raises(cellc.TypeMismatch, match="the size of the dim device is given as sizes={\"device\": 4}"):
        made(device=4)
    with pytest.raises(cellc.TypeMismatch, match="sizes is 4; wanted a dict, as in sizes={\"sizes\": 64}"):
        made(sizes=4)
    inputs = [numpy.full((2, 3, 1), n, numpy.float32) for n in range(5)]
    named = {"x": inputs[2], "cls": inputs[3], "params_": inputs[4]}
    frameworks = [("numpy", 0, "seed")]
    if importlib.util.find_spec("jax"):
        import jax
        frameworks.append(("jax", jax.random.key(0), "key"))
    for framework, start, keyword in frameworks:
        cell = cellc.load(KEYWORDS, framework=framework)
        params = cell.init(start, sizes=SIZES)
        assert cell.init(**{keyword: start}, sizes=SIZES).keys() == params.keys() == set("abcdefgh")
        others = {name: n for name, n in SIZES.items() if name not in ("sizes", "self")}
        assert cell.init(start, sizes={"sizes": 5, "self": 6}, **others)["d"].shape == (4,)
        params = {name: numpy.ones_like(value) for name, value in params.items()}
        want = 2 + 6 + 15 + 28 + sum(range(2, 9)) + 6
        assert (cell(params, *inputs)[0] == want).all() and (cell(params, *inputs[:2], **named)[0] == want).all()
        with pytest.raises(cellc.TypeMismatch, match="there is no input sate; .*; did you mean state?"):
            cell(params, *inputs[:4], sate=inputs[4])
    torch_inputs, params = [torch.tensor(one) for one in inputs], [torch.tensor(one) for one in params.values()]
    op = cellc.op(KEYWORDS, cuda=False)
    named = {name: torch.tensor(value) for name, value in named.items()}
    for y in (op(*torch_inputs, *params)[0], op(*torch_inputs[:2], **named, **dict(zip("abcdefgh", params)))[0]):
        assert (y == want).all()
    with torch.no_grad():
        for param in cells[0].parameters():
            param.fill_(1)
    assert (cells[0](*torch_inputs[:2], **named)[0] == want).all()
    with pytest.raises(cellc.ShapeError, match="The input state is given by position, or as state_="):
        cells[0](torch_inputs[0], state=torch_inputs[1])
    with pytest.raises(cellc.ShapeError, match="wanted 5 inputs: state, t0, x, cls, params; t0, cls is missing"):
        cells[0](torch_inputs[0], params_=torch_inputs[1], x=torch_inputs[2])
    with pytest.raises(cellc.TypeMismatch, match="keywords: x was given twice"):
        cells[0](*torch_inputs, x=torch_inputs[2])


def test_settings_that_are_keywords_of_load():
    for name in ("dtype", "framework", "archs", "schedule", "tuned", "import_dir", "products", "reverse", "lengths", "settings", "cuda"):
        with pytest.raises(cellc.TypeMismatch, match=f"{name} is 4; wanted .*given as settings={{'{name}': 4}}"):
            cellc.load(KEYWORDS, **{name: 4})
    made = cellc.load(spec=KEYWORDS, cuda=False, settings={"cuda": 4, "reverse": "on", "lengths": 5})
    assert made.manifest.bound == {"cuda": "4"} and made.manifest.options == {"reverse": "on"}
    with pytest.raises(cellc.ShapeError, match=r"there is no dim Seed; .*; did you mean seed\?"):
        made(Seed=3)
    values = [SIZES[name] for name in made.instance.needs_sizes()]
    assert made(*values).sizes == made(sizes=SIZES).sizes == SIZES           # which have no names by position


def test_names_of_operators_are_different():
    """The cotangent of `y` is an argument beside an input that is called like it."""
    cell = cellc.load("cell cotangents { dim D; input into_y[D], lambda[D], self[D]; output y[D]; "
                      "y[i] = into_y[i] * lambda[i] + self[i]; }", cuda=False)()
    x = torch.ones(1, 2, 3, requires_grad=True)
    cell(2 * x, 3 * x, x)[0].sum().backward()
    assert (x.grad == 13).all()


def test_library_names():
    """What the words of files and of C are, in cells."""
    for name in ("main", "None", "double", "_x", "C" * 128):
        made = cellc.load(f"cell {name} {{ dim D; input x[D]; param w[D]; output y[D]; y[i] = 2 * x[i] * w[i]; }}", framework="numpy")
        assert made.manifest.name == name and (made({"w": numpy.ones(3, "f")}, numpy.ones((1, 2, 3), "f"))[0] == 2).all()
    for name in ("cell", "cell_run", "math"):
        with pytest.raises(cellc.SpecError, match=f"a cell cannot be called '{name}'"):
            cellc.load(f"cell {name} {{ dim D; input x[D]; output y[D]; y[i] = x[i]; }}", framework="numpy")
