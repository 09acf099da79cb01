"""Cells for NumPy: the plain C that cellc generates, on arrays in the host's memory. In: a spec and options. Out: a
function:

    lstm = cellc.load("lstm", framework="numpy", dtype="f64")
    params = lstm.init(0, D=5, H=7)                     # a seed or a Generator, then sizes: a dict of arrays
    y, state = lstm(params, x)                          # x is [B, T, 5]
    y, state = lstm.step(params, x[:, 0], state=state)
    y, state, pull = lstm.vjp(params, x, state=state)
    gradients = pull(d_y, d_state)                      # .params, .inputs, .state

Guaranteed: arrays of any strides are taken (those that are not contiguous are copied), and results are new arrays."""

import functools

import numpy

from .build import build
from .errors import BackendError, NotThere
from .fast import fast, plan
from .function import DTYPE_NAMES, Function
from .manifest import CODES
from .native import RECOMPUTE, remember

ALIGNMENT = 16                      # of what the library reads, bytes


def types():
    """bfloat16 is there where ml_dtypes is, which NumPy itself does not bring."""
    found = {name: numpy.dtype(value) for name, value in DTYPE_NAMES.items()}
    try:
        import ml_dtypes
        found["bf16"] = numpy.dtype(ml_dtypes.bfloat16)
        found["e4m3"], found["e5m2"] = numpy.dtype(ml_dtypes.float8_e4m3fn), numpy.dtype(ml_dtypes.float8_e5m2)
    except ImportError:
        pass
    return found


def load(given, options):
    return build(given, options, "NumPy", None, NumpyCell)


class Source:
    def __init__(self, seed):
        self.generator = numpy.random.default_rng(seed)

    def uniform(self, shape, low, high):
        return self.generator.uniform(low, high, shape)

    def normal(self, shape):
        return self.generator.standard_normal(shape)


def empty(shape, dtype):
    """As numpy.empty, at an address that the library takes."""
    count = numpy.prod(shape, dtype=numpy.int64) * dtype.itemsize
    raw = numpy.empty(count + ALIGNMENT, numpy.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start:start + count].view(dtype).reshape(shape)


def ready(array):
    """The array as the library can read it."""
    if array is None or (array.flags.c_contiguous and array.dtype.isnative and array.ctypes.data % ALIGNMENT == 0):
        return array
    copy = empty(array.shape, array.dtype.newbyteorder("="))
    copy[...] = array
    return copy


@functools.lru_cache(None)
def planned():
    """Are there calls in C?"""
    return fast().there and fast().tell("numpy", numpy.ndarray)


def address(array):
    return 0 if array is None else array.ctypes.data


