"""What all frameworks share of a built cell. In: a Built. Out: an Instance: the cell's named tuples, its states in
order, the number of the first step, the sizes that params need, and what the compiler says of it. Guaranteed: nothing
here knows a framework; what is wrong is said in the spec's terms."""

import collections
import functools
import keyword
import operator

from .errors import ShapeError, TypeMismatch
from .graph import Graph


@functools.lru_cache(None)
def tuple_class(name, fields):
    made = collections.namedtuple(name, fields, rename=True)
    made.__reduce__ = lambda self: (tuple_again, (name, fields, *self))
    return made


def tuple_of(name, fields):
    """A named tuple, one class for the same names; a field that Python keeps for itself gets a _ behind it."""
    safe = [field + "_" if keyword.iskeyword(field) or field.startswith("_") else field for field in fields]
    return tuple_class(name, tuple(safe))


def tuple_again(name, fields, *values):
    """What was pickled of a named tuple, whether its cell is loaded or not."""
    return tuple_class(name, tuple(fields))(*values)


class Instance:
    made_with, made_first, made_also = "{}", [], []         # by the framework's users, beside the sizes
    called_as = "y, state = cell({}state=None)"
    whole = (int,)                                          # types of sizes; others that are whole numbers become int

    def __init__(self, built):
        self.built, self.spec, self.settings, self.dtype = built, built.spec, built.settings, built.dtype
        self.manifest, self.library, self.path = built.manifest, built.library, built.path
        self.has_kernels, self.why_no_kernels = built.has_kernels, built.why_no_kernels
        self.State = tuple_of("State", [t.name for t in self.manifest.states])
        self.Outputs = tuple_of("Outputs", [t.name for t in self.manifest.outputs])
        self.doc = self.docstring()

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    @property
    def name(self):
        return self.manifest.name

    @staticmethod
    def listed(tensors):
        return ", ".join(t.name for t in tensors) or "none"

    @staticmethod
    def is_tensor(value):
        """Is this one state alone, and not a sequence of them?"""
        return hasattr(value, "shape") and not isinstance(value, (tuple, list, dict))

    def state_list(self, state):
        """The given state as a list in the manifest's order; None means the spec's initial value."""
        states = self.manifest.states
        if state is None:
            return [None] * len(states)
        if self.is_tensor(state):
            state = (state,)
        if isinstance(state, dict):
            unknown = [name for name in state if name not in [t.name for t in states]]
            if unknown:
                raise ShapeError(f"{self.name}: there is no state {unknown[0]}; there is {self.listed(states)}")
            return [state.get(t.name) for t in states]
        if isinstance(state, str) or not hasattr(state, "__len__"):
            raise TypeMismatch(f"{self.name}: state is a {type(state).__name__}; wanted what an earlier call gave, a dict, or "
                               f"a sequence of {self.listed(states)}")
        if len(state) != len(states):
            raise ShapeError(f"{self.name}: {len(state)} states were given; wanted {len(states)}: "
                             f"{self.listed(states)}")
        return list(state)

    def whole_number(self, name, value, least=0):
        """A size as the user gave it, checked."""
        if not isinstance(value, self.whole):
            try:
                value = operator.index(value)
            except TypeError:
                raise TypeMismatch(f"{self.name}: {name} is {value!r}; wanted a whole number") from None
        if isinstance(value, bool) or value < least or value >= 1 << 63:
            raise ShapeError(f"{self.name}: {name} is {value!r}; wanted a whole number of at least {least}")
        return value

    def first_step(self, t0, state, step):
        """The number of the first step. Where the cell counts steps it cannot be guessed."""
        if t0 is not None:
            return self.whole_number("t0", t0)
        if self.manifest.counts_steps and any(s is not None for s in state):
            raise ShapeError(f"{self.name}: the cell depends on the number of the step, so a call that continues "
                             "needs t0, the number of steps that the state has seen")
        return 0

    def take_sizes(self, arrays, sizes, t0, batch_first, step):
        """Puts the sizes that the given arrays have into `sizes`. The arrays, in which histories of all steps have room
        for those of this call: a framework's `longer` puts places behind those that an array has."""
        m = self.manifest
        before = len(m.given) - len(m.states)
        arrays, state = arrays[:before], arrays[before:]
        for declared, array in zip(m.given, arrays):
            if array is not None:
                sizes.take(declared, array.shape, batch_first, step)
        if step and sizes.values.setdefault("T", 1) != 1:
            raise ShapeError(f"{m.name}: a step with T = {sizes.values['T']}; wanted 1")
        sizes.values[m.first] = self.first_step(t0, state, step)
        if m.grows and "T" in sizes.values:
            places = [a.shape[1] for d, a in zip(m.states, state) if d.grows and a is not None and len(a.shape) > 1]
            room = sizes.values.setdefault("history", max([sizes.values[m.first] + sizes.values["T"], *places]))
            state = [self.longer(a, room) if d.grows and a is not None and 1 < len(a.shape) and a.shape[1] < room else a
                     for d, a in zip(m.states, state)]
        for declared, array in zip(m.states, state):
            if array is not None:
                sizes.take(declared, array.shape, batch_first, step)
        return [*arrays, *state]

    def needs_sizes(self):
        """The dims that the params' shapes and first values are made of."""
        names = {name for t in self.manifest.params for part in [*t.axes, t.init] for name in part.names}
        return [name for name in self.manifest.dims if name in names]

    def check_sizes(self, sizes):
        """The dims that params are made with, if these are they."""
        m = self.manifest
        unknown = [name for name in sizes if name not in m.dims]
        if unknown:
            bound = " (it was bound when the cell was loaded)" if unknown[0] in m.bound else ""
            raise ShapeError(f"{m.name}: there is no dim {unknown[0]} to choose{bound}; there is "
                             f"{', '.join(m.dims) or 'none'}")
        missing = [name for name in self.needs_sizes() if name not in sizes]
        if missing:
            example = ", ".join([*self.made_first, *(f"{name}=64" for name in missing)])
            raise ShapeError(f"{m.name}: its params need the size of {', '.join(missing)}, as in "
                             f"{self.made_with.format(m.name)}({example})")
        return {name: self.whole_number(name, value, 1) for name, value in sizes.items()}

    def check_inputs(self, inputs):
        wanted = self.manifest.inputs
        if len(inputs) != len(wanted):
            raise ShapeError(f"{self.name}: {len(inputs)} inputs were given; wanted {len(wanted)}: "
                             f"{self.listed(wanted)}")

    def explain(self):
        """What the compiler decided, and why."""
        return self.built.ask("explain")

    def source(self, kind="c"):
        """The generated source: c, cuda, header, host, plan, manifest or ir."""
        return self.built.ask("emit", "--kind", kind)

    def graph(self, backward=False):
        """The data flow of one direction, which notebooks show as a picture."""
        words = ["--backward"] if backward else []
        title = f"{self.manifest.key}, {'backward' if backward else 'forward'}"
        return Graph(self.built.ask("graph", *words), title)

    def docstring(self):
        """Shapes and types of everything, then the spec."""
        m = self.manifest
        sizes = ", ".join([*self.made_first, *(f"{n}=..." for n in self.needs_sizes()), *self.made_also])
        inputs = "".join(f"{t.name}, " for t in m.inputs)
        lines = [f"{m.key}, from {self.spec.path}", "",
                 f"Made with {self.made_with.format(m.name)}({sizes}); called as {self.called_as.format(inputs)}.", ""]
        for title, tensors in (("inputs", m.inputs), ("params", m.params), ("states", m.states),
                               ("outputs", m.outputs)):
            for t in tensors:
                start = f" ~ {t.init}" if t.kind == "param" else ""
                doc = f"  {t.doc}" if t.doc else ""
                lines.append(f"{title[:-1]:7} {t.name} {t.wanted()} {t.dtype}{start}{doc}")
        return "\n".join(lines + ["", "The spec:", "", self.spec.text.rstrip(), ""])
