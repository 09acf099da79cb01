#!/bin/bash
# Lists the kernels of the constructs as instances of the ladder, as tests/ladder/matrix.sh prints its own: the first line
# of a cell says with which schedules, sizes and types (f64 and f32), and perhaps with what options:
# `// kernels: SCHEDULE... | B,T,DIMS... | TYPE... | OPTION...`. Of f64 and f32, which differ in what kernels are printed by
# a word and by the width of vectors, each schedule takes one in turn, beside the types of 16 bits. A cell with one schedule
# takes both, so that every cell runs in each of its types. FULL=1: all take both.
# Sizes behind `gpu:` are for a GPU.
# In: CELLS, a regular expression on the names of cells; FULL; COVER: all types, for tests/ladder/cover.awk
# to choose from.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
for file in "$here"/*.cell; do
    name=$(basename "$file" .cell)
    [[ $name =~ ${CELLS:-.} ]] || continue
    read -r line <"$file"
    printf -v turn %d "'${name: -1}"         # of the name, so that a new cell changes nothing for the others
    IFS='|' read -r schedules sizes types options <<<"${line#// kernels: }"
    read -r -a listed <<<"$schedules"
    for schedule in $schedules; do
        turn=$((turn + 1)) left=${types:-f64 f32}
        if [[ -z ${FULL:-}${COVER:-} && ${#listed[@]} -gt 1 && " $left " == *" f64 "* && " $left " == *" f32 "* ]]
        then
            left=" $left "
            [[ $((turn % 2)) == 0 ]] && left=${left/ f64 / } || left=${left/ f32 / }
        fi
        for type in $left; do
            echo "${name}_${schedule//[:=]/_}_$type $file --import-dir $root/specs --schedule $schedule" \
                "--dtype $type $options | $sizes${COVER:+ | }"
        done
    done
done
