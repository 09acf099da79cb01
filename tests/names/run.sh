#!/bin/bash
# Names that belong to others: every word of C, C++, CUDA, Python, the runtime and generated files is a name in cells, in every
# role (cells.awk). The header must be C and C++, behind all headers of C, the plain C and the kernels must compile,
# and nothing in a kernel may hide what the kernel has already. In: CELLC, CC, CXX; ONLY is a regular expression on the
# names of groups. Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0
CC=${CC:-cc} CXX=${CXX:-g++}
R=$root/runtime
said=$out/said

# The language's own, and its functions, which no function of a cell may be called but for those that came later.
own='sum|mean|max|min|prod|softmax|inf|t|T'
later='ceil|tan|atan|sinh|cosh|leaky_relu|hardtanh|mish'
functions=" $("$CELLC" ops | grep -oE '^ +[a-z_0-9]+' | tr -d ' ' | grep -vxE "$later" | tr '\n' ' ') div mod "

words() { grep -oE '\b[A-Za-z_][A-Za-z0-9_]*\b' | grep -vxE "$own" | sort -u; }

headers='assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbool
    stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype'
include() { for h in "$@"; do echo "#include <$h.h>"; done; }

# shellcheck disable=SC2086
macros() { include $headers | $CC -std=gnu11 -D_GNU_SOURCE -E -dM -x c - | sed -n 's/^#define \([A-Za-z]\w*\) .*/\1/p'; }

# The newest C++ that the compiler has.
newest() {
    local std
    for std in c++23 c++20; do
        $CXX -std=$std -fsyntax-only -x c++ /dev/null 2>/dev/null && echo $std && return
    done
    echo c++17
}

# Comments of generated files are no code.
code() { sed 's,//.*,,; s,/\*.*\*/,,' "$@"; }

good() {
    if [[ -s $said ]]; then
        failed=$((failed + 1))
        echo "FAIL: $1" && head -n 4 "$said" | cut -c1-200 | sed 's/^/    | /'
    else
        passed=$((passed + 1))
    fi
}

compile() { # DIR
    cd "$1" || exit 1
    # shellcheck disable=SC2086
    { include $headers; for h in *.h; do echo "#include \"$h\""; done; } >all_headers.c
    $CC -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -I"$R" all_headers.c >"$said" 2>&1
    good "$1: headers as C"
    for h in *.h; do echo "#include \"$h\""; done >all_headers.cc
    $CXX -std=${CXX_NEWEST:=$(newest)} -Wall -Wextra -Werror -fsyntax-only -I"$R" all_headers.cc >"$said" 2>&1
    good "$1: headers as C++"
    for c in *_ref.c; do
        $CC -std=c11 -Wall -Wextra -Werror -Wshadow -fsyntax-only "$c" 2>&1
        $CC -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only -I"$R" "${c%_ref.c}.c" 2>&1
    done >"$said"
    good "$1: the plain C"
    for k in *.cu; do echo "#include \"$k\""; done >all_kernels.cc
    # The device's own headers are theirs to judge.
    $CXX -std=c++17 -O0 -Wshadow -Wno-unknown-pragmas -fsyntax-only -isystem "$R" -isystem "$R/device" \
        -isystem "$root/tests/emulator" all_kernels.cc >"$said" 2>&1
    good "$1: kernels"
    cd "$root" || exit 1
}

group() { # NAME FORM ROLES MANY ROUNDS: the words are read
    local round place=$out/$1
    [[ $1 =~ ${ONLY:-.} ]] || return 0
    mkdir "$place"
    cat >"$out/words"
    for ((round = 0; round < $5; round++)); do
        awk -v form="$2" -v roles="$3" -v many="$4" -v round=$round -v prefix="$1_${round}_" \
            -v functions="$functions" -f "$here/cells.awk" "$out/words"
    done | awk -v dir="$place" '/^== / { file = dir "/" $2 ".cell"; next } { print > file }'
    for f in "$place"/*.cell; do
        "$CELLC" emit "$f" -o "$place" 2>&1 >/dev/null | grep -A3 -E 'error:|bug'
    done >"$said"
    good "$1: cellc emit"
    compile "$place"
}

core=$(words <"$here/words.txt")
group core general 11 8 11 <<<"$core"
group walk walk 6 8 3 <<<"$core"
group dense dense 6 8 2 <<<"$core"
generated=$("$CELLC" emit specs/lstm.cell --dim H=8 --kind header | code; code "$root"/generated/*.c "$root"/generated/*.cu "$R"/*.h)
group every general 11 8 1 < <({ macros; words <<<"$generated"; } | words)
# A walk's words and those of the device are a walk's names.
group kernels walk 6 8 1 < <(code "$out"/walk/*_0_1.cu "$root/generated/e79.cu" 2>/dev/null | words)
# What nvcc has that the emulator has not, for one file of kernels: all of them take half a minute.
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [[ -x $nvcc && -e $out/core/core_3_2.cu ]]; then
    "$nvcc" -std=c++17 -arch=sm_90 -ptx -Xcicc -O0 -diag-suppress 177,550 -I"$R" -I"$R/device" -o "$out/core.ptx" "$out/core/core_3_2.cu" \
        >"$said" 2>&1
    good "nvcc core_3_2"
fi
# The values are right, too.
for f in "$out"/core/core_0_1.cell "$out"/walk/walk_0_1.cell; do
    [[ -e $f ]] || continue
    "$CELLC" check "$f" >"$out/check" 2>&1 && : >"$said" || cp "$out/check" "$said"
    good "cellc check $(basename "$f")"
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
