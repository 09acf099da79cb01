from collections.abc import Mapping
from typing import Any

from .instance import Instance

class Function(Instance):
    framework: str | None
    def encode(self, params: Mapping[str, Any]) -> dict[str, Any]: ...
    def decode(self, params: Mapping[str, Any]) -> dict[str, Any]: ...
