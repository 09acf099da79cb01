"""Two tasks that separate cells from one another, and a table of how well each does.

    python recall.py                          # both tasks, a few cells, a small form for the CPU
    python recall.py --task recall --cells delta gated_delta mamba2 lstm --pairs 16 --steps 5000 --device cuda

recall  pairs of a key and a value, then keys again: which value did each have? Needs a memory that is addressed by
        content, as matrix states are; a vector state has to squeeze all pairs into its width.
copy    symbols, then blanks: say the symbols in their order. Needs one place for each symbol; a state that only
        fades cannot keep the order."""

import argparse
import time

import torch
import torch.nn.functional as F
from model import Model, cosine, groups, load_cell, pairs

CELLS = ["delta:N=16,V=16", "linear_attention:N=16,V=16", "lstm", "gru"]
IGNORE = -100


def recall(batch, a, generator):
    """Keys are tokens 0 .. K-1, values K .. 2K-1. Pair after pair, then every key in a new order; the answer is
    wanted where a key stands for the second time."""
    n, keys = a.pairs, a.symbols
    key = torch.rand(batch, keys, generator=generator).argsort(1)[:, :n]
    value = torch.randint(keys, (batch, n), generator=generator) + keys
    order = torch.rand(batch, n, generator=generator).argsort(1)
    tokens = torch.cat([torch.stack([key, value], 2).flatten(1), key.gather(1, order)], 1)
    wanted = torch.full_like(tokens, IGNORE)
    wanted[:, 2 * n:] = value.gather(1, order)
    return tokens, wanted


def copy(batch, a, generator):
    """Symbols 0 .. K-1; token 2K-1 says that the copy begins, 2K-2 stands where nothing is said."""
    n, blank, go = 2 * a.pairs, 2 * a.symbols - 2, 2 * a.symbols - 1
    symbols = torch.randint(a.symbols, (batch, n), generator=generator)
    rest = torch.full((batch, n), blank)
    rest[:, 0] = go
    wanted = torch.full((batch, 2 * n), IGNORE)
    wanted[:, n:] = symbols
    return torch.cat([symbols, rest], 1), wanted


TASKS = {"recall": recall, "copy": copy}


def run(name, task, a):
    """(params, accuracy, seconds) of one cell on one task."""
    torch.manual_seed(a.seed)
    word, _, settings = name.partition(":")
    cls = load_cell(word, a.dtype, pairs(filter(None, settings.split(","))))
    model = Model(cls, 2 * a.symbols, a.width, a.layers, shift=True).float().to(a.device)
    optimiser = torch.optim.AdamW(groups(model, 0.01), lr=a.rate, betas=(0.9, 0.98))
    generator, begun = torch.Generator().manual_seed(a.seed), time.time()
    for step in range(a.steps):
        for group in optimiser.param_groups:
            group["lr"] = a.rate * cosine(step, a.steps, a.steps // 10 or 1)
        tokens, wanted = (t.to(a.device) for t in TASKS[task](a.batch, a, generator))
        loss = F.cross_entropy(model(tokens)[0].flatten(0, 1), wanted.flatten(), ignore_index=IGNORE)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    with torch.no_grad():
        tokens, wanted = (t.to(a.device) for t in TASKS[task](256, a, generator))
        right = (model(tokens)[0].argmax(-1) == wanted)[wanted != IGNORE].float().mean().item()
    return sum(p.numel() for p in model.parameters()), right, time.time() - begun


def parser():
    p = argparse.ArgumentParser(description="Compares cells on recall and copying.")
    p.add_argument("--task", choices=[*TASKS, "both"], default="both")
    p.add_argument("--cells", nargs="+", default=CELLS, metavar="CELL[:NAME=VALUE,...]")
    p.add_argument("--pairs", type=int, default=4, help="pairs to recall; twice as many symbols are copied")
    p.add_argument("--symbols", type=int, default=8, help="keys there are, and values")
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=350)
    p.add_argument("--rate", type=float, default=1e-2)
    p.add_argument("--dtype", default="f32")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--seed", type=int, default=1)
    return p


def main():
    a = parser().parse_args()
    for task in TASKS if a.task == "both" else [a.task]:
        guess = 1 / a.symbols
        what = f"{a.pairs} pairs" if task == "recall" else f"{2 * a.pairs} places"
        print(f"{task}: {what}, {a.symbols} symbols, {a.steps} steps; a guess gives {guess:.0%}")
        print(f"  {'cell':34} {'params':>9} {'right':>7} {'seconds':>8}")
        for name in a.cells:
            params, right, seconds = run(name, task, a)
            print(f"  {name:34} {params:9,} {right:7.0%} {seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
