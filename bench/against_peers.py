#!/usr/bin/env python3
"""Draws docs/plots/against_peers.svg from bench/results/against_peers.txt: how many times as long as cellc the best peer
takes, on a logarithmic scale, for light and dark pages. Needs nothing but Python.

    against_peers.py [--check]      --check writes nothing, and fails when the picture is not what would be drawn
"""
import math
import os
import re
import sys
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results", "against_peers.txt")
PICTURE = os.path.join(HERE, "..", "docs", "plots", "against_peers.svg")
NAMES, BARS, WIDTH, ROW, TOP = 330, 330, 960, 26, 34       # pixels: the texts' column, the bars', all; a row; the head
LEAST, MOST = 1 / 24, 24                                    # of the scale
STYLE = """<style>
text { fill: #1f2328 } .quiet { fill: #59636e } .line { stroke: #d1d9e0 } .one { stroke: #59636e }
.faster { fill: #1a7f37 } .slower { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .quiet { fill: #9198a1 } .line { stroke: #3d444d } .one { stroke: #9198a1 }
.faster { fill: #3fb950 } .slower { fill: #f0883e }
}
</style>"""


def rows():
    """(workload, our ms, the peer's ms, the peer) of each line."""
    with open(RESULTS, encoding="utf-8") as f:
        for line in f:
            if not line.startswith("#") and line.strip():
                workload, ours, peer, which = re.split(r"\s{2,}", line.strip())
                yield workload, float(ours), float(peer), which


def across(ratio):
    return NAMES + BARS * math.log(ratio / LEAST) / math.log(MOST / LEAST)


def drawn():
    found = sorted(rows(), key=lambda row: row[1] / row[2])
    height = TOP + ROW * len(found) + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
           'font-family="sans-serif" font-size="13" role="img" '
           'aria-label="How many times as long as cellc the best peer takes, forward and backward">', STYLE]
    for ratio in (1 / 20, 1 / 5, 1, 5, 20):
        x = across(ratio)
        kind = "one" if ratio == 1 else "line"
        word = "as long" if ratio == 1 else f"{ratio:.0f}×" if ratio > 1 else f"1/{1 / ratio:.0f}"
        out += [f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 6}" class="{kind}"/>',
                f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle" class="quiet">{word}</text>']
    for i, (workload, ours, peer, which) in enumerate(found):
        ratio, y = peer / ours, TOP + ROW * i
        left, right = sorted((across(1), across(ratio)))
        kind, word = ("faster", f"{ratio:.1f}×") if ratio >= 1 else ("slower", f"1/{1 / ratio:.1f}")
        out += [f'<text x="{NAMES - 10}" y="{y + 15}" text-anchor="end">{escape(workload)}</text>',
                f'<rect x="{left:.1f}" y="{y + 3}" width="{right - left:.1f}" height="{ROW - 9}" rx="2" class="{kind}"/>',
                f'<text x="{NAMES + BARS + 10}" y="{y + 15}">{word}<tspan class="quiet">  {escape(which)}</tspan></text>']
    return "\n".join([*out, "</svg>", ""])


def main():
    picture = drawn()
    if sys.argv[1:] == ["--check"]:
        with open(PICTURE, encoding="utf-8") as f:
            sys.exit(0 if f.read() == picture else "docs/plots/against_peers.svg is not what bench/against_peers.py draws")
    with open(PICTURE, "w", encoding="utf-8") as f:
        f.write(picture)


if __name__ == "__main__":
    main()
