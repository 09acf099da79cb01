#!/usr/bin/env python3
"""cellc's chunks and flash-linear-attention's by turns in one call, at the sizes of peers.chunk_rows: theirs, ours, theirs, ours,
each as a replay of a CUDA graph with caches cold. Prints a table of the less of two medians, and JSON lines behind it. Needs a GPU,
PyTorch, fla-core, and DIR as bench/prepare.sh and QUICK=1 bench/run.sh leave it of chunk_workloads.txt.

    chunk_turns.py DIR [SECONDS]

Triton compiles each choice of its autotuners, which takes minutes on one core. So a process for each row (two, from both ends of the
lists of choices) compiles for at most SECONDS (120) before anything is timed, into Triton's cache; the choice itself is made behind
that, by runs of 20 ms. A row that is not compiled by then, or that flash-linear-attention refuses, is said."""
import json
import os
import re
import subprocess
import sys
import time

import torch
import triton
from triton.runtime.autotuner import Autotuner

import cold
import peers

CHUNK_ROWS = "(gated_)?delta_(64|128)(_b1)?$|(linear_attention|retnet|gla|kda|rwkv7)_(64|128)$"  # what peers.chunk_rows gives
HERE = os.path.dirname(os.path.abspath(__file__))


def sizes():
    """name -> B,T,heads of chunk_workloads.txt."""
    with open(os.path.join(HERE, "chunk_workloads.txt"), encoding="utf-8") as f:
        lines = [line.split("|") for line in f if "|" in line and not line.startswith("#")]
    return {line[0].strip().removesuffix("_chunk"): line[2].strip() for line in lines if line[0].strip().endswith("_chunk")}


def backward(op, inputs, options, kept={}):
    out = op(*inputs, **options)[0]
    if kept.get("of") is not inputs:
        kept.update(of=inputs, dy=torch.randn_like(out))
    torch.autograd.grad(out, inputs, kept["dy"])


def compile_row(name, reverse):
    """Each choice once, instead of timing it."""
    def once(call, **_):
        call()
        return [1.0, 1.0, 1.0]

    choices = Autotuner.prune_configs
    Autotuner.do_bench = property(lambda self: once, lambda self, value: None)
    if reverse:
        Autotuner.prune_configs = lambda self, *given, **more: choices(self, *given, **more)[::-1]
    for row, op, inputs, options in peers.chunk_rows():
        if row == name:
            op(*inputs, **options)
            backward(op, inputs, options)
            torch.cuda.synchronize()
            print(f"compiled {name}", flush=True)


def compile_all(names, seconds):
    """The rows whose backward is compiled, or refused, in time."""
    begin, running, env = time.time(), [], {**os.environ, "FLA_CACHE_RESULTS": "0", "OMP_NUM_THREADS": "1"}
    heavy = sorted(names, key=lambda name: not re.match("kda|rwkv7|gla", name))
    for name, way in [(name, way) for way in ("", "reverse") for name in heavy]:
        running.append((name, subprocess.Popen([sys.executable, __file__, "--compile", name, way], env=env,
                                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)))
    ended = {}
    while len(ended) < len(running) and time.time() - begin < seconds:
        for i, (_, process) in enumerate(running):
            if i not in ended and process.poll() is not None:
                ended[i] = time.time() - begin
        time.sleep(0.2)
    done = {}
    for i, (name, process) in enumerate(running):
        if i in ended:
            last = (process.stdout.read().strip().split("\n") or [""])[-1]
            done.setdefault(name, f"{ended[i]:.0f} s: {last[:150]}")
        else:
            process.kill()
    return done


def ours(folder, name, at):
    given = subprocess.run([os.path.join(folder, f"{name}_chunk", "bench"), "-q", name, at], capture_output=True, text=True,
                           check=True, timeout=60)
    row = json.loads(given.stdout)
    return {key: row[key] for key in ("fwd_graph_ms", "fwd_bwd_graph_ms", "peak_bytes")}


def theirs(op, inputs, options):
    """The two calls as graphs, one None where it is refused, and what a step holds at its worst."""
    graphs, refused, peak = {}, None, None
    calls = {"fwd_graph_ms": lambda: op(*inputs, **options), "fwd_bwd_graph_ms": lambda: backward(op, inputs, options)}
    for key, call in calls.items():
        try:
            graphs[key] = cold.graph_of(call)
            peak = peers.peak(call, inputs)
        except Exception as why:
            refused = str(why).split("\n")[0]
            torch.cuda.synchronize()
    return graphs, refused, peak


def row_of(folder, name, at, op, inputs, options):
    graphs, refused, peak = theirs(op, inputs, options)
    row = {"workload": name, "sizes": at, "theirs": {}, "ours": {}, "their_peak_bytes": peak, "refused": refused}
    for _ in range(2):
        for key, graph in graphs.items():
            row["theirs"].setdefault(key, []).append(round(cold.timed(graph.replay), 4))
        try:
            for key, value in ours(folder, name, at).items():
                row["ours"].setdefault(key, []).append(value)
        except (OSError, subprocess.SubprocessError) as why:
            row["ours_failed"] = str(why)[:200]
    return row


def said(row):
    def least(side, key):
        return f"{min(row[side][key]):9.3f}" if row[side].get(key) else "        -"

    mib = [f"{value / 2**20:6.0f}" if value else "     -"
           for value in (min(row["ours"].get("peak_bytes", [0])), row["their_peak_bytes"])]
    return " ".join([f"{row['workload']:22} {row['sizes']:12}", *(least(side, key) for key in ("fwd_graph_ms", "fwd_bwd_graph_ms")
                                                                for side in ("ours", "theirs")), *mib, row["refused"] or ""])


def main():
    folder, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 120
    workloads = sizes()
    done = compile_all([name for name in workloads if re.match(CHUNK_ROWS, name)], seconds)
    for name, how in done.items():
        print(f"{name}: {how}", flush=True)
    triton.runtime.driver.active.get_benchmarker = lambda: lambda call, quantiles=None, **_: triton.testing.do_bench(
        call, warmup=5, rep=20, quantiles=quantiles)
    cold.begin()
    torch.manual_seed(1)
    rows = []
    print(f"{'':35} {'fwd ours':>9} {'fwd fla':>9} {'f+b ours':>9} {'f+b fla':>9} MiB ours, fla")
    for name, op, inputs, options in peers.chunk_rows():
        if name not in done or name not in workloads:
            print(f"{name}: left out: not compiled in time", flush=True)
            continue
        rows.append(row_of(folder, name, workloads[name], op, inputs, options))
        print(said(rows[-1]), flush=True)
        torch.cuda.empty_cache()
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--compile":
        compile_row(sys.argv[2], sys.argv[3:] == ["reverse"])
    else:
        main()
