"""What all tests of the Python package share: small sizes for any spec, and the closing line that counts them."""

import os
import re
import types
import warnings

import pytest
import torch

import cellc
from cellc import compiler, eager
from cellc.ops import DTYPES

# The sizes of tests/ladder/collection.sh: small, and different from each other, so that exchanged axes show.
BOUND = (4, 3, 5, 2, 2, 2)
OPEN = (3, 2, 4, 2, 3)

torch.set_num_threads(1)


@pytest.fixture
def no_plans(monkeypatch):
    """No call goes in C, so that a test can look into it."""
    monkeypatch.setattr(eager, "planned", lambda: types.SimpleNamespace(there=False))


def pytest_configure(config):
    warnings.filterwarnings("ignore", category=cellc.CellcWarning, message=".*sees no GPU.*")


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*sees no GPU.*"))


def pytest_unconfigure(config):
    """The last line is the sum, as of every suite of this repository."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        return
    count = {key: len(reporter.stats.get(key, [])) for key in ("passed", "failed", "error", "skipped")}
    failed = count["failed"] + count["error"]
    print(f"{count['passed']} passed, {failed} failed" + (f", {count['skipped']} skipped" if count["skipped"] else ""))


def shipped():
    names = sorted(name[:-5] for name in os.listdir(compiler.specs_dir()) if name.endswith(".cell"))
    return [name for name in names if name != "std"]


# What a finite difference cannot judge, as the spec has a stop() in it: the gradient is not the derivative. That of
# cross_entropy is: what it stops is taken off and added again.
STOPPED = {name for name in shipped() if "stop(" in open(f"{compiler.specs_dir()}/{name}.cell").read()}
STOPPED -= {"cross_entropy"}


def bound_dims(name):
    """The dims of a spec that have a value, with small ones in its place."""
    with open(os.path.join(compiler.specs_dir(), name + ".cell")) as f:
        text = re.sub(r"//.*", "", f.read())
    lines = re.findall(r"^    dim ([^;]*);", text, re.M)
    names = re.findall(r"(\w+) = ", " ".join(line + " " for line in lines))
    return dict(zip(names, BOUND))


def open_dims(cls):
    return dict(zip(cls.instance.manifest.dims, OPEN))


def stored(tensor, dtype):
    return DTYPES[tensor.dtype] if tensor.dtype[0] == "c" else dtype


def random_inputs(cls, batch, steps, dims, dtype=torch.float64, requires_grad=False):
    found = []
    for t in cls.instance.manifest.inputs:
        shape = t.shape({**dims, "B": batch, "T": steps})
        if t.dtype == "i32":       # places, in axes of two or more
            found.append(torch.randint(2, shape, dtype=torch.int32))
        else:
            x = torch.randn(shape, dtype=stored(t, dtype)).mul(0.7)
            found.append(x.requires_grad_(requires_grad and t.gradient))
    return found


def random_state(cls, batch, dims, dtype=torch.float64, requires_grad=False):
    return [torch.randn(t.shape({**dims, "B": batch}), dtype=stored(t, dtype)).mul(0.3).requires_grad_(requires_grad)
            for t in cls.instance.manifest.states]


def case(cls, batch, steps, device="cpu"):
    """A module, inputs and the sizes of dims, in f64."""
    torch.manual_seed(7)
    dims = open_dims(cls)
    module = cls(**{name: dims[name] for name in cls.instance.needs_sizes()})
    with torch.no_grad():      # params that start as 0 or 1 all alike would hide exchanged ones
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    inputs = random_inputs(cls, batch, steps, dims)
    return module.to(device), [x.to(device).requires_grad_(x.dtype != torch.int32 and t.gradient)
                               for x, t in zip(inputs, cls.instance.manifest.inputs)], dims


def gradcheck(cls, device):
    """Gradients of inputs, params and initial states through outputs and final states."""
    module, inputs, dims = case(cls, 2, 3, device)
    m = cls.instance.manifest
    counted = m.counts_steps and m.states
    state = [s.to(device).requires_grad_() for s in random_state(cls, 2, dims)]
    names = [n for n, _ in module.named_parameters()]
    params = [p.detach().clone().requires_grad_() for _, p in module.named_parameters()]

    def call(*tensors):
        end = len(tensors) - len(state)
        given, values, start = tensors[:len(inputs)], tensors[len(inputs):end], tensors[end:]
        y, final = torch.func.functional_call(
            module, dict(zip(names, values)), given,
            {"state": start or None, "t0": 5 if counted else None})
        outputs = (y,) if isinstance(y, torch.Tensor) else tuple(y)
        return tuple(o for o in (*outputs, *final) if o.requires_grad)

    # Central differences with eps = 1e-6 are off by eps^2 / 6 times a third derivative, here some 1e-12, and by the
    # rounding of a call over eps: a few hundred operations at 1e-16 each are 1e-8. gradcheck's own bounds are wider.
    return torch.autograd.gradcheck(call, (*inputs, *params, *state), eps=1e-6, atol=1e-6, rtol=1e-5)
