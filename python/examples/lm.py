"""A byte-level language model of any cell: trains, saves, draws the loss, samples.

    python lm.py                                          # a GRU on Newton's Opticks, a minute on a CPU
    python lm.py --cell e79 --set N=16 bias=input
    python lm.py --cell my.cell --steps 400 --resume      # goes on where the last run stopped
    python lm.py --cell e88 --set N=32 V=32 --width 768 --layers 12 --batch 16 --length 512 --steps 20000 \\
        --dtype bf16 --device cuda --text corpus.txt      # a GPU
    python lm.py --cell torch.LSTM                        # PyTorch's, to compare with

The directory of --out holds checkpoint.pt, losses.csv and, with matplotlib, loss.png."""

import argparse
import collections
import contextlib
import csv
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from model import Model, cosine, groups, load_cell, pairs

HERE = os.path.dirname(os.path.abspath(__file__))
OPTICKS = os.path.join(HERE, "..", "..", "examples", "bytelm", "opticks.txt")


def arguments():
    p = argparse.ArgumentParser(description="Trains a byte-level language model of any cell.")
    p.add_argument("--cell", default="gru", help="a file, a cell of cellc, torch.LSTM or torch.GRU (gru)")
    p.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="dims and options of the cell")
    p.add_argument("--size", nargs="*", default=[], metavar="NAME=N", help="run-time dims, instead of fitting ones")
    p.add_argument("--text", default=OPTICKS, help="what to learn (Newton's Opticks)")
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--rate", type=float, default=4e-3, help="the learning rate at its highest")
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--decay", type=float, default=0.1)
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16", "f16"], help="of the cell; params stay f32")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--sample", type=int, default=200, help="bytes to write at the end")
    p.add_argument("--out", default="lm-out")
    p.add_argument("--save", type=int, default=500, help="a checkpoint every so many steps, and at the end")
    p.add_argument("--until", type=int, help="stop after this step, with the learning rates of --steps")
    p.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    return p.parse_args()


def read_text(path, device):
    """Training and validation bytes: the last twentieth is for validation."""
    with open(path, "rb") as f:
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8).long().to(device)
    cut = len(data) - len(data) // 20
    return data[:cut], data[cut:]


def windows(data, batch, length, generator):
    starts = torch.randint(len(data) - length - 1, (batch,), generator=generator)
    rows = torch.stack([data[s:s + length + 1] for s in starts.tolist()])
    return rows[:, :-1], rows[:, 1:]


def autocast(a):
    if a.dtype == "f32":
        return contextlib.nullcontext()
    return torch.autocast(a.device, {"bf16": torch.bfloat16, "f16": torch.float16}[a.dtype])


def loss_of(model, x, y, a):
    with autocast(a):
        logits, _ = model(x)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


@torch.no_grad()
def validate(model, data, a):
    """Bits per byte over the same windows each time."""
    generator = torch.Generator().manual_seed(0)
    losses = [loss_of(model, *windows(data, a.batch, a.length, generator), a).item() for _ in range(4)]
    return sum(losses) / len(losses) / math.log(2)


def show(step, steps, loss, rate, times, tokens):
    """One line that is written over and over on a terminal, and now and then elsewhere. The speed is that of the
    last steps: the first ones load and warm up."""
    if not sys.stderr.isatty() and step % 50 and step != steps:
        return
    each = (times[-1] - times[0]) / (len(times) - 1)
    bar = "#" * (30 * step // steps)
    line = (f"[{bar:30}] {step}/{steps}  {loss / math.log(2):.3f} bits/byte  rate {rate:.1e}  "
            f"{tokens / each:,.0f} tokens/s  {each * (steps - step):.0f} s left ")
    if sys.stderr.isatty():
        print("\r" + line, file=sys.stderr, end="", flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def save(path, model, optimiser, step, losses, generator):
    """Under another name first: who stops the program while it writes has the old one still."""
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step, "losses": losses,
                "windows": generator.get_state(), "random": torch.get_rng_state()}, path + ".new")
    os.replace(path + ".new", path)


