"""Weights of modules in files: safetensors, as cell_weights.h of C reads and writes them, with the spec's hash of
each cell in the metadata. In: a module of PyTorch with cells in it, a path. Out: a file of its state_dict, or the
module filled. Guaranteed: a file that is cut, contradicts itself, lacks a tensor or has one of another shape, or
whose cells are of other specs, is refused before the first number of the module changes; a file that is saved
appears under its name when it is whole."""

import json
import os
import struct
import tempfile

import torch

from .errors import CannotRead, MissingFile, ShapeError, SpecError, TypeMismatch
from .module import Cell

KEY = "cellc.spec."                # of the metadata, before a cell's place in the module ("" of a cell by itself)
WORDS = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16",
         torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
         torch.bool: "BOOL", torch.complex64: "C64"}
TYPES = {word: dtype for dtype, word in WORDS.items()}
LONGEST = 100_000_000              # bytes of a header, as of all who read this format


def spec_of(cell):
    """What says of a cell that its weights mean the same: its name, its options and constants, and its texts."""
    m, spec = cell.instance.manifest, cell.instance.spec
    chosen = ",".join(f"{name}={value}" for name, value in sorted({**m.bound, **m.options}.items()))
    return f"{m.name}{':' + chosen if chosen else ''} {spec.digest}"


def cells_of(module):
    return {place: spec_of(cell) for place, cell in module.named_modules() if isinstance(cell, Cell)}


def save_weights(module, path, metadata=None):
    """Writes the module's state_dict, and of each cell in it which spec it has. metadata: a dict of more texts."""
    texts = {**(metadata or {}), **{KEY + place: text for place, text in cells_of(module).items()}}
    if any(not isinstance(part, str) for pair in texts.items() for part in pair):
        raise TypeMismatch("save_weights: metadata is a dict of texts by texts")
    header, at, parts = {"__metadata__": texts}, 0, []
    for name, tensor in module.state_dict().items():
        if tensor.dtype not in WORDS:
            raise TypeMismatch(f"save_weights: {name} is {tensor.dtype}, which such a file has no word for")
        part = tensor.detach().cpu().contiguous()
        header[name] = {"dtype": WORDS[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, at + part.nbytes]}
        at += part.nbytes
        parts.append(part)
    head = json.dumps(header, ensure_ascii=False).encode()
    head += b" " * (-len(head) % 8)
    target = os.path.realpath(path)
    file, beside = tempfile.mkstemp(".part", os.path.basename(target) + ".", os.path.dirname(target))
    try:
        with open(file, "wb") as f:
            os.fchmod(file, 0o666 & ~mask())
            f.write(struct.pack("<Q", len(head)) + head)
            for part in parts:
                f.write(part.reshape(-1).view(torch.uint8).numpy().data if part.nbytes else b"")
            f.flush()
            os.fsync(file)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


def mask():
    """The process's umask, which can only be read by setting it."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def wrong(path, what):
    return CannotRead(f"{path} is no file of weights: {what}")


def read_file(path):
    """(tensors by name, metadata) of a file, all of it found right."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        raise MissingFile(f"there is no file {path}") from None
    except OSError as error:
        raise CannotRead(f"cannot read {path}: {error.strerror}") from None
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else LONGEST + 1
    if length > LONGEST or 8 + length > len(data):
        raise wrong(path, "it is cut, or begins with something else")
    try:
        header = json.loads(data[8:8 + length].decode(), object_pairs_hook=once)
    except ValueError as error:
        raise wrong(path, f"its header is {error}") from None
    if not isinstance(header, dict):
        raise wrong(path, "its header is no object")
    texts, found, spans = header.pop("__metadata__", {}), {}, []
    if not isinstance(texts, dict) or any(not isinstance(value, str) for value in texts.values()):
        raise wrong(path, "its metadata are no texts")
    for name, told in header.items():
        found[name], span = tensor_of(path, name, told, data, 8 + length)
        spans.append(span)
    end = 0
    for begin, last in sorted(spans):
        if begin != end:
            raise wrong(path, f"its tensors leave a gap, or overlap, at byte {end}")
        end = last
    if 8 + length + end != len(data):
        raise wrong(path, f"it has {len(data) - 8 - length} bytes of tensors; its header says {end}")
    return found, texts


def once(pairs):
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("one in which a name comes twice")
    return made


def tensor_of(path, name, told, data, start):
    """(the tensor, its bytes behind the header)"""
    try:
        dtype, shape, (begin, end) = TYPES[told["dtype"]], told["shape"], told["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in [*shape, begin, end])
    except (KeyError, TypeError, ValueError):
        raise wrong(path, f"'{name}' has no type, shape and place that can be read") from None
    count = 1
    for n in shape if whole else []:
        count *= n
    if not whole or end - begin != count * dtype.itemsize or start + end > len(data):
        raise wrong(path, f"'{name}' has other bytes than its type and shape take")
    raw = bytearray(data[start + begin:start + end])
    flat = torch.frombuffer(raw, dtype=dtype) if count else torch.empty(0, dtype=dtype)
    return flat.reshape(shape), (begin, end)


def compare(path, module, texts):
    """The specs that the file was saved of are those of the module's cells."""
    for place, text in cells_of(module).items():
        saved = texts.get(KEY + place)
        where = f" ({place})" if place else ""
        if saved is None:
            raise SpecError(f"{path} does not say which spec its weights are of; the cell{where} is {text}. "
                            "load_weights(..., any_spec=True) loads them nevertheless")
        if saved != text:
            raise SpecError(f"{path} has weights of {saved}; the cell{where} is {text}. "
                            "load_weights(..., any_spec=True) loads them nevertheless")


def load_weights(module, path, any_spec=False):
    """Fills the module with what save_weights wrote, and gives the file's metadata. Types may differ between real
    numbers, which are converted. any_spec: weights of other specs, or of a file that names none, too."""
    found, texts = read_file(path)
    if not any_spec:
        compare(path, module, texts)
    own = module.state_dict()
    missing, unknown = [n for n in own if n not in found], [n for n in found if n not in own]
    if missing or unknown:
        raise ShapeError(f"{path} does not fit {type(module).__name__}: "
                         + "; ".join([f"{n} is missing" for n in missing] + [f"{n} is unknown" for n in unknown]))
    for name, tensor in own.items():
        if found[name].shape != tensor.shape:
            raise ShapeError(f"{path}: {name} has shape {list(found[name].shape)}; wanted {list(tensor.shape)}")
        kinds = [(t.is_floating_point(), t.is_complex()) for t in (found[name], tensor)]
        if kinds[0] != kinds[1] or (not kinds[0][0] and found[name].dtype != tensor.dtype):
            raise TypeMismatch(f"{path}: {name} is {found[name].dtype}; wanted {tensor.dtype}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(found[name])
    return texts
