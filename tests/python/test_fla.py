"""Layers of flash-linear-attention (cellc.fla). In: state_dicts of the names and shapes that fla's layers have, filled with
random numbers. Out: results, states and all gradients against the formulas written here head by head and step by step, in
f64; what does not fit is refused and nothing is loaded."""

import copy
import io
import math
import pickle

import pytest
import torch

import cellc
from cellc import fla

B, T, D, HEADS, K, V = 2, 7, 16, 4, 4, 6
WIDE = {"hidden_size": D, "num_heads": HEADS, "expand_k": 1.0, "expand_v": 1.5}        # keys of 4 numbers, values of 6
DELTA = {"kind": "DeltaNet", **WIDE}
GATED = {"kind": "GatedDeltaNet", "hidden_size": D, "num_heads": HEADS, "head_dim": K, "expand_v": 1.5}
GLA = {"kind": "GatedLinearAttention", **WIDE}
RETENTION = {"kind": "MultiScaleRetention", **WIDE}
SIMPLE = {"kind": "SimpleGatedLinearAttention", **WIDE}
KDA = {"kind": "KimiDeltaAttention", "hidden_size": D, "num_heads": HEADS, "head_dim": K, "expand_v": 1.5}
HGRN = {"kind": "HGRNAttention", "hidden_size": D}
HGRN2 = {"kind": "HGRN2Attention", "hidden_size": D, "expand_ratio": 4}
OF_HEADS = "GatedDeltaNet", "KimiDeltaAttention"       # whose values have heads of their own
OF_HGRN = "HGRNAttention", "HGRN2Attention"

CASES = {
    "delta": DELTA,
    "delta gate": {**DELTA, "use_gate": True, "conv_bias": True, "allow_neg_eigval": True, "norm_eps": 1e-2},
    "delta plain": {**DELTA, "use_short_conv": False, "use_beta": False, "mode": "fused_recurrent"},
    "delta sum": {**DELTA, "qk_activation": "elu", "qk_norm": "sum", "conv_bias": True},
    "delta relu": {**DELTA, "qk_activation": "relu", "use_short_conv": False, "layer_idx": 3},
    "delta identity": {**DELTA, "qk_activation": "identity", "use_beta": False, "allow_neg_eigval": True},
    "delta small": {**DELTA, "scale": 1e-3},
    "gated": GATED,
    "gated shared": {**GATED, "num_heads": 2, "num_v_heads": 4, "conv_bias": True, "conv_size": 3},
    "gated negative": {**GATED, "use_gate": False, "use_short_conv": False, "allow_neg_eigval": True},
    "gated small": {**GATED, "scale": 1e-3},
    "gla": GLA,
    "gla shared": {**GLA, "num_kv_heads": 2, "use_short_conv": True, "conv_bias": True, "gate_logit_normalizer": 4,
                   "gate_low_rank_dim": 3, "fuse_norm": False},
    "gla floor": {**GLA, "clamp_min": -0.05, "use_output_gate": False, "feature_map": "sqrelu"},
    "gla gelu": {**GLA, "gate_fn": "gelu", "elementwise_affine": False, "feature_map": "relu"},
    "gla sigmoid": {**GLA, "gate_fn": "sigmoid", "feature_map": "logsigmoid", "mode": "fused_chunk"},
    "kda": KDA,
    "kda shared": {**KDA, "num_heads": 2, "num_v_heads": 4, "conv_bias": True, "conv_size": 3, "norm_eps": 1e-2},
    "kda bounded": {**KDA, "lower_bound": -2.5, "safe_gate": True, "use_short_conv": False, "allow_neg_eigval": True},
    "kda small": {**KDA, "lower_bound": -7, "scale": 1e-3},
    "simple": SIMPLE,
    "simple shared": {**SIMPLE, "num_kv_heads": 2, "conv_bias": True, "gate_logit_normalizer": 4, "fuse_norm": False},
    "simple plain": {**SIMPLE, "use_short_conv": False, "feature_map": "sqrelu", "gate_fn": "gelu", "elementwise_affine": False},
    "hgrn": HGRN,
    "hgrn bounded": {**HGRN, "layer_idx": 2, "bound": True, "expand_ratio": 1.5, "use_short_conv": True, "conv_bias": True},
    "hgrn first": {**HGRN, "layer_idx": 0, "bound": True, "elementwise_affine": False, "norm_eps": 1e-2},
    "hgrn2": HGRN2,
    "hgrn2 bounded": {**HGRN2, "layer_idx": 1, "bound": True, "use_short_conv": True, "conv_bias": True, "conv_size": 3},
    "hgrn2 heads": {**HGRN2, "expand_ratio": None, "num_heads": 2, "norm_eps": 1e-2, "mode": "fused_chunk"},
    "hgrn2 uneven": {**HGRN2, "expand_ratio": 6, "layer_idx": 1, "bound": True, "elementwise_affine": False},
    "retention": RETENTION,
    "retention shared": {**RETENTION, "num_kv_heads": 1, "use_short_conv": True, "elementwise_affine": False},
    "retention gelu": {**RETENTION, "gate_fn": "gelu", "feature_map": "silu", "mode": "parallel"},
    "retention tanh": {**RETENTION, "gate_fn": "gelu_pytorch_tanh", "feature_map": "elu", "use_output_gate": False},
}