def resume(path, model, optimiser, generator):
    kept = torch.load(path, map_location="cpu")
    model.load_state_dict(kept["model"])
    optimiser.load_state_dict(kept["optimiser"])
    generator.set_state(kept["windows"])
    torch.set_rng_state(kept["random"])
    return kept["step"], kept["losses"]


def train(model, run, optimiser, data, a, first, losses, generator, checkpoint):
    times, last = collections.deque([time.time()], maxlen=50), min(a.steps, a.until or a.steps)
    model.train()
    for step in range(first, last):
        rate = a.rate * cosine(step, a.steps, a.warmup)
        for group in optimiser.param_groups:
            group["lr"] = rate
        loss = loss_of(run, *windows(data, a.batch, a.length, generator), a)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        times.append(time.time())
        show(step + 1, a.steps, losses[-1], rate, times, a.batch * a.length)
        if (step + 1) % a.save == 0 or step + 1 == last:
            save(checkpoint, model, optimiser, step + 1, losses, generator)
    if sys.stderr.isatty():
        print(file=sys.stderr)


@torch.no_grad()
def sample(model, a, start=b"The ", temperature=0.8):
    """Byte by byte: each layer's state is carried, so a byte costs one step however long the text is."""
    model.eval()
    out, states, logits = bytearray(start), None, None
    for t in range(len(start) + a.sample - 1):
        token = torch.tensor([[out[t]]], device=a.device)
        with autocast(a):
            logits, states = model(token, states, t0=t)
        if t + 1 >= len(start):
            odds = torch.softmax(logits[0, -1].float() / temperature, 0)
            out.append(torch.multinomial(odds, 1).item())
    return out.decode("utf-8", errors="replace")


def write_losses(losses, place, title):
    with open(os.path.join(place, "losses.csv"), "w", newline="") as f:
        csv.writer(f).writerows([("step", "bits_per_byte"), *((i + 1, v / math.log(2)) for i, v in enumerate(losses))])
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib, so there is losses.csv and no loss.png", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    bits = torch.tensor(losses) / math.log(2)
    n = max(1, len(losses) // 50)
    smooth = bits.unfold(0, n, 1).mean(1)
    pyplot.figure(figsize=(7, 4))
    pyplot.plot(range(1, len(bits) + 1), bits, linewidth=0.5, alpha=0.5)
    pyplot.plot(range(n, len(bits) + 1), smooth)
    pyplot.xlabel("step")
    pyplot.ylabel("bits per byte")
    pyplot.title(title)
    pyplot.tight_layout()
    pyplot.savefig(os.path.join(place, "loss.png"), dpi=120)


def main():
    a = arguments()
    torch.manual_seed(a.seed)
    os.makedirs(a.out, exist_ok=True)
    training, validation = read_text(a.text, a.device)
    cls = load_cell(a.cell, a.dtype, pairs(a.set))
    model = Model(cls, 256, a.width, a.layers, pairs(a.size)).float().to(a.device)
    optimiser = torch.optim.AdamW(groups(model, a.decay), lr=a.rate, betas=(0.9, 0.95),
                                  fused=a.device.startswith("cuda"))
    generator = torch.Generator().manual_seed(a.seed)
    checkpoint, first, losses = os.path.join(a.out, "checkpoint.pt"), 0, []
    if a.resume and os.path.exists(checkpoint):
        first, losses = resume(checkpoint, model, optimiser, generator)
    count = sum(p.numel() for p in model.parameters())
    print(f"{a.cell}: {count:,} params, steps {first} to {a.steps}, {len(training):,} bytes, on {a.device}")
    run = torch.compile(model) if a.compile else model
    train(model, run, optimiser, training, a, first, losses, generator, checkpoint)
    write_losses(losses, a.out, f"{a.cell}, {count:,} params")
    print(f"validation: {validate(model, validation, a):.3f} bits/byte")
    if a.sample:
        print(sample(model, a))


if __name__ == "__main__":
    main()
