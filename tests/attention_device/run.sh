#!/bin/bash
# Attention's kernels (runtime/device/cell_device_attention*.cuh), forward and backward, against sums pair by
# pair, and that the cases see faults in them. In: CXX, NVCC, BUILD, FULL. Out: what failed, `N passed, N
# failed[, N skipped]` as the last line. On the emulator, and on the GPU where there is one. Without FULL=1:
# bf16, and f64 and f32 of some members with reports of the sanitizers; with it all types with them, and the
# faults of faults.txt.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034
program=device_attention.cu family=attention
# shellcheck source=tests/emulator/device_suite.sh
. "$here/../emulator/device_suite.sh"

# shellcheck disable=SC2317
fault_type() { echo 4; }
if [[ -n $full ]]; then
    for type in 1 2 4 8; do cases 1 255 $type; done
    faults fault_type
else
    cases 1 255 4
    cases 0 40 1
    cases 0 6 2
fi
on_gpu 1 2 4 8
finish
