"""Every shipped spec, in f64 on the CPU: torch.autograd.gradcheck of all inputs, params and initial states through
outputs and final states, and single steps against the whole sequence."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from conftest import STOPPED, bound_dims, case, gradcheck, shipped

import cellc

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
            return name, cellc.load(name, dtype="f64", cuda=False, settings=bound_dims(name))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(pool.map(build, sorted(wanted)))
        yield found
    finally:
        os.environ.pop("CFLAGS") if old is None else os.environ.update(CFLAGS=old)


@pytest.mark.parametrize("name", shipped())
def test_gradcheck(built, name):
    if name in STOPPED:
        pytest.skip(f"{name} lets no gradient through stop(), so its gradient is not its derivative")
    assert gradcheck(built[name], "cpu")


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


@pytest.mark.parametrize("name", shipped())
def test_no_steps(built, name):
    """Without steps, without sequences and without both: nothing comes out, states stay, and gradients of params are 0."""
    cls = built[name]
    for batch, steps in ((2, 0), (0, 3), (0, 0)):
        module, inputs, dims = case(cls, batch, steps)
        y, final = module(*inputs)
        outputs = (y,) if isinstance(y, torch.Tensor) else tuple(y)
        assert all(o.shape[:2] == (batch, steps) for o in outputs)
        assert all(s.shape[0] == batch for s in final)
        sum((o * o.conj()).real.sum() for o in outputs).backward()
        assert all(p.grad is None or not p.grad.any() for p in module.parameters())
