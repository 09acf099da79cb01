/* server.c: `cellc lsp`, a language server. In: messages of the Language Server Protocol on standard input.
 * Out: answers and diagnostics on standard output. Guaranteed: each request gets one answer, in order; what
 * is wrong in a document is said when the editor stops sending, so that a burst of key strokes is looked at
 * once; no text ends the process. */
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/say.h"
#include "commands/commands.h"
#include "commands/options.h"
#include "server.h"

enum { WANTS_TEXT = 1, WANTS_PLACE = 2 };

/* ---- the life of the server */

static void put_words(Buf *out, const char *const *words)
{
    buf_f(out, "[");
    for (int i = 0; words[i]; i++)
        buf_f(out, i ? ", \"%s\"" : "\"%s\"", words[i]);
    buf_f(out, "]");
}

static bool offers(const Json *list, const char *word)
{
    for (const Json *e = list && list->kind == JSON_ARRAY ? list->first : NULL; e; e = e->next)
        if (json_is(e, word))
            return true;
    return false;
}

/* Bytes of UTF-8, if the editor can count them: what the compiler does. */
static PlaceUnits choose_units(const Json *offered)
{
    return offers(offered, units_names[UNITS_UTF8]) ? UNITS_UTF8 : UNITS_UTF16;
}

static int initialize(Request *r, const char **why)
{
    Server *s = r->s;
    if (s->initialized) {
        *why = "initialize comes once";
        return RPC_INVALID_REQUEST;
    }
    const Json *can = json_member(r->params, "capabilities"), *text = json_member(can, "textDocument");
    s->units = choose_units(json_member(json_member(can, "general"), "positionEncodings"));
    s->related = json_true(json_member(json_member(text, "publishDiagnostics"), "relatedInformation"));
    s->watches = json_true(json_member(json_member(json_member(can, "workspace"), "didChangeWatchedFiles"),
                                       "dynamicRegistration"));
    s->marks_hover = offers(json_member(json_member(text, "hover"), "contentFormat"), "markdown");
    s->marks_items = offers(json_member(json_member(json_member(text, "completion"), "completionItem"),
                                        "documentationFormat"), "markdown");
    s->nests = json_true(json_member(json_member(text, "documentSymbol"),
                                     "hierarchicalDocumentSymbolSupport"));
    s->mends = json_member(json_member(text, "codeAction"), "codeActionLiteralSupport") != NULL;
    s->initialized = true;
    buf_f(&r->out, "{\"capabilities\": {\"positionEncoding\": \"%s\", ", units_names[s->units]);
    buf_f(&r->out, "\"textDocumentSync\": {\"openClose\": true, \"change\": 2, \"save\": {\"includeText\": false}}, "
                   "\"hoverProvider\": true, \"definitionProvider\": true, \"referencesProvider\": true, "
                   "\"documentHighlightProvider\": true, \"documentSymbolProvider\": true, "
                   "\"documentFormattingProvider\": true, \"renameProvider\": {\"prepareProvider\": true}, "
                   "\"codeActionProvider\": {\"codeActionKinds\": [\"quickfix\"]}, "
                   "\"codeLensProvider\": {\"resolveProvider\": false}, "
                   "\"completionProvider\": {\"triggerCharacters\": [\".\", \"~\", \":\", \"\\\"\", \"=\", \"[\"]}, "
                   "\"executeCommandProvider\": {\"commands\": [\"cellc.explain\"]}, "
                   "\"semanticTokensProvider\": {\"full\": true, \"legend\": {\"tokenTypes\": ");
    put_words(&r->out, token_types);
    buf_f(&r->out, ", \"tokenModifiers\": ");
    put_words(&r->out, token_modifiers);
    buf_f(&r->out, "}}}, \"serverInfo\": {\"name\": \"cellc\"}}");
    return 0;
}

static int initialized(Request *r, const char **why)
{
    (void)why;
    Buf params = { .arena = r->m->arena };
    buf_f(&params, "{\"registrations\": [{\"id\": \"cells\", \"method\": \"workspace/didChangeWatchedFiles\", "
                   "\"registerOptions\": {\"watchers\": [{\"globPattern\": \"**/*.cell\"}]}}]}");
    if (r->s->watches)
        rpc_request(r->s->rpc, "client/registerCapability", &params);
    return 0;
}

static int shut_down(Request *r, const char **why)
{
    (void)why;
    r->s->stopping = true;
    return 0;
}

static int leave(Request *r, const char **why)
{
    (void)why;
    r->s->done = true;
    return 0;
}

/* ---- texts */

static const Json *document_of(const Request *r)
{
    return json_member(r->params, "textDocument");
}

static void take_version(Document *d, const Json *document)
{
    const Json *version = json_member(document, "version");
    d->has_version = version && version->kind == JSON_NUMBER;
    d->version = json_int(version, 0);
}

