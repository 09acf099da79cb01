"""Compiled cells on disk. In: a readable name and the text that everything depends on. Out: a directory that holds
the finished build. Guaranteed: a directory with its final name is complete, since it is built under another name, written
through to the disk, and renamed; before it is used, the length and hash of each file are compared with what was noted, and
what a crash or a full disk has cut is built again; of several processes that want the same one builds and the others wait;
what another version built is never taken, since the name ends with a hash of all that went in; nor is what another user
may have put there.

CELLC_CACHE is where it lies (else XDG_CACHE_HOME/cellc, else ~/.cache/cellc); where all users may write there, in a
directory of this user's in it."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import tempfile
import time

from .errors import BuildError

INFO = "info.json"
NOTES = ".files.json"
LOCKS = ".locks"
BUILD = re.compile(r"\.(.+)\.[a-z0-9_]{8}")       # what mkdtemp makes of the name of an entry
OTHERS = stat.S_IWGRP | stat.S_IWOTH
noted = {}                  # path of the notes: {what and path of a file: [its size and times, what was found]}


def home():
    """The user's, also where HOME is empty."""
    found = os.environ.get("HOME", "")
    if os.path.isabs(found):
        return found
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise BuildError(f"there is no directory for compiled cells: HOME is not set, and user {os.getuid()} has none; "
                         "CELLC_CACHE names one") from None


def chosen():
    place = os.environ.get("CELLC_CACHE")
    if place:
        if place[:1] == "~" and place[1:2] in ("", "/"):
            place = home() + place[1:]
        return os.path.abspath(os.path.expanduser(place))
    base = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.join(home(), ".cache"), "cellc")


def root():
    place = chosen()
    with contextlib.suppress(OSError):
        if os.stat(place).st_mode & stat.S_IWOTH:
            return os.path.join(place, f"user-{os.geteuid()}")
    return place


def is_ours(st):
    """Of this user or of root, who may do anything as it is."""
    return st.st_uid in (os.geteuid(), 0)


def cannot(why):
    return BuildError(f"compiled cells cannot be kept in {root()}: {why}; CELLC_CACHE names another directory")


def open_root():
    """Makes the cache's directory; an error where others could put code there, or none can run."""
    place = root()
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        shared = place != chosen()
        st = os.lstat(place) if shared else os.stat(place)
        flags = os.statvfs(place).f_flag
    except OSError as error:
        raise cannot(error.strerror) from None
    if not stat.S_ISDIR(st.st_mode) or not is_ours(st) or (shared and st.st_mode & OTHERS):
        raise cannot(f"it belongs to user {st.st_uid}, who could put other code there" if not is_ours(st) else
                     "it is no directory that this user alone writes to")
    if flags & os.ST_NOEXEC:
        raise cannot("it is mounted noexec, so that no library in it can be used")
    return place


def entry_name(words, depends):
    """"e79-N32-bias_input-bf16-" and a hash of `depends`."""
    readable = "-".join(re.sub(r"[^A-Za-z0-9_.+]+", "_", word) for word in words)[:100]
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{readable}-{digest[:16]}"


@contextlib.contextmanager
def locked(name, wait=True):
    """One process at a time for this name; gives whether this is it, which without `wait` it may not be. The file stays: to
    remove it would let two hold it. It is opened where it lies, never where a symbolic link leads."""
    folder = os.path.join(open_root(), LOCKS)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        st = os.lstat(folder)
        if not stat.S_ISDIR(st.st_mode) or not is_ours(st):
            raise cannot(f"{LOCKS} in it is not a directory of this user's")
        handle = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        link = error.errno == errno.ELOOP
        raise cannot(f"{LOCKS}/{name} in it is a symbolic link" if link else error.strerror) from None
    try:
        yield lock(handle, wait)
    finally:
        os.close(handle)


def lock(handle, wait):
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def get(name, build):
    """The directory of the entry, made with build(directory) -> information unless it is there and whole."""
    final = os.path.join(open_root(), name)
    if is_whole(final):
        return final
    with locked(name):
        if not is_whole(final):
            make(name, final, build)
    return final


