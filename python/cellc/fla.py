"""Layers of flash-linear-attention by cellc's kernels. In: the constructor arguments of fla's layers, and their
state_dicts. Out: modules whose parameters have fla's names and shapes, with the recurrence and the short convolutions as
cells. Guaranteed: of a state_dict that lacks a tensor, or has one more or of another shape, nothing is loaded; what is
computed is the formula of fla's layer, up to the order of sums.

    from cellc import fla
    layer = fla.GatedDeltaNet(hidden_size=512, head_dim=64, num_heads=6)
    layer.load_state_dict(their_layer.state_dict())
    y, state = layer(x)                             # x is [B, T, 512]
    y, state = layer.step(x_t, state)               # x_t is [B, 512]
    y, state = layer(rows, cu_seqlens=starts)       # rows is [1, total, 512]: sequences one behind the other
    y, state = layer(x, attention_mask=mask)        # mask is [B, T]: of what is 0 nothing is computed

The layers are written against commit bc3b101d of fla (August 2026)."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.nn import functional

from .errors import ShapeError, TypeMismatch
from .module import serialisable
from .packed import pad

__all__ = ["DeltaNet", "GatedDeltaNet", "GatedLinearAttention", "HGRN2Attention", "HGRNAttention", "KimiDeltaAttention",
           "MultiScaleRetention", "SimpleGatedLinearAttention", "ShortConvolution", "State"]
LAYERS = __all__[:-2]

# fla adds eps under the root, normalises queries too, and divides them by the root of a key's size; `delta` and
# `gated_delta` of cellc do it in other ways. Of DeltaNet the write strength comes as it is, of GatedDeltaNet before the
# sigmoid: what is rounded to 16 bits in between is the same as there.
DELTA = """
cell fla_delta {
    dim H;
    dim N = 64;
    dim V = 64;
    option norm = l2 | none;
    const eps = 1e-6;

    input q[H, N], k[H, N], v[H, V], b[H];
    state S[H, V, N];
    output y[H, V];

    when norm == l2 {
        kn[h,j] = k[h,j] / sqrt((sum[i] k[h,i]^2) + eps);
        qn[h,j] = q[h,j] / sqrt((sum[i] q[h,i]^2) + eps);
    } else {
        kn[h,j] = k[h,j];
        qn[h,j] = q[h,j];
    }
    delta[h,p] = v[h,p] - sum[j] S[h,p,j] * kn[h,j];
    S'[h,p,j]  = S[h,p,j] + b[h] * delta[h,p] * kn[h,j];
    y[h,p]     = 1 / sqrt(N) * sum[j] S'[h,p,j] * qn[h,j];
}
"""

# rates == f32: beside tensors of 16 bits, so that decays are those of the parameters as they are.
GATED_DELTA = """
cell fla_gated_delta {
    dim H;
    dim N = 64;
    dim V = 64;
    option rates = same | f32;
    const eps = 1e-6;
    const strength = 1;

    input q[H, N], k[H, N], v[H, V], g[H], b[H];
    state S[H, V, N];
    output y[H, V];

    when rates == same { param A_log[H] ~ uniform(0.0, 2.77), dt_bias[H] ~ uniform(-6.9, -2.25); }
    when rates == f32 { param A_log[H] : f32 ~ uniform(0.0, 2.77), dt_bias[H] : f32 ~ uniform(-6.9, -2.25); }

    kn[h,j] = k[h,j] / sqrt((sum[i] k[h,i]^2) + eps);
    qn[h,j] = q[h,j] / sqrt((sum[i] q[h,i]^2) + eps);
    a[h]    = exp(-exp(min(A_log[h], 60)) * softplus(g[h] + dt_bias[h]));
    beta[h] = strength * sigmoid(b[h]);

    ret[h,p]  = sum[j] S[h,p,j] * kn[h,j];
    w[h,p]    = beta[h] * (v[h,p] - a[h] * ret[h,p]);
    S'[h,p,j] = a[h] * S[h,p,j] + w[h,p] * kn[h,j];
    y[h,p]    = 1 / sqrt(N) * sum[j] S'[h,p,j] * qn[h,j];
}
"""

# The cell `gla` is this one with a normalizer of 16 and no floor.
GLA = """
cell fla_gla {
    dim H;
    dim N = 64;
    dim V = 64;
    option floor = none | given;
    const normalizer = 16;
    const least = 0;

    input q[H, N], k[H, N], v[H, V], g[H, N];
    state S[H, N, V];
    output y[H, V];

    when floor == none { a[h,i] = exp(logsigmoid(g[h,i]) / normalizer); }
    when floor == given { a[h,i] = exp(max(logsigmoid(g[h,i]) / normalizer, least)); }
    S'[h,i,p] = a[h,i] * S[h,i,p] + k[h,i] * v[h,p];
    y[h,p]    = 1 / sqrt(N) * sum[i] q[h,i] * S'[h,i,p];
}
"""

# `kda` with fla's norm of q and k. gate == bounded: fla's lower_bound, in the exponent.
KDA = """
cell fla_kda {
    dim H;
    dim N = 64;
    dim V = 64;
    option rates = same | f32;
    option gate = softplus | bounded;
    const eps = 1e-6;
    const strength = 1;
    const least = -5;

    input q[H, N], k[H, N], v[H, V], g[H, N], b[H];
    state S[H, N, V];
    output y[H, V];

    when rates == same { param A_log[H] ~ uniform(0.0, 2.77), dt_bias[H, N] ~ uniform(-6.9, -2.25); }
    when rates == f32 { param A_log[H] : f32 ~ uniform(0.0, 2.77), dt_bias[H, N] : f32 ~ uniform(-6.9, -2.25); }

    kn[h,i] = k[h,i] / sqrt((sum[j] k[h,j]^2) + eps);
    qn[h,i] = q[h,i] / sqrt((sum[j] q[h,j]^2) + eps);
    rate[h] = exp(min(A_log[h], 60));
    when gate == softplus { a[h,i] = exp(-rate[h] * softplus(g[h,i] + dt_bias[h,i])); }
    when gate == bounded { a[h,i] = exp(least * sigmoid(rate[h] * (g[h,i] + dt_bias[h,i]))); }

    ret[h,p]  = sum[i] kn[h,i] * a[h,i] * S[h,i,p];
    S'[h,i,p] = a[h,i] * S[h,i,p] + strength * sigmoid(b[h]) * kn[h,i] * (v[h,p] - ret[h,p]);
    y[h,p]    = 1 / sqrt(N) * sum[i] qn[h,i] * S'[h,i,p];
}
"""

SIMPLE_GLA = """
cell fla_simple_gla {
    dim H;
    dim N = 64;
    dim V = 64;
    const normalizer = 16;

    input q[H, N], k[H, N], v[H, V], g[H];
    state S[H, N, V];
    output y[H, V];

    a[h]      = exp(logsigmoid(g[h]) / normalizer);
    S'[h,i,p] = a[h] * S[h,i,p] + k[h,i] * v[h,p];
    y[h,p]    = 1 / sqrt(N) * sum[i] q[h,i] * S'[h,i,p];
}
"""

# `hgrn` and `hgrn2` without an output gate. The bound is given as it is, and f32 beside tensors of 16 bits: that of a late
# layer is nearly 1. What is not kept is written as a product, so that it has no rounding of 1.
HGRN = """
cell fla_hgrn {
    dim D;
    option bound = none | same | f32;

    input i[D], f[D];
    state h[D];
    output y[D];

    when bound == same { param low[D] ~ zeros; }
    when bound == f32 { param low[D] : f32 ~ zeros; }

    when bound == none {
        a[d] = sigmoid(f[d]);
        w[d] = sigmoid(-f[d]);
    } else {
        a[d] = low[d] + (1 - low[d]) * sigmoid(f[d]);
        w[d] = (1 - low[d]) * sigmoid(-f[d]);
    }
    h'[d] = a[d] * h[d] + w[d] * silu(i[d]);
    y[d]  = h'[d];
}
"""

HGRN2 = """
cell fla_hgrn2 {
    dim H;
    dim N = 64;
    dim V = 64;
    option bound = none | same | f32;

    input q[H, N], f[H, N], v[H, V];
    state S[H, N, V];
    output y[H, V];

    when bound == same { param low[H, N] ~ zeros; }
    when bound == f32 { param low[H, N] : f32 ~ zeros; }

    when bound == none {
        a[h,i] = sigmoid(f[h,i]);
        k[h,i] = sigmoid(-f[h,i]);
    } else {
        a[h,i] = low[h,i] + (1 - low[h,i]) * sigmoid(f[h,i]);
        k[h,i] = (1 - low[h,i]) * sigmoid(-f[h,i]);
    }
    S'[h,i,p] = a[h,i] * S[h,i,p] + k[h,i] * v[h,p];
    y[h,p]    = 1 / sqrt(N) * sum[i] silu(q[h,i]) * S'[h,i,p];
}
"""

# The cell `conv4_silu` without its SiLU.
CONV = """
cell fla_conv {
    dim D;
    dim K = 4;

    input x[D];
    param weight[D, K] ~ xavier, bias[D] ~ zeros;
    output y[D];

    y[d] = (sum[w:K] weight[d, K - 1 - w] * x[d; t - w]) + bias[d];
}
"""

loaded = {}                       # {(spec, settings, type), and True for packed sequences: its function}


def prepare(key):
    from . import op
    spec, settings, dtype, *packed = key
    loaded[key] = op(spec, dtype=dtype, settings=dict(settings), packed=bool(packed))


prepare._dynamo_marked_constant = True         # torch.compile calls it, in place of compiling it


def function_of(key):
    if key not in loaded:
        prepare(key)
    return loaded[key]


def key_of(spec, dtype, **settings):
    """What function_of takes. dtype: that a layer is made in, so that no other type is compiled before it is wanted."""
    return spec, tuple(sorted(settings.items())), str(dtype or torch.get_default_dtype()).removeprefix("torch.")


class Way(NamedTuple):
    """How a call goes: a step of each sequence, [B, ...]; all steps, [B, T, ...]; or, with `starts` [B + 1],
    the rows of sequences one behind the other, [total, ...]."""

    step: bool
    starts: object = None

    def call(self, key, tensors, state):
        """The function of `key` of these inputs and params."""
        if self.starts is None:
            cell = function_of(key)
            return (cell.step if self.step else cell)(*tensors, state=state)
        cell = function_of((*key, True))
        manifest = cell.instance.manifest
        inputs = [*tensors[:len(manifest.inputs) - 1], self.starts]
        if manifest.packed:
            return cell(*inputs, *tensors[len(inputs) - 1:], state=state)
        inputs, leave = pad(cell.instance, inputs, False)
        y, state = cell(*inputs, *tensors[len(inputs) - 1:], state=state)
        return leave(y), state

    def seen(self, x, before):
        """The steps that each sequence has seen behind this call."""
        return before + (1 if self.step else x.shape[1] if self.starts is None else self.starts.diff())

    def places(self, x, before):
        """Which step of its sequence each row of x is, counted from 0."""
        if self.step:
            return before if isinstance(before, torch.Tensor) else torch.tensor([before], device=x.device)
        if self.starts is None:
            steps = torch.arange(x.shape[1], device=x.device)
            return steps + (before.unsqueeze(1) if isinstance(before, torch.Tensor) else before)
        rows, starts = torch.arange(x.shape[0], device=x.device), self.starts.long()
        sequence = torch.searchsorted(starts[1:], rows, right=True).clamp(max=len(starts) - 2)
        return rows + (before - starts[:-1])[sequence]


class State(NamedTuple):
    """What a layer leaves for the next call: of the short convolutions (None without them), of the recurrence, and how
    many steps it has seen, a number, or [B] behind a call with sequences of several lengths."""

    conv: object
    recurrent: object
    seen: object

    def detach(self):
        """The same without the graph behind it, for backpropagation that is truncated here."""
        return State(*[detached(part) for part in self[:2]], self.seen)


serialisable(State)
torch.serialization.add_safe_globals([State])


def detached(part):
    if isinstance(part, torch.Tensor):
        return part.detach()
    if not isinstance(part, tuple):
        return part
    inner = [detached(one) for one in part]
    return type(part)(*inner) if hasattr(part, "_fields") else tuple(inner)


def wide(x):
    """In the type of the arithmetic."""
    return x.float() if x.dtype.itemsize == 2 else x


def fast_gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


# fla.modules.activations.ACT2FN and, of retention, transformers.activations.ACT2FN: gelu is not the same in them.
OF_FLA = {"relu": functional.relu, "sigmoid": torch.sigmoid, "logsigmoid": functional.logsigmoid, "silu": functional.silu,
          "swish": functional.silu, "sqrelu": lambda x: functional.relu(x).square(), "gelu": fast_gelu}
OF_TRANSFORMERS = {"relu": functional.relu, "relu2": lambda x: functional.relu(x).square(), "sigmoid": torch.sigmoid,
                   "tanh": torch.tanh, "silu": functional.silu, "swish": functional.silu, "gelu": functional.gelu,
                   "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"), "elu": functional.elu}
OF_DELTA = {"silu": functional.silu, "relu": functional.relu, "elu": lambda x: functional.elu(x) + 1, "identity": lambda x: x}


class ShortConvolution(torch.nn.Conv1d):
    """A causal convolution of each channel over its last kernel_size steps, with SiLU behind it or not; weight is
    [channels, 1, kernel_size], as of fla."""

    def __init__(self, hidden_size, kernel_size, bias=False, activation="silu", device=None, dtype=None):
        super().__init__(hidden_size, hidden_size, kernel_size, groups=hidden_size, bias=bias, padding=kernel_size - 1,
                         device=device, dtype=dtype)
        self.activation = activation
        self.key = key_of("conv4_silu" if activation else CONV, dtype, K=kernel_size)
        function_of(self.key)             # now, so that what is wrong with it is said here

    def forward(self, x, state=None, step=False, cu_seqlens=None):
        """[B, T, channels] to (the same, state); a step takes [B, channels], and with cu_seqlens [B + 1] x is
        [total, channels]."""
        weight = self.weight.squeeze(1)
        bias = weight.new_zeros(weight.shape[0]) if self.bias is None else self.bias
        return Way(step, cu_seqlens).call(self.key, (x, weight, bias), state)


class Norm(torch.nn.Module):
    """RMSNorm over the last axis, in the type of the arithmetic, and with a gate times the gate's activation."""

    def __init__(self, size, eps, affine=True, activation=functional.silu, device=None, dtype=None):
        super().__init__()
        self.eps, self.activation = eps, activation
        self.register_parameter("weight", torch.nn.Parameter(torch.ones(size, device=device, dtype=dtype)) if affine else None)

    def forward(self, x, gate=None):
        y = wide(x)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        if self.weight is not None:
            y = y * wide(self.weight)
        return (y if gate is None else y * self.activation(wide(gate))).to(x.dtype)


