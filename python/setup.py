"""Puts the compiler, the runtime and the specs into the wheel, as `make install-parts` lays them out, in
cellc/_home, and the specs as machine code for CPUs, as prebuild.py has it. In: the source tree around this
directory or, in a source distribution, in `tree` below it. Out: a wheel for this kind of machine and any
Python 3, which uses what it finds where it is installed; a source distribution with all that this takes.
Guaranteed: a tree that cannot be written to is built in a temporary folder of links to it."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = os.path.dirname(os.path.abspath(__file__))
PACKED = os.path.join(HERE, "tree")
TREE = PACKED if os.path.isdir(PACKED) else os.path.dirname(HERE)
# What a tree is built and installed from.
TIMING = ["call.c", "call.h", "results.c", "footprint.c", "footprint.h", "tune.c", "time.c"]
SOURCES = ["LICENSE", "README.md", "Makefile", "gen", "templates", "runtime", "ladder", "specs", "man/cellc.1",
           "packaging", "tests/emulator", *[f"bench/{name}" for name in TIMING]]
TOOLS = {"make": "make", "cc": "gcc libc6-dev", "flex": "flex", "bison": "bison", "ar": "binutils"}


def temporary(name):
    """A folder that is there until this process ends."""
    place = tempfile.mkdtemp(prefix=f"cellc-{name}-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return place


def can_write(path):
    return os.access(path, os.W_OK) if os.path.exists(path) else os.access(os.path.dirname(path), os.W_OK)


def tree_to_build():
    """The tree, or a temporary folder of links to what it has, in which a build directory can be made."""
    if can_write(os.path.join(TREE, "build")):
        return TREE
    place = temporary("tree")
    for name in os.listdir(TREE):
        if not name.startswith(("build", ".")):
            os.symlink(os.path.join(TREE, name), os.path.join(place, name))
    return place


def check_tools():
    """Says all that is missing at once, with what installs it, before anything is compiled."""
    words = {"cc": (os.environ.get("CC") or "cc").split()[0], **{name: os.environ.get(name.upper()) or name
                                                                 for name in ("flex", "bison")}}
    missing = [name for name in TOOLS if not shutil.which(words.get(name, name))]
    if missing:
        raise SystemExit("cellc is compiled when it is installed from its sources, and this machine lacks "
                         f"{', '.join(words.get(name, name) for name in missing)}. On Debian and Ubuntu: "
                         f"apt-get install {' '.join(TOOLS[name] for name in missing)}. A wheel needs none "
                         "of them.")


def strip(path):
    """Takes names and lines for debuggers off, where there is a program for that."""
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", path], check=True)


def one_library(place):
    """A wheel has no links: the library under the name that the package opens."""
    real = os.path.realpath(os.path.join(place, "libcell.so"))
    for name in [name for name in os.listdir(place) if name.startswith("libcell.so")]:
        if os.path.islink(os.path.join(place, name)):
            os.unlink(os.path.join(place, name))
    os.rename(real, os.path.join(place, "libcell.so"))
    strip(os.path.join(place, "libcell.so"))


class WithCompiler(build_py):
    def run(self):
        super().run()
        if not os.path.exists(os.path.join(TREE, "gen", "main.c")):
            raise SystemExit("the compiler's sources are not beside this directory: install from the source tree, as "
                             "in pip install ./python, or from a source distribution or a wheel")
        check_tools()
        tree = tree_to_build()
        home = os.path.abspath(os.path.join(self.build_lib, "cellc", "_home"))
        shutil.rmtree(home, ignore_errors=True)
        prefix = home.replace("$", "$$")               # as make has it
        subprocess.run(["make", "-C", tree, "install-parts", f"PREFIX={prefix}", "DESTDIR=", "PORTABLE=1"],
                       check=True)
        strip(os.path.join(home, "bin", "cellc"))      # every load reads all of it, to see whether it is the same
        one_library(os.path.join(home, "lib", "cellc"))
        sys.path.insert(0, HERE)
        from cellc import fast
        fast.compile_to(os.path.join(home, "lib", "cellc"))
        strip(os.path.join(home, "lib", "cellc", fast.LIBRARY))
        from prebuild import prebuild
        prebuild(tree, home)


class ForThisMachine(bdist_wheel):
    """Any Python 3: what is compiled knows nothing of Python, or wants its stable ABI and is left out where it is older."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """The wheel's files go where those of one platform go, not among those of all."""

    def has_ext_modules(self):
        return True


class WithTree(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        if os.path.islink(os.path.join(base_dir, "LICENSE")):
            os.unlink(os.path.join(base_dir, "LICENSE"))
        shutil.copyfile(os.path.join(TREE, "LICENSE"), os.path.join(base_dir, "LICENSE"))
        shutil.copy(os.path.join(HERE, "prebuild.py"), base_dir)
        for name in SOURCES:
            source, target = os.path.join(TREE, name), os.path.join(base_dir, "tree", name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, target)


def places():
    """Where setuptools writes: beside this file, or where that cannot be, in a temporary folder."""
    if can_write(os.path.join(HERE, "build")):
        return {}
    place = temporary("build")
    return {"egg_info": {"egg_base": place}, "build": {"build_base": os.path.join(place, "build")},
            "bdist_wheel": {"bdist_dir": os.path.join(place, "bdist")}}


setup(cmdclass={"build_py": WithCompiler, "bdist_wheel": ForThisMachine, "sdist": WithTree}, distclass=Binary,
      options=places())
