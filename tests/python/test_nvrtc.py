"""Kernels without nvcc: NVRTC compiles them, and the runtime launches them through the driver. Neither wants a GPU: the
machine code is made and looked at; what runs are the same kernels for the CPU, behind a driver that is a fake
(fake_cuda.cc), declared by NVIDIA's own headers."""

import os
import shutil
import subprocess
import sys

import pytest

import cellc
from cellc import compiler, nvrtc

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
    folder = compiler.home("runtime", "include/cellc")
    image = nvrtc.compile_kernels(source, name + ".cu", folder, arch)
    assert image[:4] == b"\x7fELF"
    names = [line.split("(")[0] for before, line in zip(source.splitlines(), source.splitlines()[1:])
             if "__global__" in before]
    assert names and all(b"\0" + n.encode() + b"\0" in image or b".text." + n.encode() in image for n in names)


@compiles
def test_what_nvrtc_says():
    folder = compiler.home("runtime", "include/cellc")
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


def test_neither(monkeypatch):
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    with pytest.raises(cellc.BuildError, match="neither nvcc, as far as cellc knows, nor NVRTC"):
        cellc.load("lstm", cuda=True)
    with pytest.raises(cellc.BuildError, match="neither nvcc nor libnvrtc"):
        nvrtc.compile_kernels("", "a.cu", compiler.home("runtime", "include/cellc"), "90")


PROGRAM = """
import ctypes
import sys
import numpy as np
import cellc
from cellc.native import Library
from cellc.with_numpy import empty

name, path, image, dtype, bound = sys.argv[1:6]
cell = cellc.load(name, framework="numpy", dtype=dtype)
m, g = cell.manifest, np.random.default_rng(1)
library = Library(path, m.entry("instance"), {0: image.encode()})
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
for lib, device in ((cell.library, None), (library, 0)):
    reserve = empty((lib.memory("reserve", device, listed) + 512,), np.dtype("u1"))
    at = -reserve.ctypes.data % 256
    memory = (reserve.ctypes.data + at, reserve.nbytes - at)
    for again in range(2):                       # the second time what was captured is run again
        results, grads = made((*m.outputs, *m.states)), made(m.given)
        lib.call("forward", device, 0, listed, addresses(given + results), (0, 0), memory)
        lib.call("backward", device, 0, listed, addresses(given + weights + grads), (0, 0), memory)
    found.append(results + grads)
for a, b, t in zip(*found, (*m.outputs, *m.states, *m.given)):
    scale = max(1, np.abs(a.astype(complex)).max())
    off = np.abs(a.astype(complex) - b.astype(complex)).max() / scale
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
@pytest.mark.parametrize("name, dtype, bound", [("lstm", "f32", 1e-5), ("e79", "f32", 1e-5), ("s5", "f32", 1e-5),
                                                ("layernorm", "f32", 1e-5), ("lstm", "bf16", 4e-2),
                                                ("gated_delta", "f64", 1e-12), ("lstm", "f64", 1e-12)])
def test_kernels_through_the_driver(fakes, tmp_path, name, dtype, bound):
    """Forward and backward of the same plan on the fake against the reference, captured loops included."""
    if dtype == "bf16":
        pytest.importorskip("ml_dtypes")
    compiler.run(["build", name, "--dtype", dtype, "--kernels-apart", "-o", str(tmp_path)], None)
    build_for_emulator("cu", tmp_path / f"{name}.cu", tmp_path / "kernels.o")
    image = tmp_path / "kernels.so"
    subprocess.run([CXX, "-shared", tmp_path / "kernels.o", fakes / "cell_emu.o", "-o", image], check=True)
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM, name, str(tmp_path / f"lib{name}.so"), str(image), dtype,
                           str(bound)], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(fakes), "CELL_CUBLAS": str(fakes / "libcuda.so.1")})
    assert done.stdout == ("same graphs\n" if name == "lstm" else "same no graphs\n"), done.stderr
    missing = subprocess.run([sys.executable, "-c", PROGRAM, name, str(tmp_path / f"lib{name}.so"), "/no/image", dtype,
                              "1"], capture_output=True, text=True,
                             env={**os.environ, "LD_LIBRARY_PATH": str(fakes), "CELL_CUBLAS": str(fakes / "libcuda.so.1")})
    assert "BackendError: the kernels' image: the fake said no (CUDA_ERROR_FAKE)" in missing.stderr