def said(case, name, usual):
    return case.get(name, usual)


def shapes(case):
    """{name: shape} of the state_dict of fla's layer."""
    kind = case["kind"]
    if kind in OF_HGRN:
        return shapes_of_hgrn(case)
    heads = case["num_heads"]
    kv = said(case, "num_kv_heads", heads)
    v_heads = said(case, "num_v_heads", heads)
    found = {"q_proj.weight": (heads * K, D), "k_proj.weight": (kv * K, D), "o_proj.weight": (D, v_heads * V),
             "v_proj.weight": ((v_heads if kind in OF_HEADS else kv) * V, D)}
    if said(case, "use_short_conv", kind in ("DeltaNet", "SimpleGatedLinearAttention", *OF_HEADS)):
        found.update(shapes_of_convolutions(case, found, "qkv"))
    if kind == "DeltaNet":
        if said(case, "use_beta", True):
            found["b_proj.weight"] = heads, D
        if said(case, "use_gate", False):
            found["g_proj.weight"] = heads * V, D
        found["o_norm.weight"] = (V,)
        return found
    if kind == "GatedDeltaNet":
        found.update({"a_proj.weight": (v_heads, D), "b_proj.weight": (v_heads, D), "A_log": (v_heads,), "dt_bias": (v_heads,),
                      "o_norm.weight": (V,)})
        if said(case, "use_gate", True):
            found["g_proj.weight"] = v_heads * V, D
        return found
    if kind == "KimiDeltaAttention":
        found.update({"f_proj.0.weight": (V, D), "f_proj.1.weight": (v_heads * K, V), "b_proj.weight": (v_heads, D),
                      "A_log": (v_heads,), "dt_bias": (v_heads * K,), "g_proj.0.weight": (V, D),
                      "g_proj.1.weight": (v_heads * V, V), "g_proj.1.bias": (v_heads * V,), "o_norm.weight": (V,)})
        return found
    if kind == "SimpleGatedLinearAttention":
        found.update({"gk_proj.weight": (heads, D), "gk_proj.bias": (heads,)})
    if kind == "GatedLinearAttention":
        rank = said(case, "gate_low_rank_dim", 16)
        found.update({"gk_proj.0.weight": (rank, D), "gk_proj.1.weight": (kv * K, rank), "gk_proj.1.bias": (kv * K,)})
    gate = said(case, "use_output_gate", True)
    if gate:
        found["g_proj.weight"] = heads * V, D
    if said(case, "elementwise_affine", True):
        fused = gate and said(case, "gate_fn", "swish") == "swish" and said(case, "fuse_norm", True)
        found["g_norm_swish_gate.weight" if fused else "g_norm.weight"] = (V,)
    return found


def shapes_of_convolutions(case, projections, names):
    found = {}
    for name in names:
        width = projections[f"{name}_proj.weight"][0]
        found[f"{name}_conv1d.weight"] = width, 1, said(case, "conv_size", 4)
        if said(case, "conv_bias", False):
            found[f"{name}_conv1d.bias"] = (width,)
    return found


def sizes_of_hgrn(case):
    """(heads, size of a key, size of a value); of HGRN a head is a number."""
    if case["kind"] == "HGRNAttention":
        return int(D * said(case, "expand_ratio", 1)), 1, 1
    heads = case["num_heads"] if case["expand_ratio"] is None else D // case["expand_ratio"]
    return heads, case["expand_ratio"] or D // heads, D // heads


def shapes_of_hgrn(case):
    heads, keys, values = sizes_of_hgrn(case)
    widths = {"i": heads * values, "f": heads * keys, "g": heads} if keys == values == 1 and case["kind"] == "HGRNAttention" else {
        "i": heads * values, "f": heads * keys, "q": heads * keys}
    found = {f"{name}_proj.weight": (width, D) for name, width in widths.items()}
    if said(case, "use_short_conv", False):
        found.update(shapes_of_convolutions(case, found, "if" if "g" in widths else "qif"))
    if said(case, "elementwise_affine", True):
        found["g_norm.weight"] = (heads * values,)
    return {**found, "o_proj.weight": (D, heads * values)}


def bound_of(case):
    """The lower bound that calls are given, or None."""
    if not said(case, "bound", False):
        return None
    heads, keys, _ = sizes_of_hgrn(case)
    return torch.linspace(0.05, 0.99, heads * keys, dtype=torch.float64)


def filled(case, dtype=torch.float64):
    torch.manual_seed(5)
    return {name: (0.5 * torch.randn(shape, dtype=torch.float64) + (1 if "norm" in name else 0)).to(dtype)
            for name, shape in shapes(case).items()}


