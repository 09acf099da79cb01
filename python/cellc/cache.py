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
