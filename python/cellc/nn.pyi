from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from .module import Cell

class Recurrent(torch.nn.RNNBase):
    def __init__(self, *given: Any, **named: Any) -> None: ...
    def flatten_parameters(self) -> None: ...

class LSTM(Recurrent):
    """In place of torch.nn.LSTM."""

    cell: str
    def __call__(self, input: torch.Tensor | PackedSequence,
                 hx: tuple[torch.Tensor, torch.Tensor] | None = ...) -> tuple[Any, tuple[torch.Tensor, torch.Tensor]]: ...
    def forward(self, input: torch.Tensor | PackedSequence,
                hx: tuple[torch.Tensor, torch.Tensor] | None = ...) -> tuple[Any, tuple[torch.Tensor, torch.Tensor]]: ...

class GRU(Recurrent):
    """In place of torch.nn.GRU."""

    cell: str
    def __init__(self, *given: Any, **named: Any) -> None: ...
    def __call__(self, input: torch.Tensor | PackedSequence, hx: torch.Tensor | None = ...) -> tuple[Any, torch.Tensor]: ...
    def forward(self, input: torch.Tensor | PackedSequence, hx: torch.Tensor | None = ...) -> tuple[Any, torch.Tensor]: ...

class Block(torch.nn.Module):
    """A layer of a language model around any cell, [B, T, width] to the same."""

    width: int
    sizes: dict[str, int]
    activations: dict[str, Callable[[torch.Tensor], torch.Tensor]]
    cell: Cell
    conv: Cell | None
    norm: torch.nn.RMSNorm
    project: torch.nn.ModuleDict
    head_norms: torch.nn.ModuleList
    gate: torch.nn.Linear | None
    out: torch.nn.Linear
    def __init__(self, cell: type[Cell], width: int, *, conv: bool = ..., gate: bool = ..., head_norm: bool = ...,
                 activations: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] | None = ..., eps: float = ...,
                 device: Any = ..., sizes: Mapping[str, int] | None = ..., **named: int) -> None: ...
    def __call__(self, x: torch.Tensor, state: Any = ..., t0: int | None = ...,
                 **named: torch.Tensor) -> tuple[torch.Tensor, Any]: ...
    def forward(self, x: torch.Tensor, state: Any = ..., t0: int | None = ...,
                **named: torch.Tensor) -> tuple[torch.Tensor, Any]: ...
    def step(self, x: torch.Tensor, state: Any = ..., t0: int | None = ...,
             **named: torch.Tensor) -> tuple[torch.Tensor, Any]: ...
