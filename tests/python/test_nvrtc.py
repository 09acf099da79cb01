"""Kernels without nvcc: NVRTC compiles them, and the runtime launches them through the driver. Neither wants a GPU: the
machine code is made and looked at; what runs are the same kernels for the CPU, behind a driver that is a fake
(fake_cuda.cc), declared by NVIDIA's own headers."""

import ctypes
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import shipped

import cellc
from cellc import build, compiler, nvrtc, prebuilt, tables

np = pytest.importorskip("numpy")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CXX = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
compiles = pytest.mark.skipif(not nvrtc.library(), reason="there is no libnvrtc; PyTorch for CUDA brings one")


def emitted(name, *words):
    return compiler.run(["emit", name, "--kind", "cuda", *words], None)[0]


@compiles
@pytest.mark.parametrize("name, dtype, arch", [("lstm", "bf16", "80"), ("e79", "f32", "90"), ("s5", "f32", "90"),
                                               ("gated_delta", "bf16", "90"), ("cross_entropy", "f64", "80")])
def test_machine_code(name, dtype, arch):
    """Every kernel that the source defines is in the image, under its name."""
    source = emitted(name, "--dtype", dtype)
    folder = compiler.headers_dir()
    image = nvrtc.compile_kernels(source, name + ".cu", folder, arch)
    assert image[:4] == b"\x7fELF"
    names = [line.split("(")[0] for before, line in zip(source.splitlines(), source.splitlines()[1:])
             if "__global__" in before]
    assert names and all(b"\0" + n.encode() + b"\0" in image or b".text." + n.encode() in image for n in names)


@compiles
def test_what_nvrtc_says():
    folder = compiler.headers_dir()
    with pytest.raises(cellc.BuildError, match=r"NVRTC failed on a.cu: NVRTC_ERROR_COMPILATION\n.*a.cu\(1\): error"):
        nvrtc.compile_kernels("__global__ void f() { nothing; }", "a.cu", folder, "90")
    with pytest.raises(cellc.BuildError, match="NVRTC compiles for numbers such as 90, not for 'native'"):
        nvrtc.compile_kernels("", "a.cu", folder, "native")


@compiles
def test_load_makes_images(monkeypatch):
    monkeypatch.setenv("CELLC_KERNELS", "nvrtc")
    cls = cellc.load("lstm", cuda=True, archs="80 90")
    there = set(os.listdir(cls.instance.path))
    assert {"lstm.sm80.cubin", "lstm.sm90.cubin", "liblstm.so"} <= there and "nvrtc-sm80_90" in cls.instance.path
    if not cls.instance.library.images:          # no GPU
        with pytest.raises(cellc.BackendError, match="liblstm.so has no kernels for GPU 0: it was compiled for others"):
            cls.instance.library.open(0)
    monkeypatch.setenv("CELLC_KERNELS", "gcc")
    with pytest.raises(cellc.BuildError, match="CELLC_KERNELS is 'gcc'; wanted nvcc or nvrtc"):
        cellc.load("lstm", cuda=True)


