"""Cells for JAX: a custom call into the library that cellc builds, with a gradient. In: a spec and options. Out: a
function:

    lstm = cellc.load("lstm", framework="jax")
    params = lstm.init(jax.random.key(0), D=5, H=7)     # a dict of arrays
    y, state = lstm(params, x)                          # x is [B, T, 5]
    y, state = lstm.step(params, x[:, 0], state=state)

Guaranteed: a call is one operation in a program that is compiled, on the CPU the plain C, on a GPU the kernels, on the
stream and in the memory of XLA; gradients that nobody asked for are neither allocated nor computed; complex gradients
are those of JAX, the conjugates of PyTorch's."""

import ctypes
import functools
import hashlib
import os
import subprocess
import threading

import jax
import jax.numpy
import numpy

from . import cache, compiler, nvrtc
from .build import build, free_name
from .errors import BackendError, BuildError, NotThere, ShapeError, TypeMismatch
from .function import DTYPE_NAMES, INTEGERS, Function
from .manifest import CODES

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = "cellc"
WAYS = ("create", "create_image", "set_stream", "last_error", "forward", "backward", "step", "workspace",
        "inference", "recompute")
SECOND_ORDER = ("{name}: the gradient of a gradient was asked for, but a cell's backward pass is not differentiable. "
                "Where it is needed, write the inner gradient into the spec with grad(...), or take a finite difference "
                "of two first gradients")
FORWARD_MODE = ("{name}: forward mode (jax.jvp, jacfwd, and so hessian) is not there for cells, which have a gradient and no tangent. "
                "jax.grad, vjp and jacrev work")
lock, registered = threading.Lock(), set()          # names that the custom call knows cells by


class Entry(ctypes.Structure):
    """CellcLibrary of xla_call.c."""
    _fields_ = [("desc", ctypes.c_void_p), *[(way, ctypes.c_void_p) for way in WAYS], ("no_kernels", ctypes.c_char_p),
                ("apart", ctypes.c_int), ("images", ctypes.c_char_p * 64)]


def gpus():
    """Those that JAX sees."""
    try:
        return jax.local_devices(backend="cuda")
    except RuntimeError:
        return []


def capabilities():
    return {device.local_hardware_id: device.compute_capability.replace(".", "") for device in gpus()}


def compile_call(place):
    """libcellc_xla.so, with the C compiler that cellc uses and the headers that came with JAX."""
    include = compiler.headers_dir()
    words = [*os.environ.get("CC", "cc").split(), "-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-pthread",
             "-I", include, "-I", jax.ffi.include_dir(), os.path.join(HERE, "xla_call.c"),
             "-o", os.path.join(place, "libcellc_xla.so")]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise BuildError(f"cellc: cannot run {words[0]}, which compiles the call from JAX: {error}") from None
    if done.returncode:
        raise BuildError(f"cellc: the call from JAX was not compiled: {done.stderr.strip()}")
    return {"compiler": words[0]}


@functools.lru_cache(None)
def custom_call():
    """The library of the custom call, its targets registered with XLA."""
    with open(os.path.join(HERE, "xla_call.c"), "rb") as f:
        text = hashlib.sha256(f.read()).hexdigest()
    name = cache.entry_name(["call", "jax" + jax.__version__], [text, jax.__version__, compiler.fingerprint()])
    dll = ctypes.CDLL(os.path.join(cache.get(name, compile_call), "libcellc_xla.so"))
    dll.cellc_xla_register.argtypes = [ctypes.c_char_p, ctypes.POINTER(Entry)]
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(dll.cellc_xla_host), platform="cpu")
    if gpus():
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(dll.cellc_xla_cuda), platform="CUDA")
    return dll


def register(built):
    """Tells the custom call of a cell, under a name that programs keep: it stands for spec and settings, so that a program that
    was exported finds the cell of a later build. That name."""
    library = built.library
    functions = [library.create, library.create_image, library.set_stream, library.last_error,
                 *[library.run[way] for way in WAYS[4:7]], *[library.bytes[what] for what in WAYS[7:9]],
                 library.recompute]
    addresses = [ctypes.cast(function, ctypes.c_void_p) for function in functions]
    why = None if built.has_kernels else built.why_no_kernels.encode()
    entry = Entry(ctypes.cast(library.desc, ctypes.c_void_p), *addresses, why, library.images is not None)
    for number, image in (library.images or {}).items():
        entry.images[number] = image
    if library.images is not None:
        nvrtc.load_cublas()
    with lock:
        name = free_name(f"{built.manifest.name}_{built.meaning}", registered)
        if custom_call().cellc_xla_register(name.encode(), ctypes.byref(entry)):
            raise BuildError(f"{built.manifest.name}: out of memory")
        registered.add(name)
    return name


