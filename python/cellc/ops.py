"""A built cell as operators of PyTorch. In: a library and its manifest. Out: two operators, forward and backward,
registered with torch.library: what torch.compile, torch.export and autograd call. Guaranteed: tensors of any strides
are taken (those that are not contiguous, or not aligned as the kernels need, are copied); results are new tensors in
the library's layout, batch before time; work goes to the current stream of the tensors' device; gradients that nobody
asked for are neither allocated nor computed. Each operator has the arguments of the cell under their names, then
`sizes` in the library's order, behind which stands the reserve's budget where there is one, and behind that a 1
where states go to host memory. A call that nothing records, and one with states in host memory, does without the
operators (eager.py)."""

import contextlib

import torch

from . import codes, eager
from .build import free_name
from .errors import BackendError, NotThere, TypeMismatch, beyond_int32
from .fast import plan
from .names import usable
from .native import OFFLOAD, RECOMPUTE, OutOfMemory, remember

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64,
          "i32": torch.int32, "c64": torch.complex64, "c128": torch.complex128, **codes.TYPES}
ALIGNMENT = 16                       # of what kernels read, bytes
INTEGERS = (torch.int64, torch.int16, torch.int8, torch.uint8, torch.uint16)     # tokens are int64 in PyTorch
HOST = torch.device("cpu")
INFER, SAVE, STEP = 0, 1, 2          # what forward is called for
NO_STATE = 4                         # beside these: final states are not wanted, and results of no elements stand in their places
NOWHERE = contextlib.nullcontext()
raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

libraries = {}                       # name of an operator: the torch.library.Library that it is in

SECOND_ORDER = ("{name}: the gradient of a gradient was asked for, but a cell's backward pass is not differentiable. "
                "Without create_graph=True the first gradient is right; where the second is needed, write the inner "
                "gradient into the spec with grad(...), or take a finite difference of two first gradients")
NO_VMAP = ("{name}: torch.vmap is not there for cells. A cell maps over its batch already: put the mapped axis "
           "into it, as in x.flatten(0, 1) and back with y.unflatten(0, (n, -1)); for gradients of each sample call "
           "the cell in a loop")


NO_BATCH = ("{name}: many gradients at once (is_grads_batched, jacobian(vectorize=True), gradcheck(check_batched_grad=True)) are not there "
            "for cells: {operator} has no rule for torch.vmap. torch.autograd.functional.jacobian without vectorize, or a loop over "
            "torch.autograd.grad(..., retain_graph=True), gives them one by one")


def device_of(tensors):
    for tensor in tensors:
        if tensor is not None:
            return tensor.device
    return HOST


def number(device):
    """Of a GPU, or None for the host."""
    return None if device.type == "cpu" else device.index


def ready(tensor):
    """The tensor as the library can read it: PyTorch may leave a conjugation or a minus to whoever reads next."""
    if tensor is None:
        return None
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().contiguous().resolve_conj().resolve_neg()
    if tensor.is_cuda and tensor.data_ptr() % ALIGNMENT:
        tensor = tensor.detach().clone()
    return tensor


def address(tensor):
    return 0 if tensor is None else tensor.data_ptr()


def maker(shape, dtype, device):
    """What makes an empty tensor, for plans. (A shape in one piece takes PyTorch longer.)"""
    return (torch.Tensor.new_empty, torch.empty(0, dtype=dtype, device=device), *(shape or [()]))


class OnGpu:
    """The GPU as the current one, and PyTorch's own type of error where its memory is short."""

    def __init__(self, device):
        self.guard = None if torch.cuda.current_device() == device.index else torch.cuda.device(device)

    def __enter__(self):
        if self.guard:
            self.guard.__enter__()

    def __exit__(self, kind, error, trace):
        if self.guard:
            self.guard.__exit__(kind, error, trace)
        if kind is OutOfMemory:
            raise torch.cuda.OutOfMemoryError(str(error)) from error


def on(device):
    return NOWHERE if device.type == "cpu" else OnGpu(device)


def current_stream(device):
    """Its address; 0 is the default stream."""
    if device.type == "cpu":
        return 0
    if raw_stream:                             # torch.cuda.current_stream makes an object to ask
        return raw_stream(device.index)
    return torch.cuda.current_stream(device).cuda_stream


