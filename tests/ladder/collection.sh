#!/bin/bash
# Lists every spec in its default variant and once with each value of each option, as instances of the ladder. In:
# SCHEDULES (auto), TYPES (by default f32 and f64 in turn), CELLC. Out: lines as matrix.sh prints them. Bound dims get
# small sizes that differ, the others three sets: a few steps; past a checkpoint, where inputs are no narrower than
# states (what a delta rule's keys do not span is never corrected, and a norm may let its roundings grow); one step.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cellc=${CELLC:-$root/build/cellc}
bound=(4 3 5 2 2 2)
sets=("2,5," "3 2 4 2 3" "1,18," "5 3 2 4 2" "3,1," "4 1 3 1 2")
turn=0

sizes_of() { # how many run-time dims: the sizes
    local i n=$1 line= values
    for ((i = 0; i < ${#sets[@]}; i += 2)); do
        read -ra values <<<"${sets[i + 1]}"
        line+=" $(IFS=,; echo "${sets[i]}${values[*]:0:n}" | sed 's/,$//')"
    done
    echo "$line"
}

variant() { # spec, options...
    local spec=$1 schedule type name open
    shift
    # shellcheck disable=SC2086
    open=$(($("$cellc" emit --kind manifest "$root/specs/$spec.cell" $dims "$@" 2>/dev/null | sed -n 's/^ *"sizes": //; s/"history", //; /^\["B"/p' | tr -cd , | wc -c) - 3))
    local in_turn=(f32 f64)
    local types=${TYPES:-${in_turn[turn++ % 2]}}
    for schedule in ${SCHEDULES:-auto}; do
        for type in $types; do
            name=$(tr -c 'a-zA-Z0-9\n' '_' <<<"${spec}_${schedule}_$type${2:+_$2}_variant")
            echo "$name $spec --schedule $schedule --dtype $type $dims $* |$(sizes_of "$open")"
        done
    done
}

for file in "$root"/specs/*.cell; do
    spec=$(basename "$file" .cell)
    [[ $spec == std ]] && continue
    dims= n=0
    for dim in $(grep -E '^    dim ' "$file" | sed 's,//.*,,' | grep -oE '[A-Za-z0-9]+ = ' | tr -d ' ='); do
        dims+="--dim $dim=${bound[n++]} "
    done
    variant "$spec"
    while read -r option values; do
        for value in $values; do
            variant "$spec" --set "$option=$value"
        done
    done < <(sed -nE 's/^ *option ([a-z_]+) = [^|;]*\|?([^;]*);.*/\1 \2/p' "$file" | tr -d '|')
done
