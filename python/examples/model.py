"""A sequence model of any cell. In: a class that cellc.load gave, or PyTorch's nn.LSTM or nn.GRU, and sizes. Out: a
module from tokens [B, T] to logits [B, T, vocabulary] that runs on whole sequences and, for sampling, step by step.

A layer is x + W_out cell(norm(x)), then x + MLP(norm(x)). A cell with one input x[D] gets the normalised stream itself;
one with several (q, k, v, a gate …), or with another shape, gets a projection for each."""

import math

import torch
from torch import nn

import cellc


def choose_sizes(manifest, width, given):
    """Sizes for dims that nobody gave: D, the width of an input, is the model's, and the others are as large as they
    can be with outputs no wider than the model."""
    sizes = dict(given)
    shared = [name for name in manifest.dims if name not in sizes]
    outputs = {name for t in manifest.outputs for axis in t.axes for name in axis.names}
    for name in [name for name in shared if name not in outputs]:
        sizes[name] = width
        shared.remove(name)

    def wide(n):
        every = {**sizes, **{name: n for name in shared}}
        return sum(math.prod(axis.of(every) for axis in t.axes) for t in manifest.outputs)

    n = 1
    while shared and wide(n + 1) <= width:
        n += 1
    return {**sizes, **{name: n for name in shared}}


class Mixer(nn.Module):
    """A cell between projections: [B, T, width] to the same."""

    def __init__(self, cls, width, given):
        super().__init__()
        m = cls.manifest
        sizes = choose_sizes(m, width, given)
        self.cell = cls(**sizes)
        self.shapes = [[axis.of(sizes) for axis in t.axes] for t in m.inputs]
        direct = self.shapes == [[width]]
        self.project = nn.ModuleList([] if direct else [nn.Linear(width, math.prod(shape)) for shape in self.shapes])
        self.out = nn.Linear(sum(math.prod(axis.of(sizes) for axis in t.axes) for t in m.outputs), width, bias=False)
        self.dtype = next(iter(cellc.ops.DTYPES[t.dtype] for t in m.inputs))

    def forward(self, x, state=None, t0=0):
        lead = x.shape[:-1]
        inputs = [p(x).reshape(*lead, *shape) for p, shape in zip(self.project, self.shapes)] or [x]
        y, state = self.cell(*[v.to(self.dtype) for v in inputs], state=state, t0=t0)
        parts = (y,) if isinstance(y, torch.Tensor) else y
        return self.out(torch.cat([p.reshape(*lead, -1) for p in parts], -1).to(x.dtype)), state


class TorchMixer(nn.Module):
    """nn.LSTM or nn.GRU in the same place, to compare with."""

    def __init__(self, cls, width):
        super().__init__()
        self.cell, self.out = cls(width, width, batch_first=True), nn.Linear(width, width, bias=False)

    def forward(self, x, state=None, t0=0):
        y, state = self.cell(x, state)
        return self.out(y), state


class Shift(nn.Module):
    """What a causal convolution over four steps, which is a cell too, adds to the stream: a token sees the ones before
    it, which cells with gates that do not depend on the state cannot give themselves."""

    def __init__(self, width, dtype):
        super().__init__()
        self.cell = cellc.load("conv4_silu", dtype=dtype)(D=width)
        self.dtype = cellc.ops.DTYPES[dtype]

    def forward(self, x, state=None, t0=0):
        y, state = self.cell(x.to(self.dtype), state=state, t0=t0)
        return x + y.to(x.dtype), state


class Layer(nn.Module):
    def __init__(self, cls, width, sizes, shift):
        super().__init__()
        self.shift = Shift(width, getattr(cls, "manifest", None) and cls.manifest.dtype or "f32") if shift else None
        torch_cell = issubclass(cls, nn.RNNBase)
        self.mixer = TorchMixer(cls, width) if torch_cell else Mixer(cls, width, sizes)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, state=None, t0=0):
        before, state = state or (None, None)
        z = self.norms[0](x)
        if self.shift:
            z, before = self.shift(z, before, t0)
        y, state = self.mixer(z, state, t0)
        x = x + y
        return x + self.mlp(self.norms[1](x)), (before, state)


class Model(nn.Module):
    def __init__(self, cls, vocabulary, width, layers, sizes=None, shift=False):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(cls, width, sizes or {}, shift) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        for layer in self.layers:      # so that the stream's variance does not grow with depth
            for linear in (layer.mixer.out, layer.mlp[2]):
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * layers))

    def forward(self, tokens, states=None, t0=0):
        x, after = self.embed(tokens), []
        for layer, state in zip(self.layers, states or [None] * len(self.layers)):
            x, state = layer(x, state, t0)
            after.append(state)
        return self.head(self.norm(x)), after


def load_cell(name, dtype="f32", settings=None):
    """"torch.LSTM" and "torch.GRU" are PyTorch's, everything else is for cellc."""
    if name in ("torch.LSTM", "torch.GRU"):
        return getattr(nn, name[6:])
    return cellc.load(name, dtype=dtype, settings=settings)


def pairs(words):
    """["N=32", "bias=input"] as a dict; whole numbers become int."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SystemExit(f"expected NAME=VALUE, not '{word}'")
        found[name] = int(value) if value.isdigit() else value
    return found


def groups(model, decay):
    """Weight decay for matrices only."""
    params = [p for p in model.parameters() if p.requires_grad]
    return [{"params": [p for p in params if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]


def cosine(step, steps, warmup, least=0.1):
    """The learning rate's factor: up in a line, down in half a cosine to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return least + (1 - least) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
