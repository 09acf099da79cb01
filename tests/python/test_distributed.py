"""Several processes: DistributedDataParallel and FSDP2 over gloo on the CPU give the gradients of one process."""

import os
import socket
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import sys, torch, cellc
import torch.distributed as dist
way, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", rank=rank, world_size=2)
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 6), torch.nn.Linear(8, 2)
        self.cell = cellc.load("gru", cuda=False)(D=6, H=8)
    def forward(self, x):
        return self.b(self.cell(self.a(x))[0])
net, alone = Net(), Net()
alone.load_state_dict(net.state_dict())
x = torch.randn(4, 5, 4)
alone(x).square().mean().backward()
if way == "ddp":
    net = torch.nn.parallel.DistributedDataParallel(net)
else:
    from torch.distributed.fsdp import fully_shard
    mesh = dist.init_device_mesh("cpu", (2,))
    fully_shard(net.cell, mesh=mesh)
    fully_shard(net, mesh=mesh)
net(x[2 * rank:2 * rank + 2]).square().mean().backward()
for (name, p), q in zip(net.named_parameters(), alone.parameters()):
    g = p.grad.full_tensor() if way == "fsdp" else p.grad
    torch.testing.assert_close(g, q.grad, msg=name)
dist.destroy_process_group()
print("same")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_gradients_of_two_processes(way):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
           "GLOO_SOCKET_IFNAME": "lo"}
    running = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROGRAM, way, str(rank)], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
    for process in running:
        out, err = process.communicate(timeout=500)
        assert out == "same\n", err
