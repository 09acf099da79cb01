"""A cell is what was loaded, wherever it goes: copies, averages, pickles in other processes, what it says of itself; the
files that it was loaded from are edited, moved and deleted meanwhile. In all frameworks."""

import copy
import os
import pickle
import subprocess
import sys
import warnings

import numpy
import pytest
import torch

import cellc
from cellc import build, compiler

SPEC = 'import "part.cell"; cell user { dim D; option how = plain | twice; input x[D]; param w[D] ~ ones; output y[D];\n' \
       "    when how == plain { y[i] = more(w[i] * x[i]); } else { y[i] = 2 * more(w[i] * x[i]); } }"
OTHER = "cell user { dim D; option how = plain | twice; input x[D]; param w[D] ~ ones; output y[D]; y[i] = 100 * w[i] * x[i]; }"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with the spec, where relative paths begin."""
    monkeypatch.setenv("CELLC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "user.cell").write_text(SPEC)
    (tmp_path / "here" / "part.cell").write_text("fn more(a) = 3 * a;")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def edit(place):
    (place / "user.cell").write_text(OTHER)
    (place / "part.cell").unlink()


def leave(place, monkeypatch):
    for name in os.listdir(place):
        (place / name).unlink()
    monkeypatch.chdir(place.parent / "there")


def of_module(module):
    return module(torch.ones(1, 1, 2)).flatten().tolist()


def of_function(function):
    x = numpy.ones((1, 1, 2), "f4")
    return numpy.asarray(function({"w": numpy.ones(2, "f4")}, x)[0]).flatten().tolist()


def of_op(op):
    return op(torch.ones(1, 1, 2), torch.ones(2))[0].flatten().tolist()


def value(module):
    return of_module(lambda x: module(x)[0])


@pytest.mark.parametrize("step", [lambda place, _: edit(place), leave])
def test_a_module(place, monkeypatch, step):
    cell = cellc.load("user.cell", how="twice")(D=2)
    text, said = cell.source(), cell.explain()
    step(place, monkeypatch)
    average = torch.optim.swa_utils.AveragedModel(cell)
    average.update_parameters(cell)
    nested = copy.deepcopy(torch.nn.Sequential(torch.nn.Identity(), cell))
    for other in (cell, copy.deepcopy(cell), copy.copy(cell), pickle.loads(pickle.dumps(cell)), average.module, nested[1]):
        assert type(other) is type(cell) and value(other) == [6, 6]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cellc.CellcWarning)
        for other in (cell, copy.deepcopy(cell)):
            assert other.source() == text and other.explain() == said and "3" in text
            assert "100" not in other.graph().dot and "fn more(a) = 3" not in other.__doc__ and "more(w[i]" in other.__doc__
    assert copy.deepcopy(cell).w is not cell.w and copy.copy(cell).w is cell.w


def test_what_is_loaded_again_is_new(place, monkeypatch):
    monkeypatch.setattr(build, "told", set())
    old = cellc.load("user.cell")
    assert old.instance.spec.changed() == []
    edit(place)
    new = cellc.load("user.cell")
    assert value(old(D=2)) == [3, 3] and value(new(D=2)) == [100, 100]
    assert old.instance.spec.changed() == ["user.cell", "part.cell"] and new.instance.spec.changed() == []
    assert old.instance.spec.digest != new.instance.spec.digest
    with pytest.warns(cellc.CellcWarning, match=f"user is what was loaded .{old.instance.spec.digest[:12]}.; since then "
                                                "user.cell and part.cell changed, or went"):
        old.source()


PROCESS = """
import pickle, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import test_copies as own
for name in sys.argv[2:]:
    with open(name, "rb") as f:
        kind, thing = pickle.load(f)
    print(kind, getattr(own, kind)(thing))
    if kind != "of_op":
        assert "100" not in thing.source() and "3" in thing.source() and thing.explain()
"""


def test_other_processes(place, monkeypatch):
    """Pickles of all kinds, opened where none of the files is, with another cache; an import there has the same name."""
    pytest.importorskip("jax")
    things = [("value", cellc.load("user.cell")(D=2)), ("of_op", cellc.op("user.cell")),
              ("of_function", cellc.load("user.cell", framework="numpy")),
              ("of_function", cellc.load("user.cell", framework="jax")),
              ("value", cellc.load(SPEC)(D=2))]
    there = place.parent / "there"
    for i, (kind, thing) in enumerate(things):
        (there / str(i)).write_bytes(pickle.dumps((kind, thing)))
    leave(place, monkeypatch)
    (there / "part.cell").write_text("fn more(a) = 100 * a;")
    done = subprocess.run([sys.executable, "-c", PROCESS, os.path.dirname(os.path.abspath(__file__)), *"01234"],
                          capture_output=True, text=True, env={**os.environ, "CELLC_CACHE": str(there / "cache")})
    assert done.stdout.split("\n")[:-1] == [f"{kind} [3.0, 3.0]" for kind, _ in things], done.stderr


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_a_function(place, monkeypatch, framework):
    pytest.importorskip(framework)
    cell = cellc.load("user.cell", framework=framework)
    leave(place, monkeypatch)
    for other in (cell, copy.deepcopy(cell), copy.copy(cell), pickle.loads(pickle.dumps(cell)), copy.deepcopy({"a": cell})["a"]):
        assert other is cell and of_function(other) == [3, 3]


def test_a_class_of_the_users(place, monkeypatch):
    class Mine(cellc.load("user.cell")):
        def forward(self, x):
            return super().forward(x)[0] + 1

    cell = Mine(D=2)
    leave(place, monkeypatch)
    assert type(copy.deepcopy(cell)) is Mine and of_module(copy.deepcopy(cell)) == [4, 4]


def test_what_was_tuned_travels(place, tmp_path):
    """A file of `cellc tune` is part of what was loaded: it may go as well."""

    spec = compiler.Spec("user.cell")
    (place / "user.tune").write_text("a")
    tuned = pickle.loads(pickle.dumps(build.Tuned(str(place / "user.tune"))))
    (place / "user.tune").unlink()
    assert tuned.text == "a" and build.find_tuned({"tuned": tuned, "schedule": None}, spec, True) == [tuned]
    entries = compiler.read_pack(spec.pack + compiler.entry("tuned", tuned.path, tuned.data))
    assert [kind for kind, _, _ in entries] == ["spec", "import", "library-dir", "tuned"] and entries[-1][2] == b"a"