def plan_text(library, desc, n):
    """The plan as the runtime prints it, of the description and of those for smaller devices."""
    text = library.cell_plan_text
    text.argtypes = [ctypes.c_void_p, ctypes.c_char, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    sizes = (ctypes.c_int64 * n)(3, 5, *[8, 16, 24, 32, 40, 48][:n - 3], 0)
    found = []
    while desc:
        for way in (b"f", b"b", b"s"):
            out = ctypes.create_string_buffer(1 << 17)
            assert text(desc, way, sizes, out, len(out)) < len(out)
            assert b"the plan is wrong" not in out.value
            found.append(out.value)
        desc = tables.Desc.from_address(desc).next
    return found


@pytest.mark.parametrize("name", ["e79", "lstm", "mamba1", "embedding", "gru_d"])
def test_tables_are_what_is_compiled(name, tmp_path):
    compiler.run(["build", name, "--kernels-apart", "-o", str(tmp_path)], None)
    dll = ctypes.CDLL(str(tmp_path / f"lib{name}.so"))
    instance = getattr(dll, name + "_instance")
    instance.restype = ctypes.c_void_p
    desc, _ = tables.read(tmp_path / f"{name}.c", compiler.headers_dir())
    compiled = tables.Desc.from_address(instance())
    for field, kind in desc._fields_:
        if kind is tables.P:
            assert bool(getattr(desc, field)) == (bool(getattr(compiled, field)) and not field.startswith("ref_") and field != "cpu"), field
        else:
            assert getattr(desc, field) == getattr(compiled, field), field
    mine = plan_text(dll, ctypes.addressof(desc), desc.n_sizes)
    assert mine == plan_text(dll, instance(), desc.n_sizes) and len(mine[0]) > 20


def test_all_tables_are_understood(tmp_path):
    for name in shipped():
        path = tmp_path / (name + ".c")
        path.write_text(compiler.run(["emit", name, "--kind", "plan"], None)[0])
        desc, _ = tables.read(path, compiler.headers_dir())
        assert desc.name == name.encode() and desc.forward
    text = compiler.run(["emit", "lstm", "--kind", "plan"], None)[0]
    for was, wrong, what in ((".threads = 256", ".threads = many", "many"), (".threads = 256", ".fibers = 256", "fibers"),
                             (".kind = CELL_OP_KERNEL", ".kind = 1 + 2", "+ 2"), (".u.gemm", ".u.gem", "u.gem"),
                             ("static const int64_t x0[]", "static const long x0[]", "static const long x0[]"),
                             ("static const int64_t x0[] =", "static const int64_t x0[9] =", "x0[9]")):
        assert was in text
        path.write_text(text.replace(was, wrong))
        with pytest.raises(cellc.BuildError,
                           match=f"a table of the plan has what is not understood: .*{re.escape(what)}"):
            tables.read(path, compiler.headers_dir())


@compiles
def test_no_c_compiler(monkeypatch):
    """Everything but running it, which wants a GPU."""
    monkeypatch.setenv("CC", "/no/cc")
    monkeypatch.setenv("CELLC_KERNELS", "nvrtc")
    monkeypatch.setattr(prebuilt, "instances", list)
    build.told.clear()
    with pytest.warns(cellc.CellcWarning, match="there is no C compiler, and no cells came compiled with this package, so"):
        cls = cellc.load("e79", N=16, bias="input", cuda=True, archs="90")
    assert "nvrtc-no_cc-sm90" in cls.instance.path and cls.instance.library.path.endswith("libcell.so")
    assert cls.instance.manifest.key == "e79:N=16,bias=input,dtype=f32" and "schedule" in cls.explain()
    with pytest.raises(cellc.BackendError, match="e79: the tensors are on the CPU, but this build has kernels only"):
        cls(D=3)(torch.zeros(1, 2, 3))
    with pytest.raises(cellc.BuildError, match="e79: there is no C compiler, and no cells came compiled .* gcc"):
        cellc.load("e79", N=16, bias="input", cuda=False)


def test_neither(monkeypatch):
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    with pytest.raises(cellc.BuildError, match="neither nvcc, as far as cellc knows, nor NVRTC"):
        cellc.load("lstm", cuda=True)
    with pytest.raises(cellc.BuildError, match="neither nvcc nor libnvrtc"):
        nvrtc.compile_kernels("", "a.cu", compiler.headers_dir(), "90")


PROGRAM = r"""
import ctypes
import os
import re
import sys
import numpy as np
import cellc
from cellc import compiler, tables
from cellc.native import RECOMPUTE, Library
from cellc.with_numpy import empty

name, path, image, dtype, bound = sys.argv[1:6]
cell = cellc.load(name, framework="numpy", dtype=dtype)
m, g = cell.manifest, np.random.default_rng(1)
images = {0: image.encode()}
library = Library(path, m.entry("instance"), images)
desc, kept = tables.read(os.path.join(os.path.dirname(path), name + ".c"), compiler.headers_dir())
alone = Library(os.path.join(compiler.library_dir(), "libcell.so"), None, images, ctypes.addressof(desc), kept)
sizes = {name: n for name, n in zip(m.dims, (24, 16, 8))} | {"B": 3, "T": 5, "t0": 0}
listed = m.list_sizes(sizes)

def draw(t):
    z = 0.5 * g.normal(size=t.shape(sizes))
    a = empty(z.shape, cell.dtype_of(t))
    a[...] = z + (0.5j * g.normal(size=z.shape) if t.dtype[0] == "c" else 0)
    return a

def made(tensors):
    return [empty(tuple(t.shape(sizes)), cell.dtype_of(t)) for t in tensors]

def addresses(arrays):
    return [a.ctypes.data for a in arrays]

given, weights = [draw(t) for t in m.given], [draw(t) for t in (*m.outputs, *m.states)]
found = []
for lib, device in ((cell.library, None), (library, 0), (alone, 0)):
    reserve = empty((lib.memory("reserve", device, listed) + 512,), np.dtype("u1"))
    at = -reserve.ctypes.data % 256
    memory = (reserve.ctypes.data + at, reserve.nbytes - at)
    results, grads = made((*m.outputs, *m.states)), made(m.given)
    for again in range(3):                       # a loop is captured the second time, and then run from the graph
        for a in results + grads:
            a.view("u1").fill(0xff)
        lib.call("forward", device, 0, listed, addresses(given + results), (0, 0), memory)
        lib.call("backward", device, 0, listed, addresses(given + weights + grads), (0, 0), memory)
    found.append(results + grads)
for a, b, c, t in zip(*found, (*m.outputs, *m.states, *m.given)):
    assert (b == c).all(), t.name                # the same kernels in the same order
    scale = max(1, np.abs(a.astype(complex)).max())
    off = np.abs(a.astype(complex) - b.astype(complex)).max() / scale
    assert off < float(bound), (t.name, off)
sizes["T"] = 60                                  # in pieces, whose rows are copied
listed = m.list_sizes(sizes)
given, weights = [draw(t) for t in m.given], [draw(t) for t in (*m.outputs, *m.states)]
whole = library.memory("reserve", 0, listed)
try:
    least = library.memory("reserve", 0, listed, 1)
except cellc.ShapeError as error:
    least = int(re.search(r"the least is ([0-9]+)", str(error))[1])
assert least < whole or whole == 0, (least, whole)
found = []
for budget, flags in ((whole, 0), (least, RECOMPUTE), ((least + whole) // 2, RECOMPUTE)):
    reserve = empty((budget + 512,), np.dtype("u1"))
    at = -reserve.ctypes.data % 256
    memory = (reserve.ctypes.data + at, budget)
    results, grads = made((*m.outputs, *m.states)), made(m.given)
    for a in results + grads:
        a.view("u1").fill(0xff)
    library.call("forward", 0, 0, listed, addresses(given + results), (0, 0), memory, flags)
    library.call("backward", 0, 0, listed, addresses(given + weights + grads), (0, 0), memory, flags)
    found.append(results + grads)
for a, b, c, t in zip(*found, (*m.outputs, *m.states, *m.given)):
    scale = max(1, np.abs(a.astype(complex)).max())
    for cut in (b, c):
        off = np.abs(a.astype(complex) - cut.astype(complex)).max() / scale
        assert off < float(bound), (t.name, off)
driver = ctypes.CDLL("libcuda.so.1")
assert driver.fake_launches() > 0
print("same", "graphs" if driver.fake_graphs() else "no graphs")
"""


@pytest.fixture(scope="module")
def fakes(tmp_path_factory):
    """The directory of a libcuda.so.1 that is none."""
    include = [os.path.join(os.path.dirname(os.path.dirname(path)), "include") for path in nvrtc.packaged("libcublas")]
    include += [p for p in (os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include"),)]
    include = [p for p in include if os.path.exists(os.path.join(p, "cuda.h")) and
               os.path.exists(os.path.join(p, "crt", "host_defines.h")) and
               os.path.exists(os.path.join(p, "cublas_v2.h"))]
    if not include or not CXX or not os.path.exists(os.path.join(ROOT, "tests", "emulator")):
        pytest.skip("the fake driver wants a C++ compiler and NVIDIA's headers, which PyTorch for CUDA brings")
    place = tmp_path_factory.mktemp("fake")
    subprocess.run([CXX, "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{ROOT}/runtime", f"-I{ROOT}/tests/emulator",
                    "-isystem", include[0], os.path.join(HERE, "fake_cuda.cc"), "-o", place / "libcuda.so.1", "-ldl"],
                   check=True)
    build_for_emulator("lib", place)
    return place


def build_for_emulator(*words):
    subprocess.run(["bash", os.path.join(ROOT, "tests", "emulator", "build.sh"), *words], check=True,
                   env={**os.environ, "EMU_SANITIZE": "0", "CXX": CXX})


# Sums of up to 24 products in another order than the reference's, through 5 steps: a hundred roundings of 6e-8 in f32.
# In bf16 values are stored between kernels in both, at places of their own: a few roundings of 4e-3.
# The loops of lstm_layernorm, whose steps are kernels, are captured; the others have none at these sizes.
@pytest.mark.parametrize("name, dtype, bound", [("lstm", "f32", 1e-5), ("e79", "f32", 1e-5), ("s5", "f32", 1e-5),
                                                ("gru", "f32", 1e-5), ("layernorm", "f32", 1e-5),
                                                ("lstm_layernorm", "f32", 1e-5),
                                                ("lstm", "bf16", 4e-2), ("gated_delta", "f64", 1e-12),
                                                ("lstm", "f64", 1e-12)])
def test_kernels_through_the_driver(fakes, tmp_path, name, dtype, bound):
    """Forward and backward of the same plan on the fake against the reference, captured loops included: the plan as
    compiled, and as read from its tables."""
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes")
    compiler.run(["build", name, "--dtype", dtype, "--kernels-apart", "-o", str(tmp_path)], None)
    build_for_emulator("cu", tmp_path / f"{name}.cu", tmp_path / "kernels.o")
    image = tmp_path / "kernels.so"
    subprocess.run([CXX, "-shared", tmp_path / "kernels.o", fakes / "cell_emu.o", "-o", image], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(fakes), "CELL_CUBLAS": str(fakes / "libcuda.so.1")}

    def run(image):
        words = [name, str(tmp_path / f"lib{name}.so"), str(image), dtype, str(bound)]
        return subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, *words], capture_output=True, text=True,
                              env=env)

    done = run(image)
    assert done.stdout == ("same graphs\n" if name == "lstm_layernorm" else "same no graphs\n"), done.stderr
    assert "BackendError: the kernels' image: the fake said no (CUDA_ERROR_FAKE)" in run("/no/image").stderr


BATCHES = """
import ctypes
import os
import sys
import numpy as np
import cellc
from cellc import compiler, tables
from cellc.native import Library

place, image, dtype, bound, sequences = sys.argv[1:6]
cell = cellc.load(open(os.path.join(place, "stacked_short.cell")).read(), framework="numpy", dtype=dtype)
m, g, images = cell.manifest, np.random.default_rng(1), {0: image.encode()}
driver = ctypes.CDLL("libcuda.so.1")
library = Library(os.path.join(place, "libstacked_short.so"), m.entry("instance"), images)
desc, kept = tables.read(os.path.join(place, "stacked_short.c"), compiler.headers_dir())
alone = Library(os.path.join(compiler.library_dir(), "libcell.so"), None, images, ctypes.addressof(desc), kept)
sizes = {"H": 1264, "B": int(sequences), "T": 1, "t0": 0}
listed = m.list_sizes(sizes)

def made(tensors, of):
    return [of(tuple(t.shape(sizes))).astype(cell.dtype_of(t)) for t in tensors]

def addresses(arrays):
    return [a.ctypes.data for a in arrays]

def normal(shape):
    return g.normal(size=shape) / np.sqrt(shape[-1])

given, weights, found = made(m.given, normal), made((*m.outputs, *m.states), normal), []
for lib, device in ((cell.library, None), (library, 0), (alone, 0)):
    before, reserve = driver.fake_batches(), np.zeros(lib.memory("reserve", device, listed) + 512, "u1")
    at = -reserve.ctypes.data % 256
    memory = (reserve.ctypes.data + at, reserve.nbytes - at)
    results, grads = made((*m.outputs, *m.states), np.zeros), made(m.given, np.zeros)
    for again in range(2):
        lib.call("forward", device, 0, listed, addresses(given + results), (0, 0), memory)
        lib.call("backward", device, 0, listed, addresses(given + weights + grads), (0, 0), memory)
    found.append(results + grads)
    print(driver.fake_batches() - before)
for a, b, c, t in zip(*found, (*m.outputs, *m.states, *m.given)):
    assert (b == c).all(), t.name
    off = np.abs(a.astype("f8") - b.astype("f8")).max() / max(1e-3, np.abs(a.astype("f8")).max())
    assert off < float(bound), (t.name, off)
"""


# Sums of 1264 products of both signs in another order than the reference's: some hundred roundings; and values that are
# stored in bf16 on the way. One sequence in f64 goes one by one (form_goes_together).
@pytest.mark.parametrize("dtype, bound, sequences", [("f64", 1e-12, 2), ("f64", 1e-12, 1), ("f32", 1e-4, 2),
                                                     ("bf16", 4e-2, 3)])
def test_batches_of_products_through_the_driver(fakes, tmp_path, dtype, bound, sequences):
    """Products with params that lie apart, in a call of one step: as batches but where one by one is faster, with the values
    of the reference."""
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes")
    spec = tmp_path / "stacked_short.cell"
    shutil.copy(os.path.join(ROOT, "tests", "constructs", "stacked_short.cell"), spec)
    compiler.run(["build", str(spec), "--dtype", dtype, "--kernels-apart", "-o", str(tmp_path)], None)
    build_for_emulator("cu", tmp_path / "stacked_short.cu", tmp_path / "kernels.o")
    image, fake = tmp_path / "kernels.so", str(fakes / "libcuda.so.1")
    subprocess.run([CXX, "-shared", tmp_path / "kernels.o", fakes / "cell_emu.o", "-o", image], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(fakes), "CELL_CUBLAS": fake}
    words = [str(tmp_path), str(image), dtype, str(bound), str(sequences)]
    done = subprocess.run([sys.executable, "-c", BATCHES, *words], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    batches = (dtype, sequences) != ("f64", 1)
    assert [int(n) > 0 for n in done.stdout.split()] == [False, batches, batches], done.stdout


CODES = r"""
import ctypes
import os
import sys
import numpy as np
import ml_dtypes
import cellc
from cellc import compiler, tables
from cellc.native import Library

place, image = sys.argv[1:3]
m = cellc.load(open(os.path.join(place, "fp8_linear.cell")).read(), framework="numpy", dtype="bf16").manifest
images, driver, g = {0: image.encode()}, ctypes.CDLL("libcuda.so.1"), np.random.default_rng(1)
library = Library(os.path.join(place, "libfp8_linear.so"), m.entry("instance"), images)
desc, kept = tables.read(os.path.join(place, "fp8_linear.c"), compiler.headers_dir())
alone = Library(os.path.join(compiler.library_dir(), "libcell.so"), None, images, ctypes.addressof(desc), kept)
types = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f32": np.float32}

def made(tensors, sizes):
    return {t.name: np.zeros(tuple(t.shape(sizes)), types[t.dtype]) for t in tensors}

def run(lib, D, N, training, B=3, T=5):
    sizes = dict(zip(m.dims, (D, N, 2))) | {"B": B, "T": T, "t0": 0}
    listed, given, results = m.list_sizes(sizes), made(m.given, sizes), made(m.outputs, sizes)
    for name, a in given.items():
        a[...] = 0.37 if name.endswith("_scale") else (2 * g.normal(size=a.shape)).astype(a.dtype)
    arrays = [a.ctypes.data for a in (*given.values(), *results.values())]
    size = lib.memory("reserve", 0, listed) if training else 0
    reserve = np.zeros(size + 512, "u1")
    at = -reserve.ctypes.data % 256
    before = driver.fake_products_of_8(), driver.fake_algorithms_asked(), driver.fake_launches()
    for again in range(2):
        lib.call("forward", 0, 0, listed, arrays, (0, 0), (reserve.ctypes.data + at, size) if training else (0, 0))
    said = driver.fake_products_of_8() - before[0], driver.fake_algorithms_asked() - before[1]
    f = {name: a.astype("f8") * (given[name + "_scale"].astype("f8") if name + "_scale" in given else 1) for name, a in given.items()}
    wanted = {"y": np.tanh(f["x"] @ f["W"].T + f["b"]), "heads": np.einsum("gid,btgd->btgi", f["R"], f["u"]),
              "w": f["x"] @ f["P"].T + f["z"] @ f["V"].T, "across": f["x"] @ f["Q"], "twice": f["z"] @ f["P"].T}
    off = {name: np.abs(results[name].astype("f8") - a).max() / np.abs(a).max() for name, a in wanted.items()}
    return said, driver.fake_launches() - before[2], off

none = os.environ["CELL_CUBLASLT"] != os.environ["CELL_CUBLAS"]
for lib in (library, alone):
    for D, N, B, T in ((32, 16, 3, 5), (32, 16, 1, 1), (24, 16, 3, 5), (32, 24, 3, 5)):
        takes = D == 32 and N == 16 and not none
        said, inference, off = run(lib, D, N, False, B, T)
        # y, heads and two terms of w, each twice; each is described once, unless another context did.
        assert said == ((8, 4) if takes else (0, 0)), said
        # Results of codes are rounded once, to bf16; of copies, each operand before: 3 roundings of 2^-9, of sums of 32 terms
        # that are 4 times as large as their sum.
        for name, error in off.items():
            assert error < (2**-8 if takes and name in ("y", "heads", "w") else 12 * 2**-9), (name, error)
        said, training, off = run(lib, D, N, True, B, T)
        assert said == ((8, 0) if takes else (0, 0)), said
        assert training - inference == (4 if takes else 0), (training, inference)   # two copies, for backward alone
        assert max(off.values()) < 12 * 2**-9, off
print("fine")
"""


@pytest.mark.parametrize("lt", ["fake", "none", "missing"])
def test_products_of_8_bits_through_the_driver(fakes, tmp_path, lt):
    """By cuBLASLt as it wants them, where it is there and sizes fit; else of copies, and a run that tells what is unusual
    says so."""
    pytest.importorskip("ml_dtypes")
    spec = tmp_path / "fp8_linear.cell"
    shutil.copy(os.path.join(ROOT, "tests", "constructs", "fp8_linear.cell"), spec)
    compiler.run(["build", str(spec), "--dtype", "bf16", "--kernels-apart", "-o", str(tmp_path)], None)
    build_for_emulator("cu", tmp_path / "fp8_linear.cu", tmp_path / "kernels.o")
    image, fake = tmp_path / "kernels.so", str(fakes / "libcuda.so.1")
    subprocess.run([CXX, "-shared", tmp_path / "kernels.o", fakes / "cell_emu.o", "-o", image], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(fakes), "CELL_CUBLAS": fake, "CELL_VERBOSE": "1",
           "CELL_CUBLASLT": {"fake": fake, "none": "none", "missing": str(tmp_path / "none.so")}[lt]}
    done = subprocess.run([sys.executable, "-c", CODES, str(tmp_path), str(image)], capture_output=True, text=True, env=env)
    assert done.stdout == "fine\n", done.stderr
    assert ("operands of 8 bits are multiplied as copies of 16" in done.stderr) == (lt != "fake"), done.stderr


MEMORY = """
import ctypes
import sys
from cellc.native import Library

name, path, image = sys.argv[1:4]
library = Library(path, name + "_instance", {0: image.encode()})
dll, ctx, driver = library.dll, library.open(0), ctypes.CDLL("libcuda.so.1")
driver.fake_noted.restype = ctypes.c_char_p
p, q, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t

def call(function, *arguments):
    status = getattr(dll, function)(ctx, *arguments)
    assert status == 0, (function, status, library.last_error(ctx))

def noted():
    text = driver.fake_noted().decode().split("\\n")[:-1]
    driver.fake_forget()
    return text

call("cell_alloc", ctypes.byref(p), size(1000))
call("cell_alloc_pinned", ctypes.byref(q), size(1000))
noted()
ctypes.memset(q, 5, 1000)
call("cell_copy_begin", p, q, size(1000))
assert noted() == ["s0 waits for s1", "copy s0"]              # behind the calls before, on a stream of its own
call("cell_copy_join")
assert noted() == ["s0 waits for s1"]                         # the calls that come, behind the copy
call("cell_copy_wait")
assert noted() == ["wait s0"]
ctypes.memset(q, 0, 1000)
call("cell_copy_begin", q, p, size(1000))
call("cell_copy_wait")
assert ctypes.string_at(q, 1000) == b"\\5" * 1000
state = (ctypes.c_size_t * 4)()
call("cell_pool_read", state)
assert list(state) == [1000, 1000, 4096, 1], list(state)
call("cell_pool_trim", size(64))
assert "trim 64" in noted()
call("cell_free", p)
call("cell_free_pinned", q)

class Pool(ctypes.Structure):
    _fields_ = [("user", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p)]

given, libc = [], ctypes.CDLL(None)
libc.aligned_alloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
def alloc(user, count, stream):
    given.append(count)
    return libc.aligned_alloc(256, (count + 255) // 256 * 256)

@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
def free(user, pointer, count, stream):
    given.remove(count)
    libc.free(pointer)

pool = Pool(None, ctypes.cast(alloc, ctypes.c_void_p), ctypes.cast(free, ctypes.c_void_p))
call("cell_context_set_allocator", ctypes.byref(pool))
noted()

# A call, with the workspace from there, in the ranges that a profiler sees; then sessions, whose steps are graphs.
import numpy as np
import cellc
lstm = cellc.load("lstm", framework="numpy")
params = lstm.init(0, D=8, H=16)
x = np.random.default_rng(0).normal(size=(3, 40, 8)).astype("f4")
wanted, _ = lstm(params, x)
sizes = (ctypes.c_int64 * 5)(3, 1, 8, 16, 0)
arrays = [params[name] for name in lstm.names]
y, given_x = np.zeros((3, 16), "f4"), np.zeros((3, 8), "f4")
pointers = (ctypes.c_void_p * 10)(given_x.ctypes.data, *[a.ctypes.data for a in arrays], None, None, y.ctypes.data, None, None)
memory = (ctypes.c_void_p * 4)()
given_x[:] = x[:, 0]
call("cell_run_step", library.desc, sizes, pointers, memory, 0)
assert np.allclose(y, wanted[:, 0], atol=1e-5) and given
ranges = [line for line in noted() if line[0] in "()"]
assert ranges[:2] == ["( lstm:dtype=f32", "( step"] and ranges[-2:] == [")", ")"] and len(ranges) > 5, ranges

class Options(ctypes.Structure):
    _fields_ = [("capacity", ctypes.c_int64), ("back", ctypes.c_int32), ("keep", ctypes.c_int)]

store, sessions = ctypes.c_void_p(), (ctypes.c_int32 * 3)()
call("cell_sessions_create", ctypes.c_void_p(library.desc), sizes, ctypes.byref(Options(4, 1, 0)), ctypes.byref(store))
dll.cell_sessions_how.restype = ctypes.c_char_p
assert dll.cell_sessions_how(store) == b"by a kernel in front of the step and one behind it"
for i in range(3):
    assert dll.cell_sessions_open(store, ctypes.byref(sessions, 4 * i)) == 0
before = driver.fake_graphs()
for t in range(40):
    given_x[:] = x[:, t]
    assert dll.cell_sessions_step(store, sessions, ctypes.c_int64(3), pointers) == 0, library.last_error(ctx)
    assert np.allclose(y, wanted[:, t], atol=1e-5), t
    if t % 5 == 4:                                   # one of them guesses, and does it again
        assert dll.cell_sessions_back(store, sessions[1], ctypes.c_int64(1)) == 0
        one = (ctypes.c_int32 * 1)(sessions[1])
        given_x[0] = x[1, t]
        assert dll.cell_sessions_step(store, one, ctypes.c_int64(1), pointers) == 0, library.last_error(ctx)
        assert np.allclose(y[0], wanted[1, t], atol=1e-5), t
assert driver.fake_graphs() - before >= 40
dll.cell_sessions_destroy.argtypes = [ctypes.c_void_p]
dll.cell_sessions_destroy(store)
dll.cell_context_destroy(ctx)
assert not given
print("fine")
"""


def test_memory_and_sessions_through_the_driver(fakes, tmp_path):
    """Copies wait and are waited for on the right streams, memory comes from a caller, ranges are shown, and steps of
    sessions are graphs, on the fake."""
    compiler.run(["build", "lstm", "--kernels-apart", "--slots", "-o", str(tmp_path)], None)
    build_for_emulator("cu", tmp_path / "lstm.cu", tmp_path / "kernels.o")
    image, fake = tmp_path / "kernels.so", str(fakes / "libcuda.so.1")
    subprocess.run([CXX, "-shared", tmp_path / "kernels.o", fakes / "cell_emu.o", "-o", image], check=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(fakes), "CELL_CUBLAS": fake, "CELL_NVTX": fake}
    done = subprocess.run([sys.executable, "-c", MEMORY, "lstm", str(tmp_path / "liblstm.so"), str(image)],
                          capture_output=True, text=True, env=env)
    assert done.stdout == "fine\n", done.stderr
