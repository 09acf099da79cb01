#!/bin/bash
# Constants that the compiler and the device library share: what the planner counts with is what the kernels
# have. A C program writes the compiler's values as assertions over the device library's names, and a C++
# compiler checks them as it does for the emulator. In: BUILD, CC, CXX. Needs no GPU.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
out=$build/tests/constants
rm -rf "$out" && mkdir -p "$out"

# The compiler's, and the device library's or the runtime's.
pairs="
PANEL_POSTS             CELL_PANEL_WARPS*CELL_PANEL_POST
PANEL_THREADS           CELL_PANEL_THREADS
PANEL_TURN              CELL_PANEL_BATCH
HEAD_THREADS            CELL_HEAD_THREADS
HEAD_BATCH              CELL_HEAD_BATCH
CLUSTER_BLOCKS          CELL_CLUSTER_BLOCKS
CLUSTER_THREADS         CELL_CLUSTER_THREADS
CLUSTER_PARTS           CELL_CLUSTER_PARTS
COLUMNS_UNITS           CELL_COLUMNS_UNITS
COLUMNS_MOST            CELL_COLUMNS_MOST
COLUMNS_PIECES          CELL_COLUMNS_PIECES
COLUMNS_SLOTS           CELL_COLUMNS_SLOTS
COLUMNS_POST            CELL_COLUMNS_POST
COLUMNS_THREADS         CELL_COLUMNS_THREADS
FUSED_ROWS              CELL_PRODUCT_ROWS
FUSED_COLUMNS           CELL_PRODUCT_COLUMNS
FUSED_SMEM              CELL_PRODUCT_SMEM
FUSED_MAP_BYTES         CELL_PRODUCT_MAP_BYTES
AHEAD_ROWS              CELL_AHEAD_ROWS
CHUNK_BLOCKS            CELL_CHUNK_BLOCKS
CHUNK_STATES_THREADS    CELL_CHUNK_STATES_THREADS
CHUNK_SEGMENT           CELL_CHUNK_SEGMENT
CHUNK_FEWEST            CELL_CHUNK_FEWEST
CHUNK_JOINED            CELL_CHUNK_JOINED
CHUNK_JOIN_THREADS      CELL_CHUNK_JOIN_THREADS
SORT_DIGITS             cell_sort_digits
MAX_POINTERS            CELL_MAX_PTRS
MAX_BUFFERS             CELL_MAX_BUFFERS
MOST_TOGETHER           CELL_MAX_TOGETHER
CODES_CAPABILITY        CELL_BLASLT_CAPABILITY
"
{
    printf '#include <stdio.h>\n#include "plan/plan.h"\n#include "schedule/chunk/chunk_plan.h"\n#include "schedule/gemm/resident.h"\nint main(void)\n{\n'
    while read -r ours theirs; do
        [[ -n $ours ]] || continue
        printf '    printf("static_assert(%s == %%lld, \\"%s\\");\\n", (long long)%s);\n' \
            "$theirs" "$ours" "$ours"
    done <<<"$pairs"
    printf '    return 0;\n}\n'
} >"$out/values.c"
if ! ${CC:-cc} -std=c11 -D_GNU_SOURCE -Igen -I"$build/gen" -o "$out/values" "$out/values.c" 2>"$out/log"; then
    head -n 20 "$out/log"
    echo "0 passed, 1 failed"
    exit 1
fi
{
    printf '#include "cell_device.cuh"\n#include "cell_plan.h"\n#include "blaslt.h"\n'
    "$out/values"
} >"$out/assertions.cc"
cxx=${CXX:-$(command -v g++ || command -v clang++ || true)}
if [[ -z $cxx ]]; then
    echo "no C++ compiler"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
$cxx -std=c++17 -Wno-unknown-pragmas -Iruntime -Iruntime/device -Itests/emulator -fsyntax-only \
    "$out/assertions.cc" 2>"$out/log"
rc=$?
all=$(grep -c static_assert "$out/assertions.cc")
failed=$(grep -c 'static assertion failed' "$out/log")
((rc == 0 || failed > 0)) || failed=$all
((all == $(grep -c . <<<"$pairs"))) || failed=$((failed + 1))
grep -E 'error:' "$out/log" | head -n 20
echo "$((all - failed)) passed, $failed failed"
((failed == 0))
