"""Recurrent cells, written as mathematics, as modules of PyTorch and as functions for JAX and NumPy.

    import cellc
    E79 = cellc.load("e79", N=32, bias="input")     # a file, a cell that comes with cellc, or the text of a spec
    cell = E79(D=128)                               # an nn.Module with the spec's params
    y, state = cell(x)                              # x is [B, T, 128]
    y, state = cell(x, state=state)                 # and on

load() compiles once and keeps the result (see cellc.cache). Tensors on a GPU run the kernels, tensors on the CPU the
plain C that cellc generates beside them."""

import importlib
import os

from .errors import (BackendError, BuildError, CannotRead, CellcError, CellcWarning, MissingFile, MissingSpec,  # noqa: F401
                     PerformanceWarning, ShapeError, SpecError, TypeMismatch)
from .names import wrong_keyword

__version__ = "0.2.0"
__all__ = ["load", "op", "encode", "decode", "BackendError", "BuildError", "CannotRead", "CellcError", "CellcWarning", "MissingFile",
           "MissingSpec", "PerformanceWarning", "ShapeError", "SpecError", "TypeMismatch"]

FRAMEWORKS = {"torch": "PyTorch", "jax": "JAX", "numpy": "NumPy"}


def path_of(name, value):
    try:
        return os.fspath(value) if value else None
    except TypeError:
        raise wrong_keyword(name, value, "a path") from None


def yes_or_no(name, value):
    if type(value).__name__ not in ("bool", "bool_"):          # the second is NumPy's
        raise wrong_keyword(name, value, "True or False")
    return bool(value)


def word_of(name, value):
    if not isinstance(value, (str, type(None))):
        raise wrong_keyword(name, value, "its name")
    return value


def load(spec=None, /, *, framework="torch", dtype=None, cuda=None, archs=None, schedule=None, tuned=None, import_dir=None,
         products=None, reverse=False, lengths=False, packed=False, settings=None, dtype_of=None, **more):
    """The class of modules that a spec describes; with framework="jax" or "numpy" a function of arrays (see
    cellc.with_jax and cellc.with_numpy).

    spec: a path, the name of a cell that comes with cellc, or the text of a spec; of a directory the spec that is called
    like it, or the only one that has a cell; also what importlib.resources.files gives of a package. Keywords beside the named ones bind
    dims, choose options and replace constants (N=32, bias="input"); `settings` takes the same as a dict, for names
    that are keywords here. dtype_of: types of single inputs and params, {"W": "e4m3"}. dtype: f32, bf16, f16, f64, or PyTorch's; f32 where it
    is not given, in PyTorch its default dtype. cuda: None builds kernels where there is a GPU
    and nvcc, True insists, False leaves them out. archs: the GPUs, such as "80 90"; those that are there by default.
    schedule, tuned, products, import_dir, reverse, lengths, packed: as cellc's options of these names (tuned: a file of `cellc tune`; the
    directory CELLC_TUNED is looked in as well). A reversed cell walks time from its end;
    one with lengths takes how many steps each sequence has behind its inputs, [B]; a packed one takes the rows of all
    sequences, [total, ...], and behind its inputs cu_seqlens, [B + 1], where each begins."""
    spec = more.pop("spec", None) if spec is None else spec
    options = {"dtype": dtype, "cuda": None if cuda is None else yes_or_no("cuda", cuda), "archs": archs,
               "schedule": word_of("schedule", schedule), "products": word_of("products", products),
               "tuned": os.path.abspath(path_of("tuned", tuned)) if tuned else None,
               "import_dir": path_of("import_dir", import_dir), "reverse": yes_or_no("reverse", reverse),
               "lengths": yes_or_no("lengths", lengths), "packed": yes_or_no("packed", packed)}
    if options["packed"] and options["lengths"]:
        raise TypeMismatch("load: packed=True and lengths=True exclude each other: packed sequences have no padding")
    if settings is not None and not hasattr(settings, "keys"):
        raise wrong_keyword("settings", settings, "a dict")
    if dtype_of is not None and not hasattr(dtype_of, "keys"):
        raise wrong_keyword("dtype_of", dtype_of, "a dict, such as {\"W\": \"e4m3\"}")
    options["dtype_of"] = dict(dtype_of or {})
    options["settings"] = {**(settings or {}), **more}
    if framework not in list(FRAMEWORKS):
        raise wrong_keyword("framework", framework, " or ".join(FRAMEWORKS))
    try:
        importlib.import_module(framework)
    except ImportError as error:
        others = " or ".join(repr(other) for other in FRAMEWORKS if other != framework)
        raise ImportError(f"cellc: {FRAMEWORKS[framework]} is not there ({error}); install {framework}, or load the "
                          f"cell with framework={others}") from error
    return importlib.import_module(f"{__name__}.with_{framework}").load(spec, options)


def op(spec=None, /, *, batch_first=True, **options):
    """The functional form for PyTorch: y, state = op(x, W, ..., state=None). Options as for load."""
    batch_first = yes_or_no("batch_first", batch_first)
    if options.get("framework", "torch") != "torch":
        raise TypeMismatch(f"op is for PyTorch; load(..., framework={options['framework']!r}) gives a function already")
    from .module import Op
    return Op(load(spec, **options).instance, batch_first)


def encode(tensor, dtype="e4m3", block=0):
    """(codes, scales) of a PyTorch tensor, as cells take them that store it in 8 bits: of torch.float8_e4m3fn or
    torch.float8_e5m2, and of f32. `block` numbers of the last axis share a scale, with 0 all numbers do."""
    from .codes import encode
    return encode(tensor, dtype, block)


def decode(codes, scales):
    """What such codes and scales stand for, in f32."""
    from .codes import decode
    return decode(codes, scales)


def __getattr__(name):
    if name == "Sessions":                    # which is for PyTorch
        from .sessions import Sessions
        return Sessions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell):
    from .magic import register
    register(shell)
