#!/bin/bash
# Lists the kernels of the constructs as instances of the ladder, as tests/ladder/matrix.sh prints its own: the first line
# of a cell says with which schedules, sizes and types (f64 and f32), and perhaps with what options:
# `// kernels: SCHEDULE... | B,T,DIMS... | TYPE... | OPTION...`. In: CELLS, a regular expression on the names of cells.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
for file in "$here"/*.cell; do
    name=$(basename "$file" .cell)
    [[ $name =~ ${CELLS:-.} ]] || continue
    read -r line <"$file"
    IFS='|' read -r schedules sizes types options <<<"${line#// kernels: }"
    for schedule in $schedules; do
        for type in ${types:-f64 f32}; do
            echo "${name}_${schedule}_$type $file --import-dir $root/specs --schedule $schedule --dtype $type $options | $sizes"
        done
    done
done
