#!/bin/bash
# `cellc build --target wasm`: cells compiled for WebAssembly, under Node. Instances of every kind of kernel
# against the reference in double (ladder/, as a program for WASI); what is too large for 32 bits, and what a
# module has not, is refused (limits.c); layers in JavaScript against values made elsewhere (vectors.mjs), in
# careless hands (layers.mjs), and in a page (page.mjs). In: BUILD, CHROMIUM; WASM=1, as `make wasm`
# has it: what is missing is a failure, and else a skip. With WASM=1 or FULL=1: more kinds of cells, and cellc as it is
# installed. ONLY: a regular expression on the instances' names, and then nothing else.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cellc=$root/${BUILD:-build}/cellc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0 skipped=0 all_kinds=${FULL:-${WASM:-}}
unset WASM_CC WASI_SDK_PATH WASM_CFLAGS CELL_BACKEND CELL_CPU_LEVEL

lacks() { # the line that installs it
    echo "wasm: not run: $1"
    [[ -z ${WASM:-} ]] || { echo "0 passed, 1 failed"; exit 1; }
    echo "$passed passed, $failed failed, 1 skipped"
    exit $((failed > 0))
}

refuses() { # code, words, options
    local said rc
    # shellcheck disable=SC2086
    said=$("$cellc" build lstm --target $3 -o "$work/refused" 2>&1)
    rc=$?
    if [[ $rc == "$1" && $said == *"$2"* && ! -e $work/refused ]]; then
        ((passed++))
    else
        echo "FAIL build --target $3: exit code $rc, $said"
        ((failed++))
    fi
}

# shellcheck source=tests/count.sh
source "$root/tests/count.sh"

if [[ -z ${ONLY:-} ]]; then
    refuses 2 "--target takes wasm, not 'arm'" arm
    refuses 2 "--cpu native means nothing there" "wasm --cpu native"
    refuses 2 "--target wasm and --kernels-apart exclude each other" "wasm --kernels-apart"
    install="apt-get install clang lld"
    WASM_CC=/no/such/clang refuses 1 "$install wasi-libc libclang-rt-dev-wasm32" wasm
    WASI_SDK_PATH=/no/such refuses 1 "$install llvm wasi-libc libclang-rt-dev-wasm32" "wasm --static"
fi
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null ||
    lacks "Node 20 is wanted: apt-get install nodejs"

# ---- the ladder, as a program for WASI

# NAME SPEC and settings | SIZES: a step with products, a walk on chip, strands; of all kinds also sums over
# rows, scattered sums, the past, and more.
instances() {
    cat <<'END'
lstm lstm | 2,3,5,7 12,4,33,48
gated_delta_N33_V20_dtype_f16 gated_delta:N=33,V=20,dtype=f16 | 2,3,2 1,40,1
hgrn hgrn | 3,9,1100
END
    [[ -z $all_kinds ]] || cat <<'END'
e79_N6_dtype_f64 e79:N=6,dtype=f64 | 1,5,3 2,3,5
layernorm_dtype_f16 layernorm:dtype=f16 | 9,40,300
lstm_reverse_dtype_bf16 lstm:reverse,dtype=bf16 | 2,3,5,7
embedding embedding | 2,30,5,6
e79_N64 e79:N=64 | 1,5,3
e88_N20_V7_packed_conv_causal e88:N=20,V=7,packed,conv=causal | 2,3,5,2
causal_attention causal_attention | 2,3,2,7
mamba1_dtype_f16 mamba1:dtype=f16 | 2,3,5
s5_lengths_reverse s5:lengths,reverse | 2,5,3,4
swiglu_dtype_bf16 swiglu:dtype=bf16 | 20,4,96,128
END
}

compile() { # object, options, source
    # shellcheck disable=SC2086
    clang --target=wasm32-wasi -msimd128 -mbulk-memory -ftls-model=local-exec -D_WASI_EMULATED_GETPID \
        -std=c11 -D_GNU_SOURCE $2 -I"$root/runtime" -I"$work/static" -c "$3" -o "$1" >>"$work/log" 2>&1
}

