#!/bin/bash
# All texts of instances: `texts.sh CELLC DIR` reads lines of instances.sh, and of each writes DIR/N/... :
# the files of cellc emit -o, "explain" and "said" (messages and exit codes). N is the line's number, which
# stands before it. Prints a line for each: N HASH VERDICT, "ok" or what is wrong: an exit code that is not
# 0, nor 1 with a message where a schedule was forced; a line beyond 110 columns; explain without totals.
# KEEP= removes the texts when they are counted. Besides cellc no process is started for an instance alone:
# a hundred of them take as long as what they look at.
set -u
export LC_ALL=C
unset CELLC_TUNED CELLC_TUNE_TIMES
cellc=$1 to=$2
mapfile -t lines
numbers=("${lines[@]%% *}")
mkdir -p "${numbers[@]/#/$to/}"
for line in "${lines[@]}"; do
    read -r number spec options <<<"$line"
    dir=$to/$number
    # shellcheck disable=SC2086
    "$cellc" emit "$spec" $options --import-dir specs -o "$dir/files" >/dev/null 2>"$dir/said"
    rc=$?
    # The passes are those of emit, which verified them.
    # shellcheck disable=SC2086
    CELLC_VERIFY_PASSES=0 "$cellc" explain "$spec" --all $options --import-dir specs \
        >"$dir/explain" 2>>"$dir/said"
    rc=$rc,$?
    echo "exit codes $rc" >>"$dir/said"
    # All texts in one file, which is hashed, and what is seen in them.
    printf '%s\n' "@ $dir $rc $options" "$dir"/files/* "$dir/explain" "$dir/said"
done | awk '
    function verdict() {
        if (!dir)
            return
        if (rc == "0,0")
            said = long ? "a line of more than 110 columns: " long : total ? "ok" : "explain gives no totals"
        else
            said = rc == "1,1" && forced && messages >= 2 ? "ok" : "exit codes " rc ": " first
        print said > (dir "/verdict")
        close(dir "/verdict")
        close(dir "/all")
    }
    /^@ / { verdict(); dir = $2; rc = $3; forced = /--schedule/; long = total = messages = 0; first = ""; next }
    {
        file = $0
        name = substr(file, length(dir) + 2)
        for (n = 1; (getline text < file) > 0; n++) {
            print text > (dir "/all")
            if (length(text) > 110 && !long && (name ~ /^files\/.*\.(c|cu|h)$/ || name == "explain"))
                long = name ":" n
            if (name == "explain" && text ~ /^  in all: .* flops and /)
                total = 1
            if (name == "said" && ++messages == 1)
                first = text
        }
        close(file)
    }
    END { verdict() }'
all=("${numbers[@]/#/$to/}")
all=("${all[@]/%//all}")
sha256sum "${all[@]}" | while read -r hash file; do
    dir=${file%/all} verdict=
    read -r verdict <"$dir/verdict"
    echo "${dir##*/} ${hash:0:16} $verdict"
done
rm -f "${all[@]}" "${all[@]/%all/verdict}"
[[ -n ${KEEP-1} ]] || rm -rf "${numbers[@]/#/$to/}"
