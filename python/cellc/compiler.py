"""The cellc program, found and run. In: a spec and its settings. Out: what the program wrote, or an exception with
what it said. Guaranteed: no shell is involved, so names and paths may hold any character but those that cellc itself
gives a meaning (`:` and `,` behind a spec)."""

import hashlib
import os
import re
import shutil
import subprocess

from . import cache
from .errors import BuildError, SpecError, TypeMismatch

HERE = os.path.dirname(os.path.abspath(__file__))
found_at = {}                        # what the environment says: the program that it leads to
IMPORT = re.compile(r'^\s*import\s*"([^"\n]*)"', re.M)


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


def nvcc():
    """The nvcc that cellc was built with and would use; None where there is none."""
    path = os.path.join(library_dir() or "", "libcell.flags")
    try:
        with open(path) as f:
            words = dict(line.rstrip("\n").partition(" ")[::2] for line in f)
    except OSError:
        return None
    found = words.get("nvcc", "").strip()
    return found if found and os.access(found, os.X_OK) else None


def cc():
    """The C compiler that cellc would run; None where there is none."""
    words = os.environ.get("CC", "").split() or ["cc"]
    return shutil.which(words[0])


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


class Spec:
    """A spec as the user gave it: a file, the name of a cell that comes with cellc, or text."""

    def __init__(self, given):
        if not isinstance(given, (str, os.PathLike)):
            raise TypeMismatch(f"spec is a {type(given).__name__}; wanted a path, the name of a cell, or the text of a spec")
        given = os.fspath(given)
        self.given = given
        self.inline = "{" in given or "\n" in given
        if self.inline:
            name = re.search(r"^\s*cell\s+(\w+)", given, re.M)
            self.path, self.text = (name[1] if name else "spec") + ".cell", given
            return
        self.path = self.find(given)
        with open(self.path, encoding="utf-8", errors="surrogateescape") as f:
            self.text = f.read()

    @staticmethod
    def find(given):
        if os.path.isfile(given):
            return given
        shipped = os.path.join(specs_dir() or "", given + ".cell")
        if not re.search(r"[./]", given) and os.path.isfile(shipped):
            return shipped
        if re.search(r"[./]", given):
            raise FileNotFoundError(f"there is no file '{given}'")
        run(["emit", "--kind", "manifest", given], None)     # cellc says what it has of a similar name
        raise FileNotFoundError(f"there is no file '{given}', and no cell of that name comes with cellc")

    def cell_names(self):
        """What the cell may be called: every name behind `cell`, in comments too. More than there are does no harm."""
        bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", self.text, flags=re.S)
        return sorted({name for text in (self.text, bare) for name in re.findall(r"\bcell\s+(\w+)", text)})

    def imports(self, import_dir):
        """Every file that an import of the spec may mean, and theirs. More than are read does no harm."""
        places = [os.path.dirname(self.path), import_dir or os.curdir, specs_dir() or ""]
        found, texts = {}, [(self.text, places)]
        while texts:
            text, dirs = texts.pop()
            for name in IMPORT.findall(text):
                for path in {os.path.realpath(os.path.join(d, name)) for d in dirs}:
                    if path in found or not os.path.isfile(path):
                        continue
                    with open(path, encoding="utf-8", errors="surrogateescape") as f:
                        found[path] = f.read()
                    texts.append((found[path], [os.path.dirname(path), *places]))
        return [found[path] for path in sorted(found)]

    def operand(self, settings, place):
        """(the spec with its settings as cellc's command line takes them, the directory to run in). Text is put into a
        file in `place`, so that messages call it by the cell's name, and what it imports from here beside it."""
        path, where = self.path, None
        if self.inline:
            where = place
            write(os.path.join(place, path), self.text)
            self.copy_imports(place)
        if ":" in path:
            raise SpecError(f"error: the path '{path}' has a ':', which cellc takes for the start of settings")
        return path + ":" + ",".join(f"{k}={v}" for k, v in settings.items()) if settings else path, where

    def copy_imports(self, place):
        texts, done = [self.text], set()
        while texts:
            for name in IMPORT.findall(texts.pop()):
                if os.path.isabs(name) or ".." in name.split("/") or name in done or not os.path.isfile(name):
                    continue
                done.add(name)
                with open(name, encoding="utf-8", errors="surrogateescape") as f:
                    texts.append(f.read())
                write(os.path.join(place, name), texts[-1])


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as f:
        f.write(text)


def run(arguments, cwd):
    """Runs cellc; gives (stdout, stderr) or raises what its exit status means."""
    try:
        done = subprocess.run([program(), *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace")
    except OSError as error:
        raise BuildError(f"cannot run {program()}: {error}") from None
    if done.returncode == 0:
        return done.stdout, done.stderr
    text = done.stderr.strip("\n")
    if done.returncode == 2 or (done.returncode == 1 and re.search(r"^(\S.*:\d+:\d+: |cellc: )?error: ", text, re.M)
                                and "were not compiled" not in text):
        raise SpecError(text)
    raise BuildError(text or f"cellc {arguments[0]} ended with status {done.returncode}")
