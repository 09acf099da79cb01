from collections.abc import Mapping
from typing import Any

import torch

from .graph import Graph
from .instance import Instance

class TorchInstance(Instance): ...

class Cell(torch.nn.Module):
    """What the classes that cellc.load gives are made from. A state is what an earlier call gave, a dict, or a sequence."""

    instance: TorchInstance
    manifest: Any
    batch_first: bool
    sizes: dict[str, int]
    reserve: int | str | None
    offload: bool
    def __init__(self, /, *given: int, batch_first: bool = ..., device: Any = ..., sizes: Mapping[str, int] | None = ...,
                 reserve: int | str | None = ..., offload: bool = ..., **named: int) -> None: ...
    def param(self, name: str) -> torch.Tensor: ...
    def encode(self) -> Cell: ...
    def reset_parameters(self) -> None: ...
    def extra_repr(self) -> str: ...
    def __call__(self, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
                 steps: int | None = ..., final_state: bool = ..., reserve: int | str | None = ..., offload: bool | None = ...,
                **named: torch.Tensor) -> tuple[Any, Any]: ...
    def forward(self, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
                steps: int | None = ..., final_state: bool = ..., reserve: int | str | None = ..., offload: bool | None = ...,
                **named: torch.Tensor) -> tuple[Any, Any]: ...
    def step(self, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
             **named: torch.Tensor) -> tuple[Any, Any]: ...
    @classmethod
    def explain(cls, all: bool = ...) -> str: ...
    @classmethod
    def source(cls, kind: str = ...) -> str: ...
    @classmethod
    def graph(cls, backward: bool = ...) -> Graph: ...

class Op:
    """A cell as a function of its inputs and params."""

    instance: TorchInstance
    batch_first: bool
    def __init__(self, instance: TorchInstance, batch_first: bool = ...) -> None: ...
    def __call__(self, /, *given: Any, state: Any = ..., t0: int | None = ..., batch_first: bool | None = ...,
                 sizes: Mapping[str, int] | None = ..., final_state: bool = ...,
                 reserve: int | str | None = ..., offload: bool = ...,
                **named: torch.Tensor) -> tuple[Any, Any]: ...
    def step(self, /, *given: Any, state: Any = ..., t0: int | None = ..., sizes: Mapping[str, int] | None = ...,
             **named: torch.Tensor) -> tuple[Any, Any]: ...
