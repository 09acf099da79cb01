#!/bin/bash
# The notebook of examples/tutorial. What it has cellc say (the mistake, its mend, explain) is what the notebook keeps,
# everywhere; where python has torch and matplotlib, all of it runs in a small form, and what runs anywhere alike is what
# the notebook keeps. FULL=1: as it stands, by Jupyter, and the models learn. In: CELLC, PYTHON (python3), FULL, BUILD.
# Out: what failed, and the sum as the last line.
set -u
cd "$(dirname "$0")/../.."
root=$PWD
build=$(realpath "${BUILD:-build}")
cellc=${CELLC:-$build/cellc}
[[ $cellc == /* ]] || cellc=$root/$cellc
export CELLC=$cellc PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
tutorial=examples/tutorial
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

finish() {
    echo "$passed passed, $failed failed$([[ $skipped == 0 ]] || echo ", $skipped skipped")"
    [[ $failed == 0 ]]
    exit
}
skip() {
    echo "tutorial: $1"
    skipped=$((skipped + 1))
}
holds() { # what, command...
    local what=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "tutorial: $what"
        tail -n 20 "$work/said" | sed 's/^/    /'
    fi
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
    { skip "there is no Python 3.9 or newer"; finish; }
# `cellc` in the notebook is the one that is tested, not a package's.
mkdir "$work/bin"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$cellc" >"$work/bin/cellc"
chmod +x "$work/bin/cellc"
export PATH=$work/bin:$PATH
holds "what cellc says there is not what it says now (python $tutorial/run.py --commands --write keeps it)" \
    "$python" $tutorial/run.py --commands --check

# That the runner sees what is wrong: another output, a command that fails, an exception.
spoil() { # a change of the notebook's text, what is said of it
    sed "$1" $tutorial/tutorial.ipynb >"$work/spoilt.ipynb"
    "$python" $tutorial/run.py "$work/spoilt.ipynb" --commands --check >"$work/spoilt" 2>&1
    if [[ $? == 1 ]] && grep -qF "$2" "$work/spoilt" && ! cmp -s $tutorial/tutorial.ipynb "$work/spoilt.ipynb"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "tutorial: the runner does not see $1"
    fi
}
spoil 's/exchanged: write B_z/exchanged: write C_z/' "(refused) gave what is above; the notebook has"
spoil 's/sum\[d\] B_z\[i,d\]/sum[d] B_z[d,i]/' '`cellc check paralstm.cell` ended with status 1'

if ! "$python" -c 'import torch, matplotlib' 2>/dev/null; then
    skip "not trained, $python has no torch or no matplotlib"
    finish
fi
export CELLC_CACHE=$work/cache OMP_NUM_THREADS=1
if [[ -z ${FULL:-} ]]; then
    holds "it does not run" env TUTORIAL_STEPS=6 "$python" -W ignore $tutorial/run.py --check
    finish
fi
holds "it does not run" "$python" -W ignore $tutorial/run.py --check
cp "$work/said" "$work/printed"
# Bits per character of the validation: far under the 4.6 that frequencies of characters give.
holds "the models do not learn" awk '/validation/ { if ($9 + 0 < 2.6) n++ } END { exit n != 2 }' "$work/printed"
tools=$build/tests/tutorial/jupyter
mkdir -p "${tools%/*}"
if [[ -x $tools/bin/jupyter-execute ]] || { "$python" -m venv --system-site-packages "$tools" &&
    "$tools/bin/pip" install -q nbclient==0.11.0 ipykernel==7.4.0; } >"$work/log" 2>&1; then
    cp -r examples "$work/examples"
    holds "Jupyter does not run it" env TUTORIAL_STEPS=6 PATH="$work/bin:$tools/bin:$PATH" \
        "$tools/bin/jupyter-execute" "$work/examples/tutorial/tutorial.ipynb"
else
    skip "no nbclient and ipykernel from pip's registry ($(tail -n 1 "$work/log"))"
fi
finish
