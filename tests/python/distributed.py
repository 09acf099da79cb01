"""One of several processes: DistributedDataParallel, FSDP2, steps that are split, or heads that are, give the
outputs and gradients of one process. In: the way, ddp, fsdp, steps or heads, and what torchrun says of the
processes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Out: "same", or an error. It runs over NCCL, on a GPU
for each process, where there are as many, else over gloo on the CPU.

    torchrun --standalone --nproc-per-node 2 tests/python/distributed.py fsdp"""

import os
import sys

import torch
import torch.distributed as dist

try:
    import cellc
except ImportError:                  # in the source tree, not installed
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    import cellc

# Params whose names a module, or Python, has already are other attributes; they are sharded and reduced like all.
NAMED = """
cell named {
    dim D, H;
    input  x[D];
    param  step[H, D] ~ xavier, type[H, H] ~ orthogonal, lambda[H] ~ normal(0.5), _half[H] ~ normal(0.5), forward[H] ~ ones;
    state  h[H] = _half[i];
    output y[H];
    h'[i] = tanh(sum[d] step[i,d] * x[d] + sum[j] type[i,j] * h[j] + lambda[i]) * forward[i];
    y[i] = h'[i];
}
"""
CELLS = [("gru", {}), ("e79", {"N": 8, "bias": "input"}), (NAMED, {})]


class Net(torch.nn.Module):
    def __init__(self, name, settings, cuda):
        super().__init__()
        make = cellc.load(name, cuda=cuda, settings=settings)
        self.a = torch.nn.Linear(4, 6)
        self.cell = make(**{"D": 6, "H": 8} if "H" in make.manifest.dims else {"D": 6})
        self.b = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.b(self.cell(self.a(x))[0])


def compare(way, name, settings, device):
    torch.manual_seed(0)
    rank, world = dist.get_rank(), dist.get_world_size()
    net, alone = (Net(name, settings, device.type == "cuda").to(device) for _ in range(2))
    alone.load_state_dict(net.state_dict())
    x = torch.randn(2 * world, 5, 4).to(device)
    alone(x).square().mean().backward()
    if way == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(net)
    else:
        from torch.distributed.fsdp import fully_shard
        mesh = dist.init_device_mesh(device.type, (world,))
        fully_shard(net.cell, mesh=mesh)
        fully_shard(net, mesh=mesh)
    net(x[2 * rank:2 * rank + 2]).square().mean().backward()
    for (param, p), q in zip(net.named_parameters(), alone.named_parameters()):
        g = p.grad.full_tensor() if way == "fsdp" else p.grad
        # In f32 on both sides; only the order of sums over the batch differs, some hundred roundings of 6e-8.
        torch.testing.assert_close(g, q[1].grad, rtol=1e-5, atol=1e-6, msg=lambda m: f"{name}, {param}: {m}")
    if name == NAMED:
        assert {"step", "type", "lambda", "_half", "forward"} == {t.name for t in net_of(net).cell.instance.manifest.params}
        if way == "ddp":        # a checkpoint has the spec's names, whatever the attributes are
            again = Net(name, settings, device.type == "cuda").to(device)
            again.load_state_dict(net_of(net).state_dict())
            assert all(torch.equal(a, b) for a, b in zip(again.parameters(), net_of(net).parameters()))


def net_of(net):
    return net.module if isinstance(net, torch.nn.parallel.DistributedDataParallel) else net


