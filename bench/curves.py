#!/usr/bin/env python3
"""Scaling curves: how time grows with one size while the others stay. In: curves.txt (or the file that CURVES names), and a
command:

    curves.py instances             what prepare.sh and run.sh take as WORKLOADS: an instance a line, with all its sizes
    curves.py small                 the instances of the ladder that are the same cells at sizes for the emulator
    curves.py plot RESULTS FOLDER   RESULTS: JSON lines of bench.c. Writes FOLDER/CELL.svg, a panel for each of its curves,
                                    and says on standard output which points are cliffs;
                                    exit code 1 where points are missing

A cliff is a point that takes more than 1.5 times what its neighbours let expect, per unit of work: than the straight line
between them where both axes are logarithms (a peak), or than the one before it where the next is slow as well (a step).
Nothing but the standard library is needed."""
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CLIFF = 1.5
SERIES = (("fwd_graph_ms", "forward", "#1f6fb4"), ("fwd_bwd_graph_ms", "forward and backward", "#d0661b"))


class Curve:
    """One line of curves.txt. points: (value, instance, sizes)."""

    def __init__(self, line):
        self.name, self.spec, sizes, self.varies, work, values = (field.strip() for field in line.split("|"))
        self.cell = self.name.split("-")[0]
        self.work = float(work)
        self.fixed = ",".join(size for size in sizes.split(",") if size != "*")
        self.points = [(int(value), " ".join(self.spec.replace("*", value).split()), sizes.replace("*", value))
                       for value in values.split()]
        if len(self.points) < 3 or [p[0] for p in self.points] != sorted({p[0] for p in self.points}):
            raise SystemExit(f"curves: {self.name}: wanted three values or more, ascending")


def read_curves():
    with open(os.environ.get("CURVES") or os.path.join(HERE, "curves.txt")) as file:
        return [Curve(line) for line in file if line.strip() and not line.startswith("#")]


def instances(curves):
    """Each instance once, by what it is made of: its name, and all the sizes that some curve has. Names say what is bound,
    so that results stay right when curves are added."""
    found = {}
    for curve in curves:
        for _, spec, sizes in curve.points:
            name = re.sub(r"\W+", "_", re.sub(r"--(dim|set|dtype) ", "", spec))
            entry = found.setdefault(spec, {"name": name, "sizes": []})
            if sizes not in entry["sizes"]:
                entry["sizes"].append(sizes)
    return found


def print_instances(curves):
    for spec, entry in instances(curves).items():
        print(f"{entry['name']} | {spec} | {' '.join(entry['sizes'])}")


def print_small(curves):
    """What is bound stays; B, T and the other dims get small sizes, of which none is a power of two."""
    for spec, entry in instances(curves).items():
        dims = entry["sizes"][0].count(",") - 1
        print(f"{entry['name']} {spec} | 3,5{',6' * dims} 1,19{',3' * dims}")


# ---- results


def read_results(path, curves):
    """Points of every curve that were measured: (value, {series: ms})."""
    with open(path) as file:
        rows = [json.loads(line) for line in file if line.strip()]
    measured = {(row["workload"], tuple(row["sizes"])): row for row in rows}
    names = instances(curves)
    for curve in curves:
        curve.measured = []
        for value, spec, sizes in curve.points:
            wanted = tuple(int(size) for size in sizes.split(","))
            for (name, have), row in measured.items():
                if name == names[spec]["name"] and have[:len(wanted)] == wanted:
                    curve.measured.append((value, {key: row[key] for key, _, _ in SERIES}))
                    break


def cliffs(points, work):
    """points: (value, ms), ascending. Yields (value, what, how many times what was to be expected)."""
    unit = [(value, ms / value ** work) for value, ms in points]
    for i in range(1, len(unit)):
        (x0, before), (x, cost) = unit[i - 1], unit[i]
        x1, behind = unit[i + 1] if i + 1 < len(unit) else (x, cost)
        share = math.log(x / x0) / math.log(x1 / x0)
        rise, over = cost / before, cost / (before ** (1 - share) * behind ** share)
        if rise > CLIFF and behind > cost / CLIFF:
            yield x, "step", rise
        elif over > CLIFF:
            yield x, "peak", over


def find_cliffs(curve):
    return {key: list(cliffs([(value, times[key]) for value, times in curve.measured], curve.work))
            for key, _, _ in SERIES} if len(curve.measured) > 1 else {}


# ---- pictures

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 340, 270, 52, 44, 12, 40


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def tick_values(low, high):
    """1, 2 and 5 of each decade, or the decades alone where there are many."""
    steps = (1, 2, 5) if high / low < 200 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [m * 10.0 ** e for e in range(first, last + 1) for m in steps if low <= m * 10.0 ** e <= high]


