#!/bin/bash
# The proof that states can go in chunks. What it says of every spec with a state, in every value of its
# options, and of the cells beside this, is exactly specs.txt and cells.txt (BLESS=1 writes them again:
# read them before they are committed). The normal form that it found is the step, to 1e-12: of all of them, and
# of N random cells (150), which must qualify, and with a term more that is not linear must be refused for
# that (step.c). A form that is broken in one place is seen to be none. Walked in chunks of steps, the form gives
# what the steps do (chunked.c).
set -u
export LC_ALL=C
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
flags=
[[ -n ${SAN:-} ]] && flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"

# shellcheck disable=SC2086
if ! ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -O1 $flags ${COVER:-} -Igen -Itests/chunk \
    -o "$work/step" tests/chunk/*.c "$build/libcellc.a" -lm -ldl; then
    echo "0 passed, 1 failed"
    exit 1
fi

count() { # OUTPUT, WHAT: adds up its last line, shows the rest where something failed
    local last
    last=$(tail -n 1 <<<"$1")
    if [[ ! $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        echo "$2: no result"
        tail -n 5 <<<"$1"
        failed=$((failed + 1))
        return
    fi
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    ((BASH_REMATCH[2])) && echo "$2" && head -n 20 <<<"$1"
}

say() { # SPEC, settings: the verdict, behind a heading
    local out
    # A process each, so that a walk without an end would be seen as this one's.
    out=$(timeout 60 "$work/step" "$@" 2>&1)
    count "$out" "$*" >&2
    echo "$*"
    sed '$d; s/^/    /' <<<"$out"
}

same() { # FILE: standard input is what it has
    cat >"$work/said"
    [[ -n ${BLESS:-} ]] && cp "$work/said" "tests/chunk/$1"
    if diff "tests/chunk/$1" "$work/said" >"$work/diff"; then
        passed=$((passed + 1))
    else
        echo "tests/chunk/$1 says something else"
        head -n 20 "$work/diff"
        failed=$((failed + 1))
    fi
}

settings() { # specs with a state, in each value of their options; what needs two; what stands around a step
    local spec name values value
    for spec in specs/*.cell; do
        grep -qE '^ *state ' "$spec" || continue
        echo "$spec"
        sed -nE 's/^ *option +([A-Za-z_0-9]+) *= *[A-Za-z_0-9]+ *\|([^;]*);.*/\1 \2/p' "$spec" | tr -d '|' |
            while read -r name values; do
                for value in $values; do echo "$spec --set $name=$value"; done
            done
    done
    for value in update={decay,simple,residual,ntm,retrieved,ema,retain} projection={tied,single,full}; do
        echo "specs/e74.cell --set nonlinearity=none --set $value"
    done
    echo "specs/e76.cell --set nonlinearity=none --set decay=sigmoid_"
    echo "specs/dgd.cell --set momentum=ema --set step=sherman_morrison --set read=before"
    for spec in gated_delta kda mlstm deltaproduct titans; do
        echo "specs/$spec.cell --lengths"
        echo "specs/$spec.cell --reverse"
    done
    echo "specs/deltaproduct.cell --dim M=4"
    echo "specs/gated_delta.cell --dim N=4"
}

settings >"$work/settings"
while read -r -a words; do say "${words[@]}"; done <"$work/settings" >"$work/specs" 2>"$work/failures"
cat "$work/failures"
same specs.txt <"$work/specs"
{
    for cell in tests/chunk/cells/*.cell; do say "$cell"; done
    say tests/chunk/cells/rounded.cell --dtype bf16
} >"$work/cells" 2>"$work/failures"
cat "$work/failures"
same cells.txt <"$work/cells"
count "$("$work/step" random "${N:-150}" "$work" 2>&1)" "random cells"
count "$("$work/step" faults 60 "$work" 2>&1)" "faults in forms"
echo "$passed passed, $failed failed"
exit $((failed > 0))
