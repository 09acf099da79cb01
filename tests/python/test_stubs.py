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
    for node in [node for node in tree(stub).body if isinstance(node, ast.ClassDef)]:
        there = getattr(home, node.name)
        for method in functions(node.body):
            if (node.name, method.name) in (("Instance", "__getattr__"), ("Cell", "__call__")):  # of nn.Module
                continue
            found = inspect.unwrap(inspect.getattr_static(there, method.name))
            found = found.__func__ if isinstance(found, classmethod) else found
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
    from cellc import errors
    listed = {node.name for node in tree("errors").body if isinstance(node, ast.ClassDef)}
    assert {key for key, value in vars(errors).items() if isinstance(value, type)} == listed
    names = {node.name for node in functions(tree("__init__").body)}
    imports = [node for node in tree("__init__").body if isinstance(node, ast.ImportFrom)]
    names |= {alias.asname for node in imports for alias in node.names}
    assert set(cellc.__all__) <= names
    assert os.path.exists(os.path.join(FOLDER, "py.typed"))
