"""From a spec to a built library. In: a spec, options, the GPUs that the framework sees. Out: a Built, from which each
framework makes what its users call. Guaranteed: nothing here knows a framework; a spec is compiled once for each set of
options, in this process and, through the cache, on this machine; what is used in place of a GPU or of nvcc is said once;
what the compiler warned of is said once in each process, cached or not."""

import collections
import ctypes
import hashlib
import importlib
import json
import os
import re
import threading
import warnings

from . import cache, compiler, nvrtc
from .errors import (HEAD, BackendError, BuildError, CannotRead, CellcWarning, MissingFile,
                     PerformanceWarning, SpecError)
from .manifest import Manifest
from .names import wrong_keyword
from .native import Library
from .progress import Progress

TYPES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
USER = 6                   # how many calls above a warning here the user's is
locks, made, told = collections.defaultdict(threading.RLock), {}, set()


def once(text, category=CellcWarning, stacklevel=USER):
    """A warning that a process gives once, whatever module and line it comes from."""
    if text not in told:
        told.add(text)
        warnings.warn(text, category, stacklevel=stacklevel)


def kernel_compiler():
    """"nvcc" or, where there is none, "nvrtc", or None. CELLC_KERNELS chooses."""
    wanted = os.environ.get("CELLC_KERNELS", "")
    if wanted not in ("", "nvcc", "nvrtc"):
        raise BuildError(f"CELLC_KERNELS is '{wanted}'; wanted nvcc or nvrtc")
    if wanted != "nvrtc" and compiler.nvcc():
        return "nvcc"
    return "nvrtc" if wanted != "nvcc" and nvrtc.library() else None


def choose_kernels(cuda, archs, framework, gpus):
    """(architectures or None for no kernels, why there are none). `gpus` are those that the framework sees, {number:
    "90"}; None: it never computes on one."""
    if gpus is None:
        if cuda:
            raise BackendError(f"cuda=True, but arrays of {framework} are in the host's memory")
        return None, f"arrays of {framework} are in the host's memory"
    if cuda is False:
        return None, "it was loaded with cuda=False"
    if not gpus and not cuda:
        once(f"cellc: {framework} sees no GPU here, so cells run on the CPU")
        return None, "there was no GPU when it was loaded"
    there = kernel_compiler()
    if not there and cuda:
        raise BuildError("cuda=True, but there is neither nvcc, as far as cellc knows, nor NVRTC")
    if not there:
        once("cellc: there is a GPU but neither nvcc nor NVRTC, so cells have no kernels: they run on the CPU only, in "
             "plain C")
        return None, "there is neither nvcc nor NVRTC"
    if archs:
        return archs, ""
    if not gpus:
        return os.environ.get("CUDA_ARCHS") or "80 86 89 90", ""
    return " ".join(sorted(set(gpus.values()), key=int)), ""


def arch_words(archs):
    """"80 90" of that, of 90, or of a sequence of either."""
    words = " ".join(str(arch) for arch in ([archs] if isinstance(archs, (str, int)) else archs or []))
    if not re.fullmatch(r"(\d{2,3}[af]?|native|\s)*", words):
        raise wrong_keyword("archs", archs, "numbers of architectures, such as \"80 90\"")
    return words


def type_name(dtype):
    """"f32" as it is; "f32" of torch.float32, numpy.float32, jax.numpy.float32 and their dtypes."""
    if isinstance(dtype, str):
        return TYPES.get(dtype, dtype)
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return TYPES.get(str(name).rpartition(".")[2])


def read_settings(options):
    """Options with every value as text, as the command line has them."""
    dtype = "f32" if options["dtype"] is None else type_name(options["dtype"])
    if dtype is None:
        raise wrong_keyword("dtype", options["dtype"], "f32, bf16, f16 or f64, or the framework's")
    settings = {}
    for name, value in (options.get("dtype_of") or {}).items():
        settings["dtype." + name] = kind = TYPES.get(str(value).rpartition(".")[2], str(value))
        if not re.fullmatch(r"\w+", kind):
            raise SpecError(f"error: the type of {name} is '{value}'; wanted a word, such as e4m3")
    for name, value in options["settings"].items():
        if getattr(value, "shape", None) == () and hasattr(value, "item"):     # NumPy's scalars, arrays of one number
            value = value.item()
        text = repr(float(value)) if isinstance(value, float) else str(value)
        if "," in text or "=" in text:
            raise SpecError(f"error: the value of {name} is '{text}'; wanted a number or a word")
        settings[name] = text
    return dtype, settings


