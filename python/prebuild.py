"""Compiles the shipped cells for CPUs that have no C compiler beside them. In: a built source tree, the package's
_home, and what CELLC_PREBUILT says. Out: libraries in _home/prebuilt, and index.json, which says what is in them.
Guaranteed: a library wants nothing but the C library, since its runtime has neither CUDA nor a BLAS in it; dims are
left to the run time wherever the cell allows that, so that one instance serves all sizes; what was compiled before from
the same sources is taken again.

CELLC_PREBUILT: "options" (when it is not set: every cell, in f32, with its default options and with each other value of
one of them), "defaults" (every cell with its default options), "none", or instances as `cellc build` takes them, such as
"e79:bias=input lstm:dtype=f64"."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cellc import compiler, prebuilt  # noqa: E402

# The reference is compiled once for all users, who wait neither for it nor for -O3.
CFLAGS = "-O2"
EACH = 100                 # instances in a library: a command of cellc's has room for the files of so many


def variants(name, text):
    """Settings of a spec: none, then each value of each option that is not the first."""
    text = re.sub(r"//.*", "", text)
    found = [{}]
    for option, values in re.findall(r"^\s*option (\w+) = ([^;]*);", text, re.M):
        found += [{option: value.strip()} for value in values.split("|")[1:]]
    return [(name, settings) for settings in found]


def wanted(which, specs):
    """[(cell, settings)] that CELLC_PREBUILT asks for."""
    if which not in ("options", "defaults"):
        split = [word.partition(":")[::2] for word in which.split()]
        return [(name, dict(pair.split("=", 1) for pair in words.split(",") if pair)) for name, words in split]
    names = sorted(name[:-5] for name in os.listdir(specs) if name.endswith(".cell") and name != "std.cell")
    found = []
    for name in names:
        with open(os.path.join(specs, name + ".cell"), encoding="utf-8") as f:
            every = variants(name, f.read())
        found += every if which == "options" else every[:1]
    return found


def operand(name, settings):
    return name + ":" + ",".join(f"{k}={v}" for k, v in settings.items()) if settings else name


class Prebuild:
    def __init__(self, tree, place):
        self.place, self.cellc = place, os.path.join(tree, "build", "cellc")

    def run(self, *words, **more):
        env = {**os.environ, "CFLAGS": os.environ.get("CFLAGS") or CFLAGS}
        return subprocess.run([self.cellc, *words], env=env, text=True, **more)

    def manifest(self, name, settings):
        """What bindings read of an instance, or None where the settings do not compile."""
        dims = [d for d in self.dims.get(name, []) if d in settings]
        words = [w for k, v in settings.items() if k != "dtype" for w in ("--dim" if k in dims else "--set", f"{k}={v}")]
        words += ["--dtype", settings["dtype"]] if "dtype" in settings else []
        done = self.run("emit", "--kind", "manifest", name, *words, capture_output=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def opened(self, name, settings):
        """(settings with dims left open, the manifest): all dims that have a value, or those that can be left."""
        plain = self.manifest(name, settings)
        if plain is None:
            raise SystemExit(f"cellc: {operand(name, settings)} does not compile")
        self.dims[name] = dims = [d for d in plain["bound"] if d not in settings]
        every = {**settings, **dict.fromkeys(dims, "open")}
        found = self.manifest(name, every)
        if found:
            return every, found
        kept = dict(settings)
        for dim in dims:
            if self.manifest(name, {**kept, dim: "open"}):
                kept[dim] = "open"
        return kept, self.manifest(name, kept)

    def index(self, instances):
        """What stands in index.json, and the operands of `cellc build`."""
        self.dims, entries, operands = {}, [], []
        for name, settings in instances:
            known, m = self.opened(name, settings)
            words = operand(name, known)
            symbol = re.sub(r"=(?=\d)", "", words.partition(":")[2])
            symbol = m["name"] + "_" + re.sub(r"[^A-Za-z0-9]", "_", symbol) if symbol else m["name"]
            entries.append({"name": m["name"], "spec": prebuilt.identity(compiler.Spec(name)), "dtype": m["dtype"],
                            "options": m["options"], "bound": m["bound"], "sizes": m["sizes"],
                            "instance": symbol + "_instance"})
            operands.append(words)
        return entries, operands

    def libraries(self, out, instances, cpu, entries):
        """Adds to the entries; cpu: an option of `cellc build`."""
        own, operands = self.index(instances)
        for first in range(0, len(operands), EACH):
            some, name = operands[first:first + EACH], f"cells{len(entries)}"
            for entry in own[first:first + EACH]:
                entry["library"] = f"lib{name}.so"
            if len(some) == 1:      # cellc then calls it as the cell, without what was bound
                own[first]["instance"] = own[first]["name"] + "_instance"
            done = self.run("build", "--no-cuda", "--cpu", cpu, "--name", name, "-o", out, *some,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if done.returncode:
                raise SystemExit(f"{done.stderr}cellc: the cells that come compiled were not; CELLC_PREBUILT=none leaves "
                                 "them out")
            entries += own[first:first + EACH]

    def build(self, which, instances):
        """Where every value of every option is compiled, kernels for the CPU are those of the default ones: they are
        four times the size of the reference."""
        out, entries = os.path.join(self.place, "out"), []
        shutil.rmtree(out, ignore_errors=True)
        plain = [(name, settings) for name, settings in instances if which == "options" and settings]
        self.libraries(out, [pair for pair in instances if pair not in plain], "portable", entries)
        self.libraries(out, plain, "none", entries)
        with open(os.path.join(out, "index.json"), "w") as f:
            json.dump({"machine": prebuilt.machine(), "instances": entries}, f, indent=0)


def stamp(tree, which):
    """Changes when anything does that is compiled here."""
    h = hashlib.sha256(f"{which} {os.environ.get('CC')} {os.environ.get('CFLAGS')}".encode())
    for folder in ("specs", "runtime", "runtime/cpu", "build/cellc", "python/prebuild.py", "python/cellc/prebuilt.py"):
        path = os.path.join(tree, folder)
        files = [os.path.join(path, n) for n in sorted(os.listdir(path))] if os.path.isdir(path) else [path]
        for file in filter(os.path.isfile, files):
            with open(file, "rb") as f:
                h.update(hashlib.sha256(f.read()).digest())
    return h.hexdigest()


def prebuild(tree, home):
    which = os.environ.get("CELLC_PREBUILT") or "options"
    into = os.path.join(home, "prebuilt")
    shutil.rmtree(into, ignore_errors=True)
    if which == "none":
        return
    os.environ["CELLC"] = os.path.join(tree, "build", "cellc")
    place = os.path.join(tree, "build", "prebuilt")
    mark, now = os.path.join(place, "stamp"), stamp(tree, which)
    os.makedirs(place, exist_ok=True)
    if not os.path.exists(mark) or open(mark).read() != now:
        Prebuild(tree, place).build(which, wanted(which, os.path.join(tree, "specs")))
        with open(mark, "w") as f:
            f.write(now)
    os.makedirs(into)
    shutil.copy(os.path.join(place, "out", "index.json"), into)
    for name in [name for name in os.listdir(os.path.join(place, "out")) if name.endswith(".so")]:
        library = shutil.copy(os.path.join(place, "out", name), into)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-unneeded", library], check=True)


if __name__ == "__main__":
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    prebuild(root, sys.argv[1])
