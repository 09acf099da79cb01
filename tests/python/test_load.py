"""Loading: where specs come from, what the cache keeps, what errors say, the command, notebooks."""

import importlib.resources
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import warnings
import zipfile

import numpy as np
import pytest
import torch

import cellc
from cellc import build, cache, compiler

SCALE = "cell scale { dim N; const k = 2; input x[N]; output y[N]; y[i] = k * x[i]; }"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CELLC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(path):
    return sorted(name for name in os.listdir(path) if not name.startswith((".", "call-")))


def value(cls):
    return cls()(torch.ones(1, 1, 1))[0].item()


def test_where_specs_come_from(own_cache, tmp_path):
    file = tmp_path / "scale.cell"
    file.write_text(SCALE)
    assert value(cellc.load(SCALE)) == 2
    assert value(cellc.load(file)) == 2
    assert value(cellc.load(str(file), k=2.5)) == 2.5
    assert cellc.load("lstm").__name__ == "lstm"
    assert cellc.load("lstm") is cellc.load("lstm")
    assert cellc.load("lstm", dtype=torch.float64) is cellc.load("lstm", dtype="f64")
    with pytest.raises(FileNotFoundError, match="there is no file 'no/such.cell'"):
        cellc.load("no/such.cell")


def test_names_can_be_read(own_cache):
    cellc.load("e79", N=4, bias="input", dtype="bf16", cuda=False)
    name, = entries(own_cache)
    assert name.startswith("e79-N4-bias_input-bf16-cpu-") and len(name) == len("e79-N4-bias_input-bf16-cpu-") + 16
    assert {"e79.h", "e79_ref.c", "e79.json", "libe79.so", "info.json"} <= set(os.listdir(own_cache / name))


def test_what_is_changed_is_compiled_again(own_cache, tmp_path):
    (tmp_path / "part.cell").write_text("fn twice(a) = 2 * a;")
    spec = tmp_path / "user.cell"
    spec.write_text('import "part.cell";\ncell user { dim N; input x[N]; output y[N]; y[i] = twice(x[i]); }')
    assert value(cellc.load(spec)) == 2
    (tmp_path / "part.cell").write_text("fn twice(a) = 3 * a;")
    assert value(cellc.load(spec)) == 3
    assert len(entries(own_cache)) == 2
    spec.write_text(spec.read_text().replace("twice(x[i])", "twice(twice(x[i]))"))
    assert value(cellc.load(spec)) == 9


