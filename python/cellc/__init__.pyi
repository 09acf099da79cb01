from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, Protocol, overload

import torch

from .errors import BackendError as BackendError
from .errors import BuildError as BuildError
from .errors import CannotRead as CannotRead
from .errors import CellcError as CellcError
from .errors import CellcWarning as CellcWarning
from .errors import MissingFile as MissingFile
from .errors import MissingSpec as MissingSpec
from .errors import PerformanceWarning as PerformanceWarning
from .errors import ShapeError as ShapeError
from .errors import SpecError as SpecError
from .errors import TypeMismatch as TypeMismatch
from .module import Cell, Op
from .sessions import Sessions as Sessions
from .with_jax import JaxCell
from .with_numpy import NumpyCell

__version__: str

class _Resource(Protocol):
    """What importlib.resources.files gives of a package in an archive."""

    def read_bytes(self) -> bytes: ...
    def iterdir(self) -> Iterable[Any]: ...
    def is_dir(self) -> bool: ...

@overload
def load(spec: str | PathLike[str] | _Resource, /, *, framework: Literal["torch"] = ..., dtype: Any = ..., cuda: bool | None = ...,
         archs: str | int | Iterable[str | int] | None = ..., schedule: str | None = ...,
         tuned: str | PathLike[str] | None = ..., import_dir: str | PathLike[str] | None = ..., products: str | None = ...,
         reverse: bool = ..., lengths: bool = ..., packed: bool = ..., settings: Mapping[str, Any] | None = ...,
         dtype_of: Mapping[str, Any] | None = ..., **more: Any) -> type[Cell]: ...
@overload
def load(spec: str | PathLike[str] | _Resource, /, *, framework: Literal["numpy"], dtype: Any = ..., cuda: bool | None = ...,
         archs: str | int | Iterable[str | int] | None = ..., schedule: str | None = ...,
         tuned: str | PathLike[str] | None = ..., import_dir: str | PathLike[str] | None = ..., products: str | None = ...,
         reverse: bool = ..., lengths: bool = ..., packed: bool = ..., settings: Mapping[str, Any] | None = ...,
         dtype_of: Mapping[str, Any] | None = ..., **more: Any) -> NumpyCell: ...
@overload
def load(spec: str | PathLike[str] | _Resource, /, *, framework: Literal["jax"], dtype: Any = ..., cuda: bool | None = ...,
         archs: str | int | Iterable[str | int] | None = ..., schedule: str | None = ...,
         tuned: str | PathLike[str] | None = ..., import_dir: str | PathLike[str] | None = ..., products: str | None = ...,
         reverse: bool = ..., lengths: bool = ..., packed: bool = ..., settings: Mapping[str, Any] | None = ...,
         dtype_of: Mapping[str, Any] | None = ..., **more: Any) -> JaxCell: ...
def op(spec: str | PathLike[str] | _Resource, /, *, batch_first: bool = ..., **options: Any) -> Op: ...
def encode(tensor: torch.Tensor, dtype: str = ..., block: int = ...) -> tuple[torch.Tensor, torch.Tensor]: ...
def decode(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor: ...
def load_ipython_extension(shell: Any) -> None: ...
