"""Numbers of 8 bits and their scales, in PyTorch. In: a tensor, a type and how many numbers of the last axis have one scale.
Out: codes of that type and scales of f32, as runtime's cell_fp8_encode makes them. Guaranteed: codes times scales are the
nearest that these scales allow; nothing waits for a GPU."""

import torch

from .errors import ShapeError, TypeMismatch

TYPES = {name: getattr(torch, word) for name, word in (("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")) if hasattr(torch, word)}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
SMALLEST = torch.finfo(torch.float32).tiny


@torch.no_grad()
def encode(tensor, dtype="e4m3", block=0):
    """(codes, scales): tensor is nearly codes.float() * scales. `block` numbers of the last axis share a scale, and
    scales has as many on its last axis; with 0 there is one scale, without axes. A scale is the largest magnitude of its
    numbers divided by the type's largest number, 1 where all are 0."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        raise TypeMismatch("encode takes a tensor of floating numbers")
    name = {v: k for k, v in TYPES.items()}.get(dtype, dtype)
    if name not in TYPES:
        raise TypeMismatch(f"encode: dtype is {dtype}; wanted e4m3 or e5m2")
    if block and (not tensor.dim() or tensor.shape[-1] % block):
        raise ShapeError(f"encode: blocks of {block} do not divide the last axis of {list(tensor.shape)}")
    values = tensor.detach().float()
    if block:
        values = values.unflatten(-1, (-1, block))
    size = values.abs()
    if size.numel() == 0:
        most = size.new_zeros(size.shape[:-1] if block else ())
    else:
        most = size.amax(-1) if block else size.amax()
    scales = torch.where(most == 0, 1.0, (most / LARGEST[name]).clamp(min=SMALLEST))
    codes = (values / (scales.unsqueeze(-1) if block else scales)).clamp(-LARGEST[name], LARGEST[name]).to(TYPES[name])
    return codes.reshape(tensor.shape), scales


def decode(codes, scales):
    """The numbers that codes and scales stand for, in f32."""
    values = codes.float()
    if not scales.dim():
        return values * scales
    return (values.unflatten(-1, (scales.shape[-1], -1)) * scales.unsqueeze(-1)).reshape(codes.shape)
