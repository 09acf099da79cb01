#!/bin/bash
# Tests the Python package: makes a virtual environment with PyTorch from the package registry, installs the package
# there as a user would, and runs the tests. In: BUILD, PYTHON (python3), VENV (BUILD/venv), ONLY (a filter for
# pytest -k). Out: the sum as the last line. Where PyTorch cannot be had, that is said, and one test counts as skipped.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD:-build}")
venv=${VENV:-$build/venv}
python=${PYTHON:-python3}
log=$build/check-python.log

skip() {
    echo "check-python: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || skip "there is no Python 3.9 or newer"
if [[ ! -x $venv/bin/python ]]; then
    own=$("$python" -c 'import torch' 2>/dev/null && echo --system-site-packages)
    # shellcheck disable=SC2086
    "$python" -m venv $own "$venv" >"$log" 2>&1 || { rm -rf "$venv"; skip "cannot make a virtual environment, see $log"; }
fi
need=()
"$venv/bin/python" -c 'import torch' 2>/dev/null || need+=(torch numpy)
"$venv/bin/python" -c 'import pytest, IPython, matplotlib, mypy, tqdm' 2>/dev/null ||
    need+=(pytest ipython matplotlib mypy tqdm)
"$venv/bin/python" -c 'import setuptools, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)' 2>/dev/null ||
    need+=("setuptools>=77")
if ((${#need[@]})); then
    echo "installing ${need[*]} into $venv"
    "$venv/bin/python" -m pip install -q "${need[@]}" >"$log" 2>&1 || skip "cannot install ${need[*]} (offline?), see $log"
fi
# JAX is there for its own tests only, which are skipped without it.
"$venv/bin/python" -c 'import jax, flatbuffers' 2>/dev/null || {
    echo "installing jax into $venv"
    "$venv/bin/python" -m pip install -q jax flatbuffers >"$log" 2>&1 || echo "cannot install jax, see $log"
}
# Of the cells that come compiled, those with default options are enough here.
CELLC_PREBUILT=${CELLC_PREBUILT:-defaults} "$venv/bin/python" -m pip install -q --no-deps --no-build-isolation --force-reinstall ./python >"$log" 2>&1 || {
    tail -n 20 "$log"
    echo "0 passed, 1 failed"
    exit 1
}
unset CELLC CELLC_HOME CELLC_TUNED PYTHONPATH
torch=0
if [[ -z ${ONLY:-} ]]; then
    echo "specs against PyTorch's operators:"
    PYTHON=$venv/bin/python bash tests/torch/run.sh || torch=1
    echo "the notebook of examples/tutorial:"
    PYTHON=$venv/bin/python bash tests/tutorial/run.sh || torch=1
fi
CELLC_CACHE=$build/python-cache "$venv/bin/python" -m pytest -q -p no:cacheprovider -rs ${ONLY:+-k "$ONLY"} tests/python && exit $torch