class Panel:
    def __init__(self, curve, left):
        self.curve, self.left, self.out = curve, left, []
        values = [value for value, _ in curve.measured]
        times = [t for _, row in curve.measured for t in row.values()]
        self.x_range = (min(values), max(values) if max(values) > min(values) else min(values) * 2)
        self.y_range = (min(times) / 1.3, max(times) * 1.3)

    @staticmethod
    def along(value, bounds):
        return math.log(value / bounds[0]) / math.log(bounds[1] / bounds[0])

    def x(self, value):
        return self.left + LEFT + self.along(value, self.x_range) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return HEIGHT - BOTTOM - self.along(value, self.y_range) * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, words, anchor="middle", more=""):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>')

    def line(self, x0, y0, x1, y1, colour="#ddd"):
        self.out.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}"/>')

    def axes(self):
        right, bottom = self.left + WIDTH - RIGHT, HEIGHT - BOTTOM
        for value in tick_values(*self.y_range):
            self.line(self.left + LEFT, self.y(value), right, self.y(value))
            self.text(self.left + LEFT - 5, self.y(value) + 4, number(value), "end")
        last = -100.0
        for value, _ in self.curve.measured:
            self.line(self.x(value), bottom, self.x(value), bottom + 4, "#888")
            if self.x(value) - last >= 30:
                last = self.x(value)
                self.text(last, bottom + 16, str(value))
        self.line(self.left + LEFT, bottom, right, bottom, "#888")
        self.line(self.left + LEFT, TOP, self.left + LEFT, bottom, "#888")
        self.text((self.left + LEFT + right) / 2, HEIGHT - 8, self.curve.varies)
        self.text(self.left + LEFT, 16, f"{self.curve.name}, ms", "start", ' font-weight="bold"')
        self.text(self.left + LEFT, 32, f"{self.curve.spec.replace('--', '')}, {self.curve.fixed}", "start",
                  ' font-size="9" fill="#555"')

    def series(self, key, label, colour, found):
        at = [(self.x(value), self.y(times[key]), value, times[key]) for value, times in self.curve.measured]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in at)
        self.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        slow = {value: (what, ratio) for value, what, ratio in found}
        for x, y, value, ms in at:
            words = f"{self.curve.varies} {value}, {label}: {ms:.4f} ms"
            if value in slow:
                words += f", a {slow[value][0]} of {slow[value][1]:.2f}"
                self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="#c00" stroke-width="2"/>')
            self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"><title>{words}</title></circle>')

    def draw(self, found):
        self.axes()
        for key, label, colour in SERIES:
            self.series(key, label, colour, found.get(key, []))
        return self.out


def picture(curves, found):
    width = WIDTH * len(curves)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 20}" '
           f'viewBox="0 0 {width} {HEIGHT + 20}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{HEIGHT + 20}" fill="white"/>']
    for i, curve in enumerate(curves):
        out += Panel(curve, i * WIDTH).draw(found[curve.name])
    for i, (_, label, colour) in enumerate(SERIES):
        out.append(f'<text x="{LEFT + 150 * i}" y="{HEIGHT + 12}" fill="{colour}">{label}</text>')
    out.append(f'<text x="{LEFT + 320}" y="{HEIGHT + 12}" fill="#c00" text-anchor="start">ringed: a cliff</text>')
    return "\n".join(out + ["</svg>", ""])


def plot(path, folder, curves):
    read_results(path, curves)
    measured = [curve for curve in curves if len(curve.measured) > 1]
    found = {curve.name: find_cliffs(curve) for curve in measured}
    os.makedirs(folder, exist_ok=True)
    for cell in dict.fromkeys(curve.cell for curve in measured):
        with open(os.path.join(folder, cell + ".svg"), "w") as file:
            file.write(picture([curve for curve in measured if curve.cell == cell], found))
    points = sum(len(curve.measured) for curve in curves)
    count = 0
    for curve in measured:
        for key, label, _ in SERIES:
            for value, what, ratio in found[curve.name][key]:
                count += 1
                print(f"{curve.name}: {curve.varies} {value}, {label}: a {what}, {ratio:.2f} times what was to be expected")
    for curve in curves:
        if len(curve.measured) < len(curve.points):
            print(f"{curve.name}: {len(curve.measured)} of {len(curve.points)} points were measured")
    print(f"{points} points of {len(measured)} curves, {count} cliffs")
    return 0 if all(len(curve.measured) == len(curve.points) for curve in curves) else 1


def main():
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    curves = read_curves()
    if command == "instances" and not arguments:
        print_instances(curves)
    elif command == "small" and not arguments:
        print_small(curves)
    elif command == "plot" and len(arguments) == 2:
        return plot(*arguments, curves)
    else:
        print("usage: curves.py instances | small | plot RESULTS FOLDER", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
