#!/bin/bash
# Random cells through the kernels: each is compiled with the schedule that the planner takes and with
# `steps`, in double, and run on the emulator against its reference, over the sizes and identities of
# tests/ladder. In: N cells (6) from SEED (1), BUILD, CELLC. Out: what failed, and the sum as the last line.
set -u
# shellcheck source=tests/ladder/emulated.sh
source "$(dirname "$0")/../ladder/emulated.sh"
n=${N:-6} seed=${SEED:-1}
if ! sanitizes; then
    echo "random kernels: no C++ compiler with AddressSanitizer"
    skipped=1
    finish
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for ((i = seed; i < seed + n; i++)); do
    for schedule in auto steps; do
        name=seed${i}_$schedule
        "$CELLC" random --seed "$i" >"$out/random.cell"
        mapfile -t settings < <(head -n 1 "$out/random.cell" | grep -o -- '--[a-z]*')
        if (ulimit -v 4000000; exec timeout 60 "$CELLC" emit "$out/random.cell" --schedule $schedule --dtype f64 "${settings[@]}" \
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
emulate "$out"
echo "random kernels: $n cells from seed $seed"
finish
