#!/bin/bash
# Constructs that no shipped spec uses, all the way: every cell here goes through `cellc check`, and its kernels
# through the ladder on the emulator, as its first line says (matrix.sh). In: BUILD, CELLC, CC, CXX; ONLY is a regular
# expression on the names of cells. KEEP: a directory where the instances are left.
# Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/ladder/emulated.sh
source "$here/../ladder/emulated.sh"
out=${KEEP:-}
if [[ -n $out ]]; then
    mkdir -p "$out"
else
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
kernels=1
if ! sanitizes; then
    echo "constructs: no C++ compiler with AddressSanitizer, so no kernels"
    kernels= skipped=1
fi
for f in "$here"/*.cell; do
    name=$(basename "$f" .cell)
    [[ $name =~ ${ONLY:-.} ]] || continue
    if said=$("$CELLC" check "$f" --import-dir "$root/specs" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$name:"
        grep -v '^largest' <<<"$said" | head -n 10 | sed 's/^/    /'
    fi
done
# A wrong adjoint must be seen: each of these has a wrong gradient of x, which `cellc check` reports.
for f in "$here"/wrong/*.cell; do
    name=$(basename "$f" .cell)
    [[ $name =~ ${ONLY:-.} ]] || continue
    if "$CELLC" check "$f" >"$out/said" 2>&1; then
        failed=$((failed + 1))
        echo "wrong/$name: cellc check finds nothing"
    elif ! grep -q 'the gradient of x fails the dot-product test' "$out/said"; then
        failed=$((failed + 1))
        echo "wrong/$name:" && head -n 5 "$out/said" | sed 's/^/    /'
    else
        passed=$((passed + 1))
    fi
done
# All types where cells are asked for by name; else those that cover.awk and tests/ladder/chosen take.
[[ -n ${FULL:-}${ONLY:-} ]] || export COVER=1
[[ -n ${FULL:-}${ONLY:-}${TYPES:-} ]] || export CHOSEN=${CHOSEN-constructs}
CELLS=${ONLY:-} ONLY= MATRIX=$here/matrix.sh bash "$ladder/prepare.sh" "$out" >"$out/prepare.log"
failed=$((failed + $(grep -c '^FAIL' "$out/prepare.log")))
cat "$out/prepare.log"
if [[ -n $kernels && -s $out/list ]]; then
    emulate "$out"
fi
finish
