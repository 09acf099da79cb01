#!/bin/bash
# The specs of which PyTorch has the operator against it, on the CPU: outputs and gradients by `cellc check --vectors`.
# Skipped, which is said, where python has no torch. In: CELLC, PYTHON (python3). Out: what failed, and the sum as the
# last line.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cellc=${CELLC:-$root/${BUILD:-build}/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "comparison with PyTorch: skipped, $python has no torch"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
passed=0 failed=0
if ! "$python" "$here/vectors.py" "$work" >"$work/list"; then
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
done <"$work/list"
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
