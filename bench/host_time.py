#!/usr/bin/env python3
"""What a call from PyTorch takes on the host: cells of a few numbers on the CPU, where the work itself is under 2 us, without
gradients and with all of them, and PyTorch's own layers of the same kind beside them. Medians of 50 blocks of 100 calls, by
turns, in us. `host_time.py cuda`: the same on a GPU, where the host does not wait for what it launches but at a block's
end, and where the driver's queue is full.
Needs PyTorch; PYTHONPATH and CELLC choose another tree's package and compiler."""
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parent.parent / "python"))       # behind PYTHONPATH
import cellc  # noqa: E402

BLOCKS, CALLS = 50, 100
CELLS = (("linear_act", {}, {"D": 4, "F": 4}), ("lstm", {}, {"D": 4, "H": 4}), ("e79", {"N": 4, "bias": "input"}, {"D": 4}))


def calls(module, x):
    """What is timed of a module: a call that keeps nothing, and one with gradients of all."""
    leaves = [x, *module.parameters()]

    def infer():
        with torch.no_grad():
            module(x)

    def train():
        y = module(x)
        y = y[0] if isinstance(y, tuple) else y
        torch.autograd.grad(y, leaves, torch.ones_like(y))

    return infer, train


def main():
    warnings.simplefilter("ignore", cellc.CellcWarning)
    torch.set_num_threads(1)
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    x = torch.randn(1, 1, 4, device=device, requires_grad=True)
    modules = {name: cellc.load(name, **bound)(**sizes) for name, bound, sizes in CELLS}
    modules["PyTorch: Linear, GELU"] = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    modules["PyTorch: LSTM"] = torch.nn.LSTM(4, 4, batch_first=True)
    modules = {name: module.to(device) for name, module in modules.items()}
    runs = {(name, what): call for name, module in modules.items() for what, call in zip(("infer", "train"), calls(module, x))}
    for call in runs.values():
        for _ in range(CALLS):
            call()
    times = {key: [] for key in runs}
    for _ in range(BLOCKS):
        for key, call in runs.items():
            wait()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[key].append((time.perf_counter() - begin) / CALLS * 1e6)
    print(f"{'us a call':24} {'inference':>10} {'with gradients':>15}")
    for name in modules:
        print(f"{name:24} {statistics.median(times[name, 'infer']):10.1f} {statistics.median(times[name, 'train']):15.1f}")


if __name__ == "__main__":
    main()