def build(given, options, framework, gpus, make):
    """make(built) of the library for these options, once for each of them."""
    spec = given if isinstance(given, compiler.Spec) else compiler.Spec(given, options["import_dir"])
    if isinstance(options["tuned"], str):
        options = {**options, "tuned": Tuned(options["tuned"])}
    dtype, settings = read_settings(options)
    archs, why = choose_kernels(options["cuda"], arch_words(options["archs"]), framework, gpus)
    by = kernel_compiler() if archs else None
    plain = by == "nvcc" or compiler.cc() is not None
    tuned = find_tuned(options, spec, bool(archs))
    depends = [compiler.fingerprint(), os.path.basename(spec.path), spec.digest, spec.cell,
               sorted(settings.items()), dtype, archs, options["schedule"], options["reverse"],
               options["lengths"], options["packed"], options["products"], [found.text for found in tuned], by,
               nvrtc.version() if by == "nvrtc" else os.path.realpath(compiler.nvcc()) if by else None, plain,
               *(["slots"] if options.get("slots") else [])]
    stem = os.path.splitext(os.path.basename(spec.path))[0]
    words = [stem, *[k + v if v[:1].isdigit() else f"{k}_{v}" for k, v in sorted(settings.items())], dtype]
    words += [word for word in ("reverse", "lengths", "packed", "slots") if options.get(word)]
    words += (["nvrtc"] if by == "nvrtc" else []) + ([] if plain else ["no_cc"])
    words += ["sm" + archs.replace(" ", "_") if archs else "cpu"]
    name = cache.entry_name(words, depends)
    key = (framework, name, *spec.places())         # the same text in another file is another spec: either may change
    with locks[name]:
        if key not in made:
            try:
                made[key] = make(Built(name, spec, dtype, settings, archs, by, plain, gpus, why, options,
                                       tuned))
            except BuildError:
                if not plain or not compiler.cc_fault():
                    raise
                return build(spec, options, framework, gpus, make)      # as where there is none
    return made[key]