# The ladder with an instance of the static library, and its reference in double and in float beside it.
link_ladder() { # name
    local name=$1 double= rough= part at=$work/$1
    for part in forward backward reserve_bytes step real_bytes; do
        double+=" -D${name}_ref_$part=ladder_ref_$part"
        rough+=" -D${name}_ref_$part=ladder_rough_$part"
    done
    echo "struct cell_desc; const struct cell_desc *${name}_instance(void);
        const struct cell_desc *ladder_instance(void);
        const struct cell_desc *ladder_instance(void) { return ${name}_instance(); }" >"$at.c"
    compile "$at.o" -O1 "$at.c" &&
        compile "$at.double.o" "-O1 -DCELL_REAL=double $double" "$work/static/${name}_ref.c" &&
        compile "$at.rough.o" "-O1 -DCELL_REAL=float $rough -include cell_rough.h" \
            "$work/static/${name}_ref.c" &&
        clang --target=wasm32-wasi -Wl,-z,stack-size=1048576 -Wl,--stack-first "$at".o \
            "$at".{double,rough}.o "$work"/ladder/*.o "$work/static/libcells.a" \
            -lwasi-emulated-getpid -o "$at.wasm" >>"$work/log" 2>&1
}

# shellcheck disable=SC2046
if ! "$cellc" build $(instances | awk -v only="${ONLY:-.}" '$1 ~ only { print $2 }') ${ONLY:+elementwise} \
    --target wasm --static --name cells -o "$work/static" >"$work/said" 2>&1; then
    missing=$(sed -n 's/.*\(apt-get install .*\)/\1/p' "$work/said")
    [[ -z $missing ]] || lacks "$missing"
    echo "FAIL the static library is not built"
    tail -n 5 "$work/said"
    echo "$passed passed, $((failed + 1)) failed"
    exit 1
fi
mkdir "$work/ladder"
for source in "$root"/ladder/*.c; do
    compile "$work/ladder/$(basename "$source" .c).o" -O2 "$source" && continue
    echo "FAIL $source is not compiled"
    ((failed++))
done
while read -r name _ _ sizes; do
    [[ $name =~ ${ONLY:-.} ]] || continue
    if ! link_ladder "$name"; then
        echo "FAIL $name: it is not built"
        tail -n 5 "$work/log"
        ((failed++))
        continue
    fi
    # shellcheck disable=SC2086
    LADDER_DECIDED=1 CELL_BACKEND=cpu timeout 300 node --no-warnings "$here/wasi.mjs" "$work/$name.wasm" \
        $sizes >"$work/$name.log" 2>&1
    count "$work/$name.log" "$name"
done < <(instances)

if [[ -z ${ONLY:-} ]]; then
    : >"$work/limits.log"
    if compile "$work/limits.o" "-O1 -Wall -Wextra -Werror" "$here/limits.c" &&
        clang --target=wasm32-wasi -Wl,-z,stack-size=1048576 -Wl,--stack-first "$work/limits.o" \
            "$work/static/libcells.a" -lwasi-emulated-getpid -o "$work/limits.wasm" >>"$work/log" 2>&1; then
        node --no-warnings "$here/wasi.mjs" "$work/limits.wasm" >"$work/limits.log" 2>&1
    else
        tail -n 5 "$work/log"
    fi
    count "$work/limits.log" limits
fi

# What is installed has all that is compiled.
if [[ -z ${ONLY:-} && -n $all_kinds ]]; then
    make -s -C "$root" BUILD="${BUILD:-build}" PREFIX="$work/prefix" DESTDIR= install-parts >"$work/said" 2>&1
    env -u CELLC_HOME "$work/prefix/bin/cellc" build mingru --target wasm -o "$work/installed" \
        >>"$work/said" 2>&1
    if [[ -s $work/installed/mingru.wasm && -s $work/installed/mingru.mjs ]]; then
        ((passed++))
    else
        echo "FAIL an installed cellc builds no module"
        tail -n 5 "$work/said"
        ((failed++))
    fi
fi

# ---- the module in JavaScript

if [[ -z ${ONLY:-} ]]; then
    cells=(lstm lstm:dtype=bf16 lstm:packed "$root/examples/wasm/charlm.cell") values=(lstm=lstm.vec)
    if [[ -n $all_kinds ]]; then
        cells+=(embedding s5 "e79:N=6,bias=input" "gated_delta:N=4,V=5" causal_attention)
        values+=(s5=s5.vec e79_N6_bias_input=e79_input.vec gated_delta_N4_V5=gated_delta.vec)
    fi
    module=$work/module/cells.mjs
    "$cellc" build "${cells[@]}" --target wasm --name cells -o "$work/module" >"$work/said" 2>&1 ||
        cat "$work/said"
    node "$here/vectors.mjs" "$module" "${values[@]/=/=$root/tests/vectors/}" >"$work/vectors.log" 2>&1
    count "$work/vectors.log" vectors
    node "$here/layers.mjs" "$module" >"$work/layers.log" 2>&1
    count "$work/layers.log" layers

    # examples/wasm: the model learns a little, and writes in a page of Chromium what it writes in Node.
    cp "$root"/examples/wasm/*.{mjs,html} "$work/module"
    echo 'export { load } from "./cells.mjs";' >"$work/module/charlm.mjs"
    node "$root/examples/wasm/train.mjs" "$work/module" "$root/examples/bytelm/opticks.txt" 300 20 \
        >"$work/train.log" 2>&1
    loss=$(sed -n 's/.*; loss \([0-9.]*\)$/\1/p' "$work/train.log")
    if awk -v loss="${loss:-9}" 'BEGIN { exit !(loss < 4.6) }'; then # it begins with log 128 = 4.85
        ((passed++))
    else
        echo "FAIL train.mjs: $(tail -n 5 "$work/train.log")"
        ((failed++))
    fi
    chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
    if [[ -n $chromium ]]; then
        node "$here/page.mjs" "$work/module" "$chromium" >"$work/page.log" 2>&1
        count "$work/page.log" "the page"
    elif [[ -n ${WASM:-} ]]; then
        echo "FAIL the page was not opened: apt-get install chromium"
        ((failed++))
    else
        echo "wasm: the page was not opened: apt-get install chromium"
        ((skipped++))
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
