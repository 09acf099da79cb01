#!/bin/bash
# The documents, against what there is. Compiles every example of docs/language.md: blocks tagged ```cell must compile without errors, blocks tagged
# ```cell-error must be refused with an error, not a crash.
set -u
cd "$(dirname "$0")/../.."
cellc=${CELLC:-$PWD/${BUILD:-build}/cellc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -v dir="$work" '
    /^```cell(-error)?$/ {
        file = sprintf("%s/%s_%d.cell", dir, $0 == "```cell" ? "good" : "bad", NR)
        next
    }
    /^```/ { file = "" }
    file { print > file }' docs/language.md
passed=0 failed=0
for f in "$work"/*.cell; do
    "$cellc" explain "$f" --import-dir specs >"$f.out" 2>&1
    rc=$?
    want=0
    case $f in */bad_*) want=1 ;; esac
    if [[ $rc == "$want" ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        line=$(basename "$f" .cell | tr -dc 0-9)
        echo "docs/language.md, the block after line $line: exit code $rc, wanted $want"
        sed 's/^/    /' "$f.out" | head -20
    fi
done
if [[ $passed -lt 25 ]]; then
    echo "only $passed examples found in docs/language.md"
    failed=$((failed + 1))
fi
# The table of docs/design.md that says where things are: files, and names that stand in them as words.
places=0
while IFS='|' read -r _ question where _; do
    file=
    for word in $(grep -oE '`[^`]+`' <<<"$where" | tr -d '`'); do
        places=$((places + 1))
        if [[ $word == */* ]]; then
            file=$word
            [[ -e $file ]]
        else
            grep -qw "$word" "$file"
        fi && passed=$((passed + 1)) && continue
        failed=$((failed + 1))
        echo "docs/design.md:$question: there is no \`$word\`${file:+ in $file}"
    done
done < <(sed -n '/^## Where to find it/,$p' docs/design.md | grep '^| ' | tail -n +3)
if ((places < 40)); then
    echo "only $places places found in docs/design.md"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
