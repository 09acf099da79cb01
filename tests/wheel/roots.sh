# Sourced by run.sh with FULL=1: the wheel in a Debian that has Python and NumPy and nothing else, and in one
# with gcc too, where the source distribution is installed as well. Both are made by debootstrap and kept in
# $build/roots; network is needed then, and taken away when they are used. shellcheck shell=bash
# disable=SC2154
roots=$build/roots
suite=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}")

make_root() { # name, packages beside Python's
    [[ -e $roots/$1/ready ]] && return
    rm -rf "${roots:?}/$1"
    mkdir -p "$roots"
    echo "wheel: debootstrap makes $roots/$1, once"
    debootstrap --variant=minbase --include="python3,python3-numpy${2:+,$2}" "$suite" "$roots/$1" \
        >"$out/debootstrap.log" 2>&1 && : >"$roots/$1/ready"
}
in_root() { # name, command...
    local where=$roots/$1
    shift
    unshare -n chroot "$where" env -i PATH=/usr/bin:/bin HOME=/try LANG=C.UTF-8 "$@"
}
fill_root() { # name: the wheel, as pip lays it out, and what is tried
    rm -rf "$roots/$1/try/cellc" "$roots/$1/try/.cache" && mkdir -p "$roots/$1/try/cellc"
    pip install -q --no-deps --target "$roots/$1/try/cellc" "$repaired" >"$said" 2>&1 &&
        cp "$use" "$roots/$1/try/use.py"
}

if ((EUID != 0)) || ! command -v debootstrap >/dev/null || ! unshare -n true 2>/dev/null; then
    skip "no whole systems: they take root, debootstrap (apt-get install debootstrap) and unshare"
elif ! make_root bare "" || ! make_root gcc gcc,libc6-dev,make,flex,bison,python3-pip; then
    skip "no whole systems: debootstrap of ${suite:-this system} failed, see $out/debootstrap.log"
else
    fill_root bare && pass || fail "the wheel is not installed in a bare root"
    expect 0 "lstm: came compiled" in_root bare env PYTHONPATH=/try/cellc python3 /try/use.py
    says "own: own: there is no C compiler, and $missing"
    fill_root gcc && pass || fail "the wheel is not installed in a root with gcc"
    expect 0 "lstm: was compiled here" in_root gcc env PYTHONPATH=/try/cellc python3 /try/use.py
    says "own: was compiled here"
    expect 0 "libe79.so" in_root gcc /try/cellc/cellc/_home/bin/cellc build e79 -o /try/out
    says "no nvcc in CUDA_HOME, PATH or /usr/local/cuda, so the library has the reference only"
    # Its own setuptools is older than the source distribution asks for.
    rm -rf "$roots/gcc/try/setuptools" "$roots/gcc/try/sdist" && mkdir -p "$roots/gcc/try/setuptools"
    cp -R "$(folder_of setuptools)" "$roots/gcc/try/setuptools/"
    cp "$sdist" "$roots/gcc/try/"
    expect 0 "" in_root gcc env PYTHONPATH=/try/setuptools CELLC_PREBUILT=lstm \
        python3 -m pip install --no-deps --no-index --no-build-isolation --target /try/sdist "/try/$(basename "$sdist")"
    expect 0 "lstm: was compiled here" in_root gcc env PYTHONPATH=/try/sdist python3 /try/use.py
    expect 0 "lstm: came compiled" in_root gcc env PYTHONPATH=/try/sdist CC=/no/cc python3 /try/use.py
fi

if [[ ! -e $tools/bin/twine ]] && ! env -u PIP_NO_INDEX pip install -q twine >"$out/log" 2>&1; then
    skip "no twine from pip's registry"
else
    expect 0 "PASSED" twine check --strict "$wheel"
    expect 0 "PASSED" twine check --strict "$sdist"
fi
