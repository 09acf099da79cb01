#!/bin/bash
# The instances of the corpus, a line each: SPEC and the options of cellc. Every spec of specs/ in three
# types, with every value of its options, under every schedule and every form of products, with lengths and
# in reverse, some of them packed, with slots, or with lengths in reverse; every construct of
# tests/constructs/ in two types, under two schedules and one form of products. Types, and the schedules of
# constructs, take turns, so that each pair of values still occurs over the specs.
set -u
export LC_ALL=C
turn=0 others=0
schedules=(steps map tile gemm scan window) forms=(plain parts fused)
other() { # the type that is next
    turn=$((turn + 1))
    ((turn % 2)) && type=f32 || type=bf16
}
for spec in specs/*.cell tests/constructs/*.cell; do
    grep -qE '^ *cell ' "$spec" || continue
    echo "$spec --dtype f32"
    echo "$spec --dtype bf16"
    now=("${schedules[@]}") products=("${forms[@]}")
    if [[ $spec == specs/* ]]; then
        other
        [[ $type == f32 ]] && echo "$spec --dtype f64" || echo "$spec --dtype f16"
    else
        others=$((others + 1))
        now=("${schedules[others % 6]}" "${schedules[(others / 6 + others + 1) % 6]}")
        products=("${forms[others % 3]}")
    fi
    while read -r name values; do
        for value in $values; do
            other
            echo "$spec --set $name=$value --dtype $type"
        done
    done < <(sed -nE 's/^ *option +([A-Za-z_0-9]+) *= *[A-Za-z_0-9]+ *\|([^;]*);.*/\1 \2/p' "$spec" | tr -d '|')
    for schedule in "${now[@]}"; do
        other
        echo "$spec --schedule $schedule --dtype $type"
    done
    for form in "${products[@]}"; do
        [[ $form == fused ]] && type=bf16 || type=f32
        echo "$spec --products $form --dtype $type"
    done
    other
    echo "$spec --lengths --dtype $type"
    other
    echo "$spec --reverse --dtype $type"
    case $spec in                # of each schedule that takes packed sequences some
    specs/e79.cell | specs/e88.cell | specs/gated_delta.cell | specs/retnet.cell | specs/mingru.cell | \
        specs/s5.cell | specs/conv4_silu.cell | specs/layernorm.cell)
        echo "$spec --packed --dtype bf16"
        ;;
    esac
    case $spec in                # of stores of sessions, and of padded sequences that are walked backwards
    specs/e79.cell | specs/lstm.cell | specs/mingru.cell)
        echo "$spec --slots --dtype bf16"
        echo "$spec --lengths --reverse --dtype f32"
        ;;
    esac
done
