"""The cellc program, found and run. In: a spec and its settings. Out: what the program wrote, or an exception with
what it said. Guaranteed: no shell is involved, and specs reach the program through its standard input, so names and
paths may hold any character; which files a spec imports only the compiler finds out."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile

from . import cache
from .errors import BuildError, CannotRead, MissingFile, MissingSpec, SpecError, TypeMismatch

HERE = os.path.dirname(os.path.abspath(__file__))
found_at = {}                        # what the environment says: the program that it leads to
known_parts = {}                     # the same: what the program says that it uses
faults = {}                          # (the C compiler, its words): why it is of no use, or None


def candidates():
    """Where the program may be, best first: what the user says, the wheel's, the source tree's, the PATH's."""
    if os.environ.get("CELLC"):
        yield os.environ["CELLC"]
        return
    yield os.path.join(HERE, "_home", "bin", "cellc")
    yield os.path.join(HERE, "..", "..", "build", "cellc")
    found = [os.path.join(d, "cellc") for d in os.environ.get("PATH", "").split(os.pathsep) if d]
    yield from (path for path in found if not is_script(path))


def is_script(path):
    """This package installs a `cellc` of its own, which would run itself for ever."""
    try:
        with open(path, "rb") as f:
            return f.read(2) == b"#!"
    except OSError:
        return True


def program():
    """The path of the compiler."""
    at = tuple(os.environ.get(name) for name in ("CELLC", "PATH"))
    if at in found_at and os.path.exists(found_at[at]):
        return found_at[at]
    for path in candidates():
        path = shutil.which(path)
        if path:
            found_at[at] = os.path.realpath(path)
            return found_at[at]
    raise BuildError("the cellc compiler is not there: install this package from a built source tree "
                     "(pip install ./python), or set CELLC to the program")


def home(*parts):
    """A directory that belongs to the program: the first of `parts` that is there, in a tree or an install."""
    root = os.path.dirname(os.path.dirname(program()))
    for part in parts:
        path = os.path.join(root, part)
        if os.path.exists(path):
            return path
    return None


def specs_dir():
    return home("specs", "share/cellc/specs")


def library_dir():
    beside = os.path.dirname(program())
    return beside if os.path.exists(os.path.join(beside, "libcell.a")) else home("build", "lib/cellc")


def parts():
    """What cellc uses on this machine, {"nvcc": path or "none"}: it looks at every call, as the environment
    may change."""
    names = ("CELLC_NVCC", "CUDA_HOME", "CUDA_PATH", "CELLC_HOME", "PATH")
    at = (program(), *[os.environ.get(name) for name in names])
    if at not in known_parts:
        lines = run(["version", "--verbose"])[0].splitlines()[1:]
        known_parts[at] = dict(line.partition(": ")[::2] for line in lines)
    return known_parts[at]


def nvcc():
    """The nvcc that cellc would use; None where there is none, or no C compiler, which nvcc calls."""
    found = parts().get("nvcc", "none")
    return found if found != "none" and cc() else None


def cc_key():
    """(The path of the C compiler or None, its words): what a fault of it is kept under."""
    words = os.environ.get("CC", "").split() or ["cc"]
    return (shutil.which(words[0]), *words)


def cc():
    """The C compiler that cellc would run; None where there is none, or where it is known to be of no use."""
    key = cc_key()
    return None if faults.get(key) else key[0]


PROBE = """#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
double probe(double x) { return tanh(x) + !getenv("X"); }
"""


def cc_fault():
    """Why the C compiler that is there makes no library of any program: no headers, say, or no linker; None:
    it does. Asked after a failure only, and known from then on."""
    key = cc_key()
    if key[0] and key not in faults:
        with tempfile.TemporaryDirectory(prefix="cellc-") as place:
            source = os.path.join(place, "probe.c")
            with open(source, "w") as f:
                f.write(PROBE)
            library = os.path.join(place, "probe.so")
            try:
                done = subprocess.run([*key[1:], "-shared", "-fPIC", source, "-o", library, "-lm", "-ldl"],
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      errors="replace")
                lines = done.stderr.splitlines() or ["no message"]
                said = next((line for line in lines if "error" in line), lines[0])
                faults[key] = said.replace(place + "/", "") if done.returncode else None
            except OSError as error:
                faults[key] = error.strerror
    return faults.get(key)


def no_cc():
    """What a message says of the C compiler that is missing."""
    key = cc_key()
    fault = faults.get(key)
    if not fault:
        return "there is no C compiler"
    return f"the C compiler that is there, {key[0]}, does not compile ({fault})"


def headers_dir():
    """Of the runtime and, in `device`, of kernels."""
    return home("runtime", "include/cellc")


def hash_file(path):
    """Of what is in a file; read again only where the file looks as if it had changed."""
    def read():
        with open(path, "rb") as f:
            return hashlib.blake2b(f.read()).hexdigest()

    return cache.remembered("hash", path, read)


