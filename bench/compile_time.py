#!/usr/bin/env python3
"""Measures what compiling costs: cellc, and nvcc for each architecture, spec by spec, one at a time. In: names of specs
(all of specs/ without any), or WORKLOADS, a list of instances as workloads.txt is one; CELLC, NVCC, ARCHS ("90 80": the
first is the one that the limit is for), DTYPE (bf16, or f32 where a spec has no bf16), OUT (a file of JSON lines: what
is there of the same spec, compilers, options, type and architectures is kept and not measured again), LIMIT (15: seconds
that the first architecture may take). Out: the lines, and on standard output a table of what was asked for, the slowest
first, and what nvcc's parts took of those over the limit.

Seconds are processor time of the process and its children, which for compilers that wait for nothing is what an idle
machine takes by the clock, and does not grow with what else runs here (by more than the caches)."""
import glob
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = float(os.environ.get("LIMIT", "15"))


def seconds(command, **more):
    """Runs a command; processor seconds, or None and the message where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (round(took, 2) if done.returncode == 0 else None), done.stderr


def parts(path):
    """nvcc's own account of its phases: seconds by tool, from the file of --time."""
    sums = {}
    with open(path) as file:
        for row in list(file)[1:]:
            cells = [cell.strip() for cell in row.split(",")]
            tool = cells[1].split(" (")[0]
            sums[tool] = sums.get(tool, 0.0) + float(cells[-2]) / 1000
    return {tool: round(took, 2) for tool, took in sums.items() if took >= 0.05}


def program_hash(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def compilers():
    """What times depend on beside a spec: another cellc or nvcc takes another time."""
    try:
        version = subprocess.run([os.environ.get("NVCC") or "nvcc", "--version"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True).stdout
    except OSError:                  # what each spec then says
        version = ""
    return {"compiler": program_hash(os.environ.get("CELLC", os.path.join(ROOT, "build/cellc"))),
            "nvcc_version": " ".join(version.split())}


def row_key(row):
    """What a time counts for; of rows without all of this nobody knows what made them."""
    return json.dumps([row.get(name) for name in ("spec", "compiler", "nvcc_version", "source", "wanted", "archs")])


def source_hash(cell):
    """Of a spec and of all that it may import."""
    names = [os.path.join(ROOT, "specs", name + ".cell") for name in (cell, "std")]
    return "".join(program_hash(name) for name in names if os.path.exists(name))


def compile_for(arch, folder, cell):
    object_file, times = os.path.join(folder, "k.o"), os.path.join(folder, "time.csv")
    for old in (object_file, times):
        if os.path.exists(old):
            os.remove(old)
    environment = dict(os.environ, NVCC=os.environ.get("NVCC") or "nvcc", ARCH="sm_" + arch)
    took, message = seconds(["bash", os.path.join(ROOT, "scripts/compile_kernels.sh"), os.path.join(folder, cell + ".cu"),
                             object_file, "--time", times], env=environment)
    if took is None:
        return {"error": (message.strip().splitlines() or ["failed"])[-1]}
    return {"seconds": took, "parts": parts(times), "bytes": os.path.getsize(object_file)}


def measure(name, cell, options, archs):
    """options: of cellc; where they do not say the type it is DTYPE's, or f32."""
    cellc = os.environ.get("CELLC", os.path.join(ROOT, "build/cellc"))
    types = [[]] if "--dtype" in options else [["--dtype", t] for t in dict.fromkeys((os.environ.get("DTYPE", "bf16"), "f32"))]
    with tempfile.TemporaryDirectory() as folder:
        for dtype in types:
            chosen = options + dtype
            took, message = seconds([cellc, "emit", os.path.join(ROOT, "specs", cell + ".cell"), *chosen, "-o", folder])
            if took is not None:
                break
        if took is None:
            return {"spec": name, "error": (message.strip().splitlines() or ["failed"])[0]}
        with open(os.path.join(folder, cell + ".cu")) as file:
            source = file.read()
        row = {"spec": name, "dtype": chosen[chosen.index("--dtype") + 1], "cellc": took, "lines": source.count("\n"),
               "kernels": source.count(" __global__ "), "nvcc": {}}
        for arch in archs:
            row["nvcc"][arch] = compile_for(arch, folder, cell)
        return row


def instances():
    """(name, cell, options) of what is to be measured."""
    if os.environ.get("WORKLOADS"):
        with open(os.environ["WORKLOADS"]) as file:
            lines = [line.split("|") for line in file if line.strip() and not line.startswith("#")]
        return [(name.strip(), spec.split()[0], spec.split()[1:]) for name, spec, *_ in lines]
    files = sorted(glob.glob(os.path.join(ROOT, "specs/*.cell")))
    names = sys.argv[1:] or [os.path.basename(file)[:-len(".cell")] for file in files]
    return [(name, name, []) for name in names if name != "std"]


def table(rows, archs):
    def of(row, arch):
        return row["nvcc"].get(arch, {}).get("seconds") if "nvcc" in row else None

    def shown(value):
        return "-" if value is None else f"{value:.1f}"

    rows = sorted(rows, key=lambda row: -(of(row, archs[0]) or 0))
    print(f"{'spec':26} {'type':5} {'lines':>6} {'kernels':>7} {'cellc':>6}", *(f"{'sm_' + arch:>7}" for arch in archs))
    for row in rows:
        if "error" in row:
            print(f"{row['spec']:26} {row['error']}")
            continue
        print(f"{row['spec']:26} {row['dtype']:5} {row['lines']:6} {row['kernels']:7} {row['cellc']:6.2f}",
              *(f"{shown(of(row, arch)):>7}" for arch in archs))
    for arch in archs:
        times = sorted(of(row, arch) for row in rows if of(row, arch) is not None)
        if times:
            print(f"sm_{arch}: {len(times)} specs, median {times[len(times) // 2]:.1f} s, most {times[-1]:.1f} s, "
                  f"{sum(took > LIMIT for took in times)} over {LIMIT:g} s")
    for row in rows:
        if (of(row, archs[0]) or 0) > LIMIT:
            took = row["nvcc"][archs[0]]["parts"]
            print(f"{row['spec']}: " + ", ".join(f"{tool} {took[tool]}" for tool in sorted(took, key=lambda t: -took[t])))


def main():
    archs = os.environ.get("ARCHS", "90 80").split()
    out = os.environ.get("OUT", os.path.join(ROOT, "build/compile_time.json"))
    os.makedirs(os.path.dirname(out) or ".", exist_ok=True)
    known, rows, made_by = {}, [], compilers()
    if os.path.exists(out):
        with open(out) as file:
            known = {row_key(row): row for row in map(json.loads, file)}
    for name, cell, options in instances():
        made = {"spec": name, **made_by, "source": source_hash(cell), "archs": archs,
                "wanted": options + [os.environ.get("DTYPE", "bf16")]}
        if row_key(made) not in known:
            known[row_key(made)] = {**made, **measure(name, cell, options, archs)}
            with open(out, "a") as file:
                file.write(json.dumps(known[row_key(made)]) + "\n")
        rows.append(known[row_key(made)])
    table(rows, archs)


if __name__ == "__main__":
    main()
