"""Drives `cellc watch`: saves specs in the manners of editors, and waits for the lines that follow, with a deadline.
What is printed decides; no test waits a fixed time for something to happen. What must not happen is known by what
comes after it: a save that gives its own lines."""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time

CELLC = sys.argv[1]
DEADLINE = 30.0  # seconds: far more than anything takes here, since other tests may have the cores
passed = failed = 0


def check(ok, what, detail=""):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print("FAIL:", what)
        for line in detail.splitlines()[-12:]:
            print("    |", line)


def cell(factor, name="c", head="", body="{} * x[i]"):
    return "%scell %s {\n    dim N;\n    input  x[N];\n    output y[N];\n    y[i] = %s;\n}\n" % (
        head, name, body.format(factor))


class Stuck(Exception):
    """What should have been printed was not: the rest of the scenario would say nothing else."""


class Watch:
    """A `cellc watch` that runs in a folder of its own, and what it has printed."""

    def __init__(self, folder, *words, tty=False, **env):
        self.tmp = os.path.join(folder, "tmp")
        os.makedirs(self.tmp, exist_ok=True)
        env = {**os.environ, "TMPDIR": self.tmp, "TERM": "xterm", **env}
        if tty:
            self.end, theirs = pty.openpty()
        else:
            self.end, theirs = os.pipe()
        self.child = subprocess.Popen(
            [CELLC, "watch", *words], cwd=folder, env=env, stdin=theirs if tty else subprocess.DEVNULL, stdout=theirs,
            stderr=theirs, start_new_session=True,
            preexec_fn=lambda: self.begin(tty))
        os.close(theirs)
        self.text, self.at = "", 0

    @staticmethod
    def begin(tty):
        """In the child: a shell's background has SIGINT ignored; a terminal gives Ctrl-C to those whose it is."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def read(self, seconds):
        if not select.select([self.end], [], [], seconds)[0]:
            return None
        try:
            data = os.read(self.end, 65536).decode("utf-8", "replace")
        except OSError:  # a terminal whose other end is closed
            data = ""
        self.text += data
        return data

    def wait(self, pattern, what):
        """Until the pattern stands behind what was waited for last; the text up to its end."""
        until = time.monotonic() + DEADLINE
        while not (found := re.compile(pattern, re.M).search(self.text, self.at)):
            if time.monotonic() > until or self.read(max(0.0, min(0.5, until - time.monotonic()))) == "":
                check(False, what + ": no '" + pattern + "'", self.text[self.at:])
                self.child.kill()
                raise Stuck
        between = self.text[self.at:found.end()]
        self.at = found.end()
        check(True, what)
        return between

    def runs(self, name=r"\S+"):
        return len(re.findall("^== " + name + ", ", self.text, re.M))

    def stop(self, what, number=signal.SIGINT):
        if number:
            self.child.send_signal(number)
        else:
            number = signal.SIGINT
            os.write(self.end, b"\x03")  # Ctrl-C
        try:
            code = self.child.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.child.kill()
            code = None
        while self.read(0.2):
            pass
        os.close(self.end)
        check(code == -number, "%s: ends by the signal, not with %s" % (what, code), self.text)
        check(os.listdir(self.tmp) == [], "%s: leaves nothing behind" % what, "\n".join(os.listdir(self.tmp)))


# ---- how editors save


def in_place(path, text):
    with open(path, "w") as f:
        f.write(text)


def renamed(path, text):
    with open(path + ".tmp", "w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)


def with_backup(path, text):
    os.rename(path, path + "~")
    in_place(path, text)
    os.unlink(path + "~")


def removed_first(path, text):
    os.unlink(path)
    time.sleep(0.1)
    in_place(path, text)


def in_pieces(path, text):
    with open(path, "w") as f:
        for i in range(0, len(text), 20):
            f.write(text[i:i + 20])
            f.flush()


def copied_with_times(path, text):
    """Of the same size and times as the file that was there."""
    st = os.stat(path)
    renamed(path, text)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


MANNERS = [in_place, renamed, with_backup, removed_first, in_pieces, copied_with_times]


def one_spec(folder, *words):
    kind = " ".join(words) or "reports"
    path = os.path.join(folder, "c.cell")
    in_place(path, cell("1"))
    w = Watch(folder, "c.cell", "--no-check", *words)
    w.wait("^== c.cell, .*\ncell c: ", kind + ": the first run")
    for i, manner in enumerate(MANNERS):
        w.wait("^  time goes by", kind + ": the end of a run")
        manner(path, cell(i, "c%d" % i))
        w.wait("^cell c%d: " % i, "%s: saved %s" % (kind, manner.__name__))
    check(w.runs() <= 2 * len(MANNERS) + 1, kind + ": few more runs than saves, not %d" % w.runs(), w.text)
    w.wait("^  time goes by", kind + ": the last run")
    # A mistake is said with its place, and the next save is looked at as any other.
    renamed(path, "cell c {\n    dim N;\n    input x[N]\n}\n")
    w.wait("^c.cell:3:15: error: expected ';'", kind + ": a mistake")
    w.wait("^c.cell does not compile$", kind + ": a verdict of it")
    renamed(path, cell("1", "mended"))
    w.wait("^cell mended: ", kind + ": after a mistake")
    # The file goes, and comes back.
    os.unlink(path)
    w.wait("^cellc watch: c.cell is gone; waiting for it to come back$", kind + ": gone")
    renamed(path, cell("1", "back"))
    w.wait("^cell back: ", kind + ": back again")
    w.stop(kind)


def folders_and_links(folder):
    inner, other = os.path.join(folder, "inner"), os.path.join(folder, "other")
    os.makedirs(inner)
    os.makedirs(other)
    in_place(os.path.join(inner, "a.cell"), cell("1", "a"))
    in_place(os.path.join(other, "real.cell"), cell("1", "real"))
    os.symlink("other/real.cell", os.path.join(folder, "link.cell"))
    w = Watch(folder, "inner/a.cell", "link.cell", "--no-check")
    w.wait("^cell a: (.*\n)*cell real: (.*\n)*  time goes by", "two specs at first")
    # What a link leads to is saved in another folder; then the link is another one.
    renamed(os.path.join(other, "real.cell"), cell("1", "saved_there"))
    w.wait("^cell saved_there: ", "the target of a link is saved")
    in_place(os.path.join(other, "second.cell"), cell("1", "second"))
    os.symlink("other/second.cell", os.path.join(folder, "new"))
    os.rename(os.path.join(folder, "new"), os.path.join(folder, "link.cell"))
    w.wait("^cell second: ", "a link to another file")
    check(w.runs("inner/a.cell") == 1, "a spec that was not saved is not looked at again", w.text)
    # A folder that is removed and made again, as when another branch is checked out.
    shutil.rmtree(inner)
    w.wait("^cellc watch: inner/a.cell is gone", "a folder goes")
    os.makedirs(inner)
    in_place(os.path.join(inner, "a.cell"), cell("1", "of_new_folder"))
    w.wait("^cell of_new_folder: (.*\n)*  time goes by", "a new folder")
    in_place(os.path.join(inner, "a.cell"), cell("1", "again"))
    w.wait("^cell again: ", "a save in the new folder")
    w.stop("links")


def imports(folder):
    spec = os.path.join(folder, "c.cell")
    in_place(spec, cell("0", "c", 'import "part.cell";\n', "f(x[i])"))
    w = Watch(folder, "c.cell", "--no-check")
    w.wait('^c.cell:1:8: error: cannot find "part.cell"', "an import that is not there")
    w.wait("does not compile$", "which is an error")
    in_place(os.path.join(folder, "part.cell"), 'import "deep.cell";\nfn f(a) = g(a);\n')
    w.wait('error: cannot find "deep.cell"', "the import has come, and imports another")
    w.wait("does not compile$", "which is not there")
    in_place(os.path.join(folder, "deep.cell"), "fn g(a) = 2 * a;\n")
    w.wait("^cell c: (.*\n)*  time goes by", "that has come as well")
    renamed(os.path.join(folder, "deep.cell"), "fn g(a) = 2 * b;\n")
    w.wait("^deep.cell:1:1.: error: .*'b'", "a mistake in an import of an import")
    w.wait("does not compile$", "which is of the spec")
    renamed(spec, cell("1", "alone"))
    w.wait("^cell alone: (.*\n)*  time goes by", "the import is left out")
    # It is not a file of the spec's any more: what is saved next to it gives no run.
    before = w.runs()
    in_place(os.path.join(folder, "deep.cell"), "fn g(a) = 3 * a;\n")
    renamed(spec, cell("1", "last"))
    w.wait("^cell last: ", "the save after that")
    check(w.runs() == before + 1, "a file that the spec does not import any more", w.text)
    w.stop("imports")


SLOW_CC = """#!/bin/bash
# A compiler that works for ever where $SLOW is there, in another process, with a temporary file.
if [[ -e $SLOW ]]; then
    echo >"$(mktemp)"
    sleep 1234.5 &
    echo $! >>"$STARTED"
    wait