def fingerprint():
    """Changes when the compiler, its runtime, or what decides how they compile changes."""
    lib = library_dir() or ""
    h = hashlib.sha256()
    for path in [program()] + [os.path.join(lib, name) for name in ("libcell.a", "libcell.flags")]:
        try:
            h.update(hash_file(path).encode())
        except OSError:
            h.update(b"absent")
    for name in ("CC", "CFLAGS", "NVCCFLAGS"):
        h.update(f"{name}={os.environ.get(name, '')}\0".encode())
    return h.hexdigest()


def is_resource(given):
    """Is it what importlib.resources.files gives of a package that is no folder? (Of others it gives paths.)"""
    return not isinstance(given, (str, os.PathLike)) and all(hasattr(given, name) for name in ("read_bytes", "iterdir", "is_dir"))


def specs_below(home, before=""):
    """{"lib/common.cell": its text} of a package's resources from this one on."""
    found = {}
    for part in home.iterdir():
        if part.is_dir():
            found.update(specs_below(part, f"{before}{part.name}/"))
        elif part.name.endswith(".cell"):
            found[before + part.name] = part.read_bytes()
    return found


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as error:
        raise CannotRead(f"cannot read '{path}': {error.strerror}") from None


def specs_in(folder):
    """{name of a spec's file: its text}."""
    try:
        paths = {name: os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".cell")}
    except OSError as error:
        raise CannotRead(f"cannot read '{folder}': {error.strerror}") from None
    return {name: read(path) for name, path in paths.items() if os.path.isfile(path)}


def only_spec(folder, texts, cell):
    """The file of a folder that is meant: the one called like the folder, or else the only one that has a cell; where one of
    its cells is named, the only one that has that."""
    own = os.path.basename(os.path.normpath(folder)) + ".cell"
    if cell is None and own in texts:
        return own
    found = sorted(name for name, text in texts.items() if holds_cell(text, cell))
    if len(found) == 1:
        return found[0]
    what = f"cell {cell}" if cell else "cell"
    if not found:
        raise MissingFile(f"'{folder}' is a directory in which no spec has a {what}")
    raise MissingFile(f"'{folder}' is a directory in which several specs have a {what}: {', '.join(found)}; wanted one of "
                      f"them, as in '{os.path.join(folder, found[0])}'")


def holds_cell(text, cell):
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text.decode("utf-8", "replace"), flags=re.S)
    return any(cell in (None, name) for name in re.findall(r"\bcell\s+(\w+)\s*\{", bare))


