"""Weights of modules in files. In: cells, alone and within models, and files that are broken in each way. Out: what was
saved is loaded, to the bit; a file of another spec is refused with both named; of what is refused nothing is loaded."""

import json
import os
import struct

import pytest
import torch

import cellc
from cellc.weights import load_weights, save_weights


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.core, self.out = cellc.load("lstm")(D=3, H=4), torch.nn.Linear(4, 2)


def values(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(t, other[name]) for name, t in one.items())


def test_there_and_back(tmp_path):
    path = tmp_path / "model.safetensors"
    model, other = Model(), Model()
    save_weights(model, path, metadata={"step": "7"})
    assert not same(values(model), values(other))
    assert load_weights(other, path)["step"] == "7" and same(values(model), values(other))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    wide = Model().double()
    load_weights(wide, path)
    assert all(torch.equal(t.double(), wide.state_dict()[name]) for name, t in values(model).items())
    head = path.read_bytes()
    header = json.loads(head[8:8 + struct.unpack("<Q", head[:8])[0]])
    assert header["__metadata__"]["cellc.spec.core"].startswith("lstm ")


def test_another_spec(tmp_path):
    path = tmp_path / "cell.safetensors"
    text = "cell c { dim D; input x[D]; param w[D]; output y[D]; y[d] = w[d] * x[d]; }"
    one, other = cellc.load(text)(D=3), cellc.load(text.replace("* x", "+ x"))(D=3)
    save_weights(one, path)
    before = values(other)
    with pytest.raises(cellc.SpecError, match=rf"has weights of c {one.instance.spec.digest}; the cell is c "
                                              rf"{other.instance.spec.digest}. load_weights\(..., any_spec=True\)"):
        load_weights(other, path)
    assert same(before, values(other))
    load_weights(other, path, any_spec=True)
    assert same(values(one), values(other))
    plain, kept = torch.nn.Linear(2, 2), tmp_path / "plain.safetensors"
    save_weights(plain, kept)
    load_weights(plain, kept)
    with pytest.raises(cellc.SpecError, match="does not say which spec"):
        load_weights(one, kept)


def test_options_are_of_the_spec(tmp_path):
    path = tmp_path / "cell.safetensors"
    save_weights(cellc.load("e79", N=4, bias="fixed")(D=3), path)
    with pytest.raises(cellc.SpecError, match="e79:N=4,bias=fixed .* the cell is e79:N=4,bias=input "):
        load_weights(cellc.load("e79", N=4, bias="input")(D=3), path)


def rewritten(path, change):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    head = json.dumps(change(header) or header).encode()
    return struct.pack("<Q", len(head)) + head + data[8 + length:]


def test_broken_files(tmp_path):
    path, model = tmp_path / "model.safetensors", Model()
    save_weights(model, path)
    data, bad = path.read_bytes(), tmp_path / "bad.safetensors"

    def change(name, key, value):
        return rewritten(path, lambda header: header[name].__setitem__(key, value))

    cases = [(data[:4], "is cut"), (data[:-1], "has other bytes"), (data + b"x", "bytes of tensors"),
             (struct.pack("<Q", 1 << 60) + data[8:], "is cut"), (data[:8] + b"x" + data[9:], "header is"),
             (change("out.bias", "shape", [3]), "'out.bias' has other bytes"),
             (change("out.bias", "shape", [-2]), "'out.bias' has other bytes"),
             (change("out.bias", "dtype", "F128"), "'out.bias' has no type"),
             (change("out.bias", "data_offsets", [0, 8]), "gap, or overlap"),
             (rewritten(path, lambda header: header.pop("out.bias") and None), "bytes of tensors|gap")]
    before = values(model)
    for text, message in cases:
        bad.write_bytes(text)
        with pytest.raises(cellc.CannotRead, match=message):
            load_weights(model, bad)
        assert same(before, values(model))
    with pytest.raises(cellc.MissingFile):
        load_weights(model, tmp_path / "nothing")
    save_weights(torch.nn.Sequential(torch.nn.Linear(2, 3)), bad)
    with pytest.raises(cellc.ShapeError, match="core.weight_ih is missing|is missing"):
        load_weights(model, bad, any_spec=True)
    assert same(before, values(model))


def test_failed_save(tmp_path):
    path = tmp_path / "model.safetensors"
    model = Model()
    save_weights(model, path)
    before = path.read_bytes()
    model.odd = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex128))
    with pytest.raises(cellc.TypeMismatch, match="odd is torch.complex128"):
        save_weights(model, path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]
