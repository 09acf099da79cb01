#!/bin/bash
# Constructs that no shipped spec uses, all the way: every cell here goes through `cellc check`, and its kernels
# through the ladder on the emulator. The first line of a cell says with which schedules, sizes and types (f64 and
# f32): `// kernels: SCHEDULE... | B,T,DIMS... | TYPE...`. In: BUILD, CELLC, CC, CXX; ONLY is a regular expression on the names of cells.
# Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
ladder=$root/tests/ladder
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
cellc=${CELLC:-$build/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)} CC=${CC:-cc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0
kernels=1
if ! echo 'int main() { return 0; }' | ${CXX:-false} -x c++ -fsanitize=address,undefined -o /dev/null - 2>/dev/null; then
    echo "constructs: no C++ compiler with AddressSanitizer, so no kernels"
    kernels= skipped=1
fi
: >"$out/list"
for f in "$here"/*.cell; do
    name=$(basename "$f" .cell)
    [[ $name =~ ${ONLY:-.} ]] || continue
    if said=$("$cellc" check "$f" --import-dir "$root/specs" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$name:"
        grep -v '^largest' <<<"$said" | head -n 10 | sed 's/^/    /'
    fi
    read -r line <"$f"
    IFS='|' read -r schedules sizes types <<<"${line#// kernels: }"
    for schedule in $schedules; do
        for type in ${types:-f64 f32}; do
            at=${name}_${schedule}_$type
            if "$cellc" emit "$f" --import-dir "$root/specs" --schedule "$schedule" --dtype $type -o "$out/$at" \
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
    if "$cellc" check "$f" >"$out/said" 2>&1; then
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
    mkdir "$out/common"
    bash "$root/tests/emulator/build.sh" lib "$out/common" || exit 1
    cp "$build/libladder.a" "$out/common/"    # what every instance is linked with
    export BACKEND=emulated RUNTIME=$build/libcell.a
    LIBS=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
    export LIBS
    cut -d ' ' -f 1 "$out/list" |
        xargs -P "${JOBS:-2}" -I '{}' bash "$ladder/one.sh" "$out" '{}' "$out/common" >"$out/results"
    grep -v ', 0 failed, ' "$out/results"
    read -r p f s < <(awk -v failed=0 -f "$ladder/sum.awk" "$out/results")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
fi
echo "$passed passed, $failed failed, $skipped skipped"
exit $((failed > 0))
