"""Puts the compiler, the runtime and the specs into the wheel, as `make install` lays them out, in cellc/_home, and the
specs as machine code for CPUs, as prebuild.py has it. In: the source tree around this directory. Out: a wheel for this
kind of machine and any Python 3."""

import os
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)


def strip(path):
    """Takes names and lines for debuggers off, where there is a program for that."""
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", path], check=True)


class WithCompiler(build_py):
    def run(self):
        super().run()
        if not os.path.exists(os.path.join(TREE, "gen", "main.c")):
            raise SystemExit("the compiler's sources are not beside this directory: install from the source tree, as "
                             "in pip install ./python")
        home = os.path.abspath(os.path.join(self.build_lib, "cellc", "_home"))
        prefix = home.replace("$", "$$")               # as make has it
        subprocess.run(["make", "-C", TREE, "install", f"PREFIX={prefix}", "DESTDIR="], check=True)
        strip(os.path.join(home, "bin", "cellc"))      # every load reads all of it, to see whether it is the same
        strip(os.path.join(home, "lib", "cellc", "libcell.so"))
        sys.path.insert(0, HERE)
        from prebuild import prebuild
        prebuild(TREE, home)


class ForThisMachine(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": WithCompiler, "bdist_wheel": ForThisMachine})
