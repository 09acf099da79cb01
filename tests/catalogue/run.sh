#!/bin/bash
# docs/cells.md is what docs/cells.sh writes now, and `cellc doc` has a page for every spec; of some, what it says is here
# word by word (BLESS=1 writes them anew). Its JSON has the equations of every spec as MathML. In: CELLC. Out: the differences, and the sum as the last line.
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

# MathML: shapes.mathml has that of every shape an expression may have, and no name or number of a spec is left out.
"$CELLC" doc tests/catalogue/shapes.cell --json 2>"$work/log" |
    python3 -c 'import json, sys; print("\n".join(line["mathml"] for line in json.load(sys.stdin)["lines"] if line["mathml"]))' |
    sed 's/<math [^>]*>//; s,</math>,,' >"$work/shapes.mathml"
[[ -z ${BLESS:-} ]] || cp "$work/shapes.mathml" tests/catalogue/shapes.mathml
same tests/catalogue/shapes.mathml "$work/shapes.mathml" "BLESS=1 bash tests/catalogue/run.sh"
mkdir "$work/json"
for spec in specs/*.cell; do
    [[ $spec == specs/std.cell ]] || "$CELLC" doc "$spec" --json >"$work/json/$(basename "$spec" .cell).json" 2>/dev/null
done
python3 tests/catalogue/mathml.py "$work"/json/*.json >"$work/mathml"
sed '$d' "$work/mathml"
read -r well ill < <(tail -n 1 "$work/mathml")
passed=$((passed + ${well:-0})) failed=$((failed + ${ill:-1}))

# What it found: linear or not, and in chunks of steps.
facts() { # CELL: state_axes linear chunks schedule
    python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
print(*(json.dumps(d[key]) for key in ("state_axes", "linear", "chunks")), d["schedule"]["name"])' "$work/json/$1.json"
}
while read -r name want; do
    got=$(facts "$name")
    [[ $got == "$want" ]] && passed=$((passed + 1)) || { failed=$((failed + 1)); echo "facts of $name: $got, not $want"; }
done <<'END'
gru 1 false false gemm
rglru 1 true false scan
gated_delta 3 true true tile
trellis 2 true true steps
mlstm 3 false false tile
layernorm null null null map
END

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