def free_name(name, taken):
    """The name, or one made of it: the same cell may be built again, with other compilers, while the first is in use."""
    number = 1
    while (name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return name if number == 1 else f"{name}_{number}"


class Tuned:
    """A file of `cellc tune`, as it was when it was loaded."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as f:
                self.data = f.read()
        except OSError as error:
            wrong = MissingFile if isinstance(error, FileNotFoundError) else CannotRead
            raise wrong(f"cannot read what was tuned, {path}: {error.strerror}") from None

    @property
    def text(self):
        return self.data.decode("utf-8", "surrogateescape")


def find_tuned(options, spec, kernels):
    """What kernels depend on of what `cellc tune` has written: the file that was given, or in CELLC_TUNED that of this
    cell. A file that was given has to be there, whether or not there are kernels that need it."""
    if options["tuned"]:
        return [options["tuned"]] if kernels and not options["schedule"] else []
    place = os.environ.get("CELLC_TUNED")
    if not place or not kernels or options["schedule"]:
        return []
    paths = [os.path.join(place, name + ".tune") for name in spec.cell_names()]
    return [Tuned(path) for path in paths if os.path.exists(path)]


def messages(text):
    """The compiler's warnings, less what it says of nvcc, which is said here, of a schedule that it found, and of
    the library's name and use."""
    said = re.compile(r"cellc build: .*, so the library has the reference only$"
                      r"|cellc build: (a program links with it by: |the library is )|cellc: \w+: tuned on ")
    return "\n".join(line for line in text.splitlines() if not said.match(line)).strip("\n")


def sort_messages(text):
    """(the text without performance warnings, each of these with the notes behind it)."""
    plain, slow, into = [], [], None
    for line in text.splitlines():
        head = HEAD.match(line)
        if head and head["severity"] == "performance warning":
            slow.append(into := [])
        elif head and head["severity"] != "note":
            into = plain
        (plain if into is None else into).append(line)
    return "\n".join(plain), ["\n".join(lines) for lines in slow]


def warn_of(text):
    """Says what the compiler said of a cell: all that is plain at once, of what is slow each."""
    plain, slow = sort_messages(text)
    if plain:
        once(plain, CellcWarning, USER + 1)
    for text in slow:
        once(text, PerformanceWarning, USER + 1)


def compile_apart(place, source, archs, progress):
    """The kernels of a file by NVRTC, for all architectures at once: {"90": name of the image}."""
    with open(os.path.join(place, source)) as f:
        text = f.read()

    def one(arch):
        name = f"{source[:-3]}.sm{arch}.cubin"
        with open(os.path.join(place, name), "wb") as f:
            f.write(nvrtc.compile_kernels(text, source, compiler.headers_dir(), arch))
        progress.update()
        return name

    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor() as pool:
        return dict(zip(archs.split(), pool.map(one, archs.split())))


class NotPacked(Exception):
    """A packed cell of which the CPU would run the plain C, where a padded one has kernels."""


class Built:
    """A library with its manifest, which can be asked for its sources: the compiler runs again. Where no C compiler is
    (not `plain`) the CPU is served by what came compiled with the package; the library of kernels is the runtime alone,
    and what the cell is it reads from tables."""

    def __init__(self, title, spec, dtype, settings, archs, by, plain, gpus, why, options, tuned):
        self.title, self.spec, self.dtype, self.settings = title, spec, dtype, settings
        self.has_kernels, self.why_no_kernels, self.plain = bool(archs), why, plain
        self.flags = ["--dtype", dtype]
        self.flags += ["--schedule", options["schedule"]] if options["schedule"] else []
        self.flags += ["--products", options["products"]] if options["products"] else []
        meaning = [spec.digest, spec.cell, sorted(settings.items()), dtype, options["schedule"], options["products"],
                   options["reverse"], options["lengths"], *(["packed"] if options["packed"] else [])]
        self.meaning = hashlib.sha256(repr(meaning).encode()).hexdigest()[:12]  # by whatever compiler, for whatever machine
        self.options = options                  # with which, and the spec, it can be built again
        self.tuned = ["--tuned", options["tuned"].path] if options["tuned"] else []
        self.pack = spec.pack + b"".join(compiler.entry("tuned", found.path, found.data) for found in tuned)
        self.place = {"CELLC_TUNED": "" if options["tuned"] or not tuned else os.path.dirname(tuned[0].path)}
        self.flags += [f"--{word}" for word in ("reverse", "lengths", "packed", "slots") if options.get(word)]
        for attempt in range(2):
            self.path = cache.get(title, lambda place: self.compile_shown(place, archs, by))
            try:
                info = cache.info(self.path)
                self.manifest = Manifest(os.path.join(self.path, info["manifest"]))
                self.library = self.open(info["manifest"][:-5], self.read_images(info, gpus))
                break
            except FileNotFoundError:      # somebody cleared the cache in between
                if attempt:
                    raise
        if options["packed"] and "has no kernels for the CPU" in info["said"]:
            raise NotPacked(info["said"])
        if info["said"]:
            warn_of(info["said"])

    def open(self, stem, images):
        self.has_reference, self.why_no_reference = True, ""
        if self.plain:
            # Its name is the cell's, but for those that libraries of the system have.
            names = [name for name in os.listdir(self.path) if name.startswith("lib") and name.endswith(".so")]
            if not names:
                raise FileNotFoundError(self.path)
            return Library(os.path.join(self.path, names[0]), self.manifest.entry("instance"), images)
        from . import prebuilt, tables           # which no other load waits for
        host, why = prebuilt.find(self.spec, self.manifest, self.settings)
        self.has_reference, self.why_no_reference = bool(host), f"{compiler.no_cc()}, and {why}"
        if not host and not self.has_kernels:
            raise BuildError(f"{self.manifest.name}: {self.why_no_reference}. Install one, as in apt-get "
                             "install gcc libc6-dev, or say in CC how yours is called")
        if not self.has_kernels:
            return host
        if not host:
            once(f"cellc: {self.manifest.name}: {self.why_no_reference}, so it runs on the GPU only")
        desc, kept = tables.read(os.path.join(self.path, stem + ".c"), compiler.headers_dir())
        return Library(os.path.join(compiler.library_dir(), "libcell.so"), None, images, ctypes.addressof(desc), kept,
                       host=host)

    def compile_shown(self, place, archs, by):
        """compile, which takes seconds, and kernels longer, so that a person who waits sees what for."""
        apart = archs.split() if by == "nvrtc" else []
        what = f"for the CPU and sm_{', sm_'.join(archs.split())} by {by}" if archs else "for the CPU"
        name = os.path.splitext(os.path.basename(self.spec.path))[0]
        with Progress(f"compiling {name} {what}", 1 + len(apart)) as progress:
            return self.compile(place, archs, by, progress)

    def compile(self, place, archs, by, progress):
        kernels = ["--archs", archs, *self.tuned] if archs else ["--no-cuda"]
        if self.plain:
            kernels += ["--kernels-apart"] if by == "nvrtc" else []
            kernels += ["--cpu", "native"]
            values = ",".join(f"{name}={value}" for name, value in self.settings.items())
            operand = self.spec.operand + ":" + values if values else self.spec.operand
            _, said = self.command("build", operand, *self.flags, *kernels, "-o", place, place=place)
        else:
            _, said = self.run("emit", *kernels, "-o", place)
        progress.update()
        written = [f for f in os.listdir(place) if f.endswith(".json")]
        images = compile_apart(place, written[0][:-5] + ".cu", archs, progress) if by == "nvrtc" else {}
        return {"manifest": written[0], "archs": archs, "said": messages(said), "spec": self.spec.path,
                "compiler": compiler.program(), "images": images}

    def read_images(self, info, gpus):
        """{number of a GPU: its kernels} where they are not in the library, else None."""
        if not info["images"]:
            return None
        found = {}
        for arch, name in info["images"].items():
            with open(os.path.join(self.path, name), "rb") as f:
                found[arch] = f.read()
        return {number: found.get(arch) for number, arch in (gpus or {}).items()}

    def command(self, *words, place=""):
        """A command of cellc's on the spec as it was loaded, whose operand is the spec's. `place` goes where a signal ends this
        process meanwhile."""
        return compiler.run([words[0], "--sources", "-", *words[1:]], self.pack, {**self.place, "CELLC_SCRATCH": place})

    def run(self, *command):
        """(what a command of cellc's says of this cell, what it warns of)."""
        dims = []
        if self.settings:        # bound or not, a dim is one of these
            manifest = json.loads(self.command("emit", "--kind", "manifest", self.spec.operand)[0])
            dims = [*manifest["bound"], *manifest.get("dims", manifest["sizes"][2:-1])]
        words = [word for name, value in self.settings.items()
                 for word in ("--dim" if name in dims else "--dtype-of" if name.startswith("dtype.") else "--set",
                              f"{name.removeprefix('dtype.')}={value}")]
        about_kernels = command[0] != "emit" or "--kind" not in command or command[-1] in ("cuda", "plan")
        shows_kernels = self.has_kernels and (command[0] == "explain" or command[-1] in ("cuda", "plan"))
        flags = self.flags if about_kernels else self.without("--schedule")
        return self.command(command[0], self.spec.operand, *command[1:], *flags, *(self.tuned if shows_kernels else []), *words)

    def without(self, option):
        """The flags less one that has a value."""
        at = self.flags.index(option) if option in self.flags else len(self.flags)
        return self.flags[:at] + self.flags[at + 2:]

    def ask(self, *command):
        """What a command says of the cell that was loaded, whatever its files hold by now."""
        changed = self.spec.changed()
        if changed:
            once(f"cellc: {self.manifest.name} is what was loaded ({self.spec.digest[:12]}); since then "
                 f"{' and '.join(changed)} changed, or went")
        return self.run(*command)[0]


def again(framework, spec, options):
    """What load gave, where it was pickled: the class of modules, or the function."""
    return importlib.import_module(f"{__package__}.with_{framework}").load(spec, options)
