#!/bin/bash
# Complex functions over the whole range of f32 and f64, with numbers below the smallest normal one: the reference C of
# complex.cell against the table complex.txt, which table.py made. In: BUILD, CC. The last line is the sum.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
cc=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

build_one() { # type, C's name of it
    local names=
    for part in forward backward step reserve_bytes real_bytes; do
        names+=" -Dcomplex_range_ref_$part=$1_$part"
    done
    # shellcheck disable=SC2086
    $cc -std=c11 -O0 -ffp-contract=off -DCELL_REAL="$2" $names -c "$work/complex_range_ref.c" -o "$work/$1.o"
}

if ! { "$build/cellc" emit "$here/complex.cell" -o "$work" >"$work/log" && build_one f32 float && build_one f64 double &&
    $cc -std=c11 -Wall -Wextra -Werror "$here/complex.c" "$work"/f32.o "$work"/f64.o -lm -o "$work/complex"; }; then
    cat "$work/log"
    echo "0 passed, 1 failed"
    exit 1
fi
"$work/complex" "$here/complex.txt"
