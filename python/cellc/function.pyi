from .instance import Instance

class Function(Instance):
    framework: str | None
