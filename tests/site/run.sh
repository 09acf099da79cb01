#!/bin/bash
# The documentation site. The pages' sources are made, and compared with the tree: every spec is copied as it is, with all of
# its equations, every link leads somewhere, every function of the C interface is described. FULL=1: the site is built,
# every link of its HTML followed, and it is looked at in Chromium (browser.py); pictures go to BUILD/site-work/shots.
# In: BUILD, CELLC, FULL, CHROMIUM. Out: what failed, and the sum as the last line; what cannot be had is said, and
# counted as skipped.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD:-build}")
export CELLC=${CELLC:-$build/cellc} WORK=$build/site-work OUT=$build/site
[[ $CELLC == /* ]] || CELLC=$PWD/$CELLC
mkdir -p "$WORK"
passed=0 failed=0 skipped=0

finish() {
    echo "$passed passed, $failed failed$([[ $skipped == 0 ]] || echo ", $skipped skipped")"
    [[ $failed == 0 ]]
    exit
}
skip() {
    echo "site: $1"
    skipped=$((skipped + 1))
    finish
}
count() { # a program that says what is wrong, and in its last line how many checks passed and failed
    local said right wrong
    said=$("$@" 2>&1)
    read -r right wrong <<<"$(tail -n 1 <<<"$said")"
    if [[ $right =~ ^[0-9]+$ && $wrong =~ ^[0-9]+$ ]]; then
        passed=$((passed + right)) failed=$((failed + wrong))
        sed '$d' <<<"$said" | head -n 40
    else
        failed=$((failed + 1))
        tail -n 20 <<<"$said"
    fi
}

python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || skip "there is no Python 3.9 or newer"
sources=$WORK/checked
if python3 site/pages.py . "$sources" >"$WORK/log" 2>&1; then
    count python3 tests/site/sources.py . "$sources"
else
    failed=$((failed + 1))
    echo "site/pages.py fails:"
    tail -n 5 "$WORK/log"
fi
[[ -n ${FULL:-} ]] || skip "FULL=1 builds the site and looks at it in Chromium"

bash site/build.sh >"$WORK/log" 2>&1
case $? in
0) passed=$((passed + 1)) ;;
3) skip "$(tail -n 1 "$WORK/log")" ;;
*)
    failed=$((failed + 1))
    echo "make site fails:"
    tail -n 20 "$WORK/log"
    finish
    ;;
esac
count python3 tests/site/links.py "$OUT"
CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
[[ -n $CHROMIUM ]] || skip "not looked at without Chromium: apt-get install -y chromium"
export CHROMIUM
"$WORK/venv/bin/pip" install -q --disable-pip-version-check -r tests/site/requirements.txt >"$WORK/log" 2>&1 ||
    skip "pip cannot install tests/site/requirements.txt: $(grep -m 1 ERROR "$WORK/log")"
count "$WORK/venv/bin/python" tests/site/browser.py "$OUT" "$WORK/shots"
finish
