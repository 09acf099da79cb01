"""Kernels without nvcc on a GPU, against the plain C: NVRTC compiles them, the driver launches them. A program of its own,
since it wants nothing but Python, a built source tree, a GPU, libnvrtc and cuBLAS: neither PyTorch nor NumPy.

    python3 tests/python/nvrtc_on_gpu.py                # a few cells; the last line is the sum
    python3 tests/python/nvrtc_on_gpu.py e88 mamba2     # these"""

import ctypes
import math
import os
import random
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

from cellc import compiler, nvrtc, tables  # noqa: E402
from cellc.manifest import Manifest  # noqa: E402
from cellc.native import Library  # noqa: E402

CELLS = ["lstm", "gru", "e1", "e79", "e88", "gated_delta", "s5", "layernorm", "swiglu"]
PARTS = {"f32": 1, "c64": 2, "bf16": 1}
# Sums of up to 64 products in another order, through 32 steps, some of which amplify: errors by their root mean square.
# bf16 has 8 bits, and what lies between two kernels is rounded too.
BOUND = {"f32": 1e-4, "bf16": 3e-2}


def capability():
    """"90" of GPU 0, as the driver says."""
    cuda, value, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ""
    if cuda.cuInit(0):
        raise SystemExit("the driver does not start")
    for attribute in (75, 76):
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
        found += str(value.value)
    return found


def pack(numbers, dtype):
    if dtype == "bf16":       # toward zero, which is as good as any for drawing numbers
        return b"".join(struct.pack("<f", v)[2:] for v in numbers)
    return struct.pack(f"<{len(numbers)}f", *numbers)


def unpack(data, dtype):
    if dtype == "bf16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return struct.unpack(f"<{len(data) // 4}f", data)


class Side:
    """A device's memory and calls: None is the host."""

    def __init__(self, library, device):
        self.library, self.device = library, device
        self.context = library.open(device)
        for name, arguments in (("cell_alloc", [ctypes.c_void_p] * 2 + [ctypes.c_size_t]),
                                ("cell_copy", [ctypes.c_void_p] * 3 + [ctypes.c_size_t])):
            setattr(self, name[5:] + "_", library.declare(name, ctypes.c_int, *arguments))

    def alloc(self, count):
        pointer = ctypes.c_void_p()
        self.library.check(self.context, self.alloc_(self.context, ctypes.byref(pointer), max(count, 1)))
        return pointer.value

    def put(self, data):
        at = self.alloc(len(data))
        if data:
            self.library.check(self.context, self.copy_(self.context, at, data, len(data)))
        return at

    def get(self, at, count):
        data = ctypes.create_string_buffer(max(count, 1))
        self.library.check(self.context, self.copy_(self.context, data, at, count))
        return data.raw[:count]

    def run(self, m, sizes, given, weights, lengths):
        """What forward and backward write, the third time: a loop is captured the second time."""
        given, weights = [self.put(d) for d in given], [self.put(d) for d in weights]
        made = [self.alloc(n) for n in lengths]
        results, grads = made[:len(weights)], made[len(weights):]
        count = self.library.memory("reserve", self.device, sizes)
        reserve = (self.alloc(count), count)
        for _ in range(3):
            self.library.call("forward", self.device, 0, sizes, given + results, (0, 0), reserve)
            self.library.call("backward", self.device, 0, sizes, given + weights + grads, (0, 0), reserve)
            with self.library.context(self.device) as ctx:
                self.library.declare("cell_synchronize", ctypes.c_int, ctypes.c_void_p)(ctx)
        return [self.get(at, n) for at, n in zip(made, lengths)]


def image_of(source, name, arch):
    return nvrtc.compile_kernels(source, name, compiler.headers_dir(), arch)


def spread(t, sizes):
    """Weights as they are initialised: larger ones make a recurrence that amplifies every rounding a thousandfold."""
    shape = t.shape(sizes)
    return 0.7 / math.sqrt(shape[-1]) if t.kind == "param" and len(shape) > 1 else 0.3


def check(name, dtype, place, arch):
    """The largest error of any result, relative to the result's size, and seconds that NVRTC took."""
    compiler.run(["build", name, "--dtype", dtype, "--kernels-apart", "--archs", arch, "-o", place], None)
    m = Manifest(os.path.join(place, name + ".json"))
    with open(os.path.join(place, name + ".cu")) as f:
        source = f.read()
    start = time.time()
    images = {0: image_of(source, name + ".cu", arch)}
    start = time.time() - start
    path = os.path.join(place, f"lib{name}.so")
    desc, kept = tables.read(os.path.join(place, name + ".c"), compiler.headers_dir())
    sizes = dict(zip(m.dims, (64, 32, 16, 8)))
    sizes.update(B=3, T=32, t0=0)
    every = [*m.outputs, *m.states, *m.given]
    numbers = [math.prod(t.shape(sizes)) * PARTS[t.dtype] for t in every]
    width = {"bf16": 2}
    lengths = [n * width.get(t.dtype, 4) for n, t in zip(numbers, every)]
    draw = random.Random(1)
    data = [pack([draw.gauss(0, spread(t, sizes)) for _ in range(n)], t.dtype) for n, t in zip(numbers, every)]
    results = len(m.outputs) + len(m.states)
    compiled = Library(path, m.entry("instance"), images)
    alone = Library(os.path.join(compiler.library_dir(), "libcell.so"), None, images, ctypes.addressof(desc), kept)
    sides = [Side(compiled, None), Side(compiled, 0), Side(alone, 0)]
    plain, ours, read = (side.run(m, m.list_sizes(sizes), data[results:], data[:results], lengths) for side in sides)
    if ours != read:
        raise ValueError("the plan that was compiled and the one that was read give other bits")
    worst = 0.0
    for t, a, b in zip(every, plain, ours):
        a, b = unpack(a, t.dtype), unpack(b, t.dtype)
        size = math.sqrt(sum(v * v for v in a) / max(len(a), 1)) or 1.0
        worst = max(worst, math.sqrt(sum((v - w) ** 2 for v, w in zip(a, b)) / max(len(a), 1)) / size)
    return worst, start


def main():
    passed, failed, arch = 0, 0, capability()
    print(f"NVRTC {nvrtc.version()}, sm_{arch}")
    for name in sys.argv[1:] or CELLS:
        for dtype, bound in BOUND.items():
            try:
                with tempfile.TemporaryDirectory() as place:
                    worst, took = check(name, dtype, place, arch)
                right = worst < bound
                print(f"{'ok' if right else 'WRONG':6}{name} {dtype}: error {worst:.1e}, bound {bound:.0e}; "
                      f"NVRTC {took:.1f} s", flush=True)
            except Exception as error:
                right = False
                print(f"WRONG {name} {dtype}: {type(error).__name__}: {error}", flush=True)
            passed, failed = passed + right, failed + (not right)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
