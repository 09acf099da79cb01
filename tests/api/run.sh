#!/bin/bash
# Attacks the C interface as a careless caller would: instances of three schedules, their kernels in the
# emulator and their plain C, in one program (api.c) under AddressSanitizer. In: BUILD, CELLC, CC, CXX. Out: what
# failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
cellc=${CELLC:-$build/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)} CC=${CC:-cc}
out=$build/tests/api
mkdir -p "$out"
if ! echo 'int main() { return 0; }' | ${CXX:-false} -x c++ -fsanitize=address,undefined -o "$out/probe" - 2>/dev/null; then
    echo "api: no C++ compiler with AddressSanitizer (apt-get install g++ brings one)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
fail() { echo "$1"; echo "0 passed, 1 failed"; exit 1; }

bash "$root/tests/emulator/build.sh" lib "$out" || fail "the emulator does not build"
objects=()
instance() { # SPEC OPTIONS...
    local spec=$1 name
    shift
    name=$(basename "$spec" .cell)
    "$cellc" emit "$spec" "$@" -o "$out/$name" >"$out/log" 2>&1 &&
        bash "$root/tests/emulator/build.sh" cu "$out/$name/$name.cu" "$out/$name/kernels.o" >>"$out/log" 2>&1 &&
        $CC -std=c11 -g -O1 -I"$root/runtime" -c "$out/$name/$name.c" -o "$out/$name/host.o" >>"$out/log" 2>&1 &&
        $CC -std=c11 -g -O1 -I"$root/runtime" -c "$out/$name/${name}_ref.c" -o "$out/$name/ref.o" >>"$out/log" 2>&1 ||
        { cat "$out/log"; fail "$name does not build"; }
    objects+=("$out/$name/kernels.o" "$out/$name/host.o" "$out/$name/ref.o")
}
instance "$here/spin.cell"
instance specs/gru.cell --dtype bf16
instance specs/e79.cell --dim N=8 --set bias=input
instance specs/layernorm.cell --dtype f64
instance "$here/wide.cell" --dtype f64 --archs "80 86 90"
instance "$here/wider.cell" --dtype f64 --archs "80 86 90"
$CC -std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror -fsanitize=address,undefined -I"$root/runtime" -c "$here/api.c" \
    -o "$out/api.o" || fail "api.c does not compile"
# shellcheck disable=SC2046
$CXX -fsanitize=address,undefined "$out/api.o" "${objects[@]}" "$out"/cell_emu.o "$out"/cell_emu_backend.o "$build/libcell.a" \
    $(sed -n 's/^libs //p' "$build/libcell.flags") -lpthread -lm -o "$out/api" || fail "api does not link"
ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1 "$out/api" >"$out/result" 2>&1
[[ $(tail -n 1 "$out/result") =~ ^[0-9]+\ passed,\ [0-9]+\ failed$ ]] || { tail -n 20 "$out/result"; fail "api: ended without a result"; }
grep -v ' passed, ' "$out/result" | head -n 20
tail -n 1 "$out/result"
[[ $(tail -n 1 "$out/result") == *", 0 failed" ]]
