#!/bin/bash
# Makes the list tests/ladder/chosen again: builds the compiler, the runtime and the kernels of ladder such
# that they say what they execute (trace.c), emits every instance of ladder, constructs and spec_kernels, runs those of
# ladder, and chooses (choose.py). By hand, after changes that bring many instances, or when the suites take
# too long: half an hour on two cores, 5 GB. In: clang, g++, llvm-symbolizer, python3; WORK, a folder for all
# that, where suites that are done are not done again (WORK/SUITE.dirs).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
work=${WORK:-$root/build/coverage}
mkdir -p "$work/traces"
cd "$root"

wrapper() { # NAME: a program of the text on stdin
    cat >"$work/$1"
    chmod +x "$work/$1"
}
gcc -O2 -fPIC -c "$here/trace.c" -o "$work/trace.o"
# What is linked begins with the part that writes traces; -S would take the lines away.
wrapper cc-compiler <<END
#!/bin/bash
case " \$* " in
*" -c "*) exec clang -fsanitize-coverage=edge,no-prune,trace-pc -w "\$@" ;;
*) exec clang "$work/trace.o" "\$@" ;;
esac
END
wrapper cc-runtime <<END
#!/bin/bash
exec gcc -g1 -fsanitize-coverage=trace-pc,trace-cmp "\$@"
END
wrapper cxx <<END
#!/bin/bash
words=()
for word; do [[ \$word == -Wl,-S ]] || words+=("\$word"); done
case " \$* " in
*" -x c++-header "* | *.cu\ *) exec g++ -g1 -fsanitize-coverage=trace-pc,trace-cmp "\${words[@]}" ;;
*" -c "* | *" -r "* | *--version*) exec g++ "\${words[@]}" ;;
*) exec g++ "$work/trace.o" "\${words[@]}" ;;
esac
END
# The trace of cellc goes by the name of the instance, that of the folder to which it is emitted. Nothing
# is checked here.
wrapper cellc <<END
#!/bin/bash
[[ \$1 != check ]] || exit 0
name= next=
for word; do
    [[ -z \$next ]] || name=\$(basename "\$word" .new)
    next=
    [[ \$word != -o ]] || next=1
done
[[ \$1 == emit && " \$* " != *" manifest "* ]] || exec "$work/compiler/cellc" "\$@"
[[ -n \$name ]] && echo "\$name" >"$work/last" || name=\$(<"$work/last")
CELL_TRACE="$work/traces/\$name.emit" exec "$work/compiler/cellc" "\$@"
END
make -s BUILD="$work/compiler" NOCUDA=1 CC="$work/cc-compiler" CFLAGS="-g1 -O0" WERROR= "$work/compiler/cellc"
make -s BUILD="$work/build" NOCUDA=1 CC="$work/cc-runtime" CFLAGS=-O1 "$work"/build/libcell.{a,flags}
make -s BUILD="$work/plain" NOCUDA=1 CC=gcc "$work/plain/libladder.a"
cp "$work/plain/libladder.a" "$work/build/"

export BUILD=$work/build CELLC=$work/cellc CC=gcc CXX=$work/cxx VERDICTS=off CHOSEN='' CELL_TRACE=beside
export EMU_SANITIZE=0 KEEP=$work/build/tests/constructs
for suite in ladder constructs spec_kernels; do
    export PREPARED=1
    [[ $suite != ladder ]] || PREPARED=
    [[ -e $work/$suite.dirs ]] || bash "tests/$suite/run.sh" | tail -n 5
    dir=$work/build/tests/$suite
    [[ $suite == spec_kernels ]] && cover=(cat) || cover=(awk -f tests/ladder/cover.awk)
    "${cover[@]}" <"$dir/matrix" >"$dir/candidates"
    cp "$dir/matrix" "$work/$suite.lines"
    awk -v KNOWN=1 -v SUITE=$suite -v ROOT="$root" -f tests/ladder/chosen.awk file=2 "$dir/matrix" file=3 \
        "$dir/candidates" >"$work/$suite.known"
    echo "$dir" >"$work/$suite.dirs"
done
python3 "$here/choose.py" "$work"