class Spec:
    """A spec as it was when it was loaded, with all that it imports: from a file, from the cells that come with cellc, or
    text. Its `pack` is what `cellc sources --pack` gives; commands read that and no file, so that a cell stays what it is
    while files change, in another directory, and pickled on another machine. `digest` is a hash of all texts."""

    def __init__(self, given, import_dir=None):
        if import_dir and not os.path.isdir(import_dir):
            raise MissingFile(f"import_dir is '{import_dir}', which is no directory")
        words = ["--sources", "-", *(["--import-dir", os.path.abspath(import_dir)] if import_dir else []), "-"]
        if is_resource(given):
            self.read_resource(given, words)
            return
        if not isinstance(given, (str, os.PathLike)):
            raise TypeMismatch(f"spec is a {type(given).__name__}; wanted a path, the name of a cell, or the text "
                               "of a spec")
        text = isinstance(given, str) and ("{" in given or "\n" in given) and not os.path.isfile(given)
        given, cell = os.fspath(given), None
        if not text and not os.path.isfile(given) and re.search(r":\w+$", given):        # of a file with several
            given, _, cell = given.rpartition(":")
        if text:
            name = re.search(r"^\s*cell\s+(\w+)", given, re.M)
            path, data = (name[1] if name else "spec") + ".cell", given.encode("utf-8", "surrogateescape")
        else:
            path = self.find(given, cell)
            data = read(path)
        pack = run_bytes(["sources", "--pack", *words], PACK + entry("spec", path, data))[0]
        self.set(pack, int(text), os.getcwd(), cell)

    def read_resource(self, given, words):
        """One of a package that is no folder, such as an archive. What it imports is looked for in the same place of the
        package, and then where imports of files are."""
        home = given if given.is_dir() else given.parent
        folder, there = str(home), specs_below(home)
        name = only_spec(folder, {n: t for n, t in there.items() if "/" not in n}, None) if given is home else given.name
        if name not in there:
            raise MissingFile(f"there is no resource '{given}'" + ("" if name.endswith(".cell") else ", whose name ends in .cell"))
        spec = PACK + entry("spec", os.path.join(folder, name), there.pop(name))
        others = {os.path.join(folder, n): text for n, text in there.items()}
        every = spec + b"".join(entry("import", path, text) for path, text in others.items())
        used = run_bytes(["sources", "--null", *words], every)[0].split(b"\0")
        spec += b"".join(entry("import", path, text) for path, text in others.items() if os.fsencode(path) in used)
        pack = run_bytes(["sources", "--pack", *words], spec)[0]
        self.set(pack, len(read_pack(pack)), os.getcwd(), None)

    def set(self, pack, inline, where, cell):
        """`where` is the directory that relative paths in the pack begin at; `inline`: how many of its first texts no file
        has; `cell`: which one of the file's, or None. `operand` names that to commands which have the pack."""
        self.pack, self.inline, self.where, self.cell = pack, inline, where, cell
        self.operand = f"-:{cell}" if cell else "-"
        self.files = [(path, text) for kind, path, text in read_pack(pack) if kind in ("spec", "import")]
        self.path, data = self.files[0]
        self.text = data.decode("utf-8", "surrogateescape")
        h = hashlib.sha256()
        for _, text in self.files:
            h.update(hashlib.sha256(text).digest())
        self.digest = h.hexdigest()

    def __reduce__(self):
        return spec_again, (self.pack, self.inline, self.where, self.cell)

    def __repr__(self):
        return f"<spec {self.path} {self.digest[:12]}>"

    @staticmethod
    def find(given, cell=None):
        if os.path.isfile(given):
            return given
        shipped = os.path.join(specs_dir() or "", given + ".cell")
        if not re.search(r"[./]", given) and os.path.isfile(shipped):
            return shipped
        if os.path.isdir(given):
            return os.path.join(given, only_spec(given, specs_in(given), cell))
        if re.search(r"[./]", given):
            raise MissingFile(f"there is no file '{given}'")
        try:
            run(["emit", "--kind", "manifest", "--", given])     # cellc says what it has of a similar name
        except SpecError as said:
            raise MissingSpec(str(said)) from None
        raise MissingFile(f"there is no file '{given}', and no cell of that name comes with cellc")

    def places(self):
        """Where its files were, but for a text that no file has."""
        return [os.path.join(self.where, path) for path, _ in self.files[self.inline:]]

    def changed(self):
        """The files that are now other than they were when the spec was loaded, or gone."""
        found = []
        for place, (path, text) in zip(self.places(), self.files[self.inline:]):
            try:
                with open(place, "rb") as f:
                    same = f.read() == text
            except OSError:
                same = False
            if not same:
                found.append(path)
        return found

    def cell_names(self):
        """What the cell may be called: every name behind `cell`, in comments too. More than there are does no harm."""
        bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", self.text, flags=re.S)
        return sorted({name for text in (self.text, bare) for name in re.findall(r"\bcell\s+(\w+)", text)})


def spec_again(*what):
    spec = Spec.__new__(Spec)
    spec.set(*what)
    return spec


PACK = b"cellc sources 1\n"           # how what `cellc sources --pack` prints begins


def entry(kind, path, text):
    """A text in a pack."""
    path = os.fsencode(path)
    return b"%s %d %d\n%s\n%s\n" % (kind.encode(), len(path), len(text), path, text)


def read_pack(pack):
    """[(kind, path, text)]"""
    found, at = [], len(PACK)
    while at < len(pack):
        end = pack.index(b"\n", at)
        kind, path, text = pack[at:end].split()
        start, path, text = end + 1, int(path), int(text)
        found.append((kind.decode(), os.fsdecode(pack[start:start + path]), pack[start + path + 1:start + path + 1 + text]))
        at = start + path + text + 2
    return found


def run_bytes(arguments, pack=None, more=None):
    """Runs cellc; gives (stdout as bytes, stderr) or raises what its exit status means. `pack` is its standard input,
    `more` what else is in its environment."""
    env = {**os.environ, **(more or {}), "CELLC_PARENT": str(os.getpid())}
    try:
        child = subprocess.Popen([program(), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    except OSError as error:
        raise BuildError(f"cannot run {program()}: {error}") from None
    try:
        out, said = child.communicate(pack or b"")
    except BaseException:               # as KeyboardInterrupt: it ends what it runs, and its temporary files
        child.terminate()
        try:
            child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
        raise
    said = said.decode(errors="replace")
    if child.returncode == 0:
        return out, said
    text = said.strip("\n")
    if child.returncode == 2 or (child.returncode == 1 and re.search(r"^(\S.*:\d+:\d+: |cellc: )?error: ", text, re.M)
                                and "were not compiled" not in text):
        raise SpecError(text)
    raise BuildError(text or f"cellc {arguments[0]} ended with status {child.returncode}")


def run(arguments, pack=None, more=None):
    """The same, stdout as text."""
    out, said = run_bytes(arguments, pack, more)
    return out.decode(errors="replace"), said
