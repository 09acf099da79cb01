/* rpc.c: messages of JSON-RPC 2.0, each behind a header that says its length. In: bytes. Out: requests and
 * notifications in order, and answers. Guaranteed: what is no message gets the error that the protocol has
 * for it, and the messages behind it are read; a request is answered once; input is taken as it comes, so
 * that a request which was cancelled before its turn is not computed. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/say.h"
#include "rpc.h"

enum {
    MAX_HEADER = 8192,
    MAX_CONTENT = 256 << 20,      /* bytes: texts of documents have at most 8 MB */
    MAX_QUEUE = 256,              /* messages that are read ahead */
    READ_AT_ONCE = 1 << 16
};

struct Rpc {
    int in, out;
    char *data;                   /* what was read and is no message yet */
    size_t len, cap;
    bool ended;                   /* no more comes */
    bool broken;                  /* or goes */
    Message *first, **last;
    int queued, asked;
};

Rpc *rpc_open(int in, int out)
{
    Rpc *r = calloc(1, sizeof *r);
    if (!r) {
        say(DIAG_ERROR, "lsp", "out of memory");
        exit(70);
    }
    r->in = in;
    r->out = out;
    r->last = &r->first;
    return r;
}

void message_free(Message *m)
{
    if (m)
        arena_free(m->arena);
}

void rpc_close(Rpc *r)
{
    for (Message *m = r->first, *next; m; m = next) {
        next = m->next;
        message_free(m);
    }
    free(r->data);
    free(r);
}

bool rpc_ended(const Rpc *r)
{
    return r->ended || r->broken;
}

/* ---- writing */

static void write_all(Rpc *r, const char *p, size_t n)
{
    while (n && !r->broken) {
        ssize_t done = write(r->out, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            r->broken = true;
            return;
        }
        p += done;
        n -= (size_t)done;
    }
}

static void send_message(Rpc *r, const Buf *content)
{
    char header[64];
    int n = snprintf(header, sizeof header, "Content-Length: %zu\r\n\r\n", content->len);
    write_all(r, header, (size_t)n);
    write_all(r, content->data, content->len);
}

static void put_id(const Json *id, Buf *out)
{
    if (id)
        json_print(id, out);
    else
        buf_f(out, "null");
}

static void send_error(Rpc *r, Arena *arena, const Json *id, int code, const char *text)
{
    Buf out = { .arena = arena };
    buf_f(&out, "{\"jsonrpc\": \"2.0\", \"id\": ");
    put_id(id, &out);
    buf_f(&out, ", \"error\": {\"code\": %d, \"message\": ", code);
    buf_json(&out, text, strlen(text));
    buf_f(&out, "}}");
    send_message(r, &out);
}

void rpc_error(Rpc *r, const Message *m, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_text(m->arena, fmt, ap);
    va_end(ap);
    if (m->id)
        send_error(r, m->arena, m->id, code, text);
}

static void put_raw(const Buf *text, Buf *out)
{
    if (!text || !text->len) {
        buf_f(out, "null");
        return;
    }
    buf_f(out, "%.*s", (int)text->len, text->data);
}

void rpc_result(Rpc *r, const Message *m, const Buf *result)
{
    Buf out = { .arena = m->arena };
    if (!m->id)
        return;
    buf_f(&out, "{\"jsonrpc\": \"2.0\", \"id\": ");
    put_id(m->id, &out);
    buf_f(&out, ", \"result\": ");
    put_raw(result, &out);
    buf_f(&out, "}");
    send_message(r, &out);
}

static void send_call(Rpc *r, const char *id, const char *method, const Buf *params)
{
    Buf out = { .arena = params->arena };
    buf_f(&out, "{\"jsonrpc\": \"2.0\", %s\"method\": \"%s\", \"params\": ", id, method);
    put_raw(params, &out);
    buf_f(&out, "}");
    send_message(r, &out);
}

void rpc_notify(Rpc *r, const char *method, const Buf *params)
{
    send_call(r, "", method, params);
}

void rpc_request(Rpc *r, const char *method, const Buf *params)
{
    char id[48];
    snprintf(id, sizeof id, "\"id\": \"cellc-%d\", ", ++r->asked);
    send_call(r, id, method, params);
}

/* ---- reading */

static bool same_id(const Json *a, const Json *b)
{
    return a && b && a->kind == b->kind && a->len == b->len && a->text && b->text &&
           memcmp(a->text, b->text, a->len) == 0;
}

static void cancel(Rpc *r, const Json *id)
{
    for (Message *m = r->first; m; m = m->next)
        if (same_id(m->id, id))
            m->cancelled = true;
}

