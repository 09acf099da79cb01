/* edits.c: formatting, and what a step costs. In: a document. Out: an edit that makes its text canonical; a
 * line above each cell with its schedule and cost, and the page of `cellc explain`. */
#include <string.h>

#include "server.h"

/* One edit of what differs, whole lines, so that the editor keeps its place in the rest. */
static void put_edit(Request *r, const Source *s, const Buf *text)
{
    size_t lo = 0, hi = s->len, end = text->len;
    while (lo < hi && lo < end && s->text[lo] == text->data[lo])
        lo++;
    while (lo > 0 && s->text[lo - 1] != '\n')
        lo--;
    while (hi > lo && end > lo && s->text[hi - 1] == text->data[end - 1])
        hi--, end--;
    while (hi < s->len && end < text->len && (hi == 0 || s->text[hi - 1] != '\n'))
        hi++, end++;
    buf_f(&r->out, "{");
    put_range(r->s, r->d, "range", (uint32_t)lo, (uint32_t)hi, &r->out);
    buf_f(&r->out, ", \"newText\": ");
    put_string_n(&r->out, text->data + lo, end - lo);
    buf_f(&r->out, "}");
}

int answer_formatting(Request *r, const char **why)
{
    Buf text = { .arena = r->m->arena };
    if (!r->a->parsed) {
        *why = "a file with errors of form is not formatted";
        return RPC_FAILED;
    }
    fmt_ast(r->a->c, r->a->ast, false, &text);
    const Source *s = &r->a->c->sources.data[r->a->file];
    bool same = s->len == text.len && memcmp(s->text, text.data ? text.data : "", text.len) == 0;
    buf_f(&r->out, "[");
    if (!same && text.len)
        put_edit(r, s, &text);
    buf_f(&r->out, "]");
    return 0;
}

/* ---- cost */

static void put_lens(Request *r, const Name *cell, const char *title, bool *any)
{
    buf_f(&r->out, *any ? ", {" : "{");
    put_range(r->s, r->d, "range", cell->span.lo, cell->span.hi, &r->out);
    buf_f(&r->out, ", \"command\": {\"title\": ");
    put_string(&r->out, title);
    buf_f(&r->out, ", \"command\": \"cellc.explain\", \"arguments\": [");
    put_string(&r->out, r->d->uri);
    buf_f(&r->out, ", ");
    put_string(&r->out, cell->name);
    buf_f(&r->out, "]}}");
    *any = true;
}

static const Name *cell_of(const Analysis *a, const char *name)
{
    for (int i = 0; a->names && i < a->names->all.len; i++)
        if (a->names->all.data[i]->kind == NAME_CELL && strcmp(a->names->all.data[i]->name, name) == 0)
            return a->names->all.data[i];
    return NULL;
}

int answer_lens(Request *r, const char **why)
{
    (void)why;
    bool any = false;
    buf_f(&r->out, "[");
    for (int i = 0; i < r->a->variants.len; i++) {
        Variant *v = r->a->variants.data[i];
        const Name *cell = v->sound && !*v->with ? cell_of(r->a, v->cell->name) : NULL;
        if (!cell)
            continue;
        plan_variant(v);
        if (!v->schedule)
            continue;
        put_lens(r, cell, v->schedule, &any);
        put_lens(r, cell, v->work, &any);
        put_lens(r, cell, v->memory, &any);
    }
    buf_f(&r->out, "]");
    return 0;
}

/* ---- the page of explain */

static int explain_cell(Request *r, const char *cell, const char **why)
{
    const Variant *v = NULL;
    for (int i = 0; i < r->a->variants.len && !v; i++)
        if (r->a->variants.data[i]->cell && (!cell || strcmp(r->a->variants.data[i]->cell->name, cell) == 0))
            v = r->a->variants.data[i];
    if (!v || !v->sound || v->nodes > MAX_PLANNED_NODES) {
        *why = v && v->sound ? "the cell is too large to be planned while it is written: see cellc explain"
                             : "there is no such cell without errors in it";
        return RPC_FAILED;
    }
    Buf text = { .arena = r->m->arena };
    bool ok = explain_variant(v, &text, why);
    if (ok)
        put_string_n(&r->out, text.data, text.len);
    return ok ? 0 : RPC_FAILED;
}

int answer_explain(Request *r, const char **why)
{
    return explain_cell(r, json_text(json_member(r->params, "cell")), why);
}

/* workspace/executeCommand of cellc.explain: the page is the result, and is shown by editors that show
 * messages. */
int answer_command(Request *r, const char **why)
{
    const Json *arguments = json_member(r->params, "arguments"), *uri = arguments ? arguments->first : NULL;
    if (!json_is(json_member(r->params, "command"), "cellc.explain")) {
        *why = "the only command is cellc.explain";
        return RPC_INVALID_PARAMS;
    }
    r->d = document_find(r->s, json_text(uri));
    if (!r->d) {
        *why = "cellc.explain takes the URI of an open document, and the name of a cell";
        return RPC_INVALID_PARAMS;
    }
    r->a = document_look(r->s, r->d);
    int code = explain_cell(r, json_text(uri->next), why);
    if (!code) {
        Buf shown = { .arena = r->m->arena };
        buf_f(&shown, "{\"type\": 3, \"message\": %.*s}", (int)r->out.len, r->out.data);
        rpc_notify(r->s->rpc, "window/showMessage", &shown);
    }
    return code;
}
