"""On a GPU: kernels against the plain C on the CPU, on streams, in CUDA graphs, with autocast. Skipped aloud without a
GPU, or without an nvcc that cellc was built with."""

import pytest
import torch

import cellc
from cellc import build
from cellc.ops import DTYPES
from conftest import bound_dims, open_dims, random_inputs, random_state

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)
if not build.kernel_compiler():
    pytest.skip("there is a GPU, but neither nvcc nor NVRTC, so there are no kernels", allow_module_level=True)

CELLS = ["e79", "e88", "lstm", "gru", "e1", "gated_delta", "delta", "layernorm", "swiglu", "conv4_silu", "mamba2"]
# What one rounding to the type may change, times a few for sums of up to some 30 terms in another order.
BOUND = {"f64": 1e-11, "f32": 1e-4, "bf16": 4e-2, "f16": 5e-3}


def both(name, dtype):
    """The module on both devices, with the same params, and inputs of small but not tiny sizes."""
    torch.manual_seed(5)
    cls = cellc.load(name, dtype=dtype, settings=bound_dims(name))
    dims = open_dims(cls)
    here = cls(**{n: dims[n] for n in cls.instance.needs_sizes()})
    there = cls(**{n: dims[n] for n in cls.instance.needs_sizes()})
    there.load_state_dict(here.state_dict())
    return here, there.cuda(), dims


def leaf(tensor, device):
    return tensor.detach().to(device).requires_grad_(tensor.is_floating_point())


def relative(a, b):
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt().clamp_min(1e-6)).item()


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
@pytest.mark.parametrize("name", CELLS)
def test_kernels_give_what_plain_c_gives(name, dtype):
    here, there, dims = both(name, dtype)
    cls = type(here)
    inputs = random_inputs(cls, 3, 19, dims, dtype=DTYPES[dtype])
    state = [s.to(DTYPES[t.dtype]) for s, t in zip(random_state(cls, 3, dims), cls.instance.manifest.states)]
    found = []
    for module, device in ((here, "cpu"), (there, "cuda")):
        xs, start = [leaf(x, device) for x in inputs], [leaf(s, device) for s in state]
        y, final = module(*xs, state=start or None)
        outs = [*((y,) if isinstance(y, torch.Tensor) else y), *final]
        torch.manual_seed(6)
        loss = sum((o.float() * torch.randn(o.shape).to(device)).sum() for o in outs)
        grads = torch.autograd.grad(loss, [*xs, *start, *module.parameters()], allow_unused=True)
        found.append([*outs, *[g for g in grads if g is not None]])
    assert len(found[0]) == len(found[1])
    for a, b in zip(found[1], found[0]):
        assert a.dtype == b.dtype and relative(a, b) < BOUND[dtype]


def lstm(dtype="f32"):
    here, there, _ = both("lstm", dtype)
    return there


def test_gradcheck():
    m = lstm("f64")
    x = torch.randn(2, 3, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: m(t)[0], (x,), eps=1e-6, atol=1e-6)


def test_on_another_stream():
    m, x = lstm(), torch.randn(4, 50, 3, device="cuda")
    wanted, _ = m(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = x.clone()
        for _ in range(20):
            late = late * 1.0
        y, _ = m(late)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(y, wanted)


def test_cuda_graph():
    m, x = lstm(), torch.randn(4, 10, 3, device="cuda", requires_grad=True)

    def work():
        y, _ = m(x)
        return (y, *torch.autograd.grad(y.sum(), [x, m.weight_hh]))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    for a, b in zip(results, work()):
        torch.testing.assert_close(a, b)


def test_compile_in_one_graph():
    m, x = lstm(), torch.randn(4, 10, 3, device="cuda", requires_grad=True)
    compiled = torch.compile(lambda t: m(torch.sin(t))[0] * 2, fullgraph=True)
    y, z = compiled(x), m(torch.sin(x))[0] * 2
    torch.testing.assert_close(y, z)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(z.sum(), x))


def test_autocast():
    m, linear = lstm("bf16"), torch.nn.Linear(5, 3, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        y, _ = m(linear(torch.randn(2, 6, 5, device="cuda")))
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16 and linear.weight.grad.isfinite().all()


def test_misaligned():
    """A slice that begins where a kernel cannot load a vector is copied."""
    m, flat = lstm("bf16"), torch.randn(1 + 2 * 6 * 3, device="cuda", dtype=torch.bfloat16)
    x = flat[1:].view(2, 6, 3)
    assert torch.equal(m(x)[0], m(x.clone())[0])


def test_devices_are_not_mixed():
    m = lstm()
    with pytest.raises(RuntimeError, match="weight_ih is on cuda:0, but x is on cpu"):
        m(torch.randn(2, 3, 3))


def test_without_kernels():
    cls = cellc.load("lstm", cuda=False)
    with pytest.raises(RuntimeError, match="this build has no kernels: it was loaded with cuda=False"):
        cls(D=3, H=2).cuda()(torch.randn(2, 3, 3, device="cuda"))


def test_out_of_memory():
    m = lstm()
    with pytest.raises(torch.cuda.OutOfMemoryError):
        m(torch.empty(1, 1, 3, device="cuda").expand(1 << 16, 1 << 20, 3))
