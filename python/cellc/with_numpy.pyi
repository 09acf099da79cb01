from collections.abc import Callable, Mapping
from typing import Any

import numpy

from .function import Function

class NumpyCell(Function):
    """A cell as a function of arrays. A state is what an earlier call gave, a dict, or a sequence."""

    def init(self, seed: Any = ..., /, *given: int, sizes: Mapping[str, int] | None = ..., **named: int) -> dict[str, numpy.ndarray]: ...
    def __call__(self, params: Any, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
                 steps: int | None = ..., final_state: bool = ..., **named: numpy.ndarray) -> tuple[Any, Any]: ...
    def step(self, params: Any, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
             **named: numpy.ndarray) -> tuple[Any, Any]: ...
    def vjp(self, params: Any, /, *inputs: Any, state: Any = ..., t0: int | None = ..., batch: int | None = ...,
            steps: int | None = ..., final_state: bool = ..., reserve: int | str | None = ..., offload: bool = ...,
            **named: numpy.ndarray) -> tuple[Any, Any, Callable[..., Any]]: ...
