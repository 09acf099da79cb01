"""Cells that came compiled with the package: every one against the same spec compiled here in f64, sizes that are chosen
at run time, and what is said of cells that did not come. Skipped aloud where the package was installed without."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import OPEN, bound_dims, shipped

import cellc
from cellc import build, compiler, prebuilt

if not prebuilt.instances():
    pytest.skip("this package was installed without cells that are compiled (CELLC_PREBUILT)", allow_module_level=True)


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    """As a machine without a C compiler, and without a cache."""
    monkeypatch.setenv("CC", "/no/cc")
    monkeypatch.setenv("CELLC_CACHE", str(tmp_path / "cache"))
    build.made.clear()
    yield
    build.made.clear()


def draw(m, dims):
    """Params, inputs and states of a call."""
    g = np.random.default_rng(3)

    def one(t):
        shape = t.shape({**dims, "B": 2, "T": 3})
        if t.dtype == "i32":
            return g.integers(0, 2, shape).astype("i4")
        z = np.asarray(0.3 * g.normal(size=shape))
        return z + 0.3j * g.normal(size=shape) if t.dtype == "c128" else z

    return {t.name: one(t) for t in m.params}, [one(t) for t in m.inputs], [one(t) for t in m.states]


def single(a):
    return a if a.dtype == np.int32 else a.astype("c8" if a.dtype.kind == "c" else "f4")


def results(cell, params, inputs, states):
    m = cell.manifest
    y, last, pull = cell.vjp(params, *inputs, state=states or None, t0=5 if m.counts_steps and states else None)
    outs = [*(y if len(m.outputs) > 1 else [y]), *last]
    weights = [np.cos(np.arange(o.size).reshape(o.shape)).astype(o.dtype) for o in outs]
    found = pull(weights[:len(m.outputs)] if len(m.outputs) > 1 else weights[0], weights[len(m.outputs):])
    return outs + [a for a in [*found.params.values(), *found.inputs, *found.state] if a is not None]


def relative(a, b):
    return np.sqrt(np.mean(np.abs(a - b) ** 2)) / max(np.sqrt(np.mean(np.abs(b) ** 2)), 1e-6)


@pytest.mark.parametrize("name", shipped())
def test_every_cell(name, no_compiler, monkeypatch):
    own = [e for e in prebuilt.instances() if e["name"] == name]
    if not own:
        pytest.skip(f"{name} was left out (CELLC_PREBUILT)")
    settings = {dim: size for dim, size in bound_dims(name).items() if dim not in own[0]["bound"]}
    came = cellc.load(name, framework="numpy", settings=settings)
    monkeypatch.undo()
    monkeypatch.setenv("CFLAGS", "-O1")          # as test_specs has it, so that it is compiled once
    made = cellc.load(name, framework="numpy", dtype="f64", settings=settings)
    assert "libcells" in came.library.path and "libcells" not in made.library.path
    params, inputs, states = draw(made.manifest, dict(zip(made.manifest.dims, OPEN)))
    wanted = results(made, params, inputs, states)
    found = results(came, {n: single(a) for n, a in params.items()}, *([single(a) for a in x] for x in (inputs, states)))
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        # f32 against f64: sums of some tens of products, three steps of them.
        assert a.shape == b.shape and relative(a, b) < 1e-4


def test_sizes_are_chosen_at_run_time(no_compiler, tmp_path):
    for n in (4, 7, 32):
        cell = cellc.load("e79", N=n)
        y, state = cell(D=3)(torch.randn(2, 5, 3))
        assert y.shape == (2, 5, n) and state.S.shape == (2, n, n)
        assert cell.manifest.bound == {"N": str(n)} and f"N={n}" in cell.explain()
    kept = sorted(name for name in os.listdir(tmp_path / "cache") if not name.startswith("."))
    assert kept[0].startswith("e79-N32-f32-no_cc-cpu-")
    y.sum().backward()
    with pytest.raises(cellc.ShapeError, match=r"x has shape \[2, 5, 4\]; wanted \[B, T, D\] with D = 3"):
        cell(D=3)(torch.randn(2, 5, 4))
    with pytest.raises(cellc.SpecError, match="N=0: a dim is a whole number"):
        cellc.load("e79", N=0)


@pytest.mark.parametrize("spec, options, why", [
    ("cell mine { dim N; input x[N]; output y[N]; y[i] = 2 * x[i]; }", {}, "it is not one of the cells that come compiled"),
    ("e88", {"eps": 1e-3}, "it comes compiled with its own eps only"),
    ("lstm", {"dtype": "f16"}, "it comes compiled in f32 only"),
    ("lstm", {"reverse": True}, "it does not come compiled with reverse or lengths"),
    ("titans", {"momentum": "none", "read": "before"},
     "it does not come compiled with momentum=none and read=before"),
    ("rhn", {"DEPTH": 5}, "it comes compiled with DEPTH=3 only")])
def test_what_did_not_come(spec, options, why, no_compiler):
    with pytest.raises(cellc.BuildError, match=f"there is no C compiler, and {why}.*apt-get install gcc"):
        cellc.load(spec, **options)


def test_a_spec_of_the_same_name_is_another(no_compiler, tmp_path):
    with open(os.path.join(compiler.specs_dir(), "gru.cell")) as f:
        text = f.read()
    (tmp_path / "gru.cell").write_text(text)
    assert "libcells" in cellc.load(tmp_path / "gru.cell").instance.library.path
    (tmp_path / "gru.cell").write_text(text.replace("tanh", "sin"))
    with pytest.raises(cellc.BuildError, match="gru: .* not one of the cells that come compiled"):
        cellc.load(tmp_path / "gru.cell")


PROGRAM = """
import os, shutil, cellc, numpy, sys
assert not any(shutil.which(p) for p in ("cc", "gcc", "clang", "nvcc", "as", "ld"))
lstm = cellc.load("lstm", framework="numpy")
y, _ = lstm(lstm.init(0, D=5, H=7), numpy.ones((2, 3, 5), "f4"))
needs = {line.split()[-1].rpartition("/")[2] for line in open("/proc/self/maps") if "/" in line}
print(y.shape, [n for n in needs if "cublas" in n or "cudart" in n])
"""


def test_a_path_without_programs(tmp_path):
    env = {"PATH": str(tmp_path), "CELLC_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert done.stdout == "(2, 3, 7) []\n", done.stderr
