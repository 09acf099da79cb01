#!/bin/bash
# docs/adding-a-schedule.md: the schedule that the page builds is compiled as it stands there, with the page's line of
# the table, and linked into a compiler. Its kernels go through the ladder on the emulator, forward and backward; and
# what it refuses is said with the reason that the page gives.
set -u
cd "$(dirname "$0")/../.."
# shellcheck source=tests/ladder/emulated.sh
source tests/ladder/emulated.sh
page=docs/adding-a-schedule.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The page's code: each block of C that begins where the one before ends.
mkdir -p "$work/gen/schedule/element"
awk '/^```c$/ { code = 1; next } /^```$/ { code = 0 } code' "$page" >"$work/gen/schedule/element/element.c"
lines=$(wc -l <"$work/gen/schedule/element/element.c")
# Its name, twice in the table.
sed -E 's/chunk_schedule, attention_schedule;/chunk_schedule, attention_schedule, element_schedule;/; s/(&attention_schedule), NULL/\1, \&element_schedule, NULL/' \
    gen/schedule/schedules.c >"$work/gen/schedule/schedules.c"

flags=
[[ -n ${SAN:-} ]] && flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
for file in schedules element/element; do
    # shellcheck disable=SC2086
    "$CC" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -O1 $flags ${COVER:-} -Igen -Igen/schedule -c \
        -o "$work/${file##*/}.o" "$work/gen/schedule/$file.c" || { echo "0 passed, 1 failed"; exit 1; }
done
# shellcheck disable=SC2086
"$CC" $flags ${COVER:-} -rdynamic -o "$work/cellc" "$build/gen/main.o" "$work/schedules.o" "$work/element.o" \
    "$build/libcellc.a" -lm -ldl -lpthread || { echo "0 passed, 1 failed"; exit 1; }
passed=1
CELLC=$work/cellc

# shellcheck source=tests/same.sh
source tests/same.sh
((lines >= 120 && lines <= 180))
same "the page's code has about 150 lines" 0 $?

refused() { # SPEC REASON
    same "$1" "$2" "$("$CELLC" explain "$1" --schedule element 2>&1 >/dev/null |
        sed -nE 's/.*--schedule element cannot take cell [a-z0-9_]+: (.*) \(line [0-9]+\)/\1/p' | head -n 1)"
    grep -qF "$2" "$page"
    same "the page has: $2" 0 $?
}
refused specs/lstm.cell "its step sums, or multiplies matrices"
cat >"$work/turned.cell" <<'END'
cell turned {
    dim H;
    input x[H];
    state h[H];
    output y[H];
    h'[i] = tanh(x[i] + h[H-1-i]);
    y[i] = h'[i];
}
END
refused "$work/turned.cell" "an element reads other elements of a step"

# The step's loop is gone, and one kernel is there for each direction.
"$CELLC" emit specs/indrnn.cell --schedule element -o "$work/out" >/dev/null 2>&1
same "kernels that walk" "indrnn_bwd_elements indrnn_fwd_elements" \
    "$(grep -oE '^indrnn_..._elements' "$work/out/indrnn.cu" | sort | xargs)"
same "loops of the launch plan" 0 "$(grep -c '"steps", .kind = CELL_OP_LOOP' "$work/out/indrnn.c")"

cat >"$work/matrix.sh" <<'END'
echo "indrnn_element_f32 indrnn --schedule element --dtype f32 | 2,5,3,130 1,1,2,4 3,4,1,1"
echo "hgrn_element_bf16 hgrn --schedule element --dtype bf16 --reverse | 2,5,70 1,17,5"
END
if sanitizes; then
    MATRIX=$work/matrix.sh ONLY='' bash "$ladder/prepare.sh" "$work/ladder" || failed=$((failed + 1))
    emulate "$work/ladder"
else
    echo "adding: no C++ compiler with AddressSanitizer, so no kernels"
    skipped=1
fi
finish
