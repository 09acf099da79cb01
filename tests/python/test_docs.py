"""The Python of docs/python.md, as a reader would type it. What a section takes for granted (x, a seed of cotangents) is
given here; everything else is as it stands there."""

import os
import re

import pytest
import torch

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "python.md")


def blocks():
    """(heading, code) of each block."""
    with open(PAGE) as f:
        text = f.read()
    found, heading = [], ""
    for part in re.finditer(r"^#+ ([^\n]*)$|^```python\n(.*?)^```$", text, re.M | re.S):
        heading = part[1] or heading
        if part[2]:
            found.append((heading, part[2]))
    return found


GIVEN = {
    "Python: PyTorch, JAX, NumPy": "",
    "Layers": "import torch, cellc",
    "Layers of flash-linear-attention": "import torch",
    "Sequences of several lengths": "import torch, cellc",
    "Long sequences": "import torch, cellc\nlstm, x = cellc.load('lstm')(D=64, H=128), torch.randn(2, 1024, 64)",
    "Numbers of 8 bits": "import torch, cellc\nx = torch.randn(2, 3, 512, dtype=torch.bfloat16)",
    "Weights in files": "import cellc\nlstm = cellc.load('lstm')(D=3, H=4)",
    "JAX": "import jax, cellc\nx = jax.numpy.ones((2, 3, 5), 'float32')",
    "Serving": "import torch, cellc\ncell = cellc.load('gru')(D=5, H=7)\nprompt, x = torch.ones(1, 4, 5), torch.ones(2, 5)",
    "NumPy": "import numpy, cellc\nx = numpy.ones((2, 3, 5))\nd_y = numpy.ones((2, 3, 7))\nd_state = [None, numpy.ones((2, 7))]\n"
             "state = None",
}


@pytest.mark.parametrize("heading, code", blocks(), ids=[heading for heading, _ in blocks()])
def test_block(heading, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if heading == "JAX" or "import jax" in code:
        pytest.importorskip("jax")
    names = {}
    exec(compile(GIVEN[heading] + "\n" + code, PAGE, "exec"), names)
    if heading == "NumPy":
        assert names["gradients"].params["weight_ih"].shape == (28, 5)
    elif heading == "JAX":
        assert names["grads"]["weight_ih"].shape == (28, 5) and names["state"].h.shape == (2, 7)
    elif heading == "Serving":
        assert names["y"].shape == (2, 7) and names["store"].load(names["blob"]) not in (names["a"], names["b"], names["c"])
    elif heading == "Layers":
        assert names["h"].shape == (4, 8, 128) and names["y"].shape == (2, 512) and names["block"].sizes["H"] == 8
    elif heading == "Layers of flash-linear-attention":
        assert names["y"].shape == (2, 100, 64) and names["state"].seen.tolist() == [100, 80]
        assert not names["y"][1, 80:].any() and names["y"][1, :80].all()
        assert all((t == names["weights"][names["place"] + name]).all() for name, t in names["layer"].state_dict().items())
    elif heading == "Long sequences":
        assert names["y"].shape[0] == 2 and names["y"].shape[2] == 128
    elif heading == "Numbers of 8 bits" and "import jax" in code:
        assert names["grads"]["weight_ih"].dtype == "bfloat16" and names["codes"]["weight_ih_scale"].shape == (24, 1)
    elif heading == "Numbers of 8 bits":
        assert names["y"].shape == (2, 3, 256) and names["codes"].dtype == torch.float8_e4m3fn
    elif heading == "Weights in files":
        assert (tmp_path / "lstm.safetensors").exists()
    elif heading == "Sequences of several lengths":
        assert names["y"].shape == (3, 32) and names["state"].S.shape == (3, 32, 32)
    else:
        assert names["y"].shape == (16, 32) and names["state"].S.shape == (16, 32, 32)


def test_all_sections_are_known():
    assert {heading for heading, _ in blocks()} == set(GIVEN)
