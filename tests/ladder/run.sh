#!/bin/bash
# The ladder: every schedule of every spec in f32 and another type in turn (FULL=1: all types, and more sizes)
# against the reference in double, on the emulator under AddressSanitizer, and, where there are a GPU and
# nvcc, on the GPU. In: BUILD, CELLC, CC, CXX, NVCC; ONLY is a regular expression on the names of instances.
# Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
export CELLC=${CELLC:-$build/cellc}
[[ $CELLC == /* ]] || export CELLC=$root/$CELLC
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)} CC=${CC:-cc}
out=$build/tests/ladder
mkdir -p "$out/common"

if ! echo 'int main() { return 0; }' |
    ${CXX:-false} -x c++ -fsanitize=address,undefined -o "$out/probe" - 2>/dev/null; then
    echo "ladder: no C++ compiler with AddressSanitizer (apt-get install g++ brings one)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
bash "$here/prepare.sh" "$out" >"$out/prepare.log"
unprepared=$(grep -c '^FAIL' "$out/prepare.log")
cat "$out/prepare.log"
bash "$root/tests/emulator/build.sh" lib "$out/common" || { echo "0 passed, 1 failed"; exit 1; }
newest=$(ls -t "$root"/runtime/*.h "$root"/runtime/device/* | head -n 1)
[[ $out/common/stamp -nt $newest ]] || touch "$out/common/stamp"
# What every instance is linked with.
cmp -s "$build/libladder.a" "$out/common/libladder.a" || cp "$build/libladder.a" "$out/common/"

export BACKEND=emulated RUNTIME=$build/libcell.a
LIBS=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
export LIBS
cut -d ' ' -f 1 "$out/list" |
    xargs -P "${LADDER_JOBS:-2}" -I '{}' bash "$here/one.sh" "$out" '{}' "$out/common" >"$out/results"
grep -v ', 0 failed, ' "$out/results"
read -r passed failed skipped < <(awk -v failed="$unprepared" -f "$here/sum.awk" "$out/results")
if [[ -n ${NVCC:-} ]] && nvidia-smi -L >/dev/null 2>&1; then
    bash "$here/gpu.sh" "$out" >"$out/gpu.log"
    cat "$out/gpu.log"
    read -r p f s < <(tail -n 1 "$out/gpu.log" | awk '{ print $1 + 0, $3 + 0, $5 + 0 }')
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    ((p > 0)) || failed=$((failed + 1))
else
    echo "the ladder on a GPU: skipped, there is none or no nvcc"
    skipped=$((skipped + 1))
fi
printf '%d passed, %d failed' "$passed" "$failed"
((skipped)) && printf ', %d skipped' "$skipped"
echo
exit $((failed > 0))
