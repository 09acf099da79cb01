"""First values of params. In: a param's initialiser as the manifest has it, a tensor. Out: the tensor, filled.
Guaranteed: numbers come from PyTorch's generator, in f32 at least, and are rounded once.

xavier and orthogonal see a matrix of all axes but the last, which is summed over, by the last: stacked weights
[4*H, D] are taken as one. Of a complex param, zeros, ones, const and eye are the real part; others draw both parts,
each divided by the root of 2, so that the mean of |z|^2 is what it is for a real one. A param without an initialiser starts as xavier with two or more axes, else as zeros."""

import math

import torch


def matrix(tensor):
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)


def xavier(tensor, _a, _b):
    rows, columns = matrix(tensor).shape
    bound = math.sqrt(6 / (rows + columns))
    return tensor.uniform_(-bound, bound)


def orthogonal(tensor, _a, _b):
    return tensor.copy_(torch.nn.init.orthogonal_(matrix(tensor).clone()).reshape(tensor.shape))


def eye(tensor, _a, _b):
    return tensor.copy_(torch.eye(*matrix(tensor).shape).reshape(tensor.shape))


FILL = {
    "xavier": xavier,
    "orthogonal": orthogonal,
    "eye": eye,
    "zeros": lambda t, a, b: t.zero_(),
    "ones": lambda t, a, b: t.fill_(1),
    "const": lambda t, a, b: t.fill_(a),
    "normal": lambda t, a, b: t.normal_(a, b),
    "uniform": lambda t, a, b: t.uniform_(a, b),
}


FIXED = ("zeros", "ones", "const", "eye")


def fill_complex(tensor, name, args):
    real = torch.empty(tensor.shape, dtype=tensor.real.dtype)
    if name in FIXED:
        return tensor.copy_(FILL[name](real, *args))
    parts = [FILL[name](torch.empty_like(real), *args) * math.sqrt(0.5) for _ in range(2)]
    return tensor.copy_(torch.complex(*parts))


def describe(declared):
    """"normal(0, 0.02)", as the docstring has it."""
    if not declared.init:
        return "xavier" if len(declared.axes) > 1 else "zeros"
    name, (a, b) = declared.init["name"], declared.init["args"]
    arguments = {"const": f"({a:g})", "normal": f"({a:g}, {b:g})", "uniform": f"({a:g}, {b:g})"}
    return name + arguments.get(name, "")


@torch.no_grad()
def fill(tensor, declared):
    """Fills `tensor` as the spec's declaration says."""
    default = {"name": "xavier" if len(declared.axes) > 1 else "zeros", "args": [0, 0]}
    init = declared.init or default
    if tensor.is_complex():
        return fill_complex(tensor, init["name"], init["args"])
    exact = torch.empty(tensor.shape, dtype=torch.promote_types(tensor.dtype, torch.float32))
    return tensor.copy_(FILL[init["name"]](exact, *init["args"]))
