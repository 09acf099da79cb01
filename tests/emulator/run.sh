#!/bin/bash
# Tests the device library and the emulator. In: BUILD (where libcell.a is), CXX, NVCC. Out: each program's
# result, and their sum as the last line. The emulator's tests need a C++ compiler with AddressSanitizer; the
# device tests also run on the GPU where there is one, and are skipped where there is none.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
out=$build/tests/emulator
mkdir -p "$out"
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)}
passed=0 failed=0 skipped=0

count() { # the last line of a program, its name
    local line
    line=$(tail -n 1 <<<"$1")
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
        [[ $line == *", 0 failed" ]] || printf '%s\n' "$1"
        echo "$2: $line"
    else
        failed=$((failed + 1))
        printf '%s\n' "$1"
        echo "$2: ended without a result"
    fi
}

finish() {
    printf '%d passed, %d failed' "$passed" "$failed"
    ((skipped)) && printf ', %d skipped' "$skipped"
    echo
    exit $((failed > 0))
}

probe() {
    [[ -n $CXX ]] || return 1
    rm -f "$out/probe"
    echo 'int main() { return 0; }' | $CXX -x c++ -fsanitize=address,undefined -o "$out/probe" - 2>/dev/null
    "$out/probe" 2>/dev/null
}
if ! probe; then
    echo "emulator: no C++ compiler with AddressSanitizer (apt-get install g++ brings one)"
    skipped=1
    finish
fi

bash "$here/build.sh" lib "$out" || { failed=1; finish; }

build_one() { # of build_and_run: its program
    local flags
    flags="$(EMU_SANITIZE=$sanitize bash "$here/build.sh" "$kind") -Werror"
    # shellcheck disable=SC2086
    $CXX ${flags/-O0/$level} "${options[@]}" -x c++ "$source" -x none $objects $libs -lpthread -o "$program"
}

# PROGRAM SOURCE LEVEL SANITIZE OPTIONS...: builds a test, if it is not there or something is newer, and runs
# it. Device tests have the sanitizers' reports, which double what compiling takes, once one of them has
# failed.
build_and_run() {
    local name=$1 source=$2 level=$3 kind=flags said objects=$out/cell_emu.o libs=
    local program=$out/$name inputs="$here $root/runtime $build/libcell.a" sanitize=$4 options=("${@:5}")
    if [[ $name == test_backend ]]; then
        objects="$objects $out/cell_emu_backend.o $build/libcell.a"
        libs=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
    fi
    [[ $name != device_* ]] || kind=kernel_flags
    # shellcheck disable=SC2086
    if [[ ! -e $program || -n $(find $inputs -newer "$program" -type f 2>/dev/null) ]]; then
        build_one || { failed=$((failed + 1)); return; }
    fi
    said=$("$program" 2>&1)
    if [[ $kind == kernel_flags && $(tail -n 1 <<<"$said") != *" passed, 0 failed" ]]; then
        kind=flags
        build_one && said=$("$program" 2>&1)
    fi
    count "$said" "$name"
}
for source in "$here"/device_*.cu "$here"/test_*.cc; do
    name=$(basename "${source%.*}")
    case $name in
    # It runs longer than it compiles, and three times as long under AddressSanitizer, which sees a part of it
    # (with all warnings).
    device_panel)
        build_and_run $name "$source" -O1 0 -w
        build_and_run ${name}_few "$source" -O1 1 -DFEW
        ;;
    test_backend)
        if [[ -e $build/libcell.a ]]; then
            build_and_run $name "$source" -O0 1
        else
            skipped=$((skipped + 1))
        fi
        ;;
    *) build_and_run "$name" "$source" -O0 1 ;;
    esac
done

# The same device tests, on the device, with the instructions that belong to its architecture alone.
if [[ -n ${NVCC:-} ]] && nvidia-smi -L >/dev/null 2>&1; then
    arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    [[ $arch != sm_90 ]] || arch=sm_90a
    for source in "$here"/device_*.cu; do
        name=$(basename "${source%.*}")
        if "$NVCC" -std=c++17 -arch="$arch" -I"$root/runtime" -I"$here" "$source" -o "$out/gpu_$name"; then
            count "$("$out/gpu_$name" 2>&1)" "$name on the GPU"
        else
            failed=$((failed + 1))
        fi
    done
else
    skipped=$((skipped + 1))
    echo "device tests on a GPU: skipped, there is none or no nvcc"
fi
finish
