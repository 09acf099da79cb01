#!/bin/bash
# The kernels of every spec, and of every value of its options, on the emulator: tests/ladder/collection.sh at a few
# small sizes, in the schedule that the planner takes and in double, without AddressSanitizer. The
# emulator itself still sees races, missing barriers and reads of what was never written. It is run by hand, since it
# takes ten minutes. In: BUILD, CELLC, CXX; ONLY
# is a regular expression on the names of instances. Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
ladder=$root/tests/ladder
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
export CELLC=${CELLC:-$build/cellc}
[[ $CELLC == /* ]] || export CELLC=$root/$CELLC
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)} CC=${CC:-cc}
if [[ -z $CXX || -n ${SAN:-} ]]; then
    echo "the kernels of specs: $([[ -z $CXX ]] && echo "no C++ compiler" || echo "not with sanitizers")"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
out=$build/tests/specs/kernels
mkdir -p "$out/common"
export EMU_SANITIZE=0
bash "$root/tests/emulator/build.sh" lib "$out/common" || { echo "0 passed, 1 failed"; exit 1; }
TYPES=${TYPES:-f64} MATRIX=$ladder/collection.sh bash "$ladder/prepare.sh" "$out" >"$out/prepare.log"
unprepared=$(grep -c '^FAIL' "$out/prepare.log")
cat "$out/prepare.log"
newest=$(ls -t "$root"/runtime/*.h "$root"/runtime/device/* "$root"/tests/emulator/* | head -n 1)
[[ $out/common/stamp -nt $newest ]] || touch "$out/common/stamp"
cmp -s "$build/libladder.a" "$out/common/libladder.a" || cp "$build/libladder.a" "$out/common/"

export BACKEND=emulated RUNTIME=$build/libcell.a
LIBS=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
export LIBS
cut -d ' ' -f 1 "$out/list" |
    xargs -P "${LADDER_JOBS:-2}" -I '{}' bash "$ladder/one.sh" "$out" '{}' "$out/common" >"$out/results"
grep -v ', 0 failed, ' "$out/results"
read -r passed failed skipped < <(awk -v failed="$unprepared" -f "$ladder/sum.awk" "$out/results")
echo "emulated: $(wc -l <"$out/results") instances"
echo "$passed passed, $failed failed, $skipped skipped"
exit $((failed > 0))
