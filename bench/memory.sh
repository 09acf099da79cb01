#!/bin/bash
# The memory that training each workload needs, without a GPU. In: DIR, which prepare.sh filled; BUILD, where the runtime's
# library is; WORKLOADS: the list that DIR was filled from (workloads.txt); ONLY: regular expression on names; BUFFERS=1
# prints each workload's large buffers as well. Out: a table on standard output in MiB, and JSON lines in DIR/memory.json.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
dir=$(cd "${1:?usage: memory.sh DIR}" && pwd)
build=$(cd "${BUILD:-$root/build}" && pwd)
read -r _ libs <"$build/libcell.flags"
flags="-std=c11 -D_GNU_SOURCE -O0 -w -I$root/runtime -I$here"
# Not the linker's word for a missing kernel but a null pointer: nothing is launched here.
weak='-DCELL_KERNEL_SYMBOL=extern __attribute__((weak))'

build_one() {
    local name=$1 cell=$2
    cd "$dir/$name" || return 1
    # shellcheck disable=SC2086
    gcc $flags "$weak" -I. -DINSTANCE="${cell}_instance" "$cell.c" "${cell}_ref.c" "$here/memory.c" "$here/footprint.c" \
        "$build/libcell.a" $libs -o memory
}

failed=0
: >"$dir/memory.json"
row='%-24s %10s %10s %10s %10s %10s %10s\n'
# shellcheck disable=SC2059
printf "$row" "workload (MiB)" arguments gradients reserve workspace peak inference
mib() { sed -n "s/.*\"$1_bytes\": \([0-9]*\).*/\1/p" <<<"$line" | head -n 1 | awk '{ printf "%.1f", $1 / 1048576 }'; }
while IFS='|' read -r name spec sizes _; do
    read -r name <<<"$name"
    read -r cell _ <<<"$spec"
    read -r sizes <<<"$sizes"
    [[ $name =~ ${ONLY:-.} ]] || continue
    build_one "$name" "$cell" >"$dir/$name.memory.log" 2>&1 ||
        { echo "$name does not build:"; tail -n 3 "$dir/$name.memory.log"; failed=1; continue; }
    all=$("$dir/$name/memory" ${BUFFERS:+-b} "$name" "$sizes") || { failed=1; continue; }
    line=${all%%$'\n'*}
    echo "$line" >>"$dir/memory.json"
    # shellcheck disable=SC2059
    printf "$row" "$name" "$(mib argument)" "$(mib gradient)" "$(mib reserve)" "$(mib workspace)" "$(mib peak)" "$(mib inference)"
    [[ $all == *$'\n'* ]] && echo "${all#*$'\n'}"
done < <(grep -v '^#' "${WORKLOADS:-$here/workloads.txt}")
exit $failed
