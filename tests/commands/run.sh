#!/bin/bash
# Tests what commands answer: which cell of a file is meant, what is said of options, files and machines that a command
# cannot take, and diagnostics for programs. Small cells, and no kernels are compiled. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.."
cellc=${CELLC:-$PWD/build/cellc}
[[ $cellc == /* ]] || cellc=$PWD/$cellc
unset CELLC_HOME
export LC_ALL=C.UTF-8 # texts that are looked for are in UTF-8, whatever the machine's language is
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said=$dir/out
# shellcheck source=tests/expect.sh
source tests/expect.sh

cat_manifest() { "$cellc" build --cpu none "$1" --no-cuda -o "$dir/o" >"$dir/said" && cat "$dir/o/twice.json"; }

# ---- which cell of a file

cat >"$dir/two.cell" <<'CELL'
cell twice {
    dim N;
    input  x[N];
    output y[N];
    y[i] = 2 * x[i];
}

cell thrice {
    dim N, M;
    option sign = plus | minus;
    input  x[N, M];
    output y[N, M];
    when sign == plus { y[i,j] = 3 * x[i,j]; } else { y[i,j] = -3 * x[i,j]; }
}
CELL
printf 'cell empty {\n}\n' >"$dir/empty.cell"
which="two.cell:8:6: error: this file has 2 cells, 'twice' and 'thrice': name one, as in $dir/two.cell:twice"
for command in check run explain emit doc graph "tune --list" build selftest "new other --from"; do
    # shellcheck disable=SC2086
    expect 1 "$which" "$cellc" $command "$dir/two.cell"
    # shellcheck disable=SC2086
    expect 1 "there is no cell 'twine' in this file; did you mean 'twice'?" "$cellc" $command "$dir/two.cell:twine"
done
expect 1 "there is no cell 'nothing' in this file; it has 'twice' and 'thrice'" "$cellc" explain "$dir/two.cell:nothing"
for command in check explain "run --print y" "selftest --backend reference" build; do
    # shellcheck disable=SC2086
    expect 1 "empty.cell:1:6: error: cell 'empty' gives nothing: it declares no output and no state" \
        "$cellc" $command "$dir/empty.cell"
done
expect 0 "231 passed, 0 failed" "$cellc" check "$dir/two.cell:twice"
expect 0 "thrice sign=minus" "$cellc" check "$dir/two.cell:thrice"
expect 0 "cell thrice: sign=plus, stored as f32" "$cellc" explain "$dir/two.cell:thrice"
expect 0 "twice_ref_forward" "$cellc" emit "$dir/two.cell:twice"
expect 0 "# thrice" "$cellc" doc "$dir/two.cell:thrice"
expect 0 "thrice: the reference in double" "$cellc" selftest "$dir/two.cell:thrice" --backend reference --dtype f64
says "0 failed"
# Several types in one word, separated as one likes.
for types in "f64 f32" f64,f32 " f64, f32 "; do
    expect 0 "thrice sign=minus f64: " "$cellc" selftest "$dir/two.cell:thrice" --set sign=minus --backend reference --dtype "$types"
    says "thrice sign=minus f32: "
    if grep -q bf16 "$said"; then fail "--dtype '$types' tests bf16"; else pass; fi
done
for types in ',' ' '; do
    expect 2 "--dtype takes a TYPE, not '$types'" "$cellc" selftest "$dir/two.cell:thrice" --backend reference --dtype "$types"
done
# A library is not called as one of the system, which -lm would mean then; what builds it for itself finds it.
printf 'cell m {\n    dim N;\n    input  x[N];\n    output y[N];\n    y[i] = x[i];\n}\n' >"$dir/m.cell"
expect 0 "libm_cell.so" "$cellc" build --cpu none "$dir/m.cell" --no-cuda -o "$dir/o"
says "cellc build: the library is libm_cell.so, as programs have a libm.so already; --name gives it another name"
expect 0 "libmine.so" "$cellc" build --cpu none "$dir/m.cell" --name mine --no-cuda -o "$dir/o"
expect 2 "--name dl: programs have a library libdl.so already, which -ldl means" "$cellc" build --cpu none gru --name dl --no-cuda -o "$dir/o"
expect 0 "0 failed" "$cellc" selftest "$dir/m.cell" --backend reference --dtype f64
# Behind a cell of the file may stand its settings; a library has instances of several cells of one file.
expect 0 "libtwice.so" "$cellc" build --cpu none "$dir/two.cell:twice,N=4" --no-cuda -o "$dir/o"
expect 0 '"bound": {"N": "4"}' cat "$dir/o/twice.json"
expect 0 "thrice_N3_sign_minus.json" "$cellc" build --cpu none "$dir/two.cell:twice" "$dir/two.cell:thrice:N=3,sign=minus" --name both \
    --no-cuda -o "$dir/o"
expect 1 "has no dim 'M'" "$cellc" explain "$dir/two.cell:twice" --dim M=3
expect 2 "expected NAME=VALUE, reverse, lengths, packed or slots after ':', not 'twine'" "$cellc" build --cpu none \
    "$dir/two.cell:thrice,twine"
# A folder or a file may have a ':' in its name.
mkdir -p "$dir/odd:name" && cp "$dir/two.cell" "$dir/odd:name/two:cells.cell"
expect 0 '"bound": {"N": "4"}' cat_manifest "$dir/odd:name/two:cells.cell:twice,N=4"
# A spec is started from one cell of a file: the others, with what is said of them, stay behind.
(echo 'import "std.cell";' && cat "$dir/two.cell") >"$dir/start.cell"
expect 0 "one.cell" "$cellc" new one --from "$dir/start.cell:thrice" -o "$dir/one.cell"
expect 0 "cell one {" cat "$dir/one.cell"
says 'import "std.cell";'
expect 0 "one sign=minus" "$cellc" check "$dir/one.cell"
expect 0 "two.cell" "$cellc" new two --from "$dir/start.cell:twice" -o "$dir/other_two.cell"
expect 0 "two N=" "$cellc" check "$dir/other_two.cell"
for name in float cell_x sum; do
    expect 2 "a cell cannot be called '$name': " "$cellc" new $name --from gru -o "$dir/new.cell"
done
printf 'cell half_cell { dim N; option o = a | b; input x[N]; output y[N]; when o == a { y[i] = x[i]; } }\n' >"$dir/half.cell"
expect 1 "FAILED half_cell: with o=b it does not compile" "$cellc" check "$dir/half.cell"
says "output 'y' gets no value"
expect 1 "'gru:H=3': \`cellc build\` takes settings behind ':'; here they are options, --dim NAME=N or --set NAME=VALUE" \
    "$cellc" explain gru:H=3

# ---- diagnostics for programs: one JSON object per line on standard error, of errors and of warnings, in every command

cat >"$dir/wrong.cell" <<'CELL'
cell wrong {
    dim N;
    input  x[N], z[N];
    output y[N];
    y[i] = 2 * u[i];
}
CELL
sed 's/u\[i\]/x[i]/' "$dir/wrong.cell" >"$dir/warned.cell"
sed 's/;$//' "$dir/wrong.cell" >"$dir/form.cell"
json() { # WHAT MESSAGE COMMAND...: what it says on standard error has that message, in JSON only
    local what=$1 message=$2
    shift 2
    "$@" 2>"$said" >/dev/null </dev/null
    if python3 -c 'import json, sys
lines = [json.loads(line) for line in sys.stdin]
sys.exit(not any(line["level"] == sys.argv[1] and line["message"] == sys.argv[2] for line in lines))' "$what" "$message" <"$said"
    then pass; else fail "$* does not say '$message' in JSON"; fi
}
for command in check run explain emit doc graph build "selftest --backend reference" "tune --list"; do
    # shellcheck disable=SC2086
    json error "unknown value 'u'" "$cellc" $command --diagnostics json "$dir/wrong.cell"
    # shellcheck disable=SC2086
    json error "there is no file 'gruu', and no cell of that name comes with cellc; did you mean 'gru'?" \
        "$cellc" $command --diagnostics json gruu
done
for command in check run explain "emit --kind header" doc graph "build --no-cuda -o $dir/o" "selftest --backend reference --dtype f64"; do
    # shellcheck disable=SC2086
    json warning "input 'z' is never used" "$cellc" $command --diagnostics json "$dir/warned.cell"
done
for command in fmt check "list $dir/forms"; do
    mkdir -p "$dir/forms" && cp "$dir/form.cell" "$dir/forms"
    # shellcheck disable=SC2086
    json error "expected ';' after the dim" "$cellc" $command --diagnostics json $([[ $command == list* ]] || echo "$dir/form.cell")
done

# Wrong usage and files that cannot be read or written as well: each line of standard error is an object.
mkdir -p "$dir/closed" && echo >"$dir/closed/file"
missing="cannot open '$dir/none.cell': No such file or directory"
unreadable="cannot open '$dir/closed': it is a directory"
for command in check run explain emit doc graph build sources fmt "selftest --backend reference" "tune --list"; do
    # shellcheck disable=SC2086
    json error "$missing" "$cellc" $command --diagnostics json "$dir/none.cell"
    # shellcheck disable=SC2086
    json error "$unreadable" "$cellc" $command "$dir/closed" --diagnostics=json
    # shellcheck disable=SC2086
    json error "unknown option --hepl; did you mean --help?" "$cellc" $command --hepl --diagnostics json
done
for command in list new ops random; do
    json error "unknown option --hepl; did you mean --help?" "$cellc" $command --hepl --diagnostics json
done
for command in ops "random --seed 3" list "new --from gru third -o $dir/third.cell" "fmt specs/gru.cell" "sources gru"; do
    # shellcheck disable=SC2086
    expect 0 "" "$cellc" $command --diagnostics json
done
json error "unknown command 'biuld'; did you mean build?" "$cellc" biuld --diagnostics json
json error "--dtype takes one of f32, bf16, f16, f64, not 'f8'" "$cellc" explain gru --dtype f8 --diagnostics json
json error "cannot read '$dir/none': No such file or directory" "$cellc" list --diagnostics json "$dir/none"
json error "cannot make the directory $dir/closed/file/o: Not a directory" "$cellc" emit --diagnostics json gru -o "$dir/closed/file/o"
json error "cannot make '$dir/closed/file/o': Not a directory" "$cellc" doc --diagnostics json gru -o "$dir/closed/file/o"
json error "cannot write $dir/closed/file/o.dot: Not a directory" "$cellc" graph --diagnostics json gru -o "$dir/closed/file/o.dot"
json error "$dir/closed/file/o: cannot write the result: Not a directory" "$cellc" run --diagnostics json gru -o "$dir/closed/file/o"
json error "cannot open it: No such file or directory" "$cellc" check --diagnostics json gru --vectors "$dir/none.vec"
json error "cannot write '$dir/closed/file/o': Not a directory" "$cellc" new other --from gru --diagnostics json -o "$dir/closed/file/o"
json error "cannot read the sources in '$dir/none.pack': No such file or directory" "$cellc" explain --diagnostics json \
    --sources "$dir/none.pack" -
json error "cannot make $dir/none/cellc-XXXXXX: No such file or directory" env TMPDIR="$dir/none" "$cellc" check --diagnostics json gru
json note "the files are in ./generated; -o chooses another directory" env -C "$dir" "$cellc" build --cpu none --no-cuda --diagnostics json gru
json error "cc: error: unrecognized command-line option '--no-such'" env LC_ALL=C CC="cc --no-such" "$cellc" build --cpu none --no-cuda \
    --diagnostics json gru -o "$dir/o"

# ---- how `cellc check` compiles: once a variant, without libc where that works, else as any library

cat >"$dir/cc" <<'SH'
#!/bin/sh
echo "$*" >>"$0.log"
case "$REFUSES $*" in
REFUSED*-nostdlib*) echo "not so" >&2; exit 1 ;;
WARNED*-nostdlib*) echo "a warning" >&2 ;;
ALL*) echo "not at all" >&2; exit 1 ;;
esac
exec cc "$@"
SH
chmod +x "$dir/cc"
compilers() { # with -nostdlib, without: how often
    local with all
    with=$(grep -c -- -nostdlib "$dir/cc.log") all=$(wc -l <"$dir/cc.log")
    rm -f "$dir/cc.log"
    if [[ "$with $((all - with))" == "$1 $2" ]]; then pass; else fail "$with and $((all - with)), not $1 and $2"; fi
}
expect 0 "passed, 0 failed" env REFUSES= CC="$dir/cc" "$cellc" check complex_lru # divides complex numbers
compilers 1 0
expect 0 "passed, 0 failed" env REFUSES=REFUSED CC="$dir/cc" "$cellc" check layernorm
if grep -q "not so" "$said"; then fail "a refusal of -nostdlib is shown"; else pass; fi
compilers 1 1
expect 0 "passed, 0 failed" env REFUSES=WARNED CC="$dir/cc" "$cellc" check layernorm
compilers 1 1
expect 1 "not at all" env REFUSES=ALL CC="$dir/cc" "$cellc" check layernorm
says "the generated C does not compile"

# ---- what steers a terminal is never printed, wherever it comes from, and a file's name is no code in what is generated

odd=$dir/$'odd\nint x;\e[31m\u202e\xff\x9b*'
mkdir "$odd"
cp "$dir/wrong.cell" "$odd/"$'wr\ao\u009bng.cell'
{
    printf '// A cell\e[2J of \u202ereversed\u202c words \x7f.\n'
    sed 's/;$/;   \/\/ \x1b[31m/; s/wrong/warned/' "$dir/warned.cell"
} >"$odd/"$'war\nned;\e[1m\u2066.cell'
unsafe() { # FILE...: lines with what is no text, or turns it round
    LC_ALL=C grep -anP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xd8\x9c' "$@" ||
        ! iconv -f UTF-8 -t UTF-8 "$@" >"$dir/utf8" 2>&1
}
shows() { # TEXT COMMAND...: the command says it, in text that can be shown
    local text=$1
    shift
    "$@" >"$said" 2>&1 </dev/null
    says "$text"
    if unsafe "$said" >"$dir/unsafe"; then fail "$* prints what steers a terminal: $(cat -v "$dir/unsafe" | head -n 3)"; else pass; fi
}
for command in check run explain emit doc graph "build --no-cuda -o $dir/o" "selftest --backend reference" fmt; do
    # shellcheck disable=SC2086
    [[ $command == fmt ]] ||
        shows 'odd?int x;?[31m???*/wr?o?ng.cell:5:16: error: unknown value '"'u'" "$cellc" $command "$odd/"$'wr\ao\u009bng.cell'
    # shellcheck disable=SC2086
    shows "unknown option --?[31m?" "$cellc" $command $'--\e[31m\u2067' gru
done
shows "unknown command '??x'" "$cellc" $'\x1b\x9bx'
shows "there is no file '?[0m', and no cell of that name comes with cellc" "$cellc" check $'\e[0m'
shows "has no dim '?'" "$cellc" check gru --dim $'\e=3'
shows "no option or constant 'variant'" "$cellc" check gru --set $'variant=\e[0m'
shows "A cell?[2J of ?reversed? words ?" "$cellc" list "$odd"
for command in "build --no-cuda" "emit" doc "graph" explain; do
    output=()
    [[ $command == explain ]] || output=(-o "$odd/out")
    [[ $command != graph ]] || output=(-o "$odd/out/g.dot")
    # shellcheck disable=SC2086
    shows "input 'z' is never used" "$cellc" $command "$odd/"$'war\nned;\e[1m\u2066.cell' "${output[@]}"
done
for file in "$odd"/out/*; do
    [[ $file == *.so ]] || if unsafe "$file" >"$dir/unsafe"; then fail "$file holds $(cat -v "$dir/unsafe" | head -n 3)"; else pass; fi
done
expect 0 "from war?ned;?[1m?.cell:" cat "$odd/out/warned.h"
expect 0 "war?ned;?[1m?.cell:" cat "$odd/out/warned_ref.c"
expect 0 "// y, war?ned;?[1m?.cell:" cat "$odd/out/warned.cu"
json error "unknown value 'u'" "$cellc" check --diagnostics json "$odd/"$'wr\ao\u009bng.cell'
says '\u001b[31m\u202e??*/wr\u0007o\u009bng.cell"'
# A caret stands below its character.
printf 'cell c {\n    output y;\n    y = /* \e[1m\u202e\xff\t */ q;\n}\n' >"$dir/caret.cell"
expect 1 '        y = /* ?[1m??    */ q;' "$cellc" explain "$dir/caret.cell"
says "                            ^"

# ---- what a command cannot take

for option in "--dtype bf16" "--schedule steps" "--products plain" "--tuned file"; do
    # shellcheck disable=SC2086
    expect 2 "${option% *} changes nothing here: what is checked is the reference in double; \`cellc selftest\` tests types and kernels" \
        "$cellc" check gru $option
    # shellcheck disable=SC2086
    expect 2 "${option% *} changes nothing here: what is run is the evaluator, in double" "$cellc" run gru $option
done
expect 1 "no sizes were found that this variant takes; at D=4: weight_hh is too large to evaluate" "$cellc" check lstm --dim H=20000
"$cellc" check lstm --dim H=1024 >"$said" 2>&1 &
for ((i = 0; i < 600; i++)); do
    grep -q "elements by itself, in every case; smaller sizes prove the same in less time" "$said" && break
    sleep 0.1
done
if [[ $i -lt 600 ]]; then pass; else fail "check --dim H=1024 is silent"; fi
kill $! && wait $!

cat >"$dir/same_weights.cell" <<'CELL'
cell same_weights {
    dim H, N = 16, P = 16;
    input k[H, N], v[H, P], q[2*H, N];
    state S[H, P, N];
    output o[2*H, P];
    S'[h,p,j] = S[h,p,j] + v[h,p]*k[h,j];
    o[g:2*H,p] = (sum[j] S'[g/2,p,j]*q[g,j]) + 3.0*(sum[j] S'[g%H,p,j]*q[g,j]);
}
CELL
expect 1 "state \`S\` has the same weights at different places of its heads" \
    "$cellc" explain "$dir/same_weights.cell" --schedule chunk

expect 2 "-o takes a file that ends in .dot, .gv, .svg, .png or .pdf, not '$dir/gru.jpg'" "$cellc" graph gru -o "$dir/gru.jpg"
expect 0 "gru.gv" "$cellc" graph gru -o "$dir/gru.gv"
if command -v dot >/dev/null; then
    expect 0 "" "$cellc" graph gru -o "$dir/gru.pdf"
    expect 0 "%PDF" head -c 4 "$dir/gru.pdf"
fi
if ! nvidia-smi -L >/dev/null 2>&1 && command -v nvcc >/dev/null; then
    expect 1 "--archs native: there is no GPU here; name its architecture, as in --archs 90" "$cellc" build --cpu none gru --archs native -o "$dir/o"
fi
expect 2 "no test has 'nosuch' in its path; tests/ has: adding" make -s check ${SAN:+SAN=$SAN} TESTS="fmt nosuch"

# ---- values of options, and words that begin as options do

mkdir "$dir/words"
cd "$dir/words" || exit 1
printf 'cell dash { dim N; input x[N]; output y[N]; y[i] = x[i]; }\n' >./-dash.cell
for command in "build -o" "emit -o" "doc -o" "graph -o" "tune -o" "run -o" "random --keep" "new --from" "check --vectors" "explain --tuned" \
    "explain --import-dir" "explain --sources" "sources --import-dir" "selftest --dtype" "build --name" "explain --sizes"; do
    # shellcheck disable=SC2086
    expect 2 "${command#* } takes" "$cellc" $command "" gru
    says "not an empty word"
    # shellcheck disable=SC2086
    expect 2 "'-foo' begins as an option does" "$cellc" $command -foo gru
done
expect 0 "./-foo/gru_ref.c" "$cellc" emit -o-foo gru --no-cuda
expect 0 "./@foo/libgru.so" "$cellc" build --cpu none gru --no-cuda -o @foo
expect 2 "but '-' begins as an option does; ./- is a path" "$cellc" emit gru -o -
for command in check explain emit run doc graph sources fmt "build --no-cuda" "selftest --backend reference --dtype f64"; do
    # shellcheck disable=SC2086
    expect 0 "" "$cellc" $command -- -dash.cell
    # shellcheck disable=SC2086
    expect 2 "unknown option -dash.cell" "$cellc" $command -dash.cell
done
cd "$OLDPWD" || exit 1

# ---- what an import may be, and that a file is itself under every spelling

mkdir -p "$dir/imports/d" "$dir/imports/e"
cd "$dir/imports" || exit 1
echo 'fn f(a) = 2 * a;' >a.cell
ln -s a.cell link.cell && ln a.cell hard.cell && ln -s ../imports twice
cell='cell c { dim N; input x[N]; output y[N]; y[i] = f(x[i]); }'
printf 'import "%s";\n' a.cell ./a.cell d/../a.cell .//a.cell link.cell hard.cell twice/a.cell >s.cell
echo "$cell" >>s.cell
expect 0 "231 passed, 0 failed" "$cellc" check s.cell
expect 0 "" diff <(printf 's.cell\na.cell\n') <("$cellc" sources s.cell)
"$cellc" emit s.cell >s.c
"$cellc" sources --pack s.cell >s.pack
# A pack of other making has a path for each text, and nothing else.
pack() { # PATH TEXT...: a pack of these
    local kind=spec
    echo 'cellc sources 1'
    while (($#)); do
        printf '%s %d %d\n%s\n%s\n' $kind ${#1} ${#2} "$1" "$2"
        kind=import
        shift 2
    done
}
pack s.cell "import \"a.cell\"; import \"./a.cell\"; import \"d/../a.cell\"; $cell" ./a.cell 'fn f(a) = 2 * a;' >own.pack
mkdir elsewhere
for pack in s own; do
    (cd elsewhere && expect 0 "y[" "$cellc" emit --sources ../$pack.pack - && diff <(sed 's/s.cell:[0-9]*/s.cell/' "$said") \
        <(sed 's/s.cell:[0-9]*/s.cell/' ../s.c) && echo "$passed $failed" >../counts) || fail "the pack $pack is another cell"
    read -r passed failed <counts
done
# Two files of one name are two.
echo 'import "own.cell"; fn left(a) = l(a);' >d/side.cell && echo 'fn l(a) = a;' >d/own.cell
echo 'import "own.cell"; fn f(a) = r(a) + left(a);' >e/side.cell && echo 'fn r(a) = 3 * a;' >e/own.cell
printf 'import "d/side.cell"; import "e/side.cell";\n%s\n' "$cell" >two.cell
expect 0 "231 passed, 0 failed" "$cellc" check two.cell
# A circle is one under every spelling.
echo 'import "twice/circle.cell"; fn f(a) = a;' >d/round.cell && ln -s ../../imports d/twice
printf 'import "d/../d/round.cell";\n%s\n' "$cell" >circle.cell
expect 1 'import of "twice/circle.cell" goes round in a circle' "$cellc" check circle.cell
"$cellc" sources --pack circle.cell >circle.pack
expect 1 'import of "twice/circle.cell" goes round in a circle' "$cellc" explain --sources circle.pack -
# No line of what is no cell file is ever shown.
echo 'secret word' >secret && ln -s secret secret.cell && mkfifo pipe.cell && mkdir folder.cell && ln -s nowhere gone.cell
head -c 9000000 /dev/zero | tr '\0' ' ' >large.cell
refused() { # NAME MESSAGE: the import is refused, with files and as a pack is made
    printf 'import "%s";\n%s\n' "$1" "$cell" >s.cell
    for command in check run emit; do
        expect 1 "$2" timeout 20 "$cellc" $command s.cell
        if grep -q 'secret word' "$said"; then fail "$command shows a line of $1"; else pass; fi
    done
}
for name in secret ../imports/secret ../../../../etc/passwd .cell d/.cell; do
    refused "$name" 's.cell:1:1: error: an import names a file that ends in .cell, such as "std.cell"'
done
refused "$PWD/a.cell" 's.cell:1:1: error: an import names a file beside this one or of the library, such as "std.cell"'
refused gone.cell "s.cell:1:8: error: cannot find \"gone.cell\", neither beside this file nor in the library of cellc"
refused folder.cell "s.cell:1:8: error: cannot find \"folder.cell\", neither beside this file nor in the library of cellc"
refused secret.cell "s.cell:1:8: error: cannot open 'secret.cell': it is a link to a file whose name does not end in .cell"
expect 1 "s.cell:1:8: error: cannot open 'secret.cell': it is a link to a file" "$cellc" sources --pack s.cell
refused pipe.cell "s.cell:1:8: error: cannot open 'pipe.cell': it is not a regular file"
refused large.cell "s.cell:1:8: error: cannot read 'large.cell': it has more than 8 MB"
for spec in large.cell /dev/zero; do
    expect 1 "cellc: error: cannot read '$spec': it has more than 8 MB" "$cellc" check $spec
done
expect 1 "cellc: error: cannot open './folder.cell': it is a directory" "$cellc" explain ./folder.cell
"$cellc" explain pipe.cell >"$said" 2>&1 &
echo 'cell c { dim N; input x[N]; output y[N]; y[i] = x[i]; }' >pipe.cell
wait $!
says "cell c"
cd "$OLDPWD" || exit 1

# ---- a signal in the middle: the status is the signal's, and neither what was started nor temporary files stay

cat >"$dir/slow_cc" <<'SH'
#!/bin/bash
# A compiler that works for ever, in another process, and leaves a file where temporary files go.
echo >"$(mktemp)"
sleep 1234.5 &
echo $! >>"$STARTED"
wait
SH
chmod +x "$dir/slow_cc"
cat >"$dir/signals.py" <<'PY'
import os, signal, subprocess, sys, time
cellc, place = sys.argv[1:3]
runs = [("build", "gru", "--no-cuda", "-o", place + "/o"), ("check", "gru"), ("random", "--check", "1"),
        ("selftest", "gru", "--backend", "reference", "--dtype", "f64", "--jobs", "2")]
wrong = 0
for words in runs:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if words[0] == "build" else (signal.SIGINT,):
        tmp, started = place + "/tmp", place + "/started"
        os.makedirs(tmp)
        # A shell's background has SIGINT ignored, which stays so.
        child = subprocess.Popen([cellc, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                                 preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
                                 env={**os.environ, "TMPDIR": tmp, "STARTED": started, "CC": place + "/slow_cc"})
        for _ in range(1200):
            if os.path.exists(started) and os.path.getsize(started):
                break
            time.sleep(0.05)
        child.send_signal(number)
        said = child.communicate(timeout=60)[1].decode()
        def alive(pid):
            try:
                return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
            except OSError:
                return False
        running = [pid for pid in open(started).read().split() if alive(pid)]
        if child.returncode != -number or os.listdir(tmp) or running or said:
            print(words[0], number, child.returncode, os.listdir(tmp), running, said)
            wrong += 1
        os.remove(started)
        subprocess.run(["rm", "-rf", tmp])
sys.exit(wrong > 0)
PY
expect 0 "" python3 "$dir/signals.py" "$cellc" "$dir"
{ sleep 0.5 && "$cellc" emit e79; } | true
if [[ ${PIPESTATUS[0]} == 141 ]]; then pass; else fail "a closed pipe does not end emit"; fi

# ---- what is printed

for spec in specs/gru.cell specs/e79.cell; do
    if "$cellc" fmt - <"$spec" | diff -q - "$spec" >"$said"; then pass; else fail "fmt - gives $spec"; fi
done
expect 0 "<stdin>" bash -c "printf 'cell a {output y;y=1;}' | '$cellc' fmt --check - || true"
expect 0 "atan2(a, b)" "$cellc" ops
if grep -qF '%s' "$said"; then fail "ops prints a pattern of printf"; else pass; fi
expect 0 "Comba (Hu et al. 2025, arXiv:2506.02475): the delta rule" "$cellc" list
says "torch.nn.BatchNorm1d.eval()"
says "shrinks by exp(-exp(nu))"
cat >"$dir/greek.cell" <<'CELL'
cell greek {
    dim D, tau;
    input  x[D, tau], lambda[D];
    param  w_sigma[4*D] ~ zeros;
    output y[D];
    y[i] = lambda[i] * sum[j] x[i,j] + w_sigma[4*i];
}
CELL
expect 0 "| input | lambda (λ) | [B, T, D] |" "$cellc" doc "$dir/greek.cell"
says "| input | x | [B, T, D, tau] |"
says "| param | w_sigma | [4·D] |"
says "| tau (τ) | the caller's |"
# Indices that a state names are its axes, read or not; a condition is 1 where it holds.
expect 0 "P 1 1 2 2 2 1 0 0 1 1 0 0 1 Z 1 1 2 2 0 0 1 0" bash -c "'$cellc' run tests/meaning/named_axes.cell --dim H=2 --dim N=2 \\
    --print P --print Z --steps 1 --batch 1 | sed -n '/value P/,\$p' | sed 's/tensor value//' | tr -s '\\n ' ' ' | sed 's/^ //'"
# What depends on params alone, or on a sequence's start, is done once: no flops of a step.
cat >"$dir/once.cell" <<'CELL'
cell once {
    dim N = 8;
    input  x[N];
    param  w[N, N], a[N];
    state  h[N] = sum[k:N] w[k,i] * a[k];
    output y[N];
    s[i] = sum[j] w[i,j]^2;
    r[i] = tanh(s[i]);
    h'[i] = h[i] * r[i] + x[i];
    y[i] = h'[i];
}
CELL
expect 0 "forward: 24 flops and 128 bytes per sequence and step, 256 flops and 640 bytes once" "$cellc" doc "$dir/once.cell"

# ---- kernels of a user's cell without a GPU, as installed: no source tree is needed

if command -v "${CXX:-c++}" >/dev/null && [[ -z ${SAN:-} ]]; then
    if make -s install PREFIX="$dir/prefix" >"$said" 2>&1; then pass; else fail "make install"; fi
    expect 0 "kernels are tested on the CPU, by an emulator" env -C "$dir" "$dir/prefix/bin/cellc" selftest two.cell:twice --dtype f32 \
        --backend emulated --jobs 2
    says "twice f32 map: "
    if tail -n 1 "$said" | grep -qE '^[0-9]+ passed, 0 failed, 0 skipped$'; then pass; else fail "selftest --backend emulated"; fi
fi
expect 2 "--backend takes one of auto, cuda, reference, emulated, not 'gpu'" "$cellc" selftest gru --backend gpu

# ---- how far long work is, in one line of a terminal, which what is said behind it does not keep

if command -v script >/dev/null; then
    for command in "build twice" "selftest twice" "build none"; do
        read -r name cell <<<"$command"
        words="$cellc $name $dir/two.cell:$cell --no-cuda -o $dir/o"
        [[ $name == build ]] || words="$cellc $name $dir/two.cell:$cell --backend reference --dtype f64"
        SHELL=/bin/sh TERM=xterm script -qec "$words" /dev/null >"$said" 2>&1 </dev/null
        if [[ $cell == none ]]; then
            if grep -q '] 0 of' "$said"; then fail "progress before an error"; else pass; fi
            continue
        fi
        says "[------------------------] 0 of "
        if sed 's/\r$//; s/.*\r\x1b\[K//' "$said" | grep -qE '^\[[#-]+\] [0-9]+ of'; then fail "$words leaves its progress"; else pass; fi
        TERM=dumb SHELL=/bin/sh script -qec "$words" /dev/null >"$said" 2>&1 </dev/null
        if grep -q '] 0 of' "$said"; then fail "progress on a dumb terminal"; else pass; fi
        $words >"$said" 2>&1 </dev/null
        if grep -q '] 0 of' "$said"; then fail "progress without a terminal"; else pass; fi
    done
fi

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
