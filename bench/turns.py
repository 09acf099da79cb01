#!/usr/bin/env python3
"""Linear + GELU by cellc, by cellc with products apart from what stands next to them (--products plain), by PyTorch, and its three
products alone, by turns: what is timed first on a cool GPU has higher clocks than what is timed last, by as much as what is compared
differs. Medians of 60 calls each, as called and as replays of CUDA graphs, caches cold. Prints one JSON object a line. Needs a GPU,
PyTorch and nvcc."""
import json
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import cellc  # noqa: E402

ROWS, INNER, COLUMNS, TURNS = 8192, 4096, 4096, 60


def calls():
    """name -> call(backward)."""
    kind = dict(device="cuda", dtype=torch.bfloat16)
    x, dy = torch.randn(ROWS, INNER, requires_grad=True, **kind), torch.randn(ROWS, COLUMNS, **kind)
    cell = cellc.load("linear_act", dtype="bf16")(D=INNER, F=COLUMNS).cuda()
    apart = cellc.load("linear_act", dtype="bf16", products="plain")(D=INNER, F=COLUMNS).cuda()
    linear = torch.nn.Linear(INNER, COLUMNS).to(**kind)
    steps, d_steps = x.detach().view(ROWS, 1, INNER).requires_grad_(), dy.view(ROWS, 1, COLUMNS)
    w = torch.randn(COLUMNS, INNER, **kind)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)

    def ours(backward, cell=cell):
        out = cell(steps)[0]
        if backward:
            torch.autograd.grad(out, [steps, *cell.parameters()], d_steps)

    def theirs(backward):
        out = torch.nn.functional.gelu(linear(x))
        if backward:
            torch.autograd.grad(out, [x, *linear.parameters()], dy)

    def products(backward):
        torch.mm(x.detach(), w.t(), out=y)
        if backward:
            torch.mm(dy, w, out=dx)
            torch.mm(dy.t(), x.detach(), out=dw)

    return {"cellc": ours, "apart": lambda backward: ours(backward, apart), "PyTorch": theirs, "products": products}


def captured(call, backward):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(backward)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(backward)
    return graph.replay


def medians(runs):
    """Milliseconds of each, TURNS times one behind the other."""
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    times = {name: [] for name in runs}
    for turn in range(TURNS + 10):
        for name, run in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            if turn >= 10:
                times[name].append(begin.elapsed_time(end))
    return {name: round(statistics.median(all), 4) for name, all in times.items()}


def main():
    torch.manual_seed(1)
    all_calls = calls()
    for backward in (False, True):
        way = "forward and backward" if backward else "forward"
        for how in ("as called", "graphs"):
            runs = {name: captured(call, backward) if how == "graphs" else (lambda call=call: call(backward))
                    for name, call in all_calls.items()}
            row = medians(runs)
            print(json.dumps({"linear_gelu": f"{way}, {how}", **row, "cellc to products": round(row["cellc"] / row["products"], 3)}),
                  flush=True)


if __name__ == "__main__":
    main()
