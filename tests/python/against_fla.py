"""cellc.fla against flash-linear-attention's own layers, on the CPU. In: a tree of fla, such as of commit bc3b101d; the
package einops. Out: for each case of test_fla.py whether arguments, names, shapes and order of the parameters are the same,
and how far outputs in f64 differ. fla's layers run as they are, with its plain reference functions (naive.py) and PyTorch's
operators in place of its Triton kernels, which want a GPU.

    python tests/python/against_fla.py path/to/flash-linear-attention"""

import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import types
import warnings
from unittest.mock import MagicMock

import torch
import torch._dynamo
import torch._inductor  # noqa: F401: before there are stand-ins for triton
from test_fla import CASES, bound_of, filled, layer_of, shapes, unit
from torch.nn import functional

LAYERS = {"DeltaNet": "delta_net", "GatedDeltaNet": "gated_deltanet", "GatedLinearAttention": "gla",
          "MultiScaleRetention": "multiscale_retention", "KimiDeltaAttention": "kda", "SimpleGatedLinearAttention": "simple_gla",
          "HGRNAttention": "hgrn", "HGRN2Attention": "hgrn2"}
NAIVE = ("delta_rule", "gated_delta_rule", "gla", "retention", "kda", "simple_gla", "hgrn")


class StandIns:
    """Modules that are not there, or would look for a GPU: anything may be asked of them."""

    tops = ("triton", "transformers", "causal_conv1d", "fla.ops", "fla.utils", "fla.models", "fla.modules.backends")

    def find_spec(self, name, path=None, target=None):
        if any(name == top or name.startswith(top + ".") for top in self.tops):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        made = MagicMock(name=spec.name)
        made.__path__, made.__spec__, made.__name__ = [], spec, spec.name
        return made

    def exec_module(self, made):
        pass


