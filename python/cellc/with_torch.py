"""Cells for PyTorch. In: a spec and options. Out: a subclass of Cell. Guaranteed: the same options give the same
class."""

import torch

from .build import build
from .instance import tuple_again
from .module import Cell, TorchInstance

torch.serialization.add_safe_globals([tuple_again])        # states that were saved are loaded as tensors are


def gpus():
    """Those that PyTorch sees, {0: "90"}."""
    if not torch.cuda.is_available():
        return {}
    return {i: "%d%d" % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}


def load(given, options):
    def make(built):
        instance = TorchInstance(built)
        m = instance.manifest
        return type(m.name, (Cell,), {"instance": instance, "manifest": m, "__doc__": instance.doc,
                                      "__module__": "cellc.cells", "load_arguments": (built.spec, built.options)})

    if options["dtype"] is None:
        options = {**options, "dtype": torch.get_default_dtype()}
    return build(given, options, "PyTorch", gpus(), make)
