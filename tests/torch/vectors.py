# Writes vector files (tests/vectors/README.md) with what PyTorch's own operators give, values and gradients in double on
# the CPU. In: a directory for them. Out: a line per file on standard output, `FILE SPEC SETTINGS...`: what
# `cellc check SPEC --vectors FILE` takes.
import sys

import torch
import torch.nn.functional as F

B, T = 2, 7


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def pairs(*shape):
    return torch.complex(normal(*shape), normal(*shape))


def write(name, sizes, tensors):
    with open(f"{sys.argv[1]}/{name}.vec", "w") as out:
        print("# sizes:", " ".join(f"{k}={v}" for k, v in sizes.items()), file=out)
        for kind, tensor, value in tensors:
            value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
            print("tensor", kind, tensor, *value.shape, file=out)
            print(*(repr(x) for x in value.flatten().tolist()), file=out)


def case(spec, settings, sizes, given, compute, constant=()):
    """given: {(kind, name): tensor}; compute(**given by name) gives {(kind, name): tensor}, kinds output and final.
    Whatever is real or complex and not in `constant` gets a gradient, of random cotangents."""
    case.number += 1
    name = f"{case.number}_{spec}"
    inputs = {k: v.detach().clone().requires_grad_(v.dtype != torch.int64 and k[1] not in constant)
              for k, v in given.items()}
    results = compute(**{k[1]: v for k, v in inputs.items()})
    tensors = [(*k, v.detach()) for k, v in {**inputs, **results}.items()]
    loss = 0
    for (kind, tensor), value in results.items():
        g = pairs(*value.shape) if value.is_complex() else normal(*value.shape)
        tensors.append((f"d{'out' if kind == 'output' else kind}", tensor, g))
        loss = loss + (g.conj() * value).real.sum()
    loss.backward()
    tensors += [(f"d{k[0]}", k[1], v.grad) for k, v in inputs.items() if v.requires_grad]
    write(name, dict(B=B, T=T, **sizes), tensors)
    print(name, spec, *settings)


case.number = 0


def output(y):
    return {("output", "y"): y}


def gathers():
    V, D = 5, 3
    case("embedding", [], dict(V=V, D=D), {("input", "id"): torch.randint(V, (B, T)), ("param", "weight"): normal(V, D)},
         lambda id, weight: output(F.embedding(id, weight)))
    for smoothing, ignored in ((0.0, None), (0.1, None), (0.1, -100)):
        target = torch.randint(V, (B, T))
        if ignored is not None:
            target[0, ::2] = ignored
        settings = ["--set", "smoothing=uniform"] if smoothing else []
        settings += ["--set", "ignore=index"] if ignored is not None else []
        case("cross_entropy", settings, dict(V=V), {("input", "logits"): normal(B, T, V), ("input", "target"): target},
             lambda logits, target: {("output", "loss"): F.cross_entropy(
                 logits.reshape(B * T, V), target.reshape(B * T), reduction="none", label_smoothing=smoothing,
                 ignore_index=-100).reshape(B, T)})


def norms():
    D = 6
    x, weight, bias = ("input", "x"), ("param", "weight"), ("param", "bias")
    affine = {x: normal(B, T, D), weight: normal(D), bias: normal(D)}
    case("layernorm", [], dict(D=D), affine, lambda x, weight, bias: output(F.layer_norm(x, (D,), weight, bias)))
    case("rmsnorm", [], dict(D=D), {x: normal(B, T, D), weight: normal(D)},
         lambda x, weight: output(F.rms_norm(x, (D,), weight, eps=1e-6)))
    case("batchnorm", [], dict(D=D),
         {**affine, ("param", "running_mean"): normal(D), ("param", "running_var"): torch.exp(normal(D))},
         lambda x, weight, bias, running_mean, running_var: output(
             F.batch_norm(x.reshape(B * T, D), running_mean, running_var, weight, bias).reshape(B, T, D)),
         constant=("running_mean", "running_var"))
    case("softmax_row", [], dict(D=D), {x: normal(B, T, D)}, lambda x: output(F.softmax(x, -1)))


def products():
    D, U = 4, 5
    acts = dict(gelu=F.gelu, gelu_tanh=lambda u: F.gelu(u, approximate="tanh"), silu=F.silu, relu=F.relu, none=lambda u: u)
    for name, act in acts.items():
        case("linear_act", ["--set", f"act={name}"], dict(D=D, F=U),
             {("input", "x"): normal(B, T, D), ("param", "W"): normal(U, D), ("param", "b"): normal(U)},
             lambda x, W, b: output(act(F.linear(x, W, b))))
    case("complex_linear", [], dict(D=D, F=U),
         {("input", "x"): pairs(B, T, D), ("param", "W"): pairs(U, D), ("param", "b"): pairs(U)},
         lambda x, W, b: output(F.linear(x, W, b)))
    for K in (4, 1, 9):
        case("conv4_silu", [], dict(D=D, K=K),
             {("input", "x"): normal(B, T, D), ("param", "weight"): normal(D, K), ("param", "bias"): normal(D)},
             lambda x, weight, bias: output(F.silu(F.conv1d(F.pad(x.transpose(1, 2), (K - 1, 0)), weight[:, None], bias,
                                                            groups=D)).transpose(1, 2)))


