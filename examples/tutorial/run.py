"""Runs a notebook without Jupyter, in a folder of its own that is gone afterwards.

    python run.py                     # runs it, as Jupyter would; TUTORIAL_STEPS=20 for a rehearsal
    python run.py --check             # and compares outputs with those that the notebook keeps
    python run.py --write             # and keeps its outputs in the notebook
    python run.py --commands --check  # only what cellc is asked, which needs no package

In: a notebook of Python, `%%writefile NAME` and `!COMMAND` (tutorial.ipynb beside this file, unless another is named). Out:
what each cell prints, or the first cell that fails and exit status 1. What is compared are outputs of cells with the tag
`exact`; a command of a cell with the tag `fails` has to fail, any other has to succeed. `--write` keeps text only, of
pictures nothing."""

import argparse
import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))


class Failure(Exception):
    """A cell that did not do what it should."""


def arguments():
    p = argparse.ArgumentParser(description="Runs a notebook without Jupyter.")
    p.add_argument("notebook", nargs="?", default=os.path.join(HERE, "tutorial.ipynb"))
    p.add_argument("--check", action="store_true", help="compare the outputs of cells with the tag `exact`")
    p.add_argument("--commands", action="store_true", help="only files that are written, and commands of cellc")
    p.add_argument("--write", action="store_true", help="keep outputs in the notebook")
    return p.parse_args()


def command(words, fails):
    """A line behind `!`, by the shell: what it prints."""
    done = subprocess.run(words, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if (done.returncode != 0) != fails:
        raise Failure(f"{done.stdout}`{words}` ended with status {done.returncode}")
    return done.stdout


def python(source, names):
    """Statements; what the last one is, if it is an expression, is shown as Jupyter shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, "<cell>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None
    return said.getvalue(), None if value is None else repr(value)


def run_cell(cell, names):
    """(what it printed, what its value shows or None)."""
    source = "".join(cell["source"])
    magic = re.match(r"%%writefile (\S+)\n", source)
    if magic:
        with open(magic[1], "w") as f:
            f.write(source[magic.end():] + "\n")
        return f"Writing {magic[1]}\n", None
    if source.startswith("!"):
        return command(source[1:], "fails" in cell["metadata"].get("tags", [])), None
    return python(source, names)


def outputs_of(printed, shown, count):
    """As a notebook keeps them."""
    found = []
    if printed:
        found.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if shown is not None:
        found.append({"data": {"text/plain": shown.splitlines(keepends=True)}, "execution_count": count, "metadata": {},
                      "output_type": "execute_result"})
    return found


def texts(outputs):
    return ["".join(part.get("text") or part["data"]["text/plain"]) for part in outputs]


def is_command(cell):
    return cell["source"][0].startswith(("%%writefile", "!cellc"))


def run(notebook, check, commands):
    names = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        if commands and not is_command(cell):
            continue
        try:
            printed, shown = run_cell(cell, names)
        except Failure as failure:
            raise Failure(f"cell {count} ({cell['id']}): {failure}") from None
        except Exception:
            raise Failure(f"cell {count} ({cell['id']}):\n{traceback.format_exc()}") from None
        print(printed + (shown + "\n" if shown else ""), end="", flush=True)
        outputs = outputs_of(printed, shown, count)
        if check and "exact" in cell["metadata"].get("tags", []) and texts(outputs) != texts(cell["outputs"]):
            raise Failure(f"cell {count} ({cell['id']}) gave what is above; the notebook has\n" + "".join(texts(cell["outputs"])))
        cell["outputs"], cell["execution_count"] = outputs, count


def main():
    a = arguments()
    with open(a.notebook, encoding="utf-8") as f:
        notebook = json.load(f)
    os.environ.setdefault("MPLBACKEND", "Agg")
    # Relative, as it is for Jupyter, which runs a notebook where it lies.
    os.environ.setdefault("TUTORIAL_TEXT", os.path.join(HERE, "..", "bytelm", "opticks.txt"))
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    with tempfile.TemporaryDirectory(prefix="tutorial-") as place:
        os.chdir(place)
        try:
            run(notebook, a.check, a.commands)
        except Failure as failure:
            print(failure, file=sys.stderr)
            return 1
        finally:
            os.chdir(HERE)
    if a.write:
        with open(a.notebook, "w", encoding="utf-8") as f:
            json.dump(notebook, f, indent=1, ensure_ascii=False)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
