#!/bin/bash
# Which instances tests/ladder/chosen.awk takes: what the list takes, what it does not know, and what has
# changed since; a name that is gone fails. And the list itself: each line has a verdict, and each suite takes
# some and leaves some. And the lists of instances: no name stands for two. The last line is the sum.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

expect() { # what, exit code, names
    local rc said
    said=$(awk -v SUITE=s -v ROOT=/tree -f "$root/tests/ladder/chosen.awk" file=1 "$work/list" \
        file=2 "$work/matrix" file=3 "$work/candidates" 2>"$work/err")
    rc=$?
    if [[ $rc == "$2" && $(cut -d ' ' -f 1 <<<"$said" | xargs) == "$3" ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: exit code $rc, took $(cut -d ' ' -f 1 <<<"$said" | xargs), not $3"
    fi
}

cat >"$work/matrix" <<'END'
one gru --schedule steps --dtype f32 | 1,1,7 2,2,5 | _few
two /tree/tests/constructs/two.cell --schedule gemm --dtype f32 | 1,1,7 | _wide
three gru --schedule gemm --dtype bf16 | 1,1,7 | _few
END
cp "$work/matrix" "$work/candidates"
: >"$work/list"
expect "a list that knows nothing" 0 "one two three"
verdicts=(take leave leave)
while read -r name hash; do
    echo "s $name $hash ${verdicts[0]}"
    verdicts=("${verdicts[@]:1}")
done < <(awk -v KNOWN=1 -v SUITE=s -v ROOT=/tree -f "$root/tests/ladder/chosen.awk" file=2 "$work/matrix" \
    file=3 "$work/candidates") >"$work/list"
expect "what is taken" 0 one
sed -i 's,/tree/,/other/,' "$work/matrix" "$work/candidates"
expect "another path of a cell is another line" 0 "one two"
sed -i 's,/other/,/tree/,' "$work/matrix" "$work/candidates"
grep -v '^one' "$work/matrix" >"$work/candidates"
expect "what is taken, where a cover leaves it" 0 one
sed -i 's/^three.*1,1,7/& 2,2,9/' "$work/matrix"
sed -i '/^three/d' "$work/candidates"
expect "a line that changed, where a cover leaves it" 0 one
cp "$work/matrix" "$work/candidates"
expect "a line that changed" 0 "one three"
echo "four gru --schedule steps --dtype f64 | 1,1,7 | _few" | tee -a "$work/matrix" >>"$work/candidates"
expect "a line that is new" 0 "one three four"
echo "s gone 123 leave" >>"$work/list"
expect "a name that is gone" 1 "one three four"
if grep -q '^FAIL tests/ladder/chosen: s has no instance gone' "$work/err"; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "a name that is gone is not said"
fi
sed -i '$d' "$work/list"
echo "other gone 123 leave" >>"$work/list"
expect "a name of another suite" 0 "one three four"

for suite in ladder constructs spec_kernels; do
    for verdict in take leave; do
        if grep -qE "^$suite [a-z0-9_A-Z]+ [0-9]+ $verdict$" "$root/tests/ladder/chosen"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "tests/ladder/chosen: $suite has no instance with $verdict"
        fi
    done
done
if strange=$(grep -nvE '^(#.*|(ladder|constructs|spec_kernels) [a-z0-9_A-Z]+ [0-9]+ (take|leave))$' \
    "$root/tests/ladder/chosen"); then
    failed=$((failed + 1))
    echo "tests/ladder/chosen: line $strange"
else
    passed=$((passed + 1))
fi
# An instance's name is that of its folder, and what ONLY asks for.
names() { # SETTING MATRIX: each has another name
    local twice
    twice=$(env -u FULL -u TYPES -u COVER -u ONLY "$1" bash "$root/tests/$2" | cut -d ' ' -f 1 | sort |
        uniq -d | xargs)
    if [[ -z $twice ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$2 with $1: two instances each of $twice"
    fi
}
for setting in COVER=1 FULL=1; do
    names $setting ladder/matrix.sh
    names $setting constructs/matrix.sh
done
echo "$passed passed, $failed failed"
exit $((failed > 0))