def run_narrow(tensor, what):
    """In int32. A number that is none there is an error: on the host with its value; on a GPU it is asserted, as places in
    an embedding are, which does not wait for it."""
    small = tensor.to(torch.int32)
    if tensor.is_cpu and tensor.numel():
        for extreme in torch.aminmax(tensor):
            if small.dtype != tensor.dtype and extreme != extreme.to(torch.int32):
                raise TypeMismatch(beyond_int32(what, int(extreme)))
    elif tensor.is_cuda:
        torch._assert_async((small == tensor).all(), f"{what} has a number that int32 does not hold")
    return small


def narrow_mapped(info, in_dims, tensor, what):
    return narrow(tensor, what), in_dims[0]


conversions = torch.library.Library("cellc", "FRAGMENT")
conversions.define("narrow(Tensor x, str what) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
conversions.impl("narrow", run_narrow, "CompositeExplicitAutograd")
torch.library.register_fake("cellc::narrow", lambda tensor, what: tensor.to(torch.int32), lib=conversions)
torch.library.register_vmap("cellc::narrow", narrow_mapped, lib=conversions)
narrow = torch.ops.cellc.narrow.default


def narrowed(tensor, what):
    """Integers of another type in int32; `what` they are, for messages. Where somebody traces the call, by an operator."""
    if tensor.dtype != torch.int64:
        return tensor.to(torch.int32)                # all that others hold
    return run_narrow(tensor, what) if eager.unwatched([tensor]) else narrow(tensor, what)


NO_OFFLOAD = ("{name}: offload=True is not there under torch.compile, torch.export, torch.func, in modes that watch calls and "
              "for tensors of other classes: "
              "what lies in host memory goes past the operators that these see; leave offload out there")
NO_CAPTURE = ("{name}: offload=True is not there in a CUDA graph: the stream is being captured, and copies of states to host "
              "memory run on another stream")


class Ops:
    """The operators of one instance: `forward` and `backward`, and what they are made of."""

    def __init__(self, library, manifest, meaning):
        """`meaning` stands for spec and settings, so that a program that was exported finds the cell of a later build."""
        self.library, self.manifest = library, manifest
        self.name = free_name(f"cellc::{manifest.name}_{meaning}", libraries)
        self.results = manifest.outputs + manifest.states
        given = [t.name + "_" for t in manifest.given]                        # no two are one, nor a word of a schema
        weights = usable([f"into_{t.name}" for t in self.results], given).values()
        values = ", ".join(f"Tensor{'' if t.kind != 'state' else '?'} {name}" for t, name in zip(manifest.given, given))
        self.known = {}                                                       # sizes of a call: the shapes of its results
        self.pulls = {}                        # for which gradients, and sizes: the plans of backward, by tensors
        self.direct = type(f"cellc_{manifest.name}", (eager.Call,), {})       # autograd's messages have its name
        gives = ", ".join(["Tensor"] * (len(self.results) + 1))
        self.kept = libraries[self.name] = torch.library.Library("cellc", "FRAGMENT")
        values += ", " if values else ""
        self.forward = self.register(self.name, f"({values}SymInt[] sizes, int mode) -> ({gives})", self.run_forward,
                                     self.fake_forward, self.differentiate, self.keep)
        if manifest.backward:
            cotangents = "".join(f"Tensor? {name}, " for name in weights)
            self.backward = self.register(
                self.name + "_backward",
                f"({values}{cotangents}Tensor reserve, SymInt[] sizes, bool[] wanted) -> Tensor[]", self.run_backward,
                self.fake_backward, self.refuse_second_order, lambda ctx, inputs, output: None)

    def register(self, name, schema, run, fake, differentiate, keep):
        """An operator. torch.library.custom_op would do the same, but has the first call wait for all of torch.compile
        to be imported, which takes seconds."""
        short = name.partition("::")[2]
        self.kept.define(short + schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.kept.impl(short, run, "CompositeExplicitAutograd")
        torch.library.register_fake(name, fake, lib=self.kept)
        torch.library.register_autograd(name, differentiate, setup_context=keep, lib=self.kept)
        torch.library.register_vmap(name, self.refuse_vmap, lib=self.kept)
        return getattr(torch.ops.cellc, short).default

    def __call__(self, tensors, sizes, mode, unwatched):
        """Forward, by the operator or past it."""
        saves = mode & ~NO_STATE == SAVE
        if self.offloads(sizes):
            if not eager.nothing_changes() or (eager.known and not all(map(eager.plain, tensors))):
                raise NotThere(NO_OFFLOAD.format(name=self.manifest.name))
            return self.direct.apply(*tensors, sizes, mode, self, None)
        watched = not unwatched or (not saves and torch.is_grad_enabled()
                                    and any(t is not None and t.requires_grad for t in tensors))
        if watched:                # what has no gradient says so by the operator
            return self.forward(*tensors, sizes, mode)
        if saves:
            return self.direct.apply(*tensors, sizes, mode, self, None)
        return self.run_forward(*tensors, sizes, mode)

    # ---- what runs

    def apart(self, sizes):
        """(the sizes that the library takes, the budget of the reserve or None)"""
        n = len(self.manifest.sizes)
        return sizes[:n], sizes[n] if len(sizes) > n else None

    def offloads(self, sizes):
        """Do states go to host memory?"""
        return len(sizes) > len(self.manifest.sizes) + 1

    def memory(self, what, device, sizes, budget=None, offload=False):
        """(Scratch memory from PyTorch's allocator, so that captures and streams find it in order, or None; its bytes.)"""
        count = self.library.memory(what, number(device), sizes, budget, offload)
        return torch.empty(count, dtype=torch.uint8, device=device) if count else None, count

    def call(self, way, tensors, sizes, device, memory, reserve, budget=None, beside=None):
        """Runs the library on `tensors`, in its order: those that were given, then those that it makes. beside: a list,
        empty or with memory of the host, where states go there."""
        offload = beside is not None
        space, count = self.memory(memory, device, sizes, budget, offload)
        self.library.call(way, number(device), current_stream(device), sizes, [address(t) for t in tensors],
                          (address(space), count),
                          (address(reserve), reserve.numel() if reserve is not None else 0),
                          (0 if budget is None else RECOMPUTE) | (OFFLOAD if offload else 0),
                          (address(beside[0]), beside[0].numel()) if beside else None)
        if beside and device.type == "cuda":
            # The library copies on a stream that PyTorch does not know, which this one has waited for. By a copy of a byte
            # PyTorch's allocator knows until when the memory is used, and gives it to no other tensor before.
            torch.empty(1, dtype=torch.uint8, device=device).copy_(beside[0][:1], non_blocking=True)

    def assert_lengths(self, tensors, sizes):
        """What the library finds wrong on the host, asserted on a GPU without waiting for it, as PyTorch does with places
        in a table."""
        for declared, tensor in zip(self.manifest.inputs, tensors):
            if declared.kind == "lengths" and tensor.is_cuda:
                torch._assert_async(((tensor >= 0) & (tensor <= sizes[1])).all())
            elif declared.kind == "starts" and tensor.is_cuda:
                steps = tensor.diff()
                torch._assert_async(((steps >= 0) & (steps <= sizes[1])).all() & (tensor[0] == 0) & (tensor[-1] == sizes[-2]))

    def encoded(self, tensors, sizes):
        """The tensors as the library takes them: what is stored in 8 bits and comes as other numbers, with scales of its own. It
        is done here, below autograd, which would round gradients to the type of codes."""
        tensors = list(tensors)
        for at, scales in self.manifest.codes:
            kind = self.manifest.given[at].dtype
            if tensors[at].dtype != DTYPES[kind]:
                shape = self.manifest.given[scales].shape(dict(zip(self.manifest.sizes, sizes)))
                block = tensors[at].shape[-1] // max(shape[-1], 1) if shape else 0
                tensors[at], tensors[scales] = codes.encode(tensors[at], kind, block)
        return tensors

    def run_forward(self, *arguments):
        return self.run_keeping(*arguments)[:-1]

    def run_keeping(self, *arguments):
        """The results, the reserve, and a list of what is kept in host memory beside it."""
        *tensors, sizes, mode = arguments
        offload = self.offloads(sizes)
        sizes, budget = self.apart(sizes)
        beside = []
        tensors = [ready(t) for t in self.encoded(tensors, sizes)]
        device = device_of(tensors)
        self.assert_lengths(tensors, sizes)
        made = self.empty_results(device, self.wanted_shapes(self.known_shapes(sizes), mode))
        way, wanted = mode & ~NO_STATE, len(self.manifest.outputs) if mode & NO_STATE else len(made)
        with on(device):
            count = 0
            if way == SAVE:
                count = max(self.library.memory("reserve", number(device), sizes, budget, offload), 1)
            if offload and device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                raise NotThere(NO_CAPTURE.format(name=self.manifest.name))
            if offload and (far := self.library.memory("host", number(device), sizes, budget, True)):
                beside = [torch.empty(far, dtype=torch.uint8, pin_memory=device.type == "cuda")]
            reserve = torch.empty(count, dtype=torch.uint8, device=device)
            self.call("step" if way == STEP else "forward", [*tensors, *made[:wanted], *[None] * (len(made) - wanted)], sizes,
                      device, "workspace" if way == SAVE else "inference", reserve if way == SAVE else None,
                      None if budget is None else count, beside if offload else None)
        return (*made, reserve, beside)

    def run_backward(self, *arguments, beside=()):
        *tensors, reserve, sizes, wanted = arguments
        offload = self.offloads(sizes)
        sizes, budget = self.apart(sizes)
        made = self.empty_gradients(tensors, wanted)
        count = len(self.manifest.given)
        tensors = [ready(t) for t in self.encoded(tensors[:count], sizes) + tensors[count:]]
        device = device_of(tensors)
        with on(device):
            self.call("backward", tensors + made, sizes, device, "workspace", reserve,
                      None if budget is None else reserve.numel(), list(beside) if offload else None)
        return [t for t in made if t is not None]

    def plan(self, way, device, sizes, count, makers, reserve=0):
        """A plan for calls of the library on this device with as many tensors. reserve: the bytes of what the call keeps."""
        scratch = 0
        if device.type == "cuda":      # from PyTorch's allocator, so that captures and streams find it in order
            kind = "workspace" if reserve or way == "backward" else "inference"
            scratch = self.library.memory(kind, number(device), sizes)
        return plan(self.library, way, number(device), sizes, count, makers,
                    *[maker([size], torch.uint8, device) if size else None for size in (reserve, scratch)])

    def can_plan(self, device):
        """Lengths on a GPU are asserted in each call, histories that grow need room, and what is stored in 8 bits may have to be
        encoded."""
        return not self.manifest.grows and not self.manifest.codes and (device.type == "cpu" or not any(
            t.kind in ("lengths", "starts") for t in self.manifest.inputs))

    def plan_forward(self, tensors, sizes, mode, step):
        """A plan for a call with these, which have been found right; results of a step are without an axis for steps."""
        device, way, count = device_of(tensors), mode & ~NO_STATE, len(self.manifest.outputs)
        if not self.can_plan(device):
            return None
        shapes = [list(shape) for shape, _ in self.known_shapes(sizes)]
        if step:
            shapes = [[*shape[:1], *shape[2:]] if at < count else shape for at, shape in enumerate(shapes)]
        makers = [maker(shape, DTYPES[t.dtype], device) if at < count or not mode & NO_STATE else None
                  for at, (t, shape) in enumerate(zip(self.results, shapes))]
        with on(device):
            kept = max(self.library.memory("reserve", number(device), sizes), 1) if way == SAVE else 0
            return self.plan("step" if way == STEP else "forward", device, sizes, len(tensors), makers, kept)

    def planned_backward(self, arguments, sizes, wanted):
        """The gradients of a call like an earlier one, as run_backward gives them, or None. The second such
        call has a plan; with a budget none has."""
        if len(sizes) > len(self.manifest.sizes):
            return None
        if torch.compiler.is_compiling() or not eager.planned().there or not eager.nothing_watches():
            return None
        key = (*wanted, *sizes)
        plans = self.pulls.get(key)
        if plans is None:
            remember(self.pulls, key, plans := {})
        found = eager.planned().call(plans, torch.get_num_threads(), *arguments)
        if found is None and (text := eager.planned().key(*arguments)) is not None and text not in plans:
            tensors = arguments[:len(self.manifest.given)]
            device = device_of(tensors)
            if self.can_plan(device):
                makers = [maker(t.shape, t.dtype, device) if w else None for t, w in zip(tensors, wanted)]
                with on(device):
                    made = self.plan("backward", device, sizes, len(arguments) - 1, makers)
                if made is not None:
                    remember(plans, text, made)
        return found

    def shapes(self, sizes):
        """(shape, type) of each result."""
        named = dict(zip(self.manifest.sizes, sizes))
        return [(t.shape(named), DTYPES[t.dtype]) for t in self.results]

    def wanted_shapes(self, shapes, mode):
        """The same, without elements where states are not wanted."""
        if not mode & NO_STATE:
            return shapes
        outputs = len(self.manifest.outputs)
        return shapes[:outputs] + [((0,), dtype) for _, dtype in shapes[outputs:]]

    def empty_results(self, device, shapes):
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in shapes]

    def known_shapes(self, sizes):
        """The same, worked out once. They depend on the number of the first step, which is last, only where histories grow."""
        key = tuple(sizes if self.manifest.grows else sizes[:-1])
        found = self.known.get(key)
        if found is None:
            found = self.shapes(sizes)
            remember(self.known, key, found)
        return found

    @staticmethod
    def empty_gradients(tensors, wanted):
        """One for each given tensor, in the library's order; None where it is not wanted."""
        return [torch.empty_like(t, memory_format=torch.contiguous_format) if w else None for t, w in zip(tensors, wanted)]

    # ---- what tracing sees

    def fake_forward(self, *arguments):
        *tensors, sizes, mode = arguments
        sizes, budget = self.apart(sizes)
        device = device_of(tensors)
        made = self.empty_results(device, self.wanted_shapes(self.shapes(sizes), mode))
        count = 0
        if mode & ~NO_STATE == SAVE:
            count = self.traced_reserve(device, sizes, budget)
        return (*made, torch.empty(count, dtype=torch.uint8, device=device))

    def traced_reserve(self, device, sizes, budget):
        """What the reserve will have, where the sizes are known, and the GPU, which decides which plan runs; else a size
        that only the call knows; where tracing has no such sizes, the reference's stands for a GPU that is not there. It
        depends on the number of the first step, which is last, only where all earlier steps are read."""
        if not self.manifest.grows:
            sizes = [*sizes[:-1], 0]
        elsewhere = device.type == "cuda" and not torch.cuda.is_available()
        known = all(isinstance(s, int) for s in sizes)
        where = None
        if elsewhere or not known:
            try:
                return torch.library.get_ctx().new_dynamic_size()
            except torch._subclasses.fake_tensor.DynamicOutputShapeException:
                if not known:
                    raise
        elif device.type == "cuda":
            where = device.index if device.index is not None else torch.cuda.current_device()
        return max(self.library.memory("reserve", where, sizes, budget), 1)

    def fake_backward(self, *arguments):
        *tensors, _reserve, _sizes, wanted = arguments
        return [t for t in self.empty_gradients(tensors, wanted) if t is not None]

    # ---- autograd

    def keep(self, ctx, inputs, output, beside=()):
        *tensors, sizes, mode = inputs
        ctx.set_materialize_grads(False)
        ctx.saved = mode & ~NO_STATE == SAVE
        ctx.into = len(self.manifest.outputs) if mode & NO_STATE else len(self.results)       # results that gradients come from
        ctx.sizes = sizes
        ctx.beside = len(beside)
        ctx.save_for_backward(*tensors, output[-1], *beside)

    def differentiate(self, ctx, *cotangents):
        if not ctx.saved:
            raise BackendError(f"{self.manifest.name}: this call kept nothing for backward; step() and calls under "
                               "torch.no_grad() have no gradient")
        if any(c is not None and torch._C._functorch.is_legacy_batchedtensor(c) for c in cotangents):
            raise NotThere(NO_BATCH.format(name=self.manifest.name, operator=self.name + "_backward"))
        saved = ctx.saved_tensors
        last = len(saved) - ctx.beside - 1
        tensors, reserve, beside = saved[:last], saved[last], saved[last + 1:]
        given = self.manifest.given
        wanted = [bool(need) and t is not None and d.gradient
                  for need, t, d in zip(ctx.needs_input_grad, tensors, given)]
        if not any(wanted):
            return (None,) * (len(given) + 2)
        cotangents = [*cotangents[:ctx.into], *[None] * (len(self.results) - ctx.into)]
        arguments = [*tensors, *cotangents, reserve]
        twice = torch.is_grad_enabled()                # a gradient of this gradient may be asked for
        if self.offloads(ctx.sizes):
            if twice:
                raise NotThere(SECOND_ORDER.format(name=self.manifest.name))
            found = iter(self.run_backward(*arguments, ctx.sizes, wanted, beside=beside))
            return (*[next(found) if w else None for w in wanted], None, None)
        found = None if twice else self.planned_backward(arguments, ctx.sizes, wanted)
        if found is None:
            run = self.run_backward if not twice and eager.unwatched(arguments) else self.backward
            found = run(*arguments, ctx.sizes, wanted)
        found = iter(found)
        return (*[next(found) if w else None for w in wanted], None, None)

    def refuse_second_order(self, ctx, *cotangents):
        raise NotThere(SECOND_ORDER.format(name=self.manifest.name))

    def refuse_vmap(self, info, in_dims, *arguments):
        raise NotThere(NO_VMAP.format(name=self.manifest.name))
