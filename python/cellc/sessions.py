"""Sessions: sequences that go on from call to call, for serving. In: a module of cellc, and how many sessions there may be.
Out: a store of their states, of which each call takes any:

    store = cellc.Sessions(cell, capacity=256, back=4, keep="bf16")
    a, b = store.open(), store.open()
    y = store.prefill([a], prompt)              # [1, T, D]: forward's form for whole sequences
    y = store.step([a, b], x)                   # [2, D]: a step of each
    c = store.fork(a)
    store.back(c, 1)                            # its last call, as if it had not been

Guaranteed: what docs/c.md says of cell_sessions.h, whose store this is. Gradients are not computed. The params are those
that the module had when the store was made, or at `read_params()`."""

import ctypes
import weakref

import torch

from .build import build
from .eager import nothing_changes, planned
from .errors import BackendError, NotThere, TypeMismatch
from .fast import session_plan
from .manifest import Sizes
from .module import Cell
from .names import wrong_keyword
from .native import remember
from .ops import DTYPES, address, current_stream, number, on, ready
from .with_torch import gpus

KEEPS = {None: 0, "bf16": 1, "int8": 2}


class Options(ctypes.Structure):
    _fields_ = [("capacity", ctypes.c_int64), ("back", ctypes.c_int32), ("keep", ctypes.c_int)]


class Functions:
    """Those of cell_sessions.h in a library."""

    def __init__(self, library):
        p, i32, i64, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
        new, count = ctypes.POINTER(i32), ctypes.POINTER(i64)
        for name, *arguments in (("create", p, p, p, ctypes.POINTER(Options), ctypes.POINTER(p)), ("open", p, new),
                                 ("close", p, i32), ("fork", p, i32, new), ("back", p, i32, i64), ("at", p, i32, count, count),
                                 ("step", p, p, i64, p), ("prefill", p, p, i64, i64, p),
                                 ("save", p, i32, p, size, ctypes.POINTER(size)), ("load", p, p, size, new),
                                 ("bytes", p, ctypes.POINTER(size), ctypes.POINTER(size))):
            setattr(self, name, library.declare(f"cell_sessions_{name}", ctypes.c_int, *arguments))
        self.how = library.declare("cell_sessions_how", ctypes.c_char_p, p)
        self.destroy = library.declare("cell_sessions_destroy", None, p)


def library_for(cell, device):
    """The module's own on the CPU; with kernels, one whose kernels find rows."""
    library = cell.instance.built.library
    if device.type == "cpu":
        return library.host or library
    spec, options = cell.load_arguments
    return build(spec, {**options, "slots": True}, "PyTorch, sessions", gpus(), lambda built: built).library


