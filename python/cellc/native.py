"""The built library through ctypes. In: its path and manifest, then sizes and addresses. Out: calls of the C
API's cell_run_forward, cell_run_backward and cell_run_step. Guaranteed: nothing here knows PyTorch; the
library is opened locally, so several of them, each with its own copy of the runtime, do not see each
other; a context is used by one thread at a time; what the library says is raised with the matching type."""

import contextlib
import ctypes
import os

from . import nvrtc
from .errors import BackendError, ShapeError

OK, OUT_OF_MEMORY = 0, 5
CALLERS = {1, 2, 3, 4, 6, 10}      # null pointer, bad size, misaligned, too small, wrong device, bad argument
CUDA, REFERENCE, CPU = 1, 2, 4     # cell_backend_kind
RECOMPUTE = 2                      # CELL_RECOMPUTE: the reserve has a budget
OFFLOAD = 4                        # CELL_OFFLOAD: states that it has no room for are in host memory
LEGACY = 1                         # cudaStreamLegacy: the default stream by a name of its own


class Memory(ctypes.Structure):
    _fields_ = [("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t),
                ("reserve", ctypes.c_void_p), ("reserve_bytes", ctypes.c_size_t)]


class State(ctypes.Structure):
    """A context and what was said to it last. The same as Context in fast_call.c."""
    _fields_ = [("ctx", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("stream_set", ctypes.c_int32),
                ("threads", ctypes.c_int32)]


class Context:
    """A context of the library, which functions of the library take as its address."""

    def __init__(self, address):
        self._as_parameter_ = ctypes.c_void_p(address)
        self.state = State(address)
        self.place = ctypes.addressof(self.state)        # what it is known by among the free ones


MOST_REMEMBERED = 1000             # of each kind; then all are forgotten


def remember(known, key, value):
    """Puts what a call found into what later calls look into."""
    if len(known) >= MOST_REMEMBERED:
        known.clear()
    known[key] = value


def host_backend():
    """Where arrays are in the host's memory: the kernels for the CPU, unless CELL_BACKEND says reference. A
    library without such kernels runs its reference all the same."""
    return REFERENCE if os.environ.get("CELL_BACKEND") == "reference" else CPU


class OutOfMemory(BackendError, MemoryError):
    """The device, or the host, has no memory left for the call."""


class Library:
    def __init__(self, path, instance, images=None, desc=None, kept=None, widen=list, host=None):
        """images: {number of a GPU: its kernels} where they are not in the library. desc: the address of the
        cell's description where the library has no `instance` that gives it; `kept` is what it lies in.
        widen: makes the sizes that the library takes of those that a call has. host: the library for calls
        on the host, if it is another."""
        self.path, self.images, self.kept, self.widen, self.host = path, images, kept, widen, host
        self.dll = self.open_library(path)
        self.desc = self.declare(instance, ctypes.c_void_p)() if instance else desc
        run = [ctypes.c_void_p] * 5 + [ctypes.c_int]
        self.run = {way: self.declare(f"cell_run_{way}", ctypes.c_int, *run)
                    for way in ("forward", "backward", "step")}
        bytes_of = [ctypes.c_void_p] * 3 + [ctypes.POINTER(ctypes.c_size_t)]
        self.bytes = {what: self.declare(f"cell_{what}_bytes", ctypes.c_int, *bytes_of)
                      for what in ("workspace", "inference", "reserve")}
        counts = [ctypes.POINTER(ctypes.c_size_t)] * 2
        self.recompute = self.declare("cell_recompute_bytes", ctypes.c_int, *bytes_of[:3], ctypes.c_size_t,
                                      *counts)
        self.offload = self.declare("cell_offload_bytes", ctypes.c_int, *bytes_of[:3], ctypes.c_size_t, *counts,
                                    *counts[:1])
        self.set_host = self.declare("cell_context_set_host", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                     ctypes.c_size_t)
        self.create = self.declare("cell_context_create", ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                                   ctypes.c_char_p, ctypes.c_size_t)
        self.create_image = self.declare("cell_context_create_image", ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
                                         ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
        self.set_stream = self.declare("cell_context_set_stream", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self.set_threads = self.declare("cell_context_set_threads", ctypes.c_int, ctypes.c_void_p,
                                        ctypes.c_int)
        self.threads = None         # how many a call on the host may use
        self.last_error = self.declare("cell_last_error", ctypes.c_char_p, ctypes.c_void_p)
        self.contexts, self.opened = {}, {}    # places of free contexts by their device, and of all contexts these
        self.known, self.arrays = {}, {}

    @staticmethod
    def open_library(path):
        """Locally. A file that is gone is the cache's business; one that cannot be opened misses another
        library."""
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            if not os.path.exists(path):
                raise FileNotFoundError(path) from None
            misses = "cannot open shared object file" in str(error)
            raise BackendError(f"cannot open {path}: {error}" + (". Was cellc built with a CUDA that this machine has not? "
                               "`cellc cache clear` and `make` again build it for this one" if misses else "")) from None

    def declare(self, name, result, *arguments):
        function = getattr(self.dll, name)
        function.restype, function.argtypes = result, list(arguments)
        return function

    def free(self, device):
        """Places of the contexts on a device that no call has. They are taken from its end and put there, each at once, as
        fast_call.c does, too."""
        return self.contexts.setdefault(device, [])

    def take(self, device):
        """A context on a CUDA device, or with None on the host, which no other call has until it goes back.
        They are kept to the end of the process: PyTorch, whose streams they know, ends in no order that
        one could rely on."""
        try:
            return self.opened[self.free(device).pop()]
        except IndexError:
            return self.open(device)

    def give(self, device, ctx):
        self.free(device).append(ctx.place)

    @contextlib.contextmanager
    def context(self, device):
        ctx = self.take(device)
        try:
            yield ctx
        finally:
            self.give(device, ctx)

    def open(self, device):
        ctx, why = ctypes.c_void_p(), ctypes.create_string_buffer(512)
        if device is not None and self.images is not None:
            nvrtc.load_cublas()
            status = self.create_image(ctypes.byref(ctx), device, self.image(device), why, len(why))
        else:
            kind = host_backend() if device is None else CUDA
            status = self.create(ctypes.byref(ctx), kind, device or 0, why, len(why))
        if status != OK:
            raise BackendError(why.value.decode(errors="replace") or f"no context (status {status})")
        made = Context(ctx.value)
        self.opened[made.place] = made
        return made

    def open_place(self, device):
        """The place of a new context."""
        return self.open(device).place

    def fail(self, device, place, status):
        """Raises what the library says of a call with this context, which goes back."""
        ctx = self.opened[place]
        try:
            self.check(ctx, status)
        finally:
            self.give(device, ctx)

    def image(self, device):
        """The kernels for a GPU; as bytes, which ctypes ends with a zero and the driver does not count."""
        found = self.images.get(device)
        if found is None:
            raise BackendError(f"{os.path.basename(self.path)} has no kernels for GPU {device}: it was compiled for "
                               "others (archs)")
        return found

    def check(self, ctx, status):
        if status == OK:
            return
        text = self.last_error(ctx).decode(errors="replace") or f"status {status}"
        kind = OutOfMemory if status == OUT_OF_MEMORY else ShapeError if status in CALLERS else BackendError
        raise kind(text)

    def array(self, sizes):
        """The sizes as the library takes them, which it only reads: one array for all calls with the same."""
        key = tuple(sizes)
        found = self.arrays.get(key)
        if found is None:
            wide = self.widen(sizes)
            found = (ctypes.c_int64 * len(wide))(*wide)
            remember(self.arrays, key, found)
        return found

    def memory(self, what, device, sizes, budget=None, offload=False):
        """Bytes of workspace, of workspace for inference, or of reserve. budget: its most. With `offload` of "host"
        memory, too."""
        if device is None and self.host:
            return self.host.memory(what, device, sizes, budget, offload)
        key = (what, device, budget, offload, *sizes)
        found = self.known.get(key)
        if found is None:
            count, other, third = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()
            with self.context(device) as ctx:
                if budget is None:
                    status = self.bytes[what](ctx, self.desc, self.array(sizes), ctypes.byref(count))
                elif offload:
                    order = {"reserve": (count, other, third), "host": (other, count, third)}
                    status = self.offload(ctx, self.desc, self.array(sizes), budget,
                                          *map(ctypes.byref, order.get(what, (other, third, count))))
                else:
                    pair = (count, other) if what == "reserve" else (other, count)
                    status = self.recompute(ctx, self.desc, self.array(sizes), budget,
                                            *map(ctypes.byref, pair))
                self.check(ctx, status)
            found = count.value
            remember(self.known, key, found)
        return found

    def call(self, way, device, stream, sizes, pointers, workspace, reserve, flags=0, beside=None):
        """One call; workspace, reserve and what is `beside` it in host memory are (address, bytes). stream: 0 is the default stream; by NULL the
        library would take a stream of its own, which that one waits for and which waits for that one, at
        every change from one to the other."""
        if device is None and self.host:
            return self.host.call(way, device, stream, sizes, pointers, workspace, reserve, flags, beside)
        array = self.array(sizes)
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        memory = Memory(workspace[0], workspace[1], reserve[0], reserve[1])
        ctx = self.take(device)
        try:
            state = ctx.state
            if device is not None and not (state.stream_set and (state.stream or 0) == stream):
                state.stream_set = 0                       # until it is set, and where that fails or is interrupted
                self.check(ctx, self.set_stream(ctx, stream or LEGACY))
                state.stream, state.stream_set = stream, 1
            if device is None and self.threads is not None:
                self.limit_threads(ctx, self.threads())
            if beside is not None:
                self.check(ctx, self.set_host(ctx, *beside))
            self.check(ctx, self.run[way](ctx, self.desc, array, arguments, ctypes.byref(memory), flags))
        finally:
            if beside is not None:
                self.set_host(ctx, None, 0)
            self.give(device, ctx)

    def limit_threads(self, ctx, threads):
        if ctx.state.threads != threads:
            ctx.state.threads = 0
            self.check(ctx, self.set_threads(ctx, threads))
            ctx.state.threads = threads
