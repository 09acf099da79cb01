"""A built cell as a function of arrays, cell(params, x, ..., state=None), for frameworks without modules. In: a Built,
and an array library like NumPy's. Out: checks, conversions and orders of what a call takes and gives, and first values of
params. Guaranteed: params are a dict by the spec's names, in its order; shapes and types are checked before anything
runs; nothing is written into an array that was given."""

import math

from .build import again
from .errors import ShapeError, TypeMismatch, beyond_int32
from .instance import Instance, tuple_of
from .manifest import CODES, Sizes
from .names import there_is

DTYPE_NAMES = {"f32": "float32", "f16": "float16", "f64": "float64", "i32": "int32", "c64": "complex64",
               "c128": "complex128"}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
NUMBERS = ("float32", "bfloat16", "float16", "float64")            # what codes may be made of
INTEGERS = ("int64", "int16", "int8", "uint8", "uint16", "uint32", "uint64")        # tokens are int64 in NumPy


class Function(Instance):
    """Subclasses have `xp`, the array library, `dtypes`, its types by cellc's names, and `is_array`."""

    framework = None                    # as load() has it
    made_with = "params = {}.init"
    example_made, example_call = "params = {}.init({})", "y, state = {0}{1}(params, {2})"
    xp, dtypes = None, {}
    encodes_in_run = False              # numbers in place of codes are encoded by `run`, below gradients, or else by `take`

    def __init__(self, built):
        super().__init__(built)
        self.__doc__ = self.doc
        self.Gradients = tuple_of("Gradients", ["params", "inputs", "state"])

    def __reduce__(self):
        return again, (self.framework, self.spec, self.built.options)

    def __repr__(self):
        return f"<cellc {self.manifest.key}, a function of {self.xp.__name__} arrays>"

    def drawn(self, declared, shape):
        """An array of an example, as one types it."""
        return f'{self.xp.__name__}.ones({shape}, "{self.dtype_of(declared).name}")'

    # ---- what a call takes

    def take(self, params, inputs, named, state, t0, batch, steps, step):
        """(arrays in the library's order, sizes in its order). Missing states are None."""
        m = self.manifest
        inputs, state = self.apart(inputs, len(m.inputs), state)
        if named:
            inputs = self.all_inputs(inputs, named)
        self.check_inputs(inputs)
        state = self.state_list(state)
        arrays = [self.converted(declared, value)
                  for declared, value in zip(m.given, [*inputs, *self.param_list(params), *state])]
        known = {k: self.whole_number(name, v) for k, name, v in ((m.batch, "batch", batch), ("T", "steps", steps))
                 if v is not None}
        sizes = Sizes(m, known, "the call")
        arrays = self.take_sizes(arrays, sizes, t0, True, step)
        known = sizes.finish()
        if step:
            arrays = [a[:, None] if a is not None and d.timed and not d.packed else a for d, a in zip(m.given, arrays)]
        return self.with_scales(arrays, m.list_sizes(known)), m.list_sizes(known)

    def longer(self, array, room):
        return self.xp.pad(array, [(0, 0), (0, room - array.shape[1])] + [(0, 0)] * (array.ndim - 2))

    def param_list(self, params):
        m = self.manifest
        if not hasattr(params, "keys"):
            raise TypeMismatch(f"{m.name}: params are a {type(params).__name__}; wanted a dict of "
                               f"{self.listed(m.params)}")
        wanted = [t.name for t in m.params]
        scales = {self.manifest.given[k].name for _, k in m.codes}          # beside numbers they may be left out
        missing = [name for name in wanted if name not in params and name not in scales]
        unknown = [name for name in params if name not in wanted]
        if missing or unknown:
            if unknown:
                raise TypeMismatch(f"{m.name}: params are a dict: {there_is('param', unknown[0], wanted)}")
            raise TypeMismatch(f"{m.name}: {', '.join(missing)} is missing; wanted a dict of {self.listed(m.params)}")
        return [params.get(name) for name in wanted]

    def dtype_of(self, declared):
        return self.xp.dtype(self.dtypes[declared.dtype])

    def converted(self, declared, array):
        """In the type in which it is stored: params from another floating type, places from another integer."""
        if array is None:
            if declared.kind != "state" and not (declared.scales and declared.kind == "param"):
                raise TypeMismatch(f"{self.name}: {declared.name} is None; wanted an array")
            return None
        if not self.is_array(array):
            raise TypeMismatch(f"{self.name}: {declared.name} is a {type(array).__name__}; wanted an array")
        wanted = self.dtype_of(declared)
        if array.dtype.name == wanted.name:          # in any order of bytes
            return array
        if declared.dtype in CODES:
            own = self.xp.dtype(self.dtypes[self.manifest.dtype])
            if array.dtype.name == own.name:
                return array
            if declared.kind == "param" and array.dtype.name in NUMBERS:
                return array.astype(own)
            raise TypeMismatch(f"{self.name}: {declared.name} is {array.dtype.name}; this instance stores it as {wanted.name} "
                               f"beside {declared.name}_scale: give codes of that type, or numbers of {own.name}")
        kinds = {array.dtype.kind, wanted.kind} - {"V"}          # V: bfloat16, as ml_dtypes has it
        if declared.kind == "param" and kinds <= {"f"} or declared.kind == "param" and kinds <= {"c"}:
            return array.astype(wanted)
        if declared.dtype == "i32" and array.dtype.name in INTEGERS:
            return self.narrowed(declared, array)
        if array.dtype.name == "bool" and declared.kind == "input":      # 0 and 1 are the same in all types
            return array.astype(wanted)
        raise TypeMismatch(f"{self.name}: {declared.name} is {array.dtype.name}; this instance stores it as "
                           f"{wanted.name}. Convert it with .astype(\"{wanted.name}\")"
                           + (", or load the cell with another dtype" if declared.dtype != "i32" else ""))

    def narrowed(self, declared, array):
        """Integers of another type in int32, which must hold them."""
        for extreme in (array.min(), array.max()) if array.size else ():
            if not -1 << 31 <= int(extreme) < 1 << 31:
                raise TypeMismatch(beyond_int32(f"{self.name}: {declared.name}", int(extreme)))
        return array.astype("int32")

    # ---- numbers of 8 bits

    def is_codes(self, declared, array):
        return array.dtype.name == self.dtype_of(declared).name

    def with_scales(self, arrays, sizes):
        """The arrays of a call, where codes or numbers are given for what is stored in 8 bits."""
        arrays = list(arrays)
        for at, scales in self.manifest.codes:
            t, scale = self.manifest.given[at], self.manifest.given[scales]
            if self.is_codes(t, arrays[at]):
                if arrays[scales] is None:
                    raise TypeMismatch(f"{self.name}: {scale.name} is missing; {t.name} is given as {arrays[at].dtype.name}, which "
                                       "stands beside it")
            elif self.encodes_in_run and arrays[scales] is None:            # so that shapes and types are those of every call
                arrays[scales] = self.xp.ones(self.shape(scale, sizes), self.dtype_of(scale))
        return arrays if self.encodes_in_run else self.as_codes(arrays, sizes)

    def as_codes(self, arrays, sizes):
        """The arrays as the library takes them: codes and scales of what comes as numbers."""
        arrays = list(arrays)
        for at, scales in self.manifest.codes:
            t, scale = self.manifest.given[at], self.manifest.given[scales]
            if not self.is_codes(t, arrays[at]):
                arrays[at], arrays[scales] = self.encoded(t, arrays[at], self.shape(scale, sizes), self.dtype_of(scale))
        return arrays

    def coded_params(self, params):
        """[(a param of 8 bits, its array, its scales, the shape that these have)]"""
        m = self.manifest
        arrays = {t.name: self.converted(t, a) for t, a in zip(m.params, self.param_list(params))}
        sizes = Sizes(m, {name: int(name != m.first) for name in m.sizes if name not in self.needs_sizes()}, "the call")
        for t in m.params:
            if arrays[t.name] is not None:
                sizes.take(t, arrays[t.name].shape)
        known = m.list_sizes(sizes.finish())
        pairs = [(m.given[at], m.given[scales]) for at, scales in m.codes]
        return [(t, arrays[t.name], scale, arrays[scale.name], self.shape(scale, known)) for t, scale in pairs if t.kind == "param"]

    def encode(self, params):
        """The dict with codes and scales in place of params that are stored in 8 bits and are numbers here."""
        found = dict(params)
        for t, array, scale, _, shape in self.coded_params(params):
            if not self.is_codes(t, array):
                found[t.name], found[scale.name] = self.encoded(t, array, shape, self.dtype_of(scale))
        return found

    def decode(self, params):
        """The dict with numbers in place of codes and their scales: what a call computes with."""
        found = dict(params)
        for t, array, scale, scales, shape in self.coded_params(params):
            found.pop(scale.name, None)
            if not self.is_codes(t, array):
                continue
            if scales is None:
                raise TypeMismatch(f"{self.name}: {scale.name} is missing; {t.name} is given as {array.dtype.name}, which stands "
                                   "beside it")
            value = array.astype("float32")
            value = (value.reshape(*shape, -1) * scales[..., None]).reshape(array.shape) if shape and array.size else value * scales
            found[t.name] = value.astype(self.xp.dtype(self.dtypes[self.manifest.dtype]))
        return found

    # ---- what it gives

    def shape(self, declared, sizes):
        shape = tuple(declared.shape(dict(zip(self.manifest.sizes, sizes))))
        if math.prod(shape) >= 1 << 58:              # more bytes than addresses; XLA ends the process over it
            raise ShapeError(f"{self.name}: {declared.name} would have shape {list(shape)}, more than any memory holds")
        return shape

    def wanted(self, final_state):
        """What forward writes."""
        return [*self.manifest.outputs, *(self.manifest.states if final_state else [])]

    def pack(self, made, step=False, final_state=True):
        """(outputs, State) of the arrays that forward wrote; None in place of states that were not wanted."""
        m = self.manifest
        outputs = [a[:, 0] if step else a for a in made[:len(m.outputs)]]
        return (outputs[0] if len(outputs) == 1 else self.Outputs(*outputs)), (self.State(*made[len(m.outputs):])
                                                                                if final_state else None)

    def cotangents(self, d_outputs, d_state, sizes):
        """Those of outputs and final states in the library's order; None is zero."""
        m = self.manifest
        if d_outputs is None:
            d_outputs = [None] * len(m.outputs)
        elif self.is_array(d_outputs):
            d_outputs = [d_outputs]
        elif isinstance(d_outputs, (str, dict)) or not hasattr(d_outputs, "__len__"):
            raise TypeMismatch(f"{m.name}: the cotangents are a {type(d_outputs).__name__}; wanted an array, or a sequence, of "
                               f"{self.listed(m.outputs)}")
        if len(d_outputs) != len(m.outputs):
            raise ShapeError(f"{m.name}: {len(d_outputs)} cotangents were given; wanted {len(m.outputs)}, of "
                             f"{self.listed(m.outputs)}")
        given = [*d_outputs, *self.state_list(d_state)]
        for declared, array in zip([*m.outputs, *m.states], given):
            if array is not None and not self.is_array(array):
                raise TypeMismatch(f"{m.name}: the cotangent of {declared.name} is a {type(array).__name__}; wanted an array")
            if array is not None and tuple(array.shape) != self.shape(declared, sizes):
                raise ShapeError(f"{m.name}: the cotangent of {declared.name} has shape {list(array.shape)}; wanted "
                                 f"{list(self.shape(declared, sizes))}, as {declared.name} has")
        return [a if a is None else a.astype(self.dtype_of(d)) for d, a in zip([*m.outputs, *m.states], given)]

    def gradients(self, found):
        """Gradients of what was given, in the library's order; None where there is none."""
        m = self.manifest
        n, k = len(m.inputs), len(m.inputs) + len(m.params)
        return self.Gradients(dict(zip([t.name for t in m.params], found[n:k])), tuple(found[:n]),
                              self.State(*found[k:]))

    # ---- first values

    def first_values(self, source, given, named, sizes):
        """A dict of params as the spec draws them. `source` draws uniform(shape, low, high) and normal(shape)."""
        sizes = self.check_sizes(given, named, sizes)
        m = self.manifest
        found = {t.name: self.fill(t, sizes, source) for t in m.params}
        for at, scales in m.codes:
            t, scale = m.given[at], m.given[scales]
            if t.kind == "param":
                shape = tuple(axis.of(sizes) for axis in scale.axes)
                found[t.name], found[scale.name] = self.encoded(t, found[t.name], shape, self.dtype_of(scale))
        return found

    @staticmethod
    def quotient(array, by):
        return array / by

    def encoded(self, declared, value, shape, kind):
        """(codes, scales): a scale is the largest magnitude of its numbers divided by the type's largest number."""
        xp, value = self.xp, value.astype("float32")
        apart = value.reshape(*shape, value.shape[-1] // max(shape[-1], 1)) if shape else value.reshape(-1)
        most = xp.abs(apart).max(-1) if value.size else xp.zeros(shape)
        scales = xp.where(most == 0, 1, xp.maximum(self.quotient(most, LARGEST[declared.dtype]), 2.0 ** -126)).astype(kind)
        apart = self.quotient(apart, scales[..., None] if shape else scales)
        codes = xp.clip(apart, -LARGEST[declared.dtype], LARGEST[declared.dtype]).astype(self.dtype_of(declared))
        return codes.reshape(value.shape), scales

    def fill(self, declared, sizes, source):
        """The rules of cellc.init, which are PyTorch's side of this: stacked weights count as one matrix, both
        parts of a complex number are drawn."""
        xp, name = self.xp, declared.init.name
        a, b = declared.init.numbers(self.name, declared, sizes)
        shape = tuple(axis.of(sizes) for axis in declared.axes)
        wide = (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
        is_complex = declared.dtype in ("c64", "c128")

        def drawn(draw):
            return (draw() + 1j * draw()) * math.sqrt(0.5) if is_complex else draw()

        if name == "xavier":
            bound = math.sqrt(6 / sum(wide))
            value = drawn(lambda: source.uniform(shape, -bound, bound))
        elif name == "uniform":
            value = drawn(lambda: source.uniform(shape, a, b))
        elif name == "normal":
            value = drawn(lambda: a + b * source.normal(shape))
        elif name == "orthogonal":
            q, r = xp.linalg.qr(drawn(lambda: source.normal((max(wide), min(wide)))))
            d = xp.diagonal(r)
            q = q * (d / xp.abs(d))                  # so that all directions are equally likely
            value = (q if q.shape == wide else q.conj().T).reshape(shape)
        elif name == "eye":
            value = xp.eye(*wide).reshape(shape)
        else:
            value = xp.full(shape, {"zeros": 0, "ones": 1, "const": a}[name])
        return value.astype("float32" if declared.dtype in CODES else self.dtype_of(declared))
