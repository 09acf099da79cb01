"""Calls past PyTorch's dispatcher, which with the operators' own layers takes longer than a small cell. In: the operators of an
instance and a call's tensors. Out: what the operators give, with the same gradients. Guaranteed: a call that anything could
watch, or change, on its way through the dispatcher is none of these: see `unwatched`. A call like an earlier one goes in
C (fast.py) as soon as nothing watches it; that its tensors are plain, C finds out."""

import functools

import torch

from .fast import fast

try:
    from torch.overrides import _get_current_function_mode_stack as function_mode_stack
    from torch.utils._device import DeviceContext

    dispatch_modes, function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    transform, trace = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
    excluded, AUTOGRAD = torch._C._dispatch_tls_is_dispatch_key_excluded, torch._C.DispatchKey.AutogradFunctionality
    batched, wrapped = torch._C._functorch.is_legacy_batchedtensor, torch._C._functorch.is_functorch_wrapped_tensor
    functional, is_zero = torch._is_functional_tensor, torch.Tensor._is_zerotensor
    profiled, profiler, forward_mode = torch.autograd._profiler_enabled, torch.autograd.profiler, torch.autograd.forward_ad
    profiler._is_profiler_enabled, forward_mode._current_level
    known = True
except (AttributeError, ImportError):
    known = False            # a PyTorch that keeps what decides elsewhere: all calls take the dispatcher

PLAIN = (torch.Tensor, torch.nn.Parameter)      # and none of their subclasses


def plain(tensor):
    """Is it nothing but memory? (By its dispatch keys one could ask for all of this at once, in twice the time.)"""
    return tensor is None or (type(tensor) in PLAIN and (tensor.is_cpu or tensor.is_cuda) and not (
        tensor.is_nested or is_zero(tensor) or batched(tensor) or wrapped(tensor) or functional(tensor)))


def chooses_devices():
    """Are all modes for functions those of torch.set_default_device? Nothing here leaves a device to them."""
    return all(type(mode) is DeviceContext for mode in function_mode_stack())


def unwatched(tensors):
    """Would nothing see the operator of a call with these?"""
    return nothing_watches() and all(map(plain, tensors))


def nothing_watches():
    """Would nothing see the operator of a call with plain tensors? Under torch.compile, export and tracing, in modes such as those for fake
    tensors, counters and selective checkpoints, within transformations of torch.func, below autograd, on tensors of other
    classes, and for the profiler, somebody does. (An ExecutionTraceObserver by itself cannot be asked for: it sees the
    node's name.)"""
    if not known or torch.compiler.is_compiling():
        return False
    if profiled() or profiler._is_profiler_enabled or not nothing_changes():
        return False
    if function_modes() and not chooses_devices():
        return False
    if torch.is_grad_enabled() and excluded(AUTOGRAD):         # in another operator, which has its own gradient
        return False
    return forward_mode._current_level < 0


def nothing_changes():
    """Does a call run as it is, once, and not within a trace or transformation?"""
    if torch.compiler.is_compiling():
        return False
    return not known or not (dispatch_modes() or transform() is not None or trace() is not None)


class Planned:
    """What calls in C use of PyTorch. `there`: are there such calls?"""

    def __init__(self):
        self.there = fast().there and known and self.tell()
        if self.there:
            self.key, self.find, self.run = fast().key, fast().find, fast().run
            self.call, self.serve = fast().call, fast().serve

    @staticmethod
    def tell():
        """PyTorch before 2.10 has no such table."""
        table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
        current = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        return table is not None and hasattr(torch._C, "_is_any_autocast_enabled") and fast().tell(
            "torch", table, *PLAIN, torch.Tensor.is_neg, torch.Tensor.is_conj, current)


@functools.lru_cache(None)
def planned():
    return Planned()


class Call(torch.autograd.Function):
    """Forward that saves, and backward: Call.apply(tensors..., sizes, mode, ops, plan). plan: by which the call goes in C, or
    None."""

    @staticmethod
    def forward(ctx, *arguments):
        *tensors, sizes, mode, ops, plan = arguments
        ctx.ops = ops
        beside = []
        if plan is None:
            *made, beside = ops.run_keeping(*tensors, sizes, mode)
            made = tuple(made)
        else:
            made = planned().run(plan, torch.get_num_threads(), *tensors)
        ctx.mark_non_differentiable(made[-1])
        ops.keep(ctx, arguments[:-2], made, beside)
        return made

    @staticmethod
    def backward(ctx, *cotangents):
        return (*ctx.ops.differentiate(ctx, *cotangents), None, None)