def test_imports_of_text(own_cache, tmp_path, monkeypatch):
    """Text imports what lies in the current directory or in import_dir, and the library's functions."""
    for name, factor in (("a", 4), ("b", 5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.cell").write_text(f"fn more(a) = {factor} * a;")
    text = 'import "part.cell";\ncell user { dim N; input x[N]; output y[N]; y[i] = more(x[i]); }'
    assert value(cellc.load(text, import_dir=tmp_path / "a")) == 4
    assert value(cellc.load(text, import_dir=tmp_path / "b")) == 5
    monkeypatch.chdir(tmp_path / "b")
    assert value(cellc.load('import "std.cell";\n' + text.replace("more(x[i])", "lerp(more(x[i]), 1, 0)"))) == 5


def test_the_compiler_says_what_is_imported(own_cache, tmp_path):
    """Imports wherever the grammar takes them; what only looks like one is not read. A change of any is seen."""
    (tmp_path / "f.cell").write_text("fn f(a) = 2 * a;")
    (tmp_path / "g.cell").write_text("fn g(a) = 3 * a;")
    (tmp_path / "h.cell").write_text("fn h(a) = 5 * a;")
    spec = tmp_path / "user.cell"
    spec.write_text('import "f.cell"; import "g.cell"; /* import "none.cell"; */ import /* here */ // and\n'
                    '    "h.cell"; cell user { dim N; input x[N]; output y[N]; y[i] = f(g(h(x[i]))); }')
    assert value(cellc.load(spec)) == 30
    for name, wanted in (("f", 150), ("g", 1050), ("h", 7350)):
        factor = wanted // value(cellc.load(spec))
        old = int(re.search(r"\d+", (tmp_path / f"{name}.cell").read_text())[0])
        (tmp_path / f"{name}.cell").write_text(f"fn {name}(a) = {old * factor:.0f} * a;")
        assert value(cellc.load(spec)) == wanted
    names = [os.path.basename(path) for path, _ in cellc.load(spec).instance.spec.files]
    assert names == ["user.cell", "f.cell", "g.cell", "h.cell"]


@pytest.mark.parametrize("folder", ["a b", "it's", 'say "so"', "c:d,e=f", "-o", "{x}", "$HOME `id`;", "ä∑", "100%s"])
def test_paths_may_hold_anything(own_cache, tmp_path, folder, monkeypatch):
    place = tmp_path / folder
    place.mkdir()
    (place / "p art.cell").write_text("fn twice(a) = 2 * a;")
    (place / "user.cell").write_text('import "p art.cell"; cell user { dim N; const k = 1; input x[N]; output y[N]; '
                                     'y[i] = k * twice(x[i]); }')
    monkeypatch.setenv("CELLC_CACHE", str(place / "cache"))
    assert value(cellc.load(place / "user.cell", k=3)) == 6
    monkeypatch.chdir(tmp_path)
    cls = cellc.load(f"{folder}/user.cell")
    assert value(cls) == 2 and "user" in cls.explain() and f"{folder}/p art.cell" == cls.instance.spec.files[1][0]


def test_a_cell_of_a_file_with_several(own_cache, tmp_path):
    two = "".join(f"cell {n} {{ dim N; const k = {k}; input x[N]; output y[N]; y[i] = k * x[i]; }}\n" for n, k in (("a", 2), ("b", 3)))
    (tmp_path / "two.cell").write_text(two)
    assert value(cellc.load(f"{tmp_path}/two.cell:a")) == 2 and value(cellc.load(f"{tmp_path}/two.cell:b")) == 3
    cell = cellc.load(tmp_path / "two.cell:b", k=5)
    assert value(cell) == 5 and cell.__name__ == "b" and "cell b:" in cell.explain()
    assert value(pickle.loads(pickle.dumps(cell())).__class__) == 5
    with pytest.raises(cellc.SpecError, match="this file has 2 cells, .a. and .b.: name one"):
        cellc.load(tmp_path / "two.cell")


PROCESS = """
import sys, time, torch, cellc
while time.time() < float(sys.argv[1]): pass
print(cellc.load("gru", cuda=False)(D=3, H=4)(torch.zeros(1, 2, 3))[0].shape)
"""


def test_processes_at_once(own_cache):
    """All begin at the same moment; one compiles, all get a library, and nothing half made is left."""
    start = str(time.time() + 6)
    running = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", PROCESS, start], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in running:
        out, err = process.communicate(timeout=300)
        assert out == "torch.Size([1, 2, 4])\n", err
    assert len(entries(own_cache)) == 1
    assert [name for name in os.listdir(own_cache) if name.startswith(".gru")] == []


def test_only_one_builds(own_cache):
    built = []

    def build(place):
        built.append(place)
        threading.Event().wait(0.2)
        return {}

    threads = [threading.Thread(target=cache.get, args=("one-0", build)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_what_fails_leaves_nothing(own_cache):
    with pytest.raises(cellc.SpecError):
        cellc.load("cell bad { output y; }")
    assert entries(own_cache) == []
    assert set(os.listdir(own_cache)) <= {".locks", cache.NOTES}


def test_a_cleared_cache_is_filled_again(own_cache):
    text = SCALE.replace("2", "7")
    assert value(cellc.load(text)) == 7
    cache.clear()
    assert entries(own_cache) == []
    assert value(cellc.load(text)) == 7          # this process has it still
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", "import sys, cellc; cellc.load(sys.argv[1])", text])
    assert out.returncode == 0 and len(entries(own_cache)) == 1


def test_files_are_read_once(own_cache, tmp_path):
    """What was found of a file is kept for other processes, until the file changes, in place or by another one."""
    file, asked = tmp_path / "f", []

    def ask():
        cache.noted.clear()          # as a new process has it
        return cache.remembered("text", str(file), lambda: asked.append(1) or file.read_text())

    def old(seconds):
        os.utime(file, (time.time() - seconds,) * 2)

    file.write_text("a")
    assert [ask(), ask(), len(asked)] == ["a", "a", 2]          # just written: it may be written again
    old(10)
    time.sleep(2.1)                  # the time of its change of attributes cannot be set
    assert [ask(), ask(), ask(), len(asked)] == ["a", "a", "a", 3]
    assert os.listdir(own_cache) == [cache.NOTES]
    file.write_text("b")
    assert ask() == "b"
    (tmp_path / "g").write_text("c")
    os.replace(tmp_path / "g", file)
    assert ask() == "c"
    for text in ("{", "[]", "1", '{"text %s": 1}' % file, '{"text %s": [1]}' % file):
        (own_cache / cache.NOTES).write_text(text)
        assert ask() == "c"


def test_notes_that_cannot_be_kept(own_cache, tmp_path):
    """A directory is where they would lie: what was found counts, and nothing is left behind."""
    (own_cache / cache.NOTES).mkdir(parents=True)
    file = tmp_path / "f"
    file.write_text("a")
    time.sleep(2.1)
    cache.noted.clear()
    assert cache.remembered("text", str(file), file.read_text) == "a"
    assert os.listdir(own_cache) == [cache.NOTES]


def test_the_first_call_imports_nothing_large():
    """torch.compile takes seconds to import; a call without it must not wait for that."""
    program = ("import sys, torch, cellc; m = cellc.load('lstm')(D=2, H=3); x = torch.ones(1, 2, 2, requires_grad=True); "
               "m(x)[0].sum().backward(); m.step(x[:, 0]); assert 'torch._dynamo' not in sys.modules")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_place_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CELLC_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(cellc.BuildError, match="CELLC_CACHE names another directory"):
        cellc.load(SCALE.replace("2", "11"))


def test_the_command(own_cache):
    cellc.load(SCALE.replace("2", "17"))

    def cellc_command(*words):
        return subprocess.run([sys.executable, "-m", "cellc", *words], capture_output=True, text=True)

    listed = cellc_command("cache").stdout.splitlines()
    assert re.search(r"scale-f32-(cpu|sm\d+)-", listed[0]) and listed[1].startswith("1 compiled cells, ")
    assert cellc_command("cache", "size").stdout.startswith("1 compiled cells, ")
    assert cellc_command("cache", "clear").stdout.startswith("1 removed from ")
    assert cellc_command("cache", "list").stdout.startswith("0 compiled cells, 0 B")
    wrong = cellc_command("cache", "burn")
    assert wrong.returncode == 2 and wrong.stderr.startswith("usage: cellc cache")
    assert cellc_command("version").stdout.startswith("cellc ")
    assert cellc_command("nonsense").returncode == 2


def test_errors_show_the_line():
    text = "cell foo {\n    dim N;\n    input x[N];\n    output y[N];\n    y[i] = z[i];\n}\n"
    with pytest.raises(ValueError) as caught:
        cellc.load(text)
    assert str(caught.value).splitlines()[:3] == [
        "foo.cell:5:12: error: unknown value 'z'", "        y[i] = z[i];", "               ^"]
    first = caught.value.diagnostics[0]
    assert (first.file, first.line, first.column, first.severity) == ("foo.cell", 5, 12, "error")
    assert first.message.startswith("unknown value 'z'") and "y[i] = z[i];" in first.excerpt and "^" in first.excerpt


def test_errors_of_settings():
    for options, message in [({"Q": 3}, "cell 'lstm' has no option or constant 'Q'"),
                             ({"dtype": "b"}, "--dtype takes one of f32, bf16, f16, f64, not 'b'"),
                             ({"schedule": "fast"}, "schedule"),
                             ({"products": "fast"}, "--products takes one of auto, plain, parts, fused, not 'fast'"),
                             ({"settings": {"a": "b,c"}}, "the value of a is 'b,c'; wanted a number or a word")]:
        with pytest.raises(ValueError, match=message):
            cellc.load("lstm", **options)
    with pytest.raises(cellc.SpecError, match="did you mean 'lstm'"):
        cellc.load("lst")
    with pytest.raises(cellc.SpecError, match="cell 'e79' has no|bias"):
        cellc.load("e79", bias="nothing")
    for options, message in [({"dtype": 3}, "dtype is 3"), ({"schedule": 3}, "schedule is 3; wanted its name"),
                             ({"products": 3}, "products is 3; wanted its name")]:
        with pytest.raises(cellc.TypeMismatch, match=message):
            cellc.load("lstm", **options)
    for spec in (None, 3, b"lstm"):
        with pytest.raises(cellc.TypeMismatch, match="spec is a .*; wanted a path, the name of a cell, or the text"):
            cellc.load(spec)


def test_products():
    words = {form: cellc.load("linear_act", cuda=False, products=form).explain(all=True) for form in (None, "plain", "parts")}
    assert "where they are large" in words[None] and "six of parts in bf16" in words["parts"]
    assert "parts" not in words["plain"]


def test_archs():
    assert [build.arch_words(archs) for archs in (None, "80 90", 90, ["80", 90])] == ["", "80 90", "90", "80 90"]


def test_a_compiler_that_fails(monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(cellc.BuildError, match="false, does not compile .*apt-get install gcc"):
        cellc.load(SCALE.replace("2", "13"))


def test_tuned(tmp_path, monkeypatch):
    if not compiler.nvcc():
        pytest.skip("no nvcc")
    times = tmp_path / "times"
    times.write_text("gpu NVIDIA H200\narch 90\nauto times 1 3\ntile:interval=8 times 1 2\n")
    subprocess.run([compiler.program(), "tune", "e79", "--dim", "N=12", "--layouts", "1", "--sizes", "B=2,T=3,D=4", "-o",
                    tmp_path], env={**os.environ, "CELLC_TUNE_TIMES": str(times)}, check=True, capture_output=True)
    options = {"N": 12, "cuda": True, "archs": "90"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = cellc.load("e79", tuned=tmp_path / "e79.tune", **options)
    assert "tuned on NVIDIA H200 for B=2,T=3,D=4" in tuned.explain(all=True) and "every 8 steps" in tuned.explain(all=True)
    with open(os.path.join(tuned.instance.built.path, "e79.c")) as f:
        assert "schedule tile, a checkpoint every 8 steps" in f.read()
    monkeypatch.setenv("CELLC_TUNED", str(tmp_path))
    assert build.kernel_compiler() and "every 8 steps" in cellc.load("e79", **options).explain(all=True)
    with pytest.raises(cellc.SpecError, match="--schedule and --tuned exclude each other"):
        cellc.load("e79", tuned=tmp_path / "e79.tune", schedule="tile", **options)


def test_what_was_tuned_of_another_cell_is_not_read(tmp_path, monkeypatch):
    """A cell depends on its own file in CELLC_TUNED, so that tuning one does not compile all others again."""
    monkeypatch.setenv("CELLC_TUNED", str(tmp_path))

    def texts(*arguments):
        return [found.text for found in build.find_tuned(*arguments)]

    given, scale = {"tuned": None, "schedule": None}, compiler.Spec(SCALE)
    assert texts(given, scale, True) == []
    (tmp_path / "other.tune").write_text("other")
    assert texts(given, scale, True) == []
    (tmp_path / "scale.tune").write_text("scale")
    assert texts(given, scale, True) == ["scale"]
    assert texts(given, compiler.Spec("// of\n" + SCALE.replace("cell ", "cell /* a */ ")), True) == ["scale"]
    assert texts(given, scale, False) == []
    assert texts({**given, "schedule": "steps"}, scale, True) == []
    assert texts({**given, "tuned": build.Tuned(tmp_path / "other.tune")}, scale, True) == ["other"]


@pytest.mark.parametrize("more", [{"cuda": False}, {}, {"schedule": "map"}])
def test_a_tuned_file_that_is_not_there(tmp_path, more):
    with pytest.raises(cellc.MissingFile, match="cannot read what was tuned, .*none.tune: No such file or directory"):
        cellc.load("e79", tuned=tmp_path / "none.tune", **more)


ONE = "cell one { dim D; input x[D]; output y[D]; y[i] = twice(x[i]); }"
TWICE = "fn twice(x) = 2 * x;"


def test_folder(tmp_path):
    """The file that is called like the folder, or the only one that has a cell."""
    folder = tmp_path / "cells"
    folder.mkdir()
    (folder / "common.cell").write_text(TWICE + " // cell common { }")
    (folder / "first.cell").write_text('import "common.cell"; ' + ONE)
    (folder / "more.cell").mkdir()
    x = torch.ones(1, 1, 2)
    for given in (folder, str(folder), str(folder) + "/"):
        assert (cellc.load(given)()(x)[0] == 2).all()
    (folder / "second.cell").write_text("cell two { dim D; input x[D]; output y[D]; y[i] = 3 * x[i]; }")
    with pytest.raises(cellc.MissingFile, match=r"several specs have a cell: first.cell, second.cell; .*'.*cells/first.cell'"):
        cellc.load(folder)
    assert (cellc.load(f"{folder}:two")()(x)[0] == 3).all()
    with pytest.raises(cellc.MissingFile, match="no spec has a cell three"):
        cellc.load(f"{folder}:three")
    (folder / "cells.cell").write_text("cell c { dim D; input x[D]; output y[D]; y[i] = 5 * x[i]; }")
    made = cellc.load(folder)
    assert (made()(x)[0] == 5).all() and made.instance.spec.changed() == []
    (folder / "cells.cell").write_text("cell c { dim D; input x[D]; output y[D]; y[i] = 7 * x[i]; }")
    assert made.instance.spec.changed() == [os.path.join(folder, "cells.cell")]


def test_resource_of_a_package(tmp_path, monkeypatch):
    """In an archive: no file has it, imports come from beside it, and the cell is what was loaded."""
    archive = tmp_path / "bundle.zip"
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("mycells/__init__.py", "")
        z.writestr("mycells/one.cell", 'import "lib/common.cell"; import "std.cell"; ' + ONE)
        z.writestr("mycells/lib/common.cell", TWICE)
        z.writestr("mycells/lib/unused.cell", "nonsense")
        z.writestr("mycells/broken.cell", "cell broken { dim D; input x[D]; output y[D]; y[i] = 2 * z[i]; }")
    monkeypatch.syspath_prepend(str(archive))
    home = importlib.resources.files("mycells")
    made, x = cellc.load(home / "one.cell"), torch.ones(1, 1, 2)
    assert (made()(x)[0] == 2).all()
    spec = made.instance.spec
    assert [os.path.basename(path) for path, _ in spec.files] == ["one.cell", "common.cell", "std.cell"]
    assert spec.changed() == [] and made.explain().startswith("cell one")
    os.unlink(archive)
    again = pickle.loads(pickle.dumps(made))
    assert (again()(x)[0] == 2).all() and again.instance.spec.digest == spec.digest


def test_resources_that_are_none(tmp_path, monkeypatch):
    archive = tmp_path / "bundle2.zip"
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("othercells/__init__.py", "")
        z.writestr("othercells/broken.cell", "cell broken { dim D; input x[D]; output y[D]; y[i] = 2 * z[i]; }")
    monkeypatch.syspath_prepend(str(archive))
    home = importlib.resources.files("othercells")
    with pytest.raises(cellc.SpecError, match="othercells/broken.cell:1:.*unknown value 'z'"):
        cellc.load(home)                          # the only one of the package
    with pytest.raises(cellc.MissingFile, match="there is no resource '.*none.cell'"):
        cellc.load(home / "none.cell")
    with pytest.raises(cellc.MissingFile, match="whose name ends in .cell"):
        cellc.load(home / "__init__.py")


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("CELLC", "/no/such/cellc")
    with pytest.raises(cellc.BuildError, match="the cellc compiler is not there"):
        cellc.load(SCALE)


def test_warnings_come_once(own_cache):
    """Of the compiler, too: not again for another type, nor where a module follows one."""
    text = "cell w { dim N; input x[N], unused[N]; param p[N]; output y[N]; y[i] = p[i] * x[i]; }"
    program = ("import sys, torch, cellc; made = cellc.load(sys.argv[1]); cellc.load(sys.argv[1], dtype='f64');"
               "made(N=2).bfloat16()(*[torch.ones(1, 1, 2, dtype=torch.bfloat16)] * 2)")
    out = subprocess.run([sys.executable, "-W", "always", "-c", program, text], capture_output=True, text=True)
    assert out.returncode == 0 and out.stderr.count("never used") == 1, out.stderr
    assert len(entries(own_cache)) == 3


def test_warnings_come_at_every_first_load(own_cache):
    text = "cell w { dim N; input x[N], unused[N]; output y[N]; y[i] = x[i]; }"
    program = "import sys, cellc; cellc.load(sys.argv[1])"
    for _ in range(2):
        out = subprocess.run([sys.executable, "-c", program, text], capture_output=True, text=True)
        assert "unused" in out.stderr and "w.cell:1:" in out.stderr, out.stderr
    assert len(entries(own_cache)) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_once():
    program = "import cellc; cellc.load('lstm'); cellc.load('gru')"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stderr.count("PyTorch sees no GPU here, so cells run on the CPU") == 1


def test_what_is_slow_is_a_warning_of_its_own_and_said_once():
    from cellc.build import warn_of
    slow = ("x.cell:1:6: performance warning: no kernel walks over the steps of x: ... (schedule steps)\n"
            "    cell x {\nx.cell:2:1: note: not tile: ...\ncellc: note: not scan: ...")
    plain = "x.cell:3:1: warning: param 'a' is never used\n    param a;\n          ^"
    other = slow.replace("x.", "y.")
    both = [cellc.CellcWarning, cellc.PerformanceWarning]
    for text, wanted in [(plain, both[:1]), (f"{slow}\n{plain}", both[1:]), (slow, []), (other, both[1:])]:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            warn_of(text)
        assert [w.category for w in said] == wanted
        for w in said:
            assert ("performance" in str(w.message)) == (w.category is cellc.PerformanceWarning)
    assert str(said[0].message) == other


def test_a_cached_load_is_fast():
    """Under 50 ms is the promise; the bound is for a machine that does other things as well."""
    program = ("import time, cellc.with_torch; t = time.time(); import cellc; cellc.load('lstm'); t = time.time() - t; "
               "assert t < 0.5, t")
    cellc.load("lstm")
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", program]).returncode == 0


def test_magic():
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shell.run_line_magic("load_ext", "cellc")
        shell.run_cell_magic("cell", "Scale k=4 dtype=f64", SCALE)
    assert shell.user_ns["Scale"]()(torch.ones(1, 1, 1, dtype=torch.float64))[0].item() == 4
    with pytest.raises(cellc.SpecError, match="%%cell takes the name of the class"):
        shell.run_cell_magic("cell", "", SCALE)


def test_what_is_not_there_is_an_error_of_cellc_and_of_files(tmp_path):
    path = tmp_path / "a.cell"
    path.write_text("cell a { dim D; input x[D]; output y[D]; y[i] = x[i]; }")
    empty = tmp_path / "empty"
    empty.mkdir()
    wrong = [(("no/such.cell",), {}, "there is no file 'no/such.cell'"), ((empty,), {}, "is a directory in which no spec has a cell"),
             (("lstmm",), {}, "no cell of that name comes with cellc; did you mean 'lstm'?"),
             ((path,), {"import_dir": "nosuch"}, "import_dir is 'nosuch', which is no directory"),
             ((path,), {"import_dir": path}, "which is no directory"),
             ((path,), {"tuned": tmp_path / "none"}, "cannot read what was tuned")]
    for framework in ("torch", "numpy"):
        for given, options, message in wrong:
            with pytest.raises(FileNotFoundError, match=re.escape(message)) as raised:
                cellc.load(*given, framework=framework, **options)
            assert isinstance(raised.value, cellc.MissingFile if given != ("lstmm",) else cellc.MissingSpec)
            assert isinstance(raised.value, cellc.CellcError)
    if os.geteuid():
        path.chmod(0)
        with pytest.raises(cellc.CannotRead, match="cannot read"):
            cellc.load(path)


def test_cells_called_like_libraries_and_settings_of_long_names(tmp_path):
    """No file's name gets too long, and none takes the place of a library of the system."""
    one = np.ones((1, 2, 3), np.float32)
    names = ["k%d_%s" % (k, "a" * 120) for k in range(6)]
    constants = "".join(f"const {name} = 1; " for name in names)
    long = "q" * 128
    for name, text in (("m", ""), ("dl", ""), ("c", ""), (long, constants)):
        spec = "cell %s { dim D; %s input x[D]; output y[D]; y[i] = 2 * x[i]%s; }" % (
            name, text, "".join(" * " + k for k in names) if text else "")
        cell = cellc.load(spec, framework="numpy", settings={k: 2 for k in names} if text else {})
        y, _ = cell({}, one)
        assert (y == (128 if text else 2)).all()