fi
exec cc "$@"
"""


def alive(pid):
    try:
        with open("/proc/%s/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_text(path):
    until = time.monotonic() + DEADLINE
    while not (os.path.exists(path) and os.path.getsize(path)) and time.monotonic() < until:
        time.sleep(0.02)


def checks(folder):
    path, slow = os.path.join(folder, "c.cell"), os.path.join(folder, "slow")
    started, compiler = os.path.join(folder, "started"), os.path.join(folder, "slow_cc")
    in_place(compiler, SLOW_CC)
    os.chmod(compiler, 0o755)
    spec = cell("k").replace("    dim N;", "    dim N;  const k = 1;  option way = a | b;").replace(
        "    y[i] = k * x[i];", "    when way == a { y[i] = k * x[i]; } else { y[i] = x[i]; }")
    in_place(path, spec)
    env = {"CC": compiler, "SLOW": slow, "STARTED": started}
    w = Watch(folder, "c.cell", "--set", "way=b", "--set", "k=3", "--dim", "N=6", "--sizes", "B=2,T=7", **env)
    between = w.wait(r"^check: [1-9]\d* passed, 0 failed; largest errors: .* \(\d+\.\d s\)$", "a verdict with its time")
    check("way=b" in between and "memory at B=2, T=7" in between, "options are passed on", between)
    # A save in the middle of a check ends it, with what it started.
    in_place(slow, "")
    renamed(path, spec.replace("cell c", "cell slow"))
    w.wait("^cell slow: ", "a check that takes long")
    wait_for_text(started)
    os.unlink(slow)
    renamed(path, spec.replace("cell c", "cell quick"))
    between = w.wait(r"^cell quick: (.*\n)*check: [1-9]\d* passed, 0 failed", "the save that ends it")
    check("check:" not in between.partition("cell quick")[0], "what was ended has no verdict", between)
    with open(started) as f:
        left = [pid for pid in f.read().split() if alive(pid)]
    check(not left, "the compiler of the run that was ended", " ".join(left))
    # Wrong code of a cell is not to be had here; a cell that is no number anywhere fails its check as well.
    renamed(path, spec.replace("cell c", "cell nan").replace("y[i] = x[i]", "y[i] = sqrt(-1 - x[i]^2)"))
    w.wait("^FAILED nan .*: the cell itself gives y = ", "a check that fails says why")
    w.wait(r"^check: \d+ passed, [1-9]\d* failed", "and how much of it")
    # A burst of saves is one run, or two where this process was not given a core for a while.
    before = w.runs()
    for i in range(20):
        (in_place, renamed)[i % 2](path, spec.replace("cell c", "cell burst%d" % i))
    w.wait(r"^cell burst19: (.*\n)*check: ", "the last of a burst")
    check(w.runs() - before <= 2, "a burst of saves gives %d runs" % (w.runs() - before), w.text)
    # A signal in the middle of a check.
    in_place(slow, "")
    in_place(started, "")
    renamed(path, spec.replace("cell c", "cell interrupted"))
    wait_for_text(started)
    w.stop("in the middle of a check")
    with open(started) as f:
        left = [pid for pid in f.read().split() if alive(pid)]
    check(not left, "a compiler outlives the command", " ".join(left))


def plain(folder):
    in_place(os.path.join(folder, "c.cell"), cell("1"))
    w = Watch(folder, "c.cell")
    w.wait("^check: ", "without a terminal")
    w.stop("by SIGTERM", signal.SIGTERM)
    check("\x1b" not in w.text, "nothing for a terminal elsewhere", w.text)


def terminal(folder):
    path = os.path.join(folder, "c.cell")
    in_place(path, cell("1"))
    w = Watch(folder, "c.cell", "--no-check", tty=True)
    w.wait("\x1b\\[H\x1b\\[2J== c.cell, ", "a terminal is cleared")
    w.wait("^waiting for changes; Ctrl-C ends", "a terminal says what is waited for")
    check("\x1b[3J" not in w.text, "what was scrolled away stays", "")
    renamed(path, cell("1", "next"))
    w.wait("\x1b\\[H\x1b\\[2J== c.cell, ", "cleared for the next run")
    w.wait("^cell next: ", "which is shown")
    w.wait("^waiting for changes", "and then waited for")
    w.stop("a terminal", None)


def wrong_words(folder):
    def answer(code, text, *words):
        r = subprocess.run([CELLC, "watch", *words], cwd=folder, capture_output=True, text=True, timeout=DEADLINE)
        check(r.returncode == code and text in r.stderr, "watch " + " ".join(words), r.stderr)
    answer(1, "there is no file 'nosuch'", "nosuch")
    answer(1, "cannot open './nosuch.cell'", "./nosuch.cell")
    answer(2, "takes SPEC...")
    answer(2, "unknown option --pol; did you mean --poll?", "--pol", "gru")
    answer(2, "--archs takes native", "gru", "--archs", "nine")
    answer(1, "--set", "gru:H=3")


with tempfile.TemporaryDirectory(prefix="watch") as top:
    scenarios = [one_spec, lambda folder: one_spec(folder, "--poll"), folders_and_links, imports, checks, plain, terminal,
                 wrong_words]
    for number, scenario in enumerate(scenarios):
        place = os.path.join(top, str(number))
        os.makedirs(place)
        try:
            scenario(place)
        except Stuck:
            pass
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed > 0)
