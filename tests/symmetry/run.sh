#!/bin/bash
# Symmetries of specs: heads, or units, in another order; cells that are linear in their states (symmetry.c says what is
# compared). What is not so must be seen: the last lines. ONLY is a regular expression on the names of specs.
cd "$(dirname "$0")/../.." && . tests/calls/calls.sh symmetry
make_program
while read -r way specs; do
    for name in $specs; do
        [[ $name =~ ${ONLY:-.} ]] || continue
        spec=specs/$name.cell options=()
        # All sizes but H are bound where the spec has a default for them; heads are the caller's.
        for dim in $(grep -E '^    dim ' "$spec" | grep -oE '[A-Z][A-Za-z0-9]* = [0-9]+' | sed 's/ =.*//'); do
            options+=(--dim "$dim=$([[ $dim == P ]] && echo 2 || echo 4)")
        done
        if ! make_object "$spec" "$out/$name" "${options[@]}"; then
            cat "$out/$name.log"
            failed=$((failed + 1))
            continue
        fi
        said=$("$out/symmetry" "$out/$name.so" "${name}_instance" "${way#not-}" 2>&1)
        if [[ $way != not-* ]]; then
            count "$said" "$name $way"
        elif grep -q FAIL <<<"$said"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAIL $name: it is not ${way#not-}, and nothing shows it"
        fi
        rm -rf "$out/$name"*
    done
done <<'LIST'
heads causal_attention comba delta deltaproduct dgd e1h e20 e21 e75 e86 e89 e90 e91 e92 e93 gated_delta gla hgrn2 kda
heads linear_attention lstm_heads mlstm rope rwkv7 slstm window_attention
units gru gru_d indrnn lstm lstm_layernorm lstm_masked lstm_peephole lstm_projection mingru minlstm qrnn rhn
linear delta gated_delta linear_attention gla retnet hgrn2 kda rwkv7 deltaproduct comba mamba1 mamba2 mingru minlstm
linear qrnn hgrn rglru gdn s5 complex_lru atlas hebbian titans
not-heads retnet
not-linear e75 e79 mlstm gru titans_mlp
LIST
close