def rotated(x, places):
    """x [..., heads, size], each half of a head against the other, by angles that grow with the step.
    places: [...]."""
    kind, size = wide(x).dtype, x.shape[-1]
    rates = 1 / 10000 ** (torch.arange(0, size, 2, device=x.device, dtype=kind) / size)
    angles = places.to(kind).unsqueeze(-1) * rates
    cos, sin = (t.to(x.dtype).to(kind).unsqueeze(-2) for t in (angles.cos(), angles.sin()))
    a, b = wide(x).chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class Layer(torch.nn.Module):
    """What the layers share: projections, short convolutions, heads, and how they are called and loaded."""

    modes = ("chunk", "fused_recurrent")
    projections = convolved = "qkv"    # what `mixed` takes, and behind which of these there may be convolutions

    def refuse(self, what):
        raise ShapeError(f"{type(self).__name__}: {what}")

    def chosen(self, argument, value, known):
        if value not in known:
            raise TypeMismatch(f"{type(self).__name__}: {argument} is {value!r}; wanted {' or '.join(map(repr, known))}")
        return value

    def whole(self, **sizes):
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                self.refuse(f"{name} is {size!r}; wanted a whole number above 0")

    def number(self, name, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.refuse(f"{name} is {value!r}; wanted a number")

    def heads_of(self, name, size, heads):
        if size < 1 or size % heads:
            self.refuse(f"{name} has a size of {size}, which is no multiple of {heads} heads")
        return size // heads

    def linear(self, made, **widths):
        for name, width in widths.items():
            self.add_module(f"{name}_proj", torch.nn.Linear(self.hidden_size, width, bias=False, **made))

    def convolutions(self, made, there, size, bias, activation="silu"):
        """Behind projections. activation: of all but v, which has SiLU."""
        self.use_short_conv = there
        if there:
            self.whole(conv_size=size)
        for name in self.convolved if there else "":
            width = getattr(self, f"{name}_proj").out_features
            self.add_module(f"{name}_conv1d", ShortConvolution(width, size, bias, "silu" if name == "v" else activation, **made))

    def projected(self, x, before, way):
        """What `projections` names, of all heads side by side, and the convolutions' states."""
        found = [getattr(self, f"{name}_proj")(x) for name in self.projections]
        if not self.use_short_conv:
            return found, None
        pairs = [getattr(self, f"{name}_conv1d")(part, one, way.step, way.starts)
                 for name, part, one in zip(self.projections, found, before or (None,) * len(found))]
        return [part for part, _ in pairs], tuple(after for _, after in pairs)

    def recurrence(self, spec, made, **settings):
        self.key = key_of(spec, made["dtype"], **settings)
        function_of(self.key)

    def recurrence_with(self, spec, dtype, option, value, **settings):
        """Of a spec whose params are f32 beside tensors of 16 bits, which `option` says."""
        narrow = (dtype or torch.get_default_dtype()).itemsize == 2
        self.key = key_of(spec, torch.float32 if narrow else dtype, **settings, **{option: value})
        self.narrow = key_of(spec, dtype if narrow else torch.bfloat16, **settings, **{option: "f32"})
        function_of(self.narrow if narrow else self.key)

    def of_heads(self, *, hidden_size, expand_v, head_dim, num_heads, num_v_heads):
        """Sizes of layers that are given a head's size, whose values may have more heads than their keys."""
        self.num_v_heads = num_heads if num_v_heads is None else num_v_heads
        self.whole(hidden_size=hidden_size, head_dim=head_dim, num_heads=num_heads, num_v_heads=self.num_v_heads)
        self.hidden_size, self.head_k_dim, self.num_heads = hidden_size, head_dim, num_heads
        self.head_v_dim = int(head_dim * expand_v)
        if self.head_v_dim < 1 or not math.isclose(head_dim * expand_v, self.head_v_dim, rel_tol=1e-5):
            self.refuse(f"expand_v={expand_v} times head_dim={head_dim} is no whole number above 0")
        if self.num_v_heads % num_heads:
            self.refuse(f"num_v_heads={self.num_v_heads} is no multiple of num_heads={num_heads}")

    def by_heads(self, q, k, v):
        """Behind what stands in the convolutions' place, q and k for each head of v."""
        if not self.use_short_conv:
            q, k, v = map(functional.silu, (q, k, v))
        q, k = (t.unflatten(-1, (self.num_heads, -1)) for t in (q, k))
        if self.num_v_heads > self.num_heads:
            q, k = (t.repeat_interleave(self.num_v_heads // self.num_heads, -2) for t in (q, k))
        return q, k, v.unflatten(-1, (self.num_v_heads, -1))

    def reset_rates(self, slowest, fastest):
        """exp(A_log) evenly from `slowest` to `fastest`, softplus of dt_bias from 0.001 to 0.1 evenly on a scale of
        logarithms."""
        with torch.no_grad():
            self.A_log.copy_(torch.empty(self.A_log.shape).uniform_(slowest, fastest).log())
            steps = torch.exp(torch.empty(self.dt_bias.shape).uniform_(math.log(0.001), math.log(0.1)))
            self.dt_bias.copy_(steps + torch.log(-torch.expm1(-steps)))

    def run(self, x, state, step, cu_seqlens=None, attention_mask=None, **more):
        lead = 2 if step else 3
        if not isinstance(x, torch.Tensor) or x.dim() != lead or x.shape[-1] != self.hidden_size:
            shape = list(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            self.refuse(f"x is {shape}; wanted [B, {'' if step else 'T, '}{self.hidden_size}]")
        if state is not None and not isinstance(state, State):
            raise TypeMismatch(f"{type(self).__name__}: state is a {type(state).__name__}; wanted what an earlier call gave")
        state = state or State(None, None, 0)
        rows, starts, leave = self.entered(x, cu_seqlens, attention_mask)
        way = Way(step, starts)
        parts, conv = self.projected(rows, state.conv, way)
        y, recurrent = self.mixed(rows, *parts, state, way, **more)
        return leave(self.o_proj(y)), State(conv, recurrent, way.seen(rows, state.seen))

    def entered(self, x, cu_seqlens, mask):
        """(x, or the rows of several sequences; where each begins; what gives an output the form of x)"""
        if mask is not None:
            if cu_seqlens is not None:
                self.refuse("cu_seqlens and attention_mask are given; wanted one of them")
            return self.unpadded(x, mask)
        if cu_seqlens is None:
            return x, None, lambda y: y
        whole = isinstance(cu_seqlens, torch.Tensor) and cu_seqlens.dtype in (torch.int32, torch.int64)
        if not whole or cu_seqlens.dim() != 1:
            raise TypeMismatch(f"{type(self).__name__}: cu_seqlens is no tensor of integers, [B + 1]")
        if x.shape[0] != 1:
            self.refuse(f"x is {list(x.shape)}; with cu_seqlens wanted [1, total, {self.hidden_size}]")
        return x.squeeze(0), cu_seqlens, lambda y: y.unsqueeze(0)

    def unpadded(self, x, mask):
        """Of each sequence the steps where the mask is not 0; the output is 0 elsewhere."""
        batch, steps = x.shape[:2]
        shape = list(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__
        if not isinstance(shape, list) or len(shape) != 2 or shape[0] != batch or shape[1] < steps:
            self.refuse(f"attention_mask is {shape}; wanted [B, T] with B = {batch} and a T of {steps} or "
                        f"more, of which the last {steps} count")
        there = mask[:, shape[1] - steps:] != 0
        places = there.flatten().nonzero().squeeze(1)
        starts = functional.pad(there.sum(1).cumsum(0), (1, 0))

        def leave(y):
            whole = y.new_zeros(batch * steps, y.shape[-1]).index_copy(0, places, y)
            return whole.unflatten(0, (batch, steps))

        return x.flatten(0, 1).index_select(0, places), starts, leave

    def call(self, state, way, *tensors, key=None):
        return way.call(key or self.key, tensors, state.recurrent)

    def gated(self, x, y):
        """Norm and gate of [.., heads, size], and the heads side by side."""
        if not self.use_gate:
            return self.norm(y).flatten(-2)
        gate = self.g_proj(x).unflatten(-1, y.shape[-2:])
        return (self.norm(y, gate) if self.fused else self.norm(y) * self.gate_fn(gate)).flatten(-2)

    def forward(self, x, state=None, *, cu_seqlens=None, attention_mask=None):
        """[B, T, hidden_size] to (the same, state). state: what an earlier call gave. With cu_seqlens [B + 1]
        x is [1, total, hidden_size], sequences one behind the other; attention_mask [B, T] is 0 where x is
        padding, which is not computed and gives 0. States are those of each sequence."""
        return self.run(x, state, False, cu_seqlens, attention_mask)

    def step(self, x, state=None):
        """[B, hidden_size] to (the same, state)."""
        return self.run(x, state, True)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """As of torch.nn.Module, but all names and shapes are compared first."""
        if not isinstance(state_dict, Mapping):
            raise TypeMismatch(f"{type(self).__name__}: state_dict is a {type(state_dict).__name__}; wanted a dict of tensors")
        own = self.state_dict()
        faults = [f"{name} is missing" for name in own if strict and name not in state_dict]
        faults += [f"{name} is unknown" for name in state_dict if strict and name not in own]
        for name, tensor in own.items():
            given = state_dict.get(name, tensor)
            if not isinstance(given, torch.Tensor) or not given.is_floating_point():
                faults.append(f"{name} is {given.dtype if isinstance(given, torch.Tensor) else type(given).__name__}; "
                              "wanted a tensor of real numbers")
            elif given.shape != tensor.shape:
                faults.append(f"{name} has shape {list(given.shape)}; wanted {list(tensor.shape)}")
        if faults:
            raise ShapeError(f"the state_dict does not fit {type(self).__name__}: {'; '.join(faults)}")
        return super().load_state_dict(state_dict, strict, assign)


class DeltaNet(Layer):
    """fla.layers.DeltaNet."""

    def __init__(self, mode="chunk", d_model=None, hidden_size=1024, expand_k=1.0, expand_v=1.0, num_heads=4, use_beta=True,
                 use_gate=False, use_short_conv=True, conv_size=4, conv_bias=False, allow_neg_eigval=False, layer_idx=None,
                 qk_activation="silu", qk_norm="l2", norm_eps=1e-5, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.mode, self.layer_idx = self.chosen("mode", mode, self.modes), layer_idx
        self.hidden_size, self.num_heads = hidden_size if d_model is None else d_model, num_heads
        self.whole(hidden_size=self.hidden_size, num_heads=num_heads)
        self.qk_activation = self.chosen("qk_activation", qk_activation, OF_DELTA)
        self.qk_norm = self.chosen("qk_norm", qk_norm, ("l2", "sum"))
        self.use_beta, self.use_gate, self.fused = use_beta, use_gate, True
        self.allow_neg_eigval = allow_neg_eigval
        keys, values = int(self.hidden_size * expand_k), int(self.hidden_size * expand_v)
        self.head_k_dim, self.head_v_dim = self.heads_of("expand_k", keys, num_heads), self.heads_of("expand_v", values, num_heads)
        self.linear(made, q=keys, k=keys, v=values, **({"b": num_heads} if use_beta else {}))
        self.convolutions(made, use_short_conv, conv_size, conv_bias, "silu" if qk_activation == "silu" else None)
        if use_gate:
            self.linear(made, g=values)
        self.o_norm = Norm(self.head_v_dim, norm_eps, **made)
        self.o_proj = torch.nn.Linear(values, self.hidden_size, bias=False, **made)
        self.recurrence(DELTA, made, N=self.head_k_dim, V=self.head_v_dim, norm="l2" if qk_norm == "l2" else "none")

    def norm(self, *given):
        return self.o_norm(*given)

    def mixed(self, x, q, k, v, state, way):
        if not self.use_short_conv:
            v = functional.silu(v)
        if not self.use_short_conv or self.qk_activation != "silu":
            q, k = map(OF_DELTA[self.qk_activation], (q, k))
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)) for t in (q, k, v))
        if self.qk_norm == "sum":
            q, k = (t / t.sum(-1, keepdim=True) for t in (q, k))
        b = self.b_proj(x).sigmoid() if self.use_beta else torch.ones_like(q[..., 0])
        y, after = self.call(state, way, q, k, v, b * 2 if self.allow_neg_eigval else b)
        return self.gated(x, y), after


class GatedDeltaNet(Layer):
    """fla.layers.GatedDeltaNet."""

    def __init__(self, hidden_size=2048, expand_v=2, head_dim=256, num_heads=6, num_v_heads=None, mode="chunk", use_gate=True,
                 use_short_conv=True, allow_neg_eigval=False, conv_size=4, conv_bias=False, layer_idx=None, norm_eps=1e-5, *,
                 device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.mode, self.layer_idx = self.chosen("mode", mode, self.modes), layer_idx
        self.of_heads(hidden_size=hidden_size, expand_v=expand_v, head_dim=head_dim, num_heads=num_heads, num_v_heads=num_v_heads)
        self.use_gate, self.fused, self.allow_neg_eigval = use_gate, True, allow_neg_eigval
        keys, values = num_heads * head_dim, self.num_v_heads * self.head_v_dim
        self.linear(made, q=keys, k=keys, v=values, a=self.num_v_heads, b=self.num_v_heads)
        self.A_log = torch.nn.Parameter(torch.empty(self.num_v_heads, **made))
        self.dt_bias = torch.nn.Parameter(torch.empty(self.num_v_heads, **made))
        self.A_log._no_weight_decay = self.dt_bias._no_weight_decay = True
        self.convolutions(made, use_short_conv, conv_size, conv_bias)
        if use_gate:
            self.linear(made, g=values)
        self.o_norm = Norm(self.head_v_dim, norm_eps, **made)
        self.o_proj = torch.nn.Linear(values, hidden_size, bias=False, **made)
        self.reset_decays()
        self.recurrence_with(GATED_DELTA, dtype, "rates", "same", N=head_dim, V=self.head_v_dim,
                             strength=2 if allow_neg_eigval else 1)

    def reset_decays(self):
        """Rates from 0 to 16, and softplus of dt_bias from 0.001 to 0.1 evenly on a scale of logarithms."""
        self.reset_rates(0.0, 16.0)

    def norm(self, *given):
        return self.o_norm(*given)

    def mixed(self, x, q, k, v, state, way):
        q, k, v = self.by_heads(q, k, v)
        y, after = self.call(state, way, q, k, v, self.a_proj(x), self.b_proj(x), self.A_log, self.dt_bias,
                             key=self.narrow if q.dtype.itemsize == 2 else self.key)
        return self.gated(x, y), after


class KimiDeltaAttention(Layer):
    """fla.layers.KimiDeltaAttention. lower_bound is of the logarithm of a decay."""

    def __init__(self, hidden_size=2048, expand_v=1, head_dim=128, num_heads=16, num_v_heads=None, mode="chunk",
                 use_short_conv=True, allow_neg_eigval=False, safe_gate=False, lower_bound=None, conv_size=4, conv_bias=False,
                 layer_idx=None, norm_eps=1e-5, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.mode, self.layer_idx = self.chosen("mode", mode, self.modes), layer_idx
        self.of_heads(hidden_size=hidden_size, expand_v=expand_v, head_dim=head_dim, num_heads=num_heads, num_v_heads=num_v_heads)
        self.allow_neg_eigval, self.safe_gate, self.lower_bound = allow_neg_eigval, safe_gate, lower_bound
        if lower_bound is not None:
            self.number("lower_bound", lower_bound)
        if safe_gate and (lower_bound is None or not -5 <= lower_bound < 0):
            self.refuse(f"lower_bound is {lower_bound!r}; with safe_gate it wants a number from -5 to below 0")
        keys, values, size = num_heads * head_dim, self.num_v_heads * self.head_v_dim, self.head_v_dim
        self.linear(made, q=keys, k=keys, v=values)
        self.convolutions(made, use_short_conv, conv_size, conv_bias)
        self.f_proj = torch.nn.Sequential(torch.nn.Linear(hidden_size, size, bias=False, **made),
                                          torch.nn.Linear(size, self.num_v_heads * head_dim, bias=False, **made))
        self.linear(made, b=self.num_v_heads)
        self.A_log = torch.nn.Parameter(torch.empty(self.num_v_heads, **made))
        self.dt_bias = torch.nn.Parameter(torch.empty(self.num_v_heads * head_dim, **made))
        self.A_log._no_weight_decay = self.dt_bias._no_weight_decay = True
        self.g_proj = torch.nn.Sequential(torch.nn.Linear(hidden_size, size, bias=False, **made),
                                          torch.nn.Linear(size, values, bias=True, **made))
        self.o_norm = Norm(size, norm_eps, activation=torch.sigmoid, **made)
        self.o_proj = torch.nn.Linear(values, hidden_size, bias=False, **made)
        self.use_gate, self.fused = True, True
        self.reset_decays()
        bound = {} if lower_bound is None else {"gate": "bounded", "least": lower_bound}
        self.recurrence_with(KDA, dtype, "rates", "same", N=head_dim, V=size, strength=2 if allow_neg_eigval else 1, **bound)

    def reset_decays(self):
        """As of GatedDeltaNet, with rates from 1 to 16, and with a safe gate all 1."""
        self.reset_rates(1.0, 1.0 if self.safe_gate else 16.0)

    def norm(self, *given):
        return self.o_norm(*given)

    def mixed(self, x, q, k, v, state, way):
        q, k, v = self.by_heads(q, k, v)
        g = self.f_proj(x).unflatten(-1, (self.num_v_heads, -1))
        y, after = self.call(state, way, q, k, v, g, self.b_proj(x), self.A_log,
                             self.dt_bias.view(self.num_v_heads, -1),
                             key=self.narrow if q.dtype.itemsize == 2 else self.key)
        return self.gated(x, y), after


class Attention(Layer):
    """What GatedLinearAttention and MultiScaleRetention share: heads that share keys and values, and gates by name."""

    activations = None                 # those that gate_fn and feature_map name

    def begin(self, made, mode, hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map, use_short_conv,
              conv_size, conv_bias, use_output_gate, layer_idx):
        self.mode, self.layer_idx = self.chosen("mode", mode, self.modes), layer_idx
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.whole(hidden_size=hidden_size, num_heads=num_heads, num_kv_heads=self.num_kv_heads)
        if num_heads % self.num_kv_heads:
            self.refuse(f"num_heads={num_heads} is no multiple of num_kv_heads={self.num_kv_heads}")
        self.hidden_size, self.num_heads, self.groups = hidden_size, num_heads, num_heads // self.num_kv_heads
        self.feature_map = feature_map if feature_map is None else self.chosen("feature_map", feature_map, self.activations)
        keys, values = int(hidden_size * expand_k), int(hidden_size * expand_v)
        self.head_k_dim, self.head_v_dim = self.heads_of("expand_k", keys, num_heads), self.heads_of("expand_v", values, num_heads)
        self.use_gate = use_output_gate
        self.linear(made, q=keys, k=keys // self.groups, v=values // self.groups, **({"g": values} if use_output_gate else {}))
        self.convolutions(made, use_short_conv, conv_size, conv_bias)

    def end(self, made, gate_fn, elementwise_affine, norm_eps, fuse_norm, norm_first=False):
        """The last modules, in fla's order, which optimisers' states go by."""
        self.gate_name = self.chosen("gate_fn", gate_fn, self.activations)
        self.fused = bool(gate_fn == "swish" and fuse_norm and self.use_gate)
        last = {"o_proj": torch.nn.Linear(self.num_heads * self.head_v_dim, self.hidden_size, bias=False, **made),
                "g_norm_swish_gate" if self.fused else "g_norm": Norm(self.head_v_dim, norm_eps, bool(elementwise_affine), **made)}
        for name in sorted(last, reverse=not norm_first):
            self.add_module(name, last[name])

    def norm(self, *given):
        return (self.g_norm_swish_gate if self.fused else self.g_norm)(*given)

    def normalizer(self, value):
        self.number("gate_logit_normalizer", value)
        if value <= 0:
            self.refuse(f"gate_logit_normalizer is {value}; wanted a number above 0")

    def gate_fn(self, gate):
        return self.activations[self.gate_name](gate)

    def shaped(self, q, k, v):
        """By heads, behind the feature map."""
        q = q.unflatten(-1, (self.num_heads, -1))
        k, v = (t.unflatten(-1, (self.num_kv_heads, -1)) for t in (k, v))
        return (q, k, v) if self.feature_map is None else (*map(self.activations[self.feature_map], (q, k)), v)

    def spread(self, *tensors):
        """What several heads share, for each of them."""
        return tensors if self.groups == 1 else [t.repeat_interleave(self.groups, -2) for t in tensors]


class GatedLinearAttention(Attention):
    """fla.layers.GatedLinearAttention."""

    modes, activations = ("chunk", "fused_recurrent", "fused_chunk"), OF_FLA

    def __init__(self, mode="chunk", hidden_size=1024, expand_k=0.5, expand_v=1.0, num_heads=4, num_kv_heads=None,
                 feature_map=None, use_short_conv=False, conv_size=4, conv_bias=False, use_output_gate=True, gate_fn="swish",
                 elementwise_affine=True, norm_eps=1e-5, gate_logit_normalizer=16, gate_low_rank_dim=16, clamp_min=None,
                 fuse_norm=True, layer_idx=None, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.begin(made, mode, hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map, use_short_conv,
                   conv_size, conv_bias, use_output_gate, layer_idx)
        self.whole(gate_low_rank_dim=gate_low_rank_dim)
        self.normalizer(gate_logit_normalizer)
        self.number("clamp_min", clamp_min or 0.0)
        self.gk_proj = torch.nn.Sequential(
            torch.nn.Linear(hidden_size, gate_low_rank_dim, bias=False, **made),
            torch.nn.Linear(gate_low_rank_dim, self.num_kv_heads * self.head_k_dim, bias=True, **made))
        self.end(made, gate_fn, elementwise_affine, norm_eps, fuse_norm)
        self.gate_logit_normalizer, self.clamp_min = gate_logit_normalizer, clamp_min
        sizes = {"N": self.head_k_dim, "V": self.head_v_dim}
        if gate_logit_normalizer == 16 and clamp_min is None:
            self.recurrence("gla", made, **sizes)
        else:
            floor = {} if clamp_min is None else {"floor": "given", "least": clamp_min}
            self.recurrence(GLA, made, **sizes, normalizer=gate_logit_normalizer, **floor)

    def mixed(self, x, q, k, v, state, way):
        q, k, v = self.shaped(q, k, v)
        g = self.gk_proj(x).unflatten(-1, (self.num_kv_heads, -1))
        y, after = self.call(state, way, q, *self.spread(k, v, g))
        return self.gated(x, y), after


class SimpleGatedLinearAttention(Attention):
    """fla.layers.SimpleGatedLinearAttention."""

    activations = OF_FLA

    def __init__(self, mode="chunk", hidden_size=1024, expand_k=1.0, expand_v=1.0, num_heads=4, num_kv_heads=None,
                 feature_map=None, use_short_conv=True, conv_size=4, conv_bias=False, gate_fn="swish", elementwise_affine=True,
                 norm_eps=1e-5, gate_logit_normalizer=16, fuse_norm=True, layer_idx=None, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.normalizer(gate_logit_normalizer)
        self.begin(made, mode, hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map, use_short_conv,
                   conv_size, conv_bias, True, layer_idx)
        self.gk_proj = torch.nn.Linear(hidden_size, num_heads, **made)
        self.end(made, gate_fn, elementwise_affine, norm_eps, fuse_norm, norm_first=True)
        self.gate_logit_normalizer = gate_logit_normalizer
        self.recurrence(SIMPLE_GLA, made, N=self.head_k_dim, V=self.head_v_dim, normalizer=gate_logit_normalizer)

    def mixed(self, x, q, k, v, state, way):
        q, k, v = self.shaped(q, k, v)
        y, after = self.call(state, way, q, *self.spread(k, v), self.gk_proj(x))
        return self.gated(x, y), after


class MultiScaleRetention(Attention):
    """fla.layers.MultiScaleRetention. Its rotary embedding goes on from the steps that the state has seen."""

    modes, activations = ("chunk", "fused_chunk", "parallel", "fused_recurrent"), OF_TRANSFORMERS

    def __init__(self, mode="chunk", hidden_size=1024, expand_k=1.0, expand_v=2.0, num_heads=8, num_kv_heads=None,
                 feature_map=None, use_short_conv=False, conv_size=4, conv_bias=False, use_output_gate=True, gate_fn="swish",
                 elementwise_affine=True, norm_eps=1e-5, fuse_norm=True, layer_idx=None, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.begin(made, mode, hidden_size, expand_k, expand_v, num_heads, num_kv_heads, feature_map, use_short_conv,
                   conv_size, conv_bias, use_output_gate, layer_idx)
        self.end(made, gate_fn, elementwise_affine, norm_eps, fuse_norm)
        if self.head_k_dim % 2:
            self.refuse(f"a head has keys of {self.head_k_dim} numbers; the rotary embedding wants an even one")
        self.recurrence("retnet", made, N=self.head_k_dim, V=self.head_v_dim)

    def mixed(self, x, q, k, v, state, way):
        q, k, v = self.shaped(q, k, v)
        places = way.places(q, state.seen)
        q, k = (rotated(t, places) for t in (q, k))
        y, after = self.call(state, way, q, *self.spread(k, v))
        return self.gated(x, y), after


class Bounded(Layer):
    """What the HGRN layers share: a call is given the lower bound of the forget gate, which the first layer of a model does
    not look at."""

    def bounded(self, spec, dtype, width, **settings):
        self.width, self.settings, self.spec, self.dtype = width, settings, spec, dtype
        self.recurrence(spec, {"dtype": dtype}, **settings)

    def bound_of(self, x, low):
        """(which function, its params)"""
        if low is None:
            return self.key, ()
        if not isinstance(low, torch.Tensor) or not low.is_floating_point():
            kind = low.dtype if isinstance(low, torch.Tensor) else type(low).__name__
            raise TypeMismatch(f"{type(self).__name__}: lower_bound is {kind}; wanted a tensor of real numbers")
        if low.shape != (self.width,):
            self.refuse(f"lower_bound has shape {list(low.shape)}; wanted [{self.width}]")
        if self.layer_idx is None:
            self.refuse("a lower bound is given, and layer_idx is not: the first layer, 0, has none")
        if self.layer_idx <= 0:
            return self.key, ()
        return key_of(self.spec, self.dtype, **self.settings, bound="f32" if x.dtype.itemsize == 2 else "same"), (low,)

    def forward(self, x, state=None, lower_bound=None, *, cu_seqlens=None, attention_mask=None):
        """As of other layers. lower_bound: [width of f_proj], from 0 to below 1."""
        return self.run(x, state, False, cu_seqlens, attention_mask, low=lower_bound)

    def step(self, x, state=None, lower_bound=None):
        """[B, hidden_size] to (the same, state)."""
        return self.run(x, state, True, low=lower_bound)


class HGRNAttention(Bounded):
    """fla.layers.HGRNAttention."""

    projections, convolved = "if", "fi"

    def __init__(self, mode="chunk", hidden_size=1024, expand_ratio=1, use_short_conv=False, conv_size=4, conv_bias=False,
                 elementwise_affine=True, norm_eps=1e-5, layer_idx=None, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.mode, self.layer_idx = self.chosen("mode", mode, self.modes), layer_idx
        self.hidden_size, self.expand_ratio, width = hidden_size, expand_ratio, int(hidden_size * expand_ratio)
        self.whole(hidden_size=hidden_size, expand_ratio=width)
        self.linear(made, i=width, f=width, g=width)
        self.convolutions(made, use_short_conv, conv_size, conv_bias, None)
        self.g_norm = Norm(width, norm_eps, bool(elementwise_affine), **made)
        self.o_proj = torch.nn.Linear(width, hidden_size, bias=False, **made)
        self.bounded(HGRN, dtype, width)

    def mixed(self, x, i, f, state, way, low):
        key, params = self.bound_of(i, low)
        y, after = self.call(state, way, i, f, *params, key=key)
        return self.g_norm(y, self.g_proj(x)), after


class HGRN2Attention(Bounded):
    """fla.layers.HGRN2Attention. Its norm has an eps of 1e-5 whatever norm_eps is, as there."""

    modes, projections, convolved = ("chunk", "fused_recurrent", "fused_chunk"), "qfi", "qfi"

    def __init__(self, mode="chunk", hidden_size=1024, num_heads=None, expand_ratio=128, use_short_conv=False, conv_size=4,
                 conv_bias=False, elementwise_affine=True, norm_eps=1e-5, layer_idx=None, *, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.mode, self.layer_idx = self.chosen("mode", mode, self.modes), layer_idx
        if expand_ratio is None and num_heads is None:
            self.refuse("neither expand_ratio nor num_heads is given")
        self.whole(hidden_size=hidden_size, **({"num_heads": num_heads} if expand_ratio is None else {"expand_ratio": expand_ratio}))
        self.hidden_size = hidden_size
        self.num_heads = num_heads if expand_ratio is None else hidden_size // expand_ratio
        self.expand_ratio = hidden_size // num_heads if expand_ratio is None else expand_ratio
        if self.num_heads < 1 or self.expand_ratio < 1 or hidden_size % self.num_heads:
            self.refuse(f"hidden_size={hidden_size} is no multiple of {self.num_heads} heads")
        width = self.num_heads * self.expand_ratio
        self.linear(made, q=width, f=width, i=hidden_size)
        self.convolutions(made, use_short_conv, conv_size, conv_bias, None)
        self.g_norm = Norm(hidden_size, 1e-5, bool(elementwise_affine), **made)
        self.o_proj = torch.nn.Linear(hidden_size, hidden_size, bias=False, **made)
        self.bounded(HGRN2, dtype, width, N=self.expand_ratio, V=hidden_size // self.num_heads)

    def mixed(self, x, q, f, i, state, way, low):
        key, params = self.bound_of(q, low)
        q, f, i = (t.unflatten(-1, (self.num_heads, -1)) for t in (q, f, i))
        y, after = self.call(state, way, q, f, i, *(t.view(self.num_heads, -1) for t in params), key=key)
        return self.g_norm(y.flatten(-2)), after


def __getattr__(name):
    raise AttributeError(f"cellc.fla has no {name}; of fla's layers it has {', '.join(LAYERS[:-1])} and {LAYERS[-1]}")
