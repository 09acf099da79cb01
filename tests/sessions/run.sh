#!/bin/bash
# Stores of sessions (cell_sessions.h): instances whose kernels find rows by themselves and others, on the
# emulator, the reference and the cpu backend, against plain calls, by sessions.c under AddressSanitizer; and what
# `cellc explain --slots` says is what the store does. In: BUILD, CELLC, CC, CXX. FULL=1: longer.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
[[ $build == /* ]] || build=$root/$build
cellc=${CELLC:-$build/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
export CXX=${CXX:-$(command -v g++ || command -v clang++ || true)} CC=${CC:-cc}
out=$build/tests/sessions
mkdir -p "$out"
if ! echo 'int main() { return 0; }' | ${CXX:-false} -x c++ -fsanitize=address,undefined \
    -o "$out/probe" - 2>/dev/null; then
    echo "sessions: no C++ compiler with AddressSanitizer (apt-get install g++ brings one)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
fail() { echo "$1"; echo "0 passed, 1 failed"; exit 1; }

bash "$root/tests/emulator/build.sh" lib "$out" || fail "the emulator does not build"
objects=() wrong=0 right=0
: >"$out/says"
compile() { # CELL FOLDER
    bash "$root/tests/emulator/build.sh" cu "$1.cu" "$2/kernels.o" &&
        $CC -std=c11 -g -O1 -Wall -Wextra -Werror -I"$root/runtime" -c "$1.c" -o "$2/host.o" &&
        $CC -std=c11 -g -O1 -I"$root/runtime" -c "$1_ref.c" -o "$2/ref.o"
}
instance() { # SPEC OPTIONS...
    local spec=$1 name words
    shift
    name=$(basename "$spec" .cell)
    "$cellc" emit "$spec" "$@" --slots -o "$out/$name" >"$out/log" 2>&1 &&
        compile "$out/$name/$name" "$out/$name" >>"$out/log" 2>&1 ||
        { cat "$out/log"; fail "$name does not build"; }
    objects+=("$out/$name/kernels.o" "$out/$name/host.o" "$out/$name/ref.o")
    words=$("$cellc" explain "$spec" "$@" --slots | sed -n '/^  sessions /,/^  [a-z]/p' | head -n 1)
    case $words in
    *"which the step's kernels find"*) echo "$name: in the step's kernels" ;;
    *"which a kernel in front"*) echo "$name: by a kernel in front of the step and one behind it" ;;
    *) echo "$name: $words" ;;
    esac >>"$out/says"
}
cd "$root" || exit 1
# Bytes of a session go between stores of any library of a cell, so each says the same program of it.
program() { "$cellc" emit specs/gated_delta.cell --dim N=8 "$@" | grep '^    \.program = "[0-9a-f]\{16\}",$'; }
said=$(program --dim V=8 --kind plan --slots)
for way in "--kind plan" "--kind host" "--kind cpu" "--kind plan --schedule steps"; do
    # shellcheck disable=SC2086
    if [[ -n $said && $said == "$(program --dim V=8 $way)" ]]; then
        right=$((right + 1))
    else
        echo "emit $way: a program other than with --slots: ${said:-none}"
        wrong=$((wrong + 1))
    fi
done
if [[ $said == "$(program --dim V=9 --kind host)" ]]; then
    echo "other equations, and the same program: $said"
    wrong=$((wrong + 1))
else
    right=$((right + 1))
fi
instance specs/e79.cell --dim N=8 --set bias=input
instance specs/lstm.cell
instance specs/gru.cell --dtype f64
instance "$here/learned.cell"
instance specs/conv4_silu.cell --dtype bf16
instance specs/delta.cell --dim N=8 --dim V=16
instance tests/constructs/parts_of_rows.cell # calls of several steps of one sequence walk parts of its state
sanitized=(-std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Werror "-fsanitize=address,undefined" -I"$root/runtime")
for source in "$here/sessions" "$root/runtime/sessions" "$root/runtime/sessions_blob"; do
    object=$out/$(basename "$(dirname "$source")")_$(basename "$source").o
    $CC "${sanitized[@]}" -c "$source.c" -o "$object" || fail "$source.c does not compile"
    objects+=("$object")
done
# shellcheck disable=SC2046
$CXX -fsanitize=address,undefined "${objects[@]}" "$out"/cell_emu.o "$out"/cell_emu_backend.o \
    "$build/libcell.a" $(sed -n 's/^libs //p' "$build/libcell.flags") -lpthread -lm -o "$out/sessions" ||
    fail "sessions does not link"
export OPENBLAS_NUM_THREADS=1
"$out/sessions" how >"$out/does" 2>&1
if diff "$out/says" "$out/does"; then right=$((right + 1)); else wrong=$((wrong + 1)); fi
"$out/sessions" >"$out/result" 2>&1
[[ $(tail -n 1 "$out/result") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] ||
    { tail -n 20 "$out/result"; fail "sessions: ended without a result"; }
grep -v ' passed, ' "$out/result" | head -n 20
echo "$((BASH_REMATCH[1] + right)) passed, $((BASH_REMATCH[2] + wrong)) failed"
[[ $((BASH_REMATCH[2] + wrong)) == 0 ]]
