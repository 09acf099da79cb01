#!/bin/bash
# Random cells through the kernels: each is compiled with the schedule that the planner takes and with
# `steps`, in double, and run on the emulator against its reference, over the sizes and identities of
# tests/ladder. Half as many that have a rounded definition, the first such cells from the same seed on, are
# compiled with the planner's schedule in bf16 or, those of odd seeds, in f16. LINEAR (2) cells that are
# linear in their states, the first from the seed on that it takes, go by schedule chunk, in double, but the
# last in bf16. Of gated cells the first from the seed on with a resident walk by the grid, by a block, by a
# cluster, or of columns, that those before do not have (WALKS, all four), go by schedule gemm in bf16 or f16.
# What the planner takes by itself, and the linear cells, also run on the backend `cpu`. AddressSanitizer
# looks at those of even seeds but `steps`, chunks and walks, with FULL=1 at those of odd ones and walks too.
# In: N cells (6) from SEED (1), BUILD, CELLC. Out: what failed, and the sum as the last line, in which values
# that hang on roundings at all sizes count as skipped.
set -u
# shellcheck source=tests/ladder/emulated.sh
source "$(dirname "$0")/../ladder/emulated.sh"
n=${N:-6} seed=${SEED:-1}
# A cell that was drawn may have a value that hangs on roundings at all of its sizes.
export LADDER_DECIDED=0
if ! sanitizes; then
    echo "random kernels: no C++ compiler with AddressSanitizer"
    skipped=1
    finish
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
on_cpu() { # cell, type, file of its kernels for the CPU
    "$CELLC" emit "$1" --kind cpu --dtype "$2" "${settings[@]}" >"$3" 2>"$out/err" && return
    echo "$1, --kind cpu: $(head -n 1 "$out/err")"
    failed=$((failed + 1))
    rm -f "$3"
}

sanitized() { [[ -n ${FULL:-} || $(($1 % 2)) == 0 ]]; } # seed

# One schedule of the cell of seed $1 in one type.
instance() {
    local i=$1 schedule=$2 type=$3
    local name=seed${i}_${schedule}_$type
    mapfile -t settings < <(head -n 1 "$out/random.cell" | grep -o -- '--[a-z]*')
    if (ulimit -v 4000000; exec timeout 60 "$CELLC" emit "$out/random.cell" --schedule "$schedule" --dtype "$type" "${settings[@]}" \
        -o "$out/$name") >/dev/null 2>"$out/err"; then
        if [[ $schedule == steps && -d $out/seed${i}_auto_$type ]] &&
            cmp -s "$out/$name/random.cu" "$out/seed${i}_auto_$type/random.cu" &&
            cmp -s "$out/$name/random.c" "$out/seed${i}_auto_$type/random.c"; then
            alike=$((alike + 1))
            return
        fi
        [[ $schedule != auto ]] || on_cpu "$out/random.cell" "$type" "$out/$name/random_cpu.c"
        echo "$name random 1,1,7,5 2,3,3,4 1,6,1,2" >>"$out/list"
        [[ $schedule != steps ]] && sanitized "$i" || echo "$name" >>"$out/plain"
    elif grep -q 'has no state: only --schedule map' "$out/err"; then
        :                         # a cell without a state has no steps
    else
        echo "$name: cellc emit fails: $(head -n 1 "$out/err")"
        failed=$((failed + 1))
    fi
}

# The cell of seed $1; false where it has none: no draw has values that can be checked, or, which is a failure, anything else.
draw() {
    "$CELLC" random --seed "$1" >"$out/random.cell" 2>"$out/err" && return
    grep -q 'no draw can be checked' "$out/err" || { echo "seed $1: $(head -n 1 "$out/err")"; failed=$((failed + 1)); }
    false
}

alike=0
for ((i = seed; i < seed + n; i++)); do
    draw "$i" || continue
    instance "$i" auto f64
    instance "$i" steps f64
done
rounded=0
for ((i = seed; rounded < (n + 1) / 2 && i < seed + 1000; i++)); do
    draw "$i" || continue
    if grep -q ': dtype = ' "$out/random.cell"; then
        instance "$i" auto "$([[ $((i % 2)) == 0 ]] && echo bf16 || echo f16)"
        rounded=$((rounded + 1))
    fi
