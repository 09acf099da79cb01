#!/bin/bash
# Tests files of weights (cell_weights.h): weights.py builds them from the format's description, whole and
# broken, and looks at what a program wrote. The program, and what reads and writes files in it, run under
# AddressSanitizer and UBSan. In: BUILD, CC. FULL=1 changes bytes of headers 400 times. Ends with "N passed,
# N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if ! ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined \
    -fno-sanitize-recover=undefined -Iruntime tests/weights/weights.c runtime/weights.c runtime/safetensors.c \
    "${BUILD:-build}/libcell.a" -lm -ldl -lpthread -o "$dir/weights"; then
    echo "0 passed, 1 failed"
    exit 1
fi
python3 tests/weights/weights.py "$dir/weights"
