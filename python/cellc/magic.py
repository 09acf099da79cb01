"""The magic of notebooks: `%load_ext cellc`, then a cell that begins with

    %%cell Name N=32 dtype=bf16

and holds a spec defines the class Name."""

import ast

from .errors import SpecError


def value_of(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def register(shell):
    from . import load

    def cell(line, text):
        name, *pairs = line.split() or [None]
        if name is None or not name.isidentifier() or not all("=" in pair for pair in pairs):
            raise SpecError("error: %%cell takes the name of the class, then settings: %%cell E79 N=32 dtype=bf16")
        made = load(text, **{key: value_of(v) for key, _, v in (pair.partition("=") for pair in pairs)})
        shell.user_ns[name] = made

    shell.register_magic_function(cell, magic_kind="cell", magic_name="cell")
