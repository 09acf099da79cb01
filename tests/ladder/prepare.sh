#!/bin/bash
# Generates the sources of the ladder's instances. In: DIR, and instances as tests/ladder/matrix.sh prints
# them (FULL counts there; ONLY is a regular expression on their names), or another script, MATRIX, where SPEC
# may be the path of a file too; CELLC is the compiler. Out: DIR/NAME/ with the files of each instance, and
# DIR/list with a line `NAME CELL SIZES...` each. Those that cpu_takes names have kernels for the CPU beside.
# What does not compile is reported, and the exit code is 1. With COVER=1, and without ONLY, only those that
# cover.awk chooses are there, without those that have the texts, but for the word bf16 or f16, and the sizes
# of one before them. DIR/plain names those whose kernels go without AddressSanitizer (sanitizer_takes): with
# ONLY, and with SANITIZED=all, there is no such file. With CHOSEN=SUITE, and without ONLY, only those are
# there that the list `chosen` beside this takes, and those that it does not know.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=${1:?usage: prepare.sh DIR}
cellc=${CELLC:-$root/build/cellc}
mkdir -p "$dir"
: >"$dir/list"
failed=0
declare -A taken in_turn texts named
choose=(cat)
[[ -z ${COVER:-} ]] || choose=(sed 's/|[^|]*$//')
rm -f "$dir"/{plain,unknown}
bash "${MATRIX:-$here/matrix.sh}" >"$dir/matrix"
covering=
if [[ -n ${COVER:-} && -z ${ONLY:-} ]]; then
    choose=(awk -f "$here/cover.awk") covering=1
fi
[[ -n ${ONLY:-} || ${SANITIZED:-} == all ]] || : >"$dir/plain"
# Whether AddressSanitizer looks at an instance: at the first with a schedule in 16 bits, with one in a wider
# type, and with each option of time. Instances without a named schedule have no turn; kernels of more than
# 200,000 letters, which it makes four times as long to compile, leave theirs to the next.
sanitizer_takes() { # options, kernels
    local schedule width=wider what turn=1
    (($(wc -c <"$2") < 200000)) || return 1
    schedule=$(grep -oE -- '--schedule [a-z]+' <<<"$1") || return 1
    [[ ! $1 =~ --dtype\ [a-z]*16 ]] || width=16
    for what in "$schedule $width" $(grep -oE -- '--(reverse|lengths|packed)' <<<"$1"); do
        ((in_turn[$what] = ${in_turn[$what]:-0} + 1))
        ((in_turn[$what] > 1)) || turn=0
    done
    ((turn == 0))
}

# Whether the instance of a line also runs on the backend `cpu`, whose plan hangs on no schedule. CPU: all (where
# FULL is set), once for all lines of the same spec, options and sizes; some, each spec in f32 and in one other
# type; none.
cpu_takes() { # spec, options, sizes
    local key
    [[ -n ${CPU:-${FULL:-}} && ${CPU:-} != none ]] || return 1
    key="$1 $(sed -E 's/--(schedule|products|archs) [^ ]+//g' <<<"$2") $3"
    case ${CPU:-${FULL:+all}} in
    all) ;;
    some) [[ $2 == *--dtype\ f32* ]] && key="$1 f32" || key="$1 other" ;;
    *) return 1 ;;
    esac
    [[ -z ${taken[$key]:-} ]] && taken[$key]=1
}

# The hash of an instance's kernels and launch plan without comments, blanks, and the word for a type of 16
# bits.
text_of() { # folder, cell
    sed 's,//.*,,; s/b\?f16/h16/Ig; /\.program = /d' "$1/$2.cu" "$1/$2.c" |
        tr -d ' \t\n' | sha256sum
}

while read -r line; do
    read -r name spec options <<<"${line%% | *}"
    [[ $name =~ ${ONLY:-.} ]] || continue
    if [[ -n ${named[$name]:-} ]]; then
        echo "FAIL $name: two instances have that name"
        failed=1
        continue
    fi
    named[$name]=1
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
    if [[ -n $covering ]]; then
        key="$spec ${line##* | } $(text_of "$new" "$spec")"
        if [[ -n ${texts[$key]:-} ]]; then
            rm -rf "$new" "${dir:?}/$name" "$dir/$name.err"
            continue
        fi
        texts[$key]=1
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
    if [[ -d $dir/$name ]]; then
        for file in "$new"/*; do
            cmp -s "$file" "$dir/$name/${file##*/}" || mv "$file" "$dir/$name/"
        done
        rm -rf "$new"
    else
        mv "$new" "$dir/$name"
    fi
    echo "$name $spec ${line##* | }" >>"$dir/list"
    if [[ -e $dir/plain ]]; then
        sanitizer_takes "$options" "$dir/$name/$spec.cu" || echo "$name" >>"$dir/plain"
    fi
done < <(if [[ -n ${CHOSEN:-} && -z ${ONLY:-} ]]; then
    "${choose[@]}" <"$dir/matrix" >"$dir/candidates"
    awk -v SUITE="$CHOSEN" -v ROOT="$root" -f "$here/chosen.awk" file=1 "$here/chosen" \
        file=2 "$dir/matrix" file=3 "$dir/candidates" 2>"$dir/unknown"
else
    "${choose[@]}" <"$dir/matrix"
fi)
if [[ -s $dir/unknown ]]; then
    cat "$dir/unknown"
    failed=1
fi
exit $failed
