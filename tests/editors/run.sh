#!/bin/bash
# The syntax files of editors/: they name each keyword and each reduction of the scanner (gen/front/tokens.c), and nothing
# else as one; the TextMate grammar is JSON whose patterns compile, and Vim, where there is one, reads its file.
# Out: what is wrong, and the sum as the last line.
set -u
cd "$(dirname "$0")/../.."
vim=editors/vim/syntax/cell.vim
textmate=editors/vscode/syntaxes/cell.tmLanguage.json
passed=0 failed=0 skipped=0

check() { # name, command...
    local name=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAIL $name"; fi
}

scanner=$(sed -n '/statement_words\[\]/,/^};/p; /reductions\[\]/,/^};/p' gen/front/tokens.c | grep -oE '\{"[a-z]+"' | tr -d '{"' | sort)
in_vim=$(sed -nE 's/^syntax keyword cell(Structure|Declare|Control|Reduce) //p' $vim | tr ' ' '\n' | sort)
in_textmate=$(grep -E '"(keyword.other|storage.type|keyword.control|support.function.reduction).cell", "match"' $textmate |
    grep -oE '\([a-z|]+\)' | tr -d '()' | tr '|' '\n' | sort)
check "the scanner's words were found" test "$(wc -w <<<"$scanner")" -gt 15
check "Vim's words are the scanner's" diff <(echo "$scanner") <(echo "$in_vim")
check "TextMate's words are the scanner's" diff <(echo "$scanner") <(echo "$in_textmate")

patterns_compile() {
    python3 - $textmate editors/vscode/package.json editors/vscode/language-configuration.json <<'P'
import json, re, sys
grammar, *others = [json.load(open(path)) for path in sys.argv[1:]]
for p in grammar["patterns"]:
    for key in ("match", "begin", "end"):
        if key in p:
            re.compile(p[key])
P
}
if command -v python3 >/dev/null; then
    check "the grammar's patterns compile" patterns_compile
else
    echo "the TextMate grammar was not read, there is no python3"
    skipped=$((skipped + 1))
fi

read_by_vim() {
    local said
    said=$(vim -es -u NONE -c 'syntax on' -c "source $vim" -c 'verbose echo b:current_syntax' -c 'qa!' specs/gru.cell 2>&1)
    [[ $said == *cell* && $said != *E[0-9][0-9]* ]]
}
if command -v vim >/dev/null; then
    check "Vim reads its syntax file" read_by_vim
else
    echo "the syntax file was not read, there is no vim"
    skipped=$((skipped + 1))
fi
printf '%d passed, %d failed' "$passed" "$failed"
((skipped)) && printf ', %d skipped' "$skipped"
echo
exit $((failed > 0))
