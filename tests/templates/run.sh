#!/bin/bash
# Skeletons of kernels (templates/): a part prints what its holes say, as far in as it should; a template
# with a mistake is refused with its line; a hole without a value is an error of the compiler's. Every line
# of every template stands, with its holes filled, in what cellc emits for tests/templates/instances, which
# are of the corpus; and no hole is left there.
set -u
cd "$(dirname "$0")/../.."
export LC_ALL=C
build=${BUILD:-build}
cellc=${CELLC:-$build/cellc}
here=tests/templates
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
flags=
[[ -n ${SAN:-} ]] && flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined"

# shellcheck source=tests/same.sh
source tests/same.sh

# ---- mistakes: each text of broken.txt is a template; the line in front of it has what is said, and where
refused() { # WANTED < template
    cat >"$work/broken.cuh"
    [[ -s $work/broken.cuh ]] || return
    awk -f templates/templates.awk "$work/broken.cuh" >"$work/header" 2>"$work/said"
    same "refused: $1" "1 broken.cuh:$1" "$? $(head -n 1 "$work/said" | sed 's|.*/||')"
    [[ ! -s $work/header ]]
    same "nothing comes out of it: $1" 0 $?
}
cases=0 wanted=
while IFS= read -r line || [[ -n $line ]]; do
    if [[ $line == "== "* ]]; then
        ((cases)) && refused "$wanted" < <(printf '%s' "$text")
        wanted=${line#== } text='' cases=$((cases + 1))
    else
        text+=$line$'\n'
    fi
done <"$here/broken.txt"
refused "$wanted" < <(printf '%s' "$text")

# ---- what is printed
awk -f templates/templates.awk "$here/sample.cuh" >"$work/sample.h"
# shellcheck disable=SC2086
if ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -O1 $flags ${COVER:-} -Igen -I"$work" \
    -o "$work/sample" "$here/sample.c" "$build/libcellc.a" -lm -ldl; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
fi
same "a part with what its sections hold" "$(cat "$here/sample.out")" "$("$work/sample" whole)"
for hole in name body times; do
    "$work/sample" "$hole" >/dev/null 2>"$work/said"
    same "without $hole" "70 bug: in pass templates: part 'sample' has no value for hole '$hole'" \
        "$? $(grep -o 'bug: .*' "$work/said" | head -n 1)"
done

# ---- what cellc emits
bash tests/corpus/instances.sh >"$work/corpus"
while read -r spec options; do
    grep -qxF "$spec $options" "$work/corpus"
    same "an instance of the corpus: $spec $options" 0 $?
    # shellcheck disable=SC2086
    "$cellc" emit "$spec" $options --import-dir specs -o "$work/emitted" >"$work/said" 2>&1 ||
        { failed=$((failed + 1)) && cat "$work/said"; }
    cat "$work"/emitted/*.cu >>"$work/all" 2>/dev/null
    rm -rf "$work/emitted"
done < <(grep -v '^#' "$here/instances")
same "holes that are left" "" "$(grep -m 3 -F '$' "$work/all")"

# Statements: lines without what indents them, and those that a long one was broken into as one.
statements() {
    awk '{
            match($0, /^ */)
            if (NR > 1 && RLENGTH >= first + 8 && $0 !~ /^ *(\/\/|$)/) {
                sub(/^ */, last ~ /[(\[]$/ ? "" : " ")
                last = last $0
                next
            }
            if (NR > 1) print last
            first = RLENGTH
            last = substr($0, RLENGTH + 1)
        }
        END { print last }' "$1"
}
statements "$work/all" | sort -u >"$work/statements"
for template in templates/*.cuh; do
    # The code of its parts, of which each line is searched for. cellc drops the mark of what may
    # be unused, mostly, and puts a long line's comment in front of it.
    awk '/^\$part / { part = 1; head = 1; next }
        !part { next }
        head { if (/\*\/ *$/) head = 0; next }
        /^ *\$(if |else|end)/ || /^ *\$[a-z0-9_]+$/ || /^ *\/\/\$/ || /^ *$/ { next }
        { print }' "$template" >"$work/code"
    statements "$work/code" | sort -u >"$work/lines"
    [[ -s $work/lines ]]
    same "$template has code" 0 $?
    while IFS= read -r line; do
        pattern=$(sed -E 's/\[\[maybe_unused\]\] /\x02/g; s/(.)  \/\/ .*/\1/; s/\$(\{[a-z0-9_]+\}|[a-z0-9_]+)/\x01/g
            s/[][\\.*^$+?(){}|]/\\&/g; s/\x01/.*/g; s/\x02/(\\[\\[maybe_unused\\]\\] )?/g' <<<"$line")
        grep -qE -m 1 "^$pattern( +//.*)?\$" "$work/statements"
        same "$template: a line that nothing emits: $line" 0 $?
    done <"$work/lines"
done
echo "$passed passed, $failed failed"
((failed == 0))
