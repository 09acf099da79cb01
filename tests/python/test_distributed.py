"""Several processes: DistributedDataParallel, FSDP2, split steps and split heads give what one process does
(distributed.py), over gloo on the CPU, or over NCCL where there are two GPUs."""

import os
import socket
import subprocess
import sys

import pytest
import torch

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "distributed.py")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
@pytest.mark.parametrize("way", ["ddp", "fsdp", "steps", "heads"])
def test_gradients_of_two_processes(way):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
           "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2"}
    running = [subprocess.Popen([sys.executable, "-W", "ignore", PROGRAM, way], env={**env, "RANK": str(rank)}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
    for process in running:
        out, err = process.communicate(timeout=500)
        assert out == "same\n", err
