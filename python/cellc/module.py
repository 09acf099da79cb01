"""A built cell as a class of modules, and as a function. In: operators and manifest. Out: a subclass of Cell with the
spec's params, or an Op. Guaranteed: shapes and types are checked before anything runs, and the message says what the
spec wants; a call is traceable by torch.compile in one graph."""

import abc
import copy
import copyreg
import functools
import sys

import torch

from . import codes, eager, init, packed
from .build import again, once
from .errors import BackendError, CellcError, NotThere, ShapeError, TypeMismatch
from .instance import Instance
from .manifest import CODES, Sizes
from .names import CALL, by_the_spec, there_is, usable
from .native import remember
from .ops import DTYPES, INFER, INTEGERS, NO_STATE, SAVE, STEP, Ops, device_of, narrowed

CALL_OF_OPS = CALL | {"batch_first", "sizes"}                                    # keywords of functional cells
NO_TRANSFORM = ("{name}: torch.func.grad, vjp, jvp and jacrev, and forward-mode gradients, are not there for cells. "
                "torch.autograd.grad and torch.autograd.functional.jacobian give their gradients")


NO_SCRIPT = ("{name}: TorchScript, which torch.jit and torch.onnx.export(dynamo=False) make, has no place for a cell. "
             "torch.export.export keeps a cell as one operator: torch.export.save writes the program to a file, and "
             "torch._inductor.aoti_compile_and_package compiles it ahead of time; torch.compile compiles what is around it")
NO_ONNX = ("{name}: ONNX has no operator that a cell could become. Without one in custom_translation_table the export will fail; "
           "torch.export.save writes the program to a file, and torch._inductor.aoti_compile_and_package compiles it ahead "
           "of time")
NO_PROXY = ("{name}: {tensor} is a torch.fx.Proxy, and torch.fx.symbolic_trace cannot look into a cell. torch.export.export traces it; "
            "a torch.fx.Tracer whose is_leaf_module(m, name) is true of cells leaves it as it is")


NO_DTENSOR = ("{name}: {tensor} is a DTensor, and cells have no rules for sharded tensors. Under fully_shard the module's "
              "forward gets whole params, and so does step after "
              "torch.distributed.fsdp.register_fsdp_forward_method(module, \"step\"); else call "
              "the cell on x.to_local(), or x.full_tensor(), and make a DTensor of what it gives with DTensor.from_local")

exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)          # the former since PyTorch 2.7


@functools.lru_cache(None)
def serialisable(made):
    """Has exported programs that give these named tuples saved and loaded. (Their name stands in R"(...)" in C++ that
    PyTorch generates, so it has no parentheses.)"""
    register = getattr(torch.utils._pytree, "_register_namedtuple", None)
    if register:
        register(made, serialized_type_name=f"cellc.{made.__name__}[{','.join(made._fields)}]")


STORED = {DTYPES[name]: name for name in ("f32", "bf16", "f16", "f64")}        # what a cell can be loaded in


def type_name(dtype):
    return str(dtype).removeprefix("torch.")


def autocasts(device):
    """Is autocast on there? PyTorch raises where a device has none, as meta."""
    return device.type in ("cpu", "cuda") and torch.is_autocast_enabled(device.type)


def describe(value):
    return "None" if value is None else f"a {type(value).__name__}"


def transformed(tensors):
    """Is a transformation of torch.func, or forward-mode differentiation, under way on one of these? Both would find an
    operator without a rule, and the latter would take its tangents as zeros."""
    if torch.compiler.is_compiling():
        return False
    given = [t for t in tensors if t is not None]
    if any(torch._C._functorch.is_gradtrackingtensor(t) for t in given):
        return True
    forward = torch.autograd.forward_ad
    return forward._current_level >= 0 and any(forward.unpack_dual(t).tangent is not None for t in given)


def place_in_model():
    """("layers.1.cell", "Model"): which module runs, as the outermost one that it is part of and that is running calls it;
    None where it is part of none. Found in the frames of the call, so that only an error pays for it."""
    running, frame = [], sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module) and not (running and running[-1] is owner):
            running.append(owner)
        frame = frame.f_back
    for model in reversed(running[1:]):
        name = next((name for name, module in model.named_modules() if module is running[0]), "")
        if name:
            return name, type(model).__name__
    return None


def say_place(error):
    """Puts behind what an error says which module of the user's model it is about."""
    place = None if torch.compiler.is_compiling() or hasattr(error, "place") else place_in_model()
    if place:
        error.place = place
        error.args = (f"{error} (this cell is {place[0]} of {place[1]})",)