/* Puts the message into the queue, or answers what is none. */
static void take_message(Rpc *r, const char *text, size_t len)
{
    Arena *arena = arena_new();
    const char *why;
    size_t at;
    const Json *json = json_read(arena, text, len, &why, &at), *id = json_member(json, "id");
    const Json *method = json_member(json, "method"), *params = json_member(json, "params");
    bool answer = json && json->kind == JSON_OBJECT && !method && id &&
                  (json_member(json, "result") || json_member(json, "error"));
    bool id_is_right = !id || id->kind == JSON_STRING || id->kind == JSON_NUMBER;
    if (!json) {
        Buf said = { .arena = arena };
        buf_f(&said, "byte %zu of the content: %s", at, why);
        send_error(r, arena, NULL, RPC_PARSE_ERROR, said.data);
    } else if (answer) {
        /* to a request of ours */
    } else if (!json_is(json_member(json, "jsonrpc"), "2.0") || !json_text(method) || !id_is_right ||
               (params && params->kind != JSON_OBJECT && params->kind != JSON_ARRAY &&
                params->kind != JSON_NULL)) {
        send_error(r, arena, id_is_right ? id : NULL, RPC_INVALID_REQUEST, "no request of JSON-RPC 2.0");
    } else if (json_is(method, "$/cancelRequest")) {
        cancel(r, json_member(params, "id"));
    } else {
        Message *m = arena_alloc(arena, sizeof *m);
        *m = (Message) { .arena = arena, .method = method->text, .id = id, .params = params };
        *r->last = m;
        r->last = &m->next;
        r->queued++;
        return;
    }
    arena_free(arena);
}

/* Bytes of the header with its empty line; 0: it is not there yet. Lines may end with \n alone. */
static size_t header_bytes(const Rpc *r)
{
    for (size_t i = 0; i + 1 < r->len; i++)
        if (r->data[i] == '\n' && (r->data[i + 1] == '\n' || (r->data[i + 1] == '\r' && i + 2 < r->len &&
                                                              r->data[i + 2] == '\n')))
            return i + (r->data[i + 1] == '\n' ? 2 : 3);
    return 0;
}

/* What Content-Length says; -1: nothing that is a length. */
static long content_length(const char *header, size_t n)
{
    static const char name[] = "content-length:";
    const char *end = header + n;
    for (const char *p = header, *eol; p < end; p = eol + 1) {
        eol = memchr(p, '\n', (size_t)(end - p));
        if (!eol)
            break;
        if ((size_t)(eol - p) < sizeof name - 1 || strncasecmp(p, name, sizeof name - 1) != 0)
            continue;
        p += sizeof name - 1;
        while (p < eol && (*p == ' ' || *p == '\t'))
            p++;
        long length = 0;
        const char *digit = p;
        for (; digit < eol && *digit >= '0' && *digit <= '9' && length <= MAX_CONTENT; digit++)
            length = 10 * length + (*digit - '0');
        bool blank = digit == eol || *digit == '\r' || *digit == ' ';
        return digit > p && blank && length <= MAX_CONTENT ? length : -1;
    }
    return -1;
}

static void drop(Rpc *r, size_t n)
{
    memmove(r->data, r->data + n, r->len - n);
    r->len -= n;
}

static void bad_header(Rpc *r, const char *why)
{
    Arena *arena = arena_new();
    send_error(r, arena, NULL, RPC_PARSE_ERROR, why);
    arena_free(arena);
}

/* Takes one message off what was read; false: more has to come. */
static bool split_message(Rpc *r)
{
    size_t header = header_bytes(r);
    if (!header && r->len > MAX_HEADER) {
        bad_header(r, "a header without an end");
        r->len = 0;
        return false;
    }
    if (!header)
        return false;
    long length = content_length(r->data, header);
    if (length < 0) {
        bad_header(r, "a header without a Content-Length that can be read");
        drop(r, header);
        return true;
    }
    if (r->len - header < (size_t)length)
        return false;
    take_message(r, r->data + header, (size_t)length);
    drop(r, header + (size_t)length);
    return true;
}

/* Reads what there is, and where `wait` is true waits for something. */
static void fill(Rpc *r, bool wait)
{
    struct pollfd ready = { .fd = r->in, .events = POLLIN };
    int n;
    while ((n = poll(&ready, 1, wait ? -1 : 0)) < 0 && errno == EINTR)
        ;
    if (n <= 0)
        return;
    if (r->cap - r->len < READ_AT_ONCE) {
        r->cap = r->cap ? 2 * r->cap : 2 * READ_AT_ONCE;
        char *more = realloc(r->data, r->cap);
        if (!more) {
            say(DIAG_ERROR, "lsp", "out of memory (%zu bytes wanted)", r->cap);
            exit(70);
        }
        r->data = more;
    }
    ssize_t got = read(r->in, r->data + r->len, r->cap - r->len);
    if (got > 0)
        r->len += (size_t)got;
    else if (got == 0 || errno != EINTR)
        r->ended = true;
}

Message *rpc_next(Rpc *r, bool wait)
{
    for (;;) {
        size_t before;
        do {
            while (r->queued < MAX_QUEUE && split_message(r))
                ;
            before = r->len;
            if (!rpc_ended(r) && r->queued < MAX_QUEUE)
                fill(r, wait && !r->first);
        } while (r->len > before && r->queued < MAX_QUEUE);
        if (r->first || !wait || rpc_ended(r))
            break;
    }
    Message *m = r->first;
    if (m) {
        r->first = m->next;
        r->last = r->first ? r->last : &r->first;
        r->queued--;
    }
    return m;
}
