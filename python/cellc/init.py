"""First values of params. In: a param's initialiser as the manifest has it, the sizes, a tensor. Out: the tensor, filled.
Guaranteed: numbers come from PyTorch's generator, in f32 at least, and are rounded once.

xavier and orthogonal see a matrix of all axes but the last, which is summed over, by the last: stacked weights
[4*H, D] are taken as one. A param without an initialiser starts as xavier with two or more axes, else as zeros. Of
a complex param zeros, ones, const and eye are the real part; both parts of others are drawn, each divided by the root
of 2, so that the mean of |z|^2 is what it is for a real one; orthogonal is unitary."""

import math

import torch


def matrix(tensor):
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)


def parts(tensor):
    """The numbers of a tensor and what each is multiplied by: of a complex one both parts, so that the mean of |z|^2
    is that of a real one."""
    return (torch.view_as_real(tensor), math.sqrt(0.5)) if tensor.is_complex() else (tensor, 1.0)


def xavier(tensor, _a, _b):
    rows, columns = matrix(tensor).shape
    numbers, scale = parts(tensor)
    bound = scale * math.sqrt(6 / (rows + columns))
    numbers.uniform_(-bound, bound)


def orthogonal(tensor, _a, _b):
    wide = matrix(tensor)
    tall = torch.randn(max(wide.shape), min(wide.shape), dtype=tensor.dtype)
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sgn()         # so that all directions are equally likely
    tensor.copy_((q if q.shape == wide.shape else q.mH).reshape(tensor.shape))


def normal(tensor, mean, deviation):
    numbers, scale = parts(tensor)
    numbers.normal_(mean, deviation).mul_(scale)


def uniform(tensor, low, high):
    numbers, scale = parts(tensor)
    numbers.uniform_(low, high).mul_(scale)


def eye(tensor, _a, _b):
    tensor.copy_(torch.eye(*matrix(tensor).shape).reshape(tensor.shape))


TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}

FILL = {
    "xavier": xavier,
    "orthogonal": orthogonal,
    "eye": eye,
    "zeros": lambda t, a, b: t.zero_(),
    "ones": lambda t, a, b: t.fill_(1),
    "const": lambda t, a, b: t.fill_(a),
    "normal": normal,
    "uniform": uniform,
}


@torch.no_grad()
def fill(tensor, declared, cell, sizes):
    """Fills `tensor` as the declaration in the spec of that cell says."""
    part = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    numbers = declared.init.numbers(cell, declared, sizes, TYPES.get(part))
    exact = torch.empty(tensor.shape, dtype=torch.promote_types(tensor.dtype, torch.float32))
    FILL[declared.init.name](exact, *numbers)
    return tensor.copy_(exact)
