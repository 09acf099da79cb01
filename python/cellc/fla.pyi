from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

class State(NamedTuple):
    """What a layer leaves for the next call."""

    conv: Any
    recurrent: Any
    seen: Any
    def detach(self) -> State: ...

class ShortConvolution(torch.nn.Conv1d):
    """A causal convolution of each channel, with SiLU behind it or not."""

    def __init__(self, hidden_size: int, kernel_size: int, bias: bool = ..., activation: str | None = ...,
                 device: Any = ..., dtype: torch.dtype | None = ...) -> None: ...
    def forward(self, x: torch.Tensor, state: Any = ..., step: bool = ...,
                cu_seqlens: torch.Tensor | None = ...) -> tuple[torch.Tensor, Any]: ...

class Layer(torch.nn.Module):
    """A layer of flash-linear-attention, [B, T, hidden_size] to the same."""

    hidden_size: int
    num_heads: int
    head_k_dim: int
    head_v_dim: int
    def __call__(self, x: torch.Tensor, state: State | None = ..., *, cu_seqlens: torch.Tensor | None = ...,
                 attention_mask: torch.Tensor | None = ...) -> tuple[torch.Tensor, State]: ...
    def forward(self, x: torch.Tensor, state: State | None = ..., *, cu_seqlens: torch.Tensor | None = ...,
                attention_mask: torch.Tensor | None = ...) -> tuple[torch.Tensor, State]: ...
    def step(self, x: torch.Tensor, state: State | None = ...) -> tuple[torch.Tensor, State]: ...
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = ..., assign: bool = ...) -> Any: ...

class DeltaNet(Layer):
    """In place of fla.layers.DeltaNet."""

    def __init__(self, mode: str = ..., d_model: int | None = ..., hidden_size: int = ..., expand_k: float = ...,
                 expand_v: float = ..., num_heads: int = ..., use_beta: bool = ..., use_gate: bool = ...,
                 use_short_conv: bool = ..., conv_size: int = ..., conv_bias: bool = ..., allow_neg_eigval: bool = ...,
                 layer_idx: int | None = ..., qk_activation: str = ..., qk_norm: str = ..., norm_eps: float = ..., *,
                 device: Any = ..., dtype: torch.dtype | None = ...) -> None: ...

class GatedDeltaNet(Layer):
    """In place of fla.layers.GatedDeltaNet."""

    def __init__(self, hidden_size: int = ..., expand_v: float = ..., head_dim: int = ..., num_heads: int = ...,
                 num_v_heads: int | None = ..., mode: str = ..., use_gate: bool = ..., use_short_conv: bool = ...,
                 allow_neg_eigval: bool = ..., conv_size: int = ..., conv_bias: bool = ..., layer_idx: int | None = ...,
                 norm_eps: float = ..., *, device: Any = ..., dtype: torch.dtype | None = ...) -> None: ...
    def reset_decays(self) -> None: ...

class GatedLinearAttention(Layer):
    """In place of fla.layers.GatedLinearAttention."""

    def __init__(self, mode: str = ..., hidden_size: int = ..., expand_k: float = ..., expand_v: float = ...,
                 num_heads: int = ..., num_kv_heads: int | None = ..., feature_map: str | None = ...,
                 use_short_conv: bool = ..., conv_size: int = ..., conv_bias: bool = ..., use_output_gate: bool = ...,
                 gate_fn: str = ..., elementwise_affine: bool | None = ..., norm_eps: float = ...,
                 gate_logit_normalizer: float = ..., gate_low_rank_dim: int = ..., clamp_min: float | None = ...,
                 fuse_norm: bool = ..., layer_idx: int | None = ..., *, device: Any = ...,
                 dtype: torch.dtype | None = ...) -> None: ...

class KimiDeltaAttention(Layer):
    """In place of fla.layers.KimiDeltaAttention."""

    def __init__(self, hidden_size: int = ..., expand_v: float = ..., head_dim: int = ..., num_heads: int = ...,
                 num_v_heads: int | None = ..., mode: str = ..., use_short_conv: bool = ..., allow_neg_eigval: bool = ...,
                 safe_gate: bool = ..., lower_bound: float | None = ..., conv_size: int = ..., conv_bias: bool = ...,
                 layer_idx: int | None = ..., norm_eps: float = ..., *, device: Any = ...,
                 dtype: torch.dtype | None = ...) -> None: ...
    def reset_decays(self) -> None: ...

class SimpleGatedLinearAttention(Layer):
    """In place of fla.layers.SimpleGatedLinearAttention."""

    def __init__(self, mode: str = ..., hidden_size: int = ..., expand_k: float = ..., expand_v: float = ...,
                 num_heads: int = ..., num_kv_heads: int | None = ..., feature_map: str | None = ...,
                 use_short_conv: bool = ..., conv_size: int = ..., conv_bias: bool = ..., gate_fn: str = ...,
                 elementwise_affine: bool | None = ..., norm_eps: float = ..., gate_logit_normalizer: float = ...,
                 fuse_norm: bool = ..., layer_idx: int | None = ..., *, device: Any = ...,
                 dtype: torch.dtype | None = ...) -> None: ...

class MultiScaleRetention(Layer):
    """In place of fla.layers.MultiScaleRetention."""

    def __init__(self, mode: str = ..., hidden_size: int = ..., expand_k: float = ..., expand_v: float = ...,
                 num_heads: int = ..., num_kv_heads: int | None = ..., feature_map: str | None = ...,
                 use_short_conv: bool = ..., conv_size: int = ..., conv_bias: bool = ..., use_output_gate: bool = ...,
                 gate_fn: str = ..., elementwise_affine: bool | None = ..., norm_eps: float = ..., fuse_norm: bool = ...,
                 layer_idx: int | None = ..., *, device: Any = ..., dtype: torch.dtype | None = ...) -> None: ...

class Bounded(Layer):
    """Layers whose calls are given the lower bound of the forget gate."""

    def __call__(self, x: torch.Tensor, state: State | None = ..., lower_bound: torch.Tensor | None = ..., *,
                 cu_seqlens: torch.Tensor | None = ...,
                 attention_mask: torch.Tensor | None = ...) -> tuple[torch.Tensor, State]: ...
    def forward(self, x: torch.Tensor, state: State | None = ..., lower_bound: torch.Tensor | None = ..., *,
                cu_seqlens: torch.Tensor | None = ...,
                attention_mask: torch.Tensor | None = ...) -> tuple[torch.Tensor, State]: ...
    def step(self, x: torch.Tensor, state: State | None = ..., lower_bound: torch.Tensor | None = ...) -> tuple[torch.Tensor, State]: ...

class HGRNAttention(Bounded):
    """In place of fla.layers.HGRNAttention."""

    def __init__(self, mode: str = ..., hidden_size: int = ..., expand_ratio: float = ..., use_short_conv: bool = ...,
                 conv_size: int = ..., conv_bias: bool = ..., elementwise_affine: bool | None = ..., norm_eps: float = ...,
                 layer_idx: int | None = ..., *, device: Any = ..., dtype: torch.dtype | None = ...) -> None: ...

class HGRN2Attention(Bounded):
    """In place of fla.layers.HGRN2Attention."""

    def __init__(self, mode: str = ..., hidden_size: int = ..., num_heads: int | None = ..., expand_ratio: int | None = ...,
                 use_short_conv: bool = ..., conv_size: int = ..., conv_bias: bool = ..., elementwise_affine: bool | None = ...,
                 norm_eps: float = ..., layer_idx: int | None = ..., *, device: Any = ...,
                 dtype: torch.dtype | None = ...) -> None: ...
