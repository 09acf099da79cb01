/* completion.c: what can stand at a place. In: a place in a document, whose statement is being written and
 * mostly broken. Out: the names, functions and words that fit there. The place is read from the characters of
 * its statement, so that it does not matter what is missing behind it; names are those of the text, or of the
 * last one without errors where recovery lost the cell around the place. */
#include <dirent.h>
#include <string.h>

#include "front/complex_ops.h"
#include "front/front.h"
#include "ir/ops.h"
#include "server.h"

/* Kinds of the protocol. */
enum { ITEM_FUNCTION = 3, ITEM_FIELD = 5, ITEM_VARIABLE = 6, ITEM_CLASS = 7, ITEM_PROPERTY = 10,
       ITEM_ENUM = 13, ITEM_KEYWORD = 14,
       ITEM_FILE = 17, ITEM_CHOICE = 20, ITEM_CONSTANT = 21, ITEM_TYPE = 25 };
enum { DEPTH = 64 };

/* The statement up to the place. */
typedef struct Before {
    const char *text;
    uint32_t at;                  /* the place */
    uint32_t word;                /* where the word begins that is being written; `at`: none is */
    uint32_t start;               /* where the statement begins */
    bool comment, quoted;
    int open;                     /* brackets that are open */
    uint32_t bracket[DEPTH];      /* where */
} Before;

static bool letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void begin(Before *b, uint32_t at)
{
    b->start = at;
    b->open = 0;
}

/* The end of the comment or string that begins at i, or the place, with the flag of what it is in. */
static uint32_t skip_apart(Before *b, uint32_t i, uint32_t len)
{
    const char *s = b->text;
    if (s[i] == '"') {
        uint32_t k = i + 1;
        while (k < len && s[k] != '"' && s[k] != '\n')
            k++;
        b->quoted = b->at > i && b->at <= k;
        return k;
    }
    if (s[i + 1] == '/') {
        uint32_t k = i;
        while (k < len && s[k] != '\n')
            k++;
        b->comment = b->at > i + 1 && b->at <= k;
        return k ? k - 1 : 0;
    }
    const char *end = i + 2 < len ? memmem(s + i + 2, len - i - 2, "*/", 2) : NULL;
    uint32_t k = end ? (uint32_t)(end - s) + 1 : len;
    b->comment = b->at > i + 1 && b->at <= k;
    return k;
}

/* Where the statement's first word is, behind blanks and comments. */
static uint32_t skip_to_word(const Before *b)
{
    const char *s = b->text;
    uint32_t i = b->start;
    while (i < b->word) {
        const char *end = NULL;
        if (s[i] == '/' && s[i + 1] == '/')
            end = memchr(s + i, '\n', b->word - i);
        else if (s[i] == '/' && s[i + 1] == '*')
            end = memmem(s + i + 2, b->word - i > 2 ? b->word - i - 2 : 0, "*/", 2);
        else if (!blank(s[i]))
            break;
        i = end ? (uint32_t)(end - s) + (*end == '*' ? 2 : 1) : blank(s[i]) ? i + 1 : b->word;
    }
    return i < b->word ? i : b->word;
}

static Before read_before(const Source *source, uint32_t at)
{
    Before b = { .text = source->text, .at = at < source->len ? at : (uint32_t)source->len };
    const char *s = source->text;
    for (uint32_t i = 0; i < b.at && !b.comment && !b.quoted; i++) {
        if (s[i] == '"' || (s[i] == '/' && (s[i + 1] == '/' || s[i + 1] == '*'))) {
            i = skip_apart(&b, i, (uint32_t)source->len);
        } else if (s[i] == '{' || s[i] == '}' || (s[i] == ';' && !b.open)) {
            begin(&b, i + 1);
        } else if (s[i] == '[' || s[i] == '(') {
            if (b.open < DEPTH)
                b.bracket[b.open] = i;
            b.open++;
        } else if ((s[i] == ']' || s[i] == ')') && b.open) {
            b.open--;
        } else if (s[i] == ';') {             /* the step of x[d; t-1], or a bracket that was not closed */
            uint32_t k = i + 1;
            while (k < b.at && (s[k] == ' ' || s[k] == '\t'))
                k++;
            if (s[k] == '\n' || s[k] == '\r')
                begin(&b, i + 1);
        }
    }
    b.open = b.open < DEPTH ? b.open : DEPTH;
    for (b.word = b.at; b.word > b.start && letter(s[b.word - 1]);)
        b.word--;
    b.start = skip_to_word(&b);
    return b;
}

/* The last character before `at` in the statement that is no blank; 0: there is none. */
static char last_before(const Before *b, uint32_t at, uint32_t *where)
{
    while (at > b->start && blank(b->text[at - 1]))
        at--;
    *where = at > b->start ? at - 1 : at;
    return at > b->start ? b->text[at - 1] : 0;
}

/* The word that ends at `at`, interned; NULL: there is none. */
static const char *word_before(Compiler *c, const Before *b, uint32_t at)
{
    uint32_t lo = at;
    while (lo > b->start && letter(b->text[lo - 1]))
        lo--;
    return lo < at ? intern_n(c, b->text + lo, at - lo) : NULL;
}

