"""The cache after crashes, full disks and other users: what is cut or was put there by someone else is never used, but
built again or refused with the reason. The entries of most tests are made by a builder that only writes a file."""

import fcntl
import os
import pwd
import signal
import subprocess
import sys
import time

import numpy
import pytest

import cellc
from cellc import __main__, build, cache, native

OTHER = 65534               # some other user


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("CELLC_CACHE", str(tmp_path / "cache"))
    cache.noted.clear()
    return tmp_path / "cache"


def get(text="right", name="one-0"):
    """The text in the entry, and whether it was built for that."""
    built = []

    def write(place):
        built.append(place)
        with open(os.path.join(place, "f.so"), "w") as f:
            f.write(text)
        return {"manifest": "f.json"}

    path = cache.get(name, write)
    with open(os.path.join(path, "f.so")) as f:
        return f.read(), bool(built)


def put(path, data):
    path.write_bytes(data)


def command(capsys, *words):
    assert __main__.manage(list(words)) == 0
    return capsys.readouterr().out


BROKEN = {
    "a cut library": lambda e: put(e / "f.so", b"rig"),
    "an empty library": lambda e: put(e / "f.so", b""),
    "another library": lambda e: put(e / "f.so", b"wrong"),
    "no library": lambda e: (e / "f.so").unlink(),
    "a link for a library": lambda e: ((e / "f.so").rename(e.parent / "g.so"), (e / "f.so").symlink_to(e.parent / "g.so")),
    "empty information": lambda e: put(e / "info.json", b""),
    "cut information": lambda e: put(e / "info.json", (e / "info.json").read_bytes()[:40]),
    "information of another kind": lambda e: put(e / "info.json", b"[]"),
    "information without files": lambda e: put(e / "info.json", b'{"manifest": "f.json", "created": "now", "name": "one-0"}'),
    "information with other files": lambda e: put(e / "info.json", b'{"name": "one-0", "files": {"f.so": 3}}'),
    "no bytes that are text": lambda e: put(e / "info.json", b"\xff\xfe{"),
    "no information": lambda e: (e / "info.json").unlink(),
    "another entry": lambda e: (get("wrong", "two-0"), cache.remove(str(e)), (e.parent / "two-0").rename(e)),
    "a file for an entry": lambda e: (cache.remove(str(e)), put(e, b"")),
    "a directory that all may write to": lambda e: e.chmod(0o777),
    "a library that all may write to": lambda e: (e / "f.so").chmod(0o666),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_built_again(place, how, capsys):
    assert [get(), get()] == [("right", True), ("right", False)]
    BROKEN[how](place / "one-0")
    cache.noted.clear()
    for words in ([], ["list"], ["size"]):
        assert "compiled cells, " in command(capsys, *words)
    assert [get(), get()] == [("right", True), ("right", False)]
    BROKEN[how](place / "one-0")
    command(capsys, "clear")
    assert not (place / "one-0").is_dir() and get() == ("right", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="to give files away takes root")
@pytest.mark.parametrize("what", ["one-0", "one-0/f.so", "one-0/info.json"])
def test_what_another_user_put_there_is_not_used(place, what):
    get()
    os.chown(place / what, OTHER, OTHER)
    cache.noted.clear()
    assert get() == ("right", True) and os.stat(place / what).st_uid == 0


def test_a_directory_of_all_users(place, capsys):
    """Entries are in a directory of this user's then; nothing that lies beside it counts."""
    get("wrong")
    place.chmod(0o1777)
    assert get() == ("right", True)
    own = place / f"user-{os.geteuid()}"
    assert own.stat().st_mode & 0o777 == 0o700 and "1 compiled cells" in command(capsys, "list")
    own.chmod(0o770)
    with pytest.raises(cellc.BuildError, match="it is no directory that this user alone writes to; CELLC_CACHE names another"):
        get()
    cache.remove(str(own))
    (place / "mine").mkdir(mode=0o700)
    own.symlink_to(place / "mine")
    with pytest.raises(cellc.BuildError, match="it is no directory that this user alone writes to"):
        get()


@pytest.mark.skipif(os.geteuid() != 0, reason="to give a directory away takes root")
def test_a_directory_of_another_user(place):
    place.mkdir()
    os.chown(place, OTHER, OTHER)
    with pytest.raises(cellc.BuildError, match=f"belongs to user {OTHER}, who could put other code there; CELLC_CACHE names"):
        get()


def test_locks_are_not_opened_through_links(place, tmp_path):
    (place / ".locks").mkdir(parents=True)
    (tmp_path / "precious").write_text("text")
    (place / ".locks" / "one-0").symlink_to(tmp_path / "precious")
    with pytest.raises(cellc.BuildError, match=r"\.locks/one-0 in it is a symbolic link"):
        get()
    cache.remove(str(place / ".locks"))
    (tmp_path / "folder").mkdir()
    (place / ".locks").symlink_to(tmp_path / "folder")
    with pytest.raises(cellc.BuildError, match=r"\.locks in it is not a directory of this user's"):
        get()
    assert (tmp_path / "precious").read_text() == "text" and os.listdir(tmp_path / "folder") == []


def test_where_it_lies(monkeypatch, tmp_path):
    monkeypatch.delenv("CELLC_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    own = pwd.getpwuid(os.getuid()).pw_dir
    for name, value, wanted in [("HOME", str(tmp_path), f"{tmp_path}/.cache/cellc"), ("HOME", "", f"{own}/.cache/cellc"),
                                ("HOME", "here", f"{own}/.cache/cellc"), ("XDG_CACHE_HOME", "here", f"{own}/.cache/cellc"),
                                ("XDG_CACHE_HOME", str(tmp_path), f"{tmp_path}/cellc"), ("CELLC_CACHE", "~/c", f"{own}/c")]:
        monkeypatch.setenv(name, value)
        assert cache.root() == wanted
    for name in ("CELLC_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(pwd, "getpwuid", lambda user: {}[user])
    with pytest.raises(cellc.BuildError, match="HOME is not set, and user [0-9]* has none; CELLC_CACHE names one"):
        cache.root()


def test_a_directory_without_code(monkeypatch, place):
    class Noexec:
        f_flag = os.ST_NOEXEC

    monkeypatch.setattr(os, "statvfs", lambda path: Noexec)
    with pytest.raises(cellc.BuildError, match="cannot be kept in .*: it is mounted noexec, .*; CELLC_CACHE names another"):
        get()


def test_a_library_that_cannot_be_opened(tmp_path):
    (tmp_path / "f.so").write_text("not a library")
    with pytest.raises(cellc.BackendError) as found:
        native.Library.open_library(str(tmp_path / "f.so"))
    assert "cannot open " in str(found.value) and "CUDA" not in str(found.value)


KILLED = """
import os, signal
from cellc import cache
def build(place):
    open(os.path.join(place, "half"), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
cache.get("half-0", build)
"""


def test_a_build_that_was_killed(place, capsys):
    """It is gone when anything is built, or the cache is cleared; what another process builds just now stays."""
    def halves():
        return [name for name in os.listdir(place) if name.startswith(".half")]

    for name in ("one-0", "two-0", None):
        assert subprocess.run([sys.executable, "-c", KILLED]).returncode == -signal.SIGKILL
        assert len(halves()) == 1 and "incomplete" in command(capsys, "list")
        with open(place / ".locks" / "half-0") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert cache.sweep() == 0 and len(halves()) == 1
        if name:
            get(name=name)
        else:
            assert command(capsys, "clear").startswith("3 removed")
        assert halves() == []


LOADS = """
import cellc
cellc.load("cell scale { dim N; input x[N]; output y[N]; y[i] = 3 * x[i]; }", cuda=False)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_it_builds(place, tmp_path, number):
    """Neither compilers nor folders stay."""
    slow, started, temporary = tmp_path / "cc", tmp_path / "started", tmp_path / "tmp"
    slow.write_text(f"#!/bin/sh\nmktemp\nsleep 1234.5 &\necho $! >>'{started}'\nwait\n")
    slow.chmod(0o755)
    temporary.mkdir()
    child = subprocess.Popen([sys.executable, "-c", LOADS], env={**os.environ, "CC": str(slow), "TMPDIR": str(temporary)},
                             stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    while not (started.exists() and started.read_text().endswith("\n")):
        assert child.poll() is None
        time.sleep(0.05)
    assert [name for name in os.listdir(place) if name.startswith(".scale")]
    child.send_signal(number)
    assert child.wait(60) == -number

    def left():
        running = [pid for pid in started.read_text().split() if os.path.exists(f"/proc/{pid}")
                   and open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"]
        return running + os.listdir(temporary) + [name for name in os.listdir(place) if name.startswith(".scale")]

    until = time.time() + 20        # where Python ends at once, the compiler ends behind it
    while left() and time.time() < until:
        time.sleep(0.05)
    assert left() == []


def test_a_cell_whose_library_was_cut(place, monkeypatch):
    """As a crash leaves it: without a look at its length, a process ends with SIGBUS where it reads what is gone."""
    text = "cell scale { dim N; input x[N]; output y[N]; y[i] = 3 * x[i]; }"

    def load():
        monkeypatch.setattr(build, "made", {})
        cache.noted.clear()
        return cellc.load(text, framework="numpy")({}, numpy.ones((1, 1, 1), "f4"))[0].item()

    assert load() == 3
    name, = (name for name in os.listdir(place) if not name.startswith((".", "call-")))
    before = time.time()
    for file, length in (("libscale.so", 5000), ("libscale.so", 0), ("scale.json", 30), ("info.json", 0)):
        # A new file in its place, since this process has the old one open.
        with open(place / name / file, "rb") as f:
            data = f.read(length)
        os.unlink(place / name / file)
        (place / name / file).write_bytes(data)
        assert load() == 3 and os.path.getsize(place / name / file) > length
    assert all(os.stat(place / name / file).st_mtime >= before - 1 for file in os.listdir(place / name))
