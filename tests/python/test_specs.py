"""Every shipped spec, in f64 on the CPU: torch.autograd.gradcheck of all inputs, params and initial states through
outputs and final states, and single steps against the whole sequence."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import bound_dims, open_dims, random_inputs, random_state, shipped

import cellc

# What a finite difference cannot judge, as the spec has a stop() in it: the gradient is not the derivative. That of
# cross_entropy is: what it stops is taken off and added again.
STOPPED = {name for name in shipped() if "stop(" in open(f"{cellc.compiler.specs_dir()}/{name}.cell").read()}
STOPPED -= {"cross_entropy"}
DTYPE = torch.float64


@pytest.fixture(scope="module", autouse=True)
def built(request):
    """All that this run wants compiled, several at once, and with little optimisation: more takes longer than it
    saves."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = {call.params["name"] for call in calls if call and call.params.get("name") in shipped()}
    old = os.environ.get("CFLAGS")
    os.environ["CFLAGS"] = "-O1"
    try:
        def build(name):
            return name, cellc.load(name, dtype="f64", settings=bound_dims(name))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(pool.map(build, sorted(wanted)))
        yield found
    finally:
        os.environ.pop("CFLAGS") if old is None else os.environ.update(CFLAGS=old)


def case(cls, batch, steps):
    torch.manual_seed(7)
    dims = open_dims(cls)
    module = cls(**{name: dims[name] for name in cls.instance.needs_sizes()})
    with torch.no_grad():      # params that start as 0 or 1 all alike would hide exchanged ones
        for p in module.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return module, random_inputs(cls, batch, steps, dims, requires_grad=True), dims


@pytest.mark.parametrize("name", shipped())
def test_gradcheck(built, name):
    if name in STOPPED:
        pytest.skip(f"{name} lets no gradient through stop(), so its gradient is not its derivative")
    cls = built[name]
    module, inputs, dims = case(cls, 2, 3)
    m = cls.instance.manifest
    counted = m.counts_steps and m.states
    state = random_state(cls, 2, dims, requires_grad=True)
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

    tensors = (*inputs, *params, *state)
    # Central differences with eps = 1e-6 are off by eps^2 / 6 times a third derivative, here some 1e-12, and by the
    # rounding of a call over eps: a few hundred operations at 1e-16 each are 1e-8. gradcheck's own bounds are wider.
    assert torch.autograd.gradcheck(call, tensors, eps=1e-6, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", shipped())
def test_steps_give_the_sequence(built, name):
    cls = built[name]
    m = cls.instance.manifest
    module, inputs, dims = case(cls, 2, 4)
    with torch.no_grad():
        y, final = module(*inputs)
        if m.counts_steps and not m.states:
            pytest.skip(f"{name} reads the whole past or counts steps, and carries no state from call to call")
        whole = (y,) if isinstance(y, torch.Tensor) else tuple(y)
        state = None
        for t in range(4):
            out, state = module.step(*[x[:, t] for x in inputs], state=state, t0=t)
            out = (out,) if isinstance(out, torch.Tensor) else tuple(out)
            for a, b in zip(out, whole):
                torch.testing.assert_close(a, b[:, t], rtol=1e-12, atol=1e-12)
        for a, b in zip(state, final):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