/* The first word of the statement. */
static const char *first_word(Compiler *c, const Before *b)
{
    uint32_t hi = b->start;
    while (hi < b->at && letter(b->text[hi]))
        hi++;
    return intern_n(c, b->text + b->start, hi - b->start);
}

/* ---- items */

typedef struct List { Request *r; Compiler *c; NameMap there; bool any; } List;

static void add(List *l, const char *label, int kind, const char *detail, const char *means)
{
    Buf *out = &l->r->out;
    label = intern(l->c, label);
    if (map_get(&l->there, label))
        return;
    map_put(l->r->m->arena, &l->there, label, l);
    buf_f(out, l->any ? ", {\"label\": " : "{\"label\": ");
    put_string(out, label);
    buf_f(out, ", \"kind\": %d", kind);
    if (detail) {
        buf_f(out, ", \"detail\": ");
        put_string(out, detail);
    }
    if (means && *means) {
        buf_f(out, ", \"documentation\": ");
        put_markup(out, means, strlen(means), l->r->s->marks_items);
    }
    buf_f(out, "}");
    l->any = true;
}

static int item_kind(const Name *n)
{
    switch (n->kind) {
    case NAME_CELL: return ITEM_CLASS;
    case NAME_DIM: case NAME_CONST: return ITEM_CONSTANT;
    case NAME_OPTION: return ITEM_ENUM;
    case NAME_CHOICE: return ITEM_CHOICE;
    case NAME_PARAM: return ITEM_PROPERTY;
    case NAME_STATE: case NAME_CARRY: return ITEM_FIELD;
    case NAME_FN: return ITEM_FUNCTION;
    default: return ITEM_VARIABLE;
    }
}

static void add_name(List *l, const NameTable *t, const Name *n)
{
    const Source *s = &t->c->sources.data[n->span.file];
    const char *text = declaration_text(t->c, s, n), *line = intern_n(t->c, text, strcspn(text, "\n"));
    add(l, n->name, item_kind(n), strlen(line) > 100 || n->kind == NAME_INDEX ? name_kind_words(n) : line,
        n->kind == NAME_CHOICE ? NULL : comment_of(l->r->m->arena, s, n->stmt));
}

static void add_scope(List *l, const NameTable *t, const Region *at)
{
    for (const Region *r = at; r; r = r->apart ? NULL : r->outer)
        for (int i = 0; i < r->list.len; i++)
            add_name(l, t, r->list.data[i]);
}

/* Indices that the statement binds before the place: names in its open or closed brackets that ',' or ':' or
 * ']' follows. */
static void add_indices(List *l, const Before *b)
{
    const char *s = b->text;
    int depth = 0;
    for (uint32_t i = b->start; i < b->word; i++) {
        if (s[i] == '[' || s[i] == ']')
            depth += s[i] == '[' ? 1 : -1;
        bool first = s[i] == '[' || (s[i] == ',' && depth > 0);
        if (!first)
            continue;
        uint32_t lo = i + 1, hi;
        while (lo < b->word && blank(s[lo]))
            lo++;
        for (hi = lo; hi < b->word && letter(s[hi]);)
            hi++;
        uint32_t end = hi;
        while (end < b->word && blank(s[end]))
            end++;
        bool name = hi > lo && !(s[lo] >= '0' && s[lo] <= '9') && end < b->word && strchr(",:]", s[end]);
        if (name && hi - lo <= 3)
            add(l, intern_n(l->c, s + lo, hi - lo), ITEM_VARIABLE, "an index", NULL);
    }
}