def instance_again(*arguments):
    return again("torch", *arguments).instance


instances = {}                         # instances by a number of their own, as text


class Others:
    """The same cell where tensors are stored in other types, by their names, once they were wanted."""


def prepare(tag, stored):
    """Builds the cell of this instance, with its options, for another type."""
    instance = instances[tag]
    if not hasattr(instance.others, stored):
        options = {**instance.built.options, "dtype": stored, "tuned": None}     # what was tuned, was for the type it has
        setattr(instance.others, stored, again("torch", instance.spec, options).instance)


prepare._dynamo_marked_constant = True         # torch.compile calls it, in place of compiling it


class TorchInstance(Instance):
    """What modules and functions of one built cell share."""

    args_behind = ["batch_first (bool): True: tensors are [B, T, ...]; False: [T, B, ...]. Default: True",
                   "device: where the params are",
                   "sizes (dict): sizes whose names are words of Python or taken here",
                   "reserve: bytes to keep for backward, or a text such as '512MB'. Default: no limit"]
    made_keywords = ("self", "sizes", "batch_first", "device", "reserve")
    whole = (int, torch.SymInt)

    def __init__(self, built):
        super().__init__(built)
        m = self.manifest
        (self.library.host or self.library).threads = torch.get_num_threads
        self.ops = Ops(self.library, m, built.meaning)
        self.stored = DTYPES[m.dtype]
        self.others, self.tag = Others(), str(len(instances))
        instances[self.tag] = self
        self.decides = self.deciding(m.inputs), self.deciding(m.params)
        self.by_name = usable([t.name for t in m.inputs + m.params], CALL_OF_OPS)
        for made in (self.State, self.Outputs):
            serialisable(made)
        self.right = {}                # what tensors of a call were found right: (their types, if some are converted, and its
                                       # sizes but the last, t0)
        self.plans = {}                # how a call is made and with which sizes: plans of calls that keep nothing, and of those
                                       # that keep what backward needs, by their tensors

    def __reduce__(self):
        return instance_again, (self.spec, self.built.options)

    @staticmethod
    def drawn(declared, shape):
        """A tensor of an example, as one types it."""
        if declared.kind == "starts":
            return "torch.tensor([0, 3, 4], dtype=torch.int32)"
        if declared.dtype == "i32":
            return f"torch.ones({shape}, dtype=torch.int32)"
        more = "" if declared.dtype == "f32" else f", dtype={DTYPES[declared.dtype]}"
        return f"torch.{'rand' if declared.range else 'randn'}({shape}{more})"

    def called(self, declared):
        if declared.kind == "param":
            return usable([t.name for t in self.manifest.params], TAKEN)[declared.name]
        return super().called(declared)

    def stored_in(self, dtype):
        """This cell where tensors are stored in another type: compiled when it is first wanted."""
        if dtype == self.stored:
            return self
        name = STORED[dtype]
        if torch.compiler.is_compiling() or not hasattr(self.others, name):
            prepare(self.tag, name)
        return getattr(self.others, name)

    def deciding(self, tensors):
        """Of the first of these whose type is the cell's own, not one that the spec gives it; else of a complex one."""
        found = [k for k, t in enumerate(tensors) if t.dtype == self.manifest.dtype and not t.scales]
        found += [k for k, t in enumerate(tensors) if t.dtype in ("c64", "c128")]
        return found[0] if found else None

    def type_of(self, tensor):
        """The type in which a cell would be stored that has this one; None where it says nothing, as a pair of f32 may be of
        any cell but one in f64."""
        if tensor is None or not tensor.is_complex():
            return None if tensor is None else tensor.dtype
        if tensor.dtype == torch.complex128:
            return torch.float64
        return torch.float32 if self.stored == torch.float64 else None

    def fitting(self, inputs, params):
        """The instance for a call: that of the type that the params have, which a module's .to() may have changed. Without
        params inputs decide, and under autocast autocast does. Params in f32 or f64 may stand beside the inputs of a cell
        that was loaded in 16 bits."""
        at, place = self.decides
        x, w = None if at is None else inputs[at], None if place is None else params[place]
        x, w = x if isinstance(x, torch.Tensor) else None, w if isinstance(w, torch.Tensor) else None
        where = w if x is None else x
        if where is None:
            return self
        own, given = self.type_of(w), self.type_of(x)
        if own is not None and own not in STORED and not autocasts(where.device):
            raise TypeMismatch(f"{self.name}: {self.manifest.params[place].name} is {type_name(own)}; cells are stored as "
                               f"{', '.join(map(type_name, STORED))}. Convert the module with "
                               f".to(torch.{type_name(self.stored)})")
        if autocasts(where.device):
            wanted = torch.get_autocast_dtype(where.device.type)
            if torch.float64 in (own, given):            # which autocast leaves alone
                wanted = own or given
        elif own is None:
            wanted = given
        elif given is None or own == given or given not in STORED:       # the last is refused by its name
            wanted = own
        elif given == self.stored and given.itemsize == 2 and own.itemsize > 2:
            wanted = given
        else:
            m = self.manifest
            raise TypeMismatch(f"{self.name}: {m.inputs[self.decides[0]].name} is {type_name(x.dtype)}; this instance stores it "
                               f"as {type_name(own)}, as {m.params[self.decides[1]].name} is. Convert it with "
                               f".to(torch.{type_name(own)}), or the module with .to(torch.{type_name(given)})")
        return self if wanted == self.stored or wanted not in STORED else self.stored_in(wanted)

    def check_types(self, tensors):
        """Types as stored, all on one device that this library has code for. Params of another floating type are
        converted, so that they may be kept in f32 beside a bf16 cell; so is everything under autocast."""
        device, first, done = None, None, []
        for declared, tensor in zip(self.manifest.given, tensors):
            if tensor is None and declared.kind == "state":
                done.append(None)
                continue
            if isinstance(tensor, torch.fx.Proxy):
                raise NotThere(NO_PROXY.format(name=self.name, tensor=declared.name))
            if not isinstance(tensor, torch.Tensor):
                packed = isinstance(tensor, torch.nn.utils.rnn.PackedSequence)
                raise TypeMismatch(f"{self.name}: {declared.name} is {describe(tensor)}; wanted a tensor"
                                   + ("; a module of a cell loaded with packed=True takes it" if packed else ""))
            if type(tensor).__name__ == "DTensor":
                raise NotThere(NO_DTENSOR.format(name=self.name, tensor=declared.name))
            if tensor.is_nested or tensor.layout != torch.strided:
                raise TypeMismatch(f"{self.name}: {declared.name} is a "
                                   f"{'nested' if tensor.is_nested else type_name(tensor.layout)} tensor; wanted a dense one"
                                   + ("; a module of a cell loaded with packed=True takes sequences of several lengths, of the "
                                      "layout torch.jagged" if tensor.is_nested else ""))
            if device is None:
                device, first = tensor.device, declared.name
            elif tensor.device != device:
                raise BackendError(f"{self.name}: {declared.name} is on {tensor.device}, but {first} is on {device}")
            done.append(self.converted(declared, tensor))
        self.check_device(device)
        if transformed(done):
            raise NotThere(NO_TRANSFORM.format(name=self.name))
        return done

    def encodable(self, declared, tensor):
        """What is stored in 8 bits, as codes, or as numbers that each call encodes: those of the cell's own type, which their
        gradient has."""
        if tensor.dtype == DTYPES[declared.dtype]:
            if tensor.requires_grad:
                raise TypeMismatch(f"{self.name}: {declared.name} is {type_name(tensor.dtype)} and requires a gradient, which "
                                   "would be rounded to that type. Give the numbers that it is made of, as "
                                   f"{type_name(self.stored)}: the call encodes them, and they get the gradient")
            return tensor
        if tensor.dtype == self.stored:
            return tensor
        if tensor.dtype in STORED and (declared.kind == "param" or autocasts(tensor.device)):
            return tensor.to(self.stored)
        raise TypeMismatch(f"{self.name}: {declared.name} is {type_name(tensor.dtype)}; this instance stores it as "
                           f"{type_name(DTYPES[declared.dtype])}. Give that, as cellc.encode makes it, or "
                           f"{type_name(self.stored)}, which the call encodes")

    def converted(self, declared, tensor):
        wanted = DTYPES[declared.dtype]
        if declared.dtype in CODES:
            return self.encodable(declared, tensor)
        if tensor.dtype == wanted:
            return tensor
        free = declared.kind == "param" or autocasts(tensor.device)
        real = tensor.is_floating_point() and wanted.is_floating_point
        if free and (real or tensor.is_complex() and wanted.is_complex):
            return tensor.to(wanted)
        if wanted == torch.int32 and tensor.dtype in INTEGERS:
            return narrowed(tensor, f"{self.name}: {declared.name}")
        if tensor.dtype == torch.bool and declared.kind == "input":         # 0 and 1 are the same in all types
            return tensor.to(wanted)
        raise TypeMismatch(f"{self.name}: {declared.name} is {type_name(tensor.dtype)}; this instance stores it as "
                           f"{type_name(wanted)}. Convert it with .to(torch.{type_name(wanted)})"
                           + (", or load the cell with another dtype" if wanted != torch.int32 else ""))

    def check_device(self, device):
        if device is not None and device.type == "cpu" and not self.built.has_reference:
            raise BackendError(f"{self.name}: the tensors are on the CPU, but this build has kernels only: "
                               f"{self.built.why_no_reference}")
        if device is None or device.type in ("cpu", "meta"):
            return
        if device.type != "cuda":
            raise BackendError(f"{self.name}: cells run on cpu and cuda, not on {device.type}")
        if not self.has_kernels:
            raise BackendError(f"{self.name}: the tensors are on {device}, but this build has no kernels: "
                               f"{self.why_no_kernels}")

    @staticmethod
    def longer(tensor, room):
        return torch.nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, room - tensor.shape[1]])

    def seen(self, tensors, sizes, t0, batch_first, step):
        """What decides whether a call's tensors are right, for `right`. None where that is found out anew each time: where
        room is made in histories, or the number of the first step is wrong."""
        if self.manifest.grows or (t0 is not None and (type(t0) is not int or not 0 <= t0 < 1 << 63)):
            return None
        of_each = [None if t is None else (t.shape, t.dtype, t.device, t.layout) for t in tensors]
        autocast = autocasts(device_of(tensors))
        return (step, batch_first, t0 is None, autocast, *sizes.values.items(), *of_each)

    def checked(self, tensors, sizes, t0, batch_first, step, unwatched):
        """(the tensors as the operator takes them but for their order, the call's sizes)"""
        key = self.seen(tensors, sizes, t0, batch_first, step) if unwatched else None
        known = self.right.get(key) if key else None
        if known is not None:
            types, listed = known
            if types:
                tensors = [t if t is None or t.dtype == dtype else self.converted(declared, t)
                           for declared, t, dtype in zip(self.manifest.given, tensors, types)]
            return tensors, [*listed, t0 or 0]
        found = self.take_sizes(self.check_types(tensors), sizes, t0, batch_first, step)
        listed = self.manifest.list_sizes(sizes.finish())
        if key:
            same = all(a is b for a, b in zip(found, tensors))
            remember(self.right, key, (None if same else [t if t is None else t.dtype for t in found], listed[:-1]))
        return found, listed

    def kinds(self, sizes, batch_first, step, final_state):
        """(plans of calls that keep nothing, plans of those that keep what backward needs) of such calls. `sizes` are those
        known beforehand, a dict."""
        kind = (bool(batch_first), step, bool(final_state), *sizes.items())
        found = self.plans.get(kind)
        if found is None:
            remember(self.plans, kind, found := ({}, {}))
        return found

    def planned(self, sizes, inputs, params, state, batch_first, step, final_state=True):
        """What run() gives, of a call like an earlier one; None where there was none, or where more than its tensors decides
        what happens."""
        if torch.compiler.is_compiling() or not eager.planned().there or not eager.nothing_watches():
            return None
        m = self.manifest
        if state is None:
            state = [None] * len(m.states)
        if len(inputs) != len(m.inputs) or type(state) not in (list, tuple, self.State) or len(state) != len(m.states):
            return None
        if torch._C._is_any_autocast_enabled():
            return None
        plain, saving = self.kinds(sizes, batch_first, step, final_state)
        tensors = [*inputs, *params, *state]
        if torch.is_grad_enabled():
            plan = eager.planned().find(saving, *tensors)
            if plan is not None and any(t is not None and t.requires_grad for t in tensors):
                ops, known = plan[-2:]
                mode = SAVE if final_state else SAVE | NO_STATE
                return self.results(ops.direct.apply(*tensors, known, mode, ops, plan)[:-1], final_state)
            if plan is None and any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors):
                return None
        made = eager.planned().call(plain, torch.get_num_threads(), *tensors)
        return made if made is None else self.results(made, final_state)

    def results(self, made, final_state):
        """(outputs, final states) of the new tensors."""
        count = len(self.manifest.outputs)
        outputs = made[0] if count == 1 else tuple.__new__(self.Outputs, made[:count])
        return outputs, tuple.__new__(self.State, made[count:]) if final_state else None

    def keep_plan(self, plans, tensors, known, mode, step):
        """Makes a plan for calls like this one. `plans` are those that such calls look into."""
        saves = mode & ~NO_STATE == SAVE
        key = eager.planned().key(*tensors) if eager.planned().there else None
        if key is None or key in plans[saves]:
            return
        found = self.ops.plan_forward(tensors, known, mode, step)
        if found is not None:
            remember(plans[saves], key, (*found[:-1], self.ops, found[-1]))

    def run(self, inputs, params, state, sizes, t0, batch_first, step, final_state=True, plans=None,
            reserve=None, offload=False):
        """Checks, orders and calls. `sizes` are those known beforehand, a Sizes; `plans` are those that the next call like this one
        looks into."""
        m = self.manifest
        tensors = given = [*inputs, *params, *state]
        unwatched = eager.unwatched(tensors)
        tensors, known = self.checked(tensors, sizes, t0, batch_first, step, unwatched)
        as_given = all(a is b for a, b in zip(tensors, given))
        if (step or not batch_first) and not m.packed:
            tensors = [self.into_order(d, t, batch_first, step) for d, t in zip(m.given, tensors)]
        save = m.backward is not None and torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in tensors)
        mode = SAVE if save else STEP if step else INFER
        mode = mode if final_state else mode | NO_STATE
        if offload and reserve is None:
            raise TypeMismatch(f"{m.name}: offload=True without a budget; wanted reserve=, the bytes that stay on the device")
        if reserve is not None and save:
            known, plans = [*known, self.budget(reserve), *[1] * bool(offload)], None
        found = self.ops(tensors, known, mode, unwatched)
        if plans is not None and unwatched and as_given and t0 is None and (step or batch_first):
            self.keep_plan(plans, given, known, mode, step)
        outputs = found[:len(m.outputs)] if m.packed else [
            self.from_order(t, y, batch_first, step) for t, y in zip(m.outputs, found)]
        final = self.State(*found[len(m.outputs):-1]) if final_state else None
        return (outputs[0] if len(outputs) == 1 else self.Outputs(*outputs)), final

    def refuse_script(self):
        """Before anything else: torch.onnx.export(dynamo=False) calls with arguments that it made up."""
        if torch.jit.is_tracing():
            raise NotThere(NO_SCRIPT.format(name=self.name))
        if exporting() and torch.onnx.is_in_onnx_export():
            once(NO_ONNX.format(name=self.name))

    @staticmethod
    def into_order(declared, tensor, batch_first, step):
        """[B, T, …], which is how the library has it; the copy, where there must be one, is made by the operator."""
        if tensor is None or not declared.timed:
            return tensor
        if step:
            return tensor.unsqueeze(1)
        return tensor if batch_first else tensor.transpose(0, 1)

    @staticmethod
    def from_order(declared, tensor, batch_first, step):
        if step:
            return tensor.squeeze(1)
        return tensor if batch_first else tensor.transpose(0, 1)


