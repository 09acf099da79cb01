"""From a spec to a class. In: a spec, options. Out: a subclass of Cell. Guaranteed: a spec is compiled once for each
set of options, in this process and, through the cache, on this machine; what is used in place of a GPU or of nvcc is
said once; what the compiler warned of is said at every first load, cached or not."""

import collections
import os
import tempfile
import threading
import warnings

import torch

from . import cache, compiler
from .errors import BuildError, CellcWarning, SpecError, TypeMismatch
from .init import describe
from .manifest import Manifest
from .module import Cell, Instance
from .native import Library
from .ops import DTYPES, Ops

NAMES = {torch_type: name for name, torch_type in DTYPES.items()}
loaded, locks, told = {}, collections.defaultdict(threading.Lock), set()


def once(text):
    if text not in told:
        told.add(text)
        warnings.warn(text, CellcWarning, stacklevel=5)


def choose_kernels(cuda, archs):
    """(architectures or None for no kernels, why there are none)."""
    there, compiler_there = torch.cuda.is_available(), compiler.nvcc()
    if cuda is False:
        return None, "it was loaded with cuda=False"
    if not compiler_there and cuda:
        raise BuildError("cuda=True, but cellc was built without nvcc, or it is not there any more")
    if not there and not cuda:
        once("cellc: PyTorch sees no GPU here, so cells run on the CPU, in the plain C that cellc generates")
        return None, "there was no GPU when it was loaded"
    if not compiler_there:
        once("cellc: there is a GPU but no nvcc, so cells have no kernels: they run on the CPU only, in plain C")
        return None, "there is no nvcc"
    if archs:
        return archs, ""
    if not there:
        return os.environ.get("CUDA_ARCHS") or "80 86 89 90", ""
    found = {"%d%d" % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    return " ".join(sorted(found, key=int)), ""


def read_settings(options):
    """Options with every value as text, as the command line has them."""
    dtype = NAMES.get(options["dtype"], options["dtype"])
    if not isinstance(dtype, str):
        raise TypeMismatch(f"dtype is {options['dtype']!r}; wanted f32, bf16, f16 or f64, or PyTorch's")
    settings = {}
    for name, value in options["settings"].items():
        text = repr(value) if isinstance(value, float) else str(value)
        if "," in text or "=" in text:
            raise SpecError(f"error: the value of {name} is '{text}'; wanted a number or a word")
        settings[name] = text
    return dtype, settings


def load_class(given, options):
    spec = compiler.Spec(given)
    dtype, settings = read_settings(options)
    archs, why = choose_kernels(options["cuda"], options["archs"])
    depends = [compiler.fingerprint(), os.path.basename(spec.path), spec.text, spec.imports(options["import_dir"]),
               sorted(settings.items()), dtype, archs, options["schedule"], options["reverse"],
               options["lengths"]]
    stem = os.path.splitext(os.path.basename(spec.path))[0]
    words = [stem, *[k + v if v[:1].isdigit() else f"{k}_{v}" for k, v in sorted(settings.items())], dtype]
    words += [word for word in ("reverse", "lengths") if options[word]]
    words += ["sm" + archs.replace(" ", "_") if archs else "cpu"]
    name = cache.entry_name(words, depends)
    with locks[name]:
        if name not in loaded:
            made = make_class(name, spec, dtype, settings, archs, why, options)
            made.load_arguments = (given, options)
            loaded[name] = made
    return loaded[name]


def make_class(name, spec, dtype, settings, archs, why, options):
    flags = ["--dtype", dtype]
    flags += ["--schedule", options["schedule"]] if options["schedule"] else []
    flags += [f"--{word}" for word in ("reverse", "lengths") if options[word]]
    flags += ["--import-dir", os.path.abspath(options["import_dir"])] if options["import_dir"] else []

    def build(place):
        kernels = ["--archs", archs] if archs else ["--no-cuda"]
        operand, where = spec.operand(settings, place)
        _, said = compiler.run(["build", operand, *flags, *kernels, "-o", place], where)
        written = [f for f in os.listdir(place) if f.endswith(".json")]
        return {"manifest": written[0], "archs": archs, "said": messages(said), "spec": spec.path,
                "compiler": compiler.program()}

    for attempt in range(2):
        path = cache.get(name, build)
        try:
            info = cache.info(path)
            manifest = Manifest(os.path.join(path, info["manifest"]))
            library = Library(os.path.join(path, f"lib{info['manifest'][:-5]}.so"),
                              manifest.entry("instance"))
            break
        except FileNotFoundError:      # somebody cleared the cache in between
            if attempt:
                raise
    if info["said"]:
        warnings.warn(info["said"], CellcWarning, stacklevel=5)
    instance = Loaded(spec, Ops(library, manifest, name), settings, dtype, path, bool(archs), why)
    instance.flags = flags
    instance.doc = docstring(instance)
    return type(manifest.name, (Cell,), {"instance": instance, "manifest": manifest, "__doc__": instance.doc,
                                         "__module__": "cellc.cells"})


def messages(text):
    """The compiler's warnings, less what it says of nvcc, which is said here."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("cellc build: no nvcc")).strip("\n")


class Loaded(Instance):
    """An instance that can be asked for its sources: the compiler runs again."""

    def ask(self, *command):
        m = self.manifest
        words = []
        for name, value in self.settings.items():
            words += ["--dim" if name in m.bound else "--set", f"{name}={value}"]
        with tempfile.TemporaryDirectory() as place:
            path, where = self.spec.operand({}, place)
            return compiler.run([command[0], path, *command[1:], *self.flags, *words], where)[0]

    def explain(self):
        return self.ask("explain")

    def source(self, kind):
        return self.ask("emit", "--kind", kind)


def docstring(instance):
    """Shapes and types of everything, then the spec."""
    m = instance.manifest
    lines = [f"{m.key}, from {instance.spec.path}", ""]
    needed = instance.needs_sizes()
    lines += [f"Made with {m.name}({', '.join(f'{n}=...' for n in needed)}, batch_first=True); "
              f"called as y, state = cell({', '.join(t.name for t in m.inputs)}, state=None).", ""]
    for title, tensors in (("inputs", m.inputs), ("params", m.params), ("states", m.states), ("outputs", m.outputs)):
        for t in tensors:
            start = f" ~ {describe(t)}" if t.kind == "param" else ""
            doc = f"  {t.doc}" if t.doc else ""
            lines.append(f"{title[:-1]:7} {t.name} {t.wanted()} {t.dtype}{start}{doc}")
    return "\n".join(lines + ["", "The spec:", "", instance.spec.text.rstrip(), ""])
