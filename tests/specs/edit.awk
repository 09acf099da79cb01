# Rewrites a vector file. In: the file; edits, a list of words; keep, what the other cell has, as "kind:name:axes"
# words (empty: everything stays and results are left out, so that they are computed anew); sizes, the "# sizes:"
# of the result. Out: a vector file. The edits:
#
#   q*0.5                every value times 0.5
#   i=f*-1               those of another tensor, scaled
#   g=0.3                every value 0.3;  b@2=0.3 element 2 (from 0) alone
#   k>input:kn/1,4       becomes another tensor; its axes behind B and T
#   +input:b/2=0.3       a new tensor
#   +param:U/2,3=W@6     one that is a run of another's values, from element 6; at the end it begins again
#   -S                   leaves out S, as a state and as a final one
function find(name, kinds, n) {
    for (n = 1; n <= count; n++)
        if (!gone[n] && names[n] == name && index(kinds, kind[n]))
            return n
    print "no tensor " name >"/dev/stderr"
    exit failed = 1
}
function lead(k) { return k ~ /param/ ? "" : k ~ /state|final/ ? B : B " " T }
function product(s, i, n, a, p) {
    n = split(s, a, " "); p = 1
    for (i = 1; i <= n; i++) p *= a[i]
    return p
}
function fill(n, x, at, i, m, a, out) {
    m = product(shape[n]); split(values[n], a, " "); out = ""
    for (i = 1; i <= m; i++) out = out (i > 1 ? " " : "") (at == "" || at == i - 1 ? x : a[i])
    values[n] = out
}
function scale(n, x, i, m, a, out) {
    m = split(values[n], a, " "); out = ""
    for (i = 1; i <= m; i++) out = out (i > 1 ? " " : "") sprintf("%.17g", a[i] * x)
    values[n] = out
}
function slice(n, what, part, a, i, k, m, out) {
    split(what, part, "@"); k = split(values[find(part[1], "input param value")], a, " ")
    m = product(shape[n]); out = ""
    for (i = 1; i <= m; i++) out = out (i > 1 ? " " : "") a[(part[2] + i - 1) % k + 1]
    values[n] = out
}
function edit(word, part, to, n, m) {
    if (word ~ /^-/) {
        for (n = 1; n <= count; n++) if (names[n] == substr(word, 2)) gone[n] = 1
    } else if (word ~ /^\+/) {
        match(word, /=.*/); m = substr(word, RSTART + 1); split(substr(word, 2, RSTART - 2), to, /[:\/]/)
        count++; kind[count] = to[1]; names[count] = to[2]; gsub(",", " ", to[3])
        shape[count] = lead(to[1]) " " to[3]
        if (m ~ /@/) slice(count, m)
        else fill(count, m, "")
    } else if (word ~ />/) {
        split(word, part, ">"); split(part[2], to, /[:\/]/)
        n = find(part[1], "input param value output final"); kind[n] = to[1]; names[n] = to[2]
        gsub(",", " ", to[3])
        if (part[2] ~ /\//) shape[n] = lead(to[1]) " " to[3]
    } else if (word ~ /=/) {
        split(word, part, "="); split(part[1], to, "@"); n = find(to[1], "input param state")
        if (part[2] ~ /\*/) {
            split(part[2], to, "*"); values[n] = values[find(to[1], "input param value")]; scale(n, to[2])
        } else fill(n, part[2], to[2])
    } else { split(word, part, "*"); n = find(part[1], "input param value output state"); scale(n, part[2]) }
}
/^# sizes:/ {
    split($3, one, "="); B = one[2]; split($4, one, "="); T = one[2]
    if (sizes == "") sizes = substr($0, 10)
}
/^tensor/ {
    count++; kind[count] = $2; names[count] = $3
    for (i = 4; i <= NF; i++) shape[count] = shape[count] " " $i
    next
}
/^#/ { next }
{ values[count] = values[count] " " $0 }
END {
    if (failed) exit 1
    m = split(edits, word, " ")
    for (i = 1; i <= m; i++) edit(word[i])
    if (failed) exit 1
    print "# sizes: " (sizes ~ /B=/ ? sizes : "B=" B " T=" T " " sizes)
    for (n = 1; n <= count; n++) {
        text = shape[n]; gsub(/^ +| +$/, "", text); gsub(/ +/, ",", text)
        stays = keep == "" ? kind[n] !~ /output|final|value/ : index(keep, " " kind[n] ":" names[n] ":" text " ")
        if (gone[n] || !stays) continue
        gsub(",", " ", text); print "tensor " kind[n] " " names[n] " " text; print values[n]
    }
}
