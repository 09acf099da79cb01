/* server.h: what the files of the language server share (server.c starts it). */
#ifndef CELLC_LSP_SERVER_H
#define CELLC_LSP_SERVER_H

#include "analysis.h"
#include "rpc.h"
#include "text.h"

/* A text that the editor has open. */
typedef struct Document {
    struct Document *next;
    char *uri, *path;
    Text text;
    bool has_version;
    int version;
    bool dirty;                   /* it, or what it reads, has changed since it was looked at */
    bool tell;                    /* the editor has to be told what is wrong in it */
    int told;                     /* how many faults it knows of `now` */
    Analysis *now;                /* of the text, unless dirty; or NULL */
    Analysis *good;               /* the last one without errors, which may be `now`; or NULL */
} Document;

typedef struct Server {
    Rpc *rpc;
    PlaceUnits units;
    bool initialized, stopping, done;
    bool related;                 /* the editor shows places that belong to a diagnostic */
    bool watches;                 /* it can be asked to watch files */
    bool marks_hover, marks_items;        /* it shows Markdown there, and not plain text only */
    bool nests;                   /* it takes an outline as a tree */
    bool mends;                   /* it takes edits as code actions */
    const char *import_dir, *library_dir;
    Document *documents;
} Server;

/* A request about a document, and the place in it where there is one. */
typedef struct Request {
    Server *s;
    const Message *m;
    const Json *params;
    Document *d;                  /* NULL: the method is about none */
    Analysis *a;                  /* of it, up to date */
    uint32_t at;                  /* as the analysis counts */
    Buf out;                      /* the result */
} Request;

/* documents.c */
Document *document_find(const Server *s, const char *uri);
Document *document_open(Server *s, const char *uri, const char *text, size_t len);
void document_close(Server *s, Document *d);
void document_changed(Server *s, Document *d);                     /* its text has */
void documents_stale(Server *s);                                   /* files may have */
Analysis *document_look(Server *s, Document *d);
/* The path is that of an open document, or NULL. */
Document *document_at(const Server *s, const char *path);
/* Of an analysis with the text of `d` replaced. */
Analysis *document_try(const Server *s, const Document *d, const char *text, size_t len);
/* Offsets of the document's analysis are so much less than those in its text: a byte order mark is none of
 * them. */
uint32_t document_bias(const Document *d);
/* The text as a value of MarkupContent, or, without its marks, as a string, which every editor takes. */
void put_markup(Buf *out, const char *text, size_t n, bool marks);
/* "KEY": {...} */
void put_range(const Server *s, const Document *d, const char *key, uint32_t lo, uint32_t hi, Buf *out);
/* {"uri": ..., "range": {...}} of a place in a source, which may be a file. */
void put_location(const Server *s, const Source *source, Span at, Buf *out);
void put_string(Buf *out, const char *text);
void put_string_n(Buf *out, const char *text, size_t n);

/* Each answers its request in r->out, or gives a code with *why set; 0: done. An empty r->out is null. */
typedef int Answer(Request *r, const char **why);

/* diagnostics.c */
void diagnostics_tell(Server *s, Document *d);
void diagnostics_forget(Server *s, const Document *d);
Answer answer_code_action;
/* hover.c */
Answer answer_hover;
/* navigate.c */
Answer answer_definition, answer_references, answer_highlight, answer_symbols, answer_tokens;
extern const char *const token_types[], *const token_modifiers[];
/* rename.c */
Answer answer_prepare_rename, answer_rename;
/* completion.c */
Answer answer_completion;
/* edits.c */
Answer answer_formatting, answer_lens, answer_command, answer_explain;

/* words.c: what a word of the language means, in Markdown; NULL: it is none. */
const char *language_word(Compiler *c, const char *word);
/* What stands behind or above the declaration in a comment; "": nothing. */
const char *comment_of(Arena *arena, const Source *s, const Stmt *stmt);
/* The declaration as the spec has it, on a line. */
const char *declaration_text(Compiler *c, const Source *s, const Name *n);

#endif