class Sessions:
    def __init__(self, cell, capacity=64, *, back=0, keep=None, room=None, sizes=None):
        """cell: a module that cellc.load gave. back: calls of a session that can be taken back. keep: how states are stored
        between steps, None (as they are), "bf16" or "int8". room: of a cell that has all earlier steps, for how many there is
        room. sizes: dims that the module does not know."""
        if not isinstance(cell, Cell):
            raise TypeMismatch(f"Sessions: wanted a module that cellc.load gave, not {type(cell).__name__}")
        if keep not in KEEPS:
            raise wrong_keyword("keep", keep, "None, 'bf16' or 'int8'")
        self.cell, self.manifest = cell, cell.instance.manifest
        self.capacity, self.keep = self.whole("capacity", capacity), keep
        self.device = next((p.device for p in [*cell.parameters(), *cell.buffers()]), torch.device("cpu"))
        if self.manifest.grows and room is None:
            raise TypeMismatch(f"{self.manifest.name}: a session keeps all of its steps: room=N says for how many there is room")
        self.known = {**cell.sizes, **(sizes or {})}
        if room is not None:
            self.known["history"] = self.whole("room", room)
        missing = [name for name in self.manifest.dims if name not in self.known]
        if missing:
            raise TypeMismatch(f"{self.manifest.name}: the module does not know {', '.join(missing)}: sizes="
                               f"{{{', '.join(f'{name!r}: N' for name in missing)}}}")
        self.library = library_for(cell, self.device)
        self.functions = Functions(self.library)
        self.ctx, self.store = self.library.open(number(self.device)), ctypes.c_void_p()
        listed = self.manifest.list_sizes({**self.known, self.manifest.batch: 1, "T": 1, self.manifest.first: 0})
        options = Options(self.capacity, self.whole("back", back), KEEPS[keep])
        self.numbers, self.arrays, self.plans, self.shapes = {}, {}, {}, {}
        with on(self.device):
            self.set_stream()
            self.check(self.functions.create(self.ctx, self.library.desc, self.library.array(listed), ctypes.byref(options),
                                             ctypes.byref(self.store)))
        weakref.finalize(self, self.functions.destroy, ctypes.c_void_p(self.store.value))
        self.read_params()

    @staticmethod
    def whole(name, value):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise wrong_keyword(name, value, "a number of 0 or more")
        return value

    def check(self, status):
        self.library.check(self.ctx, status)

    def set_stream(self):
        """The store works on PyTorch's current stream."""
        if self.device.type == "cpu":
            self.library.limit_threads(self.ctx, torch.get_num_threads())
            return
        state, stream = self.ctx.state, current_stream(self.device)
        if not state.stream_set or (state.stream or 0) != stream:
            state.stream_set = 0
            self.check(self.library.set_stream(self.ctx, stream or 1))
            state.stream, state.stream_set = stream, 1

    def read_params(self):
        """Takes the module's params anew, after they have changed."""
        i = self.cell.instance
        self.params = [ready(i.converted(t, self.cell.param(t.name).detach())) for t in self.manifest.params]
        self.arrays.clear()
        self.plans.clear()

    # ---- sessions

    def open(self):
        """The number of a new session, in the spec's initial states."""
        session = ctypes.c_int32()
        self.check(self.functions.open(self.store, ctypes.byref(session)))
        return session.value

    def close(self, session):
        self.check(self.functions.close(self.store, session))

    def fork(self, session):
        """A new session that goes on from where this one is."""
        made = ctypes.c_int32()
        with on(self.device):
            self.set_stream()
            self.check(self.functions.fork(self.store, session, ctypes.byref(made)))
        return made.value

    def back(self, session, calls=1):
        """Takes the session's last calls back, steps and prefills."""
        self.check(self.functions.back(self.store, session, calls))

    def steps(self, session):
        """How many the session has done."""
        steps = ctypes.c_int64()
        self.check(self.functions.at(self.store, session, ctypes.byref(steps), None))
        return steps.value

    def save(self, session):
        """The session as bytes, for `load` of any store of this cell with these sizes and `keep`, on a GPU or not."""
        need = ctypes.c_size_t()
        self.check(self.functions.save(self.store, session, None, 0, ctypes.byref(need)))
        blob = ctypes.create_string_buffer(need.value)
        with on(self.device):
            self.set_stream()
            self.check(self.functions.save(self.store, session, blob, need, None))
        return blob.raw

    def load(self, blob):
        """The number of a new session of what `save` gave."""
        session, blob = ctypes.c_int32(), bytes(blob)
        with on(self.device):
            self.set_stream()
            self.check(self.functions.load(self.store, blob, len(blob), ctypes.byref(session)))
        return session.value

    @property
    def how(self):
        """How states come into a step (docs/c.md)."""
        return self.functions.how(self.store).decode()

    @property
    def nbytes(self):
        """Bytes of all rows."""
        count = ctypes.c_size_t()
        self.check(self.functions.bytes(self.store, ctypes.byref(count), None))
        return count.value

    # ---- calls

    def step(self, sessions, /, *inputs, out=None, **named):
        """A step of each: inputs are [n, ...] in the order of `sessions`, and so are the outputs. out: tensors for them, one or
        a tuple, as an earlier call gave them."""
        return self.call(sessions, inputs, named, True, out)

    def prefill(self, sessions, /, *inputs, out=None, **named):
        """T steps of each, by the form for whole sequences: inputs and outputs are [n, T, ...]."""
        return self.call(sessions, inputs, named, False, out)

    def call(self, sessions, inputs, named, step, out):
        listed = self.number_array(sessions)
        in_c = not named and planned().there and nothing_changes() and not (
            torch.is_grad_enabled() and any(getattr(t, "requires_grad", False) for t in inputs))
        if in_c:
            made = self.call_again(listed, inputs, step, out)
            if made is not None:
                return made
        key = (step, len(listed), *[(t.data_ptr(), t.shape, t.dtype, t.stride()) if isinstance(t, torch.Tensor) else None
                                    for t in inputs]) if not named and out is not None else None
        known = self.arrays.get(key) if key else None
        if known is None or any(a is not b for a, b in zip(known[2], self.outputs_of(out))):
            known = self.prepare(listed, inputs, named, step, out)
            if key and known[4]:
                remember(self.arrays, key, known[:5])
        pointers, T, _, result, *_ = known
        with on(self.device):
            self.set_stream()
            if step:
                self.check(self.functions.step(self.store, listed, len(listed), pointers))
            else:
                self.check(self.functions.prefill(self.store, listed, len(listed), T, pointers))
        if in_c and known[4]:
            self.keep_plan(listed, inputs, step, known)
        return result

    def call_again(self, listed, inputs, step, out):
        """What a call like an earlier one gives, in C; None where none was, or a tensor is not plain."""
        kind = step, len(listed)
        plans = self.plans.get(kind)
        if plans is None:
            return None
        if out is None:
            shapes = self.shapes.get((kind, planned().key(*inputs)))
            if shapes is None:
                return None
            made = [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in shapes]
        else:
            made = self.outputs_of(out)
        status = planned().serve(plans, ctypes.addressof(listed), torch.get_num_threads(), *inputs, *made)
        if status is None:
            return None
        if status:
            with on(self.device):
                self.check(status)
        return made[0] if len(made) == 1 else self.cell.instance.Outputs(*made)

    def keep_plan(self, listed, inputs, step, known):
        """For calls like this one, which has been found right, and of which no tensor was converted."""
        pointers, T, made = known[:3]
        key, given = planned().key(*inputs, *made), planned().key(*inputs)
        kind, m = (step, len(listed)), self.manifest
        plan = None if key is None else session_plan(
            self.library, self.functions, self.ctx, self.store, number(self.device), pointers, len(listed),
            0 if step else T, len(inputs), len(inputs) + len(m.params) + len(m.states))
        if plan is not None:
            remember(self.plans.setdefault(kind, {}), key, plan)
            remember(self.shapes, (kind, given), [(t.shape, t.dtype) for t in made])

    def number_array(self, sessions):
        key = tuple(sessions)
        found = self.numbers.get(key)
        if found is None:
            try:
                found = (ctypes.c_int32 * len(key))(*key)
            except TypeError:
                raise TypeMismatch(f"{self.manifest.name}: sessions are numbers that open() gave, not {key!r}") from None
            remember(self.numbers, key, found)
        return found

    @staticmethod
    def outputs_of(out):
        return [] if out is None else [out] if isinstance(out, torch.Tensor) else list(out)

    def prepare(self, listed, inputs, named, step, out):
        """(addresses as the library takes them, T, the outputs, what the call gives, whether the tensors are the
        given ones, the tensors: where they are not the given ones, nothing else keeps their memory until the call
        is made)"""
        i, m = self.cell.instance, self.manifest
        inputs = i.all_inputs(inputs, named) if named else list(inputs)
        i.check_inputs(inputs)
        if any(t.requires_grad for t in inputs) and torch.is_grad_enabled():
            raise NotThere(f"{m.name}: a store of sessions has no gradients; call it under torch.no_grad(), or call the module")
        sizes = Sizes(m, self.known, "the store")
        tensors, values = i.checked([*inputs, *self.params, *[None] * len(m.states)], sizes, None, True, step, True)
        if any(t.device != self.device for t in tensors if t is not None):
            raise BackendError(f"{m.name}: the store is on {self.device}, and what it is called with elsewhere")
        found = dict(zip(m.sizes, values))
        if inputs and found[m.batch] != len(listed):
            raise TypeMismatch(f"{m.name}: {len(listed)} sessions, and inputs for {found[m.batch]}")
        tensors = [ready(t) for t in tensors]
        found[m.batch] = len(listed)
        shapes = [t.shape(found) for t in m.outputs]
        if step:
            shapes = [(*s[:1], *s[2:]) for s in shapes]
        made = self.outputs_of(out)
        if out is None:
            made = [torch.empty(s, dtype=DTYPES[t.dtype], device=self.device) for s, t in zip(shapes, m.outputs)]
        elif len(made) != len(shapes) or any(t.shape != torch.Size(s) or t.dtype != DTYPES[o.dtype] or not t.is_contiguous()
                                             or t.device != self.device for t, s, o in zip(made, shapes, m.outputs)):
            raise TypeMismatch(f"{m.name}: out is not what the call gives: contiguous, of shape "
                               f"{', '.join(str(list(s)) for s in shapes)} on {self.device}")
        pointers = [address(t) for t in [*tensors[:len(m.inputs) + len(m.params)], *[None] * len(m.states), *made,
                                         *[None] * len(m.states)]]
        result = made[0] if len(made) == 1 else i.Outputs(*made)
        same = all(a is b for a, b in zip(tensors, inputs))
        return (ctypes.c_void_p * len(pointers))(*pointers), found.get("T", 1), made, result, same, tensors