def load(given, options):
    return build(given, options, "JAX", capabilities(), JaxCell)


class Source:
    def __init__(self, key):
        self.key = key

    def draw(self, how, shape, *more):
        self.key, one = jax.random.split(self.key)
        return how(one, tuple(shape), jax.numpy.result_type(float), *more)

    def uniform(self, shape, low, high):
        return self.draw(jax.random.uniform, shape, low, high)

    def normal(self, shape):
        return self.draw(jax.random.normal, shape)


@jax.tree_util.register_static
class Wanted(tuple):
    """For which arguments gradients are wanted: known when the program is traced, so not an array in it."""


def is_zero(cotangent):
    return cotangent is None or isinstance(cotangent, jax.custom_derivatives.SymbolicZero)


def manual_axes(array):
    """Over which axes of a mesh shard_map says that an array differs, and over which it is held as parts of a sum. Where it
    does not say (check_vma=False), and outside of it, none."""
    kind = jax.typeof(array)
    of = getattr(kind, "manual_axis_type", None)
    if of is None:                                   # before JAX 0.8
        return getattr(kind, "vma", frozenset()), frozenset()
    return frozenset(of.varying), frozenset(of.unreduced)


def vary(array, axes):
    """The array as one that differs over these axes as well. The transpose of this is the sum over them, so that what is
    the same on all devices gets the gradient of all."""
    more = axes - manual_axes(array)[0]
    reduced = more & getattr(getattr(jax.typeof(array), "manual_axis_type", None), "reduced", frozenset())
    for group in filter(None, (reduced, more - reduced)):          # JAX takes axes of one kind at a time
        names = tuple(sorted(group))
        array = jax.lax.pcast(array, names, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(array, names)
    return array


def gathered(array):
    """The array as one that all devices hold, where its type says that they hold parts (axes of a mesh that are Explicit).
    The custom call computes on whole arrays; where types do not say it, XLA gathers by itself."""
    sharding = getattr(jax.typeof(array), "sharding", None)
    if all(part is None for part in getattr(sharding, "spec", ())):
        return array
    if not hasattr(jax.sharding, "reshard"):
        raise NotThere("cellc: arrays whose type has a sharding (Explicit axes) want JAX 0.7 or newer")
    return jax.sharding.reshard(array, jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec()))


def forwards(array):
    """Does jax.jvp want a tangent of what is computed from it? (Gradients have tracers of another kind, unless JAX is told
    to make them of the same; then JAX's own words have to do, as they have within jit.)"""
    return isinstance(array, jax.interpreters.ad.JVPTracer) and getattr(jax.config, "jax_use_direct_linearize", False)


def conjugate(array):
    """Between JAX's convention for gradients of complex numbers and PyTorch's, which the library has."""
    return array.conj() if array is not None and array.dtype.kind == "c" else array


def codes():
    """Types of 8 bits, as JAX has them."""
    return {"e4m3": jax.numpy.dtype(jax.numpy.float8_e4m3fn), "e5m2": jax.numpy.dtype(jax.numpy.float8_e5m2)}


