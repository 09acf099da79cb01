#!/bin/bash
# The specs that read at integer places against PyTorch on the CPU: outputs and gradients by `cellc check --vectors`.
# Skipped, which is said, where python3 has no torch. In: CELLC. Out: what failed, and the sum as the last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cellc=${CELLC:-$root/${BUILD:-build}/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! python3 -c 'import torch' 2>/dev/null; then
    echo "comparison with PyTorch: skipped, python3 has no torch"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
passed=0 failed=0
if ! python3 "$here/vectors.py" "$work"; then
    echo "vectors.py fails"
    echo "0 passed, 1 failed"
    exit 1
fi
while read -r file spec settings; do
    # shellcheck disable=SC2086
    out=$("$cellc" check "$root/specs/$spec.cell" --vectors "$work/$file.vec" $settings 2>&1)
    if [[ $(tail -n 1 <<<"$out") =~ ^([1-9][0-9]*)\ passed,\ 0\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
    else
        failed=$((failed + 1))
        echo "$spec $settings:" && head -n 5 <<<"$out" | sed 's/^/    /'
    fi
done <<'LIST'
embedding embedding
plain cross_entropy
smoothed cross_entropy --set smoothing=uniform
ignored cross_entropy --set smoothing=uniform --set ignore=index
LIST
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
