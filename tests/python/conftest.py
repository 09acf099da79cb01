"""What all tests of the Python package share: small sizes for any spec, and the closing line that counts them."""

import os
import re
import warnings

import pytest
import torch

import cellc
from cellc import compiler
from cellc.ops import DTYPES

# The sizes of tests/ladder/collection.sh: small, and different from each other, so that exchanged axes show.
BOUND = (4, 3, 5, 2, 2, 2)
OPEN = (3, 2, 4, 2, 3)

torch.set_num_threads(1)


def pytest_configure(config):
    warnings.filterwarnings("ignore", category=cellc.CellcWarning, message=".*sees no GPU.*")


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:.*sees no GPU.*"))


def pytest_unconfigure(config):
    """The last line is the sum, as of every suite of this repository."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        return
    count = {key: len(reporter.stats.get(key, [])) for key in ("passed", "failed", "error", "skipped")}
    failed = count["failed"] + count["error"]
    print(f"{count['passed']} passed, {failed} failed" + (f", {count['skipped']} skipped" if count["skipped"] else ""))


def shipped():
    names = sorted(name[:-5] for name in os.listdir(compiler.specs_dir()) if name.endswith(".cell"))
    return [name for name in names if name != "std"]


def bound_dims(name):
    """The dims of a spec that have a value, with small ones in its place."""
    with open(os.path.join(compiler.specs_dir(), name + ".cell")) as f:
        text = re.sub(r"//.*", "", f.read())
    lines = re.findall(r"^    dim ([^;]*);", text, re.M)
    names = re.findall(r"(\w+) = ", " ".join(line + " " for line in lines))
    return dict(zip(names, BOUND))


def open_dims(cls):
    return dict(zip(cls.instance.manifest.dims, OPEN))


def stored(tensor, dtype):
    return DTYPES[tensor.dtype] if tensor.dtype[0] == "c" else dtype


def random_inputs(cls, batch, steps, dims, dtype=torch.float64, requires_grad=False):
    found = []
    for t in cls.instance.manifest.inputs:
        shape = t.shape({**dims, "B": batch, "T": steps})
        if t.dtype == "i32":       # places, in axes of two or more
            found.append(torch.randint(2, shape, dtype=torch.int32))
        else:
            x = torch.randn(shape, dtype=stored(t, dtype)).mul(0.7)
            found.append(x.requires_grad_(requires_grad and t.gradient))
    return found


def random_state(cls, batch, dims, dtype=torch.float64, requires_grad=False):
    return [torch.randn(t.shape({**dims, "B": batch}), dtype=stored(t, dtype)).mul(0.3).requires_grad_(requires_grad)
            for t in cls.instance.manifest.states]
