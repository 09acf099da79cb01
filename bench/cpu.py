"""The cpu backend beside PyTorch's own CPU code. In: cells of specs/ and what PyTorch has for the same work.
Out: a table of milliseconds, forward and forward with backward of all gradients, by turns in one process,
the least of several rounds, and ours over the peer's; with --json FILE the numbers too. Processor time of
one thread (--threads 1) is what a machine that others use as well can measure; with more threads it is
time on the clock."""

import argparse
import json
import os
import platform
import sys
import time
import warnings

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(root, "python"))
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--threads", type=int, default=1)
arguments.add_argument("--rounds", type=int, default=5)
arguments.add_argument("--json", metavar="FILE")
arguments.add_argument("--only", default="", help="cases whose name has this word")
given = arguments.parse_args()
os.environ["OMP_NUM_THREADS"] = str(given.threads)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import cellc  # noqa: E402

warnings.simplefilter("ignore")
torch.set_num_threads(given.threads)
clock = time.process_time if given.threads == 1 else time.perf_counter


def spec(name):
    return os.path.join(root, "specs", f"{name}.cell")


def first(result):
    return result[0] if isinstance(result, tuple) else result


def recurrent(name, peer, H, B, T):
    ours, theirs = cellc.load(spec(name))(D=H, H=H), peer(H, H, batch_first=True)
    x = torch.randn(B, T, H, requires_grad=True)
    return lambda: first(ours(x)), lambda: theirs(x)[0]


def layernorm(rows, D):
    ours, theirs = cellc.load(spec("layernorm"))(D=D), torch.nn.LayerNorm(D)
    x = torch.randn(1, rows, D, requires_grad=True)
    return lambda: first(ours(x)), lambda: theirs(x)


def swiglu(rows, D):
    ours = cellc.load(spec("swiglu"))(D=D)
    g, u = (torch.randn(1, rows, D, requires_grad=True) for _ in range(2))
    return lambda: first(ours(g, u)), lambda: F.silu(g) * u


def cases():
    for name, peer in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
        for H, T in ((256, 128), (512, 32), (1024, 8)):
            yield f"{name} {H}, B 16, T {T}", lambda n=name, p=peer, H=H, T=T: recurrent(n, p, H, 16, T)
    yield "layernorm 2048 x 1024", lambda: layernorm(2048, 1024)
    yield "swiglu 2048 x 1024", lambda: swiglu(2048, 1024)


def forward(run):
    with torch.no_grad():
        run()


def both(run):
    run().sum().backward()


def least(way, run):
    times = []
    for _ in range(3):
        start = clock()
        way(run)
        times.append(clock() - start)
    return min(times) * 1e3


def measure(make):
    ours, theirs = make()
    found = {}
    for name, way in (("forward", forward), ("forward and backward", both)):
        best = [float("inf")] * 2
        for _ in range(given.rounds):
            for i, run in enumerate((ours, theirs)):
                best[i] = min(best[i], least(way, run))
        found[name] = {"ours": best[0], "peer": best[1], "ratio": best[0] / best[1]}
    return found


def processor():
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


results = {}
what = "processor time" if given.threads == 1 else "time"
print(
    f"{processor()}, {given.threads} threads, PyTorch {torch.__version__}: ms of {what}, least of {given.rounds} rounds"
)
print(f"{'':28}{'forward':>9}{'peer':>9}{'ratio':>7}   {'with grads':>10}{'peer':>9}{'ratio':>7}")
for title, make in cases():
    if given.only not in title:
        continue
    results[title] = found = measure(make)
    a, b = found["forward"], found["forward and backward"]
    print(
        f"{title:28}{a['ours']:9.2f}{a['peer']:9.2f}{a['ratio']:7.2f}   {b['ours']:10.2f}{b['peer']:9.2f}{b['ratio']:7.2f}",
        flush=True,
    )
if given.json:
    with open(given.json, "w") as f:
        json.dump(
            {
                "processor": processor(),
                "threads": given.threads,
                "torch": torch.__version__,
                "results": results,
            },
            f,
            indent=1,
        )