class JaxCell(Function):
    framework = "jax"
    xp, dtypes = jax.numpy, {**DTYPE_NAMES, "bf16": "bfloat16", **codes()}
    encodes_in_run = True
    made_first, made_keywords = ["key"], ("self", "sizes", "key")
    args_before, example_first = ["key: of jax.random"], ["jax.random.key(0)"]

    def __init__(self, built):
        super().__init__(built)
        if not jax.config.jax_enable_x64 and any(t.dtype in ("f64", "c128") for t in self.manifest.tensors.values()):
            raise BackendError(f"{self.name}: JAX has no 64-bit numbers before jax.config.update(\"jax_enable_x64\", "
                               "True); say so first, or load the cell with dtype=\"f32\"")
        if not built.plain:
            raise BuildError(f"{self.name}: JAX calls cells through a little C, which is compiled here, and "
                             f"{compiler.no_cc()}. Install one, as in apt-get install gcc libc6-dev, or "
                             "say in CC how yours is called")
        self.call_name = register(built)
        self.primal = self.differentiable(self.infer, self.save, self.pull_back)
        self.saving = self.differentiable(self.run_saving, self.keep, self.pull_back)
        self.backward = self.differentiable(self.differentiate, self.refuse_second_order, lambda *_: None)

    @staticmethod
    def differentiable(function, forward, backward):
        """function(call, values), where `call` is no array."""
        made = jax.custom_vjp(function, nondiff_argnums=(0,))
        made.defvjp(forward, backward, symbolic_zeros=True)
        return made

    @staticmethod
    def is_array(value):
        return isinstance(value, (jax.Array, numpy.ndarray))

    @staticmethod
    def quotient(array, by):
        """Where many numbers are divided by one, XLA multiplies by its reciprocal, which is rounded: codes would be others than
        PyTorch's and C's."""
        return array / jax.lax.optimization_barrier(jax.numpy.broadcast_to(jax.numpy.asarray(by, array.dtype), array.shape))

    def converted(self, declared, array):
        if isinstance(array, numpy.ndarray):
            if declared.dtype == "i32" and array.dtype.name in INTEGERS:       # before JAX makes other numbers of them
                array = super().narrowed(declared, array)
            array = jax.numpy.asarray(array)
        return super().converted(declared, array)

    def narrowed(self, declared, array):
        """Where the numbers cannot be looked at (traced, or on another host), those that int32 does not hold become its
        largest or its smallest: as a place that is outside, as lengths out of range, never what 32 of their bits say."""
        if not isinstance(array, jax.core.Tracer) and array.is_fully_addressable:
            return super().narrowed(declared, array)
        limits = jax.numpy.iinfo("int32")
        wide = jax.numpy.iinfo(array.dtype)
        return jax.numpy.clip(array, max(limits.min, wide.min), min(limits.max, wide.max)).astype("int32")

    def whole_number(self, name, value, least=0):
        if isinstance(value, jax.core.Tracer):
            raise ShapeError(f"{self.name}: {name} is traced; it must be a number that is known when the program is "
                             "compiled, as sizes are")
        return super().whole_number(name, value, least)

    def take(self, *given):
        arrays, sizes = super().take(*given)
        for name, size in zip(self.manifest.sizes, sizes):
            if not isinstance(size, int):
                raise ShapeError(f"{self.name}: {name} is {size}, a symbol; a cell's sizes are numbers in the program, so export one "
                                 "program for each size")
        return arrays, sizes

    # ---- what users call

    def init(self, key=None, /, *given, sizes=None, **named):
        """First values of params: a dict of arrays. `key` is a jax.random.key; sizes follow in the order of the spec or by
        name; `sizes` is a dict, for dims whose names are keywords here."""
        key = named.pop("key", None) if key is None else key
        if key is None:
            raise TypeMismatch(f"{self.name}: init wants a key, as in {self.made_with.format(self.name)}(jax.random.key(0), ...)")
        return self.first_values(Source(key), given, named, sizes)

    def __call__(self, params, /, *inputs, state=None, t0=None, batch=None, steps=None, final_state=True,
                 reserve=None, offload=False, **named):
        """All steps: (outputs, final states). Inputs are [B, T, ...], in the order of the spec or by name. `state`, by name
        or behind all inputs, is what an earlier call gave, or None for the spec's initial values; t0 the number of steps
        done before, which only cells that use it ask for. A cell without inputs is told `batch` and `steps`. With
        final_state=False there are no final states, None in their place: neither allocated nor written.
        `reserve` is how many bytes the call may keep for its gradient (a number, or "512MB"), which computes
        the rest again."""
        if offload:
            raise NotThere(f"{self.name}: offload=True is not there in JAX, which has no pinned memory of the host for a call to "
                           "keep until its gradient; reserve= alone bounds the memory")
        arrays, sizes = self.take(params, inputs, named, state, t0, batch, steps, False)
        if reserve is not None:
            sizes = [*sizes, self.budget(reserve)]      # where `split_sizes` finds it
        made = self.bind(self.primal, ("forward", bool(final_state), *sizes), self.varied(arrays))
        return self.pack(made, final_state=final_state)

    def step(self, params, /, *inputs, state=None, t0=None, batch=None, **named):
        """One step: inputs [B, ...] to (outputs [B, ...], states)."""
        arrays, sizes = self.take(params, inputs, named, state, t0, batch, None, True)
        return self.pack(self.bind(self.primal, ("step", True, *sizes), self.varied(arrays)), step=True)

    # ---- shard_map

    def varied(self, arrays):
        """The arrays of a call, all as if they differed over the axes over which any of them does: then so do results and
        gradients, and what JAX sums for an array that differs over fewer, it sums outside of the cell."""
        axes = frozenset()
        for declared, array in zip(self.manifest.given, arrays):
            if array is not None:
                if forwards(array):
                    raise NotThere(FORWARD_MODE.format(name=self.name))
                varying, parts = manual_axes(array)
                if parts:
                    raise NotThere(f"{self.name}: {declared.name} is held as parts of a sum over {', '.join(sorted(parts))} "
                                   "(unreduced); a cell is not linear, so sum it first, as with jax.lax.psum")
                axes |= varying
        return tuple(None if array is None else vary(gathered(array), axes) for array in arrays)

    @staticmethod
    def bind(function, call, values):
        """function(call, values). Where shard_map runs without jit, JAX has no functions that ask which gradients are
        wanted; compiled by themselves it has them, and under jit nothing changes."""
        if jax.sharding.get_abstract_mesh().manual_axes:
            return jax.jit(function, static_argnums=0)(call, values)
        return function(call, values)

    # ---- what JAX differentiates; `call` is what to run, whether final states are wanted, then the sizes

    def infer(self, call, arrays):
        return self.run(call[0], call[2:], arrays, self.results(call), "-")

    def run_saving(self, call, arrays):
        """(*results, reserve)."""
        return self.run("forward", call[2:], arrays, self.results(call), self.reserve(call[2:]))

    def keep(self, call, arrays):
        """run_saving and what backward needs. What it gives may be differentiated again, as far as results go."""
        wanted = Wanted(a is not None and a.perturbed and t.gradient and not (t.dtype in CODES and self.is_codes(t, a.value))
                        for t, a in zip(self.manifest.given, arrays))
        arrays = tuple(a if a is None else a.value for a in arrays)
        made = self.bind(self.saving, call, arrays)
        return tuple(made), (arrays, made[-1], wanted)

    def save(self, call, arrays):
        """Forward for a gradient. A step is a sequence of one."""
        if self.manifest.backward is None:
            raise NotThere(f"{self.name}: the cell has no gradients")
        made, kept = self.keep(call, arrays)
        return made[:-1], kept

    def pull_back(self, call, kept, cotangents):
        arrays, reserve, wanted = kept
        every, wrote = self.wanted(True), len(self.wanted(call[1]))                # behind them the reserve, at times
        weights = tuple(None if is_zero(c) else conjugate(c) for c in cotangents[:wrote]) + (None,) * (len(every) - wrote)
        if not any(wanted):
            return ((None,) * len(arrays),)
        found = iter(self.bind(self.backward, (call, wanted), (arrays, weights, reserve)))
        return (tuple(conjugate(next(found)) if w else None for w in wanted),)

    def differentiate(self, call, values):
        (_, _, *sizes), wanted = call
        arrays, weights, reserve = values
        made = [jax.ShapeDtypeStruct(a.shape, a.dtype) if w else None for a, w in zip(arrays, wanted)]
        return self.run("backward", sizes, [*arrays, *weights], made, "a", reserve)

    def refuse_second_order(self, call, values):
        raise NotThere(SECOND_ORDER.format(name=self.name))

    # ---- the custom call

    def results(self, call):
        """Of all outputs and states; None where they are not wanted."""
        m = self.manifest
        return [jax.ShapeDtypeStruct(self.shape(t, call[2:]), self.dtype_of(t)) for t in self.wanted(call[1])] + [None] * (
            0 if call[1] else len(m.states))

    def split_sizes(self, sizes):
        """(the sizes that the library takes, the budget of the reserve or None)"""
        n = len(self.manifest.sizes)
        return sizes[:n], sizes[n] if len(sizes) > n else None

    def reserve(self, sizes):
        """As large as any device that may run this wants it."""
        sizes, budget = self.split_sizes(sizes)
        devices = [None] if self.built.has_reference else []
        devices += [d.local_hardware_id for d in gpus()] if self.has_kernels else []
        most = max(self.library.memory("reserve", d, sizes, budget) for d in devices)
        return jax.ShapeDtypeStruct((most,), numpy.uint8)

    def run(self, way, sizes, arrays, made, reserve, *kept):
        """The arrays that were made. `reserve` is "-" for none, "a" where it is given, or what it shall be."""
        kept_new = [] if isinstance(reserve, str) else [reserve]
        sizes, budget = self.split_sizes(sizes)
        count = len(self.manifest.given)
        arrays = [*self.as_codes(arrays[:count], sizes), *arrays[count:]]
        way = way if budget is None or reserve == "-" else way + " again"
        layout = "".join(["-" if a is None else "a" for a in arrays] + ["-" if r is None else "r" for r in made])
        layout += "r" if kept_new else reserve
        operands = [*[a for a in arrays if a is not None], *kept]
        axes = frozenset().union(*(manual_axes(a)[0] for a in operands))
        call = jax.ffi.ffi_call(TARGET, tuple(r for r in [*made, *kept_new] if r is not None), vmap_method="sequential")
        found = call(*(vary(a, axes) for a in operands), cell=self.call_name, way=way, layout=layout,
                     sizes=",".join(map(str, sizes)))
        return tuple(vary(a, axes) for a in found)
