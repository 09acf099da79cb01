"""Layers to build models from: LSTM and GRU that take the place of torch.nn's, and Block, which makes a layer of a
language model of any cell.

    from cellc import nn
    lstm = nn.LSTM(64, 128, num_layers=2, batch_first=True)       # as torch.nn.LSTM, and with its state_dict
    block = nn.Block(cellc.load("delta"), 512, H=8)               # [B, T, 512] to the same

LSTM and GRU are faster than torch.nn's on a GPU (docs/performance.md); on the CPU, where the cell's plain C runs, they are
slower. They have no second derivatives."""

import math

import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from . import ops
from .errors import ShapeError, TypeMismatch

__all__ = ["LSTM", "GRU", "Block"]

loaded = {}                       # {(cell, reversed, with lengths): its function}


def function_of(cell, reverse, lengths):
    from . import op
    key = cell, reverse, lengths
    if key not in loaded:
        loaded[key] = op(cell, dtype="f32", reverse=reverse, lengths=lengths)
    return loaded[key]


class Recurrent(torch.nn.RNNBase):
    """A recurrent layer of torch.nn whose layers and directions are calls of a cell. It is none of torch.nn.LSTM or GRU
    themselves, since torch.compile does not look into these."""

    def __init__(self, *given, **named):
        super().__init__("LSTM" if self.kinds == 2 else "GRU", *given, **named)
        for reverse in range(2 if self.bidirectional else 1):    # now, and not when torch.compile looks at the first call
            function_of(self.cell, bool(reverse), False)

    def flatten_parameters(self):
        """Nothing: cells take params where they are."""

    def forward(self, input, hx=None):
        """As of torch.nn: input [B, T, D], [T, B, D], [T, D] or a PackedSequence, hx the first states or None; gives the
        outputs in the same form, and the final states [layers * directions, B, H]."""
        packed = input if isinstance(input, PackedSequence) else None
        single = packed is None and input.dim() == 2
        if packed is not None:
            x, lengths = pad_packed_sequence(packed, batch_first=True)
            lengths = lengths.to(device=x.device, dtype=torch.int32)
        else:
            if input.dim() not in (2, 3):
                raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.dim()}D tensor")
            x, lengths = input.unsqueeze(0) if single else input if self.batch_first else input.transpose(0, 1), None
        states = self.first_states(x, hx, single)
        finals = []
        for layer in range(self.num_layers):
            found = [self.one(layer, reverse, x, lengths, [s[2 * layer + reverse if self.bidirectional else layer] for s in states])
                     for reverse in range(2 if self.bidirectional else 1)]
            finals += [final for _, final in found]
            x = found[0][0] if len(found) == 1 else torch.cat([y for y, _ in found], -1)
            if self.dropout and layer + 1 < self.num_layers:
                x = torch.nn.functional.dropout(x, self.dropout, self.training)
        return self.as_given(x, packed, single), self.final_states(finals, x.dtype, single)

    def one(self, layer, reverse, x, lengths, states):
        end = f"_l{layer}" + ("_reverse" if reverse else "")
        weights = [getattr(self, name + end) for name in ("weight_ih", "weight_hh")]
        biases = [getattr(self, name + end) for name in ("bias_ih", "bias_hh")] if self.bias else \
            [weights[0].new_zeros(weights[0].shape[0])] * 2
        more = [getattr(self, "weight_hr" + end)] if self.proj_size else []
        given = [x] if lengths is None else [x, lengths]
        return function_of(self.cell, bool(reverse), lengths is not None)(*given, *weights, *biases, *more, state=states,
                                                                          batch_first=True)

    def first_states(self, x, hx, single):
        """[of each kind: layers * directions times [B, width]], in the type in which cells keep states."""
        rows = self.num_layers * (2 if self.bidirectional else 1)
        kinds = [self.proj_size or self.hidden_size, self.hidden_size][:self.kinds]
        if hx is None:
            return [[None] * rows] * len(kinds)
        given = hx if self.kinds > 1 else (hx,)
        if len(given) != len(kinds) or not all(isinstance(s, torch.Tensor) for s in given):
            raise TypeError(f"{type(self).__name__}: hx is {'a tuple of two tensors' if self.kinds > 1 else 'a tensor'}")
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        found = []
        for k, (state, width) in enumerate(zip(given, kinds)):
            wanted = (rows, width) if single else (rows, x.shape[0], width)
            if tuple(state.shape) != wanted:
                where = f" hidden[{k}]" if self.kinds > 1 else " hidden"
                raise RuntimeError(f"{type(self).__name__}: Expected{where} size {wanted}, got {list(state.shape)}")
            found.append((state.unsqueeze(1) if single else state).to(dtype).unbind(0))
        return found

    def final_states(self, finals, dtype, single):
        kinds = [torch.stack([final[k] for final in finals]).to(dtype) for k in range(self.kinds)]
        kinds = [k.squeeze(1) for k in kinds] if single else kinds
        return tuple(kinds) if self.kinds > 1 else kinds[0]

    def as_given(self, y, packed, single):
        if packed is None:
            return y.squeeze(0) if single else y if self.batch_first else y.transpose(0, 1)
        order = packed.sorted_indices
        counts = (packed.batch_sizes.unsqueeze(0) > torch.arange(int(packed.batch_sizes[0])).unsqueeze(1)).sum(1)
        data = pack_padded_sequence(y if order is None else y.index_select(0, order), counts, batch_first=True).data
        return PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)


class LSTM(Recurrent):
    """torch.nn.LSTM by cellc's kernels: the same arguments (layers, bias, dropout, bidirectional, proj_size, batch_first),
    params, results and state_dict; unbatched and packed sequences too."""

    kinds = 2

    @property
    def cell(self):
        return "lstm_projection" if self.proj_size else "lstm"


