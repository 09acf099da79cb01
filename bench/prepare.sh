#!/bin/bash
# Generates the sources of every workload into DIR, for bench/run.sh there or on another machine. CELLC: the
# compiler; WORKLOADS: another list than workloads.txt, of specs or of cells in bench/cells; ONLY: regular
# expression on names.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
dir=${1:?usage: prepare.sh DIR}
mkdir -p "$dir"
grep -v '^#' "${WORKLOADS:-$here/workloads.txt}" | while IFS='|' read -r name spec _; do
    read -r name <<<"$name"
    [[ $name =~ ${ONLY:-.} ]] || continue
    read -r cell options <<<"$spec"
    file=$root/specs/$cell.cell
    [[ -e $file ]] || file=$here/cells/$cell.cell
    # shellcheck disable=SC2086
    "${CELLC:-$root/build/cellc}" emit "$file" $options -o "$dir/$name" >/dev/null
done
