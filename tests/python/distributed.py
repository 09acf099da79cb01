"""One of several processes: DistributedDataParallel or FSDP2 gives the gradients of one process. In: the way, ddp or fsdp,
and what torchrun says of the processes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Out: "same", or an error. It runs
over NCCL, on a GPU for each process, where there are as many, else over gloo on the CPU.

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


def main():
    way, world = sys.argv[1], int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    gpus = torch.cuda.device_count() >= world
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo")
    for name, settings in CELLS:
        compare(way, name, settings, device)
    if way == "fsdp":
        shard(device)
    dist.destroy_process_group()
    print("same")


if __name__ == "__main__":
    main()
