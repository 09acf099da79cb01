# Cells whose names are the words that are read. In: words, one a line; `roles` and `many`, the words of a role; `round`, by which the
# roles of all words are shifted; `form`, which of the cells below; `prefix`, what their names begin with;
# `functions`, which are the language's. Out: the text of many
# cells, each behind a line "== NAME".
{ word[n++] = $1 }

function take(role, k) { return word[(first + (role + round) % roles * many + k) % n] }

function called(k,    name) { name = take(6, k); return index(functions, " " name " ") ? name "_as_fn" : name }

function list(keyword, role, behind,    k, text) {
    for (k = 0; k < many; k++)
        text = text "    " keyword " " take(role, k) behind ";\n"
    return text
}

# All roles there are: dims, inputs, params, states, outputs, definitions, functions, their parameters, constants, options
# and their values, indices.
function general(name,    k, d0, d, i, j, text) {
    print "== " name
    for (k = 0; k < many; k++)
        printf "fn %s(%s) = %s * sigmoid(%s);\n", called(k), take(7, k), take(7, k), take(7, k)
    print "cell " name " {"
    printf "%s", list("dim", 0, "")
    d0 = take(0, 0)
    for (k = 0; k < many; k++)
        printf "    input %s[%s];\n    param %s[%s, %s];\n", take(1, k), take(0, k), take(2, k), d0, take(0, k)
    printf "%s%s%s", list("state", 3, "[" d0 "]"), list("output", 4, "[" d0 "]"), list("const", 8, " = 2")
    for (k = 0; k < many; k++)
        printf "    option %s = %s | %s;\n", take(9, k), take(0, k), take(1, k)
    for (k = 0; k < many; k++) {
        i = take(10, k); j = take(10, (k + 1) % many)
        printf "    %s[%s:%s] = %s(sum[%s] %s[%s, %s] * %s[%s]) / %s + %s[%s] + %s;\n", take(5, k), i, d0, called(k), j, \
               take(2, k), i, j, take(1, k), j, take(8, k), take(3, k), i, k ? take(5, k - 1) "[" i "]" : i
        printf "    %s'[%s] = %s[%s] * 0.5;\n", take(3, k), i, take(5, k), i
        printf "    when (%s == %s) { %s[%s] = %s'[%s] + %s; } else { %s[%s] = 1; }\n", take(9, k), take(0, k), take(4, k), i, \
               take(3, k), i, take(0, k), take(4, k), i
    }
    print "}"
}

# What other schedules have as names: a matrix memory, which a walk holds in registers.
function walk(name,    k, N, i, j, S, q) {
    print "== " name
    print "cell " name " {"
    N = take(0, 0); i = take(4, 0); j = take(4, 1); S = take(5, 0); q = take(1, 0)
    print "    dim " N " = 8;"
    for (k = 0; k < many; k++)
        printf "    input %s[%s];\n    param %s[%s];\n", take(1, k), N, take(2, k), N
    print "    state " S "[" N ", " N "];\n    output " take(0, 1) "[" N "];"
    for (k = 0; k < many; k++)
        printf "    %s[%s] = tanh(sum[%s] %s[%s, %s] * %s[%s]) + %s[%s] * %s[%s];\n", take(3, k), i, j, S, i, j, take(1, k), j, \
               take(2, k), i, k ? take(3, k - 1) : take(1, k), i
    printf "    %s'[%s, %s] = 0.5 * %s[%s, %s] + %s[%s] * %s[%s];\n", S, i, j, S, i, j, take(3, many - 1), i, q, j
    printf "    %s[%s] = sum[%s] %s'[%s, %s] * %s[%s];\n", take(0, 1), i, j, S, i, j, take(1, 1), j
    print "}"
}

# A state that a matrix multiplies, and what it multiplied some steps ago.
function dense(name,    k, N, i, j, h) {
    print "== " name
    print "cell " name " {"
    N = take(0, 0); i = take(4, 0); j = take(4, 1); h = take(5, 0)
    print "    dim " N ";\n    state " h "[" N "];"
    for (k = 0; k < many - 1; k++)
        printf "    input %s[%s];\n    param %s[%s, %s];\n    output %s[%s];\n", take(1, k), N, take(2, k), N, N, take(5, k + 1), N
    for (k = 0; k < many - 1; k++) {
        printf "    %s[%s] = tanh(sum[%s] %s[%s, %s] * %s[%s] + %s[%s]);\n", take(3, k), i, j, take(2, k), i, j, h, j, take(1, k), i
        printf "    %s[%s] = %s[%s] + sum[%s:3] %s[%s; t - 1 - %s];\n", take(5, k + 1), i, take(3, k), i, take(4, 2), \
               take(1, k), i, take(4, 2)
    }
    printf "    %s'[%s] = %s[%s] * 0.5;\n", h, i, take(3, 0), i
    print "}"
}

END {
    for (first = 0; first < n; first += roles * many)
        if (form == "general") general(prefix (++c))
        else if (form == "walk") walk(prefix (++c))
        else dense(prefix (++c))
}
