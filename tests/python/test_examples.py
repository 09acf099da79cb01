"""The examples, in a smaller form than their smallest: that they run, that the loss falls, that a run which was
broken off and resumed is the run that was not."""

import csv
import os
import shlex
import subprocess
import sys

import pytest

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "python", "examples")
SMALL = ["--width", "16", "--layers", "1", "--batch", "4", "--length", "16", "--device", "cpu"]


def example(name, *words):
    done = subprocess.run([sys.executable, "-W", "ignore", os.path.join(EXAMPLES, name), *words], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(place):
    with open(place / "losses.csv") as f:
        return [float(row["bits_per_byte"]) for row in csv.DictReader(f)]


def test_language_model_resumes(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    common = [*SMALL, "--steps", "60", "--rate", "1e-2", "--sample", "20"]
    said = example("lm.py", *common, "--out", str(whole))
    example("lm.py", *common, "--out", str(parts), "--until", "25")
    assert len(losses(parts)) == 25
    example("lm.py", *common, "--out", str(parts), "--resume")
    assert losses(parts) == losses(whole)
    found = losses(whole)
    assert 7.5 < found[0] < 8.5 and sum(found[-10:]) / 10 < 5.5
    assert "validation: " in said and "The " in said


@pytest.mark.parametrize("cell", [["e79", "--set", "N=4", "bias=input"], ["delta", "--set", "N=4", "V=4"],
                                  ["window_attention", "--set", "N=4", "V=4", "W=3"], ["torch.GRU"],
                                  ["lstm", "--dtype", "bf16"]])
def test_language_model_of_any_cell(cell, tmp_path):
    said = example("lm.py", *SMALL, "--steps", "2", "--sample", "8", "--out", str(tmp_path), "--cell", *cell)
    assert "validation: " in said


def test_language_model_draws(tmp_path):
    pytest.importorskip("matplotlib")
    example("lm.py", *SMALL, "--steps", "2", "--sample", "0", "--out", str(tmp_path))
    with open(tmp_path / "loss.png", "rb") as f:
        assert f.read(8) == b"\x89PNG\r\n\x1a\n"


def test_recall():
    said = example("recall.py", "--cells", "delta:N=4,V=4", "gru", "--width", "8", "--steps", "2", "--pairs", "2",
                   "--device", "cpu")
    assert said.startswith("recall: 2 pairs, 8 symbols, 2 steps; a guess gives 12%")
    assert said.count("delta:N=4,V=4") == 2


def test_sweep():
    said = example("sweep.py", "--fixed", "N=4", "--width", "8", "--steps", "2", "--pairs", "2", "--seeds", "2",
                   "--device", "cpu")
    table = said.partition("best first\n")[2].splitlines()
    assert len(table) == 4 and {row.split()[0] for row in table[1:]} == {"bias=fixed", "bias=none", "bias=input"}
    said = example("sweep.py", "--cell", "gru", "--vary", "reset=after,before", "--steps", "1", "--device", "cpu")
    assert "reset=before" in said and "update" not in said


def test_jax():
    pytest.importorskip("jax")
    small = [*SMALL[:-2], "--rate", "1e-2", "--sample", "20"]
    said = example("jax_lm.py", *small, "--steps", "100").splitlines()
    first, last = (float(line.split()[1]) for line in said[1:3])
    assert first < 5 and last < 5 and said[3].startswith("The ")          # 8 bits is a guess
    said = example("jax_lm.py", *small, "--steps", "2", "--cell", "e79", "--set", "N=4", "--dtype", "bf16")
    assert "bits/byte" in said


def test_throughput(tmp_path):
    small = ["--params", "1e4", "--width", "16", "--batch", "2", "--length", "16", "--dtype", "f32", "--device", "cpu",
             "--cells", "e88:N=4,V=4", "torch.LSTM"]
    lines = example("throughput.py", *small, "--seconds", "0.1", "--steps", "8").splitlines()
    assert lines[1].split()[:3] == ["cell", "layers", "params"]
    for line, name in zip(lines[2:4], small[-2:]):
        label, layers, params, middle, half, tokens, steps, bits = line.split()
        low, high = map(float, half.split("-"))
        assert label == name and 5e3 < int(params.replace(",", "")) < 2e4 and int(layers) >= 1 and int(steps) >= 3
        assert low <= float(middle) <= high and 2 < float(bits) < 9
        assert float(tokens.replace(",", "")) == pytest.approx(2 * 16 * 1000 / float(middle), rel=0.01, abs=0.51)
    first, _ = example("throughput.py", *small, "--commands").splitlines()
    words = shlex.split(first)
    assert words[:4] == ["python", "lm.py", "--cell", "e88"]
    said = example(*words[1:], "--steps", "2", "--sample", "4", "--out", str(tmp_path))
    assert f"e88: {lines[2].split()[2]} params" in said