def layer_of(case, dtype=torch.float64):
    arguments = {name: value for name, value in case.items() if name not in ("kind", "scale", "bound")}
    return getattr(fla, case["kind"])(**arguments, dtype=dtype)


def silu(x):
    return x / (1 + torch.exp(-x))


def tanh_gelu(x, root):
    return x / 2 * (1 + torch.tanh(root * (x + 0.044715 * x**3)))


def activation(case, name):
    exact = case["kind"] == "MultiScaleRetention"
    return {"silu": silu, "swish": silu, "relu": lambda x: x * (x > 0), "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
            "logsigmoid": lambda x: -torch.log(1 + torch.exp(-x)), "sqrelu": lambda x: (x * (x > 0))**2, "identity": lambda x: x,
            "gelu": (lambda x: x / 2 * (1 + torch.erf(x / math.sqrt(2)))) if exact else lambda x: tanh_gelu(x, 0.79788456),
            "gelu_pytorch_tanh": lambda x: tanh_gelu(x, math.sqrt(2 / math.pi)),
            "elu": lambda x: torch.where(x > 0, x, torch.exp(torch.minimum(x, torch.zeros_like(x))) - 1)}[name]


def mixed_over_steps(p, name, x, wanted, bias):
    """The projection, with its convolution, if it has one: a list over steps. wanted: the function behind that."""
    rows = [x[:, t] @ p[f"{name}_proj.weight"].T for t in range(x.shape[1])]
    weight = p.get(f"{name}_conv1d.weight")
    if weight is None:
        return [wanted(row) for row in rows]
    size, found = weight.shape[2], []
    for t in range(len(rows)):
        total = sum(weight[:, 0, place] * rows[t - size + 1 + place] for place in range(size) if t - size + 1 + place >= 0)
        found.append(wanted(total + p[f"{name}_conv1d.bias"] if bias else total))
    return found


