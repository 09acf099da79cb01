#!/bin/bash
# Tests `make install`, into a folder whose name has a blank: that cellc works there, that programs are built
# with its pkg-config file, its CMake package and the line that `cellc build` prints, that the library has a
# name for its interface, and that uninstall leaves nothing. In: BUILD, CC, SAN. Out: what failed, and the sum
# as the last line.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
cc=${CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/said
skipped=0
unset CELLC CELLC_HOME CELLC_NVCC DESTDIR MAKEFLAGS MAKELEVEL
# shellcheck source=tests/expect.sh
source tests/expect.sh
[[ -z ${SAN:-} ]] || { echo "install: not with sanitizers"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

to="$dir/a prefix"
installs() { make -s BUILD="$build" PREFIX="$to" "$@"; }

mkdir -p "$to/bin" "$to/share/man/man1"
: >"$to/bin/other" && : >"$to/share/man/man1/other.1"
expect 0 "" installs install
installed=$(cd "$to" && find . ! -type d | sort)
for file in ./bin/cellc ./lib/cellc/libcell.a ./lib/cellc/libcell.so ./lib/pkgconfig/cellc.pc \
    ./include/cellc/cell.h ./lib/cmake/cellc/cellc-config.cmake ./share/cellc/specs/e79.cell \
    ./share/man/man1/cellc.1 ./share/doc/cellc/LICENSE ./share/cellc/editors/vim/syntax/cell.vim \
    ./share/cellc/examples/bytelm/bytelm.c; do
    grep -qxF "$file" <<<"$installed" && pass || fail "install does not bring $file"
done
version=$("$to/bin/cellc" version | sed 's/^cellc //')
expect 0 "headers: $to/include/cellc" "$to/bin/cellc" version --verbose
says "runtime: $to/lib/cellc"
led=$(readlink -f "$to/lib/cellc/libcell.so")
[[ -f $led && $led == */libcell.so.$version ]] && pass || fail "libcell.so leads to libcell.so.$version"
readelf -d "$led" | grep -q 'SONAME.*\[libcell.so.0\]' && pass || fail "its soname is libcell.so.0"

# ---- a program of a built library, by the line that build prints

cat >"$dir/main.c" <<'C'
#include <stdio.h>
#include "swiglu.h"

int main(void)
{
    float g[2] = { 0, 1 }, u[2] = { 3, 2 }, y[2] = { -1, -1 };
    cell_context *ctx;
    swiglu_sizes sizes = { .B = 1, .T = 1, .D = 2 };
    swiglu_forward_args args = { .g = g, .u = u, .y = y };
    if (cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 0, NULL, 0) != CELL_OK ||
        swiglu_forward(ctx, &sizes, &args) != CELL_OK)
        return 1;
    cell_context_destroy(ctx);
    printf("%.4f %.4f\n", (double)y[0], (double)y[1]);
    return 0;
}
C
value="0.0000 1.4621"           # 2 / (1 + exp(-1))
expect 0 "libswiglu.so" "$to/bin/cellc" build --cpu none swiglu --no-cuda -o "$dir/my cells"
line=$(sed -n 's/.*a program links with it by: cc //p' "$said")
(cd "$dir" && eval "$cc $line") >"$said" 2>&1 && pass || fail "the line of build compiles: $line"
expect 0 "$value" "$dir/main"

# ---- a static library: the program has the cells and the runtime in it, of two libraries too

static_program() { # OUT COMMAND...: builds a static library, and main.c with it by the line that build prints
    expect 0 "$1" "${@:2}"
    line=$(sed -n 's/.*a program links with it by: cc //p' "$said")
    rm -f "$dir/main"
    (cd "$dir" && eval "$cc $line") >"$said" 2>&1 && pass || fail "the line of build --static compiles: $line"
}
rm -rf "$dir/my cells"
static_program libswiglu.a "$to/bin/cellc" build --cpu none swiglu --no-cuda --static -o "$dir/my cells"
[[ ! -e "$dir/my cells/libswiglu.so" ]] && pass || fail "--static makes a shared library too"
"$to/bin/cellc" build --cpu none swiglu --no-cuda --static -o "$dir/again" >"$said" 2>&1
cmp "$dir/my cells/libswiglu.a" "$dir/again/libswiglu.a" && pass || fail "an archive of the same is another"
expect 0 "libgru.a" "$to/bin/cellc" build --cpu none gru --no-cuda --static -o "$dir/second"
sed 's/^int main/#include "gru.h"\n&/; s/return 0;/return !gru_instance();/' "$dir/main.c" >"$dir/both.c"
expect 0 "" eval "$cc -I'$to/include/cellc' -I'$dir/again' -I'$dir/second' '$dir/both.c' \
    '$dir/again/libswiglu.a' '$dir/second/libgru.a' -lm -ldl -o '$dir/both'"
rm -rf "$dir/my cells" "$dir/again" "$dir/second"
expect 0 "$value" "$dir/main"
expect 0 "$value" "$dir/both"
expect 1 "were not compiled" env AR=/no/ar "$to/bin/cellc" build --cpu none swiglu --no-cuda --static -o "$dir/second"
expect 2 "--static and --kernels-apart exclude each other" \
    "$to/bin/cellc" build --cpu none swiglu --static --kernels-apart
if "$to/bin/cellc" version --verbose | grep -q '^nvcc: /'; then
    static_program libswiglu.a "$to/bin/cellc" build --cpu none swiglu --static --archs 90 -o "$dir/second"
    nm "$dir/main" | grep -q ' T cell_cuda_backend' && pass || fail "a static library has the backend of CUDA"
    expect 0 "$value" "$dir/main"
fi

# ---- the same of emitted files, which want the runtime: pkg-config

if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$to/lib/pkgconfig
    expect 0 "$version" pkg-config --modversion cellc
    expect 0 "prefix/lib/pkgconfig/../../share/cellc/specs" pkg-config --variable=specsdir cellc
    "$to/bin/cellc" emit swiglu --no-cuda -o "$dir/emitted" >"$said" 2>&1 && pass || fail "emit"
    flags="$(pkg-config --cflags cellc) -I'$dir/emitted'" libs="$(pkg-config --libs cellc) -lm"
    eval "$cc $flags '$dir/main.c' '$dir'/emitted/*.c $libs -o '$dir/emitted/main'" >"$said" 2>&1 && pass ||
        fail "a program by pkg-config"
    expect 0 "$value" "$dir/emitted/main"
    readelf -d "$dir/emitted/main" | grep -q 'NEEDED.*\[libcell.so.0\]' && pass ||
        fail "it asks for libcell.so.0"
    libs=$(pkg-config --static --libs cellc)
    if echo 'int main(void) { return 0; }' | $cc -x c - -static -o "$dir/empty" 2>/dev/null; then
        eval "$cc -static $flags '$dir/main.c' '$dir'/emitted/*.c $libs -o '$dir/emitted/static'" \
            >"$said" 2>&1 && pass || fail "a static program by pkg-config --static"
        expect 0 "$value" "$dir/emitted/static"
    fi
else
    echo "install: there is no pkg-config"
    skipped=$((skipped + 1))
fi

# ---- CMake: a library of cells that are rebuilt as their file changes, and emitted files

if command -v cmake >/dev/null; then
    mkdir "$dir/project"
    sed 's/cell swiglu/cell mine/' specs/swiglu.cell >"$dir/project/mine.cell"
    sed 's/swiglu/mine/g' "$dir/main.c" >"$dir/project/main.c"
    cat >"$dir/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(uses LANGUAGES C)
find_package(cellc ${version%.*} REQUIRED)
cellc_add_library(gates CELLS mine.cell OPTIONS --no-cuda)
cellc_add_library(inside STATIC CELLS mine.cell OPTIONS --no-cuda)
add_executable(linked main.c)
add_executable(has_it main.c)
target_link_libraries(has_it PRIVATE inside)
target_link_libraries(linked PRIVATE gates)
file(GLOB emitted "$dir/emitted/*.c")
add_executable(compiled "$dir/main.c" \${emitted})
target_include_directories(compiled PRIVATE "$dir/emitted")
target_link_libraries(compiled PRIVATE cellc::cell m)
CMAKE
    mkdir -p "$dir/emitted"
    [[ -e $dir/emitted/swiglu.h ]] || "$to/bin/cellc" emit swiglu --no-cuda -o "$dir/emitted" >"$said" 2>&1
    cmakes() { env CC="${cc%% *}" cmake -S "$dir/project" -B "$dir/out" -DCMAKE_PREFIX_PATH="$to"; }
    expect 0 "" cmakes
    expect 0 "" cmake --build "$dir/out"
    expect 0 "$value" "$dir/out/linked"
    expect 0 "$value" "$dir/out/has_it"
    expect 0 "$value" "$dir/out/compiled"
    sed -i 's/y\[\([a-z]\)\] = /y[\1] = 2 * /' "$dir/project/mine.cell"
    expect 0 "Compiling cells into libgates.so" cmake --build "$dir/out"
    expect 0 "0.0000 2.9242" "$dir/out/linked"
    sed -i "s/cellc ${version%.*}/cellc 99/" "$dir/project/CMakeLists.txt"
    expect 1 "compatible" cmakes
else
    echo "install: there is no cmake"
    skipped=$((skipped + 1))
fi

# ---- for other machines, and away again

expect 0 "" env DESTDIR="$dir/staged" make -s BUILD="$build" PREFIX=/usr PORTABLE=1 install
staged="$dir/staged/usr/lib/cellc"
[[ $(cat "$staged/libcell.flags") == "libs -lm -ldl -lpthread"$'\n'"nvcc " ]] && pass ||
    fail "portable flags name nothing of this machine"
needs=$(readelf -d "$staged/libcell.so" | grep NEEDED | grep -vE 'lib(c|m|dl)\.so')
[[ -z $needs ]] && pass || fail "a portable libcell.so needs $needs"
expect 0 "" installs uninstall
[[ $(cd "$to" && find . ! -type d | sort) == ./bin/other$'\n'./share/man/man1/other.1 ]] && pass ||
    fail "uninstall leaves $(cd "$to" && find . ! -type d | head -n 3)"
echo "$passed passed, $failed failed$([[ $skipped == 0 ]] || echo ", $skipped skipped")"
[[ $failed == 0 ]]