def imported(tree):
    """({class: fla's module of its layer}, {name: module of reference functions})"""
    sys.meta_path.insert(0, StandIns())
    torch.compile = lambda f: f                        # of functions that are called once
    for name in ("fla", "fla.layers", "fla.modules"):
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = [os.path.join(tree, *name.split("."))]
    utils, modules = importlib.import_module("fla.utils"), sys.modules["fla.modules"]
    utils.input_guard = lambda f=None, **_: f or (lambda g: g)
    sys.modules["fla"].utils, sys.modules["fla"].modules = utils, modules
    for home, name in (("fused_norm_gate", "FusedRMSNormGated"), ("layernorm", "RMSNorm"), ("conv.short_conv", "ShortConvolution"),
                       ("rotary", "RotaryEmbedding")):
        setattr(modules, name, getattr(importlib.import_module(f"fla.modules.{home}"), name))
    naive = {}
    for name in NAIVE:
        spec = importlib.util.spec_from_file_location(f"naive_{name}", os.path.join(tree, "fla", "ops", name, "naive.py"))
        naive[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(naive[name])
    return {kind: importlib.import_module(f"fla.layers.{home}") for kind, home in LAYERS.items()}, naive


def keep_f64():
    """The reference functions convert to f32: here that leaves tensors as they are."""
    to, zeros = torch.Tensor.to, torch.Tensor.new_zeros
    torch.Tensor.float = lambda self: self
    torch.Tensor.to = lambda self, *given, **named: to(self, *[torch.float64 if g is torch.float32 else g for g in given], **named)
    torch.Tensor.new_zeros = lambda self, *given, **named: zeros(self, *given)


def replace_modules(modules):
    def convolved(x, weight, bias):
        y = functional.conv1d(x.transpose(1, 2), weight, bias, padding=weight.shape[-1] - 1, groups=x.shape[-1])
        return y[..., :x.shape[1]].transpose(1, 2)

    def short(self, x, **_):
        y = convolved(x, self.weight, self.bias)
        return (functional.silu(y) if self.activation else y), None

    def norm(self, x, gate=None):
        y = x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.eps)
        y = y if self.weight is None else y * self.weight
        return y if gate is None else y * {"swish": functional.silu, "sigmoid": torch.sigmoid}[self.activation](gate)

    def rotary(self, q, k, **_):
        rates = 1 / self.base ** (torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        angles = torch.outer(torch.arange(q.shape[1], dtype=torch.float64), rates)
        plain = importlib.import_module("fla.modules.rotary").rotary_embedding_ref
        return tuple(plain(t, angles.cos(), angles.sin(), self.interleaved) for t in (q, k))

    modules.ShortConvolution.forward, modules.RotaryEmbedding.forward = short, rotary
    modules.RMSNorm.forward = modules.FusedRMSNormGated.forward = norm
    return lambda x, weight, bias, **_: (functional.silu(convolved(x, weight.unsqueeze(1), bias)), None)


def replace_kernels(homes, naive, conv):
    def heads_first(tensors):
        return [t.transpose(1, 2) for t in tensors]

    def delta(q, k, v, beta, use_qk_l2norm_in_kernel, **_):
        q, k = (unit(q), unit(k)) if use_qk_l2norm_in_kernel else (q, k)
        return naive["delta_rule"].delta_rule_recurrence(*heads_first((q, k, v, beta)))[0].transpose(1, 2), None

    def gated(q, k, v, g, beta, A_log, dt_bias, allow_neg_eigval, **_):
        q, k = (unit(t).repeat_interleave(v.shape[2] // q.shape[2], 2) for t in (q, k))
        strength = beta.sigmoid() * (2 if allow_neg_eigval else 1)
        return naive["gated_delta_rule"].naive_recurrent_gated_delta_rule(
            q, k, v, strength, -A_log.exp() * functional.softplus(g + dt_bias))

    def kimi(q, k, v, g, beta, A_log, dt_bias, allow_neg_eigval, lower_bound, **_):
        q, k = (unit(t) for t in (q, k))
        logit = g + dt_bias.view(g.shape[-2:])
        g = -A_log.exp()[:, None] * functional.softplus(logit) if lower_bound is None else (
            lower_bound * torch.sigmoid(A_log.exp()[:, None] * logit))
        return naive["kda"].naive_recurrent_kda(q, k, v, g, beta.sigmoid() * (2 if allow_neg_eigval else 1))

    def norm_linear(x, weight, bias, linear_weight, linear_bias, eps=1e-5):
        y = x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)
        return functional.linear(y if weight is None else y * weight, linear_weight)

    acts = importlib.import_module("fla.modules.activations")
    known = {"relu": functional.relu, "sigmoid": torch.sigmoid, "logsigmoid": functional.logsigmoid, "silu": functional.silu,
             "swish": functional.silu, "elu": functional.elu}
    homes["DeltaNet"].fused_recurrent_delta_rule = delta
    homes["GatedDeltaNet"].fused_recurrent_gated_delta_rule, homes["GatedDeltaNet"].causal_conv1d = gated, conv
    homes["GatedLinearAttention"].fused_recurrent_gla = lambda q, k, v, gk, **_: naive["gla"].naive_recurrent_gla(q, k, v, gk)
    homes["GatedLinearAttention"].ACT2FN = {**known, "sqrelu": acts.sqrelu_fwd, "gelu": acts.gelu_fwd}
    homes["MultiScaleRetention"].fused_recurrent_retention = lambda q, k, v, **_: (
        naive["retention"].naive_retention(*heads_first((q, k, v))).transpose(1, 2), None)
    homes["MultiScaleRetention"].ACT2FN = {**known, "gelu": functional.gelu,
                                           "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh")}
    homes["KimiDeltaAttention"].fused_recurrent_kda = kimi
    homes["SimpleGatedLinearAttention"].fused_recurrent_simple_gla = lambda q, k, v, g, **_: (
        naive["simple_gla"].naive_recurrent_simple_gla(q, k, v, g))
    homes["SimpleGatedLinearAttention"].ACT2FN = homes["GatedLinearAttention"].ACT2FN
    homes["HGRNAttention"].fused_recurrent_hgrn = lambda x, g, **_: naive["hgrn"].naive_recurrent_hgrn(x, g)
    homes["HGRNAttention"].swiglu = lambda x, y: functional.silu(x) * y
    homes["HGRN2Attention"].fused_recurrent_gla = lambda q, k, v, gk, **_: naive["gla"].naive_recurrent_gla(q, k, v, gk)
    homes["HGRN2Attention"].swish, homes["HGRN2Attention"].rms_norm_linear = functional.silu, norm_linear
    for home in homes.values():                        # no padding, no cache
        home.get_layer_cache = home.update_layer_cache = lambda *_, **__: None
        home.unpad_hidden_states = lambda x, *_: (x, None, None)
        home.repad_hidden_states = lambda y, *_: y


def arguments(kind, without):
    found = inspect.signature(kind.__init__).parameters
    return [(name, p.default) for name, p in found.items() if name not in ("self", *without)]


def compare(name, kind):
    case = CASES[name]
    theirs = kind(**{key: value for key, value in case.items() if key not in ("kind", "scale", "bound")}).double().eval()
    ours = layer_of(case)
    same = {"arguments": arguments(kind, ["kwargs"]) == arguments(type(ours), ["device", "dtype"]),
            "shapes": {key: tuple(t.shape) for key, t in theirs.state_dict().items()} == shapes(case),
            "order": [key for key, _ in theirs.named_parameters()] == [key for key, _ in ours.named_parameters()]}
    theirs.load_state_dict(filled(case))
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 7, case["hidden_size"], dtype=torch.float64) * case.get("scale", 1)
    bound = bound_of(case)
    given = {} if bound is None else {"lower_bound": bound}
    with torch.no_grad():
        wanted = theirs(x, **given)[0]
        off = ((ours(x, **given)[0] - wanted).abs().max() / wanted.abs().max()).item()
    other = [key for key, equal in same.items() if not equal]
    limit = 1e-7 if case["kind"] == "MultiScaleRetention" else 1e-12       # its reference function has decays in f32
    print(f"{name:20} {off:.1e}{' OTHER ' + ', '.join(other) if other else ''}{' OFF' if off > limit else ''}", flush=True)
    return not other and off <= limit


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    homes, naive = imported(sys.argv[1])
    replace_kernels(homes, naive, replace_modules(sys.modules["fla.modules"]))
    keep_f64()
    torch.manual_seed(1)
    right = [compare(name, getattr(homes[case["kind"]], case["kind"])) for name, case in CASES.items()]
    print(f"{sum(right)} passed, {len(right) - sum(right)} failed")
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
