#!/bin/bash
# Fuzzes the front end: `tests/fuzz/fuzz.sh [SECONDS]` (default 3600) with clang's libFuzzer under
# AddressSanitizer and UBSan. New inputs go to build-fuzz/corpus; a crash leaves its input in build-fuzz.
# `fuzz.sh --merge` adds to tests/fuzz/corpus those of at most 600 bytes that cover something new.
# FUZZ_FLAGS=-DFUZZ_SYNTAX_ONLY stops behind the parser and fmt.
set -eu
cd "$(dirname "$0")/../.."
out=build-fuzz
mkdir -p $out/gen/front $out/corpus
bison --header=$out/gen/front/parse.h -o $out/gen/front/parse.c gen/front/parse.y
flex --header-file=$out/gen/front/lex.h -o $out/gen/front/lex.c gen/front/lex.l
mkdir -p $out/gen/templates
for f in templates/*.cuh; do awk -f templates/templates.awk "$f" >$out/gen/"${f%.cuh}.h"; done
sources=$(find gen -name '*.c' ! -path gen/main.c)
flags="-std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined"
rm -f $out/front.a
for f in $sources $out/gen/front/parse.c $out/gen/front/lex.c; do
    o=$out/$(basename "$f" .c).o
    if [[ ! -e $o || -n $(find "$f" $(find gen -name '*.h') -newer "$o" -print -quit) ]]; then
        nice clang $flags ${FUZZ_FLAGS:-} -Igen -I$out/gen -c -o "$o" "$f"
    fi
    ar qc $out/front.a "$o"
done
clang $flags ${FUZZ_FLAGS:-} -fsanitize=fuzzer -Igen -o $out/fuzz_front tests/fuzz/fuzz_front.c \
    tests/fuzz/libfuzzer/mutate.c $out/front.a -lm -ldl
cp -n specs/*.cell tests/diag/*.cell tests/fmt/*.cell tests/fuzz/corpus/* $out/corpus/ 2>/dev/null || true
if [[ ${1:-} == --merge ]]; then
    mkdir -p $out/small             # the kept corpus is of short inputs, so that a clone stays small
    find $out/corpus -type f -size -600c -exec cp -n {} $out/small/ \; 2>/dev/null || true
    exec $out/fuzz_front -merge=1 -timeout=20 tests/fuzz/corpus $out/small
fi
# The limits of the parser make deep inputs safe; what they may take is a few MB.
exec nice -n 19 $out/fuzz_front -dict=tests/fuzz/cell.dict -max_len=4096 -timeout=20 -rss_limit_mb=1500 \
    -max_total_time="${1:-3600}" -artifact_prefix=$out/ -print_final_stats=1 $out/corpus
