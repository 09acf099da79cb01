# Takes of instances those that tests/ladder/chosen takes, and those that it does not know. In: with file=1
# that list; with file=2 the lines of a matrix (tests/ladder/matrix.sh, with or without COVER=1); with file=3
# those of them that could be taken (cover.awk); SUITE, the first word of the list's lines for them, and ROOT,
# which lines do not depend on. Out: the lines, without FORM, in their order. A name in the list that the
# matrix does not have is said on stderr, and the exit code is 1. With -v KNOWN=1 instead: `NAME HASH` of each
# line with file=3, as the list has them.
#
# A line of the list is `SUITE NAME HASH take` or `... leave`. HASH is that of the instance's line: one whose
# options or sizes have changed is not known.
function hash(text,    i, sum) {
    for (i = 1; i <= length(text); i++)
        sum = (sum * 31 + code[substr(text, i, 1)]) % 2147483647
    return sum
}

function formless(line,    part) {
    return split(line, part, / \| ?/) > 2 ? part[1] " | " part[2] : line
}

function plain(line,    at) { # wherever the tree is
    line = formless(line)
    while ((at = index(line, ROOT "/")) > 0)
        line = substr(line, 1, at - 1) substr(line, at + length(ROOT) + 1)
    return line
}

BEGIN {
    for (i = 1; i < 128; i++)
        code[sprintf("%c", i)] = i
}

file == 1 {
    if ($1 == SUITE) {
        listed[$2] = $3
        take[$2] = $4 == "take"
    }
    next
}

file == 2 { there[$1] = 1 }

file == 2 || file == 3 {
    text = plain($0)
    name = $1
    if (file == 3 && KNOWN)
        print name, hash(text)
    if (!(name in known))
        known[name] = name in listed && hash(text) == listed[name]
    if (file == 2 ? known[name] && take[name] : !known[name])
        taken[name] = 1
    if (file == 2) {
        order[++n] = name
        lines[name] = formless($0)
    }
}

END {
    for (name in listed)
        if (!(name in there)) {
            print "FAIL tests/ladder/chosen: " SUITE " has no instance " name >"/dev/stderr"
            failed = 1
        }
    if (!KNOWN)
        for (i = 1; i <= n; i++)
            if (order[i] in taken)
                print lines[order[i]]
    exit failed
}
