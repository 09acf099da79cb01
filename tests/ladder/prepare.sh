#!/bin/bash
# Generates the sources of the ladder's instances. In: DIR, and instances as tests/ladder/matrix.sh prints
# them (FULL counts there; ONLY is a regular expression on their names), or another script, MATRIX, where SPEC may be the
# path of a file too; CELLC is the compiler. Out: DIR/NAME/ with the files of each instance, and DIR/list with a line `NAME CELL SIZES...` each.
# Those that cpu_takes names have kernels for the CPU beside. What does not compile is reported, and the exit
# code is 1.
# With COVER=1, and without ONLY, only those that cover.awk chooses are there, and DIR/plain names those
# whose kernels go without AddressSanitizer: every second one of those that have schedule, type, and options
# of time in common.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=${1:?usage: prepare.sh DIR}
cellc=${CELLC:-$root/build/cellc}
mkdir -p "$dir"
: >"$dir/list"
failed=0
declare -A taken in_turn
choose=(cat)
[[ -z ${COVER:-} ]] || choose=(sed 's/|[^|]*$//')
rm -f "$dir/plain"
if [[ -n ${COVER:-} && -z ${ONLY:-} ]]; then
    choose=(awk -f "$here/cover.awk")
    : >"$dir/plain"
fi
# Whether the instance of a line also runs on the backend `cpu`, whose plan hangs on no schedule. CPU: all (where
# FULL is set), once for all lines of the same spec, options and sizes; some, each spec in f32 and in one other
# type; none.
cpu_takes() { # spec, options, sizes
    local key
    key="$1 $(sed -E 's/--(schedule|products|archs) [^ ]+//g' <<<"$2") $3"
    case ${CPU:-${FULL:+all}} in
    all) ;;
    some) [[ $2 == *--dtype\ f32* ]] && key="$1 f32" || key="$1 other" ;;
    *) return 1 ;;
    esac
    [[ -z ${taken[$key]:-} ]] && taken[$key]=1
}

while read -r line; do
    read -r name spec options <<<"${line%% | *}"
    [[ $name =~ ${ONLY:-.} ]] || continue
    if grep -q "^$name " "$dir/list"; then
        echo "FAIL $name: two instances have that name"
        failed=1
        continue
    fi
    # Files that come out the same keep their time, so that nothing is compiled again for them.
    new=$dir/$name.new
    rm -rf "$new"
    file=$root/specs/$spec.cell
    [[ $spec != */* ]] || file=$spec spec=$(basename "$spec" .cell)
    # shellcheck disable=SC2086
    if ! "$cellc" emit "$file" $options -o "$new" >/dev/null 2>"$dir/$name.err"; then
        echo "FAIL $name: cellc emit $spec $options"
        head -n 3 "$dir/$name.err" | sed 's/^/    /'
        rm -rf "$new"
        failed=1
        continue
    fi
    if cpu_takes "$spec" "$options" "${line##* | }"; then
        # shellcheck disable=SC2086
        if ! "$cellc" emit "$file" $options --kind cpu >"$new/${spec}_cpu.c" 2>"$dir/$name.err"; then
            rm -f "$new/${spec}_cpu.c"
            # Packed sequences go by steps in the reference alone.
            if [[ $options != *--packed* ]] || ! grep -q 'has no kernels for the CPU' "$dir/$name.err"; then
                echo "FAIL $name: cellc emit $spec $options --kind cpu"
                head -n 3 "$dir/$name.err" | sed 's/^/    /'
                failed=1
            fi
        fi
    else
        rm -f "$dir/$name/${spec}_cpu.c"
    fi
    rm -f "$dir/$name.err"
    mkdir -p "$dir/$name"
    for file in "$new"/*; do
        cmp -s "$file" "$dir/$name/$(basename "$file")" || mv "$file" "$dir/$name/"
    done
    rm -rf "$new"
    echo "$name $spec ${line##* | }" >>"$dir/list"
    if [[ -e $dir/plain ]]; then
        key=$(grep -oE -- '--(schedule [a-z]+|dtype [a-z0-9]+|reverse|lengths|packed)' <<<"$options")
        ((in_turn[$key] = 1 - ${in_turn[$key]:-0})) || echo "$name" >>"$dir/plain"
    fi
done < <(bash "${MATRIX:-$here/matrix.sh}" | "${choose[@]}")
exit $failed