static int did_open(Request *r, const char **why)
{
    const Json *document = document_of(r), *text = json_member(document, "text");
    const char *uri = json_text(json_member(document, "uri"));
    if (!uri || !json_text(text)) {
        *why = "a document without uri or text";
        return RPC_INVALID_PARAMS;
    }
    take_version(document_open(r->s, uri, text->text, text->len), document);
    return 0;
}

/* A change of a range, or of the whole text. */
static bool apply(const Server *s, Document *d, const Json *change)
{
    const Json *text = json_member(change, "text"), *range = json_member(change, "range");
    if (!json_text(text))
        return false;
    if (!range || range->kind == JSON_NULL) {
        text_set(&d->text, text->text, text->len);
        return true;
    }
    const Json *ends[] = { json_member(range, "start"), json_member(range, "end") };
    size_t offset[2];
    for (int i = 0; i < 2; i++) {
        Place at = { json_int(json_member(ends[i], "line"), -1),
                     json_int(json_member(ends[i], "character"), -1) };
        if (at.line < 0 || at.character < 0)
            return false;
        offset[i] = text_offset(&d->text, at, s->units);
    }
    if (offset[0] > offset[1])
        return false;
    text_replace(&d->text, offset[0], offset[1], text->text, text->len);
    return true;
}

static int did_change(Request *r, const char **why)
{
    const Json *changes = json_member(r->params, "contentChanges");
    bool right = changes && changes->kind == JSON_ARRAY;
    for (const Json *e = right ? changes->first : NULL; e; e = e->next)
        right = apply(r->s, r->d, e) && right;
    take_version(r->d, document_of(r));
    document_changed(r->s, r->d);
    *why = "a change without a text, or of a range that is none";
    return right ? 0 : RPC_INVALID_PARAMS;
}

static int did_close(Request *r, const char **why)
{
    (void)why;
    diagnostics_forget(r->s, r->d);
    document_close(r->s, r->d);
    r->d = NULL;
    return 0;
}

/* A file was saved, or changed outside of the editor: others may import it. */
static int files_changed(Request *r, const char **why)
{
    (void)why;
    documents_stale(r->s);
    return 0;
}

static int ignore(Request *r, const char **why)
{
    (void)r;
    (void)why;
    return 0;
}

/* ---- methods */

typedef struct Method {
    const char *name;
    Answer *answer;
    bool request;
    int wants;
    bool document;                /* params.textDocument is one that is open */
} Method;

static const Method methods[] = {
    { "initialize", initialize, true, 0, false },
    { "initialized", initialized, false, 0, false },
    { "shutdown", shut_down, true, 0, false },
    { "exit", leave, false, 0, false },
    { "textDocument/didOpen", did_open, false, 0, false },
    { "textDocument/didChange", did_change, false, 0, true },
    { "textDocument/didClose", did_close, false, 0, true },
    { "textDocument/didSave", files_changed, false, 0, false },
    { "textDocument/willSave", ignore, false, 0, false },
    { "workspace/didChangeWatchedFiles", files_changed, false, 0, false },
    { "workspace/didChangeConfiguration", ignore, false, 0, false },
    { "workspace/didChangeWorkspaceFolders", ignore, false, 0, false },
    { "textDocument/hover", answer_hover, true, WANTS_TEXT | WANTS_PLACE, true },
    { "textDocument/definition", answer_definition, true, WANTS_TEXT | WANTS_PLACE, true },
    { "textDocument/references", answer_references, true, WANTS_TEXT | WANTS_PLACE, true },
    { "textDocument/documentHighlight", answer_highlight, true, WANTS_TEXT | WANTS_PLACE, true },
    { "textDocument/completion", answer_completion, true, WANTS_TEXT | WANTS_PLACE, true },
    { "textDocument/prepareRename", answer_prepare_rename, true, WANTS_TEXT | WANTS_PLACE, true },
    { "textDocument/rename", answer_rename, true, WANTS_TEXT | WANTS_PLACE, true },
    { "textDocument/documentSymbol", answer_symbols, true, WANTS_TEXT, true },
    { "textDocument/semanticTokens/full", answer_tokens, true, WANTS_TEXT, true },
    { "textDocument/formatting", answer_formatting, true, WANTS_TEXT, true },
    { "textDocument/codeAction", answer_code_action, true, WANTS_TEXT, true },
    { "textDocument/codeLens", answer_lens, true, WANTS_TEXT, true },
    { "cellc/explain", answer_explain, true, WANTS_TEXT, true },
    { "workspace/executeCommand", answer_command, true, 0, false },
};

static const Method *find_method(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, name) == 0)
            return &methods[i];
    return NULL;
}

/* The code of an error before the method is looked at; 0: none. */
static int refused(const Server *s, const Message *m, const Method *method, const char **why)
{
    if (m->cancelled) {
        *why = "cancelled";
        return RPC_CANCELLED;
    }
    if (!s->initialized && strcmp(m->method, "initialize") != 0) {
        *why = "the first request is initialize";
        return RPC_NOT_INITIALIZED;
    }
    if (s->stopping && strcmp(m->method, "exit") != 0) {
        *why = "behind shutdown comes nothing but exit";
        return RPC_INVALID_REQUEST;
    }
    if (!method) {
        *why = "there is no such method";
        return RPC_NO_METHOD;
    }
    if (method->request != (m->id != NULL)) {
        *why = method->request ? "a request has an id" : "a notification has no id";
        return RPC_INVALID_REQUEST;
    }
    return 0;
}