class NumpyCell(Function):
    framework = "numpy"
    xp, dtypes = numpy, types()
    made_first, made_keywords = ["seed"], ("self", "sizes", "seed")
    args_before, example_first = ["seed: a number, or a numpy.random.Generator"], ["0"]

    def __init__(self, built):
        m = built.manifest
        if "bf16" not in self.dtypes and any(t.dtype == "bf16" for t in m.tensors.values()):
            raise BackendError(f"{m.name}: NumPy has no bfloat16; install ml_dtypes, or load the cell with dtype="
                               "\"f32\"")
        if "e4m3" not in self.dtypes and any(t.dtype in CODES for t in m.tensors.values()):
            raise BackendError(f"{m.name}: NumPy has no numbers of 8 bits with an exponent; install ml_dtypes")
        super().__init__(built)
        self.plans = {}                 # of steps and of calls of all steps, with final states and without: by their arrays
        self.names = [t.name for t in built.manifest.params]

    @staticmethod
    def is_array(value):
        return isinstance(value, numpy.ndarray)

    def converted(self, declared, array):
        """NumPy makes scalars of what it computes from arrays without axes, such as a param less its gradient."""
        return super().converted(declared, numpy.asarray(array) if isinstance(array, numpy.generic) else array)

    def init(self, seed=None, /, *given, sizes=None, **named):
        """First values of params: a dict of arrays. `seed` is what numpy.random.default_rng takes; sizes follow in the order
        of the spec or by name; `sizes` is a dict, for dims whose names are keywords here."""
        seed = named.pop("seed", None) if seed is None else seed
        return self.first_values(Source(seed), given, named, sizes)

    def call(self, way, arrays, sizes, reserve, flags=0):
        memory = (address(reserve), 0 if reserve is None else reserve.nbytes)
        self.library.call(way, None, 0, sizes, [address(a) for a in arrays], (0, 0), memory, flags)

    def run(self, way, arrays, sizes, reserve=None, final_state=True, flags=0):
        made = [empty(self.shape(t, sizes), self.dtype_of(t)) for t in self.wanted(final_state)]
        rest = [None] * (len(self.manifest.outputs) + len(self.manifest.states) - len(made))
        self.call(way, [*map(ready, arrays), *made, *rest], sizes, reserve, flags)
        return made

    def in_order(self, params, inputs, state):
        """The arrays of a call in the library's order, where they are given the plain way; else None."""
        m = self.manifest
        if type(params) is not dict or len(params) != len(self.names) or len(inputs) != len(m.inputs):
            return None
        if state is None:
            state = [None] * len(m.states)
        if type(state) not in (list, tuple, self.State) or len(state) != len(m.states):
            return None
        try:
            return [*inputs, *[params[name] for name in self.names], *state]
        except KeyError:
            return None

    def planned(self, params, inputs, state, step, final_state=True):
        """What a call like an earlier one gives; None where there was none."""
        arrays = self.in_order(params, inputs, state) if planned() else None
        plans = self.plans.get((step, bool(final_state)))
        made = None if arrays is None or plans is None else fast().call(plans, 0, *arrays)
        if made is None:
            return None
        count = len(self.manifest.outputs)
        outputs = made[0] if count == 1 else tuple.__new__(self.Outputs, made[:count])
        return outputs, tuple.__new__(self.State, made[count:]) if final_state else None

    def keep_plan(self, params, inputs, state, sizes, step, final_state=True):
        """Makes a plan for calls like this one, which has been found right, if no array of it is converted."""
        m, arrays = self.manifest, self.in_order(params, inputs, state) if planned() else None
        if arrays is None or m.packed or m.grows or any(
                a is not None and a.dtype != self.dtype_of(t) for t, a in zip(m.given, arrays)):
            return
        key, kind = fast().key(*arrays), (step, bool(final_state))
        if key is None:
            return
        shapes = [self.shape(t, sizes) for t in [*m.outputs, *m.states]]
        if step:
            shapes[:len(m.outputs)] = [shape[:1] + shape[2:] for shape in shapes[:len(m.outputs)]]
        makers = [(numpy.empty, shape, self.dtype_of(t)) if final_state or t.kind == "output" else None
                  for t, shape in zip([*m.outputs, *m.states], shapes)]
        found = plan(self.library, "step" if step else "forward", None, sizes, len(arrays), makers)
        if found is not None:
            remember(self.plans.setdefault(kind, {}), key, found)

    def __call__(self, params, /, *inputs, state=None, t0=None, batch=None, steps=None, final_state=True, **named):
        """All steps: (outputs, final states). Inputs are [B, T, ...], in the order of the spec or by name. `state`, by name
        or behind all inputs, is what an earlier call gave, or None for the spec's initial values; t0 the number of steps
        done before, which only cells that use it ask for. A cell without inputs is told `batch` and `steps`. With
        final_state=False there are no final states, None in their place: neither allocated nor written."""
        plain = not named and t0 is None and batch is None and steps is None
        found = self.planned(params, inputs, state, False, final_state) if plain else None
        if found is not None:
            return found
        arrays, sizes = self.take(params, inputs, named, state, t0, batch, steps, False)
        made = self.run("forward", arrays, sizes, final_state=final_state)
        if plain:
            self.keep_plan(params, inputs, state, sizes, False, final_state)
        return self.pack(made, final_state=final_state)

    def step(self, params, /, *inputs, state=None, t0=None, batch=None, **named):
        """One step: inputs [B, ...] to (outputs [B, ...], states)."""
        plain = not named and t0 is None and batch is None
        found = self.planned(params, inputs, state, True) if plain else None
        if found is not None:
            return found
        arrays, sizes = self.take(params, inputs, named, state, t0, batch, None, True)
        made = self.run("step", arrays, sizes)
        if plain:
            self.keep_plan(params, inputs, state, sizes, True)
        return self.pack(made, step=True)

    def vjp(self, params, /, *inputs, state=None, t0=None, batch=None, steps=None, final_state=True,
            reserve=None, offload=False, **named):
        """(outputs, final states, pull): pull(d_outputs, d_state) gives the gradients of params, inputs and the given
        states, of what the cotangents weigh; a cotangent that is None is zero, and so are those that are left out.
        Complex gradients are those of PyTorch: they point uphill. What was given must not change before pull.
        `reserve` is how many bytes may be kept for pull (a number, or "512MB"), which computes the rest."""
        if self.manifest.backward is None:
            raise BackendError(f"{self.name}: the cell has no gradients")
        if offload:
            raise NotThere(f"{self.name}: offload=True is not there in NumPy, whose arrays are in the host's memory already")
        inputs, state = self.apart(inputs, len(self.manifest.inputs), state)
        given = self.state_list(state)
        arrays, sizes = self.take(params, inputs, named, state, t0, batch, steps, False)
        arrays = [ready(a) for a in arrays]
        budget, flags = self.budget(reserve), 0 if reserve is None else RECOMPUTE
        kept = empty((max(self.library.memory("reserve", None, sizes, budget), 1),), numpy.dtype(numpy.uint8))
        made = self.run("forward", arrays, sizes, kept, final_state, flags)
        y, final = self.pack(made, final_state=final_state)

        m = self.manifest

        def pull(d_outputs=None, d_state=None):
            weights = [ready(a) for a in self.cotangents(d_outputs, d_state, sizes)]
            found = [empty(a.shape, self.dtypes[m.dtype] if t.dtype in CODES else a.dtype) if a is not None and t.gradient else None
                     for t, a in zip(self.manifest.given, arrays)]
            self.call("backward", [*arrays, *weights, *found], sizes, kept, flags)
            before = len(found) - len(given)
            for i, (t, a) in enumerate(zip(self.manifest.states, given), before):
                if t.grows and a is not None:       # as long as it was given
                    found[i] = found[i][:, :a.shape[1]]
            return self.gradients(found)

        return y, final, pull
