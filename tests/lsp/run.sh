#!/bin/bash
# `cellc lsp`: what it answers to a plain client (protocol.py), to a client of others (test_client.py, with
# pytest-lsp from PyPI where it is installed), to random edits (fuzz.py); that VS Code's extension is whole
# and does with the server what it says, where there is node. FULL=1: many random edits, the memory of the
# server over 10,000 of them, names of all specs that are renamed and back, and Neovim's client where it is
# installed. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
export CELLC=${CELLC:-$PWD/build/cellc} PYTHONPATH=$PWD/tests/lsp PYTHONDONTWRITEBYTECODE=1
[[ $CELLC == /* ]] || CELLC=$PWD/$CELLC
unset CELLC_HOME
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

skip() {
    echo "$1"
    skipped=$((skipped + 1))
}

# A program that says itself what failed; its last line is "N passed, N failed".
suite() {
    "$@" >"$work/said" 2>&1
    local rc=$? sum
    sum=$(tail -n 1 "$work/said")
    sed '$d' "$work/said"
    if [[ $sum =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    else
        echo "FAIL: $* ended with $rc: $sum"
        failed=$((failed + 1))
    fi
}

check() { # name, command...
    local name=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name" && tail -n 20 "$work/said" | sed 's/^/    | /'
    fi
}

if command -v python3 >/dev/null; then
    suite python3 tests/lsp/protocol.py
    if [[ ${FULL:-} ]]; then
        check "10,000 random edits do not grow the server" python3 tests/lsp/fuzz.py 10000 1 --memory
        for seed in 2 3 4; do check "random edits, seed $seed" python3 tests/lsp/fuzz.py 4000 $seed; done
        suite python3 tests/lsp/renames.py 60
    else
        check "random edits" python3 tests/lsp/fuzz.py 150 1
    fi
else
    skip "nothing was asked of cellc lsp: there is no python3"
fi

# A client that others wrote.
python=build/lsp/bin/python
"$python" -c 'import pytest_lsp' 2>/dev/null || python=python3
if "$python" -c 'import pytest_lsp' 2>/dev/null; then
    "$python" -m pytest -q -p no:cacheprovider tests/lsp/test_client.py >"$work/said" 2>&1
    sum=$(tail -n 1 "$work/said")
    right=0 wrong=0
    [[ $sum =~ ([0-9]+)\ passed ]] && right=${BASH_REMATCH[1]}
    [[ $sum =~ ([0-9]+)\ (failed|error) ]] && wrong=${BASH_REMATCH[1]}
    grep -q LspSpecificationWarning "$work/said" && wrong=$((wrong + 1))
    ((right || wrong)) || wrong=1
    ((wrong)) && echo "FAIL with pytest-lsp:" && tail -n 30 "$work/said" | sed 's/^/    | /'
    passed=$((passed + right)) failed=$((failed + wrong))
else
    skip "not asked by pytest-lsp: python3 -m venv build/lsp && build/lsp/bin/pip install pytest-lsp==1.0.1"
fi

# VS Code's extension: the package has what its lists name, the same each time, and does what it says.
packed() {
    bash editors/vscode/package.sh "$work/a.vsix" && bash editors/vscode/package.sh "$work/b.vsix" &&
        cmp "$work/a.vsix" "$work/b.vsix" &&
        python3 - "$work/a.vsix" gen/main.c <<'P'
import json
import re
import sys
import xml.dom.minidom
import zipfile

with zipfile.ZipFile(sys.argv[1]) as z:
    assert z.testzip() is None
    names = z.namelist()
    types = xml.dom.minidom.parseString(z.read("[Content_Types].xml"))
    known = [d.getAttribute("Extension") for d in types.getElementsByTagName("Default")]
    for name in names[1:]:
        assert "." + name.rsplit(".", 1)[1] in known, name
    lists = xml.dom.minidom.parseString(z.read("extension.vsixmanifest"))
    for asset in lists.getElementsByTagName("Asset"):
        assert asset.getAttribute("Path") in names, asset.getAttribute("Path")
    about = json.loads(z.read("extension/package.json"))
    identity = lists.getElementsByTagName("Identity")[0]
    assert identity.getAttribute("Id") == about["name"] and identity.getAttribute("Version") == about["version"]
    has = about["contributes"]
    for path in [about["main"], has["languages"][0]["configuration"], has["grammars"][0]["path"]]:
        assert "extension/" + path.removeprefix("./") in names, path
    source = z.read("extension/extension.js").decode()
    assert set(re.findall(r"require\('([^']+)'\)", source)) == {"child_process", "vscode"}
    for command in has["commands"]:
        assert f"registerCommand('{command['command']}'" in source, command
    with open(sys.argv[2]) as main:
        # the extension has cellc's version
        assert f'#define CELLC_VERSION "{about["version"]}"' in main.read()
P
}
if command -v python3 >/dev/null; then
    check "the package of VS Code's extension is whole" packed
else
    skip "VS Code's extension was not packed: there is no python3"
fi
if [[ ${FULL:-} ]] && command -v nvim >/dev/null; then
    suite timeout 120 nvim --headless -u NONE -i NONE -n -c 'luafile tests/lsp/neovim.lua'
elif [[ ${FULL:-} ]]; then
    skip "not asked by Neovim: apt-get install neovim"
fi
if command -v node >/dev/null; then
    suite node tests/lsp/extension.js
else
    skip "VS Code's extension was not run: there is no node"
fi
printf '%d passed, %d failed' "$passed" "$failed"
((skipped)) && printf ', %d skipped' "$skipped"
echo
exit $((failed > 0))
