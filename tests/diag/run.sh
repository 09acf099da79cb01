#!/bin/bash
# Compares what `cellc explain NAME.cell` says on stderr with NAME.err, for every NAME here. sem_* is about
# meaning, the rest about form. `run.sh --bless` writes the .err files anew: read each as a user would.
# `run.sh NAME...` does these only.
set -u
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
cellc=${CELLC:-$root/${BUILD:-build}/cellc}
bless=
if [[ ${1:-} == --bless ]]; then
    bless=1
    shift
fi
names=("$@")
if [[ ${#names[@]} == 0 ]]; then
    names=()
    for f in *.cell; do names+=("${f%.cell}"); done
fi
passed=0 failed=0
got=$(mktemp)
trap 'rm -f "$got"' EXIT
for name in "${names[@]}"; do
    "$cellc" explain "$name.cell" 2>"$got" >/dev/null
    rc=$?
    if [[ -n $bless ]]; then
        cp "$got" "$name.err"
    fi
    want=0
    grep -qE '^([^:]+:[0-9]+:[0-9]+|cellc): error: ' "$name.err" 2>/dev/null && want=1
    if ! diff -u "$name.err" "$got"; then
        echo "$name: the text differs"
    elif [[ $rc != "$want" ]]; then
        echo "$name: exit code $rc, wanted $want"
    else
        passed=$((passed + 1))
        continue
    fi
    failed=$((failed + 1))
done
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
