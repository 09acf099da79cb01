"""The manifest of a built cell. In: the JSON that `cellc build` writes. Out: tensors with their axes as functions of
the sizes, the order of arguments, and from the shapes of tensors the sizes of a call. Guaranteed: nothing here knows
PyTorch; where shapes contradict each other the message names the tensor, what the spec says of it, what it was, and
which tensor said otherwise."""

import json
import math
import operator

from .errors import ShapeError
from .expression import Expression, Undefined

class Axis:
    """An extent: "256", "D" or "4*H". `of(sizes)` is its value; `names` the dims in it."""

    def __init__(self, text):
        text = text.strip()
        self.text, self.plain = text, text.isidentifier()
        if self.plain:                               # as most are, and every load reads all of them
            self.names, self.of = [text], operator.itemgetter(text)
        elif text.isdecimal():
            value = int(text)
            self.names, self.of = [], lambda sizes: value
        else:
            self.read(text)

    def read(self, text):
        read = Expression(text, whole=True)
        self.names, self.of = read.names, read.of

    def solve(self, name, value, sizes):
        """The value of dim `name` that makes the extent `value`, where the extent is linear in it; else None."""
        at = [self.of({**sizes, name: n}) for n in (1, 2, 3)]
        slope = at[1] - at[0]
        if slope <= 0 or at[2] - at[1] != slope or (value - at[0]) % slope:
            return None
        return 1 + (value - at[0]) // slope


LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep127"), "f32": float.fromhex("0x1.fffffep127")}


class Initialiser:
    """How a param starts: `name`, and two numbers that may depend on the sizes. One that the spec says nothing of starts as
    xavier with two or more axes, else as zeros."""

    def __init__(self, entry, rank):
        self.stated = entry is not None
        self.name = entry["name"] if entry else "xavier" if rank > 1 else "zeros"
        self.args = entry["args"] if entry else [0, 0]
        self.expressions = [Expression(a, whole=False) if isinstance(a, str) else None for a in self.args]
        self.names = [name for e in self.expressions if e for name in e.names]

    def __str__(self):
        a, b = (arg if isinstance(arg, str) else f"{arg:g}" for arg in self.args)
        arguments = {"const": f"({a})", "normal": f"({a}, {b})", "uniform": f"({a}, {b})"}
        return self.name + (arguments.get(self.name, "") if self.stated else "")

    def numbers(self, cell, declared, sizes, stored=None):
        """The two numbers at these sizes, if the initialiser takes them and the type that they are stored in holds them: the
        param's, but for one that has followed its module to another."""
        param, dtype = declared.name, stored or {"c64": "f32"}.get(declared.dtype, declared.dtype)
        try:
            a, b = (arg if e is None else e.of(sizes) for arg, e in zip(self.args, self.expressions))
        except Undefined as undefined:
            raise self.wrong(cell, param, sizes, f"{undefined} is not a number") from None
        if math.isnan(a) or math.isnan(b):
            raise self.wrong(cell, param, sizes, "its value is not a number")
        if self.name in ("normal", "uniform") and (math.isinf(a) or math.isinf(b)):
            raise self.wrong(cell, param, sizes, "a number of it is infinite")
        if self.name == "normal" and b <= 0:
            raise self.wrong(cell, param, sizes, f"its deviation is {b:g}, which must be above 0")
        if self.name == "uniform" and a > b:
            raise self.wrong(cell, param, sizes, f"its range is empty: {a:g} is above {b:g}")
        beyond = [v for v in (a, b, b - a if self.name == "uniform" else 0) if LARGEST.get(dtype, math.inf) < abs(v) < math.inf]
        if beyond:
            raise self.wrong(cell, param, sizes, f"{beyond[0]:g} is beyond what {dtype} holds, {LARGEST[dtype]:g}")
        return a, b

    def wrong(self, cell, param, sizes, why):
        at = ", ".join(f"{name} = {sizes[name]}" for name in sorted(set(self.names)))
        return ShapeError(f"{cell}: {param} starts as {self}; " + (f"with {at}, " if at else "") + why)


class Tensor:
    """A declared tensor."""

    def __init__(self, entry, batch="B", packed=False):
        self.batch, self.packed = batch, packed
        self.name, self.kind, self.dtype = entry["name"], entry["kind"], entry["dtype"]
        self.axes = [Axis(text) for text in entry["axes"]]
        self.batched, self.timed = entry["batched"], entry["timed"]
        self.gradient = entry["gradient"]
        self.init = Initialiser(entry.get("init"), len(self.axes))         # of a param
        # What the caller promises: (0, 1], or reach.
        self.range = entry["range"]["text"] if "range" in entry else "reach" if entry.get("reach") else ""
        self.history = entry.get("history", False)
        self.grows = entry.get("grows", False)         # of all steps; its first axis is the room for them
        self.scales = False                            # of a tensor of 8 bits
        self.doc = entry.get("doc", "")

    def lead(self, batch_first=True, step=False):
        """The axes before the declared ones."""
        if not self.batched:
            return []
        if self.kind == "starts":
            return [self.batch + " + 1"]
        if not self.timed or step:
            return [self.batch]
        if self.packed:
            return ["total"]
        return [self.batch, "T"] if batch_first else ["T", self.batch]

    def wanted(self, batch_first=True, step=False):
        return "[" + ", ".join(self.lead(batch_first, step) + [axis.text for axis in self.axes]) + "]"

    def shape(self, sizes):
        """As the library has it: batch, then time."""
        if self.kind == "starts":
            return [sizes[self.batch] + 1]
        return [sizes[name] for name in self.lead()] + [axis.of(sizes) for axis in self.axes]


