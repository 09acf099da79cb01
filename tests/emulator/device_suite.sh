# Of suites that hold kernels of the device library against something plain: programs for the emulator,
# faults, and the GPU.
#
# In: set by the suite that sources this file: `here`, its folder; `program`, its .cu, which takes MEMBERS and
# TYPES when it is compiled; `family`, the headers runtime/device/cell_device_<family>*.cuh; and CXX, NVCC,
# BUILD, FULL. Out: functions, and `root`, `out`. A suite ends with `finish`, whose last line is `N passed, N
# failed[, N skipped]`.
root=$(cd "$here/../.." && pwd)
suite=$(basename "$here")
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
out=$build/tests/$suite
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

# compile ROOT PROGRAM SANITIZE MEMBERS TYPES WARNINGS
compile() {
    local flags
    flags=$(EMU_SANITIZE=$3 bash "$1/tests/emulator/build.sh" kernel_flags)
    # shellcheck disable=SC2086
    $CXX $flags $6 -DMEMBERS="$4" -DTYPES="$5" -x c++ "$1/tests/$suite/$program" \
        -x none "$out/cell_emu.o" -lpthread -o "$2"
}
cases() { # SANITIZE MEMBERS TYPES
    local built=$out/cases_$2_$3
    local said
    if ! compile "$root" "$built" "$1" "$2" "$3" "-Werror -Wno-unused-function"; then
        failed=$((failed + 1))
        return
    fi
    said=$("$built" 2>&1)
    # What a sanitizer stops without a word is compiled with reports, which takes twice as long.
    if [[ $1 == 1 && $(tail -n 1 <<<"$said") != *" passed, "*" failed" ]]; then
        EMU_REPORT=1 compile "$root" "$built" "$1" "$2" "$3" -w
        said+=$'\n'$("$built" 2>&1)
        [[ $(tail -n 1 <<<"$said") != *", 0 failed" ]] ||
            said+=$'\n'"without reports it ended without a result"
    fi
    count "$said" "$built"
}

# A copy of what is compiled, with one text replaced in it: a program that passes has not seen the fault.
fault() { # what, file behind the family's name, member, type, from, to
    local tree=$out/fault header
    rm -rf "$tree"
    mkdir -p "$tree"
    cp -R "$root/runtime" "$tree/runtime"
    mkdir "$tree/tests"
    cp -R "$root/tests/emulator" "$here" "$tree/tests/"
    header=$tree/runtime/device/cell_device_$family${2:+_$2}.cuh
    # Blanks and ends of lines do not count.
    # shellcheck disable=SC2016
    if ! FROM=$5 TO=$6 perl -0777 -pi -e 'BEGIN { $from = join "\\s*", map quotemeta, split //, $ENV{FROM} =~ s/\s+//gr }
        s/$from/$ENV{TO}/ or $missing = 1; END { $? = $missing // 0 }' "$header"; then
        failed=$((failed + 1))
        echo "faults.txt: '$1' is not in $2: $5"
        return
    fi
    if ! compile "$tree" "$out/fault_program" 0 "$3" "$4" -w 2>"$out/fault_log"; then
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
# faults TYPE: those of faults.txt, each compiled in the type that its line says, or else the function TYPE
# prints of its file.
faults() {
    local line what file member type from
    while IFS= read -r line; do
        case $line in
        \#*) ;;
        -*) from=${line#-} ;;
        +*) fault "$what" "$file" "$member" "${type:-$("$1" "$file")}" "$from" "${line#+}" ;;
        *)
            IFS='|' read -r what file member type <<<"$line"
            what=${what% } file=${file// /} member=${member// /} type=${type// /}
            ;;
        esac
    done <"$here/faults.txt"
}

# on_gpu TYPES...: the program in each type, where there is a GPU.
on_gpu() {
    local arch type
    if [[ -z ${NVCC:-} ]] || ! nvidia-smi -L >/dev/null 2>&1; then
        skipped=$((skipped + 1))
        return
    fi
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    [[ $arch != 90 ]] || arch=90a
    for type in "$@"; do
        if "$NVCC" -std=c++17 -gencode="arch=compute_$arch,code=sm_$arch" -DTYPES="$type" -diag-suppress 177 -I"$root/runtime" \
            "$here/$program" -o "$out/gpu_$type"; then
            count "$("$out/gpu_$type" 2>&1)" "gpu_$type"
        else
            failed=$((failed + 1))
        fi
    done
}

if [[ -z $CXX ]]; then
    echo "no C++ compiler: the emulator needs g++ or clang++"
    skipped=1
    finish
fi
bash "$root/tests/emulator/build.sh" lib "$out" || { failed=1; finish; }
full=
# shellcheck disable=SC2034  # the suites ask for it
[[ ${FULL:-0} == 0 ]] || full=1
