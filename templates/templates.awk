# templates.awk: a file of templates/ as a C header. In comes a template: skeletons of kernels, a part each,
# with holes (docs/design.md has the form). Out goes, for each part, a struct with a field for each hole, the
# part as a table that gen/emit/template.c prints, and a function that does so. A mistake in the template is
# named with its line, and nothing comes out then (exit code 1).

function fail(text) {
    printf "%s:%d: error: %s\n", FILENAME, FNR, text > "/dev/stderr"
    failed = 1
}

# product_of_step: ProductOfStep
function camel(name,    words, n, i, all) {
    n = split(name, words, "_")
    for (i = 1; i <= n; i++) all = all toupper(substr(words[i], 1, 1)) substr(words[i], 2)
    return all
}

function quoted(text) {
    gsub(/[\\"]/, "\\\\&", text)
    return "\"" text "\""
}

function piece(op, n, of, text) {
    op_of[pieces] = op; n_of[pieces] = n; hole_of[pieces] = of; text_of[pieces] = text
    pieces++
}

function declared(name) { return (part, name) in number }

# The number of a hole that is used here.
function hole(name) {
    if (!declared(name)) {
        fail("hole '" name "' is not in the comment of part '" part "'")
        return 0
    }
    used[name] = 1
    return number[part, name]
}

function add_hole(kind, name, line) {
    if (declared(name)) fail("hole '" name "' is there twice")
    if (name ~ /^(if|else|end|part)$/) fail("no hole can be called '" name "'")
    number[part, name] = holes
    name_of[holes] = name
    kind_of[holes] = kind
    line_of[holes] = line
    holes++
}

function begin_part(name) {
    end_part()
    part = name
    if (name !~ /^[a-z][a-z0-9_]*$/) fail("'" name "' is no name of a part")
    if (name in parts) fail("part '" name "' is there twice")
    parts[name] = 1
    holes = pieces = depth = 0
    said = inside = 0
    split("", used)
}

function end_part(    i) {
    if (part == "") return
    if (depth) fail("part '" part "' ends inside of the section of line " opened_at[depth])
    if (!said) fail("part '" part "' has no comment")
    if (!pieces) fail("part '" part "' is empty")
    for (i = 0; i < holes; i++)
        if (!(name_of[i] in used)) fail("nothing uses hole '" name_of[i] "' of part '" part "'")
    out = out part_text()
    part = ""
}

function part_text(    i, type, text) {
    type = camel(part) "Frame"
    text = "typedef struct " type " {\n"
    for (i = 0; i < holes; i++)
        text = text (kind_of[i] == "if" ? "    bool " : "    const char *") name_of[i] ";\n"
    if (!holes) text = text "    bool none;\n"
    text = text "} " type ";\n\nstatic inline void " part "_frame(Buf *out, const " type " *frame)\n{\n"
    if (holes) {
        text = text "    static const TemplateHole holes[] = {\n"
        for (i = 0; i < holes; i++)
            text = text sprintf("        { \"%s\", offsetof(%s, %s), %s },\n", name_of[i], type, name_of[i],
                kind_of[i] == "if" ? "TEMPLATE_IS" : kind_of[i] ~ /\?/ ? "TEMPLATE_MAYBE" : "TEMPLATE_ALWAYS")
        text = text "    };\n"
    }
    text = text "    static const TemplatePiece pieces[] = {\n"
    for (i = 0; i < pieces; i++)
        text = text sprintf("        { %s, %d, %d, %s },\n", op_of[i], n_of[i], hole_of[i],
            quoted(text_of[i]))
    # A line break cannot stand in what awk quotes, so it is put behind.
    gsub(/<newline>"/, "\\n\"", text)
    text = text "    };\n    static const Template part = { \"" part "\", pieces, " pieces ", " \
        (holes ? "holes" : "NULL") ", " holes " };\n    template_print(out, &part, frame);\n}\n\n"
    return text
}

# A line with holes in it: its indentation, then texts and holes by turns.
function code(line,    indent, at, name, op) {
    match(line, /^ */)
    indent = RLENGTH
    line = substr(line, indent + 1)
    name = substr(line, 2)
    if (line ~ /^\$[a-z][a-z0-9_]*$/ && declared(name) && kind_of[number[part, name]] ~ /^lines/) {
        piece("TEMPLATE_LINES", indent, hole(name), "")
        return
    }
    op = "TEMPLATE_LINE"
    while (match(line, /\$(\{[^}]*\}|[a-zA-Z_0-9]*)/)) {
        at = RSTART
        name = substr(line, at + 1, RLENGTH - 1)
        if (at > 1 || op == "TEMPLATE_LINE") piece(op, indent, 0, substr(line, 1, at - 1))
        op = "TEMPLATE_TEXT"
        line = substr(line, at + RLENGTH)
        gsub(/[{}]/, "", name)
        if (name !~ /^[a-z][a-z0-9_]*$/) {
            fail("'$' stands in front of no hole")
            continue
        }
        piece("TEMPLATE_HOLE", 0, hole(name), "")
        if (declared(name) && kind_of[number[part, name]] !~ /^text/)
            fail("hole '" name "' cannot stand inside of a line: it is declared as '" \
                kind_of[number[part, name]] "'")
    }
    piece(op, indent, 0, line "<newline>")
}

function open_section(name,    h) {
    h = hole(name)
    if (declared(name) && kind_of[h] !~ /^if$|\?$/)
        fail("hole '" name "' is always there, so it is no condition")
    depth++
    opened_at[depth] = FNR
    open_piece[depth] = pieces
    has_else[depth] = 0
    piece("TEMPLATE_IF", 0, h, "")
}

function else_section() {
    if (!depth || has_else[depth]) { fail("'$else' without '$if'"); return }
    has_else[depth] = 1
    n_of[open_piece[depth]] = pieces + 1
    open_piece[depth] = pieces
    piece("TEMPLATE_GOTO", 0, 0, "")
}

function end_section() {
    if (!depth) { fail("'$end' without '$if'"); return }
    n_of[open_piece[depth]] = pieces
    depth--
}

# The comment of a part: what it is, and its holes, a line each.
function comment(line) {
    if (line ~ /^ \*   ((text|lines)\??|if) +[a-z][a-z0-9_]* +[^ ]/) {
        split(substr(line, 3), word, " +")
        add_hole(word[2], word[3], FNR)
    }
    if (line ~ /\*\/ *$/) inside = 0
}

/^ *\/\/\$/ { next }
FNR == 1 && !/^\/\*/ { fail("no comment says what the template is") }
/^\$part / { begin_part($2); next }
part == "" { next }
inside { comment($0); next }
!said && /^ *$/ { next }
!said {
    if ($0 !~ /^\/\*/) fail("part '" part "' begins without a comment")
    said = inside = 1
    comment($0)
    next
}
/^ *$/ { blank = 1; next }
/^ *\$if / { open_section($2); next }
/^ *\$else *$/ { else_section(); next }
/^ *\$end *$/ { end_section(); next }
{ code($0) }
END {
    if (!failed) {
        end_part()
        if (out == "") fail("no part in it")
    }
    if (failed) exit 1
    guard = toupper(FILENAME)
    gsub(/.*\/|\.CUH$/, "", guard)
    gsub(/[^A-Z0-9]/, "_", guard)
    printf "/* Made by templates/templates.awk from a file of templates/. */\n"
    printf "#ifndef CELLC_TEMPLATE_%s\n#define CELLC_TEMPLATE_%s\n\n", guard, guard
    printf "#include \"emit/template.h\"\n\n%s#endif\n", out
}
