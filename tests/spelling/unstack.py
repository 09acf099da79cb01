"""Writes a spec with stacked params anew: with a param for each part, as papers have them.

    unstack.py SPEC NAME=COUNT*UNIT...              each value that is stacked is COUNT values, as is each param
    unstack.py --laid SPEC NAME=COUNT*UNIT...       the params apart, and laid together by a definition

NAME is a param, or a value, whose first axis is COUNT times UNIT, or COUNT - 1 times where a definition
takes less. A definition of such a value reads others at its own first index only; all else reads them at
UNIT*n + index. Both texts have the same params, so that `cellc compare` can tell whether they say the
same."""

import re
import sys


def split(text, at):
    """The text at each `at` that stands in no brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == at and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return parts + [text[start:]]


def bracket_end(text, start):
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "[") - (text[i] == "]")
        if depth == 0:
            return i
    raise ValueError(text[start:])


class Stacked:
    def __init__(self, said):
        self.name, extent = said.split("=")
        count, self.unit = extent.split("*", 1)
        self.count = int(count)
        self.axes = None  # of a param, behind the first

    def extents(self):
        """Texts of the whole extent, the shorter ones behind it."""
        return [f"{n}*{self.unit}" if n > 1 else self.unit for n in range(self.count, 0, -1)]

    def part(self, place):
        """Which part a first index is in, and the index there."""
        place = place.strip()
        m = re.fullmatch(rf"(?:(\d+)\*)?{self.unit} \+ (.+)", place)
        return (int(m[1] or 1), m[2]) if m else (0, place)


def reads(text, stacked, row=None, part=None):
    """The text with reads of stacked names as reads of their parts; at `row`, of this part."""
    for s in stacked:
        out, end = "", 0
        for m in re.finditer(rf"\b{s.name}\[", text):
            close = bracket_end(text, m.end() - 1)
            places = split(text[m.end() : close], ",")
            n, place = (part, row) if row and places[0].strip() == row else s.part(places[0])
            out += (
                text[end : m.start()]
                + f"{s.name}_{n}["
                + ", ".join([place] + [p.strip() for p in places[1:]])
            )
            end = close
        text = out + text[end:]
    return text


def param(declared, stacked):
    """One declarator of params, as those of its parts."""
    m = re.match(r"(\s*)(\w+)\[", declared)
    of = [s for s in stacked if m and s.name == m[2]]
    if not of:
        return [declared]
    s, close = of[0], bracket_end(declared, m.end() - 1)
    axes = split(declared[m.end() : close], ",")
    if axes[0].strip() != s.extents()[0]:
        raise ValueError(f"{s.name} has the extent {axes[0]}")
    s.axes = [a.strip() for a in axes[1:]]
    return [f" {s.name}_{n}[" + ", ".join([s.unit] + s.axes) + declared[close:] for n in range(s.count)]


def laid(s):
    """A param as the definition that lays its parts together."""
    index = [f"at{i}" for i in range(len(s.axes))]
    ranges = ", ".join([f"row:{s.extents()[0]}"] + [f"{i}:{a}" for i, a in zip(index, s.axes)])
    value = ""
    for n in range(s.count):
        place = ", ".join(["row" if n == 0 else f"row - {n}*{s.unit}"] + index)
        read = f"{s.name}_{n}[{place}]"
        value += f"row < {n + 1}*{s.unit} ? {read} : " if n + 1 < s.count else read
    return f"\n    {s.name}[{ranges}] = {value};"


def statement(text, stacked, together):
    """One statement without its semicolon, as those that take its place."""
    m = re.match(r"(\s*(?:.*[{}]\s*)?(?:const )?param)\b(.*)", text, re.S)
    if m:
        declared = [d for one in split(m[2], ",") for d in param(one, stacked)]
        own = [s for s in stacked if s.axes is not None and re.search(rf"\b{s.name}\[", m[2])]
        return m[1] + ",".join(declared) + ";" + "".join(laid(s) for s in own if together)
    m = re.match(r"(\s*(?:.*[{}]\s*)?)(\w+)\[(\w+):([^,\]]+)(.*?)\] = (.*)", text, re.S)
    for s in stacked if m and not together else []:
        if s.name == m[2] and s.axes is None:
            count = s.count - s.extents().index(m[4].strip())
            return m[1] + "\n    ".join(
                f"{s.name}_{n}[{m[3]}:{s.unit}{m[5]}] = {reads(m[6], stacked, m[3], n)};"
                for n in range(count)
            )
    return (text if together else reads(text, stacked)) + ";"


def main(arguments):
    together = arguments[0] == "--laid"
    spec, *names = arguments[together:]
    stacked = [Stacked(n) for n in names]
    text = re.sub(r"//[^\n]*", "", open(spec, encoding="utf-8").read())
    parts = text.split(";")
    print("".join(statement(p, stacked, together) for p in parts[:-1]) + parts[-1], end="")


main(sys.argv[1:])
