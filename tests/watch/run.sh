#!/bin/bash
# `cellc watch`: saves.py saves files as editors do, and waits for what the command then prints. A few
# seconds, most of them waiting. Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
cellc=${CELLC:-$PWD/${BUILD:-build}/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
unset CELLC_HOME
exec python3 tests/watch/saves.py "$cellc"