static void add_functions(List *l, const NameTable *t)
{
    for (int i = 0; t && i < t->fn_list.len; i++)
        add_name(l, t, t->fn_list.data[i]);
    for (int i = 0; reduction_at(i); i++)
        add(l, reduction_at(i), ITEM_KEYWORD, "a reduction", language_word(l->c, reduction_at(i)));
    for (int i = 0; i < OP_COUNT; i++)
        if (op_table[i].in_language)
            add(l, op_table[i].name, ITEM_FUNCTION, "a function", language_word(l->c, op_table[i].name));
    for (int i = 0; i < CX_COUNT; i++)
        add(l, complex_table[i].name, ITEM_FUNCTION, "a function",
            language_word(l->c, complex_table[i].name));
    static const char *const others[] = { "div", "mod", "grad" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        add(l, others[i], ITEM_FUNCTION, "a function", language_word(l->c, others[i]));
    static const char *const numbers[] = { "pi", "inf", "t" };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        add(l, numbers[i], ITEM_CONSTANT, "a number", language_word(l->c, numbers[i]));
}

static void add_words(List *l, const char *(*word_at)(int), int kind, const char *detail)
{
    for (int i = 0; word_at(i); i++)
        add(l, word_at(i), kind, detail, language_word(l->c, word_at(i)));
}

static void add_keywords(List *l)
{
    add_words(l, statement_word_at, ITEM_KEYWORD, "begins a statement");
}

static void add_files(List *l, const char *dir)
{
    enum { MAX_SHOWN = 500 };
    DIR *d = dir ? opendir(dir) : NULL;
    for (int left = MAX_SHOWN; d && left; left--) {
        const struct dirent *e = readdir(d);
        size_t n = e ? strlen(e->d_name) : 0;
        if (!e)
            break;
        if (n > 5 && strcmp(e->d_name + n - 5, ".cell") == 0)
            add(l, e->d_name, ITEM_FILE, "a file", NULL);
    }
    if (d)
        closedir(d);
}

/* ---- where the place is */

/* act == | : the choices of an option. */
static bool add_choices(List *l, const NameTable *t, const Region *at, const Before *b)
{
    uint32_t where;
    char last = last_before(b, b->word, &where);
    if (last != '=' || where == 0 || (b->text[where - 1] != '=' && b->text[where - 1] != '!'))
        return false;
    uint32_t end;
    last_before(b, where - 1, &end);
    const char *word = word_before(t->c, b, end + 1);
    const Name *option = word ? region_find(at, word, false) : NULL;
    if (!option || option->kind != NAME_OPTION)
        return false;
    for (int i = 0; i < t->all.len; i++)
        if (t->all.data[i]->option == option)
            add_name(l, t, t->all.data[i]);
    return true;
}

/* gates(p).| : what the block of the fn defines. */
static bool add_members(List *l, const NameTable *t, const Before *b)
{
    uint32_t where, end;
    if (last_before(b, b->word, &where) != '.' || last_before(b, where, &end) != ')')
        return false;
    int depth = 0;
    uint32_t i = end + 1;
    while (i > b->start) {
        i--;
        depth += b->text[i] == ')' ? 1 : b->text[i] == '(' ? -1 : 0;
        if (!depth)
            break;
    }
    const char *fn = word_before(t->c, b, i);
    const Name *n = fn ? map_get(&t->fns, fn) : NULL;
    for (int k = 0; n && n->region && k < n->region->list.len; k++)
        if (n->region->list.data[k]->kind == NAME_DEFINITION || n->region->list.data[k]->kind == NAME_CARRY)
            add_name(l, t, n->region->list.data[k]);
    return true;
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

static void add_at(List *l, const NameTable *t, const Region *at, const Before *b)
{
    static const char *const data[] = { "input", "param", "state", "output", "const", "reset", "carry",
                                        NULL };
    static const char *const nothing[] = { "option", "dim", "import", "cell", NULL };
    uint32_t where;
    char last = last_before(b, b->word, &where);
    const char *first = first_word(l->c, b);
    bool declares = is_one_of(first, data) && b->word > b->start;
    bool starts = b->word <= b->start;
    if (starts) {
        add_keywords(l);
        if (t)
            add_scope(l, t, at);
        return;
    }
    if (t && (add_choices(l, t, at, b) || add_members(l, t, b)))
        return;
    if (last == '~') {
        add_words(l, initialiser_at, ITEM_FUNCTION, "an initialiser");
        return;
    }
    if (last == ':' && !b->open && declares) {
        add_words(l, tensor_type_at, ITEM_TYPE, "a type");
        return;
    }
    if (last == ':' && !b->open && !memchr(b->text + b->start, '?', b->word - b->start)) {
        add(l, "dtype", ITEM_TYPE, "a type", language_word(l->c, "dtype"));
        return;
    }
    if (declares && !b->open && !memchr(b->text + b->start, '=', b->word - b->start)) {
        if (strcmp(first, "const") == 0) {
            add(l, "input", ITEM_KEYWORD, "without a gradient", language_word(l->c, "input"));
            add(l, "param", ITEM_KEYWORD, "without a gradient", language_word(l->c, "param"));
        }
        const char *before = letter(last) ? word_before(l->c, b, where + 1) : NULL;
        if (last == ']' || (before && !is_one_of(before, data)))      /* behind a declared name */
            add(l, "in", ITEM_KEYWORD, "a range", language_word(l->c, "in"));
        return;
    }
    if (is_one_of(first, nothing) && !memchr(b->text + b->start, '=', b->word - b->start))
        return;
    add_indices(l, b);
    if (t)
        add_scope(l, t, at);
    add_functions(l, t);
}

int answer_completion(Request *r, const char **why)
{
    (void)why;
    List l = { .r = r, .c = r->a->c };
    const Source *source = &r->a->c->sources.data[r->a->file];
    Before b = read_before(source, r->at);
    const NameTable *t = r->a->names;
    const Region *at = t ? region_at(t, b.at) : NULL;
    if (!at && r->d->good && r->d->good != r->d->now && r->d->good->names) {
        t = r->d->good->names;
        at = region_at(t, b.at);
    }
    buf_f(&r->out, "{\"isIncomplete\": false, \"items\": [");
    if (b.quoted && strcmp(first_word(l.c, &b), "import") == 0) {
        const char *slash = strrchr(r->a->path, '/');
        add_files(&l, slash ? intern_n(l.c, r->a->path, (size_t)(slash - r->a->path) + 1) : NULL);
        add_files(&l, r->s->library_dir);
    } else if (!b.comment && !b.quoted) {
        add_at(&l, t, at, &b);
    }
    buf_f(&r->out, "]}");
    return 0;
}
