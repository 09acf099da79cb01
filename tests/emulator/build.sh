#!/bin/bash
# Builds the emulator, or a generated kernel file for it. In: C++ sources. Out: objects, rebuilt only when
# something is newer.
#
#   build.sh lib DIR             DIR/cell_emu.o, and DIR/cell_emu_backend.o, which connects it to libcell.a; DIR/header, the
#                                device library compiled ahead, where the compiler is gcc
#                                EMU_SHARED is a folder where this is made once for all suites of a build; DIR gets
#                                links to it
#   build.sh cu FILE.cu OUT.o    a generated kernel file
#   build.sh flags               the flags of the compile and link lines of other sources, with all reports
#   build.sh kernel_flags        the same with the reports that generated files have
#   build.sh linker              a flag for the fastest linker that links a program with these flags, or nothing
#
# EMU_SANITIZE=0 leaves out AddressSanitizer and UBSan, which make building longer. Kernels run for less time than it takes
# to optimise them, several times where they are instrumented; and nothing is optimised away that a check would see.
# A generated file is compiled so that UBSan ends the program (SIGILL) without a word, and AddressSanitizer without lines:
# the reports double what compiling takes. EMU_REPORT=1 makes them, for what has failed.
# EMU_HEADER is the DIR/header of a `lib` with the same EMU_SANITIZE, or nothing.
# CXX chooses the compiler (g++, else clang++). A program links its kernels' objects with cell_emu.o; if it
# runs them through the runtime, also with cell_emu_backend.o and libcell.a. Link with $CXX and the flags.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
CXX=${CXX:-$(command -v g++ || command -v clang++ || true)}
if [[ -z $CXX ]]; then
    echo "no C++ compiler: the emulator needs g++ or clang++" >&2
    exit 3
fi
sanitize="-g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
gcc=
$CXX --version 2>/dev/null | grep -q 'Free Software Foundation' && gcc=1
# Checks of AddressSanitizer as calls, not inline, are half the code. Of UBSan's those are left out that see nothing more
# in kernels, and take a quarter of the time to compile: a pointer that is null or leaves its object is seen by
# AddressSanitizer, or by the processor, where it is used; there are no virtual functions; object-size wants optimisation.
silent="-fsanitize=address,undefined -fno-sanitize=null,pointer-overflow,vptr,object-size"
silent+=" -fsanitize-undefined-trap-on-error -fno-omit-frame-pointer"
silent+=${gcc:+ --param asan-instrumentation-with-call-threshold=0}
[[ -z ${EMU_REPORT:-} ]] || silent=$sanitize
[[ ${EMU_SANITIZE:-1} == 0 ]] && sanitize= silent=
common="-Wall -Wextra -Wno-unknown-pragmas -I$root/runtime -I$root/runtime/device -I$here"
flags="-std=c++17 -O0 -fPIC $sanitize $common"
kernel_flags="-std=c++17 -O0 -fPIC $silent $common"

newer() { # is any of the files newer than the first?
    local target=$1 file
    shift
    [[ -e $target ]] || return 0
    for file in "$@"; do
        [[ $file -nt $target ]] && return 0
    done
    return 1
}

case ${1:-} in
lib)
    mkdir -p "$2"
    if [[ -n ${EMU_SHARED:-} && -z ${EMU_REPORT:-} ]]; then
        shared=$EMU_SHARED/$([[ ${EMU_SANITIZE:-1} == 0 ]] && echo plain || echo sanitized)
        mkdir -p "$EMU_SHARED"
        (
            flock 9
            EMU_SHARED='' bash "$0" lib "$shared"
        ) 9>"$shared.lock"
        ln -f "$shared"/cell_emu*.o "$2"
        if [[ -e $shared/header/cell_device.cuh.gch ]]; then
            mkdir -p "$2/header"
            ln -f "$shared/header/cell_device.cuh.gch" "$2/header"
        fi
        exit 0
    fi
    # The scheduler itself is not instrumented: checked is what kernels do, and a switch costs a third.
    plain="-std=c++17 -O2 -g -fPIC -Wall -Wextra -Werror -I$root/runtime"
    if newer "$2/cell_emu.o" "$here"/cell_emu* "$root/runtime/cell_kernel_args.h"; then
        for part in fiber launch sync shared report numbers; do
            $CXX $plain -c "$here/cell_emu_$part.cc" -o "$2/part_$part.$$.o"
        done
        $CXX -r -nostdlib "$2"/part_*.$$.o -o "$2/cell_emu.$$.tmp"
        mv "$2/cell_emu.$$.tmp" "$2/cell_emu.o"
        rm "$2"/part_*.$$.o
    fi
    if newer "$2/cell_emu_backend.o" "$here"/cell_emu* "$root"/runtime/*.h; then
        $CXX $plain -c "$here/cell_emu_backend.cc" -o "$2/cell_emu_backend.$$.tmp"
        mv "$2/cell_emu_backend.$$.tmp" "$2/cell_emu_backend.o"
    fi
    # A third of what compiling a small cell's kernels takes is reading the device library.
    if [[ -n $gcc ]] && newer "$2/header/cell_device.cuh.gch" "$here"/{build.sh,cell_emu_device.h} "$root"/runtime/*.h \
        "$root"/runtime/device/*; then
        mkdir -p "$2/header"
        $CXX $kernel_flags -x c++-header "$root/runtime/device/cell_device.cuh" -o "$2/header/$$.tmp"
        mv "$2/header/$$.tmp" "$2/header/cell_device.cuh.gch"
    fi
    ;;
cu)
    if newer "$3" "$2" "$here"/{build.sh,cell_emu_device.h} "$root"/runtime/*.h "$root"/runtime/device/*; then
        $CXX ${EMU_HEADER:+-I"$EMU_HEADER"} $kernel_flags -x c++ -c "$2" -o "$3"
    fi
    ;;
flags)
    echo "$flags"
    ;;
kernel_flags)
    echo "$kernel_flags"
    ;;
linker)
    probe=$(mktemp)
    if echo 'int main() { return 0; }' | $CXX -fuse-ld=gold ${sanitize:+-fsanitize=address,undefined} -x c++ -o "$probe" - \
        2>/dev/null && "$probe"; then
        echo -fuse-ld=gold
    fi
    rm -f "$probe"
    ;;
*)
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
