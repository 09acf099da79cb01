"""What all frameworks share of a built cell. In: a Built. Out: an Instance: the cell's named tuples, its states in
order, the number of the first step, the sizes that params need, and what the compiler says of it. Guaranteed: nothing
here knows a framework; what is wrong is said in the spec's terms."""

import collections
import functools
import operator
import re

from .errors import ShapeError, TypeMismatch
from .expression import Undefined
from .graph import Graph
from .names import CALL, by_the_spec, there_is, usable


@functools.lru_cache(None)
def tuple_class(name, fields):
    made = collections.namedtuple(name, fields, rename=True)
    made.__reduce__ = lambda self: (tuple_again, (name, fields, *self))
    return made


def tuple_of(name, fields):
    """A named tuple, one class for the same names."""
    return tuple_class(name, tuple(usable(fields, fields=True).values()))


def tuple_again(name, fields, *values):
    """What was pickled of a named tuple, whether its cell is loaded or not."""
    return tuple_class(name, tuple(fields))(*values)


class Instance:
    made_with, made_first = "{}", []                        # by the framework's users, beside the sizes
    made_keywords = ("self", "sizes")                       # which dims cannot be given as
    args_before, args_behind = [], []                       # what the docstring says that is given beside the sizes
    example_first, example_made, example_call = [], "cell = {}({})", "y, state = cell{1}({2})"      # in the docstring
    whole = (int,)                                          # types of sizes; others that are whole numbers become int

    def __init__(self, built):
        self.built, self.spec, self.settings, self.dtype = built, built.spec, built.settings, built.dtype
        self.manifest, self.library, self.path = built.manifest, built.library, built.path
        self.has_kernels, self.why_no_kernels = built.has_kernels, built.why_no_kernels
        states, outputs = [t.name for t in self.manifest.states], [t.name for t in self.manifest.outputs]
        self.State, self.Outputs = tuple_of("State", states), tuple_of("Outputs", outputs)
        self.state_fields = dict(zip(states, self.State._fields))
        self.keywords = usable([t.name for t in self.manifest.inputs], CALL)       # by which inputs may be given
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
            unknown = [name for name in state if by_the_spec(name, self.state_fields) is None]
            if unknown:
                raise ShapeError(f"{self.name}: {there_is('state', unknown[0], self.state_fields)}")
            state = {by_the_spec(name, self.state_fields): value for name, value in state.items()}
            return [state.get(t.name) for t in states]
        if isinstance(state, str) or not hasattr(state, "__len__"):
            raise TypeMismatch(f"{self.name}: state is a {type(state).__name__}; wanted what an earlier call gave, a dict, or "
                               f"a sequence of {self.listed(states)}")
        if len(state) != len(states):
            raise ShapeError(f"{self.name}: {len(state)} states were given; wanted {len(states)}: "
                             f"{self.listed(states)}")
        return list(state)

    def apart(self, given, count, state):
        """(tensors, state) of arguments by position: behind `count` tensors may stand the state, as torch.nn has it.
        A lone tensor is one where the cell has one state; else it is a tensor too many, which is refused by its number."""
        if len(given) != count + 1 or not self.may_be_state(given[-1]):
            return given, state
        if state is not None:
            raise TypeMismatch(f"{self.name}: the state was given twice, by position and as state=")
        return given[:-1], given[-1]

    def may_be_state(self, value):
        return value is None or isinstance(value, (tuple, list, dict)) or (
            len(self.manifest.states) == 1 and self.is_tensor(value))

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

    def budget(self, value):
        """The bytes that may be kept for backward, of a number or a text such as "512MB"; None: no limit."""
        if value is None:
            return None
        words = r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?i?)B\s*"
        found = re.fullmatch(words, value) if isinstance(value, str) else None
        if found:
            factor = 1024 if found[2].endswith("i") else 1000
            power = " kMGT".index(found[2][:1] or " ")
            if found[2] != "i":
                value = int(float(found[1]) * factor ** power)
        if isinstance(value, str):
            raise TypeMismatch(f"{self.name}: reserve is {value!r}; wanted a number of bytes, or a text such "
                               "as '512MB' or '1.5GiB'")
        return self.whole_number("reserve", value, 1)

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

    def example(self, names, value):
        """How one writes sizes of these names. Words of Python and of the call that takes them go into a dict."""
        dims = [name for name in names if usable([name], self.made_keywords)[name] == name]
        others = [f'"{name}": {value}' for name in names if name not in dims]
        return [f"{name}={value}" for name in dims] + ([f"sizes={{{', '.join(others)}}}"] if others else [])

    def check_sizes(self, given, named, sizes=None):
        """The dims that params are made with, if these are they: those given by position, in the order of the spec, those by
        keyword, and a dict of others, for names that are taken."""
        m, needed = self.manifest, self.needs_sizes()
        if len(given) > len(needed):
            raise TypeMismatch(f"{m.name}: {len(given)} sizes were given by position; "
                               + (f"wanted {len(needed)}: {', '.join(needed)}" if needed else "its params need none"))
        if sizes is not None and not hasattr(sizes, "keys"):
            raise TypeMismatch(f"{m.name}: sizes is {sizes!r}; wanted a dict"
                               + (f", as in {', '.join(self.example(['sizes'], 64))}" if "sizes" in m.dims else ""))
        parts = [dict(zip(needed, given)), named, dict(sizes or {})]
        twice = [name for at, part in enumerate(parts) for name in part if any(name in other for other in parts[:at])]
        if twice:
            raise TypeMismatch(f"{m.name}: the size {twice[0]} was given twice")
        sizes = {name: value for part in parts for name, value in part.items()}
        unknown = [name for name in sizes if name not in m.dims]
        if unknown:
            name = unknown[0]
            if name in m.bound:
                raise ShapeError(f"{m.name}: there is no dim {name} to choose (it was bound when the cell was loaded); there is "
                                 f"{', '.join(m.dims) or 'none'}")
            raise ShapeError(f"{m.name}: {there_is('dim', name, m.dims)}")
        missing = [name for name in needed if name not in sizes]
        if missing:
            example = ", ".join([*self.made_first, *self.example(missing, 64)])
            raise ShapeError(f"{m.name}: its params need the size of {', '.join(missing)}, as in "
                             f"{self.made_with.format(m.name)}({example})")
        return {name: self.whole_number(name, value, 1) for name, value in sizes.items()}

    def all_inputs(self, inputs, named):
        """The inputs in order: those given by position, and behind them some by name."""
        wanted = self.manifest.inputs
        found = dict(zip([t.name for t in wanted], inputs))
        for keyword, value in named.items():
            name = by_the_spec(keyword, self.keywords)
            if name is None or name in found:
                raise TypeMismatch(f"{self.name}: " + (f"{name} was given twice" if name else self.no_keyword(keyword)))
            found[name] = value
        if len(inputs) > len(wanted) or len(found) < len(wanted):
            missing = [t.name for t in wanted if t.name not in found]
            raise ShapeError(f"{self.name}: wanted {len(wanted)} inputs: {self.listed(wanted)}; "
                             + (f"{', '.join(missing)} is missing" if missing else f"{len(inputs)} were given"))
        return [found[t.name] for t in wanted]

    def no_keyword(self, keyword):
        if keyword in ("steps", "final_state"):
            return f"a step takes no {keyword}; calls of all steps do"
        return there_is("input", keyword, [*self.keywords.values(), *sorted(CALL - {"self", "params"})])

    def check_inputs(self, inputs):
        wanted = self.manifest.inputs
        if len(inputs) != len(wanted):
            other = [name for name, keyword in self.keywords.items() if name != keyword and name in CALL]
            raise ShapeError(f"{self.name}: {len(inputs)} inputs were given; wanted {len(wanted)}: "
                             f"{self.listed(wanted)}"
                             + (f". The input {other[0]} is given by position, or as {self.keywords[other[0]]}=" if other else ""))

    def explain(self, all=False):
        """What the compiler decided, in about ten lines; all: every operation, value and buffer, and why."""
        return self.built.ask("explain", *(["--all"] if all else []))

    def source(self, kind="c"):
        """The generated source: c, cuda, header, host, plan, manifest or ir."""
        return self.built.ask("emit", "--kind", kind)

    def graph(self, backward=False):
        """The data flow of one direction, which notebooks show as a picture."""
        words = ["--backward"] if backward else []
        title = f"{self.manifest.key}, {'backward' if backward else 'forward'}"
        return Graph(self.built.ask("graph", *words), title)

    def called(self, declared):
        """The name that a tensor has in Python."""
        outputs = dict(zip([t.name for t in self.manifest.outputs], self.Outputs._fields))
        kinds = {"state": self.state_fields, "output": outputs}
        return kinds.get(declared.kind, self.keywords).get(declared.name, declared.name)

    def docstring(self):
        """In sections, as torch.nn has them: what it is, what it is made with, all shapes, how it is called; then the spec."""
        m = self.manifest
        said = dict(re.findall(r"^\s*dim\s+(\w+)[^;,\n]*;\s*//\s*(.*\S)", self.spec.text, re.M))
        sizes = {name: f"{name} (int): {said.get(name, 'a size')}" for name in self.needs_sizes()}
        lines = [f"{m.key}, from {self.spec.path}", "", *self.headline(), "Args:",
                 *[f"    {text}" for text in (*self.args_before, *sizes.values(), *self.args_behind)], "", "Shape:"]
        for title, tensors in (("inputs", m.inputs), ("params", m.params), ("states", m.states),
                               ("outputs", m.outputs)):
            for t in tensors:
                start = f" ~ {t.init}" if t.kind == "param" else ""
                doc = f"  {t.doc}" if t.doc else ""
                where = f" in {t.range}" if t.range else ""
                other = self.called(t)
                here = f" (here {other})" if other != t.name else ""
                lines.append(f"    {title[:-1]:7} {t.name}{here} {t.wanted()} {t.dtype}{where}{start}{doc}")
        typed = [f"    >>> {line}" for line in self.typed()]
        lines += ["", "Examples::", "", *typed] if typed else []
        return "\n".join([*lines, "", "The spec:", "", self.spec.text.rstrip(), ""])

    def headline(self):
        """What the spec says of itself: the comment in front of the cell."""
        found = re.search(rf"((?:^//[^\n]*\n)+)\s*(?:import[^\n]*\n\s*)*cell\s+{re.escape(self.name)}\b", self.spec.text, re.M)
        return [*[line[2:].strip() for line in found[1].splitlines()], ""] if found else []

    def typed(self):
        """The cell made and called with small sizes, as one types it: all steps, and one step more. None where no small size
        gives all inputs a shape."""
        m = self.manifest
        for small in (4, 8, 12):
            try:
                shapes = [tuple(t.shape({**dict.fromkeys(m.dims, small), m.batch: 2, "T": 3, "total": 4})) for t in m.inputs]
            except Undefined:
                continue
            if all(extent > 0 for shape in shapes for extent in shape):
                return self.typed_with(small, shapes)
        return []

    def typed_with(self, small, shapes):
        m, names = self.manifest, [self.keywords[t.name] for t in self.manifest.inputs]
        values = [self.drawn(t, shape) for t, shape in zip(m.inputs, shapes)]
        last = [f"{name}[:, -1]" if t.timed else name for name, t in zip(names, m.inputs)]
        sizes = [*self.example_first, *self.example(self.needs_sizes(), small)]
        lines = [self.example_made.format(m.name, ", ".join(sizes)), *map(" = ".join, zip(names, values))]
        lines.append(self.example_call.format(m.name, "", ", ".join(names or ["batch=2", "steps=3"])))
        if m.states and not m.grows and not m.packed:
            behind = [*last, "state=state", *(["t0=3"] if m.counts_steps else [])]
            lines.append(self.example_call.format(m.name, ".step", ", ".join(behind)))
        return lines
