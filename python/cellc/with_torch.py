"""Cells for PyTorch. In: a spec and options. Out: a subclass of Cell. Guaranteed: the same options give the same
class."""

import torch

from .build import NotPacked, build, once
from .compiler import Spec
from .errors import PerformanceWarning, SpecError
from .instance import tuple_again
from .module import Cell, TorchInstance

NOT_PACKED = "no schedule has kernels for packed sequences"          # as the compiler says it

torch.serialization.add_safe_globals([tuple_again])        # states that were saved are loaded as tensors are


def gpus():
    """Those that PyTorch sees, {0: "90"}."""
    if not torch.cuda.is_available():
        return {}
    return {i: "%d%d" % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}


def class_of(built, framework_options=None):
    instance = TorchInstance(built)
    m = instance.manifest
    options = framework_options or built.options
    return type(m.name, (Cell,), {"instance": instance, "manifest": m, "__doc__": instance.doc, "packed": options["packed"],
                                  "__module__": "cellc.cells", "load_arguments": (built.spec, options)})


def load_padded(spec, options, why):
    """The class of a cell of which no kernels take packed sequences: rows are padded, for its kernels with lengths."""
    def make(built):
        return class_of(built, options)

    found = build(spec, {**options, "packed": False, "lengths": True}, "PyTorch, padded", gpus(), make)
    once(f"{found.manifest.name}: packed sequences are padded to the longest, and rows of padding are computed: {why}",
         PerformanceWarning)
    return found


def load(given, options):
    if options["dtype"] is None:
        options = {**options, "dtype": torch.get_default_dtype()}
    spec = given if isinstance(given, Spec) else Spec(given, options["import_dir"])
    try:
        return build(spec, options, "PyTorch", gpus(), class_of)
    except NotPacked:
        return load_padded(spec, options, "on the CPU its steps are kernels for a step of all sequences at once")
    except SpecError as error:
        if not options["packed"] or NOT_PACKED not in str(error):
            raise
        return load_padded(spec, options, "its steps are kernels and products for a step of all sequences at once")
