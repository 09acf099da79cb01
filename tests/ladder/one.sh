#!/bin/bash
# Builds one prepared instance and runs it over its sizes. In: DIR of prepare.sh, NAME, OBJECTS (the directory
# with libladder.a and what else every program is linked with), and in the environment BACKEND (emulated or
# cuda), RUNTIME (libcell.a), LIBS, CXX, CC, for cuda NVCC and ARCH. Out: DIR/NAME/log, whose last line is the
# program's, and the same line here with the instance's name before it. With COMPILE=1 it stops at the object
# of the kernels, which a machine without a GPU can make for another (ARCH): it is made again only if its
# sources differ. What roundings decide at all sizes is a failure, with LADDER_DECIDED=0 skipped. In a suite
# that keeps verdicts (verdicts.sh) an instance whose verdict is there is not built. With AS=WORD it makes a
# second program, ladder.WORD, of kernels compiled with KERNEL_FLAGS, and does not run it. DIR/NAME/took: the CPU
# time of its build, and of both. Where DIR/NAME has kernels for the CPU (CELL_cpu.c) the program has them too,
# and on the emulator they run on the same cases.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=$1/$2 name=$2 objects=$3
list=$1/list
elsewhere=' gpu:[^ ]*' # sizes for a GPU, which the emulator leaves out (matrix.sh)
[[ $BACKEND != cuda ]] || elsewhere='gpu:'
read -r _ cell sizes < <(grep -E "^$name " "$list" | sed "s/$elsewhere//g")
as=${AS:-$BACKEND} log=$dir/log${AS:+.$AS}
# A type of every setting goes without AddressSanitizer (prepare.sh).
if [[ $BACKEND == emulated ]] && grep -qxF "$name" "$1/plain" 2>/dev/null; then
    export EMU_SANITIZE=0 EMU_HEADER=$objects/plain/header
fi
cc=${CC:-cc}

compile() { # target, source, command...
    local target=$1 source=$2
    shift 2
    [[ $target -nt $source && $target -nt $objects/stamp ]] && return 0
    "$@" >>"$log" 2>&1
}

# Is a product of a step so large, of all sequences and steps, that the reference takes longer to run than to
# optimise? Dims are those of a size and those that are bound.
is_large() {
    local size n largest bound
    read -ra bound < <(sed -n 's/^ *"bound": {\(.*\)},$/\1/p' "$dir/$cell.json" | grep -oE '"[0-9]+"' | tr '"\n' '  ')
    for size in $sizes; do
        IFS=, read -ra size <<<"${size##*:}"
        largest=1
        for n in "${size[@]:2}" ${bound[@]+"${bound[@]}"}; do ((n <= largest)) || largest=$n; done
        ((size[0] * size[1] * largest * largest < 1000000)) || return 0
    done
    return 1
}

# OBJECT SOURCE FLAG COMMAND...: an object of a text that other instances may have as well; FLAG stands in
# front of its name in COMMAND. The reference hangs on no schedule and seldom on a type, and kernels are the
# same where instances differ in their sizes. What is compiled with the same command for one instance is there
# for all that come after it.
shared() {
    local pool=$objects/shared object=$1 source=$2 flag=$3 key
    shift 3
    mkdir -p "$pool"
    key=$({ echo "${EMU_SANITIZE:-1} ${*//"$dir"/.}"; cat "$source"; } | sha256sum)
    key=$pool/${key%% *}.o
    if [[ ! $key -nt $objects/stamp ]]; then
        "$@" "$source" ${flag:+"$flag"} "$key.$$" >>"$log" 2>&1 && mv "$key.$$" "$key" || return 1
    fi
    # There is nothing to link where another process puts the same object in its place just now.
    ln -f "$key" "$object" 2>/dev/null || ln -f "$key" "$object"
}

reference() { # OBJECT COMMAND...
    local object=$1 source=$dir/${cell}_ref.c
    shift
    if [[ $BACKEND == emulated ]]; then
        shared "$object" "$source" -o "$@" -c
    else
        compile "$object" "$source" "$@" -c "$source" -o "$object"
    fi
}

kernels() {
    if [[ $BACKEND == cuda ]]; then
        # shellcheck disable=SC2086
        bash "$root/scripts/compile_kernels.sh" "$dir/$cell.cu" "$dir/kernels.$as.o" ${KERNEL_FLAGS:-} >>"$log" 2>&1
    elif [[ -n ${EMU_REPORT:-} ]]; then
        bash "$root/tests/emulator/build.sh" cu "$dir/$cell.cu" "$dir/kernels.$BACKEND.o" >>"$log" 2>&1
    else
        shared "$dir/kernels.$BACKEND.o" "$dir/$cell.cu" "" bash "$root/tests/emulator/build.sh" cu
    fi
}

# Of the first instances of specs those whose reference is compiled as users have it: without FULL=1 a third, by
# a checksum of their names, where that takes no several seconds.
is_optimised() {
    [[ -n ${FULL:-} ]] && return 0
    (($(wc -c <"$dir/${cell}_ref.c") < 50000 && $(cksum <<<"$cell" | cut -d ' ' -f 1) % 3 == 0))
}

# On the emulator most sizes are small, and optimising takes longer than it saves. With AS_USERS=1 the reference
# is optimised as users have it for the first instance of a spec (is_optimised).
level=2 reference=2
if [[ $BACKEND == emulated ]]; then
    level=0 reference=0
    is_large && level=1 reference=1
    [[ -n ${AS_USERS:-} && $name == "$(awk -v cell="$cell" '$2 == cell { print $1; exit }' "$list")" ]] &&
        is_optimised && reference=2
