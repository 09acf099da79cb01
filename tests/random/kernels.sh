#!/bin/bash
# Random cells through the kernels: each is compiled with the schedule that the planner takes and with
# `steps`, in double, and run on the emulator against its reference, over the sizes and identities of tests/ladder.
# Half as many that have a rounded definition, the first such cells from the same seed on, are compiled with the planner's
# schedule in bf16 or, those of odd seeds, in f16. In: N cells (6) from SEED (1), BUILD, CELLC.
# Out: what failed, and the sum as the last line, in which values that hang on roundings at all sizes count as skipped.
set -u
# shellcheck source=tests/ladder/emulated.sh
source "$(dirname "$0")/../ladder/emulated.sh"
n=${N:-6} seed=${SEED:-1}
# A cell that was drawn may have a value that hangs on roundings at all of its sizes.
export LADDER_DECIDED=0
if ! sanitizes; then
    echo "random kernels: no C++ compiler with AddressSanitizer"
    skipped=1
    finish
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# One schedule of the cell of seed $1 in one type.
instance() {
    local i=$1 schedule=$2 type=$3
    local name=seed${i}_${schedule}_$type
    mapfile -t settings < <(head -n 1 "$out/random.cell" | grep -o -- '--[a-z]*')
    if (ulimit -v 4000000; exec timeout 60 "$CELLC" emit "$out/random.cell" --schedule "$schedule" --dtype "$type" "${settings[@]}" \
        -o "$out/$name") >/dev/null 2>"$out/err"; then
        echo "$name random 1,1,7,5 2,3,3,4 1,6,1,2" >>"$out/list"
    elif grep -q 'has no state: only --schedule map' "$out/err"; then
        :                         # a cell without a state has no steps
    else
        echo "$name: cellc emit fails: $(head -n 1 "$out/err")"
        failed=$((failed + 1))
    fi
}

# The cell of seed $1; false where it has none: no draw has values that can be checked, or, which is a failure, anything else.
draw() {
    "$CELLC" random --seed "$1" >"$out/random.cell" 2>"$out/err" && return
    grep -q 'no draw can be checked' "$out/err" || { echo "seed $1: $(head -n 1 "$out/err")"; failed=$((failed + 1)); }
    false
}

for ((i = seed; i < seed + n; i++)); do
    draw "$i" || continue
    instance "$i" auto f64
    instance "$i" steps f64
done
rounded=0
for ((i = seed; rounded < (n + 1) / 2 && i < seed + 1000; i++)); do
    draw "$i" || continue
    if grep -q ': dtype = ' "$out/random.cell"; then
        instance "$i" auto "$([[ $((i % 2)) == 0 ]] && echo bf16 || echo f16)"
        rounded=$((rounded + 1))
    fi
done
emulate "$out"
echo "random kernels: $n cells from seed $seed, $rounded with rounded definitions"
finish
