# To be sourced by tests of commands. In: `said`, the file that takes the output of the last command. Out: `passed` and
# `failed`, counted, with a line for each failure.
# shellcheck shell=bash
passed=0 failed=0

pass() { passed=$((passed + 1)); }
fail() {
    failed=$((failed + 1))
    echo "FAIL: $1"
    [[ -s $said ]] && head -n 5 "$said" | sed 's/^/    | /'
}

# expect CODE TEXT COMMAND...: exit code, and text that must be in its output (both streams; "" for any)
expect() {
    local code=$1 text=$2 rc
    shift 2
    "$@" >"$said" 2>&1 </dev/null
    rc=$?
    if [[ $rc -ne $code ]]; then
        fail "$* gives exit code $rc, not $code"
    elif [[ -n $text ]] && ! grep -qF -- "$text" "$said"; then
        fail "$* does not print '$text'"
    else
        pass
    fi
}

# says TEXT: the last command printed it as well
says() {
    if grep -qF -- "$1" "$said"; then pass; else fail "not said: $1"; fi
}
