#!/bin/bash
# The generated reference against the evaluator: every spec in all its variants at several sizes, then the
# specs against the vectors that were made elsewhere.
set -u
cd "$(dirname "$0")/../.."
cellc=${CELLC:-build/cellc}
passed=0 failed=0

# Runs one check and adds up its last line; what failed is shown.
check() {
    local out last
    out=$("$cellc" check "$@" 2>&1)
    last=$(tail -n 1 <<<"$out")
    if [[ ! $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ || ${BASH_REMATCH[1]} -eq 0 ]]; then
        echo "cellc check $*: no result"
        tail -n 5 <<<"$out"
        failed=$((failed + 1))
        return
    fi
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    if ((BASH_REMATCH[2])); then
        echo "cellc check $*"
        grep FAILED <<<"$out" | head -n 5
    fi
}

# One size for cells with inner gradients: the evaluator computes the whole loss again for each element of a
# gradient. At N = 1 a normalised key has no gradient but what rounding leaves.
declare -A size=(
    [dgd]="--dim H=2 --dim N=3" [titans]="--dim D=4 --dim N=3 --dim R=2" [moneta]="--dim D=4 --dim N=3"
    [yaad]="--dim D=4 --dim N=3" [memora]="--dim D=4 --dim N=3" [titans_mlp]="--dim D=4 --dim N=3"
    [trellis]="--dim D=4 --dim K=3"
)
for spec in specs/*.cell; do
    # shellcheck disable=SC2086
    [[ $spec == specs/std.cell ]] || check "$spec" ${size[$(basename "$spec" .cell)]:-}
done
while read -r vector spec settings; do
    # shellcheck disable=SC2086
    check "specs/$spec.cell" --vectors "tests/vectors/$vector.vec" $settings
done <<END
e79_fixed e79
e79_none e79 --set bias=none
e79_input e79 --set bias=input
e79_input_T1 e79 --set bias=input
e79_input_T2 e79 --set bias=input
e0 e0
e1 e1
e75_multihead e75
e88 e88
gated_delta gated_delta
gru gru
lstm lstm
mingru mingru
END

# The equations in each file's own header, as a spec: every line that is indented by three spaces ends in ';'.
# One header has an index r and a value r.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for vector in tests/vectors/*.vec; do
    name=$(basename "$vector" .vec)
    {
        echo "cell $name {"
        sed -n 's/^# sizes: //p' "$vector" | tr ' ' '\n' | sed -nE 's/^([A-SU-Z]|[A-Z]{2,})=([0-9]+)$/dim \1 = \2;/p' | grep -v '^dim B '
        sed -n 's/^#   //p' "$vector" | sed -E 's, *//.*,,; s/$/;/' | sed -E 's/\[r([]:,])/[rr\1/g'
        echo "}"
    } >"$work/$name.cell"
    check "$work/$name.cell" --vectors "$vector"
done

echo "$passed passed, $failed failed"
exit $((failed > 0))
