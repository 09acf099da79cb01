"""`python -m cellc`, and the command `cellc` that this package installs: `cellc cache` looks after what was
compiled, `cellc doctor` says what this Python finds besides what the compiler finds, everything else goes
to the compiler. Guaranteed: the compiler's output and exit status pass through unchanged."""

import os
import sys

from . import cache, compiler, doctor
from .errors import CellcError

USAGE = """usage: cellc cache [list | size | clear]

  list    compiled cells, with their size (the default)
  size    how much all of them take
  clear   remove them; they are compiled again when they are loaded
"""


def readable(count):
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def manage(words):
    what = words[0] if words else "list"
    if len(words) > 1 or what not in ("list", "size", "clear"):
        print(USAGE, end="", file=sys.stdout if what in ("--help", "help") else sys.stderr)
        return 0 if what in ("--help", "help") else 2
    if what == "clear":
        print(f"{cache.clear()} removed from {cache.root()}")
        return 0
    listed = cache.entries()
    for name, size, created in listed if what == "list" else []:
        print(f"{readable(size):>9}  {created:19}  {name}")
    print(f"{len(listed)} compiled cells, {readable(sum(size for _, size, _ in listed))}, in {cache.root()}")
    return 0


def main():
    words = sys.argv[1:]
    try:
        if words[:1] == ["cache"]:
            return manage(words[1:])
        if words[:1] == ["doctor"]:
            return doctor.main(words[1:])
        path = compiler.program()
    except CellcError as error:
        print(f"cellc: {error}", file=sys.stderr)
        return 1
    sys.stdout.flush()
    os.execv(path, [path, *words])


def cache_main():
    sys.argv[1:1] = ["cache"]
    return main()


if __name__ == "__main__":
    sys.exit(main())
