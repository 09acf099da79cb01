#!/bin/bash
# Constructs that no shipped spec uses, all the way: every cell here goes through `cellc check`, and its kernels
# through the ladder on the emulator. The first line of a cell says with which schedules, sizes and types (f64 and
# f32), and perhaps with what options: `// kernels: SCHEDULE... | B,T,DIMS... | TYPE... | OPTION...`. In: BUILD, CELLC, CC, CXX; ONLY is a regular expression on the names of cells.
# Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/ladder/emulated.sh
source "$here/../ladder/emulated.sh"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
kernels=1
if ! sanitizes; then
    echo "constructs: no C++ compiler with AddressSanitizer, so no kernels"
    kernels= skipped=1
fi
: >"$out/list"
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
    read -r line <"$f"
    IFS='|' read -r schedules sizes types options <<<"${line#// kernels: }"
    for schedule in $schedules; do
        for type in ${types:-f64 f32}; do
            at=${name}_${schedule}_$type
            # shellcheck disable=SC2086
            if timeout 60 "$CELLC" emit "$f" --import-dir "$root/specs" --schedule "$schedule" --dtype $type $options -o "$out/$at" \
                >/dev/null 2>"$out/err"; then
                echo "$at $name $sizes" >>"$out/list"
            else
                failed=$((failed + 1))
                echo "$at: cellc emit fails:" && head -n 3 "$out/err" | sed 's/^/    /'
            fi
        done
    done
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
if [[ -n $kernels && -s $out/list ]]; then
    emulate "$out"
fi
finish
