"""The data flow of a cell as a picture. In: what `cellc graph` writes, for Graphviz. Out: an object that notebooks show
as SVG. Guaranteed: without Graphviz it is the text, and svg() says what is missing."""

import os
import shutil
import subprocess

from .errors import BuildError


class Graph:
    def __init__(self, dot, title):
        self.dot, self.title = dot, title

    def render(self, form):
        program = shutil.which("dot")
        if not program:
            raise BuildError("a picture wants Graphviz's dot, which is not on the PATH (apt-get install graphviz); "
                             "the graph's .dot is the text for it")
        done = subprocess.run([program, "-T" + form], input=self.dot.encode(), capture_output=True)
        if done.returncode:
            raise BuildError(f"dot: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def svg(self):
        return self.render("svg").decode()

    def save(self, path):
        """Writes .dot, .svg, .png or what else dot makes, by the name's end."""
        form = os.path.splitext(path)[1][1:]
        data = self.dot.encode() if form == "dot" else self.render(form)
        with open(path, "wb") as f:
            f.write(data)

    def _repr_svg_(self):
        """For notebooks; None has them show the text."""
        return self.svg() if shutil.which("dot") else None

    def __repr__(self):
        return f"<graph of {self.title}: .dot is its text, .svg() and .save(path) draw it>"
