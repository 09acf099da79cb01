#!/bin/bash
# Kernels of linear recurrences in chunks (runtime/device/cell_device_chunk*.cuh), forward and backward, against the step, and
# that the cases see faults in them. In: CXX, NVCC, BUILD, FULL. Out: what failed, `N passed, N failed[, N skipped]` as the last
# line. On the emulator, and on the GPU where there is one. Without FULL=1: f64 with reports of the sanitizers and bf16; with it
# all types, more numbers of steps, and the faults of faults.txt.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
out=$build/tests/chunk_device
mkdir -p "$out"
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)}
passed=0 failed=0 skipped=0

finish() {
    printf '%d passed, %d failed' "$passed" "$failed"
    ((skipped)) && printf ', %d skipped' "$skipped"
    echo
    exit $((failed > 0))
}
count() { # the output of a program, its name
    local line
    line=$(tail -n 1 <<<"$1")
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
        [[ $line == *", 0 failed" ]] || printf '%s\n' "$1"
    else
        failed=$((failed + 1))
        printf '%s\n%s ended without a result\n' "$1" "$2"
    fi
}

if [[ -z $CXX ]]; then
    echo "no C++ compiler: the emulator needs g++ or clang++"
    skipped=1
    finish
fi
bash "$root/tests/emulator/build.sh" lib "$out" || { failed=1; finish; }

# compile ROOT PROGRAM SANITIZE MEMBERS TYPES
compile() {
    local flags
    flags=$(EMU_SANITIZE=$3 bash "$1/tests/emulator/build.sh" flags)
    # shellcheck disable=SC2086
    $CXX $flags -Werror -Wno-unused-function -DMEMBERS="$4" -DTYPES="$5" -x c++ "$1/tests/chunk_device/device_chunk.cu" \
        -x none "$out/cell_emu.o" -lpthread -o "$2"
}
cases() { # SANITIZE MEMBERS TYPES
    local program=$out/cases_$3
    if compile "$root" "$program" "$1" "$2" "$3"; then
        count "$("$program" 2>&1)" "$program"
    else
        failed=$((failed + 1))
    fi
}
full=
[[ ${FULL:-0} == 0 ]] || full=1
cases 1 31 1
cases "${full:-0}" 31 4
[[ -z $full ]] || { cases 1 31 2; cases 1 31 8; }

# A copy of what is compiled, with one text replaced in it: a program that passes has not seen the fault. Of 16 bits where the
# fault is of parts.
fault() { # what, file, member, from, to
    local tree=$out/fault header type=1
    [[ $2 != prep ]] || type=4
    rm -rf "$tree"
    mkdir -p "$tree"
    cp -R "$root/runtime" "$tree/runtime"
    mkdir "$tree/tests"
    cp -R "$root/tests/emulator" "$root/tests/chunk_device" "$tree/tests/"
    header=$tree/runtime/device/cell_device_chunk_$2.cuh
    local text
    text=$(cat "$header")
    if [[ $text != *"$4"* ]]; then
        failed=$((failed + 1))
        echo "faults.txt: '$1' is not in $2: $4"
        return
    fi
    printf '%s\n' "${text/"$4"/"$5"}" >"$header"
    if ! compile "$tree" "$out/fault_program" 0 "$3" "$type" 2>"$out/fault_log"; then
        failed=$((failed + 1))
        echo "faults.txt: '$1' does not compile"
        head -n 5 "$out/fault_log"
    elif "$out/fault_program" >"$out/fault_log" 2>&1; then
        failed=$((failed + 1))
        echo "not seen: $1"
    else
        passed=$((passed + 1))
    fi
}
if [[ -n $full ]]; then
    what='' from='' to='' into=
    while IFS= read -r line || [[ -n $line ]]; do
        case $line in
        \#*) continue ;;
        -*) from=${line#-} into=from ;;
        +*) to=${line#+} into=to ;;
        *\ \|\ *)
            [[ -z $what ]] || fault "$what" "$file" "$member" "$from" "$to"
            IFS='|' read -r what file member <<<"$line"
            what=${what% } file=${file// /} member=${member// /} into=
            ;;
        *) if [[ $into == from ]]; then from+=$'\n'$line; else to+=$'\n'$line; fi ;;
        esac
    done <"$here/faults.txt"
    fault "$what" "$file" "$member" "$from" "$to"
fi

if [[ -n ${NVCC:-} ]] && nvidia-smi -L >/dev/null 2>&1; then
    arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    for type in 1 2 4 8; do
        if "$NVCC" -std=c++17 -arch="$arch" -DTYPES=$type -diag-suppress 177 -I"$root/runtime" "$here/device_chunk.cu" \
            -o "$out/gpu_$type"; then
            count "$("$out/gpu_$type" 2>&1)" "gpu_$type"
        else
            failed=$((failed + 1))
        fi
    done
else
    skipped=$((skipped + 1))
fi
finish