fi

build() {
    local symbols= part sanitize= cpu= host
    kernels || return 1
    [[ -n ${COMPILE:-} ]] && return 0
    if [[ -e $dir/${cell}_cpu.c ]]; then
        cpu=$dir/cpu.o
        compile "$cpu" "$dir/${cell}_cpu.c" $cc -std=c11 -O$level -Wall -Wextra -Werror -Wno-unused-function \
            -Wno-tautological-compare -Wno-psabi -ffp-contract=off -fPIC -I"$root/runtime" \
            -I"$root/runtime/cpu" -I"$dir" -c "$dir/${cell}_cpu.c" -o "$cpu" || return 1
    fi
    host=$dir/host${cpu:+.cpu}.o
    compile "$host" "$dir/$cell.c" $cc -std=c11 -O$level -fPIC ${cpu:+-DCELL_CPU} -I"$root/runtime" -I"$dir" \
        -c "$dir/$cell.c" -o "$host" || return 1
    reference "$dir/reference.o" $cc -std=c11 -O$reference -fPIC -DCELL_REAL=double -I"$root/runtime" \
        -I"$dir" || return 1
    local rough=
    for part in forward backward step reserve_bytes real_bytes; do
        rough+=" -D${cell}_ref_$part=ladder_rough_$part"
    done
    # shellcheck disable=SC2086
    reference "$dir/rough.o" $cc -std=c11 -O$level -fPIC -DCELL_REAL=float $rough -include cell_rough.h \
        -I"$root/runtime" -I"$dir" || return 1
    for part in instance ref_forward ref_backward ref_reserve_bytes; do
        symbols+=" -Wl,--defsym=ladder_$part=${cell}_$part"
    done
    [[ $BACKEND == emulated && ${EMU_SANITIZE:-1} != 0 ]] && sanitize=-fsanitize=address,undefined
    # What a debugger reads is half of what linking takes, and only reports name lines.
    [[ $BACKEND == emulated && -z ${EMU_REPORT:-} ]] && sanitize+=" -Wl,-S"
    # shellcheck disable=SC2086
    $CXX $sanitize ${EMU_LINKER:-} "$dir"/{kernels.$as,reference,rough}.o "$host" $cpu $symbols \
        "$objects"/libladder.a $(ls "$objects"/cell_emu*.o 2>/dev/null) "$RUNTIME" $LIBS \
        -lpthread -lm -o "$dir/ladder.$as" >>"$log" 2>&1
}

kept=
if [[ -n ${VERDICTS_COMMON:-} && $BACKEND == emulated && -z ${AS:-}${COMPILE:-} ]]; then
    # shellcheck source=tests/ladder/verdicts.sh
    source "$here/verdicts.sh"
    kept=$(verdict_file "$dir" "$cell $sizes $level $reference ${LADDER_DECIDED:-1} ${EMU_SANITIZE:-1}")
    if [[ -s $kept ]]; then
        touch -c "$kept"
        echo "$name: from the cache: $(<"$kept")"
        exit 0
    fi
fi
: >"$log"
if ! build; then
    grep -E 'error|undefined' "$log" | head -n 5
    echo "$name: does not build: 0 passed, 1 failed, 0 skipped"
    exit 1
fi
if [[ -n ${COMPILE:-} ]]; then
    echo "$name: compiled"
    exit 0
fi
[[ -z ${AS:-} ]] || exit 0
times >"$dir/took"                    # of its processes so far: user and system, in the second line
# shellcheck disable=SC2086
LADDER_DECIDED=${LADDER_DECIDED:-1} ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1 \
    CELL_BACKEND=$BACKEND CELL_EMU_TRACES=${EMU_REPORT:-0} timeout "${LIMIT:-300}" \
    "$dir/ladder.$BACKEND" $sizes >"$log" 2>&1
rc=$?
times >>"$dir/took"
last=$(tail -n 1 "$log")
if [[ $last =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
    grep '^FAIL' "$log" | head -n "${LINES_PER_INSTANCE:-6}"
    echo "$name: ${BASH_REMATCH[1]} passed, ${BASH_REMATCH[2]} failed, ${BASH_REMATCH[4]:-0} skipped"
    [[ $rc -eq 0 ]] || exit 1
    [[ -z $kept || ${BASH_REMATCH[2]} != 0 ]] || keep_verdict "$kept" "${BASH_REMATCH[1]}" "${BASH_REMATCH[4]:-0}"
else
    # A report takes kernels that are compiled for it (tests/emulator/build.sh).
    if [[ $BACKEND == emulated && -z ${EMU_REPORT:-} ]] && { ((rc == 132)) || grep -q AddressSanitizer "$log"; }; then
        rm -f "$dir/kernels.$BACKEND.o"
        said=$(EMU_REPORT=1 bash "$0" "$1" "$2" "$3")
        rm -f "$dir/kernels.$BACKEND.o"
        [[ $(tail -n 1 <<<"$said") != *", 0 failed, "* ]] ||
            said="$name: ended with exit code $rc, with reports it passes: 0 passed, 1 failed, 0 skipped"
        echo "$said"
        exit 1
    fi
    grep -v '^ *$' "$log" | head -n 12
    echo "$name: ended with exit code $rc: 0 passed, 1 failed, 0 skipped"
    exit 1
fi
