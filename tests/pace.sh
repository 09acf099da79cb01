# pace.sh: limits of CPU time that hold on slower machines, too; sourced. In: CC. A limit is written for the
# machine that the promise was measured on, and grows with the time that tests/pace.c takes here, up to four
# times; it never shrinks. So a slow machine, or one whose caches others use, does not look like a slow
# compiler, and one that takes twice as long does.
# shellcheck shell=bash

pace_there=47000                 # what it took where limits were written: a Xeon at 2.5 GHz, nothing else running

# paced N: a limit of N on this machine, a whole number
paced() {
    local here
    here=$(mktemp) || return
    ${CC:-cc} -std=c11 -O2 -o "$here" "$(dirname "${BASH_SOURCE[0]}")/pace.c" || { rm -f "$here"; return 1; }
    awk -v limit="$1" -v took="$("$here")" -v there=$pace_there 'BEGIN {
        times = took / there
        printf "%d\n", limit * (times < 1 ? 1 : times > 4 ? 4 : times) + 0.999 }'
    rm -f "$here"
}
