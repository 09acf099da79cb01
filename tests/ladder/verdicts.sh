# verdicts.sh: a cache of what instances of the ladder came to on the emulator; sourced. A verdict is kept
# under a hash of all that it follows from: the emitted texts, the sizes, the objects that every program is
# linked with, the headers that kernels are compiled with, compilers and their flags, libraries, the
# processor, and these scripts. Only what passed is kept. In: VERDICTS, a folder, or off; without it
# ${XDG_CACHE_HOME:-~/.cache}/cellc/verdicts, and off where FULL is set: with both, a run of everything that
# was stopped goes on where it was. shellcheck shell=bash

# DIR, the common directory of an emulation: sets VERDICTS_AT, the folder, and VERDICTS_COMMON, the hash of
# what all instances share. Both stay empty where verdicts are not kept. Removes verdicts that were not used
# for 30 days, by the form of their names: other files may be in a folder that VERDICTS names.
open_verdicts() {
    local common=$1 digit='[0-9a-f]' rest home=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    export VERDICTS_AT= VERDICTS_COMMON=
    [[ ${VERDICTS:-${FULL:+off}} != off && -z ${EMU_REPORT:-} ]] || return 0
    [[ -n ${VERDICTS:-}$home ]] && command -v sha256sum >/dev/null || return 0
    VERDICTS_AT=${VERDICTS:-$home/cellc/verdicts}
    mkdir -p "$VERDICTS_AT" 2>/dev/null && [[ -w $VERDICTS_AT ]] || { VERDICTS_AT=; return 0; }
    rest=$(printf "$digit%.0s" {1..62})
    find "$VERDICTS_AT" -mindepth 2 -maxdepth 2 -type f -path "*/$digit$digit/$rest*" -mtime +30 -delete
    VERDICTS_COMMON=$(say_common "$common" | sha256sum | cut -d ' ' -f 1)
}

# Without what a debugger reads, which names the directory of the build.
say_objects() {
    local file copy
    copy=$(mktemp)
    for file in "$@"; do
        strip --strip-debug -o "$copy" "$file" 2>/dev/null || cp "$file" "$copy"
        sha256sum <"$copy"
    done
    rm -f "$copy"
}

say_common() {
    local common=$1 library file
    "$CC" --version
    "$CXX" --version
    "$CXX" -Wl,--version 2>/dev/null | head -n 1
    echo "$CC $CXX ${EMU_LINKER:-} ${CFLAGS:-} ${SAN:-} $LIBS"
    for library in $(grep -oE '(^| )-l[^ ]+' <<<"$LIBS" | sed 's/ *-l\(.*\)/lib\1.so/') libasan.so libubsan.so \
        libstdc++.so libm.so.6 libc.so.6; do
        file=$(readlink -f "$("$CXX" -print-file-name="$library")")
        [[ ! -e $file ]] || stat -c '%n %s %Y' "$file"
    done
    grep -m 1 'model name' /proc/cpuinfo 2>/dev/null || uname -mr
    env | grep -E '^(CELL_|LADDER_|ASAN_|UBSAN_|EMU_SANITIZE|FULL=|LIMIT|OMP_|OPENBLAS_)' | LC_ALL=C sort
    say_objects "$common"/libladder.a "$common"/cell_emu*.o "$RUNTIME"
    (cd "$root" && sha256sum runtime/*.h runtime/cpu/*.h runtime/device/* tests/emulator/cell_emu*.h \
        tests/emulator/build.sh ladder/*.h tests/ladder/{emulated,one,verdicts}.sh)
}

# The file of an instance's verdict: DIR with its emitted texts, and words that its programs depend on.
verdict_file() {
    local dir=$1 key
    shift
    key=$({ echo "$VERDICTS_COMMON $*"; cd "$dir" && sha256sum -- *.c *.cu *.h *.json; } | sha256sum)
    echo "$VERDICTS_AT/${key:0:2}/${key:2:62}"
}

# FILE PASSED SKIPPED: keeps a verdict without failures; written under another name first, as others may read
# the file.
keep_verdict() {
    mkdir -p "${1%/*}" && echo "$2 passed, 0 failed, $3 skipped" >"$1.$$" && mv "$1.$$" "$1"
}
