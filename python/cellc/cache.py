"""Compiled cells on disk. In: a readable name and the text that everything depends on. Out: a directory that holds
the finished build. Guaranteed: a directory with its final name is complete, since it is built under another name and
renamed; of several processes that want the same one builds and the others wait; what another version built is never
taken, since the name ends with a hash of all that went in.

CELLC_CACHE is where it lies (else XDG_CACHE_HOME/cellc, else ~/.cache/cellc)."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time

from .errors import BuildError

INFO = "info.json"
NOTES = ".files.json"
noted = {}                  # path of the notes: {what and path of a file: [its size and times, what was found]}


def root():
    chosen = os.environ.get("CELLC_CACHE")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "cellc")


def entry_name(words, depends):
    """"e79-N32-bias_input-bf16-" and a hash of `depends`."""
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.+]+", "_", word) for word in words)[:100]
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{readable}-{digest[:16]}"


@contextlib.contextmanager
def locked(name):
    """One process at a time for this name. The file stays: to remove it would let two hold it."""
    folder = os.path.join(root(), ".locks")
    try:
        os.makedirs(folder, exist_ok=True)
        handle = open(os.path.join(folder, name), "w")
    except OSError as error:
        raise BuildError(f"compiled cells cannot be kept in {root()}: {error.strerror}; "
                         "CELLC_CACHE names another directory") from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def get(name, build):
    """The directory of the entry, made with build(directory) -> information unless it is there."""
    final = os.path.join(root(), name)
    if os.path.exists(os.path.join(final, INFO)):
        return final
    with locked(name):
        if not os.path.exists(os.path.join(final, INFO)):
            make(name, final, build)
    return final


def make(name, final, build):
    place = tempfile.mkdtemp(prefix=f".{name}.", dir=root())
    try:
        info = build(place)
        info["created"] = time.strftime("%Y-%m-%dT%H:%M:%S")
        with open(os.path.join(place, INFO), "w") as f:
            json.dump(info, f, indent=1)
        os.chmod(place, 0o755)
        shutil.rmtree(final, ignore_errors=True)     # an entry that somebody took the information out of
        os.rename(place, final)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def info(path):
    with open(os.path.join(path, INFO)) as f:
        return json.load(f)


def remembered(what, path, find):
    """What find() gives for the file at `path`, from an earlier process if the file has been left alone since: its size,
    times and inode say so. A file that was written just now may be written again within one tick of its clock, so it is
    remembered only once it is older."""
    st = os.stat(path)
    mark = [st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino]
    key, notes = f"{what} {path}", os.path.join(root(), NOTES)
    if notes not in noted:
        noted[notes] = read_notes(notes)
    known = noted[notes].get(key)
    if known and known[0] == mark:
        return known[1]
    found = find()
    if time.time() - max(st.st_mtime, st.st_ctime) > 2:
        noted[notes][key] = [mark, found]
        keep_notes(notes)
    return found


def read_notes(path):
    """What does not have the shape of notes counts as none, entry by entry."""
    try:
        with open(path) as f:
            notes = json.load(f)
    except (OSError, ValueError):
        return {}
    if not isinstance(notes, dict):
        return {}
    return {key: note for key, note in notes.items() if isinstance(note, list) and len(note) == 2}


def keep_notes(path):
    """Several processes may do this at once: the last one's stay, and each other finds again what it wants."""
    place = None
    try:
        os.makedirs(root(), exist_ok=True)
        handle, place = tempfile.mkstemp(prefix=NOTES, dir=root())
        with os.fdopen(handle, "w") as f:
            json.dump({**read_notes(path), **noted[path]}, f)
        os.replace(place, path)
    except OSError:
        pass                    # the cache says so where it cannot do without
    finally:
        if place and os.path.exists(place):
            os.unlink(place)


def size_of(path):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def entries():
    """(name, bytes, information) of what is there, by name."""
    try:
        names = sorted(os.listdir(root()))
    except OSError:
        return []
    paths = [(name, os.path.join(root(), name)) for name in names if not name.startswith(".")]
    return [(name, size_of(path), info(path)) for name, path in paths
            if os.path.exists(os.path.join(path, INFO))]


def clear():
    """Removes all entries, and builds that were broken off; gives how many entries there were."""
    listed = entries()
    for name, _, _ in listed:
        with locked(name):
            shutil.rmtree(os.path.join(root(), name), ignore_errors=True)
            remains(name)
    return len(listed)


def remains(name):
    for other in os.listdir(root()):
        if other.startswith(f".{name}."):
            shutil.rmtree(os.path.join(root(), other), ignore_errors=True)