CODES = ("e4m3", "e5m2")            # types of 8 bits, beside a tensor of scales


class Manifest:
    def __init__(self, path):
        with open(path) as f:
            data = json.load(f)
        if data["manifest"] != 1:
            raise ShapeError(f"{path}: version {data['manifest']} of the manifest; this package reads version 1")
        self.data = data
        self.name, self.key, self.dtype = data["name"], data["key"], data["dtype"]
        self.bound, self.options = data["bound"], data["options"]
        self.dims = data.get("dims", data["sizes"][2:-1])        # as the spec has them; C may have other names
        self.packed = data.get("packed", False)
        if self.packed:                              # a size of the call that no spec has
            self.dims = [name for name in self.dims if name != "total"]
        self.batch = "batch size" if "B" in self.dims else "B"   # which no dim can be called
        self.first = "first step" if "t0" in self.dims else "t0"
        self.sizes = [self.batch, "T", *self.dims, *(["total"] if self.packed else []), self.first]
        self.tensors = {entry["name"]: Tensor(entry, self.batch, self.packed) for entry in data["tensors"]}
        self.counts_steps = data.get("counts_steps", False)
        self.grows = any(t.grows for t in self.tensors.values())
        self.forward, self.backward = data["forward"], data.get("backward")
        values = [self.tensors[a["tensor"]] for a in self.forward if a["role"] == "value"]
        self.inputs = [t for t in values if t.kind in ("input", "lengths", "starts")]
        self.params = [t for t in values if t.kind == "param"]
        self.states = [t for t in values if t.kind == "state"]
        self.outputs = [t for t in values if t.kind == "output"]
        self.given = self.inputs + self.params + self.states     # in the order of the library's arguments
        place = {t.name: k for k, t in enumerate(self.given)}
        self.codes = [(k, place[t.name + "_scale"]) for k, t in enumerate(self.given) if t.dtype in CODES]  # with their scales
        for _, k in self.codes:
            self.given[k].scales = True

    def entry(self, name):
        return self.data["entries"][name]

    def list_sizes(self, sizes):
        return [sizes[name] for name in self.sizes]


class Sizes:
    """Works out the sizes of a call from the shapes of its tensors."""

    def __init__(self, manifest, known, why):
        self.manifest, self.values = manifest, dict(known)
        self.why = {name: why for name in known}
        self.later = []

    def take(self, tensor, shape, batch_first=True, step=False):
        """One tensor's shape: dims that stand alone on an axis are set or compared, others wait for `finish`."""
        lead = tensor.lead(batch_first, step)
        if len(shape) != len(lead) + len(tensor.axes):
            wanted = tensor.wanted(batch_first, step)
            raise ShapeError(f"{self.manifest.name}: {tensor.name} has shape {list(shape)}; wanted "
                             f"{len(lead) + len(tensor.axes)} axes, {wanted}")
        if tensor.kind == "starts":
            if not shape[0]:
                raise ShapeError(f"{self.manifest.name}: {tensor.name} is empty; wanted {tensor.wanted()}, 0 first")
            lead, shape = [tensor.batch], [shape[0] - 1]
        for name, extent in zip(lead, shape):
            self.set(name, extent, tensor, shape, batch_first, step)
        for axis, extent in zip(tensor.axes, shape[len(lead):]):
            if axis.plain:
                self.set(axis.text, extent, tensor, shape, batch_first, step)
            else:
                self.later.append((axis, extent, tensor, shape, batch_first, step))

    def set(self, name, extent, tensor, shape, batch_first, step):
        if name not in self.values:
            self.values[name] = extent
            self.why[name] = f"{tensor.name} {list(shape)}"
        elif self.values[name] != extent:
            raise self.wrong(name, self.values[name], tensor, shape, batch_first, step, self.why[name])

    def wrong(self, text, value, tensor, shape, batch_first, step, why):
        reason = f", as {why} says" if why else ""
        return ShapeError(f"{self.manifest.name}: {tensor.name} has shape {list(shape)}; wanted "
                          f"{tensor.wanted(batch_first, step)} with {text} = {value}{reason}")

    def finish(self):
        """Compares what waited, or solves it for the one dim in it that no other tensor gave. Of packed sequences, none has
        more steps than there are rows; a step is a row of each."""
        if self.manifest.packed:
            if self.values.get("T") == 1 and "total" not in self.values and self.manifest.batch in self.values:
                self.values["total"] = self.values[self.manifest.batch]
            if "total" in self.values:
                self.values.setdefault("T", self.values["total"])
        for axis, extent, tensor, shape, batch_first, step in self.later:
            unknown = [name for name in axis.names if name not in self.values]
            if len(unknown) == 1:
                found = axis.solve(unknown[0], extent, self.values)
                if found is not None and found > 0:
                    self.values[unknown[0]] = found
                    self.why[unknown[0]] = f"{tensor.name} {list(shape)}"
            if all(name in self.values for name in axis.names) and axis.of(self.values) != extent:
                why = ", ".join(f"{n} = {self.values[n]} from {self.why[n]}" for n in axis.names)
                raise ShapeError(f"{self.manifest.name}: {tensor.name} has shape {list(shape)}; wanted "
                                 f"{tensor.wanted(batch_first, step)} with {axis.text} = {axis.of(self.values)}"
                                 + (f" ({why})" if why else ""))
        missing = [name for name in self.manifest.sizes[:-1] if name not in self.values]
        if missing:
            raise ShapeError(f"{self.manifest.name}: no tensor of this call says how large {', '.join(missing)} is")
        return self.values
