"""`python -m cellc doctor`: what this Python finds, in front of what the compiler finds on the machine. In:
the packages of this interpreter, each imported only if it is there. Out: a line for each, what compiles
kernels here, and where what was compiled is kept; with --json one object, of which "python" is this part.
Guaranteed: a package that does not import is said with its error, and hides nothing of the rest; the exit
code is the compiler's."""

import importlib
import importlib.util
import json
import os
import platform
import subprocess
import sys

from . import build, cache, compiler, fast, nvrtc
from .errors import CellcError


def torch_says(torch):
    """(version, what it computes on)."""
    if not torch.cuda.is_available():
        made_for = (
            f"was made for CUDA {torch.version.cuda}" if torch.version.cuda else "was made without CUDA"
        )
        return torch.__version__, f"{made_for} and sees no GPU: cells run on the CPU"
    gpus = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    return torch.__version__, f"CUDA {torch.version.cuda}, sees {gpus}"


def jax_says(jax):
    return jax.__version__, f"computes on {', '.join(sorted({device.platform for device in jax.devices()}))}"


def numpy_says(numpy):
    return numpy.__version__, "cells run on the CPU"


FRAMEWORKS = {"torch": torch_says, "jax": jax_says, "numpy": numpy_says}


def framework(name):
    """What is said of it: {"version", "says"}, None where it is not installed."""
    if importlib.util.find_spec(name) is None:
        return None
    try:
        version, says = FRAMEWORKS[name](importlib.import_module(name))
    except Exception as error:  # whatever keeps it from working here is what is asked for
        first = (str(error).splitlines() or [""])[0]
        return {"version": None, "says": f"does not work: {type(error).__name__}: {first}"}
    return {"version": version, "says": says}


def kernels():
    """What compiles kernels that Python loads, in words."""
    try:
        by = build.kernel_compiler()
    except CellcError as error:
        return str(error)
    if by == "nvrtc":
        return f"NVRTC {nvrtc.version()}, as there is no nvcc and C compiler"
    return f"nvcc, {compiler.nvcc()}" if by else "none: neither nvcc nor NVRTC"


def calls():
    """How calls like an earlier one go."""
    found = fast.fast()
    return "in C" if found.there else f"in Python only: {found.why}"


def facts():
    program = compiler.program()
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "package": os.path.dirname(__file__),
        "compiler": program,
        "kernels": kernels(),
        "plain_c": compiler.cc() or "none: cells that came compiled run, no others",
        "calls": calls(),
        "cache": str(cache.root()),
        **{name: framework(name) for name in FRAMEWORKS},
    }


def row(title, text):
    print(f"  {title:13} {text}")


def main(words):
    """Prints all of it, and gives the exit code of the compiler's part."""
    if any(word in ("--help", "-h") for word in words):
        return subprocess.run([compiler.program(), "doctor", *words], check=False).returncode
    found = facts()
    command = [found["compiler"], "doctor", *words]
    if "--json" in words:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode > 1:  # wrong usage, which it said
            sys.stderr.write(done.stderr)
            return done.returncode
        print(json.dumps({"python": found, **json.loads(done.stdout)}, indent=2))
        return done.returncode
    print("cellc in Python")
    row("Python", f"{found['python']}, {found['executable']}")
    row("package", found["package"])
    for name in FRAMEWORKS:
        said = found[name]
        row(name, f"{said['version'] or ''} {said['says']}".strip() if said else "not installed")
    row(
        "kernels",
        f"compiled by {found['kernels']}" if not found["kernels"].startswith("none") else found["kernels"],
    )
    row("plain C", found["plain_c"])
    row("calls", found["calls"])
    row("cache", found["cache"])
    print(flush=True)
    return subprocess.run(command, check=False).returncode
