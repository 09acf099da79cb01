#!/bin/bash
# Kernels of linear recurrences in chunks (runtime/device/cell_device_chunk*.cuh), forward and backward, against the step, and
# that the cases see faults in them. In: CXX, NVCC, BUILD, FULL. Out: what failed, `N passed, N failed[, N skipped]` as the last
# line. On the emulator, and on the GPU where there is one. Without FULL=1: f64, and bf16 of some members with reports of the
# sanitizers; with it all types with them, more numbers of steps, and the faults of faults.txt.
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

# compile ROOT PROGRAM SANITIZE MEMBERS TYPES WARNINGS
compile() {
    local flags
    flags=$(EMU_SANITIZE=$3 bash "$1/tests/emulator/build.sh" flags)
    # shellcheck disable=SC2086
    $CXX $flags $6 -DMEMBERS="$4" -DTYPES="$5" -x c++ "$1/tests/chunk_device/device_chunk.cu" \
        -x none "$out/cell_emu.o" -lpthread -o "$2"
}
cases() { # SANITIZE MEMBERS TYPES
    local program=$out/cases_$3
    if compile "$root" "$program" "$1" "$2" "$3" "-Werror -Wno-unused-function"; then
        count "$("$program" 2>&1)" "$program"
    else
        failed=$((failed + 1))
    fi
}
full=
[[ ${FULL:-0} == 0 ]] || full=1
if [[ -n $full ]]; then
    for type in 1 2 4 8; do cases 1 63 $type; done
else
    cases 0 31 1
    cases 1 50 4
fi

# A copy of what is compiled, with one text replaced in it: a program that passes has not seen the fault. Of 16 bits where the
# fault is of parts.
fault() { # what, file, member, from, to
    local tree=$out/fault header type=1
    [[ ! $2 =~ ^(back_warps|pairs|scores|chain)$ ]] || type=4
    rm -rf "$tree"
    mkdir -p "$tree"
    cp -R "$root/runtime" "$tree/runtime"
    mkdir "$tree/tests"
    cp -R "$root/tests/emulator" "$root/tests/chunk_device" "$tree/tests/"
    header=$tree/runtime/device/cell_device_chunk_$2.cuh
    # Blanks and ends of lines do not count.
    # shellcheck disable=SC2016
    if ! FROM=$4 TO=$5 perl -0777 -pi -e 'BEGIN { $from = join "\\s*", map quotemeta, split //, $ENV{FROM} =~ s/\s+//gr }
        s/$from/$ENV{TO}/ or $missing = 1; END { $? = $missing // 0 }' "$header"; then
        failed=$((failed + 1))
        echo "faults.txt: '$1' is not in $2: $4"
        return
    fi
    if ! compile "$tree" "$out/fault_program" 0 "$3" "$type" -w 2>"$out/fault_log"; then
        failed=$((failed + 1))
        echo "faults.txt: '$1' does not compile"
        head -n 5 "$out/fault_log"
    elif timeout 100 "$out/fault_program" >"$out/fault_log" 2>&1; then
        failed=$((failed + 1))
        echo "not seen: $1"
    else
        passed=$((passed + 1))
    fi
}
if [[ -n $full ]]; then
    while IFS= read -r line; do
        case $line in
        \#*) ;;
        -*) from=${line#-} ;;
        +*) fault "$what" "$file" "$member" "$from" "${line#+}" ;;
        *)
            IFS='|' read -r what file member <<<"$line"
            what=${what% } file=${file// /} member=${member// /}
            ;;
        esac
    done <"$here/faults.txt"
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
