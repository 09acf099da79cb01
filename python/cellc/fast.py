"""Calls of a cell that is called as before, in C (fast_call.c). In: what an earlier call with tensors of these
shapes, types and device found out. Out: plans, and functions that take tensors and plans. Guaranteed: nothing
here knows a framework, and nothing needs it: where it cannot be compiled, on a Python before 3.11 or one
without the lock of the interpreter, and with CELLC_FAST_CALLS=0 all calls go the long way, which gives the same
results and says what is wrong with a call."""

import ctypes
import functools
import hashlib
import os
import subprocess
import sys

from . import cache, compiler
from .errors import BuildError, CellcError

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE, LIBRARY = os.path.join(HERE, "fast_call.c"), "libcellc_fast.so"
NAMES = ("key", "find", "run", "call", "serve")
MOST, RANK = 128, 16      # MAX_TENSORS and MAX_RANK of fast_call.c


class Plan(ctypes.Structure):
    """Plan of fast_call.c."""
    _fields_ = [(name, ctypes.c_void_p) for name in ("run", "set_stream", "set_threads", "desc", "sizes")] + [
        (name, ctypes.c_int32)
        for name in ("arguments", "made", "makes_reserve", "makes_workspace", "device", "unused")]


class SessionPlan(ctypes.Structure):
    """SessionPlan of fast_call.c."""
    _fields_ = [(name, ctypes.c_void_p) for name in ("step", "prefill", "set_stream", "set_threads", "store",
                                                     "context", "places")] + [
        ("sessions", ctypes.c_int64), ("steps", ctypes.c_int64)] + [
        (name, ctypes.c_int32) for name in ("arguments", "inputs", "outputs", "device")]


def compile_to(place):
    """The library, with the C compiler that cellc uses."""
    words = [*(os.environ.get("CC") or "cc").split(), "-std=c11", "-O2", "-shared", "-fPIC", SOURCE,
             "-o", os.path.join(place, LIBRARY)]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace")
    except OSError as error:
        raise BuildError(f"cannot run {words[0]}: {error}") from None
    if done.returncode:
        raise BuildError(f"{words[0]}: {done.stderr.strip()}")
    return {"compiler": words[0]}


def find_library():
    """What came with the package, or what is compiled of its source once for all processes."""
    came = os.path.join(HERE, "_home", "lib", "cellc", LIBRARY)
    if os.path.exists(came):
        return came
    if not compiler.cc():
        raise BuildError(compiler.no_cc())
    with open(SOURCE, "rb") as f:
        text = hashlib.sha256(f.read()).hexdigest()
    name = cache.entry_name(["call"], [text, *compiler.cc_key()])
    return os.path.join(cache.get(name, compile_to), LIBRARY)


class Fast:
    """The functions of fast_call.c, and why there are none."""

    def __init__(self):
        self.why = self.open()
        self.there = not self.why

    def open(self):
        if os.environ.get("CELLC_FAST_CALLS") == "0":
            return "CELLC_FAST_CALLS is 0"
        if sys.implementation.name != "cpython" or sys.version_info < (3, 11):
            return "they want CPython 3.11 or newer"
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            return "they want the lock of the interpreter"
        try:
            self.dll = ctypes.PyDLL(find_library())
        except (CellcError, OSError) as error:
            return str(error)
        make = self.dll.cellc_fast_function
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_int]
        self.key, self.find, self.run, self.call, self.serve = map(make, range(len(NAMES)))
        return ""

    def tell(self, framework, *objects):
        """Gives the library what it uses of a framework. Is it what the library knows?"""
        told = getattr(self.dll, f"cellc_fast_{framework}")
        told.restype, told.argtypes = ctypes.c_int, [ctypes.py_object] * len(objects)
        return told(*objects) == 0


@functools.lru_cache(None)
def fast():
    """Found when a cell is first called, as it may have to be compiled."""
    return Fast()


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def plan(library, way, device, sizes, arguments, makers, reserve=None, workspace=None):
    """A plan for a call with these sizes. arguments: how many tensors a call gives that are arguments of the
    cell; makers: for each of the arguments behind these what makes it, (function, its arguments...), or None
    where it is left out; reserve, workspace: what makes these. None where C has no room for as much."""
    if arguments + len(makers) > MOST or any(len(maker) > RANK + 2 for maker in makers if maker):
        return None
    if device is None and library.host:
        library = library.host
    array = library.array(sizes)
    functions = [address(f) for f in (library.run[way], library.set_stream, library.set_threads)]
    made = Plan(*functions, library.desc, ctypes.addressof(array), arguments, len(makers),
                reserve is not None, workspace is not None, -1 if device is None else device)
    behind = [maker for maker in (reserve, workspace) if maker is not None]
    return (bytes(made), (*makers, *behind), library.free(device),
            functools.partial(library.open_place, device), functools.partial(library.fail, device), array,
            list(sizes))


def session_plan(library, functions, ctx, store, device, places, sessions, steps, inputs, outputs):
    """A plan for calls of a store of sessions. places: the addresses of all arguments, of which the first
    `inputs` and those from `outputs` on are the call's; steps: 0 for a step. None where C has no room for as
    many."""
    if len(places) > MOST:
        return None
    of = (functions.step, functions.prefill, library.set_stream, library.set_threads)
    made = SessionPlan(*map(address, of), store.value, ctx.place, ctypes.addressof(places), sessions, steps,
                       len(places), inputs, outputs, -1 if device is None else device)
    return bytes(made), places
