from collections.abc import Mapping
from typing import Any

from .function import Function

class JaxCell(Function):
    """A cell as a function of arrays, for jax.jit and jax.grad. A state is what an earlier call gave, a dict, or a sequence."""

    def init(self, key: Any = ..., /, *given: int, sizes: Mapping[str, int] | None = ..., **named: int) -> dict[str, Any]: ...
    def __call__(self, params: Any, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
                 steps: int | None = ..., final_state: bool = ..., reserve: int | str | None = ..., offload: bool = ..., **named: Any) -> tuple[Any, Any]: ...
    def step(self, params: Any, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
             **named: Any) -> tuple[Any, Any]: ...
