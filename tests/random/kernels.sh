#!/bin/bash
# Random cells through the kernels: each is compiled with the schedule that the planner takes and with
# `steps`, in double, and run on the emulator against its reference, over the sizes and identities of
# tests/ladder. In: N cells (6) from SEED (1), BUILD, CELLC. Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
ladder=$root/tests/ladder
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
cellc=${CELLC:-$build/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
n=${N:-6} seed=${SEED:-1}
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)} CC=${CC:-cc}
if ! echo 'int main() { return 0; }' | ${CXX:-false} -x c++ -fsanitize=address,undefined -o /dev/null - 2>/dev/null; then
    echo "random kernels: no C++ compiler with AddressSanitizer"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir "$out/common"
bash "$root/tests/emulator/build.sh" lib "$out/common" || exit 1
cp "$build/libladder.a" "$out/common/" || exit 1
failed=0
for ((i = seed; i < seed + n; i++)); do
    for schedule in auto steps; do
        name=seed${i}_$schedule
        "$cellc" random --seed "$i" >"$out/random.cell"
        if (ulimit -v 4000000; exec timeout 60 "$cellc" emit "$out/random.cell" --schedule $schedule --dtype f64 \
            -o "$out/$name") >/dev/null 2>"$out/err"; then
            echo "$name random 1,1,7,5 2,3,3,4 1,6,1,2" >>"$out/list"
        elif grep -q 'has no state: only --schedule map' "$out/err"; then
            :                     # a cell without a state has no steps
        else
            echo "$name: cellc emit fails: $(head -n 1 "$out/err")"
            failed=$((failed + 1))
        fi
    done
done
export BACKEND=emulated RUNTIME=$build/libcell.a
LIBS=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
export LIBS
cut -d ' ' -f 1 "$out/list" | xargs -P "${JOBS:-2}" -I '{}' bash "$ladder/one.sh" "$out" '{}' "$out/common" >"$out/results"
grep -v ', 0 failed, ' "$out/results"
read -r p f s < <(awk -v failed="$failed" -f "$ladder/sum.awk" "$out/results")
echo "random kernels: $n cells from seed $seed"
echo "$p passed, $f failed, $s skipped"
exit $((f > 0))
