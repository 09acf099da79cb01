#!/bin/bash
# What `cellc explain NAME.cell` warns of is exactly NAME.err (`run.sh --bless` writes these anew: read each
# as a user would). Where there is NAME_fast.cell, it has what the notes of NAME say to write, nothing is
# said of it, and another schedule takes it, or its steps start fewer kernels. Then how such warnings are
# turned off, and that no other command says them more than once; and which values are kept, and which are
# made anew.
set -u
cd "$(dirname "$0")" || exit 1
root=$(cd ../.. && pwd)
cellc=${CELLC:-$root/${BUILD:-build}/cellc}
bless=
[[ ${1:-} == --bless ]] && bless=1
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ok() { # what: the result of the command before
    if [[ $? == 0 ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1"
    fi
}

warned() { # SPEC, options: the performance warnings and their notes
    "$cellc" explain "$@" 2>&1 >/dev/null | grep -c 'performance warning: '
}

said() { # NAME, label: what stands in the summary's row
    "$cellc" explain "$1.cell" -Wno-performance | tr '\n' ' ' | tr -s ' ' | sed "s/.* $2 //; s/ work .*//"
}

steps() { # NAME: "SCHEDULE, kernels of a step"
    local operations
    operations=$(said "$1" operations)
    echo "$(said "$1" schedule | cut -d: -f1),$(grep -o '[0-9]* at each step' <<<"$operations" |
        awk '{ n += $1 } END { print n + 0 }')"
}

for spec in *.cell; do
    name=${spec%.cell}
    [[ -f $name.err || -n $bless ]] || touch "$name.err"
    "$cellc" explain "$spec" 2>"$work/said" >/dev/null
    ok "$name: cellc explain failed"
    [[ -n $bless ]] && cp "$work/said" "$name.err"
    diff -u "$name.err" "$work/said"
    ok "$name: the text differs"
done

for spec in *_fast.cell; do
    fast=${spec%.cell} slow=${spec%_fast.cell}
    [[ ! -s $fast.err ]]
    ok "$fast: something is said of it"
    tr -d ' \n' <"$spec" >"$work/text"
    grep '^cellc: note: ' "$slow.err" | grep -o '`[^`]*`' | tr -d '` ' | sort -u >"$work/parts"
    [[ -s $work/parts ]]
    ok "$slow: no text is told"
    while read -r part; do
        grep -qF -- "$part" "$work/text"
        ok "$fast has no '$part', which $slow is told to write"
    done <"$work/parts"
    [[ $(steps "$slow") != "$(steps "$fast")" ]]
    ok "$fast is walked as $slow is: $(steps "$fast")"
done

# A size that a note says to bind: then one kernel walks all steps, and nothing is said.
for spec in fast_weights normed_gates; do
    grep -q 'not block: .*has a size that only the call says; bind it' "$spec.err"
    ok "$spec: no size is told"
    [[ $(warned "$spec.cell") == 1 && $(warned "$spec.cell" --dim H=32) == 0 ]]
    ok "$spec: is to be warned of once, and with H bound not at all"
    "$cellc" explain "$spec.cell" --dim H=32 | grep -q '^  schedule  *block: '
    ok "$spec: with H bound block does not take it"
done
# Of one direction alone.
"$cellc" explain ../../specs/e9.cell 2>&1 >/dev/null |
    grep -q 'warning: no kernel walks over the forward steps of e9: each step starts 4 kernels forward (schedule gemm)'
ok "e9: its forward steps are no kernel's, its backward steps are"

# Turned off, and not said of a schedule that was asked for.
[[ $(warned norm.cell) == 1 && $(warned norm.cell -Wno-performance) == 0 &&
    $(warned norm.cell --schedule steps) == 0 ]]
ok "norm: -Wno-performance, or a schedule that was asked for"
[[ $(warned norm.cell -Wno-performance -Wperformance) == 1 ]]
ok "norm: -Wperformance turns them on again"
"$cellc" explain norm.cell -Wno-speed 2>&1 |
    grep -q "^cellc explain: -W takes one of performance, no-performance, not 'no-speed'"
ok "-Wno-speed is refused"
# Once, by each command that plans kernels, and by none that does not.
[[ $("$cellc" emit norm.cell -o "$work/out" 2>&1 >/dev/null | grep -c 'performance warning: ') == 1 ]]
ok "cellc emit -o says it once"
{
    "$cellc" emit norm.cell
    "$cellc" emit norm.cell --no-cuda -o "$work/out"
} 2>"$work/said" >/dev/null
[[ ! -s $work/said ]]
ok "cellc emit without kernels says nothing"
"$cellc" explain norm.cell --diagnostics json 2>&1 >/dev/null |
    grep -q '^{"level": "performance warning", .*"notes": .*not gemm'
ok "as JSON it has its kind, and its notes"
# values/: what is made anew where it is read, and what is kept, by the cost of either. A value has the same
# plan under a name as written out, and no memory grows with its elements.
for cell in named written dear; do
    "$cellc" explain "values/$cell.cell" --all --schedule steps >"$work/$cell" 2>&1
    grep -E '^ +[0-9]+ +(before|during|after) |^  (reserve|workspace) ' "$work/$cell" | grep -v ' - ' |
        sed -E 's/ v[0-9]+/ v/g; s/ +/ /g' >"$work/$cell.plan"
done
[[ -s $work/named.plan ]] && diff "$work/named.plan" "$work/written.plan"
ok "values: a value with a name has another plan than the same written out"
grep -q '  act .* where it is read  made anew ' "$work/named" &&
    ! grep -E '^  (reserve|workspace) .*H\*H\*B' "$work/named"
ok "values/named: act is kept, or not said to be made anew"
grep -q '  far .* reserve  *saved ' "$work/dear" && ! grep -q 'where it is read' "$work/dear"
ok "values/dear: far is made anew for each reader"
# All values that a sum over the past reads are computed once for a row, however many they are.
"$cellc" emit ../constructs/past_many.cell --kind cuda 2>/dev/null | grep -q 'cell_smem<float> tile_16 = '
ok "past_many: of 17 values over the past one is made for each element that reads it"
# What a walk in chunks gives back to the step lies in the type of the arithmetic: products take a copy of it
# in 16 bits, as they are the same ones in f32.
products() { # TYPE: of the launch plan
    "$cellc" emit ../../specs/gdn.cell --schedule chunk --dtype "$1" -o "$work/out" >/dev/null 2>&1
    grep -c 'kind = CELL_OP_GEMM' "$work/out/gdn.c"
}
[[ $(products f32) == "$(products bf16)" && $(products f32) == "$(products f16)" ]]
ok "gdn: in chunks, fewer gradients are products in 16 bits than in f32"
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
