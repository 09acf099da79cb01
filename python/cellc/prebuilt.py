"""Cells that came with the package as machine code, for a CPU without a C compiler. In: a spec and the manifest of what
is wanted of it. Out: the library that has it, or why none does. Guaranteed: what is found computes that spec, with these
options and constants, and nothing is taken that only has its name; dims that the library leaves to the run time are put
among the sizes of a call."""

import json
import os
import platform

from . import compiler
from .native import Library


def machine():
    return f"{platform.system()} {platform.machine()}"


def identity(spec):
    """Of the text of a spec and of all that it imports."""
    return spec.digest[:16]


def place():
    return compiler.home("prebuilt")


def instances():
    """What index.json lists; nothing where the package was installed without, or on another kind of machine."""
    try:
        with open(os.path.join(place() or "", "index.json")) as f:
            data = json.load(f)
    except OSError:
        return []
    return data["instances"] if data["machine"] == machine() else []


def agrees(entry, manifest):
    """Does an instance compute what the manifest says, given the dims that it leaves open?"""
    return (entry["dtype"] == manifest.dtype and entry["options"] == manifest.options
            and all(manifest.bound.get(dim) == value for dim, value in entry["bound"].items()))


def find(spec, manifest, settings):
    """(the library or None, why there is none)."""
    listed = instances()
    if not listed:
        return None, "no cells came compiled with this package"
    own = [entry for entry in listed if entry["spec"] == identity(spec)]
    if not own:
        return None, "it is not one of the cells that come compiled"
    constants = [name for name in settings if name not in manifest.bound and name not in manifest.options
                 and name not in manifest.dims]
    if constants:
        return None, f"it comes compiled with its own {constants[0]} only"
    if manifest.data["reverse"] or manifest.data["lengths"] or manifest.packed:
        return None, "it does not come compiled with reverse, lengths or packed"
    for entry in own:
        if agrees(entry, manifest):
            return open_library(entry, manifest), ""
    return None, differs(own, manifest)


def differs(own, manifest):
    """What no instance of a spec has in common with the manifest; the first one has the default options."""
    dtypes = sorted({entry["dtype"] for entry in own})
    if manifest.dtype not in dtypes:
        return f"it comes compiled in {' or '.join(dtypes)} only"
    for dim, value in own[0]["bound"].items():
        if manifest.bound.get(dim) != value:
            return f"it comes compiled with {dim}={value} only"
    changed = [f"{k}={v}" for k, v in manifest.options.items() if own[0]["options"].get(k) != v]
    return f"it does not come compiled with {' and '.join(changed) or 'these options'}"


def open_library(entry, manifest):
    """Calls have the sizes of the manifest; the library wants those of dims that were bound besides."""
    known = {name: int(value) for name, value in manifest.bound.items()}
    at = {name: i for i, name in enumerate(manifest.sizes)}

    def widen(sizes):
        return [sizes[at[name]] if name in at else known[name] for name in entry["sizes"]]

    return Library(os.path.join(place(), entry["library"]), entry["instance"], widen=widen)