done
# Chunks of the linear cell of seed $1 in one type; false: the schedule refuses it.
linear() {
    local i=$1 type=$2 dims sizes name=linear${1}_$2
    "$CELLC" random --linear --seed "$i" >"$out/linear.cell"
    mapfile -t settings < <(head -n 1 "$out/linear.cell" | grep -o -- '--[a-z]*')
    if ! "$CELLC" emit "$out/linear.cell" --schedule chunk:rows=16 --dtype "$type" "${settings[@]}" \
        -o "$out/$name" >/dev/null 2>"$out/err"; then
        grep -q -- '--schedule chunk cannot take cell' "$out/err" && return 1
        echo "$name: cellc emit fails: $(head -n 1 "$out/err")"
        failed=$((failed + 1))
        return 1
    fi
    dims=$(grep -oE '^ *dim [^=]*;' "$out/linear.cell" | tr -d ' ;' | sed 's/^dim//' | tr ',\n' '  ')
    sizes=$(for size in "1,1 2 1 1 1" "2,2 5 3 2 2" "1,17 3 18 2 1" "2,35 17 5 2 3"; do
        read -ra words <<<"$size"
        line=${words[0]}
        for dim in $dims; do
            case $dim in
            N) line+=,${words[1]} ;;
            V) line+=,${words[2]} ;;
            R) line+=,${words[4]} ;;
            *) line+=,${words[3]} ;;
            esac
        done
        echo "$line"
    done)
    on_cpu "$out/linear.cell" "$type" "$out/$name/linear_cpu.c"
    echo "$name linear ${sizes//$'\n'/ }" >>"$out/list"
    echo "$name" >>"$out/plain"
}
chunked=0 tried=0
for ((i = seed; chunked < ${LINEAR:-2} && i < seed + 1000; i++)); do
    tried=$((tried + 1))
    linear "$i" "$( ((chunked + 1 < ${LINEAR:-2})) && echo f64 || echo bf16)" || continue
    chunked=$((chunked + 1))
done
if ((chunked < ${LINEAR:-2})); then
    echo "chunks take $chunked of $tried linear cells, and not ${LINEAR:-2}"
    failed=$((failed + 1))
fi
# A gated cell of seed $1 in one type, where it has a walk of which `missing` has the name.
missing=" ${WALKS-steps heads cluster columns}"
gated() {
    local i=$1 type=$2 name=gated${1}_$2 cell=$out/gated.cell sizes='' new='' walk ns dims n dim
    "$CELLC" random --gated --seed "$i" >"$cell"
    mapfile -t settings < <(head -n 1 "$cell" | grep -o -- '--[a-z]*')
    if ! "$CELLC" emit "$cell" --schedule gemm --dtype "$type" "${settings[@]}" -o "$out/$name" \
        >/dev/null 2>"$out/err"; then
        echo "$name: cellc emit fails: $(head -n 1 "$out/err")"
        failed=$((failed + 1))
        return
    fi
    for walk in $missing; do
        grep -qE "gated_(fwd|bwd)_$walk\\(" "$out/$name/gated.cu" && new+=" $walk"
    done
    [[ -n $new ]] || { rm -rf "${out:?}/$name"; return; }
    for walk in $new; do
        missing=${missing/ $walk/}
        case $walk in # where it runs, batch and steps, and units
        steps) ns="chip:2,3/24 chip:18,2/31" ;;
        cluster) ns="cluster:3,3/40 cluster:9,2/67" ;;
        columns) ns="1,3/32 2,2/40" ;;
        *) ns="2,3/5 9,2/24" ;;
        esac
        for n in $ns; do
            sizes+=" ${n%/*}"
            for dim in $(grep -oE '^ *dim [^=]*;' "$cell" | tr -d ' ;' | sed 's/^dim//'); do
                [[ $dim == N ]] && sizes+=,${n#*/} || sizes+=,3
            done
        done
    done
    walks+=("seed $i$new")
    [[ -n ${FULL:-} ]] || echo "$name" >>"$out/plain"
    echo "$name gated$sizes" >>"$out/list"
}
walks=()
for ((i = seed; ${#missing} > 0 && i < seed + 100; i++)); do
    gated "$i" "$([[ $((i % 2)) == 0 ]] && echo bf16 || echo f16)"
done
if ((${#missing} > 0)); then
    echo "no gated cell has these walks:$missing"
    failed=$((failed + 1))
fi
emulate "$out"
echo "resident walks of gated cells: $(IFS=';' && echo "${walks[*]}")"
echo "random kernels: $n cells from seed $seed, of which the planner takes steps for $alike," \
    "$rounded with rounded definitions;" \
    "chunks take $chunked of $tried linear ones"
finish
