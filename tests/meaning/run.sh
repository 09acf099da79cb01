#!/bin/bash
# Checks what each construct of the language means: every cell here goes through `cellc check`, which compares
# the compiled reference and its gradients with the evaluator, which shares nothing with the compiler.
set -u
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
cellc=${CELLC:-$root/${BUILD:-build}/cellc}
passed=0 failed=0
for f in *.cell; do
    if out=$("$cellc" check "$f" --import-dir "$root/specs" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$f:"
        grep -v '^largest' <<<"$out" | head -10 | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
