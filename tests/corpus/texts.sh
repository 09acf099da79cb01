#!/bin/bash
# All texts of instances: `texts.sh CELLC DIR` reads lines of instances.sh, and of each writes DIR/N/... : the files of cellc emit
# -o, "explain" and "said" (messages and exit codes). N is the line's number, which stands before it. Prints a line for each:
# N HASH VERDICT, "ok" or what is wrong: an exit code that is not 0, nor 1 with a message where a schedule was forced; a line
# beyond 110 columns; explain without totals. KEEP= removes the texts when they are counted.
set -u
export LC_ALL=C
unset CELLC_TUNED CELLC_TUNE_TIMES
cellc=$1 to=$2
while read -r number spec options; do
    dir=$to/$number
    mkdir -p "$dir/files"
    # shellcheck disable=SC2086
    "$cellc" emit "$spec" $options --import-dir specs -o "$dir/files" >/dev/null 2>"$dir/said"
    rc=$?
    # shellcheck disable=SC2086
    "$cellc" explain "$spec" --all $options --import-dir specs >"$dir/explain" 2>>"$dir/said"
    rc=$rc,$?
    echo "exit codes $rc" >>"$dir/said"
    verdict=ok
    if [[ $rc == 0,0 ]]; then
        if long=$(awk 'length > 110 { print FILENAME ":" FNR; exit 1 }' "$dir"/files/*.c "$dir"/files/*.cu "$dir"/files/*.h \
            "$dir/explain" 2>/dev/null); then
            grep -q '^  in all: .* flops and ' "$dir/explain" || verdict="explain gives no totals"
        else
            verdict="a line of more than 110 columns: ${long#"$dir"/}"
        fi
    elif [[ $rc != 1,1 || $options != *--schedule* ]] || (($(wc -l <"$dir/said") < 2)); then
        verdict="exit codes $rc: $(head -n 1 "$dir/said")"
    fi
    hash=$(cd "$dir" && cat files/* explain said 2>/dev/null | sha256sum | cut -c 1-16)
    echo "$number $hash $verdict"
    [[ -n ${KEEP-1} ]] || rm -rf "$dir"
done
