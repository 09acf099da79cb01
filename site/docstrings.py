"""The package's docstrings for autodoc. They are plain text: `code` between single quotes of its kind, and
indented lines behind an empty one are code. In: a docstring's lines. Out: the same as reStructuredText."""

import re


def process(app, what, name, obj, options, lines):
    out, block = [], False
    for at, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and not block and at and not lines[at - 1].strip():
            out += [".. code-block:: python", ""]
        block = indented or (block and not line.strip())
        out.append(line if block else marked(line))
    lines[:] = out


def marked(line):
    """A line of prose: code keeps its sign, stars and bars are what they are."""
    parts = re.split(r"(`[^`]+`)", line)
    return "".join(
        f"`{part}`" if part.startswith("`") else re.sub(r"([*|\\])", r"\\\1", part) for part in parts
    )