def elements():
    D = 4
    ops = dict(neg=torch.neg, abs=torch.abs, exp=torch.exp, sin=torch.sin, cos=torch.cos, tanh=torch.tanh,
               sigmoid=torch.sigmoid, relu=F.relu, gelu=lambda x: F.gelu(x, approximate="tanh"), recip=torch.reciprocal)
    for name, op in {**ops, "log": torch.log, "sqrt": torch.sqrt}.items():
        x = normal(B, T, D)
        case("pointwise", ["--set", f"op={name}"], dict(D=D), {("input", "x"): x if name in ops else torch.exp(x)},
             lambda x: output(op(x)))
    for name, op in dict(add=torch.add, sub=torch.sub, mul=torch.mul, div=torch.div, larger=torch.maximum,
                         smaller=torch.minimum).items():
        case("elementwise", ["--set", f"op={name}"], dict(D=D),
             {("input", "x"): normal(B, T, D), ("input", "z"): normal(B, T, D)}, lambda x, z: output(op(x, z)))
    case("swiglu", [], dict(D=D), {("input", "g"): normal(B, T, D), ("input", "u"): normal(B, T, D)},
         lambda g, u: output(F.silu(g) * u))
    ops = dict(muladd=lambda a, b, c: a * b + c, add=torch.add, sub=torch.sub, mul=torch.mul, div=torch.div, neg=torch.neg,
               exp=torch.exp, abs=torch.abs)
    for name, op in ops.items():
        n = {"muladd": 3, "neg": 1, "exp": 1, "abs": 1}.get(name, 2)
        case("complex_muladd", ["--set", f"op={name}"], dict(D=D), {("input", k): pairs(B, T, D) for k in "abc"[:n]},
             lambda **z: output(op(*z.values())))


def layer(cell, states):
    """torch.nn.LSTM or GRU with the given weights, as a function of them."""
    def compute(x, **given):
        weights = {f"{k}_l0": v for k, v in given.items() if k not in states}
        first = tuple(given[s][None] for s in states)
        y, last = torch.func.functional_call(cell, weights, (x, first if len(first) > 1 else first[0]))
        last = last if len(first) > 1 else (last,)
        return {("output", "y"): y, **{("final", s): v[0] for s, v in zip(states, last)}}
    return compute


def heads():
    """torch.nn.LSTM for each head, of what W makes of x, or of what the caller gives."""
    D, H, N = 3, 2, 5
    cell = torch.nn.LSTM(4 * N, N, batch_first=True, dtype=torch.float64)

    def compute(R, b, h, c, wx=None, x=None, W=None):
        wx = F.linear(x, W).reshape(B, T, H, 4 * N) if wx is None else wx
        found = []
        for a in range(H):
            weights = dict(weight_ih_l0=torch.eye(4 * N, dtype=torch.float64), weight_hh_l0=R[a],
                           bias_ih_l0=b.reshape(H, 4 * N)[a], bias_hh_l0=torch.zeros(4 * N, dtype=torch.float64))
            y, last = torch.func.functional_call(cell, weights, (wx[:, :, a], (h[None, :, a], c[None, :, a])))
            found.append((y, last[0][0], last[1][0]))
        y, h, c = zip(*found)
        return {("output", "y"): torch.stack(y, 2), ("final", "h"): torch.stack(h, 1), ("final", "c"): torch.stack(c, 1)}

    given = {("param", "R"): normal(H, 4 * N, N), ("param", "b"): normal(H * 4 * N), ("state", "h"): normal(B, H, N),
             ("state", "c"): normal(B, H, N)}
    case("lstm_heads", [], dict(D=D, H=H, N=N),
         {("input", "x"): normal(B, T, D), ("param", "W"): normal(H * 4 * N, D), **given}, compute)
    case("lstm_heads", ["--set", "input=given"], dict(H=H, N=N), {("input", "wx"): normal(B, T, H, 4 * N), **given}, compute)


def recurrences():
    D, H, P = 3, 5, 2

    def given(gates, width, **states):
        return {("input", "x"): normal(B, T, D), ("param", "weight_ih"): normal(gates * H, D),
                ("param", "weight_hh"): normal(gates * H, width), ("param", "bias_ih"): normal(gates * H),
                ("param", "bias_hh"): normal(gates * H), **{("state", s): normal(B, n) for s, n in states.items()}}

    case("lstm", [], dict(D=D, H=H), given(4, H, h=H, c=H),
         layer(torch.nn.LSTM(D, H, batch_first=True, dtype=torch.float64), ("h", "c")))
    case("lstm_projection", [], dict(D=D, H=H, P=P), {**given(4, P, h=P, c=H), ("param", "weight_hr"): normal(P, H)},
         layer(torch.nn.LSTM(D, H, proj_size=P, batch_first=True, dtype=torch.float64), ("h", "c")))
    case("gru", [], dict(D=D, H=H), given(3, H, h=H),
         layer(torch.nn.GRU(D, H, batch_first=True, dtype=torch.float64), ("h",)))


def attention():
    H, N, V = 2, 3, 4
    for G, W in ((1, None), (3, None), (1, 3), (2, 1), (1, T + 2)):
        def attend(q, k, v):
            back = torch.arange(T)[:, None] - torch.arange(T)[None]
            seen = (back >= 0) & (back < (W or T))
            k, v = (u.repeat_interleave(G, 2).transpose(1, 2) for u in (k, v))
            return output(F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=seen).transpose(1, 2))
        spec = "window_attention" if W else "causal_attention"
        case(spec, [], dict(H=H, G=G, N=N, V=V, **(dict(W=W) if W else {})),
             {("input", "q"): normal(B, T, H * G, N), ("input", "k"): normal(B, T, H, N), ("input", "v"): normal(B, T, H, V)},
             attend)


torch.manual_seed(1)
gathers()
norms()
products()
elements()
recurrences()
attention()
heads()
