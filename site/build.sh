#!/bin/bash
# make site: the documentation as static HTML in build/site, from docs/, man/, specs/, the headers and the docstrings. In:
# CELLC; WORK, where the environment and the pages' sources go (build/site-work); OUT, where the HTML goes (build/site);
# SOURCES=1 stops before the HTML. Needs Python 3.11 with venv and, once, the package index for requirements.txt; Graphviz
# draws the data flows. Out: the path of the first page, exit code 0; 3 after one line that says what cannot be installed.
set -eu
site=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$site")
export CELLC=${CELLC:-$root/build/cellc}
WORK=${WORK:-$root/build/site-work} OUT=${OUT:-$root/build/site}
mkdir -p "$WORK"

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "make site: Sphinx needs Python 3.11 or newer as python3" >&2
    exit 3
}

# The environment, made anew when the requirements change.
venv=$WORK/venv
if ! cmp -s "$site/requirements.txt" "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >"$WORK/venv.log" 2>&1 || {
        echo "make site: Python has no venv. Install it, then run make site again: sudo apt-get install -y python3-venv" >&2
        exit 3
    }
    echo "installing site/requirements.txt into $venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$site/requirements.txt" >"$WORK/pip.log" 2>&1 || {
        echo "make site: pip cannot install site/requirements.txt: $(grep -m 1 ERROR "$WORK/pip.log")" >&2
        exit 3
    }
    cp "$site/requirements.txt" "$venv/requirements.txt"
fi
command -v dot >/dev/null || echo "make site: no data flows without Graphviz: apt-get install graphviz" >&2

"$venv/bin/python" "$site/pages.py" "$root" "$WORK/source"
[[ -z ${SOURCES:-} ]] || exit 0
"$venv/bin/python" "$site/fonts.py" "$WORK/static/fonts.css"
rm -rf "$WORK/html"
"$venv/bin/sphinx-build" -q -W --keep-going -j auto -c "$site" -d "$WORK/doctrees" "$WORK/source" "$WORK/html"
rm -rf "$WORK/html/_sources" "$OUT"
mv "$WORK/html" "$OUT"
echo "built $OUT/index.html"
