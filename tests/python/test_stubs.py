"""The stubs (cellc/*.pyi) say what the package has: each function and method of a stub is there, with the
same parameters, and each public method that a user's class has is in its stub. Read as text, so that no type
checker is needed."""

import ast
import glob
import importlib
import inspect
import os

import pytest

import cellc

FOLDER = os.path.dirname(cellc.__file__)
STUBS = sorted(os.path.basename(path)[:-4] for path in glob.glob(os.path.join(FOLDER, "*.pyi")))


def module(stub):
    if stub == "with_jax":
        pytest.importorskip("jax")
    return importlib.import_module("cellc" if stub == "__init__" else f"cellc.{stub}")


def tree(stub):
    with open(os.path.join(FOLDER, stub + ".pyi")) as f:
        return ast.parse(f.read())


def parameters(node):
    """[(name, kind, has a default)] of a function in a stub."""
    a, kinds = node.args, inspect._ParameterKind
    plain = [*a.posonlyargs, *a.args]
    without = len(plain) - len(a.defaults)
    alone = len(a.posonlyargs)
    found = [(arg.arg, kinds.POSITIONAL_ONLY if i < alone else kinds.POSITIONAL_OR_KEYWORD, i >= without)
             for i, arg in enumerate(plain)]
    found += [(a.vararg.arg, kinds.VAR_POSITIONAL, False)] if a.vararg else []
    found += [(arg.arg, kinds.KEYWORD_ONLY, default is not None)
              for arg, default in zip(a.kwonlyargs, a.kw_defaults)]
    return found + ([(a.kwarg.arg, kinds.VAR_KEYWORD, False)] if a.kwarg else [])


def of_object(function):
    listed = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default is not p.empty) for p in listed]


def functions(body):
    return [node for node in body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("stub", STUBS)
def test_functions(stub):
    home = module(stub)
    for node in functions(tree(stub).body):
        found, given = of_object(getattr(home, node.name)), parameters(node)
        if node.name in ("load", "op"):      # without a spec they say so; "numpy" and "jax" have no default
            assert [(n, k) for n, k, _ in found] == [(n, k) for n, k, _ in given], node.name
        else:
            assert found == given, node.name


@pytest.mark.parametrize("stub", STUBS)
def test_classes(stub):
    home = module(stub)
    for node in [node for node in tree(stub).body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]:
        there = getattr(home, node.name)
        for method in functions(node.body):
            if (node.name, method.name) == ("Instance", "__getattr__"):
                continue
            if method.name == "__call__" and node.name in ("Cell", "LSTM", "GRU", "Block", "Layer", "Bounded"):     # nn.Module's: forward
                assert parameters(method) == parameters(next(f for f in functions(node.body) if f.name == "forward"))
                continue
            found = inspect.unwrap(inspect.getattr_static(there, method.name))
            found = found.__func__ if isinstance(found, classmethod) else found.fget if isinstance(found, property) else found
            assert of_object(found) == parameters(method), f"{node.name}.{method.name}"


def test_nothing_is_left_out():
    from cellc import module as torch_module
    classes = {node.name: node for node in tree("module").body if isinstance(node, ast.ClassDef)}
    for name in ("Cell", "Op"):
        own = {method.name for method in functions(classes[name].body)}
        there = vars(getattr(torch_module, name)).items()
        public = {key for key, value in there
                  if key[0] != "_" and callable(getattr(value, "__func__", value))}
        assert public <= own
    from cellc import fla, nn
    for home, stub in ((nn, "nn"), (fla, "fla")):
        assert set(home.__all__) <= {node.name for node in tree(stub).body if isinstance(node, ast.ClassDef)}
    from cellc import errors
    listed = {node.name for node in tree("errors").body if isinstance(node, ast.ClassDef)}
    assert {key for key, value in vars(errors).items() if isinstance(value, type)} == listed
    names = {node.name for node in functions(tree("__init__").body)}
    imports = [node for node in tree("__init__").body if isinstance(node, ast.ImportFrom)]
    names |= {alias.asname for node in imports for alias in node.names}
    assert set(cellc.__all__) <= names
    assert os.path.exists(os.path.join(FOLDER, "py.typed"))


USER = """
import importlib.resources
import torch
import cellc
from cellc import nn

GRU = cellc.load("gru", reset="before")
layer = GRU(64, H=128, batch_first=False)
y, state = layer(torch.randn(3, 2, 64), None, final_state=True)
reveal_type(layer)
reveal_type(layer.step(y, state))
reveal_type(GRU.explain())
cellc.load(importlib.resources.files("cells") / "gru.cell")
block = nn.Block(GRU, 64, conv=True, H=32)
out, (h, c) = nn.LSTM(64, 128)(torch.randn(3, 2, 64))
reveal_type(h)
cellc.load("gru", framework="numpy").init(0, 64, H=128)
GRU("64")
layer(state=None, steps="3")
cellc.load(3)
"""


def test_a_type_checker_reads_them(tmp_path):
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "user.py"
    file.write_text(USER)
    os.environ["MYPYPATH"] = os.path.dirname(FOLDER)
    try:
        said, wrong, _ = api.run([str(file), "--cache-dir", str(tmp_path / "kept"), "--no-error-summary"])
    finally:
        del os.environ["MYPYPATH"]
    assert not wrong, wrong
    found = [line.partition("user.py:")[2] for line in said.splitlines() if "user.py:" in line]
    assert [line.split(":")[0] for line in found if ": error" in line] == ["18", "19", "20"], said
    shown = [line.rpartition(" is ")[2].strip('"').lower().removeprefix("builtins.") for line in found if "Revealed type" in line]
    assert shown == ["cellc.module.cell", "tuple[any, any]", "str", "torch._tensor.tensor"], said
