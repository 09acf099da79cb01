#!/bin/bash
# The cache of the ladder's verdicts (tests/ladder/verdicts.sh), in a copy of what it is made from: a verdict
# is taken from it while nothing has changed; a fault planted in an emitted text, the emulator, the device
# library, the runtime or the ladder is seen each time, and gone with the fault; VERDICTS=off, and FULL
# without a folder, take nothing from it, and FULL with one nothing that was made without FULL; of a folder
# that has other files only verdicts are removed with age. In: BUILD, CELLC, CC, CXX, SAN. The last line is
# the sum.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/ladder/emulated.sh
source "$here/../ladder/emulated.sh"
if ! sanitizes || [[ -n ${SAN:-} ]]; then
    [[ -n ${SAN:-} ]] && why="not with sanitizers" || why="no C++ compiler with AddressSanitizer"
    echo "verdicts: $why"
    skipped=1
    finish
fi
work=$build/tests/verdicts
rm -rf "$work"
copy=$work/copy out=$work/out
mkdir -p "$copy/tests" "$copy/build" "$out"
cp -a "$root"/{Makefile,runtime,ladder,specs} "$copy/"
cp -a "$root"/tests/{ladder,emulator,slots.sh} "$copy/tests/"
cp -a "$build"/{config.mk,runtime,libcell.a,ladder,libladder.a} "$copy/build/"
unset POOL FULL MAKEFLAGS MAKEOVERRIDES MAKELEVEL
export EMU_SANITIZE=0 # no fault here is one that AddressSanitizer sees

# WANTED HOW VARIABLES...: an instance on the emulator of the copy. Its verdict must be made ("passed",
# "failed") or be there ("kept").
comes_to() {
    local wanted=$1 how=$2 said got
    shift 2
    if ! make -s -C "$copy" BUILD=build build/libladder.a build/libcell.a >"$work/make.log" 2>&1; then
        echo "FAIL $how: the copy does not build"
        sed 's/^/    /' "$work/make.log" | head -n 5
        failed=$((failed + 1))
        return
    fi
    said=$(cd "$copy" && env VERDICTS="$work/kept" BUILD=build "$@" bash -c 'source tests/ladder/emulated.sh
        emulate "$0"
        echo "$passed $failed $kept"' "$out" 2>&1)
    got=$(tail -n 1 <<<"$said" | awk '
        $2 > 0 { print "failed"; next }
        { print ($3 > 0 && $3 == $1 ? "kept" : $1 > 0 && $3 == 0 ? "passed" : "nothing") }')
    if [[ $got == "$wanted" ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $how: $got where $wanted is right"
        sed 's/^/    /' <<<"$said" | head -n 5
    fi
}

# WHAT FILE SED: a fault is seen, and leaves what was kept before. What was built without it comes back with
# it, times and all, so that it is not built again.
planted() {
    local what=$1 file=$2
    rm -rf "$work"/*.sound
    cp -a "$file" "$work/sound"
    cp -a "$out" "$work/out.sound"
    cp -a "$copy/build" "$work/build.sound"
    sed -i "$3" "$file"
    if cmp -s "$file" "$work/sound"; then
        echo "FAIL $what: nothing is planted by $3"
        failed=$((failed + 1))
        return
    fi
    comes_to failed "$what"
    rm -rf "$out" "$copy/build"
    mv "$work/out.sound" "$out"
    mv "$work/build.sound" "$copy/build"
    cp -a "$work/sound" "$file"
    comes_to kept "$what, mended"
}

# A folder of verdicts in which a user has files of this age, too.
mkdir -p "$work/kept/ab"
verdict=$work/kept/ab/$(printf '0%.0s' {1..62})
others=("$work/kept/letter.txt" "$work/kept/ab/letter.txt")
touch -d '40 days ago' "$verdict" "${others[@]}"

"$CELLC" emit "$root/specs/layernorm.cell" --schedule map -o "$out/layernorm" >/dev/null
echo "layernorm layernorm 2,3,9 3,5,70" >"$out/list"
comes_to passed "the first time"
if [[ ! -e $verdict && -e ${others[0]} && -e ${others[1]} ]]; then
    passed=$((passed + 1))
else
    echo "FAIL of the folder of verdicts those of 40 days are removed, and nothing else"
    failed=$((failed + 1))
fi
comes_to kept "the second time"
comes_to passed "VERDICTS=off" VERDICTS=off
comes_to passed "FULL=1" FULL=1
comes_to kept "FULL=1, the second time" FULL=1
for time in first second; do
    comes_to passed "FULL=1 without a folder, the $time time" FULL=1 VERDICTS= XDG_CACHE_HOME="$work/home"
done
comes_to passed "another seed of the emulator" CELL_EMU_SEED=3
echo "layernorm layernorm 2,3,9 3,5,71" >"$out/list"
comes_to passed "another size"
echo "layernorm layernorm 2,3,9 3,5,70" >"$out/list"
comes_to kept "the first sizes again"
planted "an emitted kernel" "$out/layernorm/layernorm.cu" 's/= cell_sqrt(/= 2 * cell_sqrt(/'
sed -i 's/= cell_sqrt(/= 2 * cell_sqrt(/' "$out/layernorm/layernorm.cu"
comes_to failed "a failure, once more"
cp "$work/sound" "$out/layernorm/layernorm.cu"
planted "an emitted plan" "$out/layernorm/layernorm.c" 's/CELL_X_CEILDIV/CELL_X_MIN/'
planted "an emitted reference" "$out/layernorm/layernorm_ref.c" 's/sqrt(va/1 + sqrt(va/'
planted "the emulator" "$copy/tests/emulator/cell_emu_sync.cc" 's/(l ^ operand) &/(l ^ operand ^ 1) \&/'
planted "what kernels see of the emulator" "$copy/tests/emulator/cell_emu_device.h" \
    's/CELL_EMU_XOR, v, mask/CELL_EMU_XOR, v, mask ^ 1/'
planted "the device library" "$copy/runtime/device/cell_device_reduce.cuh" \
    '0,/cell_add(a, b)/s//cell_add(a, 2 * b)/'
planted "the runtime" "$copy/runtime/expr.c" '/^    case CELL_X_MAX:/,/break/s/a > b/a < b/'
planted "the ladder" "$copy/ladder/judge.c" 's/total.failed += !ok;/total.failed += ok;/'
finish