def make(name, final, build):
    sweep(name)
    place = tempfile.mkdtemp(prefix=f".{name}.", dir=root())
    try:
        info = build(place)
        info["created"] = time.strftime("%Y-%m-%dT%H:%M:%S")
        info["name"] = name
        info["files"] = {file: [os.path.getsize(path), digest(path)] for file, path in files_in(place)}
        with open(os.path.join(place, INFO), "w") as f:
            json.dump(info, f, indent=1)
        for _, path in files_in(place):
            os.chmod(path, os.stat(path).st_mode & ~OTHERS)
            write_through(path)
        os.chmod(place, 0o755)
        write_through(place)
        remove(final)                                # an entry that is not whole
        try:
            os.rename(place, final)
        except OSError as error:
            raise cannot(f"{name} is there and cannot be replaced: {error.strerror}") from None
        write_through(root())
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def write_through(path):
    """To the disk: what is renamed without that may be empty after a crash."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:              # as of a directory, on some file systems
            raise
    finally:
        os.close(handle)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def files_in(place):
    """(name, path) of all files of an entry; it has no directories."""
    return [(name, os.path.join(place, name)) for name in sorted(os.listdir(place))]


def digest(path):
    with open(path, "rb") as f:
        return hashlib.blake2b(f.read(), digest_size=16).hexdigest()


def info(path):
    with open(os.path.join(path, INFO)) as f:
        return json.load(f)


def noted_files(path):
    """{name: [length, hash]} as an entry's information has it; None where that is cut, or of another entry."""
    try:
        known = info(path)
    except (OSError, ValueError):
        return None
    files = known.get("files") if isinstance(known, dict) else None
    if not isinstance(files, dict) or known.get("name") != os.path.basename(path):
        return None
    return files if all(isinstance(mark, list) and len(mark) == 2 for mark in files.values()) else None


def is_whole(path):
    """Is the entry there, this user's or root's, for no one else to write to, and are its files what they were? Files are
    read again only where they look as if they had changed."""
    try:
        folder = os.lstat(path)
        files = noted_files(path)
        if not stat.S_ISDIR(folder.st_mode) or files is None:
            return False
        paths = [os.path.join(path, name) for name in (INFO, *files)]
        found = [os.lstat(one) for one in paths]
        if not all(is_ours(st) and not st.st_mode & OTHERS for st in (folder, *found)):
            return False
        if not all(stat.S_ISREG(st.st_mode) for st in found):
            return False
        if [st.st_size for st in found[1:]] != [size for size, _ in files.values()]:
            return False
        return remembered_of("whole", paths, lambda: [digest(one) for one in paths[1:]] == [h for _, h in files.values()])
    except OSError:
        return False


def remembered(what, path, find):
    """What find() gives for the file at `path`, from an earlier process if the file has been left alone since: its size,
    times and inode say so. A file that was written just now may be written again within one tick of its clock, so it is
    remembered only once it is older."""
    return remembered_of(what, [path], find)


def remembered_of(what, paths, find):
    """The same of several files; the first one's path names them."""
    found = [os.stat(path) for path in paths]
    mark = [number for st in found for number in (st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino)]
    latest = max(max(st.st_mtime, st.st_ctime) for st in found)
    key, notes = f"{what} {paths[0]}", os.path.join(root(), NOTES)
    if notes not in noted:
        noted[notes] = read_notes(notes)
    known = noted[notes].get(key)
    if known and known[0] == mark:
        return known[1]
    found = find()
    if time.time() - latest > 2:
        noted[notes][key] = [mark, found]
        keep_notes(notes)
    return found


def read_notes(path):
    """What does not have the shape of notes counts as none, entry by entry."""
    try:
        st = os.lstat(path)
        if not stat.S_ISREG(st.st_mode) or not is_ours(st) or st.st_mode & OTHERS:
            return {}
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
        handle, place = tempfile.mkstemp(prefix=NOTES, dir=open_root())
        with os.fdopen(handle, "w") as f:
            json.dump({**read_notes(path), **noted[path]}, f)
        os.replace(place, path)
    except (OSError, BuildError):
        pass                    # the cache says so where it cannot do without
    finally:
        if place and os.path.exists(place):
            os.unlink(place)


def size_of(path):
    """In bytes; what goes meanwhile counts nothing."""
    size = 0
    for at, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(at, name)).st_size
    return size


def created(path):
    """When the entry was made, or that it is cut."""
    try:
        return str(info(path)["created"]) if noted_files(path) is not None else "incomplete"
    except (OSError, ValueError, LookupError, TypeError):
        return "incomplete"


def names():
    try:
        return sorted(os.listdir(root()))
    except OSError:
        return []


def entries():
    """(name, bytes, when it was made) of what is there, by name; of builds that were broken off "incomplete" too."""
    paths = [(name, os.path.join(root(), name)) for name in names() if not name.startswith(".") or BUILD.fullmatch(name)]
    return [(name, size_of(path), created(path)) for name, path in paths if os.path.isdir(path)]


def clear():
    """Removes all entries, and builds that were broken off; gives how many of both there were. What another process builds
    just now stays."""
    count = sweep()
    for name, _, _ in entries():
        if not name.startswith("."):
            with locked(name):
                remove(os.path.join(root(), name))
            count += 1
    for name in names():
        if name.startswith(NOTES):
            remove(os.path.join(root(), name))
    noted.clear()
    return count


def sweep(held=None):
    """Removes builds that were broken off: those whose name no process holds, but this one `held`."""
    count = 0
    for other in names():
        found = BUILD.fullmatch(other)
        if not found:
            continue
        with contextlib.nullcontext(True) if found[1] == held else locked(found[1], wait=False) as mine:
            if mine:
                remove(os.path.join(root(), other))
                count += 1
    return count
