#!/bin/bash
# Kernels of linear recurrences in chunks (runtime/device/cell_device_chunk*.cuh), forward and backward, against the step, and
# that the cases see faults in them. In: CXX, NVCC, BUILD, FULL. Out: what failed, `N passed, N failed[, N skipped]` as the last
# line. On the emulator, and on the GPU where there is one. Without FULL=1: f64, and bf16 of some members; with
# it all types with reports of the sanitizers, more numbers of steps, and the faults of faults.txt.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034
program=device_chunk.cu family=chunk
# shellcheck source=tests/emulator/device_suite.sh
. "$here/../emulator/device_suite.sh"

# Of 16 bits where the fault is of parts.
# shellcheck disable=SC2317
fault_type() {
    [[ $1 =~ ^(back_warps|pairs|scores|chain|apart)$ ]] && echo 4 || echo 1
}
if [[ -n $full ]]; then
    for type in 1 2 4 8; do cases 1 32767 $type; done
    faults fault_type
else
    cases 0 22367 1
    cases 0 10550 4
fi
on_gpu 1 2 4 8
finish
