# Chooses among instances that differ in their type alone. In: lines as tests/ladder/matrix.sh prints them
# with COVER=1, each setting in all of its types: `NAME SPEC OPTIONS | SIZES | FORM`, FORM a word for the
# kernels that its sizes are for, or nothing. Out: some of the lines, in their order, without FORM, such
# that there are
#   - every setting: spec, schedule, options, form;
#   - every schedule and form in each of its types;
#   - every spec, and every option, in types of 16 bits and in wider ones, where it has such;
#   - every schedule and form of a spec in 16 bits and in wider types, where its lines name types of their own (not
#     all four);
#   - every cell that is given by its path (tests/constructs) in each of its types of 16 bits.
# The choice is greedy, in the order of the lines: the type that brings most of what is not there yet.
function want(what) {
    if (!(what in wanted)) {
        wanted[what] = 1
        missing[what] = 1
    }
    of[NR] = of[NR] SUBSEP what
}

{
    if (split($0, part, / \| ?/) < 3) {
        print "cover.awk: no form: " $0 >"/dev/stderr"
        exit 1
    }
    line[NR] = part[1] " | " part[2]
    split(part[1], word, " ")
    schedule = type = ""
    n = split(part[1], word, " ")
    options = 0
    for (i = 3; i <= n; i++) {
        if (word[i] == "--schedule") schedule = word[++i]
        else if (word[i] == "--dtype") type = word[++i]
        else if (word[i] == "--import-dir") i++
        else if (word[i] ~ /^--(dim|set|products|archs)$/) {
            option[++options] = word[i] " " word[i + 1]
            i++
        } else if (word[i] ~ /^--/) option[++options] = word[i]
    }
    width = type ~ /16$/ ? "16" : "wide"
    setting[NR] = part[1]
    sub(/^[^ ]* /, "", setting[NR])
    sub("--dtype " type, "", setting[NR])
    setting[NR] = setting[NR] "|" part[3]
    types[setting[NR]]++
    kernels[NR] = word[2] " " schedule " " part[3] " " width
    want("setting " setting[NR])
    want("schedule " schedule " " part[3] " " type)
    want("spec " word[2] " " width)
    if (word[2] ~ /\// && width == "16")
        want("cell " word[2] " " type)
    for (i = 1; i <= options; i++)
        if (option[i] !~ /^--dim/)
            want("option " option[i] " " width)
}

function gain(k,    what, n, i, sum) {
    n = split(of[k], what, SUBSEP)
    for (i = 2; i <= n; i++)
        sum += what[i] in missing
    return sum + 0
}

function choose(k,    what, n, i) {
    chosen[k] = 1
    n = split(of[k], what, SUBSEP)
    for (i = 2; i <= n; i++)
        delete missing[what[i]]
}

END {
    for (k = 1; k <= NR; k++)
        if (types[setting[k]] < 4) {
            of[k] = of[k] SUBSEP "own " kernels[k]
            missing["own " kernels[k]] = 1
        }
    # First the settings with one type, which are there anyhow; then the best type of each other one; then what
    # is left.
    for (k = 1; k <= NR; k++)
        if (types[setting[k]] == 1)
            choose(k)
    for (k = 1; k <= NR; k++) {
        if (setting[k] in done)
            continue
        done[setting[k]] = 1
        if (types[setting[k]] == 1)
            continue
        best = -1
        for (i = k; i <= NR && i < k + 8; i++)
            if (setting[i] == setting[k] && gain(i) > best) {
                best = gain(i)
                at = i
            }
        choose(at)
    }
    for (k = 1; k <= NR; k++)
        if (gain(k))
            choose(k)
    for (k = 1; k <= NR; k++)
        if (k in chosen)
            print line[k]
}
