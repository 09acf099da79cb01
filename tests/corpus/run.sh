#!/bin/bash
# Every text that cellc makes, hashed (instances.sh says of what): a change of the compiler that should not change what it makes
# changes no hash. tests/corpus/hashes has a line per spec. Where one differs, the texts are made with the compiler of the commit
# that the hashes are from, too, and the differences are shown. `make corpus` shows all of them, `make corpus ACCEPT=1` takes the
# new texts as right. Constants that cellc computes come from the C library's exp, tanh, ..., so that another one than glibc
# may print another last digit.
#   ONLY=regex   of these specs alone
#   SHOW=n       lines of differences (40)
set -u
export CELLC_VERIFY_PASSES=1
export LC_ALL=C
cellc=$(realpath "${CELLC:-build/cellc}")
jobs=${JOBS:-2} show=${SHOW:-40}
hashes=tests/corpus/hashes
. tests/slots.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bash tests/corpus/instances.sh | grep -E "^[^ ]*(${ONLY:-.})" | awk '{ printf "%05d %s\n", NR, $0 }' >"$work/instances"
texts() { # CELLC DIR < lines of instances: all texts, in batches
    xargs_slots -r -d '\n' -n 24 -- bash -c 'cellc=$1 dir=$2; shift 2; printf "%s\n" "$@" |
        bash tests/corpus/texts.sh "$cellc" "$dir"' batch "$1" "$2"
}
KEEP='' texts "$cellc" "$work/new" <"$work/instances" | sort >"$work/results"

# A line per spec: its name, how many instances, and the hash of theirs.
join -o 1.2,2.2 "$work/instances" "$work/results" | awk '
    $1 != spec { if (NR > 1) print spec, n, text; spec = $1; n = 0; text = "" }
    { n++; text = text ":" $2 }
    END { print spec, n, text }' | while read -r spec n text; do
    echo "$spec $n $(sha256sum <<<"$text" | cut -c 1-16)"
done >"$work/hashes"
sed "s|^|^|; s| .*| |" "$work/hashes" >"$work/specs"

failed=$(grep -cv ' ok$' "$work/results")
passed=$(grep -c ' ok$' "$work/results")
join "$work/instances" <(grep -v ' ok$' "$work/results") | sed -E 's/^[0-9]+ (.*) [0-9a-f]{16} /FAIL \1: /'
(($(wc -l <"$work/instances") == passed + failed)) || failed=$((failed + 1))

if [[ -n ${ACCEPT:-} ]]; then
    { grep -vf "$work/specs" "$hashes" 2>/dev/null; cat "$work/hashes"; } |
        while read -r spec rest; do [[ -e $spec ]] && echo "$spec $rest"; done | sort >"$work/accepted"
    cp "$work/accepted" "$hashes"
fi
[[ -n ${ONLY:-} ]] && grep -f "$work/specs" "$hashes" >"$work/right" || cp "$hashes" "$work/right"
changed=$(comm -3 <(sort "$work/right") <(sort "$work/hashes") | awk '{ print $1 }' | sort -u)
passed=$((passed + $(comm -12 <(sort "$work/right") <(sort "$work/hashes") | wc -l)))

# The compiler that the hashes are from, of the texts that changed.
old_compiler() {
    local commit
    commit=$(git log -1 --format=%H -- "$hashes" 2>/dev/null) && [[ -n $commit ]] || return
    mkdir -p "$work/tree" && git archive "$commit" | tar -x -C "$work/tree" || return
    make -s -C "$work/tree" -j"$jobs" NOCUDA=1 build/cellc >"$work/make.log" 2>&1
}
if [[ -n $changed ]]; then
    for spec in $changed; do
        echo "FAIL the texts of $spec are not those of $hashes"
    done | head -n 20
    failed=$((failed + $(wc -w <<<"$changed")))
    echo "$(wc -w <<<"$changed") specs have other texts; where they are right: make corpus ACCEPT=1"
    if ! old_compiler; then
        echo "the compiler that $hashes is from could not be built, so no differences are shown"
    else
        grep -F "$(sed 's/$/ /' <<<"$changed")" "$work/instances" | head -n 200 >"$work/some"
        texts "$cellc" "$work/new" <"$work/some" >/dev/null
        texts "$work/tree/build/cellc" "$work/old" <"$work/some" >/dev/null
        while read -r number instance; do
            diff -rU2 "$work/old/$number" "$work/new/$number" >"$work/diff" ||
                { echo "--- $instance" && sed "s|$work/||g" "$work/diff"; }
        done <"$work/some" | head -n "$show"
    fi
fi
echo "$passed passed, $failed failed"
((failed == 0))