static int find_document(Request *r, const Method *method, const char **why)
{
    const char *uri = json_text(json_member(document_of(r), "uri"));
    const Json *position = json_member(r->params, "position");
    r->d = document_find(r->s, uri);
    if (!r->d) {
        *why = uri ? "the document is not open" : "the document is missing";
        return RPC_INVALID_PARAMS;
    }
    if (method->wants & WANTS_TEXT)
        r->a = document_look(r->s, r->d);
    if (method->wants & WANTS_PLACE) {
        Place at = { json_int(json_member(position, "line"), -1),
                     json_int(json_member(position, "character"), -1) };
        if (at.line < 0 || at.character < 0) {
            *why = "the position is missing";
            return RPC_INVALID_PARAMS;
        }
        uint32_t bias = document_bias(r->d);
        r->at = (uint32_t)text_offset(&r->d->text, at, r->s->units);
        r->at -= r->at < bias ? r->at : bias;
    }
    return 0;
}

typedef struct Turn { Request *r; const Method *method; const char *why; int code; } Turn;

static void take_turn(void *with)
{
    Turn *t = with;
    t->code = t->method->document ? find_document(t->r, t->method, &t->why) : 0;
    if (!t->code)
        t->code = t->method->answer(t->r, &t->why);
}

static void answer(Server *s, const Message *m)
{
    const Method *method = find_method(m->method);
    Request r = { .s = s, .m = m, .params = m->params, .out = { .arena = m->arena } };
    Turn t = { .r = &r, .method = method };
    if (!method && strncmp(m->method, "$/", 2) == 0 && !m->id)
        return;                   /* of the protocol's implementations, which may be ignored */
    if (strcmp(m->method, "exit") == 0) {
        s->done = true;
        return;
    }
    t.code = refused(s, m, method, &t.why);
    if (!t.code && !survives(take_turn, &t)) {
        t.code = RPC_INTERNAL;
        t.why = "this shows a bug of cellc, which its standard error names";
    }
    if (t.code)
        rpc_error(s->rpc, m, t.code, "%s", t.why ? t.why : "?");
    else
        rpc_result(s->rpc, m, &r.out);
}

typedef struct Work { Server *s; bool done; } Work;

/* Says what is wrong in a document whose text is new, or looks at one more choice of options; nothing: there
 * is nothing to do. */
static void work(void *with)
{
    Work *w = with;
    for (Document *d = w->s->documents; d && !w->done; d = d->next) {
        w->done = d->tell;
        if (d->tell)
            diagnostics_tell(w->s, d);
    }
    for (Document *d = w->s->documents; d && !w->done; d = d->next) {
        w->done = d->now && analysis_goes_on(d->now);
        if (w->done)
            analysis_step(d->now);
        else if (d->now && d->now->faults.len > d->told)
            diagnostics_tell(w->s, d);
    }
}

static bool work_a_while(Server *s)
{
    Work w = { s, false };
    survives(work, &w);
    return w.done;
}

static int serve(Server *s)
{
    while (!s->done) {
        Message *m = rpc_next(s->rpc, false);
        if (!m && work_a_while(s))
            continue;
        if (!m)
            m = rpc_next(s->rpc, true);
        if (!m)
            break;
        answer(s, m);
        message_free(m);
    }
    int rc = s->stopping && s->done ? 0 : 1;
    while (s->documents)
        document_close(s, s->documents);
    rpc_close(s->rpc);
    return rc;
}

static const CommandHelp help = {
    .name = "lsp",
    .arguments = "",
    .summary = "be an editor's language server, over standard input and output",
    .about = "Speaks the Language Server Protocol: diagnostics as one types, hover, completion, definitions, rename,\n"
             "formatting, and the cost of a step above each cell. editors/README.md says how VS Code, Vim, Neovim\n"
             "and Emacs start it.",
    .examples = "  cellc lsp                            what an editor starts\n"
                "  cellc lsp --import-dir cells         look there too for what specs import\n",
};

int cmd_lsp(int argc, char **argv)
{
    Compiler *c = compiler_new();
    bool over_stdio = true;
    const OptionSpec table[] = {
        { "--import-dir", "DIR", OPT_STRING, &c->import_dir, "look here too for what specs import" },
        { "--stdio", NULL, OPT_FLAG, &over_stdio, "what it does anyway; editors say so" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    const char *operands[argc + 1];
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        Server s = { .import_dir = c->import_dir, .library_dir = c->library_dir };
        s.rpc = rpc_open(STDIN_FILENO, STDOUT_FILENO);
        rc = serve(&s);
    }
    compiler_free(c);
    return rc;
}
