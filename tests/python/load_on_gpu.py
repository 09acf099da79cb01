"""How long loading takes: E79 in plain C, compiled by nvcc and by NVRTC, then from the cache, and the first call. In:
PyTorch, a built source tree, how many times, which of cpu, nvcc, nvrtc (all that are there). Out: a table of milliseconds;
the last line is the sum, and a load from the cache of 50 ms or more fails.

    python3 tests/python/load_on_gpu.py                 # 9 times
    python3 tests/python/load_on_gpu.py 25 nvrtc

Each run is a process that has PyTorch, with its CUDA started, and nothing of cellc. Bytecode is kept, as Python does with an
installed package. Without a GPU the kernels are compiled and opened all the same, for sm_90, and nothing is called on them."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
BOUND = 50.0        # ms


def run(by):
    """[import, load, processor's time of both, first call], ms."""
    os.environ["CELLC_KERNELS"] = "" if by == "cpu" else by
    warnings.simplefilter("ignore")
    there, kernels = torch.cuda.is_available(), by != "cpu"
    if there:
        torch.zeros(1, device="cuda").item()
    start, spent = time.perf_counter(), time.process_time()
    import cellc
    import cellc.with_torch
    imported = time.perf_counter()
    cls = cellc.load("e79", N=32, bias="input", dtype="bf16", cuda=kernels, archs="90" if kernels and not there else None)
    loaded, spent = time.perf_counter(), time.process_time() - spent
    device = "cuda" if there and kernels else "cpu"
    cell, x = cls(D=128).to(device), torch.zeros(2, 3, 128, dtype=torch.bfloat16, device=device)
    begin = time.perf_counter()
    cell(x)[0].float().sum().item()
    return [1e3 * t for t in (imported - start, loaded - imported, spent, time.perf_counter() - begin)]


def apart(by):
    """The same in a process of its own, which is not forked off: its pages would have to be copied first."""
    done = subprocess.run([sys.executable, __file__, "once", by], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stderr}load_on_gpu: {by} failed")
    return json.loads(done.stdout)


def main():
    if sys.argv[1:2] == ["once"]:
        print(json.dumps(run(sys.argv[2])))
        return 0
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    ways, failed = sys.argv[2:] or ["cpu", "nvcc", "nvrtc"], 0
    print(f"{'kernels by':>10} {'first':>8} {'cached':>8} {'quickest':>8} {'import':>8} {'load':>8} {'CPU':>8} {'call':>8}")
    with tempfile.TemporaryDirectory() as place:
        os.environ["CELLC_CACHE"] = os.path.join(place, "cache")
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(place, "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for by in ways:
            first = apart(by)
            found = [apart(by) for _ in range(runs)]
            both = [one[0] + one[1] for one in found]
            failed += statistics.median(both) >= BOUND
            print(f"{by:>10} {first[0] + first[1]:8.0f} {statistics.median(both):8.1f} {min(both):8.1f} "
                  + " ".join(f"{statistics.median(column):8.1f}" for column in zip(*found)), flush=True)
    print(f"{len(ways) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
