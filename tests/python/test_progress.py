"""What one sees while a cell is compiled: nothing for a second and where no person reads, then a line or a bar."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
import time

import pytest

import cellc
from cellc import progress

SLOW = """
import sys, time
from cellc import progress
progress.DELAY, progress.EVERY = 0.05, 0.02
if sys.argv[1] == "line":
    sys.modules["tqdm"] = None                 # as where it is not installed
with progress.Progress("compiling e79 for the CPU and sm_80, sm_90 by nvrtc", 3) as shown:
    for _ in range(3):
        shown.update()
        for _ in range(100):                   # until that is seen, or ten seconds
            time.sleep(0.1)
            if getattr(shown.shown, "done", 0) or hasattr(shown.shown, "bar"):
                break
        time.sleep(0.1)
print("done")
"""


def on_terminal(*words, **more):
    """What a program writes to a terminal, which its standard error is."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", 25, 120, 0, 0))
    place = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(cellc.__file__)), os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE, stderr=its,
                             env={**os.environ, "PYTHONPATH": place, **more})
    os.close(its)
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:                              # as Linux says that the other end is closed
            break
        if not part:
            break
        said += part
    out = child.stdout.read().decode()
    assert child.wait() == 0, said
    os.close(ours)
    return out, said.decode()


def test_line_on_a_terminal():
    out, said = on_terminal(SLOW, "line")
    assert out == "done\n" and "\rcellc: compiling e79 for the CPU and sm_80, sm_90 by nvrtc: 1 of 3, 0 s" in said
    assert said.endswith(" \r") and "\n" not in said           # gone at the end


def test_bar_on_a_terminal():
    pytest.importorskip("tqdm")
    _, said = on_terminal(SLOW, "bar")
    assert "cellc: compiling e79" in said and "| 1/3 [00:00]" in said and "| 3/3" not in said.rpartition("\r")[2]


def test_nothing_where_no_person_reads():
    words = [sys.executable, "-c", SLOW, "line"]
    quiet = {name: value for name, value in os.environ.items() if name != "CELLC_PROGRESS"}
    assert subprocess.run(words, capture_output=True, text=True, env=quiet).stderr == ""
    assert "1 of 3" in subprocess.run(words, capture_output=True, text=True, env={**quiet, "CELLC_PROGRESS": "on"}).stderr
    assert on_terminal(SLOW, "line", CELLC_PROGRESS="off")[1] == ""


def test_a_short_compilation_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("CELLC_PROGRESS", "on")
    with progress.Progress("compiling x"):
        pass
    assert sys.stderr.getvalue() == ""


def test_a_load_shows_its_cell(tmp_path):
    """The first load, which compiles; not the second."""
    program = ("import sys; from cellc import progress; progress.DELAY = progress.EVERY = 0.01; sys.modules['tqdm'] = None; "
               "import cellc; cellc.load('lattice', framework='numpy')")
    said = on_terminal(program, CELLC_CACHE=str(tmp_path))[1]
    assert "\rcellc: compiling lattice for the CPU: 0 s" in said
    assert on_terminal(program, CELLC_CACHE=str(tmp_path))[1] == ""


def test_a_notebook_is_one(monkeypatch):
    class Shell:
        kernel = object()

    class IPython:
        get_ipython = staticmethod(lambda: Shell)

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delenv("CELLC_PROGRESS", raising=False)
    assert not progress.is_wanted()
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert progress.is_wanted()
    monkeypatch.setattr(Shell, "kernel", None)                  # IPython in a terminal: standard error decides
    assert not progress.is_wanted()


def test_what_fails_to_show_ends_nothing(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise OSError("closed")

    monkeypatch.setattr(progress, "DELAY", 0.01)
    monkeypatch.setattr(sys, "stderr", Closed())
    monkeypatch.setenv("CELLC_PROGRESS", "on")
    with progress.Progress("compiling x") as shown:
        time.sleep(0.05)
        shown.update()
    with pytest.raises(ZeroDivisionError), progress.Progress("compiling x"):        # and what fails is not hidden
        time.sleep(0.05)
        1 / 0


def test_a_wrong_word(monkeypatch):
    monkeypatch.setenv("CELLC_PROGRESS", "loud")
    with pytest.raises(cellc.BuildError, match="CELLC_PROGRESS is 'loud'; wanted on or off"), progress.Progress("x"):
        pass