class GRU(Recurrent):
    """torch.nn.GRU by cellc's kernels: the same arguments, params, results and state_dict."""

    kinds, cell = 1, "gru"

    def __init__(self, *given, **named):
        if named.get("proj_size"):
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__(*given, **named)


def flat(axes, sizes):
    return math.prod(axis.of(sizes) for axis in axes)


class Block(torch.nn.Module):
    """A layer of a language model around any cell: x + out(norm(cell(project(norm(x)))) * silu(gate(x))).

    cell: a class that cellc.load gave (batch first). width: of the stream x [B, T, width]. Sizes of the cell's dims are
    given by name (or in the dict sizes); a dim without a size is the width where only inputs have it, else as large as it can be with outputs
    no wider than the stream. Every real input of the cell is a projection of the normalised stream; inputs of whole numbers
    (lengths, resets) are given to forward by name. conv: a causal convolution over four steps and SiLU come before the
    projections (the cell conv4_silu). gate: the outputs are multiplied by the SiLU of a projection. head_norm: RMSNorm over
    the last axis of each output. activations: {input: function} for what is projected, such as {"b": torch.sigmoid}.

    forward gives (the stream, state); `step` takes one step [B, width]. state is what an earlier call gave."""

    def __init__(self, cell, width, *, conv=False, gate=True, head_norm=True, activations=None, eps=1e-6, device=None,
                 sizes=None, **named):
        super().__init__()
        sizes = {**(sizes or {}), **named}
        m = getattr(cell, "manifest", None)
        if m is None:
            raise TypeMismatch(f"Block: cell is {cell!r}; wanted a class that cellc.load gave")
        self.width, self.activations = width, dict(activations or {})
        self.sizes = self.choose(m, width, sizes)
        self.cell = cell(device=device, **{k: v for k, v in self.sizes.items() if k in cell.instance.needs_sizes()})
        self.inputs = [t for t in m.inputs if t.dtype != "i32"]
        for name in self.activations:
            if name not in [t.name for t in self.inputs]:
                raise TypeMismatch(f"Block: {m.name} has no real input {name!r}; it has "
                                   f"{', '.join(t.name for t in self.inputs)}")
        self.norm = torch.nn.RMSNorm(width, eps=eps, device=device)
        self.conv = self.convolution(m.dtype)(D=width, device=device) if conv else None
        self.project = torch.nn.ModuleDict({t.name + "_": torch.nn.Linear(width, flat(t.axes, self.sizes), bias=False, device=device)
                                            for t in self.inputs})
        wide = sum(flat(t.axes, self.sizes) for t in m.outputs)
        self.head_norms = torch.nn.ModuleList(
            torch.nn.RMSNorm(t.axes[-1].of(self.sizes), eps=eps, device=device) if head_norm and t.axes else torch.nn.Identity()
            for t in m.outputs)
        self.gate = torch.nn.Linear(width, wide, bias=False, device=device) if gate else None
        self.out = torch.nn.Linear(wide, width, bias=False, device=device)

    @staticmethod
    def convolution(dtype):
        from . import load
        return load("conv4_silu", dtype=dtype)

    @staticmethod
    def choose(m, width, given):
        unknown = [name for name in given if name not in m.dims]
        if unknown:
            raise ShapeError(f"Block: {m.name} has no run-time dim {unknown[0]!r}; it has {', '.join(m.dims) or 'none'}")
        sizes, outputs = dict(given), {name for t in m.outputs for axis in t.axes for name in axis.names}
        sizes.update({name: width for name in m.dims if name not in sizes and name not in outputs})
        left = [name for name in m.dims if name not in sizes]

        def wide(n):
            return sum(flat(t.axes, {**sizes, **{name: n for name in left}}) for t in m.outputs)

        n = 1
        while left and wide(2 * n) <= width:
            n *= 2
        while left and wide(n + 1) <= width:
            n += 1
        return {**sizes, **{name: n for name in left}}

    def run(self, x, state, t0, step, named):
        before, after = state or (None, None)
        z, lead = self.norm(x), x.shape[:-1]
        stored = ops.DTYPES[self.cell.manifest.dtype]
        stored = stored if stored.itemsize == 2 else x.dtype          # params may be wider beside a cell in 16 bits
        if self.conv is not None:
            z, before = (self.conv.step if step else self.conv)(z.to(stored), state=before)
            z = z.to(x.dtype)
        found = {}
        for t in self.inputs:
            v = self.project[t.name + "_"](z).reshape(*lead, *[axis.of(self.sizes) for axis in t.axes])
            found[t.name] = self.activations.get(t.name, torch.nn.Identity())(v).to(
                stored if t.dtype == self.cell.manifest.dtype else ops.DTYPES[t.dtype])
        inputs = [found[t.name] if t.name in found else named.pop(t.name) for t in self.cell.manifest.inputs
                  if t.name in found or t.name in named]
        y, after = (self.cell.step if step else self.cell)(*inputs, state=after, t0=t0, **named)
        parts = [y] if isinstance(y, torch.Tensor) else list(y)
        y = torch.cat([n(p.to(x.dtype)).reshape(*lead, -1) for n, p in zip(self.head_norms, parts)], -1)
        if self.gate is not None:
            y = y * torch.nn.functional.silu(self.gate(z))
        return x + self.out(y), (before, after)

    def forward(self, x, state=None, t0=None, **named):
        """[B, T, width] to (the same, state); t0 as of the cell: how many steps the state has seen, where it asks for it."""
        return self.run(x, state, t0, False, named)

    def step(self, x, state=None, t0=None, **named):
        """[B, width] to (the same, state)."""
        return self.run(x, state, t0, True, named)