class CellClass(abc.ABCMeta):
    """The class of the classes that cellc.load gives, so that pickle has a way to store them. (Of ABCMeta, as
    classes that users mix with them may be.)"""


def class_again(cls):
    """How pickle writes such a class: by what it was loaded with, and a user's own by its name."""
    return (again, ("torch", *cls.load_arguments)) if "load_arguments" in vars(cls) else cls.__qualname__


copyreg.pickle(CellClass, class_again)


class Cell(torch.nn.Module, metaclass=CellClass):
    """What the classes that cellc.load gives are made from."""

    instance = manifest = None
    reserve = None                     # how many bytes what backward needs may have; None: all that it wants
    offload = False                    # do states that these have no room for go to host memory?
    packed = False                     # it takes packed sequences: rows without padding, or what holds them

    def __init__(self, /, *given, batch_first=True, device=None, sizes=None, reserve=None, offload=False, **named):
        super().__init__()
        i, m = self.instance, self.instance.manifest
        if reserve is not None:
            self.reserve = i.budget(reserve)
        if offload and reserve is None:
            raise TypeMismatch(f"{m.name}: offload=True without a budget; wanted reserve=, the bytes that stay on the device")
        if offload:
            self.offload = True
        if isinstance(device, int) and "device" in m.dims:
            raise TypeMismatch(f"{m.name}: device={device} is where the params are; the size of the dim device is given as "
                               f"{i.example(['device'], device)[0]}")
        self.batch_first = batch_first
        self.sizes = sizes = i.check_sizes(given, named, sizes)
        self._attributes = None                 # {param of the spec: attribute, and key of the state_dict}
        self._attributes = usable([t.name for t in m.params], {*dir(type(self)), *vars(self)})
        for t in m.params:
            own = m.dtype if t.dtype in CODES else t.dtype           # of 8 bits: numbers that each call encodes
            empty = torch.empty([axis.of(sizes) for axis in t.axes], dtype=DTYPES[own], device=device)
            if t.gradient:
                self.register_parameter(self._attributes[t.name], torch.nn.Parameter(empty))
            else:
                self.register_buffer(self._attributes[t.name], empty)
        self.reset_parameters()

    def param(self, name):
        """A param by the spec's name, whatever attribute it is."""
        found = by_the_spec(name, self._attributes)
        if found is None:
            raise TypeMismatch(f"{self.instance.name}: {there_is('param', name, self._attributes)}")
        return getattr(self, self._attributes[found])

    @torch.no_grad()
    def encode(self):
        """Replaces the params that are stored in 8 bits by codes with scales, in the same places, without gradients: an eighth
        to a quarter of the memory, and nothing to encode at a call. Gives the module."""
        m = self.instance.manifest
        for at, scales in m.codes:
            declared = m.given[at]
            if declared.kind != "param" or self.param(declared.name).dtype == DTYPES[declared.dtype]:
                continue
            value = self.param(declared.name)
            shape = [axis.of(self.sizes) for axis in m.given[scales].axes]
            made, scale = codes.encode(value, declared.dtype, value.shape[-1] // max(shape[-1], 1) if shape else 0)
            name = self._attributes[declared.name]
            if declared.gradient:
                setattr(self, name, torch.nn.Parameter(made, requires_grad=False))
            else:
                setattr(self, name, made)
            setattr(self, self._attributes[m.given[scales].name], scale)
        return self

    def reset_parameters(self):
        """Draws all params again, as the spec says."""
        for t in self.instance.manifest.params:
            value = self.param(t.name)
            if value.device.type != "meta" and value.dtype not in codes.TYPES.values():
                init.fill(value.data, t, self.instance.name, self.sizes)

    def _load_from_state_dict(self, state_dict, prefix, *more):
        """Params are taken by the spec's names, too, and by those that they would have where another PyTorch, or a class
        made from this one, has other attributes."""
        for name, attribute in self._attributes.items():
            for other in (name, name + "_"):
                if other not in self._attributes.values() and prefix + attribute not in state_dict and prefix + other in state_dict:
                    state_dict[prefix + attribute] = state_dict.pop(prefix + other)
        super()._load_from_state_dict(state_dict, prefix, *more)

    def _run(self, inputs, named, state, t0, step, batch=None, steps=None, final_state=True, reserve=None,
             offload=None):
        own = self._parameters
        params = [own[name] if name in own else getattr(self, name) for name in self._attributes.values()]
        first = self.batch_first or self.packed      # packed sequences have no other order
        plain = type(named) is dict and not named          # and no torch.fx.Proxy
        reserve = self.reserve if reserve is None else reserve
        offload = self.offload if offload is None else offload
        if plain and reserve is None and not offload and not self.packed and t0 is None and batch is None and steps is None:
            found = self.instance.planned(self.sizes, inputs, params, state, first, step, final_state)
            if found is not None:
                return found
        self.instance.refuse_script()
        if isinstance(named, torch.fx.Proxy):           # the cell itself is traced, so that all its arguments are one
            raise NotThere(NO_PROXY.format(name=self.instance.name, tensor="what it is called with"))
        m = self.instance.manifest
        if self.packed:
            inputs, leave = packed.enter(self.instance, inputs, named, step)
        inputs, state = self.instance.apart(inputs, len(m.inputs), state)
        if named:
            inputs = self.instance.all_inputs(inputs, named)
        self.instance.check_inputs(inputs)
        if self.packed:
            inputs, behind = (inputs, None) if m.packed else packed.pad(self.instance, inputs, step)
            found, final = self._call(inputs, params, state, t0, step, batch, steps, final_state, reserve, offload)
            return leave(found if behind is None else packed.each(found, behind)), final
        return self._call(inputs, params, state, t0, step, batch, steps, final_state, reserve, offload)

    def _call(self, inputs, params, state, t0, step, batch, steps, final_state, reserve, offload):
        i = self.instance.fitting(inputs, params)
        sizes = Sizes(i.manifest, self.sizes, "the module")
        if batch is not None:
            sizes.values[i.manifest.batch], sizes.why[i.manifest.batch] = i.whole_number("batch", batch), "batch"
        if steps is not None:
            sizes.values["T"], sizes.why["T"] = i.whole_number("steps", steps), "steps"
        first = self.batch_first or self.packed
        plans = None
        if not self.packed and batch is None and steps is None and not torch.compiler.is_compiling():
            plans = self.instance.kinds(self.sizes, first, step, final_state)
        return i.run(inputs, params, i.state_list(state), sizes, t0, first, step, final_state, plans, reserve,
                     offload)

    def _apply(self, fn, recurse=True):
        """Complex params follow real ones: to(torch.float64) makes pairs of these of them, where PyTorch would leave out
        their imaginary parts, or with double() leave them as they are. Codes and their scales keep their types: another
        type would make numbers of codes without their scales."""
        m = self.instance.manifest

        def follow(t):
            if t.dtype in codes.TYPES.values():
                return t.to(device=fn(torch.empty(0, dtype=torch.float32, device=t.device)).device)
            if not t.is_complex():
                return fn(t)
            part = t.real.dtype
            real = fn(torch.empty(0, dtype=part, device=t.device))
            if real.dtype == part or real.dtype not in STORED:
                return fn(t)
            wanted = torch.complex128 if real.dtype == torch.float64 else torch.complex64
            return t.to(device=real.device, dtype=wanted)

        scales = {self._attributes[m.given[k].name]: self.param(m.given[k].name) for _, k in m.codes if m.given[k].kind == "param"}
        special = m.codes or any(t.dtype in ("c64", "c128") for t in m.params)
        found = super()._apply(follow if special else fn, recurse)
        for name, scale in scales.items():
            self._buffers[name] = scale.to(device=self._buffers[name].device)
        return found

    def forward(self, /, *inputs, state=None, t0=None, batch=None, steps=None, final_state=True, reserve=None,
                offload=None, **named):
        """All steps: (outputs, final states). Inputs are [B, T, …], or [T, B, …] with batch_first=False, in the order of the
        spec or by name. `state`, by name or behind all inputs, is what an earlier call gave, or None for the spec's initial
        values; t0 the number of steps done before, which only cells that use it ask for. A cell without inputs is told
        `batch` and `steps`. With final_state=False there are no final states, None in their place: neither allocated nor
        written. `reserve` is how many bytes the call may keep for backward (a number, or "512MB"), which
        computes the rest again; without it that of the module counts. With offload=True states that it computes from are
        in pinned memory of the host."""
        try:
            return self._run(inputs, named, state, t0, False, batch, steps, final_state, reserve, offload)
        except CellcError as error:
            say_place(error)
            raise

    def step(self, /, *inputs, state=None, t0=None, batch=None, **named):
        """One step: inputs [B, …], and behind them or by name the state, to (outputs [B, …], states)."""
        try:
            return self._run(inputs, named, state, t0, True, batch)
        except CellcError as error:
            say_place(error)
            raise

    def _stored(self):
        """The name of the type that the module has by now."""
        i = self.instance
        decides = i.decides[1]
        own = None if decides is None else i.type_of(self.param(i.manifest.params[decides].name))
        return STORED.get(own, i.manifest.dtype)

    def extra_repr(self):
        m = self.instance.manifest
        words = [f"{k}={v}" for k, v in {**self.sizes, **m.bound, **m.options}.items()] + [f"dtype={self._stored()}"]
        words += [f"{word}=True" for word in ("reverse", "lengths") if m.data[word] and not (word == "lengths" and self.packed)]
        words += ["packed=True"] if self.packed else []
        return ", ".join(words + ([] if self.batch_first else ["batch_first=False"]))

    @classmethod
    def explain(cls, all=False):
        """What the compiler decided, in about ten lines; all: every operation, value and buffer, and why."""
        return cls.instance.explain(all)

    @classmethod
    def source(cls, kind="c"):
        """The generated source: c, cuda, header, host, plan, manifest or ir."""
        return cls.instance.source(kind)

    @classmethod
    def graph(cls, backward=False):
        """The data flow of one direction, which notebooks show as a picture (with Graphviz)."""
        return cls.instance.graph(backward)

    def __reduce_ex__(self, protocol):
        if "load_arguments" not in vars(type(self)):       # of a class that the user made from this one
            return super().__reduce_ex__(protocol)
        return restore, (type(self).load_arguments,), self.__getstate__()

    def __prepare_scriptable__(self):
        """What torch.jit.script asks first."""
        raise NotThere(NO_SCRIPT.format(name=self.instance.name))

    def __getstate__(self):
        return self.__dict__.copy()

    def __copy__(self):
        """Of the same class: what was loaded, whatever the spec's file holds by now."""
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        return made

    def __deepcopy__(self, memo):
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return made


# Attributes that are no params.
TAKEN = {*dir(Cell), *vars(torch.nn.Module()), "batch_first", "sizes", "load_arguments", "_attributes"}


def restore(arguments):
    """A module of the cell that was pickled, without its params: compiled from the text that came with it."""
    cls = again("torch", *arguments)
    return cls.__new__(cls)


class Op:
    """A cell as a function of its inputs and params: op(x, W, …, state=None) -> (outputs, final states)."""

    def __init__(self, instance, batch_first=True):
        self.instance, self.batch_first = instance, batch_first
        self.__doc__ = instance.doc

    def _run(self, given, named, state, t0, batch_first, sizes, step, final_state=True, reserve=None, offload=False):
        m = self.instance.manifest
        count, plans = len(m.inputs), None
        first = self.batch_first if batch_first is None else batch_first
        if not m.packed and sizes is None and not torch.compiler.is_compiling():
            plans = self.instance.kinds({}, first, step, final_state)
            if not named and reserve is None and not offload and t0 is None and len(given) == count + len(m.params):
                found = self.instance.planned({}, given[:count], given[count:], state, first, step, final_state)
                if found is not None:
                    return found
        self.instance.refuse_script()
        wanted = m.inputs + m.params
        given, state = self.instance.apart(given, len(wanted), state)
        values = dict(zip([t.name for t in wanted], given))
        for keyword, value in named.items():
            name = by_the_spec(keyword, self.instance.by_name)
            if name is None or name in values:
                known = [*self.instance.by_name.values(), *sorted(CALL_OF_OPS - {"self", "params", "batch", "steps", keyword})]
                raise TypeMismatch(f"{m.name}: {name} was given twice" if name else
                                   f"{m.name}: {there_is('tensor', keyword, known)}")
            values[name] = value
        missing = [t.name for t in wanted if t.name not in values]
        if missing or len(given) > len(wanted):
            raise TypeMismatch(f"{m.name}: wanted {self.instance.listed(wanted)}"
                               + (f"; {', '.join(missing)} is missing" if missing else f", not {len(given)} tensors"))
        if sizes is not None and not hasattr(sizes, "items"):
            raise TypeMismatch(f"{m.name}: sizes is {sizes!r}; wanted a dict, as in sizes={{{m.sizes[0]!r}: 2}}")
        unknown = [size for size in sizes or {} if size not in m.sizes[:-1]]
        if unknown:
            raise ShapeError(f"{m.name}: {there_is('size', unknown[0], m.sizes[:-1])}")
        sizes = {size: self.instance.whole_number(size, value) for size, value in (sizes or {}).items()}
        inputs, params = [values[t.name] for t in m.inputs], [values[t.name] for t in m.params]
        i = self.instance.fitting(inputs, params)
        sizes = Sizes(m, sizes, "sizes")
        return i.run(inputs, params, i.state_list(state), sizes, t0, first, step, final_state, plans, reserve,
                     offload)

    def __call__(self, /, *given, state=None, t0=None, batch_first=None, sizes=None, final_state=True,
                 reserve=None, offload=False, **named):
        """Tensors in the order inputs, params, behind them the state, or by name (one that is a keyword here, or a word of
        Python, with a _ behind it); `sizes` for what no tensor says, such as {"B": 2}."""
        try:
            return self._run(given, named, state, t0, batch_first, sizes, False, final_state, reserve, offload)
        except CellcError as error:
            say_place(error)
            raise

    def step(self, /, *given, state=None, t0=None, sizes=None, **named):
        try:
            return self._run(given, named, state, t0, None, sizes, True)
        except CellcError as error:
            say_place(error)
            raise

    def __repr__(self):
        return f"<cellc op {self.instance.manifest.key}>"
