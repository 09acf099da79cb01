#!/bin/bash
# The IR's text form: every spec in all its variants, printed after every pass of both pipelines, reads back
# to the same module, which the next pass takes to the same text; so do random cells; damaged dumps give a
# diagnostic with its line and never a crash; what is said about some of them is exactly this.
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
cellc=${CELLC:-$build/cellc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
flags=
[[ -n ${SAN:-} ]] && flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"

# shellcheck disable=SC2086
if ! ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -O1 $flags ${COVER:-} -Igen -o "$work/roundtrip" \
    tests/ir/roundtrip.c "$build/libcellc.a" -lm -ldl; then
    echo "0 passed, 1 failed"
    exit 1
fi

# Runs the program and adds up its last line; what failed is shown.
round() {
    local out last
    out=$("$work/roundtrip" "$@" 2>&1)
    last=$(tail -n 1 <<<"$out")
    if [[ ! $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ || ${BASH_REMATCH[1]} -eq 0 ]]; then
        echo "roundtrip $*: no result"
        tail -n 5 <<<"$out"
        failed=$((failed + 1))
        return
    fi
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    ((BASH_REMATCH[2])) && echo "roundtrip $*" && grep -v passed <<<"$out" | head -n 5
}

for spec in specs/*.cell tests/ir/everything.cell tests/constructs/*.cell; do
    [[ $spec == specs/std.cell ]] || round pass "$spec"
done
for settings in "--set bias=none" "--set bias=input" "--set bias=input --dim N=6"; do
    # shellcheck disable=SC2086
    round pass specs/e79.cell $settings
done
round pass specs/e88.cell --dim N=64 --dim V=80
round pass specs/e88.cell --dim N=64 --dim V=64 --set conv=causal
# Names of the IR's own, and sizes that are called as the call's.
cat >"$work/names.cell" <<'EOF'
cell ir {
    dim dim, tensor, B, t0;
    input  load[dim], const[tensor];
    param  map[dim, tensor], mul[B], index[t0];
    state  next[dim];
    output root[dim];
    sum1[i:dim] = sum[j] map[i,j] * const[j] + sum[B2] mul[B2] * B + sum[k] index[k] * load[i; t-1];
    next'[i] = next[i] + sum1[i];
    root[i] = t > 3 ? next'[i] : load[i];
}
EOF
round pass "$work/names.cell"
for seed in $(seq 1 "${IR_RANDOM:-15}"); do
    "$cellc" random --seed "$seed" >"$work/random.cell" 2>/dev/null || continue
    [[ -s $work/random.cell ]] && round pass "$work/random.cell"
done

# A dump from the command line is what the library prints, and names are the user's.
"$cellc" explain tests/ir/everything.cell --import-dir specs --dump-after simplify-adjoint >"$work/dump.ir"
if "$work/roundtrip" read "$work/dump.ir" | cmp -s - "$work/dump.ir"; then passed=$((passed + 1)); else
    echo "a dump of cellc explain does not print as itself"
    failed=$((failed + 1))
fi
for pass in lower simplify differentiate; do
    "$cellc" explain specs/lstm.cell --dump-after $pass >"$work/$pass.ir"
    round mutate "$work/$pass.ir" 1 300
done
round mutate "$work/dump.ir" 2 500

# Broken dumps, and what is said about them, in pairs NAME.ir and NAME.err.
for broken in tests/ir/*.ir; do
    if (cd tests/ir && "$work/roundtrip" read "$(basename "$broken")") |
        diff "${broken%.ir}.err" - >"$work/diff"; then
        passed=$((passed + 1))
    else
        echo "$broken:"
        cat "$work/diff"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
exit $((failed > 0))
