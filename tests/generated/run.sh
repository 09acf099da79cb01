#!/bin/bash
# The files in generated/ are kept so that people can see what cellc writes; this writes them again and
# compares. After a change of what is generated: make generated, read the difference, commit it.
set -u
cd "$(dirname "$0")/../.."
cellc=${CELLC:-${BUILD:-build}/cellc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
for spec in e79 lstm; do
    "$cellc" emit "specs/$spec.cell" -o "$dir" >/dev/null || failed=$((failed + 1))
done
for name in $(ls "$dir" generated | grep '^[a-z0-9_]*\.[a-z]*$' | sort -u); do
    if diff -u "generated/$name" "$dir/$name" >"$dir.diff" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "generated/$name is not what cellc writes now (make generated)"
        head -n 12 "$dir.diff"
    fi
done
rm -f "$dir.diff"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
