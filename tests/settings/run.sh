#!/bin/bash
# Checks what --dim and --set do: values that are taken, and the exact text when one is wrong. Each case is
# what `cellc explain` says first, or "ok", and its arguments.
set -u
cd "$(dirname "$0")/../.."
cellc=${CELLC:-$PWD/${BUILD:-build}/cellc}
passed=0 failed=0
try() {
    local want=$1 said
    shift
    said=$("$cellc" explain "$@" 2>&1 >/dev/null)
    [[ $? == 0 ]] && said=ok
    said=${said%%$'\n'*}
    if [[ $said == "$want" ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s\n    wanted: %s\n    got:    %s\n' "$*" "$want" "$said"
    fi
}
e79=specs/e79.cell
try ok $e79 --set bias=input --dim N=32
try ok $e79 --dim D=48
try ok specs/e88.cell --set eps=1e-5
try "cellc: error: --set bias=inputt: option 'bias' has no such choice; did you mean 'input'?" \
    $e79 --set bias=inputt
try "cellc: error: --set bias=2: option 'bias' has no such choice; it has fixed, none, input" $e79 --set bias=2
try "cellc: error: --set bais=input: cell 'e79' has no option or constant 'bais'; did you mean 'bias'?" \
    $e79 --set bais=input
try "cellc: error: --dim NN=3: cell 'e79' has no dim 'NN'; it has D, N" $e79 --dim NN=3
try "cellc: error: --dim K=3: cell 'e79' has no dim 'K'; it has D, N" $e79 --dim K=3
try "cellc: error: --dim N=0: a dim is a whole number from 1 to 268435456, or open" $e79 --dim N=0
try "cellc: error: --dim N=8x: a dim is a whole number from 1 to 268435456, or open" $e79 --dim N=8x
try "cellc: error: --dim N=99999999999999999999: a dim is a whole number from 1 to 268435456, or open" \
    $e79 --dim N=99999999999999999999
try ok $e79 --dim N=open
try "cellc: error: --dim N=opened: a dim is a whole number from 1 to 268435456, or open" $e79 --dim N=opened
try "cellc: error: --set eps=small: constant 'eps' needs a number" specs/e88.cell --set eps=small
try "cellc: error: --set eps=nan: constant 'eps' needs a number" specs/e88.cell --set eps=nan
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
