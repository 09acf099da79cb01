#!/bin/bash
# Tests `cellc inspect`: that it says of a built library what its specs say, that its numbers of bytes are
# those of the library's own functions, and that a file that is something else, is cut or is of another
# cellc is refused before anything of it runs. cuobjdump is a fake that prints what the real one prints.
# Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
cellc=${CELLC:-$PWD/$build/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/said
# shellcheck source=tests/expect.sh
source tests/expect.sh
unset CELLC_HOME CELLC_CUOBJDUMP
[[ -z ${SAN:-} ]] || { echo "inspect: not with sanitizers"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

cat >"$dir/two.cell" <<'CELL'
cell leak {
    dim D, H;
    input x[D];
    param W[2*H, D], a[H];
    state h[H];
    output y[H];
    g[k:2*H] = sum[d] W[k,d] * x[d];
    h'[i] = tanh(a[i] * h[i] + g[i+0*H] * g[i+1*H]);
    y[i] = h'[i];
}
CELL
spec=$dir/two.cell:leak
expect 0 "" "$cellc" build --cpu none "$spec" "$spec:dtype=bf16" "$spec:D=3,H=4" --name both --no-cuda -o "$dir"
both=$dir/libboth.so

expect 0 "3 cells" "$cellc" inspect "$both"
says "leak:dtype=bf16"
says "leak:D=3,H=4,dtype=f32"
says "W       param   f32   [2*H, D]   yes"
says "W       param   bf16  [2*H, D]   yes"
says "W       param   f32   [8, 3]     yes"
says "kernels    none"
says "plain C    forward and backward"
expect 0 "reserve" "$cellc" inspect "$both" --sizes B=2,T=5,D=3,H=4
expect 2 "--sizes says nothing of H, which leak:dtype=bf16 has" "$cellc" inspect "$both" --sizes B=2,T=5,D=3
for wrong in B=0 B B=x B=2,,T=1 T=99999999999999999999; do
    expect 2 "--sizes takes NAME=N,... with N from 1 on" "$cellc" inspect "$both" --sizes "$wrong"
done

if "$cellc" inspect "$both" --json --kernels --sizes B=2,T=5,D=3,H=4 2>"$said" | python3 -c '
import json, sys
cells = {c["key"]: c for c in json.load(sys.stdin)["cells"]}
assert set(cells) == {"leak:dtype=f32", "leak:dtype=bf16", "leak:D=3,H=4,dtype=f32"}
c = cells["leak:D=3,H=4,dtype=f32"]
assert c["settings"]["H"] == "4" and [t["shape"] for t in c["tensors"] if t["name"] == "y"] == ["[B, T, 4]"]
assert cells["leak:dtype=f32"]["sizes"][:4] == ["B", "T", "D", "H"]
assert c["kernels"] == [] and c["reserve"] >= 0'; then
    pass
else
    fail "inspect --json"
fi

expect 0 "" "$cellc" build "$spec" --no-cuda -o "$dir/portable"
[[ $(uname -m) == x86_64 ]] && levels="kernels, for x86-64-v2, x86-64-v3, x86-64-v4" || levels="kernels, for"
expect 0 "$levels" "$cellc" inspect "$dir/portable/libleak.so"
expect 2 "--cpu takes portable, native or none, not 'mine'" "$cellc" build "$spec" --cpu mine
expect 0 "" "$cellc" build "$spec" --no-cuda --cpu native -o "$dir/native"
expect 0 "CPU        " "$cellc" inspect "$dir/native/libleak.so"
says "kernels, for "
how=$("$cellc" explain "$spec" | sed -n 's/^  on a CPU  *//p') # its first line, where it takes several
says "             ${how:-cellc explain says nothing of the CPU}"
expect 0 '"cpu": null' "$cellc" inspect "$both" --json

# ---- the same numbers as the library's functions give

cat >"$dir/ask.c" <<'C'
#include <stdio.h>
#include "leak.h"
int main(void) {
    leak_sizes n = { .B = 2, .T = 5, .D = 3, .H = 4 };
    size_t inference = leak_inference_bytes(&n), reserve = leak_reserve_bytes(&n);
    printf("inference  %zu bytes\nreserve    %zu bytes\n", inference, reserve);
    return 0;
}
C
expect 0 "" "$cellc" build --cpu none "$dir/two.cell:leak" --no-cuda -o "$dir/one"
expect 0 "" ${CC:-cc} -I"$dir/one" -Iruntime "$dir/ask.c" -L"$dir/one" -lleak -Wl,-rpath,"$dir/one" \
    -o "$dir/ask"
expect 0 "reserve" "$dir/ask"
cp "$said" "$dir/asked"
if (($(wc -l <"$dir/asked") == 2)); then pass; else fail "ask does not print two lines"; fi
expect 0 "reserve" "$cellc" inspect "$dir/one/libleak.so" --sizes B=2,T=5,D=3,H=4
while read -r line; do
    says "  $line"
done <"$dir/asked"

# ---- a cell with several plans, of which a call takes the first that takes its sizes

expect 0 "" "$cellc" build delta --dim N=16 --dim V=16 --schedule chunk --kernels-apart --cpu none -o "$dir/forms"
expect 0 "  walk       schedule chunk; a block" "$cellc" inspect "$dir/forms/libdelta.so" --kernels
says "  or else    schedule tile, a checkpoint every"
for kernel in $(sed -n 's/^\(extern __attribute__((weak)) \|CELL_KERNEL_SYMBOL \)void \([a-z_0-9]*\)(.*/\2/p' "$dir/forms/delta.c"); do
    says "    $kernel "
done
"$cellc" inspect "$dir/forms/libdelta.so" --kernels --json >"$dir/forms.json" 2>"$said"
if python3 - "$dir/forms.json" <<'PY' 2>"$said"; then pass; else fail "inspect --json with forms"; fi
import json, sys
cell, = json.load(open(sys.argv[1]))["cells"]
assert [form["walk"].split(",")[0] for form in cell["forms"]] == ["schedule chunk", "schedule tile"]
assert sum(form["kernels"] for form in cell["forms"]) == len(cell["kernels"]) > cell["forms"][1]["kernels"]
names, first = [kernel["name"] for kernel in cell["kernels"]], cell["forms"][0]["kernels"]
for form in names[:first], names[first:]:           # which may have a kernel in common
    assert len(set(form)) == len(form)
PY

# ---- kernels and registers: a plan with kernels, and what cuobjdump prints of them

cat >"$dir/cuobjdump" <<'SH'
#!/bin/sh
[ "$1" = -res-usage ] || exit 1
for arch in 80 90; do
    printf '\nFatbin elf code:\n================\narch = sm_%s\ncode version = [1,8]\nhost = linux\n\n' $arch
    printf 'Resource usage:\n Common:\n  GLOBAL:0\n'
    printf ' Function %s:\n  REG:%s STACK:%s SHARED:16 LOCAL:0 CONSTANT[0]:1328\n' \
        leak_fwd_walk "$((arch / 2))" "$((arch == 90 ? 8 : 0))"
done
SH
chmod +x "$dir/cuobjdump"
cat >"$dir/fake.c" <<'C'
#include "cell_plan.h"
#ifndef VERSION
#define VERSION CELL_PLAN_VERSION
#endif
static void walk(cell_kernel_args args) { (void)args; }
static const cell_expr none = 0;
static const int64_t shared[] = { CELL_X_PUSH, 4096, CELL_X_END };
static const cell_kernel kernels[] = { { "leak_fwd_walk", walk, 128, 2, 0, shared, 0, none },
                                       { "leak_other", walk, 64, 0, 1, 0, 0, none } };
static const cell_plan plan;
static const cell_desc desc = {
    .plan_version = VERSION, .name = "leak", .key = "leak:fake", .kernels = kernels, .n_kernels = 2,
    .forward = &plan, .how = "schedule fake", .archs = "80 90", .block_memory = 4096 };
const cell_desc *leak_instance(void);
const cell_desc *leak_instance(void) { return &desc; }
const cell_desc *other_instance(void);
const cell_desc *other_instance(void) { __builtin_trap(); }
void leak_forward(void); void leak_forward(void) { }
void leak_workspace_bytes(void); void leak_workspace_bytes(void) { }
void leak_reserve_bytes(void); void leak_reserve_bytes(void) { }
C
expect 0 "" ${CC:-cc} -shared -fPIC -Iruntime "$dir/fake.c" -o "$dir/libfake.so"
expect 0 "" ${CC:-cc} -shared -fPIC -Iruntime -DVERSION=3 "$dir/fake.c" -o "$dir/libold.so"
unknown="registers are not known, since"
kernels() { env "$@" "$cellc" inspect --kernels "$dir/libfake.so"; }
fakes() { env CELLC_CUOBJDUMP="$dir/cuobjdump" "$cellc" inspect "$dir/libfake.so" "$@"; }
expect 0 "kernels    2, for sm_80 90" fakes --kernels
says "schedule fake; a block takes up to 4096 bytes of shared memory"
says "leak_fwd_walk      128  clusters of 2          4096  sm_80: 40, sm_90: 45 and 8 bytes of stack"
says "leak_other          64  all at once                  -"
expect 0 '{"arch": 90, "registers": 45, "stack": 8, "shared": 16}' fakes --kernels --json
expect 0 "$unknown there is no cuobjdump" kernels PATH=/nowhere CELLC_NVCC=none
expect 0 "$unknown /bin/true says nothing" kernels CELLC_CUOBJDUMP=/bin/true
expect 1 "it was made by another cellc: its plans have version 3, those of" "$cellc" inspect "$dir/libold.so"

# ---- files that are no such library; cut at every header, and at places between

expect 1 "No such file" "$cellc" inspect "$dir/nothing.so"
expect 1 "it is no file" "$cellc" inspect "$dir"
expect 1 "it is no shared library" "$cellc" inspect "$dir/two.cell"
expect 1 "it is a static library" "$cellc" inspect "$build/libcell.a"
expect 1 "it has no cells that \`cellc build\` made" "$cellc" inspect "$build/libcell.so"
bytes=$(stat -c %s "$both")
for cut in 0 1 16 63 64 100 $((bytes / 3)) $((bytes / 2)) $((bytes - 64)) $((bytes - 1)); do
    head -c "$cut" "$both" >"$dir/cut.so"
    expect 1 "cut.so: it is" "$cellc" inspect "$dir/cut.so"
done
# A byte of its tables of sections and symbols is another: any answer but a crash is right.
for ((i = 0; i < 24; i++)); do
    cp "$both" "$dir/bad.so"
    at=$((bytes - 1 - i * 83))
    printf '\377' | dd of="$dir/bad.so" bs=1 seek="$at" conv=notrunc status=none
    "$cellc" inspect "$dir/bad.so" >"$said" 2>&1
    if [[ $? -le 1 ]]; then pass; else fail "byte $at changed: exit code over 1"; fi
done

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
