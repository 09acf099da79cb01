"""`python -m cellc doctor`: it says what this Python and this machine have, and hides nothing where a package
is broken."""

import json
import platform

import pytest

from cellc import doctor, nvrtc


def said(capfd, *words):
    code = doctor.main(list(words))
    return code, capfd.readouterr()


def test_text_has_python_and_machine(capfd):
    code, out = said(capfd)
    assert code == 0
    assert platform.python_version() in out.out and "cellc on this machine" in out.out
    assert out.out.index("cellc in Python") < out.out.index("cellc on this machine")


def test_json_is_one_object(capfd):
    import torch

    code, out = said(capfd, "--json")
    found = json.loads(out.out)
    assert code == 0 and found["python"]["torch"]["version"] == torch.__version__
    assert found["backend"] in ("cuda", "cpu") and isinstance(found["remedies"], list)


def test_wrong_usage_is_the_compilers(capfd):
    for words in (["--jsn"], ["--json", "x"]):
        code, out = said(capfd, *words)
        assert code == 2 and "doctor" in out.err


@pytest.mark.parametrize(
    "error", [ImportError("libcudart.so.13: cannot open\nmore"), OSError(""), RuntimeError("no devices")]
)
def test_a_package_that_does_not_import(capfd, monkeypatch, error):
    def broken(module):
        raise error

    monkeypatch.setitem(doctor.FRAMEWORKS, "numpy", broken)
    code, out = said(capfd)
    assert code == 0 and f"does not work: {type(error).__name__}" in out.out and "more" not in out.out


def test_what_compiles_kernels(capfd, monkeypatch):
    monkeypatch.setenv("CELLC_KERNELS", "nvc")
    assert "CELLC_KERNELS is 'nvc'" in said(capfd)[1].out
    monkeypatch.setenv("CELLC_KERNELS", "nvrtc")
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    assert "none: neither nvcc nor NVRTC" in said(capfd)[1].out


def test_what_is_not_installed(capfd, monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert said(capfd)[1].out.count("not installed") == len(doctor.FRAMEWORKS)