def unit(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def turned(x, t):
    """The rotary embedding of step t."""
    found = [None] * K
    for i in range(K // 2):
        angle = t * 10000 ** (-2 * i / K)
        found[i] = x[:, i] * math.cos(angle) - x[:, i + K // 2] * math.sin(angle)
        found[i + K // 2] = x[:, i] * math.sin(angle) + x[:, i + K // 2] * math.cos(angle)
    return torch.stack(found, 1)


def formula_of_hgrn(case, p, x, low):
    heads, keys, values = sizes_of_hgrn(case)
    one = case["kind"] == "HGRNAttention"
    names = "if" if one else "ifq"
    over = {name: mixed_over_steps(p, name, x, lambda row: row, said(case, "conv_bias", False)) for name in names}
    states = [x.new_zeros(B, keys, values) for _ in range(heads)]
    outputs = []
    for t in range(x.shape[1]):
        row = []
        for h in range(heads):
            f, i = over["f"][t][:, h * keys:(h + 1) * keys], over["i"][t][:, h * values:(h + 1) * values]
            keep = 1 / (1 + torch.exp(-f))
            if low is not None and case["layer_idx"] > 0:
                least = low[h * keys:(h + 1) * keys]
                keep = least + (1 - least) * keep
            states[h] = keep[:, :, None] * states[h] + (1 - keep)[:, :, None] * (silu(i) if one else i)[:, None, :]
            q = 1 if one else silu(over["q"][t][:, h * keys:(h + 1) * keys])[:, :, None] / math.sqrt(keys)
            row.append((q * states[h]).sum(1))
        o = torch.cat(row, 1)
        o = o / (o.square().mean(-1, True) + (said(case, "norm_eps", 1e-5) if one else 1e-5)).sqrt()
        o = o * p["g_norm.weight"] if "g_norm.weight" in p else o
        o = o * silu(x[:, t] @ p["g_proj.weight"].T) if one else o
        outputs.append(o @ p["o_proj.weight"].T)
    return torch.stack(outputs, 1), torch.stack(states, 1)


def formula(case, p, x, low=None):
    """(outputs [B, T, D], states of the heads [keys, values])"""
    kind, conv = case["kind"], any("conv1d" in name for name in p)
    if kind in OF_HGRN:
        return formula_of_hgrn(case, p, x, low)
    q_heads = case["num_heads"]
    heads, kv = said(case, "num_v_heads", q_heads), said(case, "num_kv_heads", q_heads)
    of_qk = said(case, "qk_activation", "silu") if kind == "DeltaNet" else "silu" if conv or kind in OF_HEADS else "identity"
    of_v = "silu" if conv or kind in ("DeltaNet", *OF_HEADS) else "identity"
    act = activation(case, of_qk)
    if of_qk == "elu":
        act = lambda x: activation(case, "elu")(x) + 1
    biased = said(case, "conv_bias", False)
    q, k, v = (mixed_over_steps(p, name, x, a, biased) for name, a in zip("qkv", (act, act, activation(case, of_v))))
    states = [x.new_zeros(B, K, V) for _ in range(heads)]
    outputs = []
    for t in range(x.shape[1]):
        row = []
        for h in range(heads):
            h_q = h * q_heads // heads
            h_k = h_q * kv // q_heads
            h_v = h if kind in OF_HEADS else h_k
            qt, kt = q[t][:, h_q * K:(h_q + 1) * K], k[t][:, h_k * K:(h_k + 1) * K]
            vt = v[t][:, h_v * V:(h_v + 1) * V]
            states[h], o = one_step(case, p, x, t, h, h_k, qt, kt, vt, states[h])
            row.append(finish(case, p, x[:, t], h, o))
        outputs.append(torch.cat(row, 1) @ p["o_proj.weight"].T)
    return torch.stack(outputs, 1), torch.stack(states, 1)


def one_step(case, p, x, t, h, h_k, q, k, v, state):
    kind = case["kind"]
    if kind == "DeltaNet":
        q, k = (unit(q), unit(k)) if said(case, "qk_norm", "l2") == "l2" else (q / q.sum(-1, True), k / k.sum(-1, True))
        b = torch.sigmoid(x[:, t] @ p["b_proj.weight"][h]) if "b_proj.weight" in p else x.new_ones(B)
        decay = x.new_ones(B, 1, 1)
    elif kind == "GatedDeltaNet":
        q, k, b = unit(q), unit(k), torch.sigmoid(x[:, t] @ p["b_proj.weight"][h])
        rate = torch.log(1 + torch.exp(x[:, t] @ p["a_proj.weight"][h] + p["dt_bias"][h]))
        decay = torch.exp(-torch.exp(p["A_log"][h]) * rate)[:, None, None]
    elif kind == "KimiDeltaAttention":
        q, k, b = unit(q), unit(k), torch.sigmoid(x[:, t] @ p["b_proj.weight"][h])
        of_head = slice(h * K, (h + 1) * K)
        logit = x[:, t] @ p["f_proj.0.weight"].T @ p["f_proj.1.weight"][of_head].T + p["dt_bias"][of_head]
        rate, least = torch.exp(p["A_log"][h]), said(case, "lower_bound", None)
        log = -rate * torch.log(1 + torch.exp(logit)) if least is None else least / (1 + torch.exp(-rate * logit))
        decay = torch.exp(log)[:, :, None]
    else:
        if said(case, "feature_map", None):
            q, k = (activation(case, case["feature_map"])(z) for z in (q, k))
        if kind == "MultiScaleRetention":
            q, k, decay = turned(q, t), turned(k, t), 1 - 2.0 ** (-5 - h)
        elif kind == "SimpleGatedLinearAttention":
            logit = x[:, t] @ p["gk_proj.weight"][h] + p["gk_proj.bias"][h]
            decay = torch.exp(-torch.log(1 + torch.exp(-logit)) / said(case, "gate_logit_normalizer", 16))[:, None, None]
        else:
            low = x[:, t] @ p["gk_proj.0.weight"].T
            logit = low @ p["gk_proj.1.weight"][h_k * K:(h_k + 1) * K].T + p["gk_proj.1.bias"][h_k * K:(h_k + 1) * K]
            g = -torch.log(1 + torch.exp(-logit)) / said(case, "gate_logit_normalizer", 16)
            decay = torch.exp(g if said(case, "clamp_min", None) is None else torch.clamp(g, min=case["clamp_min"]))[:, :, None]
        state = decay * state + k[:, :, None] * v[:, None, :]
        return state, (q[:, :, None] * state).sum(1) / math.sqrt(K)
    if said(case, "allow_neg_eigval", False):
        b = 2 * b
    state = decay * state
    wrong = v - (k[:, :, None] * state).sum(1)
    state = state + b[:, None, None] * k[:, :, None] * wrong[:, None, :]
    return state, (q[:, :, None] * state).sum(1) / math.sqrt(K)


def finish(case, p, x, h, o):
    """Norm and gate of a head."""
    o = o / (o.square().mean(-1, True) + said(case, "norm_eps", 1e-5)).sqrt()
    for name in ("o_norm.weight", "g_norm.weight", "g_norm_swish_gate.weight"):
        o = o * p[name] if name in p else o
    if case["kind"] == "KimiDeltaAttention":
        of_head = slice(h * V, (h + 1) * V)
        return o * torch.sigmoid(x @ p["g_proj.0.weight"].T @ p["g_proj.1.weight"][of_head].T + p["g_proj.1.bias"][of_head])
    if "g_proj.weight" not in p:
        return o
    return o * activation(case, said(case, "gate_fn", "swish"))(x @ p["g_proj.weight"][h * V:(h + 1) * V].T)


def turned_state(case, recurrent):
    if case["kind"] == "HGRNAttention":
        return recurrent.h[..., None, None]
    return recurrent.S.transpose(-1, -2) if case["kind"] in ("DeltaNet", "GatedDeltaNet") else recurrent.S


def compared(case, run):
    """Outputs, final states and gradients of x and all params. Sums of a few hundred terms, in f64."""
    p = filled(case)
    layer = layer_of(case)
    assert {name: tuple(t.shape) for name, t in layer.state_dict().items()} == shapes(case)
    layer.load_state_dict(p)
    torch.manual_seed(6)
    x = torch.randn(B, T, D, dtype=torch.float64) * said(case, "scale", 1)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    bounds = [bound_of(case), bound_of(case)]
    given = {} if bounds[0] is None else {"lower_bound": bounds[0].requires_grad_()}
    y, state = run(layer, ours, **given)
    found = y, turned_state(case, state.recurrent)
    leaves = {name: t.requires_grad_() for name, t in p.items()}
    wanted = formula(case, leaves, theirs, bounds[1].requires_grad_() if given else None)
    weights = [torch.randn(t.shape, dtype=torch.float64) for t in wanted]
    assert state.seen == T
    for one, other in zip(found, wanted):
        close(one, other)
    for parts in (found, wanted):
        sum((a * b).sum() for a, b in zip(parts, weights)).backward()
    close(ours.grad, theirs.grad)
    if given and case["layer_idx"]:
        close(bounds[0].grad, bounds[1].grad)
    for name, param in layer.named_parameters():
        close(param.grad, leaves[name].grad)


def close(one, other):
    assert one.shape == other.shape and (one - other).abs().max() <= 1e-11 * (1 + other.abs().max())


def whole(layer, x, **given):
    return layer(x, **given)


def in_pieces(layer, x, **given):
    first, state = layer(x[:, :4], **given)
    between, state = layer.step(x[:, 4], state, **given)
    last, state = layer(x[:, 5:], state, **given)
    return torch.cat([first, between.unsqueeze(1), last], 1), state


@pytest.mark.parametrize("run", [whole, in_pieces])
@pytest.mark.parametrize("name", CASES)
def test_as_the_formula(name, run):
    compared(CASES[name], run)


@pytest.mark.parametrize("name", ["delta", "gated shared", "gla shared", "retention", "kda", "simple", "hgrn", "hgrn2"])
def test_single_steps(name):
    """Without gradients, where the library's step runs."""
    case = CASES[name]
    layer, p = layer_of(case), filled(case)
    layer.load_state_dict(p)
    x, state, found = torch.randn(B, T, D, dtype=torch.float64), None, []
    with torch.no_grad():
        for t in range(T):
            y, state = layer.step(x[:, t], state)
            found.append(y)
        wanted, final = formula(case, p, x)
    close(torch.stack(found, 1), wanted)
    close(turned_state(case, state.recurrent), final)


def test_truncated():
    """state.detach() keeps the numbers and cuts the graph."""
    layer = layer_of(GATED)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    _, state = layer(x)
    kept = state.detach()
    assert isinstance(kept, fla.State) and kept.seen == T and torch.equal(kept.recurrent.S, state.recurrent.S)
    assert state.recurrent.S.requires_grad and not kept.recurrent.S.requires_grad
    layer(x.detach(), kept)[0].sum().backward()
    assert x.grad is None


STARTS = 0, 3, 3, 8, 9              # four sequences, of 3, 0, 5 and 1 steps


def near(found, wanted):
    atol = 1e-12 * wanted.detach().abs().max().item()
    assert found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-11, atol=atol)


def tensors_of(state):
    return [t for part in (state.conv or ()) for t in part] + list(state.recurrent)


def one_by_one(layer, sequences, states, low):
    """What a layer gives sequences [T, D], each called by itself."""
    found = [layer(x.unsqueeze(0), state, **low) if len(x) else (x.unsqueeze(0), state)
             for x, state in zip(sequences, states)]
    return torch.cat([y.squeeze(0) for y, _ in found]), [state for _, state in found]


@pytest.mark.parametrize("name", CASES)
def test_sequences_of_several_lengths(name):
    """Packed and masked, in two calls and a step behind them: outputs, states and gradients are those of each
    sequence by itself, to the order of sums in f64; test_as_the_formula compares these."""
    case = CASES[name]
    layer = layer_of(case)
    layer.load_state_dict(filled(case))
    low = {"lower_bound": bound_of(case)} if said(case, "bound", False) else {}
    torch.manual_seed(6)
    starts, sizes = torch.tensor(STARTS), torch.tensor(STARTS).diff()
    first, second = (torch.randn(STARTS[-1], D, dtype=torch.float64, requires_grad=True) for _ in range(2))
    into, leaves = torch.randn(2, STARTS[-1], D, dtype=torch.float64), [first, second, *layer.parameters()]

    def gradients(y1, y2):
        return torch.autograd.grad((y1 * into[0]).sum() + (y2 * into[1]).sum(), leaves, allow_unused=True)

    y1, state1 = layer(first.unsqueeze(0), cu_seqlens=starts, **low)
    y2, state2 = layer(second.unsqueeze(0), state1, cu_seqlens=starts.int(), **low)
    assert y1.shape == (1, STARTS[-1], D) and torch.equal(state2.seen, 2 * sizes)

    none = [None] * 4
    want1, each = one_by_one(layer, first.split(sizes.tolist()), none, low)
    want2, each = one_by_one(layer, second.split(sizes.tolist()), each, low)
    near(y1[0], want1)
    near(y2[0], want2)
    for a, b in zip(gradients(y1[0], y2[0]), gradients(want1, want2)):
        assert (a is None) == (b is None)
        if a is not None:
            near(a, b)
    for b in (0, 2, 3):
        for t, one in zip(tensors_of(state2), tensors_of(each[b])):
            near(t[b:b + 1], one)
    assert all(not t[1].any() for t in tensors_of(state2))
    row = torch.randn(4, D, dtype=torch.float64)
    stepped = layer.step(row, state2, **low)[0]
    for b in range(4):
        near(stepped[b:b + 1], layer.step(row[b:b + 1], each[b], **low)[0])

    for left in (False, True):
        there = torch.arange(6).expand(4, 6) < sizes.unsqueeze(1)
        there = there.flip(1) if left else there
        x = torch.full((4, 6, D), float("nan"), dtype=torch.float64)
        x = x.masked_scatter(there.unsqueeze(2), first.detach())
        past = torch.cat([torch.ones(4, 2, dtype=torch.bool), there], 1)     # what was before counts no more
        y, state = layer(x, attention_mask=past.long(), **low)
        near(y[there], y1[0])
        assert not y[~there].any()
        assert all(torch.equal(a, b) for a, b in zip(tensors_of(state), tensors_of(state1)))
        longer = layer(x.nan_to_num(), state, attention_mask=there, **low)[0]
        near(longer[there], layer(first.unsqueeze(0), state1, cu_seqlens=starts, **low)[0][0])
    y, _ = layer(row.unsqueeze(1), state2, **low)        # all steps: retention goes on from different places
    near(y[:, 0], stepped)


def test_sequences_refused():
    layer, x, starts = layer_of(RETENTION), torch.randn(2, 3, D, dtype=torch.float64), torch.tensor([0, 3])
    for given, error, words in [
            ({"cu_seqlens": starts}, cellc.ShapeError,
             r"x is \[2, 3, 16\]; with cu_seqlens wanted \[1, total, 16\]"),
            ({"cu_seqlens": [0, 3]}, cellc.TypeMismatch, r"cu_seqlens is no tensor of integers, \[B \+ 1\]"),
            ({"cu_seqlens": starts.double()}, cellc.TypeMismatch, "cu_seqlens is no tensor of integers"),
            ({"cu_seqlens": starts, "attention_mask": torch.ones(2, 3)}, cellc.ShapeError,
             "are given; wanted one of them"),
            ({"attention_mask": torch.ones(2, 2)}, cellc.ShapeError,
             r"attention_mask is \[2, 2\]; wanted \[B, T\] with B = 2 and a T of 3 or more, of which"),
            ({"attention_mask": torch.ones(3, 3)}, cellc.ShapeError, r"attention_mask is \[3, 3\]"),
            ({"attention_mask": [[1, 1, 1]] * 2}, cellc.ShapeError, "attention_mask is list")]:
        with pytest.raises(error, match=words):
            layer(x, **given)
    with pytest.raises(cellc.ShapeError, match="cu_seqlens"):
        layer(x[:1], cu_seqlens=torch.tensor([0, 2]))
    with pytest.raises(cellc.ShapeError, match="S"):
        layer(x[:1], layer(x)[1], cu_seqlens=starts)
    with pytest.raises(TypeError, match="cu_seqlens"):
        layer.step(x[:, 0], cu_seqlens=starts)


@pytest.mark.parametrize("kind", ["gated", "retention", "kda", "simple", "hgrn2"])
def test_types(kind):
    """In bf16, with the parameters rounded to it: outputs and what is between are rounded to 8 bits a dozen times, and the
    norm lifts small heads. Where heads cancel, errors stay while results are small, so the bound is of the largest."""
    case = CASES[kind]
    layer, p = layer_of(case, torch.bfloat16), filled(case, torch.bfloat16)
    layer.load_state_dict(p)
    x = torch.randn(B, T, D).bfloat16()
    y, state = layer(x)
    wanted, _ = formula(case, {name: t.double() for name, t in p.items()}, x.double())
    assert y.dtype == torch.bfloat16 and state.recurrent.S.dtype == torch.float32
    assert (y.double() - wanted).abs().max() <= 12 * 2**-8 * wanted.abs().max()


def test_decays_beside_16_bits():
    """A_log and dt_bias keep their f32 beside tensors of 16 bits. Without a key, the state is its decay: 2^-22 is a few
    roundings of f32, where an A_log in bf16 would give 2^-8."""
    layer = layer_of(GATED, torch.bfloat16)
    A_log, dt_bias, before = torch.rand(HEADS) + 0.3, torch.rand(HEADS) - 1, torch.rand(1, HEADS, V, K) + 1
    none = torch.zeros(1, 1, HEADS, K).bfloat16()
    _, after = fla.function_of(layer.narrow)(none, none, torch.zeros(1, 1, HEADS, V).bfloat16(), none[..., 0], none[..., 0],
                                             A_log, dt_bias, state=[before])
    decay = torch.exp(-torch.exp(A_log.double()) * torch.log(1 + torch.exp(dt_bias.double())))
    assert ((after.S / before - decay[:, None, None]).abs() <= 2**-22 * 4).all()


def test_bounds_beside_16_bits():
    """A lower bound is f32 beside tensors of 16 bits: of 1 - 2^-12, which bf16 rounds to 1, a closed gate leaves that share of
    the state, to the roundings of f32."""
    layer = layer_of({**HGRN, "layer_idx": 1}, torch.bfloat16)
    low, before = torch.full((D,), 1 - 2.0**-12), torch.rand(1, D) + 1
    with torch.no_grad():
        layer.f_proj.weight.fill_(-60.0), layer.i_proj.weight.zero_()
    recurrent = layer(torch.ones(1, 1, D).bfloat16(), lower_bound=low)[1].recurrent
    _, state = layer(torch.ones(1, 1, D).bfloat16(), fla.State(None, recurrent._replace(h=before), 0), lower_bound=low)
    assert ((state.recurrent.h / before - low).abs() <= 2**-22).all()


@pytest.mark.parametrize("given,error,words", [
    (torch.zeros(D + 1, dtype=torch.float64), cellc.ShapeError, r"lower_bound has shape \[17\]; wanted \[16\]"),
    (torch.zeros(D, dtype=torch.int32), cellc.TypeMismatch, "lower_bound is torch.int32; wanted a tensor of real numbers"),
    ([0.5] * D, cellc.TypeMismatch, "lower_bound is list"),
    (torch.zeros(D, dtype=torch.float64), cellc.ShapeError, "a lower bound is given, and layer_idx is not")])
@pytest.mark.parametrize("case", [HGRN, HGRN2])
def test_bounds_refused(case, given, error, words):
    layer, x = layer_of(case), torch.randn(B, T, D, dtype=torch.float64)
    with pytest.raises(error, match=words):
        layer(x, lower_bound=given)
    with pytest.raises(error, match=words):
        layer.step(x[:, 0], lower_bound=given)
    with pytest.raises(TypeError, match="lower_bound"):
        layer_of(GLA)(x, lower_bound=given)


BROKEN = {
    "missing": (lambda p: p.pop("k_proj.weight"), r"k_proj\.weight is missing"),
    "unknown": (lambda p: p.update(extra=torch.zeros(1)), "extra is unknown"),
    "shape": (lambda p: p.update({"o_proj.weight": torch.zeros(D, D)}), r"o_proj\.weight has shape \[16, 16\]; wanted \[16, 24\]"),
    "flat convolution": (lambda p: p.update({"q_conv1d.weight": torch.zeros(D, 4)}), r"\[16, 4\]; wanted \[16, 1, 4\]"),
    "whole numbers": (lambda p: p.update({"q_proj.weight": torch.zeros(D, D, dtype=torch.int32)}), "torch.int32; wanted"),
    "none": (lambda p: p.update({"q_proj.weight": None}), "NoneType; wanted"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_refused(fault):
    """The error names what does not fit, and no number has changed."""
    spoil, words = BROKEN[fault]
    layer, p = layer_of(DELTA), filled(DELTA)
    before = {name: t.clone() for name, t in layer.state_dict().items()}
    spoil(p)
    with pytest.raises(cellc.ShapeError, match=words):
        layer.load_state_dict(p)
    assert all(torch.equal(t, before[name]) for name, t in layer.state_dict().items())


def test_not_strict():
    layer, p = layer_of(DELTA), filled(DELTA)
    del p["k_proj.weight"]
    before = layer.k_proj.weight.clone()
    found = layer.load_state_dict({**p, "extra": torch.zeros(1)}, strict=False)
    assert found.missing_keys == ["k_proj.weight"] and found.unexpected_keys == ["extra"]
    assert torch.equal(layer.k_proj.weight, before) and torch.equal(layer.q_proj.weight, p["q_proj.weight"])
    with pytest.raises(cellc.ShapeError, match="o_norm"):
        layer.load_state_dict({"q_proj.weight": torch.zeros(D, D), "o_norm.weight": torch.zeros(V + 1)}, strict=False)
    assert torch.equal(layer.q_proj.weight, p["q_proj.weight"])


@pytest.mark.parametrize("case,more,error,words", [
    (DELTA, {"mode": "fused_chunk"}, cellc.TypeMismatch, "mode is 'fused_chunk'; wanted 'chunk' or 'fused_recurrent'"),
    (DELTA, {"qk_norm": "l1"}, cellc.TypeMismatch, "qk_norm is 'l1'"),
    (DELTA, {"qk_activation": "gelu"}, cellc.TypeMismatch, "qk_activation is 'gelu'"),
    (DELTA, {"num_heads": 3}, cellc.ShapeError, "expand_k has a size of 16, which is no multiple of 3 heads"),
    (DELTA, {"conv_size": 0}, cellc.ShapeError, "conv_size is 0"),
    (DELTA, {"chunk_size": 64}, TypeError, "chunk_size"),
    (GATED, {"expand_v": 1.3}, cellc.ShapeError, "expand_v=1.3 times head_dim=4"),
    (GATED, {"num_v_heads": 6}, cellc.ShapeError, "num_v_heads=6 is no multiple of num_heads=4"),
    (GLA, {"gate_fn": "bias_gelu"}, cellc.TypeMismatch, "gate_fn is 'bias_gelu'"),
    (GLA, {"feature_map": "hedgehog"}, cellc.TypeMismatch, "feature_map is 'hedgehog'"),
    (GLA, {"num_kv_heads": 3}, cellc.ShapeError, "num_heads=4 is no multiple of num_kv_heads=3"),
    (GLA, {"gate_logit_normalizer": 0}, cellc.ShapeError, "gate_logit_normalizer is 0"),
    (SIMPLE, {"gate_logit_normalizer": -1}, cellc.ShapeError, "gate_logit_normalizer is -1"),
    (SIMPLE, {"mode": "fused_chunk"}, cellc.TypeMismatch, "mode is 'fused_chunk'"),
    (KDA, {"safe_gate": True}, cellc.ShapeError, "lower_bound is None; with safe_gate it wants a number from -5 to below 0"),
    (KDA, {"safe_gate": True, "lower_bound": -6}, cellc.ShapeError, "lower_bound is -6; with safe_gate"),
    (KDA, {"lower_bound": "low"}, cellc.ShapeError, "lower_bound is 'low'; wanted a number"),
    (KDA, {"num_v_heads": 6}, cellc.ShapeError, "num_v_heads=6 is no multiple of num_heads=4"),
    (HGRN, {"expand_ratio": 0.01}, cellc.ShapeError, "expand_ratio is 0; wanted a whole number above 0"),
    (HGRN2, {"expand_ratio": None}, cellc.ShapeError, "neither expand_ratio nor num_heads is given"),
    (HGRN2, {"expand_ratio": 5}, cellc.ShapeError, "hidden_size=16 is no multiple of 3 heads"),
    (HGRN2, {"expand_ratio": 17}, cellc.ShapeError, "hidden_size=16 is no multiple of 0 heads"),
    (RETENTION, {"num_heads": 16, "expand_v": 2.0}, cellc.ShapeError, "keys of 1 numbers; the rotary embedding wants an even one")])
def test_arguments(case, more, error, words):
    with pytest.raises(error, match=words):
        layer_of({**case, **more})


def test_calls():
    layer = layer_of(DELTA)
    with pytest.raises(cellc.ShapeError, match=r"x is \[2, 16\]; wanted \[B, T, 16\]"):
        layer(torch.randn(2, 16, dtype=torch.float64))
    with pytest.raises(cellc.ShapeError, match=r"wanted \[B, 16\]"):
        layer.step(torch.randn(2, 15, dtype=torch.float64))
    with pytest.raises(cellc.TypeMismatch, match="state is a tuple"):
        layer(torch.randn(2, 3, 16, dtype=torch.float64), (None,))
    with pytest.raises(TypeError, match="past_key_values"):
        layer(torch.randn(2, 3, 16, dtype=torch.float64), past_key_values=None)
    with pytest.raises(AttributeError, match="no Mamba2; of fla's layers it has DeltaNet"):
        fla.Mamba2


def test_copies_and_compile():
    layer = layer_of(RETENTION)
    x = torch.randn(B, T, D, dtype=torch.float64)
    y, state = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x)[0], y) and torch.equal(pickle.loads(pickle.dumps(layer))(x)[0], y)
    found = torch.compile(layer, backend="eager", fullgraph=True)(x, state)[0]
    assert torch.allclose(found, layer(x, state)[0])
    rows, starts = x.flatten(0, 1).unsqueeze(0), torch.tensor([0, T, 2 * T])
    found, left = torch.compile(layer, backend="eager", fullgraph=True)(rows, state, cu_seqlens=starts)
    assert torch.allclose(found[0], layer(x, state)[0].flatten(0, 1)) and left.seen.tolist() == [2 * T] * B
    file = io.BytesIO()
    torch.save(state.detach(), file)
    file.seek(0)
    assert torch.equal(layer(x, torch.load(file))[0], layer(x, state)[0])
