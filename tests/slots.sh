# slots.sh: many small jobs at a time, no more than tests/run.sh has tokens for; sourced. In: POOL, the pipe of tokens
# (without it, as for a suite that is run by hand, there are only as many jobs at a time as JOBS says or there are
# cores).
# shellcheck shell=bash

# xargs_slots OPTIONS... -- COMMAND...: what `xargs -P` does with the same arguments, each job with its own token.
# The caller's own token is free for its jobs while it waits for them.
xargs_slots() {
    local options=() rc
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    [[ -z ${POOL:-} ]] || printf . >"$POOL"
    # shellcheck disable=SC2016
    xargs -P "${JOBS:-$(nproc 2>/dev/null || echo 2)}" "${options[@]}" bash -c '
        [[ -z ${POOL:-} ]] || { read -r -N 1 _ <"$POOL" && trap "printf . >\"\$POOL\"" EXIT; }
        "$@"' slot "$@"
    rc=$?
    [[ -z ${POOL:-} ]] || read -r -N 1 _ <"$POOL"
    return $rc
}
