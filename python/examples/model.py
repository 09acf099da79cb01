"""A sequence model of any cell. In: a class that cellc.load gave, or PyTorch's nn.LSTM or nn.GRU, and sizes. Out: a
module from tokens [B, T] to logits [B, T, vocabulary] that runs on whole sequences and, for sampling, step by step.

A layer is cellc.nn.Block, x + W_out norm(cell(W_in norm(x))), then x + MLP(norm(x))."""

import math

from torch import nn

import cellc.nn


class TorchBlock(nn.Module):
    """x + W_out cell(norm(x)) for nn.LSTM or nn.GRU, to compare with."""

    def __init__(self, cls, width):
        super().__init__()
        self.norm, self.cell = nn.RMSNorm(width), cls(width, width, batch_first=True)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, state=None, t0=0):
        y, state = self.cell(self.norm(x), state)
        return x + self.out(y), state


class Layer(nn.Module):
    def __init__(self, cls, width, sizes, shift):
        super().__init__()
        torch_cell = issubclass(cls, nn.RNNBase)
        self.block = TorchBlock(cls, width) if torch_cell else cellc.nn.Block(cls, width, conv=shift, gate=False,
                                                                                    sizes=sizes)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, state=None, t0=0):
        x, state = self.block(x, state, t0)
        return x + self.mlp(self.norm(x)), state


class Model(nn.Module):
    def __init__(self, cls, vocabulary, width, layers, sizes=None, shift=False):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(cls, width, sizes or {}, shift) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        for layer in self.layers:      # so that the stream's variance does not grow with depth
            for linear in (layer.block.out, layer.mlp[2]):
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
