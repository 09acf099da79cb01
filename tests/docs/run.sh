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
# docs/design.md takes a cell through the passes: the lines below each command stand in its output, in that order; … is any
# lines, and at the end of a line any rest of it.
awk -v dir="$work" '
    /^```cell$/ { file = dir "/elman.cell"; next }
    /^```$/ { if (file) { file = ""; next } getline
              if (sub(/^\$ cellc /, "")) { file = sprintf("%s/dump_%d", dir, NR); command = $0; print command > file } next }
    file { print > file }' docs/design.md
dumps=0
for f in "$work"/dump_*; do
    [[ -e $f ]] || continue
    dumps=$((dumps + 1))
    read -r command <"$f"
    # shellcheck disable=SC2086 # words of a command
    (cd "$work" && "$cellc" $command) >"$f.out" 2>&1
    lost=$(awk 'NR == FNR { out[++n] = $0; next }
        FNR == 1 { at = 0; next }
        $0 == "…" { gap = 1; next }
        { want = $0; open = sub(/…$/, "", want)
          for (i = at + 1; i <= n; i++) {
              if (open ? index(out[i], want) == 1 : out[i] == want) break
              if (!gap) { i = n + 1; break }
          }
          if (i > n) { print; exit }
          at = i; gap = 0 }' "$f.out" "$f")
    if [[ -z $lost ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "docs/design.md: \`cellc $command\` does not print, where the page has it: $lost"
    fi
done
if ((dumps < 6)); then
    echo "only $dumps commands found in docs/design.md"
    failed=$((failed + 1))
fi
# Links between the pages, and to their sections.
links=0
while IFS= read -r page; do
    while IFS= read -r target; do
        links=$((links + 1))
        file=${target%%#*} section=
        [[ $target == *'#'* ]] && section=${target#*#}
        [[ -n $file ]] && file=$(dirname "$page")/$file || file=$page
        if [[ -e $file ]] && { [[ -z $section ]] || sed -n 's/^#\+ //p' "$file" | tr 'A-Z ' 'a-z-' | sed 's/[^a-z0-9_-]//g' |
            grep -qx -- "$section"; }; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "$page: there is no $target"
        fi
    done < <(awk '/^ *```/ { code = !code; next } !code { gsub(/`[^`]*`/, ""); print }' "$page" |
        grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:')
done < <(find . -name '*.md' -not -path './build*' -not -path './.*' | sort)
if ((links < 60)); then
    echo "only $links links found"
    failed=$((failed + 1))
fi
# docs/fast-cells.md: the first line of each block says which schedule takes the cell, whether one kernel may walk
# all steps of both directions, or forward, and whether a performance warning is said.
awk -v dir="$work" '
    /^```cell$/ { file = sprintf("%s/fast_%d.spec", dir, NR); next }
    /^```/ { file = "" }
    file { print > file }' docs/fast-cells.md
fast=0
for f in "$work"/fast_*.spec; do
    fast=$((fast + 1))
    schedule=$("$cellc" explain "$f" 2>"$f.said" | tee "$f.out" | sed -n 's/^  schedule  *\([a-z]*\):.*/\1/p')
    tr '\n' ' ' <"$f.out" | tr -s ' ' | grep -o 'operations .* work ' >"$f.operations"
    said="// $schedule"
    case $(grep -o 'one kernel for all of them' "$f.operations" | wc -l) in
    2) said+=", one kernel for all steps" ;;
    1) said+=", one kernel for all steps forward" ;;
    esac
    grep -q 'performance warning: ' "$f.said" && said+=", a performance warning"
    line=$(basename "$f" .spec | tr -dc 0-9)
    if [[ $(head -n 1 "$f") == "$said" ]] && ! grep -q ': error: ' "$f.said"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "docs/fast-cells.md, the block after line $line is '$said'"
        grep ': error: ' "$f.said"
    fi
done
if ((fast < 9)); then
    echo "only $fast blocks found in docs/fast-cells.md"
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
