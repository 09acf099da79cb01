#!/bin/bash
# docs/cells.md is what docs/cells.sh writes now. In: CELLC. Out: the difference, and the sum as the last line.
set -u
cd "$(dirname "$0")/../.."
export CELLC=${CELLC:-$PWD/${BUILD:-build}/cellc}
if bash docs/cells.sh | diff docs/cells.md - >"${TMPDIR:-/tmp}/catalogue.$$"; then
    rm -f "${TMPDIR:-/tmp}/catalogue.$$"
    echo "1 passed, 0 failed"
else
    echo "docs/cells.md is not what the specs say now: make catalogue"
    head -n 6 "${TMPDIR:-/tmp}/catalogue.$$"
    rm -f "${TMPDIR:-/tmp}/catalogue.$$"
    echo "0 passed, 1 failed"
    exit 1
fi