def shard(device):
    """FSDP2 with params in bf16 has the cell compute in bf16; its params outside of forward are refused by name."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    cell = cellc.load("gru", cuda=device.type == "cuda")(D=6, H=8).to(device)
    fully_shard(cell, mesh=dist.init_device_mesh(device.type, (dist.get_world_size(),)),
                mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    x = torch.randn(2, 5, 6).to(device)
    y, _ = cell(x)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16 and all(p.grad.dtype == torch.float32 for p in cell.parameters())
    cell.reshard()
    try:
        cell.step(x[:, 0])
    except NotImplementedError as error:
        assert "is a DTensor" in str(error), error
    else:
        raise AssertionError("step took sharded params")


# A vector, a matrix and a complex state, one that starts as a param says, past steps, and time from its end.
SPLIT = [("gru", {}, {}), ("e79", {"N": 8, "bias": "input"}, {}), (NAMED, {}, {}), ("complex_lru", {}, {}),
         ("conv4_silu", {}, {}), ("gru", {}, {"reverse": True})]


def split_steps(device):
    """Steps over the processes are the steps of one: outputs, final states, gradients of inputs, states and params."""
    from cellc.distributed import split_steps
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, settings, more in SPLIT:
        torch.manual_seed(0)
        make = cellc.load(name, cuda=device.type == "cuda", dtype="f64", settings=settings, **more)
        sizes = {"D": 6, **({"H": 8} if "H" in make.manifest.dims else {})}
        cell = make(**{k: v for k, v in sizes.items() if k in make.manifest.dims}).to(device)
        for parts in (1, 2):
            T = 3 * world
            cell.zero_grad()
            x = torch.randn(4, T, 6, dtype=torch.complex128 if "complex" in name else torch.float64, device=device,
                            requires_grad=True)
            alone, last = cell(x)
            c = torch.randn_like(alone)
            d = [torch.randn_like(s) for s in last]
            (alone * c).sum().real.add(sum((s * e).sum().real for s, e in zip(last, d))).backward()
            wanted = [x.grad.clone(), *(p.grad.clone() for p in cell.parameters())]
            x.grad = None
            cell.zero_grad()
            own = slice(3 * rank, 3 * rank + 3)
            y, state = split_steps(cell, x[:, own], parts=parts)
            loss = (y * c[:, own]).sum().real
            end = 0 if more.get("reverse") else world - 1
            if rank == end:
                loss = loss + sum((s * e).sum().real for s, e in zip(state, d))
                for s, e in zip(state, last):
                    torch.testing.assert_close(s, e, rtol=1e-12, atol=1e-12)
            loss.backward()
            torch.testing.assert_close(y, alone[:, own], rtol=1e-12, atol=1e-12)
            made = [x.grad, *(p.grad for p in cell.parameters())]
            for g, w in zip(made, wanted):
                dist.all_reduce(torch.view_as_real(g) if g.is_complex() else g)
                # f64; sums in another order.
                torch.testing.assert_close(g, w, rtol=1e-11, atol=1e-11, msg=lambda m: f"{name}: {m}")
    q, k, v = (torch.randn(2, 2 * world, 3, 4, dtype=torch.float64, device=device, requires_grad=True) for _ in range(3))
    attention = cellc.op("causal_attention", cuda=device.type == "cuda", dtype="f64", N=4, V=4)
    alone = attention(q, k, v)[0]
    c = torch.randn_like(alone)
    wanted = torch.autograd.grad((alone * c).sum(), (q, k, v))
    own = slice(2 * rank, 2 * rank + 2)
    y, _ = split_steps(attention, q[:, own], k[:, own], v[:, own], parts=2)
    torch.testing.assert_close(y, alone[:, own], rtol=1e-12, atol=1e-12)
    (y * c[:, own]).sum().backward()
    for x, w in zip((q, k, v), wanted):
        dist.all_reduce(x.grad)
        torch.testing.assert_close(x.grad, w, rtol=1e-11, atol=1e-11)
    functional = cellc.op("gru", cuda=device.type == "cuda", dtype="f64")
    params = [torch.randn(s, dtype=torch.float64, device=device) for s in ((9, 6), (9, 3), (9,), (9,))]
    x = torch.randn(2, 2 * world, 6, dtype=torch.float64, device=device)
    y, _ = split_steps(functional, x[:, 2 * rank:2 * rank + 2], *params)
    torch.testing.assert_close(y, functional(x, *params)[0][:, 2 * rank:2 * rank + 2])
    for wrong, said in ((lambda: split_steps(cell, x, parts=5), "cannot be cut into 5 equal parts"),
                        (lambda: split_steps(torch.nn.Linear(2, 2), x), "takes a cell that cellc made, not a Linear")):
        try:
            wrong()
        except cellc.CellcError as error:
            assert said in str(error), error
        else:
            raise AssertionError(f"not refused: {said}")


class Heads(torch.nn.Module):
    """What docs/python.md has of heads over the processes: projections by columns, the cell on the heads that are here, the
    projection back by rows."""

    def __init__(self, heads, size, width, cuda):
        super().__init__()
        self.size = size
        self.cell = cellc.op("delta", cuda=cuda, N=size, V=size, dtype="f64")
        self.q, self.k, self.v = (torch.nn.Linear(width, heads * size, bias=False, dtype=torch.float64) for _ in range(3))
        self.strength = torch.nn.Linear(width, heads, dtype=torch.float64)
        self.out = torch.nn.Linear(heads * size, width, bias=False, dtype=torch.float64)

    def forward(self, x):
        def heads(y):
            return y.unflatten(-1, (-1, self.size))
        y, _ = self.cell(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)), self.strength(x), final_state=False)
        return self.out(y.flatten(-2))


def split_heads(device):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    world = dist.get_world_size()
    torch.manual_seed(0)
    net, alone = (Heads(2 * world, 4, 6, device.type == "cuda").to(device) for _ in range(2))
    alone.load_state_dict(net.state_dict())
    x = torch.randn(2, 5, 6, dtype=torch.float64, device=device)
    parallelize_module(net, dist.init_device_mesh(device.type, (world,)),
                       {**{name: ColwiseParallel() for name in ("q", "k", "v", "strength")},
                        "out": RowwiseParallel()})
    for module in (net, alone):
        module(x).square().sum().backward()
    torch.testing.assert_close(net(x), alone(x), rtol=1e-11, atol=1e-11)
    for (name, p), q in zip(net.named_parameters(), alone.parameters()):
        torch.testing.assert_close(p.grad.full_tensor(), q.grad, rtol=1e-11, atol=1e-11, msg=lambda m: f"{name}: {m}")


def main():
    way, world = sys.argv[1], int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    gpus = torch.cuda.device_count() >= world
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo")
    if way == "steps":
        split_steps(device)
    elif way == "heads":
        split_heads(device)
    else:
        for name, settings in CELLS:
            compare(way, name, settings, device)
    if way == "fsdp":
        shard(device)
    dist.destroy_process_group()
    print("same")


if __name__ == "__main__":
    main()
