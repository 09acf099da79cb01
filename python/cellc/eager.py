"""Calls past PyTorch's dispatcher, which with the operators' own layers takes longer than a small cell. In: the operators of an
instance and a call's tensors. Out: what the operators give, with the same gradients. Guaranteed: a call that anything could
watch, or change, on its way through the dispatcher is none of these: see `unwatched`."""

import torch

try:
    dispatch_modes, function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    transform, trace = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
    profiled, forward_mode = torch.autograd._profiler_enabled, torch.autograd.forward_ad
    batched = torch._C._functorch.is_legacy_batchedtensor        # of gradients for many cotangents at once
    known = forward_mode._current_level < 0
except AttributeError:
    known = False            # a PyTorch that keeps what decides elsewhere: all calls take the dispatcher


PLAIN = (torch.Tensor, torch.nn.Parameter)      # and none of their subclasses


def plain(tensor):
    return tensor is None or (type(tensor) in PLAIN and (tensor.is_cpu or tensor.is_cuda) and not tensor.is_nested
                              and not batched(tensor))


def unwatched(tensors):
    """Would nobody see the call's operator? Under torch.compile, export and tracing, in modes such as those for fake
    tensors, counters and selective checkpoints, within transformations of torch.func, on tensors of other classes, and for
    the profiler, somebody does."""
    if not known or torch.compiler.is_compiling():
        return False
    if dispatch_modes() or function_modes() or transform() is not None or trace() is not None or profiled():
        return False
    return forward_mode._current_level < 0 and all(map(plain, tensors))


class Call(torch.autograd.Function):
    """Forward that saves, and backward: Call.apply(tensors..., sizes, mode, ops)."""

    @staticmethod
    def forward(ctx, *arguments):
        ops = ctx.ops = arguments[-1]
        made = ops.run_forward(*arguments[:-1])
        ctx.mark_non_differentiable(made[-1])
        ops.keep(ctx, arguments[:-1], made)
        return made

    @staticmethod
    def backward(ctx, *cotangents):
        return (*ctx.ops.differentiate(ctx, *cotangents), None)
