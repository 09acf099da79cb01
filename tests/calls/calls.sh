# What the tests that call generated references share (sourced by them): the compiler of tests/calls, shared objects of
# cells, and the count. In: the name of the test, for its folder and its program. ONLY, CELLC, CC, BUILD, SAN as elsewhere.
set -u
test=${1:?}
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
cc=${CC:-cc}
export ASAN_OPTIONS=detect_leaks=0 cellc cc
out=$build/tests/$test
rm -rf "$out" && mkdir -p "$out"
passed=0 failed=0

# The test's program, with the runtime behind it for what the references call.
make_program() {
    local libs
    libs=$(sed -n 's/^libs //p' "$build/libcell.flags" 2>/dev/null)
    # shellcheck disable=SC2086
    $cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -Iruntime -Itests/calls ${SAN:+-fsanitize=address,undefined} \
        -o "$out/$test" "tests/$test/$test.c" tests/calls/calls.c -rdynamic \
        -Wl,--whole-archive "$build/libcell.a" -Wl,--no-whole-archive $libs -lm -ldl -lpthread 2>"$out/log" ||
        { cat "$out/log"; echo "0 passed, 1 failed"; exit 1; }
}

# Symbols of libc are the program's.
make_object() { # spec, directory, options: directory.so; what went wrong is in directory.log
    local spec=$1 to=$2
    shift 2
    "$cellc" emit "$spec" --import-dir specs --dtype f64 --no-cuda "$@" -o "$to" >/dev/null 2>"$to.log" &&
        "$cc" -std=c11 -O0 -w -fPIC -shared -nostdlib -Iruntime -I"$to" -o "$to.so" "$to"/*.c -lm -lgcc \
            2>>"$to.log"
}
export -f make_object

count() { # what the program said, the name of the cell
    local p= f=
    read -r p f < <(sed -n 's/.*: \([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<<"$1")
    grep FAIL <<<"$1"
    if [[ -z $p ]]; then
        echo "$2: $1"
        p=0 f=1
    fi
    passed=$((passed + p)) failed=$((failed + f))
}

say() { # what, pattern, file: one line of it says so
    if grep -q -- "$2" "$3"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $1: no line '$2'"; fi
}

close() {
    echo "$passed passed, $failed failed"
    [[ $failed == 0 ]]
}
