"""On a GPU: kernels against the plain C on the CPU, on streams, in CUDA graphs, with autocast. Skipped aloud without a
GPU, or without an nvcc that cellc was built with."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

import cellc
from cellc import build, eager
from cellc.ops import DTYPES
from conftest import STOPPED, bound_dims, gradcheck, open_dims, random_inputs, random_state, shipped

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no GPU", allow_module_level=True)
if not build.kernel_compiler():
    pytest.skip("there is a GPU, but neither nvcc nor NVRTC, so there are no kernels", allow_module_level=True)

CELLS = ["e79", "e88", "lstm", "gru", "e1", "gated_delta", "delta", "layernorm", "swiglu", "conv4_silu", "mamba2"]
# What one rounding to the type may change, times a few for sums of up to some 30 terms in another order.
BOUND = {"f64": 1e-11, "f32": 1e-4, "bf16": 4e-2, "f16": 5e-3}


def load(name, dtype):
    return cellc.load(name, dtype=dtype, settings=bound_dims(name))


@pytest.fixture(scope="module", autouse=True)
def in_f64(request):
    """All that is compared here, compiled at once."""
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    wanted = sorted({(c["name"], c.get("dtype", "f64")) for c in calls if c.get("name") in shipped()})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda pair: load(*pair), wanted))
    return {name: cls for (name, dtype), cls in zip(wanted, found) if dtype == "f64"}


def both(name, dtype):
    """The module on both devices, with the same params, and inputs of small but not tiny sizes."""
    torch.manual_seed(5)
    cls = load(name, dtype)
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


@pytest.mark.parametrize("name", shipped())
def test_gradcheck(in_f64, name):
    if name in STOPPED:
        pytest.skip(f"{name} lets no gradient through stop(), so its gradient is not its derivative")
    assert gradcheck(in_f64[name], "cuda")


def plain_e79(p, x):
    """E79 as one would write it in PyTorch, step by step."""
    n = p["b_s_gate"].numel()
    s = m = x.new_zeros(len(x), n, n)
    out = []
    for t in range(x.shape[1]):
        k, v, q, w = (x[:, t] @ p["W_kvqm"].T).split(n, -1)
        kn, mn = (a / (a.norm(dim=-1, keepdim=True) + 1e-6) for a in (k, w))
        rows = torch.sigmoid(torch.einsum("bij,bj->bi", m, kn) + p["b_s_gate"])
        columns = torch.sigmoid(torch.einsum("bij,bi->bj", m, kn) + p["b_s_gate"])
        change = v - torch.einsum("bij,bj->bi", s, kn)
        s = rows[:, :, None] * s * columns[:, None] + change[:, :, None] * kn[:, None]
        rows = torch.sigmoid(torch.einsum("bij,bj->bi", s, mn) + p["b_m_gate"])
        columns = torch.sigmoid(torch.einsum("bij,bi->bj", s, mn) + p["b_m_gate"])
        change = change - torch.einsum("bij,bj->bi", m, mn)
        m = rows[:, :, None] * m * columns[:, None] + change[:, :, None] * mn[:, None]
        r = torch.einsum("bij,bj->bi", s, q)
        out.append(r * F.silu(r))
    return torch.stack(out, 1)


def test_training_is_that_of_plain_torch():
    """The same optimiser on both, from the same weights: the losses fall in step."""
    torch.manual_seed(8)
    cell = cellc.load("e79", N=16)(D=24).cuda()
    plain = {n: p.detach().clone().requires_grad_() for n, p in cell.named_parameters()}
    x, wanted = torch.randn(4, 20, 24, device="cuda"), torch.randn(4, 20, 16, device="cuda").tanh()
    losses = []
    for call, params in ((lambda: cell(x)[0], list(cell.parameters())), (lambda: plain_e79(plain, x), plain.values())):
        optimiser = torch.optim.AdamW(params, lr=1e-2)
        losses.append([])
        for _ in range(50):
            optimiser.zero_grad()
            loss = F.mse_loss(call(), wanted)
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert losses[0][-1] < 0.8 * losses[0][0]
    # In f32, where Adam divides by the root of a gradient squared, which multiplies roundings where that is near 0: one
    # rounding of a gradient, 1e-7 through some hundred steps of the recurrence, once more for each step of training.
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


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


def test_past_the_dispatcher(monkeypatch):
    """The same bits as by the operators, whichever GPU is the current one."""
    m, x = lstm(), torch.randn(2, 6, 3, device="cuda", requires_grad=True)
    found = []
    for known in (True, False):
        monkeypatch.setattr(eager, "known", known)
        with torch.cuda.device(torch.cuda.device_count() - 1):
            y, state = m(x)
            found.append([y, *state, *torch.autograd.grad(y.sum(), [x, *m.parameters()])])
        assert y.grad_fn.name().startswith("cellc_lstm") == known
    assert all(torch.equal(a, b) and a.device == x.device for a, b in zip(*found))


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


@pytest.mark.parametrize("dtype, size", [("f32", 16), ("f32", 5), ("bf16", 16), ("f16", 12)])
def test_histories_in_pieces(dtype, size):
    """What a call leaves of all steps is what came, at its place, whether rows begin at multiples of 16 bytes or not; without
    final states results are the same. Nothing is rounded on the way, so all is equal."""
    m, stored = cellc.load("causal_attention", N=size, V=size, dtype=dtype)(), DTYPES[dtype]
    q, k, v = (torch.randn(2, 9, 3, size, device="cuda").to(stored) for _ in range(3))
    whole, state = m(q, k, v)
    assert torch.equal(state.k_history, k) and torch.equal(state.v_history, v)
    part, seen = m(*(t[:, :4] for t in (q, k, v)))
    rest, last = m(*(t[:, 4:] for t in (q, k, v)), state=seen, t0=4)
    assert torch.equal(seen.k_history, k[:, :4]) and torch.equal(last.k_history, k) and torch.equal(last.v_history, v)
    loose = {"f32": 1e-5, "f16": 2 ** -9, "bf16": 2 ** -6}[dtype]        # sums in another order, then rounded: four units or less
    torch.testing.assert_close(torch.cat([part, rest], 1), whole, rtol=loose, atol=loose)
    y, none = m(q, k, v, final_state=False)
    assert none is None and torch.equal(y, whole)


def test_a_module_follows_its_type():
    m, x = lstm(), torch.randn(2, 6, 3, device="cuda")
    with torch.no_grad():
        y, _ = m(x)
        z, state = m.bfloat16()(x.bfloat16())
    assert z.dtype == torch.bfloat16 and state.c.dtype == torch.float32
    torch.testing.assert_close(z.float(), y, rtol=0, atol=0.03)       # of params and inputs rounded to 8 bits, outputs below 1


@pytest.mark.parametrize("rows", [1, 3, 16, 130])
@pytest.mark.parametrize("left, right", [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_products_of_8_bits(left, right, rows):
    """By cuBLASLt, of the codes themselves: products of two numbers of 8 bits are exact in f32, and of its sums a tensor core
    leaves out less than 2^-13 of the largest, for each of D terms. Copies in bf16 would be off by up to 2^-9 of each factor, as
    scales are no powers of two."""
    D = 256
    layer = cellc.load(f"""cell product {{
        dim D, F;
        input x[D] : {left};
        param W[F,D] : {right} ~ xavier;
        output y[F] : f32;
        y[f] = sum[d] W[f,d] * x[d];
    }}""", dtype="bf16")(D=D, F=48).cuda()
    layer.encode()
    codes, scale = cellc.encode(torch.rand(1, rows, D, device="cuda") + 0.1, left)
    layer.x_scale.copy_(scale)
    fits = torch.cuda.get_device_capability() >= (8, 9)
    with torch.no_grad():
        y = layer(codes)[0][0].double()
    x, W = cellc.decode(codes, scale)[0].double(), cellc.decode(layer.W.detach(), layer.W_scale).double()
    terms = x[:, None, :] * W
    largest = torch.maximum(terms.abs(), terms.cumsum(-1).abs()).amax(-1)
    exact = terms.sum(-1)
    assert ((y - exact).abs() <= largest * D * 2 ** (-13 if fits else -8)).all()
    assert not fits or (y - exact).norm() < 2 ** -11 * exact.norm()         # 1.2e-4 on an H200, and copies are off by 1.2e-3
    # A gradient is that of copies in bf16.
    x = (torch.rand(1, rows, D, device="cuda") + 0.1).bfloat16().requires_grad_()
    layer(x)[0].sum().backward()
    torch.testing.assert_close(x.grad[0, 0].double(), W.sum(0), rtol=2 ** -6, atol=2 ** -6)


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


def gradients_of(module, x, **more):
    torch.manual_seed(7)
    y, state = module(x, **more)
    loss = (y * torch.randn_like(y)).sum() + sum((s * torch.randn_like(s)).sum() for s in state)
    return torch.autograd.grad(loss, [x, *module.parameters()])


@pytest.mark.parametrize("name", ["lstm", "minlstm", "e79"])
def test_states_in_host_memory(name):
    """Gradients with states in pinned memory are those of the whole reserve, and have the same bits call after call, while the
    memory of a call before is used again."""
    module = both(name, "f32")[1]
    dims = open_dims(type(module))
    x = torch.randn(4, 300, dims.get("D", 8), device="cuda").requires_grad_()
    whole = gradients_of(module, x)
    with pytest.raises(cellc.ShapeError) as error:
        module(x, reserve=1, offload=True)
    least = int(re.search(r"the least is (\d+)", str(error.value))[1])
    for budget in (least, 3 * least):
        first = gradients_of(module, x, reserve=budget, offload=True)
        for one, other in zip(whole, first):
            assert relative(other, one) < BOUND["f32"]
        for _ in range(5):
            for one, other in zip(first, gradients_of(module, x, reserve=budget, offload=True)):
                assert torch.equal(one, other)
    module(x, reserve=least, offload=True)          # what a first call sets up
    torch.cuda.synchronize()
    refused = pytest.raises(Exception, match="offload=True is not there in a CUDA graph")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        module(x, reserve=least, offload=True)
