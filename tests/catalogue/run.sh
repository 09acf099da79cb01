#!/bin/bash
# docs/cells.md is what docs/cells.sh writes now, and `cellc doc` has a page for every spec; of some, what it says is here
# word by word (BLESS=1 writes them anew). In: CELLC. Out: the differences, and the sum as the last line.
set -u
cd "$(dirname "$0")/../.."
export CELLC=${CELLC:-$PWD/${BUILD:-build}/cellc}
[[ $CELLC == /* ]] || CELLC=$PWD/$CELLC
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

same() { # what it should be, what it is, how to write it anew
    if diff "$1" "$2" >"$work/diff"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1 is not what the specs say now: $3"
        head -n 6 "$work/diff"
    fi
}

bash docs/cells.sh >"$work/cells.md"
same docs/cells.md "$work/cells.md" "make catalogue"
for spec in e84 window_attention lstm_masked; do
    "$CELLC" doc "$spec" >"$work/$spec.md" 2>/dev/null
    [[ -z ${BLESS:-} ]] || cp "$work/$spec.md" "tests/catalogue/$spec.md"
    same "tests/catalogue/$spec.md" "$work/$spec.md" "BLESS=1 bash tests/catalogue/run.sh"
done

# No equation is left out: a page has each left side of the spec's.
for spec in specs/*.cell; do
    [[ $spec == specs/std.cell ]] && continue
    name=$(basename "$spec" .cell)
    if ! "$CELLC" doc "$spec" >"$work/$name.md" 2>"$work/log"; then
        failed=$((failed + 1))
        echo "cellc doc $spec fails:"
        head -n 3 "$work/log"
        continue
    fi
    want=$("$CELLC" fmt "$spec" | grep -cE "^ *(when .*\{ )?[A-Za-z_0-9]+'?(\[[^]]*\])? += ")
    got=$(sed -n '/^```text/,/^```/p' "$work/$name.md" | sed '/^schedule/,$d' | grep -cE '^ *[^ ]+( [^ =]+)* = ')
    if ((got >= want)); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "the page of $name has $got equations, $spec has $want"
    fi
done

# A size of the caller's that both branches of a `when` declare is one.
got=$(sed -n '/^## Sizes/,/^## Options/s/^| \([A-Z]\) | the caller.*/\1/p' "$work/slstm.md" | xargs)
[[ $got == "D H N" ]] && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "the page of slstm has the sizes $got"; }

# The picture, where Graphviz is; without it, the page says nothing of one and its source stays.
if command -v dot >/dev/null; then
    "$CELLC" doc e79 -o "$work/pages" >/dev/null 2>&1
    grep -q '!\[.*\](e79.svg)' "$work/pages/e79.md" && [[ -s $work/pages/e79.svg ]] && passed=$((passed + 1)) ||
        { failed=$((failed + 1)); echo "cellc doc -o draws nothing"; }
fi
PATH=/nowhere "$CELLC" doc e79 -o "$work/bare" >/dev/null 2>"$work/log"
if ! grep -q 'Data flow' "$work/bare/e79.md" && [[ -s $work/bare/e79.svg.dot ]] && grep -q 'wants Graphviz' "$work/log"; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "cellc doc -o without Graphviz:"
    cat "$work/log"
fi
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
