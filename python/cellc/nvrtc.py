"""Kernels compiled by NVRTC, which comes with PyTorch and JAX. In: CUDA C++ that cellc wrote, the device library, an
architecture. Out: machine code. Guaranteed: neither nvcc nor a GPU is needed, nor any header of CUDA's."""

import ctypes
import functools
import glob
import os
import site
import re
import sys

from .errors import BuildError

# What stands in the text of kernels that have instructions of sm_90a alone.
OF_SM_90A = ("cell_columns<", "CELL_PRODUCT_THREADS", "cell_attention_facts<")


def packaged(name):
    """Paths of a library of NVIDIA's that a package brought, or a toolkit, newest first."""
    places = dict.fromkeys([*sys.path, *site.getsitepackages(), site.getusersitepackages()])
    patterns = [os.path.join(place or os.curdir, folder, name + "*.so*") for place in places
                for folder in ("nvidia/*/lib", "torch/lib")]
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    patterns += [os.path.join(home, "lib64", name + ".so*")] if home else []
    return [path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)]


def candidates():
    """Paths and names of libnvrtc: what CELLC_NVRTC says, those of packages, the loader's."""
    if os.environ.get("CELLC_NVRTC"):
        return [os.environ["CELLC_NVRTC"]]
    found = [path for path in packaged("libnvrtc") if "builtins" not in path and ".alt." not in path]
    return found + ["libnvrtc.so.13", "libnvrtc.so.12"]


@functools.lru_cache(None)
def load_cublas():
    """Puts cuBLAS into the process, where the runtime finds it by name, if a package brought it."""
    for path in packaged("libcublas"):
        if "Lt" not in os.path.basename(path):
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    return None


@functools.lru_cache(None)
def library():
    """The library, or None where there is none."""
    for path in candidates():
        try:
            dll = ctypes.CDLL(path)
        except OSError:
            continue
        dll.nvrtcGetErrorString.restype = ctypes.c_char_p
        return dll
    return None


def version():
    """"13.2" of the library that is there."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    check(library(), library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "no version")
    return f"{major.value}.{minor.value}"


def check(dll, status, what):
    if status:
        raise BuildError(f"NVRTC: {what}: {dll.nvrtcGetErrorString(status).decode()}")


def text_of(dll, program, size, get):
    count = ctypes.c_size_t()
    check(dll, getattr(dll, size)(program, ctypes.byref(count)), size)
    data = ctypes.create_string_buffer(max(count.value, 1))
    check(dll, getattr(dll, get)(program, data), get)
    return data.raw[:count.value]


def headers(folder):
    """Everything in the device library and beside it, {name as an #include has it: text}."""
    found = {"stdint.h": "", "math.h": ""}          # what they declare, NVRTC knows by itself
    device = os.path.join(folder, "device")
    for name in os.listdir(device):
        with open(os.path.join(device, name)) as f:
            found[name] = f.read()
    for name in os.listdir(folder):
        if name.startswith("cell_") and name.endswith(".h"):       # what device code and the host share is among these
            with open(os.path.join(folder, name)) as f:
                found["../" + name] = f.read()
    return found


def compile_kernels(source, name, folder, arch):
    """Machine code of the kernels in `source` for one architecture, "90". `folder`: where the device library is."""
    dll = library()
    if not re.fullmatch(r"\d+[af]?", arch):
        raise BuildError(f"NVRTC compiles for numbers such as 90, not for '{arch}'")
    if dll is None:
        raise BuildError("there is neither nvcc nor libnvrtc; PyTorch for CUDA brings the latter along")
    given = headers(folder)
    texts = (ctypes.c_char_p * len(given))(*[text.encode() for text in given.values()])
    names = (ctypes.c_char_p * len(given))(*[key.encode() for key in given])
    program = ctypes.c_void_p()
    check(dll, dll.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), len(given), texts, names),
          "cannot begin")
    if arch == "90" and any(name in source for name in OF_SM_90A):
        arch = "90a"
    words = [f"--gpu-architecture=sm_{arch}", "-std=c++17", "-default-device", "--device-int128", "-diag-suppress=177,550"]
    options = (ctypes.c_char_p * len(words))(*[word.encode() for word in words])
    try:
        status = dll.nvrtcCompileProgram(program, len(words), options)
        if status:
            said = text_of(dll, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0").decode()
            raise BuildError(f"NVRTC failed on {name}: {dll.nvrtcGetErrorString(status).decode()}\n{said}")
        return text_of(dll, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
    finally:
        dll.nvrtcDestroyProgram(ctypes.byref(program))
