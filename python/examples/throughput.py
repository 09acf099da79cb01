"""Training speed of several cells in the same language model, as a table: tokens a second, median over steps.

    python throughput.py                              # on a GPU: five cells and PyTorch's LSTM at 50 million params, bf16
    python throughput.py --cells e88 torch.LSTM --params 1e8 --length 2048 --batch 4
    python throughput.py --device cpu --params 2e5 --width 64 --batch 2 --length 32 --dtype f32 --seconds 2
    python throughput.py --commands                   # the same as runs of lm.py, one line for each cell

All have the same width, and as many layers as bring them nearest to --params. A step is forward, backward, clipping and
AdamW. Compiling comes first, all cells at once, and is not in the figures; nor are the first steps, in which libraries
choose their kernels. Bits per byte are those of the text that was trained on, after --steps steps of each cell, which are
the same bytes for all."""

import argparse
import math
import shlex
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from lm import OPTICKS, loss_of, read_text, windows
from model import Model, groups, load_cell, pairs

# What a cell is loaded with, and sizes that do not follow from the width of its inputs and outputs.
CELLS = {
    "e1": ([], {}),
    "e79": (["N=32", "bias=input"], {}),
    "e88": (["N=32", "V=32"], {"H": lambda width: max(1, width // 32)}),
    "gated_delta": (["N=64", "V=64"], {}),
    "lstm": ([], {}),
    "torch.LSTM": ([], {}),
}
WARMUP = 5


def arguments():
    p = argparse.ArgumentParser(description="Compares the training speed of cells in the same language model.")
    p.add_argument("--cells", nargs="*", default=list(CELLS), help=f"any cell of cellc, torch.LSTM, torch.GRU "
                   f"({', '.join(CELLS)}); NAME:N=32,bias=input sets dims and options")
    p.add_argument("--params", type=float, default=50e6)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--seconds", type=float, default=4, help="how long each cell is timed at least (4)")
    p.add_argument("--steps", type=int, default=60, help="train each for at least so many, and say the loss there (60)")
    p.add_argument("--rate", type=float, default=6e-4)
    p.add_argument("--dtype", default="bf16", choices=["f32", "bf16", "f16"], help="of cells; params stay f32")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--text", default=OPTICKS)
    p.add_argument("--compile", action="store_true", help="run the models through torch.compile")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--commands", action="store_true", help="print command lines for lm.py instead")
    return p.parse_args()


def setup(label, width):
    """(name, settings as words, sizes) of one of --cells."""
    name, _, words = label.partition(":")
    settings, sizes = CELLS.get(name, ([], {}))
    return name, words.split(",") if words else settings, {k: f(width) for k, f in sizes.items()}


def layers_for(cls, sizes, a):
    """How many layers come nearest to --params, counted without memory for them."""
    with torch.device("meta"):
        one, two = (sum(p.numel() for p in Model(cls, 256, a.width, n, sizes).parameters()) for n in (1, 2))
    return max(1, 1 + round((a.params - one) / (two - one)))


def command(label, layers, a):
    name, words, sizes = setup(label, a.width)
    line = ["python", "lm.py", "--cell", name, *(["--set", *words] if words else [])]
    line += ["--size", *(f"{k}={v}" for k, v in sizes.items())] if sizes else []
    for key in ("width", "batch", "length", "rate", "dtype", "device"):
        line += [f"--{key}", str(getattr(a, key))]
    return shlex.join([*line, "--layers", str(layers), "--out", f"lm-{name}"])


def wait(a):
    if a.device.startswith("cuda"):
        torch.cuda.synchronize()


def measure(cls, sizes, layers, training, a):
    """(params, seconds of each step, bits per byte after --steps)."""
    torch.manual_seed(a.seed)
    model = Model(cls, 256, a.width, layers, sizes).float().to(a.device)
    run = torch.compile(model) if a.compile else model
    cuda = a.device.startswith("cuda")
    optimiser = torch.optim.AdamW(groups(model, 0.1), lr=a.rate, betas=(0.9, 0.95), fused=cuda)
    generator = torch.Generator().manual_seed(a.seed)
    times, losses, begin = [], [], None
    while len(times) < max(a.steps, WARMUP + 3) or time.time() - begin < a.seconds:
        wait(a)
        if len(times) == WARMUP:
            begin = time.time()
        start = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = a.rate * min(1, (len(times) + 1) / 20)
        loss = loss_of(run, *windows(training, a.batch, a.length, generator), a)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.detach())
        wait(a)
        times.append(time.perf_counter() - start)
    bits = torch.stack(losses[max(0, a.steps - 5):a.steps]).mean().item() / math.log(2)
    return sum(p.numel() for p in model.parameters()), times[WARMUP:], bits


def main():
    a = arguments()
    began = time.time()
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda s: load_cell(s[0], a.dtype, pairs(s[1])), [setup(c, a.width) for c in a.cells]))
    layers = [layers_for(cls, setup(c, a.width)[2], a) for c, cls in zip(a.cells, found)]
    if a.commands:
        print("\n".join(command(c, n, a) for c, n in zip(a.cells, layers)))
        return
    where = torch.cuda.get_device_name() if a.device.startswith("cuda") else "CPU"
    print(f"batch {a.batch} x {a.length} bytes, width {a.width}, {a.dtype}, on {where}; compiled in "
          f"{time.time() - began:.0f} s")
    training, _ = read_text(a.text, a.device)
    wide = max(len(c) for c in a.cells)
    print(f"{'cell':{wide}} {'layers':>6} {'params':>12} {'ms/step':>9} {'of them half in':>17} {'tokens/s':>10} "
          f"{'steps':>6} {'bits/byte':>9}")
    for label, cls, n in zip(a.cells, found, layers):
        try:
            count, times, bits = measure(cls, setup(label, a.width)[2], n, training, a)
        except torch.cuda.OutOfMemoryError as error:
            print(f"{label:{wide}} {n:6}  out of memory: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        middle = statistics.median(times)
        low, _, high = statistics.quantiles(times, n=4)
        print(f"{label:{wide}} {n:6} {count:12,} {1e3 * middle:9.2f} {f'{1e3 * low:.2f}-{1e3 * high:.2f}':>17} "
              f"{a.batch * a.length / middle:10,.0f} {len(times):6} {bits:9.3f}", flush=True)
    print(f"{time.time() - began:.0f} s in all")


if __name__ == "__main__":
    main()
