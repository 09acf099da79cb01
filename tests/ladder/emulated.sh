# emulated.sh: what tests share that run kernels on the emulator; sourced. In: BUILD, CELLC, CC, CXX. Sets
# root, ladder, build, and exports CELLC, CC and CXX with absolute paths; emulate adds to passed, failed and
# skipped, and to kept what of passed comes from the cache of verdicts. A suite that needs the objects of all
# instances sets VERDICTS=off.
ladder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$ladder/../.." && pwd)
# shellcheck source=tests/slots.sh
source "$root/tests/slots.sh"
# shellcheck source=tests/ladder/verdicts.sh
source "$ladder/verdicts.sh"
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
export CELLC=${CELLC:-$build/cellc}
[[ $CELLC == /* ]] || export CELLC=$root/$CELLC
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)} CC=${CC:-cc}
passed=0 failed=0 skipped=0 kept=0

sanitizes() { # the C++ compiler has AddressSanitizer
    echo 'int main() { return 0; }' | ${CXX:-false} -x c++ -fsanitize=address,undefined -o /dev/null - 2>/dev/null
}

# DIR: builds and runs the instances of DIR/list, lines "NAME CELL SIZES...", each emitted to DIR/NAME; what
# is still fresh there is not built again. Says which failed. PREPARED=1: nothing is built.
emulate() {
    local dir=$1 newest mute p f s
    [[ -z ${PREPARED:-} ]] || return 0
    mkdir -p "$dir/common"
    export EMU_SHARED=$build/tests/emulator_lib
    bash "$root/tests/emulator/build.sh" lib "$dir/common" || { failed=$((failed + 1)); return 1; }
    newest=$(ls -t "$root"/runtime/*.h "$root"/runtime/device/* "$root"/tests/emulator/* | head -n 1)
    export EMU_HEADER=$dir/common/header
    # prepare.sh says which instances go without AddressSanitizer.
    if [[ -s $dir/plain ]]; then
        EMU_SANITIZE=0 bash "$root/tests/emulator/build.sh" lib "$dir/common/plain" ||
            { failed=$((failed + 1)); return 1; }
    fi
    [[ $dir/common/stamp -nt $newest ]] || touch "$dir/common/stamp"
    # What every instance is linked with.
    cmp -s "$build/libladder.a" "$dir/common/libladder.a" || cp "$build/libladder.a" "$dir/common/"
    EMU_LINKER=$(bash "$root/tests/emulator/build.sh" linker)
    export EMU_LINKER BACKEND=emulated RUNTIME=$build/libcell.a
    LIBS=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
    export LIBS
    open_verdicts "$dir/common"
    cut -d ' ' -f 1 "$dir/list" |
        xargs_slots -I '{}' -- bash "$ladder/one.sh" "$dir" '{}' "$dir/common" >"$dir/results"
    grep -v ', 0 failed, ' "$dir/results"
    read -r p f s < <(awk -v failed=0 -f "$ladder/sum.awk" "$dir/results")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    kept=$((kept + $(awk '/: from the cache: / { n += $(NF - 5) } END { print n + 0 }' "$dir/results")))
    mute=$(($(wc -l <"$dir/list") - $(grep -cE ': [0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$dir/results")))
    ((mute == 0)) || { echo "$mute instances gave no result"; failed=$((failed + mute)); }
}

# Prints the sum as the last line, and ends.
finish() {
    ((kept == 0)) || echo "$kept from the cache"
    printf '%d passed, %d failed' "$passed" "$failed"
    ((skipped)) && printf ', %d skipped' "$skipped"
    echo
    exit $((failed > 0))
}
