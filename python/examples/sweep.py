"""Every variant of a cell on one task, as a table: the options of the spec multiplied out, or those that are named.

    python sweep.py                                    # e79's biases on recall
    python sweep.py --cell gru --task copy             # reset after or before, keep or write
    python sweep.py --cell e88 --fixed N=16 V=16 --vary gate=sigmoid,silu --seeds 3 --steps 3000 --device cuda"""

import itertools
import os
import re
import statistics

from recall import TASKS, parser, run

from cellc import compiler


def options_of(spec):
    """The options that a spec declares, {"bias": ["fixed", "none", "input"]}."""
    text = re.sub(r"//.*", "", compiler.Spec(spec).text)
    found = re.findall(r"^\s*option\s+(\w+)\s*=\s*([^;]*);", text, re.M)
    return {name: [value.strip() for value in values.split("|")] for name, values in found}


def arguments():
    p = parser()
    p.description = "Compares the variants of one cell."
    p.set_defaults(task="recall")
    p.add_argument("--cell", default="e79")
    p.add_argument("--fixed", nargs="*", default=None, metavar="NAME=VALUE", help="the same in every variant")
    p.add_argument("--vary", nargs="*", default=[], metavar="NAME=A,B", help="instead of all options")
    p.add_argument("--seeds", type=int, default=1)
    a = p.parse_args()
    if a.fixed is None:
        a.fixed = ["N=16"] if a.cell == "e79" else []
    return a


def variants(a):
    chosen = {name: values.split(",") for name, _, values in (word.partition("=") for word in a.vary)}
    axes = chosen or options_of(a.cell)
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def main():
    a = arguments()
    rows, task = [], "recall" if a.task == "both" else a.task
    assert task in TASKS
    for variant in variants(a):
        words = [*a.fixed, *(f"{name}={value}" for name, value in variant.items())]
        results = []
        for a.seed in range(1, a.seeds + 1):
            results.append(run(a.cell + ":" + ",".join(words), task, a))
        right = [r[1] for r in results]
        spread = f" ± {statistics.stdev(right):.0%}" if len(right) > 1 else ""
        label = ", ".join(f"{name}={value}" for name, value in variant.items()) or "(no options)"
        rows.append((statistics.mean(right), label, results[0][0], spread, sum(r[2] for r in results)))
        print(f"  {label}: {rows[-1][0]:.0%}", flush=True)
    print(f"\n{os.path.basename(a.cell)} {' '.join(a.fixed)} on {task}, best first")
    wide = max(len(row[1]) for row in rows)
    print(f"  {'variant':{wide}} {'params':>9}  {'right':<12} {'seconds':>8}")
    for right, label, params, spread, seconds in sorted(rows, key=lambda row: -row[0]):
        print(f"  {label:{wide}} {params:9,}  {f'{right:.0%}{spread}':<12} {seconds:8.1f}")


if __name__ == "__main__":
    main()
